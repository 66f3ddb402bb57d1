"""
What tests of repeated calls share.

Their Ropes and fixtures, and what they compare: the bits of results, errors, and how much work of the package a call
takes.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cupy_stand_in
import numpy as np
import pytest

import rope_any as ra

PACKAGE = str(Path(ra.__file__).parent)
PAIRINGS = ("half", "interleaved")
F = ra.frequencies(32, base=100.0)
ROPES = {pairing: ra.Rope(F, pairing=pairing) for pairing in PAIRINGS}
ROPE = ROPES["half"]
# Views in memory of an array of NumPy.
VIEWS = {
    "contiguous": lambda x: x,
    "tokens first": lambda x: np.swapaxes(np.ascontiguousarray(np.swapaxes(x, 0, -2)), 0, -2) if x.ndim > 1 else x,
    "every other feature": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "part of a wider row": lambda x: np.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
    "unaligned start": lambda x: np.concatenate([x[..., :1], x], axis=-1)[..., 1:],
}


@pytest.fixture(autouse=True)
def empty_caches() -> Iterator[None]:
    """Clear the caches before and after each test of a file that imports this fixture."""
    ra.clear_caches()
    yield
    ra.clear_caches()


@pytest.fixture(params=["numpy", "torch"])
def cpu_arrays(request: pytest.FixtureRequest) -> Iterator[Callable[[np.ndarray], Any]]:
    """Yield a function that makes an array of a library with ``out=`` from NumPy's, in the same memory."""
    if request.param == "cupy":
        with cupy_stand_in.installed():
            yield cupy_stand_in.ndarray
    elif request.param == "numpy":
        yield np.asarray
    else:
        yield pytest.importorskip("torch", reason="torch is not installed").from_numpy


@pytest.fixture(params=PAIRINGS)
def each_pairing(request: pytest.FixtureRequest) -> str:
    """Return each pairing."""
    return request.param


with_cupy = pytest.mark.parametrize("arrays", ["numpy", "torch", "cupy"], indirect=True)
"""Run a test on the stand-in for CuPy too: for those whose fixture `arrays` is `cpu_arrays`."""


@pytest.fixture
def thread_count(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int | str], None]]:
    """Return a function that sets the number of threads that share large arrays; torch's is restored."""
    torch = sys.modules.get("torch")
    before = torch and torch.get_num_threads()

    def use(count: int | str) -> None:
        """Set the number of threads; torch has no "many"."""
        monkeypatch.setenv("OMP_NUM_THREADS", str(count))
        if torch and count != "many":
            torch.set_num_threads(count)

    yield use
    if torch:
        torch.set_num_threads(before)


def data(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Return random numbers as a NumPy array, the same in each call."""
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(dtype)


def bits(result: Any) -> list[tuple[str, str, tuple[int, ...], bytes]]:
    """Return one array or several as bytes, with their types, dtypes and shapes."""
    parts = result if isinstance(result, tuple) else (result,)
    return [(type(x).__name__, str(x.dtype), tuple(x.shape), _bytes(x)) for x in parts]


def _bytes(x: Any) -> bytes:
    """Return the bytes of an array."""
    if type(x).__module__.startswith("torch"):
        x = x.detach().cpu().resolve_neg().contiguous()
        x = x.view({2: sys.modules["torch"].int16}.get(x.element_size(), x.dtype))  # NumPy has no bfloat16
    return (x.get() if type(x).__module__ == "cupy" else np.asarray(x)).tobytes()


def outcome(call: Callable[[], Any]) -> Any:
    """Return the bits of a call's result, or the error that it raises."""
    try:
        return bits(call())
    except Exception as error:  # noqa: BLE001  # any error is compared
        return f"{type(error).__name__}: {error}"


def work(call: Callable[[], Any]) -> int:
    """Return how many times a call enters a Python function of the package: few if an earlier one decided for it."""
    entered = 0

    def count(frame: Any, event: str, _: Any) -> None:
        """Count the functions of the package that are entered."""
        nonlocal entered
        entered += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(before)
    return entered
