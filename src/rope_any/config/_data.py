"""
Read the TOML files in this folder, which contain the facts about models.

A file has arrays of entries. The ``names`` of an entry are all names it is for. An entry may be ``like`` an earlier
one: it then has the fields of that one, except those that it gives itself.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias, TypeVar

from rope_any._checks import ArgumentValueError, Text, choice, inside

Row = TypeVar("Row")
Words: TypeAlias = Callable[[], Mapping[str, Collection[str]]]


class Lazy(Mapping[str, Row]):
    """A read-only mapping that a function makes at the first use."""

    def __init__(self, make: Callable[[], Mapping[str, Row]], /) -> None:
        """Keep `make`, the function that returns the mapping; it is called once, at the first use."""
        self._made = cache(make)

    def __getitem__(self, name: str) -> Row:
        """Return the value of a name; raise a KeyError if there is none."""
        return self._made()[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._made())

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self._made())


@cache
def content(file: str, /) -> Mapping[str, Any]:
    """Return the content of the TOML file `file` in this folder, with tuples for lists; it is read only once."""
    import tomllib  # both modules are slow to import
    from importlib.resources import files

    found: Mapping[str, Any] = _as_tuples(tomllib.loads((files("rope_any.config") / file).read_text(encoding="utf-8")))
    return found


def _as_tuples(value: Any) -> Any:
    """Return a TOML value with tuples in place of its lists, at every depth."""
    if isinstance(value, dict):
        return {key: _as_tuples(inner) for key, inner in value.items()}
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def entries_by_name(
    file: str,
    array_name: str,
    make_entry: Callable[..., Row],
    inner: Callable[..., Any] = dict,
    allowed_values: Words = dict,
    /,
) -> Mapping[str, Row]:
    """
    Return a mapping of the entries in the array `array_name` of a TOML file, by each of their names.

    The file is read at the first use. An entry becomes ``make_entry(**fields)``, each table in it ``inner(**table)``.
    `allowed_values` returns by field the strings that it may have; other strings raise at the first use.
    """

    def read_rows() -> dict[str, Row]:
        """Return the row for each name, also from its ``like``. Raise for a wrong or unknown field, or a used name."""
        facts: dict[str, dict[str, Any]] = {}
        found: dict[str, Row] = {}
        for entry in content(file)[array_name]:
            with in_entry(file, entry):
                own = {key: _convert_tables(value, inner) for key, value in entry.items()}
                names, like = own.pop("names").split(), own.pop("like", None)
                if twice := facts.keys() & set(names):
                    raise ArgumentValueError("names", "not be those of an earlier entry", Text(", ".join(twice)))
                for field, known in allowed_values().items():
                    if isinstance(own.get(field) or None, str):
                        choice(field, own[field], known, f"be one of {', '.join(known)}")
                fields = (facts[like] if like else {}) | own
                facts |= dict.fromkeys(names, fields)
                found |= dict.fromkeys(names, make_entry(**fields))
        return found

    return Lazy(read_rows)


@contextmanager
def in_entry(file: str, entry: Mapping[str, Any], /) -> Iterator[None]:
    """Add the file and the entry to a TypeError or ValueError of a ``with`` block; a KeyError becomes a ValueError."""
    where = f"{file}, entry {entry.get('names')}"
    try:
        yield
    except KeyError as error:
        msg = f"{where}: there is no {error}"
        raise ValueError(msg) from error
    except (TypeError, ValueError) as error:
        raise inside(where, error) from error


def _convert_tables(value: Any, inner: Callable[..., Any]) -> Any:
    """Return ``inner(**value)`` for a dict, a tuple of converted items for a tuple, any other value as it is."""
    if isinstance(value, dict):
        return inner(**value)
    return tuple(_convert_tables(item, inner) for item in value) if isinstance(value, tuple) else value
