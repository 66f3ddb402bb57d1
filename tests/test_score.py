"""
The score scale of each model with rotary, compared with the scale of its own attention, built from its config.

The attention classes are found in the source of transformers by the config class that their constructor names. If none
names it, it is the only one beside those for other inputs, or it is listed. They are built without memory for their
weights (torch's device ``meta``), from default configs and from configs with other values. If a class has no attribute
for its scale, it is run.
"""

import json
import math
import re
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
from newer import skip_if_absent

from rope_any import config

REASON = "the models are those of transformers (5.23 or later), which run on torch"
torch = pytest.importorskip("torch", reason=REASON)
transformers = pytest.importorskip("transformers", minversion="5.23", reason=REASON)


PLAIN = {"rope_type": "default", "rope_theta": 1e4}
YARN_40 = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096}
# Models that rotate only with such a key, and keys without which ours has no rotation.
SWITCHES = {
    "esm": {"position_embedding_type": "rotary"},
    "granitemoehybrid": {"position_embedding_type": "rope"},
    "seamless_m4t": {"position_embeddings_type": "rotary"},
    "wav2vec2-bert": {"position_embeddings_type": "rotary"},
    "wav2vec2-conformer": {"position_embeddings_type": "rotary"},
    "zamba2": {"use_mem_rope": True},
    "cohere_compass_text": {"rope_parameters": PLAIN},
}


# --- the attention of each model --------------------------------------------------------------------------

ROOT = Path(transformers.__file__).parent / "models"
CLASS = re.compile(r"^class (\w+)\(.*?\n(?=^\S)", re.MULTILINE | re.DOTALL)
OTHER_INPUTS = re.compile("(Cross|Vision|Audio)Attention$")
_OMNI = "qwen3_omni_moe.modeling_qwen3_omni_moe"
# Attention classes that neither name the config class of their model nor are the only ones beside it.
OTHER_PROGRAMS = {
    "deepseek_ocr2_encoder": "deepseek_ocr2.modeling_deepseek_ocr2.DeepseekOcr2VisionAttention",
    **dict.fromkeys(("exaone", "internlm3", "iquestcoder"), "llama.modeling_llama.LlamaAttention"),
    "moonshine_streaming": "moonshine_streaming.modeling_moonshine_streaming.MoonshineStreamingAttention",
    "qwen2_5_omni_dit": "qwen2_5_omni.modeling_qwen2_5_omni.DiTAttention",
    "qwen3_omni_moe_talker_code_predictor": f"{_OMNI}.Qwen3OmniMoeTalkerCodePredictorAttention",
    "qwen3_omni_moe_talker_text": f"{_OMNI}.Qwen3OmniMoeThinkerTextAttention",
    "qwen3_omni_moe_text": f"{_OMNI}.Qwen3OmniMoeThinkerTextAttention",
    "roformer": "roformer.modeling_roformer.RoFormerSelfAttention",
    "sarvam_mla": "deepseek_v3.modeling_deepseek_v3.DeepseekV3Attention",
    "sarvam_moe": "glm4_moe.modeling_glm4_moe.Glm4MoeAttention",
    "seamless_m4t": "seamless_m4t.modeling_seamless_m4t.SeamlessM4TConformerSelfAttention",
    "t5_gemma_module": "t5gemma.modeling_t5gemma.T5GemmaSelfAttention",
    "t5gemma2_decoder": "t5gemma2.modeling_t5gemma2.T5Gemma2MergedAttention",
    "voxtral_realtime_encoder": "voxtral_realtime.modeling_voxtral_realtime.VoxtralRealtimeAttention",
}


def scale_of_gptj(attention):
    """Return the scale of GPT-J or CodeGen: before transformers 5.24 its attribute was a divisor."""
    return attention.scaling if hasattr(attention, "scaling") else 1 / attention.scale_attn


# Attributes of the scale in other classes; some are divisors.
ATTRIBUTES = {
    "codegen": scale_of_gptj,
    "falcon": lambda attention: attention.inv_norm_factor,
    "gpt_neox_japanese": lambda attention: 1 / attention.norm_factor,
    "gptj": scale_of_gptj,
}
# Models whose attention has no attribute for the whole scale; they are run below.
RUN = {"clvp_encoder", "modernbert", "openai_privacy_filter", "qwen2_5_omni_dit", "roformer"}
REFUSED = {"dory", "mistral_large4_text", "timesfm2_5"}
NAMELESS = {"qwen3_omni_moe_code2wav", "saprot"}  # whose configs have no model_type: tests/test_towers.py


@cache
def types_of_files():
    """Return the model types that each configuration file of transformers defines."""
    pattern = re.compile(r'^    model_type\b.*= "([^"]+)"', re.MULTILINE)
    paths = sorted(ROOT.glob("*/configuration_*.py"))
    return {path: pattern.findall(path.read_text(encoding="utf-8")) for path in paths}


@cache
def config_class(model_type):
    """Return the config class of a model type."""
    for path in (path for path, types in types_of_files().items() if model_type in types):
        module = import_module(f"transformers.models.{path.parent.name}.{path.stem}")
        for kind in vars(module).values():
            if getattr(kind, "__module__", "") == module.__name__ and vars(kind).get("model_type") == model_type:
                return kind
    raise LookupError(model_type)


def has_own_attention(name):
    """Return whether a model type is read as one that rotates by itself: no tower, and no whole with a text part."""
    if {"text_config", "thinker_config"} & (getattr(config_class(name), "sub_configs", None) or {}).keys():
        return False
    keys = {"model_type": name} | SWITCHES.get(name, {})
    try:
        if not config.read(keys).parts or (config.read(keys).parts == ("vision",) and name != "pe_video_encoder"):
            return False
        return all(one.facts["model_type"].value == name for one in config.read(keys).explain() if one.rope)
    except ValueError as error:  # it is unknown, or needs a key that its class has
        return "must be given" in str(error)


def attention_classes(model_type):
    """Return the classes of a model's attention: a listed one, or those of its config class, or the only one."""
    if model_type in OTHER_PROGRAMS:
        module, name = OTHER_PROGRAMS[model_type].rsplit(".", 1)
        return [getattr(import_module(f"transformers.models.{module}"), name)]
    cls = config_class(model_type)
    named, scaled, others = [], [], []
    for path in sorted((ROOT / cls.__module__.split(".")[2]).glob("modeling_*.py")):
        module = import_module(f"transformers.models.{path.parent.name}.{path.stem}")
        for name, body in ((match[1], match[0]) for match in CLASS.finditer(path.read_text(encoding="utf-8"))):
            has_scale = "self.scaling = " in body
            if has_scale and re.search(rf'config: "?{cls.__name__}\b', body):
                named.append(getattr(module, name))
            elif name.endswith("Attention") and not OTHER_INPUTS.search(name):
                (scaled if has_scale else others).append(getattr(module, name))
    if not named:
        (named,) = ([one] for one in scaled or others)
    return named


YARN = YARN_40 | {"rope_theta": 1e4, "mscale": 0.6, "mscale_all_dim": 0.9, "llama_4_scaling_beta": 0.1}
# Values that are no default of any class, by key.
ODD = {"query_pre_attn_scalar": 123, "attention_multiplier": 0.03, "key_multiplier": 0.7}
ODD |= {"qk_nope_head_dim": 80, "qk_rope_head_dim": 48, "head_dim": 96, "attention_head_dim": 96, "kv_channels": 96}
INDEXER = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 64}
# Keys that default configs lack.
COMPLETED = {
    "bamba": {"attn_layer_indices": [0]},
    "granitemoehybrid": {"num_hidden_layers": 2, "layer_types": ["attention", "mamba"]},
    "cosmos3_edge_text": {"head_dim": 96, "rope_parameters": PLAIN | {"mrope_section": [16, 16, 16]}},
    "dbrx": {"attn_config": {"rope_theta": 1e4}},
    **{name: {"head_dim": 96} for name in ("hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text", "ministral")},
    "nemotron": {"num_key_value_heads": 8},
    "qwen4_exp_text": {"num_attention_heads": 16, "num_key_value_heads": 4, "indexer_compress_ratio": 4, **INDEXER},
}
# Constructor arguments besides the config and the layer index.
ARGUMENTS = {
    "IdeficsAttention": lambda config, _: (config.hidden_size, config.num_attention_heads, 0, False, config),
    "LagunaAttention": lambda config, index: (config, index, 8),
    "MoonshineStreamingAttention": lambda config, index: (config, index, True, 8, 8),
    "MoonshineAttention": lambda config, index: (config, index, True, *2 * [config.decoder_num_attention_heads]),
}


def odd(model_type):
    """Return the values of ODD for the keys that a config class has."""
    fields = config_class(model_type).__dataclass_fields__
    scaled = {"rope_parameters": YARN} if "qk_nope_head_dim" in fields and model_type != "dots3_note_text" else {}
    if model_type == "hy_v4_vl_text":
        scaled["rope_parameters"] = YARN | {"mrope_section": [8, 8, 8]}
    values = ODD | {"longcat_flash": {"head_dim": ODD["qk_rope_head_dim"]}}.get(model_type, {})
    return {key: value for key, value in values.items() if key in fields} | scaled


def built(model_type, **changes):
    """Return the config, the layer type and the attention of each kind of layer of a model, without memory."""
    theirs = config_class(model_type)(**{**COMPLETED.get(model_type, {}), **changes})
    kinds, layers = getattr(theirs, "layer_types", None) or [None], []
    for index in sorted({kinds.index(kind) for kind in kinds}):
        layer = theirs.per_layer_config[index] if kinds[index] else theirs
        for cls in attention_classes(model_type):
            with torch.device("meta"), suppress(TypeError):  # the layer is of another kind
                layers.append((theirs, kinds[index], attention_layer(cls, layer, index)))
    return layers


def attention_layer(cls, config, index):
    """Return an attention layer; raise a TypeError if it takes other arguments."""
    has_index = "layer_idx" in signature(cls).parameters
    arguments = ARGUMENTS.get(cls.__name__, lambda config, index: (config, index) if has_index else (config,))
    return cls(*arguments(config, index))


MODELS = sorted(filter(has_own_attention, {name for names in types_of_files().values() for name in names}))


def score_scale(keys, kind):
    """Return the score scale of a kind of layer, by the one name that we have for it; None without attention."""
    for layer_type in (kind, None):
        try:
            return config.read(keys).score_scale(layer_type=layer_type)
        except ValueError as error:
            if "have rotary embedding" in str(error):
                return None
            if "layer_type must be" not in str(error):
                raise
    return None


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("changed", [False, True], ids=["default", "odd"])
@pytest.mark.parametrize("model_type", [name for name in MODELS if name not in RUN | REFUSED | NAMELESS])
def test_the_scale_equals_that_of_the_models_attention(model_type, changed):
    skip_if_absent(model_type)
    checked = 0
    for theirs, kind, attention in built(model_type, **(odd(model_type) if changed else {})):
        expected = ATTRIBUTES.get(model_type, lambda x: x.scaling)(attention)
        keys = json.loads(json.dumps(theirs.to_dict())) | SWITCHES.get(model_type, {})
        ours = score_scale(keys, kind)
        assert ours is None or ours == pytest.approx(expected, rel=1e-12)
        checked += ours is not None
    assert checked


def test_models_that_are_run_or_refused_rotate_by_themselves():
    assert MODELS and set(MODELS) > RUN | REFUSED


# --- models that are run, because no attribute has the whole scale ----------------------------------------

HEAD, HEADS, SEQ = 12, 4, 5
SMALL = {"hidden_size": HEAD * HEADS, "num_attention_heads": HEADS}


def small(model_type, **changes):
    """Return the config of a small model, and its attention with random weights."""
    cls = config_class(model_type)
    keys = SMALL | ({"head_dim": HEAD} if "head_dim" in cls.__dataclass_fields__ else {}) | changes
    config = cls(**keys, attn_implementation="probe")  # which attention_inputs() registers
    (attention_class,) = attention_classes(model_type)
    attention = attention_layer(attention_class, config, 0)
    torch.manual_seed(0)
    for weight in attention.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return config, attention.eval().requires_grad_(requires_grad=False)


def attention_inputs(attention, *, width=HEAD, names=(), **arguments):
    """Return what an attention passes to its function at position 0, and the outputs of some of its modules."""
    handed, made = {}, {}

    def probe(_, query, key, value, *__, scaling=None, **___):
        """Record the arguments of the attention in place of computing it."""
        handed.update(q=query, k=key, v=value, scaling=scaling)
        return torch.zeros(1, SEQ, HEADS, HEAD), None

    def keep(module, _, output):
        """Record the output of a module."""
        made.setdefault(module, []).append(output)

    transformers.AttentionInterface.register("probe", probe)
    modules = [attention.get_submodule(name) for name in names]
    for module in dict.fromkeys(modules):
        module.register_forward_hook(keep)
    still = torch.ones(1, SEQ, width), torch.zeros(1, SEQ, width)
    attention(torch.randn(1, SEQ, HEAD * HEADS), position_embeddings=still, **arguments)
    return handed, [outputs.pop(0) for outputs in map(made.get, modules)]  # one norm may serve q, then k


# Model, changes, names of what makes q and k, what they are multiplied by before the rotation: in words, and that.
MEASURED = [
    ("llama", {}, "q_proj k_proj", "", 1),
    ("granite", {"attention_multiplier": 0.03}, "q_proj k_proj", "", 1),
    ("openai_privacy_filter", {"num_key_value_heads": HEADS}, "q_proj k_proj", "", 1),
    ("esm", {"position_embedding_type": "rotary"}, "query key", "q is multiplied by 1 / sqrt(head_dim)", HEAD**-0.5),
    ("falcon_h1", {"key_multiplier": 0.7}, "q_proj k_proj", "k is multiplied by key_multiplier", 0.7),
    ("falcon_h1", {}, "q_proj k_proj", "", 1),
    ("muse_glimmer_text", {"qk_scale_factor": 3.1}, "qk_norm qk_norm", "q is multiplied by qk_scale_factor", 3.1),
    ("muse_spark_text", {"qk_scale_factor": 3.1}, "qk_norm qk_norm", "q is multiplied by qk_scale_factor", 3.1),
]


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: "-".join((case[0], *case[1])))
def test_the_scale_has_all_factors_except_those_named_in_the_source(case):
    model_type, changes, names, said, before = case
    theirs, attention = small(model_type, **changes)
    width = HEAD // 2 if model_type == "openai_privacy_filter" else HEAD
    handed, made = attention_inputs(attention, width=width, names=names.split(), attention_mask=None)
    ratios = [float(handed[x].norm() / y.norm()) for x, y in zip("qk", made, strict=True)]
    keys = json.loads(json.dumps(theirs.to_dict())) | SWITCHES.get(model_type, {})
    ours = config.read(keys).explain()[0].facts["score_scale"]
    assert ours.value * before == pytest.approx(handed["scaling"] * math.prod(ratios), rel=1e-5)
    assert said in ours.source and ("multiplied" in ours.source) == bool(said)


def test_the_scale_equals_that_of_modernbert():
    handed, _ = attention_inputs(small("modernbert")[1])
    assert config.read({"model_type": "modernbert", **SMALL}).score_scale() == pytest.approx(
        handed["scaling"], rel=1e-12
    )


def test_the_scale_is_torchs_default_if_a_class_passes_none():
    handed, _ = attention_inputs(small("qwen2_5_omni_dit")[1])
    assert handed["scaling"] is None
    dot, qkv = torch.nn.functional.scaled_dot_product_attention, [handed[name] for name in "qkv"]
    ours = config.read({"model_type": "qwen2_5_omni_dit", **SMALL, "head_dim": HEAD}).score_scale()
    torch.testing.assert_close(dot(*qkv, scale=ours), dot(*qkv))
    assert not torch.allclose(dot(*qkv, scale=1.1 * ours), dot(*qkv))


@pytest.mark.parametrize(
    ("model_type", "names", "before"), [("roformer", "query key", 1), ("clvp_encoder", "q_proj k_proj", HEAD**-0.5)]
)
def test_the_scale_gives_the_scores_of_classes_without_an_attention_function(monkeypatch, model_type, names, before):
    _, attention = small(model_type)
    made, softmax, scores = {}, torch.nn.functional.softmax, []
    for name in names.split():
        hook = partial(lambda name, _, __, output: made.update({name: output}), name)
        attention.get_submodule(name).register_forward_hook(hook)
    monkeypatch.setattr(torch.nn.functional, "softmax", lambda x, **how: scores.append(x) or softmax(x, **how))
    attention(torch.randn(1, SEQ, HEAD * HEADS))
    q, k = (made[name].view(1, SEQ, HEADS, HEAD).transpose(1, 2) for name in names.split())
    ours = config.read({"model_type": model_type, "projection_dim": HEAD * HEADS, **SMALL}).score_scale()
    torch.testing.assert_close(scores[0], ours * before * q @ k.mT)


# --- figures ----------------------------------------------------------------------------------------------

MLA = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64}


def scaled(**keys):
    """Return keys of a config with MLA and YaRN."""
    return MLA | {"rope_parameters": YARN_40 | keys}


# Published configs, and what their inference code computes.
FIGURES = [
    ("deepseek_v3", scaled(mscale=1.0, mscale_all_dim=1.0), 0.1352338),
    ("deepseek_v2", scaled(mscale=0.707, mscale_all_dim=0.707), 0.1147214),
    ("kimi_k2", scaled(factor=32.0, mscale_all_dim=1.0), 0.1308608),
    ("kimi_k2", scaled(factor=64.0, mscale_all_dim=1.0), 0.1446796),
    ("mistral4", scaled(factor=128.0, mscale_all_dim=1.0) | {"qk_nope_head_dim": 64}, 0.1949695),
    ("glm_moe_dsa", MLA | {"qk_nope_head_dim": 192}, 0.0625),
    ("deepseek_v3", MLA | {"rope_parameters": {"rope_type": "linear", "factor": 40.0}}, 192**-0.5),
    ("deepseek_v3", scaled(mscale_all_dim=0), 192**-0.5),
]


@pytest.mark.parametrize(("model_type", "keys", "expected"), FIGURES)
def test_the_scale_has_known_values(model_type, keys, expected):
    assert config.read({"model_type": model_type, **keys}).score_scale() == pytest.approx(expected, rel=1e-6)


BY_POSITION = YARN_40 | {"llama_4_scaling_beta": 0.1}
KINDS = dict.fromkeys(("hybrid", "hybrid_sliding"), PLAIN)
SOURCES = [
    ("llama", {"head_dim": 64}, "1 / sqrt(head_dim)"),
    ("gemma2", {"query_pre_attn_scalar": 144}, "(query_pre_attn_scalar) ** -0.5"),
    ("gemma2", {}, "(query_pre_attn_scalar 256, default of gemma2) ** -0.5"),
    ("zaya", {"head_dim": 64, "rope_parameters": KINDS}, "1 / sqrt(head_dim), in layers of type hybrid; the norm of k"),
    ("deepseek_v3", {}, "1 / sqrt(qk_nope_head_dim 128, default of deepseek_v3 + qk_rope_head_dim 64, default of"),
    ("deepseek_v3", scaled(mscale_all_dim=1.0), "qk_nope_head_dim + qk_rope_head_dim) * mscale², mscale = 1 +"),
    ("ministral3", {"head_dim": 64, "rope_parameters": BY_POSITION}, "; q is also scaled by position: "),
]


@pytest.mark.parametrize(("model_type", "keys", "source"), SOURCES)
def test_the_source_names_the_factors(model_type, keys, source):
    first, *_ = config.read({"model_type": model_type, **keys}).explain()
    assert source in first.facts["score_scale"].source


# --- refusals ---------------------------------------------------------------------------------------------

GGUF = {"general.architecture": "llama", "llama.embedding_length": 64, "llama.attention.head_count": 4}
WITHOUT_FACTOR = MLA | {"rope_parameters": {"rope_type": "dynamic", "mscale_all_dim": 1.0}}
REFUSALS = [
    ({"model_type": "mistral_large4_text", "rope_parameters": YARN_40}, "^model_type must .* learned"),
    ({"model_type": "internlm2", "head_dim": 64}, "comes with the weights"),
    ({"model_type": "deepseek_v3", **MLA, "qk_head_dim": 128}, "qk_head_dim must agree"),
    ({"model_type": "deepseek_v3", **WITHOUT_FACTOR}, "factor must be given"),
    ({"model_type": "gemma2", "query_pre_attn_scalar": None}, "query_pre_attn_scalar must be a number"),
    ({"model_type": "gemma2", "query_pre_attn_scalar": 0}, "query_pre_attn_scalar must be positive"),
    (GGUF, "read the config.json of the model"),
]


@pytest.mark.parametrize(("model", "message"), REFUSALS)
def test_a_scale_that_the_config_does_not_give_is_refused_with_a_reason(model, message):
    with pytest.raises((TypeError, ValueError), match=message):
        config.read(model).score_scale()
