"""Prepare calls of the rotation loop compiled by Numba, for CPU arrays of any library."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from typing import Any

from rope_any._arrays._layout import MOST_PAIRS, BatchAxes, encode
from rope_any._arrays._library import FLOATING, Array
from rope_any._arrays._memory import has_huge_pages
from rope_any._arrays._threads import THREADED_FROM, run_in_threads

_PAST_CACHES_FROM = 2**25  # bytes written: more than most caches hold


def refusal(*dtypes: str) -> str | None:
    """Return why Numba cannot compile loops for these dtypes, given by name; None if it can."""
    if trouble := _why_not_imported():
        return f"it needs Numba, {trouble}"
    from rope_any._arrays._intrinsics import has_half_precision

    known = FLOATING if has_half_precision() else FLOATING[1:]
    other = next((dtype for dtype in dtypes if dtype not in known), None)
    return None if other is None else f"Numba does not compile {other} on this machine"


@cache
def _why_not_imported() -> str | None:
    """Return why Numba cannot be imported, or None."""
    try:
        import numba  # noqa: F401  # test whether it can be imported
    except ModuleNotFoundError:
        return 'which is not installed (the extra numba brings it: pip install "rope-any[numba]")'
    except ImportError as error:
        return f"which cannot be imported: {error}"
    return None


def launcher(
    variant: tuple[str, str, bool],
    pairs: int,
    batches: Sequence[BatchAxes],
    *,
    item_sizes: tuple[int, int],
    pack_addresses: Callable[[tuple[Array, ...]], Any],
    threads: Callable[[], int],
    has_out: bool,
    **options: Any,
) -> Callable[[tuple[Array, ...]], object]:
    """
    Return a function that rotates one or two arrays by the compiled loop.

    Parameters
    ----------
    variant : tuple
        The dtype of x, the pairing, and whether to rotate backwards.
    pairs, batches, item_sizes, options
        As for `_layout.encode`; `options` are `packed_offsets`.
    pack_addresses, threads : function
        As in `HostMemory`; the latter says how many threads a large call may use.
    has_out : bool
        Whether results are written into arrays of the caller. Large new arrays bypass the caches only if the system
        has huge pages.

    Returns
    -------
    function
        It takes a tuple of q, k, their results, cos and sin, and returns whether all of them are aligned; if not,
        nothing is written.
    """
    from rope_any._arrays import _rotation_loop

    dtype, pairing, inverse = variant
    count = 2 * pairs * sum(prod(axes.shape) for axes in batches)
    whole_vectors = 2 * pairs * item_sizes[0] % 32 == 0 and pairs <= MOST_PAIRS
    past_caches = count * item_sizes[0] >= _PAST_CACHES_FROM and whole_vectors and (has_out or has_huge_pages())
    layout, units = encode(batches, pairs, item_sizes=item_sizes, past_caches=past_caches, **options)
    zero: float = 0.0 if dtype in {"float32", "float64"} else 0
    direction, address = -1.0 if inverse else 1.0, layout.buffer_info()[0]
    loop = _rotation_loop.rotation_loop(dtype, pairing)

    def run(arrays: tuple[Array, ...], begin: int = 0, end: int = units) -> object:
        """Rotate the units `begin` to ``end - 1``; return whether the arrays are aligned."""
        # Memory given by its address lives as long as this frame: each thread calls the loop through it.
        packed = pack_addresses(arrays)
        return loop(zero, direction, address, begin, end, id(packed))

    vars(run)["layout"] = layout  # keeps the layout alive
    if count < THREADED_FROM:
        return run

    def run_threaded(arrays: tuple[Array, ...]) -> object:
        """Rotate all units in up to `threads()` threads; return whether the arrays are aligned."""
        return run_in_threads(partial(run, arrays), units, threads())

    return run_threaded
