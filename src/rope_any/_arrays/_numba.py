"""Numba's loop for arrays in the memory of a CPU, of whatever library: whether it can be had, and all its arguments."""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod

from rope_any._arrays._layout import MOST_PAIRS, BatchAxes, pack
from rope_any._arrays._library import FLOATING
from rope_any._arrays._memory import has_huge_pages
from rope_any._arrays._threads import SHARED_FROM, share

_STREAMED_FROM = 2**25  # bytes that are written: more than most caches hold, so that they need not go there


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


def launcher(  # noqa: PLR0917  # all that is known beforehand, decided in one place
    kind: tuple[str, str, bool],
    pairs: int,
    first: int,
    sizes: tuple[int, int],
    each: Sequence[BatchAxes],
    threads: Callable[[], int],
    given: tuple[int, int],
    writes: bool,  # noqa: FBT001  # likewise
) -> Callable[[int], object]:
    """
    Return a function that rotates the rows of one or two arrays, all that is known beforehand decided.

    It takes the address of an object that holds the arrays, and returns whether their numbers are aligned; if not,
    nothing is written: see `_rotation_loop.loop`. `kind` is the dtype of x, the pairing, and whether to rotate
    backwards; `first`, `sizes` and `given` are as in `_layout.pack`. `writes` is whether arrays that are there
    are written, not new ones.
    """
    from rope_any._arrays import _rotation_loop

    dtype, pairing, inverse = kind
    numbers = 2 * pairs * sum(prod(axes.shape) for axes in each)
    whole = 2 * pairs * sizes[0] % 32 == 0 and pairs <= MOST_PAIRS
    streams = numbers * sizes[0] >= _STREAMED_FROM and whole and (writes or has_huge_pages())
    layout, total = pack(each, pairs, first, sizes, given, streams=streams)
    zero: float = 0.0 if dtype in {"float32", "float64"} else 0
    loop = partial(_rotation_loop.loop(dtype, pairing), zero, -1.0 if inverse else 1.0, layout.buffer_info()[0])
    alone = partial(loop, 0, total)
    vars(alone)["layout"] = layout  # which lives as long as what is called with its address
    if numbers < SHARED_FROM:
        return alone

    def shared(arrays: int) -> object:
        workers = threads()
        if workers == 1:
            return alone(arrays)
        step = max(-(-total // (4 * workers)), 1)
        calls = [(begin, min(begin + step, total), arrays) for begin in range(0, total, step)]
        return share(loop, calls, workers, (layout, ctypes.cast(arrays, ctypes.py_object).value))

    return shared
