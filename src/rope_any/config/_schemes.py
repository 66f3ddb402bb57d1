"""
List the rope types of configs: the keys that each reads, and how it scales the frequencies.

Names are those of ``rope_parameters`` in transformers.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rope_any import scaling
from rope_any._checks import ArgumentValueError
from rope_any._frequencies import Row
from rope_any._names import did_you_mean

Values = Mapping[str, Any]
"""The values of the keys of a scheme, and also of ``rope_theta``, ``partial_rotary_factor`` and ``length``."""

REQUIRED = object()  # in place of a default, if a key has none
ORIGINAL = "original_max_position_embeddings"


class Scheme(NamedTuple):
    """One rope type."""

    keys: Mapping[str, Any]
    """The keys that it reads, with their defaults; None if the value is optional or derived from others."""
    scale: Callable[[Row, Values], tuple[Row, float | str]]
    """Return the scaled frequencies, and the attention factor or the key that gives it."""
    trained: str = ""
    """The key of the trained length, if the scheme depends on the sequence length; "" if it does not."""
    unread: tuple[str, ...] = ()
    """Keys that published configs give for this rope type and that have no effect."""


def _first_given_key(v: Values, *keys: str) -> str | None:
    """Return the first of `keys` whose value is not None, or None."""
    return next((key for key in keys if v[key] is not None), None)


def _yarn(f: Row, v: Values) -> tuple[Row, float | str]:
    """Scale frequencies by YaRN; return them, and the attention factor: a number, or its key in `v` if it is given."""
    derived = scaling.yarn_attention_factor(v["factor"], mscale=v["mscale"], mscale_all_dim=v["mscale_all_dim"])
    ramp = {name: v[name] for name in ("beta_fast", "beta_slow", "truncate")}
    row = scaling.yarn(f, v["factor"], base=v["rope_theta"], original_length=v[ORIGINAL], **ramp)
    return row, _first_given_key(v, "attention_factor") or derived


def _longrope(f: Row, v: Values) -> tuple[Row, float | str]:
    """Scale frequencies by LongRoPE; return them, and the attention factor: a number, or its key if it is given."""
    original, length = v[ORIGINAL], v["length"]
    given = _first_given_key(v, "long_mscale" if length > original else "short_mscale", "attention_factor")
    attention_factor = given or scaling.longrope_attention_factor(v["factor"], original_length=original)
    lists = {name: v[name] for name in ("short_factor", "long_factor")}
    return scaling.longrope(f, **lists, original_length=original, length=length), attention_factor


_BAND, _TRAINED = ("low_freq_factor", "high_freq_factor"), "max_position_embeddings"

SCHEMES: dict[str, Scheme] = {
    "default": Scheme({}, lambda f, _: (f, 1.0)),
    "linear": Scheme({"factor": REQUIRED}, lambda f, v: (scaling.linear(f, v["factor"]), 1.0)),
    "dynamic": Scheme(
        {"factor": REQUIRED, _TRAINED: REQUIRED},
        lambda f, v: (scaling.dynamic_ntk(f, v["factor"], length=v["length"], trained_length=v[_TRAINED]), 1.0),
        _TRAINED,
    ),
    "yarn": Scheme(
        {
            "factor": REQUIRED,
            ORIGINAL: REQUIRED,
            "attention_factor": None,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": True,
            "mscale": None,
            "mscale_all_dim": None,
        },
        _yarn,
    ),
    "longrope": Scheme(
        {
            "short_factor": REQUIRED,
            "long_factor": REQUIRED,
            ORIGINAL: REQUIRED,
            "attention_factor": None,
            "short_mscale": None,
            "long_mscale": None,
            "factor": None,
        },
        _longrope,
        ORIGINAL,
    ),
    "llama3": Scheme(
        {"factor": REQUIRED, ORIGINAL: REQUIRED, **dict.fromkeys(_BAND, REQUIRED)},
        lambda f, v: (
            scaling.llama3(f, v["factor"], original_length=v[ORIGINAL], **{name: v[name] for name in _BAND}),
            1.0,
        ),
    ),
    # pairs beyond the share do not rotate
    "proportional": Scheme(
        {"factor": 1.0},
        lambda f, v: (scaling.linear(scaling.proportional(f, v["partial_rotary_factor"]), v["factor"]), 1.0),
    ),
}

WITH_ALPHA = Scheme(
    {"alpha": REQUIRED},
    lambda f, v: (scaling.ntk(f, v["alpha"]), 1.0),
    unread=("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
)
"""Rope type dynamic with ``alpha`` in the models that read it: NTK-aware scaling, the same at every length."""


def _stepped_ntk(f: Row, v: Values) -> tuple[Row, float]:
    """Scale by the NTK-aware factor of Qwen 1 at ``length``: 1 up to the trained length, then 3, 7, 15 by doublings."""
    doublings = math.ceil(math.log2(max(v["length"] / v["seq_length"], 1)))
    return scaling.ntk(f, 2.0 ** (doublings + 1) - 1), 1.0


def _fixed_ntk(f: Row, v: Values) -> tuple[Row, float]:
    """Scale as gte does, by its factor at every length; with ``mixed_b``, pair m of n by exp(ln(factor) (m/n)^b)."""
    s, b, n = max(v["ntk_factor"], 1.0), v["mixed_b"], len(f)
    if b is not None:
        return tuple(each / math.exp(math.log(s) * ((m + 1) / n) ** b) for m, each in enumerate(f)), 1.0
    # (base · s)^(−i/n) / s^(1/n) = base^(−i/n) · s^(−(i + 1)/n)
    return tuple(each * s ** (-(i + 1) / n) for i, each in enumerate(f)), 1.0


BY_KEY = {
    "alpha": WITH_ALPHA,
    "seq_length": Scheme({"seq_length": REQUIRED}, _stepped_ntk, "seq_length"),
    "ntk_factor": Scheme({"ntk_factor": REQUIRED, "mixed_b": None}, _fixed_ntk),
}
"""The schemes of rope type dynamic in the few models that have these keys as `parameters`."""

ALIASES = {"su": "longrope", "mrope": "default"}
"""Older names of rope types, and names that other programs also read; they are accepted."""

OTHERS = {
    "pi": "linear",
    "position_interpolation": "linear",
    "ntk": "dynamic, or raise rope_theta as rope_any.scaling.ntk does",
    "ntk_aware": "dynamic, or raise rope_theta as rope_any.scaling.ntk does",
    "dynamic_ntk": "dynamic",
    "dynamic_yarn": "yarn, with a factor for the longest sequence: no engine has the dynamic one",
    "ntk_by_parts": "the Rope yourself, with rope_any.scaling.ntk_by_parts: yarn has another ramp",
    "deepseek_yarn": "yarn",
    "su_rope": "longrope",
    "none": "default",
    "abf": "default, and raise rope_theta",
    "fope": "default, and bend the table by rope_any.bending.fope",
    "xpos": "default, and bend the table by rope_any.bending.xpos",
}
"""Names of rope types in other programs, which are refused, and what to write instead."""

SECTIONS = ("mrope_section", "xdrope_section")
STRIDED = ("mrope_interleaved", "interleaved")
COMMON = ("rope_type", "rope_theta", "partial_rotary_factor", *SECTIONS, *STRIDED)
"""Keys that any rope type may have."""

_OTHER_KEYS = {"scaling_factor": "factor"}
"""Names of keys in other programs, which are refused, and today's names."""

ARGUMENTS = {"base": "rope_theta", "original_length": ORIGINAL, "trained_length": "max_position_embeddings"}
"""The keys of the arguments of the functions in `scaling` that have another name."""

IGNORED = {
    "finetuned": "true if the weights were trained with the scaling",
    "max_position_embeddings": "the extended length",
    "llama_4_scaling_beta": "not of the rotation: rope_any.bending.temperature scales the queries by it",
}
"""Keys that any rope type may have and that change no frequency, and what they mean."""

OF_FEW_MODELS = {
    "alpha": "multiply the base by alpha ** (rotary_dim / (rotary_dim - 2))",
    **dict.fromkeys(("seq_length", "ntk_factor", "mixed_b"), "have no such key"),
    **dict.fromkeys(("short_mscale", "long_mscale"), "multiply cos and sin by it"),
}
"""Keys of rope types that only models with them as `parameters` read, and what other programs do with them."""

KEYS = {"type", *COMMON, *IGNORED} | {
    key for s in (*SCHEMES.values(), *BY_KEY.values()) for key in (*s.keys, *s.unread)
}
"""All keys that are known inside ``rope_parameters`` and ``rope_scaling``."""


def unknown_name(full: str, name: object, known: Iterable[str]) -> ArgumentValueError:
    """Return the error that a name in a config is not one of the known names; `full` is the name with its path."""
    return ArgumentValueError(full, "be a known name", name, did_you_mean(name, known, _OTHER_KEYS))
