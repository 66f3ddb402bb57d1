"""
Load what a config does not say about its model: the facts of each ``model_type``, from `models.toml`.

The fields of `Model` are the keys of an entry. A rule of an entry is the name of a function below (of `_score` or
`_indexers`, for their keys), or an object with that name as ``rule`` beside the function's own arguments. An entry has
what differs from a model that rotates halves, with base 10 000, in every layer.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from rope_any._checks import integer, shown
from rope_any._pairing import Pairing
from rope_any.config._data import Lazy, content, in_entry

Config = Mapping[str, Any]
Rule = str | Mapping[str, Any]

Kind = tuple[str, tuple[type, ...]]
"""What a list can be of: the word for it, and the types of its items."""
INDICES: Kind = ("integers", (int,))
FLAGS: Kind = ("integers", (int, bool))
NUMBERS: Kind = ("numbers", (int, float))
NAMES: Kind = ("names", (str,))


def listed(name: str, value: object, kind: Kind = INDICES) -> list[Any] | None:
    """Return a list of some kind, or None for null; refuse all else, which could only be ignored."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) in kind[1] for item in value):
        msg = f"{name} must be a list of {kind[0]}; got {shown(value)}"
        raise TypeError(msg)
    return value


# --- what an entry can say --------------------------------------------------------------------------------


class Layer(NamedTuple):
    """One kind of layer of a model whose kinds differ, where the config is of the older, flat form."""

    base: float
    key: str = "rope_theta"  # that holds the base of these layers in the older form
    scaled: bool = True  # whether the older ``rope_scaling`` is for these layers


class Switch(NamedTuple):
    """A key, the value that turns rotary on, and what the class assumes."""

    key: str
    value: Any
    default: Any = None


class Score(NamedTuple):
    """What a model multiplies q·k by."""

    rule: str = "by_head"  # in `_score`
    key: str = ""  # of the rule by_key: the scale is its value to some power
    power: float = 1
    default: float | None = None  # of that key; if there is none, 1 / sqrt(head_dim)
    plain: int | None = None  # what the class assumes of ``qk_nope_head_dim``
    why: str = ""  # of the rule unknown
    besides: str = ""  # what else the class does to q or k
    unless: Mapping[str, Any] = {}  # key, value, default: with this value of the key, the class does nothing else


class Indexer(NamedTuple):
    """The indexer of a model with sparse attention."""

    pairing: Pairing
    last: bool = False  # whether the last features of the index head rotate, not the first
    head: str = "index_head_dim"  # the key of the index head's width
    older: str = ""  # the path that held that width in older files
    size: int = 128  # the width that the class assumes
    beside: tuple[str, ...] = ()  # keys that only go with `head`; without it, layers have no indexer
    layers: Rule = "every_layer"  # in `_indexers`: which layers have an indexer
    layer_type: str | None = None  # the kind of layers whose main parameters apply, if they stand by kind
    stride: tuple[str, ...] = ()  # the paths of n, if key b is pooled from n tokens and has the position b · n
    pooled: int | None = None  # the n that the class assumes
    unrotated: str = ""  # why the indexer has no rotary


class Numbering(NamedTuple):
    """How a model numbers a stream of text, images, videos and audio."""

    ids: str = "usual"  # which keys of token ids it has, in `_streams`
    by_frame: bool = False  # whether each frame of a video is an image of its own, with text between
    rate: str = ""  # the path of the positions per second of a video; "" if frames are one position apart
    whole: bool = True  # whether times are rounded down to whole positions
    shared: bool = False  # whether the starts of a video and of its audio have one position, and their ends too


class Model(NamedTuple):
    """Facts of one ``model_type``."""

    pairing: Pairing = "half"
    base: float = 10_000.0
    partial: float = 1.0  # the share of the head that rotates, if the config does not say
    layers: Mapping[str, Layer] = {}
    needs_parameters: bool = (
        False  # whether the class scales or tells layers apart by its own defaults: the config must say how
    )
    axes: str = ""  # how M-RoPE gives pairs to axes
    sections: tuple[int, ...] = ()
    keys: Mapping[str, str] = {}  # its own names of keys, by common name or by "layer type.common name"
    switch: tuple[str, Any, Any] | None = None  # a `Switch`
    has_rotary: Callable[[Config, str, int], bool] = lambda *_: (
        True
    )  # whether a layer rotates, by config, type and index
    pattern: Callable[[Config, int, int], str] | None = None  # type of layer i of n, by config, if it lists none
    label: Callable[[str], str] = lambda layer_type: layer_type  # under which name the parameters of a type stand
    types: Mapping[str, str] = {}  # what rope types are called in older configs of this model
    unread: tuple[str, ...] = ()  # keys that speak of rotary and that the model does not read
    text: str = ""  # the ``model_type`` of its text part, if that does not name its own; * is the name of the model
    parts: Mapping[str, str] = {}  # those of its towers, by path, for files in which they have none; * as in `text`
    rotary: bool = True
    alone: str = "text"  # what its rotation is called if it is no part of a larger config
    apart: bool = False  # whether it is made of parts alone, and has no rotation beside theirs
    learned: str = ""  # what the weights, not the config, say of the frequencies
    inside: str | None = None  # the object in which the base stands, if it has one of its own
    sizes: Mapping[str, int] = {}  # that the class assumes, by key or "layer type.key"; of the whole, for parts alone
    doubled: bool = False  # whether its class keeps a base of its own beside the parameters, which win
    rotary_dim: Callable[[Callable[[str], int]], int] | None = None  # how many features rotate, from sizes by name
    trailing: bool = False  # whether the last features of the head rotate
    backwards: bool = False  # whether pairs rotate by minus the angle
    optional: bool = False  # whether a base of null means no rotary at all
    flagged: bool = False  # whether ``rope_interleave: false`` means halves
    score: Score = Score()
    indexer: Indexer | None = None
    no_indexer: str = ""  # why there is none, where the config may tell of one
    stream: Numbering | None = None


UNKNOWN = Model()
"""A model of which nothing is known."""


# --- rules ------------------------------------------------------------------------------------------------


def rules(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return functions by their names, without the underscore."""
    return {function.__name__.removeprefix("_"): function for function in functions}


def rule(known: Mapping[str, Callable[..., Any]], spec: Rule, usual: str = "") -> Callable[..., Any]:
    """Return the function of a rule, with the arguments that stand beside its name."""
    given = {"rule": spec} if isinstance(spec, str) else {"rule": usual, **spec}
    return partial(known[given.pop("rule")], **given)


def _period(key: str, given: object, default: int) -> int:
    """Return after how many layers a pattern repeats."""
    if given is None:
        return default
    period = integer(key, given)
    if period < 1:
        msg = f"{key} must be positive; got {shown(period)}"
        raise ValueError(msg)
    return period


def _dense_layers(config: Config) -> int:
    """Return how many of the first layers have no experts."""
    return integer("first_k_dense_replace", config.get("first_k_dense_replace") or 0)


def _dense_period(config: Config) -> int:
    """Return which of the layers without experts are of full attention: every n-th."""
    key = "prefix_dense_sliding_window_pattern"
    return _period(key, config.get(key), 1)


def _every(
    config: Config,
    index: int,
    layers: int,
    *,
    every: int,
    key: str = "",
    first: int = 1,
    from_last: bool = False,
    also: tuple[int, ...] = (),
    other: str = "sliding_attention",
) -> str:
    """Return the type of a layer if every n-th, and some by their index, are of full attention, and others are not."""
    if index in also or index - layers in also:
        return "full_attention"
    given = config.get(key, config.get(f"_{key}")) if key else None
    if isinstance(given, str) and re.fullmatch("L*G", given):  # "LLLG": local, local, local, global
        given = len(given)
    place = index + first - (layers if from_last else 0)
    return "full_attention" if place % _period(key, given, every) == 0 else other


def _dense_first(config: Config, index: int, layers: int) -> str:
    """Return the type of a layer if those without experts come first and have a pattern of their own."""
    dense = _dense_layers(config)
    if index < dense:
        return "sliding_attention" if (index + 1) % _dense_period(config) else "full_attention"
    return _every(config, index - dense, layers, every=4, key="sliding_window_pattern")


def _by_windows(config: Config, index: int, layers: int) -> str:
    """Return the type of a layer by its entry in `attention_windows`, 0 for full; every third is full without one."""
    windows = listed("attention_windows", config.get("attention_windows"))
    if windows is None or index >= len(windows):
        return _every(config, index, layers, every=3)
    return "sliding_attention" if windows[index] else "full_attention"


def _chunked_if_flagged(config: Config, index: int, layers: int, *, key: str, interval: str) -> str:
    """Return the type of a layer whose attention is full if it does not rotate."""
    return "chunked_attention" if _flagged(config, "", index, key=key, interval=interval) else "full_attention"


def _sliding(config: Config, layer_type: str, index: int) -> bool:
    """Whether a layer has a window."""
    return layer_type == "sliding_attention"


def _sliding_if_windowed(config: Config, layer_type: str, index: int) -> bool:
    """Whether a layer has a window, in a model that has one; in others all rotate."""
    # An absent window is that of the class, one of null is none.
    return config.get("sliding_window", "the class's") is None or layer_type == "sliding_attention"


def _sliding_or_dense(config: Config, layer_type: str, index: int) -> bool:
    """Whether a layer has a window, or no experts in a model whose layers without experts all rotate."""
    kinds = listed("mlp_layer_types", config.get("mlp_layer_types"), NAMES)
    is_dense = index < _dense_layers(config) if kinds is None else kinds[index : index + 1] == ["dense"]
    return layer_type == "sliding_attention" or (is_dense and _dense_period(config) == 1)


def _flagged(config: Config, layer_type: str, index: int, *, key: str, interval: str) -> bool:
    """Whether the flag of a layer says that it rotates; without flags every n-th does not, n under `interval`."""
    flags, period = listed(key, config.get(key), FLAGS), _period(interval, config.get(interval), 4)
    return index >= len(flags) or bool(flags[index]) if flags else (index + 1) % period != 0


def _with_base(config: Config, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer has a base that is not 0."""
    bases = listed(key, config.get(key), NUMBERS)
    return bases is None or index >= len(bases) or bool(bases[index])


def _with_base_or_sliding(config: Config, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer has a base that is not 0; if none are listed, whether it has a window."""
    return layer_type != "full_attention" if config.get(key) is None else _with_base(config, "", index, key=key)


def _self_attending(config: Config, layer_type: str, index: int) -> bool:
    """Whether a layer is none of cross attention."""
    key = "cross_attention_layers"
    return index not in (listed(key, config.get(key, [3, 8, 13, 18, 23, 28, 33, 38])) or ())


def _listed(config: Config, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer is in the list under a key."""
    return index in (listed(key, config.get(key)) or ())


def _clvp(size: Callable[[str], int]) -> int:
    """Return how many features rotate in CLVP."""
    return max(size("projection_dim") // (2 * size("num_attention_heads")), 32)


def _labelled(layer_type: str, *, others: str, **labels: str) -> str:
    """Return the label of a layer type."""
    return labels.get(layer_type, others)


RULES = rules(
    *(_every, _dense_first, _by_windows, _chunked_if_flagged, _clvp, _labelled),
    *(_sliding, _sliding_if_windowed, _sliding_or_dense, _flagged),
    *(_with_base, _with_base_or_sliding, _self_attending, _listed),
)


# --- the entries ------------------------------------------------------------------------------------------

_TUPLES = {"switch": Switch, "score": Score, "indexer": Indexer, "stream": Numbering}
_USUAL = {"has_rotary": "", "pattern": "every", "label": "labelled", "rotary_dim": ""}


def _value(key: str, value: Any) -> Any:
    """Return what stands under a key of an entry, as `Model` has it."""
    if key in _USUAL:
        return rule(RULES, value, _USUAL[key])
    if key == "layers":
        return {name: Layer(**layer) for name, layer in value.items()}
    return _TUPLES[key](**value) if key in _TUPLES else value


def _models(entries: Iterable[Mapping[str, Any]]) -> dict[str, Model]:
    """Return a model for each name of each entry."""
    found = {}
    for entry in entries:
        with in_entry(_FILE, entry):
            model = Model(**{key: _value(key, value) for key, value in entry.items() if key != "names"})
        for name in entry["names"].split():
            parts = {path: kind.replace("*", name) for path, kind in model.parts.items()}
            found[name] = model._replace(text=model.text.replace("*", name), parts=parts)
    return found


def read_by(model: Model, /) -> frozenset[str]:
    """Return the names on rotary that a model has of its own."""
    rules = [rule for rule in (model.has_rotary, model.pattern) if isinstance(rule, partial)]
    named = {name for rule in rules for name in rule.keywords.values() if isinstance(name, str)}
    own = {*model.keys.values(), *model.sizes, *(layer.key for layer in model.layers.values())}
    beside = {"indexer_rope_interleave"} if model.indexer or model.no_indexer else set()
    return frozenset({*named, *own, *beside, *model.unread, *(model.switch or ())[:1]})


@cache
def model_names(thing: str, /) -> tuple[str, ...]:
    """Return the names that some models have of their own for a thing."""
    return tuple(dict.fromkeys(model.keys[thing] for model in MODELS.values() if thing in model.keys))


_FILE = "models.toml"

MODELS: Mapping[str, Model] = Lazy(lambda: _models(content(_FILE)["model"]))
"""What is known of each ``model_type``; some are of code that comes with the weights."""
ALL: Mapping[str, Model] = Lazy(lambda: {**MODELS, **_models(content(_FILE)["other"])})
"""The same, and model types whose own rotation is not known here, or which have none that a text part could have."""

_WORDS = content(_FILE)["words"]
WITHOUT_ATTENTION: frozenset[str] = frozenset(_WORDS["without_attention"])
NEUTRAL: Mapping[str, Any] = _WORDS["neutral"]
CHANGES_ATTENTION: Mapping[str, str] = _WORDS["changes_attention"]
OTHER_PROGRAMS: Mapping[str, str] = _WORDS["other_programs"]
