"""Which features turn together: the only place that knows."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

Pairing: TypeAlias = Literal["half", "interleaved"]
"""``"half"`` turns feature i with i + pairs, ``"interleaved"`` 2i with 2i + 1."""

# For n pairs from feature `start` on: the features that come first in their pair, and those that come second.
_MEMBERS: dict[str, Callable[[int, int], tuple[slice, slice]]] = {
    "half": lambda start, n: (slice(start, start + n), slice(start + n, start + 2 * n)),
    "interleaved": lambda start, n: (slice(start, start + 2 * n, 2), slice(start + 1, start + 2 * n, 2)),
}
# Stacked along this axis, (..., 2, n) or (..., n, 2), and then flattened, first and second are features again.
_STACKED = {"half": -2, "interleaved": -1}


def as_pairing(value: object) -> Pairing:
    """Return `value` if it names a pairing, or say which there are."""
    if not isinstance(value, str) or value not in _MEMBERS:
        known = " or ".join(f'"{name}"' for name in _MEMBERS)
        msg = f"pairing must be {known}; got {value!r}"
        raise (ValueError if isinstance(value, str) else TypeError)(msg)
    return value  # type: ignore[return-value]  # a key of _MEMBERS is a Pairing


def split(x: Any, pairing: Pairing, start: int, pairs: int) -> tuple[Any, Any]:
    """Return the first and the second members, each ``(..., pairs)``, of the pairs of x from `start` on."""
    first, second = _MEMBERS[pairing](start, pairs)
    return x[..., first], x[..., second]


def join(xp: Any, first: Any, second: Any, pairing: Pairing) -> Any:
    """Return pairs, each half ``(..., pairs)``, as features ``(..., 2 * pairs)``."""
    *batch, pairs = first.shape
    return xp.reshape(xp.stack([first, second], axis=_STACKED[pairing]), (*batch, 2 * pairs))
