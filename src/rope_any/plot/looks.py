"""
Define how pictures look: figures, colours, styles of lines, names and numbers.

Colour-blind eyes can tell the colours apart, which differ in lightness or come with a style of line. What is drawn on
axes that are given keeps the looks that they were made with; figures made here have ``LOOKS``.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axes._base import _AxesBase
    from matplotlib.axis import Axis

# The colours of Okabe and Ito, a darker one for their pale purple, and greys.
BLACK, GREY, BLUE, RED = "#222222", "#767676", "#0072B2", "#D55E00"
GREEN, PURPLE, ORANGE = "#009E73", "#A8518A", "#E69F00"
STYLES = [(BLUE, "-"), (RED, (0, (5, 1.5))), (GREEN, (0, (6, 1.5, 1.2, 1.5))), (PURPLE, (0, (1.4, 1.2)))]
THIN: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (1, 2))}
LOOKS: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "font.size": 9.5,
    "grid.alpha": 0.2,
    "grid.color": GREY,
    "grid.linewidth": 0.6,
    "legend.framealpha": 0.9,
    "legend.edgecolor": "none",
    "lines.linewidth": 1.9,
}
"""The settings of matplotlib under which the functions make their figures."""
WIDTH = 7.6  # inches, as wide as the text of a page


@contextmanager
def drawing_on(ax: "Axes | None", *, height: float = 4.0, projection: str = "rectilinear") -> Iterator["Axes"]:
    """Give the axes that are given, or those of a new figure, to be drawn on in the looks of the house."""
    try:
        import matplotlib as mpl
        from matplotlib import pyplot as plt
        from matplotlib.axes import Axes
    except ModuleNotFoundError as error:
        msg = f'rope_any.plot needs {error.name}, which is missing; install it by: pip install "rope-any[plot]"'
        raise ModuleNotFoundError(msg, name=error.name) from None
    if ax is not None and not isinstance(ax, Axes):
        raise ArgumentTypeError("ax", "be an Axes of matplotlib", ax)
    if ax is not None and ax.name != projection:
        wanted = f'be {projection}, of subplots(subplot_kw={{"projection": "{projection}"}})'
        raise ArgumentValueError("ax", wanted, Text(f"{ax.name} axes"))
    with mpl.rc_context(LOOKS if ax is None else {}):
        yield ax or plt.figure(figsize=(WIDTH, height), layout="constrained").add_subplot(projection=projection)


def styles(count: int) -> list[dict[str, Any]]:
    """Return what lines look like: one alone, or the first wide and pale and the others each in a style of its own."""
    if not 1 <= count <= 1 + len(STYLES):
        raise ArgumentValueError("ropes", f"be from 1 to {1 + len(STYLES)}, to be told apart", count)
    others: list[dict[str, Any]] = [{"color": color, "linestyle": style} for color, style in STYLES]
    first: dict[str, Any] = {"color": GREY, "linewidth": 3.4, "alpha": 0.6}
    return [first, *others][:count] if count > 1 else others[:1]


def ink(ax: "Axes") -> Any:
    """Return the colour in which axes are written on, of whatever style: it is seen on their ground."""
    return ax.xaxis.label.get_color()


def inked(ax: "_AxesBase", like: "Axes") -> None:
    """Write on axes that stand beside others in the ink of these."""
    ax.tick_params(colors=ink(like))
    ax.yaxis.label.set_color(ink(like))


def shades(count: int, ax: "Axes") -> np.ndarray[Any, Any]:
    """Return colours from that which is nearest to the ink to one that is seen on its ground."""
    import matplotlib as mpl

    ends = (0.0, 0.85) if np.mean(mpl.colors.to_rgb(ink(ax))) < 0.5 else (1.0, 0.3)
    return np.asarray(mpl.colormaps["cividis"](np.linspace(*ends, count)))


def tokens(number: float) -> str:
    """Return a number as it is read: its thousands apart, or with three digits."""
    return spaced(f"{number:,.0f}" if 100 <= abs(number) < 1e10 else f"{number:.3g}")


def in_full(position: float) -> str:
    """Return a position as it is read, with its fraction."""
    return spaced(f"{position:,}" if isinstance(position, int) else f"{round(position, 4):,.15g}")


def spaced(text: str) -> str:
    """Return a number in print: thin spaces between thousands, a minus, and no zeros before an exponent."""
    return text.replace(",", "\u202f").replace("e-0", "e-").replace("e+", "e").replace("-", "−")


def apart(axis: "Axis") -> None:
    """Write the numbers of an axis with their thousands apart."""
    axis.set_major_formatter(lambda number, _: tokens(number))
    axis.minorticks_off()


def named(ax: "Axes", name: str, height: float, above: float = 0) -> None:
    """Write a name at the right end, at the height of what it names, or some points above it."""
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    ax.annotate(name, (1, height), (4, above), **where, va="center", fontsize=8.5, parse_math=False, color=ink(ax))


def marked(ax: "Axes", lengths: Mapping[str, float | Sequence[float]]) -> None:
    """Draw lengths of contexts across, each once, and name them at the right end, one above the other."""
    names: dict[float, list[str]] = {}
    for name, each in lengths.items():
        for length in dict.fromkeys(several(each)):
            names.setdefault(length, []).append(name)
    for length, alike in names.items():
        ax.axhline(length, **THIN, color=ink(ax), gid=", ".join(alike))  # without a label: not in the legend
    ax.get_ylim()  # all are in sight now
    heights = {length: ax.transData.transform((0, length))[1] * 72 / ax.figure.dpi for length in names}  # points
    free = -math.inf
    for length, height in sorted(heights.items(), key=itemgetter(1)):
        free = max(free, height)
        named(ax, f"{', '.join(names[length])} {tokens(length)}", length, free - height)
        free += 13


def several(lengths: float | Sequence[float]) -> Sequence[float]:
    """Return lengths that may be one."""
    return lengths if isinstance(lengths, Sequence) else [lengths]


def add_legend(ax: "Axes", drawn: Sequence[Any], *, wide: int = 100, **options: Any) -> None:
    """Name what is drawn as it is called: matplotlib hides what begins with ``_``, and reads formulas between ``$``."""
    legend = ax.legend(drawn, [""] * len(drawn), labelcolor=ink(ax), facecolor=ax.get_facecolor(), **options)
    legend.get_title().set_color(ink(ax))
    for text, one in zip(legend.get_texts(), drawn, strict=True):
        text.set(text=fill(one.get_label(), wide), parse_math=False)
