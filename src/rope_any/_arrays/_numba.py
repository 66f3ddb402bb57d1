"""Numba's loops for arrays in the memory of a CPU, of whatever library: whether they can be had, and their threads."""

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from math import prod
from typing import Any

from rope_any._arrays._layout import MOST_PAIRS, BatchAxes, pack
from rope_any._arrays._library import FLOATING
from rope_any._arrays._memory import has_huge_pages

SHARED_FROM = 2**17  # numbers: to start threads for fewer takes longer than to make them
_STREAMED_FROM = 2**25  # bytes that are written: more than most caches hold, so that they need not go there


def refusal(*dtypes: str) -> str | None:
    """Return why Numba cannot compile for numbers of these dtypes, by name, or None."""
    if trouble := _why_not_imported():
        return f"it needs Numba, {trouble}"
    from rope_any._arrays._intrinsics import has_half_precision

    known = FLOATING if has_half_precision() else FLOATING[1:]
    other = next((dtype for dtype in dtypes if dtype not in known), None)
    return None if other is None else f"Numba does not compile {other} on this machine"


@cache
def _why_not_imported() -> str | None:
    """Return why Numba cannot be imported, or None."""
    try:
        import numba  # noqa: F401  # does it come up?
    except ModuleNotFoundError:
        return "which is not installed (the extra numba brings it)"
    except ImportError as error:
        return f"which cannot be imported: {error}"
    return None


def launcher(  # noqa: PLR0917  # all that is known beforehand, decided in one place
    kind: tuple[str, str, bool],
    pairs: int,
    first: int,
    sizes: tuple[int, int],
    each: Sequence[BatchAxes],
    threads: Callable[[], int],
    given: tuple[int, int],
    writes: bool,  # noqa: FBT001  # likewise
) -> Callable[[int], int]:
    """
    Return a function that rotates the rows of one or two arrays, all that is known beforehand decided.

    It takes the address of an object that holds the arrays, and returns whether their numbers are aligned; if not,
    nothing is written: see `_rotation_loop.loop`. `kind` is the dtype of x, the pairing, and whether to rotate
    backwards; `first`, `sizes` and `given` are as in `_layout.pack`. `writes` is whether arrays that are there
    are written, not new ones.
    """
    from rope_any._arrays import _rotation_loop

    dtype, pairing, inverse = kind
    numbers = 2 * pairs * sum(prod(axes.shape) for axes in each)
    whole = 2 * pairs * sizes[0] % 32 == 0 and pairs <= MOST_PAIRS
    streams = numbers * sizes[0] >= _STREAMED_FROM and whole and (writes or has_huge_pages())
    layout, total = pack(each, pairs, first, sizes, given, streams=streams)
    zero: float = 0.0 if dtype in {"float32", "float64"} else 0
    loop = partial(_rotation_loop.loop(dtype, pairing), zero, -1.0 if inverse else 1.0, layout.buffer_info()[0])
    alone = partial(loop, 0, total)
    vars(alone)["layout"] = layout  # which lives as long as what is called with its address
    if numbers < SHARED_FROM:
        return alone

    def shared(arrays: int) -> int:
        workers = threads()
        if workers == 1:
            return alone(arrays)
        step = max(-(-total // (4 * workers)), 1)
        calls = [(begin, min(begin + step, total), arrays) for begin in range(0, total, step)]
        return share(loop, calls, workers, (layout, ctypes.cast(arrays, ctypes.py_object).value))

    return shared


# --- threads ----------------------------------------------------------------------------------------------------------


def threads() -> int:
    """Return how many threads rotate large arrays of NumPy: ``OMP_NUM_THREADS``, or all processors of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(loop: Callable[..., int], calls: Sequence[tuple[Any, ...]], count: int, used: object) -> int:
    """
    Make calls of the loop in this thread and others, each taking the next when done; return the least result.

    `used` is what the calls know by address: threads keep it, for an interrupt may end this call before they are done.
    """
    left, results = deque(calls), list[int]()

    def work(_: object = used) -> None:
        while True:
            try:
                call = left.popleft()
            except IndexError:
                return
            results.append(loop(*call))

    others: list[Future[None]] = []
    try:
        with suppress(RuntimeError):  # at the end of a program no thread can be started: then this one does it all
            for _ in range(min(count, len(calls)) - 1):
                others.append(_pool(count).submit(work))  # noqa: PERF401  # those that could be started are waited for
        work()
        for other in others:
            if not other.cancel():  # it has begun
                other.result()
    finally:
        left.clear()  # after an interrupt no thread begins anything more
    return min(results)


def _pool(count: int) -> ThreadPoolExecutor:
    """Return threads that wait for work, as many as are asked for or more."""
    with _LOCK:
        if not _POOLS or _POOLS[-1][0] < count:
            _POOLS.append((count, ThreadPoolExecutor(count, thread_name_prefix="rope_any")))
        return _POOLS[-1][1]


_POOLS: list[tuple[int, ThreadPoolExecutor]] = []
_LOCK = threading.Lock()


def _forget_threads() -> None:
    """Forget the threads of the parent, which a forked process does not have."""
    global _LOCK  # noqa: PLW0603  # it may be held by a thread that is not there
    _LOCK = threading.Lock()
    _POOLS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
