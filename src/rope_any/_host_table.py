"""Tables in the memory of a CPU: by NumPy for all libraries, which is faster than their own functions, or by Numba."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from rope_any._arrays import Array, Library, State, _numba
from rope_any._arrays._compilers import warn_fallback
from rope_any._arrays._memory import tile_size
from rope_any._arrays.numpy import LIBRARY as NUMPY
from rope_any._caches import cached
from rope_any._exact import angle_by_float64, angle_by_int64, scale_and_cast, table_of_angle
from rope_any._frequencies import PreparedFrequencies
from rope_any._positions import by_axis, require_fit
from rope_any._rotation import Table

# --- consecutive positions --------------------------------------------------------------------------------------------


def choose_range_maker(
    lib: Library, frequencies: PreparedFrequencies, /, *, fused: bool | None
) -> Callable[[Any, float, int, int], Table]:
    """Return a function ``(frequencies, factor, first, end)`` → the table: by Numba if `fused`, or by adding angles."""
    loop = "" if fused is False else loop_of(lib, frequencies)
    if not isinstance(loop, str):
        return partial(_table_of_range, lib, _looped_rows)
    if fused:
        warn_fallback(loop)
    return partial(_table_of_range, lib, _added_rows)


def _table_of_range(  # noqa: PLR0917  # each call of a new position makes this one, and names take time
    lib: Library,
    rows: Callable[..., tuple[Any, Any]],
    frequencies: PreparedFrequencies,
    factor: float,
    first: int,
    end: int,
) -> Table:
    """Return the float32 CPU table of the positions from `first` up to `end`, exclusive, which `rows` makes."""
    host: Any = lib.host
    count = max(end - first, 0)
    if not -(2**53) <= first <= 2**53 - count:
        require_fit(first, first + max(count - 1, 0), wide=True)
    cos, sin = rows(lib, frequencies, factor, first, count)
    return Table(host.wrap(cos), host.wrap(sin))


def _added_rows(
    lib: Library, frequencies: PreparedFrequencies, factor: float, first: int, count: int
) -> tuple[Any, Any]:
    """Return cosines and sines, times `factor`, of `count` positions from `first` on, by adding angles in NumPy."""
    host: Any = lib.host
    cos, sin = cached(frequencies, "angles", _precompute_angles).cos_sin(first, count, host.threads)
    return (cos, sin) if factor == 1 else (cos * factor, sin * factor)


def _precompute_angles(frequencies: PreparedFrequencies) -> Any:
    """Return the `_angles.Angles` of one row of frequencies, from which `_added_rows` makes tables."""
    from rope_any._arrays import _angles

    return _angles.precompute(frequencies.fixed_point[0])


def _looped_rows(
    lib: Library, frequencies: PreparedFrequencies, factor: float, first: int, count: int
) -> tuple[Any, Any]:
    """Return the same by Numba's loop."""
    loop: Any = loop_of(lib, frequencies)
    if isinstance(loop, str):  # the loop of these frequencies failed, and that of others, with the same plan, did not
        return _added_rows(lib, frequencies, factor, first, count)
    rows: tuple[Any, Any] = loop((count,), factor, 0, 0, first)
    return rows


# --- arrays of positions ----------------------------------------------------------------------------------------------


def array_table_maker(
    lib: Library, given: Array, frequencies: PreparedFrequencies, dtype: Any
) -> Callable[[PreparedFrequencies, float, Array], Table]:
    """
    Return a function ``(frequencies, factor, positions)`` that makes tables in `dtype` for arrays like `given`.

    Their state is HOST. NumPy multiplies, as its calls take the least time, and the library makes cosines and sines,
    whose bits are then those of all its tables. Large ones are made in tiles, so that caches hold intermediate results.
    """
    host: Any = lib.host
    view, axes = host.viewer(given), frequencies.axes
    work = lib.xp.float64 if dtype == lib.xp.float64 else lib.xp.float32
    shape, pairs, are_integers = tuple(by_axis(given, axes)[0].shape), len(frequencies.rows[0]), lib.is_integer(given)
    count, tile = prod(shape), max(tile_size() // (2 * pairs), 1)

    def table_of_some(frequencies: PreparedFrequencies, factor: float, some: Any) -> Table:
        """Return the table of some positions, which are in NumPy."""
        fixed_point, high, low = cached(frequencies, "rows", _rows_in_numpy)
        if are_integers and work == lib.xp.float32:
            angle = angle_by_int64(NUMPY, some.astype(np.int64, copy=False), fixed_point, axes)
        else:
            angle = angle_by_float64(NUMPY, some.astype(float, copy=False), high, low, axes)
        return scale_and_cast(lib, table_of_angle(lib, host.wrap(angle), work), factor, dtype)

    def make(frequencies: PreparedFrequencies, factor: float, positions: Array) -> Table:
        """Return the table of positions."""
        if count <= tile:
            return table_of_some(frequencies, factor, view(positions))
        flat, place = view(positions).reshape(count, *positions.shape[len(shape) :]), lib.device_kwargs(positions)
        cos, sin = (lib.xp.empty((count, pairs), dtype=dtype, **place) for _ in range(2))
        for first in range(0, count, tile):
            rows = slice(first, first + tile)
            cos[rows], sin[rows] = table_of_some(frequencies, factor, flat[rows])
        return Table(*(lib.xp.reshape(part, (*shape, pairs)) for part in (cos, sin)))

    # NumPy warns of positions that are not finite, and other libraries don't
    return make if are_integers or lib is NUMPY else np.errstate(all="ignore")(make)


def _rows_in_numpy(frequencies: PreparedFrequencies) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the rows of `fixed_point`, `high` and `low` as NumPy arrays."""
    asarray = NUMPY.xp.asarray
    rows = [asarray(row, dtype=np.int64) for row in frequencies.fixed_point]
    high, low = ([asarray(row) for row in piece] for piece in (frequencies.high, frequencies.low))
    return rows, high, low


_NOT_TRACEABLE = "transforms, tracers and gradients cannot follow Numba's loop, nor does it see torch's negative bit"


def table_by_loop(
    lib: Library, given: Array, frequencies: PreparedFrequencies, factor: float, dtype: Any
) -> Table | str:
    """Return the table of an array of positions made by Numba's loop, or a text that says why it can't be."""
    host: Any = lib.host
    if isinstance(loop := loop_of(lib, frequencies), str):
        return loop
    if dtype == lib.xp.float64:
        return "Numba's loop is not exact enough for float64 tables"
    if lib.state(given) is not State.HOST:
        return _NOT_TRACEABLE
    shape, real = tuple(by_axis(given, frequencies.axes)[0].shape), not lib.is_integer(given)
    view = np.require(host.viewer(given)(given), np.float64 if real else np.int64, ["C", "ALIGNED"])
    address = view.ctypes.data if view.size else 0
    cos, sin = map(host.wrap, loop(shape, factor, address, int(real), 0, given=(given, view)))
    return Table(lib.cast(cos, dtype), lib.cast(sin, dtype))


# --- Numba's loop -----------------------------------------------------------------------------------------------------


def loop_of(lib: Library, frequencies: PreparedFrequencies) -> Callable[..., Any] | str:
    """Return `_compile_loop`'s function, or text on why there is none, cached as long as these frequencies live."""
    return cached(frequencies, ("loop", lib.name), partial(_compile_loop, lib))


def _compile_loop(lib: Library, frequencies: PreparedFrequencies) -> Callable[..., Any] | str:
    """Return a new `_table_loop.table_maker` of these frequencies, or a text that says why Numba can't compile it."""
    host: Any = lib.host
    if (reason := _numba.refusal("float32")) is not None:
        return reason
    try:
        from rope_any._arrays import _table_loop

        packed = _table_loop.pack_frequencies(frequencies.fixed_point, frequencies.high, frequencies.low)
        return _table_loop.table_maker(packed, host.threads)
    except Exception as error:  # noqa: BLE001  # compilers raise their own types
        return f"Numba failed ({type(error).__name__})"
