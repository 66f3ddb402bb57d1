"""
Find the parts of a config that have rotary embedding: text, indexers, towers, transformers of diffusers.

`part_readers` returns the parts of a config by name, each with the functions that read it. A part has a short name
("text", "vision") if it is the only one of its kind; any other is named by the path of its sub-config.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, choice
from rope_any._pairing import Pairing, as_pairing
from rope_any.config import _gguf, _grids, _indexers, _params_json
from rope_any.config._forms import Form, form_of
from rope_any.config._layers import Layers, canonical, common_value, groups_of_type
from rope_any.config._load import Fact, is_name, load, require_names
from rope_any.config._part import Part, model_type_of
from rope_any.config._recipe import Recipe, recipe, require_length, score
from rope_any.config._rotary_keys import ROTARY
from rope_any.config._text_part import TEXT, part_at, part_of, text_path
from rope_any.config.tables.models import ALL, MODELS
from rope_any.config.tables.rows import UNKNOWN, Model
from rope_any.config.tables.towers import REFUSED, TOWERS

_MOST_DEPTH = 4  # levels of objects inside a config that are searched
_NAMES = {"vision_config": "vision", "audio_config": "audio"}
_OBJECTS = {*_NAMES, *(key for key in TEXT if key.endswith("_config"))}  # keys whose values must be objects or null
_FORMS = (*_params_json.FORMS, _gguf.FORM)

Grid = Callable[[tuple[int, ...]], tuple[tuple[float, ...], ...] | None]


class PartReader(NamedTuple):
    """One part of a config, and the functions that read it."""

    part: Part
    layers: Callable[[], tuple[Layers, ...]]
    """Return its layers in groups with the same values; raise if the part is refused."""
    recipe: Callable[[Layers, int | None], Recipe]
    """Return the recipe of one group, for a sequence length; None means the trained length."""
    grid: Grid | None = None
    """Return the positions of a grid of its tokens; None if the part has no grids."""
    score: Callable[[Layers], Fact] | None = None
    """Return the score scale of one group; None for parts whose score scale is not read."""
    is_text: bool = False
    """Whether it is read by `_layers` and `_recipe`, as text is; its layers may differ."""
    whole: Mapping[str, Any] = {}
    """The config of the whole model, with its ids of special tokens; empty except for the text part."""


def part_readers(
    source: Mapping[str, Any] | Path, /, *, pairing: Pairing | None = None, factor: float | None = None
) -> dict[str, PartReader]:
    """
    Return a reader for each part of a config, or of the pipeline in a folder, that may rotate, by name, text first.

    An unknown or wrong part raises when it is read, a wrong text part perhaps here. `pairing` is for unknown models;
    others raise if theirs differs. `factor` is for Meta's params.json and GGUF. A pipeline has all its parts.
    """
    folder = source if isinstance(source, Path) else None
    keys = {} if isinstance(source, Path) else _grids.with_class(source)
    given = None if pairing is None else as_pairing(pairing)
    form = form_of(keys, _FORMS)
    if factor is not None and form is None:
        wanted = "be left out, except for Meta's params.json and GGUF metadata, which do not have it"
        hint = "a config.json has the factor of its scaling in rope_parameters" if "model_type" in keys else ""
        raise ArgumentValueError("factor", wanted, factor, hint)
    if folder is not None:
        return _pipeline_readers(folder, pairing)
    if _grids.is_diffusers(keys):
        return _diffusers_readers(keys, given)
    model_type = keys.get("model_type")
    if not isinstance(model_type, str):
        model_type = ""  # `part_of` raises if it is not a name
    others = list(_sub_config_readers(keys, text_path(keys), given))
    tower = {_kind_of(model_type): _tower_reader(keys, (), model_type, given)} if _is_tower(model_type) else {}
    parts: dict[str, PartReader] = {}
    if not tower or model_type in MODELS:
        try:
            parts = _text_readers(keys, _text_of(keys, form, given, factor))
        except (TypeError, ValueError) as error:
            if not others:
                raise
            parts = {} if ALL.get(model_type, UNKNOWN).apart else {"text": _refusing_reader(keys, error)}
    return _by_name(parts | tower, others, MODELS.get(model_type, UNKNOWN).alone)


def _by_name(
    parts: dict[str, PartReader], others: list[tuple[tuple[str, ...], PartReader]], own_name: str, /
) -> dict[str, PartReader]:
    """Return readers by name: `parts`, `others` (by kind if alone, else path); "text" as `own_name` if not taken."""
    for path, other in others:
        name = _NAMES.get(path[-1], "")
        is_only = sum(_NAMES.get(each[-1]) == name for each, _ in others) == 1 and name not in parts
        parts[name if name and is_only else ".".join(path)] = other
    if "text" in parts and own_name not in parts:
        parts[own_name] = parts.pop("text")
    first = [name for name in ("text", "indexer", *_NAMES.values()) if name in parts]
    return {name: parts[name] for name in dict.fromkeys([*first, *parts])}


def _diffusers_readers(keys: Mapping[str, Any], pairing: Pairing | None) -> dict[str, PartReader]:
    """Return a reader per rotation: "transformer", "transformer.audio". Raise if an unknown class is no transformer."""
    name = keys["_class_name"]
    part = Part(keys, (), name if is_name(name) else None, UNKNOWN, pairing)
    if not _grids.may_rotate(name):
        _grids.canonical(part, "")  # raises, unless the class is known to have no rotary embedding
    return {f"transformer.{rotation}".rstrip("."): _grid_reader(part, rotation) for rotation in _grids.rotations(name)}


def _text_of(keys: Mapping[str, Any], form: Form | None, pairing: Pairing | None, factor: float | None) -> Part:
    """Return the text part of a config of transformers, or of a file of another form; raise if it is wrong."""
    if form is None:
        return part_of(keys, pairing)
    require_names(keys)
    return form.translate(keys, factor, pairing)._replace(pairing=pairing, form=form.name)


def _text_readers(keys: Mapping[str, Any], text: Part) -> dict[str, PartReader]:
    """Return readers of the text part, its indexer if it may rotate, and towers of a translated file (most raise)."""
    parts = {"text": _text_reader(text)._replace(whole=keys)}
    if _indexers.may_rotate(text):
        layers = partial(_indexers.canonical, text, parts["text"].layers)
        parts["indexer"] = PartReader(text, cache(layers), partial(_indexers.recipe, text))
    for name, inner in text.inner.items():
        if isinstance(inner, Part):
            parts[name] = _tower_reader(inner.keys, inner.path, str(inner.model_type), text.pairing)
        else:
            parts[name] = _refusing_reader(keys, inner, (name,))
    return parts


def _text_reader(part: Part) -> PartReader:
    """Return the reader of a part that `canonical`, `recipe` and `score` read, as they do the text part."""
    layers = cache(partial(canonical, part))
    return PartReader(part, layers, partial(recipe, part), score=partial(score, part), is_text=True)


def is_pipeline(path: Path, /) -> bool:
    """Whether a path is the folder of a pipeline of diffusers: it contains ``model_index.json``."""
    try:
        return (path / "model_index.json").is_file()
    except (OSError, ValueError):  # the name is too long, or contains a null character
        return False


def _pipeline_readers(folder: Path, pairing: Pairing | None) -> dict[str, PartReader]:
    """Return readers of a pipeline's parts by name: the folder of the component; if it has several, "folder.part"."""
    parts: dict[str, PartReader] = {}
    for file in sorted(folder.glob("*/config.json")):
        name = file.parent.name
        try:
            keys = load(file)
            if _grids.is_diffusers(keys) and not _grids.may_rotate(keys["_class_name"]):
                continue  # a VAE, for example
            inner = part_readers(keys, pairing=pairing)
        except (TypeError, ValueError) as error:
            parts[name] = _refusing_reader({}, error)
        else:
            main = next(iter(inner)) if len(inner) == 1 else "transformer"  # it gets the name of the folder
            parts |= {name + f".{part}".removeprefix(f".{main}"): one for part, one in inner.items()}
    return parts


def _refusing_reader(keys: Mapping[str, Any], error: Exception, path: tuple[str, ...] = ()) -> PartReader:
    """Return the reader of a part at `path` whose `layers()` raises `error`."""

    def refuse() -> NoReturn:
        """Raise a copy of `error`, a new one each time."""
        raise type(error)(*error.args)

    part = Part(keys, path, None, UNKNOWN, None)
    return PartReader(part, refuse, partial(recipe, part))


def rotates(reader: PartReader, /) -> bool:
    """Whether a part has rotary embedding in some layer; True too if reading it raises a TypeError or ValueError."""
    try:
        return any(group.unrotated is None for group in reader.layers())
    except (TypeError, ValueError):
        return True


def choose_part(parts: Mapping[str, PartReader], name: str | None, /) -> PartReader:
    """Return the part `name`; for None text, the only part, the only rotating one, or the only main one. Else raise."""
    if name is not None and parts:
        return parts[choice("part", name, parts, f"be one that the config has ({', '.join(parts)})")]
    if "text" in parts or len(parts) == 1:
        return parts.get("text") or next(iter(parts.values()))
    rotating = {each: one for each, one in parts.items() if rotates(one)}
    # in no sub-config, and no further rotation of another part ("transformer.audio" of "transformer")
    own = [each for each, one in rotating.items() if not one.part.path and each.rpartition(".")[0] not in rotating]
    for names in (list(rotating), own):
        if len(names) == 1:
            return rotating[names[0]]
    if not rotating:
        raise ArgumentValueError("config", "have a part with rotary embedding", Text("none"))
    raise ArgumentValueError("part", f"be given, since the config has several: one of {', '.join(rotating)}")


def read_part(reader: PartReader, /, *, layer_type: str | None, sequence_length: int | None) -> Recipe | str:
    """Return the recipe of all rotating layers (of one type), or why none rotates. Raise if they differ."""
    length, layers = require_length(sequence_length), groups_of_type(reader.layers(), layer_type)
    return common_value(reader.part, layers, lambda group: reader.recipe(group, length), key=lambda made: made.rope)


def _sub_config_readers(
    keys: Mapping[str, Any], text: tuple[str, ...], pairing: Pairing | None
) -> Iterator[tuple[Any, PartReader]]:
    """Yield (path, reader) of each sub-config that may rotate, except the text part at `text` and objects around it."""
    for path, inner, outer in _sub_configs(keys, (), {}):
        if path == text[: len(path)]:
            continue
        model_type = _type_of(inner, path, outer)
        row, known = MODELS.get(model_type, Model(rotary=False)), ALL.get(model_type, UNKNOWN)
        rotary = any(isinstance(key, str) and ROTARY.search(key) for key in inner)
        if _is_tower(model_type):
            yield path, _tower_reader(inner, path, model_type, pairing)
        elif (row.rotary and not row.text) or (rotary and not known.rotary):  # the latter refuses keys that it lacks
            yield path, _other_text(inner, path, model_type, pairing)
        elif model_type in MODELS or not known.rotary or known.apart:
            continue
        elif bool(model_type) + rotary + (path[-1] in _NAMES) >= 2:
            name = ".".join((*path, "model_type"))
            error = ArgumentValueError(name, "be one whose rotation is known", model_type)
            yield path, _refusing_reader(inner, error, path)


def _other_text(keys: Mapping[str, Any], path: tuple[str, ...], model_type: str, pairing: Pairing | None) -> PartReader:
    """Return the reader of a sub-config that is read as text is; if it is wrong, the reader raises, not this."""
    try:
        return _text_reader(part_at(keys, path, model_type, pairing))
    except (TypeError, ValueError) as error:
        return _refusing_reader(keys, error, path)


def _sub_configs(
    keys: Mapping[str, Any], path: tuple[str, ...], outer: Mapping[tuple[str, ...], str]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any], Mapping[tuple[str, ...], str]]]:
    """Yield (path, object, types around it by path) of each object inside. Raise if a sub-config is no object."""
    written = keys.get("model_type")
    outer = {**outer, path: written if isinstance(written, str) else ""}
    for key, value in keys.items():
        if key in _OBJECTS and value is not None and not isinstance(value, Mapping):
            raise ArgumentTypeError(".".join((*path, key)), "be an object or null", value)
        if isinstance(value, Mapping) and is_name(key) and len(path) < _MOST_DEPTH:
            yield (*path, key), value, outer
            yield from _sub_configs(value, (*path, key), outer)


def _type_of(inner: Mapping[str, Any], path: tuple[str, ...], outer: Mapping[tuple[str, ...], str]) -> str:
    """Return `inner`'s model type: as written, else (missing, or as around it) by its place in a known model, or ""."""
    written = model_type_of(inner, path) or ""
    found = (ALL.get(of, UNKNOWN).parts.get(".".join(path[len(at) :])) for at, of in outer.items())
    known, row = next(filter(None, found), ""), MODELS.get(written, UNKNOWN)
    if written and written not in outer.values():
        # a tower that its own file calls by the name of one without rotary, as that of MiniMax-M3, or of a whole model
        is_misnamed = inner.get("position_embedding_type") == "rope" or row.parts
        return known if known and is_misnamed else written
    is_whole = row is UNKNOWN or row.text or row.parts or row.instead
    return known or ("" if is_whole else written)


def _is_tower(model_type: str) -> bool:
    """Whether a model type is that of a tower with rotary embedding, or of one that is refused."""
    return model_type in TOWERS or model_type in REFUSED


def _kind_of(model_type: str) -> str:
    """Return "audio" or "vision", by the model type of a tower."""
    return ALL.get(model_type, UNKNOWN).outer_part or ("audio" if "audio" in model_type else "vision")


def _tower_reader(
    keys: Mapping[str, Any], path: tuple[str, ...], model_type: str, pairing: Pairing | None
) -> PartReader:
    """Return the reader of `keys` at `path` as tower `model_type`, whatever `keys` say; `pairing` is only checked."""
    names = {} if keys.get("model_type") == model_type else {"model_type": f"{'.'.join(path)} of this model"}
    part = Part(keys, path, model_type, UNKNOWN, pairing, names)
    return _grid_reader(part)._replace(score=partial(_grids.score, part))


def _grid_reader(part: Part, rotation: str | None = None) -> PartReader:
    """Return the reader of a tower, or of a rotation of a class of diffusers."""

    def read(group: Layers, length: int | None) -> Recipe:
        """Return the recipe of a group of layers; raise if its pairing is not the one that the caller gave, if any."""
        made = _grids.recipe(part, group, length, rotation)
        if part.pairing not in (None, made.rope.pairing):
            wanted = f"be {made.rope.pairing!r}, according to {made.facts['pairing'].source}"
            raise ArgumentValueError("pairing", wanted, part.pairing)
        return made

    layers = cache(partial(_grids.canonical, part, rotation))
    return PartReader(part, layers, read, partial(_grids.grid, part, rotation))
