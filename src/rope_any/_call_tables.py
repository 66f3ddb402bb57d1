"""How a call of a Rope gets its table, or one for queries and one for keys: given, or made from positions."""

from collections.abc import Callable
from typing import Any, TypeAlias

from rope_any._align import (
    Tokens,
    align_head_table,
    expand_and_shard_positions,
    expand_positions,
    query_tail,
    tokens_of,
)
from rope_any._arrays import Array, Library, State, _sharding, is_array
from rope_any._frequencies import PreparedFrequencies
from rope_any._positions import SplitPositions, as_position_array, is_consecutive
from rope_any._rotation import Table, is_table_pair
from rope_any._table import has_fast_ranges, table, table_maker

Tables: TypeAlias = Table | tuple[Table, Table]
"""The table of a call, or that of the queries and that of the keys."""

Call: TypeAlias = tuple[tuple[str, ...], int, bool, bool, bool]
"""The checked options of a call: names of the arrays, `seq_axis`, `fused`, `inverse`, whether all is in float64."""

TableSource: TypeAlias = Callable[[PreparedFrequencies, float, tuple[Array, ...], Any], Tables]
"""``(frequencies, attention factor, xs, given)``, the last from `given_positions` → the tables of a call."""


def table_source(
    call: Call,
    tokens: list[Tokens],
    given: Any,
    frequencies: PreparedFrequencies,
    factor: float,
    *,
    fewer_queries: bool,
) -> TableSource:
    """
    Return how calls like this one get their tables: decided once, when the plan is made.

    The result holds no array and no frequencies, which are its arguments.

    Fewer queries than keys get the last rows; for `inverse` the table is divided by the square of the attention factor;
    if each head has frequencies, it gets the heads and axes of the arrays.
    """
    (names, axis, _, inverse, _), lib = call, tokens[-1].lib
    source = _unfitted_source(call, tokens, given, frequencies)
    heads, scales = frequencies.heads, inverse and factor != 1
    if not fewer_queries and not scales and heads is None:
        return source

    def fitted(frequencies: PreparedFrequencies, factor: float, xs: tuple[Array, ...], given: Any) -> Tables:
        """Return the tables of `source`, fitted to the call."""
        tables = source(frequencies, factor, xs, given)
        if fewer_queries:
            (q_table, k_table), queries, keys = as_pair(tables), *(x.shape[axis] for x in xs)
            tables = Table(*(query_tail(part, queries, keys, axis=-2) for part in q_table)), k_table
        if scales:
            # (A R)⁻¹ = Rᵀ / A, and the table holds A R; `apply` has one array and one table
            tables = Table(*(part / factor**2 for part in as_pair(tables)[0]))
        if heads is not None:
            arrays = [tokens_of(lib, name, x, axis) for name, x in zip(names, xs, strict=True)]
            made = [align_head_table(one, part, heads) for one, part in zip(arrays, as_pair(tables), strict=False)]
            tables = made[0] if made[0] is made[-1] else (made[0], made[1])
        return tables

    return fitted


def _unfitted_source(call: Call, tokens: list[Tokens], given: Any, frequencies: PreparedFrequencies) -> TableSource:
    """Return how calls like this one get the table of the keys, or of the only array; or a pair of tables."""
    names, axis, fused, *_ = call
    lib, like = tokens[-1].lib, _like_of_table(tuple([each.x for each in tokens]), tokens[-1].lib)
    quiet = None if fused else False  # it is the rotation that was asked for, and that warns
    if isinstance(given, Table):
        return lambda _, __, ___, table: table
    if is_table_pair(given):
        return lambda _, __, ___, tables: tables[0] if tables[0] is tables[1] else tables

    def make_tables(frequencies: PreparedFrequencies, factor: float, xs: tuple[Array, ...], given: Any) -> Tables:
        """Return the table that is made for the last array; a pair if q and k are sharded in different ways."""
        tokens, axes = [tokens_of(lib, name, x, axis) for name, x in zip(names, xs, strict=True)], frequencies.axes
        options: dict[str, Any] = {
            "attention_factor": factor,
            "like": _like_of_table(xs, lib),
            "lib": lib,
            "fused": quiet,
        }

        def table_for(tokens: Tokens, given: Any) -> Table:
            """Return the table of the tokens of one array at their positions."""
            return table(expand_and_shard_positions(tokens, given, axes), frequencies, **options)

        first, last = tokens[0], tokens[-1]
        if _sharding.is_sharded(first.x) and (
            first.count != last.count or _sharding.placements(first.x) != _sharding.placements(last.x)
        ):  # a process has other tokens of q than of k
            at = as_position_array(expand_positions(last, given, axes), like=last.x, lib=lib)
            at = query_tail(at, first.count, last.count, axis=-1 if axes is None else -2)
            return table_for(first, at), table_for(last, given)
        return table_for(last, given)

    return _host_source(lib, like, given, frequencies, axis=axis, fused=quiet, general=make_tables)


def _host_source(
    lib: Library,
    like: Array,
    given: Any,
    frequencies: PreparedFrequencies,
    /,
    *,
    axis: int,
    fused: bool | None,
    general: TableSource,
) -> TableSource:
    """Return a fast way for starts and ranges, and for arrays of positions in CPU memory; else the general one."""
    dtype, on_host = lib.compute_dtype(like), is_array(given) and lib.state(given) is State.HOST
    is_start = type(given) is int or (on_host and given.ndim == 0 and lib.is_integer(given))
    if (is_start or is_consecutive(given)) and has_fast_ranges(lib, like, frequencies, dtype):
        of_range = table_maker(lib, like, range(0), frequencies, dtype, fused=fused)
        if is_consecutive(given):
            return lambda rows, factor, _, run: of_range(rows, factor, run)
        if type(given) is int:
            return lambda rows, factor, xs, first: of_range(rows, factor, range(first, first + xs[-1].shape[axis]))
        host: Any = lib.host
        view = host.viewer(given)

        def from_array(rows: PreparedFrequencies, factor: float, xs: tuple[Array, ...], given: Array) -> Tables:
            """Return the table from a 0-d array on, which is read as an int unless it is beyond the limit of those."""
            first = int(view(given))
            run = range(first, first + xs[-1].shape[axis])
            return of_range(rows, factor, run) if abs(first) < 2**52 else general(rows, factor, xs, given)

        return from_array
    can_be_read = on_host and (lib.is_integer(given) or lib.dtype_name(given.dtype) in {"float32", "float64"})
    if not can_be_read or given.ndim == 0 or frequencies.heads is not None or _sharding.is_sharded(like):
        return general
    of_array = table_maker(lib, like, SplitPositions(given, None), frequencies, dtype, fused=fused)
    return lambda rows, factor, _, array: of_array(rows, factor, SplitPositions(array, None))


def as_pair(tables: Tables) -> tuple[Table, Table]:
    """Return (table of queries, table of keys); a single table is taken twice."""
    return (tables, tables) if isinstance(tables, Table) else tables


def _like_of_table(xs: tuple[Array, ...], lib: Library) -> Array:
    """Return the array that gives a new table its dtype and device: the first if it is float64, else the last."""
    return xs[0] if lib.compute_dtype(xs[0]) == lib.float64 else xs[-1]
