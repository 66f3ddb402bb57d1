"""
One exact rotary position embedding (RoPE) for every array library.

Examples
--------
>>> import numpy as np
>>> import rope_any as ra
>>> q = np.ones((1, 32, 6, 128), dtype=np.float32)  # (batch, heads, seq, head_dim)
>>> k = np.ones((1, 8, 6, 128), dtype=np.float32)
>>> rope = ra.Rope(ra.frequencies(128, base=500_000.0), pairing="half")
>>> q, k = rope(q, k, 131_072)  # the first token stands at position 131 072
"""

from types import ModuleType as _Module

from rope_any import axes, bending, config, positions, scaling, weights
from rope_any._frequencies import frequencies
from rope_any._rope import Rope
from rope_any._rotate import rotate
from rope_any._table import BentTable, Table, cos_sin

__all__ = [
    "BentTable",
    "Rope",
    "Table",
    "__version__",
    "axes",
    "bending",
    "config",
    "cos_sin",
    "frequencies",
    "onnx",
    "plot",
    "positions",
    "rotate",
    "scaling",
    "testing",
    "weights",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> _Module:
    """Import what needs NumPy where it is asked for: the library itself doesn't."""
    if name not in {"onnx", "plot", "testing"}:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    import importlib

    return importlib.import_module(f"{__name__}.{name}")
