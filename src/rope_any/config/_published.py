"""
Find the configs that ship with the package, in ``published.json``, by the name of their model.

Wherever the path of a config goes, ``published:NAME`` may go too. The file is read at each use, so that every config
that is returned is new.
"""

import json
import os
from collections.abc import Iterable
from typing import Any

from rope_any._checks import NOTHING, ArgumentValueError, Text

PREFIX = "published:"
MOST = 5
"""The largest number of names that an error lists."""


def configs() -> dict[str, dict[str, Any]]:
    """Return all published configs by the name of their model, such as ``Qwen/Qwen3-8B``."""
    from importlib.resources import files  # slow to import

    found: dict[str, dict[str, Any]] = json.loads(files("rope_any.config").joinpath("published.json").read_bytes())
    return found


def name_in(config: str | os.PathLike[Any]) -> str | None:
    """Return the name in ``published:NAME``, which may have been made a `Path`; None if it is the path of a file."""
    text = str(config).replace(os.sep, "/")
    return text.removeprefix(PREFIX) if text.startswith(PREFIX) else None


def full_name(name: str, known: Iterable[str]) -> str:
    """
    Return the name of the published config that `name` means; raise if it means none or several.

    Upper and lower case are the same, and the organisation may be left out. If no name is equal, the only one that
    begins or ends with `name` is taken.
    """
    typed, forms = name.lower(), _forms(known)
    found = [full for full, both in forms.items() if typed in both]
    if not found and typed:
        found = [full for full, both in forms.items() if any(x.startswith(typed) or x.endswith(typed) for x in both)]
    if len(found) == 1:
        return found[0]
    hint = f"it may be {' or '.join(found[:MOST])}" if found else _near(typed, forms)
    every = "all names: rope_any.config.published(), or rope-any published"
    hint = "; ".join(filter(None, [hint, "" if 0 < len(found) <= MOST else every]))
    given = name[:80] if name.isprintable() else repr(name[:80])
    raise ArgumentValueError(Text(f"{PREFIX}{given}"), "name one published config", NOTHING, hint)


def named_like(path: str) -> str | None:
    """Return ``published:NAME`` if `path` is the name of a published config, maybe without organisation; else None."""
    name = path.replace(os.sep, "/").lower()
    return next((f"{PREFIX}{full}" for full, both in _forms(configs()).items() if name in both), None)


def _forms(known: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return for each full name both of its forms in lower case: with the organisation, and without."""
    return {full: (full.lower(), full.lower().rpartition("/")[2]) for full in known}


def _near(typed: str, forms: dict[str, tuple[str, str]]) -> str:
    """Return the hint of the error for an unknown name: names that it extends or resembles; "" if none."""
    from difflib import get_close_matches  # slow to import, and only errors need it

    by_form = {form: full for full, both in forms.items() for form in both}
    shorter = [form for form in by_form if typed.startswith(form)]
    near = dict.fromkeys(by_form[form] for form in shorter + get_close_matches(typed[:80], by_form, n=4, cutoff=0.6))
    return f"did you mean {' or '.join([*near][:3])}?" if near else ""
