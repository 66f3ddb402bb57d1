"""Find out what is wrong with an implementation: which of the usual mistakes gives the same numbers."""

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rope_any._arrays import library
from rope_any._frequencies import frequencies
from rope_any._pairing import Pairing, join, split
from rope_any.testing._exact import Data, apart


class Rotary(NamedTuple):
    """A rotation in plain NumPy, with all that may go wrong in it."""

    pairing: Pairing
    frequencies: Data
    """``(axes, pairs)``."""
    start: int
    factor: float
    sign: int = 1
    shift: int = 0
    """What is added to the positions."""
    places: Callable[[Data], Data] = np.asarray
    """What is made of the positions."""
    exchanged: bool = False
    """Whether cosines stand for sines and sines for cosines."""
    minus: bool = True
    """Whether the minus of a·c − b·s is there."""
    laid_out: Pairing | None = None
    """The order of features that full-width tables are made for, where it is another."""
    out: Pairing | None = None
    """The order that features come out in, where it is another."""
    position_dtype: str = "float64"
    frequency_dtype: str = "float64"
    angle_dtype: str = "float64"
    table_dtype: str = "float64"
    turn_dtype: str = "float64"
    ulps: int = 0
    """By how many units of float32 its frequencies are off."""
    said: tuple[str, ...] = ()
    """What is wrong, in words."""


def turned(r: Rotary, x: Data, positions: Data) -> Data:
    """Return x ``(n, head_dim)``, turned as `r` does it at positions ``(n, axes)``."""
    f = rounded(r.frequencies, r.frequency_dtype)
    f = f + r.ulps * np.spacing(f.astype(np.float32)).astype(np.float64) if r.ulps else f
    p = rounded(rounded(r.places(positions) + r.shift, r.position_dtype), r.angle_dtype)
    angle = rounded(sum(rounded(p[:, [axis]] * f[axis], r.angle_dtype) for axis in range(len(f))), r.angle_dtype)
    c, s = (rounded(part, r.table_dtype) for part in (r.factor * np.cos(angle), r.sign * r.factor * np.sin(angle)))
    c, s = (s, c) if r.exchanged else (c, s)
    pairs = f.shape[-1]
    lib = library(x=x)
    a, b = split(rounded(x, r.turn_dtype), r.pairing, r.start, pairs)
    wide = (join(lib, part, part, r.laid_out or r.pairing) for part in (c, s))
    (c, c_b), (s, s_b) = (split(part, r.pairing, 0, pairs) for part in wide)

    def line(a: Data, b: Data, c: Data, s: Data) -> Data:
        return rounded(rounded(a * c, r.turn_dtype) - rounded(b * s, r.turn_dtype), r.turn_dtype)

    end = r.start + 2 * pairs
    turning = join(lib, line(a, b, c, s if r.minus else -s), line(b, a, c_b, -s_b), r.out or r.pairing)
    return np.concatenate([x[:, : r.start], turning, x[:, end:]], axis=1)


def rounded(a: Any, dtype: str) -> Data:
    """Return float64 numbers that a dtype holds."""
    if dtype == "float64":
        return np.asarray(a)
    if dtype == "bfloat16":  # float32 without its last 16 bits, to nearest, ties to even
        bits = np.asarray(a).astype(np.float32).view(np.uint32)
        bits = bits + 0x7FFF + (bits >> 16 & 1) & np.uint32(0xFFFF0000)
        return bits.view(np.float32).astype(np.float64)
    return np.asarray(a).astype(dtype).astype(np.float64)


# --- which of them does the same --------------------------------------------------------------------------

Change: TypeAlias = Callable[[Rotary], Rotary | None]
# Of every pair at most so many tokens may differ: a cosine that is off in its last digit rounds to another bfloat16.
MOST = 0.97
CLOSE = 1e-5  # what angles in float32 may miss at the first positions
POWERS = (0, *(10**n for n in range(10)))  # positions by which frequencies are measured


def causes(right: Rotary, x: Data, positions: Data, y: Data, *, bound: float) -> tuple[str, ...]:
    """
    Return what is wrong with a function that turns x ``(n, head_dim)`` to y at positions ``(n, axes)``.

    It is that of the wrong references that come within the bound which has the fewest faults, and of these the nearest;
    nothing if there is none.
    """
    reach = np.abs(positions).max(axis=1)
    near = reach <= reach.min() + 7

    def miss(r: Rotary, rows: Any = slice(None)) -> Data:
        """Return by how much it misses each pair at most tokens."""
        want, pairs = turned(r, x[rows], positions[rows]), r.frequencies.shape[-1]
        off = apart(y[rows], want, r.out or r.pairing, start=r.start, pairs=pairs)
        # what should turn and doesn't as `r` has it, one by one
        rest = sorted({*_span(right)} - {*_span(r)})
        off = np.concatenate([off, np.abs(y[rows] - want)[:, rest]], axis=1)
        most = np.quantile(off, MOST, axis=0, method="higher")
        return np.where(np.isnan(most), np.inf, most)  # float16 overflows

    if not np.isfinite(y).all():
        return ("numbers that are infinite or none",)
    # What no rounding explains isn't looked at again: 7 · 2⁻⁷ radians is the most that bfloat16 can miss here
    kinds = [r for r in _structures(right, x, positions, y) if np.max(miss(r, near)) <= 0.1]
    found = [r._replace(**dtypes, said=(*r.said, *said)) for r in kinds for said, dtypes in _precisions()]
    for count in range(1, 5):
        wrong = [r for r in found if len(r.said) == count]
        misses = [np.max(np.min([miss(r._replace(ulps=n)) for n in _ulps(r)], axis=0)) for r in wrong]
        if (least := min(misses, default=np.inf)) <= bound:
            # two that are the same rotation in other words differ in their last digits
            return next(r.said for r, off in zip(wrong, misses, strict=True) if off <= 2 * least + 1e-7)
    # what comes close at the first positions, where hardly anything is rounded, has another fault further on
    close = [r for r in kinds if np.max(miss(r, near)) <= CLOSE]
    best = min(close, key=lambda r: len(r.said), default=right)
    return (*best.said, "something else at larger positions") if best.said else ()


def _span(r: Rotary) -> range:
    """Return the features that turn."""
    return range(r.start, r.start + 2 * r.frequencies.shape[-1])


def _ulps(r: Rotary) -> range:
    """Return what frequencies may be off by: each way to compute a power in float32 rounds otherwise."""
    return range(-8, 9) if r.frequency_dtype == "float32" else range(1)


def _structures(right: Rotary, x: Data, positions: Data, y: Data) -> Iterator[Rotary]:
    """Yield what is right but for nothing, one thing, or two."""
    changes = list(_changes(right, x, positions, y))
    for count in range(3):
        for chosen in combinations(changes, count):
            r: Rotary | None = right
            for change in chosen:
                r = r and change(r)
            if r is not None:
                yield r


def _changes(right: Rotary, x: Data, positions: Data, y: Data) -> Iterator[Change]:
    """Yield the ways to be wrong other than by rounding; each gives None where it doesn't apply."""
    pairs, head_dim = right.frequencies.shape[-1], x.shape[-1]
    other = _other(right.pairing)
    yield _change(f"the other pairing: {other}", pairing=other)
    for said, fields in SIMPLE.items():
        yield _change(said, **fields)
    if {*_moved(x, y)} <= {*_span(right)}:
        yield _change("nothing turns, as if all positions were 0", places=np.zeros_like)
    yield from (_change(said, places=at) for said, at in PLACES.items() if (at(positions) != positions).any())
    yield from (_of_all(said, of) for said, of in FREQUENCIES.items())
    if right.factor != 1:
        yield _change("the attention factor left out", factor=1.0)
        yield _change("the attention factor counted twice", factor=right.factor**2)
    for start in {0, head_dim - 2 * pairs} - {right.start}:
        yield _change(f"another slice: features {start} to {start + 2 * pairs - 1} turn", start=start)
    if 2 * pairs < head_dim and len(right.frequencies) == 1:
        yield _of_head(right, head_dim, pairs)
    yield lambda r: _of_width(r, _moved(x, y))
    yield lambda r: _change(f"features come out in the order {_other(r.pairing)}", out=_other(r.pairing))(r)
    yield lambda r: _change(f"tables laid out for {_other(r.pairing)}", laid_out=_other(r.pairing))(r)
    rows = [row[0] for p in POWERS if len(row := np.flatnonzero((positions == p).all(axis=1)))]
    places = positions[rows, 0]
    if len(right.frequencies) == 1 and {0, 1} <= set(places):
        yield lambda r: _of_base(r, _measured(r, x[rows], y[rows], places), 3)
        yield lambda r: _of_base(r, _measured(r, x[rows], y[rows], places), 6)
        yield lambda r: _of_base(r, _measured(r, x[rows], y[rows], places), 17)
        yield lambda r: _scaled(r, _measured(r, x[rows], y[rows], places), 3)
        yield lambda r: _scaled(r, _measured(r, x[rows], y[rows], places), 17)
    yield lambda r: _of_factor(r, x, y)


def _change(said: str, **fields: Any) -> Change:
    return lambda r: r._replace(said=(*r.said, said), **fields)


def _of_all(said: str, of: Callable[[Data], Data]) -> Change:
    """Change each frequency."""
    return lambda r: _change(said, frequencies=of(r.frequencies))(r)


def _within(positions: Data) -> Data:
    """Return how many tokens stand before each in its call."""
    return positions - _first(positions)


def _first(positions: Data) -> Data:
    """Return the first position of each call, which are consecutive."""
    begins = np.diff(positions[:, 0], prepend=positions[0, 0] - 2) != 1
    return positions[np.maximum.accumulate(np.where(begins, np.arange(len(positions)), 0))]


SIMPLE: dict[str, dict[str, Any]] = {
    "the other sign: pairs turn backwards": {"sign": -1},
    "positions one too large": {"shift": 1},
    "positions one too small": {"shift": -1},
    "cosines and sines exchanged": {"exchanged": True},
    "the minus left out: a·c + b·s": {"minus": False},
}
PLACES: dict[str, Callable[[Data], Data]] = {
    "positions ignored: all tokens turn as at 1": np.ones_like,
    "positions ignored: each call counts from 0": _within,
    "all tokens of a call turn as its first": _first,
}
FREQUENCIES: dict[str, Callable[[Data], Data]] = {
    "all frequencies times π/180: angles taken for degrees": np.deg2rad,
    "all frequencies times 180/π: angles made degrees": np.rad2deg,
    "all frequencies times 2π: taken for turns": lambda f: 2 * np.pi * f,
    "frequencies upside down: a power above 0 of the base": np.reciprocal,
}


def _other(pairing: Pairing) -> Pairing:
    return "interleaved" if pairing == "half" else "half"


def _of_head(right: Rotary, head_dim: int, pairs: int) -> Change:
    """Let the exponents of a partial rotary run over the head rather than over what turns."""

    def change(r: Rotary) -> Rotary | None:
        if not _plain(right):
            return None
        # fᵢ = base^(−2i/rotary_dim)  ⇒  base^(−2i/head_dim) = fᵢ^(rotary_dim/head_dim)
        slower = right.frequencies ** (2 * pairs / head_dim)
        return r._replace(frequencies=slower, said=(*r.said, "exponents over head_dim rather than rotary_dim"))

    return change


def _plain(r: Rotary) -> bool:
    """Whether frequencies are those of a base."""
    rows, pairs = r.frequencies.shape
    return rows == 1 and pairs > 1 and np.allclose(r.frequencies[0], r.frequencies[0, 1] ** np.arange(pairs))


def _moved(x: Data, y: Data) -> range:
    """Return the features from the first to the last that isn't what it was."""
    where = np.flatnonzero((y != x).any(axis=0))
    return range(where[0], where[-1] + 1) if len(where) else range(0)


def _of_width(r: Rotary, moved: range) -> Rotary | None:
    """Turn another number of features, those that moved, by the plain frequencies of the same base."""
    width, pairs = len(moved), r.frequencies.shape[-1]
    if not width or width % 2 or width == 2 * pairs or not _plain(r):
        return None
    # fᵢ = base^(−i/n)  ⇒  base^(−i/m) = f₁^(i n/m)
    f = r.frequencies[0, 1] ** (np.arange(width // 2) * 2 * pairs / width)
    said = f"another rotary_dim, {width}: features {moved[0]} to {moved[-1]} turn"
    return r._replace(frequencies=f[None], start=moved[0], said=(*r.said, said))


def _of_factor(r: Rotary, x: Data, y: Data) -> Rotary | None:
    """Multiply by the factor that lengths show."""
    pairs = r.frequencies.shape[-1]
    orders = ((x, r.pairing), (y, r.out or r.pairing))
    before, after = (np.hypot(*split(part, order, r.start, pairs)) for part, order in orders)
    factor = float(np.median(after / before))
    if not 1e-3 < factor < 1e3 or abs(factor / r.factor - 1) < 1e-6:
        return None
    return r._replace(factor=factor, said=(*r.said, f"an attention factor of {factor:.6g} rather than {r.factor:.6g}"))


def _measured(r: Rotary, x: Data, y: Data, places: Data) -> Data:
    """Return the frequencies that y shows at positions 0, 1, 10, 100 ..., if all else is as `r` has it."""
    pairs = r.frequencies.shape[-1]
    orders = ((x, r.pairing), (y, r.out or r.pairing))
    z, w = (a + 1j * b for a, b in (split(part, order, r.start, pairs) for part, order in orders))
    f = np.zeros(pairs)
    for place, turn in zip(places[1:], (w / z / (w[0] / z[0]))[1:], strict=True):
        # each is known modulo one turn, of which the last leaves a small part open
        f += np.angle(turn * np.exp(-1j * r.sign * place * f)) * r.sign / place
    return f


def _of_base(r: Rotary, measured: Data, digits: int) -> Rotary | None:
    """Plain frequencies, of the base that was measured, to so many digits."""
    pairs = len(measured)
    # fᵢ = base^(−i/n)  ⇒  base = fᵢ^(−n/i)
    i = np.flatnonzero(measured[1:] > 1e-3) + 1
    if not len(i):
        return None
    # weighted by how well each knows it: an error e of fᵢ is one of (n/i) e/fᵢ of the logarithm
    weights = (i * measured[i]) ** 2
    log = np.sum(weights * (-pairs / i) * np.log(measured[i])) / np.sum(weights)
    base = float(f"{np.exp(log):.{digits}g}")
    if not 1 < base < 1e12:
        return None
    ramp = np.asarray([frequencies(2 * pairs, base=base)])
    if np.allclose(ramp, r.frequencies, rtol=1e-6, atol=0):
        return None
    return r._replace(frequencies=ramp, said=(*r.said, f"other frequencies: the plain ones of base {base:.8g}"))


def _scaled(r: Rotary, measured: Data, digits: int) -> Rotary | None:
    """All frequencies times what was measured, to so many digits."""
    f = r.frequencies[0]
    fast = f > 1e-3
    scale = float(f"{np.median(measured[fast] / f[fast]):.{digits}g}") if fast.any() else 1.0
    if abs(scale - 1) < 1e-6 or not 1e-6 < scale < 1e3:
        return None
    return r._replace(frequencies=scale * r.frequencies, said=(*r.said, f"all frequencies times {scale:.6g}"))


def _precisions() -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield ways to round: nothing, what makes the angles, the table or all products, or one of each."""
    angles: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), {})]
    tables = angles.copy()
    for dtype in ("float32", "bfloat16", "float16"):
        angles.append(((f"frequencies in {dtype}",), {"frequency_dtype": dtype}))
        angles.append(((f"angles in {dtype}",), {"frequency_dtype": dtype, "angle_dtype": dtype}))
    for dtype in ("bfloat16", "float16"):
        angles.append(((f"positions in {dtype}",), {"position_dtype": dtype}))
        tables.append(((f"the table in {dtype}",), {"table_dtype": dtype}))
        tables.append(((f"the rotation itself in {dtype}",), {"table_dtype": dtype, "turn_dtype": dtype}))
    for one, first in angles:
        for other, second in tables:
            yield (*one, *other), first | second
