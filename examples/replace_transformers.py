"""
The rotary embedding of a transformers model, replaced: logits before, with it, and undone.

The model is a small Llama of transformers with random weights. Only distances matter, so the
right logits at any position are those of the same weights in float64 at positions 0, 1, 2, ....
The error of float32 angles grows with the position, and that of exact angles does not.

Needs torch and transformers (extra ``transformers``).

    python examples/replace_transformers.py
"""

import copy
import sys
from typing import Any

try:
    import torch
    import transformers
except ModuleNotFoundError as error:
    sys.exit(f"this example needs {error.name}, which is not installed")

from rope_any.integrations.transformers import replace

FAR = 131_072
CONFIG = transformers.LlamaConfig(
    vocab_size=256,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    initializer_range=0.2,  # attention that is almost uniform would not notice a rotation
    rope_parameters={"rope_type": "default", "rope_theta": 500_000.0},
)


@torch.inference_mode()
def logits(model: Any, first: int = 0) -> Any:
    """Return the logits of 64 tokens at positions from `first` on."""
    ids = torch.arange(64)[None]
    # without a mask, transformers takes positions that don't begin at 0 for packed texts
    return model(ids, position_ids=ids + first, attention_mask=torch.ones_like(ids)).logits


def main(seed: int = 0) -> tuple[dict[str, list[float]], list[str]]:
    """Return the errors of logits before, with and after replacement, and what was replaced."""
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM(CONFIG).eval()
    right = logits(copy.deepcopy(model).double())

    def errors() -> list[float]:
        """Return the largest errors, relative to the standard deviation of the logits."""
        return [
            float((logits(model, first) - right).abs().max() / right.std())
            for first in (0, FAR)
        ]

    before = errors()
    undo = replace(model)
    replaced = errors()
    undo()
    return {"before": before, "replaced": replaced, "undone": errors()}, [
        *undo.tables,
        *undo.rotations,
    ]


if __name__ == "__main__":
    found, changed = main()
    print("replaced:", *changed)
    for when, (near, far) in found.items():
        print(
            f"{when:9}logits err by {near:.1e} from position 0 on, by {far:.1e} from {FAR:,} on"
        )
