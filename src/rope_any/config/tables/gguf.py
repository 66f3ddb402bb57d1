"""
The metadata of GGUF files, as llama.cpp reads it (commit 3f545be, August 2026, and later ones).

Names in files are without the ``general.architecture`` before them.
"""

import re
from collections.abc import Mapping
from functools import partial

from rope_any.config.tables.rows import Architecture, Model, Switch, by_name
from rope_any.config.tables.rules import every

_PATTERN, _RECURRENT = "attention.sliding_window_pattern", "attention.recurrent_layers"
_INTERLEAVED = Architecture(Model("interleaved"))
_GEMMA3 = Architecture(like="gemma3_text", reads=(_PATTERN,))
_OF_KINDS = Architecture(
    kinds=True,
    sliding_base=10_000.0,
    needs_window=True,
    reads=(_PATTERN, "rope.dimension_count_swa", "attention.key_length_swa", "attention.value_length_swa"),
)
_GRANITE = Architecture(Model("interleaved", switch=Switch("rope_finetuned", value=True, default=True)), reads=("ssm",))
_HUNYUAN = Architecture(reads=("rope.scaling.alpha",))
_LFM2 = Architecture(reads=("shortconv",), without_heads="conv")
_QWEN3_NEXT = Architecture(like="qwen3_next", reads=("full_attention_interval", _RECURRENT, "ssm"))
_MISTRAL4 = _INTERLEAVED._replace(reads=("rope.scaling.yarn_log_multiplier",))
_LLAMA = _INTERLEAVED._replace(llama3="8 for Llama 3.1 and 3.3, 32 for Llama 3.2 1B and 3B", by_tokens=True)

_ROWS = {
    """
    arcee arctic bailingmoe chameleon chatglm command-r deepseek ernie4_5 ernie4_5-moe glm-dsa internlm2 llada maincoder
    minicpm nanbeige neo-bert olmo plm xverse
    """: _INTERLEAVED,
    """
    bailingmoe2 bitnet codeshell dbrx dots1 dream eurobert falcon gemma gptneox grovemoe hrm_text hy_v3 jais2
    jina-bert-v3 llada-moe minimax-m2 nemotron nomic-bert nomic-bert-moe olmoe openelm orion pangu-embedded phi2 plamo
    qwen qwen2 qwen2moe qwen3 qwen3moe rnd1 seed_oss stablelm starcoder2
    """: Architecture(),
    "bailingmoe3": _INTERLEAVED._replace(reads=("kda", "ssm"), without_heads="linear_attention", multimodal=True),
    "baichuan": _INTERLEAVED._replace(like="baichuan"),
    "cohere2": _INTERLEAVED._replace(like="cohere2", reads=(_PATTERN,)),
    "deci": _INTERLEAVED._replace(without_heads="mlp", llama3="8"),
    "deepseek2": _MISTRAL4._replace(mla=True),
    "deepseek32 mistral4": _MISTRAL4,
    "glm4": _INTERLEAVED._replace(multimodal=True),
    "llama": _LLAMA,
    "llama-embed": _LLAMA._replace(llama3="8"),
    "llama4": _INTERLEAVED._replace(
        like="llama4_text", llama3="16 for Llama 4 Scout", high_freq_factor=1.0, needs_window=True
    ),
    "mistral3": _MISTRAL4._replace(multiplier=1.0),
    "smollm3": _INTERLEAVED._replace(like="smollm3"),
    "afmoe": Architecture(like="afmoe", reads=(_PATTERN,)),
    "apertus": Architecture(llama3="8"),
    "exaone": Architecture(llama3="8 for EXAONE 3.5"),
    "exaone4": Architecture(windowed_like="exaone4", reads=(_PATTERN,), llama3="16"),
    "falcon-h1": Architecture(reads=("ssm",)),
    "gemma2": Architecture(reads=(_PATTERN,)),
    "gemma3 gemma-embedding": _GEMMA3,
    "gemma4": _OF_KINDS._replace(needs_divisors=True),
    "laguna": _OF_KINDS._replace(model=Model(pattern=partial(every, n=4, first=0)), sliding_base=0.0),
    "mimo2": _OF_KINDS,
    "step35": _OF_KINDS._replace(full_share=0.5, llama3="2 for Step 3.5 Flash"),
    "gemma3n": _GEMMA3._replace(like="gemma3n_text"),
    "glm4moe": Architecture(multimodal=True),
    "gpt-oss": Architecture(reads=(_PATTERN,), truncate=False),
    "hunyuan-dense hunyuan-moe": _HUNYUAN,
    "hunyuan_vl": _HUNYUAN._replace(multimodal=True),
    "lfm2 lfm2moe": _LFM2,
    "minicpm3": Architecture(factors=True),
    "modern-bert": Architecture(like="modernbert", reads=(_PATTERN,)),
    "olmo2": Architecture(windowed_like="olmo3", reads=(_PATTERN,)),
    "phi3 phimoe": Architecture(original=4096),
    "plamo2": Architecture(reads=("ssm",), without_heads="mamba"),
    "qwen3next": _QWEN3_NEXT,
    "qwen2vl paddleocr": Architecture(Model(axes="chunked")),
    "qwen3vl qwen3vlmoe": Architecture(Model(axes="strided")),
    "qwen35": _QWEN3_NEXT._replace(model=Model(axes="strided"), like="qwen3_5_text"),
    "qwen35moe": _QWEN3_NEXT._replace(model=Model(axes="strided"), like="qwen3_5_moe_text"),
    "granite granitemoe": _GRANITE,
    "granitehybrid": _GRANITE._replace(without_heads="mamba"),
    # no rotary embedding, whatever keys about it the file has
    """
    bloom gpt2 jais jamba glm5-next jina-bert-v2 kimi-k3 kimi-linear mamba mamba2 mpt nemotron_h nemotron_h_moe refact
    rwkv6 rwkv6qwen2 rwkv7 arwkv7 t5 t5encoder bert starcoder
    """: Architecture(Model(optional_rotary=True)),
    # an mmproj file
    "clip": Architecture(projectors={"pixtral": 10_000, "kimivl": 10_000, "kimik25": 10_000, "gemma4v": 100}),
}

ARCHITECTURES: Mapping[str, Architecture] = by_name(_ROWS)
"""The architectures, with the pairing in GGUF files."""

READ_BY_FEW = {
    *(key for row in ARCHITECTURES.values() for key in row.reads),
    *("rope.scaling.yarn_ext_factor", "rope.dimension_count_swa", "attention.key_length_swa"),
    *("attention.rope_pattern", "attention.compress_rope_freq_base"),
}
"""
Keys about the rotation, or about which layers rotate, that only rows with them as `reads` may have.

All keys under "ssm" and the like are meant. The meaning of those of no row is not read here.
"""

OF_OTHERS = re.compile(r"(^|\.)rope[._]|^rotary|^partial_rotary")
"""Keys of another form, or of another architecture if they do not begin with the one of the file."""

ABOUT_ROTATION = re.compile(r"rope|rotary|_swa$|recurrent|full_attention|sliding_window_pattern|^(kda|shortconv|ssm)\.")
"""Keys of an architecture about the rotation, or about which layers rotate."""

KEYS = {
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "full_attention_interval": "full_attention_interval",
    "attention_multiplier": "attention.scale",
    "rope_finetuned": "rope.scaling.finetuned",
}
"""Names of keys in transformers, and in the file."""

SCALING = {
    "rope_type": "rope.scaling.type",
    "factor": "rope.scaling.factor",
    "alpha": "rope.scaling.alpha",
    "attention_factor": "rope.scaling.attn_factor",
    "config_attention_factor": "rope.scaling.yarn_attn_factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
    "mscale_all_dim": "rope.scaling.yarn_log_multiplier",
    "mrope_section": "rope.dimension_sections",
}
"""The same for the keys of ``rope_scaling``."""
