"""
Find the text part of a config, in any known form, and refuse unknown names about rotary embedding.

`_canonical` brings the values of a part for its layers into one form.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError
from rope_any._names import did_you_mean
from rope_any._pairing import Pairing
from rope_any.config._load import Fact, is_name, require_names, same, typed
from rope_any.config._models import model_names, read_by
from rope_any.config._schemes import ALIASES
from rope_any.config.tables.models import ALL, MODELS
from rope_any.config.tables.rows import UNKNOWN, Model
from rope_any.config.tables.rules import indices
from rope_any.config.tables.words import CHANGES_ATTENTION, DECIDED_BY_MODEL, NEUTRAL, OTHER_KEYS, OTHER_VALUES

# The names of one value, today's first.
OBJECTS = ("rope_parameters", "rope_scaling")
HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
WHOLE = ("hidden_size", "num_attention_heads", "num_hidden_layers")  # sizes of the whole model, not of a head
LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_num_hidden_layers")
TYPES = ("layer_types", "layers_block_type", "block_types", "_block_types")
TEXT = ("text_config", "thinker_config", "vlm_config", "language_config", "llm_config", "decoder")

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

ROTARY = re.compile(
    r"(^|[^a-z])((m|x|xd|i)?rope|xdrope|rotary|theta|yarn|xpos|ntk|inv_freq|freq_base)|^nope_|_nope$"
    "|R(ope|oPE|OPE|otary|OTARY)|T(heta|HETA)|Y(arn|aRN|ARN)"
)
"""Matches names about rotary embedding."""
BASE, SHARE, COUNT = "rope_theta", "partial_rotary_factor", "rotary_dim"
_TODAY = (BASE, SHARE)  # keys that any model may have, in addition to its own name for the value
FLAGS = ("rope_interleave", "rope_interleaved", "rotary_emb_interleaved")  # must agree with the model's pairing


_IN_ITS_CODE = (
    "If the model rotates as a known model does, write that model_type, such as llama; "
    "if not, find these values in its code: partial_rotary_factor is 1 if the whole head rotates, "
    'layer_types has "full_attention" for each layer that rotates'
)


class Part(NamedTuple):
    """One part of a config, such as its text part, and the facts about its model."""

    keys: Mapping[str, Any]
    """The values of the part by key, with names of transformers."""
    path: tuple[str, ...]
    """The keys that lead to the part; none if it is the whole config."""
    model_type: str | None
    model: Model
    pairing: Pairing | None
    """The pairing that the caller gives; None if it gives none."""
    names: Mapping[str, str] = {}
    """The names of keys for messages, if they are not the path and the key, as in a translated file."""
    form: str = ""
    """What messages call its file, if that is no config of transformers."""
    inner: Mapping[str, "Part | ArgumentValueError"] = {}
    """The towers and other parts of such a file by name, or the error that says why one can't be read."""

    def name(self, *keys: str) -> str:
        """Return a key's full name for messages, as ``text_config.head_dim``; several keys lead into inner objects."""
        key = ".".join(keys)
        return self.names.get(key, ".".join((*self.path, key)))

    def get(self, path: str) -> Fact | None:
        """Return the value at "key" or "object.key"; None if missing or null. Raise if "object" is no object."""
        outer, _, key = path.partition(".")
        value = self.keys.get(outer)
        if key and value is not None:
            value = typed(self.name(outer), value, Mapping, "be an object or null").get(key)
        return None if value is None else Fact(value, self.name(path))

    def model_value(self, name: str) -> Fact | None:
        """Return the value of the model's own key for a common name; None if there is no such key or it is null."""
        return self.get(self.model.keys[name]) if name in self.model.keys else None

    def key_names(self, name: str) -> tuple[str, ...]:
        """Return the keys for a common name: itself (base, share, an unknown model's count), and the model's own."""
        today = [name] if name in _TODAY else []
        own = [COUNT] if name == COUNT and self.model is UNKNOWN else [self.model.keys.get(name)]
        return tuple(dict.fromkeys(key for key in (*today, *own) if key))

    def with_values(self, facts: Mapping[str, Fact]) -> "Part":
        """Return a copy of this part in which the keys in `facts` have the values and sources given there."""
        values = {key: fact.value for key, fact in facts.items()}
        sources = {key: fact.source for key, fact in facts.items()}
        return self._replace(keys={**self.keys, **values}, names={**self.names, **sources})

    def without(self, key: str) -> "Part":
        """Return a copy of this part without a key."""
        return self._replace(keys={name: value for name, value in self.keys.items() if name != key})

    @property
    def default(self) -> str:
        """The text that names the source of a value that the config does not give: "default of llama"."""
        return f"default of {self.model_type}" if self.model_type else "default"


# --- the text part ----------------------------------------------------------------------------------------


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
    model_type = written or _text_part_of(outer) or None
    model_type = _text_part_of(model_type) or model_type
    _require_known_model(model_type, keys, path, pairing)
    for level in levels:
        _refuse_outside(*level, MODELS.get(model_type or "", UNKNOWN).partial or 1.0)
    names = {} if model_type == written else {"model_type": f"model_type {written or outer}, its text part"}
    return part_at(keys, path, model_type, pairing, names)


def text_path(keys: Mapping[str, Any], /) -> tuple[str, ...]:
    """Return the keys that lead from a config to its text part; () if the whole config is the text part."""
    path: tuple[str, ...] = ()
    for _ in TEXT:
        inner = next((name for name in TEXT if isinstance(keys.get(name), Mapping) and keys[name]), None)
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
    return _require_known_keys(Part(keys, path, model_type, _model(model_type), pairing, names))


def _model(model_type: str | None) -> Model:
    """Return the facts of a type in `MODELS`, or of one without rotary in `ALL`; `UNKNOWN` for any other and None."""
    known = ALL.get(model_type or "", UNKNOWN)
    return known if model_type in MODELS or not known.rotary else UNKNOWN


def _text_part_of(model_type: str | None) -> str:
    """Return the model type of the text part of a model with this type; "" if it has none or it is not known."""
    return ALL.get(model_type or "", UNKNOWN).text


def _refuse_outside(keys: Mapping[str, Any], path: tuple[str, ...], inner: str, default_share: float) -> None:
    """Raise if `keys` has a rotary value, except share `default_share`, that ``keys[inner]`` lacks or contradicts."""
    if ALL.get(str(keys.get("model_type")), UNKNOWN).outer_part:
        return
    groups = [OBJECTS, *((name, *model_names(name)) for name in (BASE, SHARE, COUNT))]
    names_of = {name: names for names in groups for name in names}
    objects, where = (keys[inner], *parameter_objects(keys[inner])), ".".join((*path, inner))
    for key, value in keys.items():
        names = names_of.get(key, (key,))
        is_rotary = key in names_of or (ROTARY.search(key) and not isinstance(value, Mapping))
        is_default = SHARE in names and same(value, default_share)
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


def parameter_objects(keys: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the objects under the keys `OBJECTS`, then the objects in them, which are for single kinds of layers."""
    whole = [body for key in OBJECTS if isinstance(body := keys.get(key), Mapping)]
    return whole + [entry for body in whole for entry in body.values() if isinstance(entry, Mapping)]


def model_type_of(keys: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    """Return the model type in `keys`, None if empty or missing; raise if it is no name (`path` is for the error)."""
    found = keys.get("model_type")
    if found is not None and not is_name(found):
        raise ArgumentTypeError(".".join((*path, "model_type")), "be a name", found)
    return found or None


def _undecided(keys: Mapping[str, Any]) -> list[str]:
    """Return what a config of an unknown model must have and lacks: base, share of the head, and rotating layers."""
    entries = [entry for entry in parameter_objects(keys) if not any(isinstance(v, Mapping) for v in entry.values())]
    given = [{key for key, value in {**keys, **entry}.items() if value is not None} for entry in entries or [{}]]
    missing = [] if all(BASE in each for each in given) else [BASE]
    missing += [] if all({SHARE, COUNT, "qk_rope_head_dim"} & each for each in given) else [SHARE]
    counted = any(keys.get(name) is not None for name in LAYERS)
    return missing + ([TYPES[0]] if counted and not any(keys.get(name) for name in TYPES) else [])


def _listed(names: list[str]) -> str:
    """Return names as "a, b and c"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


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
    near, code = did_you_mean(stem, MODELS, OTHER_VALUES), _IN_ITS_CODE if missing != ["`pairing`"] else ""
    hint = f"{near} {code}".strip() if near else code.replace("If", "if", 1)
    if model_type is not None:
        raise ArgumentValueError(name, f"be one whose rotation is known, {or_given}", model_type, hint)
    parts = ", ".join(key for key, value in keys.items() if isinstance(value, Mapping) and "model_type" in value)
    hint = other_file_hint(keys) or (f"its parts may be read separately: {parts}" if parts else hint)
    raise ArgumentValueError(name, f"be given, since it decides the rotation, {or_given}", NOTHING, hint)


def other_file_hint(keys: Mapping[str, Any], /) -> str:
    """Return what an object without model type, classes and sizes is instead of a config; "" if that is unknown."""
    if {"model_type", "architectures", *HIDDEN} & keys.keys():
        return ""
    return next((text for key, text in _OF_OTHER_FILES.items() if key in keys), "")


def _require_neutral(part: Part) -> None:
    """Raise for a key of `NEUTRAL` with another value than the one there."""
    for path, neutral in NEUTRAL.items():
        if (fact := part.get(path)) is not None and not same(fact.value, neutral):
            wanted = f"be {neutral}, the only supported value"
            raise ArgumentValueError(fact.source, wanted, fact.value, OTHER_KEYS.get(path, ""))


def _require_known_keys(part: Part) -> Part:
    """Return a part; raise for a rotary key that its model does not read, an unsupported value or wrong layer rules."""
    model = part.model
    _require_neutral(part)
    is_unknown, heads = model is UNKNOWN, model_names("head_dim")
    known = {COUNT, "qk_rope_head_dim"} if is_unknown else set(read_by(model))
    known |= CHANGES_ATTENTION.keys() - (DECIDED_BY_MODEL if is_unknown else set())
    if model.rotary:
        known |= {*OBJECTS, *FLAGS, SHARE, *([] if model.layers else [BASE])}
    for key, value in part.keys.items():
        if is_unknown and key in heads and value is not None and not same(value, part.keys.get("head_dim")):
            raise ArgumentValueError(part.name(key), "equal head_dim, which alone is read for an unknown model", value)
        if key in known or key in NEUTRAL or value is None or (key in DECIDED_BY_MODEL and value is False):
            continue
        if not (ROTARY.search(key) or (model.rotary and key in OTHER_KEYS) or (is_unknown and key in DECIDED_BY_MODEL)):
            continue
        wanted, hint = _why_unread(part, key, known)
        raise ArgumentValueError(part.name(key), wanted, value, hint)
    _require_rules(part)
    return part


def unread(part: Part, read: Collection[str], also: str = "$^") -> Iterator[Fact]:
    """Yield each value of a part whose key is about rotary embedding (or matches `also`) and is not in `read`."""
    for key, value in part.keys.items():
        if value is not None and key not in read and (ROTARY.search(str(key)) or re.search(also, str(key))):
            yield Fact(value, part.name(str(key)))


def _why_unread(part: Part, key: str, known: Collection[str]) -> tuple[str, str]:
    """Return what a key about rotary that the model does not read must be, and a hint; `known` are those it reads."""
    if part.model is UNKNOWN:
        hint = f"leave it out, with its effect in {BASE}, {SHARE} and {OBJECTS[0]}"
        return "not be given for an unknown model_type: only the model's code says what it does", hint
    meant = next((name for name in _TODAY if key in model_names(name)), OTHER_KEYS.get(key, key))
    hint = did_you_mean(meant, known) if meant.isidentifier() else meant
    if key in _keys_of_any_model():
        why = "does not read it" if part.model.rotary else "has no rotary embedding"
        return f"not be given for {part.model_type}, which {why}", "" if meant == key else hint
    return "be left out: it is an unknown name about rotary embedding", hint


@cache
def _keys_of_any_model() -> frozenset[str]:
    """Return the keys about rotary embedding that at least one model reads; cached."""
    return frozenset({*OBJECTS, *_TODAY, *FLAGS}.union(*map(read_by, MODELS.values())))


def _require_rules(part: Part) -> None:
    """Raise if the model's rules for layers can't read their keys in the config; the rules are tried for layer 0."""
    for key in {"attention_layers", "scaled_layers"} & part.model.keys.keys():
        indices(part, part.model.keys[key])
    part.model.has_rotary(part, "full_attention", 0)
    if part.model.pattern is not None and not any(map(part.get, TYPES)):
        part.model.pattern(part, 0, 2)
