"""Configs and files that are refused: what protects from a wrong rotation, and the hints for common mistakes."""

import io
import json
import math
import re
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from configs import FOUR_HEADS, GEMMA3, GPT, LLAMA, LONG, PUBLISHED, QWEN_VL, STATED, YARN, YARN_KEYS, gguf, scaled
from hypothesis import given
from hypothesis import strategies as st

import rope_any as ra
from rope_any import Rope, config


def refusal(read, *args, **options):
    """Return the message of the error that a function raises, which is one line of at most 420 characters."""
    with pytest.raises((TypeError, ValueError)) as caught:
        read(*args, **options)
    message = str(caught.value)
    assert "\n" not in message and len(message) <= 420
    return message


# --- values ---------------------------------------------------------------------------------------------------

DEEPLY_NESTED = []
for _ in range(100_000):
    DEEPLY_NESTED = [DEEPLY_NESTED]

GPTJ = GPT | {"model_type": "gptj"}
# Each kind of value once: what is wrong, and the beginning of the message.
VALUES = [
    (LLAMA | {"rope_theta": math.inf}, "rope_theta must be positive and finite; got inf"),
    (LLAMA | {"rope_theta": 1e-50}, "frequencies must be at most 65536"),
    (scaled(**YARN | {"factor": 0}), "rope_scaling.factor must be positive"),
    (scaled(rope_type="linear", factor=0.7), "rope_scaling.factor must be at least 1; got 0.7$"),
    (scaled(rope_type="linear", factor=DEEPLY_NESTED), "rope_scaling.factor must be a real number; got list"),
    (LLAMA | {"rope_theta": DEEPLY_NESTED}, r"rope_theta\[0\] must be a real number"),
    (LLAMA | {"head_dim": 65}, "head_dim must give an even number of features; got 65"),
    (LLAMA | {"partial_rotary_factor": 1.5}, "partial_rotary_factor must be at most 1; got 1.5"),
    ({"model_type": "llama", "hidden_size": 64}, "head_dim must be given, or num_attention_heads to derive it"),
    (LLAMA | {"num_attention_heads": 0}, "hidden_size and num_attention_heads must be positive"),
    (LONG | {"head_dim": 64}, "rope_scaling.short_factor must have one number for each of 32 pairs; got 64"),
    (LONG | {"rope_scaling": LONG["rope_scaling"] | {"long_factor": [0.0] * 64}}, "rope_scaling.long_factor must be p"),
    ({"model_type": 3}, "model_type must be a name; got int 3"),
    ({"model_type": [[["llama"]]]}, "model_type must be a name"),
    ({"model_type": np.array([1, 2])}, "model_type must be a name"),
    ({"model_type": "qwen2_vl_vision", "rope_scaling": {"rope_type": np.array(["x", "y"])}}, ".*rope_type must be"),
    ({"model_type": "gemma4_text", "per_layer_config": np.array([1, 2])}, "per_layer_config must hold"),
    ({"model_type": "smollm3", "head_dim": 64, "no_rope_layer_interval": "4"}, "no_rope_layer_interval must be"),
    (LLAMA | {"layer_types": np.array(["x", "y"])}, "layer_types must be"),
    (LLAMA | {"rope_parameters": np.zeros(3)}, "rope_parameters must be"),
    (LLAMA | {"rope_theta": np.zeros(2)}, "rope_theta must be"),
    ({1: 2, "model_type": "llama"}, "config must have names as keys; got int 1"),
    ([], "config must be a dict, a path to a config.json or an object with to_dict"),
]


def of_kinds(count):
    """Return a config of an unknown model with a number of kinds of layers."""
    return STATED | {"head_dim": 64, "rope_parameters": {str(i): {} for i in range(count)}}


# Numbers with limits: a function that reads one, the minimum, the maximum, and the error message.
LIMITS = {
    "head_dim": (lambda n: Rope.from_config(LLAMA | {"head_dim": n}), 2, 4096, "from 2 to 4096"),
    "rotary_dim": (lambda n: Rope.from_config(GPTJ | {"rotary_dim": n}), 1, 128, "from 1 to 128 features"),
    "num_hidden_layers": (lambda n: config.read(LLAMA | {"num_hidden_layers": n}).layers(), 1, 1024, "from 1 to 1024"),
    "kinds of layers": (lambda n: config.read(of_kinds(n), pairing="half").explain(), 0, 64, "at most 64 kinds"),
    "sequence_length": (lambda n: Rope.from_config(LLAMA, sequence_length=n), 1, 2**53, "from 1 to 9007199254740992"),
    "letters of a key": (lambda n: Rope.from_config(LLAMA | {"a" * n: 0}), 0, 100, "have names as keys"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_numbers_at_their_limits_are_read_and_beyond_are_refused(name):
    read, least, most, message = LIMITS[name]
    assert read(least)
    assert read(most)
    for wrong in {max(least - 1, 0), most + 1} - {least}:
        assert message in refusal(read, wrong)


@pytest.mark.parametrize("length", [2.5, True, "4096"])
def test_lengths_of_a_wrong_type_are_refused(length):
    assert "sequence_length must be" in refusal(Rope.from_config, LONG, sequence_length=length)


# --- schemes --------------------------------------------------------------------------------------------------

LLAMA3 = YARN | {"rope_type": "llama3", "low_freq_factor": 1.0}


def sections(sizes, **keys):
    """Return a config of a model with several axes and a section of these sizes for each."""
    return QWEN_VL | {"head_dim": 128, "rope_scaling": {"rope_type": "default", "mrope_section": sizes}} | keys


# What would be another rotation if it were ignored.
SCHEMES = [
    (scaled(**YARN | {"rope_type": "yarm"}), "rope_scaling.rope_type must be one of .*did you mean yarn"),
    (scaled(**YARN | {"type": "linear"}), "rope_scaling.type must agree with rope_scaling.rope_type"),
    (scaled(rope_type="yarn", factor=2.0), "rope_scaling.original_max_position_embeddings must be given"),
    (scaled(type="dynamic", factor=2.0) | {"max_position_embeddings": None}, "max_position_embeddings must be given"),
    (LONG | {"max_position_embeddings": None}, "max_position_embeddings must be given .* without a factor"),
    (scaled(type="su"), r"rope_scaling.short_factor must be given .*'longrope' \(rope_scaling.type su\)$"),
    (scaled(rope_type="default", factor=8.0), "rope_scaling.factor must not be given for rope type 'default'"),
    (scaled(factor=8.0), "rope_scaling.factor must not be given .*; give rope_type too, one of linear, dynamic"),
    (scaled(type="dynamic", factor=2.0, mscale=0.5), "rope_scaling.mscale must not be given for rope type 'dynamic'"),
    (scaled(**YARN | {"rope_theta": 1.0}), "rope_scaling.rope_theta must not be 1"),
    (scaled(**LLAMA3 | {"high_freq_factor": 0.5}), "rope_scaling.high_freq_factor must be at least `low_freq_factor`"),
    ({"model_type": "gpt_oss", "head_dim": 64}, "rope_parameters must be given for gpt_oss"),
    (GEMMA3 | {"rope_scaling": None, "rope_parameters": STATED}, "rope_parameters must be by kind of layer"),
    (LLAMA | {"rope_parameters": {"full_attention": {}, "rope_theta": 1e4}}, "rope_parameters must have either only"),
    (sections([16, 24, 23]), "rope_scaling.mrope_section: sections must .* sum"),
    (sections([16.0, 24, 24]), "rope_scaling.mrope_section: .*an integer"),
    (sections([4, 30, 30], model_type="qwen3_vl_text"), "rope_scaling.mrope_section: .* fit 64 pairs .* alternately"),
    (sections([20, 24, 20], model_type="ernie4_5_vl_moe_text"), "rope_scaling.mrope_section: .*equal numbers for h"),
    (QWEN_VL | {"rope_scaling": {"type": "mrope", "mrope_interleaved": True}}, "rope_scaling.mrope_interleaved must a"),
    (scaled(mrope_section=[16, 24, 24]), "rope_scaling.mrope_section must not be given for llama, .*one axis"),
    (sections([16, 16], model_type="neomme"), "rope_scaling.mrope_section must not be given for neomme: its class"),
]


OF_OTHER_MODELS = {
    "no_rope_layers": [1, 0],
    "no_rope_layer_interval": 4,
    "rope_local_base_freq": 1e5,
    "indexer_rope_interleave": True,
    "rotary_pct": 0.5,
    "partial_rotary_factors": [0.5],
    "attn_rotary_emb": 64,
    "qk_rope_head_dim": 64,
    "use_mem_rope": False,
}


@pytest.mark.parametrize("key", OF_OTHER_MODELS)
def test_a_key_of_another_model_is_refused(key):
    message = refusal(Rope.from_config, LLAMA | {key: OF_OTHER_MODELS[key]})
    assert message.startswith(f"{key} must not be given for llama, which does not read it; got ")


@pytest.mark.parametrize("model_type", [None, "our_model"])
@pytest.mark.parametrize(
    "key",
    ["no_rope_layers", "rope_local_base_freq", "alibi", "use_dynamic_ntk", "position_embedding_type", "rotary_pct"],
)
def test_a_key_whose_meaning_the_code_decides_is_refused_for_an_unknown_model(model_type, key):
    unknown = STATED | {"model_type": model_type, "head_dim": 64}
    message = refusal(Rope.from_config, unknown | {key: OF_OTHER_MODELS.get(key, True)}, pairing="half")
    assert message.startswith(f"{key} must not be given for an unknown model_type: only the model's code says")
    assert Rope.from_config(unknown | {"alibi": False}, pairing="half").frequencies == ra.frequencies(64)


# --- contradictions -------------------------------------------------------------------------------------------

VL_TEXT = {"model_type": "qwen2_5_vl_text", **FOUR_HEADS}
DBRX = {"model_type": "dbrx", "d_model": 64, "n_heads": 1}
DEEPSEEK = LLAMA | {"model_type": "deepseek_v3", "qk_rope_head_dim": 64}
MIMO = {"model_type": "mimo_v2_flash", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}
NOMIC = {"model_type": "nomic_bert", "n_embd": 768, "n_head": 12}
QWEN3 = LLAMA | {"model_type": "qwen3", "head_dim": 128}
DEEPSEEK4 = {"model_type": "deepseek_v4", "head_dim": 512, "qk_rope_head_dim": 32}
HALF = {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}
LINEAR = {"rope_type": "linear", "factor": 2.0}
OF_2048 = LONG["rope_scaling"] | {"original_max_position_embeddings": 2048}
# Configs from which two programs read different rotations, or whose keys contradict each other.
TWO_READINGS = [
    # two keys of one value
    (LLAMA | {"rope_parameters": YARN, "rope_scaling": YARN | {"factor": 8.0}}, "rope_scaling must agree"),
    (LLAMA | {"rope_parameters": {"rope_theta": 5e5}, "rope_scaling": LINEAR}, "rope_scaling must .* alone"),
    (LLAMA | {"rope_parameters": LINEAR, "rope_scaling": {"type": "linear"}}, "rope_scaling .*factor must be given"),
    (LLAMA | {"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e4}}, "rope_theta must agree with rope_parameters"),
    (DBRX | {"rope_theta": 1e4, "attn_config": {"rope_theta": 5e5}}, "attn_config.rope_theta must agree with"),
    (GPT | {"rotary_pct": 0.5, "partial_rotary_factor": 0.25}, "rotary_pct must agree with partial_rotary_factor"),
    (GPTJ | {"rotary_dim": 64, "partial_rotary_factor": 0.25}, "rotary_dim must agree with partial_rotary_factor"),
    (scaled(**YARN) | {"original_max_position_embeddings": 512}, "rope_scaling.original_max_.* must agree .* 512"),
    ({"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "head_dim": 192}, "head_dim must agree with qk_rope_head_d"),
    (DEEPSEEK | {"partial_rotary_factor": 0.3}, "partial_rotary_factor must give the 64 features of qk_rope_head_dim"),
    (DEEPSEEK4 | {"partial_rotary_factor": 0.125}, "qk_rope_head_dim must agree with .*, which gives 64"),
    # keys of a whole model and of its text part
    ({"model_type": "qwen2_5_vl", "rope_scaling": YARN, "text_config": VL_TEXT}, "rope_scaling must be in text_config"),
    ({"model_type": "llava", "rotary_emb_base": 1e6, "text_config": LLAMA}, "rotary_emb_base must be in text_config"),
    ({"model_type": "llava", "rope_scaling": {"type": []}, "text_config": scaled(**LINEAR)}, "rope_scaling must agree"),
    ({"model_type": "llava", "rope_theta": 5e5, "text_config": LLAMA | {"rope_theta": 1e4}}, "rope_theta must agree"),
    ({"model_type": "llava", "rope_tetha": 1e4, "text_config": LLAMA}, "rope_tetha must be in text_config: only that"),
    # what the class of the model does not do
    (LLAMA | {"use_mrope": True}, "use_mrope must be False"),
    (LLAMA | {"rope_interleaved": True}, "rope_interleaved must agree with llama"),
    ({"model_type": "bert", "rotary_emb_base": 20_000}, "rotary_emb_base .* which has no rotary embedding"),
    (LLAMA | {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1: .* first 64 .*, as in vLLM"),
    (QWEN3 | {"rope_parameters": {"partial_rotary_factor": 0.25}}, "rope_parameters.partial_.* must be 1: .* first 32"),
    (scaled(type="dynamic", factor=2.0, alpha=5.0), "rope_scaling.alpha must not be given for llama"),
    (LONG | {"rope_scaling": LONG["rope_scaling"] | {"short_mscale": 1.2}}, "rope_scaling.short_mscale must not be g"),
    (LONG | {"model_type": "phi3", "rope_scaling": OF_2048}, "rope_scaling.original_max_.* must agree with default"),
    (LLAMA | {"model_type": "olmo3", "num_hidden_layers": 4, "rope_theta": 1e4}, "rope_theta must .*default of olmo3"),
    (GPT | {"rope_theta": 5e5}, "rope_theta must agree .* its gpt_neox class .*; give it in rope_param.*; if not"),
    (GEMMA3 | {"rope_scaling": {"type": "linear", "factor": 8.0}}, "rope_scaling must agree .* its gemma3_text class"),
    (MIMO | {"swa_rope_theta": 777.0}, "swa_rope_theta must agree .* its mimo_v2_flash class"),
    (NOMIC | {"rotary_emb_base": 1e4}, "rotary_emb_base must agree .*; give it in rope_parameters if the weights were"),
    (LLAMA | {"model_type": "deepseek_ocr2_text", "head_dim": 96}, "head_dim must agree with what transformers uses"),
    (HALF | {"model_type": "mistral4"}, "rope_parameters.partial_rotary_factor must be given, with a rope type other"),
    (DEEPSEEK | {"rope_scaling": {"rope_type": "proportional"}}, "rope_scaling.rope_type must not be proportional"),
]


ONCE = {"factor": 1.0}
SEVERAL_KEYS_WITH_ONE_READING = {
    "equal parameters": LLAMA | {"rope_parameters": {"rope_theta": 1e4}, "rope_scaling": {"type": "default"}},
    "a share of 1": LLAMA | {"partial_rotary_factor": 1.0},
    "the constant base": LLAMA | {"model_type": "roformer", "head_dim": 128, "rope_theta": 1e4, "rope_scaling": None},
    "no rope": LLAMA | {"attn_config": {"rope": False}},
    "a copy outside of the text": {"model_type": "llava", "rope_theta": 1e4, "rope_scaling": ONCE | {"type": "linear"}}
    | {"text_config": LLAMA | {"rope_theta": 1e4, "rope_scaling": ONCE | {"rope_type": "linear"}}},
}


@pytest.mark.parametrize("name", SEVERAL_KEYS_WITH_ONE_READING)
def test_a_key_that_changes_nothing_is_accepted(name):
    assert Rope.from_config(SEVERAL_KEYS_WITH_ONE_READING[name]).frequencies == ra.frequencies(128)


def test_truncate_of_a_kind_of_layers_may_only_be_true():
    def full(**keys):
        """Return a config of layers of two kinds, of which full attention has YaRN with keys."""
        kinds = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": YARN | {"rope_theta": 1e6} | keys}
        return {"model_type": "gemma3_text", "rope_parameters": kinds}

    plain, true = (Rope.from_config(full(**keys), layer_type="full_attention") for keys in ({}, {"truncate": True}))
    assert plain == true
    message = refusal(Rope.from_config, full(truncate=False), layer_type="full_attention")
    assert message.startswith("rope_parameters.full_attention.truncate must not be false for a kind of layers")


# --- GGUF -----------------------------------------------------------------------------------------------------

OLMO2 = gguf("olmo2", rope__scaling__factor=8.0, rope__scaling__yarn_attn_factor=1.5, **YARN_KEYS)
GGUF = [
    ({"general.architecture": "x"}, "general.architecture must be one whose rotation is known, or `pairing`, x.rope"),
    (gguf("llama", rope__freq_bse=1e4), "llama.rope.freq_bse must be a known name; .*did you mean rope.freq_base"),
    (gguf("llama", rope__scaling__type="yarm", rope__scaling__factor=2.0), "llama.rope.scaling.type must be one of"),
    (gguf("phi3"), ".*rope_factors_short.weight up to 4096 tokens, rope_factors_long.weight beyond"),
    (gguf("phimoe"), ".*rope_factors_short.weight up to 4096 tokens"),
    (gguf("minicpm3"), ".*rope_factors_short.weight up to the trained length"),
    (OLMO2, "olmo2.rope.scaling.yarn_attn_factor must equal what llama.cpp derives from the factor, 1.2079"),
    (gguf("lfm2", attention__head_count_kv=8), "lfm2.attention.head_count_kv must be a list, with 0 for each layer"),
    (gguf("qwen3", attention__head_count_kv=[8, 0, 8, 0]), "qwen3.attention.head_count_kv must have no 0"),
    (gguf("llama4", attention__sliding_window=0), "llama4.attention.sliding_window must be given, and not be 0"),
    (gguf("gpt-oss", rope__freq_base_swa=1e4), "gpt-oss.rope.freq_base_swa must equal rope.freq_base"),
    (gguf("qwen2vl", rope__dimension_sections="abc"), "qwen2vl.rope.dimension_sections must be a list"),
    (gguf("qwen3", full_attention_interval=4), "qwen3.full_attention_interval must not be given"),
    (gguf("qwen3", rope__dimension_count_swa=64), "qwen3.rope.dimension_count_swa must not be given for architecture"),
    (gguf("qwen3", rope__scaling__alpha=1000.0), "qwen3.rope.scaling.alpha must not be given for architecture qwen3"),
]


@pytest.mark.parametrize(("model", "message"), [*VALUES, *SCHEMES, *TWO_READINGS, *GGUF])
def test_what_may_mean_another_rotation_is_refused_under_the_name_of_its_key(model, message):
    for method in (config.Config.rope, config.Config.explain):
        assert re.match(message, refusal(lambda: method(config.read(model))))  # noqa: B023
    with suppress(TypeError, ValueError):  # parts may name one that cannot be read
        str(config.read(model))


# --- layers ---------------------------------------------------------------------------------------------------

SLIDING = ["sliding_attention", "full_attention"] * 2
FULL = ["full_attention"] * 4
DEFAULT = {"rope_type": "default"}
LAYERS = [
    ("bamba", {"attn_layer_indices": "1,3"}, "attn_layer_indices must be a list of integers; got str"),
    ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers must have an entry for layer 2"),
    ("smollm3", {"no_rope_layers": [1, 0, 2, 1]}, r"no_rope_layers\[2\] must be 0 or 1; got 2"),
    ("granite_swa", {"layer_rope_theta": [1e4]}, "layer_rope_theta must have an entry for layer 1; got 1 entries"),
    ("granite_swa", {"layer_rope_theta": [1e4, 0, -1, 1]}, r"layer_rope_theta\[2\] must be positive"),
    ("ultrabert", {"attention_windows": [128]}, "attention_windows must have 4 entries"),
    ("cohere2_moe", {"layer_types": FULL, "mlp_layer_types": ["dense", "moe"] * 2}, r"mlp_layer_types\[1\] must be"),
    ("deepseek_v4", {"compress_ratios": [0, 4, 8, 4]}, r"compress_ratios\[2\] must be 0 or 4 or 128"),
    ("cohere2", {"layer_types": ["sliding_atention"] * 4}, ".*did you mean sliding_attention"),
    ("llama", {"layer_types": SLIDING[:2]}, "layer_types must have 4 entries, one for each layer; got 2"),
    ("llama", {"num_hidden_layers": None}, "num_hidden_layers must be given"),
    ("laguna", {"layer_types": FULL, "rope_parameters": {"ful_attention": DEFAULT}}, ".* mean full_attention"),
    ("laguna", {"layer_types": SLIDING, "rope_parameters": {"full_attention": DEFAULT}}, ".* entry for .*'sliding_"),
    ("llama", {"rope_parameters": {"rope_type": DEFAULT}}, "rope_parameters.rope_type must not be an object"),
    ("llama", {"rope_parameters": dict.fromkeys(SLIDING, DEFAULT)}, "layer_types must be given, since layers differ"),
    ("llama", {"per_layer_config": [{"head_dim": 32}]}, "per_layer_config must hold an object for each layer"),
    ("llama", {"per_layer_config": {"1": {}, "01": {}}}, "per_layer_config must have each layer once, .*got '01'"),
    ("llama", {"per_layer_config": {"0": {"rope_theta": 1e6}}}, "per_layer_config.0 must not have 'rope_theta'"),
]


@pytest.mark.parametrize(("model_type", "keys", "message"), LAYERS)
def test_what_must_be_given_for_each_layer_is_refused_if_it_is_not(model_type, keys, message):
    assert re.match(message, refusal(lambda: config.read({"model_type": model_type, **FOUR_HEADS, **keys}).layers()))


def test_a_wrong_list_of_layers_is_refused_for_one_kind_of_layer_too():
    for key, value in {"layer_types": SLIDING[:2], "num_hidden_layers": "x"}.items():
        assert refusal(Rope.from_config, GEMMA3 | {key: value}, layer_type="full_attention").startswith(f"{key} must ")
        assert refusal(config.read(GEMMA3 | {key: value}).explain).startswith(f"{key} must ")


@pytest.mark.parametrize(("depth", "message"), [("27", "27 without quotes"), (-3, "from 1 to 1024"), (None, "given")])
def test_a_wrong_number_of_layers_of_a_tower_is_refused_for_its_layers(depth, message):
    vision = {"model_type": "qwen2_5_vl", "vision_config": {"depth": depth, "hidden_size": 128, "num_heads": 4}}
    assert Rope.from_config(vision, part="vision")
    wanted = f"^vision_config.(depth|num_hidden_layers) must be .*{message}"
    assert re.match(wanted, refusal(config.read(vision).layers, part="vision"))


# --- hints for common mistakes --------------------------------------------------------------------------------

HINTS = [
    ({"_diffusers_version": "0.40", "num_layers": 3}, "_class_name, which decides it"),
    ({"_class_name": "AutoencoderKL"}, "it is no transformer of diffusers$"),
    ({"model_type": "bert", "base": 1e6}, "has no rotary emb"),
    (LLAMA | {"rope_tetha": 5e5}, "^rope_tetha must be left out: .*; did you mean rope_theta"),
    (LLAMA | {"rotary_pct": 0.5}, "got 0.5; did you mean partial_rotary_factor\\?$"),
    (LLAMA | {"rope_ratio": 2}, "^rope_ratio must not be given for llama, .*; got 2; in most of ChatGLM rope_theta"),
    ({"rope_theta": 1e4, "rope_type": "default"}, "; rope_type belongs in the rope_parameters"),
    (scaled(**YARN | {"beta_fsat": 32.0}), "rope_scaling.beta_fsat must be .*; did you mean beta_fast?"),
    (scaled(type="linear", factor=2.0, use_fope=True), "it is a key of the config itself; use_fope: .*bending.fope"),
    (scaled(rope_type="linear", factor=0.25), "rope_scaling.factor must be at least 1; got 0.25; write 4.0$"),
    (LLAMA | {"rope_scaling": "linear"}, "got str 'linear'; write {'rope_type': 'linear', 'factor': ...}$"),
    (LLAMA | {"rope_scaling": "{}"}, "; got str '{}'; give json.loads of it if it is JSON$"),
    (
        {"model_type": "qwen2", **FOUR_HEADS, "rope_scaling": {"type": "mrope"}},
        "such as qwen2_vl_text; or leave it out for text",
    ),
    ({"head_dim": 64}, "^model_type must be given, since it decides the rotation"),
    (
        LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 4}},
        "transformers takes max_position_embeddings, 4096: wri",
    ),
    ({"architectures": ["LlammaForCausalLM"]}, "^model_type must .*; did you mean llama\\? If"),
    ({"model_type": "llana", "architectures": ["LlamaForCausalLM"]}, "got 'llana'; if it rotates"),
    ({"n_layers": 2, "dim": 64, "partial_rotary_factor": 1, "model_type": "ours"}, "sizes hidden_size, num_"),
    ({"do_sample": True}, "; give the config.json: this is a generation_config.json$"),
    ({"peft_type": {}}, "give the config.json of the base model: this is an adapter_config.json$"),
    ("someone/some-model-8B", "there is none at someone/some-model-8B; nothing is fetched"),
    ("~/m/config.json", r"/config.json; ~ is not expanded: give os.path.expanduser\(path\)$"),
    ("x" * 1000, "there is none at x{255}…$"),
    ("a\0b", "must be a path to a config.json"),
    ('{"a": 1}', r'there is none at {"a": 1}; give json.loads\(config\) if it is JSON$'),
    (io.StringIO("{}"), r"; got StringIO .*; give json.load\(config\) if it is JSON$"),
    (SimpleNamespace(**LLAMA), r"; got SimpleNamespace; give vars\(config\)$"),
    (SimpleNamespace(config=SimpleNamespace(to_dict=dict)), "got the model; give model.config"),
    (type("Config", (), {"to_dict": dict}), "got the class Config; give an instance$"),
]
NAMES_OF_THE_BASE = ("base", "theta", "rope_base", "rotary_base", "theta_base", "freq_base", "rope_freq_base")
NAMES_OF_MODELS = {"llama3": "llama", "qwen2.5": "qwen2", "Qwen2VLForConditionalGeneration": "qwen2_vl"}
NAMES_OF_SCHEMES = {
    "pi": "linear",
    "NTK-aware": "dynamic, or raise rope_theta as rope_any.scaling.ntk does",
    "deepseek_yarn": "yarn",
    "dynamic-yarn": "yarn, with a factor for the longest sequence: no engine has the dynamic one",
    "xpos": "default, and bend the table by rope_any.bending.xpos",
}


@pytest.mark.parametrize(("model", "hint"), HINTS)
def test_a_common_mistake_gets_a_hint(model, hint):
    assert re.search(hint, refusal(Rope.from_config, model))


def test_names_of_other_programs_get_the_ones_to_write():
    for key in NAMES_OF_THE_BASE:
        assert re.match(f"{key} must .*; did you mean rope_theta\\?$", refusal(Rope.from_config, LLAMA | {key: 5e5}))
    for key in ("pairing", "interleaved", "is_neox_style"):
        assert "the model_type decides it, else" in refusal(Rope.from_config, LLAMA | {key: True})
    for name, known in NAMES_OF_MODELS.items():
        assert f"got '{name}'; did you mean {known}?" in refusal(Rope.from_config, {"model_type": name})
    for name, known in NAMES_OF_SCHEMES.items():
        assert refusal(Rope.from_config, scaled(rope_type=name)).endswith(f"; write {known}")
    for name, kind in {"global": "full_attention", "local": "sliding_attention"}.items():
        assert refusal(Rope.from_config, GEMMA3, layer_type=name).endswith(f"got '{name}'; did you mean {kind}?")
    assert refusal(Rope.from_config, GEMMA3, layer_type="none").endswith("got 'none'")


# --- files ----------------------------------------------------------------------------------------------------

FILES = [
    (b'{"model_type": "llama", ', "config.json must be a config.json; .*: line 1 column 25"),
    (b"", "config.json must be a config.json; it is empty$"),
    (b'{"model_type": "\xff"}', "not in UTF-8"),
    (b'{"model_type": "llama", "rope_theta": 1, "rope_theta": 2}', "key twice; got 'rope_theta'"),
    (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    (b'{"head_dim": ' + b"9" * 5000 + b"}", "must be a config.json"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a pointer of Git LFS: git lfs pull gets it$"),
    (b"\n<!DOCTYPE html>\n<html>", "an HTML page, not the file itself$"),
]


@pytest.mark.parametrize(("content", "message"), FILES)
def test_files_that_are_not_configs_are_refused(content, message, tmp_path):
    (tmp_path / "config.json").write_bytes(content)
    assert re.search(message, refusal(Rope.from_config, tmp_path))


def test_a_config_beside_a_missing_file_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    for name in ("confg.json", "model.safetensors"):
        assert re.search(r"; there is one at .*config\.json$", refusal(Rope.from_config, tmp_path / name))
    assert "there is one" not in refusal(Rope.from_config, tmp_path / "a" / "config.json")


OF_OTHER_KINDS = {
    "m.safetensors": "; give the config.json beside the weights",
    "m.yaml": "; give its content as a dict",
}


@pytest.mark.parametrize("name", OF_OTHER_KINDS)
def test_files_of_other_kinds_have_a_hint_and_large_ones_are_not_read(name, tmp_path):
    for size, got in ((8, ""), (100 * 2**20, " of at most 67108864 bytes; got 104857600")):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
        assert refusal(Rope.from_config, tmp_path / name).endswith(f"be a config.json{got}{OF_OTHER_KINDS[name]}")


def test_folders_of_other_kinds_have_a_hint(tmp_path):
    (tmp_path / "snapshots").touch()
    assert f"there is none in {tmp_path}; give one of the folders" in refusal(config.read, tmp_path)
    (tmp_path / "model_index.json").touch()
    assert refusal(config.read(tmp_path).as_transformers).endswith("a text model; got a pipeline of diffusers")


# --- random JSON ----------------------------------------------------------------------------------------------

NAMES = sorted(
    {key for model in PUBLISHED for key in (*model["config"], *model["config"].get("text_config", {}))}
    | {"rope_theta", "rope_parameters", "rope_scaling", "rope_type", "type", "factor", "mrope_section", "layer_types"}
    | {"general.architecture", "llama.rope.freq_base", "per_layer_config", "alpha", "short_factor", "long_factor"}
)
STRINGS = st.sampled_from(["llama", "yarn", "dynamic", "longrope", "full_attention", "gemma3_text", "clvp_encoder", ""])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | STRINGS | st.text(max_size=4)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), inner, max_size=6)
    ),
    max_leaves=24,
)


def read_or_refused(function, *arguments, **options):
    """Call a function, and check that it returns or raises a TypeError or ValueError of one line."""
    try:
        function(*arguments, **options)
    except (TypeError, ValueError) as error:
        assert str(error) and "\n" not in str(error)  # noqa: PT017 -- it may also return


@given(JSON)
def test_any_json_is_read_or_refused_in_one_sentence(model):
    read_or_refused(Rope.from_config, model)


@given(st.sampled_from(PUBLISHED), st.data())
def test_corrupted_published_configs_are_read_or_refused_in_one_sentence(published, data):
    model = json.loads(json.dumps(published["config"]))
    parent = model
    while True:
        key = data.draw(st.sampled_from(sorted(parent)))
        if not isinstance(parent[key], dict) or not parent[key] or data.draw(st.booleans()):
            break
        parent = parent[key]
    parent[key] = data.draw(JSON)
    layer_type = data.draw(st.none() | st.sampled_from(["full_attention", "sliding_attention"]))
    read_or_refused(Rope.from_config, model, layer_type=layer_type)
    for method in (config.Config.layers, config.Config.explain, config.Config.as_transformers):
        read_or_refused(lambda: method(config.read(model)))  # noqa: B023
