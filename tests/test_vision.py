"""
Rotations of vision models, built by hand and compared with those of timm on random arrays.

Ours must agree to the last digits of float32. Models of transformers and diffusers, read from configs, are compared in
tests/test_towers.py, tests/test_architectures.py and tests/test_diffusers.py.
"""

import numpy as np
import pytest

import rope_any as ra
from rope_any import axes

torch = pytest.importorskip("torch", reason="the peers run on torch")

from test_migrate import one_file  # noqa: E402  # it imports torch

ATOL = 2e-5  # the angles of their tables are float32


@pytest.fixture
def x(rng):
    """Return a function that makes x (batch, heads, seq, head_dim)."""
    return lambda seq, head_dim: torch.asarray(rng.uniform(-1, 1, (2, 3, seq, head_dim)).astype(np.float32))


def assert_close(ours, theirs):
    """Compare two tensors."""
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=ATOL)


def grid(*coordinates):
    """Return grid positions as a torch tensor."""
    return ra.positions.grid(*coordinates, like=torch.ones(1))


@pytest.fixture(scope="module")
def timm():
    """Return timm's rotary module, without the rest of timm, which needs torchvision."""
    with one_file("timm.layers", "pos_embed_sincos") as module:
        yield module


def test_timm_axial_at_a_reference_size_agrees(x, timm):
    """Patches of another resolution are spread over the trained grid, as in EVA-02."""
    embed = timm.RotaryEmbeddingCat(32, in_pixels=False, feat_shape=[4, 6], ref_feat_shape=[8, 8])
    f, q = ra.frequencies(16), x(24, 32)
    positions = grid(*([8 * i / n for i in range(n)] for n in (4, 6)))
    rope = ra.Rope(axes.axial(f, f), pairing="interleaved")
    assert_close(rope.apply(q, positions), timm.apply_rot_embed_cat(q, embed.get_embed()))


def test_timm_mrope_agrees(x, timm):
    embed = timm.RotaryEmbeddingMRope(36, mrope_section=(6, 6, 6))
    q = x(20, 36)
    rope = ra.Rope(axes.strided(ra.frequencies(36), [6, 6, 6]), pairing="half")
    assert_close(rope.apply(q, grid([0], 4, 5)), timm.apply_rot_embed_cat(q, embed.get_embed([4, 5]), half=True))


def test_timm_mixed_agrees(x, timm):
    """Each head has frequencies of x and of y."""
    learned = timm.init_random_2d_freqs(32, depth=1, num_heads=3)  # (2, depth, heads, pairs)
    positions = grid(4, 5).float()
    emb = timm.get_mixed_freqs(learned, positions[:, 0], positions[:, 1])[0]
    q = x(20, 32)
    table = ra.cos_sin(positions, learned[:, 0].transpose(0, 1))
    assert_close(ra.rotate(q, *table, pairing="interleaved"), timm.apply_rot_embed_cat(q, emb))
