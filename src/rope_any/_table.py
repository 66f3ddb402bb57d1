"""
The table: exact cosines and sines of positions x frequencies.

Rotary embeddings lose digits in the product position x frequency: a float32 angle of a million radians has an error of
up to 0.06. Here the host first divides the frequency by 2π, with 192 bits. For integer positions it is then a 64-bit
fraction of a turn (2π) per position: the product of two integers, which wraps, is the angle modulo one turn. For real
positions, float64 tables and under compilers it has two pieces: the product of a position with the first 22 bits is
exact in float64, and so is its distance to whole turns; the rest is small. With ``fused=True``, `_arrays._table_loop`
makes tables on a CPU; other devices compile the same functions.
"""

import math
import operator
from collections.abc import Callable, Iterable
from functools import lru_cache, partial, reduce
from typing import Any, cast

from rope_any._arrays import Array, HostMemory, Library, State, _sharding, is_array, library, refuse_foreign
from rope_any._arrays._compilers import warn_fallback, with_fallback
from rope_any._arrays._memory import tile_size
from rope_any._caches import cached, constants
from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, Text, flag
from rope_any._checks import attention_factor as checked_factor
from rope_any._frequencies import Frequencies, PreparedFrequencies, as_frequencies, prepare
from rope_any._positions import (
    Positions,
    SplitPositions,
    array_or_none,
    as_numbers,
    as_position_array,
    by_axis,
    read_positions,
    reference_array,
    require_fit,
    split_positions,
)
from rope_any._rotation import Table

_TURN = 2 * math.pi


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
    lib.initialise_trig(angles)
    work = xp.float64 if dtype == xp.float64 else xp.float32
    radians = lib.cast(angles, xp.float64 if angles.dtype == xp.float64 else work)
    return _scale_and_cast(lib, _table_of_radians(lib, radians, work), checked_factor(attention_factor), dtype)


def table(
    positions: Positions | SplitPositions,
    frequencies: PreparedFrequencies | Array,
    /,
    *,
    attention_factor: float = 1.0,
    dtype: Any = None,
    like: Array | None = None,
    lib: Library | None = None,
    fused: bool = False,
    on_fallback: Callable[[str], None] = warn_fallback,
) -> Table:
    """Return the table as `cos_sin` does, of prepared or learned frequencies; `on_fallback` gets why `fused` fails."""
    options: dict[str, Any] = {"dtype": dtype, "like": like, "lib": lib, "fused": fused, "on_fallback": on_fallback}
    made = _joined_table(positions, frequencies, attention_factor, **options)
    if not isinstance(frequencies, PreparedFrequencies) or frequencies.heads is None:
        return made
    if made.cos.ndim < 2:
        wanted = "be (..., seq, axes) if each head has frequencies"
        raise ArgumentValueError("positions", wanted, tuple(positions.shape) if is_array(positions) else positions)
    lib = lib or library(cos=made.cos)
    # (..., seq, heads · pairs) → (..., heads, seq, pairs)
    by_head = (lib.reshape_last_axes(part, 1, frequencies.heads, frequencies.pairs) for part in made)
    batch, seq, heads, pairs = range(made.cos.ndim - 2), *range(made.cos.ndim - 2, made.cos.ndim + 1)
    return Table(*(lib.xp.permute_dims(part, (*batch, heads, seq, pairs)) for part in by_head))


def _joined_table(
    positions: Positions | SplitPositions,
    frequencies: PreparedFrequencies | Array,
    attention_factor: float,
    /,
    *,
    dtype: Any,
    like: Array | None,
    lib: Library | None,
    fused: bool,
    on_fallback: Callable[[str], None],
) -> Table:
    """Return the table as `table` does, but prepared frequencies of heads give one last axis of pairs, head by head."""
    learned = None if isinstance(frequencies, PreparedFrequencies) else frequencies
    factor = checked_factor(attention_factor)
    given = array_or_none(positions)
    reference = reference_array(positions, given, like, learned)
    named = {"positions": given, "like": like, "frequencies": learned}
    lib = lib or library(**{name: array for name, array in named.items() if array is not None})
    wide = lib.has_float64(reference)
    dtype = _table_dtype(lib, wide, dtype, deciding=(like,) if like is not None else (given, learned))
    sharded = next((array for array in (given, like, learned) if array is not None and lib.is_sharded(array)), None)
    if sharded is not None:
        positions = _as_dtensor(positions, frequencies, like=sharded)
        if learned is None:
            options: dict[str, Any] = {"dtype": dtype, "like": None, "lib": None}
            of_shard = partial(_joined_table, fused=fused, on_fallback=on_fallback, **options)
            return Table(*_sharding.tables_by_shard(lambda own: of_shard(own, frequencies, factor), positions))
        learned = _sharding.replicated(learned, like=sharded)
    xp = lib.xp
    work = xp.float64 if dtype == xp.float64 else xp.float32
    made = _fast_table(lib, reference, positions, frequencies, (factor, dtype), fused=fused, on_fallback=on_fallback)
    if made is not None:
        return made
    lib.initialise_trig(reference)
    finished = partial(_scale_and_cast, lib, factor=factor, dtype=dtype)
    if learned is not None:
        numbers, rest = as_numbers(lib, reference, positions, wide=wide)
        return finished(_table_of_learned(lib, numbers, rest, learned, work))
    if not wide:
        numbers, rest = as_numbers(lib, reference, positions, wide=wide)
        return finished(_table_by_int32(lib, numbers, rest, frequencies))
    given = read_positions(lib, reference, positions, wide=wide)[0]
    if (state := lib.state(given)) is State.HOST:
        return table_of_array(lib, given, frequencies, factor, dtype)
    return finished(_exact_table(lib, given, frequencies, work, wraps=state is not State.TRACED))


def _exact_table(lib: Library, given: Array, frequencies: PreparedFrequencies, dtype: Any, *, wraps: bool) -> Table:
    """Return the table of an array of positions, in `dtype`, by float64 or, if that suffices, by integers that wrap."""
    xp = lib.xp
    # 64 bits of a turn are enough for float32. Under a compiler, integers must not overflow.
    if wraps and dtype == xp.float32 and lib.is_integer(given):
        numbers = lib.cast(given, xp.int64)
        fixed_point = constants(lib, frequencies, "fixed_point", numbers, dtype=xp.int64)
        return _table_by_int64(lib, numbers, fixed_point=fixed_point, axes=frequencies.axes)
    numbers = lib.cast(given, xp.float64)
    pieces = [constants(lib, frequencies, field, numbers, dtype=xp.float64) for field in ("high", "low")]
    return _table_by_float64(lib, numbers, pieces=pieces, axes=frequencies.axes, dtype=dtype)


def table_of_array(lib: Library, given: Array, frequencies: PreparedFrequencies, factor: float, dtype: Any) -> Table:
    """Return the table of an array of positions in the memory of a CPU, in `dtype`; no tracer is active."""
    work = lib.xp.float64 if dtype == lib.xp.float64 else lib.xp.float32

    def make(some: Array) -> Table:
        """Return the table of some of the positions."""
        return _scale_and_cast(lib, _exact_table(lib, some, frequencies, work, wraps=True), factor, dtype)

    pairs, axes = len(frequencies.rows[0]), () if frequencies.axes is None else (frequencies.axes,)
    rows = max(tile_size() // (2 * pairs), 1)
    if math.prod(given.shape) <= rows:
        return make(given)
    # in tiles, so that intermediate results stay in the cache
    shape = by_axis(given, frequencies.axes)[0].shape
    flat, place = lib.xp.reshape(given, (-1, *axes)), lib.device_kwargs(given)
    cos, sin = (lib.xp.empty((flat.shape[0], pairs), dtype=dtype, **place) for _ in range(2))
    for first in range(0, flat.shape[0], rows):
        cos[first : first + rows], sin[first : first + rows] = make(flat[first : first + rows])
    return Table(*(lib.xp.reshape(part, (*shape, pairs)) for part in (cos, sin)))


def _scale_and_cast(lib: Library, unscaled: Table, factor: float, dtype: Any) -> Table:
    """Return the table `unscaled`, multiplied by the attention factor `factor` and cast to `dtype`."""
    cos, sin = unscaled if factor == 1 else (part * factor for part in unscaled)
    return Table(lib.cast(cos, dtype), lib.cast(sin, dtype))


def _fast_table(
    lib: Library,
    like: Array,
    positions: Positions | SplitPositions,
    frequencies: PreparedFrequencies | Array,
    factor_and_dtype: tuple[float, Any],
    *,
    fused: bool,
    on_fallback: Callable[[str], None],
) -> Table | None:
    """Return the table by `consecutive_table`, or if `fused` a compiler, or None; `on_fallback` gets why not fused."""
    factor, dtype = factor_and_dtype
    if dtype == lib.xp.float32 and can_add_angles(lib, like, positions, frequencies):
        at: Any = positions
        if fused and isinstance(reason := _table_maker_of(lib, frequencies), str):
            on_fallback(reason)
        count = max(at.stop - at.start, 0)  # `len` fails beyond 63 bits
        return consecutive_table(lib, at.start, count, frequencies, factor, fused=fused)
    if not fused or lib.state() is State.TRACED:
        return None
    made = _fused_table(lib, like, positions, frequencies, factor_and_dtype)
    if isinstance(made, Table):
        return made
    on_fallback(made)
    return None


def can_add_angles(lib: Library, like: Array, positions: object, frequencies: PreparedFrequencies | Array) -> bool:
    """Whether `consecutive_table` can make the table: a range of step 1, one prepared row, CPU memory, no tracer."""
    return (
        isinstance(positions, range)
        and positions.step == 1
        and isinstance(frequencies, PreparedFrequencies)
        and frequencies.axes is None
        and lib.host is not None
        and lib.state().is_free
        and lib.host.contains(like)
    )


def consecutive_table(
    lib: Library, first: int, count: int, frequencies: PreparedFrequencies, factor: float, *, fused: bool = False
) -> Table:
    """Return the float32 CPU table of `count` positions from `first`, times `factor`; raise over 2⁵³ in magnitude."""
    host: Any = lib.host
    if not -(2**53) <= first <= 2**53 - count:
        require_fit(first, first + max(count - 1, 0), wide=True)
    table_maker = _table_maker_of(lib, frequencies) if fused else ""
    if callable(table_maker):
        cos, sin = table_maker((count,), factor, 0, 0, first, 1)
        return Table(host.wrap(cos), host.wrap(sin))
    angles = cached(frequencies, "angles", partial(_precompute_angles, frequencies))
    cos, sin = angles.cos_sin(first, count, host.threads)
    made = Table(host.wrap(cos), host.wrap(sin))
    return made if factor == 1 else Table(made.cos * factor, made.sin * factor)


def is_consecutive_table(made: Table, positions: object, frequencies: PreparedFrequencies, *, fused: bool) -> bool:
    """Whether `consecutive_table` made `made` and can make the next ones; False if `fused` had to fall back."""
    lib = library(cos=made.cos)
    adds = made.cos.dtype == lib.xp.float32 and can_add_angles(lib, made.cos, positions, frequencies)
    return adds and not (fused and isinstance(_table_maker_of(lib, frequencies), str))


def _precompute_angles(frequencies: PreparedFrequencies) -> Any:
    """Return the `_angles.Angles` of one row of frequencies, from which `consecutive_table` makes tables."""
    from rope_any._arrays import _angles

    return _angles.precompute(frequencies.fixed_point[0])


def _fused_table(
    lib: Library,
    like: Array,
    positions: Positions | SplitPositions,
    frequencies: PreparedFrequencies | Array,
    factor_and_dtype: tuple[float, Any],
) -> Table | str:
    """Return the table made by Numba or the library's compiler, or a text that says why it can't be made so."""
    if lib.compiler is None:
        return f"{lib.name} has no compiler"
    learned = None if isinstance(frequencies, PreparedFrequencies) else frequencies
    reason = f"the compiler of {lib.name} makes no tables"
    if lib.host is not None and lib.host.contains(like):
        if learned is not None:
            return "learned frequencies are not compiled on a CPU"
        table_maker = _table_maker_of(lib, frequencies)
        if not isinstance(table_maker, str):
            return _table_by_loop(lib, like, positions, frequencies, factor_and_dtype, table_maker)
        reason = table_maker
    if lib.compiler.compile is None:
        return reason
    split = split_positions(lib, positions, like=like, name="positions")
    if (why_not := lib.compiler.refusal(split.numbers, split.rest, learned)) is not None:
        return why_not
    rows = None if learned is not None else frequencies.rows[0] if frequencies.axes is None else frequencies.rows
    return Table(*_compiled_table(lib, rows, *factor_and_dtype)(*split, learned))


@lru_cache(maxsize=64)
def _compiled_table(
    lib: Library, rows: Frequencies | None, factor: float, dtype: Any
) -> Callable[..., tuple[Array, Array]]:
    """Return the cached, compiled ``(numbers, rest, learned)`` → (cos, sin), of `rows`, or if None of `learned`."""
    prepared = None if rows is None else prepare(rows)

    def make(numbers: Array, rest: Array | None, learned: Array | None) -> tuple[Array, Array]:
        """Return cos and sin of ``SplitPositions(numbers, rest)``; `learned` are the frequencies if `rows` is None."""
        frequencies = learned if prepared is None else prepared
        cos, sin = table(SplitPositions(numbers, rest), frequencies, attention_factor=factor, dtype=dtype)
        return cos, sin

    compiler: Any = lib.compiler
    return with_fallback(lib, compiler.compile(make), make)


def _table_maker_of(lib: Library, frequencies: PreparedFrequencies) -> Callable[..., Any] | str:
    """Return `_make_table_maker`'s function, or text on why there is none, cached as long as these frequencies live."""
    return cached(frequencies, ("loop", lib.name), partial(_make_table_maker, lib, frequencies))


def _make_table_maker(lib: Library, frequencies: PreparedFrequencies) -> Callable[..., Any] | str:
    """Return a new `_table_loop.table_maker` of these frequencies, or a text that says why Numba can't compile it."""
    host: Any = lib.host
    if (reason := host.why_no_loop(lib.xp.empty((), dtype=lib.xp.float32))) is not None:
        return reason  # type: ignore[no-any-return]  # a sentence
    try:
        from rope_any._arrays import _table_loop

        packed = _table_loop.pack_frequencies(frequencies.fixed_point, frequencies.high, frequencies.low)
        return _table_loop.table_maker(packed, host.threads)
    except Exception as error:  # noqa: BLE001  # compilers raise their own types
        return f"Numba failed ({type(error).__name__})"


_NOT_TRACEABLE = "transforms, tracers and gradients cannot follow Numba's loop, nor does it see torch's negative bit"


def _table_by_loop(  # noqa: PLR0917  # its one caller has all of them
    lib: Library,
    like: Array,
    positions: Positions | SplitPositions,
    frequencies: PreparedFrequencies,
    factor_and_dtype: tuple[float, Any],
    table_maker: Callable[..., Any],
) -> Table | str:
    """Return the table on a CPU, made by `table_maker` (Numba's float32 loop), or a text that says why it can't be."""
    xp, axes, (factor, dtype), host = lib.xp, frequencies.axes, factor_and_dtype, cast("HostMemory", lib.host)
    if dtype == xp.float64:
        return "Numba's loop is not exact enough for float64 tables"
    if not lib.state().is_free:
        return _NOT_TRACEABLE
    address, first, step, real, given = 0, 0, 0, 0, None
    if type(positions) is range and axes is None:
        require_fit(*positions[:1], *positions[-1:], wide=True)
        shape = (len(positions),)
        first, step = (positions[0], positions.step) if len(positions) > 1 else (sum(positions), 1)  # of one or none
    else:
        given = read_positions(lib, like, positions, wide=True)[0]
        if lib.state(given) is not State.HOST:
            return _NOT_TRACEABLE
        shape, real = tuple(by_axis(given, axes)[0].shape), int(not lib.is_integer(given))
        given = host.contiguous(given, xp.float64 if real else xp.int64)
        address = 0 if 0 in shape else (lib.span(given) or [1])[0]
        if address % 8:
            return "Numba's loop needs aligned positions"
    cos, sin = map(host.wrap, table_maker(shape, factor, address, real, first, step, given=given))
    return Table(lib.cast(cos, dtype), lib.cast(sin, dtype))


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


# --- products ---------------------------------------------------------------------------------------------


def _table_by_int64(
    lib: Library,
    p: Array,
    *,
    fixed_point: list[Array],
    axes: int | None,
) -> Table:
    """
    Return the float32 table of int64 positions.

    `fixed_point` has for each axis the frequencies in units of 2⁻⁶⁴ turns.
    """
    xp, columns = lib.xp, _columns(p, axes)
    # turns times 2⁶⁴; overflow drops whole turns
    phase = _sum(n * row for n, row in zip(columns, fixed_point, strict=True))
    return _table_of_angle(lib, lib.astype(phase, xp.float64) * (_TURN / 2**64), xp.float32)


def _table_by_float64(
    lib: Library, positions: Array, /, *, pieces: list[list[Array]], axes: int | None, dtype: Any
) -> Table:
    """
    Return the table of float64 positions, in `dtype`.

    `pieces` has (high, low) for each axis, whose sum is the frequency in turns.
    """
    terms = []
    for p, high, low in zip(_columns(positions, axes), *pieces, strict=True):
        # p · f / 2π = p·high + p·low, the first free of rounding errors, and so is near − round
        near = p * high
        terms.append(near - lib.xp.round(near) + p * low)
    return _table_of_turns(lib, _sum(terms), dtype)


def _table_by_int32(
    lib: Library, numbers: Array, position_rest: Array | None, frequencies: PreparedFrequencies
) -> Table:
    """Return the float32 table of ``numbers + position_rest`` (int32, float32 or None), computed without float64."""
    xp = lib.xp
    dtype = xp.float32
    words = iter(constants(lib, frequencies, "words", numbers, dtype=xp.int32))
    phase = _sum(
        _high_product(n, *word)
        for n, *word in zip(_columns(numbers, frequencies.axes), words, words, words, strict=True)
    )
    # phase = 2²⁰ step + rest, rest in [−2¹⁹, 2¹⁹). The step has 12 bits, and so has `short`,
    # the unit of its angle without its last digits: their float32 product is exact.
    # The remaining angle is small.
    step = (phase + 2**19) >> 20
    rest = lib.astype(phase - (step << 20), dtype)
    step = lib.astype(step, dtype)
    unit = _TURN / 2**12
    short = math.ldexp(round(math.ldexp(unit, 22)), -22)
    small = step * (unit - short) + rest * (_TURN / 2**32)
    c, s = xp.cos(step * short), xp.sin(step * short)
    # sin(small) = small and cos(small) = 1 − small²/2 to the last digit, as |small| < 1.1e-3
    near = _add_angle(c, s, small, small * small * 0.5)
    if position_rest is None:
        return near
    rows = constants(lib, frequencies, "rows", position_rest, dtype=position_rest.dtype)
    angle = _weighted(position_rest, rows, frequencies.axes)
    return _add_angle(*near, xp.sin(angle), 1 - xp.cos(angle))


def _table_of_learned(lib: Library, numbers: Array, rest: Array | None, frequencies: Array, dtype: Any) -> Table:
    """Return a table of learned ``([[heads,] axes,] pairs)`` at ``numbers + rest``, with gradients; raise if unfit."""
    xp = lib.xp
    if lib.is_integer(frequencies):
        hint = "cos_sin takes the positions before the frequencies"
        raise ArgumentTypeError("frequencies", "be floating-point", Text("integers"), hint)
    lib.require_floating("frequencies", frequencies)
    if frequencies.ndim not in (1, 2, 3) or 0 in frequencies.shape:
        wanted = "have shape (pairs,), (axes, pairs) or (heads, axes, pairs)"
        raise ArgumentValueError("frequencies", wanted, tuple(frequencies.shape))
    real = xp.float64 if lib.has_float64(frequencies) else xp.float32
    position = lib.cast(numbers, real) if rest is None else lib.cast(numbers, real) + rest
    frequencies = lib.cast(frequencies, real)
    axes = None if frequencies.ndim == 1 else frequencies.shape[-2]
    rows = [frequencies] if axes is None else [frequencies[..., axis, :] for axis in range(axes)]
    if frequencies.ndim == 3:
        if position.ndim < 2:
            wanted = "be (..., seq, axes) if each head has frequencies"
            raise ArgumentValueError("positions", wanted, tuple(position.shape))
        position = xp.expand_dims(position, axis=-3)  # (..., 1, seq, axes)
        rows = [xp.expand_dims(row, axis=-2) for row in rows]  # (heads, 1, pairs)
    rank = position.ndim + (axes is None)
    angle = _weighted(position, [lib.broadcast_to_rank(row, rank) for row in rows], axes)
    return _table_of_radians(lib, angle, dtype)


def _weighted(positions: Array, rows: list[Array], axes: int | None) -> Array:
    """Return the angles Σ_axis position[token, axis] · W[axis, pair]; `rows` are the rows of W."""
    return _sum(p * row for p, row in zip(_columns(positions, axes), rows, strict=True))


def _columns(positions: Array, axes: int | None) -> list[Array]:
    """Split positions ``(..., axes)``, for None ``(...)``, into ``(..., 1)`` by axis; raise for another last axis."""
    return [column[..., None] for column in by_axis(positions, axes)]


def _sum(terms: Iterable[Array]) -> Array:
    """Return the sum of one or more arrays, without the 0 that `sum` begins with."""
    return reduce(operator.add, terms)


def _table_of_radians(lib: Library, angle: Array, dtype: Any) -> Table:
    """Return cosine and sine of angles of any size in radians: float32 of float32 angles, `dtype` of float64 ones."""
    if angle.dtype == lib.xp.float32:  # unchanged: another product would cost digits
        return Table(lib.xp.cos(angle), lib.xp.sin(angle))
    return _table_of_turns(lib, angle * (1 / _TURN), dtype)


def _table_of_turns(lib: Library, turns: Array, dtype: Any) -> Table:
    """Return cosine and sine, in `dtype` (float32 or float64), of float64 angles, of any size, in turns of 2π."""
    return _table_of_angle(lib, (turns - lib.xp.round(turns)) * _TURN, dtype)


def _table_of_angle(lib: Library, angle: Array, dtype: Any) -> Table:
    """Return cosine and sine, in float32 or float64 by `dtype`, of float64 angles from −π to π."""
    xp = lib.xp
    if angle.dtype == dtype or lib.has_fast_float64_cosine(angle):
        return Table(lib.cast(xp.cos(angle), dtype), lib.cast(xp.sin(angle), dtype))
    # Rotate by the nearest float32 angle and then by the rest, below 2e-7: to the last digit, the
    # cosine of that is 1 and its sine is itself.
    near = lib.astype(angle, dtype)
    rest = lib.astype(angle - lib.astype(near, xp.float64), dtype)
    return _add_angle(xp.cos(near), xp.sin(near), rest)


def _add_angle(c: Array, s: Array, sine: Array, one_minus_cosine: Array | None = None) -> Table:
    """Return (c, s) rotated by an angle of this sine and this 1 − cosine (None for 0)."""
    # cos(a + r) = cos a cos r − sin a sin r,  sin(a + r) = sin a cos r + cos a sin r
    if one_minus_cosine is None:
        return Table(c - s * sine, s + c * sine)
    return Table(c - (s * sine + c * one_minus_cosine), s + (c * sine - s * one_minus_cosine))


def _high_product(n: Array, high: Array, middle: Array, low: Array) -> Array:
    """
    Return bits 32 to 63 of n · (2³² high + 2¹⁶ middle + low), in int32.

    `middle` and `low` are from 0 to 2¹⁶ − 1.
    """
    # word = 2³² high + 2¹⁶ middle + low  and  n = 2¹⁶ top + bottom;  high and top have a sign
    low16 = 0xFFFF
    top, bottom = n >> 16, n & low16
    # products of two 16-bit pieces fill 32 bits; their halves are read as bit patterns
    outer, inner = bottom * middle, top * low
    carry = ((bottom * low >> 16 & low16) + (outer & low16) + (inner & low16)) >> 16
    return n * high + top * middle + (outer >> 16 & low16) + (inner >> 16) + carry
