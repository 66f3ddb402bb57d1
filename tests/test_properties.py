"""The mathematics of a rotation, as properties of random cases."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import rope_any as ra

PAIRINGS = st.sampled_from(["half", "interleaved"])
POSITIONS = st.integers(-(2**31) + 1, 2**31 - 1)
SMALL = st.integers(-(2**20), 2**20)
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def ropes(draw):
    """Any Rope without attention factor."""
    f = ra.frequencies(2 * draw(st.integers(1, 9)), base=draw(st.floats(1.5, 1e7)))
    return ra.Rope(f, pairing=draw(PAIRINGS), start=draw(st.integers(0, 3)))


def vectors(seed, rope, *shape, extra=2):
    """Return random vectors with two features more than rotate."""
    features = rope.start + 2 * len(rope.frequencies) + extra
    return np.random.default_rng(seed).uniform(-1, 1, (*shape, features))


def at(rope, x, *positions):
    """Return x rotated at positions."""
    return rope.apply(x, np.asarray(positions))


@given(ropes(), SEEDS, SMALL, SMALL, SMALL)
def test_scores_depend_only_on_the_distance(rope, seed, m, n, shift):
    q, k = vectors(seed, rope, 1), vectors(seed + 1, rope, 1)
    score = np.sum(at(rope, q, m) * at(rope, k, n))
    np.testing.assert_allclose(np.sum(at(rope, q, m + shift) * at(rope, k, n + shift)), score, atol=2e-14 * q.size)


@given(ropes(), SEEDS, SMALL, SMALL)
def test_rotations_add_up(rope, seed, m, n):
    # R(m) R(n) = R(m + n)
    x = vectors(seed, rope, 1)
    np.testing.assert_allclose(at(rope, at(rope, x, n), m), at(rope, x, m + n), atol=1e-13)


@given(ropes(), SEEDS, POSITIONS)
def test_the_inverse_undoes_a_rotation_and_is_the_rotation_by_minus_m(rope, seed, m):
    x = vectors(seed, rope, 2)
    y = at(rope, x, m)
    np.testing.assert_allclose(rope.apply(y, np.asarray([m]), inverse=True), x, atol=1e-14)
    np.testing.assert_allclose(at(rope, x, -m), rope.apply(x, np.asarray([m]), inverse=True), atol=1e-14)


@given(st.integers(1, 9), SEEDS, POSITIONS)
def test_the_pairings_differ_by_one_permutation(pairs, seed, m):
    f = ra.frequencies(2 * pairs)
    half, interleaved = (ra.Rope(f, pairing=pairing) for pairing in ("half", "interleaved"))
    # features (0, 1, 2, 3, …) of an interleaved x are (0, pairs, 1, pairs + 1, …) of a half x
    order = np.arange(2 * pairs).reshape(2, pairs).T.ravel()
    x = vectors(seed, half, 3, extra=0)
    # to the last bits: interleaved pairs are rotated as complex numbers
    np.testing.assert_allclose(at(half, x, m)[:, order], at(interleaved, x[:, order], m), rtol=0, atol=1e-15)
