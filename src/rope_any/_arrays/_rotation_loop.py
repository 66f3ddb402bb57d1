"""
The Numba loop that rotates the pairs of CPU arrays, given by their addresses, by the rows of a table.

It is compiled once for each dtype and pairing of x and pairing of results, and cached on disk. A layout gives the
places of the rows: see `_layout`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit, types

from rope_any._arrays import _intrinsics, _layout
from rope_any._arrays._intrinsics import BFLOAT16, FLOAT16, copy_past_caches, fence, reader, stack_memory, writer
from rope_any._formula import rotate_component

# Each value that differs from call to call is a positional argument: Numba's entry points take no others.
# ruff: noqa: PLR0917

# A rotated row is first written to scratch memory, so x may be `out` and LLVM knows that loads and stores don't alias.
_read_input, _write_scratch = reader("inputs", "scratch"), writer("scratch", "inputs")
_read_scratch, _write_out = reader("scratch, full", "out"), writer("out", "scratch, full")
_formula = njit(rotate_component, inline="always")


@njit(forceinline=True)
def _rotate_row(
    numbers: Any, direction: Any, x: int, out: int, cos: int, sin: int, scratch: int, pairs: int, places: Any
) -> None:
    """
    Rotate up to `MOST_PAIRS` pairs of one row; x, out, cos and sin are the addresses of their first numbers.

    `numbers` give the types of x and out; `direction` is 1 or -1, in the type of cos and sin. `places` are the elements
    of x from a pair to the next (1 in half pairing, else 2) and between the members of a pair; then those of out.
    """
    (number, out_number), (step, gap, out_step, out_gap) = numbers, places
    for i in range(pairs):
        a, b = _read_input(number, x, step * i), _read_input(number, x, step * i + gap)
        c, s = _read_input(direction, cos, i), direction * _read_input(direction, sin, i)
        first, second = (i, pairs + i) if out_step == 1 else (2 * i, 2 * i + 1)
        _write_scratch(direction, scratch, first, _formula(a, b, c, s))
        _write_scratch(direction, scratch, second, _formula(b, a, c, -s))
    for part in range(2 // out_step):
        for i in range(out_step * pairs):
            _write_out(out_number, out, part * out_gap + i, _read_scratch(direction, scratch, part * pairs + i))


@njit(forceinline=True)
def _int64_at(address: int, index: int) -> int:
    """Return the int64 at ``address[index]``."""
    integer: int = _read_input(np.int64(0), address, index)
    return integer


@njit(forceinline=True)
def _copy_rest(numbers: Any, layout: int, x: int, out: int, pairs: int, to_slots: Any) -> None:
    """Write the features of a row that pass through, if it goes to a slot; x and out are those of the first pair."""
    if to_slots:
        number, out_number = numbers
        for i in range(-_int64_at(layout, _layout.BEFORE), 0):
            _write_out(out_number, out, i, _read_input(number, x, i))
        for i in range(2 * pairs, 2 * pairs + _int64_at(layout, _layout.AFTER)):
            _write_out(out_number, out, i, _read_input(number, x, i))


@njit(forceinline=True)
def _read_axis(axis: int) -> tuple[int, int, int, int, int]:
    """Return the length of a layout's axis at an address, and the strides of x, its result, cos, sin in bytes."""
    length, x, out = _int64_at(axis, _layout.LENGTH), _int64_at(axis, _layout.X), _int64_at(axis, _layout.OUT)
    return length, x, out, _int64_at(axis, _layout.COS), _int64_at(axis, _layout.SIN)


@njit(forceinline=True)
def _offset_of(layout: int, slot: int) -> int:
    """Return the bytes from the beginning of a cache to one of its slots."""
    block, place = divmod(slot, _int64_at(layout, _layout.BLOCK))
    return block * _int64_at(layout, _layout.BLOCK_STEP) + place * _int64_at(layout, _layout.SLOT_STEP)


@njit(forceinline=True)
def _rotate_units(
    numbers: Any, direction: Any, layout: int, addresses: Any, begin: int, end: int, pairs: int, kind: Any
) -> None:
    """
    Rotate units (tiles of rows) `begin` to ``end - 1`` of a layout; `addresses`: of q, k, results, cos and sin.

    `kind` has the steps from a pair to the next in x and in the result, and whether results go to slots: then the
    address of k is that of the slots, one for each index along the second axis.
    """
    scratch, rotated, (step, out_step, to_slots) = stack_memory(), stack_memory(), kind
    places = step, pairs if step == 1 else 1, out_step, pairs if out_step == 1 else 1
    rotated += -rotated % 32
    size, out_size = _int64_at(layout, _layout.ITEM_SIZE), _int64_at(layout, _layout.OUT_ITEM_SIZE)
    table_size = _int64_at(layout, _layout.TABLE_ITEM_SIZE)
    job = layout + 8 * _layout.JOBS
    for which in range(_int64_at(layout, _layout.JOB_COUNT)):
        units, tile = _int64_at(job, _layout.UNIT_COUNT), _int64_at(job, _layout.TILE)
        axis, axis_count = job + 8 * _layout.AXES, _int64_at(job, _layout.AXIS_COUNT)
        rows, x_row, out_row, cos_row, sin_row = _read_axis(axis)
        middle, x_middle, out_middle, cos_middle, sin_middle = _read_axis(axis + 8 * _layout.AXIS_LENGTH)
        tiles, first_out = -(-rows // tile), addresses[2 + which]
        past_caches = _int64_at(layout, _layout.PAST_CACHES) and _int64_at(job, _layout.ALIGNED) and first_out % 32 == 0
        past_caches = past_caches and addresses[which] != first_out
        for unit in range(max(begin, 0), min(end, units)):
            rest, j = divmod(unit, middle)
            rest, t = divmod(rest, tiles)
            x, out = addresses[which] + j * x_middle, first_out + j * out_middle
            cos, sin = addresses[4] + j * cos_middle, addresses[5] + j * sin_middle
            slot = _int64_at(addresses[1], j) if to_slots else 0
            if slot < 0:
                continue
            if to_slots:
                out += _offset_of(layout, slot)
            for n in range(2, axis_count):
                length, x_by, out_by, cos_by, sin_by = _read_axis(axis + 8 * n * _layout.AXIS_LENGTH)
                rest, i = divmod(rest, length)
                x, out, cos, sin = x + i * x_by, out + i * out_by, cos + i * cos_by, sin + i * sin_by
            for k in range(t * tile, min((t + 1) * tile, rows)):
                of_x, of_out, of_cos, of_sin = x + k * x_row, out + k * out_row, cos + k * cos_row, sin + k * sin_row
                if past_caches:
                    _rotate_row(numbers, direction, of_x, rotated, of_cos, of_sin, scratch, pairs, places)
                    for byte in range(0, 2 * pairs * out_size, 32):
                        copy_past_caches(of_out + byte, rotated + byte)
                    continue
                for p in range(0, pairs, _layout.MOST_PAIRS):
                    row, row_out = of_x + p * step * size, of_out + p * out_step * out_size
                    part_of_table = p * table_size
                    row_cos, row_sin = of_cos + part_of_table, of_sin + part_of_table
                    pair_count = min(pairs - p, _layout.MOST_PAIRS)
                    _rotate_row(numbers, direction, row, row_out, row_cos, row_sin, scratch, pair_count, places)
                _copy_rest(numbers, layout, of_x, of_out, pairs, to_slots)
        job, begin, end = axis + 8 * axis_count * _layout.AXIS_LENGTH, begin - units, end - units


@njit(forceinline=True)
def _address(layout: int, packed: int, i: int) -> int:
    """Return the data address of array i of the tuple or bytes at `packed`, by offsets in the layout at `layout`."""
    slot = _int64_at(packed + _int64_at(layout, _layout.ITEMS_OFFSET), i)
    data_offset = _int64_at(layout, _layout.DATA_OFFSET)
    address: int = _int64_at(slot + data_offset, 0) if data_offset else slot
    return address


@njit(forceinline=True)
def _rotate(numbers: Any, direction: Any, layout: int, begin: int, end: int, packed: int, kind: Any) -> int:
    """Rotate units of a layout, and return 1; if an array is unaligned or a slot is past the end, only return 0."""
    step, out_step, to_slots = kind
    q, k = _address(layout, packed, 0), _address(layout, packed, 1)
    q_out, k_out = _address(layout, packed, 2), _address(layout, packed, 3)
    cos, sin = _address(layout, packed, 4), _address(layout, packed, 5)
    size, out_size = _int64_at(layout, _layout.ITEM_SIZE), _int64_at(layout, _layout.OUT_ITEM_SIZE)
    if (q | k) % size or (q_out | k_out) % out_size or (cos | sin) % _int64_at(layout, _layout.TABLE_ITEM_SIZE):
        return 0
    if to_slots:
        second_axis = layout + 8 * (_layout.JOBS + _layout.AXES + _layout.AXIS_LENGTH)
        for j in range(_int64_at(second_axis, _layout.LENGTH)):
            if _int64_at(k, j) >= _int64_at(layout, _layout.SLOT_COUNT):
                return 0
    addresses, pairs = (q, k, q_out, k_out, cos, sin), _int64_at(layout, _layout.PAIRS)
    # LLVM makes better loops for constant numbers of pairs; each more takes longer to compile.
    if pairs == 64:
        _rotate_units(numbers, direction, layout, addresses, begin, end, 64, kind)
    elif step == out_step == 1 and pairs == 32:
        _rotate_units(numbers, direction, layout, addresses, begin, end, 32, kind)
    else:
        _rotate_units(numbers, direction, layout, addresses, begin, end, pairs, kind)
    if _int64_at(layout, _layout.PAST_CACHES):
        fence()
    return 1


@cache
def _loop(step: int, out_step: int, to_slots: bool) -> Callable[..., int]:  # noqa: FBT001  # as in the layout
    """Return the function to compile for pairings of x and its result, given by the steps from a pair to the next."""
    kind = step, out_step, to_slots

    def rotate(number: Any, out: Any, direction: Any, layout: int, begin: int, end: int, packed: int) -> int:
        """Rotate units `begin` to ``end - 1`` of the arrays at `packed`."""
        return _rotate((number, out), direction, layout, begin, end, packed, kind)

    return rotate


_NUMBA_TYPES = {"float16": FLOAT16, "bfloat16": BFLOAT16, "float32": types.float32, "float64": types.float64}
_STEPS = {"half": 1, "interleaved": 2}


def rotation_loop(dtypes: tuple[str, str], orders: tuple[str, str], *, to_slots: bool) -> Callable[..., int]:
    """
    Return the loop from one dtype and pairing to another or the same of the result, compiled or from the disk cache.

    It takes zeros of the Numba types of the dtypes (ints for 16-bit floats); the direction, 1.0 or -1.0; the address
    of a layout; the first unit (a tile of rows) and the one after the last; and the address of an object that packs q,
    k, their results, cos and sin. It returns 1, or 0 if an array is not aligned in memory; then it has written nothing.
    With `to_slots`, slots are in the place of k, and one that is past the end gives 0 too.
    """
    number, out_number = (_NUMBA_TYPES[dtype] for dtype in dtypes)
    real = types.float64 if number is types.float64 else types.float32
    signature = types.int64(number, out_number, real, *[types.int64] * 4)
    function = _loop(*(_STEPS[pairing] for pairing in orders), to_slots)
    return _intrinsics.compile_loop(function, signature, rotate_component, _intrinsics, _layout)
