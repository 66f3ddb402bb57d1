"""
The vision towers of transformers that have rotary embedding, by the ``model_type`` of their own config.

Audio parts whose positions have one axis are in `models`. Fields are explained in `GridModel`, the functions that rows
name are in `grid_rules`. To add a tower, copy the most similar row, change what differs, and add the tower to `PEERS`
in tests/test_towers.py, which runs the tower itself. If no `Rope` can express it, write the reason in `REFUSED`.
"""

import math
from collections.abc import Mapping
from functools import partial

from rope_any.config.tables import grid_rules as rules
from rope_any.config.tables.models import ALL, own
from rope_any.config.tables.rows import TOWER, GridModel, by_name, tower_base
from rope_any.config.tables.values import optional, value

# --- what several rows share ------------------------------------------------------------------------------

_MERGE = optional("spatial_merge_size", default=2)
_PATCH = optional("patch_size", default=14)
_NUM_HEADS = optional("num_heads", "num_attention_heads", default=16)
_PERMUTED = "stored interleaved in published files, and permuted as transformers loads them"

_QWEN2_VL = TOWER._replace(
    head=(optional("embed_dim", default=1280), _NUM_HEADS), frames=True, order=partial(rules.in_blocks, merge=_MERGE)
)
_PADDLEOCR_VL = TOWER.sized(1152)._replace(frames=True)
_MOONVIT = _PADDLEOCR_VL._replace(pairing="interleaved", columns_first=True, frequencies=rules.in_turn)
_PIXTRAL = TOWER._replace(frequencies=rules.shared)
_DINOV3 = TOWER.sized(384, heads=6)._replace(
    base=optional("rope_theta", default=100.0), scale=math.tau, grid=rules.middles
)
_SAPIENS2 = _DINOV3.sized(1024)

_ROWS = {
    # --- like Qwen2-VL: the same frequencies for rows and for columns, tokens ordered by square blocks ------
    "qwen2_vl_vision": _QWEN2_VL,
    # qwen2_5_vit and qwen3_moe_vit are the towers of Ming
    "qwen2_5_vl_vision qwen2_5_vit qwen2_5_omni_vision_encoder exaone4_5_vision": _QWEN2_VL._replace(
        head=(optional("hidden_size", default=3584), _NUM_HEADS),
        order=partial(rules.in_blocks, merge=_MERGE, window=optional("window_size", default=112), patch=_PATCH),
    ),
    """
    qwen3_vl_vision qwen3_vl_moe_vision qwen3_5_vision qwen3_5_moe_vision qwen3_omni_moe_vision_encoder qwen4_exp_vision
    cohere_compass_vision qwen3_moe_vit
    """: _QWEN2_VL._replace(head=(optional("hidden_size", default=1152), _NUM_HEADS)),
    "glm4v_vision glm4v_moe_vision": _QWEN2_VL._replace(
        head=(optional("hidden_size", default=1536), optional("num_heads", "num_attention_heads", default=12)),
        frames=False,
    ),
    "glm_ocr_vision glm5_next_vision": _QWEN2_VL._replace(head=(optional("hidden_size", default=1024), _NUM_HEADS)),
    "ernie4_5_vl_moe_vision": _QWEN2_VL._replace(head=(optional("hidden_size", default=1280), _NUM_HEADS)),
    # rednote-hilab/dots.ocr; read in vllm 0.33.0, dots_ocr.py
    "dots_vit": _QWEN2_VL._replace(
        head=(optional("embed_dim", "hidden_size", default=1536), optional("num_attention_heads", default=12)),
        frames=False,
    ),
    # vllm 0.33.0, mimo_v2_omni.py; the default is that of sglang 0.5.23, mimo_vl.py
    "mimovl": _QWEN2_VL._replace(head=(optional("qk_channels", default=64),)),
    "dots3_note_vision_encoder": _QWEN2_VL._replace(
        head=(
            optional("hidden_size", "embed_dim", default=1536),
            optional("num_attention_heads", "num_heads", default=24),
        )
    ),
    "lfm3_vl_vision": _QWEN2_VL.sized(1024)._replace(base=tower_base(1_000_000.0)),
    # --- the same frequencies, tokens row by row ------------------------------------------------------------
    "paddleocr_vl_vision": _PADDLEOCR_VL,
    # --- another order of axes or pairs, or other positions -------------------------------------------------
    "kimi_k25_vision": _PADDLEOCR_VL._replace(
        layers=("num_hidden_layers vt_num_hidden_layers",),
        note=_PERMUTED,
        columns_first=True,
        frequencies=rules.in_turn,
    ),
    # vllm 0.33.0, moonvit.py: the weights of Kimi-VL, not permuted
    "moonvit": _MOONVIT,
    # mlx-vlm 9b13f522, kimi_k3/vision.py, and NeMo Automodel 36044ad, kimi_k3/vision.py
    "kimi_k3_vision": _MOONVIT._replace(
        head=(value("qkv_hidden_size", default=1536), value("vt_num_attention_heads", default=12)),
        layers=("vt_num_hidden_layers",),
    ),
    "step3p5_vision": TOWER._replace(
        head=(optional("hidden_size", "width", default=1536), optional("num_attention_heads", "heads", default=16)),
        note=_PERMUTED,
        columns_first=True,
    ),
    "inkling2_vision": TOWER._replace(
        pairing="interleaved",
        columns_first=True,
        frames=True,
        grid=partial(rules.from_zero, first=1),
        order=partial(rules.in_blocks, merge=optional("spatial_merge_size", "adapter_merge_size", default=2)),
    ),
    "muse_glimmer_vision muse_spark_vision": TOWER.sized(1536)._replace(
        axes=("column", "row"),
        frames=True,
        grid=partial(rules.from_zero, first=1),
        order=partial(rules.in_blocks, window=optional("pos_emb_height", default=32)),
    ),
    "minimax_m3_vl_vision": TOWER.sized(1280)._replace(
        axes=("time", "row", "column"), order=partial(rules.in_blocks, merge=_MERGE), unread=("rope_mode",)
    ),
    "gemma4_vision": TOWER._replace(
        head=(optional("head_dim", default=64),),
        base=tower_base(100.0),
        axes=("column", "row"),
        blocks=2,
        scaled=False,
    ),
    "pixtral": _PIXTRAL,
    # The tower of Mistral's params.json; its keys are those of transformers.
    "mistral_vision_encoder": _PIXTRAL._replace(pairing="interleaved"),
    "sam3_vit_model": TOWER._replace(
        pairing="interleaved",
        axes=("column", "row"),
        grid=partial(
            rules.on_image,
            image=optional("image_size", default=1008),
            patch=_PATCH,
            local=optional("window_size", default=24),
        ),
    ),
    "llama4_vision_model": TOWER.sized(768)._replace(
        types=("default",),
        pairing="interleaved",
        axes=("column", "row"),
        grid=partial(rules.on_image, image=optional("image_size", default=448), patch=_PATCH, first=1),
    ),
    # --- like DINOv3: 2π times the frequencies, positions between −1 and 1 ----------------------------------
    "dinov3_vit": _DINOV3,
    "sapiens2": _SAPIENS2,
    "eomt_dinov3": _SAPIENS2._replace(base=tower_base(100.0), types=("default",)),
    # --- the memory attention of video segmenters; its keys are in the config of the whole model ------------
    "sam2_video edgetam_video sam3_tracker_video": TOWER._replace(
        head=(
            optional("memory_attention_hidden_size", default=256),
            optional("memory_attention_num_attention_heads", default=1),
            optional("memory_attention_downsample_rate", default=1),
        ),
        layers=("memory_attention_num_layers",),
        base=tower_base(10_000.0, "memory_attention_rope_theta"),
        unread=("memory_attention_rope_feat_sizes", "memory_attention_rope_k_sizes", "memory_attention_rope_dropout"),
        pairing="interleaved",
        note="keys repeat the grid for each remembered frame; keys of object pointers are not rotated",
        axes=("column", "row"),
    ),
    # --- atoms: coordinates in space and the index of the token of an atom ----------------------------------
    "esmfold2_atom_encoder": TOWER.sized(128, heads=4)._replace(
        base=10_000.0,
        types=("default",),
        axes=("x", "y", "z", "token"),
        frequencies=partial(
            rules.by_pairs,
            pairs=(
                *[optional("num_spatial_rope_pairs_per_axis", default=2)] * 3,
                optional("num_uid_rope_pairs", default=10),
            ),
            bases=(
                *[optional("spatial_rope_base_frequency", default=20.0)] * 3,
                optional("uid_rope_base_frequency", default=10_000.0),
            ),
        ),
        grid=None,
    ),
}

TOWERS: Mapping[str, GridModel] = by_name(_ROWS, own(ALL, GridModel))
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
    "falcon_perception": (
        "half of each head rotates by frequencies of its own, freqs_cis_golden in the weights: make a Rope of shape "
        "(heads, axes, pairs) of them, and one of the other half by rope_theta"
    ),
    "timm_wrapper": "timm makes the rotary embedding; its settings are not in this config",
}
"""Parts, and one model, with a kind of rotary embedding that no `Rope` can express, with the reason."""
