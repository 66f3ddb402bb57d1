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
from numba import njit, types
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


MOST_PAIRS = 256  # that are rotated at a time


def _load_word(_: Any, base: Any, index: Any) -> Any:
    """Return the 64-bit integer of an index behind an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        base, index = arguments
        return builder.load(builder.gep(builder.inttoptr(base, ir.IntType(64).as_pointer()), [index]))

    return types.int64(base, index), generate


_word: Any = intrinsic(_load_word)

# A plan is 64-bit integers in memory: a header of these, and behind it as many for each of its jobs.
_BEHIND, _SIZE, _WIDE, _PAIRS, _STREAMS, _COUNT = range(6)
HEADER, JOB = 6, 22

_allocate: Any = cgutils.alloca_once  # typed in part, as are the functions below


def _own(_: Any) -> Any:
    """Return the address of memory for that many pairs, on the stack of the loop, which lives as long as it runs."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature, arguments
        memory = _allocate(builder, ir.ArrayType(_DOUBLE, 2 * MOST_PAIRS + 4))
        return builder.ptrtoint(memory, context.get_value_type(types.intp))

    return types.intp(), generate


_own_memory: Any = intrinsic(_own)


def _stream(_: Any, to: Any, source: Any) -> Any:
    """Copy 32 bytes, both at multiples of 32, past the caches."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        vector = ir.VectorType(ir.IntType(64), 4).as_pointer()
        to, source = (builder.inttoptr(address, vector) for address in arguments)
        stored = builder.store(builder.load(source, align=32), to, align=32)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.none(to, source), generate


def _settle(_: Any) -> Any:
    """Wait until what was written past the caches can be seen by other threads."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature, arguments
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.none(), generate


_stream_out: Any = intrinsic(_stream)
_fence: Any = intrinsic(_settle)

# A row goes through memory of the loop's own: so x may be `out`, and LLVM knows that no number written is read again.
_read_given, _write_own = _read("given", "own"), _write("own", "given")
_read_own, _write_out = _read("own, full", "out"), _write("out", "own, full")
_formula = njit(rotate_component, inline="always")


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
def _rotate_jobs(
    kind: Any,
    direction: Any,
    plan: int,
    xs: Any,
    outs: Any,
    cos: int,
    sin: int,
    begin: int,
    end: int,
    pairs: int,
    step: int,
) -> None:
    """Rotate units of the jobs of a plan: tiles of an axis, as long as their rows of the table stay in the cache."""
    own, ready, gap = _own_memory(), _own_memory(), pairs if step == 1 else 1
    ready += -ready % 32
    wanted = _word(plan, _STREAMS)
    size, wide = _word(plan, _SIZE), _word(plan, _WIDE)
    for n in range(_word(plan, _COUNT)):
        job = plan + 8 * (HEADER + n * JOB)
        first, units, middle, inner, tile = _word(job, 0), _word(job, 1), _word(job, 2), _word(job, 3), _word(job, 4)
        x, x0, x1, x2 = xs[_word(job, 5)] + _word(job, 6), _word(job, 7), _word(job, 8), _word(job, 9)
        out, o0, o1, o2 = outs[_word(job, 5)] + _word(job, 10), _word(job, 11), _word(job, 12), _word(job, 13)
        c, c0, c1, c2 = cos + _word(job, 14), _word(job, 15), _word(job, 16), _word(job, 17)
        s, s0, s1, s2 = sin + _word(job, 18), _word(job, 19), _word(job, 20), _word(job, 21)
        tiles = -(-inner // tile)
        streams = wanted and (out | o0 | o1 | o2) % 32 == 0 and x != out
        for unit in range(max(begin - first, 0), min(end - first, units)):
            rest, j = divmod(unit, middle)
            i, t = divmod(rest, tiles)
            for k in range(t * tile, min((t + 1) * tile, inner)):
                from_x, to = x + i * x0 + j * x1 + k * x2, out + i * o0 + j * o1 + k * o2
                row_cos, row_sin = c + i * c0 + j * c1 + k * c2, s + i * s0 + j * s1 + k * s2
                if streams:
                    _rotate_row(kind, direction, from_x, ready, row_cos, row_sin, own, pairs, step, gap)
                    for byte in range(0, 2 * pairs * size, 32):
                        _stream_out(to + byte, ready + byte)
                    continue
                for p in range(0, pairs, MOST_PAIRS):
                    near, far, many = p * step * size, p * wide, min(pairs - p, MOST_PAIRS)
                    _rotate_row(
                        kind, direction, from_x + near, to + near, row_cos + far, row_sin + far, own, many, step, gap
                    )


@njit(forceinline=True)
def _address(plan: int, of: int) -> int:
    """Return an address that is given: itself, or by an object that holds it some bytes behind its own."""
    behind = _word(plan, _BEHIND)
    return _word(of + behind, 0) if behind else of


@njit(forceinline=True)
def _rotate(kind: Any, direction: Any, plan: int, given: Any, begin: int, end: int, step: int) -> int:
    """Rotate units of a plan, unless a number is at an address that is no multiple of its size; return whether."""
    x, other_x, out, other_out, cos, sin = given
    xs, outs = (_address(plan, x), _address(plan, other_x)), (_address(plan, out), _address(plan, other_out))
    cos, sin, pairs = _address(plan, cos), _address(plan, sin), _word(plan, _PAIRS)
    if (xs[0] | xs[1] | outs[0] | outs[1]) % _word(plan, _SIZE) or (cos | sin) % _word(plan, _WIDE):
        return 0
    # The usual numbers of pairs are constants, of which LLVM makes better loops; more would take longer to compile.
    if pairs == 64:
        _rotate_jobs(kind, direction, plan, xs, outs, cos, sin, begin, end, 64, step)
    elif step == 1 and pairs == 32:
        _rotate_jobs(kind, direction, plan, xs, outs, cos, sin, begin, end, 32, step)
    else:
        _rotate_jobs(kind, direction, plan, xs, outs, cos, sin, begin, end, pairs, step)
    if _word(plan, _STREAMS):
        _fence()
    return 1


def _rotate_halves(
    kind: Any,
    direction: Any,
    plan: int,
    begin: int,
    end: int,
    x: int,
    other_x: int,
    out: int,
    other_out: int,
    cos: int,
    sin: int,
) -> int:
    return _rotate(kind, direction, plan, (x, other_x, out, other_out, cos, sin), begin, end, 1)


def _rotate_neighbours(
    kind: Any,
    direction: Any,
    plan: int,
    begin: int,
    end: int,
    x: int,
    other_x: int,
    out: int,
    other_out: int,
    cos: int,
    sin: int,
) -> int:
    return _rotate(kind, direction, plan, (x, other_x, out, other_out, cos, sin), begin, end, 2)


def compile_loop(function: Callable[..., int], signature: Any, *made_of: Any) -> Callable[..., int]:
    """
    Return a function compiled for one signature, or from the disk, without Numba's look at the types of a call.

    `made_of` is what is compiled into it from other files: Numba knows its own by the time of its last change.
    """
    function.__qualname__ = f"{function.__name__}_{version(*made_of)}"
    try:
        fast: Any = njit(signature, nogil=True, cache=True)(function)
    except (OSError, RuntimeError):  # there is no directory that can be written
        fast = njit(signature, nogil=True)(function)
    entry: Callable[..., int] = fast.overloads[signature.args].entry_point
    return entry


def version(*made_of: Any) -> str:
    """Return a name for the source of functions or modules."""
    return hashlib.sha256("".join(map(inspect.getsource, made_of)).encode()).hexdigest()[:16]


@cache
def loop(dtype: str, pairing: str) -> Callable[..., int]:
    """
    Return the loop over rows for a dtype and a pairing, compiled or from the disk.

    It takes a zero of the type of `KINDS`; the direction, 1.0 or -1.0; the address of a plan that `_numba` makes; the
    first of the units of the plan that are to be rotated, and the one behind the last; six addresses, of x and another
    x, of the arrays that they are written into, of cos and of sin. It returns whether all addresses are aligned; if
    not, it has done nothing.
    """
    kind = KINDS[dtype]
    rows = {"half": _rotate_halves, "interleaved": _rotate_neighbours}[pairing]
    real = types.float64 if kind is types.float64 else types.float32
    return compile_loop(rows, types.int64(kind, real, *[types.int64] * 9), rotate_component)
