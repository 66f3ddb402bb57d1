"""Compare the rotary cache of an engine with exact numbers, row by row, and guess its mistakes."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rope_any._arrays import require_array
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, choice, int32, no_rope
from rope_any._frequencies import as_rows
from rope_any._rope import Rope
from rope_any.layouts import (
    DIGITS,
    LAYOUTS,
    arrays_of,
    divided,
    layout_of,
    parts_of,
    plain_frequencies,
    require_options,
    values_of,
)
from rope_any.testing._causes import POWERS, Seen
from rope_any.testing._exact import Data, features
from rope_any.testing._rotary import rotary_of
from rope_any.testing._search import find_causes
from rope_any.testing._task import ANGLE_NOISE, TABLE_BOUND

RUN = 8  # consecutive rows that are compared with wrong references
LONGEST_ANGLES = 1010  # rows: beyond, angles in float32 are too coarse to tell mistakes apart
WITHIN_BOUNDS = ("frequencies in float32", "angles in float32")  # no mistakes of a cache
WORST = 3  # rows that are shown for their error
RUNS = 5  # runs of wrong rows that are named
# The share of wrong rows up to which they are named, and no mistake is guessed that would make all wrong. A layout with
# one number for each pair has no rows, and half of its pairs are right if frequencies are scaled by parts.
FEW = {"row": 0.5, "pair": 0.125}
NOT_FINITE = "infinite or NaN values"
TWICE: dict[str, Callable[[int], tuple[slice, slice]]] = {
    "one time after the other": lambda n: (slice(n // 2), slice(n // 2, n)),
    "side by side": lambda n: (slice(0, n, 2), slice(1, n, 2)),
}


class CacheReport(NamedTuple):
    """
    The result of `check_cache`; ``print(report)`` shows it, ``bool(report)`` is `passed`.

    Attributes
    ----------
    subject : str
        The layout, the size and the dtype of the cache.
    passed : bool
        Whether all numbers are within their bounds, and there are enough rows.
    errors : tuple of float
        The largest error of each row: its index is the position, or the pair for divisors and reciprocals.
    ratios : tuple of float
        The same as a multiple of the bound; infinite for nan.
    first_wrong : int or None
        The first row beyond its bound.
    wrong : int
        The number of rows beyond their bounds.
    length : int or None
        The number of rows that there must be; None if it is unknown or the layout has no rows.
    causes : tuple of str
        The likely mistakes, all of them together, or the rows that are wrong; or ().
    """

    subject: str
    passed: bool
    errors: tuple[float, ...]
    ratios: tuple[float, ...]
    first_wrong: int | None
    wrong: int
    length: int | None
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
    length: int | None = None,
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
        The rotation that the cache should be for. With several axes, each pair must use only one of them, as in M-RoPE,
        and row p is that of position p on all axes.
    base : float, optional
        Required for a layout of divisors: the base of the frequencies that the engine divides.
    dtype : str, optional
        The dtype that the numbers of the cache had, if its arrays have a wider one: "bfloat16" for NumPy.
    length : int, optional
        The length of the longest sequence, in tokens, for which the cache must have rows.
    others : mapping of str to Rope, optional
        Other rotations that the cache may be for by mistake, by name, such as those of other layers.

    Returns
    -------
    CacheReport
        The errors of the rows, and the likely causes.

    Raises
    ------
    TypeError
        If an argument has a wrong type, or the cache a dtype that the layout lacks.
    ValueError
        If the layout or `dtype` is unknown, or the cache has no rows, no values (on torch's meta device) or a shape
        that fits no layout.

    Notes
    -----
    Unlike `check_rotary`, this allows the error of an engine that computes correctly in float32. Rounding the frequency
    f of a pair and its product with the position p changes the angle by up to ``e = p f (4 + |ln f|) 2⁻²⁴``, or not at
    all if f is a power of two and p is below 2²⁴. A cosine or a sine may be off by ``A (1.2e-7 + e)``, where A is the
    attention factor, an angle by e, a divisor or a reciprocal by ``(4 + |ln f|) 2⁻²⁴`` of itself, and all but angles by
    one rounding to the dtype.

    If up to half of the rows are wrong, the cause is a mistake of order, such as repeated rows, or the rows are named.
    If more are wrong, a cause is named only if it gives the numbers of the cache.

    Examples
    --------
    >>> rope = ra.Rope(ra.frequencies(64), pairing="half")
    >>> angles = np.outer(np.arange(4096, dtype=np.float32), np.float32(rope.frequencies))
    >>> cache = np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)
    >>> ra.testing.check_cache(cache, "vllm", rope).passed
    True
    >>> other = ra.Rope(ra.frequencies(64, base=500_000.0), pairing="half")
    >>> ra.testing.check_cache(cache, "vllm", other).causes
    ('other frequencies: those of base 10000',)
    """
    row, rope = layout_of(layout), _on_one_axis("rope", rope)
    if row.holds != "cos and sin":
        plain_frequencies(layout, row, rope)
    require_options(layout, {"base": base}, {"base"} if row.holds == "divisors" else set())
    length = None if length is None else int32("length", length, least=1)
    others = {} if others is None else others
    if not isinstance(others, Mapping):
        raise ArgumentTypeError("others", "be a mapping from names to rotations", others)
    for name, other in others.items():
        if not isinstance(other, Rope):
            raise no_rope(f"others[{name!r}]", other)
    arrays = arrays_of(cache, layout)
    if dtype is None:
        dtype = require_array("cache", arrays[0]).dtype_name(arrays[0].dtype)
    if choice("dtype", dtype, DIGITS, f"be one of {', '.join(DIGITS)}") not in row.dtypes:
        raise ArgumentTypeError("cache", f"be of {' or '.join(row.dtypes)} for the layout {layout}", Text(dtype))
    if not all(arrays[0].shape):
        raise ArgumentValueError("cache", "have a row or more", Text(f"shape {tuple(arrays[0].shape)}"))
    with np.errstate(all="ignore"):  # a cache of zeros or infinities gets a report, too
        return _report(_Cache([values_of(x) for x in arrays], layout, rope, dtype, base), length, others)


def _on_one_axis(name: str, rope: object) -> Rope:
    """Return `rope` with one axis, for positions equal on all; raise if a pair rotates by several axes, or no Rope."""
    if not isinstance(rope, Rope):
        raise no_rope(name, rope)
    columns = [[f for f in column if f] or [0.0] for column in zip(*as_rows(rope.frequencies), strict=True)]
    if max(map(len, columns)) > 1:
        raise ArgumentValueError(name, "have one axis for each pair, as the rows of a cache", Text("several"))
    return replace(rope, frequencies=tuple(column[0] for column in columns))


# --- a cache, and ways to read it -------------------------------------------------------------------------


class _Cache(NamedTuple):
    """A cache of cosines and sines in NumPy, and what it should hold."""

    arrays: list[Data]
    layout: str
    rope: Rope
    dtype: str
    base: float | None


class _Reading(NamedTuple):
    """The numbers of a cache of cosines and sines, as read in one layout."""

    layout: str
    values: Data
    """``(parts, copies, batch, rows, pairs)``."""
    base: float | None
    """The base of divisors."""
    note: str = ""
    """What had to be undone to read it so."""

    @property
    def unit(self) -> str:
        """What a report counts: "row", or "pair" if the layout has no rows."""
        return "row" if "seq" in LAYOUTS[self.layout].names else "pair"

    def largest(self, numbers: Data) -> Data:
        """Return the largest of `numbers`, shaped like `values`: ``(rows,)``, or ``(pairs,)`` if there are no rows."""
        return np.asarray(numbers.max(axis=(0, 1, 2, 4 if self.unit == "row" else 3)))


def _read_in_layout(cache: _Cache, arrays: list[Data], note: str = "", layout: str = "") -> _Reading | None:
    """Return a rotary cache's `arrays` as read in `layout` ("": its own), with a `note`; None if shapes don't fit."""
    try:
        parts = parts_of(arrays, layout or cache.layout, rotary_dim=2 * len(cache.rope.frequencies))
    except ArgumentValueError:
        return None
    return _Reading(layout or cache.layout, np.stack(parts).astype(np.float64), cache.base, note)


def _with_mistake_undone(cache: _Cache, own_reading: _Reading | None) -> Iterator[_Reading]:
    """Yield readings in the layout of a cache, each with a mistake undone; `own_reading` is None for a wrong shape."""
    if own_reading is not None:
        values = own_reading.values
        yield own_reading._replace(values=values[..., ::-1], note="the pairs are in reverse order")
        if own_reading.unit == "pair":
            yield own_reading._replace(values=1 / values, note="each number is the reciprocal of the right one")
        for how, halves in TWICE.items():
            first, second = (values[..., half, :] for half in halves(values.shape[-2]))
            if np.array_equal(first, second):
                yield own_reading._replace(values=first, note=f"the rows are repeated, {how}")
        return
    old, new = cache.arrays[0].shape, _shape_in_layout(cache, cache.layout)
    mended: dict[str, list[Data]] = {}
    for how, halves in TWICE.items() if old else ():
        one, other = ([x[..., half] for x in cache.arrays] for half in halves(old[-1]))
        if all(map(np.array_equal, one, other)):
            mended[f"the numbers of each row are repeated, {how}"] = one
    mended["the axes are in reverse order"] = [x.T for x in cache.arrays]
    if new is not None:
        mended[f"the shape is {old} rather than {new}"] = [x.reshape(new) for x in cache.arrays]
    yield from filter(None, (_read_in_layout(cache, arrays, note=note) for note, arrays in mended.items()))


def _in_other_layouts(cache: _Cache, *, reshaped: bool) -> Iterator[_Reading]:
    """Yield readings in other layouts of what the cache holds: that fit its shape or, if `reshaped`, only reshaped."""
    own, given = LAYOUTS[cache.layout], cache.arrays[0].shape
    for name, row in LAYOUTS.items():
        kinds, shape = {row.holds, own.holds}, _shape_in_layout(cache, name)
        same_kind = len(kinds) == 1 or kinds == {"divisors", "reciprocals"}
        is_other = (row.axes, row.parts, row.holds) != (own.axes, own.parts, own.holds)
        if not (is_other and same_kind and row.arrays == own.arrays and cache.dtype in row.dtypes):
            continue
        if shape is None or (shape != given) != reshaped:
            continue
        base = _base_of_divisors(cache) if row.holds == "divisors" else None
        note = f", of base {base:.6g}" if base else ", in another shape" if reshaped else ""
        one = _read_in_layout(cache, [x.reshape(shape) for x in cache.arrays], note, name)
        if one and (base or row.holds != "divisors"):
            yield one._replace(base=base)


def _shape_in_layout(cache: _Cache, layout: str) -> tuple[int, ...] | None:
    """Return the shape that an array of a cache would have in `layout`; None if its numbers don't fill whole rows."""
    row = LAYOUTS[layout]
    sizes = {"part": 2, "copy": 2, "1": 1, "batch": 1, "pair": len(cache.rope.frequencies)}
    sizes["seq"] = cache.arrays[0].size // math.prod(sizes.get(name, 1) for name in row.names)
    shape = tuple(math.prod(sizes[name] for name in axis.split("*")) for axis in row.axes.split())
    return shape if math.prod(shape) == cache.arrays[0].size else None


def _base_of_divisors(cache: _Cache) -> float | None:
    """Return base B of a cache's numbers ``B^(-i/pairs) / f``, f the Rope's frequencies, by the last; None if unfit."""
    f, given = np.asarray(cache.rope.frequencies), cache.arrays[0].astype(np.float64)
    if len(f) < 2 or given.shape != f.shape or not f[-1] * given[-1] > 0:
        return None
    base = float((f[-1] * given[-1]) ** (-len(f) / (len(f) - 1)))  # each is base^(-i/pairs) / f
    # divisors are 1, 8, ...; reciprocals of other frequencies come close to their base, and other numbers are below 1
    return base if given.min() > 0.9 and given.max() < base < 1e12 else None


# --- errors -----------------------------------------------------------------------------------------------


def _reading_errors(cache: _Cache, reading: _Reading) -> tuple[Data, Data]:
    """Return the error of each number of a reading, and error / bound of `check_cache`, both shaped like its values."""
    row, f = LAYOUTS[reading.layout], np.asarray(cache.rope.frequencies)
    count, pairs = reading.values.shape[-2:]
    angle, roundoff = np.arange(count, dtype=np.float64)[:, None] * f, 2.0 ** -DIGITS[cache.dtype]
    # the rounded exponent is an error of ln f, power and division of 3, the product with a position of 1 unit
    share = (4 + np.abs(np.log(np.where(f, np.abs(f), 1)))) * 2.0**-24
    is_exact = (np.frexp(np.abs(f))[0] == 0.5) & (angle == angle.astype(np.float32))
    slack = np.where(is_exact, 0, np.abs(angle) * share)[None]
    want: Data
    if row.holds == "cos and sin":
        table = cache.rope.table(range(count), like=np.zeros(1))
        want = np.stack([getattr(table, part) for part in row.parts])
        bound = cache.rope.attention_factor * (TABLE_BOUND + slack) + roundoff * np.abs(want)
    elif row.holds == "angles":
        want, bound = angle[None], slack
    else:
        want = (np.asarray(divided(row, pairs, reading.base)) / f)[None, None]
        bound = np.abs(want) * (share + roundoff)
    want, bound = want[:, None, None], bound[:, None, None]
    error = np.where(reading.values == want, 0, np.abs(reading.values - want))
    ratio = np.where(error == 0, 0, error / bound)
    return error, np.where(np.isnan(ratio), np.inf, ratio)


def _fits(cache: _Cache, reading: _Reading) -> bool:
    """Whether the numbers of a rotary cache, as read, are the exact ones of its Rope, in bounds; first rows first."""
    parts = (reading._replace(values=reading.values[..., :count, :]) for count in (RUN, None))
    return all(_reading_errors(cache, part)[1].max() <= 1 for part in parts)


def _starts_well(cache: _Cache, reading: _Reading) -> bool:
    """Whether a reading seems right: row 0 (or pair 0) is in bounds, over 90% of all numbers equal their first copy."""
    first = reading._replace(values=reading.values[..., :1, :])
    agree = (reading.values == reading.values[:, :1]).mean() > 0.9
    return bool(agree and reading.largest(_reading_errors(cache, first)[1])[0] <= 1)


# --- the mistakes -----------------------------------------------------------------------------------------


def _report(cache: _Cache, length: int | None, others: Mapping[str, Rope]) -> CacheReport:
    """Return the report of a cache in its layout, or if its shape doesn't fit, in the likeliest; raise if none is."""
    given = best = _read_in_layout(cache, cache.arrays)
    causes: tuple[str, ...] = ()
    if given is None or not _fits(cache, given):
        best, causes = _diagnose(cache, given, others)
    shown: Any = given or best
    if shown is None:  # no layout has this shape
        parts_of(cache.arrays, cache.layout, rotary_dim=2 * len(cache.rope.frequencies))
    error, ratio = (shown.largest(numbers) for numbers in _reading_errors(cache, shown))
    wrong = np.flatnonzero(ratio > 1)
    count, pairs = shown.values.shape[-2:]
    length = length if shown.unit == "row" else None
    size = f"{count} rows of {pairs} pairs" if shown.unit == "row" else f"{pairs} pairs"
    read_as = f", read as {shown.layout}" if shown.layout != cache.layout else ""
    return CacheReport(
        subject=f"layout {cache.layout}{read_as}, {size}, {cache.dtype}",
        passed=given is not None and not len(wrong) and count >= (length or 0),
        errors=tuple(error.tolist()),
        ratios=tuple(ratio.tolist()),
        first_wrong=int(wrong[0]) if len(wrong) else None,
        wrong=len(wrong),
        length=length,
        causes=causes,
    )


def _diagnose(
    cache: _Cache, own_reading: _Reading | None, others: Mapping[str, Rope]
) -> tuple[_Reading | None, tuple[str, ...]]:
    """Return the likeliest reading of a wrong cache, else `own_reading` (or None), and its likely mistakes as texts."""
    if own_reading is not None and not own_reading.values.any():
        return own_reading, ("all numbers are 0",)
    few = own_reading and _wrong_rows_text(
        own_reading.largest(_reading_errors(cache, own_reading)[1]) > 1, own_reading.unit, most=FEW[own_reading.unit]
    )
    of_shape, reshaped = (partial(_in_other_layouts, cache, reshaped=flag) for flag in (False, True))
    own = partial(_with_mistake_undone, cache, own_reading)
    for readings in (own,) if few else (of_shape, own, reshaped):
        if fitting := [one for one in readings() if _fits(cache, one)]:
            return fitting[0], _reading_cause(cache, fitting)
    if own_reading is not None and few:
        return own_reading, (few,) if np.isfinite(own_reading.values).all() else (few, NOT_FINITE)
    if own_reading is not None and _starts_well(cache, own_reading):
        return own_reading, _causes(cache, own_reading, others)
    for readings in (of_shape, own, reshaped):
        if likely := [one for one in readings() if _starts_well(cache, one)]:
            best = likely[0]
            alike = [one for one in likely[1:] if np.array_equal(one.values, best.values, equal_nan=True)]
            return best, (*_reading_cause(cache, [best, *alike]), *_causes(cache, best, others))
    return own_reading, () if own_reading is None else _causes(cache, own_reading, others)


def _reading_cause(cache: _Cache, readings: list[_Reading]) -> tuple[str, ...]:
    """
    Return (text,), the cause that `readings` show: their layouts, if the first is not read in the cache's own.

    If it is, the text is the note of the first; () if that is empty.
    """
    note, names = readings[0].note, [one.layout for one in readings]
    if names[0] == cache.layout:
        return (note,) if note else ()
    return (f"several layouts fit{note}: {', '.join(names)}" if names[1:] else f'the layout is "{names[0]}"{note}',)


def _wrong_rows_text(wrong: Data, unit: str, most: float = math.inf) -> str:
    """Return "3 rows are wrong: 0, 4 to 5" for True in `wrong` ``(n,)``; "" if none is, or over ``most * (n - 1)``."""
    found = np.flatnonzero(wrong)
    if not len(found) or len(found) > most * (len(wrong) - 1):
        return ""
    runs = np.split(found, np.flatnonzero(np.diff(found) > 1) + 1)
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs[:RUNS]]
    which = ", ".join(texts) + (", ..." if len(runs) > RUNS else "")
    return f"{len(found)} {unit}s are wrong: {which}" if len(found) > 1 else f"1 {unit} is wrong: {which}"


def _causes(cache: _Cache, reading: _Reading, others: Mapping[str, Rope]) -> tuple[str, ...]:
    """Return likely mistakes, as texts, of a cache read in the right layout, many rows wrong; () if none is known."""
    ratio = _reading_errors(cache, reading)[1]
    if ratio.max() <= 1:
        return ()
    for name, rope in others.items():
        try:
            other = cache._replace(rope=_on_one_axis("others", rope))
        except ArgumentValueError:  # no cache has pairs of several axes
            continue
        if len(other.rope.frequencies) == reading.values.shape[-1] and _fits(other, reading):
            return (f"the rotation is that of {name}",)
    if reading.unit == "row" and not np.isfinite(reading.values).all():
        return (NOT_FINITE,)
    differ = ("the two copies of a number differ",) if (reading.values != reading.values[:, :1]).any() else ()
    if found := differ or _guess(cache, reading):
        return found
    pairs, wrong = ratio.max(axis=(0, 1, 2, 3)) > 1, reading.largest(ratio) > 1
    named = _wrong_rows_text(pairs, "pair", most=0.5) or (
        "" if wrong[1:].all() else _wrong_rows_text(wrong, reading.unit)
    )
    return (named,) if named else ()


def _guess(cache: _Cache, reading: _Reading) -> tuple[str, ...]:
    """Return the mistakes, of those that `check_rotary` knows, that give these numbers; or ()."""
    f = np.asarray(cache.rope.frequencies)
    rows, cos, sin = _sample(reading)
    pairs, noise = len(f), ANGLE_NOISE + 1.5 * 2.0 ** -DIGITS[cache.dtype]
    if LAYOUTS[reading.layout].holds != "cos and sin":
        noise += float(np.abs(f).max() * rows[-1]) * 2.0**-22  # of a float32 angle
    right = replace(cache.rope, pairing="half", start=0, blocks=1)
    x = features(len(rows), 2 * pairs, bits=23)
    a, b = x[:, :pairs], x[:, pairs:]
    y = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1)
    found = find_causes(Seen(rotary_of(right)[0], "half", 1, x, rows[:, None], y), bound=noise).faults
    return tuple(cause.text for cause in found if cause.text not in WITHIN_BOUNDS)


def _sample(reading: _Reading) -> tuple[Data, Data, Data]:
    """Return some positions ``(n,)`` and the cos and sin there, ``(n, pairs)``, of a reading's table or frequencies."""
    row, values = LAYOUTS[reading.layout], reading.values[:, 0, 0]
    count = values.shape[-2] if reading.unit == "row" else LONGEST_ANGLES
    count = count if row.holds == "cos and sin" else min(count, LONGEST_ANGLES)
    starts = [0, *(p for p in POWERS[2:] if p < count), max(count - RUN, 0)]
    rows = np.unique([p + i for p in starts for i in range(RUN) if p + i < count])
    if row.holds == "cos and sin":
        cos, sin = (values[row.parts.index(part)][rows] for part in ("cos", "sin"))
        return rows, cos, sin
    f = None if row.holds == "angles" else np.asarray(divided(row, values.shape[-1], reading.base)) / values[0, 0]
    angle = values[0][rows] if f is None else rows[:, None] * f
    return rows, np.cos(angle), np.sin(angle)


# --- the text ---------------------------------------------------------------------------------------------


def _report_lines(report: CacheReport) -> Iterator[str]:
    """Yield the lines of a report on a cos/sin cache: passed or not, errors by row (or pair), wrong rows, causes."""
    ratios, unit = np.asarray(report.ratios), "row" if " rows of " in report.subject else "pair"
    yield f"{'passed' if report.passed else 'FAILED'}: {report.subject}"
    yield ""
    yield f"  {unit:<9} largest error  times its bound"
    worst = np.argsort(-ratios, kind="stable")[:WORST].tolist()
    first = [] if report.first_wrong is None else [report.first_wrong]
    for row in sorted({*(p for p in (*POWERS, len(ratios) - 1) if 0 <= p < len(ratios)), *worst, *first}):
        fails = "  FAILS" if ratios[row] > 1 else ""
        yield f"  {row:<9} {report.errors[row]:<14.1e} {ratios[row]:.1e}{fails}"
    if report.first_wrong is not None:
        yield ""
        yield f"  {report.wrong} of {len(ratios)} {unit}s are wrong, first {unit} {report.first_wrong}"
    if len(ratios) < (report.length or 0):
        yield ""
        yield f"  {len(ratios)} rows for {report.length} tokens are too few"
    if report.wrong or report.causes:
        yield ""
        yield f"  likely cause: {'; '.join(report.causes) or 'none of the known ones'}"
