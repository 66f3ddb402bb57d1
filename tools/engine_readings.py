"""
The table of what engines read differently from `rope_any` in the same config: one case for each row.

``python tools/engine_readings.py --write`` writes docs/engine_readings_table.md. transformers 5.24 runs its own code;
what other engines compute is written as formulas, read in the versions and files that rows and comments name. A
difference is that of the frequencies, or else of the attention factor.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import making
import torch
from transformers import AutoConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phimoe.modeling_phimoe import PhimoeRotaryEmbedding

from rope_any import Rope, config, scaling

PAGE = making.DOCS / "engine_readings_table.md"
PAIRS, BASE, FACTOR, TRAINED = 64, 10_000.0, 4.0, 4096
EXTENDED = int(FACTOR) * TRAINED
MODEL = {"head_dim": 2 * PAIRS, "hidden_size": 2 * PAIRS, "num_attention_heads": 1, "max_position_embeddings": TRAINED}
ORIGINAL = {"factor": FACTOR, "original_max_position_embeddings": TRAINED}
SHORT, LONG = [1.0] * PAIRS, [FACTOR ** (i / (PAIRS - 1)) for i in range(PAIRS)]
MSCALES = {"short_mscale": 1.0, "long_mscale": 1.0}  # phimoe needs them

Row = Sequence[float]
Case = tuple[str, str, str, str]
"""The key or scheme, the engine, what it does, and the difference."""


# --- a config, and who reads it ---------------------------------------------------------------------------


def given(rope_type: str, model_type: str = "llama", layer_type: str = "", **keys: Any) -> dict[str, Any]:
    """Return a config with these keys of a rope type; those of one type of layers if `layer_type` is given."""
    keys = {"rope_type": rope_type, "rope_theta": BASE, **keys}
    return MODEL | {"model_type": model_type, "rope_parameters": {layer_type: keys} if layer_type else keys}


def ours(read: dict[str, Any], **which: Any) -> Rope:
    """Return the rotation that `rope_any` reads in a config."""
    return config.read(read).rope(**which)


def by_transformers(kind: Any, read: dict[str, Any], *lengths: int, **which: Any) -> Row:
    """Return the frequencies of a class of transformers at the last of these lengths, each served in turn."""
    rotary = kind(AutoConfig.for_model(**read))
    for length in lengths:
        cos, sin = rotary(torch.zeros(1), torch.arange(length)[None], **which)
    half = cos.shape[-1] // 2
    return torch.atan2(sin, cos)[0, 1, :half].tolist()  # its angles at position 1


# --- formulas of engines ----------------------------------------------------------------------------------


def plain(base: float = BASE, divisors: Row = SHORT) -> Row:
    """Return base^(−i/n) / divisor for the pairs i of n."""
    return [base ** (-i / PAIRS) / divisor for i, divisor in enumerate(divisors)]


def dynamic(length: float) -> Row:
    """Return plain frequencies with the base · (s length / trained − (s − 1))^(d/(d − 2)) of dynamic NTK."""
    return plain(BASE * (FACTOR * length / TRAINED - (FACTOR - 1)) ** (PAIRS / (PAIRS - 1)))


def yarn(*, length: float = TRAINED, factor: float = FACTOR, reverse: bool = False) -> Row:
    """Return frequencies from f at 32 turns in the length to f / factor at 1 turn; the other way round if reversed."""
    first, last = (PAIRS * math.log(length / (math.tau * turns)) / math.log(BASE) for turns in (32, 1))
    low, high = math.floor(first), math.ceil(last)
    ramp = [min(max((i - low) / (high - low), 0), 1) for i in range(PAIRS)]
    return plain(divisors=[1 / (1 - r + r / factor) for r in ([1 - r for r in ramp] if reverse else ramp)])


def m(c: float) -> float:
    """Return YaRN's 0.1 c ln(factor) + 1."""
    return 0.1 * c * math.log(FACTOR) + 1


# --- differences ------------------------------------------------------------------------------------------


def times(theirs: Row, wanted: Row) -> str:
    """Return the least and the greatest quotient of two rows, to two decimals."""
    quotients = [their / our for their, our in zip(theirs, wanted, strict=True)]
    return "× " + " to ".join(dict.fromkeys(f"{round(q, 2):g}" for q in (min(quotients), max(quotients))))


def factors(*theirs: float, read: dict[str, Any]) -> str:
    """Return the attention factors of an engine and that of `rope_any`."""
    return f"{' or '.join(f'{each:.4g}' for each in theirs)}, not {ours(read).attention_factor:.4g}"


# --- cases ------------------------------------------------------------------------------------------------


def dynamic_rows() -> Iterator[Case]:
    """Yield the cases of dynamic NTK."""
    read = given("dynamic", factor=FACTOR)
    at_trained, at_extended = (ours(read, sequence_length=n).frequencies for n in (TRAINED, EXTENDED))
    # srt/layers/rotary_embedding/rope_variant.py
    does = "makes one table, for the extended length"
    yield "`dynamic`", "SGLang 0.5.23", does, times(dynamic(EXTENDED), at_trained)
    # dynamic_ntk_scaling_rope.py: its two lengths are the same, unless max_trained_positions is given (as by Nomic)
    does = "scale nothing; vLLM's table ends at the trained length"
    difference = f"{times(dynamic(TRAINED), at_extended)} at 4 times the length"
    yield "`dynamic`", "vLLM 0.33, llama.cpp (`conversion/base.py`)", does, difference
    does = "after a long sequence keeps its table until one is shorter than the trained length"
    kept = by_transformers(LlamaRotaryEmbedding, read, EXTENDED, TRAINED)
    yield "`dynamic`", "transformers 5.24", does, times(kept, at_trained)
    # src/layers/modeling/rotary_embedding.py
    divided = plain(divisors=[FACTOR ** (PAIRS / (PAIRS - 1))] * PAIRS)
    difference = times([*divided, *divided], [*at_trained, *at_extended])
    yield "`dynamic`", "keras-hub 0.32", "divides all frequencies alike", difference


def yarn_rows() -> Iterator[Case]:
    """Yield the cases of YaRN's frequencies."""
    right = ours(given("yarn", **ORIGINAL)).frequencies
    # build_rope_cache in model.py
    does = "reverses the ramp, and has no attention factor by default"
    yield "`yarn`", "LitGPT 0.5.13", does, times(yarn(reverse=True), right)
    # modeling_rope_utils.py of 4.51.0 and 4.55.4: the longest over the original length
    difference = f"{times(yarn(factor=1.0), right)}, if `max_position_embeddings` is not raised"
    yield "`yarn`, `factor`", "transformers 4.51 to 4.55", "derive the factor from the lengths", difference
    at_1_turn = ours(given("yarn", beta_fast=1.0, beta_slow=1.0, **ORIGINAL)).frequencies
    does = "reads them only in `mistral3.cpp` and `grok.cpp`"
    difference = f"{times(yarn(), at_1_turn)} if both are 1"
    yield "`yarn`, `beta_fast`, `beta_slow`", "llama.cpp (`src/models`)", does, difference
    # mrope.py; positions_factor is 4, but 1 in qwen3_vl.py and qwen3_5.py
    by_axis = ours(given("yarn", "qwen2_vl", mrope_section=[16, 24, 24], **ORIGINAL)).frequencies
    does = "makes the ramp for 4 times the length, except in Qwen3-VL and Qwen3.5"
    difference = times(yarn(length=4 * TRAINED), [sum(axes) for axes in zip(*by_axis, strict=True)])
    yield "`yarn`, `mrope_section`", "vLLM 0.33", does, difference
    # mlx_lm/models/rope_utils.py; deepseek_scaling_rope.py
    kind = "full_attention"
    by_kind = given("yarn", "gemma3_text", kind, truncate=False, **ORIGINAL)
    theirs = [*yarn(), *by_transformers(Gemma3RotaryEmbedding, by_kind, TRAINED, layer_type=kind)]
    difference = times(theirs, 2 * ours(given("yarn", truncate=False, **ORIGINAL)).frequencies)
    engines = (
        "mlx-lm 0.32, vLLM 0.33 for DeepSeek, llama.cpp (`ggml/src/ggml.c`), transformers 5.24 for keys by layer type"
    )
    yield "`yarn`, `truncate`", engines, "don't read it", difference


def attention_rows() -> Iterator[Case]:
    """Yield the cases of YaRN's attention factor."""
    right = given("yarn", **ORIGINAL)
    # mlx_lm/models/rope_utils.py; srt/layers/rotary_embedding/yarn.py; deepseek_scaling_rope.py
    engines = "mlx-lm 0.32, SGLang 0.5.23, vLLM 0.33 for DeepSeek, llama.cpp (`src/llama-context.cpp`)"
    difference = factors(m(1), read=given("yarn", attention_factor=1.0, **ORIGINAL))
    yield "`yarn`, `attention_factor`", engines, "don't read it", difference
    # the same and rope_variant.py: m(mscale) / m(mscale_all_dim)
    engines = "mlx-lm 0.32, and for DeepSeek vLLM 0.33 and SGLang 0.5.23"
    does = "take 1 for a missing `mscale`, 0 for a missing `mscale_all_dim`"
    difference = factors(m(0.707) / m(0), m(1) / m(1), read=given("yarn", mscale=0.707, **ORIGINAL))
    yield (
        "`yarn`, `mscale` or `mscale_all_dim` alone",
        engines,
        does,
        f"{difference}, for `mscale` 0.707 or `mscale_all_dim` 1",
    )
    does = "has no attention factor without `rope_attention_scaling`"
    yield "`yarn`", "MaxText 0.2.5 (`maxtext/layers/embeddings.py`)", does, factors(1.0, read=right)
    # src/ggml-cpu/ops.cpp
    does = "multiplies by the attention factor itself, so one that is passed too is squared"
    yield "`yarn`", "ggml 0.25", f"{does}; llama.cpp divides by it first", factors(m(1) ** 2, read=right)


def longrope_rows() -> Iterator[Case]:
    """Yield the cases of LongRoPE."""
    read = given("longrope", "phimoe", short_factor=SHORT, long_factor=LONG, **MSCALES, **ORIGINAL)
    long = times(plain(divisors=LONG), ours(read, sequence_length=TRAINED).frequencies)
    # phi3_long_rope_scaled_rope.py
    does = "choose one list as they start, by the longest length that they serve"
    yield "`longrope`", "vLLM 0.33, llama.cpp (`src/llama-model.cpp`)", does, long
    yield "`longrope`", "mlx-lm 0.32", "always takes the long list", long  # SuScaledRoPE in rope_utils.py
    short = by_transformers(PhimoeRotaryEmbedding, read, EXTENDED)
    difference = times(short, ours(read, sequence_length=EXTENDED).frequencies)
    yield "`longrope`", "transformers 5.24, `phimoe`", "takes the short list at every length", difference


def other_rows() -> Iterator[Case]:
    """Yield the cases of what is neither of these."""
    # ntk_scaling_rope.py; what a config says of it we refuse, so that this is our function
    divided = plain(FACTOR * BASE, [FACTOR ** (1 / PAIRS)] * PAIRS)
    does = "multiplies the base by the factor itself, and divides all frequencies"
    yield "`ntk`", "vLLM 0.33", does, times(divided, scaling.ntk(plain(), FACTOR))
    # gemma4_rope.py; srt/layers/rotary_embedding/rope_variant.py
    difference = times(plain(), ours(given("proportional", factor=FACTOR)).frequencies)
    yield "`proportional`, `factor`", "vLLM 0.33, SGLang 0.5.23", "don't read it", difference
    half = by_transformers(LlamaRotaryEmbedding, given("default", partial_rotary_factor=0.5), TRAINED)
    does = "under `rope_type: default` most model classes don't read it"
    yield "`partial_rotary_factor`", "transformers 5.24", does, f"{len(half)} pairs, not {PAIRS // 2}, for 0.5"
    # rotary_embedding_torch.py, component/xpos_relative_position.py, x_transformers.py: at lengths N and M, a query at
    # n has ζ^((n − N//2) / 512), a key at m has ζ^((M//2 − m) / 512): at one length their score has ζ^((n − m) / 512),
    # at two it has ζ^((M − N) / 1024) besides, where ζ = (2i + 0.4d) / 1.4d
    zeta = [(i + 0.4 * PAIRS) / (1.4 * PAIRS) for i in range(PAIRS)]
    does = "centre on half of the current length, so cached keys don't fit later queries"
    engines = "rotary-embedding-torch 0.9.1, torchscale 0.3, x-transformers 2.31"
    yield "xPos", engines, does, f"scores {times([1.0] * PAIRS, zeta)} after 1024 tokens"


def table() -> str:
    """Return the table in Markdown."""
    cases = chain(dynamic_rows(), yarn_rows(), attention_rows(), longrope_rows(), other_rows())
    lines = [("key or scheme", "engine", "what it does", "difference"), ("---",) * 4, *cases]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    making.show(table(), PAGE, write=making.parser(__doc__, PAGE).parse_args().write)
