"""
Return the factor by which a model multiplies q·k before the softmax, by ``model_type``.

Read in transformers 5.24, and compared there with the attention of each model. The scale applies to rotated queries and
keys. It does not include the attention factor, which is in cos and sin, nor a factor of q or k before the rotation. If
a class has such a factor, or scales q by its position, the source of the scale says so.
"""

from rope_any._checks import NOTHING, ArgumentValueError, positive
from rope_any.config._load import Fact, Values
from rope_any.config._part import Part
from rope_any.config.tables.models import MODELS
from rope_any.config.tables.rows import Model
from rope_any.config.tables.rules import KNOWN_SCALE, Heads


def score_scale(part: Part, values: Values, layer_type: str | None) -> Fact:
    """Return the factor of q·k before the softmax, and its formula, which names layer_type; raise if not known."""
    name, model = part.name("model_type"), MODELS.get(part.model_type or "", Model(rotary=False))
    if name == "general.architecture" and (scale := part.get("attention_multiplier")):
        return Fact(positive(scale.source, scale.value), scale.source)
    if name == "general.architecture":
        hint = "GGUF metadata does not give the score scale: read the config.json of the model"
        raise ArgumentValueError(name, KNOWN_SCALE, NOTHING, hint)
    if not model.rotary:
        raise ArgumentValueError(name, KNOWN_SCALE, part.model_type)
    scale, besides = model.score.rule(Heads(part, values)), model.score.besides
    of = f"{scale.source}, in layers of type {layer_type}" if layer_type else scale.source
    if model.score.unless:
        key, value, default = model.score.unless
        fact = values.find(key) or part.get(key) or Fact(default, "")
        besides = "" if fact.value == value else besides
    return Fact(float(scale.value), f"{of}; {besides}" if besides else of)
