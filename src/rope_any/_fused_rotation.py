"""The rotation in one compiled loop or kernel, for ``fused=True``: by Numba, CUDA or the compiler of the library."""

from collections.abc import Callable
from functools import cache, partial
from math import prod
from operator import call
from typing import Any

from rope_any._arrays import Array, X
from rope_any._arrays._compilers import PairLayout, with_fallback
from rope_any._arrays._layout import MOST_PAIRS, BatchAxes, Slots
from rope_any._arrays._numba import launcher
from rope_any._pairing import step_and_gap
from rope_any._rotation import Plan, Rotation, Table, assign, one_by_one, plan_parts, results_like, rotate_whole


def plan_fused(
    rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...], /, *, on_host: bool
) -> Plan | str:
    """Return the plan that a compiler makes, or a text that says why there is none."""
    lib, host, compiler = rotation.lib, rotation.lib.host, rotation.lib.compiler
    if on_host and host is not None and host.why_no_loop(xs[0]) is None:
        try:
            return plan_parts(rotation, xs, table, outs, make=_plan_loop)
        except Exception as error:  # noqa: BLE001  # compilers raise their own kinds
            return f"Numba failed ({type(error).__name__})"
    if compiler is None:
        return f"{lib.name} has no compiler"
    for x, out in zip(xs, outs, strict=True):
        if (reason := compiler.refusal(x, *table, out)) is not None:
            return reason
    if compiler.write_pairs is not None:
        kernel, alone = plan_parts(rotation, xs, table, outs, make=_plan_kernel), partial(rotate_whole, rotation)
        # one array at a time: if the second fails, the first, which may be rotated in place, is not rotated again
        return one_by_one(with_fallback(lib, lambda x, table, out: kernel((x,), table, (out,))[0], alone))
    return _plan_compiled(rotation)


# --- Numba's loop -----------------------------------------------------------------------------------------------------


def _plan_loop(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Return the plan of Numba's loop, by copies of strided arrays; raise what Numba raises if it can't compile."""
    # The arrays created here only provide strides: the results of each run have the same.
    lib, dtype, writes = rotation.lib, rotation.dtype(xs[0]), outs[0] is not None
    host: Any = lib.host
    results = results_like(lib, xs, outs)
    if not all(_can_be_looped(host, part) for part in (*xs, *results) if prod(part.shape)):
        return _plan_copies(rotation, xs, table, outs)
    if rotation.reorders and writes and table.cos.shape[-1] > MOST_PAIRS:
        return _plan_copies(rotation, xs, table, outs)  # the loop writes a part of a row before it reads the next
    factors = [host.contiguous(part, dtype) for part in table]
    is_ready, has_two_arrays = all(a is b for a, b in zip(factors, table, strict=True)), len(xs) == 2
    batches = [_batch_axes(host, (x, result, *factors)) for x, result in zip(xs, results, strict=True)]
    launch = _launcher(rotation, (xs[0], results[0], factors[0]), batches, has_out=writes)
    allocators = [host.allocator(x) for x in xs]

    def run(xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[X, ...]:
        """Rotate all arrays of a call by the loop, into `outs` or new arrays; if one is unaligned, copies of all."""
        factors = table if is_ready else tuple([host.contiguous(part, dtype) for part in table])
        results: Any = outs if writes else tuple(map(call, allocators, xs))
        if not launch(xs + results + factors if has_two_arrays else xs + xs + results + results + factors):
            return _plan_copies(rotation, xs, table, outs)(xs, table, outs)
        if writes:
            for result in results:
                host.mark_written(result)
        return results  # type: ignore[no-any-return]  # like xs

    return run


def _launcher(rotation: Rotation, arrays: tuple[Array, Array, Array], batches: Any, **options: Any) -> Any:
    """Return the launcher of the loop for arrays like these: x, its result and the cosines."""
    x, result, cos = arrays
    lib, sizes = rotation.lib, (x.itemsize, result.itemsize, cos.itemsize)
    variant = lib.dtype_name(x.dtype), lib.dtype_name(result.dtype), rotation.orders, rotation.inverse
    return launcher(lib.host, variant, batches, pairs=cos.shape[-1], item_sizes=sizes, **options)  # type: ignore[arg-type]  # it has one


def plan_slot_loop(
    rotation: Rotation, x: Array, table: Table, outs: tuple[Array, Array], along: tuple[int, ...]
) -> Callable[[Array, Table, tuple[Array, ...]], object] | None:
    """
    Return a function ``(x, table, (cache, slots))`` of Numba's loop that writes x into slots; None if there is no loop.

    The function returns whether it has written x: not if an array is unaligned or a slot is past the end. `along` are
    the axes of x that the slots have; the other axes are those of a row of the cache.
    """
    lib, dtype, pairs = rotation.lib, rotation.dtype(x), table.cos.shape[-1]
    host: Any = lib.host
    part, cache = rotation.part(x, pairs), rotation.part(outs[0], pairs)
    if not (_can_be_looped(host, part) and _can_be_looped(host, cache)):
        return None
    factors, of_cache = [host.contiguous(each, dtype) for each in table], host.viewer(cache)(cache)
    places = cache.ndim - x.ndim + len(along)
    rest = iter(of_cache.strides[places:])
    axes = _batch_axes(host, (part, part, *factors))
    axes = axes._replace(out=tuple([0 if axis in along else next(rest) for axis in range(x.ndim - 1)]))
    count, block = prod(cache.shape[:places]), cache.shape[places - 1]
    block_step, slot_step = (0, *of_cache.strides[:places])[-2:]  # a flat cache is one block
    before = 0 if part is x else rotation.start
    try:
        slots = Slots(along, count, block, block_step, slot_step, before, x.shape[-1] - before - 2 * pairs)
        launch = _launcher(rotation, (part, cache, factors[0]), [axes], has_out=True, slots=slots)
    except Exception:  # noqa: BLE001  # compilers raise their own kinds; the rotation alone warns of it
        return None

    def run(x: Array, table: Table, outs: tuple[Array, ...]) -> object:
        """Write the rotated x into its slots by the loop; return whether that was possible."""
        part, cache = rotation.part(x, pairs), rotation.part(outs[0], pairs)
        slots, factors = host.contiguous(outs[1], lib.xp.int64), [host.contiguous(each, dtype) for each in table]
        written = launch((part, slots, cache, cache, *factors))
        if written:
            host.mark_written(cache)
        return written

    return run


def _batch_axes(host: Any, arrays: tuple[Array, ...]) -> BatchAxes:
    """Return the batch axes of x, the first of `arrays`, and the strides in bytes of each array along them."""
    batch, strides = tuple(arrays[0].shape[:-1]), list[tuple[int, ...]]()
    for part in arrays:
        given = zip(part.shape[:-1], host.viewer(part)(part).strides[:-1], strict=True)
        own = tuple([0 if n == 1 else stride for n, stride in given])
        strides.append((0,) * (len(batch) - len(own)) + own)  # 0 along axes that are missing or of length 1
    return BatchAxes(batch, *strides)


def _can_be_looped(host: Any, x: Array) -> bool:
    """Whether the features of x are adjacent in memory, all its rows aligned if one is, and its numbers compiled."""
    strides, size = host.viewer(x)(x).strides, x.itemsize
    is_aligned = not any(n > 1 and step % size for n, step in zip(x.shape, strides, strict=True))
    return strides[-1] == size and is_aligned and host.why_no_loop(x) is None


def _plan_copies(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Return the plan that rotates contiguous, aligned copies of xs and table, as the loop can't use the originals."""
    lib, new = rotation.lib, (None,) * len(xs)
    host: Any = lib.host

    def copy(x: X, dtype: Any = None) -> X:
        """Return a contiguous copy of x, in a dtype if it is given."""
        copied: X = host.contiguous(x, dtype or x.dtype)
        if copied is x:  # contiguous, but maybe not aligned
            copied = lib.xp.asarray(x, copy=True)
        return copied

    widen = partial(copy, dtype=rotation.unrounded_dtype(xs[0], outs[0]))
    rotate = _plan_loop(rotation, tuple(map(widen, xs)), Table(*map(copy, table)), new)

    def run(xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[X, ...]:
        """Rotate copies of all arrays of a call, and assign the results to `outs` or new arrays."""
        rotated = rotate(tuple(map(widen, xs)), Table(*map(copy, table)), new)
        return tuple(map(assign, results_like(lib, xs, outs), rotated))

    return run


# --- CUDA's kernel, and compilers of libraries ------------------------------------------------------------------------


def _plan_kernel(rotation: Rotation, _: tuple[Array, ...], table: Table, __: tuple[Array | None, ...]) -> Plan:
    """Return the plan of CuPy's kernel."""
    lib = rotation.lib
    compiler: Any = lib.compiler
    of_x, of_out = (step_and_gap(pairing, table.cos.shape[-1]) for pairing in rotation.orders)
    layout = PairLayout(of_x, of_out, -1 if rotation.inverse else 1)

    def run(xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[X, ...]:
        """Rotate all arrays of a call by a kernel each, into `outs` or new arrays."""
        results = results_like(lib, xs, outs)
        factors = tuple([lib.cast(part, rotation.dtype(xs[0])) for part in table])
        for x, result in zip(xs, results, strict=True):
            source = lib.cast(x, rotation.unrounded_dtype(x, result))
            if source is result and rotation.reorders:  # a thread would write members that others have not read
                source = lib.xp.asarray(x, copy=True)
            to = result if result.dtype == x.dtype else lib.empty_like(source)  # the kernel has one dtype
            compiler.write_pairs(to, source, factors, layout)
            if to is not result:
                result[...] = to
        return results

    return run


def _plan_compiled(rotation: Rotation) -> Plan:
    """Return the plan of a function that the library compiles, such as by jax.jit."""
    function, compiler = _compiled(rotation), rotation.lib.compiler

    def rotate(x: X, table: Table, out: X | None) -> X:
        """Return x rotated; the compiled function writes `out` itself, unless that is x, needed if it fails."""
        if out is not None and out is not x and compiler is not None and compiler.takes_out:
            function(x, *table, out)
            return out
        lib = rotation.lib
        rotated: X = function(lib.cast(x, rotation.unrounded_dtype(x, out)), *table)
        if out is not None:  # MLX's would get the other dtype
            rotated = lib.cast(rotated, out.dtype)
        return assign(out, rotated)

    return one_by_one(rotate)


@cache
def _compiled(rotation: Rotation) -> Callable[..., Any]:
    """Return the cached ``(x, cos, sin[, out])`` → rotated x, compiled by the library; after a failure, eager."""

    def rotate_array(x: Array, cos: Array, sin: Array, out: Array | None = None) -> Array:
        """Return x rotated, in `out` if given; the compiler of the library compiles this function."""
        return rotate_whole(rotation, x, Table(cos, sin), out)

    compiler: Any = rotation.lib.compiler
    return with_fallback(rotation.lib, compiler.compile(rotate_array), rotate_array)
