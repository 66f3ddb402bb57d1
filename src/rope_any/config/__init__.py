"""
Read the config of a model: its parts, the `Rope` of each layer, the source of each value, positions, today's form.

`Rope.from_config` returns one rotation; these functions report on the whole config. They take a config in the same
forms, and raise TypeError and ValueError for the same reasons.
"""

import cmath
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import getitem
from typing import Any, NamedTuple

from rope_any._arrays import Array
from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, Text, int32, positive, real
from rope_any._frequencies import Row
from rope_any._pairing import Pairing
from rope_any._positions import as_position_array
from rope_any._rope import Rope
from rope_any.config import _parts, _published
from rope_any.config._advise import ALL_WINDOWED, WINDOWED, Advice, Outlook, advice, outlook, sum_over_axes, unscaled
from rope_any.config._canonical import (
    EXTENDED,
    SIZES,
    Layers,
    class_defaults,
    common_value,
    first_value,
    groups_by_label,
    groups_of_type,
    require_layers,
    rope_type_of,
    without_rotary,
)
from rope_any.config._gguf import is_gguf
from rope_any.config._load import Fact, Values, load, same
from rope_any.config._params import form_of
from rope_any.config._part import BASE, COUNT, LENGTHS, SHARE, Part
from rope_any.config._recipe import has_rotary_slice, make_rope, no_rotation, recipe, require_length
from rope_any.config._schemes import ORIGINAL
from rope_any.config._streams import stream
from rope_any.config.tables.words import WITHOUT_ATTENTION

__all__ = [
    "Advice",
    "Explanation",
    "Fact",
    "Outlook",
    "advise",
    "drift",
    "explain",
    "layers",
    "modernize",
    "parts",
    "positions",
    "published",
    "score_scale",
    "wavelengths",
]


class Explanation(NamedTuple):
    """One rotation of a config, and the source of each of its values."""

    layer_type: str | None
    """The type of layers it is for; None if layers don't differ."""
    rope: Rope | None
    """The rotation; None if these layers have no rotary embedding."""
    facts: dict[str, Fact]
    """Each value and its source, by name."""
    layers: tuple[int, ...] | None
    """Indices of layers with this rotation, from 0; () if none has it; None if the config gives no number of layers."""


def published() -> dict[str, dict[str, Any]]:
    """
    Return the configs of well-known models that ship with the library.

    They have the keys that a rotation depends on. Wherever a path of a config is accepted, here and on the command
    line, ``published:NAME`` is too. NAME is a name in this dict, in upper or lower case, with or without the
    organisation; its beginning or end will do if no other name has it.

    Returns
    -------
    dict
        Configs by the name of their model, such as ``Qwen/Qwen3-8B``, new at each call.

    Examples
    --------
    >>> config = ra.config.published()["Qwen/Qwen3-8B"]
    >>> config["rope_theta"]
    1000000
    >>> ra.Rope.from_config(config) == ra.Rope.from_config("published:qwen3-8b")
    True
    """
    return _published.configs()


def parts(config: object, /, *, pairing: Pairing | None = None, factor: float | None = None) -> tuple[str, ...]:
    """
    Return the names of the parts of a model that have rotary embedding.

    Parameters
    ----------
    config, pairing, factor : config and options
        As for `Rope.from_config`. Whether `pairing` is that of the model is checked when a part is read.

    Returns
    -------
    tuple of str
        In order: ``text``; ``indexer`` (of sparse attention); ``vision``, ``audio``; ``transformer`` (of diffusers),
        and its other rotations as ``transformer.audio`` or the like. Other parts have the path of their sub-config,
        such as ``talker_config.code_predictor_config``, and those of a diffusers pipeline the name of a folder. A part
        that no `Rope` can express is included; functions that read it raise with the reason.

    Examples
    --------
    >>> ra.config.parts({"model_type": "deepseek_v32", "qk_rope_head_dim": 64})
    ('text', 'indexer')
    """
    found = _parts.part_readers(config, pairing=pairing, factor=factor)
    return tuple(name for name, reader in found.items() if _parts.rotates(reader))


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
    config, part, sequence_length, pairing, factor : config and options
        As for `Rope.from_config`.

    Returns
    -------
    list of Rope or None
        One for each layer, in order; None for a layer that has no rotary embedding.

    Raises
    ------
    ValueError
        If the config does not give the number of layers, or the type of each layer.

    Examples
    --------
    >>> smol = {"model_type": "smollm3", "head_dim": 128, "num_hidden_layers": 4}
    >>> [rope is not None for rope in ra.config.layers(smol | {"no_rope_layers": [1, 1, 1, 0]})]
    [True, True, True, False]
    """
    reader = _parts.choose_part(_parts.part_readers(config, pairing=pairing, factor=factor), part)
    length = require_length(sequence_length)
    found: dict[int, Rope | None] = {}
    for group in reader.layers():
        rope = None if group.unrotated else make_rope(reader.recipe(group, length))
        if group.indices is None:
            require_layers(reader.part, group.counts)
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
    Return all rotations of a part of a config, with the source of each value.

    Parameters
    ----------
    config, part, layer_type, sequence_length, pairing, factor : config and options
        As for `Rope.from_config`, but by default all types of layers.

    Returns
    -------
    tuple of Explanation
        One for each different rotation, by type of layers if types have their own parameters. If no layer of a type or
        of the part has rotary embedding, it has no `Rope`; other layers without it are left out.

    Examples
    --------
    >>> llama = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32}
    >>> (one,) = ra.config.explain(llama)
    >>> one.facts["rope_theta"]
    Fact(value=10000.0, source='default of llama')
    >>> one.facts["head_dim"]
    Fact(value=128, source='hidden_size // num_attention_heads')
    """
    reader = _parts.choose_part(_parts.part_readers(config, pairing=pairing, factor=factor), part)
    length, groups = require_length(sequence_length), reader.layers()
    explanations: list[Explanation] = []
    for label, same_label in groups_by_label(groups_of_type(groups, layer_type)).items():
        found: dict[Rope, Explanation] = {}
        for group in (group for group in same_label if not group.unrotated):
            made = reader.recipe(group, length)
            # a part with grids has no lengths
            lengths = {} if reader.grid else _lengths(reader.part, group, groups, made.facts)
            facts = {**made.facts, **lengths, **_score_of(reader, group)}
            rope = make_rope(made)
            new = Explanation(label or layer_type, rope, facts, group.indices)
            old = found.setdefault(rope, new)
            if old is not new:
                found[rope] = old._replace(layers=tuple(sorted([*(old.layers or ()), *(new.layers or ())])))
        reasons = [group.unrotated for group in same_label if group.unrotated]
        facts = {"rotary": Fact(None, reason) for reason in reasons[:1]}
        unrotated = [Explanation(label or layer_type, None, facts, ())] if facts else []
        explanations += found.values() or unrotated
    return tuple(explanations)


def _score_of(reader: _parts.PartReader, group: Layers) -> dict[str, Fact]:
    """Return {"score_scale": fact}, with value None and its reason if unknown; {} if `reader` has no score."""
    if reader.score is None:
        return {}
    try:
        return {"score_scale": reader.score(group)}
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
    Return the positions of a grid of tokens, or of a stream of text, images and videos, as the model numbers them.

    Give either `shape` (a grid) or `token_ids` (a stream).

    Parameters
    ----------
    config : dict, path or object with ``to_dict()``
        As for `Rope.from_config`.
    shape : sequence of int, optional
        The tokens of a grid along each axis, (frames, rows, columns) or (rows, columns): patches for a vision tower.
    token_ids : array or nested sequence of int, optional
        The token ids of a stream, ``(batch, seq)``, on the host. Their values are read.
    grids : sequence, optional
        The images and videos of a stream in the order of its tokens, batch row by row: (frames, rows, columns) in
        patches, and for a video of Qwen2.5-VL or an Omni model the seconds between frames.
    mask : array or nested sequence, optional
        0 for padding, ``(batch, seq)``. Padding gets position 0.
    time_advances : bool, optional
        As for `rope_any.positions.mrope`.
    part : str, optional
        The tower or the transformer of a grid, as for `Rope.from_config`. A stream is always text.
    like : array
        Required: gives the library and the device.

    Returns
    -------
    array
        For a grid ``(tokens, axes)``, in the order of the model's tokens: integers if all are whole numbers. For a
        stream ``(batch, seq, 3)``, time, height, width: integers, but floats for Qwen3-Omni.

    Raises
    ------
    ValueError
        If the config does not define the positions of that part, the model's numbering of streams is not known, or
        grids don't fit the tokens.

    Examples
    --------
    >>> tower = {"embed_dim": 64, "num_heads": 2, "spatial_merge_size": 2}
    >>> model = {"model_type": "qwen2_vl", "vision_config": tower}
    >>> ra.config.positions(model, (2, 4), part="vision", like=np.empty(0))[:5].tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]
    """
    if (shape is None) == (token_ids is None):
        raise ArgumentValueError("either shape or token_ids", "be given: a grid or the tokens of a stream, not both")
    if shape is None:
        if part not in (None, "text"):
            raise ArgumentValueError("part", "be text for token_ids", part)
        reader = _parts.choose_part(_parts.part_readers(config), "text")
        return stream(reader.whole, token_ids, grids, like=like, mask=mask, time_advances=time_advances)
    if not isinstance(shape, list | tuple):
        raise ArgumentTypeError("shape", "be a tuple of integers", shape)
    readers = _parts.part_readers(config)
    reader = _parts.choose_part(readers, part)
    found = None if reader.grid is None else reader.grid(tuple(shape))
    if found is None:
        wanted = "be one whose config defines the positions of a grid"
        hint = "for this part, the caller chooses them: see rope_any.positions"
        if part is None and "vision" in readers:
            hint = 'write part="vision" for the patches of images'
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
    Return the factor by which a model multiplies the product of rotated queries and keys, before the softmax.

    Parameters
    ----------
    config, part, layer_type, pairing, factor : config and options
        As for `Rope.from_config`. Indexers have no such scale, and that of diffusers' transformers is not known.

    Returns
    -------
    float
        In most models 1/√head_dim. It does not include the attention factor, which is in cos and sin.

    Raises
    ------
    ValueError
        If the scale is learned or not known, or layers differ in it and no `layer_type` is given.

    Examples
    --------
    >>> ra.config.score_scale({"model_type": "llama", "head_dim": 64})
    0.125
    """
    reader = _parts.choose_part(_parts.part_readers(config, pairing=pairing, factor=factor), part)
    if reader.score is None:
        wanted = "be the text or a tower: only their score scales are known"
        raise ArgumentValueError("part", wanted, NOTHING if part is None else part)
    groups = reader.layers()
    if any(not group.unrotated for group in groups):  # then attention without rotary has a score scale too
        attends = [bool(group.values) and group.layer_type not in WITHOUT_ATTENTION for group in groups]
        groups = tuple(
            each._replace(unrotated=None) if yes else each for each, yes in zip(groups, attends, strict=True)
        )
    scale = common_value(reader.part, groups_of_type(groups, layer_type), reader.score, key=lambda fact: fact.value)
    if isinstance(scale, str):
        raise no_rotation(scale)
    return float(scale.value)


# Rope types whose factor is the extended length over the trained length; that of llama3 is not.
_LENGTH_RATIO = {"linear", "dynamic", "yarn", "longrope"}


def _lengths(part: Part, group: Layers, groups: Iterable[Layers], facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return ``trained_length`` and ``extended_length`` if known; ``stated_length`` is one that may be either."""
    parameters, own = [each.values for each in groups], group.values
    # a group without scaling has the lengths of those with it
    scaled = own if _extends_context(own) else next(filter(_extends_context, parameters), own)
    outer = _token_count(first_value(part, LENGTHS))
    inner = _token_count(scaled.find(EXTENDED))
    of_parameters = (one.find(ORIGINAL) for one in (scaled, *parameters))
    originals = [facts.get(ORIGINAL), part.get(ORIGINAL), *of_parameters]
    trained = next(filter(None, map(_token_count, originals)), None)
    # with scaling, max_position_embeddings may be either length; for rope type dynamic, `outer` is the trained one
    is_dynamic = rope_type_of(scaled) == "dynamic" and "alpha" not in scaled
    if trained is None and (
        is_dynamic or not _extends_context(scaled) or (inner and outer and outer.value < inner.value)
    ):
        trained = outer or inner
    if trained is None:
        undecided = outer if outer and (inner is None or outer.value > inner.value) else None
        return {name: fact for name, fact in (("extended_length", inner), ("stated_length", undecided)) if fact}
    is_ratio = rope_type_of(scaled) in _LENGTH_RATIO and "alpha" not in scaled
    factor = _token_count(scaled.find("factor")) if is_ratio else None
    derived = factor and Fact(trained.value * factor.value, f"{trained.source} * {factor.source}")
    extended = [n for n in (inner, outer, _token_count(derived)) if n is not None and n.value > trained.value]
    return {"trained_length": trained} | ({"extended_length": extended[0]} if extended else {})


def _extends_context(parameters: Values) -> bool:
    """Whether parameters scale the context: they give a trained length, or a `factor` or `alpha` that is not 1."""
    given = [parameters[name] for name in ("factor", "alpha") if name in parameters]
    return ORIGINAL in parameters or not all(same(value, 1) for value in given)


def _token_count(fact: Fact | None) -> Fact | None:
    """Return a fact with its number as an int if whole, else a float; None if it is no finite number of 1 or more."""
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
    Return the number of tokens in which each pair rotates by 2π.

    Parameters
    ----------
    rope : Rope
        If it has several axes, a token is taken to have the same position on all of them.

    Returns
    -------
    tuple of float
        ``2π / abs(f)`` for the frequency of each pair; infinity if it is 0.

    Examples
    --------
    >>> rope = ra.Rope((1.0, 0.5), pairing="half")
    >>> [round(tokens, 2) for tokens in ra.config.wavelengths(rope)]
    [6.28, 12.57]
    """
    return tuple(2 * math.pi / abs(f) if f else math.inf for f in sum_over_axes(rope))


def drift(a: Rope, b: Rope, /, position: float) -> float:
    """
    Return the largest distance between the table entries of two rotations at one position.

    Parameters
    ----------
    a, b : Rope
        Two rotations with the same number of pairs.
    position : float
        The position in tokens, the same on all axes.

    Returns
    -------
    float
        The largest distance between the points ``attention_factor · (cos, sin)`` of one pair: 0 if the tables are
        equal, 2 for opposite points (with attention factor 1).

    Raises
    ------
    ValueError
        If `a` and `b` have different numbers of pairs, or the position is not finite.

    Examples
    --------
    >>> a, b = ra.Rope((1.0,), pairing="half"), ra.Rope((0.5,), pairing="half")
    >>> round(ra.config.drift(a, b, 1.0), 3)
    0.495
    """
    f, g, p = sum_over_axes(a, "a"), sum_over_axes(b, "b"), real("position", position)
    if len(f) != len(g):
        raise ArgumentValueError("a and b", "have the same number of pairs", Text(f"{len(f)} and {len(g)}"))
    if not math.isfinite(p):
        raise ArgumentValueError("position", "be finite", p)
    of_a, of_b = ([rope.attention_factor * cmath.exp(1j * p * x) for x in row] for rope, row in ((a, f), (b, g)))
    return max(abs(x - y) for x, y in zip(of_a, of_b, strict=True))


def advise(
    config: object,
    length: int,
    /,
    *,
    trained_length: int | None = None,
    layer_type: str | None = None,
    pairing: Pairing | None = None,
    factor: float | None = None,
) -> tuple[Advice, ...]:
    """
    Tell what is known from the numbers of a config about a longer context, and which parameters to try.

    Numbers alone decide nothing: only training, or at least a test at that length, does.

    Parameters
    ----------
    config : dict, path or object with ``to_dict()``
        The config of a text model, as for `Rope.from_config`.
    length : int
        The length that the model shall have, in tokens.
    trained_length : int, optional
        The length that it was trained for before any scaling (8192 for Llama 3.1, not 131072). It replaces that of a
        config without scaling, and must agree with that of a config with scaling.
    layer_type : str, optional
        One type of layers. By default all types in the config.
    pairing, factor : optional
        As for `Rope.from_config`.

    Returns
    -------
    tuple of Advice
        One for each different rotation. Layers without rotary embedding are left out.

    Raises
    ------
    ValueError
        If the config is not of a text model, or the trained length is not known or another than the config scales from.

    Notes
    -----
    A pair that never completes a turn within the trained length reaches unseen angles beyond it. The number of features
    in the other pairs is the critical dimension of Liu et al., *Scaling Laws of RoPE-based Extrapolation*,
    arXiv:2310.05209. By their law, further training needs a base of ``(length / 2π) ** (rotary_dim /
    critical_dimension)``. Men et al., *Base of RoPE Bounds Context Length*, arXiv:2405.14591, fit a lower bound of
    ``0.0424 * length ** 1.628`` for heads of 128 features.

    Examples
    --------
    >>> llama2 = {"model_type": "llama", "head_dim": 128, "max_position_embeddings": 4096}
    >>> (one,) = ra.config.advise(llama2, 16384)
    >>> one.critical_dimension, one.unfinished, round(one.bases["arXiv:2310.05209"])
    (92, 18, 56628)
    >>> one.rope_parameters["rope_type"], one.rope_parameters["factor"]
    ('yarn', 4.0)
    """
    n, given = int32("length", length, least=1), None
    if trained_length is not None:
        given = Fact(int32("trained_length", trained_length, least=1), "trained_length")
    whole = load(config)
    reader = _parts.choose_part(_parts.part_readers(whole, pairing=pairing, factor=factor), None)
    if not reader.is_text:
        raise ArgumentValueError("config", "be that of a text model", Text(f"that of {reader.part.model_type}"))
    found = groups_by_label(groups_of_type(reader.layers(), layer_type))
    advices = []
    explanations = explain(whole, layer_type=layer_type, pairing=pairing, factor=factor)
    if all(each.rope is None for each in explanations):
        raise no_rotation(explanations[0].facts["rotary"].source)
    for each in explanations:
        known = each.facts.get("trained_length")
        trained = given or known
        if each.rope is None:
            continue
        if trained is None:
            hint = "the config gives none before its scaling"
            raise ArgumentValueError("trained_length", "be given", NOTHING, hint)
        if known is not None and each.facts["rope_type"].value != "default" and trained.value != known.value:
            hint = "it is the length before any scaling, and the scaling of the config depends on it"
            raise ArgumentValueError("trained_length", f"be {known.value} ({known.source})", trained.value, hint)
        groups = found.get(each.layer_type) or found[None]
        parameters = _modern_parameters(reader.part, each.layer_type, groups) or {}
        window = reader.part.keys.get("sliding_window") if reader.part.model_type in ALL_WINDOWED else None
        in_window = each.layer_type in WINDOWED or (window is not None and window < trained.value)
        where: dict[str, Any] = {"path": reader.part.path, "in_window": in_window}
        made = advice(each.layer_type, each.rope, each.facts, parameters, trained, n, **where)
        advices.append(_test_advice(made, each, whole, reader.part.path))
    return tuple(advices)


def _test_advice(
    untested: Advice, explanation: Explanation, config: Mapping[str, Any], path: tuple[str, ...]
) -> Advice:
    """
    Return the advice after a `Rope` of its parameters is made; without parameters and code if the model refuses.

    If the config has a scaling already, ``schemes`` gets the `Outlook` of the new parameters. For GGUF metadata or a
    params.json, nothing is tested and only ``code`` becomes None.
    """
    if untested.rope_parameters is None:
        return untested
    if is_gguf(config) or form_of(config) is not None:
        return untested._replace(code=None)  # `modernize` refuses these forms
    today = modernize(config)
    part: dict[str, Any] = reduce(getitem, path, today)
    new, label = untested.rope_parameters, untested.layer_type
    changed = {**part, "rope_parameters": new if label is None else {**part["rope_parameters"], label: new}}
    try:
        rope = Rope.from_config(_replace_part(today, path, changed, ()), layer_type=label)
    except (TypeError, ValueError) as error:
        return untested._replace(rope_parameters=None, code=None, reason=f"this model refuses YaRN: {error}")
    if "config" not in untested.schemes or explanation.rope is None:
        return untested  # without a scaling in the config, the parameters are those of scheme "yarn"
    row, trained = unscaled(explanation.rope, explanation.facts), float(untested.trained_length.value)
    new_outlook = outlook(row, sum_over_axes(rope), rope.attention_factor, trained, untested.length)
    return untested._replace(schemes={**untested.schemes, "to try": new_outlook})


def modernize(config: object, /) -> dict[str, Any]:
    """
    Return a config in today's form: all parameters in ``rope_parameters``, under today's names.

    Parameters
    ----------
    config : dict, path or object with ``to_dict()``
        A config of a text model of transformers, as for `Rope.from_config`.

    Returns
    -------
    dict
        A new config of the same rotation. It has ``rope_parameters``, by type of layer if layers differ, with the
        model's defaults filled in, instead of ``rope_scaling`` and older names. Other keys are unchanged, and so is a
        config without rotary embedding.

    Raises
    ------
    ValueError
        If the config is GGUF metadata, a params.json or not of a text model, or if layers of one type differ.

    Examples
    --------
    >>> neox = {"model_type": "gpt_neox", "head_dim": 64}
    >>> neox |= {"rotary_pct": 0.5, "rotary_emb_base": 20_000}
    >>> ra.config.modernize(neox)["rope_parameters"]
    {'rope_type': 'default', 'rope_theta': 20000, 'partial_rotary_factor': 0.5}
    """
    whole = load(config)
    form = "the metadata of a GGUF file" if is_gguf(whole) else form_of(whole)
    if form is not None:
        raise ArgumentValueError("config", "be that of transformers", Text(form))
    # the pairing of an unknown model does not matter here
    reader = _parts.choose_part(_parts.part_readers(whole, pairing="half"), None)
    part, groups = reader.part._replace(pairing=None), reader.layers()
    if not reader.is_text:
        raise ArgumentValueError("config", "be that of a text model", Text(f"that of {part.model_type}"))
    if without_rotary(part) is not None or "rope_parameters" in part.model.ignored:
        return whole
    found = groups_by_label(groups)
    new = {label: _modern_parameters(part, label, same_label) for label, same_label in found.items()}
    names = (key for name in (BASE, SHARE, COUNT) for key in part.key_names(name))
    old = {"rope_scaling", *names, *(layer.key for layer in part.model.layers.values())}
    kept = {key: value for key, value in part.keys.items() if key not in old}
    return _replace_part(whole, part.path, {**kept, "rope_parameters": new.get(None, new)}, {*old, "rope_parameters"})


def _modern_parameters(part: Part, label: str | None, groups: list[Layers]) -> dict[str, Any] | None:
    """Return today's ``rope_parameters`` of one label; None or a null base if none rotates. Raise if groups differ."""
    found = common_value(part, groups, partial(recipe, part), key=make_rope)
    if isinstance(found, str):  # none rotates
        return {"rope_type": "default", "rope_theta": None} if part.model.optional_rotary else None
    given = next(group.values for group in groups if not group.unrotated)
    values = {key: fact.value for key, fact in class_defaults(part, label).items()}
    values |= {LENGTHS[0] if key == EXTENDED else key: value for key, value in given.items() if key not in SIZES}
    counted = COUNT in part.model.sizes or any(name in part.keys for name in part.key_names(COUNT))
    if counted and not has_rotary_slice(part, given) and rope_type_of(given) != "proportional":
        rotary, head = found.facts["rotary_dim"].value, found.facts["head_dim"].value
        share = rotary / head  # today's form has a share instead of a count
        values[SHARE] = share if int(head * share) == rotary else math.nextafter(share, 1)
    if values.get(SHARE) == (part.model.partial or 1) == 1 and COUNT not in part.model.sizes:
        del values[SHARE]
    return {"rope_type": "default", **values}


def _replace_part(
    config: Mapping[str, Any], path: tuple[str, ...], part: dict[str, Any], names: Collection[str]
) -> dict[str, Any]:
    """Return a copy of a config with `part` at a path, and without the keys `names` in the objects around `part`."""
    if not path:
        return part
    outside = {key: value for key, value in config.items() if key not in names}
    return {**outside, path[0]: _replace_part(config[path[0]], path[1:], part, names)}
