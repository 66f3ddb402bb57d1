"""
Statements of introductions to RoPE, written out by hand and compared with `rotate` and `Rope`.

The texts rotate adjacent features, (x₁, x₂), (x₃, x₄), …: the pairing "interleaved". For "half" the features
are reordered before and after the rotation.
"""

import cmath
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from rope_any import Rope, frequencies, rotate

# Angles are at most some thousand radians, and products by hand lose 1e-16 of them.
CLOSE = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(params=["interleaved", "half"])
def pairing(request):
    """Return each pairing."""
    return request.param


def arrange(x, pairing):
    """Return adjacent pairs (a₀ b₀ a₁ b₁ …), as in the texts, in the order of `pairing`."""
    return x if pairing == "interleaved" else np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def rotate_adjacent(x, positions, freqs, pairing):
    """Rotate adjacent pairs of x by a `Rope` of either pairing."""
    y = Rope(freqs, pairing=pairing).apply(arrange(np.asarray(x, dtype=np.float64), pairing), positions)
    return y if pairing == "interleaved" else np.stack(np.split(y, 2, axis=-1), axis=-1).reshape(y.shape)


def theta(d):
    """Return θᵢ = 10000^(−2i/d) for each pair i."""
    return [10000 ** (-2 * i / d) for i in range(d // 2)]


def matrix(m, thetas):
    """Return the matrix R of the texts: one 2 x 2 block for each θ, and zeros."""
    r = np.zeros((2 * len(thetas), 2 * len(thetas)))
    for i, t in enumerate(thetas):
        c, s = math.cos(m * t), math.sin(m * t)
        r[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, -s], [s, c]]
    return r


def as_complex(x):
    """Return adjacent pairs (a, b) as complex numbers a + ib."""
    return x[..., 0::2] + 1j * x[..., 1::2]


def random(*shape, seed=0):
    """Return random numbers with a seed."""
    return np.random.default_rng(seed).standard_normal(shape)


# --- the rotation -----------------------------------------------------------------------------------------------------


def test_rotate_equals_the_complex_product_3_plus_4i_times_2_plus_3i(pairing):
    """The text's (3 + 4i)(2 + 3i) = −6 + 17i, and with the conjugate 2 − 3i (inverse=True) it is 18 − i."""
    x, cos, sin = np.asarray([3.0, 4.0]), np.asarray([2.0]), np.asarray([3.0])
    assert complex(*rotate(x, cos, sin, pairing=pairing)) == (3 + 4j) * (2 + 3j) == -6 + 17j
    assert complex(*rotate(x, cos, sin, pairing=pairing, inverse=True)) == (3 + 4j) * (2 - 3j) == 18 - 1j


@pytest.mark.parametrize("d", [2, 4, 64])
def test_a_rope_equals_the_block_diagonal_matrix(d, pairing):
    """The worked examples are m = 7 for d = 2, and m = 6 with θ = (1, 1/100) for d = 4."""
    x, positions = random(6, d), [0, 1, 6, 7, 2047, -6]
    expected = [matrix(m, theta(d)) @ row for m, row in zip(positions, x, strict=True)]
    assert_allclose(rotate_adjacent(x, positions, frequencies(d), pairing), expected, **CLOSE)


def test_the_score_is_g_of_both_words_and_m_minus_n(pairing):
    """The statement ⟨f_q(x_m, m), f_k(x_n, n)⟩ = g(x_m, x_n, m − n) = Re Σ_pairs q k* exp(i(m − n)θ)."""
    q, k, f = random(8), random(8, seed=1), frequencies(8)

    def g(distance):
        """Return the score at a distance, by the formula of the paper."""
        terms = zip(as_complex(q), as_complex(k), theta(8), strict=True)
        return sum(a * b.conjugate() * cmath.exp(1j * distance * t) for a, b, t in terms).real

    for m, n in [(0, 0), (5, 3), (3, 5), (105, 103), (1003, 1005), (9, 0), (0, 9)]:
        score = rotate_adjacent(q[None], [m], f, pairing) @ rotate_adjacent(k[None], [n], f, pairing).T
        assert score == pytest.approx(g(m - n), abs=1e-11)
    assert abs(g(2) - g(-2)) > 0.05  # before or behind is not the same
