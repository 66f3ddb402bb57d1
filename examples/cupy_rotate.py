"""
Rotation on a GPU by CuPy: one kernel for queries, and its time beside that of a copy.

A copy reads and writes each byte once, and so does an ideal rotation. The program also compares
the result with float64 on the host.

Needs a CUDA GPU and CuPy (extra ``cupy-cuda12x`` or ``cupy-cuda13x``).

    python examples/cupy_rotate.py
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import rope_any as ra

ROPE = ra.Rope(ra.frequencies(128, base=500_000.0), pairing="half")


def gpu() -> Any:
    """Return CuPy; exit with a message if it or a GPU is missing."""
    try:
        import cupy
    except ImportError:
        sys.exit("this example needs a CUDA GPU and CuPy, which is not installed")
    if not cupy.cuda.is_available():
        sys.exit("this example needs a CUDA GPU, and CuPy finds none")
    return cupy


def main(heads: int = 32, tokens: int = 32_768, first: int = 131_072) -> dict[str, float]:
    """
    Rotate queries.

    Return the largest error against float64 on the host, and the times of a rotation and a
    copy.
    """
    cupy = gpu()
    from cupyx.profiler import benchmark

    q = cupy.random.default_rng(0).standard_normal((heads, tokens, 128), dtype=cupy.float32)
    out = cupy.empty_like(q)
    table = ROPE.table(cupy.arange(first, first + tokens), like=q)
    ROPE.apply(q, table, out=out, fused=True)
    exact = ROPE.apply(cupy.asnumpy(q[0]).astype(np.float64), first)
    error = float(np.abs(cupy.asnumpy(out[0]) - exact).max())

    def milliseconds(call: Callable[[], Any]) -> float:
        """Return the median GPU time of a call."""
        return 1e3 * float(np.median(benchmark(call, n_repeat=50, n_warmup=5).gpu_times))

    rotation = milliseconds(lambda: ROPE.apply(q, table, out=out, fused=True))
    copy = milliseconds(lambda: cupy.copyto(out, q))
    return {"error": error, "rotation": rotation, "copy": copy, "GiB": q.nbytes / 2**30}


if __name__ == "__main__":
    found = main()
    print(
        f"{found['GiB']:.2f} GiB of queries: rotated in {found['rotation']:.3f} ms, "
        f"copied in {found['copy']:.3f} ms"
    )
    print(f"the rotated queries err by at most {found['error']:.1e}")
