"""The formula that rotates a pair of features, for every schedule and every compiler."""

from typing import Any


def rotate_component(a: Any, b: Any, c: Any, s: Any) -> Any:
    """Return a·c − b·s: a of the pair (a, b), rotated by an angle of cosine c and sine s."""
    return a * c - b * s
