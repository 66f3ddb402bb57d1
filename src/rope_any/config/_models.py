"""
Load the facts about each ``model_type`` that its config does not give, from `models.toml`.

The fields of `Model` are the keys of an entry. A rule of an entry is the name of a function below (of `_score` or
`_indexers`, for their keys), or an object with that name as ``rule`` and the function's keyword arguments. An entry
gives only what differs from the defaults: pairing "half" and base 10 000 in every layer.
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
"""A kind of list: the word for its items, and their types."""
INDICES: Kind = ("integers", (int,))
FLAGS: Kind = ("integers", (int, bool))
NUMBERS: Kind = ("numbers", (int, float))
NAMES: Kind = ("names", (str,))


def list_or_none(name: str, value: object, kind: Kind = INDICES) -> list[Any] | None:
    """Return `value`, the value of the key `name`; raise unless it is None or a list of this kind."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) in kind[1] for item in value):
        msg = f"{name} must be a list of {kind[0]}; got {shown(value)}"
        raise TypeError(msg)
    return value


# --- the fields of an entry -------------------------------------------------------------------------------


class Layer(NamedTuple):
    """One kind of layers, for configs of the older form, whose parameters are not by kind of layer."""

    base: float  # the default of the class
    key: str = "rope_theta"  # the key of the base in the older form
    scaled: bool = True  # whether the older ``rope_scaling`` applies to these layers
    attention_factor: float | None = None  # that of yarn in the older form, if the class has another default


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
    by_frame: bool = False  # whether each frame of a video is an image of its own, with text between
    rate: str = ""  # the path of the positions per second of a video; "" if frames are one position apart
    whole: bool = True  # whether times are rounded down to whole positions
    shared: bool = False  # whether the start tokens of a video and of its audio share a position; so do the ends


class Model(NamedTuple):
    """The facts about one ``model_type``."""

    pairing: Pairing = "half"
    base: float = 10_000.0
    partial: float = 1.0  # the default share of the head that rotates
    layers: Mapping[str, Layer] = {}  # by layer type, if kinds of layers have their own parameters
    # Whether the class has default parameters that scale, or differ by layer: they are not known here, so the config
    # must give them.
    needs_parameters: bool = False
    axes: str = ""  # how M-RoPE divides the pairs among axes, by a name in `_recipe`
    sections: tuple[int, ...] = ()  # the default sections
    keys: Mapping[str, str] = {}  # its own names of keys, by common name or by "layer type.common name"
    switch: tuple[str, Any, Any] | None = None  # a `Switch`
    has_rotary: Callable[[Config, str, int], bool] = lambda *_: True  # whether a layer rotates; by config, type, index
    pattern: Callable[[Config, int, int], str] | None = None  # the type of layer i of n, if the config lists no types
    label: Callable[[str], str] = lambda layer_type: layer_type  # the key of a layer type's parameters
    types: Mapping[str, str] = {}  # names of rope types in older configs of this model, and today's
    unread: tuple[str, ...] = ()  # keys about rotary embedding that the model does not read
    text: str = ""  # the ``model_type`` of its text part, for files that do not give it; * is the name of the model
    parts: Mapping[str, str] = {}  # those of its towers, by path, for files that do not give them; * as in `text`
    rotary: bool = True
    alone: str = "text"  # the name of its rotation as a part, if it is not in a larger config
    apart: bool = False  # whether only its parts have rotary embedding
    learned: str = ""  # how the weights change the frequencies, which the config does not say
    base_object: str | None = None  # the key of the object that contains the base
    sizes: Mapping[str, int] = {}  # defaults, by key or "layer type.key"; those of the whole model only for its parts
    parameters_win: bool = False  # whether a base in the parameters replaces a different one outside, without an error
    rotary_dim: Callable[[Callable[[str], int]], int] | None = None  # how many features rotate, from sizes by name
    trailing: bool = False  # whether the last features of the head rotate
    backwards: bool = False  # whether pairs rotate by minus the angle
    optional_rotary: bool = False  # whether a base of null means no rotary embedding
    flag_sets_pairing: bool = False  # whether ``rope_interleave`` sets the pairing; if not, it must agree with it
    score: Score = Score()
    indexer: Indexer | None = None
    no_indexer: str = ""  # why the class has no indexer although configs may have keys of one
    stream: Numbering | None = None


UNKNOWN = Model()
"""The facts about an unknown model: the defaults."""


# --- rules ------------------------------------------------------------------------------------------------


def rules(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return functions by their names without the leading underscore."""
    return {function.__name__.removeprefix("_"): function for function in functions}


def rule(known: Mapping[str, Callable[..., Any]], spec: Rule, usual: str = "") -> Callable[..., Any]:
    """Return the function that `spec` names in `known`, with its arguments; `usual` is the name if it gives none."""
    given = {"rule": spec} if isinstance(spec, str) else {"rule": usual, **spec}
    return partial(known[given.pop("rule")], **given)


def _period(key: str, given: object, default: int) -> int:
    """Return the number of layers in a pattern: `given`, the value of `key`, or `default` if it is None; check it."""
    if given is None:
        return default
    period = integer(key, given)
    if period < 1:
        msg = f"{key} must be positive; got {shown(period)}"
        raise ValueError(msg)
    return period


def _dense_layers(config: Config) -> int:
    """Return how many of the first layers have no experts (MoE)."""
    return integer("first_k_dense_replace", config.get("first_k_dense_replace") or 0)


def _dense_period(config: Config) -> int:
    """Return n, if every n-th of the layers without experts has full attention."""
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
    """
    Return the type of a layer: "full_attention" for every n-th and for the indices `also`, `other` for the rest.

    `key` is the key of n in the config, and `every` its default. The first layer counts as number `first`, or the last
    one as number ``first - 1`` if `from_last`. A negative index in `also` counts from the end.
    """
    if index in also or index - layers in also:
        return "full_attention"
    given = config.get(key, config.get(f"_{key}")) if key else None
    if isinstance(given, str) and re.fullmatch("L*G", given):  # "LLLG": local, local, local, global
        given = len(given)
    number = index + first - (layers if from_last else 0)
    return "full_attention" if number % _period(key, given, every) == 0 else other


def _dense_first(config: Config, index: int, layers: int) -> str:
    """Return the type of a layer in a model whose first layers have no experts and their own pattern."""
    dense = _dense_layers(config)
    if index < dense:
        return "sliding_attention" if (index + 1) % _dense_period(config) else "full_attention"
    return _every(config, index - dense, layers, every=4, key="sliding_window_pattern")


def _by_windows(config: Config, index: int, layers: int) -> str:
    """Return the type of a layer by its entry in `attention_windows`, 0 for full; if it has none, every third is."""
    windows = list_or_none("attention_windows", config.get("attention_windows"))
    if windows is None or index >= len(windows):
        return _every(config, index, layers, every=3)
    return "sliding_attention" if windows[index] else "full_attention"


def _chunked_if_flagged(config: Config, index: int, layers: int, *, key: str, interval: str) -> str:
    """Return the type of a layer: chunked attention if it rotates by its flag (`_flagged`), else full attention."""
    return "chunked_attention" if _flagged(config, "", index, key=key, interval=interval) else "full_attention"


def _sliding(config: Config, layer_type: str, index: int) -> bool:
    """Whether a layer rotates, in models in which only layers with a sliding window do."""
    return layer_type == "sliding_attention"


def _sliding_if_windowed(config: Config, layer_type: str, index: int) -> bool:
    """Whether a layer rotates: it has a sliding window, or the model has no window at all."""
    # A missing key means the window of the class, null means no window.
    return config.get("sliding_window", "the class's") is None or layer_type == "sliding_attention"


def _sliding_or_dense(config: Config, layer_type: str, index: int) -> bool:
    """Whether a layer rotates: it has a sliding window, or no experts in models whose dense layers attend fully."""
    kinds = list_or_none("mlp_layer_types", config.get("mlp_layer_types"), NAMES)
    is_dense = index < _dense_layers(config) if kinds is None else kinds[index : index + 1] == ["dense"]
    return layer_type == "sliding_attention" or (is_dense and _dense_period(config) == 1)


def _flagged(config: Config, layer_type: str, index: int, *, key: str, interval: str) -> bool:
    """Whether a layer's flag in the list `key` is 1; without flags, all but every n-th rotate (n of `interval`)."""
    flags, period = list_or_none(key, config.get(key), FLAGS), _period(interval, config.get(interval), 4)
    return index >= len(flags) or bool(flags[index]) if flags else (index + 1) % period != 0


def _with_base(config: Config, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer rotates: its base in the list `key` is not 0, or it has no entry."""
    bases = list_or_none(key, config.get(key), NUMBERS)
    return bases is None or index >= len(bases) or bool(bases[index])


def _with_base_or_sliding(config: Config, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer rotates: its base in the list `key` is not 0; without a list, it has no full attention."""
    return layer_type != "full_attention" if config.get(key) is None else _with_base(config, "", index, key=key)


def _self_attending(config: Config, layer_type: str, index: int) -> bool:
    """Whether a layer rotates: it has self-attention, since its index is not in `cross_attention_layers`."""
    key = "cross_attention_layers"
    return index not in (list_or_none(key, config.get(key, [3, 8, 13, 18, 23, 28, 33, 38])) or ())


def _listed(config: Config, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer rotates: its index is in the list `key`."""
    return index in (list_or_none(key, config.get(key)) or ())


def _clvp(size: Callable[[str], int]) -> int:
    """Return how many features rotate in CLVP; `size` returns a size by its key."""
    return max(size("projection_dim") // (2 * size("num_attention_heads")), 32)


def _labelled(layer_type: str, *, others: str, **labels: str) -> str:
    """Return the key of a layer type's parameters: that in `labels`, or `others`."""
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
    """Return the value of a key of an entry as the field of `Model`: rules as functions, tables as their tuples."""
    if key in _USUAL:
        return rule(RULES, value, _USUAL[key])
    if key == "layers":
        return {name: Layer(**layer) for name, layer in value.items()}
    return _TUPLES[key](**value) if key in _TUPLES else value


def _models(entries: Iterable[Mapping[str, Any]]) -> dict[str, Model]:
    """Return the `Model` of each name in the entries; raise, with the entry, if one is wrong."""
    found = {}
    for entry in entries:
        with in_entry(_FILE, entry):
            model = Model(**{key: _value(key, value) for key, value in entry.items() if key != "names"})
        for name in entry["names"].split():
            parts = {path: kind.replace("*", name) for path, kind in model.parts.items()}
            found[name] = model._replace(text=model.text.replace("*", name), parts=parts)
    return found


def read_by(model: Model, /) -> frozenset[str]:
    """Return the model's own keys that the check of unknown names about rotary embedding must accept."""
    rules = [rule for rule in (model.has_rotary, model.pattern) if isinstance(rule, partial)]
    named = {name for rule in rules for name in rule.keywords.values() if isinstance(name, str)}
    own = {*model.keys.values(), *model.sizes, *(layer.key for layer in model.layers.values())}
    of_indexer = {"indexer_rope_interleave"} if model.indexer or model.no_indexer else set()
    return frozenset({*named, *own, *of_indexer, *model.unread, *(model.switch or ())[:1]})


@cache
def model_names(name: str, /) -> tuple[str, ...]:
    """Return the keys that models have of their own for a common name, such as ``rope_theta``."""
    return tuple(dict.fromkeys(model.keys[name] for model in MODELS.values() if name in model.keys))


_FILE = "models.toml"

MODELS: Mapping[str, Model] = Lazy(lambda: _models(content(_FILE)["model"]))
"""The facts about each ``model_type``; the code of some comes with their weights."""
ALL: Mapping[str, Model] = Lazy(lambda: {**MODELS, **_models(content(_FILE)["other"])})
"""Those of `MODELS`, and of model types of which only other facts are known, such as their parts."""

_WORDS = content(_FILE)["words"]
WITHOUT_ATTENTION: frozenset[str] = frozenset(_WORDS["without_attention"])
NEUTRAL: Mapping[str, Any] = _WORDS["neutral"]
CHANGES_ATTENTION: Mapping[str, str] = _WORDS["changes_attention"]
OTHER_PROGRAMS: Mapping[str, str] = _WORDS["other_programs"]
