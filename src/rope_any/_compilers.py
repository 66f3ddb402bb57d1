"""
The compilers that array libraries bring, and what each can compile.

Some compile functions of arrays (torch.compile, jax.jit, mlx.compile), others a line of arithmetic into a loop that
writes (Numba for NumPy, cupy.fuse). Libraries are named here as in `_array`.
"""

import inspect
import sys
import threading
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from rope_any import _array
from rope_any._array import Array

Line: TypeAlias = Callable[[Any, Any, Any, Any], Any]
"""The line of mathematics, of arrays or of numbers."""


def obstacle(x: Array, *others: Array | None) -> str | None:
    """Return why nothing can be compiled for `x` with the other arrays, which no compiler is tracing; or None."""
    library, dtype = _array.library(x), _array.dtype_name(x.dtype)
    if library == "torch":
        return _torch_obstacle(*(tensor for tensor in (x, *others) if tensor is not None))
    if library == "numpy":
        if trouble := _numba_trouble():
            return f"NumPy is compiled by Numba, {trouble}"
        if dtype not in {"float32", "float64"}:
            return f"Numba does not compile {dtype} on a CPU"
        plain = all(part is None or (part.dtype.isnative and part.flags.aligned) for part in (x, *others))
        return None if plain else "Numba needs numbers that are aligned and in the machine's byte order"
    if library == "cupy" and dtype == "bfloat16":
        return "cupy.fuse does not compile bfloat16"
    return None if library in {"cupy", "jax", "mlx"} else f"{library} has no compiler"


def _torch_obstacle(*tensors: Array) -> str | None:
    if not _array.are_plain_tensors(*tensors):
        return "a tensor of a subclass, without memory or under a transformation is not compiled"
    # It reads the numbers behind such a view with their old sign (torch 2.13).
    return "torch.compile does not see a negative bit" if any(tensor.is_neg() for tensor in tensors) else None


@cache
def _numba_trouble() -> str | None:
    """Return why Numba cannot be used, or None."""
    try:
        import numba  # noqa: F401  # does it come up?
    except ModuleNotFoundError:
        return "which is not installed (the extra numba brings it)"
    except ImportError as error:
        return f"which cannot be imported: {error}"
    return None


def fallen_back(reason: str) -> None:
    """Warn, once for each reason, that a call with ``fused=True`` runs as without."""
    if reason in _TOLD:
        return
    frame, level, house = sys._getframe(), 1, str(Path(__file__).parent)  # noqa: SLF001  # to point at the caller's line
    while frame.f_back is not None and frame.f_code.co_filename.startswith(house):
        frame, level = frame.f_back, level + 1
    warnings.warn(f"fused=True falls back to the eager schedule: {reason}", RuntimeWarning, stacklevel=level)
    _TOLD.add(reason)


_TOLD: set[str] = set()


def compiles_lines(x: Array) -> bool:
    """Whether the compiler of `x` takes a line of arithmetic; if not, it takes functions of arrays."""
    return _array.library(x) in {"numpy", "cupy"}


def writes(x: Array) -> bool:
    """Whether compiled functions of arrays write into what they are given."""
    return _array.library(x) == "torch"


def compiled(function: Callable[..., Array], library: str) -> Callable[..., Array]:
    """Return a function of arrays, compiled; where that fails it warns, and the function runs as it is."""
    fast = _COMPILE[library](function)

    def call(*arrays: Array) -> Array:
        if failed:
            return function(*arrays)
        try:
            return fast(*arrays)
        except Exception as error:  # noqa: BLE001  # of any kind: compilers raise their own
            result = function(*arrays)  # what is wrong with the arrays is said here
            failed.append(error)
            fallen_back(f"the compiler of {library} failed ({type(error).__name__})")
            return result

    failed: list[Exception] = []
    return call


def _torch_compile(function: Callable[..., Array]) -> Callable[..., Array]:
    import torch

    # One graph for all lengths; what still differs (axes of one, orders of axes) may be compiled many times.
    wanted = {"recompile_limit": 64, "isolate_recompiles": True}
    known = inspect.signature(torch.compile).parameters
    options: Any = {name: value for name, value in wanted.items() if name in known}
    fast: Callable[..., Array] = torch.compile(function, fullgraph=True, dynamic=True, **options)
    return fast


def _jax_jit(function: Callable[..., Array]) -> Callable[..., Array]:
    import jax

    fast: Callable[..., Array] = jax.jit(function)
    return fast


def _mlx_compile(function: Callable[..., Array]) -> Callable[..., Array]:
    import mlx.core as mx

    fast: Callable[..., Array] = mx.compile(function)
    return fast


_COMPILE = {"torch": _torch_compile, "jax": _jax_jit, "mlx": _mlx_compile}


# --- lines of arithmetic ----------------------------------------------------------------------------------------------


class Places(NamedTuple):
    """Where the members of pair i are, ``i * step`` and ``i * step + gap``, and the sense of the turn, 1 or −1."""

    step: int
    gap: int
    sense: int


def write_line(line: Line, out: Array, x: Array, table: tuple[Array, Array], places: Places) -> bool:
    """
    Write ``line(a, b, c, s)`` and ``line(b, a, c, −s)`` for the members of all pairs of x into those of `out`.

    Return whether it was done. Where the compiler fails nothing is written, and a warning given.
    """
    library = _array.library(x)
    try:
        (_write_numpy if library == "numpy" else _write_cupy)(line, out, x, table, places)
    except Exception as error:  # noqa: BLE001  # of any kind: compilers raise their own
        fallen_back(f"the compiler of {library} failed ({type(error).__name__})")
        return False
    return True


_ALONE = threading.Lock()  # Numba's own threads are not to be started from two threads


def _write_numpy(line: Line, out: Array, x: Array, table: tuple[Array, Array], places: Places) -> None:
    import numpy as np

    # (..., batch, heads, seq, features) without axes of one, and what there is of `...` one by one
    kept = [axis for axis, n in enumerate(x.shape[:-1]) if n != 1]
    missing = (1,) * (3 - len(kept))
    out, x, cos, sin = (
        part.reshape((*missing, *(part.shape[axis] for axis in kept), part.shape[-1]))
        for part in map(np.asarray, (out, x, *table))
    )
    kernel, number = _numba_kernel(line, places.step), x.dtype.type
    with _ALONE:
        for outer in np.ndindex(x.shape[:-4]):
            part = tuple(0 if n == 1 else i for i, n in zip(outer, cos.shape[:-4], strict=True))
            kernel((out[outer], x[outer]), (cos[part], sin[part]), places.gap, number(places.sense))


@cache
def _numba_kernel(line: Line, step: int) -> Callable[..., None]:
    """Return a loop over all pairs of ``(batch, heads, seq, features)``, over rows in parallel."""
    import numba

    turned: Any = numba.njit(line, inline="always")

    def kernel(arrays: tuple[Array, Array], table: tuple[Array, Array], gap: int, sense: float) -> None:
        (out, x), (cos, sin) = arrays, table
        batch, heads, seq, _ = x.shape
        for row in numba.prange(batch * heads * seq):
            i, j, k = row // seq // heads, row // seq % heads, row % seq
            u, v, w = i % cos.shape[0], j % cos.shape[1], k % cos.shape[2]  # an axis of one is for all
            for pair in range(cos.shape[3]):
                a, b = x[i, j, k, step * pair], x[i, j, k, step * pair + gap]
                c, s = cos[u, v, w, pair], sense * sin[u, v, w, pair]
                first, second = turned(a, b, c, s), turned(b, a, c, -s)
                out[i, j, k, step * pair] = first
                out[i, j, k, step * pair + gap] = second

    fast: Any = numba.njit(kernel, parallel=True)
    return fast  # type: ignore[no-any-return]  # a callable of Numba's


def _write_cupy(line: Line, out: Array, x: Array, table: tuple[Array, Array], places: Places) -> None:
    end = x.shape[-1] - places.gap
    members = [part[..., start : start + end : places.step] for part in (x, out) for start in (0, places.gap)]
    kernel = _cupy_kernel(line, "float64" if x.dtype.name == "float64" else "float32", places.sense)
    kernel(*members, *table)


@cache
def _cupy_kernel(line: Line, dtype: str, sense: int) -> Callable[..., None]:
    """Return one kernel for all pairs; both members of a pair are read before either is written."""
    import cupy

    def kernel(a: Array, b: Array, to_a: Array, to_b: Array, c: Array, s: Array) -> None:  # noqa: PLR0917  # no tuples
        a, b, c, s = (part.astype(dtype) for part in (a, b, c, s))
        s = s if sense == 1 else -s
        first, second = line(a, b, c, s), line(b, a, c, -s)
        to_a[...] = first
        to_b[...] = second

    fast: Callable[..., None] = cupy.fuse(kernel)
    return fast
