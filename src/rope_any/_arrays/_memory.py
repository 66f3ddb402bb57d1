"""Memory of arrays: check that results can be written into it, cache sizes, and huge pages for new arrays."""

import ctypes
import mmap
import struct
import sys
from collections.abc import Callable
from functools import cache, lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rope_any._arrays import _sharding
from rope_any._arrays._library import Array, Layout, Library, State, X
from rope_any._checks import ArgumentValueError, Text


def plan_outs(
    lib: Library, names: tuple[str, ...], xs: tuple[Array, ...], outs: tuple[Array, ...], table: tuple[Array, ...]
) -> Callable[[tuple[X, ...], tuple[X, ...], tuple[Array, ...]], tuple[X, ...]]:
    """
    Raise unless each out can be written and does not overlap itself; return a check of each call.

    Arrays of a plan differ in their addresses alone, so it is known now which can overlap. The check takes xs (whose
    `names` are for errors), outs and the table: cos and sin, then those of the keys if they have others. It returns xs,
    each replaced by its out if that has the same memory, as in place both must be one object. It raises if an out can't
    be written, shares memory with an array other than its own x, or is not sharded as that is. Arrays without known
    addresses are not compared.
    """
    _require_assignable_from(lib, xs, outs, *table)
    if any(map(_sharding.is_sharded, (*xs, *outs))):
        return partial(_check_shards, lib, names)
    count, layouts = len(xs), [lib.layout(array) for array in (*outs, *xs, *table)]
    extents = [None if layout is None else _extent(*layout) for layout in layouts]
    if any(extent is not None and extent[2] for extent in extents[:count]):
        got = Text("a broadcast or self-overlapping view")
        raise ArgumentValueError("out", "have an address for each element", got)
    pairs = _pairs_to_compare(extents, count)
    same = [_are_same(layouts[i], layouts[i + count]) and xs[i].dtype == outs[i].dtype for i in range(count)]
    known = [i for i, layout in enumerate(layouts) if layout is not None]
    is_recorded = lib.state(*xs, *outs) is State.RECORDED

    def check(xs: tuple[X, ...], outs: tuple[X, ...], table: tuple[Array, ...]) -> tuple[X, ...]:
        """Return xs, some replaced by their outs; raise if an out can't be written."""
        if is_recorded:  # then autograd must allow it, and each x must be its out
            _require_assignable_from(lib, xs, outs)
        else:
            _require_assignable(lib, outs)
        arrays, found = (*outs, *xs, *table), xs
        starts = {i: lib.address(arrays[i]) for i in known}
        for i, j, least, most in pairs:
            distance = starts[j] - starts[i]
            if not least < distance < most:
                continue
            if j == i + count and same[i] and distance == 0:
                if xs[i] is not outs[i] and _shows_memory(lib, xs[i]):
                    found = *found[:i], outs[i], *found[i + 1 :]
            elif _share(distance, layouts[i], layouts[j]):
                raise _overlap_error(names, i, j)
        return found

    return check


def _pairs_to_compare(extents: list[tuple[int, int, bool] | None], count: int) -> list[tuple[int, int, int, int]]:
    """
    Return (i, j, least, most) for out i and array j of all outs, then as many xs, then the table.

    They can share memory only if j begins more than `least` and less than `most` bytes after i. For each out its own x
    comes first, because a call in place is the common one.
    """
    pairs = []
    for i, one in enumerate(extents[:count]):
        for j in (i + count, *range(i), *range(count, i + count), *range(i + count + 1, len(extents))):
            other = extents[j]
            if one is not None and other is not None:
                pairs.append((i, j, one[0] - other[1], one[1] - other[0]))
    return pairs


def _overlap_error(names: tuple[str, ...], i: int, j: int) -> ArgumentValueError:
    """Return the error that out i shares memory with array j, of all outs, then all xs, then the table."""
    if j == i + len(names):
        got = Text("a view that overlaps it in part")
        return ArgumentValueError("out", f"be {names[i]} itself or not overlap it", got)
    of_table = "cos", "sin", *(("cos of the keys", "sin of the keys") if len(names) > 1 else ("slots",))
    labels = *(f"the out of {name}" for name in names), *names, *of_table
    return ArgumentValueError("out", f"not overlap {labels[j]}", Text("arrays that share memory"))


def _check_shards(
    lib: Library, names: tuple[str, ...], xs: tuple[X, ...], outs: tuple[X, ...], table: tuple[Array, ...]
) -> tuple[X, ...]:
    """Check outs as the function of `plan_outs` does, by the shards of this process."""
    for name, x, out in zip(names, xs, outs, strict=True):
        if _sharding.placements(out) != _sharding.placements(x):
            given, wanted = (a.placements if _sharding.is_sharded(a) else "a plain array" for a in (out, x))
            raise ArgumentValueError("out", f"be sharded as {name} is, {wanted}", Text(given))
    here: Any = [tuple(map(_sharding.local, some)) for some in (xs, outs, table)]
    in_place = plan_outs(lib, names, *here)(*here)
    return tuple([out if here[1][i] is in_place[i] else xs[i] for i, out in enumerate(outs)])


def require_like(lib: Library, names: tuple[str, ...], xs: tuple[Array, ...], outs: tuple[Array, ...]) -> None:
    """Raise unless each out has the shape of its x, and a floating-point dtype to which products are rounded once."""
    for name, x, out in zip(names, xs, outs, strict=True):
        if out.shape != x.shape:
            is_view = lib.layout(out) is not None  # MLX's slices are copies
            hint = _part_hint(tuple(x.shape), tuple(out.shape)) if is_view else ""
            raise ArgumentValueError("out", f"have the shape of {name}, {tuple(x.shape)}", tuple(out.shape), hint)
        require_out_dtype(lib, name, x, out)


def require_out_dtype(lib: Library, name: str, x: Array, out: Array) -> None:
    """Raise unless `out` has a floating-point dtype to which the products of x, called `name`, are rounded once."""
    lib.require_floating("out", out)
    if lib.dtype_name(x.dtype) == "float64" and (dtype := lib.dtype_name(out.dtype)).endswith("float16"):
        wanted = f"have 32 or 64 bits for a {name} of float64, which libraries round to {dtype} by way of float32"
        raise ArgumentValueError("out", wanted, Text(dtype), f"cast {name} to float32")


def _part_hint(shape: tuple[int, ...], whole: tuple[int, ...]) -> str:
    """Return the hint for an output of shape `whole`, longer than `shape` along one axis, not the last; or ""."""
    if len(shape) != len(whole) or not all(type(n) is int for n in (*shape, *whole)):  # also unknown lengths
        return ""
    axes = [axis for axis, (n, m) in enumerate(zip(shape, whole, strict=True)) if n != m]
    if len(axes) != 1 or axes[0] == len(shape) - 1 or whole[axes[0]] < shape[axes[0]]:
        return ""
    return f"give the part to write, cache[{':, ' * axes[0]}a:b], of length {shape[axes[0]]}"


def _require_assignable_from(lib: Library, xs: tuple[Array, ...], outs: tuple[Array, ...], *table: Array) -> None:
    """Raise unless each out can be written now, with its x rotated by the table."""
    for x, out in zip(xs, outs, strict=True):
        _require_assignable(lib, (out,), x, *table)


def _require_assignable(lib: Library, outs: tuple[Array, ...], *sources: Array) -> None:
    """Raise unless all outs can be written now, with what is computed from the sources: x, then the table."""
    for out in outs:
        if (reason := lib.why_read_only(out, *sources)) is not None:
            got, hint = reason
            raise ArgumentValueError("out", "be an array that can be written", Text(got), hint)


def _shows_memory(lib: Library, x: Array) -> bool:
    """Whether the elements of x are what its memory holds; False if unsure, as for a lazily negated tensor."""
    return lib.add_facts((x,), [])


pack_addresses = struct.Struct("6Q").pack
"""Pack the addresses of six arrays into bytes, for the loop that Numba compiles."""
PACKED_OFFSETS = bytes.__basicsize__ - 1, 0  # in CPython's bytes; its slots are the data addresses themselves


# --- overlap ----------------------------------------------------------------------------------------------------------


def _are_same(a: Layout | None, b: Layout | None) -> bool:
    """Whether two arrays of one address have the same shape, and each element at the same address."""
    if a is None or b is None or (a[0], a[2]) != (b[0], b[2]):
        return False
    return all(n == 1 or step == other for n, step, other in zip(*a[:2], b[1], strict=True))


def _extent(shape: tuple[int, ...], strides: tuple[int, ...], item_size: int) -> tuple[int, int, bool]:
    """Return how far a layout reaches down and up from its address, exclusive; and whether elements may overlap."""
    if 0 in shape:
        return 0, 0, False
    reaches = [step * (n - 1) for step, n in zip(strides, shape, strict=True)]
    extent, overlaps = item_size, False
    for step, n in sorted((abs(step), n) for step, n in zip(strides, shape, strict=True) if n > 1):
        overlaps = overlaps or step < extent
        extent += step * (n - 1)
    return sum(min(reach, 0) for reach in reaches), sum(max(reach, 0) for reach in reaches) + item_size, overlaps


@lru_cache(maxsize=1024)
def _share(distance: int, layout: Layout, other: Layout) -> bool:
    """Whether arrays of two layouts share an address, the second `distance` bytes behind the first; True if unsure."""
    # kept, because q and k in one buffer are as far apart in each call
    import numpy as np

    views = []
    for address, (shape, strides, item_size) in ((2**48, layout), (2**48 + distance, other)):  # they are not read
        interface = {"version": 3, "data": (address, False), "typestr": f"|V{item_size}"}
        interface |= {"shape": tuple(shape), "strides": strides}
        views.append(np.asarray(SimpleNamespace(__array_interface__=interface)))
    try:
        return np.shares_memory(views[0], views[1], max_work=1_000_000)  # type: ignore[arg-type]  # any limit will do
    except np.exceptions.TooHardError:
        return True


# --- caches -----------------------------------------------------------------------------------------------------------


@cache
def tile_size() -> int:
    """Return how many elements a core rotates at a time: from 2¹⁵ to 2¹⁶, so that five arrays of them fit in its L2."""
    file = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")  # on Linux: "2048K"
    try:
        second = int(file.read_text(encoding="ascii").strip().removesuffix("K")) * 2**10
    except (OSError, ValueError):
        second = 0
    return 2**16 if second >= 2**21 else 2**15


# --- new memory -------------------------------------------------------------------------------------------------------


@cache
def has_huge_pages() -> bool:
    """Whether Linux gives huge pages (2 MiB) to a process that asks for them; False on other systems."""
    file = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return sys.platform == "linux" and file.exists() and "[never]" not in file.read_text(encoding="ascii")


def ask_for_huge_pages(address: int, size: int) -> None:
    """Request huge pages for the `size` bytes of new memory at `address`; do nothing unless `has_huge_pages`."""
    if has_huge_pages():  # fewer pages: the first write to each is slow; NumPy makes this request itself
        first, end = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE, (address + size) // mmap.PAGESIZE * mmap.PAGESIZE
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), mmap.MADV_HUGEPAGE)
