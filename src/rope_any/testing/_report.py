"""What the reports on functions and caches have in common: their text, and JSON."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

WIDTH = 100  # of a line of text


def head_lines(report: Any, *, unknown: str) -> Iterator[str]:
    """Yield lines on whether a report has passed, each cause and what to do about it, and how well they explain all."""
    yield f"{'passed' if report.passed else 'FAILED'}: {report.subject}"
    if report.passed:
        return
    yield ""
    for cause in report.causes or (unknown,):
        yield from entry_lines("cause", cause)
    for remedy in dict.fromkeys(filter(None, report.remedies)):
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
    """Return the refusals by name, of which one that repeats an earlier one refers to it."""
    first_by_text: dict[str, Any] = {}
    texts: dict[Any, str] = {}
    for name, text in refusals.items():
        kind = re.sub(r"\d+", "", text) if text.startswith("raised") else text  # positions in a message differ
        first = first_by_text.setdefault(kind, name)
        texts[name] = text if first == name else f"the same as at {first}"
    return texts


def as_json(report: Mapping[str, Any]) -> str:
    """Return a report as JSON: keys as text, numbers that are not finite as null."""
    return json.dumps(_plain(report), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a value of a report in the types of JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
