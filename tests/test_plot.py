"""Figures: their contents, compared with sums and products that are independent of the drawing code."""

import json
import math
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import oracle
import pytest
from commands import output, refused, write_configs
from conftest import one_jax
from matplotlib import pyplot as plt

import rope_any as ra
from rope_any import plot

mpl.use("agg")
pytestmark = pytest.mark.thread_unsafe(reason="all threads share the figures and settings of pyplot")

F = ra.frequencies(32, base=500_000.0)
HALF = ra.Rope(F, pairing="half")
THREE = ra.Rope(ra.axes.chunked(F, [4, 6, 6]), pairing="half")
DRAW = {
    "hands": lambda **options: plot.hands(F, 1000, **options),
    "wavelengths": lambda **options: plot.wavelengths(F, labels=["plain"], lengths={"trained": 8192}, **options),
    "decay": lambda **options: plot.decay(F, length=100, **options),
    "table": lambda **options: plot.table(F, **options),
    "errors": lambda **options: plot.errors(F, longest=100, **options),
    "pairs": lambda **options: plot.pairs(HALF, **options),
}


def labels(ax):
    """Return the labels of the lines on axes."""
    return [line.get_label() for line in ax.lines if not line.get_label().startswith("_")]


# --- hands ------------------------------------------------------------------------------------------------------------


def directions(ax):
    """Return where the hands of a clock point, as complex numbers."""
    return np.exp(1j * np.asarray([line.get_xdata()[1] for line in ax.lines]))


@pytest.mark.parametrize("position", [0, 1, -7, 2.5, 1000.25, 131_072, 2**31 - 1])
def test_hands_are_at_position_times_frequency(position):
    ax = plot.hands(HALF, position, pairs=range(16))
    (cos,), (sin,) = oracle.cos_sin([position], F)
    assert all(0 <= line.get_xdata()[0] == line.get_xdata()[1] < 2 * math.pi for line in ax.lines)
    np.testing.assert_allclose(directions(ax), cos + 1j * sin, rtol=0, atol=1e-9)
    assert f"{position:,}".replace(",", "\u202f").replace("-", "−") in ax.get_title(loc="left")


def test_hands_of_several_axes_add_their_angles(lib):
    position = [3, 20, 500]
    angles = np.asarray(position) @ np.asarray(THREE.frequencies)
    for given in (position, lib(position, "int32")):
        found = directions(plot.hands(THREE, given, pairs=range(16)))
        np.testing.assert_allclose(found, np.exp(1j * angles), rtol=0, atol=1e-9)
    assert (directions(plot.hands(THREE, 7)) == directions(plot.hands(THREE, (7, 7, 7)))).all()


def test_hands_of_several_axes_name_their_axes():
    rope = ra.Rope(ra.axes.chunked(ra.frequencies(12), [2, 3, 1]), pairing="half")
    named = plot.hands(rope, [3, 20, 500], axes=[*"trc"])
    assert [label.split(" ", 2)[2].strip("()") for label in labels(named)] == [*"ttrrrc"]
    mixed = plot.hands(((1.0, 0.5, 0.0), (0.5, 0.0, 0.0)), [1, 2])
    expected = [f"{2 * math.pi / 1.5:.3g} (axis 0, axis 1)", "12.6 (axis 0)", "frequency 0"]
    assert [label.split(" ", 1)[1] for label in labels(mixed)] == expected


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
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]


def test_pairs_without_rotation_have_no_wavelength():
    ax = plot.wavelengths((*F, 0.0, 0.0))
    assert np.isfinite(ax.lines[0].get_ydata()).tolist() == [True] * 16 + [False] * 2
    assert ax.get_ylim()[1] < 1e8  # they don't stretch the axis


def test_equal_lengths_share_a_line_and_close_names_do_not_overlap():
    ax = plot.wavelengths(F, lengths={"trained": [4096, 4096, 4200.0], "extended": [4096, 5000, 4300]})
    names = ["trained, extended 4\u202f096", "trained 4\u202f200", "extended 4\u202f300", "extended 5\u202f000"]
    assert [text.get_text() for text in ax.texts] == names
    assert [line.get_ydata()[0] for line in ax.lines[1:]] == [4096, 4200, 5000, 4300]
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


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
    lib.need(dtype=dtype)
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
    ax = plot.table(F, [100.25, 1000.75, 7.0])
    names = [ax.yaxis.get_major_formatter()(row, None) for row in range(3)]
    assert names == ["100.25", "1\u202f000.75", "7"]


@pytest.mark.parametrize(("count", "step"), [(512, 1), (513, 2), (131_072, 256)])
def test_many_positions_are_sampled(count, step):
    image = np.hstack(ra.cos_sin(np.arange(count), F))[::step]
    for source in (HALF, ra.cos_sin(np.arange(count), F)):
        ax = plot.table(source, range(count))
        np.testing.assert_allclose(ax.images[0].get_array(), image, atol=2e-7)
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
        assert theirs == pytest.approx(np.abs(np.subtract((np.cos(angle), np.sin(angle)), exact)).max())
        assert mine == pytest.approx(np.abs(np.subtract(ra.cos_sin(np.asarray(p), F), exact)).max()) and mine <= 1.2e-7
    assert list(narrow.get_xdata()) == list(ours.get_xdata()) == ends
    assert narrow.get_ydata()[-1] > 1e-3
    assert set(bound.get_ydata()) == {1.2e-7}


def test_errors_of_a_float64_table_have_the_float64_bound():
    _, ours, bound = plot.errors(THREE, longest=100_000, like=np.ones(1)).lines
    most = max(sum(map(abs, column)) for column in zip(*THREE.frequencies, strict=True))
    np.testing.assert_allclose(bound.get_ydata(), [1e-15 * (1 + p * most) for p in bound.get_xdata()], rtol=1e-6)
    assert "1e−15" in bound.get_label() and (ours.get_ydata() <= bound.get_ydata()).all()


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


def test_a_rope_with_fewer_axes_has_the_last_names():
    two, _ = ROPES["two axes in blocks"]
    found = cells(plot.pairs(THREE, two, axes=[*"xyz"]))
    names = set().union(*(names for (line, _), (_, names) in found.items() if line))
    assert names == {"rotated by y", "rotated by z"}


# --- all functions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAW)
def test_each_function_draws_on_the_given_axes_or_a_new_figure(name):
    given = plt.figure().add_subplot(projection="polar" if name == "hands" else None)
    figures, settings = plt.get_fignums(), dict(mpl.rcParams)
    assert DRAW[name](ax=given) is given and given.has_data()
    assert (given.get_legend() is None) == (name in {"table", "pairs"})
    assert plt.get_fignums() == figures
    ax = DRAW[name]()
    assert plt.gcf() is ax.figure is not given.figure and dict(mpl.rcParams) == settings
    ax.figure.draw_without_rendering()
    tight, (width, height) = ax.figure.get_tightbbox(), ax.figure.get_size_inches()
    assert tight.x0 >= 0 and tight.y0 >= 0 and tight.x1 <= width and tight.y1 <= height  # nothing is cut off


def test_names_are_drawn_literally():
    special = ["_hidden", r"$x$ and $y^2$ for a dollar"]
    ax = plot.wavelengths(F, F, labels=special, lengths={"_a $b$": 64})
    rotated = plot.pairs(THREE, axes=["_t", "$h$", "w"], labels=["$r$"])
    texts = [*ax.get_legend().get_texts(), *ax.texts, *rotated.get_legend().get_texts(), *rotated.get_yticklabels()]
    names = [*special, "_a $b$ 64", "rotated by _t", "rotated by $h$", "rotated by w", "$r$"]
    assert [text.get_text() for text in texts] == names
    assert not any(text.get_parse_math() for text in texts)


REFUSED = [
    (lambda: plot.hands(5, 1), TypeError, "rope must be a Rope or frequencies"),
    (lambda: plot.hands(THREE, [1, 2]), ValueError, r"each of 3 axes; got shape \(2,\)"),
    (lambda: plot.hands(THREE, 1, axes=["t", "x", "x"]), ValueError, "axes must .* all different"),
    (lambda: plot.hands(F, 1, pairs=[]), ValueError, "pairs must be at least one"),
    (lambda: plot.hands(F, 1, ax=plt.figure().add_subplot()), ValueError, "ax must be polar"),
    (lambda: plot.wavelengths(*[F] * 6), ValueError, "ropes must be from 1 to 5"),
    (lambda: plot.wavelengths(F, (0.0, 1e-300)), ValueError, "ropes must each have a frequency other than 0"),
    (lambda: plot.table(ra.cos_sin(np.zeros((2, 3)), F)), ValueError, r"table must be \(positions, pairs\)"),
    (lambda: plot.table(ra.cos_sin(np.arange(3), F), range(4)), ValueError, "for 4 positions"),
]


@pytest.mark.parametrize(("draw", "error", "match"), REFUSED)
def test_wrong_arguments_are_refused(draw, error, match):
    with pytest.raises(error, match=match):
        draw()
    assert all(figure.axes for figure in map(plt.figure, plt.get_fignums()))  # no empty figure is left


# --- on the command line ----------------------------------------------------------------------------------------------

LLAMA = {"model_type": "llama", "head_dim": 32, "rope_theta": 500_000.0, "max_position_embeddings": 8192}
SCALED = LLAMA | {"original_max_position_embeddings": 8192, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
DYNAMIC = LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}}
OPTIONS = {"hands": "--position 1000", "decay": "--length 100", "errors": "--length 100"}


@pytest.fixture
def configs(tmp_path, monkeypatch):
    """Write some configs; return their folder."""
    monkeypatch.setenv("MPLBACKEND", "agg")  # restored afterwards
    return write_configs(tmp_path, plain=LLAMA, scaled=SCALED, dynamic=DYNAMIC)


def drawn(args, folder):
    """Run ``rope-any plot``, which must succeed, and return what it prints."""
    return output("plot", *args.split(), cwd=folder)


@pytest.mark.long
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_plot_gives_the_same_file(suffix, configs):
    for name in ("a", "b"):
        drawn(f"plain.json decay -o {name}.{suffix}", configs)
    assert (configs / f"a.{suffix}").read_bytes() == (configs / f"b.{suffix}").read_bytes()


@pytest.mark.parametrize("kind", DRAW)
def test_the_command_line_draws_each_kind(kind, configs):
    options = OPTIONS.get(kind, "")
    report, ax = json.loads(drawn(f"plain.json {kind} {options} -o out/it.png --json", configs)), DRAW[kind]()
    assert (report["file"], report["kind"]) == ("out/it.png", kind)
    assert [line["label"] for line in report["lines"]] == [line.get_gid() or line.get_label() for line in ax.lines]
    for line, own in zip(report["lines"], ax.lines, strict=True):
        assert (line["x"], line["y"]) == tuple(np.asarray(data).tolist() for data in own.get_data())
    assert report["images"] == [np.asarray(image.get_array()).tolist() for image in ax.images]
    assert [text["text"] for text in report["texts"]] == [text.get_text() for text in ax.texts]
    outlines = [band.get_paths()[0].vertices for band in ax.collections]
    assert [(band["x"], band["y"]) for band in report["bands"]] == [tuple(map(list, o.T.tolist())) for o in outlines]
    assert [band["label"] for band in report["bands"]] == ["lowest to highest"] * (kind == "decay")
    assert report["axes"] == {"x": ax.get_xlabel(), "y": ax.get_ylabel()}
    picture = plt.imread(configs / "out" / "it.png")
    assert picture.shape[1] == 1140 and picture.std() > 0.05  # 7.6 inches at 150 dots, and not empty


def test_the_command_line_draws_several_configs(configs):
    args = "plain.json scaled.json wavelengths -o w.svg"
    plain, scaled, *marks = json.loads(drawn(f"{args} --json", configs))["lines"]
    assert plain["label"] == "plain: trained 8\u202f192"
    assert scaled["label"] == "scaled: trained 8\u202f192, extended 32\u202f768"
    np.testing.assert_allclose(scaled["y"], 4 * np.asarray(plain["y"]))
    assert [(mark["label"], mark["y"][0]) for mark in marks] == [("trained", 8192), ("extended", 32_768)]
    before = (configs / "w.svg").read_bytes()
    assert before.startswith(b"<?xml") and b"</svg>" in before
    assert "w.svg must not exist" in refused("plot", *args.split(), cwd=configs)
    assert (configs / "w.svg").read_bytes() == before
    said = drawn("plain.json wavelengths -o w.svg --overwrite", configs)
    assert said == "w.svg: wavelengths of plain.json\n" and (configs / "w.svg").read_bytes() != before


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ("plain.json other/plain.json", ["plain.json", "other/plain.json"]),
        ("plain.json ./gpt/", ["plain", "gpt"]),
        ("gpt/config.json scaled.json", ["gpt", "scaled"]),
    ],
)
def test_configs_are_labelled_by_the_shortest_distinct_names(files, names, configs):
    for folder, name in (("other", "plain"), ("gpt", "config")):
        write_configs(configs / folder, **{name: LLAMA})
    drawn(f"{files} wavelengths -o w.png", configs)
    assert [label.split(":")[0] for label in labels(plt.gca())] == [str(Path(name)) for name in names]


@pytest.mark.parametrize(
    ("args", "name"),
    [
        ("gemma.json table --layer-type full_attention", "gemma (gemma3_text, full_attention)"),
        ("dynamic.json decay --sequence-length 9000", "dynamic (llama, for 9\u202f000 tokens)"),
    ],
)
def test_a_plot_of_one_config_names_it(args, name, configs):
    write_configs(configs, gemma={"model_type": "gemma3_text", "num_hidden_layers": 6})
    drawn(f"{args} -o w.png", configs)
    assert plt.gcf().get_suptitle() == name


def test_types_of_layers_and_axes_of_positions_are_named(configs):
    qwen = ra.config.published()["Qwen/Qwen2-VL-2B-Instruct"]
    write_configs(configs, gemma={"model_type": "gemma3_text", "num_hidden_layers": 6}, qwen=qwen)
    drawn("gemma.json wavelengths -o w.png", configs)
    assert [name.split(":")[0] for name in labels(plt.gca())] == ["gemma, sliding_attention", "gemma, full_attention"]
    drawn("qwen.json pairs -o p.png", configs)
    names = [text.get_text() for text in plt.gca().get_legend().get_texts()]
    assert names == ["rotated by time", "rotated by height", "rotated by width"]


def test_decay_is_drawn_up_to_the_length_of_the_config(configs):
    far = LLAMA | {"max_position_embeddings": 10**12}
    write_configs(configs, none={"model_type": "llama", "head_dim": 32}, far=far)
    lengths = {"plain": 8192, "scaled": 32_768, "none": 4096, "dynamic": 8192, "far": 2**31 - 1}
    for name, length in lengths.items():
        drawn(f"{name}.json decay -o d.png --overwrite", configs)
        assert plt.gca().lines[0].get_xdata()[-1] == length


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("plain.json hand -o a.png", "errors, pairs, after CONFIG; got 'hand'; did you"),
        ("plain.json hands -o a.png", "--position must be given with hands"),
        ("plain.json hands --position 3,nan -o a.png", "one for each axis, like 3,20,500; got 'nan'"),
        ("plain.json scaled.json decay -o a.png", "decay must be of one CONFIG; got 2"),
        ("plain.json decay -o a.txt", "--output must end in .png, .svg, .pdf; got 'a.txt'"),
    ],
)
def test_the_command_line_refuses_wrong_arguments_and_writes_no_file(args, message, configs):
    before = sorted(configs.iterdir())
    assert message in refused("plot", *args.split(), cwd=configs)
    assert sorted(configs.iterdir()) == before


def test_matplotlib_is_imported_only_for_drawing():
    code = "import sys; sys.modules['matplotlib'] = None; from rope_any import *; print(plot); plot.decay((1.0,))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("<module 'rope_any.plot'")
    sentence = 'rope_any.plot needs matplotlib, which is missing; install it by: pip install "rope-any[plot]"'
    assert done.stderr.rstrip().endswith(f"ModuleNotFoundError: {sentence}")
