"""
Know the keys about rotary embedding: which of them a model reads, and refuse the others.

A key that nothing reads may be a value that the weights were trained with, so it is refused, unless it agrees with what
is read.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache, partial
from typing import Any

from rope_any._checks import ArgumentValueError
from rope_any._names import did_you_mean
from rope_any.config._load import Fact, same
from rope_any.config._part import BASE, COUNT, FLAGS, OBJECTS, SHARE, TODAY, TYPES, Part
from rope_any.config.tables.models import MODELS
from rope_any.config.tables.rows import UNKNOWN, Model
from rope_any.config.tables.rules import indices
from rope_any.config.tables.words import CHANGES_ATTENTION, DECIDED_BY_MODEL, NEUTRAL, OTHER_KEYS

ROTARY = re.compile(
    r"(^|[^a-z])((m|x|xd|i)?rope|xdrope|rotary|theta|yarn|xpos|ntk|inv_freq|freq_base)|^nope_|_nope$"
    "|R(ope|oPE|OPE|otary|OTARY)|T(heta|HETA)|Y(arn|aRN|ARN)"
)
"""Matches names about rotary embedding."""


# --- the keys of all models ---------------------------------------------------------------------------------


def read_by(model: Model, /) -> frozenset[str]:
    """Return the keys in a model's row, which the check of unknown keys about rotary embedding must accept."""
    rules = [rule for rule in (model.has_rotary, model.pattern) if isinstance(rule, partial)]
    named = {name for rule in rules for name in rule.keywords.values() if isinstance(name, str)}
    own = {*model.keys.values(), *model.sizes, *(layer.key for layer in model.layers.values()), *model.neutral}
    of_indexer = {"indexer_rope_interleave"} if model.indexer or model.no_indexer else set()
    return frozenset({*named, *own, *of_indexer, *model.unread, *model.ignored, *(model.switch or ())[:1]})


@cache
def model_names(name: str, /) -> tuple[str, ...]:
    """Return all keys, or paths "object.key", that models have for a common name; `name` itself may be one of them."""
    return tuple(dict.fromkeys(model.keys[name] for model in MODELS.values() if name in model.keys))


@cache
def synonyms() -> Mapping[str, tuple[str, frozenset[str]]]:
    """Return by key what some model has there, a base, a share or a count, and for which kinds of layers (if any)."""
    common = ("rope_theta", "partial_rotary_factor", "rotary_dim")
    found = {key: (name, frozenset[str]()) for name in common for key in (name, *model_names(name)) if "." not in key}
    for label, layer in (item for model in MODELS.values() for item in model.layers.items()):
        if layer.key != "rope_theta":
            found[layer.key] = "rope_theta", frozenset({label}).union(found.get(layer.key, ("", ()))[1])
    return found


def several_axes_hint(model_type: str | None, /) -> str:
    """Return what to write instead of a value of M-RoPE for a model type whose positions have one axis."""
    near = f"{model_type}_vl_text"
    example = f", such as {near}" if near in MODELS and MODELS[near].axes else ""
    kind = f"give a model_type whose positions have several axes{example}"
    return f"{kind}; or leave it out for text alone, where all axes have equal positions"


@cache
def _keys_of_any_model() -> frozenset[str]:
    """Return the keys about rotary embedding that at least one model reads; cached."""
    return frozenset({*OBJECTS, *TODAY, *FLAGS}.union(*map(read_by, MODELS.values())))


# --- the keys of a part -------------------------------------------------------------------------------------


def unread(part: Part, read: Collection[str], also: str = "$^") -> Iterator[Fact]:
    """Yield each value that is not neutral whose key is about rotary (or matches `also`) and not in `read`."""
    for key, value in part.keys.items():
        is_rotary = ROTARY.search(str(key)) or re.search(also, str(key))
        if is_rotary and key not in read and value is not None and not same(value, NEUTRAL.get(key)):
            yield Fact(value, part.name(str(key)))


def require_known_keys(part: Part) -> Part:
    """Return a part; raise for a rotary key that its model does not read, an unsupported value or wrong layer rules."""
    model = part.model
    _require_neutral(part)
    is_unknown, heads, known = model is UNKNOWN, model_names("head_dim"), _known_keys(model)
    for key, value in part.keys.items():
        if is_unknown and key in heads and value is not None and not same(value, part.keys.get("head_dim")):
            raise ArgumentValueError(part.name(key), "equal head_dim, which alone is read for an unknown model", value)
        if key in known or key in NEUTRAL or value is None or (key in DECIDED_BY_MODEL and value is False):
            continue
        if not (ROTARY.search(key) or (model.rotary and key in OTHER_KEYS) or (is_unknown and key in DECIDED_BY_MODEL)):
            continue
        name, _ = synonyms().get(key, ("", ()))
        if name and not is_unknown and (model.rotary or (name == SHARE and same(value, 1))):
            continue  # `require_synonyms` compares it with what is read
        raise _unread(part, key)
    _require_rules(part)
    return part


def _require_neutral(part: Part) -> None:
    """Raise for a key of `NEUTRAL` with another value than the one there."""
    for path, neutral in {**NEUTRAL, **part.model.neutral}.items():
        if path not in part.model.unread and (fact := part.get(path)) is not None and not same(fact.value, neutral):
            wanted = f"be {neutral}, the only supported value"
            raise ArgumentValueError(fact.source, wanted, fact.value, OTHER_KEYS.get(path, ""))


def _known_keys(model: Model) -> set[str]:
    """Return the keys about rotary embedding that a model reads, or that change nothing in it."""
    is_unknown = model is UNKNOWN
    known = {COUNT, "qk_rope_head_dim"} if is_unknown else set(read_by(model))
    known |= CHANGES_ATTENTION.keys() - (DECIDED_BY_MODEL if is_unknown else set())
    return known | ({*OBJECTS, *FLAGS, SHARE, *([] if model.layers else [BASE])} if model.rotary else set())


def require_synonyms(part: Part, label: str | None, values: Mapping[str, Any], /) -> None:
    """Raise for a key of other models that this one does not read, unless its value is the one that is read."""
    known = _known_keys(part.model)
    for key, (name, labels) in synonyms().items():
        of_others = label and labels and label not in labels  # other kinds of layers
        if key not in known and (fact := part.get(key)) and not of_others and not same(fact.value, values.get(name)):
            raise _unread(part, key)


def _unread(part: Part, key: str) -> ArgumentValueError:
    """Return the error for a key about rotary that the model does not read."""
    meant = next((name for name in TODAY if key in model_names(name)), OTHER_KEYS.get(key, key))
    hint = did_you_mean(meant, _known_keys(part.model)) if meant.isidentifier() else meant
    wanted = "be left out: it is an unknown name about rotary embedding"
    if part.model is UNKNOWN:
        wanted = "not be given for an unknown model_type: only the model's code says what it does"
        hint = f"leave it out, with its effect in {BASE}, {SHARE} and {OBJECTS[0]}"
    elif not part.model.rotary or key in _keys_of_any_model():
        why = "does not read it" if part.model.rotary else "has no rotary embedding"
        wanted, hint = f"not be given for {part.model_type}, which {why}", "" if meant == key else hint
    return ArgumentValueError(part.name(key), wanted, part.keys[key], hint)


def _require_rules(part: Part) -> None:
    """Raise if the model's rules for layers can't read their keys in the config; the rules are tried for layer 0."""
    if "scaled_layers" in part.model.keys:
        indices(part, part.model.keys["scaled_layers"])
    part.model.has_rotary(part, "full_attention", 0)
    if part.model.pattern is not None and not any(map(part.get, TYPES)):
        part.model.pattern(part, 0, 2)
