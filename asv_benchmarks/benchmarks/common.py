"""
The libraries, and how a case is made ready for the clock.

asv imports the benchmark modules to list what is in them. Libraries are imported by `load`, which `setup`
calls: so the list is the same everywhere, and a process loads no library but its own and NumPy.
"""

import ctypes
import inspect
import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any


def _returned(value):
    return value


def _to_numpy(array):
    import numpy as np

    return np.asarray(array)


def _cast(x, dtype):
    """Return a NumPy array in a dtype of which NumPy may not know the name."""
    if dtype == "bfloat16":
        with skipping_without("bfloat16 of NumPy"):
            import ml_dtypes  # noqa: F401  # gives NumPy the name
    return x.astype(dtype)


@dataclass(frozen=True)
class Library:
    """What a benchmark asks of a library; the defaults suit one that computes at once, on the CPU."""

    array: Any
    """(NumPy array, name of a dtype) -> an array of this library, on its device."""
    wait: Any = _returned
    """Result -> returns when it has been computed."""
    compiled: Any = _returned
    """Function -> the function as users of this library run it."""
    to_numpy: Any = _to_numpy
    """Array -> NumPy array."""
    pulled_back: Any = None
    """(function, x, g) -> the value of function(x) and the gradient g of it pulled back to x."""

    def prepared(self, function, *arrays):
        """
        Return a call of `function` that ends when its result is there.

        One such call has been made, off the clock: it compiled, and took what memory it needs.
        """
        compiled = self.compiled(function)

        def call():
            self.wait(compiled(*arrays))

        call()
        return call

    def prepared_fused(self, function, *arrays):
        """Return such a call of a function that compiles by itself; what falls back to the eager one is skipped."""
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "fused=True falls back", RuntimeWarning)
            try:
                return replace(self, compiled=_returned).prepared(function, *arrays)
            except RuntimeWarning as warning:
                raise NotImplementedError(str(warning)) from warning


_CUDA = {"linux": "libcuda.so.1", "win32": "nvcuda.dll"}


def _require_driver(library):
    """Skip what would import a large library only to hear that there is no GPU."""
    try:
        ctypes.CDLL(_CUDA[sys.platform])
    except (KeyError, OSError) as error:
        msg = f"{library} finds no CUDA device: there is no driver"
        raise NotImplementedError(msg) from error


def _require_device(available, library):
    if not available:
        msg = f"{library} finds no CUDA device"
        raise NotImplementedError(msg)


def require_option(function, name):
    """Skip a case on revisions that cannot do it yet."""
    if name not in inspect.signature(function).parameters:
        msg = f"{function.__name__} has no {name}= in this revision"
        raise NotImplementedError(msg)


def _require_not_bfloat16(dtype, library):
    if dtype == "bfloat16":
        msg = f"{library} has no bfloat16"
        raise NotImplementedError(msg)


def _numpy():
    return Library(_cast)


def _torch(device):
    if device == "cuda":
        _require_driver("torch")
    import torch

    def array(x, dtype):
        return torch.asarray(x, dtype=getattr(torch, dtype), device=device)

    def pulled_back(function, x, g):
        x = x.detach().requires_grad_()
        y = function(x)
        return y, *torch.autograd.grad(y, x, g)

    library = Library(array, to_numpy=lambda x: x.cpu().double().numpy(), pulled_back=pulled_back)
    if device == "cpu":
        return library
    _require_device(torch.cuda.is_available(), "torch")
    return replace(library, wait=lambda _: torch.cuda.synchronize())


def _cupy():
    _require_driver("CuPy")
    import cupy

    _require_device(cupy.cuda.is_available(), "CuPy")

    def array(x, dtype):
        _require_not_bfloat16(dtype, "CuPy")
        return cupy.asarray(x, dtype)

    return Library(array, wait=lambda _: cupy.cuda.get_current_stream().synchronize(), to_numpy=cupy.asnumpy)


def _jax():
    import jax

    def pulled_back(function, x, g):
        y, pull = jax.vjp(function, x)
        return y, *pull(g)  # both: else the compiler would leave out the way forward

    return Library(jax.numpy.asarray, wait=jax.block_until_ready, compiled=jax.jit, pulled_back=pulled_back)


def _dask():
    import dask
    import dask.array as da

    def array(x, dtype):
        chunks = (1, 8, -1, -1)[-x.ndim :]  # eight heads; tables and positions are in one piece
        return da.from_array(_cast(x, dtype), chunks=chunks)

    return Library(array, wait=dask.compute)


def _mlx():
    import mlx.core as mx
    import numpy as np

    def array(x, dtype):
        return mx.array(x).astype(getattr(mx, dtype))

    return Library(array, wait=mx.eval, to_numpy=lambda x: np.asarray(x.astype(mx.float32)))


def _array_api_strict():
    import array_api_strict as xp

    def array(x, dtype):
        _require_not_bfloat16(dtype, "array-api-strict")
        return xp.asarray(x, dtype=getattr(xp, dtype))

    return Library(array)


_OPENERS = {
    "numpy": _numpy,
    "torch": partial(_torch, "cpu"),
    "torch-cuda": partial(_torch, "cuda"),
    "cupy": _cupy,
    "jax": _jax,
    "dask": _dask,
    "mlx": _mlx,
    "array-api-strict": _array_api_strict,
}
LIBRARIES = list(_OPENERS)
"""The first parameter of the benchmarks, whatever is installed."""

FAST = [name for name in LIBRARIES if name != "array-api-strict"]
"""Those that are there to be fast; the other is there to be strict."""

WRITABLE = [name for name in FAST if name not in ("jax", "dask")]
"""Those with arrays that can be written."""

IMMEDIATE = [name for name in FAST if name not in ("jax", "dask")]
"""Those that run a function as it is at each call: it may take another int each time."""

FUSED = [name for name in FAST if name != "dask"]
"""Those that have a compiler, or may be given one."""

SCHEDULES = ["eager", "fused"]
"""Without a compiler, and with ``fused=True``."""

DIFFERENTIABLE = ["torch", "torch-cuda", "jax"]
"""Those that make gradients."""


def load(name):
    """Import a library; without it, or without its device, the case is skipped and asv is told why."""
    with skipping_without(name):
        return _OPENERS[name]()


def scheduled(library, schedule, function):
    """Return how to prepare a call of `function`, with and without ``fused=True``, and the options that it takes."""
    if schedule == "eager":
        return library.prepared, {}
    require_option(function, "fused")
    return library.prepared_fused, {"fused": True}


@contextmanager
def skipping_without(name):
    """Say to asv, which must be in `setup`, that what is imported here is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        msg = f"{name} is not installed: {error}"
        raise NotImplementedError(msg) from error


def once(setup):
    """
    Run `setup` once in a process.

    asv repeats it before every timed call: that would compile anew, and push what is timed out of the caches.
    """

    @wraps(setup)
    def guarded(self, *case):
        if not hasattr(self, "case"):
            setup(self, *case)
            self.case = case

    return guarded
