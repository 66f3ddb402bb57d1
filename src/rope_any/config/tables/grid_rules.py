"""
Functions that the rows of models on grids name: towers of patches, and transformers of diffusers.

A row names two: one computes the frequencies of each axis, one the coordinates of the frames, rows and columns of a
grid. Both get what the config says, as `Given`. A row gives their keyword arguments by `functools.partial`; of those
that are `Value`s, they read the value in the config.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from rope_any import axes, scaling
from rope_any._checks import MAX_FEATURES, ArgumentValueError, choice, flag, integer, positive
from rope_any._frequencies import Frequencies, Row, frequencies
from rope_any._positions import Coordinates
from rope_any.config._load import LARGEST_HEAD, Fact, Values, agreed, checked, joined, same, typed
from rope_any.config.tables.values import Check, Part, Value, between

Shape: TypeAlias = tuple[int, ...]
"""The numbers of frames, rows and columns of a grid."""
Sides: TypeAlias = tuple[int, ...]
"""The sides of squares of tokens, the largest first: tokens are ordered by the squares that they are in."""
Split: TypeAlias = Callable[[int], tuple[int, ...]]
"""How a head is divided: the number of features of each axis."""
count = between(1, MAX_FEATURES)  # of features or tokens


class Given(Values):
    """What a config gives for the functions of a row, by name, and what they derive from it."""

    def __init__(self, part: Part, row: Any, length: int | None = None) -> None:
        """Take a part without values, its `GridModel`, and the length of the sequence, if the caller gives one."""
        super().__init__()
        self.part, self.row, self.length = part, row, length

    def read(self, name: str, given: object, check: Check = count) -> Any:
        """Set a value to what the config gives for a `Value`, or to any other object. Return it; raise by `check`."""
        fact = given.read(self.part, check) if isinstance(given, Value) else Fact(given, self.part.default)
        self.put(name, *fact)
        return self.check(name, check)


def numbers(lengths: tuple[int, ...], check: Check = count) -> Check:
    """Return the check that a value is a list with one of `lengths` and that `check` takes its items; it makes it."""

    def checked_list(name: str, given: object) -> list[Any]:
        """Return a list of checked items; raise if it is none, or has another length."""
        items = typed(name, given, (list, tuple), "be a list")
        if len(items) not in lengths:
            raise ArgumentValueError(name, f"have {' or '.join(map(str, lengths))} items", len(items))
        return [check(name, item) for item in items]

    return checked_list


# --- the width of the head --------------------------------------------------------------------------------


def one_head(v: Given) -> Fact:
    """Return the head dimension: by its key, as the sum of the axes, or as width / heads (/ a divisor)."""
    if not v.row.head:
        sizes = v.read("sizes", v.row.sizes, numbers(v.row.counts))
        return Fact(sum(sizes), f"sum of {v.sources['sizes']}")
    names = [each.keys[0] for each in v.row.head]
    width, *divisors = map(v.read, names, v.row.head)
    heads = math.prod(divisors)
    if not divisors:
        return v.fact(names[0])
    if width % heads:
        raise ArgumentValueError(v.part.name(names[0]), f"be a multiple of the {heads} heads", width)
    found = Fact(width // heads, f"{v.sources[names[0]]} // {v.sources[names[1]]}")
    for key, fact in {"head_dim": found, "num_heads": v.fact(names[1])}.items():  # other names of what is read
        if key not in v.row.head[1].keys and (given := v.part.get(key)):
            agreed(fact, checked(given, integer))
    return found


def all_heads(v: Given) -> Fact:
    """Return the width of all heads together: the product of both keys."""
    heads, width = (v.read(each.keys[0], each) for each in v.row.head)
    source = " · ".join(v.sources[each.keys[0]] for each in v.row.head)
    return Fact(count(source, heads * width), source)


def first_list(v: Given) -> Fact:
    """Return the sum of the first list of three numbers that the config gives, else of the last key's default."""
    given = (each for each in v.row.head if each.find(v.part))
    sizes = v.read("sizes", next(given, v.row.head[-1]), numbers((3,)))
    return Fact(sum(sizes), f"sum of {v.sources['sizes']}")


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


# --- frequencies of towers: the same for each axis --------------------------------------------------------


def _require_head(v: Given, multiple: int) -> None:
    """Raise unless the head has a pair for each axis, is not too large and, for two axes, is such a multiple."""
    source, d, least = v.sources["head_dim"], v["head_dim"], 2 * len(v.row.axes)
    if len(v.row.axes) == 2 and d % multiple:
        raise ArgumentValueError(source, f"give a head dimension that is a multiple of {multiple}", d)
    if not least <= d <= LARGEST_HEAD:
        raise ArgumentValueError(source, f"give a head dimension from {least} to {LARGEST_HEAD}", d)


def _of_each_axis(v: Given) -> Row:
    """Return the frequencies that each axis of a tower has; raise if the head does not fit."""
    n = len(v.row.axes)
    _require_head(v, 2 * n)
    # f_i = base^(−2i/d), where d is the number of features of each axis
    return tuple(v.row.scale * f for f in frequencies(2 * (v["head_dim"] // n // 2), base=v["rope_theta"]))


def side_by_side(v: Given) -> Frequencies:
    """Return the frequencies of axes whose pairs are one run after the other; the last of the head may be left out."""
    return axes.axial(*[_of_each_axis(v)] * len(v.row.axes))


def in_turn(v: Given) -> Frequencies:
    """Return the frequencies of axes that take the pairs in turn, each with all its frequencies."""
    row, n = _of_each_axis(v), len(v.row.axes)
    return axes.assigned(tuple(f for f in row for _ in range(n)), [*range(n)] * len(row))


def shared(v: Given) -> Frequencies:
    """Return the frequencies of axes that take those of the whole head in turn."""
    _require_head(v, 2)
    return axes.alternating(frequencies(v["head_dim"], base=v["rope_theta"]), len(v.row.axes))


def by_pairs(v: Given, *, pairs: tuple[Value, ...], bases: tuple[Value, ...]) -> Frequencies:
    """Return the frequencies of axes with their own numbers of pairs and bases; the last of the head don't rotate."""
    _require_head(v, 2)
    runs, base_of, whole_head = _by_axis(v, "pairs", pairs, count), _by_axis(v, "rope_theta", bases), v["head_dim"] // 2
    if sum(runs) > whole_head:
        raise ArgumentValueError(v.sources["pairs"], f"sum to at most half of the head, {whole_head}", list(runs))
    rows = axes.axial(*(frequencies(2 * n, base=base) for n, base in zip(runs, base_of, strict=True)))
    return tuple((*row, *[0.0] * (whole_head - sum(runs))) for row in rows)


def _by_axis(v: Given, name: str, given: tuple[Value, ...], check: Check = positive) -> tuple[Any, ...]:
    """Set and return a number for each axis, from a key for each or from one key of a list; raise by `check`."""
    if len(given) == 1:
        v[name] = tuple(v.read(name, given[0], numbers((len(v["axes"]),), check)))
    else:
        v.put(name, *joined([checked(each.read(v.part), check) for each in given]))
    return tuple(v[name])


# --- frequencies of diffusers: from the sizes of the axes -------------------------------------------------


def _axis_sizes(v: Given) -> tuple[int, ...]:
    """Set each axis's number of features, all even. Raise unless they sum to the head; one axis may have less."""
    given, dim = v.row.sizes, v["head_dim"]
    sizes = v.read("axes", given, lambda _, found: found)
    if callable(sizes):
        v.put("axes", sizes(dim), f"head_dim {dim}, divided as {v.part.model_type} does")
    elif v.row.counts == (1,):
        v["axes"] = (sizes,)
    sizes = tuple(v.check("axes", numbers(v.row.counts, integer)))
    name = v.part.name(*given.keys) if isinstance(given, Value) else v.sources["axes"]
    if any(size % 2 for size in sizes) or sizes[-1] < 2:
        raise ArgumentValueError(name, "give each axis an even number of features, 2 at least", list(sizes))
    if sum(sizes) > dim or (sum(sizes) < dim and len(sizes) > 1):
        raise ArgumentValueError(name, f"sum to the head dimension, {dim}", list(sizes))
    v["axes"] = sizes
    v.put("rotary_dim", sum(sizes), v.sources["axes"])
    return sizes


def runs(v: Given, *, divisors: tuple[Value, ...] = (), stretch: tuple[Value, ...] = ()) -> Frequencies:
    """
    Return the frequencies of axes with a run of pairs each.

    `divisors` are of the positions of each axis, `stretch` are factors of NTK-aware scaling, which change its base: one
    key for each axis, or one key of a list.
    """
    sizes = _axis_sizes(v)
    ones = (1.0,) * len(sizes)
    divided = _by_axis(v, "divisors", divisors) if divisors else ones
    factors = _by_axis(v, "rope_scale", stretch) if stretch else ones
    if stretch and min(sizes) < 4:
        raise ArgumentValueError(v.sources["axes"], "give each axis at least 4 features", list(sizes))
    # bₐ = b · sₐ^(d / (d − 2))
    stretched = [v["rope_theta"] * s ** (d / max(d - 2, 1)) for s, d in zip(factors, sizes, strict=True)]
    bases = [positive(v.sources.get("rope_scale", v.sources["axes"]), base) for base in stretched]
    given = zip(sizes, bases, divided, strict=True)
    rows = [scaling.linear(frequencies(d, base=b), s) if d else () for d, b, s in given]
    order = [axis for axis, row in enumerate(rows) for _ in row]
    return axes.assigned(sum(rows, ()), order) if len(rows) > 1 else rows[0]


def equal_runs(v: Given) -> Frequencies:
    """Return the frequencies of axes with equal runs of pairs; the rest doesn't rotate. Raise if the head is small."""
    pairs, n = v.read("pairs", v.row.sizes), len(v.row.axes)
    if 2 * n * pairs > v["head_dim"]:
        wanted = f"be at most a sixth of the head dimension, {v['head_dim']}"
        raise ArgumentValueError(v.sources["pairs"], wanted, pairs)
    v.put("rotary_dim", 2 * n * pairs, f"{2 * n} · {v.sources['pairs']}")
    return axes.axial(*[frequencies(2 * pairs, base=v["rope_theta"])] * n)


def strided(v: Given) -> Frequencies:
    """Return the frequencies of axes that take pairs in turn; the first gets the rest. Raise if a section is large."""
    dim, sections = v["head_dim"], v.read("mrope_section", v.row.sizes, numbers(v.row.counts))
    # axis a has pairs a, a + n, …, below n · section
    last = max((section - 1) * len(sections) + a for a, section in enumerate(sections) if a)
    if dim % 2 or last >= dim // 2:
        wanted = f"be sections that fit into the head dimension, {dim}, which must be even"
        raise ArgumentValueError(v.sources["mrope_section"], wanted, sections)
    v["mrope_section"] = tuple(sections)
    return axes.assigned(frequencies(dim, base=v["rope_theta"]), axes.strided_axes(dim // 2, sections))


def over_all_heads(v: Given, *, layout: Value | str = "interleaved", across: Value | None = None) -> Frequencies:
    """
    Return those of LTX: they rise over the pairs of all heads, which axes take in turn; `layout` sets the pairing.

    `across`, another width of queries and keys, must equal that of all heads.
    """
    heads, each = (given.keys[0] for given in v.row.head)
    n, dim, width = len(v.row.axes), v["head_dim"], f"{heads} · {each}"
    of_axis = dim // (2 * n)
    if dim % 2 or not of_axis:
        raise ArgumentValueError(width, f"be even and at least {2 * n}", dim)
    if across:
        agreed(Fact(dim, width), checked(across.read(v.part), count))
    kind = v.read("rope_type", layout, _layout)
    # pair k·i + a, for axis a of k: f = base^(i / (n − 1)) · π / 2; the first pairs, `rest`, are not rotated
    total = n * of_axis
    rest = dim // 2 - total
    row = tuple(v["rope_theta"] ** (i // n / max(of_axis - 1, 1)) * math.pi / 2 for i in range(total))
    axis_of = axes.strided_axes(total, [of_axis] * n)
    v.put("rotary_dim", 2 * total, v.part.default)
    if kind == "interleaved":
        v.put("start", 2 * rest, v.part.default)
        return axes.assigned(row, axis_of) if n > 1 else row
    v.put("blocks", *v.fact(heads))  # each head is paired on its own
    if dim // v[heads] % 2:
        raise ArgumentValueError(each, "be even", dim // v[heads])
    v.put("pairing", "half", v.sources["rope_type"])  # within a head
    return axes.assigned((0.0,) * rest + row, [0] * rest + axis_of) if n > 1 else row


def _layout(name: str, given: object) -> str:
    """Return the name of a layout of LTX; raise if it is another one."""
    return choice(name, given, ("interleaved", "split"), "be interleaved or split")


def _of_head(v: Given) -> Row:
    """Return the frequencies of all pairs of a head, ``base^(−2i/d)``; raise unless its size `d` is even."""
    if v["head_dim"] % 2:
        raise ArgumentValueError("the head dimension", "be even", v["head_dim"])
    return frequencies(v["head_dim"], base=v["rope_theta"])


def sequence(v: Given, *, scale: Value | float = 1.0) -> Frequencies:
    """Return the frequencies of Kandinsky's text or audio: one axis; `scale` multiplies them."""
    factor = v.read("frequency_scale", scale, positive)
    if factor == 1:
        v.pop("frequency_scale")
    return tuple(factor * f for f in _of_head(v))


def longrope(v: Given, *, short: Value, long: Value, longest: Value, original: Value) -> Frequencies:
    """Return those of OmniGen, LongRoPE: by the factors `long` above the trained length, else by `short`."""
    row = _of_head(v)
    check = numbers((len(row),), positive)
    lists = {"short_factor": v.read("short", short, check), "long_factor": v.read("long", long, check)}
    trained, extended = v.read("trained", original, between(2, MAX_FEATURES)), v.read("extended", longest)
    length = trained if v.length is None else integer("sequence_length", v.length)
    used = "long" if length > trained else "short"
    factor = scaling.longrope_attention_factor(extended / trained, original_length=trained)
    v.put("factors", f"{used}_factor", v.sources[used])
    v.put("attention_factor", factor, f"{v.sources['extended']}, {v.sources['trained']}")
    return scaling.longrope(row, **lists, original_length=trained, length=length)


# --- grids: the coordinates of frames, rows and columns ---------------------------------------------------


def from_zero(_: Given, shape: Shape, *, first: int = 0) -> Coordinates:
    """Return the coordinates 0, 1, 2, …; those of rows and columns from `first`."""
    frames, *sides = shape
    return range(frames), *(range(first, first + n) for n in sides)


def middles(_: Given, shape: Shape) -> Coordinates:
    """Return the middles of rows and columns between −1 and 1; frames from 0."""
    # the middle of patch i of n: (2i + 1)/n − 1
    return range(shape[0]), *([(2 * i + 1) / n - 1 for i in range(n)] for n in shape[1:])


def on_image(
    v: Given, shape: Shape, *, image: Value, patch: Value, local: Value | None = None, first: int = 0
) -> Coordinates:
    """
    Return coordinates from `first` for square images with sides of `image` pixels; raise for other ones.

    Windows of `local` patches have the coordinates of their own grid, onto which that of the image is put.
    """
    sides = [v.read("image", image) // v.read("patch", patch)]
    sides += [v.read("local", local)] if local else []
    frames, rows, columns = shape
    if rows != columns or rows not in sides:
        known = " or ".join(f"({side}, {side})" for side in sides)
        raise ArgumentValueError("shape", f"be {known} for {v.part.model_type}", (rows, columns))
    line = [(i + first) * sides[-1] / rows for i in range(rows)]
    return range(frames), line, line


def skipping_frames(v: Given, shape: Shape, *, patch: Value, skip: Value) -> Coordinates:
    """Return coordinates from 0. If a `patch` has one frame, the second of two is at `skip` − 1."""
    frames, rows, columns = map(range, shape)
    if len(frames) == 2 and v.read("patch", patch, numbers((3,), lambda _, n: same(n, 1)))[0]:
        return (0, v.read("skip", skip) - 1), rows, columns
    return frames, rows, columns


def centred(v: Given, shape: Shape, *, layered: Value | bool = False) -> Coordinates | None:
    """Return a range for each axis: frames from 0, n rows or columns from n // 2 − n; None if `layered` is true."""
    if v.read("layered", layered, flag):
        return None
    return range(shape[0]), *(range(n // 2 - n, n // 2) for n in shape[1:])


def fitted(v: Given, shape: Shape, *, lengths: Value) -> Coordinates:
    """Return frames from 0; for rows and columns ``i · length // n`` for i of n; `lengths` has both lengths."""
    longest = v.read("lengths", lengths, numbers((2,)))
    return range(shape[0]), *([i * most // n for i in range(n)] for n, most in zip(shape[1:], longest, strict=True))


def cropped(v: Given, shape: Shape, *, patch: Value, sides: tuple[Value | int, Value | int]) -> Coordinates:
    """
    Return frames from 0; rows, columns spread over a middle part of the base grid, or from 0 for CogVideoX 1.5.

    `sides` are those of the base grid before patches are made, `patch` is the side of a patch.
    """
    frames, rows, columns = shape
    side, names = v.read("patch", patch), ("height", "width")
    high, wide = (
        count(f"{v.sources[name]} // patch_size", n // side)
        for name, n in zip(names, map(v.read, names, sides), strict=True)
    )
    if v.part.get("patch_size_t"):  # CogVideoX 1.5 takes the first rows and columns of the base grid
        if rows > high or columns > wide:
            raise ArgumentValueError("shape", f"be at most {high} rows and {wide} columns", (rows, columns))
        return from_zero(v, shape)
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


# --- the order of the tokens of a grid, if it is not row by row -------------------------------------------


def in_blocks(v: Given, *, merge: Value | int = 1, window: Value | None = None, patch: Value | None = None) -> Sides:
    """
    Return the sides of windows, if any, and of the blocks in them that are merged, by which patches are ordered.

    Windows are in patches; with `patch`, the side of a patch, in pixels, of which they take as many whole blocks as
    they hold. Raise if they hold none.
    """
    block = v.read("merge", merge)
    if window is None:
        return (block,)
    side = v.read("window", window)
    if patch:
        side = side // block // v.read("patch", patch) * block
    if not side:
        raise ArgumentValueError(v.part.name(window.keys[0]), "be at least one block of patches")
    return (side, block)
