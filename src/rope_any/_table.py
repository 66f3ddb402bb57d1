"""
The table: positions x frequencies -> (cos, sin), exactly.

The product position x frequency is where rotary embeddings lose their digits: in float32 an angle of a
million radians is known to 0.06. Here a frequency f becomes a *word*, the 64-bit fraction of a turn that it
adds per position, word = f / 2π · 2⁶⁴. An integer times a word, in integer arithmetic that wraps, is the
angle modulo one turn: nothing is lost however far the position. A real position is an integer and a fraction
of less than one half, whose angle is small enough for plain arithmetic.
"""

import math
import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import chain
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rope_any import _array
from rope_any._array import Array
from rope_any._frequencies import Frequencies, Row, as_frequencies, as_rows, integer, positive

# ⌊2³²⁰ / 2π⌋: enough for 64 bits of the fraction of f / 2π, whatever a frequency below 2¹⁰⁰ is.
_INVERSE_TURN = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E4107F9458EAF7AEF1586DC91B8E909374B8
_TURN = 2 * math.pi

Positions: TypeAlias = Array | int | range | Sequence[Any]
"""Where tokens stand: an array, or numbers on the host."""


class Table(NamedTuple):
    """
    Cosines and sines of the angles, each ``(*positions.shape, pairs)``.

    Made by `cos_sin` or `Rope.table`, used by `rotate`, and by `Rope` wherever positions go.
    """

    cos: Array
    sin: Array


class Turns(NamedTuple):
    """Host frequencies made ready for exact products; each field has one row per axis of the positions."""

    rows: tuple[Row, ...]
    """Radians per position."""
    words: tuple[tuple[int, ...], ...]
    """f / 2π modulo one turn, in units of 2⁻⁶⁴ turns, as signed 64-bit integers."""
    rests: tuple[Row, ...]
    """What the words leave of f, in radians."""
    axes: int | None
    """The length of the last axis of the positions; None for a single row, whose positions have no such axis."""


def cos_sin(
    positions: Positions,
    frequencies: Frequencies | Array,
    /,
    *,
    attention_factor: float = 1.0,
    dtype: Any = None,
    like: Array | None = None,
) -> Table:
    """
    Return cosine and sine of ``positions x frequencies``, exactly.

    Parameters
    ----------
    positions : array, int, range or sequence of numbers
        Where the tokens stand, an array of any shape and any integer or real dtype; any sign, any order.
        With frequencies of n rows its last axis has length n. Numbers that are no array need `like`.
    frequencies : tuple of float, tuple of such rows, or array
        Radians per position: ``(pairs,)``, or one row for each axis of the positions, ``(axes, pairs)``.
        An array (learned frequencies) must be of the library and device of `positions`. Gradients reach
        it, and the bounds below don't hold for it: its products are made in floating point.
    attention_factor : float, optional
        Multiplies both, as YaRN and LongRoPE ask.
    dtype : dtype, optional
        Of the table. By default float64 if `like` is float64, or, without `like`, if the positions or the
        learned frequencies are; else float32.
    like : array, optional
        Names the library and the device where `positions` don't; where they do, it must agree with them.

    Returns
    -------
    Table
        The pair ``(cos, sin)``, each ``(*positions.shape, pairs)``, or without the last axis of positions
        where the frequencies have rows; on the library and device of `positions` or `like`.

    Raises
    ------
    TypeError
        If an argument is of a kind that is not named above, or the arrays come from several libraries.
    ValueError
        If shapes or devices don't fit, or float64 is asked for where the library has none.

    Notes
    -----
    Largest error of a float32 table, for the frequencies as given in float64: 1.2e-7 at any integer position
    below 2³¹ in magnitude, on every library; at real positions up to 2²⁴, 2.5e-7 where the library has float64
    and 2e-6 (for frequencies up to 2π) where it has none. A float64 table: 1e-15 (1 + \\|angle\\|).

    No table is made in half precision unless `dtype` asks for it.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import cos_sin, frequencies
    >>> cos, sin = cos_sin(np.asarray([0, 1, 1_000_000]), frequencies(4))
    >>> cos.shape
    (3, 2)
    >>> print(cos[:, 0])
    [1.         0.5403023  0.93675214]
    """
    source = frequencies if _array.is_array(frequencies) else turns(as_frequencies(frequencies))
    return table(positions, source, attention_factor=attention_factor, dtype=dtype, like=like)


def turns(frequencies: Frequencies, /) -> Turns:
    """Make host frequencies ready: their words, and what these leave."""
    rows = as_rows(frequencies)
    split = [[_word(f) for f in row] for row in rows]
    words = tuple(tuple(word for word, _ in row) for row in split)
    rests = tuple(tuple(rest for _, rest in row) for row in split)
    return Turns(rows, words, rests, None if isinstance(frequencies[0], float) else len(rows))


def table(
    positions: Positions,
    frequencies: Turns | Array,
    /,
    *,
    attention_factor: float = 1.0,
    dtype: Any = None,
    like: Array | None = None,
) -> Table:
    """Return the table of frequencies that are ready or learned: `cos_sin`, which see."""
    learned = None if isinstance(frequencies, Turns) else frequencies
    factor = positive("attention_factor", attention_factor)
    home = next((array for array in (positions, like, learned) if _array.is_array(array)), None)
    if home is None:
        msg = f"positions must be an array, or come with like= (an array); got {type(positions).__name__}"
        raise TypeError(msg)
    given = positions if _array.is_array(positions) else None
    xp = _array.namespace(positions=given, like=like, frequencies=learned)
    wide = _array.has_float64(xp, home)
    dtype = _table_dtype(xp, home, dtype, deciding=(like,) if like is not None else (given, learned))
    work = xp.float64 if dtype == xp.float64 else xp.float32
    whole, part = _whole_and_part(xp, home, positions, xp.float64 if wide else xp.float32)
    if learned is not None:
        cos, sin = _from_learned(xp, whole, part, learned, work)
    else:
        make = _from_words if wide else _from_short_words
        cos, sin = make(xp, whole, part, frequencies, work)
    if factor != 1:
        cos, sin = cos * factor, sin * factor
    return Table(_array.cast(xp, cos, dtype), _array.cast(xp, sin, dtype))


def _table_dtype(xp: Any, home: Array, dtype: Any, *, deciding: tuple[Array | None, ...]) -> Any:
    """Return the dtype asked for, or float64 if one of the deciding arrays has it, else float32."""
    if dtype is None:
        found = any(a is not None and _array.dtype_name(a.dtype) == "float64" for a in deciding)
        dtype = xp.float64 if found else xp.float32
    name = _array.dtype_name(dtype)
    if name not in _array.FLOATING:
        msg = f"dtype must be one of {', '.join(_array.FLOATING)}; got {name}"
        raise TypeError(msg)
    if name == "float64" and not _array.has_float64(xp, home):
        msg = f"dtype must not be float64 on {_array.library(home)} here, which has no float64 cosine; ask for float32"
        raise ValueError(msg)
    return getattr(xp, name, dtype)


# --- products ---------------------------------------------------------------------------------------------


def _from_words(xp: Any, whole: Array, part: Array | None, turns: Turns, dtype: Any) -> Table:
    """With 64-bit types: integer products that wrap after one turn."""
    def constants(rows: tuple[tuple[float, ...], ...], dtype: Any) -> list[Array]:
        return [xp.asarray(row, dtype=dtype, **_array.creation(whole)) for row in rows]

    phase = _weighted(whole, constants(turns.words, xp.int64), turns.axes)
    angle = xp.astype(phase, xp.float64) * (_TURN / 2**64)
    if dtype == xp.float64:
        rests = constants(turns.rests, dtype)
        angle = angle + _weighted(xp.astype(whole, dtype), rests, turns.axes)
    if part is not None:
        angle = angle + _weighted(part, constants(turns.rows, xp.float64), turns.axes)
    return _of_angle(xp, angle, dtype)


def _from_short_words(xp: Any, whole: Array, part: Array | None, turns: Turns, dtype: Any) -> Table:
    """With 32-bit types alone: the top 32 bits of the same products, made of 16-bit pieces."""
    place = _array.creation(whole)
    columns = _columns(whole, turns.axes)
    phase = _sum(_high_product(xp, n, row, place) for n, row in zip(columns, turns.words, strict=True))
    # phase = 2²⁰ step + rest, rest in [−2¹⁹, 2¹⁹). The step has 12 bits, and so has `short`, the unit of its
    # angle without its last digits: their float32 product is exact, and all that is left is a small angle.
    step = (phase + 2**19) >> 20
    rest = xp.astype(phase - (step << 20), dtype)
    step = xp.astype(step, dtype)
    unit = _TURN / 2**12
    short = math.ldexp(round(math.ldexp(unit, 22)), -22)
    small = step * (unit - short) + rest * (_TURN / 2**32)
    c, s = xp.cos(step * short), xp.sin(step * short)
    # sin(small) = small and cos(small) = 1 − small²/2 to the last digit, as |small| < 1.1e-3
    fall = small * small * 0.5
    near = Table(c - (s * small + c * fall), s + (c * small - s * fall))
    if part is None:
        return near
    rows = [xp.asarray(row, dtype=dtype, **place) for row in turns.rows]
    angle = _weighted(part, rows, turns.axes)
    c, s = xp.cos(angle), xp.sin(angle)
    return Table(near.cos * c - near.sin * s, near.sin * c + near.cos * s)


def _from_learned(xp: Any, whole: Array, part: Array | None, frequencies: Array, dtype: Any) -> Table:
    """With frequencies that are an array: products in floating point, through which gradients pass."""
    _array.require_floating("frequencies", frequencies)
    if frequencies.ndim not in (1, 2) or 0 in frequencies.shape:
        msg = f"frequencies must have shape (pairs,) or (axes, pairs); got {tuple(frequencies.shape)}"
        raise ValueError(msg)
    real = xp.float64 if _array.has_float64(xp, frequencies) else xp.float32
    position = _array.cast(xp, whole, real) if part is None else _array.cast(xp, whole, real) + part
    frequencies = _array.cast(xp, frequencies, real)
    axes = None if frequencies.ndim == 1 else frequencies.shape[0]
    rows = [frequencies] if axes is None else [frequencies[axis, :] for axis in range(axes)]
    return _of_angle(xp, _weighted(position, rows, axes), dtype)


def _weighted(positions: Array, rows: list[Array], axes: int | None) -> Array:
    """Return Σ_axis position[token, axis] · W[axis, pair]."""
    return _sum(p * row for p, row in zip(_columns(positions, axes), rows, strict=True))


def _columns(positions: Array, axes: int | None) -> list[Array]:
    """Return positions ``(...)``, or ``(..., axes)``, as one array ``(..., 1)`` for each axis."""
    if axes is None:
        return [positions[..., None]]
    shape = tuple(positions.shape)
    if not shape or shape[-1] != axes:
        msg = f"positions must end in an axis of length {axes}, one for each row of frequencies; got shape {shape}"
        raise ValueError(msg)
    return [positions[..., axis, None] for axis in range(axes)]


def _sum(terms: Iterable[Array]) -> Array:
    return reduce(operator.add, terms)


def _of_angle(xp: Any, angle: Array, dtype: Any) -> Table:
    """Return cosine and sine, in float32 or float64, of an angle in the widest type there is."""
    if angle.dtype == dtype or _array.is_compiling(angle):
        # A compiler keeps float64 cosines in registers; its float32 ones may be wrong by two units.
        return Table(_array.cast(xp, xp.cos(angle), dtype), _array.cast(xp, xp.sin(angle), dtype))
    # NumPy's float64 cosine takes four times as long as its float32 one: turn by the nearest float32 angle
    # and then by the rest, whose cosine is 1 and whose sine is itself to the last digit.
    near = xp.astype(angle, dtype)
    rest = xp.astype(angle - xp.astype(near, angle.dtype), dtype)
    c, s = xp.cos(near), xp.sin(near)
    return Table(c - s * rest, s + c * rest)


def _high_product(xp: Any, n: Array, words: Sequence[int], place: dict[str, Any]) -> Array:
    """Return bits 32 to 63 of n x word for int32 n and 64-bit words, modulo 2³², in int32 arithmetic."""
    low16 = 0xFFFF

    def constants(piece: Any) -> Array:
        return xp.asarray([piece(word) for word in words], dtype=xp.int32, **place)

    # word = 2³² high + 2¹⁶ middle + low  and  n = 2¹⁶ top + bottom;  high and top have a sign
    high = constants(lambda word: word >> 32)
    middle = constants(lambda word: word >> 16 & low16)
    low = constants(lambda word: word & low16)
    top, bottom = n >> 16, n & low16
    # products of two 16-bit pieces fill 32 bits: their own high and low halves are taken as patterns
    outer, inner = bottom * middle, top * low
    carry = ((bottom * low >> 16 & low16) + (outer & low16) + (inner & low16)) >> 16
    return n * high + top * middle + (outer >> 16 & low16) + (inner >> 16) + carry


def _word(f: float) -> tuple[int, float]:
    """Return f / 2π to the nearest 2⁻⁶⁴ turn, modulo one turn and with a sign, and what is left in radians."""
    numerator, denominator = f.as_integer_ratio()
    fine = numerator * _INVERSE_TURN // denominator  # in units of 2⁻³²⁰ turns
    word = (fine + (1 << 255)) >> 256
    rest = (fine - (word << 256)) / (1 << 320) * _TURN
    word %= 1 << 64
    return word - (word >> 63 << 64), rest


# --- positions --------------------------------------------------------------------------------------------


def consecutive(start: int | Array, length: int, /, *, like: Array) -> Array:
    """Return the positions ``start, start + 1, ...``, for an int or a 0-d integer array."""
    traced = start if _array.is_array(start) else None
    xp = _array.namespace(positions=traced, like=like)
    dtype = xp.int64 if _array.has_float64(xp, like) else xp.int32
    place = _array.creation(like)
    if traced is None:
        first = integer("positions", start)
        _require_fit(xp, dtype, (first, first + length))
        return xp.arange(first, first + length, dtype=dtype, **place)
    if not _is_integer(traced):
        msg = f"positions must be an integer where they are one number; got {_array.dtype_name(traced.dtype)}"
        raise TypeError(msg)
    return _array.cast(xp, traced, dtype) + xp.arange(length, dtype=dtype, **place)


def _is_integer(x: Array) -> bool:
    return _array.dtype_name(x.dtype).startswith(("int", "uint"))


def _whole_and_part(xp: Any, home: Array, positions: Positions, real: Any) -> tuple[Array, Array | None]:
    """Return positions as integers and what these leave, at most one half each; None if they leave nothing."""
    whole_dtype = xp.int64 if real == xp.float64 else xp.int32
    if not _array.is_array(positions):
        return _from_host(xp, home, positions, whole_dtype, real)
    if _is_integer(positions):
        return _array.cast(xp, positions, whole_dtype), None
    name = _array.dtype_name(positions.dtype)
    if name not in _array.FLOATING:
        msg = f"positions must be integers or real numbers; got an array of {name}"
        raise TypeError(msg)
    wide = positions if name == "float64" else _array.cast(xp, positions, real)
    nearest = xp.round(wide)
    return xp.astype(nearest, whole_dtype), _array.cast(xp, wide - nearest, real)


def _from_host(
    xp: Any, home: Array, positions: int | range | Sequence[Any], whole_dtype: Any, real: Any
) -> tuple[Array, Array | None]:
    """Return host positions likewise; they are taken apart in float64 before a library may round them."""
    place = _array.creation(home)
    if isinstance(positions, range):
        whole = xp.arange(positions.start, positions.stop, positions.step, dtype=whole_dtype, **place)
        _require_fit(xp, whole_dtype, positions[:1], positions[-1:])
        return whole, None
    host = _host(positions)
    nearest = np.round(host)
    _require_fit(xp, whole_dtype, np.ravel(nearest).tolist())
    whole = xp.asarray(nearest.astype(np.int64).tolist(), dtype=whole_dtype, **place)
    if host.dtype.kind != "f":
        return whole, None
    return whole, xp.asarray((host - nearest).tolist(), dtype=real, **place)


def _host(positions: int | Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return numbers that are no array, nested or not, as a NumPy array of integers or float64."""
    wanted = "positions must be an array, an int, a range or a sequence of finite numbers"
    if isinstance(positions, bool | str | bytes) or not isinstance(positions, Integral | Sequence):
        msg = f"{wanted}; got {type(positions).__name__}"
        raise TypeError(msg)
    try:
        host = np.asarray(positions)
    except ValueError:
        msg = f"{wanted}; got rows of different lengths"
        raise ValueError(msg) from None
    if host.size == 0:
        return host.astype(np.int64)
    if host.dtype.kind not in "iuf":
        msg = f"{wanted}; got elements of type {host.dtype}"
        raise TypeError(msg)
    if not np.all(np.isfinite(host)):
        msg = f"{wanted}; got one that is not finite"
        raise ValueError(msg)
    return host


def _require_fit(xp: Any, dtype: Any, *numbers: Iterable[int]) -> None:
    bits = 64 if dtype == xp.int64 else 32
    for number in chain(*numbers):
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            msg = f"positions must fit into {bits}-bit integers here; got {number}"
            raise ValueError(msg)
