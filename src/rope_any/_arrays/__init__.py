"""
What is known of array libraries: a record for each, found by the type of an array.

The folder has a file for each library whose arrays differ from the array API standard, named like its package; a file
is imported when the first array of its library is met. All other modules ask the record, and name no library.
"""

import importlib
import pkgutil
import sys
from typing import Any, TypeGuard

import array_api_compat as compat

from rope_any._arrays._library import FLOATING, Array, Compiler, HostMemory, Library, X
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text

__all__ = ["FLOATING", "Array", "Compiler", "HostMemory", "Library", "X"]  # from `_library`, to be had from here

_FILES = frozenset(file.name for file in pkgutil.iter_modules(__path__) if not file.name.startswith("_"))
_PART_OF = {"jaxlib": "jax"}  # a package with classes of arrays -> the one that it is a part of
_BY_CLASS: dict[str, Library] = {}  # "package.Class" -> the record
_BY_TYPE: dict[type, Library] = {}  # what was found for a type
_WITHOUT_FILE: dict[Any, Library] = {}  # namespace -> the record, all defaults, of a library that nothing here knows


def register(record: Library) -> None:
    """
    Make known the record of a library that has no file here; it takes the place of one registered before.

    It raises a TypeError if the record is no `Library`, and a ValueError if its `types` name no classes of arrays, or
    classes of a library that has a file.
    """
    if not isinstance(record, Library):
        raise ArgumentTypeError("record", "be a Library", record)
    names = [name.split(".") for name in record.types] if isinstance(record.types, tuple) else []
    if not names or any(len(parts) != 2 or parts[0] in _FILES for parts in names):
        wanted = 'be classes as ("package.Class",), of a package without a file here'
        raise ArgumentValueError("types", wanted, record.types)
    for name in [name for name, known in _BY_CLASS.items() if known.name == record.name]:
        del _BY_CLASS[name]
    _BY_CLASS.update(dict.fromkeys(record.types, record))
    _BY_TYPE.clear()


def find(x: object) -> Library | None:
    """Return the record of the library that `x` is an array of, or None if it is no array."""
    kind = type(x)
    if is_compiling():  # a look into a dict would be guarded, and compiled anew as that grows; this import is followed
        from rope_any._arrays.torch import LIBRARY

        return LIBRARY if issubclass(kind, LIBRARY.module.Tensor) else _look_up(kind, x)
    if kind in _BY_TYPE:
        return _BY_TYPE[kind]
    found = _look_up(kind, x)
    return None if found is None else _BY_TYPE.setdefault(kind, found)  # only types of arrays are kept


def is_compiling() -> bool:
    """Whether torch.compile is tracing now. Callers then neither read nor write what is kept between calls."""
    return getattr(sys.modules.get("torch.compiler"), "is_compiling", bool)()


def signature(arrays: tuple[Array | None, ...]) -> tuple[Any, ...] | None:
    """
    Return what is decided once for arrays like these depends on: their dtypes, devices, shapes and strides.

    It is None where nothing may be kept: the arrays are not all of the library's own class, or something traces,
    transforms or records them, which is asked for anew in each call.
    """
    if is_compiling() or (record := _BY_TYPE.get(type(arrays[0]))) is None:
        return None
    facts = record.signature(arrays)
    return None if facts is None else (record, facts)


def _look_up(kind: type, x: object) -> Library | None:
    """Return the record for a type by its classes, or one with all defaults for a library without a file."""
    known = False
    for cls in kind.__mro__:
        package = str(cls.__module__).partition(".")[0]
        package = _PART_OF.get(package, package)
        if package in _FILES:
            known = True
            record: Library = importlib.import_module(f"{__name__}.{package}").LIBRARY
            for name in record.types:
                _BY_CLASS.setdefault(name, record)
        if (found := _BY_CLASS.get(f"{package}.{cls.__name__.rpartition('.')[2]}")) is not None:
            return found
    if known or not compat.is_array_api_obj(x):
        return None
    try:
        xp = compat.array_namespace(x)
    except Exception:  # noqa: BLE001  # of any kind: what looks like an array may raise what it likes
        return None
    return _WITHOUT_FILE.setdefault(xp, Library(name=str(kind.__module__).partition(".")[0], xp=xp))


def is_array(x: object) -> TypeGuard[Array]:
    """Whether `x` is an array (NumPy's scalars are numbers here, not arrays)."""
    if isinstance(x, int | float | str | range | tuple | list | None):
        return False  # decided by the type alone, without a guard of torch.compile
    return find(x) is not None


def require_array(name: str, x: object) -> Library:
    """Return the record of the library of `x`; raise unless `x`, called `name`, is an array that can be used."""
    record = find(x) if is_array(x) else None
    if record is None:
        raise ArgumentTypeError(name, "be an array (NumPy, CuPy, PyTorch, JAX, ...)", Text(type(x).__name__))
    if (refusal := record.refusal(x)) is not None:
        wanted, got = refusal
        raise ArgumentTypeError(name, f"be {wanted}", Text(got))
    return record


def library(**arrays: Array) -> Library:
    """
    Return the record of the library of the named arrays.

    It raises a TypeError if one is no array or they come from several libraries, and a ValueError if they are on
    several devices, or not on the one where their library makes new arrays.
    """
    given = tuple(arrays.values())
    record = find(given[0])
    if record is not None and record.are_plain(given):
        return record
    records = {name: require_array(name, array) for name, array in arrays.items()}
    record, *others = records.values()
    if any(other is not record for other in others):
        found = Text(", ".join(f"{name} of {record.name}" for name, record in records.items()))
        raise ArgumentTypeError(" and ".join(arrays), "come from one array library", found)
    _require_same_placement(record, arrays)
    return record


def _require_same_placement(record: Library, arrays: dict[str, Array]) -> None:
    """Raise unless all arrays are on one device, and their library can combine them."""
    first, place = "", None
    for name, array in arrays.items():
        here = record.placement(array)
        if place is None:
            first, place = name, here
        elif here is not None and here != place:
            got = Text(f"{_shown(place)} and {_shown(here)}")
            raise ArgumentValueError(f"{first} and {name}", "be on one device", got)
    record.check_placement(arrays)


def _shown(place: Any) -> str:
    return ", ".join(sorted(map(str, place))) if isinstance(place, frozenset) else str(place)


# --- libraries that can be installed: for the command line, which finds them without an array -----------------------


# Each by its title: the package that is imported, and the extra that brings it (NumPy is always there).
INSTALLABLE = {
    "NumPy": ("numpy", ""),
    "CuPy": ("cupy", "cupy-cuda12x or cupy-cuda13x"),
    "PyTorch": ("torch", "torch"),
    "JAX": ("jax", "jax"),
    "Dask": ("dask", "dask"),
    "MLX": ("mlx", "mlx"),
    "array-api-strict": ("array_api_strict", "test"),
}


def installed(title: str) -> Library | None:
    """Return the record of a library of `INSTALLABLE`, whose package is imported; None if it is not installed."""
    try:
        record: Library = importlib.import_module(f"{__name__}.{INSTALLABLE[title][0]}").LIBRARY
    except ImportError:
        return None
    return record


def version(record: Library) -> str:
    """Return the version of a library."""
    root = importlib.import_module(record.name)
    return str(getattr(record.module, "__version__", None) or root.__version__)


def host(x: Array) -> Any:
    """Return an array of any library, of a dtype that NumPy has, as NumPy data."""
    return require_array("x", x).get(x)
