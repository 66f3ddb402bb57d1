"""
Load a config: a dict, a file of JSON, or an object with ``to_dict()``.

Nothing is imported, evaluated or fetched because a config says so, and what is not understood is refused in one
sentence. Each value that is read travels as a `Fact`, with its source.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rope_any._checks import shown

LONGEST_PATH = 255  # characters that are shown
LARGEST_FILE = 64 * 2**20  # bytes
DEEPEST = 64  # objects in objects
_FILES = "config.json", "params.json", "genai_config.json"  # in a folder, the first that is there


class Fact(NamedTuple):
    """A value, and where it comes from."""

    value: Any
    source: str


def fail(message: str) -> NoReturn:
    """Refuse a config."""
    raise ValueError(message)


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
    if not isinstance(config, Mapping):
        msg = f"config must be a dict, a path to a config.json or an object with to_dict(); got {shown(config)}"
        raise TypeError(msg)
    found: dict[str, Any] = _as_json(config, (), {})
    return found


def _as_json(value: object, within: tuple[int, ...], done: dict[int, tuple[object, Any]]) -> Any:
    """Return a value with lists for tuples; refuse objects that hold themselves or are nested too deeply."""
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, Mapping):
        return value
    own = id(value)
    if own in within:
        fail("config must not hold an object that contains itself")
    if len(within) == DEEPEST:
        fail(f"config must hold objects at most {DEEPEST} deep; got one nested too deeply")
    if own not in done:  # an object that stands twice is read once; it is kept, so that none other has its id
        done[own] = value, {key: _as_json(inner, (*within, own), done) for key, inner in value.items()}
    return done[own][1]


def _read(file: Path) -> dict[str, Any]:
    path, size = _found(file)
    name = printed(path)
    if size > LARGEST_FILE:
        fail(f"{name} must be a config.json of at most {LARGEST_FILE} bytes; got {size}")
    try:
        found = json.loads(path.read_bytes(), object_pairs_hook=_unique)
    except OSError as error:
        fail(f"{name} must be a config.json that can be read; got {error.strerror}")
    except RecursionError:
        fail(f"{name} must be a config.json; got one nested too deeply")
    except json.JSONDecodeError as error:
        fail(f"{name} must be a config.json; line {error.lineno}: {error.msg}")
    except UnicodeDecodeError:
        fail(f"{name} must be a config.json in UTF-8")
    except ValueError as error:  # a key that stands twice, or an integer of thousands of digits
        fail(f"{name} must be a config.json; {error}")
    if not isinstance(found, dict):
        msg = f"{name} must hold a JSON object; got {shown(found)}"
        raise TypeError(msg)
    return found


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
    fail(f"config must be a path to a config.json; there is none {place}")


def printed(path: Path) -> str:
    """Return a path as it is, if it makes a line, or the beginning of a long one."""
    text = str(path)
    if not text.isprintable():
        return shown(text)
    return text if len(text) <= LONGEST_PATH else f"{text[:LONGEST_PATH]}…"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            fail(f"config must not hold a key twice; got {shown(name)} again")
        found[name] = value
    return found


def is_name(value: object) -> bool:
    """Whether a string can be a name, to be shown in a line."""
    return isinstance(value, str) and value.isprintable() and len(value) <= 100


def require_names(mapping: Mapping[Any, Any]) -> None:
    """Raise unless all keys of an object can be names."""
    for key in mapping:
        if not is_name(key):
            msg = f"config must have names as keys; got {shown(key)}"
            raise (ValueError if isinstance(key, str) else TypeError)(msg)
