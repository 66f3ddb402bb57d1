"""What a rotary function or a cache should compute: a `Rope`, or a rotation of a config with those near it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text
from rope_any._frequencies import Row
from rope_any._rope import Rope

FACTORS = (2, 4, 8, 16, 32, 40, 64)  # of published configs


class Right(NamedTuple):
    """The rotation that is right, and what is known beside it."""

    rope: Rope
    head_dim: int | None = None
    """The number of features of a head; None if unknown."""
    length: int | None = None
    """The longest sequence that the config allows, in tokens."""
    regime: int | None = None
    """The length, in tokens, that the rotation is for; None if it is the same for all."""
    neighbours: Mapping[str, Rope] = MappingProxyType({})
    """Other rotations that may be taken by mistake, by name."""


def right_of(source: Any, lengths: Sequence[int] = (), /, **choice: Any) -> Right:
    """
    Return a `Rope` as it is, or read one from a config; raise for options that a `Rope` has no use for.

    Sequences of `lengths`, in tokens, may have been taken by mistake.
    """
    if not isinstance(source, Rope):
        return _right_of_config(source, choice, lengths)
    if given := [name for name, value in choice.items() if value is not None]:
        raise ArgumentTypeError(given[0], "not be given beside a Rope, which has one rotation", choice[given[0]])
    return Right(source)


def _right_of_config(source: Any, choice: dict[str, Any], lengths: Sequence[int]) -> Right:
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
        raise ArgumentValueError("rope", "be one rotation", Text(f"those of {kinds}"), "choose by `layer_type`")
    ((rope, head_dim),) = found
    length = max((longest_length(one.facts) or 0 for one in explained), default=0)
    regimes = [int(one.facts["length"].value) for one in explained if "length" in one.facts]
    near = dict(_neighbours(config, rope, lengths, choice.get("sequence_length")))
    return Right(rope, head_dim, choice.get("sequence_length") or length or None, min(regimes, default=None), near)


def _neighbours(config: Any, rope: Rope, lengths: Sequence[int], length: int | None) -> Iterator[tuple[str, Rope]]:
    """Yield by name the rotations of a config that differ from `rope`: other layers, parts, lengths and scalings."""
    for name in config.parts:
        try:
            explained = config.explain(part=name, sequence_length=length)
        except (TypeError, ValueError):  # a part that can't be read has no rotation to take
            continue
        for one in explained:
            if one.rope is not None and one.rope != rope:
                yield f"{name}, {_title(one)}", one.rope
            elif one.rope is not None:
                found = {rope: ""}
                for title, each in chain(_other_lengths(config, name, one, lengths), _other_scalings(one)):
                    found.setdefault(each, title)
                yield from ((title, each) for each, title in found.items() if title)


def _other_lengths(config: Any, part: str, one: Any, lengths: Sequence[int]) -> Iterator[tuple[str, Rope]]:
    """Yield by name the rotations of the same layers for other lengths, if theirs depends on the length."""
    trained = one.facts.get("trained_length")
    if "length" not in one.facts or trained is None:
        return
    if "long_factor" in one.facts:
        names = {
            trained.value: f"the short list, for up to {trained.value} tokens",
            trained.value + 1: f"the long list, for more than {trained.value} tokens",
        }
    else:
        known = {*lengths, *(2**n for n in range(8, 22)), *(n * trained.value for n in range(1, 33))}
        names = {length: f"a sequence of {length} tokens" for length in sorted(known) if length >= trained.value}
    for length, name in names.items():
        for each in config.explain(part=part, layer_type=one.layer_type, sequence_length=int(length)):
            if each.rope is not None and each.rope != one.rope:
                yield name, each.rope


def _other_scalings(one: Any) -> Iterator[tuple[str, Rope]]:
    """Yield by name the rotations of an `Explanation` without scaling, scaled twice, or by another number."""
    from rope_any.config._recipe import without_scaling
    from rope_any.config._schemes import BY_KEY, ORIGINAL, SCHEMES

    v = {name: fact.value for name, fact in one.facts.items() if fact.source != "derived from these"}
    scheme = next((BY_KEY[key] for key in BY_KEY if key in v), SCHEMES.get(v.get("rope_type", "")))
    if scheme is None or "rope_theta" not in v:
        return
    v = dict.fromkeys(scheme.keys) | v
    plain = without_scaling(v["rotary_dim"], v["rope_theta"])
    lengths = [v[name] for name in ("trained_length", "extended_length", "stated_length") if name in v]
    changes = {"factor": FACTORS, **dict.fromkeys((ORIGINAL, "max_position_embeddings"), lengths)}
    others = {
        f"{key} {number:g}": (plain, v | {key: number})
        for key, numbers in changes.items()
        for number in numbers
        if v.get(key) is not None and number != v[key]
    }
    yield from _placed(one.rope, f"base {v['rope_theta']:g}, without scaling", plain, 1.0)
    for name, (row, values) in {"its own scaling, applied twice": (scheme.scale(plain, v)[0], v), **others}.items():
        with suppress(TypeError, ValueError):  # of a number that doesn't fit the others
            scaled, factor = scheme.scale(row, values)
            yield from _placed(one.rope, name, scaled, values[factor] if isinstance(factor, str) else factor)


def _placed(rope: Rope, name: str, row: Row, factor: float) -> Iterator[tuple[str, Rope]]:
    """Yield `rope` by name with the frequencies of `row`, each on the axis that the pair has, if it has as many."""
    shape = np.shape(rope.frequencies)
    if len(shape) < 3 and shape[-1] == len(row):
        placed = np.where(rope.frequencies, row, 0.0).tolist()
        yield name, replace(rope, frequencies=placed, attention_factor=factor)


def _title(one: Any) -> str:
    """Return the type of the layers of an `Explanation`, or their indices, or "all layers"."""
    if one.layer_type or not one.layers:
        return one.layer_type or "all layers"
    return f"layers {one.layers[0]} to {one.layers[-1]}"
