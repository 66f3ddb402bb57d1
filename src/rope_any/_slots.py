"""Rotate tokens into the slots of a cache: in one compiled loop, or by the array library's own indexing."""

from collections.abc import Callable
from math import prod
from typing import Any

from rope_any._align import Tokens, axes_if_fits
from rope_any._arrays import Array, Library, State, _sharding
from rope_any._arrays._memory import plan_outs, require_out_dtype
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text
from rope_any._fused_rotation import plan_slot_loop
from rope_any._rotation import Plan, Rotation, Table
from rope_any._schedules import plan_rotation


def plan_slots(
    rotation: Rotation,
    tokens: Tokens,
    table: Table,
    outs: tuple[Any, ...],
    broadcast: Callable[[Table], Table] | None,
) -> Plan:
    """
    Return the plan that writes the rotated tokens into a cache; `outs` are that and the slot of each token.

    The plan takes the table of a call; `broadcast`, if it is not None, fits that to the axes of x.
    """
    lib, x, (cache, slots) = rotation.lib, tokens.x, outs
    order, places = _require_fitting(tokens, cache, slots)
    check = plan_outs(lib, (tokens.name,), (x,), (cache,), (*table, slots))
    wide_table = broadcast(table) if broadcast else table
    on_host = lib.state(x, *table, *outs) is State.HOST
    loop = None
    if rotation.fused and on_host and rotation.blocks == 1:
        loop = plan_slot_loop(rotation, x, wide_table, outs, order[: slots.ndim])

    def plan_indexed(x: Array, table: Table, cache: Array) -> Plan:
        """Return the plan that rotates x into a new array, whose rows it assigns to the cache by indices."""
        dtype = rotation.unrounded_dtype(x, cache)
        rotate = plan_rotation(rotation, (lib.cast(x, dtype),), table, (None,))

        def run(xs: tuple[Array, ...], table: Table, outs: tuple[Array, ...]) -> tuple[Array, ...]:
            """Write the rotated x into its slots."""
            (cache, slots), (rotated,) = outs, rotate((lib.cast(xs[0], dtype),), table, (None,))
            rows = lib.cast(rotated, cache.dtype)
            if order != (*range(rows.ndim),):
                rows = lib.xp.permute_dims(rows, order)
            _assign(lib, cache, places, slots, rows, on_host=on_host)
            return (cache,)

        return run

    indexed = plan_indexed(x, wide_table, cache) if loop is None else None

    def run(xs: tuple[Array, ...], table: Table, outs: tuple[Array, ...]) -> tuple[Array, ...]:
        """Check the memory of a call, and write the rotated x into its slots."""
        if check(xs, outs[:1], (*table, outs[1]))[0] is outs[0]:
            raise ArgumentValueError("out", "not be x itself if `slots` are given", Text("the memory of x"))
        if broadcast:
            table = broadcast(table)
        if loop is not None and loop(xs[0], table, outs):
            return outs[:1]
        # the loop refuses arrays that are not aligned, and slots past the end
        return (indexed or plan_indexed(xs[0], table, outs[0]))(xs, table, outs)

    return run


def _require_fitting(tokens: Tokens, cache: Array, slots: Array) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of x in the order of slots and rows, and the lengths of the cache's axes of slots; or raise."""
    lib, name, x, seq, _ = tokens
    if any(map(_sharding.is_sharded, (x, cache, slots))):
        raise ArgumentTypeError("slots", "be those of plain arrays", Text("a sharded array"), "give to_local() of each")
    lib.require_integer("slots", slots)
    require_out_dtype(lib, name, x, cache)
    along = axes_if_fits(x.shape, seq, tuple(slots.shape))
    if along is None or any(n != x.shape[axis] for n, axis in zip(slots.shape, along, strict=True)):
        wanted = f"be (seq,) or (batch, ..., seq) for {name} of shape {tuple(x.shape)}, with tokens along axis {seq}"
        raise ArgumentValueError("slots", wanted, tuple(slots.shape), "give -1 for a token without a slot")
    order = *along, *(axis for axis in range(x.ndim) if axis not in along)
    row = tuple([x.shape[axis] for axis in order[slots.ndim :]])
    places = tuple(cache.shape[: max(cache.ndim - len(row), 0)])
    if len(places) not in {1, 2} or tuple(cache.shape) != places + row:
        of_row = ", ".join(map(str, row))
        wanted = f"be of shape (slots, {of_row}) or (blocks, slots of a block, {of_row}) if `slots` are given"
        hint = "swap its axes if it is (blocks, heads, slots of a block, features): a view is written too"
        raise ArgumentValueError("out", wanted, tuple(cache.shape), hint)
    return order, places


def _assign(lib: Library, cache: Array, places: tuple[int, ...], slots: Array, rows: Array, *, on_host: bool) -> None:
    """
    Write rows, whose first axes are those of `slots`, into a cache; skip those with a negative slot.

    A slot past the end is an error if the values of slots can be read, and else skipped too.
    """
    xp, count, row = lib.xp, prod(places), tuple(cache.shape[len(places) :])
    slots = lib.cast(slots, xp.int64)
    if slots.ndim != 1:
        slots, rows = xp.reshape(slots, (-1,)), xp.reshape(rows, (-1, *row))
    if on_host and prod(slots.shape):
        if (largest := int(slots.max())) >= count:
            wanted = f"be less than {count}, the number of slots of `out`"
            raise ArgumentValueError("slots", wanted, largest, "give -1 for a token without a slot")
        if int(slots.min()) < 0:
            slots, rows = slots[slots >= 0], rows[slots >= 0]
    elif prod(slots.shape):
        # The number of rows can't depend on values here: a token without a slot repeats the write of the first one with
        # a slot; if none has one, slot 0 is written with what it holds.
        exist = (slots >= 0) & (slots < count)
        first = xp.argmax(lib.astype(exist, xp.int32))
        source = xp.where(exist, xp.arange(slots.shape[0], **lib.device_kwargs(slots)), first)
        slots = xp.take(xp.where(exist, slots, xp.zeros_like(slots)), source, axis=0)
        rows = xp.where(xp.any(exist), xp.take(rows, source, axis=0), cache[(0,) * len(places)])
    cache[(slots,) if len(places) == 1 else (slots // places[1], slots % places[1])] = rows
