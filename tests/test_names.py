"""Hints name a known name only if it is near the misspelt one."""

import pytest

from rope_any._names import did_you_mean, nearest

KNOWN = ("beta_fast", "beta_slow", "rope_theta", "qwen2", "qwen3", "LongRoPE", "interleaved")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("beta_fst", "beta_fast"),
        ("rope_tetha", "rope_theta"),
        ("longrope", "LongRoPE"),  # in any case
        ("inter", "interleaved"),  # the only one that begins so
        ("beta", None),  # two begin so
        ("in", None),  # too short to tell
        ("theta", None),  # far in spelling
        ("qwen4", None),  # another version is another model
        ("alibi", None),
        ("x" * 1000, None),
    ],
)
def test_only_near_names_are_proposed(name, expected):
    assert nearest(name, KNOWN) == expected
    assert did_you_mean(name, KNOWN) == (f"did you mean {expected}?" if expected else "")
