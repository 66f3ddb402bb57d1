"""
CuPy without a GPU: the names and signatures of one version, over NumPy's memory.

Its arrays are on one of two devices, refuse those of NumPy, and count what makes a GPU and its host exchange data.
`tools/cupy_names.py` makes the list of names. The wrapper of array_api_compat and rope_any's adapter run on top.
"""

import inspect
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import array_api_compat
import numpy as np
import pytest
from host_kernels import HostKernel
from simulated import HostArray, forget_libraries

NAMES = json.loads(Path(__file__).with_name("cupy_names.json").read_text(encoding="utf-8"))
LOG: Counter[str] = Counter()
"""How often data were copied "from the host" or "to the host", and how often the host "waited"."""


class _State(threading.local):
    """What CUDA keeps for each thread."""

    device = 0
    capturing = False


_STATE = _State()


def _log(what: str) -> None:
    """Count a copy or a wait; a graph that is being captured has neither."""
    if _STATE.capturing:
        raise RuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")
    LOG[what] += 1


class Device:
    """A device; without a number, the current one. It can be compared, but not hashed."""

    def __init__(self, device: Any = None) -> None:
        """Store the number of the device."""
        self.id = _STATE.device if device is None else int(device)
        self._before: list[int] = []

    def __eq__(self, other: object) -> bool:
        """Whether `other` is the same device."""
        return isinstance(other, Device) and self.id == other.id

    def __int__(self) -> int:
        """Return the number."""
        return self.id

    def __repr__(self) -> str:
        """Return what CuPy prints."""
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> Self:
        """Make this device the current one until the block ends."""
        self._before.append(_STATE.device)
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        """Make the device current that was so before."""
        _STATE.device = self._before.pop()

    def use(self) -> None:
        """Make this device the current one."""
        assert self.id in {0, 1}, "cudaErrorInvalidDevice"
        _STATE.device = self.id

    def synchronize(self) -> None:
        """Wait for the device."""
        _log("waited")

    __hash__ = None


class Stream:
    """The one stream."""

    def synchronize(self) -> None:
        """Wait for the stream."""
        _log("waited")

    def begin_capture(self, mode: int | None = None) -> None:  # noqa: ARG002  # as in CuPy
        """Capture a graph instead of running what follows; here it runs all the same."""
        _STATE.capturing = True

    def end_capture(self) -> None:
        """End the capture."""
        _STATE.capturing = False

    def is_capturing(self) -> bool:
        """Whether a graph is being captured."""
        return _STATE.capturing


class ndarray(HostArray):  # noqa: N801  # as in CuPy
    """An array on the device that is current when it is made."""

    __module__ = "cupy"

    def __init__(self, host: Any) -> None:
        """Keep the memory of an array of NumPy."""
        super().__init__(host)
        self._device = _STATE.device

    @classmethod
    def _read(cls, value: Any) -> Any:
        """Return an array of the current device as NumPy's; raise for all other arrays."""
        if isinstance(value, cls) and value._device != _STATE.device:
            raise ValueError(f"array device = {value._device} while current = {_STATE.device}")
        return super()._read(value)

    @property
    def device(self) -> Device:
        """The device."""
        return Device(self._device)

    @property
    def data(self) -> Any:
        """The memory: address and device."""
        return SimpleNamespace(ptr=self._host.ctypes.data, device_id=self._device, device=self.device)

    @property
    def flags(self) -> Any:
        """The memory layout; nothing is read-only."""
        flags = self._host.flags
        return SimpleNamespace(c_contiguous=flags.c_contiguous, f_contiguous=flags.f_contiguous, owndata=flags.owndata)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> np.ndarray:
        """Return a copy on the host."""
        assert stream is out is None and blocking
        _log("to the host")
        return self._host.copy(order)

    def __getitem__(self, key: Any) -> "ndarray":
        """Return a view, or the elements that an array selects; how many a mask does, the host must wait to know."""
        for part in key if isinstance(key, tuple) else (key,):
            if isinstance(part, list) or (isinstance(part, ndarray) and part.dtype == bool):
                _log("from the host" if isinstance(part, list) else "waited")
        return super().__getitem__(key)

    def __len__(self) -> int:
        """Return the length of the first axis."""
        return len(self._host)

    def __repr__(self) -> str:
        """Return what NumPy prints."""
        return repr(self._host)

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Raise as CuPy does."""
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")


# --- functions and methods of the lists -------------------------------------------------------------------------------

_ARRAYS = {"a", "x", "array", "arr", "m", "ary", "tup", "condition"}
"""Names of first parameters that must be arrays, or tuples and lists of arrays."""
_COPYING = {"array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray"}
_WAITING = {"nonzero", "flatnonzero", "argwhere", "unique", "item", "tolist", "tobytes"}


def _function(of_numpy: Any, name: str, signature: str | None) -> Callable[..., Any]:
    """Return CuPy's function or method, which takes its own arguments and does what that of NumPy does."""
    bind = eval(f"lambda {(signature or '(*_, **__)')[1:-1]}: None")  # noqa: S307  # of our own file
    takes_arrays = next(iter(inspect.signature(bind).parameters), "") in _ARRAYS
    is_ufunc = isinstance(of_numpy, np.ufunc)

    def call(*args: Any, **kwargs: Any) -> Any:
        """Check the arguments, and run NumPy's function."""
        bind(*args, **kwargs)
        if name in _COPYING and not isinstance(args[0], ndarray):
            _log("from the host")
            return ndarray(np.array(of_numpy(*args, **kwargs)))
        if is_ufunc and any(isinstance(one, tuple | list) for one in args):
            raise TypeError("Unsupported type <class 'list'>")
        if name in _WAITING:
            _log("waited")
        elif takes_arrays and name not in _COPYING:
            for one in args[0] if isinstance(args[0], tuple | list) else args[:1]:
                if not isinstance(one, ndarray):
                    raise TypeError(f"Unsupported type {type(one)}")
        return ndarray._call(of_numpy, *args, **kwargs)

    return call


def _complete_class() -> None:
    """Add to `ndarray` the methods and attributes that do what NumPy's do."""
    for kind in (bool, int, float, complex):
        setattr(ndarray, f"__{kind.__name__}__", lambda x, kind=kind: kind(x.item()))
    for name, signature in NAMES["ndarray"].items():
        if name[0] != "_" and name not in vars(ndarray) and hasattr(np.ndarray, name):
            of_numpy = getattr(np.ndarray, name)
            setattr(ndarray, name, _function(of_numpy, name, signature) if signature else _attribute(name))


def _attribute(name: str) -> property:
    """Return an attribute with the value of that of NumPy's array, which needs no device."""
    return property(lambda x: ndarray._wrap(getattr(x._host, name)))


# --- modules ----------------------------------------------------------------------------------------------------------


def _modules() -> dict[str, ModuleType]:
    """Return CuPy's modules, by name; what NumPy has not, and the rest of `cuda`, is left out."""
    names = ("cupy", "cupy.cuda", "cupy.cuda.device", "cupy.linalg", "cupy.fft")
    found = {name: ModuleType(name) for name in names}
    cupy, cuda, device, linalg, fft = found.values()
    vars(cupy).update({name: getattr(np, name) for name in NAMES["from NumPy"] if hasattr(np, name)})
    ufuncs = {
        name: f"({', '.join(f'x{i}' for i in range(inputs))}, /, out=None, *, dtype=None, casting='same_kind')"
        for name, (inputs, _) in NAMES["ufuncs"].items()
    }
    for name, signature in {**NAMES["functions"], **ufuncs}.items():
        if hasattr(np, name):
            setattr(cupy, name, _function(getattr(np, name), name, signature))
    vars(cupy).update(cuda=cuda, linalg=linalg, fft=fft, ndarray=ndarray, asnumpy=ndarray.get, RawKernel=HostKernel)
    cupy.__version__, device.Device, stream = NAMES["version"], Device, Stream()
    runtime = SimpleNamespace(getDevice=lambda: _STATE.device, getDeviceCount=lambda: 2)
    linalg.lstsq = fft.__all__ = ()  # what array_api_compat imports; rope_any uses neither
    vars(cuda).update(Device=Device, Stream=Stream, device=device, runtime=runtime)
    vars(cuda).update(is_available=lambda: True, get_current_stream=lambda: stream)
    return found


_complete_class()
_LOADED: dict[str, ModuleType] = _modules()
cupy: Any = _LOADED["cupy"]
_BUILT_ON_IT = ("cupy.", "array_api_compat.cupy.", "rope_any._arrays.cupy.")


@contextmanager
def installed() -> Iterator[Any]:
    """Have all find this CuPy, until the block ends; array_api_compat and rope_any load their parts for it once."""

    def loaded() -> dict[str, ModuleType]:
        """Return the modules of CuPy and those built on it."""
        return {name: module for name, module in sys.modules.items() if f"{name}.".startswith(_BUILT_ON_IT)}

    with pytest.MonkeyPatch.context() as patch:
        for name in loaded():
            patch.delitem(sys.modules, name)
        forget_libraries(patch)
        patch.setattr(array_api_compat, "cupy", _LOADED.get("array_api_compat.cupy"), raising=False)
        sys.modules.update(_LOADED)
        import_module("array_api_compat.cupy")
        LOG.clear()
        _STATE.device = 0
        try:
            yield cupy
        finally:
            _LOADED.update(loaded())
            for name in _LOADED:
                sys.modules.pop(name, None)
