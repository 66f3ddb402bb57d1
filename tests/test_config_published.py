"""Published configs: each ships under its name; test_whole_configs.py compares them with their own code."""

from pathlib import Path

import pytest
from configs import PUBLISHED

from rope_any import Rope, config


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
