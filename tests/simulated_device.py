"""A device of torch that is not the CPU, for machines without one: `simulated_device.cpp`, compiled and loaded."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

_SOURCE = Path(__file__).with_suffix(".cpp")


@cache
def load() -> Callable[[], tuple[int, int]]:
    """
    Load the devices sim:0 and sim:1 into this process; skip without torch or g++.

    The result is a function that returns the numbers, since its last call, of copies between the host and a device, and
    of functions for which the host waits.
    """
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if (compiler := shutil.which("g++")) is None:
        pytest.skip("there is no g++, which compiles the simulated device")
    path = _built(compiler, Path(torch.__file__).parent, torch.__version__)
    torch.ops.load_library(path)
    torch.utils.rename_privateuse1_backend("sim")
    # It says that it is not there, so that no other code chooses it, or keeps the state of its random numbers.
    module = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0, current_device=lambda: 0)
    vars(module).update(_is_in_bad_fork=lambda: False, manual_seed_all=lambda _: None)
    torch._register_device_module("sim", module)
    copies, waits = (ctypes.c_long.in_dll(ctypes.CDLL(path), name) for name in ("copies", "waits"))

    def counted() -> tuple[int, int]:
        """Return the counts, and begin anew."""
        counts = copies.value, waits.value
        copies.value = waits.value = 0
        return counts

    return counted


def _built(compiler: str, torch: Path, version: str) -> str:
    """Return the path of the compiled source; it is compiled once for each version of torch."""
    import fcntl

    key = hashlib.sha256(f"{version} {torch}\n{_SOURCE.read_text()}".encode()).hexdigest()[:16]
    target = Path(tempfile.gettempdir(), f"rope-any-device-{os.getuid()}-{key}.so")
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the tests may compile it now
        if not target.exists():
            made = target.with_suffix(".new")
            options = ["-std=c++20", "-O0", "-w", "-shared", "-fPIC", f"-isystem{torch}/include", f"-L{torch}/lib"]
            subprocess.run([compiler, *options, _SOURCE, "-o", made, "-ltorch_cpu", "-lc10"], check=True)
            made.rename(target)
    return str(target)
