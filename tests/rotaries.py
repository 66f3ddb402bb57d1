"""Rotary functions, right and wrong ones, that ``rope-any verify`` imports in tests from a copy of this file."""

import numpy as np

import rope_any as ra

F = ra.frequencies(32)
right = ra.Rope(F, pairing="half").apply


class Holder:
    """A class with a rotary."""

    other = ra.Rope(F, pairing="interleaved").apply


def careless(x, positions):
    """Rotate x by angles in float32."""
    angle = np.outer(positions.astype(np.float32), np.float32(F))
    return ra.rotate(x, np.cos(angle), np.sin(angle), pairing="half")


def autocast(x, positions):
    """Rotate x by angles that autocast computes in bfloat16."""
    import torch

    with torch.autocast("cpu", torch.bfloat16):
        angles = positions[:, None].float() @ torch.tensor([F])
    return ra.rotate(x, angles.cos().float(), angles.sin().float(), pairing="half")


def rows(x, positions):
    """Rotate all rows by the positions of the first."""
    return right(x, positions[0] if positions.ndim == 2 else positions)


def tabled(x, cache):
    """Rotate x, whose first axis is that of the tokens, by a cache in the layout of vLLM."""
    return ra.Rope(F, pairing="half").apply(x, ra.layouts.unpack(cache, "vllm"), seq_axis=0)


def chunked(x, positions):
    """Rotate by positions of three axes."""
    return ra.Rope(ra.testing.cases()["chunked"].frequencies, pairing="half").apply(x, positions)


def axes(x, positions):
    """Rotate all axes by the positions of the first."""
    return chunked(x, np.broadcast_to(positions[:, :1], positions.shape))


def compiled(x, positions):
    """Rotate x by JAX."""
    import jax

    rope = ra.Rope(ra.frequencies(8, base=500.0), pairing="interleaved", attention_factor=1.5, start=4)
    return jax.jit(rope.apply)(x, positions)


def printing(x, positions):
    """Rotate x, and print."""
    print("rotating")  # noqa: T201
    return right(x, positions)


def exiting(_x, _positions):
    """Exit."""
    raise SystemExit("no GPU")


number = 3
