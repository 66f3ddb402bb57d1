"""Turn results into what JSON has."""

import math
from typing import Any

from rope_any._checks import shown


def plain(value: Any, depth: int = 12) -> Any:
    """
    Return a value for JSON: named tuples become dicts by field, infinity and nan None.

    Containers more than `depth` levels deep become text.
    """
    if isinstance(value, dict | list | tuple) and not depth:
        return shown(value)
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {str(key): plain(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, depth - 1) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
