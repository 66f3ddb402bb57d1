"""
Find the form of a file that is no config.json, and help to translate it into names of transformers.

A form is one file: `Form.recognise` knows it by its keys, and `Form.translate` returns its text as a `Part`. What
follows reads that like the text of any config, and does not ask for the form.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rope_any._checks import ArgumentValueError, Text
from rope_any._pairing import Pairing
from rope_any.config._load import Fact, Values, typed
from rope_any.config._part import Part
from rope_any.config._schemes import ORIGINAL, unknown_name
from rope_any.config.tables.models import ALL
from rope_any.config.tables.rows import Model
from rope_any.config.tables.values import Check

Keys = Mapping[str, Any]

_DECIDING = ("general.architecture", "_class_name", "model_type")  # keys of which a file has one at most


class Form(NamedTuple):
    """A form of files."""

    name: str
    """What messages call a file of this form."""
    recognise: Callable[[Keys], str | None]
    """Return a key that only files of this form have; None for a file of another form."""
    translate: Callable[[Keys, float | None, Pairing | None], Part]
    """Return the text of a file, by the factor of Llama 3's scaling and the pairing if given; raise if it is wrong."""


class File(Values):
    """The values of a file, or of an object in it, by the names there, without nulls; sources are full names."""

    def __init__(self, keys: Keys, path: str = "", /) -> None:
        """Take the values of an object whose full names begin with `path`."""
        super().__init__({key: Fact(value, f"{path}{key}") for key, value in keys.items() if value is not None})
        self.path = path

    def name(self, key: str) -> str:
        """Return the full name of a key, which may be missing."""
        return f"{self.path}{key}"

    def needed(self, key: str, check: Check = lambda _, value: value) -> Any:
        """Return ``check(name, value)`` of a key; raise if it is missing, or if `check` does."""
        if key not in self:
            raise ArgumentValueError(self.name(key), "be given")
        return check(self.name(key), self[key])

    def inner(self, key: str, known: Collection[str] = ()) -> "File":
        """Return the object under a key, empty if missing. Raise if it is none or has a name not in given `known`."""
        found = typed(self.name(key), self.get(key, {}), Mapping, "be an object")
        for name in found if known else ():
            if name not in known:
                raise unknown_name(self.name(f"{key}.{name}"), name, known)
        return File(found, self.name(f"{key}."))

    def renamed(self, table: Mapping[str, str], check: Check = lambda _, value: value) -> Values:
        """Return values, as `check` returns them, by the keys of `table`, whose values are names here."""
        found = Values()
        for ours, theirs in table.items():
            found.sources[ours] = self.sources.get(theirs, self.name(theirs))
            if theirs in self:
                found[ours] = check(found.sources[ours], self[theirs])
        return found


def form_of(keys: Keys, forms: Sequence[Form], /) -> Form | None:
    """Return which of `forms` a file has, None for a config of transformers or diffusers; raise if it has several."""
    form = _only_form(keys, forms)
    several = [key for key in _DECIDING if key in keys]
    if "_class_name" in keys and not (isinstance(kind := keys.get("model_type"), str) and kind in ALL):
        several = [key for key in several if key != "model_type"]  # Wan's own is a kind of task, such as t2v
    other = _only_form({**keys, "model_type": None}, forms) if form is None and "model_type" in keys else None
    several += [other.name] if other else []
    if len(several) > 1:
        hint = "a config.json calls sizes hidden_size, num_attention_heads and num_hidden_layers" if other else ""
        raise ArgumentValueError("config", "be of one form", Text(f"keys of several: {' and '.join(several)}"), hint)
    return form


def _only_form(keys: Keys, forms: Sequence[Form]) -> Form | None:
    """Return the form that recognises a file, None if none does; raise if several do."""
    found = {form: key for form in forms if (key := form.recognise(keys)) is not None}
    if len(found) > 1:
        got = Text(" and ".join(f"{key} of {form.name}" for form, key in found.items()))
        raise ArgumentValueError("config", "be of one form", got)
    return next(iter(found), None)


def text_part(values: Values, model: Model) -> Part:
    """Return the text of a file with these values, among them its model type; sources are the names for messages."""
    return Part(values, (), values["model_type"], model, None, values.sources)


def unknown_rotation(path: str, needs: Sequence[str] = ()) -> ArgumentValueError:
    """Return the error that a file does not say how the part at `path` rotates, unless it has the keys `needs`."""
    keys = f"have {', '.join(needs)}, or " if needs else ""
    wanted = f"{keys}be read from a config.json of transformers: this file does not say how it rotates"
    return ArgumentValueError(path, wanted)


def unread_names(
    keys: Keys, about: re.Pattern[str], read: Collection[str], *, levels: int, path: str = ""
) -> Iterator[str]:
    """Yield the path of each value whose key matches `about`, in objects `levels` deep too, except paths in `read`."""
    for key, value in keys.items():
        if value is None or (full := f"{path}{key}") in read:
            continue
        if about.search(str(key)):
            yield full
        if isinstance(value, Mapping) and levels:
            yield from unread_names(value, about, read, levels=levels - 1, path=f"{full}.")


def scaling_of_llama3(source: str, **changes: float) -> Values:
    """Return the parameters of Llama 3's scaling except its factor, with `changes` for other models."""
    constants = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 8192, **changes}
    return Values({key: Fact(value, source) for key, value in constants.items()})
