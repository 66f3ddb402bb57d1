"""
The type of the rows of diffusers, and the functions that they name.

A split divides the head among the axes, a kind computes the frequencies, a grid numbers tokens. A row gives the keyword
arguments of a kind and of a grid by `functools.partial`.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from rope_any import scaling
from rope_any._checks import MAX_FEATURES, ArgumentValueError, Text, brief, choice, flag, integer, positive
from rope_any._frequencies import Frequencies, Row, frequencies
from rope_any._pairing import Pairing
from rope_any._positions import Coordinates
from rope_any._rope import Rope
from rope_any.axes import assigned, axial, strided_axes
from rope_any.config._load import Fact, agreed, checked, joined, same, typed
from rope_any.config._part import Part
from rope_any.config._recipe import Recipe
from rope_any.config.tables.values import Check, Value, between, value

_count = between(1, MAX_FEATURES)  # of features or tokens


class Component(NamedTuple):
    """A component of a pipeline, the facts about its class, and the arguments of the call."""

    part: Part
    """Its model type is the name of the class."""
    row: "Class"
    length: int | None = None
    shape: tuple[int, ...] = (1, 1, 1)

    def read(self, given: object) -> Fact:
        """Return what a `Value` is in the config; any other object is its own value."""
        return given.read(self.part) if isinstance(given, Value) else Fact(given, self.part.default)

    def number(self, given: object) -> Fact:
        """Return the value as `read` does; raise unless it is an integer from 1 to `MAX_FEATURES`."""
        return checked(self.read(given), _count)


def list_of_length(fact: Fact, lengths: tuple[int, ...], check: Check = _count) -> list[Any]:
    """Return ``check(source, item)`` for each item of a fact's list; raise unless its length is one of `lengths`."""
    values = typed(fact.source, fact.value, (list, tuple), "be a list")
    if len(values) not in lengths:
        raise ArgumentValueError(fact.source, f"have {' or '.join(map(str, lengths))} items", len(values))
    return [check(fact.source, item) for item in values]


def _checked_object(fact: Fact, allowed: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return an object without nulls; raise unless each key is in `allowed`, whose tuple has its value or is empty."""
    content = typed(fact.source, fact.value, Mapping, "be an object")
    given = {key: item for key, item in content.items() if item is not None}
    for key, item in given.items():
        if key not in allowed or (allowed[key] and not any(same(item, each) for each in allowed[key])):
            wanted = f"have only the keys {', '.join(allowed)}, with values that the class reads"
            raise ArgumentValueError(fact.source, wanted, Text(f"{brief(key)} {brief(item)}"))
    return given


# --- the width of the head --------------------------------------------------------------------------------


def one_head(component: Component) -> Fact:
    """Return the head dimension: by its key, as the sum of the axes, or as width / heads."""
    if not component.row.head:
        axes = component.read(component.row.axes)
        return Fact(sum(list_of_length(axes, component.row.axis_counts)), f"sum of {axes.source}")
    first, *others = map(component.number, component.row.head)
    if not others:
        return first
    (width, source), (heads, counted) = first, others[0]
    if width % heads:
        (first_key, *_), (key, *_) = (each.keys for each in component.row.head)
        raise ArgumentValueError(component.part.name(key), f"divide {first_key}, {width}", heads)
    return Fact(width // heads, f"{source} // {counted}")


def all_heads(component: Component) -> Fact:
    """Return the width of all heads together: the product of both keys."""
    (heads, counted), (width, source) = map(component.number, component.row.head)
    return Fact(_count(f"{counted} · {source}", heads * width), f"{counted} · {source}")


def first_list(component: Component) -> Fact:
    """Return the sum of the first list of three numbers that the config gives, else of the last key's default."""
    given = (each for each in component.row.head if each.find(component.part))
    axes = component.read(next(given, component.row.head[-1]))
    return Fact(sum(list_of_length(axes, (3,))), f"sum of {axes.source}")


# --- splits: the number of features of each axis ----------------------------------------------------------


def whole(d: int) -> tuple[int, ...]:
    """Return the head dimension `d` for the only axis."""
    return (d,)


def half(d: int) -> tuple[int, ...]:
    """Return half of the head for the only axis."""
    return (d // 2,)


def halves(d: int) -> tuple[int, ...]:
    """Return half of the head for each of two axes."""
    return (d // 2,) * 2


def thirds(d: int) -> tuple[int, ...]:
    """Return a third of the head for each of three axes."""
    return (d // 3,) * 3


def quarters(d: int) -> tuple[int, ...]:
    """Return a quarter of the head for the first axis, three eighths for the others."""
    return (d // 4, d // 8 * 3, d // 8 * 3)


def sixths(d: int) -> tuple[int, ...]:
    """Return two sixths of the head for each axis; the first gets the rest too."""
    return (d - 4 * (d // 6), 2 * (d // 6), 2 * (d // 6))


def even_sixths(d: int) -> tuple[int, ...]:
    """Return `sixths`, or () if d % 6 is 3 to 5: then the class divides its table at odd columns."""
    return sixths(d) if d % 6 < 3 else ()


# --- kinds: the frequencies -------------------------------------------------------------------------------


def _axis_sizes(component: Component, dim: int) -> Fact:
    """Return each axis's number of features, all even. Raise unless they sum to `dim`; one axis may have less."""
    axes, given = component.read(component.row.axes), component.row.axes
    if callable(axes.value):
        axes = Fact(axes.value(dim), f"head_dim {dim}, divided as {component.part.model_type} does")
    elif component.row.axis_counts == (1,):
        axes = Fact((axes.value,), axes.source)
    sizes = list_of_length(axes, component.row.axis_counts, integer)
    name = component.part.name(*given.keys) if isinstance(given, Value) else axes.source
    if any(size < 2 or size % 2 for size in sizes):
        raise ArgumentValueError(name, "give each axis an even number of features, 2 at least", sizes)
    if sum(sizes) > dim or (sum(sizes) < dim and len(sizes) > 1):
        raise ArgumentValueError(name, f"sum to the head dimension, {dim}", sizes)
    return Fact(tuple(sizes), axes.source)


def runs(component: Component, dim: int, base: float, *, blocks: bool = False, columns_first: bool = False) -> Recipe:
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
    rows = [scaling.linear(frequencies(d, base=b), s) for d, b, s in zip(axes.value, bases, divisors, strict=True)]
    made: Frequencies = axial(*rows) if n > 1 else rows[0]
    if blocks:
        facts["blocks"] = Fact(n, component.part.default)
    facts |= {"rotary_dim": Fact(sum(axes.value), axes.source), "axes": axes}
    made = made[::-1] if columns_first else made
    return Recipe(Rope(made, pairing=component.row.pairing, blocks=n if blocks else 1), facts)


def _numbers_by_axis(component: Component, keys: tuple[Value, ...], n: int) -> Fact:
    """Return a positive number for each of n axes, a tuple in one Fact, from n keys or from one key of a list."""
    found = [component.read(key) for key in keys]
    if len(found) == 1:
        return Fact(tuple(list_of_length(found[0], (n,), positive)), found[0].source)
    return joined([checked(fact, positive) for fact in found])


def equal_axes(component: Component, dim: int, base: float) -> Recipe:
    """Return the recipe of three axes with equal blocks of pairs; the rest doesn't rotate. Raise if `dim` is small."""
    pairs, source = component.number(component.row.axes)
    if 6 * pairs > dim:
        raise ArgumentValueError(source, f"be at most a sixth of the head dimension, {dim}", pairs)
    rows = axial(*[frequencies(2 * pairs, base=base)] * 3)
    return Recipe(Rope(rows, pairing=component.row.pairing), {"rotary_dim": Fact(6 * pairs, f"6 · {source}")})


def strided(component: Component, dim: int, base: float, *, scaled: Value | None = None) -> Recipe:
    """
    Return the recipe of axes that take pairs in turn; the first gets the rest. Raise if a section exceeds `dim`.

    Of the object at `scaled`, only the sections are read.
    """
    given, kinds = component.read(component.row.axes), ("default", "mrope")
    sections = list_of_length(given, component.row.axis_counts)
    if scaled and (content := scaled.find(component.part)):
        allowed = {"mrope_section": (), "rope_type": kinds, "type": kinds, "mrope_interleaved": (True,)}
        inner = _checked_object(content, allowed).get("mrope_section")
        found = Fact(inner, component.part.name(*scaled.keys, "mrope_section"))
        if inner is not None and given.source == component.part.default:
            given, sections = found, list_of_length(found, component.row.axis_counts)
        elif inner is not None:
            agreed(Fact(sections, given.source), Fact(list_of_length(found, component.row.axis_counts), found.source))
    # axis a has pairs a, a + n, …, below n · section
    last = max((section - 1) * len(sections) + a for a, section in enumerate(sections) if a)
    if dim % 2 or last >= dim // 2:
        wanted = f"be sections that fit into the head dimension, {dim}, which must be even"
        raise ArgumentValueError(given.source, wanted, sections)
    rows = assigned(frequencies(dim, base=base), strided_axes(dim // 2, sections))
    facts = {"rotary_dim": Fact(dim, component.part.default), "mrope_section": Fact(tuple(sections), given.source)}
    return Recipe(Rope(rows, pairing=component.row.pairing), facts)


def over_all_heads(
    component: Component, dim: int, base: float, *, rope_type: Value | str = "interleaved", across: Value | None = None
) -> Recipe:
    """
    Return LTX's recipe: frequencies rise over the pairs of all heads (`dim` features), which axes take in turn.

    `across`, another width of queries and keys, must equal `dim`.
    """
    (axes,), (heads, each) = component.row.axis_counts, component.row.head
    n, kind, width = dim // (2 * axes), component.read(rope_type), f"{heads.keys[0]} · {each.keys[0]}"
    if dim % 2 or not n:
        raise ArgumentValueError(width, f"be even and at least {2 * axes}", dim)
    if across:
        agreed(Fact(dim, width), component.number(across))
    choice(kind.source, kind.value, ("interleaved", "split"), "be interleaved or split")
    # pair k·i + a, for axis a of k: f = base^(i / (n − 1)) · π / 2; the first pairs, `rest`, are not rotated
    count = axes * n
    rest, row = dim // 2 - count, tuple(base ** (i // axes / max(n - 1, 1)) * math.pi / 2 for i in range(count))
    axis_of = strided_axes(count, [n] * axes)
    facts = {"rotary_dim": Fact(2 * count, component.part.default), "rope_type": kind}
    if kind.value == "interleaved":
        facts["start"] = Fact(2 * rest, component.part.default)
        return Recipe(Rope(assigned(row, axis_of) if axes > 1 else row, pairing="interleaved", start=2 * rest), facts)
    facts["blocks"] = blocks = component.number(heads)  # each head is paired on its own
    if dim // blocks.value % 2:
        raise ArgumentValueError(each.keys[0], "be even", dim // blocks.value)
    rows = assigned((0.0,) * rest + row, [0] * rest + axis_of)
    return Recipe(Rope(rows if axes > 1 else row, pairing="half", blocks=blocks.value), facts)


def _head_frequencies(dim: int, base: float) -> Row:
    """Return the frequencies of all pairs of a head of `dim` features, ``base^(−2i/dim)``; raise unless it is even."""
    if dim % 2:
        raise ArgumentValueError("the head dimension", "be even", dim)
    return frequencies(dim, base=base)


def sequence(component: Component, dim: int, base: float, *, scale: Value | float = 1.0) -> Recipe:
    """Return the recipe of Kandinsky's text or audio: one axis; `scale` multiplies the frequencies."""
    by = component.read(scale)
    factor, facts = positive(by.source, by.value), {"rotary_dim": Fact(dim, component.part.default)}
    facts |= {"frequency_scale": by} if factor != 1 else {}
    row = tuple(factor * f for f in _head_frequencies(dim, base))
    return Recipe(Rope(row, pairing=component.row.pairing), facts)


def longrope(component: Component, dim: int, base: float, *, factors: Value, longest: Value, original: Value) -> Recipe:
    """Return OmniGen's recipe, LongRoPE: by ``long_factor`` above the trained length, else by ``short_factor``."""
    given, extended, first = map(component.read, (factors, longest, original))
    kinds, unscaled = ("su", "longrope"), _head_frequencies(dim, base)
    values = _checked_object(given, {"short_factor": (), "long_factor": (), "type": kinds, "rope_type": kinds})
    names = {name: component.part.name(*factors.keys, name) for name in ("short_factor", "long_factor")}
    lists = {name: list_of_length(Fact(values.get(name), key), (dim // 2,), positive) for name, key in names.items()}
    trained = between(2, MAX_FEATURES)(first.source, first.value)
    length = trained if component.length is None else integer("sequence_length", component.length)
    row = scaling.longrope(unscaled, **lists, original_length=trained, length=length)
    share = _count(extended.source, extended.value) / trained
    factor = scaling.longrope_attention_factor(share, original_length=trained)
    used = "long_factor" if length > trained else "short_factor"
    facts = {
        "rotary_dim": Fact(dim, component.part.default),
        "factors": Fact(used, names[used]),
        "attention_factor": Fact(factor, f"{extended.source}, {first.source}"),
    }
    return Recipe(Rope(row, pairing=component.row.pairing, attention_factor=factor), facts)


# --- grids: the coordinates of frames, rows and columns ---------------------------------------------------


def from_zero(component: Component) -> Coordinates:
    """Return coordinates from 0."""
    return tuple(map(range, component.shape))


def skipping_frames(component: Component, *, patch: Value, skip: Value) -> Coordinates:
    """Return coordinates from 0. If a `patch` has one frame, the second of two is at `skip` − 1."""
    frames, rows, columns = map(range, component.shape)
    if len(frames) == 2 and list_of_length(component.read(patch), (3,), lambda _, n: same(n, 1))[0]:
        return (0, component.number(skip).value - 1), rows, columns
    return frames, rows, columns


def centred(component: Component, *, layered: Value | bool = False) -> Coordinates | None:
    """Return a range for each axis: frames from 0, n rows or columns from n // 2 − n; None if `layered` is true."""
    layers = component.read(layered)
    middle = [range(n // 2 - n, n // 2) for n in component.shape[1:]]
    return None if flag(layers.source, layers.value) else (range(component.shape[0]), *middle)


def fitted(component: Component, *, lengths: Value) -> Coordinates:
    """Return the coordinates of rows and columns: ``i · length // n`` for i of n; `lengths` has both lengths."""
    most = list_of_length(component.read(lengths), (2,))
    return [[i * length // n for i in range(n)] for n, length in zip(component.shape[1:], most, strict=True)]


def cropped(component: Component, *, patch: Value, sides: tuple[Value | int, Value | int]) -> Coordinates:
    """
    Return frames from 0; rows, columns spread over a middle part of the base grid, or from 0 for CogVideoX 1.5.

    `sides` are those of the base grid before patches are made, `patch` is the side of a patch.
    """
    frames, rows, columns = component.shape
    side = component.number(patch).value
    high, wide = (_count(f"{n.source} // patch_size", n.value // side) for n in map(component.number, sides))
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


# --- the row ----------------------------------------------------------------------------------------------

Split: TypeAlias = Callable[[int], tuple[int, ...]]


class Needed(NamedTuple):
    """A value with which alone the class has this rotation."""

    value: Value
    must_be: Any
    why: str  # the effect of any other value


class Class(NamedTuple):
    """The facts about one class of diffusers, by its ``_class_name``."""

    axes: Value | Split  # the number of features of each axis
    covers: str  # which tokens have the rotation, at which positions, and what the class does with the others
    # The head dimension, or width and number of heads; empty if the axes sum to it.
    head: tuple[Value, ...] = (value("attention_head_dim", default=128),)
    base: Value | float = 10_000.0
    pairing: Pairing = "interleaved"
    kind: Callable[[Component, int, float], Recipe] = runs  # how the frequencies are computed, from head and base
    width: Callable[[Component], Fact] = one_head  # the features over which they are computed, from `head`
    axis_counts: tuple[int, ...] = (3,)  # the possible numbers of axes
    layers: tuple[str, ...] = ("num_layers",)  # the keys whose sum is the number of layers
    divisors: tuple[Value, ...] = ()  # of the positions of each axis: one key for each, or one key of a list
    stretch: tuple[Value, ...] = ()  # the NTK-aware scaling factors of each axis: keys as in `divisors`
    grid: Callable[[Component], Coordinates | None] | None = None  # None if positions come from the caller
    image: bool = False  # whether a grid has one frame only; with two axes it always has
    needs: tuple[Needed, ...] = ()
    unread: tuple[str, ...] = ()  # keys about rotary embedding that change no angle of the tokens in `covers`
    # Rotations of other tokens, by their names in `config.parts`: "audio" is "transformer.audio".
    further: Mapping[str, "Class"] = {}

    def keys(self) -> set[str]:
        """Return all keys that the rotation depends on, and those in `unread`."""
        rules = [rule for rule in (self.kind, self.grid) if isinstance(rule, partial)]
        given = (self.axes, self.base, *self.head, *self.divisors, *self.stretch, *(need.value for need in self.needs))
        arguments = (argument for rule in rules for argument in rule.keywords.values())
        flat = (item for each in (*given, *arguments) for item in (each if type(each) is tuple else (each,)))
        return {*self.unread, *(key for each in flat if isinstance(each, Value) for key in each.keys)}
