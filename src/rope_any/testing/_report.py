"""What the reports on functions and caches have in common: their text, and JSON."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any

from rope_any._json import plain

WIDTH = 100  # of a line of text


def head_lines(report: Any, *, unknown: str, advice: Iterable[str] = ()) -> Iterator[str]:
    """Yield lines on whether a report has passed, causes, what to do (`advice` too), and how well they explain all."""
    yield f"{'passed' if report.passed else 'FAILED'}: {report.subject}"
    if report.passed:
        return
    yield ""
    for cause in report.causes or (unknown,):
        yield from entry_lines("cause", cause)
    for remedy in dict.fromkeys(filter(None, (*report.remedies, *advice))):
        yield from entry_lines("change", remedy)
    if report.unexplained is not None:
        which = "this mistake" if len(report.causes) == 1 else "these mistakes"
        yield f"  {'fits':<7} the results are those of a rotation with {which}, to {report.unexplained:.1e}"


def entry_lines(name: str, text: str) -> Iterator[str]:
    """Yield the lines of a text with a name before the first."""
    first, *rest = wrap(text, WIDTH - 10, break_on_hyphens=False) or [""]
    yield f"  {name:<7} {first}"
    yield from (f"  {'':<7} {line}" for line in rest)


def error_text(error: float, *, holds: bool) -> str:
    """Return an error, and FAILS if it is too large."""
    return f"{error:.1e}{'' if holds else '  FAILS'}"


def refusal_texts(refusals: Mapping[Any, str]) -> dict[Any, str]:
    """Return the refusals by name, but for those that repeat an earlier one, which says how often."""
    alike: dict[str, list[Any]] = {}
    for name, text in refusals.items():
        alike.setdefault(re.sub(r"[\d, ]+", "", text), []).append(name)  # positions and shapes in a message differ
    counts = {names[0]: len(names) for names in alike.values()}
    return {name: refusals[name] + (f" ({n} times)" if n > 1 else "") for name, n in counts.items()}


def as_json(report: Any) -> str:
    """Return a report as JSON: keys as text, numbers that are not finite as null."""
    return json.dumps(plain(report), ensure_ascii=False, allow_nan=False)
