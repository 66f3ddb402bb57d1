"""
Indexers of sparse attention: how their queries and keys are rotated, and which layers have one.

An indexer scores keys with its own small heads, and the main attention reads only the keys with the highest scores. The
first or the last features of the index head rotate by the whole cos/sin table of the main attention, so its rotary
slice is as wide as that table. The indexer has its own pairing, which is fixed in the code of each class of
transformers. In a layer whose main attention has no rotary embedding, the indexer has none either.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rope_any._checks import ArgumentValueError, Text, flag
from rope_any._frequencies import as_rows
from rope_any.config._layers import (
    Layers,
    common_value,
    first_value,
    groups_by_label,
    groups_of_type,
    layer_count,
    layer_types,
)
from rope_any.config._layers import canonical as text_layers
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


def _first_given(part: Part, keys: Iterable[str]) -> Fact | None:
    """Return the value of the first of `keys` that is neither missing nor null, as a Fact; None if there is none."""
    return next((fact for key in keys if (fact := part.get(key))), None)


def _indexer(part: Part) -> Indexer | None:
    """Return the indexer of a model, None if it has none; raise if it has none and its config has keys of indexers."""
    row = ALL.get(part.model_type or "", UNKNOWN)
    if row.indexer is None and (sign := _first_given(part, SIGNS)) is not None:
        reason = row.no_indexer or "transformers has none for this model, so its rotation is unknown"
        wanted = f"not be given: it is a key of an indexer, and {part.model_type or 'a model without a type'} has none"
        raise ArgumentValueError(sign.source, wanted, sign.value, reason)
    return row.indexer


def _layers_with_indexer(part: Part) -> list[bool]:
    """Return for each text layer whether it has its own indexer; all False if it is off. Raise if undetermined."""
    row, types, pattern = _indexer(part), layer_types(part), part.model.pattern
    counted = first_value(part, LAYERS)
    count = layer_count(part) if counted else len(types or ()) or ASSUMED_LAYERS
    if row is not None and row.with_head and part.get(row.width.keys[-1]) is None:
        if given := _first_given(part, row.with_head):
            raise ArgumentValueError(part.name(row.width.keys[-1]), f"be given with {given.source}")
        row = None
    if row is None:
        return [False] * count
    kinds: Sequence[str | None] = types or [pattern(part, i, count) if pattern else None for i in range(count)]
    return [row.layers(part, i, kind) for i, kind in enumerate(kinds)]


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


def _why_no_rotation(part: Part) -> str | None:
    """Return why the indexers of a model don't rotate, whatever its main attention does; None if they do."""
    row = _indexer(part)
    if row is None:
        return f"{part.model_type} has no indexer"
    if row.unrotated:
        optional("qk_rope_head_dim", default=0).read(part, between(0, 0))
        given = part.get("indexer_rope_interleave")
        return f"{row.unrotated}, and {given.source} has no effect" if given else row.unrotated
    if not any(_layers_with_indexer(part)):
        return f"no layer of this {part.model_type} has an indexer"
    return None


def may_rotate(part: Part, /) -> bool:
    """Whether a text part has an indexer with rotary embedding, or one that raises when it is read."""
    try:
        return _why_no_rotation(part) is None
    except (TypeError, ValueError):
        return True


def _main_groups(part: Part) -> tuple[Layers, ...]:
    """Return the text layers whose parameters the indexers use: all groups, or those of the indexer's `layer_type`."""
    groups = text_layers(part)
    if None in groups_by_label(groups):
        return groups
    row = ALL.get(part.model_type or "", UNKNOWN).indexer
    return groups_of_type(groups, row and row.layer_type)


def canonical(part: Part, /) -> tuple[Layers, ...]:
    """Return two groups: layers whose indexer rotates, and the others; one if none does or indices are unknown."""
    main = _main_groups(part) if (reason := _why_no_rotation(part)) is None else ()
    first = next((group for group in main if not group.unrotated), None)
    if first is None:
        why = reason or "the indexer rotates as the main attention does, which has no rotary embedding in any layer"
        return (Layers(unrotated=why),)
    groups, rotating = text_layers(part), Layers(values=first.values)
    if any(group.indices is None for group in groups):
        return (rotating,)
    indexed = _layers_with_indexer(part)
    having = {i for g in groups if not g.unrotated for i in g.indices or () if indexed[i]}
    others = {i for g in groups for i in g.indices or ()} - having
    reason_of_others = f"these layers of {part.model_type} have no indexer of their own"
    return (
        rotating._replace(indices=tuple(sorted(having))),
        Layers(indices=tuple(sorted(others)), unrotated=reason_of_others),
    )


def recipe(part: Part, _group: Layers, length: int | None, /) -> Recipe:
    """Return the indexers' recipe, from that of the main attention. Raise if they don't rotate or heads are small."""

    def read(group: Layers) -> Recipe:
        """Return the recipe of a group of the main attention."""
        return text_recipe(part, group, length)

    main = common_value(part, _main_groups(part), read, key=lambda made: made.rope)
    row, reason = _indexer(part), _why_no_rotation(part)
    if row is None or reason is not None:
        raise no_rotation(str(reason))
    head, pairing, name = _head_dim(part, row), _pairing(part, row), f"the indexer of {part.model_type}"
    if isinstance(main, str):
        raise no_rotation(f"the indexer rotates as the main attention does: {main}")
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
