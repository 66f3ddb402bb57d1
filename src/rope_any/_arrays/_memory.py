"""Where arrays lie in memory: whether a result may be written there, and how large the pages of new memory are."""

import ctypes
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
    lib: Library, name: str, x: Array, /, *, onto: Array, onto_name: str, apart: dict[str, Array]
) -> None:
    """
    Raise unless a result can be written into `x`, called `name`.

    Its elements must be assignable and at addresses of their own; it must be `onto` itself (the same elements
    at the same addresses) or not overlap it, and must not overlap the arrays of `apart`. Of sharded tensors that is
    asked of what this process holds.
    """
    if lib.is_sharded(x) or lib.is_sharded(onto):
        if _sharding.placements(x) != _sharding.placements(onto):
            given, wanted = (a.placements if lib.is_sharded(a) else "a plain array" for a in (x, onto))
            raise ArgumentValueError(name, f"be sharded as {onto_name} is, {wanted}", Text(given))
        x, onto, apart = _sharding.local(x), _sharding.local(onto), {k: _sharding.local(a) for k, a in apart.items()}
    if lib.read_only(x):
        which = "is read-only" if lib.host is not None else f"{lib.name} cannot write"
        raise ArgumentValueError(name, "be an array that can be written", Text(f"one that {which}"))
    target = lib.addresses(x)
    if target is None:
        return
    if _overlaps_itself(target):
        got = Text("a broadcast or self-overlapping view")
        raise ArgumentValueError(name, "have an address for each element", got)
    source = lib.addresses(onto)
    if source is not None and not _identical(target, source) and _overlap(target, source):
        got = Text("a view that overlaps it in part")
        raise ArgumentValueError(name, f"be {onto_name} itself or not overlap it", got)
    for other, array in apart.items():
        if array is not None and (source := lib.addresses(array)) is not None and _overlap(target, source):
            raise ArgumentValueError(name, f"not overlap {other}", Text("arrays that share memory"))


def passes_fast_overlap_check(
    lib: Library, outs: tuple[Array, ...], xs: tuple[Array, ...], others: tuple[Array, ...]
) -> bool:
    """
    Whether all are contiguous, and each of `outs` can be written, is its x or disjoint from it, and from all else.

    False may also mean that this quick look does not tell.
    """
    spans = [lib.span(array) for array in (*outs, *xs, *others)]
    if None in spans or any(map(lib.read_only, outs)):
        return False
    for i, (start, end) in enumerate(spans[: len(outs)]):  # type: ignore[misc]  # none is None
        own = i, i + len(outs)
        for j, span in enumerate(spans):
            if span[0] < end and start < span[1] and not (j in own and span == (start, end)):  # type: ignore[index]
                return False
    return True


pack_addresses = struct.Struct("6Q").pack
"""Return the addresses of six arrays as bytes, for the loop that Numba compiles."""
PACKED_OFFSETS = bytes.__basicsize__ - 1, 0  # of CPython's bytes, whose slots are the addresses themselves


def stand_in(
    address: int | None, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> "np.ndarray[Any, Any] | None":
    """Return an array of NumPy at an address, for NumPy's solver of overlaps; never to be read."""
    if not address:
        return None
    import numpy as np

    interface = {"version": 3, "data": (address, False), "typestr": f"|V{itemsize}", "shape": shape, "strides": strides}
    return np.asarray(SimpleNamespace(__array_interface__=interface))


def _identical(a: "np.ndarray[Any, Any]", b: "np.ndarray[Any, Any]") -> bool:
    """Whether two arrays have each element at the same address."""
    return a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.strides == b.strides and a.itemsize == b.itemsize


def _overlap(a: "np.ndarray[Any, Any]", b: "np.ndarray[Any, Any]") -> bool:
    """Whether two arrays share an address; yes where finding out would take too long."""
    import numpy as np

    try:
        return np.shares_memory(a, b, max_work=1_000_000)  # type: ignore[arg-type]  # any limit will do
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(x: "np.ndarray[Any, Any]") -> bool:
    """Whether elements of `x` may share memory: its strides, from small to large, don't step over each other."""
    extent = x.itemsize
    for step, length in sorted(
        (abs(step), length) for step, length in zip(x.strides, x.shape, strict=True) if length > 1
    ):
        if step < extent:
            return x.size > 0
        extent = step * (length - 1) + extent
    return False


# --- caches -----------------------------------------------------------------------------------------------------------


@cache
def tile_size() -> int:
    """
    Return how many numbers one core rotates at a time, by the size of its second cache.

    A tile and what is made of it take 16 bytes a number. They go into half of a second cache that is large (Intel's of
    2 MiB was measured). Where it is small the third is fast, and its share of a core takes them (AMD's, measured too).
    """
    file = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")  # of Linux: "2048K"
    try:
        second = int(file.read_text(encoding="ascii").strip().removesuffix("K")) * 2**10
    except (OSError, ValueError):
        second = 0
    return (second // 2 if second >= 2**20 else 2**21) // 16


# --- new memory -------------------------------------------------------------------------------------------------------


_HUGE_PAGES_WANTED = 14  # MADV_HUGEPAGE of Linux
_PAGE = 4096


@cache
def has_huge_pages() -> bool:
    """Whether the system gives pages of 2 MiB for new memory where that is asked for."""
    file = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return sys.platform == "linux" and file.exists() and "[never]" not in file.read_text(encoding="ascii")


def ask_for_huge_pages(address: int, size: int) -> None:
    """
    Ask for large pages in new memory of many bytes: the first write to each page, which provides it, takes long.

    NumPy does so by itself. A system that gives none has its reasons, and nothing is lost.
    """
    if has_huge_pages():
        first, end = -(-address // _PAGE) * _PAGE, (address + size) // _PAGE * _PAGE
        _system().madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), _HUGE_PAGES_WANTED)


@cache
def _system() -> ctypes.CDLL:
    return ctypes.CDLL(None)
