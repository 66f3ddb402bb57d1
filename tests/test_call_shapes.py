"""
Calls as inference engines make them, against a loop over tokens in float64.

Packed tokens in a fused buffer, keys alone, rows of a cos/sin cache, several `Rope`s in one cache, offsets by row.
"""

from functools import partial

import numpy as np
import pytest
from array_api_compat import array_namespace
from conftest import one_jax

import rope_any as ra

HEADS, KV_HEADS, DIM, ROTARY = 4, 2, 20, 16
F = ra.frequencies(ROTARY, base=10_000.0)
POSITIONS = [0, 1, 2, 0, 1, 70_000, 5]  # three requests of a batch
ATOL = 2e-6


def loop(x, positions, *, pairing, frequencies=F, factor=1.0):
    """Return x (tokens, heads, dim) rotated token by token: a' = a·cos − b·sin, b' = b·cos + a·sin."""
    out, n = np.array(x, np.float64), len(frequencies)
    first, second = (slice(0, n), slice(n, 2 * n)) if pairing == "half" else (slice(0, 2 * n, 2), slice(1, 2 * n, 2))
    for token, p in enumerate(positions):
        angle = p * np.asarray(frequencies)
        c, s = factor * np.cos(angle), factor * np.sin(angle)
        a, b = np.array(x[token, :, first], np.float64), np.array(x[token, :, second], np.float64)
        out[token, :, first], out[token, :, second] = a * c - b * s, b * c + a * s
    return out


def heads_of(qkv):
    """Return q and k as views of the rows [q, k, v] of a fused buffer, (tokens, heads, dim)."""
    tokens, q_end, k_end = qkv.shape[0], HEADS * DIM, (HEADS + KV_HEADS) * DIM
    return qkv[:, :q_end].reshape(tokens, HEADS, DIM), qkv[:, q_end:k_end].reshape(tokens, KV_HEADS, DIM)


@pytest.fixture
def fused_rows(rng):
    """Return random rows of q, k and v side by side, one for each token."""
    return rng.uniform(-1, 1, (len(POSITIONS), (HEADS + 2 * KV_HEADS) * DIM)).astype(np.float32)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("name", ["numpy", "torch"])  # slices are views
def test_packed_views_of_a_fused_buffer_are_rotated_in_place(fused_rows, name, pairing, fused):
    xp = np if name == "numpy" else pytest.importorskip("torch", reason="torch is not installed")
    buffer = xp.asarray(fused_rows.copy())
    q, k = heads_of(buffer)
    ra.Rope(F, pairing=pairing)(q, k, xp.asarray(POSITIONS), seq_axis=-3, out=(q, k), fused=fused)
    got = np.asarray(buffer)
    for rotated, x in zip(heads_of(got), heads_of(fused_rows), strict=True):
        np.testing.assert_allclose(rotated, loop(x, POSITIONS, pairing=pairing), rtol=0, atol=ATOL)
    assert np.array_equal(got[:, -KV_HEADS * DIM :], fused_rows[:, -KV_HEADS * DIM :])  # the values


@one_jax
def test_keys_are_rotated_without_queries(lib, rng):
    keys = rng.uniform(-1, 1, (len(POSITIONS), KV_HEADS, DIM))
    apply = lib.quick(partial(ra.Rope(F, pairing="half").apply, seq_axis=-3))
    got = apply(lib(keys, "float32"), lib(POSITIONS))
    np.testing.assert_allclose(lib.get(got), loop(keys, POSITIONS, pairing="half"), rtol=0, atol=ATOL)


def table_rows(lib, cos, sin, index):
    """Return some rows of a cos/sin cache as the table of the tokens."""
    xp = array_namespace(cos)
    return ra.Table(*(xp.take(part, lib(index), axis=0) for part in (cos, sin)))


@one_jax
def test_rows_of_a_cache_rotate_as_the_table_of_their_tokens(lib, rng):
    rope, index = ra.Rope(F, pairing="interleaved"), [3, 0, 63, 3, 17]
    x = rng.uniform(-1, 1, (len(index), HEADS, DIM))
    cache = lib.quick(lambda like: rope.table(range(64), like=like))(lib([0.0], "float32"))
    got = lib.quick(partial(rope.apply, seq_axis=-3))(lib(x, "float32"), table_rows(lib, *cache, index))
    np.testing.assert_allclose(lib.get(got), loop(x, index, pairing="interleaved"), rtol=0, atol=ATOL)


@one_jax
def test_several_ropes_share_a_cache_by_offsets(lib, rng):
    """As for LoRA adapters with different context extensions: tables are stacked, and each token selects its row."""
    length, factors = 32, (1.0, 4.0)
    ropes = [ra.Rope(ra.scaling.linear(F, s), pairing="half", attention_factor=1 + s / 10) for s in factors]

    def stacked(like):
        """Return the tables of several Ropes, stacked along the positions."""
        tables = [rope.table(range(length), like=like) for rope in ropes]
        return [array_namespace(*parts).concat(parts, axis=0) for parts in zip(*tables, strict=True)]

    cos, sin = lib.quick(stacked)(lib([0.0], "float32"))
    positions, rope_index = [0, 5, 31, 7], [0, 1, 1, 0]
    x = rng.uniform(-1, 1, (len(positions), HEADS, DIM))
    rows = table_rows(lib, cos, sin, [p + length * r for p, r in zip(positions, rope_index, strict=True)])
    # with a table, `apply` uses only the pairing of a Rope
    got = lib.get(lib.quick(partial(ropes[0].apply, seq_axis=-3))(lib(x, "float32"), rows))
    for i, (p, r) in enumerate(zip(positions, rope_index, strict=True)):
        rope = ropes[r]
        expected = loop(x[i : i + 1], [p], pairing="half", frequencies=rope.frequencies, factor=rope.attention_factor)
        np.testing.assert_allclose(got[i : i + 1], expected, rtol=0, atol=ATOL)


@one_jax
def test_each_row_has_its_own_offset(lib, rng):
    x, starts, count = rng.uniform(-1, 1, (3, HEADS, 2, DIM)), [9, 0, 4000], 2
    rope = ra.Rope(F, pairing="half")
    apply = lib.quick(lambda x, starts: rope.apply(x, ra.positions.from_starts(starts, count)))
    got = apply(lib(x, "float32"), lib(starts))
    for row, start in enumerate(starts):
        expected = loop(np.swapaxes(x[row], 0, 1), range(start, start + count), pairing="half")
        np.testing.assert_allclose(np.swapaxes(lib.get(got)[row], 0, 1), expected, rtol=0, atol=ATOL)
