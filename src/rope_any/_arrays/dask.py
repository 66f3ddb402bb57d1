"""Dask: lazy arrays of chunks; each chunk is rotated where it is, by its own array library."""

from collections.abc import Callable
from typing import Any

import array_api_compat.dask.array as xp
import dask.array as da

from rope_any._arrays._library import Array, Library, State, immutable


def _map_chunks(function: Callable[..., Array], x: Array, *tables: Array, out: Array | None = None) -> Array:
    """Return ``function(x, *tables)`` by chunks that are whole along features, in the chunks of x; tables broadcast."""
    del out  # `plan_outs` refuses one, because chunks cannot be written
    feature, pair = x.ndim - 1, x.ndim  # blockwise's names of axes; the tables' last is `pair`
    axes = tuple(range(x.ndim))
    arguments: list[Any] = [x.rechunk({feature: -1}), axes]
    for table in tables:
        whole = {axis: -1 for axis, n in enumerate(table.shape) if n == 1 or axis == table.ndim - 1}  # 1 may be 1 + 0
        arguments += [table.rechunk(whole), (*axes[x.ndim - table.ndim : feature], pair)]
    rotated = da.blockwise(function, axes, *arguments, dtype=x.dtype, meta=x._meta, concatenate=True)  # noqa: SLF001
    return rotated.rechunk(x.chunks)


LIBRARY = Library(
    name="dask",
    types=("dask.Array",),
    xp=xp,
    has_float64=lambda _: True,
    state=lambda *_: State.PARTITIONED,  # lazy, but not traced: an array is the same part of any graph
    why_read_only=immutable,
    map_partitions=_map_chunks,
    get=lambda x: x.compute(),
)
