"""
Arrays made of parts that are arrays of their own: the chunks of a lazy array, the shards of several processes.

A part is turned where it is, by the rows of the table that are for it, and nothing is computed or sent for that.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from rope_any import _array
from rope_any._array import Array


def is_parted(x: Array) -> bool:
    """Whether `x` is made of parts, arrays of their own: chunks of a lazy array, or shards of several processes."""
    return _array.is_sharded(x) or _array.library(x) == "dask"


def map_parts(function: Callable[..., Array], x: Array, *tables: Array, out: Array | None = None) -> Array:
    """
    Return ``function(x, *tables, out=out)``, part by part, for an x made of parts; nothing is computed or sent for it.

    The function keeps the shape and the dtype of x; the tables broadcast against all axes of x but its last,
    which it sees in one piece. Parts come out as they went in, or are written into those of `out` (of shards alone).
    """
    return _map_shards(function, x, *tables, out=out) if _array.is_sharded(x) else _map_chunks(function, x, *tables)


def _map_chunks(function: Callable[..., Array], x: Array, *tables: Array) -> Array:
    import dask.array as da

    feature, pair = x.ndim - 1, x.ndim  # names of axes: those of x by number, and one that the tables end in
    axes = tuple(range(x.ndim))
    arguments: list[Any] = [x.rechunk({feature: -1}), axes]
    for table in tables:
        whole = {axis: -1 for axis, n in enumerate(table.shape) if n == 1 or axis == table.ndim - 1}  # 1 may be 1 + 0
        arguments += [table.rechunk(whole), (*axes[x.ndim - table.ndim : feature], pair)]
    turned = da.blockwise(  # type: ignore[no-untyped-call]  # Dask is typed in part
        function,
        axes,
        *arguments,
        dtype=x.dtype,
        meta=x._meta,  # noqa: SLF001
        concatenate=True,
    )
    return turned.rechunk(x.chunks)


def layout(x: Array) -> Any:
    """Return how a sharded tensor is spread over processes, to be compared; None for other arrays."""
    return (x.device_mesh, x.placements) if _array.is_sharded(x) else None


def held(x: Array) -> Array:
    """Return what this process holds of a sharded tensor; other arrays as they are."""
    return x.to_local() if _array.is_sharded(x) else x


def _map_shards(function: Callable[..., Array], x: Array, *tables: Array, out: Array | None) -> Array:
    from torch.distributed.tensor import Partial

    require_whole("x", x, axis=x.ndim - 1, of="its features, which turn in pairs")
    _require_own_cut("x", x)
    local = []
    for table in tables:
        part = laid_out("a table", table, range(x.ndim - table.ndim, x.ndim), like=x)
        # of a table that several shards are turned by, each process has a part of the sum that is its gradient
        both = zip(x.placements, part.placements, strict=True)
        summed = [Partial() if of_x.is_shard() and own.is_replicate() else own for of_x, own in both]
        local.append(part.to_local(grad_placements=summed))
    if out is None:
        return _from_shards(function(x.to_local(), *local), x.shape, like=x)
    function(x.to_local(), *local, out=out.to_local())
    return out


def require_whole(name: str, x: Array, /, *, axis: int, of: str) -> None:
    """Say that a sharded tensor must be in one piece along an axis, called `of`, and have no sums to be made."""
    if not _array.is_sharded(x):
        return
    if not all(placed.is_replicate() or placed.is_shard() for placed in x.placements):
        msg = f"{name} must be replicated or sharded in plain pieces; got placements {x.placements} (redistribute it)"
        raise ValueError(msg)
    if any(placed.is_shard(axis) for placed in x.placements):
        msg = f"{name} must not be sharded along {of}; got placements {x.placements} (redistribute it)"
        raise ValueError(msg)


def _require_own_cut(name: str, x: Array) -> None:
    """Say that a sharded tensor must be cut as torch cuts, or nobody knows which tokens a process holds."""
    wanted, at = list(x.shape), x.device_mesh.get_coordinate()
    for placed, shards, shard in zip(x.placements, x.device_mesh.shape, at or (), strict=False):
        if placed.is_shard():
            n = wanted[placed.dim]
            each = -(-n // shards)
            wanted[placed.dim] = max(min(each, n - shard * each), 0)
    if at and tuple(x.to_local().shape) != tuple(wanted):
        msg = (
            f"{name} must be cut as torch's distribute_tensor cuts it, into a shard of shape {tuple(wanted)} here; "
            f"got {tuple(x.to_local().shape)}"
        )
        raise ValueError(msg)


def replicated(a: Array, /, *, like: Array) -> Array:
    """Return `a`, which every process has whole, beside a sharded tensor `like`; else as it is."""
    if _array.is_sharded(a) or not _array.is_sharded(like):
        return a
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(a, like.device_mesh, [Replicate()] * like.device_mesh.ndim, run_check=False)


def laid_out(name: str, a: Array, axes: Sequence[int], /, *, like: Array) -> Array:
    """
    Return `a` shard by shard, where `like` is sharded, and else as it is.

    Its axes run along those `axes` of `like`; an axis of another length, 1, and one that `like` has whole, it has
    whole. What every process has whole is cut; what others would have to send is refused, by its name.
    """
    if not _array.is_sharded(like):
        return a
    from torch.distributed.tensor import Replicate, Shard

    along = {axis: i for i, axis in enumerate(axes) if a.shape[i] == like.shape[axis] and axis != like.ndim - 1}
    wanted = tuple(
        Shard(along[placed.dim]) if placed.is_shard() and placed.dim in along else Replicate()
        for placed in like.placements
    )
    a = replicated(a, like=like)
    _require_own_cut(name, a)
    for i, (own, want) in enumerate(zip(a.placements, wanted, strict=True)):
        # a piece of a piece is not there to be cut where an axis of the mesh behind this one has cut already
        if own != want and not (own.is_replicate() and want not in a.placements[i + 1 :]):
            msg = (
                f"{name} must be replicated or sharded as what it turns, {wanted}, for nothing is sent; "
                f"got placements {a.placements} (redistribute it)"
            )
            raise ValueError(msg)
    return a if a.placements == wanted else a.redistribute(placements=wanted)


def map_shards(function: Callable[[Array], tuple[Array, ...]], x: Array) -> tuple[Array, ...]:
    """Return arrays made shard by shard of a sharded x: of its leading axes, and a last one that is in one piece."""
    parts = function(x.to_local())
    return tuple(_from_shards(part, (*x.shape[: part.ndim - 1], part.shape[-1]), like=x) for part in parts)


def _from_shards(local: Array, shape: Sequence[int], *, like: Array) -> Array:
    import torch
    from torch.distributed.tensor import DTensor

    if local.shape == like.to_local().shape and local.stride() == like.to_local().stride():
        steps = like.stride()  # in the order in memory of what it was made of
    else:
        local, steps = local.contiguous(), tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return DTensor.from_local(
        local, like.device_mesh, like.placements, run_check=False, shape=torch.Size(shape), stride=steps
    )


def last(name: str, a: Array, count: int, /, *, axis: int) -> Array:
    """Return the last `count` elements of `a` along an axis, counted from the back, which must be in one piece."""
    require_whole(name, a, axis=a.ndim + axis, of="the tokens where q is shorter than k")
    return a[(..., slice(a.shape[axis] - count, None), *[slice(None)] * (-1 - axis))]
