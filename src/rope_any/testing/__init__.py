"""
Check any implementation of RoPE against the exact rotation.

`check_rotary` compares a function of any array library with 60-digit arithmetic; `check_cache` compares an engine's
cache, row by row; `cases` returns test vectors from a file that any language can read. The exact results are computed
without the arithmetic of the rest of the package, except those of `check_cache`. `check_library` runs this package on
the arrays of any library.
"""

from rope_any.testing._caches import CacheReport, check_cache
from rope_any.testing._check import Report, check_rotary
from rope_any.testing._library import Call, LibraryReport, calls, check_library
from rope_any.testing._properties import Property
from rope_any.testing.vectors import Case, cases

__all__ = ["CacheReport", "Call", "Case", "LibraryReport", "Property", "Report"]
__all__ += ["calls", "cases", "check_cache", "check_library", "check_rotary"]
