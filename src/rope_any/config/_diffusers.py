"""
Read the rotations of a transformer of diffusers from its ``config.json``: facts by ``_class_name``.

``diffusers.toml`` contains the facts about the classes. This module has the rules that its entries name: `_SPLITS`
divides the head among the axes, `_KINDS` computes the frequencies, `_GRIDS` the positions.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, get_args

from rope_any._checks import (
    MAX_FEATURES,
    ArgumentValueError,
    Text,
    brief,
    choice,
    flag,
    integer,
    integer_between,
    positive,
)
from rope_any._frequencies import Frequencies, Row, frequencies
from rope_any._names import did_you_mean
from rope_any._pairing import Pairing
from rope_any._positions import Coordinates
from rope_any.axes import assigned, axial, strided_axes
from rope_any.config import _data
from rope_any.config._canonical import Layers, all_layers
from rope_any.config._load import Fact, Values, agreed, checked, grid_shape, joined, same, typed
from rope_any.config._part import Part
from rope_any.config._recipe import Recipe
from rope_any.scaling import linear, longrope, longrope_attention_factor

ROTARY = re.compile("rope|rotary|theta|axes_|freqs_|^scale_factor$|^interpolation_scale_")
_MOST_TOKENS = 2**22


class Setting(NamedTuple):
    """A key of a config, and the default of the class."""

    key: str
    default: Any = None
    """The value if the key is missing; None if the key is required."""
    null: Any = None
    """The value if the key is null; None if null is refused."""
    must_be: Any = None
    """The only value with which the class has this rotation; for keys in `needs`."""
    hint: str = ""
    """For the error: what to give if the key is missing; with `must_be`, the effect of any other value."""


class Class(NamedTuple):
    """The facts about one class of diffusers."""

    axes: Setting | str
    """The key of the number of features of each axis, or the rule that divides the head among the axes: `_SPLITS`."""
    head: tuple[Setting, ...]
    """The key of the head dimension, or the keys of width and number of heads; empty if the axes sum to it."""
    covers: str
    """Which tokens have the rotation, at which positions, and what the class does with the others."""
    base: Setting | float = 10_000.0
    pairing: Pairing = "interleaved"
    kind: str = "axial"
    """How the frequencies are computed and divided among the axes: `_KINDS`."""
    axis_counts: tuple[int, ...] = (3,)
    """The possible numbers of axes."""
    layers: tuple[str, ...] = ("num_layers",)
    """The keys whose sum is the number of layers."""
    divisors: tuple[Setting, ...] = ()
    """The divisors of the positions of each axis: one key for each, or one key of a list."""
    stretch: tuple[Setting, ...] = ()
    """The NTK-aware scaling factors of each axis: keys as in `divisors`."""
    grid: str = ""
    """How the model numbers the tokens of a grid: `_GRIDS`. Empty if positions come from the caller."""
    image: bool = False
    """Whether a grid has one frame only; with two axes it always has."""
    base_grid: tuple[Setting | int, ...] = ()
    """Rows and columns, before patches are made, of the grid into which others are fitted."""
    needs: tuple[Setting, ...] = ()
    """Keys that must have the value `must_be`."""
    reads: tuple[Setting, ...] = ()
    """Further keys that the rules of the kind and of the grid read."""
    unread: tuple[str, ...] = ()
    """Keys about rotary embedding that change no angle of the tokens in `covers`."""


CLASSES: Mapping[str, Class] = _data.entries_by_name("diffusers.toml", "class", Class, Setting, lambda: _RULES)
"""The classes whose rotation a `Rope` can express, by ``_class_name``."""
PARTS: Mapping[str, Class] = _data.entries_by_name("diffusers.toml", "part", Class, Setting, lambda: _RULES)
"""Further rotations of classes, for other tokens, by ``_class_name``, a point and a name of their own."""
REFUSED: Mapping[str, str] = _data.Lazy(lambda: _data.content("diffusers.toml")["refused"])
"""The reasons why other classes are refused, by ``_class_name``."""
UNROTATED: Mapping[str, str] = _data.Lazy(
    lambda: dict.fromkeys(_data.content("diffusers.toml")["unrotated"]["names"].split(), "")
)
"""The classes without rotary embedding, as keys."""


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
    return [key.partition(".")[2] for key in PARTS if isinstance(name, str) and key.startswith(f"{name}.")]


def canonical(part: Part, /, *, rotation_name: str = "") -> tuple[Layers, ...]:
    """Return a component's layers as one group; without rotary, only `unrotated`. Raise for a refused class or key."""
    name = part.keys.get("_class_name")
    if isinstance(name, str) and name in UNROTATED:
        return (Layers(unrotated=f"{name} has no rotary embedding"),)
    component = _component(part, rotation_name)
    counts = tuple(Fact(part.keys.get(key), part.name(key)) for key in component.row.layers)
    values = Values({"rope_theta": component.read(component.row.base), "head_dim": _head_dim(component)})
    return (Layers(indices=all_layers(counts), values=values, counts=counts),)


def recipe(part: Part, layers: Layers, sequence_length: int | None = None, /, *, rotation_name: str = "") -> Recipe:
    """Return the recipe from the group of `canonical`; `sequence_length` (None: as trained) is for OmniGen only."""
    component = _component(part, rotation_name)._replace(length=sequence_length)
    head, base = layers.values.fact("head_dim"), layers.values.fact("rope_theta")
    made = _KINDS[component.row.kind](component, head.value, positive(base.source, base.value))
    covers = Fact(component.row.covers, component.default)
    return made._replace(facts={"head_dim": head, "rope_theta": base, **made.facts, "covers": covers})


def grid(part: Part, shape: Sequence[int], /, *, rotation_name: str = "") -> tuple[tuple[float, ...], ...] | None:
    """
    Return the position of each token of a grid, a number for each axis, columns fastest; None if the caller gives it.

    `shape` is ``([frames,] rows, columns)`` in tokens, after patches are made. Raise if the class can't have it.
    """
    component = _component(part, rotation_name)._replace(shape=grid_shape(shape, _MOST_TOKENS))
    if not component.row.grid:
        return None
    n, *others = counts = component.row.axis_counts
    if others:
        n = len(_list_of_length(component.read(component.row.axes), counts))
    if component.shape[0] > 1 and (component.row.image or n == 2):
        raise ArgumentValueError("shape", f"be of one frame for {component.name}", component.shape[0])
    lines = _GRIDS[component.row.grid](component)  # for frames, rows and columns; a fourth axis is 0
    return None if lines is None else tuple(product(*lines[-n:], *[(0,)] * (n - 3)))


class _Component(NamedTuple):
    """A component, the facts about its class, and the arguments of the call."""

    part: Part
    name: str
    row: Class
    default: str
    """The source of values that are fixed in the code of the class."""
    length: int | None = None
    shape: tuple[int, ...] = (1, 1, 1)

    def read(self, setting: object) -> Fact:
        """Return a `Setting`'s value in the config, else its default, else raise; another object is its own value."""
        if not isinstance(setting, Setting):
            return Fact(setting, self.default)
        if fact := self.part.get(setting.key):
            return fact
        given, value = ("null", setting.null) if setting.key in self.part.keys else ("none", setting.default)
        if value is None:
            hint = f" {setting.hint}" if setting.hint and setting.must_be is None else ""
            raise ArgumentValueError(self.part.name(setting.key), f"be given for {self.name}{hint}", Text(given))
        return Fact(value, self.default)

    def number(self, setting: object) -> Fact:
        """Return the value as `read` does; raise unless it is an integer from 1 to `MAX_FEATURES`."""
        return checked(self.read(setting), _count)

    def find_setting(self, key: str, default: object = None) -> object:
        """Return the `Setting` in `row.reads` that has this key, not its value; `default` if there is none."""
        return next((setting for setting in self.row.reads if setting.key == key), default)


def _component(part: Part, rotation_name: str) -> _Component:
    """Return the component with facts about one rotation, "" for the main one. Raise for a refused class or key."""
    source = part.name("_class_name")
    name = typed(source, part.keys.get("_class_name"), str, "be a name")
    if name not in CLASSES:
        raise ArgumentValueError(source, "be a class of diffusers whose rotation is known", name, _class_hint(name))
    row = PARTS[f"{name}.{rotation_name}"] if rotation_name else CLASSES[name]
    component = _Component(part, name, row, f"default of {name}")
    read = {setting.key for setting in settings(row)}.union(row.unread)
    for key, value in part.keys.items():
        if value is not None and isinstance(key, str) and ROTARY.search(key) and key not in read:
            raise ArgumentValueError(part.name(key), f"not be given, since {name} does not read it", value)
    for setting in row.needs:
        value, source = component.read(setting)
        if not same(value, setting.must_be):
            got = Text(f"{brief(value)} ({source})")
            raise ArgumentValueError(part.name(setting.key), f"be {setting.must_be}: {setting.hint}", got)
    return component


def _class_hint(name: str) -> str:
    """Return the hint of the error for a class not in `CLASSES`: why it is refused, or what to give instead."""
    if name in UNROTATED:
        return "it has no rotary"
    if name in REFUSED:
        return REFUSED[name]
    if name.endswith("Pipeline"):
        return "give the folder of the pipeline, or the config.json of its transformer"
    if not may_rotate(name):
        return "it is no transformer of diffusers"
    by_hand = "make the Rope of another class by hand: Rope(axes.axial(…), pairing=…)"
    return "; ".join(filter(None, (by_hand, did_you_mean(name, [*CLASSES, *REFUSED, *UNROTATED]))))


def settings(row: Class, /) -> list[Setting]:
    """Return each `Setting` among the facts about a class, those inside tuples too."""
    fields = (field if type(field) is tuple else (field,) for field in row)
    return [item for items in fields for item in items if isinstance(item, Setting)]


def _count(name: str, value: object, *, least: int = 1) -> int:
    """Return a number of features or tokens as an int; raise unless it is from `least` to `MAX_FEATURES`."""
    return integer_between(name, value, least, MAX_FEATURES)


def _list_of_length(fact: Fact, lengths: tuple[int, ...], check: Callable[[str, Any], Any] = _count) -> list[Any]:
    """Return ``check(source, item)`` for each item of a fact's list; raise unless its length is one of `lengths`."""
    values = typed(fact.source, fact.value, (list, tuple), "be a list")
    if len(values) not in lengths:
        raise ArgumentValueError(fact.source, f"have {' or '.join(map(str, lengths))} items", len(values))
    return [check(fact.source, value) for value in values]


def _checked_object(fact: Fact, allowed: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return an object without nulls; raise unless each key is in `allowed`, whose tuple has its value or is empty."""
    content = typed(fact.source, fact.value, Mapping, "be an object")
    given = {key: value for key, value in content.items() if value is not None}
    for key, value in given.items():
        if key not in allowed or (allowed[key] and not any(same(value, each) for each in allowed[key])):
            wanted = f"have only the keys {', '.join(allowed)}, with values that the class reads"
            raise ArgumentValueError(fact.source, wanted, Text(f"{brief(key)} {brief(value)}"))
    return given


def _head_dim(component: _Component) -> Fact:
    """Return the head dimension: by key, as sum of the axes or width / heads, or for LTX the width of all heads."""
    if not component.row.head:
        axes = component.read(component.row.axes)
        return Fact(sum(_list_of_length(axes, component.row.axis_counts)), f"sum of {axes.source}")
    if component.row.kind == "sequence":  # the sum of the first list that is given
        given = (setting for setting in component.row.head if component.part.get(setting.key))
        axes = component.read(next(given, component.row.head[-1]))
        return Fact(sum(_list_of_length(axes, (3,))), f"sum of {axes.source}")
    first, *others = map(component.number, component.row.head)
    if not others:
        return first
    (width, source), (heads, counted) = first, others[0]
    if component.row.kind == "all heads":
        return Fact(_count(f"{source} · {counted}", width * heads), f"{source} · {counted}")
    if width % heads:
        name = component.part.name(component.row.head[1].key)
        raise ArgumentValueError(name, f"divide {component.row.head[0].key}, {width}", heads)
    return Fact(width // heads, f"{source} // {counted}")


# --- frequencies ------------------------------------------------------------------------------------------


_SPLITS: Mapping[str, Callable[[int], tuple[int, ...]]] = {
    "whole": lambda d: (d,),
    "half": lambda d: (d // 2,),
    "halves": lambda d: (d // 2, d // 2),
    "thirds": lambda d: (d // 3,) * 3,
    "quarters": lambda d: (d // 4, d // 8 * 3, d // 8 * 3),
    "sixths": lambda d: (d - 4 * (d // 6), 2 * (d // 6), 2 * (d // 6)),
    # if d % 6 is 3 to 5, the class divides its table at odd columns
    "even sixths": lambda d: _SPLITS["sixths"](d) if d % 6 < 3 else (),
}
"""How to divide the head dimension d among the axes: functions that return the number of features of each."""


def _axis_sizes(component: _Component, dim: int) -> Fact:
    """Return each axis's number of features, all even. Raise unless they sum to `dim`; one axis may have less."""
    axes = component.read(component.row.axes)
    if axes.source == component.default and isinstance(axes.value, str):
        axes = Fact(_SPLITS[axes.value](dim), f"head_dim {dim}, divided as {component.name} does")
    elif component.row.axis_counts == (1,):
        axes = Fact((axes.value,), axes.source)
    sizes = _list_of_length(axes, component.row.axis_counts, integer)
    name = component.part.name(component.row.axes.key) if isinstance(component.row.axes, Setting) else axes.source
    if any(size < 2 or size % 2 for size in sizes):
        raise ArgumentValueError(name, "give each axis an even number of features, 2 at least", sizes)
    if sum(sizes) > dim or (sum(sizes) < dim and len(sizes) > 1):
        raise ArgumentValueError(name, f"sum to the head dimension, {dim}", sizes)
    return Fact(tuple(sizes), axes.source)


def _axial(component: _Component, dim: int, base: float) -> Recipe:
    """Return the recipe of axes with a run of pairs each; keys may divide frequencies or stretch each axis's base."""
    axes = _axis_sizes(component, dim)
    n, keys_of = len(axes.value), {"divisors": component.row.divisors, "rope_scale": component.row.stretch}
    facts = {name: _numbers_by_axis(component, keys, n) for name, keys in keys_of.items() if keys}
    divisors, scales = (facts[name].value if name in facts else (1.0,) * n for name in keys_of)
    if component.row.stretch and min(axes.value) < 4:
        raise ArgumentValueError(axes.source, "give each axis at least 4 features", list(axes.value))
    # bₐ = b · sₐ^(d / (d − 2))
    stretched = [base * s ** (d / max(d - 2, 1)) for s, d in zip(scales, axes.value, strict=True)]
    bases = [positive(facts.get("rope_scale", axes).source, b) for b in stretched]
    rows = [linear(frequencies(d, base=b), s) for d, b, s in zip(axes.value, bases, divisors, strict=True)]
    made: Frequencies = axial(*rows) if n > 1 else rows[0]
    if component.row.kind == "blocks":
        facts["blocks"] = Fact(n, component.default)
    facts |= {"rotary_dim": Fact(sum(axes.value), axes.source), "axes": axes}
    return Recipe(made[::-1] if component.row.kind == "columns first" else made, component.row.pairing, 1.0, 0, facts)


def _numbers_by_axis(component: _Component, keys: tuple[Setting, ...], n: int) -> Fact:
    """Return a positive number for each of n axes, a tuple in one Fact, from n keys or from one key of a list."""
    found = [component.read(key) for key in keys]
    if len(found) == 1:
        return Fact(tuple(_list_of_length(found[0], (n,), positive)), found[0].source)
    return joined([checked(fact, positive) for fact in found])


def _equal_axes(component: _Component, dim: int, base: float) -> Recipe:
    """Return the recipe of three axes with equal blocks of pairs; the rest doesn't rotate. Raise if `dim` is small."""
    pairs, source = component.number(component.row.axes)
    if 6 * pairs > dim:
        raise ArgumentValueError(source, f"be at most a sixth of the head dimension, {dim}", pairs)
    rows = axial(*[frequencies(2 * pairs, base=base)] * 3)
    return Recipe(rows, component.row.pairing, 1.0, 0, {"rotary_dim": Fact(6 * pairs, f"6 · {source}")})


def _strided(component: _Component, dim: int, base: float) -> Recipe:
    """Return the recipe of axes that take pairs in turn; the first gets the rest. Raise if a section exceeds `dim`."""
    given, kinds = component.read(component.row.axes), ("default", "mrope")
    sections = _list_of_length(given, component.row.axis_counts)
    if scaling := component.part.get("rope_scaling"):  # Cosmos3 reads only its sections
        allowed = {"mrope_section": (), "rope_type": kinds, "type": kinds, "mrope_interleaved": (True,)}
        inner = _checked_object(scaling, allowed).get("mrope_section")
        found = Fact(inner, component.part.name("rope_scaling", "mrope_section"))
        if inner is not None and given.source == component.default:
            given, sections = found, _list_of_length(found, component.row.axis_counts)
        elif inner is not None:
            agreed(Fact(sections, given.source), Fact(_list_of_length(found, component.row.axis_counts), found.source))
    # axis a has pairs a, a + n, …, below n · section
    last = max((section - 1) * len(sections) + a for a, section in enumerate(sections) if a)
    if dim % 2 or last >= dim // 2:
        wanted = f"be sections that fit into the head dimension, {dim}, which must be even"
        raise ArgumentValueError(given.source, wanted, sections)
    rows = assigned(frequencies(dim, base=base), strided_axes(dim // 2, sections))
    facts = {"rotary_dim": Fact(dim, component.default), "mrope_section": Fact(tuple(sections), given.source)}
    return Recipe(rows, component.row.pairing, 1.0, 0, facts)


def _over_all_heads(component: _Component, dim: int, base: float) -> Recipe:
    """Return LTX's recipe: frequencies rise over the pairs of all heads (`dim` features), which axes take in turn."""
    (axes,), (heads, each) = component.row.axis_counts, component.row.head
    n, kind = dim // (2 * axes), component.read(component.find_setting("rope_type", "interleaved"))
    if dim % 2 or not n:
        raise ArgumentValueError(f"{heads.key} · {each.key}", f"be even and at least {2 * axes}", dim)
    if across := component.find_setting("audio_cross_attention_dim"):  # must equal the width of queries and keys
        agreed(Fact(dim, f"{heads.key} · {each.key}"), component.number(across))
    choice(kind.source, kind.value, ("interleaved", "split"), "be interleaved or split")
    # pair k·i + a, for axis a of k: f = base^(i / (n − 1)) · π / 2; the first pairs, `rest`, are not rotated
    count = axes * n
    rest, row = dim // 2 - count, tuple(base ** (i // axes / max(n - 1, 1)) * math.pi / 2 for i in range(count))
    axis_of = strided_axes(count, [n] * axes)
    facts = {"rotary_dim": Fact(2 * count, component.default), "rope_type": kind}
    if kind.value == "interleaved":
        facts["start"] = Fact(2 * rest, component.default)
        return Recipe(assigned(row, axis_of) if axes > 1 else row, "interleaved", 1.0, 2 * rest, facts)
    facts["blocks"] = blocks = component.number(heads)  # each head is paired on its own
    if dim // blocks.value % 2:
        raise ArgumentValueError(each.key, "be even", dim // blocks.value)
    rows = assigned((0.0,) * rest + row, [0] * rest + axis_of)
    return Recipe(rows if axes > 1 else row, "half", 1.0, 0, facts)


def _head_frequencies(dim: int, base: float) -> Row:
    """Return the frequencies of all pairs of a head of `dim` features, ``base^(−2i/dim)``; raise unless it is even."""
    if dim % 2:
        raise ArgumentValueError("the head dimension", "be even", dim)
    return frequencies(dim, base=base)


def _sequence(component: _Component, dim: int, base: float) -> Recipe:
    """Return the recipe of Kandinsky's text or audio: one axis; ``audio_freqs_scaling`` multiplies the frequencies."""
    scale = component.read(component.find_setting("audio_freqs_scaling", 1.0))
    factor, facts = positive(scale.source, scale.value), {"rotary_dim": Fact(dim, component.default)}
    facts |= {"frequency_scale": scale} if factor != 1 else {}
    return Recipe(tuple(factor * f for f in _head_frequencies(dim, base)), component.row.pairing, 1.0, 0, facts)


def _longrope(component: _Component, dim: int, base: float) -> Recipe:
    """Return OmniGen's recipe, LongRoPE: by ``long_factor`` above the trained length, else by ``short_factor``."""
    scaling, longest, original = map(component.read, component.row.reads)
    kinds, unscaled = ("su", "longrope"), _head_frequencies(dim, base)
    values = _checked_object(scaling, {"short_factor": (), "long_factor": (), "type": kinds, "rope_type": kinds})
    names = {name: component.part.name("rope_scaling", name) for name in ("short_factor", "long_factor")}
    lists = {name: _list_of_length(Fact(values.get(name), key), (dim // 2,), positive) for name, key in names.items()}
    trained = _count(original.source, original.value, least=2)
    length = trained if component.length is None else integer("sequence_length", component.length)
    row = longrope(unscaled, **lists, original_length=trained, length=length)
    factor = longrope_attention_factor(_count(longest.source, longest.value) / trained, original_length=trained)
    used = "long_factor" if length > trained else "short_factor"
    facts = {
        "rotary_dim": Fact(dim, component.default),
        "factors": Fact(used, names[used]),
        "attention_factor": Fact(factor, f"{longest.source}, {original.source}"),
    }
    return Recipe(row, component.row.pairing, factor, 0, facts)


_KINDS: Mapping[str, Callable[[_Component, int, float], Recipe]] = {
    "axial": _axial,
    "columns first": _axial,
    "blocks": _axial,
    "equal": _equal_axes,
    "strided": _strided,
    "all heads": _over_all_heads,
    "longrope": _longrope,
    "sequence": _sequence,
}


# --- grids ------------------------------------------------------------------------------------------------


def _grid_skipping_frames(component: _Component) -> Coordinates:
    """Return coordinates from 0. If a patch has one frame, the second of two is at ``rope_temporal_skip_len`` − 1."""
    frames, rows, columns = map(range, component.shape)
    patch = component.find_setting("patch_size")
    if len(frames) == 2 and _list_of_length(component.read(patch), (3,), lambda _, n: same(n, 1))[0]:
        return (0, component.number(component.find_setting("rope_temporal_skip_len")).value - 1), rows, columns
    return frames, rows, columns


def _grid_centred(component: _Component) -> Coordinates | None:
    """Return a range for each axis: frames from 0, n rows or columns from n // 2 − n; None if ``use_layer3d_rope``."""
    layers = component.read(component.find_setting("use_layer3d_rope", default=False))
    middle = [range(n // 2 - n, n // 2) for n in component.shape[1:]]
    return None if flag(layers.source, layers.value) else (range(component.shape[0]), *middle)


def _grid_fitted(component: _Component) -> Coordinates:
    """Return the coordinates of rows and columns: ``i · length // n`` for i of n; ``rope_axes_dim`` has the lengths."""
    most = _list_of_length(component.read(component.find_setting("rope_axes_dim")), (2,))
    return [[i * length // n for i in range(n)] for n, length in zip(component.shape[1:], most, strict=True)]


def _grid_cropped(component: _Component) -> Coordinates:
    """Return frames from 0; rows, columns spread over a middle part of the base grid, or from 0 for CogVideoX 1.5."""
    frames, rows, columns = component.shape
    patch = component.number(component.find_setting("patch_size")).value
    sides = map(component.number, component.row.base_grid)
    high, wide = (_count(f"{side.source} // patch_size", side.value // patch) for side in sides)
    if component.part.get("patch_size_t"):  # CogVideoX 1.5 takes the first rows and columns of the base grid
        if rows > high or columns > wide:
            raise ArgumentValueError("shape", f"be at most {high} rows and {wide} columns", (rows, columns))
        return tuple(map(range, component.shape))
    is_taller = rows / columns > high / wide  # in proportion, than the base grid
    # the rectangle is in the middle of the base grid
    height, width = (high, round(high / rows * columns)) if is_taller else (round(wide / columns * rows), wide)
    return range(frames), _spread(high, height, rows), _spread(wide, width, columns)


def _spread(whole: int, extent: int, n: int) -> list[float]:
    """Return n coordinates, spaced as in diffusers, over the length `extent` in the middle of the length `whole`."""
    first = round((whole - extent) / 2)
    # xᵢ = s + i · ((s + e) · (n − 1) / n − s) / (n − 1)
    step = ((first + extent) * (n - 1) / n - first) / max(n - 1, 1)
    return [first + i * step for i in range(n)]


_GRIDS: Mapping[str, Callable[[_Component], Coordinates | None]] = {
    "from zero": lambda component: tuple(map(range, component.shape)),
    "skipping": _grid_skipping_frames,
    "centred": _grid_centred,
    "fitted": _grid_fitted,
    "cropped": _grid_cropped,
}

_RULES: Mapping[str, Collection[str]] = {"axes": _SPLITS, "kind": _KINDS, "grid": _GRIDS, "pairing": get_args(Pairing)}
"""The fields of `Class` that contain the name of a rule or a pairing, and the allowed names."""
