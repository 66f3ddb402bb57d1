"""Memory of arrays: check that results can be written into it, cache sizes, and huge pages for new arrays."""

import ctypes
import mmap
import struct
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rope_any._arrays import _sharding
from rope_any._arrays._library import Array, Library
from rope_any._checks import ArgumentValueError, Text

if TYPE_CHECKING:
    import numpy as np


def require_writable(
    lib: Library, name: str, x: Array, /, *, onto: Array, onto_name: str, others: dict[str, Array]
) -> bool:
    """
    Return whether x, called `name`, has the memory of `onto`; raise unless it can be written.

    It must be writable, `onto` itself or disjoint from it, and disjoint from `others`. Raises also if x overlaps
    itself, or is not sharded as `onto` is. Without known addresses overlap is not checked.
    """
    is_onto = x is onto
    if lib.is_sharded(x) or lib.is_sharded(onto):
        if _sharding.placements(x) != _sharding.placements(onto):
            given, wanted = (a.placements if lib.is_sharded(a) else "a plain array" for a in (x, onto))
            raise ArgumentValueError(name, f"be sharded as {onto_name} is, {wanted}", Text(given))
        x, onto, others = _sharding.local(x), _sharding.local(onto), {k: _sharding.local(a) for k, a in others.items()}
    require_assignable(lib, name, x)
    target = lib.addresses(x)
    if target is None:
        return is_onto  # overlap cannot be checked
    if _overlaps_itself(target):
        got = Text("a broadcast or self-overlapping view")
        raise ArgumentValueError(name, "have an address for each element", got)
    source = lib.addresses(onto)
    if source is not None and _identical(target, source):
        is_onto = is_onto or _shows_memory(lib, onto)
    elif source is not None and _overlap(target, source):
        got = Text("a view that overlaps it in part")
        raise ArgumentValueError(name, f"be {onto_name} itself or not overlap it", got)
    for other, array in others.items():
        if array is not None and (source := lib.addresses(array)) is not None and _overlap(target, source):
            raise ArgumentValueError(name, f"not overlap {other}", Text("arrays that share memory"))
    return is_onto


def require_assignable(lib: Library, name: str, x: Array, *others: Array) -> None:
    """Raise unless x, called `name`, can be written now, with what is computed from the others."""
    if (reason := lib.why_read_only(x, *others)) is not None:
        got, hint = reason
        raise ArgumentValueError(name, "be an array that can be written", Text(got), hint)


def replace_by_outs_if_sure(
    lib: Library, outs: tuple[Array, ...], xs: tuple[Array, ...], others: tuple[Array, ...]
) -> tuple[Array, ...] | None:
    """Return xs, each replaced by its out if that has its memory; None unless outs can be written for sure."""
    spans: list[Any] = [lib.span(array) for array in (*outs, *xs, *others)]
    if None in spans or any(map(lib.why_read_only, outs)):
        return None
    for i, out in enumerate(outs):
        (start, end), own = spans[i], i + len(outs)
        for j, (first, last) in enumerate(spans):
            if first < end and start < last and j != i and (j != own or first != start or last != end):
                return None
        if xs[i] is not out and spans[own] == spans[i] and _shows_memory(lib, xs[i]):
            xs = (*xs[:i], out, *xs[i + 1 :])
    return xs


def _shows_memory(lib: Library, x: Array) -> bool:
    """Whether the elements of x are what its memory holds; False if unsure, as for a lazily negated tensor."""
    return lib.add_facts((x,), [])


pack_addresses = struct.Struct("6Q").pack
"""Pack the addresses of six arrays into bytes, for the loop that Numba compiles."""
PACKED_OFFSETS = bytes.__basicsize__ - 1, 0  # in CPython's bytes; its slots are the data addresses themselves


def view_at(
    address: int | None, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> "np.ndarray[Any, Any] | None":
    """Return a NumPy array at an address, only for `np.shares_memory`; strides are in bytes; None for None or 0."""
    if not address:
        return None
    import numpy as np

    interface = {"version": 3, "data": (address, False), "typestr": f"|V{itemsize}", "shape": shape, "strides": strides}
    return np.asarray(SimpleNamespace(__array_interface__=interface))


def _identical(a: "np.ndarray[Any, Any]", b: "np.ndarray[Any, Any]") -> bool:
    """Whether two arrays have the same shape, and each element at the same address."""
    if a.ctypes.data != b.ctypes.data or a.shape != b.shape or a.itemsize != b.itemsize:
        return False
    return a.strides == b.strides or a.squeeze().strides == b.squeeze().strides  # but for length 1


def _overlap(a: "np.ndarray[Any, Any]", b: "np.ndarray[Any, Any]") -> bool:
    """Whether two arrays share an address; True if it would take too long to find out."""
    import numpy as np

    try:
        return np.shares_memory(a, b, max_work=1_000_000)  # type: ignore[arg-type]  # any limit will do
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(x: "np.ndarray[Any, Any]") -> bool:
    """Whether elements of `x` may share memory: a stride, in ascending order, is less than the extent below it."""
    extent, axes = x.itemsize, zip(map(abs, x.strides), x.shape, strict=True)
    for step, length in sorted(axis for axis in axes if axis[1] > 1):
        if step < extent:
            return x.size > 0
        extent += step * (length - 1)
    return False


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
