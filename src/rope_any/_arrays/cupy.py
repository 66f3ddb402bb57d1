"""CuPy: arrays on the current GPU, rotated by a CUDA kernel if `fused`."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import array_api_compat.cupy
import cupy

from rope_any._arrays import _cuda
from rope_any._arrays._library import Array, Compiler, Library, State
from rope_any._checks import ArgumentValueError, Text

xp: Any = array_api_compat.cupy  # typed in part


def _add_facts(arrays: tuple[Any, ...], facts: list[Any]) -> bool:
    """Append the device, dtypes, shapes, strides; return False unless all are plain and on the current device."""
    device: Any = cupy.cuda.runtime.getDevice()
    facts.append(device)
    for x in arrays:
        if type(x) is cupy.ndarray and x.data.device_id == device:
            facts += (x.dtype, x.shape, x.strides)
        elif x is None:
            facts.append(None)
        else:
            return False
    return True


def _check_placement(arrays: dict[str, Array]) -> None:
    """Raise unless the arrays, which are on one device, are on CuPy's current one, where it allocates new arrays."""
    name, x = next(iter(arrays.items()))
    if x.device != (current := cupy.cuda.Device()):
        wanted, got = f"be on CuPy's current device, {current}", Text(x.device)
        raise ArgumentValueError(name, wanted, got, "see cupy.cuda.Device")


@contextmanager
def _constant_context() -> Iterator[None]:
    """Wait, after arrays were made, until their data are on the GPU: another stream may be the next to read them."""
    yield
    cupy.cuda.get_current_stream().synchronize()


LIBRARY = Library(
    name="cupy",
    types=("cupy.ndarray",),
    xp=xp,
    check_placement=_check_placement,
    has_float64=lambda _: True,
    state=lambda *_: State.EAGER,  # nothing traces
    add_facts=_add_facts,
    constant_context=_constant_context,
    is_capturing=lambda _: cupy.cuda.get_current_stream().is_capturing(),
    layout=lambda x: (x.shape, x.strides, x.itemsize),
    address=lambda x: x.data.ptr,
    compiler=Compiler(lambda *_: None, write_pairs=partial(_cuda.launch, cupy)),
    get=cupy.asnumpy,
)
