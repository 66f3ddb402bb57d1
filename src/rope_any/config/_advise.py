"""Tell from the numbers of a config what is known of a longer context, and which parameters to try."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from rope_any import scaling
from rope_any._checks import no_rope
from rope_any._frequencies import Row, as_rows
from rope_any._rope import Rope
from rope_any.config._load import Fact
from rope_any.config._recipe import without_scaling
from rope_any.config._schemes import ORIGINAL


class Outlook(NamedTuple):
    """What one scheme does to the pairs at a length."""

    factor: float
    """The divisor of the frequency of the pair that it slows most; 1 if it slows none."""
    wavelengths: tuple[float, float]
    """The shortest and the longest, in tokens, of pairs that rotate."""
    slowed: int
    """The number of pairs that rotate slower than without scaling."""
    unseen: int
    """The number of pairs that reach angles beyond those of training without scaling."""
    attention_factor: float
    """The factor of cosine and sine."""
    score: float
    """
    The mean of ``cos(distance · frequency)`` over all pairs and the distances from half of the length on.

    The nearer it is to `Advice.score`, the less far tokens' scores differ from those in training.
    """


class Advice(NamedTuple):
    """What is known from the numbers alone about a rotation at a longer length."""

    layer_type: str | None
    """The type of layers; None if layers don't differ."""
    trained_length: Fact
    """The length that the model was trained for before any scaling, in tokens."""
    extended_length: Fact | None
    """The length that the scaling of the config is for; None if it does not say."""
    length: int
    """The length asked for."""
    pairs: int
    """The number of pairs that rotate."""
    unfinished: int
    """How many of them never complete a turn within the trained length, without scaling."""
    critical_dimension: int
    """The number of features in pairs that complete one."""
    base: float
    """The base of the config."""
    bases: dict[str, float]
    """The least base for this length, by paper."""
    score: float
    """As `Outlook.score`, without scaling and at the trained length."""
    schemes: dict[str, Outlook]
    """
    The `Outlook` of each scheme by name; empty if the length is not beyond the trained one.

    If the config has a scaling, ``config`` is that, and ``to try`` that of `rope_parameters`.
    """
    rope_parameters: dict[str, Any] | None
    """The parameters to try, in today's form; None if there is no reason or no formula."""
    reason: str
    """Why these, or why none."""
    in_window: bool
    """Whether no distance in these layers is longer than their window."""
    code: str | None
    """The parameters as code for a ``config.json`` of transformers; None without parameters."""


PERPLEXITY = {"none": 22.8, "linear": 21.9, "ntk": 19.8, "yarn": 5.6}
"""Of `tools/perplexity.py` by scheme: a small model, trained on 128 bytes, with 1024; see docs/perplexity.md."""

LIU, MEN = "arXiv:2310.05209", "arXiv:2405.14591"
WINDOWED = ("sliding_attention", "chunked_attention")
"""Types of layers with a window."""
ALL_WINDOWED = ("mistral", "phi3", "starcoder2")
"""Model types of which all layers have a window if the config gives one."""
_NO_FORMULA = {
    "dynamic": "dynamic scaling follows the length by itself",
    "dynamic_yarn": "dynamic scaling follows the length by itself",
    "longrope": "the factors of LongRoPE are found by search, not by a formula",
}


def advice(  # noqa: PLR0917  # its one caller has all of them
    layer_type: str | None,
    rope: Rope,
    facts: Mapping[str, Fact],
    parameters: Mapping[str, Any],
    trained: Fact,
    length: int,
    /,
    *,
    path: tuple[str, ...],
    in_window: bool,
) -> Advice:
    """Return what schemes do at `length`, and parameters to try (none if `in_window`), for the config's `rope`."""
    base, original = float(facts["rope_theta"].value), float(trained.value)
    row = unscaled(rope, facts)
    turning = [f for f in row if f]
    finished = sum(f * original >= 2 * math.pi for f in turning)
    reached = max(original, facts["extended_length"].value) if "extended_length" in facts else original
    new_parameters, reason = _parameters_to_try(facts, parameters, original, length, reached)
    if in_window and length > reached:
        new_parameters, reason = None, "no distance in these layers is longer than their window"
    own = {} if facts["rope_type"].value == "default" else {"config": (sum_over_axes(rope), rope.attention_factor)}
    schemes = _schemes(row, base, original, length) | own if length > reached else {}
    d = 2 * len(row)
    bases = {MEN: 0.0424 * length**1.628}
    if 0 < finished < len(turning):
        bases[LIU] = (length / (2 * math.pi)) ** (d / (2 * finished))
    return Advice(
        layer_type=layer_type,
        trained_length=trained,
        extended_length=facts.get("extended_length"),
        length=length,
        pairs=len(turning),
        unfinished=len(turning) - finished,
        critical_dimension=2 * finished,
        base=base,
        bases=bases,
        score=_mean_score(row, original),
        schemes={name: outlook(row, *made, original, length) for name, made in schemes.items()},
        rope_parameters=new_parameters,
        reason=reason,
        in_window=in_window,
        code=None if new_parameters is None else _code(new_parameters, layer_type, length, path),
    )


def _code(new_parameters: dict[str, Any], layer_type: str | None, length: int, path: tuple[str, ...]) -> str:
    """Return Python code that puts `new_parameters` and `length` into a config, at `path`, and makes its `Rope`."""
    part = "config" + "".join(f"[{key!r}]" for key in path)
    items = "".join(f"    {key!r}: {value!r},\n" for key, value in new_parameters.items())
    own, option = ("", "") if layer_type is None else (f"[{layer_type!r}]", f", layer_type={layer_type!r}")
    return (
        'config = ra.config.modernize("config.json")\n'
        f'{part}["rope_parameters"]{own} = {{\n{items}}}\n'
        f'{part}["max_position_embeddings"] = {length}\n'
        f"rope = ra.Rope.from_config(config{option})"
    )


def unscaled(rope: Rope, facts: Mapping[str, Fact], /) -> Row:
    """Return the frequencies by the base in `facts`, without scaling; 0 for a pair whose frequency in `rope` is 0."""
    row = without_scaling(facts["rotary_dim"].value, float(facts["rope_theta"].value))
    return tuple(f if own else 0.0 for f, own in zip(row, sum_over_axes(rope), strict=True))


def sum_over_axes(rope: Rope, name: str = "rope", /) -> Row:
    """Return the sum of the frequencies of each pair over all axes; raise, with `name`, if `rope` is no `Rope`."""
    if not isinstance(rope, Rope):
        raise no_rope(name, rope)
    return tuple(map(sum, zip(*as_rows(rope.frequencies), strict=True)))


def _schemes(row: Row, base: float, trained_length: float, length: int) -> dict[str, tuple[Row, float]]:
    """Return {name: (frequencies, attention factor)} of none, linear, ntk, yarn for length / trained_length."""
    s = length / trained_length
    return {
        "none": (row, 1.0),
        "linear": (scaling.linear(row, s), 1.0),
        "ntk": (scaling.ntk(row, s), 1.0),
        "yarn": (scaling.yarn(row, s, base=base, original_length=trained_length), scaling.yarn_attention_factor(s)),
    }


def outlook(row: Row, scaled: Row, attention_factor: float, trained_length: float, length: int, /) -> Outlook:
    """Return what a scheme does at `length` that changes trained `row` to `scaled`; `attention_factor` is copied."""
    scaled = tuple(map(abs, scaled))  # NanoChat rotates backwards
    periods = [2 * math.pi / f for f in scaled if f]
    both = [(f, g) for f, g in zip(row, scaled, strict=True) if f]
    # a pair that completed a turn has shown all angles
    unseen = sum(f * trained_length < 2 * math.pi and g * length > f * trained_length * (1 + 1e-9) for f, g in both)
    slowed = sum(g < f * (1 - 1e-9) for f, g in both)
    factor = max([1.0, *(f / g for f, g in both if g)])
    return Outlook(factor, (min(periods), max(periods)), slowed, unseen, attention_factor, _mean_score(scaled, length))


def _mean_score(row: Row, length: float) -> float:
    """Return the mean of cos(distance · f) over the f in `row` and all distances from ``length / 2`` to `length`."""
    # mean over m from L/2 to L of cos(f m) = (sin(f L) − sin(f L/2)) / (f L/2)
    means = [(math.sin(f * length) - math.sin(f * length / 2)) / (f * length / 2) if f else 1.0 for f in row]
    return sum(means) / len(means)


def _parameters_to_try(
    facts: Mapping[str, Fact], parameters: Mapping[str, Any], trained_length: float, length: int, allowed_length: float
) -> tuple[dict[str, Any] | None, str]:
    """Return parameters in today's form and why; (None, why) if `allowed_length` is enough or no recipe is known."""
    kind, factor = facts["rope_type"].value, length / trained_length
    if length <= allowed_length:
        return None, f"the config is for {allowed_length:.0f} tokens already"
    if kind in ("yarn", "llama3", "linear"):
        old = facts["factor"].value
        derived = kind == "yarn" and parameters.get("attention_factor") == scaling.yarn_attention_factor(old)
        kept = {key: value for key, value in parameters.items() if key != "attention_factor" or not derived}
        new = old * length / allowed_length if allowed_length > trained_length else factor
        why = f"the scheme of the config, {kind}, with a factor for this length; train at this length"
        return {**kept, "factor": new}, why
    if kind == "default":
        whole = int(trained_length) if trained_length.is_integer() else trained_length
        why = "YaRN keeps fast pairs; Qwen2.5 and Qwen3 use it without training up to a factor of 4"
        why += "" if factor <= 4 else ": train at this length, which is beyond that"
        return {**parameters, "rope_type": "yarn", "factor": factor, ORIGINAL: whole}, why
    return None, _NO_FORMULA.get(kind, f"no published recipe extends the scheme {kind}")
