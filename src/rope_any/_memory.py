"""Where arrays lie in memory: whether a result may be written into one beside, or over, those it is made of."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import array_api_compat as compat

from rope_any import _array, _parts
from rope_any._array import Array

if TYPE_CHECKING:
    import numpy as np


def require_writable(name: str, x: Array, /, *, onto: Array, onto_name: str, apart: dict[str, Array]) -> None:
    """
    Say that `name` cannot take a result unless `x` can.

    Its elements must be assignable and at addresses of their own; it must be `onto` itself (the same elements
    at the same addresses) or not overlap it, and must not overlap the arrays of `apart`. Of sharded tensors that is
    said of what this process holds.
    """
    if _parts.layout(x) != _parts.layout(onto):
        given, wanted = (a.placements if _array.is_sharded(a) else "a plain array" for a in (x, onto))
        msg = f"{name} must be sharded as {onto_name} is, {wanted}; got {given}"
        raise ValueError(msg)
    if _array.is_sharded(x):
        x, onto, apart = x.to_local(), _parts.held(onto), {other: _parts.held(array) for other, array in apart.items()}
    if not _array.is_torch(x) and (compat.is_lazy_array(x) or not compat.is_writeable_array(x)):
        which = "is read-only" if _array.library(x) == "numpy" else f"{_array.library(x)} cannot write"
        msg = f"{name} must be an array that can be written; got one that {which}"
        raise ValueError(msg)
    if _plainly_apart(x, onto, *apart.values()):
        return
    target = _memory(x)
    if target is None:
        return
    if _folds(target):
        msg = f"{name} must have an address for each element; got a broadcast or self-overlapping view"
        raise ValueError(msg)
    source = _memory(onto)
    if source is not None and not _identical(target, source) and _overlap(target, source):
        msg = f"{name} must be {onto_name} itself or not overlap it; got a view that overlaps it in part"
        raise ValueError(msg)
    for other, array in apart.items():
        if (source := _memory(array)) is not None and _overlap(target, source):
            msg = f"{name} must not overlap {other}; got arrays that share memory"
            raise ValueError(msg)


def _plainly_apart(x: Array, onto: Array, *apart: Array) -> bool:
    """Whether arrays are dense, and `x` is `onto` or beside it and beside those of `apart`: the most usual case."""
    here, there, *others = map(_span, (x, onto, *apart))
    if here is None or there is None:
        return False
    start, end = here
    beside = (other is not None and (other[1] <= start or end <= other[0]) for other in others)
    return (here == there or there[1] <= start or end <= there[0]) and all(beside)


def _span(x: Array) -> tuple[int, int] | None:
    """Return the first address of a dense array, and the one behind it; None for others."""
    if _array.is_ndarray(x):
        start = x.__array_interface__["data"][0]
        return (start, start + x.nbytes) if x.flags.c_contiguous else None
    if _array.is_torch(x) and not _array.is_compiling(x) and x.is_contiguous():
        try:
            start = x.data_ptr()
        except RuntimeError:
            return None
        return start, start + x.numel() * x.element_size()
    return None


def _memory(x: Array) -> "np.ndarray[Any, Any] | None":
    """Return a NumPy array at the addresses of `x`, never to be read; None where they cannot be known."""
    import numpy as np

    name = _array.library(x)
    if name == "numpy":
        return np.asarray(x)
    if name == "torch" and not _array.is_compiling(x):
        try:
            pointer = x.data_ptr()
        except RuntimeError:  # a wrapper of vmap, grad or a fake tensor
            return None
        size = x.element_size()
        strides = tuple(size * step for step in x.stride())
    elif name == "cupy":
        pointer, size, strides = x.data.ptr, x.itemsize, x.strides
    else:
        return None
    interface = {"version": 3, "data": (pointer, False), "typestr": f"|V{size}", "shape": tuple(x.shape)}
    return np.asarray(SimpleNamespace(__array_interface__={**interface, "strides": strides})) if pointer else None


def _identical(a: "np.ndarray[Any, Any]", b: "np.ndarray[Any, Any]") -> bool:
    """Whether two arrays have each element at the same address."""
    return a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.strides == b.strides and a.itemsize == b.itemsize


def _overlap(a: "np.ndarray[Any, Any]", b: "np.ndarray[Any, Any]") -> bool:
    """Whether two arrays share an address; yes where finding out would take too long."""
    import numpy as np

    try:
        return np.shares_memory(a, b, max_work=1_000_000)  # type: ignore[arg-type]  # any limit will do
    except np.exceptions.TooHardError:
        return True


def _folds(x: "np.ndarray[Any, Any]") -> bool:
    """Whether elements of `x` may share memory: its strides, from small to large, don't step over each other."""
    extent = x.itemsize
    for step, length in sorted(
        (abs(step), length) for step, length in zip(x.strides, x.shape, strict=True) if length > 1
    ):
        if step < extent:
            return x.size > 0
        extent = step * (length - 1) + extent
    return False
