"""Which features turn together: the only place that knows."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from rope_any import _array
from rope_any._checks import shown

Pairing: TypeAlias = Literal["half", "interleaved"]
"""``"half"`` turns feature i with i + pairs, ``"interleaved"`` 2i with 2i + 1."""

# For n pairs: from one pair to the next, and from the first to the second member of a pair, in features.
_STEPS: dict[str, Callable[[int], tuple[int, int]]] = {
    "half": lambda n: (1, n),
    "interleaved": lambda _: (2, 1),
}
# Stacked along this axis, (..., 2, n) or (..., n, 2), and then flattened, first and second are features again.
_STACKED = {"half": -2, "interleaved": -1}


def as_pairing(value: object, name: str = "pairing") -> Pairing:
    """Return `value` if it names a pairing, or say which there are."""
    if not isinstance(value, str) or value not in _STEPS:
        known = " or ".join(f'"{name}"' for name in _STEPS)
        msg = f"{name} must be {known}; got {shown(value)}"
        raise (ValueError if isinstance(value, str) else TypeError)(msg)
    return value  # type: ignore[return-value]  # a key of _STEPS is a Pairing


def are_adjacent(pairing: Pairing) -> bool:
    """Whether the two features of a pair are neighbours, in memory like a complex number."""
    return _STACKED[pairing] == -1


def step_and_gap(pairing: Pairing, pairs: int) -> tuple[int, int]:
    """Return how many features lie between pairs, and between the members of a pair."""
    return _STEPS[pairing](pairs)


def members(pairing: Pairing, start: int, pairs: int) -> list[int]:
    """Return the features of pairs from `start` on: the first of each pair, and then the second ones."""
    step, gap = step_and_gap(pairing, pairs)
    return [start + step * pair + member for member in (0, gap) for pair in range(pairs)]


def split(x: Any, pairing: Pairing, start: int, pairs: int) -> tuple[Any, Any]:
    """Return the first and the second members, each ``(..., pairs)``, of the pairs of x from `start` on."""
    step, gap = step_and_gap(pairing, pairs)
    end = start + step * (pairs - 1) + 1
    return x[..., start:end:step], x[..., start + gap : end + gap : step]


def join(xp: Any, first: Any, second: Any, pairing: Pairing) -> Any:
    """Return pairs, each half ``(..., pairs)``, as features ``(..., 2 * pairs)``."""
    return _array.folded(xp, xp.stack([first, second], axis=_STACKED[pairing]), 2, 2 * first.shape[-1])
