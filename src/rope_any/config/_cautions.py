"""Find what a config says that was probably not meant, and what other programs read in another way."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from rope_any._checks import positive
from rope_any._frequencies import as_rows
from rope_any.config._canonical import EXTENDED, Layers, canonical, class_defaults, groups_by_label, rope_type_of
from rope_any.config._load import Values
from rope_any.config._models import MODELS
from rope_any.config._part import BASE, LENGTHS, OBJECTS, Part
from rope_any.config._parts import PartReader
from rope_any.config._recipe import Recipe, recipe
from rope_any.config._schemes import ORIGINAL

Found: TypeAlias = Iterator[tuple[str, str]]


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


def cautions(readers: Mapping[str, PartReader], /) -> tuple[Caution, ...]:
    """Return the cautions about the parts that are read as text is, each once."""
    found: dict[tuple[str, str, str], list[str | None]] = {}
    labels: dict[str, list[str | None]] = {}
    for name, reader in readers.items():
        for label, group, made in _rotating_groups(reader):
            labels.setdefault(name, []).append(label)
            for rule in _RULES:
                for text, meant in rule(reader.part, group, made):
                    found.setdefault((name, text, meant), []).append(label)
    return tuple(
        Caution(name, of_labels[0] if len(of_labels) < len(labels[name]) else None, text, meant)
        for (name, text, meant), of_labels in found.items()
    )


def _rotating_groups(reader: PartReader) -> Iterator[tuple[str | None, Layers, Recipe]]:
    """Yield (label, group, recipe) of each kind of layers that rotates; nothing for parts that are refused."""
    try:
        groups = groups_by_label(reader.layers()) if reader.is_text else {}
        for label, same_label in groups.items():
            for group in [group for group in same_label if not group.unrotated][:1]:
                yield label, group, reader.recipe(group, None)
    except (TypeError, ValueError):
        return


def _length(values: Mapping[str, Any], key: str) -> float | None:
    """Return a positive number of the config; None if it is missing or wrong."""
    try:
        return positive(key, values[key])
    except (KeyError, TypeError, ValueError):
        return None


# --- rules: each yields (what the config says, what was probably meant) -----------------------------------


def _scaled_lengths(_: Part, group: Layers, made: Recipe) -> Found:
    """Compare the factor with the lengths before and after scaling."""
    v, kind = group.values, rope_type_of(group.values)
    original, longest, factor = (_length(v, key) for key in (ORIGINAL, LENGTHS[0], "factor"))
    if original is None or longest is None:
        return
    names = v.sources[ORIGINAL], v.sources[LENGTHS[0]]
    if original > longest:
        text = f"{names[0]}, {original:.0f}, is beyond {names[1]}, {longest:.0f}"
        extended = longest * (factor or 1)
        yield text, f"probably {ORIGINAL} {longest:.0f}, and {LENGTHS[0]} {extended:.0f}"
    elif factor is not None and kind in ("yarn", "longrope") and not math.isclose(factor * original, longest):
        product, ratio = f"{factor * original:.0f}", f"{longest / original:.6g}"
        text = f"{v.sources['factor']} × {names[0]} is {product}, but {names[1]} is {longest:.0f}"
        whole = f"{LENGTHS[0]} {product}"
        yield (
            text,
            f"probably factor {ratio}" if longest > factor * original else f"probably {whole}, or factor {ratio}",
        )


def _two_lengths(part: Part, group: Layers, made: Recipe) -> Found:
    """Find lengths under several keys that differ; only the first is read."""
    given = {part.name(key): part.keys[key] for key in LENGTHS if _length(part.keys, key)}
    if (inner := _length(group.values, EXTENDED)) is not None:
        given[group.values.sources[EXTENDED]] = inner
    if len(set(given.values())) > 1:
        text = "there are several lengths: " + ", ".join(f"{name} {length}" for name, length in given.items())
        yield text, f"{next(iter(given))} is read; remove the others if they are wrong"


def _base_by_class(part: Part, group: Layers, made: Recipe) -> Found:
    """Find a base that only the class gives."""
    if BASE not in group.values and part.model_type in MODELS and BASE not in part.model.ignored:
        base, source = class_defaults(part, group.label)[BASE]
        layer = part.model.layers.get(group.label or "")
        key, others = layer.key if layer else BASE, "" if base == 10_000 else ", while other programs may take 10000"
        yield f"the file gives no {key}: {base:.0f} is the {source}{others}", f"write {key} {base:.0f} if that is right"


def _unread_by_transformers_4(part: Part, group: Layers, made: Recipe) -> Found:
    """Find parameters that transformers 4 does not read, because of their key."""
    if part.keys.get(OBJECTS[0]) and not part.keys.get(OBJECTS[1]):
        try:
            groups = groups_by_label(canonical(part.without(OBJECTS[0])))
            theirs = recipe(part.without(OBJECTS[0]), (groups.get(group.label) or groups[None])[0])
        except (KeyError, TypeError, ValueError):  # no version 4 can read it
            return
        if difference := _difference(made, theirs):
            text = f"transformers 4 does not read {part.name(OBJECTS[0])}: {difference} there"
            yield text, "as_transformers(version=4) writes the keys that it reads"


def _one_table_elsewhere(_: Part, group: Layers, made: Recipe) -> Found:
    """Find frequencies that depend on the length of the sequence, of which vLLM makes one table for all."""
    v, kind = group.values, rope_type_of(group.values)
    if "length" not in made.facts:
        return
    trained = f"{made.facts['length'].value:.0f} tokens"
    if kind == "longrope":
        text = f"up to {trained} short_factor is in use, as in transformers; vLLM takes long_factor at any length"
        yield f"{text} if its max_model_len is larger", f"set max_model_len to at most {trained} for short sequences"
    elif kind == "dynamic":
        text = (
            f"the base grows with each sequence beyond {trained}, as in transformers; vLLM has one base at any length"
        )
        yield text, f"give sequence_length={made.facts['length'].value * v['factor']:.0f} for the table of vLLM"


def _rounded_ramp_elsewhere(part: Part, group: Layers, made: Recipe) -> Found:
    """Find a ramp of YaRN that is not rounded, as llama.cpp always does."""
    if group.values.get("truncate") is False:
        values = Values(group.values.facts())
        values["truncate"] = True
        if difference := _difference(made, recipe(part, group._replace(values=values))):
            text = (
                f"llama.cpp rounds the ends of the ramp, whatever {values.sources['truncate']} is: {difference} there"
            )
            yield text, "compare outputs before a GGUF of this model is used"


_RULES: tuple[Callable[[Part, Layers, Recipe], Found], ...] = (
    _scaled_lengths,
    _two_lengths,
    _base_by_class,
    _unread_by_transformers_4,
    _one_table_elsewhere,
    _rounded_ramp_elsewhere,
)


def _difference(ours: Recipe, theirs: Recipe) -> str:
    """Return how far the frequencies of another reading are from ours, as text; "" if they are equal."""
    if ours.frequencies == theirs.frequencies:
        return ""
    rows = [[sum(each) for each in zip(*as_rows(made.frequencies), strict=True)] for made in (ours, theirs)]
    if len(rows[0]) != len(rows[1]):
        return f"{2 * len(rows[1])} features rotate, not {2 * len(rows[0])},"
    ratios = [b / a for a, b in zip(*rows, strict=True) if a]
    far = max(ratios, key=lambda ratio: abs(math.log(ratio)) if ratio > 0 else 0.0)
    return f"pairs rotate up to {far:.4g} times as fast" if far > 1 else f"pairs rotate down to {far:.4g} times as fast"
