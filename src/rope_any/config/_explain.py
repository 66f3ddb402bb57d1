"""Explain the rotations of a part of a config: the `Rope`, the layers that have it, and the source of each value."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rope_any._checks import positive
from rope_any._rope import Rope
from rope_any.config._cautions import Caution
from rope_any.config._layers import EXTENDED, Layers, first_value, groups_by_label, groups_of_type, rope_type_of
from rope_any.config._load import Fact, Values, same
from rope_any.config._part import LENGTHS, Part
from rope_any.config._parts import PartReader
from rope_any.config._schemes import ORIGINAL

# Rope types whose factor is the extended length over the trained length; that of llama3 is not.
_LENGTH_RATIO = {"linear", "dynamic", "yarn", "longrope"}


class Explanation(NamedTuple):
    """One rotation of a config, and the source of each of its values."""

    layer_type: str | None
    """The type of layers it is for; None if layers don't differ."""
    rope: Rope | None
    """The rotation; None if these layers have no rotary embedding."""
    facts: dict[str, Fact]
    """Each value and its source, by name."""
    layers: tuple[int, ...] | None
    """Indices of layers with this rotation, from 0; () if none has it; None if the config gives no number of layers."""
    cautions: tuple[Caution, ...] = ()
    """The cautions about these layers."""


def explain(reader: PartReader, layer_type: str | None, length: int | None, /) -> tuple[Explanation, ...]:
    """Return the rotations of a part at a length, of one type of layers or of all, as `Config.explain` says."""
    groups = reader.layers()
    explanations: list[Explanation] = []
    for label, same_label in groups_by_label(groups_of_type(groups, layer_type)).items():
        found: dict[Rope, Explanation] = {}
        for group in (group for group in same_label if not group.unrotated):
            rope, facts = reader.recipe(group, length)
            lengths = {} if reader.grid else _lengths(reader.part, group, groups, facts)  # grids have no lengths
            facts = {**facts, **lengths, **_score_of(reader, group)}
            old = found.get(rope)
            layers = group.indices if old is None else tuple(sorted([*(old.layers or ()), *(group.indices or ())]))
            found[rope] = Explanation(label or layer_type, rope, facts if old is None else old.facts, layers)
        reasons = [group.unrotated for group in same_label if group.unrotated]
        none = {"rotary": Fact(None, next(iter(reasons), ""))}
        unrotated = [Explanation(label or layer_type, None, none, ())] if reasons else []
        explanations += found.values() or unrotated
    return tuple(explanations)


def _score_of(reader: PartReader, group: Layers) -> dict[str, Fact]:
    """Return {"score_scale": fact}, with value None and its reason if unknown; {} if `reader` has no score."""
    if reader.score is None:
        return {}
    try:
        return {"score_scale": reader.score(group)}
    except (TypeError, ValueError) as error:
        return {"score_scale": Fact(None, str(error))}


def _lengths(part: Part, group: Layers, groups: Iterable[Layers], facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return ``trained_length`` and ``extended_length`` if known; ``stated_length`` is one that may be either."""
    parameters, own = [each.values for each in groups], group.values
    # a group without scaling has the lengths of those with it
    scaled = own if _extends_context(own) else next(filter(_extends_context, parameters), own)
    outer, inner = _token_count(first_value(part, LENGTHS)), _token_count(scaled.find(EXTENDED))
    originals = [facts.get(ORIGINAL), part.get(ORIGINAL), *(one.find(ORIGINAL) for one in (scaled, *parameters))]
    trained = next(filter(None, map(_token_count, originals)), None)
    # with scaling, max_position_embeddings may be either length; for rope type dynamic, `outer` is the trained one
    is_dynamic = rope_type_of(scaled) == "dynamic" and "alpha" not in scaled
    if trained is None and (
        is_dynamic or not _extends_context(scaled) or (inner and outer and outer.value < inner.value)
    ):
        trained = outer or inner
    if trained is None:
        undecided = outer if outer and (inner is None or outer.value > inner.value) else None
        return {name: fact for name, fact in (("extended_length", inner), ("stated_length", undecided)) if fact}
    is_ratio = rope_type_of(scaled) in _LENGTH_RATIO and "alpha" not in scaled
    factor = _token_count(scaled.find("factor")) if is_ratio else None
    derived = factor and Fact(trained.value * factor.value, f"{trained.source} * {factor.source}")
    extended = [n for n in (inner, outer, _token_count(derived)) if n is not None and n.value > trained.value]
    return {"trained_length": trained} | ({"extended_length": extended[0]} if extended else {})


def _extends_context(parameters: Values) -> bool:
    """Whether parameters scale the context: they give a trained length, or a `factor` or `alpha` that is not 1."""
    given = [parameters[name] for name in ("factor", "alpha") if name in parameters]
    return ORIGINAL in parameters or not all(same(value, 1) for value in given)


def _token_count(fact: Fact | None) -> Fact | None:
    """Return a fact with its number as an int if whole, else a float; None if it is no finite number of 1 or more."""
    if fact is None:
        return None
    try:
        number = positive(fact.source, fact.value)
    except (TypeError, ValueError):
        return None
    if number < 1:
        return None
    return Fact(int(number) if number.is_integer() and number < 2**53 else number, fact.source)
