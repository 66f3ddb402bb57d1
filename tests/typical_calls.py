"""What a program typically calls, with the type of each result; mypy reads it, and test_house.py runs it."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import rope_any as ra
from rope_any import axes, bending, config, layouts, positions, scaling, weights
from rope_any.testing import CacheReport, Case, Report, cases, check_cache, check_rotary

Floats = npt.NDArray[np.float32]

LLAMA: dict[str, Any] = {"model_type": "llama", "head_dim": 64, "rope_theta": 500_000.0, "num_hidden_layers": 2}
RNG = np.random.default_rng(0)
Q: Floats = RNG.standard_normal((2, 8, 16, 64), dtype=np.float32)
K: Floats = RNG.standard_normal((2, 2, 16, 64), dtype=np.float32)


def rotations() -> None:
    """Make rotations and tables, and rotate queries and keys."""
    row: tuple[float, ...] = ra.frequencies(64, base=10_000.0)
    yarn: tuple[float, ...] = scaling.yarn(row, 4.0, base=10_000.0, original_length=4096)
    factor: float = scaling.yarn_attention_factor(4.0)
    rope: ra.Rope = ra.Rope(yarn, pairing="half", attention_factor=factor)
    q: Floats = rope.apply(Q, range(8, 24))
    back: Floats = rope.apply(q, range(8, 24), inverse=True, out=q, fused=False)
    q, k = rope(Q, K, 131_072)
    pair: tuple[Floats, Floats] = rope(Q[:, :, -1:], K, np.arange(16), out=(Q[:, :, -1:].copy(), k))
    table: ra.Table = rope.table(16, like=Q)
    table = rope.table(np.arange(16), dtype=np.float32)
    q, k = rope(Q, K, table)
    q, k = rope(Q, K, (table, table), seq_axis=-2)
    k = rope.reposition(k, range(16), range(100, 116), source=rope)
    cos, sin = ra.cos_sin(np.arange(16), row, attention_factor=1.0, like=Q)
    q = ra.rotate(q, cos, sin, pairing="interleaved")
    angles, carry = ra.cumulative_angles(np.ones((16, 32), dtype=np.float32))
    angles, carry = ra.cumulative_angles(angles, carry=carry)
    learned: ra.Table = ra.from_angles(angles, attention_factor=factor)
    bent: ra.BentTable = bending.temperature(learned, range(16), beta=0.1, original_length=8)
    bent_q, bent_k = bending.xpos(table, range(16), centre=8)
    q, k = ra.Rope(row, pairing="half")(back, pair[1], (bent_q, bent_k))
    q = ra.Rope(row, pairing="half", start=0, blocks=1).apply(q, bent)
    ra.clear_caches()


def several_axes() -> None:
    """Count tokens, and rotate by positions on several axes."""
    row = ra.frequencies(32)
    places: Any = positions.grid(4, 4, like=Q)
    image: ra.Rope = ra.Rope(axes.axial(row, row), pairing="half")
    q, _ = image(Q, K, places)
    video: ra.Rope = ra.Rope(axes.chunked(ra.frequencies(64), (8, 12, 12)), pairing="half")
    spans: list[int | tuple[int, int, int]] = [3, (1, 3, 4), 1]
    q = video.apply(q, positions.mrope(spans, like=q))
    end: float = positions.mrope_end(spans)
    heads: ra.Rope = ra.Rope(axes.mixed(64, heads=8, rng=RNG), pairing="interleaved")
    q = heads.apply(q, places)
    rope = ra.Rope(ra.frequencies(64), pairing="half")
    for each in (positions.packed([0, 10, 16], like=Q), positions.from_starts([0, int(end)], 16, like=Q)):
        q = rope.apply(q, each)
    q = rope.apply(q, positions.padded(np.ones((2, 16), dtype=bool)))
    q = rope.apply(q, positions.shard(32, 2, 0, zigzag=True, like=q))
    far: positions.Far = positions.self_extend(range(16), group=4, window=8, like=Q)
    q, _ = rope(Q, K, (rope.table(far.queries), rope.table(far.keys)))


def configs(given: dict[str, Any] | Path = LLAMA) -> None:
    """Read what configs of models say."""
    rope: ra.Rope = ra.Rope.from_config(given, sequence_length=8192)
    each: list[ra.Rope | None] = config.layers(given)
    q: Floats = each[0].apply(Q) if each[0] else Q
    kinds: tuple[config.Explanation, ...] = config.explain(given)
    sources: dict[str, str] = {name: fact.source for name, fact in kinds[0].facts.items()}
    names: tuple[str, ...] = config.parts(given)
    scale: float = config.score_scale(given, part=names[0])
    q = rope.apply(q * np.float32(scale))
    advice: config.Advice = config.advise(given, 16_384, trained_length=8192)[0]
    scores: dict[str, float] = {name: outlook.score for name, outlook in advice.schemes.items()}
    tokens: tuple[float, ...] = config.wavelengths(rope)
    apart: float = config.drift(rope, ra.Rope.from_config(config.modernize(given)), 1e6)
    assert apart == 0 < min(scores.values()) < tokens[-1], sources


def other_engines() -> None:
    """Convert weights and caches, and check what others rotate."""
    w: Floats = np.ones((512, 64), dtype=np.float32)
    w = weights.convert(w, 64, source="interleaved", target="half")
    state: dict[str, Floats] = {"layers.0.q_proj.weight": w}
    state = weights.convert_state_dict(state, 64, source="half", target="interleaved")
    rope = ra.Rope(ra.frequencies(64), pairing="half")
    table = rope.table(range(128), like=Q)
    cos, sin = layouts.pack(table, "onnxruntime", dtype=np.float16)
    again: ra.Table = layouts.unpack((cos, sin), "onnxruntime")
    cache: Any = layouts.pack(again, "vllm", dtype=np.float16)
    report: CacheReport = check_cache(cache, "vllm", rope)
    same: ra.Rope = layouts.unpack(layouts.pack(rope, "mlx", like=Q), "mlx", pairing="half")
    assert report.passed and same.pairing == "half"
    case: Case = cases()["llama3"]
    judged: Report = check_rotary(ra.Rope(case.frequencies, pairing="half").apply, pairing="half", case=case)
    causes: tuple[str, ...] = judged.causes
    assert judged, causes


def in_torch() -> None:
    """Rotate tensors, and look into a module."""
    import torch

    from rope_any.integrations.torch import Report, audit

    rope: ra.Rope = ra.Rope.from_config(LLAMA)
    q, k = torch.randn(1, 8, 4, 64), torch.randn(1, 2, 4, 64)
    q, k = rope(q, k, torch.arange(4))
    rotated: torch.Tensor = rope.apply(q, rope.table(range(4), like=q))
    model: torch.nn.Module = torch.nn.Linear(4, 4)
    report: Report = audit(model, rope)
    assert not report
    assert rotated.shape > k.shape


def main() -> None:
    """Call all of it."""
    rotations()
    several_axes()
    configs()
    other_engines()
    if find_spec("torch"):
        in_torch()
