"""Compare the rotary cache of an engine with exact numbers, row by row, and find its mistakes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rope_any import layouts
from rope_any._arrays import host, require_array
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, choice, int32
from rope_any._frequencies import as_rows, sum_over_axes
from rope_any._pairing import Pairing
from rope_any._positions import array_or_none, as_position_array
from rope_any._rope import Rope
from rope_any.testing._causes import MISTAKES
from rope_any.testing._exact import Data, features
from rope_any.testing._readings import (
    Reading,
    error_if_right,
    errors_of,
    first_wrong,
    in_other_layouts,
    in_own_layout,
    starts_well,
)
from rope_any.testing._report import as_json, entry_lines, head_lines
from rope_any.testing._right import Right, right_of
from rope_any.testing._rotary import Fault, rotary_of
from rope_any.testing._search import Diagnosis, find_causes
from rope_any.testing._seen import NEIGHBOUR, POWERS, Seen
from rope_any.testing._task import ANGLE_NOISE

RUN = 8  # consecutive rows that are searched
SPREAD = 40  # rows at equal distances that a cause must explain too
LONGEST_ANGLES = 1010  # positions: beyond, angles in float32 are too coarse to tell mistakes apart
WITHIN_BOUNDS = ("frequencies in float32", "angles in float32")  # no mistakes of a cache
SHOWN = 3  # rows that are shown for their error
RUNS = 5  # runs of wrong rows that are named
# The share of wrong rows up to which they are named, and no mistake is looked for that would make all wrong. A layout
# with one number for each pair has no rows, and half of its pairs are right if frequencies are scaled by parts.
FEW = {"row": 0.5, "pair": 0.125}
NOT_FINITE = Fault("infinite or NaN values", "see where they come from")
COPIES_DIFFER = Fault("the two copies of a number differ", "write each number to both of its places")
NEVER_WRITTEN = "fill it: its memory was reserved, but never written"
ONE_ROTATION = "make all rows by one rotation: that of the longest sequence"
LONGER = "make a row for each position of the longest sequence, or check for a shorter one"


class CacheReport(NamedTuple):
    """
    The result of `check_cache`; ``print(report)`` shows it, ``bool(report)`` is `passed`.

    Attributes
    ----------
    subject : str
        The layout, the size and the dtype of the cache.
    passed : bool
        Whether all numbers are within their bounds, and there are enough rows.
    causes : tuple of str
        The likely mistakes, all of them together, or the rows that are wrong; or ().
    remedies : tuple of str
        What to do about each of `causes`.
    unexplained : float or None
        The largest difference from a cache with these mistakes, in the rows that were searched; None if they are no
        mistakes of a rotation.
    notes : tuple of str
        What was not compared, and how to have it compared.
    errors : tuple of float
        The largest error of each row, or of each pair for divisors and reciprocals.
    ratios : tuple of float
        The same as a multiple of the bound; infinite for nan.
    first_wrong : int or None
        The first row beyond its bound.
    wrong : int
        The number of rows beyond their bounds.
    length : int or None
        The number of rows that there must be; None if it is unknown, or the rows have positions of their own.
    """

    subject: str
    passed: bool
    causes: tuple[str, ...]
    remedies: tuple[str, ...]
    unexplained: float | None
    notes: tuple[str, ...]
    errors: tuple[float, ...]
    ratios: tuple[float, ...]
    first_wrong: int | None
    wrong: int
    length: int | None

    def __bool__(self) -> bool:
        """Return `passed`."""
        return self.passed

    def __str__(self) -> str:
        """Return the report as text: the causes and what to do first, then the errors of some rows."""
        return "\n".join(_report_lines(self))

    def json(self) -> str:
        """Return the report as JSON, a dict of its attributes; numbers that are not finite are null."""
        return as_json(self)


def check_cache(
    cache: Any,
    layout: str,
    rope: Any,
    /,
    *,
    pairing: Pairing | None = None,
    factor: float | None = None,
    part: str | None = None,
    layer_type: str | None = None,
    sequence_length: int | None = None,
    base: float | None = None,
    dtype: str | None = None,
    positions: Any = None,
    length: int | None = None,
) -> CacheReport:
    """
    Compare an engine's rotary cache with the exact numbers of a rotation, row by row, and find its mistakes.

    Parameters
    ----------
    cache : array or pair of array
        The cache; for a layout of two arrays cosines and sines.
    layout : str
        A name in `rope_any.layouts.LAYOUTS`.
    rope : Rope, Config, or what `rope_any.config.read` takes
        The rotation that the cache should be for, or the config of the model that has it. With a config, the report
        names its other rotations: of other layers, parts and lengths, without scaling, scaled twice, by another factor.
    pairing, factor, part, layer_type, sequence_length : optional
        For a config, as for `Rope.from_config`.
    base : float, optional
        Required for a layout of divisors: the base of the frequencies that the engine divides.
    dtype : str, optional
        The dtype that the numbers of the cache had, if its arrays have a wider one: "bfloat16" for NumPy.
    positions : positions, optional
        The positions of the rows, ``(rows,)`` or ``(rows, axes)``, also real ones; by default 0, 1, 2, ... on all axes.
        They are needed if a pair of the Rope rotates by several axes.
    length : int, optional
        The length of the longest sequence, in tokens, for which the cache must have rows. By default it is
        `sequence_length`, or the longest that the config allows.

    Returns
    -------
    CacheReport
        The likely causes and what to do about them, and the errors of the rows.

    Raises
    ------
    TypeError
        If an argument has a wrong type, or the cache a dtype that the layout lacks.
    ValueError
        If the layout or `dtype` is unknown, the config doesn't give one rotation, or the cache has no rows, no values
        (on torch's meta device) or a shape that fits no layout or `positions`.

    Notes
    -----
    Unlike `check_rotary`, this allows the error of an engine that computes correctly in float32. Rounding the frequency
    f of a pair and its product with the position p changes the angle by up to ``e = p f (4 + |ln f|) 2⁻²⁴``, or not at
    all if f is a power of two and p is below 2²⁴; real positions and sums over axes add a rounding each. A cosine or a
    sine may be off by ``A (1.2e-7 + e)``, where A is the attention factor, an angle by e, a divisor or a reciprocal by
    ``(4 + |ln f|) 2⁻²⁴`` of itself, and all but angles by one rounding to the dtype.

    If up to half of the rows are wrong, the cause is a mistake of order, such as repeated rows, or the rows are named.
    If more are wrong, a cause is named only if it gives the numbers of the cache.

    Examples
    --------
    >>> rope = ra.Rope(ra.frequencies(64), pairing="half")
    >>> angles = np.outer(np.arange(4096, dtype=np.float32), np.float32(rope.frequencies))
    >>> cache = np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)
    >>> ra.testing.check_cache(cache, "vllm", rope).passed
    True
    >>> llama = {"model_type": "llama", "head_dim": 64, "rope_theta": 5e5, "max_position_embeddings": 8192}
    >>> ra.testing.check_cache(cache, "vllm", llama).causes
    ('4096 rows for 8192 tokens are too few', 'other frequencies: those of base 10000')
    """
    row = layouts.layout_of(layout)
    which = {"part": part, "layer_type": layer_type, "sequence_length": sequence_length}
    arrays = layouts.arrays_of(cache, layout)
    right = right_of(rope, arrays[0].shape, pairing=pairing, factor=factor, **which)
    layouts.require_options(layout, {"base": base}, {"base"} if row.holds == "divisors" else set())
    if length is not None and positions is not None:
        raise ArgumentTypeError("length", "not be given beside positions, which say what rows there are", length)
    length = right.length if length is None else int32("length", length, least=1)
    if dtype is None:
        dtype = require_array("cache", arrays[0]).dtype_name(arrays[0].dtype)
    if choice("dtype", dtype, layouts.DIGITS, f"be one of {', '.join(layouts.DIGITS)}") not in row.dtypes:
        raise ArgumentTypeError("cache", f"be of {' or '.join(row.dtypes)} for the layout {layout}", Text(dtype))
    if not all(arrays[0].shape):
        raise ArgumentValueError("cache", "have a row or more", Text(f"shape {tuple(arrays[0].shape)}"))
    places = None if positions is None else _positions_of_rows(positions, layout, right.rope)
    source = _of_rows(right, places)
    own = source.rope
    if row.holds != "cos and sin":  # what a cache of frequencies doesn't hold can't be wrong
        own = replace(own, attention_factor=1.0, start=0, blocks=1)
        layouts.plain_frequencies(layout, row, own)
    places = None if places is None else places[:, : len(as_rows(own.frequencies))]
    given = Reading(layout, own, source, places, [layouts.values_of(x) for x in arrays], dtype, base)
    with np.errstate(all="ignore"):  # a cache of zeros or infinities gets a report, too
        return _report(given, None if positions is not None else length, right)


def _positions_of_rows(positions: Any, layout: str, rope: Rope) -> Data:
    """Return a user's positions of rows as ``(rows, axes)``, equal on all axes if ``(rows,)``; raise if unfit."""
    if "seq" not in layouts.layout_of(layout).names:
        raise ArgumentTypeError("positions", f"not be given for the layout {layout}, which has no rows", positions)
    like = np.zeros(1) if array_or_none(positions) is None else None  # arrays may be of any library
    places, axes = np.asarray(host(as_position_array(positions, like=like))), len(as_rows(rope.frequencies))
    if not places.ndim or places.shape[1:] not in {(), (axes,)}:
        hint = "transpose them" if places.shape[:1] == (axes,) else ""
        raise ArgumentValueError("positions", f"have the shape (rows,) or (rows, {axes})", tuple(places.shape), hint)
    return np.broadcast_to(places.reshape(len(places), -1), (len(places), axes))


def _of_rows(right: Right, places: Data | None) -> Right:
    """Return rotations on one axis if rows have one position on all; raise if that is not known."""
    f = as_rows(right.rope.frequencies)
    if places is None and (np.count_nonzero(f, axis=0) > 1).any():
        hint = "give the positions of the rows by `positions`"
        raise ArgumentValueError("rope", "have one axis for each pair", Text("several"), hint)
    ropes = {"": right.rope, **right.neighbours}
    ropes = {name: rope for name, rope in ropes.items() if np.ndim(rope.frequencies) < 3}
    if places is None or (places == places[:, :1]).all():
        ropes = {name: replace(rope, frequencies=sum_over_axes(rope.frequencies)) for name, rope in ropes.items()}
    own = ropes.pop("")
    alike = {name: rope for name, rope in ropes.items() if np.shape(rope.frequencies) == np.shape(own.frequencies)}
    return right._replace(rope=own, neighbours=alike)


# --- the mistakes -----------------------------------------------------------------------------------------


def _report(given: Reading, length: int | None, right: Right) -> CacheReport:
    """Return the report of a cache in its layout, or if its shape doesn't fit, in the likeliest; raise if none is."""
    own = next(given.read(given.arrays), None)
    shown, found = _diagnose(given, None, np.ones((1, 1), bool)) if own is None else (own, Diagnosis())
    error, ratio = errors_of(shown)
    if own is not None and ratio.max() > 1:
        _, found = _diagnose(given, own, ratio > 1)
    is_rows = shown.unit == "row"
    error, ratio = (numbers.max(axis=1 if is_rows else 0) for numbers in (error, ratio))
    wrong, count = np.flatnonzero(ratio > 1), len(ratio)
    length = length if is_rows else None
    few = (Fault(f"{count} rows for {length} tokens are too few", LONGER),) if count < (length or 0) else ()
    faults = (*few, *found.faults)
    read_as = f", read as {shown.layout}" if own is None and shown.layout != given.layout else ""
    return CacheReport(
        subject=f"layout {given.layout}{read_as}, {f'{count} rows of ' * is_rows}{given.pairs} pairs, {given.dtype}",
        passed=own is not None and not len(wrong) and not few,
        causes=tuple(fault.text for fault in faults),
        remedies=tuple(fault.remedy for fault in faults),
        unexplained=found.error,
        notes=tuple(_notes(given, right, count, length)),
        errors=tuple(error.tolist()),
        ratios=tuple(ratio.tolist()),
        first_wrong=int(wrong[0]) if len(wrong) else None,
        wrong=len(wrong),
        length=length,
    )


def _notes(given: Reading, right: Right, rows: int, length: int | None) -> Iterator[str]:
    """Yield what was not compared, and what is to know of the number of rows and of the length."""
    if right.rope.attention_factor != given.rope.attention_factor:
        yield "the attention factor is not compared, as this layout has no place for it"
    if given.unit == "pair" or given.positions is not None:
        return
    if len(as_rows(right.rope.frequencies)) > 1:
        yield "compared at positions that are equal on all axes; for others give the positions of the rows"
    if right.regime is not None:
        beyond = f"; its rows from {right.regime} on are beyond them" if rows > right.regime else ""
        yield f"compared with the rotation of sequences of {right.regime} tokens; for others give their length{beyond}"
    elif rows > (length or rows):
        yield f"{rows} rows are more than the longest sequence has tokens, {length}: the others are not used"
    if length is None and right.head_dim is not None:
        yield "the number of rows is not checked, as the config gives no length: give that of the longest sequence"


def _diagnose(given: Reading, own: Reading | None, off: Data) -> tuple[Reading, Diagnosis]:
    """
    Return its own reading of a wrong cache, or else the likeliest, and its likely mistakes; raise if none fits.

    `off` says which pairs of which rows are wrong in its own reading, ``(rows, pairs)``.
    """
    wrong = np.asarray(off.any(axis=0 if own is not None and own.unit == "pair" else 1))
    few = own is not None and wrong.sum() <= FEW[own.unit] * (len(wrong) - 1)
    ways = [in_own_layout(given, own)]
    if not few:
        ways = [in_other_layouts(given, reshaped=False), *ways, in_other_layouts(given, reshaped=True)]
    readings = [one for way in ways for one in way]
    best = next((one for one in readings if error_if_right(one) is not None), None)
    if own is not None and best is None:
        if (another := _another(own)).faults:
            return own, another
        if few:
            not_finite = () if np.isfinite(own.values).all() else (NOT_FINITE,)
            return own, Diagnosis((*_wrong_numbers(wrong, own.unit), *not_finite))
        best = own if starts_well(own) else next(filter(starts_well, readings), own)
    best = best or next(filter(starts_well, readings), None)
    if best is None:
        first, *_ = layouts.parts_of(given.arrays, given.layout, rotary_dim=2 * given.pairs)  # raises for its shape
        wanted = f"be those of the {first.shape[-2]} rows of the cache"
        raise ArgumentValueError("positions", wanted, Text(f"{len(given.places)} of them"))
    found, undone = _causes(best, off if best is own else errors_of(best)[1] > 1), best.undone
    if best.layout != given.layout:
        alike = [one for one in readings if one.undone.text == undone.text]
        names = [one.layout for one in alike if np.array_equal(one.values, best.values, equal_nan=True)]
        several = f"several layouts fit{undone.text}: {', '.join(names)}"
        undone = undone._replace(text=several if names[1:] else f'the layout is "{best.layout}"{undone.text}')
    return own or best, found._replace(faults=(*((undone,) if undone.text else ()), *found.faults))


def _another(reading: Reading) -> Diagnosis:
    """Return the neighbour that a cache is for, or those of its first rows and of the rest, a second table too."""
    ropes = {"": reading.rope, **reading.source.neighbours}
    for name, rope in reading.source.neighbours.items():
        if (error := error_if_right(reading._replace(rope=rope))) is not None:
            return Diagnosis((Fault(NEIGHBOUR.format(name=name), MISTAKES[NEIGHBOUR][1]),), error)
    for name, rope in ropes.items() if reading.unit == "row" else ():
        begin = first_wrong(reading._replace(rope=rope))
        if begin > 1 and (rest := _rest(reading, begin, ropes)):
            first = f"rows up to {begin - 1} are those of {name}; " if name else ""
            return Diagnosis((rest._replace(text=first + rest.text),))
    return Diagnosis()


def _rest(reading: Reading, begin: int, ropes: Mapping[str, Rope]) -> Fault | None:
    """Return what the rows from `begin` on hold: zeros, or the rows of one of `ropes`; else None."""
    rest = reading.rows(slice(begin, None))
    if not rest.values.any():
        return Fault(f"rows from {begin} on are 0", NEVER_WRITTEN)
    again = reading.places[: len(rest.places)]
    for name, rope in ropes.items():
        of_name = name and f" of {name}"
        for text, remedy, positions in (
            (f"are {'those' if name else 'right'}{of_name}", ONE_ROTATION, rest.positions),
            (f"are a second table{of_name}", f"divide it at row {begin}, and check each part", again),
        ):
            if error_if_right(rest._replace(rope=rope, positions=positions)) is not None:
                return Fault(f"rows from {begin} on {text}", remedy)
    return None


def _wrong_numbers(wrong: Data, unit: str) -> tuple[Fault, ...]:
    """Return (fault,) with "3 rows are wrong: 0, 4 to 5" for True in `wrong` ``(n,)``."""
    found = np.flatnonzero(wrong)
    runs = np.split(found, np.flatnonzero(np.diff(found) > 1) + 1)
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs[:RUNS]]
    which = ", ".join(texts) + (", ..." if len(runs) > RUNS else "")
    many = f"{len(found)} {unit}s are wrong" if len(found) > 1 else f"1 {unit} is wrong"
    return (Fault(f"{many}: {which}", f"see what wrote them: other {unit}s are right"),)


def _causes(reading: Reading, off: Data) -> Diagnosis:
    """Return the likely mistakes of a cache as read, by the pairs that are `off` in each row; none if none is known."""
    if not off.any():
        return Diagnosis()
    values, of_pairs, of_rows = reading.values, *(np.asarray(off.any(axis=axis)) for axis in (0, 1))
    simple = {
        Fault("all numbers are 0", NEVER_WRITTEN): not values.any(),
        NOT_FINITE: reading.unit == "row" and not np.isfinite(values).all(),
        COPIES_DIFFER: (values != values[:, :1]).any(),
    }
    found = Diagnosis(tuple(fault for fault, is_so in simple.items() if is_so)[:1])
    if found.faults or (found := _search(reading)).faults:
        return found
    if of_pairs.sum() <= len(of_pairs) // 2:
        return Diagnosis(_wrong_numbers(of_pairs, "pair"))
    return Diagnosis(() if of_rows[1:].all() else _wrong_numbers(of_rows, "row"))


def _search(reading: Reading) -> Diagnosis:
    """Return the mistakes, of those that `check_rotary` knows, that give these numbers; or none."""
    positions, cos, sin = _sample(reading)
    source = reading.source._replace(rope=replace(reading.rope, pairing="half", start=0, blocks=1))
    right = rotary_of(source.rope)[0]
    noise = ANGLE_NOISE + 1.5 * 2.0 ** -layouts.DIGITS[reading.dtype]
    if reading.row.holds != "cos and sin":
        noise += float(np.abs(positions @ right.frequencies).max()) * 2.0**-22  # of a float32 angle
    x = features(len(positions), 2 * reading.pairs, bits=23)
    a, b = np.split(x, 2, axis=1)
    y = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=1)
    found = find_causes(Seen(right, source, x, positions, y), bound=noise)
    faults = tuple(cause for cause in found.faults if cause.text not in WITHIN_BOUNDS)
    return Diagnosis() if found.error is None or not faults else found._replace(faults=faults)


def _sample(reading: Reading) -> tuple[Data, Data, Data]:
    """Return some positions ``(n, axes)`` and the cos and sin there, ``(n, pairs)``, of a reading's numbers."""
    row, values, holds = reading.row, reading.values[:, 0, 0], reading.row.holds
    places = reading.places if reading.unit == "row" else np.arange(LONGEST_ANGLES)[:, None]
    count, reach = len(places), np.abs(places).max(axis=1)
    chosen = np.isin(np.arange(count), [p + i for p in (*POWERS, count - RUN) for i in range(RUN)])
    chosen[np.linspace(0, count - 1, SPREAD).astype(int)] = True
    # frequencies are measured at positions of which all but one are 0
    chosen |= np.isin(reach, POWERS) & (np.count_nonzero(places, axis=1) < 2)
    if holds == "cos and sin":
        cos, sin = (values[row.parts.index(part)][chosen] for part in ("cos", "sin"))
        return places[chosen], cos, sin
    chosen &= reach < LONGEST_ANGLES
    angles = (
        values[0] if holds == "angles" else places * (layouts.divided(row, reading.pairs, reading.base) / values[0, 0])
    )
    angles = angles[chosen].astype(np.float32).astype(np.float64)  # no preciser than the numbers of a cache
    return places[chosen], np.cos(angles), np.sin(angles)


# --- the text ---------------------------------------------------------------------------------------------


def _report_lines(report: CacheReport) -> Iterator[str]:
    """Yield the lines of a report on a cache: passed or not, causes and what to do, notes, errors by row (or pair)."""
    ratios, unit = np.asarray(report.ratios), "row" if " rows of " in report.subject else "pair"
    yield from head_lines(report, unknown="none of the known ones")
    for note in report.notes:
        yield from entry_lines("note", note)
    yield ""
    yield f"  {unit:<9} largest error  times its bound"
    first = [] if report.first_wrong is None else [report.first_wrong]
    for row in sorted({0, len(ratios) - 1, *np.argsort(-ratios, kind="stable")[:SHOWN].tolist(), *first}):
        ratio = f"{ratios[row]:.1e}" if np.isfinite(ratios[row]) else "-"  # of nan, or an exact number
        yield f"  {row:<9} {report.errors[row]:<14.1e} {ratio}{'  FAILS' if ratios[row] > 1 else ''}"
    if report.first_wrong is not None:
        yield f"  {report.wrong} of {len(ratios)} {unit}s are wrong, first {unit} {report.first_wrong}"
