"""Write a config in the forms of transformers: `modern` in that of version 5."""

import math
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from rope_any._checks import ArgumentValueError, Text
from rope_any.config._canonical import (
    EXTENDED,
    SIZES,
    Layers,
    class_defaults,
    common_value,
    groups_by_label,
    rope_type_of,
    without_rotary,
)
from rope_any.config._gguf import is_gguf
from rope_any.config._params import form_of
from rope_any.config._part import BASE, COUNT, LENGTHS, SHARE, Part
from rope_any.config._parts import PartReader
from rope_any.config._recipe import has_rotary_slice, recipe


def as_version_5(whole: Mapping[str, Any], reader: PartReader, /) -> Mapping[str, Any]:
    """Return the config `whole`, whose text is read by `reader`, with all parameters in ``rope_parameters``."""
    form = "the metadata of a GGUF file" if is_gguf(whole) else form_of(whole)
    if form is not None:
        raise ArgumentValueError("config", "be that of transformers", Text(form))
    part, groups = reader.part, reader.layers()
    if not reader.is_text:
        raise ArgumentValueError("config", "be that of a text model", Text(f"that of {part.model_type}"))
    if without_rotary(part) is not None or "rope_parameters" in part.model.ignored:
        return whole
    found = groups_by_label(groups)
    new = {label: _modern_parameters(part, label, same_label) for label, same_label in found.items()}
    names = (key for name in (BASE, SHARE, COUNT) for key in part.key_names(name))
    old = {"rope_scaling", *names, *(layer.key for layer in part.model.layers.values())}
    kept = {key: value for key, value in part.keys.items() if key not in old}
    return _replace_part(whole, part.path, {**kept, "rope_parameters": new.get(None, new)}, {*old, "rope_parameters"})


def _modern_parameters(part: Part, label: str | None, groups: list[Layers]) -> dict[str, Any] | None:
    """Return today's ``rope_parameters`` of one label; None or a null base if none rotates. Raise if groups differ."""
    found = common_value(part, groups, partial(recipe, part), key=lambda made: made.rope)
    if isinstance(found, str):  # none rotates
        return {"rope_type": "default", "rope_theta": None} if part.model.optional_rotary else None
    given = next(group.values for group in groups if not group.unrotated)
    values = {key: fact.value for key, fact in class_defaults(part, label).items()}
    values |= {LENGTHS[0] if key == EXTENDED else key: value for key, value in given.items() if key not in SIZES}
    counted = COUNT in part.model.sizes or any(name in part.keys for name in part.key_names(COUNT))
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
