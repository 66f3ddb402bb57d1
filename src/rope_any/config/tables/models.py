"""
The facts about each ``model_type`` that its config does not give. A model type has one row with all its facts.

Read in transformers 5.24 and measured there: the pairing, the default base, the layers that rotate. The code of some
models comes with their weights. A row gives only what differs from the defaults of `Model`, and model types with the
same facts share a row. In `text`, `parts` and `own`, * is the name of the model.

For example, the row of a new model with an indexer, a tower and streams of images::

    "my_vl": Model(
        text="*_text",
        parts={"vision_config": "*_vision"},
        stream=Numbering(by_frame=True),
        own={
            "*_text": _MLA._replace(indexer=Indexer("half")),
            "*_vision": TOWER.sized(1024, heads=16)._replace(frames=True),
        },
    ),
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from rope_any.config.tables import rules
from rope_any.config.tables.rows import TOWER, Codes, Indexer, Layer, Model, Numbering, Older, Score, Switch, by_name
from rope_any.config.tables.values import optional, value


def _whole(hidden: int, *, heads: int, layers: int) -> dict[str, int]:
    """Return the default sizes of a whole model."""
    return {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers}


# --- what several rows share ------------------------------------------------------------------------------

_PARAMETERS = ("rope_theta", "rope_parameters", "rope_scaling")
_ONE = Score(rules.one)
_MULTIPLIED = Score(partial(rules.by_key, key="attention_multiplier", default=1.0))
_BY_SCALAR = Score(partial(rules.by_key, key="query_pre_attn_scalar", power=-0.5, default=256))
_FOREIGN = Score(partial(rules.unknown, why="its code comes with the weights, and is not known here"))
_LEARNED = Score(partial(rules.unknown, why="it is learned, one for each feature"))
_BEFORE_ROTATION = Score(rules.one, besides="q is multiplied by 1 / sqrt(head_dim) before the rotation")

_FLAGGED = partial(rules.flagged, key="no_rope_layers", interval="no_rope_layer_interval")
_SIXTH_AND_LAST = partial(rules.every, n=6, also=(-1,))
_FULL_LAYERS = partial(rules.full_layers, n=4, first=1, also=(0,))
_OMNI_2 = Numbering("omni", rate="position_id_per_seconds", shared=True)
_OMNI_3 = Numbering("omni", rate="position_id_per_seconds", whole=False)

_TEMPERATURE = Score(
    besides="q is also scaled by position: rope_any.bending.temperature",
    unless=Switch("llama_4_scaling_beta", value=None),
)
_CODEGEN = Model(
    "interleaved",
    keys={"rotary_dim": "rotary_dim"},
    ignored=_PARAMETERS,
    sizes={"rotary_dim": 64},
)
_EXAONE = Model(has_rotary=rules.sliding_if_windowed, pattern=partial(rules.every, n=4, key="sliding_window_pattern"))
_GPT_OSS = Model(base=150_000.0, needs_parameters=True, sizes={"head_dim": 64})
_HUNYUAN = Model(keys={"head_dim": "attention_head_dim"}, parameters=("alpha",), normed=True)
_LFM2 = Model(base=1_000_000.0, pattern=partial(rules.attending, key="full_attn_idxs"))
_LAGUNA = Model(partial=1.0, needs_parameters=True, ignored=("partial_rotary_factor",), sizes={"head_dim": 128})
_GPT_NEOX = Model(
    partial=0.25,
    keys={"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
    ignored=("rope_theta", "partial_rotary_factor"),
)
_MLA = Model(
    "interleaved", sizes={"qk_rope_head_dim": 64}, score=Score(partial(rules.with_mscale, plain=128)), latent="half"
)
_LONGCAT = _MLA._replace(
    base=10_000_000.0,
    keys={"qk_rope_head_dim": "head_dim"},
    score=_MLA.score._replace(besides="q and the latent of k are multiplied before the rotation"),
)
_MLA_64 = _MLA._replace(score=Score(partial(rules.with_mscale, plain=64)))
_MLA_192 = _MLA._replace(score=Score(partial(rules.with_mscale, plain=192)))
_GLM4V = Model("interleaved", partial=1.0, axes="chunked", sections=(8, 12, 12))
_QWEN2_VL = Model(base=1_000_000.0, axes="chunked", sections=(16, 24, 24))
_QWEN3_VL = Model(axes="strided", sections=(24, 20, 20))
_QWEN3_5 = Model(
    partial=0.25,
    axes="strided",
    sections=(11, 11, 10),
    pattern=partial(rules.every, n=4, key="full_attention_interval", other="linear_attention"),
    sizes={"head_dim": 256},
)
_GEMMA3 = Model(
    layers={
        "sliding_attention": Layer(10_000.0, "rope_local_base_freq", scaled=False),
        "full_attention": Layer(1_000_000.0),
    },
    pattern=partial(rules.every, n=6, key="sliding_window_pattern"),
    ignored=("rope_scaling.type",),
    sizes={"head_dim": 256},
    score=_BY_SCALAR,
)
_GEMMA4 = Model(
    needs_parameters=True,
    keys={"full_attention.head_dim": "global_head_dim"},
    pattern=_SIXTH_AND_LAST,
    sizes={"head_dim": 256, "full_attention.head_dim": 512},
    score=_ONE,
)
_MODERNBERT = Model(
    layers={
        "sliding_attention": Layer(10_000.0, "local_rope_theta"),
        "full_attention": Layer(160_000.0, "global_rope_theta"),
    },
    pattern=partial(rules.every, n=3, key="global_attn_every_n_layers", first=0),
    ignored=("rope_scaling.type",),
)
_MUSE = Model(
    has_rotary=partial(rules.with_base_or_sliding, key="layer_rope_theta"),
    pattern=partial(rules.every, n=4, from_last=True),
    sizes={"head_dim": 128},
    score=Score(besides="q is multiplied by qk_scale_factor before the rotation"),
)
_ESM = Model(
    switch=Switch("position_embedding_type", value="rotary", default="absolute"),
    ignored=("rope_parameters", "rope_scaling"),
    score=_BEFORE_ROTATION,
)
_WAV2VEC2 = Model(
    keys={"rope_theta": "rotary_embedding_base"},
    switch=Switch("position_embeddings_type", value="rotary", default="relative"),
    ignored=("rope_parameters", "rope_scaling", "head_dim"),
    alone="audio",
)
_GTE = Model(parameters=("ntk_factor", "mixed_b"), neutral={"logn_attention_scale": False})
_MIMO_V2 = Model(
    partial=0.334,
    layers={"sliding_attention": Layer(10_000.0, "swa_rope_theta"), "full_attention": Layer(5_000_000.0)},
    codes=Codes("hybrid_layer_pattern", {"0": "full_attention", "1": "sliding_attention"}),
    pattern=partial(rules.every, n=6, also=(0,)),
    ignored=("rope_theta", "swa_rope_theta", "partial_rotary_factor", "rope_scaling"),
    sizes={"head_dim": 192},
)
_NULL_HEAD = Older(null_head=True)
_VL = Model(text="*_text", parts={"vision_config": "*_vision"})

# --- models that have a known rotation, or are known to have none -----------------------------------------

_ROWS = {
    # --- Pairing "half", and all layers have the same rotation ----------------------------------------------
    """
    arcee deepseek_ocr2_encoder diffllama doge dots1 esmc eurobert
    gradium_phonon_tts idefics jais2 kyutai_speech_to_text moshi olmoe pocket_tts qwen2_moe
    qwen3_moe starcoder2 voxtral_realtime_text
    """: Model(),
    # The code of these models comes with the weights, or is an engine's.
    "arctic": Model(base=1_000_000.0),
    "aria_music iquestloopcoder": Model(base=500_000.0),
    # Layers with a window may have fewer, wider heads.
    "baichuan_m1": Model(
        layers={"sliding_attention": Layer(10_000.0), "full_attention": Layer(10_000.0)},
        keys={"sliding_attention.num_attention_heads": "num_swa_attention_heads"},
        pattern=rules.by_windows,
    ),
    "bailing_moe": Model(sizes={"original_max_position_embeddings": 4096}),
    """
    bidir_mistral deci grove_moe Klear klear mimo nanbeige PanguEmbedded plamo sdar sdar_moe
    """: Model(),
    "llada molmo": Model(neutral={"rope": True}, unread=("rope_full_precision",)),
    "bailing_moe_v2 llada2_moe": Model(base=600_000.0, partial=1.0, sizes={"head_dim": 128}),
    # Layers of linear attention rotate too.
    "bailing_moe_linear": Model(base=600_000.0, partial=1.0, neutral={"linear_rope": True}),
    "step3_text": Model(base=500_000.0, sizes={"head_dim": 256}),
    "phi3small": Model(
        base=1_000_000.0,
        keys={"rope_theta": "rope_embedding_base"},
        neutral={"rope_position_scale": 1},
        ignored=("rope_theta", "rope_scaling"),
        score=_FOREIGN,
    ),
    "nemotron-nas": Model(has_rotary=rules.in_blocks),
    "new": _GTE._replace(
        switch=Switch("position_embedding_type", value="rope", default="rope"),
        computed=partial(rules.of_gte, others=False),
    ),
    "qwen3_asr_text": Model(base=5_000_000.0, computed=rules.without_sections, sizes={"head_dim": 128}),
    "yuan": Model(
        computed=rules.of_yuan,
        keys={"rotary_dim": "rotary_dim"},
        neutral={"use_yarn": False},
        ignored=("rope_theta", "rope_scaling"),
    ),
    "chameleon olmo olmo2": Model(older=Older(("default", "linear", "dynamic"), ("factor",))),
    "ministral": Model(older=_NULL_HEAD),
    """
    lasr_encoder mimi mimi_decoder mimi_encoder pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_decoder
    pocket_tts_audio_tokenizer_encoder
    """: Model(alone="audio"),
    "nemotron3_diarization_audio": Model(partial=1.0, alone="audio"),
    "apertus apertus1p5_text": Model(base=12_000_000.0, needs_parameters=True),
    "baichuan": Model(has_rotary=rules.unless_alibi, ignored=("rope_scaling", "rope_parameters")),
    "bitnet csm csm_depth_decoder_model exaone flex_olmo": Model(base=500_000.0),
    "evolla": Model(base=500_000.0, parts={"protein_encoder_config": "saprot"}),
    "cwm lfm3": Model(base=1_000_000.0, needs_parameters=True, sizes={"head_dim": 128}),
    # transformers 5.24 does not read the object attn_config.
    "dbrx": Model(keys={"rope_theta": "attn_config.rope_theta"}),
    "unlimited_ocr_text": Model(ignored=("head_dim",)),
    "deepseek_ocr2_text": Model(ignored=("head_dim",), sizes=_whole(4096, heads=32, layers=32)),
    "llama": Model(sizes=_whole(4096, heads=32, layers=32), instead=rules.type_of_eagle),
    "qwen2": Model(sizes=_whole(4096, heads=32, layers=32)),
    "mistral": Model(sizes=_whole(4096, heads=32, layers=32), older=_NULL_HEAD),
    "deepseek": Model(computed=rules.no_slices, unread=("qk_rope_head_dim",)),
    "dia_decoder dia_encoder": Model(sizes={"head_dim": 128}, score=_ONE),
    "glm4_moe nemotron phi": Model(partial=0.5),
    "gpt_neox": _GPT_NEOX,
    "gpt_neox_japanese": _GPT_NEOX._replace(partial=1.0),
    "dots3_note_audio_encoder": Model(partial=0.5, ignored=("head_dim",), alone="audio"),
    "glmasr_encoder": Model(partial=0.5, alone="audio"),
    "nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp": Model(
        partial=1.0, needs_parameters=True, alone="audio"
    ),
    "emu3_text_model": Model(base=1_000_000.0, sizes=_whole(4096, heads=32, layers=32)),
    "internlm": Model(computed=rules.of_internlm, ignored=("rope_scaling",), unread=("rotary",)),
    "internlm2 minicpm orion xverse Yi": Model(score=_FOREIGN),
    "mixformer-sequential phi-msft": _CODEGEN._replace(
        pairing="half", unread=("flash_rotary",), sizes={"rotary_dim": 32}
    ),
    "falcon_h1": Model(
        score=Score(
            besides="k is multiplied by key_multiplier before the rotation",
            unless=Switch("key_multiplier", value=1, default=1),
        )
    ),
    "gemma": Model(sizes={"head_dim": 256, **_whole(3072, heads=16, layers=28)}),
    "gemma2 t5_gemma_module vaultgemma": Model(sizes={"head_dim": 256}, score=_BY_SCALAR),
    "qwen": Model(
        keys={"head_dim": "kv_channels", "rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
        computed=rules.of_qwen,
        parameters=("seq_length",),
        ignored=("rope_theta", "rope_scaling", "partial_rotary_factor"),
        unread=("use_dynamic_ntk",),
        neutral={"pos_emb": "rotary"},
    ),
    "stablelm stablelm_epoch": Model(partial=0.25, keys={"partial_rotary_factor": "rope_pct"}, ignored=("rope_pct",)),
    "gpt_oss": _GPT_OSS,
    "granite": Model(sizes=_whole(4096, heads=32, layers=32), score=_MULTIPLIED),
    "granite4_vision_text granitemoe granitemoeshared": Model(score=_MULTIPLIED),
    "granite_docling_text": Model(score=Score(partial(rules.by_key, key="attention_multiplier", default=0.015625))),
    "gte": _GTE._replace(
        base=160_000.0, neutral={**_GTE.neutral, "position_embedding_type": "rope"}, computed=rules.of_gte
    ),
    "higgs_audio_v2": Model(needs_parameters=True, sizes={"head_dim": 128}),
    "laguna mellum": _LAGUNA,
    """
    hrm_text internlm3 iquestcoder qwen3_omni_moe_talker_code_predictor qwen3_tts_talker_code_predictor seed_oss
    """: Model(sizes={"head_dim": 128}),
    # ACE-Step 1.5, whose code comes with the weights: its encoders have other numbers of layers, and the same rotation.
    "acestep": Model(base=1_000_000.0, alone="audio", sizes={"head_dim": 128}),
    "hunyuan hunyuan_v1_dense hunyuan_v1_moe": _HUNYUAN._replace(older=_NULL_HEAD, ignored=("attention_head_dim",)),
    "hy_v3": Model(base=11_158_840.0, sizes={"head_dim": 128}),
    "hyperclovax": Model(score=Score(partial(rules.by_key, key="attention_multiplier"))),
    "jetmoe": Model(keys={"head_dim": "kv_channels"}, sizes={"head_dim": 128}),
    "jina_embeddings_v3": Model(base=20_000.0, keys={"rope_theta": "rotary_emb_base"}, ignored=("rotary_emb_base",)),
    "minimax_m2": Model(base=5_000_000.0, partial=1.0, keys={"rotary_dim": "rotary_dim"}, sizes={"head_dim": 128}),
    "minimax_m1 minimax_text_01": Model(
        partial=1.0,
        keys={"rotary_dim": "rotary_dim"},
        codes=Codes("attn_type_list", {"0": "linear_attention", "1": "full_attention"}),
        ignored=("rope_scaling",),
    ),
    "minimax_m3 minimax_m3_vl_text": Model(
        base=5_000_000.0,
        partial=1.0,
        codes=Codes("sparse_attention_config.sparse_attention_freq", {"0": "full_attention", "1": "minimax_m3_sparse"}),
        unread=("rotary_dim",),
        sizes={"head_dim": 128},
        indexer=Indexer(
            "half",
            width=value("sparse_attention_config.sparse_index_dim", "index_head_dim", default=128),
            layers=partial(rules.by_type, types=("minimax_m3_sparse",)),
        ),
    ),
    "ministral3": Model(needs_parameters=True, sizes={"head_dim": 128}, score=_TEMPERATURE),
    "mixtral": Model(base=1_000_000.0, older=_NULL_HEAD),
    "phimoe": Model(base=1_000_000.0, parameters=("short_mscale", "long_mscale")),
    "molmo2_text": Model(keys={"scaled_layers": "rope_scaling_layers"}, sizes={"head_dim": 128}),
    "muse_glimmer_assistant": Model(base=500_000.0, sizes={"head_dim": 128}),
    "nanochat": Model(backwards=True),
    "neucodec voxtral_realtime_encoder xcodec2": Model(alone="audio", sizes={"head_dim": 64}),
    "nomic_bert": Model(
        base=1_000.0,
        keys={"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_emb_fraction"},
        computed=rules.of_nomic,
        ignored=("rotary_emb_base", "rotary_emb_fraction"),
        unread=("rotary_scaling_factor",),
    ),
    "openelm": Model(
        keys={"rope_theta": "rope_freq_constant", "num_hidden_layers": "num_transformer_layers"},
        unread=("rope_max_length",),
        score=_FOREIGN,
    ),
    "persimmon": Model(partial=0.5, sizes=_whole(4096, heads=64, layers=36)),
    "phi3 phi4 phi4_multimodal phi4mm": Model(
        partial=1.0,
        types={"yarn": "longrope"},
        older=Older(("default", "longrope"), ("short_factor", "long_factor")),
        sizes={"original_max_position_embeddings": 4096, **_whole(3072, heads=32, layers=32)},
    ),
    "phi3_v": Model(types={"yarn": "longrope"}, score=_FOREIGN),
    "qwen3": Model(sizes={"head_dim": 128, **_whole(4096, heads=32, layers=32)}),
    # Its config gives no model_type.
    "qwen3_omni_moe_code2wav": Model(alone="audio", sizes=_whole(1024, heads=16, layers=8)),
    "sarvam_moe": Model(base=8_000_000.0, partial=1.0, sizes={"head_dim": 64}),
    "solar_open": Model(base=1_000_000.0, partial=1.0, sizes={"head_dim": 128}),
    "timesfm2_5": Model(sizes={"head_dim": 80}, score=_LEARNED),
    "zaya": _LAGUNA._replace(
        computed=rules.of_zaya,
        score=Score(besides="the norm of k, before the rotation, has a learned factor for each head"),
    ),
    # --- Pairing "interleaved", and all layers have the same rotation ---------------------------------------
    "blt_patcher": Model("interleaved"),
    "blt_global_transformer blt_local_decoder blt_local_encoder cohere ernie4_5_moe": Model(
        "interleaved", base=500_000.0
    ),
    "chatglm": Model(
        "interleaved",
        partial=0.5,
        keys={"head_dim": "kv_channels", "partial_rotary_factor": "rotary_percent"},
        computed=rules.of_chatglm,
        flag_sets_pairing=True,
        ignored=("rope_scaling", "partial_rotary_factor", "rotary_percent"),
        unread=("rope_ratio", "original_rope"),
    ),
    "codegen moss": _CODEGEN,
    "ernie4_5": Model("interleaved", base=500_000.0, sizes={"head_dim": 128}),
    "glm glm4": Model("interleaved", partial=0.5, sizes={"head_dim": 128}),
    "helium": Model("interleaved", base=100_000.0, sizes={"head_dim": 128}),
    "moonshine": Model("interleaved", partial=0.9, keys={"num_attention_heads": "decoder_num_attention_heads"}),
    "moonshine_streaming": Model("interleaved", partial=1.0, needs_parameters=True),
    "openai_privacy_filter": _GPT_OSS._replace(
        pairing="interleaved", score=Score(besides="by head_dim ** -0.25 on q and the same on k")
    ),
    "pe_audio_video_encoder": Model("interleaved", base=20_000.0, sizes={"head_dim": 128}),
    "pe_video_encoder": Model("interleaved", base=20_000.0, alone="vision", sizes={"head_dim": 128}),
    "pe_audio_encoder": Model("interleaved", base=20_000.0, alone="audio", sizes={"head_dim": 128}),
    "qwen2_5_omni_dit": Model("interleaved", sizes={"head_dim": 64}),
    "roformer": Model("interleaved", ignored=("head_dim", *_PARAMETERS), unread=("rotary_value",)),
    # --- A rotary slice of the head (MLA) -------------------------------------------------------------------
    # The classes take pairs of adjacent features and write the results as halves. The scores equal those of
    # "interleaved".
    "youtu_llm": _MLA._replace(base=1_600_000.0, flag_sets_pairing=True, latent=None),
    "axk1 deepseek_v3 youtu": _MLA._replace(keys={"qk_rope_head_dim": "head_dim"}, flag_sets_pairing=True),
    "kimi_k2": _MLA._replace(flag_sets_pairing=True, latent=None),
    "axk2": _MLA_64._replace(sizes={"qk_rope_head_dim": 32}, indexer=Indexer("half")),
    "bailing_hybrid": _MLA._replace(
        base=6_000_000.0,
        pattern=partial(rules.every, n=6, key="layer_group_size", other="linear_attention"),
        parameters_win=True,
    ),
    "deepseek_v2": _MLA._replace(latent="interleaved", instead=rules.type_without_mla),
    "deepseek_v32": _MLA._replace(indexer=Indexer("half")),
    "deepseek_v4": Model(
        "interleaved",
        partial=0.125,
        layers={
            "main": Layer(10_000.0, scaled=False),
            "compress": Layer(160_000.0, "compress_rope_theta", attention_factor=1.0),
        },
        keys={"qk_rope_head_dim": "qk_rope_head_dim"},
        pattern=partial(
            rules.every, n=2, since=3, kind="compressed_sparse_attention", other="heavily_compressed_attention"
        ),
        codes=Codes(
            "compress_ratios",
            {"0": "sliding_attention", "4": "compressed_sparse_attention", "128": "heavily_compressed_attention"},
        ),
        label=partial(rules.labelled, main="main", sliding_attention="main", others="compress"),
        sizes={"head_dim": 512},
        trailing=True,
        unmovable="values that rotate too, and compressed keys",
        indexer=Indexer(
            "interleaved",
            last=True,
            layers=partial(rules.by_type, types=("compressed_sparse_attention",)),
            layer_type="compress",
            stride=optional("compress_rates.compressed_sparse_attention", "compress_rate_csa", default=4),
        ),
    ),
    "dots3_note_text": _MLA._replace(
        layers={"sliding_attention": Layer(50_000.0, "swa_rope_theta"), "indexed_attention": Layer(80_000_000.0)},
        keys={
            "sliding_attention.qk_rope_head_dim": "swa_qk_rope_head_dim",
            "sliding_attention.qk_nope_head_dim": "swa_qk_nope_head_dim",
        },
        sizes={
            "qk_rope_head_dim": 64,
            "sliding_attention.qk_rope_head_dim": 64,
            "sliding_attention.qk_nope_head_dim": 192,
        },
        slice_by_share="computed",
        one_base_if_flat=True,
        score=Score(partial(rules.by_slices, plain=128)),
        indexer=Indexer("interleaved", layers=rules.unless_off, layer_type="indexed_attention"),
    ),
    "glm4_moe_lite": _MLA_192._replace(partial=1.0, keys={"qk_rope_head_dim": "head_dim"}, flag_sets_pairing=True),
    "glm_moe_dsa": _MLA_192._replace(indexer=Indexer("interleaved", layers=rules.scheduled)),
    "hy_v4": _MLA_192._replace(pairing="half", indexer=Indexer("half", last=True, layers=_FULL_LAYERS)),
    "hy_v4_vl_text": _MLA_192._replace(
        latent="interleaved",
        axes="strided",
        sections=(12, 10, 10),
        indexer=Indexer("interleaved", last=True, layers=_FULL_LAYERS),
    ),
    "longcat_flash": _LONGCAT,
    "longcat_flash_ngram": _LONGCAT._replace(latent=None),  # its code comes with its weights
    "minicpm3": _MLA_64._replace(pairing="half", sizes={"qk_rope_head_dim": 32}),
    "mistral4": _MLA._replace(
        needs_parameters=True,
        slice_by_share="given",
        flag_sets_pairing=True,
        score=_TEMPERATURE._replace(rule=_MLA_64.score.rule),
    ),
    "mistral_large4_text": _MLA._replace(
        needs_parameters=True,
        has_rotary=_FLAGGED,
        learned="times exp(alpha), where alpha is rotary_emb.alpha of the weights",
        latent=None,
        score=Score(partial(rules.unknown, why="it is learned, and grows with the logarithm of the position of q")),
        indexer=Indexer("interleaved", layers=rules.scheduled),
    ),
    "sarvam_mla": _MLA._replace(types={"deepseek_yarn": "yarn"}, flag_sets_pairing=True),
    # --- Several axes (M-RoPE) ------------------------------------------------------------------------------
    "cohere_compass_text": _QWEN3_VL._replace(needs_parameters=True),
    "cosmos3_edge_text": _QWEN3_VL._replace(base=100_000_000.0, needs_parameters=True, sizes={"head_dim": 128}),
    "ernie4_5_vl_moe_text": Model("interleaved", base=500_000.0, axes="last for time", sections=(22, 22, 20)),
    "glm4v_moe_text": _GLM4V._replace(pairing="half", partial=0.5),
    "glm4v_text": _GLM4V._replace(sizes=_whole(4096, heads=32, layers=40)),
    "glm_image_text": _GLM4V._replace(pairing="half"),
    "glm_ocr_text": _GLM4V,
    # The class applies the sections to the table with each pair twice. If positions differ by axis, this is no
    # rotation.
    "hunyuan_vl_text": _HUNYUAN._replace(axes="doubled", types={"xdrope": "dynamic"}),
    # The default share of sliding layers is 1.
    "neomme": Model(
        partial=0.25,
        needs_parameters=True,
        axes="alternating",
        sections=(1, 1),
        pattern=_SIXTH_AND_LAST,
        ignored=("partial_rotary_factor",),
        sizes={"head_dim": 64},
    ),
    "paddleocr_vl_text": _QWEN2_VL._replace(base=500_000.0, sizes={"head_dim": 128}),
    "qwen2_5_omni_talker": _QWEN2_VL._replace(sizes={"head_dim": 128}),
    "qwen2_5_omni_text": _QWEN2_VL,
    "qwen2_5_vl_text qwen2_vl_text": _QWEN2_VL._replace(sizes=_whole(8192, heads=64, layers=80)),
    "qwen3_5_moe_text": _QWEN3_5._replace(sizes={"head_dim": 256, **_whole(2048, heads=16, layers=40)}),
    "qwen3_5_text": _QWEN3_5._replace(sizes={"head_dim": 256, **_whole(4096, heads=16, layers=32)}),
    "qwen3_omni_moe_talker_text qwen3_tts_talker": _QWEN3_VL,
    "qwen3_omni_moe_text": _QWEN3_VL._replace(base=1_000_000.0),
    "qwen3_vl_moe_text": _QWEN3_VL._replace(base=500_000.0, sizes=_whole(2048, heads=16, layers=24)),
    "qwen3_vl_text": _QWEN3_VL._replace(base=500_000.0, sizes={"head_dim": 128, **_whole(4096, heads=32, layers=32)}),
    "qwen4_exp_text": _QWEN3_5._replace(
        partial=1.0,
        indexer=Indexer(
            "half",
            width=value("indexer_head_dim", default=128),
            with_head=("indexer_n_heads", "indexer_kv_heads", "indexer_budget", "indexer_compress_ratio"),
            layers=partial(rules.by_type, types=("indexed_attention", "full_attention")),
            stride=value("indexer_compress_ratio"),
        ),
    ),
    # --- Kinds of layers with their own parameters ----------------------------------------------------------
    "beam": Model(
        needs_parameters=True,
        pattern=_SIXTH_AND_LAST,
        sizes={"head_dim": 128},
        score=Score(besides="layers without rotary also scale q by position"),
    ),
    "diffusion_gemma_text": _GEMMA4._replace(partial=1.0, ignored=("partial_rotary_factor",)),
    "embedding_gemma2_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4._replace(computed=rules.of_gemma4),
    "dory": Model(
        needs_parameters=True,
        unmovable="keys of layers that run several times, which its config does not count",
        pattern=partial(rules.every, n=4),
        sizes={"head_dim": 256},
        score=_LEARNED,
    ),
    "gemma3_text": _GEMMA3._replace(sizes={"head_dim": 256, **_whole(2304, heads=8, layers=26)}),
    "gemma3n_text": _GEMMA3._replace(
        pattern=partial(rules.every, n=5), sizes={"head_dim": 256, **_whole(2048, heads=8, layers=35)}, score=_ONE
    ),
    "gemma4_text": _GEMMA4._replace(
        computed=rules.of_gemma4, sizes={**_GEMMA4.sizes, **_whole(2304, heads=8, layers=30)}
    ),
    "mimo_v2_flash": _MIMO_V2,
    # Their code reads the two bases and the share, and has no default for the kinds of layers; vllm 0.33.0 and
    # modeling_naive_n05_flash.py.
    "mimo_v2 naive_n05_flash": _MIMO_V2._replace(
        partial=1.0,
        computed=rules.of_mimo_v2,
        keys={"sliding_attention.head_dim": "swa_head_dim"},
        pattern=None,
        ignored=("rope_scaling",),
        sizes={},
        indexer=Indexer(
            "half",
            width=value("index_head_dim"),
            with_head=("index_n_heads",),
            layers=partial(rules.by_type, types=("full_attention",)),
            layer_type="full_attention",
        ),
        parts={"vision_config": "mimovl", "audio_config": "mimo_v2_audio"},
    ),
    "mimo_v2_audio": Model(
        base=640_000.0,
        partial=1.0,
        keys={"head_dim": "input_local_head_dim", "num_hidden_layers": "input_local_layers"},
        alone="audio",
    ),
    # Only layers with a sliding window rotate.
    "maple": Model(
        partial=1.0,
        has_rotary=rules.sliding,
        neutral={"nope_on_global_attention": True},
        pattern=partial(rules.every, n=4),
    ),
    "fish_qwen3 fish_qwen3_audio_decoder": Model("interleaved", keys={"rope_theta": "rope_base"}),
    "plamo2": Model(
        keys={"head_dim": "hidden_size_per_head"},
        neutral={"mamba_enabled": True, "mamba_step": 2},
        pattern=partial(rules.every, n=2, other="linear_attention"),
    ),
    "spark2_5": Model(partial=1.0, needs_parameters=True, sizes={"head_dim": 256}),
    "modernbert": _MODERNBERT._replace(sizes=_whole(768, heads=12, layers=22)),
    "modernbert-decoder": _MODERNBERT,
    "olmo3": Model(
        layers={"sliding_attention": Layer(500_000.0, scaled=False), "full_attention": Layer(500_000.0)},
        pattern=partial(rules.every, n=4),
        ignored=("sliding_attention.rope_theta", "rope_scaling.type"),
    ),
    "step3p5": Model(
        partial=1.0,
        computed=rules.of_step3p5,
        layers={"sliding_attention": Layer(10_000.0, scaled=False), "full_attention": Layer(10_000.0)},
        keys={"partial_rotary_factor": "partial_rotary_factors"},
        has_rotary=partial(rules.all_true, key="use_rope_layers"),
        neutral={"yarn_only_types": ["full_attention"]},
        ignored=("partial_rotary_factor", "rope_scaling.type"),
        sizes={"head_dim": 128},
        score=Score(partial(rules.by_key, key="query_pre_attn_scalar", power=-0.5)),
        no_indexer="the class reads sparse_attention_config, but its attention has no indexer",
    ),
    "t5gemma2_decoder t5gemma2_text": _GEMMA3,
    "ultrabert": Model(
        layers={"sliding_attention": Layer(10_000.0), "full_attention": Layer(2_560_000.0)},
        pattern=partial(rules.every, n=3),
        codes=Codes("attention_windows", {"0": "full_attention", "others": "sliding_attention"}),
    ),
    # --- Layers without rotary embedding, or without attention ----------------------------------------------
    "afmoe": Model(
        has_rotary=rules.sliding,
        pattern=partial(rules.every, n=4, key="global_attn_every_n_layers"),
        sizes={"head_dim": 128},
    ),
    "bamba": Model(
        partial=0.5,
        keys={"rotary_dim": "attn_rotary_emb"},
        has_rotary=partial(rules.listed, key="attn_layer_indices"),
        ignored=("attn_rotary_emb", "partial_rotary_factor"),
    ),
    "cohere2": Model(
        "interleaved",
        has_rotary=rules.sliding,
        pattern=partial(rules.every, n=4, key="sliding_window_pattern"),
        sizes=_whole(8192, heads=64, layers=40),
    ),
    "cohere2_moe": Model(
        "interleaved",
        has_rotary=partial(rules.sliding_or_dense, key="mlp_layer_types"),
        pattern=rules.dense_first,
        ignored=("partial_rotary_factor", "rope_scaling"),
        sizes={"head_dim": 128},
        parameters_win=True,
    ),
    "exaone4 exaone4_5_text": _EXAONE._replace(sizes=_whole(4096, heads=32, layers=32)),
    "exaone_moe": _EXAONE,
    "flint": Model(
        has_rotary=rules.sliding, pattern=partial(rules.every, n=4, first=3, also=(0, -1)), sizes={"head_dim": 128}
    ),
    "granite_swa granitemoe_swa": Model(
        keys={"layer_bases": "layer_rope_theta"},
        has_rotary=partial(rules.with_base, key="layer_rope_theta"),
        score=_MULTIPLIED,
    ),
    "kolibri1": Model(has_rotary=rules.sliding_if_windowed, pattern=partial(rules.every, n=5), sizes={"head_dim": 128}),
    "lara_mini": Model(
        has_rotary=rules.sliding,
        pattern=partial(
            rules.in_turn,
            types=("linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention"),
        ),
        sizes={"head_dim": 128},
    ),
    "lfm2": _LFM2._replace(sizes=_whole(2560, heads=32, layers=32)),
    "lfm2_moe": _LFM2,
    "llama4_text": Model(
        "interleaved",
        older=Older(("default", "llama3")),
        neutral={"nope_layer_interval": 4},
        base=500_000.0,
        has_rotary=_FLAGGED,
        pattern=partial(rules.chunked_if_flagged, key="no_rope_layers", interval="no_rope_layer_interval"),
        sizes={"head_dim": 128, **_whole(5120, heads=40, layers=48)},
        score=Score(
            besides="layers without rotary also scale q by position: rope_any.bending.temperature",
            unless=Switch("attn_temperature_tuning", value=False, default=True),
        ),
    ),
    "minimax": Model(
        base=1_000_000.0, older=_NULL_HEAD, pattern=partial(rules.every, n=2, first=0, other="linear_attention")
    ),
    "mllama_text_model": Model(
        older=Older(never_null=True),
        base=500_000.0,
        has_rotary=rules.self_attending,
        sizes=_whole(4096, heads=32, layers=40),
    ),
    "muse_glimmer_text": _MUSE,
    "muse_spark_text": _MUSE._replace(needs_parameters=True, sizes={"head_dim": 64}),
    "olmo_hybrid": Model(pattern=partial(rules.every, n=4, other="linear_attention"), optional_rotary=True),
    "qwen3_next": Model(partial=0.25, pattern=_QWEN3_5.pattern, sizes={"head_dim": 256}),
    "recurrent_gemma": Model(partial=0.5, pattern=partial(rules.every, n=3, other="recurrent")),
    "smollm3": Model(base=2_000_000.0, has_rotary=_FLAGGED, sizes=_whole(2048, heads=16, layers=36)),
    # --- A key switches rotary embedding on -----------------------------------------------------------------
    "clvp_encoder": Model(
        switch=Switch("use_rotary_embedding", value=True, default=True),
        ignored=_PARAMETERS,
        keys={"rotary_dim": "rotary_dim"},
        computed=rules.of_clvp,
        score=_BEFORE_ROTATION,
    ),
    "esm": _ESM,
    # The protein encoder of evolla; its config gives no model_type.
    "saprot": _ESM._replace(
        switch=Switch("position_embedding_type", value="rotary", default="rotary"),
        sizes=_whole(1280, heads=20, layers=33),
    ),
    "falcon": Model(switch=Switch("alibi", value=False, default=False)),
    "gptj": _CODEGEN._replace(switch=Switch("rotary", value=True, default=True)),
    # allenai/OLMo, olmo/config.py and olmo/model.py; transformers has the weights of olmo
    "hf_olmo": Model(
        switch=Switch("rope", value=True, default=False),
        ignored=("rope_parameters", "rope_scaling"),
        unread=("rope_full_precision",),
    ),
    "granitemoehybrid": Model(switch=Switch("position_embedding_type", value="rope"), score=_MULTIPLIED),
    "RefinedWeb RefinedWebModel": Model(switch=Switch("alibi", value=False, default=False), score=_FOREIGN),
    "seamless_m4t": _WAV2VEC2._replace(
        keys={**_WAV2VEC2.keys, "num_attention_heads": "speech_encoder_attention_heads"}
    ),
    "wav2vec2-bert": _WAV2VEC2._replace(
        switch=Switch("position_embeddings_type", value="rotary", default="relative_key")
    ),
    "wav2vec2-conformer": _WAV2VEC2,
    "zamba2": Model(
        keys={"head_dim": "attention_head_dim"},
        computed=rules.twice_as_wide,
        pattern=partial(rules.attending, key="hybrid_layer_ids"),
        switch=Switch("use_mem_rope", value=True, default=False),
        score=Score(rules.by_half_a_head),
    ),
    # --- Whole models: the model types of their text part and towers, and the numbering of streams ----------
    """
    apertus1p5 cosmos3_edge deepseek_ocr2 embedding_gemma2 gemma3 gemma3n gemma4_unified glm_image
    granite4_vision granite_docling hunyuan_vl molmo2 qwen3_asr unlimited_ocr voxtral_realtime
    """: Model(text="*_text"),
    """
    audioflamingo3 bunny-qwen2 Dream fast_vlm got_ocr2 internvl llava_onevision llava_qwen mineru2_qwen ovis2
    pp_chart2table qwen2_audio vibevoice vibevoice_asr
    """: Model(text="qwen2"),
    "musicflamingo": Model(text="qwen2", outer_part="audio"),
    "aria": Model(text="*_text", own={"*_text": Model(instead=rules.type_of_aria)}),
    "aya_vision cohere2_vision": Model(text="cohere2"),
    "cosmos3_omni": Model(
        text="qwen3_vl_text", parts={"vision_config": "qwen3_vl_vision"}, stream=Numbering(by_frame=True)
    ),
    """
    deepseek_vl deepseek_vl_hybrid glmasr idefics3 janus llava llava_llama llava_next llava_next_video omniasr
    aquila aria_moe_lm bunny-llama llama3v mobilellm perception_lm smolvlm video_llava vipllava voxtral
    """: Model(text="llama"),
    "bunny-phi": Model(text="phi"),
    "bunny-phi3": Model(text="phi3"),
    "bunny-stablelm": Model(text="stablelm"),
    "solar": Model(text="mistral"),
    "step3_vl": Model(text="step3_text"),
    "nemotron_labs_diffusion": Model(text="ministral3"),
    "kimi_vl": Model(text="deepseek_v3", parts={"vision_config": "moonvit"}),
    "deepseek_vl_v2 unlimited-ocr": Model(text="deepseek_v2"),
    "gpt_neox_reward_model": Model(text="gpt_neox"),
    "minicpmo minicpmv": Model(instead=rules.type_of_minicpm_v),
    "llava_mixtral": Model(text="mixtral"),
    "kimi_k3": Model(text="kimi_linear", parts={"vision_config": "kimi_k3_vision"}),
    "diffusion_gemma": Model(text="*_text", parts={"vision_config": "gemma4_vision"}),
    "dots_ocr": Model(text="qwen2", parts={"vision_config": "dots_vit"}),
    "dots3_note": Model(text="*_text", parts={"vision_config": "dots3_note_vision_encoder"}),
    "emu3": Model(text="emu3_text_model"),
    "ernie4_5_vl_moe gemma4 glm5_next inkling2 minimax_m3_vl muse_glimmer muse_spark": _VL,
    "exaone4_5": _VL._replace(text="exaone4"),
    "fun_asr_nano logics moss_transcribe_diarize qianfan_ocr": Model(text="qwen3"),
    "fuyu": Model(text="persimmon"),
    "glm46v": Model(text="glm4v_text", parts={"vision_config": "glm4v_vision"}, stream=Numbering("glm", by_frame=True)),
    "glm4v glm4v_moe glm_ocr": _VL._replace(stream=Numbering("glm", by_frame=True)),
    "glmga": Model(text="glm4v_text", parts={"vision_config": "glm4v_vision"}),
    "granite_speech granite_speech_plus": Model(text="granite"),
    "hyperclovax_vision_v2": Model(text="hyperclovax", parts={"vision_config": "qwen2_5_vl_vision"}),
    "hy_v4_vl": Model(text="*_text", stream=Numbering(by_frame=True, newline=True)),
    "idefics2 llava_mistral": Model(text="mistral"),
    "inkling2_loop": Model(text="*_text", parts={"vision_config": "inkling2_vision"}),
    "jev minicpm_ocr minicpmv4_6 minicpmv4_7": Model(text="qwen3_5_text"),
    "kimi_k25": _VL._replace(text="deepseek_v3"),
    "lfm2_vl": Model(text="lfm2"),
    "lfm3_vl": _VL._replace(text="lfm3"),
    "lighton_ocr": Model(text="qwen3", parts={"vision_config": "pixtral"}),
    "llama4": Model(text="*_text", parts={"vision_config": "llama4_vision_model"}),
    "mistral3": Model(text="mistral", parts={"vision_config": "pixtral"}),
    "mistral_large4": Model(text="*_text", parts={"vision_config": "pixtral"}),
    "mllama": Model(text="mllama_text_model"),
    "modernvbert pe_audio pe_audio_video pe_video": Model(text="modernbert"),
    "paddleocr_vl qwen2_vl": _VL._replace(stream=Numbering()),
    "vargpt_qwen2_vl": Model(text="qwen2_vl_text", parts={"vision_config": "qwen2_vl_vision"}, stream=Numbering()),
    "llava_gemma paligemma": Model(text="gemma"),
    "qwen2_5_omni": Model(
        text="*_text",
        parts={
            "thinker_config.vision_config": "qwen2_5_omni_vision_encoder",
            "talker_config": "qwen2_5_omni_talker",
            "token2wav_config.dit_config": "qwen2_5_omni_dit",
        },
        stream=_OMNI_2,
    ),
    "qwen2_5_omni_thinker": Model(
        text="qwen2_5_omni_text", parts={"vision_config": "qwen2_5_omni_vision_encoder"}, stream=_OMNI_2
    ),
    "qwen2_5_vl": _VL._replace(stream=Numbering(rate="vision_config.tokens_per_second")),
    "cohere_compass qwen3_5 qwen3_5_moe qwen3_vl qwen3_vl_moe qwen4_exp": _VL._replace(stream=Numbering(by_frame=True)),
    "qwen3_omni_moe": Model(
        text="*_text",
        parts={
            "thinker_config.vision_config": "qwen3_omni_moe_vision_encoder",
            "talker_config.text_config": "qwen3_omni_moe_talker_text",
            "talker_config.code_predictor_config": "qwen3_omni_moe_talker_code_predictor",
            "code2wav_config": "qwen3_omni_moe_code2wav",
        },
        stream=_OMNI_3,
    ),
    "qwen3_omni_moe_thinker": Model(
        text="qwen3_omni_moe_text", parts={"vision_config": "qwen3_omni_moe_vision_encoder"}, stream=_OMNI_3
    ),
    "shieldgemma2": Model(text="gemma3_text"),
    "step3p7": Model(text="step3p5", parts={"vision_config": "step3p5_vision"}),
    "t5gemma2_encoder": Model(text="t5gemma2_text"),
    "ultravbert": Model(text="ultrabert"),
    "video_llama_3": _VL._replace(text="qwen2", own={"*_vision": TOWER.sized(768, heads=12)._replace(grid=None)}),
    # --- No rotary embedding --------------------------------------------------------------------------------
    """
    albert bart bert bert-generation big_bird bigbird_pegasus biogpt blenderbot blenderbot-small bloom caduceus
    camembert clvp_decoder cohere_asr convbert cpmant ctrl deberta deberta-v2 distilbert electra ernie falcon_mamba
    flaubert fnet fsmt funnel gpt-sw3 gpt2 gpt_bigcode gpt_neo ibert inkling2_loop_text inkling2_text layoutlm led
    longformer longt5 luke llava_mpt m2m_100 mamba mamba2 marian mbart megatron-bert mobilebert moshi_depth mpnet mpt
    mra mt5 mvp nllb-moe nystromformer opt pegasus pegasus_x plbart prophetnet rembert roberta roberta-prelayernorm
    roc_bert rwkv squeezebert switch_transformers t5 trocr umt5 whisper xglm xlm xlm-roberta-xl xlnet xlstm xmod yoso
    zamba
    """: Model(rotary=False),
    "xlm-roberta": Model(rotary=False, instead=rules.type_of_jina),
    "jamba kimi_linear nemotron_h": Model(
        unread=(*_PARAMETERS, "partial_rotary_factor", "qk_rope_head_dim", "mla_use_nope"), rotary=False
    ),
    "glm5_next_text": Model(
        pattern=partial(rules.every, n=4, kind="indexed_attention", other="linear_attention"),
        unread=("qk_rope_head_dim", "indexer_rope_interleave", "mla_use_nope"),
        rotary=False,
        indexer=Indexer(
            "interleaved",
            layers=partial(rules.by_type, types=("indexed_attention", "full_attention"), is_scheduled=True),
            unrotated="the attention of glm5_next_text, and so its indexer, has no rotary",
        ),
    ),
}

# --- model types of which only other facts are known: their parts, or that they are towers without rotary --

_OTHERS = {
    # --- Model types whose own rotation is unknown here, or is that of a tower ------------------------------
    "chmv2": Model(parts={"backbone_config": "dinov3_vit"}, apart=True),
    "deepseek_ref": Model(instead=rules.type_by_its_class),
    "colqwen2": Model(parts={"vlm_config.vision_config": "qwen2_vl_vision"}),
    "esmfold2": Model(
        parts={
            "atom_encoder": "esmfold2_atom_encoder",
            "structure_head.diffusion_module.atom_encoder": "esmfold2_atom_encoder",
        },
        apart=True,
    ),
    # QwenLM/Qwen3-TTS, modeling_qwen3_tts.py
    "qwen3_tts": Model(
        parts={"talker_config": "*_talker", "talker_config.code_predictor_config": "*_talker_code_predictor"},
        apart=True,
    ),
    "qwen2_5_omni_token2wav": Model(parts={"dit_config": "qwen2_5_omni_dit"}, apart=True),
    "sam3_tracker_video": Model(parts={"vision_config.backbone_config": "sam3_vit_model"}),
    "sam3 sam3_lite_text sam3_tracker": Model(parts={"vision_config.backbone_config": "sam3_vit_model"}, apart=True),
    "sam3_video": Model(
        parts={
            "detector_config.vision_config.backbone_config": "sam3_vit_model",
            "tracker_config": "sam3_tracker_video",
            "tracker_config.vision_config.backbone_config": "sam3_vit_model",
        },
        apart=True,
    ),
    "sam3_vision_model": Model(parts={"backbone_config": "sam3_vit_model"}, apart=True),
    # --- Towers, and other models of transformers, without rotary embedding ---------------------------------
    """
    aimv2 aimv2_text_model aimv2_vision_model align_text_model align_vision_model altclip_text_model
    altclip_vision_model apertus1p5_vision_tokenizer audio-spectrogram-transformer audioflamingo3_encoder autoformer
    bark beit bit blip_2_qformer blip_2_vision_model blip_text_model blip_vision_model bridgetower_text_model
    bridgetower_vision_model bros canary canary_decoder canine chameleon_vqgan chinese_clip_text_model
    chinese_clip_vision_model clap_audio_model clap_text_model clip_text_model clip_vision_model clipseg_text_model
    clipseg_vision_model conditional_detr convnext convnextv2 cosmos3_edge_vision cvt d_fine dab-detr dac data2vec-audio
    data2vec-text data2vec-vision davit decision_transformer deepseek_ocr2_sam_vision_model deformable_detr deimv2 deit
    depth_anything depth_pro detr dinat dinov2 dinov2_with_registers dinov3_convnext donut-swin dpr dpt
    edgetam_mask_decoder edgetam_prompt_encoder edgetam_video_mask_decoder edgetam_video_prompt_encoder efficientnet
    emu3_vqgan encodec eomt fastspeech2_conformer fastspeech2_conformer_hifigan fastspeech2_conformer_with_hifigan
    flava_image_codebook flava_image_model flava_multimodal_model flava_text_model florence2_language florence_vision
    focalnet fun_asr_nano_encoder gemma3n_audio gemma3n_vision gemma4_assistant gemma4_audio gemma4_unified_audio
    gemma4_unified_vision git git_vision_model glm_image_vision glm_image_vqmodel glpn got_ocr2_vision
    granite_docling_vision granite_speech5_ctc granite_speech5_encoder granite_speech_encoder
    granite_speech_plus_encoder groupvit_text_model groupvit_vision_model hgnet_v2 hiera higgs_audio_v2_tokenizer hubert
    hunyuan_vl_vision hy_v4_vl_vision idefics2_perceiver idefics2_vision idefics3_vision idefics_vision ijepa imagegpt
    informer inkling_audio inkling_text inkling_vision instructblip_qformer instructblip_vision_model
    instructblipvideo_qformer instructblipvideo_vision_model intern_vit_6b internvl_vision janus_vision_model
    janus_vqgan kosmos_2_5_text_model kosmos_2_5_vision_model kosmos_2_text_model kosmos_2_vision_model layoutlmv2
    layoutlmv3 layoutxlm levit lilt lw_detr lw_detr_vit lxmert markuplm mask2former maskformer maskformer-swin
    metaclip_2_text_model metaclip_2_vision_model mgp-str minicpm_ocr_vision minicpmv4_6_vision minicpmv4_7_vision
    mllama_vision_model mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2 molmo2_adapter molmo2_vision
    moonshine_streaming_encoder moss_transcribe_diarize_audio muse_spark_audio musicgen_decoder musicgen_melody
    musicgen_melody_decoder nemotron3_5_asr nemotron_asr_streaming nemotron_asr_streaming_encoder omniasr_audio
    omniasr_ctc oneformer openai-gpt ovis2_vision owlv2_text_model owlv2_vision_model owlvit_text_model
    owlvit_vision_model parakeet_ctc parakeet_encoder parakeet_rnnt parakeet_tdt patchtsmixer patchtst perceiver
    phi4_multimodal_audio phi4_multimodal_vision pix2struct_text_model pix2struct_vision_model pixio poolformer
    pop2piano pp_chart2table_vision pp_doclayout_v3 pp_doclayout_v4 pp_formulanet_text pp_formulanet_vision pp_lcnet
    pp_lcnet_v3 pp_lcnet_v4 pp_ocrv5_mobile_det pp_ocrv5_mobile_rec pp_ocrv5_server_det pp_ocrv5_server_rec
    pp_ocrv6_medium_det pp_ocrv6_small_det pp_ocrv6_small_rec pp_ocrv6_tiny_rec prompt_depth_anything pvt pvt_v2
    qianfan_ocr_vision qwen2_5_omni_audio_encoder qwen2_5_omni_bigvgan qwen2_audio_encoder qwen3_asr_audio_encoder
    qwen3_asr_encoder qwen3_omni_moe_audio_encoder radio rag reformer regnet resnet rf_detr rf_detr_dinov2 rt_detr
    rt_detr_resnet rt_detr_v2 sam sam2 sam2_hiera_det_model sam2_mask_decoder sam2_prompt_encoder
    sam2_video_mask_decoder sam2_video_prompt_encoder sam2_vision_model sam3_detr_decoder sam3_detr_encoder
    sam3_geometry_encoder sam3_lite_text_detr_decoder sam3_lite_text_detr_encoder sam3_lite_text_geometry_encoder
    sam3_lite_text_mask_decoder sam3_lite_text_text_model sam3_mask_decoder sam3_tracker_mask_decoder
    sam3_tracker_prompt_encoder sam3_tracker_video_mask_decoder sam3_tracker_video_prompt_encoder sam_hq
    sam_hq_mask_decoder sam_hq_prompt_encoder sam_hq_vision_model sam_mask_decoder sam_prompt_encoder sam_vision_model
    sapiens2_head seamless_m4t_v2 segformer seggpt sew sew-d siglip siglip2_text_model siglip2_vision_model
    siglip_text_model siglip_vision_model slanet slanext slanext_vision smolvlm_vision speech_to_text speecht5
    speecht5_hifigan splinter superglue superpoint swiftformer swin swin2sr swinv2 table-transformer tapas textnet
    time_series_transformer timesfm timesformer tipsv2 tipsv2_dpt tipsv2_text_model tipsv2_vision_model tvp udop
    unispeech unispeech-sat univnet unlimited_ocr_sam_vision_model unlimited_ocr_vision_encoder upernet uvdoc
    uvdoc_backbone vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder
    vibevoice_acoustic_tokenizer_encoder vibevoice_diffusion videomae videomt videoprism videoprism_text_model
    videoprism_vision_model vilt vision visual_bert vit vit_mae vit_msn vitdet vitmatte vitpose vitpose_backbone vits
    vivit voxtral_encoder wav2vec2 wavlm wavtokenizer wavtokenizer_encoder xclip xclip_text_model xclip_vision_model
    xcodec yolos zoedepth
    """: Model(rotary=False),
    """
    blt deepseek_ocr2_vision dia lasr_ctc nemotron3_5_transcribe_audio nemotron3_diarization
    unlimited_ocr_vision
    """: Model(apart=True),
    "florence2": Model(text="florence2_language"),
    "align altclip blip chinese_clip clap clip clipseg groupvit metaclip_2 owlv2 owlvit": Model(text="*_text_model"),
}


def models(rows: Mapping[str, Model], /) -> dict[str, Model]:
    """Return rows by each of their names, with the name in place of ``*``, then the rows of their own parts."""
    named = {name: _named(model, name) for name, model in by_name(rows).items()}
    return by_name(named, own(named, Model))


def _named(model: Model, name: str) -> Model:
    """Return a model with its name in place of ``*``."""
    if not (model.text or model.parts or model.own):
        return model
    parts = {path: kind.replace("*", name) for path, kind in model.parts.items()}
    rows = {kind.replace("*", name): row for kind, row in model.own.items()}
    return model._replace(text=model.text.replace("*", name), parts=parts, own=rows)


def own(rows: Mapping[str, Model], kind: type[Any], /) -> dict[str, Any]:
    """Return the rows of one type, `Model` or `GridModel`, among the rows of the models' own parts."""
    return by_name(
        *({name: row for name, row in model.own.items() if isinstance(row, kind)} for model in rows.values())
    )


MODELS: Mapping[str, Model] = models(_ROWS)
"""The facts about each ``model_type`` whose rotation is known; the code of some comes with their weights."""
ALL: Mapping[str, Model] = by_name(MODELS, models(_OTHERS))
"""Those of `MODELS`, and of model types of which only other facts are known, such as their parts."""
