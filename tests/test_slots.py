"""Rotated tokens in the slots of a cache, where the published formulas of engines put them, on every library."""

from importlib.util import find_spec

import numpy as np
import oracle
import pytest
from conftest import one_jax

import rope_any as ra

HEADS, DIM, BLOCK, BLOCKS = 3, 16, 4, 7
F = ra.frequencies(DIM, base=100.0)
ROPE = ra.Rope(F, pairing="half")
EMPTY = 9.0  # what no token has written; each dtype has it


def vllm(rows, rng):
    """Return a cache of ``reshape_and_cache_flash`` (vllm csrc/cache_kernels.cu), our view of it, slots, positions."""
    memory, slots = np.full(BLOCKS * BLOCK * HEADS * DIM, EMPTY), rng.permutation(BLOCKS * BLOCK)[: len(rows)]
    slots[2::5] = -1  # padding
    for token, slot in enumerate(slots):
        if slot < 0:
            continue
        block, offset = slot // BLOCK, slot % BLOCK
        for head in range(HEADS):
            begin = block * BLOCK * HEADS * DIM + offset * HEADS * DIM + head * DIM
            memory[begin : begin + DIM] = rows[token, head]
    return memory.reshape(BLOCKS, BLOCK, HEADS, DIM), lambda cache: cache, slots


def flashinfer(rows, rng, *, heads_first=False):
    """Return that of ``append_paged_kv_cache`` (flashinfer include/flashinfer/page.cuh), in the layout NHD or HND."""
    pages, indptr = rng.permutation(BLOCKS), [0, 3, 5, 7]  # each request's pages
    batch = np.sort(rng.integers(0, 3, len(rows)))
    at = np.concatenate([np.arange((batch == i).sum()) for i in range(3)])
    at[batch == 2] %= 2 * BLOCK
    shape = (BLOCKS, HEADS, BLOCK, DIM) if heads_first else (BLOCKS, BLOCK, HEADS, DIM)
    both, slots = np.full((BLOCKS, 2, *shape[1:]), EMPTY), []
    for token, (request, position) in enumerate(zip(batch, at, strict=True)):
        page, entry = divmod(indptr[request] * BLOCK + position, BLOCK)
        index = (pages[page], 0, slice(None), entry) if heads_first else (pages[page], 0, entry)
        both[index] = rows[token]
        slots.append(pages[page] * BLOCK + entry)
    return both, lambda cache: cache[:, 0, ...].swapaxes(1, 2) if heads_first else cache[:, 0, ...], np.asarray(slots)


def xformers(rows, _):
    """Return that of ``rope_padded`` (xformers ops/_triton/rope_padded_kernels.py): a flat cache, padded by request."""
    starts, starts_k, lengths = [0, 4, 5, len(rows)], [0, 8, 11], [6, 3, len(rows) - 5]
    cache, slots = np.full((BLOCKS * BLOCK, HEADS, DIM), EMPTY), []
    for token, row in enumerate(rows):
        request = np.searchsorted(starts, token, "right") - 1
        slots.append(starts_k[request] + lengths[request] - (starts[request + 1] - token))
        cache[slots[-1]] = row
    return cache, lambda cache: cache, np.asarray(slots)


ENGINES = {
    "vllm": vllm,
    "flashinfer NHD": flashinfer,
    "flashinfer HND": lambda *a: flashinfer(*a, heads_first=True),
    "xformers": xformers,
}


@one_jax
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_are_written_where_the_engine_writes_them(engine, fused, lib, rng):
    if fused and not (lib.name in {"numpy", "torch-cpu"} and find_spec("numba")):
        pytest.skip("no loop writes into slots there")
    positions, last = rng.integers(0, 999, 17), "bfloat16" if "bfloat16" in lib.dtypes else "float32"
    for dtype, to in {("float32", "float32"): 0, ("float32", last): 0, (lib.dtypes[0], last): 0}:
        given = lib(rng.uniform(-1, 1, (17, HEADS, DIM)), dtype)
        rows = oracle.rotate(lib.get(given).astype(float), positions[:, None], F, pairing="half")
        expected, view, slots = ENGINES[engine](rows, rng)
        cache = lib(np.full_like(expected, EMPTY), to)
        strict = lib.name.startswith("array-api-strict")  # the standard does not assign by integer arrays
        options = {"seq_axis": -3, "out": cache if strict else view(cache), "slots": lib(slots), "fused": fused}
        if strict or not lib.mutable:
            with pytest.raises((ValueError, IndexError, TypeError, AttributeError)):
                ROPE.apply(given, lib(positions), **options)
        elif lib.name != "mlx" or options["out"] is cache:  # its slices are copies
            assert ROPE.apply(given, lib(positions), **options) is options["out"]
            got = lib.get(cache).astype(float)
            np.testing.assert_array_equal(got == EMPTY, expected == EMPTY)
            np.testing.assert_allclose(got, expected, rtol=0 if to == "float32" else 2.0**-8, atol=3e-6)


SHARED = np.zeros((8, 3, 16))


def padded(lib, slots, *, fused=False, call=ROPE.apply):
    """Return which of four slots of a ring a call writes, for tokens of one head."""
    x, out = lib(np.ones((len(slots), DIM)), "float32"), lib(np.full((4, DIM), EMPTY), "float32")
    got = call(x, out=out, slots=lib(np.asarray(slots, int)), fused=fused)
    return (lib.get(got)[:, 0] != EMPTY).tolist()


@pytest.mark.parametrize("lib", ["numpy", "torch-cpu", "torch-sim", "mlx", "cupy (stand-in)"], indirect=True)
def test_a_token_without_a_slot_is_skipped_and_none_is_written_past_the_end(lib):
    for fused in {False, lib.name in {"numpy", "torch-cpu"} and find_spec("numba") is not None}:
        assert padded(lib, [-1, 2, -7, 0], fused=fused) == [True, False, True, False]
        assert padded(lib, [-1, -1], fused=fused) == padded(lib, [], fused=fused) == [False] * 4
        if lib.name in {"numpy", "torch-cpu"}:
            with pytest.raises(ValueError, match=r"slots must be less than 4, .*; got 4; give -1 for a token without"):
                padded(lib, [0, 4], fused=fused)
        else:  # where slots are not read
            assert padded(lib, [3, 4, 1], fused=fused) == [False, True, False, True]
    if lib.name.startswith("torch"):
        assert padded(lib, [-1, 2, 4], call=lib.trace(ROPE.apply)) == [False, False, True, False]


def test_slots_of_a_batch_and_of_other_axes(rng):
    """Heads before tokens, a slot for each token of each row; all features rotate, or those in the middle."""
    x, slots = rng.uniform(-1, 1, (2, HEADS, 5, DIM + 3)).astype("f4"), rng.permutation(12)[:10].reshape(2, 5)
    to_halves = ra.Rope(F, pairing="interleaved", out_pairing="half")
    for rope in (ra.Rope(F, pairing="interleaved"), to_halves, ra.Rope(F[:6], pairing="half", start=1)):
        for view in (x, x[..., :DIM]):
            cache, rotated = np.zeros((3, 4, HEADS, view.shape[-1]), np.float16), rope.apply(view, 7)
            rope.apply(view, 7, out=cache, slots=slots)
            for row, token in np.ndindex(2, 5):
                slot = slots[row, token]
                np.testing.assert_array_equal(cache[slot // 4, slot % 4], rotated[row, :, token].astype("f2"))
            assert (cache != 0).any((-1, -2)).sum() == 10
            if find_spec("numba"):
                again = rope.apply(view, 7, out=cache * 0, slots=slots, fused=True)
                expected = rope.apply(view, 7, fused=True)[[0, 1], ..., [1, 4], :]
                np.testing.assert_allclose(again.astype(float), cache.astype(float), rtol=2.0**-10, atol=1e-6)
                places = divmod(slots[[0, 1], [1, 4]], 4)
                np.testing.assert_array_equal(again[places], expected.astype("f2"))


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("out must be a cache if `slots` are given", {"out": None}),
        (
            r"out must be of shape \(slots, 3, 16\) or \(blocks, .*; got \(2, 4, 16\)",
            {"out": np.ones((2, 4, 16))},
        ),
        ("out must have 32 or 64 bits .*; got float16; cast x to float32", {"out": np.ones((4, 3, 16), "f2")}),
        ("out must be floating-point .* got int8; quantise", {"out": np.ones((4, 3, 16), "i1")}),
        ("out must not be x itself", {"out": "x"}),
        ("out must not overlap slots", {"out": SHARED, "slots": SHARED.view(int)[:4, 0, 0]}),
        ("slots must be integers", {"slots": np.ones(4)}),
        (r"slots must be \(seq,\) .*; got \(1,\); give -1", {"slots": np.ones(1, int)}),
        ("slots must be an array", {"slots": [0, 1, 2, 3]}),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(message, options):
    x, out = np.ones((4, 3, 16)), np.zeros((8, 3, 16))
    given = {"out": out, "slots": np.arange(4)} | options
    given["out"] = x if isinstance(given["out"], str) else given["out"]
    with pytest.raises((ValueError, TypeError), match=message):
        ROPE.apply(x, seq_axis=-3, **given)
    assert (x == 1).all() and not out.any()
