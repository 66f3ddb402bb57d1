"""
Layouts: where the rows of arrays are in memory, as a compiled loop reads it.

A layout is 64-bit integers: a header, and after it one job for each array, which ends with the axes of its rows, the
innermost first. Its work is divided into units: up to `TILE` rows of the innermost axis, which one thread rotates at a
time. The next axis counts fastest from unit to unit, then the tiles, then the other axes.
"""

from array import array
from collections.abc import Sequence
from math import prod
from typing import NamedTuple


class BatchAxes(NamedTuple):
    """The batch axes of an array, of what it is written into and of its table: their lengths, and strides in bytes."""

    shape: tuple[int, ...]
    x: tuple[int, ...]
    out: tuple[int, ...]
    cos: tuple[int, ...]
    sin: tuple[int, ...]


# Indices into the header, into a job, and into an axis of it. All sizes, offsets and strides are in bytes.
ITEMS_OFFSET, DATA_OFFSET, ITEM_SIZE, TABLE_ITEM_SIZE, PAIRS, FEATURE_OFFSET, PAST_CACHES, JOB_COUNT, JOBS = range(9)
ARRAY, FIRST_UNIT, UNIT_COUNT, TILE, ALIGNED, AXIS_COUNT, AXES = range(7)
LENGTH, X, OUT, COS, SIN, AXIS_LENGTH = range(6)

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
    jobs, total = list[int](), 0
    for which, batch in enumerate(each):
        axes = _merged(batch)
        (rows, _, _, *table), (middle, *_), *outer = axes
        fitting = max(_TABLE_BYTES // (2 * pairs * item_sizes[1]), 1) if any(table) else _MOST_ROWS
        tile = max(min(rows, _MOST_ROWS, fitting), 1)
        units = middle * -(-rows // tile) * prod(axis[LENGTH] for axis in outer)
        aligned = all(axis[OUT] % 32 == 0 for axis in axes)
        jobs += [which, total, units, tile, aligned, len(axes), *(number for axis in axes for number in axis)]
        total += units
    header = [*bundle_offsets, *item_sizes, pairs, feature_offset, past_caches, len(each)]
    return array("q", [*header, *jobs]), total


def _merged(batch: BatchAxes) -> list[tuple[int, ...]]:
    """Return two or more axes, smallest stride of x first: axes that are contiguous in all arrays are one."""
    axes = sorted((axis for axis in zip(*batch, strict=True) if axis[0] != 1), key=lambda axis: abs(axis[X]))
    merged: list[tuple[int, ...]] = []
    for n, *strides in axes:
        if merged and all(stride == merged[-1][0] * last for stride, last in zip(strides, merged[-1][1:], strict=True)):
            merged[-1] = (merged[-1][0] * n, *merged[-1][1:])
        else:
            merged.append((n, *strides))
    return merged + [(1, 0, 0, 0, 0)] * (2 - len(merged))
