"""
List what a config does not say about its model: facts by ``model_type``.

Read in transformers 5.23 and measured there: which features its attention pairs, which base it assumes, which layers
turn. A model without a line of its own turns halves, with base 10 000, in every layer.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rope_any._checks import integer, shown
from rope_any._pairing import Pairing

Config = Mapping[str, Any]

Kind = tuple[str, tuple[type, ...]]
"""What a list can be of: the word for it, and the types of its items."""
INDICES: Kind = ("integers", (int,))
FLAGS: Kind = ("integers", (int, bool))
NUMBERS: Kind = ("numbers", (int, float))
NAMES: Kind = ("names", (str,))


def listed(name: str, value: object, kind: Kind = INDICES) -> list[Any] | None:
    """Return a list of some kind, or None for null; refuse all else, which could only be ignored."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) in kind[1] for item in value):
        msg = f"{name} must be a list of {kind[0]}; got {shown(value)}"
        raise TypeError(msg)
    return value


class Layer(NamedTuple):
    """One kind of layer of a model whose kinds differ, where the config is of the older, flat form."""

    base: float
    key: str = "rope_theta"
    """Where the older form holds the base of these layers."""
    scaled: bool = True
    """Whether the older ``rope_scaling`` is for these layers."""


class Model(NamedTuple):
    """Facts of one ``model_type``."""

    pairing: Pairing = "half"
    base: float = 10_000.0
    partial: float = 1.0
    """The share of the head that turns where the config doesn't say."""
    layers: Mapping[str, Layer] = {}
    stated: bool = False
    """Whether the class scales, or tells layers apart, by defaults of its own, so that the config must say how."""
    axes: str = ""
    """How M-RoPE gives pairs to axes."""
    sections: tuple[int, ...] = ()
    keys: Mapping[str, str] = {}
    """Names that this model has for keys: by the common name, or by ``layer type.common name``."""
    switch: tuple[str, Any, Any] | None = None
    """A key, the value that turns rotary on, and the class's default."""
    turns: Callable[[Config, str, int], bool] = lambda *_: True
    """Whether a layer turns, by config, type and index."""
    pattern: Callable[[Config, int, int], str] | None = None
    """The type of a layer, by config, index and number of layers, where the config doesn't list types."""
    typed: bool = False
    """Whether that rule needs types that the config must list."""
    label: Callable[[str], str] = lambda layer_type: layer_type
    """Under which name the parameters of a layer type stand."""
    types: Mapping[str, str] = {}
    """What rope types are called in older configs of this model."""
    unread: tuple[str, ...] = ()
    """Keys that speak of rotary and that the model does not read."""
    inside: str | None = None
    """The object in which the base stands, if it has one of its own."""
    sizes: Mapping[str, int] = {}
    """Sizes that the class assumes where a key is missing, by key, or by ``layer type.key``; those of the whole model
    only in a part of a larger config, which leaves out what equals them."""
    doubled: bool = False
    """Whether its class keeps a base of its own beside the parameters, which win."""
    rotary_dim: Callable[[Callable[[str], int]], int] | None = None
    """How many features turn, where that follows a rule of its own, from the sizes under some names."""
    trailing: bool = False
    """Whether the last features of the head turn."""
    backwards: bool = False
    """Whether pairs turn by minus the angle."""
    optional: bool = False
    """Whether a base of null means no rotary at all."""
    flagged: bool = False
    """Whether ``rope_interleave: false`` means halves."""


def _period(key: str, given: object, default: int) -> int:
    """Return after how many layers a pattern repeats."""
    if given is None:
        return default
    period = integer(key, given)
    if period < 1:
        msg = f"{key} must be positive; got {shown(period)}"
        raise ValueError(msg)
    return period


def _every(period: int, key: str = "", *, first: int = 1, other: str = "sliding_attention") -> Any:
    """Return the pattern in which every n-th layer is of full attention, and the others are not."""

    def pattern(config: Config, index: int, layers: int) -> str:
        given = config.get(key, config.get(f"_{key}")) if key else None
        if isinstance(given, str) and re.fullmatch("L*G", given):  # "LLLG": local, local, local, global
            given = len(given)
        return "full_attention" if (index + first) % _period(key, given, period) == 0 else other

    return pattern


def _last_is_full(pattern: Callable[[Config, int, int], str]) -> Callable[[Config, int, int], str]:
    return lambda config, index, layers: "full_attention" if index == layers - 1 else pattern(config, index, layers)


def _sliding(config: Config, layer_type: str, index: int) -> bool:
    return layer_type == "sliding_attention"


def _sliding_if_windowed(config: Config, layer_type: str, index: int) -> bool:
    # An absent window is that of the class, one of null is none.
    return config.get("sliding_window", "the class's") is None or layer_type == "sliding_attention"


def _sliding_or_dense(config: Config, layer_type: str, index: int) -> bool:
    kinds = listed("mlp_layer_types", config.get("mlp_layer_types"), NAMES) or []
    prefix = "prefix_dense_sliding_window_pattern"
    dense = kinds[index : index + 1] == ["dense"] and _period(prefix, config.get(prefix), 1) == 1
    return layer_type == "sliding_attention" or dense


def _but_every(period: int) -> Callable[[Config, str, int], bool]:
    """Return the rule that every n-th layer holds still, unless a list says which do."""

    def turns(config: Config, layer_type: str, index: int) -> bool:
        flags = listed("no_rope_layers", config.get("no_rope_layers"), FLAGS)
        interval = _period("no_rope_layer_interval", config.get("no_rope_layer_interval"), period)
        return index >= len(flags) or bool(flags[index]) if flags else (index + 1) % interval != 0

    return turns


def _chunked_where_turning(config: Config, index: int, layers: int) -> str:
    return "chunked_attention" if _but_every(4)(config, "", index) else "full_attention"


def _with_base(config: Config, layer_type: str, index: int) -> bool:
    bases = listed("layer_rope_theta", config.get("layer_rope_theta"), NUMBERS)
    return bases is None or index >= len(bases) or bool(bases[index])


def _with_base_or_sliding(config: Config, layer_type: str, index: int) -> bool:
    if config.get("layer_rope_theta") is None:
        return layer_type != "full_attention"
    return _with_base(config, layer_type, index)


def _fourth_from_the_last(config: Config, index: int, layers: int) -> str:
    return "full_attention" if (layers - 1 - index) % 4 == 0 else "sliding_attention"


def _flint(config: Config, index: int, layers: int) -> str:
    return "full_attention" if index < 2 or index % 4 == 1 or index == layers - 1 else "sliding_attention"


def _self_attending(config: Config, layer_type: str, index: int) -> bool:
    key = "cross_attention_layers"
    return index not in (listed(key, config.get(key, [3, 8, 13, 18, 23, 28, 33, 38])) or ())


def _at(key: str) -> Callable[[Config, str, int], bool]:
    def turns(config: Config, layer_type: str, index: int) -> bool:
        return index in (listed(key, config.get(key)) or ())

    return turns


def _clvp(size: Callable[[str], int]) -> int:
    return max(size("projection_dim") // (2 * size("num_attention_heads")), 32)


# Names that speak of rotary and mean nothing new where they have this value.
INERT: dict[str, Any] = {
    "use_mrope": False,
    "use_rope": True,
    "use_rotary_pos_emb": True,
    "position_embedding_xdrope": False,
    "rotary_scaling_factor": 1,
}

# Layer types that don't attend, and so don't turn.
STILL = {"linear_attention", "conv", "mamba", "mamba2", "recurrent", "moe", "mlp"}

_INTERLEAVED = Model("interleaved")
# Adjacent features in, halves out: the scores are those of interleaved pairs.
_ADJACENT_IN = Model("interleaved", flagged=True)
_GEMMA3 = Model(
    layers={
        "sliding_attention": Layer(10_000.0, "rope_local_base_freq", scaled=False),
        "full_attention": Layer(1_000_000.0),
    },
    pattern=_every(6, "sliding_window_pattern"),
)
_GEMMA4 = Model(stated=True, keys={"full_attention.head_dim": "global_head_dim"}, pattern=_last_is_full(_every(6)))
_MODERNBERT = Model(
    layers={
        "sliding_attention": Layer(10_000.0, "local_rope_theta"),
        "full_attention": Layer(160_000.0, "global_rope_theta"),
    },
    pattern=_every(3, "global_attn_every_n_layers", first=0),
)
_QWEN2_VL = Model(base=1_000_000.0, axes="chunked", sections=(16, 24, 24))
_QWEN3_VL = Model(base=500_000.0, axes="strided", sections=(24, 20, 20))
_QWEN3_5 = Model(
    partial=0.25,
    axes="strided",
    sections=(11, 11, 10),
    pattern=_every(4, "full_attention_interval", other="linear_attention"),
)
_GLM4V = Model(axes="chunked", sections=(8, 12, 12))
_HUNYUAN = Model(keys={"head_dim": "attention_head_dim"})
_CONFORMER = Model(switch=("position_embeddings_type", "rotary", "relative"))

_PLAIN = """
    arcee aria_text chameleon deepseek_ocr2_encoder deepseek_ocr2_text dia_decoder dia_encoder diffllama doge dots1
    esmc eurobert falcon_h1 gemma gemma2 gpt_neox_japanese gradium_phonon_tts granite granite4_vision_text
    granite_docling_text granitemoe granitemoeshared hrm_text hy_v4 hyperclovax idefics internlm3 iquestcoder jais2
    kyutai_speech_to_text lasr_encoder llama mimi mimi_decoder mimi_encoder minicpm3 ministral mistral moshi
    nemotron3_diarization_audio neucodec olmo olmo2 olmoe pocket_tts pocket_tts_audio_tokenizer
    pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder qwen2 qwen2_moe qwen3 qwen3_moe
    qwen3_omni_moe_talker_code_predictor seed_oss starcoder2 t5_gemma_module timesfm2_5 unlimited_ocr_text vaultgemma
    voxtral_realtime_encoder voxtral_realtime_text xcodec2
    exaone internlm internlm2 minicpm orion phi-msft xverse Yi
"""
"""Half pairs, leading features, every attention layer. The last line: code that comes with the weights."""

MODELS: dict[str, Model] = {name: Model() for name in _PLAIN.split()} | {
    # --- bases, and shares of the head that turn -----------------------------------------------------------
    "bitnet": Model(base=500_000.0),
    "csm": Model(base=500_000.0),
    "csm_depth_decoder_model": Model(base=500_000.0),
    "emu3_text_model": Model(base=1_000_000.0),
    "evolla": Model(base=500_000.0),
    "flex_olmo": Model(base=500_000.0),
    "gte": Model(base=160_000.0),
    "hy_v3": Model(base=11_158_840.0),
    "jina_embeddings_v3": Model(base=20_000.0),
    "minimax_m2": Model(base=5_000_000.0),
    "mixtral": Model(base=1_000_000.0),
    "muse_glimmer_assistant": Model(base=500_000.0),
    "nomic_bert": Model(base=1_000.0),
    "phimoe": Model(base=1_000_000.0),
    "solar_open": Model(base=1_000_000.0),
    "bamba": Model(partial=0.5, turns=_at("attn_layer_indices")),
    "dots3_note_audio_encoder": Model(partial=0.5),
    "glm4_moe": Model(partial=0.5),
    "glmasr_encoder": Model(partial=0.5),
    "gpt_neox": Model(partial=0.25),
    "nemotron": Model(partial=0.5),
    "nemotron3_5_transcribe_asr_audio": Model(partial=0.5),
    "nemotron3_5_transcribe_word_timestamp": Model(partial=0.5),
    "persimmon": Model(partial=0.5),
    "phi": Model(partial=0.5),
    "recurrent_gemma": Model(partial=0.5, pattern=_every(3, other="recurrent")),
    "stablelm": Model(partial=0.25),
    "qwen3_next": Model(partial=0.25, pattern=_every(4, "full_attention_interval", other="linear_attention")),
    # --- other pairings ------------------------------------------------------------------------------------
    "blt_global_transformer": Model("interleaved", base=500_000.0),
    "blt_local_decoder": Model("interleaved", base=500_000.0),
    "blt_local_encoder": Model("interleaved", base=500_000.0),
    "blt_patcher": _INTERLEAVED,
    "codegen": _INTERLEAVED,
    "cohere": Model("interleaved", base=500_000.0),
    "cohere2": Model("interleaved", turns=_sliding, pattern=_every(4, "sliding_window_pattern")),
    "cohere2_moe": Model("interleaved", turns=_sliding_or_dense, typed=True, doubled=True),
    "ernie4_5": Model("interleaved", base=500_000.0),
    "ernie4_5_moe": Model("interleaved", base=500_000.0),
    "glm": Model("interleaved", partial=0.5),
    "glm4": Model("interleaved", partial=0.5),
    "gptj": Model("interleaved", switch=("rotary", True, True)),
    "helium": Model("interleaved", base=100_000.0),
    "llama4_text": Model("interleaved", base=500_000.0, turns=_but_every(4), pattern=_chunked_where_turning),
    "moonshine": Model("interleaved", partial=0.9, keys={"num_attention_heads": "decoder_num_attention_heads"}),
    "moonshine_streaming": Model("interleaved", partial=0.8),
    "openai_privacy_filter": Model("interleaved", base=150_000.0, stated=True),
    "pe_audio_encoder": Model("interleaved", base=20_000.0),
    "pe_audio_video_encoder": Model("interleaved", base=20_000.0),
    "pe_video_encoder": Model("interleaved", base=20_000.0),
    "roformer": Model("interleaved", unread=("rotary_value",)),
    "nanochat": Model(backwards=True),
    "axk1": _ADJACENT_IN,
    "axk2": _INTERLEAVED,
    "bailing_hybrid": Model(
        "interleaved", base=6_000_000.0, doubled=True, pattern=_every(6, "layer_group_size", other="linear_attention")
    ),
    "deepseek_v2": _INTERLEAVED,
    "deepseek_v3": _ADJACENT_IN,
    "deepseek_v32": _INTERLEAVED,
    "kimi_k2": _ADJACENT_IN,
    "glm4_moe_lite": _ADJACENT_IN,
    "glm_moe_dsa": _INTERLEAVED,
    "longcat_flash": Model("interleaved", base=10_000_000.0),
    "mistral4": _ADJACENT_IN._replace(stated=True),
    "mistral_large4_text": Model("interleaved", stated=True, turns=_but_every(4)),
    "qwen2_5_omni_dit": _INTERLEAVED,
    "youtu": _ADJACENT_IN,
    "deepseek_v4": Model(
        "interleaved",
        partial=0.125,
        layers={"main": Layer(10_000.0, scaled=False), "compress": Layer(160_000.0, "compress_rope_theta")},
        label=lambda layer_type: "main" if layer_type in ("main", "sliding_attention") else "compress",
        trailing=True,
    ),
    # --- several axes --------------------------------------------------------------------------------------
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    "qwen2_5_omni_text": _QWEN2_VL,
    "qwen2_5_omni_talker": _QWEN2_VL,
    "paddleocr_vl_text": _QWEN2_VL._replace(base=500_000.0),
    "glm4v_text": _GLM4V._replace(pairing="interleaved"),
    "glm_ocr_text": _GLM4V._replace(pairing="interleaved"),
    "glm4v_moe_text": _GLM4V._replace(partial=0.5),
    "glm_image_text": _GLM4V,
    "qwen3_vl_text": _QWEN3_VL,
    "qwen3_vl_moe_text": _QWEN3_VL,
    "qwen3_omni_moe_text": _QWEN3_VL._replace(base=1_000_000.0),
    "qwen3_omni_moe_talker_text": _QWEN3_VL._replace(base=10_000.0),
    "cosmos3_edge_text": _QWEN3_VL._replace(base=100_000_000.0),
    "cohere_compass_text": _QWEN3_VL._replace(base=10_000.0, stated=True),
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5_moe_text": _QWEN3_5,
    "qwen4_exp_text": _QWEN3_5._replace(partial=1.0),
    "ernie4_5_vl_moe_text": Model("interleaved", base=500_000.0, axes="last for time", sections=(22, 22, 20)),
    "neomme": Model(stated=True, axes="alternating", sections=(1, 1), pattern=_last_is_full(_every(6))),
    # The sections are cut over the doubled table: with unequal axes, no rotation.
    "hunyuan_vl_text": _HUNYUAN._replace(axes="doubled", types={"xdrope": "dynamic"}),
    # --- layers that differ --------------------------------------------------------------------------------
    "gemma3_text": _GEMMA3,
    "gemma3n_text": _GEMMA3._replace(pattern=_every(5)),
    "t5gemma2_text": _GEMMA3,
    "t5gemma2_decoder": _GEMMA3,
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
    "diffusion_gemma_text": _GEMMA4,
    "embedding_gemma2_text": _GEMMA4,
    "modernbert": _MODERNBERT,
    "modernbert-decoder": _MODERNBERT,
    "olmo3": Model(
        layers={"sliding_attention": Layer(500_000.0, scaled=False), "full_attention": Layer(500_000.0)},
        pattern=_every(4),
    ),
    "mimo_v2_flash": Model(
        partial=0.334,
        layers={"sliding_attention": Layer(10_000.0, "swa_rope_theta"), "full_attention": Layer(5_000_000.0)},
    ),
    "dots3_note_text": Model(
        "interleaved",
        layers={"sliding_attention": Layer(50_000.0, "swa_rope_theta"), "indexed_attention": Layer(80_000_000.0)},
        keys={"sliding_attention.qk_rope_head_dim": "swa_qk_rope_head_dim"},
    ),
    "step3p5": Model(
        layers={"sliding_attention": Layer(10_000.0, scaled=False), "full_attention": Layer(10_000.0)},
    ),
    "ultrabert": Model(
        layers={"sliding_attention": Layer(10_000.0), "full_attention": Layer(2_560_000.0)}, pattern=_every(3)
    ),
    "beam": Model(stated=True, pattern=_last_is_full(_every(6))),
    "laguna": Model(stated=True),
    "lfm3": Model(stated=True),
    "mellum": Model(stated=True),
    "zaya": Model(stated=True),
    # --- layers that hold still ----------------------------------------------------------------------------
    "afmoe": Model(turns=_sliding, pattern=_every(4, "global_attn_every_n_layers")),
    "exaone4": Model(turns=_sliding_if_windowed, pattern=_every(4, "sliding_window_pattern")),
    "exaone_moe": Model(turns=_sliding_if_windowed, pattern=_every(4, "sliding_window_pattern")),
    "kolibri1": Model(turns=_sliding_if_windowed, pattern=_every(5)),
    "flint": Model(turns=_sliding, pattern=_flint),
    "granite_swa": Model(turns=_with_base, keys={"layer_bases": "layer_rope_theta"}),
    "granitemoe_swa": Model(turns=_with_base, keys={"layer_bases": "layer_rope_theta"}),
    "muse_glimmer_text": Model(turns=_with_base_or_sliding, pattern=_fourth_from_the_last),
    "muse_spark_text": Model(base=500_000.0, turns=_with_base_or_sliding, pattern=_fourth_from_the_last),
    "lfm2": Model(base=1_000_000.0, keys={"attention_layers": "full_attn_idxs"}),
    "lfm2_moe": Model(base=1_000_000.0, keys={"attention_layers": "full_attn_idxs"}),
    "minimax": Model(base=1_000_000.0, pattern=_every(2, first=0, other="linear_attention")),
    "mllama_text_model": Model(base=500_000.0, turns=_self_attending),
    "molmo2_text": Model(keys={"scaled_layers": "rope_scaling_layers"}),
    "olmo_hybrid": Model(optional=True, pattern=_every(4, other="linear_attention")),
    "smollm3": Model(base=2_000_000.0, turns=_but_every(4)),
    # --- rotary by a switch --------------------------------------------------------------------------------
    "clvp_encoder": Model(switch=("use_rotary_embedding", True, True), rotary_dim=_clvp),
    "esm": Model(switch=("position_embedding_type", "rotary", "absolute")),
    "falcon": Model(switch=("alibi", False, False)),
    "RefinedWeb": Model(switch=("alibi", False, False)),
    "RefinedWebModel": Model(switch=("alibi", False, False)),
    "granitemoehybrid": Model(switch=("position_embedding_type", "rope", None)),
    "seamless_m4t": _CONFORMER._replace(keys={"num_attention_heads": "speech_encoder_attention_heads"}),
    "wav2vec2-bert": _CONFORMER._replace(switch=("position_embeddings_type", "rotary", "relative_key")),
    "wav2vec2-conformer": _CONFORMER,
    "zamba2": Model(
        switch=("use_mem_rope", True, False),
        keys={"head_dim": "attention_head_dim", "attention_layers": "hybrid_layer_ids"},
    ),
    # --- names of their own --------------------------------------------------------------------------------
    "apertus": Model(base=12_000_000.0, stated=True),
    "cwm": Model(base=1_000_000.0, stated=True),
    "dbrx": Model(inside="attn_config"),  # which transformers 5.23 does not read
    "gpt_oss": Model(base=150_000.0, stated=True),
    "higgs_audio_v2": Model(stated=True),
    "hunyuan_v1_dense": _HUNYUAN,
    "hunyuan_v1_moe": _HUNYUAN,
    "jetmoe": Model(keys={"head_dim": "kv_channels"}),
    "minimax_m3_vl_text": Model(base=5_000_000.0, unread=("rotary_dim",)),
    "ministral3": Model(stated=True),
    "phi3": Model(types={"yarn": "longrope"}),
    "openelm": Model(keys={"rope_theta": "rope_freq_constant"}, unread=("rope_max_length",)),
    "phi3_v": Model(types={"yarn": "longrope"}),
    "phi4_multimodal": Model(types={"yarn": "longrope"}),
}

_TEXT_PARTS = """
    aria:aria_text audioflamingo3:qwen2 aya_vision:cohere2 cohere2_vision:cohere2 cosmos3_edge:cosmos3_edge_text
    cosmos3_omni:qwen3_vl_text deepseek_ocr2:deepseek_ocr2_text deepseek_vl:llama deepseek_vl_hybrid:llama
    diffusion_gemma:diffusion_gemma_text dots3_note:dots3_note_text embedding_gemma2:embedding_gemma2_text
    emu3:emu3_text_model ernie4_5_vl_moe:ernie4_5_vl_moe_text exaone4_5:exaone4 fast_vlm:qwen2 fun_asr_nano:qwen3
    fuyu:persimmon gemma3:gemma3_text gemma3n:gemma3n_text gemma4:gemma4_text gemma4_unified:gemma4_unified_text
    glm46v:glm4v_text glm4v:glm4v_text glm4v_moe:glm4v_moe_text glm_image:glm_image_text glm_ocr:glm_ocr_text
    glmasr:llama glmga:glm4v_text got_ocr2:qwen2 granite4_vision:granite4_vision_text
    granite_docling:granite_docling_text granite_speech:granite granite_speech_plus:granite hunyuan_vl:hunyuan_vl_text
    hyperclovax_vision_v2:hyperclovax idefics2:mistral idefics3:llama internvl:qwen2 janus:llama jev:qwen3_5_text
    kimi_k25:deepseek_v3 lfm2_vl:lfm2 lfm3_vl:lfm3 lighton_ocr:qwen3 llama4:llama4_text llava:llama llava_next:llama
    llava_next_video:llama llava_onevision:qwen2 minicpm_ocr:qwen3_5_text minicpmv4_6:qwen3_5_text
    minicpmv4_7:qwen3_5_text minimax_m3_vl:minimax_m3_vl_text mistral3:mistral mistral_large4:mistral_large4_text
    mllama:mllama_text_model modernvbert:modernbert molmo2:molmo2_text moss_transcribe_diarize:qwen3
    muse_glimmer:muse_glimmer_text muse_spark:muse_spark_text musicflamingo:qwen2 ovis2:qwen2
    paddleocr_vl:paddleocr_vl_text paligemma:gemma pe_audio:modernbert pe_audio_video:modernbert pe_video:modernbert
    perception_lm:llama pp_chart2table:qwen2 qianfan_ocr:qwen3 qwen2_5_omni_thinker:qwen2_5_omni_text
    qwen2_5_vl:qwen2_5_vl_text qwen2_audio:qwen2 qwen2_vl:qwen2_vl_text qwen3_5:qwen3_5_text
    qwen3_5_moe:qwen3_5_moe_text qwen3_asr:qwen3 qwen3_omni_moe_thinker:qwen3_omni_moe_text qwen3_vl:qwen3_vl_text
    qwen3_vl_moe:qwen3_vl_moe_text qwen4_exp:qwen4_exp_text shieldgemma2:gemma3_text smolvlm:llama step3p7:step3p5
    t5gemma2_encoder:t5gemma2_text ultravbert:ultrabert unlimited_ocr:unlimited_ocr_text vibevoice:qwen2
    vibevoice_asr:qwen2 video_llama_3:qwen2 video_llava:llama vipllava:llama voxtral:llama
    voxtral_realtime:voxtral_realtime_text
"""
TEXT_PARTS: dict[str, str] = dict(pair.split(":") for pair in _TEXT_PARTS.split())
"""The ``model_type`` of a model's text part, where that part does not name its own."""

_STILL = """
    albert bart bert bert-generation big_bird bigbird_pegasus biogpt blenderbot blenderbot-small bloom camembert
    convbert cpmant ctrl deberta deberta-v2 distilbert electra ernie falcon_mamba flaubert fnet fsmt funnel gpt-sw3
    gpt2 gpt_bigcode gpt_neo ibert jamba kimi_linear layoutlm led longformer longt5 luke m2m_100 mamba mamba2 marian
    mbart megatron-bert mobilebert mpnet mpt mra mt5 mvp nemotron_h nllb-moe nystromformer opt pegasus pegasus_x
    plbart prophetnet rembert roberta roberta-prelayernorm roc_bert rwkv squeezebert switch_transformers t5 trocr umt5
    whisper xglm xlm xlm-roberta xlm-roberta-xl xlnet xlstm xmod yoso zamba
"""
STILL_MODELS = frozenset(_STILL.split())
"""Models of transformers without rotary embedding."""
NAMELESS = frozenset({"jamba", "kimi_linear", "nemotron_h"})
"""Those of them whose configs name a base all the same."""

# What classes assume of the head, whatever the size of the model.
_HEADS = {
    64: """
        gpt_oss muse_spark_text neomme neucodec openai_privacy_filter qwen2_5_omni_dit voxtral_realtime_encoder xcodec2
    """,
    80: "timesfm2_5",
    128: """
        afmoe beam cohere2_moe cosmos3_edge_text cwm dia_decoder dia_encoder ernie4_5 flint glm glm4 helium
        higgs_audio_v2 hrm_text hy_v3 jetmoe kolibri1 laguna lfm3 llama4_text mellum minimax_m2 minimax_m3_vl_text
        ministral3 molmo2_text muse_glimmer_assistant muse_glimmer_text paddleocr_vl_text pe_audio_encoder
        pe_audio_video_encoder pe_video_encoder qwen2_5_omni_talker qwen3 qwen3_omni_moe_talker_code_predictor
        qwen3_vl_text seed_oss solar_open step3p5 zaya
    """,
    192: "mimo_v2_flash",
    256: """
        diffusion_gemma_text embedding_gemma2_text gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text
        qwen3_5_moe_text qwen3_5_text qwen3_next qwen4_exp_text t5_gemma_module t5gemma2_decoder t5gemma2_text
        vaultgemma
    """,
    512: "deepseek_v4",
}
_SLICES = {
    32: "axk2 minicpm3",
    64: """
        axk1 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 dots3_note_text glm4_moe_lite glm_moe_dsa hy_v4
        longcat_flash mistral4 mistral_large4_text youtu
    """,
}
_WIDE = "diffusion_gemma_text embedding_gemma2_text gemma4_text gemma4_unified_text"
# Hidden size, heads and layers of classes that are parts of larger configs.
_WHOLES = {
    (768, 12, 22): "modernbert",
    (2048, 8, 35): "gemma3n_text",
    (2048, 16, 24): "qwen3_vl_moe_text",
    (2048, 16, 36): "smollm3",
    (2048, 16, 40): "qwen3_5_moe_text",
    (2304, 8, 26): "gemma3_text",
    (2304, 8, 30): "gemma4_text",
    (2560, 32, 32): "lfm2",
    (3072, 16, 28): "gemma",
    (4096, 16, 32): "qwen3_5_text",
    (4096, 32, 32): "deepseek_ocr2_text emu3_text_model exaone4 granite llama mistral qwen2 qwen3 qwen3_vl_text",
    (4096, 32, 40): "glm4v_text mllama_text_model",
    (4096, 64, 36): "persimmon",
    (5120, 40, 48): "llama4_text",
    (8192, 64, 40): "cohere2",
    (8192, 64, 80): "qwen2_5_vl_text qwen2_vl_text",
}
_SIZES: list[tuple[dict[str, int], str]] = [
    *(({"head_dim": n}, names) for n, names in _HEADS.items()),
    *(({"qk_rope_head_dim": n}, names) for n, names in _SLICES.items()),
    *(
        ({"hidden_size": d, "num_attention_heads": n, "num_hidden_layers": depth}, names)
        for (d, n, depth), names in _WHOLES.items()
    ),
    ({"full_attention.head_dim": 512}, _WIDE),
    ({"rotary_dim": 64}, "codegen gptj"),
]
for _sizes, _names in _SIZES:
    for _name in _names.split():
        MODELS[_name] = MODELS[_name]._replace(sizes={**MODELS[_name].sizes, **_sizes})
