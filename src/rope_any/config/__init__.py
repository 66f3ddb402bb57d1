"""
Report what a model's config says of its rotation: each layer's `Rope`, each value's source, today's form.

`Rope.from_config` reads one rotation; these functions look at all of it.
"""

import cmath
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from rope_any._arrays import Array
from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, Text, positive, real
from rope_any._frequencies import Row, as_rows
from rope_any._pairing import Pairing
from rope_any._positions import as_position_array
from rope_any._rope import Rope
from rope_any.config import _parts
from rope_any.config._canonical import (
    Layers,
    by_label,
    class_defaults,
    common_value,
    first_value,
    of_type,
    require_layers,
    rope_type_of,
    without_rotary,
)
from rope_any.config._gguf import is_gguf
from rope_any.config._load import Fact, load, same
from rope_any.config._params import form_of
from rope_any.config._part import BASE, COUNT, LENGTHS, SHARE, Part
from rope_any.config._recipe import make_rope, no_rotation, recipe, require_length, rotary_slice
from rope_any.config._schemes import ORIGINAL
from rope_any.config._streams import stream

__all__ = [
    "Explanation",
    "Fact",
    "drift",
    "explain",
    "layers",
    "modernize",
    "parts",
    "positions",
    "score_scale",
    "wavelengths",
]


class Explanation(NamedTuple):
    """One rotation of a config, and where its numbers come from."""

    layer_type: str | None
    """The kind of layers it is for; None where layers don't differ."""
    rope: Rope | None
    """None where these layers have no rotary."""
    facts: dict[str, Fact]
    """Each value and its source (a key, an older key, a default, or what it was derived from), by name."""
    layers: tuple[int, ...] | None
    """The layers that turn so, counted from 0; None where the config does not tell how many there are."""


def parts(config: object, /, *, pairing: Pairing | None = None, factor: float | None = None) -> tuple[str, ...]:
    """
    Return the names of the parts of a model that have rotary embedding.

    Parameters
    ----------
    config : dict, path or object with ``to_dict()``
        As for `Rope.from_config`.
    pairing, factor : optional
        As for `Rope.from_config`.

    Returns
    -------
    tuple of str
        In order: ``text``; ``indexer`` (of sparse attention); ``vision``, ``audio``; ``transformer`` (of diffusers),
        whose further rotations are ``transformer.audio`` and the like. Another part has the path of its sub-config as
        its name, as ``talker_config.code_predictor_config``. A part that no `Rope` can express is among them; to read
        it is an error that says why. Empty if nothing rotates.

    Raises
    ------
    TypeError, ValueError
        As `Rope.from_config`.

    Examples
    --------
    >>> from rope_any.config import parts
    >>> parts({"model_type": "deepseek_v32", "qk_rope_head_dim": 64})
    ('text', 'indexer')
    """
    found = _parts.part_readers(config, pairing=pairing, factor=factor)
    return tuple(name for name, one in found.items() if _parts.rotates(one))


def layers(
    config: object,
    /,
    *,
    part: str | None = None,
    sequence_length: int | None = None,
    pairing: Pairing | None = None,
    factor: float | None = None,
) -> list[Rope | None]:
    """
    Return the rotation of each layer of a model.

    Parameters
    ----------
    config : dict, path or object with ``to_dict()``
        As for `Rope.from_config`.
    part, sequence_length, pairing, factor : optional
        As for `Rope.from_config`.

    Returns
    -------
    list of Rope or None
        One for each layer, in order; None for a layer that has no rotary.

    Raises
    ------
    TypeError, ValueError
        As `Rope.from_config`; or if the number of layers, or what tells them apart, is missing.

    Examples
    --------
    >>> from rope_any.config import layers
    >>> smol = {"model_type": "smollm3", "head_dim": 128, "num_hidden_layers": 4}
    >>> [rope is not None for rope in layers(smol | {"no_rope_layers": [1, 1, 1, 0]})]
    [True, True, True, False]
    """
    one = _parts.choose_part(_parts.part_readers(config, pairing=pairing, factor=factor), part)
    length = require_length(sequence_length)
    found: dict[int, Rope | None] = {}
    for group in one.layers():
        rope = None if group.unrotated else make_rope(one.recipe(group, length))
        if group.indices is None:
            require_layers(one.part)
        found |= dict.fromkeys(group.indices or (), rope)
    return [found[i] for i in sorted(found)]


def explain(
    config: object,
    /,
    *,
    part: str | None = None,
    layer_type: str | None = None,
    sequence_length: int | None = None,
    pairing: Pairing | None = None,
    factor: float | None = None,
) -> tuple[Explanation, ...]:
    """
    Return what a config says, and for each value where it comes from.

    Parameters
    ----------
    config : dict, path or object with ``to_dict()``
        As for `Rope.from_config`.
    part : str, optional
        As for `Rope.from_config`.
    layer_type : str, optional
        One kind of layer. By default all kinds that the config tells apart.
    sequence_length, pairing, factor : optional
        As for `Rope.from_config`.

    Returns
    -------
    tuple of Explanation
        One for each kind of layer, or one in all.

    Raises
    ------
    TypeError, ValueError
        As `Rope.from_config`.

    Examples
    --------
    >>> from rope_any.config import explain
    >>> (told,) = explain({"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32})
    >>> told.facts["rope_theta"]
    Fact(value=10000.0, source='default of llama')
    >>> told.facts["head_dim"]
    Fact(value=128, source='hidden_size // num_attention_heads')
    """
    one = _parts.choose_part(_parts.part_readers(config, pairing=pairing, factor=factor), part)
    length, groups = require_length(sequence_length), one.layers()
    told: list[Explanation] = []
    for label, alike in by_label(of_type(groups, layer_type)).items():
        found: dict[Rope, Explanation] = {}
        for group in (group for group in alike if not group.unrotated):
            made = one.recipe(group, length)
            lengths = {} if one.grid else _lengths(one.part, group, groups, made.facts)  # a grid has none
            facts = {**made.facts, **lengths, **_score_of(one, group)}
            new = Explanation(label or layer_type, make_rope(made), facts, group.indices)
            old = found.setdefault(make_rope(made), new)
            if old is not new:
                layers = (*(old.layers or ()), *(new.layers or ()))
                found[make_rope(made)] = old._replace(layers=tuple(sorted(layers)))
        still = [
            Explanation(label or layer_type, None, {"rotary": fact}, ()) for each in alike if (fact := each.unrotated)
        ]
        told += found.values() or still[:1]
    return tuple(told)


def _score_of(one: _parts.PartReader, group: Layers) -> dict[str, Fact]:
    """Return the fact ``score_scale``, with the reason if it is refused; nothing if the part has no score."""
    if one.score is None:
        return {}
    try:
        return {"score_scale": one.score(group)}
    except (TypeError, ValueError) as error:
        return {"score_scale": Fact(None, str(error))}


def positions(
    config: object,
    shape: Sequence[int] | None = None,
    /,
    *,
    token_ids: Any = None,
    grids: Sequence[Any] = (),
    mask: Any = None,
    time_advances: bool = True,
    part: str | None = None,
    like: Array | None = None,
) -> Array:
    """
    Return the positions of a grid of tokens, or of a stream of text, images and videos, as a model numbers them.

    Parameters
    ----------
    config : dict, path or object with ``to_dict()``
        As for `Rope.from_config`.
    shape : sequence of int, optional
        How many tokens a grid has along its axes: frames, rows and columns, or rows and columns; for a vision tower
        in patches.
    token_ids : array or nested sequence of int, optional
        The ids of a stream, ``(batch, seq)``, on the host. They are looked into.
    grids : sequence, optional
        The images and videos of a stream in the order of its tokens, row by row, each (frames, rows, columns) in
        patches; videos of Qwen2.5-VL and the Omni models with the seconds from frame to frame as a fourth number.
    mask : array or nested sequence, optional
        0 for padding, ``(batch, seq)``, which gets position 0.
    time_advances : bool, optional
        As in `rope_any.positions.mrope`: whether text after a video stands after its last frame.
    part : str, optional
        As for `Rope.from_config`; of a grid a tower or a transformer.
    like : array, optional
        Names the library and the device.

    Returns
    -------
    array
        Of a grid ``(tokens, axes)``, in the order in which the model has the tokens; of a stream
        ``(batch, seq, 3)``: time, height, width. Integers if all are whole numbers.

    Raises
    ------
    TypeError, ValueError
        As `Rope.from_config`; or if the positions of that part are the caller's, the model's numbering of streams is
        not known, or grids don't fit the tokens.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any.config import positions
    >>> tower = {"embed_dim": 64, "num_heads": 2, "spatial_merge_size": 2}
    >>> model = {"model_type": "qwen2_vl", "vision_config": tower}
    >>> positions(model, (2, 4), part="vision", like=np.empty(0))[:5].tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]
    """
    if (shape is None) == (token_ids is None):
        raise ArgumentValueError("either shape or token_ids", "be given: a grid, or the tokens of a stream")
    if shape is None:
        if part not in (None, "text"):
            raise ArgumentValueError("part", "be text for token_ids", part)
        one = _parts.choose_part(_parts.part_readers(config), "text")
        return stream(one.whole, token_ids, grids, like=like, mask=mask, time_advances=time_advances)
    if not isinstance(shape, list | tuple):
        raise ArgumentTypeError("shape", "be a tuple of integers", shape)
    one = _parts.choose_part(_parts.part_readers(config), part)
    found = None if one.grid is None else one.grid(tuple(shape))
    if found is None:
        wanted, hint = "be one whose config numbers a grid", "its positions are the caller's: see rope_any.positions"
        raise ArgumentValueError("part", wanted, NOTHING if part is None else part, hint)
    whole = all(float(p).is_integer() for token in found for p in token)
    lists = [[int(p) if whole else float(p) for p in token] for token in found]
    return as_position_array(lists, like=like)


def score_scale(
    config: object,
    /,
    *,
    part: str | None = None,
    layer_type: str | None = None,
    pairing: Pairing | None = None,
    factor: float | None = None,
) -> float:
    """
    Return what a model multiplies the product of rotated queries and keys by, before the softmax.

    Parameters
    ----------
    config : dict, path or object with ``to_dict()``
        As for `Rope.from_config`.
    part, layer_type, pairing, factor : optional
        As for `Rope.from_config`. Indexers have no such scale, and that of transformers of diffusers is not known.

    Returns
    -------
    float
        In most models 1/√head_dim. The attention factor, which is in cos and sin, is no part of it.

    Raises
    ------
    TypeError, ValueError
        As `Rope.from_config`; or if the scale is learned or not known.

    Examples
    --------
    >>> from rope_any.config import score_scale
    >>> score_scale({"model_type": "llama", "head_dim": 64})
    0.125
    """
    one = _parts.choose_part(_parts.part_readers(config, pairing=pairing, factor=factor), part)
    if one.score is None:
        wanted = "be the text or a tower, whose score scale is known"
        raise ArgumentValueError("part", wanted, NOTHING if part is None else part)
    scale = common_value(one.part, of_type(one.layers(), layer_type), one.score, key=lambda fact: fact.value)
    if scale.value is None:
        raise no_rotation(scale)
    return float(scale.value)


# Rope types whose factor is, by definition, how many times longer sequences become; that of llama3 is not.
_LONGER = {"linear", "dynamic", "yarn", "longrope"}


def _lengths(part: Part, group: Layers, groups: Iterable[Layers], facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """
    Return the trained and the extended length, or the one that is stated where a config doesn't say which it is.

    Beside scaling a `max_position_embeddings` may be either, unless the scheme itself starts from it. That among the
    parameters is the extended one. Layers that are not scaled have the lengths of those that are.
    """
    told, own = [each.parameters for each in groups], group.parameters
    scaled = own if _scales(own) else next(filter(_scales, told), own)
    whole, inner = _counted(first_value(part, LENGTHS)), _counted(scaled.get("max_position_embeddings"))
    originals = [facts.get(ORIGINAL), part.get(ORIGINAL), *(one.get(ORIGINAL) for one in (scaled, *told))]
    trained = next(filter(None, map(_counted, originals)), None)
    starts = rope_type_of(scaled) == "dynamic" and "alpha" not in scaled
    if trained is None and (starts or not _scales(scaled) or (inner and whole and whole.value < inner.value)):
        trained = whole or inner
    if trained is None:
        other = whole if whole and (inner is None or whole.value > inner.value) else None
        return {name: fact for name, fact in (("extended_length", inner), ("stated_length", other)) if fact}
    factor = _counted(scaled.get("factor")) if rope_type_of(scaled) in _LONGER and "alpha" not in scaled else None
    times = factor and Fact(trained.value * factor.value, f"{trained.source} * {factor.source}")
    extended = [n for n in (inner, whole, _counted(times)) if n is not None and n.value > trained.value]
    return {"trained_length": trained} | ({"extended_length": extended[0]} if extended else {})


def _scales(facts: Mapping[str, Fact]) -> bool:
    """Whether positions are scaled by some parameters."""
    return ORIGINAL in facts or any(name in facts and not same(facts[name].value, 1) for name in ("factor", "alpha"))


def _counted(fact: Fact | None) -> Fact | None:
    """Return a number of 1 or more, or None for what is none: a rotation that doesn't need it is read all the same."""
    if fact is None:
        return None
    try:
        number = positive(fact.source, fact.value)
    except (TypeError, ValueError):
        return None
    if number < 1:
        return None
    return Fact(int(number) if number.is_integer() and number < 2**53 else number, fact.source)


def wavelengths(rope: Rope, /) -> Row:
    """
    Return how many tokens each pair takes for a whole turn.

    Parameters
    ----------
    rope : Rope
        With several axes, all are taken to advance together.

    Returns
    -------
    tuple of float
        ``2π / abs(f)``, one for each pair; infinity for a pair that holds still.

    Examples
    --------
    >>> from rope_any import Rope
    >>> from rope_any.config import wavelengths
    >>> [round(tokens, 2) for tokens in wavelengths(Rope((1.0, 0.5), pairing="half"))]
    [6.28, 12.57]
    """
    return tuple(2 * math.pi / abs(f) if f else math.inf for f in _together(rope))


def drift(a: Rope, b: Rope, /, position: float) -> float:
    """
    Return how far the tables of two rotations are apart at a position.

    Parameters
    ----------
    a, b : Rope
        With as many pairs each.
    position : float
        In tokens; on all axes alike.

    Returns
    -------
    float
        The largest distance of two entries ``attention_factor · (cos, sin)`` of one pair: 0 where they agree, 2 where
        a pair points the other way.

    Raises
    ------
    ValueError
        If they turn different numbers of pairs.

    Examples
    --------
    >>> from rope_any import Rope
    >>> from rope_any.config import drift
    >>> round(drift(Rope((1.0,), pairing="half"), Rope((0.5,), pairing="half"), 1.0), 3)
    0.495
    """
    f, g, p = _together(a), _together(b), real("position", position)
    if len(f) != len(g):
        raise ArgumentValueError("a and b", "turn as many pairs each", Text(f"{len(f)} and {len(g)}"))
    turned = (
        a.attention_factor * cmath.exp(1j * p * x) - b.attention_factor * cmath.exp(1j * p * y)
        for x, y in zip(f, g, strict=True)
    )
    return max(map(abs, turned))


def _together(rope: Rope) -> Row:
    """Return the frequencies of positions that are the same on all axes."""
    if not isinstance(rope, Rope):
        raise ArgumentTypeError("rope", "be a Rope", rope)
    return tuple(map(sum, zip(*as_rows(rope.frequencies), strict=True)))


def modernize(config: object, /) -> dict[str, Any]:
    """
    Return a config in today's form: all parameters in ``rope_parameters``, under today's names.

    Parameters
    ----------
    config : dict, path or object with ``to_dict()``
        As for `Rope.from_config`, but for the metadata of a GGUF file, which has no such form.

    Returns
    -------
    dict
        A new config that `Rope.from_config` reads to the same rotation: ``rope_parameters``, by kind of layer where
        layers differ, in place of ``rope_scaling`` and the older names of base and share. What other models' configs
        leave unsaid is said. The rest is as it was; doing it twice changes nothing.

    Raises
    ------
    TypeError, ValueError
        As `Rope.from_config`; or if layers of one type differ, which today's form can't say.

    Examples
    --------
    >>> from rope_any.config import modernize
    >>> neox = {"model_type": "gpt_neox", "head_dim": 64}
    >>> modernize(neox | {"rotary_pct": 0.5, "rotary_emb_base": 20_000})["rope_parameters"]
    {'rope_type': 'default', 'rope_theta': 20000, 'partial_rotary_factor': 0.5}
    """
    whole = load(config)
    if is_gguf(whole):
        raise ArgumentValueError("config", "be that of transformers", Text("the metadata of a GGUF file"))
    if (form := form_of(whole)) is not None:
        raise ArgumentValueError("config", "be that of transformers", Text(form))
    one = _parts.choose_part(
        _parts.part_readers(whole, pairing="half"), None
    )  # of any model: nothing here depends on the pairing
    part, groups = one.part._replace(pairing=None), one.layers()
    if not one.is_text:
        raise ArgumentValueError(
            "config", "be that of a model of text in transformers", Text(f"that of {part.model_type}")
        )
    if without_rotary(part) is not None:
        return whole
    found = by_label(groups)
    new = {label: _today(part, label, alike) for label, alike in found.items()}
    names = (name for thing in (BASE, SHARE, COUNT) for name in part.key_names(thing))
    old = {"rope_scaling", *names, *(layer.key for layer in part.model.layers.values())}
    kept = {key: value for key, value in part.keys.items() if key not in old}
    return _replaced(whole, part.path, {**kept, "rope_parameters": new.get(None, new)}, {*old, "rope_parameters"})


def _today(part: Part, label: str | None, alike: list[Layers]) -> dict[str, Any] | None:
    """Return the parameters of one kind of layer in today's form."""
    found = common_value(part, alike, partial(recipe, part), key=make_rope)
    if isinstance(found, Fact):
        return {"rope_type": "default", "rope_theta": None} if part.model.optional_rotary else None
    given, sizes = next((group.parameters, group.sizes) for group in alike if not group.unrotated)
    values = {key: fact.value for key, fact in {**class_defaults(part, label), **given}.items()}
    counted = COUNT in part.model.sizes or any(name in part.keys for name in part.key_names(COUNT))
    if counted and rotary_slice(part, sizes) is None and rope_type_of(given) != "proportional":
        turning, head = found.facts["rotary_dim"].value, found.facts["head_dim"].value
        share = turning / head  # which a count is in today's form
        values[SHARE] = share if int(head * share) == turning else math.nextafter(share, 1)
    if values.get(SHARE) == part.model.partial == 1 and COUNT not in part.model.sizes:
        del values[SHARE]
    return {"rope_type": "default", **values}


def _replaced(
    whole: Mapping[str, Any], path: tuple[str, ...], part: dict[str, Any], names: Collection[str]
) -> dict[str, Any]:
    """Return a copy of a config with another part at a path, and without some names outside of it."""
    if not path:
        return part
    outside = {key: value for key, value in whole.items() if key not in names}
    return {**outside, path[0]: _replaced(whole[path[0]], path[1:], part, names)}
