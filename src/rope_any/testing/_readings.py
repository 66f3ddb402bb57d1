"""Ways to read the numbers of a rotary cache, and how far each is from the exact numbers."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rope_any._checks import ArgumentValueError
from rope_any._frequencies import as_rows
from rope_any._rope import Rope
from rope_any.layouts import DIGITS, LAYOUTS, Layout, divided, parts_of
from rope_any.testing._exact import Data
from rope_any.testing._right import Right
from rope_any.testing._rotary import Fault
from rope_any.testing._task import TABLE_BOUND

FIRST = 8  # rows that are compared first: few are right in a wrong cache
BLOCK = 1024  # rows that are compared at once: they fit the processor's cache
TWICE: dict[str, Callable[[int], tuple[slice, slice]]] = {
    "one time after the other": lambda n: (slice(n // 2), slice(n // 2, n)),
    "side by side": lambda n: (slice(0, n, 2), slice(1, n, 2)),
}
NOTHING_UNDONE = Fault("", "")
REVERSED = Fault("the pairs are in reverse order", "begin with the fastest pair")
INVERTED = Fault("each number is the reciprocal of the right one", "write 1 / number")


class Reading(NamedTuple):
    """A rotary cache in NumPy, what it should hold, and its numbers as read in one layout."""

    layout: str
    rope: Rope
    source: Right
    """Where the rotation comes from, with neighbours of as many pairs and axes."""
    positions: Data | None
    """Those of the rows, ``(rows, axes)``; None for 0, 1, 2, ..."""
    arrays: list[Data]
    """As given."""
    dtype: str
    base: float | None
    """The base of divisors."""
    values: Data = np.empty(0)
    """``(parts, copies, batch, rows, pairs)``."""
    undone: Fault = NOTHING_UNDONE
    """What had to be undone to read it so; in another layout, what to add to its name."""

    @property
    def row(self) -> Layout:
        """The layout in which it is read."""
        return LAYOUTS[self.layout]

    @property
    def unit(self) -> str:
        """What a report counts: "row", or "pair" if the layout has no rows."""
        return "row" if "seq" in self.row.names else "pair"

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return int(np.shape(self.rope.frequencies)[-1])

    def rows(self, which: slice) -> "Reading":
        """Return some of the rows, with their positions."""
        return self._replace(values=self.values[..., which, :], positions=self.places[which])

    @property
    def places(self) -> Data:
        """The positions of the rows, ``(rows, axes)``."""
        return np.arange(self.values.shape[-2])[:, None] if self.positions is None else self.positions

    def read(self, arrays: list[Data], undone: Fault = NOTHING_UNDONE, **changes: Any) -> Iterator["Reading"]:
        """Yield a reading of `arrays`, if their shape fits the layout and the positions."""
        one = self._replace(undone=undone, **changes)
        with suppress(ArgumentValueError):
            values = np.stack(parts_of(arrays, one.layout, rotary_dim=2 * self.pairs))
            if self.positions is None or len(self.positions) == values.shape[-2]:
                yield one._replace(values=values)


def in_own_layout(given: Reading, own: Reading | None) -> Iterator[Reading]:
    """Yield readings in the layout of a cache, each with a mistake undone; `own` is None for a wrong shape."""
    if own is not None:
        yield own._replace(values=own.values[..., ::-1], undone=REVERSED)
        if own.unit == "pair":
            yield own._replace(values=1 / own.values.astype(np.float64), undone=INVERTED)
        for how, halves in TWICE.items():
            first, second = (own.values[..., half, :] for half in halves(own.values.shape[-2]))
            if own.positions is None and np.array_equal(first, second):
                undone = Fault(f"the rows are repeated, {how}", "write each row once")
                yield own._replace(values=first, undone=undone)
        return
    old, new = given.arrays[0].shape, _shape_in_layout(given, given.row)
    for how, halves in TWICE.items():
        one, other = ([x[..., half] for x in given.arrays] for half in halves((0, *old)[-1]))
        if all(np.array_equal(*both) for both in zip(one, other, strict=True)):
            yield from given.read(one, Fault(f"the numbers of each row are repeated, {how}", "write each number once"))
    yield from given.read([x.T for x in given.arrays], Fault("the axes are in reverse order", "transpose the arrays"))
    if new is not None:
        undone = Fault(f"the shape is {old} rather than {new}", f"reshape it to {new}")
        yield from given.read([x.reshape(new) for x in given.arrays], undone)


def in_other_layouts(given: Reading, *, reshaped: bool) -> Iterator[Reading]:
    """Yield readings in other layouts of what the cache holds: that fit its shape or, if `reshaped`, only reshaped."""
    own = given.row
    for name, row in LAYOUTS.items():
        shape, of_pairs = _shape_in_layout(given, row), row.names == own.names == ["pair"]
        is_other = (row.axes, row.parts, row.holds) != (own.axes, own.parts, own.holds)
        alike = is_other and (row.holds == own.holds or of_pairs) and row.arrays == own.arrays
        if alike and given.dtype in row.dtypes and shape and (shape != given.arrays[0].shape) == reshaped:
            base = _base_of_divisors(given) if row.holds == "divisors" else None
            text = f", of base {base:.6g}" if base else ", in another shape" if reshaped else ""
            undone = Fault(text, f'say that it is "{name}" to what reads it, or write it as {given.layout}')
            yield from given.read([x.reshape(shape) for x in given.arrays], undone, layout=name, base=base or 2.0)


def _shape_in_layout(given: Reading, row: Layout) -> tuple[int, ...] | None:
    """Return the shape that an array of a cache would have in a layout; None if its numbers don't fill whole rows."""
    sizes = {"part": 2, "copy": 2, "1": 1, "batch": 1, "pair": given.pairs}
    sizes["seq"] = given.arrays[0].size // math.prod(sizes.get(name, 1) for name in row.names)
    shape = tuple(math.prod(sizes[name] for name in axis.split("*")) for axis in row.axes.split())
    return shape if math.prod(shape) == given.arrays[0].size else None


def _base_of_divisors(given: Reading) -> float | None:
    """Return base B of a cache's numbers ``B^(-i/pairs) / f``, f the Rope's frequencies, by the last; None if unfit."""
    n, numbers = given.pairs, given.arrays[0].ravel()
    base = float(abs(given.rope.frequencies[-1] * numbers[-1])) ** (-n / (n - 1)) if n > 2 else 0.0
    # divisors are 1, 8, ...; reciprocals of other frequencies come close to their base, and other numbers are below 1
    return base if numbers.min() > 0.9 and numbers.max() < base < 1e12 else None


# --- errors -----------------------------------------------------------------------------------------------


def errors_of(reading: Reading) -> tuple[Data, Data]:
    """Return the largest error of each pair in each row, and error / bound of `check_cache`: ``(rows, pairs)`` both."""
    error, ratio = zip(*map(_errors, _blocks(reading)), strict=True)
    return np.concatenate(error), np.concatenate(ratio)


def error_if_right(reading: Reading) -> float | None:
    """Return the largest error of a cache, as read, if all numbers are in bounds; else None."""
    largest = 0.0
    for error, ratio in map(_errors, _blocks(reading)):
        if ratio.max() > 1:
            return None
        largest = max(largest, float(error.max()))
    return largest


def first_wrong(reading: Reading) -> int:
    """Return the first row (or, if it has none, pair) beyond its bound; the number of rows if none is."""
    begin = 0
    for wrong in (_errors(block)[1].max(axis=1) > 1 for block in _blocks(reading)):
        if wrong.any():
            return begin + int(wrong.argmax())
        begin += len(wrong)
    return begin


def starts_well(reading: Reading) -> bool:
    """Whether a reading seems right: row 0 (or pair 0) is in bounds, over 90% of all numbers equal their first copy."""
    ratio = _errors(reading.rows(slice(1)))[1]
    starts = (ratio if reading.unit == "row" else ratio[:, :1]).max() <= 1
    return bool(starts and (reading.values == reading.values[:, :1]).mean() > 0.9)


def _blocks(reading: Reading) -> Iterator[Reading]:
    """Yield the rows of a reading in blocks."""
    count = reading.values.shape[-2]
    for begin, end in pairwise((0, *range(FIRST, count, BLOCK), count)):
        yield reading.rows(slice(begin, end))


def _errors(reading: Reading) -> tuple[Data, Data]:
    """Return `errors_of` for a few rows."""
    row, f, factor = reading.row, np.asarray(as_rows(reading.rope.frequencies))[:, None], reading.rope.attention_factor
    p = reading.places.T[..., None].astype(np.float64)
    turn, more = p * f, np.maximum(np.count_nonzero(f, axis=0) - 1, 0)  # sums of the angles of a pair
    # the rounded exponent is an error of ln f, power and division of 3, product, sum and real position of 1 unit
    units = np.abs(np.log(np.where(f, np.abs(f), 1))) + 4 + more + (p != p.astype(np.float32))
    is_exact = (np.frexp(np.abs(f))[0] == 0.5) & (turn == turn.astype(np.float32)) & (more == 0)
    angle, slack = turn.sum(axis=0), np.where(is_exact, 0, np.abs(turn) * units * 2.0**-24).sum(axis=0)
    roundoff = 2.0 ** -DIGITS[reading.dtype]
    if row.holds == "cos and sin":
        want = factor * np.stack([getattr(np, part)(angle) for part in row.parts])
        bound = factor * (TABLE_BOUND + slack) + roundoff * np.abs(want)
    elif row.holds == "angles":
        want, bound = angle[None], slack[None]
    else:
        want = np.asarray(divided(row, reading.pairs, reading.base)) / f
        bound = np.abs(want) * (units * 2.0**-24 + roundoff)
    values, want, bound = reading.values.astype(np.float64), want[:, None, None], bound[:, None, None]
    error = np.where(values == want, 0, np.abs(values - want))
    ratio = np.where(error == 0, 0, error / bound)
    return error.max(axis=(0, 1, 2)), np.where(np.isnan(ratio), np.inf, ratio).max(axis=(0, 1, 2))
