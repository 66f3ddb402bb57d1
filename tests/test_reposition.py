"""Moved cached keys equal newly rotated keys: after a thousand moves, between ropes and on several axes."""

import itertools

import numpy as np
import pytest
from conftest import one_jax
from hypothesis import given
from hypothesis import strategies as st

import rope_any as ra

F = ra.frequencies(16, base=500.0)
ROPE = ra.Rope(F, pairing="half")
LONG = ra.Rope(ra.scaling.linear(F, 4.0), pairing="half", attention_factor=1.25)
GRID = ra.Rope(ra.axes.chunked(F, [3, 5]), pairing="half")
LATENT = ra.Rope(F, pairing="interleaved", out_pairing="half")  # cached keys have half pairing
BLOCKS = ra.Rope(ra.axes.axial(F[:4], F[:4]), pairing="half", blocks=2, start=1)
# one rounding of the keys, one of the result
STEP = {"float64": 1e-13, "float32": 5e-7, "float16": 4e-3, "bfloat16": 3e-2}


@pytest.fixture
def keys(rng):
    """Return random keys."""
    return rng.uniform(-2, 2, (2, 3, 6, 20))


def moved(lib, rope, keys, old, new, **options):
    """Return keys moved from old to new positions, rotated before by a rope or by `source`; and the expected keys."""
    before = (options.get("source") or rope).apply(np.asarray(keys), old)
    got = lib.get(rope.reposition(lib(before, "float32"), old, new, **options)).astype(np.float64)
    return got, rope.apply(np.asarray(keys), new)


# --- moves ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_moved_keys_equal_keys_rotated_at_the_new_positions(lib, keys, pairing):
    rope = ra.Rope(F, pairing=pairing, start=2)
    moves = ((5, 0), (range(6), range(10, 16)), ([3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]), (0, 1_000_000))
    move_all = lib.quick(lambda *all_keys: [rope.reposition(k, *move) for k, move in zip(all_keys, moves, strict=True)])
    for dtype in lib.dtypes:
        before = [lib(rope.apply(keys, old), dtype) for old, _ in moves]
        for got, (_, new) in zip(move_all(*before), moves, strict=True):
            expected = rope.apply(keys, new)
            np.testing.assert_allclose(lib.get(got).astype(np.float64), expected, rtol=0, atol=4 * STEP[dtype])


def test_positions_of_any_form_are_accepted(lib, keys):
    rows = [[0, 1, 2, 3, 4, 5], [9, 8, 7, 6, 5, 4]]
    expected = ROPE.apply(keys, rows)
    for old, new in ((None, rows), (range(6), lib(rows)), ([0.5, 1.5, 2.5, 3.5, 4.5, 5.5], rows)):
        move = lib.quick(lambda k, old=old, new=new: ROPE.reposition(k, old, new))
        got = move(lib(ROPE.apply(keys, old), "float32"))
        np.testing.assert_allclose(lib.get(got), expected, rtol=0, atol=2e-6)


@one_jax
@pytest.mark.parametrize("batch", [2, 3])
def test_positions_by_batch_and_by_head_align_at_their_first_axes(lib, rng, batch):
    x, rows = rng.uniform(-2, 2, (batch, 3, 6, 20)), rng.integers(0, 99, (batch, 6))
    by_head = rng.integers(0, 99, (batch, 3, 6))
    for old, new in ((rows, by_head), (by_head, rows), (rows, range(6))):
        k = lib(ROPE.apply(x, old), "float32")
        lists = np.asarray(old).tolist(), np.asarray(new).tolist()
        got = lib.quick(lambda k, lists=lists: ROPE.reposition(k, *lists))(k)
        np.testing.assert_allclose(lib.get(got), ROPE.apply(x, new), rtol=0, atol=2e-6)


@one_jax
@pytest.mark.parametrize(
    ("rope", "source"),
    [*itertools.product((ROPE, LONG, GRID), (None, ROPE, LONG, GRID)), (BLOCKS, None), (LATENT, None)],
    ids=str,
)
def test_keys_move_from_one_rope_to_another(lib, keys, rope, source):
    positions = {1: [7, 8, 9, 10, 11, 12], 2: [[1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]]}
    old, new = (positions[2 if (r or rope) in {GRID, BLOCKS} else 1] for r in (source, rope))
    got, expected = moved(lib, rope, keys, old, new, source=source)
    np.testing.assert_allclose(got, expected, rtol=0, atol=3e-6)
    before = np.swapaxes((source or rope).apply(np.asarray(keys), old), 1, 2).astype(np.float32)
    other_axis = rope.reposition(lib(before), old, new, source=source, seq_axis=1)
    np.testing.assert_allclose(np.swapaxes(lib.get(other_axis), 1, 2), expected, rtol=0, atol=3e-6)


FAR = [(2**31 - 7, 0), (-(2**31) + 7, 2**31 - 7), (2**30, 2**30 - 1)]
# Digits that a float32 cannot hold: of a large position beside a real one, and of large real ones.
FAR_AND_REAL = [(100_000_001, [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]), ([1_000_000.3 + i for i in range(6)], 0)]


@pytest.mark.parametrize(("old", "new"), FAR + FAR_AND_REAL)
def test_far_moves_are_exact_from_and_to_real_positions_too(lib, keys, old, new):
    got, expected = moved(lib, ROPE, keys, old, new)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 if (old, new) in FAR else 5e-6)


# --- many moves -------------------------------------------------------------------------------------------------------


@one_jax
def test_many_moves_do_not_drift(lib, rng):
    """Keys move by −1 up to a thousand times, as in a cache with sinks. The bounds are those of the docstring."""
    if lib.name == "dask":
        pytest.skip("a thousand lazy moves make a graph a thousand deep")
    # slow pairs are rounded in the same direction each time; among many keys are the worst cases
    x, rope = rng.uniform(-2, 2, (8, 4, 128)), ra.Rope(ra.frequencies(128, base=500_000.0), pairing="half")
    moves = 1000 if lib.name in {"numpy", "torch-cpu", "torch-cuda"} else 60  # the others are slow
    k = lib(rope.apply(x, moves), "float32")
    for at in range(moves, 0, -1):
        k = rope.reposition(k, at, at - 1)
    length = np.hypot(*np.split(x, 2, axis=-1))
    error = np.abs(lib.get(k) - rope.apply(x, 0)) / np.concatenate([length, length], axis=-1)
    assert error.max() < (moves + 1) * 2**-24 * (1 if lib.has_float64 else 2)


@given(st.lists(st.integers(-(2**31) + 9, 2**31 - 9), min_size=1, max_size=12), st.data())
def test_a_chain_of_moves_equals_one_move(stops, data):
    """Intermediate positions do not matter."""
    ropes = data.draw(st.lists(st.sampled_from([ROPE, LONG]), min_size=len(stops), max_size=len(stops)))
    x = np.random.default_rng(0).uniform(-2, 2, (3, 16)).astype(np.float32)
    k, at, source = ROPE.apply(x, 0), 0, ROPE
    for rope, stop in zip(ropes, stops, strict=True):
        k = rope.reposition(k, at, stop, source=source)
        at, source = stop, rope
    expected = source.apply(x.astype(np.float64), at)
    np.testing.assert_allclose(k, expected, rtol=0, atol=1e-6 * (1 + len(stops)))


# --- outputs, compilers and gradients ---------------------------------------------------------------------------------


def test_moves_in_place_and_into_out_are_exact(lib, keys):
    if not lib.mutable:
        pytest.skip(f"{lib.name} cannot write")
    k = lib(ROPE.apply(keys, 5), "float32")
    expected = lib.get(ROPE.reposition(k, 5, 2))
    other = lib(np.zeros_like(keys), "float32")
    assert ROPE.reposition(k, 5, 2, out=other) is other
    assert ROPE.reposition(k, 5, 2, out=k) is k
    np.testing.assert_array_equal(lib.get(other), expected)
    np.testing.assert_array_equal(lib.get(k), expected)


@pytest.mark.long
def test_a_move_from_another_rope_can_be_compiled(lib, keys):
    lib.need(compiler=True)
    k, new = lib(ROPE.apply(keys, 5), "float32"), lib(np.arange(6))
    got = lib.trace(lambda k, new: LONG.reposition(k, 5, new, source=ROPE))(k, new)
    np.testing.assert_allclose(lib.get(got), LONG.apply(keys, 0), rtol=0, atol=3e-6)


def test_gradients_reach_the_keys(torch, keys):
    k = torch.asarray(keys).requires_grad_()
    assert torch.autograd.gradcheck(lambda k: LONG.reposition(k, 3, 9, source=ROPE), (k,))
