"""
Read the configs of vision towers with rotary embedding: their frequencies, pairs and positions of patches.

`tables.towers` has the facts about the classes of transformers.
"""

from collections.abc import Mapping, Sequence
from itertools import product

from rope_any import axes
from rope_any._checks import MAX_FEATURES, NOTHING, ArgumentValueError, Text, choice, integer, positive
from rope_any._frequencies import Row, frequencies
from rope_any._rope import Rope
from rope_any.config._canonical import Layers, all_layers
from rope_any.config._load import LARGEST_HEAD, Fact, Values, agreed, checked, grid_shape, joined, require_names, typed
from rope_any.config._part import Part, unread
from rope_any.config._recipe import Recipe
from rope_any.config.tables.models import ALL, MODELS
from rope_any.config.tables.rows import UNKNOWN, Tower
from rope_any.config.tables.towers import REFUSED, TOWERS
from rope_any.config.tables.values import Check, Value

MOST_TOKENS = 2**20  # tokens of one grid
AXES = ("time", "row", "column")


# --- the recipe -------------------------------------------------------------------------------------------


def is_unrotated(model_type: str | None, /) -> bool:
    """Whether a model type is that of a vision or audio part without rotary embedding."""
    return model_type not in MODELS and not ALL.get(model_type or "", UNKNOWN).rotary


def canonical(part: Part, /) -> tuple[Layers, ...]:
    """Return a tower's layers as one group; without rotary, only `unrotated`. Raise for a refused type or key."""
    if is_unrotated(part.model_type):
        return (Layers(unrotated=f"{part.model_type} has no rotary embedding"),)
    require_names(part.keys)
    tower = _tower_facts(part)
    kind, base = _type_and_base(part, tower)
    given = {"rope_theta": _number_by_axis(part, tower.axis_bases) or base, "pairs": _number_by_axis(part, tower.pairs)}
    counts = [next(filter(None, map(part.get, tower.layers)), Fact(None, part.name(*tower.layers[:1])))]
    values = Values({"rope_type": kind, **{name: fact for name, fact in given.items() if fact}})
    values.put("head_dim", *_head_dim(part, tower))
    return (Layers(indices=all_layers(counts), values=values, counts=tuple(counts)),)


def recipe(part: Part, group: Layers, /) -> Recipe:
    """Return a tower's recipe from the group of `canonical`: a row for each axis. Raise if a size does not fit."""
    tower, given = _tower_facts(part), group.values.facts()
    head, base, pairs = given["head_dim"], given["rope_theta"], given.get("pairs")
    n, d = len(tower.axes), head.value
    multiple = 2 if tower.layout == "one row" else 2 * n
    if n == 2 and d % multiple:
        raise ArgumentValueError(head.source, f"give a head dimension that is a multiple of {multiple}", d)
    if not 2 * n <= d <= LARGEST_HEAD:
        raise ArgumentValueError(head.source, f"give a head dimension from {2 * n} to {LARGEST_HEAD}", d)
    if pairs and 2 * sum(pairs.value) > d:
        raise ArgumentValueError(pairs.source, f"sum to at most half of the head, {d // 2}", list(pairs.value))
    rows = _rows_by_axis(d, pairs.value, base.value) if pairs else _rows_by_layout(tower, d, base.value)
    source = part.name("model_type")
    by_model = f"{source} {part.model_type}"
    facts = {
        "model_type": Fact(part.model_type, source),
        "pairing": Fact(tower.pairing, f"{by_model}; {tower.note}" if tower.note else by_model),
        "rope_type": given["rope_type"],
        "head_dim": head,
        "rotary_dim": Fact(2 * len(rows[0]), head.source),
        "rope_theta": base,
        "attention_factor": Fact(1.0, part.default),
        "axes": Fact(n, f"{', '.join(tower.axes)} of {by_model}"),
    }
    if tower.blocks > 1:
        facts["blocks"] = Fact(tower.blocks, by_model)
    return Recipe(Rope(rows, pairing=tower.pairing, blocks=tower.blocks), facts)


def _number_by_axis(part: Part, sizes: tuple[Value, ...]) -> Fact | None:
    """Return a tuple with the number of each axis, as one Fact; None if `sizes` is empty: the class has no keys."""
    found = [_size(part, size, integer if type(size.default) is int else positive) for size in sizes]
    return joined(found) if found else None


def _rows_by_axis(head: int, pairs: Sequence[int], bases: Sequence[float]) -> tuple[Row, ...]:
    """Return a row of frequencies for each axis by its run of pairs and its base; 0 for other and left-over pairs."""
    rows = [frequencies(2 * n, base=base) for n, base in zip(pairs, bases, strict=True)]
    order = [axis for axis, ramp in enumerate(rows) for _ in ramp]
    rest = head // 2 - len(order)
    return axes.assigned((*(f for ramp in rows for f in ramp), *[0.0] * rest), [*order, *[0] * rest])


def _rows_by_layout(tower: Tower, head: int, base: float) -> tuple[Row, ...]:
    """Return a row of frequencies for each axis of a tower, by its layout and `base`; 0 for the pairs of other axes."""
    n = len(tower.axes)
    if tower.layout == "one row":
        return axes.alternating(frequencies(head, base=base), n)
    # f_i = base^(−2i/d), where d is the number of features of each axis
    row = tuple(tower.scale * f for f in frequencies(2 * (head // n // 2), base=base))
    order = [tower.axes.index(name) for name in tower.features or tower.axes]
    if tower.layout == "side by side":
        return axes.assigned(row * n, [axis for axis in order for _ in row])
    return axes.assigned(tuple(f for f in row for _ in order), order * len(row))


def _tower_facts(part: Part) -> Tower:
    """Return the facts about a tower by its model type; raise, with the reason, if it is unknown or refused."""
    kind = str(part.model_type)
    if kind not in TOWERS:
        wanted, hint = "be that of a supported tower", REFUSED.get(kind, NOTHING)
        raise ArgumentValueError(part.name("model_type"), wanted, part.model_type, hint)
    return TOWERS[kind]


def _type_and_base(part: Part, tower: Tower) -> tuple[Fact, Fact]:
    """Return the rope type and base. Raise for a rotary key that the class doesn't read, or if values differ."""
    wanted = f"not be given for {part.model_type}, whose class does not read it"
    known = {*tower.bases, *tower.objects, *tower.unread, *(k for s in tower.pairs + tower.axis_bases for k in s.keys)}
    for value, source in unread(part, known):
        if value is not True:  # use_rope: true is no contradiction
            raise ArgumentValueError(source, wanted)
    kind = Fact(tower.rope_type, part.default)
    bases = [fact for key in tower.bases if (fact := part.get(key))]
    for fact in (fact for name in tower.objects if (fact := part.get(name))):
        given = typed(fact.source, fact.value, Mapping, "be an object")
        for key, value in ((key, value) for key, value in given.items() if value is not None):
            inner = Fact(value, f"{fact.source}.{key}")
            if key == "rope_theta":
                bases.append(inner)
            elif key not in ("rope_type", "type"):
                raise ArgumentValueError(inner.source, wanted)
            else:  # "default" is accepted as another name of the type
                choice(inner.source, value, ("default", tower.rope_type), f"be {tower.rope_type!r} here")
                kind = Fact(tower.rope_type, inner.source)
    return kind, agreed(*(checked(fact, positive) for fact in bases)) or Fact(tower.base, part.default)


def _size(part: Part, size: Value, check: Check = integer) -> Fact:
    """Return a size; raise if it is out of range, if its keys differ, or by `check`."""
    found = size.read(part, check)
    if not 1 <= found.value <= MAX_FEATURES:
        raise ArgumentValueError(found.source, f"be from 1 to {MAX_FEATURES}", found.value)
    return found


def _head_dim(part: Part, tower: Tower) -> Fact:
    """Return the head dimension, by the class's key or as width / heads (/ `divisor`). Raise if it is contradicted."""
    if tower.head:
        return _size(part, tower.head)
    width, heads = _size(part, tower.width), _size(part, tower.heads)
    source, by = part.name(tower.width.keys[0]), part.name(tower.heads.keys[0])
    if "num_heads" not in tower.heads.keys:
        agreed(Fact(heads.value, by), part.get("num_heads"))
    count = heads.value * (_size(part, tower.divisor).value if tower.divisor else 1)
    if width.value % count:
        raise ArgumentValueError(source, f"be a multiple of the {count} heads", width.value)
    head, given = Fact(width.value // count, f"{source} / {by}"), part.get("head_dim")
    agreed(head, given and checked(given, integer))
    return head


def score(part: Part, group: Layers, /) -> Fact:
    """Return the factor by which a tower multiplies q·k before the softmax, with its formula as the source."""
    if not _tower_facts(part).scaled:
        return Fact(1.0, f"{part.model_type} does not scale q·k")
    head = group.values.fact("head_dim")
    return Fact(head.value**-0.5, f"1 / sqrt({head.source})")


# --- the positions of patches -----------------------------------------------------------------------------


def grid(part: Part, shape: tuple[int, ...], /) -> tuple[tuple[float, ...], ...] | None:
    """
    Return a position for each patch of an image or video, a number for each axis; None if callers give positions.

    `shape` is ``([frames,] rows, columns)`` in patches, before merging. Patches are in the order of queries and keys:
    row by row, by merged blocks, or by windows, without class and register tokens. Raise if the shape is not possible.
    """
    tower = _tower_facts(part)
    frames, rows, columns = grid_shape(shape, MOST_TOKENS)
    if frames > 1 and not tower.frames:
        wanted = f"be that of one image: {part.model_type} takes no videos"
        raise ArgumentValueError("shape", wanted, Text(f"{frames} frames"))
    if tower.callers:
        return None
    block = _size(part, tower.merge).value if tower.merge else 1
    if rows % block or columns % block:
        raise ArgumentValueError("shape", f"have multiples of {block} rows and columns for {part.model_type}", shape)
    window = _window_side(part, tower, tower.window, block) if tower.window else max(rows, columns)
    step = _position_step(part, tower, (rows, columns))

    def position_of(i: int, n: int) -> float:
        """Return the position, on its axis, of the i-th of n rows or columns of patches."""
        # the middle of patch i of n, between −1 and 1: (2i + 1)/n − 1
        return (2 * i + 1) / n - 1 if tower.centred else (i + tower.first) * step

    row_by_row = product(range(rows), range(columns))
    patches = sorted(row_by_row, key=lambda patch: [i // side for side in (window, block) for i in patch])
    chosen = [AXES.index(name) for name in tower.axes]
    positions = ((float(t), position_of(r, rows), position_of(c, columns)) for t in range(frames) for r, c in patches)
    return tuple(tuple(position[axis] for axis in chosen) for position in positions)


def _window_side(part: Part, tower: Tower, size: Value, block: int) -> int:
    """Return a window's side in patches; with `Tower.patch` from pixels, down to whole `block`s. Raise if it is 0."""
    side: int = _size(part, size).value
    if tower.patch:
        side = side // block // _size(part, tower.patch).value * block
    if not side:
        raise ArgumentValueError(part.name(size.keys[0]), "be at least one block of patches")
    return side


def _position_step(part: Part, tower: Tower, shape: tuple[int, int]) -> float:
    """Return the step of positions: 1, or `Tower.local` / columns. Raise for (rows, columns) the class doesn't take."""
    if not tower.image or not tower.patch:
        return 1.0
    sides = [_size(part, size).value for size in (tower.image, tower.local) if size]
    sides[0] //= _size(part, tower.patch).value
    known = [(side, side) for side in sides]
    if shape not in known:
        raise ArgumentValueError("shape", f"be {' or '.join(map(str, known))} for {part.model_type}", shape)
    return float(sides[1] / shape[1]) if tower.local else 1.0
