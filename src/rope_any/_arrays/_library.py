"""
The record of an array library: what its arrays can do.

The default of a field is the answer of the array API standard, so a library sets only the fields in which it differs.
"""

import sys
from collections.abc import Callable, Hashable, MutableMapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import array_api_compat as compat

from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text

Array: TypeAlias = Any
"""An array of any library that implements the Python array API."""

X = TypeVar("X", bound=Any)
"""Type variable: the result has the array type of the argument."""

FLOATING = ("float16", "bfloat16", "float32", "float64")
SHORT_NAMES = {"fp16": "float16", "half": "float16", "bf16": "bfloat16", "fp32": "float32", "float": "float32"}
SHORT_NAMES |= {"fp64": "float64", "double": "float64"}


def type_name(value: object) -> str:
    """Return a class's name after its top-level package, as ``paddle.Tensor``; alone if Python's or ours."""
    kind = type(value)
    package = str(kind.__module__).partition(".")[0]
    return kind.__name__ if package in _OWN_PACKAGES else f"{package}.{kind.__name__}"


_OWN_PACKAGES = {*sys.stdlib_module_names, __name__.partition(".")[0]}


class Refusal(NamedTuple):
    """Why an array is refused, in the words of an error."""

    wanted: str
    """What it must be: ``"a dense array"``."""
    got: str
    """What it is: ``"a nested tensor"``."""
    hint: str = ""
    """What to give instead."""


Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
"""How the elements of an array follow its address in memory: shape, strides in bytes, item size."""


class State(Enum):
    """
    Where the values of arrays are, and what observes the operations on them: it decides how to compute with them.

    Attributes
    ----------
    HOST
        In the memory of a CPU, so that NumPy can read and write them too, and nothing observes.
    EAGER
        Wherever the functions of their library compute with them, and nothing observes.
    RECORDED
        Their gradients are recorded, and nothing else observes.
    TRANSFORMED
        A transform or a mode observes or replaces the functions of their library, as vmap does.
    TRACED
        A compiler traces them, under which integers must not overflow.
    PARTITIONED
        In chunks or shards, each of which is rotated by itself (`Library.map_partitions`).
    UNKNOWN
        Their library does not say.
    """

    HOST = auto()
    EAGER = auto()
    RECORDED = auto()
    TRANSFORMED = auto()
    TRACED = auto()
    PARTITIONED = auto()
    UNKNOWN = auto()

    @property
    def can_keep_arrays(self) -> bool:
        """Whether arrays made now hold their numbers also in later calls, as far as is known."""
        return self not in {State.TRACED, State.TRANSFORMED}


class Compiler(NamedTuple):
    """The compiler of a library: `compile` or `write_pairs`; without both, only Numba's loops are used (NumPy)."""

    refusal: Callable[..., str | None]
    """``(x, *others)`` → why it cannot compile for these arrays (which are not traced); None if it can."""
    compile: Callable[[Callable[..., Array]], Callable[..., Array]] | None = None
    """A function of arrays → that function, compiled."""
    takes_out: bool = False
    """Whether compiled functions can write into their arguments."""
    write_pairs: Callable[..., None] | None = None
    """``(out, x, table, layout)`` writes x, all of whose features form pairs, rotated into `out`: see `PairLayout`."""


class HostMemory(NamedTuple):
    """Operations on arrays in the memory of a CPU, which NumPy reads and writes too."""

    contains: Callable[[Array], bool]
    """Whether x is in CPU memory."""
    viewer: Callable[..., Callable[[Array], Any]]
    """
    ``(x, shape)``: a function of arrays like x → a NumPy array in their memory, which it does not keep alive; of
    another shape if that is given and x is contiguous. Numbers of 16 bits must not be read.
    """
    wrap: Callable[[Any], Array]
    """A NumPy array → an array of the library that shares its memory."""
    mark_written: Callable[[Array], None]
    """Notify the library that x was written in its memory."""
    complex_product: Callable[[int], Callable[[Any, Any, Any], object] | None]
    """
    A number of pairs → a function ``(x, factor, out)`` that writes the product of complex NumPy arrays into `out`; None
    if products of a row of so many pairs may have other bits at another place in an array.
    """
    threads: Callable[[], int]
    """The number of threads for large arrays."""
    write_members: Callable[..., None] | None
    """
    ``(first, second, a, b, cos, sin)``: write the rotated members of pairs (a, b) by functions of the library that use
    several threads; None for NumPy, which uses one.
    """

    # For compiled loops, which read and write memory by its address
    why_no_loop: Callable[[Array], str | None]
    """Why no loop can be compiled for arrays like x, or None."""
    contiguous: Callable[[Array, Any], Array]
    """``(x, dtype)`` → x itself if it is C-contiguous and of the dtype; else a copy that is."""
    allocator: Callable[[Array], Callable[[Array], Array]]
    """x → a fast `empty_like` for arrays of the shape and strides of x."""
    pack_addresses: Callable[[tuple[Array, ...]], Any]
    """One Python object that holds the addresses of six arrays."""
    packed_offsets: tuple[int, int]
    """The offsets of the addresses in that object: see `_layout.encode`."""


class Gradients(NamedTuple):
    """How a library differentiates functions of its arrays."""

    vjp: Callable[..., Array]
    """``(function, x, g)``: the gradient of ``sum(function(x) * g)`` with respect to x; zeros if none reaches it."""
    with_vjp: Callable[..., tuple[Array, ...]] | None = None
    """
    ``(forward, vjp, *xs, cos, sin)``: ``forward(xs, table)``, which may write into its xs and return them,
    differentiated by ``vjp(gs, xs, table, needed)``; None if the state of arrays is never `State.RECORDED`.
    """


_FROM_XP: Any = None  # default of a field that `Library.__post_init__` fills from `xp`


def _no(*_: Array) -> bool:
    """Return False for any arrays: the default of fields of `Library` that are predicates."""
    return False


def _return_none(*_: Array) -> None:
    """Return None for any arrays: the default of fields of `Library` that are functions."""


def _return_first(x: X, *_: Any) -> X:
    """Return x unchanged: the default of fields of `Library` that are functions of an array and options."""
    return x


def _device(x: Array) -> Any:
    """Return the device of an array, or None if arrays of its library have none."""
    return getattr(x, "device", None)


def _device_kwargs(x: Array) -> dict[str, Any]:
    """Return keywords for creating an array on the device of x; {} if it has none."""
    return {} if (device := _device(x)) is None else {"device": device}


@cache
def _numpy_name(dtype: Any) -> str:
    """Return the name of a NumPy dtype; cached, because NumPy builds the string on each access."""
    return str(dtype.name)


def _dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of any library, such as ``"float32"``."""
    if hasattr(dtype, "char"):
        return _numpy_name(dtype)
    return getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]


def _as_numpy(x: Array) -> Any:
    """Convert an array of any device to NumPy by DLPack, or if its library can't, by ``numpy.asarray``; or raise."""
    import numpy as np

    for convert in (np.from_dlpack, lambda x: np.from_dlpack(x, device="cpu"), np.asarray):
        with suppress(Exception):  # libraries raise their own kinds
            if (data := convert(x)).dtype != object:  # `asarray` puts what it can't read into an array of objects
                return data
    raise ArgumentTypeError("the array", "be one whose values can be read", Text(type_name(x)))


def refuse_unit(x: Array) -> Refusal | None:
    """Return why an array with a physical unit is refused (astropy, unyt and others have such); None for others."""
    if getattr(x, "unit", None) is None and getattr(x, "units", None) is None:
        return None
    name = next((name for name in ("value", "magnitude") if hasattr(x, name)), "")
    return Refusal("a plain array", f"{type_name(x)}, whose unit would be lost", f"give its {name}" if name else "")


_NEEDED = "cumulative_sum", "maximum", "minimum", "moveaxis", "take"
"""Functions that are called here, and that the standard has had only since 2022.12 (`take`) or 2023.12."""


def _refuse_old_namespace(record: "Library", needed: tuple[str, ...], x: Array) -> Refusal | None:
    """Return why x is refused if its namespace is older than the array API 2023.12, or lacks a function; else None."""
    xp = record.xp
    version, missing = getattr(xp, "__array_api_version__", _OLDEST), [n for n in needed if not hasattr(xp, n)]
    if version >= _OLDEST and not missing:
        return None
    fault = f"lacks {', '.join(missing)}" if missing else f"is of version {version}"
    got = f"{type_name(x)}, whose namespace {fault}"
    is_registered = bool(record.types)
    newer = "a newer version of the library may follow it; or see rope_any.arrays"
    hint = "add what is missing to the `xp` of its record" if is_registered else newer
    return Refusal(f"of a library that follows the array API {_OLDEST}", got, hint)


_OLDEST = "2023.12"


def _why_read_only(x: Array, *_: Array) -> tuple[str, str] | None:
    """Return (got, hint) of an error for x if its elements can't be assigned, by its class; else None."""
    has_namespace = compat.is_array_api_obj(x)  # else array-api-compat calls no array writeable
    can_be_written = hasattr(type(x), "__setitem__") and (compat.is_writeable_array(x) or not has_namespace)
    return None if can_be_written else immutable()


def immutable(*_arrays: Array) -> tuple[str, str]:
    """
    Return what an error says of arrays that can't be written: `Library.why_read_only` of immutable and lazy arrays.

    Parameters
    ----------
    *_arrays : array
        Any arrays.

    Returns
    -------
    tuple of str
        What they are, and what to do instead.
    """
    return "one whose elements cannot be assigned", "leave out `out` (and `slots`), and use the result"


def _cumulative_max(xp: Any, x: Array) -> Array:
    """Return the largest element up to each one along the last axis, by functions of the standard."""
    step = 1
    while step < x.shape[-1]:
        x = xp.concat([x[..., :step], xp.maximum(x[..., step:], x[..., :-step])], axis=-1)
        step *= 2
    return x


@dataclass(frozen=True, eq=False, kw_only=True)
class Library:
    """
    The record of an array library: what its arrays can do, and how.

    Parameters
    ----------
    name : str
        The name of the package.
    xp : namespace
        The array API namespace: a module, or any object with its functions and dtypes.
    types : tuple of str, optional
        Its array classes, each as its top-level package and its own name: ``"mlx.array"`` is the class ``array`` of
        ``mlx.core``. Subclasses count, too. `register` needs them.
    refusal : callable, optional
        ``(x)``: why it is refused, as a `Refusal`; None if it is supported. By default arrays with a unit are refused,
        and all if the namespace is older than 2023.12.
    are_plain : callable, optional
        ``(arrays)``: whether they need no further check, because all are of the library's own class, dense, and on one
        device.
    placement : callable, optional
        ``(x)``: its device, to compare; None if x can be combined with arrays of any device.
    check_placement : callable, optional
        ``({name: array})``: raise if arrays of one device still cannot be combined.
    device_kwargs : callable, optional
        ``(x)``: the keywords with which a creation function puts a new array on its device.
    dtype_name : callable, optional
        A dtype → its name, such as ``"float32"``.
    has_float64 : callable, optional
        ``(x)``: whether its device computes in float64. By default the namespace is asked, in each call.
    has_float64_cosine : bool, optional
        Whether the cosine of float64 has float64 precision.
    has_fast_float64_cosine : callable, optional
        ``(x)``: whether a float64 cosine, rounded, is the fastest exact way to a float32 one.
    state : callable, optional
        ``(*arrays)``, some None: their `State`; without arrays, what observes all functions of the library, if
        anything does.
    add_facts : callable, optional
        ``(arrays, facts)``: append all that distinguishes arrays except their values, such as dtypes, shapes, strides
        and devices, to the list `facts`, and return True; or return False. Calls with equal facts are planned once.
    mode_store : callable, optional
        ``(x)``: where constants for x are kept as long as the active mode lives, though the state is TRANSFORMED; None
        if they must not be.
    constant_context : callable, optional
        A context to make kept arrays in, so that later calls can use them in any mode, stream and with gradients.
    is_capturing : callable, optional
        ``(x)``: whether a graph is being captured on its device, into which no host data can be copied.
    map_partitions : callable, optional
        ``(function, x, *tables, out=)``: ``function(x, *tables, out=)`` chunk by chunk or shard by shard, without
        computing or sending; for arrays in state PARTITIONED.
    astype : callable, optional
        ``(x, dtype)``: x in another dtype.
    concat : callable, optional
        ``([arrays])``: the arrays, joined along their last axis.
    cumulative_sum : callable, optional
        ``(x, axis=-1)``: the cumulative sum along an axis, in the dtype of x.
    cumulative_max : callable, optional
        ``(x)``: the largest element up to each one along the last axis.
    stack : callable, optional
        ``(arrays, axis=)``: join floating-point arrays of one shape and dtype along a new axis.
    matmul : callable, optional
        ``(a, b)``: the matrix product of arrays of one dtype, in that dtype.
    reshape_last_axes : callable, optional
        ``(x, axes, *lengths)``: x with its last `axes` axes reshaped to `lengths`; other lengths may be unknown.
    broadcast_to_rank : callable, optional
        ``(x, rank)``: x with axes of length 1 in front, up to this rank, if operators may not add them; else x.
    empty_like : callable, optional
        ``(x)``: an uninitialised array like it, without gradients.
    get : callable, optional
        An array of a dtype that NumPy has → a NumPy array.
    why_read_only : callable, optional
        ``(out, x, *table)``: what an error says if `out` cannot be written now, with x rotated by the table, as (got,
        hint); else None. By default arrays whose class lacks ``__setitem__``, and those that array-api-compat calls
        read-only, can't be.
    layout : callable, optional
        ``(x)``: its (shape, strides in bytes, item size); None if its address is unknown.
    address : callable, optional
        ``(x)``: the address of its first element, if its `layout` is known.
    host : HostMemory, optional
        How NumPy reads and writes the memory of arrays in state HOST.
    compiler : Compiler, optional
        The compiler for ``fused=True``, if there is one.
    gradients : Gradients, optional
        How functions are differentiated, if they can be.

    Notes
    -----
    The defaults are what the array API standard says, so a record sets only the fields in which its library differs.
    `rope_any.testing.check_library` tests them.

    Examples
    --------
    >>> from array_api_compat import numpy as xp
    >>> Library(name="mine", xp=xp, types=("mine.Array",)).dtype_name(xp.float32)
    'float32'
    """

    name: str
    xp: Any
    types: tuple[str, ...] = ()

    # --- supported arrays, and their devices ---
    refusal: Callable[[Array], Refusal | None] = _FROM_XP
    are_plain: Callable[[tuple[Array, ...]], bool] = _no
    placement: Callable[[Array], Any] = _device
    check_placement: Callable[[dict[str, Array]], None] = _return_none
    device_kwargs: Callable[[Array], dict[str, Any]] = _device_kwargs

    # --- dtypes ---
    dtype_name: Callable[[Any], str] = _dtype_name
    has_float64: Callable[[Array], bool] = _FROM_XP
    has_float64_cosine: bool = True
    has_fast_float64_cosine: Callable[[Array], bool] = _no

    # --- state beyond the array type: tracing, transforms, gradients ---
    state: Callable[..., State] = lambda *_: State.UNKNOWN
    add_facts: Callable[[tuple[Array | None, ...], list[Any]], bool] = _no
    mode_store: Callable[[Array], MutableMapping[Any, dict[Hashable, Any]] | None] = _return_none
    constant_context: Callable[[], AbstractContextManager[Any]] = nullcontext
    is_capturing: Callable[[Array], bool] = _no

    # --- arrays in parts ---
    map_partitions: Callable[..., Array] | None = None

    # --- operations that differ between libraries ---
    astype: Callable[[Array, Any], Array] = _FROM_XP
    concat: Callable[[list[Array]], Array] = _FROM_XP
    cumulative_sum: Callable[..., Array] = _FROM_XP
    cumulative_max: Callable[[Array], Array] = _FROM_XP
    stack: Callable[..., Array] = _FROM_XP
    matmul: Callable[[Array, Array], Array] = _FROM_XP
    reshape_last_axes: Callable[..., Array] = _FROM_XP
    broadcast_to_rank: Callable[[Array, int], Array] = _return_first
    empty_like: Callable[[Array], Array] = _FROM_XP
    get: Callable[[Array], Any] = _as_numpy

    # --- memory ---
    why_read_only: Callable[..., tuple[str, str] | None] = _why_read_only
    layout: Callable[[Array], Layout | None] = _return_none
    address: Callable[[Array], Any] = _return_none
    host: HostMemory | None = None

    # --- compilers and gradients ---
    compiler: Compiler | None = None
    gradients: Gradients | None = None

    float64: Any = field(init=False)
    """The dtype, or None if the namespace has none."""

    # --- methods: the same for all libraries ---

    def __post_init__(self) -> None:
        """Fill the fields left at `_FROM_XP` with functions made from the array API namespace `xp`."""
        xp = self.xp
        needed = (*_NEEDED, "__array_namespace_info__") if self.has_float64 is None else _NEEDED
        standard: dict[str, Callable[..., Any]] = {
            "refusal": lambda x: refuse_unit(x) or _refuse_old_namespace(self, needed, x),
            "has_float64": lambda x: (
                "float64" in xp.__array_namespace_info__().dtypes(device=_device(x), kind="real floating")
            ),
            "concat": lambda parts: xp.concat(parts, axis=-1),
            "cumulative_sum": lambda x, axis=-1: xp.cumulative_sum(x, axis=axis, dtype=x.dtype),
            "cumulative_max": partial(_cumulative_max, xp),
            "reshape_last_axes": lambda x, axes, *lengths: xp.reshape(x, (*x.shape[: x.ndim - axes], *lengths)),
        }
        for name in ("astype", "stack", "matmul", "empty_like", *standard):
            if getattr(self, name) is None:
                if name not in standard and not hasattr(xp, name):
                    wanted = f"have {name} of the array API, unless the record has a field {name}"
                    raise ArgumentValueError("xp", wanted, Text(type_name(xp)))
                object.__setattr__(self, name, standard.get(name) or getattr(xp, name))
        object.__setattr__(self, "float64", getattr(xp, "float64", None))

    def holds_numbers(self, x: Array) -> bool:
        """Whether x, an array just made of numbers, holds them, so that later calls can use it: no tracer does."""
        try:
            return self.get(x).astype(float).shape == tuple(x.shape)  # type: ignore[no-any-return]  # a bool
        except Exception:  # noqa: BLE001  # libraries raise their own kinds
            return False

    def cast(self, x: Array, dtype: Any) -> Array:
        """Return `x` in `dtype`: `x` itself if it has that dtype."""
        return x if x.dtype == dtype else self.astype(x, dtype)

    def name_of(self, dtype: Any) -> str:
        """Return the name of a dtype of this library or of another one, or of a name itself; "" if it has none."""
        if isinstance(dtype, str):
            return dtype
        for dtype_name in (self.dtype_name, _dtype_name):
            try:
                name = dtype_name(dtype)
            except Exception:  # noqa: BLE001, S112  # `dtype` may be anything, such as a list nested too deeply
                continue
            if name.isidentifier():
                return name
        return ""

    def floating_dtype(self, dtype: Any) -> Any:
        """Return the library's dtype for a name in FLOATING (float16 to float64) or a dtype so named; or raise."""
        name = self.name_of(dtype)
        if name in FLOATING and hasattr(self.xp, name):
            return getattr(self.xp, name)
        is_of_numpy = isinstance(dtype, type) or type(dtype).__module__.startswith("numpy")
        if name in FLOATING and is_of_numpy and isinstance(self.xp.float32, type):
            return dtype  # this library has the dtypes of NumPy and ml_dtypes, and does not export all of them
        got = Text(name) if name.isidentifier() and len(name) <= 40 else dtype
        hint = f"write {SHORT_NAMES[name]}" if name in SHORT_NAMES else ""
        hint = "NumPy takes ml_dtypes.bfloat16; or use a library that has it" if name == "bfloat16" else hint
        raise ArgumentTypeError("dtype", f"be one of {', '.join(FLOATING)}, and one that the library has", got, hint)

    def compute_dtype(self, x: Array) -> Any:
        """Return the dtype that `x` is rotated in: float64 if it is float64, else float32."""
        return self.xp.float64 if self.dtype_name(x.dtype) == "float64" else self.xp.float32

    def is_integer(self, x: Array) -> bool:
        """Whether the dtype of `x` is an integer one, signed or unsigned; bool is not."""
        return self.dtype_name(x.dtype).startswith(("int", "uint"))

    def require_floating(self, name: str, x: Array) -> None:
        """Raise a TypeError that calls x `name` unless its dtype is in FLOATING, which has no float8 and no float4."""
        if (dtype := self.dtype_name(x.dtype)) not in FLOATING:
            narrow = dtype.startswith(("float8", "float4", "int8", "uint8"))
            hint = "quantise after the rotation" if narrow else "" if "complex" in dtype else "cast it to one of these"
            raise ArgumentTypeError(name, f"be floating-point ({', '.join(FLOATING)})", Text(dtype), hint)

    def require_integer(self, name: str, x: Array) -> None:
        """Raise a TypeError, which calls x `name`, unless `x` holds integers."""
        if not self.is_integer(x):
            dtype = self.dtype_name(x.dtype)
            hint = "cast whole numbers to integers" if dtype in FLOATING else ""
            raise ArgumentTypeError(name, "be integers", Text(f"an array of {dtype}"), hint)

    def count_at_or_below(self, bounds: Array, values: Array) -> Array:
        """Return for each value how many of the ascending `bounds`, of one axis, are less than or equal to it."""
        try:
            return self.xp.searchsorted(bounds, values, side="right")
        except Exception:  # noqa: BLE001  # it is missing before 2023.12, needs 64-bit types, or a known number of bounds
            at_or_below = self.xp.astype(bounds <= values[:, None], values.dtype)
            return self.xp.sum(at_or_below, axis=-1, dtype=values.dtype)

    def unbroadcast(self, x: Array, like: Array) -> Array:
        """Return `x`, summed over the axes along which `like` was broadcast to it, in the shape and dtype of `like`."""
        before = x.ndim - like.ndim
        axes = (*range(before), *(before + axis for axis, n in enumerate(like.shape) if n == 1))
        total = self.xp.reshape(self.xp.sum(x, axis=axes, keepdims=True), like.shape) if axes else x
        return self.cast(total, like.dtype)
