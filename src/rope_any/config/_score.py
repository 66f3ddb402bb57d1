"""
Return the factor by which a model multiplies q·k before the softmax, by ``model_type``.

Read in transformers 5.24, and compared there with the attention of each model. The scale applies to rotated queries and
keys. It does not include the attention factor, which is in cos and sin, nor a factor of q or k before the rotation. If
a class has such a factor, or scales q by its position, the source of the scale says so.
"""

from rope_any._checks import ArgumentValueError
from rope_any.config._load import Fact, Values
from rope_any.config._part import Part
from rope_any.config.tables.rows import UNKNOWN
from rope_any.config.tables.rules import KNOWN_SCALE, Heads


def score_scale(part: Part, values: Values, layer_type: str | None) -> Fact:
    """Return the factor of q·k before the softmax, and its formula, which names layer_type; raise if not known."""
    model = part.model
    if model is UNKNOWN or not model.rotary:
        raise ArgumentValueError(part.name("model_type"), KNOWN_SCALE, part.model_type)
    scale, besides = model.score.rule(Heads(part, values)), model.score.besides
    of = f"{scale.source}, in layers of type {layer_type}" if layer_type else scale.source
    if model.score.unless:
        key, value, default = model.score.unless
        fact = values.find(key) or part.get(key) or Fact(default, "")
        besides = "" if fact.value == value else besides
    return Fact(float(scale.value), f"{of}; {besides}" if besides else of)
