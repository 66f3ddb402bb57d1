"""A rotary function under test, and how to call it."""

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from rope_any._arrays import Array, Library, find, host, require_array, type_name
from rope_any._positions import as_position_array
from rope_any._rope import Rope
from rope_any.layouts import LAYOUTS, pack
from rope_any.testing._exact import Data, features
from rope_any.testing._rotary import members_of

BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}  # after the point of a number from 1 to 2
SHAPES = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (2, 0, 1, 3), "thd": (0, 2, 1, 3)}
"""
The order of batch, heads, sequence and features in each shape of x, out of ``(batch, heads, seq, head_dim)``.

In "thd" the tokens of all rows are then joined.
"""


class RefusedError(Exception):
    """The function raised, or its result has a wrong type or shape."""


class Subject(NamedTuple):
    """A function under test, and the array library to call it with."""

    function: Callable[..., Any]
    lib: Library
    like: Array
    rope: Rope
    shape: str
    """A key of `SHAPES`."""
    table: str | None
    """The layout of the tables that the function takes in place of positions; None if it takes positions."""
    asked: frozenset[str]
    """The names of the options of `check_rotary` that are True."""
    passthrough: list[int]
    """The features that should pass through."""
    violations: dict[str, float]
    """The largest deviation of all calls so far from what each must keep to the last bit; updated by each call."""

    @property
    def dtype(self) -> str:
        """The name of the dtype of x."""
        return self.lib.dtype_name(self.like.dtype)

    def features(self, *shape: int) -> Data:
        """Return NumPy input numbers of this shape that use all digits of the dtype of `like`, equal in each call."""
        return features(*shape, bits=BITS[self.dtype])

    def put(self, data: Data) -> Array:
        """Return NumPy data as an array of the library, device and dtype of `like`."""
        real = self.lib.compute_dtype(self.like)
        x = self.lib.xp.asarray(data.copy(), dtype=real, **self.lib.device_kwargs(self.like))
        return self.lib.cast(x, self.like.dtype)

    def get(self, x: Array) -> Data:
        """Return an array of any library as float64 NumPy data."""
        lib = require_array("x", x)
        return lib.get(lib.cast(x, lib.compute_dtype(x))).astype(np.float64)  # type: ignore[no-any-return]  # of NumPy

    def run(self, x: Array, positions: Array) -> Any:
        """Call the function; return its result (x if `in_place`); if `keys`, split heads into q, k; join results."""
        arguments = self.arguments(x, positions)
        given = [arguments[name] for name in ("x", "q", "k") if name in arguments]
        y = self.function(*arguments.values())
        results: Any = y if len(given) > 1 else (y,)
        if "in_place" in self.asked:
            results = given
        if not isinstance(results, tuple | list) or len(results) != len(given):
            raise RefusedError(f"returned {type_name(y)}, where q and k are two")
        for part, result in zip(given, results, strict=True):
            if (problem := _why_invalid(self.lib, result, part)) is not None:
                raise RefusedError(problem)
        found = [self._unshaped(result, x) for result in results]
        return self.lib.xp.concat(found, axis=1) if len(found) > 1 and x.shape[1] > 1 else found[0]

    def arguments(self, x: Array, positions: Array) -> dict[str, Array]:
        """Return the arguments of the function by name: x, or its heads as q and k, then `_places`."""
        heads, parts = x.shape[1], {"x": x}
        shared = heads // 2 if is_by_head(self.rope) else max(heads // 3, 1)
        if "keys" in self.asked:  # one head is q and k, and the result for q counts
            q, k = (x[:, : heads - shared, :, :], x[:, heads - shared :, :, :]) if heads > 1 else (x, x + 0)
            parts = {"q": q, "k": k}
        shaped = {name: self._shaped(part) for name, part in parts.items()}
        return shaped | self._places(positions, rows=x.shape[0])

    def call(self, data: Data, positions: Any) -> str:
        """Return the call of the function for x = `data` as text, with the dtype and the shape of each argument."""
        arguments = self.arguments(self.put(data), as_position_array(positions, like=self.like))
        texts = (f"{name} {self.lib.dtype_name(x.dtype)} {tuple(x.shape)}" for name, x in arguments.items())
        return f"function({', '.join(texts)})"

    def _shaped(self, x: Array) -> Array:
        """Return x ``(batch, heads, seq, head_dim)`` in the shape that the function takes."""
        x = self.lib.xp.permute_dims(x, SHAPES[self.shape])
        return self.lib.xp.reshape(x, (-1, *x.shape[2:])) if self.shape == "thd" else x

    def _unshaped(self, y: Array, x: Array) -> Array:
        """Return a result, of any number of heads, in the order of x ``(batch, heads, seq, head_dim)``."""
        order = SHAPES[self.shape]
        y = self.lib.xp.reshape(y, tuple(-1 if axis == 1 else x.shape[axis] for axis in order))
        y = self.lib.xp.permute_dims(y, tuple(int(i) for i in np.argsort(order)))
        return self._in_order_of_x(y)

    def _in_order_of_x(self, y: Array) -> Array:
        """Return a result whose features of each pair, if the Rope has an `out_pairing`, are where x has them."""
        if (rope := self.rope).out_pairing is None:
            return y
        source, pairs = np.arange(y.shape[-1]), np.shape(rope.frequencies)[-1]
        to, of = (members_of(each, rope.start, pairs, blocks=rope.blocks) for each in (rope.pairing, rope.out_pairing))
        source[np.concatenate(to)] = np.concatenate(of)
        return self.lib.xp.take(y, self.lib.xp.asarray(source.tolist(), **self.lib.device_kwargs(y)), axis=-1)

    def _places(self, positions: Array, *, rows: int) -> dict[str, Array]:
        """Return by name what the function takes after x: the positions, or tables of them in its layout."""
        if is_packed := self.shape == "thd":  # the positions of the tokens of one row after those of another
            xp, axes = self.lib.xp, min(np.ndim(self.rope.frequencies), 2)
            by_row = positions if positions.ndim > axes else xp.concat([positions] * rows)
            positions = xp.reshape(by_row, (-1, *by_row.shape[by_row.ndim - axes + 1 :]))
        if self.table is None:
            return {"positions": positions}
        made: Any = pack(self.rope.table(positions, like=self.like), self.table)
        tables = {"cos": made[0], "sin": made[1]} if isinstance(made, tuple) else {"cache": made}
        without_rows = is_packed and LAYOUTS[self.table].names[0] == "batch"
        return {name: each[0, ...] for name, each in tables.items()} if without_rows else tables

    def __call__(self, data: Data, positions: Any, *, view: "View | None" = None, dtype: str | None = None) -> Data:
        """
        Return the function's NumPy result for x = `data`; raise `RefusedError` if it raises or the result is invalid.

        x lies in a larger array if `view`; positions are cast to `dtype`; broken promises go into `violations`.
        """
        buffer = self.put(data if view is None else view.around(data))
        x = buffer if view is None else view.x_of(self.lib.xp, buffer)
        given = self.get(x)  # rounded to the dtype of x, which `data`, a result in a wider one, may not be
        where = as_position_array(positions, like=self.like)
        where = where if dtype is None else self.lib.cast(where, getattr(self.lib.xp, dtype))
        before = host(where).copy()
        try:
            y = self.run(x, where)
            got, after = self.get(y), self.get(x)  # a lazy one raises here
        except RefusedError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  # any exception goes into the report
            raise RefusedError(raised(error)) from None
        changes = np.empty(0) if "in_place" in self.asked else np.abs(after - given)
        beside = np.empty(0) if view is None else np.abs(self.get(buffer) - view.around(after))
        self.keep_violations(
            {
                "keeps the dtype": x.dtype != y.dtype,
                "leaves x as it is": changes,
                "writes nothing beside x": beside,
                "leaves positions as they are": np.abs(host(where) - before),
                "passes the other features through": np.abs(got - given)[..., self.passthrough],
            }
        )
        return got

    def keep_violations(self, errors: dict[str, Any]) -> None:
        """Update `violations` with the largest number of each array in `errors`, by name; skip empty arrays."""
        for name, error in errors.items():
            if np.size(error):
                self.violations[name] = float(np.maximum(self.violations.get(name, 0.0), np.max(error)))  # a nan stays

    def remedy(self, why: str) -> str:
        """Return the option of `check_rotary` that a function may need, as text; `why` is its failure."""
        if "missing 1 required positional argument" in why and _takes_three(self.function):
            return "function(q, k, positions) needs keys=True (--keys), function(x, cos, sin) table= (--table)"
        if "missing 2 required positional arguments" in why:
            return "function(q, k, cos, sin) needs keys=True and table= (--keys, --table)"
        if why.startswith("returned NoneType") and "in_place" not in self.asked:
            return "a function that writes into x needs in_place=True, on the command line --in-place"
        if why.startswith("raised") and "numpy.ndarray" in why and isinstance(self.like, np.ndarray):
            return "a function of torch needs like=torch.empty(0), on the command line --library torch"
        width, x = 2 * np.shape(self.rope.frequencies)[-1], "q, k" if "keys" in self.asked else "x"
        ways = [f"give head_dim={width} if it takes the features that rotate alone"]
        ways = ways if self.passthrough and not self.rope.start else []
        if self.table is None:
            streams = f"f({x}, p.T[:, None]) if (axes, batch, seq)"
            first, rows = f"f(p, {x}) if positions come first", f"f({x}, p[None]) if they are (batch, seq)"
            ways.append(f"wrap it, as lambda {x}, p: {first}, {rows}, {streams}, f({x}, int(p[0])) for an offset")
        return "; ".join([*ways, "or say how it is called by shape, table, keys, in_place or like"])


def is_by_head(rope: Rope) -> bool:
    """Whether each head has its own frequencies."""
    return np.ndim(rope.frequencies) == 3


def raised(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message, as text: "raised TYPE: LINE"."""
    first, _, _ = str(error).strip().partition("\n")
    return f"raised {type(error).__name__}: {first[:200]}"


class View(NamedTuple):
    """A way to put x into a larger array, of which it is a view with gaps."""

    around: Callable[[Data], Data]
    """Return the larger array, with x in it."""
    x_of: Callable[[Any, Any], Any]
    """Return x as a view of the larger array, by a namespace."""
    first: Callable[[Data], int]
    """Return the flat index of the first number of x in the larger array."""


def _fused(x: Data) -> Data:
    """Return x ``(batch, heads, seq, dim)`` as the second of q, k, v ``(batch, seq, 3, heads, dim)``; the rest is 1."""
    rows = np.moveaxis(x, 1, 2)
    return np.stack([np.ones_like(rows), rows, np.ones_like(rows)], axis=2)


VIEWS = (
    View(_fused, lambda xp, rows: xp.moveaxis(rows[:, :, 1, :, :], 1, 2), lambda x: x[0, :, 0].size),
    View(lambda x: np.stack([x, np.ones_like(x)], -1), lambda _, both: both[..., 0], lambda _: 0),
)


def _why_invalid(lib: Library, y: Any, x: Array) -> str | None:
    """Return why y can't be the result for x: another library or shape, or a complex dtype; None if it can be."""
    if find(y) is not lib:
        return f"returned {type_name(y)}, where x is {type_name(x)}"
    if tuple(y.shape) != tuple(x.shape):
        return f"returned shape {tuple(y.shape)} for x of shape {tuple(x.shape)}"
    names = [lib.dtype_name(part.dtype) for part in (y, x)]
    return f"returned {names[0]} for x of {names[1]}" if names[0].startswith("complex") else None


def _takes_three(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with three positional arguments; False if its parameters are unknown."""
    try:
        signature(function).bind(*range(3))
    except (TypeError, ValueError):  # other parameters, or no known ones
        return False
    return True
