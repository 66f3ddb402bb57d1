"""Tables in the memory of a CPU: by NumPy for all libraries, which is faster than their own functions, or by Numba."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from rope_any._arrays import Array, Library, State, _numba
from rope_any._arrays._memory import tile_size
from rope_any._arrays.numpy import LIBRARY as NUMPY
from rope_any._arrays.numpy import address
from rope_any._caches import cached
from rope_any._exact import TableMaker, angle_by_float64, angle_by_int64, scale_and_cast, table_of_angle
from rope_any._frequencies import PreparedFrequencies
from rope_any._positions import SplitPositions, by_axis, require_fit
from rope_any._rotation import Table


def numpy_maker(lib: Library, at: range | SplitPositions, frequencies: PreparedFrequencies, dtype: Any) -> TableMaker:
    """
    Return a way to make tables by NumPy (see `_table.table_maker`): for ranges by adding angles.

    For arrays in state HOST NumPy multiplies, as its calls take the least time. The library makes cosines and sines, so
    that under its transforms an array has a table of the same bits. Large tables are made in tiles, so that caches hold
    intermediate results.
    """
    if isinstance(at, range):
        return partial(_table_of_range, lib, _added_rows)
    host: Any = lib.host
    given = at.numbers
    view, axes = host.viewer(given), frequencies.axes
    work = lib.float64 if dtype == lib.float64 else lib.xp.float32
    shape, pairs, are_integers = tuple(by_axis(given, axes)[0].shape), len(frequencies.rows[0]), lib.is_integer(given)
    count, tile = prod(shape), max(tile_size() // (2 * pairs), 1)

    def table_of_tile(frequencies: PreparedFrequencies, factor: float, some: Any) -> Table:
        """Return the table of some of the positions, which are in NumPy."""
        fixed_point, high, low = cached(frequencies, "rows", _rows_in_numpy)
        if are_integers and work == lib.xp.float32:
            angle = angle_by_int64(NUMPY, some.astype(np.int64, copy=False), fixed_point, axes)
        else:
            angle = angle_by_float64(NUMPY, some.astype(float, copy=False), high, low, axes)
        return scale_and_cast(lib, table_of_angle(lib, host.wrap(angle), work), factor, dtype)

    def make(frequencies: PreparedFrequencies, factor: float, at: SplitPositions) -> Table:
        """Return the table of positions."""
        positions = at.numbers
        if count <= tile:
            return table_of_tile(frequencies, factor, view(positions))
        flat, place = view(positions).reshape(count, *positions.shape[len(shape) :]), lib.device_kwargs(positions)
        cos, sin = (lib.xp.empty((count, pairs), dtype=dtype, **place) for _ in range(2))
        for first in range(0, count, tile):
            rows = slice(first, first + tile)
            cos[rows], sin[rows] = table_of_tile(frequencies, factor, flat[rows])
        return Table(*(lib.xp.reshape(part, (*shape, pairs)) for part in (cos, sin)))

    # NumPy warns of positions that are not finite, and other libraries don't
    return make if are_integers or lib is NUMPY else np.errstate(all="ignore")(make)


def loop_maker(
    lib: Library, at: range | SplitPositions, frequencies: PreparedFrequencies, dtype: Any
) -> TableMaker | str:
    """Return a way to make tables by Numba's loop (see `_table.table_maker`), or a text that says why there is none."""
    if isinstance(loop := loop_of(lib, frequencies), str):
        return loop
    if isinstance(at, range):
        return partial(_table_of_range, lib, _looped_rows)
    if dtype == lib.float64:
        return "Numba's loop is not exact enough for float64 tables"
    if lib.state(at.numbers) is not State.HOST:
        return "transforms, tracers and gradients cannot follow Numba's loop, nor does it see torch's negative bit"
    return _array_loop_maker(lib, at.numbers, frequencies, dtype)


# --- consecutive positions --------------------------------------------------------------------------------------------


def _table_of_range(
    lib: Library,
    rows: Callable[..., tuple[Any, Any]],
    frequencies: PreparedFrequencies,
    factor: float,
    positions: range,
) -> Table:
    """Return the float32 CPU table of a range of step 1, which `rows` makes."""
    host: Any = lib.host
    first = positions.start
    count = max(positions.stop - first, 0)
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


def _rows_in_numpy(frequencies: PreparedFrequencies) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the rows of `fixed_point`, `high` and `low` as NumPy arrays."""
    asarray = NUMPY.xp.asarray
    rows = [asarray(row, dtype=np.int64) for row in frequencies.fixed_point]
    high, low = ([asarray(row) for row in piece] for piece in (frequencies.high, frequencies.low))
    return rows, high, low


def _array_loop_maker(lib: Library, given: Array, frequencies: PreparedFrequencies, dtype: Any) -> TableMaker:
    """Return a way to make tables by Numba's loop, for arrays like `given` in state HOST."""
    host: Any = lib.host
    view, real = host.viewer(given), not lib.is_integer(given)
    shape, kind = tuple(by_axis(given, frequencies.axes)[0].shape), np.dtype(float if real else np.int64)

    def make(frequencies: PreparedFrequencies, factor: float, at: SplitPositions) -> Table:
        """Return the table of positions."""
        loop = loop_of(lib, frequencies)
        if isinstance(loop, str):  # as in `_looped_rows`
            return numpy_maker(lib, at, frequencies, dtype)(frequencies, factor, at)
        positions = view(at.numbers)
        if positions.dtype != kind or not positions.flags.carray:
            positions = np.require(positions, kind, ["C", "ALIGNED"])
        at_address = address(positions) if positions.size else 0
        cos, sin = map(host.wrap, loop(shape, factor, at_address, int(real), 0, given=(at, positions)))
        return Table(lib.cast(cos, dtype), lib.cast(sin, dtype))

    return make


# --- Numba's loop -----------------------------------------------------------------------------------------------------


def loop_of(lib: Library, frequencies: PreparedFrequencies) -> Callable[..., Any] | str:
    """Return `_compile_loop`'s function, or text on why there is none, cached as long as these frequencies live."""
    return cached(frequencies, ("loop", lib.name), partial(_compile_loop, lib))


def _compile_loop(lib: Library, frequencies: PreparedFrequencies) -> Callable[..., Any] | str:
    """Return a new `_table_loop.compiled_table` of these frequencies, or a text on why Numba can't compile it."""
    host: Any = lib.host
    if (reason := _numba.refusal("float32")) is not None:
        return reason
    try:
        from rope_any._arrays import _table_loop

        packed = _table_loop.pack_frequencies(frequencies.fixed_point, frequencies.high, frequencies.low)
        return _table_loop.compiled_table(packed, host.threads)
    except Exception as error:  # noqa: BLE001  # compilers raise their own types
        return f"Numba failed ({type(error).__name__})"
