"""The rotation of a pair of features: the one line of mathematics, for every schedule and every compiler."""

from typing import Any


def rotate_component(a: Any, b: Any, c: Any, s: Any) -> Any:
    """Return a of each pair (a, b) after its rotation, by the cosine c and sine s of an angle."""
    return a * c - b * s
