"""
The libraries, and functions that prepare a case for timing.

asv imports the benchmark modules to list their cases. `setup` calls `load`, which imports a library: so the list is the
same everywhere, and a process imports only its own library and NumPy.
"""

import ctypes
import inspect
import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any


def _identity(value):
    """Return the value."""
    return value


def _to_numpy(array):
    """Return an array as NumPy's."""
    import numpy as np

    return np.asarray(array)


def _cast(x, dtype):
    """Convert a NumPy array to a dtype by name, which may be ml_dtypes'."""
    if dtype == "bfloat16":
        with skipping_without("bfloat16 of NumPy"):
            import ml_dtypes  # noqa: F401  # registers the dtype in NumPy
    return x.astype(dtype)


@dataclass(frozen=True)
class Library:
    """Operations of a library in benchmarks; the defaults are for eager CPU libraries."""

    array: Any
    """(NumPy array, name of a dtype) -> an array of this library, on its device."""
    wait: Any = _identity
    """Result -> returns when it has been computed."""
    compiled: Any = _identity
    """Function -> the function as users of this library run it."""
    to_numpy: Any = _to_numpy
    """Array -> NumPy array."""
    vjp: Any = None
    """(function, x, g) -> function(x) and its vjp with g."""

    def prepared(self, function, *arrays):
        """
        Return a call of `function` that waits for its result.

        One untimed call is made first: it compiles and allocates memory.
        """
        compiled = self.compiled(function)

        def call():
            """Run the function, and wait for its result."""
            self.wait(compiled(*arrays))

        call()
        return call

    def prepared_fused(self, function, *arrays):
        """Return the same for a function with ``fused=True``, not compiled here; skip the case if it falls back."""
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "fused=True falls back", RuntimeWarning)
            try:
                return replace(self, compiled=_identity).prepared(function, *arrays)
            except RuntimeWarning as warning:
                raise NotImplementedError(str(warning)) from warning


_CUDA = {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}


def _require_driver(library):
    """Skip a case if there is no GPU driver, before a large library is imported."""
    try:
        ctypes.CDLL(_CUDA[sys.platform])
    except (KeyError, OSError) as error:
        msg = f"{library} finds no CUDA device: no driver is installed"
        raise NotImplementedError(msg) from error


def _require_device(available, library):
    """Skip a case if the library finds no CUDA device."""
    if not available:
        msg = f"{library} finds no CUDA device"
        raise NotImplementedError(msg)


def require_option(function, name):
    """Skip a case if the function has no such option in this revision."""
    if name not in inspect.signature(function).parameters:
        msg = f"{function.__name__} has no {name}= in this revision"
        raise NotImplementedError(msg)


def _require_not_bfloat16(dtype, library):
    """Skip a case in bfloat16, which the library lacks."""
    if dtype == "bfloat16":
        msg = f"{library} has no bfloat16"
        raise NotImplementedError(msg)


def _numpy():
    """Return the operations of NumPy."""
    return Library(_cast)


def _torch(device):
    """Return the operations of torch on a device."""
    if device == "cuda":
        _require_driver("torch")
    import torch

    def array(x, dtype):
        """Return a tensor on the device."""
        return torch.asarray(x, dtype=getattr(torch, dtype), device=device)

    def vjp(function, x, g):
        """Return the function's result for x, and its vjp with g."""
        x = x.detach().requires_grad_()
        y = function(x)
        return y, *torch.autograd.grad(y, x, g)

    library = Library(array, to_numpy=lambda x: x.cpu().double().numpy(), vjp=vjp)
    if device == "cpu":
        return library
    _require_device(torch.cuda.is_available(), "torch")
    return replace(library, wait=lambda _: torch.cuda.synchronize())


def _cupy():
    """Return the operations of CuPy."""
    _require_driver("CuPy")
    import cupy

    _require_device(cupy.cuda.is_available(), "CuPy")

    def array(x, dtype):
        """Return an array on the GPU."""
        _require_not_bfloat16(dtype, "CuPy")
        return cupy.asarray(x, dtype)

    return Library(array, wait=lambda _: cupy.cuda.get_current_stream().synchronize(), to_numpy=cupy.asnumpy)


def _jax():
    """Return the operations of JAX."""
    import jax

    def vjp(function, x, g):
        """Return the function's result for x, and its vjp with g."""
        y, pull = jax.vjp(function, x)
        return y, *pull(g)  # both, so that the compiler keeps the forward pass

    return Library(jax.numpy.asarray, wait=jax.block_until_ready, compiled=jax.jit, vjp=vjp)


def _dask():
    """Return the operations of Dask."""
    import dask
    import dask.array as da

    def array(x, dtype):
        """Return an array in chunks of eight heads."""
        chunks = (1, 8, -1, -1)[-x.ndim :]  # eight heads; tables and positions in one chunk
        return da.from_array(_cast(x, dtype), chunks=chunks)

    return Library(array, wait=dask.compute)


def _mlx():
    """Return the operations of MLX."""
    import mlx.core as mx
    import numpy as np

    def array(x, dtype):
        """Return an array of MLX."""
        return mx.array(x).astype(getattr(mx, dtype))

    return Library(array, wait=mx.eval, to_numpy=lambda x: np.asarray(x.astype(mx.float32)))


def _array_api_strict():
    """Return the operations of array-api-strict."""
    import array_api_strict as xp

    def array(x, dtype):
        """Return an array of array-api-strict."""
        _require_not_bfloat16(dtype, "array-api-strict")
        return xp.asarray(x, dtype=getattr(xp, dtype))

    return Library(array)


_LOADERS = {
    "numpy": _numpy,
    "torch": partial(_torch, "cpu"),
    "torch-cuda": partial(_torch, "cuda"),
    "cupy": _cupy,
    "jax": _jax,
    "dask": _dask,
    "mlx": _mlx,
    "array-api-strict": _array_api_strict,
}
LIBRARIES = list(_LOADERS)
"""The first parameter of the benchmarks, whether installed or not."""

FAST = [name for name in LIBRARIES if name != "array-api-strict"]
"""Those that are optimised for speed; array-api-strict is not."""

WRITABLE = [name for name in FAST if name not in ("jax", "dask")]
"""Those with arrays that can be written."""

IMMEDIATE = [name for name in FAST if name not in ("jax", "dask")]
"""Those that run functions without compiling them, so that an int argument may change at each call."""

FUSED = [name for name in FAST if name != "dask"]
"""Those with a compiler, or with an optional one."""

SCHEDULES = ["eager", "fused"]
"""Without a compiler, and with ``fused=True``."""

DIFFERENTIABLE = ["torch", "torch-cuda", "jax"]
"""Those with gradients."""


def load(name):
    """Import a library; if it or its device is missing, skip the case with the reason."""
    with skipping_without(name):
        return _LOADERS[name]()


def scheduled(library, schedule, function):
    """Return (method of Library that prepares a call, options of the call) for a schedule, eager or fused."""
    if schedule == "eager":
        return library.prepared, {}
    require_option(function, "fused")
    return library.prepared_fused, {"fused": True}


@contextmanager
def skipping_without(name):
    """Skip the case in asv's `setup` if an import here fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        msg = f"{name} is not installed: {error}"
        raise NotImplementedError(msg) from error


def once(setup):
    """
    Run `setup` once in a process.

    asv repeats it before every timed call, which would compile again and evict the timed data from the caches.
    """

    @wraps(setup)
    def guarded(self, *case):
        """Call `setup` for the first time only."""
        if not hasattr(self, "case"):
            setup(self, *case)
            self.case = case

    return guarded
