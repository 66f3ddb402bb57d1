"""What is not as installed: libraries simulated by NumPy, which count copies of host data; a process without Numba."""

import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
import pytest

import rope_any as ra
from rope_any import _arrays, _fused_rotation, _table
from rope_any._arrays import _compilers, _numba

BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
UNARY = ("neg", "pos", "invert", "abs")
_FLOATING = ("float32", "float64")
_DTYPES = (*_FLOATING, "bool", "int8", "int16", "int32", "int64", "uint8", "float16", "complex64")


@dataclass(eq=False)
class Dtype:
    """A dtype that can be compared and no more: it has no name and no hash, and its text says nothing."""

    numpy: Any

    def __eq__(self, other: object) -> bool:
        """Whether `other` is the same dtype of such a library."""
        return isinstance(other, Dtype) and self.numpy == other.numpy

    def __repr__(self) -> str:
        """Return text without a name."""
        return "<dtype>"

    __hash__ = None


class Simulation(ModuleType):
    """The namespace of a simulated library, with the functions of the standard; `ndarray` is its class of arrays."""

    def __init__(self, name: str, *, opaque: bool = False) -> None:
        """Make the namespace and a class of arrays; with `opaque` dtypes are `Dtype`s, and arrays have no device."""
        super().__init__(name)
        self.copies = 0
        """The number of copies of host data so far."""
        self.opaque = opaque
        self.ndarray = type("ndarray", (_Array,), {"__module__": name, "simulation": self})

    def __getattr__(self, name: str) -> Any:
        """Return a dtype, a constant, or the function of NumPy for arrays of this library."""
        if name in _DTYPES:
            return Dtype(np.dtype(name)) if self.opaque else getattr(np, name)
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(xp, name)
        return (lambda *args, **kwargs: self._call(value, args, kwargs)) if callable(value) else value

    def __array_namespace_info__(self) -> Any:
        """Return the namespace's information: only the floating-point dtypes by name."""
        return SimpleNamespace(dtypes=lambda **_: {name: getattr(self, name) for name in _FLOATING})

    def asarray(self, data: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
        """Return data as an array, and count the copy if they come from the host."""
        del device
        if not isinstance(data, _Array):
            self.copies += 1
        host = self._unwrap(data) if isinstance(data, _Array) else np.asarray(data)
        return self.ndarray(np.array(host, dtype=self._unwrap(dtype), copy=copy or None))

    def asnumpy(self, x: Any) -> Any:
        """Return the values of an array as a NumPy array."""
        return x.host.copy()

    def dtype_name(self, dtype: Any) -> str:
        """Return the name of a dtype of this library; raise for all else."""
        return dtype.numpy.name if self.opaque else np.dtype(dtype).name

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of NumPy with the data of arrays, and return arrays of this library."""
        kwargs.pop("device", None)
        result = function(*map(self._unwrap, args), **{name: self._unwrap(value) for name, value in kwargs.items()})
        return self._wrap(result)

    def _wrap(self, value: Any) -> Any:
        """Return NumPy's arrays and scalars, also those in a tuple or list, as arrays of this library."""
        if isinstance(value, tuple | list):
            return type(value)(map(self._wrap, value))
        return self.ndarray(np.asarray(value)) if isinstance(value, np.ndarray | np.generic) else value

    def _unwrap(self, value: Any) -> Any:
        """Return arrays of this library and its dtypes as NumPy's; raise for what is NumPy's."""
        if isinstance(value, tuple | list):
            return type(value)(map(self._unwrap, value))
        if isinstance(value, _Array):
            assert type(value) is self.ndarray
            return value.host
        if isinstance(value, np.ndarray) or (self.opaque and isinstance(value, np.generic | np.dtype | type)):
            raise TypeError(f"unsupported type {type(value)}")
        return value.numpy if isinstance(value, Dtype) else value


class _Array:
    """An array of a simulated library: NumPy's data, which nothing can read but `asnumpy`."""

    simulation: Simulation

    def __init__(self, host: np.ndarray) -> None:
        """Keep the data."""
        self.host = host
        self.shape, self.ndim, self.size, self.nbytes = host.shape, host.ndim, host.size, host.nbytes
        self.itemsize, self.strides = host.itemsize, host.strides
        if not self.simulation.opaque:
            self.device = "things:0"

    @property
    def dtype(self) -> Any:
        """The dtype, opaque if those of the library are."""
        return Dtype(self.host.dtype) if self.simulation.opaque else self.host.dtype

    @property
    def flags(self) -> Any:
        """The memory layout."""
        return SimpleNamespace(c_contiguous=self.host.flags.c_contiguous)

    def __array_namespace__(self, **_: Any) -> Simulation:
        """Return the namespace."""
        return self.simulation

    def astype(self, dtype: Any) -> Any:
        """Return the array in another dtype."""
        return self.simulation.astype(self, dtype)

    def __getitem__(self, key: Any) -> Any:
        """Return a view or selected elements."""
        return self.simulation._wrap(self.host[self.simulation._unwrap(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write elements."""
        self.host[self.simulation._unwrap(key)] = self.simulation._unwrap(value)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        """Raise: nothing may read values, which waits for a GPU."""
        raise TypeError("values are on the device")

    __bool__ = __int__ = __float__ = __index__ = __len__ = __iter__ = __array__ = _refuse
    __hash__ = None


def _operator(name: str) -> Any:
    """Return the method of `_Array` for an operator of NumPy's arrays."""

    def operate(self: _Array, *others: Any) -> Any:
        """Apply the operator."""
        return self.simulation._call(getattr(np.ndarray, name), (self, *others), {})

    return operate


for _name in (*BINARY, *(f"r{name}" for name in BINARY), *UNARY, *COMPARISONS):
    setattr(_Array, f"__{_name}__", _operator(f"__{_name}__"))


def forget_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rope_any find the libraries of arrays anew until the test ends, and then as before."""
    for name in ("_BY_CLASS", "_BY_TYPE", "_DEFAULT_RECORDS"):
        monkeypatch.setattr(_arrays, name, {})


def register_opaque(things: Simulation) -> None:
    """Register a simulated library whose dtypes only its record can name."""
    name, get = str(things.__name__), things.asnumpy
    _arrays.register(
        _arrays.Library(name=name, types=(f"{name}.ndarray",), xp=things, dtype_name=things.dtype_name, get=get)
    )


def forget_fallbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have calls with ``fused=True`` compile anew, and warn again if they fall back, as in a new process."""
    monkeypatch.setattr(_compilers, "_WARNED", set())
    for forget in (_fused_rotation._compiled, _table._compiled_table, _numba._why_not_imported):
        forget.cache_clear()
    ra.clear_caches()


def hide_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rope_any find no Numba until the test ends; call `forget_fallbacks` then."""
    monkeypatch.setitem(sys.modules, "numba", None)
    forget_fallbacks(monkeypatch)


def equal(got: Any, want: Any, get: Any) -> bool:
    """Whether results of two libraries are equal, up to float32's rounding; `get` makes NumPy arrays of the first."""
    if isinstance(want, tuple | list):
        return len(got) == len(want) and all(equal(*pair, get) for pair in zip(got, want, strict=True))
    data = get(got)
    return data.dtype == want.dtype and np.allclose(data, want, rtol=1e-5, atol=1e-5)
