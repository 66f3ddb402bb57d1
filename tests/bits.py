"""What tests of repeated calls compare: the bits of results, errors, and how much work of the package a call takes."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rope_any as ra

PACKAGE = str(Path(ra.__file__).parent)


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
        x = x.detach().resolve_neg().contiguous()
        x = x.view({2: sys.modules["torch"].int16}.get(x.element_size(), x.dtype))  # NumPy has no bfloat16
    return np.asarray(x).tobytes()


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
