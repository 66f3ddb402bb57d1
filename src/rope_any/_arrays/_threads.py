"""Run work on large CPU arrays in several threads."""

import os
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import Any

THREADED_FROM = 2**19  # elements, or angles of a table; for fewer, waking threads takes longer than the work


def threads() -> int:
    """Return the number of threads for large NumPy arrays: ``OMP_NUM_THREADS``, or the processors of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_threads(work: Callable[[int, int], Any], length: int, count: int) -> bool:
    """
    Call ``work(begin, end)`` for parts of ``range(length)`` in up to `count` threads; return whether all returned true.

    If an exception is raised, also in the middle by a signal, no thread begins another call, and the exception leaves
    this function when all threads have finished. A second one may leave it earlier, if it comes within microseconds
    of the first. The threads keep `work`, so what it refers to lives as long as it is in use.
    """
    if count == 1:
        return bool(work(0, length))
    size = max(-(-length // (4 * count)), 1)
    left = deque((begin, min(begin + size, length)) for begin in range(0, length, size))
    results, errors, busy = list[Any](), list[BaseException](), list[Lock]()

    def run_calls() -> None:
        """Take parts from the queue that all threads share and work on them, until none is left."""
        while True:
            try:
                part = left.popleft()
            except IndexError:
                return
            results.append(work(*part))

    def help_out() -> None:
        """Work in another thread, which is in `busy` before it takes a part and until it has finished."""
        finished = Lock()
        finished.acquire()
        busy.append(finished)
        try:
            run_calls()
        except BaseException as error:  # noqa: BLE001  # raised in the calling thread
            left.clear()
            errors.append(error)
        finally:
            busy.remove(finished)
            finished.release()

    try:
        _submit(help_out, min(count, len(left)) - 1)
        run_calls()
    finally:
        left.clear()  # before it looks at `busy`: a thread that is not in it finds no part
        _wait_for(busy)
    if errors:
        raise errors.pop()  # in no list: a cycle of references would keep the arrays
    return all(results)


def _wait_for(busy: list[Lock]) -> None:
    """Return when the threads of these locks have finished; raise what is raised meanwhile, but not before."""
    try:
        for finished in tuple(busy):
            finished.acquire()
    except BaseException:
        _wait_for(busy)  # a lock that was acquired is no longer in the list
        raise


# The threads wait for tasks in C. Locks, futures and threads written in Python stay locked if an exception is raised
# within their methods, and then hang this process, even at its exit. Nothing waits for a thread that has no part.
_TASKS: SimpleQueue[Callable[[], object]] = SimpleQueue()
_THREADS: list[int] = []


def _submit(task: Callable[[], object], count: int) -> None:
    """Queue `task` `count` times for helper threads, in copies of this context; start missing threads if possible."""
    with suppress(RuntimeError):  # at interpreter exit no thread can start
        while len(_THREADS) < count:
            _THREADS.append(start_new_thread(_run_tasks, (_TASKS,)))
    for _ in range(min(count, len(_THREADS))):
        _TASKS.put(partial(copy_context().run, task))


def _run_tasks(tasks: SimpleQueue[Callable[[], object]]) -> None:
    """Run task after task, as they come, until the process ends."""
    while True:
        tasks.get()()


def _forget_threads() -> None:
    """Drop the parent's threads in a forked process, which does not have them."""
    global _TASKS  # noqa: PLW0603  # a thread of the parent may have held the lock of the queue
    _TASKS = SimpleQueue()
    _THREADS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
