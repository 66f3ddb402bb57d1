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
    label: Callable[[str], str] = lambda layer_type: layer_type
    """Under which name the parameters of a layer type stand."""
    types: Mapping[str, str] = {}
    """What rope types are called in older configs of this model."""
    unread: tuple[str, ...] = ()
    """Keys that speak of rotary and that the model does not read."""
    text: str = ""
    """The ``model_type`` of its text part, if that part does not name its own."""
    rotary: bool = True
    """Whether it has rotary embedding at all."""
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
    kinds = listed("mlp_layer_types", config.get("mlp_layer_types"), NAMES)
    is_dense = index < _dense_layers(config) if kinds is None else kinds[index : index + 1] == ["dense"]
    prefix = "prefix_dense_sliding_window_pattern"
    return layer_type == "sliding_attention" or (is_dense and _period(prefix, config.get(prefix), 1) == 1)


def _dense_layers(config: Config) -> int:
    """Return how many of the first layers have no experts."""
    return integer("first_k_dense_replace", config.get("first_k_dense_replace") or 0)


def _dense_first(config: Config, index: int, layers: int) -> str:
    dense, prefix = _dense_layers(config), "prefix_dense_sliding_window_pattern"
    if index < dense:
        return "sliding_attention" if (index + 1) % _period(prefix, config.get(prefix), 1) else "full_attention"
    return str(_every(4, "sliding_window_pattern")(config, index - dense, layers))


def _by_windows(config: Config, index: int, layers: int) -> str:
    windows = listed("attention_windows", config.get("attention_windows"))
    if windows is None or index >= len(windows):
        return str(_every(3)(config, index, layers))
    return "sliding_attention" if windows[index] else "full_attention"


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
    "mla_use_nope": False,
}

# Names, most of them of engines, that change attention and not the rotation: what they do, and what serves it here.
BESIDE = {
    "dual_chunk_attention_config": "maps positions: rope_any.positions.dual_chunk",
    "use_fope": "bends the table: rope_any.bending.fope",
    "num_inv_freq": "of FoPE, which bends the table: rope_any.bending.fope",
    "fope_sep_head": "of FoPE, which bends the table: rope_any.bending.fope",
    "fope_init_factor": "of FoPE, which bends the table: rope_any.bending.fope",
    "max_cached_positions": "the length of a table",
    "use_logn_attn": "scales queries by position: rope_any.bending.temperature",
    "use_dynamic_ntk": "raises the base beyond the trained length: rope_any.scaling.dynamic_ntk",
}

# Names that change the rotation, and are those of other programs: what to write instead.
ELSEWHERE = {
    "nope_layer_interval": "Meta's name of no_rope_layer_interval",
    "no_rope_freq": "of Megatron, where 1 is a layer without rotary; in no_rope_layers 1 is a layer that rotates",
    "seq_len_interpolation_factor": "NeMo's name of the factor of a rope_scaling of type linear",
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


def _whole(hidden_size: int, heads: int, layers: int) -> dict[str, int]:
    """Return the sizes of a class that is a part of larger configs."""
    return {"hidden_size": hidden_size, "num_attention_heads": heads, "num_hidden_layers": layers}


def _rows(names: str, model: Model) -> dict[str, Model]:
    """Return one row for several model types."""
    return dict.fromkeys(names.split(), model)


MODELS: dict[str, Model] = {
    # --- half pairs, leading features, every attention layer ------------------------------------------------
    **_rows(
        """
        Yi arcee aria_text chameleon deepseek_ocr2_encoder diffllama doge dots1 esmc eurobert exaone falcon_h1
        gpt_neox_japanese gradium_phonon_tts granite4_vision_text granite_docling_text granitemoe
        granitemoeshared hyperclovax idefics internlm internlm2 internlm3 iquestcoder jais2
        kyutai_speech_to_text lasr_encoder mimi mimi_decoder mimi_encoder minicpm ministral moshi
        nemotron3_diarization_audio olmo olmo2 olmoe orion phi-msft pocket_tts pocket_tts_audio_tokenizer
        pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder qwen2_moe qwen3_moe starcoder2
        unlimited_ocr_text voxtral_realtime_text xverse
        """,
        Model(),
    ),
    **_rows("deepseek_ocr2_text granite llama mistral qwen2", Model(sizes=_whole(4096, 32, 32))),
    **_rows(
        """
        dia_decoder dia_encoder hrm_text qwen3_omni_moe_talker_code_predictor seed_oss
        """,
        Model(sizes={"head_dim": 128}),
    ),
    "gemma": Model(sizes={"head_dim": 256} | _whole(3072, 16, 28)),
    **_rows("gemma2 t5_gemma_module vaultgemma", Model(sizes={"head_dim": 256})),
    "hy_v4": Model(sizes={"qk_rope_head_dim": 64}),
    "minicpm3": Model(sizes={"qk_rope_head_dim": 32}),
    **_rows("neucodec voxtral_realtime_encoder xcodec2", Model(sizes={"head_dim": 64})),
    "qwen3": Model(sizes={"head_dim": 128} | _whole(4096, 32, 32)),
    "timesfm2_5": Model(sizes={"head_dim": 80}),
    **_rows("bitnet csm csm_depth_decoder_model evolla flex_olmo", Model(base=500_000.0)),
    "emu3_text_model": Model(base=1_000_000.0, sizes=_whole(4096, 32, 32)),
    "gte": Model(base=160_000.0),
    "hy_v3": Model(base=11_158_840.0, sizes={"head_dim": 128}),
    "jina_embeddings_v3": Model(base=20_000.0),
    "minimax_m2": Model(base=5_000_000.0, sizes={"head_dim": 128}),
    **_rows("mixtral phimoe", Model(base=1_000_000.0)),
    "muse_glimmer_assistant": Model(base=500_000.0, sizes={"head_dim": 128}),
    "nomic_bert": Model(base=1_000.0),
    "solar_open": Model(base=1_000_000.0, sizes={"head_dim": 128}),
    "bamba": Model(partial=0.5, turns=_at("attn_layer_indices")),
    **_rows(
        """
        dots3_note_audio_encoder glm4_moe glmasr_encoder nemotron nemotron3_5_transcribe_asr_audio
        nemotron3_5_transcribe_word_timestamp phi
        """,
        Model(partial=0.5),
    ),
    **_rows("gpt_neox stablelm", Model(partial=0.25)),
    "persimmon": Model(partial=0.5, sizes=_whole(4096, 64, 36)),
    "recurrent_gemma": Model(partial=0.5, pattern=_every(3, other="recurrent")),
    "qwen3_next": Model(
        partial=0.25, pattern=_every(4, "full_attention_interval", other="linear_attention"), sizes={"head_dim": 256}
    ),
    # --- other pairings -------------------------------------------------------------------------------------
    **_rows(
        """
        blt_global_transformer blt_local_decoder blt_local_encoder cohere ernie4_5_moe
        """,
        Model("interleaved", base=500_000.0),
    ),
    "blt_patcher": _INTERLEAVED,
    "codegen": _INTERLEAVED._replace(sizes={"rotary_dim": 64}),
    "cohere2": Model(
        "interleaved", turns=_sliding, pattern=_every(4, "sliding_window_pattern"), sizes=_whole(8192, 64, 40)
    ),
    "cohere2_moe": Model(
        "interleaved", turns=_sliding_or_dense, pattern=_dense_first, doubled=True, sizes={"head_dim": 128}
    ),
    "ernie4_5": Model("interleaved", base=500_000.0, sizes={"head_dim": 128}),
    **_rows("glm glm4", Model("interleaved", partial=0.5, sizes={"head_dim": 128})),
    "gptj": Model("interleaved", switch=("rotary", True, True), sizes={"rotary_dim": 64}),
    "helium": Model("interleaved", base=100_000.0, sizes={"head_dim": 128}),
    "llama4_text": Model(
        "interleaved",
        base=500_000.0,
        turns=_but_every(4),
        pattern=_chunked_where_turning,
        sizes={"head_dim": 128} | _whole(5120, 40, 48),
    ),
    "moonshine": Model("interleaved", partial=0.9, keys={"num_attention_heads": "decoder_num_attention_heads"}),
    "moonshine_streaming": Model("interleaved", partial=0.8),
    "openai_privacy_filter": Model("interleaved", base=150_000.0, stated=True, sizes={"head_dim": 64}),
    **_rows(
        """
        pe_audio_encoder pe_audio_video_encoder pe_video_encoder
        """,
        Model("interleaved", base=20_000.0, sizes={"head_dim": 128}),
    ),
    "roformer": Model("interleaved", unread=("rotary_value",)),
    "nanochat": Model(backwards=True),
    **_rows("axk1 deepseek_v3 glm4_moe_lite youtu", _ADJACENT_IN._replace(sizes={"qk_rope_head_dim": 64})),
    "axk2": _INTERLEAVED._replace(sizes={"qk_rope_head_dim": 32}),
    "bailing_hybrid": Model(
        "interleaved",
        base=6_000_000.0,
        doubled=True,
        pattern=_every(6, "layer_group_size", other="linear_attention"),
        sizes={"qk_rope_head_dim": 64},
    ),
    **_rows("deepseek_v2 deepseek_v32 glm_moe_dsa", _INTERLEAVED._replace(sizes={"qk_rope_head_dim": 64})),
    "kimi_k2": _ADJACENT_IN,
    "longcat_flash": Model("interleaved", base=10_000_000.0, sizes={"qk_rope_head_dim": 64}),
    "mistral4": _ADJACENT_IN._replace(stated=True, sizes={"qk_rope_head_dim": 64}),
    "mistral_large4_text": Model("interleaved", stated=True, turns=_but_every(4), sizes={"qk_rope_head_dim": 64}),
    "qwen2_5_omni_dit": _INTERLEAVED._replace(sizes={"head_dim": 64}),
    "deepseek_v4": Model(
        "interleaved",
        partial=0.125,
        layers={"main": Layer(10_000.0, scaled=False), "compress": Layer(160_000.0, "compress_rope_theta")},
        label=lambda layer_type: "main" if layer_type in ("main", "sliding_attention") else "compress",
        trailing=True,
        sizes={"head_dim": 512},
    ),
    # --- several axes ---------------------------------------------------------------------------------------
    **_rows("qwen2_5_vl_text qwen2_vl_text", _QWEN2_VL._replace(sizes=_whole(8192, 64, 80))),
    "qwen2_5_omni_text": _QWEN2_VL,
    "qwen2_5_omni_talker": _QWEN2_VL._replace(sizes={"head_dim": 128}),
    "paddleocr_vl_text": _QWEN2_VL._replace(base=500_000.0, sizes={"head_dim": 128}),
    "glm4v_text": _GLM4V._replace(pairing="interleaved", sizes=_whole(4096, 32, 40)),
    "glm_ocr_text": _GLM4V._replace(pairing="interleaved"),
    "glm4v_moe_text": _GLM4V._replace(partial=0.5),
    "glm_image_text": _GLM4V,
    "qwen3_vl_text": _QWEN3_VL._replace(sizes={"head_dim": 128} | _whole(4096, 32, 32)),
    "qwen3_vl_moe_text": _QWEN3_VL._replace(sizes=_whole(2048, 16, 24)),
    "qwen3_omni_moe_text": _QWEN3_VL._replace(base=1_000_000.0),
    "qwen3_omni_moe_talker_text": _QWEN3_VL._replace(base=10_000.0),
    "cosmos3_edge_text": _QWEN3_VL._replace(base=100_000_000.0, sizes={"head_dim": 128}),
    "cohere_compass_text": _QWEN3_VL._replace(base=10_000.0, stated=True),
    "qwen3_5_text": _QWEN3_5._replace(sizes={"head_dim": 256} | _whole(4096, 16, 32)),
    "qwen3_5_moe_text": _QWEN3_5._replace(sizes={"head_dim": 256} | _whole(2048, 16, 40)),
    "qwen4_exp_text": _QWEN3_5._replace(partial=1.0, sizes={"head_dim": 256}),
    "ernie4_5_vl_moe_text": Model("interleaved", base=500_000.0, axes="last for time", sections=(22, 22, 20)),
    "neomme": Model(
        stated=True, axes="alternating", sections=(1, 1), pattern=_last_is_full(_every(6)), sizes={"head_dim": 64}
    ),
    # The sections are cut over the doubled table: with unequal axes, no rotation.
    "hunyuan_vl_text": _HUNYUAN._replace(axes="doubled", types={"xdrope": "dynamic"}),
    # --- layers that differ ---------------------------------------------------------------------------------
    "gemma3_text": _GEMMA3._replace(sizes={"head_dim": 256} | _whole(2304, 8, 26)),
    "gemma3n_text": _GEMMA3._replace(pattern=_every(5), sizes={"head_dim": 256} | _whole(2048, 8, 35)),
    **_rows("t5gemma2_decoder t5gemma2_text", _GEMMA3._replace(sizes={"head_dim": 256})),
    "gemma4_text": _GEMMA4._replace(sizes={"head_dim": 256, "full_attention.head_dim": 512} | _whole(2304, 8, 30)),
    **_rows(
        """
        diffusion_gemma_text embedding_gemma2_text gemma4_unified_text
        """,
        _GEMMA4._replace(sizes={"head_dim": 256, "full_attention.head_dim": 512}),
    ),
    "modernbert": _MODERNBERT._replace(sizes=_whole(768, 12, 22)),
    "modernbert-decoder": _MODERNBERT,
    "olmo3": Model(
        layers={"sliding_attention": Layer(500_000.0, scaled=False), "full_attention": Layer(500_000.0)},
        pattern=_every(4),
    ),
    "mimo_v2_flash": Model(
        partial=0.334,
        layers={"sliding_attention": Layer(10_000.0, "swa_rope_theta"), "full_attention": Layer(5_000_000.0)},
        sizes={"head_dim": 192},
    ),
    "dots3_note_text": Model(
        "interleaved",
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
    ),
    "step3p5": Model(
        layers={"sliding_attention": Layer(10_000.0, scaled=False), "full_attention": Layer(10_000.0)},
        sizes={"head_dim": 128},
    ),
    "ultrabert": Model(
        layers={"sliding_attention": Layer(10_000.0), "full_attention": Layer(2_560_000.0)}, pattern=_by_windows
    ),
    "beam": Model(stated=True, pattern=_last_is_full(_every(6)), sizes={"head_dim": 128}),
    **_rows("laguna lfm3 mellum zaya", Model(stated=True, sizes={"head_dim": 128})),
    # --- layers that hold still -----------------------------------------------------------------------------
    "afmoe": Model(turns=_sliding, pattern=_every(4, "global_attn_every_n_layers"), sizes={"head_dim": 128}),
    "exaone4": Model(
        turns=_sliding_if_windowed, pattern=_every(4, "sliding_window_pattern"), sizes=_whole(4096, 32, 32)
    ),
    "exaone_moe": Model(turns=_sliding_if_windowed, pattern=_every(4, "sliding_window_pattern")),
    "kolibri1": Model(turns=_sliding_if_windowed, pattern=_every(5), sizes={"head_dim": 128}),
    "flint": Model(turns=_sliding, pattern=_flint, sizes={"head_dim": 128}),
    **_rows("granite_swa granitemoe_swa", Model(turns=_with_base, keys={"layer_bases": "layer_rope_theta"})),
    "muse_glimmer_text": Model(turns=_with_base_or_sliding, pattern=_fourth_from_the_last, sizes={"head_dim": 128}),
    "muse_spark_text": Model(
        base=500_000.0, turns=_with_base_or_sliding, pattern=_fourth_from_the_last, sizes={"head_dim": 64}
    ),
    "lfm2": Model(base=1_000_000.0, keys={"attention_layers": "full_attn_idxs"}, sizes=_whole(2560, 32, 32)),
    "lfm2_moe": Model(base=1_000_000.0, keys={"attention_layers": "full_attn_idxs"}),
    "minimax": Model(base=1_000_000.0, pattern=_every(2, first=0, other="linear_attention")),
    "mllama_text_model": Model(base=500_000.0, turns=_self_attending, sizes=_whole(4096, 32, 40)),
    "molmo2_text": Model(keys={"scaled_layers": "rope_scaling_layers"}, sizes={"head_dim": 128}),
    "olmo_hybrid": Model(optional=True, pattern=_every(4, other="linear_attention")),
    "smollm3": Model(base=2_000_000.0, turns=_but_every(4), sizes=_whole(2048, 16, 36)),
    # --- rotary by a switch ---------------------------------------------------------------------------------
    "clvp_encoder": Model(switch=("use_rotary_embedding", True, True), rotary_dim=_clvp),
    "esm": Model(switch=("position_embedding_type", "rotary", "absolute")),
    **_rows("RefinedWeb RefinedWebModel falcon", Model(switch=("alibi", False, False))),
    "granitemoehybrid": Model(switch=("position_embedding_type", "rope", None)),
    "seamless_m4t": _CONFORMER._replace(keys={"num_attention_heads": "speech_encoder_attention_heads"}),
    "wav2vec2-bert": _CONFORMER._replace(switch=("position_embeddings_type", "rotary", "relative_key")),
    "wav2vec2-conformer": _CONFORMER,
    "zamba2": Model(
        switch=("use_mem_rope", True, False),
        keys={"head_dim": "attention_head_dim", "attention_layers": "hybrid_layer_ids"},
    ),
    # --- names of their own ---------------------------------------------------------------------------------
    "apertus": Model(base=12_000_000.0, stated=True),
    "cwm": Model(base=1_000_000.0, stated=True, sizes={"head_dim": 128}),
    "dbrx": Model(inside="attn_config"),  # which transformers 5.23 does not read
    "gpt_oss": Model(base=150_000.0, stated=True, sizes={"head_dim": 64}),
    **_rows("higgs_audio_v2 ministral3", Model(stated=True, sizes={"head_dim": 128})),
    **_rows("hunyuan_v1_dense hunyuan_v1_moe", _HUNYUAN),
    "jetmoe": Model(keys={"head_dim": "kv_channels"}, sizes={"head_dim": 128}),
    "minimax_m3_vl_text": Model(base=5_000_000.0, unread=("rotary_dim",), sizes={"head_dim": 128}),
    **_rows("phi3 phi3_v phi4_multimodal", Model(types={"yarn": "longrope"})),
    "openelm": Model(keys={"rope_theta": "rope_freq_constant"}, unread=("rope_max_length",)),
    # --- the text part of larger models, where it does not name its own model_type --------------------------
    "aria": Model(text="aria_text"),
    **_rows(
        """
        audioflamingo3 fast_vlm got_ocr2 internvl llava_onevision musicflamingo ovis2 pp_chart2table qwen2_audio
        vibevoice vibevoice_asr video_llama_3
        """,
        Model(text="qwen2"),
    ),
    **_rows("aya_vision cohere2_vision", Model(text="cohere2")),
    "cosmos3_edge": Model(text="cosmos3_edge_text"),
    **_rows("cosmos3_omni qwen3_vl", Model(text="qwen3_vl_text")),
    "deepseek_ocr2": Model(text="deepseek_ocr2_text"),
    **_rows(
        """
        deepseek_vl deepseek_vl_hybrid glmasr idefics3 janus llava llava_next llava_next_video perception_lm
        smolvlm video_llava vipllava voxtral
        """,
        Model(text="llama"),
    ),
    "diffusion_gemma": Model(text="diffusion_gemma_text"),
    "dots3_note": Model(text="dots3_note_text"),
    "embedding_gemma2": Model(text="embedding_gemma2_text"),
    "emu3": Model(text="emu3_text_model"),
    "ernie4_5_vl_moe": Model(text="ernie4_5_vl_moe_text"),
    "exaone4_5": Model(text="exaone4"),
    **_rows("fun_asr_nano lighton_ocr moss_transcribe_diarize qianfan_ocr qwen3_asr", Model(text="qwen3")),
    "fuyu": Model(text="persimmon"),
    **_rows("gemma3 shieldgemma2", Model(text="gemma3_text")),
    "gemma3n": Model(text="gemma3n_text"),
    "gemma4": Model(text="gemma4_text"),
    "gemma4_unified": Model(text="gemma4_unified_text"),
    **_rows("glm46v glm4v glmga", Model(text="glm4v_text")),
    "glm4v_moe": Model(text="glm4v_moe_text"),
    "glm_image": Model(text="glm_image_text"),
    "glm_ocr": Model(text="glm_ocr_text"),
    "granite4_vision": Model(text="granite4_vision_text"),
    "granite_docling": Model(text="granite_docling_text"),
    **_rows("granite_speech granite_speech_plus", Model(text="granite")),
    "hunyuan_vl": Model(text="hunyuan_vl_text"),
    "hyperclovax_vision_v2": Model(text="hyperclovax"),
    **_rows("idefics2 mistral3", Model(text="mistral")),
    **_rows("jev minicpm_ocr minicpmv4_6 minicpmv4_7 qwen3_5", Model(text="qwen3_5_text")),
    "kimi_k25": Model(text="deepseek_v3"),
    "lfm2_vl": Model(text="lfm2"),
    "lfm3_vl": Model(text="lfm3"),
    "llama4": Model(text="llama4_text"),
    "minimax_m3_vl": Model(text="minimax_m3_vl_text"),
    "mistral_large4": Model(text="mistral_large4_text"),
    "mllama": Model(text="mllama_text_model"),
    **_rows("modernvbert pe_audio pe_audio_video pe_video", Model(text="modernbert")),
    "molmo2": Model(text="molmo2_text"),
    "muse_glimmer": Model(text="muse_glimmer_text"),
    "muse_spark": Model(text="muse_spark_text"),
    "paddleocr_vl": Model(text="paddleocr_vl_text"),
    "paligemma": Model(text="gemma"),
    "qwen2_5_omni_thinker": Model(text="qwen2_5_omni_text"),
    "qwen2_5_vl": Model(text="qwen2_5_vl_text"),
    "qwen2_vl": Model(text="qwen2_vl_text"),
    "qwen3_5_moe": Model(text="qwen3_5_moe_text"),
    "qwen3_omni_moe_thinker": Model(text="qwen3_omni_moe_text"),
    "qwen3_vl_moe": Model(text="qwen3_vl_moe_text"),
    "qwen4_exp": Model(text="qwen4_exp_text"),
    "step3p7": Model(text="step3p5"),
    "t5gemma2_encoder": Model(text="t5gemma2_text"),
    "ultravbert": Model(text="ultrabert"),
    "unlimited_ocr": Model(text="unlimited_ocr_text"),
    "voxtral_realtime": Model(text="voxtral_realtime_text"),
    # --- without rotary embedding ---------------------------------------------------------------------------
    **_rows(
        """
        albert bart bert bert-generation big_bird bigbird_pegasus biogpt blenderbot blenderbot-small bloom
        camembert convbert cpmant ctrl deberta deberta-v2 distilbert electra ernie falcon_mamba flaubert fnet
        fsmt funnel gpt-sw3 gpt2 gpt_bigcode gpt_neo ibert layoutlm led longformer longt5 luke m2m_100 mamba
        mamba2 marian mbart megatron-bert mobilebert mpnet mpt mra mt5 mvp nllb-moe nystromformer opt pegasus
        pegasus_x plbart prophetnet rembert roberta roberta-prelayernorm roc_bert rwkv squeezebert
        switch_transformers t5 trocr umt5 whisper xglm xlm xlm-roberta xlm-roberta-xl xlnet xlstm xmod yoso
        zamba
        """,
        Model(rotary=False),
    ),
    **_rows(
        """
        jamba kimi_linear nemotron_h
        """,
        Model(rotary=False, unread=("rope_theta", "rope_scaling", "rope_parameters", "qk_rope_head_dim")),
    ),
}
"""What is known of each ``model_type``; some are of code that comes with the weights."""
