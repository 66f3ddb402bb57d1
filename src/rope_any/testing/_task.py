"""What a rotary function is compared with: a rotation, its exact results, and the positions of the calls."""

from typing import Any, NamedTuple

import numpy as np

from rope_any._arrays import Array, host
from rope_any._checks import ArgumentValueError, Text, int32, integer
from rope_any._positions import as_position_array
from rope_any.testing._exact import Data, Sample, exact
from rope_any.testing._right import Right
from rope_any.testing._rotary import Rotary, rotary_of
from rope_any.testing._seen import POWERS

TABLE_BOUND = 1.2e-7  # the largest error of a float32 table at integer positions
# Largest accepted error of a rotated pair, relative to its length. In float32 it is that of a float32 table,
# √2 · 1.2e-7, plus roundings of 2⁻²⁴ each. In half precision it is one rounding of each number, 2⁻¹¹ = 4.9e-4 in
# float16 and 2⁻⁸ = 3.9e-3 in bfloat16, and a little more; a table rounded to half precision exceeds it.
ROTATION_BOUNDS = {"float64": 4e-7, "float32": 4e-7, "float16": 5.5e-4, "bfloat16": 4.2e-3}
ANGLE_NOISE = 1.6e-6  # difference of two rotations by the same float32 angles
RUN_LENGTH = 8  # tokens of a call
BATCH, HEADS = 2, 3
LEAST, LONGEST = 15, 2**31 - 1  # the range of `longest`


class Task(NamedTuple):
    """The rotation that the function should compute, the shape of x, and the positions of the calls."""

    source: Right
    rotaries: list[Rotary]
    """The right rotation; of each head, if heads have frequencies of their own."""
    head_dim: int
    heads: int
    """The number of heads of x."""
    runs: dict[Any, Sample]
    """A `Sample` for each call, by its name in the report: its first position."""
    given: bool
    """Whether the positions of the only run are those of the user."""
    last: int
    """The last position that the function can be called with."""

    @property
    def right(self) -> Rotary:
        """The rotation of the first head."""
        return self.rotaries[0]

    @property
    def by_head(self) -> int | None:
        """The number of heads that have frequencies of their own; None if all have the same."""
        return len(self.source.rope.frequencies) if np.ndim(self.source.rope.frequencies) == 3 else None

    @property
    def axes(self) -> int | None:
        """The length of the last axis of the positions; None if they have no such axis."""
        shape = np.shape(self.source.rope.frequencies)
        return shape[-2] if len(shape) > 1 else None

    @property
    def near(self) -> tuple[int, int, int]:
        """First positions of the tests of properties: even float32 angles have small errors there."""
        return (0, 10, 100) if self.last >= 127 else (0, 1, self.last - RUN_LENGTH)


def task_of(right: Right, *, head_dim: Any, longest: Any, positions: Any, keys: bool, like: Array) -> Task:
    """Return the task for the options of `check_rotary`, of which None means the default; raise if they are wrong."""
    rope, rotaries = right.rope, rotary_of(right.rope)
    least = int(rotaries[0].features[-1]) + 1
    dim = (right.head_dim or least) if head_dim is None else integer("head_dim", head_dim)
    if dim < least:
        raise ArgumentValueError("head_dim", f"hold the features that rotate, {least} at least", dim)
    last = LONGEST if longest is None else int32("longest", longest, least=LEAST)
    # heads with frequencies of their own: as often as q and k have them
    freqs = rope.frequencies * (2 if keys and len(rotaries) > 1 else 1)
    heads = HEADS if len(rotaries) == 1 else len(freqs)
    task = Task(right, rotaries, dim, heads, {}, positions is not None, last)
    if positions is not None:
        places = _given_positions(positions, task, like)
        if places.max() > last:
            raise ArgumentValueError("positions", f"not exceed `longest`, {last}", Text(f"{places.max()}"))
        return task._replace(runs={"positions": exact(places, freqs)})
    begins = [0, *(p for p in POWERS[2:] if p + RUN_LENGTH <= last - RUN_LENGTH), last - RUN_LENGTH + 1]
    runs: dict[Any, Any] = {p: _places(p, task.axes) for p in begins}
    if task.axes and task.axes > 1:
        rows = np.eye(task.axes, dtype=np.int64)  # one axis at a time is not 0
        alone = [p * row for row in rows for p in POWERS[1:] if p <= last]
        runs["axes apart"] = np.stack([0 * alone[0], *alone])
    return task._replace(runs={name: exact(places, freqs) for name, places in runs.items()})


def _places(begin: int, axes: int | None) -> Data:
    """Return the positions of a run of tokens: consecutive on the first axis, in another order on each other one."""
    i = np.arange(RUN_LENGTH)
    if axes is None:
        return begin + i
    # odd steps visit all
    return begin + np.stack([((2 * axis + 1) * i + 3 * axis) % RUN_LENGTH for axis in range(axes)], axis=1)


def _given_positions(positions: Any, task: Task, like: Array) -> Data:
    """Return the user's positions, ``(n,)`` or ``(n, axes)``, rounded as the library does; raise for other shapes."""
    places = np.asarray(host(as_position_array(positions, like=like)))
    ndim = 1 if task.axes is None else 2
    if places.ndim != ndim or not len(places) or (ndim == 2 and places.shape[1] != task.axes):
        wanted = "(n,)" if task.axes is None else f"(n, {task.axes})"
        hint = "transpose them" if places.shape[:1] == (task.axes,) else ""
        raise ArgumentValueError("positions", f"have the shape {wanted}, n tokens", tuple(places.shape), hint)
    return places


def by_axis(positions: Data) -> Data:
    """Return positions ``(n,)`` or ``(n, axes)`` as ``(n, axes)``."""
    return positions.reshape(len(positions), -1)
