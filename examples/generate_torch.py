"""
Generation with a KV cache: a small Llama-like decoder with random weights, in plain torch.

Keys are cached after they are rotated, and are not rotated again. Each step makes one table for
its new tokens, and every layer uses it. Without the cache, all tokens go through the model
again for each new one. Both ways generate the same text.

Needs torch.

    python examples/generate_torch.py
"""

import sys
import time

try:
    import torch
    from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu
except ModuleNotFoundError as error:
    sys.exit(f"this example needs {error.name}, which is not installed")

import rope_any as ra

VOCABULARY, WIDTH, LAYERS, QUERY_HEADS, KEY_HEADS, HEAD_DIM = 1000, 256, 4, 8, 2, 32
Cache = dict[int, tuple[torch.Tensor, torch.Tensor]]  # keys and values of each layer
ROPE = ra.Rope(ra.frequencies(HEAD_DIM, base=500_000.0), pairing="half")


def model_of(seed: int) -> list[torch.Tensor]:
    """Return random weights of a decoder: the embedding first, the output projection last."""
    generator = torch.Generator().manual_seed(seed)
    attention = [
        (WIDTH, (QUERY_HEADS + 2 * KEY_HEADS) * HEAD_DIM),
        (QUERY_HEADS * HEAD_DIM, WIDTH),
    ]
    layer = [
        torch.Size(shape)
        for shape in (*attention, (WIDTH, 4 * WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
    ]
    shapes = [(VOCABULARY, WIDTH), *layer * LAYERS, (WIDTH, VOCABULARY)]
    return [torch.randn(shape, generator=generator) / shape[0] ** 0.5 for shape in shapes]


def decoder(weights: list[torch.Tensor], tokens: torch.Tensor, cache: Cache) -> torch.Tensor:
    """
    Return the logits after the last of the tokens ``(seq,)``.

    Add keys and values to the cache of each layer.
    """
    embedding, *layers, head = weights
    past = cache[0][0].shape[1] if cache else 0
    x = embedding[tokens]
    table = ROPE.table(torch.arange(past, past + len(tokens)))  # once for all layers
    for layer in range(LAYERS):
        qkv, out, gate, up, down = layers[5 * layer : 5 * layer + 5]
        heads = (
            (rms_norm(x, (WIDTH,)) @ qkv).unflatten(-1, (-1, HEAD_DIM)).transpose(0, 1)
        )  # (heads, seq, head_dim)
        q, k, v = heads.split([QUERY_HEADS, KEY_HEADS, KEY_HEADS])
        q, k = ROPE(q, k, table)
        if past:
            k, v = (torch.cat(both, dim=1) for both in zip(cache[layer], (k, v), strict=True))
        cache[layer] = k, v
        # a single new token sees all keys
        attended = scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=not past, enable_gqa=True
        )[0]
        x = x + attended.transpose(0, 1).flatten(1) @ out
        x = x + (silu(rms_norm(x, (WIDTH,)) @ gate) * (rms_norm(x, (WIDTH,)) @ up)) @ down
    return rms_norm(x[-1], (WIDTH,)) @ head


def generate(
    weights: list[torch.Tensor], text: torch.Tensor, new: int, *, cached: bool
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return a text with its likeliest tokens, the logits of each step, tokens per second."""
    cache: Cache = {}
    logits: list[torch.Tensor] = []
    start = time.perf_counter()
    for _ in range(new):
        logits.append(decoder(weights, text[-1:] if cache else text, cache))
        text = torch.cat([text, logits[-1].argmax(-1, keepdim=True)])
        cache = cache if cached else {}
    return text, torch.stack(logits), new / (time.perf_counter() - start)


def main(new: int = 200, seed: int = 0) -> dict[str, float]:
    """
    Generate with and without a cache.

    Return tokens per second, whether texts are equal, and how logits differ.
    """
    weights, prompt = model_of(seed), torch.arange(16)
    (text, logits, speed), (plain_text, plain, plain_speed) = (
        generate(weights, prompt, new, cached=cached) for cached in (True, False)
    )
    difference = float((logits - plain).abs().max() / plain.std())
    return {
        "cached": speed,
        "plain": plain_speed,
        "same": torch.equal(text, plain_text),
        "difference": difference,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)  # a step is too small for two
    found = main()
    print(f"{found['cached']:.0f} tokens a second with a cache, {found['plain']:.0f} without")
    print(
        f"the same text: {found['same']}; "
        f"logits differ by at most {found['difference']:.1e} of their spread"
    )
