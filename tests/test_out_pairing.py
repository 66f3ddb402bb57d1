"""`out_pairing`: results whose features are in another order than those of x, as latent attention (MLA) writes them."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import oracle
import pytest
from bits import VIEWS, bits, cpu_arrays, data, thread_count, with_cupy
from conftest import one_jax

import rope_any as ra

arrays, use_threads = cpu_arrays, thread_count
TOLERANCE = {"float16": 3e-3, "bfloat16": 2e-2, "float32": 2e-6, "float64": 3e-15}

ORDERS = [("interleaved", "half"), ("half", "interleaved")]


def reordered(x, pairing, start=0, pairs=None):
    """Return x with the features of `pairs` pairs from `start` on in the order of the pairing that is not `pairing`."""
    end = x.shape[-1] if pairs is None else start + 2 * pairs
    both = np.r_[start:end:2, start + 1 : end : 2]  # the first members of neighbours, then the second ones
    order = np.r_[:start, both, end : x.shape[-1]]
    return x[..., order if pairing == "interleaved" else np.argsort(order)]


@one_jax
@pytest.mark.parametrize(("pairing", "out_pairing"), ORDERS)
def test_results_have_the_order_of_the_other_pairing_and_the_inverse_undoes_it(lib, rng, pairing, out_pairing):
    f = ra.frequencies(16, base=100.0)
    rope = ra.Rope(f, pairing=pairing, out_pairing=out_pairing, start=2)
    by_table = partial(ra.rotate, pairing=pairing, out_pairing=out_pairing, start=2)
    for dtype in lib.dtypes:
        x = lib(rng.uniform(-1, 1, (2, 3, 5, 20)), dtype)
        table = rope.table(range(7, 12), like=x)
        y, same, back = lib.quick(
            lambda x, table=table: (y := rope.apply(x, 7), by_table(x, *table), rope.apply(y, table, inverse=True))
        )(x)
        sorted_first = reordered(lib.get(x).astype(np.float64), pairing, 2, 8)
        want = oracle.rotate(sorted_first, np.arange(7, 12), f, pairing=out_pairing, start=2)
        for got, expected in ((y, want), (same, want), (back, lib.get(x).astype(np.float64))):
            np.testing.assert_allclose(lib.get(got).astype(np.float64), expected, rtol=0, atol=2 * TOLERANCE[dtype])


SIZES = {"a token": (4, 1, 12), "rows": (3, 70, 64), "tiles": (2, 40, 700, 24), "wide rows": (2, 3, 600)}


@with_cupy
@pytest.mark.thread_unsafe(reason="sets the number of threads")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("case", [*product(SIZES, VIEWS)], ids=", ".join)
@pytest.mark.parametrize("orders", ORDERS, ids=" to ".join)
def test_each_way_has_the_bits_of_half_pairing(case, orders, fused, arrays, use_threads):
    (size, view), (pairing, out_pairing) = case, orders
    if fused:
        pytest.importorskip("numba", reason="numba is not installed")
    use_threads(2)
    for start, dtype in ((0, "float32"), (1, "float32"), *[(1, "float16")][fused:]):
        host = data(*SIZES[size], dtype=dtype)
        pairs = (host.shape[-1] - start) // 2 - start
        rope, half = (
            ra.Rope(ra.frequencies(2 * pairs), pairing=one, out_pairing=two, start=start)
            for one, two in ((pairing, out_pairing), ("half", None))
        )
        x = arrays(VIEWS[view](host.copy()))
        given = reordered(host, pairing, start, pairs) if pairing == "interleaved" else host
        expected = half.apply(arrays(np.ascontiguousarray(given)), 9, fused=fused)
        if pairing == "half":
            got = expected.get() if hasattr(expected, "get") else np.asarray(expected)
            expected = arrays(np.ascontiguousarray(reordered(got, pairing, start, pairs)))
        new, out = rope.apply(x, 9, fused=fused), arrays(VIEWS[view](np.zeros_like(host)))
        rope.apply(x, 9, fused=fused, out=out)
        rope.apply(x, 9, fused=fused, out=x)  # each row is read before it is written
        assert bits(new) == bits(out) == bits(x) == bits(expected)


def megatron(x, cos, sin):
    """Rotate as Megatron does with ``multi_latent_attention``: sorted first, then by halves."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def test_latent_attention_of_transformers_and_megatron_is_one_call(torch):
    deepseek = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3")
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 6, 16), torch.randn(2, 1, 6, 16)
    rope = ra.Rope(ra.frequencies(16), pairing="interleaved", out_pairing="half")
    cos, sin = (torch.cat((part, part), dim=-1)[None] for part in rope.table(range(6), like=q))
    theirs = deepseek.apply_rotary_pos_emb_interleave(q, k, cos, sin)
    for got, both in zip(rope(q, k), zip(theirs, (megatron(x, cos, sin) for x in (q, k)), strict=True), strict=True):
        for expected in both:
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    # cached keys are of the Rope without the step before
    cached, moved = rope.apply(k, 5), rope.reposition(rope.apply(k, 5), 5, 0)
    torch.testing.assert_close(moved, rope.apply(k, 0), rtol=0, atol=1e-6)
    assert torch.equal(moved, replace(rope, pairing="half", out_pairing=None).reposition(cached, 5, 0, source=rope))


def test_a_function_is_checked_in_the_order_of_its_results():
    f = ra.frequencies(16)
    ropes = [ra.Rope(f, pairing="interleaved", out_pairing=order, start=2) for order in (None, "half")]
    for right, other in (ropes, ropes[::-1]):
        assert ra.testing.check_rotary(right.apply, right, head_dim=20).passed
        report = ra.testing.check_rotary(other.apply, right, head_dim=20)
        order = "interleaved" if other.out_pairing is None else "half"
        assert not report.passed and report.causes == (f"features are returned in the order {order}",)
    # the scores of DeepSeek's latent attention are the same in either order, and its class returns halves
    config = {"model_type": "deepseek_v3", "qk_rope_head_dim": 16, "rope_theta": 1e4}
    for rope in ropes:
        report = ra.testing.check_rotary(replace(rope, start=0).apply, config, head_dim=16)
        assert report.passed and ("returned in the order half" in str(report)) == (rope.out_pairing is not None)
