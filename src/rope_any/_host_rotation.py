"""
The rotation in the memory of a CPU: the products of `rotate_pairs`, in NumPy, tile by tile, so that caches hold them.

Other libraries, such as torch, give NumPy arrays that share the memory of theirs (`HostMemory.view`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from operator import methodcaller
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rope_any._arrays import Array, HostMemory
from rope_any._arrays._memory import tile_size
from rope_any._arrays._threads import THREADED_FROM, run_in_threads
from rope_any._pairing import MEMBER_AXIS, Pairing
from rope_any._rotation import Plan, Rotation, Table, assign

_Numbers: TypeAlias = npt.NDArray[Any]
_Pair: TypeAlias = tuple[_Numbers, _Numbers]
_Shape: TypeAlias = tuple[int, ...]
_Tiles: TypeAlias = list[tuple[Any, Any]]
"""(slices of the table, of x) by tile; of one part of the table consecutively, as one object."""

_MOST_ROWS = 128  # as often a row of the table is repeated, because NumPy multiplies long contiguous arrays fastest


def plan_on_host(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Return the plan for arrays in CPU memory, all of whose features form pairs; large ones are rotated in tiles."""
    host: Any = rotation.lib.host
    pairs, sign = table.cos.shape[-1], -1 if rotation.inverse else 1
    is_complex = host.complex_product_is_reproducible(pairs) and all(prod(x.shape) for x in xs)
    if rotation.pairing == "interleaved" and is_complex:
        way = _complex_arithmetic(host.multiply_complex, sign)
    else:
        way = _real_arithmetic(rotation.pairing, pairs, sign)
    if all(prod(x.shape) <= tile_size() for x in xs):
        plan = _plan_small(rotation, way, xs, table, outs)
    else:
        each = [_plan_tiles(rotation, way, x, table, out) for x, out in zip(xs, outs, strict=True)]

        def plan(xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> tuple[Array, ...]:
            """Rotate each array in tiles."""
            return tuple([rotate(x, table, out) for rotate, x, out in zip(each, xs, outs, strict=True)])

    return plan if host.warns else np.errstate(all="ignore")(plan)


# --- arithmetic -------------------------------------------------------------------------------------------------------


class _Arithmetic(NamedTuple):
    """One way to rotate features in NumPy, as operands that share their memory."""

    factors: Callable[[_Numbers, _Numbers, _Shape], Sequence[_Numbers]]
    """``(cos, sin, batch)`` → what operands are multiplied by, with these batch axes, whose last ones repeat rows."""
    operand: Callable[[_Numbers], _Numbers | None]
    """Features → their operand; None if their memory does not allow one."""
    rotate: Callable[..., _Numbers]
    """``(x, factors, out, product, other)`` → x rotated, in `out`, which may be x; the last two are buffers like x."""
    features: Callable[[_Numbers], _Numbers]
    """An operand → its features."""
    members: _Shape = ()
    """The last axes of operands that are reshaped features; () if operands are complex."""


_OTHER = np.asarray((1, 0))  # for each member of a pair, the other one


def _real_arithmetic(pairing: Pairing, pairs: int, sign: int) -> _Arithmetic:
    """Return the way by the members of pairs, which are along an axis of operands."""
    axis = MEMBER_AXIS[pairing]
    members = (2, pairs) if axis == -2 else (pairs, 2)
    two_rows = (2, *members)

    def factors(cos: _Numbers, sin: _Numbers, batch: _Shape) -> Sequence[_Numbers]:
        """Return (c, c) and (s, −s) for each pair; s is `sin` times the sign."""
        c, s = (cos, cos), ((sin, -sin) if sign == 1 else (-sin, sin))
        if axis == -2 and len(batch) == 1 and cos.size == pairs:  # one row, as for one token: the fewest calls
            both = np.concatenate(c + s, -1).reshape(two_rows).repeat(batch[0], 0)
            return both[: batch[0]], both[batch[0] :]
        rows = cos.size // pairs
        each = (np.stack(part, axis).reshape(rows, *members) for part in (c, s))
        return [part.repeat(prod(batch) // max(rows, 1), 0).reshape(*batch, *members) for part in each]

    def rotate(
        x: _Numbers,
        factors: Sequence[_Numbers],
        out: _Numbers | None = None,
        product: _Numbers | None = None,
        other: _Numbers | None = None,
    ) -> _Numbers:
        """Return x · (c, c) − x with the members of each pair swapped · (s, −s)."""
        # a' = a·c − b·s  and  b' = b·c − a·(−s)
        if out is None and product is None:
            rotated, bs = x * factors[0], x.take(_OTHER, axis)
            bs *= factors[1]
            rotated -= bs
            return rotated
        ac = np.multiply(x, factors[0], product)
        bs = x.take(_OTHER, axis, other, "clip")
        np.multiply(bs, factors[1], bs)
        return np.subtract(ac, bs, ac if out is None else out)

    return _Arithmetic(
        factors,
        lambda x: x.reshape(*x.shape[:-1], *members),
        rotate,
        lambda y: y.reshape(*y.shape[:-2], 2 * pairs),
        members,
    )


def _complex_arithmetic(multiply: Callable[..., _Numbers], sign: int) -> _Arithmetic:
    """Return the way by complex numbers a + b·i for each pair of neighbours."""

    def factors(cos: _Numbers, sin: _Numbers, batch: _Shape) -> Sequence[_Numbers]:
        """Return c + s·i for each pair; s is `sin` times the sign."""
        pairs = cos.shape[-1]
        factor = np.empty((cos.size // pairs, pairs), np.complex64 if cos.itemsize == 4 else np.complex128)
        factor.real, factor.imag = cos.reshape(-1, pairs), (sin if sign == 1 else -sin).reshape(-1, pairs)
        return [factor.repeat(prod(batch) // len(factor), 0).reshape(*batch, pairs)]

    def operand(x: _Numbers) -> _Numbers | None:
        """Return a complex view of x; None if its memory does not allow one."""
        if x.strides[-1] != x.itemsize or any(stride % (2 * x.itemsize) for stride in x.strides[:-1]):
            return None
        return x.view(np.complex64 if x.itemsize == 4 else np.complex128)

    def rotate(x: _Numbers, factors: Sequence[_Numbers], out: _Numbers | None = None, *_: _Numbers) -> _Numbers:
        """Return x · (c + s·i), by no buffer."""
        # (a + b·i)·(c + s·i) = (a·c − b·s) + (b·c − a·(−s))·i
        return multiply(x, factors[0], np.empty(x.shape, x.dtype) if out is None else out)

    return _Arithmetic(factors, operand, rotate, lambda y: y.view(np.float32 if y.itemsize == 8 else np.float64))


def _contiguous(way: _Arithmetic, x: _Numbers) -> Any:
    """Return the operand of x, or of a contiguous copy if the memory of x allows none."""
    operand = way.operand(x)
    return way.operand(np.array(x, order="C")) if operand is None else operand


def _repeated(batch: _Shape, table_batch: _Shape, most: int) -> _Shape:
    """Return the batch axes of a table, the last ones of length 1 repeated as in `batch`, up to `most` rows."""
    axes, rows = [1] * (len(batch) - len(table_batch)) + list(table_batch), 1
    for i in reversed(range(len(batch))):
        rows *= batch[i]
        if axes[i] != 1 or rows > most:
            break
        axes[i] = batch[i]
    return tuple(axes)


# --- small arrays: in one tile, with as few calls as possible ---------------------------------------------------------


def _plan_small(
    rotation: Rotation, way: _Arithmetic, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]
) -> Plan:
    """Return the plan for arrays of one tile each: what the table multiplies them by is made once for all of them."""
    lib, dtype, rotate, narrow = rotation.lib, rotation.dtype(xs[0]), way.rotate, xs[0].dtype
    host: Any = lib.host
    view, wrap, cast = host.view, host.wrap, lib.astype
    is_ready, is_plain = table.cos.dtype == table.sin.dtype == dtype, narrow == dtype
    batches, table_batch = [tuple(x.shape[:-1]) for x in xs], tuple(table.cos.shape[:-1])
    if way.members and prod(table_batch) == 1 and all(_is_contiguous(host, x) for x in (*xs, *outs)):
        batches, table_batch = [(prod(batch),) for batch in batches], (1,)  # one row for all: fewer axes take less time
    longest = tuple(map(max, zip(*batches, strict=True)))
    repeated = _repeated(longest, table_batch, _MOST_ROWS)
    parts = [None if batch == longest else tuple(map(slice, batch)) for batch in batches]
    operands: list[Any] = [partial(_contiguous, way)] * len(xs)
    features: list[Any] = [way.features] * len(xs)
    if way.members:
        operands = [methodcaller("reshape", (*batch, *way.members)) for batch in batches]
        features = [methodcaller("reshape", tuple(x.shape)) for x in xs]
    writes = [is_plain and out is not None and way.operand(view(out)) is not None for out in outs]
    each = tuple(zip(parts, operands, features, writes, strict=True))

    def run(xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> tuple[Array, ...]:
        """Rotate all arrays of a call."""
        cos, sin = table if is_ready else [lib.cast(part, dtype) for part in table]
        factors, results = way.factors(view(cos), view(sin), repeated), []
        for x, out, (part, operand, features, writes) in zip(xs, outs, each, strict=True):
            own = factors if part is None else [factor[part] for factor in factors]
            source = operand(view(x if is_plain else cast(x, dtype)))
            if writes:
                rotate(source, own, operand(view(out)))
                host.mark_written(out)
                results.append(out)
                continue
            result = wrap(features(rotate(source, own)))
            result = result if is_plain else cast(result, narrow)
            results.append(result if out is None else assign(out, result))
        return tuple(results)

    return run


def _is_contiguous(host: HostMemory, x: Array | None) -> bool:
    """Whether the features of all rows of x follow each other in memory."""
    if x is None:
        return True
    strides, rows = host.strides(x), 1
    for n, stride in zip(reversed(x.shape), reversed(strides), strict=True):
        if n != 1 and stride != rows * x.itemsize:
            return False
        rows *= n
    return True


# --- large arrays: in tiles, so that intermediate results stay in the cache -------------------------------------------


class _Tiling(NamedTuple):
    """How batch axes are cut into tiles, which are `tile_size()` elements or one longer row."""

    batch: _Shape
    table_batch: _Shape
    """The lengths of the axes of the table: those of x or 1."""
    tile: _Shape
    repeated: int
    """Up to how many rows of a tile the rows of the table are repeated."""
    kept: _Tiles | None
    """The tiles, if they are few."""


def _tiling(batch: _Shape, table_batch: _Shape, features: int) -> _Tiling:
    """Return the tiling of an array."""
    tile = _tile_shape(batch, max(tile_size() // features, 1))
    count, parts = (
        prod(-(-n // step) for n, step in zip(lengths, tile, strict=True)) for lengths in (batch, table_batch)
    )
    repeated = tile_size() if count > 3 * parts else 1  # to repeat rows of the table takes time itself
    return _Tiling(batch, table_batch, tile, repeated, list(_tiles(batch, table_batch, tile)) if count <= 64 else None)


def _plan_tiles(
    rotation: Rotation, way: _Arithmetic, x: Array, table: Table, out: Array | None
) -> Callable[[Array, Table, Array | None], Array]:
    """Return a function ``(x, table, out)`` that rotates a large array tile by tile."""
    lib, dtype = rotation.lib, rotation.dtype(x)
    host: Any = lib.host
    strides, rank, is_large = host.strides(x), x.ndim - 1, prod(x.shape) >= THREADED_FROM
    order = sorted(range(rank), key=lambda axis: -abs(strides[axis]))  # in which x is in memory
    table_batch = (1,) * (rank + 1 - table.cos.ndim) + tuple(table.cos.shape[:-1])
    batch, table_in_order = (tuple([lengths[axis] for axis in order]) for lengths in (x.shape, table_batch))
    tiling = _tiling(batch, table_in_order, x.shape[-1])
    like_result = lib.empty_like(x) if out is None else out
    is_plain = x.dtype == dtype and all(way.operand(host.view(part)) is not None for part in (x, like_result))

    def in_order(part: Array) -> Array:
        """Return a view of an array of the rank of x, or of the table, with batch axes as x has them in memory."""
        if part.ndim <= rank:
            part = lib.xp.reshape(part, (*table_batch, part.shape[-1]))
        return part if order == [*range(rank)] else lib.xp.permute_dims(part, (*order, rank))

    def run(x: Array, table: Table, out: Array | None) -> Array:
        """Return x rotated, in `out`, which may be x, or in a new array."""
        result = lib.empty_like(x) if out is None else out
        cos, sin = [host.view(in_order(lib.cast(part, dtype))) for part in table]
        to, source = in_order(result), in_order(x)
        if is_plain:
            to, source = [way.operand(host.view(part)) for part in (to, source)]
        rotate = partial(_rotate_tiles if is_plain else _convert_tiles, rotation, way, to, source, (cos, sin), tiling)
        tiles = tiling.kept or list(_tiles(*tiling[:3]))
        workers = host.threads() if is_large else 1
        size = max(-(-len(tiles) // (4 * workers)) if workers > 1 else len(tiles), 1)
        if workers > 1:
            run_in_threads(rotate, [(tiles[i : i + size],) for i in range(0, len(tiles), size)], workers)
        else:
            rotate(tiles)
        if out is not None:
            host.mark_written(out)
        return result

    return run


def _rotate_tiles(  # noqa: PLR0917  # for a `partial`
    _: Rotation,
    way: _Arithmetic,
    to: Any,
    source: Any,
    table: tuple[_Numbers, _Numbers],
    tiling: _Tiling,
    tiles: _Tiles,
) -> None:
    """Write tiles of the operand `source`, rotated, into the operand `to`, which may be `source`."""
    in_place = np.may_share_memory(to, source)
    for tile, piece, factors, (first, second) in _pieces(way, source, table, tiling, tiles):
        target = to[tile]
        way.rotate(piece, factors, target, first if in_place else target, second)


def _convert_tiles(  # noqa: PLR0917  # for a `partial`
    rotation: Rotation,
    way: _Arithmetic,
    to: Any,
    source: Any,
    table: tuple[_Numbers, _Numbers],
    tiling: _Tiling,
    tiles: _Tiles,
) -> None:
    """Write tiles of `source`, rotated in the dtype of the table or as contiguous copies, into `to`."""
    lib, dtype = rotation.lib, rotation.dtype(source)
    host: Any = lib.host
    for tile, piece, factors, (first, second) in _pieces(way, source, table, tiling, tiles):
        wide = _contiguous(way, host.view(lib.cast(piece, dtype)))
        to[tile] = host.wrap(way.features(way.rotate(wide, factors, None, first, second)))


def _pieces(
    way: _Arithmetic, source: Any, table: _Pair, tiling: _Tiling, tiles: _Tiles
) -> Iterator[tuple[Any, Any, Sequence[_Numbers], Sequence[Any]]]:
    """Yield (slices, piece of `source`, factors, two buffers) for each tile; a thread has its own buffers."""
    (cos, sin), rank, known = table, len(tiling.tile), None
    whole: Any = [way.operand(np.empty((*tiling.tile, 2 * cos.shape[-1]), cos.dtype)) for _ in range(2)]
    for table_index, tile in tiles:
        if table_index is not known:
            known, c = table_index, cos[table_index]
            of_table = way.factors(c, sin[table_index], _repeated(tiling.tile, c.shape[:-1], tiling.repeated))
        piece, factors, buffers = source[tile], of_table, whole
        if piece.shape[:rank] != tiling.tile:  # a last tile may be smaller
            cut = tuple([slice(n) for n in piece.shape[:rank]])
            factors, buffers = ([part[cut] for part in some] for some in (of_table, whole))
        yield tile, piece, factors, buffers


def _tile_shape(shape: Sequence[int], rows: int) -> tuple[int, ...]:
    """Return the batch shape of a tile of up to `rows` rows: last axes whole, the one before them cut, the others 1."""
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= rows:
        axis -= 1
        inner *= shape[axis]
    return tuple(
        1 if i < axis - 1 else max(rows // inner, 1) if i == axis - 1 else max(n, 1) for i, n in enumerate(shape)
    )


def _tiles(
    shape: Sequence[int], table_shape: Sequence[int], tile_shape: Sequence[int]
) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Yield (slices of the table, of x) by tile, for shapes without last axis; equal table slices are consecutive."""
    everything = [slice(None)]  # faster than a slice with ends
    cuts = [
        everything if 0 < n <= step else [slice(i, min(i + step, n)) for i in range(0, n, step)]
        for n, step in zip(shape, tile_shape, strict=True)
    ]
    for part in product(*(cut if n > 1 else everything for cut, n in zip(cuts, table_shape, strict=True))):
        axes = zip(cuts, table_shape, part, strict=True)
        for tile in product(*(cut if n <= 1 else [table_slice] for cut, n, table_slice in axes)):
            yield part, tile
