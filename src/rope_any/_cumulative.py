"""Angles that are running sums of steps: exact modulo one turn, also over a million tokens."""

import math
from typing import Any, TypeAlias

from rope_any._arrays import Array, Library, is_array, library, type_name
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text
from rope_any._frequencies import INVERSE_TURN

Carry: TypeAlias = tuple[Array, Array]
"""The sum after the last token, ``(..., pairs)``: integers in units of 2⁻³¹ turns (2π), and the rest in such units."""

_BITS = 31
_UNIT = 2 * math.pi / 2**_BITS  # radians
_UNIT_HIGH = math.ldexp(round(math.ldexp(_UNIT, _BITS + 9)), -_BITS - 9)  # its first 12 bits


def cumulative_angles(steps: Array, /, *, carry: Carry | None = None) -> tuple[Array, Carry]:
    """
    Return the running sum of steps over the tokens, modulo one turn, and what a later call continues from.

    Parameters
    ----------
    steps : array
        ``(..., seq, pairs)``, in radians up to 2²⁰, of a floating-point dtype: how far each token rotates each pair
        beyond the token before. Gradients flow to them.
    carry : pair of array, optional
        The second result of a call for the tokens before, as in decoding. By default the sum begins at 0.

    Returns
    -------
    angles : array
        ``(..., seq, pairs)`` in radians, from -π to π, each with its own step included. They are float64 for float64
        steps, else float32. `from_angles` makes the table.
    carry : pair of array
        The sum after the last token, each ``(..., pairs)``: integers in units of 2⁻³¹ turns, and the rest in such
        units. Gradients flow through the rest.

    Raises
    ------
    TypeError
        If the steps are no floating-point array, or `carry` is no pair of arrays.
    ValueError
        If the steps have fewer than two axes, or `carry` has other shapes or dtypes than such a result.

    Notes
    -----
    Selective RoPE (arXiv:2511.17388) and Mamba-3 compute their angles in this way. A float32 sum would lose digits, so
    integers of 2⁻³¹ turns are summed exactly, with the rests beside them. After n steps of up to π, float32 angles err
    by at most 1.3e-7, and without float64 by another 5e-17 n² (5e-5 for a million); float64 angles by 1e-15 + 5e-26 n².

    Examples
    --------
    >>> steps = np.full((1_000_000, 1), 0.5)
    >>> angles, carry = ra.cumulative_angles(steps)
    >>> bool(abs(np.cos(angles[-1, 0]) - np.cos(500_000)) < 1e-9)
    True
    >>> angles, carry = ra.cumulative_angles(steps[:1], carry=carry)  # the next token
    """
    lib = library(steps=steps)
    lib.require_floating("steps", steps)
    if steps.ndim < 2:
        raise ArgumentValueError("steps", "have shape (..., seq, pairs)", tuple(steps.shape))
    xp, wide = lib.xp, lib.has_float64(steps)
    real, integer = (lib.float64, xp.int64) if wide else (xp.float32, xp.int32)
    units, rest = (lib.cumulative_sum(part, -2) for part in _in_units(lib, lib.cast(steps, real), integer))
    if carry is not None:
        first = _checked_carry(lib, carry, steps, (integer, real))
        units, rest = (part + start[..., None, :] for part, start in zip((units, rest), first, strict=True))
    units, rest = _normalised(lib, units, rest)
    # units = 2¹⁹ step + low: the step has 12 bits, and so has `_UNIT_HIGH`, so that their product is exact
    high = units >> 19
    low = xp.astype(units - (high << 19), real) + rest
    high = xp.astype(high, real) * 2.0**19
    angles = high * _UNIT_HIGH + (high * (_UNIT - _UNIT_HIGH) + low * _UNIT)
    if steps.shape[-2] == 0:
        shape, place = (*steps.shape[:-2], steps.shape[-1]), lib.device_kwargs(steps)
        last = carry or (xp.zeros(shape, dtype=integer, **place), xp.zeros(shape, dtype=real, **place))
    else:
        last = units[..., -1, :] + 0, rest[..., -1, :] + 0  # no views, which would keep the sums of all tokens
    return lib.cast(angles, lib.compute_dtype(steps)), last


def _in_units(lib: Library, s: Array, integer: Any) -> tuple[Array, Array]:
    """Convert steps `s` from radians to units of 2⁻³¹ turns, modulo one turn: (integers, rest with the gradient)."""
    xp = lib.xp
    bits = 26 if s.dtype == lib.float64 else 11
    high, middle, low = _INVERSE_TURN[bits]
    # s / 2π = (a + b) (high + middle + low): products with half of the digits of s are exact (Dekker 1971)
    stretched = s * (2.0 ** (bits + 1) + 1)
    a = stretched - (stretched - s)
    b = s - a
    units, rest = xp.zeros_like(s, dtype=integer), xp.zeros_like(s)
    for turns in (a * high, b * high, a * middle, b * middle + s * low):
        units, rest = _normalised(lib, units, rest + (turns - xp.round(turns)) * 2.0**_BITS)
    return units, rest


def _normalised(lib: Library, units: Array, rest: Array) -> tuple[Array, Array]:
    """Return (units, rest) with the same sum modulo one turn, and a rest of at most half a unit (2⁻³² turns)."""
    whole, half = lib.xp.round(rest), 2 ** (_BITS - 1)
    units = units + lib.xp.astype(whole, units.dtype)
    return ((units + half) & (2**_BITS - 1)) - half, rest - whole


def _split_inverse_turn(bits: int) -> tuple[float, float, float]:
    """Return three floats whose sum is 1 / 2π: its first `bits` bits, the next `bits` bits, and the rest."""
    cut = 190 - bits
    high = INVERSE_TURN >> cut << cut
    middle = INVERSE_TURN - high >> cut - bits << cut - bits
    return high / 2**192, middle / 2**192, (INVERSE_TURN - high - middle) / 2**192


_INVERSE_TURN = {bits: _split_inverse_turn(bits) for bits in (11, 26)}  # for float32 and float64


def _checked_carry(lib: Library, carry: object, steps: Array, dtypes: tuple[Any, Any]) -> Carry:
    """Return `carry`; raise unless it is a pair of arrays of these dtypes, of the shape of `steps` without axis -2."""
    shape = (*steps.shape[:-2], steps.shape[-1])
    wanted = f"be a pair of arrays {shape}, of {lib.dtype_name(dtypes[0])} and {lib.dtype_name(dtypes[1])}"
    hint = "give the second result of the call for the tokens before"
    if not isinstance(carry, tuple | list) or len(carry) != 2 or not all(map(is_array, carry)):
        raise ArgumentTypeError("carry", wanted, Text(type_name(carry)), hint)
    library(steps=steps, **{"units of the carry": carry[0], "rest of the carry": carry[1]})
    got = [(tuple(part.shape), part.dtype) for part in carry]
    if got != [(shape, dtype) for dtype in dtypes]:
        shown = " and ".join(f"{lib.dtype_name(dtype)} {shape}" for shape, dtype in got)
        raise ArgumentValueError("carry", wanted, Text(shown), hint)
    return carry[0], carry[1]
