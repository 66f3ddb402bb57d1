"""Values that a config may give under several keys."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from rope_any._checks import ArgumentValueError, Text, integer_between
from rope_any.config._load import Fact, agreed, checked

Check: TypeAlias = Callable[[str, Any], Any]
"""Return a value, perhaps converted; raise if it is wrong. The first argument is its name in the error."""


class Part(Protocol):
    """What rows and rules read of a part of a config; `Part` of `_part` has it."""

    @property
    def keys(self) -> Mapping[str, Any]:
        """The values of the part by key, with names of transformers; null or absent if not given."""

    @property
    def model_type(self) -> str | None:
        """The type of the model, or the name of its class."""

    @property
    def default(self) -> str:
        """The source of a value that the config does not give."""

    def get(self, path: str, /) -> Fact | None:
        """Return the value at "key" or "object.key" with its source; None if it is missing or null."""

    def name(self, *keys: str) -> str:
        """Return a key's full name for messages."""


class Value(NamedTuple):
    """A value under one or several keys."""

    keys: tuple[str, ...]  # those that the class reads, or paths "object.key"
    default: Any = None  # the value if no key is there; None if one is required
    null: Any = None  # the value if a key is null; None if null is refused
    hint: str = ""  # for the error: what to give if it is missing

    def find(self, part: Part, check: Check | None = None) -> Fact | None:
        """Return the value that a part gives; None if it gives none. Raise if keys differ, or by `check`."""
        given = (fact for key in self.keys if (fact := part.get(key)))
        return agreed(*(checked(fact, check) if check else fact for fact in given))

    def read(self, part: Part, check: Check | None = None) -> Fact:
        """Return the value that a part gives, else the default; raise without either, if keys differ, or by `check`."""
        if (found := self.find(part, check)) is not None:
            return found
        is_null = any(key in part.keys for key in self.keys)
        value = self.null if is_null else self.default
        if value is None:
            wanted = f"be given for {part.model_type} {self.hint}".rstrip()
            raise ArgumentValueError(part.name(self.keys[0]), wanted, Text("null" if is_null else "none"))
        return Fact(value, part.default)


def between(least: int, most: int) -> Check:
    """Return the check that a value is an integer from `least` to `most`."""
    return lambda name, number: integer_between(name, number, least, most)


def value(*keys: str, default: Any = None, null: Any = None, hint: str = "") -> Value:
    """Return the `Value` of these keys."""
    return Value(keys, default, null, hint)


def optional(*keys: str, default: Any) -> Value:
    """Return the `Value` of these keys, of which null means the default."""
    return Value(keys, default, default)
