"""The properties that any rotation has, whatever its frequencies."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from rope_any._positions import as_position_array
from rope_any.testing._causes import Seen
from rope_any.testing._exact import Data, pair_errors, rotate_exactly
from rope_any.testing._rotary import Fault
from rope_any.testing._search import Diagnosis, find_causes
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


def properties_of(
    task: Task, subject: Subject, *, bound: float
) -> tuple[dict[str, Property], dict[Any, str], tuple[Fault, ...]]:
    """Return ({property: result}, {property: failure text}, causes); a property holds if its error <= `bound`."""
    found: dict[str, Property] = {}
    refusals: dict[Any, str] = {}
    causes: list[Fault] = []
    for name, (measure, option) in PROPERTIES.items():
        if option and option not in subject.asked:
            continue
        cause: Fault | None = None
        try:
            error = measure(task, subject)
            error, cause = error if isinstance(error, tuple) else (error, None)
        except RefusedError as refusal:
            error, refusals[name] = float("nan"), str(refusal)
        found[name] = Property(error <= bound, error)
        causes += [cause] if cause and not found[name].holds else []
    return found, refusals, tuple(dict.fromkeys(causes))


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


def _relative_error(difference: Data, relative_to: Data) -> float:
    """Return the largest |difference| / |relative_to|, of the Euclidean norms of vectors along the last axis."""
    lengths = [np.sqrt((part * part).sum(axis=-1)) for part in (difference, relative_to)]
    return float(np.max(lengths[0] / lengths[1]))


def _identity_error(task: Task, subject: Subject) -> float:
    """Return the relative error of the rotary slice at position 0, divided by the attention factor, against x."""
    given = _inputs(task, subject)
    x, y = _rotary_slice(task, given), _rotary_slice(task, subject(given, _consecutive(task, 0)))
    return _relative_error((y / task.right.factor - x)[..., :1, :], x[..., :1, :])


def _rotary_slice(task: Task, x: Data) -> Data:
    """Return the features of x that should be rotated, ``(..., 2 * pairs)``."""
    return x[..., task.right.features]


def _length_error(task: Task, subject: Subject) -> float:
    """Return the largest relative change of rotary slices' norms, but for attention factor, at `task.near`."""
    of = np.sqrt((_rotary_slice(task, _inputs(task, subject)) ** 2).sum(axis=-1)) * task.right.factor
    slices = (_rotary_slice(task, y) for y in _outputs(task, subject))
    return float(np.max([np.abs(np.sqrt((y**2).sum(axis=-1)) / of - 1) for y in slices]))


def _distance_error(task: Task, subject: Subject) -> float:
    """Return the largest change of scores of heads with others, results scaled to norm 1, if positions shift."""
    units = [y / np.sqrt((y * y).sum(axis=-1, keepdims=True)) for y in _outputs(task, subject)]
    # heads with frequencies of their own: each with its key, or with itself
    q, k = (slice(1), slice(1, None)) if task.by_head is None else (slice(task.by_head), slice(-task.by_head, None))
    here, *further = (y[:, q] @ np.swapaxes(y[:, k], -1, -2) for y in units)
    return float(np.max([np.abs(scores - here) for scores in further]))


def _composition_error(task: Task, subject: Subject) -> float:
    """Return the relative error of rotating by m and then by n, against rotating by m + n, for `near` m and n."""
    x, (_, m, n) = _inputs(task, subject, 1), task.near
    twice = subject(subject(x, _consecutive(task, m, 1)), _consecutive(task, n, 1)) / task.right.factor
    once = subject(x, _consecutive(task, m + n, 1))
    return _relative_error(_rotary_slice(task, twice - once), _rotary_slice(task, once))


def _independence_error(task: Task, subject: Subject) -> tuple[float, Fault | None]:
    """Return the largest relative change of results if other tokens, heads, rows share a call; and the mistake."""
    x, positions = _inputs(task, subject), _consecutive(task, task.near[1])
    y = subject(x, positions)
    axes = (0, 1) if task.by_head is None else 0
    others = np.flip(subject(np.flip(x, axes), positions), axes) - y
    token = x[:, :, -1:]
    alone = subject(token, positions[-1:])
    pairs = [(others, y), (alone - y[:, :, -1:], y[:, :, -1:])]
    if task.by_head is None:
        pairs.append((subject(x[:, :1], positions) - y[:, :1], y[:, :1]))
    wrong = (np.abs(alone - y[:, :, -1:]) > 1e-5).any(axis=(2, 3))
    cause = _with_one_token(task, wrong, token[wrong][:, 0], alone[wrong][:, 0], positions[-1:])
    return float(np.max([_relative_error(*pair) for pair in pairs])), cause  # np.max keeps a nan


def _with_one_token(task: Task, wrong: Data, x: Data, y: Data, position: list[Any]) -> Fault | None:
    """Return the mistake of calls with one token; x, y are of the rows and heads that are `wrong` (None: none)."""
    if task.by_head or not wrong.any():
        return None
    positions, among = np.repeat(by_axis(np.asarray(position)), len(x), axis=0), wrong_among(wrong)
    found = find_causes(Seen(task.right, task.rope.pairing, task.rope.blocks, x, positions, y), bound=ANGLE_NOISE)
    return _joined(f"with one token{among and f', in {among}'}", found, unknown="another result than in a longer call")


def wrong_among(wrong: Data) -> str:
    """Return which of rows and heads ``(rows, heads)`` are wrong, as text; "" if all are."""
    if wrong.all():
        return ""
    if (wrong == wrong[:1]).all():
        return f"heads {', '.join(map(str, np.flatnonzero(wrong[0])))} (of 0 to {wrong.shape[1] - 1})"
    if (wrong == wrong[:, :1]).all():
        return f"rows {', '.join(map(str, np.flatnonzero(wrong[:, 0])))} (of 0 to {wrong.shape[0] - 1})"
    return "all but the first head of the first row" if wrong.sum() == wrong.size - 1 and not wrong[0, 0] else "some"


def _batching_error(task: Task, subject: Subject) -> float:
    """Return the largest relative error of a large call against eight on parts of x: halves of rows, heads, tokens."""
    rows, heads, length = LONG
    length, heads = min(length, task.last + 1), heads if task.by_head is None else task.heads
    x, positions = subject.features(rows, heads, length, task.head_dim), _consecutive(task, 0, length)
    whole = subject(x, positions)
    # heads with frequencies of their own can't be called apart
    sizes = zip(x.shape[:3], (True, task.by_head is None, True), strict=True)
    cuts = ((slice(n // 2), slice(n // 2, n)) if several else (slice(n),) for n, several in sizes)
    parts = ((x[part], subject(x[part], positions[part[2]]) - whole[part]) for part in product(*cuts))
    return float(np.max([_relative_error(difference, of) for of, difference in parts]))


def _view_error(task: Task, subject: Subject) -> tuple[float, Fault | None]:
    """Return the relative change of results if x is a view of a larger array; and the mistake, ignored strides."""
    x, positions = _inputs(task, subject), _consecutive(task, task.near[1])
    y, worst, cause = subject(x, positions), 0.0, None
    for view in VIEWS:
        got = subject(x, positions, view=view)
        worst = float(np.maximum(worst, _relative_error(got - y, y)))
        flat, first = view.around(x).ravel(), view.first(x)
        misread = flat[first : first + x.size].reshape(x.shape)
        if np.max(np.abs(got - subject(misread, positions))) <= 1e-5:
            cause = _STRIDES
    return worst, cause


def _dtype_error(task: Task, subject: Subject) -> float:
    """Return how much a result with int32 positions differs from that with the usual ones, relative to it."""
    x, positions = _inputs(task, subject), _consecutive(task, task.near[2])
    y = subject(x, positions)
    return _relative_error(subject(x, positions, dtype="int32") - y, y)


def _row_error(task: Task, subject: Subject) -> tuple[float, Fault | None]:
    """Return (error, mistake): positions by row in one call against a call per row, a mistake if all use row 0's."""
    x, begins = _inputs(task, subject), task.near[1:]
    rows = [_consecutive(task, begin) for begin in begins]
    each = np.concatenate([subject(x[[i]], positions) for i, positions in enumerate(rows)])
    got, as_first = subject(x, rows), subject(x, rows[0])
    ignored = np.max(np.abs(got - as_first)) <= 1e-5
    cause = _FIRST_POSITIONS if ignored else None
    return _relative_error(got - each, each), cause


def _gradient_error(task: Task, subject: Subject) -> tuple[float, Fault | None]:
    """
    Return the error of the gradient against the inverse rotation, 0 within the bound, and the likely mistake.

    The error is infinite if a gradient is all zeros. Raise `RefusedError` if the function or its gradient raises.
    """
    lib, runs, worst = subject.lib, [], 0.0
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
            return float("inf"), Fault("no gradient reaches x", "do not detach x, and compute out of no_grad")
        want = rotate_exactly(g, sample._replace(sin=-sample.sin), task.right.members, factor=task.right.factor)
        worst = max(worst, float(pair_errors(got, want, task.right.members).max()))
        runs.append((g[0, 0], by_axis(sample.positions), got[0, 0]))
    bound = max(ROTATION_BOUNDS[subject.dtype], ANGLE_NOISE)
    if worst <= bound:
        return 0.0, None
    x, positions, y = map(np.concatenate, zip(*runs, strict=True))
    inverse = task.right._replace(sign=-1)
    seen = Seen(inverse, task.rope.pairing, task.rope.blocks, x, positions, y, subject.dtype)
    return worst, _joined("in the gradient", find_causes(seen, bound=bound))


def _joined(where: str, found: Diagnosis, *, unknown: str = "") -> Fault | None:
    """Return the mistakes of a diagnosis as one fault; `unknown` if there are none, or None if that is empty."""
    text = "; ".join(fault.text for fault in found.faults) or unknown
    return Fault(f"{where}: {text}", "; ".join(fault.remedy for fault in found.faults)) if text else None


_Measure: TypeAlias = Callable[[Task, Subject], float | tuple[float, Fault | None]]
# by name: the error of a property, with a cause if it is known; and the option that asks for it
PROPERTIES: dict[str, tuple[_Measure, str]] = {
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
