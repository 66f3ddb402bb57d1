"""Memory: what a rotation takes beside its arrays."""

import tempfile
import threading
from pathlib import Path
from statistics import median_low

from .bench_rotate import BATCH, HEAD_DIM, HEADS, PAIRINGS, SEQ, forward_and_backward, some_table
from .common import SCHEDULES, load, once, scheduled

SHAPE = (4 * BATCH, HEADS, SEQ, HEAD_DIM)  # 256 MiB in float32


class RotateInPlacePeak:
    """The peak of a process that turns 256 MiB where they are."""

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
    """The peak of a process that turns queries of 64 MiB and pulls a gradient of 64 MiB back."""

    param_names = ("library",)
    params = (["torch", "jax"],)

    @once
    def setup(self, name):
        self.call = forward_and_backward(load(name), "float32", "half")

    def peakmem_forward_backward(self, _):
        self.call()


class MemmapGrowth:
    """A file of 256 MiB, turned where it is: the process's own memory must not grow by a copy."""

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
        # In steps, from one step on: smaller differences are chance, and would be a large factor of almost nothing.
        step = 16 * 2**20
        usual = median_low(growth(self.call) for _ in range(5))  # the first calls after compiling take some more
        return 16 * max(1, -(-usual // step))


def holding(name, x):
    """Return an array of a library with the memory of a NumPy array."""
    if name == "numpy":
        return x
    import torch

    return torch.from_numpy(x)


def in_place(x, pairing, **options):
    """Return a function of a table that turns x by it."""
    import rope_any as ra

    return lambda cos, sin: ra.rotate(x, cos, sin, pairing=pairing, out=x, **options)


def growth(call):
    """Return by how many bytes the process's own memory grows, at most, during a call."""
    before, most, done = anonymous_bytes(), [0], threading.Event()

    def watch():
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
    """Return how much memory the process has that is of no file, where Linux tells."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    except (OSError, ValueError) as error:
        msg = "only Linux tells a process's own memory from that of files"
        raise NotImplementedError(msg) from error
    return int(line.split()[1]) * 1024
