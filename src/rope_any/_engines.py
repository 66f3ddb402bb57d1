"""What each array library brings besides the array API: how to find it, put data on its devices and wait for it."""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from rope_any._array import Array, library


class Engine(NamedTuple):
    """An array library, as far as the array API does not say; each function takes the library's module first."""

    module: str
    """What to import."""
    extra: str
    """The extra of this package that brings it; empty for what is always there."""
    devices: Callable[[Any], dict[str, Any]]
    """The devices that can be used now, by name."""
    put: Callable[[Any, np.ndarray[Any, Any], Any], Array]
    """Return NumPy data as an array on a device."""
    get: Callable[[Any, Array], np.ndarray[Any, Any]]
    """Return an array as NumPy data."""
    copy: Callable[[Any, Array], Array]
    """Return a copy of an array, made as fast as the library can."""
    wait: Callable[[Any, Array], object]
    """Return when an array has been computed."""


def _torch_devices(torch: Any) -> dict[str, Any]:
    cuda = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return {name: torch.device(name) for name in ["cpu", *cuda, *mps]}


def _torch_wait(torch: Any, x: Array) -> object:
    # CUDA waits for the device that is current, unless it is told which.
    return torch.cuda.synchronize(x.device) if x.is_cuda else getattr(torch, x.device.type).synchronize()


def _cupy_devices(cupy: Any) -> dict[str, Any]:
    # CuPy imports where there is no GPU, and fails at the first array.
    count = cupy.cuda.runtime.getDeviceCount() if cupy.cuda.is_available() else 0
    return {f"cuda:{i}": i for i in range(count)}


def _cupy_put(cupy: Any, data: np.ndarray[Any, Any], device: int) -> Array:
    cupy.cuda.Device(device).use()  # and on: CuPy computes on the current device alone
    return cupy.asarray(data)


ENGINES = {
    "NumPy": Engine(
        "numpy",
        "",
        devices=lambda _: {"cpu": None},
        put=lambda _, data, __: data,
        get=lambda _, x: x,
        copy=lambda np, x: np.copy(x),
        wait=lambda _, x: x,
    ),
    "CuPy": Engine(
        "cupy",
        "cupy-cuda12x or cupy-cuda13x",
        devices=_cupy_devices,
        put=_cupy_put,
        get=lambda cupy, x: cupy.asnumpy(x),
        copy=lambda _, x: x.copy(),
        wait=lambda _, x: x.device.synchronize(),
    ),
    "PyTorch": Engine(
        "torch",
        "torch",
        devices=_torch_devices,
        put=lambda torch, data, device: torch.asarray(data, device=device),
        get=lambda _, x: x.detach().cpu().numpy(),
        copy=lambda _, x: x.clone(),
        wait=_torch_wait,
    ),
    "JAX": Engine(
        "jax",
        "jax",
        devices=lambda jax: {f"{d.platform}:{d.id}": d for d in jax.devices()},
        put=lambda jax, data, device: jax.device_put(data, device),
        get=lambda _, x: np.asarray(x),
        copy=lambda jax, x: jax.numpy.copy(x),
        wait=lambda jax, x: jax.block_until_ready(x),
    ),
    "Dask": Engine(
        "dask.array",
        "dask",
        devices=lambda _: {"cpu": None},
        put=lambda da, data, _: da.from_array(data),
        get=lambda _, x: x.compute(),
        copy=lambda _, x: x.map_blocks(np.copy),
        wait=lambda _, x: x.compute(),
    ),
    "MLX": Engine(
        "mlx.core",
        "mlx",
        devices=lambda mx: {mx.default_device().type.name: mx.default_device()},
        put=lambda mx, data, _: mx.array(data),
        get=lambda _, x: np.array(x),
        copy=lambda _, x: x * 1,
        wait=lambda mx, x: mx.eval(x),
    ),
    "array-api-strict": Engine(
        "array_api_strict",
        "test",
        devices=lambda strict: {"cpu": strict.Device("CPU_DEVICE")},
        put=lambda strict, data, device: strict.asarray(data, device=device),
        get=lambda _, x: np.from_dlpack(x),
        copy=lambda strict, x: strict.asarray(x, copy=True),
        wait=lambda _, x: x,
    ),
}


def find(name: str) -> ModuleType | None:
    """Return the module of an engine, imported, or None if it is not installed."""
    try:
        return importlib.import_module(ENGINES[name].module)
    except ImportError:
        return None


ROOTS = {engine.module.partition(".")[0]: name for name, engine in ENGINES.items()}
"""The engine of each library, by the package that is imported."""


def host(x: Array) -> np.ndarray[Any, Any]:
    """Return an array of any library, of a dtype that NumPy has, as NumPy data."""
    name = ROOTS.get(library(x))
    return np.from_dlpack(x) if name is None else ENGINES[name].get(find(name), x)


def version(module: ModuleType) -> str:
    """Return the version of the library that a module belongs to."""
    root = importlib.import_module(module.__name__.partition(".")[0])
    return str(getattr(module, "__version__", None) or root.__version__)
