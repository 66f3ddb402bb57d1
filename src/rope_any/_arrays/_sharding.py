"""
Operations on sharded torch tensors (DTensor). Other arrays pass through unchanged.

Each process rotates its own shard by the table rows of its tokens; no data is sent.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from rope_any._arrays._library import Array
from rope_any._checks import ArgumentValueError, Text


def is_sharded(x: Array) -> bool:
    """Whether `x` is a DTensor."""
    return type(x).__module__.startswith("torch.distributed") and hasattr(x, "placements")


def placements(x: Array) -> Any:
    """Return (device mesh, placements) of a sharded tensor, to compare; None for other arrays."""
    return (x.device_mesh, x.placements) if is_sharded(x) else None


def local(x: Array) -> Array:
    """Return this process's shard of a sharded tensor; other arrays unchanged."""
    return x.to_local() if is_sharded(x) else x


def map_shards(function: Callable[..., Array], x: Array, *tables: Array, out: Array | None = None) -> Array:
    """Return ``function(x, *tables, out=out)`` by shards, sharded as x; raise if features are, or tables get sent."""
    from torch.distributed.tensor import Partial

    require_unsharded("x", x, axis=x.ndim - 1, axis_text="its features, which are rotated in pairs")
    _require_default_shards("x", x)
    parts = []
    for table in tables:
        part = shard_like("a table", table, range(x.ndim - table.ndim, x.ndim), like=x)
        # if a replicated table rotates several shards, each process has a partial sum of the table's gradient
        both = zip(x.placements, part.placements, strict=True)
        summed = [Partial() if of_x.is_shard() and own.is_replicate() else own for of_x, own in both]
        parts.append(part.to_local(grad_placements=summed))
    if out is None:
        return _from_shards(function(x.to_local(), *parts), x.shape, like=x)
    function(x.to_local(), *parts, out=out.to_local())
    return out


def require_unsharded(name: str, x: Array, /, *, axis: int, axis_text: str) -> None:
    """Raise if a DTensor holds partial sums or is sharded along `axis` (not negative, in errors `axis_text`)."""
    if not is_sharded(x):
        return
    if not all(placed.is_replicate() or placed.is_shard() for placed in x.placements):
        raise _placement_error(name, "be replicated or sharded by `Shard`", x)
    if any(placed.is_shard(axis) for placed in x.placements):
        raise _placement_error(name, f"not be sharded along {axis_text}", x)


def _placement_error(name: str, wanted: str, x: Array) -> ArgumentValueError:
    """Return the error for a DTensor `x`, the argument `name`, whose placements are not as `wanted` says."""
    return ArgumentValueError(name, wanted, Text(f"placements {x.placements}"), "redistribute it")


def _require_default_shards(name: str, x: Array) -> None:
    """Raise unless this process's shard of the DTensor x has the shape that `distribute_tensor` would give it."""
    # If it has another, its tokens are unknown. The coordinate is None outside of the mesh.
    wanted, at = list(x.shape), x.device_mesh.get_coordinate()
    for placed, shards, shard in zip(x.placements, x.device_mesh.shape, at or (), strict=False):
        if placed.is_shard():
            n = wanted[placed.dim]
            each = -(-n // shards)
            wanted[placed.dim] = max(min(each, n - shard * each), 0)
    if at and tuple(x.to_local().shape) != tuple(wanted):
        cut = f"be sharded as torch's distribute_tensor does, into a shard of shape {tuple(wanted)} here"
        raise ArgumentValueError(name, cut, tuple(x.to_local().shape))


def replicated(a: Array, /, *, like: Array) -> Array:
    """Return `a`, equal in all processes, replicated on `like`'s mesh; unchanged if a DTensor, or `like` is none."""
    if is_sharded(a) or not is_sharded(like):
        return a
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(a, like.device_mesh, [Replicate()] * like.device_mesh.ndim, run_check=False)


def shard_like(name: str, a: Array, axes: Sequence[int], /, *, like: Array) -> Array:
    """
    Return `a`, called `name`, sharded as `like` is, or `a` itself if `like` is not sharded.

    Axis i of `a` is sharded like axis ``axes[i]`` of `like` if their lengths are equal and that is not the last one.
    A plain `a` must be the same in all processes. Raises if data would have to be sent between them, or unless shards
    are cut as by `distribute_tensor`.
    """
    if not is_sharded(like):
        return a
    from torch.distributed.tensor import Replicate, Shard

    along = {axis: i for i, axis in enumerate(axes) if a.shape[i] == like.shape[axis] and axis != like.ndim - 1}
    wanted = tuple(
        Shard(along[placed.dim]) if placed.is_shard() and placed.dim in along else Replicate()
        for placed in like.placements
    )
    a = replicated(a, like=like)
    _require_default_shards(name, a)
    for i, (own, want) in enumerate(zip(a.placements, wanted, strict=True)):
        # a shard that a later mesh axis has cut cannot be cut by this one without communication
        if own != want and not (own.is_replicate() and want not in a.placements[i + 1 :]):
            what = f"be replicated or sharded as the array that it rotates, {wanted}, because nothing is sent"
            raise _placement_error(name, what, a)
    return a if a.placements == wanted else a.redistribute(placements=wanted)


def tables_by_shard(function: Callable[[Array], tuple[Array, ...]], x: Array) -> tuple[Array, ...]:
    """Return the arrays of ``function(own shard of x)`` as DTensors: sharded as x is, leading axes as long as in x."""
    parts = function(x.to_local())
    return tuple(_from_shards(part, (*x.shape[: part.ndim - 1], part.shape[-1]), like=x) for part in parts)


def _from_shards(shard: Array, shape: Sequence[int], *, like: Array) -> Array:
    """Return the DTensor of the global `shape`, sharded as `like` is, whose shard in this process is `shard`."""
    import torch
    from torch.distributed.tensor import DTensor

    if shard.shape == like.to_local().shape and shard.stride() == like.to_local().stride():
        steps = like.stride()  # the memory order of `like`
    else:
        shard, steps = shard.contiguous(), tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return DTensor.from_local(
        shard, like.device_mesh, like.placements, run_check=False, shape=torch.Size(shape), stride=steps
    )
