"""
Read a config of any age into its text part and the parameters of each kind of layer, each with its source.

`part_of` finds the part of a config that speaks of text. `canonical` brings what it says of a layer into one form,
whatever form and names the config has. `_recipe` draws the conclusions.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from rope_any._checks import integer, shown
from rope_any._pairing import Pairing, as_pairing
from rope_any.config import _params
from rope_any.config._gguf import is_gguf, translated
from rope_any.config._load import Fact, fail, is_name, load, require_names, same
from rope_any.config._models import (
    ELSEWHERE,
    INDICES,
    INERT,
    MODELS,
    NUMBERS,
    STILL,
    Model,
    listed,
)
from rope_any.config._schemes import ALIASES, KEYS, ORIGINAL, SCHEMES, near

MOST_LAYERS = 2**10
MOST_KINDS = 64  # of layers

# The names of one thing, today's first.
OBJECTS = ("rope_parameters", "rope_scaling")
BASES = ("rope_theta", "rotary_emb_base", "rotary_embedding_base")
SHARES = ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction", "rope_pct", "partial_rotary_factors")
COUNTS = ("rotary_dim", "attn_rotary_emb")
HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
WHOLE = ("hidden_size", "num_attention_heads", "num_hidden_layers")  # not of the head
LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_num_hidden_layers")
TYPES = ("layer_types", "layers_block_type", "block_types", "_block_types")
TEXT = ("text_config", "thinker_config", "vlm_config", "language_config", "llm_config", "decoder")

ROTARY = re.compile(r"(^|[^a-z])((m|x|xd|i)?rope|xdrope|rotary|theta)|Rope|RoPE|Rotary|Theta")
# Names that speak of rotary, beside those above and those that `Model` has.
_KNOWN = {
    *OBJECTS,
    "rope_interleave",
    "rope_interleaved",
    "rotary_emb_interleaved",
    "qk_rope_head_dim",
    "no_rope_layers",
    "no_rope_layer_interval",
    "layer_rope_theta",
    "indexer_rope_interleave",
}


class Part(NamedTuple):
    """The part of a config that speaks of text, and what is known of its model."""

    keys: Mapping[str, Any]
    path: tuple[str, ...]
    model_type: str | None
    model: Model
    pairing: Pairing | None
    """As the caller gives it."""
    names: Mapping[str, str] = {}
    """What keys are called in the file, where they were translated."""

    def name(self, *keys: str) -> str:
        """Return the full name of a key, for the reader."""
        key = ".".join(keys)
        return self.names.get(key, ".".join((*self.path, key)))

    def get(self, key: str) -> Fact | None:
        """Return what stands under a key, if it is not null."""
        value = self.keys.get(key)
        return None if value is None else Fact(value, self.name(key))

    def own(self, thing: str) -> Fact | None:
        """Return what stands under the name that the model alone has for a thing."""
        return self.get(self.model.keys[thing]) if thing in self.model.keys else None

    @property
    def default(self) -> str:
        """The source of what the config does not say."""
        return f"default of {self.model_type}" if self.model_type else "default"


# --- the part that speaks of text -------------------------------------------------------------------------


def part_of(config: object, /, *, pairing: Pairing | None = None, factor: float | None = None) -> Part:
    """Return the part of a config that speaks of text; `factor` is that of Meta's files, which leave it out."""
    keys: Mapping[str, Any] = load(config)
    require_names(keys)
    given = None if pairing is None else as_pairing(pairing)
    form = None if is_gguf(keys) else _params.form_of(keys)
    if form is not None:
        keys, names, model = _params.translated(keys, form, factor=factor)
        return Part(keys, (), keys["model_type"], model, given, names)
    if factor is not None:
        fail(f"factor must be left out but for Meta's params.json, which does not hold it; got {shown(factor)}")
    if is_gguf(keys):
        keys, names, model = translated(keys)
        return Part(keys, (), keys["model_type"], model, given, names)
    path: tuple[str, ...] = ()
    outer = None
    levels = []
    for inner in text_path(keys):
        outer = _model_type(keys, path) or outer
        levels.append((keys, path, inner))
        keys, path = keys[inner], (*path, inner)
        require_names(keys)
    said = _model_type(keys, path)
    model_type = said or _text_part_of(outer) or None
    model_type = _text_part_of(model_type) or model_type
    if model_type not in MODELS and given is None:
        _refuse_unknown_model(model_type, keys, path)
    for level in levels:
        _refuse_outside(*level, MODELS.get(model_type or "", Model()).partial)
    names = {} if model_type == said else {"model_type": f"model_type {said or outer}, its text part"}
    return part_at(keys, path, model_type, given, names)


def text_path(keys: Mapping[str, Any], /) -> tuple[str, ...]:
    """Return the path of the text part of a config."""
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
    """Return the part at a path of a config, of a model type that is known; its names are checked."""
    require_names(keys)
    return _checked(_unwrapped(Part(keys, path, model_type, MODELS.get(model_type or "", Model()), pairing, names)))


def _text_part_of(model_type: str | None) -> str:
    """Return the model type of the text part of a model, if it is known by that of the whole."""
    return MODELS.get(model_type or "", Model()).text


def _refuse_outside(keys: Mapping[str, Any], path: tuple[str, ...], inner: str, partial: float) -> None:
    """Refuse parameters of the whole model that its text part does not have."""
    if keys.get("model_type") == "musicflamingo":  # whose audio turns too
        return
    for names in (OBJECTS, BASES, SHARES):
        for key in names:
            value = keys.get(key)
            if value is None or states(keys[inner], names) or (names is SHARES and same(value, partial)):
                continue
            name = ".".join((*path, key))
            fail(f"{name} must stand in {'.'.join((*path, inner))}, which is the part that is read and has none")


def states(keys: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    """Whether a part states what has some names, as a key or inside its parameters."""
    return any(body.get(key) is not None for body in (keys, *bodies(keys)) for key in names)


def bodies(keys: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parameters of a part, and those inside them of kinds of layers."""
    whole = [body for key in OBJECTS if isinstance(body := keys.get(key), Mapping)]
    return whole + [entry for body in whole for entry in body.values() if isinstance(entry, Mapping)]


def _unwrapped(part: Part) -> Part:
    """Return a part with the base that stands in an object of its own."""
    inside = part.model.inside
    inner = part.keys.get(inside) if inside else None
    base = inner.get("rope_theta") if isinstance(inner, Mapping) else None
    if base is None:
        return part
    name, outer = part.name(str(inside), "rope_theta"), part.get("rope_theta")
    if outer is not None and not same(outer.value, base):
        fail(f"{outer.source} must agree with {name}; got {shown(outer.value)}")
    return part._replace(keys={**part.keys, "rope_theta": base}, names={**part.names, "rope_theta": name})


def _model_type(keys: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    found = keys.get("model_type")
    if found is not None and not is_name(found):
        msg = f"{'.'.join((*path, 'model_type'))} must be a name; got {shown(found)}"
        raise TypeError(msg)
    return found or None


def _refuse_unknown_model(model_type: str | None, keys: Mapping[str, Any], path: tuple[str, ...]) -> NoReturn:
    name = ".".join((*path, "model_type"))
    if model_type is not None:
        guess = near(model_type, MODELS)
        fail(f"{name} must be one whose pairing is known, or pairing= be given; got {shown(model_type)}{guess}")
    parts = ", ".join(key for key, value in keys.items() if isinstance(value, Mapping) and "model_type" in value)
    hint = f"; its parts may be read by themselves: {parts}" if parts else ""
    fail(f"{name} must be given, since it decides the pairing, or pairing= be given; got none{hint}")


def _checked(part: Part) -> Part:
    """Return a part, having refused names that speak of rotary and that its model does not know."""
    model = part.model
    bases = {layer.key for layer in model.layers.values()} if model.layers else BASES
    known = {*_KNOWN, *bases, *SHARES, *COUNTS, *model.unread, *model.keys.values(), *(model.switch or ())[:1]}
    for key, value in part.keys.items():
        if key in ELSEWHERE and value is not None:
            fail(f"{part.name(key)} must be written in the terms of transformers: it is {ELSEWHERE[key]}")
        if key in INERT and value is not None and not same(value, INERT[key]):
            fail(f"{part.name(key)} must be {INERT[key]}, the only value that is understood; got {shown(value)}")
        if key not in known and key not in INERT and value is not None and ROTARY.search(key):
            fail(f"config must not hold a name on rotary that is not known here; got {shown(key)}{near(key, known)}")
    _require_rules(part)
    return part


def _require_rules(part: Part) -> None:
    """Refuse what the rules of a model can't read, by trying them on the first layer."""
    for thing, kind in {"attention_layers": INDICES, "scaled_layers": INDICES, "layer_bases": NUMBERS}.items():
        fact = part.own(thing)
        if fact is not None:
            listed(fact.source, fact.value, kind)
    try:
        part.model.turns(part.keys, "full_attention", 0)
        if part.model.pattern is not None and not any(map(part.get, TYPES)):
            part.model.pattern(part.keys, 0, 2)
    except (TypeError, ValueError) as error:
        msg = f"{part.name('')}{error}"
        raise type(error)(msg) from None


# --- the canonical form of layers -------------------------------------------------------------------------


class Layer(NamedTuple):
    """What a config says of one layer, or of the layers of a kind, under the names of today: its canonical form."""

    parameters: Mapping[str, Fact] | None
    """Of ``rope_parameters``, with base and share if they are outside; None if they are null: no rotary."""
    sizes: tuple[Mapping[str, Fact], ...]
    """All other values, as the config or the class gives them; several if layers of the kind differ in sizes."""


def canonical(part: Part, label: str | None, index: int | None = None, /) -> Layer:
    """Return the canonical form of one layer, or of all layers whose parameters have a label."""
    sizes = [_with_common_names(each, label) for each in _with_own_sizes(part, label, index)]
    return Layer(_parameters(part, label, index), tuple(sizes))


def _with_common_names(part: Part, label: str | None) -> dict[str, Fact]:
    """Return the values of a part and of its class, also under the names that are common to models."""
    model, by_label = part.model, f"{label}."
    facts = {key: Fact(value, part.name(key)) for key, value in part.keys.items() if value is not None}
    for names in ((key for key in model.sizes if "." not in key), (key for key in model.sizes if by_label in key)):
        for name in names:
            key = name.removeprefix(by_label)
            if key not in part.keys and (part.path or key not in WHOLE):
                facts[key] = Fact(model.sizes[name], part.default)
    for names in ((key for key in model.keys if "." not in key), (key for key in model.keys if by_label in key)):
        for name in names:
            if name != "rope_theta" and (own := part.own(name)) is not None:
                facts[name.removeprefix(by_label)] = own
    return facts


# --- the parameters of one kind of layer ------------------------------------------------------------------


def choices(part: Part, /) -> tuple[str, ...]:
    """Return the kinds of layers that a config tells apart, or none."""
    name, content = stated(part)
    if not _by_layer(content):
        return tuple(part.model.layers) or (_kinds_of_own_size(part) if content else ())
    if len(content) > MOST_KINDS:
        fail(f"{part.name(name)} must tell at most {MOST_KINDS} kinds of layers apart; got {len(content)}")
    for key, entry in content.items():
        if entry is not None and not isinstance(entry, Mapping):
            fail(f"{part.name(name)} must be flat, or hold objects alone; got {shown(entry)} for {shown(key)}")
    return tuple(content)


def _kinds_of_own_size(part: Part) -> tuple[str, ...]:
    """Return the kinds of layers of a model that has sizes by kind: what is flat makes no one rotation for them."""
    if not any("." in key for key in (*part.model.keys, *part.model.sizes)):
        return ()
    types = layer_types(part) or [str(layer_count(part))]  # which refuses: where there is a number, there are types
    return tuple(dict.fromkeys(map(part.model.label, types)))


def stated(part: Part) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the content of the parameters that a config states, which may be none."""
    found: dict[str, Mapping[str, Any]] = {}
    for name in OBJECTS:
        value = part.keys.get(name)
        if value is not None and not isinstance(value, Mapping):
            msg = f"{part.name(name)} must be an object or null; got {shown(value)}"
            raise TypeError(msg)
        if value:
            require_names(value)
            found[name] = value
    if len(found) < 2:
        return next(iter(found.items()), ("rope_parameters", {}))
    new, old = found.values()
    if not all(same(new.get(key, value), value) for key, value in old.items()) or _by_layer(new) != _by_layer(old):
        fail(f"{part.name('rope_scaling')} must agree with {part.name('rope_parameters')} where both are given")
    return "rope_parameters", {**old, **new}


def _by_layer(content: Mapping[str, Any]) -> bool:
    """Whether parameters stand by kind of layer; a kind whose parameters are null has no rotary."""
    if any(isinstance(value, Mapping) for value in content.values()):
        return True
    return bool(content) and all(value is None and key not in KEYS for key, value in content.items())


def told(part: Part) -> dict[str | None, dict[str, Fact]]:
    """Return the parameters that a config states and that are not null, by kind of layer, or for all under None."""
    name, content = stated(part)
    found: dict[str | None, dict[str, Fact]]
    if _by_layer(content):
        found = {kind: _named(part, entry, name, kind) for kind, entry in content.items() if entry is not None}
    else:
        found = {None: _named(part, content, name)}
    return {kind: {key: fact for key, fact in facts.items() if fact.value is not None} for kind, facts in found.items()}


def _parameters(part: Part, label: str | None, index: int | None) -> dict[str, Fact] | None:
    """Return the parameters of one kind of layer under today's names, or None where it has no rotary."""
    name, content = stated(part)
    model = part.model
    if _by_layer(content):
        entry = content[label or ""]
        if entry is None:
            return None
        return _with_outside(part, _named(part, entry, name, label or ""), label, index, by_layer=True)
    base = {**part.keys, **content}
    if model.optional and "rope_theta" in base and base["rope_theta"] is None:
        return None
    if not content and model.stated:
        fail(f"{part.name('rope_parameters')} must be given for {part.model_type}; got none")
    if content and model.layers and name == "rope_parameters":
        fail(f"{part.name(name)} must be by kind of layer for {part.model_type}: {', '.join(model.layers)}")
    facts = _named(part, content, name)
    if not _is_scaled(part, label, index):
        facts = {key: facts[key] for key in ("rope_theta", "partial_rotary_factor") if key in facts}
    original = part.get(ORIGINAL)
    if original is not None and ORIGINAL in SCHEMES.get(kind_of(facts), SCHEMES["default"]).keys:
        facts[ORIGINAL] = original  # it wins, as in transformers
    return _with_outside(part, facts, label, index, by_layer=False)


def _is_scaled(part: Part, label: str | None, index: int | None) -> bool:
    """Whether flat parameters scale a kind of layer, or a layer."""
    layer = part.model.layers.get(label or "")
    scaled = part.own("scaled_layers")
    if scaled is None:
        return layer is None or layer.scaled
    if index is None and not set(range(layer_count(part))) <= set(scaled.value):
        fail(f"{scaled.source} tells layers apart: use rope_any.config.layers")
    return index is None or index in scaled.value


def _named(part: Part, entry: Mapping[str, Any], *path: str) -> dict[str, Fact]:
    """Return flat parameters, with the rope type under its name of today."""
    require_names(entry)
    facts = {key: Fact(value, part.name(*path, key)) for key, value in entry.items()}
    kinds = []
    for fact in (facts.pop("rope_type", None), facts.pop("type", None)):
        if fact is not None and fact.value is not None:
            if not isinstance(fact.value, str):
                msg = f"{fact.source} must be a name; got {shown(fact.value)}"
                raise TypeError(msg)
            today = ALIASES.get(fact.value, fact.value)
            kinds.append(Fact(part.model.types.get(today, today), fact.source))
    if len(kinds) == 2 and kinds[0].value != kinds[1].value:
        fail(f"{kinds[1].source} must agree with {kinds[0].source}; got {shown(kinds[1].value)}")
    return facts | ({"rope_type": kinds[0]} if kinds else {})


def kind_of(facts: Mapping[str, Fact]) -> str:
    """Return the rope type of some parameters."""
    return str(facts["rope_type"].value) if "rope_type" in facts else "default"


def _with_outside(
    part: Part, facts: dict[str, Fact], label: str | None, index: int | None, *, by_layer: bool
) -> dict[str, Fact]:
    """Return parameters with the base and the share of the head that are stated outside of them."""
    layer, by_index = part.model.layers.get(label or ""), part.own("layer_bases")
    own = [part.model.keys["rope_theta"]] if "rope_theta" in part.model.keys else []
    if by_index is not None:
        return {**facts, "rope_theta": _of_layer(part, by_index, label, index)}
    found = {key: fact for key, fact in facts.items() if fact.value is not None or key == "factor"}
    for key, names in {
        "rope_theta": (layer.key,) if layer else (*own, *BASES),
        "partial_rotary_factor": SHARES,
    }.items():
        stated = [_of_layer(part, fact, label, index) for name in names if (fact := part.get(name))]
        if key in found:  # those outside are for kinds of layers that lack one
            stated = [found[key]] if by_layer or part.model.doubled else [found[key], *stated]
        for fact in stated[1:]:
            if not same(fact.value, stated[0].value):
                fail(f"{fact.source} must agree with {stated[0].source}; got {shown(fact.value)}")
        if stated:
            found[key] = stated[0]
    return found


def assumed(part: Part, label: str | None, /) -> dict[str, Fact]:
    """Return the base and the share of the head where a config leaves them out."""
    layer = part.model.layers.get(label or "")
    base = layer.base if layer else part.model.base
    return {"rope_theta": Fact(base, part.default), "partial_rotary_factor": Fact(part.model.partial, part.default)}


def _of_layer(part: Part, fact: Fact, label: str | None, index: int | None) -> Fact:
    """Return the number of one layer, or of one kind of layer, from a list that has one for each layer."""
    if not isinstance(fact.value, list):
        return fact
    ours = range(len(fact.value)) if label is None else layers_of(part, label) or ()
    chosen = [i for i in (ours if index is None else [index]) if i < len(fact.value) and not same(fact.value[i], 0)]
    if not chosen:
        fail(f"{fact.source} must have a number for each layer; got {len(fact.value)}")
    if not all(same(fact.value[i], fact.value[chosen[0]]) for i in chosen):
        fail(f"{fact.source} differs between layers: use rope_any.config.layers")
    return Fact(fact.value[chosen[0]], f"{fact.source}[{chosen[0]}]")


# --- layers -----------------------------------------------------------------------------------------------


def layer_count(part: Part, /) -> int:
    """Return the number of layers."""
    fact = of_all(part, LAYERS)
    if fact is None:
        fail(f"{part.name(LAYERS[0])} must be given; got none")
    count = integer(fact.source, fact.value)
    if not 0 < count <= MOST_LAYERS:
        fail(f"{fact.source} must be between 1 and {MOST_LAYERS}; got {shown(count)}")
    return count


def counts_layers(part: Part, /) -> bool:
    """Whether a config tells how many layers there are, in a number that can be one."""
    try:
        layer_count(part)
    except (TypeError, ValueError):
        return False
    return True


def layer_types(part: Part, /) -> list[str] | None:
    """Return the type of each layer, as listed or by the pattern of the model; None if there are none."""
    for name in TYPES:
        types = part.keys.get(name)
        if types is None:
            continue
        if not isinstance(types, list) or not all(map(is_name, types)):
            msg = f"{part.name(name)} must be a list of names; got {shown(types)}"
            raise TypeError(msg)
        return _one_for_each_layer(part, name, types)
    attending = part.own("attention_layers")
    if attending is not None:
        return ["full_attention" if i in attending.value else "conv" for i in range(layer_count(part))]
    if part.model.pattern is None or of_all(part, LAYERS) is None:
        return None
    count = layer_count(part)
    return [part.model.pattern(part.keys, i, count) for i in range(count)]


def _one_for_each_layer(part: Part, name: str, types: list[str]) -> list[str]:
    """Return listed types: of blocks that repeat, or without those of layers that predict further tokens."""
    if of_all(part, LAYERS) is None:
        return types
    count, ahead = layer_count(part), part.keys.get("num_nextn_predict_layers")
    if "block_types" in name and types:
        return (types * count)[:count]
    if len(types) < count or len(types) - count not in (0, ahead):
        fail(f"{part.name(name)} must have {count} entries, one for each layer; got {len(types)}")
    return types[:count]


def kinds(part: Part, /) -> list[str] | list[None]:
    """Return the type of each layer, or None for each where layers have no types."""
    count, types = layer_count(part), layer_types(part)
    if types is None and choices(part):
        fail(f"{part.name(TYPES[0])} must be given, since layers differ; got none")
    return [None] * count if types is None else types


def layers_of(part: Part, label: str | None, /) -> list[int] | None:
    """Return the layers of a kind, or all; None if the config does not tell them."""
    if label is None:
        return list(range(layer_count(part))) if counts_layers(part) else None
    types = layer_types(part)
    return None if types is None else [i for i, kind in enumerate(types) if part.model.label(kind) == label]


def turns(part: Part, layer_type: str, index: int, /) -> bool:
    """Whether a layer turns at all."""
    if not part.model.rotary:
        return False
    return switched_off(part) is None and layer_type not in STILL and part.model.turns(part.keys, layer_type, index)


def differ_by_index(part: Part, /) -> bool:
    """Whether a config says something of single layers, beside their types."""
    found = (*map(part.get, (*BASES, *SHARES)), *map(part.own, ("layer_bases", "scaled_layers")))
    return any(fact is not None and isinstance(fact.value, list) for fact in found) or any(
        len(_with_own_sizes(part, kind, None)) > 1 for kind in choices(part) or (None,)
    )


def switched_off(part: Part, /) -> Fact | None:
    """Return the switch by which a config turns rotary off in all layers, if it does."""
    if part.model.switch is None:
        return None
    key, on, default = part.model.switch
    fact = Fact(part.keys[key], part.name(key)) if key in part.keys else Fact(default, part.default)
    return None if same(fact.value, on) else fact


def turned_off(part: Part, /) -> Fact | None:
    """Return the fact that a model has no rotary: by nature, or because the config turns off what its class has on."""
    off = switched_off(part)
    if not part.model.rotary:
        given = (key for key, value in part.keys.items() if value is not None and key not in part.model.unread)
        if said := [key for key in given if ROTARY.search(key)]:
            fail(f"{part.name(said[0])} must not be given for {part.model_type}, which has no rotary embedding")
        return Fact(None, f"{part.model_type} has no rotary embedding")
    if off is None or part.model.switch is None or same(off.value, part.model.switch[2]):
        return None
    return Fact(None, f"{off.source} is {shown(off.value)}")


# --- sizes ------------------------------------------------------------------------------------------------


_OF_HEADS = ("head_dim", "qk_rope_head_dim", "qk_nope_head_dim", *HIDDEN, *HEADS)


def first(sizes: Mapping[str, Fact], names: Iterable[str]) -> Fact | None:
    """Return the first value that is given, of several names for one."""
    return next((sizes[name] for name in names if name in sizes), None)


def of_all(part: Part, names: Iterable[str]) -> Fact | None:
    """Return the first value that is given for the whole model, of several names for one."""
    return first(_with_common_names(part, None), names)


def _with_own_sizes(part: Part, label: str | None, index: int | None) -> list[Part]:
    """Return a part as one layer has it, or as those of a kind do: one for each set of sizes of their own."""
    own = _own_sizes(part)
    if not own:
        return [part]
    layers = [index] if index is not None else layers_of(part, label)
    if layers is None:
        fail(f"{part.name(LAYERS[0])} must be given with per_layer_config, and {TYPES[0]} where layers differ")
    different: dict[Any, dict[str, Fact]] = {}
    for entry in [own.get(i, {}) for i in layers] or [{}]:
        different.setdefault(tuple((key, entry[key].value) for key in sorted(entry)), entry)
    return [_with_sizes(part, label, entry) for entry in different.values()]


def _with_sizes(part: Part, label: str | None, sizes: Mapping[str, Fact]) -> Part:
    """Return a part with other sizes, under each name that they may have."""
    own = part.model.keys
    facts = {
        name: fact for key, fact in sizes.items() for name in (key, own.get(key), own.get(f"{label}.{key}")) if name
    }
    return part._replace(
        keys={**part.keys, **{name: fact.value for name, fact in facts.items()}},
        names={**part.names, **{name: fact.source for name, fact in facts.items()}},
    )


def _own_sizes(part: Part) -> dict[int, dict[str, Fact]]:
    """Return the sizes of heads that layers have of their own, which are all of rotary that they may have so."""
    by_layer = part.keys.get("per_layer_config")
    if not by_layer:
        return {}
    name = part.name("per_layer_config")
    if not isinstance(by_layer, Mapping) or not all(isinstance(entry, Mapping) for entry in by_layer.values()):
        msg = f"{name} must hold an object for each layer; got {shown(by_layer)}"
        raise TypeError(msg)
    names = (*_OF_HEADS, *(own for key, own in part.model.keys.items() if key.split(".")[-1] in _OF_HEADS))
    most = layer_count(part) if counts_layers(part) else MOST_LAYERS
    found: dict[int, dict[str, Fact]] = {}
    for index, entry in by_layer.items():
        if not re.fullmatch("[0-9]{1,4}", str(index)) or int(index) >= most or int(index) in found:
            fail(f"{name} must have each layer once, by its number below {most}; got {shown(index)}")
        odd = next((key for key in entry if ROTARY.search(str(key)) and key not in names), None)
        if odd is not None:
            fail(f"{name}.{index} must not hold {shown(odd)}: of rotary, it may tell the sizes of heads alone")
        sizes = {key: Fact(entry[key], f"{name}.{index}.{key}") for key in names if key in entry}
        for fact in sizes.values():
            if fact.value is not None:
                integer(fact.source, fact.value)
        found[int(index)] = sizes
    return found
