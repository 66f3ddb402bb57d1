"""Mistakes in rotary functions that were published, each as a function, and the causes that `check_rotary` names."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import rope_any as ra
from rope_any import axes, scaling


class Mistake(NamedTuple):
    """A wrong function, what it should compute (a Rope or a config), and the causes of a report."""

    function: Callable[..., Any]
    right: Any
    causes: tuple[str, ...]
    head_dim: int | None = None
    options: dict[str, Any] = {}  # noqa: RUF012  # of check_rotary; not written to


def powers(dim, base=1e4):
    """Return base^(−2i/dim)."""
    return float(base) ** -(np.arange(0, dim, 2) / dim)


def turned(x, angle, factor=1.0, *, pairing="half", start=0):
    """Return x, its pairs from `start` on rotated by angles ``(seq, pairs)``."""
    n, y = angle.shape[-1], np.array(x, np.float64)
    step = 1 if pairing == "half" else 2
    first = start + step * np.arange(n)
    second = first + (n if pairing == "half" else 1)
    a, b, c, s = y[..., first], y[..., second], factor * np.cos(angle), factor * np.sin(angle)
    y[..., first], y[..., second] = a * c - b * s, b * c + a * s
    return y.astype(x.dtype)


def by(f, *, factor=1.0, at=np.asarray, **options):
    """Return a rotary of frequencies ``(pairs,)``, at changed positions."""
    return lambda x, p: turned(x, np.outer(at(p), f), factor, **options)


def by_axis(axis_of, f, *, at=np.asarray, **options):
    """Return a rotary whose pair i takes the axis ``axis_of[i]`` of changed positions ``(seq, axes)``."""
    return lambda x, p: turned(x, np.asarray(at(p), np.float64)[:, axis_of] * f, **options)


def in_bfloat16(x, p):
    """Return x in bfloat16, rotated by the base 10000 in bfloat16 alone."""
    exponent, base = np.linspace(0, 1, x.shape[-1] // 2, endpoint=False), ml_dtypes.bfloat16(1e4)
    angle = p.astype(base.dtype)[:, None] * (1 / base ** exponent.astype(base.dtype))
    (a, b), c, s = np.split(x, 2, axis=-1), np.cos(angle), np.sin(angle)
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def padded(f, pairs):
    """Return frequencies with zeros after them."""
    return np.pad(f, (0, pairs - len(f)))


def with_one_token(change):
    """Return a right rotary, but for a call with one token, which is rotated at a changed position."""
    return lambda x, p: by(powers(64))(x, change(p) if len(p) == 1 else p)


def plain(**options):
    """Return a Rope of 64 features, base 10000, in halves."""
    return ra.Rope(ra.frequencies(64), **({"pairing": "half"} | options))


def yarn_ramp(low, high, *, dim=128, base=1e6, factor=4.0):
    """Return YaRN's frequencies with a ramp from pair `low` to `high`."""
    f, gamma = powers(dim, base), np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    return f / factor * gamma + f * (1 - gamma)


def sections(sizes, dim=128, base=1e6):
    """Return a Rope with sections of axes in chunks."""
    return ra.Rope(axes.chunked(ra.frequencies(dim, base=base), sizes), pairing="half")


PART = ra.Rope(ra.frequencies(32), pairing="half")
PROPORTIONAL = ra.Rope(scaling.proportional(ra.frequencies(128, base=1e6), 0.25), pairing="half")
LINEAR = ra.Rope(scaling.linear(ra.frequencies(64), 4.0), pairing="half")
SIZES = {"head_dim": 64, "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 6}
DYNAMIC = {"model_type": "llama", **SIZES, "rope_theta": 1e4, "max_position_embeddings": 2048}
DYNAMIC |= {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
YARN = {"model_type": "qwen3", **SIZES, "head_dim": 128, "rope_theta": 1e6, "max_position_embeddings": 40_960}
YARN |= {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}}
M = 0.1 * math.log(4.0) + 1
LOW, HIGH = (128 * math.log(32_768 / (turns * 2 * math.pi)) / (2 * math.log(1e6)) for turns in (32, 1))
LLAMA, PHI, VL = (
    f"published:{name}"
    for name in ("meta-llama/Llama-3.1-8B", "microsoft/Phi-3.5-mini-instruct", "Qwen/Qwen2-VL-2B-Instruct")
)
GEMMA = "published:google/gemma-3-4b-it"
LONG = np.array(ra.config.published()["microsoft/Phi-3.5-mini-instruct"]["rope_scaling"]["long_factor"])
CHUNKED = np.repeat([0, 1, 2], [16, 24, 24])
GRID = ra.Rope(axes.axial(ra.frequencies(32), ra.frequencies(32)), pairing="half")
ROWS, HALVES = np.tile(powers(32), 2), np.repeat([0, 1], 16)
WAN = ra.Rope(axes.axial(*map(ra.frequencies, (24, 20, 20))), pairing="interleaved")

# By what was published where: owner/repository and the number of an issue or a pull request.
MISTAKES = {
    "labscommunity/cascadia 69": Mistake(
        by(padded(powers(32), 64)), PART, ("features i and i + 64 form a pair, rather than i and i + 16",), 128
    ),
    "pie-project/pie 602": Mistake(
        by(padded(powers(128)[:16], 64)),
        PART,
        (
            "features i and i + 64 form a pair, rather than i and i + 16",
            "exponents over head_dim rather than rotary_dim",
        ),
        128,
    ),
    "apple/coreai-models 66": Mistake(
        by(powers(128, 1e6)[:16]),
        PROPORTIONAL,
        ("features i and i + 16 form a pair, rather than i and i + 64",),
    ),
    "AI-Hypercomputer/maxtext 4615": Mistake(
        by(powers(128)), PART, ("another rotary_dim, 128: features 0 to 127 are rotated",), 128
    ),
    "lucidrains/RETRO-pytorch 12": Mistake(
        by(powers(32)), plain(), ("another rotary_dim, 32: features 0 to 31 are rotated",)
    ),
    "raullenchai/Rapid-MLX 1225": Mistake(
        lambda x, p: np.concatenate([by(powers(32))(x, p)[..., :32], np.float32(1.25) * x[..., 32:]], -1),
        ra.Rope(PART.frequencies, pairing="half", attention_factor=1.25),
        ("the features that pass through times 1.25", "the attention factor left out"),
        128,
    ),
    "rasbt/LLMs-from-scratch 410": Mistake(
        by(1e4 ** -(np.arange(32) / 64)), plain(), ("exponents over 2 rotary_dim rather than rotary_dim",)
    ),
    "bkitano/llama-from-scratch 8": Mistake(
        by(1e4 ** (2 / 64) * powers(64)), plain(), ("other frequencies: those of base 10000 times 1.33352",)
    ),
    "antonellof/ferrox 39": Mistake(
        by(powers(256, 1e6) / 8),
        GEMMA,
        ("the rotation is that of text, full_attention",),
        options={"layer_type": "sliding_attention"},
    ),
    "lablup/mlxcel 1340": Mistake(
        by(powers(256, 1e6)),
        GEMMA,
        ("the rotation is that of base 1e+06, without scaling",),
        options={"layer_type": "full_attention"},
    ),
    "ggml-org/ggml 835": Mistake(by(powers(64) / 16), LINEAR, ("other frequencies: those of base 10000 times 0.0625",)),
    "labmlai/annotated_deep_learning_paper_implementations 251": Mistake(
        lambda x, p: by(powers(64))(by(powers(64))(x, p), p), plain(), ("rotated twice",)
    ),
    "huggingface/transformers 27226": Mistake(
        by(powers(64, 1e4 * 7 ** (64 / 62))),
        DYNAMIC,
        ("the rotation is that of a sequence of 8192 tokens",),
        options={"sequence_length": 1024},
    ),
    "ml-explore/mlx-lm 1553": Mistake(
        by(powers(64)),
        DYNAMIC,
        ("the rotation is that of a sequence of 2048 tokens",),
        options={"sequence_length": 8192},
    ),
    "apache/tvm 18576": Mistake(
        by(yarn_ramp(LOW, HIGH), factor=M),
        YARN,
        ("other frequencies: those of YaRN, its ramp not rounded, factor 4, base 1000000, original length 32768",),
    ),
    "ggml-org/ggml 913": Mistake(
        by(yarn_ramp(math.floor(LOW) - 1, math.ceil(HIGH)), factor=M),
        YARN,
        ("the ramp of the scaling runs from pair 22 to 40, rather than 23 to 40",),
    ),
    "MakazhanAlpamys/Soup 793": Mistake(
        by(powers(128, 1e6)), YARN, ("the rotation is that of base 1e+06, without scaling",)
    ),
    "sgl-project/sglang 33558": Mistake(
        by(yarn_ramp(math.floor(LOW), math.ceil(HIGH)), factor=M**2), YARN, ("the attention factor counted twice",)
    ),
    "swiss-ai/Megatron-LM 80": Mistake(
        lambda x, p: ra.Rope(
            scaling.ntk_by_parts(ra.frequencies(128, base=5e5), 32.0, original_length=8192, alpha=1, beta=4),
            pairing="half",
        ).apply(x, p),
        LLAMA,
        ("the rotation is that of factor 32",),
    ),
    "ggml-org/llama.cpp 24823": Mistake(
        by(powers(96) / LONG, factor=math.sqrt(1 + math.log(32) / math.log(4096))),
        PHI,
        ("the rotation is that of the long list, for more than 4096 tokens",),
        options={"sequence_length": 4096},
    ),
    "unslothai/unsloth 3699": Mistake(by(powers(64), at=lambda p: p + 5), plain(), ("all positions are off by +5",)),
    "FoundationVision/ControlAR 18": Mistake(
        by(powers(64), at=lambda p: p.astype(int) - 257), plain(), ("all positions are off by -257",)
    ),
    "Blaizzy/mlx-vlm 1983": Mistake(
        with_one_token(lambda p: 0 * p), plain(), ("with one token: nothing is rotated, as if all positions were 0",)
    ),
    "NVIDIA-NeMo/Automodel 2549": Mistake(
        lambda x, p: turned(x, p.astype("f4")[:, None] * powers(64).astype(ml_dtypes.bfloat16).astype("f4")),
        plain(),
        ("frequencies in bfloat16", "angles in float32"),
    ),
    "jundot/omlx 2363": Mistake(
        by(powers(64), at=lambda p: p if p[0] == 0 else 0 * p + p[0]),
        plain(),
        ("all tokens of a call that begins after 0 are rotated as its first",),
    ),
    "ml-explore/mlx-lm 1554": Mistake(by(2 * powers(64)), plain(), ("rotated twice",)),
    "Blaizzy/mlx-vlm 576": Mistake(
        by_axis(np.array([i % 3 if i < 72 else 0 for i in range(64)]), powers(128, 1e6)),
        VL,
        ("sections of the axes: [22, 21, 21] in turns",),
    ),
    "alibaba/rtp-llm 1213": Mistake(
        by_axis(CHUNKED, powers(128, 1e6)), sections([24, 20, 20]), ("sections of the axes: [16, 24, 24] in chunks",)
    ),
    "InfiniTensor/InfiniCore 1350": Mistake(
        by_axis(np.repeat([1, 0, 2], [24, 16, 24]), powers(128, 1e6)),
        sections([16, 24, 24]),
        ("sections of the axes: [16, 24, 24] as measured",),
    ),
    "huggingface/transformers 45325": Mistake(
        by_axis(CHUNKED, powers(128, 1e6), at=lambda p: p * [2, 1, 1]), VL, ("positions of axis 0 times 2",)
    ),
    "turboderp-org/exllamav3 200": Mistake(
        by_axis(0 * CHUNKED, powers(128, 1e6)), VL, ("the axes of the positions are taken as 0, 0, 0",)
    ),
    "Meituan-AutoML/VisionLLaMA 4": Mistake(
        by_axis(HALVES, ROWS, at=lambda p: p[:, ::-1]), GRID, ("the axes of the positions are taken as 1, 0",)
    ),
    "osaurus-ai/vmlx-swift 225": Mistake(by_axis(HALVES, ROWS, at=lambda p: p + 1), GRID, ("positions one too large",)),
    "ServiceNow/Fast-LLM 401": Mistake(
        by_axis(HALVES, np.tile(powers(64)[::2], 2)),
        ra.Rope(axes.alternating(ra.frequencies(64), 2), pairing="half"),
        ("sections of the axes: [16, 16] in chunks, each with its own powers",),
    ),
    "huggingface/diffusers 14768": Mistake(
        by_axis(
            np.repeat([0, 1, 2], [12, 10, 10]),
            np.concatenate([powers(n) for n in (24, 20, 20)]),
            at=lambda p: p * [1.5, 1, 1],
            pairing="interleaved",
        ),
        WAN,
        ("positions of axis 0 times 1.5",),
    ),
    "vllm-project/vllm-omni 3828": Mistake(
        lambda q, k, p: (q.copy(), by(2 * powers(64))(q[:, : k.shape[1]], p)),
        plain(),
        ("nothing is rotated, as if all positions were 0, in queries",),
        options={"keys": True},
    ),
    "jquesnelle/yarn 24": Mistake(
        lambda x, p: turned(
            x, np.outer(p, 1 / (1 / yarn_ramp(1e9, 2e9) * (1 + 3 * np.clip((np.arange(64) - 23) / 17, 0, 1)))), M
        ),
        YARN,
        ("the scaling of the frequencies: its ramp blends wavelengths",),
    ),
    "AI-Hypercomputer/maxtext 4616": Mistake(
        by_axis(np.r_[np.tile([0, 1, 2], 11)[:32], np.zeros(96, int)], powers(256, 1e7)),
        "published:Qwen/Qwen3.5-27B",
        ("another rotary_dim, 256: features 0 to 255 are rotated",),
    ),
    "huggingface/candle 3520": Mistake(
        in_bfloat16,
        plain(),
        ("powers of the base and frequencies and angles in bfloat16", "the rotation itself in bfloat16"),
        options={"like": np.zeros(1, ml_dtypes.bfloat16)},
    ),
}
