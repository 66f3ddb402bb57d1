"""``fused=True``: compiled where the table in the docs says so, eager with one warning elsewhere, and never wrong."""

import re
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import rope_any as ra
from rope_any import _rotate
from rope_any._arrays import _compilers, _numba, find

PAGE = Path(__file__).parent.parent / "docs" / "fused.md"
F = ra.frequencies(12)
TOLERANCE = {"float16": 3e-3, "bfloat16": 3e-2, "float32": 1e-6, "float64": 1e-15}


@pytest.fixture
def without_numba(monkeypatch):
    """Go on as if Numba were not installed."""
    monkeypatch.setitem(sys.modules, "numba", None)
    _numba._why_not_imported.cache_clear()
    yield
    monkeypatch.undo()
    _numba._why_not_imported.cache_clear()
    ra.clear_caches()


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    """Let each test be warned anew, and forget what the compilers of others have refused."""
    monkeypatch.setattr(_compilers, "_WARNED", set())
    _rotate._compiled.cache_clear()
    ra.clear_caches()


def what_the_docs_say():
    """Return the table of the docs as {library: {dtype: cell}}."""
    (table,) = [
        part for part in PAGE.read_text(encoding="utf-8").split("\n\n") if part.startswith("| library | compiler")
    ]
    rows = [re.findall(r"[^|]+", line) for line in table.splitlines()]
    head, _, *body = [[cell.strip(" `") for cell in row] for row in rows]
    return {row[0]: dict(zip(head[2:], row[2:], strict=True)) for row in body}


def watched(function):
    """Return a result, and what was warned of on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return function(), [str(w.message) for w in caught if w.category is RuntimeWarning]


def close(lib, got, want, dtype):
    np.testing.assert_allclose(
        lib.get(got).astype(np.float64), lib.get(want).astype(np.float64), rtol=0, atol=TOLERANCE[dtype]
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_what_is_compiled_and_what_falls_back(lib, rng, pairing, dtype):
    if dtype not in lib.dtypes:
        pytest.skip(f"{lib.name} has no {dtype}")
    if lib.name in {"numpy", "dask"} or lib.name.startswith("torch"):
        pytest.importorskip("numba", reason="numba is not installed")
    name = next(name for name in what_the_docs_say() if lib.name.startswith(name))
    rope = ra.Rope(F, pairing=pairing, start=2)
    q, k = (lib(rng.uniform(-1, 1, (2, heads, 5, 16)), dtype) for heads in (4, 2))
    want = rope(q, k, 1000)
    (got, found), told = watched(lambda: (got := rope(q, k, 1000, fused=True), [lib.get(x) for x in got]))
    assert [x.dtype for x in got] == [q.dtype, k.dtype] and len(found) == 2
    for x, y in zip(got, want, strict=True):
        close(lib, x, y, dtype)
    assert bool(told) == (what_the_docs_say()[name][dtype] == "eager"), told
    assert len(told) <= 1 and all("falls back to the eager schedule" in message for message in told)
    undone, again = watched(lambda: rope.apply(got[0], 1000, inverse=True, fused=True))
    close(lib, undone, q, dtype)
    assert not again  # once is enough
    if lib.writes:
        (a, b), again = watched(lambda: rope(q, k, 1000, out=(q, k), fused=True))
        assert a is q and b is k and not again
        for x, y in zip((q, k), want, strict=True):
            close(lib, x, y, dtype)


def test_float32_is_compiled_wherever_a_library_has_a_compiler():
    said = what_the_docs_say()
    assert {name for name, row in said.items() if row["float32"] != "compiled"} == {"array-api-strict"}


# Arrays of more axes than Numba's loop has, tables for all, for batches and for rows, tokens before heads.
SHAPES = {
    "one row": ((), ()),
    "rows": ((7,), (7,)),
    "heads": ((3, 7), (7,)),
    "a table for each batch": ((2, 3, 7), (2, 1, 7)),
    "a table for each row": ((2, 3, 7), (2, 3, 7)),
    "five axes": ((2, 1, 3, 2, 7), (2, 1, 1, 1, 7)),
    "tokens before heads": ((2, 7, 3), (7, 1)),
    "nothing": ((2, 0, 7), (7,)),
}
VIEWS = {
    "as it comes": lambda x: x,
    "last axes swapped": lambda x: np.swapaxes(np.ascontiguousarray(np.swapaxes(x, 0, -2)), 0, -2) if x.ndim > 1 else x,
    "every other feature": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "part of a wider row": lambda x: np.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
}


@pytest.mark.parametrize("inverse", [False, True], ids=["forward", "inverse"])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_fused_equals_eager(library, shape, view, pairing, inverse):
    pytest.importorskip("numba", reason="numba is not installed")
    check_fused(library, shape, view, pairing=pairing, inverse=inverse, start=1)


@pytest.mark.usefixtures("without_numba")
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize(("shape", "view"), [("five axes", "part of a wider row"), ("heads", "every other feature")])
def test_without_numba_torch_compiles(shape, view, pairing):
    check_fused("torch", shape, view, pairing=pairing, start=1)


def check_fused(library, shape, view, **options):
    """Compare a compiled rotation with an eager one, and see that nothing was warned of."""
    put = np.asarray if library == "numpy" else pytest.importorskip("torch", reason="torch is not installed").from_numpy
    rng, (batch, tokens) = np.random.default_rng(0), SHAPES[shape]
    x = VIEWS[view](rng.uniform(-1, 1, (*batch, 16)).astype(np.float32))
    table = ra.cos_sin(rng.integers(0, 9999, tokens), F, dtype=np.float64)  # of another dtype than x
    x, cos, sin = (put(part) for part in (x, *table))
    got = ra.rotate(x, cos, sin, **options, fused=True)
    np.testing.assert_allclose(got, ra.rotate(x, cos, sin, **options), rtol=0, atol=1e-6)
    out = put(np.zeros(x.shape, dtype=np.float32))
    assert ra.rotate(x, cos, sin, **options, fused=True, out=out) is out
    np.testing.assert_array_equal(out, got)
    assert ra.rotate(x, cos, sin, **options, fused=True, out=x) is x
    np.testing.assert_array_equal(x, got)


def test_a_table_of_a_compiled_call_is_refused_like_that_of_an_eager_one():
    with pytest.raises(ValueError, match="must hold the 12 features"):
        ra.rotate(np.ones((2, 8)), *ra.cos_sin(np.arange(2), F), pairing="half", fused=True)
    with pytest.raises(TypeError, match="fused must be True or False"):
        ra.Rope(F, pairing="half").apply(np.ones((2, 16)), fused="yes")


@pytest.mark.usefixtures("without_numba")
def test_without_numba_the_way_to_it_is_told():
    x = np.ones((2, 12))
    with pytest.warns(RuntimeWarning, match="Numba, which is not installed .the extra numba"):
        got = ra.Rope(F, pairing="half").apply(x, fused=True)
    np.testing.assert_array_equal(got, ra.Rope(F, pairing="half").apply(x))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", ">f4", "float64"])
def test_tables_of_any_dtype(rng, dtype):
    pytest.importorskip("numba", reason="numba is not installed")
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    x = rng.uniform(-1, 1, (4, 12)).astype(np.float32)
    table = [part.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype) for part in ra.cos_sin(np.arange(4), F)]
    got, told = watched(lambda: ra.rotate(x, *table, pairing="half", fused=True))
    np.testing.assert_allclose(got, ra.rotate(x, *table, pairing="half"), rtol=0, atol=1e-6)
    assert not told


def test_a_loop_that_cannot_be_compiled_is_told_of_and_nothing_is_half_done(monkeypatch, rng):
    def failing(*_):
        raise NotImplementedError

    pytest.importorskip("numba", reason="numba is not installed")
    from rope_any._arrays import _loop

    monkeypatch.setattr(_loop, "loop", failing)
    rope, x = ra.Rope(F, pairing="half", start=1), rng.uniform(-1, 1, (4, 16))
    want = rope.apply(x)
    with pytest.warns(RuntimeWarning, match="Numba failed .NotImplementedError"):
        rope.apply(x, out=x, fused=True)
    np.testing.assert_array_equal(x, want)


def test_a_negative_bit_is_seen(rng):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rope = ra.Rope(F, pairing="half")
    x = torch._neg_view(torch.tensor(rng.uniform(-1, 1, (3, 12))))
    assert x.is_neg()
    with pytest.warns(RuntimeWarning, match="negative bit"):
        got = rope.apply(x, fused=True)
    assert torch.equal(got, rope.apply(x.clone()))
    every_other = torch.complex(x, x).conj().imag
    assert every_other.is_neg() and torch.equal(rope.apply(every_other, fused=True), rope.apply(-x))


def test_the_warning_points_at_the_call(rng):
    with pytest.warns(RuntimeWarning) as caught:
        ra.Rope(F, pairing="half").apply(rng.uniform(-1, 1, (3, 12)).astype(">f4"), fused=True)
    assert caught[0].filename == __file__


def test_a_call_under_a_transformation_stops_no_later_one(rng):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rope, x = ra.Rope(F, pairing="half"), torch.tensor(rng.uniform(-1, 1, (3, 12)))
    cos, sin = rope.table(range(3), like=x)
    with pytest.warns(RuntimeWarning, match="under a transformation"):
        torch.func.grad(lambda c: ra.rotate(x, c, sin, pairing="half", fused=True).sum())(cos)
    assert watched(lambda: rope.apply(x, fused=True))[1] == []
    # a parameter beside what vmap sees
    weight = torch.nn.Parameter(x.clone())
    for fused in (False, True):
        got = watched(lambda f=fused: torch.func.vmap(lambda v: rope.apply(weight, fused=f) @ v)(x))[0]
        torch.testing.assert_close(got, x @ rope.apply(x).T)


@pytest.mark.usefixtures("without_numba")
def test_a_compiler_that_fails_is_told_of_once_and_leaves_nothing_half_done(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def failing(_):
        def call(*_):
            calls.append(1)
            raise NotImplementedError

        return call

    calls = []
    lib = find(torch.ones(1))
    monkeypatch.setitem(vars(lib), "compiler", lib.compiler._replace(compile=failing))
    rope = ra.Rope(F, pairing="half")
    x = torch.ones(3, 400, 12)
    want = rope.apply(x)
    with pytest.warns(RuntimeWarning, match="compiler of torch failed .NotImplementedError"):
        rope.apply(x, out=x, fused=True)
    assert torch.equal(x, want)
    rope.apply(x, out=x, fused=True)
    assert len(calls) == 1


def test_numbers_of_another_byte_order_fall_back():
    pytest.importorskip("numba", reason="numba is not installed")
    x = np.arange(24.0).reshape(2, 12)
    with pytest.warns(RuntimeWarning, match="byte order"):
        got = ra.Rope(F, pairing="half").apply(x.astype(">f8"), fused=True)
    np.testing.assert_array_equal(got, ra.Rope(F, pairing="half").apply(x))


def test_under_transformations_of_torch(rng):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rope = ra.Rope(F, pairing="half")
    x = torch.tensor(rng.uniform(-1, 1, (3, 4, 5, 12)).astype(np.float32))
    with pytest.warns(RuntimeWarning, match="under a transformation"):
        got = torch.func.vmap(lambda row: rope.apply(row, fused=True))(x)
    assert torch.equal(got, rope.apply(x))
    # what is being compiled anyhow is compiled once
    torch.testing.assert_close(torch.compile(lambda x: rope.apply(x, fused=True), fullgraph=True)(x), rope.apply(x))


def test_gradients_pass_through(rng):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rope = ra.Rope(F, pairing="interleaved")
    x = torch.tensor(rng.uniform(-1, 1, (2, 5, 12)).astype(np.float32), requires_grad=True)
    g = torch.ones_like(x)
    (fused,), (eager,) = (torch.autograd.grad(rope.apply(x, 9, fused=f), x, g) for f in (True, False))
    torch.testing.assert_close(fused, eager, rtol=0, atol=1e-6)


def test_numba_is_called_from_many_threads(rng):
    pytest.importorskip("numba", reason="numba is not installed")
    rope = ra.Rope(F, pairing="half")
    x = rng.uniform(-1, 1, (4, 100, 12))
    results = []
    threads = [threading.Thread(target=lambda: results.append(rope.apply(x, fused=True))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    for result in results:
        np.testing.assert_allclose(result, rope.apply(x), rtol=0, atol=1e-15)
