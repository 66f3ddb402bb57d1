"""What is told of a config: each value with its source, lengths by their meaning, and its form of today."""

import copy
import json
import pickle
import re

import pytest
from configs import GEMMA3, LLAMA, NO_ROTARY, PUBLISHED, QWEN_VL, STATED, YARN, no_rotary
from hypothesis import given
from hypothesis import strategies as st

from rope_any import Rope, config, frequencies, scaling
from rope_any.config._config import readers_of

GEMMA = {"model_type": "gemma3_text", "max_position_embeddings": 131_072}
LLAMA_8K = {"model_type": "llama", "head_dim": 128, "max_position_embeddings": 8192}
NO_LENGTH = LLAMA_8K | {"max_position_embeddings": None}
ORIGINAL = "original_max_position_embeddings"
FROM_4K = {ORIGINAL: 4096}
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | FROM_4K
DBRX = {"model_type": "dbrx", "d_model": 64, "n_heads": 1}
LINEAR = {"type": "linear", "factor": 2.0}
DYNAMIC = {"type": "dynamic", "factor": 2.0}
LISTS = {"type": "longrope", "short_factor": [1.0] * 64, "long_factor": [2.0] * 64} | FROM_4K
ALPHA = {"model_type": "hunyuan_v1_dense", "rope_scaling": DYNAMIC | {"alpha": 9.0}}


def gemma(full, *, length=8192):
    """Return a config in which only full attention is scaled."""
    kinds = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}}
    kinds["full_attention"] |= full
    return GEMMA | {"max_position_embeddings": length, "rope_parameters": kinds}


def inside(length):
    """Return a length as a key of a scaling."""
    return {"max_position_embeddings": length}


# --- values and sources ---------------------------------------------------------------------------------------

HEAD = "hidden_size // num_attention_heads"
# Facts of configs, each value with its source.
OF_LLAMA = {
    "model_type": ("llama", "model_type"),
    "pairing": ("half", "model_type llama"),
    "rope_type": ("default", "no scaling is given"),
    "head_dim": (128, HEAD),
    "score_scale": (128**-0.5, f"1 / sqrt({HEAD})"),
    "rotary_dim": (128, HEAD),
    "rope_theta": (1e4, "default of llama"),
    "partial_rotary_factor": (1.0, "default of llama"),
    "attention_factor": (1.0, "derived from these"),
    "trained_length": (4096.0, "max_position_embeddings"),
}
OF_YARN = {
    "rope_type": ("yarn", "rope_parameters.rope_type"),
    "rope_theta": (5e5, "rope_parameters.rope_theta"),
    "factor": (4.0, "rope_parameters.factor"),
    "attention_factor": (scaling.yarn_attention_factor(4.0), "derived from these"),
    "beta_fast": (32.0, "default of yarn"),
    "truncate": (True, "default of yarn"),
    "trained_length": (1024.0, "rope_parameters.original_max_position_embeddings"),
    "extended_length": (4096.0, "max_position_embeddings"),
}
MLA = LLAMA | {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_interleave": True}
INSIDE = {"rope_parameters": {"rope_type": "default", "max_position_embeddings": 8192}}
QWEN2_VL = {"model_type": "qwen2_vl", "head_dim": 128, "rope_scaling": QWEN_VL["rope_scaling"]}
LLAVA = {"model_type": "llava", "text_config": {"head_dim": 64}}
BOTH = {key: {"rope_type": "linear", "factor": 2.0} for key in ("rope_scaling", "rope_parameters")}
REPORTED = [
    (LLAMA | {"rope_parameters": YARN | {"rope_theta": 5e5}}, OF_YARN),
    (LLAMA | {"num_attention_heads": 30}, {"head_dim": (136, f"{HEAD}, rounded down")}),
    (LLAMA | {"model_type": "gpt_neox", "rotary_pct": 0.25}, {"rotary_dim": (32, "rotary_pct")}),
    (LLAMA | {"model_type": "glm4", "head_dim": 128}, {"partial_rotary_factor": (0.5, "default of glm4")}),
    (MLA, {"pairing": ("interleaved", "rope_interleave"), "head_dim": (64, "qk_rope_head_dim")}),
    (LLAMA | ALPHA, {"alpha": (9.0, "rope_scaling.alpha"), "factor": (2.0, "rope_scaling.factor; not read here")}),
    (QWEN_VL, {"axes": (3, "chunked sections"), "mrope_section": ([16, 24, 24], "rope_scaling.mrope_section")}),
    (LLAMA | BOTH, {"factor": (2.0, "rope_parameters.factor")}),
    (DBRX | {"attn_config": {"rope_theta": 5e5}}, {"rope_theta": (5e5, "attn_config.rope_theta")}),
    (LLAMA | {"rope_scaling": DYNAMIC}, {"length": (4096.0, "the trained length")}),
    (QWEN2_VL, {"model_type": ("qwen2_vl_text", "model_type qwen2_vl, its text part")}),
    (QWEN2_VL, {"pairing": ("half", "model_type qwen2_vl, its text part qwen2_vl_text")}),
    (LLAVA, {"model_type": ("llama", "model_type llava, its text part")}),
    (LLAVA, {"pairing": ("half", "model_type llava, its text part llama")}),
    (LLAVA, {"score_scale": (0.125, "1 / sqrt(text_config.head_dim)")}),
    (NO_LENGTH | INSIDE, {"trained_length": (8192, "rope_parameters.max_position_embeddings")}),
]


@pytest.mark.parametrize(("model", "expected"), REPORTED)
def test_values_are_reported_with_their_sources(model, expected):
    (explanation,) = config.read(model).explain()
    assert explanation.facts | expected == explanation.facts


def test_all_that_decides_a_rotation_is_reported():
    assert config.read(LLAMA).explain()[0].facts == OF_LLAMA


def test_arguments_are_sources():
    (explanation,) = config.read(LLAMA | {"rope_scaling": DYNAMIC}).explain(sequence_length=9000)
    assert explanation.facts["length"] == (9000, "sequence_length")
    facts = config.read(STATED | {"head_dim": 64}, pairing="half").explain()[0].facts
    assert facts["pairing"] == ("half", "argument pairing")
    assert facts["score_scale"].value is None
    assert "must be one whose score scale is known" in facts["score_scale"].source


def test_parameters_by_layer_type_are_read():
    linear = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
    local, full = config.read(gemma(linear)).explain()
    assert local.facts["rope_theta"] == (1e4, "rope_parameters.sliding_attention.rope_theta")
    for key, value in linear.items():
        assert full.facts[key] == (value, f"rope_parameters.full_attention.{key}")


def test_the_score_scale_is_reported_with_its_source():
    assert config.read(LLAVA).score_scale() == 0.125
    for one in config.read(GEMMA3).explain():
        source = f"(query_pre_attn_scalar 256, default of gemma3_text) ** -0.5, in layers of type {one.layer_type}"
        assert one.facts["score_scale"] == (1 / 16, source)
    assert config.read(GEMMA3).score_scale() == 1 / 16


def test_explain_reports_temperature_and_disabled_rotary():
    (explanation,) = config.read(LLAMA | {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.1}}).explain()
    assert "rope_any.bending.temperature" in explanation.facts["llama_4_scaling_beta"].source
    esm = {"model_type": "esm", "hidden_size": 1024, "num_attention_heads": 16}
    (explanation,) = config.read(esm).explain()
    reason = "position_embedding_type, default of esm, is str 'absolute'"
    assert explanation == (None, None, {"rotary": (None, reason)}, (), ())
    with pytest.raises(ValueError, match=reason):
        Rope.from_config(esm)
    assert Rope.from_config(esm | {"position_embedding_type": "rotary"}) == Rope(frequencies(64), pairing="half")
    beam = {"model_type": "beam", "head_dim": 64, "rope_parameters": {"full_attention": None}}
    assert config.read(beam).explain() == (
        ("full_attention", None, {"rotary": (None, "rope_parameters.full_attention is null")}, (), ()),
    )


def test_explain_describes_all_layer_types_or_one():
    both = config.read(GEMMA3).explain()
    assert [one.layer_type for one in both] == ["sliding_attention", "full_attention"]
    assert config.read(GEMMA3).explain(layer_type="full_attention") == both[1:]


# --- lengths --------------------------------------------------------------------------------------------------

REPORTED_LENGTHS = [
    (LLAMA_8K, {"trained": 8192}),
    (LLAMA_8K | {"rope_parameters": {"rope_type": "default"} | dict.fromkeys(FROM_4K)}, {"trained": 8192}),
    ({"model_type": "phi", "head_dim": 128, "n_positions": 2048, "rope_scaling": LINEAR}, {"stated": 2048}),
    (LLAMA_8K | {"rope_scaling": LINEAR | {"factor": 1.0}}, {"trained": 8192}),
    (LLAMA_8K | {"rope_scaling": LINEAR}, {"stated": 8192}),
    (LLAMA_8K | {"rope_scaling": LINEAR | inside(12_288)}, {"trained": 8192, "extended": 12_288}),
    (LLAMA_8K | {"rope_scaling": LINEAR | inside(4096)}, {"extended": 4096, "stated": 8192}),
    (LLAMA_8K | {"rope_scaling": LINEAR | inside("x")}, {"stated": 8192}),
    (NO_LENGTH | {"rope_scaling": LINEAR | inside(8192)}, {"extended": 8192}),
    (NO_LENGTH | FROM_4K | {"rope_scaling": LINEAR | {"factor": 2.5}}, {"trained": 4096, "extended": 10_240}),
    (LLAMA_8K | {"rope_scaling": YARN | FROM_4K | inside(6144)}, {"trained": 4096, "extended": 6144}),
    (NO_LENGTH | {"rope_scaling": YARN | FROM_4K}, {"trained": 4096, "extended": 16_384}),
    (NO_LENGTH | {"rope_scaling": YARN | {ORIGINAL: 1e99, "factor": 4e9}}, {"trained": 1e99}),  # more is no length
    (LLAMA_8K | {"rope_scaling": DYNAMIC | {"alpha": None}}, {"trained": 8192, "extended": 16_384}),
    (LLAMA_8K | ALPHA, {"stated": 8192}),
    (NO_LENGTH | FROM_4K | ALPHA, {"trained": 4096}),
    (NO_LENGTH | {"rope_scaling": LISTS | {"factor": 3}}, {"trained": 4096, "extended": 12_288}),
    (NO_LENGTH | {"rope_scaling": LISTS | {"attention_factor": 1.2}}, {"trained": 4096}),
    (LLAMA_8K | {"rope_scaling": LLAMA_3}, {"trained": 4096, "extended": 8192}),
    # in some layers
    (GEMMA, {"trained": 131_072}),
    (gemma(YARN | FROM_4K, length=131_072), {"trained": 4096, "extended": 131_072}),
    (gemma({"rope_type": "dynamic", "factor": 4.0}), {"trained": 8192, "extended": 32_768}),
    (gemma({"rope_type": "linear", "factor": 2.0} | inside(16_384)), {"trained": 8192, "extended": 16_384}),
]


def lengths_of(explanation):
    """Return the lengths among the facts of an explanation, by their meaning."""
    found = {key: fact.value for key, fact in explanation.facts.items()}
    return {key.removesuffix("_length"): value for key, value in found.items() if key.endswith("_length")}


@pytest.mark.parametrize(("model", "expected"), REPORTED_LENGTHS)
def test_lengths_are_reported_by_their_meaning(model, expected):
    for found in map(lengths_of, config.read(model).explain()):
        assert found == expected
        assert all(isinstance(length, int) == (length < 2**53) for length in found.values())


def test_layers_of_two_schemes_have_their_own_lengths():
    for sliding, of_sliding in (
        (YARN | FROM_4K | {"factor": 2.0}, {"trained": 4096, "extended": 8192}),
        (LINEAR, {"trained": 1024, "extended": 2048}),
    ):
        kinds = {"sliding_attention": sliding | {"rope_theta": 1e4}, "full_attention": YARN | {"rope_theta": 1e6}}
        found = config.read(GEMMA | inside(None) | {"rope_parameters": kinds}).explain()
        assert [*map(lengths_of, found)] == [of_sliding, {"trained": 1024, "extended": 4096}]


def test_lengths_have_their_sources():
    for explanation in config.read(gemma(YARN, length=None)).explain():
        of_full = f"rope_parameters.full_attention.{ORIGINAL}"
        assert explanation.facts["trained_length"] == (1024, of_full)
        assert explanation.facts["extended_length"] == (4096, f"{of_full} * rope_parameters.full_attention.factor")


# --- the form of today ----------------------------------------------------------------------------------------


def test_as_transformers_returns_rope_parameters():
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    kept = {"model_type": "phi3", "head_dim": 128, "max_position_embeddings": 8192} | FROM_4K
    phi = config.read(kept | {"rope_theta": 1e4, "rope_scaling": {"type": "su"} | lists}).as_transformers()
    assert phi == kept | {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4} | lists | FROM_4K}
    nested = config.read({"model_type": "gemma3", "vision_config": {"a": 1}, "text_config": GEMMA3}).as_transformers()
    assert nested["vision_config"] == {"a": 1}
    assert nested["text_config"]["rope_parameters"] == {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    }
    minimax = config.read({"model_type": "minimax_m2", "head_dim": 256, "rotary_dim": 64}).as_transformers()
    assert minimax["rope_parameters"]["partial_rotary_factor"] == 0.25 and "rotary_dim" not in minimax
    gptj = {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "rotary_dim": 64}
    assert config.read(gptj).as_transformers() == gptj  # its class reads no rope_parameters


def test_as_transformers_writes_a_partial_rotary_factor_only_if_needed():
    mla = {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    assert config.read(mla).as_transformers()["rope_parameters"] == {"rope_type": "default", "rope_theta": 1e4}
    minimax = {"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 128}
    assert config.read(minimax).as_transformers()["rope_parameters"] == {"rope_type": "default", "rope_theta": 5e6}
    without = {"model_type": "olmo_hybrid", "head_dim": 64, "num_hidden_layers": 4, "rope_theta": None}
    modern = config.read(without).as_transformers()
    assert modern["rope_parameters"] == {"rope_type": "default", "rope_theta": None}
    assert no_rotary(without) and no_rotary(modern)


@given(st.integers(1, 256), st.integers(1, 256))
def test_as_transformers_keeps_any_rotary_dim(pairs, more):
    old = {"model_type": "minimax_m2", "head_dim": 2 * (pairs + more), "rotary_dim": 2 * pairs}
    assert Rope.from_config(config.read(old).as_transformers()) == Rope.from_config(old)


VARIATIONS = [
    {},
    {"rotary_dim": 64},
    {"rotary_dim": None},
    {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128},
    {"qk_rope_head_dim": 64, "head_dim": 128, "partial_rotary_factor": 0.5},
    {"head_dim": 128, "rotary_dim": 128},
    {"head_dim": 100, "partial_rotary_factor": 0.3},
    {"partial_rotary_factor": 1.0},
    {"rope_scaling": {"rope_type": "proportional"}},
    {"rope_scaling": {"rope_type": "proportional", "partial_rotary_factor": 0.5}, "rope_parameters": None},
    {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
]


def modern_form_agrees(model):
    """Return whether a config can be read; if so, check that `as_transformers` keeps its rotation and is idempotent."""
    try:
        ropes = {one.layer_type: one.rope for one in config.read(model).explain()}
        if None in ropes.values():
            return False
    except (TypeError, ValueError):
        return False
    modern = config.read(model).as_transformers()
    assert {one.layer_type: one.rope for one in config.read(modern).explain()} == ropes
    assert config.read(modern).as_transformers() == modern
    return True


def has_text(model):
    """Return whether a config is that of a model with a part for text whose rotation is known."""
    try:
        return "text" in config.read(model).parts
    except ValueError:
        return False


def as_text_part(model):
    """Return a config with the given text part, whose rotary keys are repeated outside of it."""
    names = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
    return {"model_type": "llava", "text_config": model} | {name: model[name] for name in names if name in model}


@pytest.mark.parametrize(("number", "keys"), [*enumerate(VARIATIONS)], ids=str)
def test_as_transformers_keeps_the_rotation_of_all_models(number, keys):
    mapping = pytest.importorskip("transformers").CONFIG_MAPPING
    sizes = {"hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 4, "max_position_embeddings": 4096}
    models = [model["config"] for model in PUBLISHED if "model_type" in model["config"]]
    models += [model for name in mapping if has_text(model := sizes | {"model_type": name})]
    # with other keys, each model is tested in one of the two forms, since each takes milliseconds
    wholes, parts = (models[number % 2 :: 2], models[1 - number % 2 :: 2]) if keys else (models, models)
    forms = [*(model | keys for model in wholes), *(as_text_part(model | keys) for model in parts)]
    assert sum(map(modern_form_agrees, forms)) > 4


# --- a Config ---------------------------------------------------------------------------------------------


def test_a_config_shows_each_rotation_and_why_a_part_is_refused():
    model = {"model_type": "gemma3", "text_config": GEMMA3 | {"num_hidden_layers": 6}, "vision_config": {}}
    assert str(config.read(model)).splitlines() == [
        "Config of gemma3",
        "  text, sliding_attention, 5 layers: Rope(<128 frequencies from 1 to 0.000107461>, pairing='half')",
        "  text, full_attention, 1 layer: Rope(<128 frequencies from 0.125 to 1.39247e-07>, pairing='half')",
    ]
    refused = config.read(QWEN_VL | {"vision_config": {"model_type": "unheard_of"}})
    assert re.search(r"\n  vision: refused: vision_config.model_type must be one whose .*'unheard_of'", str(refused))
    assert str(config.read({"_class_name": "FluxTransformer2DModel"})).startswith("Config of FluxTransformer2DModel\n")
    with pytest.raises(ValueError, match=f"{NO_ROTARY}SD3Transformer2DModel has no rotary embedding"):
        config.read({"_class_name": "SD3Transformer2DModel"}).layers()
    assert str(config.read({"model_type": "bert"})) == "Config of bert\n  no rotary embedding"


def test_a_config_is_read_once_and_never_changes(tmp_path):
    model = {"model_type": "smollm3", "head_dim": 64, "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(model))
    reads = config.read(file), config.read(model)
    file.unlink()
    model["no_rope_layers"][0] = 0
    for read in (*reads, copy.deepcopy(reads[1]), pickle.loads(pickle.dumps(reads[1]))):
        assert [rope is not None for rope in read.layers()] == [True, True, True, False]
        assert readers_of(read)["text"].layers() is readers_of(read)["text"].layers()
        read.as_transformers()["no_rope_layers"][0] = 0
        assert read.as_transformers()["no_rope_layers"][0] == 1
    blocks = [{"attention": {"no_op": False}}]
    read = config.read(LLAMA | {"model_type": "nemotron-nas", "num_hidden_layers": 1, "block_configs": blocks})
    blocks[0]["attention"]["no_op"] = True
    assert read.layers()[0] is not None
    with pytest.raises(AttributeError):
        reads[0]._source = {}
    with pytest.raises(TypeError, match=r"write rope_any.config.read\(config\)$"):
        config.Config()
