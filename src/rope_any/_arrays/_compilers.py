"""Call the compilers of array libraries; when one cannot compile, warn once and run eagerly."""

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from rope_any._arrays._library import Library

Y = TypeVar("Y")


class PairLayout(NamedTuple):
    """Where the pairs of a row are: pair i is at the features ``i * step`` and ``i * step + gap``."""

    x: tuple[int, int]
    """The step and the gap in x."""
    out: tuple[int, int]
    """Those in its result."""
    direction: int
    """1 or −1."""


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


def with_fallback(lib: Library, fast: Callable[..., Y], eager: Callable[..., Y]) -> Callable[..., Y]:
    """Return a function that calls `fast`; if that raises and `eager` doesn't, it warns and from then on calls that."""

    def call(*arguments: Any) -> Y:
        """Call the compiled function, or the eager one if this or an earlier compiled call fails."""
        if failed:
            return eager(*arguments)
        try:
            return fast(*arguments)
        except Exception as error:  # noqa: BLE001  # compilers raise their own kinds
            result = eager(*arguments)  # raises if the arrays are at fault
            failed.append(error)
            warn_fallback(f"the compiler of {lib.name} failed ({type(error).__name__})")
            return result

    failed: list[Exception] = []
    return call
