"""Find what a config says that was probably not meant, and what other programs read in another way."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from rope_any._checks import positive
from rope_any._frequencies import as_rows
from rope_any.config._canonical import EXTENDED, Layers, canonical, class_defaults, groups_by_label, rope_type_of
from rope_any.config._load import Values
from rope_any.config._part import BASE, LENGTHS, OBJECTS, Part
from rope_any.config._parts import PartReader
from rope_any.config._recipe import Recipe, recipe
from rope_any.config._schemes import ORIGINAL
from rope_any.config.tables.models import MODELS

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

    def number(self, key: str) -> float | None:
        """Return a positive number among the plain values; None if it is missing or wrong."""
        return _positive(self.group.values, key)


def cautions(readers: Mapping[str, PartReader], /) -> tuple[Caution, ...]:
    """Return the cautions about the parts that are read as text is, each once."""
    found: dict[tuple[str, str, str, bool], list[str | None]] = {}
    labels: dict[str, list[str | None]] = {}
    for name, reader in readers.items():
        for kind in _rotating_kinds(reader):
            labels.setdefault(name, []).append(kind.group.label)
            for rule in (*_ABOUT_VALUES, *_ABOUT_PROGRAMS):
                for text, meant in rule(kind):
                    found.setdefault((name, text, meant, rule in _ABOUT_PROGRAMS), []).append(kind.group.label)
    return tuple(
        Caution(name, of_labels[0] if len(of_labels) < len(labels[name]) else None, text, meant, elsewhere)
        for (name, text, meant, elsewhere), of_labels in found.items()
    )


def _rotating_kinds(reader: PartReader) -> Iterator[_Kind]:
    """Yield each kind of layers that rotates; none for parts that are refused, or not read as text is."""
    try:
        for same_label in groups_by_label(reader.layers() if reader.is_text else ()).values():
            for group in [group for group in same_label if not group.unrotated][:1]:
                yield _Kind(reader.part, group, reader.recipe(group, None))
    except (TypeError, ValueError):
        return


def _positive(values: Mapping[str, Any], key: str) -> float | None:
    """Return a positive number; None if it is missing or wrong."""
    try:
        return positive(key, values[key])
    except (KeyError, TypeError, ValueError):
        return None


# --- rules: each yields (what the config says, what was probably meant) -----------------------------------


def _scaled_lengths(kind: _Kind) -> Found:
    """Compare the factor with the lengths before and after scaling; `_recipe` refuses a written factor below 1."""
    sources, rope_type = kind.group.values.sources, rope_type_of(kind.group.values)
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


def _unread_by_transformers_4(kind: _Kind) -> Found:
    """Find parameters that transformers 4 does not read, because of their key."""
    part, label = kind.part, kind.group.label
    is_translated = part.name(OBJECTS[0]) != ".".join((*part.path, OBJECTS[0]))
    if is_translated or not part.keys.get(OBJECTS[0]) or part.keys.get(OBJECTS[1]):
        return
    other = part.without(OBJECTS[0])
    try:
        groups = groups_by_label(canonical(other))
        theirs = recipe(other, (groups.get(label) or groups[None])[0])
    except (KeyError, TypeError, ValueError):  # no version 4 can read it
        return
    if difference := _difference(kind.made, theirs):
        text = f"transformers 4, if it has {part.model_type}, does not read {part.name(OBJECTS[0])}: {difference} there"
        yield text, "as_transformers(version=4) writes the keys that it reads"


def _one_table_elsewhere(kind: _Kind) -> Found:
    """Find frequencies that depend on the length of the sequence, of which vLLM makes one table for all."""
    if "length" not in kind.made.facts:
        return
    rope_type, trained = rope_type_of(kind.group.values), f"{kind.made.facts['length'].value:.0f}"
    if rope_type == "longrope":
        text = (
            f"up to {trained} tokens short_factor is in use, as in transformers; vLLM takes long_factor at any length"
        )
        yield f"{text} if its max_model_len is larger", f"for short sequences, set max_model_len to {trained} at most"
    elif rope_type == "dynamic" and (factor := kind.number("factor")):
        text = f"the base grows with each sequence beyond {trained} tokens, as in transformers; that of vLLM does not"
        length = kind.made.facts["length"].value * factor
        yield text, f"sequence_length={length:.0f} gives the table that vLLM has for any length"


def _rounded_ramp_elsewhere(kind: _Kind) -> Found:
    """Find a ramp of YaRN that is not rounded, as llama.cpp always does."""
    values = Values(kind.group.values.facts())
    if values.get("truncate") is not False:
        return
    values["truncate"] = True
    try:
        theirs = recipe(kind.part, kind.group._replace(values=values))
    except ValueError:  # a key that the class ignores is then compared with the written value
        return
    if difference := _difference(kind.made, theirs):
        text = f"llama.cpp rounds the ends of the ramp, whatever {values.sources['truncate']} is: {difference} there"
        yield text, "compare outputs before a GGUF of this model is used"


_Rules: TypeAlias = tuple[Callable[[_Kind], Found], ...]
_ABOUT_VALUES: _Rules = (_scaled_lengths, _two_lengths, _base_by_class)
_ABOUT_PROGRAMS: _Rules = (_unread_by_transformers_4, _one_table_elsewhere, _rounded_ramp_elsewhere)


def _difference(ours: Recipe, theirs: Recipe) -> str:
    """Return how far the frequencies of another reading are from ours, as text; "" if they are equal."""
    a, b = ([sum(each) for each in zip(*as_rows(made.rope.frequencies), strict=True)] for made in (ours, theirs))
    counts = [sum(f != 0 for f in row) for row in (a, b)]
    if counts[0] != counts[1]:
        return f"{2 * counts[1]} features rotate, not {2 * counts[0]},"
    ratios = [abs(g / f) for f, g in zip(a, b, strict=False) if f and g]  # one may have pairs more that don't rotate
    far = max(ratios, key=lambda ratio: abs(math.log(ratio)), default=1.0)
    if far != 1:
        return f"pairs rotate {'up' if far > 1 else 'down'} to {far:.4g} times as fast"
    return "" if ours.rope.frequencies == theirs.rope.frequencies else "the axes have other pairs"
