"""
The pictures of the pages. ``conf.py`` draws them when it builds the pages.

``python docs/pictures.py some/folder`` draws them alone. Every curve is computed by `rope_any`. The colours are those
of Okabe and Ito, which colour-blind people can distinguish, and each line has its own style too.
"""

import math
import runpy
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle, Rectangle
from matplotlib.ticker import FixedLocator

import rope_any as ra
from rope_any import axes as axis_functions
from rope_any import config, plot, scaling
from rope_any import positions as position_functions
from rope_any.plot import looks
from rope_any.plot.looks import BLACK, BLUE, GREY, RED, STYLES, WIDTH, group_thousands

LOOKS = looks.LOOKS | {"svg.fonttype": "path", "svg.hashsalt": "rope_any"}

Row = tuple[float, ...]


def line_in_module(script: str) -> int:
    """Return the line of the function of `plot` that a script of the gallery shows: scripts are sorted by it."""
    return getattr(plot, Path(script).stem).__code__.co_firstlineno  # type: ignore[no-any-return]


def before_and_after(plain: Row, after: dict[str, Row], lengths: dict[str, float]) -> Figure:
    """Draw wavelengths by pair, plain and scaled, and below how many times slower each pair has become."""
    figure = Figure(figsize=(WIDTH, 5.8), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[5, 3])
    rows = {"plain": plain} | after
    plot.wavelengths(*rows.values(), labels=[*rows], lengths=lengths, ax=upper)
    upper.set(xlabel=None, title="Wavelengths")
    for look, row in zip(looks.line_styles(len(rows)), rows.values(), strict=True):
        lower.plot([f / g for f, g in zip(plain, row, strict=True)], **look)
    lower.set(yscale="log", xlabel="pair", ylabel="times slower", title="Times slower than plain")
    ticks = [1, 2, 4, 8, 16, 32, 64]
    most = max(f / g for row in after.values() for f, g in zip(plain, row, strict=True))
    lower.set_yticks([tick for tick in ticks if tick <= 1.3 * most])
    lower.set_ylim(0.85, 1.25 * most)
    group_thousands(lower.yaxis)
    return figure


# --- one function for each picture ----------------------------------------------------------------------------

BASE, TRAINED = 10_000.0, 4096
PLAIN = ra.frequencies(128, base=BASE)


def by_parts() -> Figure:
    """Draw ntk_by_parts, yarn and llama3, from 4096 to 65 536 tokens."""
    after = {
        "ntk_by_parts, factor 16": scaling.ntk_by_parts(PLAIN, 16.0, original_length=TRAINED),
        "yarn, factor 16": scaling.yarn(PLAIN, 16.0, base=BASE, original_length=TRAINED),
        "llama3, factor 16, 1 to 4 turns": scaling.llama3(
            PLAIN, 16.0, original_length=TRAINED, low_freq_factor=1.0, high_freq_factor=4.0
        ),
    }
    return before_and_after(PLAIN, after, {"trained": TRAINED, "extended": 16 * TRAINED})


def proportional_pairs() -> Figure:
    """Draw p-RoPE and partial rotary: wavelengths by pair, and which features are pairs."""
    head, share, base = 512, 0.25, 1_000_000.0
    whole, part = ra.frequencies(head, base=base), ra.frequencies(int(share * head), base=base)
    figure = Figure(figsize=(WIDTH, 6.2), layout="constrained")
    upper, strip = figure.subplots(2, 1, height_ratios=[7, 2])
    labels = [
        "plain: 256 pairs rotate",
        "proportional, 0.25: 64 of 256 pairs rotate",
        "partial rotary, 0.25: 64 pairs in all",
    ]
    rows, longest = (whole, scaling.proportional(whole, share), part), {"longest\ncontext": 262_144}
    plot.wavelengths(*rows, labels=labels, lengths=longest, ax=upper)
    upper.axvspan(64, head // 2 - 1, color=GREY, alpha=0.1, linewidth=0)
    upper.text(0.97, 0.06, "pairs 64 to 255 are not rotated", ha="right", transform=upper.transAxes)
    upper.set_title("Wavelengths, 512 features, base 1\u202f000\u202f000")
    upper.legend(loc="upper right", bbox_to_anchor=(1, 0.35))
    few = ra.frequencies(16)
    ropes = ra.Rope(scaling.proportional(few, 0.5), pairing="half"), ra.Rope(few[::2], pairing="half")
    plot.pairs(*ropes, labels=["proportional, 0.5", "partial rotary, 0.5"], head_dim=16, ax=strip)
    return figure


def wavelengths_of(row: Row) -> Row:
    """Return the wavelengths of frequencies, in tokens."""
    return tuple(2 * math.pi / f if f else math.inf for f in row)


def axes_of_pairs() -> Figure:
    """Draw which features rotate with which axis, for heads of 32 features, in each arrangement."""
    f, ramp, of_three = ra.frequencies(32), ra.frequencies(16), [ra.frequencies(n) for n in (12, 10, 10)]
    recipes = {
        "chunked, sections 4, 6, 6\n(Qwen2-VL)": ra.Rope(axis_functions.chunked(f, [4, 6, 6]), pairing="half"),
        "strided, sections 6, 5, 5\n(Qwen3-VL)": ra.Rope(axis_functions.strided(f, [6, 5, 5]), pairing="half"),
        "axial of three\n(Wan)": ra.Rope(axis_functions.axial(*of_three), pairing="interleaved"),
        "axial of two\n(vision of Qwen2-VL)": ra.Rope(axis_functions.axial(ramp, ramp), pairing="half"),
        "axial of two, in two blocks\n(vision of Gemma 4)": ra.Rope(
            axis_functions.axial(ramp, ramp), pairing="half", blocks=2
        ),
        "alternating, two axes\n(Pixtral)": ra.Rope(axis_functions.alternating(f, 2), pairing="half"),
    }
    figure = Figure(figsize=(WIDTH, 5.6), layout="constrained")
    strip = figure.subplots()
    plot.pairs(*recipes.values(), labels=[*recipes], axes=["time", "row", "column"], ax=strip)
    return figure


def shards() -> Figure:
    """Draw which tokens of 16 four ranks hold, in chunks and zig-zag, and how many keys each rank attends to."""
    length, ranks = 16, 4
    figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
    grid = figure.subplots(2, 2, width_ratios=[13, 5], sharex="col")
    for (strip, bars), zigzag in zip(grid, (False, True), strict=True):
        for rank, (color, _) in enumerate(STYLES):
            held = position_functions.shard(length, ranks, rank, zigzag=zigzag, like=np.ones(1))
            for token in held:
                strip.add_patch(Rectangle((token + 0.05, rank + 0.08), 0.9, 0.84, facecolor=color))
                strip.text(token + 0.5, rank + 0.5, str(token), ha="center", va="center", color="white")
            keys = int(np.sum(held + 1))  # a token attends to itself and to all before it
            bars.barh(rank + 0.5, keys, height=0.6, color=color)
            bars.annotate(str(keys), (keys, rank + 0.5), (4, 0), textcoords="offset points", va="center")
        strip.set(xlim=(0, length), ylim=(ranks, 0), title=f"zigzag={zigzag}: tokens", xticks=[])
        strip.set_yticks([rank + 0.5 for rank in range(ranks)], [f"rank {rank}" for rank in range(ranks)])
        bars.set(xlim=(0, 72), ylim=(ranks, 0), title="keys attended to", xticks=[], yticks=[])
        for axes in (strip, bars):
            axes.grid(visible=False)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
    return figure


GEMMA4 = {
    "model_type": "gemma4",
    "text_config": {
        "model_type": "gemma4_text",
        "num_hidden_layers": 12,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            "full_attention": {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25},
        },
    },
    "vision_config": {"model_type": "gemma4_vision"},
}
CONFIGS = (
    "config.json of\ntransformers",
    "config.json of\ndiffusers",
    "params.json of\nMistral, of Meta",
    "GGUF metadata",
)
SHOWN = ("pairing", "rope_type", "rope_theta", "head_dim")  # of the facts of a layer
LINE, GAP, MARGIN = 12.5, 7.0, 5.0  # points


class Sheet:
    """A figure in points, with a margin to the left and to the right, on which boxes of text are drawn."""

    def __init__(self, width: float, height: float) -> None:
        """Make an empty sheet of a size in points, without its margins."""
        self.figure = Figure(figsize=((width + 2 * MARGIN) / 72, height / 72))
        self.axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set(xlim=(-MARGIN, width + MARGIN), ylim=(height, 0))
        self.axes.set_axis_off()

    def write(self, x: float, y: float, text: str, **look: Any) -> None:
        """Write lines of text; the first is centred at the height y."""
        self.axes.text(x, y, text, **{"fontsize": 8.5, "color": BLACK, "va": "center"} | look)

    def box(self, x: float, y: float, width: float, height: float, *, color: str, shade: float = 0.0) -> None:
        """Draw a box with an edge, filled with a shade of the same colour."""
        self.axes.add_patch(Rectangle((x, y), width, height, facecolor=color, alpha=shade, linewidth=0))
        self.axes.add_patch(Rectangle((x, y), width, height, facecolor="none", edgecolor=color, linewidth=1))

    def arrow(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Draw an arrow."""
        look = {"arrowstyle": "-|>", "color": BLACK, "linewidth": 1, "shrinkA": 0, "shrinkB": 0}
        self.axes.annotate("", end, start, arrowprops=look)

    def part(self, x: float, y: float, width: float, name: str) -> list[float]:
        """Draw a part of GEMMA4 with its kinds of layers; return the heights of their middles and of the lower edge."""
        explanations, inner = config.read(GEMMA4).explain(part=name), LINE * (1 + len(SHOWN)) + GAP
        height = LINE + GAP + len(explanations) * (inner + GAP)
        self.box(x, y, width, height, color=BLUE, shade=0.08)
        self.write(x + GAP, y + 0.75 * LINE, f"part: {name}", weight="bold")
        middles = []
        for number, one in enumerate(explanations):
            top = y + LINE + GAP + number * (inner + GAP)
            self.box(x + GAP, top, width - 2 * GAP, inner, color=BLUE, shade=0.1)
            layers = "all layers" if one.layers is None else f"{len(one.layers)} layers: {one.layer_type}"
            self.write(x + 2 * GAP, top + 0.75 * LINE, layers, weight="bold")
            for row, fact in enumerate(SHOWN, start=1):
                value, source = one.facts[fact]
                text = f"{value:.0f}" if isinstance(value, float) else str(value)
                last = source.rpartition(".")[2] if "." in source else source
                for at, word in ((0.0, fact), (0.22, text), (0.445, f"\N{LEFTWARDS ARROW} {last}")):
                    self.write(x + 2 * GAP + at * (width - 3 * GAP), top + (row + 0.75) * LINE, word, fontsize=8)
            middles.append(top + inner / 2)
        return [*middles, y + height]


def rope_arguments() -> list[str]:
    """Return the arguments of `Rope.from_config` for each rotation of GEMMA4, as text."""
    return [
        f'part="{part}"' + (f'\nlayer_type=\n"{one.layer_type}"' if one.layer_type else "")
        for part in config.read(GEMMA4).parts
        for one in config.read(GEMMA4).explain(part=part)
    ]


def load_a_model() -> Figure:
    """Draw how a config is read: a file, its canonical form with parts and kinds of layers, a Rope for each kind."""
    width = 72 * WIDTH - 2 * MARGIN
    left, right, top = 96.0, 110.0, 34.0
    middle, gap = width - left - right - 2 * 28, 28.0
    height = top + 2 * (LINE + 2 * GAP) + 3 * (LINE * (1 + len(SHOWN)) + 2 * GAP)
    sheet = Sheet(width, height + 2)
    titles = {"file": left / 2, "canonical form": left + gap + middle / 2, "Rope": width - right / 2}
    for title, x in titles.items():
        sheet.write(x, 12, title, ha="center", fontsize=11, weight="bold")
    sheet.box(left + gap, top - GAP, middle, height - top + GAP, color=BLACK)
    y, middles = top, []
    for name in config.read(GEMMA4).parts:
        *found, y = sheet.part(left + gap + GAP, y, middle - 2 * GAP, name)
        middles += found
        y += GAP
    each = (height - top + GAP - (len(CONFIGS) - 1) * GAP) / len(CONFIGS)
    for number, form in enumerate(CONFIGS):
        at = top - GAP + number * (each + GAP)
        sheet.box(1, at, left - 2, each, color=GREY, shade=0.12)
        sheet.write(left / 2, at + each / 2, form, ha="center")
        sheet.arrow((left, at + each / 2), (left + gap - 1, at + each / 2))
    for y, words in zip(middles, rope_arguments(), strict=True):
        sheet.box(width - right, y - 30, right - 1, 60, color=RED, shade=0.08)
        sheet.write(width - right / 2, y, f"Rope\n{words}", ha="center", fontsize=8)
        sheet.arrow((width - right - gap - 2 * GAP, y), (width - right - 1, y))
    return sheet.figure


def load_a_model_narrow() -> Figure:
    """Draw `load_a_model` from top to bottom, for the width of a phone."""
    width = 288.0 - 2 * MARGIN
    inner = LINE * (1 + len(SHOWN)) + GAP
    file, form = 3.2 * LINE, 2 * (LINE + 2 * GAP) + 3 * (inner + GAP) + LINE + GAP
    sheet = Sheet(width, file + form + 2 * 24 + 68)
    sheet.box(1, 1, width - 2, file, color=GREY, shade=0.12)
    sheet.write(width / 2, 0.8 * LINE, "file", ha="center", weight="bold")
    for line, forms in ((2.0, CONFIGS[:2]), (2.8, CONFIGS[2:])):
        sheet.write(width / 2, line * LINE, "; ".join(forms).replace("\n", " "), ha="center", fontsize=8)
    sheet.arrow((width / 2, file + 1), (width / 2, file + 23))
    y = file + 24
    sheet.box(1, y, width - 2, form, color=BLACK)
    sheet.write(width / 2, y + 0.9 * LINE, "canonical form", ha="center", weight="bold")
    y += LINE + GAP
    for name in config.read(GEMMA4).parts:
        y = sheet.part(GAP, y, width - 2 * GAP, name)[-1] + GAP
    bottom = file + 24 + form
    third = (width - 2 - 2 * GAP) / 3
    for number, words in enumerate(rope_arguments()):
        x = 1 + number * (third + GAP)
        sheet.arrow((x + third / 2, bottom), (x + third / 2, bottom + 23))
        sheet.box(x, bottom + 24, third, 66, color=RED, shade=0.08)
        sheet.write(x + third / 2, bottom + 24 + 33, f"Rope\n{words}", ha="center", fontsize=7.5)
    return sheet.figure


def rotated(vector: tuple[float, float], position: int) -> tuple[float, float]:
    """Return a pair at a position, rotated by 0.5 radians per token."""
    x, y = ra.Rope((0.5,), pairing="half").apply(np.asarray([vector]), [position])[0]
    return float(x), float(y)


def pair_axes(axes: Axes, title: str) -> None:
    """Format axes as a square with a unit circle and without ticks."""
    axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=GREY, linewidth=0.8))
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal", xticks=[], yticks=[])
    axes.set_title(title, loc="center")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def draw_pair(axes: Axes, vector: tuple[float, float], label: str, color: str) -> None:
    """Draw a pair as an arrow from the origin, with a label at its end."""
    look = {"arrowstyle": "-|>", "color": color, "linewidth": 1.8, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", vector, (0, 0), arrowprops=look)
    axes.text(1.17 * vector[0], 1.17 * vector[1], label, ha="center", va="center", color=color)


def one_pair(*, columns: int = 3) -> Figure:
    """Draw one pair at positions 0 to 6, and a query and a key at distance 2, twice at different positions."""
    vector = (1.0, 0.0)
    size = (WIDTH, 3.0) if columns == 3 else (4.0, 8.4)
    figure = Figure(figsize=size, layout="constrained")
    first, *others = np.ravel(figure.subplots(3 // columns, columns))
    pair_axes(first, "(1, 0) at positions 0 to 6")
    for position in range(7):
        draw_pair(first, rotated(vector, position), str(position), BLUE)
    for axes, (m, n) in zip(others, ((3, 1), (10, 8)), strict=True):
        query, key = rotated(vector, m), rotated(vector, n)
        pair_axes(axes, f"query at {m}, key at {n}: score {np.dot(query, key):.2f}")
        draw_pair(axes, query, "q", BLUE)
        draw_pair(axes, key, "k", RED)
        start, between = math.degrees(math.atan2(key[1], key[0])), math.degrees(0.5 * (m - n))
        axes.add_patch(Arc((0, 0), 0.7, 0.7, angle=start, theta2=between, color=BLACK))
        middle = rotated((0.62, 0.0), n + (m - n) // 2)
        axes.text(*middle, "1 rad", ha="center", va="center", fontsize=8.5)
    return figure


def one_pair_narrow() -> Figure:
    """Draw `one_pair` from top to bottom, for the width of a phone."""
    return one_pair(columns=1)


def wavelengths_by_base() -> Figure:
    """Draw the wavelengths of heads of 128 features with two bases."""
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    rows = {"base 10 000": PLAIN, "base 500 000": ra.frequencies(128, base=500_000.0)}
    plot.wavelengths(*rows.values(), labels=[*rows], lengths={"text": 8192}, ax=figure.subplots())
    return figure


def pairings() -> Figure:
    """Draw which features of a head of 16 form a pair, in both pairings."""
    figure = Figure(figsize=(WIDTH, 1.7), layout="constrained")
    both = [ra.Rope(ra.frequencies(16), pairing=word) for word in ("half", "interleaved")]
    plot.pairs(*both, labels=["half", "interleaved"], ax=figure.subplots())
    return figure


def narrow(draw: Callable[[], Figure]) -> Figure:
    """Draw a picture for the width of a phone, with the legend of its first axes below it."""
    with patch(f"{__name__}.WIDTH", NARROW), patch.object(looks, "WIDTH", NARROW):
        figure = draw()
    if legend := figure.axes[0].get_legend():
        legend.remove()
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center")
    return figure


def errors_narrow() -> Figure:
    """Draw the picture of the README for the width of a phone."""
    figure = Figure(figsize=(4.0, 3.2), layout="constrained")
    axes = plot.errors(ra.Rope(ra.frequencies(128, base=500_000.0), pairing="half"), ax=figure.subplots())
    axes.set_xticks([1, 1e3, 1e6, 1e9])  # more numbers would overlap
    return figure


NARROW = 4.0  # inches, of which a phone shows as much as of WIDTH on a desktop
# Pictures of the gallery that are also drawn for the width of a phone: how many of each script.
GALLERY = {"hands": 1, "wavelengths": 1, "decay": 2, "table": 1, "errors": 1, "pairs": 1}


def narrow_of_gallery(script: str, number: int) -> Figure:
    """Draw the picture of this number that a script of the gallery draws, for the width of a phone."""
    plt.close("all")
    with patch.object(looks, "WIDTH", NARROW), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of others that the script draws, and that are closed
        runpy.run_path(str(Path(__file__).parent / "gallery_src" / f"{script}.py"))
    figure = plt.figure(number)
    axes = figure.axes[0]
    for text in (axes.xaxis.label, axes.yaxis.label):
        text.set_wrap(True)
    if axes.get_xscale() != "linear":
        axes.xaxis.set_major_locator(FixedLocator([tick for tick in axes.get_xticks() if tick >= 0][::2]))
    plt.close("all")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "errors-narrow": errors_narrow,
    "one-pair": one_pair,
    "one-pair-narrow": one_pair_narrow,
    "wavelengths-by-base": wavelengths_by_base,
    "pairings": pairings,
    "load-a-model": load_a_model,
    "load-a-model-narrow": load_a_model_narrow,
    "by-parts": by_parts,
    "proportional": proportional_pairs,
    "axes-of-pairs": axes_of_pairs,
    "shards": shards,
    "wavelengths-by-base-narrow": partial(narrow, wavelengths_by_base),
    "pairings-narrow": partial(narrow, pairings),
    "by-parts-narrow": partial(narrow, by_parts),
} | {
    f"sphx_glr_{script}_{number:03}-narrow": partial(narrow_of_gallery, script, number)
    for script, count in GALLERY.items()
    for number in range(1, count + 1)
}


CARD = (3.2, 2.24)  # inches, of the shape of sphinx-gallery's cards
# The labels of x and y on the cards of the gallery.
CARDS = {
    "hands": ("", ""),
    "wavelengths": ("pair", "tokens per turn"),
    "decay": ("distance", "score"),
    "table": ("pair", "position"),
    "errors": ("position", "error"),
    "pairs": ("feature", ""),
}


def card(name: str) -> Figure:
    """Draw the picture on a card of the gallery: small, with few and large words."""
    rope, few = ra.Rope(PLAIN, pairing="half"), ra.frequencies(8)
    figure = Figure(figsize=CARD, layout="constrained")
    ax: Any = figure.add_subplot(projection="polar" if name == "hands" else None)
    if name == "hands":
        plot.hands(ra.frequencies(16), 3, legend=False, ax=ax)
    elif name == "wavelengths":
        plot.wavelengths(PLAIN, scaling.linear(PLAIN, 8.0), ax=ax)
    elif name == "pairs":
        both = [ra.Rope(few, pairing=word) for word in ("half", "interleaved")]
        plot.pairs(*both, labels=["half", "inter-\nleaved"], ax=ax)
    elif name == "table":
        plot.table(rope, range(128), ax=ax)
    else:
        {"decay": plot.decay, "errors": plot.errors}[name](rope, ax=ax)
    for other in [*figure.axes[1:], *ax.child_axes, *figure.legends, ax.get_legend()]:  # axes at the side, legends
        if other is not None:
            other.remove()
    ax.set(title="", xlabel=CARDS[name][0], ylabel=CARDS[name][1])
    if name in {"decay", "errors"}:
        ax.set_xticks([1, 10_000 if name == "decay" else 1_000_000])
    return figure


def draw_cards(folder: Path) -> None:
    """Draw the cards of the gallery, in place of those of sphinx-gallery, which are reduced pictures."""
    for name in CARDS:
        with mpl.rc_context(LOOKS | {"font.size": 14, "axes.labelsize": 14, "lines.linewidth": 2.5}):
            card(name).savefig(folder / f"sphx_glr_{name}_thumb.png", dpi=250)


SHARED = (1200, 630)  # pixels of the card that a link to a page shows
LINES = 'rope = ra.Rope.from_config("config.json")\nq, k = rope(q, k, positions)'


def shared() -> Figure:
    """Draw the card of a shared link: the mark, the name, what the library is, and two lines of code."""
    figure = Figure(figsize=(SHARED[0] / 100, SHARED[1] / 100), facecolor="#12161b")
    ax = figure.add_axes((0.05, 0.52, 0.2, 0.2 * SHARED[0] / SHARED[1]), aspect="equal", xlim=(-1.3, 1.3))
    ax.set(ylim=(-1.3, 1.3))
    ax.axis("off")
    key, query = 82, 14  # degrees, as in the mark
    ax.add_patch(Arc((0, 0), 2, 2, theta1=key, theta2=query, color="#1F83C4", linewidth=14))
    ax.add_patch(Arc((0, 0), 2, 2, theta1=query, theta2=key, color=RED, linewidth=14))
    for angle, color in ((query, RED), (key, "#1F83C4")):
        x, y = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        ax.plot([0, x], [0, y], color=color, linewidth=14, solid_capstyle="round")
        ax.plot(x, y, "o", color=color, markersize=38)
    look = {"color": "white", "va": "center"}
    figure.text(0.3, 0.76, "rope_any", fontsize=76, weight="bold", **look)
    figure.text(0.3, 0.6, "RoPE for any array library", fontsize=34, **(look | {"color": "#b9c6d2"}))
    figure.text(0.06, 0.3, LINES, fontsize=31, family="monospace", linespacing=1.6, **(look | {"color": "#9fd3f5"}))
    figure.text(0.06, 0.09, "NumPy · PyTorch · JAX · CuPy · Dask · MLX", fontsize=25, **(look | {"color": "#b9c6d2"}))
    return figure


def draw_shared(file: Path) -> None:
    """Draw the card of a shared link, as PNG, because cards take no SVG."""
    with mpl.rc_context(LOOKS):
        shared().savefig(file, dpi=100, facecolor="#12161b", metadata={"Software": None})


def draw(folder: Path, names: Iterable[str] = PICTURES, *, suffix: str = "svg") -> None:
    """Draw pictures into a folder; unchanged files are not written, so that pages are not built again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        with mpl.rc_context(LOOKS):
            buffer = BytesIO()
            options = {"metadata": {"Date": None}} if suffix == "svg" else {"dpi": 130}
            PICTURES[name]().savefig(buffer, format=suffix, **options)
        file, content = folder / f"{name}.{suffix}", buffer.getvalue()
        if not file.exists() or file.read_bytes() != content:
            file.write_bytes(content)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), suffix="png")
    print(*sorted(Path(sys.argv[1]).iterdir()), sep="\n")
