"""The rotation: one line of mathematics, and the schedules that run it, of which the first that applies is taken."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from math import prod
from operator import call
from typing import Any, NamedTuple, TypeAlias

from rope_any._arrays import Array, Library, X, library
from rope_any._arrays._compilers import PairLayout, compiled_or_eager, warn_fallback, write_pairs
from rope_any._arrays._layout import BatchAxes
from rope_any._arrays._numba import launcher
from rope_any._arrays._threads import SHARED_FROM, run_shared
from rope_any._formula import rotate_component
from rope_any._pairing import Pairing, join, split, step_and_gap
from rope_any._table import Table


class Rotation(NamedTuple):
    """How arrays of one library are to be rotated by a table; it holds no array."""

    lib: Library
    pairing: Pairing
    start: int = 0
    inverse: bool = False
    fused: bool = False
    blocks: int = 1
    """How many equal parts of the rotary slice are paired each on its own."""
    wide: bool = False
    """Whether float64 is computed in whatever x is, for what is rotated again and again."""

    def dtype(self, x: Array) -> Any:
        """Return the dtype that x is rotated in."""
        return self.lib.xp.float64 if self.wide else self.lib.compute_dtype(x)

    def factors(self, x: Array, table: Table) -> tuple[Array, Array]:
        """Return cos and sin in the dtype that x is rotated in; sin negated to rotate backwards."""
        (cos, sin), dtype = table, self.dtype(x)
        s = self.lib.cast(sin, dtype)
        return self.lib.cast(cos, dtype), -s if self.inverse else s

    def rotary_slice(self, x: X, table: Table) -> X:
        """Return the features of x that are rotated."""
        features = 2 * table.cos.shape[-1]
        rotary: X = x if features == x.shape[-1] else x[..., self.start : self.start + features]
        return rotary

    def copy_passthrough(self, x: Array, table: Table, out: Array) -> None:
        """Write the features of x that are not rotated into `out`."""
        if out is not x:
            for passing in (slice(self.start), slice(self.start + 2 * table.cos.shape[-1], None)):
                if x[..., passing].shape[-1]:
                    out[..., passing] = x[..., passing]

    def with_passthrough(self, x: X, rotated: Array) -> X:
        """Return x with its rotary slice replaced."""
        passing = x[..., : self.start], rotated, x[..., self.start + rotated.shape[-1] :]
        kept = [part for part in passing if part.shape[-1]]
        whole = rotated if len(kept) == 1 else self.lib.concat(kept)
        return self.lib.cast(whole, x.dtype)  # type: ignore[no-any-return]  # joining forgets the byte order


Plan: TypeAlias = Callable[[tuple[Any, ...], Any, tuple[Any, ...]], tuple[Any, ...]]
"""
``(arrays, table, outs)`` → the rotated arrays, by one table or by a pair of them: all that was decided for arrays like
these. It holds none of them.
"""


# --- the formula ------------------------------------------------------------------------------------------------------


def _rotate_into(xp: Any, out: Array, x: Array, pairing: Pairing, *, factors: Any, products: Any) -> None:
    """Write `rotate_component` of all features of x into `out`, with memory given for the two products."""
    (c, *signed), (ac, bs), pairs = factors, products, x.shape[-1] // 2
    # b·s beside each a·c, and a·(−s) beside each b·c
    first, second = split(x, pairing, 0, pairs)
    for place, b, s in zip(split(bs, pairing, 0, pairs), (second, first), signed, strict=True):
        xp.multiply(b, s, out=place)
    xp.multiply(x, c, out=ac)
    xp.subtract(ac, bs, out=out)


# --- any array: members by members ------------------------------------------------------------------------------------


def _rotate_whole(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate both members of all pairs at once."""
    lib, pairing, start, *_ = rotation
    c, s = rotation.factors(x, table)
    a, b = (lib.cast(part, c.dtype) for part in split(x, pairing, start, c.shape[-1]))
    # a' = a·c − b·s  and  b' = b·c − a·(−s)
    members = rotate_component(a, b, c, s), rotate_component(b, a, c, -s)
    # Each goes back to its dtype before they are joined: compilers write down what is joined.
    first, second = (lib.cast(member, x.dtype) for member in members)
    return _assigned(out, rotation.with_passthrough(x, join(lib, first, second, pairing)))


def _assigned(out: X | None, x: X) -> X:
    """Return x, written into `out` if there is one."""
    if out is None:
        return x
    out[...] = x
    return out


# --- arrays made of parts, features paired in blocks ------------------------------------------------------------------


def _rotate_parts(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate part by part, each by a schedule of its own library."""
    map_parts: Any = rotation.lib.map_parts
    rotated: X = map_parts(partial(_rotate_part, rotation=rotation), x, *table, out=out)
    return rotated


def _rotate_part(x: Array, cos: Array, sin: Array, *, rotation: Rotation, out: Array | None = None) -> Array:
    """Rotate one chunk or one shard, by the record of its own library."""
    return dispatch(rotation._replace(lib=library(x=x)), (x,), Table(cos, sin), (out,))[0]


def _plan_feature_blocks(
    rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]
) -> Plan:
    """Rotate with the blocks as an axis of their own, by a schedule below."""
    lib, blocks = rotation.lib, rotation.blocks
    writes = outs[0] is not None and lib.supports_out(*xs, *table, *outs)

    def cut(some: Array) -> Array:
        return lib.reshape_last_axes(some, 1, blocks, some.shape[-1] // blocks)

    def in_blocks(xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> tuple[Any, ...]:
        parts, places = (tuple([cut(rotation.rotary_slice(x, table)) for x in some]) for some in (xs, writes * outs))
        return parts, Table(*map(cut, table)), places or (None,) * len(xs)  # a place is a view of `out`

    of_blocks = plan_schedule(rotation._replace(start=0, blocks=1), *in_blocks(xs, table, outs))

    def run(xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[Any, ...]:
        rotated = of_blocks(*in_blocks(xs, table, outs))
        if writes:
            for x, out in zip(xs, outs, strict=True):
                rotation.copy_passthrough(x, table, out)
            return outs
        whole = [lib.reshape_last_axes(x, 2, 2 * table.cos.shape[-1]) for x in rotated]
        each = zip(xs, whole, outs, strict=True)
        return tuple([_assigned(out, rotation.with_passthrough(x, part)) for x, part, out in each])

    return run


# --- gradients --------------------------------------------------------------------------------------------------------


def _rotate_recorded(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate by another schedule, so that autograd keeps only the table (x too if the table is learned)."""
    del out  # `check` has refused one
    with_gradient: Any = rotation.lib.with_gradient
    rotated: X = with_gradient(partial(_rotate_unrecorded, rotation), partial(_vjp, rotation), x, *table)
    return rotated


def _rotate_unrecorded(rotation: Rotation, x: X, cos: Array, sin: Array) -> X:
    """Rotate x in the forward or the backward pass, by the schedule for arrays that autograd does not record."""
    return dispatch(rotation, (x,), Table(cos, sin), (None,))[0]


def _vjp(
    rotation: Rotation, g: Array, kept: tuple[Array | None, Array, Array], wanted: tuple[bool, ...]
) -> tuple[Array | None, ...]:
    """Return the gradients of x, cos and sin that are wanted, for the gradient g of the rotated x."""
    (x, cos, sin), lib = kept, rotation.lib
    # of x: Rᵀ g, the rotation backwards
    of_x = _rotate_unrecorded(rotation._replace(inverse=not rotation.inverse), g, cos, sin) if wanted[0] else None
    if x is None:
        return of_x, None, None
    # of c + s·i: g·conj(x), each pair (p, q) of g rotated backwards by the pair (a, b) of x
    dtype, pairs = rotation.dtype(x), cos.shape[-1]
    both = (member for part in (g, x) for member in split(part, rotation.pairing, rotation.start, pairs))
    p, q, a, b = (lib.cast(member, dtype) for member in both)
    of_cos = lib.summed_to(rotate_component(p, q, a, -b), cos) if wanted[1] else None
    of_sin = lib.summed_to(rotate_component(q, p, a, b), sin) if wanted[2] else None
    return of_x, of_cos, -of_sin if rotation.inverse and of_sin is not None else of_sin


# --- by the library's own compiler ------------------------------------------------------------------------------------


def _plan_loop(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Rotate all arrays of a call in one loop over their memory, which reads and writes each of their numbers once."""
    # The arrays made here are for their steps in memory alone: those of each run have the same.
    lib, dtype = rotation.lib, rotation.dtype(xs[0])
    host: Any = lib.host
    results = [lib.empty_like(x) if out is None else out for x, out in zip(xs, outs, strict=True)]
    factors = [host.contiguous(part, dtype) for part in table]
    if not all(map(host.is_readable, (*xs, *results, *factors))):
        warn_fallback("the loop needs numbers that stand in memory as they are, without a negative bit")
    elif any(prod(x.shape) for x in xs):
        if not all(_has_plain_rows(host, part) for part in (*xs, *results) if prod(part.shape)):
            return partial(_rotate_copies, rotation)
        try:
            launch = _launcher(rotation, xs, results, factors, has_out=outs[0] is not None)
            return _plan_launch(rotation, xs, table, outs, launch=launch)
        except Exception as error:  # noqa: BLE001  # of any kind: compilers raise their own
            warn_fallback(f"Numba failed ({type(error).__name__})")
    return partial(dispatch, rotation._replace(fused=False))


def _plan_launch(
    rotation: Rotation,
    xs: tuple[Array, ...],
    table: Table,
    outs: tuple[Array | None, ...],
    *,
    launch: Callable[[int], object],
) -> Plan:
    """Return the plan that calls `launch`; unaligned arrays are copied, an `out` that can't be written is an error."""
    host: Any = rotation.lib.host
    dtype, eager, writes = rotation.dtype(xs[0]), rotation._replace(fused=False), outs[0] is not None
    is_ready = all(host.contiguous(part, dtype) is part for part in table)
    is_partial, pair = any(x.shape[-1] != 2 * table.cos.shape[-1] for x in xs), len(xs) == 2
    address_bundle, allocators = host.address_bundle, [host.allocator(x) for x in xs]

    def run(xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[X, ...]:
        if writes and not all(map(host.may_write, outs)):
            return dispatch(eager, xs, table, outs)  # which raises
        cos, sin = table if is_ready else (host.contiguous(part, dtype) for part in table)
        results: Any = outs if writes else tuple(map(call, allocators, xs))
        bundle = address_bundle((*xs, *results, cos, sin) if pair else (*xs, *xs, *results, *results, cos, sin))
        if not launch(id(bundle)):
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
) -> Callable[[int], object]:
    """Return the function that calls the loop for arrays that lie in memory as these do: see `_numba.launcher`."""
    lib, pairing, start, inverse, *_ = rotation
    host: Any = lib.host

    def strides(part: Array, axes: int) -> tuple[int, ...]:
        own = [0 if n == 1 else stride for n, stride in zip(part.shape[:-1], host.strides(part), strict=False)]
        return (0,) * (axes - len(own)) + tuple(own)  # 0 along axes that are missing or of length 1

    each = [
        BatchAxes(tuple(x.shape[:-1]), *(strides(part, x.ndim - 1) for part in (x, result, *factors)))
        for x, result in zip(xs, results, strict=True)
    ]
    variant, item_sizes = (lib.dtype_name(xs[0].dtype), pairing, inverse), (xs[0].itemsize, factors[0].itemsize)
    return launcher(
        variant,
        factors[0].shape[-1],
        each,
        item_sizes=item_sizes,
        threads=host.threads,
        has_out=has_out,
        feature_offset=start * item_sizes[0],
        bundle_offsets=host.bundle_offsets,
    )


def _has_plain_rows(host: Any, x: Array) -> bool:
    """Whether the features of x are side by side, and all of its rows aligned if the first is."""
    steps, size = host.strides(x), x.itemsize
    return steps[-1] == size and not any(n > 1 and step % size for n, step in zip(x.shape, steps, strict=True))


def _rotate_copies(rotation: Rotation, xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[X, ...]:
    """Rotate copies of arrays that the loop cannot take (unaligned, features apart); write them where they belong."""
    lib = rotation.lib
    host: Any = lib.host
    copies = tuple([lib.copy(host.contiguous(x, x.dtype)) for x in xs])
    rotated = dispatch(rotation, copies, Table(*map(lib.copy, table)), (None,) * len(xs))
    return tuple([_assigned(out, x) for x, out in zip(rotated, outs, strict=True)])


def _rotate_by_kernel(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate in one compiled loop, which reads and writes each number once."""
    lib = rotation.lib
    result: X = lib.empty_like(x) if out is None else out
    factors = (lib.cast(part, rotation.dtype(x)) for part in table)
    parts = rotation.rotary_slice(result, table), rotation.rotary_slice(x, table)
    to, source, c, s = _batch_axes_by_stride(lib, *parts, *factors)
    layout = PairLayout(*step_and_gap(rotation.pairing, c.shape[-1]), -1 if rotation.inverse else 1)
    if write_pairs(lib, to, source, table=(c, s), layout=layout):
        rotation.copy_passthrough(x, table, result)
        return result
    return dispatch(rotation._replace(fused=False), (x,), table, (out,))[0]


def _rotate_compiled(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate both members of all pairs at once, compiled."""
    function, compiler = _compiled(rotation), rotation.lib.compiler
    if out is not None and compiler is not None and compiler.takes_out:
        function(x, *table, out)
        return out
    rotated: X = function(x, *table)
    return _assigned(out, rotated)


def _is_refused(rotation: Rotation, x: Array, table: Table, out: Array | None) -> bool:
    """Whether the compiler refuses these arrays; warn if it does."""
    compiler: Any = rotation.lib.compiler
    reason = compiler.refusal(x, *table, out)
    if reason is not None:
        warn_fallback(reason)
    return reason is not None


@cache
def _compiled(rotation: Rotation) -> Callable[..., Array]:
    """Return the rotation of a whole array, compiled."""

    def whole(x: Array, cos: Array, sin: Array, out: Array | None = None) -> Array:
        return _rotate_whole(rotation, x, Table(cos, sin), out)

    return compiled_or_eager(rotation.lib, whole)


# --- few elements: all at once ----------------------------------------------------------------------------------------


def _plan_few(rotation: Rotation, xs: tuple[Array, ...], table: Table, _: tuple[Array | None, ...]) -> Plan:
    """Rotate all arrays of a call by one prepared table, in the fewest operations."""
    lib, features, dtype = rotation.lib, 2 * table.cos.shape[-1], rotation.dtype(xs[0])
    make_rotator: Any = lib.host and lib.host.few[rotation.pairing]
    is_ready = table.cos.dtype == table.sin.dtype == dtype and not rotation.inverse
    are_ready = all(x.shape[-1] == features and x.dtype == dtype for x in xs)

    def run(xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[X, ...]:
        rotated = make_rotator(*(table if is_ready else rotation.factors(xs[0], table)))
        if are_ready and outs[0] is None:
            return tuple(map(rotated, xs))
        return tuple([rotate_one(rotated, x, table, out) for x, out in zip(xs, outs, strict=True)])

    def rotate_one(rotated: Callable[[Array], Array], x: X, table: Table, out: X | None) -> X:
        part = rotated(lib.cast(rotation.rotary_slice(x, table), dtype))
        if out is None and features == x.shape[-1]:
            return lib.cast(part, x.dtype)  # type: ignore[no-any-return]  # of any library
        result: X = lib.empty_like(x) if out is None else out
        if features != x.shape[-1]:
            rotation.copy_passthrough(x, table, result)
        rotation.rotary_slice(result, table)[...] = part
        return result

    return run


# --- many elements: in tiles, so that what is made on the way stays in the cache --------------------------------------


def _rotate_swapped(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate tile by tile: features, and features exchanged with the other of their pair, all products in scratch."""
    pairing = rotation.pairing

    def make_factors(c: Array, s: Array) -> tuple[Array, ...]:
        return join(rotation.lib, c, c, pairing), s, -s

    def rotate_tile(host: Any, out: Array, x: Array, factors: tuple[Array, ...], buffers: tuple[Array, ...]) -> None:
        if x.dtype != buffers[0].dtype:
            buffers[0][...] = x
            x = buffers[0]
        _rotate_into(host.module, out, x, pairing, factors=factors, products=buffers)

    return _in_tiles(
        rotation, x, table, out, make_factors=make_factors, rotate_tile=rotate_tile, buffer_count=2, larger=1
    )


def _rotate_complex(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate tile by tile by a product of complex numbers, through scratch if x has no complex view."""
    lib = rotation.lib
    host: Any = lib.host

    def make_factors(c: Array, s: Array) -> tuple[Array, ...]:
        return (host.as_complex(join(lib, c, s, "interleaved")),)

    def rotate_tile(host: Any, out: Array, x: Array, factors: tuple[Array, ...], buffers: tuple[Array, ...]) -> None:
        (factor,), (own,) = factors, buffers
        source, target = (host.as_complex(part) if part.dtype == own.dtype else None for part in (x, out))
        if source is None:
            own[...] = x
            source = host.as_complex(own)
        # (a + b·i)·(c + s·i) = (a·c − b·s) + (b·c − a·(−s))·i
        host.multiply_complex(source, factor, host.as_complex(own) if target is None else target)
        if target is None:
            out[...] = own

    return _in_tiles(
        rotation, x, table, out, make_factors=make_factors, rotate_tile=rotate_tile, buffer_count=1, larger=4
    )


def _rotate_compiled_tiles(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate tile by tile, compiled."""
    rotated = _compiled(Rotation(rotation.lib, rotation.pairing, wide=rotation.wide))

    def rotate_tile(_: Any, out: Array, x: Array, factors: tuple[Array, ...], __: tuple[Array, ...]) -> None:
        out[...] = rotated(x, *factors)

    return _in_tiles(
        rotation,
        x,
        table,
        out,
        make_factors=lambda *factors: factors,
        rotate_tile=rotate_tile,
        buffer_count=0,
        larger=8,
    )


def _in_tiles(
    rotation: Rotation,
    x: X,
    table: Table,
    out: X | None,
    /,
    *,
    make_factors: Any,
    rotate_tile: Any,
    buffer_count: int,
    larger: int,
) -> X:
    """
    Rotate x in the memory of a CPU tile by tile, into `out` or a new array.

    ``make_factors(c, s)`` makes of a part of the table the factors of ``rotate_tile(host, out, x, factors, buffers)``.
    `buffer_count` is how many arrays like a tile that needs, `larger` how much larger than others its tiles may be.
    """
    lib = rotation.lib
    host: Any = lib.host
    result: X = lib.empty_like(x) if out is None else out
    rotation.copy_passthrough(x, table, result)
    parts = rotation.rotary_slice(result, table), rotation.rotary_slice(x, table)
    to, source, cos, sin = _batch_axes_by_stride(lib, *parts, *table)
    batch, features = tuple(source.shape[:-1]), source.shape[-1]
    most = min(larger * host.tile_size(), 2**20)
    tile_shape = _tile_shape(batch, max(most // features, 1))
    place = {"dtype": rotation.dtype(x), "device": source.device}
    tiles = list(_tiles(batch, tuple(cos.shape[:-1]), tile_shape))

    def rotate_tiles(begin: int, end: int) -> None:
        buffers = tuple([host.module.empty((*tile_shape, features), **place) for _ in range(buffer_count)])
        known: Any = None
        for table_index, tile in tiles[begin:end]:
            if table_index is not known:
                known, part = table_index, Table(cos[table_index], sin[table_index])
                factors = make_factors(*rotation.factors(source, part))
            piece, own = source[tile], buffers
            if piece.shape != (*tile_shape, features):  # a last tile may be smaller
                own = tuple([buffer[tuple(slice(n) for n in piece.shape)] for buffer in buffers])
            rotate_tile(host, to[tile], piece, factors, own)

    workers = host.threads() if host.shares_tiles and prod(batch) * features >= SHARED_FROM else 1
    chunk = max(-(-len(tiles) // (4 * workers)) if workers > 1 else len(tiles), 1)
    run_shared(rotate_tiles, [(i, i + chunk) for i in range(0, len(tiles), chunk)], workers)
    return result


def _batch_axes_by_stride(lib: Library, out: Array, x: Array, *table: Array) -> tuple[Array, ...]:
    """Return arrays and tables with as many axes each; batch axes in the order of x in memory, largest stride first."""
    batch = x.ndim - 1
    steps = lib.host.strides(x) if lib.host is not None else x.strides
    order = sorted(range(batch), key=lambda axis: -abs(steps[axis]))
    tables = (lib.xp.reshape(part, (1,) * (x.ndim - part.ndim) + tuple(part.shape)) for part in table)
    if order == list(range(batch)):
        return out, x, *tables
    return tuple(lib.xp.permute_dims(part, (*order, batch)) for part in (out, x, *tables))


def _tile_shape(shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """Return the shape of a tile of about as many rows: 1 along the first axes, all of the last ones."""
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= rows:
        axis -= 1
        inner *= shape[axis]
    return tuple(
        1 if i < axis - 1 else max(rows // inner, 1) if i == axis - 1 else max(n, 1) for i, n in enumerate(shape)
    )


def _tiles(
    shape: tuple[int, ...], table: tuple[int, ...], tile_shape: tuple[int, ...]
) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Yield the indices of a part of the table and of a tile of x that it rotates, part by part."""
    everything = [slice(None)]  # which takes less time than its own ends
    cuts = [
        everything if 0 < n <= step else [slice(i, min(i + step, n)) for i in range(0, n, step)]
        for n, step in zip(shape, tile_shape, strict=True)
    ]
    for part in product(*(cut if n > 1 else everything for cut, n in zip(cuts, table, strict=True))):
        ours = (cut if n <= 1 else [here] for cut, n, here in zip(cuts, table, part, strict=True))
        for tile in product(*ours):
            yield part, tile


# --- which schedule runs ----------------------------------------------------------------------------------------------


class Schedule(NamedTuple):
    """A way to run the rotation."""

    arrays: str
    """For the documentation: the arrays that it is for."""
    applies: Callable[..., bool]
    """``(rotation, arrays, table, outs)`` → whether it can run."""
    run: Callable[..., Any]
    """``(rotation, x, table, out)`` → the rotated x. Its docstring says how."""
    together: bool = False
    """Whether `run` is for all arrays of a call: ``(rotation, arrays, table, outs)`` → a `Plan`."""


def _fuses(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> bool:
    """Whether ``fused=True`` is asked for and can be had; warn if it cannot."""
    lib = rotation.lib
    if not rotation.fused or lib.is_traced(xs[0]):
        return False
    if lib.compiler is None:
        warn_fallback(f"{lib.name} has no compiler")
        return False
    return not any(_is_refused(rotation, x, table, out) for x, out in zip(xs, outs, strict=True))


def _in_memory(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> bool:
    """Whether functions with ``out=`` may write: nothing traces, transforms or records arrays in a CPU's memory."""
    return bool(rotation.lib.supports_out(*xs, *table, *outs))


def _are_few(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> bool:
    """Whether arrays are in the memory of a CPU, and none is larger than a tile."""
    if not _in_memory(rotation, xs, table, outs):
        return False
    host: Any = rotation.lib.host
    return max([prod(x.shape) for x in xs]) <= host.tile_size()  # type: ignore[no-any-return]  # two integers


def _is_complex(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> bool:
    """Whether pairs in the memory of a CPU can be multiplied as complex numbers, with the same bits in any company."""
    if rotation.pairing != "interleaved" or not _in_memory(rotation, xs, table, outs):
        return False
    host: Any = rotation.lib.host
    return host.complex_product_is_exact(table.cos.shape[-1])  # type: ignore[no-any-return]  # a bool


def _loops(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> bool:
    """Whether ``fused=True`` is asked for in the memory of a CPU, and Numba compiles a loop for it."""
    if not rotation.fused or not rotation.lib.keeps_constants() or not _in_memory(rotation, xs, table, outs):
        return False  # a mode would not see what the loop does
    host: Any = rotation.lib.host
    return all(host.why_no_loop(x) is None for x in xs)


_MEMORY = "in CPU memory, with nothing that traces, transforms or records them"
SCHEDULES = (
    Schedule("made of parts: Dask's chunks, torch's shards", lambda r, xs, *_: r.lib.is_parted(xs[0]), _rotate_parts),
    Schedule("paired in blocks of features", lambda r, *_: r.blocks > 1, _plan_feature_blocks, together=True),
    Schedule("gradients recorded: torch", lambda r, xs, t, _: r.lib.records_gradients(*xs, *t), _rotate_recorded),
    Schedule(f"`fused`, with Numba: NumPy and torch, {_MEMORY}", _loops, _plan_loop, together=True),
    Schedule("`fused`: CuPy", lambda r, *of: _fuses(r, *of) and r.lib.compiler.write_pairs, _rotate_by_kernel),
    Schedule(
        f"`fused`, without Numba: torch, {_MEMORY}", lambda *of: _fuses(*of) and _in_memory(*of), _rotate_compiled_tiles
    ),
    Schedule("`fused`: others with a compiler", _fuses, _rotate_compiled),
    Schedule(f"few elements: NumPy and torch, {_MEMORY}", _are_few, _plan_few, together=True),
    Schedule('many, `"interleaved"`, where complex products are exact to the bit', _is_complex, _rotate_complex),
    Schedule("many, others", _in_memory, _rotate_swapped),
    Schedule("all others", lambda *_: True, _rotate_whole),
)
"""The schedules in order: the first that applies runs."""


def plan_schedule(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Return the plan of the first schedule that applies."""
    for schedule in SCHEDULES:
        if schedule.applies(rotation, xs, table, outs):
            break
    if schedule.together:
        return schedule.run(rotation, xs, table, outs)  # type: ignore[no-any-return]  # a `Plan`
    run = schedule.run
    return lambda xs, table, outs: tuple([run(rotation, x, table, out) for x, out in zip(xs, outs, strict=True)])


def dispatch(rotation: Rotation, xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...], /) -> tuple[X, ...]:
    """Rotate checked arrays of one dtype by one table."""
    return plan_schedule(rotation, xs, table, outs)(xs, table, outs)
