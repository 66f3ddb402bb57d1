"""Frequencies: the angle of each pair of features per position. Python numbers, no arrays."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rope_any._checks import (
    MAX_FEATURES,
    ArgumentTypeError,
    ArgumentValueError,
    Text,
    integer,
    keyword_hints,
    positive,
    real,
    shown,
)

Row: TypeAlias = tuple[float, ...]
"""One frequency per pair, in radians per position."""

Frequencies: TypeAlias = Row | tuple[Row, ...] | tuple[tuple[Row, ...], ...]
"""The frequencies of a `Rope`: one row; one row for each axis of the positions; or such rows for each head."""

_LARGEST = 2.0**16  # far above any frequency in use; up to here tables keep their error bounds (see `_table`)
_BITS = 192
INVERSE_TURN = 0x28BE60DB9391054A7F09D5F47D4D377036D8A5664F10E410  # ⌊2¹⁹² / 2π⌋


@dataclass(frozen=True, eq=False)
class PreparedFrequencies:
    """Host frequencies in the forms that exact products need: rows by axis, each of all heads, head by head."""

    rows: tuple[Row, ...]
    """Radians per position."""
    high: tuple[Row, ...]
    """Each f / 2π rounded to 22 bits, in turns (2π) per position."""
    low: tuple[Row, ...]
    """The rest of f / 2π."""
    fixed_point: tuple[tuple[int, ...], ...]
    """f / 2π modulo one turn, in units of 2⁻⁶⁴ turns, as signed 64-bit integers."""
    axes: int | None
    """The length of the last axis of the positions; None for a single row: its positions have no such axis."""
    heads: int | None
    """The number of heads that have their own frequencies; None if all have the same."""

    @property
    def pairs(self) -> int:
        """The number of pairs of features of one head."""
        return len(self.rows[0]) // (self.heads or 1)

    @property
    def words(self) -> tuple[tuple[int, ...], ...]:
        """Three rows for each row of `fixed_point`: the upper 32 bits with the sign, the next 16 bits, the last 16."""
        cuts = (lambda word: word >> 32), (lambda word: word >> 16 & 0xFFFF), (lambda word: word & 0xFFFF)
        return tuple(tuple(map(cut, row)) for row in self.fixed_point for cut in cuts)


@keyword_hints(
    dict.fromkeys(("theta", "rope_theta"), "write base=")
    | dict.fromkeys(("dim", "rotary_dim", "head_dim"), "give it first, without a name: frequencies(64)")
)
def frequencies(rotary_dim: int, /, *, base: float = 10_000.0) -> Row:
    """
    Return the frequencies of the paper, ``base ** (-2i / rotary_dim)``.

    Parameters
    ----------
    rotary_dim : int
        The number of rotated features; even and positive. Each pair of them has one frequency.
    base : float, optional
        The base, elsewhere called ``theta`` or ``rope_theta``; positive.

    Returns
    -------
    tuple of float
        ``rotary_dim // 2`` frequencies in radians per position, from fast (1) to slow if the base is above 1.

    Raises
    ------
    TypeError
        If `rotary_dim` is not an integer or `base` is not a real number.
    ValueError
        If `rotary_dim` is odd, not positive or beyond 2²⁰, or `base` is not from 1e-100 to 1e100, or so small that a
        frequency exceeds 65536.

    Notes
    -----
    Su et al., *RoFormer: Enhanced Transformer with Rotary Position Embedding*, arXiv:2104.09864, section 3.2.2, which
    counts them from 1. Elsewhere they are called ``θᵢ``, ``inv_freq`` or ``freqs``.

    Examples
    --------
    >>> ra.frequencies(8)
    (1.0, 0.1, 0.01, 0.001)
    """
    if isinstance(rotary_dim, float) and isinstance(base, int) and 2 <= base <= MAX_FEATURES:
        hint = f"the dimension comes first: frequencies({base}, base={rotary_dim!r})"
        raise ArgumentTypeError("rotary_dim", "be an integer", rotary_dim, hint)
    dim = integer("rotary_dim", rotary_dim)
    if not 2 <= dim <= MAX_FEATURES or dim % 2:
        hint = f"{dim - 1} leaves the last feature unrotated" if 2 < dim <= MAX_FEATURES else ""
        raise ArgumentValueError("rotary_dim", f"be even and from 2 to {MAX_FEATURES}", dim, hint)
    b = positive("base", base)
    # fᵢ = base^(−2i/d),  i = 0 … d/2 − 1
    return as_row(tuple(b ** (-2 * i / dim) for i in range(dim // 2)))


def as_row(values: object, name: str = "frequencies") -> Row:
    """Return a row of frequencies, a tuple or list, as floats; raise for other types, an empty row, or |f| > 65536."""
    numbers = enumerate(_require_sequence(values, name))
    row = tuple(value if type(value) is float else real(f"{name}[{i}]", value) for i, value in numbers)
    for f in row:
        if not abs(f) <= _LARGEST:
            raise ArgumentValueError(name, "be at most 65536 radians per position, and finite", f)
    if not row:
        raise ArgumentValueError(name, "have at least one pair", Text("none"))
    return row


def as_frequencies(values: object, depth: int = 3, name: str = "frequencies") -> Frequencies:
    """Return tuples or lists of frequencies, up to `depth` deep, as tuples of floats; raise if deeper or uneven."""
    values = _require_sequence(values, name)
    if not any(isinstance(value, tuple | list) for value in values):
        return as_row(values, name)
    for value in values:
        if not isinstance(value, tuple | list):
            got = Text(f"{shown(value)} among rows")
            raise ArgumentTypeError(name, "be all numbers or all rows of numbers", got)
    if depth == 1:
        wanted = "have shape (pairs,), (axes, pairs) or (heads, axes, pairs)"
        raise ArgumentValueError("frequencies", wanted, Text("deeper rows"))
    rows: Any = tuple(as_frequencies(value, depth - 1, f"{name}[{i}]") for i, value in enumerate(values))
    shapes = sorted(set(map(_shape, rows)))
    if len(shapes) > 1:
        wanted = "have rows of the same length, one per axis, and as many in each head"
        found = f"lengths {[n for (n,) in shapes]}" if len(shapes[0]) == len(shapes[-1]) == 1 else f"shapes {shapes}"
        raise ArgumentValueError("frequencies", wanted, Text(found))
    return rows  # type: ignore[no-any-return]  # rows of one shape


def _shape(values: Any) -> tuple[int, ...]:
    """Return the shape of nested tuples, outermost length first; () for a number. Only first elements are read."""
    return (len(values), *_shape(values[0])) if isinstance(values, tuple) else ()


def as_rows(freqs: Frequencies, /) -> tuple[Row, ...]:
    """Return frequencies as one row for each axis; a single row is that of one axis. Raise if heads have their own."""
    if len(_shape(freqs)) == 3:
        raise ArgumentValueError("frequencies", "be the same for all heads here", Text(f"{len(freqs)} heads"))
    return (freqs,) if isinstance(freqs[0], float) else freqs  # type: ignore[return-value]  # rows by the lines above


def sum_over_axes(freqs: Frequencies, /) -> Row:
    """Return the sum of the frequencies of each pair over all axes: the angle if a token has one position on all."""
    return tuple(map(sum, zip(*as_rows(freqs), strict=True)))


def tokens_per_turn(freqs: Frequencies, /) -> Row:
    """Return the wavelength of each pair: in how many tokens it rotates by 2π; infinity for frequency 0."""
    return tuple(2 * math.pi / abs(f) if f else math.inf for f in sum_over_axes(freqs))


def _require_sequence(values: object, name: str) -> Sequence[object]:
    """Return `values` unchanged; raise unless they are a tuple or a list, with `name` as their name in the error."""
    if not isinstance(values, tuple | list):
        wanted = "be a tuple of floats, or of one such row per axis"
        raise ArgumentTypeError(name, wanted, values, _frequencies_hint(values))
    return values


def _frequencies_hint(values: object) -> str:
    """Return what to write instead of frequencies of a wrong type, as the hint of an error; "" if unknown."""
    if hasattr(values, "shape"):
        return LEARNED if hasattr(values, "tolist") else "write tuple(map(float, frequencies))"
    if type(values).__name__ == "Rope":  # this module can't import it
        return "give rope.frequencies"
    if isinstance(values, int) and 2 <= values <= MAX_FEATURES:
        return f"write frequencies({values}) for {values} features"
    if isinstance(values, Mapping | str) or any(hasattr(values, name) for name in ("__fspath__", "to_dict")):
        return "Rope.from_config reads a config"
    return "if they are positions: cos_sin takes them first, a Rope in its calls" if isinstance(values, range) else ""


LEARNED = (
    "write tuple(frequencies.tolist()) if they are fixed; if they are learned, "
    "rotate(x, *cos_sin(positions, frequencies), pairing=...) without a Rope"
)
"""The hint of an error about frequencies in an array."""


def prepare(frequencies: Frequencies, /) -> PreparedFrequencies:
    """Return frequencies in the forms that exact products with positions need: two floats, and fixed point."""
    heads, axes = (None, None, *_shape(frequencies)[:-1])[-2:]
    # one row per axis: of all heads, the only rows, or the only row
    of_heads: Any = zip(*frequencies, strict=True) if heads else ((row,) for row in as_rows(frequencies))
    rows = tuple(tuple(f for part in parts for f in part) for parts in of_heads)
    high, low, fixed_point = zip(*(zip(*map(_turns_per_position, row), strict=True) for row in rows), strict=True)
    return PreparedFrequencies(rows, high, low, fixed_point, axes, heads)


def _turns_per_position(f: float) -> tuple[float, float, int]:
    """Return f / 2π rounded to 22 bits, the rest, and all of it modulo 1 in signed units of 2⁻⁶⁴."""
    numerator, denominator = f.as_integer_ratio()
    fine = numerator * INVERSE_TURN // denominator  # f / 2π in units of 2⁻¹⁹² turns
    mantissa, exponent = math.frexp(fine / (1 << _BITS))
    high = math.ldexp(round(math.ldexp(mantissa, 22)), exponent - 22)
    numerator, denominator = high.as_integer_ratio()
    low = (fine - (numerator << _BITS) // denominator) / (1 << _BITS)
    word = (fine + (1 << _BITS - 65) >> _BITS - 64) % (1 << 64)
    return high, low, word - (word >> 63 << 64)
