"""
The libraries, and how a case is made ready for the clock.

asv imports the benchmark modules to list what is in them. Libraries are imported by `load`, which `setup`
calls: so the list is the same everywhere, and a process loads no library but its own and NumPy.
"""

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any


def _returned(value):
    return value


def _to_numpy(array):
    import numpy as np

    return np.asarray(array)


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


def _require_device(available, library):
    if not available:
        msg = f"{library} finds no CUDA device"
        raise NotImplementedError(msg)


def _numpy():
    return Library(lambda x, dtype: x.astype(dtype))


def _torch(device):
    import torch

    def array(x, dtype):
        return torch.asarray(x, dtype=getattr(torch, dtype), device=device)

    if device == "cpu":
        return Library(array)
    _require_device(torch.cuda.is_available(), "torch")
    return Library(array, wait=lambda _: torch.cuda.synchronize(), to_numpy=lambda x: x.cpu().numpy())


def _cupy():
    import cupy

    _require_device(cupy.cuda.is_available(), "CuPy")
    return Library(
        cupy.asarray,
        wait=lambda _: cupy.cuda.get_current_stream().synchronize(),
        to_numpy=cupy.asnumpy,
    )


def _jax():
    import jax

    return Library(jax.numpy.asarray, wait=jax.block_until_ready, compiled=jax.jit)


def _dask():
    import dask
    import dask.array as da

    def array(x, dtype):
        chunks = (1, 8, -1, -1)[-x.ndim :]  # eight heads; tables and positions are in one piece
        return da.from_array(x.astype(dtype), chunks=chunks)

    return Library(array, wait=dask.compute)


def _mlx():
    import mlx.core as mx

    return Library(lambda x, dtype: mx.array(x).astype(getattr(mx, dtype)), wait=mx.eval)


def _array_api_strict():
    import array_api_strict as xp

    return Library(lambda x, dtype: xp.asarray(x, dtype=getattr(xp, dtype)))


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

WRITABLE = [name for name in LIBRARIES if name not in ("jax", "dask")]
"""Those with arrays that can be written."""


def load(name):
    """Import a library; without it, or without its device, the case is skipped and asv is told why."""
    with skipping_without(name):
        return _OPENERS[name]()


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
