"""
Read the rotation of a transformer of diffusers from its ``config.json``: facts by ``_class_name``.

Read in diffusers 0.42.1 and measured there. A row of `CLASSES` says which key holds the features of each axis, or by
what rule they follow from the head, the base, the pairing, and how the model numbers a grid. `REFUSED` holds the
classes that no `Rope` can express, `UNROTATED` those without rotary.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from rope_any._checks import MAX_FEATURES, integer, positive, shown
from rope_any._frequencies import Frequencies, Row
from rope_any._pairing import Pairing
from rope_any.axes import assigned, axial, in_turn
from rope_any.config._load import Fact, fail
from rope_any.config._part import Part
from rope_any.config._recipe import Recipe
from rope_any.scaling import longrope, longrope_attention_factor

Lengths = tuple[int, int, int]
"""Frames, rows and columns, in tokens."""

Lines = tuple[Sequence[float], ...]
"""The positions along each axis of a grid."""

OFF, ON = False, True
_MOST_TOKENS = 2**22
ROTARY = re.compile("rope|rotary|theta|axes_|freqs_|^scale_factor$|^interpolation_scale_")


class Key(NamedTuple):
    """A key of a config, and what the class assumes without it."""

    name: str
    default: Any = None
    """None if it must be given."""
    null: Any = None
    """What null stands for."""
    hint: str = ""
    """What to give, if nobody but the caller knows."""


class Class(NamedTuple):
    """Facts of one class of diffusers."""

    axes: Key | str
    """The key that holds how many features each axis has, or the rule by which they follow from the head: `_SPLITS`."""
    head: tuple[Key, ...] = (Key("attention_head_dim", 128),)
    """The key of the head dimension, or those of the width of the model and of the number of heads."""
    base: Key | float = 10_000.0
    pairing: Pairing = "interleaved"
    kind: str = "axial"
    """How the pairs are divided among the axes: `_KINDS`."""
    numbers: tuple[int, ...] = (3,)
    """How many axes there can be."""
    grid: str = ""
    """How the model numbers the tokens of a grid: `_GRIDS`. Empty if the caller does."""
    divisors: tuple[Key, ...] = ()
    """What positions are divided by: one key of each axis, or one key of a list."""
    stretch: Key | None = None
    """What the base of each axis is enlarged by, as by NTK-aware scaling."""
    reads: tuple[Key, ...] = ()
    """Further keys that the grid or the kind reads."""
    unread: tuple[str, ...] = ()
    """Keys that sound of rotary but change no angle of the tokens that `covers` names."""
    canvas: tuple[Key | int, ...] = ()
    """Rows and columns, before patches are made, of the base grid into which others are fitted."""
    needs: tuple[tuple[Key, Any, str], ...] = ()
    """Keys, the value that each must have, and what another value means."""
    covers: str = "all tokens"
    """Which tokens the rotation is for, and what the class does with the others."""


_SPLITS: Mapping[str, Callable[[int], tuple[int, ...]]] = {
    "whole": lambda d: (d,),
    "half": lambda d: (d // 2,),
    "halves": lambda d: (d // 2, d // 2),
    "thirds": lambda d: (d // 3,) * 3,
    "quarters": lambda d: (d // 4, d // 8 * 3, d // 8 * 3),
    "sixths": lambda d: (d - 4 * (d // 6), 2 * (d // 6), 2 * (d // 6)),
    "even sixths": lambda d: _SPLITS["sixths"](d) if d % 6 < 3 else (),  # else its table is cut at odd columns
}
"""How many features each axis has, by the head dimension d."""


# --- the classes ------------------------------------------------------------------------------------------


def _of(width: str, n: int, heads: str, m: int) -> tuple[Key, Key]:
    """Return the keys of a head dimension that is the width of the model over the number of heads."""
    return Key(width, n), Key(heads, m)


_DIMS = Key("axes_dims_rope", (16, 56, 56))
_HUNYUAN_DIMS = Key("rope_axes_dim", (16, 56, 56))
_TEXT_ZERO = "all tokens; those of text stand at 0 on all axes"
_TEXT_OFF = "visual tokens; those of text are not rotated"
_CROSS_OFF = "self-attention; keys of text in cross-attention are not rotated"
_TEXT_AFTER = "all tokens; those of text count on from the largest row or column, the same on all axes"
_PACKED = "all tokens, at the positions that the pipeline gives"
_SEQUENCE = "self-attention, at 0, 1, 2, … in order"
_SCALE = Key("scale_factor", (1.0, 2.0, 2.0))
_SCALES = (
    " (its pipelines choose: [1, 1, 1] for images, [1, 2, 2] for videos of 480 to 854 pixels, else [1, 3.16, 3.16])"
)

_FLUX = Class(_DIMS, grid="image", covers=_TEXT_ZERO)
_BRIA = _FLUX._replace(base=Key("rope_theta", 10_000), unread=("time_theta",))
_QWEN = Class(_DIMS, grid="centred", covers=_TEXT_AFTER)
_HUNYUAN = Class(_HUNYUAN_DIMS, base=Key("rope_theta", 256.0), grid="video", covers=_TEXT_OFF)
_WAN = Class("sixths", grid="video", unread=("rope_max_seq_len",), covers=_CROSS_OFF)
_COG = Class(
    "quarters",
    (Key("attention_head_dim", 64),),
    grid="cropped",
    canvas=(Key("sample_height", 60), Key("sample_width", 90)),
    reads=(Key("patch_size", 2),),
    unread=("use_learned_positional_embeddings",),
    needs=((Key("use_rotary_positional_embeddings", OFF), ON, "the class adds absolute positions instead"),),
    covers=_TEXT_OFF,
)
_GLM = Class("halves", (Key("attention_head_dim", 40),), pairing="half", numbers=(2,), grid="plane", covers=_TEXT_OFF)
_HUNYUAN_DIT = Class(
    "halves",
    (Key("attention_head_dim", 88),),
    kind="columns first",
    numbers=(2,),
    grid="cropped",
    canvas=(64, 64),
    reads=(Key("patch_size"),),
    covers="self-attention of image tokens; keys of text in cross-attention are not rotated",
)
_COSMOS = Class(
    "sixths",
    pairing="half",
    grid="video",
    stretch=Key("rope_scale", (2.0, 1.0, 1.0)),
    covers="self-attention, at frames of 24 per second: for another fps the model takes frames at index · 24 / fps",
)
_LTX = Class(
    "whole",
    _of("num_attention_heads", 32, "attention_head_dim", 64),
    kind="rising",
    covers="self-attention, all heads side by side (batch, seq, heads · head_dim), at 2c − 1 on each axis, where c is "
    "the coordinate over 20 frames, 2048 rows and 2048 columns, which depends on the frame rate",
)
_LTX2 = _LTX._replace(
    head=_of("num_attention_heads", 32, "attention_head_dim", 128),
    base=Key("rope_theta", 10_000.0),
    reads=(Key("rope_type", "interleaved"),),
    unread=("rope_double_precision",),
    covers="self-attention of video tokens, all heads side by side (batch, seq, heads · head_dim), at 2c − 1 on each "
    "axis, where c is the middle of a patch in seconds and pixels over pos_embed_max_pos, base_height and base_width; "
    "audio tokens and the attention between both have rotations of their own",
)
_KANDINSKY = Class(
    Key("axes_dims", (16, 24, 24)), (), grid="video", divisors=(_SCALE,), covers="visual tokens; text has its own 1-D"
)
_JOY = Class(
    Key("rope_dim_list", (16, 56, 56), "thirds"),
    _of("hidden_size", 3072, "num_attention_heads", 24),
    base=Key("theta", 256),
    grid="video",
    unread=("rope_type",),
    covers="visual tokens; those of text are rotated only if rope_type is mrope: they count on from the largest visual "
    "position, the same on all axes",
)
_STRIDED = Class(
    Key("mrope_section", (24, 20, 20)),
    (Key("attention_head_dim", 256),),
    base=Key("rope_theta", 5_000_000),
    pairing="half",
    kind="strided",
    covers=_PACKED,
)
_AUDIO = Class("whole", pairing="half", numbers=(1,), covers=_SEQUENCE)

CLASSES: dict[str, Class] = {
    "FluxTransformer2DModel": _FLUX,
    "FluxControlNetModel": _FLUX,
    "ChromaTransformer2DModel": _FLUX,
    "OvisImageTransformer2DModel": _FLUX._replace(covers="all tokens; those of text stand at (0, index, index)"),
    "LongCatImageTransformer2DModel": _FLUX._replace(grid="", covers=_PACKED),
    "BriaTransformer2DModel": _BRIA,
    "BriaFiboTransformer2DModel": _BRIA,
    "BriaFibo2Transformer2DModel": Class(
        Key("axes_dims", (32, 48, 48)),
        _of("dim", 3584, "n_heads", 28),
        base=Key("rope_theta", 256.0),
        unread=("axes_lens",),
        covers="all tokens; the first axis of an image is one plane per image, behind those of text",
    ),
    "Flux2Transformer2DModel": Class(
        Key("axes_dims_rope", (32, 32, 32, 32)),
        base=Key("rope_theta", 2000),
        numbers=(4,),
        grid="layered image",
        covers="all tokens; those of text stand at (0, 0, 0, index), reference images at times of their own",
    ),
    "Flux3Transformer2DModel": Class(
        Key("axes_dims_rope", (32, 32, 32, 32)), base=Key("rope_theta", 10_000), numbers=(4,), covers=_PACKED
    ),
    "QwenImageTransformer2DModel": _QWEN._replace(reads=(Key("use_layer3d_rope", OFF),)),
    "QwenImageControlNetModel": _QWEN,
    "QwenImage21Transformer2DModel": _QWEN._replace(
        grid="",
        covers="all tokens; the first axis of an image is the number of text tokens before it plus the longer sides of "
        "earlier images, rows and columns are counted from its middle, text counts on, the same on all axes",
    ),
    "NucleusMoEImageTransformer2DModel": _QWEN,
    "HiDreamImageTransformer2DModel": Class(
        Key("axes_dims_rope", (32, 32)), grid="image", covers="all tokens; those of text stand at 0 on all axes"
    ),
    "HunyuanVideoTransformer3DModel": _HUNYUAN,
    "HunyuanVideo15Transformer3DModel": _HUNYUAN,
    "HunyuanVideoFramepackTransformer3DModel": _HUNYUAN._replace(
        grid="", covers="new frames, at the indices that the pipeline gives; tables of packed history are averaged"
    ),
    "HunyuanImageTransformer2DModel": _HUNYUAN._replace(axes=Key("rope_axes_dim", (64, 64)), numbers=(2, 3)),
    "MotifVideoTransformer3DModel": _HUNYUAN,
    "HunyuanDiT2DModel": _HUNYUAN_DIT,
    "HunyuanDiT2DControlNetModel": _HUNYUAN_DIT,
    "WanTransformer3DModel": _WAN,
    "WanVACETransformer3DModel": _WAN,
    "WanAnimateTransformer3DModel": _WAN,
    "WanAnimate2Transformer3DModel": _WAN._replace(
        head=_of("dim", 5120, "num_heads", 40),
        unread=(),
        covers="generated tokens; those of the reference stand at offsets of their own",
    ),
    "SkyReelsV2Transformer3DModel": _WAN,
    "ChronoEditTransformer3DModel": _WAN._replace(
        axes="even sixths", reads=(Key("rope_temporal_skip_len", 8), Key("patch_size", (1, 2, 2)))
    ),
    "AnyFlowTransformer3DModel": _WAN,
    "AnyFlowFARTransformer3DModel": _WAN._replace(
        grid="", covers="full frames, counted from the first frame; tables of compressed frames are averaged"
    ),
    "SanaVideoTransformer3DModel": _WAN._replace(head=(Key("attention_head_dim", 112),)),
    "SanaWMTransformer3DModel": _WAN._replace(
        head=(Key("linear_head_dim", 112),),
        unread=(),
        needs=(
            (Key("use_pe", ON), ON, "the class builds none"),
            (Key("pos_embed_type", "wan_rope"), "wan_rope", "the class knows no other"),
        ),
        covers="the main branch; that of the camera takes the first pairs of each axis, on half of the head",
    ),
    "CogVideoXTransformer3DModel": _COG._replace(reads=(*_COG.reads, Key("patch_size_t"))),
    "ConsisIDTransformer3DModel": _COG,
    "EasyAnimateTransformer3DModel": _COG._replace(canvas=(60, 90), reads=(Key("patch_size"),), unread=(), needs=()),
    "CogView4Transformer2DModel": _GLM._replace(grid="fitted", reads=(Key("rope_axes_dim", (256, 256)),)),
    "GlmImageTransformer2DModel": _GLM,
    "AllegroTransformer3DModel": Class(
        "thirds",
        (Key("attention_head_dim", 96),),
        pairing="half",
        kind="blocks",
        grid="video",
        divisors=tuple(Key(f"interpolation_scale_{axis}", n) for axis, n in (("t", 2.2), ("h", 2.0), ("w", 2.0))),
        covers=_CROSS_OFF,
    ),
    "CosmosTransformer3DModel": _COSMOS,
    "CosmosControlNetModel": _COSMOS,
    "Cosmos3OmniTransformer": _STRIDED._replace(
        axes=Key("rope_axes_dim", (24, 20, 20)),
        head=(Key("head_dim", 128),),
        reads=(Key("rope_scaling"),),
        unread=("unified_3d_mrope_reset_spatial_ids", "unified_3d_mrope_temporal_modality_margin"),
    ),
    "Ideogram4Transformer2DModel": _STRIDED,
    "Lumina2Transformer2DModel": Class(
        Key("axes_dim_rope", (32, 32, 32)),
        _of("hidden_size", 2304, "num_attention_heads", 24),
        unread=("axes_lens",),
        covers="all tokens; text stands at (index, 0, 0), the image at (number of text tokens, row, column)",
    ),
    "ZImageTransformer2DModel": Class(
        Key("axes_dims", (32, 48, 48)),
        _of("dim", 3840, "n_heads", 30),
        base=Key("rope_theta", 256.0),
        unread=("axes_lens",),
        covers="all tokens; text stands at (index + 1, 0, 0), the image at (padded text length + 1, row, column)",
    ),
    "Krea2Transformer2DModel": _FLUX._replace(axes=Key("axes_dims_rope", (32, 48, 48)), base=Key("rope_theta", 1000.0)),
    "Kandinsky5Transformer3DModel": _KANDINSKY._replace(divisors=(Key("scale_factor", hint=_SCALES),)),
    "Kandinsky6Transformer3DModel": _KANDINSKY._replace(
        axes=Key("axes_dims", (32, 48, 48)),
        unread=("axes_dims_a", "ca_rope", "audio_freqs_scaling"),
        covers="visual tokens; text and audio have 1-D rotations of their own",
    ),
    "Kandinsky6SRTransformer3DModel": _KANDINSKY._replace(covers="all tokens"),
    "OmniGenTransformer2DModel": Class(
        "whole",
        _of("hidden_size", 3072, "num_attention_heads", 32),
        base=Key("rope_base", 10_000),
        pairing="half",
        kind="longrope",
        numbers=(1,),
        reads=(
            Key("rope_scaling"),
            Key("max_position_embeddings", 131_072),
            Key("original_max_position_embeddings", 4096),
        ),
        covers="all tokens, at the position ids that the pipeline gives",
    ),
    "JoyImageEditTransformer3DModel": _JOY,
    "JoyImageEditPlusTransformer3DModel": _JOY._replace(
        grid="", covers="visual tokens; the frames of each image follow those of the one before, text is not rotated"
    ),
    "HeliosTransformer3DModel": Class(
        Key("rope_dim", (44, 42, 42)),
        base=Key("rope_theta", 10_000.0),
        covers="self-attention of new and short-history frames, at the indices that the pipeline gives; tables of "
        "longer history are averaged",
    ),
    "MiniMaxH3Transformer3DModel": Class(
        Key("rope_freq_dim", 16), base=Key("rope_theta", 10_000.0), pairing="half", kind="alike", covers=_PACKED
    ),
    "PRXTransformer2DModel": Class(
        Key("axes_dim", (32, 32), (32, 32)),
        _of("hidden_size", 1792, "num_heads", 28),
        base=Key("theta", 10_000),
        numbers=(2,),
        grid="plane",
        covers=_TEXT_OFF,
    ),
    "LTXVideoTransformer3DModel": _LTX,
    "LTX2VideoTransformer3DModel": _LTX2,
    "SanaWMLTX2RefinerTransformer3DModel": _LTX2,
    "AceStepTransformer1DModel": _AUDIO._replace(head=(Key("head_dim", 128),), base=Key("rope_theta", 1_000_000.0)),
    "StableAudioDiTModel": _AUDIO._replace(axes="half", head=(Key("attention_head_dim", 64),)),
    "StableAudio3DiTModel": _AUDIO._replace(axes="half", head=_of("embed_dim", 1536, "num_heads", 24)),
    "LongCatAudioDiTTransformer": _AUDIO._replace(
        head=_of("dit_dim", 1536, "dit_heads", 24),
        base=100_000.0,
        covers="audio and text tokens, each counted from 0, in self- and cross-attention",
    ),
    "MiniMaxMusic3Transformer1DModel": _AUDIO._replace(
        axes=Key("rotary_dim", 32), head=(Key("attention_head_dim", 64),), kind="axial"
    ),
    "AnimaTextConditioner": _AUDIO._replace(
        head=_of("model_dim", 1024, "num_attention_heads", 16), covers="both sequences, at the positions of their ids"
    ),
}
"""What is known of each class with rotary, by ``_class_name``."""

REFUSED: dict[str, str] = {
    "MochiTransformer3DModel": "its frequencies are learned (pos_frequencies in the weights, one set for each head); "
    "they go through cos_sin and rotate",
    "ErnieImageTransformer2DModel": "it gives the two features of a pair different angles, which is no rotation",
    "LuminaNextDiT2DModel": "it scales positions before a time step and the base after it, both chosen by the pipeline",
    "ZImageControlNetModel": "it has the rotation of the transformer that it is attached to: read that one's config",
    "AutoencoderKLMiniMaxH3": "its decoder has rotary in an autoencoder, which is not read",
    "AutoencoderSAME": "it has rotary in an autoencoder, which is not read",
    "LTX2VideoDiffusionDecoderModel": "it has rotary in a decoder of latents, which is not read",
}
"""Classes with something that is called rotary, which no `Rope` can express or which is not read, and why."""

_PLAIN = (
    "AuraFlowTransformer2DModel CogView3PlusTransformer2DModel DiTTransformer2DModel DreamLiteTransformer2DModel "
    "LatteTransformer3DModel MiniMaxMusic3RVQDepthDecoder PixArtTransformer2DModel PriorTransformer "
    "RFD4ProteinaTransformer SanaTransformer2DModel SD3Transformer2DModel T5FilmDecoder Transformer2DModel "
    "TransformerTemporalModel ControlNetModel ControlNetUnionModel ControlNetXSAdapter SanaControlNetModel "
    "SD3ControlNetModel SparseControlNetModel UNetControlNetXSModel"
)
UNROTATED = frozenset(_PLAIN.split())
"""Transformers and control networks without rotary."""


# --- reading a config -------------------------------------------------------------------------------------


def is_diffusers(keys: Mapping[str, Any], /) -> bool:
    """
    Whether a config is of a component of diffusers.

    Parameters
    ----------
    keys : mapping
        The JSON of a ``config.json``.

    Returns
    -------
    bool
        Whether it has a ``_class_name``.
    """
    return keys.get("_class_name") is not None


def recipe(part: Part, /, *, sequence_length: int | None = None) -> Recipe | Fact:
    """
    Return what the `Rope` of a component of diffusers is made of.

    Parameters
    ----------
    part : Part
        The config of the component.
    sequence_length : int, optional
        In tokens, for OmniGen, whose frequencies depend on it. By default the trained length.

    Returns
    -------
    Recipe
        ``facts["blocks"]``, if there, is the number of blocks of the `Rope`; ``facts["covers"]`` says which tokens it
        is for. A class with one axis has a single row of frequencies.

    Raises
    ------
    TypeError
        If a value is of the wrong kind.
    ValueError
        If the class is not known, has no rotary, or one that no `Rope` expresses; or if a key is unknown, missing or
        contradicted.
    """
    at = _component(part)._replace(length=sequence_length)
    head, base = _head(at), at.read(at.row.base) if isinstance(at.row.base, Key) else Fact(at.row.base, at.default)
    found = _KINDS[at.row.kind](at, head.value, positive(base.source, base.value))
    facts = {"head_dim": head, "rope_theta": base, **found.facts, "covers": Fact(at.row.covers, at.default)}
    return found._replace(facts=facts)


def grid(part: Part, shape: Sequence[int], /) -> tuple[tuple[float, ...], ...] | None:
    """
    Return the positions of a grid of visual tokens, as the model or its pipeline numbers them.

    Parameters
    ----------
    part : Part
        The config of a component of diffusers.
    shape : tuple of int
        Frames, rows and columns, or rows and columns: in tokens, after patches are made.

    Returns
    -------
    tuple of tuple, or None
        One number for each axis, token by token, columns fastest. None if the positions depend on text, time or other
        images, and for sequences.

    Raises
    ------
    TypeError, ValueError
        As `recipe`; or if the shape is no grid, or none of this class.
    """
    at = _component(part)._replace(shape=_lengths(shape))
    if not at.row.grid or part.keys.get("use_layer3d_rope"):
        return None
    return tuple(product(*_GRIDS[at.row.grid](at)))


class _Component(NamedTuple):
    """A component, and what is known of its class and of the call."""

    part: Part
    name: str
    row: Class
    length: int | None = None
    shape: Lengths = (1, 1, 1)

    @property
    def default(self) -> str:
        """The source of what is fixed in the code of the class."""
        return f"default of {self.name}"

    def read(self, key: Key) -> Fact:
        """Return what stands under a key, or what the class assumes."""
        fact, null = self.part.get(key.name), key.name in self.part.keys
        value = key.null if null else key.default
        if fact is None and value is None:
            fail(
                f"{self.part.name(key.name)} must be given for {self.name}{key.hint}; got {'null' if null else 'none'}"
            )
        return fact or Fact(value, self.default)

    @property
    def axes(self) -> Fact:
        """How many features each axis has, or the rule for it."""
        axes = self.row.axes
        return self.read(axes) if isinstance(axes, Key) else Fact(axes, self.default)


def _component(part: Part) -> _Component:
    """Return a component whose class is known, having refused keys on rotary that the class doesn't read."""
    source, name = part.name("_class_name"), part.keys.get("_class_name")
    if not isinstance(name, str):
        msg = f"{source} must be a name; got {shown(name)}"
        raise TypeError(msg)
    if name in UNROTATED or name in REFUSED:
        fail(f"{source}: {name} has no rotary" if name in UNROTATED else f"{source}: {name}: {REFUSED[name]}")
    if name not in CLASSES:
        fail(f"{source} must be a class of diffusers that is known here; got {shown(name)}")
    at, row = _Component(part, name, CLASSES[name]), CLASSES[name]
    known = {key.name for key in keys_of(row)}.union(row.unread)
    for key, value in part.keys.items():
        if value is not None and isinstance(key, str) and ROTARY.search(key) and key not in known:
            fail(f"{part.name(key)} must not be given, since {name} does not read it; got {shown(value)}")
    for needed, wanted, otherwise in row.needs:
        if (found := at.read(needed)).value != wanted:
            fail(f"{part.name(needed.name)} must be {wanted}: {otherwise}; got {shown(found.value)} ({found.source})")
    return at


def keys_of(row: Class, /) -> list[Key]:
    """Return the keys that a class reads around rotary."""
    needed = [key for key, *_ in row.needs]
    return [
        key
        for key in (row.axes, row.base, row.stretch, *row.head, *row.divisors, *row.canvas, *row.reads, *needed)
        if isinstance(key, Key)
    ]


def _count(fact: Fact, *, least: int = 1) -> int:
    """Return a number of features or tokens, checked."""
    number = integer(fact.source, fact.value)
    if not least <= number <= MAX_FEATURES:
        fail(f"{fact.source} must be from {least} to {MAX_FEATURES}; got {shown(number)}")
    return number


def _listed(fact: Fact, numbers: tuple[int, ...]) -> list[Fact]:
    """Return the items of a list that has one of some lengths."""
    if not isinstance(fact.value, list | tuple):
        msg = f"{fact.source} must be a list; got {shown(fact.value)}"
        raise TypeError(msg)
    if len(fact.value) not in numbers:
        fail(f"{fact.source} must have {' or '.join(map(str, numbers))} items; got {len(fact.value)}")
    return [Fact(value, fact.source) for value in fact.value]


def _object(fact: Fact, allowed: Mapping[str, tuple[Any, ...]]) -> Mapping[str, Any]:
    """Return a JSON object that has no keys but those allowed, with no values but those allowed, if any are named."""
    if not isinstance(fact.value, Mapping):
        msg = f"{fact.source} must be an object; got {shown(fact.value)}"
        raise TypeError(msg)
    for key, value in fact.value.items():
        if value is not None and (key not in allowed or (allowed[key] and value not in allowed[key])):
            fail(
                f"{fact.source} must hold nothing but {', '.join(allowed)} as the class reads them; got {shown(key)} "
                f"{shown(value)}"
            )
    return fact.value


def _head(at: _Component) -> Fact:
    """Return the head dimension: as it stands, as a share of the width, or of LTX all heads side by side."""
    if not at.row.head:
        return Fact(sum(map(_count, _listed(at.axes, at.row.numbers))), f"sum of {at.axes.source}")
    first, *others = map(at.read, at.row.head)
    width = _count(first)
    if not others:
        return Fact(width, first.source)
    heads = _count(others[0])
    if at.row.kind == "rising":
        source = f"{first.source} · {others[0].source}"
        return Fact(_count(Fact(width * heads, source)), source)
    if width % heads:
        fail(f"{at.part.name(at.row.head[1].name)} must divide {at.row.head[0].name}, {width}; got {heads}")
    return Fact(width // heads, f"{first.source} // {others[0].source}")


# --- frequencies ------------------------------------------------------------------------------------------


def _ladder(base: float, dim: int, divisor: float = 1.0) -> Row:
    """Return the frequencies of one axis."""
    # fᵢ = base^(−2i/d) / s,  i = 0 … d/2 − 1
    return tuple(base ** (-2 * i / dim) / divisor for i in range(dim // 2))


def _sizes(at: _Component, dim: int) -> Fact:
    """Return how many features each axis has."""
    axes, ours = at.axes, at.axes.source == at.default
    if ours and isinstance(axes.value, str):
        axes = Fact(_SPLITS[axes.value](dim), f"head_dim {dim}, divided as {at.name} does")
    elif at.row.numbers == (1,):
        axes = Fact((axes.value,), axes.source)
    sizes = [_count(size, least=0) for size in _listed(axes, at.row.numbers)]
    name = at.part.name(at.row.axes.name) if isinstance(at.row.axes, Key) else axes.source
    if any(size < 2 or size % 2 for size in sizes):
        fail(f"{name} must give each axis an even number of features; got {shown(sizes)}")
    if sum(sizes) > dim or (sum(sizes) < dim and len(sizes) > 1):
        fail(f"{name} must sum to the head dimension, {dim}; got {shown(sizes)}")
    return Fact(tuple(sizes), axes.source)


def _axial(at: _Component, dim: int, base: float) -> Recipe:
    """Return the recipe of axes that have frequencies of their own, side by side."""
    axes, facts = _sizes(at, dim), {}
    sizes, divisors, bases = axes.value, [1.0] * len(axes.value), [base] * len(axes.value)
    if at.row.divisors:
        found = [at.read(key) for key in at.row.divisors]
        found = _listed(found[0], (len(sizes),)) if len(found) == 1 else found
        divisors = [positive(fact.source, fact.value) for fact in found]
        facts["divisors"] = Fact(tuple(divisors), ", ".join(dict.fromkeys(fact.source for fact in found)))
    if at.row.stretch is not None:
        stretch = at.read(at.row.stretch)
        scales = [positive(fact.source, fact.value) for fact in _listed(stretch, (len(sizes),))]
        if min(sizes) < 4:
            fail(f"{axes.source} must give each axis at least 4 features; got {shown(sizes)}")
        # bₐ = b · sₐ^(d / (d − 2))
        bases = [positive(stretch.source, base * s ** (d / (d - 2))) for s, d in zip(scales, sizes, strict=True)]
        facts["rope_scale"] = Fact(tuple(scales), stretch.source)
    rows = [_ladder(b, d, s) for b, d, s in zip(bases, sizes, divisors, strict=True)]
    frequencies: Frequencies = axial(*rows) if len(rows) > 1 else rows[0]
    if at.row.kind == "blocks":
        facts["blocks"] = Fact(len(rows), at.default)
    if at.row.kind == "columns first":
        frequencies = frequencies[::-1]
    facts |= {"rotary_dim": Fact(sum(sizes), axes.source), "axes": axes}
    return Recipe(frequencies, at.row.pairing, 1.0, 0, facts)


def _alike(at: _Component, dim: int, base: float) -> Recipe:
    """Return the recipe of three axes of the same frequencies, whose pairs a key counts; the other features rest."""
    axes = at.axes
    pairs = _count(axes)
    if 6 * pairs > dim:
        fail(f"{axes.source} must be at most a sixth of the head dimension, {dim}; got {pairs}")
    facts = {"rotary_dim": Fact(6 * pairs, f"6 · {axes.source}")}
    return Recipe(axial(*[_ladder(base, 2 * pairs)] * 3), at.row.pairing, 1.0, 0, facts)


def _strided(at: _Component, dim: int, base: float) -> Recipe:
    """Return the recipe of a class that deals the frequencies of the whole head out to the axes in turn."""
    given = at.axes
    scaling = at.part.get("rope_scaling")
    if scaling is not None:  # of which Cosmos3 reads the sections alone
        kinds = ("default", "mrope")
        allowed = {"mrope_section": (), "rope_type": kinds, "type": kinds, "mrope_interleaved": (True,)}
        inside, name = _object(scaling, allowed).get("mrope_section"), at.part.name("rope_scaling", "mrope_section")
        if inside is not None:
            found, ours = Fact(inside, name), given.source == at.default
            if not ours and _listed(found, at.row.numbers) != [
                Fact(n.value, name) for n in _listed(given, at.row.numbers)
            ]:
                fail(f"{name} must agree with {given.source}; got {shown(inside)}")
            given = found if ours else given
    sections = [_count(section) for section in _listed(given, at.row.numbers)]
    # axis a has pairs a, a + n, …, below n · section
    last = max((section - 1) * len(sections) + a for a, section in enumerate(sections) if a)
    if dim % 2 or last >= dim // 2:
        fail(f"{given.source} must be sections that an even head dimension, {dim}, can hold; got {shown(sections)}")
    rows = assigned(_ladder(base, dim), in_turn(dim // 2, sections))
    facts = {"rotary_dim": Fact(dim, at.default), "mrope_section": Fact(tuple(sections), given.source)}
    return Recipe(rows, at.row.pairing, 1.0, 0, facts)


def _rising(at: _Component, dim: int, base: float) -> Recipe:
    """Return the recipe of LTX: frequencies that rise over all heads side by side, dealt out to three axes in turn."""
    n = dim // 6
    if dim % 2 or not n:
        fail(f"{at.row.head[0].name} · {at.row.head[1].name} must be even and at least 6; got {dim}")
    kind = next(map(at.read, at.row.reads), Fact("interleaved", at.default))
    if kind.value not in ("interleaved", "split"):
        fail(f"{kind.source} must be interleaved or split; got {shown(kind.value)}")
    # f₃ᵢ₊ₐ = base^(i / (n − 1)) · π / 2, behind pairs that rest
    rest, turning = dim // 2 - 3 * n, [base ** (i // 3 / max(n - 1, 1)) * math.pi / 2 for i in range(3 * n)]
    facts = {"rotary_dim": Fact(6 * n, at.default), "rope_type": kind}
    if kind.value == "interleaved":
        rows = assigned(tuple(turning), in_turn(3 * n, [n] * 3))
        return Recipe(rows, "interleaved", 1.0, 2 * rest, {**facts, "start": Fact(2 * rest, at.default)})
    heads = at.read(at.row.head[0])  # each head is paired on its own
    if dim // heads.value % 2:
        fail(f"{at.row.head[1].name} must be even; got {dim // heads.value}")
    rows = assigned((*[0.0] * rest, *turning), [*[0] * rest, *in_turn(3 * n, [n] * 3)])
    return Recipe(rows, "half", 1.0, 0, {**facts, "blocks": heads})


def _longrope(at: _Component, dim: int, base: float) -> Recipe:
    """Return the recipe of OmniGen, which divides by one of two lists, depending on the length of the sequence."""
    scaling, longest, original = map(at.read, at.row.reads)
    kinds = ("su", "longrope")
    inside = _object(scaling, {"short_factor": (), "long_factor": (), "type": kinds, "rope_type": kinds})
    if dim % 2:
        fail(f"the head dimension must be even; got {dim}")
    lists = {}
    for name in ("short_factor", "long_factor"):
        source = at.part.name("rope_scaling", name)
        lists[name] = [positive(source, fact.value) for fact in _listed(Fact(inside.get(name), source), (dim // 2,))]
    trained = _count(original, least=2)
    length = trained if at.length is None else integer("sequence_length", at.length)
    row = longrope(_ladder(base, dim), **lists, original_length=trained, length=length)
    scale = _count(longest) / trained
    factor = longrope_attention_factor(scale, original_length=trained) if scale > 1 else 1.0
    used = "long_factor" if length > trained else "short_factor"
    facts = {
        "rotary_dim": Fact(dim, at.default),
        "factors": Fact(used, at.part.name("rope_scaling", used)),
        "attention_factor": Fact(factor, f"{longest.source}, {original.source}"),
    }
    return Recipe(row, at.row.pairing, factor, 0, facts)


_KINDS: Mapping[str, Callable[[_Component, int, float], Recipe]] = {
    "axial": _axial,
    "columns first": _axial,
    "blocks": _axial,
    "alike": _alike,
    "strided": _strided,
    "rising": _rising,
    "longrope": _longrope,
}


# --- grids ------------------------------------------------------------------------------------------------


def _lengths(shape: Sequence[int]) -> Lengths:
    """Return frames, rows and columns of a grid."""
    if not isinstance(shape, tuple | list):
        msg = f"shape must be a tuple: frames, rows and columns, or rows and columns; got {shown(shape)}"
        raise TypeError(msg)
    sizes = [integer("shape", size) for size in shape]
    if len(sizes) not in {2, 3} or min(sizes) < 1 or math.prod(sizes) > _MOST_TOKENS:
        fail(f"shape must be 2 or 3 positive lengths, of at most {_MOST_TOKENS} tokens; got {shown(tuple(sizes))}")
    frames, rows, columns = (1, *sizes)[-3:]
    return frames, rows, columns


def _plane(at: _Component) -> Lines:
    """Return rows and columns from 0, of one frame."""
    if at.shape[0] != 1:
        fail(f"shape must be of one frame for {at.name}; got {at.shape[0]}")
    return tuple(map(range, at.shape[1:]))


def _video(at: _Component) -> Lines:
    """Return frames, rows and columns from 0; of two frames ChronoEdit takes the second for the last of more."""
    if at.row.numbers != (3,) and len(_listed(at.axes, at.row.numbers)) == 2:
        return _plane(at)
    frames, rows, columns = map(range, at.shape)
    if at.row.reads and len(frames) == 2:
        skip, patch = map(at.read, at.row.reads)
        if _listed(patch, (3,))[0].value == 1:
            return (0, _count(skip) - 1), rows, columns
    return frames, rows, columns


def _centred(at: _Component) -> Lines:
    """Return frames from 0, rows and columns from the middle."""
    return (range(at.shape[0]), *(range(n // 2 - n, n // 2) for n in at.shape[1:]))


def _fitted(at: _Component) -> Lines:
    """Return rows and columns spread over a grid of fixed lengths, in whole steps."""
    longest = map(_count, _listed(at.read(at.row.reads[0]), (2,)))
    return tuple([i * most // len(line) for i in line] for line, most in zip(_plane(at), longest, strict=True))


def _cropped(at: _Component) -> Lines:
    """Return frames from 0, and rows and columns of the grid fitted into the middle of a base grid."""
    frames, rows, columns = at.shape
    patch = _count(at.read(at.row.reads[0]))
    canvas = [at.read(n) if isinstance(n, Key) else Fact(n, at.default) for n in at.row.canvas]
    high, wide = (_count(Fact(_count(n) // patch, f"{n.source} // patch_size")) for n in canvas)
    if at.part.get("patch_size_t") is not None:  # CogVideoX 1.5 cuts the base grid instead
        if rows > high or columns > wide:
            fail(f"shape must be at most {high} rows and {wide} columns; got {rows} and {columns}")
        return tuple(map(range, at.shape))
    tall, broad = (
        (high, round(high / rows * columns)) if rows / columns > high / wide else (round(wide / columns * rows), wide)
    )
    places = tuple(_spread(round((m - e) / 2), e, n) for m, e, n in ((high, tall, rows), (wide, broad, columns)))
    return places if at.row.numbers == (2,) and _plane(at) else (range(frames), *places)


def _spread(first: int, extent: int, n: int) -> list[float]:
    """Return n positions of a crop as diffusers spaces them."""
    # xᵢ = s + i · ((s + e) · (n − 1) / n − s) / (n − 1)
    step = ((first + extent) * (n - 1) / n - first) / max(n - 1, 1)
    return [first + i * step for i in range(n)]


_GRIDS: Mapping[str, Callable[[_Component], Lines]] = {
    "video": _video,
    "plane": _plane,
    "image": lambda at: ((0,), *_plane(at)),
    "layered image": lambda at: ((0,), *_plane(at), (0,)),
    "centred": _centred,
    "fitted": _fitted,
    "cropped": _cropped,
}
