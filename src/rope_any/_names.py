"""Find the known name that a wrong name was meant to be."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

CUTOFF = 0.7
"""The least similarity of names that are near, as difflib counts it: from 0 to 1 for equal names."""
SHORTEST = 3
"""The least number of characters of a prefix."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` resembles, begins or extends; None if none, or if it differs in digits only."""
    from difflib import get_close_matches  # slow to import, and only errors need it

    lower = {each.lower(): each for each in known}
    typed = name[:80].lower()
    longer = [each for each in lower if len(typed) >= SHORTEST and each.startswith(typed)]
    found = longer if len(longer) == 1 else get_close_matches(typed, lower, n=1, cutoff=CUTOFF)
    if not found and not longer:
        found = _extended_by_a_word(typed, lower)
    if not found:
        return None
    near = lower[found[0]]
    # in lower case, and with other digits alone: another version of a model
    is_version = near != typed and name.islower() and re.sub(r"\d", "", name) == re.sub(r"\d", "", near)
    return None if is_version else near


def _extended_by_a_word(typed: str, known: Iterable[str]) -> list[str]:
    """Return a list of the longest known name that `typed` extends by a word, or []."""
    shorter = [each for each in known if len(each) >= SHORTEST and re.match(rf"{re.escape(each)}[-_.]", typed)]
    return sorted(shorter, key=len)[-1:]


def did_you_mean(name: object, known: Iterable[str], others: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return "did you mean X?", X the known name near to `name` or, if given, ``others[name.lower()]``; "" if none."""
    near = nearest(others.get(name.lower(), name), known) if isinstance(name, str) else None
    return "" if near is None else f"did you mean {near}?"
