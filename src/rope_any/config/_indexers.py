"""
Indexers of sparse attention: how their queries and keys are rotated, and which layers have one.

An indexer scores keys with its own small heads, and the main attention reads only the keys with the highest scores. The
first or the last features of the index head rotate by the whole cos/sin table of the main attention, so its rotary
slice is as wide as that table. The indexer has its own pairing, which is fixed in the code of each class of
transformers. In a layer whose main attention has no rotary embedding, the indexer has none either.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rope_any._checks import ArgumentValueError, Text, flag, integer_between
from rope_any._frequencies import as_rows
from rope_any.config._canonical import first_value, layer_count, layer_types
from rope_any.config._load import LARGEST_HEAD, MOST_LAYERS, Fact, agreed, checked, entry_of, one_of
from rope_any.config._models import ALL, Indexer, rule, rules
from rope_any.config._part import LAYERS, Part

if TYPE_CHECKING:
    from rope_any.config._recipe import Recipe

MOST_TOKENS = 2**31
ASSUMED_LAYERS = 40  # the least default of a class with layer types

SIGNS = (
    *("index_head_dim", "index_n_heads", "index_topk", "index_topk_freq", "index_topk_pattern", "indexer_head_dim"),
    *("indexer_n_heads", "indexer_rope_interleave", "indexer_types", "sparse_attention_config"),
)
"""Keys of indexers; a config with one of them is refused if its model has no indexer."""


# --- reading ----------------------------------------------------------------------------------------------


def _switch(part: Part, key: str, *, default: bool) -> bool:
    """Return the bool under a key, or `default` if it is missing or null; raise if it is no bool."""
    fact = part.get(key)
    return default if fact is None else flag(fact.source, fact.value)


def _first_given(part: Part, keys: Iterable[str]) -> Fact | None:
    """Return the value of the first of `keys` that is neither missing nor null, as a Fact; None if there is none."""
    return next((fact for key in keys if (fact := part.get(key))), None)


def _integer(part: Part, paths: Iterable[str], least: int, most: int) -> Fact | None:
    """Return the integer at any of these paths, None if none is given; raise if two differ or one is out of range."""
    given = filter(None, (part.get(path) for path in paths if path))
    return agreed(*(checked(fact, lambda name, value: integer_between(name, value, least, most)) for fact in given))


def _count(part: Part, key: str, default: int, least: int, most: int = MOST_LAYERS) -> int:
    """Return the integer under a key, `default` if missing or null; raise unless it is from `least` to `most`."""
    fact = _integer(part, [key], least, most)
    return default if fact is None else int(fact.value)


# --- rules: which layers have an indexer ------------------------------------------------------------------

# A "full" layer runs its indexer; a "shared" one reuses the keys that an earlier layer selected.
_MODES: Sequence[str] = ("full", "shared")


def _every_layer(part: Part, index: int, layer_type: str | None) -> bool:  # noqa: ARG001  # all rules have one signature
    """Return True: every layer has an indexer."""
    return True


def _scheduled(part: Part, index: int, layer_type: str | None = None) -> bool:  # noqa: ARG001  # see above
    """Whether a layer runs its own indexer: by lists of modes, which must agree, else by offset and period."""
    types, pattern, modes = part.get("indexer_types"), part.get("index_topk_pattern"), _MODES
    if pattern is not None and isinstance(pattern.value, str):
        pattern, modes = Fact([*pattern.value], pattern.source), "FS"
    full = agreed(_is_full(types, index, _MODES), _is_full(pattern, index, modes))
    if full is not None:
        return bool(full.value)
    # the layers before `offset` are full, then every n-th after the last of these
    offset, every = _count(part, "index_skip_topk_offset", 2, 0), _count(part, "index_topk_freq", 1, 0)
    return max(index - offset + 1, 0) % max(every, 1) == 0


def _is_full(modes: Fact | None, index: int, known: Sequence[str]) -> Fact | None:
    """Return whether the layer's mode in the list `modes` is ``known[0]``; None without a list. Raise if not known."""
    mode = modes and entry_of(modes, index)
    return mode and Fact(one_of(mode, known) == known[0], mode.source)


def _full_layers(
    part: Part,
    index: int,
    layer_type: str | None,  # noqa: ARG001  # see above
    *,
    every: int,
    first: int,
    also: Sequence[int],
) -> bool:
    """Whether a layer runs its own indexer: by ``indexer_types``, else every n-th from `first` on, or in `also`."""
    by_class = Fact(index in also or (index >= first and (index - first) % every == 0), part.default)
    full = _is_full(part.get("indexer_types"), index, _MODES) or by_class
    for key in ("index_topk_pattern", "index_topk_freq", "index_skip_topk_offset"):  # the class does not read these
        given = part.get(key)
        agreed(full, given and Fact(_scheduled(part, index), f"{given.source}, for layer {index},"))
    return bool(full.value)


def _by_type(part: Part, index: int, layer_type: str | None, *, types: Sequence[str], scheduled: bool = False) -> bool:
    """Whether a layer's type is in `types`; if `scheduled`, it must also run its own indexer (`_scheduled`)."""
    return layer_type in types and (not scheduled or _scheduled(part, index))


def _unless_off(part: Part, index: int, layer_type: str | None) -> bool:
    """Whether a layer has an indexer: by `layer_type`, by index if it is None; False if ``use_dsa`` is false."""
    if not _switch(part, "use_dsa", default=True):
        return False
    if layer_type is None:
        return not _switch(part, "use_sliding_window", default=True) or index % 4 == 1 or index == 0
    # whether "full_attention" means the same, as it does by default if the config has neither key
    renamed = _switch(part, "use_dsa", default=not {"per_layer_config", "use_dsa"} & part.keys.keys())
    return layer_type in ("indexed_attention", *["full_attention"] * renamed)


RULES = rules(_every_layer, _scheduled, _full_layers, _by_type, _unless_off)
INDEXERS: Mapping[str, Indexer] = {name: row.indexer for name, row in sorted(ALL.items()) if row.indexer}
REFUSED: Mapping[str, str] = {name: row.no_indexer for name, row in ALL.items() if row.no_indexer}
"""Models whose configs may have keys of an indexer although their class has none, with the reason."""


def _indexer(part: Part) -> Indexer | None:
    """Return the indexer of a model, None if it has none; raise if it has none and its config has keys of indexers."""
    name = part.model_type or ""
    if name not in INDEXERS and (sign := _first_given(part, SIGNS)) is not None:
        reason = REFUSED.get(name, "transformers has none for this model, so its rotation is unknown")
        wanted = f"not be given: it is a key of an indexer, and {name or 'a model without a type'} has none"
        raise ArgumentValueError(sign.source, wanted, sign.value, reason)
    return INDEXERS.get(name)


def layers_with_indexer(part: Part, /) -> list[bool]:
    """Return for each text layer whether it has its own indexer; all False if it is off. Raise if undetermined."""
    row, types, pattern = _indexer(part), layer_types(part), part.model.pattern
    counted = first_value(part, LAYERS)
    count = layer_count(part) if counted else len(types or ()) or ASSUMED_LAYERS
    if row is not None and row.with_head and part.get(row.head) is None:
        if given := _first_given(part, row.with_head):
            raise ArgumentValueError(part.name(row.head), f"be given with {given.source}")
        row = None
    if row is None:
        return [False] * count
    kinds: Sequence[str | None] = types or [pattern(part, i, count) if pattern else None for i in range(count)]
    return [bool(rule(RULES, row.layers)(part, i, kind)) for i, kind in enumerate(kinds)]


# --- the rotation -----------------------------------------------------------------------------------------


def _head_dim(part: Part, row: Indexer) -> Fact:
    """Return the width of the index head, or its default; raise if it is null, out of range or given for one layer."""
    by_layer = part.keys.get("per_layer_config")
    for layer, own in by_layer.items() if isinstance(by_layer, Mapping) else ():
        if isinstance(own, Mapping) and row.head in own:
            name = part.name("per_layer_config", str(layer), row.head)
            raise ArgumentValueError(name, "not be given: all indexers must have one width")
    given = _integer(part, (row.older, row.head), 2, LARGEST_HEAD)
    if given is None and row.head in part.keys:
        raise ArgumentValueError(part.name(row.head), "be a number of features", Text("null"))
    return given or Fact(row.size, part.default)


def _stride(part: Part, row: Indexer) -> Fact:
    """Return how many tokens are pooled into one key: as given, or the default; raise if wrong or without either."""
    given = _integer(part, row.stride, 1, MOST_TOKENS)
    if given is None and row.default_stride is None:
        raise ArgumentValueError(part.name(row.stride[0]), f"be given with {part.name(row.head)}")
    return given or Fact(row.default_stride, part.default)


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


def why_no_rotation(part: Part, /) -> str | None:
    """Return why the indexers of a model don't rotate, whatever its main attention does; None if they do."""
    row = _indexer(part)
    if row is None:
        return f"{part.model_type} has no indexer"
    if row.unrotated:
        _count(part, "qk_rope_head_dim", 0, 0, 0)
        given = part.get("indexer_rope_interleave")
        return f"{row.unrotated}, and {given.source} has no effect" if given else row.unrotated
    if not any(layers_with_indexer(part)):
        return f"no layer of this {part.model_type} has an indexer"
    return None


def recipe(part: Part, main: "Recipe | str", /) -> "Recipe | str":
    """Return the indexers' recipe from the main attention's, or why they don't rotate. Raise if heads are too small."""
    row, reason = _indexer(part), why_no_rotation(part)
    if row is None or reason is not None:
        return str(reason)
    head, pairing, name = _head_dim(part, row), _pairing(part, row), f"the indexer of {part.model_type}"
    if isinstance(main, str):
        return f"the indexer rotates as the main attention does: {main}"
    rotary_dim = 2 * len(as_rows(main.frequencies)[0])
    width = main.facts.get("rotary_dim", Fact(None, "the main attention")).source
    if rotary_dim > head.value:
        raise ArgumentValueError(head.source, f"be at least the {rotary_dim} features that {width} gives", head.value)
    start = head.value - rotary_dim if row.last else 0
    facts = {
        "pairing": pairing,
        "head_dim": head,
        "rotary_dim": Fact(rotary_dim, width),
        "start": Fact(start, f"the {'last' if row.last else 'first'} features, in {name}"),
        **({"key_stride": _stride(part, row)} if row.stride else {}),
    }
    return main._replace(pairing=row.pairing, start=start, facts={**main.facts, **facts})
