"""Find the known name that a misspelt name is near to."""

from collections.abc import Iterable

LONGEST = 80  # letters that are compared
NEAR = 0.7  # difflib's ratio: "beta_fst" and "beta_fast" have 0.94


def nearest(name: str, known: Iterable[str]) -> str | None:
    """
    Return the known name nearest to `name` in any case: a near spelling, or the one name that it begins.

    None if no name is near. Lower-case names that differ only in digits are versions of a model, not near.
    """
    from difflib import get_close_matches  # slow to import, and only errors need it

    lower = {each.lower(): each for each in known}
    word = name[:LONGEST].lower()
    found = get_close_matches(word, lower, n=1, cutoff=NEAR)
    if not found and len(word) >= 3:
        found = [each for each in lower if each.startswith(word)]
    if len(found) != 1 or (found[0] != name and name.islower() and _letters(name) == _letters(found[0])):
        return None
    return lower[found[0]]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the hint "did you mean ...?" with the nearest known name, or "" if none is near."""
    found = nearest(name, known)
    return f"did you mean {found}?" if found else ""


def _letters(name: str) -> str:
    """Return a name without its digits."""
    return "".join(letter for letter in name if not letter.isdigit())
