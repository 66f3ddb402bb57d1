"""The array libraries that the commands measure and ask for by name."""

import importlib

from rope_any import _arrays
from rope_any._arrays import Library

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
    return str(getattr(record.module, "__version__", None) or root.__version__)
