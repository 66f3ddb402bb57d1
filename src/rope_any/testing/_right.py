"""What a rotary function or a cache should compute: a `Rope`, or a rotation of a config with those near it."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text
from rope_any._frequencies import frequencies
from rope_any._rope import Rope


class Right(NamedTuple):
    """The rotation that is right, and what is known beside it."""

    rope: Rope
    head_dim: int | None = None
    """The number of features of a head; None if unknown."""
    length: int | None = None
    """The longest sequence that the config allows, in tokens."""
    neighbours: Mapping[str, Rope] = MappingProxyType({})
    """Other rotations that may be taken by mistake, by name."""


def right_of(source: Any, /, **choice: Any) -> Right:
    """Return a `Rope` as it is, or read one from a config; raise for options that a `Rope` has no use for."""
    if not isinstance(source, Rope):
        return _right_of_config(source, choice)
    if given := [name for name, value in choice.items() if value is not None]:
        raise ArgumentTypeError(given[0], "not be given beside a Rope, which has one rotation", choice[given[0]])
    return Right(source)


def _right_of_config(source: Any, choice: dict[str, Any]) -> Right:
    """Return the rotation that `choice` takes from a config; raise if it takes none or several."""
    from rope_any.config import Config, read
    from rope_any.config._recipe import longest_length

    once = {name: choice.pop(name, None) for name in ("pairing", "factor")}
    if isinstance(source, Config) and (given := [name for name, value in once.items() if value is not None]):
        raise ArgumentTypeError(given[0], "be given to rope_any.config.read, not beside a Config", once[given[0]])
    config = source if isinstance(source, Config) else read(source, **once)
    explained = config.explain(**choice)
    found = {(one.rope, one.facts["head_dim"].value): one for one in explained if one.rope is not None}
    if not found:
        raise ArgumentValueError("rope", "have rotary embedding", Text(explained[0].facts["rotary"].source))
    if len(found) > 1:
        kinds = ", ".join(dict.fromkeys(one.layer_type or f"layers {one.layers}" for one in found.values()))
        raise ArgumentValueError("rope", "be one rotation", Text(f"those of {kinds}"), "choose one by layer_type=")
    ((rope, head_dim),) = found
    length = max((longest_length(one.facts) or 0 for one in explained), default=0)
    near = dict(_neighbours(config, rope, **choice))
    return Right(rope, head_dim, choice.get("sequence_length") or length or None, near)


def _neighbours(config: Any, rope: Rope, **choice: Any) -> Iterator[tuple[str, Rope]]:
    """Yield by name the rotations of a config that differ from `rope`: other layers, parts and lengths, no scaling."""
    for name in config.parts:
        try:
            explained = config.explain(part=name, sequence_length=choice.get("sequence_length"))
        except (TypeError, ValueError):  # a part that can't be read has no rotation to take
            continue
        for one in explained:
            if one.rope is None:
                continue
            if one.rope != rope:
                yield f"{name}, {_title(one)}", one.rope
                continue
            yield from _other_lengths(config, name, one)
            base = one.facts.get("rope_theta")
            if base is not None and len(one.rope.frequencies) > 1 and isinstance(one.rope.frequencies[0], float):
                plain = Rope(frequencies(2 * len(rope.frequencies), base=base.value), pairing=rope.pairing)
                if plain.frequencies != rope.frequencies:
                    yield f"base {base.value:g}, without scaling", plain


def _other_lengths(config: Any, part: str, one: Any) -> Iterator[tuple[str, Rope]]:
    """Yield by name the rotations of the same layers for other lengths, if theirs depends on the length."""
    if "length" not in one.facts:
        return
    trained = one.facts.get("trained_length")
    lengths = [trained.value, trained.value + 1] if trained else []
    lengths += [fact.value for name in ("extended_length", "stated_length") if (fact := one.facts.get(name))]
    for length in lengths:
        for each in config.explain(part=part, layer_type=one.layer_type, sequence_length=int(length)):
            if each.rope is not None and each.rope != one.rope:
                yield f"a sequence of {int(length)} tokens", each.rope


def _title(one: Any) -> str:
    """Return the type of the layers of an `Explanation`, or their indices, or "all layers"."""
    if one.layer_type or not one.layers:
        return one.layer_type or "all layers"
    return f"layers {one.layers[0]} to {one.layers[-1]}"
