"""Find the known name that a wrong name was meant to be."""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from types import MappingProxyType

CUTOFF = 0.7
"""The least similarity of names that are near, as difflib counts it: from 0 to 1 for equal names."""
SHORTEST = 3
"""The least number of characters of a prefix."""
LEAST_MISSPELT = 5
"""The least number of characters of the name of a model in which a wrong letter is a slip, not another model."""


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


def misspelt(name: str, known: Iterable[str]) -> str | None:
    """
    Return the known name of a model of which `name` is a misspelling; None if none: most near names are other models.

    The names are equal but for case and signs, or inside them a letter is missing or too many, or two are swapped.
    """
    return next((each for each in known if _is_slip(*(re.sub(r"[\W_]", "", x.lower()) for x in (name, each)))), None)


def _is_slip(a: str, b: str) -> bool:
    """Whether two names are equal, or differ only by a slip between their first and last letters."""
    if a == b:
        return True
    start = _equal_letters(a, b)
    end = min(_equal_letters(a[::-1], b[::-1]), len(a) - start, len(b) - start)
    x, y = (each[start : len(each) - end] for each in (a, b))
    is_swap, is_letter = len(x) == 2 and x == y[::-1], not (x and y) and len(x + y) == 1 and (x + y).isalpha()
    return start > 0 and end > 0 and min(len(a), len(b)) >= LEAST_MISSPELT and (is_swap or is_letter)


def _equal_letters(a: str, b: str) -> int:
    """Return the number of equal letters at the beginning of two names."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def did_you_mean(
    name: object,
    known: Iterable[str],
    others: Mapping[str, str] = MappingProxyType({}),
    find: Callable[[str, Iterable[str]], str | None] = nearest,
) -> str:
    """Return "did you mean X?", X the known name that `find` finds for `name` or ``others[name.lower()]``, or ""."""
    near = find(others.get(name.lower(), name), known) if isinstance(name, str) else None
    return "" if near is None else f"did you mean {near}?"
