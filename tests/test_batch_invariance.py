"""Batch invariance: the result of a token has the same bits whatever else is in the call."""

import sys
import types
from importlib.util import find_spec

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from bits import VIEWS, bits, cpu_arrays, data, each_pairing, thread_count
from hypothesis import given, settings

import rope_any as ra

pytestmark = pytest.mark.thread_unsafe(reason="it changes the number of threads of torch")
put, pairing, use_threads = cpu_arrays, each_pairing, thread_count


# --- random calls -----------------------------------------------------------------------------------------------------


DTYPES = {"float16": "f2", "bfloat16": ml_dtypes.bfloat16, "float32": "f4", "float64": "f8"}
CASES = st.builds(
    types.SimpleNamespace,
    shape=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 40)),
    pairs=st.sampled_from([16, 32, 64]) | st.integers(1, 70),
    start=st.integers(0, 3),
    extra=st.sampled_from([0, 0, 5]),
    dtype=st.sampled_from(list(DTYPES)),
    view=st.sampled_from(list(VIEWS)),
    out=st.booleans(),
    table=st.booleans(),
    fused=st.booleans(),
    seed=st.integers(0, 99),
)


def _viewed(put, x, view):
    """Return a view of an array, bfloat16 included, which torch does not take from NumPy."""
    if put is np.asarray or x.dtype != ml_dtypes.bfloat16:
        return put(VIEWS[view](x))
    return put(VIEWS[view](x.view("i2"))).view(sys.modules["torch"].bfloat16)


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
def test_a_token_does_not_depend_on_other_tokens(pairing, put, use_threads):
    torch = None if put is np.asarray else sys.modules["torch"]

    @settings(max_examples=60)
    @given(CASES)
    def check(case):
        """Compare each token of a call with the same token alone."""
        rng = np.random.default_rng(case.seed)
        features = case.start + 2 * case.pairs + case.extra
        x = _viewed(put, data(*case.shape, features, seed=case.seed).astype(DTYPES[case.dtype]), case.view)
        rope = ra.Rope(ra.frequencies(2 * case.pairs), pairing=pairing, start=case.start)
        positions = rng.integers(0, 2**20, case.shape[2])

        def rotated(x, positions):
            """Return x rotated, with the options of the case."""
            at = rope.table(put(positions), like=x) if case.table else put(positions)
            out = (torch or np).empty_like(x) if case.out else None
            return rope.apply(x, at, out=out, fused=case.fused and find_spec("numba") is not None)

        full = rotated(x, positions)
        batch, head, i = (slice(n, n + 1) for n in rng.integers(0, case.shape).tolist())
        assert bits(rotated(x[batch, head, i], positions[i])) == bits(full[batch, head, i])
        for count in (1, 2, 3) if torch else ():
            use_threads(count)
            ra.clear_caches()
            assert bits(rotated(x, positions)) == bits(full)

    check()


def test_a_sequence_does_not_depend_on_the_size_of_its_batch(put, pairing):
    x, rope = put(data(128, 8, 1, 64)), ra.Rope(ra.frequencies(64), pairing=pairing)
    full = rope.apply(x, 9)
    assert [n for n in range(1, 129) if bits(rope.apply(x[:n], 9)) != bits(full[:n])] == []


def test_strides_of_axes_of_length_one_do_not_matter(torch):
    odd = torch.from_numpy(data(2, 2**20 + 1))[:, :-1].unflatten(1, (1, 2**14, 64))[1:]
    rope, plain = ra.Rope(ra.frequencies(64), pairing="interleaved"), torch.empty(1, 1, 2**14, 64).copy_(odd)
    assert bits(rope.apply(plain)) == bits(rope.apply(odd)) == bits(rope.apply(plain, out=torch.empty_like(odd)))


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_results_do_not_depend_on_the_number_of_threads(dtype, pairing, torch, use_threads):
    x = torch.from_numpy(data(3, 400, 70)).to(getattr(torch, dtype))
    ropes = [ra.Rope(ra.frequencies(2 * pairs), pairing=pairing) for pairs in (16, 35)]
    results = []
    for count in (1, 2, 3):
        use_threads(count)
        ra.clear_caches()
        results.append([bits(rope.apply(x, 7)) for rope in ropes])
    assert results[0] == results[1] == results[2]
    for rope, full in zip(ropes, results[0], strict=True):
        pieces = torch.cat([rope.apply(piece, 7 + 77 * i) for i, piece in enumerate(x.split(77, dim=1))], dim=1)
        assert bits(pieces) == full


def test_threads_can_share_one_wide_row(torch, use_threads):
    use_threads(2)
    c = torch.ones(1, 32784)
    got = ra.rotate(torch.ones(1, 65568), c, c, pairing="interleaved")
    assert torch.equal(got, torch.tensor([0.0, 2.0]).repeat(1, 32784))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_pair_does_not_depend_on_other_rows(put, dtype):
    x, rope = data(200, 2).astype(dtype), ra.Rope((0.7,), pairing="interleaved")
    table = rope.table(range(200), like=put(x))
    full = np.asarray(ra.rotate(put(x), *table, pairing="interleaved"))
    for i in range(200):
        row = ra.rotate(put(x[i : i + 1]), *(part[i : i + 1] for part in table), pairing="interleaved")
        assert np.array_equal(np.asarray(row)[0], full[i])
