"""Frequencies of each head as host numbers, on every library."""

from functools import partial

import numpy as np
import oracle
import pytest
from conftest import one_jax

import rope_any as ra

HEADS, AXES, PAIRS, SEQ = 2, 2, 3, 4


@pytest.fixture
def rows(rng):
    """Frequencies (heads, axes, pairs)."""
    return tuple(tuple(map(tuple, head.tolist())) for head in rng.uniform(-1.5, 1.5, (HEADS, AXES, PAIRS)))


def rotated(x, positions, rows):
    """Return x (batch, heads, seq, dim) rotated head by head, each by its own row, in high precision."""
    tables = [oracle.table(positions, row)[:2] for row in rows for _ in range(x.shape[1] // len(rows))]
    cos, sin = (np.stack(parts, axis=-3) for parts in zip(*tables, strict=True))
    return oracle.rotate_by_table(x, cos, sin, pairing="half")


@one_jax
@pytest.mark.filterwarnings("ignore:fused=True falls back")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_each_query_head_takes_the_row_of_its_key_head(lib, rng, rows, batched, fused):
    rope, positions = ra.Rope(rows, pairing="half"), rng.integers(0, 10**6, (2, SEQ, AXES) if batched else (SEQ, AXES))
    q, k = (rng.uniform(-1, 1, (2, n * HEADS, SEQ, 2 * PAIRS)).astype(np.float32) for n in (3, 1))
    expected = [rotated(x, positions, rows) for x in (q, k)]
    at, both = lib(positions, "int32"), (lib(q), lib(k))
    rotate = partial(rope, fused=True) if fused else lib.quick(rope)
    for given in (at, lib.quick(lambda at, q: rope.table(at, like=q))(at, both[0])):
        got = rotate(*both, given)
        assert [np.abs(lib.get(x) - y).max() < 2e-6 for x, y in zip(got, expected, strict=True)] == [True, True]
    shorter = lib.quick(rope)(lib(q[:, :, -2:].copy()), lib(k), at)
    np.testing.assert_allclose(lib.get(shorter[0]), expected[0][:, :, -2:], atol=2e-6)


@one_jax
def test_tokens_before_heads_inverse_and_reposition(lib, rng, rows):
    rope, positions = ra.Rope(rows, pairing="half", attention_factor=1.5), rng.integers(0, 10**6, (SEQ, AXES))
    x, at = rng.uniform(-1, 1, (2, HEADS, SEQ, 2 * PAIRS)).astype(np.float32), lib(positions, "int32")
    expected = 1.5 * rotated(x, positions, rows)
    rotated_x = rope.apply(lib(np.swapaxes(x, 1, 2).copy()), at, seq_axis=-3)
    np.testing.assert_allclose(np.swapaxes(lib.get(rotated_x), 1, 2), expected, atol=3e-6)
    np.testing.assert_allclose(lib.get(rope.apply(lib(expected.astype(np.float32)), at, inverse=True)), x, atol=2e-6)
    moved = rope.reposition(lib(expected.astype(np.float32)), at, 5)
    expected_moved = 1.5 * rotated(x, np.stack([np.arange(5, 5 + SEQ)] * AXES, -1), rows)
    np.testing.assert_allclose(lib.get(moved), expected_moved, atol=3e-6)


def test_a_table_without_heads_is_for_all_heads_of_q_and_k(lib, rng, rows):
    rope, x = ra.Rope(rows, pairing="half"), lib(rng.uniform(-2, 2, (1, 4, 1, 2 * PAIRS)), "float32")
    table = ra.from_angles(lib(rng.uniform(-2, 2, (1, PAIRS)), "float32"))
    for got in rope(x, x, table):
        np.testing.assert_array_equal(lib.get(got), lib.get(rope.apply(x, table)))


def test_tables_of_fixed_and_learned_rows_have_an_axis_of_heads_before_the_tokens(lib, rng, rows):
    batch = rng.integers(-9, 9, (3, SEQ, AXES))
    angles = np.einsum("bsa,hap->bhsp", batch, np.asarray(rows))
    for frequencies, atol in ((rows, 2e-7), (lib(rows, "float32"), 4e-6)):
        for positions, angle in ((batch, angles), (batch[0], angles[0])):
            table = ra.cos_sin(lib(positions, "int32"), frequencies)
            for part, function in zip(table, (np.cos, np.sin), strict=True):
                assert tuple(part.shape) == angle.shape
                np.testing.assert_allclose(lib.get(part), function(angle), atol=atol)
