"""Find the configs of the models in a torch module, whatever wraps them: DDP, FSDP, torch.compile, PEFT, ..."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

from torch import nn

ARGUMENTS = ("config", "params", "model_args", "args")
"""Names under which models keep a dataclass of what they are made from: those of Meta, Mistral, torchtitan."""


def model_configs(model: nn.Module, read: Callable[[Any], object], /) -> tuple[dict[str, Any], Exception | None]:
    """
    Return {path: config} of the models in a module, the module itself among them; and the first error of `read`.

    A model is a module with a ``config``, or a dataclass named as in `ARGUMENTS`, of which `read` returns something
    true, rather than raise a TypeError or ValueError. A module in a model is one of its own only if its config is no
    part of the model's.
    """
    found: dict[str, Any] = {}
    others: list[object] = []  # configs of many modules, of which each is read once
    errors: list[Exception] = []
    for path, module in model.named_modules():
        config, around = _config_of(module), model_around(path, found)
        if config is None or any(config is other for other in others):
            continue
        if around is not None and _has(found[around], config):
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


def _config_of(module: nn.Module) -> Any:
    """Return the config of a module or None; of diffusers, with the name of the module's class, which it lacks."""
    made_from = (getattr(module, name, None) for name in ARGUMENTS)
    fields = (vars(each) for each in made_from if is_dataclass(each) and not hasattr(each, "to_dict"))
    config = next(fields, getattr(module, "config", None))
    names = (kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("diffusers."))
    name = next(names, None)
    return {"_class_name": name, **config} if name and isinstance(config, Mapping) else config
