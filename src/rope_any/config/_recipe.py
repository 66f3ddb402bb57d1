"""
Compute a rotation from the plain values of a config, and make a `Rope` of it.

In order: the values of the scheme that scales the frequencies (`_parameters`), the sizes of the head
(`_complete_head`), and the division of the pairs among several axes (`_frequencies_by_axis`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from rope_any import axes
from rope_any._checks import (
    NOTHING,
    ArgumentError,
    ArgumentTypeError,
    ArgumentValueError,
    Text,
    attention_factor,
    brief,
    flag,
    inside,
    integer,
    integer_between,
    positive,
)
from rope_any._frequencies import Frequencies, Row, frequencies
from rope_any._rope import Rope
from rope_any.config._layers import (
    EXTENDED,
    Layers,
    canonical,
    class_defaults,
    groups_by_label,
    rope_type_of,
    written_parameters,
)
from rope_any.config._load import LARGEST_HEAD, Fact, Values, same
from rope_any.config._parameters import complete_scheme
from rope_any.config._part import BASE, COUNT, FLAGS, HEADS, HIDDEN, LENGTHS, OBJECTS, SHARE, Part
from rope_any.config._rotary_keys import ROTARY, require_synonyms, several_axes_hint
from rope_any.config._schemes import ARGUMENTS, ORIGINAL, SECTIONS, STRIDED, Scheme
from rope_any.config._text_part import other_file_hint
from rope_any.config.tables.models import MODELS
from rope_any.config.tables.rows import UNKNOWN
from rope_any.config.tables.rules import KNOWN_SCALE, Heads
from rope_any.config.tables.words import CHANGES_ATTENTION

LONGEST = 2**53  # tokens
LENGTH_KINDS = ("trained", "extended", "stated")  # facts such as "trained_length"
SLICE = "qk_rope_head_dim"
_WIDTHS = ("head_dim", "rotary_dim", "start")


def longest_length(facts: Mapping[str, Fact]) -> int | None:
    """Return the longest sequence, in tokens, that a config with these facts is for; None if it doesn't say."""
    known = [fact for kind in LENGTH_KINDS if (fact := facts.get(f"{kind}_length")) is not None]
    if "length" in facts:  # frequencies depend on it: beyond the lengths in the file, engines make other tables
        known = [fact for fact in known if "*" not in fact.source]
    return max((int(fact.value) for fact in known), default=None)


class Recipe(NamedTuple):
    """A rotation, and all values that it comes from."""

    rope: Rope
    facts: dict[str, Fact]


# --- the sizes of the head --------------------------------------------------------------------------------


def _complete_head(part: Part, v: Values) -> None:
    """Set ``head_dim``, ``rotary_dim`` (in MLA both the slice's) and any ``start``. Raise if they don't fit."""
    rope_type = rope_type_of(v)
    if rope_type == "proportional" and SLICE in v:
        name = part.name(written_parameters(part).name, "rope_type")
        raise ArgumentValueError(name, "not be proportional with a rotary slice: that type is for whole heads")
    if has_rotary_slice(part, v):  # a share must agree with it
        _require_slice(part, v, v.check(SLICE, width), rope_type)
        for name in ("head_dim", "rotary_dim"):
            v.put(name, *v.fact(SLICE))
        return
    complete_head_dim(part, v)
    head = v["head_dim"]
    if rope_type == "proportional":
        v.put("rotary_dim", head, "all pairs of the head; some have frequency 0")
        return
    rotary, source = _rotary_dim(part, v)
    counted = COUNT in v
    v.put("rotary_dim", rotary, source)
    if not 0 < rotary <= head:
        raise ArgumentValueError(source, f"be from 1 to {head} features", rotary)
    if rope_type == "default" and SHARE in v and rotary < head and not counted:
        _require_class_reads_share(part, v)
    if rotary % 2 and (rotary == head or rope_type != "default"):
        raise ArgumentValueError(source, "give an even number of features", rotary)
    if part.model.trailing:
        v.put("start", head - rotary, part.default)


def has_rotary_slice(part: Part, v: Values, /) -> bool:
    """Whether a slice of the head with a width of its own rotates (MLA)."""
    return SLICE in v and not part.model.trailing


def width(name: str, value: object) -> int:
    """Return a number of features as an int; raise unless it is from 2 to `LARGEST_HEAD`."""
    return integer_between(name, value, 2, LARGEST_HEAD)


def complete_head_dim(part: Part, v: Values, /) -> None:
    """Check the width of the head, or set it to hidden size // heads; raise if these are missing or < 1."""
    if "head_dim" not in v:
        missing = [name for name in (HIDDEN[0], HEADS[0]) if name not in v]
        if missing:
            wanted = f"be given, or {part.name(missing[0])} to derive it"
            raise ArgumentValueError(part.name("head_dim"), wanted, NOTHING, other_file_hint(part.keys))
        d, n = v.check(HIDDEN[0], integer), v.check(HEADS[0], integer)
        hidden, heads = v.sources[HIDDEN[0]], v.sources[HEADS[0]]
        if d < 1 or n < 1:
            raise ArgumentValueError(f"{hidden} and {heads}", "be positive", Text(f"{d} and {n}"))
        v.put("head_dim", d // n, f"{hidden} // {heads}" + (", rounded down" if d % n else ""))
    v.check("head_dim", width)


def _rotary_dim(part: Part, v: Values) -> Fact:
    """Return how many features rotate, by count or share (raise if they disagree), else default."""
    model, head = part.model, v["head_dim"]
    share = _share_of(v, head) if SHARE in v else None
    if COUNT in v:
        count = v.check(COUNT, integer)
        if share not in (None, count):
            wanted = f"agree with {v.sources[SHARE]}, which gives {share}"
            raise ArgumentValueError(v.sources[COUNT], wanted, count)
        return v.fact(COUNT)
    if share is not None:
        return Fact(share, v.sources[SHARE]) if share < head else v.fact("head_dim")
    if model.partial is not None and model.partial < 1:
        return Fact(int(head * model.partial), part.default)
    default = model.sizes.get(COUNT) if COUNT not in part.keys else None
    return v.fact("head_dim") if default is None else Fact(default, part.default)


def _require_class_reads_share(part: Part, v: Values) -> None:
    """Raise if the model's class ignores the share without scaling."""
    if part.model_type in MODELS and part.model.partial is None:
        head, rotary = v["head_dim"], v["rotary_dim"]
        wanted = f"be 1: without scaling, transformers rotates all {head} features of {part.model_type}"
        rope = f"Rope(ra.frequencies({rotary}, base=...), ...)"
        hint = f"leave it out; or if only the first {rotary} shall rotate, as in vLLM, write {rope}"
        raise ArgumentValueError(v.sources[SHARE], wanted, v[SHARE], hint)


def _share_of(v: Values, features: int) -> int:
    """Return the features in the share of so many, rounded down; raise unless the share is over 0 and at most 1."""
    p = positive(v.sources[SHARE], v[SHARE])
    if p > 1:
        raise ArgumentValueError(v.sources[SHARE], "be at most 1", p)
    return int(features * p)


def _require_slice(part: Part, v: Values, features: int, rope_type: str) -> None:
    """Raise unless the class's table has so many features (MLA), by the share of a slice, the head or both."""
    by_share, known = part.model.slice_by_share, part.model_type in MODELS
    if by_share == "given" and (rope_type == "default" or (SHARE not in v and part.keys.get(OBJECTS[1]))):
        wanted = "be given, with a rope type other than default: if not, the class's table is as wide as the whole head"
        raise ArgumentValueError(part.name(OBJECTS[0], SHARE), wanted, v.get(SHARE))
    if SHARE not in v or _share_of(v, features) == features:
        return
    whole = []
    if "head_dim" in v:
        whole = [v.check("head_dim", width)]
    elif "qk_nope_head_dim" in v:
        whole = [v.check("qk_nope_head_dim", width) + features]
    is_read = known and not by_share and rope_type != "default"  # as a share of the slice alone
    if is_read or not any(_share_of(v, each) == features for each in whole):
        wanted = f"give the {features} features of {v.sources[SLICE]}"
        raise ArgumentValueError(v.sources[SHARE], wanted, v[SHARE])


# --- the recipe -------------------------------------------------------------------------------------------


def recipe(part: Part, group: Layers, length: int | None = None, /) -> Recipe:
    """
    Return the recipe of a group, which must rotate; `length` None: the trained one.

    Raise if values are wrong, or if another program would read another rotation from the same config.
    """
    made = _recipe_of_one_reading(part, group, length)
    for name, other, wanted, hint in _other_readings(part, group.label):
        try:
            theirs = _recipe_of_one_reading(other, group_with_label(other, group.label), length)
        except (KeyError, TypeError, ValueError) as error:
            got = f"{name} alone: {error}" if name in OBJECTS else f"without it: {error}"
            raise ArgumentValueError(part.name(name), wanted, Text(got), hint) from None
        if made.rope != theirs.rope:
            pairs = ((made.facts.get(key), fact) for key, fact in theirs.facts.items())
            ours, fact = next((a, b) for a, b in pairs if a and not same(a.value, b.value))
            got = f"{brief(ours.value)} ({ours.source}) and {brief(fact.value)} ({fact.source})"
            raise ArgumentValueError(part.name(name), wanted, Text(got), hint)
    return made


def group_with_label(part: Part, label: str | None, /) -> Layers:
    """Return the first group of layers with a label, or without if none has it. Raise a KeyError if there is none."""
    groups = groups_by_label(canonical(part))
    return (groups.get(label) or groups[None])[0]


def _other_readings(part: Part, label: str | None) -> Iterator[tuple[str, Part, str, str]]:
    """Yield (key, part as another program reads it, what the key must be, hint) if keys are not read by all alike."""
    ignored = _given_and_ignored(part, label)
    other = reduce(Part.without, ignored, part)
    if all(part.keys.get(name) for name in OBJECTS):
        wanted = f"agree with {part.name(OBJECTS[0])}: transformers reads {OBJECTS[1]} alone, others do not"
        hint = "keep only the one that the weights were trained with"
        yield OBJECTS[1], other.without(OBJECTS[0]), wanted, hint
    if ignored:
        wanted = f"agree with what transformers uses instead: its {part.model_type} class does not read this key"
        can_move = OBJECTS[0] not in part.model.ignored and ROTARY.search(ignored[0])
        moved = f"give it in {OBJECTS[0]} if the weights were trained with it; if not, " if can_move else ""
        yield ignored[0], other, wanted, f"{moved}leave it out"


def _given_and_ignored(part: Part, label: str | None) -> list[str]:
    """Return the keys in a config that the model's class ignores, for all layers or for those with this label."""
    found = []
    for name in (*part.model.ignored, *([ORIGINAL] if part.model.layers else [])):
        outer, _, inner = name.partition(".")
        if outer in OBJECTS and inner:  # the class ignores the object if it has an older name, but not today's
            found += [outer] if part.get(name) and not part.get(f"{outer}.rope_type") else []
        elif not inner or outer == label:
            found += [inner or outer] if part.get(inner or outer) else []
    return found


def _recipe_of_one_reading(part: Part, group: Layers, length: int | None) -> Recipe:
    """Return the recipe of a group, by one reading of its part. Raise if values are wrong."""
    v = Values(group.values.facts())
    scheme, ignored = complete_scheme(part, v, length)
    _complete_head(part, v)
    for name, fact in class_defaults(part, group.label).items():
        if name not in v:
            v.put(name, *fact)
    v.check(BASE, positive)
    require_synonyms(part, group.label, v)
    row, factor = _frequencies_by_scheme(scheme, v)
    if part.model.backwards:
        row = tuple(-f for f in row)
    pairing = _pairing(part, v)
    freqs, arrangement = _frequencies_by_axis(part, v, row)
    shown = (*_WIDTHS, BASE, SHARE, *scheme.keys, "length", *ignored)
    facts = {
        "model_type": Fact(part.model_type, part.name("model_type")),
        "pairing": pairing,
        "rope_type": v.fact("rope_type") if "rope_type" in v else Fact("default", "no scaling is given"),
        **{LENGTHS[0] if name == EXTENDED else name: fact for name, fact in v.facts(*shown).items()},
        "attention_factor": factor,
        **arrangement,
        **({"frequencies": Fact(part.model.learned, pairing.source)} if part.model.learned else {}),
        **_about_attention(part, v),
    }
    known = {name: fact for name, fact in facts.items() if fact.value is not None}
    factor_of_table = attention_factor(factor.value)
    rope = Rope(freqs, pairing=pairing.value, attention_factor=factor_of_table, start=v.get("start", 0))
    return Recipe(rope, known)


def _about_attention(part: Part, v: Values) -> dict[str, Fact]:
    """Return the keys that change attention but not the rotation, unless null or false, with notes in their sources."""
    read = {*v.sources.values(), *(part.model.switch or ())[:1]}
    found = ((key, part.get(key), note) for key, note in CHANGES_ATTENTION.items() if key not in read)
    return {
        key: Fact(fact.value, f"{fact.source}; {note}") for key, fact, note in found if fact and fact.value is not False
    }


def require_length(sequence_length: object, /) -> int | None:
    """Return a length in tokens as an int, or None for None; raise unless it is an integer from 1 to `LONGEST`."""
    return None if sequence_length is None else integer_between("sequence_length", sequence_length, 1, LONGEST)


def _frequencies_by_scheme(scheme: Scheme, v: Values) -> tuple[Row, Fact]:
    """Return the frequencies as a scheme scales them, and its attention factor; raise if a value is wrong."""
    row = without_scaling(v["rotary_dim"], v[BASE])
    try:
        row, factor = scheme.scale(row, v)
    except ArgumentError as error:  # it names an argument of a function of `scaling`
        key = ARGUMENTS.get(error.argument, error.argument)
        raise type(error)(v.sources.get(key, error.argument), *error.args[1:]) from None
    return row, v.fact(factor) if isinstance(factor, str) else Fact(factor, "derived from these")


def without_scaling(rotary_dim: int, base: float, /) -> Row:
    """Return ``base ** (-2i / rotary_dim)`` for each pair i below half of `rotary_dim`, which may be odd."""
    even = rotary_dim + rotary_dim % 2  # b^(−2i/d) = (b^(even/d))^(−2i/even)
    return frequencies(even, base=base ** (even / rotary_dim))


def _pairing(part: Part, v: Values) -> Fact:
    """Return the pairing by flag, known model or caller; raise if they differ, unless the flag of the model decides."""
    found = Fact(part.model.pairing, f"{part.name('model_type')} {part.model_type}")
    given = v.find(FLAGS[0])
    if given is not None:
        by_flag = Fact("interleaved" if flag(given.source, given.value) else "half", given.source)
        if by_flag.value != found.value and part.model_type in MODELS and not part.model.flag_sets_pairing:
            wanted = f"agree with {part.model_type}, whose pairing is {found.value!r}"
            raise ArgumentValueError(given.source, wanted, given.value)
        found = by_flag
    if part.pairing is None:
        return found
    if given is None and part.model_type not in MODELS:
        return Fact(part.pairing, "argument pairing")
    if part.pairing != found.value:
        raise ArgumentValueError("pairing", f"be {found.value!r}, according to {found.source}", part.pairing)
    return found


def _frequencies_by_axis(part: Part, v: Values, row: Row) -> tuple[Frequencies, dict[str, Fact]]:
    """Return a row per M-RoPE axis and facts, or `row` if one axis or default sections misfit. Given ones must fit."""
    given = next((v.fact(key) for key in SECTIONS if key in v), None)
    kind = _arrangement(part, v, given)
    sections = given or Fact(part.model.sections, part.default)
    if kind not in _AXIS_OF or not sections.value:
        return row, {}
    if given is None and kind in ("chunked", "last for time") and sum(sections.value) != len(row):
        defaults = f"the default sections are for {sum(sections.value)} pairs, not {len(row)}"
        return row, {"axes": Fact(1, f"{defaults}: one axis unless they are given")}
    try:
        if given is not None:  # for its checks
            (axes.strided if kind == "strided" else axes.chunked)(row, given.value)
        rows = axes.assigned(row, _AXIS_OF[kind](len(row), sections.value))
    except (TypeError, ValueError) as error:
        raise inside(sections.source, error) from None
    section = {"mrope_section": Fact(list(sections.value), sections.source)}
    return rows, {"axes": Fact(len(rows), f"{kind} sections"), **section}


def _arrangement(part: Part, v: Values, sections: Fact | None) -> str:
    """Return how axes divide pairs, such as "chunked"; "" if nothing says so. Raise if config and model disagree."""
    model = part.model
    given = next((v.fact(key) for key in STRIDED if key in v), None)
    asked = "" if given is None else "strided" if flag(given.source, given.value) else "chunked"
    kind = model.axes or asked or ("chunked" if sections else "")
    if given is not None and asked != kind:
        raise ArgumentValueError(given.source, f"agree with {part.model_type}, whose sections are {kind}", given.value)
    if sections is not None and not isinstance(sections.value, list | tuple):
        raise ArgumentTypeError(sections.source, "be a list of integers", sections.value)
    if sections is not None and not model.axes and part.model_type in MODELS:
        wanted = f"not be given for {part.model_type}, whose positions have one axis"
        raise ArgumentValueError(sections.source, wanted, NOTHING, several_axes_hint(part.model_type))
    if sections is not None and kind in _WHY:
        hint = "leave it out" + (" for text alone, whose axes have equal positions" if kind == "doubled" else "")
        raise ArgumentValueError(sections.source, f"not be given for {part.model_type}: {_WHY[kind]}", NOTHING, hint)
    return kind


_WHY = {
    "doubled": "the features of a pair would get the angles of different axes, which is not a rotation",
    "alternating": "its class does not use them: pairs alternate between the axes",
}


def _last_for_time(_: int, sections: Sequence[int]) -> list[int]:
    """Return the axis of each pair by sections (height, width, time): the first two alternate. Raise if unequal."""
    if len(sections) != 3 or sections[0] != sections[1]:
        raise ArgumentValueError("sections", "be three, with equal numbers for height and width", list(sections))
    return [1 + i % 2 for i in range(2 * sections[0])] + [0] * sections[2]


# The axis of each of the pairs, by their number and the sections.
_AXIS_OF: Mapping[str, Callable[[int, Sequence[int]], list[int]]] = {
    "chunked": lambda _, sections: [axis for axis, size in enumerate(sections) for _ in range(size)],
    "strided": axes.strided_axes,  # left-over pairs go to the first axis
    "alternating": lambda pairs, sections: [i % len(sections) for i in range(pairs)],
    "last for time": _last_for_time,
}


# --- the score scale --------------------------------------------------------------------------------------


def score(part: Part, group: Layers, /) -> Fact:
    """
    Return the factor by which layers multiply q·k before the softmax, and its formula; raise if it is not known.

    Read in transformers 5.24, and compared there with the attention of each model. The scale applies to rotated queries
    and keys. It does not include the attention factor, which is in cos and sin, nor a factor of q or k before the
    rotation. If a class has such a factor, or scales q by its position, the source of the scale says so.
    """
    v, model = Values(group.values.facts()), part.model
    if not has_rotary_slice(part, v):
        complete_head_dim(part, v)
    if model is UNKNOWN or not model.rotary:
        raise ArgumentValueError(part.name("model_type"), KNOWN_SCALE, part.model_type)
    scale, besides = model.score.rule(Heads(part, v)), model.score.besides
    of = f"{scale.source}, in layers of type {group.label}" if group.label else scale.source
    if model.score.unless:
        key, value, default = model.score.unless
        fact = v.find(key) or part.get(key) or Fact(default, "")
        besides = "" if fact.value == value else besides
    return Fact(float(scale.value), f"{of}; {besides}" if besides else of)


# --- the rotation -----------------------------------------------------------------------------------------


def no_rotation(reason: str, /) -> ArgumentValueError:
    """Return the error that a config has no rotary embedding, for a reason."""
    return ArgumentValueError("config", "have rotary embedding to make a Rope of", Text(f"none: {reason}"))


def require_rotation(made: Recipe | str, /) -> Recipe:
    """Return a recipe unchanged; raise if it is a text, the reason why there is no rotary embedding."""
    if isinstance(made, str):
        raise no_rotation(made)
    return made
