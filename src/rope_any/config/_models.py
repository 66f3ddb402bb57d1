"""Answer questions about the rows of all models."""

from functools import cache, partial

from rope_any.config.tables.models import MODELS
from rope_any.config.tables.rows import Model


def read_by(model: Model, /) -> frozenset[str]:
    """Return the keys in a model's row, which the check of unknown keys about rotary embedding must accept."""
    rules = [rule for rule in (model.has_rotary, model.pattern) if isinstance(rule, partial)]
    named = {name for rule in rules for name in rule.keywords.values() if isinstance(name, str)}
    own = {*model.keys.values(), *model.sizes, *(layer.key for layer in model.layers.values())}
    of_indexer = {"indexer_rope_interleave"} if model.indexer or model.no_indexer else set()
    return frozenset({*named, *own, *of_indexer, *model.unread, *model.ignored, *(model.switch or ())[:1]})


def several_axes_hint(model_type: str | None, /) -> str:
    """Return what to write instead of a value of M-RoPE for a model type whose positions have one axis."""
    near = f"{model_type}_vl_text"
    example = f", such as {near}" if near in MODELS and MODELS[near].axes else ""
    return f"leave it out, or give a model_type whose positions have several axes{example}"


@cache
def model_names(name: str, /) -> tuple[str, ...]:
    """Return all keys, or paths "object.key", that models have for a common name; `name` itself may be one of them."""
    return tuple(dict.fromkeys(model.keys[name] for model in MODELS.values() if name in model.keys))
