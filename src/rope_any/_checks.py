"""Checks of arguments, and the exceptions for wrong ones: they carry the argument, what it must be, what it got."""

import math
from collections.abc import Callable, Container
from numbers import Integral, Real
from typing import Any


class ArgumentError(Exception):
    """
    A wrong argument: ``(argument, wanted, got, hint, where)``, of which all but the first two may be left out.

    Its text is composed when it is asked for. There is no ``__init__``, through which torch.compile can't trace.
    """

    @property
    def argument(self) -> str:
        """The name of the argument, of the key of a config, or of a file."""
        return str(self.args[0])

    @property
    def wanted(self) -> str:
        """What it must be or do, after the word *must*. Names of other arguments stand in backquotes."""
        return str(self.args[1])

    @property
    def got(self) -> str:
        """What it got, as text; empty if no single value is wrong."""
        return (brief if isinstance(self, ValueError) else shown)(self._given(2))

    @property
    def hint(self) -> str:
        """What to do instead; may be empty."""
        return str(self._given(3))

    @property
    def where(self) -> str:
        """The file or the key that it is inside of; may be empty."""
        return str(self._given(4))

    def _given(self, i: int) -> Any:
        return self.args[i] if len(self.args) > i else NOTHING

    def __str__(self) -> str:
        """Return one sentence."""
        parts = (f"{self.argument} must {self.wanted}", self.got and f"got {self.got}", self.hint)
        return (self.where and f"{self.where}: ") + "; ".join(filter(None, parts))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text of what it got, since not every value can be pickled."""
        return type(self), (self.argument, self.wanted, Text(self.got), self.hint, self.where)


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a wrong type; what it got is shown with its type."""


class ArgumentValueError(ArgumentError, ValueError):
    """An argument of the right type, with a value that cannot be used."""


class Text(str):
    """Words that an error shows as they are: what an argument got, or the name of a file, which is no argument."""

    __slots__ = ()


NOTHING = Text("")
"""For `got`, if no single value is wrong."""


def inside(where: str, error: Exception) -> Exception:
    """Return an error about something inside another thing, such as a file or a key: ``where: argument must ...``."""
    if not isinstance(error, ArgumentError):
        return type(error)(f"{where}: {error}")
    outer = f"{where}: {error.where}" if error.where else where
    return type(error)(*(*error.args, NOTHING, NOTHING)[:4], outer)


MAX_FEATURES = 2**20
"""Features of one head, or of heads side by side: above any in use, and few enough to be listed."""


def integer(name: str, value: object) -> int:
    """Return `value` as an int, or say that `name` must be one."""
    if type(value) is int and -(2**63) <= value < 2**63:
        return value  # as nearly all are
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ArgumentTypeError(name, "be an integer", value, _written_as(value, int))
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ArgumentValueError(name, "be an integer that 64 bits hold", Text("one beyond them"))
    return number


def integer_between(name: str, value: object, least: int, most: int, /) -> int:
    """Return an int from `least` to `most`, or say that `name` must be one."""
    number = integer(name, value)
    if not least <= number <= most:
        raise ArgumentValueError(name, f"be from {least} to {most}", number)
    return number


def int32(name: str, value: object, /, *, least: int = 1 - 2**31) -> int:
    """Return an int that 32 bits hold, or say that `name` must be one."""
    return integer_between(name, value, least, 2**31 - 1)


def flag(name: str, value: object) -> bool:
    """Return `value` as a bool, or say that `name` must be one."""
    if isinstance(value, bool) or type(value).__name__ == "bool":  # NumPy's own is called so too
        return bool(value)
    raise ArgumentTypeError(name, "be True or False", value, _written_as(value, bool))


def choice(
    name: str, value: object, known: Container[str], wanted: str, hint: Callable[[object], str] = lambda _: ""
) -> str:
    """Return `value` if it is one of the known words, or say that `name` must do what is wanted; `hint` of others."""
    if not isinstance(value, str):
        raise ArgumentTypeError(name, wanted, value, hint(value))
    if value not in known:
        raise ArgumentValueError(name, wanted, value, hint(value))
    return value


def real(name: str, value: object) -> float:
    """Return `value` as a float, or say that `name` must be a real number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentTypeError(name, "be a real number", value, _written_as(value, float))
    try:
        return float(value)
    except OverflowError:
        raise ArgumentValueError(name, "be a number that a float can hold", Text("one beyond 1e308")) from None


def positive(name: str, value: object) -> float:
    """Return `value` as a float, or say that `name` must be positive, finite, and such that a few have a product."""
    number = real(name, value)
    if not 0 < number < math.inf:
        raise ArgumentValueError(name, "be positive and finite", number)
    if not 1e-100 <= number <= 1e100:
        raise ArgumentValueError(name, "be from 1e-100 to 1e100", number)
    return number


def attention_factor(value: object) -> float:
    """Return `value` as a float, or say that an attention factor must be one that a half-precision x survives."""
    factor = positive("attention_factor", value)
    if not 1e-4 <= factor <= 1e4:
        raise ArgumentValueError("attention_factor", "be from 1e-4 to 1e4", factor)
    return factor


def _written_as(value: object, kind: type) -> str:
    """Return how to write a wrong value as a bool, an int or a float, as the hint of an error; nothing if unknown."""
    if hasattr(type(value), "shape"):  # an array, perhaps one that is traced
        return f"take {kind.__name__}() of it, or make it a static argument of what is compiled"
    if kind is bool:
        return f"write {bool(value)}" if isinstance(value, int | float) and value in (0, 1) else ""
    if isinstance(value, bool) or not isinstance(value, str | float):
        return ""
    number = _number_in(value)
    if number is None or (kind is int and number != int(number)):
        return ""
    return f"write {int(number) if kind is int else number!r}" + (" without quotes" if isinstance(value, str) else "")


def _number_in(value: str | float) -> float | None:
    """Return the number that a short text or a float holds; None if there is none, or one beyond 2⁵³."""
    try:
        number = math.nan if isinstance(value, str) and len(value) > 40 else float(value)
    except ValueError:
        return None
    return number if abs(number) < 2**53 else None


def missing_package(user: str, error: ModuleNotFoundError, extra: str) -> ModuleNotFoundError:
    """Return the error of a `user` whose import failed with another one: it names the extra to install."""
    text = f'{user} needs {error.name}, which is missing; install it by: pip install "rope-any[{extra}]"'
    return ModuleNotFoundError(text, name=error.name)


def shown(value: object) -> str:
    """Return a value with its type, or its type alone if the value would be long, for an error message."""
    kind, text = type(value).__name__, brief(value)
    return text if isinstance(value, Text) or text == kind else f"{kind} {text}"


def brief(value: object) -> str:
    """Return a value, or its type if the value would be long, for an error message."""
    kind = type(value).__name__
    if isinstance(value, Text):
        return str(value)
    if isinstance(value, str | bytes | list | tuple | dict) and len(value) > 40:
        return kind
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if any(isinstance(one, list | tuple | dict) and one for one in inner):  # which may be of any size
        return kind
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer of thousands of digits
        return kind
    return text if len(text) <= 40 and "\n" not in text else kind


def require_known(name: str, shape: tuple[int, ...]) -> None:
    """Raise unless an array called `name`, of this shape, has known lengths."""
    if any(isinstance(n, float) for n in shape):  # nan, as Dask has it
        got = Text(f"shape {tuple(shape)}")
        raise ArgumentValueError(name, "have known lengths", got, "compute_chunk_sizes() finds them out")
