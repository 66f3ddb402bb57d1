"""
Position encodings compared by perplexity: within the trained length and beyond.

The small model learns the source text of Python's own standard library, byte by byte, 128
bytes at a time. It is trained once with no positions, once with the sinusoids of "Attention is
all you need" added, once with learned vectors added, and once with RoPE. Then it reads
held-out files with 128 to 1024 bytes of context, with RoPE also under frequencies that linear,
NTK and YaRN scale. Nothing is downloaded.

Every length is tested on the same bytes: the last 32 of each held-out window, with more or
fewer bytes before them.

Needs torch and rich (extra ``cli``), and matplotlib for the chart (extra ``plot``).

    python tools/perplexity.py                         # one seed
    python tools/perplexity.py --seeds 3 --json out.json --markdown out.md --chart out.svg
    python tools/perplexity.py --steps 20 --windows 4  # a quick test that it runs
"""

import argparse
import datetime as dt
import json
import math
import platform
import re
import sys
import sysconfig
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any

try:
    import torch
    from rich.console import Console
    from rich.progress import track
    from torch import nn
    from torch.nn import functional as F  # noqa: N812  # its usual name
except ModuleNotFoundError as error:
    sys.exit(f"this program needs {error.name}, which is not installed")

import rope_any as ra
from rope_any import scaling
from rope_any.plot import looks
from rope_any.plot.looks import format_number

TRAINED, LENGTHS = 128, (128, 256, 512, 1024)  # bytes of context
WIDTH, HEADS, LAYERS, BASE = 128, 4, 4, 10_000.0
STEPS, BATCH, RATE = 1200, 8, 3e-3
WINDOWS, TARGETS = (
    256,
    32,
)  # held-out windows, and how many bytes at the end of each are predicted
PLAIN = ra.frequencies(WIDTH // HEADS, base=BASE)
METHODS = ("no positions", "sinusoidal", "learned", "RoPE")
LEFT_OUT = r"(.*/)?(tests?|idle_test|(site|dist)-packages|encodings|pydoc_data|config-.*)/.*"
LEFT_OUT += "|_sysconfigdata.*"
STDERR = Console(stderr=True)


# --- the corpus -------------------------------------------------------------------------------


def corpus() -> tuple[bytes, list[bytes]]:
    """
    Return the bytes to train on, and every 16th file as held out.

    Tests and generated files are left out.
    """
    home = Path(sysconfig.get_path("stdlib"))
    names = sorted(path.relative_to(home).as_posix() for path in home.rglob("*.py"))
    files = [(home / name).read_bytes() for name in names if not re.fullmatch(LEFT_OUT, name)]
    return b"".join(file for i, file in enumerate(files) if i % 16), files[::16]


def as_tensor(text: bytes) -> torch.Tensor:
    """Return bytes as integers."""
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def held_out(files: list[bytes], count: int) -> torch.Tensor:
    """Return windows ``(count, longest + 1)``, each of one file, evenly taken."""
    size = max(LENGTHS) + 1
    windows = torch.cat([as_tensor(file).unfold(0, size, size) for file in files if len(file) >= size])
    return windows[torch.linspace(0, len(windows) - 1, min(count, len(windows))).long()]


# --- the model --------------------------------------------------------------------------------


class Model(nn.Module):
    """
    A decoder of bytes with pre-norm and tied embeddings.

    Some methods add vectors of positions to the embeddings.
    """

    def __init__(self, method: str, *, layers: int = LAYERS) -> None:
        """Make the weights of a model with one kind of position encoding."""
        super().__init__()
        self.method, self.bytes = method, nn.Parameter(torch.randn(256, WIDTH) / WIDTH**0.5)
        shapes = {"qkv": (1, 3), "mix": (1, 1), "up": (1, 4), "down": (4, 1)}  # in widths
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(WIDTH * n, WIDTH * m, bias=False) for name, (n, m) in shapes.items()})
            for _ in range(layers)
        )
        # drawn last, so that with one seed all other weights are the same for each method
        self.places = nn.Parameter(torch.randn(TRAINED, WIDTH) / WIDTH**0.5) if method == "learned" else None

    def forward(self, text: torch.Tensor, *, rope: ra.Rope | None = None, first: int = 0) -> torch.Tensor:
        """
        Return logits ``(batch, seq, 256)`` of the next bytes.

        The first byte has position `first`.
        """
        positions = range(first, first + text.shape[-1])
        x = F.embedding(text, self.bytes) * WIDTH**0.5  # an index would add gradients in no fixed order
        if self.method == "sinusoidal":
            cos, sin = ra.cos_sin(positions, ra.frequencies(WIDTH, base=BASE), like=x)
            x = x + torch.stack((sin, cos), dim=-1).flatten(-2)
        if self.places is not None:
            x = x + self.places[positions] * WIDTH**0.5
        table = rope.table(positions, like=x) if rope else None  # once for all layers
        layer: Any  # a dict of four linear layers
        for layer in self.layers:
            x = x + attention(layer, norm(x), rope, table)
            x = x + layer["down"](F.gelu(layer["up"](norm(x))))
        return norm(x) @ self.bytes.mT


def norm(x: torch.Tensor) -> torch.Tensor:
    """Return x with a root mean square of 1."""
    return F.rms_norm(x, x.shape[-1:])


def attention(layer: Any, x: torch.Tensor, rope: ra.Rope | None, table: ra.Table | None) -> Any:
    """Return causal attention, with queries and keys rotated by a Rope if there is one."""
    q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in layer["qkv"](x).chunk(3, dim=-1))
    if rope:
        q, k = rope(q, k, table)
    return layer["mix"](F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))


def ropes(length: int) -> dict[str, ra.Rope]:
    """Return the recipes for a length: unscaled, and scaled by its ratio to the trained one."""
    s = length / TRAINED
    rows = {
        "RoPE": PLAIN,
        "RoPE, linear": scaling.linear(PLAIN, s),
        "RoPE, NTK": scaling.ntk(PLAIN, s),
    }
    recipes = {name: ra.Rope(row, pairing="half") for name, row in rows.items()}
    yarn = scaling.yarn(PLAIN, s, base=BASE, original_length=TRAINED)
    return recipes | {"RoPE, YaRN": ra.Rope(yarn, pairing="half", attention_factor=scaling.yarn_attention_factor(s))}


# --- the experiment ---------------------------------------------------------------------------


def nats(logits: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    """Return the mean of −ln p of the correct bytes."""
    return F.cross_entropy(logits.flatten(0, -2), text.flatten())


def trained(name: str, text: torch.Tensor, *, seed: int, steps: int) -> tuple[Model, list[float]]:
    """
    Return a trained model and its losses.

    With the same seed, all models see the same batches.
    """
    torch.manual_seed(seed)
    model = Model(name)
    rope = ropes(TRAINED)["RoPE"] if name == "RoPE" else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1, cycle_momentum=False)
    draw, losses = torch.Generator().manual_seed(seed), []
    for _ in track(range(steps), f"seed {seed}, {name}", console=STDERR):
        starts = torch.randint(len(text) - TRAINED, (BATCH, 1), generator=draw)
        batch = text[starts + torch.arange(TRAINED + 1)]
        loss = nats(model(batch[:, :-1], rope=rope), batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        losses.append(loss.item())
    return model, losses


@torch.no_grad()
def measured(model: Model, windows: torch.Tensor, length: int, rope: ra.Rope | None) -> float:
    """Return nats per byte over the last bytes of each window, with `length` bytes before."""
    parts = windows[:, -length - 1 : -1].split(2**14 // length)  # as many bytes at a time for each length
    logits = torch.cat([model(part, rope=rope)[:, -TARGETS:] for part in parts])
    return float(nats(logits, windows[:, -TARGETS:]))


def run(seed: int, text: torch.Tensor, windows: torch.Tensor, *, steps: int) -> dict[str, Any]:
    """
    Train all methods with one seed.

    Return nats per byte by method and length, if the method has that length.
    """
    wall, cpu = time.perf_counter(), time.process_time()
    found: dict[str, dict[str, float]] = {}
    last_losses = {}
    for name in METHODS:
        model, losses = trained(name, text, seed=seed, steps=steps)
        last_losses[name] = mean(losses[-50:])
        for length in LENGTHS if name != "learned" else [TRAINED]:  # it has no vectors for longer ones
            rotations: dict[str, Any] = ropes(length) if name == "RoPE" else {name: None}
            for method, rope in rotations.items():
                found.setdefault(method, {})[str(length)] = measured(model, windows, length, rope)
        STDERR.print(f"{name}: perplexity {math.exp(found[name][str(TRAINED)]):.2f} with {TRAINED} bytes of context")
    times = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    return {"seed": seed, "nats": found, "last_losses": last_losses, **times}


# --- the results ------------------------------------------------------------------------------


def about(text: bytes, files: list[bytes], windows: torch.Tensor, *, steps: int) -> dict[str, Any]:
    """Return facts on the run: date, system, versions, corpus, model, training and testing."""
    parameters = sum(p.numel() for p in Model("RoPE").parameters())
    return {
        "when": dt.datetime.now(dt.UTC).date().isoformat(),
        "system": f"{platform.system()} {platform.machine()} ({torch.backends.cpu.get_cpu_capability()})",
        "threads": torch.get_num_threads(),
        "versions": {
            "Python": platform.python_version(),
            "torch": torch.__version__,
            "rope_any": ra.__version__,
        },
        "corpus": {
            "trained_on": len(text),
            "held_out_files": len(files),
            "held_out": sum(map(len, files)),
        },
        "model": {
            "width": WIDTH,
            "heads": HEADS,
            "layers": LAYERS,
            "base": BASE,
            "parameters": parameters,
        },
        "training": {"length": TRAINED, "steps": steps, "batch": BATCH, "rate": RATE},
        "testing": {"windows": len(windows), "targets": TARGETS},
    }


def perplexities(results: dict[str, Any]) -> dict[str, dict[int, list[float]]]:
    """Return the perplexity per byte of each method, length and seed."""
    runs = [run["nats"] for run in results["runs"]]
    return {
        method: {int(n): [math.exp(run[method][n]) for run in runs] for n in lengths}
        for method, lengths in runs[0].items()
    }


def cell(found: list[float] | None) -> str:
    """Return mean, lowest and highest perplexity of all seeds, or "can't" if there is none."""
    return f"{mean(found):.2f} ({min(found):.2f}–{max(found):.2f})" if found else "can't"


def shown(results: dict[str, Any]) -> str:
    """Return the perplexities as a page in Markdown: facts on the run, and a table."""
    facts, runs = results["about"], results["runs"]
    corpus, training = facts["corpus"], facts["training"]
    batch = f"{training['batch']} × {training['length']}"
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    cpu, wall = (mean(run[key] for run in runs) / 60 for key in ("cpu_s", "wall_s"))
    lines = [
        "<!-- written by tools/perplexity.py; run it again rather than edit this file -->\n",
        (f"Measured on {facts['when']} on {facts['system']}, {facts['threads']} threads, with {versions}."),
        (f"The library of this Python gave {format_number(corpus['trained_on'])} bytes to train on,"),
        (f"and {format_number(corpus['held_out'])} in {corpus['held_out_files']} held-out files,"),
        f"of which {facts['testing']['windows']} windows were read.",
        f"Each model has {format_number(facts['model']['parameters'])} parameters",
        f"and was trained on {format_number(training['steps'])} batches of {batch} bytes.",
        (f"Seeds: {len(runs)}. One took {cpu:.1f} minutes of CPU time, {cpu / facts['threads']:.1f} on each thread,"),
        f"and {wall:.1f} by the clock.\n",
        f"| positions | {' | '.join(map(format_number, LENGTHS))} |",
        f"| --- {'| ---: ' * len(LENGTHS)}|",
    ]
    for method, row in perplexities(results).items():
        lines.append(f"| {method} | {' | '.join(cell(row.get(length)) for length in LENGTHS)} |")
    return "\n".join(lines) + "\n"


def draw(results: dict[str, Any], path: Path) -> Any:
    """Draw a line of perplexity by length for each method, with bars over the seeds."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    colors = (
        looks.GREY,
        looks.ORANGE,
        looks.PURPLE,
        looks.BLACK,
        looks.RED,
        looks.GREEN,
        looks.BLUE,
    )
    lines = (":", "-.", "", "-", "--", (0, (6, 1.5, 1.2, 1.5)), "-")
    with mpl.rc_context(looks.LOOKS | {"svg.hashsalt": "rope_any"}):
        figure = Figure(figsize=(looks.WIDTH, 4.4), layout="constrained")
        axes = figure.subplots()
        styles = zip(colors, lines, "sDXo^vP", strict=True)
        for (method, row), (color, line, marker) in zip(perplexities(results).items(), styles, strict=True):
            means = [mean(found) for found in row.values()]
            ends = [(m - min(found), max(found) - m) for m, found in zip(means, row.values(), strict=True)]
            shape: dict[str, Any] = {
                "linestyle": line,
                "marker": marker,
                "capsize": 3,
                "elinewidth": 1,
            }
            axes.errorbar(
                list(row),
                means,
                list(zip(*ends, strict=True)),
                color=color,
                label=method,
                **shape,
            )
        axes.axvline(TRAINED, color=looks.BLACK, linewidth=0.9, linestyle=(0, (1, 2)))
        axes.text(TRAINED, 1, " trained", va="top", transform=axes.get_xaxis_transform(), fontsize=8.5)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="context (bytes)",
            ylabel="perplexity per byte",
            xticks=LENGTHS,
        )
        low, high = axes.get_ylim()
        axes.set_yticks([n * 10**k for k in range(4) for n in (1, 1.5, 2, 3, 4, 5, 6, 8) if low < n * 10**k < high])
        looks.group_thousands(axes.xaxis)
        looks.group_thousands(axes.yaxis)
        figure.legend(loc="outside lower center", ncols=4)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return figure


def write(results: dict[str, Any], options: argparse.Namespace) -> None:
    """Write the files that the options name."""
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(shown(results), encoding="utf-8")
    if options.chart:
        draw(results, options.chart)


def main(arguments: Sequence[str] | None = None) -> None:
    """
    Train and test all methods with each seed.

    Print the table, and write the files that the options name.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds",
        type=int,
        default=1,
        help="number of repetitions, each with other weights and batches",
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="number of batches to train each model on")
    parser.add_argument(
        "--windows",
        type=int,
        default=WINDOWS,
        help="largest number of held-out windows to test on",
    )
    parser.add_argument("--threads", type=int, default=2, help="number of threads of torch")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    parser.add_argument("--chart", type=Path, help="write a chart here (.svg, .png)")
    options = parser.parse_args(arguments)
    if options.chart and find_spec("matplotlib") is None:
        parser.error("--chart needs matplotlib, which is not installed")
    torch.set_num_threads(options.threads)
    text, files = corpus()
    windows = held_out(files, options.windows)
    results: dict[str, Any] = {
        "about": about(text, files, windows, steps=options.steps),
        "runs": [],
    }
    for seed in range(options.seeds):
        results["runs"].append(run(seed, as_tensor(text), windows, steps=options.steps))
        write(results, options)  # after each seed, so that an interrupt keeps the results
    print(shown(results))


if __name__ == "__main__":
    main()
