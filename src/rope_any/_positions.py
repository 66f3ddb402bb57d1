"""Positions: host numbers and arrays, converted to arrays for the table without rounding."""

import math
from collections.abc import Iterator, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from rope_any._arrays import Array, Library, _sharding, is_array, is_symbol, known, library, refuse_foreign, type_name
from rope_any._checks import (
    ROWS_OF_TABLE,
    ArgumentTypeError,
    ArgumentValueError,
    Text,
    brief,
    int32,
    integer,
    require_known,
)

Positions: TypeAlias = Array | int | range | Sequence[Any]
"""Positions of tokens: an array, or numbers on the host."""

Coordinates: TypeAlias = Sequence[Sequence[float]]
"""The coordinates of a grid on each of its axes, such as frames, rows and columns; text has one axis."""


class SplitPositions(NamedTuple):
    """Positions as arrays of one shape: two arrays if no single dtype holds them exactly."""

    numbers: Array
    """Integers; or real numbers, if a dtype holds them."""
    rest: Array | None
    """Without float64: real positions less their nearest integers, in float32. None for integers and with float64."""


def is_consecutive(positions: object) -> TypeGuard[range]:
    """Whether positions are a range of step 1."""
    return type(positions) is range and positions.step == 1


def is_number(value: object) -> bool:
    """Whether `value` is one integer on the host: Python's, NumPy's, or a tracer's symbol; a bool counts too."""
    return isinstance(value, Integral) or is_symbol(value)


def int32_or_symbol(name: str, value: Any, /, *, least: int = 1 - 2**31) -> Any:
    """Return `value` as an int; raise unless it is from `least` to 2³¹ - 1. A tracer's symbol is returned unchecked."""
    return value if is_symbol(value) else int32(name, value, least=least)


def host_integers(name: str, values: Any, /, *, least: int = 1 - 2**31) -> list[int]:
    """Return a sequence (no array) as a list of ints; raise unless all are integers from `least` to 2³¹ − 1."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        refuse_foreign(name, values)
        hint = f"write [{brief(values)}]" if isinstance(values, int) and not isinstance(values, bool) else ""
        hint = f"write {name}.tolist()" if is_array(values) else hint
        raise ArgumentTypeError(name, "be a sequence of integers", values, hint)
    check = int32 if len(known(values)) == len(values) else int32_or_symbol
    return [check(name, value, least=least) for value in values]


def array_or_none(positions: Positions | SplitPositions) -> Array | None:
    """Return the array in `positions`: an array itself, the `numbers` of `SplitPositions`, None for host numbers."""
    if isinstance(positions, SplitPositions):
        return positions.numbers
    return positions if is_array(positions) else None


def reference_array(positions: Positions | SplitPositions, *arrays: Array | None) -> Array:
    """Return the first of `arrays` that is not None; raise if all are None. `positions` are only for the error."""
    for array in arrays:
        if array is not None:
            return array
    refuse_foreign("positions", positions)
    wanted, hint = "be an array, or come with `like`, an array", "give like=q, the array to rotate"
    if isinstance(positions, tuple | list) and any(map(is_array, positions[:4])):
        wanted, hint = "be one array", _arrays_hint(positions)
    raise ArgumentTypeError("positions", wanted, Text(type_name(positions)), hint)


def by_axis(positions: Array, axes: int | None, /, *, name: str = "positions") -> list[Array]:
    """Split positions ``(..., axes)`` into ``(...)``, for None return [positions]; raise for another last axis."""
    if axes is None:
        return [positions]
    shape = tuple(positions.shape)
    if not shape or shape[-1] != axes:
        wanted = f"end in an axis of length {axes}, one for each row of frequencies"
        hint = f"stack([p] * {axes}, axis=-1) repeats p on all axes"
        if len(shape) > 1 and shape[0] == axes:
            hint += f"; moveaxis(p, 0, -1) moves its first axis, if that has the {axes} axes of positions"
        raise ArgumentValueError(name, wanted, Text(f"shape {shape}"), hint)
    return [positions[..., axis] for axis in range(axes)]


def consecutive(
    start: Any, length: int, /, *, like: Array, name: str = "positions", lib: Library | None = None
) -> Array:
    """Return `length` positions from `start`, an int or 0-d integer array: int64, or int32 if `like` has no float64."""
    given = is_array(start)
    lib = lib or library(**({name: start} if given else {}), like=like)
    xp, wide, place = lib.xp, lib.has_float64(like), lib.device_kwargs(like)
    dtype = xp.int64 if wide else xp.int32
    if not given:
        first = start if is_symbol(start) else integer(name, start)
        last = first if not is_symbol(length) and length == 0 else first + length - 1
        require_fit(first, last, wide=wide, name=name)
        return xp.arange(first, first + length, dtype=dtype, **place)
    if not lib.is_integer(start):
        got = Text(lib.dtype_name(start.dtype))
        hint = "cast it to an integer, or give a position for each token"
        raise ArgumentTypeError(name, "be an integer if 0-d", got, hint)
    along = _sharding.replicated(xp.arange(length, dtype=dtype, **place), like=start)
    return lib.cast(start, dtype) + along


def as_position_array(
    positions: Positions | SplitPositions,
    /,
    *,
    like: Array | None,
    name: str = "positions",
    lib: Library | None = None,
) -> Array:
    """
    Return positions as an array: int64 or, without float64, int32; real numbers float64 or float32.

    Arrays of float32 or float64 stay as they are. Host numbers are put on the device of `like`, which must be given.
    """
    given = array_or_none(positions)
    reference, named = reference_array(positions, given, like), {name: given, "like": like}
    lib = lib or library(**{name: array for name, array in named.items() if array is not None})
    wide = lib.has_float64(reference)
    given, rest = read_positions(lib, reference, positions, wide=wide, name=name)
    require_known(name, given.shape)
    if rest is not None:
        return lib.cast(given, lib.xp.float32) + rest
    if lib.is_integer(given):
        return lib.cast(given, lib.xp.int64 if wide else lib.xp.int32)
    return given if lib.dtype_name(given.dtype) == "float64" else lib.cast(given, lib.xp.float32)


def split_positions(
    lib: Library, positions: Positions | SplitPositions, /, *, like: Array, name: str = "positions"
) -> SplitPositions:
    """Return positions unrounded: with float64 one array and no rest; else int32 and the float32 rest of real ones."""
    wide, xp = lib.has_float64(like), lib.xp
    given, rest = read_positions(lib, like, positions, wide=wide, name=name)
    if lib.is_integer(given):
        return SplitPositions(lib.cast(given, xp.int64 if wide else xp.int32), rest)
    if wide:
        return SplitPositions(given, None)
    real = given if lib.dtype_name(given.dtype) == "float64" else lib.cast(given, xp.float32)
    nearest = xp.round(real)
    return SplitPositions(xp.astype(nearest, xp.int32), lib.cast(real - nearest, xp.float32))


def stack_axes(lib: Library, *columns: SplitPositions) -> SplitPositions:
    """Join positions on one axis each to positions ``(..., axes)``: broadcast, float64 unless all are integers."""
    numbers, rests = zip(*columns, strict=True)
    xp = lib.xp
    if not all(lib.is_integer(number) for number in numbers):
        numbers = tuple(lib.cast(number, lib.float64) for number in numbers)
    rest = None
    if any(part is not None for part in rests):
        zero = xp.zeros((1,), dtype=xp.float32, **lib.device_kwargs(numbers[0]))
        rest = _broadcast_and_stack(xp, [zero if part is None else part for part in rests], like=numbers)
    return SplitPositions(_broadcast_and_stack(xp, numbers, like=numbers), rest)


def _broadcast_and_stack(xp: Any, columns: Sequence[Array], *, like: Sequence[Array]) -> Array:
    """Insert axes before the last of arrays up to the most axes in `like`; broadcast; stack along a new last axis."""
    most = max(column.ndim for column in like)
    full = list(columns)
    while any(column.ndim < most for column in full):
        full = [xp.expand_dims(column, axis=-2) if column.ndim < most else column for column in full]
    return xp.stack(xp.broadcast_arrays(*full), axis=-1)


def read_positions(
    lib: Library, like: Array, positions: Positions | SplitPositions, *, wide: bool, name: str = "positions"
) -> tuple[Array, Array | None]:
    """
    Return positions as (array, rest): an array as it is, with None; `SplitPositions` unchanged.

    Host numbers are put on the device of `like`: as int64, or float64 if one is real; unless `wide`, as int32 with a
    float32 rest. Raises for arrays that are no integers, float32 or float64, and for numbers that are too large.
    """
    if isinstance(positions, SplitPositions):
        return positions
    if positions is not like and not is_array(positions):
        return _from_host(lib, like, positions, wide=wide, name=name)
    dtype = lib.dtype_name(positions.dtype)
    if not lib.is_integer(positions) and dtype not in ("float32", "float64"):
        hint = _DTYPE_HINTS.get(dtype, "")
        if dtype.startswith("complex"):  # Llama's freqs_cis
            hint = "give Table(z.real, z.imag) for complex cos + i sin"
        raise ArgumentTypeError(name, "be integers, float32 or float64", Text(f"an array of {dtype}"), hint)
    return positions, None


_DTYPE_HINTS = {
    "bool": "positions.padded(mask) counts the tokens of a mask",
    "float16": "float16 rounds integers beyond 2048: keep them as integers, or as float32",
    "bfloat16": "bfloat16 rounds integers beyond 256: keep them as integers, or as float32",
}


def _from_host(
    lib: Library, like: Array, positions: int | range | Sequence[Any], *, wide: bool, name: str
) -> tuple[Array, Array | None]:
    """Return host numbers as (int32, float32 rest or None for integers), if `wide` as (int64 or float64, None)."""
    xp, place = lib.xp, lib.device_kwargs(like)
    integer_dtype = xp.int64 if wide else xp.int32
    if isinstance(positions, range) and positions[1:]:  # of fewer numbers, start and step may have any size
        require_fit(*positions[:1], *positions[-1:], wide=wide, name=name)
        return xp.arange(positions.start, positions.stop, positions.step, dtype=integer_dtype, **place), None
    if not isinstance(positions, Sequence) and not is_number(positions):
        refuse_foreign(name, positions)
        raise ArgumentTypeError(name, _WANTED, Text(type_name(positions)), _number_hint(positions))
    numbers, shape = _flatten(positions, name)
    fixed = known(numbers)
    require_fit(*((min(fixed), max(fixed)) if fixed else ()), wide=wide, name=name)

    def array(values: list[Any], dtype: Any) -> Array:
        """Return a flat list of numbers as an array with the shape of the nested positions."""
        if len(known(values)) < len(values):
            zero = xp.zeros((), dtype=dtype, **place)
            return xp.reshape(xp.stack([zero + value for value in values]), shape)
        return xp.reshape(xp.asarray(values, dtype=dtype, **place), shape)

    if not any(isinstance(number, float) for number in numbers):
        return array(numbers, integer_dtype), None
    if wide:
        return array(numbers, lib.float64), None
    nearest = [round(number) if isinstance(number, float) else number for number in numbers]
    return array(nearest, integer_dtype), array([n - m for n, m in zip(numbers, nearest, strict=True)], xp.float32)


_WANTED = "be an array, an int, a range or a sequence of finite numbers"


def _flatten(positions: Any, name: str, deepest: int = 64) -> tuple[list[float], tuple[int, ...]]:
    """Return (flat list, shape) of nested numbers; raise unless finite, in even rows, nested up to `deepest` deep."""
    if isinstance(positions, Sequence) and not isinstance(positions, str | bytes):
        if not deepest:
            raise ArgumentValueError(name, _WANTED, Text("sequences nested more than 64 deep"))
        if isinstance(positions, tuple | list) and any(map(is_array, positions[:4])):
            count = sum(map(is_array, positions))
            content = f"{count} array{'s' * (count > 1)}" if count == len(positions) else "numbers and arrays"
            got = Text(f"a {type_name(positions)} of {content}")
            raise ArgumentTypeError(name, "be one array", got, _arrays_hint(positions))
        parts = [([number], ()) if _is_plain(number) else _flatten(number, name, deepest - 1) for number in positions]
        shapes = {shape for _, shape in parts}
        if len(shapes) > 1:
            raise ArgumentValueError(name, _WANTED, Text("rows of different lengths"))
        return [number for numbers, _ in parts for number in numbers], (len(parts), *(shapes.pop() if shapes else ()))
    if is_symbol(positions):
        return [positions], ()
    if isinstance(positions, bool) or not isinstance(positions, Real):
        refuse_foreign(name, positions)
        raise ArgumentTypeError(name, _WANTED, Text(type_name(positions)), _number_hint(positions))
    number = int(positions) if isinstance(positions, Integral) else float(positions)
    if not _is_plain(number):
        raise ArgumentValueError(name, _WANTED, number)
    return [number], ()


def _number_hint(position: object) -> str:
    """Return the hint of an error for a value that is no position: what to write instead, or "" if unknown."""
    if isinstance(position, Real) and not isinstance(position, bool) and position - position == 0:  # it is finite
        return "write int(p) for a start p, [p] for one token"  # without its value, which torch.compile may not know
    if isinstance(position, Iterator | slice):
        return "write range(a, b) for slice(a, b)" if isinstance(position, slice) else "write list(p)"
    is_quoted = isinstance(position, str) and len(position) <= 20 and position.isdecimal()
    return f"write {position} without quotes" if is_quoted else ""


def _arrays_hint(arrays: Sequence[Any]) -> str:
    """Return the hint of an error for several arrays as positions: what to write instead."""
    fields = getattr(arrays, "_fields", ())
    if fields == ("cos", "sin"):
        return "pass it to rope(q, k, table), or a tuple of two tables, for q and for k"
    if fields:  # such as those of `positions.Far`
        return f"make a table of each: {', '.join(f'table(p.{field})' for field in fields)}"
    dimensions = [getattr(one, "ndim", None) for one in arrays]
    if not all(dimensions):
        return "write stack(p)" if set(dimensions) == {0} else ""
    if len(arrays) == 1 and isinstance(arrays, tuple):
        return f"give p[0] if that has positions; {ROWS_OF_TABLE}"
    if len(arrays) == 2:
        return "give Table(cos, sin) for cosines and sines, a pair of tables for positions of q and of k"
    return "write stack(p, axis=-1) for positions on several axes"


def _is_plain(number: object) -> bool:
    """Whether `number` is exactly a Python int or a finite Python float, no bool and no subclass."""
    return type(number) is int or (type(number) is float and -math.inf < number < math.inf)


def require_fit(*positions: float, wide: bool, name: str = "positions") -> None:
    """Raise if a host position exceeds 2⁵³ in magnitude (`wide`, with float64) or 2³¹ - 1 (without)."""
    limit = 2**53 if wide else 2**31 - 1
    for position in positions:
        if not is_symbol(position) and not -limit <= position <= limit:
            got = position if abs(position) < 2**64 else Text("one beyond 64 bits")  # maybe too long to print
            wanted = f"not exceed {limit} in magnitude" + ("" if wide else " without float64")
            raise ArgumentValueError(name, wanted, got)
