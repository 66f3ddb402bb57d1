"""Reading the params.json of Mistral and of Meta, and GGUF: translation, agreement with transformers, refusals."""

import contextlib
import copy
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import rope_any as ra
from rope_any import ArgumentTypeError, ArgumentValueError, Rope, config
from rope_any.config import explain, score_scale

PUBLISHED = config.published()
MISTRAL, META = "mistral params.json", "meta params.json"

# --- published files, without keys that are unrelated to attention ---------------------------------------------

MISTRAL_7B = {
    "dim": 4096,
    "n_layers": 32,
    "head_dim": 128,
    "hidden_dim": 14336,
    "n_heads": 32,
    "n_kv_heads": 8,
    "norm_eps": 1e-05,
    "vocab_size": 32768,
    "rope_theta": 1000000.0,
}
MIXTRAL = MISTRAL_7B | {"vocab_size": 32000, "moe": {"num_experts_per_tok": 2, "num_experts": 8}}
NEMO = MISTRAL_7B | {"dim": 5120, "n_layers": 40, "vocab_size": 131072}
PIXTRAL_TOWER = {
    "hidden_size": 1024,
    "num_channels": 3,
    "max_image_size": 1540,
    "patch_size": 14,
    "rope_theta": 10000.0,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "adapter_bias": False,
    "mm_projector_id": "patch_merge",
    "spatial_merge_size": 2,
}
SMALL_3_1 = {
    "dim": 5120,
    "n_layers": 40,
    "head_dim": 128,
    "hidden_dim": 32768,
    "n_heads": 32,
    "n_kv_heads": 8,
    "rope_theta": 1000000000.0,
    "norm_eps": 1e-05,
    "vocab_size": 131072,
    "max_position_embeddings": 131072,
    "vision_encoder": PIXTRAL_TOWER,
}
MINISTRAL_8B = MISTRAL_7B | {
    "n_layers": 36,
    "rope_theta": 100000000.0,
    "vocab_size": 131072,
    "sliding_window": [None, 32768, 32768, 32768],
}
MINISTRAL_3 = {
    "dim": 3072,
    "n_layers": 26,
    "head_dim": 128,
    "hidden_dim": 9216,
    "n_heads": 32,
    "n_kv_heads": 8,
    "rope_theta": 1000000.0,
    "norm_eps": 1e-05,
    "vocab_size": 131072,
    "tied_embeddings": True,
    "max_position_embeddings": 262144,
    "llama_4_scaling": {"original_max_position_embeddings": 16384, "beta": 0.1},
    "q_lora_rank": None,
    "qk_rope_head_dim": None,
    "qk_nope_head_dim": None,
    "kv_lora_rank": None,
    "v_head_dim": None,
    "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"},
    "yarn": {
        "original_max_position_embeddings": 16384,
        "factor": 16,
        "apply_scale": False,
        "beta": 32,
        "alpha": 1,
    },
    "vision_encoder": PIXTRAL_TOWER,
}
LARGE_3 = {
    "dim": 7168,
    "head_dim": 192,
    "hidden_dim": 16384,
    "kv_lora_rank": 512,
    "llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 8192},
    "max_position_embeddings": 294912,
    "moe": {"expert_hidden_dim": 4096, "first_k_dense_replace": 3, "num_experts": 128, "num_shared_experts": 1},
    "n_heads": 128,
    "n_kv_heads": 128,
    "n_layers": 61,
    "norm_eps": 1e-06,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {"config_groups": {"FP8_BLOCK": {"weights": {"num_bits": 8}}}, "format": "float-quantized"},
    "rope_theta": 10000.0,
    "v_head_dim": 128,
    "vocab_size": 131072,
    "yarn": {"alpha": 1, "apply_scale": False, "beta": 32, "factor": 36, "original_max_position_embeddings": 8192},
}
CODESTRAL_MAMBA = {
    "dim": 4096,
    "n_layers": 64,
    "vocab_size": 32768,
    "n_groups": 8,
    "rms_norm": True,
    "residual_in_fp32": True,
    "fused_add_norm": True,
    "pad_vocab_size_multiple": 1,
    "tie_embeddings": False,
    "model_type": "mamba",
}
LLAMA_2 = {"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-05, "vocab_size": -1}
CODE_LLAMA = LLAMA_2 | {"vocab_size": 32016, "rope_theta": 1000000}
LLAMA_3 = {
    "dim": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 8,
    "vocab_size": 128256,
    "multiple_of": 1024,
    "ffn_dim_multiplier": 1.3,
    "norm_eps": 1e-05,
    "rope_theta": 500000.0,
}
LLAMA_3_1 = LLAMA_3 | {"use_scaled_rope": True}
LLAMA_3_2 = LLAMA_3_1 | {"dim": 2048, "n_layers": 16, "ffn_dim_multiplier": 1.5, "multiple_of": 256}
SCOUT = {
    "dim": 5120,
    "n_layers": 48,
    "n_heads": 40,
    "n_kv_heads": 8,
    "head_dim": 128,
    "vocab_size": 202048,
    "multiple_of": 2048,
    "ffn_exp": 4.0,
    "ffn_dim_multiplier": 1.2,
    "norm_eps": 1e-05,
    "attention_chunk_size": 8192,
    "rope_theta": 500000.0,
    "use_scaled_rope": True,
    "nope_layer_interval": 4,
    "use_qk_norm": True,
    "moe_args": {"num_experts": 16, "top_k": 1, "interleave_moe_layer_step": 1},
    "vision_args": {"image_size": {"height": 336, "width": 336}, "dim": 1408, "n_layers": 34, "n_heads": 16},
}
MAVERICK = SCOUT | {"use_scaled_rope": False, "use_qk_norm": False, "attn_temperature_tuning": True}

SMALL_3_1_HF = {
    "model_type": "mistral3",
    "text_config": {
        "model_type": "mistral",
        "hidden_size": 5120,
        "num_attention_heads": 32,
        "num_hidden_layers": 40,
        "head_dim": 128,
        "rope_theta": 1e9,
    },
}
MINISTRAL_8B_HF = {"model_type": "ministral", "head_dim": 128, "num_hidden_layers": 36, "rope_theta": 1e8}
LARGE_3_HF = {
    "model_type": "mistral4",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_hidden_layers": 61,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 36.0,
        "original_max_position_embeddings": 8192,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
        "partial_rotary_factor": 64 / 192,
    },
}
SCOUT_HF = PUBLISHED["meta-llama/Llama-4-Scout-17B-16E-Instruct"]
MAVERICK_HF = {**SCOUT_HF, "text_config": {**SCOUT_HF["text_config"], "rope_scaling": None}}


def rope(keys, layer_type=None, **options):
    """Return the Rope of a file in one of the forms."""
    return Rope.from_config(keys, layer_type=layer_type, **options)


def without(keys, *names):
    """Return a file that lacks some keys."""
    return {key: value for key, value in keys.items() if key not in names}


FILES = {
    "Mistral 7B v0.3": (MISTRAL_7B, PUBLISHED["mistralai/Mistral-7B-Instruct-v0.3"], {}),
    "Mistral 7B v0.1": (
        MISTRAL_7B | {"rope_theta": 10000.0, "sliding_window": 4096},
        PUBLISHED["mistralai/Mistral-7B-v0.1"],
        {},
    ),
    "Mixtral": (MIXTRAL, PUBLISHED["mistralai/Mixtral-8x7B-v0.1"], {}),
    "Nemo": (NEMO, PUBLISHED["mistralai/Mistral-Nemo-Base-2407"], {}),
    "Small 3.1": (SMALL_3_1, SMALL_3_1_HF, {}),
    "Ministral 8B": (MINISTRAL_8B, MINISTRAL_8B_HF, {}),
    "Ministral 3": (MINISTRAL_3, PUBLISHED["mistralai/Ministral-3-3B-Instruct-2512"], {}),
    "Large 3": (LARGE_3, LARGE_3_HF, {}),
    "Large 3, scaled": (LARGE_3 | {"yarn": LARGE_3["yarn"] | {"apply_scale": True}}, LARGE_3_HF, {}),
    "Llama 2 7B": (LLAMA_2, PUBLISHED["meta-llama/Llama-2-7b-chat-hf"], {}),
    "Code Llama": (CODE_LLAMA, PUBLISHED["codellama/CodeLlama-7b-hf"], {}),
    "Llama 3 8B": (LLAMA_3, PUBLISHED["meta-llama/Meta-Llama-3-8B-Instruct"], {}),
    "Llama 3.1 8B": (LLAMA_3_1, PUBLISHED["meta-llama/Llama-3.1-8B"], {"factor": 8}),
    "Llama 3.2 1B": (LLAMA_3_2, PUBLISHED["meta-llama/Llama-3.2-1B-Instruct"], {"factor": 32.0}),
    "Llama 4 Scout": (SCOUT, SCOUT_HF, {}),
    "Llama 4 Scout, scaled": (SCOUT | {"rope_scaling_factor": 16.0, "rope_high_freq_factor": 1.0}, SCOUT_HF, {}),
    "Llama 4 Maverick": (MAVERICK, MAVERICK_HF, {}),
}


@pytest.mark.parametrize("name", FILES)
def test_files_give_the_rotation_of_the_transformers_config(name):
    keys, hf_config, options = FILES[name]
    before = copy.deepcopy(keys)
    kind = "chunked_attention" if "Llama 4" in name else None
    ours, expected = rope(keys, kind, **options), Rope.from_config(hf_config, layer_type=kind)
    assert keys == before
    assert ours.pairing == "interleaved"
    assert (ours.frequencies, ours.attention_factor, ours.start) == (expected.frequencies, expected.attention_factor, 0)


@pytest.mark.parametrize("name", FILES)
def test_sources_name_keys_of_the_file(name):
    """The source of each value names a key of the file, a default or a constant."""
    keys, _, options = FILES[name]
    kind = "chunked_attention" if "Llama 4" in name else None
    facts = explain(keys, layer_type=kind, **options)[0].facts
    nested = {f"{key}.{inner}" for key, value in keys.items() if isinstance(value, dict) for inner in value}
    assert facts.pop("score_scale").value == score_scale(keys, layer_type=kind, **options)
    for fact in facts.values():
        source = re.split(r" // |;", fact.source)[0].split(" by ")[0]
        others = ("default of ", "constant of ", "no scaling", "derived", MISTRAL, META, "argument factor")
        assert source in {*keys, *nested} or source.startswith(others), fact


# --- the weights of these files, against the attention of transformers ----------------------------------------


def _permuted(weight, heads):
    """Permute projections from adjacent pairs to halves, as transformers' converters do."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _small(keys):
    """Return a file with two heads of 64 features."""
    return keys | {"dim": 128, "n_heads": 2, "n_kv_heads": 2, "n_layers": 4, "head_dim": 64}


_HF_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
_HF_LLAMA3 = PUBLISHED["meta-llama/Llama-3.1-8B"]["rope_scaling"] | {"rope_theta": 500000.0}
_SCALED = MINISTRAL_3 | {"yarn": {key: value for key, value in MINISTRAL_3["yarn"].items() if key != "apply_scale"}}


@pytest.mark.parametrize(
    ("keys", "options", "model_type", "parameters"),
    [
        (_small(MISTRAL_7B), {}, "mistral", {"rope_type": "default", "rope_theta": 1e6}),
        (_small(MINISTRAL_3), {}, "ministral3", {**_HF_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}),
        (_small(_SCALED), {}, "ministral3", _HF_YARN),  # vLLM and llama.cpp apply the scale by default
        (_small(LLAMA_3_1) | {"head_dim": None}, {"factor": 8.0}, "llama", _HF_LLAMA3),
        (_small(LLAMA_2) | {"head_dim": None}, {}, "llama", {"rope_type": "default", "rope_theta": 1e4}),
    ],
    ids=["mistral", "ministral3", "ministral3 scaled", "llama 3.1", "llama 2"],
)
def test_unpermuted_weights_give_the_scores_of_transformers(keys, options, model_type, parameters):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)
    if model_type not in transformers.models.auto.configuration_auto.CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {model_type}")
    settings = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64}
    hf_config = transformers.AutoConfig.for_model(model_type, **settings, rope_parameters=parameters)
    module = __import__(f"transformers.models.{model_type}.modeling_{model_type}", fromlist=["x"])
    title = {"mistral": "Mistral", "ministral3": "Ministral3", "llama": "Llama"}[model_type]
    rng = np.random.default_rng(0)
    x, wq, wk = (rng.standard_normal(shape) / 8 for shape in ((1, 9, 128), (128, 128), (128, 128)))
    at = np.arange(9) * 37

    def heads(weight):
        """Return the projections of x, split into heads."""
        return (x @ weight.T).reshape(1, 9, 2, 64).swapaxes(1, 2)

    q, k = rope(keys, **options)(heads(wq), heads(wk), at)
    cos, sin = getattr(module, f"{title}RotaryEmbedding")(hf_config)(torch.zeros(1), torch.as_tensor(at[None]))
    pair = (torch.as_tensor(heads(_permuted(weight, 2))) for weight in (wq, wk))
    hf_q, hf_k = module.apply_rotary_pos_emb(*pair, cos, sin)
    expected = (hf_q @ hf_k.transpose(-1, -2)).numpy()
    np.testing.assert_allclose(q @ k.swapaxes(-1, -2), expected, atol=1e-3 * np.abs(expected).max())
    assert not np.allclose(q @ k.swapaxes(-1, -2), heads(wq) @ heads(wk).swapaxes(-1, -2), rtol=1e-2)


# --- layers and other translations ----------------------------------------------------------------------------


def test_layers_with_a_window_rotate_like_the_others():
    for kind in ("full_attention", "sliding_attention"):
        assert rope(MINISTRAL_8B, kind) == rope(MINISTRAL_8B)
    assert config.layers(MINISTRAL_8B) == [rope(MINISTRAL_8B)] * 36
    windows = MISTRAL_7B | {"rope_theta": 1e4, "_sliding_window": 4096}
    assert config.layers(windows) == [rope(MISTRAL_7B | {"rope_theta": 1e4})] * 32


def test_layers_of_llama_4_without_rotary_follow_the_interval():
    def rotates(keys):
        """Return whether each layer rotates."""
        return [layer is not None for layer in config.layers(keys)]

    assert rotates(SCOUT) == [True, True, True, False] * 12
    with pytest.raises(ValueError, match="layers of type full_attention have no rotary embedding"):
        rope(SCOUT, "full_attention")
    assert rotates(without(SCOUT, "nope_layer_interval", "attention_chunk_size")) == [True] * 48
    assert rotates(SCOUT | {"nope_layer_interval": 3}) == [True, True, False] * 16


def test_vision_and_audio_towers_are_parts():
    tower = PIXTRAL_TOWER | {"image_token_id": None}
    alone = SMALL_3_1 | {"vision_encoder": tower}
    audio = {"encoder_args": {"dim": 1280, "rope_theta": 1e6, "pos_embed": "rope"}, "downsample_args": {}}
    both = MISTRAL_7B | {"multimodal": {"vision_encoder_args": PIXTRAL_TOWER, "whisper_model_args": audio}}
    assert config.parts(alone) == config.parts(SCOUT) == ("text", "vision")
    assert config.parts(both) == ("text", "vision", "audio")
    assert Rope.from_config(alone, part="vision") == Rope.from_config(both, part="vision")
    (explained,) = explain(alone, part="vision")
    assert explained.facts["rope_theta"] == (PIXTRAL_TOWER["rope_theta"], "vision_encoder.rope_theta")
    with pytest.raises(ValueError, match=r"multimodal.whisper_model_args must be read from"):
        Rope.from_config(both, part="audio")


def test_the_score_scale_of_mla_is_scaled_by_apply_scale():
    """With MLA, `apply_scale` decides whether scores are scaled; transformers uses mscale_all_dim."""
    plain, scaled = (LARGE_3 | {"yarn": LARGE_3["yarn"] | {"apply_scale": on}} for on in (False, True))
    assert score_scale(plain) == pytest.approx(192**-0.5)
    assert score_scale(scaled) == pytest.approx(192**-0.5 * (0.1 * np.log(36) + 1) ** 2)
    assert rope(plain).attention_factor == rope(scaled).attention_factor == 1
    assert rope(MINISTRAL_3).attention_factor == 1
    assert rope(_SCALED).attention_factor == pytest.approx(0.1 * np.log(16) + 1)


def test_a_missing_base_has_its_default():
    bare = without(MIXTRAL, "rope_theta")
    assert rope(bare) == rope(MIXTRAL) == rope(bare | {"rope_theta": None})
    assert rope(without(LLAMA_3, "rope_theta")) == rope(LLAMA_3)
    for vocab_size in (-1, 32000):
        assert rope(LLAMA_2 | {"vocab_size": vocab_size}) == rope(LLAMA_2 | {"rope_theta": 1e4})


def test_a_temperature_of_zero_is_none():
    """Devstral 2 has it; its factor is 64, and cos and sin are multiplied."""
    yarn = {"original_max_position_embeddings": 4096, "factor": 64, "apply_scale": True, "beta": 4, "alpha": 1}
    scaling = {"original_max_position_embeddings": 4096, "beta": 0}
    devstral = MISTRAL_7B | {"yarn": yarn, "rope_theta": 1e6}
    assert rope(devstral | {"llama_4_scaling": scaling}) == rope(devstral)
    assert rope(devstral).attention_factor == pytest.approx(0.1 * np.log(64) + 1)


def test_mamba_has_no_rotary():
    with pytest.raises(ValueError, match="got none: mamba2 has no rotary embedding"):
        rope(CODESTRAL_MAMBA)
    assert config.layers(CODESTRAL_MAMBA) == [None] * 64


# --- DeepSeek's own configs -------------------------------------------------------------------------------------

DEEPSEEK_V3 = {
    "vocab_size": 129280,
    "dim": 7168,
    "inter_dim": 18432,
    "moe_inter_dim": 2048,
    "n_layers": 61,
    "n_dense_layers": 3,
    "n_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "n_activated_experts": 8,
    "n_expert_groups": 8,
    "n_limited_groups": 4,
    "route_scale": 2.5,
    "score_func": "sigmoid",
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
DEEPSEEK_V2_LITE = DEEPSEEK_V3 | {"dim": 2048, "n_layers": 27, "n_heads": 16, "q_lora_rank": 0, "mscale": 0.707}


@pytest.mark.parametrize(
    ("keys", "name"), [(DEEPSEEK_V3, "deepseek-ai/DeepSeek-V3"), (DEEPSEEK_V2_LITE, "deepseek-ai/DeepSeek-V2-Lite")]
)
def test_deepseek_configs_equal_those_of_transformers(keys, name):
    published = PUBLISHED[name]
    assert rope(keys) == rope(published)
    assert config.layers(keys) == config.layers(published)
    assert score_scale(keys) == pytest.approx(score_scale(published), rel=1e-12)
    assert rope(keys).attention_factor == 1


def test_deepseek_code_scales_only_beyond_its_original_length():
    """Frequencies and softmax scale as in DeepSeek's inference/model.py."""
    short = DEEPSEEK_V3 | {"max_seq_len": 4096}
    assert rope(short) == Rope(ra.frequencies(64), pairing="interleaved")
    assert score_scale(short) == pytest.approx(192**-0.5)
    other = DEEPSEEK_V3 | {
        "rope_factor": 10,
        "mscale": 0.5,
        "original_seq_len": 8192,
        "rope_theta": 5e4,
        "beta_fast": 16,
    }
    scaled = ra.scaling.yarn(ra.frequencies(64, base=5e4), 10.0, base=5e4, original_length=8192, beta_fast=16.0)
    assert rope(other) == Rope(scaled, pairing="interleaved")
    assert score_scale(other) == pytest.approx(192**-0.5 * (0.1 * 0.5 * np.log(10) + 1) ** 2)


def test_deepseek_v32_config_has_an_indexer():
    keys = DEEPSEEK_V3 | {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048, "scale_fmt": "ue8m0"}
    assert config.parts(keys) == ("text", "indexer")
    assert rope(keys) == rope(DEEPSEEK_V3)
    theirs = PUBLISHED["deepseek-ai/DeepSeek-V3"] | {"model_type": "deepseek_v32", "index_head_dim": 128}
    assert config.layers(keys, part="indexer") == config.layers(theirs, part="indexer")


# --- refusals -------------------------------------------------------------------------------------------------


def yarn(**changes):
    """Return Ministral 3's file with changes in its object ``yarn``; None removes a key."""
    changed = MINISTRAL_3["yarn"] | changes
    return MINISTRAL_3 | {"yarn": {key: value for key, value in changed.items() if value is not None}}


REFUSED = {
    # truncated
    "no head": (without(MISTRAL_7B, "head_dim"), {}, ValueError, "head_dim must be given"),
    "no heads": (without(LLAMA_3, "n_heads"), {}, ValueError, "n_heads, .* must be given"),
    "no layers for a list": (without(MINISTRAL_8B, "n_layers"), {}, ValueError, "n_layers must be given"),
    "half of MLA": (without(LARGE_3, "qk_nope_head_dim"), {}, ValueError, "qk_nope_head_dim must be given"),
    "no base, window": (
        without(MISTRAL_7B, "rope_theta") | {"sliding_window": 4096},
        {},
        ValueError,
        "rope_theta must be given with sliding_window",
    ),
    "no base, no window": (  # Mistral-7B-v0.1 as MLX writes it
        without(MISTRAL_7B, "rope_theta") | {"vocab_size": 32_000},
        {},
        ValueError,
        "rope_theta must be given: .*; it is 10000 for Mistral-7B-v0.1, 1000000 for",
    ),
    "no base, no vocabulary": (
        without(LLAMA_2, "vocab_size"),
        {},
        ValueError,
        "rope_theta or vocab_size must be given",
    ),
    "no base, other vocabulary": (without(CODE_LLAMA, "rope_theta"), {}, ValueError, "rope_theta must be given"),
    "no base, Llama 2 scaled": (LLAMA_2 | {"use_scaled_rope": True}, {"factor": 8}, ValueError, "rope_theta must be"),
    "yarn without factor": (yarn(factor=None), {}, ValueError, "yarn.factor must be given"),
    "half of llama_4_scaling": (
        MISTRAL_7B | {"llama_4_scaling": {"beta": 0.1}},
        {},
        ValueError,
        "llama_4_scaling.original_max_position_embeddings must be given",
    ),
    # the factor
    "no factor": (LLAMA_3_1, {}, ValueError, "factor must be given.*8 for Llama 3.1, 32 for Llama 3.2"),
    "factor unscaled": (LLAMA_3, {"factor": 8}, ValueError, "factor .* must not be given"),
    "factor of Llama 4": (SCOUT, {"factor": 16.0}, ValueError, "factor must not be given for Llama 4"),
    "factor of Mistral": (MISTRAL_7B, {"factor": 8}, ValueError, "factor must not be given for mistral"),
    "factor in Llama 3's file": (
        LLAMA_3_1 | {"rope_scaling_factor": 32.0},
        {},
        ValueError,
        "rope_scaling_factor must not be given without keys of Llama 4",
    ),
    "scaling factor unscaled": (MAVERICK | {"rope_scaling_factor": 16.0}, {}, ValueError, "must not be given, since"),
    # wrong types
    "list for yarn": (MISTRAL_7B | {"yarn": [16]}, {}, TypeError, "yarn must be an object"),
    "text for apply_scale": (yarn(apply_scale="false"), {}, TypeError, "yarn.apply_scale must be True or False"),
    "bool for window": (MISTRAL_7B | {"sliding_window": True}, {}, TypeError, "sliding_window must be an integer"),
    "list for vision": (MISTRAL_7B | {"vision_encoder": []}, {}, TypeError, "vision_encoder must be an object"),
    # contradictions
    "both windows": (
        MISTRAL_7B | {"sliding_window": 4096, "_sliding_window": 4096},
        {},
        ValueError,
        "sliding_window must be one positive length",
    ),
    "windows of two lengths": (
        MINISTRAL_8B | {"sliding_window": [1024, 4096]},
        {},
        ValueError,
        "sliding_window must be",
    ),
    "no windows": (MINISTRAL_8B | {"sliding_window": []}, {}, ValueError, "sliding_window must be one"),
    "window of zero": (MISTRAL_7B | {"sliding_window": 0}, {}, ValueError, "sliding_window must be one positive"),
    "uneven list": (MINISTRAL_8B | {"n_layers": 35}, {}, ValueError, "n_layers must be a multiple of the 4 entries"),
    "head of MLA": (LARGE_3 | {"head_dim": 128}, {}, ValueError, "head_dim must be qk_nope_head_dim"),
    "two lengths": (
        MINISTRAL_3 | {"llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 8192}},
        {},
        ValueError,
        "llama_4_scaling.original_max_position_embeddings must equal that of yarn",
    ),
    "two towers": (
        MISTRAL_7B | {"vision_encoder": PIXTRAL_TOWER, "multimodal": {"vision_encoder_args": PIXTRAL_TOWER}},
        {},
        ValueError,
        "must not be given together with vision_encoder",
    ),
    "head of Llama 4": (SCOUT | {"head_dim": 64}, {}, ValueError, "head_dim must be dim / n_heads"),
    "uneven heads": (LLAMA_3 | {"n_heads": 31}, {}, ValueError, "head_dim must be dim / n_heads"),
    "mamba with a base": (CODESTRAL_MAMBA | {"rope_theta": 1e4}, {}, ValueError, "rope_theta must not be given"),
    # unknown names of rotary keys
    "rope_scaling": (MISTRAL_7B | {"rope_scaling": {"factor": 2}}, {}, ValueError, "rope_scaling must be a known name"),
    "misspelt base": (MISTRAL_7B | {"rope_thetta": 1e6}, {}, ValueError, "did you mean rope_theta"),
    "misspelt beta": (yarn(betta=32), {}, ValueError, "yarn.betta must be a known name.*did you mean beta"),
    "in llama_4_scaling": (
        MISTRAL_7B | {"llama_4_scaling": {"betta": 1}},
        {},
        ValueError,
        "llama_4_scaling.betta must be a known name.*did you mean beta",
    ),
    "nested": (MISTRAL_7B | {"attention": {"rope_theta": 1}}, {}, ValueError, "attention.rope_theta must be a known"),
    "in multimodal": (MISTRAL_7B | {"multimodal": {"rope_dim": 1}}, {}, ValueError, "multimodal.rope_dim must be"),
    "Meta's": (LLAMA_3_1 | {"rope_scale_factor": 32}, {"factor": 32}, ValueError, "did you mean rope_scaling_factor"),
    # huge, negative and zero
    "huge head": (MISTRAL_7B | {"head_dim": 10**9}, {}, ValueError, "head_dim must be from 2"),
    "interval of zero": (SCOUT | {"nope_layer_interval": 0}, {}, ValueError, "nope_layer_interval must be positive"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_files_are_refused(name):
    keys, options, error, message = REFUSED[name]
    with pytest.raises(error, match=message) as caught:
        rope(keys, **options)
    assert type(caught.value) in {error, ArgumentTypeError, ArgumentValueError}  # no other subclass
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(("keys", "extra"), [(MISTRAL_7B, LLAMA_3), (LARGE_3, LLAMA_3_1), (MINISTRAL_3, SCOUT)])
def test_keys_of_two_forms_are_refused(keys, extra):
    with pytest.raises(ValueError, match=f"config must be of one form; got .* of {MISTRAL} and .* of {META}"):
        config.explain({**extra, **keys})


def test_deeply_nested_files_are_refused():
    deep = {}
    for _ in range(5000):
        deep = {"inner": deep}
    with pytest.raises(ValueError, match="config must hold objects at most 64 deep"):
        rope(MISTRAL_7B | {"other": deep})


def test_any_key_of_a_wrong_type_is_refused_by_name():
    """With any value replaced, a file is read or refused in one line."""
    values = [None, True, -1, 0, 1.5, 1e400, 10**30, "x", [], [1], {}, {"a": 1}, [[]]]
    for (keys, _, options), value in itertools.product(FILES.values(), values):
        for key in keys:
            changed, kind = keys | {key: value}, "chunked_attention" if "moe_args" in keys else None
            with contextlib.suppress(TypeError, ValueError):
                rope(changed, kind, **options)
                continue
            with pytest.raises((TypeError, ValueError), match=r"\A.{10,250}\Z"):  # no end of line
                rope(changed, kind, **options)


# --- GGUF ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "nor for the base, which llama.cpp sets by the projector type: read"),
        ({"clip.projector_type": "gemma4v", "clip.has_vision_encoder": True}, "projector type (100 for gemma4v)"),
        ({"clip.vision.projector_type": "pixtral"}, "projector type (10000 for pixtral)"),
        ({"clip.projector_type": "qwen3vl_merger"}, "projector type: read"),
        ({"clip.projector_type": ["pixtral"]}, "projector type: read"),
    ],
)
def test_mmproj_is_refused(keys, message):
    for read in (config.parts, config.explain, Rope.from_config):
        with pytest.raises(ValueError, match=f"general.architecture must .*; got 'clip'; .*{re.escape(message)}"):
            read({"general.architecture": "clip", "clip.vision.block_count": 24, **keys})


def test_an_indexer_of_gguf_is_a_part_that_cannot_be_read():
    """The file does not define the pairing of the indexer."""
    keys = {"general.architecture": "deepseek32", "deepseek32.rope.dimension_count": 64}
    indexer = {"deepseek32.attention.indexer.head_count": 64, "deepseek32.attention.indexer.key_length": 128}
    assert (config.parts(keys), config.parts(keys | indexer)) == (("text",), ("text", "indexer"))
    with pytest.raises(ValueError, match=r"deepseek32\.attention\.indexer\.\* must be read from a config.json"):
        Rope.from_config(keys | indexer, part="indexer")


def test_gguf_of_granite_has_its_score_scale():
    granite = {"general.architecture": "granite", "granite.embedding_length": 64, "granite.attention.head_count": 4}
    assert score_scale(granite | {"granite.attention.scale": 0.015625}) == 0.015625


# --- the table of the page ------------------------------------------------------------------------------------

PARAMS = {"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 32_000, "norm_eps": 1e-5}
YARN = {"beta": 32, "alpha": 1, "factor": 4, "original_max_position_embeddings": 4096}
# By form: a file without the key that identifies it, the values of such keys, and the pairing.
IDENTIFIED = {
    "`config.json` of transformers, today's and older": (
        {"head_dim": 64, "rope_theta": 5e5},
        {"model_type": "llama"},
        "half (`llama`)",
    ),
    "`config.json` of a transformer of diffusers": (
        {"axes_dims_rope": [16, 56, 56]},
        {"_class_name": "FluxTransformer2DModel"},
        "interleaved (`FluxTransformer2DModel`)",
    ),
    "`params.json` of Mistral": (
        PARAMS | {"head_dim": 128, "rope_theta": 1e6},
        {"hidden_dim": 14_336, "yarn": YARN, "moe": {}},
        "interleaved (`mistral`)",
    ),
    "`params.json` of Meta": (
        PARAMS | {"rope_theta": 5e5},
        {"multiple_of": 1024, "ffn_dim_multiplier": 1.3, "use_scaled_rope": False},
        "interleaved (`llama`)",
    ),
    "`inference/configs/*.json` of DeepSeek, V2 to V3.2": (
        PARAMS | {"qk_rope_head_dim": 64},
        {"inter_dim": 18_432, "moe_inter_dim": 2048, "n_routed_experts": 256},
        "interleaved (`deepseek_v3`)",
    ),
    "metadata of a GGUF file, as a dict": (
        {"llama.attention.key_length": 128, "llama.rope.freq_base": 1e6},
        {"general.architecture": "llama"},
        "interleaved (`llama`)",
    ),
}


@pytest.mark.parametrize("form", IDENTIFIED)
def test_each_key_of_a_form_identifies_it(form):
    file, keys, pairing = IDENTIFIED[form]
    with pytest.raises(ValueError, match="model_type must be given"):
        config.explain(file)
    ropes = [Rope.from_config(file | {key: value}) for key, value in keys.items()]
    assert {rope.pairing for rope in ropes} == {pairing.split()[0]}
    page = Path(__file__).parent.parent / "docs" / "load-a-model.md"
    assert f"| {form} | {', '.join(f'`{key}`' for key in keys)} | {pairing} |" in page.read_text(encoding="utf-8")


def test_a_file_of_onnx_runtime_is_refused():
    with pytest.raises(ValueError, match=r"got its genai_config.json"):
        Rope.from_config({"model": {"decoder": {"filename": "model.onnx"}}})
