"""The truth: cosines and sines in 60 digits, rounded once. It shares no arithmetic with the rest of the house."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

DIGITS = 60


class Sample(NamedTuple):
    """Positions and their exact table, in 60 digits rounded to float64."""

    positions: np.ndarray[Any, Any]
    cos: np.ndarray[Any, Any]
    sin: np.ndarray[Any, Any]


def exact(positions: Any, frequencies: Any, /) -> Sample:
    """Return the exact table of integers ``(n,)`` and frequencies ``(pairs,)``, or ``(n, axes)`` and as many rows."""
    turned = [[(float(z.real), float(z.imag)) for z in row] for row in turns(positions, frequencies)]
    cos, sin = np.moveaxis(np.asarray(turned), -1, 0)
    return Sample(np.asarray(positions), cos, sin)


def turns(positions: Any, frequencies: Any, /) -> list[list[Any]]:
    """Return e^(i Σ_axis position · frequency) for each position and pair, in 60 digits."""
    mp = mpmath()
    places = np.asarray(positions).reshape(len(positions), -1).tolist()
    rows = np.asarray(frequencies, dtype=np.float64)
    columns = rows.reshape(-1, rows.shape[-1]).T.tolist()
    with mp.workdps(DIGITS):
        return [[mp.expj(_dot(mp, place, column)) for column in columns] for place in places]


def _dot(mp: Any, place: Sequence[int], column: Sequence[float]) -> Any:
    return mp.fsum(mp.mpf(p) * mp.mpf(f) for p, f in zip(place, column, strict=True))


def mpmath() -> Any:
    """Return mpmath, or say how to get it."""
    try:
        import mpmath as mp
    except ModuleNotFoundError:
        msg = 'rope_any.testing needs mpmath: pip install "rope-any[testing]"'
        raise ModuleNotFoundError(msg) from None
    return mp


def features(*shape: int) -> np.ndarray[Any, Any]:
    """Return numbers ±(1 to 2) in sixteenths, which half precision holds too, from the digits of a product."""
    digits = np.arange(1, math.prod(shape) + 1) * 40_503 % 65_537
    return ((16 + digits % 17) / 16 * (1 - 2 * (digits // 17 % 2))).reshape(shape)
