"""
List the vision towers of transformers that have rotary embedding: their frequencies, pairs and positions of patches.

A row for each ``model_type`` that a tower's own config has. The positions of a tower have several axes, in the order in
which its class takes them. Audio parts whose positions have one axis are rows of `_models`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

from rope_any import axes
from rope_any._checks import integer, positive, shown
from rope_any._frequencies import Row, frequencies
from rope_any._pairing import Pairing
from rope_any.config._load import Fact, fail
from rope_any.config._models import ALL, MODELS
from rope_any.config._part import Part
from rope_any.config._recipe import Recipe

__all__ = ["PARTS", "REFUSED", "TOWERS", "UNROTATED", "Tower", "grid", "recipe"]

LARGEST_WIDTH = 2**20  # features of all heads together
LARGEST_HEAD = 2**12  # features of one
MOST_TOKENS = 2**20  # of one grid
AXES = ("time", "row", "column")


class Tower(NamedTuple):
    """Facts of one tower."""

    sizes: Mapping[str, Any]
    """The keys of sizes that its class reads, and what it assumes if they are missing."""
    width: tuple[str, ...] = ("hidden_size",)
    """The keys of the width of all heads together."""
    heads: tuple[str, ...] = ("num_attention_heads",)
    """The keys by which it reads the number of heads."""
    divisor: str = ""
    """A key whose value divides the width."""
    own_head: bool = False
    """Whether its attention reads ``head_dim``; in the others it is the width by the heads."""
    base: float = 10_000.0
    bases: tuple[str, ...] = ("rope_theta",)
    """Keys that hold the base outside of the parameters."""
    objects: tuple[str, ...] = ("rope_parameters", "rope_scaling")
    """Keys of the parameters that it reads."""
    unread: tuple[str, ...] = ()
    """Keys that speak of rotary and change no frequency."""
    rope_type: str = "axial"
    pairing: Pairing = "half"
    note: str = ""
    """What else is to be known of its pairs."""
    axes: tuple[str, ...] = ("row", "column")
    """The axes of its positions, in the order in which its class takes them."""
    features: tuple[str, ...] = ()
    """The axes in the order in which they have the pairs, if it is another one."""
    layout: str = "side by side"
    """How the axes divide the pairs: "side by side", "in turn", or "one ladder" of frequencies for all axes."""
    blocks: int = 1
    """As `Rope` has it."""
    scale: float = 1.0
    """Multiplies the frequencies."""
    first: int = 0
    """The position of the first row and of the first column."""
    centred: bool = False
    """Whether positions are the middles of the patches, between −1 and 1."""
    frames: bool = False
    """Whether it takes videos, of which each frame has the positions of an image."""
    merge: tuple[str, ...] = ()
    """The keys of the side of the blocks in which tokens come, in patches."""
    window: str = ""
    """The key of the side of the windows in which tokens come: in patches, or as ``window_size`` in pixels."""
    fixed: tuple[str, ...] = ()
    """The keys of the sides of the only grids for which its class has positions."""
    callers: bool = False
    """Whether the caller gives the positions, or what they depend on."""


def _sizes(**sizes: Any) -> Mapping[str, Any]:
    return MappingProxyType(sizes)


def _merging(width: int, heads: int, /, **row: Any) -> Tower:
    """Return the row of a tower as that of Qwen2-VL: a ramp for rows, another for columns, tokens in square blocks."""
    sizes = {"width": width, "heads": heads, "spatial_merge_size": 2, **row.pop("sizes", {})}
    usual = {"heads": ("num_heads", "num_attention_heads"), "merge": ("spatial_merge_size",), "frames": True}
    return Tower(MappingProxyType(sizes), **{**usual, **row})


_WINDOWS: Mapping[str, Any] = {"window": "window_size", "sizes": {"window_size": 112, "patch_size": 14}}
_MUSE = Tower(
    _sizes(width=1536, heads=16, pos_emb_height=32),
    axes=("column", "row"),
    first=1,
    frames=True,
    window="pos_emb_height",
)
_DINO = Tower(_sizes(width=1024, heads=16), base=100.0, objects=(), scale=2 * math.pi, centred=True)
_ONE: tuple[str, ...] = ("num_attention_heads",)
_STORED = "stored interleaved in published files, and permuted as transformers loads them"


# Of the memory attention of a video segmenter, whose config is the whole model's.
_MEMORY = Tower(
    _sizes(width=256, heads=1, memory_attention_downsample_rate=1),
    width=("memory_attention_hidden_size",),
    heads=("memory_attention_num_attention_heads",),
    divisor="memory_attention_downsample_rate",
    bases=("rope_theta", "memory_attention_rope_theta"),
    unread=("memory_attention_rope_feat_sizes", "memory_attention_rope_k_sizes", "memory_attention_rope_dropout"),
    pairing="interleaved",
    note="keys repeat the grid for each frame that is remembered, and those of object pointers have no position",
    axes=("column", "row"),
)


TOWERS: Mapping[str, Tower] = {
    # f_i = base^(−4i/d), i < d/4, for rows and for columns
    "qwen2_vl_vision": _merging(1280, 16, width=("embed_dim",)),
    "qwen2_5_vl_vision": _merging(3584, 16, **_WINDOWS),
    "qwen2_5_omni_vision_encoder": _merging(3584, 16, **_WINDOWS),
    "exaone4_5_vision": _merging(3584, 16, **_WINDOWS),
    "qwen3_vl_vision": _merging(1152, 16),
    "qwen3_vl_moe_vision": _merging(1152, 16),
    "qwen3_5_vision": _merging(1152, 16),
    "qwen3_5_moe_vision": _merging(1152, 16),
    "qwen3_omni_moe_vision_encoder": _merging(1152, 16),
    "qwen4_exp_vision": _merging(1152, 16),
    "cohere_compass_vision": _merging(1152, 16),
    "glm4v_vision": _merging(1536, 12, frames=False),
    "glm4v_moe_vision": _merging(1536, 12, frames=False),
    "glm_ocr_vision": _merging(1024, 16),
    "glm5_next_vision": _merging(1024, 16),
    "ernie4_5_vl_moe_vision": _merging(1280, 16),
    "dots3_note_vision_encoder": _merging(
        1536, 24, width=("hidden_size", "embed_dim"), heads=("num_attention_heads", "num_heads")
    ),
    "lfm3_vl_vision": _merging(1024, 16, heads=_ONE, base=1_000_000.0),
    "paddleocr_vl_vision": Tower(_sizes(width=1152, heads=16), frames=True),
    "video_llama_3_vision": Tower(_sizes(width=768, heads=12), frames=True, callers=True),
    # the same, but another order of axes or pairs, or other positions
    "kimi_k25_vision": Tower(
        _sizes(width=1152, heads=16),
        note=_STORED,
        features=("column", "row"),
        layout="in turn",
        frames=True,
    ),
    "step3p5_vision": Tower(
        _sizes(width=1536, heads=16),
        width=("hidden_size", "width"),
        heads=("num_attention_heads", "heads"),
        note=_STORED,
        features=("column", "row"),
    ),
    "inkling2_vision": _merging(
        1024,
        16,
        heads=_ONE,
        merge=("spatial_merge_size", "adapter_merge_size"),
        pairing="interleaved",
        features=("column", "row"),
        first=1,
    ),
    "muse_glimmer_vision": _MUSE,
    "muse_spark_vision": _MUSE,
    "minimax_m3_vl_vision": _merging(1280, 16, heads=_ONE, axes=AXES),
    "gemma4_vision": Tower(
        _sizes(width=768, heads=12, head_dim=64),
        own_head=True,
        base=100.0,
        axes=("column", "row"),
        blocks=2,
    ),
    "pixtral": Tower(_sizes(width=1024, heads=16), layout="one ladder"),
    "sam3_vit_model": Tower(
        _sizes(width=1024, heads=16, image_size=1008, patch_size=14, window_size=24),
        pairing="interleaved",
        axes=("column", "row"),
        fixed=("image_size", "window_size"),
    ),
    "llama4_vision_model": Tower(
        _sizes(width=768, heads=16, image_size=448, patch_size=14),
        rope_type="default",
        pairing="interleaved",
        axes=("column", "row"),
        first=1,
        fixed=("image_size",),
    ),
    "dinov3_vit": _DINO._replace(sizes=_sizes(width=384, heads=6)),
    "sapiens2": _DINO,
    "eomt_dinov3": _DINO._replace(objects=("rope_parameters", "rope_scaling"), rope_type="default"),
    "sam2_video": _MEMORY,
    "edgetam_video": _MEMORY,
    "sam3_tracker_video": _MEMORY,
}
"""Towers with rotary embedding, by the ``model_type`` of their config."""

REFUSED: Mapping[str, str] = {
    "mlcd_vision_model": "its class token rotates by learned angles, which are weights and not in a config",
    "qwen2_5_omni_dit": "it rotates the first head of queries and keys alone",
    "musicflamingo": "it rotates hidden states by time stamps, not queries and keys",
    "efficientloftr": "it rotates all features together before it divides them into heads, so that heads differ",
    "lightglue": "its angles are a learned projection of key points, whose weights are not in a config",
    "vjepa2": "it rotates the two features of a pair by different angles, which is no rotation",
    "timm_wrapper": "the rotary embedding is that of timm, whose settings are not in this config",
}
"""Parts with something like rotary embedding that no `Rope` expresses, and why."""

UNROTATED = frozenset(name for name, model in ALL.items() if not model.rotary and name not in MODELS)
"""Vision and audio parts of which no class has rotary embedding."""

PARTS: Mapping[str, Mapping[str, str]] = {name: model.parts for name, model in ALL.items() if model.parts}
"""The towers of larger configs, by path: for files in which a tower has no ``model_type``, or that of the whole."""


# --- the recipe -------------------------------------------------------------------------------------------


def recipe(part: Part, /) -> Recipe | Fact:
    """
    Return the recipe of a tower, or the fact that it has no rotary.

    Parameters
    ----------
    part : Part
        The tower's own config, with its ``model_type``.

    Returns
    -------
    Recipe or Fact
        Frequencies have a row for each axis of the positions, in the order of ``facts["axes"]``. Feature pairs in
        equal blocks are told by ``facts["blocks"]``.

    Raises
    ------
    TypeError
        If a value is of another kind.
    ValueError
        If the tower is unknown or refused, or its config contradicts itself or its class.
    """
    if part.model_type in UNROTATED:
        return Fact(None, f"{part.model_type} has no rotary embedding")
    tower = _tower(part)
    _require_read(part, tower)
    kind, base = _parameters(part, tower)
    head = _head(part, tower)
    n = len(tower.axes)
    exact = 2 * n if tower.layout != "one ladder" else 2
    if n == 2 and head.value % exact:
        fail(f"{head.source} must give heads of a multiple of {exact} features; got {head.value}")
    if not 2 * n <= head.value <= LARGEST_HEAD:
        fail(f"{head.source} must give heads of {2 * n} to {LARGEST_HEAD} features; got {head.value}")
    rows = _rows(tower, head.value, base.value)
    said = f"{part.name('model_type')} {part.model_type}"
    facts = {
        "model_type": Fact(part.model_type, part.name("model_type")),
        "pairing": Fact(tower.pairing, "; ".join(filter(None, (said, tower.note)))),
        "rope_type": kind,
        "head_dim": head,
        "rotary_dim": Fact(2 * len(rows[0]), head.source),
        "rope_theta": base,
        "attention_factor": Fact(1.0, part.default),
        "axes": Fact(n, f"{', '.join(tower.axes)} of {said}"),
    }
    if tower.blocks > 1:
        facts["blocks"] = Fact(tower.blocks, said)
    return Recipe(rows, tower.pairing, 1.0, 0, facts)


def _rows(tower: Tower, head: int, base: float) -> tuple[Row, ...]:
    """Return the frequencies of a head: one row for each axis."""
    n = len(tower.axes)
    if tower.layout == "one ladder":
        return axes.alternating(frequencies(head, base=base), n)
    # f_i = base^(−2i/d), of the d features that each axis has
    ramp = [tower.scale * f for f in frequencies(2 * (head // n // 2), base=base)]
    order = [tower.axes.index(name) for name in tower.features or tower.axes]
    places = [(f, axis) for f in ramp for axis in order]
    if tower.layout == "side by side":
        places = [(f, axis) for axis in order for f in ramp]
    return axes.assigned(tuple(f for f, _ in places), [axis for _, axis in places])


def _tower(part: Part) -> Tower:
    """Return the row of a tower; raise if there is none."""
    kind = str(part.model_type)
    if kind in REFUSED:
        fail(f"{part.name('model_type')} {kind} is not supported: {REFUSED[kind]}")
    if kind not in TOWERS:
        fail(f"{part.name('model_type')} must be that of a known tower; got {shown(kind)}")
    return TOWERS[kind]


_ROTARY = re.compile(r"(^|_)([mx]?rope|rotary|theta)")


def _require_read(part: Part, tower: Tower) -> None:
    """Raise if a config has rotary keys that the class does not read."""
    known = {*tower.bases, *tower.objects, *tower.unread}
    for key in part.keys:
        if not _ROTARY.search(key) or key in known or not (fact := part.get(key)):
            continue
        if not (key.startswith("use_") and fact.value is True):  # that it is used is no news
            fail(f"{fact.source} must not be given for {part.model_type}, whose class does not read it")


def _parameters(part: Part, tower: Tower) -> tuple[Fact, Fact]:
    """Return the rope type and the base."""
    bases = [fact for key in tower.bases if (fact := part.get(key))]
    kind = Fact(tower.rope_type, part.default)
    for name in tower.objects:
        whole = part.get(name) or Fact({}, "")
        if not isinstance(whole.value, Mapping):
            msg = f"{whole.source} must be an object; got {shown(whole.value)}"
            raise TypeError(msg)
        for key, value in ((key, value) for key, value in whole.value.items() if value is not None):
            fact = Fact(value, part.name(name, key))
            if key in ("rope_type", "type"):
                kind = Fact(tower.rope_type, fact.source)  # of which "default" is another name
                if value not in ("default", tower.rope_type):
                    fail(f"{fact.source} must be {tower.rope_type!r} here; got {shown(value)}")
            elif key == "rope_theta":
                bases.append(fact)
            else:
                fail(f"{fact.source} must not be given for {part.model_type}, whose class does not read it")
    found = _agreed([Fact(positive(fact.source, fact.value), fact.source) for fact in bases])
    return kind, found or Fact(tower.base, part.default)


def _agreed(facts: Sequence[Fact]) -> Fact | None:
    """Return the first of several facts; raise unless all have the same value."""
    for fact in facts[1:]:
        if fact.value != facts[0].value:
            fail(f"{fact.source} must agree with {facts[0].source}, {facts[0].value}; got {fact.value}")
    return facts[0] if facts else None


def _size(part: Part, tower: Tower, key: str, *names: str) -> Fact:
    """Return a size by any of its names, or the default of the class."""
    given = [fact for name in names or (key,) if (fact := part.get(name))]
    found = _agreed([Fact(integer(fact.source, fact.value), fact.source) for fact in given])
    found = found or Fact(tower.sizes[key], part.default)
    if not 1 <= found.value <= LARGEST_WIDTH:
        fail(f"{found.source} must be from 1 to {LARGEST_WIDTH}; got {shown(found.value)}")
    return found


def _head(part: Part, tower: Tower) -> Fact:
    """Return how many features a head has, and where that is said."""
    if tower.own_head:
        return _size(part, tower, "head_dim")
    width, heads = _size(part, tower, "width", *tower.width), _size(part, tower, "heads", *tower.heads)
    other = part.get("num_heads")
    if other and "num_heads" not in tower.heads and other.value != heads.value:
        fail(f"{other.source} must agree with {part.name(tower.heads[0])}, {heads.value}; got {shown(other.value)}")
    count = heads.value * (_size(part, tower, tower.divisor).value if tower.divisor else 1)
    if width.value % count:
        fail(f"{part.name(tower.width[0])} must be a multiple of the {count} heads; got {width.value}")
    head = Fact(width.value // count, f"{part.name(tower.width[0])} / {part.name(tower.heads[0])}")
    said = part.get("head_dim")
    if said and integer(said.source, said.value) != head.value:
        fail(f"{said.source} must agree with {head.source}, {head.value}; got {said.value}")
    return head


# --- the positions of patches -----------------------------------------------------------------------------


def grid(part: Part, shape: tuple[int, ...], /) -> tuple[tuple[float, ...], ...] | None:
    """
    Return the positions of the patches of one image or video.

    Parameters
    ----------
    part : Part
        The tower's own config, with its ``model_type``.
    shape : tuple of int
        ``(rows, columns)`` or ``(frames, rows, columns)`` in patches, before any are merged.

    Returns
    -------
    tuple of tuple of float, or None
        A position for each patch: a number for each axis, in the order of ``facts["axes"]`` of the recipe. None if the
        caller gives positions, or what they depend on.

    Raises
    ------
    TypeError
        If `shape` is no tuple of integers.
    ValueError
        If the tower has no positions for such a grid, or its config contradicts itself.

    Notes
    -----
    Patches come in the order in which queries and keys of the layers have them: row by row, by blocks that are to be
    merged, or by windows (Qwen2.5-VL: inside a window by blocks). Class and register tokens are not among them.
    """
    tower = _tower(part)
    frames, rows, columns = _shape(part, tower, shape)
    if tower.callers:
        return None
    block = _size(part, tower, tower.merge[0], *tower.merge).value if tower.merge else 1
    if rows % block or columns % block:
        fail(f"shape must have multiples of {block} rows and columns for {part.model_type}; got {shown(shape)}")
    window = _window(part, tower, block) or max(rows, columns)

    def order(patch: tuple[int, int]) -> tuple[int, ...]:
        r, c = patch
        return r // window, c // window, r // block, c // block

    if tower.fixed:
        _require_fixed(part, tower, (rows, columns))
    unit = 1.0
    if "window_size" in tower.fixed:  # SAM 3: the larger grid is put onto the window
        unit = _size(part, tower, "window_size").value / columns

    def place(i: int, n: int) -> float:
        # the middle of patch i of n, between −1 and 1: (2i + 1)/n − 1
        return (2 * i + 1) / n - 1 if tower.centred else float(i + tower.first) * unit

    patches = sorted(product(range(rows), range(columns)), key=order)
    names = [(float(t), place(r, rows), place(c, columns)) for t in range(frames) for r, c in patches]
    chosen = [AXES.index(name) for name in tower.axes]
    return tuple(tuple(position[axis] for axis in chosen) for position in names)


def _shape(part: Part, tower: Tower, shape: object) -> tuple[int, int, int]:
    """Return frames, rows and columns, checked."""
    if not isinstance(shape, tuple | list):
        msg = f"shape must be (rows, columns) or (frames, rows, columns); got {shown(shape)}"
        raise TypeError(msg)
    sizes = [integer("shape", n) for n in shape]
    if len(sizes) not in (2, 3) or min(sizes) < 1 or math.prod(sizes) > MOST_TOKENS:
        fail(f"shape must be ([frames,] rows, columns), at most {MOST_TOKENS} patches; got {shown(shape)}")
    frames, rows, columns = [1, *sizes][-3:]
    if frames > 1 and not tower.frames:
        fail(f"shape must be that of one image, which alone {part.model_type} takes; got {frames} frames")
    return frames, rows, columns


def _window(part: Part, tower: Tower, block: int) -> int:
    """Return the side of a window in patches, or 0 if there are none."""
    if not tower.window:
        return 0
    side = _size(part, tower, tower.window).value
    if tower.window == "window_size":
        side = side // block // _size(part, tower, "patch_size").value * block
    if not side:
        fail(f"{part.name(tower.window)} must be at least a block of patches")
    return int(side)


def _require_fixed(part: Part, tower: Tower, shape: tuple[int, int]) -> None:
    """Raise unless a grid is one of those for which a class has positions."""
    sides = {key: _size(part, tower, key).value for key in tower.fixed}
    if "image_size" in sides:
        sides["image_size"] //= _size(part, tower, "patch_size").value
    known = [(side, side) for side in sides.values()]
    if shape not in known:
        fail(f"shape must be {' or '.join(map(str, known))} for {part.model_type}; got {shape}")
