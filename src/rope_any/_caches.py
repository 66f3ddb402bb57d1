"""Caches between calls: plans (how to rotate arrays of some shapes) and constants (frequencies on a device)."""

import os
import threading
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from rope_any._arrays import Array, Library, State, X, is_compiling
from rope_any._frequencies import PreparedFrequencies, prepare

_MOST_PLANS = 1024
PLANS: dict[tuple[Any, ...], Any] = {}
"""Cached plans by the `signature` of the arrays and the options of a call; filled by `keep_plan`."""
Store = MutableMapping[PreparedFrequencies, dict[Hashable, Any]]
_CONSTANTS: Store = WeakKeyDictionary()
_MOVES: WeakKeyDictionary[PreparedFrequencies, WeakKeyDictionary[PreparedFrequencies, PreparedFrequencies]]
_MOVES = WeakKeyDictionary()
_LOCK = threading.Lock()


def keep_plan(key: tuple[Any, ...] | None, plan: X) -> X:
    """Return a plan, which holds no array of a caller, and cache it unless the key is None; clear a full cache."""
    if key is not None:
        if len(PLANS) >= _MOST_PLANS:
            PLANS.clear()  # cheaper than tracking the least recently used
        PLANS[key] = plan
    return plan


def cached(
    prepared: PreparedFrequencies, key: Hashable, make: Callable[[PreparedFrequencies], X], store: Store = _CONSTANTS
) -> X:
    """Return ``make(prepared)``, or its cached result for `prepared` and `key`, which lives as long as `prepared`."""
    found = store.get(prepared)
    if found is None or key not in found:
        made = make(prepared)
        with _LOCK:
            return store.setdefault(prepared, {}).setdefault(key, made)  # type: ignore[no-any-return]  # an X
    return found[key]  # type: ignore[no-any-return]  # likewise


def constants(
    lib: Library, prepared: PreparedFrequencies, field: str, positions: Array, /, *, dtype: Any
) -> list[Array]:
    """
    Return rows of `field`, as arrays that columns of `positions` can be multiplied by, on their device.

    They are kept for later calls if `lib` can keep arrays now, or by the mode that makes them (`Library.mode_store`).
    Raises if a graph capture must make them.
    """

    def make() -> list[Array]:
        """Create one array for each row of the field, on the device of the positions."""
        place = lib.device_kwargs(positions)
        return [lib.xp.asarray(row, dtype=dtype, **place) for row in getattr(prepared, field)]

    def kept(store: Store) -> list[Array]:
        """Return the rows that are kept for the device of the positions, or make them; raise in a graph capture."""
        # By field, which decides the dtype; then by device, which can be compared in all libraries, but not hashed.
        key, device = (lib, field), lib.placement(positions)
        for known, rows in store.get(prepared, {}).get(key, ()):
            if known == device:
                return rows  # type: ignore[no-any-return]  # as `make` returns them
        if lib.is_capturing(positions):
            msg = (
                "frequencies must be on the device before a graph is captured: "
                "call once before, outside of the capture, with the same Rope and arrays like these"
            )
            raise RuntimeError(msg)
        with lib.constant_context():
            made = make()
        if state is State.TRANSFORMED:  # another mode may make arrays of a class of its own
            is_usable = all(type(row) is type(positions) for row in made)
        else:
            is_usable = state is not State.UNKNOWN or all(map(lib.holds_numbers, made))
        if is_usable:
            # They live as long as the frequencies, because a captured CUDA graph continues to read their memory.
            rows_by_device: list[tuple[Any, list[Array]]] = cached(prepared, key, lambda _: [], store)
            rows_by_device.append((device, made))
        return made

    state = lib.state()
    store = _CONSTANTS if state.can_keep_arrays else lib.mode_store(positions)
    rows = make() if store is None else kept(store)
    rank = positions.ndim + (prepared.axes is None)
    return [lib.broadcast_to_rank(row, rank) for row in rows]


def reposition_frequencies(prepared: PreparedFrequencies, source: PreparedFrequencies, /) -> PreparedFrequencies:
    """Return the rows of `prepared` for new positions, then those of `source`, negated, for old ones; cached."""
    compiling = is_compiling()
    moves = None if compiling else _MOVES.get(prepared)
    found = None if moves is None else moves.get(source)
    if found is not None:
        return found
    made = replace(prepare((*prepared.rows, *(tuple(-f for f in row) for row in source.rows))), heads=prepared.heads)
    if compiling:
        return made
    with _LOCK:
        return _MOVES.setdefault(prepared, WeakKeyDictionary()).setdefault(source, made)


def _renew_lock() -> None:
    """Replace the lock in a forked process: a thread of the parent may have held it."""
    global _LOCK  # noqa: PLW0603  # the parent's lock stays locked
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def clear_caches() -> None:
    """
    Clear the caches between calls: plans and constants.

    Plans say how to rotate arrays of some shapes; at most 1024 are kept. Constants are the frequencies of each `Rope`
    on each device, which live as long as the `Rope`. Both are made again when they are needed. Those of a
    FakeTensorMode of torch live as long as the mode. Do not replay a CUDA
    graph that was captured before the call.
    """
    with _LOCK:
        PLANS.clear()
        _CONSTANTS.clear()
        _MOVES.clear()
