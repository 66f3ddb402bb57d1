"""What a rotary function or a cache should compute: a `Rope`, or a rotation of a config with those near it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, Text
from rope_any._pairing import Pairing
from rope_any._rope import Rope
from rope_any.testing.vectors import Case

UNSCALED = "without scaling"
"""The end of a neighbour's name."""
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
    at_length: Callable[[int], Rope] | None = None
    """The rotation by the number of tokens, if its frequencies fall with it."""
    returned: Pairing | None = None
    """The pairing in whose order the model's own class returns latent attention's features; None for that of x."""


def right_of(source: Any, lengths: Sequence[int] = (), /, **choice: Any) -> Right:
    """
    Return a `Rope` as it is, or read one from a config; raise for options that a `Rope` has no use for.

    Sequences of `lengths`, in tokens, may have been taken by mistake.
    """
    if source is None or isinstance(source, list | tuple):
        of_case = "case.frequencies, attention_factor=case.attention_factor, start=case.start"
        what = of_case if isinstance(source, Case) else "frequencies(64)"
        hint = f'give Rope({what}, pairing="{choice["pairing"] or "half"}"), without other options of a rotation'
        raise ArgumentTypeError("rope", "be a Rope or a config", NOTHING if source is None else source, hint)
    if not isinstance(source, Rope):
        return _right_of_config(source, choice, lengths)
    if given := [name for name, value in choice.items() if value is not None]:
        raise ArgumentTypeError(given[0], "not be given beside a Rope, which has one rotation", choice[given[0]])
    return Right(source)


def _right_of_config(source: Any, choice: dict[str, Any], lengths: Sequence[int]) -> Right:
    """Return the rotation that `choice` takes from a config; raise if it takes none or several."""
    from rope_any.config import Config, read
    from rope_any.config._config import readers_of
    from rope_any.config._parts import choose_part
    from rope_any.config._recipe import longest_length

    once = {name: choice.pop(name, None) for name in ("pairing", "factor")}
    if isinstance(source, Config) and (given := [name for name, value in once.items() if value is not None]):
        raise ArgumentTypeError(given[0], "be given to rope_any.config.read, not beside a Config", once[given[0]])
    config = source if isinstance(source, Config) else read(source, **once)
    explained = config.explain(**choice)
    rotating = [(one, one.rope) for one in explained if one.rope is not None]
    if not rotating:
        raise ArgumentValueError("rope", "have rotary embedding", Text(explained[0].facts["rotary"].source))
    if len({(rope, one.facts["head_dim"].value) for one, rope in rotating}) > 1:
        kinds = ", ".join(dict.fromkeys(one.layer_type or f"layers {one.layers}" for one, _ in rotating))
        raise ArgumentValueError("rope", "be one rotation", Text(f"those of {kinds}"), "choose by `layer_type`")
    (one, own), given_length = rotating[0], choice["sequence_length"]
    length = max((longest_length(each.facts) or 0 for each in explained), default=0)
    regimes = [int(each.facts["length"].value) for each in explained if "length" in each.facts]

    latent = choose_part(readers_of(config), choice["part"]).part.model.latent

    @cache
    def at_length(tokens: int) -> Rope:
        """Return the rotation of the same layers for a sequence of so many tokens."""
        found = config.explain(**choice | {"sequence_length": tokens})
        return next(each.rope for each in found if each.rope is not None)

    of_lengths = ((name, at_length(tokens)) for tokens, name in _other_lengths(one, lengths).items())
    near = {own: ""}
    for name, rope in chain(_of_parts(config, given_length), of_lengths, _other_scalings(one)):
        near.setdefault(rope, name)
    return Right(
        own,
        one.facts["head_dim"].value,
        given_length or length or None,
        min(regimes, default=None),
        {name: rope for rope, name in near.items() if name},
        at_length if regimes and "long_factor" not in one.facts and np.ndim(own.frequencies) == 1 else None,
        None if latent == own.pairing else latent,
    )


def _of_parts(config: Any, length: int | None) -> Iterator[tuple[str, Rope]]:
    """Yield by name the rotations of all parts and layers of a config."""
    for name in config.parts:
        with suppress(TypeError, ValueError):  # a part that can't be read has no rotation to take
            found = config.explain(part=name, sequence_length=length)
            yield from ((f"{name}, {_title(one)}", one.rope) for one in found if one.rope is not None)


def _other_lengths(one: Any, lengths: Sequence[int]) -> dict[int, str]:
    """Return the names of an `Explanation` for other lengths, by the number of tokens, if it depends on that."""
    trained = one.facts.get("trained_length")
    if "length" not in one.facts or trained is None:
        return {}
    if "long_factor" in one.facts:
        n = int(trained.value)
        return {n: f"the short list, for up to {n} tokens", n + 1: f"the long list, for more than {n} tokens"}
    known = {*lengths, *(2**n for n in range(8, 22)), int(trained.value)}
    return {tokens: f"a sequence of {tokens} tokens" for tokens in sorted(known) if tokens >= trained.value}


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
    rows = {f"base {v['rope_theta']:g}, {UNSCALED}": (plain, 1.0)}
    for name, (row, values) in {"its own scaling, applied twice": (scheme.scale(plain, v)[0], v), **others}.items():
        with suppress(TypeError, ValueError):  # of a number that doesn't fit the others
            scaled, factor = scheme.scale(row, values)
            rows[name] = scaled, values[factor] if isinstance(factor, str) else factor
    shape = np.shape(one.rope.frequencies)
    for name, (row, factor) in rows.items() if len(shape) < 3 and shape[-1] == len(plain) else ():
        placed = np.where(one.rope.frequencies, row, 0.0).tolist()  # each on the axis that the pair has
        yield name, replace(one.rope, frequencies=placed, attention_factor=factor)


def _title(one: Any) -> str:
    """Return the type of the layers of an `Explanation`, or their indices, or "all layers"."""
    if one.layer_type or not one.layers:
        return one.layer_type or "all layers"
    return f"layers {one.layers[0]} to {one.layers[-1]}"
