"""Run work on large CPU arrays in several threads."""

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any

THREADED_FROM = 2**19  # elements, or angles of a table; for fewer, waking threads takes longer than the work


def threads() -> int:
    """Return the number of threads for large NumPy arrays: ``OMP_NUM_THREADS``, or the processors of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_threads(
    work: Callable[..., Any], calls: Sequence[tuple[Any, ...]], count: int, keep_alive: object = None
) -> bool:
    """Call `work` with each tuple in up to `count` threads, this included; return whether all returned true."""
    left, results = deque(calls), list[Any]()

    # After an interrupt, threads may be done later than this call: they keep the arrays that they use by address.
    def run_calls(_: object = keep_alive) -> None:
        """Take calls from the queue that all threads share and run them, until none is left."""
        while True:
            try:
                call = left.popleft()
            except IndexError:
                return
            results.append(work(*call))

    others: list[Future[None]] = []
    try:
        with suppress(RuntimeError):  # at interpreter exit no thread can start; then this one runs all calls
            for _ in range(min(count, len(calls)) - 1):
                others.append(_pool(count).submit(copy_context().run, run_calls))  # noqa: PERF401  # keep those begun
        run_calls()
        for other in others:
            if not other.cancel():  # it has begun
                other.result()
    finally:
        left.clear()  # after an interrupt no thread begins another call
    return all(results)


def _pool(count: int) -> ThreadPoolExecutor:
    """Return the latest pool if it has `count` threads or more; else a new one, which later calls share."""
    with _LOCK:
        if not _POOLS or _POOLS[-1][0] < count:
            _POOLS.append((count, ThreadPoolExecutor(count, thread_name_prefix="rope_any")))
        return _POOLS[-1][1]


_POOLS: list[tuple[int, ThreadPoolExecutor]] = []
_LOCK = threading.Lock()


def _forget_threads() -> None:
    """Drop the parent's threads in a forked process, which does not have them."""
    global _LOCK  # noqa: PLW0603  # a thread of the parent may have held it
    _LOCK = threading.Lock()
    _POOLS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
