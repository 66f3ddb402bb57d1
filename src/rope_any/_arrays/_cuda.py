"""The rotation of pairs as one CUDA kernel, for CuPy: its source and the arguments of a launch."""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from rope_any._arrays._compilers import PairLayout
from rope_any._arrays._library import Array
from rope_any._formula import rotate_component

TYPES = {"float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double"}
"""The types of C++ by the names of dtypes."""
_WIDEST = 16  # bytes that a thread reads at a time
_BLOCK = 256  # threads

# A thread rotates a chunk of `WIDTH` adjacent pairs, read and written whole. The index of a thread is split into those
# of the axes, of which the last is that of the chunks. Strides are in bytes.
_SOURCE = """\
#include <cuda_fp16.h>
{headers}
typedef {element} Element;
typedef {work} Work;
typedef {integer} Index;
template <class Kind, int COUNT> struct alignas(COUNT * sizeof(Kind)) Chunk {{ Kind at[COUNT]; }};
typedef Chunk<Element, {members}> Members;
typedef Chunk<Work, {width}> Factors;

extern "C" __global__ void rotate(
    const char* x, char* out, const char* cosines, const char* sines, long long x_gap, long long out_gap, Index threads
    {parameters}
) {{
    Index left = blockIdx.x * (Index)blockDim.x + threadIdx.x;
    if (left >= threads) return;
    {offsets}
    const Factors cosine = *(const Factors*)cosines, sine = *(const Factors*)sines;
    Members first = *(const Members*)x{second};
    #pragma unroll
    for (int i = 0; i < {width}; i++) {{
        const Work a = {a}, b = {b}, c = cosine.at[i], s = {direction}sine.at[i];
        {a} = {rotated_a};
        {b} = {rotated_b};
    }}
    *(Members*)out = first;{write_second}
}}
"""
_PARAMETERS = ", Index n{k}, long long x{k}, long long out{k}, long long c{k}, long long s{k}"
_OFFSETS = """{{
        const Index i = left % n{k}; left /= n{k};
        x += i * x{k}; out += i * out{k}; cosines += i * c{k}; sines += i * s{k};
    }}"""


class _Code(NamedTuple):
    """An expression of C++, for the formula."""

    text: str

    def __mul__(self, other: Any) -> "_Code":
        """Return the product."""
        return _Code(f"({self.text} * {other.text})")

    def __sub__(self, other: Any) -> "_Code":
        """Return the difference."""
        return _Code(f"({self.text} - {other.text})")


class Variant(NamedTuple):
    """What a kernel is compiled for."""

    dtype: str
    """The dtype of x, by name. The table is float64 if x is, else float32."""
    width: int
    """How many pairs a thread rotates."""
    adjacent: bool
    """Whether the members of a pair are adjacent, so that one chunk holds both."""
    direction: int
    axes: int
    integer: str
    """The type of indices in C++."""


def source(variant: Variant) -> str:
    """Return the source of a kernel ``rotate``."""
    dtype, width, adjacent, direction, axes, integer = variant
    a, b, c, s, minus_s = map(_Code, ("a", "b", "c", "s", "(-s)"))
    return _SOURCE.format(
        headers="#include <cuda_bf16.h>" if dtype == "bfloat16" else "",
        element=TYPES[dtype],
        work="double" if dtype == "float64" else "float",
        integer=integer,
        members=width * (2 if adjacent else 1),
        width=width,
        parameters="\n    ".join(_PARAMETERS.format(k=k) for k in range(axes)),
        offsets="\n    ".join(_OFFSETS.format(k=k) for k in reversed(range(axes))),
        second="" if adjacent else ", second = *(const Members*)(x + x_gap)",
        a="first.at[2 * i]" if adjacent else "first.at[i]",
        b="first.at[2 * i + 1]" if adjacent else "second.at[i]",
        direction="" if direction == 1 else "-",
        rotated_a=rotate_component(a, b, c, s).text,
        rotated_b=rotate_component(b, a, c, minus_s).text,
        write_second="" if adjacent else "\n    *(Members*)(out + out_gap) = second;",
    )


class _Operand(NamedTuple):
    """An array of a launch: the rows of features of x or `out`, or the cosines or sines."""

    address: int
    item_size: int
    step: int
    """Bytes from a pair to the next."""
    gap: int
    """Bytes from the first member of a pair to the second; 0 for the table."""
    strides: tuple[int, ...]
    """Of the axes of x before the features, in bytes: 0 where the array has one row for all."""


def launch(cupy: Any, out: Array, x: Array, table: tuple[Array, Array], layout: PairLayout) -> None:
    """Write the rotated x, whose features all form pairs, into `out`; the table has the dtype of the computation."""
    pairs, lengths = table[0].shape[-1], x.shape[:-1]
    operands = [_operand(part, layout.step, layout.gap, len(lengths)) for part in (x, out)]
    operands += [_operand(part, 1, 0, len(lengths)) for part in table]
    kinds = [(width, adjacent) for adjacent in (True, False)[layout.step == 1 :] for width in (8, 4, 2, 1)]
    width, adjacent = next(kind for kind in kinds if _fits(operands, pairs, *kind))
    rows = zip(lengths, *(operand.strides for operand in operands), strict=True)
    axes = _merge([*rows, (pairs // width, *(width * operand.step for operand in operands))])
    threads = math.prod(n for n, *_ in axes)
    if not threads:
        return
    index, name = (np.uint32, "unsigned int") if threads < _MOST_32 else (np.uint64, "unsigned long long")
    kernel = _kernel(cupy, Variant(x.dtype.name, width, adjacent, layout.direction, len(axes), name))
    gaps = [np.int64(operand.gap) for operand in operands[:2]]
    sizes = [value for n, *strides in axes for value in (index(n), *map(np.int64, strides))]
    kernel((-(-threads // _BLOCK),), (_BLOCK,), (x, out, *table, *gaps, index(threads), *sizes))


_MOST_32 = 2**31 - _BLOCK


def _operand(part: Array, step: int, gap: int, axes: int) -> _Operand:
    """Return what a launch must know of an array, whose axes are the last of those of x."""
    strides = [stride if n > 1 else 0 for n, stride in zip(part.shape[:-1], part.strides[:-1], strict=True)]
    strides = [0] * (axes - len(strides)) + strides
    features = part.strides[-1]
    return _Operand(part.data.ptr, part.itemsize, step * features, gap * features, tuple(strides))


def _fits(operands: list[_Operand], pairs: int, width: int, adjacent: bool) -> bool:  # noqa: FBT001  # as in Variant
    """Whether each thread can read and write `width` pairs whole, in chunks of each array."""
    if width == 1 and not adjacent:
        return True
    for operand in operands:
        has_both = adjacent and operand.gap
        pair = operand.item_size * (2 if has_both else 1)
        offsets = operand.address, *operand.strides, 0 if has_both else operand.gap
        if operand.step != pair or width * pair > _WIDEST or any(offset % (width * pair) for offset in offsets):
            return False
    return pairs % width == 0


def _merge(axes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return axes ``(length, *strides)`` without those of length 1, and with those joined that are one in memory."""
    merged: list[tuple[int, ...]] = []
    for length, *strides in axes:
        if merged and all(outer == length * inner for outer, inner in zip(merged[-1][1:], strides, strict=True)):
            merged[-1] = (merged[-1][0] * length, *strides)
        elif length != 1:
            merged.append((length, *strides))
    return merged


@cache
def _kernel(cupy: Any, variant: Variant) -> Any:
    """Return a compiled kernel; as in eager code, no product is fused with a difference."""
    return cupy.RawKernel(source(variant), "rotate", options=("--fmad=false", "-std=c++17"))
