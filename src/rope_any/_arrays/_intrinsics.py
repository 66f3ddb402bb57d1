"""
Numba intrinsics for the compiled loops: load and store numbers at addresses, 16-bit ones too; scratch memory.

Numba inlines an intrinsic into the loop that calls it. This module does not use arrays.
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

from rope_any._arrays._layout import MOST_PAIRS

# Numba has no 16-bit floats: two of its integer types represent them.
FLOAT16, BFLOAT16 = types.int16, types.uint16
_FLOAT, _DOUBLE, _HALF, _INT64 = ir.FloatType(), ir.DoubleType(), ir.HalfType(), ir.IntType(64)
_IN_MEMORY: dict[Any, Any] = {
    FLOAT16: (_HALF, 2),
    BFLOAT16: (ir.IntType(16), 2),
    types.float32: (_FLOAT, 4),
    types.float64: (_DOUBLE, 8),
    types.int64: (_INT64, 8),
}
"""The LLVM type of a number, and its size in bytes."""


@cache
def has_half_precision() -> bool:
    """Whether the processor converts float16; without that, LLVM would call library functions that are missing."""
    return bool(llvm.get_host_cpu_features().get("f16c")) or "aarch64" in llvm.get_process_triple()


def _alias_scope(builder: Any, scope: str) -> Any:
    """Add an LLVM alias scope to the module; return it, as ``alias.scope`` or ``noalias`` of loads and stores."""
    module = builder.module
    domain = module.add_metadata(["rope_any"])
    return module.add_metadata([module.add_metadata([f"rope_any {scope}", domain])])


def _pointer(builder: Any, kind: Any, address: Any, index: Any) -> Any:
    """Return an LLVM pointer to ``address[index]``, where numbers have the Numba type `kind`."""
    return builder.gep(builder.inttoptr(address, _IN_MEMORY[kind][0].as_pointer()), [index])


def reader(scope: str, noalias_scope: str) -> Any:
    """
    Return an intrinsic ``(number, address, index)`` that loads ``address[index]`` as the type of `number`.

    `number` gives the type alone. Numba's int16 and uint16 represent float16 and bfloat16, which become float32.
    `scope` is the alias scope to read from, `noalias_scope` a scope that does not overlap it.
    """

    def read(_: Any, kind: Any, address: Any, index: Any) -> Any:
        """Return (Numba signature, LLVM generator) of a load of Numba type `kind`; 16-bit floats become float32."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            """Generate the LLVM load: read the value at ``address[index]``, widened to float32 if it has 16 bits."""
            del context, signature
            number = builder.load(_pointer(builder, kind, *arguments[1:]), align=_IN_MEMORY[kind][1])
            number.set_metadata("alias.scope", _alias_scope(builder, scope))
            number.set_metadata("noalias", _alias_scope(builder, noalias_scope))
            if kind is FLOAT16:
                return builder.fpext(number, _FLOAT)
            if kind is BFLOAT16:  # the upper half of a float32
                wide = builder.shl(builder.zext(number, ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
                return builder.bitcast(wide, _FLOAT)
            return number

        result = kind if kind in {types.float64, types.int64} else types.float32
        return result(kind, address, index), generate

    return intrinsic(read)


def writer(scope: str, noalias_scope: str) -> Any:
    """
    Return an intrinsic ``(number, address, index, value)`` that stores `value` at ``address[index]``.

    `number` only gives the type in memory: a float32 `value` is rounded to float16 or bfloat16, ties to even. `scope`
    is the alias scope written to, and `noalias_scope` one that does not overlap it.
    """

    def write(_: Any, kind: Any, address: Any, index: Any, value: Any) -> Any:
        """Return (Numba signature, LLVM generator) of a store, given Numba types: `kind` in memory, `value` stored."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            """Generate the LLVM store: round the value to the type in memory, write it to ``address[index]``."""
            del signature
            *place, value = arguments[1:]
            if kind is FLOAT16:
                value = builder.fptrunc(value, _HALF)
            elif kind is BFLOAT16:
                value = _bfloat16_bits(builder, value)
            stored = builder.store(value, _pointer(builder, kind, *place), align=_IN_MEMORY[kind][1])
            stored.set_metadata("alias.scope", _alias_scope(builder, scope))
            stored.set_metadata("noalias", _alias_scope(builder, noalias_scope))
            return context.get_dummy_value()

        return types.none(kind, address, index, value), generate

    return intrinsic(write)


def _bfloat16_bits(builder: Any, number: Any) -> Any:
    """Generate LLVM code that rounds a float32 to the 16 bits of a bfloat16, ties to even; any NaN becomes 0x7FC0."""
    word = ir.IntType(32)
    bits = builder.bitcast(number, word)
    upper = builder.lshr(bits, ir.Constant(word, 16))
    last = builder.and_(upper, ir.Constant(word, 1))
    rounded = builder.add(bits, builder.add(last, ir.Constant(word, 0x7FFF)))
    is_nan = builder.fcmp_unordered("uno", number, number)
    result = builder.select(is_nan, ir.Constant(word, 0x7FC0), builder.lshr(rounded, ir.Constant(word, 16)))
    return builder.trunc(result, ir.IntType(16))


def _int64_at(_: Any, address: Any, index: Any) -> Any:
    """Define the intrinsic that returns the int64 at ``address[index]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Generate the LLVM load."""
        del context, signature
        return builder.load(_pointer(builder, types.int64, *arguments))

    return types.int64(address, index), generate


_allocate: Any = cgutils.alloca_once  # typed in part, as is `intrinsic`


def _stack_memory(_: Any) -> Any:
    """Define the intrinsic that returns the address of ``2 * MOST_PAIRS + 4`` new doubles on the loop's stack."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Generate the LLVM stack allocation; return its address as an integer."""
        del signature, arguments
        memory = _allocate(builder, ir.ArrayType(_DOUBLE, 2 * MOST_PAIRS + 4))
        return builder.ptrtoint(memory, context.get_value_type(types.intp))

    return types.intp(), generate


def _copy_past_caches(_: Any, to: Any, source: Any) -> Any:
    """Define the intrinsic that copies 32 bytes from address `source` to `to`, both aligned to 32, past the caches."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Generate the LLVM load and the nontemporal store."""
        del signature
        vector = ir.VectorType(_INT64, 4).as_pointer()
        to, source = (builder.inttoptr(address, vector) for address in arguments)
        stored = builder.store(builder.load(source, align=32), to, align=32)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.none(to, source), generate


def _fence(_: Any) -> Any:
    """Define the intrinsic that waits until other threads can see the nontemporal stores."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Generate the LLVM fence."""
        del signature, arguments
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.none(), generate


int64_at: Any = intrinsic(_int64_at)
stack_memory: Any = intrinsic(_stack_memory)
copy_past_caches: Any = intrinsic(_copy_past_caches)
fence: Any = intrinsic(_fence)


def compile_loop(function: Callable[..., int], signature: Any, *sources: Any) -> Callable[..., int]:
    """Return the entry point of `function`, compiled by Numba or from its disk cache (its key covers `sources` too)."""
    # This is part of the cache key; Numba's own covers the function's file alone.
    function.__qualname__ = f"{function.__name__}_{source_hash(*sources)}"
    try:
        fast: Any = njit(signature, nogil=True, cache=True)(function)
    except (OSError, RuntimeError):  # no writable cache directory
        fast = njit(signature, nogil=True)(function)
    entry: Callable[..., int] = fast.overloads[signature.args].entry_point
    return entry


def source_hash(*sources: Any) -> str:
    """Return a hash of the source code of functions or modules, as 16 hexadecimal digits."""
    return hashlib.sha256("".join(map(inspect.getsource, sources)).encode()).hexdigest()[:16]
