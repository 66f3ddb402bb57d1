"""
Encode the memory layout of arrays for a compiled loop.

A layout is an array of 64-bit integers: a header, then one job for each array. A job ends with the axes of its rows,
the innermost first. It is divided into units: up to `TILE` rows of the innermost axis, which one thread rotates at a
time. From unit to unit the next axis counts fastest, then the tiles, then the other axes.
"""

from array import array
from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple


class BatchAxes(NamedTuple):
    """Lengths of the batch axes of x, and the strides in bytes of x, its result, cos and sin along them."""

    shape: tuple[int, ...]
    x: tuple[int, ...]
    out: tuple[int, ...]
    cos: tuple[int, ...]
    sin: tuple[int, ...]


class Slots(NamedTuple):
    """The slots of a cache into which the rows of one array are written."""

    axes: tuple[int, ...]
    """The axes of x that have a slot for each element, as the array of slots has them; they must have one stride."""
    number: int
    block: int
    """How many slots are in a block."""
    block_step: int
    slot_step: int
    before: int
    """How many features of a row pass through before those that rotate."""
    after: int
    """How many do after them."""


# Indices into the header, into a job, and into an axis of it. All sizes, offsets and strides are in bytes.
ITEMS_OFFSET, DATA_OFFSET, ITEM_SIZE, OUT_ITEM_SIZE, TABLE_ITEM_SIZE, PAIRS, PAST_CACHES, JOB_COUNT = range(8)
SLOT_COUNT, BLOCK, BLOCK_STEP, SLOT_STEP, BEFORE, AFTER, JOBS = range(8, 15)
UNIT_COUNT, TILE, ALIGNED, AXIS_COUNT, AXES = range(5)
LENGTH, X, OUT, COS, SIN, AXIS_LENGTH = range(6)

MOST_PAIRS = 256  # pairs of a row in scratch memory at a time
_TABLE_BYTES = 2**18  # part of a table that stays in one core's cache while it rotates head after head
_MOST_ROWS = 512  # rows of a unit: small enough that threads have several units to share


def encode(
    batches: Sequence[BatchAxes],
    pairs: int,
    *,
    item_sizes: tuple[int, int, int],
    packed_offsets: tuple[int, int],
    past_caches: bool,
    slots: Slots | None = None,
) -> tuple["array[int]", int]:
    """
    Return the layout of one or two arrays, as 64-bit integers whose address a loop gets, and its number of units.

    Parameters
    ----------
    batches : sequence of BatchAxes
        One for each array that is rotated.
    pairs : int
        How many pairs of each row are rotated.
    item_sizes : tuple of int
        Bytes of an element of x, of its result, and of the table.
    packed_offsets : tuple of int
        One Python object holds the arrays of a call (`HostMemory.pack_addresses`). Bytes from its address to its first
        slot; and bytes from an array object to the address of its data, 0 if slots hold data addresses themselves.
    past_caches : bool
        Whether results are written by nontemporal stores, which bypass the caches.
    slots : Slots, optional
        Where the rows of the only array are written to: tokens are along the second axis, with a slot for each.
    """
    jobs, total = list[int](), 0
    for batch in batches:
        given: list[tuple[int, ...]] = [*zip(*batch, strict=True)]
        of_slots = slots.axes if slots else ()
        others = [axis for i, axis in enumerate(given) if i not in of_slots]
        axes = merge(sorted(others, key=lambda axis: abs(axis[X])))
        axes += [(1, 0, 0, 0, 0)] * (2 - len(axes))
        if slots:
            (tokens,) = merge([given[i] for i in reversed(of_slots)]) or [(1, 0, 0, 0, 0)]
            axes.insert(1, tokens)
        (rows, _, _, *table), (middle, *_), *outer = axes
        fitting = max(_TABLE_BYTES // (2 * pairs * item_sizes[2]), 1) if any(table) else _MOST_ROWS
        tile = max(min(rows, _MOST_ROWS, fitting), 1)
        units = middle * -(-rows // tile) * prod(axis[LENGTH] for axis in outer)
        aligned = all(axis[OUT] % 32 == 0 for axis in axes)
        jobs += [units, tile, aligned, len(axes), *(number for axis in axes for number in axis)]
        total += units
    header = [*packed_offsets, *item_sizes, pairs, past_caches, len(batches), *(slots or [0] * 7)[1:]]
    return array("q", [*header, *jobs]), total


def merge(axes: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return axes ``(length, *strides)``, inner ones first, without lengths of 1, and joined if they are contiguous."""
    merged: list[tuple[int, ...]] = []
    for length, *strides in axes:
        if merged and all(outer == merged[-1][0] * inner for outer, inner in zip(strides, merged[-1][1:], strict=True)):
            merged[-1] = (merged[-1][0] * length, *merged[-1][1:])
        elif length != 1:
            merged.append((length, *strides))
    return merged
