"""The mistakes in frequencies: how each is made, and how its numbers are measured."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import chain, permutations, product
from typing import Any

import numpy as np

from rope_any import scaling
from rope_any._frequencies import frequencies
from rope_any._rope import Rope
from rope_any.axes import strided_axes
from rope_any.testing._exact import Data
from rope_any.testing._right import UNSCALED
from rope_any.testing._rotary import Rotary, rotary_of
from rope_any.testing._seen import NEIGHBOUR, Make, Seen, Wrong, has_base, one_way

LENGTHS = (*(2**n for n in range(8, 21)), 40960, 128_000, 163_840, 196_608, 202_752, 204_800, 393_216)
"""Trained lengths of published configs."""
DIGITS = (3, 6, 17)  # to which a measured number is rounded: the fewest that give the same results are right
_CLOSE = 1e-3  # relative difference of frequencies that are compared with the results


def times(change: Callable[[Data], Data]) -> Make:
    """Return a `Make` of one way: frequencies changed by a function."""
    return one_way(lambda r: {"frequencies": change(r.frequencies)})


def exponents(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield exponents over the width of the head, if it is larger than the rotated slice; too wide; and from 0 to 1."""
    own, head_dim = 2 * r.pairs, seen.x.shape[1]
    widths = {"head_dim": head_dim, "rotary_dim / 2": own / 2, "2 rotary_dim": 2 * own, "rotary_dim - 2": own - 2}
    # fᵢ = base^(−2i/rotary_dim)  ⇒  base^(−2i/width) = fᵢ^(rotary_dim/width)
    for name, width in widths.items() if has_base(r.frequencies) else ():
        if width != own:
            yield {"width": name}, {"frequencies": r.frequencies ** (own / width)}
    for f in _measured(r, seen) if has_base(r.frequencies) else ():
        width = own * float(np.log(r.frequencies[0, 1]) / np.log(f[1])) if 0 < f[1] < 1 else 0.0
        if width > 4 * own and abs(width - round(width)) < 1e-3:  # no base that was published is below 10
            yield {"width": f"{width:.0f}"}, {"frequencies": r.frequencies ** (own / round(width))}


def neighbour(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the other rotations that may have been taken, by name, if they have as many pairs and axes."""
    for name, rope in chain(seen.source.neighbours.items(), _of_lengths(r, seen)):
        one = rotary_of(rope)[0]
        if one.frequencies.shape == r.frequencies.shape:
            yield {"name": name}, {"frequencies": one.frequencies, "factor": one.factor}


def _of_lengths(r: Rotary, seen: Seen) -> Iterator[tuple[str, Rope]]:
    """Yield by name the rotations for the number of tokens by which the slowest pair is as slow as measured."""
    if (at := seen.source.at_length) is not None:
        for f in _measured(r, seen):
            count = bisect_left(range(2**31), -f[-1], 1, key=lambda n: -at(n).frequencies[-1])  # type: ignore[operator]  # of one axis
            near = (int(n) for n in (*_rounded_numbers(count), count - 1) if n)
            yield from ((f"a sequence of {n} tokens", at(n)) for n in near)


def _sections(r: Rotary) -> list[int]:
    """Return the number of pairs of each of two to four axes; [] if there are others, or pairs have several."""
    own = r.frequencies != 0
    are_apart = 1 < len(own) < 5 and r.pairs > 1 and (own.sum(axis=0) < 2).all()
    return own.sum(axis=1).tolist() if are_apart else []


def _on_axes(row: Data, axis_of: Data, axes: int) -> Data:
    """Return frequencies ``(pairs,)``, each on its own of the axes: ``(axes, pairs)``."""
    return np.where(np.arange(axes)[:, None] == axis_of, row, 0)


def arrangement(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield other ways to divide the pairs among axes: in chunks or in turns, in any order, or as measured."""
    if not (sizes := _sections(r)):
        return
    axes, row = len(sizes), r.frequencies.sum(axis=0)
    falling, measured = np.sort(row)[::-1], seen.measured(r)
    as_found = None if measured is None else np.abs(measured).argmax(axis=0)
    found = [] if as_found is None else [tuple(np.bincount(as_found, minlength=axes).tolist())]
    ways = list[tuple[str, Any, Data]]()
    log = np.log(row[1]) * _pairs_of_base(row, sizes)  # of 1/base
    for order in dict.fromkeys([*permutations(sizes), *found]):
        chunks = np.repeat(range(axes), order)
        ways += [("in chunks", chunks, each) for each in (row, falling)]
        ways.append(("in chunks, of the powers of all pairs", chunks, np.exp(log * np.arange(r.pairs) / r.pairs)))
        ways.append(("in turns", np.asarray(strided_axes(r.pairs, order)), row))
        powers = np.concatenate([np.exp(log * np.arange(n) / n) for n in order])
        ways.append(("in chunks, each with its own powers", chunks, powers))
    # each axis takes every n-th frequency
    turns = np.argsort(np.arange(r.pairs) % axes, kind="stable")
    ways.append(("in chunks, of frequencies in turns", turns % axes, falling[turns]))
    if as_found is not None:
        ways.append(("as measured", as_found, row))
    for how, axis_of, each in ways:
        if len(axis_of) == r.pairs:
            f = _on_axes(each, axis_of, axes)
            yield {"how": f"{np.count_nonzero(f, axis=1).tolist()} {how}"}, {"frequencies": f}


def _pairs_of_base(row: Data, sizes: list[int]) -> int:
    """Return n if frequencies ``(pairs,)`` are base^(−i/n): all pairs, or as many as the first axis has."""
    return len(row) if has_base(row[None]) else sizes[0]


def by_feature(r: Rotary, _: Seen) -> Iterator[Wrong]:
    """
    Yield sections that are counted in features of a table as wide as x.

    They are twice the right ones in order, equal ones, or those of pairs, after which the first axis takes the rest.
    """
    sizes, row = _sections(r), r.frequencies.sum(axis=0)
    if not sizes or (np.diff(r.features) > 1).any():
        return
    equal = [len(each) for each in np.array_split(r.features, len(sizes))]
    own = np.abs(r.frequencies).argmax(axis=0)
    ways = {", ".join(map(str, each)): np.repeat(range(len(sizes)), each) for each in ([2 * n for n in sizes], equal)}
    for each, axis_of in (ways | {"the first copy of each pair alone is divided": np.r_[own, 0 * own]}).items():
        if len(axis_of) == len(r.features):
            first, second = (_on_axes(row, axis_of[at - r.features[0]], len(sizes)) for at in r.members)
            yield {"sizes": each}, {"frequencies": first, "second": second}


def scaled(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the numbers that multiply all frequencies of each axis, as measured."""
    f = seen.measured(r)
    ratios = [] if f is None else [_ratio(*rows) for rows in zip(f, r.frequencies, strict=True)]
    for scales in dict.fromkeys(zip(*map(_all_roundings, ratios), strict=True)):
        changed = {axis: scale for axis, scale in enumerate(scales) if abs(scale - 1) > 1e-6}
        if changed and all(1e-6 < abs(scale) < 1e3 for scale in scales):
            what = f"positions of ax{'es' if len(changed) > 1 else 'is'} {', '.join(map(str, changed))}"
            by = " and ".join(dict.fromkeys(f"{scale:.6g}" for scale in changed.values()))
            details = {"what": what if len(scales) > 1 else "all frequencies", "scale": by}
            yield details, {"frequencies": np.reshape(scales, (-1, 1)) * r.frequencies}


def _ratio(got: Data, want: Data) -> float:
    """Return the median of got / want, of frequencies that are precise, and a small part of a turn if some are."""
    precise = want > 1e-3 * want.max()
    slow = precise & (want < 0.1)
    which = slow if slow.any() else precise
    return float(np.median(got[which] / want[which])) if which.any() else 1.0


def other_frequencies(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the base closest to the measured frequencies, to few digits and to all; of one axis, close schemes too."""
    yield from _base_of_axes(r, seen)
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
        names, rows = _schemes(tuple(f.tolist()))
        close = np.isclose(rows, f, rtol=_CLOSE, atol=1e-3 / seen.positions.max()).all(axis=1)
        yield from (({"which": f"those of {names[i]}"}, {"frequencies": rows[[i]]}) for i in np.flatnonzero(close))


def _base_of_axes(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the right frequencies of several axes, by another base."""
    sizes, row, f = _sections(r), r.frequencies.sum(axis=0), seen.measured(r)
    if not sizes or f is None or not 0 < row[1] < 1 or not (pairs := _pairs_of_base(row, sizes)):
        return
    own, got = (each[(row < 0.1) & (row > 1e-3)] for each in (row, np.abs(f).max(axis=0)))
    # f = (own frequency)^k, if the base is (own base)^k
    k = np.median(np.log(got) / np.log(own)) if len(own) else 1.0
    for base in _rounded_numbers(row[1] ** (-pairs * k)):
        other = math.log(base) / (-pairs * math.log(row[1]))
        if abs(other - 1) > 1e-6 and 1 < base < 1e12:
            powers = np.where(r.frequencies, row**other, 0)
            yield {"which": f"those of base {base:.8g}"}, {"frequencies": powers}


def _ntk(base: float, r: Rotary) -> str:
    """Return by which factor NTK scaling leads from the base of `r` to another one; "" if it is no simple number."""
    if r.pairs < 2 or not has_base(r.frequencies):
        return ""
    # base · s^(n/(n − 1))  ⇒  s = (other / base)^((n − 1)/n)
    factor = float((base * r.frequencies[0, 1] ** r.pairs) ** ((r.pairs - 1) / r.pairs))
    is_simple = 1.25 < factor < 100 and abs(2 * factor - round(2 * factor)) < 1e-4 * factor
    return f" (NTK scaling by {factor:.3g})" if is_simple else ""


def _plain(r: Rotary, seen: Seen) -> Data | None:
    """Return the frequencies ``(pairs,)`` of `r` before scaling, by the config or by its second one; or None."""
    f, n = r.frequencies, r.pairs
    if len(f) > 1 or n < 3 or not (f > 0).all() or has_base(f):
        return None
    for name, rope in seen.source.neighbours.items():
        if name.endswith(UNSCALED) and (plain := rotary_of(rope)[0].frequencies).shape == f.shape:
            return np.asarray(plain[0])
    # base^(−1/n) = f₁  ⇒  base = f₁^(−n), if the first two pairs are not scaled
    bases = _rounded_numbers(f[0, 1] ** -n)
    base = next((each for each in bases if math.isclose(each ** (-1 / n), f[0, 1], rel_tol=1e-15)), 0.0)
    return np.asarray(frequencies(2 * n, base=base)) if f[0, 0] == 1 and 1 < base < 1e12 else None


def misscaled(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the right frequencies, with their scaling misapplied."""
    f, plain = r.frequencies, _plain(r, seen)
    if plain is None:
        return
    least = f[0, -1] / plain[-1]  # 1/s
    yield {"how": "applied twice"}, {"frequencies": f**2 / plain}
    yield {"how": "inverted, as they are multiplied rather than divided"}, {"frequencies": plain**2 / f}
    if least < 1 and f[0, 0] == plain[0]:  # a ramp keeps the fastest pair
        # f = plain (γ + (1 − γ)/s)
        gamma = (f / plain - least) / (1 - least)
        inner = np.where((gamma > 1e-6) & (gamma < 1 - 1e-6), 1 - gamma, gamma)
        for how, other in {"its ramp reversed": 1 - gamma, "its ramp reversed between its ends": inner}.items():
            yield {"how": how}, {"frequencies": plain * (other + (1 - other) * least)}
        yield {"how": "its ramp blends wavelengths"}, {"frequencies": plain / (gamma + (1 - gamma) / least)}


def other_ramp(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield another ramp from kept to divided pairs than that of the right frequencies, as measured."""
    own, plain = r.frequencies[0], _plain(r, seen)
    if plain is None:
        return
    least = float(own[-1] / plain[-1])  # 1/s
    for f in _measured(r, seen) if 0 < least < 1 else ():
        # fᵢ = plainᵢ ((1 − γᵢ)/s + γᵢ), γ falls from 1 to 0
        ends, parts = [], []
        for gamma in ((each / plain - least) / (1 - least) for each in (own, f)):
            inner = np.flatnonzero((gamma > 1e-3) & (gamma < 1 - 1e-3))
            kept = np.count_nonzero(gamma > 0.5)
            slope, begin = np.polyfit(inner, gamma[inner], 1) if len(inner) > 1 else (-1e6, 1e6 * (kept - 0.5))
            ends.append(f"{(1 - begin) / slope:.4g} to {-begin / slope:.4g}")
            parts.append(np.clip(begin + slope * np.arange(r.pairs), 0, 1))
        if ends[0] != ends[1]:
            yield {"ends": ends[1], "own": ends[0]}, {"frequencies": (plain * (least + (1 - least) * parts[1]))[None]}


def as_measured(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the measured frequencies, where they differ from the right ones."""
    f = seen.measured(r)
    # a sign beside measured frequencies would be a guess
    if f is None or r.sign != seen.right.sign or np.allclose(f, r.frequencies, rtol=1e-4, atol=1e-9):
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
    i = np.flatnonzero(f[1:] > 1e-3) + 1  # maybe none: then the base is nan
    # weighted by precision: an error e of fᵢ is an error (n/i) e/fᵢ of the logarithm
    weights = (i * f[i]) ** 2
    log = np.sum(weights * (-len(f) / i) * np.log(f[i])) / np.sum(weights)
    yield from (base for base in _rounded_numbers(np.exp(log)) if 1 < base < 1e12)


@lru_cache(maxsize=8)
def _schemes(f: tuple[float, ...]) -> tuple[list[str], Data]:
    """Return the names and ``(n, pairs)`` of schemes by parts whose base and factor are those of measured pairs."""
    pairs, names, rows = len(f), list[str](), list[Any]()
    # the fastest pairs are not scaled
    if pairs < 3 or not 0 < f[1] < 1 or not f[-1] > 0 or abs(f[2] / f[1] ** 2 - 1) > _CLOSE:
        return names, np.empty((0, pairs))
    bases = dict.fromkeys((*_rounded_numbers(f[1] ** -pairs), *_rounded_numbers(f[2] ** (-pairs / 2))))
    for base in (each for each in bases if 1 < each < 1e12):
        plain = frequencies(2 * pairs, base=base)
        for factor in (each for each in _rounded_numbers(plain[-1] / f[-1]) if 1.01 < each < 1e3):
            about = f"factor {factor:.6g}, base {base:.8g}"
            for length, (name, scheme) in product(LENGTHS, _BY_PARTS.items()):
                rows.append(scheme(plain, factor, base=base, original_length=length))
                names.append(f"{name}, {about}, original length {length}")
    return names, np.reshape(rows, (-1, pairs))


def _without_base(scheme: Callable[..., Any], **turns: float) -> Callable[..., Any]:
    """Return a scheme that is called as `scaling.yarn` is, but has no base, with these numbers of turns."""
    return lambda f, s, *, base, original_length: scheme(f, s, original_length=original_length, **turns)  # noqa: ARG005


_BY_PARTS: dict[str, Callable[..., Any]] = {
    "YaRN, its ramp rounded": scaling.yarn,
    "YaRN, its ramp not rounded": partial(scaling.yarn, truncate=False),
    "YaRN of 64 to 1 turns": partial(scaling.yarn, beta_fast=64),
    "YaRN of 128 to 1 turns": partial(scaling.yarn, beta_fast=128),
    "Llama 3": _without_base(scaling.llama3, low_freq_factor=1, high_freq_factor=4),
    "NTK by parts": _without_base(scaling.ntk_by_parts),
}
"""Schemes that scale slow pairs alone, with their usual numbers of turns."""


def _rounded_numbers(number: Any) -> list[float]:
    """Return a number rounded to each of `DIGITS`, each once."""
    return [*dict.fromkeys(_all_roundings(number))]


def _all_roundings(number: Any) -> list[float]:
    """Return a number rounded to each of `DIGITS`."""
    return [float(f"{float(number):.{digits}g}") for digits in DIGITS]


STATED: dict[str, tuple[Make, str]] = {
    "all frequencies times π/180: angles treated as degrees": (times(np.deg2rad), "compute in radians"),
    "all frequencies times 180/π: angles converted to degrees": (times(np.rad2deg), "compute in radians"),
    "all frequencies times 2π: treated as turns": (times(lambda f: 2 * np.pi * f), "compute in radians"),
    "frequencies inverted: positive powers of the base": (times(np.reciprocal), "divide by the powers of the base"),
    "frequencies in reverse order": (times(lambda f: f[:, ::-1]), "begin with the fastest pair"),
    "rotated twice": (
        one_way(lambda r: {"frequencies": 2 * r.frequencies, "factor": r.factor**2}),
        "rotate in one place, and don't double positions: q and k in the cache may be rotated already",
    ),
    "exponents over {width} rather than rotary_dim": (exponents, "divide exponents by the number of rotated features"),
    "the scaling of the frequencies: {how}": (misscaled, "scale them once, by the formula of the scheme"),
    NEIGHBOUR: (neighbour, "choose the part, the layers, the length and the scaling of the config"),
    "sections of the axes: {how}": (arrangement, "divide the pairs as the config says: mrope_section, and interleaved"),
    "sections of the axes are taken for features: {sizes}": (by_feature, "divide pairs, not features"),
}
"""The mistakes that are known without a measurement; as `rope_any.testing._causes.MISTAKES` has them."""
MEASURED: dict[str, tuple[Make, str]] = {
    "other frequencies: {which}": (
        other_frequencies,
        "take the base, and the scheme, the factor and the lengths of the scaling, from the config",
    ),
    "{what} times {scale}": (
        scaled,
        "take the scale of positions from the config: the factor of linear scaling, the tokens per second",
    ),
    "the ramp of the scaling runs from pair {ends}, rather than {own}": (
        other_ramp,
        "take the base, the original length, the turns (beta, freq_factor) and truncate from the config",
    ),
    "frequencies of some pairs: {which}": (as_measured, "compare its frequencies with those of the Rope"),
}
"""Those whose numbers are measured."""
