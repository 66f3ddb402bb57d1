"""The formula that rotates a pair of features, for every schedule and every compiler."""

from typing import Any


def rotate_component(a: Any, b: Any, c: Any, s: Any) -> Any:
    """Return the rotated a of each pair (a, b), for the cosine c and sine s of an angle."""
    return a * c - b * s
