"""Figures: their contents, compared with sums and products that are independent of the drawing code."""

import cmath
import json
import math
import runpy
import shutil
import subprocess
import sys
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import oracle
import pytest
from conftest import one_jax
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from test_cli import LLAMA3, run

import rope_any as ra
from rope_any import cli, plot

mpl.use("agg")
pytestmark = pytest.mark.thread_unsafe(reason="all threads share the figures and settings of pyplot")

NAN = float("nan")
F = ra.frequencies(32, base=500_000.0)
HALF = ra.Rope(F, pairing="half")
THREE = ra.Rope(ra.axes.chunked(F, [4, 6, 6]), pairing="half")
GALLERY = Path(__file__).parent.parent / "docs" / "gallery_src"
DRAW = {
    "hands": lambda **options: plot.hands(F, 1000, **options),
    "wavelengths": lambda **options: plot.wavelengths(F, ra.scaling.linear(F, 4.0), lengths={"trained": 64}, **options),
    "decay": lambda **options: plot.decay(F, length=100, **options),
    "table": lambda **options: plot.table(F, **options),
    "errors": lambda **options: plot.errors(F, longest=100, **options),
    "pairs": lambda **options: plot.pairs(HALF, **options),
}


def polar():
    """Return new polar axes."""
    return plt.figure().add_subplot(projection="polar")


def labels(ax):
    """Return the labels of the lines on axes."""
    return [line.get_label() for line in ax.lines if not line.get_label().startswith("_")]


def lightness(color):
    """Return the relative luminance of a colour, by the formula of WCAG."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def assert_no_overlap(ax):
    """Check that no texts overlap; return their boxes."""
    legend = ax.get_legend()
    texts = [*ax.texts, *ax.get_xticklabels(), *ax.get_yticklabels(), ax.xaxis.label, ax.yaxis.label]
    boxes = [part.get_window_extent() for part in (*texts, *([legend] if legend else [])) if part.get_visible()]
    assert not [(a, b) for a, b in combinations(boxes, 2) if a.overlaps(b)]
    return boxes


# --- hands ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 1, -7, 2.5, 1000.25, 131_072, 2**31 - 1])
def test_hands_are_at_position_times_frequency(position):
    ax = plot.hands(HALF, position, pairs=range(16))
    (cos,), (sin,) = oracle.cos_sin([position], F)
    for line, c, s in zip(ax.lines, cos, sin, strict=True):
        start, end = line.get_xdata()
        assert start == end and 0 <= end < 2 * math.pi
        assert abs(cmath.rect(1, end) - complex(c, s)) < 1e-9
    assert f"{position:,}".replace(",", "\u202f").replace("-", "−") in ax.get_title(loc="left")


def test_hands_of_several_axes_add_their_angles(lib):
    position = [3, 20, 500]
    angles = [sum(p * row[i] for p, row in zip(position, THREE.frequencies, strict=True)) for i in range(16)]
    for given in (position, lib(position, "int32")):
        ax = plot.hands(THREE, given, pairs=range(16))
        for line, angle in zip(ax.lines, angles, strict=True):
            assert abs(cmath.rect(1, line.get_xdata()[1]) - cmath.rect(1, angle)) < 1e-9


def test_hands_of_several_axes_name_their_axes():
    f = ra.frequencies(12)
    rope = ra.Rope(ra.axes.chunked(f, [2, 3, 1]), pairing="half")
    names = ["time", "row", "column"]
    ax = plot.hands(rope, [3, 20, 500], axes=names)
    assert [label.split(" ", 2)[2] for label in labels(ax)] == [f"({names[i]})" for i in (0, 0, 1, 1, 1, 2)]
    assert ax.get_legend().get_title().get_text() == "pair: tokens per turn (axis)"
    assert [label.split(" ", 1)[1] for label in labels(plot.hands(((1.0, 0.5, 0.0), (0.5, 0.0, 0.0)), [1, 2]))] == [
        f"{2 * math.pi / 1.5:.3g} (axis 0, axis 1)", "12.6 (axis 0)", "frequency 0"
    ]  # fmt: skip


def test_one_position_applies_to_every_axis():
    one, three = (plot.hands(THREE, position) for position in (7, (7, 7, 7)))
    assert [ax.get_title(loc="left") for ax in (one, three)] == ["Position 7", "Position 7, 7, 7"]
    assert [line.get_xdata()[1] for line in one.lines] == [line.get_xdata()[1] for line in three.lines]


def test_hands_have_names_and_distinct_colours():
    ax = plot.hands(ra.frequencies(128), 5)
    pairs = [0, 9, 18, 27, 36, 45, 54, 63]
    assert labels(ax)[:2] == ["0: 6.28", f"9: {2 * math.pi * 10_000 ** (18 / 128):.3g}"]
    assert labels(plot.hands((1.0, 0.0), 5)) == ["0: 6.28", "1: frequency 0"]
    assert [int(label.split(":")[0]) for label in labels(ax)] == pairs
    assert ax.get_legend().get_title().get_text() == "pair: tokens per turn"
    assert "radians" in ax.get_xlabel()
    shades = [lightness(line.get_color()) for line in ax.lines]
    assert shades == sorted(shades) and min(np.diff(shades)) > 0.01 and shades[-1] < 0.75
    widths, lengths = zip(*((line.get_linewidth(), line.get_ydata()[1]) for line in ax.lines), strict=True)
    assert list(widths) == sorted(widths) and list(lengths) == sorted(lengths, reverse=True) and lengths[-1] > 0.2


# --- wavelengths ------------------------------------------------------------------------------------------------------


def test_wavelengths_are_two_pi_over_the_frequency(lib):
    long = ra.scaling.linear(F, 4.0)
    given = lib(long, "float32")
    ax = plot.wavelengths(HALF, long, given, labels=["a", "b", "c"], lengths={"trained": 4096, "extended": 16_384})
    plain, by_tuple, by_array = ax.lines[:3]
    np.testing.assert_allclose(plain.get_ydata(), [2 * math.pi / f for f in F], rtol=1e-14)
    np.testing.assert_allclose(by_tuple.get_ydata(), [8 * math.pi / f for f in F], rtol=1e-14)
    np.testing.assert_allclose(by_array.get_ydata(), [8 * math.pi / f for f in F], rtol=1e-6)
    assert list(plain.get_xdata()) == list(range(16))
    assert [line.get_ydata()[0] for line in ax.lines[3:]] == [4096, 16_384]
    assert [text.get_text() for text in ax.texts] == ["trained 4\u202f096", "extended 16\u202f384"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("pair", "wavelength (tokens per turn)")
    assert ax.get_yscale() == "log" and ax.get_xlim()[0] <= 0 and ax.get_xlim()[1] >= 15
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]


def test_pairs_without_rotation_have_no_wavelength():
    ax = plot.wavelengths((*F, 0.0, 0.0))
    assert np.isfinite(ax.lines[0].get_ydata()).tolist() == [True] * 16 + [False] * 2
    ax.figure.draw_without_rendering()
    assert ax.get_ylim()[1] < 1e8  # they don't stretch the axis
    assert ax.get_legend() is None


def test_equal_lengths_share_a_line_and_close_names_do_not_overlap():
    ax = plot.wavelengths(F, lengths={"trained": [4096, 4096, 4200.0], "extended": [4096, 5000, 4300]})
    assert [text.get_text() for text in ax.texts] == [
        "trained, extended 4\u202f096",
        "trained 4\u202f200",
        "extended 4\u202f300",
        "extended 5\u202f000",
    ]
    assert [line.get_ydata()[0] for line in ax.lines[1:]] == [4096, 4200, 5000, 4300]
    ax.figure.draw_without_rendering()
    assert_no_overlap(ax)


@pytest.mark.parametrize("upside_down", [False, True])
@pytest.mark.parametrize("lengths", [[4096, 8192, 32_768, 131_072], [64, 128, 1e30]])
def test_names_of_lengths_are_at_their_lines(lengths, upside_down):
    ax = plt.figure(figsize=(7, 5)).add_subplot()
    if upside_down:
        ax.invert_yaxis()
    plot.wavelengths(F, lengths={"some": lengths}, ax=ax)
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    lines = [ax.transData.transform((0, text.xy[1]))[1] for text in ax.texts]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    above = [(box.y0 + box.y1) / 2 - line for box, line in zip(boxes, lines, strict=True)]
    assert all(-2 < height < 40 for height in above) and min(above) < 3


@pytest.mark.parametrize("count", [1, 2, 3, 256])
def test_ticks_are_whole_pairs_and_all_points_are_inside(count):
    ax = plot.wavelengths(ra.frequencies(2 * count))
    ax.figure.draw_without_rendering()
    left, right = ax.get_xlim()
    ticks = [tick for tick in ax.get_xticks() if left <= tick <= right]
    assert ticks and all(tick == int(tick) for tick in ticks) and left < 0 and right > count - 1
    assert count > 3 or ticks == list(range(count))
    low, high = ax.get_ylim()
    assert low < ax.lines[0].get_ydata().min() and high > ax.lines[0].get_ydata().max()


def test_lines_are_distinct_without_colour():
    ax = plot.wavelengths(*[F] * 5)
    assert labels(ax) == [f"recipe {i}" for i in range(1, 6)]
    seen = {(line.get_linestyle(), str(line._unscaled_dash_pattern), line.get_linewidth()) for line in ax.lines}
    assert len(seen) == 5
    assert max(lightness(line.get_color()) for line in ax.lines) < 0.3  # on white


# --- decay ------------------------------------------------------------------------------------------------------------


def scores(f, length, pairing="half"):
    """Return the scores of rotated ones by distance, relative to distance 0."""
    x = np.ones((length + 1, 2 * len(f)))
    q = ra.rotate(x, *ra.cos_sin(np.arange(length + 1), f, dtype=np.float64), pairing=pairing)
    return (q @ x[0]) / (2 * len(f))


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_decay_is_the_score_of_rotated_ones(pairing):
    ax = plot.decay(ra.Rope(F, pairing=pairing, attention_factor=1.3), length=300)
    (line,), (band,) = ax.lines, ax.collections
    distances = np.asarray(line.get_xdata(), dtype=int)
    assert distances[0] == 0 and distances[-1] == 300 and len(distances) > 100
    near = [scores(F, 300, pairing)[d - d // 10 : d + d // 10 + 1] for d in distances]
    assert line.get_ydata()[0] == 1
    np.testing.assert_allclose(line.get_ydata(), [part.mean() for part in near], atol=1e-13)
    points = {(x, round(y, 9)) for x, y in band.get_paths()[0].vertices}
    for end in (np.min, np.max):
        assert {(d, round(end(part), 9)) for d, part in zip(distances, near, strict=True)} <= points
    assert "tokens" in ax.get_xlabel() and "distance 0" in ax.get_ylabel() and ax.child_axes == []
    written = [text.get_text() for text in ax.get_legend().get_texts()]
    assert written == ["mean of distances within a tenth", "lowest to highest"]


@pytest.mark.parametrize("rope", [F, ra.frequencies(128), THREE, (1.0,)])
def test_the_mean_is_within_the_band_and_both_fill_the_axes(rope):
    ax = plot.decay(rope, length=5000)
    (line,), (band,) = ax.lines, ax.collections
    by_distance = {}
    for x, y in band.get_paths()[0].vertices:
        by_distance.setdefault(x, []).append(y)
    for x, y in zip(*line.get_data(), strict=True):
        assert min(by_distance[x]) - 1e-12 <= y <= max(by_distance[x]) + 1e-12
    low, high = ax.get_ylim()
    assert low <= min(map(min, by_distance.values())) and 1 <= high < 1.2 and ax.get_xlim() == (0, 5000)


@pytest.mark.parametrize("f", [(1.0,), (1.0, 0.37), (3.0,)])
def test_short_waves_fill_their_range(f):
    """One pair has all scores from -1 to 1, for any step between the drawn distances."""
    ax = plot.decay(f, length=100_000)
    band = ax.collections[0].get_paths()[0].vertices
    far = band[(band[:, 0] > 10_000) & (band[:, 0] < 90_000)]
    top, bottom = (part.min() for part in (far[far[:, 1] > 0, 1], -far[far[:, 1] < 0, 1]))
    assert top > 0.99 and bottom > (0.99 if len(f) == 1 else 0.8)


def test_decay_is_drawn_up_to_the_requested_length():
    assert plot.decay(F, length=1).lines[0].get_xdata().tolist() == [0, 1]
    far = plot.decay(F, length=2**31 - 1)
    assert far.lines[0].get_xdata()[-1] == 2**31 - 1 and len(far.lines[0].get_xdata()) < 300
    (cos,), _ = oracle.cos_sin([2**31 - 1 - (2**31 - 1) // 10], F)
    ends = [y for x, y in far.collections[0].get_paths()[0].vertices if x == 2**31 - 1]
    assert min(ends) - 1e-9 <= cos.mean() <= max(ends) + 1e-9


# --- table ------------------------------------------------------------------------------------------------------------


@one_jax
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_table_of_any_library_is_drawn(lib, dtype):
    if dtype not in lib.dtypes:
        pytest.skip(f"{lib.name} has no {dtype}")
    table = ra.cos_sin(lib(np.arange(40, 90), "int32"), F, dtype=lib.dtype(dtype))
    ax = plot.table(table, range(40, 90))
    expected = np.concatenate([lib.get(part).astype(np.float64) for part in table], axis=-1)
    np.testing.assert_array_equal(ax.images[0].get_array(), expected)
    assert ax.images[0].get_clim() == (-1, 1)
    shown = [ax.yaxis.get_major_formatter()(row, None) for row in (0, 10, 49, 10.5, 50)]
    assert shown == ["40", "50", "89", "", ""]


def test_a_table_is_made_from_a_rope(lib):
    given = [0, 5, 1_000_000]
    cos, sin = oracle.cos_sin(given, F)
    for positions in (given, lib(given, "int32")):
        ax = plot.table(HALF, positions)
        np.testing.assert_allclose(ax.images[0].get_array(), np.hstack([cos, sin]), atol=1e-9)
    assert plot.table(F).images[0].get_array().shape == (256, 32)
    assert ax.yaxis.get_major_formatter()(2, None) == "1\u202f000\u202f000"
    ax = plot.table(F, [100.25, 100.5, 1000.75, 7.0])
    names = [ax.yaxis.get_major_formatter()(row, None) for row in range(4)]
    assert names == ["100.25", "100.5", "1\u202f000.75", "7"]


def test_rows_of_positions_on_several_axes_are_drawn():
    positions = [[0, 1, 2], [3, 40, 500]]
    ax = plot.table(THREE, positions)
    angles = np.asarray(positions) @ np.asarray(THREE.frequencies)
    np.testing.assert_allclose(ax.images[0].get_array(), np.hstack([np.cos(angles), np.sin(angles)]), atol=1e-12)
    ax.figure.draw_without_rendering()
    assert ax.get_ylabel() == "token" and ax.yaxis.get_major_formatter()(1, None) == "1"


def test_an_image_of_a_table_has_labels():
    ax = plot.table(ra.Rope(F, pairing="half", attention_factor=1.5), range(8))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("pair", "position (tokens)")
    assert [text.get_text() for text in ax.texts] == ["cosine", "sine"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "4", "8", "12"] * 2
    (bar,) = (other for other in ax.figure.axes if other is not ax)
    assert bar.get_ylabel() == "cosine or sine (no unit)"
    assert ax.images[0].get_clim() == (-1.5, 1.5)
    low, middle, high = (lightness(ax.images[0].cmap(x)[:3]) for x in (0.0, 0.5, 1.0))
    assert middle > 0.8 and max(low, high) < 0.1


@pytest.mark.parametrize(("count", "step"), [(512, 1), (513, 2), (131_072, 256)])
def test_many_positions_are_sampled(count, step):
    for source in (HALF, ra.cos_sin(np.arange(count), F)):
        ax = plot.table(source, range(count))
        cos, sin = oracle.cos_sin(range(0, count, step), F) if count < 1000 else ra.cos_sin(np.arange(count), F)
        image = np.hstack([cos, sin])[:: 1 if count < 1000 else step]
        np.testing.assert_allclose(ax.images[0].get_array(), image, atol=2e-7)
        assert ax.images[0].get_interpolation() == "nearest"
        name = ax.yaxis.get_major_formatter()
        assert [name(row, None) for row in (0, 3, len(image))] == ["0", f"{3 * step}", ""]
        assert ax.get_ylabel() == "position (tokens)" + (f", one of {step} drawn" if step > 1 else "")


def test_a_range_can_be_longer_than_memory():
    ax = plot.table(HALF, range(5, 10**13, 10**7))
    every = -(-(10**6) // 512) * 10**7
    cos, sin = oracle.cos_sin(range(5, 10**13, every), F)
    np.testing.assert_allclose(ax.images[0].get_array(), np.hstack([cos, sin]), atol=2e-2)
    with pytest.raises(ValueError, match=r"positions must not exceed"):
        plot.table(F, range(10**30))


def test_an_image_has_only_the_colours_of_its_colour_bar():
    ax = plot.table(ra.frequencies(128), range(3000))
    figure = ax.figure
    figure.canvas.draw()
    left, bottom, right, top = ax.get_window_extent().extents.astype(int)
    pixels = np.asarray(figure.canvas.buffer_rgba())[::-1][bottom + 3 : top - 3, left + 3 : (left + right) // 2 - 3]
    allowed = {tuple(color) for color in ax.images[0].cmap(np.arange(256), bytes=True)}
    found = {tuple(color) for color in np.unique(pixels.reshape(-1, 4), axis=0)}
    assert found <= allowed and len(found) > 64


def test_labels_mention_that_all_axes_have_the_same_position():
    for draw in (plot.table, plot.decay, lambda rope: plot.errors(rope, longest=9)):
        for rope, mentioned in ((THREE, True), (HALF, False)):
            ax = draw(rope)
            assert any("the same on all axes" in text for text in (ax.get_xlabel(), ax.get_ylabel())) == mentioned


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_equal_those_against_sixty_digits():
    ax = plot.errors(ra.Rope(F, pairing="half", attention_factor=1.2), longest=100_000)
    narrow, ours, bound = ax.lines
    assert labels(ax) == ["float32 product", "rope_any", "bound 1.2e−7"]
    ends = [2**n for n in range(17)] + [100_000]
    for end, theirs, mine in zip(ends, narrow.get_ydata(), ours.get_ydata(), strict=True):
        p = sorted({int(p) for p in np.linspace(end // 2 + 1, end, 8)})
        exact = oracle.cos_sin(p, F)
        angle = np.float32(p)[:, None] * np.float32(F)
        narrow_errors = [np.abs(a - b) for a, b in zip((np.cos(angle), np.sin(angle)), exact, strict=True)]
        assert theirs == pytest.approx(np.max(narrow_errors))
        our_errors = [np.abs(a - b) for a, b in zip(ra.cos_sin(np.asarray(p), F), exact, strict=True)]
        assert mine == pytest.approx(np.max(our_errors)) and mine <= 1.2e-7
    assert list(narrow.get_xdata()) == list(ours.get_xdata()) == ends
    assert narrow.get_ydata()[-1] > 1e-3
    assert set(bound.get_ydata()) == {1.2e-7}
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert "tokens" in ax.get_xlabel() and "no unit" in ax.get_ylabel()
    assert narrow.get_linestyle() != ours.get_linestyle() and narrow.get_marker() != ours.get_marker()


def test_errors_of_a_float64_table_have_the_float64_bound():
    _, ours, bound = plot.errors(THREE, longest=100_000, like=np.ones(1)).lines
    most = max(sum(map(abs, column)) for column in zip(*THREE.frequencies, strict=True))
    np.testing.assert_allclose(bound.get_ydata(), [1e-15 * (1 + p * most) for p in bound.get_xdata()], rtol=1e-6)
    assert "1e−15" in bound.get_label() and (ours.get_ydata() <= bound.get_ydata()).all()


@one_jax
def test_errors_of_any_library_are_drawn(lib):
    rope = ra.Rope(ra.axes.chunked(F[::4], [2, 2]), pairing="half")
    _, ours, _ = plot.errors(rope, longest=2**31 - 1, like=lib([0.0], "float32")).lines
    assert 0 < max(ours.get_ydata()) <= 1.2e-7
    assert ours.get_xdata()[-1] == 2**31 - 1


# --- pairs ------------------------------------------------------------------------------------------------------------


def cells(ax):
    """Return {(line, feature): [number, names]} of the cells; the names are those of its colours in the legend."""
    handles, names = ax.get_legend_handles_labels()
    by_color = {bar[0].get_facecolor(): name for bar, name in zip(handles, names, strict=True)}
    found = {}
    for patch in ax.patches:
        if patch.get_height():
            cell = int(patch.get_y() + 1e-9), round(patch.get_x() + 0.47)
            found.setdefault(cell, [None, []])[1].append(by_color.get(patch.get_facecolor(), "rotated"))
    for text in ax.texts:
        column, height = text.get_position()
        found[int(height), column][0] = int(text.get_text())
    return found


def arcs(ax):
    """Return {(line, first feature, last feature): colour} of the arcs between cells."""
    found = {}
    for line in ax.lines:
        x, y = line.get_data()
        assert min(y) < y[0] == pytest.approx(y[-1])  # above the cells: the axis points down
        found[int(y[0]), round(x[0]), round(x[-1])] = to_rgb(line.get_color())
    return found


def expected_cells(rope, head_dim, names):
    """Return the same from the rotation: a feature belongs to a pair if rotating only that pair changes it."""
    rows = rope.frequencies if len(names) > 1 else (rope.frequencies,)
    found = {feature: [None, ["passes through"]] for feature in range(head_dim)}
    for pair in range(len(rows[0])):
        rotating = [name for name, row in zip(names, rows, strict=True) if row[pair]]
        only = tuple(float(i == pair) for i in range(len(rows[0])))
        x = np.ones((1, head_dim))
        moved = ra.Rope(only, pairing=rope.pairing, start=rope.start, blocks=rope.blocks).apply(x, 1) != x
        found |= {feature: [pair, rotating or ["frequency 0"]] for feature in np.flatnonzero(moved).tolist()}
    return found


ROPES = {
    "half": (HALF, 32),
    "interleaved, wide": (ra.Rope(F, pairing="interleaved"), 80),
    "in the middle": (ra.Rope(F, pairing="half", start=5), 40),
    "some unrotated": (ra.Rope(ra.scaling.proportional(F, 0.5), pairing="half"), 32),
    "three axes": (THREE, 32),
    "two axes in blocks": (ra.Rope(ra.axes.axial(F[:8], F[:8]), pairing="half", blocks=2), 36),
    "mixed": (ra.Rope((F, (0.0, *F[1:])), pairing="interleaved"), 32),
}


@pytest.mark.parametrize("kind", ROPES)
def test_cells_agree_with_the_rotation(kind):
    rope, head_dim = ROPES[kind]
    axes = len(rope.frequencies) if isinstance(rope.frequencies[0], tuple) else 1
    names = ["rotated"] if axes == 1 else [f"rotated by {name}" for name in "xyz"[:axes]]
    ax = plot.pairs(rope, head_dim=head_dim, axes=[*"xyz"][:axes])
    expected = expected_cells(rope, head_dim, names)
    assert cells(ax) == {divmod(feature, 32): cell for feature, cell in expected.items()}
    lines = ["0–31", "32–63", "64–79"] if head_dim == 80 else [f"0–31 32–{head_dim - 1}".split(), [""]][head_dim == 32]
    assert [text.get_text() for text in ax.get_yticklabels()] == lines
    assert ax.get_xlabel().startswith("feature;" if head_dim <= 32 else "feature within the row;")
    by_pair = {}
    for feature, (pair, _) in expected.items():
        by_pair.setdefault(pair, []).append(feature)
    both = {(a // 32, a % 32, b % 32) for a, b in (by_pair[n] for n in by_pair if n is not None) if a // 32 == b // 32}
    assert both and {*arcs(ax)} == both


def test_pairs_of_one_axis_have_colours_of_their_own():
    ax = plot.pairs(HALF)
    faces = [to_rgb(patch.get_facecolor()) for patch in ax.patches if patch.get_height()]
    assert faces[:16] == faces[16:] and len({*faces}) == 16 and ax.get_legend() is None
    assert arcs(ax) == {(0, i, i + 16): faces[i] for i in range(16)}
    ink = [to_rgb(text.get_color()) for text in ax.texts]
    assert all(contrast(face, color) > 4.5 for face, color in zip(faces, ink, strict=True))


def test_pairs_in_two_rows_have_no_arcs():
    assert plot.pairs(ra.Rope(ra.frequencies(64), pairing="half")).lines[:] == []


def test_several_ropes_are_drawn_below_each_other_with_axis_names():
    two = ra.Rope(ra.axes.axial(F[:8], F[:8]), pairing="half")
    ax = plot.pairs(THREE, two, labels=["three", "two"], axes=["time", "row", "column"])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["three", "two"]
    assert cells(ax)[1, 0] == [0, ["rotated by row"]] and cells(ax)[1, 8] == [8, ["rotated by column"]]
    assert cells(ax)[0, 0] == [0, ["rotated by time"]]
    top, first, last = ax.get_ylim()[1], *ax.get_yticks()
    assert top < first < last < ax.get_ylim()[0]
    _, names = ax.get_legend_handles_labels()
    assert names == ["rotated by time", "rotated by row", "rotated by column"]


@pytest.mark.parametrize("head_dim", [128, 256, 512])
def test_pair_numbers_fit_their_cells(head_dim):
    ax = plot.pairs(ra.Rope(ra.frequencies(head_dim), pairing="half"))
    ax.figure.draw_without_rendering()
    cell = ax.patches[0].get_window_extent().width
    assert len(ax.texts) == head_dim and all(text.get_window_extent().width < cell for text in ax.texts)


def test_cells_are_distinct_in_grey():
    faces = sorted(lightness(face) for face, _ in plot.FACES[:3])
    assert all(b / a > 2 for a, b in pairwise(faces))
    assert all(contrast(face, ink) > 4.5 for face, ink in plot.FACES)  # as WCAG requires for text


# --- all functions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAW)
def test_each_function_draws_on_the_given_axes(name):
    figure = plt.figure()
    ax = figure.add_subplot(projection="polar" if name == "hands" else None)
    figures, settings = plt.get_fignums(), dict(mpl.rcParams)
    assert DRAW[name](ax=ax) is ax
    assert (plt.get_fignums(), dict(mpl.rcParams)) == (figures, settings)
    assert ax.has_data()


def test_given_axes_keep_their_style():
    with mpl.rc_context({"font.size": 17, "legend.edgecolor": "red"}):
        ax = plot.wavelengths(HALF, F, ax=plt.figure().add_subplot())
    assert {text.get_fontsize() for text in ax.get_legend().get_texts()} == {17}
    assert to_rgb(ax.get_legend().get_frame().get_edgecolor()) == (1, 0, 0)


def test_names_are_drawn_literally():
    special = ["_hidden", r"$x$ and $y^2$ for a dollar"]
    ax = plot.wavelengths(F, F, labels=special, lengths={"_a $b$": 64})
    pairs = plot.pairs(HALF, HALF, labels=special, axes=["$z$"])
    rotated = plot.pairs(THREE, axes=["_t", "$h$", "w"])
    texts = [
        *ax.get_legend().get_texts(),
        *ax.texts,
        *pairs.get_yticklabels(),
        *rotated.get_legend().get_texts(),
    ]
    assert [text.get_text() for text in texts] == [
        *special,
        "_a $b$ 64",
        *special,
        *(f"rotated by {name}" for name in ("_t", "$h$", "w")),
    ]
    assert not any(text.get_parse_math() for text in texts)


def test_a_legend_of_many_hands_is_shortened():
    ax = plot.hands(ra.frequencies(512), 1, pairs=range(256))
    assert len(ax.lines) == 256
    names = [int(text.get_text().split(":")[0]) for text in ax.get_legend().get_texts()]
    assert len(names) == 12 and (names[0], names[-1]) == (0, 255)
    ax.figure.draw_without_rendering()
    tight, (width, height) = ax.figure.get_tightbbox(), ax.figure.get_size_inches()
    assert tight.y0 >= 0 and tight.x1 <= width and tight.y1 <= height


@pytest.mark.parametrize("style", ["default", "dark_background"])
@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("name", ["hands", "wavelengths", "errors"])
def test_lines_contrast_with_the_background_of_any_style(name, new, style):
    with plt.style.context(style):
        projection = "polar" if name == "hands" else None
        ax = DRAW[name](ax=None if new else plt.figure().add_subplot(projection=projection))
    for line in ax.lines:
        color = line.get_color()[:3] if name == "hands" else line.get_color()
        assert contrast(color, ax.get_facecolor()[:3]) > (1.4 if name == "hands" else 3), line


@pytest.mark.parametrize("style", ["default", "dark_background"])
@pytest.mark.parametrize("name", DRAW)
def test_text_contrasts_with_axes_made_in_another_style(name, style):
    with plt.style.context(style):
        ax = plt.figure().add_subplot(projection="polar" if name == "hands" else None)
    DRAW[name](ax=ax)
    ax.figure.draw_without_rendering()
    inside = ax.texts if name == "pairs" else []  # on coloured cells
    texts = [text for text in ax.figure.findobj(Text) if text.get_text() and text not in inside]
    assert len(texts) > 5
    assert [text for text in texts if contrast(text.get_color(), ax.get_facecolor()[:3]) < 3] == []
    if legend := ax.get_legend():
        assert to_rgb(legend.get_frame().get_facecolor()) == to_rgb(ax.get_facecolor())


def contrast(a, b):
    """Return the contrast of two colours by WCAG, from 1 to 21."""
    low, high = sorted(map(lightness, (a, b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", DRAW)
def test_each_function_makes_a_pyplot_figure(name):
    settings = dict(mpl.rcParams)
    ax = DRAW[name]()
    assert plt.gcf() is ax.figure and dict(mpl.rcParams) == settings
    ax.figure.draw_without_rendering()
    texts = [text for part in ax.figure.axes for text in part.findobj(mpl.text.Text) if text.get_text().strip()]
    assert texts and min(text.get_fontsize() for text in texts) >= 8
    tight, (width, height) = ax.figure.get_tightbbox(), ax.figure.get_size_inches()
    assert tight.x0 >= 0 and tight.y0 >= 0 and tight.x1 <= width and tight.y1 <= height  # nothing is cut off
    assert tight.width > 0.6 * width and tight.height > 0.6 * height


@pytest.mark.parametrize(
    ("draw", "error", "match"),
    [
        (lambda: plot.hands(5, 1), TypeError, r"rope must be a Rope or frequencies; got int 5"),
        (lambda: plot.hands(F, "x"), TypeError, r"^position must be an array.*; got str"),
        (lambda: plot.hands(F, [1, 2]), ValueError, r"position must be one number; got shape \(2,\)"),
        (lambda: plot.hands(THREE, [1, 2]), ValueError, r"position .* each of 3 axes; got shape \(2,\)"),
        (
            lambda: plot.hands(THREE, 1, axes=["t", "x"]),
            ValueError,
            r"axes must be 3 names or more, all different; got",
        ),
        (
            lambda: plot.hands(THREE, 1, axes=["t", "x", "x"]),
            ValueError,
            r"axes must be 3 names or more, all different",
        ),
        (lambda: plot.hands(F, 1, axes="t"), TypeError, r"axes must be a sequence of str; got str 't'"),
        (lambda: plot.hands(F, 1, pairs=[16]), ValueError, r"pairs must be from 0 to 15; got 16"),
        (lambda: plot.hands(F, 1, pairs=[]), ValueError, r"pairs must be at least one; got none"),
        (lambda: plot.hands(F, 1, pairs=[0.5]), TypeError, r"pairs must be an integer; got float 0.5"),
        (lambda: plot.hands(F, 1, ax=plt.figure().add_subplot()), ValueError, r"ax must be polar.*got rectilinear"),
        (lambda: plot.hands(F, 1, ax=3), TypeError, r"ax must be an Axes of matplotlib; got int 3"),
        (plot.wavelengths, ValueError, r"ropes must be at least one; got none"),
        (lambda: plot.wavelengths(*[F] * 6), ValueError, r"ropes must be from 1 to 5.*; got 6"),
        (lambda: plot.wavelengths(F, labels=["a", "b"]), ValueError, r"labels must be 1 names.*got \['a', 'b'\]"),
        (lambda: plot.wavelengths(F, lengths={"trained": 0}), ValueError, r"lengths must be positive.*got 0"),
        (
            lambda: plot.wavelengths(F, (0.0, 1e-300)),
            ValueError,
            r"ropes must each have a frequency other than 0; got one",
        ),
        (lambda: plot.hands(F, 1, legend=0), TypeError, r"legend must be True or False; got int 0"),
        (lambda: plot.decay(F, length=0), ValueError, r"length must be from 1 to 2147483647; got 0"),
        (
            lambda: plot.table(ra.cos_sin(np.zeros((2, 3)), F)),
            ValueError,
            r"table must be \(positions, pairs\).*2, 3, 16",
        ),
        (
            lambda: plot.table(ra.cos_sin(np.arange(3), F), range(4)),
            ValueError,
            r"for 4 positions; got shape \(3, 16\)",
        ),
        (lambda: plot.table(F, np.array(5)), ValueError, r"positions must be one number.*got shape \(\)"),
        (lambda: plot.table(F, range(0)), ValueError, r"table must have a position and a pair; got shape \(0, 16\)"),
        (lambda: plot.table(F, np.zeros((2, 2))), ValueError, r"positions must be one number.*got shape \(2, 2\)"),
        (lambda: plot.errors(F, longest=2**31), ValueError, r"longest must be from 1 to 2147483647; got 2147483648"),
        (lambda: plot.pairs(F), TypeError, r"ropes must be Ropes, which have a pairing; got tuple"),
        (lambda: plot.pairs(THREE, axes=["x"]), ValueError, r"axes must be 3 names or more.*; got \['x'\]"),
        (
            lambda: plot.pairs(THREE, axes=["x", "y", "x"]),
            ValueError,
            r"axes must be .* all different; got \['x', 'y',",
        ),
        (lambda: plot.pairs(HALF, axes=3), TypeError, r"axes must be a sequence of str; got int 3"),
        (lambda: plot.pairs(HALF, axes="x"), TypeError, r"axes must be a sequence of str; got str 'x'"),
        (lambda: plot.pairs(HALF, labels=[3]), TypeError, r"labels must be a sequence of str; got list \[3\]"),
        (lambda: plot.wavelengths(F, labels=3), TypeError, r"labels must be a sequence of str; got int 3"),
        (lambda: plot.wavelengths(F, labels=iter("a")), TypeError, r"labels must be a sequence of str; got str_asc"),
        (lambda: plot.wavelengths(F, lengths=[("a", 1)]), TypeError, r"lengths must be a mapping .*; got list"),
        (lambda: plot.wavelengths(F, lengths=0), TypeError, r"lengths must be a mapping .*; got int 0"),
        (lambda: plot.wavelengths(F, lengths={1: 5}), TypeError, r"names of lengths must be .* str; got list \[1\]"),
        (lambda: plot.wavelengths(np.array([1j, 0.5j])), TypeError, r"frequencies must be .* float64; .*complex128"),
        (lambda: plot.wavelengths(np.array([True])), TypeError, r"frequencies must be .* float64; .* bool"),
        (lambda: plot.hands(F, np.array([1j])), TypeError, r"position must be .* float64; got .* complex128"),
        (lambda: plot.hands(F, NAN), ValueError, r"^position must be .* finite numbers; got nan"),
        (lambda: plot.hands(F, np.array(NAN)), ValueError, r"^position must be finite; got nan"),
        (lambda: plot.hands(F, []), ValueError, r"position must be one number; got shape \(0,\)"),
        (lambda: plot.hands(THREE, np.ones((2, 3))), ValueError, r"position must be .*; got shape \(2, 3\)"),
        (lambda: plot.hands(F, 1, pairs=5), TypeError, r"pairs must be a sequence of integers; got int 5"),
        (lambda: plot.table(F, np.array([1j])), TypeError, r"positions must be .* float64; got .* complex128"),
        (lambda: plot.table(F, 5), ValueError, r"positions must be one number for a token.*; got shape \(\)"),
        (
            lambda: plot.table(ra.cos_sin(np.arange(3), F), np.zeros((3, 5, 2))),
            ValueError,
            r"positions must be one number for a token, or one for each axis; got shape \(3, 5, 2\)",
        ),
        (lambda: plot.errors(F, like=3), TypeError, r"like must be an array.*; got int"),
        (lambda: plot.decay(F, ax=polar()), ValueError, r"ax must be rectilinear.*; got polar axes"),
        (lambda: plot.decay(F, ax=plt.figure().add_subplot(projection="3d")), ValueError, r"ax must .* got 3d axes"),
        (lambda: plot.pairs(HALF, ax=polar()), ValueError, r"ax must be rectilinear, .*; got polar"),
        (lambda: plot.pairs(HALF, head_dim=30), ValueError, r"head_dim must be from 32 to 2147483647; got 30"),
        (plot.pairs, ValueError, r"ropes must be at least one; got none"),
    ],
)
def test_wrong_arguments_are_refused(draw, error, match):
    with pytest.raises(error, match=match):
        draw()
    assert all(figure.axes for figure in map(plt.figure, plt.get_fignums()))  # no empty figure is left


@pytest.mark.parametrize("script", sorted(GALLERY.glob("*.py")), ids=lambda path: path.stem)
def test_the_gallery_shows_each_function(script, monkeypatch):
    drawn = []
    function = getattr(plot, script.stem)
    monkeypatch.setattr(
        plot, script.stem, lambda *args, **options: drawn.append(function(*args, **options)) or drawn[-1]
    )
    runpy.run_path(str(script))
    assert {ax.figure.number for ax in drawn} == set(plt.get_fignums()) != set()


@pytest.mark.parametrize("script", sorted(GALLERY.glob("*.py")), ids=lambda path: path.stem)
def test_the_code_of_the_gallery_fits_its_page(script):
    code = script.read_text(encoding="utf-8").rpartition('"""\n')[2].splitlines()
    assert len(code) > 2 and max(len(line) for line in code if not line.startswith("#")) <= 75


def test_the_gallery_has_a_script_for_each_function():
    assert sorted(path.stem for path in GALLERY.glob("*.py")) == plot.__all__


# --- on the command line ----------------------------------------------------------------------------------------------

LLAMA = {"model_type": "llama", "head_dim": 32, "rope_theta": 500_000.0, "max_position_embeddings": 8192}
SCALED = LLAMA | {"original_max_position_embeddings": 8192, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
KINDS = {
    "hands": (("--position", 1000), lambda: plot.hands(F, 1000)),
    "decay": (("--length", 50), lambda: plot.decay(F, length=50)),
    "table": (("--length", 4), lambda: plot.table(F, range(4))),
    "errors": (("--length", 9), lambda: plot.errors(F, longest=9)),
    "pairs": ((), lambda: plot.pairs(HALF)),
    "wavelengths": ((), lambda: plot.wavelengths(F, labels=["plain"], lengths={"trained": 8192})),
}


@pytest.fixture
def configs(tmp_path):
    """Write two configs; return their folder."""
    for name, config in (("plain", LLAMA), ("scaled", SCALED)):
        (tmp_path / f"{name}.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


def call(monkeypatch, capsys, folder, *arguments):
    """Run ``rope-any plot`` in this process; return the exit status and the output."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")  # restored afterwards
    with pytest.raises(SystemExit) as stopped:
        cli.app(["plot", *map(str, arguments)], prog_name="rope-any")
    return stopped.value.code or 0, *capsys.readouterr()


@pytest.mark.long
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "PNG", "Svg"])
def test_the_same_plot_gives_the_same_file(suffix, configs, monkeypatch, capsys):
    for name in ("a", "b"):
        assert call(monkeypatch, capsys, configs, "plain.json", "decay", "-o", f"{name}.{suffix}")[0] == 0
    assert (configs / f"a.{suffix}").read_bytes() == (configs / f"b.{suffix}").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_draws_each_kind(kind, configs, monkeypatch, capsys):
    options, draw = KINDS[kind]
    status, out, err = call(monkeypatch, capsys, configs, "plain.json", kind, *options, "-o", "out/it.png", "--json")
    assert (status, err) == (0, "")
    report, ax = json.loads(out), draw()
    assert (report["file"], report["kind"]) == ("out/it.png", kind)
    assert [line["label"] for line in report["lines"]] == [line.get_gid() or line.get_label() for line in ax.lines]
    for line, drawn in zip(report["lines"], ax.lines, strict=True):
        assert (line["x"], line["y"]) == tuple(np.asarray(data).tolist() for data in drawn.get_data())
    assert report["images"] == [np.asarray(image.get_array()).tolist() for image in ax.images]
    assert [text["text"] for text in report["texts"]] == [text.get_text() for text in ax.texts]
    outlines = [band.get_paths()[0].vertices for band in ax.collections]
    assert [(band["x"], band["y"]) for band in report["bands"]] == [tuple(map(list, o.T.tolist())) for o in outlines]
    assert [band["label"] for band in report["bands"]] == ["lowest to highest"] * (kind == "decay")
    assert report["axes"] == {"x": ax.get_xlabel(), "y": ax.get_ylabel()}
    picture = plt.imread(configs / "out" / "it.png")
    assert picture.shape[1] == 1140 and picture.std() > 0.05  # 7.6 inches at 150 dots, and not empty


def test_the_command_line_names_position_axes(configs, monkeypatch, capsys):
    sections = {"type": "mrope", "mrope_section": [4, 6, 6]}
    model = LLAMA | {"model_type": "qwen2_vl", "rope_scaling": sections}
    (configs / "images.json").write_text(json.dumps(model), encoding="utf-8")
    options = ["hands", "--position", "5,2,3", "-o", "h.png", "--json"]
    status, out, _ = call(monkeypatch, capsys, configs, "images.json", *options)
    labels = [line["label"] for line in json.loads(out)["lines"]]
    assert status == 0 and {label.partition("(")[2] for label in labels} == {"time)", "height)", "width)"}


def test_the_command_line_draws_several_configs(configs):
    result = run("plot", "plain.json", "scaled.json", "wavelengths", "-o", "w.svg", "--json", cwd=configs)
    assert result.returncode == 0, result.stderr
    plain, scaled, *marks = json.loads(result.stdout)["lines"]
    long = "trained 8\u202f192, extended 32\u202f768"
    assert (plain["label"], scaled["label"]) == ("plain: trained 8\u202f192", f"scaled: {long}")
    np.testing.assert_allclose(scaled["y"], 4 * np.asarray(plain["y"]))
    lengths, heights = zip(*((text["text"], text["at"][1]) for text in json.loads(result.stdout)["texts"]), strict=True)
    assert [(mark["label"], mark["y"][0]) for mark in marks] == [("trained", 8192), ("extended", 32_768)]
    assert lengths == ("trained 8\u202f192", "extended 32\u202f768") and heights == (8192, 32_768)
    before = (configs / "w.svg").read_bytes()
    assert before.startswith(b"<?xml") and b"</svg>" in before
    result = run("plot", "plain.json", "wavelengths", "-o", "w.svg", cwd=configs)
    assert result.returncode == 2 and "w.svg must not exist" in result.stderr
    assert (configs / "w.svg").read_bytes() == before
    result = run("plot", "plain.json", "wavelengths", "-o", "w.svg", "--overwrite", cwd=configs)
    assert (result.returncode, result.stdout) == (0, "w.svg: wavelengths of plain.json\n")
    assert (configs / "w.svg").read_bytes() != before


CONFIGS = {
    "llama-3.1-8b": LLAMA3,
    "gpt-oss-20b": LLAMA
    | {
        "head_dim": 64,
        "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096},
        "max_position_embeddings": 131_072,
    },
    "gemma-3-4b": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "max_position_embeddings": 131_072,
    },
    "qwen2-vl-a-long-name-of-a-file-with-its-quantization-q4": {
        "model_type": "qwen2_vl_text",
        "head_dim": 128,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "max_position_embeddings": 32_768,
    },
}


@pytest.fixture
def models(tmp_path):
    """Write a folder and a file for each config; return the folder of all."""
    for name, config in CONFIGS.items():
        (tmp_path / name).mkdir()
        for file in (tmp_path / name / "config.json", tmp_path / f"{name}.json"):
            file.write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("form", ["{}.json", "{}/config.json", "./{}/"])
def test_labels_of_four_configs_do_not_overlap(form, models, monkeypatch, capsys):
    files = [form.format(name) for name in CONFIGS]
    assert call(monkeypatch, capsys, models, *files, "wavelengths", "-o", "w.png")[::2] == (0, "")
    (ax,) = plt.gcf().axes
    expected = [
        "llama-3.1-8b: trained 8 192, extended 131 072",
        "gpt-oss-20b: trained 4 096, extended 131 072",
        "gemma-3-4b, sliding_attention: stated 131 072",
        "gemma-3-4b, full_attention: stated 131 072",
        f"{[*CONFIGS][-1]}: trained 32 768",
    ]
    assert [label.replace("\u202f", " ") for label in labels(ax)] == expected
    written = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [text.replace("\n", " ").replace("\u202f", " ") for text in written] == expected
    assert max(len(line) for text in written for line in text.splitlines()) <= 60
    boxes = assert_no_overlap(ax)
    page, inside = ax.figure.bbox, ax.get_window_extent()
    assert inside.width > 0.6 * page.width and inside.height > 0.5 * page.height
    assert all(box.x0 >= 0 and box.x1 <= page.width and not box.overlaps(inside) for box in boxes)


def test_configs_with_the_same_name_are_labelled_by_path(configs, monkeypatch, capsys):
    (configs / "other").mkdir()
    (configs / "other" / "plain.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert call(monkeypatch, capsys, configs, "plain.json", "other/plain.json", "wavelengths", "-o", "w.png")[0] == 0
    assert labels(plt.gca()) == ["plain.json", str(Path("other", "plain.json"))]


def test_relative_folders_are_labelled_by_name(models, monkeypatch, capsys):
    inside = models / "llama-3.1-8b" / "inside"
    inside.mkdir()
    assert call(monkeypatch, capsys, inside, "..", "../../gpt-oss-20b", "wavelengths", "-o", "w.png")[0] == 0
    names = [text.get_text().split(":")[0] for text in plt.gca().get_legend().get_texts()]
    assert names == ["llama-3.1-8b", "gpt-oss-20b"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("llama-3.1-8b.json decay", "llama-3.1-8b (llama)"),
        ("llama-3.1-8b/config.json hands --position 5", "llama-3.1-8b (llama)"),
        ("gemma-3-4b table --layer-type full_attention", "gemma-3-4b (gemma3_text, full_attention)"),
        (f"{[*CONFIGS][-1]}.json pairs", f"{[*CONFIGS][-1]} (qwen2_vl_text)"),
        ("gpt-oss-20b errors --length 9", "gpt-oss-20b (llama)"),
        ("none.json decay --pairing half", "none"),
        ("dynamic.json decay --sequence-length 9000", "dynamic (llama, for 9 000 tokens)"),
    ],
)
def test_a_plot_of_one_config_names_it(arguments, name, models, monkeypatch, capsys):
    (models / "none.json").write_text(
        json.dumps({"head_dim": 32, "rope_theta": 1e4, "rotary_dim": 32}), encoding="utf-8"
    )
    dynamic = LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}
    (models / "dynamic.json").write_text(json.dumps(dynamic), encoding="utf-8")
    assert call(monkeypatch, capsys, models, *arguments.split(), "-o", "w.png")[::2] == (0, "")
    figure = plt.gcf()
    assert " ".join(figure.get_suptitle().split()) == name
    (top,) = (text for text in figure.texts if text.get_text() == figure.get_suptitle())
    box = top.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height
    assert not any(ax.get_tightbbox().overlaps(box) for ax in figure.axes)


def test_decay_is_drawn_up_to_the_length_of_the_config(configs, monkeypatch, capsys):
    (configs / "none.json").write_text(json.dumps({"model_type": "llama", "head_dim": 32}), encoding="utf-8")
    dynamic = LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}
    (configs / "dynamic.json").write_text(json.dumps(dynamic), encoding="utf-8")
    (configs / "far.json").write_text(json.dumps(LLAMA | {"max_position_embeddings": 10**12}), encoding="utf-8")
    lengths = {"plain": 8192, "scaled": 32_768, "none": 4096, "dynamic": 8192, "far": 2**31 - 1}
    for file, length in lengths.items():
        call(monkeypatch, capsys, configs, f"{file}.json", "decay", "-o", "d.png", "--overwrite")
        assert plt.gca().lines[0].get_xdata()[-1] == length


def test_video_axes_have_their_names(models, monkeypatch, capsys):
    call(monkeypatch, capsys, models, f"{[*CONFIGS][-1]}.json", "pairs", "-o", "p.png")
    assert plt.gca().get_legend_handles_labels()[1] == [f"rotated by {name}" for name in ("time", "height", "width")]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", ""),
        ("ll", ""),
        ("a.json w", "wavelengths"),
        ("a.json b.json ta", "table"),
        ("a.json gp", ""),
        ("a.json ", "hands wavelengths decay table errors pairs"),
    ],
)
def test_completion_offers_kinds_after_a_config(typed, offered, monkeypatch, capsys):
    monkeypatch.setenv("_ROPE_ANY_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"rope-any plot {typed}")
    monkeypatch.setenv("COMP_CWORD", str(2 + typed.count(" ")))
    with pytest.raises(SystemExit):
        cli.app([], prog_name="rope-any")
    assert capsys.readouterr().out.split() == offered.split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "plain.json hand -o a.png",
            "KIND must be one of hands, wavelengths, decay, table, errors, pairs, after CONFIG; got 'hand'; did you",
        ),
        (
            "plain.json -o a.png",
            "KIND must be one of hands, wavelengths, decay, table, errors, pairs, after CONFIG; got none",
        ),
        ("plain.json scaled.json -o a.png", "after CONFIG; got none"),
        ("-o a.png", "missing argument KIND"),
        ("hands -o a.png", "CONFIG must be given before hands; got none"),
        ("plain.json hands -o a.png", "--position must be given with hands; got none"),
        (
            "plain.json hands --position here -o a.png",
            "rope-any: --position must be a number, or one for each axis, like 3,20,500; got 'here'",
        ),
        ("plain.json hands --position 3,nan -o a.png", "one for each axis, like 3,20,500; got 'nan'"),
        ("plain.json hands --position 1,2 -o a.png", "rope-any: --position must be one number; got shape (2,)"),
        ("plain.json decay --position 1 -o a.png", "--position must come with hands; got it with decay"),
        ("plain.json pairs --length 5 -o a.png", "--length must come with decay or table or errors; got it with pairs"),
        ("plain.json scaled.json decay -o a.png", "decay must be of one CONFIG; got 2"),
        ("plain.json decay -o a.txt", "--output must end in .png, .svg, .pdf; got 'a.txt'"),
        ("plain.json decay -o a", "--output must end in .png, .svg, .pdf; got 'a'"),
        ("plain.json decay --length 0 -o a.png", "rope-any: --length must be from 1 to 2147483647; got 0"),
        ("plain.json errors --length 3000000000 -o a.png", "rope-any: --length must be from 1 to 2147483647"),
        ("1.json 2.json 3.json 4.json 5.json 6.json wavelengths -o a.png", "rope-any: CONFIG must be from 1 to 5, "),
        ("plain.json table --length 0 -o a.png", "rope-any: --length must be from 1 to 2147483647; got 0"),
        ("none.json decay -o a.png", "none.json"),
        *((f"bert.json {kind} -o a.png", "bert.json: config must") for kind in ("decay", "wavelengths")),
        ("bert.json decay -o a.png", "got none: bert has no rotary embedding"),
    ],
)
def test_the_command_line_refuses_wrong_arguments_in_one_line(arguments, message, configs, monkeypatch, capsys):
    for n in range(1, 7):
        shutil.copy(configs / "plain.json", configs / f"{n}.json")
    (configs / "bert.json").write_text('{"model_type": "bert"}')
    before = sorted(configs.iterdir())
    status, out, err = call(monkeypatch, capsys, configs, *arguments.split())
    assert (status, out) == (2, "")
    assert err.startswith("rope-any: ") and message in err and err.count("\n") == 1
    assert sorted(configs.iterdir()) == before


def test_matplotlib_is_imported_only_for_drawing():
    code = """
import sys
sys.modules["matplotlib"] = None
from rope_any import *
try:
    plot.decay(frequencies(8))
except ModuleNotFoundError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip().endswith('is missing; install it by: pip install "rope-any[plot]"')
    assert "matplotlib" in result.stdout and result.stderr == ""
    code = "import sys, rope_any; assert not {'matplotlib', 'rope_any.plot'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
