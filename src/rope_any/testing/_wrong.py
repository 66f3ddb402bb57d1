"""Diagnose a wrong implementation: find the common mistakes that give the same numbers."""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rope_any._arrays import library
from rope_any._frequencies import frequencies
from rope_any._pairing import Pairing, join, split
from rope_any.testing._exact import Data, pair_errors


class Rotary(NamedTuple):
    """Parameters of a rotation in NumPy, correct by default, with fields for common mistakes."""

    pairing: Pairing
    frequencies: Data
    """``(axes, pairs)``."""
    start: int
    factor: float
    sign: int = 1
    shift: int = 0
    """A number added to the positions."""
    map_positions: Callable[[Data], Data] = np.asarray
    """A function applied to the positions."""
    exchanged: bool = False
    """Whether cosines and sines are exchanged."""
    minus: bool = True
    """Whether the minus of a·c − b·s is applied."""
    table_pairing: Pairing | None = None
    """The pairing of full-width tables, if it differs."""
    out: Pairing | None = None
    """The feature order of the result, if it differs."""
    position_dtype: str = "float64"
    frequency_dtype: str = "float64"
    angle_dtype: str = "float64"
    table_dtype: str = "float64"
    rotation_dtype: str = "float64"
    ulps: int = 0
    """The error of its frequencies in float32 ulps."""
    faults: tuple[str, ...] = ()
    """Descriptions of its mistakes."""

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return int(self.frequencies.shape[-1])


def _rotary_slice(r: Rotary, x: Data) -> Data:
    """Return the features of x that form pairs."""
    return x[..., r.start : r.start + 2 * r.pairs]


def rotate_wrongly(r: Rotary, x: Data, positions: Data) -> Data:
    """Return x ``(n, head_dim)``, rotated at positions ``(n, axes)`` with the mistakes of `r`, in a new array."""
    f = rounded(r.frequencies, r.frequency_dtype)
    f = f + r.ulps * np.spacing(f.astype(np.float32)).astype(np.float64) if r.ulps else f
    p = rounded(rounded(r.map_positions(positions) + r.shift, r.position_dtype), r.angle_dtype)
    angle = rounded(sum(rounded(p[:, [axis]] * f[axis], r.angle_dtype) for axis in range(len(f))), r.angle_dtype)
    c, s = (rounded(part, r.table_dtype) for part in (r.factor * np.cos(angle), r.sign * r.factor * np.sin(angle)))
    c, s = (s, c) if r.exchanged else (c, s)
    pairs = f.shape[-1]
    lib = library(x=x)
    a, b = split(rounded(_rotary_slice(r, x), r.rotation_dtype), r.pairing)
    wide = (join(lib, part, part, r.table_pairing or r.pairing) for part in (c, s))
    (c, c_b), (s, s_b) = (split(part, r.pairing) for part in wide)

    def rotated_component(a: Data, b: Data, c: Data, s: Data) -> Data:
        """Return a·c − b·s, one member of the rotated pairs; each operation is rounded to `r.rotation_dtype`."""
        return rounded(rounded(a * c, r.rotation_dtype) - rounded(b * s, r.rotation_dtype), r.rotation_dtype)

    end = r.start + 2 * pairs
    rotated = join(
        lib, rotated_component(a, b, c, s if r.minus else -s), rotated_component(b, a, c_b, -s_b), r.out or r.pairing
    )
    return np.concatenate([x[:, : r.start], rotated, x[:, end:]], axis=1)


def rounded(a: Any, dtype: str) -> Data:
    """Return float64 numbers, rounded to the dtype of this name (bfloat16 too), as float64."""
    if dtype == "float64":
        return np.asarray(a)
    if dtype == "bfloat16":  # float32 without its last 16 bits, to nearest, ties to even
        bits = np.asarray(a).astype(np.float32).view(np.uint32)
        bits = bits + 0x7FFF + (bits >> 16 & 1) & np.uint32(0xFFFF0000)
        return bits.view(np.float32).astype(np.float64)
    return np.asarray(a).astype(dtype).astype(np.float64)


# --- search for the mistakes ------------------------------------------------------------------------------

Change: TypeAlias = Callable[[Rotary], Rotary | None]
# The share of tokens at which each pair must match: a cosine with an error in its last digit may round differently.
MATCHING_SHARE = 0.97
_RADIANS_OF_ULPS = 12 * 2.0**-23  # error of an angle of 1 radian by 8 ulps of its frequency, and by its rounding
NEAR_TOLERANCE = 1e-5  # error of float32 angles at the first positions
POWERS = (0, *(10**n for n in range(10)))  # positions at which frequencies are measured


def find_causes(right: Rotary, x: Data, positions: Data, y: Data, *, bound: float) -> tuple[str, ...]:
    """
    Return likely mistakes, as texts, of a function that rotated x ``(n, head_dim)`` to y at positions ``(n, axes)``.

    They are the fewest that bring all errors, relative to the lengths of pairs, within `bound`. If there are none, they
    are those that fit the smallest positions, with "something else at larger positions"; or (). `right` itself is not
    tried: if y is right, a harmless mistake may be returned, such as frequencies in float32.
    """
    reach = np.abs(positions).max(axis=1)
    near = reach <= reach.min() + 7

    def miss(r: Rotary, rows: Any = slice(None), slack: float = 0.0) -> Data:
        """
        Return each pair's relative error of y against `r`, less `slack` per radian: the largest in most `rows`.

        After the pairs come the absolute errors of the features that `right` rotates and `r` does not.
        """
        want, pairs = rotate_wrongly(r, x[rows], positions[rows]), r.pairs
        off = pair_errors(y[rows], want, r.out or r.pairing, start=r.start, pairs=pairs)
        # `slack` for each radian of the largest angle
        off = off - slack * reach[rows, None] * np.abs(r.frequencies).sum(axis=0) if slack else off
        # features of the rotary slice that `r` does not rotate, one by one
        rest = sorted({*_rotary_features(right)} - {*_rotary_features(r)})
        off = np.concatenate([off, np.abs(y[rows] - want)[:, rest]], axis=1)
        most = np.quantile(off, MATCHING_SHARE, axis=0, method="higher")
        return np.where(np.isnan(most), np.inf, most)  # float16 overflows

    def closest(r: Rotary) -> float:
        """Return the largest error in `miss`, with each pair's best ulps (if float32); above the bound if none fits."""
        ulps = range(-8, 9) if r.frequency_dtype == "float32" else range(1)  # powers in float32 differ by method
        if len(ulps) > 1 and (least := np.max(miss(r, slack=_RADIANS_OF_ULPS))) > bound:
            return float(least)
        return float(np.max(np.min([miss(r._replace(ulps=n)) for n in ulps], axis=0)))

    if not np.isfinite(y).all():
        return ("infinite or NaN values",)
    # Drop what rounding can't explain: 7 · 2⁻⁷ radians is the largest error of bfloat16 here
    kinds = [r for r in _structures(right, x, positions, y) if np.max(miss(r, near)) <= 0.1]
    found = [r._replace(**dtypes, faults=(*r.faults, *fault)) for r in kinds for fault, dtypes in _precisions()]
    for count in range(1, 5):
        wrong = [r for r in found if len(r.faults) == count]
        misses = [closest(r) for r in wrong]
        if (least := min(misses, default=np.inf)) <= bound:
            # two descriptions of the same rotation differ in their last digits
            return next(r.faults for r, off in zip(wrong, misses, strict=True) if off <= 2 * least + 1e-7)
    # a reference that is close at the first positions, where rounding is small, has another mistake at larger ones
    close = [r for r in kinds if np.max(miss(r, near)) <= NEAR_TOLERANCE]
    best = min(close, key=lambda r: len(r.faults), default=right)
    return (*best.faults, "something else at larger positions") if best.faults else ()


def _rotary_features(r: Rotary) -> range:
    """Return the indices of the features that `r` rotates."""
    return range(r.start, r.start + 2 * r.pairs)


def _structures(right: Rotary, x: Data, positions: Data, y: Data) -> Iterator[Rotary]:
    """Yield `right` unchanged, then with one of `_changes`, then with two at once; skip what doesn't apply."""
    changes = list(_changes(right, x, positions, y))
    for count in range(3):
        for chosen in combinations(changes, count):
            r: Rotary | None = right
            for change in chosen:
                r = r and change(r)
            if r is not None:
                yield r


def _changes(right: Rotary, x: Data, positions: Data, y: Data) -> Iterator[Change]:
    """Yield functions that copy a `Rotary` with one more mistake, not of rounding, or return None if it can't."""
    pairs, head_dim = right.pairs, x.shape[-1]
    other = _other(right.pairing)
    yield _change(f"the other pairing: {other}", pairing=other)
    yield _change("the opposite sign: pairs rotate backwards", sign=-right.sign)
    for fault, fields in FIELDS.items():
        yield _change(fault, **fields)
    if {*_changed_features(x, y)} <= {*_rotary_features(right)}:
        yield _change("nothing is rotated, as if all positions were 0", map_positions=np.zeros_like)
    others = {fault: at for fault, at in POSITIONS.items() if (at(positions) != positions).any()}
    yield from (_change(fault, map_positions=at) for fault, at in others.items())
    yield from (_change_frequencies(fault, of) for fault, of in FREQUENCIES.items())
    if right.factor != 1:
        yield _change("the attention factor left out", factor=1.0)
        yield _change("the attention factor counted twice", factor=right.factor**2)
    for start in {0, head_dim - 2 * pairs} - {right.start}:
        yield _change(f"another slice: features {start} to {start + 2 * pairs - 1} are rotated", start=start)
    if 2 * pairs < head_dim and _has_base(right):
        # fᵢ = base^(−2i/rotary_dim)  ⇒  base^(−2i/head_dim) = fᵢ^(rotary_dim/head_dim)
        slower = right.frequencies ** (2 * pairs / head_dim)
        yield _change("exponents over head_dim rather than rotary_dim", frequencies=slower)
    yield lambda r: _other_width(r, _changed_features(x, y))
    yield lambda r: _change(f"features are returned in the order {_other(r.pairing)}", out=_other(r.pairing))(r)
    yield lambda r: _change(f"tables in the feature order of {_other(r.pairing)}", table_pairing=_other(r.pairing))(r)
    # other bases and factors are those that would turn x into y
    rows = [row[0] for p in POWERS if len(row := np.flatnonzero((positions == p).all(axis=1)))]
    places = positions[rows, 0]
    if len(right.frequencies) == 1 and {0, 1} <= set(places):
        yield lambda r: _other_base(r, measure_frequencies(r, x[rows], y[rows], places), 3)
        yield lambda r: _other_base(r, measure_frequencies(r, x[rows], y[rows], places), 6)
        yield lambda r: _other_base(r, measure_frequencies(r, x[rows], y[rows], places), 17)
        yield lambda r: _scaled_frequencies(r, measure_frequencies(r, x[rows], y[rows], places), 3)
        yield lambda r: _scaled_frequencies(r, measure_frequencies(r, x[rows], y[rows], places), 17)
    yield lambda r: _other_factor(r, x, y)


def _change(fault: str, **fields: Any) -> Change:
    """Return a function that copies a `Rotary` with these fields changed and `fault` added to its faults."""
    return lambda r: r._replace(faults=(*r.faults, fault), **fields)


def _change_frequencies(fault: str, transform: Callable[[Data], Data]) -> Change:
    """Return a function that copies a `Rotary` with transformed frequencies and `fault` added to its faults."""
    return lambda r: _change(fault, frequencies=transform(r.frequencies))(r)


def _index_in_call(positions: Data) -> Data:
    """Return the index of each token in its call, on each axis of the positions ``(tokens, axes)``."""
    return positions - _first_of_call(positions)


def _first_of_call(positions: Data) -> Data:
    """Return for each token the position ``(tokens, axes)`` of the first in its consecutive run (by the first axis)."""
    begins = np.diff(positions[:, 0], prepend=positions[0, 0] - 2) != 1
    return positions[np.maximum.accumulate(np.where(begins, np.arange(len(positions)), 0))]


def _as_int32(positions: Data) -> Data:
    """Return positions ``(tokens, axes)`` as if the int64 of each call were read as int32: p0, 0, p1, 0, ..."""
    index, first = _index_in_call(positions), _first_of_call(positions)
    return np.where(index % 2, 0, first + index // 2)


FIELDS: dict[str, dict[str, Any]] = {
    "positions one too large": {"shift": 1},
    "positions one too small": {"shift": -1},
    "cosines and sines exchanged": {"exchanged": True},
    "the minus left out: a·c + b·s": {"minus": False},
}
POSITIONS: dict[str, Callable[[Data], Data]] = {
    "positions ignored: all tokens are rotated as at 1": np.ones_like,
    "positions ignored: each call counts from 0": _index_in_call,
    "all tokens of a call are rotated as its first": _first_of_call,
    "int64 positions are read as int32: every second one is 0": _as_int32,
    "all axes take the positions of the first": lambda positions: positions[:, :1] + 0 * positions,
}
FREQUENCIES: dict[str, Callable[[Data], Data]] = {
    "all frequencies times π/180: angles treated as degrees": np.deg2rad,
    "all frequencies times 180/π: angles converted to degrees": np.rad2deg,
    "all frequencies times 2π: treated as turns": lambda f: 2 * np.pi * f,
    "frequencies inverted: positive powers of the base": np.reciprocal,
}


def _other(pairing: Pairing) -> Pairing:
    """Return the pairing that is not `pairing`."""
    return "interleaved" if pairing == "half" else "half"


def _has_base(r: Rotary) -> bool:
    """Whether the frequencies are powers of a base; False for several axes or a single pair."""
    rows, pairs = r.frequencies.shape
    return rows == 1 and pairs > 1 and np.allclose(r.frequencies[0], r.frequencies[0, 1] ** np.arange(pairs))


def _changed_features(x: Data, y: Data) -> range:
    """Return the range from the first to the last feature that differs in x and y, ``(n, features)``; maybe empty."""
    where = np.flatnonzero((y != x).any(axis=0))
    return range(where[0], where[-1] + 1) if len(where) else range(0)


def _other_width(r: Rotary, moved: range) -> Rotary | None:
    """Return `r` with rotary slice `moved` and its base's frequencies; None if odd, empty, of its width or no base."""
    width, pairs = len(moved), r.pairs
    if not width or width % 2 or width == 2 * pairs or not _has_base(r):
        return None
    # fᵢ = base^(−i/n)  ⇒  base^(−i/m) = f₁^(i n/m)
    f = r.frequencies[0, 1] ** (np.arange(width // 2) * 2 * pairs / width)
    fault = f"another rotary_dim, {width}: features {moved[0]} to {moved[-1]} are rotated"
    return r._replace(frequencies=f[None], start=moved[0], faults=(*r.faults, fault))


def _other_factor(r: Rotary, x: Data, y: Data) -> Rotary | None:
    """Return `r` with the attention factor of y, the median of |y| / |x| of pairs; None if its own or out of range."""
    orders = ((x, r.pairing), (y, r.out or r.pairing))
    before, after = (np.hypot(*split(_rotary_slice(r, part), order)) for part, order in orders)
    factor = float(np.median(after / before))
    if not 1e-3 < factor < 1e3 or abs(factor / r.factor - 1) < 1e-6:
        return None
    return _change(f"an attention factor of {factor:.6g} rather than {r.factor:.6g}", factor=factor)(r)


def measure_frequencies(r: Rotary, x: Data, y: Data, positions: Data) -> Data:
    """Return the frequencies ``(pairs,)`` that rotate x to y at `positions` 0, 1, 10 on, by pairing and sign of `r`."""
    pairs = r.pairs
    orders = ((x, r.pairing), (y, r.out or r.pairing))
    z, w = (a + 1j * b for a, b in (split(_rotary_slice(r, part), order) for part, order in orders))
    f = np.zeros(pairs)
    for place, rotation in zip(positions[1:], (w / z / (w[0] / z[0]))[1:], strict=True):
        # each angle is known modulo one full turn; the frequencies so far leave a small part of that open
        f += np.angle(rotation * np.exp(-1j * r.sign * place * f)) * r.sign / place
    return f


def _other_base(r: Rotary, measured: Data, digits: int) -> Rotary | None:
    """Return `r` with the base closest to frequencies `measured`, to `digits` digits; None if its own or unfit."""
    pairs = len(measured)
    # fᵢ = base^(−i/n)  ⇒  base = fᵢ^(−n/i)
    i = np.flatnonzero(measured[1:] > 1e-3) + 1
    if not len(i):
        return None
    # weighted by precision: an error e of fᵢ is an error (n/i) e/fᵢ of the logarithm
    weights = (i * measured[i]) ** 2
    log = np.sum(weights * (-pairs / i) * np.log(measured[i])) / np.sum(weights)
    base = float(f"{np.exp(log):.{digits}g}")
    if not 1 < base < 1e12:
        return None
    row = np.asarray([frequencies(2 * pairs, base=base)])
    if np.allclose(row, r.frequencies, rtol=1e-6, atol=0):
        return None
    # schemes by parts leave the second pair unscaled
    unscaled = ", without scaling" if pairs > 1 and np.isclose(row[0, 1], r.frequencies[0, 1], rtol=1e-6) else ""
    return r._replace(frequencies=row, faults=(*r.faults, f"other frequencies: those of base {base:.8g}{unscaled}"))


def _scaled_frequencies(r: Rotary, measured: Data, digits: int) -> Rotary | None:
    """Return `r`, frequencies times the median of `measured` / its own, to `digits` digits; None if 1 or unfit."""
    f = r.frequencies[0]
    fast = f > 1e-3
    scale = float(f"{np.median(measured[fast] / f[fast]):.{digits}g}") if fast.any() else 1.0
    if abs(scale - 1) < 1e-6 or not 1e-6 < scale < 1e3:
        return None
    return r._replace(frequencies=scale * r.frequencies, faults=(*r.faults, f"all frequencies times {scale:.6g}"))


def _precisions() -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield (faults, `Rotary` fields) per rounding: none, one up to the angles, one of table or rotation, or both."""
    angles: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), {})]
    tables = angles.copy()
    for dtype in ("float32", "bfloat16", "float16"):
        angles.append(((f"frequencies in {dtype}",), {"frequency_dtype": dtype}))
        angles.append(((f"angles in {dtype}",), {"frequency_dtype": dtype, "angle_dtype": dtype}))
    for dtype in ("bfloat16", "float16"):
        angles.append(((f"positions in {dtype}",), {"position_dtype": dtype}))
        tables.append(((f"the table in {dtype}",), {"table_dtype": dtype}))
        tables.append(((f"the rotation itself in {dtype}",), {"table_dtype": dtype, "rotation_dtype": dtype}))
    for one, first in angles:
        for other, second in tables:
            yield (*one, *other), first | second


ROUNDINGS = tuple({fault for faults, _ in _precisions() for fault in faults})
"""The mistakes that are roundings, as texts: none explains a property that doesn't hold."""
