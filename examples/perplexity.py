"""
What positions are worth to a transformer, and how far they reach: a small model on a CPU, trained once with each.

It learns the source text of Python's own standard library, byte by byte, 128 bytes at a time: with no positions, with
the sinusoids of "Attention is all you need" added, with learned vectors added, and with RoPE. Then it reads held-out
files with 128 to 1024 bytes of context, RoPE also with its frequencies scaled: linear, NTK, YaRN. Nothing is fetched.

    python examples/perplexity.py                         # one seed
    python examples/perplexity.py --seeds 3 --json out.json --markdown out.md --chart out.svg
    python examples/perplexity.py --steps 20 --windows 4  # does it run?

Needs torch and rich, and matplotlib for the chart.
"""

import argparse
import datetime as dt
import json
import math
import platform
import sysconfig
import time
from pathlib import Path
from statistics import mean

import torch
from rich.console import Console
from rich.progress import track
from torch import nn
from torch.nn import functional as F  # noqa: N812  # the custom

import rope_any as ra
from rope_any import scaling

TRAINED, LENGTHS = 128, (128, 256, 512, 1024)  # bytes of context
WIDTH, HEADS, LAYERS, BASE = 128, 4, 4, 10_000.0
BATCH, RATE = 8, 3e-3
TARGETS = 32  # the last bytes of each window: those that are predicted when a model is tested
PLAIN = ra.frequencies(WIDTH // HEADS, base=BASE)
ADDED = {"no positions": None, "sinusoidal": "sinusoidal", "learned": "learned", "RoPE": None}
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data"}
ERRORS = Console(stderr=True)


# --- the text ---------------------------------------------------------------------------------------------------------


def corpus():
    """Return the bytes to train on, and a list of held-out files: every 16th of the standard library, without tests."""
    home = Path(sysconfig.get_path("stdlib"))
    names = sorted(path.relative_to(home) for path in home.rglob("*.py"))
    # what the build of an interpreter wrote, and tables that programs wrote, are no text of people
    names = [n for n in names if not LEFT_OUT & set(n.parts) and not n.parts[0].startswith(("config-", "_sysconfigdata"))]
    files = [(home / name).read_bytes() for name in names]
    return b"".join(file for i, file in enumerate(files) if i % 16), files[::16]


def as_tensor(text):
    """Return bytes as integers."""
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def held_out(files, count):
    """Return windows ``(count, longest + 1)``, each of one file, evenly taken from all that don't overlap."""
    size = max(LENGTHS) + 1
    windows = torch.cat([as_tensor(file).unfold(0, size, size) for file in files if len(file) >= size])
    return windows[torch.linspace(0, len(windows) - 1, min(count, len(windows))).long()]


# --- the model --------------------------------------------------------------------------------------------------------


class Model(nn.Module):
    """A decoder of bytes: pre-norm, tied embeddings, and vectors added at the bottom where positions are of that kind."""

    def __init__(self, added=None, *, layers=LAYERS):
        super().__init__()
        shapes = {"qkv": (WIDTH, 3 * WIDTH), "mix": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
        self.added, self.bytes = added, nn.Parameter(torch.randn(256, WIDTH) / WIDTH**0.5)
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(*shape, bias=False) for name, shape in shapes.items()}) for _ in range(layers)
        )
        # drawn last, so that with one seed all else is the same
        self.places = nn.Parameter(0.02 * torch.randn(TRAINED, WIDTH)) if added == "learned" else None

    def forward(self, text, *, rope=None, first=0):
        """Return logits ``(batch, seq, 256)`` of the next bytes; the first byte stands at position `first`."""
        positions = range(first, first + text.shape[-1])
        x = self.bytes[text] * WIDTH**0.5
        if self.added == "sinusoidal":
            cos, sin = ra.cos_sin(positions, ra.frequencies(WIDTH, base=BASE), like=x)
            x = x + torch.stack((sin, cos), dim=-1).flatten(-2)
        if self.added == "learned":
            x = x + self.places[positions]
        table = rope and rope.table(positions, like=x)  # once, for all layers
        for layer in self.layers:
            x = x + attention(layer, norm(x), rope, table)
            x = x + layer["down"](F.gelu(layer["up"](norm(x))))
        return norm(x) @ self.bytes.mT


def norm(x):
    """Return x with a root mean square of 1."""
    return F.rms_norm(x, x.shape[-1:])


def attention(layer, x, rope, table):
    """Return what each token gathers from itself and those before it."""
    q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in layer["qkv"](x).chunk(3, dim=-1))
    if rope:
        q, k = rope(q, k, table)
    return layer["mix"](F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))


def ropes(length):
    """Return the recipes for a length: plain, and scaled by how many times longer it is than the trained one."""
    s = length / TRAINED
    rows = {"RoPE": PLAIN, "RoPE, linear": scaling.linear(PLAIN, s), "RoPE, NTK": scaling.ntk(PLAIN, s)}
    recipes = {name: ra.Rope(row, pairing="half") for name, row in rows.items()}
    yarn = scaling.yarn(PLAIN, s, base=BASE, original_length=TRAINED)
    return recipes | {"RoPE, YaRN": ra.Rope(yarn, pairing="half", attention_factor=scaling.yarn_attention_factor(s))}


# --- the experiment ---------------------------------------------------------------------------------------------------


def nats(logits, text):
    """Return the mean of −ln p of the bytes that came."""
    return F.cross_entropy(logits.flatten(0, -2), text.flatten())


def trained(name, text, *, seed, steps):
    """Return a trained model, and its losses in nats per byte. With one seed, all see the same batches."""
    torch.manual_seed(seed)
    model, rope = Model(ADDED[name]), ropes(TRAINED)["RoPE"] if name == "RoPE" else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1, cycle_momentum=False)
    draw, losses = torch.Generator().manual_seed(seed), []
    for _ in track(range(steps), f"seed {seed}, {name}", console=ERRORS):
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
def tested(model, windows, length, rope=None):
    """Return nats per byte over the last bytes of each window, seen with as much of its end as is asked for."""
    found = []
    for part in windows[:, -length - 1 :].split(2**14 // length):  # as many tokens at a time for each length
        logits = model(part[:, :-1], rope=rope)
        found += [nats(a, b).item() for a, b in zip(logits[:, -TARGETS:], part[:, -TARGETS:], strict=True)]
    return mean(found)


def run(seed, text, windows, *, steps):
    """Return what one seed gives: nats per byte by method and length, or None where a method has no such length."""
    wall, cpu, found, losses = time.perf_counter(), time.process_time(), {}, {}
    for name in ADDED:
        model, losses[name] = trained(name, text, seed=seed, steps=steps)
        for length in LENGTHS:
            for method, rope in (ropes(length) if name == "RoPE" else {name: None}).items():
                reached = name != "learned" or length <= TRAINED
                found.setdefault(method, {})[str(length)] = tested(model, windows, length, rope) if reached else None
        ERRORS.print(f"{name}: perplexity {math.exp(found[name][str(TRAINED)]):.2f} with {TRAINED} bytes of context")
    times = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    return {"seed": seed, "nats": found, "last_losses": {n: mean(l[-50:]) for n, l in losses.items()}, **times}


# --- what is shown ----------------------------------------------------------------------------------------------------


def about(text, files, windows, *, steps):
    """Say on what, with what, of what and when."""
    return {
        "when": dt.datetime.now(dt.UTC).date().isoformat(),
        "system": f"{platform.system()} {platform.machine()} ({torch.backends.cpu.get_cpu_capability()})",
        "threads": torch.get_num_threads(),
        "versions": {"Python": platform.python_version(), "torch": torch.__version__, "rope_any": ra.__version__},
        "corpus": {"trained_on": len(text), "held_out_files": len(files), "held_out": sum(map(len, files))},
        "windows": len(windows),
        "steps": steps,
        "parameters": sum(p.numel() for p in Model().parameters()),
    }


def perplexities(results):
    """Return the perplexity per byte of each method, length and seed, or None where a method has no such length."""
    runs = [run["nats"] for run in results["runs"]]
    return {
        method: {
            int(n): None if runs[0][method][n] is None else [math.exp(run[method][n]) for run in runs] for n in lengths
        }
        for method, lengths in runs[0].items()
    }


def spaced(number):
    """Return a number with its thousands apart."""
    return f"{number:,}".replace(",", " ")


def cell(found):
    """Return the mean over seeds, and the lowest and the highest."""
    digits = 2 if found and max(found) < 100 else 0
    return f"{mean(found):.{digits}f} ({min(found):.{digits}f}–{max(found):.{digits}f})" if found else "can't"


def shown(results):
    """Return the figures as a table in Markdown."""
    facts, runs = results["about"], results["runs"]
    corpus, versions = facts["corpus"], ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    minutes = mean(run["cpu_s"] for run in runs) / facts["threads"] / 60
    lines = [
        "<!-- written by examples/perplexity.py; run it again rather than edit this file -->",
        "",
        f"Measured on {facts['when']} on {facts['system']}, {facts['threads']} threads, with {versions}, whose library gave "
        f"{spaced(corpus['trained_on'])} bytes to train on, and {spaced(corpus['held_out'])} in "
        f"{corpus['held_out_files']} held-out files. {len(runs)} seeds; each model has "
        f"{spaced(facts['parameters'])} parameters and was trained on {facts['steps']} batches of {BATCH} × {TRAINED} bytes. "
        f"A seed took {mean(run['cpu_s'] for run in runs) / 60:.0f} minutes of CPU time, {minutes:.0f} on each core, and "
        f"{mean(run['wall_s'] for run in runs) / 60:.0f} by the clock.",
        "",
        f"| positions | {' | '.join(map(spaced, LENGTHS))} |",
        f"| --- {'| ---: ' * len(LENGTHS)}|",
    ]
    rows = perplexities(results).items()
    return "\n".join([*lines, *(f"| {m} | {' | '.join(cell(row[n]) for n in LENGTHS)} |" for m, row in rows)]) + "\n"


def draw(results, path):
    """Draw perplexity by length: a line for each method, with the lowest and the highest of the seeds."""
    import sys

    sys.path.append(str(Path(__file__).parent.parent / "docs"))
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator
    from pictures import BLACK, BLUE, GREEN, GREY, LOOKS, PURPLE, RED, WIDTH as WIDE, apart

    styles = [(GREY, "s", ":"), ("#E69F00", "D", "-."), (PURPLE, "X", ""), (BLACK, "o", "-"), (RED, "^", "--")]
    styles += [(GREEN, "v", (0, (6, 1.5, 1.2, 1.5))), (BLUE, "P", "-")]
    with mpl.rc_context(LOOKS):
        figure = Figure(figsize=(WIDE, 4.4), layout="constrained")
        axes = figure.subplots()
        for (method, row), (color, marker, line) in zip(perplexities(results).items(), styles, strict=True):
            reached = {n: found for n, found in row.items() if found}
            means = {n: mean(found) for n, found in reached.items()}
            spread = [[means[n] - min(f) for n, f in reached.items()], [max(f) - means[n] for n, f in reached.items()]]
            looks = {"color": color, "marker": marker, "linestyle": line, "capsize": 3, "elinewidth": 1}
            axes.errorbar(means.keys(), means.values(), spread, label=method, **looks)
        axes.axvline(TRAINED, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)), zorder=0)
        axes.set(xscale="log", yscale="log", xlabel="context (bytes)", ylabel="perplexity per byte")
        axes.set_xticks(LENGTHS)
        apart(axes.xaxis)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main():
    """Train, test, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="how many times, each with other weights and batches")
    parser.add_argument("--steps", type=int, default=STEPS, help="batches that each model is trained on")
    parser.add_argument("--windows", type=int, default=WINDOWS, help="held-out windows that it is tested on, at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--markdown", type=Path, help="write the table here")
    parser.add_argument("--chart", type=Path, help="write a chart here (.svg, .png)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    text, files = corpus()
    windows = held_out(files, options.windows)
    facts = about(text, files, windows, steps=options.steps)
    runs = [run(seed, as_tensor(text), windows, steps=options.steps) for seed in range(options.seeds)]
    results = {"about": facts, "runs": runs}
    print(shown(results))
    for path, content in ((options.json, json.dumps(results, indent=1) + "\n"), (options.markdown, shown(results))):
        if path:
            path.write_text(content, encoding="utf-8")
    if options.chart:
        draw(results, options.chart)


if __name__ == "__main__":
    main()
