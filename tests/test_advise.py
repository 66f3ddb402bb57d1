"""Advice on a longer context: its figures, its parameters in a config, and the command line."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from commands import output, refused, write_configs

import rope_any as ra
from rope_any.config import advise, explain, published, wavelengths

LIU, MEN = "arXiv:2310.05209", "arXiv:2405.14591"  # the papers that the bases come from
ROOT = Path(__file__).parents[1]
PUBLISHED = published()
LLAMA2 = {"model_type": "llama", "head_dim": 128, "max_position_embeddings": 4096}


# --- figures ----------------------------------------------------------------------------------------------------------


def test_the_critical_dimension_of_llama_2_is_that_of_the_paper():
    (one,) = advise(LLAMA2, 100_000)
    assert (one.critical_dimension, one.unfinished, one.pairs) == (92, 18, 64)
    # section 4.2 of Liu et al.: 2 ⌈d/2 · log_b(L / 2π)⌉
    assert one.critical_dimension == 2 * math.ceil(64 * math.log(4096 / (2 * math.pi), 10_000))
    # a base of b reaches 2π b^(92/128) tokens
    assert 2 * math.pi * one.bases[LIU] ** (92 / 128) == pytest.approx(100_000)


@pytest.mark.parametrize("length", [1024, 4096, 16384])
def test_the_fitted_base_is_near_the_least_one_with_no_negative_sum(length):
    distances = np.arange(length + 1)[:, None]

    def least(base):
        """Return the least sum of cosines up to the length; by the paper, it must not be negative."""
        return np.cos(distances * np.asarray(ra.frequencies(128, base=base))).sum(axis=-1).min()

    (one,) = advise(LLAMA2, length)
    assert least(one.bases[MEN] / 3) < 0 < least(one.bases[MEN] * 3)


def test_scores_are_the_mean_over_distances():
    (one,) = advise(LLAMA2, 16384)
    f = np.asarray(ra.scaling.yarn(ra.frequencies(128), 4.0, base=1e4, original_length=4096))
    distances = np.arange(16384 // 2, 16384)[:, None] + 0.5
    assert one.schemes["yarn"].score == pytest.approx(np.cos(distances * f).mean(), abs=2e-3)
    assert one.schemes["linear"].score == pytest.approx(one.score)


def test_pairs_that_are_slowed_and_pairs_at_unseen_angles():
    (one,) = advise(LLAMA2, 8192)
    plain, ntk = np.asarray(ra.frequencies(128)), np.asarray(ra.scaling.ntk(ra.frequencies(128), 2.0))
    for name, scaled in (("none", plain), ("linear", plain / 2), ("ntk", ntk)):
        reached = scaled * 8192 > plain * 4096 * (1 + 1e-9)
        assert one.schemes[name].unseen == np.count_nonzero(reached & (plain * 4096 < 2 * np.pi))
        assert one.schemes[name].slowed == np.count_nonzero(scaled < plain * (1 - 1e-9))
    assert [one.schemes[name].unseen for name in ("none", "linear", "yarn")] == [18, 0, 0]


# --- parameters to try ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_to_try_are_read_and_reach_the_length(name):
    length, known = 2**24, any("trained_length" in one.facts for one in explain(PUBLISHED[name]))
    for one in advise(PUBLISHED[name], length, trained_length=None if known else 4096):
        assert one.reason
        if one.rope_parameters is None:
            assert one.code is None
            continue
        names = {"ra": ra, "config_file": PUBLISHED[name]}
        exec(one.code.replace('"config.json"', "config_file"), names)  # noqa: S102  # code of the library
        kind, longest = one.rope_parameters["rope_type"], one.schemes["none"].wavelengths[1]
        longest = longest * one.rope_parameters["factor"] if kind == "llama3" else one.schemes[kind].wavelengths[1]
        assert max(wavelengths(names["rope"])) == pytest.approx(longest)
        (again,) = advise(names["config"], length, layer_type=one.layer_type, trained_length=one.trained_length.value)
        if one.rope_parameters["rope_type"] != "linear":  # it has no key of the trained length
            assert again.rope_parameters is None
            assert "already" in again.reason


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("microsoft/Phi-3-mini-128k-instruct", "found by search"),
        ("openbmb/MiniCPM-2B-128k", "follows the length by itself"),
        ("google/gemma-4-E2B-it", "no published recipe extends the scheme proportional"),
        ("microsoft/phi-4", "this model refuses YaRN"),
    ],
)
def test_the_reason_is_given_if_no_formula_helps(model, reason):
    one = advise(PUBLISHED[model], 2**21)[0]
    assert one.rope_parameters is None
    assert reason in one.reason


def test_layers_with_a_window_need_no_scaling():
    sliding, full = advise(PUBLISHED["google/gemma-3-1b-it"], 2**20)
    assert (sliding.in_window, sliding.rope_parameters) == (True, None)
    assert full.rope_parameters["factor"] == 32.0
    mistral = PUBLISHED["mistralai/Mistral-7B-v0.1"]
    one, within = (advise(mistral | {"sliding_window": 4096}, length)[0] for length in (65536, 32768))  # in all layers
    assert (one.in_window, one.rope_parameters) == (True, None)
    assert within.reason == "the config is for 32768 tokens already"
    (one,) = advise(mistral | {"sliding_window": None}, 65536)
    assert one.rope_parameters["factor"] == 2.0


def test_the_factor_of_the_config_is_raised_from_the_length_that_it_reaches():
    (llama,) = advise(PUBLISHED["meta-llama/Llama-3.1-8B"], 262_144)
    assert (llama.extended_length.value, llama.rope_parameters["factor"]) == (131_072, 16.0)  # 8 for 131 072
    full = advise(PUBLISHED["allenai/Olmo-3.1-32B-Instruct"], 131_072)[1]
    assert full.rope_parameters["factor"] == 16.0
    assert "attention_factor" not in full.rope_parameters  # that of the config is for the factor 8


def test_the_outlook_has_the_parameters_to_try_beside_the_scaling_of_the_config():
    (one,) = advise(PUBLISHED["meta-llama/Llama-3.1-8B"], 524_288)
    factors = {name: round(outlook.factor, 6) for name, outlook in one.schemes.items()}
    assert factors == {"none": 1, "linear": 64, "ntk": 64, "yarn": 64, "config": 8, "to try": 32}
    options = {"original_length": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    slower = ra.scaling.llama3(ra.frequencies(128, base=500_000.0), 32.0, **options)
    assert one.schemes["to try"].wavelengths[1] == pytest.approx(2 * math.pi / slower[-1])
    (plain,) = advise(LLAMA2, 16384)
    assert "to try" not in plain.schemes  # it is "yarn"
    assert ["train at this length" in advise(LLAMA2, length)[0].reason for length in (16384, 16385)] == [False, True]


def test_the_outlook_does_not_depend_on_the_direction_of_rotation():
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 4096}
    model = {"head_dim": 64, "rope_parameters": yarn}
    one, other = (advise(model | {"model_type": name}, 65_536)[0] for name in ("llama", "nanochat"))
    assert one.schemes == other.schemes
    assert one.schemes["config"].slowed > 0


def test_another_trained_length_is_refused_only_if_the_config_scales_from_it():
    llama31 = PUBLISHED["meta-llama/Llama-3.1-8B"]
    with pytest.raises(ra.ArgumentValueError, match=r"must be 8192 \(rope_scaling.original_max_.*got 131072"):
        advise(llama31, 524_288, trained_length=131_072)
    assert advise(llama31, 524_288, trained_length=8192) != ()
    (one,) = advise(LLAMA2, 16384, trained_length=2048)
    assert one.rope_parameters["original_max_position_embeddings"] == 2048


def test_a_length_within_the_trained_one_needs_no_scaling():
    (one,) = advise(LLAMA2, 4096)
    assert (one.schemes, one.rope_parameters) == ({}, None)
    assert one.reason == "the config is for 4096 tokens already"


def test_configs_without_a_length_or_a_rotation_are_refused():
    for config, message in (({}, "trained_length must be given"), ({"model_type": "bert"}, "has no rotary embedding$")):
        with pytest.raises((TypeError, ValueError), match=message):
            advise({"model_type": "llama", "head_dim": 128, **config}, 4096)


def test_the_pairs_are_those_that_rotate():
    model = {"model_type": "gpt_neox", "hidden_size": 92, "num_attention_heads": 1, "max_position_embeddings": 2048}
    (one,) = advise(model, 8192)
    assert one.pairs == len(ra.Rope.from_config(model).frequencies) == 12  # of 23 features
    (full,) = advise(PUBLISHED["google/gemma-4-E2B-it"], 2**21, layer_type="full_attention")
    assert full.pairs == 64  # of 256, since the others don't rotate
    assert one.schemes["linear"].wavelengths[0] == pytest.approx(4 * 2 * math.pi)


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.thread_unsafe(reason="captures the output of all threads")
@pytest.mark.parametrize(("length", "tokens"), [("16384", 16384), ("16K", 16384), ("1m", 2**20)])
def test_the_command_prints_what_advise_returns(length, tokens, tmp_path):
    write_configs(tmp_path, config=LLAMA2)
    shown, (one,) = output("advise", tmp_path, "--length", length), advise(LLAMA2, tokens)
    assert f"from 4096 tokens (max_position_embeddings) to {tokens}" in shown
    assert json.dumps(one.rope_parameters, indent=2) in shown
    (record,) = json.loads(output("advise", tmp_path, "--length", length, "--json"))
    assert record["schemes"]["yarn"]["unseen"] == one.schemes["yarn"].unseen
    both = output("advise", "published:gemma-3-1b-it", "--length", "1M")
    assert "\n\nfull_attention: from 32768 tokens" in both
    assert refused("advise", tmp_path, "--length", "1G").startswith("--length must be a number of tokens")


@pytest.mark.thread_unsafe(reason="captures the output of all threads")
def test_the_perplexities_printed_equal_those_of_the_docs():
    runs = json.loads((ROOT / "docs/perplexity.json").read_text())["runs"]
    shown = output("advise", "-", "--length", "16K", stdin=json.dumps(LLAMA2))
    printed = dict(re.findall(r"(none|linear|ntk|yarn) (\d+\.\d+)(?=[,;.)\s])", shown))
    names = {"none": "RoPE", "linear": "RoPE, linear", "ntk": "RoPE, NTK", "yarn": "RoPE, YaRN"}
    for name, method in names.items():
        mean = sum(math.exp(one["nats"][method]["1024"]) for one in runs) / len(runs)
        assert float(printed[name]) == pytest.approx(mean, abs=0.06)
