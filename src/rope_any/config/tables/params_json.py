"""
Names in the params.json of Mistral, Meta and ExecuTorch, in DeepSeek's inference/configs, and in gpt-oss' original.

Read in mistral-inference 2557e12, llama-models a9c89c4, facebookresearch/llama, DeepSeek-V3, DeepSeek-V3.2-Exp
6d8cb70, DeepSeek-V4, executorch cff6f4d, gpt-oss 7b58334 and kyutai-labs/moshi e6a55d2. A table that translates has the
name in the file by our name.
"""

import re
from collections.abc import Mapping

from rope_any.config._schemes import ORIGINAL

# --- which names are known --------------------------------------------------------------------------------

COMMON = {"dim", "n_layers", "n_heads", "n_kv_heads", "norm_eps"}
"""A file with at least two of these names has one of the forms."""

SHARED = {
    *("rope_theta", "head_dim", "quantization", "quantization_config", "quantization_args", "lora", "lora_args"),
    *("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"),
}
"""Other names that several forms may have."""

LLAMA4 = {"attention_chunk_size", "attn_temperature_tuning", "moe_args", "nope_layer_interval"}
"""Names of Meta that show that a file is of Llama 4."""

MISTRAL, META, ONNX = "mistral params.json", "meta params.json", "onnx genai"
MOSHI = "moshi config"
DEEPSEEK, EXECUTORCH, GPT_OSS = "deepseek inference config", "executorch params.json", "gpt-oss original config.json"

OWN = {
    MISTRAL: {
        *("hidden_dim", "yarn", "llama_4_scaling", "sliding_window", "_sliding_window", "moe", "tied_embeddings"),
        *("vision_encoder", "multimodal"),
    },
    META: {
        *("multiple_of", "ffn_dim_multiplier", "ffn_exp", "use_scaled_rope", "use_qk_norm", "rope_scaling_factor"),
        *("rope_high_freq_factor", "vision_args", *LLAMA4),
    },
    DEEPSEEK: {
        *("inter_dim", "moe_inter_dim", "n_dense_layers", "n_routed_experts", "n_shared_experts"),
        *("n_activated_experts", "n_expert_groups", "n_limited_groups", "route_scale", "original_seq_len"),
        *("rope_factor", "beta_fast", "beta_slow", "mscale", "index_n_heads", "index_topk"),
        *("rope_head_dim", "window_size", "compress_ratios", "compress_rope_theta"),  # of V4
    },
    EXECUTORCH: {
        *("use_hf_rope", "attention_qkv_bias", "qk_norm_before_rope", "norm_type", "act_fn", "apply_embedding"),
        *("embedding_scale_factor", "layer_types", "local_rope_theta", "no_rope_layer_interval", "attention_type"),
        *("partial_rotary_factor", "attention_multiplier", "model_architecture"),
        *("rope_scaling_short_factor", "rope_scaling_long_factor", "rope_scaling_attention_factor"),
    },
    GPT_OSS: {"initial_context_length", "rope_ntk_alpha", "rope_ntk_beta"},
}
"""Names that only one form has: any of these decides the form."""

BOTH = {"hidden_dim", "ffn_dim_multiplier", "use_scaled_rope", "use_qk_norm", "multiple_of", "sliding_window"}
"""Names of Mistral or Meta that files of ExecuTorch may have too."""

MORE = {
    EXECUTORCH: BOTH | {"rope_scale_factor", "high_freq_factor", "logits_scaling"},
    GPT_OSS: {"rope_scaling_factor", "sliding_window"},
}
"""Other names that files of a form may have, but do not decide the form."""

QUALCOMM = {"no_rope_layer_interval", "attention_multiplier", "local_rope_theta", "model_architecture"}
"""Names that only ExecuTorch's code for Qualcomm reads, which always rotates halves."""

ABOUT_ROTATION = re.compile(
    r"(^|[._])(m|x)?rope|rotary|theta|yarn|scaling|window|(^|[._])nope(_|$)|freq_|_freq$", re.IGNORECASE
)
"""Names about rotary embedding or windows, which must be known ones."""

PARTS = {
    "vision_encoder": "vision",
    "multimodal.vision_encoder_args": "vision",
    "multimodal.whisper_model_args": "audio",
    "vision_args": "vision",
    "vision_model": "vision",
}
"""Objects of other parts: the name of the part by the path in the file."""

TOWERS = {(MISTRAL, "vision"): ("mistral_vision_encoder", ("hidden_size", "num_attention_heads", "rope_theta"))}
"""The model types of parts whose rotation is known, and the keys that they must have, by form and name."""

# --- what they mean ---------------------------------------------------------------------------------------


def _unchanged(*names: str) -> dict[str, str]:
    """Return a table of names that are ours too."""
    return {name: name for name in names}


_SIZES_OF_ALL = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "num_hidden_layers": "n_layers",
    "head_dim": "head_dim",
}

SLICES = _unchanged("qk_rope_head_dim", "qk_nope_head_dim")
"""The two slices of a head of MLA."""

SIZES = {
    MISTRAL: _SIZES_OF_ALL | SLICES | _unchanged("max_position_embeddings", "max_seq_len"),
    # the number of layers does not include those of cross attention, which do not rotate
    META: _SIZES_OF_ALL | _unchanged("attention_chunk_size") | {"no_rope_layer_interval": "nope_layer_interval"},
    DEEPSEEK: _SIZES_OF_ALL | SLICES | _unchanged("index_head_dim", "index_n_heads"),
    EXECUTORCH: _SIZES_OF_ALL | _unchanged("max_position_embeddings", ORIGINAL, "no_rope_layer_interval"),
    GPT_OSS: _unchanged("hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "head_dim"),
}
"""The sizes that a file of a form may have."""

OF_MOSHI = _SIZES_OF_ALL | {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}
"""The sizes in a config of Moshi's own code."""

YARN_OF_MISTRAL = _unchanged("factor", ORIGINAL) | {"beta_fast": "beta", "beta_slow": "alpha"}
"""The keys of Mistral's object ``yarn``."""

YARN_OF_GPT_OSS = {
    "factor": "rope_scaling_factor",
    ORIGINAL: "initial_context_length",
    "beta_fast": "rope_ntk_beta",
    "beta_slow": "rope_ntk_alpha",
}

LONGROPE_OF_EXECUTORCH = {
    "short_factor": "rope_scaling_short_factor",
    "long_factor": "rope_scaling_long_factor",
    "attention_factor": "rope_scaling_attention_factor",
}

YARN_OF_DEEPSEEK = _unchanged("beta_fast", "beta_slow") | {
    "factor": "rope_factor",
    ORIGINAL: "original_seq_len",
    "mscale_all_dim": "mscale",
}

OF_DEEPSEEK_V4 = _unchanged("compress_ratios", "compress_rope_theta") | {"qk_rope_head_dim": "rope_head_dim"}
"""What V4 reads besides, where keys have one part that rotates and layers without compression no scaling."""

DEFAULTS: Mapping[str, Mapping[str, float]] = {
    GPT_OSS: {
        "num_hidden_layers": 36,
        "hidden_size": 2880,
        "num_attention_heads": 64,
        "head_dim": 64,
        "rope_theta": 150_000.0,
        "rope_scaling_factor": 32.0,
        "initial_context_length": 4096,
        "rope_ntk_alpha": 1.0,
        "rope_ntk_beta": 32.0,
    },
    DEEPSEEK: {
        "rope_theta": 10_000.0,
        "max_seq_len": 16_384,  # not of the rotation, but it switches YaRN on
        "rope_factor": 40.0,
        "original_seq_len": 4096,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
    },
}
"""The defaults of the code of a form, by the name in the file."""

FACTORS_OF_META = 8.0, 32.0
"""
The factors of Llama 3's scaling, which no file has: of 3.1, and of 3.2 1B and 3B.

The first is the constant in `apply_scaling` of llama-models (models/llama3/model.py, d42f395).
"""

CONSTANTS_OF_LLAMA4 = {"factor": 16.0, "high_freq_factor": 1.0}
"""The constants of Llama 4's code that differ from those of Llama 3; a file may have others."""

TEMPERATURE_OF_LLAMA4 = _unchanged("floor_scale", "attn_scale")

SCALING_OF_LLAMA4 = {"factor": "rope_scaling_factor", "high_freq_factor": "rope_high_freq_factor"}

BASES_OF_META = {-1: 10_000.0, 32_000: 10_000.0, 128_256: 500_000.0, 202_048: 500_000.0}
"""
The base of Meta's files without ``rope_theta``, by ``vocab_size`` (-1 in some files of Llama 2).

It is a constant in the code of Llama 1 and 2, and the default of an argument in that of Llama 3 and 4.
"""
