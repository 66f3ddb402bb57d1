"""Published configs: each ships under its name, and those whose code isn't run are read as by their authors."""

from pathlib import Path

import numpy as np
import pytest
from configs import PUBLISHED

from rope_any import Rope, config

EXPECTED = {model["model"]: model for model in PUBLISHED if "expect" in model}
"""Models whose class can't be run: test_whole_configs.py compares the others with theirs."""


@pytest.mark.parametrize("name", EXPECTED)
def test_published_models_are_read_and_explained(name):
    published, expected = EXPECTED[name]["config"], EXPECTED[name]["expect"]
    is_known, options = "model_type" in published, {}
    if not is_known:
        layers = ["full_attention"] * published["num_hidden_layers"]
        published = published | {"rope_theta": expected["base"], "layer_types": layers}
        options = {"pairing": expected["pairing"]}
    rope = Rope.from_config(published, **options)
    found = rope.frequencies
    assert (rope.pairing, rope.start, 2 * len(found)) == (expected["pairing"], 0, expected["rotary_dim"])
    between = [found[len(found) * quarter // 4] for quarter in (1, 2, 3)]
    np.testing.assert_allclose(
        (found[0], *between, found[-1], rope.attention_factor),
        (expected["fastest"], *expected["between"], expected["slowest"], expected["attention_factor"]),
        rtol=1e-6,
    )
    if is_known:
        (explanation,) = config.read(published).explain()
        assert explanation.facts["rope_theta"].value == expected["base"]
        assert explanation.facts["rope_type"].value == expected["rope_type"]


def test_each_published_config_is_compared():
    assert [model["model"] for model in PUBLISHED] == sorted(config.published())


# --- names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", config.published())
def test_each_published_config_is_read_by_its_name(name):
    expected = config.read(config.published()[name]).explain()
    assert all(fact.source for one in expected for fact in one.facts.values())
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
