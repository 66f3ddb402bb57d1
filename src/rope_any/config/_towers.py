"""
Read the vision towers of transformers that have rotary embedding: their frequencies, pairs and positions of patches.

The facts stand in ``towers.toml``, an entry for each ``model_type`` that a tower's own config has.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, get_args

from rope_any import axes
from rope_any._checks import MAX_FEATURES, NOTHING, ArgumentValueError, Text, choice, integer, positive
from rope_any._frequencies import Row, frequencies
from rope_any._pairing import Pairing
from rope_any.config import _data
from rope_any.config._canonical import Layers, all_layers
from rope_any.config._load import LARGEST_HEAD, Fact, agreed, checked, grid_shape, joined, require_names, typed
from rope_any.config._models import ALL, MODELS
from rope_any.config._part import Part
from rope_any.config._recipe import Recipe

__all__ = ["PARTS", "REFUSED", "TOWERS", "UNROTATED", "Size", "Tower", "canonical", "grid", "recipe", "score"]

MOST_TOKENS = 2**20  # of one grid
AXES = ("time", "row", "column")
LAYOUTS = ("side by side", "in turn", "one ladder")  # the last: one row of frequencies for all axes, dealt out in turn


class Size(NamedTuple):
    """A size that a config may tell."""

    keys: tuple[str, ...]  # by which the class reads it, today's first
    default: float  # what the class assumes if the config has none of them; a base need not be whole


class Tower(NamedTuple):
    """Facts of one tower."""

    width: Size  # the features of all heads together
    heads: Size  # how many heads there are
    layers: tuple[str, ...] = ("num_hidden_layers", "depth")  # keys of the number of layers, the first that is given
    divisor: Size | None = None  # what the width is divided by, beside the number of heads
    head: Size | None = None  # the features of a head, if the class has a key for them; otherwise width / heads
    base: float = 10_000.0
    bases: tuple[str, ...] = ("rope_theta",)  # keys that hold the base outside of the parameters
    objects: tuple[str, ...] = ("rope_parameters", "rope_scaling")  # keys of the parameters that the class reads
    unread: tuple[str, ...] = ()  # keys that speak of rotary and change no frequency
    rope_type: str = "axial"
    pairing: Pairing = "half"
    note: str = ""  # what else is to be known of its pairs
    axes: tuple[str, ...] = ("row", "column")  # of its positions, in the order in which the class takes them: of `AXES`
    features: tuple[str, ...] = ()  # the axes in the order in which they have the pairs, if it is another one
    layout: str = "side by side"  # how the axes divide the pairs: one of `LAYOUTS`
    pairs: tuple[Size, ...] = ()  # how many pairs each axis has, if keys tell it; the last of the head are left over
    axis_bases: tuple[Size, ...] = ()  # the base of each axis, if they have their own
    blocks: int = 1  # as `Rope` has it
    scale: float = 1.0  # multiplies the frequencies
    first: int = 0  # the position of the first row and of the first column
    centred: bool = False  # whether positions are the middles of the patches, between −1 and 1
    frames: bool = False  # whether it takes videos, of which each frame has the positions of an image
    merge: Size | None = None  # the side of the blocks in which tokens come, in patches
    window: Size | None = None  # the side of the windows in which tokens come, in patches; in pixels if it has `patch`
    image: Size | None = None  # the side of the only images for which the class has positions, in pixels
    patch: Size | None = None  # the side of a patch, in pixels
    local: Size | None = None  # the side in patches of the windows of some layers, onto which others put their grid
    callers: bool = False  # whether the caller gives the positions, or what they depend on
    scaled: bool = True  # whether q·k is multiplied by 1 / sqrt(head_dim), and not by 1


_RULES = {"layout": LAYOUTS, "pairing": get_args(Pairing)}
TOWERS = _data.rows("towers.toml", "tower", Tower, Size, lambda: _RULES)
"""Towers with rotary embedding, by the ``model_type`` of their config."""

REFUSED: Mapping[str, str] = _data.Lazy(lambda: _data.content("towers.toml")["refused"])
"""Parts with something like rotary embedding that no `Rope` expresses, and why."""

UNROTATED = frozenset(name for name, model in ALL.items() if not model.rotary and name not in MODELS)
"""Vision and audio parts of which no class has rotary embedding."""

PARTS: Mapping[str, Mapping[str, str]] = {name: model.parts for name, model in ALL.items() if model.parts}
"""The towers of larger configs, by path: for files in which a tower has no ``model_type``, or that of the whole."""


# --- the recipe -------------------------------------------------------------------------------------------


def canonical(part: Part, /) -> tuple[Layers, ...]:
    """Return the layers of a tower, which are alike, as one group; raise if its model type or a key is not known."""
    if part.model_type in UNROTATED:
        return (Layers(unrotated=Fact(None, f"{part.model_type} has no rotary embedding")),)
    require_names(part.keys)
    tower = _tower(part)
    kind, base = _parameters(part, tower)
    given = {"rope_theta": _by_axis(part, tower.axis_bases) or base, "pairs": _by_axis(part, tower.pairs)}
    parameters = {"rope_type": kind, **{name: fact for name, fact in given.items() if fact}}
    count = next((n for key in tower.layers if (n := part.keys.get(key)) is not None), None)
    return (Layers(indices=all_layers([count]), parameters=parameters, sizes={"head_dim": _head(part, tower)}),)


def recipe(part: Part, layers: Layers, /) -> Recipe:
    """
    Return the recipe of a tower from its canonical form.

    Frequencies have a row for each axis of the positions; the source of ``facts["axes"]`` names the axes in order.
    ``facts["blocks"]``, if there, is the number of blocks of the `Rope`.
    """
    tower, n = _tower(part), len(_tower(part).axes)
    head, base, pairs = layers.sizes["head_dim"], layers.parameters["rope_theta"], layers.parameters.get("pairs")
    exact = 2 if tower.layout == "one ladder" else 2 * n
    if n == 2 and head.value % exact:
        raise ArgumentValueError(head.source, f"give heads of a multiple of {exact} features", head.value)
    if not 2 * n <= head.value <= LARGEST_HEAD:
        raise ArgumentValueError(head.source, f"give heads of {2 * n} to {LARGEST_HEAD} features", head.value)
    if pairs and 2 * sum(pairs.value) > head.value:
        raise ArgumentValueError(pairs.source, f"sum to at most half of the head, {head.value // 2}", list(pairs.value))
    rows = _listed(head.value, pairs.value, base.value) if pairs else _rows(tower, head.value, base.value)
    source = part.name("model_type")
    said = f"{source} {part.model_type}"
    facts = {
        "model_type": Fact(part.model_type, source),
        "pairing": Fact(tower.pairing, f"{said}; {tower.note}" if tower.note else said),
        "rope_type": layers.parameters["rope_type"],
        "head_dim": head,
        "rotary_dim": Fact(2 * len(rows[0]), head.source),
        "rope_theta": base,
        "attention_factor": Fact(1.0, part.default),
        "axes": Fact(n, f"{', '.join(tower.axes)} of {said}"),
    }
    if tower.blocks > 1:
        facts["blocks"] = Fact(tower.blocks, said)
    return Recipe(rows, tower.pairing, 1.0, 0, facts)


def _by_axis(part: Part, sizes: tuple[Size, ...]) -> Fact | None:
    """Return a number for each axis, or None if a tower has no keys for them."""
    found = [_size(part, size, integer if type(size.default) is int else positive) for size in sizes]
    return joined(found) if found else None


def _listed(head: int, pairs: Sequence[int], bases: Sequence[float]) -> tuple[Row, ...]:
    """Return the frequencies of axes with so many pairs and bases of their own; pairs that are left over rest."""
    ramps = [frequencies(2 * n, base=base) for n, base in zip(pairs, bases, strict=True)]
    order = [axis for axis, ramp in enumerate(ramps) for _ in ramp]
    rest = head // 2 - len(order)
    return axes.rows_by_axis((*(f for ramp in ramps for f in ramp), *[0.0] * rest), [*order, *[0] * rest])


def _rows(tower: Tower, head: int, base: float) -> tuple[Row, ...]:
    """Return the frequencies of a head: one row for each axis."""
    n = len(tower.axes)
    if tower.layout == "one ladder":
        return axes.alternating(frequencies(head, base=base), n)
    # f_i = base^(−2i/d), of the d features that each axis has
    ramp = tuple(tower.scale * f for f in frequencies(2 * (head // n // 2), base=base))
    order = [tower.axes.index(name) for name in tower.features or tower.axes]
    if tower.layout == "side by side":
        return axes.rows_by_axis(ramp * n, [axis for axis in order for _ in ramp])
    return axes.rows_by_axis(tuple(f for f in ramp for _ in order), order * len(ramp))


def _tower(part: Part) -> Tower:
    """Return the row of a tower; raise if there is none."""
    kind = str(part.model_type)
    if kind not in TOWERS:
        raise ArgumentValueError(
            part.name("model_type"), "be that of a supported tower", part.model_type, REFUSED.get(kind, NOTHING)
        )
    return TOWERS[kind]


_ROTARY = re.compile(r"(^|_)([mx]?rope|rotary|theta)")


def _parameters(part: Part, tower: Tower) -> tuple[Fact, Fact]:
    """Return the rope type and the base; raise if the config has a rotary key that the class does not read."""
    stray = f"not be given for {part.model_type}, whose class does not read it"
    known = {*tower.bases, *tower.objects, *tower.unread, *(k for s in tower.pairs + tower.axis_bases for k in s.keys)}
    for key in part.keys:
        unknown = part.get(key) if _ROTARY.search(key) and key not in known else None
        if unknown and not (key.startswith("use_") and unknown.value is True):  # that it is used is no news
            raise ArgumentValueError(unknown.source, stray)
    kind = Fact(tower.rope_type, part.default)
    bases = [fact for key in tower.bases if (fact := part.get(key))]
    for fact in (fact for name in tower.objects if (fact := part.get(name))):
        given = typed(fact.source, fact.value, Mapping, "be an object")
        for key, value in ((key, value) for key, value in given.items() if value is not None):
            inner = Fact(value, f"{fact.source}.{key}")
            if key == "rope_theta":
                bases.append(inner)
            elif key not in ("rope_type", "type"):
                raise ArgumentValueError(inner.source, stray)
            else:  # "default" is another name of it
                choice(inner.source, value, ("default", tower.rope_type), f"be {tower.rope_type!r} here")
                kind = Fact(tower.rope_type, inner.source)
    return kind, agreed(*(checked(fact, positive) for fact in bases)) or Fact(tower.base, part.default)


def _size(part: Part, size: Size, check: Callable[[str, Any], float] = integer) -> Fact:
    """Return a size by any of its keys, or the default of the class."""
    given = (checked(fact, check) for key in size.keys if (fact := part.get(key)))
    found = agreed(*given) or Fact(size.default, part.default)
    if not 1 <= found.value <= MAX_FEATURES:
        raise ArgumentValueError(found.source, f"be from 1 to {MAX_FEATURES}", found.value)
    return found


def _head(part: Part, tower: Tower) -> Fact:
    """Return how many features a head has, and where that is said."""
    if tower.head:
        return _size(part, tower.head)
    width, heads = _size(part, tower.width), _size(part, tower.heads)
    source, by = part.name(tower.width.keys[0]), part.name(tower.heads.keys[0])
    if "num_heads" not in tower.heads.keys:
        agreed(Fact(heads.value, by), part.get("num_heads"))
    count = heads.value * (_size(part, tower.divisor).value if tower.divisor else 1)
    if width.value % count:
        raise ArgumentValueError(source, f"be a multiple of the {count} heads", width.value)
    head, said = Fact(width.value // count, f"{source} / {by}"), part.get("head_dim")
    agreed(head, said and checked(said, integer))
    return head


def score(part: Part, layers: Layers, /) -> Fact:
    """Return what a tower multiplies q·k by before the softmax."""
    if not _tower(part).scaled:
        return Fact(1.0, f"{part.model_type} does not scale q·k")
    head = layers.sizes["head_dim"]
    return Fact(head.value**-0.5, f"1 / sqrt({head.source})")


# --- the positions of patches -----------------------------------------------------------------------------


def grid(part: Part, shape: tuple[int, ...], /) -> tuple[tuple[float, ...], ...] | None:
    """
    Return a position for each patch of one image or video, or None if the caller gives positions.

    `shape` is ``([frames,] rows, columns)`` in patches, before any are merged. A position has a number for each axis,
    as the recipe. Patches come in the order in which queries and keys of the layers have them: row by row, by blocks
    that are to be merged, or by windows (Qwen2.5-VL: inside a window by blocks). Class and register tokens are not
    among them.
    """
    tower = _tower(part)
    frames, rows, columns = grid_shape(shape, MOST_TOKENS)
    if frames > 1 and not tower.frames:
        wanted = f"be that of one image, which alone {part.model_type} takes"
        raise ArgumentValueError("shape", wanted, Text(f"{frames} frames"))
    if tower.callers:
        return None
    block = _size(part, tower.merge).value if tower.merge else 1
    if rows % block or columns % block:
        raise ArgumentValueError("shape", f"have multiples of {block} rows and columns for {part.model_type}", shape)
    window = _window(part, tower, tower.window, block) if tower.window else max(rows, columns)
    unit = _unit(part, tower, (rows, columns))

    def place(i: int, n: int) -> float:
        """Return the position of patch i of n along one axis of the grid, a row or a column."""
        # the middle of patch i of n, between −1 and 1: (2i + 1)/n − 1
        return (2 * i + 1) / n - 1 if tower.centred else (i + tower.first) * unit

    patches = sorted(
        product(range(rows), range(columns)), key=lambda patch: [i // side for side in (window, block) for i in patch]
    )
    chosen = [AXES.index(name) for name in tower.axes]
    every = ((float(t), place(r, rows), place(c, columns)) for t in range(frames) for r, c in patches)
    return tuple(tuple(position[axis] for axis in chosen) for position in every)


def _window(part: Part, tower: Tower, size: Size, block: int) -> int:
    """Return the side of a window in patches."""
    side: int = _size(part, size).value
    if tower.patch:
        side = side // block // _size(part, tower.patch).value * block
    if not side:
        raise ArgumentValueError(part.name(size.keys[0]), "be at least a block of patches")
    return side


def _unit(part: Part, tower: Tower, shape: tuple[int, int]) -> float:
    """Return how far apart patches stand; raise unless the grid is one for which the class has positions."""
    if not tower.image or not tower.patch:
        return 1.0
    sides = [_size(part, size).value for size in (tower.image, tower.local) if size]
    sides[0] //= _size(part, tower.patch).value
    known = [(side, side) for side in sides]
    if shape not in known:
        raise ArgumentValueError("shape", f"be {' or '.join(map(str, known))} for {part.model_type}", shape)
    return float(sides[1] / shape[1]) if tower.local else 1.0
