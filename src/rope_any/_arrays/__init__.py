"""
Find the record of an array's library: what its arrays can do and how.

Each library that differs from the array API standard has a file here, named like its package and imported when its
first array arrives. Other modules use the record and name no library.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import reduce
from numbers import Number
from typing import Any, TypeGuard, get_origin

import array_api_compat as compat

from rope_any._arrays._library import (
    FLOATING,
    Array,
    Compiler,
    Gradients,
    HostMemory,
    Library,
    State,
    X,
    refuse_unit,
    type_name,
)
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text

__all__ = [
    "FLOATING",
    "Array",
    "Compiler",
    "Gradients",
    "HostMemory",
    "Library",
    "State",
    "X",
    "type_name",
]  # re-exported from `_library`

_FILES = frozenset(file.name for file in pkgutil.iter_modules(__path__) if not file.name.startswith("_"))
_PARENT_PACKAGE = {"jaxlib": "jax"}  # a package that defines array classes of another one -> that one
_BY_CLASS: dict[str, Library] = {}  # "package.Class" -> record
_BY_TYPE: dict[type, Library] = {}  # array type -> record, filled by `find`
_DEFAULT_RECORDS: dict[Any, Library] = {}  # namespace of a library without a file -> its record, all defaults


def register(record: Library) -> None:
    """
    Register the record of an array library, whose arrays are then taken everywhere.

    Parameters
    ----------
    record : Library
        The record. It replaces an earlier one of the same `name` or class.

    Raises
    ------
    TypeError
        If `record` is no `Library`.
    ValueError
        If its `types` are no tuple of ``"package.Class"``, or the package is one whose record comes with rope_any.

    Notes
    -----
    Threads that run calls meanwhile may use either record.

    Examples
    --------
    >>> from array_api_compat import numpy as xp
    >>> register(Library(name="mine", xp=xp, types=("mine.Array",)))
    """
    if not isinstance(record, Library):
        raise ArgumentTypeError("record", "be a Library", record)
    for part, kind in (("host", HostMemory), ("compiler", Compiler), ("gradients", Gradients)):
        if not isinstance(value := getattr(record, part), kind | None):
            raise ArgumentTypeError(part, f"be a {kind.__name__}, or None", value)
    for field in fields(record):
        if get_origin(field.type) is Callable and not callable(value := getattr(record, field.name)):
            raise ArgumentTypeError(field.name, "be a function", value)
    names = [str(name).split(".") for name in record.types] if isinstance(record.types, tuple) else []
    if not names or any(len(parts) != 2 or parts[0] in _FILES for parts in names):
        wanted = 'be classes as ("package.Class",), of a package whose record does not come with rope_any'
        raise ArgumentValueError("types", wanted, record.types)
    global _BY_TYPE  # noqa: PLW0603  # see below
    for name in [name for name, known in _BY_CLASS.items() if known.name == record.name]:
        del _BY_CLASS[name]
    _BY_CLASS.update(dict.fromkeys(record.types, record))
    _BY_TYPE = {}  # a thread that looks an array up meanwhile writes to the old one


def find(x: object) -> Library | None:
    """Return the record of an array's library, or a new one of defaults if it has none; None if `x` is not an array."""
    kind = type(x)
    if is_compiling():  # Dynamo would guard a dict lookup and recompile as the dict grows; it can follow this import
        from rope_any._arrays.torch import LIBRARY

        return LIBRARY if issubclass(kind, LIBRARY.xp.Tensor) else _look_up(kind, x)
    known = _BY_TYPE
    if kind in known:
        return known[kind]
    found = _look_up(kind, x)
    return None if found is None else known.setdefault(kind, found)  # only array types are cached


def is_compiling() -> bool:
    """Whether torch.compile is tracing now. If so, callers neither read nor write caches."""
    return getattr(sys.modules.get("torch.compiler"), "is_compiling", bool)()


def is_symbol(value: object) -> bool:
    """Whether `value` is an integer that a tracer knows only by a symbol, as a dynamic length under torch.export."""
    kind = type(value)
    if kind is int:
        return is_compiling() and not _is_static(value)  # torch.compile shows its symbols as ints
    # no other number converts to an int and not to a float
    return hasattr(kind, "__int__") and hasattr(kind, "__floordiv__") and not hasattr(kind, "__float__")


def known(numbers: Sequence[Any]) -> Sequence[Any]:
    """Return the numbers whose values a tracer knows, all in eager code: those without symbols."""
    if not is_compiling() and {*map(type, numbers)} <= {int, float}:  # the common case
        return numbers
    return [number for number in numbers if not is_symbol(number)]


def known_difference(n: Any, m: Any) -> Any:
    """Return n - m of lengths; None if a tracer does not know it. To compare symbols would raise, or add a guard."""
    difference = n - m
    unknown = not _is_static(difference) if is_compiling() else is_symbol(difference)
    return None if unknown else difference


def largest(*numbers: Any) -> Any:
    """Return the largest of numbers; for JAX's symbols, whose order it may not know, an expression of them."""
    if not is_compiling() and any(type(number).__module__.startswith("jax.") for number in numbers):
        from jax.core import max_dim

        return reduce(max_dim, numbers)
    return max(numbers)


def _is_static(value: Any) -> bool:
    """Whether the value of an int is known while torch traces."""
    from rope_any._arrays.torch import has_static_value

    return has_static_value(value)


def break_graph(reason: str) -> None:
    """Break torch.compile's graph if it traces, in new torch; with ``fullgraph=True`` the error shows the reason."""
    if is_compiling() and hasattr(dynamo := sys.modules["torch._dynamo"], "error_on_graph_break"):
        dynamo.graph_break(msg=reason)  # it has `msg` at least in versions with the other function


def signature(arrays: tuple[Array | None, ...], *options: Any) -> tuple[Any, ...] | None:
    """Return a plan's key, of options and what `Library.add_facts` says of arrays; None unless it can say that."""
    if is_compiling() or (record := _BY_TYPE.get(type(arrays[0]))) is None:
        return None
    facts: list[Any] = [record, *options]
    return tuple(facts) if record.add_facts(arrays, facts) else None


def _look_up(kind: type, x: object) -> Library | None:
    """Return the `Library` for x of class `kind`: from its package's file, registered, or default; None if no array."""
    known = False  # whether kind is of a package with a file; a mixin, which has no shape, doesn't make it so
    for cls in kind.__mro__:
        package = str(cls.__module__).partition(".")[0]
        package = _PARENT_PACKAGE.get(package, package)
        if package in _FILES:
            known = known or hasattr(cls, "shape")
            record: Library = importlib.import_module(f"{__name__}.{package}").LIBRARY
            for name in record.types:
                _BY_CLASS.setdefault(name, record)
        if (found := _BY_CLASS.get(f"{package}.{cls.__name__.rpartition('.')[2]}")) is not None:
            return found
    if known or not compat.is_array_api_obj(x):
        return None
    try:
        xp = compat.array_namespace(x)
        return _DEFAULT_RECORDS.setdefault(xp, Library(name=str(kind.__module__).partition(".")[0], xp=xp))
    except Exception:  # noqa: BLE001  # an object that looks like an array may raise anything, and its xp lack anything
        return None


def is_array(x: object) -> TypeGuard[Array]:
    """Whether `x` is an array of any library (NumPy scalars count as numbers, not arrays)."""
    if isinstance(x, int | float | str | range | tuple | list | None):
        return False  # decided by type alone: adds no torch.compile guard
    return find(x) is not None


def require_array(name: str, x: object) -> Library:
    """Return the record of the library of `x`; raise unless x, the argument called `name`, is a supported array."""
    record = find(x) if is_array(x) else None
    if record is None:
        wanted = "be an array (NumPy, CuPy, PyTorch, JAX, ...)"
        raise ArgumentTypeError(name, wanted, Text(type_name(x)), _array_hint(name, x))
    if (refusal := record.refusal(x)) is not None:
        hint = "" if _is_output(name) else refusal.hint
        raise ArgumentTypeError(name, f"be {refusal.wanted}", Text(refusal.got), hint)
    return record


def library(**arrays: Array) -> Library:
    """Return the `Library` of arrays (keywords: names in errors); raise for a non-array, two libraries or devices."""
    given = tuple(arrays.values())
    record = find(given[0])
    if record is not None and record.are_plain(given):
        return record
    records = {name: require_array(name, array) for name, array in arrays.items()}
    record, *others = records.values()
    if any(other is not record for other in others):
        found = Text(", ".join(f"{name} of {record.name}" for name, record in records.items()))
        raise ArgumentTypeError(" and ".join(arrays), "come from one array library", found, _library_hint(records))
    _require_same_placement(record, arrays)
    return record


def _array_hint(name: str, x: object) -> str:
    """Return the hint of an error: what to write for the argument `name` if `x` is not an array; "" if unknown."""
    if hint := _conversion_hint(name, x):
        return hint
    if name == "like":
        return "give like=q, an array of the library and on the device that are wanted"
    if name == "w" and is_array(getattr(x, "weight", None)):
        return "give w.weight"
    if isinstance(x, Number | list | tuple | memoryview):
        return "" if _is_output(name) else "make an array of it, as by asarray()"
    return ""


def refuse_foreign(name: str, x: object) -> None:
    """Raise if `x`, the argument called `name`, is an array of a library that is not supported; not for all else."""
    # torch.compile can't ask a symbol, which is an int there, for attributes, nor, before torch 2.13, a tuple's class
    if not isinstance(x, int | tuple | list) and not is_array(x) and _conversion_hint(name, x):
        require_array(name, x)


def _conversion_hint(name: str, x: object) -> str:
    """Return how to convert the argument `name`, an array of an unsupported library; "" if `x` is no such array."""
    package, view, copy = type_name(x).partition(".")[0], hasattr(x, "__dlpack__"), hasattr(x, "__array__")
    copy = (copy or hasattr(x, "__array_interface__")) and not _is_output(name)
    is_foreign = package not in _FILES and hasattr(x, "shape")
    if isinstance(x, type | Number | memoryview) or not (is_foreign or view or copy):
        return ""
    if (with_unit := refuse_unit(x)) is not None and with_unit.hint:
        return with_unit.hint
    ways = ["by from_dlpack() of a library that does"] * view + ["by numpy.asarray()"] * copy
    way = f"convert it {', or '.join(ways)}" if ways else "convert it to an array of one that does"
    return way if package in _FILES else f"{package} does not follow the array API; {way}; or see rope_any.arrays"


def _is_output(name: str) -> bool:
    """Whether `name`, of an argument, is that of an array to write into: a copy of it would get the result."""
    return "out" in name.split()


def _library_hint(records: dict[str, Library]) -> str:
    """Return the hint of an error for records, by argument, that differ: convert all to that of `like` or the first."""
    first = "like" if "like" in records else next(iter(records))  # what all are to be like
    record = records[first]
    others = [name for name, other in records.items() if other is not record]
    return f"convert {' and '.join(others)} to {record.name}{_or_made_like(first, others)}"


def _or_made_like(first: str, names: list[str]) -> str:
    """Return ", or make the table with like=`first`" for a hint, if the first of `names` is a cos or sin; else ""."""
    return f", or make the table with like={first}" if names[0].startswith(("cos", "sin")) else ""


def _require_same_placement(record: Library, arrays: dict[str, Array]) -> None:
    """Raise unless the named arrays are on one device (with placement None: on any) and pass `check_placement`."""
    first, first_placement = "", None
    for name, array in arrays.items():
        placement = record.placement(array)
        if first_placement is None:
            first, first_placement = name, placement
        elif placement is not None and placement != first_placement:
            got = Text(f"{_device_text(first_placement)} and {_device_text(placement)}")
            hint = f"move {name} to the device of {first}{_or_made_like(first, [name])}"
            raise ArgumentValueError(f"{first} and {name}", "be on one device", got, hint)
    record.check_placement(arrays)


def _device_text(placement: Any) -> str:
    """Return a device as text, or the devices of a frozenset, sorted and separated by commas."""
    return ", ".join(sorted(map(str, placement))) if isinstance(placement, frozenset) else str(placement)


def host(x: Array) -> Any:
    """Convert an array of any library, of a dtype that NumPy has, to NumPy; raise a TypeError for other objects."""
    return require_array("x", x).get(x)
