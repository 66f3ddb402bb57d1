"""Match positions and tables to the axes of x: find the axis of the tokens, add axes for broadcasting."""

from collections.abc import Callable
from math import prod
from numbers import Integral
from typing import Any, NamedTuple

from rope_any._arrays import Array, Library, _sharding, is_array
from rope_any._checks import ArgumentValueError, Text, brief, integer, require_known
from rope_any._positions import Positions, SplitPositions, as_position_array, by_axis, consecutive, split_positions
from rope_any._table import Table


class Tokens(NamedTuple):
    """An array to rotate, with the axis of its tokens."""

    lib: Library
    name: str
    """The array's name in errors."""
    x: Array
    axis: int
    """The axis of the tokens, counted from the front."""
    count: Any
    """The number of tokens; None if unknown."""


def tokens_of(lib: Library, name: str, x: Array, seq_axis: int) -> Tokens:
    """
    Return x with its token axis and its number of tokens; `name` is that of x in errors.

    Raises if `seq_axis` is no axis of x or its last, or if Dask does not know the number of tokens (nan).
    """
    if not -x.ndim <= seq_axis < x.ndim or seq_axis in (-1, x.ndim - 1):
        got = Text(f"{brief(seq_axis)} for shape {tuple(x.shape)}")
        one = APPLY if name == "k" else f"write {name}[None, :] if it is one token"
        hints = {0: "", 1: one, 2: "write -2 for (seq, head_dim)"}
        hint = hints.get(x.ndim, "write -2 for (..., heads, seq, head_dim), -3 for (..., seq, heads, head_dim)")
        raise ArgumentValueError("seq_axis", f"be an axis of {name} other than its last", got, hint)
    if isinstance(count := x.shape[seq_axis], float):
        require_known(name, x.shape)
    return Tokens(lib, name, x, seq_axis % int(x.ndim), count)


def expand_positions(
    tokens: Tokens, positions: Positions | None, axes: int | None, /, *, name: str = "positions"
) -> Positions:
    """
    Return a start (an int, a 0-d array, or None: 0) as consecutive positions on all axes; others unchanged.

    `axes` is the length of the last axis of positions, None if they have one number for each token. The result
    for a start is a range or an array. Raises for a start if the number of tokens is unknown.
    """
    number: Any = 0 if positions is None else positions
    if not isinstance(number, Integral) and not (is_array(number) and number.ndim == 0):
        return number
    if tokens.count is None:
        raise ArgumentValueError(name, "be given for each token if the length along `seq_axis` is unknown", number)
    lib = tokens.lib
    if axes is None and lib.host is not None and lib.keeps_constants() and not is_array(number):
        first = integer(name, number)
        return range(first, first + tokens.count)
    along = consecutive(number, tokens.count, like=tokens.x, name=name, lib=tokens.lib)
    return along if axes is None else tokens.lib.xp.stack([along] * axes, axis=-1)


def positions_by_axis(
    tokens: Tokens, positions: Positions | None, axes: int | None, /, *, name: str
) -> list[SplitPositions]:
    """
    Return the positions of the tokens on each axis, exactly, and sharded as the tokens are.

    A single number is the position of the first token, and None is 0. Raise if positions don't fit the tokens.
    """
    at = split_positions(tokens.lib, expand_positions(tokens, positions, axes, name=name), like=tokens.x, name=name)
    numbers = by_axis(shard_positions(tokens, at.numbers, axes, name=name), axes)
    rests = [None] * len(numbers) if at.rest is None else by_axis(at.rest, axes)
    return [SplitPositions(*parts) for parts in zip(numbers, rests, strict=True)]


def shard_positions(tokens: Tokens, positions: Array, axes: int | None, /, *, name: str = "positions") -> Array:
    """Return positions, sharded as x if x is; raise if their shape or sharding doesn't fit, as nothing is sent."""
    shape = tuple(by_axis(positions, axes, name=name)[0].shape)
    along = (*_axes_along(tokens, shape, name), tokens.x.ndim - 1)
    return _sharding.shard_like(name, positions, along[: positions.ndim], like=tokens.x)


def expand_and_shard_positions(tokens: Tokens, positions: Positions | None, axes: int | None, /) -> Positions:
    """Return positions; a start (None is 0) as consecutive ones, the same on all axes; sharded like x if x is."""
    at = expand_positions(tokens, positions, axes)
    if not tokens.lib.is_sharded(tokens.x):
        return at
    return shard_positions(tokens, as_position_array(at, like=tokens.x, lib=tokens.lib), axes)


def broadcaster(tokens: Tokens, positions_shape: tuple[int, ...], /) -> Callable[[Table], Table] | None:
    """
    Return the function that moves and adds axes so that a table broadcasts to ``x.shape[:-1]``; None if none is needed.

    `positions_shape` is the shape of the table without its pairs: ``(seq,)``, ``(batch, seq)``, ... Raises if it
    doesn't fit x.
    """
    x, seq, xp = tokens.x, tokens.axis, tokens.lib.xp
    if seq == x.ndim - 2 and (positions_shape == (1,) or positions_shape == (x.shape[seq],)):
        return None  # the most common shapes
    axes, last = _axes_along(tokens, positions_shape, "positions"), len(positions_shape) - 1
    missing = [axis for axis in range(min(axes) + 1, x.ndim - 1) if axis not in axes]

    def align(part: Array) -> Array:
        """Return cos or sin with its token axis where x has it, and axes of length 1 for the others of x."""
        if seq < last:
            part = xp.moveaxis(part, last, seq)
        for axis in missing:
            part = xp.expand_dims(part, axis=axis - min(axes))
        return part

    return lambda table: Table(align(table.cos), align(table.sin))


def _axes_along(tokens: Tokens, positions_shape: tuple[int, ...], argument: str) -> tuple[int, ...]:
    """
    Return the axes of x that positions of a shape run along: its first other ones, then that of the tokens.

    Raises if they don't fit; `argument` is their name in the error.
    """
    (_, name, x, seq, _) = tokens
    axes = _axes_if_fits(x.shape, seq, positions_shape)
    if axes is None:
        require_known(argument, positions_shape)
        wanted = (
            f"be (seq,) or (batch, ..., seq) for {name} of shape {tuple(x.shape)}, "
            f"with tokens along axis {seq}; each length 1 or that of {name}"
        )
        raise ArgumentValueError(argument, wanted, positions_shape, _positions_hint(tokens, positions_shape))
    return axes


def _axes_if_fits(shape: tuple[Any, ...], seq_axis: int, positions_shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes of `shape` for positions: its first others, then `seq_axis`; None if they don't fit."""
    last = len(positions_shape) - 1
    axes = (*(axis + (axis >= seq_axis) for axis in range(last)), seq_axis)
    fits = 0 <= last < len(shape) - 1 and all(
        n in (shape[axis], 1) for n, axis in zip(positions_shape, axes, strict=True)
    )
    return axes if fits else None


def align_head_table(tokens: Tokens, table: Table, heads: int, /) -> Table:
    """
    Return a table ``(..., heads, seq, pairs)`` with all axes of x but its last.

    If x has n times as many heads, each is repeated n times in succession. A table of fewer than three axes is
    returned unchanged; of others axis -3 is the heads, and length 1 serves all. Raises if x has no multiple of `heads`.
    """
    (lib, name, x, seq, _), ndim = tokens, table.cos.ndim
    if ndim < 3:
        return table
    have = ([n for axis, n in enumerate(x.shape[:-1]) if axis != seq] or [1])[-1]
    if have % heads:
        hint = "give `seq_axis`=-3 for (..., seq, heads, head_dim)"
        raise ArgumentValueError(name, f"have {heads} heads, as the frequencies, or a multiple", tuple(x.shape), hint)

    def align(part: Array) -> Array:
        """Return cos or sin ``(..., heads, seq, pairs)`` with as many axes and heads as x."""
        if part.shape[-3] == heads != have:
            times = lib.xp.stack([part] * (have // heads), axis=-3)
            part = lib.reshape_last_axes(times, 4, have, *part.shape[-2:])
        for _ in range(x.ndim - ndim):
            part = lib.xp.expand_dims(part, axis=-4)
        return part

    return Table(align(table.cos), align(table.sin))


def query_tail(values: Array, queries: int, keys: int, /, *, axis: int) -> Array:
    """Return the last `queries` of the values of keys along a negative axis; values shared by all keys unchanged."""
    if values.ndim < -axis or values.shape[axis] != keys:
        return values
    return _sharding.last_tokens("positions", values, queries, axis=axis)


# --- hints of errors: what to write instead ---------------------------------------------------------------------------

APPLY = "write apply(q, positions) if k are positions"
"""The hint for a k that is no array of tokens."""


def _positions_hint(tokens: Tokens, shape: tuple[int, ...]) -> str:
    """Return what to write instead of positions of a shape that don't fit; "" if unknown."""
    (_, _, x, seq, count), ndim = tokens, tokens.x.ndim
    others = [axis for axis in range(ndim - 2, -1, -1) if axis != seq and shape and shape[-1] == x.shape[axis] != 1]
    fitting = [axis for axis in others if _axes_if_fits(x.shape, axis, shape)]
    hints = [f"`seq_axis`={axis - ndim} if the tokens are along axis {axis}" for axis in fitting[:1]]
    if len(shape) == 1 and seq > 0 and shape[0] == x.shape[0]:
        starts = f"positions.from_starts(starts, {count}) for the starts of {shape[0]} rows"
        hints.insert(0 if ndim > 3 else 1, starts)
    if hints:
        return "give " + ", or ".join(hints)
    return _shape_hint(tokens, shape) if shape else "write table(range(length)), or table([p]) for one token"


def _shape_hint(tokens: Tokens, shape: tuple[int, ...]) -> str:
    """Return what to write instead of positions of a shape that fits no axis of x, by what they are; "" if unknown."""
    (_, name, x, seq, count), (*first, last), features = tokens, shape, tokens.x.shape[-1]
    if not all(type(n) is int for n in (*shape, *x.shape)):  # unknown or symbolic lengths
        return ""
    hints = {
        1: "give p[..., 0], or cos[..., 0, :] and sin[..., 0, :] of a table",
        features // 2: "give from_angles(p) of angles, Table(cos, sin) of cosines and sines",
        features: "rope(q, k) rotates two arrays; values are not rotated",
        **dict.fromkeys((2, 3), f"for {last} axes give the Rope a row of frequencies for each, as axes.axial() does"),
    }
    if first and first[-1] == count > 1 and last in hints:  # another axis comes after that of the tokens
        return hints[last]
    if x.ndim > 4 and prod(x.shape[2 : seq + 1]) == last:  # (batch, heads, rows, columns, features)
        return f"reshape {name} to (..., {last}, {features}): the points of a grid are along one axis"
    if last > count:
        return f"give only the tokens of {name}: positions[a:b], or cos[a:b] and sin[a:b] of a table"
    keys = "; q takes the last ones" if name == "k" else ""
    return f"give a position for each token of {name}{keys}; positions.unrotated() adds those of class tokens"


def seq_axis_hint(q: Tokens, k: Tokens) -> str:
    """Return what to write when q is longer than k: `apply` for each array, or another `seq_axis` if its axis fits."""
    separately = "rotate each alone if they are two sequences"
    near = q.axis - 1 if q.axis == q.x.ndim - 2 else q.axis + 1
    if near < 0 or near >= q.x.ndim - 1 or q.x.ndim != k.x.ndim or q.x.shape[near] != k.x.shape[near]:
        return separately
    return f"give `seq_axis`={near - q.x.ndim} if the tokens are along axis {near}, or {separately}"
