"""
Find the text part of a config of transformers, and the row of its model.

`_layers` reads the values of its layers.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rope_any._checks import NOTHING, ArgumentValueError
from rope_any._names import did_you_mean, misspelt
from rope_any._pairing import Pairing
from rope_any.config._load import Fact, agreed, is_name, require_names, same
from rope_any.config._part import BASE, COUNT, HIDDEN, LAYERS, OBJECTS, SHARE, TYPES, Part, model_type_of
from rope_any.config._rotary_keys import ROTARY, model_names, require_known_keys
from rope_any.config._schemes import ALIASES
from rope_any.config.tables.models import ALL, MODELS
from rope_any.config.tables.rows import UNKNOWN, Model
from rope_any.config.tables.words import NEUTRAL, OTHER_KEYS, OTHER_VALUES

TEXT = ("text_config", "thinker_config", "vlm_config", "language_config", "llm_config", "llm_cfg", "decoder")
_DECODER = "decoder_config"  # it is the text of VibeVoice, but not of all models
_OF_DIFFUSERS = ("_diffusers_version", "attention_head_dim", "axes_dims_rope", "rope_max_seq_len", "in_channels")
_OF_GENERATION = ("_from_model_config", "do_sample", "max_new_tokens", "top_p")
_OF_TOKENIZERS = ("added_tokens_decoder", "chat_template", "clean_up_tokenization_spaces", "pre_tokenizer")
_OF_PROCESSORS = ("image_processor_type", "feature_extractor_type", "processor_class")
_OF_OTHER_FILES = {
    **dict.fromkeys(_OF_DIFFUSERS, "a config.json of diffusers has _class_name, which decides it"),
    **dict.fromkeys(_OF_GENERATION, "give the config.json: this is a generation_config.json"),
    **dict.fromkeys(_OF_TOKENIZERS, "give the config.json: this is a file of the tokenizer"),
    **dict.fromkeys(_OF_PROCESSORS, "give the config.json: this is a file of the processor"),
    "weight_map": "give the config.json: this is the index of the weights",
    "peft_type": "give the config.json of the base model: this is an adapter_config.json",
    "rope_type": OTHER_KEYS["rope_type"],
}
"""Keys that show what an object without `model_type` is, and what to say of it."""
_IN_ITS_CODE = (
    "If it rotates as a known model, write that model_type (llama pairs i and i + d/2, cohere 2i and 2i + 1, "
    "bert none); if not, take these from its code: partial_rotary_factor 1 is a whole head, "
    'layer_types has "full_attention" for layers that rotate'
)


# --- which part -------------------------------------------------------------------------------------------


def part_of(keys: Mapping[str, Any], pairing: Pairing | None = None, /) -> Part:
    """
    Return the text part of a config of transformers; `pairing` is required if its model type is unknown.

    Raise if the part has an unknown name about rotary embedding, or lacks or contradicts a value of objects around it.
    """
    require_names(keys)
    path: tuple[str, ...] = ()
    outer = None
    levels = []
    for inner in text_path(keys):
        outer = model_type_of(keys, path) or outer
        levels.append((keys, path, inner))
        keys, path = keys[inner], (*path, inner)
        require_names(keys)
    written = model_type_of(keys, path)
    by_class = "" if written or _text_part_of(outer) else _type_by_class(keys)
    model_type = by_class or written or _text_part_of(outer) or None
    model_type = _text_part_of(model_type) or model_type
    instead = ALL.get(model_type or "", UNKNOWN).instead
    model_type = (instead and instead(keys)) or model_type
    _require_known_model(model_type, keys, path, pairing)
    for level in levels:
        _refuse_outside(*level, MODELS.get(model_type or "", UNKNOWN).partial or 1.0)
    source = "architectures" if by_class else f"model_type {written or outer}, its text part"
    names = {} if model_type == written else {"model_type": source}
    return part_at(keys, path, model_type, pairing, names)


def text_path(keys: Mapping[str, Any], /) -> tuple[str, ...]:
    """Return the keys that lead from a config to its text part; () if the whole config is the text part."""
    path: tuple[str, ...] = ()
    for _ in TEXT:
        decoder = keys.get(_DECODER)
        is_text = isinstance(decoder, Mapping) and str(decoder.get("model_type")) in MODELS
        names = (*TEXT, _DECODER) if is_text else TEXT
        inner = next((name for name in names if isinstance(keys.get(name), Mapping) and keys[name]), None)
        if inner is None:
            break
        keys, path = keys[inner], (*path, inner)
    return path


def part_at(
    keys: Mapping[str, Any],
    path: tuple[str, ...],
    model_type: str | None,
    pairing: Pairing | None,
    names: Mapping[str, str] = MappingProxyType({}),
    /,
) -> Part:
    """Return the `Part` of `keys` at `path`; raise for a rotary key its model ignores. Most values aren't checked."""
    require_names(keys)
    return _with_computed(require_known_keys(Part(keys, path, model_type, _model(model_type), pairing, names)))


def _with_computed(part: Part) -> Part:
    """Return a part with the values under today's keys that its model computes from keys of its own, if it does."""
    if part.model.computed is None:
        return part
    facts = dict(part.model.computed(part))
    if (base := facts.get(BASE)) and base.value is not None:
        agreed(base, part.get(BASE))
    inner = {key.partition(".")[2]: fact.value for key, fact in facts.items() if "." in key}
    for name in (name for name in OBJECTS if inner and name not in facts and part.get(name)):
        wanted = f"be left out: {facts[f'{OBJECTS[0]}.rope_type'].source} says how {part.model_type} scales"
        raise ArgumentValueError(part.name(name), wanted, part.keys[name])
    if inner:
        facts[OBJECTS[0]] = Fact(inner, facts[f"{OBJECTS[0]}.rope_type"].source)
    return part.with_values(facts)


def _type_by_class(keys: Mapping[str, Any]) -> str:
    """Return the known type of the only class in ``architectures``, such as LlamaForCausalLM; "" if its code is own."""
    found = keys.get("architectures")
    if not isinstance(found, list) or len(found) != 1 or {"model_type", "auto_map"} <= keys.keys():
        return ""
    stem = re.sub("for(causallm|conditionalgeneration)$|(lmhead)?model$", "", str(found[0]).lower())
    return next((each for each in MODELS if stem and each.replace("_", "") == stem), "")


def _text_part_of(model_type: str | None) -> str:
    """Return the model type of the text part of a model with this type; "" if it has none or it is not known."""
    return ALL.get(model_type or "", UNKNOWN).text


def _refuse_outside(keys: Mapping[str, Any], path: tuple[str, ...], inner: str, default_share: float) -> None:
    """Raise if `keys` has a rotary value, except share `default_share`, that ``keys[inner]`` lacks or contradicts."""
    if ALL.get(str(keys.get("model_type")), UNKNOWN).outer_part:
        return
    groups = [OBJECTS, *((name, *model_names(name)) for name in (BASE, SHARE, COUNT))]
    names_of = {name: names for names in groups for name in names}
    objects, where = (keys[inner], *_parameter_objects(keys[inner])), ".".join((*path, inner))
    for key, value in keys.items():
        names = names_of.get(key, (key,))
        is_rotary = key in names_of or (ROTARY.search(key) and not isinstance(value, Mapping))
        is_default = (SHARE in names and same(value, default_share)) or (key == "qk_rope_head_dim" and same(value, 0))
        if value is None or not is_rotary or is_default or same(value, NEUTRAL.get(key)):
            continue
        read = [body[name] for body in objects for name in names if body.get(name) is not None]
        if not read:
            wanted = f"be in {where}: only that part is read, and it has none"
            raise ArgumentValueError(".".join((*path, key)), wanted)
        if not any(_is_subset(value, other) for other in read):
            raise ArgumentValueError(".".join((*path, key)), f"agree with {where}, the part that is read", value)


def _is_subset(a: object, b: object) -> bool:
    """Whether `a` equals `b`; of two objects, whether `b` has all entries of `a`, the rope type under either key."""
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        return same(a, b)
    types = [[str(one[key]) for key in ("rope_type", "type") if one.get(key) is not None] for one in (a, b)]
    types_of_a, types_of_b = ({ALIASES.get(kind, kind) for kind in kinds} for kinds in types)
    return types_of_a <= types_of_b and all(key in ("rope_type", "type") or same(b.get(key), a[key]) for key in a)


def _parameter_objects(keys: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the objects under the keys `OBJECTS`, then the objects in them, which are for single kinds of layers."""
    whole = [body for key in OBJECTS if isinstance(body := keys.get(key), Mapping)]
    return whole + [entry for body in whole for entry in body.values() if isinstance(entry, Mapping)]


# --- which model ------------------------------------------------------------------------------------------


def _model(model_type: str | None) -> Model:
    """Return the facts of a type in `MODELS`, or of one without rotary in `ALL`; `UNKNOWN` for any other and None."""
    known = ALL.get(model_type or "", UNKNOWN)
    return known if model_type in MODELS or not known.rotary else UNKNOWN


def _require_known_model(
    model_type: str | None, keys: Mapping[str, Any], path: tuple[str, ...], pairing: Pairing | None
) -> None:
    """Raise if the model type is unknown or missing, unless the caller and the config say all that it decides."""
    missing = [*(["`pairing`"] if pairing is None else []), *_undecided(keys)]
    if _model(model_type) is not UNKNOWN or not missing:
        return
    name, or_given = ".".join((*path, "model_type")), f"or {_listed(missing)} be given"
    classes = keys.get("architectures")
    given = model_type or next(filter(is_name, classes if isinstance(classes, list) else ()), "")
    stem = re.sub("for(causallm|conditionalgeneration)$|model$", "", given.lower())  # of a class's name
    near = did_you_mean(stem, MODELS, OTHER_VALUES, misspelt)
    code = _IN_ITS_CODE if missing != ["`pairing`"] else ""
    hint = f"{near} {code}".strip() if near else code.replace("If", "if", 1)
    if model_type is not None:
        raise ArgumentValueError(name, f"be one whose rotation is known, {or_given}", model_type, hint)
    parts = ", ".join(key for key, value in keys.items() if isinstance(value, Mapping) and "model_type" in value)
    hint = other_file_hint(keys) or (f"its parts may be read separately: {parts}" if parts else hint)
    raise ArgumentValueError(name, f"be given, since it decides the rotation, {or_given}", NOTHING, hint)


def _undecided(keys: Mapping[str, Any]) -> list[str]:
    """Return what a config of an unknown model must have and lacks: base, share of the head, and rotating layers."""
    entries = [entry for entry in _parameter_objects(keys) if not any(isinstance(v, Mapping) for v in entry.values())]
    given = [{key for key, value in {**keys, **entry}.items() if value is not None} for entry in entries or [{}]]
    missing = [] if all(BASE in each for each in given) else [BASE]
    missing += [] if all({SHARE, COUNT, "qk_rope_head_dim"} & each for each in given) else [SHARE]
    counted = any(keys.get(name) is not None for name in LAYERS)
    return missing + ([TYPES[0]] if counted and not any(keys.get(name) for name in TYPES) else [])


def _listed(names: list[str]) -> str:
    """Return names as "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def other_file_hint(keys: Mapping[str, Any], /) -> str:
    """Return what an object without model type, classes and sizes is instead of a config; "" if that is unknown."""
    if {"model_type", "architectures", *HIDDEN} & keys.keys():
        return ""
    return next((text for key, text in _OF_OTHER_FILES.items() if key in keys), "")
