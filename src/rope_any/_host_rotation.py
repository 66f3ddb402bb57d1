"""
The rotation in the memory of a CPU: the products of `rotate_pairs`, in NumPy, tile by tile, so that caches hold them.

Other libraries, such as torch, give NumPy arrays that share the memory of theirs (`HostMemory.viewer`).
"""

from collections.abc import Callable
from functools import lru_cache, partial
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
from rope_any._rotation import Plan, Rotation, Table, assign, result_dtype

_Numbers: TypeAlias = npt.NDArray[Any]
_Shape: TypeAlias = tuple[int, ...]
_Tiles: TypeAlias = list[tuple[Any, Any]]
"""(slices of the table, of x) by tile; of one part of the table consecutively, as one object."""

_SMALL = 2**17  # elements
_LONG_ROW = 64  # features that NumPy multiplies fast where they are, though rows are apart
_OF_THREAD = 2**17  # elements of a tile that a library's threads share, for each of them
_KEPT = 2**14  # numbers that a plan keeps of a small table
_MOST_ROWS = 128  # as often a row of the table is repeated, because NumPy multiplies long contiguous arrays fastest


def plan_on_host(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Return the plan for arrays in CPU memory, all of whose features form pairs; large ones are rotated in tiles."""
    host: Any = rotation.lib.host
    pairs, is_numpy = table.cos.shape[-1], host.write_members is None
    multiply = host.complex_product(pairs) if rotation.orders == ("interleaved",) * 2 else None
    way = _real_arithmetic(rotation.orders[1], pairs) if multiply is None else _complex_arithmetic(multiply)
    sizes = [prod(x.shape) for x in xs]
    are_small = min(sizes) > 0 and max(sizes) <= (_SMALL if is_numpy else tile_size())
    if are_small:
        plan = _plan_small(rotation, way, xs, table, outs)
    else:
        is_large = max(sizes) >= THREADED_FROM
        given = zip(xs, outs, strict=True)
        each = [_plan_tiles(rotation, way, x, table, out, is_large=is_large) for x, out in given]

        def plan(xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> tuple[Array, ...]:
            """Rotate each array in tiles."""
            factors = rotation.factors(xs[0], table)
            return tuple([rotate(x, factors, out) for rotate, x, out in zip(each, xs, outs, strict=True)])

    return plan if is_numpy else np.errstate(all="ignore")(plan)


# --- arithmetic -------------------------------------------------------------------------------------------------------


class _Arithmetic(NamedTuple):
    """One way to rotate features in NumPy, as operands that share their memory."""

    factors: Callable[[_Numbers, _Numbers, _Shape], _Numbers]
    """``(cos, sin, batch)`` → what operands are multiplied by, with these batch axes, some of repeated rows."""
    operand: Callable[[_Numbers], _Numbers]
    """Contiguous features, or those that are `_is_plain`, → their operand."""
    rotate: Callable[..., _Numbers]
    """``(x, factors, out, buffer)``: x rotated, in `out`, which may be x; what is not given is made."""
    members: _Shape = ()
    """The last axes of operands that are reshaped features; () if operands are complex."""


_OTHER = np.asarray((1, 0))  # for each member of a pair, the other one


def _real_arithmetic(pairing: Pairing, pairs: int) -> _Arithmetic:
    """Return the way in real numbers: the members of pairs are along an axis of operands."""
    axis = MEMBER_AXIS[pairing]
    members = (2, pairs) if axis == -2 else (pairs, 2)

    def factors(cos: _Numbers, sin: _Numbers, batch: _Shape) -> _Numbers:
        """Return (c, c) and (s, −s) for each pair."""
        if axis == -2 and len(batch) == 1 and cos.size == pairs:  # one row, as for one token: the fewest calls
            return np.concatenate((cos, cos, sin, -sin), -1).reshape(2, 1, *members).repeat(batch[0], 1)
        both = np.empty((2, *batch, *members), cos.dtype)
        first, second = (both[..., 0, :], both[..., 1, :]) if axis == -2 else (both[..., 0], both[..., 1])
        first[0], second[0] = cos, cos
        first[1], second[1] = sin, -sin
        return both

    def rotate(x: _Numbers, factors: _Numbers, out: _Numbers | None = None, buffer: _Numbers | None = None) -> _Numbers:
        """Return x · (c, c) − (x with the members of each pair swapped) · (s, −s)."""
        # a' = a·c − b·s  and  b' = b·c − a·(−s)
        bs = x.take(_OTHER, axis, buffer, "clip")  # before `out` is written; "clip" is the fastest mode
        bs *= factors[1]
        rotated: _Numbers = np.multiply(x, factors[0], out)
        rotated -= bs
        return rotated

    return _Arithmetic(factors, lambda x: x.reshape(*x.shape[:-1], *members), rotate, members)


def _complex_arithmetic(multiply: Callable[..., _Numbers]) -> _Arithmetic:
    """Return the way by complex numbers a + b·i for each pair of neighbours."""

    def factors(cos: _Numbers, sin: _Numbers, batch: _Shape) -> _Numbers:
        """Return c + s·i for each pair."""
        pairs = cos.shape[-1]
        factor = np.empty((cos.size // pairs, pairs), np.complex64 if cos.itemsize == 4 else np.complex128)
        factor.real, factor.imag = cos.reshape(-1, pairs), sin.reshape(-1, pairs)
        return factor.repeat(prod(batch) // max(len(factor), 1), 0).reshape(1, *batch, pairs)

    def operand(x: _Numbers) -> _Numbers:
        """Return a complex view of x."""
        return x.view(np.complex64 if x.itemsize == 4 else np.complex128)

    # (a + b·i)·(c + s·i) = (a·c − b·s) + (b·c − a·(−s))·i
    return _Arithmetic(factors, operand, lambda x, factors, out, *_: multiply(x, factors[0], out))


def _repeated(batch: _Shape, table_batch: _Shape, most: int) -> _Shape:
    """Return the batch axes of a table, the last ones of length 1 repeated as in `batch`, up to `most` rows."""
    axes, rows = [1] * (len(batch) - len(table_batch)) + list(table_batch), 1
    for i in reversed(range(len(batch))):
        rows *= batch[i]
        if axes[i] != 1 or rows > most:
            break
        axes[i] = batch[i]
    return tuple(axes)


def _is_plain(rotation: Rotation, way: _Arithmetic, x: Array, out: Array | None) -> bool:
    """Whether x and its result have the dtype of the products, and memory that operands can share."""
    lib = rotation.lib
    host: Any = lib.host
    if x.dtype != rotation.dtype(x) or x.dtype != result_dtype(x, out):  # not by sets: a class hashes unlike a dtype
        return False
    views = [host.viewer(part)(part) for part in (x, lib.empty_like(x) if out is None else out)]
    pair = 2 * x.itemsize
    return bool(way.members) or all(
        view.strides[-1] == x.itemsize and not any(stride % pair for stride in view.strides[:-1]) for view in views
    )


def _is_contiguous(host: HostMemory, x: Array | None) -> bool:
    """Whether all elements of x, if there is one, follow each other in memory."""
    return x is None or host.viewer(x)(x).flags.c_contiguous


# --- small arrays: in one tile, with as few calls as possible ---------------------------------------------------------


def _plan_small(
    rotation: Rotation, way: _Arithmetic, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]
) -> Plan:
    """Return the plan for arrays that are not cut into tiles; the factors are made once, from the table, for all."""
    dtype, table_batch = rotation.dtype(xs[0]), tuple(table.cos.shape[:-1])
    host: Any = rotation.lib.host
    is_ready = table.cos.dtype == table.sin.dtype == dtype and not rotation.inverse
    view_cos, view_sin = map(host.viewer, rotation.factors(xs[0], table))
    batches = [tuple(x.shape[:-1]) for x in xs]
    if way.members and prod(table_batch) == 1:
        batches, table_batch = [(prod(batch),) for batch in batches], (1,)  # one row for all: fewer axes take less time
    make = _factor_maker(way, batches, table_batch, table.cos.shape[-1])
    each = [_plan_one(rotation, way, x, out, batch) for x, out, batch in zip(xs, outs, batches, strict=True)]

    def run(xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> tuple[Array, ...]:
        """Rotate all arrays of a call."""
        cos, sin = table if is_ready else rotation.factors(xs[0], table)
        calls = zip(each, xs, outs, make(view_cos(cos), view_sin(sin)), strict=True)
        return tuple([rotate(x, out, factors) for rotate, x, out, factors in calls])

    return run


def _factor_maker(
    way: _Arithmetic, batches: list[_Shape], table_batch: _Shape, pairs: int
) -> Callable[[_Numbers, _Numbers], list[Any]]:
    """Return ``(cos, sin)`` → the factors of arrays with these batch axes; those of a repeated small table are kept."""
    longest = tuple(map(max, zip(*batches, strict=True)))
    repeated = _repeated(longest, table_batch, _MOST_ROWS)
    cuts = [None if batch == longest else (slice(None), *map(slice, batch)) for batch in batches]

    # The bits of the last table, and what is kept of it if it came twice; threads read and replace both as one.
    last: list[tuple[Any, Any]] = [(None, None)]

    def make(cos: _Numbers, sin: _Numbers) -> list[Any]:
        """Return new factors, once for all arrays."""
        factors = way.factors(cos, sin, repeated)
        return [factors if cut is None else factors[cut] for cut in cuts]

    def make_or_keep(cos: _Numbers, sin: _Numbers) -> list[Any]:
        """Return the kept factors if cos and sin have the same bits again, as in the next layer of a model."""
        bits = cos.tobytes(), sin.tobytes()
        known, kept = last[0]
        if known == bits and kept is not None:
            return kept  # type: ignore[no-any-return]  # as `make` returned it
        made = make(cos, sin)
        last[0] = bits, [tuple(factors) for factors in made] if known == bits else None
        return made

    return make_or_keep if 4 * prod(repeated) * pairs <= _KEPT else make


def _plan_one(
    rotation: Rotation, way: _Arithmetic, x: Array, out: Array | None, batch: _Shape
) -> Callable[[Array, Array | None, Any], Array]:
    """Return a function ``(x, out, factors)`` that rotates a small array as an operand with these batch axes."""
    lib, dtype, to_dtype = rotation.lib, rotation.dtype(x), result_dtype(x, out)
    host: Any = lib.host
    if x.dtype == dtype and _is_contiguous(host, x):
        if to_dtype == dtype and _is_contiguous(host, out):
            return _plan_contiguous(rotation, way, x, out, batch)
        rotate = _plan_contiguous(rotation, way, x, None, batch)
        return lambda x, out, factors: assign(out, rotate(x, None, factors))
    multiply, load, result_is_contiguous = way.rotate, host.contiguous, _is_contiguous(host, lib.empty_like(x))
    copied, reorders = load(x, dtype), rotation.reorders
    operand_of_copy = _opener(host, way, copied, batch)
    read_operand = _opener(host, way, copied, batch, reorders=reorders)

    def rotate_copy(x: Array, out: Array | None, factors: Any) -> Array:
        """Rotate a contiguous copy of x in the dtype of the products, in which NumPy multiplies fastest."""
        copy = load(x, dtype)  # not x itself, which is not contiguous or has another dtype
        operand = operand_of_copy(copy)
        multiply(read_operand(copy) if reorders else operand, factors, operand)
        result = lib.empty_like(x) if out is None and not result_is_contiguous else out
        return assign(result, lib.cast(copy, to_dtype))

    return rotate_copy


def _plan_contiguous(
    rotation: Rotation, way: _Arithmetic, x: Array, out: Array | None, batch: _Shape
) -> Callable[[Array, Array | None, Any], Array]:
    """Return a function ``(x, out, factors)`` if x and its result are contiguous, and of the dtype of the products."""
    host: Any = rotation.lib.host
    multiply, allocate, place = way.rotate, host.allocator(x), _opener(host, way, x, batch)
    source = _opener(host, way, x, batch, reorders=True) if rotation.reorders else place
    if out is None and way.members and host.write_members is None and source is place:  # NumPy makes the result
        features = methodcaller("reshape", tuple(x.shape))
        return lambda x, _, factors: features(multiply(source(x), factors))

    def write(x: Array, out: Array | None, factors: Any) -> Array:
        """Rotate x into the memory of `out` or of a new array of the library."""
        result = allocate(x) if out is None else out
        to = place(result)
        multiply(source(x), factors, to)
        if out is not None:
            host.mark_written(out)
        return result

    return write


def _opener(
    host: HostMemory, way: _Arithmetic, x: Array, batch: _Shape, *, reorders: bool = False
) -> Callable[[Array], Any]:
    """Return a function: a contiguous array like x → its operand with these batch axes; or of the other pairing."""
    if reorders:
        members = host.viewer(x, (*batch, *way.members[::-1]))
        return lambda x: members(x).swapaxes(-1, -2)
    if way.members:
        return host.viewer(x, (*batch, *way.members))
    view, operand = host.viewer(x), way.operand
    return lambda x: operand(view(x))


# --- large arrays: in tiles, so that intermediate results stay in the cache -------------------------------------------


def _plan_tiles(
    rotation: Rotation, way: _Arithmetic, x: Array, table: Table, out: Array | None, *, is_large: bool
) -> Callable[[Array, tuple[Array, Array], Array | None], Array]:
    """Return a function ``(x, (cos, sin), out)`` that rotates an array tile by tile; in threads if a call is large."""
    lib, rank = rotation.lib, x.ndim - 1
    host: Any = lib.host
    strides, size = host.viewer(x)(x).strides, tile_size()
    order = sorted(range(rank), key=lambda axis: -abs(strides[axis]))  # in which x is in memory
    table_batch = (1,) * (rank + 1 - table.cos.ndim) + tuple(table.cos.shape[:-1])
    batch, table_in_order = (tuple([lengths[axis] for axis in order]) for lengths in (x.shape, table_batch))
    is_adjacent = x.shape[-1] >= _LONG_ROW or (_is_contiguous(host, x) and _is_contiguous(host, out))
    is_plain = is_adjacent and _is_plain(rotation, way, x, out)
    by_library = host.write_members is not None and not (is_plain and is_large)
    if by_library:  # whose functions share a tile among its threads
        size = _OF_THREAD * min(host.threads(), 8)
    elif host.write_members is None and not way.members:  # complex products need no buffers
        size *= 4
    tile = _tile_shape(batch, max(size // x.shape[-1], 1))
    is_whole = by_library and tile == batch
    uses = prod(-(-n // step) for n, step, rows in zip(batch, tile, table_in_order, strict=True) if rows == 1)
    most_rows = size if uses > 3 else 1  # to repeat rows of the table takes time itself

    def in_order(part: Array) -> Array:
        """Return a view of an array of the rank of x, or of the table, with batch axes as x has them in memory."""
        if part.ndim <= rank:
            part = lib.xp.reshape(part, (*table_batch, part.shape[-1]))
        return part if order == [*range(rank)] else lib.xp.permute_dims(part, (*order, rank))

    def run(x: Array, factors: tuple[Array, Array], out: Array | None) -> Array:
        """Return x rotated, in `out`, which may be x, or in a new array."""
        result = lib.empty_like(x) if out is None else out
        if is_whole:
            _write_tiles(rotation, [result, x, *factors], [], is_new=out is None)
            return result
        arrays = [in_order(part) for part in (result, x, *factors)]
        tiles = _tiles(batch, table_in_order, tile)
        shares = is_plain and not rotation.reorders
        rotate: Any = partial(_rotate_tiles, rotation, way, arrays, tile=tile, most_rows=most_rows, is_plain=shares)
        if by_library:
            rotate = partial(_write_tiles, rotation, arrays, is_new=out is None)
        workers = host.threads() if is_large and not by_library else 1
        run_in_threads(lambda begin, end: rotate(tiles[begin:end]), len(tiles), workers)
        if out is not None:
            host.mark_written(out)
        return result

    return run


def _rotate_tiles(
    rotation: Rotation,
    way: _Arithmetic,
    arrays: list[Array],
    tiles: _Tiles,
    *,
    tile: _Shape,
    most_rows: int,
    is_plain: bool,
) -> None:
    """
    Rotate tiles of `arrays`: out, x, which may be out, cos and sin.

    Unless they are plain, tiles are rotated in contiguous copies of the dtype of the products.
    """
    host: Any = rotation.lib.host
    to, source, cos, sin = (host.viewer(part)(part) for part in arrays)
    if is_plain:
        to, source = way.operand(to), way.operand(source)
    loaded, other = (np.empty((*tile, 2 * cos.shape[-1]), cos.dtype) for _ in range(2))  # each thread has its own
    buffers, known = [loaded, way.operand(loaded), way.operand(other), loaded], None
    if rotation.reorders:  # the copies get the order of the result
        source, buffers[0] = source.reshape(*source.shape[:-1], *way.members[::-1]), buffers[1].swapaxes(-1, -2)
    for table_index, index in tiles:
        if table_index is not known:
            known, c = table_index, cos[table_index]
            of_table = way.factors(c, sin[table_index], _repeated(tile, c.shape[:-1], most_rows))
        piece, factors, fitting = source[index], of_table, buffers
        if piece.shape[: len(tile)] != tile:  # a last tile may be smaller
            cut = tuple([slice(n) for n in piece.shape[: len(tile)]])
            factors, fitting = of_table[:, *cut], [buffer[cut] for buffer in buffers]
        copy, operand, buffer, rotated = fitting
        if is_plain:
            way.rotate(piece, factors, to[index], buffer)
        else:
            copy[...] = piece
            way.rotate(operand, factors, operand, buffer)
            to[index] = rotated


def _write_tiles(rotation: Rotation, arrays: list[Array], tiles: _Tiles, *, is_new: bool) -> None:
    """Do the same by functions of the library; without tiles for whole arrays."""
    lib, (to, source, cos, sin) = rotation.lib, arrays
    host: Any = lib.host
    pairing, out_pairing = rotation.orders
    pieces = [[to[index], source[index], cos[part], sin[part]] for part, index in tiles] if tiles else [arrays]
    for target, piece, c, s in pieces:
        wide = lib.cast(piece, c.dtype)
        rotated = target if is_new and target.dtype == c.dtype else lib.empty_like(wide)  # `out` may be x
        host.write_members(*split(rotated, out_pairing), *split(wide, pairing), c, s)
        if rotated is not target:
            target[...] = rotated


def _tile_shape(shape: _Shape, rows: int) -> _Shape:
    """Return the batch shape of a tile of up to `rows` rows: last axes whole, the one before them cut, the others 1."""
    tile = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        tile[axis] = max(min(shape[axis], rows), 1)
        rows //= tile[axis]
    return tuple(tile)


@lru_cache(maxsize=16)
def _tiles(shape: _Shape, table_shape: _Shape, tile: _Shape) -> _Tiles:
    """Return the tiles of an array and a table of these batch axes."""
    everything, tiles = [slice(None)], _Tiles()  # faster than a slice with ends
    cuts = [
        everything if 0 < n <= step else [slice(i, min(i + step, n)) for i in range(0, n, step)]
        for n, step in zip(shape, tile, strict=True)
    ]
    for part in product(*(everything if n == 1 else cut for cut, n in zip(cuts, table_shape, strict=True))):
        axes = zip(cuts, table_shape, part, strict=True)
        tiles += [(part, index) for index in product(*(cut if n == 1 else [own] for cut, n, own in axes))]
    return tiles
