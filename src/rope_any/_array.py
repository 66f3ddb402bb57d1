"""
What an array can do: its library, its device, its dtypes, its schedule.

Libraries are named here and in the few rooms that docs/design.md lists: all other code asks for a capability.
"""

import math
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeGuard, TypeVar

import array_api_compat as compat

Array: TypeAlias = Any
"""An array of any library that speaks the Python array API."""

X = TypeVar("X", bound=Any)
"""An array whose type the result shares."""

FLOATING = ("float16", "bfloat16", "float32", "float64")


def namespace(**arrays: Array) -> Any:
    """
    Return the one array-API namespace of the named arrays, which must be on one device.

    Raises
    ------
    TypeError
        If one is no array, or they come from several libraries.
    ValueError
        If they lie on several devices, or not where their library makes new arrays.
    """
    if (known := _namespace_at_sight(*arrays.values())) is not None:
        return known
    xp = _common_namespace(arrays)
    first, place = "", None
    for name, array in arrays.items():
        here = _place(array)
        if place is None:
            first, place = name, here
        elif here is not None and here != place:
            msg = f"{first} and {name} must be on one device; got {_shown(place)} and {_shown(here)}"
            raise ValueError(msg)
    if library(arrays[first]) == "cupy":
        _require_current(first, place)
    meshes = {name: array.device_mesh for name, array in arrays.items() if is_sharded(array)}
    for name, mesh in meshes.items():
        if mesh != (wanted := next(iter(meshes.values()))):
            msg = f"{next(iter(meshes))} and {name} must be on one device mesh; got {wanted} and {mesh}"
            raise ValueError(msg)
    return xp


def _namespace_at_sight(*arrays: Array) -> Any:
    """Return the namespace of arrays that are plain and in one place, as most are; else None."""
    kind = type(arrays[0])
    for x in arrays:
        if type(x) is not kind:
            return None
    if is_ndarray(arrays[0]):
        import array_api_compat.numpy

        return array_api_compat.numpy
    if (kind.__module__, kind.__name__) != ("torch", "Tensor"):
        return None
    import torch

    device, strided = arrays[0].device, torch.strided
    for x in arrays:
        if x.layout != strided or x.is_nested or x.device != device:
            return None
    import array_api_compat.torch

    return array_api_compat.torch


def is_array(x: object) -> TypeGuard[Array]:
    """Whether `x` is an array (NumPy's scalars are numbers here, not arrays)."""
    if isinstance(x, int | float | str | range | tuple | list | None):
        return False  # known at sight, and without a word to torch.compile
    return is_ndarray(x) or is_torch(x) or (compat.is_array_api_obj(x) and not _is_numpy_scalar(x))


def require_array(name: str, x: object) -> None:
    """Say that `name` must be an array unless `x` is one that keeps its meaning in every operation."""
    if not is_array(x):
        msg = f"{name} must be an array (NumPy, CuPy, PyTorch, JAX, ...); got {type(x).__name__}"
        raise TypeError(msg)
    if _is_masked(x):
        msg = f"{name} must be a plain array; got {type(x).__name__}, whose mask would be lost"
        raise TypeError(msg)
    if is_torch(x) and (x.is_nested or str(x.layout) != "torch.strided"):
        msg = f"{name} must be a dense array; got a {'nested' if x.is_nested else x.layout} tensor"
        raise TypeError(msg)


def library(x: Array) -> str:
    """Return the name of the library that `x` comes from."""
    if is_torch(x):
        return "torch"
    if is_ndarray(x):
        return "numpy"
    for name, is_of in _LIBRARIES.items():
        if is_of(x):
            return name
    return type(x).__module__.partition(".")[0]


_LIBRARIES: dict[str, Callable[[object], bool]] = {
    "numpy": compat.is_numpy_array,
    "cupy": compat.is_cupy_array,
    "jax": compat.is_jax_array,
    "dask": compat.is_dask_array,
}


def creation(x: Array) -> dict[str, Any]:
    """Return the keywords that make a creation function put its array where `x` is."""
    name = library(x)
    if name == "jax":  # placed by itself, unless it was put on one device
        place = _place(x) or ()
        return {"device": next(iter(place))} if len(place) == 1 else {}
    # Dask places new arrays by itself, MLX has no `device`, NumPy has one.
    return {} if name in {"numpy", "dask", "mlx"} else {"device": x.device}


def dtype_name(dtype: Any) -> str:
    """Return ``"float32"`` for every library's way of naming it."""
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    if hasattr(dtype, "char"):
        return _numpy_name(dtype)
    return getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]


@cache
def _numpy_name(dtype: Any) -> str:
    """Return the name of a dtype of NumPy, which spells it out anew each time it is asked."""
    return str(dtype.name)


def floating_dtype(xp: Any, dtype: Any) -> Any:
    """Return the library's own dtype for one of the four, whoever's it is or by its name."""
    try:
        name = dtype if isinstance(dtype, str) else dtype_name(dtype)
    except (RecursionError, ValueError):  # nested too deeply, or an integer of thousands of digits
        name = ""
    if name in FLOATING and hasattr(xp, name):
        return getattr(xp, name)
    if name in FLOATING and (isinstance(dtype, type) or type(dtype).__module__.startswith("numpy")):
        return dtype  # NumPy's and ml_dtypes', for libraries that take them and don't name them
    got = name if 0 < len(name) <= 40 and name.isprintable() else type(dtype).__name__
    msg = f"dtype must be one of {', '.join(FLOATING)}, and one that the library has; got {got}"
    raise TypeError(msg)


def require_floating(name: str, x: Array) -> None:
    """Say that `name` must be a floating-point array unless it is."""
    if dtype_name(x.dtype) not in FLOATING:
        msg = f"{name} must be floating-point ({', '.join(FLOATING)}); got {dtype_name(x.dtype)}"
        raise TypeError(msg)


def is_integer(x: Array) -> bool:
    """Whether `x` holds integers."""
    return dtype_name(x.dtype).startswith(("int", "uint"))


def require_known(name: str, shape: tuple[int, ...]) -> None:
    """Say that `name` must have known lengths unless a shape has."""
    if any(isinstance(n, float) for n in shape):  # nan, as Dask has it
        msg = f"{name} must have known lengths; got shape {tuple(shape)} (compute_chunk_sizes() finds out)"
        raise ValueError(msg)


def require_integer(name: str, x: Array) -> None:
    """Say that `name` must hold integers unless it does."""
    if not is_integer(x):
        msg = f"{name} must be integers; got an array of {dtype_name(x.dtype)}"
        raise TypeError(msg)


def compute_dtype(xp: Any, x: Array) -> Any:
    """Return the dtype that `x` is turned in: float64 if it is float64, else float32."""
    return xp.float64 if dtype_name(x.dtype) == "float64" else xp.float32


def has_float64(xp: Any, x: Array) -> bool:
    """Whether float64 is there to compute with where `x` is (not on JAX without x64, MPS, MLX)."""
    name = library(x)
    if name == "mlx":  # has the dtype, and casts to float32 inside its cosine
        return False
    # JAX's devices are alike in this, and unknown under jit; Dask's arrays have none
    device = None if name in {"jax", "dask"} else x.device
    return "float64" in xp.__array_namespace_info__().dtypes(device=device, kind="real floating")


def has_float64_cosine(xp: Any, x: Array) -> bool:
    """Whether float64 comes with a cosine as exact (ndonnx has none: ONNX Runtime takes it in float32)."""
    return has_float64(xp, x) and library(x) != "ndonnx"


def has_fast_float64_cosine(x: Array) -> bool:
    """
    Whether float64 cosines are the fast way to float32 ones that are rounded once.

    They are on torch on a CPU, and where its compiler keeps them in registers (whose float32 cosines may be wrong by
    two units); NumPy's take twenty times as long as its float32 ones, and many a GPU has few units for them.
    """
    return is_torch(x) and (is_compiling(x) or x.device.type == "cpu")


def cast(xp: Any, x: Array, dtype: Any) -> Array:
    """Return `x` in `dtype`, itself if it has it."""
    return x if x.dtype == dtype else xp.astype(x, dtype)


def settle_cosines(x: Array) -> None:
    """
    Have torch on a CPU choose its cosines and sines once, in one thread.

    MKL chooses a kernel at the first call of each function, and where several threads make that call together one of
    them may be given the wrong one, whose float32 cosines err by 1.5e-4 (pytorch issue 188792).
    """
    if not is_torch(x) or is_compiling(x) or not x.is_cpu:
        return
    with _SETTLING:
        if not _SETTLED:
            worker = threading.Thread(target=_take_cosines)  # which no mode or tracer of this thread sees
            worker.start()
            worker.join()
            _SETTLED.append(True)


def _take_cosines() -> None:
    import torch

    one = torch.ones(1, device="cpu")
    for function in (torch.cos, torch.sin):
        for dtype in (torch.float32, torch.float64):
            function(one.to(dtype))


_SETTLING, _SETTLED = threading.Lock(), list[bool]()


def is_compiling(x: Array) -> bool:
    """Whether torch.compile, torch.export or ndonnx is tracing `x`, for code that may not let integers overflow."""
    if not is_torch(x):
        return library(x) == "ndonnx"
    import torch

    return torch.compiler.is_compiling()


def is_sharded(x: Array) -> bool:
    """Whether `x` is a tensor whose shards are held by several processes (torch's DTensor)."""
    return type(x).__module__.startswith("torch.distributed") and hasattr(x, "placements")


def are_plain_tensors(*tensors: Array) -> bool:
    """Whether tensors are torch's own, with memory, and nothing but gradients are recorded."""
    plain = _plain_types()
    return all(type(x) in plain and x.device.type != "meta" for x in tensors) and not _is_transformed(*tensors)


def is_fillable(x: Array, *others: Array | None) -> bool:
    """
    Whether a result like `x` may be written piece by piece, by operations that take ``out=``.

    So it is in the memory of a CPU, where nothing traces, transforms or records the arrays.
    """
    if is_torch(x):
        return not is_compiling(x) and _is_idle(x, *others)
    return library(x) == "numpy"


def _is_idle(*tensors: Array | None) -> bool:
    """Whether tensors lie in the memory of a CPU, and nothing traces, transforms or records them."""
    torch, plain = sys.modules["torch"], _plain_types()
    recording = torch.is_grad_enabled()
    for x in tensors:
        if x is not None and (type(x) not in plain or not x.is_cpu or (recording and x.requires_grad)):
            return False
    return not _is_transformed(*tensors)


def _plain_types() -> tuple[type, ...]:
    torch = sys.modules["torch"]
    return torch.Tensor, torch.nn.Parameter


def _is_transformed(*tensors: Array | None) -> bool:
    """Whether vmap, grad, jvp or a tracer is at work, on tensors or beside them."""
    torch = sys.modules["torch"]
    try:
        for x in tensors:
            if x is not None:
                x.data_ptr()
    except RuntimeError:  # a wrapper has no memory of its own
        return True
    dual = torch.autograd.forward_ad._current_level >= 0  # noqa: SLF001  # the only sign of forward mode
    return bool(dual or torch.jit.is_tracing() or torch._C._are_functorch_transforms_active())  # noqa: SLF001  # likewise


def is_recorded(*arrays: Array) -> bool:
    """Whether gradients through arrays are recorded, and nothing else is done to them."""
    if not is_torch(arrays[0]) or is_compiling(arrays[0]):
        return False
    torch, plain = sys.modules["torch"], _plain_types()
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in arrays)
    return wanted and all(type(x) in plain for x in arrays) and not _is_transformed(*arrays)


def count_at_or_below(xp: Any, bounds: Array, values: Array) -> Array:
    """Return for each value how many bounds, which ascend, are at or below it."""
    try:
        return xp.searchsorted(bounds, values, side="right")
    except (AttributeError, ValueError):  # older than 2023.12; array-api-strict's, where there are no 64-bit types
        return xp.sum(xp.astype(bounds <= values[:, None], values.dtype), axis=-1, dtype=values.dtype)


def running_sum(xp: Any, x: Array) -> Array:
    """Return the sums of integers so far along the last axis, in their own dtype."""
    if is_torch(x):  # by its own name: array-api-compat's makes torch.compile warn
        return x.cumsum(-1, dtype=x.dtype)
    return xp.cumulative_sum(x, axis=-1, dtype=x.dtype)


def folded(xp: Any, x: X, axes: int, /, *lengths: int) -> X:
    """Return `x` with its last axes, so many, made into axes of these lengths; those before may be of any length."""
    before = x.shape[: x.ndim - axes]
    if not any(n is None for n in before):
        return xp.reshape(x, (*before, *lengths))  # type: ignore[no-any-return]  # of any library
    import ndonnx
    from spox.opset.ai.onnx import v21 as onnx

    # In ONNX a length of 0 stands for the one that is there.
    shape = onnx.const([0] * len(before) + list(lengths))
    return ndonnx.asarray(onnx.reshape(x.unwrap_spox(), shape))  # type: ignore[return-value]  # x is of ndonnx


def concatenated(xp: Any, parts: list[Array]) -> Array:
    """Return parts of the features as one array."""
    if is_torch(parts[0]):
        import torch

        return torch.cat(parts, dim=-1)  # batched gradients know no other name of it
    return xp.concat(parts, axis=-1)


def summed_to(xp: Any, x: Array, like: Array) -> Array:
    """Return `x` summed over the axes along which `like` was broadcast to it, in the dtype of `like`."""
    before = x.ndim - like.ndim
    axes = (*range(before), *(before + axis for axis, n in enumerate(like.shape) if n == 1))
    return cast(xp, xp.reshape(xp.sum(x, axis=axes, keepdims=True), like.shape) if axes else x, like.dtype)


def are_few(*arrays: Array) -> bool:
    """Whether fillable arrays fit into a block each."""
    few = block_size(arrays[0])
    return all(math.prod(x.shape) <= few for x in arrays)


def halves_swapped(x: Array) -> Array:
    """Return the second half of the features of a fillable array, then the first, by what takes it the least time."""
    middle = x.shape[-1] // 2
    if is_torch(x):
        return x.roll(middle, -1)
    import numpy as np

    return np.concatenate((x[..., middle:], x[..., :middle]), axis=-1)


def module(x: Array) -> Any:
    """Return the library of a fillable array itself, whose operations take ``out=``."""
    return sys.modules["torch" if is_torch(x) else "numpy"]


def empty_like(x: Array) -> Array:
    """Return an array like one that can be written, with nothing in it yet; a fillable one in its order in memory."""
    if is_torch(x):
        import torch

        return torch.empty_like(x, requires_grad=False)
    if library(x) != "numpy":
        return compat.array_namespace(x).empty_like(x)
    import numpy as np

    return np.empty_like(x, subok=False)


def strides(x: Array) -> tuple[int, ...]:
    """Return the steps in memory along the axes of a fillable array."""
    return tuple(x.stride()) if is_torch(x) else tuple(x.strides)


def block_size(x: Array) -> int:
    """Return how many elements of a fillable array to turn at a time: what the caches of its cores hold."""
    if not is_torch(x):
        return 2**15
    import torch

    return 2**16 * min(torch.get_num_threads(), 8)  # of many cores, still a few MiB


def as_complex(x: Array) -> Array | None:
    """Return a fillable array's pairs of features as complex numbers, in the same memory; None if they can't be."""
    if dtype_name(x.dtype) not in {"float32", "float64"} or x.shape[-1] == 0:
        return None
    if is_torch(x):
        import torch

        placed = x.data_ptr() % (2 * x.element_size()) == 0  # torch counts on it, and NumPy does not
        if not placed or any(step % 2 for step in x.stride()[:-1]) or x.stride()[-1] != 1 or x.storage_offset() % 2:
            return None
        return torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    if x.strides[-1] != x.itemsize or not x.dtype.isnative:
        return None
    return x.view("complex64" if x.itemsize == 4 else "complex128")


def require_not_recording(name: str, *arrays: Array) -> None:
    """Say that `name` cannot be written into while gradients are recorded through the arrays."""
    if not all(is_torch(array) for array in arrays):
        return
    import torch

    if torch.is_grad_enabled() and any(array.requires_grad for array in arrays):
        msg = f"{name} must be left out while gradients are recorded (an array has requires_grad); use no_grad()"
        raise ValueError(msg)


def _common_namespace(arrays: dict[str, Array]) -> Any:
    for name, array in arrays.items():
        require_array(name, array)
    # torch first and by hand: array_namespace memoises in a way that torch.compile warns about at every call.
    if all(is_torch(array) for array in arrays.values()):
        import array_api_compat.torch

        return array_api_compat.torch
    try:
        return compat.array_namespace(*arrays.values())
    except Exception:  # noqa: BLE001  # of any kind: what looks like an array may raise what it likes
        found = ", ".join(f"{name} of {library(array)}" for name, array in arrays.items())
        msg = f"{' and '.join(arrays)} must come from one array library; got {found}"
        raise TypeError(msg) from None


# Importing this library imports neither NumPy nor torch: an object of their classes is there only if they are.
# Most are known by where their class is from, and without `sys.modules`, of which torch.compile would take a copy.
def is_ndarray(x: object) -> bool:
    """Whether `x` is an array of NumPy, and of none of its subclasses."""
    kind = type(x)
    return kind.__module__ == "numpy" and kind.__name__ == "ndarray"


def _is_numpy_scalar(x: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, numpy.generic)


def _is_masked(x: object) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, numpy.ma.MaskedArray)


def is_torch(x: object) -> bool:
    """Whether `x` is a tensor of torch, of its subclasses too."""
    kind = type(x)
    if kind.__module__ == "torch":
        import torch

        return isinstance(x, torch.Tensor)
    if kind.__module__ in {"numpy", "builtins"}:
        return False
    known = sys.modules.get("torch")
    return known is not None and isinstance(x, known.Tensor)


def _place(x: Array) -> Any:
    """Return where `x` has been put, to be compared, or None for an array that goes anywhere."""
    if library(x) == "jax":
        import jax

        placed = not isinstance(x, jax.core.Tracer) and x.committed
        return frozenset(x.devices()) if placed else None
    return getattr(x, "device", None)


def _require_current(name: str, place: Any) -> None:
    """Say that `name` must be on the current device, where CuPy puts all that is made, whatever it is made of."""
    if place != (current := type(place)()):
        msg = f"{name} must be on CuPy's current device, {current}; got {place} (see cupy.cuda.Device)"
        raise ValueError(msg)


def _shown(place: Any) -> str:
    return ", ".join(sorted(map(str, place))) if isinstance(place, frozenset) else str(place)
