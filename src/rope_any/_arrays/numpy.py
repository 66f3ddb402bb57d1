"""NumPy: the memory of a CPU, functions that take ``out=``, and Numba as the compiler."""

import array_api_compat.numpy as xp
import numpy as np

from rope_any._arrays import _numba
from rope_any._arrays._library import Array, Compiler, HostMemory, Library


def _refusal(x: Array) -> str | None:
    if isinstance(x, np.ma.MaskedArray):
        return f"a plain array; got {type(x).__name__}, whose mask would be lost"
    if isinstance(x, np.matrix):
        return "an array (NumPy, CuPy, PyTorch, JAX, ...); got matrix, whose axes are always two"
    return None


def _span(x: Array) -> tuple[int, int] | None:
    if type(x) is not np.ndarray or not x.flags.c_contiguous:
        return None
    start = x.__array_interface__["data"][0]
    return start, start + x.nbytes


def _as_complex(x: Array) -> Array | None:
    if x.dtype.char not in "fd" or x.shape[-1] == 0:
        return None
    if x.strides[-1] != x.itemsize or not x.dtype.isnative:
        return None
    return x.view("complex64" if x.itemsize == 4 else "complex128")


def _swap_halves(x: Array) -> Array:
    middle = x.shape[-1] // 2
    return np.concatenate((x[..., middle:], x[..., :middle]), axis=-1)


LIBRARY = Library(
    name="numpy",
    types=("numpy.ndarray",),
    xp=xp,
    refusal=_refusal,
    are_plain=lambda arrays: {*map(type, arrays)} == {np.ndarray},
    device_kwargs=lambda _: {},
    has_float64=lambda _: True,
    supports_out=lambda *_: True,
    concat=lambda parts: np.concatenate(parts, axis=-1),
    empty_like=lambda x: np.empty_like(x, subok=False),
    read_only=lambda x: not x.flags.writeable,
    span=_span,
    addresses=np.asarray,
    host=HostMemory(
        module=np,
        strides=lambda x: x.strides,
        tile_size=lambda: 2**15,
        as_complex=_as_complex,
        swap_halves=_swap_halves,
    ),
    compiler=Compiler(_numba.refusal, write_pairs=_numba.write_pairs),
    module=np,
    put=lambda data, _: data,
    get=lambda x: x,
)
