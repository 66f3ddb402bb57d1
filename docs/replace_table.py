"""
Replace what turns in small random models of transformers, and measure their errors: `replace_table.md`.

In an environment with torch, transformers and what the tests need::

    pip install torch                                      # first, in the build that you want
    pip install -e ".[pytest,transformers]"
    python docs/replace_table.py                           # prints the table
    python docs/replace_table.py --write                   # and writes replace_table.md

It takes a minute. The architectures, their sizes and the truth are those of ``tests/test_replace.py``. The other
options measure something else in place of this table, and write nothing.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
import transformers

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

import test_replace as tests  # noqa: E402

from rope_any.integrations import transformers as ours  # noqa: E402
from rope_any.integrations.transformers import replace  # noqa: E402


def errors() -> Iterator[str]:
    """Yield a row for each architecture."""
    for name in sorted(tests.ARCHITECTURES):
        model = tests.model_of(name)
        right = tests.truth(model)
        before = [tests.distance(tests.answers(model, first), right) for first in (0, tests.FAR)]
        undo = replace(model)
        after = [tests.distance(tests.answers(model, first), right) for first in (0, tests.FAR)]
        by = "`rotate`" if undo.rotations else "its own function"
        yield f"| `{name}` | {by} | {before[0]:.1e} | {after[0]:.1e} | {before[1]:.1e} | {after[1]:.1e} |"


def prefill(dtype: torch.dtype, *, compiled: bool) -> tuple[float, float]:
    """Return how long a prefill takes before and after, in seconds: medians of calls in turn."""
    config = transformers.LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=128,
        num_hidden_layers=2,
        vocab_size=1024,
    )
    models = [transformers.LlamaModel(config).eval().to(dtype) for _ in range(2)]
    replace(models[1])
    ids = torch.randint(0, 1024, (1, 4096))
    calls: list[Callable[..., object]] = [torch.compile(m, fullgraph=True) if compiled else m for m in models]
    times: list[list[float]] = [[], []]
    with torch.no_grad():
        for turn in range(8):
            for call, taken in zip(calls, times, strict=True):
                start = perf_counter()
                call(ids, use_cache=False)
                if turn:  # the first compiles, and gets memory
                    taken.append(perf_counter() - start)
    return median(times[0]), median(times[1])


def speeds() -> Iterator[str]:
    """Yield a row for each way to run a model."""
    for compiled in (False, True):
        for dtype in (torch.float32, torch.bfloat16):
            before, after = prefill(dtype, compiled=compiled)
            way, kind = "`torch.compile`" if compiled else "eager", str(dtype).removeprefix("torch.")
            yield f"| {way} | {kind} | {before * 1e3:.0f} | {after * 1e3:.0f} | {before / after:.2f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--prefill", action="store_true")
    if parser.parse_args().prefill:
        print(*speeds(), sep="\n")
    else:
        torch.set_num_threads(1)
        ours.FEW = -1  # let `rotate` turn even these
        head = [
            "<!-- written by replace_table.py; run it again rather than edit this file -->",
            "",
            f"transformers {transformers.__version__}, torch {torch.__version__}",
            "",
            "| model type | attention turns by | near, before | near, after | far, before | far, after |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        (HERE / "replace_table.md").write_text("\n".join([*head, *errors()]) + "\n", encoding="utf-8")
