"""An independent oracle: the paper's formula with scalar numbers in 60 digits. It does not import rope_any."""

from collections.abc import Sequence
from typing import Any

import mpmath
import numpy as np

DIGITS = 60
mp = mpmath.MPContext()  # not the global one of mpmath, whose digits another thread may set
mp.dps = DIGITS


def cos_sin(positions: Any, frequencies: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return cosine and sine of position x frequency, (*positions.shape, pairs), rounded once to float64."""
    positions = np.asarray(positions)
    points = [_rotation(p, f) for p in positions.ravel().tolist() for f in frequencies]
    flat = np.asarray([[float(z.real), float(z.imag)] for z in points]).reshape(*positions.shape, -1, 2)
    return flat[..., 0], flat[..., 1]


def rotate(
    x: np.ndarray,
    positions: Any,
    frequencies: Sequence[float],
    *,
    pairing: str,
    start: int = 0,
    attention_factor: float = 1.0,
) -> np.ndarray:
    """Return x (..., features), each row rotated by its position; positions broadcast to x.shape[:-1]."""
    out = np.array(x, dtype=np.float64)
    positions = np.broadcast_to(positions, out.shape[:-1])
    n = len(frequencies)
    for row in np.ndindex(positions.shape):
        for i, f in enumerate(frequencies):
            first, second = {"half": (i, i + n), "interleaved": (2 * i, 2 * i + 1)}[pairing]
            first, second = (*row, start + first), (*row, start + second)
            z = mp.mpc(float(out[first]), float(out[second]))
            w = attention_factor * z * _rotation(positions[row].item(), f)
            out[first], out[second] = float(w.real), float(w.imag)
    return out


def rotate_by_table(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, pairing: str, start: int = 0) -> np.ndarray:
    """Return x (..., features) rotated by a table (..., pairs), pair by pair, in complex128."""
    out = np.array(x, dtype=np.float64)
    n = cos.shape[-1]
    for i in range(n):
        first, second = {"half": (i, i + n), "interleaved": (2 * i, 2 * i + 1)}[pairing]
        z = np.asarray(x[..., start + first] + 1j * x[..., start + second].astype(np.float64))
        w = z * (cos[..., i].astype(np.float64) + 1j * sin[..., i].astype(np.float64))
        out[..., start + first], out[..., start + second] = w.real, w.imag
    return out


def _rotation(position: float, frequency: float) -> Any:
    """Return e^(i m θ) for position m and frequency θ."""
    return mp.expj(mp.mpf(position) * mp.mpf(frequency))


_BITS = 320
_PI = np.longdouble("3.14159265358979323846264338327950288")
with mpmath.workdps(2 * DIGITS):
    _RADIAN = int(mpmath.floor(mpmath.mpf(2) ** _BITS / (2 * mpmath.pi)))  # 2^_BITS is one turn


def table(positions: np.ndarray, rows: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    Return cosine and sine of positions (..., axes) x rows of frequencies, each (..., pairs), and the sums of |angles|.

    Angles are reduced modulo one turn in Python's integers, with 320 bits; cosine and sine are taken in long doubles.
    """
    fixed_point = [
        [numerator * _RADIAN // denominator for numerator, denominator in map(float.as_integer_ratio, row)]
        for row in rows
    ]
    pairs, half = len(fixed_point[0]), 1 << _BITS - 1
    phases = []
    for point in positions.reshape(-1, len(fixed_point)).tolist():
        parts = [p.as_integer_ratio() for p in point]
        sums = (sum(n * row[i] // d for (n, d), row in zip(parts, fixed_point, strict=True)) for i in range(pairs))
        phases += [((s + half) % (2 * half) - half) >> _BITS - 64 for s in sums]
    angle = np.asarray(phases, dtype=np.int64).astype(np.longdouble) * (_PI / 2**63)
    shape = (*positions.shape[:-1], pairs)
    size = np.abs(positions.astype(float)) @ np.abs(np.asarray(rows))
    return *(f(angle).astype(float).reshape(shape) for f in (np.cos, np.sin)), size
