"""The page of variants: its code is run, and its results equal the formulas of the authors."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from oracle import mp

import rope_any as ra

PAGE = (Path(__file__).parents[1] / "docs" / "variants.md").read_text(encoding="utf-8")
LINES = re.findall(r"^(?:>>>|\.\.\.) (.*)$", PAGE.partition("## What this library cannot make")[0], re.MULTILINE)
F = [mp.mpf(10) ** (-6 * mp.mpf(2 * i) / 128) for i in range(64)]


@pytest.fixture(scope="module")
def page():
    """Return the variables of the code of the page."""
    names = {}
    exec("\n".join(LINES), names)  # noqa: S102  # the code of the page
    return names


def rotated(angles, *, pairing="half"):
    """Return ones, a row of features, rotated pair by pair in 60 digits."""
    pairs = [(float(mp.cos(angle) - mp.sin(angle)), float(mp.cos(angle) + mp.sin(angle))) for angle in angles]
    return np.ravel(np.transpose(pairs) if pairing == "half" else pairs)


def check_tokens(got, points, axis_of, *, pairing="half", unrotated=()):
    """Compare rotated ones (batch, heads, seq, 128) with positions and the axis of each pair, for all axes or some."""
    for token in {0, len(points) // 2, len(points) - 1}:
        angles = [0 if a in unrotated else f * mp.mpf(points[token][a]) for a, f in zip(axis_of, F, strict=True)]
        np.testing.assert_allclose(got[0, 1, token], rotated(angles, pairing=pairing), atol=1e-12)


# --- frequencies --------------------------------------------------------------------------------------------


def test_frequencies_equal_those_of_the_authors(page):
    time, height, width = (page["riflex"].frequencies[axis] for axis in range(3))
    assert time[3] == pytest.approx(float(mp.mpf("0.9") * 2 * mp.pi / 66), rel=1e-15)
    assert round(time[3], 4) == 0.0857
    assert time[:3] + time[4:8] == tuple(2.0**-i for i in (0, 1, 2, 4, 5, 6, 7))
    assert height[8:36] == width[36:] == ra.frequencies(56, base=256.0)
    assert page["dype"].frequencies[0] == page["dype_ntk"].frequencies[0]
    # ratios of the authors' code (flux/transformer_flux.py), for two axes of 128 patches at noise 0.7
    slow = page["dype"].frequencies[1][8:36]
    ratios = [round(f / g, 4) for f, g in zip(slow, ra.frequencies(56), strict=True)]
    assert ratios[:10:3] == [1.0, 0.9722, 0.8929, 0.6958]
    base = 10_000 * mp.mpf(2) ** (mp.mpf(56) / 54 * 2 * mp.mpf("0.7") ** 2)
    expected = [float(base ** (-mp.mpf(i) / 28)) for i in range(28)]
    np.testing.assert_allclose(page["dype_ntk"].frequencies[2][36:], expected, rtol=1e-12)
    llama = ra.frequencies(128, base=500_000.0)
    fade = [float((1 + mp.cos(mp.pi * j / 19)) / 2) for j in range(20)]
    np.testing.assert_allclose(page["cope"].frequencies[44:], np.multiply(llama[44:], fade), rtol=1e-12, atol=1e-22)
    assert page["cope"].frequencies[:44] == page["hard_cope"].frequencies[:44] == llama[:44]
    assert page["hard_cope"].frequencies[44:] == (0.0,) * 20
    factors = page["dype_table"].cos[0] ** 2 + page["dype_table"].sin[0] ** 2
    np.testing.assert_allclose(factors, [1] * 8 + [(0.1 * math.log(2) + 1) ** 2] * 56, rtol=1e-6)


# --- rows ---------------------------------------------------------------------------------------------------


def diagonal():
    """Return the positions of text, 2 × 3, text, 1 × 2, text in VideoRoPE; δ does not affect images."""
    text, points, first = [3, 2, 1], [], 0.0
    for count, size in itertools.zip_longest(text, [(2, 3), (1, 2)]):
        points += [(first + i,) * 3 for i in range(count)]
        first += count
        if size:
            rows, columns = ([first + i - (n - 1) // 2 for i in range(n)] for n in size)
            points += [(first, row, column) for row in rows for column in columns]
            first += 1
    return points


def test_rotations_over_axes_equal_those_of_the_authors(page):
    video_axes = [1, 2] * 24 + [0] * 16
    check_tokens(page["videorope_q"], diagonal(), video_axes)
    check_tokens(page["hope_q"], diagonal(), video_axes, unrotated={0})
    cells = [(0, y, x) for y in range(2) for x in range(7)]
    scaled = [(4 * t, 8 * y, 8 * x) for t, y, x in cells]
    check_tokens(page["lumos_q"], scaled, [0, 0, 1, 2, 1, 2, 1, 2] * 8, pairing="interleaved")
    qwen3_axes = [i % 3 if i < 60 else 0 for i in range(64)]
    check_tokens(page["mrope_i_q"], [(3, y, x) for y in range(2) for x in range(3)], qwen3_axes)
    # generate_nd_positions of vrope.py: sums of each axis, or its flip, height before width
    sums = [[a + b for a in (y, 1 - y) for b in (x, 2 - x)] for y in range(2) for x in range(3)]
    assert page["vrope_p"] == [tuple(point) for point in sums]
    got = page["vrope"].apply(np.ones((1, 8, 6, 128)), page["vrope_p"])
    check_tokens(got, sums, [i % 4 for i in range(64)])


def test_rotations_of_heads_equal_those_of_the_authors(page):
    g = mp.findroot(lambda x: x**3 - x - 1, 1.3)
    for h, i, token in ((0, 0, 3), (7, 63, 9), (3, 20, 13)):
        n = 64 * h + i + 1
        point = [mp.erfinv(2 * mp.frac(n * g**-j) - 1) for j in (1, 2)]
        w = mp.mpf("0.2") * mp.mpf(100) ** (mp.mpf(i) / 63) / mp.sqrt(sum(x * x for x in point))
        angle = w * (point[0] * (token // 7) + point[1] * (token % 7))
        assert page["golden"].cos[h, token, i] == pytest.approx(float(mp.cos(angle)), abs=1e-6)
        assert page["golden"].sin[h, token, i] == pytest.approx(float(mp.sin(angle)), abs=1e-6)
    assert page["mixed"].cos.shape == (8, 14, 64)
    np.testing.assert_allclose(page["basis"] @ page["basis"].T, np.eye(128), atol=1e-12)
    rope = ra.Rope(ra.axes.chunked(page["f"], [32, 32]), pairing="half")
    plain = rope.apply(page["q"] @ page["basis"], ra.positions.grid(2, 7, like=page["q"]))
    np.testing.assert_array_equal(page["string_q"], plain)


# --- positions, tables --------------------------------------------------------------------------------------


def test_positions_equal_those_of_the_authors(page):
    stream = [(i,) * 3 for i in range(3)] + [(3, 3 + y, 3 + x) for y in range(2) for x in range(3)]
    stream += [(6,) * 3, (7,) * 3, (8, 8, 8), (8, 8, 9), (10,) * 3]
    check_tokens(page["mrope_q"], stream, [0] * 16 + [1] * 24 + [2] * 24)
    frame = [(y, x) for y in range(2) for x in range(2)]
    expected = [0, 1, 2, 3, 3, *[4] * 4, *range(4, 54), *[54] * 4, *range(54, 64), 64, 64, 65]
    assert page["tmrope_p"][:, 0].tolist() == expected
    for first in (5, 59):
        assert page["tmrope_p"][first : first + 4, 1:].tolist() == [[4 + y, 4 + x] for y, x in frame]
    expected = [0, 1, 2, 3, 4, *[5] * 4, *range(5, 25), *[24.5] * 4, *range(25, 35), 35, 36, 37]
    assert page["qwen3_omni_p"][:, 0].tolist() == expected
    assert page["omni_p"].tolist() == [[3, y, x] for y in range(2) for x in range(3)]
    assert page["shift"] == 6
    assert page["v2pe_p"].tolist() == [3 + i * 16 / 256 for i in range(1, 257)]
    assert page["after"] == 20
    for i, (time, row, column) in enumerate(page["circle_p"].tolist()):
        # circle_rope.py: u and v span the plane perpendicular to the direction of text, (1, 1, 1)
        x, y = 10 * mp.cos(2 * mp.pi * i / 6), 10 * mp.sin(2 * mp.pi * i / 6)
        u, v = [-1, 1, 0], [-1, -1, 2]
        point = [float(x * u[a] / mp.sqrt(2) + y * v[a] / mp.sqrt(6)) for a in range(3)]
        assert [column, row, time] == pytest.approx(point, abs=1e-12)


def test_tables_equal_those_of_the_authors(page):
    q = np.ones(128)
    for token in (0, 5, 13):
        cos, sin = (np.tile([float(part(token * f)) for f in F], 2) for part in (mp.cos, mp.sin))
        rot = np.concatenate([-q[64:], q[:64]])
        np.testing.assert_allclose(page["ropepp_q"][0, 0, token], q * sin - rot * cos, atol=1e-6)
    assert [i for i, rope in enumerate(page["irope"], 1) if rope is None] == [*range(4, 49, 4)]
    assert page["full"].frequencies[64] == pytest.approx(1e-3, rel=1e-12)
    assert page["sliding"].frequencies[64] == pytest.approx(1e-2, rel=1e-12)


# --- rows of each head, and sums of angles -----------------------------------------------------------------------


def test_heads_can_have_an_axis_each(page):
    points = page["positions"].mrope(page["spans"], like=page["q"])
    got = page["mhrope"].apply(page["q"], points)
    for head, axis in {0: 0, 2: 1, 7: 2}.items():
        for token in (0, 5, 13):
            angles = [f * int(points[token, axis]) for f in F]
            np.testing.assert_allclose(got[0, head, token], rotated(angles), atol=1e-12)


@pytest.mark.parametrize("name", ["selective_q", "mamba3_q", "carope_q"])
def test_angles_are_sums_of_steps(page, name):
    step = {
        "selective_q": [mp.mpf(500_000) ** (-mp.mpf(2 * i) / 128) for i in range(64)],
        "mamba3_q": [mp.pi * mp.tanh(0.3) / 10] * 64,
        "carope_q": [mp.mpf("0.5") ** (i + 1) for i in range(64)],
    }[name]
    pairing = "interleaved" if name == "mamba3_q" else "half"
    for token in (0, 13):
        expected = rotated([(token + 1) * s for s in step], pairing=pairing)
        np.testing.assert_allclose(page[name][0, 3, token], expected, atol=1e-12)
