"""CuPy: arrays on the current GPU, compiled by cupy.fuse."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import array_api_compat.cupy
import cupy

from rope_any._arrays import _memory
from rope_any._arrays._compilers import PairLayout
from rope_any._arrays._library import Array, Compiler, Library
from rope_any._checks import ArgumentValueError, Text
from rope_any._formula import rotate_component

xp: Any = array_api_compat.cupy  # typed in part


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


def _addresses(x: Array) -> Any:
    """Return a NumPy array at x's GPU addresses, for overlap checks: it must not be read. None if x has no memory."""
    return _memory.view_at(x.data.ptr, x.shape, x.strides, x.itemsize)


def _why_not_compiled(x: Array, *_: Array | None) -> str | None:
    """Return why cupy.fuse cannot compile for x (its dtype is bfloat16); None if it can."""
    return "cupy.fuse does not compile bfloat16" if x.dtype.name == "bfloat16" else None


def _write_pairs(out: Array, x: Array, table: tuple[Array, Array], layout: PairLayout) -> None:
    """Write the rotated x, whose features all form pairs, into `out` by one fused kernel."""
    end = x.shape[-1] - layout.gap
    members = [part[..., start : start + end : layout.step] for part in (x, out) for start in (0, layout.gap)]
    kernel = _kernel("float64" if x.dtype.name == "float64" else "float32", layout.direction)
    kernel(*members, *table)


@cache
def _kernel(dtype: str, direction: int) -> Callable[..., None]:
    """Return the fused kernel ``(a, b, to_a, to_b, c, s)`` that rotates pairs in a dtype; `direction` -1: backwards."""

    def kernel(a: Array, b: Array, to_a: Array, to_b: Array, c: Array, s: Array) -> None:  # noqa: PLR0917  # no tuples
        """Write the rotated pairs (a, b) into `to_a` and `to_b`; cupy.fuse compiles this function."""
        a, b, c, s = (part.astype(dtype) for part in (a, b, c, s))
        s = s if direction == 1 else -s
        # both before either is written: they may be written to a and b
        first, second = rotate_component(a, b, c, s), rotate_component(b, a, c, -s)
        to_a[...] = first
        to_b[...] = second

    fast: Callable[..., None] = cupy.fuse(kernel)
    return fast


def _devices() -> dict[str, Any]:
    """Return the numbers of the CUDA devices, by names such as ``"cuda:0"``; {} without a GPU."""
    # CuPy can be imported without a GPU, and fails at the first array.
    count = cupy.cuda.runtime.getDeviceCount() if cupy.cuda.is_available() else 0
    return {f"cuda:{i}": i for i in range(count)}


def _put(data: Any, device: int) -> Array:
    """Make a device the current one, permanently, and copy data to it: CuPy computes on the current device alone."""
    cupy.cuda.Device(device).use()
    return cupy.asarray(data)


LIBRARY = Library(
    name="cupy",
    types=("cupy.ndarray",),
    xp=xp,
    check_placement=_check_placement,
    keeps_constants=lambda: True,  # nothing traces: what cupy.fuse passes to a function is no cupy.ndarray
    constant_context=_constant_context,
    is_capturing=lambda _: cupy.cuda.get_current_stream().is_capturing(),
    addresses=_addresses,
    compiler=Compiler(_why_not_compiled, write_pairs=_write_pairs),
    module=cupy,
    devices=_devices,
    put=_put,
    get=cupy.asnumpy,
    wait=lambda x: x.device.synchronize(),
)
