"""Compare any implementation of RoPE with the exact rotation, and test the properties of a rotation."""

import re
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from itertools import product, takewhile
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from rope_any._arrays import Array, Gradients, Library, find, host, require_array, type_name
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, flag, int32, integer
from rope_any._checks import attention_factor as as_factor
from rope_any._frequencies import Row, as_row
from rope_any._frequencies import frequencies as plain
from rope_any._pairing import Pairing, as_pairing, members
from rope_any._positions import as_position_array
from rope_any.testing._exact import Data, Sample, exact, features, pair_errors, rotate_exactly
from rope_any.testing._wrong import ROUNDINGS, Rotary, find_causes, rotate_wrongly
from rope_any.testing.vectors import Case

TABLE_BOUND = 1.2e-7  # the largest error of a float32 table at integer positions
# Largest accepted error of a rotated pair, relative to its length. In float32 it is that of a float32 table,
# √2 · 1.2e-7, plus roundings of 2⁻²⁴ each. In half precision it is one rounding of each number, 2⁻¹¹ = 4.9e-4 in
# float16 and 2⁻⁸ = 3.9e-3 in bfloat16, and a little more; a table rounded to half precision exceeds it.
ROTATION_BOUNDS = {"float64": 4e-7, "float32": 4e-7, "float16": 5.5e-4, "bfloat16": 4.2e-3}
BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}  # after the point of a number from 1 to 2
ANGLE_NOISE = 1.6e-6  # difference of two rotations by the same float32 angles
RUN_LENGTH = 8  # tokens of a call
BATCH, HEADS = 2, 3
LONG = (3, 6, 131)  # rows, heads and tokens of the call that is compared with calls on its parts
LEAST, LONGEST = 127, 2**31 - 1  # the range of `longest`
NEAR_POSITIONS = (0, 10, 100)  # first positions of the property tests: even float32 angles have small errors there


class Property(NamedTuple):
    """
    The result for one property that a rotation has for any frequencies.

    Attributes
    ----------
    holds : bool
        Whether the function has the property.
    error : float
        The deviation, relative to the length of the compared vectors, or absolute where nothing may change. Nan without
        a valid result.
    """

    holds: bool
    error: float


class Report(NamedTuple):
    """
    The result of `check_rotary`; ``print(report)`` shows it, ``bool(report)`` is `passed`.

    Attributes
    ----------
    subject : str
        The rotation that was requested.
    passed : bool
        Whether all errors are within the bound, all properties hold and nothing was raised.
    errors : dict
        The largest relative error of a rotated pair, by the first position of a run of tokens; for a case, by position.
    bound : float
        The largest accepted error.
    properties : dict of str to Property
        The results of the property tests.
    property_bound : float
        The largest accepted deviation of a property; exact properties must have none.
    refusals : dict
        Exceptions and invalid results, by position or property.
    causes : tuple of str
        The likely mistakes, all of them together, or what else is known, such as the last correct position; or ().
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
        """Return `passed`."""
        return self.passed

    def __str__(self) -> str:
        """Return the report as text of several lines."""
        return "\n".join(_report_lines(self))


def check_rotary(
    function: Callable[..., Any],
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
        integers ``(seq,)``, so ``positions[0]`` is an offset; ``(seq, axes)`` for a case of several axes.
    pairing : {"half", "interleaved"}
        Which features form a pair, as for `Rope`.
    head_dim : int, optional
        The number of features of a head; 128 by default.
    rotary_dim : int, optional
        The number of features that should be rotated; by default all from `start` on.
    start : int, optional
        The first feature that should be rotated; 0 by default.
    base : float, optional
        The base of the frequencies; 10 000 by default.
    frequencies : tuple of float, optional
        Radians per position, instead of `base` and `rotary_dim`.
    attention_factor : float, optional
        The factor that should multiply cosines and sines; 1 by default.
    longest : int, optional
        The last position, for functions with a table of fixed length; at least 127, by default 2³¹ − 1.
    case : Case, optional
        One of the test vectors (see `cases`), instead of all of these options.
    like : array, optional
        An array with the library, the device and the dtype for x; by default NumPy, float32.
    keys : bool, optional
        Whether it is ``function(q, k, positions)`` and returns both; k has fewer heads than q, or both one.
    in_place : bool, optional
        Whether the function writes into x, or q and k. What it returns is ignored.
    rows : bool, optional
        Whether to call it with positions ``(batch, seq)`` too.
    gradient : bool, optional
        Whether to check the gradient too, in torch, JAX and MLX; it must be the inverse rotation.

    Returns
    -------
    Report
        The worst errors by position, the properties, likely causes, and any exceptions of the function.

    Raises
    ------
    ModuleNotFoundError
        If mpmath isn't installed (the extra ``testing``).
    TypeError, ValueError
        If an option has a wrong type or value, options contradict each other, or `function` can't be called.

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
    >>> report = ra.testing.check_rotary(careless, pairing="half", head_dim=64)
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
    task = _task(as_pairing(pairing), **given) if case is None else _task_of_case(as_pairing(pairing), case, given)
    like = np.zeros(1, dtype=np.float32) if like is None else like
    lib = require_array("like", like)
    lib.require_floating("like", like)
    options = {"keys": keys, "in_place": in_place, "rows": rows, "gradient": gradient}
    asked = frozenset(name for name, value in options.items() if flag(name, value))
    if gradient and lib.gradients is None:
        raise ArgumentValueError("gradient", f"be False for {lib.name}, which has no gradients", gradient)
    with np.errstate(all="ignore"):  # a function that returns zeros or infinities gets a report, too
        return _report(task, _Subject(function, lib, like, _passthrough_features(task), {}, asked))


# --- the requested rotation -------------------------------------------------------------------------------


class _Task(NamedTuple):
    """The rotation that the function should compute, the features of a head, and the positions to call it with."""

    right: Rotary
    head_dim: int
    runs: dict[Any, Sample]
    """A `Sample` for each call, by its name in the report: its first position, or that of a case."""


def _task(
    pairing: Pairing,
    *,
    head_dim: Any,
    rotary_dim: Any,
    start: Any,
    base: Any,
    frequencies: Any,
    attention_factor: Any,
    longest: Any,
) -> _Task:
    """Return the task for the options of `check_rotary`, of which None means the default; raise if they are wrong."""
    dim = 128 if head_dim is None else integer("head_dim", head_dim)
    first = 0 if start is None else int32("start", start, least=0)
    if rotary_dim is None and frequencies is None and (dim - first < 2 or (dim - first) % 2):
        wanted = f"leave an even number of features from `start` {first} on, 2 at least"
        raise ArgumentValueError("head_dim", wanted, dim)
    row = _row(dim - first, rotary_dim, base, frequencies)
    if first + 2 * len(row) > dim:
        raise ArgumentValueError("head_dim", f"hold {2 * len(row)} rotated features from `start` {first} on", dim)
    last = LONGEST if longest is None else int32("longest", longest, least=LEAST)
    begins = [0, *(10**n for n in range(1, 10) if 10**n + RUN_LENGTH <= last - RUN_LENGTH), last - RUN_LENGTH + 1]
    runs = {p: exact(range(p, p + RUN_LENGTH), row) for p in begins}
    factor = 1.0 if attention_factor is None else as_factor(attention_factor)
    return _Task(Rotary(pairing, np.asarray([row]), first, factor), dim, runs)


def _row(all_features: int, rotary_dim: Any, base: Any, frequencies: Any) -> Row:
    """Return `frequencies`, or those of `rotary_dim` (None: `all_features`) and `base`; raise if given with either."""
    if frequencies is None:
        return plain(all_features if rotary_dim is None else rotary_dim, base=10_000.0 if base is None else base)
    if base is not None or rotary_dim is not None:
        raise ArgumentValueError("frequencies", "be given alone, or else `rotary_dim` and `base`", Text("both"))
    return as_row(frequencies)


def _task_of_case(pairing: Pairing, case: Any, options: dict[str, Any]) -> _Task:
    """Return the task for a `Case` in the given pairing; raise for no `Case`, or if one of `options` is not None."""
    if not isinstance(case, Case):
        raise ArgumentTypeError("case", "be one of rope_any.testing.cases()", case)
    if too_many := [name for name, value in options.items() if value is not None]:
        raise ArgumentValueError(too_many[0], "not be given beside `case`, which has its own")
    a, right = case.attention_factor, np.asarray(case.frequencies)
    rows = zip(case.positions.tolist(), case.positions, case.cos / a, case.sin / a, strict=True)
    runs = {
        tuple(name) if isinstance(name, list) else name: Sample(p[None], c[None], s[None]) for name, p, c, s in rows
    }
    return _Task(Rotary(pairing, right.reshape(-1, right.shape[-1]), case.start, a), case.x.shape[-1], runs)


# --- calls of the function --------------------------------------------------------------------------------


def _passthrough_features(task: _Task) -> list[int]:
    """Return the indices of the features of a head that the rotation should leave as they are."""
    right = task.right
    return sorted(set(range(task.head_dim)) - set(members(right.pairing, right.start, right.pairs)))


class _RefusedError(Exception):
    """The function raised, or its result has a wrong type or shape."""


class _Subject(NamedTuple):
    """A function under test, and the array library to call it with."""

    function: Callable[..., Any]
    lib: Library
    like: Array
    passthrough: list[int]
    """The features that should pass through."""
    violations: dict[str, float]
    """The largest deviation of all calls so far from what each must keep to the last bit; updated by each call."""
    asked: frozenset[str]
    """The names of the options of `check_rotary` that are True."""

    def features(self, *shape: int) -> Data:
        """Return NumPy input numbers of this shape that use all digits of the dtype of `like`, equal in each call."""
        return features(*shape, bits=BITS[self.lib.dtype_name(self.like.dtype)])

    def put(self, data: Data) -> Array:
        """Return NumPy data as an array of the library, device and dtype of `like`."""
        real = self.lib.compute_dtype(self.like)
        x = self.lib.xp.asarray(data.tolist(), dtype=real, **self.lib.device_kwargs(self.like))
        return self.lib.cast(x, self.like.dtype)

    def get(self, x: Array) -> Data:
        """Return an array of any library as float64 NumPy data."""
        lib = require_array("x", x)
        return lib.get(lib.cast(x, lib.compute_dtype(x))).astype(np.float64)  # type: ignore[no-any-return]  # of NumPy

    def run(self, x: Array, positions: Array) -> Any:
        """Call the function; return its result (x if `in_place`); if `keys`, split heads into q, k; join results."""
        if "keys" not in self.asked:
            y = self.function(x, positions)
            return x if "in_place" in self.asked else y
        heads = x.shape[1]
        shared = max(heads // 3, 1)
        # one head is q and k, and the result for q counts
        parts = (x[:, : heads - shared, :, :], x[:, heads - shared :, :, :]) if heads > 1 else (x, x + 0)
        both = self.function(*parts, positions)
        both = parts if "in_place" in self.asked else both
        if not isinstance(both, tuple | list) or len(both) != 2:
            return both  # refused by the caller
        for part, y in zip(parts, both, strict=True):
            if (problem := _why_invalid(self.lib, y, part)) is not None:
                raise _RefusedError(problem)
        return self.lib.xp.concat(tuple(both), axis=1) if heads > 1 else both[0]

    def __call__(self, data: Data, positions: Any, *, view: "_View | None" = None, dtype: str | None = None) -> Data:
        """
        Return the function's NumPy result for x = `data`; raise `_RefusedError` if it raises or the result is invalid.

        x lies in a larger array if `view`; positions are cast to `dtype`; broken promises go into `violations`.
        """
        buffer = self.put(data if view is None else view.around(data))
        x = buffer if view is None else view.x_of(self.lib.xp, buffer)
        given = self.get(x)  # rounded to the dtype of x, which `data`, a result in a wider one, may not be
        where = as_position_array(positions, like=self.like)
        where = where if dtype is None else self.lib.cast(where, getattr(self.lib.xp, dtype))
        try:
            y = self.run(x, where)
            if (problem := _why_invalid(self.lib, y, x)) is None:
                got, after = self.get(y), self.get(x)  # a lazy one raises here
                changes = np.empty(0) if "in_place" in self.asked else np.abs(after - given)
                beside = np.empty(0) if view is None else np.abs(self.get(buffer) - view.around(after))
                self._keep_violations(
                    {
                        "keeps the dtype": x.dtype != y.dtype,
                        "does not change x": changes,
                        "writes nothing beside x": beside,
                        "does not change positions": np.abs(host(where) - np.asarray(positions)),
                        "passes the other features through": np.abs(got - given)[..., self.passthrough],
                    }
                )
                return got
        except _RefusedError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  # any exception goes into the report
            problem = _raised(error)
        raise _RefusedError(problem)

    def _keep_violations(self, errors: dict[str, Any]) -> None:
        """Update `violations` with the largest number of each array in `errors`, by name; skip empty arrays."""
        for name, error in errors.items():
            if np.size(error):
                self.violations[name] = float(np.maximum(self.violations.get(name, 0.0), np.max(error)))  # a nan stays


def _raised(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message, as text: "raised TYPE: LINE"."""
    first, _, _ = str(error).strip().partition("\n")
    return f"raised {type(error).__name__}: {first[:200]}"


class _View(NamedTuple):
    """A way to put x into a larger array, of which it is a view with gaps."""

    around: Callable[[Data], Data]
    """Return the larger array, with x in it."""
    x_of: Callable[[Any, Any], Any]
    """Return x as a view of the larger array, by a namespace."""
    first: Callable[[Data], int]
    """Return the flat index of the first number of x in the larger array."""


def _fused(x: Data) -> Data:
    """Return x ``(batch, heads, seq, dim)`` as the second of q, k, v ``(batch, seq, 3, heads, dim)``; the rest is 1."""
    rows = np.moveaxis(x, 1, 2)
    return np.stack([np.ones_like(rows), rows, np.ones_like(rows)], axis=2)


_VIEWS = (
    _View(_fused, lambda xp, rows: xp.moveaxis(rows[:, :, 1, :, :], 1, 2), lambda x: x[0, :, 0].size),
    _View(lambda x: np.stack([x, np.ones_like(x)], -1), lambda _, both: both[..., 0], lambda _: 0),
)


def _why_invalid(lib: Library, y: Any, x: Array) -> str | None:
    """Return why y can't be the result for x: another library or shape, or a complex dtype; None if it can be."""
    if find(y) is not lib:
        return f"returned {type_name(y)}, where x is {type_name(x)}"
    if tuple(y.shape) != tuple(x.shape):
        return f"returned shape {tuple(y.shape)} for x of shape {tuple(x.shape)}"
    names = [lib.dtype_name(part.dtype) for part in (y, x)]
    return f"returned {names[0]} for x of {names[1]}" if names[0].startswith("complex") else None


def _hints(subject: _Subject, why: str) -> Iterator[str]:
    """Yield texts on the option of `check_rotary`, `keys` or `like`, that a function may need; `why` is its failure."""
    if "missing 1 required positional argument" in why and _takes_three(subject.function):
        yield "function(q, k, positions) needs keys=True, on the command line --keys"
    if why.startswith("returned NoneType") and "in_place" not in subject.asked:
        yield "a function that writes into x needs in_place=True, on the command line --in-place"
    if why.startswith("raised") and "numpy.ndarray" in why and isinstance(subject.like, np.ndarray):
        yield "a function of torch needs like=torch.empty(0), on the command line --library torch"


def _takes_three(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with three positional arguments; False if its parameters are unknown."""
    try:
        signature(function).bind(*range(3))
    except (TypeError, ValueError):  # other parameters, or no known ones
        return False
    return True


def _report(task: _Task, subject: _Subject) -> Report:
    """Run all comparisons and property tests, and return the report."""
    dtype, right = subject.lib.dtype_name(subject.like.dtype), task.right
    bound, pairs = ROTATION_BOUNDS[dtype], right.pairs
    errors: dict[Any, float] = {}
    refusals: dict[Any, str] = {}
    runs: list[tuple[Data, ...]] = []
    worst = np.zeros((BATCH, HEADS))
    for name, sample in task.runs.items():
        x = subject.features(BATCH, HEADS, len(sample.positions), task.head_dim)
        try:
            y = subject(x, sample.positions.tolist())
        except _RefusedError as refusal:
            refusals[name] = str(refusal)
            continue
        want = rotate_exactly(x, sample, right.pairing, start=right.start, factor=right.factor)
        off = pair_errors(y, want, right.pairing, start=right.start, pairs=pairs).max(axis=(2, 3))
        worst, errors[name] = np.maximum(worst, off), float(off.max())
        runs.append((x, y, sample.positions.reshape(len(sample.positions), -1)))
    property_bound = max(1e-4, 4 * bound)
    properties, more, named = _properties(task, subject, bound=property_bound)
    refusals |= more
    properties = {name: Property(error == 0, error) for name, error in subject.violations.items()} | properties
    guess: tuple[str, ...] = ()
    right_numbers = all(error <= bound for error in errors.values())
    if not errors:
        why = next(iter(refusals.values()))
        guess = (f"function(x, positions) must return the rotated x; it {why}", *_hints(subject, why))
    elif not right_numbers:
        guess = _other_axis(task, runs[0], bound) or _causes(right, runs, worst, bound, keys="keys" in subject.asked)
        guess = guess or _correct_range(task.runs, errors, bound)
    explained = errors and not all(cause.startswith(ROUNDINGS) for cause in guess)
    guess = guess if explained else (*guess, *named)
    passed = right_numbers and not refusals and all(found.holds for found in properties.values())
    last = right.start + 2 * pairs - 1
    features = "" if 2 * pairs == task.head_dim else f", features {right.start} to {last} are rotated"
    about = f"{right.pairing}, head_dim {task.head_dim}{features}, {dtype} of {subject.lib.name}"
    return Report(about, passed, errors, bound, properties, property_bound, refusals, guess)


def _causes(right: Rotary, runs: list[tuple[Data, ...]], worst: Data, bound: float, *, keys: bool) -> tuple[str, ...]:
    """
    Return likely mistakes, as texts, in `runs` (x, y, positions), from the row and head with the largest error.

    `worst` has these errors, ``(rows, heads)``. If `keys`, the last head is that of k; q and k are judged apart.
    """
    positions = np.concatenate([run[2] for run in runs])
    kinds = {"queries": slice(-1), "keys": slice(-1, None)} if keys else {"": slice(None)}  # the last head is that of k
    found: dict[str, list[str]] = {}
    for name, heads in kinds.items():
        errors = worst[:, heads]
        if errors.max() <= bound:
            continue
        row, head = np.unravel_index(errors.argmax(), errors.shape)
        x, y = (np.concatenate([run[i][row, heads][head] for run in runs]) for i in (0, 1))
        for cause in find_causes(right, x, positions, y, bound=max(bound, ANGLE_NOISE)):
            found.setdefault(cause, []).append(name)
    return tuple(f"{cause}, in {' and '.join(names)}" if keys else cause for cause, names in found.items())


def _other_axis(task: _Task, run: tuple[Data, ...], bound: float) -> tuple[str, ...]:
    """Return (text,) if in `run` (x, y, positions) positions go along batch rows or heads, not tokens; else ()."""
    right, (x, y, positions) = task.right, run
    for axis, name in enumerate(("the rows of the batch", "the heads")):
        index = np.indices(x.shape[:-1])[axis].reshape(-1, 1)  # of each vector, along the axis
        want = rotate_wrongly(right, x.reshape(-1, x.shape[-1]), positions[0] + index)
        off = pair_errors(y.reshape(want.shape), want, right.pairing, start=right.start, pairs=right.pairs)
        if off.max() <= max(bound, ANGLE_NOISE):
            return (f"{name} are taken for the tokens: positions run along axis {axis}",)
    return ()


def _correct_range(runs: dict[Any, Sample], errors: dict[Any, float], bound: float) -> tuple[str, ...]:
    """Return (text,), the position up to which errors are within `bound` (not all are); () if the first is not."""
    right = [*takewhile(lambda name: errors[name] <= bound, errors)]
    if not right:
        return ()
    wrong = list(errors)[len(right)]  # there is one
    return (f"correct up to position {runs[right[-1]].positions[-1].tolist()}, wrong at {wrong}",)


# --- properties -------------------------------------------------------------------------------------------


def _properties(
    task: _Task, subject: _Subject, *, bound: float
) -> tuple[dict[str, Property], dict[Any, str], tuple[str, ...]]:
    """Return ({property: result}, {property: failure text}, causes); a property holds if its error <= `bound`."""
    found: dict[str, Property] = {}
    refusals: dict[Any, str] = {}
    causes: list[str] = []
    for name, (measure, option) in _PROPERTIES.items():
        if option and option not in subject.asked:
            continue
        cause = ""
        try:
            error = measure(task, subject)
            error, cause = error if isinstance(error, tuple) else (error, "")
        except _RefusedError as refusal:
            error, refusals[name] = float("nan"), str(refusal)
        found[name] = Property(error <= bound, error)
        causes += [cause] if cause and not found[name].holds else []
    return found, refusals, tuple(dict.fromkeys(causes))


def _consecutive(task: _Task, begin: int, length: int = RUN_LENGTH) -> list[Any]:
    """Return a list of consecutive positions from `begin` on; for several axes, of lists that repeat the position."""
    axes = task.right.frequencies.shape[0]
    numbers = range(begin, begin + length)
    return list(numbers) if axes == 1 else [[p] * axes for p in numbers]


def _inputs(task: _Task, subject: _Subject, length: int = RUN_LENGTH) -> Data:
    """Return the test input ``(batch, heads, length, head_dim)``: the same numbers in each call."""
    return subject.features(BATCH, HEADS, length, task.head_dim)


def _outputs(task: _Task, subject: _Subject) -> Iterator[Data]:
    """Yield the results for one input at runs of consecutive positions, which begin at each of `NEAR_POSITIONS`."""
    for begin in NEAR_POSITIONS:
        yield subject(_inputs(task, subject), _consecutive(task, begin))


def _relative_error(difference: Data, relative_to: Data) -> float:
    """Return the largest |difference| / |relative_to|, of the Euclidean norms of vectors along the last axis."""
    lengths = [np.sqrt((part * part).sum(axis=-1)) for part in (difference, relative_to)]
    return float(np.max(lengths[0] / lengths[1]))


def _identity_error(task: _Task, subject: _Subject) -> float:
    """Return the relative error of the rotary slice at position 0, divided by the attention factor, against x."""
    given = _inputs(task, subject)
    x, y = _rotary_slice(task, given), _rotary_slice(task, subject(given, _consecutive(task, 0)))
    return _relative_error((y / task.right.factor - x)[..., :1, :], x[..., :1, :])


def _rotary_slice(task: _Task, x: Data) -> Data:
    """Return the features of x that should be rotated, ``(..., 2 * pairs)``."""
    start = task.right.start
    return x[..., start : start + 2 * task.right.pairs]


def _length_error(task: _Task, subject: _Subject) -> float:
    """Return the largest relative change of rotary slices' norms, but for attention factor, at `NEAR_POSITIONS`."""
    of = np.sqrt((_rotary_slice(task, _inputs(task, subject)) ** 2).sum(axis=-1)) * task.right.factor
    slices = (_rotary_slice(task, y) for y in _outputs(task, subject))
    return float(np.max([np.abs(np.sqrt((y**2).sum(axis=-1)) / of - 1) for y in slices]))


def _distance_error(task: _Task, subject: _Subject) -> float:
    """Return the largest change of scores of head 0 with the others, results scaled to norm 1, if positions shift."""
    units = [y / np.sqrt((y * y).sum(axis=-1, keepdims=True)) for y in _outputs(task, subject)]
    here, *further = (y[:, :1] @ np.swapaxes(y[:, 1:], -1, -2) for y in units)
    return float(np.max([np.abs(scores - here) for scores in further]))


def _composition_error(task: _Task, subject: _Subject) -> float:
    """Return the relative error of rotating by 10 and then by 100, against rotating by 110."""
    x = _inputs(task, subject, 1)
    twice = subject(subject(x, _consecutive(task, 10, 1)), _consecutive(task, 100, 1)) / task.right.factor
    once = subject(x, _consecutive(task, 110, 1))
    return _relative_error(_rotary_slice(task, twice - once), _rotary_slice(task, once))


def _independence_error(task: _Task, subject: _Subject) -> tuple[float, str]:
    """Return the largest relative change of results if other tokens, heads, rows share a call; and its cause or ""."""
    x, positions = _inputs(task, subject), _consecutive(task, 10)
    y = subject(x, positions)
    others = np.flip(subject(np.flip(x, (0, 1)), positions), (0, 1)) - y
    head, last = subject(x[:, :1], positions) - y[:, :1], subject(x[:, :, -1:], positions[-1:]) - y[:, :, -1:]
    pairs = (others, y), (head, y[:, :1]), (last, y[:, :, -1:])
    first, rest = (np.abs(part).max() for part in (last[:1], last[1:]))
    cause = "with one token, only the first row of the batch is right" if first <= 1e-5 < rest else ""
    return float(np.max([_relative_error(*pair) for pair in pairs])), cause  # np.max keeps a nan


def _batching_error(task: _Task, subject: _Subject) -> float:
    """Return the largest relative error of a large call against eight on parts of x: halves of rows, heads, tokens."""
    rows, heads, length = LONG
    length = min(length, 1 + int(max(sample.positions.max() for sample in task.runs.values())))
    x, positions = subject.features(rows, heads, length, task.head_dim), _consecutive(task, 0, length)
    whole = subject(x, positions)
    cuts = ((slice(n // 2), slice(n // 2, n)) for n in x.shape[:3])
    parts = ((x[part], subject(x[part], positions[part[2]]) - whole[part]) for part in product(*cuts))
    return float(np.max([_relative_error(difference, of) for of, difference in parts]))


def _view_error(task: _Task, subject: _Subject) -> tuple[float, str]:
    """Return the relative change of results if x is a view of a larger array; and the cause, ignored strides, or ""."""
    x, positions = _inputs(task, subject), _consecutive(task, 10)
    y, worst, cause = subject(x, positions), 0.0, ""
    for view in _VIEWS:
        got = subject(x, positions, view=view)
        worst = float(np.maximum(worst, _relative_error(got - y, y)))
        flat, first = view.around(x).ravel(), view.first(x)
        misread = flat[first : first + x.size].reshape(x.shape)
        if np.max(np.abs(got - subject(misread, positions))) <= 1e-5:
            cause = "the strides of x are ignored: it is read as if it were contiguous"
    return worst, cause


def _dtype_error(task: _Task, subject: _Subject) -> float:
    """Return how much a result with int32 positions differs from that with the usual ones, relative to it."""
    x, positions = _inputs(task, subject), _consecutive(task, 100)
    y = subject(x, positions)
    return _relative_error(subject(x, positions, dtype="int32") - y, y)


def _row_error(task: _Task, subject: _Subject) -> tuple[float, str]:
    """Return (error, cause): positions by row in one call against a call per row; cause "" unless all use row 0's."""
    x, begins = _inputs(task, subject), (10, 57)
    rows = [_consecutive(task, begin) for begin in begins]
    each = np.concatenate([subject(x[[i]], positions) for i, positions in enumerate(rows)])
    got, as_first = subject(x, rows), subject(x, rows[0])
    ignored = np.max(np.abs(got - as_first)) <= 1e-5
    cause = "all rows of the batch are rotated by the positions of the first" if ignored else ""
    return _relative_error(got - each, each), cause


def _gradient_error(task: _Task, subject: _Subject) -> tuple[float, str]:
    """
    Return the error of the gradient against the inverse rotation, 0 within the bound, and the causes as one text.

    The error is infinite if a gradient is all zeros. Raise `_RefusedError` if the function or its gradient raises.
    """
    right, lib, runs, worst = task.right, subject.lib, [], 0.0
    pairs, gradients = right.pairs, cast("Gradients", lib.gradients)
    for sample in task.runs.values():
        shape = BATCH, HEADS, len(sample.positions), task.head_dim
        g, where = subject.features(*shape), as_position_array(sample.positions.tolist(), like=subject.like)
        cotangent = _VIEWS[1].x_of(lib.xp, subject.put(_VIEWS[1].around(g)))
        try:
            got = gradients.vjp(lambda x, where=where: subject.run(x, where), subject.put(np.flip(g).copy()), cotangent)
            got = subject.get(got)
        except Exception as error:  # noqa: BLE001  # any exception goes into the report
            raise _RefusedError(_raised(error)) from None
        if not got.any():
            return float("inf"), "no gradient reaches x"
        want = rotate_exactly(
            g, sample._replace(sin=-sample.sin), right.pairing, start=right.start, factor=right.factor
        )
        worst = max(worst, float(pair_errors(got, want, right.pairing, start=right.start, pairs=pairs).max()))
        runs.append((g[0, 0], sample.positions.reshape(len(sample.positions), -1), got[0, 0]))
    bound = max(ROTATION_BOUNDS[lib.dtype_name(subject.like.dtype)], ANGLE_NOISE)
    causes = find_causes(right._replace(sign=-1), *map(np.concatenate, zip(*runs, strict=True)), bound=bound)
    return (0.0 if worst <= bound else worst), "; ".join(f"in the gradient: {cause}" for cause in causes)


_Measure: TypeAlias = Callable[[_Task, _Subject], float | tuple[float, str]]
# by name: the error of a property, with a cause if it is known; and the option that asks for it
_PROPERTIES: dict[str, tuple[_Measure, str]] = {
    "is the identity at position 0": (_identity_error, ""),
    "preserves lengths": (_length_error, ""),
    "scores depend only on the distance": (_distance_error, ""),
    "rotations by m and n add up to m + n": (_composition_error, ""),
    "tokens, heads, rows are independent": (_independence_error, ""),
    "one large call equals its parts": (_batching_error, ""),
    "strides of x don't matter": (_view_error, ""),
    "positions may be int32": (_dtype_error, ""),
    "each row has its own positions": (_row_error, "rows"),
    "the gradient is the inverse rotation": (_gradient_error, "gradient"),
}


# --- text of the report -----------------------------------------------------------------------------------


def _report_lines(report: Report) -> Iterator[str]:
    """Yield the lines of a report: passed or failed, the tables, the likely cause."""
    yield f"{'passed' if report.passed else 'FAILED'}: {report.subject}"
    if report.errors or len(set(report.refusals.values())) > 1:
        yield from _report_tables(report)
    if not report.passed:
        yield ""
        if report.causes:
            yield f"  likely cause: {'; '.join(report.causes)}"
        elif not all(error <= report.bound for error in report.errors.values()):
            yield "  likely cause: none of the known ones"
        else:
            yield "  likely cause: not the angles, which are correct; see the failures above"


def _report_tables(report: Report) -> Iterator[str]:
    """Yield the lines of a report's tables of errors and properties; a repeated exception is printed once."""
    first_by_text: dict[str, Any] = {}
    refusals: dict[Any, str] = {}
    for name, text in report.refusals.items():
        kind = re.sub(r"\d+", "", text) if text.startswith("raised") else text  # positions in a message differ
        first = first_by_text.setdefault(kind, name)
        refusals[name] = text if first == name else f"the same as at {first}"
    yield ""
    yield f"  {'from position':<36} largest error (bound {report.bound:.1e})"
    for name in sorted({*report.errors, *report.refusals} - {*report.properties}):
        error = report.errors.get(name)
        text = refusals.pop(name) if error is None else _error_text(error, holds=error <= report.bound)
        yield f"  {name!s:<36} {text}"
    yield ""
    yield f"  {'property':<36} missed by (bound {report.property_bound:.1e}; 0 for exact ones)"
    for name, (holds, error) in report.properties.items():
        yield f"  {name:<36} {refusals.pop(name, '') or _error_text(error, holds=holds)}"


def _error_text(error: float, *, holds: bool) -> str:
    """Return an error as text, with "FAILS" after it if `holds` is False."""
    return f"{error:.1e}{'' if holds else '  FAILS'}"
