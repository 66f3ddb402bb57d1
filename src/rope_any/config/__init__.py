"""
Read the config of a model: its parts, the `Rope` of each layer, the source of each value, positions, other forms.

`read` returns a `Config`, which can be asked for all of these. `Rope.from_config` is the short way to one rotation.
"""

from typing import Any

from rope_any.config import _published
from rope_any.config._cautions import Caution
from rope_any.config._config import Config, read
from rope_any.config._explain import Explanation
from rope_any.config._load import Fact

__all__ = ["Caution", "Config", "Explanation", "Fact", "published", "read"]


def published() -> dict[str, dict[str, Any]]:
    """
    Return the configs of well-known models that ship with the library.

    They have the keys that a rotation depends on. Wherever a path of a config is accepted, here and on the command
    line, ``published:NAME`` is too. NAME is a name in this dict, in upper or lower case, with or without the
    organisation; its beginning or end will do if no other name has it.

    Returns
    -------
    dict
        Configs by the name of their model, such as ``Qwen/Qwen3-8B``, new at each call.

    Examples
    --------
    >>> config = ra.config.published()["Qwen/Qwen3-8B"]
    >>> config["rope_theta"]
    1000000
    >>> ra.Rope.from_config(config) == ra.Rope.from_config("published:qwen3-8b")
    True
    """
    return _published.configs()
