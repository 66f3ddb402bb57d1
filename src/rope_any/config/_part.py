"""A part of a config: its values by key, and the row of its model."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from rope_any._checks import ArgumentTypeError, ArgumentValueError
from rope_any._pairing import Pairing
from rope_any.config._load import Fact, is_name, typed
from rope_any.config.tables.rows import UNKNOWN, Model

# The names of one value, today's first.
OBJECTS = ("rope_parameters", "rope_scaling")
HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
WHOLE = ("hidden_size", "num_attention_heads", "num_hidden_layers")  # sizes of the whole model, not of a head
LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_num_hidden_layers")
TYPES = ("layer_types", "layers_block_type", "block_types", "_block_types")

BASE, SHARE, COUNT = "rope_theta", "partial_rotary_factor", "rotary_dim"
TODAY = (BASE, SHARE)  # keys that any model may have, in addition to its own name for the value
FLAGS = ("rope_interleave", "rope_interleaved", "rotary_emb_interleaved")  # must agree with the model's pairing


class Part(NamedTuple):
    """One part of a config, such as its text part, and the facts about its model."""

    keys: Mapping[str, Any]
    """The values of the part by key, with names of transformers."""
    path: tuple[str, ...]
    """The keys that lead to the part; none if it is the whole config."""
    model_type: str | None
    model: Model
    pairing: Pairing | None
    """The pairing that the caller gives; None if it gives none."""
    names: Mapping[str, str] = {}
    """The names of keys for messages, if they are not the path and the key, as in a translated file."""
    form: str = ""
    """What messages call its file, if that is no config of transformers."""
    inner: Mapping[str, "Part | ArgumentValueError"] = {}
    """The towers and other parts of such a file by name, or the error that says why one can't be read."""

    def name(self, *keys: str) -> str:
        """Return a key's full name for messages, as ``text_config.head_dim``; several keys lead into inner objects."""
        key = ".".join(keys)
        return self.names.get(key, ".".join((*self.path, key)))

    def get(self, path: str) -> Fact | None:
        """Return the value at "key" or "object.key"; None if missing or null. Raise if "object" is no object."""
        outer, _, key = path.partition(".")
        value = self.keys.get(outer)
        if key and value is not None:
            value = typed(self.name(outer), value, Mapping, "be an object or null").get(key)
        return None if value is None else Fact(value, self.name(path))

    def model_value(self, name: str) -> Fact | None:
        """Return the value of the model's own key for a common name; None if there is no such key or it is null."""
        return self.get(self.model.keys[name]) if name in self.model.keys else None

    def key_names(self, name: str) -> tuple[str, ...]:
        """Return the keys for a common name: itself (base, share, an unknown model's count), and the model's own."""
        today = [name] if name in TODAY else []
        own = [COUNT] if name == COUNT and self.model is UNKNOWN else [self.model.keys.get(name)]
        return tuple(dict.fromkeys(key for key in (*today, *own) if key))

    def with_values(self, facts: Mapping[str, Fact]) -> "Part":
        """Return a copy of this part in which the keys in `facts` have these values and sources; without nulls."""
        values = {key: fact.value for key, fact in facts.items() if "." not in key}
        sources = {key: fact.source for key, fact in facts.items()}
        found = {key: value for key, value in {**self.keys, **values}.items() if value is not None or key not in values}
        return self._replace(keys=found, names={**self.names, **sources})

    def without(self, key: str) -> "Part":
        """Return a copy of this part without a key."""
        return self._replace(keys={name: value for name, value in self.keys.items() if name != key})

    @property
    def default(self) -> str:
        """The text that names the source of a value that the config does not give: "default of llama"."""
        return f"default of {self.model_type}" if self.model_type else "default"


def model_type_of(keys: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    """Return the model type in `keys`, None if empty or missing; raise if it is no name (`path` is for the error)."""
    found = keys.get("model_type")
    if found is not None and not is_name(found):
        raise ArgumentTypeError(".".join((*path, "model_type")), "be a name", found)
    return found or None
