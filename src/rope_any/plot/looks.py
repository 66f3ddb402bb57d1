"""
Define the style of pictures: figure settings, colours, line styles, labels and number formats.

The colours differ in lightness or line style, so colour-blind readers can distinguish them. Axes given by the caller
keep their own style; figures made here use ``LOOKS``.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, missing_package

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
"""matplotlib's rcParams for the figures that the functions create."""
WIDTH = 7.6  # inches, as wide as the text of a page


@contextmanager
def axes_or_new(ax: "Axes | None", *, height: float = 4.0, projection: str = "rectilinear") -> Iterator["Axes"]:
    """Yield `ax`, or axes of a new figure, `height` inches high, in style `LOOKS`; raise if not of the projection."""
    try:
        import matplotlib as mpl
        from matplotlib import pyplot as plt
        from matplotlib.axes import Axes
    except ModuleNotFoundError as error:
        raise missing_package("rope_any.plot", error, "plot") from None
    if ax is not None and not isinstance(ax, Axes):
        raise ArgumentTypeError("ax", "be an Axes of matplotlib", ax)
    if ax is not None and ax.name != projection:
        wanted = f'be {projection}, of subplots(subplot_kw={{"projection": "{projection}"}})'
        raise ArgumentValueError("ax", wanted, Text(f"{ax.name} axes"))
    with mpl.rc_context(LOOKS if ax is None else {}):
        yield ax or plt.figure(figsize=(WIDTH, height), layout="constrained").add_subplot(projection=projection)


def line_styles(count: int) -> list[dict[str, Any]]:
    """Return the styles of 1 to 5 lines (else raise) as keywords for ``plot``; of several, the first is wide, pale."""
    if not 1 <= count <= 1 + len(STYLES):
        raise ArgumentValueError("ropes", f"be from 1 to {1 + len(STYLES)}, so that they can be distinguished", count)
    others: list[dict[str, Any]] = [{"color": color, "linestyle": style} for color, style in STYLES]
    first: dict[str, Any] = {"color": GREY, "linewidth": 3.4, "alpha": 0.6}
    return [first, *others][:count] if count > 1 else others[:1]


def text_color(ax: "Axes") -> Any:
    """Return the colour of the label of the x axis of `ax`, in which other text and lines are then drawn."""
    return ax.xaxis.label.get_color()


def set_text_color(ax: "_AxesBase", like: "Axes") -> None:
    """Give the ticks and the y label of secondary axes `ax` the text colour of the axes `like`."""
    ax.tick_params(colors=text_color(like))
    ax.yaxis.label.set_color(text_color(like))


def shades(count: int, ax: "Axes") -> np.ndarray[Any, Any]:
    """Return RGBA colours, ``(count, 4)``, for lines on `ax`: dark to light if its text is dark, else light to dark."""
    import matplotlib as mpl

    # the last ones too differ visibly from the background
    ends = (0.0, 0.85) if np.mean(mpl.colors.to_rgb(text_color(ax))) < 0.5 else (1.0, 0.3)
    return np.asarray(mpl.colormaps["cividis"](np.linspace(*ends, count)))


def format_number(number: float) -> str:
    """Return a number as text: from 100 to below 1e10 rounded to an integer, with thin spaces; else to 3 digits."""
    return typeset(f"{number:,.0f}" if 100 <= abs(number) < 1e10 else f"{number:.3g}")


def format_position(position: float) -> str:
    """Return a position as text, with thin spaces between thousands; a float with at most four decimals."""
    return typeset(f"{position:,}" if isinstance(position, int) else f"{round(position, 4):,.15g}")


def typeset(text: str) -> str:
    """Return `text`, a number from Python, with thin spaces for commas, minus signs, and exponents like e−7 and e12."""
    return text.replace(",", "\u202f").replace("e-0", "e-").replace("e+", "e").replace("-", "−")


def group_thousands(axis: "Axis") -> None:
    """Format the tick labels of an axis with grouped thousands, and turn its minor ticks off."""
    axis.set_major_formatter(lambda number, _: format_number(number))
    axis.minorticks_off()


def label_right(ax: "Axes", name: str, height: float, above: float = 0) -> None:
    """Write `name` at the right of the axes, at the y coordinate `height`, or `above` points higher."""
    look: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    ax.annotate(name, (1, height), (4, above), **look, fontsize=8.5, parse_math=False, color=text_color(ax))


def draw_lengths(ax: "Axes", lengths: Mapping[str, float | Sequence[float]]) -> None:
    """Draw each name's context lengths as horizontal lines, equal ones once, named at the right without overlap."""
    names: dict[float, list[str]] = {}
    for name, each in lengths.items():
        for length in dict.fromkeys(as_sequence(each)):
            names.setdefault(length, []).append(name)
    for length, equal in names.items():
        ax.axhline(length, **THIN, color=text_color(ax), gid=", ".join(equal))  # no label: not in the legend
    ax.get_ylim()  # update the limits, so that they include all lines
    heights = {length: ax.transData.transform((0, length))[1] * 72 / ax.figure.dpi for length in names}  # points
    free = -math.inf
    for length, height in sorted(heights.items(), key=itemgetter(1)):
        free = max(free, height)
        label_right(ax, f"{', '.join(names[length])} {format_number(length)}", length, free - height)
        free += 13


def as_sequence(lengths: float | Sequence[float]) -> Sequence[float]:
    """Return `lengths` if it is a sequence; one number as a list of it."""
    return lengths if isinstance(lengths, Sequence) else [lengths]


def add_legend(ax: "Axes", drawn: Sequence[Any], *, wrap_width: int = 100, **options: Any) -> None:
    """Add a legend of artists `drawn`, labels wrapped at `wrap_width` and literal; `options` go to ``ax.legend``."""
    # matplotlib would hide labels like _... and parse $
    legend = ax.legend(drawn, [""] * len(drawn), labelcolor=text_color(ax), facecolor=ax.get_facecolor(), **options)
    legend.get_title().set_color(text_color(ax))
    for text, one in zip(legend.get_texts(), drawn, strict=True):
        text.set(text=fill(one.get_label(), wrap_width), parse_math=False)
