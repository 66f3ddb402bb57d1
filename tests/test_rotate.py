"""`rotate` on every library: exact to the last bits for any dtype, shape, strides and output."""

import warnings
from functools import partial
from itertools import permutations, product

import numpy as np
import oracle
import pytest
from bits import PAIRINGS, each_pairing
from conftest import one_jax

import rope_any as ra

# Largest error of an entry of a rotated pair of length up to about 4, per dtype: the table's error and two
# roundings of the products, then one rounding to the dtype itself.
TOLERANCE = {"float16": 3e-3, "bfloat16": 2e-2, "float32": 1.5e-6, "float64": 3e-15}
F = ra.frequencies(16, base=100.0)
pairing = each_pairing


def table(lib, positions, dtype="float32", frequencies=F):
    """Return an exact table, from the oracle and not from `cos_sin`."""
    cos, sin = oracle.cos_sin(positions, frequencies)
    wide = "float64" if dtype == "float64" else "float32"
    return lib(cos, wide), lib(sin, wide)


def draw(rng, shape):
    """Return normally distributed numbers, clipped."""
    return np.clip(rng.standard_normal(shape), -2.5, 2.5)


def check(lib, got, x, expected, dtype):
    """Check the type, dtype, shape and values of a result."""
    assert (type(got), got.dtype, tuple(got.shape)) == (type(x), x.dtype, tuple(x.shape))
    np.testing.assert_allclose(lib.get(got).astype(np.float64), expected, rtol=0, atol=TOLERANCE[dtype])


# --- values -----------------------------------------------------------------------------------------------------------


def test_every_dtype_is_rotated_within_its_tolerance(lib, rng, pairing):
    p = np.asarray([0, 1, 2, 40, 1000])
    for dtype in lib.dtypes:
        x = lib(draw(rng, (2, 3, 5, 16)), dtype)
        before, got = lib.get(x).copy(), ra.rotate(x, *table(lib, p, dtype), pairing=pairing)
        expected = oracle.rotate(before, p, F, pairing=pairing)
        check(lib, got, x, expected, dtype)
        assert (lib.get(x) == before).all()
        assert 0 in ra.rotate(lib(before[:1, 0, :1, :])[:0, ...], *table(lib, p[:1], dtype), pairing=pairing).shape
        if unit := {"float16": 2**-11, "bfloat16": 2**-8}.get(dtype):  # rounded once, since products are of float32
            np.testing.assert_array_less(np.abs(lib.get(got).astype(float) - expected), unit * np.abs(expected) + 2e-6)


@one_jax
@pytest.mark.parametrize(("features", "start"), [(17, 0), (17, 1), (24, 8), (40, 3), (16, 0)])
def test_pass_through_features_are_kept(lib, rng, features, start, pairing):
    x, p = draw(rng, (3, features)).astype(np.float32), np.asarray([3, 1, -7])
    got = ra.rotate(lib(x), *table(lib, p), pairing=pairing, start=start)
    check(lib, got, lib(x), oracle.rotate(x, p, F, pairing=pairing, start=start), "float32")
    passing = np.r_[0:start, start + 16 : features]
    assert (lib.get(got)[:, passing] == x[:, passing]).all()


@one_jax
@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((16,), ()),  # one vector
        ((5, 16), (5,)),
        ((2, 3, 5, 16), (5,)),  # heads before tokens
        ((2, 5, 3, 16), (5, 1)),  # tokens before heads
        ((2, 3, 5, 16), (2, 1, 5)),  # each row of a batch by itself
        ((2, 3, 5, 16), (2, 3, 5)),  # each head by itself
        ((2, 1, 2, 1, 3, 16), (1, 1, 3)),
        ((4, 16), (1,)),
        ((0, 16), (0,)),  # no token
        ((0, 3, 16), (3,)),  # no batch
        ((2, 0, 16), (1,)),
    ],
)
def test_any_leading_axes_broadcast(lib, rng, shape, rows, pairing):
    x, p = draw(rng, shape).astype(np.float32), rng.integers(-50, 50, rows)
    rotate = lib.quick(partial(ra.rotate, pairing=pairing))
    if x.size:
        got = rotate(lib(x), *table(lib, p))
        check(lib, got, lib(x), oracle.rotate(x, p, F, pairing=pairing), "float32")
    else:
        empty = lib(np.zeros((*rows, 8)), "float32")
        got = rotate(lib(x), empty, empty)
        assert tuple(got.shape) == shape
        assert got.dtype == lib.dtype("float32")


# --- outputs and memory -----------------------------------------------------------------------------------------------


def test_out_and_in_place_equal_a_new_array(lib, rng, pairing):
    x, (cos, sin) = draw(rng, (2, 3, 16)).astype(np.float32), table(lib, np.asarray([4, 5, 6]))
    expected = oracle.rotate(x, [4, 5, 6], F, pairing=pairing)
    if not lib.mutable:
        with pytest.raises(ValueError, match=r"out must .* elements cannot be assigned; leave out `out`"):
            ra.rotate(lib(x), cos, sin, pairing=pairing, out=lib(x))
        return
    given, out = lib(x), lib(np.full_like(x, np.nan))
    assert ra.rotate(given, cos, sin, pairing=pairing, out=out) is out
    check(lib, out, given, expected, "float32")
    assert (lib.get(given) == x).all()
    assert ra.rotate(given, cos, sin, pairing=pairing, out=given) is given
    check(lib, given, given, expected, "float32")


def test_an_output_keeps_its_order_in_memory(lib, rng, pairing):
    x, factors = lib(draw(rng, (2, 3, 4, 16)).astype(np.float32)), table(lib, np.arange(4))
    expected = lib.get(ra.rotate(x, *factors, pairing=pairing))
    for axes in permutations(range(4)) if lib.mutable else ():
        permute = getattr(lib.xp, "permute_dims", None) or lib.xp.permute  # torch has the other name
        out = permute(lib(np.zeros([x.shape[axis] for axis in axes]), "float32"), np.argsort(axes).tolist())
        assert ra.rotate(x, *factors, pairing=pairing, out=out) is out
        np.testing.assert_array_equal(lib.get(out), expected)


@pytest.mark.parametrize("fused", [False, True])
def test_an_output_of_another_dtype_gets_the_products_rounded_once(lib, rng, pairing, fused):
    ones = np.ones((1, 16))
    for dtype, to in permutations(lib.dtypes if lib.mutable else (), 2):
        options = {"pairing": pairing, "fused": fused}
        if dtype == "float64" and to.endswith("float16"):
            with pytest.raises(ValueError, match=f"out must have 32 or 64 bits .*; got {to}; cast x to float32"):
                ra.rotate(lib(ones, dtype), *table(lib, [1]), **options, out=lib(ones, to))
        elif not fused or {dtype, to} in ({"float32", "bfloat16"}, {"float16", "bfloat16"}):  # each pair is compiled
            for shape in ((3, 21), (3, 16), (1300, 3, 16)):
                x, factors = lib(draw(rng, shape), dtype), table(lib, np.arange(3), dtype)
                unrounded = lib(lib.get(x).astype("float64" if dtype == "float64" else "float32"))
                out = lib(np.zeros(shape), to)
                with warnings.catch_warnings(action="ignore"):  # of libraries without a compiler
                    once = lib.get(ra.rotate(unrounded, *factors, **options))
                    assert ra.rotate(x, *factors, **options, out=out) is out
                np.testing.assert_array_equal(lib.get(out), lib.get(lib(once, to)))


@pytest.mark.parametrize("features", [16, 21])
def test_non_contiguous_read_only_and_strided_arrays_are_rotated(rng, pairing, features):
    p = np.asarray([4, -5, 6])
    cos, sin = oracle.cos_sin(p, F)
    base = draw(rng, (2, 2 * features, 3))
    views = {
        "transposed": np.moveaxis(base[:, :features], 1, 2),
        "every other feature": np.moveaxis(base, 1, 2)[..., ::2],
        "backwards": np.ascontiguousarray(np.moveaxis(base, 1, 2))[..., features - 1 :: -1],
        "broadcast": np.broadcast_to(draw(rng, (1, 1, features)), (2, 3, features)),
        "fortran": np.asfortranarray(draw(rng, (2, 3, features))),
        "read-only": draw(rng, (2, 3, features)),
    }
    views["big-endian"] = views["read-only"].astype(">f8")
    views["read-only"].flags.writeable = False
    for name, x in views.items():
        expected = oracle.rotate(x, p, F, pairing=pairing)
        got = ra.rotate(x, cos, sin, pairing=pairing)
        assert got.dtype == x.dtype, name
        np.testing.assert_allclose(got, expected, atol=3e-15, rtol=0, err_msg=name)
        if x.flags.writeable and name != "broadcast":
            assert ra.rotate(x, cos, sin, pairing=pairing, out=x) is x
            np.testing.assert_allclose(x, expected, atol=3e-15, rtol=0, err_msg=f"{name}, in place")


@pytest.mark.parametrize("blocks", [1, 2])
def test_byte_order_of_pass_through_features_is_kept(rng, pairing, blocks):
    x = draw(rng, (3, 21)).astype(">f4")
    rope = ra.Rope(F, pairing=pairing, blocks=blocks)
    got = rope.apply(x, 5)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, rope.apply(x.astype("=f4"), 5))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_another_view_of_the_same_elements_can_be_the_output(name, pairing, fused, rng):
    xp = pytest.importorskip(name)
    if fused:
        pytest.importorskip("numba", reason="numba is not installed")
    full = xp.asarray(draw(rng, (3, 4, 32)).astype(np.float32))
    cos, sin = (xp.asarray(part.astype(np.float32)) for part in oracle.cos_sin(np.arange(4), F))
    for start, width in ((0, 16), (0, 24), (3, 24)):
        x, out = full[:1, :, :width], full[::2][:1, :, :width]  # the strides of the first axis differ
        given, strides = np.asarray(x).copy(), [np.asarray(view).strides for view in (x, out)]
        assert strides[0] != strides[1]
        options = {"pairing": pairing, "start": start, "fused": fused}
        expected = np.asarray(ra.rotate(xp.asarray(given), cos, sin, **options))
        assert ra.rotate(x, cos, sin, **options, out=out) is out
        np.testing.assert_array_equal(np.asarray(x), expected)
    rope = ra.Rope(F, pairing=pairing)  # q and k in one call, k of one token of a longer buffer
    q, k = full[:1, :1, :24], full[1:2, :1, :24]
    expected = rope(*(xp.asarray(np.asarray(x).copy()) for x in (q, k)), 7, fused=fused)
    outs = full[::2][:1, :1, :24], full[1::2][:1, :1, :24]
    rope(q, k, 7, fused=fused, out=outs)
    for x, wanted in zip((q, k), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(wanted))


@pytest.mark.parametrize("tokens", [1, 20_000])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_lazily_negated_tensors_are_read_and_never_written(dtype, tokens, rng, torch):
    from torch import _neg_view  # torch has no public name for it

    rope = ra.Rope(F, pairing="half", start=2)
    x = torch.from_numpy(draw(rng, (4, tokens, 24))).to(getattr(torch, dtype))
    table, memory = rope.table(range(tokens), like=x), x.clone()
    expected = rope.apply(-x, table)
    assert torch.equal(rope.apply(_neg_view(x), table), expected)
    assert torch.equal(rope.apply(_neg_view(memory), table, out=memory), expected)
    negated = rope.apply(x, ra.Table(*map(_neg_view, table)))
    torch.testing.assert_close(negated[..., 2:18], expected[..., 2:18], rtol=0, atol=0)
    for given in (x, _neg_view(memory)):
        with pytest.raises(ValueError, match=r"out .* negative bit"):
            rope.apply(given, table, out=_neg_view(memory))
    assert torch.equal(memory, expected)


# --- precision --------------------------------------------------------------------------------------------------------


def test_tables_can_have_another_precision(lib, rng):
    x = draw(rng, (3, 16))
    p = np.asarray([1, 2, 3])
    for dtype in lib.dtypes:
        for table_dtype in lib.dtypes:
            cos, sin = (lib(part, table_dtype) for part in oracle.cos_sin(p, F))
            got = ra.rotate(lib(x, dtype), cos, sin, pairing="half")
            expected = oracle.rotate(lib.get(lib(x, dtype)).astype(np.float64), p, F, pairing="half")
            atol = max(TOLERANCE[dtype], 3 * TOLERANCE[table_dtype])
            assert got.dtype == lib.dtype(dtype)
            np.testing.assert_allclose(lib.get(got).astype(np.float64), expected, rtol=0, atol=atol)


def test_numpy_subclasses_are_rotated(tmp_path, rng):
    x = np.memmap(tmp_path / "x.bin", dtype=np.float32, mode="w+", shape=(3, 16))
    x[...] = data = draw(rng, (3, 16)).astype(np.float32)
    cos, sin = (part.astype(np.float32) for part in oracle.cos_sin(np.arange(3), F))
    ra.rotate(x, cos, sin, pairing="half", out=x)
    np.testing.assert_allclose(x, oracle.rotate(data, np.arange(3), F, pairing="half"), atol=1.5e-6, rtol=0)
    for pairing, count in ((pairing, count) for pairing in PAIRINGS for count in (1, 20_000)):
        wide = np.broadcast_to(x[:1], (count, 16)).view(np.memmap)  # of any size, the result is an array
        assert type(ra.rotate(wide, cos[:1], sin[:1], pairing=pairing)) is np.ndarray


def test_torch_sliding_windows_are_rotated(rng):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    windows = torch.from_numpy(rng.standard_normal(64)).unfold(0, 32, 2)[:5]
    for pairing in PAIRINGS:
        rope = ra.Rope(ra.frequencies(32), pairing=pairing)
        np.testing.assert_array_equal(rope.apply(windows), rope.apply(windows.contiguous()))


# --- other tokens; NumPy and torch, fused too, are in test_batch_invariance.py --------------------------------------


@one_jax
def test_a_token_does_not_depend_on_other_tokens(lib, pairing, rng):
    rope = ra.Rope(ra.frequencies(70), pairing=pairing, start=1)
    x, positions = rng.uniform(-1, 1, (2, 3, 40, 73)).astype("float32"), rng.integers(0, 2**20, 40)
    cos, sin = map(lib.get, rope.table(lib(positions, "int32")))

    def rotated(*index):
        """Return some tokens, rotated."""
        table = (lib(part[index[-1]]) for part in (cos, sin))
        return lib.get(ra.rotate(lib(x[index]), *table, pairing=pairing, start=1))

    full = rotated(slice(None), slice(None), slice(None))
    for index in ((slice(1, 2), slice(2, 3), slice(17, 18)), (slice(2), slice(1), slice(9, 24))):
        np.testing.assert_array_equal(rotated(*index), full[index])
        tables = map(lib.get, rope.table(lib(positions[index[-1]], "int32")))
        for part, full_part in zip(tables, (cos, sin), strict=True):
            np.testing.assert_array_equal(part, full_part[index[-1]])


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_new_arrays_in_cpu_memory_lie_in_it_as_x_does(name, fused, pairing):
    xp = pytest.importorskip(name)
    for axes, tokens, pairs in product(permutations(range(4)), (3, 700), (8, 16)):
        shape, back = (2, 3, tokens, 32), np.argsort(axes).tolist()
        x = xp.asarray(np.ones([shape[axis] for axis in axes], np.float32).transpose(back))
        rope = ra.Rope((0.5,) * pairs, pairing=pairing)
        for got in (rope.apply(x, fused=fused), *rope(x[:, :1], x, 7, fused=fused)):
            like = xp.empty_like(x[:, : got.shape[1]])
            own, wanted = (np.asarray(part).strides for part in (got, like))
            assert all(a == b for a, b, n in zip(own, wanted, got.shape, strict=True) if n > 1)
