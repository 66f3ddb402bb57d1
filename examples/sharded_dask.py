"""
An array larger than memory: rotated chunk by chunk, by Dask on a cluster of two workers.

The call computes nothing. It adds tasks to the graph, and the worker that makes a chunk also
rotates it.

Needs Dask and distributed. It starts the cluster by itself.

    python examples/sharded_dask.py
"""

import sys
from typing import Any

try:
    import dask
    import dask.array as da
    import numpy as np
    from distributed import Client, LocalCluster
except ModuleNotFoundError as error:
    sys.exit(f"this example needs {error.name}, which is not installed")

import rope_any as ra

ROPE = ra.Rope(ra.frequencies(128, base=500_000.0), pairing="half")
LIMIT = "500MB"  # of each of two workers


def keys(tokens: int, heads: int = 8, chunk: int = 4096) -> Any:
    """Return keys ``(heads, tokens, 128)``, in chunks of a head each."""
    return da.random.default_rng(0).standard_normal(
        (heads, tokens, 128), dtype="float32", chunks=(1, chunk, 128)
    )


def main(tokens: int = 524_288) -> dict[str, Any]:
    """
    Rotate 2 GiB of keys and rotate them back.

    Return their size, the tasks per chunk, and the errors.
    """
    with dask.config.set({"distributed.worker.memory.terminate": 0.98}):
        cluster = LocalCluster(
            2, threads_per_worker=1, memory_limit=LIMIT, dashboard_address=None
        )
    with cluster, Client(cluster):
        x = keys(tokens)
        positions = da.arange(tokens, chunks=x.chunks[1])
        rotated = ROPE.apply(x, positions)
        if rotated.chunks != x.chunks:
            msg = f"chunks were {x.chunks} and are {rotated.chunks}"
            raise RuntimeError(msg)
        # The rotation preserves lengths and changes the keys; the inverse restores them.
        back = ROPE.apply(rotated, positions, inverse=True)
        kept, error, moved = dask.compute(
            abs((rotated**2).sum(axis=-1) / (x**2).sum(axis=-1) - 1).max(),
            abs(back - x).max(),
            abs(rotated - x).max(),
        )
        tasks = len(dict(rotated.__dask_graph__())) / x.npartitions
        return {
            "GiB": x.nbytes / 2**30,
            "tasks": tasks,
            "moved": moved,
            "error": np.maximum(kept, error),
        }


if __name__ == "__main__":
    found = main()
    print(
        f"{found['GiB']:.1f} GiB by two workers of {LIMIT}: "
        f"{found['tasks']:.1f} tasks for each chunk,"
    )
    print(f"rotated (by up to {found['moved']:.1f}) and back, keys err by {found['error']:.1e}")
