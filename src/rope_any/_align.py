"""Match positions and tables to the axes of x: find the axis of the tokens, add axes for broadcasting."""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from rope_any._arrays import Array, Library, _sharding, find, is_array, is_compiling, is_symbol
from rope_any._checks import ROWS_OF_TABLE, ArgumentValueError, Text, brief, integer, require_known
from rope_any._positions import (
    Positions,
    SplitPositions,
    as_position_array,
    by_axis,
    consecutive,
    is_consecutive,
    is_number,
    split_positions,
)
from rope_any._rotation import Table, is_table_pair


class Tokens(NamedTuple):
    """An array x to rotate, with its token axis and its number of tokens."""

    lib: Library
    name: str
    """The array's name in errors."""
    x: Array
    axis: int
    """The axis of the tokens, counted from the front."""
    count: Any
    """The number of tokens; None if unknown."""


def tokens_of(lib: Library, name: str, x: Array, seq_axis: int) -> Tokens:
    """Return x as `Tokens`, `name` in errors; raise if `seq_axis` is no axis or the last, or Dask lacks its length."""
    if not -x.ndim <= seq_axis < x.ndim or seq_axis in (-1, x.ndim - 1):
        got = Text(f"{brief(seq_axis)} for shape {tuple(x.shape)}")
        one = APPLY if name == "k" else f"write {name}[None, :] if it is one token"
        hints = {0: "", 1: one, 2: "write -2 for (seq, head_dim)"}
        hint = hints.get(x.ndim, "write -2 for (..., heads, seq, head_dim), -3 for (..., seq, heads, head_dim)")
        raise ArgumentValueError("seq_axis", f"be an axis of {name} other than its last", got, hint)
    if isinstance(count := x.shape[seq_axis], float):  # nan: Dask does not know it
        require_known(name, x.shape)
    return Tokens(lib, name, x, seq_axis % int(x.ndim), count)


def given_positions(positions: Any, /, *, like: Array, name: str = "positions") -> Any:
    """
    Return a caller's positions in one of the forms that all other functions take.

    These are a start (an int, 0 for None, or a tracer's symbol), a range of step 1, an array (a start too if it is
    0-d), `SplitPositions`, a table and a pair of tables. Other numbers become an array of the library of `like`, or
    `SplitPositions`.
    """
    if positions is None or type(positions) is int:
        return 0 if positions is None else positions
    if is_array(positions) or isinstance(positions, Table) or is_table_pair(positions) or is_consecutive(positions):
        return positions
    if is_number(positions):
        return positions if is_symbol(positions) else integer(name, positions)
    if (lib := find(like)) is None:
        return positions
    split = split_positions(lib, positions, like=like, name=name)
    return split.numbers if split.rest is None else split


def expand_positions(tokens: Tokens, given: Any, axes: int | None, /, *, name: str = "positions") -> Any:
    """
    Return a start, as `given_positions` returns it, as a position for each token; other positions unchanged.

    They are ``(seq,)`` or a range if `axes` is None, else ``(seq, axes)``, equal on all axes. Raises for a start if the
    number of tokens is unknown.
    """
    if not is_number(given) and not (is_array(given) and given.ndim == 0):
        return given
    if tokens.count is None:
        raise ArgumentValueError(name, "be given for each token if the length along `seq_axis` is unknown", given)
    if axes is None and type(given) is type(tokens.count) is int and not is_compiling():  # a range fixes symbols
        return range(given, given + tokens.count)
    along = consecutive(given, tokens.count, like=tokens.x, name=name, lib=tokens.lib)
    return along if axes is None else tokens.lib.xp.stack([along] * axes, axis=-1)


def positions_by_axis(
    tokens: Tokens, positions: Positions | None, axes: int | None, /, *, name: str
) -> list[SplitPositions]:
    """Return a `SplitPositions` per axis (None: one), sharded as x is; a start is expanded; raise unless they fit x."""
    given = expand_positions(tokens, given_positions(positions, like=tokens.x, name=name), axes, name=name)
    at = split_positions(tokens.lib, given, like=tokens.x, name=name)
    numbers = by_axis(shard_positions(tokens, at.numbers, axes, name=name), axes)
    rests = [None] * len(numbers) if at.rest is None else by_axis(at.rest, axes)
    return [SplitPositions(*parts) for parts in zip(numbers, rests, strict=True)]


def shard_positions(tokens: Tokens, positions: Array, axes: int | None, /, *, name: str = "positions") -> Array:
    """Return positions ``(...)`` or ``(..., axes)``, sharded as x is; raise if they don't fit x or would be sent."""
    shape = tuple(by_axis(positions, axes, name=name)[0].shape)
    along = (*_axes_along(tokens, shape, name, positions, axes), tokens.x.ndim - 1)
    return _sharding.shard_like(name, positions, along[: positions.ndim], like=tokens.x)


def expand_and_shard_positions(tokens: Tokens, given: Any, axes: int | None, /) -> Any:
    """Return `given` with a start expanded; if `tokens.x` is sharded, as an array that is sharded like it."""
    at = expand_positions(tokens, given, axes)
    if not _sharding.is_sharded(tokens.x):
        return at
    return shard_positions(tokens, as_position_array(at, like=tokens.x, lib=tokens.lib), axes)


def broadcaster(
    tokens: Tokens, positions_shape: tuple[int, ...], given: Any, axes: int | None, /
) -> Callable[[Table], Table] | None:
    """
    Return a function that moves and adds axes of a table so that it broadcasts to all axes of `tokens.x` but the last.

    `positions_shape` is the shape of the table without its pairs; raises if it doesn't fit x, with the shape of `given`
    positions, of `axes` axes, or of a given table. Returns None for ``(seq,)`` and ``(1,)`` if tokens are along axis
    -2: such a table broadcasts as it is.
    """
    x, seq, xp = tokens.x, tokens.axis, tokens.lib.xp
    if seq == x.ndim - 2 and (positions_shape == (x.shape[seq],) or positions_shape == (1,)):
        return None  # the most common shapes
    along, last = _axes_along(tokens, positions_shape, "positions", given, axes), len(positions_shape) - 1
    missing = [axis for axis in range(min(along) + 1, x.ndim - 1) if axis not in along]
    to_last = range(min(along), max(missing, default=0) + 1)
    inserted = *(slice(None) if axis in along else None for axis in to_last), ...

    def align(part: Array) -> Array:
        """Move the token axis of cos or sin to its place in x; insert axes of length 1 for axes of x that it skips."""
        if seq < last:  # not by moveaxis, which torch.vmap does not know
            part = xp.permute_dims(part, (*range(seq), last, *range(seq, last), last + 1))
        return part[inserted] if missing else part

    return lambda table: Table(align(table.cos), align(table.sin))


def _axes_along(
    tokens: Tokens, positions_shape: tuple[int, ...], argument: str, given: Any, axes: int | None
) -> tuple[int, ...]:
    """Return x's axis for each of positions: the first but tokens', then that; raise if a length isn't x's or 1."""
    (lib, name, x, seq, _) = tokens
    along = axes_if_fits(x.shape, seq, positions_shape)
    if along is None:
        require_known(argument, positions_shape)
        is_table = isinstance(given, Table)
        last = given.cos.shape[-1] if is_table else axes
        shapes = "(seq,) or (batch, ..., seq)" if last is None else f"(seq, {last}) or (batch, ..., seq, {last})"
        wanted = (
            f"be {shapes} for {name} of shape {tuple(x.shape)}, "
            f"with tokens along axis {seq}; each length 1 or that of {name}"
        )
        shape = tuple((given.cos if is_table else as_position_array(given, like=x, lib=lib)).shape)
        got = Text(f"{'a table of shape ' if is_table else ''}{shape}")
        raise ArgumentValueError(argument, wanted, got, _positions_hint(tokens, positions_shape, axes))
    return along


def axes_if_fits(shape: tuple[Any, ...], seq_axis: int, positions_shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return x's axis for each of positions: the first but `seq_axis`, then it; None if a length isn't x's or 1."""
    last = len(positions_shape) - 1
    axes = (*(axis + (axis >= seq_axis) for axis in range(last)), seq_axis)
    # not by `in`, with which torch.compile finds no symbol equal to another
    fits = 0 <= last < len(shape) - 1 and all(
        n == shape[axis] or n == 1 for n, axis in zip(positions_shape, axes, strict=True)
    )
    return axes if fits else None


def align_head_table(tokens: Tokens, table: Table, heads: int, /) -> Table:
    """
    Return a table ``(..., heads, seq, pairs)`` with as many axes and heads as `tokens.x`.

    Each of `heads` heads is repeated in succession for its group of heads of x; raises unless x has a multiple of them.
    A table of fewer than three axes is returned unchanged; one with another number of heads, such as 1, keeps it.
    """
    (lib, name, x, seq, _), ndim = tokens, table.cos.ndim
    if ndim < 3:
        return table
    have = ([n for axis, n in enumerate(x.shape[:-1]) if axis != seq] or [1])[-1]
    if have % heads:
        hint = "give `seq_axis`=-3 for (..., seq, heads, head_dim)"
        raise ArgumentValueError(name, f"have {heads} heads, as the frequencies, or a multiple", tuple(x.shape), hint)

    def align(part: Array) -> Array:
        """Repeat each head of cos or sin for its group of heads of x; insert axes of length 1 before the heads."""
        if part.shape[-3] == heads != have:
            times = lib.xp.stack([part] * (have // heads), axis=-3)
            part = lib.reshape_last_axes(times, 4, have, *part.shape[-2:])
        for _ in range(x.ndim - ndim):
            part = lib.xp.expand_dims(part, axis=-4)
        return part

    return Table(align(table.cos), align(table.sin))


def query_tail(values: Array, queries: int, keys: int, /, *, axis: int) -> Array:
    """Return the last `queries` values along a negative axis, or all if it isn't `keys` long; raise if it's sharded."""
    if values.ndim < -axis or values.shape[axis] != keys:
        return values
    what = "the tokens if q is shorter than k"
    _sharding.require_unsharded("positions", values, axis=values.ndim + axis, axis_text=what)
    return values[(..., slice(values.shape[axis] - queries, None), *[slice(None)] * (-1 - axis))]


# --- hints of errors: what to write instead ---------------------------------------------------------------------------

APPLY = "write apply(q, positions) if k are positions"
"""The hint for a k that is not an array of tokens."""


def _positions_hint(tokens: Tokens, shape: tuple[int, ...], axes: int | None) -> str:
    """Return the hint of an error about positions whose shape doesn't fit x: what to write; "" if unknown."""
    (_, _, x, seq, count), ndim = tokens, tokens.x.ndim
    others = [axis for axis in range(ndim - 2, -1, -1) if axis != seq and shape and shape[-1] == x.shape[axis] != 1]
    fitting = [axis for axis in others if axes_if_fits(x.shape, axis, shape)]
    hints = [f"`seq_axis`={axis - ndim} if the tokens are along axis {axis}" for axis in fitting[:1]]
    if len(shape) == 1 and seq > 0 and shape[0] == x.shape[0]:
        starts = f"positions.from_starts(starts, {count}) for the starts of {shape[0]} rows"
        hints.insert(0 if ndim > 3 else 1, starts)
    if hints:
        return "give " + ", or ".join(hints)
    return _shape_hint(tokens, shape, axes) if shape else "write table(arange(length)), or table([p]) for one token"


def _shape_hint(tokens: Tokens, shape: tuple[int, ...], axes: int | None) -> str:
    """Return a hint for the error that positions of `shape` don't fit x; "" if none applies or a length is unknown."""
    (_, name, x, seq, count), (*first, last), features = tokens, shape, tokens.x.shape[-1]
    if not all(type(n) is int for n in (*shape, *x.shape)):  # unknown or symbolic lengths
        return ""
    swapped = len(shape) == 2 and 1 not in shape and axes_if_fits(x.shape, seq, shape[::-1]) is not None
    if first and first[-1] == count > 1 and ((hint := _last_axis_hint(name, last, features)) is not None or swapped):
        swap = "give swapaxes(p, 0, 1) if they are (seq, batch)" if swapped else ""
        return "; ".join(filter(None, (swap, hint)))
    if x.ndim > 4 and seq > 2 and last != count and prod(x.shape[2 : seq + 1]) == last:  # (batch, heads, rows, columns)
        return f"reshape {name} to (..., {last}, {features}): the points of a grid are along one axis"
    if last > count:
        part = "p[..., a:b]" if axes is None else "p[..., a:b, :]"
        return f"give only the positions of {name}: {part}, or cos[..., a:b, :] and sin[..., a:b, :] of a table"
    if last == 0:
        return f"give a position for each token of {name}; {ROWS_OF_TABLE}"
    keys = "; q takes the last ones" if name == "k" else ""
    all_tokens = f"give a position for each token of {name}{keys}; positions.unrotated() adds those of class tokens"
    return all_tokens if 1 < last < count else ""


def _last_axis_hint(name: str, length: int, features: int) -> str | None:
    """Return the hint about positions with an axis of this length after that of the tokens; None if none is known."""
    if length == features:
        return "rope(q, k) rotates two arrays; values are not rotated" if name != "x" else ""
    if length == features // 2:
        return "give from_angles(p) of angles, Table(cos, sin) of cosines and sines"
    if length == 1:
        return "give p[..., 0], or cos[..., 0, :] and sin[..., 0, :] of a table"
    if length in (2, 3):
        return f"for {length} axes give the Rope a row of frequencies for each, as axes.axial() does"
    return None


def seq_axis_hint(q: Tokens, k: Tokens) -> str:
    """Return the hint of an error about a q longer than k: rotate each alone, or the next `seq_axis` if it fits."""
    separately = "rotate each alone if they are two sequences"
    near = q.axis - 1 if q.axis == q.x.ndim - 2 else q.axis + 1
    if near < 0 or q.x.ndim != k.x.ndim or q.x.shape[near] != k.x.shape[near]:
        return separately
    return f"give `seq_axis`={near - q.x.ndim} if the tokens are along axis {near}, or {separately}"
