"""Tables: the bounds of exactness on every library, shapes, dtypes and forms of positions."""

import numpy as np
import oracle
import pytest
from cases import python
from oracle import mp

import rope_any as ra

F = ra.frequencies(128, base=500_000.0)
INTEGER_BOUND = 1.2e-7
LARGEST = 2**31 - 1


def error(lib, table, exact):
    """Return the largest error of a table."""
    return max(np.abs(lib.get(a).astype(np.float64) - b).max() for a, b in zip(table, exact, strict=True))


def positions(rng, count=24):
    """Return positions of all magnitudes and both signs, with the largest."""
    random = rng.integers(-LARGEST, LARGEST, count)
    small = random[: count // 2] >> rng.integers(0, 31, count // 2)
    return np.concatenate([[0, 1, -1, 131_072, 1_048_576, 2**24 + 1, LARGEST, -LARGEST], random, small])


# --- integer positions ------------------------------------------------------------------------------------------------


ANY_SIZE_AND_SIGN = (0.0, -0.25, 3.0, 2 * np.pi, 1e-12, 100.0, 12345.678, 65536.0)


@pytest.mark.parametrize("f", [ra.frequencies(128), F, ra.frequencies(128, base=7.0), ANY_SIZE_AND_SIGN])
def test_integer_positions_are_exact_up_to_2_31(lib, rng, f):
    p = positions(rng)
    table = ra.cos_sin(lib(p, "int32"), f)
    assert table.cos.dtype == lib.dtype("float32")
    assert error(lib, table, oracle.cos_sin(p, f)) <= INTEGER_BOUND


def phases(count, rng, p=None):
    """Return positions, frequencies and their exact table; too many phases to compute in 60 digits."""
    multiples = np.asarray([170_891_318, 5_000_321, 99_991, 1_234, 1])  # of 2π / 2³⁰, near the frequencies
    f = tuple(float(n) * 2 * np.pi / 2**30 for n in multiples)
    rest = [float(mp.mpf(v) - 2 * mp.pi * int(n) / 2**30) for v, n in zip(f, multiples, strict=True)]  # rounding
    p = np.append(rng.integers(-LARGEST, LARGEST, count), [0, 1, -1, LARGEST, -LARGEST]) if p is None else p
    angle = p[:, None] * multiples % 2**30 * (2 * np.pi / 2**30) + p[:, None] * np.asarray(rest)
    return p, f, (np.cos(angle), np.sin(angle))


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize(
    ("schedule", "count"),
    [
        ("eager", 20_000),
        ("compiled", 20_000),
        *(pytest.param(name, 3_000_000, marks=pytest.mark.slow) for name in ("eager", "compiled", "fused")),
    ],
)
def test_many_phases_stay_within_the_bound(lib, rng, schedule, count):
    lib.need(compiler=schedule == "compiled")
    p, f, exact = phases(count, rng)
    make = lib.compile if schedule == "compiled" else lambda g: g
    table = make(lambda p: ra.cos_sin(p, f, fused=schedule == "fused"))(lib(p, "int32"))
    assert error(lib, table, exact) <= INTEGER_BOUND


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("fused", [False, True])
def test_millions_of_consecutive_phases_stay_within_the_bound(lib, rng, fused):
    like, rope, lengths = lib([0.0], "float32"), None, rng.integers(1, 2000, 30)  # JAX compiles for each length
    for _ in range(3000):
        first, count = int(rng.integers(-LARGEST, LARGEST)), int(rng.choice(lengths))
        span = range(first, min(first + count, LARGEST))
        _, f, exact = phases(0, rng, np.arange(span.start, span.stop))
        rope = rope or ra.Rope(f, pairing="half")
        assert error(lib, rope.table(span, like=like, fused=fused), exact) <= INTEGER_BOUND


def test_tables_beyond_the_bound_are_still_rotations(lib):
    lib.need(dtype="float64")
    far = [2**33 + 1, 2**46 + 1, 2**52 + 1, 2**62 + 1]
    for dtype in ("int64", "float64", "float32"):
        table = ra.cos_sin(lib(far, dtype), F, dtype=lib.dtype("float32"))
        cos, sin = (lib.get(part).astype(np.float64) for part in table)
        np.testing.assert_allclose(cos**2 + sin**2, 1, atol=1e-6)
    table = ra.cos_sin(lib([2**33 + 1]), F)
    assert error(lib, table, oracle.cos_sin(np.asarray([2**33 + 1]), F)) <= 2e-6


# --- real positions and float64 tables --------------------------------------------------------------------------------


def test_real_positions_are_exact_up_to_2_24(lib, rng):
    p = np.concatenate([rng.uniform(-(2**24), 2**24, 24), rng.uniform(-100, 100, 24), [0.5, -0.5, 1.5]])
    bound = 2.5e-7 if lib.has_float64 else 2e-6
    for dtype in {"float32", "float64"} & {*lib.dtypes}:
        given = lib(p, dtype)
        table = ra.cos_sin(given, F)
        assert table.cos.dtype == lib.dtype(dtype)
        assert error(lib, table, oracle.cos_sin(lib.get(given).astype(np.float64), F)) <= bound, dtype
    on_host = ra.cos_sin(p.tolist(), F, like=lib([0.0], "float32"))  # whose fractions float32 cannot represent
    assert error(lib, on_host, oracle.cos_sin(p, F)) <= bound


def test_float64_tables_are_exact(lib, rng):
    if not lib.has_float64:
        with pytest.raises(ValueError, match=r"dtype .*float64"):
            ra.cos_sin(lib([1, 2], "int32"), F, dtype=np.float64)
        return
    for p in (positions(rng), rng.uniform(-1e6, 1e6, 40)):
        table = ra.cos_sin(lib(p), F, dtype=lib.dtype("float64"))
        assert table.cos.dtype == lib.dtype("float64")
        bound = 1e-15 * (1 + np.abs(np.multiply.outer(p, F)))
        for got, expected in zip(table, oracle.cos_sin(p, F), strict=True):
            assert (np.abs(lib.get(got) - expected) <= bound).all()


# --- what frequencies and positions may be ----------------------------------------------------------------------------


def test_positions_can_have_every_integer_dtype(lib):
    for dtype in lib.integers:
        info = np.iinfo(dtype)
        p = np.asarray([0, 1, 100, max(info.min, -LARGEST), min(info.max, LARGEST)])
        assert error(lib, ra.cos_sin(lib(p, dtype), F), oracle.cos_sin(p, F)) <= INTEGER_BOUND, dtype


def test_half_precision_positions_are_refused(lib):
    for dtype in {"float16", "bfloat16"} & {*lib.dtypes}:
        for call in (lambda p: ra.cos_sin(p, F), ra.Rope(F, pairing="half").table, ra.positions.unrotated):
            with pytest.raises(TypeError, match=f"must be integers, float32 or float64; got an array of {dtype}"):
                call(lib([0.0, 1.0], dtype))


def test_nan_positions_give_nan():
    cos, sin = ra.cos_sin(np.asarray([1.0, np.nan]), (1.0,), dtype=np.float32)
    assert np.isnan(cos[1]).all()
    assert np.isnan(sin[1]).all()
    assert np.isfinite(cos[0]).all()


@pytest.mark.parametrize("given", [5, range(10, -10, -4), [7, -2, 2**31 - 1], (1,), [[0, 1], [5, 6]], np.int64(4), []])
def test_host_positions_are_accepted(lib, given):
    table = lib.quick(lambda like: ra.cos_sin(given, F, like=like))(lib([1.0], "float32"))
    host = np.asarray(given)
    assert tuple(table.cos.shape) == tuple(table.sin.shape) == (*host.shape, len(F))
    assert not host.size or error(lib, table, oracle.cos_sin(host, F)) <= INTEGER_BOUND


@pytest.mark.parametrize("given", [range(2**53 - 1, 2**53 + 1), [2**40, -(2**53)]])
def test_host_positions_reach_the_integers_of_float64(given):
    table = ra.cos_sin(given, F, like=np.ones(1, np.float32))
    np.testing.assert_allclose(table, ra.cos_sin(np.asarray(given), F), rtol=0, atol=INTEGER_BOUND)


def test_positions_can_have_any_shape(lib, rng):
    for shape in [(), (0,), (3,), (2, 3), (2, 1, 3)]:
        p = rng.integers(-1000, 1000, shape)
        given = lib(p, "int32")
        cos, sin = lib.quick(lambda p: ra.cos_sin(p, F))(given)
        assert tuple(cos.shape) == tuple(sin.shape) == (*shape, 64)
        assert type(cos) is type(given) and getattr(sin, "device", None) == getattr(given, "device", None)
        if p.size:
            assert error(lib, (cos, sin), oracle.cos_sin(p, F)) <= INTEGER_BOUND


def test_several_axes_add_their_angles(lib, rng):
    # angle[token, pair] = Σ_axis position[token, axis] · W[axis, pair]
    rows = ((*F[:3], 0.0, 0.5), (0.0, 0.25, 0.0, 2.0, 0.001))
    p = rng.integers(-LARGEST, LARGEST, (7, 2), dtype=np.int32)
    for given, bound in ((p, INTEGER_BOUND), ((p % 1000 / 7).astype(np.float32), 2.5e-7)):
        cos, sin, _ = oracle.table(given, rows)
        assert error(lib, ra.cos_sin(lib(given), rows), (cos, sin)) <= bound


# --- factor and dtype -------------------------------------------------------------------------------------------------


def test_attention_factor_multiplies_the_table(lib):
    p = np.asarray([5, 70_000])
    cos, sin = oracle.cos_sin(p, F)
    for factor in (1.25, 2.0):
        table = ra.cos_sin(lib(p, "int32"), F, attention_factor=factor)
        assert error(lib, table, (factor * cos, factor * sin)) <= 2 * factor * 1.2e-7


def test_positions_and_like_decide_the_dtype_but_for_half_precision(lib):
    p, half, wide = lib([3, 1000], "int32"), lib([1.0], lib.dtypes[0]), lib([1.5], lib.dtypes[-1])
    for table in (ra.cos_sin(p, F), ra.cos_sin(p, F, like=half), ra.cos_sin(wide, F, like=lib([1.0], "float32"))):
        assert table.cos.dtype == lib.dtype("float32")
    for table in (ra.cos_sin(wide, F), ra.cos_sin([1.5], F, like=wide)):
        assert table.cos.dtype == lib.dtype("float64" if lib.has_float64 else "float32")
    if lib.dtypes[0] == "float16":
        table = ra.cos_sin(p, F, dtype=lib.dtype("float16"))
        assert table.cos.dtype == lib.dtype("float16")
        assert error(lib, table, oracle.cos_sin(np.asarray([3, 1000]), F)) <= 2.5e-4


def test_a_dtype_of_numpy_is_refused_by_a_library_that_has_its_own():
    strict = pytest.importorskip("array_api_strict")
    with pytest.raises(TypeError, match=r"dtype must be .* got float16"):
        ra.cos_sin([0, 1], (1.0,), like=strict.asarray([1.0]), dtype=np.float16)


def test_high_halves_of_products_are_exact_in_32_bits(rng):
    # The last of these bits is below the error of a table, so that no table shows it.
    from rope_any._exact import _high_product

    n = np.concatenate([rng.integers(-(2**31), 2**31, 2000), [0, 1, -1, 2**31 - 1, -(2**31)]]).astype(np.int32)
    words = [*rng.integers(-(2**63), 2**63, 50).tolist(), 0, 1, -1, 2**63 - 1, -(2**63), 2**32, 2**16 - 1]
    parts = ([word >> 32 for word in words], *([word >> k & 0xFFFF for word in words] for k in (16, 0)))
    high = _high_product(n[:, None], *(np.asarray(part, dtype=np.int32) for part in parts))
    expected = [[(p * word >> 32) + 2**31 & 2**32 - 1 for word in words] for p in n.tolist()]
    np.testing.assert_array_equal(high.astype(np.int64) + 2**31, expected)


# --- frequencies ------------------------------------------------------------------------------------------------------


def test_learned_frequencies_are_exact_on_every_library(lib):
    p = np.asarray([0, 3, 500])
    dtype = "float64" if lib.has_float64 else "float32"
    table = ra.cos_sin(lib(p, "int32"), lib(F, dtype), dtype=lib.dtype("float32"))
    assert error(lib, table, oracle.cos_sin(p, F)) <= (INTEGER_BOUND if lib.has_float64 else 1e-4)
    if lib.has_float64:  # also far: the angle is reduced to a turn before the float32 cosine
        p = np.asarray([1_048_575, 2**24 + 1])
        table = ra.cos_sin(lib(p), lib(F, dtype), dtype=lib.dtype("float32"))
        assert error(lib, table, oracle.cos_sin(p, F)) <= 2e-7
    else:  # the cosine is that of the float32 angle
        angle = (p.astype(np.float32)[:, None] * np.asarray(F, np.float32)).astype(float)
        assert error(lib, table, (np.cos(angle), np.sin(angle))) <= 2e-7
    rows = lib([F, F], dtype)
    table = ra.cos_sin([[0, 3], [1, 2]], rows, like=rows, dtype=lib.dtype("float32"))
    assert error(lib, table, oracle.cos_sin(np.asarray([3, 3]), F)) <= 1e-6


def test_frequencies_equal_those_of_the_paper():
    assert ra.frequencies(4) == (1.0, 0.01)
    assert ra.frequencies(6, base=8.0) == pytest.approx((1.0, 0.5, 0.25), rel=1e-15)
    assert all(isinstance(f, float) for f in ra.frequencies(128))


_FIRST = """
import torch
sizes = []
for name in ("cos", "sin"):
    def watched(x, function=getattr(torch, name)):
        sizes.append((x.numel(), str(x.dtype)))
        return function(x)
    setattr(torch, name, watched)
import rope_any as ra
ra.cos_sin(torch.arange(4096), ra.frequencies(128))
few = [dtype for n, dtype in sizes[:4] if n == 1]
print(sorted(few), max(n for n, _ in sizes) > 1000)
"""


@pytest.mark.long
@pytest.mark.thread_unsafe(reason="starts processes")
def test_mkl_trig_is_initialised_in_one_thread():
    pytest.importorskip("torch", reason="torch is not installed")
    dtypes = "['torch.float32', 'torch.float32', 'torch.float64', 'torch.float64']"
    assert python("-c", _FIRST) == f"{dtypes} True\n"
