"""Memory of a rotation in addition to its arrays."""

import tempfile
import threading
from pathlib import Path
from statistics import median_low

from .bench_rotate import BATCH, HEAD_DIM, HEADS, PAIRINGS, SEQ, forward_and_backward, some_table
from .common import SCHEDULES, load, once, scheduled

SHAPE = (4 * BATCH, HEADS, SEQ, HEAD_DIM)  # 256 MiB in float32


class RotateInPlacePeak:
    """The peak memory of a process that rotates 256 MiB in place."""

    param_names = ("library", "pairing")
    params = (["numpy", "torch"], PAIRINGS)

    @once
    def setup(self, name, pairing):
        import numpy as np

        library = load(name)
        x = holding(name, np.ones(SHAPE, dtype=np.float32))
        self.call = library.prepared(in_place(x, pairing), *some_table(library, SEQ))

    def peakmem_rotate(self, *_):
        self.call()


class GradientPeak:
    """The peak memory of a process that rotates queries of 64 MiB and computes a vjp of 64 MiB."""

    param_names = ("library",)
    params = (["torch", "jax"],)

    @once
    def setup(self, name):
        self.call = forward_and_backward(load(name), "float32", "half")

    def peakmem_forward_backward(self, _):
        self.call()


class MemmapGrowth:
    """A memory-mapped file of 256 MiB, rotated in place: the process's own memory must not grow by a copy."""

    param_names = ("library", "schedule", "pairing")
    params = (["numpy", "torch"], SCHEDULES, PAIRINGS)
    unit = "MiB"

    def setup(self, name, schedule, pairing):
        import numpy as np

        import rope_any as ra

        anonymous_bytes()  # or skip
        library = load(name)
        with tempfile.TemporaryFile() as file:
            x = np.memmap(file, dtype=np.float32, mode="w+", shape=SHAPE)
        x[...] = 1
        prepared, options = scheduled(library, schedule, ra.rotate)
        self.call = prepared(in_place(holding(name, x), pairing, **options), *some_table(library, SEQ))

    def track_growth(self, *_):
        # Rounded up to steps: smaller differences are noise, and would be large as a factor.
        step = 16 * 2**20
        usual = median_low(growth(self.call) for _ in range(5))  # the first calls after compiling allocate more
        return 16 * max(1, -(-usual // step))


def holding(name, x):
    """Return an array of a library that shares the memory of a NumPy array."""
    if name == "numpy":
        return x
    import torch

    return torch.from_numpy(x)


def in_place(x, pairing, **options):
    """Return a function that rotates x in place by a table."""
    import rope_any as ra

    return lambda cos, sin: ra.rotate(x, cos, sin, pairing=pairing, out=x, **options)


def growth(call):
    """Return the largest growth of the process's own memory during a call, in bytes."""
    before, most, done = anonymous_bytes(), [0], threading.Event()

    def watch():
        """Update the largest growth until the call is done."""
        while not done.wait(0.001):
            most[0] = max(most[0], anonymous_bytes() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        call()
    finally:
        done.set()
        watcher.join()
    return max(most[0], anonymous_bytes() - before)


def anonymous_bytes():
    """Return the anonymous memory of this process in bytes, on Linux; skip the case on other systems."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    except (OSError, ValueError) as error:
        msg = "only Linux reports the memory of a process without that of files"
        raise NotImplementedError(msg) from error
    return int(line.split()[1]) * 1024
