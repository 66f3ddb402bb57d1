"""
Check any implementation of RoPE against the exact rotation.

`check_rotary` runs any function of any library against 60-digit arithmetic; `cases` are vectors that others can read.
What is right is worked out anew here, without the house's own arithmetic.
"""

from rope_any.testing._check import Property, Report, check_rotary
from rope_any.testing.vectors import Case, cases

__all__ = ["Case", "Property", "Report", "cases", "check_rotary"]
