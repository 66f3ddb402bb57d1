"""Find the configs of the models in a torch module, whatever wraps them: DDP, FSDP, torch.compile, PEFT, ..."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn


def model_configs(model: nn.Module, read: Callable[[Any], object], /) -> tuple[dict[str, Any], Exception | None]:
    """
    Return {path: config} of the models in a module, the module itself among them; and the first error of `read`.

    A model is a module with a ``config`` of which `read` returns something true, rather than raise a TypeError or
    ValueError. Modules in a model are not looked at: its config is theirs too.
    """
    found: dict[str, Any] = {}
    tried: list[object] = []
    errors: list[Exception] = []
    for path, module in model.named_modules():
        own = getattr(module, "config", None)
        if own is None or model_around(path, found) is not None or any(own is config for config in tried):
            continue
        tried.append(own)
        config = _with_class_name(own, module)
        try:
            if read(config):
                found[path] = config
        except (TypeError, ValueError) as error:
            errors.append(error)
    return found, next(iter(errors), None)


def model_around(path: str, models: Iterable[str], /) -> str | None:
    """Return the path, of those of `models`, of the model around a module or tensor; None if there is none."""
    return next((model for model in models if not model or f"{path}.".startswith(f"{model}.")), None)


def _with_class_name(config: Any, module: nn.Module) -> Any:
    """Return the config of a module of diffusers with the name of its class, which it lacks; any other unchanged."""
    names = (kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("diffusers."))
    name = next(names, None)
    return {"_class_name": name, **config} if name and isinstance(config, Mapping) else config
