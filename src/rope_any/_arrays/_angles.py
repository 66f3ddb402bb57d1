"""
Compute cos/sin tables of consecutive positions on a CPU with NumPy, by angle addition.

A position is 64 i + j. Exact float64 cosines and sines of 64 i and of j are multiplied as complex numbers. That takes
a fraction of the time of a cosine and errs by some 4e-16 before rounding. A row always has the same two factors,
wherever the positions of a call begin.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rope_any._arrays._threads import THREADED_FROM, run_in_threads

Floats: TypeAlias = npt.NDArray[np.float32]

_TWO_PI = 2 * np.pi
_BLOCK = 64
_TILE = 8  # coarse rows at a time: their products fit in the cache


class Angles(NamedTuple):
    """Cosines and sines of one row of frequencies at a few positions; `cos_sin` makes others by angle addition."""

    fixed_point: npt.NDArray[np.int64]
    """The frequency of each pair in turns per position, times 2⁶⁴; overflow drops whole turns."""
    within_block: npt.NDArray[np.complex128]
    """Cosines and sines of the first 64 positions, as complex numbers."""
    last_block: list[tuple[int, npt.NDArray[np.complex128]]]
    """One item: the number of the last block used, and the complex row of its first position, for decoding."""

    def cos_sin(self, first: int, count: int, threads: Callable[[], int]) -> tuple[Floats, Floats]:
        """Return float32 cos and sin ``(count, pairs)`` of positions from `first`, in up to ``threads()`` threads."""
        row, within_block, last_block = self
        i, j = divmod(first, _BLOCK)
        if j + count <= _BLOCK:
            known, coarse = last_block[0]
            if known != i:
                coarse = _unit_circle(row, np.asarray([i * _BLOCK]))
                last_block[0] = i, coarse
            rows = coarse * within_block[j : j + count]
            return rows.real.astype(np.float32), rows.imag.astype(np.float32)
        cos, sin = np.empty((2, count, len(row)), dtype=np.float32)  # one allocation, which malloc reuses

        def fill(begin: int, end: int) -> None:
            """Write the rows of `cos` and `sin` whose positions are in the blocks ``i + begin`` to ``i + end - 1``."""
            coarse = _unit_circle(row, np.arange(i + begin, i + end) * _BLOCK)
            products = np.empty((_TILE, *within_block.shape), complex)
            for n in range(0, len(coarse), _TILE):
                some, start = coarse[n : n + _TILE, None, :], (begin + n) * _BLOCK - j
                rows = np.multiply(some, within_block, out=products[: len(some)]).reshape(-1, len(row))
                rows = rows[max(-start, 0) : count - start]
                part = slice(max(start, 0), max(start, 0) + len(rows))
                cos[part], sin[part] = rows.real, rows.imag

        run_in_threads(fill, -(-(j + count) // _BLOCK), threads() if cos.size >= THREADED_FROM else 1)
        return cos, sin


def precompute(fixed_point: tuple[int, ...]) -> Angles:
    """Return `Angles` (cos, sin of positions 0 to 63) of a row of frequencies, integers in 2⁻⁶⁴ turns per position."""
    row = np.asarray(fixed_point, dtype=np.int64)
    within_block = _unit_circle(row, np.arange(_BLOCK))
    return Angles(row, within_block, [(0, within_block[:1])])


def _unit_circle(fixed_point: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.complex128]:
    """Return cos + i·sin of positions times frequencies in units of 2⁻⁶⁴ turns: complex, ``(positions, pairs)``."""
    angle = (positions[:, None] * fixed_point).astype(np.float64)
    angle *= _TWO_PI / 2**64
    numbers = np.empty(angle.shape, dtype=np.complex128)
    np.cos(angle, out=numbers.real)
    np.sin(angle, out=numbers.imag)
    return numbers
