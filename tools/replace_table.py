"""
Measure the errors of small random models of transformers before and after `replace`: `replace_table.md`.

In an environment with torch, transformers and what the tests need::

    pip install torch                                      # first, in the build that you want
    pip install -e ".[pytest,transformers]"
    python tools/replace_table.py                           # prints the table
    python tools/replace_table.py --write                   # and writes replace_table.md

It takes some seconds. The architectures, their sizes and the reference outputs are those of ``tests/test_replace.py``.
The other options measure something else instead of this table, and write nothing.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import making
import torch
import transformers
from transformers.models.llama import modeling_llama as llama

PAGE = making.DOCS / "replace_table.md"
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import test_replace as tests  # noqa: E402

from rope_any import Rope, frequencies  # noqa: E402
from rope_any.integrations import transformers as integration  # noqa: E402
from rope_any.integrations.transformers import replace  # noqa: E402


def error_rows() -> Iterator[str]:
    """Yield a row for each architecture: errors of its outputs at near and far positions, before and after."""
    for name in sorted(tests.ARCHITECTURES):
        model = tests.model_of(name)
        right = tests.truth(model)
        before = [tests.distance(tests.outputs(model, first), right) for first in (0, tests.FAR)]
        undo = replace(model)
        after = [tests.distance(tests.outputs(model, first), right) for first in (0, tests.FAR)]
        by = "`rotate`" if undo.rotations else "its own function"
        yield f"| `{name}` | {by} | {before[0]:.1e} | {after[0]:.1e} | {before[1]:.1e} | {after[1]:.1e} |"


def bfloat16_rows() -> Iterator[str]:
    """Yield the table of root mean square errors in bfloat16: a row for each architecture that calls `rotate`."""
    yield "| model type | before | after | after ÷ before |"
    yield "| --- | --- | --- | --- |"
    for name in sorted(tests.ALL):
        model = tests.model_of(name).to(torch.bfloat16)
        right = tests.truth(model)
        before = rms(tests.outputs(model), right)
        replace(model)
        after = rms(tests.outputs(model), right)
        yield f"| `{name}` | {before:.1e} | {after:.1e} | {after / before:.2f} |"


def rms(found: torch.Tensor, right: torch.Tensor) -> float:
    """Return the root mean square error, divided by the standard deviation of the right outputs."""
    return float((found.double() - right).square().mean().sqrt() / right.std())


def medians(*calls: Callable[[], object], times: int) -> list[float]:
    """Return the median time of each call in seconds; calls alternate. The first, untimed ones compile and allocate."""
    taken: list[list[float]] = [[] for _ in calls]
    with torch.no_grad():
        for repetition in range(times + 1):
            for call, seconds in zip(calls, taken, strict=True):
                start = perf_counter()
                call()
                if repetition:
                    seconds.append(perf_counter() - start)
    return [median(seconds) for seconds in taken]


def call_rows() -> Iterator[str]:
    """Yield the table of times of a rotation: Llama's eager function and ours; the last row is for tables."""
    yield "| what | before, ms | after, ms | before ÷ after |"
    yield "| --- | --- | --- | --- |"
    rope = Rope(frequencies(128), pairing="half")
    for tokens in (64, 256, 1024, 4096):
        for dtype in (torch.float32, torch.bfloat16):
            q, k = (torch.randn(1, heads, tokens, 128).to(dtype) for heads in (32, 8))
            table = rope.table(torch.arange(tokens))
            wide = [torch.cat([part, part], dim=-1)[None].to(dtype) for part in table]
            before, after = partial(llama.apply_rotary_pos_emb, q, k, *wide), partial(rope, q, k, table)
            yield row(f"{tokens} tokens, {name_of(dtype)}", medians(before, after, times=max(9, 20_000 // tokens)))
    models = [tests.model_of("llama").model for _ in range(2)]
    replace(models[1])
    x, place = torch.zeros(1), torch.tensor([[1000]])
    tables = (partial(model.rotary_emb, x, place) for model in models)
    yield row("the table of one token", medians(*tables, times=999))


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a torch dtype."""
    return str(dtype).removeprefix("torch.")


def row(what: str, taken: list[float]) -> str:
    """Return a row with the times before and after, given in seconds."""
    before, after = taken
    return f"| {what} | {before * 1e3:.3g} | {after * 1e3:.3g} | {before / after:.2f} |"


def prefill(dtype: torch.dtype, *, compiled: bool) -> list[float]:
    """Return the median times of a prefill of a two-layer Llama before and after, in seconds."""
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
    calls = (torch.compile(model, fullgraph=True) if compiled else model for model in models)
    return medians(*(partial(call, ids, use_cache=False) for call in calls), times=7)


def prefill_rows() -> Iterator[str]:
    """Yield the table of times of a prefill: eager and compiled, in float32 and bfloat16."""
    yield "| what | before, ms | after, ms | before ÷ after |"
    yield "| --- | --- | --- | --- |"
    for compiled in (False, True):
        for dtype in (torch.float32, torch.bfloat16):
            way = "`torch.compile`" if compiled else "eager"
            yield row(f"{way}, {name_of(dtype)}", prefill(dtype, compiled=compiled))


def main() -> None:
    """Run the measurement that the options choose, and print its table."""
    parser = making.parser(__doc__, PAGE)
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--bfloat16", action="store_true", help="print the errors of models in bfloat16 instead")
    other.add_argument(
        "--calls", action="store_true", help="print the time of the rotation alone, on one thread, instead"
    )
    other.add_argument(
        "--prefill", action="store_true", help="print the time of a prefill of a larger model instead; takes minutes"
    )
    given = parser.parse_args()
    if given.write and (given.bfloat16 or given.calls or given.prefill):
        parser.error("--write writes only the table; leave out --bfloat16, --calls and --prefill")

    if given.prefill:
        print(*prefill_rows(), sep="\n")
        return
    torch.set_num_threads(1)
    integration.FEW = -1  # use `rotate` even for small arrays
    if given.calls or given.bfloat16:
        print(*(call_rows() if given.calls else bfloat16_rows()), sep="\n")
        return
    head = [
        "<!-- written by tools/replace_table.py; run it again rather than edit this file -->",
        "",
        f"transformers {transformers.__version__}, torch {torch.__version__}",
        "",
        "| model type | attention rotates by | near, before | near, after | far, before | far, after |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    making.show("\n".join([*head, *error_rows()]), PAGE, write=given.write)


if __name__ == "__main__":
    main()
