"""
Bring the values of a part's layers into one form, from any form and names of its config.

`canonical` returns groups of equal layers: their parameters under today's names and their sizes, each value with its
source. All other code reads these groups; `_recipe` makes a rotation from one.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

from rope_any._checks import (
    NOTHING,
    ArgumentTypeError,
    ArgumentValueError,
    Text,
    brief,
    choice,
    integer,
    integer_between,
    shown,
)
from rope_any._names import did_you_mean
from rope_any.config._load import (
    MOST_LAYERS,
    Fact,
    Values,
    agreed,
    checked,
    entry_of,
    is_name,
    one_of,
    require_names,
    same,
    typed,
)
from rope_any.config._part import BASE, COUNT, FLAGS, HEADS, HIDDEN, LAYERS, LENGTHS, OBJECTS, SHARE, TYPES, WHOLE, Part
from rope_any.config._rotary_keys import ROTARY, several_axes_hint
from rope_any.config._schemes import ALIASES, KEYS, ORIGINAL, REQUIRED, SCHEMES, unknown_name
from rope_any.config.tables.models import MODELS
from rope_any.config.tables.words import OTHER_VALUES, RENAMED_TYPES, WITH_ATTENTION, WITHOUT_ATTENTION

MOST_KINDS = 64  # kinds of layers
EXTENDED = "extended_length"  # the plain name of max_position_embeddings inside of the parameters
_SIZES = {
    **{name: (name,) for name in ("head_dim", "qk_rope_head_dim", "qk_nope_head_dim")},
    HIDDEN[0]: HIDDEN,
    HEADS[0]: HEADS,
    LENGTHS[0]: LENGTHS,
}
OUTSIDE = {**_SIZES, FLAGS[0]: FLAGS, COUNT: ()}
"""The plain names of values that are never in the parameters, and the keys of each; those of the count are by model."""
_NOT_ONE = "be the same for all layers", NOTHING, "rope_any.config.read(config).layers() gives a Rope for each"

T = TypeVar("T")


class Layers(NamedTuple):
    """A group of layers with the same values."""

    label: str | None = None
    """The key of their kind in the parameters; None if kinds of layers have no parameters of their own."""
    layer_type: str | None = None
    """Their type, if layers have types."""
    indices: tuple[int, ...] | None = None
    """Their indices, counted from 0; None if the config does not give the number of layers."""
    unrotated: str | None = None
    """Why they have no rotary embedding; None if they have it."""
    values: Values = Values()
    """
    Their values by today's names: those of `OUTSIDE`, and those of ``rope_parameters`` with the base and the share of
    the head from anywhere. An unknown key of the parameters has a point before it. Empty if they are not needed.
    """
    counts: tuple[Fact, ...] = ()
    """The values that sum to the number of layers, in parts that are not read as text is."""


def canonical(part: Part, /) -> tuple[Layers, ...]:
    """Return layers grouped by equal values, or by label if types are unknown. Raise if a value is missing or wrong."""
    off, written = without_rotary(part), written_parameters(part)
    sizes, lists = _sizes_by_layer(part), _lists_by_layer(part)
    labels = () if off else _labels(part, written)
    types = _type_of_each_layer(part, labels)
    if types is None and sizes:
        wanted = f"be given with per_layer_config, and {TYPES[0]} if layers differ"
        raise ArgumentValueError(part.name(LAYERS[0]), wanted)
    if types is None:  # one group for each label, or only one
        part = part if off else part.with_values(_common_entries(part))
        return tuple(_fill_in(part, Layers(label, unrotated=off), written) for label in labels or (None,))
    found: dict[tuple[str | None, str | None, bool, tuple[str, ...]], list[int]] = {}
    for i, kind in enumerate(types):
        rotates = off is None and kind not in WITHOUT_ATTENTION and part.model.has_rotary(part, kind or "", i)
        label = part.model.label(kind) if labels and kind and kind not in WITHOUT_ATTENTION else None
        if rotates and labels and label not in labels:
            wanted = f"have an entry for {shown(kind)}"
            raise ArgumentValueError(part.name(OBJECTS[0]), wanted, Text(", ".join(labels)))
        own = tuple(shown(fact.value) for fact in _values_of_layer(part, label, i, sizes, lists).values())
        found.setdefault((label, kind, rotates, own), []).append(i)
    groups = []
    for (label, kind, rotates, _), indices in found.items():
        unrotated = None if rotates else off or _why_unrotated(part, kind, indices)
        group = Layers(label, kind, tuple(indices), unrotated)
        values = _values_of_layer(part, label, indices[0], sizes, lists)
        groups.append(_fill_in(part.with_values(values), group, written))
    if not sizes and not lists:  # add labels without layers, for which lists by layer have no value
        seen = {each.label for each in groups}
        unused = [Layers(label, indices=(), unrotated=off) for label in labels if label not in seen]
        groups += [_fill_in(part, group, written) for group in unused]
    order = [*labels, *dict.fromkeys(each.label for each in groups)]
    return tuple(sorted(groups, key=lambda each: order.index(each.label)))


def _why_unrotated(part: Part, layer_type: str | None, indices: list[int]) -> str:
    """Return which layers have no rotary embedding: those of their type, or the first of their indices."""
    which = f"layers of type {layer_type} have" if layer_type else f"layer {indices[0]} has"
    return f"{which} no rotary embedding in {part.model_type}"


def _fill_in(part: Part, group: Layers, written: "Written") -> Layers:
    """Return a group with its values: only sizes, and the reason in `unrotated`, if the parameters are null."""
    if group.unrotated and (not part.model.rotary or (written.by_layer and group.label not in written.content)):
        return group
    parameters, values = _parameters(part, group.label, written), _values_outside(part, group.label)
    if isinstance(parameters, str):
        return group._replace(unrotated=group.unrotated or parameters, values=values)
    values.take(parameters)
    return group._replace(values=values)


def groups_by_label(groups: Iterable[Layers], /) -> dict[str | None, list[Layers]]:
    """Return groups of layers by label; if some groups have labels, the others (without attention) are left out."""
    found: dict[str | None, list[Layers]] = {}
    for group in groups:
        found.setdefault(group.label, []).append(group)
    return {label: same_label for label, same_label in found.items() if label is not None or len(found) == 1}


def groups_of_type(groups: tuple[Layers, ...], layer_type: object, /) -> tuple[Layers, ...]:
    """Return the groups with this layer type (or its older name) or label, all for None; raise if there is none."""
    if layer_type is None:
        return groups
    known = dict.fromkeys(name for group in groups for name in (group.label, group.layer_type) if name)
    if isinstance(layer_type, str) and layer_type not in known:
        layer_type = RENAMED_TYPES.get(layer_type, layer_type)
    wanted = f"be one that the config has ({', '.join(known) or 'it has none'})"
    choice("layer_type", layer_type, known, wanted, partial(did_you_mean, known=known, others=OTHER_VALUES))
    return tuple(group for group in groups if layer_type in (group.label, group.layer_type))


def common_value(
    part: Part, groups: Iterable[Layers], read: Callable[[Layers], T], /, *, key: Callable[[T], object]
) -> T | str:
    """Return the first ``read(group)``, or why none rotates. Raise if `key` differs or only some labels rotate."""
    given = list(groups)
    used = [group for group in given if group.indices != ()]  # a label without layers makes no difference
    found = groups_by_label(used or given)
    read_of = {label: [read(group) for group in given if not group.unrotated] for label, given in found.items()}
    values = [value for each in read_of.values() for value in each]
    if not values:
        return next(group.unrotated for given in found.values() for group in given if group.unrotated)
    differ = len({key(value) for value in values}) > 1
    if len(found) > 1 and (differ or not all(read_of.values())):
        raise ArgumentValueError("layer_type", f"be given, since layers differ: one of {', '.join(map(str, found))}")
    if differ:
        by_layer = (part.get("per_layer_config"), part.model_value("scaled_layers"), *_lists_by_layer(part).values())
        raise ArgumentValueError(next(filter(None, by_layer)).source, *_NOT_ONE)
    return values[0]


# --- the parameters of one kind of layer ------------------------------------------------------------------


class Written(NamedTuple):
    """The parameters as the config gives them."""

    name: str
    """Their key: ``rope_parameters`` or ``rope_scaling``."""
    content: Mapping[str, Any]
    """The value of that key; empty if it is missing or null."""
    by_layer: bool
    """Whether `content` has an object for each kind of layer; a kind with null has no rotary embedding."""


def _labels(part: Part, written: Written) -> tuple[str, ...]:
    """Return labels of layers with parameters or sizes of their own; () if none. Raise if a key is no layer type."""
    name, content, by_layer = part.name(written.name), written.content, written.by_layer
    if not by_layer:
        return tuple(part.model.layers) or (_kinds_of_own_size(part) if content else ())
    if len(content) > MOST_KINDS:
        raise ArgumentValueError(name, f"have at most {MOST_KINDS} kinds of layers", len(content))
    for key, entry in content.items():
        if entry is not None and not isinstance(entry, Mapping):
            got = Text(f"{shown(entry)} for {shown(key)}")
            raise ArgumentValueError(name, "have either only objects, one for each kind of layer, or none", got)
        if key in KEYS:
            raise ArgumentValueError(part.name(written.name, key), "not be an object, since it is a parameter", entry)
        _require_layer_type(part, part.name(written.name, key), key)
    return tuple(content)


def _kinds_of_own_size(part: Part) -> tuple[str, ...]:
    """Return the labels of all types of layers if the model has sizes by label, else (); raise if types are missing."""
    if not any("." in key for key in (*part.model.keys, *part.model.sizes)):
        return ()
    types = layer_types(part) or [str(layer_count(part))]  # without types, there is no count either: this raises
    return tuple(dict.fromkeys(map(part.model.label, types)))


def written_parameters(part: Part, /) -> Written:
    """Return ``rope_parameters`` and ``rope_scaling`` in one `Written`; raise if one is no object or they disagree."""
    found: dict[str, Mapping[str, Any]] = {}
    for name in OBJECTS:
        value = part.keys.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise ArgumentTypeError(part.name(name), "be an object or null", value, _object_hint(value))
        if value:
            require_names(value)
            found[name] = value
    name, content = next(iter(found.items()), (OBJECTS[0], {}))  # if there are both, `_recipe` compares them
    return Written(name, content, _is_by_layer(content))


def _object_hint(value: object) -> str:
    """Return how to write a string as the object of parameters that it means; "" if it is anything else."""
    if not isinstance(value, str) or value not in SCHEMES:
        return "give json.loads of it if it is JSON" if isinstance(value, str) and value.startswith("{") else ""
    required = {key: ... for key, default in SCHEMES[value].keys.items() if default is REQUIRED and key not in LENGTHS}
    return f"write { {'rope_type': value} | required }".replace("Ellipsis", "...")


def _is_by_layer(content: Mapping[str, Any]) -> bool:
    """Whether parameters are by kind of layer: one is an object, or there are only nulls, under keys of layers."""
    if any(isinstance(value, Mapping) for value in content.values()):
        return True
    return bool(content) and all(value is None and key not in KEYS for key, value in content.items())


def _parameters(part: Part, label: str | None, written: Written) -> Values | str:
    """Return a label's parameters by today's names, or why it doesn't rotate. Raise for a wrong form, not value."""
    (name, content, by_layer), model = written, part.model
    if not by_layer:
        return _common_parameters(part, label, written)
    if name != OBJECTS[0] and model.layers:
        raise ArgumentValueError(part.name(name), f"be {OBJECTS[0]}, since it is by kind of layer", content)
    entry = content[label or ""]
    if entry is None:
        return f"{part.name(name, label or '')} is null"
    values = _with_outer_values(part, label, _read_object(part, entry, name, label or ""), by_layer=True)
    _require_complete(part, values, entry, name, label or "")
    _require_truncation(values)
    return values


def _common_parameters(part: Part, label: str | None, written: Written) -> Values | str:
    """Return a label's parameters, if not given by kind of layer, or why it doesn't rotate; raise as `_parameters`."""
    (name, content, _), model = written, part.model
    if model.optional_rotary and {**part.keys, **content}.get(BASE, 0) is None:
        return f"{part.name(name)} is null"
    if not content and model.needs_parameters:
        base = part.get(BASE)
        meant = base and f"{{'rope_type': 'default', 'rope_theta': {brief(base.value)}}}"
        hint = f"its class does not read {base.source}: write {meant} if the weights were trained so" if base else ""
        raise ArgumentValueError(part.name(OBJECTS[0]), f"be given for {part.model_type}", NOTHING, hint)
    if content and model.layers and (name == OBJECTS[0] or model.one_base_if_flat):
        wanted = f"be by kind of layer for {part.model_type}: {', '.join(model.layers)}"
        raise ArgumentValueError(part.name(name), wanted)
    values = _read_object(part, content, name)
    if not _is_scaled(part, label):
        values = Values({} if model.layers else values.facts(BASE, SHARE))
    original = first_value(part, (ORIGINAL,))  # some classes have a default, which transformers prefers to `content`
    if original is not None and ORIGINAL in SCHEMES.get(rope_type_of(values), SCHEMES["default"]).keys:
        if ORIGINAL in values:
            agreed(original, values.fact(ORIGINAL))
        values.put(ORIGINAL, *original)
    factor = layer.attention_factor if (layer := model.layers.get(label or "")) else None
    if factor is not None and rope_type_of(values) == "yarn" and "attention_factor" not in values:
        values.put("attention_factor", factor, part.default)
    if model.layers:
        _require_truncation(values)
    return _with_outer_values(part, label, values, by_layer=False)


def _require_complete(part: Part, values: Values, entry: Mapping[str, Any], *path: str) -> None:
    """Raise if the parameters of a kind of layers lack a value whose default depends on the form of the config."""
    missing = [BASE] if part.model.layers and entry.get(BASE) is None else []
    missing += [SHARE] if (part.model.partial or 1) < 1 and SHARE not in values else []
    for key in missing:
        wanted = f"be given: in this form, the default of {part.model_type} is not that of its layers"
        raise ArgumentValueError(part.name(*path, key), wanted)


def _require_truncation(values: Values) -> None:
    """Raise if a kind of layers has ``truncate`` false, which transformers reads only if layers don't differ."""
    if values.get("truncate") is False:
        wanted = "not be false for a kind of layers: there, transformers does not read it, and truncates"
        raise ArgumentValueError(values.sources["truncate"], wanted, NOTHING, "leave it out for that reading")


def _is_scaled(part: Part, label: str | None) -> bool:
    """Whether the shared scaling holds for this label. Raise if layers are listed, but their number is missing."""
    layer, scaled = part.model.layers.get(label or ""), part.model_value("scaled_layers")
    if scaled is None:
        return layer is None or layer.scaled
    if isinstance(scaled.value, list):  # it is read only if the number of layers is given
        raise ArgumentValueError(part.name(LAYERS[0]), f"be given with {scaled.source}")
    return bool(scaled.value)


def _read_object(part: Part, entry: Mapping[str, Any], *path: str) -> Values:
    """Return the object `entry`, at `path`, by today's names. Raise if two rope types differ or one is wrong."""
    require_names(entry)
    values, kinds = Values(), []
    for key, value in entry.items():
        if key not in ("rope_type", "type"):
            # that of the object is the extended length, whatever the one outside is
            name = EXTENDED if key == LENGTHS[0] else key if key in KEYS else f".{key}"
            values.put(name, value, part.name(*path, key))
    for key in ("rope_type", "type"):
        if (kind := entry.get(key)) is not None:
            source = part.name(*path, key)
            if not isinstance(kind, str):
                raise ArgumentTypeError(source, "be a name", kind)
            if kind == "mrope" and part.model_type in MODELS and not part.model.axes:
                wanted = f"be that of positions with one axis, as {part.model_type} has"
                raise ArgumentValueError(source, wanted, kind, several_axes_hint(part.model_type))
            today = ALIASES.get(kind, kind)
            today = part.model.types.get(today, today)
            kinds.append(Fact(today, source if today == kind else f"{source} {kind}"))
    if (fact := agreed(*kinds)) is not None:
        values.put("rope_type", *fact)
    return values


def rope_type_of(values: Mapping[str, Any]) -> str:
    """Return the rope type in plain values; "default" if it is not given."""
    return str(values.get("rope_type", "default"))


def _with_outer_values(part: Part, label: str | None, values: Values, *, by_layer: bool) -> Values:
    """Return parameters with base and share from outside; inner ones win if `by_layer` (or by model), or must agree."""
    layer, by_index = part.model.layers.get(label or ""), part.model_value("layer_bases")
    found = Values({key: fact for key, fact in values.facts().items() if fact.value is not None or key == "factor"})
    names_of = {BASE: (layer.key,) if layer else part.key_names(BASE), SHARE: part.key_names(SHARE)}
    if by_index is not None:  # from a list with a base for each layer
        found.put(BASE, *by_index)
        del names_of[BASE]
    for key, names in names_of.items():
        outside = [fact for name in names if (fact := part.get(name))]
        if key in found and (by_layer or part.model.parameters_win):
            continue  # the value outside is for kinds of layers that have none
        for fact in outside:
            found.agree(key, fact)
    return found


def class_defaults(part: Part, label: str | None, /) -> dict[str, Fact]:
    """Return the class's default base for layers with this label, and its default share of the head that rotates."""
    layer = part.model.layers.get(label or "")
    base = layer.base if layer else part.model.base
    return {BASE: Fact(base, part.default), SHARE: Fact(part.model.partial or 1.0, part.default)}


# --- values of single layers ------------------------------------------------------------------------------


def _lists_by_layer(part: Part) -> dict[str, Fact]:
    """Return by key the bases and shares of the head that the config gives as lists, with an entry for each layer."""
    own = [key for thing, key in part.model.keys.items() if thing == "layer_bases"]
    names = (*part.key_names(BASE), *part.key_names(SHARE), *own)
    return {key: fact for key in names if (fact := part.get(key)) and isinstance(fact.value, list)}


def _values_of_layer(
    part: Part, label: str | None, index: int, sizes: "_Sizes", lists: Mapping[str, Fact]
) -> dict[str, Fact]:
    """Return by key the values of layer `index` alone, from `sizes` and `lists`. Raise if a list has none for it."""
    own, scaled = part.model.keys, part.model_value("scaled_layers")
    facts = {
        name: fact
        for key, fact in sizes.get(index, {}).items()
        for name in (key, own.get(key), own.get(f"{label}.{key}"))
        if name
    }
    facts |= {key: entry_of(fact, index) for key, fact in lists.items()}
    return facts | ({own["scaled_layers"]: Fact(index in scaled.value, scaled.source)} if scaled else {})


def _common_entries(part: Part) -> dict[str, Fact]:
    """For each list by layer, return by key the value of all entries but 0 (no rotary). Raise if they differ."""
    facts = {}
    for key, (value, source) in _lists_by_layer(part).items():
        rotating = [i for i, number in enumerate(value) if not same(number, 0)]  # 0: no rotary embedding
        if not all(same(value[i], value[rotating[0]]) for i in rotating):
            raise ArgumentValueError(source, *_NOT_ONE)
        if rotating:
            facts[key] = Fact(value[rotating[0]], f"{source}[{rotating[0]}]")
    return facts


# --- layers -----------------------------------------------------------------------------------------------


def layer_count(part: Part, /) -> int:
    """Return the number of layers; raise if the config does not give it, or if it is not from 1 to `MOST_LAYERS`."""
    fact = first_value(part, LAYERS)
    if fact is None:
        raise ArgumentValueError(part.name(LAYERS[0]), "be given")
    return integer_between(fact.source, fact.value, 1, MOST_LAYERS)


def all_layers(counts: Iterable[Fact], /) -> tuple[int, ...] | None:
    """Return (0, …, n − 1) if `counts` sum to n layers; None if one is no valid number, or n is 0 or too large."""
    try:
        total = sum(integer_between(source, n, 0, MOST_LAYERS) for n, source in counts)
    except (TypeError, ValueError):
        return None
    return tuple(range(total)) if 0 < total <= MOST_LAYERS else None


def _valid_layers(part: Part) -> tuple[int, ...] | None:
    """Return the indices of the layers of a part; None if the config gives no valid number of layers."""
    return all_layers(filter(None, [first_value(part, LAYERS)]))


def require_layers(part: Part, counts: Iterable[Fact], /) -> NoReturn:
    """Raise for what is missing or wrong: one of `counts`, the number of layers (their sum), or the types of layers."""
    for fact in counts:
        if fact.value is None:
            raise ArgumentValueError(fact.source, "be given")
        integer_between(fact.source, fact.value, 1, MOST_LAYERS)
    layer_count(part)
    raise ArgumentValueError(part.name(TYPES[0]), "be given, since layers differ")


def layer_types(part: Part, /) -> list[str] | None:
    """Return each layer's type, such as ``conv``, by list, codes or the model's rule, or None. Raise if wrong."""
    given = agreed(_listed_types(part), _coded_types(part))
    if given is not None:
        return list(given.value)
    if part.model.pattern is None or first_value(part, LAYERS) is None:
        return None
    count = layer_count(part)
    return [part.model.pattern(part, i, count) for i in range(count)]


def _listed_types(part: Part) -> Fact | None:
    """Return each layer's type, by today's name, as listed; None without a list. Raise for a wrong type or length."""
    name = next((name for name in TYPES if part.keys.get(name) is not None), None)
    if name is None:
        return None
    fact = Fact(part.keys[name], part.name(name))
    if not isinstance(fact.value, list) or not all(map(is_name, fact.value)):
        raise ArgumentTypeError(fact.source, "be a list of names", fact.value)
    for i, kind in enumerate(fact.value):
        _require_layer_type(part, f"{fact.source}[{i}]", kind)
    if "block_types" in name:  # one block of layers, which is repeated
        if first_value(part, LAYERS) is None:
            return None
        count = layer_count(part)
        return fact._replace(value=(fact.value * count)[:count])
    types = [RENAMED_TYPES.get(kind, kind) for kind in fact.value]
    return fact._replace(value=_cut_to_layer_count(part, fact.source, types, exact=True))


def _require_layer_type(part: Part, source: str, layer_type: str) -> None:
    """Raise unless `layer_type` is a type that layers of the model may have, which says whether they rotate."""
    known = {*WITH_ATTENTION, *WITHOUT_ATTENTION, *part.model.layers}
    if part.model_type not in MODELS and (written := written_parameters(part)).by_layer:
        known |= written.content.keys()  # an unknown model may have kinds of its own, each with parameters
    if layer_type not in known and layer_type not in RENAMED_TYPES:
        raise unknown_name(source, layer_type, known)


def _coded_types(part: Part) -> Fact | None:
    """Return each layer's type from integer codes in older configs, or None. Raise for unknown or too few codes."""
    codes = part.model.codes
    fact = part.get(codes.path) if codes else None
    if fact is None or codes is None:
        return None
    known = [int(code) for code in codes.types if code != "others"]
    types = []
    for i in range(len(typed(fact.source, fact.value, list, "be a list of integers"))):
        code = checked(entry_of(fact, i), integer)
        types.append(codes.types.get(str(code.value)) or codes.types.get("others") or one_of(code, known))
    return fact._replace(value=_cut_to_layer_count(part, fact.source, types))


def _cut_to_layer_count(part: Part, source: str, types: list[str], *, exact: bool = False) -> list[str]:
    """Return the first `types`, one per layer (all if no count). Raise if too few, or (`exact`) more than with MTP."""
    if first_value(part, LAYERS) is None:
        return types
    # layers that predict further tokens may be listed too
    count, ahead = layer_count(part), part.keys.get("num_nextn_predict_layers")
    if len(types) < count or (exact and len(types) - count not in (0, ahead)):
        raise ArgumentValueError(source, f"have {count} entries, one for each layer", len(types))
    return types[:count]


def _type_of_each_layer(part: Part, labels: tuple[str, ...]) -> list[str] | list[None] | None:
    """Return each layer's type. Without types: None with `labels` or without a layer count, else a None per layer."""
    counted = first_value(part, LAYERS) is not None
    if counted and not labels and _valid_layers(part) is None:
        return None  # the number is invalid, but no rotation needs it
    types = layer_types(part)
    return types if types is not None or labels or not counted else [None] * layer_count(part)


def without_rotary(part: Part, /) -> str | None:
    """Return why a model has no rotary embedding: its type, or a key that is off; None if it has."""
    if not part.model.rotary:
        return f"{part.model_type} has no rotary embedding"
    if part.model.switch is None:
        return None
    key, on, default = part.model.switch
    fact = Fact(part.keys[key], part.name(key)) if key in part.keys else Fact(default, f"{key}, {part.default},")
    return None if same(fact.value, on) else f"{fact.source} is {shown(fact.value)}"


# --- sizes ------------------------------------------------------------------------------------------------


def _values_outside(part: Part, label: str | None) -> Values:
    """Return the values in `OUTSIDE` of layers with a label, sizes with class defaults."""
    found = {name: first_value(part, names, label) for name, names in _SIZES.items()}
    found[FLAGS[0]] = next((fact for name in FLAGS if (fact := part.get(name))), None)
    counts = (*part.key_names(COUNT), *(["qk_rope_head_dim"] if part.model.trailing else []))
    found[COUNT] = agreed(*map(part.get, counts))
    return Values({name: fact for name, fact in found.items() if fact})


def first_value(part: Part, names: Iterable[str], label: str | None = None) -> Fact | None:
    """Return the first of these names that the config or its class gives, for layers with a label or all; or None."""
    return next((fact for name in names if (fact := _value(part, name, label))), None)


def _value(part: Part, key: str, label: str | None) -> Fact | None:
    """Return the value of a key, under its own name in the model if it has one, or the class default; or None."""
    model, fact = part.model, part.get(key)
    names = [key] if label is None else [key, f"{label}.{key}"]
    for name in names:
        # `per_layer_config` replaces the sizes by kind of layer
        given = key if name == key or "per_layer_config" in part.keys else model.keys.get(name, key)
        # a whole model must give its own sizes: their defaults are for sub-configs
        if name in model.sizes and given not in part.keys and (part.path or key not in WHOLE):
            fact = Fact(model.sizes[name], part.default)
    for name in names:
        if (own := part.model_value(name)) is not None:
            same_width = {"head_dim": part.get(name), "qk_rope_head_dim": fact}.get(name)
            fact = agreed(same_width, own) or own
    return fact


_OF_HEADS = ("head_dim", "qk_rope_head_dim", "qk_nope_head_dim", *HIDDEN, *HEADS)


_Sizes: TypeAlias = Mapping[int, Mapping[str, Fact]]


def _sizes_by_layer(part: Part) -> _Sizes:
    """Return sizes (heads, hidden) in ``per_layer_config`` by index and key, or {}. Raise for other rotary keys."""
    by_layer = part.keys.get("per_layer_config")
    if by_layer is None or (isinstance(by_layer, Mapping) and not by_layer):
        return {}
    name = part.name("per_layer_config")
    if not isinstance(by_layer, Mapping) or not all(isinstance(entry, Mapping) for entry in by_layer.values()):
        raise ArgumentTypeError(name, "hold an object for each layer", by_layer)
    names = (*_OF_HEADS, *(own for key, own in part.model.keys.items() if key.split(".")[-1] in _OF_HEADS))
    most = len(_valid_layers(part) or range(MOST_LAYERS))
    found: dict[int, dict[str, Fact]] = {}
    for index, entry in by_layer.items():
        if not re.fullmatch("[0-9]{1,4}", str(index)) or int(index) >= most or int(index) in found:
            raise ArgumentValueError(name, f"have each layer once, by its number below {most}", index)
        other = next((key for key in entry if ROTARY.search(str(key)) and key not in names), None)
        if other is not None:
            wanted = f"not have {brief(other)}: of the keys about rotary embedding, it may have only sizes of heads"
            raise ArgumentValueError(f"{name}.{index}", wanted)
        sizes = {key: Fact(entry[key], f"{name}.{index}.{key}") for key in names if key in entry}
        for fact in sizes.values():
            if fact.value is not None:
                integer(fact.source, fact.value)
        found[int(index)] = sizes
    return found
