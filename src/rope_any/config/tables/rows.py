"""The types of the rows: each field is a fact, with its meaning and the most common case as its default."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from rope_any._checks import ArgumentValueError, Text
from rope_any._frequencies import Frequencies
from rope_any._pairing import Pairing
from rope_any._positions import Coordinates
from rope_any.config._load import Fact
from rope_any.config.tables import grid_rules as rules
from rope_any.config.tables.grid_rules import Given, Shape, Sides, Split
from rope_any.config.tables.rules import Heads, always, by_head
from rope_any.config.tables.values import Part, Value, optional, value

Axes: TypeAlias = Literal["", "chunked", "strided", "alternating", "last for time", "doubled"]
Row = TypeVar("Row")


def by_name(*tables: Mapping[str, Row]) -> dict[str, Row]:
    """Return the rows by each of the names in the keys, which spaces separate; raise if a name is there twice."""
    found: dict[str, Row] = {}
    for names, row in (item for table in tables for item in table.items()):
        for name in names.split():
            if name in found:
                raise ArgumentValueError("names", "not be those of an earlier row", Text(name))
            found[name] = row
    return found


# --- models -----------------------------------------------------------------------------------------------


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

    rule: Callable[[Heads], Fact] = by_head
    besides: str = ""  # what else the class multiplies q or k by, for the source of the scale
    unless: Switch | None = None  # the value of a key with which `besides` does not apply


class Indexer(NamedTuple):
    """The indexer of a model with sparse attention."""

    pairing: Pairing
    last: bool = False  # whether the last features of the index head rotate, not the first
    width: Value = value("index_head_dim", default=128)  # of the index head; today's key last
    with_head: tuple[str, ...] = ()  # keys that require that key; without it, no layer has an indexer
    layers: Callable[[Part, int, str | None], bool] = always  # whether a layer has an indexer; by part, index, type
    layer_type: str | None = None  # the kind of layers whose main parameters apply, if they are by kind
    stride: Value | None = None  # n, if key b is pooled from n tokens and has the position b · n
    unrotated: str = ""  # why the indexer has no rotary embedding; "" if it has


class Numbering(NamedTuple):
    """How a model numbers the positions of a stream of text, images, videos and audio."""

    ids: Literal["usual", "glm", "omni"] = "usual"  # the keys of its token ids, by a name in `_streams`
    by_frame: bool = False  # whether each frame of a video is an image of its own, perhaps with text between
    newline: bool = False  # whether a token, in one more column, ends each row of an image
    rate: str = ""  # the path of the positions per second of a video; "" if frames are one position apart
    whole: bool = True  # whether times are rounded down to whole positions
    shared: bool = False  # whether the start tokens of a video and of its audio share a position; so do the ends


class Older(NamedTuple):
    """What is particular to the class of a model in transformers 4.57."""

    types: tuple[str, ...] = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")  # those that it takes
    # All keys of a scaling that it takes, besides ``type``, which it then reads in place of ``rope_type``.
    keys: tuple[str, ...] | None = None
    never_null: bool = False  # whether ``rope_scaling`` must be an object, also without scaling
    null_head: bool = False  # whether it leaves ``head_dim`` null, which dynamic, yarn and longrope need


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
    axes: Axes = ""  # how M-RoPE divides the pairs among axes; functions of `_recipe`
    sections: tuple[int, ...] = ()  # the default sections
    keys: Mapping[str, str] = {}  # its own keys, or paths "object.key", by common name or by "layer type.common name"
    switch: Switch | None = None
    has_rotary: Callable[[Part, str, int], bool] = always  # whether a layer rotates; by part, type, index
    pattern: Callable[[Part, int, int], str] | None = None  # the type of layer i of n, if the config lists no types
    # The values under today's keys that its code computes from keys of its own, by "key" or "rope_parameters.key".
    computed: Callable[[Part], Mapping[str, Fact]] | None = None
    codes: Codes | None = None  # the older list of layer types, if the class also reads one
    label: Callable[[str], str] = lambda layer_type: layer_type  # the key of a layer type's parameters
    types: Mapping[str, str] = {}  # names of rope types in older configs of this model, and today's
    parameters: tuple[str, ...] = ()  # keys of `rope_parameters` that few models read, this one among them
    ignored: tuple[str, ...] = ()  # keys that other programs read, but not its class: their value must change nothing
    unread: tuple[str, ...] = ()  # keys about rotary embedding that the model does not read
    neutral: Mapping[str, Any] = {}  # keys that the model does not read, and the only value that agrees with its class
    text: str = ""  # the ``model_type`` of its text part, for files that do not give it; * is the name of the model
    # The ``model_type`` whose row a file has, for those that have another one than their own; "" for others.
    instead: Callable[[Mapping[str, Any]], str] | None = None
    parts: Mapping[str, str] = {}  # those of its towers, by path, for files that do not give them; * as in `text`
    own: Mapping[str, "Model | GridModel"] = {}  # rows of its parts alone, by ``model_type``; * as in `text`
    rotary: bool = True
    outer_part: str = ""  # what keys about rotary embedding around its sub-configs are of, if not of its text part
    older: Older = Older()
    alone: Literal["text", "vision", "audio"] = "text"  # the name of its rotation as a part, if in no larger config
    apart: bool = False  # whether only its parts have rotary embedding
    learned: str = ""  # how the weights change the frequencies, which the config does not say
    sizes: Mapping[str, int] = {}  # defaults, by key or "layer type.key"; those of the whole model only for its parts
    parameters_win: bool = False  # whether a base in the parameters replaces a different one outside, without an error
    trailing: bool = False  # whether the last features of the head rotate
    backwards: bool = False  # whether pairs rotate by minus the angle
    optional_rotary: bool = False  # whether a base of null means no rotary embedding
    # Whether the class's table (MLA) has a share of the head: "given" in the file, or "computed".
    slice_by_share: Literal["", "given", "computed"] = ""
    one_base_if_flat: bool = False  # whether parameters that are not by kind of layer have one base for all kinds
    flag_sets_pairing: bool = False  # whether ``rope_interleave`` sets the pairing; if not, it must agree with it
    score: Score = Score()
    indexer: Indexer | None = None
    no_indexer: str = ""  # why the class has no indexer although configs may have keys of one
    stream: Numbering | None = None
    # In a cache of latent attention, ``values`` hold the rotated slice of the keys, and ``keys`` the latent, which is
    # not rotated. The pairing there: most classes sort the features of interleaved pairs before they rotate.
    latent: Pairing | None = None
    normed: bool = False  # whether ``key_layernorm`` multiplies rotated keys by its weights
    unmovable: str = ""  # what its caches hold that `rope_any.integrations.transformers.reposition` can't move


UNKNOWN = Model()
"""The facts about an unknown model: the defaults."""


# --- towers, and transformers of diffusers ----------------------------------------------------------------


class Needed(NamedTuple):
    """A value with which alone the class has this rotation."""

    value: Value
    why: str  # the effect of any other value
    must_be: Any = True


class GridModel(NamedTuple):
    """The facts about a tower, by its ``model_type``, or about a transformer of diffusers, by its ``_class_name``."""

    # The head dimension, or width, number of heads and perhaps a divisor; empty if the sizes of the axes sum to it.
    head: tuple[Value, ...] = (value("attention_head_dim", default=128),)
    width: Callable[[Given], Fact] = rules.one_head  # the features over which frequencies are computed, from `head`
    axes: tuple[str, ...] = ("time", "row", "column")  # the axes of its positions
    may_lack_time: bool = False  # whether a config may have all but the first of them
    # The number of features of each axis, from the config or from the head dimension; that of pairs for some functions.
    sizes: Value | Split = rules.whole
    base: Value | float = 10_000.0
    frequencies: Callable[[Given], Frequencies] = rules.runs  # of each axis; from `grid_rules`, as `grid` and `order`
    scale: float = 1.0  # multiplies the frequencies of a tower
    columns_first: bool = False  # whether the pairs of columns are before those of rows, unlike their positions
    pairing: Pairing = "interleaved"
    blocks: int = 1  # as in `Rope`
    grid: Callable[[Given, Shape], Coordinates | None] | None = None  # None if positions come from the caller
    order: Callable[[Given], Sides] | None = None  # how tokens are ordered; None: row by row
    # Whether a grid may have several frames; None: if it has an axis for them. Without one, each is like an image.
    frames: bool | None = None
    layers: tuple[str, ...] = ("num_layers",)  # the keys whose sum is their number; of "a b" the first that is given
    unread: tuple[str, ...] = ()  # keys about rotary embedding that change no angle
    types: tuple[str, ...] = ()  # the names of its rope type, today's last, if it reads keys of a parameter object
    # --- only of diffusers ---
    covers: str = ""  # which tokens have the rotation, at which positions, and what the class does with the others
    needs: tuple[Needed, ...] = ()
    # Rotations of other tokens, by their names in `config.parts`: "audio" is "transformer.audio".
    further: Mapping[str, "GridModel"] = {}
    # --- only of towers ---
    note: str = ""  # a remark about its pairs, for the source of the pairing
    scaled: bool = True  # whether q·k is multiplied by 1 / sqrt(head_dim); if not, by 1

    @property
    def counts(self) -> tuple[int, ...]:
        """The possible numbers of axes."""
        n = len(self.axes)
        return (n - 1, n) if self.may_lack_time else (n,)

    def sized(self, width: int, *, heads: int = 16) -> "GridModel":
        """Return it with the values ``hidden_size`` and ``num_attention_heads``, and these defaults."""
        sizes = optional("hidden_size", default=width), optional("num_attention_heads", default=heads)
        return self._replace(head=sizes)

    def known_keys(self) -> list[str]:
        """Return all keys, or paths "object.key", that the rotation and the grid depend on, and those in `unread`."""
        return [*self.unread, *(key for each in _values_in(tuple(self)) for key in each.keys)]


def _values_in(item: object) -> Iterator[Value]:
    """Yield each `Value` of a field of a row: itself, in a tuple, or among the arguments of a function."""
    if isinstance(item, Value):
        yield item
    elif isinstance(item, partial):
        yield from _values_in(tuple(item.keywords.values()))
    elif isinstance(item, tuple):
        for each in item:
            yield from _values_in(each)


def tower_base(default: float, *others: str) -> Value:
    """Return the value of a tower's base, which is a key of its own, one of `others`, or in an object."""
    return optional("rope_theta", *others, "rope_parameters.rope_theta", "rope_scaling.rope_theta", default=default)


TOWER = GridModel(
    axes=("row", "column"),
    base=tower_base(10_000.0),
    frequencies=rules.side_by_side,
    pairing="half",
    grid=rules.from_zero,
    layers=("num_hidden_layers depth",),
    types=("default", "axial"),
).sized(1024)
"""The row of which those of the towers say what differs."""


# --- GGUF -------------------------------------------------------------------------------------------------


class Architecture(NamedTuple):
    """The facts about one ``general.architecture`` of GGUF files; keys are without it."""

    model: Model = Model()  # with the pairing in GGUF files: the converter permutes the projections of some models
    like: Model | None = None  # of a model like it: which layers rotate, and with which base
    windowed: Model | None = None  # the same, for files with a sliding window
    reads: tuple[str, ...] = ()  # which of the keys, or groups of keys, in `READ_BY_FEW` it reads
    without_heads: str = ""  # the type of layers with 0 in the list of heads, which have no attention
    multimodal: bool = False  # whether sections in a file mean a vision model, with pairing "half" and chunked axes
    mla: bool = False  # whether all its heads have a rotary slice, and YaRN scales the scores, not cos and sin
    llama3: str = ""  # the factors of its models with scaling "llama3", which is only in the tensor rope_freqs.weight
    by_tokens: bool = False  # whether only models with the tokens of Llama 3 may have that scaling
    high_freq_factor: float = 4.0  # of that scaling
    original: int = 0  # the trained length of all its models that are longer
    factors: bool = False  # whether all its models have a scaling whose factors are tensors
    truncate: bool = True  # of YaRN in its config.json; llama.cpp rounds the ends of the ramp of all models
    multiplier: float = 10.0  # mscale_all_dim in its config.json over yarn_log_multiplier in the file
    kinds: bool = False  # whether full and sliding layers have their own base, features and heads
    sliding_base: float = 0.0  # of sliding layers if the file gives none; 0 for that of full ones
    full_share: float = 1.0  # of ``rope.dimension_count`` that rotates in full layers
    needs_divisors: bool = False  # whether its full layers need the tensor rope_freqs.weight
    needs: tuple[str, ...] = ()  # keys that its files must have, and not as 0
    nonzero: tuple[str, ...] = ()  # keys that may be missing, but not 0
    unread: tuple[str, ...] = ()  # keys of its files that llama.cpp does not read
    refuses: Mapping[str, str] = {}  # keys that its files may have, and why those with one can't be read
    ambiguous: str = ""  # why its pairing is not known; the caller may give it
    no_way: str = ""  # why none of its files can be read
    projectors: Mapping[str, float] = {}  # the bases of a tower that llama.cpp sets by the type of the projector
