"""What is kept between calls: plans, which are decisions, and constants, which are frequencies on a device."""

import os
import threading
from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary

from rope_any._arrays import Array, Library, X, is_compiling
from rope_any._frequencies import PreparedFrequencies, prepare

_MOST_PLANS = 1024
PLANS: dict[tuple[Any, ...], Any] = {}
"""What was decided for the arrays of a call, by all that it depends on; to be filled by `keep_plan`."""
_CONSTANTS: WeakKeyDictionary[PreparedFrequencies, dict[Hashable, Any]] = WeakKeyDictionary()
_MOVES: WeakKeyDictionary[PreparedFrequencies, WeakKeyDictionary[PreparedFrequencies, PreparedFrequencies]]
_MOVES = WeakKeyDictionary()
_LOCK = threading.Lock()


def keep_plan(key: tuple[Any, ...] | None, plan: Any) -> None:
    """Keep a plan, which may hold no array and nothing that depends on what is in one; a key of None keeps nothing."""
    if key is None:
        return
    if len(PLANS) >= _MOST_PLANS:
        PLANS.clear()  # which takes less than to keep account of what was used last
    PLANS[key] = plan


def kept(prepared: PreparedFrequencies, key: Hashable, make: Callable[[], X]) -> X:
    """Return what `make` makes of prepared frequencies: made once, and kept as long as these."""
    found = _CONSTANTS.get(prepared)
    if found is None or key not in found:
        made = make()
        with _LOCK:
            return _CONSTANTS.setdefault(prepared, {}).setdefault(key, made)  # type: ignore[no-any-return]  # an X
    return found[key]  # type: ignore[no-any-return]  # likewise


def constants(lib: Library, prepared: PreparedFrequencies, field: str, /, *, dtype: Any, like: Array) -> list[Array]:
    """
    Return the rows of a field of prepared frequencies as arrays beside `like`, made once.

    They are kept as long as the frequencies, for a captured graph of a GPU goes on reading their memory. While
    something traces or transforms they are neither kept nor read.
    """

    def make() -> list[Array]:
        place = lib.device_kwargs(like)
        return [lib.xp.asarray(row, dtype=dtype, **place) for row in getattr(prepared, field)]

    def make_to_keep() -> list[Array]:
        if lib.is_capturing(like):
            msg = "frequencies must be on the device before a graph is captured: call once before, with the same Rope"
            raise RuntimeError(msg)
        with lib.anywhere():
            return make()

    if not lib.keeps_constants():
        return make()
    return kept(prepared, (lib, field, lib.placement(like), dtype), make_to_keep)


def moved(prepared: PreparedFrequencies, source: PreparedFrequencies, /) -> PreparedFrequencies:
    """Return frequencies and, side by side with them, those of `source` turned backwards; made once."""
    compiling = is_compiling()
    moves = None if compiling else _MOVES.get(prepared)
    found = None if moves is None else moves.get(source)
    if found is not None:
        return found
    made = prepare((*prepared.rows, *(tuple(-f for f in row) for row in source.rows)))
    if compiling:
        return made
    with _LOCK:
        return _MOVES.setdefault(prepared, WeakKeyDictionary()).setdefault(source, made)


def _renew_lock() -> None:
    """Forget a lock that another thread of the parent may have held, which a forked process does not have."""
    global _LOCK  # noqa: PLW0603  # there is one
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def clear_caches() -> None:
    """
    Forget what is kept between calls.

    Plans (what was decided for arrays of some shapes, at most 1024 of them) and constants (the frequencies of each
    `Rope` on each device, which live as long as the `Rope`) are made anew when they are needed. A graph of CUDA that
    was captured before must not be replayed after.

    Examples
    --------
    >>> import rope_any as ra
    >>> ra.clear_caches()
    """
    with _LOCK:
        PLANS.clear()
        _CONSTANTS.clear()
        _MOVES.clear()
