"""The array libraries that the commands measure and ask for by name, and their devices."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from rope_any import _arrays
from rope_any._arrays import Array, Library

# title -> (package to import, extra that installs it); NumPy is a dependency
INSTALLABLE = {
    "NumPy": ("numpy", ""),
    "CuPy": ("cupy", "cupy-cuda12x or cupy-cuda13x"),
    "PyTorch": ("torch", "torch"),
    "JAX": ("jax", "jax"),
    "Dask": ("dask", "dask"),
    "MLX": ("mlx", "mlx"),
    "array-api-strict": ("array_api_strict", "test"),
}


def installed(title: str) -> Library | None:
    """Return the record of the library with this title in `INSTALLABLE`; None if it cannot be imported."""
    try:
        record: Library = importlib.import_module(f"{_arrays.__name__}.{INSTALLABLE[title][0]}").LIBRARY
    except ImportError:
        return None
    return record


def version(record: Library) -> str:
    """Return the version of an array library."""
    root = importlib.import_module(record.name)
    return str(getattr(root, "__version__", None) or record.xp.__version__)


# --- devices ----------------------------------------------------------------------------------------------------------


class Device(NamedTuple):
    """A device of an array library, and what a measurement on it needs."""

    put: Callable[[Any], Array]
    """NumPy data → an array on the device."""
    wait: Callable[[Array], object]
    """Wait until an array has been computed."""
    copy: Callable[[Array], Array]
    """The library's fastest copy."""


def devices(record: Library) -> dict[str, Device]:
    """Return the devices that an array library can use here, by name."""
    if record.name in _DEVICES:
        return _DEVICES[record.name]()
    return {"cpu": Device(record.xp.asarray, lambda _: None, partial(record.xp.asarray, copy=True))}


def _cupy() -> dict[str, Device]:
    """Return the CUDA devices of CuPy, which can be imported without a GPU, and then fails at the first array."""
    import cupy

    def put(i: int, data: Any) -> Array:
        """Make device i the current one, permanently, and copy data to it: CuPy computes on that one alone."""
        cupy.cuda.Device(i).use()
        return cupy.asarray(data)

    count = cupy.cuda.runtime.getDeviceCount() if cupy.cuda.is_available() else 0
    return {f"cuda:{i}": Device(partial(put, i), lambda x: x.device.synchronize(), cupy.copy) for i in range(count)}


def _torch() -> dict[str, Device]:
    """Return the CPU, the CUDA devices and MPS of PyTorch."""
    import torch

    def wait(x: Array) -> None:
        """Wait until the device of x, which CUDA's function would not choose, has finished its work."""
        torch.cuda.synchronize(x.device) if x.is_cuda else getattr(torch, x.device.type).synchronize()

    cuda = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    names = ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]
    return {name: Device(partial(torch.tensor, device=name), wait, torch.clone) for name in names}


def _jax() -> dict[str, Device]:
    """Return the devices of JAX."""
    import jax

    copy = partial(jax.numpy.array, copy=True)
    return {
        f"{device.platform}:{device.id}": Device(partial(jax.device_put, device=device), jax.block_until_ready, copy)
        for device in jax.devices()
    }


def _mlx() -> dict[str, Device]:
    """Return the default device of MLX."""
    import mlx.core as mx

    return {mx.default_device().type.name: Device(mx.array, mx.eval, lambda x: x * 1)}


def _dask() -> dict[str, Device]:
    """Return the CPU, where Dask computes chunk by chunk."""
    import dask.array as da

    return {"cpu": Device(da.asarray, lambda x: x.compute(), lambda x: x.map_blocks(lambda chunk: chunk.copy()))}


_DEVICES = {"cupy": _cupy, "torch": _torch, "jax": _jax, "mlx": _mlx, "dask": _dask}
