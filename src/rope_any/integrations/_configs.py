"""Find the configs of the models in a torch module, whatever wraps them: DDP, FSDP, torch.compile, PEFT, ..."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from torch import nn

ARGUMENTS = ("config", "params", "model_args", "args")
"""Names under which models keep what they are made from: those of transformers, Meta, torchtitan and Mistral."""

PLAIN = (bool, int, float, str, list, tuple, dict, type(None))
SLOTS = ("member_descriptor", "_tuplegetter")
"""The types of fields of a class with ``__slots__`` and of a NamedTuple."""


def model_configs(model: nn.Module, read: Callable[[Any], object], /) -> tuple[dict[str, Any], Exception | None]:
    """
    Return {path: config} of the models in a module, the module itself among them; and the first error of `read`.

    A model is a module with an attribute named as in `ARGUMENTS` of which `read` returns something true, rather than
    raise a TypeError or ValueError. A module in a model is one of its own only if its config is no part of the model's.
    """
    found: dict[str, Any] = {}
    others: list[object] = []  # configs of many modules, of which each is read once
    errors: list[Exception] = []
    for path, config in ((path, one) for path, module in model.named_modules() for one in _configs_of(module)):
        around = model_around(path, found)
        known = around == path or any(config is other for other in others)
        if known or (around is not None and _has(found[around], config)):
            continue
        try:
            if read(config):
                found[path] = config
                continue
        except (TypeError, ValueError) as error:
            errors.append(error)
        others.append(config)
    return found, next(iter(errors), None)


def model_around(path: str, models: Iterable[str], /) -> str | None:
    """Return the path, of those of `models`, of the innermost one around a module or tensor; None if there is none."""
    around = (model for model in models if not model or f"{path}.".startswith(f"{model}."))
    return max(around, key=len, default=None)


def _has(config: Any, part: Any) -> bool:
    """Whether `part` is a config or one in it, such as that of its text or vision, or equal to one."""
    inner = config.values() if isinstance(config, Mapping) else getattr(config, "__dict__", {}).values()
    return part is config or bool(part == config) or any(_has(each, part) for each in inner if hasattr(each, "to_dict"))


def _configs_of(module: nn.Module) -> Iterator[Any]:
    """Yield what may be the config of a module; of diffusers, with the name of the module's class, which it lacks."""
    names = (kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("diffusers."))
    name = next(names, None)
    for given in (getattr(module, argument, None) for argument in ARGUMENTS):
        is_config = isinstance(given, Mapping) or hasattr(type(given), "to_dict")
        config = given if is_config else _values(given) or None
        if config is not None:
            yield {"_class_name": name, **config} if name and isinstance(config, Mapping) else config


def _values(given: Any) -> dict[str, Any]:
    """Return the public plain values of an object that is no module, such as a dataclass, and of its class."""
    kind = given if isinstance(given, type) else type(given)
    if issubclass(kind, nn.Module) or kind.__module__ == "builtins":
        return {}
    names = dict.fromkeys(chain.from_iterable(getattr(each, "__dict__", ()) for each in (*kind.__mro__, given)))
    static = {name: inspect.getattr_static(given, name) for name in names if name[0] != "_"}  # runs no code of a class
    values = {name: getattr(given, name) if type(one).__name__ in SLOTS else one for name, one in static.items()}
    return {name: value for name, value in values.items() if isinstance(value, PLAIN)}
