"""Call the compilers of array libraries; when one cannot compile, warn once and run eagerly."""

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from rope_any._arrays._library import Array, Library


class PairLayout(NamedTuple):
    """Pair i is at the features ``i * step`` and ``i * step + gap`` of a row; the rotation's direction is 1 or −1."""

    step: int
    gap: int
    direction: int


def warn_fallback(reason: str) -> None:
    """Warn that a call with ``fused=True`` runs eagerly, and why; once for each `reason` in a process."""
    if reason in _WARNED:
        return
    frame, level, package = sys._getframe(), 1, __name__.partition(".")[0]  # noqa: SLF001  # warn at the user's line
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(f"fused=True falls back to code that is not compiled: {reason}", RuntimeWarning, stacklevel=level)
    _WARNED.add(reason)


_WARNED: set[str] = set()


def compiled_or_eager(lib: Library, function: Callable[..., Array]) -> Callable[..., Array]:
    """Return `function`, compiled; if a call fails and `function` itself works, warn, and from then on run eagerly."""
    compiler: Any = lib.compiler
    fast = compiler.compile(function)

    def call(*arrays: Array) -> Array:
        """Call the compiled function, or the eager one if this or an earlier compiled call fails."""
        if failed:
            return function(*arrays)
        try:
            return fast(*arrays)
        except Exception as error:  # noqa: BLE001  # compilers raise their own kinds
            result = function(*arrays)  # raises if the arrays are at fault
            failed.append(error)
            warn_fallback(f"the compiler of {lib.name} failed ({type(error).__name__})")
            return result

    failed: list[Exception] = []
    return call


def write_pairs(lib: Library, out: Array, x: Array, /, *, table: tuple[Array, Array], layout: PairLayout) -> bool:
    """Write x, all rotated, into `out` by CuPy's fused kernel; return True, or warn and return False if it fails."""
    compiler: Any = lib.compiler
    try:
        compiler.write_pairs(out, x, table, layout)
    except Exception as error:  # noqa: BLE001  # compilers raise their own kinds
        warn_fallback(f"the compiler of {lib.name} failed ({type(error).__name__})")
        return False
    return True
