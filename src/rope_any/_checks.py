"""Checks of arguments that are numbers: each returns the value as Python's type, or raises an error that names it."""

import math
from numbers import Integral, Real

MAX_FEATURES = 2**20
"""Features of one head, or of heads side by side: above any in use, and few enough to be listed."""


def integer(name: str, value: object) -> int:
    """Return `value` as an int, or say that `name` must be one."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value  # as nearly all are
    if isinstance(value, bool) or not isinstance(value, Integral):
        msg = f"{name} must be an integer; got {shown(value)}"
        raise TypeError(msg)
    number = int(value)
    if not -(2**63) <= number < 2**63:
        msg = f"{name} must be an integer that 64 bits hold; got one beyond them"  # which may be too long to be shown
        raise ValueError(msg)
    return number


def int32(name: str, value: object, /, *, least: int = 1 - 2**31) -> int:
    """Return an int that 32 bits hold, or say that `name` must be one."""
    number = integer(name, value)
    if not least <= number < 2**31:
        msg = f"{name} must be from {least} to {2**31 - 1}; got {number}"
        raise ValueError(msg)
    return number


def flag(name: str, value: object) -> bool:
    """Return `value` as a bool, or say that `name` must be one."""
    if isinstance(value, bool) or type(value).__name__ == "bool":  # NumPy's own is called so too
        return bool(value)
    msg = f"{name} must be True or False; got {shown(value)}"
    raise TypeError(msg)


def real(name: str, value: object) -> float:
    """Return `value` as a float, or say that `name` must be a real number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        msg = f"{name} must be a real number; got {shown(value)}"
        raise TypeError(msg)
    try:
        return float(value)
    except OverflowError:
        msg = f"{name} must be a number that a float can hold; got one beyond 1e308"  # too long to be shown
        raise ValueError(msg) from None


def positive(name: str, value: object) -> float:
    """Return `value` as a float, or say that `name` must be positive, finite, and such that a few have a product."""
    number = real(name, value)
    if not 0 < number < math.inf:
        msg = f"{name} must be positive and finite; got {number}"
        raise ValueError(msg)
    if not 1e-100 <= number <= 1e100:
        msg = f"{name} must be from 1e-100 to 1e100; got {number}"
        raise ValueError(msg)
    return number


def attention_factor(value: object) -> float:
    """Return `value` as a float, or say that an attention factor must be one that a half-precision x survives."""
    factor = positive("attention_factor", value)
    if not 1e-4 <= factor <= 1e4:
        msg = f"attention_factor must be between 1e-4 and 1e4; got {factor}"
        raise ValueError(msg)
    return factor


def shown(value: object) -> str:
    """Return a value, or its type where the value would be long, for an error message."""
    kind = type(value).__name__
    if isinstance(value, str | bytes | list | tuple | dict) and len(value) > 40:
        return kind
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer of thousands of digits
        return kind
    return f"{kind} {text}" if len(text) <= 40 and "\n" not in text else kind


def require_known(name: str, shape: tuple[int, ...]) -> None:
    """Raise unless an array called `name`, of this shape, has known lengths."""
    if any(isinstance(n, float) for n in shape):  # nan, as Dask has it
        msg = f"{name} must have known lengths; got shape {tuple(shape)} (compute_chunk_sizes() finds out)"
        raise ValueError(msg)
