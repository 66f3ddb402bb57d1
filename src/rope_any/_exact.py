"""
Exact products of positions and frequencies, in the functions of the array API.

A position is multiplied by a frequency in turns (2π), in two pieces in float64, or as a fraction of 64 bits in integers
that wrap; see `_table`.
"""

import math
import operator
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, TypeAlias

from rope_any._arrays import Array, Library
from rope_any._caches import constants
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text
from rope_any._frequencies import PreparedFrequencies
from rope_any._positions import SplitPositions, by_axis
from rope_any._rotation import Table

TableMaker: TypeAlias = Callable[[Any, float, Any], Table]
"""A way to make tables: ``(frequencies, attention factor, positions)`` → the table."""

_TURN = 2 * math.pi


def exact_table(
    lib: Library, at: SplitPositions, frequencies: PreparedFrequencies | Array, dtype: Any, *, wraps: bool
) -> Table:
    """Return the table of positions in `dtype`, float32 or float64; `wraps` tells whether integers may overflow."""
    xp, (given, rest) = lib.xp, at
    if not isinstance(frequencies, PreparedFrequencies):
        return _table_of_learned(lib, given, rest, frequencies, dtype)
    if not lib.has_float64(given):
        return _table_by_int32(lib, given, rest, frequencies)
    axes = frequencies.axes
    if wraps and dtype == xp.float32 and lib.is_integer(given):  # 64 bits of a turn are enough for float32
        numbers = lib.cast(given, xp.int64)
        fixed_point = constants(lib, frequencies, "fixed_point", numbers, dtype=xp.int64)
        return table_of_angle(lib, angle_by_int64(lib, numbers, fixed_point, axes), dtype)
    numbers = lib.cast(given, lib.float64)
    high, low = (constants(lib, frequencies, field, numbers, dtype=lib.float64) for field in ("high", "low"))
    return table_of_angle(lib, angle_by_float64(lib, numbers, high, low, axes), dtype)


def scale_and_cast(lib: Library, unscaled: Table, factor: float, dtype: Any) -> Table:
    """Return the table `unscaled`, multiplied by the attention factor `factor` and cast to `dtype`."""
    if factor == 1 and unscaled.cos.dtype == dtype:
        return unscaled
    cos, sin = unscaled if factor == 1 else (part * factor for part in unscaled)
    return Table(lib.cast(cos, dtype), lib.cast(sin, dtype))


def angle_by_int64(lib: Library, p: Array, fixed_point: list[Array], axes: int | None) -> Array:
    """
    Return the angles of int64 positions, in float64 and in radians from −π to π.

    `fixed_point` has for each axis the frequencies in units of 2⁻⁶⁴ turns.
    """
    # turns times 2⁶⁴; overflow drops whole turns
    phase = _sum(n * row for n, row in zip(_columns(p, axes), fixed_point, strict=True))
    return lib.astype(phase, lib.float64) * (_TURN / 2**64)


def angle_by_float64(lib: Library, positions: Array, high: list[Array], low: list[Array], axes: int | None) -> Array:
    """
    Return the angles of float64 positions, in radians from −π to π.

    The sum of `high` and `low` is for each axis the frequency in turns.
    """
    terms = []
    for p, of_high, of_low in zip(_columns(positions, axes), high, low, strict=True):
        # p · f / 2π = p·high + p·low, the first free of rounding errors, and so is near − round
        near = p * of_high
        terms.append(near - lib.xp.round(near) + p * of_low)
    return _without_turns(lib, _sum(terms))


def _table_by_int32(
    lib: Library, numbers: Array, position_rest: Array | None, frequencies: PreparedFrequencies
) -> Table:
    """Return the float32 table of ``numbers + position_rest`` (int32, float32 or None), computed without float64."""
    xp = lib.xp
    dtype = xp.float32
    words = iter(constants(lib, frequencies, "words", numbers, dtype=xp.int32))
    phase = _sum(
        _high_product(n, *word)
        for n, *word in zip(_columns(numbers, frequencies.axes), words, words, words, strict=True)
    )
    # phase = 2²⁰ step + rest, rest in [−2¹⁹, 2¹⁹). The step has 12 bits, and so has `short`,
    # the unit of its angle without its last digits: their float32 product is exact.
    # The remaining angle is small.
    step = (phase + 2**19) >> 20
    rest = lib.astype(phase - (step << 20), dtype)
    step = lib.astype(step, dtype)
    unit = _TURN / 2**12
    short = math.ldexp(round(math.ldexp(unit, 22)), -22)
    small = step * (unit - short) + rest * (_TURN / 2**32)
    c, s = xp.cos(step * short), xp.sin(step * short)
    # sin(small) = small and cos(small) = 1 − small²/2 to the last digit, as |small| < 1.1e-3
    near = _add_angle(c, s, small, small * small * 0.5)
    if position_rest is None:
        return near
    rows = constants(lib, frequencies, "rows", position_rest, dtype=position_rest.dtype)
    angle = _weighted(position_rest, rows, frequencies.axes)
    return _add_angle(*near, xp.sin(angle), 1 - xp.cos(angle))


def _table_of_learned(lib: Library, numbers: Array, rest: Array | None, frequencies: Array, dtype: Any) -> Table:
    """Return a table of learned ``([[heads,] axes,] pairs)`` at ``numbers + rest``, with gradients; raise if unfit."""
    xp = lib.xp
    if lib.is_integer(frequencies):
        hint = "cos_sin takes the positions before the frequencies"
        raise ArgumentTypeError("frequencies", "be floating-point", Text("integers"), hint)
    lib.require_floating("frequencies", frequencies)
    if frequencies.ndim not in (1, 2, 3) or 0 in frequencies.shape:
        wanted = "have shape (pairs,), (axes, pairs) or (heads, axes, pairs)"
        raise ArgumentValueError("frequencies", wanted, tuple(frequencies.shape))
    real = lib.float64 if lib.has_float64(frequencies) else xp.float32
    position = lib.cast(numbers, real) if rest is None else lib.cast(numbers, real) + rest
    frequencies = lib.cast(frequencies, real)
    axes = None if frequencies.ndim == 1 else frequencies.shape[-2]
    rows = [frequencies] if axes is None else [frequencies[..., axis, :] for axis in range(axes)]
    if frequencies.ndim == 3:
        if position.ndim < 2:
            wanted = "be (..., seq, axes) if each head has frequencies"
            raise ArgumentValueError("positions", wanted, tuple(position.shape))
        position = xp.expand_dims(position, axis=-3)  # (..., 1, seq, axes)
        rows = [xp.expand_dims(row, axis=-2) for row in rows]  # (heads, 1, pairs)
    rank = position.ndim + (axes is None)
    angle = _weighted(position, [lib.broadcast_to_rank(row, rank) for row in rows], axes)
    return table_of_radians(lib, angle, dtype)


def _weighted(positions: Array, rows: list[Array], axes: int | None) -> Array:
    """Return the angles Σ_axis position[token, axis] · W[axis, pair]; `rows` are the rows of W."""
    return _sum(p * row for p, row in zip(_columns(positions, axes), rows, strict=True))


def _columns(positions: Array, axes: int | None) -> list[Array]:
    """Split positions ``(..., axes)``, for None ``(...)``, into ``(..., 1)`` by axis; raise for another last axis."""
    return [column[..., None] for column in by_axis(positions, axes)]


def _sum(terms: Iterable[Array]) -> Array:
    """Return the sum of one or more arrays, without the 0 that `sum` begins with."""
    return reduce(operator.add, terms)


def table_of_radians(lib: Library, angle: Array, dtype: Any) -> Table:
    """Return cosine and sine of angles of any size in radians: float32 of float32 angles, `dtype` of float64 ones."""
    if angle.dtype == lib.xp.float32:  # unchanged: another product would cost digits
        return Table(lib.xp.cos(angle), lib.xp.sin(angle))
    return table_of_angle(lib, _without_turns(lib, angle * (1 / _TURN)), dtype)


def _without_turns(lib: Library, turns: Array) -> Array:
    """Return float64 angles, of any size in turns of 2π, in radians from −π to π."""
    return (turns - lib.xp.round(turns)) * _TURN


def table_of_angle(lib: Library, angle: Array, dtype: Any) -> Table:
    """Return cosine and sine, in float32 or float64 by `dtype`, of float64 angles from −π to π."""
    xp = lib.xp
    if angle.dtype == dtype or lib.has_fast_float64_cosine(angle):
        return Table(lib.cast(xp.cos(angle), dtype), lib.cast(xp.sin(angle), dtype))
    # Rotate by the nearest float32 angle and then by the rest, below 2e-7: to the last digit, the
    # cosine of that is 1 and its sine is itself.
    near = lib.astype(angle, dtype)
    rest = lib.astype(angle - lib.astype(near, lib.float64), dtype)
    return _add_angle(xp.cos(near), xp.sin(near), rest)


def _add_angle(c: Array, s: Array, sine: Array, one_minus_cosine: Array | None = None) -> Table:
    """Return (c, s) rotated by an angle of this sine and this 1 − cosine (None for 0)."""
    # cos(a + r) = cos a cos r − sin a sin r,  sin(a + r) = sin a cos r + cos a sin r
    if one_minus_cosine is None:
        return Table(c - s * sine, s + c * sine)
    return Table(c - (s * sine + c * one_minus_cosine), s + (c * sine - s * one_minus_cosine))


def _high_product(n: Array, high: Array, middle: Array, low: Array) -> Array:
    """
    Return bits 32 to 63 of n · (2³² high + 2¹⁶ middle + low), in int32.

    `middle` and `low` are from 0 to 2¹⁶ − 1.
    """
    # word = 2³² high + 2¹⁶ middle + low  and  n = 2¹⁶ top + bottom;  high and top have a sign
    low16 = 0xFFFF
    top, bottom = n >> 16, n & low16
    # products of two 16-bit pieces fill 32 bits; their halves are read as bit patterns
    outer, inner = bottom * middle, top * low
    carry = ((bottom * low >> 16 & low16) + (outer & low16) + (inner & low16)) >> 16
    return n * high + top * middle + (outer >> 16 & low16) + (inner >> 16) + carry
