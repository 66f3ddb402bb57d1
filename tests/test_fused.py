"""``fused=True``: compiled as documented, otherwise eager with one warning, and always exact."""

import mmap
import os
import re
import shutil
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import oracle
import pytest
from bits import VIEWS, cpu_arrays, each_pairing, thread_count
from cases import python
from simulated import forget_fallbacks, hide_numba
from test_table import LARGEST as FAR
from test_table import phases, positions

import rope_any as ra

PAGE = Path(__file__).parent.parent / "docs" / "fused.md"
F = ra.frequencies(12)
ROPE = ra.Rope(F, pairing="half")
arrays, pairing, use_threads = cpu_arrays, each_pairing, thread_count
TOLERANCE = {"float16": 3e-3, "bfloat16": 3e-2, "float32": 1e-6, "float64": 1e-15}


@pytest.fixture
def without_numba(monkeypatch):
    """Pretend that Numba is not installed."""
    hide_numba(monkeypatch)
    yield
    monkeypatch.undo()
    forget_fallbacks(monkeypatch)


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    """Let each test get its own warnings, and forget earlier compiler failures."""
    forget_fallbacks(monkeypatch)


def each_loop(*dtypes):
    """Return a decorator that runs a test for each pairing and dtype: each has a loop, compiled in five seconds."""
    loops = [(pairing, dtype) for pairing in ("half", "interleaved") for dtype in dtypes]
    few = {("half", dtype) for dtype in dtypes} | {("interleaved", "float32")}
    marked = [loop if loop in few else pytest.param(*loop, marks=pytest.mark.long) for loop in loops]
    return pytest.mark.parametrize(("pairing", "dtype"), marked)


# --- compiled, or a fallback with a warning ---------------------------------------------------------------------------


def documented():
    """Return the table of the docs as {library: {dtype: cell}}."""
    _, table = PAGE.read_text(encoding="utf-8").split("\n\n| library | compiler", 1)
    lines = f"library | compiler{table}".partition("\n\n")[0].splitlines()
    head, _, *body = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(head[2:], row[2:], strict=True)) for row in body}


def result_and_warnings(function):
    """Return the result of a function and the messages of its RuntimeWarnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return function(), [str(w.message) for w in caught if w.category is RuntimeWarning]


def assert_close(lib, got, expected, dtype):
    """Compare arrays of a library within the tolerance of a dtype."""
    got, expected = (lib.get(x).astype(np.float64) for x in (got, expected))
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE[dtype])


@each_loop(*TOLERANCE)
def test_each_library_and_dtype_is_compiled_or_falls_back_as_documented(lib, rng, pairing, dtype):
    lib.need(dtype=dtype)
    if lib.name in {"numpy", "dask"} or lib.name.startswith("torch"):
        pytest.importorskip("numba", reason="numba is not installed")
    name = next(name for name in documented() if lib.name.startswith(name))
    rope = ra.Rope(F, pairing=pairing, start=2)
    q, k = (lib(rng.uniform(-1, 1, (2, heads, 5, 16)), dtype) for heads in (4, 2))
    expected = rope(q, k, 1000)
    (got, found), warned = result_and_warnings(lambda: (got := rope(q, k, 1000, fused=True), [lib.get(x) for x in got]))
    assert [x.dtype for x in got] == [q.dtype, k.dtype] and len(found) == 2
    for x, y in zip(got, expected, strict=True):
        assert_close(lib, x, y, dtype)
    assert bool(warned) == (documented()[name][dtype] == "eager"), warned
    assert len(warned) <= 1 and all("falls back to code that is not compiled" in message for message in warned)
    # each reason warns once: a second warning would be an error
    assert_close(lib, rope.apply(got[0], 1000, inverse=True, fused=True), q, dtype)
    if lib.mutable:
        a, b = rope(q, k, 1000, out=(q, k), fused=True)
        assert a is q and b is k
        for x, y in zip((q, k), expected, strict=True):
            assert_close(lib, x, y, dtype)


# The leading axes of x and of the table.
SHAPES = {
    "one row": ((), ()),
    "rows": ((7,), (7,)),
    "heads": ((3, 7), (7,)),
    "a table for each batch": ((2, 3, 7), (2, 1, 7)),
    "a table for each row": ((2, 3, 7), (2, 3, 7)),
    "five axes": ((2, 1, 3, 2, 7), (2, 1, 1, 1, 7)),
    "tokens before heads": ((2, 7, 3), (7, 1)),
    "no rows": ((2, 0, 7), (7,)),
}


@pytest.mark.parametrize("inverse", [False, True], ids=["forward", "inverse"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("shape", SHAPES)
def test_fused_equals_eager(put, shape, view, pairing, inverse):
    check_fused(put, shape, view, pairing=pairing, inverse=inverse, start=1)


@pytest.mark.long
@pytest.mark.usefixtures("without_numba")
@pytest.mark.parametrize(("shape", "view"), [("five axes", "part of a wider row"), ("heads", "every other feature")])
def test_without_numba_torch_compiles(torch, shape, view, pairing):
    check_fused(torch.from_numpy, shape, view, pairing=pairing, start=1)


def check_fused(put, shape, view, **options):
    """Compare a compiled rotation with an eager one, and check that there was no warning."""
    rng, (batch, tokens) = np.random.default_rng(0), SHAPES[shape]
    x = VIEWS[view](rng.uniform(-1, 1, (*batch, 16)).astype(np.float32))
    table = ra.cos_sin(rng.integers(0, 9999, tokens), F, dtype=np.float64)  # of another dtype than x
    x, cos, sin = (put(part) for part in (x, *table))
    got, eager = (ra.rotate(x, cos, sin, **options, fused=fused) for fused in (True, False))
    np.testing.assert_allclose(got, eager, rtol=0, atol=1e-6)
    assert np.asarray(got).strides == np.asarray(eager).strides
    out = put(np.zeros(x.shape, dtype=np.float32))
    assert ra.rotate(x, cos, sin, **options, fused=True, out=out) is out
    np.testing.assert_array_equal(out, got)
    assert ra.rotate(x, cos, sin, **options, fused=True, out=x) is x
    np.testing.assert_array_equal(x, got)


def unaligned(x):
    """Return a copy of x in rows that begin at odd addresses."""
    view = np.zeros(x.shape[:-1], dtype=[("tag", "u1"), ("row", x.dtype, x.shape[-1:])])["row"]
    view[...] = x
    assert not view.flags.aligned
    return view


# What is changed, and how; each dtype can represent the numbers of the tables.
UNUSUAL = {
    "table of float16": ("table", lambda x: x.astype("float16")),
    "table of bfloat16": ("table", lambda x: x.astype(ml_dtypes.bfloat16)),
    "table of the other byte order": ("table", lambda x: x.astype(">f4")),
    "table of float64": ("table", lambda x: x.astype("float64")),
    "unaligned table": ("table", unaligned),
    "unaligned x": ("x", unaligned),
    "unaligned out": ("out", unaligned),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unaligned_arrays_and_tables_of_any_dtype_use_the_same_loop(name, pairing, rng):
    pytest.importorskip("numba", reason="numba is not installed")
    which, change = UNUSUAL[name]
    x = rng.uniform(-1, 1, (2, 30, 64)).astype("float32")
    table = (rng.integers(-64, 64, (2, 30, 32)) / 64).astype("float32")
    expected = ra.rotate(x, *table, pairing=pairing, fused=True)
    given = [change(x) if which == "x" else x, *(map(change, table) if which == "table" else table)]
    out = change(x) if which == "out" else None
    for _ in range(2):  # by a new plan, then by the cached one
        got = ra.rotate(*given, pairing=pairing, fused=True, out=out)
        np.testing.assert_array_equal(got, expected)
        assert out is None or got is out


@pytest.fixture
def put(arrays):
    """Return a function that makes a CPU array from data."""
    pytest.importorskip("numba", reason="numba is not installed")
    return arrays


def test_what_is_not_compiled_falls_back_with_a_warning_at_the_callers_line(put):
    p, x = np.arange(5), np.arange(24.0).reshape(2, 12)
    calls = {
        "float64 tables": lambda fused: ra.cos_sin(put(p), F, dtype="float64", fused=fused),
        "learned frequencies": lambda fused: ra.cos_sin(put(p), put(np.asarray(F)), fused=fused),
    }
    if put is np.asarray:
        calls["byte order"] = lambda fused: ROPE.apply(x.astype(">f8"), fused=fused)
    else:
        import torch

        calls["negative bit"] = lambda fused: ROPE.apply(torch.complex(*[put(x)] * 2).conj().imag, fused=fused)
    for reason, call in calls.items():
        with pytest.warns(RuntimeWarning, match=reason) as caught:
            got = call(True)
        assert caught[0].filename == __file__
        np.testing.assert_array_equal(got, call(False))


# --- transforms, gradients and compilers ------------------------------------------------------------------------------


# Calls of a tensor of float32, by name; a table is made for the positions of its first feature.
CALLS = {
    "rotation": lambda x, fused: ROPE.apply(x, 5, fused=fused),
    "table": lambda x, fused: ra.cos_sin(x[..., 0], F, fused=fused).cos,
}


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("name", CALLS)
def test_fused_calls_work_under_torch_transforms_and_modes(name, torch):
    proxy = pytest.importorskip("torch.fx.experimental.proxy_tensor", reason="torch has no make_fx")
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    x, fused = torch.arange(180.0).reshape(3, 5, 12) / 90, lambda x: CALLS[name](x, True)
    expected, other = CALLS[name](x, False), CALLS[name](x + 1, False)
    assert torch.equal(torch.func.vmap(fused)(x), expected)
    torch.testing.assert_close(proxy.make_fx(fused, tracing_mode="real")(x)(x + 1), other, rtol=0, atol=1e-6)
    with FakeTensorMode() as mode:
        assert type(fused(mode.from_tensor(x))) is FakeTensor
    compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected, rtol=0, atol=1e-6)
    with torch.inference_mode():
        assert fused(x).is_inference()
    got, warned = result_and_warnings(lambda: fused(x))  # a fallback of a transform has no later effect
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    assert not warned


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
def test_gradients_of_fused_calls_are_those_of_eager_ones(torch, rng):
    x, p = torch.tensor(rng.uniform(-1, 1, (3, 12))), torch.arange(3)
    table, weights = ROPE.table(p, like=x), torch.tensor(F)
    calls = [
        (lambda x, fused: ROPE.apply(x, 5, fused=fused), x),
        (lambda cos, fused: ra.rotate(x, cos, table.sin, pairing="half", fused=fused), table.cos),
        (lambda p, fused: ra.cos_sin(p, F, fused=fused).sin, p.double()),
        (lambda weights, fused: ra.cos_sin(p, weights, fused=fused).sin, weights),
    ]
    for call, given in calls:
        fused, eager = (torch.func.grad(lambda x, f=f: (call(x, f) ** 3).sum())(given) for f in (True, False))  # noqa: B023
        torch.testing.assert_close(fused, eager, rtol=0, atol=1e-15)
    weight = torch.nn.Parameter(x.clone())  # which vmap does not transform
    for fused in (False, True):
        got = torch.func.vmap(lambda v, f=fused: ROPE.apply(weight, fused=f) @ v)(x)
        torch.testing.assert_close(got, x @ ROPE.apply(x).T)


def test_fused_tables_work_under_jax_transforms(jax):
    p, weights, angle = jax.numpy.arange(5), jax.numpy.asarray(F), np.multiply.outer(np.arange(5), F)
    for got, expected in (
        (jax.jit(lambda w: ra.cos_sin(p, w, fused=True).sin)(weights), np.sin(angle)),
        (jax.vmap(lambda p: ra.cos_sin(p, F, fused=True).sin)(p), np.sin(angle)),
        (jax.grad(lambda w: ra.cos_sin(p, w, fused=True).sin.sum())(weights), np.arange(5) @ np.cos(angle)),
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("without_numba")
def test_a_failing_compiler_warns_once_and_leaves_out_unchanged(torch, monkeypatch):
    calls = []
    fails = lambda *arrays: calls.append([out.zero_() for out in arrays[3:]]) or 1 / 0  # noqa: E731
    monkeypatch.setattr(torch, "compile", lambda _, **__: fails)
    x, table = torch.ones(3, 400, 12), ra.cos_sin(torch.arange(400), F)
    expected = ra.rotate(x, *table, pairing="half", out=x.clone())
    with pytest.warns(RuntimeWarning, match="compiler of torch failed .ZeroDivisionError"):
        ra.rotate(x, *table, pairing="half", out=x, fused=True)
    assert torch.equal(x, expected)
    ra.rotate(x, *table, pairing="half", out=x, fused=True)
    assert len(calls) == 1


@pytest.mark.usefixtures("without_numba")
def test_backward_is_compiled_as_forward_is(torch, rng, monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda run, **_: lambda *arrays: calls.append(arrays) or run(*arrays))
    x, rope = torch.tensor(rng.uniform(-1, 1, (3, 12)), requires_grad=True), ra.Rope(F, pairing="half")
    y = rope.apply(x, 5, fused=True)
    forward = len(calls)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert len(calls) == forward + 1
    torch.testing.assert_close(gradient, rope.apply(torch.ones_like(x), 5, inverse=True), rtol=0, atol=1e-15)


@pytest.mark.parametrize("orders", [*product(("half", "interleaved"), repeat=2)], ids=" to ".join)
def test_wide_rows_along_several_axes(orders, rng):
    rope = ra.Rope(ra.frequencies(1100), pairing=orders[0], out_pairing=orders[1], start=1)
    x = rng.uniform(-1, 1, (2, 5, 3, 1102)).astype("f4")[:, :, ::2]  # no two axes can be joined
    np.testing.assert_allclose(rope.apply(x, 3, seq_axis=-3, fused=True), rope.apply(x, 3, seq_axis=-3), atol=1e-6)


def test_numba_can_be_called_from_many_threads(rng):
    pytest.importorskip("numba", reason="numba is not installed")
    rope = ra.Rope(ra.frequencies(512), pairing="half")  # wide rows, to detect scratch memory that threads share
    x = rng.uniform(-1, 1, (2, 40, 512))
    expected = rope.apply(x)
    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(lambda _: rope.apply(x, fused=True), range(320)):
            np.testing.assert_array_equal(got, expected)


# --- the loop for CPU arrays ------------------------------------------------------------------------------------------


_INTERRUPTED_CALLS = """
import random, signal, sys, time
import numpy as np
import rope_any as ra
put = np.asarray
if sys.argv[1] == "torch":
    import torch
    torch.set_num_threads(2)
    put = torch.from_numpy
rope, tokens, written = ra.Rope(ra.frequencies(128), pairing="half"), 2**15, np.ones((2**15, 128), "float32")
x, table, positions = put(written), rope.table(range(tokens), like=put(written)), put(np.arange(2 * tokens))
in_place = lambda: rope.apply(x, table, fused=True, out=x)
calls = [
    lambda: rope.apply(put(np.ones((tokens, 128), "float32")), table, fused=True),
    lambda: rope.table(positions + 1, fused=True),
    lambda: rope.apply(put(np.ones((9, 128), "float32")), 5, fused=True),
]
expected = [call() for call in calls]
assert len(sys._current_frames()) == 2  # another thread has shared the work
def call_again_and_again(call):
    while True:
        call()
def interrupt(_, frame):
    while frame is not None:
        if frame.f_code is call_again_and_again.__code__:
            raise KeyboardInterrupt
        frame = frame.f_back
# exceptions of a signal's handler: a first one anywhere in a call, and more while the call ends
signal.signal(signal.SIGALRM, interrupt)
for call in 10 * [*calls, in_place]:
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-3, 1e-2), 2e-3)
    try:
        call_again_and_again(call)
    except KeyboardInterrupt:
        pass  # here the traceback still refers to the arrays
    signal.setitimer(signal.ITIMER_REAL, 0)
    others, before = [np.full(written.shape, 3, "float32") for _ in range(2)], written.copy()
    time.sleep(0.01)
    assert all((other == 3).all() for other in others), "the memory of other arrays was written"
    assert np.array_equal(before, written), "a thread wrote after the interrupted call"
for call, result in zip(calls, expected):
    assert all((a == b).all() for a, b in zip(call(), result))
print("done")
"""


@pytest.mark.long
@pytest.mark.thread_unsafe(reason="starts processes")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers that send signals")
def test_interrupted_calls_write_no_memory_of_others_and_later_calls_work(put):
    library = "numpy" if put is np.asarray else "torch"
    assert python("-c", _INTERRUPTED_CALLS, library, OMP_NUM_THREADS="2") == "done\n"


@each_loop("float16", "float32")
def test_an_empty_q_does_not_prevent_a_fused_k(put, rng, dtype, pairing):
    rope, k = ra.Rope(ra.frequencies(64), pairing=pairing), put(rng.standard_normal((1, 4, 33, 64)).astype(dtype))
    q, rotated = rope(k[:, :0], k, 7, fused=True)  # without a warning, which would be an error
    np.testing.assert_array_equal(rotated, rope(k[:, :1], k, 7, fused=True)[1])
    assert q.shape == (1, 0, 33, 64)
    assert rope.apply(k[:, :, :0], fused=True).shape == (1, 4, 0, 64)


@pytest.mark.thread_unsafe(reason="sets the number of threads")
@each_loop("float16", "float32", "float64")
@pytest.mark.parametrize("layout", ["unaligned", "tokens first", "20 features", "rotary slice", "one head", "in place"])
def test_large_arrays_get_the_bits_of_small_ones_with_any_number_of_threads(put, layout, dtype, pairing, use_threads):
    features, pairs = (20, 10) if layout == "20 features" else (64, 16 if layout == "rotary slice" else 32)
    tokens, rng = 2**25 // np.dtype(dtype).itemsize // features // 4 + 1, np.random.default_rng(0)  # 32 MiB and more
    memory = np.resize(rng.uniform(-1, 1, 4 * 99 * features).astype(dtype), 4 * tokens * features + 64)
    first = -memory.ctypes.data % 64 // memory.itemsize + (layout == "unaligned")
    x = put(memory[first : first + 4 * tokens * features].reshape(2, 2, tokens, features))
    table = put(np.resize(rng.uniform(-1, 1, (2, 99, pairs)), (2, tokens, pairs)).astype("float32"))
    if layout == "tokens first":
        x, table = x.swapaxes(1, 2), table[:, :, None]
    x, axis = (x[0, 0], 0) if layout == "one head" else (x, 1 if layout == "tokens first" else 2)
    options, results = {"pairing": pairing, "fused": True}, []
    ends = [slice(0, 300), slice(tokens // 2, tokens // 2 + 300), slice(tokens - 300, tokens)]
    cuts = [(slice(None),) * axis + (end,) for end in ends]
    small = [ra.rotate(x[cut], *(part[cut[-1]] for part in table), **options) for cut in cuts]
    for threads in (1, 2, 5, "many") if dtype == "float32" else ("many",):
        use_threads(threads)
        results.append(ra.rotate(x, *table, **options))
    for result in (*results, ra.rotate(x, *table, **options, out=x if layout == "in place" else x * 0)):
        for cut, expected in zip(cuts, small, strict=True):
            np.testing.assert_array_equal(result[cut], expected)


def wants_huge_pages(tensor):
    """Whether the memory in the middle of a tensor was marked for huge pages, as Linux tells in `smaps`."""
    middle, smaps = tensor.data_ptr() + tensor.nbytes // 2, Path("/proc/self/smaps").read_text(encoding="ascii")
    areas = re.findall(r"^(\w+)-(\w+) .*?^VmFlags:(.*?)$", smaps, re.MULTILINE | re.DOTALL)
    return any(int(first, 16) <= middle < int(end, 16) and "hg" in flags.split() for first, end, flags in areas)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell the flags of memory")
@pytest.mark.parametrize("fused", [False, True])
def test_large_new_tensors_request_huge_pages(torch, fused):
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not pages.exists() or "[never]" in pages.read_text(encoding="ascii"):
        pytest.skip("the system has no huge pages")
    # larger than what the allocator keeps for other arrays
    rope, x = ra.Rope(ra.frequencies(128), pairing="half"), torch.ones(4, 20_000, 128)
    given = torch.frombuffer(mmap.mmap(-1, x.nbytes), dtype=torch.float32).reshape(x.shape)
    for _ in range(2):  # by a new plan, then by the cached one
        rotated = rope.apply(x, fused=fused)
        assert wants_huge_pages(rotated)
        rope.apply(x, out=given, fused=fused)
        assert not wants_huge_pages(given)


@each_loop("float16", "bfloat16")
def test_all_half_precision_numbers_are_converted_like_torch(dtype, pairing, rng):
    pytest.importorskip("numba", reason="numba is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    x = bits[torch.tensor(rng.permutation(2**16))].view(getattr(torch, dtype)).reshape(512, 128)
    table = ra.Rope(ra.frequencies(128), pairing=pairing).table(torch.arange(512))
    got, expected = (ra.rotate(x, *table, pairing=pairing, fused=fused) for fused in (True, False))
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.nan_to_num(), expected.nan_to_num())


def test_autograd_notices_fused_writes_in_place(torch, rng):
    pytest.importorskip("numba", reason="numba is not installed")
    rope, x = ra.Rope(F, pairing="half"), torch.tensor(rng.uniform(-1, 1, (3, 12)))
    weight = torch.ones(12, dtype=x.dtype, requires_grad=True)
    product = (x * weight).sum()
    rope.apply(x, 5, out=x, fused=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


# --- processes --------------------------------------------------------------------------------------------------------


_FUSED_CALLS = """
import os, sys, threading
import numpy as np
if "no-cache" in sys.argv:  # Numba finds no folder for its cache
    from numba.core import caching
    for kind in vars(caching).values():
        if hasattr(kind, "_locator_classes"):
            kind._locator_classes = []
if "failing" in sys.argv:
    import numba
    numba.njit = None
import rope_any as ra

rope, x = ra.Rope(ra.frequencies(128), pairing="half"), np.random.default_rng(0).standard_normal((8, 600, 128))
expected = rope.apply(x, 5)
far = rope.table([2**31 - 1], like=x, fused=True, dtype="float32")
assert np.allclose(far, rope.table([2**31 - 1], like=x), rtol=0, atol=1.2e-7)
ra.Rope(ra.frequencies(20), pairing="half").apply(x[..., :20], 5, fused=True)  # by the same compiled loop
if "late" in sys.argv:
    rope.apply(x[0, :1], 5, fused=True)  # imports what can't be imported when the main thread has ended

def call():
    if "late" in sys.argv:
        threading.main_thread().join()  # then no thread can be started
    assert np.array_equal(rope.apply(x, 5, fused=True), expected)
    assert "late" in sys.argv or len(sys._current_frames()) == int(os.environ["OMP_NUM_THREADS"])
    print("done")

if "late" in sys.argv:
    threading.Thread(target=call).start()
else:
    call()
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:  # with the plans of its parent, and without
        kept = np.array_equal(rope.apply(x, 5, fused=True), expected) and np.array_equal(rope.apply(x, 5), expected)
        ra.clear_caches()
        os._exit(0 if kept and np.array_equal(rope.apply(x, 5), expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def run_process(*options, **environment):
    """Run a process that calls the loop; return its output."""
    command = ["-W", "error::RuntimeWarning", "-c", _FUSED_CALLS, *options]
    printed = python(*command, **{"OMP_NUM_THREADS": "3", **environment})
    assert printed.endswith("done\n")
    return printed


@pytest.mark.long
@pytest.mark.thread_unsafe(reason="starts processes")
def test_a_second_process_loads_the_compiled_loop_from_disk(tmp_path):
    pytest.importorskip("numba", reason="numba is not installed")
    package = shutil.copytree(Path(ra.__file__).parent, tmp_path / "rope_any")
    variables = {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_DEBUG_CACHE": "1", "PYTHONPATH": str(tmp_path)}
    first, second = (run_process(**variables) for _ in range(2))
    assert "data saved" in first and "data loaded" not in first
    assert "data loaded" in second and "data saved" not in second
    for path in package.rglob("*.py"):  # a changed formula is compiled anew
        text = path.read_text(encoding="utf-8")
        if "a * c - b * s" in text:
            path.write_text(text.replace("a * c - b * s", "a * c - s * b"), encoding="utf-8")
    assert "data saved" in run_process(**variables)


@pytest.mark.thread_unsafe(reason="starts processes")
@pytest.mark.parametrize("how", [pytest.param("no-cache", marks=pytest.mark.long), "late", "fork"])
def test_the_loop_runs_without_a_cache_in_late_threads_and_in_forks(how):
    pytest.importorskip("numba", reason="numba is not installed")
    if how == "fork" and not hasattr(os, "fork"):
        pytest.skip("the system has no fork")
    run_process(how)


@pytest.mark.thread_unsafe(reason="starts processes")
def test_if_numba_fails_a_warning_says_so():
    pytest.importorskip("numba", reason="numba is not installed")
    with pytest.raises(AssertionError, match=r"RuntimeWarning: fused=True falls back .* Numba failed .TypeError"):
        run_process("failing")


# --- tables -----------------------------------------------------------------------------------------------------------

ROUNDING = 3.1e-8  # a cosine is rounded to float32 by at most 2**-25; 4 percent more


def error(table, exact):
    """Return the largest error of a table."""
    return max(np.abs(np.asarray(a).astype(np.float64) - b).max() for a, b in zip(table, exact, strict=True))


def shuffled_positions(rng):
    """Return shuffled positions of all magnitudes and both signs, with the largest."""
    return rng.permutation(positions(rng))


def test_fused_tables_are_exact_on_every_library(lib, rng):
    if lib.name in {"numpy", "torch-cpu"}:
        pytest.importorskip("numba", reason="numba is not installed")
    schedule = next(row["tables"] for name, row in documented().items() if lib.name.startswith(name))
    f, p = ra.frequencies(64, base=500_000.0), shuffled_positions(rng)
    table, warned = result_and_warnings(lambda: ra.cos_sin(lib(p, "int32"), f, fused=True))
    assert table.cos.dtype == table.sin.dtype == lib.dtype("float32")
    assert error(map(lib.get, table), oracle.cos_sin(p, f)) <= 1.2e-7
    assert bool(warned) == (schedule == "eager"), warned
    for given in (7, [0.5, -3.25], range(5, -9, -3)):
        table = ra.cos_sin(given, f, like=lib([1.0], "float32"), fused=True)
        assert error(map(lib.get, table), oracle.cos_sin(np.asarray(given), f)) <= 2.5e-7


def test_the_only_error_of_fused_tables_is_rounding(put, rng):
    f = (*ra.frequencies(100, base=500_000.0), 0.0, -0.25, 2 * np.pi, 65_536.0, 1e-30)
    p = shuffled_positions(rng)
    assert error(ra.cos_sin(put(p), f, fused=True), oracle.cos_sin(p, f)) <= ROUNDING
    for dtype in ("int8", "int16", "int32", "uint8", *([">i4"] if put is np.asarray else [])):
        small = np.asarray([0, 1, 100, 127], dtype=dtype)
        assert error(ra.cos_sin(put(small), f, fused=True), oracle.cos_sin(small, f)) <= ROUNDING
    ranges = [range(FAR - 40, FAR), range(FAR, -FAR, -(2**27)), range(3, 4, 2**70), range(3, 2, -(2**70))]
    for given in (*ranges, range(0), range(2**70, 0, 5), 5, [3, -7], np.int64(4), [[1, 2], [3, 4]]):
        table, host = ra.cos_sin(given, f, like=put(np.ones(1, "f4")), fused=True), np.asarray(given)
        assert tuple(table.cos.shape) == (*host.shape, len(f))
        assert not host.size or error(table, oracle.cos_sin(host, f)) <= ROUNDING


def test_fused_tables_are_exact_for_many_phases(put, rng):
    p, f, exact = phases(100_000, rng)
    assert error(ra.cos_sin(put(p), f, fused=True), exact) <= ROUNDING


def test_fused_tables_are_exact_for_real_positions(put, rng):
    p = np.concatenate([rng.uniform(-(2**24), 2**24, 40), rng.uniform(-9, 9, 40), [0.5, -0.5, 0.0]])
    for dtype, given in (("float64", p), ("float32", p.astype("f4"))):
        table = ra.cos_sin(put(given), F, fused=True, dtype="float32")
        assert error(table, oracle.cos_sin(given.astype(np.float64), F)) <= 4e-8, dtype
    far = put(np.asarray([2.0**40 + 0.5, -(2.0**53), 1e300, 3.0]))
    cos, sin = (np.asarray(part).astype(np.float64) for part in ra.cos_sin(far, F, fused=True, dtype="float32"))
    np.testing.assert_allclose(cos**2 + sin**2, 1, atol=1e-6)  # still a rotation
    invalid = ra.cos_sin(put(np.asarray([1.0, np.nan, np.inf])), (1.0, 0.0), fused=True, dtype="float32")
    for part in map(np.asarray, invalid):
        assert np.isfinite(part[0]).all() and np.isnan(part[1:]).all()


@pytest.mark.parametrize("real", [False, True])
def test_fused_tables_add_the_phases_of_several_axes(put, rng, real):
    rows = ((*F[:3], 0.0, 0.5), (0.0, 0.25, 0.0, 2.0, 0.001), (1.0, *F[1:5]))
    p = rng.uniform(-1e6, 1e6, (4, 9, 3)) if real else rng.integers(-FAR, FAR, (4, 9, 3))
    cos, sin, _ = oracle.table(p, rows)
    table = ra.cos_sin(put(p), rows, fused=True, dtype="float32")
    assert tuple(table.cos.shape) == (4, 9, 5) and error(table, (cos, sin)) <= 4e-8
    one = ra.cos_sin(put(p[..., :1]), rows[:1], fused=True, dtype="float32")
    assert error(one, oracle.table(p[..., :1], rows[:1])[:2]) <= 4e-8


def test_fused_tables_accept_an_attention_factor_and_half_precision(put, rng):
    p = shuffled_positions(rng)
    exact = oracle.cos_sin(p, F)
    table = ra.cos_sin(put(p), F, attention_factor=1.37, fused=True)
    assert error(table, [1.37 * part for part in exact]) <= 2**-24 * 1.37 + 1e-9
    full = ra.cos_sin(put(p), F, fused=True)
    for name in ("float16",) if put is np.asarray else ("float16", "bfloat16"):
        half = ra.cos_sin(put(p), F, fused=True, dtype=name)
        for got, expected in zip(half, full, strict=True):
            assert str(got.dtype).endswith(name)
            assert (got == (expected.astype(name) if put is np.asarray else expected.to(got.dtype))).all()


@pytest.mark.thread_unsafe(reason="sets the number of threads")
@pytest.mark.parametrize("pairs", [1, 3, 16, 61, 64, 300])
def test_the_bits_of_a_fused_table_do_not_depend_on_other_rows_pairs_and_threads(put, rng, use_threads, pairs):
    count, like = 2**19 // pairs + 5, put(np.ones(1, "f4"))  # enough for threads
    rope, p = ra.Rope(ra.frequencies(2 * pairs), pairing="half"), np.arange(FAR - count, FAR)
    few = np.asarray([*range(0, count, count // 40), count - 1])
    each = [rope.table(put(p[i : i + 1].reshape(())), fused=True) for i in few]
    expected = [np.stack([np.asarray(part) for part in parts]) for parts in zip(*each, strict=True)]
    order = rng.permutation(len(few))
    shuffled = ra.cos_sin(put(p[few[order]]), (*rope.frequencies, 0.5), fused=True)
    results = [[np.asarray(part)[np.argsort(order), :pairs] for part in shuffled]]
    pairwise = [rope.table([int(p[i]) - 3, int(p[i])], like=like, fused=True) for i in few]
    results.append([np.stack([np.asarray(part[1]) for part in parts]) for parts in zip(*pairwise, strict=True)])
    for threads in (1, 2, 5):
        use_threads(threads)
        tables = [rope.table(given, like=like, fused=True) for given in (range(FAR - count, FAR), put(p))]
        results += [[np.asarray(part)[few] for part in table] for table in tables]
    for result in results:
        for got, wanted in zip(result, expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_a_fused_rotation_makes_a_fused_table(put, rng):
    x, batch = put(rng.uniform(-1, 1, (2, 3, 9, 12)).astype(np.float32)), np.arange(18).reshape(2, 9)
    rope = ra.Rope(F, pairing="half", attention_factor=1.1)
    for given, at in ((None, range(9)), (1000, range(1000, 1009)), *((p, p) for p in (range(5, 14), put(batch)))):
        table = rope.table(at, like=x, fused=True)
        for _ in range(2):  # by a new plan, then by the cached one
            np.testing.assert_array_equal(rope.apply(x, given, fused=True), rope.apply(x, table, fused=True))
    rope.apply(put(np.ones((9, 12))), 5, fused=True)  # of float64, the rotation is compiled though its table is not


@pytest.mark.usefixtures("without_numba")
def test_without_numba_a_warning_names_the_extra(rng):
    p = shuffled_positions(rng)
    with pytest.warns(RuntimeWarning, match="Numba, which is not installed .the extra numba"):
        got = ra.cos_sin(p, F, fused=True)
    np.testing.assert_array_equal(got, ra.cos_sin(p, F))
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert error(ra.cos_sin(torch.from_numpy(p), F, fused=True), oracle.cos_sin(p, F)) <= 1.2e-7
