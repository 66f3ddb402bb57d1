"""
The loop that Numba compiles: rows of pairs in the memory of a CPU, given by addresses, rotated by rows of a table.

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
    scratch,
    writer,
)
from rope_any._arrays._layout import (
    AFTER,
    BEFORE,
    COS,
    COUNT,
    HEADER,
    INNER,
    ITEMS,
    JOB,
    MIDDLE,
    MOST_PAIRS,
    OUT,
    PAIRS,
    SIN,
    SIZE,
    STREAMS,
    TABLE_SIZE,
    TILE,
    UNITS,
    WHICH,
    X,
)
from rope_any._formula import rotate_component

# In what Numba compiles all that differs from call to call is an argument of its own, and has its place.
# ruff: noqa: PLR0917

# A row goes through scratch memory: so x may be `out`, and LLVM knows that no number written is read again.
_read_given, _write_scratch = reader("given", "scratch"), writer("scratch", "given")
_read_scratch, _write_out = reader("scratch, full", "out"), writer("out", "scratch, full")
_formula = njit(rotate_component, inline="always")


@njit(forceinline=True)
def _rotate_row(
    kind: Any, direction: Any, x: int, out: int, cos: int, sin: int, memory: int, pairs: int, step: int, gap: int
) -> None:
    """Rotate pairs of one row, at the addresses of its first number and of the first numbers of the table."""
    for i in range(pairs):
        a, b = _read_given(kind, x, step * i), _read_given(kind, x, step * i + gap)
        c, s = _read_given(direction, cos, i), direction * _read_given(direction, sin, i)
        first, second = (i, pairs + i) if step == 1 else (2 * i, 2 * i + 1)
        _write_scratch(direction, memory, first, _formula(a, b, c, s))
        _write_scratch(direction, memory, second, _formula(b, a, c, -s))
    for part in range(2 // step):
        for i in range(step * pairs):
            _write_out(kind, out, part * gap + i, _read_scratch(direction, memory, part * pairs + i))


@njit(forceinline=True)
def _offset_and_steps(job: int, place: int) -> tuple[int, int, int, int]:
    """Return the offset of an array and its steps along the three axes of a job."""
    return int64_at(job, place), int64_at(job, place + 1), int64_at(job, place + 2), int64_at(job, place + 3)


@njit(forceinline=True)
def _rotate_units(
    kind: Any, direction: Any, layout: int, addresses: Any, begin: int, end: int, pairs: int, step: int
) -> None:
    """Rotate units of a layout, tile by tile of the inner axis: their rows of the table stay in the cache."""
    memory, ready, gap = scratch(), scratch(), pairs if step == 1 else 1
    ready += -ready % 32
    size, table_size = int64_at(layout, SIZE), int64_at(layout, TABLE_SIZE)
    for n in range(int64_at(layout, COUNT)):
        job = layout + 8 * (HEADER + n * JOB)
        before, which = int64_at(job, BEFORE), int64_at(job, WHICH)
        middle, inner, tile = int64_at(job, MIDDLE), int64_at(job, INNER), int64_at(job, TILE)
        x, x0, x1, x2 = _offset_and_steps(job, X)
        out, o0, o1, o2 = _offset_and_steps(job, OUT)
        cos, c0, c1, c2 = _offset_and_steps(job, COS)
        sin, s0, s1, s2 = _offset_and_steps(job, SIN)
        x, out, cos, sin = x + addresses[which], out + addresses[2 + which], cos + addresses[4], sin + addresses[5]
        streams = int64_at(layout, STREAMS) and (out | o0 | o1 | o2) % 32 == 0 and x != out
        tiles = -(-inner // tile)
        for unit in range(max(begin - before, 0), min(end - before, int64_at(job, UNITS))):
            rest, j = divmod(unit, middle)
            i, t = divmod(rest, tiles)
            for k in range(t * tile, min((t + 1) * tile, inner)):
                of_x, of_out = x + i * x0 + j * x1 + k * x2, out + i * o0 + j * o1 + k * o2
                of_cos, of_sin = cos + i * c0 + j * c1 + k * c2, sin + i * s0 + j * s1 + k * s2
                if streams:
                    _rotate_row(kind, direction, of_x, ready, of_cos, of_sin, memory, pairs, step, gap)
                    for byte in range(0, 2 * pairs * size, 32):
                        copy_past_caches(of_out + byte, ready + byte)
                    continue
                for p in range(0, pairs, MOST_PAIRS):
                    near, far, many = p * step * size, p * table_size, min(pairs - p, MOST_PAIRS)
                    _rotate_row(
                        kind, direction, of_x + near, of_out + near, of_cos + far, of_sin + far, memory, many, step, gap
                    )


@njit(forceinline=True)
def _address(layout: int, given: int, which: int) -> int:
    """Return the address of the first number of one of the arrays that are given."""
    item, after = int64_at(given + int64_at(layout, ITEMS), which), int64_at(layout, AFTER)
    address: int = int64_at(item + after, 0) if after else item
    return address


@njit(forceinline=True)
def _rotate(kind: Any, direction: Any, layout: int, begin: int, end: int, given: int, step: int) -> int:
    """Rotate units of a layout, unless a number is at an address that is no multiple of its size; return whether."""
    x, other_x = _address(layout, given, 0), _address(layout, given, 1)
    out, other_out = _address(layout, given, 2), _address(layout, given, 3)
    cos, sin = _address(layout, given, 4), _address(layout, given, 5)
    if (x | other_x | out | other_out) % int64_at(layout, SIZE) or (cos | sin) % int64_at(layout, TABLE_SIZE):
        return 0
    addresses, pairs = (x, other_x, out, other_out, cos, sin), int64_at(layout, PAIRS)
    # The usual numbers of pairs are constants, of which LLVM makes better loops; more would take longer to compile.
    if pairs == 64:
        _rotate_units(kind, direction, layout, addresses, begin, end, 64, step)
    elif step == 1 and pairs == 32:
        _rotate_units(kind, direction, layout, addresses, begin, end, 32, step)
    else:
        _rotate_units(kind, direction, layout, addresses, begin, end, pairs, step)
    if int64_at(layout, STREAMS):
        fence()
    return 1


def _rotate_half(kind: Any, direction: Any, layout: int, begin: int, end: int, given: int) -> int:
    """Rotate pairs (i, i + pairs)."""
    return _rotate(kind, direction, layout, begin, end, given, 1)


def _rotate_interleaved(kind: Any, direction: Any, layout: int, begin: int, end: int, given: int) -> int:
    """Rotate pairs (2i, 2i + 1)."""
    return _rotate(kind, direction, layout, begin, end, given, 2)


_KINDS = {"float16": FLOAT16, "bfloat16": BFLOAT16, "float32": types.float32, "float64": types.float64}
_LOOPS = {"half": _rotate_half, "interleaved": _rotate_interleaved}


@cache
def loop(dtype: str, pairing: str) -> Callable[..., int]:
    """
    Return the loop over rows for a dtype and a pairing, compiled or from the disk.

    It takes a zero of the type that stands for the dtype; the direction, 1.0 or -1.0; the address of a layout; the
    first of the units that are to be rotated, and the one after the last; and the address of an object that holds six
    arrays: x and another x, what they are written into, cos, sin. It returns whether all numbers are aligned; if not,
    it has done nothing.
    """
    kind = _KINDS[dtype]
    real = types.float64 if kind is types.float64 else types.float32
    return compile_loop(
        _LOOPS[pairing], types.int64(kind, real, *[types.int64] * 4), rotate_component, _intrinsics, _layout
    )
