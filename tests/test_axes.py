"""Several position axes: the axis of each pair, learned frequencies by head, and blocks of features."""

import math
import random
from functools import partial

import numpy as np
import oracle
import pytest
from conftest import one_jax
from hypothesis import given
from hypothesis import strategies as st

import rope_any as ra
from rope_any import axes

F = ra.frequencies(16, base=500.0)
sections = st.lists(st.integers(1, 5), min_size=1, max_size=5)


def axes_of_pairs(rows):
    """Return the axis and the frequency of each pair; raise if a pair has several."""
    columns = [[(a, f) for a, f in enumerate(column) if f] for column in zip(*rows, strict=True)]
    assert all(len(column) == 1 for column in columns)
    return [column[0] for column in columns]


@given(sections)
def test_axial_gives_each_axis_its_frequencies(sizes):
    by_axis = [ra.frequencies(2 * n) for n in sizes]
    assert axes_of_pairs(axes.axial(*by_axis)) == [(a, f) for a, row in enumerate(by_axis) for f in row]


@given(sections)
def test_chunked_assigns_runs_of_pairs_to_axes(sizes):
    f = ra.frequencies(2 * sum(sizes))
    got = axes_of_pairs(axes.chunked(f, sizes))
    assert [g for _, g in got] == list(f)
    assert [a for a, _ in got] == [a for a, n in enumerate(sizes) for _ in range(n)]


@given(st.integers(1, 5), st.integers(1, 12), st.data())
def test_strided_alternates_between_axes(n, least, data):
    """For all sections that `strided` accepts: each but the first is at most `least`, and the first has the rest."""
    others = [data.draw(st.integers(1, least)) for _ in range(n - 1)]
    pairs = n * least + data.draw(st.integers(0, 4))
    sizes = [pairs - sum(others), *others]
    f = ra.frequencies(2 * pairs)
    got = axes_of_pairs(axes.strided(f, sizes))
    assert [g for _, g in got] == list(f)
    assert [a for a, _ in got] == [i % n if i // n < sizes[i % n] and i % n else 0 for i in range(pairs)]


def test_sections_that_qwen3_vl_clamps_are_refused_with_those_that_it_makes_of_them(torch):
    f, given = ra.frequencies(64, base=5e6), [8, 12, 12]
    with pytest.raises(ValueError, match=r"as \[11, 11, 10\] do; got \[8, 12, 12\]; those give the axes"):
        axes.strided(f, given)
    qwen = pytest.importorskip("transformers.models.qwen3_vl.modeling_qwen3_vl", reason="transformers is not installed")
    parameters = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": given}
    embedding = qwen.Qwen3VLTextRotaryEmbedding(qwen.Qwen3VLTextConfig(head_dim=64, rope_parameters=parameters))
    at = torch.tensor([[3, 900], [70, 5], [11, 4000]])
    cos, _ = embedding(torch.zeros(1), at[:, None])
    table = ra.cos_sin(at.T, axes.strided(f, [11, 11, 10]))
    torch.testing.assert_close(cos[0, :, :32], table.cos, rtol=0, atol=1e-3)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=24))
def test_assigned_gives_each_pair_its_axis(numbers):
    f = ra.frequencies(2 * len(numbers))
    rows = axes.assigned(f, numbers)
    assert len(rows) == 1 + max(numbers)
    assert axes_of_pairs(rows) == [*zip(numbers, f, strict=True)]


@pytest.mark.parametrize(("m", "pairs", "heads"), [(1, 4, 3), (2, 32, 12), (3, 32, 6), (5, 7, 3)])
def test_golden_equals_60_digits(m, pairs, heads):
    """jerryxio.ng/posts/nd-rope: directions from a Kronecker sequence, mapped to normal numbers and normalised."""
    mp = oracle.mp
    g = mp.findroot(lambda x: x ** (m + 1) - x - 1, 1.3)
    magnitudes = (0.0,) * 2 + tuple(0.5 * 40 ** (i / (pairs - 3)) for i in range(pairs - 2))
    got = np.asarray(axes.golden(magnitudes, m, heads=heads))
    assert got.shape == (heads, m, pairs)
    for h, i in {(0, 2), (0, pairs - 1), (heads - 1, 3), (heads - 1, pairs - 1), (heads // 2, pairs // 2)}:
        n = h * pairs + i + 1
        point = [mp.erfinv(2 * mp.frac(n * g ** (-j)) - 1) for j in range(1, m + 1)]
        length = mp.sqrt(sum(x * x for x in point))
        expected = [float(magnitudes[i] * x / length) for x in point]
        np.testing.assert_allclose(got[h, :, i], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), [magnitudes] * heads, rtol=1e-14)


@given(st.integers(1, 24), st.data())
def test_alternating_picks_every_nth(pairs, data):
    n, f = data.draw(st.integers(1, pairs)), ra.frequencies(2 * pairs)
    assert axes_of_pairs(axes.alternating(f, n)) == [(a, g) for a in range(n) for g in f[a::n]]


# --- learned frequencies --------------------------------------------------------------------------------


def test_mixed_draws_the_directions_of_the_authors_code():
    """Pair i of the first half rotates along the direction of its head, pair i of the second across it."""
    same_rng = random.Random(7)
    got = np.asarray(axes.mixed(32, heads=3, rng=random.Random(7), base=10.0))
    assert got.shape == (3, 2, 16)
    for head in got:
        a = 2 * math.pi * same_rng.random()
        for i in range(8):
            f = 10.0 ** (-4 * i / 32)
            np.testing.assert_allclose(head[:, i], [f * math.cos(a), f * math.sin(a)], atol=1e-15)
            np.testing.assert_allclose(head[:, 8 + i], [-f * math.sin(a), f * math.cos(a)], atol=1e-15)
    assert np.asarray(axes.mixed(8, heads=2, rng=np.random.default_rng(0))).shape == (2, 2, 4)


# --- blocks ---------------------------------------------------------------------------------------------


@one_jax
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("sizes", [(24, 0, 3), (30, 0, 3), (30, 5, 3), (18, 1, 2)])
def test_blocks_rotate_like_separate_arrays(lib, rng, pairing, sizes):
    features, start, count = sizes
    x, places = rng.uniform(-2, 2, (2, 3, 7, features)), rng.integers(-99, 99, (7, count))
    by_axis = [ra.frequencies(8, base=b) for b in (10.0, 100.0, 1000.0)[:count]]
    expected = x.copy()
    for a, frequencies in enumerate(by_axis):
        block = np.s_[..., start + 8 * a : start + 8 * (a + 1)]
        expected[block] = oracle.rotate(x[block], places[:, a], frequencies, pairing=pairing)
    rope = ra.Rope(axes.axial(*by_axis), pairing=pairing, blocks=count, start=start)
    array, positions = lib(x, "float32"), lib(places)
    rotated, (q, k) = lib.quick(lambda x, p: (rope.apply(x, p), rope(x, x, p)))(array, positions)
    np.testing.assert_allclose(lib.get(rotated), expected, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(lib.get(q), lib.get(k))
    back = lib.quick(partial(rope.apply, inverse=True))(q, positions)
    np.testing.assert_allclose(lib.get(back), x, rtol=0, atol=3e-6)
    if lib.mutable:
        out = lib(np.zeros_like(x), "float32")
        assert rope.apply(array, positions, out=out) is out
        np.testing.assert_allclose(lib.get(out), expected, rtol=0, atol=2e-6)
        rope.apply(array, positions, out=array)
        np.testing.assert_allclose(lib.get(array), expected, rtol=0, atol=2e-6)


@pytest.mark.long
@pytest.mark.parametrize("fused", [False, True])
def test_blocks_can_be_compiled(lib, rng, fused):
    if lib.name not in {"torch-cpu", "torch-sim", "jax", "mlx", *(["numpy"] if fused else [])}:
        pytest.skip(f"{lib.name} has no compiler, or that of another library")
    if lib.name == "numpy":
        pytest.importorskip("numba", reason="numba is not installed")
    rope = ra.Rope(axes.axial(F[:4], F[:4]), pairing="half", blocks=2)
    x, places = lib(rng.uniform(-2, 2, (2, 7, 16)), "float32"), lib(rng.integers(-99, 99, (7, 2)))
    expected = lib.get(rope.apply(x, places))
    got = rope.apply(x, places, fused=True) if fused else lib.trace(rope.apply)(x, places)
    np.testing.assert_allclose(lib.get(got), expected, rtol=0, atol=1e-6)


def test_gradients_reach_x_in_blocks_and_frequencies_of_heads(torch, rng):
    learned = torch.asarray(np.asarray(axes.mixed(8, heads=2, rng=random.Random(0)))).requires_grad_()
    places, x = torch.asarray(rng.integers(0, 9, (5, 2))), torch.asarray(rng.uniform(-1, 1, (1, 2, 5, 9)))
    rope = ra.Rope(axes.axial(F[:2], F[:2]), pairing="half", blocks=2, start=1)

    def rotated(x, learned):
        """Return x rotated in blocks, and then by frequencies that are learned."""
        return ra.rotate(rope.apply(x, places), *ra.cos_sin(places, learned), pairing="interleaved")

    assert torch.autograd.gradcheck(rotated, (x.requires_grad_(), learned))


def test_one_block_equals_no_blocks():
    rope = ra.Rope(F, pairing="half", blocks=4)
    assert repr(rope).endswith("pairing='half', blocks=4)")
    assert rope != ra.Rope(F, pairing="half") == ra.Rope(F, pairing="half", blocks=1)
    # adjacent pairs are the same in any number of blocks
    x, adjacent = np.ones((3, 16)), ra.Rope(F, pairing="interleaved", blocks=4)
    np.testing.assert_array_equal(adjacent.apply(x), ra.Rope(F, pairing="interleaved").apply(x))
