"""
Statements of introductions to RoPE, written out by hand and compared with `rotate`.

The texts rotate adjacent features, (x₁, x₂), (x₃, x₄), …: the pairing "interleaved". For "half" the features
are reordered before and after the rotation.
"""

import cmath
import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from rope_any import Rope, cos_sin, frequencies, rotate

# Angles are at most some thousand radians, and products by hand lose 1e-16 of them.
CLOSE = {"rtol": 0, "atol": 1e-12}

WORDS = {"The": 0, "pig": 1, "chased": 2, "the": 3, "dog": 4}


@pytest.fixture(params=["interleaved", "half"])
def pairing(request):
    """Return each pairing."""
    return request.param


def arrange(x, pairing):
    """Return adjacent pairs (a₀ b₀ a₁ b₁ …), as in the texts, in the order of `pairing`."""
    return x if pairing == "interleaved" else np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def adjacent(x, pairing):
    """Return features in the order of `pairing` as adjacent pairs: the inverse of `arrange`."""
    if pairing == "interleaved":
        return x
    a, b = np.split(x, 2, axis=-1)
    return np.stack([a, b], axis=-1).reshape(x.shape)


def rotate_adjacent(x, positions, freqs, pairing):
    """Rotate adjacent pairs of x by `cos_sin` and `rotate`, in either pairing."""
    x = np.asarray(x, dtype=np.float64)
    cos, sin = cos_sin(positions, freqs, like=x)
    return adjacent(rotate(arrange(x, pairing), cos, sin, pairing=pairing), pairing)


def rotate_adjacent_by_rope(x, positions, freqs, pairing):
    """Rotate adjacent pairs of x by `Rope`, in either pairing."""
    return adjacent(Rope(freqs, pairing=pairing).apply(arrange(x, pairing), positions), pairing)


def theta(d):
    """Return θᵢ = 10000^(−2i/d) for each pair i."""
    return [10000 ** (-2 * i / d) for i in range(d // 2)]


def matrix(m, thetas):
    """Return the matrix R of the texts: one 2 x 2 block for each θ, and zeros."""
    r = np.zeros((2 * len(thetas), 2 * len(thetas)))
    for i, t in enumerate(thetas):
        r[2 * i, 2 * i], r[2 * i, 2 * i + 1] = math.cos(m * t), -math.sin(m * t)
        r[2 * i + 1, 2 * i], r[2 * i + 1, 2 * i + 1] = math.sin(m * t), math.cos(m * t)
    return r


def as_complex(x):
    """Return adjacent pairs (a, b) as complex numbers a + ib."""
    return x[..., 0::2] + 1j * x[..., 1::2]


def random(*shape, seed=0):
    """Return random numbers with a seed."""
    return np.random.default_rng(seed).standard_normal(shape)


# --- a pair ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "expected"), [(2, [1.0]), (4, [1.0, 0.01]), (8, [1.0, 0.1, 0.01, 0.001])])
def test_frequencies_are_10000_to_the_minus_2i_over_d(d, expected):
    assert_allclose(frequencies(d), expected, rtol=1e-15)
    assert_allclose(frequencies(d), theta(d), rtol=1e-15)


def test_d_2_m_7_equals_the_2_by_2_matrix(pairing):
    """The worked example in two dimensions: q₇ = R q with the angle 7 θ₀ = 7."""
    x1, x2 = 0.6, -1.7
    expected = [math.cos(7) * x1 - math.sin(7) * x2, math.sin(7) * x1 + math.cos(7) * x2]
    assert_allclose(rotate_adjacent([x1, x2], 7, frequencies(2), pairing), expected, **CLOSE)


@pytest.mark.parametrize("m", [1, 2, 7, 1000, -3])
def test_the_angle_of_a_pair_is_m_times_theta(m, pairing):
    """The first word rotates by θ, the second by 2 θ, and so on."""
    t = 0.3
    x1, x2 = rotate_adjacent([2.0, 0.0], m, (t,), pairing)
    assert_allclose([x1, x2], [2 * math.cos(m * t), 2 * math.sin(m * t)], **CLOSE)


@pytest.mark.parametrize("m", [1, 7, 1000, -3])
def test_a_pair_is_a_complex_number_times_e_to_the_i_m_theta(m, pairing):
    """The statement z' = z exp(imθ), with Euler's formula in the table."""
    z, t = 3 + 4j, 0.3
    cos, sin = cos_sin(m, (t,), like=np.zeros(1))
    assert abs(complex(cos[0], sin[0]) - cmath.exp(1j * m * t)) < 1e-12
    x1, x2 = rotate_adjacent([z.real, z.imag], m, (t,), pairing)
    assert abs(complex(x1, x2) - z * cmath.exp(1j * m * t)) < 1e-12


def test_rotate_equals_the_complex_product_3_plus_4i_times_2_plus_3i(pairing):
    """The text's (3 + 4i)(2 + 3i) = −6 + 17i, and with the conjugate 2 − 3i (inverse=True) it is 18 − i."""
    x, cos, sin = np.asarray([3.0, 4.0]), np.asarray([2.0]), np.asarray([3.0])
    product, undone = (3 + 4j) * (2 + 3j), (3 + 4j) * (2 - 3j)
    assert complex(*rotate(x, cos, sin, pairing=pairing)) == product == -6 + 17j
    assert complex(*rotate(x, cos, sin, pairing=pairing, inverse=True)) == undone == 18 - 1j


# --- d dimensions ----------------------------------------------------------------------------------------


def test_d_4_m_6_equals_the_matrix_of_two_blocks(pairing):
    """The worked example in four dimensions, θ = (1, 1/100), written out."""
    c0, s0, c1, s1 = math.cos(6), math.sin(6), math.cos(0.06), math.sin(0.06)
    r = [[c0, -s0, 0, 0], [s0, c0, 0, 0], [0, 0, c1, -s1], [0, 0, s1, c1]]
    q = random(4)
    assert_allclose(rotate_adjacent(q, 6, frequencies(4), pairing), np.asarray(r) @ q, **CLOSE)


@pytest.mark.parametrize("d", [2, 8, 64])
def test_rotate_equals_the_block_diagonal_matrix(d, pairing):
    x, positions = random(5, d), [0, 1, 17, 2047, -6]
    expected = [matrix(m, theta(d)) @ row for m, row in zip(positions, x, strict=True)]
    assert_allclose(rotate_adjacent(x, positions, frequencies(d), pairing), expected, **CLOSE)
    assert_allclose(rotate_adjacent_by_rope(x, positions, frequencies(d), pairing), expected, **CLOSE)


@pytest.mark.parametrize("d", [2, 8, 64])
def test_rotate_equals_the_sparse_element_wise_form(d, pairing):
    """R x = (x₁ x₂ x₃ x₄ …) ⊗ (c₁ c₁ c₂ c₂ …) + (−x₂ x₁ −x₄ x₃ …) ⊗ (s₁ s₁ s₂ s₂ …)."""
    m, x = 123, random(d)
    c = [math.cos(m * t) for t in theta(d) for _ in range(2)]
    s = [math.sin(m * t) for t in theta(d) for _ in range(2)]
    swapped = [-x[j + 1] if j % 2 == 0 else x[j - 1] for j in range(d)]
    expected = [x[j] * c[j] + swapped[j] * s[j] for j in range(d)]
    assert_allclose(rotate_adjacent(x, m, frequencies(d), pairing), expected, **CLOSE)


def test_the_pairings_differ_only_by_the_order_of_features():
    x, (cos, sin) = random(3, 8), cos_sin([1, 6, 7], frequencies(8), like=np.zeros(1))
    interleaved = rotate(x, cos, sin, pairing="interleaved")
    half = rotate(x[:, [0, 2, 4, 6, 1, 3, 5, 7]], cos, sin, pairing="half")
    assert_allclose(half[:, [0, 4, 1, 5, 2, 6, 3, 7]], interleaved, rtol=0, atol=1e-15)
    assert np.abs(rotate(x, cos, sin, pairing="half") - interleaved).max() > 0.1  # without reordering they differ


# --- the derivation --------------------------------------------------------------------------------------


def test_f_x_0_is_w_x(pairing):
    """No position information at m = 0, hence γ = 0; at m = 1 there is some."""
    w, x = random(8, 8), random(8, seed=1)
    assert_array_equal(rotate_adjacent(w @ x, 0, frequencies(8), pairing), w @ x)
    assert np.abs(rotate_adjacent(w @ x, 1, frequencies(8), pairing) - w @ x).max() > 0.1


def test_the_argument_of_f_is_an_arithmetic_sequence(pairing):
    """φ(m) = mθ + γ: the argument of each pair grows by θ from each position to the next, for any x."""
    d, positions = 8, list(range(40))
    for seed in (1, 2):
        wx = random(d, d) @ random(d, seed=seed)
        f = as_complex(rotate_adjacent(np.tile(wx, (40, 1)), positions, frequencies(d), pairing))
        steps = f[1:] / f[:-1]
        assert_allclose(steps, np.tile([cmath.exp(1j * t) for t in theta(d)], (39, 1)), **CLOSE)
        assert_allclose(f[0], as_complex(wx), **CLOSE)


def test_the_norm_of_each_pair_is_preserved(pairing):
    """The magnitude of f(x, m) is that of W x: R_q(x, m) = ‖q‖."""
    q, positions = random(6, 8), [0, 1, 7, 1000, 123_456, -5]
    rotated = rotate_adjacent(q, positions, frequencies(8), pairing)
    assert_allclose(np.abs(as_complex(rotated)), np.abs(as_complex(q)), rtol=1e-14)
    assert_allclose(np.linalg.norm(rotated, axis=-1), np.linalg.norm(q, axis=-1), rtol=1e-14)
    assert np.abs(rotated[1:] - q[1:]).max(axis=-1).min() > 0.1  # each has changed


def test_the_score_is_g_of_both_words_and_m_minus_n(pairing):
    """The statement ⟨f_q(x_m, m), f_k(x_n, n)⟩ = g(x_m, x_n, m − n) = Re Σ_pairs q k* exp(i(m − n)θ)."""
    d = 8
    q, k = random(d), random(d, seed=1)

    def g(distance):
        """Return the score at a distance, by the formula of the paper."""
        terms = zip(as_complex(q), as_complex(k), theta(d), strict=True)
        return sum(a * b.conjugate() * cmath.exp(1j * distance * t) for a, b, t in terms).real

    for m, n in [(0, 0), (5, 3), (3, 5), (105, 103), (1003, 1005), (9, 0), (0, 9)]:
        score = rotate_adjacent(q, m, frequencies(d), pairing) @ rotate_adjacent(k, n, frequencies(d), pairing)
        assert score == pytest.approx(g(m - n), abs=1e-11)
    assert abs(g(2) - g(-2)) > 0.05  # before or behind is not the same
    assert abs(g(2) - g(9)) > 0.05


def test_each_pair_keeps_its_term_of_the_score(pairing):
    """The sum of all pairs does not change because none of its terms does."""
    q, k, f = random(8), random(8, seed=1), frequencies(8)
    near = as_complex(rotate_adjacent(q, 12, f, pairing)) * as_complex(rotate_adjacent(k, 5, f, pairing)).conj()
    far = as_complex(rotate_adjacent(q, 1012, f, pairing)) * as_complex(rotate_adjacent(k, 1005, f, pairing)).conj()
    assert_allclose(np.angle(far), np.angle(near), rtol=0, atol=1e-11)
    at_0 = as_complex(q) * as_complex(k).conj()
    assert np.abs(np.angle(near / at_0) - [7 - 2 * math.pi, 0.7, 0.07, 0.007]).max() < 1e-11


# --- a sentence and its attention ------------------------------------------------------------------------


def test_the_pig_sentence_rotates_by_p_over_10000_to_the_2i_over_d(pairing):
    """The pig chased the dog: positions 0 to 4, pairs (q₀ q₁) … (q₆ q₇), θ(p, i) = p / 10000^(2i/d)."""
    q = random(5, 8)
    rotated = rotate_adjacent(q, list(WORDS.values()), frequencies(8), pairing)
    for p, (word, after) in enumerate(zip(q, rotated, strict=True)):
        for i in range(4):
            angle = p / 10000 ** (2 * i / 8)
            x, y = word[2 * i], word[2 * i + 1]
            expected = [x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)]
            assert_allclose(after[2 * i : 2 * i + 2], expected, **CLOSE)


def softmax(scores):
    """Return the softmax over the last axis."""
    e = np.exp(scores)
    return e / e.sum(axis=-1, keepdims=True)


def attention_by_hand(x, positions, weights):
    """Return a_mn and o_m, by the sums of the texts: q_m = R_m W_q x_m, k_n = R_n W_k x_n, v_n = W_v x_n."""
    (n_words, d), (w_q, w_k, w_v) = x.shape, weights
    q = [matrix(m, theta(d)) @ w_q @ x[j] for j, m in enumerate(positions)]
    k = [matrix(n, theta(d)) @ w_k @ x[j] for j, n in enumerate(positions)]
    e = [[math.exp(q_m @ k_n / math.sqrt(d)) for k_n in k] for q_m in q]
    a = np.asarray([[e_mn / sum(row) for e_mn in row] for row in e])
    o = [sum(a[m, n] * (w_v @ x[n]) for n in range(n_words)) for m in range(n_words)]
    return a, np.asarray(o)


def attention(x, positions, weights, pairing):
    """Return the same with `Rope`; W_q and W_k yield their features in the order of the pairing."""
    d, (w_q, w_k, w_v) = x.shape[-1], weights
    rope = Rope(frequencies(d), pairing=pairing)
    q, k = rope(x @ arrange(w_q.T, pairing), x @ arrange(w_k.T, pairing), positions)
    a = softmax(q @ k.T / math.sqrt(d))
    return a, a @ (x @ w_v.T)


@pytest.fixture
def sentence():
    """Return embeddings of the pig sentence, (5, 8), and W_q, W_k, W_v."""
    return random(5, 8), random(3, 8, 8, seed=1)


def test_attention_equals_that_of_the_texts(sentence, pairing):
    x, weights = sentence
    a, o = attention_by_hand(x, list(WORDS.values()), weights)
    ours = attention(x, list(WORDS.values()), weights, pairing)
    assert_allclose(ours[0], a, **CLOSE)
    assert_allclose(ours[1], o, **CLOSE)
    unrotated, _ = attention_by_hand(x, [0] * 5, weights)
    assert np.abs(unrotated - a).max() > 0.1  # the positions matter in this sentence


@pytest.mark.parametrize("shift", [1, 1000, 1_000_000, 2_000_000_000, -20])
def test_shifting_all_positions_does_not_change_attention(sentence, shift, pairing):
    x, weights = sentence
    a, o = attention(x, list(range(5)), weights, pairing)
    shifted_a, shifted_o = attention(x, list(range(shift, shift + 5)), weights, pairing)
    assert_allclose(shifted_a, a, **CLOSE)  # angles are exact at far positions too
    assert_allclose(shifted_o, o, **CLOSE)
    spread_a, _ = attention(x, list(range(0, 10, 2)), weights, pairing)
    assert np.abs(spread_a - a).max() > 0.01  # other distances change it


def test_words_added_at_the_end_do_not_change_earlier_ones(pairing):
    """A KV cache is possible: positions count from 0, or from a given offset."""
    k, f = random(9, 8), frequencies(8)
    all_words, first_words = (
        rotate_adjacent_by_rope(k, None, f, pairing),
        rotate_adjacent_by_rope(k[:5], range(5), f, pairing),
    )
    assert_allclose(all_words[:5], first_words, rtol=0, atol=1e-15)
    assert_allclose(all_words[5:], rotate_adjacent_by_rope(k[5:], 5, f, pairing), rtol=0, atol=1e-15)
    assert_allclose(all_words[5:], rotate_adjacent_by_rope(k[5:], range(5, 9), f, pairing), rtol=0, atol=1e-15)


# --- the clock -------------------------------------------------------------------------------------------


def hand_positions(time, freqs, pairing):
    """Return the directions of hands that all start at 1, one complex number each."""
    return as_complex(rotate_adjacent(np.tile([1.0, 0.0], len(freqs)), time, freqs, pairing))


def test_each_hand_rotates_at_its_own_speed_and_returns_after_2_pi_over_f(pairing):
    f = frequencies(8)
    for i, speed in enumerate(f):
        full, half = (hand_positions(np.asarray(turns * 2 * math.pi / speed), f, pairing) for turns in (1.0, 0.5))
        others = [j for j in range(4) if j > i]  # faster hands have returned too: ratios are powers of 10
        assert_allclose(full[: i + 1], 1, **CLOSE)
        assert_allclose(half[i], -1, **CLOSE)
        assert all(abs(full[j] - 1) > 0.006 for j in others)


@pytest.mark.parametrize(("hour", "minute", "second"), [(3, 25, 45), (6, 0, 0), (11, 59, 59), (12, 0, 0), (100, 7, 8)])
def test_a_clock_of_three_hands_shows_the_time(hour, minute, second, pairing):
    """Seconds, minutes and hours: pairs that make one turn in 60, 3600 and 43 200 positions."""
    clock = (2 * math.pi / 60, 2 * math.pi / 3600, 2 * math.pi / 43200)
    time = 3600 * hour + 60 * minute + second
    turns = [second / 60, (60 * minute + second) / 3600, (time % 43200) / 43200]
    # The frequencies of the clock are rounded: an error of 1e-10 radians after 360 000 s.
    expected = [cmath.exp(2j * math.pi * part) for part in turns]
    assert_allclose(hand_positions(time, clock, pairing), expected, rtol=0, atol=1e-10)


def test_relative_angles_of_the_hands_give_the_time_between_two_events(pairing):
    f = frequencies(8)
    elapsed = hand_positions(4711, f, pairing) / hand_positions(4242, f, pairing)
    assert_allclose(elapsed, [cmath.exp(469j * t) for t in theta(8)], **CLOSE)


def test_the_score_of_equal_words_is_highest_at_distance_0_and_fades(pairing):
    """The score of a word with itself falls, not at every step, but in the means of longer and longer ranges."""
    d = 64
    word = rotate_adjacent_by_rope(np.ones((4096, d)), None, frequencies(d), pairing)
    score = word @ word[0]
    assert score[0] == pytest.approx(d)
    assert score[1:].max() < 0.97 * d
    ranges = [score[1:4], score[4:16], score[16:64], score[64:256], score[256:1024], score[1024:]]
    means = [scores.mean() for scores in ranges]
    assert all(near - far > 0.1 * d for near, far in pairwise(means))


# --- a text with other frequencies -----------------------------------------------------------------------


def printed_frequencies(d):
    """Return the frequencies of the program in that text."""
    return np.exp(np.linspace(0.0, -1.0, d // 2) * np.log(10000.0))


def printed_table(position, d):
    """Return the table of that text: sin first, (sin₀ cos₀ sin₁ cos₁ …) in each row."""
    angles = position * printed_frequencies(d)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(-1, d)


@pytest.mark.parametrize("d", [4, 8, 64, 128])
def test_the_printed_frequencies_differ_from_those_of_the_paper(d):
    """Those printed end at 1/10000, those of the paper one step before. Only the first frequency is equal."""
    printed, paper = printed_frequencies(d), frequencies(d)
    assert printed[0] == paper[0] == 1
    assert printed[-1] == pytest.approx(1 / 10000, rel=1e-15)
    assert paper[-1] == pytest.approx(10000 ** (2 / d) / 10000, rel=1e-14)
    assert all(a < 0.999 * b for a, b in zip(printed[1:], paper[1:], strict=True))
    # The printed frequencies are those of the paper with a larger base.
    assert_allclose(frequencies(d, base=10000 ** (d / (d - 2))), printed, rtol=1e-13)


def test_our_table_of_the_printed_frequencies_equals_theirs_with_cos_first():
    d, positions = 8, [0, 1, 7, 1000]
    theirs = printed_table(np.asarray(positions)[:, None], d)
    table = cos_sin(positions, tuple(printed_frequencies(d).tolist()), like=np.zeros(1))
    assert_allclose(table[0], theirs[:, 1::2], **CLOSE)
    assert_allclose(table[1], theirs[:, 0::2], **CLOSE)
    assert table._fields == ("cos", "sin")
    assert np.abs(table.cos - theirs[:, 0::2]).max() > 0.1  # the order matters


def test_any_frequencies_can_be_used(pairing):
    """`rotate` and `Rope` need only a tuple of frequencies."""
    d, positions = 8, [0, 1, 7, 1000]
    x, freqs = random(4, d), tuple(printed_frequencies(d).tolist())
    sin, cos = np.split(printed_table(np.asarray(positions)[:, None], d).reshape(4, d // 2, 2), 2, axis=-1)
    expected = as_complex(x) * (cos + 1j * sin)[..., 0]
    assert_allclose(as_complex(rotate_adjacent(x, positions, freqs, pairing)), expected, **CLOSE)
    assert_allclose(as_complex(rotate_adjacent_by_rope(x, positions, freqs, pairing)), expected, **CLOSE)
    assert np.abs(as_complex(rotate_adjacent(x, positions, frequencies(d), pairing)) - expected).max() > 0.1
