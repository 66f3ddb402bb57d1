"""
Sharded tensors of torch (DTensor), whose shards are held by several processes. Other arrays pass unchanged.

A shard is rotated where it is, by the rows of the table that are for it; nothing is computed or sent for that.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from rope_any._arrays._library import Array
from rope_any._checks import ArgumentValueError, Text


def is_sharded(x: Array) -> bool:
    """Whether `x` is a tensor whose shards are held by several processes."""
    return hasattr(x, "placements") and type(x).__module__.startswith("torch.distributed")


def placements(x: Array) -> Any:
    """Return how a sharded tensor is spread over processes, to be compared; None for other arrays."""
    return (x.device_mesh, x.placements) if is_sharded(x) else None


def local(x: Array) -> Array:
    """Return what this process holds of a sharded tensor; other arrays as they are."""
    return x.to_local() if is_sharded(x) else x


def map_shards(function: Callable[..., Array], x: Array, *tables: Array, out: Array | None = None) -> Array:
    """
    Return ``function(x, *tables, out=out)`` shard by shard; nothing is computed or sent for it.

    The function keeps the shape and the dtype of x; the tables broadcast against all axes of x but its last. Shards
    come out as they went in, or are written into those of `out`.
    """
    from torch.distributed.tensor import Partial

    require_whole("x", x, axis=x.ndim - 1, of="its features, which turn in pairs")
    _require_default_shards("x", x)
    parts = []
    for table in tables:
        part = shard_like("a table", table, range(x.ndim - table.ndim, x.ndim), like=x)
        # of a table that several shards are turned by, each process has a part of the sum that is its gradient
        both = zip(x.placements, part.placements, strict=True)
        summed = [Partial() if of_x.is_shard() and own.is_replicate() else own for of_x, own in both]
        parts.append(part.to_local(grad_placements=summed))
    if out is None:
        return _from_shards(function(x.to_local(), *parts), x.shape, like=x)
    function(x.to_local(), *parts, out=out.to_local())
    return out


def require_whole(name: str, x: Array, /, *, axis: int, of: str) -> None:
    """Raise if a tensor is sharded along an axis, called `of`, or holds partial sums."""
    if not is_sharded(x):
        return
    if not all(placed.is_replicate() or placed.is_shard() for placed in x.placements):
        raise _badly_placed(name, "be replicated or sharded in plain pieces", x)
    if any(placed.is_shard(axis) for placed in x.placements):
        raise _badly_placed(name, f"not be sharded along {of}", x)


def _badly_placed(name: str, wanted: str, x: Array) -> ArgumentValueError:
    return ArgumentValueError(name, wanted, Text(f"placements {x.placements}"), "redistribute it")


def _require_default_shards(name: str, x: Array) -> None:
    """Raise unless the shard here has the shape that `distribute_tensor` gives it: else its tokens are not known."""
    wanted, at = list(x.shape), x.device_mesh.get_coordinate()
    for placed, shards, shard in zip(x.placements, x.device_mesh.shape, at or (), strict=False):
        if placed.is_shard():
            n = wanted[placed.dim]
            each = -(-n // shards)
            wanted[placed.dim] = max(min(each, n - shard * each), 0)
    if at and tuple(x.to_local().shape) != tuple(wanted):
        cut = f"be cut as torch's distribute_tensor cuts it, into a shard of shape {tuple(wanted)} here"
        raise ArgumentValueError(name, cut, tuple(x.to_local().shape))


def replicated(a: Array, /, *, like: Array) -> Array:
    """Return `a`, which every process has whole, as a replicated tensor if `like` is sharded; else `a`."""
    if is_sharded(a) or not is_sharded(like):
        return a
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(a, like.device_mesh, [Replicate()] * like.device_mesh.ndim, run_check=False)


def shard_like(name: str, a: Array, axes: Sequence[int], /, *, like: Array) -> Array:
    """
    Return `a`, called `name`, sharded as `like` is, or `a` itself if `like` is not sharded.

    Axis i of `a` runs along axis ``axes[i]`` of `like`. It is sharded with it if their lengths are equal and `like` is
    sharded there. A replicated `a` is cut; one that other processes would have to send parts of is refused.
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
        # a piece of a piece is not there to be cut where an axis of the mesh behind this one has cut already
        if own != want and not (own.is_replicate() and want not in a.placements[i + 1 :]):
            what = f"be replicated or sharded as what it turns, {wanted}, for nothing is sent"
            raise _badly_placed(name, what, a)
    return a if a.placements == wanted else a.redistribute(placements=wanted)


def tables_by_shard(function: Callable[[Array], tuple[Array, ...]], x: Array) -> tuple[Array, ...]:
    """Return ``function(shard of x)`` of each process as tensors with the leading axes of x, sharded as x is."""
    parts = function(x.to_local())
    return tuple(_from_shards(part, (*x.shape[: part.ndim - 1], part.shape[-1]), like=x) for part in parts)


def _from_shards(local: Array, shape: Sequence[int], *, like: Array) -> Array:
    """Return the tensor of this shape of which `local` is the shard here, sharded as `like` is."""
    import torch
    from torch.distributed.tensor import DTensor

    if local.shape == like.to_local().shape and local.stride() == like.to_local().stride():
        steps = like.stride()  # in the order in memory of what it was made of
    else:
        local, steps = local.contiguous(), tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return DTensor.from_local(
        local, like.device_mesh, like.placements, run_check=False, shape=torch.Size(shape), stride=steps
    )


def last_tokens(name: str, a: Array, count: int, /, *, axis: int) -> Array:
    """Return the last `count` elements of `a` along a negative axis, along which `a` must not be sharded."""
    require_whole(name, a, axis=a.ndim + axis, of="the tokens where q is shorter than k")
    return a[(..., slice(a.shape[axis] - count, None), *[slice(None)] * (-1 - axis))]
