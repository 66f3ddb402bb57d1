"""Rotate validated arrays by the first schedule that applies to them: a loop, tiles, a compiler, part by part, ..."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from math import prod
from operator import call
from typing import Any, NamedTuple

from rope_any._arrays import Array, Library, X, library
from rope_any._arrays._compilers import PairLayout, compiled_or_eager, warn_fallback, write_pairs
from rope_any._arrays._layout import BatchAxes
from rope_any._arrays._numba import launcher
from rope_any._arrays._threads import THREADED_FROM, run_in_threads
from rope_any._formula import rotate_component
from rope_any._pairing import Pairing, join, split, step_and_gap
from rope_any._rotation import Plan, Rotation, Table, assign, rotate_at_once

# --- the formula ------------------------------------------------------------------------------------------------------


def _rotate_into(xp: Any, out: Array, x: Array, pairing: Pairing, *, factors: Any, products: Any) -> None:
    """Write rotated x into `out` (may be x); `factors`: c by feature, ±s by pair; `products`: two buffers like x."""
    (c, *signed), (ac, bs), pairs = factors, products, x.shape[-1] // 2  # c by feature, s and −s by pair
    # b·s at the place of a, and a·(−s) at the place of b
    first, second = split(x, pairing, 0, pairs)
    for place, b, s in zip(split(bs, pairing, 0, pairs), (second, first), signed, strict=True):
        xp.multiply(b, s, out=place)
    xp.multiply(x, c, out=ac)
    xp.subtract(ac, bs, out=out)


# --- chunked and sharded arrays, feature blocks -----------------------------------------------------------------------


def _rotate_partitions(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate a Dask array chunk by chunk or a DTensor shard by shard; each part takes its own schedule."""
    lib, *options = rotation  # Dask hashes and pickles what it calls: without the record of the library that is fast
    map_partitions: Any = lib.map_partitions
    rotated: X = map_partitions(partial(_rotate_partition, options=tuple(options)), x, *table, out=out)
    return rotated


def _rotate_partition(x: Array, cos: Array, sin: Array, *, options: tuple[Any, ...], out: Array | None = None) -> Array:
    """Return one chunk or shard x rotated, in `out` if given; `options` are a `Rotation`'s fields after its library."""
    return dispatch(Rotation(library(x=x), *options), (x,), Table(cos, sin), (out,))[0]  # a Dask chunk may be NumPy's


def _plan_feature_blocks(
    rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]
) -> Plan:
    """Return the plan that makes feature blocks a batch axis and rotates by the schedule that then applies."""
    lib, blocks = rotation.lib, rotation.blocks
    writes = outs[0] is not None and lib.supports_out(*xs, *table, *outs)

    def blocked(some: Array) -> Array:
        """Reshape the last axis of `some`, of features or of pairs, to ``(blocks, size // blocks)``."""
        return lib.reshape_last_axes(some, 1, blocks, some.shape[-1] // blocks)

    def as_blocks(xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> tuple[Any, ...]:
        """Return (rotary slices of xs, table, those of outs or Nones), each with an axis of blocks before its last."""
        parts, places = (tuple([blocked(rotation.rotary_slice(x, table)) for x in a]) for a in (xs, writes * outs))
        return parts, Table(*map(blocked, table)), places or (None,) * len(xs)  # a place is a view of `out`

    rotate_blocks = plan_schedule(rotation._replace(start=0, blocks=1), *as_blocks(xs, table, outs))

    def run(xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[Any, ...]:
        """Return xs, rotated with blocks as a batch axis, in their own shapes: in `outs`, or new arrays for Nones."""
        rotated = rotate_blocks(*as_blocks(xs, table, outs))
        if writes:
            for x, out in zip(xs, outs, strict=True):
                rotation.copy_passthrough(x, table, out)
            return outs
        whole = [lib.reshape_last_axes(x, 2, 2 * table.cos.shape[-1]) for x in rotated]
        each = zip(xs, whole, outs, strict=True)
        return tuple([assign(out, rotation.with_passthrough(x, part)) for x, part, out in each])

    return run


# --- gradients --------------------------------------------------------------------------------------------------------


def _rotate_with_gradient(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate a tensor with gradient; autograd saves the table, and x if the table needs a gradient. `out` is unused."""
    del out  # it is None: `require_rotatable` refuses one
    with_gradient: Any = rotation.lib.with_gradient
    rotated: X = with_gradient(partial(_rotate_without_gradient, rotation), partial(_vjp, rotation), x, *table)
    return rotated


def _rotate_without_gradient(rotation: Rotation, x: X, cos: Array, sin: Array) -> X:
    """Return x rotated, inside an autograd function (forward or backward), where torch records no gradients."""
    return dispatch(rotation, (x,), Table(cos, sin), (None,))[0]


def _vjp(
    rotation: Rotation, g: Array, saved: tuple[Array | None, Array, Array], needs_gradient: tuple[bool, ...]
) -> tuple[Array | None, ...]:
    """Return the gradients of `saved` x, cos and sin, None if not needed, given g, the gradient of the rotated x."""
    (x, cos, sin), lib = saved, rotation.lib
    # of x: Rᵀ g, the rotation backwards
    of_x = None
    if needs_gradient[0]:
        of_x = _rotate_without_gradient(rotation._replace(inverse=not rotation.inverse), g, cos, sin)
    if x is None:  # only its own gradient is needed
        return of_x, None, None
    # of c + s·i: g·conj(x), each pair (p, q) of g rotated backwards by the pair (a, b) of x
    dtype, pairs = rotation.dtype(x), cos.shape[-1]
    both = (member for part in (g, x) for member in split(part, rotation.pairing, rotation.start, pairs))
    p, q, a, b = (lib.cast(member, dtype) for member in both)
    of_cos = lib.unbroadcast(rotate_component(p, q, a, -b), cos) if needs_gradient[1] else None
    of_sin = lib.unbroadcast(rotate_component(q, p, a, b), sin) if needs_gradient[2] else None
    return of_x, of_cos, -of_sin if rotation.inverse and of_sin is not None else of_sin


# --- compiled loops and kernels ---------------------------------------------------------------------------------------


def _plan_loop(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Return the plan of Numba's loop, with copies of strided arrays; if none is possible, warn and plan eagerly."""
    # The arrays created here only provide strides: the results of each run have the same.
    lib, dtype = rotation.lib, rotation.dtype(xs[0])
    host: Any = lib.host
    results = [lib.empty_like(x) if out is None else out for x, out in zip(xs, outs, strict=True)]
    factors = [host.contiguous(part, dtype) for part in table]
    if any(prod(x.shape) for x in xs):
        if not all(_has_plain_rows(host, part) for part in (*xs, *results) if prod(part.shape)):
            return partial(_rotate_copies, rotation)  # strided features or unaligned rows
        try:
            launch = _launcher(rotation, xs, results, factors, has_out=outs[0] is not None)
            return _plan_launch(rotation, xs, table, outs, launch=launch)
        except Exception as error:  # noqa: BLE001  # compilers raise their own kinds
            warn_fallback(f"Numba failed ({type(error).__name__})")
    return partial(dispatch, rotation._replace(fused=False))


def _plan_launch(
    rotation: Rotation,
    xs: tuple[Array, ...],
    table: Table,
    outs: tuple[Array | None, ...],
    *,
    launch: Callable[[tuple[Array, ...]], object],
) -> Plan:
    """Return the plan that rotates by Numba's loop, `launch` (see `_launcher`); copies if a launch returns False."""
    host: Any = rotation.lib.host
    dtype, writes = rotation.dtype(xs[0]), outs[0] is not None
    is_ready = all(host.contiguous(part, dtype) is part for part in table)
    is_partial, has_two_arrays = any(x.shape[-1] != 2 * table.cos.shape[-1] for x in xs), len(xs) == 2
    allocators = [host.allocator(x) for x in xs]

    def run(xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[X, ...]:
        """Rotate all arrays of a call by the loop, into `outs` or new arrays; if one is unaligned, copies of all."""
        factors = table if is_ready else tuple([host.contiguous(part, dtype) for part in table])
        results: Any = outs if writes else tuple(map(call, allocators, xs))
        if not launch(xs + results + factors if has_two_arrays else xs + xs + results + results + factors):
            return _rotate_copies(rotation, xs, table, outs)
        if writes or is_partial:
            for x, result in zip(xs, results, strict=True):
                host.mark_written(result)
                if is_partial:
                    rotation.copy_passthrough(x, table, result)
        return results  # type: ignore[no-any-return]  # like xs

    return run


def _launcher(
    rotation: Rotation, xs: tuple[Array, ...], results: list[Array], factors: list[Array], *, has_out: bool
) -> Callable[[tuple[Array, ...]], object]:
    """Return a function: (q, k, their results, cos, sin) → rotate, return True; or False if one is unaligned."""
    lib, pairing, start, inverse, *_ = rotation
    host: Any = lib.host

    def strides(part: Array, axes: int) -> tuple[int, ...]:
        """Return the strides, in bytes, of the batch axes of `part` when it is broadcast to `axes` batch axes."""
        own = [0 if n == 1 else stride for n, stride in zip(part.shape[:-1], host.strides(part), strict=False)]
        return (0,) * (axes - len(own)) + tuple(own)  # 0 along axes that are missing or of length 1

    batches = [
        BatchAxes(tuple(x.shape[:-1]), *(strides(part, x.ndim - 1) for part in (x, result, *factors)))
        for x, result in zip(xs, results, strict=True)
    ]
    variant, item_sizes = (lib.dtype_name(xs[0].dtype), pairing, inverse), (xs[0].itemsize, factors[0].itemsize)
    return launcher(
        variant,
        factors[0].shape[-1],
        batches,
        item_sizes=item_sizes,
        pack_addresses=host.pack_addresses,
        threads=host.threads,
        has_out=has_out,
        feature_offset=start * item_sizes[0],
        packed_offsets=host.packed_offsets,
    )


def _has_plain_rows(host: Any, x: Array) -> bool:
    """Whether the features of x are adjacent in memory, and all its rows are aligned to the item size if one is."""
    strides, size = host.strides(x), x.itemsize
    return strides[-1] == size and not any(n > 1 and step % size for n, step in zip(x.shape, strides, strict=True))


def _rotate_copies(rotation: Rotation, xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[X, ...]:
    """Rotate contiguous copies of xs and table, as the loop can't use the originals; return `outs` or new arrays."""
    lib = rotation.lib
    host: Any = lib.host
    copies = tuple([lib.copy(host.contiguous(x, x.dtype)) for x in xs])
    rotated = dispatch(rotation, copies, Table(*map(lib.copy, table)), (None,) * len(xs))
    return tuple([assign(out, x) for x, out in zip(rotated, outs, strict=True)])


def _rotate_by_kernel(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate a CuPy array by one CUDA kernel, into `out` or a new array; if it fails, warn and run eagerly."""
    lib = rotation.lib
    result: X = lib.empty_like(x) if out is None else out
    c, s = (lib.cast(part, rotation.dtype(x)) for part in table)
    to, source = rotation.rotary_slice(result, table), rotation.rotary_slice(x, table)
    layout = PairLayout(*step_and_gap(rotation.pairing, c.shape[-1]), -1 if rotation.inverse else 1)
    if write_pairs(lib, to, source, table=(c, s), layout=layout):
        rotation.copy_passthrough(x, table, result)
        return result
    return dispatch(rotation._replace(fused=False), (x,), table, (out,))[0]  # the compiler failed


def _rotate_compiled(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate x by a function that the library compiles (as jax.jit); write or copy the result into `out` if given."""
    function, compiler = _compiled(rotation), rotation.lib.compiler
    if out is not None and compiler is not None and compiler.takes_out:
        function(x, *table, out)
        return out
    rotated: X = function(x, *table)
    return assign(out, rotated)


@cache
def _compiled(rotation: Rotation) -> Callable[..., Array]:
    """Return the cached ``(x, cos, sin[, out])`` → rotated x, compiled by the library; after a failure, eager."""

    def rotate_array(x: Array, cos: Array, sin: Array, out: Array | None = None) -> Array:
        """Return x rotated, in `out` if given; the compiler of the library compiles this function."""
        return rotate_at_once(rotation, x, Table(cos, sin), out)

    return compiled_or_eager(rotation.lib, rotate_array)


# --- small arrays -----------------------------------------------------------------------------------------------------


def _plan_small(rotation: Rotation, xs: tuple[Array, ...], table: Table, _: tuple[Array | None, ...]) -> Plan:
    """Return the plan for small CPU arrays: a call prepares the factors of the table once for all its arrays."""
    lib, features, dtype = rotation.lib, 2 * table.cos.shape[-1], rotation.dtype(xs[0])
    make_rotator: Any = lib.host and lib.host.rotate_small[rotation.pairing]
    is_ready = table.cos.dtype == table.sin.dtype == dtype and not rotation.inverse
    are_ready = all(x.shape[-1] == features and x.dtype == dtype for x in xs)

    def run(xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[X, ...]:
        """Return all arrays of a call, rotated by one table; in `outs`, or in new arrays if these are Nones."""
        rotator = make_rotator(*(table if is_ready else rotation.factors(xs[0], table)))
        if are_ready and outs[0] is None:
            return tuple(map(rotator, xs))
        return tuple([rotate_one(rotator, x, table, out) for x, out in zip(xs, outs, strict=True)])

    def rotate_one(rotator: Callable[[Array], Array], x: X, table: Table, out: X | None) -> X:
        """Return x, its slice of `table`'s width rotated by `rotator`, in the dtype of x; in `out` if given."""
        part = rotator(lib.cast(rotation.rotary_slice(x, table), dtype))
        if out is None and features == x.shape[-1]:
            return lib.cast(part, x.dtype)  # type: ignore[no-any-return]  # of any library
        result: X = lib.empty_like(x) if out is None else out
        if features != x.shape[-1]:
            rotation.copy_passthrough(x, table, result)
        rotation.rotary_slice(result, table)[...] = part
        return result

    return run


# --- large arrays: in tiles, so that intermediate results stay in the cache -------------------------------------------


def _rotate_real(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate a large CPU array tile by tile, in real numbers: x · cos minus the other members of its pairs · ±sin."""
    pairing = rotation.pairing

    def make_factors(c: Array, s: Array) -> tuple[Array, ...]:
        """Return (cosine of each feature, s, −s) for a part (c, s) of the table, as `_rotate_into` takes them."""
        return join(rotation.lib, c, c, pairing), s, -s

    def rotate_tile(host: Any, out: Array, x: Array, factors: tuple[Array, ...], buffers: tuple[Array, ...]) -> None:
        """Write a tile of x, rotated by the factors of `make_factors`, into a tile of `out`; two buffers are used."""
        if x.dtype != buffers[0].dtype:
            buffers[0][...] = x
            x = buffers[0]
        _rotate_into(host.module, out, x, pairing, factors=factors, products=buffers)

    return _rotate_by_tiles(
        rotation, x, table, out, make_factors=make_factors, rotate_tile=rotate_tile, buffer_count=2, tile_size_factor=1
    )


def _rotate_complex(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate a large CPU array of interleaved pairs tile by tile, as products of complex numbers."""
    lib = rotation.lib
    host: Any = lib.host

    def make_factors(c: Array, s: Array) -> tuple[Array, ...]:
        """Return a tuple of one complex array, c + s·i for each pair in a part (c, s) of the table."""
        return (host.as_complex(join(lib, c, s, "interleaved")),)

    def rotate_tile(host: Any, out: Array, x: Array, factors: tuple[Array, ...], buffers: tuple[Array, ...]) -> None:
        """Write a tile of x, rotated by a complex product, into a tile of `out`, by way of the buffer if needed."""
        (factor,), (own,) = factors, buffers
        source, target = (host.as_complex(part) if part.dtype == own.dtype else None for part in (x, out))
        if source is None:
            own[...] = x
            source = host.as_complex(own)
        # (a + b·i)·(c + s·i) = (a·c − b·s) + (b·c − a·(−s))·i
        host.multiply_complex(source, factor, host.as_complex(own) if target is None else target)
        if target is None:
            out[...] = own

    return _rotate_by_tiles(
        rotation, x, table, out, make_factors=make_factors, rotate_tile=rotate_tile, buffer_count=1, tile_size_factor=4
    )


def _rotate_compiled_tiles(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate a torch tensor on a CPU tile by tile, by a function that torch.compile compiles."""
    rotator = _compiled(Rotation(rotation.lib, rotation.pairing, wide=rotation.wide))

    def rotate_tile(_: Any, out: Array, x: Array, factors: tuple[Array, ...], __: tuple[Array, ...]) -> None:
        """Write a tile of x, rotated by the compiled function, into a tile of `out`."""
        out[...] = rotator(x, *factors)

    return _rotate_by_tiles(
        rotation, x, table, out, make_factors=lambda *factors: factors, rotate_tile=rotate_tile, tile_size_factor=8
    )


def _rotate_by_tiles(
    rotation: Rotation,
    x: X,
    table: Table,
    out: X | None,
    /,
    *,
    make_factors: Any,
    rotate_tile: Any,
    tile_size_factor: int,
    buffer_count: int = 0,
) -> X:
    """
    Rotate a CPU array tile by tile, into `out` or a new array; features outside the rotary slice are copied.

    ``rotate_tile(host, out, x, make_factors(c, s), buffers)`` writes one tile; `buffer_count` is the number of buffers.
    A tile has up to ``tile_size_factor * host.tile_size()`` elements, and at most 2²⁰, or one row if that is longer.
    """
    lib = rotation.lib
    host: Any = lib.host
    result: X = lib.empty_like(x) if out is None else out
    rotation.copy_passthrough(x, table, result)
    parts = rotation.rotary_slice(result, table), rotation.rotary_slice(x, table)
    to, source, cos, sin = _batch_axes_by_stride(lib, *parts, *table)
    batch, features = tuple(source.shape[:-1]), source.shape[-1]
    most = min(tile_size_factor * host.tile_size(), 2**20)
    tile_shape = _tile_shape(batch, max(most // features, 1))
    place = {"dtype": rotation.dtype(x), "device": source.device}
    tiles = list(_tiles(batch, tuple(cos.shape[:-1]), tile_shape))

    def rotate_tiles(begin: int, end: int) -> None:
        """Rotate the tiles number `begin` to ``end - 1`` in one thread, which has its own buffers."""
        buffers = tuple([host.module.empty((*tile_shape, features), **place) for _ in range(buffer_count)])
        known: Any = None
        for table_index, tile in tiles[begin:end]:
            if table_index is not known:
                known, part = table_index, Table(cos[table_index], sin[table_index])
                factors = make_factors(*rotation.factors(source, part))
            piece, tile_buffers = source[tile], buffers
            if piece.shape != (*tile_shape, features):  # a last tile may be smaller
                tile_buffers = tuple([buffer[tuple(slice(n) for n in piece.shape)] for buffer in buffers])
            rotate_tile(host, to[tile], piece, factors, tile_buffers)

    workers = host.threads() if host.threaded_tiles and prod(batch) * features >= THREADED_FROM else 1
    chunk = max(-(-len(tiles) // (4 * workers)) if workers > 1 else len(tiles), 1)
    run_in_threads(rotate_tiles, [(i, i + chunk) for i in range(0, len(tiles), chunk)], workers)
    return result


def _batch_axes_by_stride(lib: Library, out: Array, x: Array, *table: Array) -> tuple[Array, ...]:
    """Return views of out, x, cos, sin, all of x's rank, with batch axes in descending order of the strides of x."""
    batch = x.ndim - 1
    host: Any = lib.host
    strides = host.strides(x)
    order = sorted(range(batch), key=lambda axis: -abs(strides[axis]))
    tables = (lib.xp.reshape(part, (1,) * (x.ndim - part.ndim) + tuple(part.shape)) for part in table)
    if order == list(range(batch)):
        return out, x, *tables
    return tuple(lib.xp.permute_dims(part, (*order, batch)) for part in (out, x, *tables))


def _tile_shape(shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """Return the batch shape of a tile of up to `rows` rows: last axes whole, the one before them cut, the others 1."""
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= rows:
        axis -= 1
        inner *= shape[axis]
    return tuple(
        1 if i < axis - 1 else max(rows // inner, 1) if i == axis - 1 else max(n, 1) for i, n in enumerate(shape)
    )


def _tiles(
    shape: tuple[int, ...], table_shape: tuple[int, ...], tile_shape: tuple[int, ...]
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


# --- which schedule runs ----------------------------------------------------------------------------------------------


class Schedule(NamedTuple):
    """One implementation of the rotation, and the arrays that it applies to."""

    applies: Callable[..., bool]
    """``(rotation, arrays, table, outs)`` → whether it can rotate them."""
    run: Callable[..., Any]
    """``(rotation, x, table, out)`` → the rotated x."""
    together: bool = False
    """Whether `run` is for all arrays of a call: ``(rotation, arrays, table, outs)`` → a `Plan`."""


def _can_compile(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> bool:
    """Whether ``fused`` is given, `lib.is_traced` false, and a compiler takes all arrays; warn if only that fails."""
    lib = rotation.lib
    if not rotation.fused or lib.is_traced(xs[0]):
        return False
    if lib.compiler is None:
        warn_fallback(f"{lib.name} has no compiler")
        return False
    for x, out in zip(xs, outs, strict=True):
        if (reason := lib.compiler.refusal(x, *table, out)) is not None:
            warn_fallback(reason)
            return False
    return True


def _is_on_host(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> bool:
    """Whether `lib.host` can be used: NumPy arrays or plain CPU tensors, not traced, transformed or recorded."""
    return bool(rotation.lib.supports_out(*xs, *table, *outs))


def _fits_one_tile(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> bool:
    """Whether each of `xs` has at most `tile_size` elements, and all arrays are on the host (`_is_on_host`)."""
    if not _is_on_host(rotation, xs, table, outs):
        return False
    host: Any = rotation.lib.host
    return max([prod(x.shape) for x in xs]) <= host.tile_size()  # type: ignore[no-any-return]  # two integers


def _is_complex_reproducible(
    rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]
) -> bool:
    """Whether pairs are interleaved, `_is_on_host`, and complex products have the same bits anywhere in an array."""
    if rotation.pairing != "interleaved" or not _is_on_host(rotation, xs, table, outs):
        return False
    host: Any = rotation.lib.host
    return host.complex_product_is_reproducible(table.cos.shape[-1])  # type: ignore[no-any-return]  # a bool


def _can_run_loop(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> bool:
    """Whether ``fused=True`` is given, `_is_on_host`, no torch mode is active, and Numba can compile a loop."""
    if not rotation.fused or not rotation.lib.keeps_constants() or not _is_on_host(rotation, xs, table, outs):
        return False  # a torch mode would not see what the loop does
    host: Any = rotation.lib.host
    return all(host.why_no_loop(x) is None for x in xs)


SCHEDULES = (
    # chunked (Dask) and sharded (torch) arrays
    Schedule(lambda r, xs, *_: r.lib.is_partitioned(xs[0]), _rotate_partitions),
    # features that are paired block by block
    Schedule(lambda r, *_: r.blocks > 1, _plan_feature_blocks, together=True),
    # torch, if gradients are recorded
    Schedule(lambda r, xs, t, _: r.lib.records_gradients(*xs, *t), _rotate_with_gradient),
    # `fused`: NumPy and torch on a CPU, with Numba
    Schedule(_can_run_loop, _plan_loop, together=True),
    # `fused`: CuPy
    Schedule(lambda r, *of: _can_compile(r, *of) and r.lib.compiler.write_pairs, _rotate_by_kernel),
    # `fused`: torch on a CPU, without Numba
    Schedule(lambda *of: _can_compile(*of) and _is_on_host(*of), _rotate_compiled_tiles),
    # `fused`: others with a compiler
    Schedule(_can_compile, _rotate_compiled),
    # small arrays of NumPy and torch on a CPU
    Schedule(_fits_one_tile, _plan_small, together=True),
    # large ones
    Schedule(_is_complex_reproducible, _rotate_complex),
    Schedule(_is_on_host, _rotate_real),
    # all others
    Schedule(lambda *_: True, rotate_at_once),
)
"""The schedules in order: the first that applies runs."""


def plan_schedule(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Return the plan of the first of `SCHEDULES` that applies to these arrays."""
    for schedule in SCHEDULES:
        if schedule.applies(rotation, xs, table, outs):
            break
    if schedule.together:
        return schedule.run(rotation, xs, table, outs)  # type: ignore[no-any-return]  # a `Plan`
    run = schedule.run
    return lambda xs, table, outs: tuple([run(rotation, x, table, out) for x, out in zip(xs, outs, strict=True)])


def dispatch(rotation: Rotation, xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...], /) -> tuple[X, ...]:
    """Rotate checked arrays of one dtype by one table, into `outs` or new arrays, by the first schedule to fit them."""
    return plan_schedule(rotation, xs, table, outs)(xs, table, outs)
