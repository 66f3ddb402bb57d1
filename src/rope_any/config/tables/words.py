"""Words in the configs of any model."""

from collections.abc import Mapping
from typing import Any

WITHOUT_ATTENTION = frozenset(("linear_attention", "conv", "mamba", "mamba2", "recurrent", "moe", "mlp"))
"""Layer types without attention, and so without rotary embedding."""

WITH_ATTENTION = frozenset(
    (
        *("full_attention", "sliding_attention", "chunked_attention", "window_attention", "indexed_attention"),
        *("compressed_sparse_attention", "heavily_compressed_attention", "minimax_m3_sparse"),
        *("hybrid", "hybrid_sliding", "reference_sliding_attention"),
    )
)
"""Types of layers with attention."""

RENAMED_TYPES: Mapping[str, str] = {
    "attention": "full_attention",
    "mamba": "linear_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}
"""Older names of types that transformers renames, and today's."""

NEUTRAL: Mapping[str, Any] = {
    "use_mrope": False,
    "use_rope": True,
    "use_rotary_pos_emb": True,
    "position_embedding_xdrope": False,
    "rotary_scaling_factor": 1,
    "mla_use_nope": False,
    "attn_config.rope": False,
}
"""Names about rotary embedding that have no effect with this value; any other value is refused."""

_OF_FOPE = "of FoPE, which mixes the frequencies of the table: rope_any.bending.fope"
_NOT_READ = "not read: this model has rotary embedding with any value"

CHANGES_ATTENTION: Mapping[str, str] = {
    "dual_chunk_attention_config": "maps positions: rope_any.positions.dual_chunk",
    "use_fope": "mixes the frequencies of the table: rope_any.bending.fope",
    **dict.fromkeys(("num_inv_freq", "fope_sep_head", "fope_init_factor"), _OF_FOPE),
    "max_cached_positions": "the length of a table",
    "use_logn_attn": "scales queries by position: rope_any.bending.temperature",
    "rotary_value": "rotates the values too: Rope.apply",
    **dict.fromkeys(("position_embedding_type", "position_embeddings_type", "alibi"), _NOT_READ),
    "use_dynamic_ntk": "raises the base beyond the trained length: rope_any.scaling.dynamic_ntk",
}
"""Names, most of them of engines, that change attention but not the rotation: what they do, and its function here."""

DECIDED_BY_MODEL = frozenset(("alibi", "position_embedding_type", "position_embeddings_type", "use_dynamic_ntk"))
"""Those of them that decide, in some model, whether or how it rotates."""

_DECIDED = "the model_type decides it, else the argument `pairing`"

OTHER_KEYS: Mapping[str, str] = {
    "attn_config.rope": (
        "llm-foundry rotates with it, but the class of transformers does not: its weights need llm-foundry"
    ),
    **dict.fromkeys(
        ("base", "freq_base", "rope_base", "rope_freq_base", "rotary_base", "theta", "theta_base"), "rope_theta"
    ),
    **dict.fromkeys(("interleaved", "is_neox_style", "pairing"), _DECIDED),
    "rope_type": "rope_type belongs in the rope_parameters of a whole config",
    "rope_ratio": "in most of ChatGLM rope_theta is 10000 times it, in ChatGLM2 it divides positions",
    "nope_layer_interval": "no_rope_layer_interval",
    "no_rope_freq": "it is of Megatron, where 1 is a layer without rotary; in no_rope_layers 1 is a layer that rotates",
    "seq_len_interpolation_factor": "it is NeMo's name of the factor of a rope_scaling of type linear",
}
"""Keys of other programs and in wrong places. They are refused; the key or the advice is the hint."""

OTHER_VALUES: Mapping[str, str] = {
    **dict.fromkeys(("llama2", "llama3"), "llama"),
    "qwen2.5": "qwen2",
    "global": "full_attention",
    "local": "sliding_attention",
}
"""Other names of model types and of layer types, which are refused, and the names that are meant."""
