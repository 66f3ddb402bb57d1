"""
List the rope types of configs: which keys each reads, and what it makes of the frequencies.

Names are those of ``rope_parameters`` in transformers; a key without a default is required.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rope_any import scaling
from rope_any._checks import ArgumentValueError
from rope_any._frequencies import Row

Values = Mapping[str, Any]
"""Of the keys of a scheme and, besides, ``rope_theta``, ``partial_rotary_factor`` and ``length``."""

REQUIRED = object()
ORIGINAL = "original_max_position_embeddings"


class Scheme(NamedTuple):
    """One rope type."""

    keys: Mapping[str, Any]
    """What it reads, with defaults; None stands for a value that follows from others."""
    bend: Callable[[Row, Values], tuple[Row, float | str]]
    """From frequencies and values to frequencies, and the attention factor or the key that holds it."""
    trained: str = ""
    """The key of the length it is trained for, where the scheme depends on the length of the sequence."""
    unread: tuple[str, ...] = ()
    """Keys that stand beside the others in published configs and mean nothing here."""


def _default(f: Row, v: Values) -> tuple[Row, float | str]:
    """Return the frequencies unchanged, and the attention factor 1."""
    return f, 1.0


def _linear(f: Row, v: Values) -> tuple[Row, float | str]:
    """Return the frequencies divided by the factor, and the attention factor 1."""
    return scaling.linear(f, v["factor"]), 1.0


def _dynamic(f: Row, v: Values) -> tuple[Row, float | str]:
    """Return frequencies by NTK-aware scaling that grows with the sequence length, and the attention factor 1."""
    trained = v["max_position_embeddings"]
    return scaling.dynamic_ntk(f, v["factor"], length=v["length"], trained_length=trained), 1.0


def _ntk(f: Row, v: Values) -> tuple[Row, float | str]:
    """Return frequencies by NTK-aware scaling with a fixed ``alpha``, and the attention factor 1."""
    return scaling.ntk(f, v["alpha"]), 1.0


def _ramp(v: Values) -> dict[str, Any]:
    """Return the keyword arguments that `scaling.yarn` and `scaling.dynamic_yarn` share."""
    return {
        "base": v["rope_theta"],
        "original_length": v[ORIGINAL],
        "beta_fast": v["beta_fast"],
        "beta_slow": v["beta_slow"],
        "truncate": v["truncate"],
    }


def _stated(v: Values, *keys: str) -> str | None:
    """Return the first of some keys that has a value."""
    return next((key for key in keys if v[key] is not None), None)


def _yarn(f: Row, v: Values) -> tuple[Row, float | str]:
    """Return frequencies by YaRN, and the attention factor: the key that holds it, or the number derived."""
    derived = scaling.yarn_attention_factor(v["factor"], mscale=v["mscale"], mscale_all_dim=v["mscale_all_dim"])
    return scaling.yarn(f, v["factor"], **_ramp(v)), _stated(v, "attention_factor") or derived


def _dynamic_yarn(f: Row, v: Values) -> tuple[Row, float | str]:
    """Return frequencies by dynamic YaRN, and the attention factor: the key that holds it, or the number derived."""
    derived = scaling.yarn_attention_factor(v["length"] / v[ORIGINAL])
    return scaling.dynamic_yarn(f, length=v["length"], **_ramp(v)), _stated(v, "attention_factor") or derived


def _longrope(f: Row, v: Values) -> tuple[Row, float | str]:
    """Return frequencies by LongRoPE, and the attention factor: the key that holds it, or the number derived."""
    original, length = v[ORIGINAL], v["length"]
    stated = _stated(v, "long_mscale" if length > original else "short_mscale", "attention_factor")
    scale = stated or scaling.longrope_attention_factor(v["factor"], original_length=original)
    lists = {name: v[name] for name in ("short_factor", "long_factor")}
    return scaling.longrope(f, **lists, original_length=original, length=length), scale


def _llama3(f: Row, v: Values) -> tuple[Row, float | str]:
    """Return the frequencies scaled as in Llama 3, and the attention factor 1."""
    ends = {name: v[name] for name in ("low_freq_factor", "high_freq_factor")}
    return scaling.llama3(f, v["factor"], original_length=v[ORIGINAL], **ends), 1.0


def _proportional(f: Row, v: Values) -> tuple[Row, float | str]:
    """Return the frequencies of a share of the pairs divided by the factor, 0 for others; the attention factor is 1."""
    return scaling.linear(scaling.proportional(f, v["partial_rotary_factor"]), v["factor"]), 1.0


_RAMP = {ORIGINAL: REQUIRED, "attention_factor": None, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
_HUNYUAN = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim")

SCHEMES: dict[str, Scheme] = {
    "default": Scheme({}, _default),
    "linear": Scheme({"factor": REQUIRED}, _linear),
    "dynamic": Scheme(
        {"factor": REQUIRED, "max_position_embeddings": REQUIRED}, _dynamic, "max_position_embeddings", _HUNYUAN
    ),
    "yarn": Scheme({"factor": REQUIRED, **_RAMP, "mscale": None, "mscale_all_dim": None}, _yarn),
    "dynamic_yarn": Scheme(_RAMP, _dynamic_yarn, ORIGINAL, ("factor",)),
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
        {"factor": REQUIRED, ORIGINAL: REQUIRED, "low_freq_factor": REQUIRED, "high_freq_factor": REQUIRED}, _llama3
    ),
    "proportional": Scheme({"factor": 1.0}, _proportional),
}

WITH_ALPHA = Scheme({"alpha": REQUIRED}, _ntk, unread=("factor", *_HUNYUAN))
"""Rope type dynamic beside ``alpha``, as in Hunyuan: NTK-aware scaling, the same at every length."""

ALIASES = {"su": "longrope", "mrope": "default", "dynamic-yarn": "dynamic_yarn"}
"""Older and other names of rope types."""

OTHERS = {
    "pi": "linear",
    "position_interpolation": "linear",
    "ntk": "dynamic, or raise rope_theta as rope_any.scaling.ntk does",
    "ntk_aware": "dynamic, or raise rope_theta as rope_any.scaling.ntk does",
    "dynamic_ntk": "dynamic",
    "ntk_by_parts": "yarn, with attention_factor 1",
    "deepseek_yarn": "yarn",
    "none": "default",
}
"""Names that other programs have for a rope type, and what to write."""

SECTIONS = ("mrope_section", "xdrope_section")
STRIDED = ("mrope_interleaved", "interleaved")
COMMON = ("rope_type", "rope_theta", "partial_rotary_factor", *SECTIONS, *STRIDED)
"""Keys of every rope type."""

IGNORED = {
    "finetuned": "says that the weights were trained for it",
    "max_position_embeddings": "the extended length",
    "llama_4_scaling_beta": "not of the rotation: rope_any.bending.temperature scales the queries by it",
}
"""Keys of every rope type that change no frequency."""

KEYS = {"type", *COMMON, *IGNORED} | {key for s in (*SCHEMES.values(), WITH_ALPHA) for key in (*s.keys, *s.unread)}
"""All keys that are known inside ``rope_parameters`` and ``rope_scaling``."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean ...?" with the nearest known name, or an empty string if none is near."""
    from difflib import get_close_matches  # slow to import, and for errors alone

    found = get_close_matches(name[:80], known, n=1)
    return f"did you mean {found[0]}?" if found else ""


def unknown_name(full: str, name: object, known: Iterable[str]) -> ArgumentValueError:
    """Return the error for a name in a config, `full` with its path, that is none of the known ones."""
    return ArgumentValueError(full, "be a known name", name, did_you_mean(str(name), known))
