"""Large arrays, which are rotated in tiles and by several threads: each row has the bits of a small call."""

from importlib.util import find_spec

import numpy as np
import oracle
import pytest
from bits import VIEWS, cpu_arrays, each_pairing, thread_count

import rope_any as ra

F = ra.frequencies(12)
put, pairing, use_threads = cpu_arrays, each_pairing, thread_count


# The leading axes of x, more than 2**20 numbers with 16 features, and of the table. No tile is larger.
SHAPES = {
    "rows": ((70_001,), (70_001,)),
    "heads and tokens": ((2, 3, 12_001), (12_001,)),
    "tokens before heads": ((2, 12_001, 3), (12_001, 1)),
    "heads smaller than a tile": ((12_001, 3, 2), (2,)),
    "a table for each batch": ((3, 2, 12_001), (3, 1, 12_001)),
    "a table for each row": ((2, 3, 12_001), (2, 3, 12_001)),
    "one table": ((2, 3, 12_001), (1, 1, 1)),
    "an axis of one": ((2, 1, 36_001), (1, 36_001)),
}
CASES = [(shape, "contiguous", "float32") for shape in SHAPES]
CASES += [("heads and tokens", view, "float32") for view in [*VIEWS][1:]]
CASES += [("tokens before heads", "contiguous", dtype) for dtype in ("float64", "float16")]
TOLERANCE = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-14}


@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_tiles_of_large_arrays_equal_small_arrays_and_the_oracle(case, pairing, put):
    shape, view, dtype = case
    start = 0 if view == "contiguous" else 1  # pairs from an odd feature on are no complex numbers in memory
    rng, (batch, positions) = np.random.default_rng(0), SHAPES[shape]
    x = VIEWS[view](rng.standard_normal((*batch, 16), dtype=np.float32).astype(dtype))
    table = ra.cos_sin(rng.integers(-5000, 5000, positions), F, dtype="float64" if dtype == "float64" else "float32")
    arrays, options = [put(part) for part in (x, *table)], {"pairing": pairing, "start": start}
    new = np.asarray(ra.rotate(*arrays, **options))
    few = np.concatenate([rng.integers(0, x[..., 0].size, 300), [0, x[..., 0].size - 1]])
    rows = [np.broadcast_to(part, (*batch, part.shape[-1])).reshape(-1, part.shape[-1])[few] for part in (x, *table)]
    small = np.asarray(ra.rotate(*map(put, rows), **options))
    exact = oracle.rotate_by_table(*rows, **options)
    got = new.reshape(-1, 16)[few]
    np.testing.assert_allclose(got, exact, rtol=0, atol=TOLERANCE[dtype])
    if pairing == "half":  # the same products and differences
        np.testing.assert_array_equal(got, small)
    else:
        np.testing.assert_allclose(got, small, rtol=0, atol=TOLERANCE[dtype] / 2)
    undone = ra.rotate(put(new), *arrays[1:], **options, inverse=True)
    np.testing.assert_allclose(undone, x, rtol=0, atol=2 * TOLERANCE[dtype])
    assert ra.rotate(arrays[0], *arrays[1:], **options, out=arrays[0]) is arrays[0]
    np.testing.assert_allclose(x, new, rtol=0, atol=TOLERANCE[dtype] / 2)


@pytest.mark.thread_unsafe(reason="sets the number of threads")
def test_threads_share_numpy_tiles(pairing, use_threads, rng):
    rope, got = ra.Rope(ra.frequencies(64), pairing=pairing), []
    x = rng.standard_normal((2, 40, 3, 100, 70))  # with pass-through features, in float64
    for threads in (1, 2, 5):
        use_threads(threads)
        got.append(rope.apply(x, 7))
        np.testing.assert_array_equal(got[-1], got[0])
        np.testing.assert_array_equal(got[-1][1, 3], rope.apply(x[1, 3], 7))  # by itself
    for head in (0, 39):  # the state of NumPy's errors applies to all threads
        x[1, head, 2] = 1.7e308
        with np.errstate(over="raise", invalid="raise"), pytest.raises(FloatingPointError):
            rope.apply(x, 7)
        x[1, head, 2] = 0


@pytest.mark.parametrize("rows", [1, 40, 30_001])
def test_each_way_has_the_result_of_the_single_implementation(rows, pairing, put, rng):
    strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    x, table = rng.standard_normal((rows, 24), dtype=np.float32), ra.cos_sin(rng.integers(-5000, 5000, rows), F)
    expected = np.from_dlpack(ra.rotate(*map(strict.asarray, (x, *table)), pairing=pairing))  # it has no faster way
    atol = 0 if pairing == "half" else 2.0**-23 * np.abs(x).max() * 2**0.5  # a complex product may round once less
    for fused in (False, True)[: 1 + (find_spec("numba") is not None)]:
        got = np.asarray(ra.rotate(*map(put, (x, *table)), pairing=pairing, fused=fused))
        np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("tokens", "features"), [(4, 12), (4, 16), (30_001, 12), (30_001, 16)])
def test_results_are_in_memory_as_x_is(tokens, features, dtype, pairing, put):
    x = put(np.ones((2, tokens, 3, features), dtype)).swapaxes(1, 2)
    for view in (x, x[..., 1:, :]):
        assert np.asarray(ra.Rope(F[:6], pairing=pairing).apply(view)).swapaxes(1, 2).flags.c_contiguous
