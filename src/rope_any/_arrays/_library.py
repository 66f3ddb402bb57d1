"""
The record of an array library: what its arrays can do.

The default of a field is the answer of the array API standard, so that a library says only where it differs.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

import array_api_compat as compat

from rope_any._checks import ArgumentTypeError, Text

Array: TypeAlias = Any
"""An array of any library that speaks the Python array API."""

X = TypeVar("X", bound=Any)
"""An array whose type the result shares."""

FLOATING = ("float16", "bfloat16", "float32", "float64")


class Compiler(NamedTuple):
    """The compiler of a library. It compiles functions of arrays, or the formula into a loop that writes."""

    refusal: Callable[..., str | None]
    """``(x, *others)`` → why arrays that nothing traces cannot be compiled for; None if they can."""
    compile: Callable[[Callable[..., Array]], Callable[..., Array]] | None = None
    """A function of arrays → the same, compiled."""
    takes_out: bool = False
    """Whether functions that `compile` returns write into the arrays that they are given."""
    write_pairs: Callable[..., None] | None = None
    """``(out, x, table, layout)`` writes the rotated pairs of x into `out`: see `_compilers.write_pairs`."""


class HostMemory(NamedTuple):
    """Operations on arrays in the memory of a CPU, of a library whose functions take ``out=``."""

    module: Any
    """The library's own namespace: ``multiply(a, b, out=c)``."""
    holds: Callable[[Array], bool]
    """Whether x is in that memory."""
    strides: Callable[[Array], tuple[int, ...]]
    """The steps in memory along the axes, in bytes."""
    tile_size: Callable[[], int]
    """How many elements to rotate at a time: what the caches of the cores hold."""
    as_complex: Callable[[Array], Array | None]
    """The pairs of adjacent features as complex numbers in the same memory; None if they cannot be seen so."""
    complex_product_is_exact: Callable[[int], bool]
    """Whether the bits of a complex product don't depend on where in an array a row of so many pairs is."""
    multiply_complex: Callable[[Array, Array, Array], None]
    """``(x, factor, out)``: such products, written into `out`."""
    few: dict[str, Callable[[Array, Array], Callable[[Array], Array]]]
    """By pairing: ``(c, s)`` → a function that rotates all features of a small array, in few operations."""
    contiguous: Callable[[Array, Any], Array]
    """``(x, dtype)`` → x itself if it is dense, in order and of the dtype; else a copy that is."""

    allocator: Callable[[Array], Callable[[Array], Array]]
    """x → a function that makes a new array like each array that lies in memory as x does."""
    adopt: Callable[[Any], Array]
    """An array of NumPy → one of the library, in the same memory."""

    # For loops over addresses, which go past the library
    why_no_loop: Callable[[Array], str | None]
    """Why none can be compiled for arrays like x, or None."""
    is_readable: Callable[[Array], bool]
    """Whether the elements are in memory as they are to be read. It is part of the `signature`."""
    address_bundle: Callable[[tuple[Array, ...]], Any]
    """One Python object in which a loop finds the addresses of six arrays."""
    bundle_offsets: tuple[int, int]
    """Where it finds them: see `_layout.encode`."""
    may_write: Callable[[Array], bool]
    """Whether a loop may write into x now."""
    mark_written: Callable[[Array], None]
    """Tell the library that a loop has written into x."""
    threads: Callable[[], int]
    """How many threads rotate large arrays."""
    shares_tiles: bool
    """Whether tiles are rotated side by side, by functions of the library that use one thread."""


_MADE_OF_XP: Any = None  # the default of a field that `Library.__post_init__` gives


def _no(*_: Array) -> bool:
    return False


def _none(*_: Array) -> None:
    return None


def _device(x: Array) -> Any:
    return getattr(x, "device", None)


def _device_kwargs(x: Array) -> dict[str, Any]:
    return {} if (device := _device(x)) is None else {"device": device}


@cache
def _numpy_name(dtype: Any) -> str:
    """Return the name of a dtype of NumPy, which many libraries have, and which spells it out anew each time."""
    return str(dtype.name)


def _dtype_name(dtype: Any) -> str:
    if hasattr(dtype, "char"):
        return _numpy_name(dtype)
    return getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]


def _from_dlpack(x: Array) -> Any:
    import numpy as np

    return np.from_dlpack(x)


def _read_only(x: Array) -> bool:
    return bool(compat.is_lazy_array(x) or not compat.is_writeable_array(x))


@dataclass(frozen=True, eq=False, kw_only=True)
class Library:
    """What is known of an array library. A field that is a function of arrays answers for those that it is given."""

    name: str
    """The package that is imported."""
    xp: Any
    """The array API namespace."""
    types: tuple[str, ...] = ()
    """The classes of its arrays, as ``"package.Class"``; classes that derive from them are arrays, too."""

    # --- which arrays are taken, and where they are ---
    refusal: Callable[[Array], tuple[str, str] | None] = _none
    """What an array must be, and what it is: ``"a dense array", "a nested tensor"``; None for a good one."""
    are_plain: Callable[[tuple[Array, ...]], bool] = _no
    """Whether arrays need no further check: all of the library's own class, dense, and on one device."""
    placement: Callable[[Array], Any] = _device
    """The device, to be compared; None for an array that may be used with arrays of any device."""
    check_placement: Callable[[dict[str, Array]], None] = _none
    """Raise if arrays of one device, by name, cannot be used together all the same."""
    device_kwargs: Callable[[Array], dict[str, Any]] = _device_kwargs
    """The keywords by which a creation function puts a new array where x is."""

    # --- dtypes ---
    dtype_name: Callable[[Any], str] = _dtype_name
    """``"float32"`` for the library's own way of naming it."""
    has_float64: Callable[[Array], bool] = _MADE_OF_XP
    """Whether float64 can be computed with where x is."""
    has_float64_cosine: bool = True
    """Whether float64 comes with a cosine as exact."""
    has_fast_float64_cosine: Callable[[Array], bool] = _no
    """Whether a float64 cosine, rounded, is the fastest exact way to a float32 one."""

    # --- what is being done to arrays, which their type does not tell ---
    signature: Callable[[tuple[Array | None, ...]], tuple[Any, ...] | None] = _none
    """What a decision for arrays depends on, or None: see `signature` of this folder."""
    keeps_constants: Callable[[], bool] = lambda: False
    """Whether what is made now is plain, so that later calls may use it: nothing traces, transforms or imitates."""
    anywhere: Callable[[], AbstractContextManager[Any]] = nullcontext
    """A context in which what is made may be used outside of the modes of today: gradients may pass it."""
    is_capturing: Callable[[Array], bool] = _no
    """Whether a graph of calls is being captured where x is, into which no host data can be copied."""
    is_traced: Callable[[Array], bool] = _no
    """Whether a compiler traces x in which integers must not overflow."""
    wants_gradients: Callable[..., bool] = _no
    """Whether gradients through one of the arrays are being recorded."""
    records_gradients: Callable[..., bool] = _no
    """Whether they are, and nothing else is done to the arrays, so that a rule of ours may be recorded."""
    supports_out: Callable[..., bool] = _no
    """``(x, *others)``, some of them None → whether `host` may be used: nothing traces, transforms or records them."""

    # --- arrays made of parts ---
    is_sharded: Callable[[Array], bool] = _no
    """Whether several processes hold the shards of x."""
    is_parted: Callable[[Array], bool] = _no
    """Whether x is made of arrays of their own: chunks, or shards."""
    map_parts: Callable[..., Array] | None = None
    """``(function, x, *tables, out=)``: ``function(x, *tables, out=)`` for each part, without computing or sending."""

    # --- operations that some spell in their own way ---
    concat: Callable[[list[Array]], Array] = _MADE_OF_XP
    """Join arrays along their features."""
    cumulative_sum: Callable[[Array], Array] = _MADE_OF_XP
    """The sums of integers so far along the last axis, in their own dtype."""
    reshape_last_axes: Callable[..., Array] = _MADE_OF_XP
    """``(x, axes, *lengths)``: the last `axes` axes of x made into axes of these lengths; those before may be open."""
    empty_like: Callable[[Array], Array] = _MADE_OF_XP
    """A new array like x, with nothing in it yet, and without gradients."""
    initialise_trig: Callable[[Array], None] = _none
    """Make cos and sin ready where x is, before several threads call them."""

    # --- memory ---
    read_only: Callable[[Array], bool] = _read_only
    """Whether elements of x cannot be assigned."""
    span: Callable[[Array], tuple[int, int] | None] = _none
    """The first address of a dense array and the one behind its last; None for others."""
    addresses: Callable[[Array], Any] = _none
    """An array of NumPy at the addresses of x, never to be read; None if they cannot be known."""
    host: HostMemory | None = None

    # --- compilers and gradients ---
    compiler: Compiler | None = None
    with_gradient: Callable[..., Array] | None = None
    """``(forward, vjp, x, cos, sin)``: ``forward(x, cos, sin)``, differentiated by ``vjp(g, kept, wanted)``."""

    # --- data in and out, for the command line and what checks ---
    module: Any = None
    """The library itself."""
    devices: Callable[[], dict[str, Any]] = lambda: {"cpu": None}
    """The devices that can be used now, by name."""
    put: Callable[[Any, Any], Array] = _MADE_OF_XP
    """``(data, device)``: NumPy data → an array; a device of None is the only one."""
    get: Callable[[Array], Any] = _from_dlpack
    """An array of a dtype that NumPy has → NumPy data."""
    copy: Callable[[Array], Array] = _MADE_OF_XP
    """A copy, made as fast as the library can."""
    wait: Callable[[Array], object] = _none
    """Return when x has been computed."""

    # --- what follows for all libraries ---

    def __post_init__(self) -> None:
        """Give the fields that are made of `xp` by the standard, where the library says nothing else."""
        xp = self.xp
        standard: dict[str, Callable[..., Any]] = {
            "has_float64": lambda x: (
                "float64" in xp.__array_namespace_info__().dtypes(device=_device(x), kind="real floating")
            ),
            "concat": lambda parts: xp.concat(parts, axis=-1),
            "cumulative_sum": lambda x: xp.cumulative_sum(x, axis=-1, dtype=x.dtype),
            "reshape_last_axes": lambda x, axes, *lengths: xp.reshape(x, (*x.shape[: x.ndim - axes], *lengths)),
            "empty_like": xp.empty_like,
            "put": lambda data, device: xp.asarray(data, **({} if device is None else {"device": device})),
            "copy": lambda x: xp.asarray(x, copy=True),
        }
        for name, function in standard.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, function)

    def cast(self, x: Array, dtype: Any) -> Array:
        """Return `x` in `dtype`: itself if it has it."""
        return x if x.dtype == dtype else self.xp.astype(x, dtype)

    def floating_dtype(self, dtype: Any) -> Any:
        """Return the library's own dtype for one of `FLOATING`, given by its name or as any library's dtype."""
        try:
            name = dtype if isinstance(dtype, str) else _dtype_name(dtype)
        except (RecursionError, ValueError):  # nested too deeply, or an integer of thousands of digits
            name = ""
        if name in FLOATING and hasattr(self.xp, name):
            return getattr(self.xp, name)
        if name in FLOATING and (isinstance(dtype, type) or type(dtype).__module__.startswith("numpy")):
            return dtype  # NumPy's and ml_dtypes', for libraries that take them and don't name them
        got = Text(name if 0 < len(name) <= 40 and name.isprintable() else type(dtype).__name__)
        raise ArgumentTypeError("dtype", f"be one of {', '.join(FLOATING)}, and one that the library has", got)

    def compute_dtype(self, x: Array) -> Any:
        """Return the dtype that `x` is rotated in: float64 if it is float64, else float32."""
        return self.xp.float64 if self.dtype_name(x.dtype) == "float64" else self.xp.float32

    def is_integer(self, x: Array) -> bool:
        """Whether `x` holds integers."""
        return self.dtype_name(x.dtype).startswith(("int", "uint"))

    def require_floating(self, name: str, x: Array) -> None:
        """Raise unless `x`, called `name`, is a floating-point array."""
        if (dtype := self.dtype_name(x.dtype)) not in FLOATING:
            raise ArgumentTypeError(name, f"be floating-point ({', '.join(FLOATING)})", Text(dtype))

    def require_integer(self, name: str, x: Array) -> None:
        """Raise unless `x`, called `name`, holds integers."""
        if not self.is_integer(x):
            raise ArgumentTypeError(name, "be integers", Text(f"an array of {self.dtype_name(x.dtype)}"))

    def count_at_or_below(self, bounds: Array, values: Array) -> Array:
        """Return for each value how many bounds, which ascend, are at or below it."""
        try:
            return self.xp.searchsorted(bounds, values, side="right")
        except (AttributeError, ValueError):  # older than 2023.12; array-api-strict's, where there are no 64-bit types
            at_or_below = self.xp.astype(bounds <= values[:, None], values.dtype)
            return self.xp.sum(at_or_below, axis=-1, dtype=values.dtype)

    def summed_to(self, x: Array, like: Array) -> Array:
        """Return `x` summed over the axes along which `like` was broadcast to it, in the dtype of `like`."""
        before = x.ndim - like.ndim
        axes = (*range(before), *(before + axis for axis, n in enumerate(like.shape) if n == 1))
        total = self.xp.reshape(self.xp.sum(x, axis=axes, keepdims=True), like.shape) if axes else x
        return self.cast(total, like.dtype)
