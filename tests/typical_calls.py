"""Typical calls, with the types that a user would write: ``mypy --strict`` reads this file, and a test runs it."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import rope_any as ra
from rope_any import axes, config, layouts, positions, scaling, weights
from rope_any.testing import Report, check_rotary

CONFIG: dict[str, Any] = {"model_type": "llama", "head_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
CONFIG |= {"max_position_embeddings": 8192, "rope_theta": 500_000.0}


def rotate() -> None:
    """Rotate queries and keys, by positions and by a table."""
    q, k = np.ones((1, 4, 6, 64), np.float32), np.ones((1, 2, 6, 64), np.float32)
    row: tuple[float, ...] = ra.frequencies(64, base=500_000.0)
    rope = ra.Rope(row, pairing="half")
    rotated_q, rotated_k = rope(q, k)
    rotated_q, rotated_k = rope(q, k, 131_072, fused=False)
    rotated_q, rotated_k = rope(q, k, np.arange(6), out=(rotated_q, rotated_k))
    table: ra.Table = rope.table(range(6), like=q)
    rotated_q, rotated_k = rope(q, k, table)
    moved = rope.reposition(rope.apply(k, 10), 10, 0)
    cos, sin = ra.cos_sin(np.arange(6), row, like=q)
    same = ra.rotate(q, cos, sin, pairing="half", inverse=True)
    bent: ra.Table = ra.Table(cos, sin)
    assert rotated_q.shape == same.shape == rope.apply(q, bent).shape
    assert rotated_k.shape == moved.shape


def number_tokens() -> None:
    """Make positions of packed texts, of rows with different starts, of images."""
    like = np.empty(0, np.float32)
    packed = positions.packed([0, 3, 7], like=like)
    starts = positions.from_starts(np.asarray([16, 9]), 1)
    patches = positions.grid(range(2), range(3), like=like)
    two_axes = ra.Rope(axes.axial(ra.frequencies(16), ra.frequencies(16)), pairing="interleaved")
    assert packed.shape == (7,) and starts.shape == (2, 1)
    assert two_axes.apply(np.ones((6, 32)), patches).shape == (6, 32)


def extend() -> None:
    """Scale frequencies for a longer context."""
    row = ra.frequencies(64)
    yarn = scaling.yarn(row, 4.0, base=10_000.0, original_length=4096)
    factor: float = scaling.yarn_attention_factor(4.0)
    assert ra.Rope(yarn, pairing="half", attention_factor=factor).attention_factor > 1


def read() -> None:
    """Read the rotation of a model from its config, and where each value comes from."""
    rope: ra.Rope = ra.Rope.from_config(CONFIG)
    ropes: list[ra.Rope | None] = config.read(CONFIG).layers()
    explanations: tuple[config.Explanation, ...] = config.read(CONFIG).explain()
    source: str = explanations[0].facts["rope_theta"].source
    scale: float = config.read(CONFIG).score_scale()
    parameters: dict[str, Any] = config.read(CONFIG).as_transformers()["rope_parameters"]
    if TYPE_CHECKING:  # were a module Any, or any name allowed, mypy would call these comments unused
        scale = ra.bending.__all__  # type: ignore[assignment]
        source = ra.absent  # type: ignore[attr-defined]
    assert (ropes, source, scale) == ([rope, rope], "rope_theta", 0.125)
    assert parameters["rope_theta"] == CONFIG["rope_theta"]
    with pytest.raises(ra.ArgumentValueError, match="rope_theta"):
        ra.Rope.from_config({**CONFIG, "rope_tetha": 1.0})


def convert_and_check() -> None:
    """Convert weights to the other pairing, write an engine's cache, and check a function."""
    weight = np.ones((4 * 64, 32))
    converted = weights.convert(weight, 64, source="half", target="interleaved")
    rope = ra.Rope.from_config(CONFIG)
    cache = layouts.pack(rope.table(range(8), like=np.empty(0, np.float32)), "vllm")

    def rotate_by_rope(x: Any, at: Any) -> Any:
        """Return x rotated at positions."""
        return rope.apply(x, at)

    report: Report = check_rotary(rotate_by_rope, CONFIG)
    assert converted.shape == weight.shape and len(cache) == 8
    assert report.passed


def main() -> None:
    """Run all calls."""
    for call in (rotate, number_tokens, extend, read, convert_and_check):
        call()
