"""
Return the factor by which a model multiplies q·k before the softmax, by ``model_type``.

Read in transformers 5.24, and compared there with the attention of each model. The scale applies to rotated queries and
keys. It does not include the attention factor, which is in cos and sin, nor a factor of q or k before the rotation. If
a class has such a factor, or scales q by its position, the source of the scale says so.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from rope_any._checks import NOTHING, ArgumentValueError, Text, integer, positive
from rope_any.config._load import Fact, agreed, checked
from rope_any.config._models import MODELS, Model, Score, rules
from rope_any.config._part import Part

Facts = Mapping[str, Fact]

_WANTED = "be one whose score scale is known (of most models, 1 / sqrt(head_dim))"


class _RuleInput(NamedTuple):
    """The argument of a rule: layers of one kind, with the part of the config that they belong to."""

    part: Part
    score: Score
    sizes: Facts
    parameters: Facts

    def size(self, key: str, class_default: int | None = None) -> Fact:
        """Return the size under a key, or else `class_default`; raise if both are missing or it is not positive."""
        default = self.part.default
        fact = self.sizes.get(key) or (None if class_default is None else Fact(class_default, default))
        if fact is None:
            raise ArgumentValueError(self.part.name(key), f"be given for the score scale of {self.part.model_type}")
        if integer(fact.source, fact.value) < 1:
            raise ArgumentValueError(fact.source, "be positive", fact.value)
        return Fact(fact.value, f"{key} {fact.value}, {default}" if fact.source == default else fact.source)


def _by_head(rule_input: _RuleInput) -> Fact:  # 1/√d
    """Return the scale of most models, 1 / sqrt(head_dim)."""
    head = rule_input.size("head_dim")
    return Fact(head.value**-0.5, f"1 / sqrt({head.source})")


def _by_half_a_head(rule_input: _RuleInput) -> Fact:  # 1/√(d/2)
    """Return the scale of a model whose heads take two concatenated vectors, 1 / sqrt(head_dim / 2)."""
    head = rule_input.size("head_dim")
    return Fact((head.value / 2) ** -0.5, f"1 / sqrt({head.source} / 2)")


def _by_slices(rule_input: _RuleInput) -> Fact:  # 1/√(plain + rotary)
    """Return the scale of MLA, 1 / sqrt(width without rotary + rotary width). Raise if ``qk_head_dim`` differs."""
    plain, rotary = rule_input.size("qk_nope_head_dim", rule_input.score.plain), rule_input.size("qk_rope_head_dim")
    head = Fact(plain.value + rotary.value, f"{plain.source} + {rotary.source}")
    given = rule_input.part.get("qk_head_dim")
    agreed(head, given and checked(given, integer))
    return Fact(head.value**-0.5, f"1 / sqrt({head.source})")


def _with_mscale(rule_input: _RuleInput) -> Fact:  # m²/√d, m = 1 + 0.1 mscale_all_dim ln factor
    """Return MLA's scale times m², m = 1 + 0.1 ``mscale_all_dim`` ln(factor), or m = 1 if unscaled or without it."""
    scale, keys = _by_slices(rule_input), ("rope_type", "mscale_all_dim", "factor")
    kind, c, s = (rule_input.parameters.get(key) or Fact(None, rule_input.part.name(key)) for key in keys)
    if kind.value in (None, "default") or not c.value:
        return scale
    if s.value is None:
        raise ArgumentValueError(s.source, f"be given: {rule_input.part.model_type} scales scores by it and {c.source}")
    m = 1 + 0.1 * positive(c.source, c.value) * math.log(max(positive(s.source, s.value), 1))
    return Fact(scale.value * m * m, f"{scale.source} * mscale², mscale = 1 + 0.1 * {c.source} * ln({s.source})")


def _by_key(rule_input: _RuleInput) -> Fact:
    """Return the value at `Score.key`, or its default, to a power, or 1 / sqrt(head_dim). Raise if not positive."""
    part, key, power, default = rule_input.part, rule_input.score.key, rule_input.score.power, rule_input.score.default
    fact = part.get(key)
    if fact is None and default is None:
        return _by_head(rule_input)
    if fact is None and key in part.keys:
        raise ArgumentValueError(part.name(key), f"be a number for {part.model_type}", Text("null"))
    fact = fact or Fact(default, f"{key} {default}, {part.default}")
    value = positive(part.name(key), fact.value)
    return Fact(value**power, fact.source if power == 1 else f"({fact.source}) ** {power}")


def _one(rule_input: _RuleInput) -> Fact:
    """Return the scale 1, of models that do not scale q·k."""
    return Fact(1.0, f"{rule_input.part.model_type} does not scale q·k")


def _unknown(rule_input: _RuleInput) -> NoReturn:
    """Raise, because the config of this model does not determine its score scale; the error says why."""
    name, kind = rule_input.part.name("model_type"), rule_input.part.model_type
    raise ArgumentValueError(name, _WANTED, kind, f"that of {kind} is unknown: {rule_input.score.why}")


RULES = rules(_by_head, _by_half_a_head, _by_slices, _with_mscale, _by_key, _one, _unknown)


def score_scale(part: Part, sizes: Facts, parameters: Facts, layer_type: str | None) -> Fact:
    """Return the factor of q·k before the softmax, and its formula, which names layer_type; raise if not known."""
    name, model = part.name("model_type"), MODELS.get(part.model_type or "", Model(rotary=False))
    if name == "general.architecture" and (scale := part.get("attention_multiplier")):
        return Fact(positive(scale.source, scale.value), scale.source)
    if name == "general.architecture":
        hint = "GGUF metadata does not give the score scale: read the config.json of the model"
        raise ArgumentValueError(name, _WANTED, NOTHING, hint)
    if not model.rotary:
        raise ArgumentValueError(name, _WANTED, part.model_type)
    layers = _RuleInput(part, model.score, sizes, parameters)
    scale = RULES[model.score.rule](layers)
    of = f"{scale.source}, in layers of type {layer_type}" if layer_type else scale.source
    besides = "" if model.score.unless and _has_value(layers, **model.score.unless) else model.score.besides
    return Fact(float(scale.value), f"{of}; {besides}" if besides else of)


def _has_value(rule_input: _RuleInput, key: str, value: Any = None, default: Any = None) -> bool:
    """Whether a key has this value: in the parameters, else in the config, else as the `default` of the class."""
    fact = rule_input.parameters.get(key) or rule_input.part.get(key) or Fact(default, "")
    return bool(fact.value == value)
