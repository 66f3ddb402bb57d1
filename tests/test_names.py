"""Errors propose near names, and no far ones."""

import pytest

from rope_any._names import did_you_mean, nearest
from rope_any.config._models import MODELS

KNOWN = (
    "rope_theta",
    "full_attention",
    "sliding_attention",
    "beta",
    "beta_fast",
    "interleaved",
    "half",
    "Flux2D",
    "yarn",
)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("rope_tetha", "rope_theta"),
        ("ROPE_THETA", "rope_theta"),
        ("Flux3D", "Flux2D"),
        ("yarn2", None),  # another version
        ("yarm", "yarn"),
        ("full", "full_attention"),
        ("inter", "interleaved"),
        ("beta_slowest", "beta"),
        ("betaslowest", None),
        ("halfway", "half"),
        ("in", None),  # too short for a prefix
        ("chunked", None),
        ("banana", None),
        ("", None),
        ("x" * 10_000, None),
    ],
)
def test_only_near_names_are_proposed(name, near):
    assert nearest(name, KNOWN) == near
    assert did_you_mean(name, KNOWN) == (f"did you mean {near}?" if near else "")


def test_a_prefix_of_one_name_proposes_it_before_nearer_ones():
    assert nearest("pair", ["part", "pairing"]) == "pairing"


def test_a_prefix_of_several_names_proposes_none():
    assert nearest("slid", ["sliding_attention", "sliding_window"]) is None
    assert nearest("sliding_x_attention_and_more", ["sliding", "sliding_x", "slide"]) == "sliding_x"


def test_no_known_names_propose_none():
    assert nearest("rope_theta", ()) is None


@pytest.mark.parametrize("name", ["banana", "resnet", "custom_code", "llama99"])
def test_models_that_resemble_none_get_no_hint(name):
    assert nearest(name, MODELS) is None
