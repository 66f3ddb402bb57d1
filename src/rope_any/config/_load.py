"""
Load a config: a dict, a file of JSON, or an object with ``to_dict()``.

Nothing is imported, evaluated or fetched because a config says so, and what is not understood is refused in one
sentence. Each value that is read travels as a `Fact`, with its source.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, Text, brief, integer, shown

LONGEST_PATH = 255  # characters that are shown
LARGEST_FILE = 64 * 2**20  # bytes
LARGEST_HEAD = 2**12  # features
DEEPEST = 64  # objects in objects
_FILES = "config.json", "params.json", "genai_config.json"  # in a folder, the first that is there


class Fact(NamedTuple):
    """A value, and where it comes from."""

    value: Any
    source: str


def same(a: object, b: object) -> bool:
    """Whether two values of a config are equal, which those nested too deeply, and arrays in them, are not."""
    try:
        return bool(a == b)
    except (RecursionError, RuntimeError, ValueError):
        return False


def load(config: object, /) -> dict[str, Any]:
    """Return a config as a dict: a dict as it is, the JSON of a path, or what ``to_dict()`` returns."""
    if isinstance(config, str | os.PathLike):
        config = _read(Path(config))
    if not isinstance(config, Mapping) and callable(getattr(config, "to_dict", None)):
        config = config.to_dict()  # type: ignore[attr-defined]  # asked for in the line above
    if not isinstance(config, Mapping) and callable(getattr(getattr(config, "config", None), "to_dict", None)):
        raise ArgumentTypeError("config", "be the config of a model", Text("the model"), "give model.config")
    wanted = "be a dict, a path to a config.json or an object with to_dict()"
    found: dict[str, Any] = _as_json(typed("config", config, Mapping, wanted), (), {})
    return found


def _as_json(value: object, within: tuple[int, ...], done: dict[int, tuple[object, Any]]) -> Any:
    """Return a value with lists for tuples; refuse objects that hold themselves or are nested too deeply."""
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, Mapping):
        return value
    own = id(value)
    if own in within:
        raise ArgumentValueError("config", "not hold an object that contains itself")
    if len(within) == DEEPEST:
        raise ArgumentValueError("config", f"hold objects at most {DEEPEST} deep", Text("one nested too deeply"))
    if own not in done:  # an object that stands twice is read once; it is kept, so that none other has its id
        done[own] = value, {key: _as_json(inner, (*within, own), done) for key, inner in value.items()}
    return done[own][1]


def _read(file: Path) -> dict[str, Any]:
    """Return the JSON object of a config file, or of the config file in a folder; raise if it cannot be read."""
    path, size = _found(file)
    name = Text(printed(path))
    if size > LARGEST_FILE:
        raise ArgumentValueError(name, f"be a config.json of at most {LARGEST_FILE} bytes", size)
    try:
        found = json.loads(path.read_bytes(), object_pairs_hook=_unique)
    except OSError as error:
        raise ArgumentValueError(name, "be a config.json that can be read", Text(error.strerror)) from None
    except RecursionError:
        raise ArgumentValueError(name, "be a config.json", Text("one nested too deeply")) from None
    except json.JSONDecodeError as error:
        raise ArgumentValueError(name, "be a config.json", NOTHING, f"line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError:
        raise ArgumentValueError(name, "be a config.json in UTF-8") from None
    except ValueError as error:  # a key that stands twice, or an integer of thousands of digits
        raise ArgumentValueError(name, "be a config.json", NOTHING, str(error)) from None
    return dict(typed(name, found, dict, "hold a JSON object"))


def _found(path: Path) -> tuple[Path, int]:
    """Return the file that a path means, and how large it is."""
    place = f"at {printed(path)}"
    try:
        if path.is_dir():
            place = f"in {printed(path.absolute())}"
            path = next((path / name for name in _FILES if (path / name).is_file()), path / _FILES[0])
        if path.is_file():
            return path, path.stat().st_size
    except (OSError, ValueError):  # a name that is too long, or holds a zero
        pass
    is_id = re.fullmatch(r"[\w-][\w.-]{0,95}(/[\w.-]{1,96})?", str(path)) and path.suffix != ".json"
    hint = "; nothing is fetched: download the config.json of a model from its hub and give its path" if is_id else ""
    raise ArgumentValueError("config", "be a path to a config.json", NOTHING, f"there is none {place}{hint}")


def printed(path: Path) -> str:
    """Return a path as it is, if it makes a line, or the beginning of a long one."""
    text = str(path)
    if not text.isprintable():
        return shown(text)
    return text if len(text) <= LONGEST_PATH else f"{text[:LONGEST_PATH]}…"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict; raise if a key stands twice (`json.loads` calls this)."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ArgumentValueError("config", "not hold a key twice", Text(f"{brief(name)} again"))
        found[name] = value
    return found


def is_name(value: object) -> bool:
    """Whether a string can be a name, to be shown in a line."""
    return isinstance(value, str) and value.isprintable() and len(value) <= 100


def require_names(mapping: Mapping[Any, Any]) -> None:
    """Raise unless all keys of an object can be names."""
    for key in mapping:
        if not is_name(key):
            raise ArgumentValueError("config", "have names as keys", typed("config", key, str, "have names as keys"))


def typed(name: str, value: object, kind: type | tuple[type, ...], wanted: str) -> Any:
    """Return a value of some type, or say that `name` must do what is wanted."""
    if not isinstance(value, kind):
        raise ArgumentTypeError(name, wanted, value)
    return value


def checked(fact: Fact, check: Callable[[str, Any], Any]) -> Fact:
    """Return a fact with what a check, such as `integer`, makes of its source and its value."""
    return Fact(check(fact.source, fact.value), fact.source)


def joined(facts: Sequence[Fact]) -> Fact:
    """Return the values of several facts as one fact, with all their sources."""
    return Fact(tuple(fact.value for fact in facts), ", ".join(dict.fromkeys(fact.source for fact in facts)))


def agreed(*facts: Fact | None) -> Fact | None:
    """Return the first fact that is given, or None; raise unless all that are given have one value."""
    given = [fact for fact in facts if fact is not None]
    for fact in given[1:]:
        if not same(fact.value, given[0].value):
            raise ArgumentValueError(fact.source, f"agree with {given[0].source}, {brief(given[0].value)}", fact.value)
    return given[0] if given else None


def grid_shape(shape: object, most: int) -> tuple[int, ...]:
    """Return the frames, rows and columns of a grid of at most so many tokens, checked; by default one frame."""
    wanted = f"be (rows, columns) or (frames, rows, columns), positive, of at most {most} tokens"
    sizes = [integer("shape", size) for size in typed("shape", shape, (tuple, list), wanted)]
    if len(sizes) not in (2, 3) or min(sizes) < 1 or math.prod(sizes) > most:
        raise ArgumentValueError("shape", wanted, shape)
    return (1, *sizes)[-3:]
