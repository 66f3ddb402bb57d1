"""
The loop that Numba compiles: rows of pairs in the memory of a CPU, bundle by addresses, rotated by rows of a table.

It is compiled once for each dtype and pairing, and kept on disk. A layout tells where the rows are: see `_layout`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit, types

from rope_any._arrays import _intrinsics, _layout
from rope_any._arrays._intrinsics import (
    BFLOAT16,
    FLOAT16,
    compile_loop,
    copy_past_caches,
    fence,
    int64_at,
    reader,
    stack_memory,
    writer,
)
from rope_any._formula import rotate_component

# Each value that differs from call to call is a positional argument: Numba's entry points take no others.
# ruff: noqa: PLR0917

# A rotated row is first written to scratch memory: so x may be `out`, and LLVM knows that loads and stores don't alias.
_read_input, _write_scratch = reader("inputs", "scratch"), writer("scratch", "inputs")
_read_scratch, _write_out = reader("scratch, full", "out"), writer("out", "scratch, full")
_formula = njit(rotate_component, inline="always")


@njit(forceinline=True)
def _rotate_row(
    number: Any,
    direction: Any,
    x: int,
    out: int,
    cos: int,
    sin: int,
    memory: int,
    pairs: int,
    pair_stride: int,
    gap: int,
) -> None:
    """Rotate pairs of one row, at the addresses of its first number and of the first numbers of the table."""
    for i in range(pairs):
        a, b = _read_input(number, x, pair_stride * i), _read_input(number, x, pair_stride * i + gap)
        c, s = _read_input(direction, cos, i), direction * _read_input(direction, sin, i)
        first, second = (i, pairs + i) if pair_stride == 1 else (2 * i, 2 * i + 1)
        _write_scratch(direction, memory, first, _formula(a, b, c, s))
        _write_scratch(direction, memory, second, _formula(b, a, c, -s))
    for part in range(2 // pair_stride):
        for i in range(pair_stride * pairs):
            _write_out(number, out, part * gap + i, _read_scratch(direction, memory, part * pairs + i))


@njit(forceinline=True)
def _offset_and_strides(job: int, index: int) -> tuple[int, int, int, int]:
    """Return the offset of the first row of an array in a job, and the strides of the three axes."""
    return int64_at(job, index), int64_at(job, index + 1), int64_at(job, index + 2), int64_at(job, index + 3)


@njit(forceinline=True)
def _rotate_units(
    number: Any, direction: Any, layout: int, addresses: Any, begin: int, end: int, pairs: int, pair_stride: int
) -> None:
    """Rotate units of a layout, each a tile of the inner axis, whose rows of the table stay in the cache."""
    memory, ready, gap = stack_memory(), stack_memory(), pairs if pair_stride == 1 else 1
    ready += -ready % 32
    size, table_size = int64_at(layout, _layout.ITEM_SIZE), int64_at(layout, _layout.TABLE_ITEM_SIZE)
    for n in range(int64_at(layout, _layout.JOB_COUNT)):
        job = layout + 8 * (_layout.HEADER_LENGTH + n * _layout.JOB_LENGTH)
        before, which = int64_at(job, _layout.FIRST_UNIT), int64_at(job, _layout.ARRAY)
        middle, inner, tile = int64_at(job, _layout.MIDDLE), int64_at(job, _layout.INNER), int64_at(job, _layout.TILE)
        x, x0, x1, x2 = _offset_and_strides(job, _layout.X)
        out, o0, o1, o2 = _offset_and_strides(job, _layout.OUT)
        cos, c0, c1, c2 = _offset_and_strides(job, _layout.COS)
        sin, s0, s1, s2 = _offset_and_strides(job, _layout.SIN)
        x, out, cos, sin = x + addresses[which], out + addresses[2 + which], cos + addresses[4], sin + addresses[5]
        past_caches = int64_at(layout, _layout.PAST_CACHES) and (out | o0 | o1 | o2) % 32 == 0 and x != out
        tiles = -(-inner // tile)
        for unit in range(max(begin - before, 0), min(end - before, int64_at(job, _layout.UNIT_COUNT))):
            rest, j = divmod(unit, middle)
            i, t = divmod(rest, tiles)
            for k in range(t * tile, min((t + 1) * tile, inner)):
                of_x, of_out = x + i * x0 + j * x1 + k * x2, out + i * o0 + j * o1 + k * o2
                of_cos, of_sin = cos + i * c0 + j * c1 + k * c2, sin + i * s0 + j * s1 + k * s2
                if past_caches:
                    _rotate_row(number, direction, of_x, ready, of_cos, of_sin, memory, pairs, pair_stride, gap)
                    for byte in range(0, 2 * pairs * size, 32):
                        copy_past_caches(of_out + byte, ready + byte)
                    continue
                for p in range(0, pairs, _layout.MOST_PAIRS):
                    near, far, many = p * pair_stride * size, p * table_size, min(pairs - p, _layout.MOST_PAIRS)
                    row, row_out, row_cos, row_sin = of_x + near, of_out + near, of_cos + far, of_sin + far
                    _rotate_row(number, direction, row, row_out, row_cos, row_sin, memory, many, pair_stride, gap)


@njit(forceinline=True)
def _address(layout: int, bundle: int, i: int) -> int:
    """Return the address of the data of the i-th array of a bundle."""
    slot, data_offset = (
        int64_at(bundle + int64_at(layout, _layout.ITEMS_OFFSET), i),
        int64_at(layout, _layout.DATA_OFFSET),
    )
    address: int = int64_at(slot + data_offset, 0) if data_offset else slot
    return address


@njit(forceinline=True)
def _rotate(number: Any, direction: Any, layout: int, begin: int, end: int, bundle: int, pair_stride: int) -> int:
    """Rotate units of a layout, unless an array is not aligned; return whether."""
    q, k = _address(layout, bundle, 0), _address(layout, bundle, 1)
    q_out, k_out = _address(layout, bundle, 2), _address(layout, bundle, 3)
    cos, sin = _address(layout, bundle, 4), _address(layout, bundle, 5)
    if (q | k | q_out | k_out) % int64_at(layout, _layout.ITEM_SIZE):
        return 0
    if (cos | sin) % int64_at(layout, _layout.TABLE_ITEM_SIZE):
        return 0
    addresses, pairs = (q, k, q_out, k_out, cos, sin), int64_at(layout, _layout.PAIRS)
    # The usual numbers of pairs are constants, of which LLVM makes better loops; more would take longer to compile.
    if pairs == 64:
        _rotate_units(number, direction, layout, addresses, begin, end, 64, pair_stride)
    elif pair_stride == 1 and pairs == 32:
        _rotate_units(number, direction, layout, addresses, begin, end, 32, pair_stride)
    else:
        _rotate_units(number, direction, layout, addresses, begin, end, pairs, pair_stride)
    if int64_at(layout, _layout.PAST_CACHES):
        fence()
    return 1


def _rotate_half(number: Any, direction: Any, layout: int, begin: int, end: int, bundle: int) -> int:
    """Rotate pairs (i, i + pairs)."""
    return _rotate(number, direction, layout, begin, end, bundle, 1)


def _rotate_interleaved(number: Any, direction: Any, layout: int, begin: int, end: int, bundle: int) -> int:
    """Rotate pairs (2i, 2i + 1)."""
    return _rotate(number, direction, layout, begin, end, bundle, 2)


_KINDS = {"float16": FLOAT16, "bfloat16": BFLOAT16, "float32": types.float32, "float64": types.float64}
_LOOPS = {"half": _rotate_half, "interleaved": _rotate_interleaved}


@cache
def rotation_loop(dtype: str, pairing: str) -> Callable[..., int]:
    """
    Return the loop over rows for a dtype and a pairing, compiled or from the disk.

    It takes a zero of the type that stands for the dtype; the direction, 1.0 or -1.0; the address of a layout; the
    range of units to rotate, first and end; and the address of a bundle of six arrays: q, k, their results, cos, sin
    (one array alone comes twice). It returns whether all of them are aligned in memory; if not, it has done nothing.
    """
    number = _KINDS[dtype]
    real = types.float64 if number is types.float64 else types.float32
    return compile_loop(
        _LOOPS[pairing], types.int64(number, real, *[types.int64] * 4), rotate_component, _intrinsics, _layout
    )
