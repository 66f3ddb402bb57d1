"""
Move the keys of a whole cache of transformers to other positions, each layer by its own rotation.

It recognises the classes of transformers by their names, so that it does not import that package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace as changed
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from rope_any._align import expand_positions, given_positions, query_tail, tokens_of
from rope_any._arrays import is_array, library
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, int32
from rope_any._frequencies import as_rows
from rope_any._pairing import Pairing
from rope_any._positions import Positions, as_position_array, by_axis
from rope_any._rope import Rope
from rope_any.config import Config, read
from rope_any.config._config import readers_of
from rope_any.config._part import Part
from rope_any.config._parts import choose_part
from rope_any.config._recipe import LONGEST

_HYBRID = "LinearAttentionAnd"
KINDS = dict.fromkeys(("DynamicLayer", "DynamicSlidingWindowLayer", "DynamicIndexedLayer"), False)
KINDS |= dict.fromkeys((f"{_HYBRID}FullAttentionLayer", f"{_HYBRID}SlidingWindowAttentionLayer"), False)
KINDS |= dict.fromkeys(("LinearAttentionLayer", "DummyLayer"), False)  # without keys
KINDS |= dict.fromkeys(("StaticLayer", "StaticSlidingWindowLayer", "StaticIndexedLayer"), True)
KINDS |= dict.fromkeys((f"{_HYBRID}StaticFullAttentionLayer", f"{_HYBRID}StaticSlidingWindowAttentionLayer"), True)
"""The classes of layers that are known, and whether they are static: their tensors stay, and are written in place."""

Ropes: TypeAlias = tuple[Rope, Rope]
"""The rotation at the old positions, and that at the new ones."""


class Rotated(NamedTuple):
    """A tensor of rotated keys in a layer of a cache, and its rotations."""

    layer: Any
    name: str
    """The attribute of the layer."""
    seen: int
    """How many tokens the layer has seen; it holds the last of them."""
    held: Tensor
    """The keys without unused slots: ``(batch, heads, tokens, features)``, those of an indexer without heads."""
    ropes: Ropes
    weights: Tensor | None
    """What the model multiplies rotated keys by."""


def reposition(
    cache: Any,
    model: Any,
    old: Positions | None,
    new: Positions | None,
    /,
    *,
    old_length: int | None = None,
    new_length: int | None = None,
) -> None:
    """
    Move all keys of a cache of transformers from positions `old` to positions `new`, in place.

    Parameters
    ----------
    cache : transformers.Cache
        A dynamic or static cache, of one attention or of encoder and decoder. Of the latter, the self attention moves.
    model : torch.nn.Module or config
        The model that filled the cache, or its config. A model that normalises rotated keys is needed itself.
    old, new : positions
        The present and future positions of the tokens in the cache, as for `Rope.reposition`: that of the first token,
        ``(seq,)`` or ``(batch, seq)``, with several axes ``(seq, axes)`` or ``(batch, seq, axes)``. A layer with a
        sliding window, which holds only the last tokens, takes the last positions.
    old_length, new_length : int, optional
        The lengths, in tokens, for which the rotations at `old` and at `new` were made, if they depend on it (dynamic,
        longrope).

    Raises
    ------
    TypeError
        If `cache` is no cache of transformers, and as for `Rope.from_config` and `Rope.reposition`.
    ValueError
        If a layer is of another class (quantised, compressed), or has seen another number of tokens; if the model is
        not known, has learned frequencies or no rotary embedding; if the positions don't fit, a length is missing, or
        weights of a norm after the rotation are missing or zero. The cache is then unchanged.

    Notes
    -----
    All new keys are computed before any is written, which takes memory for both. Dynamic layers get new tensors, and
    static layers keep theirs. Only rotated keys of self attention change. Each call rounds them as `Rope.reposition`
    does; norms after the rotation are undone and repeated in float64.
    """
    given = {"old_length": old_length, "new_length": new_length}
    lengths = [None if length is None else int32(name, length, least=1) for name, length in given.items()]
    rotated = list(_all_rotated_keys(cache, model, *lengths))
    if len({each.seen for each in rotated}) > 1:
        wanted, got = "hold the same tokens in all layers", Text(f"layers that have seen {[x.seen for x in rotated]}")
        hint = "select the same tokens in each, and set cumulative_length of those with a window"
        raise ArgumentValueError("cache", wanted, got, hint)
    moved = [_moved_keys(each, old, new) for each in rotated]
    with torch.inference_mode():  # which also writes to tensors made in it
        for (layer, name, _, held, *_), keys in zip(rotated, moved, strict=True):
            if KINDS[type(layer).__name__]:
                held.copy_(keys)
            else:
                setattr(layer, name, keys)


def _all_rotated_keys(cache: Any, model: Any, *lengths: int | None) -> Iterator[Rotated]:
    """
    Yield the rotated keys of each layer and indexer of a cache, but not of cross attention.

    `model` may be its config; `lengths` are the old and new sequence length. Raise if keys can't move to new positions.
    """
    kinds = {kind.__name__ for kind in type(cache).__mro__ if kind.__module__ == "transformers.cache_utils"}
    if "Cache" not in kinds or kinds & {"MtpCache", "DFlashCache"}:  # theirs are not the layers of the config
        raise ArgumentTypeError("cache", "be the cache of a model of transformers", Text(type(cache).__name__))
    config = read(getattr(model, "config", None) if isinstance(model, nn.Module) else model)
    part = choose_part(readers_of(config), None).part
    ropes, latent = _ropes(config, part, None, lengths), part.model.latent
    weights = _norm_weights(model, len(ropes)) if part.model.normed else {}
    rotated = [("values" if latent else "keys", ropes, latent, weights)]
    cached = getattr(cache, "self_attention_cache", cache).layers  # cross attention does not rotate
    if any(getattr(layer, "indexer_keys", None) is not None for layer in cached):
        # Indexers sort features as the latent attention of their model does, and else have pairing "half".
        rotated.append(("indexer_keys", _ropes(config, part, "indexer", lengths), latent or "half", {}))
    for index, layer in {id(layer): (index, layer) for index, layer in enumerate(cached)}.values():
        for name, by_layer, pairing, factors in rotated:
            own = _ropes_of_layer(by_layer, index)
            if own is not None and _has_keys(layer, name):
                yield _rotated_keys(layer, name, own, pairing, factors.get(index))


def _ropes(config: Config, part: Part, name: str | None, lengths: tuple[int | None, ...]) -> list[Ropes | None]:
    """
    Return for each layer its rotations at the two `lengths` (old, new), or None if it doesn't rotate.

    `name` is "indexer" for those of the part's indexer. Raise if no layer rotates, or if the config leaves one unclear.
    """
    refused = part.model.unmovable or (part.model.learned and f"frequencies {part.model.learned}")
    if refused:
        raise ArgumentValueError("model", "have keys that rotate by its config alone", Text(f"one with {refused}"))
    if not part.model.rotary:
        raise ArgumentValueError("model", "have rotary embedding", Text(str(part.model_type)))
    by_length = {length: config.layers(part=name, sequence_length=length) for length in {*lengths, LONGEST}}
    for argument, length in zip(("old_length", "new_length"), lengths, strict=True):
        if length is None and by_length[None] != by_length[LONGEST]:
            raise ArgumentValueError(argument, "be given for this model, whose rotation depends on it", None)
    if not any(by_length[LONGEST]):
        raise ArgumentValueError("model", "have rotary embedding", Text(str(part.model_type)))
    both = zip(*(by_length[length] for length in lengths), strict=True)
    return [None if old is None or new is None else (old, new) for old, new in both]


def _ropes_of_layer(ropes: list[Ropes | None], index: int) -> Ropes | None:
    """Return the rotations of a cache's layer, or None; beyond `ropes`, their common ones: raise if they differ."""
    if index < len(ropes):
        return ropes[index]
    # in some models a layer of the config has several in the cache
    if len(set(ropes)) > 1:
        wanted = f"have one layer for each of the {len(ropes)} layers of the config, which differ"
        raise ArgumentValueError("cache", wanted, index + 1)
    return ropes[0]


def _has_keys(layer: Any, name: str) -> bool:
    """Whether a cache's layer holds keys in the attribute `name`; raise for an unknown class, or stored positions."""
    kind, keys = type(layer), getattr(layer, name, None)
    if kind.__name__ not in KINDS or kind.__module__ != "transformers.cache_utils":
        raise ArgumentValueError("cache", "have layers that hold plain keys", Text(f"one of class {kind.__name__}"))
    if getattr(layer, "indexer_position_ids", None) is not None:
        raise ArgumentValueError("cache", "hold no positions", Text("a layer with indexer_position_ids"))
    return keys is not None and keys.numel() > 0 and layer.get_seq_length() > 0


def _norm_weights(model: Any, count: int) -> dict[int, Tensor]:
    """Return the weights of ``key_layernorm`` by layer index; raise unless `count` layers have finite, nonzero ones."""
    modules: Iterable[Any] = model.modules() if isinstance(model, nn.Module) else ()
    norms = {m.layer_idx: m.key_layernorm for m in modules if hasattr(m, "key_layernorm")}
    found: dict[Any, Tensor] = {index: norm.weight.detach() for index, norm in norms.items()}
    if len(found) != count:
        wanted, got = "be the model itself, whose norms after the rotation have weights", Text(type(model).__name__)
        raise ArgumentValueError("model", wanted, got)
    if not all(bool(((w != 0) & w.isfinite()).all()) for w in found.values()):
        wanted = "have weights of key_layernorm other than zero, by which keys are divided"
        raise ArgumentValueError("model", wanted, Text("some that are zero or not finite"))
    return found


def _rotated_keys(layer: Any, name: str, ropes: Ropes, pairing: Pairing | None, weights: Tensor | None) -> Rotated:
    """
    Return the keys ``layer.name`` as a `Rotated`, without unused slots; a `pairing` replaces that of both `ropes`.

    `weights`, of a norm after the rotation, are kept in it. Raise if the keys' shape doesn't fit the rotation or layer.
    """
    keys, seen = getattr(layer, name), int(layer.get_seq_length())
    if pairing is not None:
        old, new = (changed(rope, pairing=pairing) for rope in ropes)
        ropes = old, new
    width = 2 * len(as_rows(ropes[0].frequencies)[0])
    if name == "values" and (keys.shape[1], keys.shape[-1]) != (1, width):
        wanted = f"hold the {width} rotated features of latent attention as values"
        raise ArgumentValueError("cache", wanted, Text(f"shape {tuple(keys.shape)}"))
    if not KINDS[type(layer).__name__] and keys.shape[-2] > seen:
        wanted, got = "have a cumulative_length of at least its keys", Text(f"{seen} for {keys.shape[-2]} keys")
        raise ArgumentValueError("cache", wanted, got)
    return Rotated(layer, name, seen, keys[..., :seen, :], ropes, weights)


def _moved_keys(rotated: Rotated, old: Positions | None, new: Positions | None) -> Tensor:
    """Return keys moved from positions `old` to `new`, as a new tensor; the weights of a norm are undone and redone."""
    keys, weights = rotated.held, rotated.weights
    source, rope = rotated.ropes
    places = _last_positions("old", old, rotated, source), _last_positions("new", new, rotated, rope)
    if weights is None:
        return rope.reposition(keys, *places, source=source)
    weights = weights.to(keys.device, torch.float64 if library(keys=keys).has_float64(keys) else torch.float32)
    return (rope.reposition(keys / weights, *places, source=source) * weights).to(keys.dtype)


def _last_positions(name: str, positions: Positions | None, rotated: Rotated, rope: Rope) -> Tensor:
    """
    Return the positions of the keys that a layer holds: the last of `positions`; raise for a wrong number of them.

    `positions` are those of all tokens that the layer has seen, the first as a number, or an array with one for all.
    """
    keys, seen = rotated.held, rotated.seen
    lib = library(keys=keys, **({name: positions} if is_array(positions) else {}))
    axes = len(rope.frequencies) if isinstance(rope.frequencies[0], tuple) else None
    tokens = tokens_of(lib, "keys", keys, -2)._replace(count=seen)
    given = expand_positions(tokens, given_positions(positions, like=keys, name=name), axes, name=name)
    along = as_position_array(given, like=keys, name=name, lib=lib)
    shape = tuple(by_axis(along, axes, name=name)[0].shape)
    if shape[-1:] not in ((1,), (seen,)):
        wanted = f"have a position for each of the {seen} tokens"
        raise ArgumentValueError(name, wanted, Text(f"shape {tuple(along.shape)}"))
    axis = -1 if axes is None else -2
    return query_tail(along.to(keys.device), keys.shape[-2], seen, axis=axis)  # type: ignore[no-any-return]
