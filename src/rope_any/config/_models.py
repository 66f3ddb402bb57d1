"""
Load the facts about each ``model_type`` that its config does not give, from `models.toml`.

The fields of `Model` are the keys of an entry. A rule of an entry is the name of a function below (of `_score` or
`_indexers`, for their keys), or an object with that name as ``rule`` and the function's keyword arguments. An entry
gives only what differs from the defaults: pairing "half" and base 10 000 in every layer.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, Protocol

from rope_any._checks import ArgumentTypeError, ArgumentValueError, integer, positive
from rope_any._pairing import Pairing
from rope_any.config._data import Lazy, content, in_entry
from rope_any.config._load import Fact, entry_of, one_of

Rule = str | Mapping[str, Any]


class Part(Protocol):
    """What rules read of a part of a config; `Part` of `_part` has it."""

    @property
    def keys(self) -> Mapping[str, Any]:
        """The values of the part by key, with names of transformers; null or absent if not given."""

    def get(self, key: str, /) -> Fact | None:
        """Return the value of a key with its source; None if it is missing or null."""


# --- the fields of an entry -------------------------------------------------------------------------------


class Layer(NamedTuple):
    """One kind of layers, for configs of the older form, whose parameters are not by kind of layer."""

    base: float  # the default of the class
    key: str = "rope_theta"  # the key of the base in the older form
    scaled: bool = True  # whether the older ``rope_scaling`` applies to these layers
    attention_factor: float | None = None  # that of yarn in the older form, if the class has another default


class Codes(NamedTuple):
    """A list of numbers, one for each layer, that gives its type in older configs."""

    path: str  # its path, "key" or "object.key"
    types: Mapping[str, str]  # the type by number; "others" for all numbers that are not here


class Switch(NamedTuple):
    """A key, the value of it with which the model has rotary embedding, and the default of the class."""

    key: str
    value: Any
    default: Any = None


class Score(NamedTuple):
    """The factor by which a model multiplies q·k."""

    rule: str = "by_head"  # a function of `_score`
    key: str = ""  # for the rule by_key: the scale is the value of this key to the power below
    power: float = 1
    default: float | None = None  # the default of that key; if None, the scale is 1 / sqrt(head_dim)
    plain: int | None = None  # the default of ``qk_nope_head_dim``, the slice without rotary
    why: str = ""  # for the rule unknown: the reason
    besides: str = ""  # what else the class multiplies q or k by, for the source of the scale
    unless: Mapping[str, Any] = {}  # key, value and default of a key: with this value, `besides` does not apply


class Indexer(NamedTuple):
    """The indexer of a model with sparse attention."""

    pairing: Pairing
    last: bool = False  # whether the last features of the index head rotate, not the first
    head: str = "index_head_dim"  # the key of the index head's width
    older: str = ""  # the path of that width in older files
    size: int = 128  # the default of that width
    with_head: tuple[str, ...] = ()  # keys that require the key `head`; without `head`, no layer has an indexer
    layers: Rule = "every_layer"  # a function of `_indexers`: which layers have an indexer
    layer_type: str | None = None  # the kind of layers whose main parameters apply, if they are by kind
    stride: tuple[str, ...] = ()  # the paths of n, if key b is pooled from n tokens and has the position b · n
    default_stride: int | None = None  # the default of n
    unrotated: str = ""  # why the indexer has no rotary embedding; "" if it has


class Numbering(NamedTuple):
    """How a model numbers the positions of a stream of text, images, videos and audio."""

    ids: str = "usual"  # the keys of its token ids, by a name in `_streams`
    by_frame: bool = False  # whether each frame of a video is an image of its own, perhaps with text between
    newline: bool = False  # whether a token, in one more column, ends each row of an image
    rate: str = ""  # the path of the positions per second of a video; "" if frames are one position apart
    whole: bool = True  # whether times are rounded down to whole positions
    shared: bool = False  # whether the start tokens of a video and of its audio share a position; so do the ends


class Model(NamedTuple):
    """The facts about one ``model_type``."""

    pairing: Pairing = "half"
    base: float = 10_000.0
    # The default share of the head that rotates; None if the class reads none without scaling: then the head rotates.
    partial: float | None = None
    layers: Mapping[str, Layer] = {}  # by layer type, if kinds of layers have their own parameters
    # Whether the class has default parameters that scale, or differ by layer: they are not known here, so the config
    # must give them.
    needs_parameters: bool = False
    axes: str = ""  # how M-RoPE divides the pairs among axes, by a name in `_recipe`
    sections: tuple[int, ...] = ()  # the default sections
    keys: Mapping[str, str] = {}  # its own keys, or paths "object.key", by common name or by "layer type.common name"
    switch: tuple[str, Any, Any] | None = None  # a `Switch`
    has_rotary: Callable[[Part, str, int], bool] = lambda *_: True  # whether a layer rotates; by part, type, index
    pattern: Callable[[Part, int, int], str] | None = None  # the type of layer i of n, if the config lists no types
    codes: Codes | None = None  # the older list of layer types, if the class also reads one
    label: Callable[[str], str] = lambda layer_type: layer_type  # the key of a layer type's parameters
    types: Mapping[str, str] = {}  # names of rope types in older configs of this model, and today's
    parameters: tuple[str, ...] = ()  # keys of `rope_parameters` that few models read, this one among them
    ignored: tuple[str, ...] = ()  # keys that other programs read, but not its class: their value must change nothing
    unread: tuple[str, ...] = ()  # keys about rotary embedding that the model does not read
    text: str = ""  # the ``model_type`` of its text part, for files that do not give it; * is the name of the model
    parts: Mapping[str, str] = {}  # those of its towers, by path, for files that do not give them; * as in `text`
    rotary: bool = True
    alone: str = "text"  # the name of its rotation as a part, if it is not in a larger config
    apart: bool = False  # whether only its parts have rotary embedding
    learned: str = ""  # how the weights change the frequencies, which the config does not say
    sizes: Mapping[str, int] = {}  # defaults, by key or "layer type.key"; those of the whole model only for its parts
    parameters_win: bool = False  # whether a base in the parameters replaces a different one outside, without an error
    rotary_dim: Callable[[Callable[[str], int]], int] | None = None  # how many features rotate, from sizes by name
    trailing: bool = False  # whether the last features of the head rotate
    backwards: bool = False  # whether pairs rotate by minus the angle
    optional_rotary: bool = False  # whether a base of null means no rotary embedding
    slice_by_share: str = ""  # if the class's table (MLA) has a share of the head: "given" in the file, or "computed"
    one_base_if_flat: bool = False  # whether parameters that are not by kind of layer have one base for all kinds
    flag_sets_pairing: bool = False  # whether ``rope_interleave`` sets the pairing; if not, it must agree with it
    score: Score = Score()
    indexer: Indexer | None = None
    no_indexer: str = ""  # why the class has no indexer although configs may have keys of one
    stream: Numbering | None = None


UNKNOWN = Model()
"""The facts about an unknown model: the defaults."""


# --- rules ------------------------------------------------------------------------------------------------


def rules(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return a dict of the functions by their names without the leading underscore."""
    return {function.__name__.removeprefix("_"): function for function in functions}


def rule(known: Mapping[str, Callable[..., Any]], spec: Rule, usual: str = "") -> Callable[..., Any]:
    """Return the function in `known` that `spec` names (or else `usual`), with the keyword arguments of `spec`."""
    given = {"rule": spec} if isinstance(spec, str) else {"rule": usual, **spec}
    return partial(known[given.pop("rule")], **given)


def _count(part: Part, key: str, default: int, least: int = 1) -> int:
    """Return the integer under a key, or `default` if missing or null; raise if no integer, or less than `least`."""
    fact = part.get(key)
    if fact is not None and integer(fact.source, fact.value) < least:
        raise ArgumentValueError(fact.source, "not be negative" if least == 0 else "be positive", fact.value)
    return default if fact is None else int(fact.value)


def indices(part: Part, key: str, default: tuple[int, ...] = ()) -> Sequence[int]:
    """Return the list of ints (of any size) under a key, or `default` if missing or null; raise for anything else."""
    fact = part.get(key)
    if fact is not None and not (isinstance(fact.value, list) and all(type(item) is int for item in fact.value)):
        raise ArgumentTypeError(fact.source, "be a list of integers", fact.value)
    return default if fact is None else fact.value


def _dense_layers(part: Part) -> int:
    """Return how many of the first layers have no experts: ``first_k_dense_replace``, default 0."""
    return _count(part, "first_k_dense_replace", 0, 0)


def _dense_period(part: Part) -> int:
    """Return ``prefix_dense_sliding_window_pattern`` n, else 1: every n-th layer without experts has full attention."""
    return _count(part, "prefix_dense_sliding_window_pattern", 1)


def _every(
    part: Part,
    index: int,
    layers: int,
    *,
    every: int,
    key: str = "",
    first: int = 1,
    since: int = 0,
    from_last: bool = False,
    also: tuple[int, ...] = (),
    kind: str = "full_attention",
    other: str = "sliding_attention",
) -> str:
    """Return `kind` if (index + first) % n is 0 from `since` on, or in `also`, else `other`; n: `key` or `every`."""
    if index in also or index - layers in also:  # a negative one counts from the end
        return kind
    key = key if part.get(key) else f"_{key}"
    given = part.get(key)
    if given and isinstance(given.value, str) and re.fullmatch("L*G", given.value):  # "LLLG": local, …, global
        every = len(given.value)
    else:
        every = _count(part, key, every)
    number = index + first - (layers if from_last else 0)
    return kind if index >= since and number % every == 0 else other


def _in_turn(part: Part, index: int, layers: int, *, types: Sequence[str]) -> str:
    """Return the type of a layer if the list `types` is repeated: ``types[index % len(types)]``."""
    return types[index % len(types)]


def _dense_first(part: Part, index: int, layers: int) -> str:
    """Return "full_attention" for each n-th layer without experts, each m-th with, else "sliding_attention"."""
    dense = _dense_layers(part)
    if index < dense:
        return "sliding_attention" if (index + 1) % _dense_period(part) else "full_attention"
    return _every(part, index - dense, layers, every=4, key="sliding_window_pattern")


def _chunked_if_flagged(part: Part, index: int, layers: int, *, key: str, interval: str) -> str:
    """Return "full_attention" if not `_flagged` or if ``attention_chunk_size`` is null, else "chunked_attention"."""
    chunked = part.keys.get("attention_chunk_size", "the class's") is not None
    return f"{'chunked' if chunked and _flagged(part, '', index, key=key, interval=interval) else 'full'}_attention"


def _sliding(part: Part, layer_type: str, index: int) -> bool:
    """Whether a layer rotates: its type is "sliding_attention"."""
    return layer_type == "sliding_attention"


def _sliding_if_windowed(part: Part, layer_type: str, index: int) -> bool:
    """Whether a layer rotates: its type is "sliding_attention", or ``sliding_window`` is null, but not missing."""
    return part.keys.get("sliding_window", "the class's") is None or layer_type == "sliding_attention"


def _sliding_or_dense(part: Part, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer rotates: "sliding_attention", or dense (by list `key`, else index) and `_dense_period` is 1."""
    kinds = part.get(key)  # a list with "dense" or "sparse" for each layer
    is_dense = one_of(entry_of(kinds, index), ("dense", "sparse")) == "dense" if kinds else index < _dense_layers(part)
    return layer_type == "sliding_attention" or (is_dense and _dense_period(part) == 1)


def _flagged(part: Part, layer_type: str, index: int, *, key: str, interval: str) -> bool:
    """Whether a layer rotates: by 0 or 1 in the list at `key`; without it, all but each n-th, n at `interval` or 4."""
    flags, n = part.get(key), _count(part, interval, 4)
    if flags is None or flags.value == []:
        return (index + 1) % n != 0
    return bool(one_of(entry_of(flags, index), (0, 1)))


def _with_base(part: Part, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer rotates: its base in the list under `key` is not 0 (raise if negative), or there is no list."""
    bases = part.get(key)
    if bases is None:
        return True
    base, source = entry_of(bases, index)
    return base != 0 and positive(source, base) > 0


def _with_base_or_sliding(part: Part, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer rotates: its base in the list under `key` is not 0; without a list, it has no full attention."""
    return _with_base(part, "", index, key=key) if part.get(key) else layer_type != "full_attention"


def _self_attending(part: Part, layer_type: str, index: int) -> bool:
    """Whether a layer rotates: its index is not in `cross_attention_layers` (3, 8, 13, ..., 38 if not given)."""
    return index not in indices(part, "cross_attention_layers", (3, 8, 13, 18, 23, 28, 33, 38))


def _listed(part: Part, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer rotates: its index is in the list under `key`; False without a list."""
    return index in indices(part, key)


def _clvp(size: Callable[[str], int]) -> int:
    """Return how many features rotate in CLVP: at least 32; `size` is a function that returns a size by its key."""
    return max(size("projection_dim") // (2 * size("num_attention_heads")), 32)


def _labelled(layer_type: str, *, others: str, **labels: str) -> str:
    """Return the key of a layer type's parameters: the label of `layer_type` in `labels`, `others` if it has none."""
    return labels.get(layer_type, others)


RULES = rules(
    *(_every, _in_turn, _dense_first, _chunked_if_flagged, _clvp, _labelled),
    *(_sliding, _sliding_if_windowed, _sliding_or_dense, _flagged),
    *(_with_base, _with_base_or_sliding, _self_attending, _listed),
)


# --- the entries ------------------------------------------------------------------------------------------

_TUPLES = {"codes": Codes, "switch": Switch, "score": Score, "indexer": Indexer, "stream": Numbering}
_USUAL = {"has_rotary": "", "pattern": "every", "label": "labelled", "rotary_dim": ""}


def _model_field(key: str, value: Any) -> Any:
    """Return an entry's value for a field of `Model`: rules as functions, tables as NamedTuples, others unchanged."""
    if key in _USUAL:
        return rule(RULES, value, _USUAL[key])
    if key == "layers":
        return {name: Layer(**layer) for name, layer in value.items()}
    return _TUPLES[key](**value) if key in _TUPLES else value


def _models_by_name(entries: Iterable[Mapping[str, Any]]) -> dict[str, Model]:
    """Return the `Model` of each name in the entries, with this name in place of ``*``; raise if an entry is wrong."""
    found = {}
    for entry in entries:
        with in_entry(_FILE, entry):
            model = Model(**{key: _model_field(key, value) for key, value in entry.items() if key != "names"})
        for name in entry["names"].split():
            parts = {path: kind.replace("*", name) for path, kind in model.parts.items()}
            found[name] = model._replace(text=model.text.replace("*", name), parts=parts)
    return found


def read_by(model: Model, /) -> frozenset[str]:
    """Return the keys in a model's entry, which the check of unknown keys about rotary embedding must accept."""
    rules = [rule for rule in (model.has_rotary, model.pattern) if isinstance(rule, partial)]
    named = {name for rule in rules for name in rule.keywords.values() if isinstance(name, str)}
    own = {*model.keys.values(), *model.sizes, *(layer.key for layer in model.layers.values())}
    of_indexer = {"indexer_rope_interleave"} if model.indexer or model.no_indexer else set()
    return frozenset({*named, *own, *of_indexer, *model.unread, *model.ignored, *(model.switch or ())[:1]})


def several_axes_hint(model_type: str | None, /) -> str:
    """Return what to write instead of a value of M-RoPE for a model type whose positions have one axis."""
    near = f"{model_type}_vl_text"
    example = f", such as {near}" if near in MODELS and MODELS[near].axes else ""
    return f"leave it out, or give a model_type whose positions have several axes{example}"


@cache
def model_names(name: str, /) -> tuple[str, ...]:
    """Return all keys, or paths "object.key", that models have for a common name; `name` itself may be one of them."""
    return tuple(dict.fromkeys(model.keys[name] for model in MODELS.values() if name in model.keys))


_FILE = "models.toml"

MODELS: Mapping[str, Model] = Lazy(lambda: _models_by_name(content(_FILE)["model"]))
"""The facts about each ``model_type``; the code of some comes with their weights."""
ALL: Mapping[str, Model] = Lazy(lambda: {**MODELS, **_models_by_name(content(_FILE)["other"])})
"""Those of `MODELS`, and of model types of which only other facts are known, such as their parts."""

_WORDS = content(_FILE)["words"]
WITHOUT_ATTENTION: frozenset[str] = frozenset(_WORDS["without_attention"])
WITH_ATTENTION: frozenset[str] = frozenset(_WORDS["with_attention"])
RENAMED_TYPES: Mapping[str, str] = _WORDS["renamed_types"]
NEUTRAL: Mapping[str, Any] = _WORDS["neutral"]
CHANGES_ATTENTION: Mapping[str, str] = _WORDS["changes_attention"]
DECIDED_BY_MODEL: frozenset[str] = frozenset(_WORDS["decided_by_model"])
OTHER_KEYS: Mapping[str, str] = _WORDS["other_keys"]
OTHER_VALUES: Mapping[str, str] = _WORDS["other_values"]
