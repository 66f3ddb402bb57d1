"""Diagnose wrong results: find the fewest mistakes that give the same numbers."""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np

from rope_any.testing._causes import MISTAKES
from rope_any.testing._exact import Data, pair_errors
from rope_any.testing._rotary import CUT, Fault, Rotary, rotate_wrongly, rounded
from rope_any.testing._seen import Seen

# The share of tokens at which each pair must match: a cosine with an error in its last digit may round differently.
MATCHING_SHARE = 0.97
_RADIANS_OF_ULPS = 12 * 2.0**-23  # error of an angle of 1 radian by 8 ulps of its frequency, and by its rounding
NEAR_TOLERANCE = 1e-5  # error of float32 angles at the first positions
_ULPS = (0, *(sign * n for n in range(1, 9) for sign in (1, -1)))  # of a frequency, computed in float32
# The largest error that rounding can explain: bfloat16 leads to 7 · 2⁻⁷ radians at the first positions.
_WORST = 0.1
_SHOWN = 5  # positions that are named
_ELSEWHERE = Fault("something else at larger positions", "see the errors by position")


class Diagnosis(NamedTuple):
    """The likely mistakes of a function; none if `faults` is empty."""

    faults: tuple[Fault, ...] = ()
    error: float | None = None
    """The largest relative error of a pair against a rotation with these mistakes; None if they don't explain all."""
    rotary: Rotary | None = None
    """The rotation with these mistakes, if it was searched for and explains all."""


def find_causes(seen: Seen, *, bound: float) -> Diagnosis:
    """
    Return the likely mistakes in results.

    They are the fewest that bring all errors, relative to the lengths of pairs, within `bound`. If there are none, they
    are those that fit the smallest positions, with "something else at larger positions"; or none. The right rotation
    itself is not tried: if the results are right, a harmless mistake may be returned, such as frequencies in float32.
    """
    # with sines alone, position 0 gives zeros
    zeros = ~seen.y.any(axis=1) & (seen.positions.any(axis=1) | ~seen.y.any())
    kept = np.asarray(np.isfinite(seen.y).all(axis=1) & ~zeros)
    if not kept.all():
        return _without(seen, kept, bound)
    far_off = seen.errors > _WORST
    if 0 < far_off.mean() <= 1 - MATCHING_SHARE:  # as few as a cause may leave out
        places = ", ".join(str(p if len(p) > 1 else p[0]) for p in seen.positions[far_off][:_SHOWN].tolist())
        text = f"a few tokens are wrong, such as those at {places}"
        return Diagnosis((Fault(text, "see whether a table ends there: other tokens are right"),))
    near = seen.near
    tried: list[tuple[Rotary, float]] = [(seen.right, _largest(seen.right, near))]  # rotations and their near errors
    last = [seen.right]
    # the number of mistakes: up to two of rounding, up to two others
    for count in range(1, 4):
        if count < 3:
            last = [r for one in last for r in _changed(one, seen)]
            tried += [(r, off) for r in last if (off := _largest(r, near)) <= _WORST]
        wrong = [
            r._replace(dtypes=dtypes, faults=(*r.faults, *rounding))
            for r, off in tried
            for rounding, dtypes in _precisions()
            if len(r.faults) + len(rounding) == count and _may_explain(dtypes, off, near, bound)
        ]
        misses = [_closest(r, near, seen, bound) for r in wrong]
        if (least := min(misses, default=np.inf)) <= bound:
            # two descriptions of the same rotation differ in their last digits
            enough = min(2 * least + 1e-6, bound)
            return next(Diagnosis(r.faults, off, r) for r, off in zip(wrong, misses, strict=True) if off <= enough)
    # a reference that is close at the first positions, where rounding is small, has another mistake at larger ones
    close = [r for r, off in tried if off <= NEAR_TOLERANCE]
    best = min(close, key=lambda r: len(r.faults), default=seen.right)
    return Diagnosis((*best.faults, _ELSEWHERE) if best.faults else ())


def _without(seen: Seen, kept: Data, bound: float) -> Diagnosis:
    """Return the mistakes in the results that are `kept`, and that the others are zeros, or not finite."""
    what, remedy = "zeros", "make the table as long as the longest sequence"
    if not np.isfinite(seen.y).all():
        what, remedy = "infinite or NaN values", "see where they come from: a table that ends, or float16, above 65504"
    if not kept.any():
        return Diagnosis((Fault(what, remedy if what != "zeros" else "see what should write the results"),))
    begin, rest = np.abs(seen.positions[~kept]).max(axis=1).min(), seen.at(kept)
    found = find_causes(rest, bound=bound) if (off := _largest(seen.right, rest)) > bound else Diagnosis((), off)
    return Diagnosis((*found.faults, Fault(f"{what} from position {begin:.0f} on", remedy)), found.error)


def _may_explain(dtypes: Mapping[str, str], off: float, near: Seen, bound: float) -> bool:
    """Whether rounding to these dtypes can explain an error `off` at the first positions."""
    if not dtypes:
        return off <= bound
    if not {*dtypes.values()} - {"float32"}:
        return off <= min(NEAR_TOLERANCE * (1 + float(np.abs(near.positions).max())), _WORST)
    # half precision leads away from results in float32 that are right, isn't seen in coarser ones, and x has its dtype
    casts = {dtypes[step] for step in ("x", "the result") if step in dtypes}
    coarse = casts | {dtypes[step] for step in ("the table", "the rotation itself") if step in dtypes}
    hidden = off < bound < 2.0**-13 or (near.dtype == "bfloat16" and "float16" in coarse) or near.dtype in casts
    return (off <= _WORST or "positions" in dtypes) and not (coarse and hidden)


def _largest(r: Rotary, seen: Seen) -> float:
    """Return the largest of `_misses`."""
    return float(np.max(_misses(r, seen)))


def _misses(r: Rotary, seen: Seen, slack: float = 0.0) -> Data:
    """
    Return each pair's relative error of the results against `r`, less `slack` per radian: the largest in most rows.

    After the pairs come the absolute errors of the features that `r` does not write.
    """
    want, places = rounded(rotate_wrongly(r, seen.x, seen.positions), seen.dtype), r.written or r.members
    off = pair_errors(seen.y, want, places)
    angles = np.abs(seen.positions).max(axis=1)[:, None] * np.abs(r.frequencies).sum(axis=0)
    # larger angles than right ones lose digits in float64
    off = off - np.maximum(slack * angles, 2.0**-52 * (angles - 2.0**31))
    off = np.concatenate([off, np.delete(np.abs(seen.y - want), np.concatenate(places), axis=1)], axis=1)
    most = np.sort(off, axis=0)[math.ceil(MATCHING_SHARE * (len(off) - 1))]
    return np.where(np.isnan(most), np.inf, most)  # float16 overflows


def _closest(r: Rotary, near: Seen, seen: Seen, bound: float) -> float:
    """Return the largest error in `_misses`, with each pair's best ulps (if float32); above `bound` if none fits."""
    slack, least = _RADIANS_OF_ULPS if r.dtypes.get("frequencies", r.dtypes.get("angles")) == "float32" else 0.0, np.inf
    for part in (near, seen):
        least = float(np.max(_misses(r, part, slack)))
        if least > bound:
            return least
    if not slack:
        return least
    some = seen.at(np.arange(len(seen.x)) % 8 == 0)
    # powers in float32 differ by method
    best = np.argmin([_misses(r._replace(ulps=n), some)[: r.pairs] for n in _ULPS], axis=0)
    return _largest(r._replace(ulps=np.asarray(_ULPS)[best]), seen)


def fits(r: Rotary, seen: Seen, *, bound: float) -> bool:
    """Whether results are those of a rotation, within twice a bound: its last digits were chosen for other results."""
    return _closest(r, seen.near, seen, 2 * bound) <= 2 * bound


def _changed(r: Rotary, seen: Seen) -> Iterator[Rotary]:
    """Yield a rotation with one more of `MISTAKES`, of those after its own, in each way in which it can be made."""
    names = list(MISTAKES)
    begin = names.index(r.faults[-1].name) + 1 if r.faults else 0
    for name in names[begin:]:
        make, remedy = MISTAKES[name]
        for details, fields in make(r, seen):
            yield r._replace(**fields, faults=(*r.faults, Fault(name.format(**details), remedy, name)))


_REMEDIES = {
    **dict.fromkeys(("x", "the result"), "rotate outside of autocast, and return the dtype of x"),
    "powers of the base": "compute them in float64, whatever the default dtype is",
    "frequencies": "keep the frequencies in float64: casting a model casts its buffers too",
    "angles": "multiply position and frequency in float64 and round cosine and sine alone, or use rope.table",
    "positions": "keep positions integers until they are multiplied",
    "the table": "keep cosines and sines in float32, outside of autocast",
    "the rotation itself": "multiply in float32 and round the result once",
    "TF32": "multiply them by *, since matrix products on a GPU may use TF32",
}
"""What to do about the rounding of a step, or to a dtype."""
_Rounding: TypeAlias = tuple[tuple[Fault, ...], dict[str, str]]


def _in(dtype: str, *steps: str) -> _Rounding:
    """Return the rounding of steps to a dtype: (fault,), and the dtypes of a `Rotary`."""
    remedy = _REMEDIES.get(dtype, _REMEDIES[steps[0]])
    return (Fault(f"{' and '.join(steps)} in {dtype}", remedy),), dict.fromkeys(steps, dtype)


def _precisions() -> Iterator[_Rounding]:
    """Yield the faults and dtypes of each rounding: none, one up to the angles, one of table or rotation, or both."""
    half = "bfloat16", "float16"
    for dtype in half:
        yield from (_in(dtype, "x"), _in(dtype, "the result"), _in(dtype, "x", "the result"))
    tf32, dtypes = _in("TF32", "positions", "frequencies")
    angles = [_in(dtype, step) for dtype in ("float32", *half) for step in ("frequencies", "angles", "positions")]
    tables = [_in(dtype, step) for dtype in half for step in ("the table", "the rotation itself")]
    angles += [(tf32, dtypes | {"angles": "float32"})]
    fault, in_float32 = _in("float32", "angles")
    # of exact products
    angles += [(_in(dtype, "angles")[0], {"the angles alone": dtype}) for dtype in half]
    powers = [_in(dtype, "powers of the base", "frequencies") for dtype in half]
    coarse = [*(_in(dtype, "frequencies") for dtype in half), *powers]
    angles += [*powers, *(_in(dtype, "powers of the base", "frequencies", "angles") for dtype in half)]
    angles += [((*one, *fault), first | in_float32) for one, first in coarse]
    cuts = [_in(CUT, "the table"), _in(CUT, "the result")]  # after float32 alone
    exact: _Rounding = ((), {})
    both = *product([exact, *angles], [exact, *tables]), *product([exact, *angles[:2]], cuts)
    yield from (((*one, *other), first | second) for (one, first), (other, second) in both)


ROUNDINGS = tuple({fault.text for faults, _ in _precisions() for fault in faults})
"""The mistakes that are roundings, as texts: none explains a property that doesn't hold."""
