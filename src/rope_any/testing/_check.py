"""Run any implementation of RoPE against the exact rotation, and test the properties of a rotation."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product, takewhile
from typing import Any, NamedTuple

import numpy as np

from rope_any._arrays import Array, Library, find, host, require_array
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, int32, integer
from rope_any._checks import attention_factor as as_factor
from rope_any._frequencies import Row, as_row
from rope_any._frequencies import frequencies as plain
from rope_any._pairing import Pairing, as_pairing, members
from rope_any._positions import as_position_array
from rope_any.testing._exact import Data, Sample, apart, exact, features, turned
from rope_any.testing._wrong import Rotary, causes
from rope_any.testing.vectors import Case

TABLE_BOUND = 1.2e-7  # the largest error of a float32 table at integer positions
# Largest error of a turned pair that is let pass, relative to its length. In float32 it is that of a float32 table,
# √2 · 1.2e-7, and roundings of 2⁻²⁴ each. In half precision it is one rounding of each number, 2⁻¹¹ = 4.9e-4 in float16
# and 2⁻⁸ = 3.9e-3 in bfloat16, and a bit: a table that is rounded as well misses by more.
TURN_BOUNDS = {"float64": 4e-7, "float32": 4e-7, "float16": 5.5e-4, "bfloat16": 4.2e-3}
BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}  # after the point of a number from 1 to 2
ALIKE = 1.6e-6  # what two rotations by the same float32 angles differ by
RUN = 8  # tokens of a call
BATCH, HEADS = 2, 3
LONG = (3, 5, 131)  # rows, heads and tokens of the one call that is made in parts too
LEAST, LONGEST = 127, 2**31 - 1  # what `longest` may be
NEAR = (0, 10, 100)  # where properties are tried: careless angles have hardly an error yet


class Property(NamedTuple):
    """
    What a rotary should do whatever its frequencies are, and whether it does.

    Attributes
    ----------
    holds : bool
        Whether it does.
    error : float
        By how much it is missed, relative to the length of what is compared; nan where the function gave no answer.
    """

    holds: bool
    error: float


class Report(NamedTuple):
    """
    What `check_rotary` found; ``print(report)`` shows it, and it is true where all is well.

    Attributes
    ----------
    subject : str
        What was asked for.
    passed : bool
        Whether all errors are within the bound, all properties hold and nothing was raised.
    errors : dict
        The largest error of a turned pair, relative to its length, by the first position of a run of tokens; of a case
        by position.
    bound : float
        What they may be: what float32 tables and one rounding to the dtype leave.
    properties : dict of str to Property
        What a rotary should do.
    property_bound : float
        How far a property may be missed; what must be kept, not at all.
    refusals : dict
        What was raised, or wrong about the result, by position or property.
    causes : tuple of str
        What does the same as the function as far as can be seen: several together, none if the angles are right or it
        isn't known. Or up to which position it is right; or what came instead of x turned, if no call gave that.
    """

    subject: str
    passed: bool
    errors: dict[Any, float]
    bound: float
    properties: dict[str, Property]
    property_bound: float
    refusals: dict[Any, str]
    causes: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether all is well."""
        return self.passed

    def __str__(self) -> str:
        """Return the report on as many lines as it takes."""
        return "\n".join(_lines(self))


def check_rotary(
    function: Callable[[Array, Array], Array],
    /,
    *,
    pairing: Pairing,
    head_dim: int | None = None,
    rotary_dim: int | None = None,
    start: int | None = None,
    base: float | None = None,
    frequencies: Sequence[float] | None = None,
    attention_factor: float | None = None,
    longest: int | None = None,
    case: Case | None = None,
    like: Array | None = None,
) -> Report:
    """
    Run any rotary against 60-digit arithmetic and the properties of a rotation, and guess what is wrong with it.

    Parameters
    ----------
    function : callable
        ``function(x, positions)`` returns x ``(batch, heads, seq, head_dim)``, turned. Positions are consecutive
        integers ``(seq,)``, so one that wants an offset takes ``positions[0]``; ``(seq, axes)`` for a case of several
        axes.
    pairing : {"half", "interleaved"}
        Which features it should turn together: i and i + pairs, or 2i and 2i + 1.
    head_dim : int, optional
        How many features a head has; 128 by default.
    rotary_dim : int, optional
        How many of them should turn; by default all from `start` on.
    start : int, optional
        The first feature that should turn; 0 by default.
    base : float, optional
        Of the frequencies; 10 000 by default.
    frequencies : tuple of float, optional
        Radians per position, in place of `base` and `rotary_dim`.
    attention_factor : float, optional
        What should multiply cosines and sines; 1 by default.
    longest : int, optional
        The last position, at least 127 and by default 2³¹ − 1: for functions that keep a table.
    case : Case, optional
        One of the vectors (see `cases`), in place of all of these options.
    like : array, optional
        An array of the library, on the device and of the dtype of x; by default NumPy's, float32.

    Returns
    -------
    Report
        Its worst errors by position, which properties fail, and a guess at the cause; ``print`` shows it. What the
        function raises, and results of the wrong shape, are in the report.

    Raises
    ------
    ModuleNotFoundError
        If mpmath isn't installed (the extra ``testing``).
    TypeError
        If an option is of another kind, or `function` can't be called.
    ValueError
        If options contradict each other or don't fit.

    Notes
    -----
    The rotation is that of Su et al., *RoFormer*, arXiv:2104.09864. A pair counts as right within 4e-7 of its length
    (5.5e-4 in float16, 4.2e-3 in bfloat16), at every position: that is what float32 tables and one rounding leave. The
    other features, the dtype, x and the positions must be kept to the last bit, in every call.

    For the guess, rotations that are wrong on purpose are run on the same numbers: the other pairing, sign or slice of
    features, another number of them, positions that are one off, a factor that is left out, counted twice or another,
    other frequencies, and roundings of frequencies, angles, table or products; with up to two of the former and two of
    the latter at once. Where none of them fits, it says how far the function is right, if it is so at first.

    Examples
    --------
    >>> import numpy as np
    >>> import rope_any as ra
    >>> from rope_any.testing import check_rotary
    >>> rope = ra.Rope(ra.frequencies(64), pairing="half")
    >>> check_rotary(rope.apply, pairing="half", head_dim=64).passed
    True
    >>> def careless(x, positions):
    ...     angle = np.outer(positions.astype(np.float32), np.float32(ra.frequencies(64)))
    ...     return ra.rotate(x, np.cos(angle), np.sin(angle), pairing="half")
    >>> report = check_rotary(careless, pairing="half", head_dim=64)
    >>> report.passed, report.causes
    (False, ('angles in float32',))
    """
    if not callable(function):
        raise ArgumentTypeError("function", "be callable, as function(x, positions)", function)
    given = {
        "head_dim": head_dim,
        "rotary_dim": rotary_dim,
        "start": start,
        "base": base,
        "frequencies": frequencies,
        "attention_factor": attention_factor,
        "longest": longest,
    }
    job = _job(as_pairing(pairing), **given) if case is None else _job_of_case(as_pairing(pairing), case, given)
    like = np.zeros(1, dtype=np.float32) if like is None else like
    lib = require_array("like", like)
    lib.require_floating("like", like)
    with np.errstate(all="ignore"):  # a function that gives zeros or infinities gets a report like any other
        return _report(job, _Subject(function, lib, like, _still(job), {}))


# --- what is asked ----------------------------------------------------------------------------------------


class _Job(NamedTuple):
    """The rotation that a function should be, with runs of positions and their exact tables."""

    right: Rotary
    head_dim: int
    runs: dict[Any, Sample]


def _job(
    pairing: Pairing,
    *,
    head_dim: Any,
    rotary_dim: Any,
    start: Any,
    base: Any,
    frequencies: Any,
    attention_factor: Any,
    longest: Any,
) -> _Job:
    dim = 128 if head_dim is None else integer("head_dim", head_dim)
    first = 0 if start is None else int32("start", start, least=0)
    if rotary_dim is None and frequencies is None and (dim - first < 2 or (dim - first) % 2):
        wanted = f"leave an even number of features from `start` {first} on, 2 at least"
        raise ArgumentValueError("head_dim", wanted, dim)
    row = _row(dim - first, rotary_dim, base, frequencies)
    if first + 2 * len(row) > dim:
        raise ArgumentValueError("head_dim", f"hold {2 * len(row)} features that turn from `start` {first} on", dim)
    last = LONGEST if longest is None else int32("longest", longest, least=LEAST)
    begins = [0, *(10**n for n in range(1, 10) if 10**n + RUN <= last - RUN), last - RUN + 1]
    runs = {p: exact(range(p, p + RUN), row) for p in begins}
    factor = 1.0 if attention_factor is None else as_factor(attention_factor)
    return _Job(Rotary(pairing, np.asarray([row]), first, factor), dim, runs)


def _row(all_features: int, rotary_dim: Any, base: Any, frequencies: Any) -> Row:
    if frequencies is None:
        return plain(all_features if rotary_dim is None else rotary_dim, base=10_000.0 if base is None else base)
    if base is not None or rotary_dim is not None:
        raise ArgumentValueError("frequencies", "be given alone, or else `rotary_dim` and `base`", Text("both"))
    return as_row(frequencies)


def _job_of_case(pairing: Pairing, case: Any, options: dict[str, Any]) -> _Job:
    if not isinstance(case, Case):
        raise ArgumentTypeError("case", "be one of rope_any.testing.cases()", case)
    if too_many := [name for name, value in options.items() if value is not None]:
        raise ArgumentValueError(too_many[0], "not be given beside `case`, which has its own")
    a, right = case.attention_factor, np.asarray(case.frequencies)
    rows = zip(case.positions.tolist(), case.positions, case.cos / a, case.sin / a, strict=True)
    runs = {
        tuple(name) if isinstance(name, list) else name: Sample(p[None], c[None], s[None]) for name, p, c, s in rows
    }
    return _Job(Rotary(pairing, right.reshape(-1, right.shape[-1]), case.start, a), case.x.shape[-1], runs)


# --- how a function is asked ------------------------------------------------------------------------------


def _still(job: _Job) -> list[int]:
    """Return the features that should pass through."""
    right = job.right
    return sorted(set(range(job.head_dim)) - set(members(right.pairing, right.start, right.frequencies.shape[-1])))


class _RefusedError(Exception):
    """The function raised, or what it returned is no turned x."""


class _Subject(NamedTuple):
    """A function under test, and the library that it is tested on."""

    function: Callable[[Array, Array], Array]
    lib: Library
    like: Array
    still: list[int]
    """The features that should pass through."""
    missed: dict[str, float]
    """By how much any call so far missed what all must keep to the last bit: written by every call."""

    def features(self, *shape: int) -> Data:
        """Return numbers that have all digits of the dtype."""
        return features(*shape, bits=BITS[self.lib.dtype_name(self.like.dtype)])

    def put(self, data: Data) -> Array:
        real = self.lib.compute_dtype(self.like)
        x = self.lib.xp.asarray(data.tolist(), dtype=real, **self.lib.device_kwargs(self.like))
        return self.lib.cast(x, self.like.dtype)

    def get(self, x: Array) -> Data:
        lib = require_array("x", x)
        return lib.get(lib.cast(x, lib.compute_dtype(x))).astype(np.float64)  # type: ignore[no-any-return]  # of NumPy

    def __call__(self, data: Data, positions: Sequence[Any]) -> Data:
        """Return x, turned, and note by how much is missed what every call must keep."""
        x, where = self.put(data), as_position_array(positions, like=self.like)
        try:
            y = self.function(x, where)
            if (said := _unlike(self.lib, y, x)) is None:
                got = self.get(y)  # a lazy one raises here
                self._note(
                    {
                        "keeps the dtype": x.dtype != y.dtype,
                        "leaves x as it was": np.abs(self.get(x) - data),
                        "leaves positions as they were": np.abs(host(where) - np.asarray(positions)),
                        "passes the other features through": np.abs(got - data)[..., self.still],
                    }
                )
                return got
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it is, it goes into the report
            first, _, _ = str(error).strip().partition("\n")
            said = f"raised {type(error).__name__}: {first[:200]}"
        raise _RefusedError(said)

    def _note(self, errors: dict[str, Any]) -> None:
        for name, error in errors.items():
            if np.size(error):
                self.missed[name] = float(np.maximum(self.missed.get(name, 0.0), np.max(error)))  # a nan stays


def _unlike(lib: Library, y: Any, x: Array) -> str | None:
    """Return what is wrong with a result, other than its numbers and whether it has the dtype of x."""
    if find(y) is not lib:
        return f"returned {type(y).__name__}, where x is {type(x).__name__}"
    if tuple(y.shape) != tuple(x.shape):
        return f"returned shape {tuple(y.shape)} for x of shape {tuple(x.shape)}"
    names = [lib.dtype_name(part.dtype) for part in (y, x)]
    return f"returned {names[0]} for x of {names[1]}" if names[0].startswith("complex") else None


def _report(job: _Job, subject: _Subject) -> Report:
    dtype, right = subject.lib.dtype_name(subject.like.dtype), job.right
    bound, pairs = TURN_BOUNDS[dtype], right.frequencies.shape[-1]
    errors: dict[Any, float] = {}
    refusals: dict[Any, str] = {}
    runs: list[tuple[Data, ...]] = []
    worst = np.zeros((BATCH, HEADS))
    for name, sample in job.runs.items():
        x = subject.features(BATCH, HEADS, len(sample.positions), job.head_dim)
        try:
            y = subject(x, sample.positions.tolist())
        except _RefusedError as refusal:
            refusals[name] = str(refusal)
            continue
        want = turned(x, sample, right.pairing, start=right.start, factor=right.factor)
        off = apart(y, want, right.pairing, start=right.start, pairs=pairs).max(axis=(2, 3))
        worst, errors[name] = np.maximum(worst, off), float(off.max())
        runs.append((x, y, sample.positions.reshape(len(sample.positions), -1)))
    property_bound = max(1e-4, 4 * bound)
    properties, more = _properties(job, subject, bound=property_bound)
    refusals |= more
    properties = {name: Property(error == 0, error) for name, error in subject.missed.items()} | properties
    guess: tuple[str, ...] = ()
    right_numbers = all(error <= bound for error in errors.values())
    if not errors:
        guess = (f"function(x, positions) must return x, turned; it {next(iter(refusals.values()))}",)
    elif not right_numbers:
        row, head = np.unravel_index(worst.argmax(), worst.shape)
        x, y = (np.concatenate([run[i][row, head] for run in runs]) for i in (0, 1))
        guess = causes(right, x, np.concatenate([run[2] for run in runs]), y, bound=max(bound, ALIKE))
        guess = guess or _reach(job.runs, errors, bound)
    passed = right_numbers and not refusals and all(found.holds for found in properties.values())
    where = "" if 2 * pairs == job.head_dim else f", features {right.start} to {right.start + 2 * pairs - 1} turn"
    about = f"{right.pairing}, head_dim {job.head_dim}{where}, {dtype} of {subject.lib.name}"
    return Report(about, passed, errors, bound, properties, property_bound, refusals, guess)


def _reach(runs: dict[Any, Sample], errors: dict[Any, float], bound: float) -> tuple[str, ...]:
    """Say how far a function is right, if it is so before it is wrong: positions may wrap or stop."""
    right = [*takewhile(lambda name: errors[name] <= bound, errors)]
    if not right:
        return ()
    wrong = list(errors)[len(right)]
    return (f"right up to position {runs[right[-1]].positions[-1].tolist()}, wrong at {wrong}",)


# --- properties -------------------------------------------------------------------------------------------


def _properties(job: _Job, subject: _Subject, *, bound: float) -> tuple[dict[str, Property], dict[Any, str]]:
    """Return which properties hold, and what was refused on the way."""
    found: dict[str, Property] = {}
    refusals: dict[Any, str] = {}
    for name, measure in _PROPERTIES.items():
        try:
            error = measure(job, subject)
        except _RefusedError as refusal:
            error, refusals[name] = float("nan"), str(refusal)
        found[name] = Property(error <= bound, error)
    return found, refusals


def _run(job: _Job, begin: int, length: int = RUN) -> list[Any]:
    """Return consecutive positions, the same on every axis."""
    axes = job.right.frequencies.shape[0]
    numbers = range(begin, begin + length)
    return list(numbers) if axes == 1 else [[p] * axes for p in numbers]


def _given(job: _Job, subject: _Subject, length: int = RUN) -> Data:
    return subject.features(BATCH, HEADS, length, job.head_dim)


def _near(job: _Job, subject: _Subject) -> Iterator[Data]:
    for begin in NEAR:
        yield subject(_given(job, subject), _run(job, begin))


def _largest(difference: Data, of: Data) -> float:
    """Return the longest of vectors, relative to the length of others."""
    lengths = [np.sqrt((part * part).sum(axis=-1)) for part in (difference, of)]
    return float(np.max(lengths[0] / lengths[1]))


def _identity(job: _Job, subject: _Subject) -> float:
    given = _given(job, subject)
    x, y = _turning(job, given), _turning(job, subject(given, _run(job, 0)))
    return _largest((y / job.right.factor - x)[..., :1, :], x[..., :1, :])


def _turning(job: _Job, x: Data) -> Data:
    """Return the features that should turn."""
    start = job.right.start
    return x[..., start : start + 2 * job.right.frequencies.shape[-1]]


def _lengths(job: _Job, subject: _Subject) -> float:
    of = np.sqrt((_turning(job, _given(job, subject)) ** 2).sum(axis=-1)) * job.right.factor
    return float(np.max([np.abs(np.sqrt((_turning(job, y) ** 2).sum(axis=-1)) / of - 1) for y in _near(job, subject)]))


def _distance(job: _Job, subject: _Subject) -> float:
    """Scores of queries and keys, relative to their lengths, here and further on."""
    units = [y / np.sqrt((y * y).sum(axis=-1, keepdims=True)) for y in _near(job, subject)]
    here, *further = (y[:, :1] @ np.swapaxes(y[:, 1:], -1, -2) for y in units)
    return float(np.max([np.abs(scores - here) for scores in further]))


def _adds_up(job: _Job, subject: _Subject) -> float:
    x = _given(job, subject, 1)
    twice = subject(subject(x, _run(job, 10, 1)), _run(job, 100, 1)) / job.right.factor
    once = subject(x, _run(job, 110, 1))
    return _largest(_turning(job, twice - once), _turning(job, once))


def _by_itself(job: _Job, subject: _Subject) -> float:
    x, where = _given(job, subject), _run(job, 10)
    y = subject(x, where)
    others = np.flip(subject(np.flip(x, (0, 1)), where), (0, 1))
    alone, last = subject(x[:, :, -1:], where[-1:]), y[:, :, -1:]
    return float(np.max([_largest(others - y, y), _largest(alone - last, last)]))  # which a nan comes through


def _in_parts(job: _Job, subject: _Subject) -> float:
    """One call with many rows, heads and tokens, and the same numbers cut in two along each of these axes."""
    rows, heads, length = LONG
    length = min(length, 1 + int(max(sample.positions.max() for sample in job.runs.values())))
    x, where = subject.features(rows, heads, length, job.head_dim), _run(job, 0, length)
    whole = subject(x, where)
    cuts = ((slice(n // 2), slice(n // 2, n)) for n in x.shape[:3])
    return float(
        np.max([_largest(subject(x[b, h, s], where[s]) - whole[b, h, s], x[b, h, s]) for b, h, s in product(*cuts)])
    )


_PROPERTIES: dict[str, Callable[[_Job, _Subject], float]] = {
    "does nothing at position 0": _identity,
    "keeps lengths": _lengths,
    "scores depend on the distance alone": _distance,
    "turns by m and by n are one by m + n": _adds_up,
    "each token, head and row by itself": _by_itself,
    "many at once are as in parts": _in_parts,
}


# --- how it is shown --------------------------------------------------------------------------------------


def _lines(report: Report) -> Iterator[str]:
    yield f"{'passed' if report.passed else 'FAILED'}: {report.subject}"
    if report.errors or len(set(report.refusals.values())) > 1:
        yield from _tables(report)
    if not report.passed:
        yield ""
        if report.causes:
            yield f"  likely cause: {'; '.join(report.causes)}"
        elif not all(error <= report.bound for error in report.errors.values()):
            yield "  likely cause: none of those that are known"
        else:
            yield "  likely cause: not the angles, which are right; see what fails above"


def _tables(report: Report) -> Iterator[str]:
    yield ""
    yield f"  {'from position':<36} largest error (bound {report.bound:.1e})"
    for name in sorted({*report.errors, *report.refusals} - {*report.properties}):
        error = report.errors.get(name)
        said = report.refusals[name] if error is None else _judged(error, holds=error <= report.bound)
        yield f"  {name!s:<36} {said}"
    yield ""
    yield f"  {'property':<36} missed by (bound {report.property_bound:.1e}; 0 for what is kept)"
    for name, (holds, error) in report.properties.items():
        yield f"  {name:<36} {report.refusals.get(name) or _judged(error, holds=holds)}"


def _judged(error: float, *, holds: bool) -> str:
    return f"{error:.1e}{'' if holds else '  FAILS'}"
