"""``out=`` and in place need a few MiB beyond the arrays, at any size: tested with a memory-mapped file."""

from pathlib import Path

import pytest
from cases import python

pytestmark = [
    pytest.mark.thread_unsafe(reason="starts processes"),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read in /proc"),
]

# RssAnon is the memory of the process itself, without the pages of files.
_ROTATE = """
import re, sys, threading, time
import numpy as np
import rope_any as ra

def process_memory():
    with open("/proc/self/status") as status:
        return int(re.search(r"RssAnon:\\s+(\\d+)", status.read())[1]) / 1024

(path, tokens, library, schedule), pairings = sys.argv[1:5], sys.argv[5:]
tokens, fused = int(tokens), schedule == "fused"
x = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(1, 32, tokens, 128))
row = np.random.default_rng(0).standard_normal((1, 32, 1, 128), dtype=np.float32)
put = np.asarray
if library == "torch":
    import torch
    put = torch.from_numpy
    torch.set_num_threads(2)
array = put(x)
for pairing in pairings:
    for first in range(0, tokens, 4096):
        x[:, :, first : first + 4096] = row
    rope = ra.Rope(ra.frequencies(128), pairing=pairing)
    table = rope.table(put(np.arange(tokens)))
    rope.apply(array, table, out=array, fused=fused)  # compiles, starts threads
    last = rope.apply(put(row), [tokens - 1])
    error = float(abs(np.asarray(last) - x[:, :, -1:]).max())
    before = highest = process_memory()
    done = []

    def watch():
        global highest
        while not done:
            highest = max(highest, process_memory())
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    rope.apply(array, table, out=array, fused=fused)
    done.append(True)
    watcher.join()
    print(highest - before, error)
"""


def peak_growth(path, tokens, *arguments):
    """Return the largest growth of the memory of a process in MiB; check the result of each pairing."""
    printed = python("-W", "error::RuntimeWarning", "-c", _ROTATE, path, tokens, *arguments)
    path.unlink()
    growths, errors = zip(*(map(float, line.split()) for line in printed.splitlines()), strict=True)
    assert max(errors) < 2e-6
    return max(growths)


@pytest.mark.long
@pytest.mark.parametrize("fused", ["eager", "fused"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_mapped_file_is_rotated_in_place(tmp_path, library, fused):
    needed = {"torch": "torch", "numpy": "numba"}[library] if fused == "fused" or library == "torch" else "numpy"
    pytest.importorskip(needed, reason=f"{needed} is not installed")
    # 128 MiB; temporary arrays of torch's compiler take a MiB or two for each core
    assert peak_growth(tmp_path / "x.npy", 8192, library, fused, "half", "interleaved") < 24


@pytest.mark.slow
def test_four_gibibytes_are_rotated_in_place(tmp_path):
    assert peak_growth(tmp_path / "x.npy", 2**18, "numpy", "eager", "half") < 8
