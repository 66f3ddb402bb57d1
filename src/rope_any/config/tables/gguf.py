"""
The metadata of GGUF files, as llama.cpp reads it (commits 3f545be, August 2026, to 0c1e570, October 2026).

Names in files are without the ``general.architecture`` before them.
"""

import re
from collections.abc import Mapping
from functools import partial

from rope_any.config._load import entry_of, one_of
from rope_any.config.tables.models import MODELS
from rope_any.config.tables.rows import Architecture, Layer, Model, Switch, by_name
from rope_any.config.tables.rules import every, sliding, sliding_or_dense
from rope_any.config.tables.values import Part

_PATTERN, _RECURRENT = "attention.sliding_window_pattern", "attention.recurrent_layers"
_WINDOW, _COUNT, _FACTOR = "attention.sliding_window", "rope.dimension_count", "rope.scaling.factor"
_COMPRESS_BASE = "attention.compress_rope_freq_base"
_UNKNOWN_SCALING = {_FACTOR: "which of its layers are scaled is not known"}
_OF_MLA = ("kv_lora_rank", "key_length", "value_length", "key_length_mla", "value_length_mla")
_OF_CONFIG = "that of its config.json"
_FIRST_OF_4 = partial(every, n=4, first=0)


def _by_pattern(part: Part, _: str, index: int) -> bool:
    """Whether a layer rotates: by true or false in the list at ``rope_pattern``; all do without a list."""
    flags = part.get("rope_pattern")
    return flags is None or bool(one_of(entry_of(flags, index), (False, True)))


def _of_two_bases(key: str) -> dict[str, Layer]:
    """Return the kinds of layers of a model with a base of its own, under `key`, for sliding ones."""
    return {"sliding_attention": Layer(10_000.0, key), "full_attention": Layer(10_000.0)}


_INTERLEAVED = Architecture(Model("interleaved"))
_GEMMA3 = Architecture(like=MODELS["gemma3_text"], sliding_base=10_000.0, reads=(_PATTERN,))
_OF_KINDS = Architecture(
    kinds=True,
    sliding_base=10_000.0,
    needs=(_WINDOW,),
    reads=(_PATTERN, "rope.dimension_count_swa", "attention.key_length_swa", "attention.value_length_swa"),
)
_GRANITE = Architecture(Model("interleaved", switch=Switch("rope_finetuned", value=True, default=True)), reads=("ssm",))
_HUNYUAN = Architecture(reads=("rope.scaling.alpha",))
_LFM2 = Architecture(reads=("shortconv",), without_heads="conv")
_QWEN3_NEXT = Architecture(like=MODELS["qwen3_next"], reads=("full_attention_interval", _RECURRENT, "ssm"))
_MISTRAL4 = _INTERLEAVED._replace(reads=("rope.scaling.yarn_log_multiplier",))
_LLAMA = _INTERLEAVED._replace(llama3="8 for Llama 3.1 and 3.3, 32 for Llama 3.2 1B and 3B", by_tokens=True)

_ROWS = {
    """
    arcee arctic bailingmoe chameleon chatglm command-r deepseek ernie4_5 ernie4_5-moe glm-dsa internlm2 llada maincoder
    minicpm nanbeige neo-bert olmo plm pockettts xverse
    """: _INTERLEAVED,
    """
    bailingmoe2 bitnet codeshell dbrx dots1 dream eurobert falcon gemma gptneox grovemoe hrm_text hy_v3 jais2
    jina-bert-v3 llada-moe minimax-m2 minimax-m3 nemotron nomic-bert nomic-bert-moe olmoe openelm orion pangu-embedded
    phi2 plamo qwen qwen2 qwen2moe qwen3 qwen3moe rnd1 seed_oss stablelm starcoder2 talkie
    """: Architecture(),
    "bailingmoe3": _INTERLEAVED._replace(reads=("kda", "ssm"), without_heads="linear_attention", multimodal=True),
    "baichuan": _INTERLEAVED._replace(like=MODELS["baichuan"]),
    "cohere2": _INTERLEAVED._replace(like=MODELS["cohere2"], reads=(_PATTERN,)),
    "cohere2moe": Architecture(
        Model("interleaved", has_rotary=partial(sliding_or_dense, key=""), pattern=_FIRST_OF_4), reads=(_PATTERN,)
    ),
    "deci": _INTERLEAVED._replace(without_heads="mlp", llama3="8"),
    "deepseek2": _MISTRAL4._replace(mla=True),
    "deepseek2-ocr": Architecture(unread=(_COUNT,), refuses={_FACTOR: "llama.cpp does not read it"}),
    "deepseek32 mistral4": _MISTRAL4,
    "deepseek4": Architecture(
        MODELS["deepseek_v4"]._replace(partial=None, indexer=None),
        reads=(_COMPRESS_BASE,),
        needs=(_COMPRESS_BASE, "attention.compress_ratios"),
    ),
    "dots3note": Architecture(
        Model("interleaved", layers=_of_two_bases("swa_rope_theta")),
        needs=("rope.freq_base_swa",),
        reads=(_PATTERN, *(f"attention.{key}_swa" for key in _OF_MLA)),
    ),
    "eagle3": _LLAMA._replace(llama3="that of the model that it drafts for"),
    "glm4": _INTERLEAVED._replace(multimodal=True),
    "llama": _LLAMA,
    "llama-embed": _LLAMA._replace(llama3="8"),
    "llama4": _INTERLEAVED._replace(
        like=MODELS["llama4_text"],
        llama3="16 for Llama 4 Scout",
        high_freq_factor=1.0,
        nonzero=(_WINDOW,),  # llama.cpp then rotates all layers but the last
    ),
    "mistral3": _MISTRAL4._replace(multiplier=1.0),
    "muse-glimmer": Architecture(
        Model("interleaved", has_rotary=sliding, pattern=partial(every, n=4)),
        reads=(_PATTERN,),
        refuses={_FACTOR: "llama.cpp and transformers scale other layers"},
    ),
    "smollm3": _INTERLEAVED._replace(like=MODELS["smollm3"]),
    "afmoe": Architecture(like=MODELS["afmoe"], reads=(_PATTERN,)),
    "apertus": Architecture(llama3="8"),
    "exaone": Architecture(llama3="8 for EXAONE 3.5"),
    "dflash": Architecture(
        reads=(_PATTERN,),
        refuses={"hyper_connection.count": "the drafts of DeepSeek V4 rotate in another way"},
        llama3=_OF_CONFIG,  # the drafts of Gemma 4 have divisors too
    ),
    "exaone4": Architecture(windowed=MODELS["exaone4"], reads=(_PATTERN,), llama3="16"),
    "exaone-moe": Architecture(like=MODELS["exaone_moe"], reads=(_PATTERN,), llama3=_OF_CONFIG),
    "falcon-h1": Architecture(reads=("ssm",)),
    "gemma2": Architecture(reads=(_PATTERN,)),
    "gemma3 gemma-embedding": _GEMMA3,
    "gemma4 gemma4-assistant": _OF_KINDS._replace(needs_divisors=True),
    "laguna": _OF_KINDS._replace(windowed=Model(pattern=_FIRST_OF_4), sliding_base=0.0, needs=()),
    "mimo2": _OF_KINDS,
    "spark2_5": _OF_KINDS._replace(sliding_base=0.0, refuses=_UNKNOWN_SCALING),
    "step35": _OF_KINDS._replace(full_share=0.5, llama3="2 for Step 3.5 Flash"),
    "gemma3n": _GEMMA3._replace(like=MODELS["gemma3n_text"]),
    "glm4moe": Architecture(multimodal=True),
    "grok": Architecture(refuses={_FACTOR: "llama.cpp reads YaRN where other programs scale nothing"}),
    "gpt-oss": Architecture(reads=(_PATTERN,), truncate=False),
    "hunyuan-dense hunyuan-moe": _HUNYUAN,
    "hunyuan_vl": _HUNYUAN._replace(multimodal=True),
    "lfm2 lfm2moe": _LFM2,
    "maple": Architecture(Model(has_rotary=sliding), reads=(_PATTERN,)),
    "minicpm3": Architecture(factors=True),
    "minimax-01": Architecture(
        Model(pattern=partial(every, n=8, key="full_attention_interval", other="linear_attention")),
        reads=("full_attention_interval", _RECURRENT),
    ),
    "modern-bert": Architecture(like=MODELS["modernbert"], sliding_base=10_000.0, reads=(_PATTERN,)),
    "mellum olmo2": Architecture(windowed=MODELS["olmo3"], reads=(_PATTERN,)),
    "phi3 phimoe": Architecture(original=4096),
    "plamo2": Architecture(reads=("ssm",), without_heads="mamba"),
    "plamo3": Architecture(
        windowed=Model(
            layers=_of_two_bases("rope_local_theta"),
            pattern=partial(every, n=8),
        ),
        sliding_base=10_000.0,
        reads=(_PATTERN,),
        refuses=_UNKNOWN_SCALING,
    ),
    "smallthinker": Architecture(windowed=Model(has_rotary=sliding, pattern=_FIRST_OF_4)),
    "qwen3next": _QWEN3_NEXT,
    "qwen2vl paddleocr": Architecture(Model(axes="chunked")),
    "qwen3tts qwen3vl qwen3vlmoe": Architecture(Model(axes="strided")),
    "qwen35": _QWEN3_NEXT._replace(model=Model(axes="strided"), like=MODELS["qwen3_5_text"]),
    "qwen35moe": _QWEN3_NEXT._replace(model=Model(axes="strided"), like=MODELS["qwen3_5_moe_text"]),
    "qwen4exp": _QWEN3_NEXT._replace(model=Model(axes="strided"), like=MODELS["qwen4_exp_text"]),
    "granite granitemoe graniteswitch": _GRANITE,
    "granite_swa": Architecture(
        Model("interleaved", has_rotary=_by_pattern, pattern=_FIRST_OF_4), reads=(_PATTERN, "attention.rope_pattern")
    ),
    "granitehybrid": _GRANITE._replace(without_heads="mamba"),
    # no rotary embedding, whatever keys about it the file has
    """
    bloom gpt2 jais jamba glm5-next jina-bert-v2 kimi-k3 kimi-linear mamba mamba2 mpt nemotron_h nemotron_h_moe refact
    rwkv6 rwkv6qwen2 rwkv7 arwkv7 t5 t5encoder bert starcoder wavtokenizer-dec
    """: Architecture(Model(optional_rotary=True)),
    # the files don't say how they rotate
    "clip": Architecture(
        no_way="an mmproj file has no key for the axes, nor for the base, which llama.cpp sets by the projector type",
        projectors={"pixtral": 10_000, "kimivl": 10_000, "kimik25": 10_000, "gemma4v": 100},
    ),
    "cogvlm": Architecture(no_way="llama.cpp takes base 10000 for CogVLM and CogVLM2, whose code has 500000"),
    "gptj": Architecture(no_way="llama.cpp has no code for it, so the order of its weights is not known"),
    "hy_v4": Architecture(
        ambiguous="llama.cpp pairs neighbours and transformers halves of the same weights: compare outputs"
    ),
}

ARCHITECTURES: Mapping[str, Architecture] = by_name(_ROWS)
"""The architectures, with the pairing in GGUF files."""

UNKNOWN = Architecture(
    ambiguous="it is not known here: read the config.json of the model, whose weights may have another pairing",
    llama3=_OF_CONFIG,
    refuses=dict.fromkeys((_WINDOW, "rope.dimension_sections"), "its layers or axes may differ"),
)
"""The row of an architecture that llama.cpp had not when this table was written."""

READ_BY_FEW = {
    *(key for row in ARCHITECTURES.values() for key in row.reads),
    *("rope.scaling.yarn_ext_factor", "rope.dimension_count_swa", "attention.key_length_swa"),
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
    "first_k_dense_replace": "leading_dense_block_count",
    "rope_pattern": "attention.rope_pattern",
    "compress_ratios": "attention.compress_ratios",
    "compress_rope_theta": "attention.compress_rope_freq_base",
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
