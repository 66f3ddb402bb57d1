"""Position maps that change attention, compared with plain Python and with dense matrices of relative positions."""

import numpy as np
import pytest
from conftest import one_jax
from hypothesis import given
from hypothesis import strategies as st

import rope_any as ra
from rope_any import positions, scaling

P = [-7, -1, 0, 1, 5, 6, 11, 40]  # negative ones are padding


def dual_chunk(p, chunk_size, local_size):
    """Return a key's position, and a query's for keys of its chunk, the next and others (Dual Chunk Attention)."""
    c = chunk_size - local_size
    return p % c, p % c, min(p % c + c, chunk_size), min(2 * c - 1, chunk_size)


# The options of each map, and the same map of one position in plain Python.
MAPS = {
    "self_extend": (
        {"group": 3, "window": 4},
        lambda p, group, window: (p // group + window - window // group, p // group),
    ),
    "rerope": ({"window": 5}, lambda p, window: (window, 0 * p)),
    "leaky_rerope": ({"window": 5, "factor": 4}, lambda p, window, factor: (p + window * (factor - 1), p)),
    "dual_chunk": ({"chunk_size": 9, "local_size": 3}, dual_chunk),
}
FUNCTIONS = {name: getattr(positions, name) for name in MAPS}


@pytest.fixture(params=MAPS)
def position_map(request):
    """Return each map of relative positions, its options and its formula."""
    return FUNCTIONS[request.param], *MAPS[request.param]


def assert_columns(got, formula, options, p, get=np.asarray):
    """Compare each field of a result with the formula at each position."""
    expected = np.asarray([formula(int(n), **options) for n in np.ravel(p)])
    assert len(got) == expected.shape[1]
    for column, field in enumerate(got):
        np.testing.assert_array_equal(get(field), np.reshape(expected[:, column], np.shape(p)))


@one_jax
@pytest.mark.parametrize("shape", [(8,), (2, 4), (8, 1)])
def test_maps_equal_their_formulas(lib, position_map, shape):
    function, options, formula = position_map
    p = np.reshape(P, shape)
    for name in ("int8", "int32"):
        got = function(lib(p, name), **options)
        assert_columns(got, formula, options, p, lib.get)
        for field in got:
            assert type(field) is type(lib(p, name))
            assert str(field.dtype).rpartition(".")[2] == ("int64" if lib.has_float64 else "int32")
    assert_columns(function(p.tolist(), like=lib([0.0], "float32"), **options), formula, options, p, lib.get)


small, size = st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=9), st.integers(1, 5000)


@given(small, size, size)
def test_maps_of_random_sizes_equal_their_formulas(p, one, other):
    for name, options in {
        "self_extend": {"group": one, "window": other},
        "rerope": {"window": one},
        "leaky_rerope": {"window": one, "factor": other},
        "dual_chunk": {"chunk_size": max(one, other), "local_size": min(one, other) - 1},
    }.items():
        assert_columns(FUNCTIONS[name](np.asarray(p), **options), MAPS[name][1], options, p)


# --- attention against dense matrices -----------------------------------------------------------------------

F = ra.frequencies(16, base=100.0)
ROPE = ra.Rope(F, pairing="half")
SEQ, FIRST = 23, 3
POSITIONS = np.arange(FIRST, FIRST + SEQ)
M, N = POSITIONS[:, None], POSITIONS[None, :]
distance = M - N


def dense_scores(q, k, relative):
    """Return Re Σ q_m conj(k_n) e^{i relative[m, n] f}: each pair rotated by its own relative position."""
    qc, kc = (x[..., : len(F)] + 1j * x[..., len(F) :] for x in (q, k))
    rotated = np.exp(1j * relative[..., None] * np.asarray(F))
    return np.einsum("...mi,...ni,mni->...mn", qc, np.conj(kc), rotated).real


@pytest.fixture
def arrays(rng):
    """Return queries and keys, (batch, heads, seq, head_dim)."""
    return rng.standard_normal((2, 2, 3, SEQ, 16))


@pytest.fixture
def rotated_scores(arrays):
    """Return a function that returns scores of q at some positions with k at others."""

    def scores(query_positions, key_positions, rope=ROPE):
        """Return the scores of queries and keys rotated at positions."""
        q, k = (rope.apply(x, at) for x, at in zip(arrays, (query_positions, key_positions), strict=True))
        return np.einsum("...md,...nd->...mn", q, k)

    return scores


def assert_equals_dense(arrays, got, relative):
    """Compare causal scores with the dense computation."""
    expected, causal = dense_scores(*arrays, relative), distance >= 0
    np.testing.assert_allclose(got[..., causal], expected[..., causal], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("group", "window"), [(3, 4), (4, 10), (1, 5), (2, 0), (5, 40)])
def test_self_extend_equals_its_dense_matrix(rotated_scores, arrays, group, window):
    far = positions.self_extend(POSITIONS, group=group, window=window)
    got = np.where(distance < window, rotated_scores(POSITIONS, POSITIONS), rotated_scores(*far))
    relative = np.where(distance < window, distance, M // group - N // group + window - window // group)
    assert_equals_dense(arrays, got, relative)


@pytest.mark.parametrize("window", [1, 6, 50])
def test_rerope_equals_its_dense_matrix(rotated_scores, arrays, window):
    far = positions.rerope(POSITIONS, window=window)
    got = np.where(distance < window, rotated_scores(POSITIONS, POSITIONS), rotated_scores(*far))
    assert_equals_dense(arrays, got, np.minimum(distance, window))


@pytest.mark.parametrize(("window", "factor"), [(6, 3), (1, 16), (5, 1)])
def test_leaky_rerope_equals_its_dense_matrix(rotated_scores, arrays, window, factor):
    far = positions.leaky_rerope(POSITIONS, window=window, factor=factor)
    slow = ra.Rope(scaling.linear(F, float(factor)), pairing="half")
    got = np.where(distance < window, rotated_scores(POSITIONS, POSITIONS), rotated_scores(*far, rope=slow))
    assert_equals_dense(arrays, got, np.where(distance < window, distance, window + (distance - window) / factor))


@pytest.mark.parametrize(("chunk_size", "local_size"), [(9, 3), (10, 4), (5, 4), (6, 0), (40, 8)])
def test_dual_chunk_equals_its_dense_matrix(rotated_scores, arrays, chunk_size, local_size):
    chunked = positions.dual_chunk(POSITIONS, chunk_size=chunk_size, local_size=local_size)
    c = chunk_size - local_size
    between = M // c - N // c
    near, next_to, far = (rotated_scores(q, chunked.keys) for q in (chunked.intra, chunked.successive, chunked.inter))
    got = np.where(between == 0, near, np.where(between == 1, next_to, far))
    # the distance is exact in the same chunk, and in the next one if the query is not clamped
    clamped = np.minimum(distance, chunk_size - N % c)
    further = min(2 * c - 1, chunk_size) - N % c
    assert_equals_dense(arrays, got, np.where(between == 0, distance, np.where(between == 1, clamped, further)))


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "size"), [(name, size) for name, (sizes, _) in MAPS.items() for size in sizes])
def test_sizes_below_the_least_are_refused(name, size):
    wrong = -1 if size in ("window", "local_size") else 0
    with pytest.raises(ValueError, match=f"{size} must be from {wrong + 1} to 2147483647; got {wrong}"):
        FUNCTIONS[name](POSITIONS, **MAPS[name][0] | {size: wrong})
