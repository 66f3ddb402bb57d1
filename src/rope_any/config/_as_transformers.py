"""Write a config in the forms of transformers: that of version 5, and the older one of version 4."""

import math
from collections.abc import Collection, Mapping
from functools import partial, reduce
from typing import Any

from rope_any._checks import ArgumentValueError, Text, brief
from rope_any.config._layers import (
    EXTENDED,
    OUTSIDE,
    Layers,
    class_defaults,
    common_value,
    first_value,
    groups_by_label,
    rope_type_of,
    without_rotary,
)
from rope_any.config._load import same
from rope_any.config._part import BASE, COUNT, HEADS, HIDDEN, LENGTHS, OBJECTS, SHARE, Part
from rope_any.config._parts import PartReader
from rope_any.config._recipe import has_rotary_slice, recipe
from rope_any.config._schemes import ORIGINAL
from rope_any.scaling import longrope_attention_factor

_WITH_HEAD = ("dynamic", "yarn", "longrope")  # rope types for which transformers 4 reads ``head_dim``


def as_transformers(whole: Mapping[str, Any], reader: PartReader, version: int, /) -> Mapping[str, Any]:
    """Return the config `whole`, whose text is read by `reader`, in the form of transformers 5 or 4. Raise if unfit."""
    if reader.part.form:
        raise ArgumentValueError("config", "be that of transformers", Text(reader.part.form))
    part, groups = reader.part, reader.layers()
    if not reader.is_text:
        raise ArgumentValueError("config", "be that of a text model", Text(f"that of {part.model_type}"))
    if without_rotary(part) is not None or "rope_parameters" in part.model.ignored:
        return whole
    written = reduce(lambda keys, key: keys[key], part.path, whole)
    if part.model.computed is not None and part.keys != written and OBJECTS[0] not in written:
        return whole  # its own code reads keys of its own
    by_label = {label: _parameters(part, label, same) for label, same in groups_by_label(groups).items()}
    names = (key for name in (BASE, SHARE, COUNT) for key in part.key_names(name))
    old = {"rope_scaling", *names, *(layer.key for layer in part.model.layers.values())}
    dropped = old if version == 5 else {*old, "rope_parameters"}
    kept = {key: value for key, value in part.keys.items() if key not in dropped}
    new = {"rope_parameters": by_label.get(None, by_label)} if version == 5 else _older_form(part, by_label)
    return _replace_part(whole, part.path, _with_paths(kept, new), {*old, "rope_parameters"})


def _parameters(part: Part, label: str | None, groups: list[Layers]) -> dict[str, Any] | None:
    """Return today's ``rope_parameters`` of one label; None or a null base if none rotates. Raise if groups differ."""
    found = common_value(part, groups, partial(recipe, part), key=lambda made: made.rope)
    if isinstance(found, str):  # none rotates
        return {"rope_type": "default", "rope_theta": None} if part.model.optional_rotary else None
    given = next(group.values for group in groups if not group.unrotated)
    values = {key: fact.value for key, fact in class_defaults(part, label).items()}
    values |= {LENGTHS[0] if key == EXTENDED else key: value for key, value in given.items() if key not in OUTSIDE}
    counted = COUNT in part.model.sizes or COUNT in given
    if counted and not has_rotary_slice(part, given) and rope_type_of(given) != "proportional":
        rotary, head = found.facts["rotary_dim"].value, found.facts["head_dim"].value
        share = rotary / head  # today's form has a share instead of a count
        values[SHARE] = share if int(head * share) == rotary else math.nextafter(share, 1)
    if values.get(SHARE) == (part.model.partial or 1) == 1 and COUNT not in part.model.sizes:
        del values[SHARE]
    return {"rope_type": "default", **values}


def _replace_part(
    config: Mapping[str, Any], path: tuple[str, ...], part: dict[str, Any], names: Collection[str]
) -> dict[str, Any]:
    """Return a copy of a config with `part` at a path, and without the keys `names` in the objects around `part`."""
    if not path:
        return part
    outside = {key: value for key, value in config.items() if key not in names}
    return {**outside, path[0]: _replace_part(config[path[0]], path[1:], part, names)}


def _with_paths(keys: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `keys` with `values`, by "key" or "object.key"; their dots lead into objects."""
    found = dict(keys)
    for path, value in values.items():
        outer, _, key = path.partition(".")
        found[outer] = {**(found.get(outer) or {}), key: value} if key else value
    return found


# --- the form of transformers 4 ---------------------------------------------------------------------------


def _older_form(part: Part, by_label: Mapping[str | None, dict[str, Any] | None]) -> dict[str, Any]:
    """Return the keys of transformers 4 for parameters by label; raise if they can't say what these do."""
    found: dict[str, Any] = {}
    for label, parameters in by_label.items():
        if parameters is None:
            raise _no_key_for(f"{label or 'some'} layers without rotary embedding")
        for key, value in _older_keys(part, label, parameters).items():
            if not same(found.setdefault(key, value), value):
                raise _no_key_for(f"{key} {brief(value)} for {label}, but {brief(found[key])} for other layers")
    return {key: value for key, value in found.items() if key != "rope_scaling" or value is not None}


def _older_keys(part: Part, label: str | None, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of transformers 4 for the layers of one label; raise if the scheme is not known there."""
    scaling = {key: value for key, value in parameters.items() if key not in (BASE, SHARE)}
    layer, kind = part.model.layers.get(label or ""), scaling["rope_type"]
    if kind not in part.model.older.types:
        raise _no_key_for(f"the rope type {kind}")
    outside: dict[str, Any] = {layer.key if layer else _key_of_4(part, BASE): parameters[BASE]}
    if SHARE in parameters:
        outside[_key_of_4(part, SHARE)] = parameters[SHARE]
    if layer is not None and not layer.scaled:
        if len(scaling) > 1:
            raise _no_key_for(f"a scaling of layers of type {label}")
        return outside
    head, hidden, heads = (first_value(part, names) for names in (("head_dim",), HIDDEN, HEADS))
    if kind in _WITH_HEAD and part.model.older.null_head and head is None and hidden and heads:
        outside["head_dim"] = hidden.value // heads.value
    if kind == "longrope":
        outside[ORIGINAL] = scaling[ORIGINAL]  # its function reads it there
        scaling = _without_factor(part, scaling)
    return {**outside, "rope_scaling": _scaling_of_4(part, scaling)}


def _without_factor(part: Part, scaling: dict[str, Any]) -> dict[str, Any]:
    """Return LongRoPE's parameters without a factor, which is always derived from the lengths in transformers 4."""
    factor, original, extended = scaling.get("factor"), scaling[ORIGINAL], first_value(part, LENGTHS)
    rest = {key: value for key, value in scaling.items() if key != "factor"}
    if factor is None or "attention_factor" in rest or (extended and same(extended.value, factor * original)):
        return rest
    return {**rest, "attention_factor": longrope_attention_factor(factor, original_length=original)}


def _key_of_4(part: Part, name: str) -> str:
    """Return the key of a model for its base or share in transformers 4: its own, unless its class ignores that."""
    read = [key for key in part.key_names(name) if key not in part.model.ignored]
    if not read:
        raise _no_key_for(f"the {name} of {part.model_type}")
    return read[-1]


def _scaling_of_4(part: Part, scaling: dict[str, Any]) -> dict[str, Any] | None:
    """Return ``rope_scaling`` of transformers 4; None if there is none. Raise for keys that the class does not take."""
    always = part.model.needs_parameters or part.model.axes or part.model.older.never_null
    if scaling == {"rope_type": "default"} and not always:
        return None
    names = part.model.older.keys
    if names is None:
        return scaling
    if scaling.keys() - {"rope_type", ORIGINAL} != {*names}:
        raise _no_key_for(f"another scaling of {part.model_type} than {', '.join(names)}")
    return {"type": scaling["rope_type"], **{name: scaling[name] for name in names}}


def _no_key_for(what: str) -> ArgumentValueError:
    """Return the error that transformers 4 has no key for `what`."""
    return inexpressible(f"transformers 4 has no key for {what}")


def inexpressible(why: str) -> ArgumentValueError:
    """Return the error that the form of transformers 4 can't express a config."""
    return ArgumentValueError("version", "be 5 for this config", 4, why)
