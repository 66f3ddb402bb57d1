"""Frequencies become arrays of a device once; these live as long as their Rope, or until the caches are cleared."""

import copy
import gc
import pickle
import tracemalloc

import numpy as np
import pytest
from array_api_compat import array_namespace
from bits import ROPE, F, data, empty_caches  # noqa: F401  # a fixture

import rope_any as ra

pytestmark = pytest.mark.thread_unsafe(reason="it clears caches of all threads, and counts their arrays")

# --- made once --------------------------------------------------------------------------------------------------------


@pytest.fixture
def conversions(lib, monkeypatch):
    """Return a list of the host data that a library, or NumPy for it, converts to arrays."""
    seen = []
    for xp in {array_namespace(lib(np.ones(1, np.float32))), array_namespace(np.ones(1))}:

        def watched(given, *args, asarray=xp.asarray, **kwargs):
            """Record tuples and lists that are converted to arrays."""
            if isinstance(given, tuple | list):
                seen.append(given)
            return asarray(given, *args, **kwargs)

        monkeypatch.setattr(xp, "asarray", watched)
    return seen


def converted(seen, call):
    """Return the bytes of a call's result, and whether it converts host data to arrays."""
    seen.clear()
    result = call()
    return result.tobytes(), bool(seen)


@pytest.mark.parametrize("positions", ["int32", "float32"])
def test_frequencies_are_converted_to_arrays_once(positions, lib, conversions):
    x, rope = lib(data(6, 32)), ra.Rope(F, pairing="half")
    old, new = (lib(np.arange(n, n + 6), positions) for n in (0, 9))
    for call in (lambda: rope.apply(x, old), lambda: rope.reposition(x, old, new)):
        ra.clear_caches()
        first, again = (converted(conversions, lambda call=call: lib.get(call())) for _ in range(2))
        assert first[1] and again == (first[0], False)
        ra.clear_caches()
        assert converted(conversions, lambda call=call: lib.get(call())) == first
    rope.apply(x, old)
    assert not converted(conversions, lambda: lib.get(rope.apply(x, new)))[1]
    assert not converted(conversions, lambda: lib.get(rope.table(new, like=x).cos))[1]


# --- freed with their Rope --------------------------------------------------------------------------------------------


@pytest.fixture(params=["numpy", "array_api_strict", "jax"])
def freed(request):
    """Return a function that makes arrays of a library, and one that counts its arrays, or KiB of them, in memory."""
    if request.param == "numpy":
        tracemalloc.start()
        yield np.asarray, lambda: gc.collect() * 0 + tracemalloc.get_traced_memory()[0] / 1024
        tracemalloc.stop()
        return
    module = pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    if request.param == "jax":
        yield module.numpy.asarray, lambda: gc.collect() * 0 + len(module.live_arrays())
    else:
        kind = type(module.ones(1))
        yield module.asarray, lambda: gc.collect() * 0 + sum(type(x) is kind for x in gc.get_objects())


def test_constants_are_freed_with_their_rope_or_the_caches(freed):
    make, memory = freed
    x = make(data(6, 32))
    kept = ra.Rope(ra.frequencies(32), pairing="half")
    before = []
    for _ in range(4):
        for _ in range(20):
            rope = ra.Rope(F, pairing="half")
            rope.apply(x, make(np.arange(6, dtype="int32")))
            rope.reposition(x, 5, 6)
            rope.reposition(x, 5, 6, source=kept)
        del rope
        before.append(memory())
    assert before[-1] - before[1] < 20, before
    kept.apply(x, make(np.arange(6, dtype="int32")))
    more = memory()
    ra.clear_caches()
    assert memory() < more


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda rope: pickle.loads(pickle.dumps(rope))])
def test_a_copied_rope_makes_its_own_constants(copied, lib, conversions):
    x, at, rope = lib(data(6, 32)), lib(np.arange(6), "int32"), ra.Rope(F, pairing="half")
    size = len(pickle.dumps(rope))
    expected = converted(conversions, lambda: lib.get(rope.apply(x, at)))
    assert len(pickle.dumps(rope)) == size
    other = copied(rope)
    assert other == rope and hash(other) == hash(rope)
    assert converted(conversions, lambda: lib.get(other.apply(x, at))) == expected


# --- kept for each dtype and mode -------------------------------------------------------------------------------------


def test_jax_tables_are_exact_if_x64_is_switched(jax):
    exact = ra.cos_sin(np.arange(6) + 1000, F, dtype="float64")
    before = jax.config.jax_enable_x64
    try:
        for x64 in (False, True, False, True):
            jax.config.update("jax_enable_x64", x64)
            for dtype in ("float32", *(["float64"] if x64 else [])):
                like = jax.numpy.asarray(data(6, 32, dtype=dtype))
                for at in (jax.numpy.arange(6) + 1000, jax.numpy.arange(6.0) + 1000):
                    for got, expected in zip(ROPE.table(at, like=like), exact, strict=True):
                        assert str(got.dtype) == dtype
                        bound = 1e-12 if dtype == "float64" else 1.3e-7
                        np.testing.assert_allclose(np.asarray(got), expected, rtol=0, atol=bound)
    finally:
        jax.config.update("jax_enable_x64", before)


def test_each_torch_dtype_has_its_own_constants(torch):
    for name in ("float32", "float64", "float32"):
        x = torch.from_numpy(data(6, 32, dtype=name))
        expected = ra.cos_sin(np.arange(6) + 1000, F, dtype="float64")
        for positions in (torch.arange(6) + 1000, torch.arange(6.0) + 1000):
            for got, exact in zip(ROPE.table(positions, like=x), expected, strict=True):
                np.testing.assert_allclose(got.numpy(), exact, rtol=0, atol=1.3e-7 if name == "float32" else 1e-12)


def test_constants_made_in_inference_mode_can_be_used_with_gradients(torch):
    x, at = torch.from_numpy(data(6, 32)), torch.arange(6.0)
    with torch.inference_mode():
        ROPE.apply(x, at)
    learned = at.clone().requires_grad_()
    ROPE.apply(x, learned).sum().backward()
    assert learned.grad.abs().sum() > 0
