"""
Context parallelism: one sequence over several processes, in zig-zag shards; attention passes keys round a ring.

Each process turns its queries and keys by the positions of its own tokens, and nothing is sent for it. Then keys and
values travel, and positions with them: who attends to whom depends on where tokens stand, not on who holds them.

Run it: ``python examples/context_parallel.py``
"""

import sys
import tempfile
from pathlib import Path

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


def scores(q, k, at_q, at_k):
    """Return q kᵀ / √d, −∞ where a key stands behind a query."""
    return (q @ k.mT / HEAD_DIM**0.5).masked_fill(at_k > at_q[:, None], -torch.inf)


def passed_on(*tensors):
    """Give tensors to the next process of the ring; return those of the one before."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    received = [torch.empty_like(x) for x in tensors]
    sends = [dist.P2POp(dist.isend, x.contiguous(), (rank + 1) % ranks, tag=i) for i, x in enumerate(tensors)]
    takes = [dist.P2POp(dist.irecv, x, (rank - 1) % ranks, tag=i) for i, x in enumerate(received)]
    for request in dist.batch_isend_irecv(sends + takes):
        request.wait()
    return received


def ring_attention(q, k, v, at):
    """Return attention over all tokens, of which a process sees as many at a time as it holds."""
    total, weight = torch.zeros_like(q), torch.zeros(*q.shape[:-1], 1)
    highest = torch.full_like(weight, -torch.inf)
    at_q = at
    for step in range(dist.get_world_size()):
        if step:
            k, v, at = passed_on(k, v, at)
        s = scores(q, k, at_q, at)
        higher = torch.maximum(highest, s.amax(-1, keepdim=True))
        shrunk, p = (highest - higher).exp(), (s - higher).exp()
        total, weight, highest = total * shrunk + p @ v, weight * shrunk + p.sum(-1, keepdim=True), higher
    return total / weight


def work(rank, ranks, store, results):
    """Be one of the processes; the first writes down how far all together are from one alone."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    q, k, v = torch.randn(3, HEADS, TOKENS, HEAD_DIM, generator=torch.Generator().manual_seed(0))
    held = positions.shard(TOKENS, ranks, rank, zigzag=True, like=q)  # where its tokens stand, and which they are
    turned = ROPE(q[:, held], k[:, held], held)
    own = ring_attention(*turned, v[:, held], held)

    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own)
    together = torch.cat(parts, dim=1)[:, positions.gathered(TOKENS, ranks, zigzag=True, like=q)]
    at = torch.arange(TOKENS)
    alone = scores(*ROPE(q, k), at, at).softmax(-1) @ v
    if rank == 0:
        torch.save(float((together - alone).abs().max()), results)
    dist.destroy_process_group()


def main(ranks=4):
    """Start processes; return the largest difference from one that has the whole sequence."""
    with tempfile.TemporaryDirectory() as folder:
        store, results = str(Path(folder) / "store"), str(Path(folder) / "results")
        torch.multiprocessing.spawn(work, (ranks, store, results), nprocs=ranks)
        return torch.load(results)


if __name__ == "__main__":
    print(f"four processes, {TOKENS} tokens: differs from one process by at most {main():.1e}")
