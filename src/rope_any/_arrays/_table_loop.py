"""
The Numba loop that computes float32 cos/sin tables of any positions on a CPU.

A phase is an angle in units of 2⁻⁶⁴ turns: an int64, whose overflow drops whole turns. It is split into a quadrant and
a remainder of at most an eighth of a turn, whose cosine and sine are two float64 polynomials. There is no branch, so
the bits of a row do not depend on its neighbours.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit, types

from rope_any._arrays import _intrinsics, _layout
from rope_any._arrays._intrinsics import compile_loop, reader, stack_memory, writer
from rope_any._arrays._layout import MOST_PAIRS
from rope_any._arrays._threads import THREADED_FROM, run_in_threads
from rope_any._arrays.numpy import address

Rows: TypeAlias = tuple[tuple[float, ...], ...]

# cos(πx/2) and sin(πx/2) / x for |x| ≤ 1/2 as polynomials in x², by Remez' algorithm in 40 digits, with a cosine of 1
# at 0. They err by 5.4e-11 and 1.7e-12; rounding to float32 errs by 3.0e-8.
_COS = 1.0, -1.2337005433534638, 0.25366924402955787, -0.02086028850585332, 0.0009040216660935902
_SIN = 1.570796326757611, -0.6459640945212427, 0.07969255932258582, -0.004681141459109426, 0.0001579844658878331


# Each value that differs from call to call is a positional argument: Numba's entry points take no others.
# ruff: noqa: PLR0917


@njit(forceinline=True, fastmath={"contract"})
def _fma(x: Any, y: Any, z: Any) -> Any:
    """Return x·y + z, rounded once if the processor has FMA, in vector and scalar code."""
    return x * y + z


@njit(forceinline=True)
def _to_bits(number: Any) -> Any:
    """Return the bits of a float64 as an int64."""
    return np.float64(number).view(np.int64)


@njit(forceinline=True)
def _to_number(bits: Any) -> Any:
    """Return the float64 that has the bits of an int64."""
    return np.int64(bits).view(np.float64)


_INTEGER, _REAL, _SINGLE = np.int64(0), np.float64(0), np.float32(0)  # types of numbers in memory

# Phases go through scratch memory. The alias scopes tell LLVM that inputs, scratch, cos and sin do not overlap.
_read_input, _write_scratch = reader("inputs", "scratch"), writer("scratch", "inputs")
_read_scratch, _write_cos, _write_sin = reader("phases", "cos"), writer("cos", "sin"), writer("sin", "phases")


@njit(forceinline=True)
def _write_row(scratch: int, pairs: int, cosine: Any, sine: Any, cos: int, sin: int) -> None:
    """
    Write float32 cosines and sines of int64 phases (in 2⁻⁶⁴ turns) at `scratch`.

    `cosine` and `sine` are the coefficients of the polynomials.
    """
    # the coefficients of the polynomials, times the attention factor
    (c0, c1, c2, c3, c4), (s0, s1, s2, s3, s4) = cosine, sine
    for i in range(pairs):
        # phase = quadrant · 2⁶² + rest, rest in [−2⁶¹, 2⁶¹);
        # x = rest · 2⁻⁶², from the bits of a number in [1, 2)
        phase = _read_scratch(_INTEGER, scratch, i) + (1 << 61)
        x = _to_number((phase >> 10) & ((1 << 52) - 1) | (1023 << 52)) - 1.5
        z = x * x
        c = _fma(_fma(_fma(_fma(c4, z, c3), z, c2), z, c1), z, c0)
        s = x * _fma(_fma(_fma(_fma(s4, z, s3), z, s2), z, s1), z, s0)
        # In odd quadrants (last bit set) they are exchanged. The sine is negative in
        # quadrants 2 and 3, the cosine in 1 and 2.
        odd = phase << 1
        first, second = (s, c) if odd < 0 else (c, s)
        first = _to_number(_to_bits(first) ^ ((phase ^ odd) & (-1 << 63)))
        second = _to_number(_to_bits(second) ^ (phase & (-1 << 63)))
        _write_cos(_SINGLE, cos, i, np.float32(first))
        _write_sin(_SINGLE, sin, i, np.float32(second))


@njit(forceinline=True)
def _add_phase(scratch: int, i: int, axis: int, phase: int) -> None:
    """Write the phase of pair i at `scratch`, added to those of the axes before `axis`."""
    _write_scratch(_INTEGER, scratch, i, phase + (_read_scratch(_INTEGER, scratch, i) if axis else 0))


def _make_rows(
    frequencies: int,
    factor: float,
    positions: int,
    real: int,
    first: int,
    axes: int,
    pairs: int,
    cos: int,
    sin: int,
    begin: int,
    end: int,
) -> int:
    """
    Compute rows `begin` to ``end - 1`` of a float32 table whose row 0 is at `cos` and `sin`; return 1.

    `frequencies` is the address of what `pack_frequencies` returns; `positions` that of float64 (`real` is 1) or int64
    positions, or 0 if they are ``first + row``. A row whose position is not finite is NaN.
    """
    c0, c1, c2, c3, c4 = _COS
    s0, s1, s2, s3, s4 = _SIN
    cosine = factor * c0, factor * c1, factor * c2, factor * c3, factor * c4
    sine = factor * s0, factor * s1, factor * s2, factor * s3, factor * s4
    scratch, size = stack_memory(), 8 * axes * pairs
    for row in range(begin, end):
        for p in range(0, pairs, MOST_PAIRS):
            many, to, is_number = min(pairs - p, MOST_PAIRS), 4 * (row * pairs + p), True
            for axis in range(axes):
                at = frequencies + 8 * (axis * pairs + p)
                if real:
                    real_position = _read_input(_REAL, positions, row * axes + axis)
                    is_number = is_number and real_position - real_position == 0
                    for i in range(many):
                        near = real_position * _read_input(_REAL, at + size, i)  # as `_exact.angle_by_float64` does
                        turns = near - np.rint(near) + real_position * _read_input(_REAL, at + 2 * size, i)
                        turns -= np.rint(turns)
                        _add_phase(scratch, i, axis, (_to_bits(turns + 1.5) << 12) ^ (-1 << 63))
                else:
                    position = _read_input(_INTEGER, positions, row * axes + axis) if positions else first + row
                    for i in range(many):
                        _add_phase(scratch, i, axis, position * _read_input(_INTEGER, at, i))
            _write_row(scratch, many, cosine, sine, cos + to, sin + to)
            if not is_number:
                for i in range(many):
                    _write_cos(_SINGLE, cos + to, i, np.float32(math.nan))
                    _write_sin(_SINGLE, sin + to, i, np.float32(math.nan))
    return 1


def pack_frequencies(fixed_point: Rows, high: Rows, low: Rows) -> npt.NDArray[np.int64]:
    """Return int64 ``(3, axes, pairs)``: fixed point (2⁻⁶⁴ turns), and the bits of float64 `high` and `low` (turns)."""
    pieces = np.asarray((high, low), dtype=np.float64)
    return np.concatenate([np.asarray((fixed_point,), dtype=np.int64), pieces.view(np.int64)])


def compiled_table(
    frequencies: npt.NDArray[np.int64], threads: Callable[[], int]
) -> Callable[..., npt.NDArray[np.float32]]:
    """Return `make`, which returns cos, sin of positions as a float32 ``(2, *shape, pairs)``, large ones in threads."""
    signature = types.int64(types.int64, types.float64, *[types.int64] * 9)
    rows = compile_loop(_make_rows, signature, _intrinsics, _layout)
    at, (_, axes, pairs) = frequencies.ctypes.data, frequencies.shape

    def make(shape: tuple[int, ...], *call: Any, given: object = None) -> npt.NDArray[np.float32]:
        """
        Return cos and sin of positions of `shape` (without their axes) as one array ``(2, *shape, pairs)``.

        `call` has the parameters `factor` to `first` of `_make_rows`, and `given` is the array of the positions.
        """
        table = np.empty((2, *shape, pairs), dtype=np.float32)  # one allocation, which malloc reuses
        count, cos = math.prod(shape), address(table)
        known = at, *call, axes, pairs, cos, cos + table.nbytes // 2
        if table.size // 2 < THREADED_FROM:
            rows(*known, 0, count)
        else:
            work = partial(rows, *known)
            vars(work)["arrays"] = frequencies, table, given  # which it uses: they live until threads have finished
            run_in_threads(work, count, threads())
        return table

    return make
