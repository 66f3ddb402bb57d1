"""Compute cosines, sines and rotations in 60 digits, rounded once, with no arithmetic of the rest of the package."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rope_any._pairing import Pairing, members, split

Data: TypeAlias = np.ndarray[Any, Any]

DIGITS = 60


class Sample(NamedTuple):
    """Positions and their exact table, in 60 digits rounded to float64."""

    positions: Data
    cos: Data
    sin: Data


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
    return [[mp.expj(_dot(mp, place, column)) for column in columns] for place in places]


def _dot(mp: Any, place: Sequence[int], column: Sequence[float]) -> Any:
    return mp.fsum(mp.mpf(p) * mp.mpf(f) for p, f in zip(place, column, strict=True))


def mpmath() -> Any:
    """Return mpmath in 60 digits, or say how to get it."""
    try:
        import mpmath as mp
    except ModuleNotFoundError:
        msg = 'rope_any.testing needs mpmath: pip install "rope-any[testing]"'
        raise ModuleNotFoundError(msg) from None
    return _context(mp)


@cache
def _context(mp: Any) -> Any:
    """Return a context of our own: that of mpmath itself is one for all threads, each of which may set its digits."""
    context = mp.MPContext()
    context.dps = DIGITS
    return context


def turned(x: Data, sample: Sample, pairing: Pairing, /, *, start: int = 0, factor: float = 1.0) -> Data:
    """Return x ``(..., n, features)``, turned by the exact table of n positions."""
    pairs = sample.cos.shape[-1]
    where = members(pairing, start, pairs)
    first, second = where[:pairs], where[pairs:]
    w = (x[..., first] + 1j * x[..., second].astype(np.float64)) * (factor * (sample.cos + 1j * sample.sin))
    y = x.astype(np.float64)
    y[..., first], y[..., second] = w.real, w.imag
    return y


def apart(y: Data, want: Data, pairing: Pairing, /, *, start: int, pairs: int) -> Data:
    """Return how far pairs are from where they should be, relative to their length: ``(..., pairs)``."""
    (a, b), (c, d) = (split(part, pairing, start, pairs) for part in (y, want))
    return np.asarray(np.hypot(a - c, b - d) / np.hypot(c, d))


def features(*shape: int, bits: int = 4) -> Data:
    """Return numbers ±(1 to 2) with `bits` binary digits after the point, from the digits of a product."""
    n = np.arange(1, math.prod(shape) + 1)
    digits = n * 40_503 % 65_537
    # an odd number of last places, less than a sixteenth of them: whoever rounds changes it
    odd = np.floor(n * 0.6180339887498949 % 1 * 2.0 ** (bits - 5)) * 2 + 1 if bits > 4 else np.zeros(n.shape)
    numbers = ((16 + digits % 17) / 16 - odd / 2**bits) * (1 - 2 * (digits // 17 % 2))
    return np.asarray(numbers.reshape(shape))
