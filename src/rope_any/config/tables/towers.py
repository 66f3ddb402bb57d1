"""
The vision towers of transformers that have rotary embedding, by the ``model_type`` of their own config.

Audio parts whose positions have one axis are in `models`. To add a tower, copy the most similar row, change what
differs, and add the tower to `PEERS` in tests/test_towers.py, which runs the tower itself. If no `Rope` can express it,
write the reason in `REFUSED`.
"""

import math
from collections.abc import Mapping

from rope_any.config.tables.models import ALL, own
from rope_any.config.tables.rows import Tower, by_name
from rope_any.config.tables.values import optional

# --- what several rows share ------------------------------------------------------------------------------

_QWEN2_VL = Tower(
    optional("embed_dim", default=1280),
    optional("num_heads", "num_attention_heads", default=16),
    frames=True,
    merge=optional("spatial_merge_size", default=2),
)
_PADDLEOCR_VL = Tower(optional("hidden_size", default=1152), frames=True)
_PIXTRAL = Tower(optional("hidden_size", default=1024), layout="one row")
_DINOV3 = Tower(
    optional("hidden_size", default=384),
    optional("num_attention_heads", default=6),
    base=100.0,
    objects=(),
    scale=math.tau,
    centred=True,
)
_SAPIENS2 = _DINOV3._replace(
    width=optional("hidden_size", default=1024), heads=optional("num_attention_heads", default=16)
)

_ROWS = {
    # --- like Qwen2-VL: the same frequencies for rows and for columns, tokens ordered by square blocks ------
    "qwen2_vl_vision": _QWEN2_VL,
    "qwen2_5_vl_vision qwen2_5_omni_vision_encoder exaone4_5_vision": _QWEN2_VL._replace(
        width=optional("hidden_size", default=3584),
        window=optional("window_size", default=112),
        patch=optional("patch_size", default=14),
    ),
    """
    qwen3_vl_vision qwen3_vl_moe_vision qwen3_5_vision qwen3_5_moe_vision qwen3_omni_moe_vision_encoder qwen4_exp_vision
    cohere_compass_vision
    """: _QWEN2_VL._replace(width=optional("hidden_size", default=1152)),
    "glm4v_vision glm4v_moe_vision": _QWEN2_VL._replace(
        width=optional("hidden_size", default=1536),
        heads=optional("num_heads", "num_attention_heads", default=12),
        frames=False,
    ),
    "glm_ocr_vision glm5_next_vision": _QWEN2_VL._replace(width=optional("hidden_size", default=1024)),
    "ernie4_5_vl_moe_vision": _QWEN2_VL._replace(width=optional("hidden_size", default=1280)),
    "dots3_note_vision_encoder": _QWEN2_VL._replace(
        width=optional("hidden_size", "embed_dim", default=1536),
        heads=optional("num_attention_heads", "num_heads", default=24),
    ),
    "lfm3_vl_vision": _QWEN2_VL._replace(
        width=optional("hidden_size", default=1024), heads=optional("num_attention_heads", default=16), base=1_000_000.0
    ),
    # --- the same frequencies, tokens row by row ------------------------------------------------------------
    "paddleocr_vl_vision": _PADDLEOCR_VL,
    "video_llama_3_vision": Tower(
        optional("hidden_size", default=768), optional("num_attention_heads", default=12), frames=True, callers=True
    ),
    # --- another order of axes or pairs, or other positions -------------------------------------------------
    "kimi_k25_vision": _PADDLEOCR_VL._replace(
        layers=("num_hidden_layers", "vt_num_hidden_layers"),
        note="stored interleaved in published files, and permuted as transformers loads them",
        features=("column", "row"),
        layout="alternating",
    ),
    "step3p5_vision": Tower(
        optional("hidden_size", "width", default=1536),
        optional("num_attention_heads", "heads", default=16),
        note="stored interleaved in published files, and permuted as transformers loads them",
        features=("column", "row"),
    ),
    "inkling2_vision": Tower(
        optional("hidden_size", default=1024),
        pairing="interleaved",
        features=("column", "row"),
        first=1,
        frames=True,
        merge=optional("spatial_merge_size", "adapter_merge_size", default=2),
    ),
    "muse_glimmer_vision muse_spark_vision": Tower(
        optional("hidden_size", default=1536),
        axes=("column", "row"),
        first=1,
        frames=True,
        window=optional("pos_emb_height", default=32),
    ),
    "minimax_m3_vl_vision": Tower(
        optional("hidden_size", default=1280),
        axes=("time", "row", "column"),
        frames=True,
        merge=optional("spatial_merge_size", default=2),
    ),
    "gemma4_vision": Tower(
        optional("hidden_size", default=768),
        optional("num_attention_heads", default=12),
        head=optional("head_dim", default=64),
        base=100.0,
        axes=("column", "row"),
        blocks=2,
        scaled=False,
    ),
    "pixtral": _PIXTRAL,
    # The tower of Mistral's params.json; its keys are those of transformers.
    "mistral_vision_encoder": _PIXTRAL._replace(pairing="interleaved"),
    "sam3_vit_model": Tower(
        optional("hidden_size", default=1024),
        pairing="interleaved",
        axes=("column", "row"),
        image=optional("image_size", default=1008),
        patch=optional("patch_size", default=14),
        local=optional("window_size", default=24),
    ),
    "llama4_vision_model": Tower(
        optional("hidden_size", default=768),
        rope_type="default",
        pairing="interleaved",
        axes=("column", "row"),
        first=1,
        image=optional("image_size", default=448),
        patch=optional("patch_size", default=14),
    ),
    # --- like DINOv3: 2π times the frequencies, positions between −1 and 1 ----------------------------------
    "dinov3_vit": _DINOV3,
    "sapiens2": _SAPIENS2,
    "eomt_dinov3": _SAPIENS2._replace(objects=("rope_parameters", "rope_scaling"), rope_type="default"),
    # --- the memory attention of video segmenters; its keys are in the config of the whole model ------------
    "sam2_video edgetam_video sam3_tracker_video": Tower(
        optional("memory_attention_hidden_size", default=256),
        optional("memory_attention_num_attention_heads", default=1),
        layers=("memory_attention_num_layers",),
        divisor=optional("memory_attention_downsample_rate", default=1),
        bases=("rope_theta", "memory_attention_rope_theta"),
        unread=("memory_attention_rope_feat_sizes", "memory_attention_rope_k_sizes", "memory_attention_rope_dropout"),
        pairing="interleaved",
        note="keys repeat the grid for each remembered frame; keys of object pointers are not rotated",
        axes=("column", "row"),
    ),
    # --- atoms: coordinates in space and the index of the token of an atom ----------------------------------
    "esmfold2_atom_encoder": Tower(
        optional("hidden_size", default=128),
        optional("num_attention_heads", default=4),
        bases=(),
        objects=(),
        rope_type="default",
        axes=("x", "y", "z", "token"),
        pairs=(
            *[optional("num_spatial_rope_pairs_per_axis", default=2)] * 3,
            optional("num_uid_rope_pairs", default=10),
        ),
        axis_bases=(
            *[optional("spatial_rope_base_frequency", default=20.0)] * 3,
            optional("uid_rope_base_frequency", default=10_000.0),
        ),
        callers=True,
    ),
}

TOWERS: Mapping[str, Tower] = by_name(_ROWS, own(ALL, Tower))
"""Towers with rotary embedding."""

REFUSED: Mapping[str, str] = {
    "mlcd_vision_model": "its class token rotates by learned angles, which are weights and not in a config",
    "qwen2_5_omni_dit": (
        "it rotates only the first head of queries and keys; its own config, read alone, gives the rotation of that "
        "head"
    ),
    "musicflamingo": "it rotates hidden states by time stamps, not queries and keys",
    "efficientloftr": "it rotates all features together before it divides them into heads, so that heads differ",
    "lightglue": "its angles are a learned projection of key points, whose weights are not in a config",
    "vjepa2": "it rotates the two features of a pair by different angles, which is no rotation",
    "timm_wrapper": "timm makes the rotary embedding; its settings are not in this config",
}
"""Parts with a kind of rotary embedding that no `Rope` can express, with the reason."""
