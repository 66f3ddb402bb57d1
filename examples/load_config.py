"""
The rotation of each layer: read from the config of a model, with the source of each number.

The config is that of Gemma 3 4B without unrelated keys. Five of six layers attend to 1024
tokens and use the base 10 000. Every sixth layer attends to all tokens and uses the base
1 000 000, with frequencies divided by 8.

Needs only NumPy. Without an argument it reads the config above.

    python examples/load_config.py
    python examples/load_config.py path/to/config.json
"""

import sys
from typing import Any

import rope_any as ra
from rope_any.config import Explanation, read

GEMMA = {
    "model_type": "gemma3_text",
    "hidden_size": 2560,
    "num_hidden_layers": 34,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
    "max_position_embeddings": 131_072,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}


def main(config: Any = GEMMA) -> tuple[tuple[Explanation, ...], list[ra.Rope | None]]:
    """Return the explanation of each kind of layer, and the rotation of each layer."""
    found = read(config)
    return found.explain(), found.layers()


if __name__ == "__main__":
    kinds, ropes = main(*sys.argv[1:])
    for kind in kinds:
        print(
            f"layers of {kind.layer_type or 'all kinds'}, "
            f"{ropes.count(kind.rope)} of {len(ropes)}: {kind.rope}"
        )
        for name, fact in kind.facts.items():
            print(f"    {name:34}{fact.value!s:18}{fact.source}")
