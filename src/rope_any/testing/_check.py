"""Compare any implementation of RoPE with the exact rotation, and test the properties of a rotation."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from rope_any._arrays import Array, require_array
from rope_any._checks import ArgumentTypeError, ArgumentValueError, choice, flag, keyword_hints
from rope_any._names import did_you_mean
from rope_any._pairing import Pairing
from rope_any.layouts import LAYOUTS, OTHER_NAMES
from rope_any.testing._exact import Data, pair_errors, rotate_exactly
from rope_any.testing._properties import Property, properties_of, wrong_among
from rope_any.testing._report import as_json, error_text, head_lines, refusal_texts
from rope_any.testing._right import right_of
from rope_any.testing._rotary import Fault, rotate_wrongly
from rope_any.testing._search import ROUNDINGS, Diagnosis, find_causes, fits
from rope_any.testing._seen import Seen
from rope_any.testing._subject import SHAPES, RefusedError, Subject, is_by_head
from rope_any.testing._task import ANGLE_NOISE, BATCH, ROTATION_BOUNDS, Task, by_axis, task_of

SHOWN = 6  # positions in the text of a report
ADVICE = {
    "keeps the dtype": "cast the result to the dtype of x: tables are float32, and too coarse if they are cast",
    "leaves x as it is": "write into a copy of x; or if it is meant to write into x, give in_place=True",
    "leaves positions as they are": "compute with new arrays rather than change positions by +=",
    "writes nothing beside x": "use the strides of x, or write into a contiguous copy",
    "passes the other features through": "copy the features that do not rotate from x as they are, without a cast",
    "strides of x don't matter": "pass the strides on, or make x contiguous, as by reshape rather than view",
    "positions may be int32": "cast positions to int64 or float64 before the product with the frequencies",
}
"""What to do if a property fails, by its name, where a test of it gives no cause."""
_SAY_HOW = 'say how x lies (shape="bshd"), or exchange the axes'
_TRANSPOSE = "transpose the axes: a reshape keeps the numbers in their order"
_OTHERWISE = Fault("other heads or rows are wrong in another way", "check the heads one at a time")
_RANDOM = Fault("two equal calls return different results", "turn off dropout and noise, and keep no state")


class Report(NamedTuple):
    """
    The result of `check_rotary`; ``print(report)`` shows it, ``bool(report)`` is `passed`.

    Attributes
    ----------
    subject : str
        The rotation that was requested.
    passed : bool
        Whether all errors are within the bound, all properties hold and nothing was raised.
    causes : tuple of str
        The likely mistakes, all of them together, or what else is known, such as the last correct position; or ().
    remedies : tuple of str
        What to do about each of `causes`; "" where that is not known.
    unexplained : float or None
        The largest relative error of a pair against a rotation with these mistakes; None if they don't explain all
        results, or are no mistakes of a rotation.
    errors : dict
        The largest relative error of a rotated pair, by the first position of a run of tokens; for positions that were
        given, by position.
    bound : float
        The largest accepted error.
    properties : dict of str to Property
        The results of the property tests.
    property_bound : float
        The largest accepted deviation of a property; exact properties must have none.
    refusals : dict
        Exceptions and invalid results, by position or property.
    """

    subject: str
    passed: bool
    causes: tuple[str, ...]
    remedies: tuple[str, ...]
    unexplained: float | None
    errors: dict[Any, float]
    bound: float
    properties: dict[str, Property]
    property_bound: float
    refusals: dict[Any, str]

    def __bool__(self) -> bool:
        """Return `passed`."""
        return self.passed

    def __str__(self) -> str:
        """Return the report as text: the causes and what to do first, then what fails."""
        return "\n".join(_report_lines(self))

    def json(self) -> str:
        """Return the report as JSON, a dict of its attributes; numbers that are not finite are null."""
        return as_json(self)


@keyword_hints(
    dict.fromkeys(
        ("frequencies", "theta", "base", "rope_theta", "inv_freq"),
        'write check_rotary(function, Rope(frequencies(rotary_dim, base=theta), pairing="half"))',
    )
    | {"config": "write check_rotary(function, config)", "position_ids": "write positions="}
)
def check_rotary(
    function: Callable[..., Any],
    rope: Any = None,
    /,
    *,
    pairing: Pairing | None = None,
    factor: float | None = None,
    part: str | None = None,
    layer_type: str | None = None,
    sequence_length: int | None = None,
    head_dim: int | None = None,
    positions: Any = None,
    longest: int | None = None,
    like: Array | None = None,
    shape: str = "bhsd",
    table: str | None = None,
    keys: bool = False,
    in_place: bool = False,
    rows: bool = False,
    gradient: bool = False,
) -> Report:
    """
    Compare any rotary function with 60-digit arithmetic, test the properties of a rotation, and guess its mistakes.

    Parameters
    ----------
    function : callable
        ``function(x, positions)`` returns x ``(batch, heads, seq, head_dim)``, rotated. Positions are consecutive
        integers ``(seq,)``, so ``positions[0]`` is an offset; ``(seq, axes)`` for several axes.
    rope : Rope, Config, or what `rope_any.config.read` takes
        The right rotation, or the config of the model that has it.
    pairing, factor, part, layer_type, sequence_length : optional
        For a config, as for `Rope.from_config`.
    head_dim : int, optional
        The number of features of a head; by default that of the config, or as many as the Rope rotates.
    positions : positions, optional
        The positions to compare at, ``(n,)`` or ``(n, axes)``, also real ones; by default integers up to `longest`.
        Properties are tested at small integers all the same.
    longest : int, optional
        The last position, also of `positions`, for functions with a table of fixed length; at least 15, by default
        2³¹ − 1.
    like : array, optional
        An array with the library, the device and the dtype for x; by default NumPy, float32.
    shape : {"bhsd", "bshd", "sbhd", "thd"}, optional
        The order of batch, heads, sequence and features in x. In ``"thd"``, packed tokens, the tokens of all rows
        follow each other, and so do their positions or tables.
    table : str, optional
        A layout of `rope_any.layouts.LAYOUTS` that holds cosines and sines, for functions that take a cache in place of
        positions: ``function(x, cos, sin)``, or ``function(x, cache)`` for a layout of one array, such as the complex
        ``"meta"``. It has the rows of the tokens, in float32, or in float64 for such an x.
    keys : bool, optional
        Whether it is ``function(q, k, positions)`` and returns both; k has fewer heads than q, or both one.
    in_place : bool, optional
        Whether the function writes into x, or q and k. What it returns is ignored.
    rows : bool, optional
        Whether to call it with positions ``(batch, seq)`` too, as always for ``"thd"``.
    gradient : bool, optional
        Whether to check the gradient too, in torch, JAX and MLX; it must be the inverse rotation.

    Returns
    -------
    Report
        Likely causes and what to do about them, the worst errors by position, the properties, and any exceptions.

    Raises
    ------
    ModuleNotFoundError
        If mpmath isn't installed (the extra ``testing``).
    TypeError, ValueError
        If an option has a wrong type or value, or the config doesn't give one rotation.

    Notes
    -----
    The rotation is that of Su et al., *RoFormer*, arXiv:2104.09864. A pair counts as right within 4e-7 of its length
    (5.5e-4 in float16, 4.2e-3 in bfloat16) at every position, which is the error of float32 tables and one rounding.
    Every call must keep the other features, the dtype, x and the positions to the last bit, and return the same for
    views, int32 and int64 positions, one head, and one token of several rows.

    Examples
    --------
    >>> def careless(x, positions):
    ...     angle = np.outer(positions.astype(np.float32), np.float32(ra.frequencies(64)))
    ...     return ra.rotate(x, np.cos(angle), np.sin(angle), pairing="half")
    >>> report = ra.testing.check_rotary(careless, {"model_type": "llama", "head_dim": 64})
    >>> report.passed, report.causes
    (False, ('angles in float32',))
    """
    if not callable(function):
        raise ArgumentTypeError("function", "be callable, as function(x, positions)", function)
    which = {"part": part, "layer_type": layer_type, "sequence_length": sequence_length}
    right = right_of(rope, pairing=pairing, factor=factor, **which)
    like = np.zeros(1, dtype=np.float32) if like is None else like
    lib = require_array("like", like)
    lib.require_floating("like", like)
    choice("shape", shape, SHAPES, f"be one of {', '.join(SHAPES)}", partial(did_you_mean, known=SHAPES))
    if table is not None:
        tables = [name for name, layout in LAYOUTS.items() if layout.holds == "cos and sin"]
        hint = partial(did_you_mean, known=tables, others=OTHER_NAMES)
        choice("table", table, tables, f"be a layout of cosines and sines: {', '.join(tables)}", hint)
        if is_by_head(right.rope):
            raise ArgumentTypeError("table", "not be given for frequencies of each head, which no layout holds", table)
    options = {"keys": keys, "in_place": in_place, "rows": rows, "gradient": gradient}
    asked = frozenset(name for name, value in options.items() if flag(name, value) or (name, shape) == ("rows", "thd"))
    if gradient and lib.gradients is None:
        raise ArgumentValueError("gradient", f"be False for {lib.name}, which has no gradients", gradient)
    rights = [right]
    if right.returned is not None:  # its scores are the same in either order
        rights.append(right._replace(rope=replace(right.rope, out_pairing=right.returned)))
    reports = list[Report]()
    for each in rights:
        task = task_of(each, head_dim=head_dim, longest=longest, positions=positions, keys=keys, like=like)
        rest = sorted({*range(task.head_dim)} - {*task.right.features.tolist()})
        with np.errstate(all="ignore"):  # a function that returns zeros or infinities gets a report, too
            reports.append(_report(task, Subject(function, lib, like, each.rope, shape, table, asked, rest, {})))
        if reports[-1].passed:
            return reports[-1]
    return min(reports, key=lambda report: (not report.causes, len(report.causes)))


def _report(task: Task, subject: Subject) -> Report:
    """Run all comparisons and property tests, and return the report."""
    bound, places = ROTATION_BOUNDS[subject.dtype], task.right.members
    errors: dict[Any, float] = {}
    refusals: dict[Any, str] = {}
    runs: list[tuple[Data, ...]] = []
    call = ""
    worst = np.zeros((BATCH, task.heads))
    for name, sample in task.runs.items():
        x = subject.features(BATCH, task.heads, len(sample.positions), task.head_dim)
        try:
            y = subject(x, sample.positions.tolist())
            if not errors:
                again = subject(x, sample.positions.tolist())
                subject.keep_violations({"returns the same for equal calls": np.nan_to_num(np.abs(again - y))})
        except RefusedError as refusal:
            refusals[name], call = str(refusal), call or subject.call(x, sample.positions.tolist())
            continue
        off = pair_errors(y, rotate_exactly(x, sample, places, factor=task.right.factor), places)
        beside = np.abs(y - x)[..., subject.passthrough].max(axis=(2, 3), initial=0)
        worst = np.maximum(worst, np.maximum(off.max(axis=(2, 3)), beside))
        at = [tuple(p) if task.axes else p for p in sample.positions.tolist()]
        by_position = zip(at, off.max(axis=(0, 1, 3)), strict=True) if task.given else [(name, off.max())]
        for place, error in by_position:  # given positions may repeat
            errors[place] = float(np.maximum(errors.get(place, 0.0), error))
        runs.append((x, y, by_axis(sample.positions)))
    property_bound = max(1e-4, 4 * bound)
    properties, more, named = properties_of(task, subject, bound=property_bound)
    refusals |= more
    properties = {name: Property(error == 0, error) for name, error in subject.violations.items()} | properties
    found = Diagnosis()
    right_numbers = all(error <= bound for error in errors.values())
    if not errors:
        why = next(iter(refusals.values()))
        text = f"{call} must return the rotated {'q and k' if 'keys' in subject.asked else 'x'}; it {why}"
        found = Diagnosis((Fault(text, subject.remedy(why)),))
    elif subject.violations["returns the same for equal calls"]:
        found, named = Diagnosis((_RANDOM,)), ()
    elif not worst.max() <= bound:
        found = _other_axis(task, runs[0], bound) or _causes(task, runs, worst, subject)
        found = found if found.faults else Diagnosis(_correct_range(task, errors, bound))
    explained = errors and not all(cause.text.startswith(ROUNDINGS) for cause in found.faults)
    faults = found.faults if explained else (*found.faults, *named)
    return Report(
        subject=_about(task, subject),
        passed=right_numbers and not refusals and all(one.holds for one in properties.values()),
        causes=tuple(fault.text for fault in faults),
        remedies=tuple(fault.remedy for fault in faults),
        unexplained=found.error,
        errors=errors,
        bound=bound,
        properties=properties,
        property_bound=property_bound,
        refusals=refusals,
    )


def _about(task: Task, subject: Subject) -> str:
    """Return what was compared, as text: the pairing, the features, the dtype, the library."""
    first, last = int(task.right.features[0]), int(task.right.features[-1])
    features = "" if 2 * task.right.pairs == task.head_dim else f", features {first} to {last} are rotated"
    axes = f", {task.axes} axes" if task.axes else ""
    to = task.source.rope.out_pairing
    pairing = f"{task.source.rope.pairing}{f', returned in the order {to}' if to else ''}"
    return f"{pairing}, head_dim {task.head_dim}{features}{axes}, {subject.dtype} of {subject.lib.name}"


def _causes(task: Task, runs: list[tuple[Data, ...]], worst: Data, subject: Subject) -> Diagnosis:
    """
    Return likely mistakes in `runs` (x, y, positions), from the row and head with the largest error.

    `worst` has these errors, ``(rows, heads)``. With the option `keys`, the last heads are those of k; q and k are
    judged apart.
    """
    bound = ROTATION_BOUNDS[subject.dtype]
    # the last heads are those of k
    shared = task.by_head or 1
    kinds = {"queries": slice(-shared), "keys": slice(-shared, None)} if "keys" in subject.asked else {"": slice(None)}
    found: dict[Fault, list[str]] = {}
    errors: list[Any] = []
    for name, heads in kinds.items():
        of_kind = worst[:, heads]
        if of_kind.max() <= bound:
            continue
        row, head = np.unravel_index(of_kind.argmax(), of_kind.shape)
        seen = {place: _seen(task, runs, heads, place, subject.dtype) for place in np.ndindex(of_kind.shape)}
        diagnosis = find_causes(seen[row, head].sample, bound=max(bound, ANGLE_NOISE))
        errors.append(diagnosis.error)
        wrong = ~(of_kind <= bound)
        alike = wrong.copy()
        if diagnosis.rotary is not None and task.by_head is None:
            for place in map(tuple, np.argwhere(wrong)):
                alike[place] = fits(diagnosis.rotary, seen[place], bound=max(bound, ANGLE_NOISE))
        others = () if (alike == wrong).all() else (_OTHERWISE,)
        for cause in (*diagnosis.faults, *others):
            where = "" if cause.text.startswith((*ROUNDINGS, _OTHERWISE.text)) else wrong_among(alike)
            found.setdefault(cause, []).append(" of ".join(filter(None, (where, name))))
    named = (
        cause._replace(text=f"{cause.text}, in {' and '.join(names)}") if names[0] else cause
        for cause, names in found.items()
    )
    return Diagnosis(tuple(named), None if None in errors else max(errors))


def _seen(task: Task, runs: list[tuple[Data, ...]], heads: slice, place: tuple[int, ...], dtype: str) -> Seen:
    """Return the results of one row and one of some heads in all runs (x, y, positions)."""
    row, head = place
    x, y = (np.concatenate([run[i][row, heads][head] for run in runs]) for i in (0, 1))
    right = task.rotaries[head % len(task.rotaries)]
    return Seen(right, task.source, x, np.concatenate([run[2] for run in runs]), y, dtype)


def _other_axis(task: Task, run: tuple[Data, ...], bound: float) -> Diagnosis | None:
    """Return the mistake if positions of `run` (x, y, positions) follow rows or heads, alone or too; else None."""
    x, y, positions = run
    rows, heads, tokens = x.shape[:-1]
    own = np.tile(positions, (rows * heads, 1))
    in_row = np.tile(np.arange(heads * tokens) // heads, rows)  # as if x were (rows, tokens, heads, features)
    ways = [
        ("x is reshaped, not transposed, to exchange heads and tokens", _TRANSPOSE, positions[in_row], y),
        ("the result is reshaped, not transposed, to exchange heads and tokens", _TRANSPOSE, own, _exchanged(y)),
    ]
    for axis, name in enumerate(("rows of the batch", "heads")):
        index = np.indices((rows, heads, tokens))[axis].reshape(-1, 1)  # of each vector, along the axis
        run_along, go_on = f"positions run along axis {axis}", f"positions go on from one to the next of the {name}"
        ways += [
            (f"the {name} are taken for the tokens: {run_along}", _SAY_HOW, positions[0] + index, y),
            (f"{go_on}, by 1", _SAY_HOW, own + index, y),
            (f"{go_on}, by {tokens} tokens", "begin again in each row, or packed sequence", own + tokens * index, y),
        ]
    some = np.linspace(0, len(own) - 1, min(len(own), 2048)).astype(int)
    flat = x.reshape(len(own), -1)[some]
    for text, remedy, places, got in ways:
        want = rotate_wrongly(task.right, flat, places[some])
        off = pair_errors(got.reshape(len(own), -1)[some], want, task.right.members).max()
        if off <= max(bound, ANGLE_NOISE):
            return Diagnosis((Fault(text, remedy),), float(off))
    return None


def _exchanged(y: Data) -> Data:
    """Return results whose heads and tokens were exchanged by reshaping, with each in its place."""
    rows, heads, tokens, width = y.shape
    return y.reshape(rows, tokens, heads, width).swapaxes(1, 2)


def _correct_range(task: Task, errors: dict[Any, float], bound: float) -> tuple[Fault, ...]:
    """Return the position up to which errors are within `bound`; () if none or all are."""
    right = [*takewhile(lambda name: errors[name] <= bound, errors)]
    if not 0 < len(right) < len(errors) or task.given:
        return ()
    wrong = list(errors)[len(right)]
    last = task.runs[right[-1]].positions[-1].tolist()
    return (Fault(f"correct up to position {last}, wrong at {wrong}", "see whether a table ends there"),)


# --- text of the report -----------------------------------------------------------------------------------


def _report_lines(report: Report) -> Iterator[str]:
    """Yield the lines of a report: passed or failed, the causes, the errors, and the properties that fail."""
    texts = refusal_texts(report.refusals)
    failing = {name: found for name, found in report.properties.items() if not found.holds}
    told = {name: found for name, found in failing.items() if name in texts or name not in report.refusals}
    wrong = not all(error <= report.bound for error in report.errors.values())
    right = "none in the rotation: all numbers that were returned are right; see what fails below"
    advice = [ADVICE[name] for name in told if name in ADVICE]
    yield from head_lines(report, unknown="none of the known ones" if wrong else right, advice=advice)
    if not report.errors and len(texts) < 2:
        return
    names = [*report.errors, *(name for name in texts if name not in {*report.errors, *report.properties})]
    worst = sorted(report.errors, key=lambda name: -report.errors[name])[: SHOWN // 2]
    shown = names if len(names) <= SHOWN else [name for name in names if name in (*names[:2], *worst, names[-1])]
    yield ""
    yield f"  {'position':<36} largest error (bound {report.bound:.1e})"
    for name in shown:
        error = report.errors.get(name)
        text = texts[name] if error is None else error_text(error, holds=error <= report.bound)
        yield f"  {name!s:<36} {text}"
    if len(shown) < len(names):
        yield f"  and {len(names) - len(shown)} more"
    yield ""
    if told:
        yield f"  {'property':<36} largest deviation (bound {report.property_bound:.1e}, or 0 if nothing may change)"
    for name, (holds, error) in told.items():
        yield f"  {name:<36} {texts.get(name) or error_text(error, holds=holds)}"
    count = len(report.properties)
    yield f"  {f'{count - len(failing)} of' if failing else 'all'} {count} properties hold"
