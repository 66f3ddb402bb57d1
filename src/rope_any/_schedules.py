"""Which way to rotate: part by part, with a gradient, compiled, in the memory of a CPU, or by `rotate_pairs` itself."""

from functools import partial
from typing import Any

from rope_any._arrays import Array, State, X, library, signature
from rope_any._arrays._compilers import warn_fallback
from rope_any._caches import PLANS, keep_plan
from rope_any._formula import rotate_component
from rope_any._fused_rotation import plan_fused
from rope_any._pairing import split
from rope_any._rotation import Plan, Rotation, Table, one_by_one, plan_parts, rotate_whole


def plan_rotation(rotation: Rotation, xs: tuple[Array, ...], table: Table, outs: tuple[Array | None, ...]) -> Plan:
    """Choose the way to rotate checked arrays of one dtype by one table; return its plan."""
    lib = rotation.lib
    state = lib.state(*xs, *table, *outs)
    if state is State.PARTITIONED:  # Dask's chunks, torch's shards
        return one_by_one(partial(_rotate_partitions, rotation))
    if state is State.RECORDED:
        return _plan_gradient(rotation, writes=outs[0] is not None)
    if rotation.fused and state is not State.TRACED:
        made = plan_fused(rotation, xs, table, outs, on_host=state is State.HOST)
        if not isinstance(made, str):
            return made
        warn_fallback(made)
    if state is State.HOST:
        from rope_any._host_rotation import plan_on_host  # it imports NumPy

        return plan_parts(rotation, xs, table, outs, make=plan_on_host)
    return one_by_one(partial(rotate_whole, rotation))  # any array, also traced or transformed


def rotate_planned(
    rotation: Rotation, xs: tuple[X, ...], table: Any, outs: tuple[X | None, ...] | None = None
) -> tuple[X, ...]:
    """Return checked arrays rotated by one table, in `outs` if given, by the cached plan for such arrays."""
    table, outs = Table(*table), (None,) * len(xs) if outs is None else outs
    key = signature((*xs, *table, *outs), rotation)
    plan: Plan = (key and PLANS.get(key)) or keep_plan(key, plan_rotation(rotation, xs, table, outs))
    return plan(xs, table, outs)


# --- chunked and sharded arrays ---------------------------------------------------------------------------------------


def _rotate_partitions(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate a Dask array chunk by chunk or a DTensor shard by shard; each part is rotated in its own way."""
    nowhere: Any = None  # Dask hashes and pickles what it calls: without the record of the library that is fast
    map_partitions: Any = rotation.lib.map_partitions
    rotated: X = map_partitions(partial(_rotate_partition, rotation._replace(lib=nowhere)), x, *table, out=out)
    return rotated


def _rotate_partition(rotation: Rotation, x: Array, cos: Array, sin: Array, *, out: Array | None = None) -> Array:
    """Return one chunk or shard x rotated, in `out` if given; the `rotation` gets the library of the chunk."""
    return rotate_planned(rotation._replace(lib=library(x=x)), (x,), (cos, sin), (out,))[0]


# --- gradients --------------------------------------------------------------------------------------------------------


def _plan_gradient(rotation: Rotation, *, writes: bool) -> Plan:
    """Return the plan for tensors whose gradients are recorded; autograd saves the table, and xs if that has some."""
    gradients: Any = rotation.lib.gradients
    forward, vjp = partial(rotate_planned, rotation), partial(_vjp, rotation)
    if not writes:
        return lambda xs, table, _: gradients.with_vjp(forward, vjp, *xs, *table)
    # in place, as `plan_outs` refuses other outs; one by one, as autograd updates the history of one view in a call
    in_place = lambda xs, table: forward(xs, table, xs)  # noqa: E731
    return one_by_one(lambda x, table, _: gradients.with_vjp(in_place, vjp, x, *table)[0])


def _vjp(
    rotation: Rotation,
    gs: tuple[Array | None, ...],
    xs: tuple[Array, ...],
    table: tuple[Array, Array],
    needed: tuple[bool, ...],
) -> tuple[Array | None, ...]:
    """Return the gradients of each x, cos and sin, None if not needed, given those of the rotated xs (None for 0)."""
    *needs_x, needs_cos, needs_sin = needed
    # of x: Rᵀ g, the rotation backwards
    used = tuple([g for g, needs in zip(gs, needs_x, strict=True) if needs and g is not None])
    back = iter(rotate_planned(rotation._replace(inverse=not rotation.inverse), used, table) if used else ())
    of_xs = [next(back) if needs and g is not None else None for g, needs in zip(gs, needs_x, strict=True)]
    if not xs:  # only their own gradients are needed
        return *of_xs, None, None
    of_cos, of_sin = None, None
    for g, x in zip(gs, xs, strict=True):
        if g is not None:
            c, s = _gradient_of_table(rotation, g, x, table)
            of_cos = None if not needs_cos else c if of_cos is None else of_cos + c
            of_sin = None if not needs_sin else s if of_sin is None else of_sin + s
    return *of_xs, of_cos, of_sin


def _gradient_of_table(rotation: Rotation, g: Array, x: Array, table: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the gradients of cos and sin, given that of x rotated, g."""
    # of c + s·i: g·conj(x), each pair (p, q) of g rotated backwards by the pair (a, b) of x
    (cos, sin), lib, dtype = table, rotation.lib, rotation.dtype(x)
    pairs = cos.shape[-1]
    both = (
        member
        for part, pairing in zip((x, g), rotation.orders, strict=True)
        for member in split(rotation.part(part, pairs), pairing)
    )
    a, b, p, q = (lib.cast(member, dtype) for member in both)
    of_table = [rotate_component(p, q, a, -b), rotate_component(q, p, a, b)]
    if rotation.blocks > 1:
        of_table = [lib.reshape_last_axes(part, 2, pairs) for part in of_table]
    of_cos, of_sin = (lib.unbroadcast(of, part) for of, part in zip(of_table, (cos, sin), strict=True))
    return of_cos, -of_sin if rotation.inverse else of_sin
