"""Reading configs: published models, every form and name, refusals, and the reported facts."""

import copy
import dataclasses
import io
import json
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rope_any as ra
from rope_any import Rope, config, scaling
from rope_any.config import _indexers, _models, _score, _towers
from rope_any.config._models import MODELS, read_by

ROTARY_MODELS = [name for name, model in MODELS.items() if model.rotary and not model.text]

# the expected results of published configs; those that ship with the package are not repeated in this file
PUBLISHED = [
    {"config": config.published().get(entry["model"])} | entry
    for entry in json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))
]
LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 4096}


def frequencies_on_equal_axes(rope):
    """Return the frequencies of positions that are the same on all axes."""
    rows = rope.frequencies if isinstance(rope.frequencies[0], tuple) else (rope.frequencies,)
    return [sum(column) for column in zip(*rows, strict=True)]


# --- published models ---------------------------------------------------------------------------------------


def published_layers():
    """Yield each published model, once for each kind of its layers, with the expected result."""
    for model in PUBLISHED:
        expect = model["expect"]
        kinds = {None: expect} if "pairing" in expect else expect
        for layer_type, expected in kinds.items():
            yield pytest.param(model["config"], layer_type, expected, id=f"{model['model']} {layer_type or ''}".strip())


NO_ROTARY = "^config must have rotary embedding to make a Rope of; got none: "


def no_rotary(model, **options):
    """Whether a config is refused because it has no rotary embedding."""
    with pytest.raises(ValueError, match=NO_ROTARY):
        Rope.from_config(model, **options)
    return True


def read_published(published, layer_type, expected):
    """Return the Rope of a published config; one without a model_type needs the pairing, the base and the layers."""
    if "model_type" in published:
        return Rope.from_config(published, layer_type=layer_type)
    if "num_hidden_layers" not in published:  # a params.json
        return Rope.from_config(published, layer_type=layer_type, pairing=expected["pairing"])
    layers = ["full_attention"] * published["num_hidden_layers"]
    stated = published | {"rope_theta": expected["base"], "layer_types": layers}
    return Rope.from_config(stated, layer_type=layer_type, pairing=expected["pairing"])


@pytest.mark.parametrize(("published", "layer_type", "expected"), list(published_layers()))
def test_published_models(published, layer_type, expected):
    if expected is None:
        with pytest.raises(ValueError, match=NO_ROTARY):
            read_published(published, layer_type, expected)
        return
    rope = read_published(published, layer_type, expected)
    found = frequencies_on_equal_axes(rope)
    assert (rope.pairing, rope.start) == (expected["pairing"], expected["start"])
    assert 2 * len(found) == expected["rotary_dim"]
    between = [found[len(found) * quarter // 4] for quarter in (1, 2, 3)]
    np.testing.assert_allclose(
        (found[0], *between, found[-1], rope.attention_factor),
        (expected["fastest"], *expected["between"], expected["slowest"], expected["attention_factor"]),
        rtol=1e-6,
    )
    axes = len(rope.frequencies) if isinstance(rope.frequencies[0], tuple) else 1
    assert axes == expected.get("axes", 1)
    if axes > 1:
        assert [sum(map(bool, row)) for row in rope.frequencies] == expected["sections"]


def test_each_published_config_has_a_source_and_expected_results():
    assert len(PUBLISHED) >= 60
    assert all(model["source"] and model["config"] for model in PUBLISHED)
    models = [model["model"] for model in PUBLISHED]
    assert len(models) == len(set(models))
    assert set(config.published()) <= set(models)
    assert set(models) - set(config.published()) == {"openbmb/MiniCPM3-4B"}  # a copy without model_type


@pytest.mark.parametrize("name", config.published())
def test_each_published_config_is_read_by_its_name(name):
    expected = config.explain(config.published()[name])
    for typed in (name, name.upper(), name.rpartition("/")[2]):
        assert config.explain(f"published:{typed}") == config.explain(Path(f"published:{typed}")) == expected
    assert config.explain(f"published:{typed}")[0].facts["model_type"].value or "mistral" in name


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("gpt-oss", "openai/gpt-oss-20b"),
        ("google/gemma-3-4b", "google/gemma-3-4b-it"),
        ("V3", "deepseek-ai/DeepSeek-V3"),
        ("Phi-2", "microsoft/phi-2"),
    ],
)
def test_the_beginning_or_end_of_the_name_of_one_published_config_will_do(name, model):
    assert config.explain(f"published:{name}") == config.explain(config.published()[model])


ALL_NAMES = r"all names: rope_any\.config\.published\(\), or rope-any published"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("deepseek", "it may be deepseek-ai/DeepSeek-V2 or deepseek-ai/DeepSeek-V2-Lite or deepseek-ai/DeepSeek-V3"),
        ("llama3.1-8b", f"did you mean meta-llama/Llama-3.1-8B or meta-llama/Llama-3.1-70B or .*; {ALL_NAMES}"),
        ("llama-3.1-8b-instruct", f"did you mean meta-llama/Llama-3.1-8B or .*; {ALL_NAMES}"),
        ("meta-llama/", f"it may be meta-llama/.*; {ALL_NAMES}"),
        ("banana", ALL_NAMES),
        ("", ALL_NAMES),
    ],
)
def test_a_wrong_name_of_a_published_config_gets_near_ones(name, hint):
    with pytest.raises(ValueError, match=f"^published:{name} must name one published config; {hint}$"):
        Rope.from_config(f"published:{name}")


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "qwen3-8b"])
def test_a_missing_file_with_the_name_of_a_published_config_gets_its_prefix(name):
    hint = f"there is none at {name}; give published:Qwen/Qwen3-8B, which ships with this package"
    with pytest.raises(ValueError, match=f"^config must be a path to a config.json; {hint}$"):
        Rope.from_config(name)


def test_published_configs_are_new_at_each_call():
    name = "microsoft/Phi-3.5-mini-instruct"
    config.published()[name]["rope_scaling"]["long_factor"].clear()
    assert config.published()[name]["rope_scaling"]["long_factor"]


@pytest.mark.parametrize(("published", "layer_type", "expected"), list(published_layers()))
def test_explain_describes_published_models(published, layer_type, expected):
    if "model_type" not in published or expected is None:
        return
    (explanation,) = config.explain(published, layer_type=layer_type)
    assert explanation.rope == Rope.from_config(published, layer_type=layer_type)
    assert explanation.facts["rope_theta"].value == expected["base"]
    assert explanation.facts["rope_type"].value == expected["rope_type"]
    assert all(fact.source for fact in explanation.facts.values())


@pytest.mark.parametrize(("published", "layer_type", "expected"), list(published_layers()))
def test_modernize_keeps_the_rotation_of_published_models(published, layer_type, expected):
    if "model_type" not in published:
        return
    modern = config.modernize(published)
    assert config.modernize(modern) == modern
    if expected is None:
        assert no_rotary(modern, layer_type=layer_type)
        return
    for length in (None, 100_000):
        ropes = [Rope.from_config(c, layer_type=layer_type, sequence_length=length) for c in (published, modern)]
        assert ropes[0] == ropes[1]


# --- forms and names ----------------------------------------------------------------------------------------

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
F = ra.frequencies(128)
STATED = {"rope_theta": 1e4, "partial_rotary_factor": 1.0}  # what a config of an unknown model must have
GPT = {"model_type": "gpt_neox", "hidden_size": 4096, "num_attention_heads": 32}
PHI = LLAMA | {"model_type": "phi"}
GPTJ = {"model_type": "gptj", "hidden_size": 4096, "num_attention_heads": 32}
FORMS = {
    "the current form": (LLAMA | {"rope_parameters": {"rope_theta": 5e5}}, ra.frequencies(128, base=5e5)),
    "the older form": (LLAMA | {"rope_theta": 5e5, "rope_scaling": None}, ra.frequencies(128, base=5e5)),
    "both forms": (
        LLAMA
        | {
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
            "rope_scaling": {"type": "linear", "factor": 2},
        },
        scaling.linear(F, 2.0),
    ),
    "the base inside and outside": (LLAMA | {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e4}}, F),
    "type": (LLAMA | {"rope_scaling": {"type": "linear", "factor": 4}}, scaling.linear(F, 4.0)),
    "type and rope_type": (
        LLAMA | {"rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 4}},
        scaling.linear(F, 4.0),
    ),
    "su": (
        LLAMA
        | {
            "original_max_position_embeddings": 4096,
            "rope_scaling": {"type": "su", "short_factor": [2.0] * 64, "long_factor": [4.0] * 64},
        },
        scaling.linear(F, 2.0),
    ),
    "yarn for the longrope of Phi-3": (
        LLAMA
        | {
            "model_type": "phi3",
            "original_max_position_embeddings": 4096,
            "rope_scaling": {"type": "yarn", "short_factor": [2.0] * 64, "long_factor": [4.0] * 64},
        },
        scaling.linear(F, 2.0),
    ),
    "alpha": (
        LLAMA
        | {"model_type": "hunyuan_v1_dense"}
        | {"rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "mscale": 1.0}},
        ra.frequencies(128, base=1e4 * 1000 ** (128 / 126)),
    ),
    "the original length outside": (
        LLAMA | {"original_max_position_embeddings": 512, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        scaling.yarn(F, 4.0, base=1e4, original_length=512),
    ),
    "yarn with a factor of null": (
        LLAMA | {"rope_scaling": YARN | {"factor": None}},
        scaling.yarn(F, 4.0, base=1e4, original_length=1024),
    ),
    "yarn with a factor of null and an attention factor": (
        LLAMA | {"rope_scaling": YARN | {"factor": None, "attention_factor": 1.5}},
        scaling.yarn(F, 4.0, base=1e4, original_length=1024),
    ),
    "an mscale of zero": (
        LLAMA | {"rope_scaling": YARN | {"mscale": 0, "mscale_all_dim": 1.0}},
        scaling.yarn(F, 4.0, base=1e4, original_length=1024),
    ),
    "the default head_dim of the class": ({"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16}, F),
    "null in place of a default head_dim": (
        {"model_type": "qwen3", "head_dim": None} | {"hidden_size": 1024, "num_attention_heads": 16},
        ra.frequencies(64),
    ),
    "the default rotary slice of the class": (LLAMA | {"model_type": "deepseek_v3"}, ra.frequencies(64)),
    "a part without head_dim": (
        {"model_type": "gemma3", "text_config": {"hidden_size": 3840, "num_attention_heads": 16}}
        | {"text_config": {"model_type": "gemma2", "hidden_size": 3840, "num_attention_heads": 16}},
        ra.frequencies(256),
    ),
    "a part without num_attention_heads": (
        {"model_type": "llava", "text_config": {"hidden_size": 2048}},
        ra.frequencies(64),
    ),
    "the default rotary_dim of the class": ({"model_type": "gptj", "n_embd": 4096, "n_head": 16}, ra.frequencies(64)),
    "null rotary_dim": ({"model_type": "gptj", "n_embd": 4096, "n_head": 16, "rotary_dim": None}, ra.frequencies(256)),
    "a base in a nested object": (
        {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "attn_config": {"rope_theta": 5e5}},
        ra.frequencies(128, base=5e5),
    ),
    "rope_freq_constant": (
        {"model_type": "openelm", "head_dim": 64, "rope_freq_constant": 5e4, "rope_max_length": 4096},
        ra.frequencies(64, base=5e4),
    ),
    "keys with neutral values": (
        LLAMA
        | {"use_mrope": False, "rope_interleaved": False, "use_rotary_pos_emb": True, "rotary_scaling_factor": 1.0},
        F,
    ),
    "a base beside rope_parameters, which have priority": (
        LLAMA | {"model_type": "cohere2_moe", "rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e4}},
        F,
    ),
    "head_dim from projection_dim": (
        {"model_type": "clvp_encoder", "projection_dim": 768, "hidden_size": 768, "num_attention_heads": 8},
        ra.frequencies(48),
    ),
    "a model with rotary in its audio part": (
        {"model_type": "musicflamingo", "rope_theta": 1200.0, "text_config": {"model_type": "qwen2"}},
        F,
    ),
    "an empty key": (LLAMA | {"": {"rope_theta": 5.0}}, F),
    "truncate": (
        LLAMA | {"rope_scaling": YARN | {"truncate": False}},
        scaling.yarn(F, 4.0, base=1e4, original_length=1024, truncate=False),
    ),
    "finetuned, which does not change the rotation": (
        LLAMA | {"rope_scaling": YARN | {"finetuned": True}},
        scaling.yarn(F, 4.0, base=1e4, original_length=1024),
    ),
    "rotary_emb_base": (GPT | {"rotary_pct": 1.0, "rotary_emb_base": 777}, ra.frequencies(128, base=777)),
    "rotary_pct": (GPT | {"rotary_pct": 0.5}, ra.frequencies(64)),
    "the default rotary_pct of the model": (GPT, ra.frequencies(32)),
    "partial_rotary_factor": (PHI | {"partial_rotary_factor": 0.75}, ra.frequencies(96)),
    "partial_rotary_factor inside": (PHI | {"rope_parameters": {"partial_rotary_factor": 0.75}}, ra.frequencies(96)),
    "a share that the class reads only with scaling": (
        LLAMA | {"partial_rotary_factor": 0.5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        scaling.linear(ra.frequencies(64), 2.0),
    ),
    "rotary_dim": (
        {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "rotary_dim": 64},
        ra.frequencies(64),
    ),
    "n_embd": ({"model_type": "codegen", "n_embd": 1024, "n_head": 16}, ra.frequencies(64)),
    "head_dim of null": (LLAMA | {"head_dim": None}, F),
    "head_dim": (LLAMA | {"head_dim": 64}, ra.frequencies(64)),
    "qk_rope_head_dim": (
        LLAMA | {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "head_dim": 64},
        ra.frequencies(64),
    ),
    "the default base of the model": (LLAMA | {"model_type": "mixtral"}, ra.frequencies(128, base=1e6)),
    "a part for text": (
        {"model_type": "llava", "vision_config": {"rope_foo": 1}, "text_config": LLAMA | {"rope_theta": 5e5}},
        ra.frequencies(128, base=5e5),
    ),
    "a part for text, two levels down": (
        {"model_type": "colpali", "vlm_config": {"model_type": "paligemma", "text_config": LLAMA}},
        F,
    ),
    "a part for text without its defaults": ({"model_type": "llava", "text_config": {"rope_theta": 1e4}}, F),
    "pairs that rotate backwards": (LLAMA | {"model_type": "nanochat"}, tuple(-f for f in F)),
    "proportional": (
        LLAMA | {"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "factor": 2.0}},
        scaling.linear(scaling.proportional(F, 0.25), 2.0),
    ),
    "an odd number of features": (
        PHI | {"head_dim": 42, "partial_rotary_factor": 0.5},
        tuple(1e4 ** (-2 * i / 21) for i in range(11)),
    ),
}


# Numbers with limits: a function that reads one, the minimum, the maximum, and the error message.
LIMITS = {
    "head_dim": (lambda n: Rope.from_config(LLAMA | {"head_dim": n}), 2, 4096, "from 2 to 4096"),
    "rotary_dim": (lambda n: Rope.from_config(GPTJ | {"rotary_dim": n}), 1, 128, "from 1 to 128 features"),
    "num_hidden_layers": (lambda n: config.layers(LLAMA | {"num_hidden_layers": n}), 1, 1024, "from 1 to 1024"),
    "kinds of layers": (
        lambda n: config.explain(
            STATED | {"head_dim": 64, "rope_parameters": {str(i): {} for i in range(n)}}, pairing="half"
        ),
        0,
        64,
        "at most 64 kinds",
    ),
    "sequence_length": (lambda n: Rope.from_config(LLAMA, sequence_length=n), 1, 2**53, "from 1 to 9007199254740992"),
    "letters of a key": (lambda n: Rope.from_config(LLAMA | {"a" * n: 0}), 0, 100, "have names as keys"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_numbers_at_their_limits_are_read_and_beyond_are_refused(name):
    read, least, most, message = LIMITS[name]
    assert read(least)
    assert read(most)
    for wrong in {max(least - 1, 0), most + 1} - {least}:
        with pytest.raises(ValueError, match=message):
            read(wrong)


def test_a_rotary_dim_of_1_gives_one_pair():
    assert Rope.from_config(GPTJ | {"head_dim": 8, "rotary_dim": 1}).frequencies == (1.0,)


HEAD = "hidden_size // num_attention_heads"
# Facts of configs, each value with its source. Facts that are not given are those of the first config.
REPORTED = {
    "llama": (
        LLAMA,
        {
            "model_type": ("llama", "model_type"),
            "pairing": ("half", "model_type llama"),
            "rope_type": ("default", "no scaling is given"),
            "head_dim": (128, HEAD),
            "rotary_dim": (128, HEAD),
            "rope_theta": (1e4, "default of llama"),
            "partial_rotary_factor": (1.0, "default of llama"),
            "attention_factor": (1.0, "derived from these"),
            "trained_length": (4096.0, "max_position_embeddings"),
        },
    ),
    "yarn": (
        LLAMA | {"rope_parameters": YARN | {"rope_theta": 5e5}},
        {
            "rope_type": ("yarn", "rope_parameters.rope_type"),
            "rope_theta": (5e5, "rope_parameters.rope_theta"),
            "factor": (4.0, "rope_parameters.factor"),
            "original_max_position_embeddings": (1024.0, "rope_parameters.original_max_position_embeddings"),
            "attention_factor": (scaling.yarn_attention_factor(4.0), "derived from these"),
            "beta_fast": (32.0, "default of yarn"),
            "beta_slow": (1.0, "default of yarn"),
            "truncate": (True, "default of yarn"),
            "trained_length": (1024.0, "rope_parameters.original_max_position_embeddings"),
            "extended_length": (4096.0, "max_position_embeddings"),
        },
    ),
    "head_dim, rounded down": (
        LLAMA | {"num_attention_heads": 30},
        {"head_dim": (136, f"{HEAD}, rounded down"), "rotary_dim": (136, f"{HEAD}, rounded down")},
    ),
    "rotary_pct": (
        LLAMA | {"model_type": "gpt_neox", "rotary_pct": 0.25},
        {
            "model_type": ("gpt_neox", "model_type"),
            "pairing": ("half", "model_type gpt_neox"),
            "rope_theta": (1e4, "default of gpt_neox"),
            "rotary_dim": (32, "rotary_pct"),
            "partial_rotary_factor": (0.25, "rotary_pct"),
        },
    ),
    "the default partial_rotary_factor of the class": (
        LLAMA | {"model_type": "glm4", "head_dim": 128},
        {
            "model_type": ("glm4", "model_type"),
            "pairing": ("interleaved", "model_type glm4"),
            "head_dim": (128, "head_dim"),
            "rotary_dim": (64, "default of glm4"),
            "rope_theta": (1e4, "default of glm4"),
            "partial_rotary_factor": (0.5, "default of glm4"),
        },
    ),
    "qk_rope_head_dim and rope_interleave": (
        LLAMA | {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_interleave": True},
        {
            "model_type": ("deepseek_v3", "model_type"),
            "pairing": ("interleaved", "rope_interleave"),
            "head_dim": (64, "qk_rope_head_dim"),
            "rotary_dim": (64, "qk_rope_head_dim"),
            "rope_theta": (1e4, "default of deepseek_v3"),
            "partial_rotary_factor": (1.0, "default of deepseek_v3"),
        },
    ),
    "a key that is not read": (
        LLAMA | {"model_type": "hunyuan_v1_dense", "rope_scaling": {"type": "dynamic", "alpha": 1e3, "factor": 1.0}},
        {
            "model_type": ("hunyuan_v1_dense", "model_type"),
            "pairing": ("half", "model_type hunyuan_v1_dense"),
            "rope_type": ("dynamic", "rope_scaling.type"),
            "rope_theta": (1e4, "default of hunyuan_v1_dense"),
            "partial_rotary_factor": (1.0, "default of hunyuan_v1_dense"),
            "alpha": (1e3, "rope_scaling.alpha"),
            "factor": (1.0, "rope_scaling.factor; not read here"),
            "stated_length": (4096, "max_position_embeddings"),
        },
    ),
    "sections": (
        LLAMA | {"model_type": "qwen2_vl_text", "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
        {
            "model_type": ("qwen2_vl_text", "model_type"),
            "pairing": ("half", "model_type qwen2_vl_text"),
            "rope_type": ("default", "rope_scaling.type mrope"),
            "rope_theta": (1e6, "default of qwen2_vl_text"),
            "partial_rotary_factor": (1.0, "default of qwen2_vl_text"),
            "axes": (3, "chunked sections"),
            "mrope_section": ([16, 24, 24], "rope_scaling.mrope_section"),
        },
    ),
    "no model_type": (
        STATED | {key: value for key, value in LLAMA.items() if key != "model_type"},
        {
            "pairing": ("half", "argument pairing"),
            "rope_theta": (1e4, "rope_theta"),
            "partial_rotary_factor": (1.0, "partial_rotary_factor"),
        },
    ),
}


def test_parameters_by_layer_type_and_in_a_nested_object_are_read():
    linear = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
    kinds = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": linear}
    gemma = {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6, "rope_parameters": kinds}
    local, full = config.explain(gemma)
    assert local.facts["rope_theta"] == (1e4, "rope_parameters.sliding_attention.rope_theta")
    assert full.facts["rope_theta"] == (1e6, "rope_parameters.full_attention.rope_theta")
    assert full.facts["rope_type"] == ("linear", "rope_parameters.full_attention.rope_type")
    assert full.facts["factor"] == (8.0, "rope_parameters.full_attention.factor")
    (dbrx,) = config.explain({"model_type": "dbrx", "d_model": 64, "n_heads": 1, "attn_config": {"rope_theta": 5e5}})
    assert dbrx.facts["rope_theta"] == (5e5, "attn_config.rope_theta")


def test_outer_parameters_apply_to_layer_types_without_their_own():
    kinds = {"hybrid_sliding": {"rope_theta": 5e4}, "hybrid": {"partial_rotary_factor": 0.5}}
    outside = {"rope_parameters": kinds, "layer_types": [*kinds], "rope_theta": 2e4}
    local, full = config.explain({"model_type": "zaya", "head_dim": 64, "num_hidden_layers": 2} | outside)
    assert local.rope.frequencies == ra.frequencies(64, base=5e4)
    assert full.rope.frequencies == ra.frequencies(32, base=2e4)


@pytest.mark.parametrize(("mscale", "mscale_all_dim"), [(1.0, 0.7), (0.7, 1.0), (0, 0.7), (1.0, 0)])
def test_deepseek_mscales_apply_unless_one_is_zero(mscale, mscale_all_dim):
    yarn = YARN | {"mscale": mscale, "mscale_all_dim": mscale_all_dim}
    scales = {"mscale": mscale, "mscale_all_dim": mscale_all_dim} if mscale and mscale_all_dim else {}
    rope = Rope.from_config(LLAMA | {"rope_parameters": yarn})
    assert rope.attention_factor == scaling.yarn_attention_factor(4.0, **scales)


@pytest.mark.parametrize("name", REPORTED)
def test_each_value_is_reported_with_its_source(name):
    model, expected = REPORTED[name]
    (explanation,) = config.explain(model, pairing=None if "model_type" in model else "half")
    absent = set() if "model_type" in model else {"model_type"}
    absent |= {"trained_length"} if "stated_length" in expected else set()  # or the extended length
    expected = {key: fact for key, fact in (REPORTED["llama"][1] | expected).items() if key not in absent}
    assert {key: fact for key, fact in explanation.facts.items() if key != "score_scale"} == expected


def test_the_score_scale_is_reported_with_its_source():
    llama = {"model_type": "llama", "head_dim": 64}
    assert config.explain(llama)[0].facts["score_scale"] == (0.125, "1 / sqrt(head_dim)")
    assert config.score_scale(llama) == 0.125
    gemma = config.explain(GEMMA3)
    assert {explanation.facts["score_scale"] for explanation in gemma} == {
        (1 / 16, "(query_pre_attn_scalar 256, default of gemma3_text) ** -0.5, in layers of type sliding_attention"),
        (1 / 16, "(query_pre_attn_scalar 256, default of gemma3_text) ** -0.5, in layers of type full_attention"),
    }
    assert config.score_scale(GEMMA3) == 1 / 16
    (explanation,) = config.explain(STATED | {"head_dim": 64}, pairing="half")
    assert explanation.facts["score_scale"].value is None
    assert "must be one whose score scale is known" in explanation.facts["score_scale"].source


def test_a_config_beside_a_missing_file_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    for name in ("confg.json", "model.safetensors"):
        with pytest.raises(ValueError, match=r"; there is one at .*config\.json$"):
            Rope.from_config(tmp_path / name)
    with pytest.raises(ValueError, match=r"config\.json$") as caught:
        Rope.from_config(tmp_path / "a" / "config.json")
    assert "there is one" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a pointer of Git LFS: git lfs pull gets it"),
        ("\n<!DOCTYPE html>\n<html>", "an HTML page, not the file itself"),
        ("<html>", "an HTML page, not the file itself"),
    ],
)
def test_a_file_in_place_of_a_config_is_named(tmp_path, text, hint):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=f"config.json must be a config.json; it is {hint}$"):
        Rope.from_config(tmp_path)


def test_a_long_path_is_shortened_in_a_message():
    with pytest.raises(ValueError, match=r"there is none at x{255}…$"):
        config.explain("x" * 1000)


def test_sections_of_an_unknown_model_are_chunked_and_empty_ones_ignored():
    sections = STATED | {"head_dim": 128, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
    rope = Rope.from_config({"model_type": "llama_our"} | sections, pairing="half")
    assert rope.frequencies == ra.axes.chunked(ra.frequencies(128), (16, 24, 24))
    none = {"head_dim": 128, "rope_scaling": {"type": "mrope", "mrope_section": []}}
    assert Rope.from_config({"model_type": "qwen2_vl_text"} | none).frequencies == ra.frequencies(128, base=1e6)


def test_a_scheme_uses_the_given_or_the_trained_length():
    dynamic = LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}
    (explanation,) = config.explain(dynamic)
    assert explanation.facts["length"] == (4096.0, "the trained length")
    (explanation,) = config.explain(dynamic, sequence_length=9000)
    assert explanation.facts["length"] == (9000, "sequence_length")


def test_a_share_in_a_scaling_is_not_that_of_unscaled_layers():
    parameters = {"rope_type": "linear", "factor": 8.0, "partial_rotary_factor": 0.5}
    gemma = {"model_type": "gemma3_text", "head_dim": 128, "num_hidden_layers": 6, "rope_scaling": parameters}
    local, full = (Rope.from_config(gemma, layer_type=f"{kind}_attention") for kind in ("sliding", "full"))
    assert local.frequencies == F
    assert full.frequencies == scaling.linear(ra.frequencies(64, base=1e6), 8.0)


@pytest.mark.parametrize("keys", [{"attention_factor": 1.5}, {"short_mscale": 1.2, "long_mscale": 1.5}])
def test_longrope_needs_factor_only_for_the_attention_factor(keys):
    long = {key: value for key, value in LONG.items() if key != "max_position_embeddings"} | {"model_type": "phimoe"}
    long["rope_scaling"] = long["rope_scaling"] | keys
    assert Rope.from_config(long, sequence_length=9000).attention_factor == 1.5
    if "long_mscale" in keys:
        del long["rope_scaling"]["short_mscale"]
        with pytest.raises(ValueError, match="must be given for rope type 'longrope' without a factor"):
            Rope.from_config(long, sequence_length=9000)


@pytest.mark.parametrize("name", FORMS)
def test_all_forms_and_names_of_a_parameter_are_read(name):
    model, frequencies = FORMS[name]
    rope = Rope.from_config(model)
    np.testing.assert_allclose(rope.frequencies, frequencies, rtol=1e-14)
    modern = config.modernize(model)
    assert Rope.from_config(modern) == rope
    assert config.modernize(modern) == modern


OLDER_NAMES = {
    "rope_pct": (ra.frequencies(32), LLAMA | {"model_type": "stablelm", "rope_pct": 0.25}),
    "rotary_emb_fraction": (F, LLAMA | {"model_type": "nomic_bert", "rope_theta": 1e4, "rotary_emb_fraction": 1}),
    "attn_rotary_emb": (ra.frequencies(64), LLAMA | {"model_type": "bamba", "attn_rotary_emb": 64}),
    "rotary_embedding_base": (
        ra.frequencies(128, base=777),
        LLAMA
        | {
            "model_type": "wav2vec2-conformer",
            "position_embeddings_type": "rotary",
            "rotary_embedding_base": 777,
        },
    ),
    "kv_channels": (ra.frequencies(96), {"model_type": "jetmoe", "kv_channels": 96}),
    "d_model": (F, {"model_type": "dbrx", "d_model": 4096, "n_heads": 32}),
}


@pytest.mark.parametrize("name", OLDER_NAMES)
def test_older_names_are_read(name):
    frequencies, model = OLDER_NAMES[name]
    assert Rope.from_config(model).frequencies == frequencies
    assert Rope.from_config(config.modernize(model)).frequencies == frequencies


BY_LAYER = {
    "rope_local_base_freq": ("gemma3_text", "sliding_attention", 10_000.0),
    "global_rope_theta": ("modernbert", "full_attention", 160_000.0),
    "local_rope_theta": ("modernbert", "sliding_attention", 10_000.0),
    "compress_rope_theta": ("deepseek_v4", "compress", 160_000.0),
}


@pytest.mark.parametrize("key", BY_LAYER)
def test_older_bases_by_layer_type_are_read(key):
    model_type, kind, default = BY_LAYER[key]
    model = {"model_type": model_type, "head_dim": 64}
    for keys, base in (({}, default), ({key: 777.0}, 777.0)):
        (explanation,) = config.explain(model | keys, layer_type=kind)
        assert explanation.facts["rope_theta"].value == base
        assert config.modernize(model | keys)["rope_parameters"][kind]["rope_theta"] == base


def test_older_scaling_applies_to_the_layers_that_the_model_names():
    linear = {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    for model_type, scaled in (
        ("gemma3_text", {"full_attention"}),
        ("modernbert", {"full_attention", "sliding_attention"}),
    ):
        explanations = config.explain({"model_type": model_type, "head_dim": 64} | linear)
        assert {one.layer_type for one in explanations if one.facts["rope_type"].value == "linear"} == scaled


PAIRINGS = {
    "llama": "half",
    "gptj": "interleaved",
    "cohere": "interleaved",
    "deepseek_v3": "interleaved",
    "glm4": "interleaved",
    "glm4_moe": "half",
}


@pytest.mark.parametrize("model_type", PAIRINGS)
def test_the_pairing_follows_the_model(model_type):
    assert Rope.from_config({"model_type": model_type, "head_dim": 64}).pairing == PAIRINGS[model_type]


def inverse_frequencies(model, kind):
    """Return the frequencies and the attention factor of a kind of layers, by the rotary class of transformers."""
    pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    if model["model_type"] not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} does not have {model['model_type']}")
    keys = {key: copy.deepcopy(value) for key, value in model.items() if key != "model_type"}
    theirs, folder = transformers.CONFIG_MAPPING[model["model_type"]](**keys), model["model_type"].removesuffix("_text")
    module = pytest.importorskip(f"transformers.models.{folder}.modeling_{folder}")
    names = [name for name in vars(module) if name.endswith("RotaryEmbedding") and "Vision" not in name]
    rotary_class = getattr(module, max(names, key=lambda name: "Text" in name))
    rotary = rotary_class(theirs)
    return getattr(rotary, f"{kind}_inv_freq").tolist(), getattr(rotary, f"{kind}_attention_scaling")


GEMMA4 = {
    "model_type": "gemma4_text",
    "head_dim": 256,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 6,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    },
}
DOTS3 = {"model_type": "dots3_note_text", "num_hidden_layers": 6, "qk_rope_head_dim": 32}
BY_KIND = {
    "a default by kind": (GEMMA4, ("full_attention", "sliding_attention")),
    "global_head_dim": (GEMMA4 | {"global_head_dim": 128}, ("full_attention", "sliding_attention")),
    "a default of sliding layers": (DOTS3, ("sliding_attention", "indexed_attention")),
    "yarn without an attention factor": (
        {
            "model_type": "deepseek_v4",
            "head_dim": 512,
            "qk_rope_head_dim": 64,
            "rope_theta": 10_000,
            "compress_rope_theta": 160_000,
            "max_position_embeddings": 1_048_576,
            "num_hidden_layers": 5,
            "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65_536},
        },
        ("main", "compress"),
    ),
}


@pytest.mark.parametrize("case", BY_KIND)
def test_older_forms_by_kind_of_layer_equal_those_of_transformers(case):
    model, kinds = BY_KIND[case]
    for kind in kinds:
        frequencies, factor = inverse_frequencies(model, kind)
        rope = Rope.from_config(model, layer_type=kind)
        assert rope.frequencies == pytest.approx(frequencies, rel=1e-5) and rope.attention_factor == factor
        assert Rope.from_config(config.modernize(model), layer_type=kind) == rope


def test_older_names_of_layer_types_are_read():
    """As `_LEGACY_LAYER_TYPE_REMAP` of transformers."""
    scaling = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2], "partial_rotary_factor": 0.25}
    sizes = {"head_dim": 64, "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4}
    qwen4 = {"model_type": "qwen4_exp_text", **sizes, "indexer_head_dim": 64, "indexer_compress_ratio": 4}
    qwen4["rope_parameters"] = scaling
    older, newer = (
        qwen4 | {"layer_types": ["linear_attention"] * 3 + [name]}
        for name in ("qwen_sparse_attention", "indexed_attention")
    )
    names = {"attention": "full_attention", "mamba": "linear_attention"}
    jamba = {"model_type": "olmo_hybrid", **sizes}
    assert config.layers(jamba | {"layer_types": list(names) * 2}) == config.layers(
        jamba | {"layer_types": list(names.values()) * 2}
    )
    assert config.parts(older) == config.parts(newer) == ("text", "indexer")
    assert config.layers(older, part="indexer") == config.layers(newer, part="indexer")


def test_the_rotary_slice_can_be_at_the_end_of_the_head():
    deepseek = {"model_type": "deepseek_v4", "head_dim": 512}
    main = Rope.from_config(deepseek, layer_type="main")
    assert main == Rope(ra.frequencies(64), pairing="interleaved", start=448)
    compress = Rope.from_config(deepseek | {"qk_rope_head_dim": 32}, layer_type="compress")
    assert compress == Rope(ra.frequencies(32, base=160_000.0), pairing="interleaved", start=480)
    with pytest.raises(
        ValueError, match="qk_rope_head_dim must agree with partial_rotary_factor, which gives 64; got 32"
    ):
        Rope.from_config(deepseek | {"qk_rope_head_dim": 32, "partial_rotary_factor": 0.125}, layer_type="main")


def test_a_flag_changes_the_pairing():
    deepseek = {"model_type": "deepseek_v3", "qk_rope_head_dim": 64}
    assert Rope.from_config(deepseek | {"rope_interleave": False}).pairing == "half"
    assert Rope.from_config(deepseek | {"rope_interleave": True}).pairing == "interleaved"


def test_an_unknown_model_needs_its_pairing_base_share_and_layers():
    bare = {"model_type": "llama_our", "head_dim": 64, "num_hidden_layers": 2}
    listed = r"`pairing`, rope_theta, partial_rotary_factor and layer_types be given; got 'llama_our'; did you mean"
    with pytest.raises(ValueError, match=f"rotation is known, or {listed}"):
        Rope.from_config(bare)
    unknown = bare | STATED | {"layer_types": ["full_attention"] * 2}
    rope = Rope(ra.frequencies(64), pairing="interleaved")
    assert Rope.from_config(unknown, pairing="interleaved") == rope
    assert config.layers(unknown, pairing="interleaved") == [rope, rope]
    assert config.explain(unknown, pairing="interleaved")[0].facts["pairing"] == ("interleaved", "argument pairing")
    assert config.modernize(unknown | {"rope_theta": 1e6})["rope_parameters"]["rope_theta"] == 1e6
    for key in (*STATED, "layer_types"):
        with pytest.raises(ValueError, match=f"or {key} be given; got 'llama_our'"):
            Rope.from_config({name: value for name, value in unknown.items() if name != key}, pairing="half")


@pytest.mark.parametrize("form", ["rope_parameters", "rope_scaling"])
def test_an_unknown_model_may_have_its_base_and_share_in_the_parameters(form):
    unknown = {"model_type": "our_model", "head_dim": 64, form: {"rope_theta": 5e5, "partial_rotary_factor": 0.5}}
    assert Rope.from_config(unknown, pairing="half").frequencies == ra.frequencies(32, base=5e5)
    kinds = {"full_attention": unknown[form], "sliding_attention": {"rope_theta": 1e4}}
    with pytest.raises(ValueError, match="partial_rotary_factor be given"):
        config.explain(unknown | {form: kinds}, pairing="half")


CHATGLM = {"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "num_layers": 28}
CHATGLM |= {"kv_channels": 128, "original_rope": True, "rope_ratio": 50, "seq_length": 32_768}


def test_a_config_in_the_words_of_its_own_code_is_read_only_in_other_words():
    stated = {"rope_theta": 1e4 * 50, "partial_rotary_factor": 0.5, "layer_types": ["full_attention"] * 28}
    options = {"pairing": "interleaved"}
    for written, message in (
        (CHATGLM, "or rope_theta, partial_rotary_factor and layer_types be given; got 'chatglm'; if the model rotates"),
        (CHATGLM | stated, "kv_channels must equal head_dim, which alone is read for an unknown model; got 128"),
        (CHATGLM | stated | {"head_dim": 128}, "original_rope must not be given for an unknown model_type: only the"),
    ):
        with pytest.raises(ValueError, match=message):
            Rope.from_config(written, **options)
    words = ("kv_channels", "original_rope", "rope_ratio")
    whole = {key: value for key, value in (CHATGLM | stated).items() if key not in words}
    assert Rope.from_config(whole, **options) == Rope(ra.frequencies(64, base=5e5), pairing="interleaved")


@pytest.mark.parametrize(
    "key", ["alibi", "use_dynamic_ntk", "position_embedding_type", "rotary_emb_base", "rotary_pct"]
)
def test_a_key_whose_meaning_the_code_decides_is_refused_for_an_unknown_model(key):
    unknown = STATED | {"model_type": "our_model", "head_dim": 64}
    with pytest.raises(ValueError, match=f"{key} must not be given for an unknown model_type: only the model's code"):
        Rope.from_config(unknown | {key: True}, pairing="half")
    assert Rope.from_config(unknown | {"alibi": False}, pairing="half").frequencies == ra.frequencies(64)


def test_a_pairing_must_be_that_of_a_known_model():
    with pytest.raises(ValueError, match=r"pairing must be 'half', according to model_type llama; got 'interleaved'"):
        Rope.from_config(LLAMA, pairing="interleaved")
    assert Rope.from_config(LLAMA, pairing="half") == Rope(F, pairing="half")


def test_a_config_can_be_a_dict_path_folder_or_object(tmp_path):
    class Config:
        """An object with `to_dict`, as configs of transformers have."""

        def to_dict(self):
            """Return the config as a dict."""
            return LLAMA

    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    expected = Rope.from_config(LLAMA)
    assert [Rope.from_config(c) for c in (path, str(path), tmp_path, Config())] == [expected] * 4


def test_the_given_config_is_not_modified():
    nested = {"model_type": "llava", "text_config": LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0}}}
    before = json.dumps(nested)
    Rope.from_config(nested)
    config.modernize(nested)
    config.explain(nested)
    assert json.dumps(nested) == before


# --- layers -------------------------------------------------------------------------------------------------

GEMMA3 = {
    "model_type": "gemma3_text",
    "head_dim": 256,
    "num_hidden_layers": 8,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}


def test_a_layer_must_be_chosen_if_layers_differ():
    with pytest.raises(ValueError, match=r"layer_type must be given, .*: one of sliding_attention, full_attention"):
        Rope.from_config(GEMMA3)
    with pytest.raises(ValueError, match=r"layer_type must be one that the config has .* got 'full'"):
        Rope.from_config(GEMMA3, layer_type="full")
    sliding, full = (Rope.from_config(GEMMA3, layer_type=f"{kind}_attention") for kind in ("sliding", "full"))
    assert sliding == Rope(ra.frequencies(256), pairing="half")
    assert full == Rope(scaling.linear(ra.frequencies(256, base=1e6), 8.0), pairing="half")
    assert config.layers(GEMMA3) == [*[sliding] * 5, full, *[sliding] * 2]


def test_rope_parameters_by_layer_type_give_the_layers():
    by_type = {"full_attention": None, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    types = ["sliding_attention", "full_attention"] * 2
    beam = {"model_type": "beam", "head_dim": 64, "rope_parameters": by_type} | {
        "num_hidden_layers": 4,
        "layer_types": types,
    }
    rope = Rope(ra.frequencies(64), pairing="half")
    assert no_rotary(beam, layer_type="full_attention")
    assert config.layers(beam) == [rope, None] * 2


def test_head_dim_can_differ_by_layer_type():
    parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    }
    types = {"num_hidden_layers": 2, "layer_types": list(parameters)}
    gemma4 = {"model_type": "gemma4_text", "head_dim": 256, "rope_parameters": parameters} | types
    wide = Rope(scaling.proportional(ra.frequencies(512, base=1e6), 0.25), pairing="half")
    for width in ({"global_head_dim": 512}, {"per_layer_config": {"01": {"head_dim": 512}}}):
        assert config.layers(gemma4 | width) == [Rope(ra.frequencies(256), pairing="half"), wide]


GEMMA4_FLAT = {"model_type": "gemma4_text", "num_hidden_layers": 6, "rope_parameters": {"rope_type": "default"}}
EIGHT_HEADS = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4}


def test_flat_parameters_apply_to_layer_types_with_different_head_dims():
    with pytest.raises(
        ValueError, match="layer_type must be given, since layers differ: one of sliding_attention, full"
    ):
        Rope.from_config(GEMMA4_FLAT)
    with pytest.raises(ValueError, match="num_hidden_layers must be given"):
        Rope.from_config({key: value for key, value in GEMMA4_FLAT.items() if key != "num_hidden_layers"})
    sliding, full = Rope(ra.frequencies(256), pairing="half"), Rope(ra.frequencies(512), pairing="half")
    assert Rope.from_config(GEMMA4_FLAT, layer_type="full_attention") == full
    assert config.layers(GEMMA4_FLAT) == config.layers(config.modernize(GEMMA4_FLAT)) == [*[sliding] * 5, full]
    explanations = config.explain(GEMMA4_FLAT)
    assert [(one.layer_type, one.rope, one.layers) for one in explanations] == [
        ("sliding_attention", sliding, (0, 1, 2, 3, 4)),
        ("full_attention", full, (5,)),
    ]


def test_single_layers_can_have_another_head_dim():
    wide, narrow = Rope(ra.frequencies(64), pairing="half"), Rope(ra.frequencies(32), pairing="half")
    for by_layer in ({"0": {"head_dim": 32}}, {0: {"hidden_size": 256}}, {"00": {"num_attention_heads": 16}}):
        model = EIGHT_HEADS | {"per_layer_config": by_layer}
        assert config.layers(model) == [narrow, wide, wide, wide]
        with pytest.raises(
            ValueError, match=r"per_layer_config must be the same for all layers; rope_any.config.layers gives"
        ):
            Rope.from_config(model)
        assert [(one.rope, one.layers) for one in config.explain(model)] == [(narrow, (0,)), (wide, (1, 2, 3))]
    (explanation, _) = config.explain(EIGHT_HEADS | {"per_layer_config": {"00": {"head_dim": 32}}})
    assert explanation.facts["head_dim"] == (32, "per_layer_config.00.head_dim")


def test_single_layers_can_have_another_head_dim_under_model_names():
    zamba = {"model_type": "zamba2", "attention_head_dim": 64, "num_hidden_layers": 2, "use_mem_rope": True}
    for key in ("attention_head_dim", "head_dim"):
        explanations = config.explain(zamba | {"per_layer_config": {"1": {key: 32}}})
        assert [one.facts["head_dim"] for one in explanations] == [
            (64, "attention_head_dim"),
            (32, f"per_layer_config.1.{key}"),
        ]


def test_single_layers_can_have_another_head_dim_by_layer_type():
    by_layer = {"0": {"head_dim": 32}, "2": {"head_dim": 32}}
    model = EIGHT_HEADS | {"layer_types": ["sliding_attention", "full_attention"] * 2, "per_layer_config": by_layer}
    wide, narrow = Rope(ra.frequencies(64), pairing="half"), Rope(ra.frequencies(32), pairing="half")
    assert Rope.from_config(model, layer_type="sliding_attention") == narrow
    assert config.layers(model) == [narrow, wide] * 2
    model["per_layer_config"] = {"0": {"head_dim": 32}}
    with pytest.raises(ValueError, match="per_layer_config must be the same for all layers"):
        Rope.from_config(model, layer_type="sliding_attention")
    assert config.layers(model) == [narrow, wide, wide, wide]


def test_sizes_of_single_layers_that_do_not_change_head_dim_are_ignored():
    by_layer = {"0": {"num_attention_heads": 4, "intermediate_size": 64}, "1": {"num_attention_heads": 6}, "2": {}}
    model = EIGHT_HEADS | {"head_dim": 64, "per_layer_config": by_layer}
    assert Rope.from_config(model) == Rope(ra.frequencies(64), pairing="half")
    assert [one.layers for one in config.explain(model)] == [(0, 1, 2, 3)]


WRONG_PER_LAYER_CONFIGS = {
    "a list": ([{"head_dim": 32}], "per_layer_config must hold an object for each layer; got list"),
    "a number": ({"0": 32}, "per_layer_config must hold an object for each layer; got dict"),
    "a name for a number": ({"first": {}}, "must have each layer once, by its number below 4; got 'first'"),
    "a layer that does not exist": ({"4": {}}, "must have each layer once, by its number below 4; got '4'"),
    "a layer twice": ({"1": {}, "01": {}}, "must have each layer once, by its number below 4; got '01'"),
    "rope_theta": ({"0": {"rope_theta": 1e6}}, "per_layer_config.0 must not have 'rope_theta': of the keys"),
    "a factor": ({"0": {"partial_rotary_factor": 0.5}}, "per_layer_config.0 must not have 'partial_rotary_factor'"),
    "a float head_dim": ({"0": {"head_dim": 32.0}}, "per_layer_config.0.head_dim must be an integer; got float 32.0"),
}


@pytest.mark.parametrize("name", WRONG_PER_LAYER_CONFIGS)
def test_wrong_per_layer_configs_are_refused(name):
    by_layer, message = WRONG_PER_LAYER_CONFIGS[name]
    for function in (Rope.from_config, config.layers, config.explain):
        with pytest.raises((TypeError, ValueError), match=message):
            function(EIGHT_HEADS | {"per_layer_config": by_layer})


def test_per_layer_configs_need_the_number_of_layers():
    by_layer = {"0": {"head_dim": 32}}
    with pytest.raises(ValueError, match="num_hidden_layers must be given with per_layer_config"):
        Rope.from_config(LLAMA | {"per_layer_config": by_layer})


LAYERS = {
    "the default window": ({"model_type": "exaone4", "head_dim": 64, "num_hidden_layers": 4}, [1, 1, 1, 0]),
    "a pattern of letters": (
        {"model_type": "exaone4", "head_dim": 64, "num_hidden_layers": 4, "sliding_window_pattern": "LG"},
        [1, 0, 1, 0],
    ),
    "the default cross-attention layers": (
        {"model_type": "mllama_text_model", "head_dim": 64, "num_hidden_layers": 5},
        [1, 1, 1, 0, 1],
    ),
    "the fourth from the last": (
        {"model_type": "muse_spark_text", "rope_parameters": {"rope_theta": 5e5}, "num_hidden_layers": 6},
        [1, 0, 1, 1, 1, 0],
    ),
    "the default blocks": (
        {"model_type": "recurrent_gemma", "head_dim": 64, "num_hidden_layers": 4},
        [0, 0, 1, 0],
    ),
    "the default types": ({"model_type": "lara_mini", "num_hidden_layers": 7}, [0, 1, 0, 0, 1, 0, 1]),
    "alternating attention and MLP layers": (
        {
            "model_type": "dory",
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "mlp", "full_attention", "mlp"],
            "rope_parameters": {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e7}},
        },
        [1, 0, 1, 0],
    ),
    "the first two and others": ({"model_type": "flint", "num_hidden_layers": 7}, [0, 0, 1, 1, 1, 0, 0]),
    "dense layers first": (
        {
            "model_type": "cohere2_moe",
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "full_attention", "sliding_attention"],
            "mlp_layer_types": ["dense", "sparse", "sparse"],
        },
        [1, 0, 1],
    ),
    "attn_layer_indices": (
        {"model_type": "bamba", "head_dim": 64, "num_hidden_layers": 3, "attn_layer_indices": [1]},
        [0, 1, 0],
    ),
    "layer_rope_theta": (
        {
            "model_type": "muse_spark_text",
            "rope_parameters": {"rope_theta": 5e5},
            "num_hidden_layers": 3,
            "layer_rope_theta": [0, 1.0, 1.0],
        },
        [0, 1, 1],
    ),
    "full_attn_idxs": (
        {"model_type": "lfm2", "head_dim": 64, "num_hidden_layers": 3, "full_attn_idxs": [1]},
        [0, 1, 0],
    ),
    "every fourth, by default": (
        {"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 8},
        [1, 1, 1, 0, 1, 1, 1, 0],
    ),
    "no_rope_layer_interval": (
        {"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 4, "no_rope_layer_interval": 2},
        [1, 0, 1, 0],
    ),
    "no_rope_layers": (
        {"model_type": "llama4_text", "head_dim": 64, "num_hidden_layers": 4, "no_rope_layers": [0, 1, 1, 0]},
        [0, 1, 1, 0],
    ),
    "sliding layers only": ({"model_type": "cohere2", "head_dim": 64, "num_hidden_layers": 4}, [1, 1, 1, 0]),
    "all layers, if there is no window": (
        {"model_type": "exaone4", "head_dim": 64, "num_hidden_layers": 4, "sliding_window": None},
        [1, 1, 1, 1],
    ),
    "linear attention": ({"model_type": "qwen3_next", "head_dim": 64, "num_hidden_layers": 4}, [0, 0, 0, 1]),
    "blocks": (
        {
            "model_type": "recurrent_gemma",
            "head_dim": 64,
            "num_hidden_layers": 5,
            "block_types": ["recurrent", "recurrent", "attention"],
        },
        [0, 0, 1, 0, 0],
    ),
    "cross attention": (
        {"model_type": "mllama_text_model", "head_dim": 64, "num_hidden_layers": 3, "cross_attention_layers": [1]},
        [1, 0, 1],
    ),
    "a base of zero": (
        {
            "model_type": "granite_swa",
            "head_dim": 64,
            "num_hidden_layers": 3,
            "layer_rope_theta": [10_000.0, 0, 10_000.0],
        },
        [1, 0, 1],
    ),
    "no use_mem_rope": ({"model_type": "zamba2", "attention_head_dim": 64, "num_hidden_layers": 2}, [0, 0]),
    "use_mem_rope": (
        {"model_type": "zamba2", "attention_head_dim": 64, "num_hidden_layers": 2, "use_mem_rope": True},
        [1, 1],
    ),
    "a base of null": (
        {"model_type": "olmo_hybrid", "head_dim": 64, "num_hidden_layers": 4, "rope_parameters": {"rope_theta": None}},
        [0, 0, 0, 0],
    ),
    "no base": ({"model_type": "olmo_hybrid", "head_dim": 64, "num_hidden_layers": 4}, [0, 0, 0, 1]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_without_rotary_are_found(name):
    model, has_rotary = LAYERS[name]
    assert [int(rope is not None) for rope in config.layers(model)] == has_rotary


def tuples(value):
    """Return a value with tuples instead of lists."""
    if isinstance(value, dict):
        return {key: tuples(inner) for key, inner in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("name", LAYERS)
def test_tuples_are_read_like_lists(name):
    model, _ = LAYERS[name]
    frozen = tuples(model)
    assert config.layers(frozen) == config.layers(model)
    assert config.layers({"model_type": "llava", "text_config": frozen}) == config.layers(model)
    assert frozen == tuples(model)  # not modified


SMOL = {"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 4}
BAMBA = {"model_type": "bamba", "head_dim": 64, "num_hidden_layers": 4}
WRONG_LAYER_KEYS = {
    "indices in a string": (
        BAMBA | {"attn_layer_indices": "1,3"},
        "attn_layer_indices must be a list of integers; got str",
    ),
    "indices in an object": (BAMBA | {"attn_layer_indices": {"1": 1}}, "attn_layer_indices must be a list of integers"),
    "string indices": (BAMBA | {"attn_layer_indices": ["1"]}, "attn_layer_indices must be a list of integers"),
    "bool indices": (BAMBA | {"attn_layer_indices": [True]}, "attn_layer_indices must be a list of integers"),
    "flags in an object": (
        SMOL | {"no_rope_layers": {"0": 0}},
        "no_rope_layers must be a list with an entry for each layer; got dict",
    ),
    "an interval in a string": (SMOL | {"no_rope_layer_interval": "2"}, "no_rope_layer_interval must be an integer"),
    "an interval of zero": (
        SMOL | {"no_rope_layer_interval": 0},
        "no_rope_layer_interval must be positive; got 0",
    ),
    "a float period": (
        {"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window_pattern": 2.0},
        "sliding_window_pattern must be an integer; got float 2.0",
    ),
    "a string period": (
        {"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window_pattern": "2"},
        "sliding_window_pattern must be an integer; got str '2'",
    ),
    "a bool period": (
        {"model_type": "gemma3", "text_config": {"num_hidden_layers": 4, "sliding_window_pattern": True}},
        "text_config.sliding_window_pattern must be an integer; got bool True",
    ),
    "letters in another order": (
        {"model_type": "exaone4", "num_hidden_layers": 4, "sliding_window_pattern": "GLL"},
        "sliding_window_pattern must be an integer; got str 'GLL'",
    ),
    "cross-attention layers": (
        {"model_type": "mllama_text_model", "head_dim": 64, "cross_attention_layers": {}},
        "cross_attention_layers must be a list of integers",
    ),
    "scaled layers": (
        {"model_type": "molmo2_text", "rope_scaling_layers": "all"},
        "rope_scaling_layers must be a list of integers; got str 'all'",
    ),
    "attention layers": (
        {"model_type": "lfm2", "head_dim": 64, "full_attn_idxs": 3},
        "full_attn_idxs must be a list of integers; got int 3",
    ),
    "hybrid layers": (
        {"model_type": "zamba2", "attention_head_dim": 64, "hybrid_layer_ids": "6"},
        "hybrid_layer_ids must be a list of integers",
    ),
    "bases": (
        {"model_type": "llava", "text_config": {"model_type": "granite_swa", "layer_rope_theta": {"0": 1e4}}},
        "text_config.layer_rope_theta must be a list with an entry for each layer; got dict",
    ),
    "bases that only select layers": (
        {"model_type": "muse_glimmer_text", "layer_rope_theta": "1e4"},
        "layer_rope_theta must be a list with an entry for each layer",
    ),
    "kinds that are no list": (
        {"model_type": "cohere2_moe", "layer_types": ["full_attention"], "mlp_layer_types": "dense"},
        "mlp_layer_types must be a list with an entry for each layer; got str 'dense'",
    ),
}


@pytest.mark.parametrize("name", WRONG_LAYER_KEYS)
def test_lists_and_periods_of_unknown_meaning_are_refused(name):
    model, message = WRONG_LAYER_KEYS[name]
    for function in (Rope.from_config, config.layers, config.explain):
        with pytest.raises((TypeError, ValueError), match=message):
            function(model)


def test_unused_keys_can_have_any_value():
    listed = {"layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2}
    exaone = {"model_type": "exaone4", "head_dim": 64, "sliding_window": None, "sliding_window_pattern": 0} | listed
    assert all(config.layers(exaone))
    assert Rope.from_config(LLAMA | {"cross_attention_layers": "none", "mlp_layer_types": 3}) == Rope(F, pairing="half")


def test_layer_types_without_rotary_are_found():
    cohere = {"model_type": "cohere2", "head_dim": 64, "num_hidden_layers": 4}
    assert no_rotary(cohere, layer_type="full_attention")
    assert Rope.from_config(cohere, layer_type="sliding_attention") == Rope.from_config(cohere)


def test_layers_of_older_configs_are_read():
    windows = {"model_type": "ultrabert", "head_dim": 64, "num_hidden_layers": 4, "attention_windows": [128, 128, 0, 0]}
    sliding, full = (Rope(ra.frequencies(64, base=base), pairing="half") for base in (1e4, 2_560_000.0))
    assert config.layers(windows) == [sliding, sliding, full, full]
    dense = {"model_type": "cohere2_moe", "head_dim": 64, "num_hidden_layers": 8, "first_k_dense_replace": 2}
    dense["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4}
    assert [rope is not None for rope in config.layers(dense)] == [True] * 5 + [False] + [True] * 2
    assert [rope is not None for rope in config.layers(dense | {"prefix_dense_sliding_window_pattern": 2})] == [
        *[True, False],
        *[True] * 3,
        *[False, True, True],
    ]


@pytest.mark.parametrize("parts", [{}, {"first_k_dense_replace": 3}, {"mlp_layer_types": ["dense", *["sparse"] * 8]}])
def test_layers_of_cohere2_moe_equal_those_of_transformers(parts):
    pytest.importorskip("torch", reason="the models run on torch")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    if not hasattr(transformers, "Cohere2MoeConfig"):
        pytest.skip("this version of transformers has no such model")
    theirs = transformers.Cohere2MoeConfig(num_hidden_layers=9, **parts)
    ours = config.layers({"model_type": "cohere2_moe", "num_hidden_layers": 9, "rope_theta": 1e4, **parts})
    has_rotary = [
        kind == "sliding_attention" or dense == "dense"
        for kind, dense in zip(theirs.layer_types, theirs.mlp_layer_types, strict=True)
    ]
    assert [rope is not None for rope in ours] == has_rotary


def test_each_layer_can_have_its_own_base():
    granite = {"model_type": "granite_swa", "head_dim": 64, "num_hidden_layers": 2, "layer_rope_theta": [1e4, 1e6]}
    assert config.layers(granite) == [Rope(ra.frequencies(64, base=b), pairing="half") for b in (1e4, 1e6)]
    step = {
        "model_type": "step3p5",
        "head_dim": 64,
        "num_hidden_layers": 2,
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_theta": [5e6, 1e4],
        "partial_rotary_factors": [0.5, 1.0],
    }
    full, sliding = Rope(ra.frequencies(32, base=5e6), pairing="half"), Rope(ra.frequencies(64), pairing="half")
    assert config.layers(step) == [full, sliding]
    assert Rope.from_config(step, layer_type="full_attention") == full


def test_different_layers_of_one_type_are_reported_separately():
    granite = {
        "model_type": "granite_swa",
        "head_dim": 64,
        "num_hidden_layers": 4,
        "layer_rope_theta": [1e4, 1e6, 0, 1e4],
    }
    with pytest.raises(
        ValueError,
        match=r"layer_rope_theta must be the same for all layers; rope_any.config.layers gives a Rope for each",
    ):
        Rope.from_config(granite)
    explanations = config.explain(granite)
    assert [(one.layers, one.facts["rope_theta"]) for one in explanations] == [
        ((0, 3), (1e4, "layer_rope_theta[0]")),
        ((1,), (1e6, "layer_rope_theta[1]")),
    ]
    same = granite | {"layer_rope_theta": [1e6, 1e6, 0, 1e6]}
    assert Rope.from_config(same) == Rope(ra.frequencies(64, base=1e6), pairing="half")


def test_layers_are_counted():
    (explanation,) = config.explain({"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 5})
    assert explanation.layers == (0, 1, 2, 4)
    assert [one.layers for one in config.explain(GEMMA3)] == [(0, 1, 2, 3, 4, 6, 7), (5,)]
    assert config.explain(LLAMA)[0].layers is None
    assert config.explain({"model_type": "zamba2", "num_hidden_layers": 2, "attention_head_dim": 64})[0].layers == ()


WRONG_COUNTS = {
    "layer_types": LLAMA | {"num_hidden_layers": 4, "layer_types": ["full_attention"] * 2},
    "too many": LLAMA | {"num_hidden_layers": 4, "layer_types": ["full_attention"] * 6},
    "different kinds": GEMMA3 | {"layer_types": ["sliding_attention", "full_attention"]},
    "GGUF": {
        "general.architecture": "gemma2",
        "gemma2.block_count": 4,
        "gemma2.attention.key_length": 64,
        "gemma2.attention.sliding_window_pattern": [1],
    },
}


@pytest.mark.parametrize("name", WRONG_COUNTS)
def test_layer_types_of_another_length_are_refused(name):
    for function in (config.layers, config.explain):
        with pytest.raises(ValueError, match=r"must have [48] entries, one for each layer; got [126]"):
            function(WRONG_COUNTS[name])
    with pytest.raises(ValueError, match="must have"):
        Rope.from_config(WRONG_COUNTS[name], layer_type="full_attention")


def test_layer_types_of_multi_token_prediction_are_accepted():
    types = ["full_attention", "sliding_attention", "sliding_attention"]
    step = {"model_type": "step3p5", "num_hidden_layers": 2, "num_nextn_predict_layers": 1, "layer_types": types}
    assert [one.layers for one in config.explain(step)] == [(1,), (0,)]


@pytest.mark.parametrize(
    "keys",
    [
        {"max_position_embeddings": 0},
        {"max_position_embeddings": 10**400},
        {"original_max_position_embeddings": 0},
        {"original_max_position_embeddings": "x"},
        {"num_hidden_layers": "x"},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": "x", "layer_types": ["full_attention"]},
        {"num_hidden_layers": "x", "model_type": "granite_swa", "layer_rope_theta": [1e4, 1e4]},
    ],
    ids=str,
)
def test_unneeded_wrong_numbers_do_not_prevent_reading(keys):
    (explanation,) = config.explain(LLAMA | keys)
    assert explanation.rope == Rope.from_config(LLAMA | keys) == Rope(F, pairing="half")
    assert explanation.layers is None
    lengths = {name: explanation.facts[name].value for name in explanation.facts if "length" in name}
    assert lengths == ({} if "max_position_embeddings" in keys else {"trained_length": 4096.0})


def test_a_wrong_number_of_layers_is_refused_if_it_is_needed():
    gemma = GEMMA3 | {"num_hidden_layers": "x"}
    for call in (lambda: Rope.from_config(gemma, layer_type="full_attention"), lambda: config.explain(gemma)):
        with pytest.raises(TypeError, match="num_hidden_layers must be an integer; got str 'x'"):
            call()
    with pytest.raises(TypeError, match="num_hidden_layers must be an integer; got str 'x'"):
        config.layers(LLAMA | {"num_hidden_layers": "x"})


def test_scaling_can_apply_to_some_layers():
    molmo = {
        "model_type": "molmo2_text",
        "head_dim": 64,
        "num_hidden_layers": 2,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        "rope_scaling_layers": [1],
    }
    plain, scaled = ra.frequencies(64), scaling.linear(ra.frequencies(64), 2.0)
    assert config.layers(molmo) == [Rope(f, pairing="half") for f in (plain, scaled)]
    with pytest.raises(ValueError, match="rope_scaling_layers must be the same for all layers"):
        Rope.from_config(molmo)
    both = molmo | {"rope_scaling_layers": [0, 1]}
    assert Rope.from_config(both) == Rope(scaled, pairing="half")


# --- several axes -------------------------------------------------------------------------------------------

QWEN_VL = {
    "model_type": "qwen2_vl",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "rope_theta": 1e6,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
}
SEVERAL_AXES = {
    "chunked": (QWEN_VL, lambda f: ra.axes.chunked(f, [16, 24, 24])),
    "strided": (
        QWEN_VL
        | {
            "model_type": "qwen3_vl_text",
            "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True},
        },
        lambda f: ra.axes.strided(f, [24, 20, 20]),
    ),
    "the default sections of the model": (QWEN_VL | {"rope_scaling": None}, lambda f: ra.axes.chunked(f, [16, 24, 24])),
    "alternating": (
        QWEN_VL
        | {"model_type": "neomme", "head_dim": 128}
        | {"rope_scaling": None, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1.0}},
        lambda f: ra.axes.strided(f, [32, 32]),
    ),
    "time last": (
        QWEN_VL | {"model_type": "ernie4_5_vl_moe_text", "rope_scaling": {"mrope_section": [22, 22, 20]}},
        lambda f: (
            (0.0,) * 44 + f[44:],
            tuple(x if i < 44 and i % 2 == 0 else 0.0 for i, x in enumerate(f)),
            tuple(x if i < 44 and i % 2 == 1 else 0.0 for i, x in enumerate(f)),
        ),
    ),
}


@pytest.mark.parametrize("name", SEVERAL_AXES)
def test_positions_of_several_axes_are_read(name):
    model, rows = SEVERAL_AXES[name]
    rope = Rope.from_config(model)
    assert rope.frequencies == rows(ra.frequencies(128, base=1e6))
    plain = Rope(ra.frequencies(128, base=1e6), pairing=rope.pairing)
    p = np.asarray([0, 3, 1000, 131_071])
    table = rope.table(np.stack([p] * len(rope.frequencies), axis=-1), dtype=np.float64)
    np.testing.assert_allclose(table, plain.table(p, dtype=np.float64), atol=1e-9)


def test_default_sections_that_do_not_fit_are_ignored():
    (explanation,) = config.explain({"model_type": "glm4v_text", "head_dim": 128})
    assert explanation.rope == Rope(F, pairing="interleaved")
    assert explanation.facts["axes"].value == 1
    assert "the default sections are for 32 pairs, not 64" in explanation.facts["axes"].source


# --- the length of the sequence -----------------------------------------------------------------------------

LONG = LLAMA | {
    "rope_scaling": {
        "rope_type": "longrope",
        "short_factor": [1.0] * 64,
        "long_factor": [4.0] * 64,
        "original_max_position_embeddings": 4096,
    },
    "max_position_embeddings": 16_384,
}
LENGTHS = {
    "dynamic": (
        LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        lambda n: scaling.dynamic_ntk(F, 2.0, length=n, trained_length=4096),
    ),
    "longrope": (LONG, lambda n: scaling.linear(F, 4.0 if n > 4096 else 1.0)),
    "dynamic yarn": (
        LLAMA | {"rope_scaling": {"type": "dynamic-yarn", "original_max_position_embeddings": 4096, "factor": 9.0}},
        lambda n: scaling.dynamic_yarn(F, base=1e4, length=n, original_length=4096),
    ),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_the_length_chooses_the_frequencies(name):
    model, frequencies = LENGTHS[name]
    for length in (100, 4096, 4097, 20_000):
        assert Rope.from_config(model, sequence_length=length).frequencies == frequencies(length)
    assert Rope.from_config(model).frequencies == frequencies(4096)


def test_a_length_does_not_change_default_rope():
    assert Rope.from_config(LLAMA, sequence_length=10**9) == Rope.from_config(LLAMA)


def test_two_mscales_are_chosen_by_length():
    both = LONG | {
        "model_type": "phimoe",
        "rope_scaling": LONG["rope_scaling"] | {"short_mscale": 1.1, "long_mscale": 1.3},
    }
    factors = [Rope.from_config(both, sequence_length=n).attention_factor for n in (4096, 4097)]
    assert factors == [1.1, 1.3]
    with_factor = both | {"rope_scaling": both["rope_scaling"] | {"attention_factor": 1.5}}
    (explanation,) = config.explain(with_factor)
    assert explanation.facts["attention_factor"] == (1.1, "rope_scaling.short_mscale")
    assert explanation.rope.attention_factor == 1.1
    without_length = {key: value for key, value in both.items() if key != "max_position_embeddings"}
    assert Rope.from_config(without_length).attention_factor == 1.1


def test_cached_keys_can_be_rotated_again_for_another_length(rng):
    short, long = (Rope.from_config(LONG, sequence_length=n) for n in (4096, 5000))
    k = rng.standard_normal((1, 2, 8, 128))
    positions = np.arange(4090, 4098)
    cached = short.apply(k, positions)
    rotated = long.apply(short.apply(cached, positions, inverse=True), positions)
    np.testing.assert_allclose(rotated, long.apply(k, positions), atol=1e-12)


# --- against the functions of transformers ------------------------------------------------------------------


def log_uniform(low, high):
    """Return a function that draws a float between two limits, uniform in its logarithm."""
    return lambda rng: float(math.exp(rng.uniform(math.log(low), math.log(high))))


def parameters(kind, rng, pairs):
    """Return random valid parameters of a rope type."""
    original = int(log_uniform(256, 65_536)(rng))
    common = {"rope_type": kind, "rope_theta": log_uniform(100, 1e8)(rng)}
    factor = {"factor": log_uniform(1, 64)(rng)}
    length = {"original_max_position_embeddings": original}
    optional = {
        "attention_factor": rng.uniform(0.5, 2),
        "beta_fast": rng.uniform(8, 64),
        "beta_slow": rng.uniform(0.5, 4),
        "mscale": rng.uniform(0.1, 2),
        "mscale_all_dim": rng.uniform(0.1, 2),
        "truncate": bool(rng.integers(2)),
    }
    chosen = {key: value for key, value in optional.items() if rng.integers(2)}
    if kind in ("linear", "dynamic"):
        return common | factor
    if kind == "proportional":
        return common | {"factor": factor["factor"]}
    if kind == "yarn":
        return common | factor | length | chosen
    if kind == "longrope":
        lists = {f"{name}_factor": [float(x) for x in rng.uniform(0.5, 60, pairs)] for name in ("short", "long")}
        attention = {"attention_factor": optional["attention_factor"]} if rng.integers(2) else {}
        return common | lists | length | attention | (factor if rng.integers(2) else {})
    low = rng.uniform(0.5, 4)
    return common | factor | length | {"low_freq_factor": low, "high_freq_factor": low + rng.uniform(1, 8)}


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "longrope", "llama3", "proportional"])
def test_random_parameters_are_read_as_by_transformers(kind):
    pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rng = np.random.default_rng(["linear", "dynamic", "yarn", "longrope", "llama3", "proportional"].index(kind))
    for _ in range(200):
        head_dim = 8 * int(rng.integers(2, 33))
        share = float(rng.choice([1.0, 0.5, 0.25]))
        pairs = head_dim // 2 if kind == "proportional" else int(head_dim * share) // 2
        given = parameters(kind, rng, pairs) | {"partial_rotary_factor": share}
        length = int(log_uniform(100, 300_000)(rng))
        theirs = transformers.LlamaConfig(
            head_dim=head_dim,
            max_position_embeddings=int(rng.integers(2**10, 2**17)),
            rope_parameters=given,
        )
        frequencies, factor = ROPE_INIT_FUNCTIONS[kind](theirs, "cpu", seq_len=length)
        rope = Rope.from_config(theirs, sequence_length=length)
        np.testing.assert_allclose(rope.frequencies, frequencies.double().numpy(), rtol=1e-5, atol=1e-30)
        assert rope.attention_factor == pytest.approx(factor, rel=1e-6)


# --- GGUF ---------------------------------------------------------------------------------------------------


def gguf(arch, **keys):
    """Return metadata of an architecture; ``__`` means a dot."""
    sizes = {"context_length": 131_072, "embedding_length": 4096, "attention.head_count": 32, "block_count": 4}
    values = sizes | {key.replace("__", "."): value for key, value in keys.items()}
    return {"general.architecture": arch, "tokenizer.ggml.tokens": ["a"]} | {
        f"{arch}.{key}": value for key, value in values.items()
    }


YARN_KEYS = {"rope__scaling__type": "yarn", "rope__scaling__original_context_length": 32_768}
GGUF = {
    "llama, whose projections were permuted": (
        gguf("llama", rope__freq_base=5e5),
        "interleaved",
        ra.frequencies(128, base=5e5),
        1.0,
    ),
    "no base": (gguf("qwen2"), "half", F, 1.0),
    "half the head": (gguf("phi2", rope__dimension_count=64), "half", ra.frequencies(64), 1.0),
    "head counts by layer": (gguf("llama", attention__head_count=[32, 64]), "interleaved", F, 1.0),
    "linear": (
        gguf("llama", rope__scaling__type="linear", rope__scaling__factor=4.0),
        "interleaved",
        scaling.linear(F, 4.0),
        1.0,
    ),
    "linear, older": (gguf("llama", rope__scale_linear=4.0), "interleaved", scaling.linear(F, 4.0), 1.0),
    "none": (gguf("llama", rope__scaling__type="none", rope__scaling__factor=4.0), "interleaved", F, 1.0),
    "yarn": (
        gguf("qwen3", rope__scaling__factor=4.0, **YARN_KEYS),
        "half",
        scaling.yarn(F, 4.0, base=1e4, original_length=32_768),
        scaling.yarn_attention_factor(4.0),
    ),
    "yarn with an attention factor": (
        gguf("qwen2", rope__scaling__factor=4.0, rope__scaling__attn_factor=1.5, **YARN_KEYS),
        "half",
        scaling.yarn(F, 4.0, base=1e4, original_length=32_768),
        1.5 * scaling.yarn_attention_factor(4.0),
    ),
    "a separate rotary slice": (
        gguf(
            "deepseek2",
            rope__dimension_count=64,
            attention__key_length=576,
            rope__scaling__factor=40.0,
            rope__scaling__yarn_log_multiplier=0.1,
            **YARN_KEYS,
        ),
        "interleaved",
        scaling.yarn(ra.frequencies(64), 40.0, base=1e4, original_length=32_768),
        1.0,
    ),
    "mistral3's multiplier": (
        gguf("mistral3", rope__scaling__factor=16.0, rope__scaling__yarn_log_multiplier=1.0, **YARN_KEYS),
        "interleaved",
        scaling.yarn(F, 16.0, base=1e4, original_length=32_768),
        1.0,
    ),
    "alpha": (
        gguf("hunyuan-dense", rope__scaling__alpha=1000.0),
        "half",
        ra.frequencies(128, base=1e4 * 1000 ** (128 / 126)),
        1.0,
    ),
    "betas": (
        gguf(
            "mistral3",
            rope__scaling__factor=4.0,
            rope__scaling__yarn_beta_fast=16.0,
            rope__scaling__yarn_beta_slow=2.0,
            **YARN_KEYS,
        ),
        "interleaved",
        scaling.yarn(F, 4.0, base=1e4, original_length=32_768, beta_fast=16.0, beta_slow=2.0),
        scaling.yarn_attention_factor(4.0),
    ),
    "yarn within the length of the model": (
        gguf("qwen3", rope__scaling__type="yarn", rope__scaling__factor=4.0),
        "half",
        scaling.yarn(F, 4.0, base=1e4, original_length=131_072),
        scaling.yarn_attention_factor(4.0),
    ),
    "gpt-oss, whose ramp is not rounded": (
        gguf("gpt-oss", rope__scaling__factor=32.0, rope__freq_base=1.5e5, **YARN_KEYS),
        "half",
        scaling.yarn(ra.frequencies(128, base=1.5e5), 32.0, base=1.5e5, original_length=32_768, truncate=False),
        scaling.yarn_attention_factor(32.0),
    ),
    "a multiplier and an attention factor": (
        gguf(
            "mistral3",
            rope__scaling__factor=16.0,
            rope__scaling__yarn_log_multiplier=2.0,
            rope__scaling__attn_factor=1.5,
            **YARN_KEYS,
        ),
        "interleaved",
        scaling.yarn(F, 16.0, base=1e4, original_length=32_768),
        1.5 * scaling.yarn_attention_factor(16.0, mscale=1.0, mscale_all_dim=2.0),
    ),
    "a factor of zero": (gguf("llama", rope__scaling__factor=0.0), "interleaved", F, 1.0),
    "optional sections": (
        gguf("glm4", rope__dimension_sections=[8, 12, 12, 0], rope__dimension_count=64),
        "half",
        ra.axes.chunked(ra.frequencies(64), [8, 12, 12]),
        1.0,
    ),
    "no optional sections": (gguf("glm4", rope__dimension_count=64), "interleaved", ra.frequencies(64), 1.0),
    "empty optional sections": (
        gguf("glm4", rope__dimension_count=64, rope__dimension_sections=[]),
        "interleaved",
        ra.frequencies(64),
        1.0,
    ),
    "an equal base of sliding layers": (
        gguf("gpt-oss", rope__freq_base=1.5e5, rope__freq_base_swa=1.5e5),
        "half",
        ra.frequencies(128, base=1.5e5),
        1.0,
    ),
    "sections": (
        gguf("qwen2vl", rope__dimension_sections=[16, 24, 24, 0]),
        "half",
        ra.axes.chunked(F, [16, 24, 24]),
        1.0,
    ),
    "strided sections": (
        gguf("qwen3vl", rope__dimension_sections=[24, 20, 20, 0]),
        "half",
        ra.axes.strided(F, [24, 20, 20]),
        1.0,
    ),
}


@pytest.mark.parametrize("name", GGUF)
def test_gguf_metadata_is_read(name):
    metadata, pairing, frequencies, factor = GGUF[name]
    rope = Rope.from_config(metadata)
    assert rope.pairing == pairing
    np.testing.assert_allclose(rope.frequencies, frequencies, rtol=1e-14)
    assert rope.attention_factor == pytest.approx(factor, rel=1e-12)


def test_layers_of_gguf_are_read():
    gemma = gguf("gemma3", rope__freq_base=1e6, rope__scaling__type="linear", rope__scaling__factor=8.0)
    sliding = Rope(ra.frequencies(128), pairing="half")
    full = Rope(scaling.linear(ra.frequencies(128, base=1e6), 8.0), pairing="half")
    assert Rope.from_config(gemma, layer_type="full_attention") == full
    assert config.layers(gemma | {"gemma3.block_count": 6}) == [*[sliding] * 5, full]
    pattern = gemma | {"gemma3.attention.sliding_window_pattern": [True, False, True, False]}
    assert config.layers(pattern) == [sliding, full] * 2
    assert config.layers(gemma | {"gemma3.attention.sliding_window_pattern": 2}) == [sliding, full] * 2
    assert [rope is not None for rope in config.layers(gguf("smollm3"))] == [True, True, True, False]
    assert no_rotary(gguf("mamba"))
    assert config.layers(gguf("granitehybrid", rope__scaling__finetuned=False)) == [None] * 4


# As conversion/*.py of llama.cpp writes them: metadata of hybrids, and the config.json of the same models.
HYBRIDS = {
    "qwen35": (
        {"block_count": 64, "attention.key_length": 256, "full_attention_interval": 4, "ssm.conv_kernel": 4}
        | {"rope.dimension_count": 64, "rope.dimension_sections": [11, 11, 10, 0], "rope.freq_base": 1e7},
        {"model_type": "qwen3_5_text", "num_hidden_layers": 64, "head_dim": 256, "rope_theta": 1e7},
        16,
    ),
    "qwen35moe": (  # the last layer predicts a further token
        {"block_count": 41, "nextn_predict_layers": 1, "attention.key_length": 256, "rope.freq_base": 1e7}
        | {"attention.recurrent_layers": [*[True, True, True, False] * 10, False]}
        | {"rope.dimension_count": 64, "rope.dimension_sections": [11, 11, 10, 0]},
        {"model_type": "qwen3_5_moe_text", "num_hidden_layers": 40, "head_dim": 256, "rope_theta": 1e7},
        10,
    ),
    "qwen3next": (
        {"block_count": 48, "attention.key_length": 256, "rope.dimension_count": 64, "rope.freq_base": 1e7},
        {"model_type": "qwen3_next", "num_hidden_layers": 48, "head_dim": 256, "rope_theta": 1e7},
        12,
    ),
    "lfm2": (
        {"block_count": 16, "attention.head_count": 16, "embedding_length": 1024, "rope.freq_base": 1e6}
        | {"attention.head_count_kv": [0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0], "shortconv.l_cache": 3},
        {"model_type": "lfm2", "num_hidden_layers": 16, "num_attention_heads": 16, "hidden_size": 1024}
        | {"full_attn_idxs": [2, 5, 8, 10, 12, 14]},
        6,
    ),
    "granitehybrid": (
        {"block_count": 4, "attention.key_length": 64, "attention.head_count_kv": [0, 8, 0, 0], "ssm.state_size": 128}
        | {"rope.scaling.finetuned": True},
        {"model_type": "granitemoehybrid", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4}
        | {"layer_types": ["mamba", "attention", "mamba", "mamba"], "position_embedding_type": "rope"},
        1,
    ),
    "granite": (  # Granite 4.0 Micro, a hybrid's class without hybrid layers
        {"block_count": 4, "embedding_length": 256, "attention.head_count": 4, "attention.head_count_kv": [8] * 4}
        | {"rope.dimension_count": 64, "rope.freq_base": 1e7, "rope.scaling.finetuned": True, "ssm.conv_kernel": 4},
        {"model_type": "granitemoehybrid", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4}
        | {"layer_types": ["attention"] * 4, "position_embedding_type": "rope", "rope_theta": 1e7},
        4,
    ),
    "exaone4": (  # without a window, all layers rotate
        {"block_count": 4, "attention.key_length": 64, "context_length": 4096},
        {"model_type": "exaone4", "num_hidden_layers": 4, "head_dim": 64, "sliding_window": None},
        4,
    ),
    "olmo2": (  # OLMo 3, whose converter writes the attention factor of the config.json, in float32
        {"block_count": 4, "attention.key_length": 64, "attention.sliding_window": 4096, "rope.freq_base": 5e5}
        | {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 8192}
        | {"rope.scaling.yarn_attn_factor": 1.2079441547393799},
        {"model_type": "olmo3", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "rope_theta": 5e5}
        | {"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}},
        4,
    ),
}


@pytest.mark.parametrize("arch", HYBRIDS)
def test_layers_of_gguf_are_those_of_the_config_json(arch):
    keys, model, count = HYBRIDS[arch]
    layers = config.layers({"general.architecture": arch} | {f"{arch}.{key}": value for key, value in keys.items()})
    expected = config.layers(model)
    assert sum(rope is not None for rope in layers) == count
    factors = [(rope and rope.frequencies, rope and rope.attention_factor) for rope in layers]
    assert factors == [(rope and rope.frequencies, rope and rope.attention_factor) for rope in expected]


LLAMA_31 = {"context_length": 131_072, "vocab_size": 128_256, "rope__freq_base": 5e5}
LLAMA3_TENSORS = {
    "Llama 3.1": ("llama", LLAMA_31, 8.0),
    "Llama 3.2 3B, by its tokens": ("llama", LLAMA_31 | {"vocab_size": None, "attention__key_length": 64}, 32.0),
    "a finetune with more tokens": ("llama", LLAMA_31 | {"vocab_size": 128_264}, 8.0),
    "a shorter finetune": ("llama", LLAMA_31 | {"context_length": 16_384}, 8.0),
    "Nemotron": ("deci", {"attention__head_count_kv": [8, 8, 0, 8], "rope__freq_base": 5e5}, 8.0),
    "EXAONE 3.5": ("exaone", {"context_length": 32_768, "rope__freq_base": 1e6}, 8.0),
    "Apertus": ("apertus", {"context_length": 65_536, "rope__freq_base": 12e6}, 8.0),
    "Llama 4 Scout": ("llama4", {"context_length": 10_485_760, "rope__freq_base": 5e5}, 16.0),
}


@pytest.mark.parametrize("name", LLAMA3_TENSORS)
def test_gguf_whose_scaling_is_a_tensor_is_refused_with_ways_out(name):
    arch, keys, factor = LLAMA3_TENSORS[name]
    metadata = gguf(arch, **keys) | {"tokenizer.ggml.tokens": ["x"] * 128_256}
    with pytest.raises(ValueError, match=r"factor must be given: the tensor rope_freqs\.weight may scale") as caught:
        Rope.from_config(metadata)
    hint = str(caught.value)
    assert f"it is {factor:g}" in hint or f", {factor:g} for" in hint
    assert "or, for the layers that rotate, read the tensor" in hint
    assert "read the config.json of the model" in hint
    plain = ra.frequencies(keys.get("attention__key_length", 128), base=keys["rope__freq_base"])
    high = 1.0 if arch == "llama4" else 4.0
    scaled = scaling.llama3(plain, factor, low_freq_factor=1.0, high_freq_factor=high, original_length=8192)
    rotations = {each for each in config.layers(metadata, factor=factor) if each}
    rope = rotations.pop()
    assert not rotations
    np.testing.assert_allclose(rope.frequencies, scaled, rtol=1e-14)
    assert {each for each in config.layers(metadata, factor=1) if each} == {Rope(plain, pairing=rope.pairing)}
    divisors = np.array([a / b for a, b in zip(plain, scaled, strict=True)], dtype=np.float32)  # the file's tensor
    call = re.search(r'read the tensor: rope = (rope_any\.layouts\.unpack\(tensor, "llama\.cpp", .*?\));', hint)
    arguments = re.search(r"base=(.*), pairing=\"(.*)\"", call[1])
    unpacked = ra.layouts.unpack(divisors, "llama.cpp", base=float(arguments[1]), pairing=arguments[2])
    assert unpacked.pairing == rope.pairing
    np.testing.assert_allclose(unpacked.frequencies, scaled, rtol=1e-6)


def test_llama3_scaling_of_gguf_equals_that_of_transformers():
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    model = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 5e5}
    model["rope_scaling"] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    model["rope_scaling"]["original_max_position_embeddings"] = 8192
    theirs = pytest.importorskip("transformers").LlamaConfig(**{**model, "max_position_embeddings": 131_072})
    frequencies, _ = utils.ROPE_INIT_FUNCTIONS["llama3"](theirs, "cpu")
    rope = Rope.from_config(gguf("llama", **LLAMA_31), factor=8.0)
    np.testing.assert_allclose(rope.frequencies, frequencies.double().numpy(), rtol=1e-5)
    assert rope == dataclasses.replace(Rope.from_config(model), pairing="interleaved")


UNSCALED = {
    "Llama 3": ("llama", LLAMA_31 | {"context_length": 8192}),
    "Mistral Nemo": ("llama", {"context_length": 131_072, "vocab_size": 131_072, "rope__freq_base": 1e6}),
    "Code Llama": ("llama", {"context_length": 16_384, "vocab_size": 32_016, "rope__freq_base": 1e6}),
    "EXAONE 3": ("exaone", {"context_length": 4096, "rope__freq_base": 5e5}),
    "SmolLM3, with Llama's tokens": ("smollm3", {"vocab_size": 128_256, "rope__freq_base": 5e6}),
}


@pytest.mark.parametrize("name", UNSCALED)
def test_gguf_of_models_without_that_scaling_is_read(name):
    arch, keys = UNSCALED[name]
    assert Rope.from_config(gguf(arch, **keys)).frequencies == ra.frequencies(128, base=keys["rope__freq_base"])


@pytest.mark.parametrize(("name", "length"), [("short", 4096), ("long", 131_072)])
def test_gguf_with_longrope_is_read_from_its_tensor(name, length):
    """The error's code gives the rotation of the config.json: Phi-4 mini's shape, with other factors."""
    factors = {f"{kind}_factor": [step * (1 + i) for i in range(48)] for kind, step in (("short", 1.0), ("long", 3.0))}
    model = {"model_type": "phi3", "head_dim": 128, "partial_rotary_factor": 0.75, "max_position_embeddings": 131_072}
    model |= {"rope_scaling": {"rope_type": "longrope", **factors}, "original_max_position_embeddings": 4096}
    expected = Rope.from_config(model, sequence_length=length)
    keys = {"rope__scaling__attn_factor": expected.attention_factor, "rope__scaling__original_context_length": 4096}
    with pytest.raises(ValueError, match="phi3 must have its scaling in the metadata") as caught:
        Rope.from_config(gguf("phi3", rope__dimension_count=96, **keys))
    call = r'unpack\(tensor, "llama.cpp", base=(.*), pairing="(.*)"\) and .*replace\(rope, attention_factor=(.*)\);'
    base, pairing, factor = re.search(call, str(caught.value)).groups()
    tensor = np.float32(factors[f"{name}_factor"])
    rope = ra.layouts.unpack(tensor, "llama.cpp", base=float(base), pairing=pairing)
    rope = dataclasses.replace(rope, attention_factor=float(factor))
    np.testing.assert_allclose(rope.frequencies, expected.frequencies, rtol=1e-14)
    assert (rope.pairing, rope.attention_factor) == (expected.pairing, expected.attention_factor)


def test_errors_of_gguf_name_its_keys():
    (explanation,) = config.explain(gguf("qwen3", rope__freq_base=1e6, rope__scaling__factor=4.0, **YARN_KEYS))
    assert explanation.facts["rope_theta"] == (1e6, "qwen3.rope.freq_base")
    assert explanation.facts["factor"] == (4.0, "qwen3.rope.scaling.factor")
    with pytest.raises(ValueError, match=r"qwen3.rope.freq_base must be positive and finite; got 0.0"):
        Rope.from_config(gguf("qwen3", rope__freq_base=0))


# --- reported facts -----------------------------------------------------------------------------------------


def test_each_value_has_its_source():
    neox = {
        "model_type": "gpt_neox",
        "hidden_size": 6144,
        "num_attention_heads": 64,
        "max_position_embeddings": 8192,
        "rotary_pct": 0.5,
        "rope_scaling": YARN | {"truncate": False},
    }
    (explanation,) = config.explain(neox)
    assert explanation.rope == Rope.from_config(neox)
    sources = {name: fact.source for name, fact in explanation.facts.items()}
    assert sources == {
        "model_type": "model_type",
        "pairing": "model_type gpt_neox",
        "rope_type": "rope_scaling.rope_type",
        "rope_theta": "default of gpt_neox",
        "head_dim": "hidden_size // num_attention_heads",
        "score_scale": "1 / sqrt(hidden_size // num_attention_heads)",
        "rotary_dim": "rotary_pct",
        "partial_rotary_factor": "rotary_pct",
        "factor": "rope_scaling.factor",
        "original_max_position_embeddings": "rope_scaling.original_max_position_embeddings",
        "beta_fast": "default of yarn",
        "beta_slow": "default of yarn",
        "truncate": "rope_scaling.truncate",
        "attention_factor": "derived from these",
        "trained_length": "rope_scaling.original_max_position_embeddings",
        "extended_length": "max_position_embeddings",
    }


GEMMA = {"model_type": "gemma3_text", "max_position_embeddings": 131_072}
LLAMA_8K = {"model_type": "llama", "head_dim": 128, "max_position_embeddings": 8192}
NO_LENGTH = LLAMA_8K | {"max_position_embeddings": None}
FROM_4K = {"original_max_position_embeddings": 4096}
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | FROM_4K


def gemma(full, *, length=8192):
    """Return a config in which only full attention is scaled."""
    kinds = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}}
    kinds["full_attention"] |= full
    return GEMMA | {"max_position_embeddings": length, "rope_parameters": kinds}


HUNYUAN = {"model_type": "hunyuan_v1_dense"}
REPORTED_LENGTHS = {
    "unscaled": (LLAMA_8K, {"trained": 8192}),
    "scaled by 1": (LLAMA_8K | {"rope_scaling": {"type": "linear", "factor": 1.0}}, {"trained": 8192}),
    "another factor": (LLAMA_8K | {"factor": 16, "alpha": 16}, {"trained": 8192}),
    "another name": (
        {"model_type": "phi", "head_dim": 128, "n_positions": 2048, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"stated": 2048},
    ),
    "the extended length inside": (
        LLAMA_8K | {"rope_scaling": {"type": "linear", "factor": 2.0, "max_position_embeddings": 12_288}},
        {"trained": 8192, "extended": 12_288},
    ),
    "the extended length inside and outside": (
        LLAMA_8K | {"rope_scaling": {"type": "linear", "factor": 2.0, "max_position_embeddings": 8192}},
        {"extended": 8192},
    ),
    "the extended length inside alone": (
        NO_LENGTH | {"rope_scaling": {"type": "linear", "factor": 2.0, "max_position_embeddings": 8192}},
        {"extended": 8192},
    ),
    "the extended length inside, unscaled": (
        NO_LENGTH | {"rope_scaling": {"type": "linear", "factor": 1.0, "max_position_embeddings": 8192}},
        {"trained": 8192},
    ),
    "a shorter length inside": (
        LLAMA_8K | {"rope_scaling": {"type": "linear", "factor": 2.0, "max_position_embeddings": 4096}},
        {"extended": 4096, "stated": 8192},
    ),
    "the extended length inside, and a longer one outside": (
        LLAMA_8K | {"rope_scaling": YARN | FROM_4K | {"max_position_embeddings": 6144}},
        {"trained": 4096, "extended": 6144},
    ),
    "the original, of some layers": (gemma(YARN | FROM_4K, length=131_072), {"trained": 4096, "extended": 131_072}),
    "the original null": (
        LLAMA_8K | {"rope_parameters": {"rope_type": "default", "original_max_position_embeddings": None}},
        {"trained": 8192},
    ),
    "the original null, of some layers": (
        GEMMA
        | {
            "rope_parameters": {
                "sliding_attention": {"rope_theta": 1e4, "original_max_position_embeddings": None},
                "full_attention": YARN | FROM_4K | {"rope_theta": 1e6},
            }
        },
        {"trained": 4096, "extended": 131_072},
    ),
    "alpha null": (
        LLAMA_8K | {"rope_scaling": {"type": "dynamic", "factor": 2.0, "alpha": None}},
        {"trained": 8192, "extended": 16_384},
    ),
    "the original alone, of some layers": (gemma(YARN | FROM_4K, length=None), {"trained": 4096, "extended": 16_384}),
    "dynamic, of some layers": (
        gemma({"rope_type": "dynamic", "factor": 4.0}),
        {"trained": 8192, "extended": 32_768},
    ),
    "the extended length inside, of some layers": (
        gemma({"rope_type": "linear", "factor": 2.0, "max_position_embeddings": 16_384}),
        {"trained": 8192, "extended": 16_384},
    ),
    "the extended length inside alone, of some layers": (
        gemma({"rope_type": "linear", "factor": 2.0, "max_position_embeddings": 16_384}, length=None),
        {"extended": 16_384},
    ),
    "no length inside": (
        LLAMA_8K | {"rope_scaling": {"type": "linear", "factor": 2.0, "max_position_embeddings": "x"}},
        {"stated": 8192},
    ),
    "linear": (LLAMA_8K | {"rope_scaling": {"type": "linear", "factor": 2.0}}, {"stated": 8192}),
    "linear, of layers": (GEMMA | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, {"stated": 131_072}),
    "unscaled, of layers": (GEMMA, {"trained": 131_072}),
    "linear, with the original": (
        NO_LENGTH | FROM_4K | {"rope_scaling": {"type": "linear", "factor": 2.5}},
        {"trained": 4096, "extended": 10_240},
    ),
    "dynamic": (
        LLAMA_8K | {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"trained": 8192, "extended": 16_384},
    ),
    "dynamic, with alpha": (LLAMA_8K | HUNYUAN | {"rope_scaling": {"type": "dynamic", "alpha": 9.0}}, {"stated": 8192}),
    "alpha, with the original": (
        NO_LENGTH | HUNYUAN | FROM_4K | {"rope_scaling": {"type": "dynamic", "alpha": 9.0, "factor": "x"}},
        {"trained": 4096},
    ),
    "alpha and a factor, with the original": (
        NO_LENGTH | HUNYUAN | FROM_4K | {"rope_scaling": {"type": "dynamic", "alpha": 9.0, "factor": 2.0}},
        {"trained": 4096},
    ),
    "dynamic, the extended length inside": (
        LLAMA_8K | {"rope_scaling": {"type": "dynamic", "factor": 2.0, "max_position_embeddings": 12_288}},
        {"trained": 8192, "extended": 12_288},
    ),
    "yarn": (NO_LENGTH | {"rope_scaling": YARN | FROM_4K}, {"trained": 4096, "extended": 16_384}),
    "yarn, the extended length inside": (
        NO_LENGTH | {"rope_scaling": YARN | FROM_4K | {"max_position_embeddings": 12_288}},
        {"trained": 4096, "extended": 12_288},
    ),
    "longrope": (
        NO_LENGTH
        | {
            "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [2.0] * 64, "factor": 3}
            | FROM_4K
        },
        {"trained": 4096, "extended": 12_288},
    ),
    "longrope without a factor": (
        NO_LENGTH
        | {
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0] * 64,
                "long_factor": [2.0] * 64,
                "attention_factor": 1.2,
            }
            | FROM_4K
        },
        {"trained": 4096},
    ),
    "llama3": (LLAMA_8K | {"rope_scaling": LLAMA_3}, {"trained": 4096, "extended": 8192}),
    "llama3 without a length": (NO_LENGTH | {"rope_scaling": LLAMA_3}, {"trained": 4096}),
    "lengths beyond 64 bits": (
        NO_LENGTH | {"rope_scaling": YARN | {"original_max_position_embeddings": 1e99, "factor": 4e9}},
        {"trained": 1e99},
    ),
}


def test_default_sections_apply_only_to_the_default_head_dim():
    for width, axes in ((128, 3), (64, 1)):
        (explanation,) = config.explain({"model_type": "ernie4_5_vl_moe_text", "head_dim": width})
        assert explanation.facts["axes"].value == axes


def test_layer_types_are_required_if_layers_differ():
    kinds = {kind: {"rope_type": "default"} for kind in ("full_attention", "sliding_attention")}
    with pytest.raises(ValueError, match="layer_types must be given, since layers differ"):
        config.layers({"model_type": "llama", "rope_parameters": kinds, "head_dim": 64, "num_hidden_layers": 2})


@pytest.mark.parametrize("name", REPORTED_LENGTHS)
def test_lengths_are_reported_by_their_meaning(name):
    model, expected = REPORTED_LENGTHS[name]
    for _, _, facts, _ in config.explain(model):
        found = {key.removesuffix("_length"): fact.value for key, fact in facts.items() if key.endswith("_length")}
        assert found == expected
        assert all(isinstance(length, int) == (length < 2**53) for length in found.values())


def test_layers_of_two_schemes_have_their_own_lengths():
    sliding = YARN | FROM_4K | {"factor": 2.0, "rope_theta": 1e4}
    model = gemma(YARN, length=None)
    model["rope_parameters"] = model["rope_parameters"] | {"sliding_attention": sliding}
    assert [
        [facts[f"{kind}_length"].value for kind in ("trained", "extended")] for _, _, facts, _ in config.explain(model)
    ] == [[4096, 8192], [1024, 4096]]
    linear = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    model["rope_parameters"] = model["rope_parameters"] | {"sliding_attention": linear}
    assert [explanation.facts["trained_length"].value for explanation in config.explain(model)] == [1024, 1024]


def test_lengths_have_their_sources():
    for explanation in config.explain(gemma(YARN, length=None)):
        path = "rope_parameters.full_attention"
        assert explanation.facts["trained_length"] == (1024, f"{path}.original_max_position_embeddings")
        assert explanation.facts["extended_length"] == (
            4096,
            f"{path}.original_max_position_embeddings * {path}.factor",
        )
    inside = {"rope_type": "default", "max_position_embeddings": 8192}
    (explanation,) = config.explain(NO_LENGTH | {"rope_parameters": inside})
    assert explanation.facts["trained_length"] == (8192, "rope_parameters.max_position_embeddings")


def test_a_text_part_is_named_after_the_whole_model():
    for model, name in (
        ({"model_type": "qwen2_vl", "head_dim": 128, "rope_scaling": QWEN_VL["rope_scaling"]}, "qwen2_vl_text"),
        ({"model_type": "llava", "text_config": {"head_dim": 128}}, "llama"),
    ):
        (explanation,) = config.explain(model)
        source = f"model_type {model['model_type']}, its text part"
        assert explanation.facts["model_type"] == (name, source)
        assert explanation.facts["pairing"] == ("half", f"{source} {name}")


def test_explain_reports_temperature_and_disabled_rotary():
    (explanation,) = config.explain(LLAMA | {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.1}})
    assert "rope_any.bending.temperature" in explanation.facts["llama_4_scaling_beta"].source
    esm = {"model_type": "esm", "hidden_size": 1024, "num_attention_heads": 16}
    (explanation,) = config.explain(esm)
    reason = "position_embedding_type, default of esm, is str 'absolute'"
    assert explanation == (None, None, {"rotary": (None, reason)}, ())
    with pytest.raises(ValueError, match=reason):
        Rope.from_config(esm)
    assert Rope.from_config(esm | {"position_embedding_type": "rotary"}) == Rope(ra.frequencies(64), pairing="half")
    beam = {"model_type": "beam", "head_dim": 64, "rope_parameters": {"full_attention": None}}
    assert config.explain(beam) == (
        ("full_attention", None, {"rotary": (None, "rope_parameters.full_attention is null")}, ()),
    )


def test_explain_describes_all_layer_types_or_one():
    assert [one.layer_type for one in config.explain(GEMMA3)] == ["sliding_attention", "full_attention"]
    (one,) = config.explain(GEMMA3, layer_type="full_attention")
    assert one.facts["rope_theta"] == (1e6, "rope_theta")


def test_wavelengths_and_drift_are_reported():
    rope = Rope(scaling.proportional(ra.frequencies(8), 0.5), pairing="half")
    assert config.wavelengths(rope) == pytest.approx((2 * math.pi, 20 * math.pi, math.inf, math.inf))
    identity = Rope((0.0,) * 4, pairing="half", attention_factor=2.0)
    assert config.drift(rope, rope, 1000.0) == 0
    assert config.drift(rope, identity, 0.0) == 1
    a, b = Rope((1.0,), pairing="half"), Rope((1.5,), pairing="half")
    assert config.drift(a, b, 3.0) == pytest.approx(abs(np.exp(3j) - np.exp(4.5j)))
    with pytest.raises(ValueError, match="a and b must have the same number of pairs; got 4 and 1"):
        config.drift(rope, a, 1.0)


def test_modernize_returns_rope_parameters():
    phi = {
        "model_type": "phi3",
        "hidden_size": 128,
        "num_attention_heads": 1,
        "rope_theta": 1e4,
        "max_position_embeddings": 8192,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "su", "short_factor": [1.0] * 64, "long_factor": [2.0] * 64},
    }
    assert config.modernize(phi) == {
        "model_type": "phi3",
        "hidden_size": 128,
        "num_attention_heads": 1,
        "max_position_embeddings": 8192,
        "original_max_position_embeddings": 4096,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0] * 64,
            "long_factor": [2.0] * 64,
            "original_max_position_embeddings": 4096,
        },
    }
    nested = config.modernize({"model_type": "gemma3", "vision_config": {"a": 1}, "text_config": GEMMA3})
    assert nested["vision_config"] == {"a": 1}
    assert nested["text_config"]["rope_parameters"] == {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    }
    minimax = config.modernize({"model_type": "minimax_m2", "head_dim": 256, "rotary_dim": 64})
    assert minimax["rope_parameters"]["partial_rotary_factor"] == 0.25
    assert "rotary_dim" not in minimax
    gptj = {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "rotary_dim": 64}
    assert config.modernize(gptj) == gptj  # its class reads no rope_parameters


@given(st.integers(1, 256), st.integers(1, 256))
def test_modernize_keeps_any_rotary_dim(pairs, more):
    old = {"model_type": "minimax_m2", "head_dim": 2 * (pairs + more), "rotary_dim": 2 * pairs}
    assert Rope.from_config(config.modernize(old)) == Rope.from_config(old)


VARIATIONS = [
    {},
    {"rotary_dim": 64},
    {"rotary_dim": 128},
    {"rotary_dim": None},
    {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128},
    {"qk_rope_head_dim": 64, "head_dim": 128, "partial_rotary_factor": 0.5},
    {"head_dim": 128, "rotary_dim": 128},
    {"head_dim": 100, "partial_rotary_factor": 0.3},
    {"partial_rotary_factor": 1.0},
    {"partial_rotary_factor": 0.5, "rotary_dim": None},
    {"rope_scaling": {"rope_type": "proportional"}},
    {"rope_scaling": {"rope_type": "proportional", "partial_rotary_factor": 0.5}, "rope_parameters": None},
    {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
]


def modern_form_agrees(model):
    """Return whether a config can be read; if so, check that `modernize` keeps its rotation and is idempotent."""
    try:
        ropes = {one.layer_type: one.rope for one in config.explain(model)}
        if None in ropes.values():
            return False
    except (TypeError, ValueError):
        return False
    modern = config.modernize(model)
    assert {one.layer_type: one.rope for one in config.explain(modern)} == ropes
    assert config.modernize(modern) == modern
    return True


def test_modernize_writes_a_partial_rotary_factor_only_if_needed():
    mla = {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    assert config.modernize(mla)["rope_parameters"] == {"rope_type": "default", "rope_theta": 1e4}
    minimax = {"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 128}
    assert config.modernize(minimax)["rope_parameters"] == {"rope_type": "default", "rope_theta": 5e6}


def as_text_part(model):
    """Return a config with the given text part, whose rotary keys are repeated outside of it."""
    names = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
    return {"model_type": "llava", "text_config": model} | {name: model[name] for name in names if name in model}


@pytest.mark.parametrize(("number", "keys"), [*enumerate(VARIATIONS)], ids=str)
def test_modernize_keeps_the_rotation_of_all_models(number, keys):
    sizes = {"hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 4, "max_position_embeddings": 4096}
    models = [model["config"] for model in PUBLISHED if "model_type" in model["config"]]
    models += [sizes | {"model_type": name} for name in (*ROTARY_MODELS, "bert")]
    required = {key for key in ("rotary_dim", "qk_rope_head_dim") if keys.get(key)}  # not all models read them
    models = [model for model in models if required <= read_by(MODELS[model["model_type"]])]
    # with other keys, each model is tested in one of the two forms, since each takes milliseconds
    wholes, parts = (models[number % 2 :: 2], models[1 - number % 2 :: 2]) if keys else (models, models)
    forms = [*(model | keys for model in wholes), *(as_text_part(model | keys) for model in parts)]
    assert sum(map(modern_form_agrees, forms)) > len(models) // 8 > 0


# --- refusals -----------------------------------------------------------------------------------------------

DEEPLY_NESTED = []
for _ in range(100_000):
    DEEPLY_NESTED = [DEEPLY_NESTED]
SIZES = {"model_type": "llama", "max_position_embeddings": 4096}
WRONG = {
    "an unknown rope type": (
        LLAMA | {"rope_scaling": YARN | {"rope_type": "yarm"}},
        "rope_scaling.rope_type must be one of .*yarm'; did you mean yarn",
    ),
    "a rope type that is no name": (
        LLAMA | {"rope_scaling": {"type": 3}},
        "rope_scaling.type must be a name; got int 3",
    ),
    "types that disagree": (
        LLAMA | {"rope_scaling": YARN | {"type": "linear"}},
        "rope_scaling.type must agree with rope_scaling.rope_type, 'yarn'; got 'linear'",
    ),
    "a missing length": (
        LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
        "rope_scaling.original_max_position_embeddings must be given for rope type 'yarn'",
    ),
    "a missing factor": (LLAMA | {"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor must be given"),
    "a missing trained length": (
        {"model_type": "llama", "head_dim": 64, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "max_position_embeddings must be given for rope type 'dynamic'",
    ),
    "a bool": (
        LLAMA | {"rope_scaling": YARN | {"factor": True}},
        "rope_scaling.factor must be a real number; got bool True",
    ),
    "a string": (LLAMA | {"rope_theta": "10000"}, "rope_theta must be a real number; got str '10000'"),
    "NaN": (
        LLAMA | {"rope_scaling": YARN | {"beta_fast": math.nan}},
        "rope_scaling.beta_fast must be positive and finite; got nan",
    ),
    "infinity": (LLAMA | {"rope_theta": math.inf}, "rope_theta must be positive and finite; got inf"),
    "zero": (LLAMA | {"rope_scaling": YARN | {"factor": 0}}, "rope_scaling.factor must be positive"),
    "a negative factor": (LLAMA | {"rope_scaling": YARN | {"factor": -4.0}}, "rope_scaling.factor must be positive"),
    "a flag that is no bool": (
        LLAMA | {"rope_scaling": YARN | {"truncate": 1}},
        "rope_scaling.truncate must be True or False; got int 1",
    ),
    "a misspelt key": (
        LLAMA | {"rope_scaling": YARN | {"beta_fsat": 32.0}},
        "rope_scaling.beta_fsat must be a known name; got 'beta_fsat'; did you mean beta_fast?",
    ),
    "a key of other programs": (
        LLAMA | {"rope_scaling": {"type": "linear", "scaling_factor": 2.0}},
        "rope_scaling.scaling_factor must be a known name; got 'scaling_factor'; did you mean factor\\?$",
    ),
    "a misspelt key of another type": (
        LLAMA | {"rope_scaling": {"type": "linear", "beta_fsat": 32.0}},
        "rope_scaling.beta_fsat must be a known name; got 'beta_fsat'$",
    ),
    "a misspelt type key": (LLAMA | {"rope_scaling": {"rope_tpye": "yarn"}}, "did you mean rope_type"),
    **{
        f"M-RoPE of {model_type}": (
            {"model_type": model_type, "head_dim": 64, "rope_scaling": sections},
            f"; leave it out, or give a model_type whose positions have several axes{example}$",
        )
        for sections in ({"type": "mrope"}, {"mrope_section": [8, 12, 12]})
        for model_type, example in {"qwen2": ", such as qwen2_vl_text", "llama": ""}.items()
    },
    "a key of another type": (
        LLAMA | {"rope_scaling": {"rope_type": "default", "factor": 8.0}},
        r"rope_scaling.factor must not be given for rope type 'default' \(rope_scaling.rope_type\)$",
    ),
    "a key without a type": (
        LLAMA | {"rope_scaling": {"factor": 8.0}},
        "factor must not be given for rope type 'default'; give rope_type too, one of linear, dynamic, yarn, longrope,",
    ),
    "a key of another type, which has an older name": (
        LLAMA | {"rope_scaling": {"type": "su", "beta_fast": 32.0}},
        r"rope_scaling.beta_fast must not be given for rope type 'longrope' \(rope_scaling.type su\)$",
    ),
    "a missing key of a type with an older name": (
        LLAMA | {"rope_scaling": {"type": "su"}},
        r"rope_scaling.short_factor must be given for rope type 'longrope' \(rope_scaling.type su\)$",
    ),
    **{
        f"a factor that is a reciprocal, {kind}": (
            LLAMA | {"rope_scaling": {"rope_type": kind, "factor": 0.25, **keys}},
            "rope_scaling.factor must be at least 1; got 0.25; write 4.0$",
        )
        for kind, keys in {
            "linear": {},
            "dynamic": {},
            "yarn": {"original_max_position_embeddings": 1024},
            "llama3": {"original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        }.items()
    },
    "a factor below 1": (
        LLAMA | {"rope_scaling": {"rope_type": "linear", "factor": 0.7}},
        "rope_scaling.factor must be at least 1; got 0.7$",
    ),
    "M-RoPE for one axis": (
        LLAMA | {"rope_scaling": {"type": "mrope"}},
        "rope_scaling.type must be that of positions with one axis, as llama has; got 'mrope'",
    ),
    "an unknown name on rotary": (
        LLAMA | {"rope_tetha": 5e5},
        "rope_tetha must be left out: it is an unknown name about rotary embedding; got .*; did you mean rope_theta",
    ),
    "a name of another model": (
        LLAMA | {"rope_local_base_freq": 1e4},
        "rope_local_base_freq must not be given for llama, which does not read it; got 10000.0",
    ),
    **{
        f"{name}, of another model": (
            LLAMA | {name: value},
            f"{name} must not be given for llama, which does not read it; got {re.escape(str(value))}",
        )
        for name, value in {
            "no_rope_layers": [1, 0],
            "no_rope_layer_interval": 4,
            "layer_rope_theta": [1, 0],
            "indexer_rope_interleave": True,
            "rotary_pct": 0.5,
            "rope_pct": 0.5,
            "rotary_emb_fraction": 0.5,
            "partial_rotary_factors": [0.5],
            "rotary_dim": 64,
            "attn_rotary_emb": 64,
            "qk_rope_head_dim": 64,
            "rotary_emb_base": 777,
            "rotary_embedding_base": 777,
            "use_mem_rope": False,
        }.items()
    },
    **{
        f"a type of other programs, {name}": (
            LLAMA | {"rope_scaling": {"rope_type": name}},
            f"got '{name}'; write {replacement}",
        )
        for name, replacement in {
            "pi": "linear",
            "NTK-aware": "dynamic, or raise rope_theta",
            "deepseek_yarn": "yarn",
            "su_rope": "longrope$",
            "abf": "default, and raise rope_theta$",
            "xpos": "default, and bend the table by rope_any.bending.xpos",
            "fope": "default, and bend the table by rope_any.bending.fope",
        }.items()
    },
    "a model of a hub": ("someone/some-model-8B", "there is none at someone/some-model-8B; nothing is fetched"),
    "a model": (
        SimpleNamespace(config=SimpleNamespace(to_dict=dict)),
        "be the config of a model; got the model; give model.config",
    ),
    "a class of configs": (type("Config", (), {"to_dict": dict}), "got the class Config; give an instance$"),
    "the text of a file": ('{"a": 1}', r'there is none at {"a": 1}; give json.loads\(config\) if it is JSON$'),
    "the bytes of a file": (b"{}", r"; got bytes b'{}'; give json.loads\(config\) if it is JSON$"),
    "an open file": (io.StringIO("{}"), r"; got StringIO .*; give json.load\(config\) if it is JSON$"),
    "a namespace": (SimpleNamespace(**LLAMA), r"; got SimpleNamespace; give vars\(config\)$"),
    "a number": (3, r"config must be a dict, .* with to_dict\(\); got int 3$"),
    "an address": ("https://hf.co/a/config.json", "there is none at https://hf.co/a/config.json; nothing is fetched"),
    "a path with a tilde": ("~/m/config.json", r"/config.json; ~ is not expanded: give os.path.expanduser\(path\)$"),
    "a rope type as parameters": (
        LLAMA | {"rope_scaling": "linear"},
        "must be an object or null; got str 'linear'; write {'rope_type': 'linear', 'factor': ...}$",
    ),
    "JSON text as parameters": (LLAMA | {"rope_scaling": "{}"}, "; got str '{}'; give json.loads of it if it is JSON$"),
    "other text as parameters": (LLAMA | {"rope_scaling": "half"}, "must be an object or null; got str 'half'$"),
    "parameters that are no object": (
        LLAMA | {"rope_parameters": [1]},
        "rope_parameters must be an object or null; got list",
    ),
    "flat and by layer": (
        LLAMA | {"rope_parameters": {"full_attention": {}, "rope_theta": 1e4}},
        "rope_parameters must have either only objects, one for each kind of layer, or none",
    ),
    "old and new that disagree": (
        LLAMA | {"rope_parameters": YARN, "rope_scaling": YARN | {"factor": 8.0}},
        "rope_scaling must agree with rope_parameters",
    ),
    "two bases": (
        LLAMA | {"rope_theta": 1e6, "rope_parameters": {"rope_theta": 1e4}},
        "rope_theta must agree with rope_parameters.rope_theta",
    ),
    "two partial rotary factors": (
        GPT | {"rotary_pct": 0.5, "partial_rotary_factor": 0.25},
        "rotary_pct must agree with partial_rotary_factor",
    ),
    "a partial rotary factor and a rotary_dim": (
        GPTJ | {"rotary_dim": 64, "partial_rotary_factor": 0.25},
        "rotary_dim must agree with partial_rotary_factor, which gives 32; got 64",
    ),
    "a partial rotary factor that gives an odd number": (
        LLAMA | {"head_dim": 42, "partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        "partial_rotary_factor must give an even number of features; got 21",
    ),
    "a flag that is not supported": (
        LLAMA | {"use_mrope": True},
        "use_mrope must be False, the only supported value; got True",
    ),
    "a flag against the model": (
        LLAMA | {"rope_interleaved": True},
        "rope_interleaved must agree with llama, whose pairing is 'half'",
    ),
    "scaling outside of the part that is read": (
        {"model_type": "qwen2_5_vl", "rope_scaling": YARN, "text_config": LLAMA | {"model_type": "qwen2_5_vl_text"}},
        "rope_scaling must be in text_config: only that part is read, and it has none",
    ),
    "a partial rotary factor outside of the part that is read": (
        {"model_type": "llava", "partial_rotary_factor": 0.5, "text_config": LLAMA},
        "partial_rotary_factor must be in text_config: only that part is read, and it has none",
    ),
    "an older base outside of the part that is read": (
        {"model_type": "llava", "rotary_emb_base": 1e6, "text_config": LLAMA},
        "rotary_emb_base must be in text_config: only that part is read, and it has none",
    ),
    "a rotary key of a model without rotary": (
        {"model_type": "xlm-roberta", "rotary_emb_base": 20_000},
        "rotary_emb_base must not be given for xlm-roberta, which has no rotary embedding; got 20000",
    ),
    "a thousand kinds of layers": (
        LLAMA | {"rope_parameters": {f"kind {i}": {"rope_type": "default"} for i in range(1000)}},
        "rope_parameters must have at most 64 kinds of layers; got 1000",
    ),
    "a million sections": (
        QWEN_VL | {"rope_scaling": {"type": "mrope", "mrope_section": [1] * 10**6}},
        "sections must be positive and sum to the number of pairs, 64; got list",
    ),
    "a base of GGUF that is no number": (
        gguf("llama", rope__freq_base=math.nan),
        "llama.rope.freq_base must be positive",
    ),
    "a factor of GGUF that is no number": (
        gguf("llama", rope__scaling__factor=True),
        "llama.rope.scaling.factor must be a real number",
    ),
    "sections of GGUF that are no list": (
        gguf("qwen2vl", rope__dimension_sections="abc"),
        "qwen2vl.rope.dimension_sections must be a list",
    ),
    "a rope type that is a list, around the text": (
        {
            "model_type": "qwen2_vl",
            "rope_scaling": {"type": ["linear"]},
            "text_config": {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2.0}},
        },
        "rope_scaling must agree with text_config, the part that is read",
    ),
    "two bases nested too deeply": (
        LLAMA | {"rope_theta": 1e4, "rope_parameters": {"rope_theta": DEEPLY_NESTED}},
        "rope_theta must agree with rope_parameters.rope_theta",
    ),
    "longrope without a factor or a length": (
        {key: value for key, value in LONG.items() if key != "max_position_embeddings"},
        "max_position_embeddings must be given for rope type 'longrope' without a factor",
    ),
    "a million factors": (
        LONG | {"rope_scaling": LONG["rope_scaling"] | {"long_factor": [1.0] * 10**6}},
        "rope_scaling.long_factor must have one number for each pair; got 1000000",
    ),
    "sections that are no list": (
        QWEN_VL | {"rope_scaling": {"type": "mrope", "mrope_section": "16, 24, 24"}},
        "rope_scaling.mrope_section must be a list of integers; got str",
    ),
    "a factor above 1": (LLAMA | {"partial_rotary_factor": 1.5}, "partial_rotary_factor must be at most 1; got 1.5"),
    "a factor near 0": (LLAMA | {"partial_rotary_factor": 1e-6}, "must be from 1 to 128 features; got 0"),
    "a rotary_dim above head_dim": (GPTJ | {"rotary_dim": 130}, "rotary_dim must be from 1 to 128 features; got 130"),
    "an odd head_dim": (SIZES | {"head_dim": 65}, "head_dim must give an even number of features; got 65"),
    "a head_dim of 0": (SIZES | {"head_dim": 0}, "head_dim must be from 2 to 4096; got 0"),
    "a float head_dim": (SIZES | {"head_dim": 64.0}, "head_dim must be an integer; got float 64.0"),
    "a million pairs": (SIZES | {"head_dim": 2_000_000}, "head_dim must be from 2 to 4096"),
    "a number too long to be shown": (
        SIZES | {"head_dim": 10**5000},
        "head_dim must be an integer that 64 bits hold",
    ),
    "no head_dim and no hidden_size": (SIZES, "head_dim must be given, or hidden_size to derive it"),
    "no number of heads": (SIZES | {"hidden_size": 64}, "head_dim must be given, or num_attention_heads to derive it"),
    "no heads": (SIZES | {"hidden_size": 64, "num_attention_heads": 0}, "num_attention_heads must be positive"),
    "a list of the wrong length": (
        LONG | {"head_dim": 64},
        "short_factor must have one number for each of 32 pairs; got 64",
    ),
    "a list with a zero": (
        LONG | {"rope_scaling": LONG["rope_scaling"] | {"long_factor": [0.0] * 64}},
        "rope_scaling.long_factor must be positive",
    ),
    "a string in place of a list": (
        LONG | {"rope_scaling": LONG["rope_scaling"] | {"long_factor": "1, 2"}},
        "rope_scaling.long_factor must be a list of numbers; got str '1, 2'",
    ),
    "sections that don't sum up": (
        QWEN_VL | {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 23]}},
        "rope_scaling.mrope_section: sections must be positive and sum to the number of pairs, 64",
    ),
    "sections of zero": (
        QWEN_VL | {"rope_scaling": {"type": "mrope", "mrope_section": [0, 40, 24]}},
        "sections must be positive",
    ),
    "float sections": (
        QWEN_VL | {"rope_scaling": {"type": "mrope", "mrope_section": [16.0, 24, 24]}},
        "sections must be an integer; got float",
    ),
    "sections for one axis": (
        LLAMA | {"rope_scaling": {"mrope_section": [16, 24, 24]}},
        "must not be given for llama, whose positions have one axis",
    ),
    "strided sections of a chunked model": (
        QWEN_VL | {"rope_scaling": {"type": "mrope", "mrope_interleaved": True}},
        "rope_scaling.mrope_interleaved must agree with qwen2_vl_text",
    ),
    "sections of a model without a rotation": (
        QWEN_VL
        | {
            "model_type": "hunyuan_vl_text",
            "rope_scaling": {"type": "xdrope", "alpha": 1e3, "xdrope_section": [16] * 4},
        },
        "no rotation",
    ),
    "a partial rotary factor that contradicts qk_rope_head_dim": (
        LLAMA | {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "partial_rotary_factor": 0.3},
        "partial_rotary_factor must give the 64 features of qk_rope_head_dim",
    ),
    "a missing default scaling": (
        {"model_type": "gpt_oss", "head_dim": 64},
        "rope_parameters must be given for gpt_oss",
    ),
    "flat parameters of layers that differ": (
        GEMMA3 | {"rope_scaling": None, "rope_parameters": {"rope_theta": 1e4}},
        "rope_parameters must be by kind of layer for gemma3_text: sliding_attention, full_attention",
    ),
    "no model_type": ({"head_dim": 64}, "model_type must be given, since it decides the rotation"),
    "no model_type, but parts": ({"encoder": {"model_type": "t5"}}, "its parts may be read separately: encoder"),
    "a model_type that is no name": ({"model_type": 3}, "model_type must be a name; got int 3"),
    "nested too deeply": (
        LLAMA | {"rope_scaling": {"type": "linear", "factor": DEEPLY_NESTED}},
        "rope_scaling.factor must be a real number; got list",
    ),
    "a base nested too deeply": (
        LLAMA | {"rope_theta": DEEPLY_NESTED},
        "rope_theta.0. must be a number, or a list with one for each layer; got",
    ),
    "frequencies out of range": (LLAMA | {"rope_theta": 1e-50}, "frequencies must be at most 65536"),
    "a base out of range": (LLAMA | {"rope_theta": 1e-300}, "rope_theta must be from 1e-100 to 1e100; got 1e-300"),
    "an original length out of range": (
        LLAMA | {"rope_scaling": YARN | {"beta_slow": 1e-323, "original_max_position_embeddings": 1e300}},
        "original_max_position_embeddings must be from 1e-100 to 1e100; got 1e.300",
    ),
    "a list": ([], "config must be a dict, a path to a config.json or an object with to_dict"),
    "nothing": (None, "config must be a dict"),
    "a path to nothing": ("no/such/file.json", "there is none at no/such/file.json$"),
    "a folder without one": (Path(__file__).parent, f"there is none in {re.escape(str(Path(__file__).parent))}$"),
    "a path with a null character": ("a\0b", "must be a path to a config.json"),
    "a long path of several lines": ("ab\n" * 30, r"there is none at '(ab\\n){30}'$"),
    "keys that are no names": ({1: 2, "model_type": "llama"}, "config must have names as keys; got int 1"),
    "an architecture of GGUF": (
        {"general.architecture": "lama"},
        "general.architecture must be one whose pairing is known; got 'lama'; read the config.json",
    ),
    "a key of GGUF": (
        gguf("llama", rope__freq_bse=1e4),
        "llama.rope.freq_bse must be a known name; .*did you mean rope.freq_base",
    ),
    "factors that are tensors": (
        gguf("phi3", rope__scaling__attn_factor=1.19),
        "must have its scaling in the metadata",
    ),
    "longrope of GGUF": (gguf("minicpm", rope__scaling__type="longrope"), "must have its scaling in the metadata"),
    "longrope of GGUF without its type": (
        gguf("phi3", rope__scaling__original_context_length=4096),
        "rope_factors_short.weight up to 4096 tokens, rope_factors_long.weight beyond",
    ),
    "longrope of GGUF without its original length": (gguf("phi3"), "rope_factors_short.weight up to 4096 tokens"),
    "longrope of MiniCPM3": (gguf("minicpm3"), "rope_factors_short.weight up to the trained length"),
    "an attention factor that llama.cpp does not read": (
        gguf("olmo2", rope__scaling__factor=8.0, rope__scaling__yarn_attn_factor=1.5, **YARN_KEYS),
        "olmo2.rope.scaling.yarn_attn_factor must equal what llama.cpp derives from the factor, 1.2079",
    ),
    "an architecture like a known one": (
        {"general.architecture": "exaone-moe"},
        "must be one whose pairing is known; got 'exaone-moe'; read the config.json",
    ),
    "heads of a hybrid in one number": (
        gguf("lfm2", attention__head_count_kv=8),
        "lfm2.attention.head_count_kv must be a list, with 0 for each layer without attention; got 8",
    ),
    "layers without heads": (
        gguf("qwen3", attention__head_count_kv=[8, 0, 8, 0]),
        "qwen3.attention.head_count_kv must have no 0 for architecture qwen3",
    ),
    **{
        f"{key} of another architecture": (
            gguf("qwen3", **{key: value}),
            f"qwen3.{key.replace('__', '.')} must not be given for architecture qwen3, .* read the config.json",
        )
        for key, value in {
            "full_attention_interval": 4,
            "attention__recurrent_layers": [True],
            "attention__sliding_window_pattern": [True],
            "attention__rope_pattern": [True],
            "attention__key_length_swa": 64,
            "rope__dimension_count_swa": 64,
            "rope__scaling__yarn_ext_factor": 1.0,
            "rope__scaling__yarn_log_multiplier": 0.1,
            "rope__scaling__alpha": 1000.0,
            "ssm__conv_kernel": 4,
            "shortconv__l_cache": 3,
            "kda__head_dim": 128,
        }.items()
    },
    "no window of Llama 4": (
        gguf("llama4", attention__sliding_window=0),
        "llama4.attention.sliding_window must not be 0",
    ),
    "a base of sliding layers": (
        gguf("gpt-oss", rope__freq_base_swa=1e4),
        "gpt-oss.rope.freq_base_swa must equal rope.freq_base: gpt-oss has one base",
    ),
    "an architecture that is no name": ({"general.architecture": 3}, "general.architecture must be a name"),
    "a type of GGUF that is no name": (gguf("llama", rope__scaling__type=3), "llama.rope.scaling.type must be a name"),
    "two bases of one model": (
        {"model_type": "dbrx", "d_model": 64, "n_heads": 1, "rope_theta": 1e4, "attn_config": {"rope_theta": 5e5}},
        "attn_config.rope_theta must agree with rope_theta",
    ),
    "sections with different height and width": (
        {"model_type": "ernie4_5_vl_moe_text", "head_dim": 128, "rope_scaling": {"mrope_section": [20, 24, 20]}},
        "with equal numbers for height and width",
    ),
    "sections, if axes alternate": (
        {"model_type": "neomme", "rope_scaling": {"rope_type": "default", "mrope_section": [16, 16]}},
        "mrope_section must not be given for neomme: its class does not use them",
    ),
    "sections that can't be strided": (
        QWEN_VL | {"model_type": "qwen3_vl_text", "rope_scaling": {"mrope_section": [4, 30, 30]}},
        "sections must fit 64 pairs assigned alternately",
    ),
    "a type of GGUF": (
        gguf("llama", rope__scaling__type="yarm", rope__scaling__factor=2.0),
        "llama.rope.scaling.type must be one of",
    ),
}


@pytest.mark.parametrize("model_type", [None, "our_model"])
@pytest.mark.parametrize(("key", "value"), [("no_rope_layers", [1, 0]), ("rope_local_base_freq", 1e4)])
def test_a_key_of_single_models_needs_a_known_model(model_type, key, value):
    message = f"{key} must not be given for an unknown model_type: only the model's code says what it does; got"
    with pytest.raises(ValueError, match=message):
        config.layers(STATED | {"model_type": model_type, "head_dim": 64, key: value}, pairing="half")


# Configs from which two programs read different rotations, and what the error says of both.
TWO_READINGS = {
    "a base in rope_parameters, a scaling in rope_scaling": (
        LLAMA | {"rope_parameters": {"rope_theta": 5e5}, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        "rope_scaling must agree with rope_parameters: transformers reads rope_scaling alone, .*; got .* and .*; keep",
    ),
    "a rope_scaling that is not complete": (
        LLAMA | {"rope_parameters": {"rope_type": "linear", "factor": 2.0}, "rope_scaling": {"type": "linear"}},
        "got rope_scaling alone: rope_scaling.factor must be given",
    ),
    "a share that only other programs read": (
        LLAMA | {"partial_rotary_factor": 0.5},
        "partial_rotary_factor must be 1: without scaling, .* rotates all 128 .*the first 64 shall rotate, as in vLLM",
    ),
    "a share in rope_parameters": (
        LLAMA | {"model_type": "qwen3", "head_dim": 128, "rope_parameters": {"partial_rotary_factor": 0.25}},
        "rope_parameters.partial_rotary_factor must be 1: .* all 128 features of qwen3; got 0.25; .* the first 32",
    ),
    "alpha for a model whose code has none": (
        LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0, "alpha": 5.0}},
        "rope_scaling.alpha must not be given for llama, whose code does not read it: others multiply the base by",
    ),
    "mscales of longrope": (
        LONG | {"rope_scaling": LONG["rope_scaling"] | {"short_mscale": 1.2, "long_mscale": 1.5}},
        "short_mscale must not be given for llama, whose code does not read it: others multiply cos and sin",
    ),
    "two original lengths": (
        LLAMA | {"original_max_position_embeddings": 512, "rope_scaling": YARN},
        "rope_scaling.original_max_position_embeddings must agree with original_max_position_embeddings, 512; got 1024",
    ),
    "an original length in the scaling, and another as the class's default": (
        LONG
        | {"model_type": "phi3", "rope_scaling": LONG["rope_scaling"] | {"original_max_position_embeddings": 2048}},
        "original_max_position_embeddings must agree with default of phi3, 4096; got 2048",
    ),
    "an old base for two kinds of layers": (
        LLAMA | {"model_type": "olmo3", "num_hidden_layers": 4, "rope_theta": 1e4},
        "rope_theta must agree with what transformers uses .* got 10000.0 .* and 500000.0 .default of olmo3",
    ),
    "rope_theta in gpt_neox": (
        GPT | {"rope_theta": 5e5},
        "rope_theta must agree .* its gpt_neox class .*; got 500000.0 .*; give it in rope_param.*; if not",
    ),
    "a base for sliding layers that the class does not read": (
        {"model_type": "mimo_v2_flash", "num_hidden_layers": 4, "layer_types": ["sliding_attention"] * 4}
        | {"swa_rope_theta": 777.0},
        "swa_rope_theta must agree .* its mimo_v2_flash class .*; got 777.0 .swa_rope_theta. and 10000.0",
    ),
    "a base of a class with a constant one": (
        GPTJ | {"rope_theta": 5e5},
        "rope_theta must agree .* its gptj class .*; got 500000.0",
    ),
    "a scaling by an older name that the class does not read": (
        GEMMA3 | {"rope_scaling": {"type": "linear", "factor": 8.0}},
        "rope_scaling must agree .* its gemma3_text class .*; got 'linear' .* and 'default'",
    ),
    "a base that only the model's own code reads": (
        {"model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "rotary_emb_base": 1e4},
        "rotary_emb_base must agree .*; give it in rope_parameters if the weights were trained with it; if not, leave",
    ),
    "a width of the head that the class does not read": (
        LLAMA | {"model_type": "deepseek_ocr2_text", "head_dim": 96},
        "head_dim must agree with what transformers uses .*; got 96 .head_dim. and 128 .*; leave it out$",
    ),
    "a head that is not the rotary slice": (
        {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "head_dim": 192},
        "head_dim must agree with qk_rope_head_dim, 64; got 192",
    ),
    "a share of both slices, which the class reads as one of the rotary slice": (
        {"model_type": "mistral_large4_text", "qk_rope_head_dim": 64, "qk_nope_head_dim": 64}
        | {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}},
        "rope_parameters.partial_rotary_factor must give the 64 features of qk_rope_head_dim; got 0.5",
    ),
    "a slice whose share is not read": (
        {"model_type": "mistral4", "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        "partial_rotary_factor must be given, with a rope type other than default: if not, the class's table .*; got",
    ),
    "pairs of a slice without rotation": (
        {"model_type": "deepseek_v3", "rope_scaling": {"rope_type": "proportional", "partial_rotary_factor": 0.5}},
        "rope_scaling.rope_type must not be proportional with a rotary slice: that type is for whole heads",
    ),
    "one scaling for kinds of layers with two bases": (
        {"model_type": "dots3_note_text", "num_hidden_layers": 2}
        | {"layer_types": ["sliding_attention", "indexed_attention"], "rope_scaling": {"rope_type": "default"}},
        "rope_scaling must be by kind of layer for dots3_note_text: sliding_attention, indexed_attention",
    ),
    "rotary that only llm-foundry knows": (
        {"model_type": "mpt", "d_model": 64, "n_heads": 1, "attn_config": {"rope": True, "alibi": False}},
        "attn_config.rope must be False, .*; got True; llm-foundry rotates with it, but the class of transformers does",
    ),
}


@pytest.mark.parametrize("name", TWO_READINGS)
def test_a_config_with_two_readings_is_refused_with_both(name):
    model, message = TWO_READINGS[name]
    with pytest.raises(ValueError, match=message):
        config.explain(model)


SEVERAL_KEYS_WITH_ONE_READING = {
    "equal parameters": LLAMA | {"rope_parameters": {"rope_theta": 1e4}, "rope_scaling": {"type": "default"}},
    "a share of 1": LLAMA | {"partial_rotary_factor": 1.0},
    "the base of the class": {"model_type": "gpt_neox", "head_dim": 128, "rotary_pct": 1.0, "rope_theta": 1e4},
    "the constant base": LLAMA | {"model_type": "roformer", "head_dim": 128, "rope_theta": 1e4, "rope_scaling": None},
    "no rope": LLAMA | {"attn_config": {"rope": False}},
}


@pytest.mark.parametrize("name", SEVERAL_KEYS_WITH_ONE_READING)
def test_a_key_that_changes_nothing_is_accepted(name):
    assert Rope.from_config(SEVERAL_KEYS_WITH_ONE_READING[name]).frequencies == F


@pytest.mark.parametrize("key", ["beta_fast", "beta_slow", "mscale", "mscale_all_dim"])
def test_dynamic_refuses_keys_that_nothing_reads(key):
    with pytest.raises(ValueError, match=f"rope_scaling.{key} must not be given for rope type 'dynamic'"):
        Rope.from_config(LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0, key: 0.5}})


@pytest.mark.parametrize("name", WRONG)
def test_wrong_configs_are_refused_in_one_sentence(name):
    model, message = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        Rope.from_config(model)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_flat_parameters_are_refused_if_layers_must_differ():
    flat = GEMMA3 | {"rope_scaling": None, "rope_parameters": {"rope_theta": 1e4}}
    with pytest.raises(ValueError, match="rope_parameters must be by kind of layer for gemma3_text: sliding_attention"):
        Rope.from_config(flat, layer_type="full_attention")


def test_modernize_refuses_what_rope_parameters_cannot_express():
    with pytest.raises(ValueError, match="config must be that of transformers; got the metadata of a GGUF file"):
        config.modernize(gguf("llama"))
    without_rotary = {"model_type": "olmo_hybrid", "head_dim": 64, "num_hidden_layers": 4, "rope_theta": None}
    modern = config.modernize(without_rotary)
    assert modern["rope_parameters"] == {"rope_type": "default", "rope_theta": None}
    assert no_rotary(without_rotary) and no_rotary(modern)


def test_wrong_arguments_of_axes_and_drift_are_refused():
    for call, kind, message in (
        (lambda: ra.axes.alternating(F, 65), ValueError, "axes must be from 1 to the number of pairs, 64; got 65"),
        (lambda: ra.axes.alternating(F, 2.0), TypeError, "axes must be an integer"),
        (lambda: ra.axes.chunked(F, 64), TypeError, "sections must be a sequence of integers; got int"),
        (lambda: ra.axes.strided(F, [64, 0]), ValueError, "sections must be positive"),
        (lambda: config.drift(F, F, 1.0), TypeError, "a must be a Rope; got tuple$"),
        (
            lambda: config.drift(Rope.from_config(LLAMA), LLAMA, 1.0),
            TypeError,
            r"b must be a Rope; got dict.*; give Rope.from_config\(config\)$",
        ),
        (lambda: config.wavelengths(F), TypeError, "rope must be a Rope; got tuple$"),
    ):
        with pytest.raises(kind, match=message):
            call()


def test_a_layer_type_without_parameters_is_refused():
    laguna = {
        "model_type": "laguna",
        "num_hidden_layers": 2,
        "layer_types": ["full_attention", "sliding_attention"],
        "rope_parameters": {"full_attention": {"rope_type": "default"}},
    }
    for read in (lambda: Rope.from_config(laguna, layer_type="sliding_attention"), lambda: config.layers(laguna)):
        with pytest.raises(ValueError, match="rope_parameters must have an entry for str 'sliding_attention'"):
            read()


@pytest.mark.parametrize("length", [0, -1, 2.5, True, "4096", 2**60])
def test_wrong_lengths_are_refused(length):
    with pytest.raises((TypeError, ValueError), match="sequence_length must be"):
        Rope.from_config(LONG, sequence_length=length)


FILES = {
    "no JSON": (b'{"model_type": "llama", ', "config.json must be a config.json; .*: line 1 column 25"),
    "a list": (b"[1, 2]", "must hold a JSON object; got list"),
    "nothing": (b"", "config.json must be a config.json; it is empty$"),
    "no UTF-8": (b'{"model_type": "\xff"}', "not in UTF-8"),
    "a key twice": (b'{"model_type": "llama", "rope_theta": 1, "rope_theta": 2}', "key twice; got 'rope_theta'"),
    "nested too deeply": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    "a number of thousands of digits": (b'{"head_dim": ' + b"9" * 5000 + b"}", "must be a config.json"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_not_configs_are_refused(name, tmp_path):
    content, message = FILES[name]
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        Rope.from_config(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("m.gguf", "give the metadata of a GGUF file as a dict"),
        ("m.safetensors", "give the config.json beside the weights"),
        ("m.yaml", "give its content as a dict"),
    ],
)
def test_files_of_other_kinds_have_a_hint(name, hint, tmp_path):
    for size, got in ((8, "; "), (100 * 2**20, " of at most 67108864 bytes; got 104857600; ")):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
        with pytest.raises(ValueError, match=f"{name} must be a config.json{got}{hint}$"):
            Rope.from_config(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("snapshots", "give one of the folders in its snapshots"), ("model_index.json", "a pipeline .* no text model")],
)
def test_folders_of_other_kinds_have_a_hint(name, hint, tmp_path):
    (tmp_path / name).touch()
    for function in (config.modernize, lambda folder: config.advise(folder, 8192)):
        with pytest.raises(ValueError, match=f"there is none in {re.escape(str(tmp_path))}; {hint}$"):
            function(tmp_path)


def test_a_file_of_100_megabytes_is_not_read(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    with pytest.raises(ValueError, match=r"must be a config.json of at most 67108864 bytes; got 104857600"):
        Rope.from_config(path)


def test_wrong_lists_of_layers_are_refused():
    with pytest.raises(TypeError, match="layer_types must be a list of names; got str 'full'"):
        config.layers(LLAMA | {"num_hidden_layers": 2, "layer_types": "full"})
    two = {"model_type": "granite_swa", "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
    with pytest.raises(ValueError, match="layer_rope_theta must have an entry for layer 1; got 1 entries"):
        config.layers(LLAMA | two | {"layer_rope_theta": [1e4]})


def test_too_large_and_missing_numbers_of_layers_are_refused():
    with pytest.raises(ValueError, match=r"num_hidden_layers must be from 1 to 1024; got 1000000000000"):
        config.layers(LLAMA | {"num_hidden_layers": 10**12})
    with pytest.raises(ValueError, match="num_hidden_layers must be given"):
        config.layers(LLAMA)
    with pytest.raises(ValueError, match="layer_types must have 4 entries, one for each layer; got 1"):
        config.layers(LLAMA | {"num_hidden_layers": 4, "layer_types": ["full_attention"]})
    assert len(config.layers(LLAMA | {"num_hidden_layers": 1024})) == 1024


FOUR_HEADS = {"head_dim": 64, "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4}
WRONG_LISTS = {
    "too few flags": ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers must have an entry for layer 2"),
    "a flag of 2": ("smollm3", {"no_rope_layers": [1, 0, 2, 1]}, r"no_rope_layers\[2\] must be 0 or 1; got 2"),
    "too few flags of chunks": (
        "llama4_text",
        {"no_rope_layers": [1]},
        "no_rope_layers must have an entry for layer 1",
    ),
    "too few bases": (
        "muse_spark_text",
        {"layer_rope_theta": [1e4]},
        "layer_rope_theta must have an entry for layer 1",
    ),
    "a negative base": (
        "granite_swa",
        {"layer_rope_theta": [1e4, 0, -1, 1]},
        r"layer_rope_theta\[2\] must be positive",
    ),
    "too few windows": ("ultrabert", {"attention_windows": [128]}, "attention_windows must have 4 entries"),
    "a type of MLP": (
        "cohere2_moe",
        {"layer_types": ["full_attention"] * 4, "mlp_layer_types": ["dense", "moe", "sparse", "sparse"]},
        r"mlp_layer_types\[1\] must be 'dense' or 'sparse'",
    ),
    "a misspelt type": ("cohere2", {"layer_types": ["sliding_atention"] * 4}, "did you mean sliding_attention"),
    "an unknown type": ("llama", {"layer_types": ["a", "b", "c", "d"]}, r"layer_types\[0\] must be a known name"),
    "a misspelt kind": (
        "laguna",
        {"layer_types": ["full_attention"] * 4, "rope_parameters": {"ful_attention": {"rope_theta": 1e4}}},
        "rope_parameters.ful_attention must be a known name.*did you mean full_attention",
    ),
    "a parameter as a kind": (
        "llama",
        {"rope_parameters": {"rope_type": {"rope_theta": 1e4}}},
        "rope_parameters.rope_type must not be an object, since it is a parameter",
    ),
    "an unknown ratio": (
        "deepseek_v4",
        {"compress_ratios": [0, 4, 8, 4]},
        r"compress_ratios\[2\] must be 0 or 4 or 128",
    ),
}


@pytest.mark.parametrize("name", WRONG_LISTS)
def test_lists_by_layer_must_have_a_valid_entry_for_each_layer(name):
    model_type, keys, message = WRONG_LISTS[name]
    with pytest.raises(ValueError, match=message):
        config.layers({"model_type": model_type, **FOUR_HEADS, **keys})


def test_layer_types_of_deepseek_v4_are_those_of_transformers():
    transformers = pytest.importorskip("transformers", minversion="5.23", reason="DeepSeek-V4 came with 5.23")
    for keys in ({}, {"compress_ratios": [0, 4, 128, 4, 0, 128, 0]}, {"compress_ratios": [0] * 6}):
        six = {"model_type": "deepseek_v4", "head_dim": 512, "num_hidden_layers": 6, **keys}
        theirs = transformers.DeepseekV4Config(**{k: v for k, v in six.items() if k != "model_type"})
        assert config.layers(six) == config.layers(theirs.to_dict())
        explained = {i: one.layer_type for one in config.explain(six) for i in one.layers}
        assert [explained[i] == "main" for i in range(6)] == [
            kind == "sliding_attention" for kind in theirs.layer_types
        ]


def test_layers_of_llama4_without_chunks_have_full_attention():
    transformers = pytest.importorskip("transformers", minversion="5.24", reason="before, their type was chunked")
    model = {"model_type": "llama4_text", "num_hidden_layers": 6, "attention_chunk_size": None}
    theirs = transformers.Llama4TextConfig(num_hidden_layers=6, attention_chunk_size=None).to_dict()
    assert config.layers(model) == config.layers(theirs)
    ours, those = (Rope.from_config(keys, layer_type="full_attention") for keys in (model, theirs))
    assert ours == those


def test_layers_of_lara_mini_equal_those_of_transformers():
    transformers = pytest.importorskip("transformers", minversion="5.24", reason="Lara 4 Mini came with 5.24")
    theirs = transformers.CONFIG_MAPPING["lara_mini"](num_hidden_layers=13).to_dict()
    assert config.layers({"model_type": "lara_mini", "num_hidden_layers": 13}) == config.layers(theirs)


def test_a_published_sarvam_mla_is_read_as_by_transformers():
    transformers = pytest.importorskip("transformers", minversion="5.24", reason="Sarvam came with 5.24")
    scaling = {"type": "deepseek_yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32}
    scaling["original_max_position_embeddings"] = 4096
    older = {"head_dim": 576, "q_head_dim": 192, "rope_theta": 10_000, "rope_scaling": scaling}
    theirs = transformers.CONFIG_MAPPING["sarvam_mla"](**copy.deepcopy(older)).to_dict()
    ours = {"model_type": "sarvam_mla", **older}
    assert Rope.from_config(ours) == Rope.from_config(theirs)
    assert config.score_scale(ours) == config.score_scale(theirs)


def test_layers_without_rotary_have_a_score_scale():
    cohere = {"model_type": "cohere2", **FOUR_HEADS}
    assert config.score_scale(cohere, layer_type="full_attention") == config.score_scale(cohere) == 0.125
    with pytest.raises(ValueError, match="have rotary embedding"):
        config.score_scale({"model_type": "qwen3_next", **FOUR_HEADS}, layer_type="linear_attention")


SCALED = {"original_max_position_embeddings": 1024, "factor": 4.0, "rope_theta": 1e4}
WRONG_SCHEMES = {
    "a base of 1": ({"rope_type": "yarn", "rope_theta": 1.0}, "rope_parameters.rope_theta must not be 1"),
    "a trained length of 1": (
        {
            "rope_type": "longrope",
            "original_max_position_embeddings": 1,
            "short_factor": [1.0] * 32,
            "long_factor": [1.0] * 32,
        },
        "rope_parameters.original_max_position_embeddings must be more than one token",
    ),
    "ends of a ramp": (
        {"rope_type": "llama3", "low_freq_factor": 4.0, "high_freq_factor": 1.0},
        "rope_parameters.high_freq_factor must be at least `low_freq_factor`",
    ),
}


@pytest.mark.parametrize("name", WRONG_SCHEMES)
def test_errors_of_a_scheme_name_the_key(name):
    parameters, message = WRONG_SCHEMES[name]
    with pytest.raises(ValueError, match=message):
        Rope.from_config({"model_type": "llama", **FOUR_HEADS, "rope_parameters": SCALED | parameters})


@pytest.mark.parametrize(("depth", "message"), [("27", "27 without quotes"), (-3, "from 1 to 1024"), (None, "given")])
def test_a_wrong_number_of_layers_of_a_tower_is_refused_for_its_layers(depth, message):
    vision = {"model_type": "qwen2_5_vl", "vision_config": {"depth": depth, "hidden_size": 128, "num_heads": 4}}
    assert Rope.from_config(vision, part="vision")
    with pytest.raises((TypeError, ValueError), match=f"^vision_config.(depth|num_hidden_layers) must be .*{message}"):
        config.layers(vision, part="vision")


HINTS = {
    "diffusers without its class": ({"_diffusers_version": "0.40", "num_layers": 3}, "_class_name, which decides it"),
    "a VAE": ({"_class_name": "AutoencoderKL"}, "it is no transformer of diffusers$"),
    **{
        f"the base as {key}": (LLAMA | {key: 5e5}, f"^{key} must .*; got 500000.0; did you mean rope_theta\\?$")
        for key in ("base", "theta", "rope_base", "rotary_base", "theta_base", "freq_base", "rope_freq_base")
    },
    **{
        f"the pairing as {key}": (LLAMA | {key: True}, f"^{key} must be left out: .*; the model_type decides it, else")
        for key in ("pairing", "interleaved", "is_neox_style")
    },
    "the base of another model": (LLAMA | {"rotary_emb_base": 1e6}, "got 1000000.0; did you mean rope_theta\\?$"),
    "the base of another model, by kind of layer": (GEMMA3 | {"rotary_emb_base": 1e6}, "did you mean rope_theta\\?$"),
    "a model without rotary, whose base means another thing": (
        {"model_type": "bert", "base": 1e6},
        "has no rotary emb",
    ),
    "rotary_pct of another model": (LLAMA | {"rotary_pct": 0.5}, "got 0.5; did you mean partial_rotary_factor\\?$"),
    "rotary_dim of another model": (LLAMA | {"rotary_dim": 64}, "rotary_dim must not be given for llama, .*; got 64$"),
    "rope_ratio": (LLAMA | {"rope_ratio": 2}, "rope_ratio must be left out: .*; got 2; in most of ChatGLM rope_theta"),
    "rope_parameters alone": ({"rope_theta": 1e4, "rope_type": "default"}, "; rope_type belongs in the rope_param"),
    "rope_type outside": (LLAMA | {"rope_type": "default"}, "got 'default'; rope_type belongs in the rope_parameters"),
    **{
        f"the model type {name}": ({"model_type": name}, f"got '{name}'; did you mean {replacement}\\?")
        for name, replacement in {
            "llama3": "llama",
            "LLAMA2": "llama",
            "qwen2.5": "qwen2",
            "Llama-3.1": "llama",
            "LlamaForCausalLM": "llama",
            "Qwen2VLForConditionalGeneration": "qwen2_vl",
            "DeepseekV3Model": "deepseek_v3",
        }.items()
    },
    "a class of an unknown version": ({"model_type": "Phi9ForCausalLM"}, "got 'Phi9ForCausalLM'; if the model rotates"),
    "architectures alone": ({"architectures": ["LlamaForCausalLM"]}, "^model_type must .*; did you mean llama\\? If"),
    "architectures that are no names": (
        {"architectures": [["Llama"], 3]},
        "^model_type must .* be given; if the model rotates as a .*; if not, find these values in its code",
    ),
    "a generation_config.json": ({"do_sample": True}, "; give the config.json: this is a generation_config.json$"),
    **{
        f"a file with {key}": ({key: {}}, f"^model_type must .*`pairing`, .* be given; {hint}$")
        for key, hint in {
            "added_tokens_decoder": "give the config.json: this is a file of the tokenizer",
            "image_processor_type": "give the config.json: this is a file of the processor",
            "weight_map": "give the config.json: this is the index of the weights",
            "peft_type": "give the config.json of the base model: this is an adapter_config.json",
        }.items()
    },
    "another version of a model": (
        {"general.architecture": "gemma5"},
        "got 'gemma5'; read the config.json of the model",
    ),
    "a key in the wrong place": (
        {"model_type": "llama", **FOUR_HEADS, "rope_scaling": {"rope_type": "linear", "factor": 2.0, "use_fope": True}},
        "rope_scaling.use_fope must not be given here: it is a key of the config itself; use_fope: .*bending.fope",
    ),
}


@pytest.mark.parametrize("name", HINTS)
def test_wrong_configs_have_a_hint(name):
    model, message = HINTS[name]
    with pytest.raises(ValueError, match=message):
        Rope.from_config(model)


def test_other_files_have_a_hint_with_a_pairing_too():
    with pytest.raises(ValueError, match=r"^model_type must be given, .*; give the config\.json: this is the index"):
        Rope.from_config({"weight_map": {}}, pairing="half")
    with pytest.raises(ValueError, match=r"hidden_size to derive it$"):
        Rope.from_config({"model_type": "llama", "top_p": 0.5})


@pytest.mark.parametrize(
    ("name", "hint"),
    [("global", "; did you mean full_attention?"), ("local", "; did you mean sliding_attention?"), ("none", "")],
)
def test_other_names_of_layer_types_have_a_hint(name, hint):
    with pytest.raises(ValueError, match=rf"\(sliding_attention, full_attention\); got '{name}'{re.escape(hint)}$"):
        Rope.from_config(GEMMA3, layer_type=name)


# --- random JSON --------------------------------------------------------------------------------------------

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


def reads_or_refuses(model, **options):
    """Check that a config gives a Rope, or an error of one line."""
    rope = call_or_refusal(Rope.from_config, model, **options)
    assert rope is None or isinstance(rope, Rope)  # None after an error


def call_or_refusal(function, model, **options):
    """Return the result of a function, or None if it raises a TypeError or ValueError of one line."""
    refused = None
    try:
        return function(model, **options)
    except (TypeError, ValueError) as error:
        refused = str(error)
    assert refused
    assert "\n" not in refused
    return None


@given(JSON)
def test_any_json_is_read_or_refused_in_one_sentence(model):
    reads_or_refuses(model)


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
    reads_or_refuses(model, layer_type=layer_type)
    for function in (config.layers, config.explain, config.modernize):
        call_or_refusal(function, model)


FACTS = tomllib.loads(Path(_models.__file__).with_name("models.toml").read_text(encoding="utf-8"))
ENTRIES = [*FACTS["model"], *FACTS["other"]]


def test_each_model_has_one_entry_and_models_with_equal_facts_share_it():
    names = [name for entry in ENTRIES for name in entry["names"].split()]
    assert len(names) == len(set(names)) and set(names) == _models.ALL.keys()
    assert len(MODELS) > 380
    for kind in ("model", "other"):
        facts = [{key: value for key, value in entry.items() if key != "names"} for entry in FACTS[kind]]
        assert not [a for i, a in enumerate(facts) if repr(a) in map(repr, facts[:i])]


@pytest.mark.parametrize(
    "entry",
    [
        {"unheard_of": 1},
        {"score": {"unheard_of": 1}},
        {"indexer": {"pairing": "half", "unheard_of": 1}},
        {"stream": {"unheard_of": 1}},
        {"switch": {"key": "alibi", "value": False, "unheard_of": 1}},
        {"layers": {"full_attention": {"base": 1.0, "unheard_of": 1}}},
    ],
    ids=lambda entry: next(iter(entry)),
)
def test_an_unknown_field_of_an_entry_is_refused(entry):
    with pytest.raises(TypeError, match="unexpected keyword argument 'unheard_of'"):
        _models._models_by_name([{"names": "a b", **entry}])


def test_every_rule_is_used_and_no_entry_repeats_a_default():
    def rule_of(rule, usual=""):
        """Return the name of a rule, which may be an entry of a table."""
        return rule if isinstance(rule, str) else rule.get("rule", usual)

    usual = {"has_rotary": "", "pattern": "every", "label": "labelled", "rotary_dim": ""}
    used = {rule_of(entry[key], usual[key]) for entry in ENTRIES for key in usual.keys() & entry}
    assert used == _models.RULES.keys()
    assert {model.score.rule for model in _models.ALL.values()} == _score.RULES.keys()
    assert {rule_of(row.layers) for row in _indexers.INDEXERS.values()} == _indexers.RULES.keys()
    for entry in ENTRIES:
        assert all(value != _models.Model._field_defaults.get(key, ...) for key, value in entry.items())


def test_names_that_entries_refer_to_are_known():
    for model in _models.ALL.values():
        assert not model.text or (model.text in _models.ALL and not _models.ALL[model.text].text)
        assert {*model.parts.values()} <= {*_towers.TOWERS, *_towers.REFUSED, *MODELS, "sam3_tracker_video"}
        assert "*" not in f"{model.text}{model.parts}"


def test_models_without_rotary_are_refused():
    for model_type in ("gpt2", "bloom", "t5", "mamba", "nemotron_h"):
        model = {"model_type": model_type, "num_hidden_layers": 2}
        assert no_rotary(model)
        assert config.layers(model) == [None, None]
        assert config.modernize(model) == model
    assert no_rotary({"model_type": "nemotron_h", "rope_theta": 1e4})


def test_wrong_layer_types_of_models_without_rotary_are_refused():
    bert, falcon = {"model_type": "bert"}, {"model_type": "falcon", "alibi": True}
    jamba = {"model_type": "jamba", "num_hidden_layers": 2, "layers_block_type": ["mamba", "attention"]}
    for function in (Rope.from_config, config.explain):
        for model in (bert, falcon, jamba):
            with pytest.raises(ValueError, match=r"layer_type must be one that the config has .*; got 'nonsense'"):
                function(model, layer_type="nonsense")
            with pytest.raises(TypeError, match=r"layer_type must be one that the config has .*; got int 3"):
                function(model, layer_type=3)
    assert no_rotary(jamba, layer_type="attention")


def test_disabled_rotary_is_refused():
    falcon = {"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 1}
    assert (
        Rope.from_config(falcon | {"alibi": False})
        == Rope.from_config(falcon)
        == Rope(ra.frequencies(64), pairing="half")
    )
    assert no_rotary(falcon | {"alibi": True})
    assert config.explain(falcon | {"alibi": True})[0].facts == {"rotary": (None, "alibi is bool True")}
    granite = {"model_type": "granitemoehybrid", "hidden_size": 64, "num_attention_heads": 1}
    assert no_rotary(granite | {"position_embedding_type": "nope"})


def test_olmo3_in_gguf_has_scaled_and_unscaled_layers():
    plain = ra.frequencies(128, base=5e5)
    olmo = gguf("olmo2", rope__freq_base=5e5, rope__scaling__factor=8.0, attention__sliding_window=4096, **YARN_KEYS)
    scaled = scaling.yarn(plain, 8.0, base=5e5, original_length=32_768)
    full = Rope(scaled, pairing="half", attention_factor=scaling.yarn_attention_factor(8.0))
    assert config.layers(olmo) == [*[Rope(plain, pairing="half")] * 3, full]


def test_a_part_without_a_number_of_layers_has_the_default():
    assert len(config.layers({"model_type": "llava_next", "text_config": {"model_type": "mistral"}})) == 32


# --- imports and limits -------------------------------------------------------------------------------------


@pytest.mark.thread_unsafe(reason="starts processes")
def test_reading_imports_no_array_library():
    script = """
import sys
from rope_any import Rope, config
Rope.from_config({"model_type": "llama", "head_dim": 64})
config.explain({"model_type": "llama", "head_dim": 64})
print([name for name in ("numpy", "torch", "jax", "cupy", "dask", "mlx", "transformers") if name in sys.modules])
"""
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "[]"


def test_a_model_of_no_layers_is_refused():
    with pytest.raises(ValueError, match=r"num_hidden_layers must be from 1 to .* got 0"):
        config.layers(LLAMA | {"num_hidden_layers": 0})


def test_the_largest_head_dim_is_read():
    assert len(Rope.from_config({"model_type": "llama", "head_dim": 4096}).frequencies) == 2048


def test_a_model_with_one_layer_is_read():
    assert config.layers(LLAMA | {"num_hidden_layers": 1}) == [Rope.from_config(LLAMA)]


# --- tests that mutation testing found missing --------------------------------------------------------------

LLAMA_BY_NAME = {"model_type": "llama", "head_dim": 64, "num_hidden_layers": 2, "rope_theta": 1e4}


def test_a_length_of_one_token_is_accepted():
    assert ra.Rope.from_config(LLAMA_BY_NAME, sequence_length=1) is not None
    with pytest.raises(ValueError, match=r"sequence_length must be from 1 to .* got 0"):
        ra.Rope.from_config(LLAMA_BY_NAME, sequence_length=0)


def test_an_empty_per_layer_config_is_read():
    assert len(ra.config.layers(LLAMA_BY_NAME | {"per_layer_config": {}})) == 2


def test_the_current_name_is_the_source_if_both_are_given():
    scheme = {"rope_type": "linear", "factor": 2.0}
    (explanation,) = ra.config.explain(LLAMA_BY_NAME | {"rope_scaling": scheme, "rope_parameters": scheme})
    assert explanation.facts["factor"].source == "rope_parameters.factor"
