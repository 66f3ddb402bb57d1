"""Checks of arguments, and their exceptions, which carry the argument, what it must be and what it got."""

import math
from collections.abc import Callable, Container, Mapping
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from typing import Any, TypeVar, cast


class ArgumentError(Exception):
    """A wrong argument: ``(argument, wanted, got, hint, where)``, the last three optional; `str` composes the text."""

    # There is no __init__, because torch.compile can't trace one.

    @property
    def argument(self) -> str:
        """The name of the wrong argument, key of a config, or file."""
        return str(self.args[0])

    @property
    def wanted(self) -> str:
        """What the argument must be or do, after the word *must*. Names of other arguments are in backquotes."""
        return str(self.args[1])

    @property
    def got(self) -> str:
        """The given value as text, in a TypeError with the value's type; empty if no single value is wrong."""
        return (brief if isinstance(self, ValueError) else shown)(self._given(2))

    @property
    def hint(self) -> str:
        """What to write or do instead; may be empty."""
        return str(self._given(3))

    @property
    def where(self) -> str:
        """The file or the config key that contains the argument; may be empty."""
        return str(self._given(4))

    def _given(self, i: int) -> Any:
        """Return the i-th argument of the exception, or `NOTHING` if it was left out."""
        return self.args[i] if len(self.args) > i else NOTHING

    def __str__(self) -> str:
        """Return the message: ``where: argument must wanted; got ...; hint``, without empty parts."""
        parts = (f"{self.argument} must {self.wanted}", self.got and f"got {self.got}", self.hint)
        return (self.where and f"{self.where}: ") + "; ".join(filter(None, parts))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return class and arguments for pickle, with `got` as text, because not every value can be pickled."""
        return type(self), (self.argument, self.wanted, Text(self.got), self.hint, self.where)


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a wrong type; the message shows the type of the given value."""


class ArgumentValueError(ArgumentError, ValueError):
    """An argument of the right type, with a value that cannot be used."""


class Text(str):
    """Text that an error shows without quotes: a description of what it got, or the name of a file."""

    __slots__ = ()


NOTHING = Text("")
"""The value for `got` if no single value is wrong."""


def inside(where: str, error: Exception) -> Exception:
    """Return a new error of the same type whose message begins with `where`, a file or config key, and a colon."""
    if not isinstance(error, ArgumentError):
        return type(error)(f"{where}: {error}")
    outer = f"{where}: {error.where}" if error.where else where
    return type(error)(*(*error.args, NOTHING, NOTHING)[:4], outer)


MAX_FEATURES = 2**20
"""The largest number of features of a head, or of all heads together: above any in use, and small enough to list."""


def integer(name: str, value: object) -> int:
    """Return `value` as an int; raise unless it is an integer that signed 64 bits hold; a bool is none."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value  # the common case
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ArgumentTypeError(name, "be an integer", value, _value_hint(value, int))
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ArgumentValueError(name, "be an integer that 64 bits hold", Text("one beyond them"))
    return number


def integer_between(name: str, value: object, least: int, most: int, /) -> int:
    """Return `value` as an int; raise unless it is an integer from `least` to `most`."""
    number = integer(name, value)
    if not least <= number <= most:
        raise ArgumentValueError(name, f"be from {least} to {most}", number)
    return number


def int32(name: str, value: object, /, *, least: int = 1 - 2**31) -> int:
    """Return `value` as an int; raise unless it is an integer from `least` to 2³¹ - 1."""
    return integer_between(name, value, least, 2**31 - 1)


def flag(name: str, value: object) -> bool:
    """Return `value` as a bool; raise unless it is one, Python's or NumPy's."""
    if isinstance(value, bool) or type(value).__name__ == "bool":  # the name of NumPy's type too
        return bool(value)
    raise ArgumentTypeError(name, "be True or False", value, _value_hint(value, bool))


def choice(
    name: str, value: object, known: Container[str], wanted: str, hint: Callable[[object], str] = lambda _: ""
) -> str:
    """Return `value` if it is one of the `known` strings; otherwise raise with `wanted` and ``hint(value)``."""
    if not isinstance(value, str):
        raise ArgumentTypeError(name, wanted, value, hint(value))
    if value not in known:
        raise ArgumentValueError(name, wanted, value, hint(value))
    return value


def real(name: str, value: object) -> float:
    """Return `value` as a float, maybe NaN or infinite; raise for a bool, no real number, or one beyond floats."""
    if type(value) is float:
        return value  # the common case
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(name, "be a real number", value, _value_hint(value, float))
    try:
        return float(value)
    except OverflowError:
        raise ArgumentValueError(name, "be a number that a float can hold", Text("one beyond 1e308")) from None


def positive(name: str, value: object) -> float:
    """Return `value` as a float; raise unless it is from 1e-100 to 1e100, so that products of a few are finite."""
    number = real(name, value)
    if not 0 < number < math.inf:
        raise ArgumentValueError(name, "be positive and finite", number)
    if not 1e-100 <= number <= 1e100:
        raise ArgumentValueError(name, "be from 1e-100 to 1e100", number)
    return number


def attention_factor(value: object) -> float:
    """Return an attention factor as a float; raise unless it is from 1e-4 to 1e4, which float16 products allow."""
    factor = positive("attention_factor", value)
    if not 1e-4 <= factor <= 1e4:
        raise ArgumentValueError("attention_factor", "be from 1e-4 to 1e4", factor)
    return factor


def _value_hint(value: object, kind: type) -> str:
    """Return how to write a wrong value as a `kind` (bool, int or float), as the hint of an error; "" if unknown."""
    if hasattr(type(value), "shape"):  # an array, maybe a traced one; one with axes has no single value
        hint = f"write {kind.__name__}(array), or make it a static argument of the compiled function"
        return "" if getattr(value, "ndim", 0) else hint
    if kind is bool:
        return f"write {bool(value)}" if isinstance(value, int | float) and value in (0, 1) else ""
    if isinstance(value, bool) or not isinstance(value, str | float):
        return ""
    if kind is int and isinstance(value, str) and value[:-1].isdecimal() and value[-1] in "kKmM" and len(value) < 12:
        value = str(int(value[:-1]) * 2 ** (10 if value[-1] in "kK" else 20))
    try:
        number = math.nan if isinstance(value, str) and len(value) > 40 else float(value)
    except ValueError:
        return ""
    if not abs(number) < 2**53 or (kind is int and number != int(number)):
        return ""
    return f"write {int(number) if kind is int else number!r}" + (" without quotes" if isinstance(value, str) else "")


ROWS_OF_TABLE = "rows a to b of a table t are Table(t.cos[..., a:b, :], t.sin[..., a:b, :])"
"""The hint of an error for a slice of a `Table`, which is a tuple of arrays."""


def no_rope(name: str, value: object) -> ArgumentTypeError:
    """Return the error for an argument, called `name`, that is not a Rope."""
    hint = "give Rope.from_config(config)" if isinstance(value, Mapping | str) or hasattr(value, "__fspath__") else ""
    return ArgumentTypeError(name, "be a Rope", value, hint)


def missing_package(user: str, error: ModuleNotFoundError, extra: str) -> ModuleNotFoundError:
    """Return the error that `user`, a module or function, needs the package in `error`, and which extra installs it."""
    text = f'{user} needs {error.name}, which is missing; install it by: pip install "rope-any[{extra}]"'
    return ModuleNotFoundError(text, name=error.name)


F = TypeVar("F", bound=Callable[..., Any])


def keyword_hints(hints: Mapping[str, str], /) -> Callable[[F], F]:
    """
    Return a decorator that gives Python's error for a wrong or a missing keyword the hint for its name in `hints`.

    It is for functions that make frequencies or a `Rope`; a rotation must not take the time of another call.
    """

    def decorate(function: F) -> F:
        """Return `function` with the hints."""

        @wraps(function)
        def hinted(*args: Any, **options: Any) -> Any:
            """Call the function; raise an `ArgumentTypeError` if its arguments have other names, or one is missing."""
            try:
                return function(*args, **options)
            except TypeError as error:
                own = [each.name for each in signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
                name = next((name for name in hints if (name in options) is not (name in own)), None)
                if name is None or isinstance(error, ArgumentError):
                    raise
                wanted = "be given" if name in own else "not be given by this name"
            raise ArgumentTypeError(name, wanted, NOTHING, hints[name])

        return cast("F", hinted)

    return decorate


def shown(value: object) -> str:
    """Return "type value" for an error message; the type alone if the value is long; a `Text` without its type."""
    kind, text = type(value).__name__, brief(value)
    return text if isinstance(value, Text) or text == kind else f"{kind} {text}"


def brief(value: object) -> str:
    """Return a value as text for an error, a `Text` in full; its type's name if over 40 long, multi-line or nested."""
    kind = type(value).__name__
    if isinstance(value, Text):
        return str(value)
    if isinstance(value, str | bytes | list | tuple | dict) and len(value) > 40:
        return kind
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if any(isinstance(one, list | tuple | dict) and one for one in inner):  # of any size
        return kind
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer of thousands of digits
        return kind
    return text if len(text) <= 40 and "\n" not in text else kind


def require_known(name: str, shape: tuple[int, ...]) -> None:
    """Raise if a length in the shape of an array, called `name`, is unknown: nan, as in Dask."""
    if any(isinstance(n, float) for n in shape):
        got = Text(f"shape {tuple(shape)}")
        raise ArgumentValueError(name, "have known lengths", got, "call compute_chunk_sizes()")
