"""
The cost of a wrong rotation: the perplexity of a small trained decoder with common faults.

The model and its corpus are those of ``tools/perplexity.py``. It is trained once with RoPE,
in one or two minutes, and tested with 128 bytes of context: with its own rotation, with the
other pairing, with another base, and with buffers that were lost. Nothing is downloaded.

Needs torch and rich (extra ``cli``).

    python tools/wrong_angles.py
    python tools/wrong_angles.py --steps 20  # a quick test that it runs
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace

import perplexity as experiment
import torch

import rope_any as ra

RIGHT = experiment.ropes(experiment.TRAINED)["RoPE"]
ROTATIONS = {
    "right": RIGHT,
    "the other pairing": replace(RIGHT, pairing="interleaved"),
    "base 500 000 rather than 10 000": replace(RIGHT, frequencies=ra.frequencies(32, base=500_000.0)),
    "pairs rotate backwards": replace(RIGHT, frequencies=tuple(-f for f in experiment.PLAIN)),
    "frequencies in bfloat16": replace(
        RIGHT, frequencies=tuple(torch.tensor(experiment.PLAIN).bfloat16().double().tolist())
    ),
    "all frequencies 0: buffers lost": replace(RIGHT, frequencies=(0.0,) * 16),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Train once, and print the perplexity with each rotation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--steps",
        type=int,
        default=experiment.STEPS,
        help="number of batches to train the model on",
    )
    parser.add_argument(
        "--windows",
        type=int,
        default=experiment.WINDOWS,
        help="largest number of held-out windows",
    )
    options = parser.parse_args(arguments)
    text, files = experiment.corpus()
    windows = experiment.held_out(files, options.windows)
    model, _ = experiment.trained("RoPE", experiment.as_tensor(text), seed=0, steps=options.steps)
    for name, rope in ROTATIONS.items():
        nats = experiment.measured(model, windows, experiment.TRAINED, rope)
        print(f"{name:<34}{math.exp(nats):8.2f}")


if __name__ == "__main__":
    main()
