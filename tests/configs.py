"""Configs that several files of tests begin with, and what their tests share."""

import json
from pathlib import Path

import pytest

from rope_any import Rope, config

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096}
GPT = {"model_type": "gpt_neox", "hidden_size": 4096, "num_attention_heads": 32}
GPTJ = {"model_type": "gptj", "hidden_size": 4096, "num_attention_heads": 32}
GEMMA3 = {"model_type": "gemma3_text", "head_dim": 256, "num_hidden_layers": 8, "rope_theta": 1e6}
GEMMA3 |= {"rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
QWEN_VL = {"model_type": "qwen2_vl", "hidden_size": 3584, "num_attention_heads": 28, "rope_theta": 1e6}
QWEN_VL |= {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
FOUR_HEADS = {"head_dim": 64, "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 64, "long_factor": [4.0] * 64}
LONGROPE |= {"original_max_position_embeddings": 4096}
LONG = LLAMA | {"rope_scaling": LONGROPE, "max_position_embeddings": 16_384}
STATED = {"rope_theta": 1e4, "partial_rotary_factor": 1.0}  # what a config of an unknown model must have

# the expected results of published configs; those that ship with the package are not repeated in the file
PUBLISHED = [
    {"config": config.published().get(entry["model"])} | entry
    for entry in json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))
]
NO_ROTARY = "^config must have rotary embedding to make a Rope of; got none: "


def scaled(**keys):
    """Return a config of Llama with a scaling."""
    return LLAMA | {"rope_scaling": keys}


def rows_of(rope):
    """Return the frequencies of each axis."""
    return rope.frequencies if isinstance(rope.frequencies[0], tuple) else (rope.frequencies,)


def no_rotary(model, **options):
    """Whether a config is refused because it has no rotary embedding."""
    with pytest.raises(ValueError, match=NO_ROTARY):
        Rope.from_config(model, **options)
    return True


YARN_KEYS = {"rope__scaling__type": "yarn", "rope__scaling__original_context_length": 32_768}


def gguf(arch, **keys):
    """Return metadata of an architecture; ``__`` means a dot."""
    sizes = {"context_length": 131_072, "embedding_length": 4096, "attention.head_count": 32, "block_count": 4}
    values = sizes | {key.replace("__", "."): value for key, value in keys.items()}
    return {"general.architecture": arch, "tokenizer.ggml.tokens": ["a"]} | {
        f"{arch}.{key}": value for key, value in values.items()
    }
