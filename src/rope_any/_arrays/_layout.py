"""
Layouts: where the rows of arrays are in memory, as a compiled loop reads it.

A layout is 64-bit integers: a header, and after it the jobs. A job rotates the rows of one array, which lie along three
axes: an outer, a middle and an inner one. Its work is divided into units: up to `TILE` rows of the inner axis, which
one thread rotates at a time.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple


class BatchAxes(NamedTuple):
    """The batch axes of an array, of what it is written into and of its table: their lengths, and strides in bytes."""

    shape: tuple[int, ...]
    x: tuple[int, ...]
    out: tuple[int, ...]
    cos: tuple[int, ...]
    sin: tuple[int, ...]


# Indices into the header, and into a job. All sizes, offsets and strides are in bytes.
ITEMS_OFFSET, DATA_OFFSET, ITEM_SIZE, TABLE_ITEM_SIZE, PAIRS, PAST_CACHES, JOB_COUNT = range(7)
HEADER_LENGTH = 7
FIRST_UNIT, UNIT_COUNT, MIDDLE, INNER, TILE, ARRAY = range(6)
X, OUT, COS, SIN = 6, 10, 14, 18  # each: the offset of the first row, and the strides of the three axes
JOB_LENGTH = 22

MOST_PAIRS = 256  # of a row that a loop makes at a time, in scratch memory
_TABLE_BYTES = 2**18  # of a table that stay in a cache of one core while they rotate head after head
_MOST_ROWS = 512  # of a unit, so that threads have enough of them to share


def encode(
    each: Sequence[BatchAxes],
    pairs: int,
    *,
    feature_offset: int,
    item_sizes: tuple[int, int],
    bundle_offsets: tuple[int, int],
    past_caches: bool,
) -> tuple["array[int]", int]:
    """
    Return the layout of one or two arrays, and how many units it has. The loop gets the address of the layout.

    Parameters
    ----------
    each : sequence of BatchAxes
        Of each array that is rotated.
    pairs : int
        How many pairs of each row are rotated.
    feature_offset : int
        Bytes from the start of a row of x to its first rotated feature.
    item_sizes : tuple of int
        Bytes of an element of x, and of the table.
    bundle_offsets : tuple of int
        The arrays of a call come as one Python object, their bundle. Bytes from the address of that object to its first
        slot; and, if slots hold the addresses of array objects, bytes from there to the address of the data. 0 if slots
        hold addresses of data.
    past_caches : bool
        Whether results are written past the caches.
    """
    jobs, total = [], 0
    for which, axes in enumerate(each):
        for units, middle, inner, tile, (x, *x_strides), (out, *out_strides), *table in _jobs(
            axes, pairs, item_sizes[1]
        ):
            jobs += [total, units, middle, inner, tile, which]
            jobs += [x + feature_offset, *x_strides, out + feature_offset, *out_strides]
            jobs += [number for part in table for number in part]
            total += units
    return array("q", [*bundle_offsets, *item_sizes, pairs, past_caches, len(jobs) // JOB_LENGTH, *jobs]), total


def _jobs(axes: BatchAxes, pairs: int, size: int) -> Iterator[tuple[Any, ...]]:
    """
    Yield the jobs for one array, with batch axes sorted by stride, and merged if they are contiguous.

    Each is how many units it has, the lengths of its middle and its inner axis, the rows of a unit; and for x, out, cos
    and sin the offset of the first row, and three strides. If more than three axes are left, each index of the outer
    ones has a job of its own. `size` is that of an element of the table, in bytes.
    """
    if 0 in axes.shape:
        return
    # Without axes of length 1. Two axes are merged if they are contiguous in x, out, cos and sin.
    ordered = sorted((axis for axis in zip(*axes, strict=True) if axis[0] != 1), key=lambda axis: -abs(axis[1]))
    merged: list[tuple[int, ...]] = []
    for n, *strides in ordered:
        if merged and all(before == n * stride for before, stride in zip(merged[-1][1:], strides, strict=True)):
            merged[-1] = (merged[-1][0] * n, *strides)
        else:
            merged.append((n, *strides))
    first, second, last = ([(1, 0, 0, 0, 0)] * 3 + merged)[-3:]
    fitting = max(_TABLE_BYTES // (2 * pairs * size), 1) if last[3] or last[4] else _MOST_ROWS
    tile = min(last[0], _MOST_ROWS, fitting)
    units, outer = first[0] * second[0] * -(-last[0] // tile), merged[:-3]
    for index in product(*(range(axis[0]) for axis in outer)):
        offsets = (sum(i * axis[part] for i, axis in zip(index, outer, strict=True)) for part in range(1, 5))
        yield units, second[0], last[0], tile, *zip(offsets, first[1:], second[1:], last[1:], strict=True)
