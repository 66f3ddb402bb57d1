"""
Read the rotations of parts whose tokens lie on a grid: towers of transformers, and transformers of diffusers.

A row of `tables.towers` or `tables.diffusers` names the keys that a class reads, and the functions of
`tables.grid_rules` that compute its frequencies and the positions of a grid. Functions here take the name of a rotation
of a class of diffusers, "" for the main one; None means a tower.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

from rope_any._checks import NOTHING, ArgumentValueError, Text, brief, choice, positive
from rope_any._frequencies import as_rows
from rope_any._names import did_you_mean, misspelt
from rope_any._rope import Rope
from rope_any.config._layers import Layers, all_layers
from rope_any.config._load import Fact, grid_shape, require_names, same, typed
from rope_any.config._part import Part
from rope_any.config._recipe import Recipe
from rope_any.config._rotary_keys import unread
from rope_any.config.tables import diffusers, towers
from rope_any.config.tables.grid_rules import Given, numbers
from rope_any.config.tables.models import ALL
from rope_any.config.tables.rows import GridModel
from rope_any.config.tables.values import optional

MOST_TOKENS = 2**22  # of one grid
_LINES = ("time", "row", "column", "index")  # the axes of tokens on a grid; all have index 0
_OF_GRIDS = "axes_|freqs_|^scale_factor$|^interpolation_scale_"  # other keys about rotary embedding
_TOLD = (
    *("model_type", "pairing", "rope_type", "head_dim", "rotary_dim", "start", "rope_theta", "divisors", "rope_scale"),
    *("frequency_scale", "factors", "attention_factor", "axes", "mrope_section", "blocks", "covers"),
)
"""The names of the values that are facts about a rotation."""


# --- which row --------------------------------------------------------------------------------------------


def is_diffusers(keys: Mapping[str, Any], /) -> bool:
    """Whether a config is that of a component of diffusers: it has ``_class_name``, and this is not null."""
    return keys.get("_class_name") is not None


def with_class(keys: Mapping[str, Any], /) -> Mapping[str, Any]:
    """Return a config with the ``_class_name`` that its other keys show, if it has none and no known model type."""
    if is_diffusers(keys) or str(keys.get("model_type")) in ALL:
        return keys
    name = next((name for name, own in diffusers.BY_KEYS.items() if own <= keys.keys()), None)
    return {"_class_name": name, **keys} if name else keys


def may_rotate(name: object, /) -> bool:
    """Whether a class may rotate: known to, refused, no string, or unknown with a name like that of a transformer."""
    if not isinstance(name, str) or name in diffusers.CLASSES or name in diffusers.REFUSED:
        return True  # if it is refused or no string, reading it raises
    return name not in diffusers.UNROTATED and any(part in name for part in ("Transformer", "ControlNet", "DiT"))


def rotations(name: object, /) -> list[str]:
    """Return the names of the rotations of a class of diffusers: "", and for a known class further ones as "audio"."""
    return ["", *(diffusers.CLASSES[name].further if isinstance(name, str) and name in diffusers.CLASSES else ())]


def _row(part: Part, rotation: str | None) -> GridModel:
    """Return the row of a tower, or of a rotation of a class; raise, with the reason, if it is unknown or refused."""
    require_names(part.keys)
    kind = str(part.model_type)
    if rotation is None and kind not in towers.TOWERS:
        hint = towers.REFUSED.get(kind, NOTHING)
        wanted = "be that of a supported tower" if hint is NOTHING else "be one whose rotation a config gives"
        raise ArgumentValueError(part.name("model_type"), wanted, kind, hint)
    if rotation is None:
        return towers.TOWERS[kind]
    source = part.name("_class_name")
    if (known := diffusers.CLASSES.get(typed(source, part.keys["_class_name"], str, "be a name"))) is None:
        raise ArgumentValueError(source, "be a class of diffusers whose rotation is known", kind, _class_hint(kind))
    return known.further[rotation] if rotation else known


def _class_hint(name: str) -> str:
    """Return the hint of the error for a class without a row: why it is refused, or what to give instead."""
    if why := diffusers.UNROTATED.get(name) or diffusers.REFUSED.get(name):
        return why
    if name.endswith("Pipeline"):
        return "give the folder of the pipeline, or the config.json of its transformer"
    near = did_you_mean(name, [*diffusers.CLASSES, *diffusers.REFUSED, *diffusers.UNROTATED], find=misspelt)
    if not near and not may_rotate(name):
        return "it is no transformer of diffusers"
    by_hand = "make the Rope of another class by hand: Rope(axes.axial(…), pairing=…)"
    return "; ".join(filter(None, (by_hand, near)))


# --- reading a config -------------------------------------------------------------------------------------


def _require_read(part: Part, row: GridModel) -> None:
    """Raise for a key about rotary that the class does not read, or a value with which it has another rotation."""
    for value, source in unread(part, {key.partition(".")[0] for key in row.known_keys()}, _OF_GRIDS):
        if not (value is True and source.rpartition(".")[2].startswith("use_")):  # use_rope: true is no contradiction
            raise _not_read(part, value, source)
    for needed, why, must_be in row.needs:
        given, source = needed.read(part)
        if not same(given, must_be):
            got = Text(f"{brief(given)} ({source})")
            raise ArgumentValueError(part.name(*needed.keys), f"be {must_be}: {why}", got)


def _not_read(part: Part, value: object, source: str) -> ArgumentValueError:
    """Return the error for a value that the class of a part does not read."""
    return ArgumentValueError(source, f"not be given for {part.model_type}, whose class does not read it", value)


def canonical(part: Part, rotation: str | None = None, /) -> tuple[Layers, ...]:
    """Return a part's layers as one group; without rotary, only `unrotated`. Raise for a refused class or key."""
    if rotation is not None and part.model_type in diffusers.UNROTATED:
        for value, source in unread(part, ()):
            wanted = f"not be given for {part.model_type} of diffusers, which has no rotary embedding"
            hint = "a class of another program with this name may rotate: only its code says how"
            raise ArgumentValueError(source, wanted, value, hint)
        return (Layers(unrotated=f"{part.model_type} has no rotary embedding"),)
    row = _row(part, rotation)
    _require_read(part, row)
    v, key = Given(part, row), "model_type" if rotation is None else "_class_name"
    by_model = f"{part.name(key)} {part.model_type}"
    v.put("model_type", part.model_type, part.name(key))
    v.put("pairing", row.pairing, f"{by_model}; {row.note}" if row.note else by_model)
    v.put("attention_factor", 1.0, part.default)
    v.put("axes", len(row.axes), f"{', '.join(row.axes)} of {by_model}")
    _read_parameters(v, part)
    v.put("head_dim", *row.width(v))
    names = [keys.split() for keys in row.layers]
    counts = tuple(next(filter(None, map(part.get, keys)), Fact(None, part.name(keys[0]))) for keys in names)
    return (Layers(indices=all_layers(counts), values=v, counts=counts),)


def _read_parameters(v: Given, part: Part) -> None:
    """Set the base and rope type. Raise if they are wrong, or for a key of a parameter object that the class lacks."""
    row: GridModel = v.row
    known = row.known_keys()
    objects = dict.fromkeys(key.partition(".")[0] for key in known if "." in key)

    def kind(name: str, given: object) -> str:
        """Return today's name of the rope type; raise unless one of its names is given."""
        choice(name, given, row.types, f"be {row.types[-1]!r} here")
        return row.types[-1]

    if row.types:
        types = [f"{name}.{key}" for name in objects for key in ("rope_type", "type")]
        v.read("rope_type", optional(*types, default=row.types[-1]), kind)
        known += types
    for name in objects:
        for key, value in (part.keys.get(name) or {}).items():
            if value is not None and f"{name}.{key}" not in known:
                raise _not_read(part, value, part.name(name, str(key)))
    v.read("rope_theta", row.base, positive)


def recipe(part: Part, group: Layers, length: int | None = None, rotation: str | None = None, /) -> Recipe:
    """Return the recipe of the group of `canonical`; `length` (None: as trained) is for OmniGen. Raise if unfit."""
    row = _row(part, rotation)
    v = Given(part, row, length)
    v.take(group.values)
    made = row.frequencies(v)
    if row.columns_first:
        made = as_rows(made)[::-1]
    if "rotary_dim" not in v:
        v.put("rotary_dim", 2 * len(as_rows(made)[0]), v.sources["head_dim"])
    if row.blocks > 1:
        v.put("blocks", row.blocks, v.sources["pairing"])
    if row.covers:
        v.put("covers", row.covers, part.default)
    given = {name: v[name] for name in ("pairing", "attention_factor", "start", "blocks") if name in v}
    return Recipe(Rope(made, **given), v.facts(*_TOLD))


def score(part: Part, group: Layers, /) -> Fact:
    """Return the factor by which a tower multiplies q·k before the softmax, with its formula as the source."""
    if not _row(part, None).scaled:
        return Fact(1.0, f"{part.model_type} does not scale q·k")
    head = group.values.fact("head_dim")
    return Fact(head.value**-0.5, f"1 / sqrt({head.source})")


# --- the positions of a grid ------------------------------------------------------------------------------


def grid(part: Part, rotation: str | None, shape: tuple[int, ...], /) -> tuple[tuple[float, ...], ...] | None:
    """
    Return the position of each token of a grid, a number for each axis; None if the caller gives positions.

    `shape` is ``([frames,] rows, columns)`` in tokens: in patches before any are merged. Tokens are in the order of
    queries and keys, such as row by row, without class and register tokens. Raise if the class can't have the shape.
    """
    row = _row(part, rotation)
    _require_read(part, row)
    frames, rows, columns = sizes = grid_shape(shape, MOST_TOKENS)
    if row.grid is None:
        return None
    v = Given(part, row)
    axes = row.axes[-len(v.read("sizes", row.sizes, numbers(row.counts))) :] if row.may_lack_time else row.axes
    if frames > 1 and not ("time" in axes if row.frames is None else row.frames):
        wanted = f"be that of one image: {part.model_type} takes no videos"
        raise ArgumentValueError("shape", wanted, Text(f"{frames} frames"))
    sides = row.order(v) if row.order else ()
    if any(n % side for side in sides[-1:] for n in (rows, columns)):
        wanted = f"have multiples of {sides[-1]} rows and columns for {part.model_type}"
        raise ArgumentValueError("shape", wanted, shape)
    lines = row.grid(v, sizes)
    if lines is None:
        return None
    row_by_row = product(range(rows), range(columns))
    places = sorted(row_by_row, key=lambda place: [i // side for side in sides for i in place])
    chosen = [_LINES.index(axis) for axis in axes]
    tokens = ((frame, *place, 0) for frame in range(frames) for place in places)
    lines = (*lines, (0,))
    return tuple(tuple(lines[axis][token[axis]] for axis in chosen) for token in tokens)
