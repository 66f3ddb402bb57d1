"""Prepare calls of the rotation loop compiled by Numba, for CPU arrays of any library."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod

from rope_any._arrays._layout import MOST_PAIRS, BatchAxes, Slots, encode
from rope_any._arrays._library import FLOATING, Array, HostMemory
from rope_any._arrays._memory import has_huge_pages
from rope_any._arrays._threads import THREADED_FROM, run_in_threads

_PAST_CACHES_FROM = 2**25  # bytes written: more than most caches hold


def refusal(dtype: str) -> str | None:
    """Return why Numba cannot compile loops for a dtype, given by name; None if it can."""
    if trouble := _why_not_imported():
        return f"it needs Numba, {trouble}"
    from rope_any._arrays._intrinsics import has_half_precision

    known = FLOATING if has_half_precision() else FLOATING[1:]
    return None if dtype in known else f"Numba does not compile {dtype} on this machine"


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
    host: HostMemory,
    variant: tuple[str, str, tuple[str, str], bool],
    batches: Sequence[BatchAxes],
    *,
    pairs: int,
    item_sizes: tuple[int, int, int],
    has_out: bool,
    slots: Slots | None = None,
) -> Callable[[tuple[Array, ...]], object]:
    """
    Return a function that rotates one or two arrays by the compiled loop.

    Parameters
    ----------
    host : HostMemory
        The record of the memory of the arrays' library.
    variant : tuple
        The dtypes of x and of the result, the pairings of both, and whether to rotate backwards.
    batches, pairs, item_sizes
        As for `_layout.encode`.
    has_out : bool
        Whether results are written into arrays of the caller. Large new arrays bypass the caches only if the system
        has huge pages.
    slots : Slots, optional
        Where the rows of one array are written to. Its slots, of 64 bits, are in the place of k.

    Returns
    -------
    function
        It takes a tuple of q, k, their results, cos and sin, and returns whether all of them are aligned and no slot
        is past the end; if not, nothing is written.
    """
    from rope_any._arrays import _rotation_loop

    dtype, out_dtype, orders, inverse = variant
    count = 2 * pairs * sum(prod(axes.shape) for axes in batches)
    whole_vectors = 2 * pairs * item_sizes[1] % 32 == 0 and pairs <= MOST_PAIRS
    whole_vectors = whole_vectors and slots is None
    past_caches = count * item_sizes[1] >= _PAST_CACHES_FROM and whole_vectors and (has_out or has_huge_pages())
    offsets, pack_addresses = host.packed_offsets, host.pack_addresses
    layout, units = encode(
        batches, pairs, item_sizes=item_sizes, packed_offsets=offsets, past_caches=past_caches, slots=slots
    )
    zero, out_zero = (0.0 if name in {"float32", "float64"} else 0 for name in (dtype, out_dtype))
    direction, address = -1.0 if inverse else 1.0, layout.buffer_info()[0]
    loop = _rotation_loop.rotation_loop((dtype, out_dtype), orders, to_slots=slots is not None)

    def run(arrays: tuple[Array, ...], begin: int = 0, end: int = units) -> object:
        """Rotate the units `begin` to ``end - 1``; return whether the arrays are aligned."""
        # Memory given by its address lives as long as this frame: each thread calls the loop through it.
        packed = pack_addresses(arrays)
        return loop(zero, out_zero, direction, address, begin, end, id(packed))

    vars(run)["layout"] = layout  # keeps the layout alive
    if count < THREADED_FROM:
        return run

    def run_threaded(arrays: tuple[Array, ...]) -> object:
        """Rotate all units in up to ``host.threads()`` threads; return whether the arrays are aligned."""
        return run_in_threads(partial(run, arrays), units, host.threads())

    return run_threaded
