"""Compute cosines, sines and rotations in 60 digits, without the arithmetic of the other modules."""

import math
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rope_any._checks import missing_package

Data: TypeAlias = np.ndarray[Any, Any]
Members: TypeAlias = tuple[Data, Data]
"""For each pair the index of its first and of its second feature."""

DIGITS = 60
UNITS = tuple(64.0**-i for i in range(-1, 8))
"""Positions are sums of multiples of these, which are few if positions are many of a sequence or a grid."""


class Sample(NamedTuple):
    """Positions and their exact table in float64; see `exact` for its error."""

    positions: Data
    cos: Data
    sin: Data


def exact(positions: Any, frequencies: Any, /) -> Sample:
    """
    Return a `Sample` of positions ``(n,)``, or ``(n, axes)`` with frequencies by axis: cos and sin ``(n, pairs)``.

    With frequencies ``(heads, axes, pairs)`` they are ``(heads, n, pairs)``. A rotation by a position is the product of
    those by its parts, which are multiples of `UNITS`, and a rest. Each is computed in 60 digits and rounded; products
    are in float64. So integer positions have an error of some 2e-16 for each axis, real ones of up to 1e-15.
    """
    if np.ndim(frequencies) == 3:
        heads = [exact(positions, rows) for rows in frequencies]
        return Sample(heads[0].positions, np.stack([one.cos for one in heads]), np.stack([one.sin for one in heads]))
    rows = np.asarray(frequencies, dtype=np.float64)
    rows = rows.reshape(-1, rows.shape[-1])
    z = np.ones((len(positions), rows.shape[1]), dtype=np.complex128)
    for places, row in zip(np.asarray(positions, dtype=np.float64).reshape(len(positions), -1).T, rows, strict=True):
        rests = (places, *(np.fmod(places, unit) for unit in UNITS), np.zeros_like(places))
        for more, less in pairwise(rests):
            numbers, which = np.unique(more - less, return_inverse=True)
            z *= np.stack([_rotation(number, tuple(row)) for number in numbers])[which]
    return Sample(np.asarray(positions), z.real, z.imag)


@lru_cache(maxsize=4096)  # parts are the same for many runs
def _rotation(position: float, frequencies: tuple[float, ...]) -> Data:
    """Return e^(i · position · frequency) ``(pairs,)`` of one axis, rounded once."""
    return np.asarray(unit_rotations([position], frequencies)[0], dtype=np.complex128)


def unit_rotations(positions: Any, frequencies: Any, /) -> list[list[Any]]:
    """Return for each position a list of e^(i Σ_axis position · frequency) by pair, in mpmath numbers of 60 digits."""
    mp = mpmath()
    places = np.asarray(positions).reshape(len(positions), -1).tolist()
    rows = np.asarray(frequencies, dtype=np.float64)
    columns = rows.reshape(-1, rows.shape[-1]).T.tolist()
    # the angle is the sum of position · frequency over the axes
    return [[mp.expj(mp.fdot(place, column)) for column in columns] for place in places]


@cache
def mpmath() -> Any:
    """
    Return one mpmath context of 60 digits for all calls; raise an error that names the extra if mpmath is missing.

    It is apart from mpmath's own, which any thread may change.
    """
    try:
        import mpmath as mp
    except ModuleNotFoundError as error:
        raise missing_package("rope_any.testing", error, "testing") from None
    context = mp.MPContext()
    context.dps = DIGITS
    return context


def rotate_exactly(x: Data, sample: Sample, places: Members, /, *, factor: float = 1.0) -> Data:
    """Return x ``(..., n, features)`` in float64, pairs at `places` rotated by `sample` (n rows) times `factor`."""
    first, second = places
    w = (x[..., first] + 1j * x[..., second].astype(np.float64)) * (factor * (sample.cos + 1j * sample.sin))
    y = x.astype(np.float64)
    y[..., first], y[..., second] = w.real, w.imag
    return y


def pair_lengths(x: Data, places: Members, /) -> Data:
    """Return the lengths of pairs, ``(..., pairs)``, whose members are at `places` of x ``(..., features)``."""
    return np.asarray(np.hypot(x[..., places[0]], x[..., places[1]]))


def pair_errors(y: Data, want: Data, places: Members, /) -> Data:
    """Return |y − want| / |want|, 0 if both are, of the two features of each pair at `places`: ``(..., pairs)``."""
    off = pair_lengths(y - want, places)
    return np.where(off == 0, 0, off / pair_lengths(want, places))


def features(*shape: int, bits: int = 4) -> Data:
    """Return a fixed array of `shape`: multiples of ``2**-bits`` (bits >= 4), 15/16 to 2, positive or negative."""
    n = np.arange(1, math.prod(shape) + 1)
    digits = n * 40_503 % 65_537
    # an odd number of units in the last place, below 1/16 in total: any rounding changes the number
    odd = np.floor(n * 0.6180339887498949 % 1 * 2.0 ** (bits - 5)) * 2 + 1 if bits > 4 else np.zeros(n.shape)
    numbers = ((16 + digits % 17) / 16 - odd / 2**bits) * (1 - 2 * (digits // 17 % 2))
    return np.asarray(numbers.reshape(shape))
