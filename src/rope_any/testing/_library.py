"""Check an array library: public calls with its arrays, and the fields of its record."""

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rope_any._arrays import Array, Library, State, is_array, require_array, type_name
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text

_Put: TypeAlias = Callable[[Any], Array]
_Get: TypeAlias = Callable[[Array], Any]
_Probes: TypeAlias = dict[str, Callable[[], bool]]
"""Tests of what a record does, by name."""
_BOUND, _WITHOUT_FLOAT64, _HALF = 5e-6, 2e-4, 1e-3
"""The largest accepted differences from results in float64, relative to numbers beyond 1; the last of float16."""


class Call(NamedTuple):
    """
    A typical call of a public function.

    Attributes
    ----------
    function : callable
        A function of arrays of any library.
    arrays : tuple of array
        Arguments of it, in NumPy: float16, float32 and int32.
    reads : bool
        Whether it reads the values of its arrays, so that it can't be traced.
    """

    function: Callable[..., Any]
    arrays: tuple[npt.NDArray[Any], ...]
    reads: bool


def calls() -> dict[str, Call]:
    """
    Return typical calls of all public functions that take arrays.

    Returns
    -------
    dict of str to Call
        The calls, by name. Their arrays are shared: do not write to them.

    Examples
    --------
    >>> function, arrays, _ = ra.testing.calls()["rope(q, k, int)"]
    >>> q, k = function(*arrays)
    >>> q.shape
    (2, 4, 3, 10)
    """
    return dict(_read_calls())


@cache
def _read_calls() -> dict[str, Call]:
    """Return all calls by name; later calls return the same dict."""
    from rope_any.testing import _calls

    named = {**_calls.CALLS, **_calls.READING}
    return {name: Call(function, tuple(arrays), name in _calls.READING) for name, (function, *arrays) in named.items()}


class LibraryReport(NamedTuple):
    """
    The result of `check_library`; ``print(report)`` shows it, ``bool(report)`` is `passed`.

    Attributes
    ----------
    library : str
        The name of the library in its record.
    passed : bool
        Whether nothing is wrong, and only calls with `out` or of float16 are refused.
    right : tuple of str
        The calls with right results.
    refused : dict
        The calls that this package refuses, or `put` for their dtype, and the error.
    wrong : dict
        The calls with a wrong result, or an error of the library, and what it is.
    fields : dict
        What does not return what it should: fields of the record, functions of its namespace as ``xp.take``, operators.
    """

    library: str
    passed: bool
    right: tuple[str, ...]
    refused: dict[str, str]
    wrong: dict[str, str]
    fields: dict[str, str]

    def __bool__(self) -> bool:
        """Return `passed`."""
        return self.passed

    def __str__(self) -> str:
        """Return the report as text of several lines."""
        total = len(self.right) + len(self.refused) + len(self.wrong)
        counts = f"{len(self.right)} right, {len(self.refused)} refused, {len(self.wrong)} wrong"
        lines = [f"{self.library}: {'passed' if self.passed else 'FAILED'}: of {total} calls {counts}"]
        parts = {"wrong fields and functions": self.fields, "wrong calls": self.wrong, "refused calls": self.refused}
        for heading, entries in parts.items():
            lines += [f"{heading}:"] * bool(entries) + [f"  {name}: {text}" for name, text in entries.items()]
        return "\n".join(lines)


def check_library(put: Callable[[Any], Array], get: Callable[[Array], Any], /) -> LibraryReport:
    """
    Run the public functions on arrays of a library, compare the results with float64, and test the library's record.

    Parameters
    ----------
    put : callable
        A NumPy array → an array of the library.
    get : callable
        An array of the library → a NumPy array.

    Returns
    -------
    LibraryReport
        The calls that are right, refused or wrong, and the fields of the record that would mend them.

    Raises
    ------
    TypeError
        If `put` returns no array, or one that is not supported, or `get` no array of NumPy with the same dtype.

    Notes
    -----
    NumPy computes the references in float64. A float32 result may differ by 5e-6, without float64 by 2e-4, and a
    float16 one by 1e-3, relative to numbers beyond 1. Shapes and dtypes must be those of NumPy's results, or 32-bit
    types for 64-bit ones.

    Examples
    --------
    >>> report = ra.testing.check_library(np.array, np.asarray)
    >>> report.passed, len(report.right) > 80
    (True, True)
    """
    x = put(np.zeros(1, dtype=np.float32))
    lib = require_array("put(array)", x)
    if not isinstance(found := get(x), np.ndarray) or found.dtype != np.float32:
        got = Text(f"{type_name(found)} of {getattr(found, 'dtype', 'no dtype')}")
        raise ArgumentTypeError("get(put(array))", "be an array of NumPy like the one given, float32", got)
    fields = _wrong_fields(lib, put, get)
    bound = _WITHOUT_FLOAT64 if "has_float64" in fields or not lib.has_float64(x) else _BOUND
    refused, faults = dict[str, str](), dict[str, str | None]()
    for name, call in calls().items():
        try:
            given = [put(array.copy()) for array in call.arrays]
            faults[name] = _fault(name, given, get, bound)
        except (ArgumentTypeError, ArgumentValueError) as error:
            refused[name] = str(error)
        except Exception as error:  # noqa: BLE001  # libraries raise their own kinds
            (refused if name == _HALF_CALL else faults)[name] = _shown(error)
    right, wrong = tuple(name for name in faults if not faults[name]), {k: v for k, v in faults.items() if v}
    passed = not wrong and not fields and refused.keys() <= {_HALF_CALL, "apply, out"}
    return LibraryReport(lib.name, passed, right, refused, wrong, fields)


_HALF_CALL = "apply, float16"


def _shown(error: Exception) -> str:
    """Return an exception of a library as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


# --- calls ------------------------------------------------------------------------------------------------------------


def _fault(name: str, given: list[Array], get: _Get, bound: float) -> str | None:
    """Return what is wrong with the result of a call on arrays of the library; None if nothing is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "fused=True falls back", RuntimeWarning)
        results = [get(part) if is_array(part) else part for part in _flat(calls()[name].function(*given))]
        like, wanted = _references(name)
    if len(results) != len(wanted):
        return f"{len(results)} results for {len(wanted)}"
    faults = (_difference(*each, bound) for each in zip(results, like, wanted, strict=True))
    return next((fault for fault in faults if fault is not None), None)


@cache
def _references(name: str) -> tuple[list[Any], list[Any]]:
    """Return the results of a call in NumPy, and those of its arrays in float64."""
    function, arrays, reads = calls()[name]
    exact = [x.astype(np.float64) if x.dtype.kind == "f" and not reads else x for x in arrays]
    return _flat(function(*arrays)), _flat(function(*exact))


def _flat(result: Any) -> list[Any]:
    """Return the arrays and numbers in nested tuples and lists, one after the other."""
    return [each for part in result for each in _flat(part)] if isinstance(result, tuple | list) else [result]


def _difference(got: Any, like: Any, wanted: Any, bound: float) -> str | None:
    """Return how an array differs from one in shape and dtype, and from another in its numbers; None if it doesn't."""
    got, like = np.asarray(got), np.asarray(like)
    narrow = {"float64": "float32", "int64": "int32"}.get(like.dtype.name)
    if got.shape != like.shape:
        return f"shape {got.shape} for {like.shape}"
    if got.dtype.name not in {like.dtype.name, narrow}:
        return f"{got.dtype} for {like.dtype}"
    error = float(np.max(np.abs(got - wanted) / np.maximum(np.abs(wanted), 1), initial=0))
    return None if error <= (_HALF if got.dtype == np.float16 else bound) else f"error {error:.1e} in {got.dtype}"


# --- fields of the record ---------------------------------------------------------------------------------------------

_DATA, _COUNTS = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4), np.arange(4, dtype=np.int32)
# Functions of the namespace, and operators, of these two arrays, and keywords for the device of new arrays; NumPy has
# them too.
_OF_NAMESPACE: dict[str, Callable[..., Any]] = {
    "%": lambda _, __, i, **___: (i - 2) % 3,
    "&": lambda _, __, i, **___: (i - 2) & 7,
    "*": lambda _, __, i, **___: (i - 2) * 2**30,
    "//": lambda _, __, i, **___: (i - 2) // 3,
    ">>": lambda _, __, i, **___: (i - 2) >> 1,
    "arange": lambda xp, _, __, **place: xp.arange(2, 9, 3, dtype=xp.int32, **place),
    "asarray": lambda xp, _, __, **place: xp.asarray([[1, 2], [3, 4]], dtype=xp.float32, **place),
    "broadcast_arrays": lambda xp, x, _, **__: xp.broadcast_arrays(x, x[:1, :, :1])[1],
    "broadcast_to": lambda xp, x, _, **__: xp.broadcast_to(x, (2, 2, 3, 4)),
    "concat": lambda xp, x, _, **__: xp.concat([x, x[:, :1, :]], axis=-2),
    "cos": lambda xp, x, _, **__: xp.cos(x),
    "exp": lambda xp, x, _, **__: xp.exp(x),
    "expand_dims": lambda xp, x, _, **__: xp.expand_dims(x, axis=-3),
    "floor": lambda xp, x, _, **__: xp.floor(x),
    "full": lambda xp, _, __, **place: xp.full((2,), 3, dtype=xp.int32, **place),
    "log": lambda xp, x, _, **__: xp.log(x + 3),
    "log1p": lambda xp, x, _, **__: xp.log1p(x + 3),
    "maximum": lambda xp, x, _, **__: xp.maximum(x, -x),
    "meshgrid": lambda xp, _, i, **__: xp.meshgrid(i, i, indexing="ij")[0],
    "minimum": lambda xp, x, _, **__: xp.minimum(x, -x),
    "moveaxis": lambda xp, x, _, **__: xp.moveaxis(x, 0, -1),
    "permute_dims": lambda xp, x, _, **__: xp.permute_dims(x, (2, 0, 1)),
    "reshape": lambda xp, x, _, **__: xp.reshape(x, (6, -1)),
    "round": lambda xp, _, i, **__: xp.round(xp.astype(i, xp.float32) + 0.5),
    "sin": lambda xp, x, _, **__: xp.sin(x),
    "stack": lambda xp, x, _, **__: xp.stack([x, x], axis=-1),
    "sum": lambda xp, x, _, **__: xp.sum(x, axis=(0, 1)),
    "take": lambda xp, x, i, **__: xp.take(x, i * 3 % 4, axis=2),
    "where": lambda xp, x, _, **__: xp.where(x > 0, x, -x),
    "zeros": lambda xp, _, __, **place: xp.zeros((2, 1), dtype=xp.float32, **place),
    "zeros_like": lambda xp, x, _, **__: xp.zeros_like(x),
}


def _wrong_fields(lib: Library, put: _Put, get: _Get) -> dict[str, str]:
    """Return the fields of a record that raise or return something else than they should, and what they do."""
    found = _failing(_probes_of_arrays(lib, put, get) | _namespace_probes(lib, put, get))
    operations = _failing(_probes_of_operations(lib, put, get))
    if "has_float64" in operations:
        operations.pop("has_float64_cosine", None)
    if any(name.startswith("xp.") for name in found):  # by default these are made from the namespace: see its faults
        operations = {name: text for name, text in operations.items() if name == "has_float64"}
    return found | operations


def _failing(probes: _Probes) -> dict[str, str]:
    """Return the names of the probes that return False or raise, and what is wrong."""
    found = {}
    for name, probe in probes.items():
        try:
            if not probe():
                found[name] = "does not return what it should"
        except Exception as error:  # noqa: BLE001  # libraries raise their own kinds
            found[name] = _shown(error)
    return found


def _equal(found: Any, wanted: npt.NDArray[Any]) -> bool:
    """Whether an array of NumPy has the shape, the dtype and the numbers of another."""
    same_kind = found.dtype == wanted.dtype and found.shape == wanted.shape
    return same_kind and bool(np.allclose(found, wanted, atol=1e-5))


def _namespace_probes(lib: Library, put: _Put, get: _Get) -> _Probes:
    """Return a test of each function in `_OF_NAMESPACE`, by its name."""

    def probe(function: Callable[..., Any]) -> bool:
        """Whether a function has the same result for the library as for NumPy."""
        given = [put(_DATA.copy()), put(_COUNTS.copy())]
        with np.errstate(all="ignore"):
            return _equal(get(function(lib.xp, *given, **lib.device_kwargs(given[0]))), function(np, _DATA, _COUNTS))

    named = {name if name[0] in "%&*/>" else f"xp.{name}": function for name, function in _OF_NAMESPACE.items()}
    return {name: partial(probe, function) for name, function in named.items()}


def _probes_of_arrays(lib: Library, put: _Put, get: _Get) -> _Probes:
    """Return a test of each field that tells what arrays are, by its name."""
    x, i = put(_DATA.copy()), put(_COUNTS.copy())

    def has_parts_of_state() -> bool:
        """Whether the state of x is one, and the record has the part that it needs."""
        parts = {State.HOST: lib.host, State.RECORDED: lib.gradients, State.PARTITIONED: lib.map_partitions}
        return isinstance(state := lib.state(x), State) and parts.get(state, lib) is not None

    def tells_apart() -> bool:
        """Whether the facts of arrays are the same for the same kind, and others for another dtype or shape."""
        facts = list[tuple[Any, ...]]()
        for array in (x, put(_DATA.copy()), put(_DATA.astype(np.int32)), x[:1, ...]):
            found: list[Any] = []
            if not lib.add_facts((array,), found):
                return array is x
            facts.append(tuple(found))
        return facts[0] == facts[1] and len({*facts}) == 3

    def can_be_written() -> bool:
        """Whether x can be assigned to, or the record says that it can't."""
        if lib.why_read_only(x) is None:
            x[...] = x + 0
        return True

    def makes_like() -> Array:
        """Return a new array on the device of x, added to one of x."""
        return lib.xp.asarray([1.0], dtype=lib.xp.float32, **lib.device_kwargs(x)) + x[0, 0, :1]

    return {
        "state": has_parts_of_state,
        "add_facts": tells_apart,
        "placement": lambda: bool(lib.placement(x) == lib.placement(i)),
        "dtype_name": lambda: [lib.dtype_name(a.dtype) for a in (x, i)] == ["float32", "int32"],
        "get": lambda: _equal(lib.get(x), _DATA),
        "device_kwargs": lambda: _equal(get(makes_like()), _DATA[0, 0, :1] + 1),
        "why_read_only": can_be_written,
    }


def _probes_of_operations(lib: Library, put: _Put, get: _Get) -> _Probes:
    """Return a test of each field that computes, by its name."""
    x, i, xp = put(_DATA.copy()), put(_COUNTS.copy()), lib.xp

    def has_cosine(*, bound: float) -> bool:
        """Whether cosines of float64, if the device has it, are as exact as `bound`."""
        if not lib.has_float64(x):
            return True
        cosines = get(xp.cos(xp.astype(x, xp.float64)))
        return cosines.dtype == np.float64 and bool(np.max(np.abs(cosines - np.cos(_DATA.astype(np.float64)))) < bound)

    return {
        "has_float64": lambda: has_cosine(bound=1e-6),
        "has_float64_cosine": lambda: not lib.has_float64_cosine or has_cosine(bound=1e-15),
        "astype": lambda: _equal(get(lib.astype(i, xp.float32)), _COUNTS.astype(np.float32)),
        "concat": lambda: _equal(get(lib.concat([x, x[..., :1]])), np.concatenate([_DATA, _DATA[..., :1]], -1)),
        "stack": lambda: _equal(get(lib.stack([x, x], axis=-2)), np.stack([_DATA, _DATA], -2)),
        "matmul": lambda: _equal(get(lib.matmul(x, put(_DATA[0].T.copy()))), _DATA @ _DATA[0].T),
        "cumulative_sum": lambda: _equal(get(lib.cumulative_sum(x, axis=1)), np.cumsum(_DATA, 1, dtype=np.float32)),
        "cumulative_max": lambda: _equal(get(lib.cumulative_max(i)), _COUNTS),
        "reshape_last_axes": lambda: _equal(get(lib.reshape_last_axes(x, 1, 2, 2)), _DATA.reshape(2, 3, 2, 2)),
        "broadcast_to_rank": lambda: _equal(get(lib.broadcast_to_rank(x[0, 0, :], 3) + x), _DATA[0, 0] + _DATA),
        "xp.searchsorted": lambda: bool(np.array_equal(get(lib.count_at_or_below(i, i)), _COUNTS + 1)),
        "empty_like": lambda: get(lib.empty_like(x)).dtype == _DATA.dtype,
    }
