"""
A sliding KV cache with attention sinks: endless text in constant memory.

StreamingLLM (Xiao et al., arXiv:2309.17453) keeps the first tokens, called sinks, and the last
ones, and counts positions within the cache. So cached keys, which are rotated, must be
repositioned when others are evicted, here every 16 tokens. Each step is compared with attention
that rotates all keys again.

Needs only NumPy.

    python examples/sliding_cache.py
"""

from typing import Any

import numpy as np

import rope_any as ra

HEADS, HEAD_DIM = 4, 64
SINKS, LENGTH, EVICTED = (
    4,
    64,
    16,
)  # of the cache: tokens that stay, all tokens, tokens evicted at a time


def attention(q: Any, k: Any, v: Any) -> Any:
    """Return softmax(q kᵀ / √d) v."""
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(HEAD_DIM)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def evict(rope: ra.Rope, keys: Any, values: Any) -> tuple[Any, Any]:
    """Drop the oldest tokens after the sinks, and reposition the keys of those that follow."""
    recent = slice(SINKS + EVICTED, None)
    moved = rope.reposition(
        keys[:, recent], recent.start, SINKS
    )  # from its first position to that after the sinks
    return (
        np.concatenate([keys[:, :SINKS], moved], axis=-2),
        np.concatenate([values[:, :SINKS], values[:, recent]], axis=-2),
    )


def main(tokens: int = 1000, seed: int = 0) -> float:
    """
    Stream random tokens through one layer.

    Return the largest difference from attention with keys rotated again.
    """
    rng = np.random.default_rng(seed)
    rope = ra.Rope(ra.frequencies(HEAD_DIM), pairing="half")
    keys, values = np.empty((2, HEADS, 0, HEAD_DIM), np.float32)
    plain, worst = keys, 0.0  # unrotated keys, for the comparison only
    for _ in range(tokens):
        q, k, v = rng.standard_normal((3, HEADS, 1, HEAD_DIM), dtype=np.float32)
        if keys.shape[-2] == LENGTH:
            keys, values = evict(rope, keys, values)
            plain = np.concatenate([plain[:, :SINKS], plain[:, SINKS + EVICTED :]], axis=-2)
        here = keys.shape[-2]
        keys = np.concatenate([keys, rope.apply(k, here)], axis=-2)
        values, plain = (np.concatenate(pair, axis=-2) for pair in ((values, v), (plain, k)))
        q = rope.apply(q, here)
        worst = max(
            worst,
            float(
                np.abs(
                    attention(q, keys, values) - attention(q, rope.apply(plain), values)
                ).max()
            ),
        )
    return worst


if __name__ == "__main__":
    print(
        f"1000 tokens through a cache of {LENGTH}: "
        f"differs from keys rotated again by at most {main():.1e}"
    )
