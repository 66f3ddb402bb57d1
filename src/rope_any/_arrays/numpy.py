"""NumPy: arrays in CPU memory, functions with ``out=``, and Numba as the compiler."""

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any

import array_api_compat.numpy as xp
import numpy as np

from rope_any._arrays import _memory, _numba, _threads
from rope_any._arrays._library import Array, Compiler, HostMemory, Library, Refusal, State, refuse_unit, type_name


def _refusal(x: Array) -> Refusal | None:
    """Return why a NumPy array is refused: masked arrays, matrices and those with a unit are; None for others."""
    if hasattr(x, "mask"):  # of NumPy or astropy
        return Refusal("a plain array", f"{type_name(x)}, whose mask would be lost", "give its filled(0)")
    if isinstance(x, np.matrix):
        return Refusal("an array of any axes", f"{type_name(x)}, whose axes are always two", "give np.asarray() of it")
    return refuse_unit(x)


def _add_facts(arrays: tuple[Array | None, ...], facts: list[Any]) -> bool:
    """Append dtypes, shapes and strides of NumPy arrays (or Nones); return False for arrays of another class."""
    for x in arrays:
        if type(x) is np.ndarray:
            facts += (x.dtype, x.shape, x.strides)
        elif x is None:
            facts.append(None)
        else:
            return False
    return True


# In CPython a tuple's items follow its header, and an array's data pointer follows its object header. Reading it there
# takes a tenth of the time of `ctypes.data`.
_OFFSETS, _pointer = (tuple.__basicsize__, object.__basicsize__), ctypes.c_void_p.from_address
_HAS_KNOWN_OFFSETS = (
    sys.implementation.name == "cpython"
    and _pointer(id(one := (np.zeros(1),)) + _OFFSETS[0]).value == id(one[0])
    and _pointer(id(one[0]) + _OFFSETS[1]).value == one[0].ctypes.data
)


def address(x: Array) -> int:
    """Return the address of a NumPy array's first element."""
    return _pointer(id(x) + _OFFSETS[1]).value or 0 if _HAS_KNOWN_OFFSETS else int(x.ctypes.data)


def _pack_addresses(arrays: tuple[Array, ...]) -> Any:
    """Pack the data addresses of six NumPy arrays into bytes; for Pythons whose arrays have no known offset of it."""
    return _memory.pack_addresses(*(x.ctypes.data for x in arrays))


def _viewer(x: Array, shape: tuple[int, ...] | None = None) -> Callable[[Array], Any]:
    """Return a function of arrays like x → themselves, of NumPy's own class; of another shape if that is given."""
    if shape is None:
        return np.asarray
    return methodcaller("reshape", shape) if type(x) is np.ndarray else lambda x: np.asarray(x).reshape(shape)


def _allocator(x: Array) -> Callable[[Array], Array]:
    """Return a fast ``empty_like`` for arrays that have the shape and memory layout of x; their dtype may differ."""
    shape, empty = x.shape, np.empty
    if not x.flags.c_contiguous:
        return LIBRARY.empty_like
    return lambda x: empty(shape, x.dtype)


def _why_no_loop(x: Array, *_: Array | None) -> str | None:
    """Return why no loop can be compiled for a NumPy array x: no Numba, its byte order or dtype; None if one can."""
    if not x.dtype.isnative:
        return "Numba needs numbers in the machine's byte order"
    return _numba.refusal(x.dtype.name)


LIBRARY = Library(
    name="numpy",
    types=("numpy.ndarray",),
    xp=xp,
    refusal=_refusal,
    are_plain=lambda arrays: {*map(type, arrays)} == {np.ndarray},
    device_kwargs=lambda _: {},
    has_float64=lambda _: True,
    astype=np.ndarray.astype,
    concat=lambda parts: np.concatenate(parts, axis=-1),
    empty_like=partial(np.empty_like, subok=False),
    why_read_only=lambda x, *_: None if x.flags.writeable else ("one that is read-only", ""),
    layout=lambda x: (x.shape, x.strides, x.itemsize),
    address=address,
    host=HostMemory(
        contains=lambda _: True,
        viewer=_viewer,
        wrap=lambda x: x,
        mark_written=lambda _: None,
        complex_product=lambda pairs: np.multiply if pairs > 1 else None,  # for one pair NumPy's loops differ
        threads=_threads.threads,
        write_members=None,
        why_no_loop=_why_no_loop,
        contiguous=np.ascontiguousarray,
        allocator=_allocator,
        pack_addresses=tuple if _HAS_KNOWN_OFFSETS else _pack_addresses,
        packed_offsets=_OFFSETS if _HAS_KNOWN_OFFSETS else _memory.PACKED_OFFSETS,
    ),
    state=lambda *_: State.HOST,
    add_facts=_add_facts,
    compiler=Compiler(_why_no_loop),
    get=lambda x: x,
)
