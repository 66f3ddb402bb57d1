"""
Indexers of sparse attention: how their queries and keys are rotated, and which layers have one.

An indexer scores keys with its own small heads, and the main attention reads only the keys with the highest scores. The
first or the last features of the index head rotate by the whole cos/sin table of the main attention, so its rotary
slice is as wide as that table. The indexer has its own pairing, which is fixed in the code of each class of
transformers. In a layer whose main attention has no rotary embedding, the indexer has none either.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rope_any._checks import ArgumentValueError, Text, flag
from rope_any._frequencies import as_rows
from rope_any.config._layers import Layers, first_value, groups_by_label, groups_of_type, layer_count, layer_types
from rope_any.config._load import LARGEST_HEAD, Fact
from rope_any.config._part import LAYERS, Part
from rope_any.config._recipe import Recipe, no_rotation
from rope_any.config._recipe import recipe as text_recipe
from rope_any.config.tables.models import ALL
from rope_any.config.tables.rows import UNKNOWN, Indexer
from rope_any.config.tables.values import between, optional

MOST_TOKENS = 2**31
ASSUMED_LAYERS = 40  # the least default of a class with layer types

SIGNS = (
    *("index_head_dim", "index_n_heads", "index_topk", "index_topk_freq", "index_topk_pattern", "indexer_head_dim"),
    *("indexer_n_heads", "indexer_rope_interleave", "indexer_types", "sparse_attention_config"),
)
"""Keys of indexers; a config with one of them is refused if its model has no indexer."""


# --- which layers have an indexer ------------------------------------------------------------------------


def _indexer(part: Part) -> tuple[Indexer, list[bool]] | str:
    """Return the indexer of a part and whether each layer has its own, or why none rotates. Raise if undetermined."""
    row = ALL.get(part.model_type or "", UNKNOWN)
    given, indexer = next(filter(None, map(part.get, SIGNS)), None), row.indexer
    if indexer is None and given:
        reason = row.no_indexer or "transformers has none for this model, so its rotation is unknown"
        wanted = f"not be given: it is a key of an indexer, and {part.model_type or 'a model without a type'} has none"
        raise ArgumentValueError(given.source, wanted, given.value, reason)
    if indexer is None:
        return f"{part.model_type} has no indexer"
    if indexer.unrotated:
        optional("qk_rope_head_dim", default=0).read(part, between(0, 0))
        flag = part.get("indexer_rope_interleave")
        return f"{indexer.unrotated}, and {flag.source} has no effect" if flag else indexer.unrotated
    width = indexer.width.keys[-1]
    off = bool(indexer.with_head) and part.get(width) is None
    if off and (given := next(filter(None, map(part.get, indexer.with_head)), None)):
        raise ArgumentValueError(part.name(width), f"be given with {given.source}")
    types, pattern = layer_types(part), part.model.pattern
    count = layer_count(part) if first_value(part, LAYERS) else len(types or ()) or ASSUMED_LAYERS
    kinds: Sequence[str | None] = types or [pattern(part, i, count) if pattern else None for i in range(count)]
    having = [not off and indexer.layers(part, i, kind) for i, kind in enumerate(kinds)]
    return (indexer, having) if any(having) else f"no layer of this {part.model_type} has an indexer"


# --- the rotation -----------------------------------------------------------------------------------------


def _head_dim(part: Part, row: Indexer) -> Fact:
    """Return the width of the index head; raise if it is null, out of range or given for one layer."""
    by_layer, key = part.keys.get("per_layer_config"), row.width.keys[-1]
    for layer, own in by_layer.items() if isinstance(by_layer, Mapping) else ():
        if isinstance(own, Mapping) and key in own:
            name = part.name("per_layer_config", str(layer), key)
            raise ArgumentValueError(name, "not be given: all indexers must have one width")
    return row.width.read(part, between(2, LARGEST_HEAD))


def _pairing(part: Part, row: Indexer) -> Fact:
    """Return the pairing of the indexer's class; raise if ``indexer_rope_interleave``, a flag for engines, differs."""
    given, name = part.get("indexer_rope_interleave"), f"the indexer of {part.model_type}"
    if given is None:
        return Fact(row.pairing, name)
    by_flag = "interleaved" if flag(given.source, given.value) else "half"
    if by_flag != row.pairing:
        wanted = f"agree with {name}, whose pairing is {row.pairing!r} in transformers"
        got = Text(f"{given.value}, which engines read as {by_flag!r}")
        hint = "only the author of the weights knows which of the two is right: `pairing` cannot be guessed"
        raise ArgumentValueError(given.source, wanted, got, hint)
    return Fact(row.pairing, f"{name}, and {given.source}")


def may_rotate(part: Part, /) -> bool:
    """Whether a text part has an indexer with rotary embedding, or one that raises when it is read."""
    try:
        return not isinstance(_indexer(part), str)
    except (TypeError, ValueError):
        return True


def canonical(part: Part, read: Callable[[], tuple[Layers, ...]], /) -> tuple[Layers, ...]:
    """
    Return the groups of the text for the layers whose indexer rotates, and one for the others if it has indices.

    `read` returns the groups of the text.
    """
    found = _indexer(part)
    if isinstance(found, str):
        return (Layers(unrotated=found),)
    (row, having), text = found, read()
    used = text if None in groups_by_label(text) else groups_of_type(text, row.layer_type)
    rotating = [group for group in used if not group.unrotated]
    if not rotating:
        why = "the indexer rotates as the main attention does, which has no rotary embedding in any layer"
        return (Layers(unrotated=why),)
    if any(group.indices is None for group in text):
        return tuple(rotating)
    rotating = [group._replace(indices=tuple(i for i in group.indices or () if having[i])) for group in rotating]
    others = {i for group in text for i in group.indices or ()}.difference(*(group.indices or () for group in rotating))
    why = f"these layers of {part.model_type} have no indexer of their own"
    return (*rotating, Layers(indices=tuple(sorted(others)), unrotated=why))


def recipe(part: Part, group: Layers, length: int | None, /) -> Recipe:
    """Return the recipe of the indexers of a group, from that of its main attention. Raise if their heads are small."""
    main, found = text_recipe(part, group, length), _indexer(part)
    if isinstance(found, str):
        raise no_rotation(found)
    row, _ = found
    head, pairing, name = _head_dim(part, row), _pairing(part, row), f"the indexer of {part.model_type}"
    rotary_dim = 2 * len(as_rows(main.rope.frequencies)[0])
    width = main.facts["rotary_dim"].source
    if rotary_dim > head.value:
        raise ArgumentValueError(head.source, f"be at least the {rotary_dim} features that {width} gives", head.value)
    start = head.value - rotary_dim if row.last else 0
    facts = {
        "pairing": pairing,
        "head_dim": head,
        "rotary_dim": Fact(rotary_dim, width),
        "start": Fact(start, f"the {'last' if row.last else 'first'} features, in {name}"),
        **({"key_stride": row.stride.read(part, between(1, MOST_TOKENS))} if row.stride else {}),
    }
    return Recipe(replace(main.rope, pairing=row.pairing, start=start), {**main.facts, **facts})
