"""Threads that share the work on large arrays in the memory of a CPU."""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any

SHARED_FROM = 2**19  # elements, or angles of a table: to wake threads for fewer takes longer than the work


def threads() -> int:
    """Return how many threads rotate large arrays of NumPy: ``OMP_NUM_THREADS``, or all processors of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_shared(
    work: Callable[..., Any], calls: Sequence[tuple[Any, ...]], count: int, keep_alive: object = None
) -> bool:
    """
    Call `work` with each tuple of arguments, in this thread and others; return whether all calls have returned true.

    `count` is the largest number of threads, this one included. `keep_alive` is what the calls use by address: threads
    hold it until they are done, which after an interrupt may be later than this call.
    """
    left, results = deque(calls), list[Any]()

    def take(_: object = keep_alive) -> None:
        while True:
            try:
                call = left.popleft()
            except IndexError:
                return
            results.append(work(*call))

    others: list[Future[None]] = []
    try:
        with suppress(RuntimeError):  # at the end of a program no thread can be started: then this one does it all
            for _ in range(min(count, len(calls)) - 1):
                others.append(_pool(count).submit(copy_context().run, take))  # noqa: PERF401  # each that could start
        take()
        for other in others:
            if not other.cancel():  # it has begun
                other.result()
    finally:
        left.clear()  # after an interrupt no thread begins anything more
    return all(results)


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
