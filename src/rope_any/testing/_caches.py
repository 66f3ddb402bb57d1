"""Compare the rotary cache of an engine with exact numbers, row by row, and guess its mistakes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from rope_any._arrays import require_array
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text
from rope_any._frequencies import as_rows
from rope_any._rope import Rope
from rope_any.layouts import (
    DIGITS,
    LAYOUTS,
    Layout,
    divided,
    layout_of,
    named_parts,
    plain_frequencies,
    require_options,
)
from rope_any.testing._check import ANGLE_NOISE, TABLE_BOUND
from rope_any.testing._exact import Data, features
from rope_any.testing._wrong import POWERS, Rotary, find_causes, measure_frequencies

RUN = 8  # consecutive rows that are compared with wrong references
LONGEST_ANGLES = 1010  # rows: beyond, angles in float32 are too coarse to tell mistakes apart
WITHIN_BOUNDS = ("frequencies in float32", "angles in float32")  # no mistakes of a cache
WORST = 3  # rows that are shown for their error


class CacheReport(NamedTuple):
    """
    The result of `check_cache`; ``print(report)`` shows it, ``bool(report)`` is `passed`.

    Attributes
    ----------
    subject : str
        The layout, the size and the dtype of the cache.
    passed : bool
        Whether all numbers are within their bounds.
    errors : tuple of float
        The largest error of each row: its index is the position. A cache of divisors or reciprocals has one row for
        each pair.
    ratios : tuple of float
        The largest error of each row as a multiple of its bound; infinite for nan.
    first_wrong : int or None
        The first row beyond its bound.
    wrong : int
        How many rows are beyond their bounds.
    causes : tuple of str
        The likely mistakes, all of them together; empty if none is known.
    """

    subject: str
    passed: bool
    errors: tuple[float, ...]
    ratios: tuple[float, ...]
    first_wrong: int | None
    wrong: int
    causes: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return `passed`."""
        return self.passed

    def __str__(self) -> str:
        """Return the report as text of several lines."""
        return "\n".join(_report_lines(self))


def check_cache(
    cache: Any,
    layout: str,
    rope: Rope,
    /,
    *,
    base: float | None = None,
    dtype: str | None = None,
    others: Mapping[str, Rope] | None = None,
) -> CacheReport:
    """
    Compare an engine's rotary cache with the exact numbers of a rotation, row by row, and guess its mistakes.

    Parameters
    ----------
    cache : array or pair of array
        The cache; for a layout of two arrays cosines and sines. Row p belongs to position p.
    layout : str
        A name in `rope_any.layouts.LAYOUTS`.
    rope : Rope
        The rotation that the cache should be for. Of several axes each pair must have one, as in M-RoPE, whose caches
        are those of equal positions on all axes.
    base : float, optional
        For divisors: the base of the frequencies that the engine divides.
    dtype : str, optional
        The dtype that the numbers of the cache had, if its arrays have a wider one: "bfloat16" for NumPy.
    others : mapping of str to Rope, optional
        Other rotations by name that the cache may be for by mistake, such as those of other layers.

    Returns
    -------
    CacheReport
        The errors of the rows, and a guess at the cause.

    Raises
    ------
    TypeError
        If an argument has a wrong type, or the cache a dtype that the layout lacks.
    ValueError
        If the layout is unknown, or no layout with as many arrays has the shape of the cache.

    Notes
    -----
    The bound is that of an engine that does it right in float32, and of one rounding to the dtype. A cosine or a sine
    at position p may be off by ``A (1.2e-7 + p f (4 + |ln f|) 2⁻²⁴)``, in which f is the frequency of its pair and A
    the attention factor: a float32 power of a base is off by as much of f. An angle may be off by the second term
    alone, a divisor or reciprocal by that share of itself. `check_rotary` has a bound that float32 angles miss.

    For the guess, the cache is read in the other layouts, compared with `others`, and then with deliberately wrong
    tables: see `check_rotary`.

    Examples
    --------
    >>> import numpy as np
    >>> import rope_any as ra
    >>> from rope_any.testing import check_cache
    >>> rope = ra.Rope(ra.frequencies(64), pairing="half")
    >>> p = np.arange(4096, dtype=np.float32)
    >>> angles = np.outer(p, np.float32(rope.frequencies))
    >>> cache = np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)
    >>> check_cache(cache, "vllm", rope).passed
    True
    >>> other = ra.Rope(ra.frequencies(64, base=500_000.0), pairing="half")
    >>> check_cache(cache, "vllm", other).causes
    ('other frequencies: those of base 10000',)
    """
    row, rope = layout_of(layout), _on_one_axis(rope)
    pairs = len(rope.frequencies)
    if row.holds != "cos and sin":
        plain_frequencies(layout, row, rope)
    require_options(layout, {"base": base}, {"base"} if row.holds == "divisors" else set())
    arrays = tuple(cache) if row.arrays == 2 and isinstance(cache, tuple | list) else (cache,)
    lib = require_array("cache", arrays[0])
    dtype = lib.dtype_name(arrays[0].dtype) if dtype is None else dtype
    if dtype not in row.dtypes:
        raise ArgumentTypeError("cache", f"be of {' or '.join(row.dtypes)} for the layout {layout}", Text(dtype))
    job = _Job(rope, base, 2.0 ** -DIGITS[dtype])
    with np.errstate(all="ignore"):  # a cache of zeros or infinities gets a report, too
        try:
            given = _Reading(layout, _numbers(cache, layout, pairs))
        except ArgumentValueError:
            given = None
        best = None
        for one in chain([given] if given else [], _other_readings(arrays, row, pairs)):
            if job.fits(one):
                best = one
                break
            best = best or (one if job.starts_well(one) else None)
        best = best or given or _Reading(layout, _numbers(cache, layout, pairs))  # the last raises why it does not fit
        return _report(job, given, best, f"layout {layout}", dtype, others or {})


def _on_one_axis(rope: object) -> Rope:
    """Return a Rope whose positions are equal on all axes as one of one axis; raise if a pair has several axes."""
    if not isinstance(rope, Rope):
        raise ArgumentTypeError("rope", "be a Rope", rope)
    columns = [[f for f in column if f] or [0.0] for column in zip(*as_rows(rope.frequencies), strict=True)]
    if max(map(len, columns)) > 1:
        raise ArgumentValueError("rope", "have one axis for each pair, as the rows of a cache", Text("several"))
    return replace(rope, frequencies=tuple(column[0] for column in columns))


# --- the numbers of a cache -------------------------------------------------------------------------------


class _Reading(NamedTuple):
    """A cache as read in one layout."""

    layout: str
    values: Data
    """``(parts, copies, batch, rows, pairs)``."""


def _numbers(cache: Any, layout: str, pairs: int) -> Data:
    """Return a cache as float64 numbers ``(parts, copies, batch, rows, pairs)``; raise unless it fits the layout."""
    parts = named_parts(cache, layout, rotary_dim=2 * pairs)
    return np.stack([_on_host(x) for x in parts]).astype(np.float64)


def _on_host(x: Any) -> Data:
    """Return an array as NumPy data; numbers in half precision in float32, which NumPy has."""
    lib = require_array("cache", x)
    return np.asarray(lib.get(x if "complex" in lib.dtype_name(x.dtype) else lib.cast(x, lib.compute_dtype(x))))


def _other_readings(arrays: tuple[Any, ...], row: Layout, pairs: int) -> Iterator[_Reading]:
    """Yield a cache in each other layout of its kind, those of its shape first, then reshaped."""
    data = [_on_host(x) for x in arrays]
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {(row.axes, row.parts): (True, "", ())}
    for name, other in LAYOUTS.items():
        same = other.holds == row.holds and (other.arrays, other.is_complex) == (row.arrays, row.is_complex)
        sizes = {"part": 2, "copy": 2, "1": 1, "batch": 1, "pair": pairs}
        sizes["seq"] = data[0].size // int(np.prod([sizes.get(axis, 1) for axis in other.names]))
        shape = tuple(int(np.prod([sizes[part] for part in axis.split("*")])) for axis in other.axes.split())
        if same and all(x.size == np.prod(shape) for x in data):
            found.setdefault((other.axes, other.parts), (shape != data[0].shape, name, shape))
    for _, name, shape in sorted(one for one in found.values() if one[1]):
        shaped = tuple(x.reshape(shape).astype(LAYOUTS[name].dtypes[0]) for x in data)
        yield _Reading(name, _numbers(shaped if len(shaped) == 2 else shaped[0], name, pairs))


class _Job(NamedTuple):
    """The rotation that a cache should be for, and the unit roundoff of its dtype."""

    rope: Rope
    base: float | None
    roundoff: float

    def compare(self, one: _Reading) -> tuple[Data, Data]:
        """Return the error of each number, ``(parts, copies, batch, rows, pairs)``, and its multiple of the bound."""
        row, f = LAYOUTS[one.layout], np.asarray(self.rope.frequencies)
        count, pairs = one.values.shape[-2:]
        noise = np.abs(f) * (4 + np.abs(np.log(np.where(f, np.abs(f), 1)))) * 2.0**-24
        at = np.arange(count, dtype=np.float64)[:, None]
        want: Data
        if row.holds == "cos and sin":
            table = self.rope.table(range(count), like=np.zeros(1))
            want = np.stack([getattr(table, part) for part in row.parts])
            bound = self.rope.attention_factor * (TABLE_BOUND + at * noise)
        elif row.holds == "angles":
            want, bound = (at * f)[None], at * noise
        else:
            want = (np.asarray(divided(row, pairs, self.base)) / f)[None, None]
            bound = np.abs(want[0]) * np.where(f, noise / np.abs(f), 0)
        want = want[:, None, None]
        error = np.where(one.values == want, 0, np.abs(one.values - want))
        ratio = np.where(error == 0, 0, error / (bound + self.roundoff * np.abs(want)))
        return error, np.where(np.isnan(ratio), np.inf, ratio)

    def ratios(self, one: _Reading) -> Data:
        """Return the largest error of each row as a multiple of its bound."""
        return _by_row(one, self.compare(one)[1])

    def fits(self, one: _Reading) -> bool:
        """Whether all numbers are within their bounds; the first rows are compared first, because they tell most."""
        parts = one._replace(values=one.values[..., :RUN, :]), one
        return all(self.ratios(part).max(initial=0) <= 1 for part in parts)

    def starts_well(self, one: _Reading) -> bool:
        """Whether row 0 is right and most copies agree, as in a cache of this layout with another mistake."""
        first = one._replace(values=one.values[..., :1, :])
        return bool((one.values == one.values[:, :1]).mean() > 0.9 and self.ratios(first)[:1].max(initial=0) <= 1)


def _by_row(one: _Reading, numbers: Data) -> Data:
    """Return the largest number of each row, or of each pair if the layout has no rows."""
    return np.asarray(numbers.max(axis=(0, 1, 2, 4 if "seq" in LAYOUTS[one.layout].names else 3)))


# --- the mistakes -----------------------------------------------------------------------------------------


def _report(  # noqa: PLR0917  # its one caller has all of them
    job: _Job, given: _Reading | None, best: _Reading, name: str, dtype: str, others: Mapping[str, Rope]
) -> CacheReport:
    """Return the report of a cache as read in the layout given, and the mistakes of the reading that fits best."""
    shown = given or best
    error, ratio = (_by_row(shown, numbers) for numbers in job.compare(shown))
    wrong = np.flatnonzero(ratio > 1)
    causes: tuple[str, ...] = ()
    if len(wrong) or given is None:
        if best is not given:
            causes = (f'the layout is "{best.layout}"',)
        causes += _causes(job, best, others)
    count, pairs = shown.values.shape[-2:]
    size = f"{count} rows of {pairs} pairs" if "seq" in LAYOUTS[shown.layout].names else f"{pairs} pairs"
    first = int(wrong[0]) if len(wrong) else None
    passed = not len(wrong) and given is not None
    subject = f"{name}{'' if given else f', read as {best.layout}'}, {size}, {dtype}"
    return CacheReport(subject, passed, tuple(error.tolist()), tuple(ratio.tolist()), first, len(wrong), causes)


def _causes(job: _Job, one: _Reading, others: Mapping[str, Rope]) -> tuple[str, ...]:
    """Return the likely mistakes of a cache, other than its layout; empty if it is right or the cause is unknown."""
    row, ratio = LAYOUTS[one.layout], job.ratios(one)
    if ratio.max(initial=0) <= 1:
        return ()
    for name, rope in others.items():
        try:
            other = job._replace(rope=_on_one_axis(rope))
        except ArgumentValueError:  # no cache has pairs of several axes
            continue
        if len(other.rope.frequencies) == one.values.shape[-1] and other.fits(one):
            return (f"the rotation is that of {name}",)
    if "seq" not in row.names and job.fits(one._replace(values=1 / one.values)):
        return ("each number is the reciprocal of the right one",)
    rows, cos, sin = _sample(job, one)
    wrong = np.flatnonzero(ratio > 1)
    if "seq" in row.names and ratio[rows].max(initial=0) <= 1:
        where = f"row {wrong[0]}" if len(wrong) == 1 else f"{len(wrong)} rows from {wrong[0]} to {wrong[-1]}"
        return (f"something in {where} alone",)
    if not (one.values == one.values[:, :1]).all() and np.isfinite(one.values).all():
        return ("the two copies of a number differ",)
    f = np.asarray([job.rope.frequencies])
    pairs, noise = f.shape[-1], ANGLE_NOISE + 1.5 * job.roundoff
    if row.holds != "cos and sin":
        noise += float(np.abs(f).max() * rows[-1]) * 2.0**-22  # of a float32 angle
    right = Rotary("half", f, 0, job.rope.attention_factor)
    x = features(len(rows), 2 * pairs, bits=23)
    a, b = x[:, :pairs], x[:, pairs:]
    y, at = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1), rows[:, None]
    found = find_causes(right, x, at, y, bound=noise)
    found = tuple(cause for cause in found if cause not in WITHIN_BOUNDS) or _scaled_by_parts(right, x, y, rows)
    return found or ((f"something else from row {wrong[0]} on",) if wrong[0] >= RUN else ())


def _sample(job: _Job, one: _Reading) -> tuple[Data, Data, Data]:
    """Return some positions, and the cosines and sines that a cache means there, each ``(positions, pairs)``."""
    row, values = LAYOUTS[one.layout], one.values[:, 0, 0]
    count = values.shape[-2] if "seq" in row.names else LONGEST_ANGLES
    count = count if row.holds == "cos and sin" else min(count, LONGEST_ANGLES)
    starts = [0, *(p for p in POWERS[2:] if p < count), max(count - RUN, 0)]
    rows = np.unique([p + i for p in starts for i in range(RUN) if p + i < count])
    if row.holds == "cos and sin":
        cos, sin = (values[row.parts.index(part)][rows] for part in ("cos", "sin"))
        return rows, cos, sin
    f = None if row.holds == "angles" else np.asarray(divided(row, values.shape[-1], job.base)) / values[0, 0]
    angle = values[0][rows] if f is None else rows[:, None] * f
    return rows, np.cos(angle), np.sin(angle)


def _scaled_by_parts(right: Rotary, x: Data, y: Data, rows: Data) -> tuple[str, ...]:
    """Return the cause if fast pairs are right and slow ones are scaled by one number; empty if not."""
    places = np.asarray([p for p in POWERS if p in rows])
    if {0, 1} - {*places.tolist()} or not np.isfinite(y).all():
        return ()
    which = np.searchsorted(rows, places)
    ratio = measure_frequencies(right, x[which], y[which], places) / right.frequencies[0]
    scale = float(np.median(ratio[-2:]))
    ends = np.abs(ratio[:1] - 1).max() < 1e-3 and np.abs(ratio[-2:] / scale - 1).max() < 1e-2
    steps = np.diff(ratio) * np.sign(scale - 1)
    if not ends or abs(scale - 1) < 1e-2 or steps.min(initial=0) < -1e-2 * abs(scale):
        return ()
    return (f"frequencies scaled by parts: fast pairs are right, slow ones times {scale:.4g}, as by YaRN or Llama 3",)


# --- the text ---------------------------------------------------------------------------------------------


def _report_lines(report: CacheReport) -> Iterator[str]:
    """Yield the lines of a report."""
    ratios = np.asarray(report.ratios)
    yield f"{'passed' if report.passed else 'FAILED'}: {report.subject}"
    yield ""
    yield "  row       largest error  times its bound"
    worst = np.argsort(-ratios, kind="stable")[:WORST].tolist()
    first = [] if report.first_wrong is None else [report.first_wrong]
    for row in sorted({*(p for p in (*POWERS, len(ratios) - 1) if 0 <= p < len(ratios)), *worst, *first}):
        fails = "  FAILS" if ratios[row] > 1 else ""
        yield f"  {row:<9} {report.errors[row]:<14.1e} {ratios[row]:.1e}{fails}"
    if report.first_wrong is not None:
        yield ""
        yield f"  {report.wrong} of {len(ratios)} rows are wrong, from row {report.first_wrong} on"
    if not report.passed:
        yield ""
        yield f"  likely cause: {'; '.join(report.causes) or 'none of the known ones'}"
