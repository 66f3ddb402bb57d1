"""The mistakes that are looked for: a table of a name, how to make the mistake, and what to do about it."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import permutations, product
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rope_any import scaling
from rope_any._frequencies import frequencies
from rope_any._pairing import Pairing
from rope_any._rope import Rope
from rope_any.axes import strided_axes
from rope_any.testing._exact import Data, Members, pair_errors, pair_lengths
from rope_any.testing._rotary import (
    Rotary,
    measure_frequencies,
    measure_positions,
    members_of,
    rotary_of,
    rotate_wrongly,
)

POWERS = (0, *(10**n for n in range(10)))  # positions at which frequencies are measured
LENGTHS = (*(2**n for n in range(8, 21)), 40960, 128_000, 163_840, 196_608, 202_752, 204_800, 393_216)
"""Trained lengths of published configs."""
DIGITS = (3, 6, 17)  # to which a measured number is rounded: the fewest that give the same results are right
_CLOSE = 1e-3  # relative difference of frequencies that are compared with the results


class Seen(NamedTuple):
    """The results of a function, and what they should be."""

    right: Rotary
    pairing: Pairing
    blocks: int
    x: Data
    """``(n, head_dim)``."""
    positions: Data
    """``(n, axes)``."""
    y: Data
    dtype: str = "float64"
    """That of the results."""
    neighbours: Mapping[str, Rope] = MappingProxyType({})
    """Other rotations that may have been taken by mistake, by name."""

    @property
    def start(self) -> int:
        """The first feature that should be rotated."""
        return int(self.right.features[0])

    def at(self, which: Data) -> "Seen":
        """Return the results at the tokens of a mask ``(n,)`` alone."""
        return self._replace(x=self.x[which], positions=self.positions[which], y=self.y[which])

    @property
    def moved(self) -> range:
        """The range from the first to the last feature that differs in x and y; maybe empty."""
        where = np.flatnonzero((self.y != self.x).any(axis=0))
        return range(where[0], where[-1] + 1) if len(where) else range(0)

    def members(self, *, pairing: Pairing | None = None, start: int | None = None, pairs: int | None = None) -> Members:
        """Return the members of pairs, as they should be but for the options."""
        begin, count = self.start if start is None else start, self.right.pairs if pairs is None else pairs
        return members_of(pairing or self.pairing, begin, count, blocks=1 if count % self.blocks else self.blocks)

    def keeps_lengths(self, r: Rotary) -> bool:
        """Whether the results can be a rotation of the pairs of `r`: all are longer or shorter by one factor."""
        with np.errstate(all="ignore"):
            ratios = pair_lengths(self.y, r.written or r.members) / pair_lengths(self.x, r.members)
        return bool(np.ptp(ratios) < 0.05 * np.median(ratios))

    def measured(self, r: Rotary) -> Data | None:
        """Return the frequencies ``(axes, pairs)`` of the results, for the members of `r`; None without the rows."""
        found = []
        if not self.keeps_lengths(r):
            return None
        for axis in range(self.positions.shape[1]):
            alone = (np.delete(self.positions, axis, axis=1) == 0).all(axis=1)
            rows = [row[0] for p in POWERS if len(row := np.flatnonzero(alone & (self.positions[:, axis] == p)))]
            places = self.positions[rows, axis]
            if not {0, 1} <= {*places.tolist()}:
                return None
            found.append(measure_frequencies(r, self.x[rows], self.y[rows], places))
        return np.asarray(found)


Wrong: TypeAlias = tuple[dict[str, Any], dict[str, Any]]
"""What to write into the name of a mistake, and the changed fields of a `Rotary`."""
Make: TypeAlias = Callable[[Rotary, Seen], Iterator[Wrong]]
"""A function that yields the ways in which a mistake can be made in a `Rotary`."""


def _one(change: Callable[[Rotary], dict[str, Any]]) -> Make:
    """Return a `Make` of one way, which needs nothing from the results."""
    return lambda r, _: iter([({}, change(r))])


# --- features -----------------------------------------------------------------------------------------------


def _other_pairing(_: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the pairing that is not the right one."""
    yield {"other": other(seen.pairing)}, {"members": seen.members(pairing=other(seen.pairing))}


def _other_slice(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the same pairs from the first feature on, and those up to the last one."""
    for start in {0, seen.x.shape[1] - 2 * r.pairs} - {seen.start}:
        where = {"first": start, "last": start + 2 * r.pairs - 1}
        yield where, {"members": tuple(each - seen.start + start for each in r.members)}


def _other_width(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the slice that changes, as its own rotary dimension, with the base's frequencies or the first of all."""
    width, pairs = len(seen.moved), r.pairs
    if not width or width % 2 or width == 2 * pairs or len(r.frequencies) > 1:
        return
    if has_base(r.frequencies):
        # fᵢ = base^(−i/n)  ⇒  base^(−i/m) = f₁^(i n/m)
        f = r.frequencies[:, 1:2] ** (np.arange(width // 2) * 2 * pairs / width)
        where = {"width": width, "first": seen.moved[0], "last": seen.moved[-1]}
        yield where, {"frequencies": f, "members": seen.members(start=seen.moved[0], pairs=width // 2)}


def _fewer_pairs(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the pairs that change alone, where they are; and as many of the first as the slice that changes has."""
    still = (seen.x == seen.y)[:, r.members[0]].all(axis=0) & (seen.x == seen.y)[:, r.members[1]].all(axis=0)
    kept = np.flatnonzero(~still)
    should = np.flatnonzero(r.frequencies.any(axis=0))
    if 0 < len(kept) < len(should):
        rest = sorted({*should.tolist()} - {*kept.tolist()})
        fields = {"frequencies": r.frequencies[:, kept], "members": tuple(each[kept] for each in r.members)}
        yield {"which": f"pairs {rest[0]} to {rest[-1]} are left out"}, fields
    count = len(seen.moved) // 2
    if 0 < count < r.pairs:
        fields = {"frequencies": r.frequencies[:, :count], "members": seen.members(start=seen.moved[0], pairs=count)}
        yield {"which": f"only {count} of {r.pairs} rotate, in features {seen.moved[0]} to {seen.moved[-1]}"}, fields


def _other_partner(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield pairs whose features are half of the other width apart: of the rotated slice, or of the head."""
    turning = np.flatnonzero(r.frequencies.any(axis=0))
    count, head_dim = len(turning), seen.x.shape[1]
    if seen.pairing != "half" or seen.blocks != 1 or not count or turning[-1] >= count:
        return
    own = int(r.members[1][0] - r.members[0][0])
    for gap in {count, head_dim // 2} - {own}:
        first = seen.start + np.arange(count)
        if count <= gap and first[-1] + gap < head_dim:
            fields = {"frequencies": r.frequencies[:, :count], "members": (first, first + gap)}
            yield {"gap": gap, "own": own}, fields


def _other_order(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield results in the feature order of the other pairing."""
    orders = {name: seen.members(pairing=name, pairs=r.pairs, start=int(r.features[0])) for name in PAIRINGS}
    for name, places in orders.items():
        if not np.array_equal(places, r.members):
            yield {"other": name}, {"written": places}


def _other_columns(r: Rotary, _: Seen) -> Iterator[Wrong]:
    """Yield tables as wide as the features, in the order of either pairing, where features need the other."""
    at = [each - r.features[0] for each in r.members]
    if (np.diff(r.features) == 1).all():
        for name, columns in {"half": [i % r.pairs for i in at], "interleaved": [i // 2 for i in at]}.items():
            if not all(np.array_equal(one, np.arange(r.pairs)) for one in columns):
                first, second = (r.frequencies[:, each] for each in columns)
                yield {"other": name}, {"frequencies": first, "second": second}


def _other_blocks(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield pairs that are formed within all features, or within those of each axis."""
    for count in {1, 2, len(r.frequencies)} - {seen.blocks}:
        if r.pairs % count == 0 and seen.pairing == "half":
            yield {"count": count}, {"members": members_of("half", seen.start, r.pairs, blocks=count)}


# --- positions ----------------------------------------------------------------------------------------------


_Map: TypeAlias = Callable[[Data], Data]
"""A function of positions ``(n, axes)``."""


def _after(r: Rotary, change: _Map) -> _Map:
    """Return a change of positions after what `r` does to them."""
    return lambda p: change(r.map_positions(p))


def _mapped(change: _Map, **details: Any) -> Make:
    """Return a `Make` of one way: positions changed by a function, if it changes them."""

    def make(r: Rotary, seen: Seen) -> Iterator[Wrong]:
        """Yield the function, after what `r` does to positions."""
        if (change(seen.positions) != seen.positions).any():
            yield details, {"map_positions": _after(r, change)}

    return make


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


def _reversed_in_call(positions: Data) -> Data:
    """Return positions ``(tokens, axes)`` in which the runs of consecutive ones (by the first axis) go backwards."""
    begins = np.flatnonzero(np.diff(positions[:, 0], prepend=positions[0, 0] - 2) != 1)
    return np.concatenate([run[::-1] for run in np.split(positions, begins[1:])])


def _axis_order(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the axes of the positions in each other order, and one axis for all."""
    count = seen.positions.shape[1]
    for order in (*permutations(range(count)), *((axis,) * count for axis in range(count))) if 1 < count < 5 else ():
        yield from _mapped(partial(np.take, indices=order, axis=1), order=", ".join(map(str, order)))(r, seen)


def _shifted(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the constant number that positions are off by, as measured at the first ones."""
    for found, positions, _ in _measured_positions(r, seen):
        off = (found - positions)[positions <= positions.min() + 7]
        shift = round(2 * float(np.median(off))) / 2
        if shift and np.abs(off - shift).max() < 1e-2:
            yield {"by": f"{shift:+g}"}, {"shift": r.shift + shift}


def _elsewhere(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield how the positions that are rotated wrongly are taken for others."""
    for found, positions, wrong in _measured_positions(r, seen):
        taken = np.round(found[wrong])
        if wrong.any() and np.abs(found[wrong] - taken).max() <= 1e-2:
            for how, change in _ways(positions[wrong], taken, every=bool(wrong.all())).items():
                yield {"how": how}, {"map_positions": _after(r, change)}


def _ways(positions: Data, taken: Data, *, every: bool) -> dict[str, _Map]:
    """Return how `positions` may be taken for others: one, off by one number, of a shorter table, or modulo it."""
    begin, last, off = positions.min(), taken[0], taken[0] - positions[0]
    length = max(math.gcd(*(positions - taken).astype(np.int64).tolist()), 1)
    which = "of all tokens" if every else f"from {begin:.0f} on"
    return {
        f"beyond {last:.0f} are taken for {last:.0f}": lambda p: np.minimum(p, last),
        f"{which} are taken for {last:.0f}": lambda p: np.where(p < begin, p, last),
        f"{which} are off by {off:+.0f}": lambda p: np.where(p < begin, p, p + off),
        f"of calls that begin after {last:.0f} begin there": lambda p: p - np.maximum(_first_of_call(p) - last, 0),
        f"are taken modulo {length}": lambda p: p % length,
    }


def _measured_positions(r: Rotary, seen: Seen) -> Iterator[tuple[Data, Data, Data]]:
    """
    Yield the positions of the results, those of `r`, and whether a token is rotated wrongly, each ``(n,)``.

    They are measured modulo a turn of the slowest pair, from 0 and from those of `r`, so there are some answers; none
    if the results are no rotation of one axis.
    """
    if len(r.frequencies) > 1 or not r.frequencies.any() or not seen.keeps_lengths(r):
        return
    positions, places = r.map_positions(seen.positions)[:, 0] + r.shift, r.written or r.members
    want = rotate_wrongly(r, seen.x, seen.positions)
    off = pair_errors(seen.y, want, places).max(axis=1)
    for turns in (0, 1, -1, 2, -2):
        from_zero = measure_positions(r, seen.x, seen.y, turns=turns)
        further = positions + measure_positions(r._replace(members=places), want, seen.y, turns=turns)
        yield from ((found, positions, off > 1e-2) for found in (from_zero, further) if np.abs(found).max() < 2**40)


def _truncated(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield real positions rounded to whole numbers, and whole ones to multiples of a power of two."""
    yield from _mapped(np.round, how="rounded to whole numbers")(r, seen)
    for n in (1, 2, 4, 8, 16, 32):
        yield from _mapped(partial(_multiples, of=n), how=f"rounded down to multiples of {n}")(r, seen)


def _multiples(positions: Data, *, of: int) -> Data:
    """Return positions rounded down to multiples of a number."""
    return np.asarray(positions // of * of)


# --- frequencies --------------------------------------------------------------------------------------------


def _times(change: Callable[[Data], Data]) -> Make:
    """Return a `Make` of one way: frequencies changed by a function."""
    return _one(lambda r: {"frequencies": change(r.frequencies)})


def _exponents(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield exponents over the width of the head, if it is larger than the rotated slice; and from 0 to 1."""
    if has_base(r.frequencies):
        # fᵢ = base^(−2i/rotary_dim)  ⇒  base^(−2i/head_dim) = fᵢ^(rotary_dim/head_dim)
        if 2 * r.pairs < seen.x.shape[1]:
            yield {"width": "head_dim"}, {"frequencies": r.frequencies ** (2 * r.pairs / seen.x.shape[1])}
        yield {"width": "rotary_dim - 2"}, {"frequencies": r.frequencies ** (r.pairs / (r.pairs - 1))}


def _neighbour(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the other rotations that may have been taken, by name, if they have as many pairs and axes."""
    for name, rope in seen.neighbours.items():
        one = rotary_of(rope)[0]
        if one.frequencies.shape == r.frequencies.shape:
            yield {"name": name}, {"frequencies": one.frequencies, "factor": one.factor}


def _sections(r: Rotary) -> list[int]:
    """Return the number of pairs of each of two to four axes; [] if there are others, or a pair has several."""
    own = r.frequencies != 0
    return own.sum(axis=1).tolist() if 1 < len(own) < 5 and (own.sum(axis=0) < 2).all() else []


def _on_axes(row: Data, axis_of: Data, axes: int) -> Data:
    """Return frequencies ``(pairs,)``, each on its own of the axes: ``(axes, pairs)``."""
    return np.where(np.arange(axes)[:, None] == axis_of, row, 0)


def _arrangement(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield other ways to divide the pairs among axes: in chunks or in turns, in any order, or as measured."""
    if not (sizes := _sections(r)):
        return
    axes, row = len(sizes), r.frequencies.sum(axis=0)
    falling = np.sort(row)[::-1]
    ways = list[tuple[str, Any, Data]]()
    for order in dict.fromkeys(permutations(sizes)):
        ways += [("in chunks", np.repeat(range(axes), order), each) for each in (row, falling)]
        ways.append(("in turns", np.asarray(strided_axes(r.pairs, order)), row))
    # each axis takes every n-th frequency
    turns = np.argsort(np.arange(r.pairs) % axes, kind="stable")
    ways.append(("in chunks, of frequencies in turns", turns % axes, falling[turns]))
    if (f := seen.measured(r)) is not None:
        ways.append(("as measured", np.abs(f).argmax(axis=0), row))
    for how, axis_of, each in ways:
        if len(axis_of) == r.pairs:
            f = _on_axes(each, axis_of, axes)
            yield {"how": f"{np.count_nonzero(f, axis=1).tolist()} {how}"}, {"frequencies": f}


def _by_feature(r: Rotary, _: Seen) -> Iterator[Wrong]:
    """Yield sections counted in features of a table as wide as x: twice the right ones in order, or equal ones."""
    sizes, row = _sections(r), r.frequencies.sum(axis=0)
    if not sizes or (np.diff(r.features) > 1).any():
        return
    equal = [len(each) for each in np.array_split(r.features, len(sizes))]
    for each in ([2 * n for n in sizes], equal):
        axis_of = np.repeat(range(len(sizes)), each)
        if len(axis_of) == len(r.features):
            first, second = (_on_axes(row, axis_of[at - r.features[0]], len(sizes)) for at in r.members)
            yield {"sizes": ", ".join(map(str, each))}, {"frequencies": first, "second": second}


def _scaled(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield a number that multiplies all frequencies of an axis, as measured."""
    f = seen.measured(r)
    for axis, row in enumerate(() if f is None else f):
        own = np.arange(len(r.frequencies))[:, None] == axis
        for scale in _rounded_numbers(_ratio(row, r.frequencies[axis])):
            if abs(scale - 1) > 1e-6 and 1e-6 < abs(scale) < 1e3:
                what = f"positions of axis {axis}" if len(r.frequencies) > 1 else "all frequencies"
                yield {"what": what, "scale": f"{scale:.6g}"}, {"frequencies": np.where(own, scale, 1) * r.frequencies}


def _ratio(got: Data, want: Data) -> float:
    """Return the median of got / want, of frequencies that are precise, and a small part of a turn if some are."""
    precise = want > 1e-3
    slow = precise & (want < 0.1)
    which = slow if slow.any() else precise
    return float(np.median(got[which] / want[which])) if which.any() else 1.0


def _other_frequencies(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the base closest to the measured frequencies of one axis, to few digits and to all, and close schemes."""
    for f in _measured(r, seen):
        for base in _bases(f / f[0]):
            plain = np.asarray([frequencies(2 * r.pairs, base=base)])
            # schemes by parts leave the second pair unscaled
            same = r.pairs > 1 and np.isclose(plain[0, 1], r.frequencies[0, 1], rtol=1e-6)
            for scale in _rounded_numbers(f[0]):
                times = f" times {scale:.6g}" if scale != 1 else ", without scaling" if same else ""
                if not np.allclose(scale * plain, r.frequencies, rtol=1e-6, atol=0):
                    which = f"those of base {base:.8g}{_ntk(base, r)}{times}"
                    yield {"which": which}, {"frequencies": scale * plain}
        for text, row in _schemes(tuple(f.tolist())):
            if np.allclose(row, f, rtol=_CLOSE, atol=1e-3 / seen.positions.max()):
                yield {"which": f"those of {text}"}, {"frequencies": np.asarray([row])}


def _ntk(base: float, r: Rotary) -> str:
    """Return by which factor NTK scaling leads from the base of `r` to another one; "" if it is no simple number."""
    if r.pairs < 2 or not has_base(r.frequencies):
        return ""
    # base · s^(n/(n − 1))  ⇒  s = (other / base)^((n − 1)/n)
    factor = float((base * r.frequencies[0, 1] ** r.pairs) ** ((r.pairs - 1) / r.pairs))
    is_simple = 1.25 < factor < 100 and abs(2 * factor - round(2 * factor)) < 1e-4 * factor
    return f" (NTK scaling by {factor:.3g})" if is_simple else ""


def _twice_scaled(r: Rotary, _: Seen) -> Iterator[Wrong]:
    """Yield the scaling by parts of the right frequencies, applied once more."""
    if len(r.frequencies) == 1 and r.pairs > 2 and not has_base(r.frequencies) and r.frequencies[0, 1] > 0:
        plain = r.frequencies[:, 1:2] ** np.arange(r.pairs)
        yield {}, {"frequencies": r.frequencies**2 / plain}


def _other_ramp(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield another ramp from kept to divided pairs than that of the right frequencies, as measured."""
    own = r.frequencies[0]
    if len(r.frequencies) > 1 or r.pairs < 3 or has_base(r.frequencies) or not 0 < own[1] < 1:
        return
    plain = own[1] ** np.arange(r.pairs)
    least = float((own / plain)[-1])  # 1/s
    for f in _measured(r, seen) if 0 < least < 1 else ():
        # fᵢ = plainᵢ ((1 − γᵢ)/s + γᵢ), γ falls from 1 to 0
        ends, parts = [], []
        for gamma in ((each / plain - least) / (1 - least) for each in (own, f)):
            inner = np.flatnonzero((gamma > 1e-3) & (gamma < 1 - 1e-3))
            if len(inner) < 2:
                return
            slope, begin = np.polyfit(inner, gamma[inner], 1)
            ends.append(f"{(1 - begin) / slope:.4g} to {-begin / slope:.4g}")
            parts.append(np.clip(begin + slope * np.arange(r.pairs), 0, 1))
        if ends[0] != ends[1] and slope < 0:
            yield {"ends": ends[1], "own": ends[0]}, {"frequencies": (plain * (least + (1 - least) * parts[1]))[None]}


def _as_measured(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the measured frequencies, where they differ from the right ones."""
    f = seen.measured(r)
    if f is None or np.allclose(f, r.frequencies, rtol=1e-4, atol=1e-9):
        return
    own = np.isclose(f, r.frequencies, rtol=1e-4, atol=1e-9).all(axis=0)
    pairs = np.flatnonzero(~own)
    which = f"pairs {pairs[0]} to {pairs[-1]} differ" if len(pairs) > 1 else f"pair {pairs[0]} differs"
    yield {"which": which}, {"frequencies": np.where(own, r.frequencies, f)}


def _measured(r: Rotary, seen: Seen) -> Iterator[Data]:
    """Yield the measured frequencies ``(pairs,)`` of one axis, if they differ from those of `r` and turn one way."""
    if len(r.frequencies) == 1 and (f := seen.measured(r)) is not None and f[0, 0] > 0:
        yield f[0]


def _bases(f: Data) -> Iterator[float]:
    """Yield the base closest to frequencies ``(pairs,)``, rounded to few digits and to all."""
    # fᵢ = base^(−i/n)  ⇒  base = fᵢ^(−n/i)
    i = np.flatnonzero(f[1:] > 1e-3) + 1
    if not len(i):
        return
    # weighted by precision: an error e of fᵢ is an error (n/i) e/fᵢ of the logarithm
    weights = (i * f[i]) ** 2
    log = np.sum(weights * (-len(f) / i) * np.log(f[i])) / np.sum(weights)
    yield from (base for base in _rounded_numbers(np.exp(log)) if 1 < base < 1e12)


@lru_cache(maxsize=8)
def _schemes(f: tuple[float, ...]) -> list[tuple[str, Data]]:
    """Return the names and frequencies of schemes by parts whose base and factor are those of measured ``(pairs,)``."""
    pairs, found = len(f), list[tuple[str, Data]]()
    # the fastest pairs are not scaled
    if pairs < 3 or not 0 < f[1] < 1 or not f[-1] > 0 or abs(f[2] / f[1] ** 2 - 1) > _CLOSE:
        return found
    bases = dict.fromkeys((*_rounded_numbers(f[1] ** -pairs), *_rounded_numbers(f[2] ** (-pairs / 2))))
    for base in (each for each in bases if 1 < each < 1e12):
        plain = frequencies(2 * pairs, base=base)
        for factor in (each for each in _rounded_numbers(plain[-1] / f[-1]) if 1.01 < each < 1e3):
            about = f"factor {factor:.6g}, base {base:.8g}"
            for length, (name, scheme) in product(LENGTHS, _BY_PARTS.items()):
                row = scheme(plain, factor, base=base, original_length=length)
                found.append((f"{name}, {about}, original length {length}", np.asarray(row)))
    return found


def _without_base(scheme: Callable[..., Any], **turns: float) -> Callable[..., Any]:
    """Return a scheme that is called as `scaling.yarn` is, but has no base, with these numbers of turns."""
    return lambda f, s, *, base, original_length: scheme(f, s, original_length=original_length, **turns)  # noqa: ARG005


_BY_PARTS: dict[str, Callable[..., Any]] = {
    "YaRN": scaling.yarn,
    "YaRN, its ramp not rounded": partial(scaling.yarn, truncate=False),
    "YaRN of 64 to 1 turns": partial(scaling.yarn, beta_fast=64),
    "YaRN of 128 to 1 turns": partial(scaling.yarn, beta_fast=128),
    "Llama 3": _without_base(scaling.llama3, low_freq_factor=1, high_freq_factor=4),
    "NTK by parts": _without_base(scaling.ntk_by_parts),
}
"""Schemes that scale slow pairs alone, with their usual numbers of turns."""


# --- the attention factor -----------------------------------------------------------------------------------


def _factor_twice(r: Rotary, _: Seen) -> Iterator[Wrong]:
    """Yield the square of the attention factor, and 1."""
    if r.factor != 1:
        yield {"how": "left out"}, {"factor": 1.0}
        yield {"how": "counted twice"}, {"factor": r.factor**2}


def _other_factor(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the attention factor of the results: the median of |y| / |x| of pairs."""
    ratios = pair_lengths(seen.y, r.written or r.members) / pair_lengths(seen.x, r.members)
    factor = float(np.median(ratios))
    if not 1e-3 < factor < 1e3 or abs(factor / r.factor - 1) < 1e-6:
        return
    # YaRN's m = 0.1 ln s + 1, and its square
    known = {f"YaRN with factor {s:g}": 0.1 * math.log(s) + 1 for s in (2, 4, 8, 16, 32, 40, 64)}
    known |= {f"{name}, squared": value**2 for name, value in known.items()}
    name = next((f" ({name})" for name, value in known.items() if abs(value / factor - 1) < 1e-6), "")
    yield {"factor": f"{factor:.6g}{name}", "own": f"{r.factor:.6g}"}, {"factor": factor}


def _rest_factor(_: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the factor of the features that should pass through, if it is one for all."""
    ratio = np.delete(seen.y / seen.x, seen.right.features, axis=1)
    if ratio.size and np.ptp(ratio) < 1e-5 < abs(ratio[0, 0] - 1):
        yield {"factor": f"{np.median(ratio):.6g}"}, {"rest": float(np.median(ratio))}


# --- the table ----------------------------------------------------------------------------------------------

PAIRINGS: tuple[Pairing, ...] = ("half", "interleaved")

NEIGHBOUR = "the rotation is that of {name}"
# By name, with {places} for what is found: how it is made, and what to do about it. In this order: a mistake is made in
# what those before it leave, and numbers are measured last.
MISTAKES: dict[str, tuple[Make, str]] = {
    "the other pairing: {other}": (
        _other_pairing,
        "rotate the pairs of the checkpoint, or reorder its weights by rope_any.weights.convert",
    ),
    "another slice: features {first} to {last} are rotated": (_other_slice, "rotate the slice that the model rotates"),
    "another rotary_dim, {width}: features {first} to {last} are rotated": (
        _other_width,
        "take rotary_dim from the config: partial_rotary_factor, rotary_pct or rotary_dim",
    ),
    "the rotary part is too small: {which}": (_fewer_pairs, "rotate all pairs: frequencies has one number for each"),
    "features i and i + {gap} form a pair, rather than i and i + {own}": (
        _other_partner,
        "take features half of rotary_dim apart; half of head_dim if the model pads its frequencies with zeros",
    ),
    "pairs are formed within {count} blocks of features": (_other_blocks, "form pairs as `blocks` of the Rope says"),
    "features are returned in the order {other}": (_other_order, "write each feature back to its own place"),
    "tables in the feature order of {other}": (
        _other_columns,
        "repeat each number of a table twice in succession for interleaved pairs, the whole table for half",
    ),
    "the opposite sign: pairs rotate backwards": (
        _one(lambda r: {"sign": -r.sign}),
        "rotate by +angle: a·c − b·s and b·c + a·s",
    ),
    "cosines and sines exchanged": (_one(lambda _: {"exchanged": True}), "exchange them back"),
    "the minus left out: a·c + b·s": (_one(lambda _: {"minus": False}), "compute a·c − b·s and b·c + a·s"),
    "the second feature is computed from the rotated first": (
        _one(lambda _: {"overwritten": True}),
        "keep the first feature until the second is computed",
    ),
    "nothing is rotated, as if all positions were 0": (
        _mapped(np.zeros_like),
        "pass the positions on, and use the result",
    ),
    "positions ignored: all tokens are rotated as at 1": (_mapped(np.ones_like), "use the positions"),
    "positions ignored: each call counts from 0": (
        _mapped(_index_in_call),
        "use the positions: with a cache a call begins at the length of the cache",
    ),
    "all tokens of a call are rotated as its first": (_mapped(_first_of_call), "give each token its own position"),
    "int64 positions are read as int32: every second one is 0": (
        _mapped(_as_int32),
        "convert the positions to the dtype that the kernel reads",
    ),
    "positions run backwards within each call": (_mapped(_reversed_in_call), "take positions in their order"),
    "positions are {how}": (_truncated, "keep real positions, and multiply before you divide"),
    "positions are read as int16: from 32768 on they are negative": (
        _mapped(lambda p: p.astype(np.int64).astype(np.int16).astype(np.float64)),
        "read the positions in the dtype that they have",
    ),
    "the axes of the positions are taken as {order}": (_axis_order, "take the axes in their order"),
    "positions one too large": (_one(lambda r: {"shift": r.shift + 1}), "count from 0"),
    "positions one too small": (_one(lambda r: {"shift": r.shift - 1}), "count from 0"),
    "all positions are off by {by}": (_shifted, "count from the first token: no offset of padding or of an embedding"),
    "positions {how}": (_elsewhere, "make tables as long as the longest sequence"),
    "all frequencies times π/180: angles treated as degrees": (_times(np.deg2rad), "compute in radians"),
    "all frequencies times 180/π: angles converted to degrees": (_times(np.rad2deg), "compute in radians"),
    "all frequencies times 2π: treated as turns": (_times(lambda f: 2 * np.pi * f), "compute in radians"),
    "frequencies inverted: positive powers of the base": (_times(np.reciprocal), "divide by the powers of the base"),
    "frequencies in reverse order": (_times(lambda f: f[:, ::-1]), "begin with the fastest pair"),
    "rotated twice": (
        _one(lambda r: {"frequencies": 2 * r.frequencies, "factor": r.factor**2}),
        "rotate in one place: q and k in the cache may be rotated already",
    ),
    "exponents over {width} rather than rotary_dim": (_exponents, "divide exponents by the number of rotated features"),
    "the scaling of the frequencies applied twice": (_twice_scaled, "scale them once"),
    NEIGHBOUR: (_neighbour, "choose the part, the layers, the length and the scaling of the config"),
    "sections of the axes: {how}": (
        _arrangement,
        "divide the pairs as the config says: mrope_section, and interleaved",
    ),
    "sections of the axes are taken for features: {sizes}": (_by_feature, "divide pairs, not features"),
    "the features that pass through times {factor}": (_rest_factor, "leave them as they are"),
    "the attention factor {how}": (_factor_twice, "multiply cosine and sine by it once, for q and for k"),
    "an attention factor of {factor} rather than {own}": (_other_factor, "take it from the config"),
    "other frequencies: {which}": (
        _other_frequencies,
        "take the base, and the scheme, the factor and the lengths of the scaling, from the config",
    ),
    "{what} times {scale}": (
        _scaled,
        "take the scale of positions from the config: the factor of linear scaling, the tokens per second",
    ),
    "the ramp of the scaling runs from pair {ends}, rather than {own}": (
        _other_ramp,
        "take the base, the original length, beta_fast, beta_slow and truncate from the config",
    ),
    "frequencies of some pairs: {which}": (_as_measured, "compare its frequencies with those of the Rope"),
}
"""All mistakes that are looked for but roundings."""


def other(pairing: Pairing) -> Pairing:
    """Return the pairing that is not `pairing`."""
    return "interleaved" if pairing == "half" else "half"


def has_base(f: Data) -> bool:
    """Whether frequencies ``(axes, pairs)`` are powers of a base; False for several axes or a single pair."""
    return f.shape[0] == 1 and f.shape[1] > 1 and np.allclose(f[0], f[0, 1] ** np.arange(f.shape[1]))


def _rounded_numbers(number: Any) -> list[float]:
    """Return a number rounded to each of `DIGITS`, each once."""
    return [*dict.fromkeys(float(f"{float(number):.{digits}g}") for digits in DIGITS)]
