"""
DTensors sharded over processes: each process rotates its own shard, and nothing is sent.

The call is the same as for any tensor. Each process makes the table of its tokens, results are
sharded like the inputs, and torch's CommDebugMode confirms that nothing is sent.

Needs torch. It starts four processes by itself; ``--measure`` prints the times of 1, 2 and 4.

    python examples/sharded_torch.py
    torchrun --nproc-per-node 4 examples/sharded_torch.py
    python examples/sharded_torch.py --measure
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.debug import CommDebugMode
except ModuleNotFoundError as error:
    sys.exit(f"this example needs {error.name}, which is not installed")

import rope_any as ra

ROPE = ra.Rope(ra.frequencies(128, base=500_000.0), pairing="half")
SHARDED = {"batch": Shard(0), "heads": Shard(1), "seq": Shard(2)}


def distributed(x: torch.Tensor, mesh: DeviceMesh, placement: Shard) -> DTensor:
    """Return a DTensor of a tensor that all processes have: each process keeps its shard."""
    return DTensor.from_local(x, mesh, [Replicate()], run_check=False).redistribute(
        placements=[placement]
    )


def rotate(mesh: DeviceMesh, name: str) -> tuple[float, int]:
    """
    Rotate uneven shards.

    Return the largest difference from one process, and the number of collectives.
    """
    q, k = torch.randn(3, 6, 11, 128), torch.randn(3, 2, 11, 128)
    sharded_q, sharded_k = (distributed(x, mesh, SHARDED[name]) for x in (q, k))
    with CommDebugMode() as sent:
        rotated = ROPE(sharded_q, sharded_k, 131_072)
    errors = [
        (x.full_tensor() - y).abs().max()
        for x, y in zip(rotated, ROPE(q, k, 131_072), strict=True)
    ]
    return float(max(errors)), sent.get_total_counts()


def measure(mesh: DeviceMesh, tokens: int = 8192, calls: int = 20) -> list[float]:
    """Return the shortest wall time and thread time of a call on a sharded sequence, in ms."""
    share = torch.randn(1, 32, tokens // mesh.size(), 128)
    q = DTensor.from_local(share, mesh, [Shard(2)], run_check=False)
    times = []
    for _ in range(calls):
        dist.barrier()
        start = time.perf_counter(), time.thread_time()
        ROPE.apply(q, 131_072, out=q)
        times.append((time.perf_counter() - start[0], time.thread_time() - start[1]))
    return [round(1e3 * min(some), 1) for some in zip(*times, strict=True)]


def work(rank: int, ranks: int, store: str, results: str, *, measuring: bool) -> None:
    """Run one of the processes; the first saves the results."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    own: dict[str, Any] = {}  # torchrun gives these by environment variables
    if store:
        own = {"store": dist.FileStore(store, ranks), "rank": rank, "world_size": ranks}
    dist.init_process_group("gloo", **own)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    found = measure(mesh) if measuring else {name: rotate(mesh, name) for name in SHARDED}
    if dist.get_rank() == 0:
        torch.save(found, results) if results else print(found)
    dist.destroy_process_group()


def work_of(rank: int, *arguments: Any) -> None:
    """Call `work`: ``torch.multiprocessing.spawn`` passes no keyword arguments."""
    work(rank, *arguments[:-1], measuring=arguments[-1])


def main(ranks: int = 4, *, measuring: bool = False) -> Any:
    """
    Start processes.

    Return the largest difference and the collectives for each sharding, or the times.
    """
    with tempfile.TemporaryDirectory() as folder:
        store, results = str(Path(folder) / "store"), str(Path(folder) / "results")
        torch.multiprocessing.spawn(work_of, (ranks, store, results, measuring), nprocs=ranks)
        return torch.load(results)


if __name__ == "__main__":
    if "RANK" in os.environ:  # started by torchrun
        work(0, 0, "", "", measuring="--measure" in sys.argv)
    elif "--measure" in sys.argv:
        for ranks in (1, 2, 4):
            passed, worked = main(ranks, measuring=True)
            print(f"{ranks} processes: {passed} ms, of which each computes for {worked} ms")
    else:
        for way, (difference, sent) in main().items():
            print(
                f"sharded over {way}: "
                f"differs from one process by {difference:.1e}, sent {sent} times"
            )
