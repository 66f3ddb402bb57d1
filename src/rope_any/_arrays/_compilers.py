"""How the compilers of the libraries are asked, and what happens where one can't compile: one warning, then eager."""

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from rope_any._arrays._library import Array, Library


class PairLayout(NamedTuple):
    """Where pair i is in a row: at the features ``i * step`` and ``i * step + gap``; and the direction, 1 or −1."""

    step: int
    gap: int
    direction: int


def warn_fallback(reason: str) -> None:
    """Warn, once for each reason, that a call with ``fused=True`` runs as without."""
    if reason in _WARNED:
        return
    frame, level, package = sys._getframe(), 1, __name__.partition(".")[0]  # noqa: SLF001  # the caller's line
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(f"fused=True falls back to the eager schedule: {reason}", RuntimeWarning, stacklevel=level)
    _WARNED.add(reason)


_WARNED: set[str] = set()


def compiled_or_eager(lib: Library, function: Callable[..., Array]) -> Callable[..., Array]:
    """
    Return a function compiled, which falls back to the plain one.

    When a compiled call fails and the plain one does not, it warns once, and never tries the compiler again.
    """
    compiler: Any = lib.compiler
    fast = compiler.compile(function)

    def call(*arrays: Array) -> Array:
        if failed:
            return function(*arrays)
        try:
            return fast(*arrays)
        except Exception as error:  # noqa: BLE001  # of any kind: compilers raise their own
            result = function(*arrays)  # what is wrong with the arrays is said here
            failed.append(error)
            warn_fallback(f"the compiler of {lib.name} failed ({type(error).__name__})")
            return result

    failed: list[Exception] = []
    return call


def write_pairs(lib: Library, out: Array, x: Array, /, *, table: tuple[Array, Array], layout: PairLayout) -> bool:
    """
    Write the rotated pairs of x into those of `out`.

    Return whether it was done. If the compiler fails nothing is written, and a warning given.
    """
    compiler: Any = lib.compiler
    try:
        compiler.write_pairs(out, x, table, layout)
    except Exception as error:  # noqa: BLE001  # of any kind: compilers raise their own
        warn_fallback(f"the compiler of {lib.name} failed ({type(error).__name__})")
        return False
    return True
