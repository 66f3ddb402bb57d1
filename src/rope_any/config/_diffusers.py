"""
Read the rotations of a transformer of diffusers from its ``config.json``: facts by ``_class_name``.

`tables.diffusers` has the facts about the classes, `tables.diffusers_rules` the functions that they name.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from rope_any._checks import ArgumentValueError, Text, brief, positive
from rope_any._names import did_you_mean
from rope_any.config._canonical import Layers, all_layers
from rope_any.config._load import Fact, Values, grid_shape, same, typed
from rope_any.config._part import Part, unread
from rope_any.config._recipe import Recipe
from rope_any.config.tables.diffusers import CLASSES, REFUSED, UNROTATED
from rope_any.config.tables.diffusers_rules import Component, list_of_length

_OF_GRIDS = "axes_|freqs_|^scale_factor$|^interpolation_scale_"  # other keys about rotary embedding
_MOST_TOKENS = 2**22


# --- reading a config -------------------------------------------------------------------------------------


def is_diffusers(keys: Mapping[str, Any], /) -> bool:
    """Whether a config is that of a component of diffusers: it has ``_class_name``, and this is not null."""
    return keys.get("_class_name") is not None


def may_rotate(name: object, /) -> bool:
    """Whether a class may rotate: known to, refused, no string, or unknown with "Transformer" or "ControlNet" in it."""
    if not isinstance(name, str) or name in CLASSES or name in REFUSED:
        return True  # if it is refused or no string, reading it raises
    return name not in UNROTATED and ("Transformer" in name or "ControlNet" in name)


def further_rotations(name: object, /) -> list[str]:
    """Return the names of the further rotations of a class, such as "audio"; [] for an unknown class."""
    return list(CLASSES[name].further) if isinstance(name, str) and name in CLASSES else []


def canonical(part: Part, /, *, rotation_name: str = "") -> tuple[Layers, ...]:
    """Return a component's layers as one group; without rotary, only `unrotated`. Raise for a refused class or key."""
    name = part.keys.get("_class_name")
    if isinstance(name, str) and name in UNROTATED:
        return (Layers(unrotated=f"{name} has no rotary embedding"),)
    component = _component(part, rotation_name)
    counts = tuple(Fact(part.keys.get(key), part.name(key)) for key in component.row.layers)
    base, head = component.read(component.row.base), component.row.width(component)
    values = Values({"rope_theta": base, "head_dim": head})
    return (Layers(indices=all_layers(counts), values=values, counts=counts),)


def recipe(part: Part, layers: Layers, sequence_length: int | None = None, /, *, rotation_name: str = "") -> Recipe:
    """Return the recipe from the group of `canonical`; `sequence_length` (None: as trained) is for OmniGen only."""
    component = _component(part, rotation_name)._replace(length=sequence_length)
    head, base = layers.values.fact("head_dim"), layers.values.fact("rope_theta")
    made = component.row.kind(component, head.value, positive(base.source, base.value))
    covers = Fact(component.row.covers, component.part.default)
    return made._replace(facts={"head_dim": head, "rope_theta": base, **made.facts, "covers": covers})


def grid(part: Part, shape: Sequence[int], /, *, rotation_name: str = "") -> tuple[tuple[float, ...], ...] | None:
    """
    Return the position of each token of a grid, a number for each axis, columns fastest; None if the caller gives it.

    `shape` is ``([frames,] rows, columns)`` in tokens, after patches are made. Raise if the class can't have it.
    """
    component = _component(part, rotation_name)._replace(shape=grid_shape(shape, _MOST_TOKENS))
    if component.row.grid is None:
        return None
    n, *others = counts = component.row.axis_counts
    if others:
        n = len(list_of_length(component.read(component.row.axes), counts))
    if component.shape[0] > 1 and (component.row.image or n == 2):
        raise ArgumentValueError("shape", f"be of one frame for {component.part.model_type}", component.shape[0])
    lines = component.row.grid(component)  # for frames, rows and columns; a fourth axis is 0
    return None if lines is None else tuple(product(*lines[-n:], *[(0,)] * (n - 3)))


def _component(part: Part, rotation_name: str) -> Component:
    """Return the component with facts about one rotation, "" for the main one. Raise for a refused class or key."""
    source = part.name("_class_name")
    name = typed(source, part.keys.get("_class_name"), str, "be a name")
    if name not in CLASSES:
        raise ArgumentValueError(source, "be a class of diffusers whose rotation is known", name, _class_hint(name))
    row = CLASSES[name].further[rotation_name] if rotation_name else CLASSES[name]
    component, read = Component(part._replace(model_type=name), row), row.keys()
    for value, source in unread(part, read, _OF_GRIDS):
        raise ArgumentValueError(source, f"not be given, since {name} does not read it", value)
    for needed, must_be, why in row.needs:
        found = component.read(needed)
        if not same(found.value, must_be):
            got = Text(f"{brief(found.value)} ({found.source})")
            raise ArgumentValueError(part.name(*needed.keys), f"be {must_be}: {why}", got)
    return component


def _class_hint(name: str) -> str:
    """Return the hint of the error for a class not in `CLASSES`: why it is refused, or what to give instead."""
    if why := UNROTATED.get(name) or REFUSED.get(name):
        return why
    if name.endswith("Pipeline"):
        return "give the folder of the pipeline, or the config.json of its transformer"
    if not may_rotate(name):
        return "it is no transformer of diffusers"
    by_hand = "make the Rope of another class by hand: Rope(axes.axial(…), pairing=…)"
    return "; ".join(filter(None, (by_hand, did_you_mean(name, [*CLASSES, *REFUSED, *UNROTATED]))))
