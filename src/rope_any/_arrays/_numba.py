"""Numba, which compiles the formula into one loop over arrays of NumPy."""

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from rope_any._arrays._compilers import Formula, PairLayout
from rope_any._arrays._library import Array


def refusal(x: Array, *others: Array | None) -> str | None:
    """Return why Numba cannot compile for arrays of NumPy, or None."""
    if trouble := _why_not_imported():
        return f"NumPy is compiled by Numba, {trouble}"
    if x.dtype.name not in {"float32", "float64"}:
        return f"Numba does not compile {x.dtype.name} on a CPU"
    plain = all(part is None or (part.dtype.isnative and part.flags.aligned) for part in (x, *others))
    return None if plain else "Numba needs numbers that are aligned and in the machine's byte order"


@cache
def _why_not_imported() -> str | None:
    try:
        import numba  # noqa: F401  # does it come up?
    except ModuleNotFoundError:
        return "which is not installed (the extra numba brings it)"
    except ImportError as error:
        return f"which cannot be imported: {error}"
    return None


_LOCK = threading.Lock()  # Numba's own threads are not to be started from two threads


def write_pairs(formula: Formula, out: Array, x: Array, table: tuple[Array, Array], layout: PairLayout) -> None:
    """Write the rotated pairs of x into `out`: see `_compilers.write_pairs`."""
    # (..., batch, heads, seq, features) without axes of one, and what there is of `...` one by one
    kept = [axis for axis, n in enumerate(x.shape[:-1]) if n != 1]
    missing = (1,) * (3 - len(kept))
    out, x, cos, sin = (
        part.reshape((*missing, *(part.shape[axis] for axis in kept), part.shape[-1]))
        for part in map(np.asarray, (out, x, *table))
    )
    kernel, number = _kernel(formula, layout.step), x.dtype.type
    with _LOCK:
        for outer in np.ndindex(x.shape[:-4]):
            part = tuple(0 if n == 1 else i for i, n in zip(outer, cos.shape[:-4], strict=True))
            kernel((out[outer], x[outer]), (cos[part], sin[part]), layout.gap, number(layout.direction))


@cache
def _kernel(formula: Formula, step: int) -> Callable[..., None]:
    """Return a loop over all pairs of ``(batch, heads, seq, features)``, over rows in parallel."""
    import numba

    inlined: Any = numba.njit(formula, inline="always")

    def kernel(arrays: tuple[Array, Array], table: tuple[Array, Array], gap: int, direction: float) -> None:
        (out, x), (cos, sin) = arrays, table
        batch, heads, seq, _ = x.shape
        for row in numba.prange(batch * heads * seq):
            i, j, k = row // seq // heads, row // seq % heads, row % seq
            u, v, w = i % cos.shape[0], j % cos.shape[1], k % cos.shape[2]  # an axis of one is for all
            for pair in range(cos.shape[3]):
                a, b = x[i, j, k, step * pair], x[i, j, k, step * pair + gap]
                c, s = cos[u, v, w, pair], direction * sin[u, v, w, pair]
                first, second = inlined(a, b, c, s), inlined(b, a, c, -s)
                out[i, j, k, step * pair] = first
                out[i, j, k, step * pair + gap] = second

    fast: Any = numba.njit(kernel, parallel=True)
    return fast  # type: ignore[no-any-return]  # a callable of Numba's
