"""Find what a config says that was probably not meant, and what other programs read in another way."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from rope_any._checks import positive
from rope_any._frequencies import as_rows
from rope_any.config._layers import (
    EXTENDED,
    MOST_KINDS,
    Layers,
    class_defaults,
    groups_by_label,
    rope_type_of,
)
from rope_any.config._load import Values
from rope_any.config._part import BASE, LENGTHS, OBJECTS, SHARE, Part
from rope_any.config._parts import PartReader
from rope_any.config._recipe import Recipe, group_with_label, has_rotary_slice, recipe
from rope_any.config._schemes import ORIGINAL
from rope_any.config.tables.models import MODELS
from rope_any.scaling import yarn_attention_factor

Found: TypeAlias = Iterator[tuple[str, str]]
Readings: TypeAlias = Iterator[tuple[str, Recipe | None, Recipe | None, str]]


class Caution(NamedTuple):
    """What a config says that was probably not meant, or that not all programs read alike."""

    part: str
    """The part of the model, such as ``text``."""
    layer_type: str | None
    """The type of layers it is about; None for all of them."""
    text: str
    """What the config says, with the keys that say it."""
    meant: str
    """What was probably meant, or how to say it to all programs."""
    elsewhere: bool
    """Whether it is about how other programs read the config, not about its values."""

    def __str__(self) -> str:
        """Return the text and what was meant, without the part."""
        return f"{self.text}; {self.meant}"


class _Kind(NamedTuple):
    """One kind of layers of a part: the argument of the rules."""

    part: Part
    group: Layers
    made: Recipe

    @property
    def rope_type(self) -> str:
        """The rope type, by today's name."""
        return rope_type_of(self.group.values)

    def number(self, key: str) -> float | None:
        """Return a positive number among the plain values; None if it is missing or wrong."""
        return _positive(self.group.values, key)

    def given(self, *keys: str) -> str:
        """Return the full names of those keys that the file gives, as text; "" if it gives none."""
        found = [fact for key in keys if (fact := self.group.values.find(key)) and fact.value is not None]
        return " and ".join(fact.source for fact in found if fact.source != self.part.default)

    def changed(self, length: float | None = None, /, **values: Any) -> Recipe | None:
        """Return the recipe for another length, or with other plain values; None if it can't be made."""
        changed = Values(self.group.values.facts())
        for key, value in values.items():
            changed.put(key, value, changed.sources.get(key, key))
        try:
            return recipe(self.part, self.group._replace(values=changed), None if length is None else int(length))
        except (OverflowError, TypeError, ValueError):  # also if a key that the class ignores has another value
            return None


def cautions(readers: Mapping[str, PartReader], /) -> tuple[Caution, ...]:
    """Return the cautions about the parts that are read as text is, each once."""
    found: dict[tuple[str, str, str, bool], dict[str | None, None]] = {}
    labels: dict[str, dict[str | None, None]] = {}
    for name, reader in readers.items():
        for kind in _rotating_kinds(reader):
            labels.setdefault(name, {})[kind.group.label] = None
            for rule in _RULES:
                for text, meant in rule(kind):
                    found.setdefault((name, text, meant, rule is _elsewhere), {})[kind.group.label] = None
    return tuple(
        Caution(name, label, text, meant, elsewhere)
        for (name, text, meant, elsewhere), of_labels in found.items()
        for label in (of_labels if len(of_labels) < len(labels[name]) else [None])
    )


def _rotating_kinds(reader: PartReader) -> Iterator[_Kind]:
    """Yield each kind of layers that rotates, in parts that are read as text is; none for layers that are refused."""
    try:
        groups = groups_by_label(reader.layers() if reader.is_text else ())
    except (TypeError, ValueError):
        return
    rotating = [group for same_label in groups.values() for group in same_label if not group.unrotated]
    for group in rotating[:MOST_KINDS]:
        with suppress(TypeError, ValueError):
            yield _Kind(reader.part, group, reader.recipe(group, None))


def _positive(values: Mapping[str, Any], key: str) -> float | None:
    """Return a positive number; None if it is missing or wrong."""
    try:
        return positive(key, values[key])
    except (KeyError, TypeError, ValueError):
        return None


# --- rules: each yields (what the config says, what was probably meant) -----------------------------------


def _scaled_lengths(kind: _Kind) -> Found:
    """Compare the factor with the lengths before and after scaling; `_parameters` refuses a written factor below 1."""
    sources, rope_type = kind.group.values.sources, kind.rope_type
    original, longest, factor = map(kind.number, (ORIGINAL, LENGTHS[0], "factor"))
    if original is None or longest is None:
        return
    if original > longest:
        derived = kind.made.facts.get("factor") if factor is None else None
        below = f", so that the factor is {derived.value:.6g}" if derived else ""
        text = f"{sources[ORIGINAL]}, {original:.0f}, is beyond {sources[LENGTHS[0]]}, {longest:.0f}{below}"
        extended = original if factor is None else longest * factor
        yield text, f"probably {ORIGINAL} {longest:.0f}, and {LENGTHS[0]} {extended:.0f}"
    elif factor is not None and rope_type in ("yarn", "longrope") and not math.isclose(factor * original, longest):
        product, by_ratio = factor * original, f"factor {longest / original:.6g}"
        text = f"{sources['factor']} × {sources[ORIGINAL]} is {product:.0f}, but {sources[LENGTHS[0]]} is {longest:.0f}"
        larger = f"{LENGTHS[0]} {product:.0f}, or {by_ratio}"
        yield text, f"probably {by_ratio if longest > product else larger}"


def _two_lengths(kind: _Kind) -> Found:
    """Find lengths under several keys that differ; only the first is read."""
    part, values = kind.part, kind.group.values
    given = {part.name(key): part.keys[key] for key in LENGTHS if _positive(part.keys, key)}
    given |= {values.sources[EXTENDED]: values[EXTENDED]} if kind.number(EXTENDED) else {}
    if len(set(given.values())) > 1:
        text = "there are several lengths: " + ", ".join(f"{name} {length}" for name, length in given.items())
        yield text, f"{next(iter(given))} is read; remove the others if they are wrong"


def _base_by_class(kind: _Kind) -> Found:
    """Find a base that only the class gives."""
    part, label = kind.part, kind.group.label
    read = [key for key in part.key_names(BASE) if key not in part.model.ignored]
    if BASE not in kind.group.values and part.model_type in MODELS and read:
        base, source = class_defaults(part, label)[BASE]
        layer = part.model.layers.get(label or "")
        key = part.name(layer.key if layer else read[-1])
        others = "" if base == 10_000 else ", while other programs may take 10000"
        yield f"the file gives no {key}: {base:.0f} is the {source}{others}", f"write {key} {base:.0f} if that is right"


# --- readings: each yields (what another program does, our recipe, its recipe, what to do about it) --------
#
# Read in transformers 4.44 to 4.57; in `layers/rotary_embedding` of vLLM 0.33 and SGLang 0.5.23; and in llama.cpp of
# 2026: conversion/base.py, conversion/deepseek.py, src/llama-context.cpp, src/llama-model.cpp and
# src/models/deepseek2.cpp. A recipe is None if it can't be made.


def _elsewhere(kind: _Kind) -> Found:
    """Find the readings of other programs that differ from ours, and say how far."""
    for readings in _READINGS:
        for text, ours, theirs, meant in readings(kind):
            if ours and theirs and (difference := _difference(ours, theirs)):
                yield f"{text}: {difference} there", meant


def _keys_by_transformers_4(kind: _Kind) -> Readings:
    """Yield the reading without the keys that transformers 4 does not read, because of their place."""
    part, old = kind.part, kind.part.keys.get(OBJECTS[1])
    outside = {BASE, SHARE}  # it reads them only there
    names = [f"{OBJECTS[1]}.{key}" for key in sorted(outside)] if old else [OBJECTS[0]]
    unread = " and ".join(part.name(name) for name in names if part.get(name))
    if not unread or part.form:
        return
    keys = {OBJECTS[0]: None, OBJECTS[1]: old and {key: value for key, value in old.items() if key not in outside}}
    other = part._replace(keys={**part.keys, **keys})
    try:
        theirs = recipe(other, group_with_label(other, kind.group.label))
    except (KeyError, TypeError, ValueError):  # no version 4 can read it
        return
    text = f"transformers 4, if it has {part.model_type}, does not read {unread}"
    yield text, kind.made, theirs, "as_transformers(version=4) writes the keys that it reads"


def _object_by_transformers(kind: _Kind) -> Readings:
    """Yield the reading by transformers 5 without a base in an object of the model's own, which it does not read."""
    name = kind.part.name(kind.part.model.keys.get(BASE, ""))
    if "." in kind.part.model.keys.get(BASE, "") and kind.given(BASE) == name:
        theirs = kind.changed(**{BASE: class_defaults(kind.part, kind.group.label)[BASE].value})
        yield f"transformers 5.24 does not read {name}", kind.made, theirs, f"give the same {BASE} outside too"


def _factor_by_transformers_4(kind: _Kind) -> Readings:
    """Yield the reading of YaRN by versions of transformers 4 that derive the factor even if it is given."""
    original, longest, factor = map(kind.number, (ORIGINAL, LENGTHS[0], "factor"))
    is_inside = kind.part.get(f"{OBJECTS[1]}.{ORIGINAL}") is not None
    if kind.rope_type == "yarn" and is_inside and not kind.part.form and original and longest and factor:
        ratio = f"the factor {longest / original:.6g}, {LENGTHS[0]} / {ORIGINAL}"
        text = f"transformers 4.51 to 4.55 take {ratio}, not {kind.given('factor')}"
        yield text, kind.made, kind.changed(factor=None), "use another version there, or make the numbers agree"


def _lists_elsewhere(kind: _Kind) -> Readings:
    """Yield the reading of LongRoPE by programs that choose the list once, by the longest sequence that they serve."""
    original, longest = map(kind.number, (ORIGINAL, LENGTHS[0]))
    if kind.rope_type == "longrope" and original and longest and longest > original:
        served = f"for a maximum above {original:.0f} tokens, vLLM and llama.cpp use long_factor"
        text = f"{served} for short sequences too, where transformers uses short_factor"
        yield text, kind.made, kind.changed(original + 1), f"for short sequences, set that maximum to {original:.0f}"


def _dynamic_elsewhere(kind: _Kind) -> Readings:
    """Yield the readings of rope type dynamic by programs whose base does not grow with each sequence."""
    factor, trained = kind.number("factor"), kind.made.facts.get("length")
    if kind.rope_type == "dynamic" and factor and trained:
        length = trained.value * factor
        grown = kind.changed(length)
        text = f"SGLang takes the base for {length:.0f} tokens at any length, also up to {trained.value:.0f}"
        yield text, kind.made, grown, f"sequence_length={length:.0f} gives the table that SGLang has"
        text = f"llama.cpp and vLLM 0.33 don't apply dynamic, so that at {length:.0f} tokens nothing is scaled"
        yield text, grown, kind.made, f"keep to {trained.value:.0f} tokens there"


def _yarn_by_llama_cpp(kind: _Kind) -> Readings:
    """Yield the readings of YaRN without the keys that a GGUF file lacks, or that llama.cpp does not read in it."""
    if kind.rope_type != "yarn":
        return
    in_slice, scale = has_rotary_slice(kind.part, kind.group.values), kind.number("mscale_all_dim")
    changes: dict[str, dict[str, Any]] = {"rounds the ends of the ramp": {"truncate": True}}
    if in_slice:  # architecture deepseek2; some others read the keys
        changes["has a ramp from 32 turns to 1"] = {"beta_fast": 32.0, "beta_slow": 1.0}
    if in_slice == bool(scale) and not (kind.part.form or kind.part.model.layers):  # of others, it is not known
        derived = yarn_attention_factor(kind.made.facts["factor"].value, mscale=scale, mscale_all_dim=scale)
        scales = {"attention_factor": derived, "mscale": None, "mscale_all_dim": None}
        changes["derives the factor of cos and sin itself"] = scales
    for what, values in changes.items():
        if given := kind.given(*values):
            text = f"llama.cpp {what}" + ("" if kind.part.form else f", since it does not read {given}")
            yield text, kind.made, kind.changed(**values), "compare outputs before a GGUF of this model is used"


def _ramp_by_vllm(kind: _Kind) -> Readings:
    """Yield the reading of YaRN with sections of several axes by vLLM, which makes the ramp for a longer length."""
    original, sections = kind.number(ORIGINAL), kind.given("mrope_section")
    if kind.rope_type == "yarn" and sections and original and kind.number("factor"):
        text = f"vLLM makes the ramp for 4 times {kind.group.values.sources[ORIGINAL]}, since {sections} is given"
        yield text, kind.made, kind.changed(**{ORIGINAL: 4 * original}), "compare outputs before vLLM serves the model"


_RULES: tuple[Callable[[_Kind], Found], ...] = (_scaled_lengths, _two_lengths, _base_by_class, _elsewhere)
_READINGS: tuple[Callable[[_Kind], Readings], ...] = (
    _keys_by_transformers_4,
    _object_by_transformers,
    _factor_by_transformers_4,
    _lists_elsewhere,
    _dynamic_elsewhere,
    _yarn_by_llama_cpp,
    _ramp_by_vllm,
)


def _difference(ours: Recipe, theirs: Recipe) -> str:
    """Return how far the table of another reading is from ours, as text; "" if they are equal to 4 digits."""
    scale = theirs.rope.attention_factor / ours.rope.attention_factor
    larger = "" if math.isclose(scale, 1, rel_tol=1e-4) else f"cos and sin are {scale:.4g} times as large"
    return " and ".join(filter(None, (_difference_in_speed(ours, theirs), larger)))


def _difference_in_speed(ours: Recipe, theirs: Recipe) -> str:
    """Return how far the frequencies of another reading are from ours, as text; "" if they are equal to 4 digits."""
    a, b = ([sum(each) for each in zip(*as_rows(made.rope.frequencies), strict=True)] for made in (ours, theirs))
    counts = [sum(f != 0 for f in row) for row in (a, b)]
    if counts[0] != counts[1]:
        return f"{2 * counts[1]} features rotate, not {2 * counts[0]},"
    ratios = [abs(g / f) for f, g in zip(a, b, strict=False) if f and g]  # one may have pairs more that don't rotate
    far = max(ratios, key=lambda ratio: abs(math.log(ratio)), default=1.0)
    if not math.isclose(far, 1, rel_tol=1e-4):
        return f"pairs rotate {'up' if far > 1 else 'down'} to {far:.4g} times as fast"
    rotating = [[[f != 0 for f in row] for row in as_rows(made.rope.frequencies)] for made in (ours, theirs)]
    return "" if rotating[0] == rotating[1] else "the axes have other pairs"
