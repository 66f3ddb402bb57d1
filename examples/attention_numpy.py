"""
Causal attention with grouped queries in NumPy: the whole layer, and what a rotation changes.

Eight query heads share two heads of keys and values. Queries and keys are rotated before their
product, and values are not. So a score depends only on the distance of a query and a key, and
the same tokens have the same scores a million positions later. If only the keys are shifted by
one position, scores change.

Needs only NumPy.

    python examples/attention_numpy.py
"""

from typing import Any

import numpy as np

import rope_any as ra

QUERY_HEADS, KEY_HEADS, HEAD_DIM, TOKENS = 8, 2, 64, 32
ROPE = ra.Rope(ra.frequencies(HEAD_DIM, base=500_000.0), pairing="half")


def attention(q: Any, k: Any, v: Any, at_q: Any, at_k: Any) -> Any:
    """Return softmax(q kᵀ / √d) v over the keys up to each query; k and v have fewer heads."""
    q, k = ROPE.apply(q, at_q), ROPE.apply(k, at_k)
    groups = q.reshape(len(k), -1, *q.shape[1:])  # (key heads, queries of each, seq, d)
    scores = groups @ k[:, None].mT / np.sqrt(q.shape[-1])
    scores[..., np.triu(np.ones(scores.shape[-2:], dtype=bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return (weights @ v[:, None]).reshape(q.shape)


def main(seed: int = 0) -> dict[str, dict[int, float]]:
    """Return by shift how attention changes if all positions, or only those of keys, shift."""
    rng = np.random.default_rng(seed)
    heads = QUERY_HEADS, KEY_HEADS, KEY_HEADS
    q, k, v = (rng.standard_normal((n, TOKENS, HEAD_DIM), dtype=np.float32) for n in heads)
    at = np.arange(TOKENS)
    here = attention(q, k, v, at, at)

    def change(of_queries: int, of_keys: int) -> float:
        """Return the largest change of attention if positions are shifted."""
        return float(np.abs(attention(q, k, v, at + of_queries, at + of_keys) - here).max())

    far = (1_000, 1_000_000, 1_000_000_000)
    return {
        "all": {step: change(step, step) for step in far},
        "keys": {step: change(0, step) for step in (1, 10)},
    }


if __name__ == "__main__":
    found = main()
    for which, changes in found.items():
        for step, difference in changes.items():
            print(
                f"{which} {step:13,} tokens on: attention changes by at most {difference:.1e}"
            )
