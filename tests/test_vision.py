"""
Frequencies, grids and rotations of vision models, built by hand and compared with the code of the models.

Each peer rotates x (batch, heads, seq, head_dim) by its own code. Ours must agree to the last digits of float32.
Models of diffusers are compared in tests/test_diffusers.py, read from configs.
"""

import importlib
import math

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


def model(name):
    """Return a modeling module of transformers, and its configuration."""
    pytest.importorskip("transformers", minversion="5", reason="the peers are models of transformers (5 or later)")
    kinds = ("modeling", "configuration")
    return tuple(importlib.import_module(f"transformers.models.{name}.{kind}_{name}") for kind in kinds)


def square(frequencies, pairing, **options):
    """Return the Rope of rows and columns with the same frequencies."""
    return ra.Rope(axes.axial(frequencies, frequencies), pairing=pairing, **options)


def grid(*coordinates):
    """Return grid positions as a torch tensor."""
    return ra.positions.grid(*coordinates, like=torch.ones(1))


@pytest.mark.parametrize(("frames", "rows", "columns"), [(1, 4, 6), (3, 2, 8), (2, 6, 2)])
def test_qwen2_vl_vision_agrees(x, frames, rows, columns):
    """Rows, then columns, with the same frequencies."""
    peer, configs = model("qwen2_vl")
    config = configs.Qwen2VLVisionConfig(embed_dim=96, num_heads=3, spatial_merge_size=2)
    positions = grid(rows, columns)
    q = x(frames * rows * columns, 32)
    cos, sin = peer.Qwen2VLVisionRotaryEmbedding(config)(q, positions.repeat(frames, 1))
    theirs, _ = peer.apply_rotary_pos_emb_vision(q.transpose(1, 2), q.transpose(1, 2), cos, sin)
    rope = square(ra.frequencies(16), "half")
    assert_close(rope.apply(q, positions.repeat(frames, 1)), theirs.transpose(1, 2))


def test_gemma_vision_agrees(x):
    """Two blocks of halves, rows and columns."""
    peer, configs = model("gemma4")
    config = configs.Gemma4VisionConfig(hidden_size=96, num_attention_heads=3, head_dim=32)
    positions = grid(4, 5).expand(2, -1, -1)
    q = x(20, 32)
    cos, sin = peer.Gemma4VisionRotaryEmbedding(config)(q, positions)
    theirs = peer.apply_multidimensional_rope(q.transpose(1, 2), cos, sin, positions)
    rope = square(ra.frequencies(16, base=config.rope_parameters["rope_theta"]), "half", blocks=2)
    assert_close(rope.apply(q, positions), theirs.transpose(1, 2))


def test_pixtral_agrees(x):
    peer, configs = model("pixtral")
    config = configs.PixtralVisionConfig(hidden_size=96, num_attention_heads=3, head_dim=32)
    positions = grid(4, 5)
    q = x(20, 32)
    cos, sin = peer.PixtralVisionRotaryEmbedding(config)(q, positions)
    theirs, _ = peer.apply_rotary_pos_emb(q, q, cos, sin, unsqueeze_dim=0)
    f = ra.frequencies(32, base=config.rope_parameters["rope_theta"])
    assert_close(ra.Rope(axes.alternating(f, 2), pairing="half").apply(q, positions), theirs)


@pytest.mark.parametrize("name", ["dinov3_vit", "sapiens2"])
def test_normalised_coordinates_and_unrotated_tokens_agree(x, name):
    """Patches are at their centres in [−1, 1]; class and register tokens before them are not rotated."""
    peer, configs = model(name)
    config_of = {"dinov3_vit": "DINOv3ViTConfig", "sapiens2": "Sapiens2Config"}[name]
    embedding = {"dinov3_vit": "DINOv3ViTRopePositionEmbedding", "sapiens2": "Sapiens2RopePositionEmbedding"}[name]
    config = getattr(configs, config_of)(hidden_size=96, num_attention_heads=3, image_size=64, patch_size=16)
    rows, columns, prefix = 3, 5, 4
    cos, sin = getattr(peer, embedding)(config).eval()(torch.zeros(1, 3, 16 * rows, 16 * columns))
    q = x(prefix + rows * columns, 32)
    theirs, _ = peer.apply_rotary_pos_emb(q, q, cos, sin)
    # radians per unit: 2π / period, and the period of pair i is base^(4i/d)
    rope = square(tuple(2 * math.pi * f for f in ra.frequencies(16, base=config.rope_theta)), "half")
    positions = grid(*([(2 * i + 1) / n - 1 for i in range(n)] for n in (rows, columns)))
    assert_close(rope.apply(q, ra.positions.unrotated(positions, before=prefix, axes=2)), theirs)


# --- text of vision models: M-RoPE ----------------------------------------------------------------------


F = ra.frequencies(32, base=1e4)
MROPE = {
    "qwen2_vl": ("Qwen2VL", "", ra.Rope(axes.chunked(F, [2, 6, 8]), pairing="half")),
    "qwen3_vl": ("Qwen3VL", "Text", ra.Rope(axes.strided(F, [6, 5, 5]), pairing="half")),
    "glm4v": ("Glm4v", "Text", ra.Rope(axes.chunked(F, [4, 6, 6]), pairing="interleaved")),
}


@pytest.mark.parametrize("name", MROPE)
def test_mrope_agrees(x, rng, name):
    (peer, configs), (stem, middle, rope) = model(name), MROPE[name]
    sections = [sum(f != 0 for f in row) for row in rope.frequencies]
    parameters = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections, "partial_rotary_factor": 1.0}
    config = getattr(configs, f"{stem}TextConfig")(
        hidden_size=96,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=32,
        rope_parameters=parameters | ({"mrope_interleaved": True} if name == "qwen3_vl" else {}),
    )
    positions, q = torch.asarray(rng.integers(0, 500, (2, 7, 3))), x(7, 32)
    cos, sin = getattr(peer, f"{stem}{middle}RotaryEmbedding")(config)(q, positions.movedim(-1, 0))
    assert_close(rope.apply(q, positions), peer.apply_rotary_pos_emb(q, q, cos, sin)[0])
    assert ra.Rope.from_config(config) == rope


# --- timm -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timm():
    """Return timm's rotary module, without the rest of timm, which needs torchvision."""
    with one_file("timm.layers", "pos_embed_sincos") as module:
        yield module


def test_timm_axial_at_a_reference_size_agrees(x, timm):
    """Patches of another resolution are spread over the trained grid, as in EVA-02."""
    embed = timm.RotaryEmbeddingCat(32, in_pixels=False, feat_shape=[4, 6], ref_feat_shape=[8, 8])
    q, rope = x(24, 32), square(ra.frequencies(16), "interleaved")
    positions = grid(*([8 * i / n for i in range(n)] for n in (4, 6)))
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
