"""
Turn the parameters of a config into the numbers of one rotation, and these into a `Rope`.

The sizes of the head (`_sizes`), the values of the scheme that bends the frequencies (`_values`), and the arrangement
of several axes (`_frequencies_by_axis`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from rope_any import axes
from rope_any._checks import (
    ArgumentTypeError,
    ArgumentValueError,
    Text,
    attention_factor,
    flag,
    inside,
    integer,
    integer_between,
    positive,
)
from rope_any._frequencies import Frequencies, Row, frequencies
from rope_any._pairing import Pairing
from rope_any._rope import Rope
from rope_any.config._canonical import Layers, class_defaults, first, first_value, rope_type_of, written_parameters
from rope_any.config._load import LARGEST_HEAD, Fact
from rope_any.config._models import CHANGES_ATTENTION, MODELS
from rope_any.config._part import COUNT, FLAGS, HEADS, HIDDEN, LENGTHS, Part
from rope_any.config._schemes import (
    COMMON,
    IGNORED,
    KEYS,
    ORIGINAL,
    OTHERS,
    REQUIRED,
    SCHEMES,
    SECTIONS,
    STRIDED,
    WITH_ALPHA,
    Scheme,
    did_you_mean,
    unknown_name,
)
from rope_any.config._score import score_scale

LONGEST = 2**53  # tokens
OUTSIDE = ("rope_theta", "partial_rotary_factor")  # what may stand outside of the parameters


Sizes: TypeAlias = Mapping[str, Fact]


class Recipe(NamedTuple):
    """What a `Rope` is made of, and why."""

    frequencies: Frequencies
    pairing: Pairing
    attention_factor: float
    start: int
    facts: dict[str, Fact]
    """By name; ``blocks`` among them if features are paired in blocks."""


# --- the sizes of the head --------------------------------------------------------------------------------


def _head(part: Part, sizes: Sizes, share: Fact | None, kind: str) -> dict[str, Fact]:
    """Return how wide the head is, how many of its features turn, and from which one on."""
    alone = rotary_slice(part, sizes)
    if alone is not None:  # of which the share says nothing new
        width = _width(alone)
        _require_slice(sizes, share, width)
        return {"head_dim": width, "rotary_dim": width}
    head = _width(_head_dim(part, sizes))
    if kind == "proportional":
        return {"head_dim": head, "rotary_dim": Fact(head.value, "all pairs of the head, of which some stand still")}
    rotary = _rotary_dim(part, share, head)
    if not 0 < rotary.value <= head.value:
        raise ArgumentValueError(rotary.source, f"be from 1 to {head.value} features", rotary.value)
    if rotary.value % 2 and (rotary.value == head.value or kind != "default"):
        raise ArgumentValueError(rotary.source, "give an even number of features", rotary.value)
    start = {"start": Fact(head.value - rotary.value, part.default)} if part.model.trailing else {}
    return {"head_dim": head, "rotary_dim": rotary, **start}


def rotary_slice(part: Part, sizes: Sizes, /) -> Fact | None:
    """Return the width of a rotary slice by itself, if the head has one."""
    return None if part.model.trailing else sizes.get("qk_rope_head_dim")


def _width(fact: Fact) -> Fact:
    """Return a number of features, checked."""
    return Fact(integer_between(fact.source, fact.value, 2, LARGEST_HEAD), fact.source)


def _head_dim(part: Part, sizes: Sizes) -> Fact:
    """Return the width of the head, as it is given or as it follows."""
    given = sizes.get("head_dim")
    if given is not None:
        return given
    hidden, heads = first(sizes, HIDDEN), first(sizes, HEADS)
    if hidden is None or heads is None:
        missing = HIDDEN[0] if hidden is None else HEADS[0]
        raise ArgumentValueError(part.name("head_dim"), f"be given, or {part.name(missing)} to derive it")
    d, n = integer(hidden.source, hidden.value), integer(heads.source, heads.value)
    if d < 1 or n < 1:
        raise ArgumentValueError(f"{hidden.source} and {heads.source}", "be positive", Text(f"{d} and {n}"))
    return Fact(d // n, f"{hidden.source} // {heads.source}")


def _rotary_dim(part: Part, share: Fact | None, head: Fact) -> Fact:
    """Return how many features turn: a count, or a share of the head."""
    model = part.model
    if model.rotary_dim is not None:
        return Fact(model.rotary_dim(lambda key: _needed(part, key)), f"derived as {part.model_type} does")
    stated = None if share is None else Fact(_of(head, share), share.source)
    names = (*part.key_names(COUNT), *(["qk_rope_head_dim"] if model.trailing else []))
    counts = [fact for name in names if (fact := part.get(name))]
    for fact in counts:
        count = integer(fact.source, fact.value)
        if share is not None and stated is not None and count != stated.value:
            wanted = f"agree with {share.source}, which gives {stated.value}"
            raise ArgumentValueError(fact.source, wanted, count)
    if counts:
        return counts[0]
    if stated is not None:
        return stated if stated.value < head.value else head
    if model.partial < 1:
        return Fact(int(head.value * model.partial), part.default)
    assumed = model.sizes.get(COUNT) if COUNT not in part.keys else None
    return head if assumed is None else Fact(assumed, part.default)


def _needed(part: Part, key: str) -> int:
    """Return the number of features under a key of a config; raise if it is missing."""
    fact = part.get(key)
    if fact is None:
        raise ArgumentValueError(part.name(key), "be given")
    return int(_width(fact).value)


def _of(head: Fact, share: Fact) -> int:
    """Return how many features a share of the head is."""
    p = positive(share.source, share.value)
    if p > 1:
        raise ArgumentValueError(share.source, "be at most 1", p)
    return int(head.value * p)


def _require_slice(sizes: Sizes, share: Fact | None, width: Fact) -> None:
    """Refuse a share of the head that is not that of its rotary slice."""
    if share is None or _of(width, share) == width.value:
        return
    head, plain = sizes.get("head_dim"), sizes.get("qk_nope_head_dim")
    wholes = [_width(head)] if head else []
    wholes += [Fact(_width(plain).value + width.value, plain.source)] if plain else []
    if not any(_of(whole, share) == width.value for whole in wholes):
        raise ArgumentValueError(share.source, f"give the {width.value} features of {width.source}", share.value)


# --- the values of the scheme -----------------------------------------------------------------------------


def _values(part: Part, facts: Mapping[str, Fact], length: int | None) -> tuple[Scheme, dict[str, Fact]]:
    """Return the scheme that parameters ask for, and the values it reads: checked, and with defaults."""
    kind = rope_type_of(facts)
    if kind not in SCHEMES:
        wanted, ours = f"be one of {', '.join(SCHEMES)}", OTHERS.get(kind.lower().replace("-", "_"))
        hint = f"write {ours}" if ours else did_you_mean(kind, SCHEMES)
        raise ArgumentValueError(facts["rope_type"].source, wanted, kind, hint)
    scheme = WITH_ALPHA if kind == "dynamic" and "alpha" in facts else SCHEMES[kind]
    ignored = _ignored(facts, scheme, kind)
    values = {key: _value(part, facts, key, default, kind) for key, default in scheme.keys.items()}
    if "factor" in values and values["factor"].value is None and not _without_factor(kind, values):
        longer, trained = first_value(part, LENGTHS), values[ORIGINAL]
        if longer is None:
            raise ArgumentValueError(part.name(LENGTHS[0]), f"be given for rope type {kind!r} without a factor")
        quotient = positive(longer.source, longer.value) / trained.value
        values["factor"] = Fact(quotient, f"{longer.source} / {trained.source}")
    if scheme.trained:
        trained = values[scheme.trained]
        values["length"] = Fact(length, "sequence_length") if length else Fact(trained.value, "the trained length")
    return scheme, values | ignored


def _without_factor(kind: str, values: Mapping[str, Fact]) -> bool:
    """Whether longrope can do without its factor, which only its attention factor follows from."""
    given = {key for key, fact in values.items() if fact.value is not None}
    return kind == "longrope" and ("attention_factor" in given or {"short_mscale", "long_mscale"} <= given)


def _ignored(facts: Mapping[str, Fact], scheme: Scheme, kind: str) -> dict[str, Fact]:
    """Return the parameters that change nothing, and say why; refuse those that are unknown or of another scheme."""
    ignored = {}
    for key, fact in facts.items():
        if key not in KEYS:
            raise unknown_name(fact.source, key, KEYS)
        if key in COMMON or key in scheme.keys or fact.value is None:
            continue
        if key not in IGNORED and key not in scheme.unread:
            raise ArgumentValueError(fact.source, f"not be given for rope type {kind!r}")
        ignored[key] = Fact(fact.value, f"{fact.source}; {IGNORED.get(key, 'not read here')}")
    return ignored


def _value(part: Part, facts: Mapping[str, Fact], key: str, default: Any, kind: str) -> Fact:
    """Return one value that a scheme reads, checked."""
    fact = first_value(part, LENGTHS) if key == LENGTHS[0] else facts.get(key)
    if fact is None or fact.value is None or (key.startswith("mscale") and fact.value == 0):
        if default is not REQUIRED:
            return Fact(default, f"default of {kind}")
        if kind == "yarn" and key == "factor" and fact is not None:
            return fact  # null: as much as the length grows
        name = part.name(*(() if key == LENGTHS[0] else [written_parameters(part).name]), key)
        raise ArgumentValueError(name, f"be given for rope type {kind!r}")
    if isinstance(default, bool):
        return Fact(flag(fact.source, fact.value), fact.source)
    if key not in ("short_factor", "long_factor"):
        return _number(fact)
    if not isinstance(fact.value, list | tuple):
        raise ArgumentTypeError(fact.source, "be a list of numbers", fact.value)
    if len(fact.value) > LARGEST_HEAD:
        raise ArgumentValueError(fact.source, "have one number for each pair", len(fact.value))
    return Fact(tuple(positive(fact.source, value) for value in fact.value), fact.source)


def _number(fact: Fact) -> Fact:
    """Return a fact, checked to hold a positive number."""
    return Fact(positive(fact.source, fact.value), fact.source)


# --- the recipe -------------------------------------------------------------------------------------------


def recipe(part: Part, layers: Layers, length: int | None = None, /) -> Recipe:
    """Return the recipe of the rotation of some layers, for a sequence length where it depends on one."""
    given = layers.parameters
    scheme, values = _values(part, given, length)
    sizes = _head(part, layers.sizes, given.get("partial_rotary_factor"), rope_type_of(given))
    values = {**class_defaults(part, layers.label), **{key: given[key] for key in OUTSIDE if key in given}, **values}
    values["rope_theta"] = _number(values["rope_theta"])
    row, factor = _scaled_frequencies(scheme, sizes["rotary_dim"], values)
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
    """Return what a config says that changes attention and not the rotation, and what serves it."""
    notes = {key: note for key, note in CHANGES_ATTENTION.items() if key not in (part.model.switch or ())[:1]}
    found = ((key, part.get(key), note) for key, note in notes.items())
    return {
        key: Fact(fact.value, f"{fact.source}; {note}") for key, fact, note in found if fact and fact.value is not False
    }


def require_length(sequence_length: object, /) -> int | None:
    """Return a length in tokens, or None if none is given; raise unless it is one."""
    return None if sequence_length is None else integer_between("sequence_length", sequence_length, 1, LONGEST)


def _scaled_frequencies(scheme: Scheme, rotary_dim: Fact, values: Mapping[str, Fact]) -> tuple[Row, Fact]:
    """Return the frequencies and the attention factor that a scheme makes."""
    d, base = rotary_dim.value, values["rope_theta"]
    even = d + d % 2  # of an odd number of features, the last pair turns one more: b^(−2i/d) = (b^(even/d))^(−2i/even)
    plain = frequencies(even, base=base.value ** (even / d))
    row, factor = scheme.scale(plain, {key: fact.value for key, fact in values.items()})
    return row, values[factor] if isinstance(factor, str) else Fact(factor, "derived from these")


def _pairing(part: Part) -> Fact:
    """Return the pairing by a config's flag, its model or the caller; raise if these disagree."""
    found = Fact(part.model.pairing, f"{part.name('model_type')} {part.model_type}")
    said = next((fact for name in FLAGS if (fact := part.get(name))), None)
    if said is not None:
        flagged = Fact("interleaved" if flag(said.source, said.value) else "half", said.source)
        if flagged.value != found.value and part.model_type in MODELS and not part.model.flag_sets_pairing:
            wanted = f"agree with {part.model_type}, whose pairs are {found.value!r}"
            raise ArgumentValueError(said.source, wanted, said.value)
        found = flagged
    if part.pairing is None:
        return found
    if said is None and part.model_type not in MODELS:
        return Fact(part.pairing, "pairing=, as given")
    if part.pairing != found.value:
        raise ArgumentValueError("pairing", f"be {found.value!r} by {found.source}", part.pairing)
    return found


def _frequencies_by_axis(part: Part, facts: Mapping[str, Fact], row: Row) -> tuple[Frequencies, dict[str, Fact]]:
    """Return the frequencies by axis, where positions have several."""
    given = next((facts[key] for key in SECTIONS if key in facts), None)
    kind = _arrangement(part, facts, given)
    sections = given or Fact(part.model.sections, part.default)
    if kind not in _ARRANGEMENTS or not sections.value:
        return row, {}
    try:
        rows = _ARRANGEMENTS[kind](row, sections.value, assumed=given is None)
    except (TypeError, ValueError) as error:
        raise inside(sections.source, error) from None
    if rows is None:
        note = f"its class divides {sum(sections.value)} pairs, not {len(row)}: one axis until sections are given"
        return row, {"axes": Fact(1, note)}
    said = {"mrope_section": Fact(list(sections.value), sections.source)}
    return rows, {"axes": Fact(len(rows), f"{kind} sections"), **said}


def _arrangement(part: Part, facts: Mapping[str, Fact], sections: Fact | None) -> str:
    """Return how pairs are given to axes, having refused what the model does not do."""
    model = part.model
    said = next((facts[key] for key in STRIDED if key in facts), None)
    asked = "" if said is None else "strided" if flag(said.source, said.value) else "chunked"
    kind = model.axes or asked or ("chunked" if sections else "")
    if said is not None and asked != kind:
        raise ArgumentValueError(said.source, f"agree with {part.model_type}, whose sections are {kind}", said.value)
    if sections is not None and not isinstance(sections.value, list | tuple):
        raise ArgumentTypeError(sections.source, "be a list of integers", sections.value)
    if sections is not None and not model.axes and part.model_type in MODELS:
        raise ArgumentValueError(sections.source, f"not be given for {part.model_type}, whose positions have one axis")
    if sections is not None and kind in _WHY:
        raise ArgumentValueError(sections.source, f"not be given for {part.model_type}: {_WHY[kind]}")
    return kind


_WHY = {
    "doubled": "it would turn the features of a pair with different axes, which is no rotation",
    "alternating": "its axes take turns, whatever it says",
}


def _chunked(row: Row, sections: Any, *, assumed: bool) -> tuple[Row, ...] | None:
    """Return chunked rows; None if the sections that the class assumes don't sum to the pairs."""
    return None if assumed and sum(sections) != len(row) else axes.chunked(row, sections)


def _strided(row: Row, sections: Any, *, assumed: bool) -> tuple[Row, ...]:
    """Return rows that alternate between axes as long as their sections last."""
    # What the class assumes need not sum to the pairs: those left over turn with the first axis.
    return axes.rows_by_axis(row, axes.strided_axes(len(row), sections)) if assumed else axes.strided(row, sections)


def _alternating(row: Row, sections: Any, *, assumed: bool) -> tuple[Row, ...]:
    """Return rows that alternate between axes to the end, as many axes as sections."""
    return axes.rows_by_axis(row, [i % len(sections) for i in range(len(row))])


def _last_for_time(row: Row, sections: Any, *, assumed: bool) -> tuple[Row, ...] | None:
    """Height and width take turns at the fast pairs, time has the slow ones: sections (height, width, time)."""
    if assumed and sum(sections) != len(row):
        return None
    axes.chunked(row, sections)  # for its checks
    if len(sections) != 3 or sections[0] != sections[1]:
        raise ArgumentValueError("sections", "be three, as many for height as for width", list(sections))
    return axes.rows_by_axis(row, [1 + i % 2 for i in range(2 * sections[0])] + [0] * sections[2])


_ARRANGEMENTS = {
    "chunked": _chunked,
    "strided": _strided,
    "alternating": _alternating,
    "last for time": _last_for_time,
}


# --- the score scale --------------------------------------------------------------------------------------


def score(part: Part, layers: Layers, /) -> Fact:
    """Return what some layers multiply q·k by, besides the attention factor, and what it is made of."""
    sizes = layers.sizes
    head = {} if rotary_slice(part, sizes) else {"head_dim": _width(_head_dim(part, sizes))}
    return score_scale(part, {**sizes, **head}, layers.parameters, layers.label)


# --- the rotation -----------------------------------------------------------------------------------------


def no_rotation(fact: Fact, /) -> ArgumentValueError:
    """Return the error that there is no rotary embedding."""
    return ArgumentValueError("config", "have rotary embedding to make a Rope of", Text(f"none: {fact.source}"))


def make_rope(found: Recipe | Fact, /) -> Rope:
    """Return the `Rope` of a recipe; raise for the fact that there is no rotary embedding."""
    if isinstance(found, Fact):
        raise no_rotation(found)
    freqs, pairing, factor, start, facts = found
    blocks = facts["blocks"].value if "blocks" in facts else 1
    return Rope(freqs, pairing=pairing, attention_factor=factor, start=start, blocks=blocks)
