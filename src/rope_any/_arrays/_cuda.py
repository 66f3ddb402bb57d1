"""The rotation of pairs as one CUDA kernel, for CuPy: its source and the arguments of a launch."""

import inspect
import math
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rope_any._arrays._compilers import PairLayout
from rope_any._arrays._layout import merge
from rope_any._arrays._library import Array
from rope_any._formula import rotate_component

TYPES = {"float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double"}
"""The types of C++ by the names of dtypes."""
_WIDEST = 16  # bytes that a thread reads at a time
_BLOCK = 256  # threads

# A thread rotates a chunk of adjacent pairs, read and written whole, in each of some rows of x that share a row of the
# table. It reads all of them before it writes, so that many reads are under way at once. The index of a thread is split
# into those of the axes, of which the last is that of the chunks. Strides and gaps are in bytes.
_SOURCE = """\
#include <cuda_fp16.h>
{headers}
typedef {element} Element;
typedef {work} Work;
typedef {integer} Index;
template <class Kind, int COUNT> struct alignas(COUNT * sizeof(Kind)) Chunk {{ Kind at[COUNT]; }};
typedef Chunk<Element, {members}> Members;
typedef Chunk<Work, {width}> Factors;
__device__ Work component(Work a, Work b, Work c, Work s) {{ return {formula}; }}

extern "C" __global__ void rotate(
    const char* x, char* out, const char* cosines, const char* sines, long long x_gap, long long out_gap,
    long long x_row, long long out_row, Index threads{parameters}
) {{
    Index left = blockIdx.x * (Index)blockDim.x + threadIdx.x;
    if (left >= threads) return;
    {offsets}
    const Factors cosine = *(const Factors*)cosines, sine = *(const Factors*)sines;
    Members first[{rows}]{declare_second};
    #pragma unroll
    for (int row = 0; row < {rows}; row++, x += x_row) {{
        first[row] = *(const Members*)x;{read_second}
    }}
    #pragma unroll
    for (int row = 0; row < {rows}; row++, out += out_row) {{
        #pragma unroll
        for (int i = 0; i < {width}; i++) {{
            const Work a = {a}, b = {b}, c = cosine.at[i], s = {direction}sine.at[i];
            {a} = component(a, b, c, s);
            {b} = component(b, a, c, -s);
        }}
        *(Members*)out = first[row];{write_second}
    }}
}}
"""
_PARAMETERS = ",\n    Index n{k}, long long x{k}, long long out{k}, long long c{k}, long long s{k}"
_OFFSETS = """{{
        const Index i = left % n{k}; left /= n{k};
        x += i * x{k}; out += i * out{k}; cosines += i * c{k}; sines += i * s{k};
    }}"""


class Variant(NamedTuple):
    """What a kernel is compiled for."""

    dtype: str
    """The dtype of x, by name. The table is float64 if x is, else float32."""
    width: int
    """How many pairs a thread rotates in each row."""
    rows: int
    """How many rows a thread rotates, all by the same row of the table."""
    adjacent: bool
    """Whether the members of a pair are adjacent, so that one chunk holds both."""
    direction: int
    axes: int
    integer: str
    """The type of indices in C++."""


def source(variant: Variant) -> str:
    """Return the source of a kernel ``rotate``."""
    dtype, width, rows, adjacent, direction, axes, integer = variant
    formula = inspect.getsource(rotate_component).rpartition("return ")[2].strip()  # a * c - b * s, as in C++ too
    return _SOURCE.format(
        headers="#include <cuda_bf16.h>" if dtype == "bfloat16" else "",
        element=TYPES[dtype],
        work="double" if dtype == "float64" else "float",
        integer=integer,
        members=width * (2 if adjacent else 1),
        width=width,
        rows=rows,
        parameters="".join(_PARAMETERS.format(k=k) for k in range(axes)),
        offsets="\n    ".join(_OFFSETS.format(k=k) for k in reversed(range(axes))),
        declare_second="" if adjacent else f", second[{rows}]",
        read_second="" if adjacent else "\n        second[row] = *(const Members*)(x + x_gap);",
        a="first[row].at[2 * i]" if adjacent else "first[row].at[i]",
        b="first[row].at[2 * i + 1]" if adjacent else "second[row].at[i]",
        direction="" if direction == 1 else "-",
        formula=formula,
        write_second="" if adjacent else "\n        *(Members*)(out + out_gap) = second[row];",
    )


def launch(cupy: Any, out: Array, x: Array, table: tuple[Array, Array], layout: PairLayout) -> None:
    """Write the rotated x, whose features all form pairs, into `out`; the table has the dtype of the computation."""
    parts = out, x, *table
    facts = tuple([(part.shape, part.strides, part.itemsize, part.data.ptr % _WIDEST) for part in parts])
    if (prepared := _prepared(cupy, x.dtype, facts, layout)) is not None:
        kernel, blocks, numbers = prepared
        kernel((blocks,), (_BLOCK,), (x, out, *table, *numbers))


_Facts: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int, int]
"""Of an array: shape, strides in bytes, item size, and its address modulo `_WIDEST`."""


@lru_cache(1024)
def _prepared(
    cupy: Any, dtype: Any, facts: tuple[_Facts, ...], layout: PairLayout
) -> tuple[Any, int, tuple[Any, ...]] | None:
    """Return the kernel, blocks and last arguments of a launch for out, x, cosines and sines; None if x is empty."""
    of_out, of_x, *of_table = facts
    lengths, pairs = of_x[0][:-1], of_table[0][0][-1]
    operands = [_operand(part, *pair, len(lengths)) for part, pair in ((of_x, layout.x), (of_out, layout.out))]
    operands += [_operand(part, 1, 0, len(lengths)) for part in of_table]
    both_adjacent = layout.x == layout.out == (2, 1)
    kinds = [(width, adjacent) for adjacent in (True, False)[not both_adjacent :] for width in (8, 4, 2, 1)]
    width, adjacent = next(kind for kind in kinds if _fits(operands, pairs, *kind))
    outer = zip(lengths, *(operand.strides for operand in operands), strict=True)
    in_memory = sorted(outer, key=lambda axis: -abs(axis[1]))  # as x is
    chunks = pairs // width, *(width * operand.step for operand in operands)
    axes = merge([chunks, *reversed(in_memory)])[::-1]
    if not all(n for n, *_ in axes):
        return None
    axes, rows, row_steps = _share(axes)
    threads = math.prod(n for n, *_ in axes)
    index, name = (np.uint32, "unsigned int") if threads < _MOST_32 else (np.uint64, "unsigned long long")
    kernel = _kernel(cupy, Variant(dtype.name, width, rows, adjacent, layout.direction, len(axes), name))
    steps_and_gaps = [np.int64(n) for n in (operands[0].gap, operands[1].gap, *row_steps)]
    sizes = [value for n, *strides in axes for value in (index(n), *map(np.int64, strides))]
    return kernel, -(-threads // _BLOCK), (*steps_and_gaps, index(threads), *sizes)


class _Operand(NamedTuple):
    """An array of a launch: the rows of features of x or `out`, or the cosines or sines."""

    address: int
    """Modulo `_WIDEST`."""
    item_size: int
    step: int
    """Bytes from a pair to the next."""
    gap: int
    """Bytes from the first member of a pair to the second; 0 for the table."""
    strides: tuple[int, ...]
    """Of the axes of x before the features, in bytes: 0 where the array has one row for all."""


_MOST_32 = 2**31 - _BLOCK
_MOST_ROWS = 8


def _share(axes: list[tuple[int, ...]]) -> tuple[list[tuple[int, ...]], int, tuple[int, int]]:
    """
    Return the axes of threads, the number of rows that each rotates by one row of the table, and their steps.

    Axes along which the table has one row for all are moved behind the others, except for the last of those, so that a
    row of the table is read by threads that run at the same time.
    """
    own, shared = [axis for axis in axes if any(axis[3:])], [axis for axis in axes if not any(axis[3:])]
    rows, steps = 1, (0, 0)
    if shared:
        length, x, out, *of_table = shared.pop()
        rows, steps = next(n for n in range(_MOST_ROWS, 0, -1) if length % n == 0), (x, out)
        shared.append((length // rows, rows * x, rows * out, *of_table))
    return [*own[:-1], *shared, *own[-1:]], rows, steps


def _operand(facts: _Facts, step: int, gap: int, axes: int) -> _Operand:
    """Return what a launch must know of an array, whose axes are the last of those of x."""
    shape, strides, item_size, address = facts
    outer = [stride if n > 1 else 0 for n, stride in zip(shape[:-1], strides[:-1], strict=True)]
    features = strides[-1]
    return _Operand(address, item_size, step * features, gap * features, (0,) * (axes - len(outer)) + tuple(outer))


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


@cache
def _kernel(cupy: Any, variant: Variant) -> Any:
    """Return a compiled kernel; as in eager code, no product is fused with a difference."""
    return cupy.RawKernel(source(variant), "rotate", options=("--fmad=false", "-std=c++17"))
