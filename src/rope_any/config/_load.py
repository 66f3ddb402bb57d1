"""
Load a config: a dict, a JSON file, or an object with ``to_dict()``.

No value of a config makes this package import, evaluate or fetch anything. A config that cannot be read raises an error
of one sentence. Each value is passed on as a `Fact`, with its source.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, Text, brief, integer
from rope_any.config import _published
from rope_any.config._gguf_file import MAGIC, read_gguf

LONGEST_PATH = 255  # characters of a path that an error shows
LARGEST_FILE = 64 * 2**20  # bytes
LARGEST_HEAD = 2**12  # features
MOST_LAYERS = 2**10
DEEPEST = 64  # levels of nested objects
_OTHER_FILES = {
    **dict.fromkeys((".safetensors", ".bin", ".pt", ".pth", ".npy"), "give the config.json beside the weights"),
    **dict.fromkeys((".yaml", ".yml"), "give its content as a dict"),
}
"""What to give instead of a file of another kind, by its suffix."""
_BEGINNINGS = {
    b"version https://git-lfs": "it is a pointer of Git LFS: git lfs pull gets it",
    b"<!doctype html": "it is an HTML page, not the file itself",
    b"<html": "it is an HTML page, not the file itself",
}
"""What a file is that is no JSON, by its first bytes in lower case."""
_NO_JSON = {RecursionError: "it is nested too deeply", UnicodeDecodeError: "it is not in UTF-8"}
_OTHER_PATHS = {
    r"~([/\\].*)?": "~ is not expanded: give os.path.expanduser(path)",
    r"\{.*": "give json.loads(config) if it is JSON",
    r"https?:/.*|(?!.*\.json$)[\w-][\w.-]{0,95}(/[\w.-]{1,96})?": (
        "nothing is fetched: download the config.json of a model from its hub and give its path"
    ),
}
"""What to give instead of a path that does not exist, by a pattern."""
_FILES = "config.json", "params.json", "genai_config.json"  # of a folder, the first that exists is read


class Fact(NamedTuple):
    """A value and its source."""

    value: Any
    """The value; None if there is none."""
    source: str
    """The key that gives it, how it is derived, or why there is none."""


class Values(dict[str, Any]):
    """
    The plain form of a config: values by today's names of transformers, for layers that have the same values.

    `sources` has the source of each: the key that gives it, or how it is derived.
    """

    def __init__(self, facts: Mapping[str, Fact] = MappingProxyType({}), /) -> None:
        """Take the values and sources of facts."""
        super().__init__()
        self.sources: dict[str, str] = {}
        for name, (value, source) in facts.items():
            self.put(name, value, source)

    def put(self, name: str, value: Any, source: str) -> None:
        """Set a value and its source."""
        self[name], self.sources[name] = value, source

    def put_object(self, name: str, values: "Values", source: str) -> None:
        """Set an object of values, whose sources are then those of "name.key"; `source` is that of the object."""
        self.put(name, dict(values), source)
        self.sources.update({f"{name}.{key}": each for key, each in values.sources.items()})

    def take(self, other: "Values") -> None:
        """Set all values of another `Values`, with their sources."""
        self.update(other)
        self.sources.update(other.sources)

    def agree(self, name: str, fact: Fact) -> None:
        """Set a value that is not given yet; raise if it is given with another value."""
        self.put(name, *(agreed(self.find(name), fact) or fact))

    def check(self, name: str, check: Callable[[str, Any], Any], /) -> Any:
        """Replace a value by ``check(source, value)``, and return it; `check`, such as `integer`, raises if wrong."""
        self[name] = check(self.sources[name], self[name])
        return self[name]

    def fact(self, name: str) -> Fact:
        """Return a value with its source; raise a KeyError if there is none."""
        return Fact(self[name], self.sources[name])

    def find(self, name: str) -> Fact | None:
        """Return a value with its source; None if there is none."""
        return self.fact(name) if name in self else None

    def facts(self, *names: str) -> dict[str, Fact]:
        """Return those of the values that are given, with their sources: all without `names`."""
        return {name: self.fact(name) for name in names or self if name in self}


def same(a: object, b: object) -> bool:
    """Whether two values of a config are equal; False if they are nested too deeply or contain arrays."""
    try:
        return bool(a == b)
    except (RecursionError, RuntimeError, ValueError):
        return False


def load(config: object, /) -> dict[str, Any]:
    """
    Return a config as a new dict; raise if it is none.

    It may be a mapping, the path of a JSON file or of its folder, or of a GGUF file, ``published:NAME``, or an object
    with ``to_dict()``.
    """
    if isinstance(config, str | os.PathLike):
        name = _published.name_in(config)
        known = {} if name is None else _published.configs()
        config = _read_file(Path(config)) if name is None else known[_published.full_name(name, known)]
    if not isinstance(config, Mapping | type) and callable(getattr(config, "to_dict", None)):
        config = config.to_dict()  # type: ignore[attr-defined]  # the line above checks it
    if not isinstance(config, Mapping) and callable(getattr(getattr(config, "config", None), "to_dict", None)):
        raise ArgumentTypeError("config", "be the config of a model", Text("the model"), "give model.config")
    if not isinstance(config, Mapping):
        wanted = "be a dict, a path to a config.json or an object with to_dict()"
        got = Text(f"the class {config.__name__}") if isinstance(config, type) else config
        raise ArgumentTypeError("config", wanted, got, _instead_of(config))
    found: dict[str, Any] = _as_json(config, (), {})
    return found


def _instead_of(config: object) -> str:
    """Return the hint of the error for a config of a wrong type: what to give instead; "" if unknown."""
    if isinstance(config, type):
        return "give an instance"
    if isinstance(config, bytes) or hasattr(config, "read"):
        return f"give json.{'loads' if isinstance(config, bytes) else 'load'}(config) if it is JSON"
    keys = getattr(config, "__dict__", {})
    return "give vars(config)" if {"model_type", "hidden_size"} & keys.keys() else ""


def _as_json(value: object, within: tuple[int, ...], done: dict[int, tuple[object, Any]]) -> Any:
    """Return mappings as new dicts, lists and tuples as new lists, in lists of them too. Raise if recursive or deep."""
    if isinstance(value, list | tuple):
        return [_as_json(item, within, done) if isinstance(item, Mapping) else item for item in value]
    if not isinstance(value, Mapping):
        return value
    own = id(value)  # `within` has the ids of the mappings around it, `done` the results by id
    if own in within:
        raise ArgumentValueError("config", "not hold an object that contains itself")
    if len(within) == DEEPEST:
        raise ArgumentValueError("config", f"hold objects at most {DEEPEST} deep", Text("one nested too deeply"))
    if own not in done:  # an object that occurs twice is read once; it is kept, so that no other object gets its id
        done[own] = value, {key: _as_json(inner, (*within, own), done) for key, inner in value.items()}
    return done[own][1]


def _read_file(file: Path) -> dict[str, Any]:
    """Return the object of a JSON file, or of that in a folder, or the metadata of a GGUF file; raise if it is none."""
    path, size = _find_file(file)
    if path.suffix == ".gguf" or _first_bytes(path) == MAGIC:
        return read_gguf(path)
    name = Text(printed(path))
    if size > LARGEST_FILE:
        hint = _OTHER_FILES.get(path.suffix, "")
        raise ArgumentValueError(name, f"be a config.json of at most {LARGEST_FILE} bytes", size, hint)
    try:
        content = path.read_bytes()
        found = json.loads(content, object_pairs_hook=_unique)
    except OSError as error:
        raise ArgumentValueError(name, "be a config.json that can be read", Text(error.strerror)) from None
    except (RecursionError, ValueError) as error:  # also a key that occurs twice, or an integer of thousands of digits
        why = f"it is no JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)
        why = _NO_JSON.get(type(error), why) if size else "it is empty"
        start = content[:100].lstrip().lower()
        why = next((text for first, text in _BEGINNINGS.items() if start.startswith(first)), why)
        hint = _OTHER_FILES.get(path.suffix, why)
        raise ArgumentValueError(name, "be a config.json", NOTHING, hint) from None
    return dict(typed(name, found, dict, "hold a JSON object"))


def _first_bytes(path: Path) -> bytes:
    """Return the first four bytes of a file; none if it can't be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC))
    except OSError:
        return b""


def _find_file(path: Path) -> tuple[Path, int]:
    """Return the config file at a path, or in a folder at that path, and its size in bytes; raise if there is none."""
    folder = None
    try:
        if path.is_dir():
            folder, path = path, next((path / name for name in _FILES if (path / name).is_file()), path / _FILES[0])
        if path.is_file():
            return path, path.stat().st_size
    except (OSError, ValueError):  # the name is too long, or contains a null character
        pass
    is_address = str(path).startswith(("http:/", "https:/"))
    hints = [text for pattern, text in _OTHER_PATHS.items() if re.fullmatch(pattern, str(path), re.DOTALL)]
    if path.suffix in _OTHER_FILES and not is_address:
        hints = [_OTHER_FILES[path.suffix]]
    if (shipped := _published.named_like(str(path))) is not None:
        hints = [f"give {shipped}, which ships with this package"]
    place = "at " + re.sub("^(https?:)/", r"\1//", printed(path))  # a `Path` has one slash
    if folder is not None:
        hints = ["give one of the folders in its snapshots"] if (folder / "snapshots").exists() else []
        hints += [f"give {printed(file)}" for file in sorted(folder.glob("*.gguf"))[:1]]
        place = f"in {printed(folder.absolute())}"
    elif os.path.isfile(beside := path.parent / _FILES[0]):  # noqa: PTH113  # False for a name that is too long
        hints.append(f"there is one at {printed(beside)}")
    hint = "; ".join([f"there is none {place}", *hints])
    raise ArgumentValueError("config", "be a path to a config.json", NOTHING, hint)


def printed(path: Path) -> str:
    """Return a path as text for an error: cut after `LONGEST_PATH` characters, quoted if not all can be printed."""
    text = str(path) if str(path).isprintable() else repr(str(path))
    return text if len(text) <= LONGEST_PATH else f"{text[:LONGEST_PATH]}…"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict; raise if a key occurs twice (`json.loads` calls this)."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ArgumentValueError("config", "not contain a key twice", Text(f"{brief(name)} again"))
        found[name] = value
    return found


def is_name(value: object) -> bool:
    """Whether a value is a string that an error can show in one line: printable, of at most 100 characters."""
    return isinstance(value, str) and value.isprintable() and len(value) <= 100


def require_names(mapping: Mapping[Any, Any]) -> None:
    """Raise unless all keys of an object are names (`is_name`)."""
    for key in mapping:
        if not is_name(key):
            raise ArgumentValueError("config", "have names as keys", typed("config", key, str, "have names as keys"))


def typed(name: str, value: object, kind: type | tuple[type, ...], wanted: str) -> Any:
    """Return a value unchanged; raise a TypeError "`name` must `wanted`" unless it is an instance of `kind`."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(name, wanted, value)
    return value


def checked(fact: Fact, check: Callable[[str, Any], Any]) -> Fact:
    """Return a fact with the value ``check(source, value)``; `check`, such as `integer`, raises if it is wrong."""
    return Fact(check(fact.source, fact.value), fact.source)


def entry_of(fact: Fact, index: int) -> Fact:
    """Return entry `index` of a fact's list, one for each layer, as a Fact; raise if there is no list or no entry."""
    values = typed(fact.source, fact.value, list, "be a list with an entry for each layer")
    if index >= len(values):
        raise ArgumentValueError(fact.source, f"have an entry for layer {index}", Text(f"{len(values)} entries"))
    return Fact(values[index], f"{fact.source}[{index}]")


def one_of(fact: Fact, known: Sequence[Any]) -> Any:
    """Return the value of a fact; raise unless it is one of `known`, which are numbers or names."""
    if not isinstance(fact.value, int | float | str) or fact.value not in known:
        raise ArgumentValueError(fact.source, f"be {' or '.join(map(repr, known))}", fact.value)
    return fact.value


def joined(facts: Sequence[Fact]) -> Fact:
    """Return one fact for several: the tuple of their values, and as its source their sources, each once."""
    return Fact(tuple(fact.value for fact in facts), ", ".join(dict.fromkeys(fact.source for fact in facts)))


def agreed(*facts: Fact | None) -> Fact | None:
    """Return the first fact that is not None, or None; raise if the facts have different values."""
    given = [fact for fact in facts if fact is not None]
    for fact in given[1:]:
        if not same(fact.value, given[0].value):
            raise ArgumentValueError(fact.source, f"agree with {given[0].source}, {brief(given[0].value)}", fact.value)
    return given[0] if given else None


def grid_shape(shape: object, most: int) -> tuple[int, ...]:
    """Return `shape` as (frames, rows, columns), one frame if not given; raise if wrong or of over `most` tokens."""
    wanted = f"be (rows, columns) or (frames, rows, columns), positive, of at most {most} tokens"
    sizes = [integer("shape", size) for size in typed("shape", shape, (tuple, list), wanted)]
    if len(sizes) not in (2, 3) or min(sizes) < 1 or math.prod(sizes) > most:
        raise ArgumentValueError("shape", wanted, shape)
    return (1, *sizes)[-3:]
