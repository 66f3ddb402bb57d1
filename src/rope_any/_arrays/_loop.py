"""
The loop that Numba compiles: rows of pairs in the memory of a CPU, given by addresses, rotated by rows of a table.

It is compiled once for each dtype and pairing, and kept on disk. Nothing here knows of arrays.
"""

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import njit, typeof, types
from numba.core import cgutils
from numba.extending import intrinsic

from rope_any._formula import rotate_component

# The type of the first argument of the loop, a zero, names the dtype of x.
KINDS: dict[str, Any] = {
    "float16": types.int16,
    "bfloat16": types.uint16,
    "float32": types.float32,
    "float64": types.float64,
}
_FLOAT, _DOUBLE, _HALF = ir.FloatType(), ir.DoubleType(), ir.HalfType()
_MEMORY: dict[Any, Any] = {
    types.int16: (_HALF, 2),
    types.uint16: (ir.IntType(16), 2),
    types.float32: (_FLOAT, 4),
    types.float64: (_DOUBLE, 8),
    types.int64: (ir.IntType(64), 8),
}


@cache
def has_half_precision() -> bool:
    """Return whether the processor converts float16; elsewhere LLVM would call functions that nothing provides."""
    return bool(llvm.get_host_cpu_features().get("f16c")) or "aarch64" in llvm.get_process_triple()


def _scope(builder: Any, name: str) -> Any:
    """Return the alias scopes that LLVM knows memory by: what is in one is not what is in another."""
    module = builder.module
    domain = module.add_metadata(["rope_any"])
    return module.add_metadata([module.add_metadata([f"rope_any {name}", domain])])


def _place(builder: Any, kind: Any, base: Any, index: Any) -> Any:
    return builder.gep(builder.inttoptr(base, _MEMORY[kind][0].as_pointer()), [index])


def _read(scope: str, apart: str) -> Any:
    """Return a function that reads a number of a kind, those of 16 bits as float32, from memory of a scope."""

    def read(_: Any, kind: Any, base: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            del context, signature
            number = builder.load(_place(builder, kind, *arguments[1:]), align=_MEMORY[kind][1])
            number.set_metadata("alias.scope", _scope(builder, scope))
            number.set_metadata("noalias", _scope(builder, apart))
            if kind is types.int16:
                return builder.fpext(number, _FLOAT)
            if kind is types.uint16:  # the upper half of a float32
                wide = builder.shl(builder.zext(number, ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
                return builder.bitcast(wide, _FLOAT)
            return number

        result = kind if kind in {types.float64, types.int64} else types.float32
        return result(kind, base, index), generate

    return intrinsic(read)


def _write(scope: str, apart: str) -> Any:
    """Return a function that writes a number as one of a kind, rounded to nearest even, into memory of a scope."""

    def write(_: Any, kind: Any, base: Any, index: Any, number: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            del signature
            *where, number = arguments[1:]
            if kind is types.int16:
                number = builder.fptrunc(number, _HALF)
            elif kind is types.uint16:
                number = _upper_half(builder, number)
            stored = builder.store(number, _place(builder, kind, *where), align=_MEMORY[kind][1])
            stored.set_metadata("alias.scope", _scope(builder, scope))
            stored.set_metadata("noalias", _scope(builder, apart))
            return context.get_dummy_value()

        return types.none(kind, base, index, number), generate

    return intrinsic(write)


def _upper_half(builder: Any, number: Any) -> Any:
    """Return the 16 bits of a bfloat16: bits + 0x7FFF + the last bit that stays, shifted; and one NaN for all."""
    word = ir.IntType(32)
    bits = builder.bitcast(number, word)
    upper = builder.lshr(bits, ir.Constant(word, 16))
    last = builder.and_(upper, ir.Constant(word, 1))
    rounded = builder.add(bits, builder.add(last, ir.Constant(word, 0x7FFF)))
    is_nan = builder.fcmp_unordered("uno", number, number)
    result = builder.select(is_nan, ir.Constant(word, 0x7FC0), builder.lshr(rounded, ir.Constant(word, 16)))
    return builder.trunc(result, ir.IntType(16))


_MOST_PAIRS = 256  # that are rotated at a time


_allocate: Any = cgutils.alloca_once  # typed in part, as are the functions below


def _own(_: Any) -> Any:
    """Return the address of memory for that many pairs, on the stack of the loop, which lives as long as it runs."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature, arguments
        memory = _allocate(builder, ir.ArrayType(_DOUBLE, 2 * _MOST_PAIRS))
        return builder.ptrtoint(memory, context.get_value_type(types.intp))

    return types.intp(), generate


_own_memory: Any = intrinsic(_own)

# A row goes through memory of the loop's own: so x may be `out`, and LLVM knows that no number written is read again.
_read_given, _write_own = _read("given", "own"), _write("own", "given")
_read_own, _write_out = _read("own, full", "out"), _write("out", "own, full")
_formula = njit(rotate_component, inline="always")
_MOST_PAIRS = 256  # that are rotated at a time


# In what Numba compiles all that differs from call to call is an argument of its own, and has its place.
# ruff: noqa: PLR0917


@njit(forceinline=True)
def _rotate_row(
    kind: Any, direction: Any, x: int, out: int, cos: int, sin: int, own: int, pairs: int, step: int, gap: int
) -> None:
    """Rotate pairs of one row, at the addresses of its first number and of the first numbers of the table."""
    for i in range(pairs):
        a, b = _read_given(kind, x, step * i), _read_given(kind, x, step * i + gap)
        c, s = _read_given(direction, cos, i), direction * _read_given(direction, sin, i)
        first, second = (i, pairs + i) if step == 1 else (2 * i, 2 * i + 1)
        _write_own(direction, own, first, _formula(a, b, c, s))
        _write_own(direction, own, second, _formula(b, a, c, -s))
    for part in range(2 // step):
        for i in range(step * pairs):
            _write_out(kind, out, part * gap + i, _read_own(direction, own, part * pairs + i))


@njit(forceinline=True)
def _rotate_rows(
    kind: Any,
    direction: Any,
    layout: Any,
    x: int,
    out: int,
    cos: int,
    sin: int,
    begin: int,
    end: int,
    pairs: int,
    step: int,
) -> None:
    """Rotate units of rows: tiles of the last axis, as long as their rows of the table stay in the cache."""
    (middle, inner, tile, size, wide), (x0, x1, x2), (o0, o1, o2), (c0, c1, c2), (s0, s1, s2) = layout
    tiles, gap = -(-inner // tile), pairs if step == 1 else 1
    own = _own_memory()
    for unit in range(begin, end):
        rest, j = divmod(unit, middle)
        i, t = divmod(rest, tiles)
        for k in range(t * tile, min((t + 1) * tile, inner)):
            from_x, to = x + i * x0 + j * x1 + k * x2, out + i * o0 + j * o1 + k * o2
            row_cos, row_sin = cos + i * c0 + j * c1 + k * c2, sin + i * s0 + j * s1 + k * s2
            for p in range(0, pairs, _MOST_PAIRS):
                near, far, many = p * step * size, p * wide, min(pairs - p, _MOST_PAIRS)
                _rotate_row(
                    kind, direction, from_x + near, to + near, row_cos + far, row_sin + far, own, many, step, gap
                )


# The usual numbers of pairs are constants, of which LLVM makes better loops; more of them would take longer to compile.
def _rotate_halves(
    kind: Any, direction: Any, layout: Any, x: int, out: int, cos: int, sin: int, begin: int, end: int, pairs: int
) -> None:
    if pairs == 64:
        _rotate_rows(kind, direction, layout, x, out, cos, sin, begin, end, 64, 1)
    elif pairs == 32:
        _rotate_rows(kind, direction, layout, x, out, cos, sin, begin, end, 32, 1)
    else:
        _rotate_rows(kind, direction, layout, x, out, cos, sin, begin, end, pairs, 1)


def _rotate_neighbours(
    kind: Any, direction: Any, layout: Any, x: int, out: int, cos: int, sin: int, begin: int, end: int, pairs: int
) -> None:
    if pairs == 64:
        _rotate_rows(kind, direction, layout, x, out, cos, sin, begin, end, 64, 2)
    else:
        _rotate_rows(kind, direction, layout, x, out, cos, sin, begin, end, pairs, 2)


_LAYOUT: Any = typeof(((0,) * 5, *((0,) * 3,) * 4))  # type: ignore[no-untyped-call]  # Numba's own


def compile_loop(function: Callable[..., None], signature: Any, *made_of: Any) -> Callable[..., None]:
    """
    Return a function compiled for one signature, or from the disk, without Numba's look at the types of a call.

    `made_of` is what is compiled into it from other files: Numba knows its own by the time of its last change.
    """
    function.__qualname__ = f"{function.__name__}_{version(*made_of)}"
    try:
        fast: Any = njit(signature, nogil=True, cache=True)(function)
    except (OSError, RuntimeError):  # there is no directory that can be written
        fast = njit(signature, nogil=True)(function)
    entry: Callable[..., None] = fast.overloads[signature.args].entry_point
    return entry


def version(*made_of: Any) -> str:
    """Return a name for the source of functions or modules."""
    return hashlib.sha256("".join(map(inspect.getsource, made_of)).encode()).hexdigest()[:16]


@cache
def loop(dtype: str, pairing: str) -> Callable[..., None]:
    """
    Return the loop over rows for a dtype and a pairing, compiled or from the disk.

    It takes a zero of the type of `KINDS`; the direction, 1.0 or -1.0; the layout that `_numba` makes; the addresses of
    x, out, cos and sin; the first of the units of the layout that are to be rotated, and the one behind the last; and
    the number of pairs.
    """
    kind = KINDS[dtype]
    rows = {"half": _rotate_halves, "interleaved": _rotate_neighbours}[pairing]
    signature = types.none(kind, types.float64 if kind is types.float64 else types.float32, _LAYOUT, *[types.intp] * 7)
    return compile_loop(rows, signature, rotate_component)
