"""Numba's loop for arrays in the memory of a CPU, of whatever library: where they lie, and threads that share them."""

import os
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

from rope_any._arrays._library import FLOATING
from rope_any._arrays._memory import has_huge_pages

_TABLE_BYTES = 2**18  # of a table that stay in a cache of one core while they rotate head after head
_MOST_ROWS = 512  # of a unit, so that threads have enough of them to share
_STREAMED_FROM = 2**25  # bytes that are written: more than most caches hold, so that they need not go there
_SHARED_FROM = 2**17  # numbers: to start threads for fewer takes longer than to rotate them


def refusal(*dtypes: str) -> str | None:
    """Return why Numba cannot compile for numbers of these dtypes, by name, or None."""
    if trouble := _why_not_imported():
        return f"it needs Numba, {trouble}"
    from rope_any._arrays._loop import has_half_precision

    known = FLOATING if has_half_precision() else FLOATING[1:]
    other = next((dtype for dtype in dtypes if dtype not in known), None)
    return None if other is None else f"Numba does not compile {other} on this machine"


@cache
def _why_not_imported() -> str | None:
    try:
        import numba  # noqa: F401  # does it come up?
    except ModuleNotFoundError:
        return "which is not installed (the extra numba brings it)"
    except ImportError as error:
        return f"which cannot be imported: {error}"
    return None


class Rows(NamedTuple):
    """Rows of an array and where they are written and rotated by: the length of each batch axis, and steps in bytes."""

    shape: tuple[int, ...]
    x: tuple[int, ...]
    out: tuple[int, ...]
    cos: tuple[int, ...]
    sin: tuple[int, ...]


def launcher(  # noqa: PLR0917  # all that is known beforehand, decided in one place
    kind: tuple[str, str, bool],
    pairs: int,
    first: int,
    sizes: tuple[int, int],
    rows: Sequence[Rows],
    threads: Callable[[], int],
    behind: int,
    writes: bool,  # noqa: FBT001  # likewise
) -> Callable[..., int]:
    """
    Return a function that rotates the rows of one or two arrays, all that is known beforehand decided.

    It takes six addresses: of x, of another x or the same, of what they are written into, of cos and of sin; or, with
    `behind`, those of objects that hold them so many bytes behind their own. It returns whether they are aligned; if
    not, nothing is written. `kind` is the dtype of x, the pairing, and whether to rotate backwards. In bytes, `first`
    is how far into a row of x the first rotated feature is, and `sizes` are those of a number of x and of the table.
    `writes` is whether arrays that are there are written, not new ones.
    """
    from rope_any._arrays import _loop

    dtype, pairing, inverse = kind
    jobs, total = [], 0
    for which, each in enumerate(rows):
        for units, *shape, of_x, of_out, of_cos, of_sin in _jobs(each, pairs, sizes):
            (x, *x_steps), (out, *out_steps) = of_x, of_out
            jobs += [total, units, *shape, which, x + first, *x_steps, out + first, *out_steps, *of_cos, *of_sin]
            total += units
    numbers = 2 * pairs * sum(prod(each.shape) for each in rows)
    streams = numbers * sizes[0] >= _STREAMED_FROM and 2 * pairs * sizes[0] % 32 == 0 and pairs <= _loop.MOST_PAIRS
    words = array("q", [behind, *sizes, pairs, streams and (writes or has_huge_pages()), len(jobs) // _loop.JOB, *jobs])
    zero: float = 0.0 if dtype in {"float32", "float64"} else 0
    loop = partial(_loop.loop(dtype, pairing), zero, -1.0 if inverse else 1.0, words.buffer_info()[0])
    alone = partial(loop, 0, total)
    vars(alone)["words"] = words  # which live as long as what is called with their address
    if numbers < _SHARED_FROM:
        return alone

    def launch(*given: int) -> int:
        workers = threads()
        if workers == 1:
            return alone(*given)
        step = max(-(-total // (4 * workers)), 1)
        return _share(loop, [(begin, min(begin + step, total), *given) for begin in range(0, total, step)], workers)

    return launch


def _jobs(rows: Rows, pairs: int, sizes: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
    """
    Yield jobs of the loop that rotate the rows of one array of so many pairs.

    The loop goes through three batch axes; if there are more, there is a job for each index of the outer ones. A job is
    how many units it has, the lengths of its middle and its inner axis, how much of the inner one is a unit; and for x,
    out, cos and sin each the offset and the steps along the three axes. All sizes and steps are in bytes.
    """
    if 0 in rows.shape:
        return
    # The axes in the order of x in memory, without those of length 1; neighbours that x, out, cos and sin could all
    # have as one axis are joined.
    axes = sorted((axis for axis in zip(*rows, strict=True) if axis[0] != 1), key=lambda axis: -abs(axis[1]))
    joined: list[tuple[int, ...]] = []
    for n, *steps in axes:
        if joined and all(before == n * step for before, step in zip(joined[-1][1:], steps, strict=True)):
            joined[-1] = (joined[-1][0] * n, *steps)
        else:
            joined.append((n, *steps))
    first, second, last = ([(1, 0, 0, 0, 0)] * 3 + joined)[-3:]
    fitting = max(_TABLE_BYTES // (2 * pairs * sizes[1]), 1) if last[3] or last[4] else _MOST_ROWS
    tile = min(last[0], _MOST_ROWS, fitting)
    units, outer = first[0] * second[0] * -(-last[0] // tile), joined[:-3]
    for index in product(*(range(axis[0]) for axis in outer)):
        offsets = (sum(i * axis[part] for i, axis in zip(index, outer, strict=True)) for part in range(1, 5))
        yield units, second[0], last[0], tile, *zip(offsets, first[1:], second[1:], last[1:], strict=True)


# --- threads ----------------------------------------------------------------------------------------------------------


def threads() -> int:
    """Return how many threads rotate large arrays of NumPy: ``OMP_NUM_THREADS``, or all processors of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _share(loop: Callable[..., int], calls: Sequence[tuple[Any, ...]], count: int) -> int:
    """Make calls of the loop in this thread and others, each taking the next when done; return the least result."""
    left, results = deque(calls), list[int]()

    def work() -> None:
        while True:
            try:
                call = left.popleft()
            except IndexError:
                return
            results.append(loop(*call))

    others: list[Future[None]] = []
    with suppress(RuntimeError):  # at the end of a program no thread can be started: then this one does it all
        for _ in range(min(count, len(calls)) - 1):
            others.append(_pool(count).submit(work))  # noqa: PERF401  # those that could be started are to be waited for
    work()
    for other in others:
        if not other.cancel():  # it has begun
            other.result()
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
