"""`Rope`: a recipe that is compared and hashed, and the alignment of positions, tables and axes."""

import copy
import pickle
from functools import partial

import numpy as np
import oracle
import pytest
from conftest import one_jax

import rope_any as ra

F = ra.frequencies(8, base=100.0)
ROPE = ra.Rope(F, pairing="half")
ATOL = 1.5e-6


@pytest.fixture
def qk(rng):
    """Grouped-query shapes: 4 query heads, 2 key heads."""
    return tuple(rng.uniform(-2, 2, (2, heads, 6, 8)).astype(np.float32) for heads in (4, 2))


def rotated(x, positions, axis=-2):
    """Return the oracle's x for positions (seq,) or (batch, seq) along an axis."""
    moved = np.moveaxis(x, axis, -2)
    positions = np.asarray(positions)
    if positions.ndim == 2:
        positions = positions.reshape(len(positions), *[1] * (moved.ndim - 3), -1)
    return np.moveaxis(oracle.rotate(moved, positions, F, pairing="half"), -2, axis)


def assert_close(lib, got, expected):
    """Compare an array of a library with NumPy's."""
    np.testing.assert_allclose(lib.get(got), expected, rtol=0, atol=ATOL)


# --- positions --------------------------------------------------------------------------------------------------------


@one_jax
@pytest.mark.parametrize(
    ("given", "explicit"),
    [
        (None, range(6)),
        (7, range(7, 13)),
        (-3, range(-3, 3)),
        (np.int64(7), range(7, 13)),
        (2**31 - 7, range(2**31 - 7, 2**31 - 1)),
        (range(0, 12, 2), range(0, 12, 2)),
        ([5, 3, 1, 0, -9, 70_000], [5, 3, 1, 0, -9, 70_000]),
        ([4], [4] * 6),
        ([0.5, 1.5, 2.5, 3.5, 4.5, 5.25], [0.5, 1.5, 2.5, 3.5, 4.5, 5.25]),
        ([[0, 1, 2, 3, 4, 5], [9, 9, 1, 1, 0, -2]], [[0, 1, 2, 3, 4, 5], [9, 9, 1, 1, 0, -2]]),
        ([[0, 1, 2, 3, 4, 5]], [[0, 1, 2, 3, 4, 5]] * 2),
        ([[3], [8]], [[3] * 6, [8] * 6]),
    ],
)
def test_each_form_of_positions_equals_explicit_positions(lib, qk, given, explicit):
    q, k = map(lib, qk)
    pair, single = lib.quick(lambda q, k: (ROPE(q, k, given), ROPE.apply(k, given)))(q, k)
    for x, y in zip(qk, pair, strict=True):
        assert_close(lib, y, rotated(x, explicit))
    assert_close(lib, single, rotated(qk[1], explicit))
    if isinstance(given, list):
        array = np.asarray(given, dtype=np.float32 if isinstance(np.ravel(given)[0], float) else np.int32)
        by_array = lib.quick(lambda q, k, p: (ROPE.apply(q, p), ROPE(q, k, ROPE.table(p))[1]))(q, k, lib(array))
        for x, y in zip(qk, by_array, strict=True):
            assert_close(lib, y, rotated(x, explicit))


def test_tokens_are_counted_beyond_32_bits(lib, qk):
    lib.need(dtype="float64")
    k = lib(qk[1])
    for n in (2**40, 2**60):
        far = ROPE.apply(k, lib(np.arange(n, n + 6)))
        for start in (lib(n, "int64"), *[n][: n < 2**53]):
            np.testing.assert_allclose(lib.get(ROPE.apply(k, start)), lib.get(far), rtol=0, atol=1e-6)


def test_no_token_may_start_at_the_least_position(lib):
    assert tuple(ROPE.apply(lib(np.zeros((0, 8)), "float32"), 1 - 2**31).shape) == (0, 8)


def test_a_zero_dimensional_array_is_an_offset(lib, rng):
    x = rng.uniform(-1, 1, (40, 8)).astype(np.float32)
    for dtype in ("int32", "int8"):  # small integers do not wrap
        assert_close(lib, lib.quick(ROPE.apply)(lib(x), lib(100, dtype)), rotated(x, range(100, 140)))


# --- axes of tokens, queries and keys ---------------------------------------------------------------------------------


@one_jax
@pytest.mark.parametrize("seq_axis", [-2, -3, 0, 1, 2])
def test_tokens_can_be_on_any_axis(lib, rng, seq_axis):
    x = rng.uniform(-2, 2, (2, 3, 4, 8)).astype(np.float32)
    n = x.shape[seq_axis]
    apply = lib.quick(partial(ROPE.apply, seq_axis=seq_axis))
    by_number = lib.quick(partial(ROPE.apply, positions=5, seq_axis=seq_axis))
    assert_close(lib, by_number(lib(x)), rotated(x, range(5, 5 + n), seq_axis))
    # the batch is the first axis other than that of the tokens
    batch = 3 if seq_axis == 0 else 2
    p = rng.integers(-99, 99, (batch, n))
    expected = rotated(x if seq_axis else np.swapaxes(x, 0, 1), p, seq_axis or 1)
    expected = expected if seq_axis else np.swapaxes(expected, 0, 1)
    assert_close(lib, apply(lib(x), lib(p, "int32")), expected)
    assert_close(lib, apply(lib(x), lib.quick(ROPE.table)(lib(p, "int32"))), expected)


@one_jax
def test_one_axis_positions_are_of_tokens_even_if_the_batch_has_that_length(lib, rng):
    x = rng.uniform(-2, 2, (6, 2, 6, 8)).astype(np.float32)
    p = [3, 1, 4, 1, 5, 9]
    assert_close(lib, ROPE.apply(lib(x), lib(p, "int32")), rotated(x, p))


@one_jax
def test_a_query_tail_is_at_the_end_of_the_keys(lib, qk):
    q, k = qk
    forms = {None: range(6), 50: range(50, 56)}
    forms |= {str(p): p for p in ([5, 3, 1, 0, -9, 70_000], [4] * 6, [[3] * 6, [1, 2, 3, 4, 5, 6]])}
    given = [at if isinstance(name, str) else name for name, at in forms.items()]
    rotation = lib.quick(lambda q, k: [ROPE(q, k, positions)[0] for positions in [*given, [4]]])
    for n in (1, 2, 5, 0):
        short = q[:, :, 6 - n :]
        for explicit, got in zip([*forms.values(), [4] * 6], rotation(lib(short), lib(k)), strict=True):
            assert tuple(got.shape) == short.shape
            assert_close(lib, got, rotated(q, explicit)[:, :, 6 - n :])


@one_jax
def test_q_and_k_can_have_different_numbers_of_axes(lib, rng):
    # the same seq_axis, counted from the end, is another axis of each
    q, k = (rng.uniform(-2, 2, shape).astype(np.float32) for shape in ((2, 4, 6, 8), (6, 8)))
    for pair in ((q, k), (k, q)):
        for got, x in zip(ROPE(*map(lib, pair), 9), pair, strict=True):
            assert_close(lib, got, rotated(x, range(9, 15)))


# --- frequencies, factor and dtype ------------------------------------------------------------------------------------


def test_float64_arrays_get_float64_tables(lib, rng):
    lib.need(dtype="float64")
    x = rng.uniform(-2, 2, (3, 8))
    q32, k64 = lib(x, "float32"), lib(x)
    for positions, first in ((None, 0), (70_000, 70_000), ([1, 2, 3], 1), (lib([1, 2, 3], "int32"), 1)):
        expected = rotated(x, range(first, first + 3))
        q, k = ROPE(q32, k64, positions)
        assert (q.dtype, k.dtype) == (q32.dtype, k64.dtype)
        assert_close(lib, q, expected)
        for wide in (k, ROPE(k64, q32, positions)[0], ROPE.apply(k64, positions)):
            np.testing.assert_allclose(lib.get(wide), expected, atol=3e-15, rtol=0)


@one_jax
def test_the_inverse_divides_by_the_attention_factor(lib, rng):
    rope = ra.Rope(F, pairing="interleaved", attention_factor=1.5)
    x = rng.uniform(-2, 2, (5, 8)).astype(np.float32)
    y = lib.quick(partial(rope.apply, positions=30))(lib(x))
    expected = oracle.rotate(x, range(30, 35), F, pairing="interleaved", attention_factor=1.5)
    np.testing.assert_allclose(lib.get(y), expected, atol=3e-6, rtol=0)
    table = rope.table([30, 31, 32, 33, 34], like=y)
    for inverted in lib.quick(lambda y: [rope.apply(y, given, inverse=True) for given in (30, table)])(y):
        assert_close(lib, inverted, x)


# --- outputs ----------------------------------------------------------------------------------------------------------


def test_nothing_is_written_if_an_argument_is_wrong(qk):
    q, k = (x.copy() for x in qk)
    for wrong in (k[:1], k.astype(np.int32), q[:, :2], np.broadcast_to(k[:1], k.shape)):
        with pytest.raises((TypeError, ValueError), match="out"):
            ROPE(q, k, 5, out=(q, wrong))
        assert (q == qk[0]).all() and (k == qk[1]).all()


# --- a Rope as a value ------------------------------------------------------------------------------------------------


def test_ropes_are_compared_and_hashed_by_value():
    equal = ra.Rope(list(F), pairing="half", out_pairing="half", attention_factor=1)
    assert equal == ROPE
    assert hash(equal) == hash(ROPE)
    others = [
        ra.Rope(F, pairing="interleaved"),
        ra.Rope(F, pairing="half", attention_factor=1.1),
        ra.Rope(F, pairing="half", start=1),
        ra.Rope(F, pairing="half", out_pairing="interleaved"),
        ra.Rope(F[:3], pairing="half"),
        ra.Rope((F,), pairing="half"),
    ]
    assert len({ROPE, equal, *others}) == 7
    assert pickle.loads(pickle.dumps(ROPE)) == copy.deepcopy(ROPE) == ROPE
    with pytest.raises(AttributeError):
        ROPE.start = 1


def test_a_repr_shows_the_fields():
    assert repr(ROPE) == "Rope(<4 frequencies from 1 to 0.0316228>, pairing='half')"
    rope = ra.Rope((F, F), pairing="interleaved", out_pairing="half", attention_factor=1.5, start=2)
    two_axes = "Rope(<2 axes of 4 frequencies from 1 to 0.0316228>"
    assert repr(rope) == f"{two_axes}, pairing='interleaved', out_pairing='half', attention_factor=1.5, start=2)"


# --- calls as inference engines make them, against a loop over tokens in float64 --------------------------------------

HEADS, KV_HEADS, DIM = 4, 2, 12


def heads_of(qkv):
    """Return q and k as views of the rows [q, k, v] of a fused buffer, (tokens, heads, dim)."""
    tokens, q_end, k_end = qkv.shape[0], HEADS * DIM, (HEADS + KV_HEADS) * DIM
    return qkv[:, :q_end].reshape(tokens, HEADS, DIM), qkv[:, q_end:k_end].reshape(tokens, KV_HEADS, DIM)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("name", ["numpy", "torch"])  # slices are views
def test_packed_views_of_a_fused_buffer_are_rotated_in_place(rng, name, pairing, fused):
    xp, p = pytest.importorskip(name), [0, 1, 2, 0, 1, 70_000, 5]  # three requests of a batch
    rows = rng.uniform(-1, 1, (len(p), (HEADS + 2 * KV_HEADS) * DIM)).astype(np.float32)
    buffer = xp.asarray(rows.copy())
    q, k = heads_of(buffer)
    returned = ra.Rope(F, pairing=pairing)(q, k, xp.asarray(p), seq_axis=-3, out=(q, k), fused=fused)
    assert returned[0] is q and returned[1] is k
    got = np.asarray(buffer)
    for after, x in zip(heads_of(got), heads_of(rows), strict=True):
        expected = oracle.rotate(x, np.asarray(p)[:, None], F, pairing=pairing)
        np.testing.assert_allclose(after, expected, rtol=0, atol=ATOL)
    assert np.array_equal(got[:, -KV_HEADS * DIM :], rows[:, -KV_HEADS * DIM :])  # the values
