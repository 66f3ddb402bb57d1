"""The rotation of a pair of features: the one line of mathematics, for every schedule and every compiler."""

from typing import Any


def rotate_component(a: Any, b: Any, c: Any, s: Any) -> Any:
    """Return the rotated component a of each pair (a, b), by the cosine c and the sine s of its angle."""
    return a * c - b * s
