"""Find the rotary classes in the source of the installed transformers, with the configs that they are built from."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import transformers


class Case(NamedTuple):
    """A rotary class, a config class that it is built from, and one kind of layer."""

    module: str
    """The module of the rotary class, in transformers.models."""
    rotary: str | None
    """The rotary class; None if the attention has none."""
    home: str
    """The module of the config class."""
    config: str
    layer_type: str | None = None

    def __str__(self):
        """Return the name of the case: its config class and layer type."""
        return "-".join(filter(None, (self.config, self.layer_type)))


CLASS = re.compile(r"^class (\w+)\((\w*).*\n((?:(?:[ \t].*)?\n)*)", re.MULTILINE)
CONFIG = re.compile(r"\bconfig: \"?((?!PreTrained)\w+Config)\b")
# Classes for patches on a grid. The text part of a vision model is named Text; DeepSeek-OCR 2 reads patches as text.
VISION = re.compile(r"^(?!DeepseekOcr2Vision).*Vi(sion|T)(?!Text)")
# Models whose constructors name the config of the whole model, and pass a part of it to the rotary class.
PARTS = {"ClvpConfig": "ClvpEncoderConfig", "T5GemmaConfig": "T5GemmaModuleConfig"}


def in_source() -> Iterator[tuple[Case, bool]]:
    """Find rotary classes with their configs, and whether they depend on the layer type, without importing anything."""
    for path in sorted(Path(transformers.__file__).parent.glob("models/*/modeling_*.py")):
        source = path.read_text(encoding="utf-8")
        classes = {name: (base, body) for name, base, body in CLASS.findall(source)} if "Rotary" in source else {}
        for name in classes:
            body = own_body(classes, name)
            if not re.search(r"Rotary(Positional)?Embedding$", name) or "__init__(self, config" not in body:
                continue
            built = re.compile(rf"\b{name}\((config=)?(self\.)?config\b(?!\.)")
            users = [text for other, (_, text) in classes.items() if other != name and built.search(text)]
            for config in sorted(configs_in(users) or configs_in([body]) or configs_in([source])):
                case = Case(f"{path.parent.name}.{path.stem}", name, path.parent.name, PARTS.get(config, config))
                yield case, "{layer_type}_inv_freq" in body


def configs_in(texts):
    """Return the names of all config classes mentioned in texts."""
    return {config[1] for text in texts if (config := CONFIG.search(text))}


def own_body(classes, name):
    """Return the body of a class, or of the nearest of its bases that has a constructor."""
    base, body = classes[name]
    return body if "__init__" in body or base not in classes else own_body(classes, base)


def config_class(case):
    """Return the config class of a case."""
    return getattr(import_module(f"transformers.models.{case.home}.configuration_{case.home}"), case.config)
