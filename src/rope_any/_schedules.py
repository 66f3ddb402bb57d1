"""Which way to rotate: part by part, with a gradient, compiled, in the memory of a CPU, or by `rotate_pairs` itself."""

from collections.abc import Callable
from functools import partial
from typing import Any

from rope_any._arrays import Array, X, library, signature
from rope_any._caches import PLANS, keep_plan
from rope_any._formula import rotate_component
from rope_any._fused_rotation import plan_fused
from rope_any._pairing import split
from rope_any._rotation import Plan, Rotation, Table, plan_parts, rotate_whole


def plan_rotation(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Return the plan for checked arrays of one dtype that are rotated by one table."""
    lib = rotation.lib
    if lib.is_partitioned(xs[0]):  # Dask's chunks, torch's shards
        return _each(partial(_rotate_partitions, rotation))
    if lib.records_gradients(*xs, *table):
        return _each(partial(_rotate_with_gradient, rotation))
    eager = _each(partial(rotate_whole, rotation))  # any array, also traced or transformed
    if lib.supports_out(*xs, *table, *outs):
        from rope_any._host_rotation import plan_on_host  # it imports NumPy

        eager = plan_parts(rotation, xs, table, outs, make=plan_on_host)
    if not rotation.fused or lib.is_traced(xs[0]):
        return eager
    return plan_fused(rotation, xs, table, outs, eager=eager)


def _each(rotate: Callable[[Any, Table, Any], Any]) -> Plan:
    """Return the plan that rotates array after array by a function of (x, table, out)."""
    return lambda xs, table, outs: tuple([rotate(x, table, out) for x, out in zip(xs, outs, strict=True)])


def rotate_planned(rotation: Rotation, x: X, cos: Array, sin: Array, out: X | None = None) -> X:
    """Return a checked array rotated by a table, in `out` if given, by the cached plan for such arrays."""
    xs, table, outs = (x,), Table(cos, sin), (out,)
    key = signature((x, cos, sin, out), rotation)
    plan = None if key is None else PLANS.get(key)
    if plan is None:
        plan = plan_rotation(rotation, xs, table, outs)
        keep_plan(key, plan)
    return plan(xs, table, outs)[0]  # type: ignore[no-any-return]  # as x


# --- chunked and sharded arrays ---------------------------------------------------------------------------------------


def _rotate_partitions(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate a Dask array chunk by chunk or a DTensor shard by shard; each part is rotated in its own way."""
    lib, *options = rotation  # Dask hashes and pickles what it calls: without the record of the library that is fast
    map_partitions: Any = lib.map_partitions
    rotated: X = map_partitions(partial(_rotate_partition, options=tuple(options)), x, *table, out=out)
    return rotated


def _rotate_partition(x: Array, cos: Array, sin: Array, *, options: tuple[Any, ...], out: Array | None = None) -> Array:
    """Return one chunk or shard x rotated, in `out` if given; `options` are a `Rotation`'s fields after its library."""
    return rotate_planned(Rotation(library(x=x), *options), x, cos, sin, out)  # a Dask chunk may be NumPy's


# --- gradients --------------------------------------------------------------------------------------------------------


def _rotate_with_gradient(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate a tensor with gradient; autograd saves the table, and x if the table needs a gradient. `out` is unused."""
    del out  # it is None: `require_rotatable` refuses one
    with_gradient: Any = rotation.lib.with_gradient
    rotated: X = with_gradient(partial(rotate_planned, rotation), partial(_vjp, rotation), x, *table)
    return rotated


def _vjp(
    rotation: Rotation, g: Array, saved: tuple[Array | None, Array, Array], needs_gradient: tuple[bool, ...]
) -> tuple[Array | None, ...]:
    """Return the gradients of `saved` x, cos and sin, None if not needed, given g, the gradient of the rotated x."""
    (x, cos, sin), lib = saved, rotation.lib
    # of x: Rᵀ g, the rotation backwards
    of_x = None
    if needs_gradient[0]:
        of_x = rotate_planned(rotation._replace(inverse=not rotation.inverse), g, cos, sin)
    if x is None:  # only its own gradient is needed
        return of_x, None, None
    # of c + s·i: g·conj(x), each pair (p, q) of g rotated backwards by the pair (a, b) of x
    dtype, pairs = rotation.dtype(x), cos.shape[-1]
    both = (member for part in (g, x) for member in split(rotation.part(part, pairs), rotation.pairing))
    p, q, a, b = (lib.cast(member, dtype) for member in both)
    of_cos, of_sin = rotate_component(p, q, a, -b), rotate_component(q, p, a, b)
    if rotation.blocks > 1:
        of_cos, of_sin = (lib.reshape_last_axes(part, 2, pairs) for part in (of_cos, of_sin))
    of_cos = lib.unbroadcast(of_cos, cos) if needs_gradient[1] else None
    of_sin = lib.unbroadcast(of_sin, sin) if needs_gradient[2] else None
    return of_x, of_cos, -of_sin if rotation.inverse and of_sin is not None else of_sin
