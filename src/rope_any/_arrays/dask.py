"""Dask: lazy arrays made of chunks, each rotated where it is by the library that it is of."""

from collections.abc import Callable
from typing import Any

import array_api_compat.dask.array as xp
import dask.array as da
import numpy as np

from rope_any._arrays._library import Array, Library


def _map_chunks(function: Callable[..., Array], x: Array, *tables: Array, out: Array | None = None) -> Array:
    """Return ``function(x, *tables)`` chunk by chunk, for tables that broadcast against all axes of x but its last."""
    del out  # which is refused before: chunks cannot be written
    feature, pair = x.ndim - 1, x.ndim  # names of axes: those of x by number, and one that the tables end in
    axes = tuple(range(x.ndim))
    arguments: list[Any] = [x.rechunk({feature: -1}), axes]
    for table in tables:
        whole = {axis: -1 for axis, n in enumerate(table.shape) if n == 1 or axis == table.ndim - 1}  # 1 may be 1 + 0
        arguments += [table.rechunk(whole), (*axes[x.ndim - table.ndim : feature], pair)]
    rotated = da.blockwise(  # type: ignore[no-untyped-call]  # Dask is typed in part
        function,
        axes,
        *arguments,
        dtype=x.dtype,
        meta=x._meta,  # noqa: SLF001
        concatenate=True,
    )
    return rotated.rechunk(x.chunks)


LIBRARY = Library(
    name="dask",
    types=("dask.Array",),
    xp=xp,
    has_float64=lambda _: True,
    is_parted=lambda _: True,
    map_parts=_map_chunks,
    module=da,
    get=lambda x: x.compute(),
    copy=lambda x: x.map_blocks(np.copy),
    wait=lambda x: x.compute(),
)
