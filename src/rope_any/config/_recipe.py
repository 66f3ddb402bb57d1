"""
Compute a rotation from the canonical parameters of a config, and make a `Rope` of it.

In order: the sizes of the head (`_head_sizes`), the values of the scheme that scales the frequencies (`_values`), and
the division of the pairs among several axes (`_frequencies_by_axis`).
"""

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

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
from rope_any._names import did_you_mean
from rope_any._pairing import Pairing
from rope_any._rope import Rope
from rope_any.config._canonical import (
    Layers,
    canonical,
    class_defaults,
    first,
    first_value,
    groups_by_label,
    rope_type_of,
    written_parameters,
)
from rope_any.config._load import LARGEST_HEAD, Fact, checked, same
from rope_any.config._models import several_axes_hint
from rope_any.config._part import (
    COUNT,
    FLAGS,
    HEADS,
    HIDDEN,
    LENGTHS,
    OBJECTS,
    ROTARY,
    SHARE,
    Part,
    other_file_hint,
)
from rope_any.config._schemes import (
    ARGUMENTS,
    COMMON,
    IGNORED,
    KEYS,
    OF_FEW_MODELS,
    ORIGINAL,
    OTHERS,
    REQUIRED,
    SCHEMES,
    SECTIONS,
    STRIDED,
    WITH_ALPHA,
    Scheme,
    unknown_name,
)
from rope_any.config._score import score_scale
from rope_any.config.tables.models import MODELS
from rope_any.config.tables.words import CHANGES_ATTENTION

LONGEST = 2**53  # tokens
LENGTH_KINDS = ("trained", "extended", "stated")  # facts such as "trained_length"
OUTSIDE = ("rope_theta", "partial_rotary_factor")  # keys that may be outside of the parameters


def longest_length(facts: Mapping[str, Fact]) -> int | None:
    """Return the longest sequence, in tokens, that a config with these facts is for; None if it doesn't say."""
    known = [fact for kind in LENGTH_KINDS if (fact := facts.get(f"{kind}_length")) is not None]
    if "length" in facts:  # frequencies depend on it: beyond the lengths in the file, engines make other tables
        known = [fact for fact in known if "*" not in fact.source]
    return max((int(fact.value) for fact in known), default=None)


Sizes: TypeAlias = Mapping[str, Fact]


class Recipe(NamedTuple):
    """The arguments of a `Rope`, and all values that they come from."""

    frequencies: Frequencies
    pairing: Pairing
    attention_factor: float
    start: int
    facts: dict[str, Fact]
    """All values by name, with sources; ``blocks`` only if features are paired in blocks."""


# --- the sizes of the head --------------------------------------------------------------------------------


def _head_sizes(part: Part, sizes: Sizes, share: Fact | None, rope_type: str) -> dict[str, Fact]:
    """Return ``head_dim``, ``rotary_dim`` (in MLA both the slice's), any ``start``. Raise if they don't fit."""
    if rope_type == "proportional" and "qk_rope_head_dim" in sizes:
        name = part.name(written_parameters(part).name, "rope_type")
        raise ArgumentValueError(name, "not be proportional with a rotary slice: that type is for whole heads")
    own_slice = rotary_slice_width(part, sizes)
    if own_slice is not None:  # a share must agree with it
        width = _width(own_slice)
        _require_slice(part, sizes, share, width, rope_type)
        return {"head_dim": width, "rotary_dim": width}
    head = _width(_head_dim(part, sizes))
    if rope_type == "proportional":
        return {"head_dim": head, "rotary_dim": Fact(head.value, "all pairs of the head; some have frequency 0")}
    rotary = _rotary_dim(part, share, head)
    if not 0 < rotary.value <= head.value:
        raise ArgumentValueError(rotary.source, f"be from 1 to {head.value} features", rotary.value)
    if rope_type == "default" and share is not None and rotary.value < head.value:
        _require_class_reads_share(part, share, rotary.value, head.value)
    if rotary.value % 2 and (rotary.value == head.value or rope_type != "default"):
        raise ArgumentValueError(rotary.source, "give an even number of features", rotary.value)
    start = {"start": Fact(head.value - rotary.value, part.default)} if part.model.trailing else {}
    return {"head_dim": head, "rotary_dim": rotary, **start}


def rotary_slice_width(part: Part, sizes: Sizes, /) -> Fact | None:
    """Return the width of the separate rotary slice of a head (MLA), unchecked; None if no slice is separate."""
    return None if part.model.trailing else sizes.get("qk_rope_head_dim")


def _width(fact: Fact) -> Fact:
    """Return a number of features, a fact, with an int as value; raise unless it is from 2 to `LARGEST_HEAD`."""
    return Fact(integer_between(fact.source, fact.value, 2, LARGEST_HEAD), fact.source)


def _head_dim(part: Part, sizes: Sizes) -> Fact:
    """Return the width of the head: as given, unchecked, or hidden size // heads; raise if these are missing or < 1."""
    given = sizes.get("head_dim")
    if given is not None:
        return given
    hidden, heads = first(sizes, HIDDEN), first(sizes, HEADS)
    if hidden is None or heads is None:
        missing = HIDDEN[0] if hidden is None else HEADS[0]
        wanted = f"be given, or {part.name(missing)} to derive it"
        raise ArgumentValueError(part.name("head_dim"), wanted, NOTHING, other_file_hint(part.keys))
    d, n = integer(hidden.source, hidden.value), integer(heads.source, heads.value)
    if d < 1 or n < 1:
        raise ArgumentValueError(f"{hidden.source} and {heads.source}", "be positive", Text(f"{d} and {n}"))
    return Fact(d // n, f"{hidden.source} // {heads.source}" + (", rounded down" if d % n else ""))


def _rotary_dim(part: Part, share: Fact | None, head: Fact) -> Fact:
    """Return how many features rotate, by formula, else count or `share` (raise if they disagree), else default."""
    model = part.model
    if model.rotary_dim is not None:
        return Fact(model.rotary_dim(lambda key: _required_size(part, key)), f"derived as {part.model_type} does")
    by_share = None if share is None else Fact(_share_of_head(head, share), share.source)
    names = (*part.key_names(COUNT), *(["qk_rope_head_dim"] if model.trailing else []))
    counts = [fact for name in names if (fact := part.get(name))]
    for fact in counts:
        count = integer(fact.source, fact.value)
        if by_share is not None and count != by_share.value:
            wanted = f"agree with {by_share.source}, which gives {by_share.value}"
            raise ArgumentValueError(fact.source, wanted, count)
    if counts:
        return counts[0]
    if by_share is not None:
        return by_share if by_share.value < head.value else head
    if model.partial is not None and model.partial < 1:
        return Fact(int(head.value * model.partial), part.default)
    default = model.sizes.get(COUNT) if COUNT not in part.keys else None
    return head if default is None else Fact(default, part.default)


def _require_class_reads_share(part: Part, share: Fact, rotary_dim: int, head_dim: int) -> None:
    """Raise if the model's class ignores the share without scaling, and no count of features in the config agrees."""
    known, counted = part.model_type in MODELS, any(map(part.get, part.key_names(COUNT)))
    if known and part.model.partial is None and part.model.rotary_dim is None and not counted:
        wanted = f"be 1: without scaling, transformers rotates all {head_dim} features of {part.model_type}"
        rope = f"Rope(ra.frequencies({rotary_dim}, base=...), ...)"
        hint = f"leave it out; or if only the first {rotary_dim} shall rotate, as in vLLM, write {rope}"
        raise ArgumentValueError(share.source, wanted, share.value, hint)


def _required_size(part: Part, key: str) -> int:
    """Return the number of features under a key; raise if it is missing, or no integer from 2 to `LARGEST_HEAD`."""
    fact = part.get(key)
    if fact is None:
        raise ArgumentValueError(part.name(key), "be given")
    return int(_width(fact).value)


def _share_of_head(head: Fact, share: Fact) -> int:
    """Return the features in a share of the head, rounded down; raise unless the share is over 0 and at most 1."""
    p = positive(share.source, share.value)
    if p > 1:
        raise ArgumentValueError(share.source, "be at most 1", p)
    return int(head.value * p)


def _require_slice(part: Part, sizes: Sizes, share: Fact | None, width: Fact, rope_type: str) -> None:
    """Raise unless the class's table has `width` features (MLA), by `share` of a slice, the head or both."""
    by_share, known = part.model.slice_by_share, part.model_type in MODELS
    if by_share == "given" and (rope_type == "default" or (share is None and part.keys.get(OBJECTS[1]))):
        wanted = "be given, with a rope type other than default: if not, the class's table is as wide as the whole head"
        raise ArgumentValueError(part.name(OBJECTS[0], SHARE), wanted, None if share is None else share.value)
    if share is None or _share_of_head(width, share) == width.value:
        return
    head, plain = sizes.get("head_dim"), sizes.get("qk_nope_head_dim")
    whole = [_width(head)] if head else [Fact(_width(plain).value + width.value, plain.source)] if plain else []
    is_read = known and not by_share and rope_type != "default"  # as a share of the slice alone
    if is_read or not any(_share_of_head(each, share) == width.value for each in whole):
        raise ArgumentValueError(share.source, f"give the {width.value} features of {width.source}", share.value)


# --- the values of the scheme -----------------------------------------------------------------------------


def _values(part: Part, facts: Mapping[str, Fact], length: int | None) -> tuple[Scheme, dict[str, Fact]]:
    """Return the rope type's scheme and checked parameters, with defaults and any "length" (None: trained length)."""
    kind = rope_type_of(facts)
    if kind not in SCHEMES:
        wanted, ours = f"be one of {', '.join(SCHEMES)}", OTHERS.get(kind.lower().replace("-", "_"))
        hint = f"write {ours}" if ours else did_you_mean(kind, SCHEMES)
        raise ArgumentValueError(facts["rope_type"].source, wanted, kind, hint)
    with_alpha = kind == "dynamic" and "alpha" in part.model.parameters and "alpha" in facts
    scheme = WITH_ALPHA if with_alpha else SCHEMES[kind]
    ignored = _ignored(part, facts, scheme)
    values = {key: _value(part, facts, key, default, kind) for key, default in scheme.keys.items()}
    if "factor" in values and values["factor"].value is None and not _without_factor(kind, values):
        extended, trained = first_value(part, LENGTHS), values[ORIGINAL]
        if extended is None:
            raise ArgumentValueError(part.name(LENGTHS[0]), f"be given for rope type {kind!r} without a factor")
        quotient = positive(extended.source, extended.value) / trained.value
        values["factor"] = Fact(quotient, f"{extended.source} / {trained.source}")
    if scheme.trained:
        trained = values[scheme.trained]
        values["length"] = Fact(length, "sequence_length") if length else Fact(trained.value, "the trained length")
    return scheme, values | ignored


def _without_factor(rope_type: str, values: Mapping[str, Fact]) -> bool:
    """Whether ``factor`` may be missing: only in longrope, if the attention factor or both mscales are given."""
    given = {key for key, fact in values.items() if fact.value is not None}
    return rope_type == "longrope" and ("attention_factor" in given or {"short_mscale", "long_mscale"} <= given)


def _ignored(part: Part, facts: Mapping[str, Fact], scheme: Scheme) -> dict[str, Fact]:
    """Return the parameters without effect, with the reason; raise for one that the scheme or the model lacks."""
    ignored = {}
    for key, fact in facts.items():
        if key in OF_FEW_MODELS and key not in part.model.parameters and fact.value is not None:
            wanted = f"not be given for {part.model_type}, whose code does not read it: others {OF_FEW_MODELS[key]}"
            raise ArgumentValueError(fact.source, wanted, fact.value, "leave it out to get what its code computes")
        if key not in KEYS:
            if key in CHANGES_ATTENTION:
                wanted, hint = "not be given here: it is a key of the config itself", f"{key}: {CHANGES_ATTENTION[key]}"
                raise ArgumentValueError(fact.source, wanted, NOTHING, hint)
            known = {"type", *COMMON, *IGNORED, *scheme.keys, *scheme.unread} if "rope_type" in facts else KEYS
            raise unknown_name(fact.source, key, known)
        if key in COMMON or key in scheme.keys or fact.value is None:
            continue
        if key not in IGNORED and key not in scheme.unread:
            kinds = ", ".join(name for name, scheme in SCHEMES.items() if key in scheme.keys)
            hint = "" if "rope_type" in facts else f"give rope_type too, one of {kinds}"
            raise ArgumentValueError(fact.source, f"not be given for {_type_name(facts)}", NOTHING, hint)
        ignored[key] = Fact(fact.value, f"{fact.source}; {IGNORED.get(key, 'not read here')}")
    return ignored


def _type_name(facts: Mapping[str, Fact]) -> str:
    """Return the rope type for an error, with the key that gives it, and the name there if it is an older one."""
    return f"rope type {rope_type_of(facts)!r}" + (f" ({facts['rope_type'].source})" if "rope_type" in facts else "")


def _value(part: Part, facts: Mapping[str, Fact], key: str, default: Any, rope_type: str) -> Fact:
    """Return the value of a parameter, checked; if missing or null, `default`, or raise if that is `REQUIRED`."""
    fact = first_value(part, LENGTHS) if key == LENGTHS[0] else facts.get(key)
    if fact is None or fact.value is None or (key.startswith("mscale") and fact.value == 0):
        if default is not REQUIRED:
            return Fact(default, f"default of {rope_type}")
        if rope_type == "yarn" and key == "factor" and fact is not None:
            return fact  # null: the factor is derived from the lengths
        name = part.name(*(() if key == LENGTHS[0] else [written_parameters(part).name]), key)
        raise ArgumentValueError(name, f"be given for {_type_name(facts)}")
    if isinstance(default, bool):
        return checked(fact, flag)
    if key not in ("short_factor", "long_factor"):
        number = checked(fact, positive)
        if key == "factor" and number.value < 1:  # other programs have its reciprocal
            hint = f"write {1 / number.value}" if (1 / number.value).is_integer() else ""
            raise ArgumentValueError(fact.source, "be at least 1", number.value, hint)
        return number
    if not isinstance(fact.value, list | tuple):
        raise ArgumentTypeError(fact.source, "be a list of numbers", fact.value)
    if len(fact.value) > LARGEST_HEAD:
        raise ArgumentValueError(fact.source, "have one number for each pair", len(fact.value))
    return Fact(tuple(positive(fact.source, value) for value in fact.value), fact.source)


# --- the recipe -------------------------------------------------------------------------------------------


def recipe(part: Part, group: Layers, length: int | None = None, /) -> Recipe:
    """
    Return the recipe of a group, which must rotate; `length` None: the trained one.

    Raise if values are wrong, or if another program would read another rotation from the same config.
    """
    made = _recipe_of_one_reading(part, group, length)
    for name, other, wanted, hint in _other_readings(part, group.label):
        try:
            groups = groups_by_label(canonical(other))
            theirs = _recipe_of_one_reading(other, next(iter(groups.get(group.label) or groups[None])), length)
        except (KeyError, TypeError, ValueError) as error:
            got = f"{name} alone: {error}" if name in OBJECTS else f"without it: {error}"
            raise ArgumentValueError(part.name(name), wanted, Text(got), hint) from None
        if (made.frequencies, made.attention_factor) != (theirs.frequencies, theirs.attention_factor):
            pairs = ((made.facts.get(key), fact) for key, fact in theirs.facts.items())
            ours, fact = next((a, b) for a, b in pairs if a and not same(a.value, b.value))
            got = f"{brief(ours.value)} ({ours.source}) and {brief(fact.value)} ({fact.source})"
            raise ArgumentValueError(part.name(name), wanted, Text(got), hint)
    return made


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
    given = group.parameters
    scheme, values = _values(part, given, length)
    sizes = _head_sizes(part, group.sizes, given.get("partial_rotary_factor"), rope_type_of(given))
    values = {**class_defaults(part, group.label), **{key: given[key] for key in OUTSIDE if key in given}, **values}
    values["rope_theta"] = checked(values["rope_theta"], positive)
    row, factor = _frequencies_by_scheme(scheme, sizes["rotary_dim"], values)
    if part.model.backwards:
        row = tuple(-f for f in row)
    freqs, arrangement = _frequencies_by_axis(part, given, row)
    pairing = _pairing(part)
    facts = {
        "model_type": Fact(part.model_type, part.name("model_type")),
        "pairing": pairing,
        "rope_type": given.get("rope_type", Fact("default", "no scaling is given")),
        **sizes,
        **values,
        "attention_factor": factor,
        **arrangement,
        **({"frequencies": Fact(part.model.learned, pairing.source)} if part.model.learned else {}),
        **_about_attention(part),
    }
    start = sizes["start"].value if "start" in sizes else 0
    known = {name: fact for name, fact in facts.items() if fact.value is not None}
    return Recipe(freqs, pairing.value, attention_factor(factor.value), start, known)


def _about_attention(part: Part) -> dict[str, Fact]:
    """Return the keys that change attention but not the rotation, unless null or false, with notes in their sources."""
    notes = {key: note for key, note in CHANGES_ATTENTION.items() if key not in (part.model.switch or ())[:1]}
    found = ((key, part.get(key), note) for key, note in notes.items())
    return {
        key: Fact(fact.value, f"{fact.source}; {note}") for key, fact, note in found if fact and fact.value is not False
    }


def require_length(sequence_length: object, /) -> int | None:
    """Return a length in tokens as an int, or None for None; raise unless it is an integer from 1 to `LONGEST`."""
    return None if sequence_length is None else integer_between("sequence_length", sequence_length, 1, LONGEST)


def _frequencies_by_scheme(scheme: Scheme, rotary_dim: Fact, values: Mapping[str, Fact]) -> tuple[Row, Fact]:
    """Return the frequencies as a scheme scales them, and its attention factor; raise if a value is wrong."""
    row = without_scaling(rotary_dim.value, values["rope_theta"].value)
    try:
        row, factor = scheme.scale(row, {key: fact.value for key, fact in values.items()})
    except ArgumentError as error:  # it names an argument of a function of `scaling`
        key = ARGUMENTS.get(error.argument, error.argument)
        raise type(error)(values[key].source if key in values else error.argument, *error.args[1:]) from None
    return row, values[factor] if isinstance(factor, str) else Fact(factor, "derived from these")


def without_scaling(rotary_dim: int, base: float, /) -> Row:
    """Return ``base ** (-2i / rotary_dim)`` for each pair i below half of `rotary_dim`, which may be odd."""
    even = rotary_dim + rotary_dim % 2  # b^(−2i/d) = (b^(even/d))^(−2i/even)
    return frequencies(even, base=base ** (even / rotary_dim))


def _pairing(part: Part) -> Fact:
    """Return the pairing by flag, known model or caller; raise if they differ, unless the flag of the model decides."""
    found = Fact(part.model.pairing, f"{part.name('model_type')} {part.model_type}")
    given = next((fact for name in FLAGS if (fact := part.get(name))), None)
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


def _frequencies_by_axis(part: Part, facts: Mapping[str, Fact], row: Row) -> tuple[Frequencies, dict[str, Fact]]:
    """Return a row per M-RoPE axis and facts, or `row` if one axis or default sections misfit. Given ones must fit."""
    given = next((facts[key] for key in SECTIONS if key in facts), None)
    kind = _arrangement(part, facts, given)
    sections = given or Fact(part.model.sections, part.default)
    if kind not in _ARRANGEMENTS or not sections.value:
        return row, {}
    try:
        rows = _ARRANGEMENTS[kind](row, sections.value, is_default=given is None)
    except (TypeError, ValueError) as error:
        raise inside(sections.source, error) from None
    if rows is None:
        defaults = f"the default sections are for {sum(sections.value)} pairs, not {len(row)}"
        return row, {"axes": Fact(1, f"{defaults}: one axis unless they are given")}
    section = {"mrope_section": Fact(list(sections.value), sections.source)}
    return rows, {"axes": Fact(len(rows), f"{kind} sections"), **section}


def _arrangement(part: Part, facts: Mapping[str, Fact], sections: Fact | None) -> str:
    """Return how axes divide pairs, such as "chunked"; "" if nothing says so. Raise if config and model disagree."""
    model = part.model
    given = next((facts[key] for key in STRIDED if key in facts), None)
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


def _chunked_rows(row: Row, sections: Any, *, is_default: bool) -> tuple[Row, ...] | None:
    """Return a row for each axis, 0 except for its run of pairs. Unfit sections: None if `is_default`, else raise."""
    return None if is_default and sum(sections) != len(row) else axes.chunked(row, sections)


def _strided_rows(row: Row, sections: Any, *, is_default: bool) -> tuple[Row, ...]:
    """Return a row per axis, 0 except at its alternating pairs; left-over ones go to the first. Given ones must fit."""
    # only the default sections of a class need not sum to the number of pairs
    return axes.assigned(row, axes.strided_axes(len(row), sections)) if is_default else axes.strided(row, sections)


def _alternating_rows(row: Row, sections: Any, *, is_default: bool) -> tuple[Row, ...]:
    """Return n rows, n the number of sections: row k has the frequencies of the pairs i with i mod n = k, else 0."""
    return axes.assigned(row, [i % len(sections) for i in range(len(row))])


def _last_for_time_rows(row: Row, sections: Any, *, is_default: bool) -> tuple[Row, ...] | None:
    """
    Return rows (time, height, width) from `sections` (height, width, time): the last pairs are for time.

    Height and width, equal in number, alternate before them. If sections don't fit: None if `is_default`, else raise.
    """
    if is_default and sum(sections) != len(row):
        return None
    axes.chunked(row, sections)  # for its checks; sections are for height, width and time
    if len(sections) != 3 or sections[0] != sections[1]:
        raise ArgumentValueError("sections", "be three, with equal numbers for height and width", list(sections))
    return axes.assigned(row, [1 + i % 2 for i in range(2 * sections[0])] + [0] * sections[2])


_ARRANGEMENTS = {
    "chunked": _chunked_rows,
    "strided": _strided_rows,
    "alternating": _alternating_rows,
    "last for time": _last_for_time_rows,
}


# --- the score scale --------------------------------------------------------------------------------------


def score(part: Part, group: Layers, /) -> Fact:
    """Return the factor by which layers multiply q·k (without attention factor) and its formula; raise if unknown."""
    sizes = group.sizes
    head = {} if rotary_slice_width(part, sizes) else {"head_dim": _width(_head_dim(part, sizes))}
    return score_scale(part, {**sizes, **head}, group.parameters, group.label)


# --- the rotation -----------------------------------------------------------------------------------------


def no_rotation(fact: Fact, /) -> ArgumentValueError:
    """Return the error that a config has no rotary embedding; the source of `fact` is the reason."""
    return ArgumentValueError("config", "have rotary embedding to make a Rope of", Text(f"none: {fact.source}"))


def make_rope(recipe_or_reason: Recipe | Fact, /) -> Rope:
    """Return the `Rope` of a recipe; raise if it is a `Fact`, the reason why there is no rotary embedding."""
    if isinstance(recipe_or_reason, Fact):
        raise no_rotation(recipe_or_reason)
    freqs, pairing, factor, start, facts = recipe_or_reason
    blocks = facts["blocks"].value if "blocks" in facts else 1
    return Rope(freqs, pairing=pairing, attention_factor=factor, start=start, blocks=blocks)
