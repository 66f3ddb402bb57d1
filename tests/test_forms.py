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

PUBLISHED = config.published()
MISTRAL, META = "mistral params.json", "meta params.json"

# --- published files, without keys that are unrelated to attention ---------------------------------------------

MISTRAL_7B = {"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8}
MISTRAL_7B |= {"norm_eps": 1e-05, "vocab_size": 32768, "rope_theta": 1000000.0}
MISTRAL_7B_V01 = MISTRAL_7B | {"rope_theta": 10000.0, "sliding_window": 4096}
MIXTRAL = MISTRAL_7B | {"vocab_size": 32000, "moe": {"num_experts_per_tok": 2, "num_experts": 8}}
NEMO = MISTRAL_7B | {"dim": 5120, "n_layers": 40, "vocab_size": 131072}
PIXTRAL_TOWER = {"hidden_size": 1024, "num_attention_heads": 16, "patch_size": 14, "rope_theta": 1e4}
SMALL_3_1 = NEMO | {"rope_theta": 1e9, "max_position_embeddings": 131072, "vision_encoder": PIXTRAL_TOWER}
MINISTRAL_8B = MISTRAL_7B | {"n_layers": 36, "rope_theta": 1e8, "sliding_window": [None, 32768, 32768, 32768]}
YARN = {"original_max_position_embeddings": 16384, "factor": 16, "apply_scale": False, "beta": 32, "alpha": 1}
MLA = ("q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "kv_lora_rank", "v_head_dim")
MINISTRAL_3 = MISTRAL_7B | dict.fromkeys(MLA) | {"dim": 3072, "n_layers": 26, "tied_embeddings": True, "yarn": YARN}
MINISTRAL_3 |= {"llama_4_scaling": {"original_max_position_embeddings": 16384, "beta": 0.1}}
MINISTRAL_3 |= {"max_position_embeddings": 262144, "vision_encoder": PIXTRAL_TOWER}
MINISTRAL_3 |= {"quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}}
LARGE_3 = MISTRAL_7B | {"dim": 7168, "n_layers": 61, "head_dim": 192, "max_position_embeddings": 294912}
LARGE_3 |= {"n_heads": 128, "n_kv_heads": 128, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
LARGE_3 |= {"rope_theta": 10000.0, "yarn": YARN | {"factor": 36, "original_max_position_embeddings": 8192}}
LARGE_3 |= {"llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 8192}}
CODESTRAL_MAMBA = {"dim": 4096, "n_layers": 64, "n_groups": 8, "rms_norm": True, "model_type": "mamba"}
LLAMA_2 = {"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-05, "vocab_size": -1}
CODE_LLAMA = LLAMA_2 | {"vocab_size": 32016, "rope_theta": 1000000}
LLAMA_3 = LLAMA_2 | {"n_kv_heads": 8, "vocab_size": 128256, "ffn_dim_multiplier": 1.3, "rope_theta": 500000.0}
LLAMA_3_1 = LLAMA_3 | {"use_scaled_rope": True}
LLAMA_3_2 = LLAMA_3_1 | {"dim": 2048, "n_layers": 16, "ffn_dim_multiplier": 1.5}
SCOUT = LLAMA_3_1 | {"dim": 5120, "n_layers": 48, "n_heads": 40, "head_dim": 128, "vocab_size": 202048, "ffn_exp": 4.0}
SCOUT |= {"attention_chunk_size": 8192, "nope_layer_interval": 4, "use_qk_norm": True, "moe_args": {"num_experts": 16}}
SCOUT |= {"vision_args": {"image_size": {"height": 336, "width": 336}, "dim": 1408, "n_layers": 34, "n_heads": 16}}
MAVERICK = SCOUT | {"use_scaled_rope": False, "use_qk_norm": False, "attn_temperature_tuning": True}

NEMO_HF = PUBLISHED["mistralai/Mistral-Nemo-Base-2407"]
SMALL_3_1_HF = {"model_type": "mistral3", "text_config": NEMO_HF | {"rope_theta": 1e9}}
MINISTRAL_8B_HF = {"model_type": "ministral", "head_dim": 128, "num_hidden_layers": 36, "rope_theta": 1e8}
HF_YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384}
HF_YARN |= {"beta_fast": 32.0, "beta_slow": 1.0}
MINISTRAL_3_HF = {"model_type": "ministral3", "head_dim": 128, "num_hidden_layers": 26}
MINISTRAL_3_HF |= {"rope_parameters": HF_YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}
LARGE_3_YARN = HF_YARN | {"rope_theta": 10000.0, "factor": 36.0, "original_max_position_embeddings": 8192}
LARGE_3_YARN |= {"mscale": 1.0, "mscale_all_dim": 1.0, "partial_rotary_factor": 64 / 192}
LARGE_3_HF = {"model_type": "mistral4", "hidden_size": 7168, "num_attention_heads": 128, "num_hidden_layers": 61}
LARGE_3_HF |= {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rope_parameters": LARGE_3_YARN}
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
    "Mistral 7B v0.1": (MISTRAL_7B_V01, PUBLISHED["mistralai/Mistral-7B-v0.1"], {}),
    "Mixtral": (MIXTRAL, PUBLISHED["mistralai/Mixtral-8x7B-v0.1"], {}),
    "Nemo": (NEMO, NEMO_HF, {}),
    "Small 3.1": (SMALL_3_1, SMALL_3_1_HF, {}),
    "Ministral 8B": (MINISTRAL_8B, MINISTRAL_8B_HF, {}),
    "Ministral 3": (MINISTRAL_3, MINISTRAL_3_HF, {}),
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
    """The source of each value names a key of the file, a default or a constant."""
    keys, hf_config, options = FILES[name]
    before = copy.deepcopy(keys)
    kind = "chunked_attention" if "Llama 4" in name else None
    ours, expected = rope(keys, kind, **options), Rope.from_config(hf_config, layer_type=kind)
    assert (ours.frequencies, ours.attention_factor, ours.start) == (expected.frequencies, expected.attention_factor, 0)
    assert ours.pairing == "interleaved"
    facts = config.read(keys, **options).explain(layer_type=kind)[0].facts
    nested = {f"{key}.{inner}" for key, value in keys.items() if isinstance(value, dict) for inner in value}
    assert facts.pop("score_scale").value == config.read(keys, **options).score_scale(layer_type=kind)
    for fact in facts.values():
        source = re.split(r" // |;", fact.source)[0].split(" by ")[0]
        others = ("default of ", "constant of ", "no scaling", "derived", MISTRAL, META, "argument factor")
        assert source in {*keys, *nested} or source.startswith(others), fact
    assert keys == before


# --- layers and other translations ----------------------------------------------------------------------------


def test_layers_with_a_window_rotate_like_the_others():
    assert rope(MINISTRAL_8B, "full_attention") == rope(MINISTRAL_8B, "sliding_attention") == rope(MINISTRAL_8B)
    assert config.read(MINISTRAL_8B).layers() == [rope(MINISTRAL_8B)] * 36
    assert config.read(MINISTRAL_8B).explain(layer_type="full_attention")[0].layers == tuple(range(0, 36, 4))
    assert config.read(MISTRAL_7B | {"_sliding_window": 4096}).layers() == [rope(MISTRAL_7B)] * 32


def test_layers_of_llama_4_without_rotary_follow_the_interval():
    for keys, rotates in (
        (SCOUT, [True, True, True, False] * 12),
        (without(SCOUT, "nope_layer_interval", "attention_chunk_size"), [True] * 48),
        (SCOUT | {"nope_layer_interval": 3}, [True, True, False] * 16),
    ):
        assert [layer is not None for layer in config.read(keys).layers()] == rotates
    with pytest.raises(ValueError, match="layers of type full_attention have no rotary embedding"):
        rope(SCOUT, "full_attention")


def test_vision_and_audio_towers_are_parts():
    audio = {"encoder_args": {"dim": 1280, "rope_theta": 1e6, "pos_embed": "rope"}, "downsample_args": {}}
    both = MISTRAL_7B | {"multimodal": {"vision_encoder_args": PIXTRAL_TOWER, "whisper_model_args": audio}}
    assert config.read(SMALL_3_1).parts == config.read(SCOUT).parts == ("text", "vision")
    assert config.read(both).parts == ("text", "vision", "audio")
    assert Rope.from_config(SMALL_3_1, part="vision") == Rope.from_config(both, part="vision")
    with pytest.raises(ValueError, match=r"multimodal.whisper_model_args must be read from"):
        Rope.from_config(both, part="audio")


def test_the_score_scale_of_mla_is_scaled_by_apply_scale():
    """With MLA, `apply_scale` decides whether scores are scaled; transformers uses mscale_all_dim."""
    plain, scaled = (LARGE_3 | {"yarn": LARGE_3["yarn"] | {"apply_scale": on}} for on in (False, True))
    by_default = MINISTRAL_3 | {"yarn": without(MINISTRAL_3["yarn"], "apply_scale")}  # as in vLLM and llama.cpp
    assert config.read(plain).score_scale() == pytest.approx(192**-0.5)
    assert config.read(scaled).score_scale() == pytest.approx(192**-0.5 * (0.1 * np.log(36) + 1) ** 2)
    assert rope(plain).attention_factor == rope(scaled).attention_factor == 1
    assert rope(MINISTRAL_3).attention_factor == 1
    assert rope(by_default).attention_factor == pytest.approx(0.1 * np.log(16) + 1)


@pytest.mark.parametrize(
    ("keys", "scales", "beta"),
    [
        (MINISTRAL_3, True, 0.1),
        (MINISTRAL_3 | {"llama_4_scaling": MINISTRAL_3["llama_4_scaling"] | {"beta": 0.35}}, True, 0.35),
        (MISTRAL_7B, False, None),
        # Devstral
        (MISTRAL_7B | {"llama_4_scaling": {"original_max_position_embeddings": 4096, "beta": 0}}, False, None),
        (MAVERICK | {"floor_scale": 4096, "attn_scale": 0.2}, True, None),
        (SCOUT, False, None),  # in Meta's code the default is no temperature
        (SCOUT_HF, True, None),  # in transformers the default is temperature
    ],
)
def test_the_temperature_of_queries_is_told(keys, scales, beta):
    facts = config.read(keys).explain()[0].facts
    assert ("rope_any.bending.temperature" in facts["score_scale"].source) == scales
    assert facts.get("llama_4_scaling_beta", (None,))[0] == beta


def test_a_missing_base_has_its_default():
    bare = without(MIXTRAL, "rope_theta")
    assert rope(bare) == rope(MIXTRAL) == rope(bare | {"rope_theta": None})
    assert rope(without(LLAMA_3, "rope_theta")) == rope(LLAMA_3)
    for vocab_size in (-1, 32000):
        assert rope(LLAMA_2 | {"vocab_size": vocab_size}) == rope(LLAMA_2 | {"rope_theta": 1e4})


def test_mamba_has_no_rotary():
    with pytest.raises(ValueError, match="got none: mamba2 has no rotary embedding"):
        rope(CODESTRAL_MAMBA)
    assert config.read(CODESTRAL_MAMBA).layers() == [None] * 64


# --- DeepSeek's own configs -------------------------------------------------------------------------------------

DEEPSEEK_V3 = {"dim": 7168, "inter_dim": 18432, "n_layers": 61, "n_heads": 128, "n_routed_experts": 256}
DEEPSEEK_V3 |= {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}


def test_deepseek_code_scales_only_beyond_its_original_length():
    """Frequencies and softmax scale as in DeepSeek's inference/model.py."""
    short = DEEPSEEK_V3 | {"max_seq_len": 4096}
    assert rope(short) == Rope(ra.frequencies(64), pairing="interleaved")
    assert config.read(short).score_scale() == pytest.approx(192**-0.5)
    changes = {"rope_factor": 10, "mscale": 0.5, "original_seq_len": 8192, "rope_theta": 5e4, "beta_fast": 16}
    scaled = ra.scaling.yarn(ra.frequencies(64, base=5e4), 10.0, base=5e4, original_length=8192, beta_fast=16.0)
    assert rope(DEEPSEEK_V3 | changes) == Rope(scaled, pairing="interleaved")
    assert config.read(DEEPSEEK_V3 | changes).score_scale() == pytest.approx(
        192**-0.5 * (0.1 * 0.5 * np.log(10) + 1) ** 2
    )


# --- refusals -------------------------------------------------------------------------------------------------


def yarn(**changes):
    """Return Ministral 3's file with changes in its object ``yarn``."""
    return MINISTRAL_3 | {"yarn": MINISTRAL_3["yarn"] | changes}


def temperature(**keys):
    """Return Ministral 3's file with another object ``llama_4_scaling``."""
    return MINISTRAL_3 | {"llama_4_scaling": keys}


TWO_TOWERS = {"vision_encoder": PIXTRAL_TOWER, "multimodal": {"vision_encoder_args": PIXTRAL_TOWER}}
# Each rule once: the file and the key that is named, or the hint.
REFUSED = [
    # truncated
    (without(MISTRAL_7B, "head_dim"), "head_dim"),
    (without(LLAMA_3, "n_heads"), "n_heads"),
    (without(MINISTRAL_8B, "n_layers"), "n_layers must be given"),
    (without(LARGE_3, "qk_nope_head_dim"), "qk_nope_head_dim"),
    (without(MISTRAL_7B_V01, "rope_theta"), "rope_theta must be given with sliding_window"),
    (without(LARGE_3, "rope_theta"), "rope_theta must be given with qk_rope_head_dim"),
    # Mistral-7B-v0.1 as MLX writes it
    (without(MISTRAL_7B, "rope_theta"), "rope_theta must .*; it is 10000 for Mistral-7B-v0.1, 1000000 for"),
    (without(LLAMA_2, "vocab_size"), "rope_theta or vocab_size"),
    (without(CODE_LLAMA, "rope_theta"), "rope_theta must be given"),
    (without(SCOUT, "rope_theta") | {"vocab_size": 32000}, "rope_theta must be given"),
    (yarn(factor=None), "yarn.factor"),
    (temperature(beta=0.1), "llama_4_scaling.original_max_position_embeddings"),
    # contradictions
    (MISTRAL_7B | {"sliding_window": 4096, "_sliding_window": 4096}, "sliding_window must be one positive length"),
    (MINISTRAL_8B | {"sliding_window": [1024, 4096]}, "sliding_window"),
    (MINISTRAL_8B | {"sliding_window": []}, "sliding_window"),
    (MISTRAL_7B | {"sliding_window": 0}, "sliding_window"),
    (MINISTRAL_8B | {"n_layers": 35}, "n_layers must be a multiple of the 4 entries"),
    (LARGE_3 | {"head_dim": 128}, "head_dim must be qk_nope_head_dim"),
    (temperature(beta=0.1, original_max_position_embeddings=8192), "must equal that of yarn, 16384"),
    (MISTRAL_7B | TWO_TOWERS, "must not be given together with vision_encoder"),
    (SCOUT | {"head_dim": 64}, "head_dim"),
    (LLAMA_3 | {"n_heads": 31}, "head_dim"),
    (CODESTRAL_MAMBA | {"rope_theta": 1e4}, "rope_theta"),
    (MAVERICK | {"rope_scaling_factor": 16.0}, "rope_scaling_factor must not be given, since"),
    (LLAMA_3_1 | {"rope_scaling_factor": 32.0}, "must not be given without keys of Llama 4"),
    # unknown names of rotary keys
    (MISTRAL_7B | {"rope_scaling": {"factor": 2}}, "rope_scaling must be a known name"),
    (MISTRAL_7B | {"rope_thetta": 1e6}, "did you mean rope_theta"),
    (yarn(betta=32), "yarn.betta must be a known name.*did you mean beta"),
    (temperature(betta=1), "llama_4_scaling.betta"),
    (MISTRAL_7B | {"attention": {"rope_theta": 1}}, "attention.rope_theta"),
    (MISTRAL_7B | {"multimodal": {"rope_dim": 1}}, "multimodal.rope_dim"),
    ({"model": {"decoder": {"filename": "model.onnx"}}}, "genai_config.json"),  # of ONNX Runtime
    # values
    (yarn(apply_scale="false"), "yarn.apply_scale"),
    (LLAMA_3 | {"use_scaled_rope": 1}, "use_scaled_rope must be True or False"),
    (MISTRAL_7B | {"vision_encoder": []}, "vision_encoder must be an object"),
    (MISTRAL_7B | {"head_dim": 10**9}, "head_dim must be from 2"),
    (SCOUT | {"nope_layer_interval": 0}, "nope_layer_interval must be positive"),
    *((SCOUT | {key: value}, key) for key in ("floor_scale", "attn_scale") for value in (0, -1, "8192")),
]


@pytest.mark.parametrize(("keys", "words"), REFUSED)
def test_wrong_files_are_refused(keys, words):
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=words) as caught:
        rope(keys)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("keys", "factor", "words"),
    [
        (LLAMA_3_1, None, "factor must be given.*8 for Llama 3.1, 32 for Llama 3.2"),
        (LLAMA_3, 8, "factor .* must not be given"),
        (SCOUT, 16.0, "factor must not be given for Llama 4"),
        (MISTRAL_7B, 8, "factor must not be given for mistral"),
        (LLAMA_2 | {"use_scaled_rope": True}, 8, "rope_theta must be given"),
        (LLAMA_3_1 | {"rope_scale_factor": 32}, 32, "did you mean rope_scaling_factor"),
    ],
)
def test_the_factor_is_given_for_llama_3_and_refused_otherwise(keys, factor, words):
    with pytest.raises(ValueError, match=words):
        rope(keys, factor=factor)


@pytest.mark.parametrize(("keys", "extra"), [(MISTRAL_7B, LLAMA_3), (LARGE_3, LLAMA_3_1), (MINISTRAL_3, SCOUT)])
def test_keys_of_two_forms_are_refused(keys, extra):
    with pytest.raises(ValueError, match=f"config must be of one form; got .* of {MISTRAL} and .* of {META}"):
        config.read({**extra, **keys}).explain()


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
        ({"clip.projector_type": ["pixtral"]}, "projector type: read"),
    ],
)
def test_mmproj_is_refused(keys, message):
    for read in (config.read, Rope.from_config):
        with pytest.raises(ValueError, match=f"general.architecture must .*; got 'clip'; .*{re.escape(message)}"):
            read({"general.architecture": "clip", "clip.vision.block_count": 24, **keys})


def test_an_indexer_of_gguf_is_a_part_that_cannot_be_read():
    """The file does not define the pairing of the indexer."""
    keys = {"general.architecture": "deepseek32", "deepseek32.rope.dimension_count": 64}
    indexer = {"deepseek32.attention.indexer.head_count": 64, "deepseek32.attention.indexer.key_length": 128}
    assert (config.read(keys).parts, config.read(keys | indexer).parts) == (("text",), ("text", "indexer"))
    with pytest.raises(ValueError, match=r"deepseek32\.attention\.indexer\.\* must be read from a config.json"):
        Rope.from_config(keys | indexer, part="indexer")


def test_gguf_of_granite_has_its_score_scale():
    granite = {"general.architecture": "granite", "granite.embedding_length": 64, "granite.attention.head_count": 4}
    assert config.read(granite | {"granite.attention.scale": 0.015625}).score_scale() == 0.015625


# --- the table of the page ------------------------------------------------------------------------------------

# A file without the key that identifies its form, the values of such keys, and the pairing.
OF_MISTRAL = {"hidden_dim": 14_336, "yarn": YARN, "moe": {}}
OF_META = {"multiple_of": 1024, "ffn_dim_multiplier": 1.3, "use_scaled_rope": False}
OF_DEEPSEEK = {"inter_dim": 18_432, "moe_inter_dim": 2048, "n_routed_experts": 256}
FLUX = "FluxTransformer2DModel"
IDENTIFIED = [
    ({"head_dim": 64, "rope_theta": 5e5}, {"model_type": "llama"}, "half (`llama`)"),
    ({"axes_dims_rope": [16, 56, 56]}, {"_class_name": FLUX}, f"interleaved (`{FLUX}`)"),
    (without(MISTRAL_7B, *OF_MISTRAL), OF_MISTRAL, "interleaved (`mistral`)"),
    (without(LLAMA_3, *OF_META), OF_META, "interleaved (`llama`)"),
    (without(DEEPSEEK_V3, *OF_DEEPSEEK), OF_DEEPSEEK, "interleaved (`deepseek_v3`)"),
    ({"llama.attention.key_length": 128}, {"general.architecture": "llama"}, "interleaved (`llama`)"),
]


@pytest.mark.parametrize(("file", "keys", "pairing"), IDENTIFIED)
def test_each_key_of_a_form_identifies_it(file, keys, pairing):
    with pytest.raises(ValueError, match="model_type must be given"):
        config.read(file).explain()
    assert {rope(file | {key: value}).pairing for key, value in keys.items()} == {pairing.split()[0]}
    page = Path(__file__).parent.parent / "docs" / "load-a-model.md"
    assert f"| {', '.join(f'`{key}`' for key in keys)} | {pairing} |" in page.read_text(encoding="utf-8")
