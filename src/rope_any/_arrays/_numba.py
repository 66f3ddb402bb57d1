"""Numba's loop for arrays in the memory of a CPU, of whatever library: whether it can be had, and all its arguments."""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from typing import Any

from rope_any._arrays._layout import MOST_PAIRS, BatchAxes, encode
from rope_any._arrays._library import FLOATING
from rope_any._arrays._memory import has_huge_pages
from rope_any._arrays._threads import SHARED_FROM, run_shared

_PAST_CACHES_FROM = 2**25  # bytes that are written: more than most caches hold


def refusal(*dtypes: str) -> str | None:
    """Return why Numba cannot compile for numbers of these dtypes, by name, or None."""
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
        import numba  # noqa: F401  # does it come up?
    except ModuleNotFoundError:
        return "which is not installed (the extra numba brings it)"
    except ImportError as error:
        return f"which cannot be imported: {error}"
    return None


def launcher(
    variant: tuple[str, str, bool],
    pairs: int,
    each: Sequence[BatchAxes],
    *,
    item_sizes: tuple[int, int],
    threads: Callable[[], int],
    has_out: bool,
    **options: Any,
) -> Callable[[int], object]:
    """
    Return a function that rotates one or two arrays; all but their addresses is decided now.

    Parameters
    ----------
    variant : tuple
        The dtype of x, the pairing, and whether to rotate backwards.
    pairs, each, item_sizes, options
        As for `_layout.encode`.
    threads : function
        Returns how many threads a large call may use.
    has_out : bool
        Whether results go into arrays of the caller, not into new ones.

    Returns
    -------
    function
        It takes the address of a bundle of arrays, and returns whether they are aligned; if not, nothing is written.
    """
    from rope_any._arrays import _rotation_loop

    dtype, pairing, inverse = variant
    count = 2 * pairs * sum(prod(axes.shape) for axes in each)
    whole = 2 * pairs * item_sizes[0] % 32 == 0 and pairs <= MOST_PAIRS
    past_caches = count * item_sizes[0] >= _PAST_CACHES_FROM and whole and (has_out or has_huge_pages())
    layout, units = encode(each, pairs, item_sizes=item_sizes, past_caches=past_caches, **options)
    zero: float = 0.0 if dtype in {"float32", "float64"} else 0
    direction, address = -1.0 if inverse else 1.0, layout.buffer_info()[0]
    loop = partial(_rotation_loop.rotation_loop(dtype, pairing), zero, direction, address)
    alone = partial(loop, 0, units)
    vars(alone)["layout"] = layout  # whose address is used as long as `alone` lives
    if count < SHARED_FROM:
        return alone

    def shared(bundle: int) -> object:
        workers = threads()
        if workers == 1:
            return alone(bundle)
        chunk = max(-(-units // (4 * workers)), 1)
        calls = [(begin, min(begin + chunk, units), bundle) for begin in range(0, units, chunk)]
        return run_shared(loop, calls, workers, (layout, ctypes.cast(bundle, ctypes.py_object).value))

    return shared
