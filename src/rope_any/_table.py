"""
The table: exact cosines and sines of positions x frequencies.

Rotary embeddings lose digits in the product position x frequency: a float32 angle of a million radians has an error of
up to 0.06. Here the host first divides the frequency by 2π, with 192 bits. For integer positions it is then a 64-bit
fraction of a turn (2π) per position: the product of two integers, which wraps, is the angle modulo one turn. For real
positions, float64 tables and under compilers it has two pieces: the product of a position with the first 22 bits is
exact in float64, and so is its distance to whole turns; the rest is small. With ``fused=True``, `_arrays._table_loop`
makes tables on a CPU; other devices compile the same functions.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from rope_any._arrays import Array, Library, State, _sharding, is_array, library, refuse_foreign
from rope_any._arrays._compilers import warn_fallback, with_fallback
from rope_any._caches import constants
from rope_any._checks import NOTHING, ArgumentValueError, flag
from rope_any._checks import attention_factor as checked_factor
from rope_any._exact import TableMaker, exact_table, scale_and_cast, table_of_radians
from rope_any._frequencies import Frequencies, PreparedFrequencies, as_frequencies, prepare
from rope_any._positions import (
    Positions,
    SplitPositions,
    array_or_none,
    as_position_array,
    is_consecutive,
    reference_array,
    split_positions,
)
from rope_any._rotation import Table


def cos_sin(
    positions: Positions,
    frequencies: Frequencies | Array,
    /,
    *,
    attention_factor: float = 1.0,
    dtype: Any = None,
    like: Array | None = None,
    fused: bool = False,
) -> Table:
    """
    Return cosine and sine of ``positions x frequencies``, exactly.

    Parameters
    ----------
    positions : array, int, range or sequence of numbers
        The positions of the tokens, of any sign and order; an array of integers, float32 or float64 may have any shape.
        With frequencies of n rows the last axis has length n. Positions that are not an array need `like`, or learned
        frequencies.
    frequencies : tuple of float, nested tuples of float, or array
        Radians per position: ``(pairs,)``, ``(axes, pairs)`` or ``(heads, axes, pairs)``, as for `Rope`. An array
        (learned frequencies) must be of the library and device of `positions`; gradients flow to it. Its products are
        plain floating-point ones, without the bounds below.
    attention_factor : float, optional
        A factor of cosine and sine, as in YaRN and LongRoPE.
    dtype : dtype, optional
        The dtype of the table. The default is float64 if `like` is float64, or, without `like`, if the positions or the
        learned frequencies are; else float32.
    like : array, optional
        An array of the library and on the device to use; arrays of positions must agree with it.
    fused : bool, optional
        Compile the table to one loop, as for `rotate`. Numba cannot compile float64 tables, learned frequencies and
        gradients.

    Returns
    -------
    Table
        The pair ``(cos, sin)``, each ``(*positions.shape, pairs)``, or without the last axis of the positions if the
        frequencies have rows; with rows for each head, ``(..., heads, seq, pairs)``.

    Raises
    ------
    TypeError
        If an argument has a wrong type, or the arrays come from several libraries.
    ValueError
        If shapes or devices don't fit, a number is not finite or out of range, or `dtype` is float64 and the library
        has none.

    Notes
    -----
    The errors have these bounds, for the frequencies as given in float64:

    - For a float32 table, 1.2e-7 at any integer position below 2³¹ in magnitude, on every library. At real positions up
      to 2²⁴ and frequencies up to 2π, 2.5e-7 if the library has float64, else 2e-6.
    - For a float64 table, 1e-15 (1 + abs(angle)).

    Without float64, array positions are limited to 2³¹: integers wrap around, and real numbers stay at the limit. The
    last bit may depend on the form of the positions (a range or an array), but not with ``fused=True`` and Numba.

    Examples
    --------
    >>> cos, sin = ra.cos_sin(np.asarray([0, 1, 1_000_000]), ra.frequencies(4))
    >>> cos.shape
    (3, 2)
    >>> print(cos[:, 0])
    [1.         0.5403023  0.93675214]
    """
    refuse_foreign("frequencies", frequencies)
    source = frequencies if is_array(frequencies) else prepare(as_frequencies(frequencies))
    fused = flag("fused", fused)
    return table(positions, source, attention_factor=attention_factor, dtype=dtype, like=like, fused=fused)


def from_angles(angles: Array, /, *, attention_factor: float = 1.0, dtype: Any = None) -> Table:
    """
    Return the table of angles that a model computes itself, instead of positions and frequencies.

    Parameters
    ----------
    angles : array
        ``(..., pairs)``, in radians, of a floating-point dtype. Gradients flow to them. For a call of a `Rope` the
        leading axes are ``(seq,)``, ``(batch, seq)`` or ``(batch, heads, seq)``.
    attention_factor : float, optional
        A factor of cosine and sine.
    dtype : dtype, optional
        The dtype of the table. The default is float64 for float64 angles, else float32.

    Returns
    -------
    Table
        The pair ``(cos, sin)``, each of the shape of the angles.

    Raises
    ------
    TypeError
        If the angles are not an array, or their dtype or `dtype` is not a floating-point dtype.
    ValueError
        If the angles have no axis, `attention_factor` is not from 1e-4 to 1e4, or `dtype` is float64 and the library
        has none.

    Notes
    -----
    A float32 angle of a million radians has an error of up to 0.03, and so has its table. For sums over many tokens
    use `cumulative_angles`.

    Examples
    --------
    >>> cos, sin = ra.from_angles(np.asarray([[0.0, np.pi / 3]]))
    >>> print(cos.round(6))
    [[1.  0.5]]
    """
    lib = library(angles=angles)
    lib.require_floating("angles", angles)
    if angles.ndim == 0:
        raise ArgumentValueError("angles", "have shape (..., pairs)", ())
    dtype, xp = _table_dtype(lib, lib.has_float64(angles), dtype, deciding=(angles,)), lib.xp
    work = lib.float64 if dtype == lib.float64 else xp.float32
    radians = lib.cast(angles, lib.float64 if angles.dtype == lib.float64 else work)
    return scale_and_cast(lib, table_of_radians(lib, radians, work), checked_factor(attention_factor), dtype)


def table(
    positions: Positions | SplitPositions,
    frequencies: PreparedFrequencies | Array,
    /,
    *,
    attention_factor: float = 1.0,
    dtype: Any = None,
    like: Array | None = None,
    lib: Library | None = None,
    fused: bool | None = False,
) -> Table:
    """Return the table as `cos_sin` does, of prepared or learned frequencies; `fused` None falls back in silence."""
    learned = None if isinstance(frequencies, PreparedFrequencies) else frequencies
    factor = checked_factor(attention_factor)
    given = array_or_none(positions)
    reference = reference_array(positions, given, like, learned)
    named = {"positions": given, "like": like, "frequencies": learned}
    lib = lib or library(**{name: array for name, array in named.items() if array is not None})
    wide = lib.has_float64(reference)
    dtype = _table_dtype(lib, wide, dtype, deciding=(like,) if like is not None else (given, learned))
    sharded = next(filter(_sharding.is_sharded, (given, like, learned)), None)
    if sharded is not None:
        positions = _as_dtensor(positions, frequencies, like=sharded)

    def joined_table(at: Any, reference: Array, frequencies: PreparedFrequencies | Array) -> Table:
        """Return the table, with one last axis for the pairs of all heads, head by head, if these are prepared."""
        if not is_consecutive(at) or not has_fast_ranges(lib, reference, frequencies, dtype):
            at = split_positions(lib, at, like=reference)
        return table_maker(lib, reference, at, frequencies, dtype, fused=fused)(frequencies, factor, at)

    if learned is not None:
        return joined_table(positions, reference, _sharding.replicated(learned, like=positions))
    if sharded is None:
        return _split_heads(lib, joined_table(positions, reference, frequencies), frequencies, positions)
    of_shards = _sharding.tables_by_shard(lambda own: joined_table(own, own, frequencies), positions)
    return _split_heads(lib, Table(*of_shards), frequencies, positions)


def _split_heads(lib: Library, joined: Table, frequencies: PreparedFrequencies, positions: Any) -> Table:
    """Return a table ``(..., seq, heads * pairs)`` as ``(..., heads, seq, pairs)``; unchanged without heads."""
    if frequencies.heads is None:
        return joined
    if joined.cos.ndim < 2:
        wanted = "be (..., seq, axes) if each head has frequencies"
        raise ArgumentValueError("positions", wanted, tuple(positions.shape) if is_array(positions) else positions)
    parts = (lib.reshape_last_axes(part, 1, frequencies.heads, frequencies.pairs) for part in joined)
    batch, seq, heads, pairs = range(joined.cos.ndim - 2), *range(joined.cos.ndim - 2, joined.cos.ndim + 1)
    return Table(*(lib.xp.permute_dims(part, (*batch, heads, seq, pairs)) for part in parts))


# --- ways to make a table ---------------------------------------------------------------------------------------------


def has_fast_ranges(lib: Library, like: Array, frequencies: PreparedFrequencies | Array, dtype: Any) -> bool:
    """Whether `table_maker` takes ranges of step 1: for float32 tables in CPU memory, of frequencies of one row."""
    has_one_row = isinstance(frequencies, PreparedFrequencies) and frequencies.axes is None
    on_host = lib.host is not None and lib.host.contains(like)
    return has_one_row and on_host and bool(dtype == lib.xp.float32) and lib.state().can_keep_arrays


def table_maker(
    lib: Library,
    like: Array,
    at: range | SplitPositions,
    frequencies: PreparedFrequencies | Array,
    dtype: Any,
    *,
    fused: bool | None,
) -> TableMaker:
    """
    Return the way to make tables of positions like `at`: a function that holds no array and no frequencies.

    All tables are made by it: by a compiler if `fused`, with a warning if that can't be, or None for no warning; else
    in CPU memory by NumPy, and elsewhere by the functions of the library.
    """
    if fused is not False and lib.state() is not State.TRACED:
        made = _fused_maker(lib, like, at, frequencies, dtype)
        if not isinstance(made, str):
            return made
        if fused:
            warn_fallback(made)
    if isinstance(frequencies, PreparedFrequencies) and (isinstance(at, range) or lib.state(at.numbers) is State.HOST):
        from rope_any._host_table import numpy_maker  # it imports NumPy

        return numpy_maker(lib, at, frequencies, dtype)
    return partial(_table_by_functions, lib, dtype)


def _table_by_functions(
    lib: Library, dtype: Any, frequencies: PreparedFrequencies | Array, factor: float, at: SplitPositions
) -> Table:
    """Return the table made by the functions of the library."""
    work = lib.float64 if dtype == lib.float64 else lib.xp.float32
    made = exact_table(lib, at, frequencies, work, wraps=lib.state(at.numbers) is not State.TRACED)
    return scale_and_cast(lib, made, factor, dtype)


def _fused_maker(
    lib: Library, like: Array, at: range | SplitPositions, frequencies: PreparedFrequencies | Array, dtype: Any
) -> TableMaker | str:
    """Return the way by Numba or the library's compiler, or a text that says why there is none."""
    if lib.compiler is None:
        return f"{lib.name} has no compiler"
    if lib.host is not None and lib.host.contains(like):
        if not isinstance(frequencies, PreparedFrequencies):
            return "learned frequencies are not compiled on a CPU"
        from rope_any._host_table import loop_maker, loop_of  # it imports NumPy

        if isinstance(at, range) or callable(loop_of(lib, frequencies)) or lib.compiler.compile is None:
            return loop_maker(lib, at, frequencies, dtype)
    if lib.compiler.compile is None or isinstance(at, range):
        return f"the compiler of {lib.name} makes no tables"
    learned = None if isinstance(frequencies, PreparedFrequencies) else frequencies
    return lib.compiler.refusal(at.numbers, at.rest, learned) or partial(_table_by_compiler, lib, dtype)


def _table_by_compiler(
    lib: Library, dtype: Any, frequencies: PreparedFrequencies | Array, factor: float, at: SplitPositions
) -> Table:
    """Return the table made by a function that the compiler of the library compiled."""
    if not isinstance(frequencies, PreparedFrequencies):
        return Table(*_compiled_table(lib, None, factor, dtype)(*at, frequencies))
    rows = frequencies.rows[0] if frequencies.axes is None else frequencies.rows
    # As arguments: numbers in a compiled function are copied to a GPU in each call.
    fields = ("high", "low") if lib.has_float64(at.numbers) else ()
    of_turns = [constants(lib, frequencies, field, at.numbers, dtype=lib.float64) for field in fields]
    return Table(*_compiled_table(lib, rows, factor, dtype)(*at, None, *of_turns))


@lru_cache(maxsize=64)
def _compiled_table(
    lib: Library, rows: Frequencies | None, factor: float, dtype: Any
) -> Callable[..., tuple[Array, Array]]:
    """Return the cached, compiled ``(numbers, rest, learned, high, low)`` → (cos, sin), of `rows` or of `learned`."""
    prepared = None if rows is None else prepare(rows)

    def make(
        numbers: Array, rest: Array | None, learned: Array | None, high: Any = None, low: Any = None
    ) -> tuple[Array, Array]:
        """Return cos and sin of ``SplitPositions(numbers, rest)``, by `learned`, or by `rows`, as `high` and `low`."""
        frequencies: Any = learned
        if prepared is not None:
            frequencies = prepared if high is None else replace(prepared, high=high, low=low)
        cos, sin = table(SplitPositions(numbers, rest), frequencies, attention_factor=factor, dtype=dtype)
        return cos, sin

    compiler: Any = lib.compiler
    return with_fallback(lib, compiler.compile(make), make)


def _as_dtensor(positions: Positions, frequencies: PreparedFrequencies | Array, /, *, like: Array) -> Array:
    """Return positions as a DTensor on `like`'s mesh, replicated if plain; raise if partial or split on summed axes."""
    at = _sharding.replicated(as_position_array(positions, like=like), like=like)
    rows = frequencies.axes is not None if isinstance(frequencies, PreparedFrequencies) else frequencies.ndim > 1
    _sharding.require_unsharded(
        "positions", at, axis=at.ndim - 1 if rows else at.ndim, axis_text="their last axis, which is summed over"
    )
    return at


def _table_dtype(lib: Library, wide: bool, dtype: Any, *, deciding: tuple[Array | None, ...]) -> Any:  # noqa: FBT001  # one private fact
    """Return `dtype`; for None float64 if an array in `deciding` is, else float32; raise for float64 if unsupported."""
    if dtype is None:
        found = any(a is not None and lib.dtype_name(a.dtype) == "float64" for a in deciding)
        dtype = "float64" if found else "float32"
    dtype = lib.floating_dtype(dtype)
    if not (wide and lib.has_float64_cosine) and lib.dtype_name(dtype) == "float64":
        wanted = f"not be float64 on {lib.name} here, which has no float64 cosine"
        raise ArgumentValueError("dtype", wanted, NOTHING, "give float32")
    return dtype
