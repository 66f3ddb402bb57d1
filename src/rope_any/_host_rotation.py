"""
The rotation in the memory of a CPU: the products of `rotate_pairs`, in NumPy, tile by tile, so that caches hold them.

Other libraries, such as torch, give NumPy arrays that share the memory of theirs (`HostMemory.viewer`).
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
from rope_any._pairing import MEMBER_AXIS, Pairing, split
from rope_any._rotation import Plan, Rotation, Table, assign

_Numbers: TypeAlias = npt.NDArray[Any]
_Shape: TypeAlias = tuple[int, ...]
_Tiles: TypeAlias = list[tuple[Any, Any]]
"""(slices of the table, of x) by tile; of one part of the table consecutively, as one object."""

_SMALL = 2**18  # elements
_LONG_ROW = 64  # features that NumPy multiplies fast where they are, though rows are apart
_MOST_ROWS = 128  # as often a row of the table is repeated, because NumPy multiplies long contiguous arrays fastest


def plan_on_host(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Return the plan for arrays in CPU memory, all of whose features form pairs; large ones are rotated in tiles."""
    host: Any = rotation.lib.host
    if not all(prod(x.shape) for x in xs):
        return _plan_empty(rotation, xs, table, outs)
    pairs, sign = table.cos.shape[-1], -1 if rotation.inverse else 1
    if rotation.pairing == "interleaved" and host.complex_product_is_reproducible(pairs):
        way = _complex_arithmetic(host.multiply_complex, sign)
    else:
        way = _real_arithmetic(rotation.pairing, pairs, sign)
    longest = max(prod(x.shape) for x in xs)
    if host.write_members is not None and tile_size() < longest < THREADED_FROM:
        return _plan_whole(rotation)
    if longest <= _SMALL:
        plan = _plan_small(rotation, way, xs, table, outs)
    else:
        each = [_plan_tiles(rotation, way, x, table, out) for x, out in zip(xs, outs, strict=True)]

        def plan(xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> tuple[Array, ...]:
            """Rotate each array in tiles."""
            return tuple([rotate(x, table, out) for rotate, x, out in zip(each, xs, outs, strict=True)])

    return plan if host.is_numpy else np.errstate(all="ignore")(plan)


def _plan_empty(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Return the plan for arrays of which at least one is empty."""
    empty_like = rotation.lib.empty_like
    if len(xs) == 1:
        return lambda xs, _, outs: (empty_like(xs[0]) if outs[0] is None else outs[0],)
    each = [plan_on_host(rotation, (x,), table, (out,)) for x, out in zip(xs, outs, strict=True)]
    return lambda xs, table, outs: tuple(
        [plan((x,), table, (out,))[0] for plan, x, out in zip(each, xs, outs, strict=True)]
    )


def _plan_whole(rotation: Rotation) -> Plan:
    """Return the plan for arrays of middle size of a library whose functions use several threads: by those."""
    lib, pairing = rotation.lib, rotation.pairing
    host: Any = lib.host

    def run(xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> tuple[Array, ...]:
        """Rotate all arrays of a call."""
        factors, results = rotation.factors(xs[0], table), []
        for x, out in zip(xs, outs, strict=True):
            wide = lib.cast(x, rotation.dtype(x))
            rotated = lib.empty_like(wide)
            host.write_members(*split(rotated, pairing), *split(wide, pairing), *factors)
            results.append(assign(out, lib.cast(rotated, x.dtype)))
        return tuple(results)

    return run


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
        return [part.repeat(prod(batch) // rows, 0).reshape(*batch, *members) for part in each]

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
    lib, dtype = rotation.lib, rotation.dtype(xs[0])
    host: Any = lib.host
    is_ready, table_batch = table.cos.dtype == table.sin.dtype == dtype, tuple(table.cos.shape[:-1])
    view_cos, view_sin = (host.viewer(lib.cast(part, dtype)) for part in table)
    batches = [tuple(x.shape[:-1]) for x in xs]
    if way.members and prod(table_batch) == 1 and all(_is_contiguous(host, x) for x in (*xs, *outs)):
        batches, table_batch = [(prod(batch),) for batch in batches], (1,)  # one row for all: fewer axes take less time
    longest = tuple(map(max, zip(*batches, strict=True)))
    repeated = _repeated(longest, table_batch, _MOST_ROWS)
    parts = [None if batch == longest else tuple(map(slice, batch)) for batch in batches]
    each = [_plan_one(rotation, way, x, out, batch) for x, out, batch in zip(xs, outs, batches, strict=True)]

    def run(xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> tuple[Array, ...]:
        """Rotate all arrays of a call."""
        cos, sin = table if is_ready else [lib.cast(part, dtype) for part in table]
        factors, results = way.factors(view_cos(cos), view_sin(sin), repeated), []
        for x, out, part, rotate in zip(xs, outs, parts, each, strict=True):
            results.append(rotate(x, out, factors if part is None else [factor[part] for factor in factors]))
        return tuple(results)

    return run


def _plan_one(
    rotation: Rotation, way: _Arithmetic, x: Array, out: Array | None, batch: _Shape
) -> Callable[[Array, Array | None, Sequence[_Numbers]], Array]:
    """Return a function ``(x, out, factors)`` that rotates a small array as an operand with these batch axes."""
    lib, dtype, narrow = rotation.lib, rotation.dtype(x), x.dtype
    host: Any = lib.host
    multiply, allocate = way.rotate, host.allocator(x)
    operand = _opener(host, way, lib.cast(x, dtype), batch)
    features = methodcaller("reshape", tuple(x.shape)) if way.members else way.features
    place = allocate(x) if out is None else out
    if narrow != dtype or way.operand(host.viewer(place)(place)) is None:

        def convert(x: Array, out: Array | None, factors: Sequence[_Numbers]) -> Array:
            """Rotate x in the dtype of the products; assign the result to `out` if given."""
            wide = lib.cast(x, dtype)  # it lives as long as its operand is used
            return assign(out, lib.cast(host.wrap(features(multiply(operand(wide), factors))), narrow))

        return convert
    if out is None and host.is_numpy:
        return lambda x, _, factors: features(multiply(operand(x), factors))
    target = _opener(host, way, place, batch)

    def write(x: Array, out: Array | None, factors: Sequence[_Numbers]) -> Array:
        """Rotate x into the memory of `out` or of a new array of the library."""
        result = allocate(x) if out is None else out
        to = target(result)
        multiply(operand(x), factors, to, to if out is None else None)
        if out is not None:
            host.mark_written(out)
        return result

    return write


def _opener(host: HostMemory, way: _Arithmetic, x: Array, batch: _Shape) -> Callable[[Array], Any]:
    """Return a function: an array like x → its operand with these batch axes, or that of a contiguous copy."""
    if way.members and _is_contiguous(host, x):
        return host.viewer(x, (*batch, *way.members))
    view = host.viewer(x)
    return lambda x: _contiguous(way, view(x))


def _is_contiguous(host: HostMemory, x: Array | None) -> bool:
    """Whether all elements of x, if there is one, follow each other in memory."""
    if x is None:
        return True
    strides, size = host.strides(x), x.itemsize
    for n, stride in zip(reversed(x.shape), reversed(strides), strict=True):
        if n != 1 and stride != size:
            return False
        size *= n
    return True


# --- large arrays: in tiles, so that intermediate results stay in the cache -------------------------------------------


class _Tiling(NamedTuple):
    """How batch axes are cut into tiles."""

    batch: _Shape
    table_batch: _Shape
    """The lengths of the axes of the table: those of x or 1."""
    tile: _Shape
    repeated: int
    """Up to how many rows of a tile the rows of the table are repeated."""
    kept: _Tiles | None
    """The tiles, if they are few."""


def _tiling(batch: _Shape, table_batch: _Shape, features: int, size: int) -> _Tiling:
    """Return the tiling of an array in tiles of `size` elements, or of one longer row."""
    tile = _tile_shape(batch, max(size // features, 1))
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
    place = lib.empty_like(x) if out is None else out
    is_plain = x.dtype == dtype and all(way.operand(host.viewer(part)(part)) is not None for part in (x, place))
    is_plain = is_plain and (x.shape[-1] >= _LONG_ROW or all(_is_contiguous(host, part) for part in (x, place)))
    by_library, size = not is_plain and host.write_members is not None, tile_size()
    if by_library:  # whose functions share a tile among its threads
        size *= 4 * min(host.threads(), 8)
    elif host.is_numpy and not way.members:  # complex products need no buffers
        size *= 4
    tiling = _tiling(batch, table_in_order, x.shape[-1], size)
    write = _rotate_tiles if is_plain else _write_tiles if by_library else _convert_tiles

    def in_order(part: Array) -> Array:
        """Return a view of an array of the rank of x, or of the table, with batch axes as x has them in memory."""
        if part.ndim <= rank:
            part = lib.xp.reshape(part, (*table_batch, part.shape[-1]))
        return part if order == [*range(rank)] else lib.xp.permute_dims(part, (*order, rank))

    def run(x: Array, table: Table, out: Array | None) -> Array:
        """Return x rotated, in `out`, which may be x, or in a new array."""
        result = lib.empty_like(x) if out is None else out
        arrays = [in_order(part) for part in (result, x, *(lib.cast(part, dtype) for part in table))]
        rotate = partial(write, rotation, way, arrays, tiling)
        tiles = tiling.kept or list(_tiles(*tiling[:3]))
        workers = host.threads() if is_large and not by_library else 1
        run_in_threads(lambda begin, end: rotate(tiles[begin:end]), len(tiles), workers)
        if out is not None:
            host.mark_written(out)
        return result

    return run


def _rotate_tiles(rotation: Rotation, way: _Arithmetic, arrays: list[Array], tiling: _Tiling, tiles: _Tiles) -> None:
    """Rotate tiles of the second of `arrays` by a table, the last two, into the first, which may be the second."""
    host: Any = rotation.lib.host
    *operands, cos, sin = (host.viewer(part)(part) for part in arrays)
    to, source = (way.operand(part) for part in operands)
    in_place = np.may_share_memory(to, source)
    for tile, piece, factors, (first, second) in _pieces(way, source, (cos, sin), tiling, tiles):
        target: Any = to[tile]  # type: ignore[index]  # the plan has seen that there are operands
        way.rotate(piece, factors, target, first if in_place else target, second)


def _convert_tiles(rotation: Rotation, way: _Arithmetic, arrays: list[Array], tiling: _Tiling, tiles: _Tiles) -> None:
    """Do the same in the dtype of the products, by contiguous copies."""
    host: Any = rotation.lib.host
    to, source, *parts = arrays
    table, rank = [host.viewer(part)(part) for part in parts], len(tiling.tile)
    copy = np.empty((*tiling.tile, source.shape[-1]), table[0].dtype)
    loaded, whole = host.wrap(copy), way.operand(copy)
    for tile, piece, factors, (first, second) in _pieces(way, source, table, tiling, tiles):
        cut = tuple([slice(n) for n in piece.shape[:rank]])
        loaded[cut] = piece
        operand = whole[cut]  # type: ignore[index]  # it is one, as the copy is contiguous
        way.rotate(operand, factors, operand, first, second)
        to[tile] = loaded[cut]


def _write_tiles(rotation: Rotation, _: _Arithmetic, arrays: list[Array], __: _Tiling, tiles: _Tiles) -> None:
    """Do the same by functions of the library."""
    lib, (to, source, cos, sin) = rotation.lib, arrays
    host: Any = lib.host
    for table_index, tile in tiles:
        wide = lib.cast(source[tile], cos.dtype)
        rotated, s = lib.empty_like(wide), sin[table_index]
        members = *split(rotated, rotation.pairing), *split(wide, rotation.pairing)
        host.write_members(*members, cos[table_index], -s if rotation.inverse else s)
        to[tile] = rotated


def _pieces(
    way: _Arithmetic, source: Any, table: Sequence[_Numbers], tiling: _Tiling, tiles: _Tiles
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
