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

from rope_any import axes, bending, config, onnx, positions, scaling, testing, weights
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
    "positions",
    "rotate",
    "scaling",
    "testing",
    "weights",
]
__version__ = "0.1.0"
