"""The formula that rotates a pair of features, for every schedule and every compiler."""

from typing import Any


def rotate_component(a: Any, b: Any, c: Any, s: Any) -> Any:
    """Return a·c − b·s, the rotated a of each pair (a, b); c and s are the cosine and sine of the angle."""
    return a * c - b * s
