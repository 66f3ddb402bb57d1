"""
The Numba loop that rotates the pairs of CPU arrays, given by their addresses, by the rows of a table.

It is compiled once for each dtype and pairing of x and pairing of results, and cached on disk. A layout gives the
places of the rows: see `_layout`.
"""

from collections.abc import Callable
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
    number: Any, direction: Any, x: int, out: int, cos: int, sin: int, scratch: int, pairs: int, places: Any
) -> None:
    """
    Rotate up to `MOST_PAIRS` pairs of one row; x, out, cos and sin are the addresses of their first numbers.

    `number` gives the type of x alone; `direction` is 1 or -1, in the type of cos and sin. `places` are the elements
    of x from a pair to the next (1 in half pairing, else 2) and between the members of a pair; then those of out.
    """
    step, gap, out_step, out_gap = places
    for i in range(pairs):
        a, b = _read_input(number, x, step * i), _read_input(number, x, step * i + gap)
        c, s = _read_input(direction, cos, i), direction * _read_input(direction, sin, i)
        first, second = (i, pairs + i) if out_step == 1 else (2 * i, 2 * i + 1)
        _write_scratch(direction, scratch, first, _formula(a, b, c, s))
        _write_scratch(direction, scratch, second, _formula(b, a, c, -s))
    for part in range(2 // out_step):
        for i in range(out_step * pairs):
            _write_out(number, out, part * out_gap + i, _read_scratch(direction, scratch, part * pairs + i))


@njit(forceinline=True)
def _int64_at(address: int, index: int) -> int:
    """Return the int64 at ``address[index]``."""
    integer: int = _read_input(np.int64(0), address, index)
    return integer


@njit(forceinline=True)
def _read_axis(axis: int) -> tuple[int, int, int, int, int]:
    """Return the length of a layout's axis at an address, and the strides of x, its result, cos, sin in bytes."""
    length, x, out = _int64_at(axis, _layout.LENGTH), _int64_at(axis, _layout.X), _int64_at(axis, _layout.OUT)
    return length, x, out, _int64_at(axis, _layout.COS), _int64_at(axis, _layout.SIN)


@njit(forceinline=True)
def _rotate_units(
    number: Any, direction: Any, layout: int, addresses: Any, begin: int, end: int, pairs: int, steps: Any
) -> None:
    """Rotate units (tiles of rows) `begin` to ``end - 1`` of a layout; `addresses`: of q, k, results, cos and sin."""
    scratch, rotated, (step, out_step) = stack_memory(), stack_memory(), steps
    places = step, pairs if step == 1 else 1, out_step, pairs if out_step == 1 else 1
    rotated += -rotated % 32
    size, table_size = _int64_at(layout, _layout.ITEM_SIZE), _int64_at(layout, _layout.TABLE_ITEM_SIZE)
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
            for n in range(2, axis_count):
                length, x_step, out_step, cos_step, sin_step = _read_axis(axis + 8 * n * _layout.AXIS_LENGTH)
                rest, i = divmod(rest, length)
                x, out, cos, sin = x + i * x_step, out + i * out_step, cos + i * cos_step, sin + i * sin_step
            for k in range(t * tile, min((t + 1) * tile, rows)):
                of_x, of_out, of_cos, of_sin = x + k * x_row, out + k * out_row, cos + k * cos_row, sin + k * sin_row
                if past_caches:
                    _rotate_row(number, direction, of_x, rotated, of_cos, of_sin, scratch, pairs, places)
                    for byte in range(0, 2 * pairs * size, 32):
                        copy_past_caches(of_out + byte, rotated + byte)
                    continue
                for p in range(0, pairs, _layout.MOST_PAIRS):
                    part_of_table = p * table_size
                    row, row_out = of_x + p * step * size, of_out + p * out_step * size
                    row_cos, row_sin = of_cos + part_of_table, of_sin + part_of_table
                    pair_count = min(pairs - p, _layout.MOST_PAIRS)
                    _rotate_row(number, direction, row, row_out, row_cos, row_sin, scratch, pair_count, places)
        job, begin, end = axis + 8 * axis_count * _layout.AXIS_LENGTH, begin - units, end - units


@njit(forceinline=True)
def _address(layout: int, packed: int, i: int) -> int:
    """Return the data address of array i of the tuple or bytes at `packed`, by offsets in the layout at `layout`."""
    slot = _int64_at(packed + _int64_at(layout, _layout.ITEMS_OFFSET), i)
    data_offset = _int64_at(layout, _layout.DATA_OFFSET)
    address: int = _int64_at(slot + data_offset, 0) if data_offset else slot
    return address


@njit(forceinline=True)
def _rotate(number: Any, direction: Any, layout: int, begin: int, end: int, packed: int, steps: Any) -> int:
    """Rotate units `begin` to ``end - 1`` of a layout, and return 1; if an array is unaligned, only return 0."""
    q, k = _address(layout, packed, 0), _address(layout, packed, 1)
    q_out, k_out = _address(layout, packed, 2), _address(layout, packed, 3)
    cos, sin = _address(layout, packed, 4), _address(layout, packed, 5)
    size, table_size = _int64_at(layout, _layout.ITEM_SIZE), _int64_at(layout, _layout.TABLE_ITEM_SIZE)
    if (q | k | q_out | k_out) % size or (cos | sin) % table_size:
        return 0
    addresses, pairs = (q, k, q_out, k_out, cos, sin), _int64_at(layout, _layout.PAIRS)
    # LLVM makes better loops for constant numbers of pairs; each more takes longer to compile.
    if pairs == 64:
        _rotate_units(number, direction, layout, addresses, begin, end, 64, steps)
    elif steps == (1, 1) and pairs == 32:
        _rotate_units(number, direction, layout, addresses, begin, end, 32, steps)
    else:
        _rotate_units(number, direction, layout, addresses, begin, end, pairs, steps)
    if _int64_at(layout, _layout.PAST_CACHES):
        fence()
    return 1


def _rotate_half(number: Any, direction: Any, layout: int, begin: int, end: int, packed: int) -> int:
    """Rotate units `begin` to ``end - 1`` of the arrays at `packed`, pairs (i, i + pairs); 0 if unaligned, else 1."""
    return _rotate(number, direction, layout, begin, end, packed, (1, 1))


def _rotate_interleaved(number: Any, direction: Any, layout: int, begin: int, end: int, packed: int) -> int:
    """Rotate units `begin` to ``end - 1`` of the arrays at `packed`, pairs (2i, 2i + 1); 0 if unaligned, else 1."""
    return _rotate(number, direction, layout, begin, end, packed, (2, 2))


def _rotate_to_half(number: Any, direction: Any, layout: int, begin: int, end: int, packed: int) -> int:
    """Rotate such units of pairs (2i, 2i + 1) into results of pairs (i, i + pairs)."""
    return _rotate(number, direction, layout, begin, end, packed, (2, 1))


def _rotate_to_interleaved(number: Any, direction: Any, layout: int, begin: int, end: int, packed: int) -> int:
    """Rotate such units of pairs (i, i + pairs) into results of pairs (2i, 2i + 1)."""
    return _rotate(number, direction, layout, begin, end, packed, (1, 2))


_NUMBA_TYPES = {"float16": FLOAT16, "bfloat16": BFLOAT16, "float32": types.float32, "float64": types.float64}
_LOOPS = {("half", "half"): _rotate_half, ("interleaved", "interleaved"): _rotate_interleaved}
_LOOPS |= {("interleaved", "half"): _rotate_to_half, ("half", "interleaved"): _rotate_to_interleaved}


def rotation_loop(dtype: str, orders: tuple[str, str]) -> Callable[..., int]:
    """
    Return the loop that rotates arrays of a dtype from one pairing to another or the same; compiled, or from the disk.

    It takes a zero of the Numba type of the dtype (an int for 16-bit floats); the direction, 1.0 or -1.0; the address
    of a layout; the first unit (a tile of rows) and the one after the last; and the address of an object that packs q,
    k, their results, cos and sin. It returns 1, or 0 if an array is not aligned in memory; then it has written nothing.
    """
    number = _NUMBA_TYPES[dtype]
    real = types.float64 if number is types.float64 else types.float32
    return _intrinsics.compile_loop(
        _LOOPS[orders], types.int64(number, real, *[types.int64] * 4), rotate_component, _intrinsics, _layout
    )
