"""The properties that any rotation has, whatever its frequencies."""

from collections.abc import Callable, Iterator
from itertools import chain, product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from rope_any._positions import as_position_array
from rope_any.testing._exact import Data, pair_errors, rotate_exactly
from rope_any.testing._rotary import Fault
from rope_any.testing._search import Diagnosis, find_causes, fits
from rope_any.testing._seen import Seen
from rope_any.testing._subject import VIEWS, RefusedError, Subject, raised
from rope_any.testing._task import ANGLE_NOISE, BATCH, ROTATION_BOUNDS, RUN_LENGTH, Task, by_axis

if TYPE_CHECKING:
    from rope_any._arrays import Gradients

LONG = (3, 6, 131)  # rows, heads and tokens of the call that is compared with calls on its parts

_STRIDES = Fault(
    "the strides of x are ignored: it is read as if it were contiguous", "pass the strides on, or make x contiguous"
)
_FIRST_POSITIONS = Fault(
    "all rows of the batch are rotated by the positions of the first", "take positions (batch, seq) row by row"
)


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


_Found: TypeAlias = Iterator[float | Fault]
"""The errors of a property, relative to what must be equal, and likely mistakes if it doesn't hold."""


def properties_of(
    task: Task, subject: Subject, *, bound: float
) -> tuple[dict[str, Property], dict[Any, str], tuple[Fault, ...]]:
    """Return ({property: result}, {property: failure text}, causes); a property holds if its errors are <= `bound`."""
    properties: dict[str, Property] = {}
    refusals: dict[Any, str] = {}
    causes: list[Fault] = []
    for name, (test, option) in PROPERTIES.items():
        if option and option not in subject.asked:
            continue
        try:
            found = list(test(task, subject))
        except RefusedError as refusal:
            found, refusals[name] = [float("nan")], str(refusal)
        error = float(np.max([each for each in found if not isinstance(each, Fault)]))  # np.max keeps a nan
        properties[name] = Property(error <= bound, error)
        causes += [each for each in found if isinstance(each, Fault) and not error <= bound]
    return properties, refusals, tuple(dict.fromkeys(causes))


def _consecutive(task: Task, begin: int, length: int = RUN_LENGTH) -> list[Any]:
    """Return a list of consecutive positions from `begin` on; for several axes, of lists that repeat the position."""
    numbers = range(begin, begin + length)
    return [[p] * task.axes for p in numbers] if task.axes else list(numbers)


def _inputs(task: Task, subject: Subject, length: int = RUN_LENGTH) -> Data:
    """Return the test input ``(batch, heads, length, head_dim)``: the same numbers in each call."""
    return subject.features(BATCH, task.heads, length, task.head_dim)


def _outputs(task: Task, subject: Subject) -> Iterator[Data]:
    """Yield the results for one input at runs of consecutive positions, which begin at each of `task.near`."""
    for begin in task.near:
        yield subject(_inputs(task, subject), _consecutive(task, begin))


def _norms(x: Data) -> Data:
    """Return the Euclidean norms of vectors along the last axis, ``(..., 1)``."""
    return np.asarray(np.sqrt((x * x).sum(axis=-1, keepdims=True)))


def _error(got: Data, want: Data) -> float:
    """Return the largest |got − want| / |want| of vectors along the last axis."""
    return float(np.max(_norms(got - want) / _norms(want)))


def _identity(task: Task, subject: Subject) -> _Found:
    """Compare the rotary slice at position 0, divided by the attention factor, with that of x."""
    x = _inputs(task, subject)
    y = subject(x, _consecutive(task, 0))
    yield _error(*(each[..., :1, task.right.features] for each in (y / task.right.factor, x)))


def _lengths(task: Task, subject: Subject) -> _Found:
    """Compare the norms of rotary slices at `task.near`, divided by the attention factor, with those of x."""
    rotated = task.right.features
    want = _norms(_inputs(task, subject)[..., rotated])
    for y in _outputs(task, subject):
        yield _error(_norms(y[..., rotated]) / task.right.factor, want)


def _distance(task: Task, subject: Subject) -> _Found:
    """Compare scores of heads with others, results scaled to norm 1, if positions shift."""
    units = [y / _norms(y) for y in _outputs(task, subject)]
    # heads with frequencies of their own: each with its key, or with itself
    q, k = (slice(1), slice(1, None)) if task.by_head is None else (slice(task.by_head), slice(-task.by_head, None))
    here, *further = (y[:, q] @ np.swapaxes(y[:, k], -1, -2) for y in units)
    for scores in further:
        yield float(np.max(np.abs(scores - here)))


def _composition(task: Task, subject: Subject) -> _Found:
    """Compare rotating by m and then by n with rotating by m + n, for `near` m and n."""
    x, (_, m, n) = _inputs(task, subject, 1), task.near
    twice = subject(subject(x, _consecutive(task, m, 1)), _consecutive(task, n, 1)) / task.right.factor
    once = subject(x, _consecutive(task, m + n, 1))
    yield _error(twice[..., task.right.features], once[..., task.right.features])


def _independence(task: Task, subject: Subject) -> _Found:
    """Compare results if other tokens, heads, rows share a call; with one token the mistake may be known."""
    x, positions = _inputs(task, subject), _consecutive(task, task.near[1])
    y = subject(x, positions)
    axes = (0, 1) if task.by_head is None else 0
    yield _error(np.flip(subject(np.flip(x, axes), positions), axes), y)
    if task.by_head is None:
        yield _error(subject(x[:, :1], positions), y[:, :1])
    whole = dict(zip(task.near, _outputs(task, subject), strict=True))
    first, *rest = task.near
    tokens = [*((first, i) for i in range(RUN_LENGTH)), *((begin, i) for begin in rest for i in (0, RUN_LENGTH - 1))]
    places = [_consecutive(task, begin)[i] for begin, i in tokens]
    want = np.stack([whole[begin][:, :, i] for begin, i in tokens], axis=2)
    alone = np.concatenate([subject(x[:, :, i : i + 1], [p]) for (_, i), p in zip(tokens, places, strict=True)], axis=2)
    yield _error(alone, want)
    wrong = (np.abs(alone - want) > 1e-5).any(axis=(2, 3))
    if wrong.any() and task.by_head is None:
        given = x[:, :, [i for _, i in tokens]]
        yield from _with_one_token(task, wrong, given[wrong], alone[wrong], places)


def _with_one_token(task: Task, wrong: Data, x: Data, y: Data, places: list[Any]) -> Iterator[Fault]:
    """Yield the mistake of calls with one token at each of `places`; x, y are of rows and heads that are `wrong`."""
    positions, among = by_axis(np.asarray(places * len(x))), wrong_among(wrong)
    x, y = (each.reshape(-1, each.shape[-1]) for each in (x, y))
    seen = Seen(task.right, task.source, x, positions, y)
    if not fits(task.right, seen, bound=ANGLE_NOISE):  # if they are right, longer calls are wrong
        found = find_causes(seen, bound=ANGLE_NOISE)
        yield _joined(
            f"with one token{among and f', in {among}'}", found, unknown="another result than in a longer call"
        )


def wrong_among(wrong: Data) -> str:
    """Return which of rows and heads ``(rows, heads)`` are wrong, as text; "" if all are."""
    if wrong.all():
        return ""
    if (wrong == wrong[:1]).all():
        return f"heads {', '.join(map(str, np.flatnonzero(wrong[0])))} (of 0 to {wrong.shape[1] - 1})"
    if (wrong == wrong[:, :1]).all():
        return f"rows {', '.join(map(str, np.flatnonzero(wrong[:, 0])))} (of 0 to {wrong.shape[0] - 1})"
    return "all but the first head of the first row" if wrong.sum() == wrong.size - 1 and not wrong[0, 0] else "some"


def _batching(task: Task, subject: Subject) -> _Found:
    """Compare a large call with eight on parts of x: halves of rows, heads, tokens."""
    rows, heads, length = LONG
    length, heads = min(length, task.last + 1), heads if task.by_head is None else task.heads
    x, positions = subject.features(rows, heads, length, task.head_dim), _consecutive(task, 0, length)
    whole = subject(x, positions)
    groups = (heads - heads // 3, heads // 3) if "keys" in subject.asked else (heads,)
    # heads with frequencies of their own can't be called apart
    of_heads = _halves(*groups) if task.by_head is None else [list(range(heads))]
    wrong = np.zeros((rows, heads), dtype=bool)
    for part in product(_halves(rows), of_heads, _halves(length)):
        got, want = subject(x[np.ix_(*part)], [positions[i] for i in part[2]]), whole[np.ix_(*part)]
        yield _error(got, want)
        wrong[np.ix_(*part[:2])] |= (np.abs(got - want) > 1e-5).any(axis=(2, 3))
    if wrong.any():
        where = wrong_among(wrong)
        text = f"with {rows} rows, {heads} heads and {length} tokens: another result{where and f', in {where}'}"
        yield Fault(text, "see what it does with more rows, heads and tokens than two, three and eight")


def _halves(*counts: int) -> list[list[int]]:
    """Return the indices of the first and of the second halves of groups of these sizes, one after the other."""
    groups = np.split(np.arange(sum(counts)), np.cumsum(counts[:-1]))
    return [
        [*chain.from_iterable(g[: len(g) // 2] for g in groups)],
        [*chain.from_iterable(g[len(g) // 2 :] for g in groups)],
    ]


def _strides(task: Task, subject: Subject) -> _Found:
    """Compare results if x is a view of a larger array; the mistake is that strides are ignored."""
    x, positions = _inputs(task, subject), _consecutive(task, task.near[1])
    y = subject(x, positions)
    for view in VIEWS:
        try:
            got = subject(x, positions, view=view)
        except RefusedError:
            if view is VIEWS[1]:  # features with gaps, which a function may refuse
                continue
            raise
        yield _error(got, y)
        flat, first = view.around(x).ravel(), view.first(x)
        misread = flat[first : first + x.size].reshape(x.shape)
        if np.max(np.abs(got - subject(misread, positions))) <= 1e-5:
            yield _STRIDES


def _int32(task: Task, subject: Subject) -> _Found:
    """Compare a result with int32 positions with that with the usual ones."""
    x, positions = _inputs(task, subject), _consecutive(task, task.near[2])
    yield _error(subject(x, positions, dtype="int32"), subject(x, positions))


def _rows(task: Task, subject: Subject) -> _Found:
    """Compare positions by row in one call with a call per row; the mistake is that all use those of the first."""
    x, rows = _inputs(task, subject), [_consecutive(task, begin) for begin in task.near[1:]]
    each = np.concatenate([subject(x[[i]], positions) for i, positions in enumerate(rows)])
    got = subject(x, rows)
    yield _error(got, each)
    if np.max(np.abs(got - subject(x, rows[0]))) <= 1e-5:
        yield _FIRST_POSITIONS


def _gradient(task: Task, subject: Subject) -> _Found:
    """Compare the gradient with the inverse rotation; an error within the bound is 0, one of zeros is infinite."""
    lib, right, runs, worst = subject.lib, task.right, [], 0.0
    gradients = cast("Gradients", lib.gradients)
    for sample in task.runs.values():
        shape = BATCH, task.heads, len(sample.positions), task.head_dim
        g, where = subject.features(*shape), as_position_array(sample.positions.tolist(), like=subject.like)
        cotangent = VIEWS[1].x_of(lib.xp, subject.put(VIEWS[1].around(g)))
        try:
            got = gradients.vjp(lambda x, where=where: subject.run(x, where), subject.put(np.flip(g).copy()), cotangent)
            got = subject.get(got)
        except Exception as error:  # noqa: BLE001  # any exception goes into the report
            raise RefusedError(raised(error)) from None
        if not got.any():
            yield from (float("inf"), Fault("no gradient reaches x", "do not detach x, and compute out of no_grad"))
            return
        want = rotate_exactly(g, sample._replace(sin=-sample.sin), right.members, factor=right.factor)
        worst = max(worst, float(pair_errors(got, want, right.members).max()))
        runs.append((g[0, 0], by_axis(sample.positions), got[0, 0]))
    bound = max(ROTATION_BOUNDS[subject.dtype], ANGLE_NOISE)
    yield worst if worst > bound else 0.0
    if worst > bound:
        x, positions, y = map(np.concatenate, zip(*runs, strict=True))
        inverse = right._replace(sign=-1)
        seen = Seen(inverse, task.source, x, positions, y, subject.dtype)
        if (found := find_causes(seen, bound=bound)).faults:
            yield _joined("in the gradient", found)


def _joined(where: str, found: Diagnosis, *, unknown: str = "") -> Fault:
    """Return the mistakes of a diagnosis as one fault; `unknown` if there are none."""
    text = "; ".join(fault.text for fault in found.faults) or unknown
    remedies = [fault.remedy for fault in found.faults] or [f"see what it does {where}"]
    return Fault(f"{where}: {text}", "; ".join(remedies))


# by name: the test of a property, and the option that asks for it
PROPERTIES: dict[str, tuple[Callable[[Task, Subject], _Found], str]] = {
    "is the identity at position 0": (_identity, ""),
    "preserves lengths": (_lengths, ""),
    "scores depend only on the distance": (_distance, ""),
    "rotations by m and n add up to m + n": (_composition, ""),
    "tokens, heads, rows are independent": (_independence, ""),
    "one large call equals its parts": (_batching, ""),
    "strides of x don't matter": (_strides, ""),
    "positions may be int32": (_int32, ""),
    "each row has its own positions": (_rows, "rows"),
    "the gradient is the inverse rotation": (_gradient, "gradient"),
}
