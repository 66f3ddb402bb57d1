"""
Draw the properties of a rotation with matplotlib.

The extra ``plot`` installs matplotlib. Each function draws on `ax` and returns it; without `ax` it creates a figure by
pyplot, in the style ``looks.LOOKS``, an argument for ``pyplot.rc_context``. Frequencies in place of a `Rope` can be an
array of any library. With several position axes, a token has the same position on all of them unless the function
says otherwise. An argument of a wrong type raises TypeError, and one that is out of range or doesn't fit ValueError.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rope_any._arrays import Array, host, is_array, library, require_array, type_name
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, flag, int32, integer, positive
from rope_any._frequencies import Frequencies, as_rows, tokens_per_turn
from rope_any._pairing import members
from rope_any._positions import as_position_array
from rope_any._rope import Rope
from rope_any._rotation import Table, check_table
from rope_any.plot.looks import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    STYLES,
    THIN,
    add_legend,
    as_sequence,
    axes_or_new,
    draw_lengths,
    format_number,
    format_position,
    group_thousands,
    line_styles,
    set_text_color,
    shades,
    text_color,
)
from rope_any.testing._exact import Sample, exact
from rope_any.testing._task import TABLE_BOUND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["decay", "errors", "hands", "pairs", "table", "wavelengths"]

Recipe: TypeAlias = Rope | Frequencies | Array
Numbers: TypeAlias = np.ndarray[Any, Any]

FACES = [
    (BLUE, "white"),
    (ORANGE, BLACK),
    (BLACK, "white"),
    (PURPLE, "white"),
]  # colours of cells, and of the text on them
EDGE: dict[str, Any] = {"edgecolor": GREY, "linewidth": 0.4}
STILL, PASSING = "frequency 0", "passes through"
LINE = 32  # features in a row of cells
ROWS = 512  # most rows of an image
POINTS = 240  # distances of a decay


class Cell(NamedTuple):
    """A feature of a head, as `pairs` draws it."""

    column: int
    line: int
    pair: int | None
    kinds: list[str]
    """By which axes it is rotated, or why it is not, as the legend names it."""
    faces: list[tuple[Any, str]]
    """For each kind the colour of the cell, and that of text on it."""


# --- one function for each picture ------------------------------------------------------------------------------------


def hands(
    rope: Recipe,
    position: float | Sequence[float] | Array,
    /,
    *,
    pairs: Sequence[int] | Array | None = None,
    axes: Sequence[str] | None = None,
    legend: bool = True,
    ax: "Axes | None" = None,
) -> "Axes":
    """
    Draw a position as a clock with a hand for each pair, the fast ones long and thin, the slow ones short and wide.

    Parameters
    ----------
    rope : Rope or frequencies
        The rotation to draw.
    position : float, sequence or array
        The position in tokens: one number, or one for each axis of the positions.
    pairs : sequence or array of int, optional
        Which pairs to draw, the longest hand first. By default eight, evenly from the first to the last.
    axes : sequence of str, optional
        The names of the position axes, for the legend; if there are more names than axes, the last ones are used. By
        default "axis 0", ...
    legend : bool, optional
        Whether to add a legend of up to twelve hands beside the clock.
    ax : matplotlib.axes.Axes, optional
        Polar axes to draw on. The legend is at their right, where ``layout="constrained"`` reserves space.

    Returns
    -------
    matplotlib.axes.Axes
        With a line for each hand, at ``position · frequency`` radians anticlockwise from the right.

    Examples
    --------
    >>> ax = ra.plot.hands(ra.frequencies(128), 100)
    >>> [line.get_label() for line in ax.lines][:2]  # the pair: tokens per turn
    ['0: 6.28', '9: 22.9']
    """
    rope = _rope(rope)
    lengths = tokens_per_turn(rope.frequencies)
    last = len(lengths) - 1
    chosen = _evenly(len(lengths), 8) if pairs is None else _host_numbers("pairs", pairs).tolist()
    if not isinstance(chosen, list):
        raise ArgumentTypeError("pairs", "be a sequence of integers", pairs)
    if not chosen:
        raise ArgumentValueError("pairs", "be at least one", Text("none"))
    for pair in chosen:
        if not 0 <= integer("pairs", pair) <= last:
            raise ArgumentValueError("pairs", f"be from 0 to {last}", pair)
    legend = flag("legend", legend)
    place = np.atleast_1d(_host_numbers("position", [position] if isinstance(position, Real) else position))
    count = len(as_rows(rope.frequencies))
    names = _axis_names(axes, count)
    axes_of = _axes_of_pairs(rope, names)
    if place.ndim > 1 or place.size not in {1, count}:
        each = f", or one for each of {count} axes" if count > 1 else ""
        raise ArgumentValueError("position", f"be one number{each}", Text(f"shape {place.shape}"))
    cos, sin = (part[0] for part in _table(rope, place if place.size == 1 else place[None]))
    with axes_or_new(ax, height=4.2, projection="polar") as clock:
        drawn: list[Line2D] = []
        for share, color, pair in zip(np.linspace(0, 1, len(chosen)), shades(len(chosen), clock), chosen, strict=True):
            angle, radius = math.atan2(sin[pair], cos[pair]) % (2 * math.pi), 1 - 0.65 * share
            name = f"{pair}: {format_number(lengths[pair]) if lengths[pair] < math.inf else STILL}"
            name += f" ({', '.join(axes_of[pair])})" if axes_of[pair] and len(names) > 1 else ""
            look: dict[str, Any] = {"linewidth": 1.5 + 4 * share, "marker": "o", "markersize": 5 + 4 * share}
            drawn += clock.plot([angle, angle], [0, radius], color=color, label=name, markevery=[1], **look)
        clock.set(xticks=np.arange(4) * math.pi / 2, xticklabels=["0", "π/2", "π", "3π/2"], yticks=[])
        clock.set(xlabel="angle (radians)", ylim=(0, 1.08))
        clock.set_title(f"Position {', '.join(map(format_position, place.tolist()))}")
        if legend:
            some = [drawn[i] for i in _evenly(len(drawn), 12)]
            title = "pair: tokens per turn" + (" (axis)" if len(names) > 1 else "")
            add_legend(clock, some, title=title, loc="center left", bbox_to_anchor=(1.12, 0.5))
    return clock


def wavelengths(
    *ropes: Recipe,
    labels: Sequence[str] | None = None,
    lengths: Mapping[str, float | Sequence[float]] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """
    Draw the wavelength of each pair (tokens per full turn), for one recipe or several.

    Parameters
    ----------
    *ropes : Rope or frequencies
        The recipes, at most five. The first of several is drawn wide and pale, so that lines on it stay visible.
    labels : sequence of str, optional
        Their names, by default "recipe 1", ...
    lengths : mapping of str to float or sequence of float, optional
        Lengths in tokens to draw as horizontal lines, by name.
    ax : matplotlib.axes.Axes, optional
        Where to draw, with the legend inside; a new figure has that of several recipes below.

    Returns
    -------
    matplotlib.axes.Axes
        With a line for each recipe, 2π / frequency by pair. Pairs of frequency 0 have no point.

    Examples
    --------
    >>> f = ra.frequencies(128)
    >>> recipes = {"plain": f, "ntk, factor 4": ra.scaling.ntk(f, 4.0)}
    >>> lengths = {"trained": 4096, "extended": 16_384}
    >>> ax = ra.plot.wavelengths(*recipes.values(), labels=[*recipes], lengths=lengths)
    >>> ax.get_ylabel()
    'wavelength (tokens per turn)'
    """
    # a wavelength above 1e100 counts as infinite: an axis could not show it
    rows = [[w if w < 1e100 else math.inf for w in tokens_per_turn(_rope(rope).frequencies)] for rope in ropes]
    names = _recipe_labels(labels, len(rows))
    if not isinstance(lengths, Mapping | None):
        raise ArgumentTypeError("lengths", "be a mapping of names to tokens", lengths)
    marks = {name: [positive("lengths", length) for length in as_sequence(of)] for name, of in (lengths or {}).items()}
    _texts("the names of lengths", [*marks])
    looks = line_styles(len(rows))
    if any(min(row) == math.inf for row in rows):
        raise ArgumentValueError("ropes", "each have a frequency other than 0", Text("one with zeros only"))
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 3.6}
    legend_below = ax is None and len(rows) > 1  # several lines may leave no corner free
    with axes_or_new(ax, height=4.2 + 0.2 * len(rows) if legend_below else 4.0) as axes:
        from matplotlib.ticker import MaxNLocator

        drawn: list[Line2D] = []
        for row, name, look in zip(rows, names, looks, strict=True):
            drawn += axes.plot(range(len(row)), row, label=name, marker="." if len(row) < 16 else None, **look)
        axes.set(xlabel="pair", ylabel="wavelength (tokens per turn)")
        axes.set(yscale="log", xlim=(-0.5, max(map(len, rows)) - 0.5))
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
        draw_lengths(axes, marks)
        group_thousands(axes.yaxis)
        if len(rows) > 1 or labels is not None:
            add_legend(axes, drawn, wrap_width=60, **(below if legend_below else {"loc": "lower right"}))
    return axes


def decay(rope: Recipe, /, *, length: int = 4096, ax: "Axes | None" = None) -> "Axes":
    """
    Draw how the score of an equal query and key decays with their distance: its mean, and its lowest and highest.

    Parameters
    ----------
    rope : Rope or frequencies
        The rotation to draw.
    length : int, optional
        The largest distance, in tokens.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        With a line for the mean score by distance, and a filled band from the lowest to the highest score of distances
        that differ by at most a tenth. The score is that of a query and a key whose features are all equal, relative to
        that at distance 0: the mean of ``cos(distance · frequency)`` over pairs.

    Notes
    -----
    With several position axes, the distance is equal on all.

    Examples
    --------
    >>> ax = ra.plot.decay(ra.frequencies(128))
    >>> (line,) = ax.lines
    >>> float(line.get_ydata()[0])  # at distance 0
    1.0
    """
    rope = replace(_rope(rope), attention_factor=1.0)
    longest = int32("length", length, least=1)
    distances, near = _distances(longest, len(as_rows(rope.frequencies)[0]))
    scores = _table(rope, np.concatenate(near)).cos.mean(axis=-1)
    parts = np.split(scores, np.cumsum([len(some) for some in near])[:-1])
    mean, lowest, highest = ([float(of(part)) for part in parts] for of in (np.mean, np.min, np.max))
    with axes_or_new(ax) as axes:
        band = axes.fill_between(distances, lowest, highest, color=BLUE, alpha=0.25, linewidth=0)
        band.set_label("lowest to highest")
        drawn: list[Any] = axes.plot(
            distances, mean, color=BLUE, linewidth=1.6, label="mean of distances within a tenth"
        )
        axes.set(xlabel=_position_label("distance of query and key", rope), ylabel="score, relative to distance 0")
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(0, longest)
        group_thousands(axes.xaxis)
        add_legend(axes, [*drawn, band], loc="lower left")
    return axes


def table(table: Table | Recipe, positions: Any = None, /, *, ax: "Axes | None" = None) -> "Axes":
    """
    Draw a table as an image: a row for each position, a column for each pair, cosines at the left, sines at the right.

    Parameters
    ----------
    table : Table, Rope or frequencies
        A table ``(positions, pairs)`` of any library, or the rotation to make one for.
    positions : array, range or sequence of numbers, optional
        The positions in tokens, ``(positions,)``, or with frequencies of n rows also ``(positions, n)``. By default
        those from 0 on, as many as the table has, else 256. Of more than 512, every n-th is drawn.
    ax : matplotlib.axes.Axes, optional
        Where to draw; the colour bar needs space beside it.

    Returns
    -------
    matplotlib.axes.Axes
        With one image, ``(positions drawn, 2 · pairs)``.

    Examples
    --------
    >>> ax = ra.plot.table(ra.frequencies(128), range(100, 200))
    >>> ax.images[0].get_array().shape
    (100, 128)
    """
    given = _as_positions(range(256) if positions is None else positions)
    if isinstance(table, Table):
        check_table(lib := library(cos=table.cos, sin=table.sin), *table)
        cos, sin = (_host_numbers("table", lib.cast(part, lib.compute_dtype(part))) for part in table)
        places, axis = range(len(cos)) if positions is None else given, "position (tokens)"
        if cos.ndim != 2 or len(places) != len(cos):
            wanted = f"be (positions, pairs), for {len(places)} positions"
            raise ArgumentValueError("table", wanted, Text(f"shape {cos.shape}"))
        every = _row_step(len(places))
        cos, sin = cos[every], sin[every]
    else:
        rope = _rope(table)
        places, axis = given, _position_label("position", rope)
        every = _row_step(len(places))
        cos, sin = _table(rope, np.asarray(places[every]))
    image, pairs = np.concatenate([cos, sin], axis=-1), cos.shape[-1]
    if not image.size:
        raise ArgumentValueError("table", "have a position and a pair", Text(f"shape {cos.shape}"))
    most = max(1.0, float(np.abs(image).max()))
    with axes_or_new(ax, height=4.6) as axes:
        looks: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
        # other interpolations mix colours: red and blue to purple
        drawn = axes.imshow(image, aspect="auto", interpolation="nearest", **looks)
        axes.axvline(pairs - 0.5, color=BLACK, linewidth=1.5)
        step = max(1, pairs // 4)
        ticks = [half + pair for half in (0, pairs) for pair in range(0, pairs, step)]
        axes.set_xticks(ticks, [str(tick % pairs) for tick in ticks])
        each = isinstance(places, range) or places.ndim == 1
        names = np.asarray((places if each else range(len(places)))[every])
        shown = [format_position(name.item()) for name in names]
        axes.yaxis.set_major_formatter(lambda y, _: shown[int(y)] if y in range(len(shown)) else "")
        for name, mid in {"cosine": pairs / 2, "sine": 1.5 * pairs}.items():
            axes.text(mid - 0.5, 1.01, name, transform=axes.get_xaxis_transform(), ha="center", color=text_color(axes))
        some = f", one of {format_number(every.step)} drawn" if every.step > 1 else ""
        axes.set(xlabel="pair", ylabel=(axis if each else "token") + some)
        axes.grid(visible=False)
        bar = axes.figure.colorbar(drawn, ax=axes, label="cosine or sine (no unit)")
        set_text_color(bar.ax, axes)
    return axes


def errors(rope: Recipe, /, *, longest: int = 2**31 - 1, like: Array | None = None, ax: "Axes | None" = None) -> "Axes":
    """
    Draw the largest error of cosines and sines by position: of this library's table and of float32 angles.

    Parameters
    ----------
    rope : Rope or frequencies
        The rotation to draw, whose attention factor is left out.
    longest : int, optional
        The largest position, in tokens, below 2³¹.
    like : array, optional
        An array with the library and device to make the table on, by default NumPy; float64 asks for a float64 table.
    ax : matplotlib.axes.Axes, optional
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        With a line for each method and one for the bound of `cos_sin`. A point at position p is the largest error,
        against 60 digits, over all pairs and up to eight positions from p / 2 to p.

    Raises
    ------
    ModuleNotFoundError
        If mpmath is missing (the extra ``testing`` installs it).

    Notes
    -----
    The float32 method rounds position, frequency, product and cosine to float32, as most model code does.

    Examples
    --------
    >>> ax = ra.plot.errors(ra.frequencies(8), longest=1000)
    >>> [line.get_label() for line in ax.lines]
    ['float32 product', 'rope_any', 'bound 1.2e−7']
    """
    rope = replace(_rope(rope), attention_factor=1.0)
    last = int32("longest", longest, least=1)
    ends = sorted({*(2**n for n in range(last.bit_length())), last})
    groups = [np.unique(np.linspace(end // 2 + 1, end, 8).astype(int)) for end in ends]
    places = _on_axes(rope, np.concatenate(groups))
    truth = exact(places, as_rows(rope.frequencies))
    like = np.ones(1, dtype=np.float32) if like is None else like
    lib = require_array("like", like)
    ours = [_host_numbers("table", part) for part in rope.table(places.tolist(), like=like)]
    rows = np.asarray(as_rows(rope.frequencies), dtype=np.float32)
    bound, label = np.full(len(ends), TABLE_BOUND), format_number(TABLE_BOUND)
    if lib.dtype_name(like.dtype) == "float64":
        bound, label = 1e-15 * (1 + np.asarray(ends) * np.abs(rows).sum(axis=0).max()), "1e−15 (1 + largest angle)"
    angle = (places.reshape(len(places), -1, 1).astype(np.float32) * rows).sum(axis=1)
    lines = {
        "float32 product": _largest_errors([np.cos(angle), np.sin(angle)], truth, groups),
        "rope_any": _largest_errors(ours, truth, groups),
    }
    with axes_or_new(ax) as axes:
        drawn: list[Line2D] = []
        for (name, line), (color, style), marker in zip(lines.items(), STYLES[1::-1], "s.", strict=True):
            drawn += axes.plot(ends, line, color=color, linestyle=style, marker=marker, markersize=4, label=name)
        drawn += axes.plot(ends, bound, **THIN, color=text_color(axes), label=f"bound {label}")
        axes.set(xscale="log", yscale="log", xlabel=_position_label("position", rope))
        axes.set_ylabel("largest error of cosine and sine (no unit)")
        group_thousands(axes.xaxis)
        add_legend(axes, drawn, loc="upper left")
    return axes


def pairs(
    *ropes: Rope,
    labels: Sequence[str] | None = None,
    axes: Sequence[str] | None = None,
    head_dim: int | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """
    Draw which features of a head form a pair, and by which position axis each pair is rotated.

    Parameters
    ----------
    *ropes : Rope
        The rotations, drawn one below the other, with at most four axes.
    labels : sequence of str, optional
        Their names, by default "recipe 1", ...
    axes : sequence of str, optional
        The names of the position axes; a rope with fewer axes has the last ones. By default "axis 0", ...
    head_dim : int, optional
        How many features a head has; by default those up to the end of the rotary slice.
    ax : matplotlib.axes.Axes, optional
        Where to draw. The legend is above them, where ``layout="constrained"`` reserves space.

    Returns
    -------
    matplotlib.axes.Axes
        With a cell for each feature, 32 in a row, with the number of its pair, if it has one. An arc joins the two
        features of a pair if both are in one row. With one position axis, each pair has a colour of its own; with
        several, each axis has one, and the cell of a pair that is rotated by several is divided among them.

    Examples
    --------
    >>> ax = ra.plot.pairs(ra.Rope(ra.frequencies(8), pairing="half"), head_dim=12)
    >>> [text.get_text() for text in ax.texts]
    ['0', '1', '2', '3', '0', '1', '2', '3']
    """
    for rope in ropes:
        if not isinstance(rope, Rope):
            raise ArgumentTypeError("ropes", "be Ropes, which have a pairing", rope)
    titles = _recipe_labels(labels, len(ropes))
    most = max(len(as_rows(rope.frequencies)) for rope in ropes)
    names = _axis_names(axes, most, at_most=len(FACES))
    rotated_by = ["rotated"] if len(names) == 1 else [f"rotated by {name}" for name in names]
    looks = dict(zip(rotated_by, FACES, strict=False)) | {STILL: ("#dddddd", BLACK), PASSING: ("white", BLACK)}
    lines: list[str] = []
    cells: list[Cell] = []
    for rope, title in zip(ropes, titles, strict=True):
        features = _feature_cells(rope, rotated_by, head_dim)
        of_pairs = _pair_faces(len(as_rows(rope.frequencies)[0]))
        for i, (pair, kinds) in enumerate(features):
            faces = [of_pairs[pair] if pair is not None and kind == "rotated" else looks[kind] for kind in kinds]
            cells.append(Cell(i % LINE, len(lines) + i // LINE, pair, kinds, faces))
        lines += _row_labels(title, len(features))
    arcs = _arcs(cells)
    low, high = (0.42, 0.52) if arcs else (0.0, 0.8)  # where cells begin, below their arcs, and how high they are
    with axes_or_new(ax, height=1.2 + (0.6 if arcs else 0.32) * len(lines)) as strip:
        _draw_cells(strip, cells, low, high)
        turn = np.linspace(0, math.pi, 32)
        for first, last in arcs:
            across = (first.column + last.column) / 2 - np.cos(turn) * (last.column - first.column) / 2
            above = (0.08 + 0.3 * (last.column - first.column) / LINE) * np.sin(turn)
            color = GREY if first.kinds == [STILL] else first.faces[0][0]
            strip.plot(across, first.line + low - above, color=color, linewidth=1.1, solid_capstyle="butt")
        seen = {kind for cell in cells for kind in cell.kinds} - {"rotated"}
        drawn = [
            strip.bar(0, 0, bottom=low, color=looks[kind][0], **EDGE, label=kind) for kind in looks if kind in seen
        ]
        widest = max(cell.column for cell in cells)
        strip.set_xticks(range(0, widest + 1, 4))
        strip.set_yticks([line + low + high / 2 for line in range(len(lines))], lines, parse_math=False)
        strip.set(xlim=(-0.6, widest + 0.6), ylim=(len(lines), -0.1))
        feature = "feature within the row" if len(lines) > len(ropes) else "feature"
        strip.set_xlabel(f"{feature}; the number in a cell is that of its pair")
        strip.grid(visible=False)
        strip.tick_params(left=False)
        if drawn:
            add_legend(strip, drawn, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(looks), frameon=False)
    return strip


# --- shared functions -------------------------------------------------------------------------------------------------


def _evenly(count: int, most: int) -> list[int]:
    """Return a list of at most `most` indices, evenly spaced from 0 to ``count - 1``."""
    return sorted({*np.linspace(0, count - 1, most).round().astype(int).tolist()})


def _rope(rope_like: Recipe) -> Rope:
    """Return a Rope unchanged, frequencies (tuple, list or array) as a Rope of pairing "half"; raise for all else."""
    if isinstance(rope_like, Rope):
        return rope_like
    given = _host_numbers("frequencies", rope_like).tolist() if is_array(rope_like) else rope_like
    if not isinstance(given, tuple | list):
        raise ArgumentTypeError("rope", "be a Rope or frequencies", rope_like)
    return Rope(given, pairing="half")  # type: ignore[arg-type]  # `Rope` checks them


def _host_numbers(name: str, numbers: Any) -> Numbers:
    """Return an int, a sequence, or an array of integers, float32 or float64 as NumPy data; raise if not finite."""
    given = as_position_array(numbers, like=None if is_array(numbers) else np.ones(1), name=name)
    try:
        data: Numbers = host(given)
    except (RuntimeError, TypeError, ValueError) as error:  # as of a tracer, or of torch's device "meta"
        raise ArgumentTypeError(name, "be an array whose values can be read", Text(type_name(given))) from error
    if not np.isfinite(data).all():
        raise ArgumentValueError(name, "be finite", float(data[~np.isfinite(data)][0]))
    return data


def _on_axes(rope: Rope, positions: Numbers) -> Numbers:
    """Return positions as `rope` takes them, ``(n,)`` or ``(n, axes)``; ``(n,)`` is repeated; raise if misshapen."""
    axes = 0 if isinstance(rope.frequencies[0], float) else len(rope.frequencies)
    if positions.ndim == 1:
        return np.repeat(positions[:, None], axes, axis=1) if axes else positions
    if positions.ndim != 2 or not axes or positions.shape[1] != axes:
        each = f", or one for each of {axes} axes" if axes else ""
        raise ArgumentValueError("positions", f"be one number for a token{each}", Text(f"shape {positions.shape}"))
    return positions


def _position_label(quantity: str, rope: Rope) -> str:
    """Return the label of a plot axis: `quantity`, its unit (tokens), and "the same on all axes" for several axes."""
    return f"{quantity} (tokens{', the same on all axes' if isinstance(rope.frequencies[0], tuple) else ''})"


def _as_positions(positions: Any) -> range | Numbers:
    """Return positions as NumPy, ``(n,)`` or ``(n, axes)``, a range as it is; raise for other shapes or not finite."""
    if isinstance(positions, range):
        for end in (positions[:1], positions[-1:]):
            _host_numbers("positions", end)
        return positions  # it may not fit in memory
    numbers = _host_numbers("positions", positions)
    if numbers.ndim not in {1, 2}:
        wanted = "be one number for a token, or one for each axis"
        raise ArgumentValueError("positions", wanted, Text(f"shape {numbers.shape}"))
    return numbers


def _row_step(count: int) -> slice:
    """Return the slice that picks every n-th of `count` rows, so that at most `ROWS` are drawn."""
    return slice(None, None, max(1, -(-count // ROWS)))


def _table(rope: Rope, positions: Numbers) -> Table:
    """Return the float64 table of positions ``(n,)`` or ``(n, axes)``: cos and sin of shape ``(n, pairs)``."""
    return rope.table(_on_axes(rope, positions), dtype=np.float64)


def _recipe_labels(labels: Sequence[str] | None, count: int) -> list[str]:
    """Return `labels` of `count` recipes, by default "recipe 1", ... ("" for one); raise for another number, or 0."""
    if not count:
        raise ArgumentValueError("ropes", "be at least one", Text("none"))
    if labels is None:
        return [f"recipe {i + 1}" for i in range(count)] if count > 1 else [""]
    if len(_texts("labels", labels)) != count:
        raise ArgumentValueError("labels", f"be {count} names, one for each recipe", labels)
    return list(labels)


def _texts(name: str, texts: object) -> list[str]:
    """Return a list or tuple of strings as a list; raise if `texts`, called `name` in errors, are something else."""
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ArgumentTypeError(name, "be a sequence of str", texts)
    return [*texts]


def _axis_names(axes: Sequence[str] | None, count: int, *, at_most: int | None = None) -> list[str]:
    """Return `axes`, by default "axis 0", ...; raise for fewer than `count`, more than `at_most`, or equal names."""
    names = [f"axis {axis}" for axis in range(count)] if axes is None else _texts("axes", axes)
    if not count <= len(names) <= (at_most or len(names)) or len(set(names)) < len(names):
        most = f", at most {at_most}" if at_most else ""
        raise ArgumentValueError("axes", f"be {count} names or more{most}, all different", names)
    return names


def _axes_of_pairs(rope: Rope, names: Sequence[str]) -> list[list[str]]:
    """Return for each pair the names of the axes that rotate it, [] if none; of too many `names`, the last are used."""
    rows = as_rows(rope.frequencies)
    names = names[-len(rows) :]
    return [[name for name, f in zip(names, column, strict=True) if f] for column in zip(*rows, strict=True)]


def _feature_cells(rope: Rope, names: Sequence[str], head_dim: int | None) -> list[tuple[int | None, list[str]]]:
    """
    Return (pair or None, labels) per feature of a head: the axes of its pair, [`STILL`] if none, or [`PASSING`].

    If `head_dim` is None, the head ends with the rotary slice; raise if it is less.
    """
    kinds = _axes_of_pairs(rope, names)
    owners: dict[int, int] = {}
    each = len(kinds) // rope.blocks
    for first in range(0, len(kinds), each):
        block = [*range(first, first + each)]
        owners |= zip(members(rope.pairing, rope.start + 2 * first, each), 2 * block, strict=True)
    least = max(owners) + 1
    features = least if head_dim is None else int32("head_dim", head_dim, least=least)
    return [(owners[i], kinds[owners[i]] or [STILL]) if i in owners else (None, [PASSING]) for i in range(features)]


def _arcs(cells: Sequence[Cell]) -> list[tuple[Cell, Cell]]:
    """Return the first and the second cell of each pair that has both in one row; cells come in order of features."""
    seen: dict[tuple[int, int], Cell] = {}
    found = []
    for cell in cells:
        if cell.pair is not None:
            other = seen.setdefault((cell.line, cell.pair), cell)
            if other is not cell:
                found.append((other, cell))
    return found


def _draw_cells(ax: "Axes", cells: Sequence[Cell], low: float, high: float) -> None:
    """Draw cells with the numbers of their pairs, `low` below the tops of their lines, and `high` in height."""
    size = 8 if max(cell.pair or 0 for cell in cells) < 100 else 6.5  # three digits in a cell
    for column, line, pair, _, faces in cells:
        height = high / len(faces)
        for part, (face, _) in enumerate(faces):
            ax.bar(column, height, 0.94, line + low + part * height, color=face, **EDGE)
        if pair is not None:
            boxed = {"facecolor": "white", "edgecolor": "none", "pad": 1} if len(faces) > 1 else None
            look: dict[str, Any] = {"color": BLACK if boxed else faces[0][1], "bbox": boxed, "size": size}
            ax.text(column, line + low + high / 2, str(pair), ha="center", va="center", **look)


def _pair_faces(pairs: int) -> list[tuple[Any, str]]:
    """Return for each pair a colour of its own, from blue (fast) to red (slow), and that of text on it."""
    import matplotlib as mpl

    colors = [tuple(color) for color in mpl.colormaps["turbo"](np.linspace(0.05, 0.95, pairs)).tolist()]
    weights, dark = (0.2126, 0.7152, 0.0722), 0.18  # the luminance where black and white text are equally legible
    light = [sum(w * c**2.2 for w, c in zip(weights, color[:3], strict=True)) for color in colors]
    return [(color, "black" if of > dark else "white") for color, of in zip(colors, light, strict=True)]


def _row_labels(title: str, features: int) -> list[str]:
    """Return a label for each row of `LINE` cells: `title`, and if there are several rows, its range of features."""
    if features <= LINE:
        return [title]
    return [f"{title}  {first}–{min(first + LINE, features) - 1}".strip() for first in range(0, features, LINE)]


def _distances(longest: int, pairs: int) -> tuple[Numbers, list[Numbers]]:
    """Return ascending distances from 0 to `longest`, and for each those within a tenth of it: all, or some."""
    drawn = np.unique([0, *np.geomspace(1, longest, POINTS).round().astype(int)])
    first, last = drawn - drawn // 10, np.minimum(drawn + drawn // 10, longest)
    most = max(64, 4096 // pairs)
    shares = np.arange(most) * ((math.sqrt(5) - 1) / 2) % 1  # irregular, against aliasing
    near = [
        np.arange(a, b + 1) if b - a < most else a + (shares * (b + 1 - a)).astype(int)
        for a, b in zip(first.tolist(), last.tolist(), strict=True)
    ]
    return drawn, near


def _largest_errors(table: Sequence[Numbers], truth: Sample, groups: Sequence[Numbers]) -> list[float]:
    """Return the largest error of `table` (cos, sin) against `truth` per group of positions; rows go group by group."""
    off = np.abs(np.asarray(table, dtype=np.float64) - [truth.cos, truth.sin]).max(axis=(0, 2))
    return [float(part.max()) for part in np.split(off, np.cumsum([len(group) for group in groups])[:-1])]
