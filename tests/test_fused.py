"""``fused=True``: compiled where the table in the docs says so, eager with one warning elsewhere, and never wrong."""

import os
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import rope_any as ra
from rope_any import _rotate, _table
from rope_any._arrays import _compilers, _numba, find
from rope_any._formula import rotate_component

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
    _table._compiled_table.cache_clear()
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
    assert len(calls) == 2  # for the table, and for the rotation


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
    rope = ra.Rope(ra.frequencies(512), pairing="half")  # wide rows, so that memory that is not their own would show
    x = rng.uniform(-1, 1, (2, 40, 512))
    want, results = rope.apply(x), []

    def call():
        results.extend(np.array_equal(rope.apply(x, fused=True), want) for _ in range(40))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 320


# --- the loop for the memory of a CPU ---------------------------------------------------------------------------------


@pytest.fixture(params=["numpy", "torch"])
def put(request):
    """Return what makes an array in the memory of a CPU of data."""
    pytest.importorskip("numba", reason="numba is not installed")
    if request.param == "numpy":
        return np.asarray
    return pytest.importorskip("torch", reason="torch is not installed").from_numpy


@pytest.mark.parametrize("layout", ["heads", "tokens first", "one head", "six axes"])
def test_threads_share_what_is_large(put, rng, monkeypatch, layout):
    shape = {"heads": (2, 8, 700, 24), "tokens first": (2, 700, 8, 24), "one head": (12000, 24)}.get(layout)
    x = put(rng.standard_normal(shape or (2, 1, 3, 2, 2, 500, 24), dtype=np.float32))
    rope, seq_axis, shares = ra.Rope(F, pairing="half", start=8), -3 if layout == "tokens first" else -2, []
    monkeypatch.setattr(_numba, "_share", lambda *of, share=_numba._share: shares.append(len(of[1])) or share(*of))
    lib, got = find(x), []
    for threads in (1, 2, 5):
        monkeypatch.setitem(vars(lib), "host", lib.host._replace(threads=lambda n=threads: n))
        ra.clear_caches()
        got.append(rope.apply(x, 7, fused=True, seq_axis=seq_axis))
    assert len(shares) == 2 and all(calls > 5 for calls in shares)
    for other in got[1:]:
        np.testing.assert_array_equal(other, got[0])
    np.testing.assert_allclose(got[0], rope.apply(x, 7, seq_axis=seq_axis), rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("count", [1, 3])
def test_rows_of_records_that_are_not_aligned(count, rng):
    pytest.importorskip("numba", reason="numba is not installed")
    x = np.zeros(count, dtype=[("tag", "u1"), ("row", "f4", (12,))])["row"]
    x[...] = rng.uniform(-1, 1, (count, 12))
    rope = ra.Rope(F, pairing="half")
    np.testing.assert_array_equal(rope.apply(x, 5, fused=True), rope.apply(x, 5))


def test_how_many_threads_numpy_gets(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert find(np.ones(1)).host.threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert find(np.ones(1)).host.threads() >= 1


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_all_numbers_of_half_precision_are_read_and_written_as_torch_does(dtype, pairing, rng):
    pytest.importorskip("numba", reason="numba is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    x = bits[torch.tensor(rng.permutation(2**16))].view(getattr(torch, dtype)).reshape(512, 128)
    table = ra.Rope(ra.frequencies(128), pairing=pairing).table(torch.arange(512))
    got, want = (ra.rotate(x, *table, pairing=pairing, fused=fused) for fused in (True, False))
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.nan_to_num(), want.nan_to_num())


def test_no_width_or_shape_compiles_anything_more(put, rng):
    from rope_any._arrays import _loop

    for pairs, shape in ((1, (3,)), (5, (2, 3)), (32, (2, 3, 4)), (64, ()), (300, (2, 1, 2)), (16, (1, 2, 3, 1, 4))):
        x, table = put(rng.standard_normal((*shape, 2 * pairs))), ra.Rope(ra.frequencies(2 * pairs), pairing="half")
        cos, sin = table.table(0, like=x)
        np.testing.assert_allclose(
            ra.rotate(x, cos, sin, pairing="half", fused=True), ra.rotate(x, cos, sin, pairing="half"), atol=1e-15
        )
    assert _loop.loop.cache_info().currsize <= 8  # four dtypes, two pairings


def test_torch_is_told_of_what_is_written(rng):
    pytest.importorskip("numba", reason="numba is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rope, x = ra.Rope(F, pairing="half"), torch.tensor(rng.uniform(-1, 1, (3, 12)))
    weight = torch.ones(12, dtype=x.dtype, requires_grad=True)
    product, before = (x * weight).sum(), x._version
    rope.apply(x, 5, out=x, fused=True)
    assert x._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_gradients_come_back_by_the_loop(rng, monkeypatch):
    pytest.importorskip("numba", reason="numba is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    loops, plan = [], _rotate.launcher
    monkeypatch.setattr(_rotate, "launcher", lambda kind, *rest: loops.append(kind) or plan(kind, *rest))
    x = torch.tensor(rng.uniform(-1, 1, (3, 12)), requires_grad=True)
    rope = ra.Rope(F, pairing="half")
    (gradient,) = torch.autograd.grad(rope.apply(x, 5, fused=True).sum(), x)
    assert [inverse for _, _, inverse in loops] == [False, True]
    torch.testing.assert_close(gradient, rope.apply(torch.ones_like(x), 5, inverse=True), rtol=0, atol=1e-15)


def test_a_mode_sees_what_is_done(rng):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    proxy = pytest.importorskip("torch.fx.experimental.proxy_tensor", reason="torch has no make_fx")
    rope, (x, y) = ra.Rope(F, pairing="half"), torch.tensor(rng.uniform(-1, 1, (2, 3, 12)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        graph = proxy.make_fx(lambda x: rope.apply(x, 5, fused=True), tracing_mode="real")(x)
    torch.testing.assert_close(graph(y), rope.apply(y, 5), rtol=0, atol=1e-15)


_AT_THE_END = """
import threading
import numpy as np
import rope_any as ra
rope, x = ra.Rope(ra.frequencies(128), pairing="half"), np.ones((8, 400, 128))
want = rope.apply(x, 5)

def late():
    threading.main_thread().join()
    print(np.array_equal(rope.apply(x, 5, fused=True), want))

threading.Thread(target=late).start()
"""


@pytest.mark.thread_unsafe(reason="starts processes")
def test_a_thread_that_outlives_the_first_one_does_it_alone():
    pytest.importorskip("numba", reason="numba is not installed")
    command = [sys.executable, "-c", _AT_THE_END]
    run = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "2"}, timeout=300
    )
    assert run.stdout == "True\n"


_PROCESS = """
import os, sys
import numpy as np
import rope_any as ra
if "nowhere" in sys.argv:  # there is no place for what is compiled
    from numba.core import caching
    for kind in vars(caching).values():
        if hasattr(kind, "_locator_classes"):
            kind._locator_classes = []
rope, x = ra.Rope(ra.frequencies(128), pairing="half"), np.random.default_rng(0).standard_normal((8, 400, 128))
want = rope.apply(x, 5)
assert np.array_equal(rope.apply(x, 5, fused=True), want)
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(rope.apply(x, 5, fused=True), want) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def run_alone(*words, **environment):
    """Return what a process that calls the loop printed."""
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", _PROCESS, *words]
    variables = {**os.environ, "OMP_NUM_THREADS": "3", **environment}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.thread_unsafe(reason="starts processes")
def test_a_second_process_finds_the_loop_on_the_disk(tmp_path):
    pytest.importorskip("numba", reason="numba is not installed")
    first, second = (run_alone(NUMBA_CACHE_DIR=str(tmp_path), NUMBA_DEBUG_CACHE="1") for _ in range(2))
    kept = re.findall(r"data saved to '(.*_rotate_halves_\w+-\d+.*)'", first)
    assert len(kept) == 1 and "data loaded" not in first
    assert "data loaded" in second and "data saved" not in second
    from rope_any._arrays import _loop

    assert _loop.version(rotate_component) in kept[0]  # a changed formula has another name


@pytest.mark.thread_unsafe(reason="starts processes")
def test_where_nothing_can_be_written_the_loop_is_compiled_all_the_same():
    pytest.importorskip("numba", reason="numba is not installed")
    run_alone("nowhere")


@pytest.mark.thread_unsafe(reason="starts processes")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_has_threads_of_its_own():
    pytest.importorskip("numba", reason="numba is not installed")
    run_alone("fork")
