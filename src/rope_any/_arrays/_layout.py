"""
Layouts: where the rows of arrays are in memory, as a compiled loop reads it.

A layout is 64-bit integers: a header, and after it the jobs. A job rotates the rows of one array along three axes. It
is a number of units, each some rows of the inner axis: what one thread takes at a time.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple


class BatchAxes(NamedTuple):
    """The batch axes of an array, of what it is written into and of its table: their lengths, and steps in bytes."""

    shape: tuple[int, ...]
    x: tuple[int, ...]
    out: tuple[int, ...]
    cos: tuple[int, ...]
    sin: tuple[int, ...]


# The names are places in the header and in a job. All sizes, offsets and steps are in bytes.
ITEMS, AFTER, SIZE, TABLE_SIZE, PAIRS, STREAMS, COUNT = range(7)
HEADER = 7
BEFORE, UNITS, MIDDLE, INNER, TILE, WHICH = range(6)
X, OUT, COS, SIN = 6, 10, 14, 18  # an offset, and the steps along the three axes
JOB = 22

MOST_PAIRS = 256  # of a row that a loop makes at a time, in scratch memory
_TABLE_BYTES = 2**18  # of a table that stay in a cache of one core while they rotate head after head
_MOST_ROWS = 512  # of a unit, so that threads have enough of them to share


def pack(
    each: Sequence[BatchAxes], pairs: int, first: int, sizes: tuple[int, int], given: tuple[int, int], *, streams: bool
) -> tuple["array[int]", int]:
    """
    Return the layout of one or two arrays, and how many units it has.

    `first` is how far into a row of x the first rotated feature is, `sizes` are those of a number of x and of the
    table. `given` says where an object that holds the arrays has their addresses: how far after its own
    address its items are, and how far after the address of an item that of its numbers is (0 if items are addresses of
    numbers). `streams` is whether to write past the caches.
    """
    jobs, total = [], 0
    for which, axes in enumerate(each):
        for units, middle, inner, tile, (x, *x_steps), (out, *out_steps), *table in _jobs(axes, pairs, sizes[1]):
            jobs += [total, units, middle, inner, tile, which, x + first, *x_steps, out + first, *out_steps]
            jobs += [number for part in table for number in part]
            total += units
    return array("q", [*given, *sizes, pairs, streams, len(jobs) // JOB, *jobs]), total


def _jobs(axes: BatchAxes, pairs: int, size: int) -> Iterator[tuple[Any, ...]]:
    """
    Yield the jobs for one array: units, lengths of the middle and the inner axis, rows of a unit; x, out, cos, sin.

    There are three axes in a job; of more batch axes, each index of the outer ones has a job. `size` is that of a
    number of the table.
    """
    if 0 in axes.shape:
        return
    # The axes in the order of x in memory, without those of length 1; neighbours that x, out, cos and sin could all
    # have as one axis are joined.
    ordered = sorted((axis for axis in zip(*axes, strict=True) if axis[0] != 1), key=lambda axis: -abs(axis[1]))
    joined: list[tuple[int, ...]] = []
    for n, *steps in ordered:
        if joined and all(before == n * step for before, step in zip(joined[-1][1:], steps, strict=True)):
            joined[-1] = (joined[-1][0] * n, *steps)
        else:
            joined.append((n, *steps))
    first, second, last = ([(1, 0, 0, 0, 0)] * 3 + joined)[-3:]
    fitting = max(_TABLE_BYTES // (2 * pairs * size), 1) if last[3] or last[4] else _MOST_ROWS
    tile = min(last[0], _MOST_ROWS, fitting)
    units, outer = first[0] * second[0] * -(-last[0] // tile), joined[:-3]
    for index in product(*(range(axis[0]) for axis in outer)):
        offsets = (sum(i * axis[part] for i, axis in zip(index, outer, strict=True)) for part in range(1, 5))
        yield units, second[0], last[0], tile, *zip(offsets, first[1:], second[1:], last[1:], strict=True)
