"""
Context parallelism: one sequence in zig-zag shards over processes, with ring attention.

Each process rotates its queries and keys by the positions of its own tokens, without
communication. Then keys, values and positions are sent round the ring, because the causal mask
depends on positions and not on the process that holds a token.

Needs torch. It starts four processes by itself.

    python examples/context_parallel.py
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing
except ModuleNotFoundError as error:
    sys.exit(f"this example needs {error.name}, which is not installed")

import rope_any as ra
from rope_any import positions

TOKENS, HEADS, HEAD_DIM = 96, 4, 64
ROPE = ra.Rope(ra.frequencies(HEAD_DIM, base=500_000.0), pairing="half")


def scores(q: torch.Tensor, k: torch.Tensor, at_q: torch.Tensor, at_k: torch.Tensor) -> Any:
    """Return q kᵀ / √d, with −∞ for keys at later positions than the query."""
    return (q @ k.mT / HEAD_DIM**0.5).masked_fill(at_k > at_q[:, None], -torch.inf)


def passed_on(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """
    Send tensors to the next process of the ring.

    Return those received from the previous one.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    received = [torch.empty_like(x) for x in tensors]
    sends = [
        dist.P2POp(dist.isend, x.contiguous(), (rank + 1) % ranks, tag=i)
        for i, x in enumerate(tensors)
    ]
    takes = [
        dist.P2POp(dist.irecv, x, (rank - 1) % ranks, tag=i) for i, x in enumerate(received)
    ]
    for request in dist.batch_isend_irecv(sends + takes):
        request.wait()
    return received


def ring_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, at: torch.Tensor
) -> torch.Tensor:
    """Return attention over all tokens, computed shard by shard."""
    total, weight = torch.zeros_like(q), torch.zeros(*q.shape[:-1], 1)
    highest = torch.full_like(weight, -torch.inf)
    at_q = at
    for step in range(dist.get_world_size()):
        if step:
            k, v, at = passed_on(k, v, at)
        s = scores(q, k, at_q, at)
        higher = torch.maximum(highest, s.amax(-1, keepdim=True))
        shrunk, p = (highest - higher).exp(), (s - higher).exp()
        total, weight, highest = (
            total * shrunk + p @ v,
            weight * shrunk + p.sum(-1, keepdim=True),
            higher,
        )
    return total / weight


def work(rank: int, ranks: int, store: str, results: str) -> None:
    """
    Run one of the processes.

    The first saves the difference from attention in a single process.
    """
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks
    )
    q, k, v = torch.randn(
        3, HEADS, TOKENS, HEAD_DIM, generator=torch.Generator().manual_seed(0)
    )
    local = positions.shard(
        TOKENS, ranks, rank, zigzag=True, like=q
    )  # positions and indices of the local tokens
    rotated = ROPE(q[:, local], k[:, local], local)
    own = ring_attention(*rotated, v[:, local], local)

    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own)
    together = torch.cat(parts, dim=1)[
        :, positions.gather_order(TOKENS, ranks, zigzag=True, like=q)
    ]
    at = torch.arange(TOKENS)
    alone = scores(*ROPE(q, k), at, at).softmax(-1) @ v
    if rank == 0:
        torch.save(float((together - alone).abs().max()), results)
    dist.destroy_process_group()


def main(ranks: int = 4) -> float:
    """Start processes; return the largest difference from attention in one process."""
    with tempfile.TemporaryDirectory() as folder:
        store, results = str(Path(folder) / "store"), str(Path(folder) / "results")
        torch.multiprocessing.spawn(work, (ranks, store, results), nprocs=ranks)
        return float(torch.load(results))


if __name__ == "__main__":
    print(f"four processes, {TOKENS} tokens: differs from one process by at most {main():.1e}")
