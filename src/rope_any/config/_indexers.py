"""
Indexers of sparse attention: how their queries and keys are rotated, and which layers have one.

An indexer scores keys with small heads of its own, and the attention looks at the best of them. The first or the last
features of the index head rotate by the whole cos/sin table of the main attention, so the rotary slice is as wide as
that table. The pairing is the indexer's own: each class of transformers has it fixed in its code. In a layer whose main
attention has no rotary, the indexer has none either.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rope_any._checks import flag, integer, shown
from rope_any._frequencies import as_rows
from rope_any.config._load import Fact, fail

if TYPE_CHECKING:
    from rope_any._pairing import Pairing
    from rope_any.config._part import Part
    from rope_any.config._recipe import Recipe

LARGEST_HEAD = 2**12  # features
MOST_LAYERS = 2**10
MOST_TOKENS = 2**31
ASSUMED_LAYERS = 40  # no class with layer types assumes fewer

SIGNS = (
    "index_head_dim",
    "index_n_heads",
    "index_topk",
    "index_topk_freq",
    "index_topk_pattern",
    "indexer_head_dim",
    "indexer_n_heads",
    "indexer_rope_interleave",
    "indexer_types",
    "sparse_attention_config",
)
"""Keys by which a config tells of an indexer."""


# --- reading ----------------------------------------------------------------------------------------------


def _whole(fact: Fact, least: int, most: int) -> Fact:
    """Return a fact whose value is an integer from `least` to `most`."""
    number = integer(fact.source, fact.value)
    if not least <= number <= most:
        fail(f"{fact.source} must be from {least} to {most}; got {shown(number)}")
    return Fact(number, fact.source)


def _count(part: "Part", key: str, default: int, least: int, most: int = MOST_LAYERS) -> int:
    """Return the number under a key, or what the class assumes."""
    fact = part.get(key)
    return default if fact is None else int(_whole(fact, least, most).value)


def _switch(part: "Part", key: str, *, default: bool) -> bool:
    """Return the flag under a key, or what the class assumes."""
    fact = part.get(key)
    return default if fact is None else flag(fact.source, fact.value)


def _inner(part: "Part", outer: str, key: str) -> Fact | None:
    """Return what stands under a key of an inner object, if it is not null."""
    body = part.get(outer)
    if body is None:
        return None
    if not isinstance(body.value, Mapping):
        msg = f"{body.source} must be an object or null; got {shown(body.value)}"
        raise TypeError(msg)
    value = body.value.get(key)
    return None if value is None else Fact(value, part.name(outer, key))


def _agreed(*facts: Fact | None) -> Fact | None:
    """Return the first fact that is given, if the others agree with it."""
    given = [fact for fact in facts if fact is not None]
    for fact in given[1:]:
        if fact.value != given[0].value:
            fail(f"{fact.source} must agree with {given[0].source}; got {shown(fact.value)}, not {given[0].value}")
    return given[0] if given else None


def _entry(fact: Fact | None, index: int) -> Fact | None:
    """Return the entry of a layer in a list, or None if there is no list."""
    if fact is None:
        return None
    if not isinstance(fact.value, list | tuple):
        msg = f"{fact.source} must be a list with an entry for each layer; got {shown(fact.value)}"
        raise TypeError(msg)
    if index >= len(fact.value):
        fail(f"{fact.source} must have an entry for layer {index}; got {len(fact.value)} entries")
    return Fact(fact.value[index], f"{fact.source}[{index}]")


def _is_one_of(entry: Fact | None, *names: str) -> Fact | None:
    """Return whether the entry of a layer is one of some names; None if there is no entry."""
    return None if entry is None else Fact(entry.value in names, entry.source)


def _meaning(entry: Fact | None, known: Mapping[Any, bool]) -> Fact | None:
    """Return what the entry of a layer means; None if there is no entry."""
    if entry is None:
        return None
    if not isinstance(entry.value, str | int) or entry.value not in known:
        fail(f"{entry.source} must be {' or '.join(map(repr, known))}; got {shown(entry.value)}")
    return Fact(known[entry.value], entry.source)


# --- which layers have an indexer -------------------------------------------------------------------------

_MODES = {"full": True, "shared": False}


def _always(part: "Part", index: int) -> bool:  # noqa: ARG001  # functions of one table have one signature
    """Return that every layer has an indexer."""
    return True


def _scheduled(part: "Part", index: int) -> bool:
    """Whether a layer runs its indexer (full), or reuses the choice of a layer before it (shared)."""
    pattern, letters = part.get("index_topk_pattern"), None
    if pattern is not None and isinstance(pattern.value, str):
        letters = _entry(Fact(list(pattern.value), pattern.source), index)
        pattern = None
    listed = (_meaning(_entry(fact, index), _MODES) for fact in (part.get("indexer_types"), pattern))
    full = _agreed(*listed, _meaning(letters, {"F": True, "S": False}))
    if full is not None:
        return bool(full.value)
    offset, every = _count(part, "index_skip_topk_offset", 2, 0), _count(part, "index_topk_freq", 1, 0)
    return max(index - offset + 1, 0) % max(every, 1) == 0


def _hy_v4(part: "Part", index: int) -> bool:
    """Whether a layer is full by `indexer_types`; by default layer 0, and every fourth from layer 1 on."""
    listed = _meaning(_entry(part.get("indexer_types"), index), _MODES)
    full = listed or Fact(index == 0 or index % 4 == 1, part.default)
    for key in ("index_topk_pattern", "index_topk_freq", "index_skip_topk_offset"):  # which the class does not read
        said = part.get(key)
        _agreed(full, said and Fact(_scheduled(part, index), f"{said.source}, for layer {index},"))
    return bool(full.value)


def _glm5_next(part: "Part", index: int) -> bool:
    """Whether a layer is of sparse attention, by default every fourth, and full."""
    sparse = _is_one_of(_entry(part.get("layer_types"), index), "indexed_attention", "full_attention")
    return (index % 4 == 3 if sparse is None else bool(sparse.value)) and _scheduled(part, index)


def _qwen4(part: "Part", index: int) -> bool:
    """Whether a layer is of sparse attention, which files also call full; by default every fourth."""
    if part.get("indexer_head_dim") is None:
        names = ("indexer_n_heads", "indexer_kv_heads", "indexer_budget", "indexer_compress_ratio")
        if said := next((fact for name in names if (fact := part.get(name))), None):
            fail(f"{part.name('indexer_head_dim')} must be given with {said.source}; got none")
        return False
    every = _count(part, "full_attention_interval", 4, 1)
    sparse = _is_one_of(_entry(part.get("layer_types"), index), "indexed_attention", "full_attention")
    return (index + 1) % every == 0 if sparse is None else bool(sparse.value)


def _dots3(part: "Part", index: int) -> bool:
    """Whether a layer is of sparse attention, which files without sizes by layer call full, unless `use_dsa` is off."""
    by_layer = "per_layer_config" in part.keys
    if not _switch(part, "use_dsa", default=True):
        return False
    renamed = _switch(part, "use_dsa", default=not by_layer and "use_dsa" not in part.keys)
    names = ("indexed_attention", "full_attention") if renamed else ("indexed_attention",)
    sparse = _is_one_of(_entry(part.get("layer_types"), index), *names)
    if sparse is not None:
        return bool(sparse.value)
    return not _switch(part, "use_sliding_window", default=True) or index < 2 or index % 4 == 1


def _minimax(part: "Part", index: int) -> bool:
    """Whether a layer is of sparse attention, by its type or the older list; by default none is."""
    kind = _is_one_of(_entry(part.get("layer_types"), index), "minimax_m3_sparse")
    older = _entry(_inner(part, "sparse_attention_config", "sparse_attention_freq"), index)
    sparse = _agreed(kind, _meaning(older, {0: False, 1: True}))
    return sparse is not None and bool(sparse.value)


def _deepseek_v4(part: "Part", index: int) -> bool:
    """Whether a layer compresses keys by 4, by its type or the older list; by default every second from layer 3 on."""
    kind = _is_one_of(_entry(part.get("layer_types"), index), "compressed_sparse_attention")
    older = _meaning(_entry(part.get("compress_ratios"), index), {0: False, 4: True, 128: False})
    sparse = _agreed(kind, older)
    return index >= 3 and index % 2 == 1 if sparse is None else bool(sparse.value)


# --- the models -------------------------------------------------------------------------------------------


class Indexer(NamedTuple):
    """The indexer of a model."""

    pairing: "Pairing"
    layers: Callable[["Part", int], bool] = _always
    """Whether a layer has an indexer."""
    last: bool = False
    """Whether the last features of the index head rotate, not the first."""
    head: str = "index_head_dim"
    """The key of the index head's width."""
    older: tuple[str, str] | None = None
    """The object and the key that held that width in older files."""
    size: int = 128
    """The width that the class assumes."""
    layer_type: str | None = None
    """The kind of layers whose main parameters apply, if the main attention has parameters by kind."""
    stride: Callable[["Part"], Fact] | None = None
    """Key b is pooled from so many tokens, and has the position of token b · stride. None: a key for each token."""
    still: str = ""
    """Why the indexer has no rotary."""
    learned: str = ""
    """What the weights, not the config, say of the frequencies."""


def _compress_rate(part: "Part") -> Fact:
    """Return how many tokens DeepSeek-V4 pools into one key of the indexer."""
    rates = _inner(part, "compress_rates", "compressed_sparse_attention"), part.get("compress_rate_csa")
    return _agreed(*(_whole(rate, 1, MOST_TOKENS) for rate in rates if rate)) or Fact(4, part.default)


def _compress_ratio(part: "Part") -> Fact:
    """Return how many tokens Qwen4 pools into one key of the indexer."""
    ratio = part.get("indexer_compress_ratio")
    if ratio is None:
        fail(f"{part.name('indexer_compress_ratio')} must be given with {part.name('indexer_head_dim')}; got none")
    return _whole(ratio, 1, MOST_TOKENS)


INDEXERS: dict[str, Indexer] = {
    "axk2": Indexer("half"),
    "deepseek_v32": Indexer("half"),
    "deepseek_v4": Indexer("interleaved", _deepseek_v4, last=True, layer_type="compress", stride=_compress_rate),
    "dots3_note_text": Indexer("interleaved", _dots3, layer_type="indexed_attention"),
    "glm5_next_text": Indexer(
        "interleaved", _glm5_next, still="the attention of glm5_next_text, and so its indexer, has no rotary"
    ),
    "glm_moe_dsa": Indexer("interleaved", _scheduled),
    "hy_v4": Indexer("half", _hy_v4, last=True),
    "minimax_m3_vl_text": Indexer("half", _minimax, older=("sparse_attention_config", "sparse_index_dim")),
    "mistral_large4_text": Indexer(
        "interleaved", _scheduled, learned="times exp(alpha), where alpha is rotary_emb.alpha of the weights"
    ),
    "qwen4_exp_text": Indexer("half", _qwen4, head="indexer_head_dim", stride=_compress_ratio),
}
"""The indexers of transformers, by the `model_type` of the text part."""

REFUSED: dict[str, str] = {
    "step3p5": "the class reads sparse_attention_config, but its attention has no indexer",
}
"""Models whose config may tell of an indexer that their class does not have, with the reason."""


def _indexer(part: "Part") -> Indexer | None:
    """Return the indexer of a model, or None if its config tells of none."""
    row = INDEXERS.get(part.model_type or "")
    if row is not None:
        return row
    said = next((fact for key in SIGNS if (fact := part.get(key))), None)
    if said is not None:
        reason = REFUSED.get(part.model_type or "", "transformers has none for this model, so its rotation is unknown")
        fail(f"{said.source} tells of an indexer, which {part.model_type or 'a model without a type'} lacks: {reason}")
    return None


def has_indexer(part: "Part", index: int, /) -> bool:
    """
    Return whether a layer has an indexer of its own.

    Parameters
    ----------
    part : Part
        The text part of a config.
    index : int
        The layer, from 0.

    Returns
    -------
    bool
        False for a layer that reuses the choice of a layer before it. A layer without rotary may have an indexer; it
        has no rotary then.

    Raises
    ------
    TypeError, ValueError
        If the config does not say what the layer is, or tells of an indexer that the model does not have.
    """
    layer = integer("index", index)
    if layer < 0:
        fail(f"index must not be negative; got {shown(layer)}")
    row = _indexer(part)
    return row is not None and row.layers(part, layer)


def _layer_count(part: "Part") -> int:
    """Return how many layers there are, as stated, as listed, or as classes assume at least."""
    stated, listed = part.get("num_hidden_layers"), part.keys.get("layer_types")
    if stated is not None:
        return int(_whole(stated, 1, MOST_LAYERS).value)
    return len(listed) if isinstance(listed, list) else ASSUMED_LAYERS


# --- the rotation -----------------------------------------------------------------------------------------


def _head_dim(part: "Part", row: Indexer) -> Fact:
    """Return the width of the index head, the same in all layers."""
    by_layer = part.keys.get("per_layer_config")
    for layer, own in by_layer.items() if isinstance(by_layer, Mapping) else ():
        if isinstance(own, Mapping) and row.head in own:
            fail(f"{part.name('per_layer_config', str(layer), row.head)} must not be given: indexers must be alike")
    older = _inner(part, *row.older) if row.older else None
    given = _agreed(*(_whole(fact, 2, LARGEST_HEAD) for fact in (older, part.get(row.head)) if fact))
    if given is None and row.head in part.keys:
        fail(f"{part.name(row.head)} must be a number of features; got null")
    return given or Fact(row.size, part.default)


def _pairing(part: "Part", row: Indexer) -> Fact:
    """Return the pairing of the indexer's class, with which the flag must agree that engines read."""
    said, ours = part.get("indexer_rope_interleave"), f"the indexer of {part.model_type}"
    if said is None:
        return Fact(row.pairing, ours)
    flagged = "interleaved" if flag(said.source, said.value) else "half"
    if flagged != row.pairing:
        fail(
            f"{said.source} must agree with {ours}, whose pairs are {row.pairing!r} in transformers; got {said.value}, "
            f"which engines read as {flagged!r}. Which of the two the weights follow, only their author knows: "
            "pairing= cannot be guessed"
        )
    return Fact(row.pairing, f"{ours}, and {said.source}")


def why_none(part: "Part", /) -> str | None:
    """Return why a model has no indexer, or an indexer without rotary; None if it has one that rotates."""
    row = _indexer(part)
    if row is None:
        return f"{part.model_type} has no indexer"
    if row.still:
        _count(part, "qk_rope_head_dim", 0, 0, 0)
        said = part.get("indexer_rope_interleave")
        return f"{row.still}, whatever {said.source} says" if said else row.still
    if not sum(row.layers(part, i) for i in range(_layer_count(part))):  # each is looked at
        return f"no layer of this {part.model_type} has an indexer"
    return None


def recipe(part: "Part", main: "Recipe | Fact", /) -> "Recipe | Fact":
    """
    Return how the queries and keys of a model's indexers are rotated.

    Parameters
    ----------
    part : Part
        The text part of a config.
    main : Recipe or Fact
        The rotation of the main attention; of the layers of ``INDEXERS[part.model_type].layer_type``, if the model
        tells kinds of layers apart. A fact says that it has none.

    Returns
    -------
    Recipe or Fact
        The main recipe with the pairing, the first feature and the facts of the indexer; ``Fact(None, reason)`` if the
        model has no indexer, or the indexer no rotary.

    Raises
    ------
    TypeError, ValueError
        If the config contradicts the model's class, or tells of an indexer that the class does not have.
    """
    row = _indexer(part)
    reason = why_none(part)
    if row is None or reason is not None:
        return Fact(None, str(reason))
    head, pairing = _head_dim(part, row), _pairing(part, row)
    if isinstance(main, Fact):
        return Fact(None, f"the indexer rotates as the main attention does: {main.source}")
    rotary_dim = 2 * len(as_rows(main.frequencies)[0])
    width = main.facts.get("rotary_dim", Fact(None, "the main attention")).source
    if rotary_dim > head.value:
        fail(f"{head.source} must be at least the {rotary_dim} features that {width} gives; got {head.value}")
    start = head.value - rotary_dim if row.last else 0
    facts = {
        "pairing": pairing,
        "head_dim": head,
        "rotary_dim": Fact(rotary_dim, width),
        "start": Fact(start, f"the {'last' if row.last else 'first'} features, in the indexer of {part.model_type}"),
        **({"key_stride": row.stride(part)} if row.stride else {}),
        **({"frequencies": Fact(row.learned, f"the indexer of {part.model_type}")} if row.learned else {}),
    }
    return main._replace(pairing=row.pairing, start=start, facts={**main.facts, **facts})
