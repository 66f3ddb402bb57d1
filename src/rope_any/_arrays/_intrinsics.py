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


@cache
def has_half_precision() -> bool:
    """Whether the processor converts float16; without that, LLVM would call library functions that are missing."""
    return bool(llvm.get_host_cpu_features().get("f16c")) or "aarch64" in llvm.get_process_triple()


def _set_alias_scopes(builder: Any, access: Any, scope: str, noalias_scope: str) -> Any:
    """Tell LLVM the alias scope that a load or store accesses and one that it does not; return the load or store."""
    module = builder.module
    domain = module.add_metadata(["rope_any"])
    for kind, name in (("alias.scope", scope), ("noalias", noalias_scope)):
        access.set_metadata(kind, module.add_metadata([module.add_metadata([f"rope_any {name}", domain])]))
    return access


def _pointer(context: Any, builder: Any, kind: Any, address: Any, index: Any) -> Any:
    """Return an LLVM pointer to ``address[index]``, where numbers have the Numba type `kind`."""
    number = ir.HalfType() if kind is FLOAT16 else context.get_value_type(kind)
    return builder.gep(builder.inttoptr(address, number.as_pointer()), [index])


def reader(scope: str, noalias_scope: str) -> Any:
    """
    Return an intrinsic ``(number, address, index)`` that loads ``address[index]`` as the type of `number`.

    `number` gives the type alone. Numba's int16 and uint16 represent float16 and bfloat16, which become float32.
    `scope` is the alias scope to read from, `noalias_scope` a scope that does not overlap it.
    """

    @intrinsic
    def read(_: Any, kind: Any, address: Any, index: Any) -> Any:
        """Return (Numba signature, LLVM generator) of a load of Numba type `kind`; 16-bit floats become float32."""

        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            """Generate the LLVM load: read the value at ``address[index]``, widened to float32 if it has 16 bits."""
            load = builder.load(_pointer(context, builder, kind, *arguments[1:]))
            number = _set_alias_scopes(builder, load, scope, noalias_scope)
            if kind is FLOAT16:
                return builder.fpext(number, ir.FloatType())
            if kind is BFLOAT16:  # the upper half of a float32
                wide = builder.shl(builder.zext(number, ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
                return builder.bitcast(wide, ir.FloatType())
            return number

        result = types.float32 if kind in {FLOAT16, BFLOAT16} else kind
        return result(kind, address, index), generate

    return read


def writer(scope: str, noalias_scope: str) -> Any:
    """
    Return an intrinsic ``(number, address, index, value)`` that stores `value` at ``address[index]``.

    `number` only gives the type in memory: a float32 `value` is rounded to float16 or bfloat16, ties to even; float32
    and float64 are converted to each other. `scope` is the alias scope written to, and `noalias_scope` one that does
    not overlap it.
    """

    @intrinsic
    def write(_: Any, kind: Any, address: Any, index: Any, value: Any) -> Any:
        """Return (Numba signature, LLVM generator) of a store, given Numba types: `kind` in memory, `value` stored."""

        def generate(context: Any, builder: Any, types_: Any, arguments: Any) -> Any:
            """Generate the LLVM store: round the value to the type in memory, write it to ``address[index]``."""
            *place, value = arguments[1:]
            if kind is FLOAT16:
                value = builder.fptrunc(value, ir.HalfType())
            elif kind is BFLOAT16:
                value = _bfloat16_bits(builder, value)
            else:
                value = context.cast(builder, value, types_.args[-1], kind)
            store = builder.store(value, _pointer(context, builder, kind, *place))
            _set_alias_scopes(builder, store, scope, noalias_scope)
            return context.get_dummy_value()

        return types.none(kind, address, index, value), generate

    return write


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


def _stack_memory(_: Any) -> Any:
    """Define the intrinsic that returns the address of ``2 * MOST_PAIRS + 4`` new doubles on the loop's stack."""

    def generate(context: Any, builder: Any, _: Any, __: Any) -> Any:
        """Generate the LLVM stack allocation; return its address as an integer."""
        memory = cgutils.alloca_once(builder, ir.ArrayType(ir.DoubleType(), 2 * MOST_PAIRS + 4))
        return builder.ptrtoint(memory, context.get_value_type(types.intp))

    return types.intp(), generate


def _copy_past_caches(_: Any, to: Any, source: Any) -> Any:
    """Define the intrinsic that copies 32 bytes from address `source` to `to`, both aligned to 32, past the caches."""

    def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
        """Generate the LLVM load and the nontemporal store."""
        vector = ir.VectorType(ir.IntType(64), 4).as_pointer()
        to, source = (builder.inttoptr(address, vector) for address in arguments)
        stored = builder.store(builder.load(source, align=32), to, align=32)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.none(to, source), generate


def _fence(_: Any) -> Any:
    """Define the intrinsic that waits until other threads can see the nontemporal stores."""

    def generate(context: Any, builder: Any, _: Any, __: Any) -> Any:
        """Generate the LLVM fence."""
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.none(), generate


stack_memory: Any = intrinsic(_stack_memory)  # typed in part
copy_past_caches: Any = intrinsic(_copy_past_caches)
fence: Any = intrinsic(_fence)


@cache
def compile_loop(function: Callable[..., int], signature: Any, *sources: Any) -> Callable[..., int]:
    """Return the entry point of `function`, compiled by Numba or from its disk cache (its key covers `sources` too)."""
    # This is part of the cache key; Numba's own covers the function's file alone. With the signature each variant has
    # files of its own, which processes that compile others at the same time don't overwrite.
    function.__qualname__ = f"{function.__name__}_{source_hash(*sources, text=str(signature))}"
    try:
        fast: Any = njit(signature, nogil=True, cache=True)(function)
    except (OSError, RuntimeError):  # no writable cache directory
        fast = njit(signature, nogil=True)(function)
    entry: Callable[..., int] = fast.overloads[signature.args].entry_point
    return entry


def source_hash(*sources: Any, text: str = "") -> str:
    """Return a hash of a text and of the source code of functions or modules, as 16 hexadecimal digits."""
    return hashlib.sha256("".join([text, *map(inspect.getsource, sources)]).encode()).hexdigest()[:16]
