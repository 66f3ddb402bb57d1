"""
One exact rotary position embedding (RoPE) for any library that follows the array API 2023.12.

Examples
--------
>>> import numpy as np
>>> import rope_any as ra
>>> q = np.ones((1, 32, 6, 128), dtype=np.float32)  # (batch, heads, seq, head_dim)
>>> k = np.ones((1, 8, 6, 128), dtype=np.float32)
>>> rope = ra.Rope(ra.frequencies(128, base=500_000.0), pairing="half")
>>> q, k = rope(q, k, 131_072)  # the position of the first token is 131 072
"""

from typing import TYPE_CHECKING

from rope_any._caches import clear_caches
from rope_any._checks import ArgumentTypeError, ArgumentValueError
from rope_any._cumulative import cumulative_angles
from rope_any._frequencies import frequencies
from rope_any._rope import Rope
from rope_any._rotate import rotate
from rope_any._rotation import BentTable, Table
from rope_any._table import cos_sin, from_angles

__all__ = [
    "ArgumentTypeError",
    "ArgumentValueError",
    "BentTable",
    "Rope",
    "Table",
    "__version__",
    "arrays",
    "axes",
    "bending",
    "clear_caches",
    "config",
    "cos_sin",
    "cumulative_angles",
    "frequencies",
    "from_angles",
    "layouts",
    "onnx",
    "plot",
    "positions",
    "rotate",
    "scaling",
    "testing",
    "weights",
]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from rope_any import arrays, axes, bending, config, layouts, onnx, plot, positions, scaling, testing, weights
else:

    def __getattr__(name: str) -> object:
        """Import and return a public module at its first use; raise AttributeError for a name that is not public."""
        if name not in __all__:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        import importlib

        return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """Return all public names, also those of modules that are not imported yet."""
    return __all__
