"""Published configs: each is read as its own code rotates, and ships under its name."""

from pathlib import Path

import numpy as np
import pytest
from configs import NO_ROTARY, PUBLISHED, rows_of

from rope_any import Rope, config


def published_layers():
    """Yield each published model with expected results, once for each kind of its layers."""
    for model in (model for model in PUBLISHED if "expect" in model):
        expect = model["expect"]
        kinds = {None: expect} if "pairing" in expect else expect
        for layer_type, expected in kinds.items():
            yield pytest.param(model["config"], layer_type, expected, id=f"{model['model']} {layer_type or ''}".strip())


def read_published(published, layer_type, expected):
    """Return the Rope of a published config; one without a model_type needs the pairing, the base and the layers."""
    if "model_type" in published:
        return Rope.from_config(published, layer_type=layer_type)
    if "num_hidden_layers" not in published:  # a params.json
        return Rope.from_config(published, layer_type=layer_type, pairing=expected["pairing"])
    layers = ["full_attention"] * published["num_hidden_layers"]
    stated = published | {"rope_theta": expected["base"], "layer_types": layers}
    return Rope.from_config(stated, layer_type=layer_type, pairing=expected["pairing"])


PUBLISHED_LAYERS = list(published_layers())


@pytest.mark.parametrize(("published", "layer_type", "expected"), PUBLISHED_LAYERS)
def test_published_models_are_read_and_explained(published, layer_type, expected):
    if expected is None:
        with pytest.raises(ValueError, match=NO_ROTARY):
            read_published(published, layer_type, expected)
        return
    rope = read_published(published, layer_type, expected)
    rows = rows_of(rope)
    found = [sum(column) for column in zip(*rows, strict=True)]  # of positions that are the same on all axes
    assert (rope.pairing, rope.start) == (expected["pairing"], expected["start"])
    assert 2 * len(found) == expected["rotary_dim"]
    between = [found[len(found) * quarter // 4] for quarter in (1, 2, 3)]
    np.testing.assert_allclose(
        (found[0], *between, found[-1], rope.attention_factor),
        (expected["fastest"], *expected["between"], expected["slowest"], expected["attention_factor"]),
        rtol=1e-6,
    )
    assert len(rows) == expected.get("axes", 1)
    if len(rows) > 1:
        assert [sum(map(bool, row)) for row in rows] == expected["sections"]
    if "model_type" in published:
        (explanation,) = config.read(published).explain(layer_type=layer_type)
        assert explanation.rope == rope
        assert explanation.facts["rope_theta"].value == expected["base"]
        assert explanation.facts["rope_type"].value == expected["rope_type"]
        assert all(fact.source for fact in explanation.facts.values())


def test_each_published_config_has_a_source():
    assert all(model["source"] for model in PUBLISHED)
    assert [model["model"] for model in PUBLISHED] == sorted(config.published())


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", config.published())
def test_each_published_config_is_read_by_its_name(name):
    expected = config.read(config.published()[name]).explain()
    for typed in (name, name.upper(), name.rpartition("/")[2]):
        for source in (f"published:{typed}", Path(f"published:{typed}")):
            assert config.read(source).explain() == expected
    assert config.read(f"published:{typed}").explain()[0].facts["model_type"].value or "mistral" in name


def test_the_beginning_or_end_of_the_name_of_one_published_config_will_do():
    names = {
        "gpt-oss": "openai/gpt-oss-20b",
        "google/gemma-3-4b": "google/gemma-3-4b-it",
        "V3": "deepseek-ai/DeepSeek-V3",
    }
    for name, model in names.items():
        assert config.read(f"published:{name}").explain() == config.read(config.published()[model]).explain()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("deepseek", "it may be deepseek-ai/DeepSeek-V2 or deepseek-ai/DeepSeek-V2-Lite or deepseek-ai/DeepSeek-V3"),
        ("llama-3.1-8b-instruct", "did you mean meta-llama/Llama-3.1-8B or .*; all names: "),
        ("banana", r"all names: rope_any\.config\.published\(\), or rope-any published$"),
    ],
)
def test_a_wrong_name_of_a_published_config_gets_near_ones(name, hint):
    with pytest.raises(ValueError, match=f"^published:{name} must name one published config; {hint}"):
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
