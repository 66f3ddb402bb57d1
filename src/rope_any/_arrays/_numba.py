"""Numba's loop for arrays in the memory of a CPU, of whatever library: where they lie, and threads that share them."""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

from rope_any._arrays._library import FLOATING

_TABLE_BYTES = 2**18  # of a table that stay in a cache of one core while they rotate head after head
_MOST_ROWS = 512  # of a unit, so that threads have enough of them to share
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


class _Job(NamedTuple):
    """What the loop is called with for the rows of one array, or of a part of it."""

    layout: tuple[Any, ...]
    units: int
    offsets: tuple[int, ...]
    """In bytes, from the addresses of x, out, cos and sin."""


def launcher(  # noqa: PLR0917  # all that is known beforehand, decided in one place
    kind: tuple[str, str, bool],
    pairs: int,
    first: int,
    sizes: tuple[int, int],
    rows: Sequence[Rows],
    threads: Callable[[], int],
) -> Callable[[Sequence[int]], bool]:
    """
    Return a function that rotates the rows of arrays, all that is known beforehand decided.

    It takes the addresses of the arrays, of those that are written, of cos and of sin, and returns whether they are
    aligned. `kind` is the dtype of x, the pairing, and whether to rotate backwards. In bytes, `first` is how far into a
    row of x the first rotated feature is, and `sizes` are those of a number of x and of the table.
    """
    from rope_any._arrays import _loop

    dtype, pairing, inverse = kind
    loop, direction, (size, wide) = _loop.loop(dtype, pairing), -1.0 if inverse else 1.0, sizes
    zero: float = 0.0 if dtype in {"float32", "float64"} else 0
    count, jobs = len(rows), [_jobs(each, pairs, sizes) for each in rows]
    are_many = 2 * pairs * sum(prod(each.shape) for each in rows) >= _SHARED_FROM

    def launch(found: Sequence[int]) -> bool:
        cos, sin = found[-2:]
        if (cos | sin) % wide or any([address % size for address in found]):  # noqa: C419  # a generator takes longer
            return False
        workers, calls = threads() if are_many else 1, []
        for i, parts in enumerate(jobs):
            x, out = found[i] + first, found[count + i] + first
            for layout, units, (to_x, to_out, to_cos, to_sin) in parts:
                call = zero, direction, layout, x + to_x, out + to_out, cos + to_cos, sin + to_sin
                if workers == 1:
                    loop(*call, 0, units, pairs)
                    continue
                step = max(-(-units // (4 * workers)), 1)
                calls += [(*call, begin, min(begin + step, units), pairs) for begin in range(0, units, step)]
        if calls:
            _share(loop, calls, workers)
        return True

    return launch


def _jobs(rows: Rows, pairs: int, sizes: tuple[int, int]) -> list[_Job]:
    """
    Return the calls of the loop that rotate the rows of one array of so many pairs.

    The loop goes through three batch axes; if there are more, there is a call for each index of the outer ones. `sizes`
    are those of a number of x and of the table, in bytes.
    """
    if 0 in rows.shape:
        return []
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
    size, wide = sizes
    fitting = max(_TABLE_BYTES // (2 * pairs * wide), 1) if last[3] or last[4] else _MOST_ROWS
    tile = min(last[0], _MOST_ROWS, fitting)
    layout = ((second[0], last[0], tile, size, wide), *zip(first[1:], second[1:], last[1:], strict=True))
    units = first[0] * second[0] * -(-last[0] // tile)
    outer = joined[:-3]
    return [
        _Job(
            layout,
            units,
            tuple(sum(i * axis[part] for i, axis in zip(index, outer, strict=True)) for part in range(1, 5)),
        )
        for index in product(*(range(axis[0]) for axis in outer))
    ]


# --- threads ----------------------------------------------------------------------------------------------------------


def threads() -> int:
    """Return how many threads rotate large arrays of NumPy: ``OMP_NUM_THREADS``, or all processors of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _share(loop: Callable[..., None], calls: Sequence[tuple[Any, ...]], count: int) -> None:
    """Make calls of the loop in this thread and others, each taking the next as it is done with one."""
    left = deque(calls)

    def work() -> None:
        while True:
            try:
                call = left.popleft()
            except IndexError:
                return
            loop(*call)

    others: list[Future[None]] = []
    with suppress(RuntimeError):  # at the end of a program no thread can be started: then this one does it all
        for _ in range(min(count, len(calls)) - 1):
            others.append(_pool(count).submit(work))  # noqa: PERF401  # those that could be started are to be waited for
    work()
    for other in others:
        other.result()


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
