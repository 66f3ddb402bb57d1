"""Diagnose wrong results: find the fewest mistakes that give the same numbers."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rope_any.testing._causes import MISTAKES, Seen
from rope_any.testing._exact import Data, pair_errors
from rope_any.testing._rotary import Fault, Rotary, rotate_wrongly

# The share of tokens at which each pair must match: a cosine with an error in its last digit may round differently.
MATCHING_SHARE = 0.97
_RADIANS_OF_ULPS = 12 * 2.0**-23  # error of an angle of 1 radian by 8 ulps of its frequency, and by its rounding
NEAR_TOLERANCE = 1e-5  # error of float32 angles at the first positions
_ELSEWHERE = Fault("something else at larger positions", "see the errors by position")


class Diagnosis(NamedTuple):
    """The likely mistakes of a function; none if `faults` is empty."""

    faults: tuple[Fault, ...] = ()
    error: float | None = None
    """The largest relative error of a pair against a rotation with these mistakes; None if they don't explain all."""


def find_causes(seen: Seen, *, bound: float) -> Diagnosis:
    """
    Return the likely mistakes in results.

    They are the fewest that bring all errors, relative to the lengths of pairs, within `bound`. If there are none, they
    are those that fit the smallest positions, with "something else at larger positions"; or none. The right rotation
    itself is not tried: if the results are right, a harmless mistake may be returned, such as frequencies in float32.
    """
    if not np.isfinite(seen.y).all():
        return Diagnosis((Fault("infinite or NaN values", "see where they come from"),))
    near = _near(seen)
    levels: list[list[Rotary]] = [[seen.right]]
    # the number of mistakes: up to two of rounding, and two others
    for count in range(1, 5):
        if count < 3:
            more = [r for one in levels[-1] for r in _changed(one, seen)]
            levels.append(more)
        # drop what rounding can't explain: 7 · 2⁻⁷ radians is the largest error of bfloat16 here
        kinds = [[r for r in level if np.max(_misses(r, near)) <= 0.1] for level in levels]
        wrong = [
            r._replace(**dtypes, faults=(*r.faults, *rounding))
            for level in kinds
            for r in level
            for rounding, dtypes in _precisions()
            if len(r.faults) + len(rounding) == count
        ]
        misses = [_closest(r, seen, bound) for r in wrong]
        if (least := min(misses, default=np.inf)) <= bound:
            # two descriptions of the same rotation differ in their last digits
            return next(
                Diagnosis(r.faults, off) for r, off in zip(wrong, misses, strict=True) if off <= 2 * least + 1e-7
            )
    # a reference that is close at the first positions, where rounding is small, has another mistake at larger ones
    close = [r for level in kinds for r in level if np.max(_misses(r, near)) <= NEAR_TOLERANCE]
    best = min(close, key=lambda r: len(r.faults), default=seen.right)
    return Diagnosis((*best.faults, _ELSEWHERE) if best.faults else ())


def _near(seen: Seen) -> Seen:
    """Return the results at the smallest positions alone."""
    reach = np.abs(seen.positions).max(axis=1)
    near = reach <= reach.min() + 7
    return seen._replace(x=seen.x[near], positions=seen.positions[near], y=seen.y[near])


def _misses(r: Rotary, seen: Seen, slack: float = 0.0) -> Data:
    """
    Return each pair's relative error of the results against `r`, less `slack` per radian: the largest in most rows.

    After the pairs come the absolute errors of the features that should rotate and that `r` does not write.
    """
    want, places = rotate_wrongly(r, seen.x, seen.positions), r.written or r.members
    off = pair_errors(seen.y, want, places)
    if slack:  # for each radian of the largest angle
        off = off - slack * np.abs(seen.positions).max(axis=1)[:, None] * np.abs(r.frequencies).sum(axis=0)
    rest = sorted({*seen.right.features.tolist()} - {*np.concatenate(places).tolist()})
    off = np.concatenate([off, np.abs(seen.y - want)[:, rest]], axis=1)
    most = np.quantile(off, MATCHING_SHARE, axis=0, method="higher")
    return np.where(np.isnan(most), np.inf, most)  # float16 overflows


def _closest(r: Rotary, seen: Seen, bound: float) -> float:
    """Return the largest error in `_misses`, with each pair's best ulps (if float32); above `bound` if none fits."""
    ulps = range(-8, 9) if r.frequency_dtype == "float32" else range(1)  # powers in float32 differ by method
    if len(ulps) > 1 and (least := np.max(_misses(r, seen, _RADIANS_OF_ULPS))) > bound:
        return float(least)
    return float(np.max(np.min([_misses(r._replace(ulps=n), seen) for n in ulps], axis=0)))


def _changed(r: Rotary, seen: Seen) -> Iterator[Rotary]:
    """Yield a rotation with one more of `MISTAKES`, of those after its own."""
    names = [mistake.name for mistake in MISTAKES]
    begin = names.index(r.faults[-1].name) + 1 if r.faults else 0
    for mistake in MISTAKES[begin:]:
        yield from mistake.made(r, seen)


def _precisions() -> Iterator[tuple[tuple[Fault, ...], dict[str, Any]]]:
    """Yield (faults, `Rotary` fields) per rounding: none, one up to the angles, one of table or rotation, or both."""
    angles: list[tuple[tuple[Fault, ...], dict[str, Any]]] = [((), {})]
    tables = angles.copy()
    for dtype in ("float32", "bfloat16", "float16"):
        angles.append((_rounding("frequencies", dtype), {"frequency_dtype": dtype}))
        angles.append((_rounding("angles", dtype), {"frequency_dtype": dtype, "angle_dtype": dtype}))
    for dtype in ("bfloat16", "float16"):
        angles.append((_rounding("positions", dtype), {"position_dtype": dtype}))
        tables.append((_rounding("the table", dtype), {"table_dtype": dtype}))
        tables.append((_rounding("the rotation itself", dtype), {"table_dtype": dtype, "rotation_dtype": dtype}))
    for one, first in angles:
        for other, second in tables:
            yield (*one, *other), first | second


_REMEDIES = {
    "frequencies": "keep the frequencies in float64: casting a model casts its buffers too",
    "angles": "multiply position and frequency in float64 and round cosine and sine alone, or use rope.table",
    "positions": "keep positions integers until they are multiplied",
    "the table": "keep cosines and sines in float32, outside of autocast",
    "the rotation itself": "multiply in float32 and round the result once",
}


def _rounding(what: str, dtype: str) -> tuple[Fault]:
    """Return (fault,): that `what` is rounded to a dtype."""
    return (Fault(f"{what} in {dtype}", _REMEDIES[what], what),)


ROUNDINGS = tuple({fault.text for faults, _ in _precisions() for fault in faults})
"""The mistakes that are roundings, as texts: none explains a property that doesn't hold."""
