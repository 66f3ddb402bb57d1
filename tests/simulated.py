"""What is not as installed: libraries simulated by NumPy, which count copies of host data; a process without Numba."""

import sys
from dataclasses import dataclass
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
import pytest

import rope_any as ra
from rope_any import _arrays, _fused_rotation, _table
from rope_any._arrays import _compilers, _numba

_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul")
_OTHERS = ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "invert", "abs")
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


class HostArray:
    """NumPy's data, which functions of NumPy read if they are called by `_call`."""

    __array_ufunc__ = None  # NumPy's arrays leave operators to those of this class, which refuse them
    __hash__ = None

    def __init__(self, host: Any) -> None:
        """Keep the data."""
        self._host = np.asarray(host)

    @classmethod
    def _call(cls, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what a function of NumPy returns for arrays of this class, as such arrays."""
        result = function(*cls._unwrap(args), **{name: cls._unwrap(value) for name, value in kwargs.items()})
        same = [x for x in args if isinstance(x, cls) and x._host is result]  # written in place, or not copied
        return same[0] if same else cls._wrap(result)

    @classmethod
    def _wrap(cls, value: Any) -> Any:
        """Return NumPy's arrays and scalars, also those in a tuple or list, as arrays of this class."""
        if isinstance(value, tuple | list):
            return type(value)(map(cls._wrap, value))
        return cls(value) if isinstance(value, np.ndarray | np.generic) else value

    @classmethod
    def _unwrap(cls, value: Any) -> Any:
        """Return arrays of this class, also those in a tuple or list, as NumPy's."""
        return type(value)(map(cls._unwrap, value)) if isinstance(value, tuple | list) else cls._read(value)

    @classmethod
    def _read(cls, value: Any) -> Any:
        """Return an array of this class as NumPy's; raise for all other arrays."""
        if isinstance(value, cls):
            return value._host
        if hasattr(value, "__array__") and not isinstance(value, np.generic | type):
            raise TypeError(f"Unsupported type {type(value)}")
        return value

    def __getitem__(self, key: Any) -> Any:
        """Return a view or selected elements."""
        return self._call(np.ndarray.__getitem__, self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write elements."""
        self._call(np.ndarray.__setitem__, self, key, value)


def _operator(name: str) -> Any:
    """Return the method of `HostArray` for an operator of NumPy's arrays."""

    def operate(self: HostArray, *others: Any) -> Any:
        """Apply the operator to an array and a scalar or array."""
        if any(isinstance(other, tuple | list) for other in others):
            raise TypeError(f"Unsupported type {type(others[0])}")
        return self._call(getattr(np.ndarray, name), self, *others)

    return operate


for _name in (*(f"{how}{name}" for how in ("", "r", "i") for name in _BINARY), *_OTHERS):
    setattr(HostArray, f"__{_name}__", _operator(f"__{_name}__"))


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
        return partial(self._run, value) if callable(value) else value

    def _run(self, function: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        """Call a function of NumPy with the data of arrays; the device is the only one."""
        del device
        return self.ndarray._call(function, *args, **kwargs)

    def __array_namespace_info__(self) -> Any:
        """Return the namespace's information: only the floating-point dtypes by name."""
        return SimpleNamespace(dtypes=lambda **_: {name: getattr(self, name) for name in _FLOATING})

    def asarray(self, data: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
        """Return data as an array, and count the copy if they come from the host."""
        del device
        if not isinstance(data, _Array):
            self.copies += 1
        host = self.ndarray._read(data) if isinstance(data, _Array) else np.asarray(data)
        return self.ndarray(np.array(host, dtype=self.ndarray._read(dtype), copy=copy or None))

    def asnumpy(self, x: Any) -> Any:
        """Return the values of an array as a NumPy array."""
        return x._host.copy()

    def dtype_name(self, dtype: Any) -> str:
        """Return the name of a dtype of this library; raise for all else."""
        return dtype.numpy.name if self.opaque else np.dtype(dtype).name


class _Array(HostArray):
    """An array of a simulated library: NumPy's data, which nothing can read but `asnumpy`."""

    simulation: Simulation

    def __init__(self, host: Any) -> None:
        """Keep the data."""
        super().__init__(host)
        for name in ("shape", "ndim", "size", "nbytes", "itemsize", "strides"):
            setattr(self, name, getattr(self._host, name))
        if not self.simulation.opaque:
            self.device = "things:0"

    @property
    def dtype(self) -> Any:
        """The dtype, opaque if those of the library are."""
        return Dtype(self._host.dtype) if self.simulation.opaque else self._host.dtype

    @property
    def flags(self) -> Any:
        """The memory layout."""
        return SimpleNamespace(c_contiguous=self._host.flags.c_contiguous)

    @classmethod
    def _read(cls, value: Any) -> Any:
        """Return dtypes of this library as NumPy's too; raise for NumPy's scalars and dtypes if those are opaque."""
        if cls.simulation.opaque and isinstance(value, np.generic | np.dtype | type):
            raise TypeError(f"unsupported type {type(value)}")
        return value.numpy if isinstance(value, Dtype) else super()._read(value)

    def __array_namespace__(self, **_: Any) -> Simulation:
        """Return the namespace."""
        return self.simulation

    def astype(self, dtype: Any) -> Any:
        """Return the array in another dtype."""
        return self.simulation.astype(self, dtype)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        """Raise: nothing may read values, which waits for a GPU."""
        raise TypeError("values are on the device")

    __bool__ = __int__ = __float__ = __index__ = __len__ = __iter__ = __array__ = _refuse


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
