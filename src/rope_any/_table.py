"""
The table: positions x frequencies -> (cos, sin), exactly.

The product position x frequency is where rotary embeddings lose their digits: in float32 an angle of a
million radians is known to 0.06. Here the frequency is first turned into turns, f / 2π, with 192 bits on the
host. It goes on as its word, the fraction of a turn that it adds per position as a 64-bit integer: an integer times a
word, in arithmetic that wraps, is the angle modulo one turn. Real positions, float64 tables and what a compiler traces
take it in two pieces: the product of a position with the first 22 bits is exact in float64, and so is its distance to
whole turns; the rest is small.
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

from rope_any import _array, _parts
from rope_any._array import Array
from rope_any._checks import attention_factor as checked_factor
from rope_any._checks import integer
from rope_any._frequencies import Frequencies, Row, as_frequencies, as_rows

_BITS = 192
_INVERSE_TURN = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E410  # ⌊2¹⁹² / 2π⌋
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


class BentTable(Table):
    """
    A `Table` that is no rotation: its pairs are scaled by position, or mixed.

    Made by the functions of `rope_any.bending`. It goes wherever a `Table` goes, but has no inverse.
    """

    __slots__ = ()


def check_table(cos: Array, sin: Array) -> None:
    """Refuse what is no table."""
    _array.require_floating("cos", cos)
    _array.require_floating("sin", sin)
    if cos.shape != sin.shape or cos.ndim == 0:
        msg = f"cos and sin must have one shape (..., pairs); got {tuple(cos.shape)} and {tuple(sin.shape)}"
        raise ValueError(msg)


class Apart(NamedTuple):
    """Positions that are arrays of one shape already."""

    numbers: Array
    """Integers; or real numbers, where a dtype holds them."""
    rest: Array | None
    """What the integers leave of real positions where no float64 holds these, in float32; None for nothing."""


class Turns(NamedTuple):
    """Host frequencies made ready for exact products; each field but the last has one row per axis."""

    rows: tuple[Row, ...]
    """Radians per position."""
    high: tuple[Row, ...]
    """The first 22 bits of each f / 2π, turns per position."""
    low: tuple[Row, ...]
    """What these leave of it."""
    words: tuple[tuple[int, ...], ...]
    """f / 2π modulo one turn, in units of 2⁻⁶⁴ turns, as signed 64-bit integers."""
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
        it, and the bounds below don't hold for it: its products are made in floating point. It may hold
        frequencies for each head, ``(heads, axes, pairs)``.
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
        where the frequencies have rows; ``(..., heads, seq, pairs)`` for positions ``(..., seq, axes)`` where each
        head has its own. On the library and device of `positions` or `like`.

    Raises
    ------
    TypeError
        If an argument is of a kind that is not named above, or the arrays come from several libraries.
    ValueError
        If shapes or devices don't fit, or float64 is asked for where the library has none.

    Notes
    -----
    Largest error of a float32 table, for the frequencies as given in float64: 1.2e-7 at any integer position
    below 2³¹ in magnitude, on every library; at real positions up to 2²⁴ and frequencies up to 2π, 2.5e-7 where the
    library has float64 and 2e-6 where it has none. A float64 table: 1e-15 (1 + abs(angle)). Beyond these
    positions the error grows in proportion to them where the library has float64; where it has none, positions of an
    array don't reach beyond 2³¹: integers wrap there, and real ones stay there.

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
    """Make host frequencies ready: their pieces and words."""
    rows = as_rows(frequencies)
    parts = [[_in_turns(f) for f in row] for row in rows]
    high = tuple(tuple(part[0] for part in row) for row in parts)
    low = tuple(tuple(part[1] for part in row) for row in parts)
    words = tuple(tuple(part[2] for part in row) for row in parts)
    return Turns(rows, high, low, words, None if isinstance(frequencies[0], float) else len(rows))


def _in_turns(f: float) -> tuple[float, float, int]:
    """Return the first 22 bits of f / 2π, what they leave of it, and its word."""
    numerator, denominator = f.as_integer_ratio()
    fine = numerator * _INVERSE_TURN // denominator  # f / 2π in units of 2⁻¹⁹² turns
    mantissa, exponent = math.frexp(fine / (1 << _BITS))
    high = math.ldexp(round(math.ldexp(mantissa, 22)), exponent - 22)
    numerator, denominator = high.as_integer_ratio()
    low = (fine - (numerator << _BITS) // denominator) / (1 << _BITS)
    word = (fine + (1 << _BITS - 65) >> _BITS - 64) % (1 << 64)
    return high, low, word - (word >> 63 << 64)


def table(
    positions: Positions | Apart,
    frequencies: Turns | Array,
    /,
    *,
    attention_factor: float = 1.0,
    dtype: Any = None,
    like: Array | None = None,
) -> Table:
    """Return the table of frequencies that are ready or learned: `cos_sin`, which see."""
    learned = None if isinstance(frequencies, Turns) else frequencies
    factor = checked_factor(attention_factor)
    home = _home(positions, like, learned)
    given = _array_of(positions)
    named = {"positions": given, "like": like, "frequencies": learned}
    xp = _array.namespace(**{name: array for name, array in named.items() if array is not None})
    wide = _array.has_float64(xp, home)
    dtype = _table_dtype(xp, home, dtype, deciding=(like,) if like is not None else (given, learned))
    spread = next((array for array in (given, like, learned) if _array.is_sharded(array)), None)
    if spread is not None:
        positions = _spread(positions, frequencies, like=spread)
        if learned is None:
            of_shard = partial(_of_shard, frequencies, attention_factor=factor, dtype=dtype)
            return Table(*_parts.map_shards(of_shard, positions))
        learned = _parts.replicated(learned, like=spread)
    work = xp.float64 if dtype == xp.float64 else xp.float32
    _array.settle_cosines(home)

    def finished(made: Table) -> Table:
        cos, sin = made if factor == 1 else (part * factor for part in made)
        return Table(_array.cast(xp, cos, dtype), _array.cast(xp, sin, dtype))

    if learned is not None:
        whole, part = as_numbers(xp, home, positions, wide=wide)
        return finished(_from_learned(xp, whole, part, learned, work))
    if not wide:
        whole, part = as_numbers(xp, home, positions, wide=wide)
        return finished(_from_words(xp, whole, part, frequencies))
    given = _given(xp, home, positions, wide=wide)[0]
    # 64 bits of a turn are enough for float32; and a compiler must not see integers that overflow.
    wraps = work == xp.float32 and _array.is_integer(given) and not _array.is_compiling(home)
    numbers = _array.cast(xp, given, xp.int64 if wraps else xp.float64)
    if wraps:
        make = partial(_from_phases, xp, words=_constants(xp, frequencies.words, numbers), axes=frequencies.axes)
    else:
        pieces = [_constants(xp, rows, numbers) for rows in (frequencies.high, frequencies.low)]
        make = partial(_from_pieces, xp, pieces=pieces, axes=frequencies.axes, dtype=work)
    return _in_parts(xp, lambda some: finished(make(some)), numbers, frequencies, dtype)


def _spread(positions: Positions, frequencies: Turns | Array, /, *, like: Array) -> Array:
    """Return positions beside a sharded tensor, in one piece along the axis that a product sums over."""
    at = _parts.replicated(placed(positions, like=like), like=like)
    rows = frequencies.axes is not None if isinstance(frequencies, Turns) else frequencies.ndim > 1
    _parts.require_whole(
        "positions", at, axis=at.ndim - 1 if rows else at.ndim, of="their last axis, which is summed over"
    )
    return at


def _of_shard(frequencies: Turns | Array, positions: Array, /, *, attention_factor: float, dtype: Any) -> Table:
    """Return the table of the positions that one process holds."""
    return table(positions, frequencies, attention_factor=attention_factor, dtype=dtype)


def _in_parts(xp: Any, make: Callable[[Array], Table], positions: Array, turns: Turns, dtype: Any) -> Table:
    """Return ``make(positions)``, of many block by block: what is made on the way stays in the cache."""
    if not _array.is_fillable(positions):
        return make(positions)
    pairs, axes = len(turns.rows[0]), () if turns.axes is None else (turns.axes,)
    shape, rows = _columns(positions, turns.axes)[0].shape[:-1], max(_array.block_size(positions) // (2 * pairs), 1)
    if math.prod(shape) <= rows:
        return make(positions)
    flat = xp.reshape(positions, (-1, *axes))
    cos, sin = (xp.empty((flat.shape[0], pairs), dtype=dtype, **_array.creation(positions)) for _ in range(2))
    for first in range(0, flat.shape[0], rows):
        cos[first : first + rows], sin[first : first + rows] = make(flat[first : first + rows])
    return Table(*(xp.reshape(part, (*shape, pairs)) for part in (cos, sin)))


def _array_of(positions: Positions | Apart) -> Array | None:
    """Return the array that positions are, if they are one."""
    if isinstance(positions, Apart):
        return positions.numbers
    return positions if _array.is_array(positions) else None


def _home(positions: Positions | Apart, *others: Array | None) -> Array:
    """Return the first array, which names library and device."""
    for array in (_array_of(positions), *others):
        if _array.is_array(array):
            return array
    msg = f"positions must be an array, or come with like= (an array); got {type(positions).__name__}"
    raise TypeError(msg)


def _table_dtype(xp: Any, home: Array, dtype: Any, *, deciding: tuple[Array | None, ...]) -> Any:
    """Return the dtype asked for, or float64 if one of the deciding arrays has it, else float32."""
    if dtype is None:
        found = any(a is not None and _array.dtype_name(a.dtype) == "float64" for a in deciding)
        dtype = xp.float64 if found else xp.float32
    dtype = _array.floating_dtype(xp, dtype)
    if _array.dtype_name(dtype) == "float64" and not _array.has_float64_cosine(xp, home):
        msg = f"dtype must not be float64 on {_array.library(home)} here, which has no float64 cosine; give float32"
        raise ValueError(msg)
    return dtype


# --- products ---------------------------------------------------------------------------------------------


def _from_phases(xp: Any, positions: Array, /, *, words: list[Array], axes: int | None) -> Table:
    """With float64, for integers: turns times 2⁶⁴, in 64-bit integers that wrap at whole turns."""
    phase = _sum(n * row for n, row in zip(_columns(positions, axes), words, strict=True))
    return _of_angle(xp, xp.astype(phase, xp.float64) * (_TURN / 2**64), xp.float32)


def _from_pieces(
    xp: Any,
    positions: Array,
    /,
    *,
    pieces: list[list[Array]],
    axes: int | None,
    dtype: Any,
) -> Table:
    """With float64: the turns of each product, modulo one, in two pieces."""
    terms = []
    for p, high, low in zip(_columns(positions, axes), *pieces, strict=True):
        # p · f / 2π = p·high + p·low, the first free of rounding errors, and so is near − round
        near = p * high
        terms.append(near - xp.round(near) + p * low)
    return _of_turns(xp, _sum(terms), dtype)


def _from_words(xp: Any, whole: Array, part: Array | None, turns: Turns) -> Table:
    """Without float64: the top 32 bits of position x word, in 32-bit integers, then a float32 angle in two steps."""
    place, dtype = _array.creation(whole), xp.float32
    columns = _columns(whole, turns.axes)
    phase = _sum(_high_product(xp, n, row, place) for n, row in zip(columns, turns.words, strict=True))
    # phase = 2²⁰ step + rest, rest in [−2¹⁹, 2¹⁹). The step has 12 bits, and so has `short`, the unit
    # of its angle without its last digits: their float32 product is exact. What is left is small.
    step = (phase + 2**19) >> 20
    rest = xp.astype(phase - (step << 20), dtype)
    step = xp.astype(step, dtype)
    unit = _TURN / 2**12
    short = math.ldexp(round(math.ldexp(unit, 22)), -22)
    small = step * (unit - short) + rest * (_TURN / 2**32)
    c, s = xp.cos(step * short), xp.sin(step * short)
    # sin(small) = small and cos(small) = 1 − small²/2 to the last digit, as |small| < 1.1e-3
    near = _further(c, s, small, small * small * 0.5)
    if part is None:
        return near
    angle = _weighted(part, _constants(xp, turns.rows, part), turns.axes)
    return _further(*near, xp.sin(angle), 1 - xp.cos(angle))


def _from_learned(xp: Any, whole: Array, part: Array | None, frequencies: Array, dtype: Any) -> Table:
    """With frequencies that are an array: products in floating point, through which gradients pass."""
    _array.require_floating("frequencies", frequencies)
    if frequencies.ndim not in (1, 2, 3) or 0 in frequencies.shape:
        wanted = "(pairs,), (axes, pairs) or (heads, axes, pairs)"
        msg = f"frequencies must have shape {wanted}; got {tuple(frequencies.shape)}"
        raise ValueError(msg)
    real = xp.float64 if _array.has_float64(xp, frequencies) else xp.float32
    position = _array.cast(xp, whole, real) if part is None else _array.cast(xp, whole, real) + part
    frequencies = _array.cast(xp, frequencies, real)
    axes = None if frequencies.ndim == 1 else frequencies.shape[-2]
    rows = [frequencies] if axes is None else [frequencies[..., axis, :] for axis in range(axes)]
    if frequencies.ndim == 3:
        if position.ndim < 2:
            msg = f"positions must be (..., seq, axes) where each head has frequencies; got {tuple(position.shape)}"
            raise ValueError(msg)
        position = xp.expand_dims(position, axis=-3)  # (..., 1, seq, axes)
        rows = [xp.expand_dims(row, axis=-2) for row in rows]  # (heads, 1, pairs)
    angle = _weighted(position, rows, axes)
    if angle.dtype == xp.float32:  # as it is: another product would cost it digits
        return Table(xp.cos(angle), xp.sin(angle))
    return _of_turns(xp, angle * (1 / _TURN), dtype)


def _constants(xp: Any, rows: tuple[tuple[float, ...], ...], like: Array) -> list[Array]:
    return [xp.asarray(row, dtype=like.dtype, **_array.creation(like)) for row in rows]


def _weighted(positions: Array, rows: list[Array], axes: int | None) -> Array:
    """Return Σ_axis position[token, axis] · W[axis, pair]."""
    return _sum(p * row for p, row in zip(_columns(positions, axes), rows, strict=True))


def _columns(positions: Array, axes: int | None) -> list[Array]:
    """Return positions ``(...)``, or ``(..., axes)``, as one array ``(..., 1)`` for each axis."""
    return [column[..., None] for column in on_axes(positions, axes)]


def on_axes(positions: Array, axes: int | None, /, *, name: str = "positions") -> list[Array]:
    """Return positions ``(...)``, or ``(..., axes)``, as one array ``(...)`` for each axis."""
    if axes is None:
        return [positions]
    shape = tuple(positions.shape)
    if not shape or shape[-1] != axes:
        msg = f"{name} must end in an axis of length {axes}, one for each row of frequencies; got shape {shape}"
        raise ValueError(msg)
    return [positions[..., axis] for axis in range(axes)]


def _sum(terms: Iterable[Array]) -> Array:
    return reduce(operator.add, terms)


def _of_turns(xp: Any, turns: Array, dtype: Any) -> Table:
    """Return cosine and sine, in float32 or float64, of an angle in float64 turns."""
    return _of_angle(xp, (turns - xp.round(turns)) * _TURN, dtype)


def _of_angle(xp: Any, angle: Array, dtype: Any) -> Table:
    """Return cosine and sine, in float32 or float64, of a float64 angle between −π and π."""
    if angle.dtype == dtype or _array.has_fast_float64_cosine(angle):
        return Table(_array.cast(xp, xp.cos(angle), dtype), _array.cast(xp, xp.sin(angle), dtype))
    # Turn by the nearest float32 angle and then by the rest, below 2e-7: to the last digit, the
    # cosine of that is 1 and its sine is itself.
    near = xp.astype(angle, dtype)
    rest = xp.astype(angle - xp.astype(near, xp.float64), dtype)
    return _further(xp.cos(near), xp.sin(near), rest)


def _further(c: Array, s: Array, rise: Array, fall: Array | None = None) -> Table:
    """Turn a table by one more angle, of sine `rise` and cosine ``1 - fall``."""
    # cos(a + r) = cos a cos r − sin a sin r,  sin(a + r) = sin a cos r + cos a sin r
    if fall is None:
        return Table(c - s * rise, s + c * rise)
    return Table(c - (s * rise + c * fall), s + (c * rise - s * fall))


def _high_product(xp: Any, n: Array, words: Sequence[int], place: dict[str, Any]) -> Array:
    """Return bits 32 to 63 of n x word for int32 n and 64-bit words, in int32 arithmetic."""
    low16 = 0xFFFF

    def constants(piece: Any) -> Array:
        return xp.asarray([piece(word) for word in words], dtype=xp.int32, **place)

    # word = 2³² high + 2¹⁶ middle + low  and  n = 2¹⁶ top + bottom;  high and top have a sign
    high = constants(lambda word: word >> 32)
    middle = constants(lambda word: word >> 16 & low16)
    low = constants(lambda word: word & low16)
    top, bottom = n >> 16, n & low16
    # products of two 16-bit pieces fill 32 bits: their high and low halves are taken as patterns
    outer, inner = bottom * middle, top * low
    carry = ((bottom * low >> 16 & low16) + (outer & low16) + (inner & low16)) >> 16
    return n * high + top * middle + (outer >> 16 & low16) + (inner >> 16) + carry


# --- positions --------------------------------------------------------------------------------------------


def consecutive(start: Any, length: int, /, *, like: Array, name: str = "positions") -> Array:
    """Return the positions ``start, start + 1, ...``, for an int or a 0-d integer array."""
    given = _array.is_array(start)
    xp = _array.namespace(**{name: start}, like=like) if given else _array.namespace(like=like)
    wide = _array.has_float64(xp, like)
    dtype = xp.int64 if wide else xp.int32
    place = _array.creation(like)
    if not given:
        first = integer(name, start)
        _require_fit(wide, first, first + max(length - 1, 0), name=name)
        return xp.arange(first, first + length, dtype=dtype, **place)
    if not _array.is_integer(start):
        msg = f"{name} must be an integer where they are one number; got {_array.dtype_name(start.dtype)}"
        raise TypeError(msg)
    along = _parts.replicated(xp.arange(length, dtype=dtype, **place), like=start)
    return _array.cast(xp, start, dtype) + along


def placed(positions: Positions, /, *, like: Array | None, name: str = "positions") -> Array:
    """Return positions as an array: integers of 64 bits, or of 32 where there is no float64; float64 or float32."""
    home = _home(positions, like)
    named = {name: positions if _array.is_array(positions) else None, "like": like}
    xp = _array.namespace(**{name: array for name, array in named.items() if array is not None})
    wide = _array.has_float64(xp, home)
    given, part = _given(xp, home, positions, wide=wide, name=name)
    _array.require_known(name, given.shape)
    if part is not None:
        return _array.cast(xp, given, xp.float32) + part
    if _array.is_integer(given):
        return _array.cast(xp, given, xp.int64 if wide else xp.int32)
    return given if _array.dtype_name(given.dtype) == "float64" else _array.cast(xp, given, xp.float32)


def apart(xp: Any, positions: Positions, /, *, like: Array, name: str) -> Apart:
    """Return positions as arrays with no digit lost: `placed`, or integers and a rest where there is no float64."""
    if _array.has_float64(xp, like):
        return Apart(placed(positions, like=like, name=name), None)
    return Apart(*as_numbers(xp, like, positions, wide=False, name=name))


def beside(xp: Any, *places: Apart) -> Apart:
    """Return places ``(seq,)``, ``(batch, seq)``, ... on several axes side by side, ``(..., axes)``."""
    numbers, rests = zip(*places, strict=True)
    if not all(_array.is_integer(number) for number in numbers):
        numbers = tuple(_array.cast(xp, number, xp.float64) for number in numbers)
    rest = None
    if any(part is not None for part in rests):
        zero = xp.zeros((1,), dtype=xp.float32, **_array.creation(numbers[0]))
        rest = _stacked(xp, [zero if part is None else part for part in rests], like=numbers)
    return Apart(_stacked(xp, numbers, like=numbers), rest)


def _stacked(xp: Any, columns: Sequence[Array], *, like: Sequence[Array]) -> Array:
    """Return columns as one array, each with as many axes as the longest of `like`, whose first axes are shared."""
    most = max(column.ndim for column in like)
    full = list(columns)
    while any(column.ndim < most for column in full):
        full = [xp.expand_dims(column, axis=-2) if column.ndim < most else column for column in full]
    return xp.stack(xp.broadcast_arrays(*full), axis=-1)


def as_numbers(
    xp: Any, home: Array, positions: Positions | Apart, *, wide: bool, name: str = "positions"
) -> tuple[Array, Array | None]:
    """Return positions in float64; without it in int32, with what these leave (or None) in float32."""
    given, part = _given(xp, home, positions, wide=wide, name=name)
    if wide:
        return _array.cast(xp, given, xp.float64), None
    if _array.is_integer(given):
        return _array.cast(xp, given, xp.int32), part
    real = given if _array.dtype_name(given.dtype) == "float64" else _array.cast(xp, given, xp.float32)
    nearest = xp.round(real)
    return xp.astype(nearest, xp.int32), _array.cast(xp, real - nearest, xp.float32)


def _given(
    xp: Any, home: Array, positions: Positions | Apart, *, wide: bool, name: str = "positions"
) -> tuple[Array, Array | None]:
    """Return positions as an array of numbers, and what it leaves of real ones from the host (or None)."""
    if isinstance(positions, Apart):
        return positions
    if not _array.is_array(positions):
        return _from_host(xp, home, positions, wide=wide, name=name)
    kind = _array.dtype_name(positions.dtype)
    if not _array.is_integer(positions) and kind not in _array.FLOATING:
        msg = f"{name} must be integers or real numbers; got an array of {kind}"
        raise TypeError(msg)
    return positions, None


def _from_host(
    xp: Any, home: Array, positions: int | range | Sequence[Any], *, wide: bool, name: str
) -> tuple[Array, Array | None]:
    """Return host positions likewise, taken apart where the library has no float64 to hold them."""
    place, whole = _array.creation(home), xp.int64 if wide else xp.int32
    if isinstance(positions, range):
        _require_fit(wide, *positions[:1], *positions[-1:], name=name)
        return xp.arange(positions.start, positions.stop, positions.step, dtype=whole, **place), None
    if not isinstance(positions, Integral | Sequence):
        msg = f"{name} {_WANTED}; got {type(positions).__name__}"
        raise TypeError(msg)
    numbers, shape = _leaves(positions, name)
    _require_fit(wide, *((min(numbers), max(numbers)) if numbers else ()), name=name)

    def array(values: list[Any], dtype: Any) -> Array:
        return xp.reshape(xp.asarray(values, dtype=dtype, **place), shape)

    if all(isinstance(number, int) for number in numbers):
        return array(numbers, whole), None
    if wide:
        return array(numbers, xp.float64), None
    nearest = [round(number) for number in numbers]
    return array(nearest, whole), array([n - m for n, m in zip(numbers, nearest, strict=True)], xp.float32)


_WANTED = "must be an array, an int, a range or a sequence of finite numbers"


def _leaves(positions: Any, name: str, deepest: int = 64) -> tuple[list[float], tuple[int, ...]]:
    """Return the numbers of a number or of nested sequences in one list, and their shape."""
    if isinstance(positions, Sequence) and not isinstance(positions, str | bytes):
        if not deepest:
            msg = f"{name} {_WANTED}; got sequences within more than 64 others"
            raise ValueError(msg)
        parts = [([number], ()) if _is_plain(number) else _leaves(number, name, deepest - 1) for number in positions]
        shapes = {shape for _, shape in parts}
        if len(shapes) > 1:
            msg = f"{name} {_WANTED}; got rows of different lengths"
            raise ValueError(msg)
        return [number for numbers, _ in parts for number in numbers], (len(parts), *(shapes.pop() if shapes else ()))
    if isinstance(positions, bool) or not isinstance(positions, Real):
        msg = f"{name} {_WANTED}; got {type(positions).__name__}"
        raise TypeError(msg)
    number = int(positions) if isinstance(positions, Integral) else float(positions)
    if not _is_plain(number):
        msg = f"{name} {_WANTED}; got {number}"
        raise ValueError(msg)
    return [number], ()


def _is_plain(number: object) -> bool:
    """Whether `number` is a finite int or float of Python's own, as most are."""
    return type(number) is int or (type(number) is float and -math.inf < number < math.inf)


def _require_fit(wide: bool, *positions: float, name: str = "positions") -> None:  # noqa: FBT001  # one private fact
    limit = 2**53 if wide else 2**31 - 1
    for position in positions:
        if not -limit <= position <= limit:
            got = position if abs(position) < 2**64 else "one beyond 64 bits"  # which may be too long to be shown
            msg = f"{name} must not exceed {limit} in magnitude here; got {got}"
            raise ValueError(msg)
