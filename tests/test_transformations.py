"""Compilers, exporters, automatic differentiation, vectorisation, autocast and lazy arrays."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from array_api_compat import array_namespace
from bits import outcome
from conftest import each_torch
from public_calls import CALLS, READING

import rope_any as ra
from rope_any import bending

ROOT = Path(__file__).parents[1]
F = ra.frequencies(16, base=100.0)
ROPES = [ra.Rope(F, pairing="half"), ra.Rope(F, pairing="interleaved", start=2)]
SHAPES = ((2, 4, 6, 20), (2, 2, 6, 20))


@pytest.fixture(params=ROPES, ids=["half", "interleaved"])
def rope(request):
    """Return each Rope."""
    return request.param


def qk(rng, make=np.asarray, tokens=6):
    """Return random queries and keys."""
    shapes = ((*shape[:2], tokens, shape[3]) for shape in SHAPES)
    return tuple(make(rng.uniform(-2, 2, shape).astype(np.float32)) for shape in shapes)


def assert_close(got, expected, atol=1.5e-6):
    """Compare two lists of arrays."""
    for pair in zip(got, expected, strict=True):
        x, y = (np.asarray(x.cpu() if hasattr(x, "cpu") else x) for x in pair)
        np.testing.assert_allclose(x, y, rtol=0, atol=atol)


def leaves(result):
    """Return the arrays of a result, nested or not, as a flat list."""
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, tuple | list) else [result]


EAGER = [name for name in CALLS if "fused" not in name]  # with `fused`, a mode makes calls warn


# --- all calls ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
def test_all_calls_can_be_compiled_in_one_graph(lib):
    lib.need(compiler=True)
    sys.modules["torch"].compiler.reset() if lib.name.startswith("torch") else None
    refused = {"convert_state_dict"} | ({"apply, out"} if not lib.mutable else set())
    calls = [CALLS[name] for name in EAGER if name not in refused]

    def call_all(*arrays):
        """Return the results of all calls."""
        left = iter(arrays)
        return [call(*(next(left) for _ in given)) for call, *given in calls]

    got = lib.trace(call_all)(*(lib(x) for _, *given in calls for x in given))
    expected = [call(*given) for call, *given in calls]
    assert_close(map(lib.get, leaves(got)), leaves(expected), atol=5e-6 if lib.has_float64 else 1e-4)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "apply, out"])  # Dask has no `out`
@pytest.mark.filterwarnings("ignore:fused=True falls back")
def test_calls_are_lazy_on_dask(name):
    dask, da = (pytest.importorskip(name, reason="dask is not installed") for name in ("dask", "dask.array"))
    call, *arrays = CALLS[name]
    with dask.config.set(scheduler=lambda *_, **__: pytest.fail("computed inside the call")):
        call(*(da.from_array(x, chunks=2) for x in arrays))


# --- torch ------------------------------------------------------------------------------------------------


@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
def test_torch_generates_code_of_one_graph(torch, rng, rope):
    q, k = qk(rng, torch.tensor)
    tokens = torch.arange(70_000, 70_006)
    given = tokens[0] if rope.pairing == "half" else rope.table(tokens)
    counter = pytest.importorskip("torch._dynamo.testing").CompileCounterWithBackend("inductor")
    torch.compiler.reset()
    assert_close(torch.compile(rope, fullgraph=True, backend=counter)(q, k, given), rope(q, k, given))
    assert counter.frame_count == 1


@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
def test_torch_compiled_code_writes_in_place(torch, rng, rope):
    q, k = qk(rng, torch.tensor)
    expected = rope(q, k, 70_000)
    torch.compiler.reset()
    backend = "inductor" if rope.pairing == "half" else "aot_eager"  # it copies results into modified inputs
    got = torch.compile(lambda q, k: rope(q, k, 70_000, out=(q, k)), fullgraph=True, backend=backend)(q, k)
    assert_close((q, k), expected)
    assert_close(got, expected)


@each_torch
def test_torch_computes_the_gradient_of_each_example(lib, rng, rope):
    # the gradient of ½‖R x − y‖² is Rᵀ(R x − y)
    x = lib(rng.uniform(-2, 2, (3, 4, 6, 20)), "float32")
    y, func = lib.xp.ones_like(x), lib.xp.func
    grads = func.vmap(func.grad(lambda x, y: 0.5 * ((rope.apply(x, 9) - y) ** 2).sum()))(x, y)
    assert_close([grads], [rope.apply(rope.apply(x, 9) - y, 9, inverse=True)], atol=5e-6)


@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
def test_torch_compiled_tables_are_rounded_once(torch, rng):
    # the float32 cosine of compiled code has an error of 1.2e-7, so it must not be used
    p = rng.integers(-(2**31) + 1, 2**31, 4000)
    f = (1.0, 0.3, 0.01)
    torch.compiler.reset()
    table = torch.compile(lambda p: ra.cos_sin(p, f), fullgraph=True)(torch.tensor(p))
    assert_close(table, ra.cos_sin(p, f, dtype=np.float64), atol=3.1e-8)


@each_torch
def test_torch_gradients_reach_x_frequencies_and_positions(lib, rng, rope):
    given = rng.uniform(-1, 1, (2, 3, 20)), rng.uniform(0, 50, 3), F, [F, F[::-1]], rng.uniform(0, 50, (3, 2))
    x, p, f, w, p2 = (lib(data, "float64").requires_grad_() for data in given)
    check = lib.xp.autograd.gradcheck

    def rotation(x, p, f):
        """Return x rotated by positions and frequencies that need gradients."""
        return ra.rotate(x, *ra.cos_sin(p, f), pairing=rope.pairing)

    assert check(rotation, (x, p, f))
    assert check(rotation, (x, p2, w))
    assert check(rope.apply, (x, p))
    assert check(lambda x: rope.apply(x, 1_000_000), (x,))
    assert lib.xp.autograd.gradgradcheck(rotation, (x, p, f))


def test_torch_float32_gradients_reach_positions(torch, rng):
    # float32 tables combine a rounded angle and a remainder: the gradient must be that of the full angle
    p = torch.tensor(rng.uniform(0, 1000, 7).astype(np.float32), requires_grad=True)
    cos, sin = ra.cos_sin(p, F)
    (grad,) = torch.autograd.grad(cos.sum(), p)
    assert_close([grad], [-(sin.detach() * torch.tensor(F)).sum(-1)], atol=2e-6)


def test_torch_out_that_autograd_cannot_record_is_refused_and_not_written(torch, rng, rope):
    class Same(torch.autograd.Function):
        forward = staticmethod(lambda _, x: x.view_as(x))

    leaf = torch.tensor(rng.uniform(-1, 1, (5, 20)), requires_grad=True)
    x, fixed, (cos, sin) = leaf * 1, torch.zeros(5, 20), rope.table(torch.arange(5))
    with torch.no_grad():
        unrecorded = x[:]
    with torch.inference_mode():
        of_inference = x[:]
    before = x.detach().clone()
    for given, out, message, *table in (
        (leaf, leaf, "a leaf that requires gradients", cos, sin),
        (leaf[:], None, "a view of a leaf", cos, sin),
        (x.split(5)[0], None, "as by split, chunk or unbind, .*; make it by a slice", cos, sin),
        (unrecorded, None, "made under no_grad", cos, sin),
        (of_inference, None, "made in inference mode", cos, sin),
        (Same.apply(x), None, "that an autograd function returned, .*; give its clone", cos, sin),
        (x, torch.empty_like(x), "another array than x in a call whose gradients", cos, sin),
        (x, x[:], "another array than x", cos, sin),
        (x.detach(), x, "another array than x", cos, sin),
        (fixed, fixed, "records gradients of its table", cos.clone().requires_grad_(), sin),
        (x, x, "records gradients of its table", cos, sin.clone().requires_grad_()),
    ):
        ra.rotate(y := x * 1, cos, sin, pairing=rope.pairing, out=y)  # a plan for all tensors like x
        with pytest.raises(ValueError, match=f"out must be an array that can be written; got .*{message}"):
            ra.rotate(given, *table, pairing=rope.pairing, out=given if out is None else out)
    with pytest.raises(ValueError, match="a leaf"):
        rope(x, leaf, out=(x, leaf))
    assert torch.equal(x, before) and torch.equal(leaf, before) and x._version == leaf._version == 0
    with torch.no_grad():
        expected = rope.apply(leaf)
        assert_close([rope.apply(leaf, out=leaf)], [expected])


def of_table(change):
    """Return a call that makes a table of the dtype of x, and changes it."""
    return lambda x, p: change(ROPES[0].table(p, dtype=x.dtype))


def fope(table):
    """Return a table of FoPE with coefficients of another dtype."""
    eye = array_namespace(table.cos).eye(8)
    return bending.fope(table, eye, eye, pairs=9, sine_padding=1.0)


@pytest.mark.parametrize("autocast", ["bfloat16", "float16"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_torch_autocast_changes_no_call(torch, dtype, autocast):
    x, p = np.linspace(-1, 1, 192, dtype=np.float32).reshape(2, 6, 16), np.arange(6)
    calls = {name: CALLS[name] for name in EAGER} | {
        "vmap": (torch.func.vmap(ROPES[0].apply, (0, None)), x, p),
        "pack, table": (of_table(lambda table: ra.layouts.pack(table, "transformers")), x, p),
        "pack, table for vllm": (of_table(lambda table: ra.layouts.pack(table, "vllm", dtype="float32")), x, p),
        "fope, table": (of_table(fope), x, p),
    }
    changed = []
    for name, (call, *arrays) in calls.items():
        tensors = [torch.tensor(array) for array in arrays]
        tensors = [t.to(getattr(torch, dtype)) if t.is_floating_point() else t for t in tensors]
        run = lambda call=call, tensors=tensors: outcome(lambda: tuple(leaves(call(*tensors))))  # noqa: E731
        expected = run()
        with torch.autocast("cpu", dtype=getattr(torch, autocast)):
            if run() != expected:
                changed.append(name)
    assert not changed


def test_torch_tables_of_inference_mode_can_be_trained_with(torch, rng, rope):
    given, eye = rng.uniform(-2, 2, (3, 6, 20)).astype(np.float32), torch.eye(8, requires_grad=True)
    with torch.inference_mode():
        tables = [rope.table(torch.arange(6)), rope.table(range(6), like=torch.zeros(1))]
        tables.append(bending.temperature(tables[0], range(6), beta=0.1, original_length=2))
    for table in tables:
        assert table.cos.is_inference()
        gradients = []
        for each in (table, type(table)(*(part.clone() for part in table))):
            x = torch.tensor(given, requires_grad=True)
            mixed = bending.fope(each, eye, eye, pairs=8, sine_padding=0.0)
            y = rope.apply(rope.apply(x, each), mixed)
            gradients.append(torch.autograd.grad((y**2).sum(), (x, eye)))
        torch.testing.assert_close(*gradients, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:torch.searchsorted")  # of lengths that differ in the batch
@each_torch
def test_torch_vmap_maps_each_call(lib):
    for name in EAGER:
        call, *arrays = CALLS[name]
        tensors = [*map(lib, arrays)]
        mapped = lib.xp.func.vmap(call)(*(lib.xp.stack([x, x]) for x in tensors))
        assert_close([x[1] for x in leaves(mapped)], leaves(call(*tensors)), atol=5e-6)


@pytest.mark.parametrize("name", READING)
def test_caches_without_values_are_refused(torch, name):
    from torch._subclasses.fake_tensor import FakeTensorMode

    (call, given), refused = READING[name], pytest.raises(ra.ArgumentValueError, match="cache must have values to read")
    x = torch.tensor(given)
    with FakeTensorMode() as mode, refused:
        call(mode.from_tensor(x))
    with refused:
        torch.func.vmap(call)(x[None])
    with refused:  # of which torch itself makes an array at a null address
        torch.func.functionalize(call)(x)
    assert call(x) == call(given)


@pytest.mark.long
@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
@pytest.mark.parametrize("name", ["rope, heads", "reposition, heads", "reposition, reals"])
def test_torch_compiles_axes_of_symbolic_lengths(torch, name):
    call, *arrays = CALLS[name]
    tensors = [torch.tensor(x) for x in arrays]
    torch.compiler.reset()
    compiled = torch.compile(call, dynamic=True, fullgraph=True, backend="eager")
    assert_close(leaves(compiled(*tensors)), leaves(call(*tensors)), atol=5e-6)


@pytest.mark.long
@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
def test_torch_compiled_calls_ignore_autocast(torch):
    def call(x, p, c):
        """Return a rotated array and a bent table, made under autocast."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            table = ROPES[0].table(p)
            return ROPES[0].apply(x, table), *bending.fope(table, c, c, pairs=8, sine_padding=0.0)

    x, p, c = torch.linspace(-1, 1, 96, dtype=torch.float16).reshape(6, 16), torch.arange(6), torch.rand(8, 8)
    torch.compiler.reset()
    got = torch.compile(call, fullgraph=True, backend="aot_eager")(x, p, c)
    for a, b in zip(got, call(x, p, c), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-3 if a.dtype == torch.float16 else 1e-6)


# --- jax --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x64", [False, pytest.param(True, marks=pytest.mark.long)])
def test_jax_calls_need_no_rank_promotion(jax, x64):
    with jax.enable_x64(x64):
        for name in set(EAGER) - {"apply, out"}:  # JAX has no `out`
            call, *arrays = CALLS[name]
            with jax.numpy_rank_promotion("raise"):
                jax.eval_shape(call, *map(jax.numpy.asarray, arrays))
        call, *arrays = CALLS["apply, inverse"]
        given = [*map(jax.numpy.asarray, arrays)]
        expected = call(*given)
        with jax.numpy_rank_promotion("raise"):
            np.testing.assert_array_equal(call(*given), expected)


def test_jax_jit_accepts_a_static_rope_and_a_traced_offset(jax, rng, rope):
    q, k = qk(rng, jax.numpy.asarray)
    traces = []
    step = jax.jit(lambda rope, q, k, p: traces.append(p) or rope(q, k, p), static_argnums=0)
    for n in (3, 70_000, 2**31 - 10):
        assert_close(step(rope, q, k, jax.numpy.asarray(n, dtype="int32")), rope(*map(np.asarray, (q, k)), n))
    assert len(traces) == 1


def test_jax_vmap_and_grad_work(jax, rng, rope):
    x, p = rng.uniform(-2, 2, (3, 4, 6, 20)).astype(np.float32), np.asarray([1, 20, 300])
    rows = jax.jit(jax.vmap(rope.apply))(*map(jax.numpy.asarray, (x, p)))
    assert_close(rows, [rope.apply(x[i], int(p[i])) for i in range(3)])
    y = np.ones_like(x)
    grad = jax.jit(jax.grad(lambda x: 0.5 * ((rope.apply(x, 9) - y) ** 2).sum()))(jax.numpy.asarray(x))
    assert_close([grad], [rope.apply(rope.apply(x, 9) - y, 9, inverse=True)], atol=5e-6)


@pytest.mark.parametrize("x64", [False, True])
def test_jax_gradients_reach_frequencies_and_positions(jax, rng, x64):
    given = rng.uniform(0, 40, 5).astype(np.float32), np.asarray(F, dtype=np.float32)
    _, sin = ra.cos_sin(given[0], F)
    by_p, by_f = -(sin * given[1]).sum(-1), -(sin * given[0][:, None]).sum(0)
    with jax.enable_x64(x64):
        p, f = map(jax.numpy.asarray, given)
        as_called = jax.jit if x64 else lambda function: function  # without x64, operation by operation
        assert_close([as_called(jax.grad(lambda p: ra.cos_sin(p, F).cos.sum()))(p)], [by_p], atol=2e-6)
        for compiled in (as_called, jax.jit):
            gradients = compiled(jax.grad(lambda p, f: ra.cos_sin(p, f).cos.sum(), argnums=(0, 1)))(p, f)
            assert_close(gradients, [by_p, by_f], atol=1e-3)


_TWO_DEVICES = """
import jax, jax.numpy as jnp, rope_any as ra
first, second = jax.devices()
f = ra.frequencies(8)
rope = ra.Rope(f, pairing="half")
x = jax.device_put(jnp.ones((4, 8)), second)
assert rope.table([5, 6], like=x).cos.devices() == {second}
assert rope.apply(x, 5).devices() == {second}
assert jax.jit(rope.apply)(x, 5).devices() == {second}
try:
    ra.rotate(jax.device_put(x, first), *rope.table([5, 6, 7, 8], like=x), pairing="half")
except ValueError as error:
    print(error)
"""


@pytest.mark.long
@pytest.mark.thread_unsafe(reason="starts processes")
def test_jax_results_are_on_the_device_of_x():
    pytest.importorskip("jax", reason="jax is not installed")
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", _TWO_DEVICES], capture_output=True, text=True, env=env, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("x and cos must be on one device; got")


# --- dask -------------------------------------------------------------------------------------------------


def test_dask_accepts_empty_chunks_in_an_axis_of_one(rng, rope):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    x = rng.uniform(-1, 1, (4, 6, 20)).astype("f4")
    p = np.arange(24).reshape(4, 6)
    lazy = da.from_array(p, chunks=2)[1:3:2]
    assert lazy.chunks[0] == (1, 0)
    got = rope.apply(da.from_array(x, chunks=2), lazy)
    np.testing.assert_array_equal(got.compute(), rope.apply(x, p[1:3:2]))


@pytest.mark.parametrize("trace", ["compile", "grad", "vmap"])
def test_constants_that_mlx_keeps_while_it_traces_can_be_used_later(trace, rng):
    mx = pytest.importorskip("mlx.core", reason="mlx is not installed")
    rope, x, at = ra.Rope(ra.frequencies(8), pairing="half"), mx.array(rng.standard_normal((2, 6, 8))), mx.arange(6)
    want = np.array(ra.Rope(ra.frequencies(8), pairing="half").apply(x, at))
    calls = {
        "compile": lambda: mx.compile(lambda x: rope.apply(x, at))(x),
        "grad": lambda: mx.grad(lambda x: mx.sum(rope.apply(x, at)))(x),
        "vmap": lambda: mx.vmap(lambda x: rope.apply(x, at))(x),
    }
    traced = np.array(calls[trace]())
    np.testing.assert_allclose(np.array(rope.apply(x, at)), want, atol=1e-6)  # with the constants of the trace
    np.testing.assert_allclose(np.array(calls[trace]()), traced, atol=1e-6)  # and read by another trace


# --- imports of libraries ---------------------------------------------------------------------------------

_PROBE = """
import sys
import rope_any as ra
LIBRARIES = {"numpy", "torch", "jax", "dask", "mlx", "cupy", "array_api_strict", "typer", "transformers"}
llama = {"model_type": "llama", "head_dim": 64}
rope, _ = ra.Rope.from_config(llama), ra.config.read(llama).explain()
assert not LIBRARIES & {*sys.modules}, sys.modules
import numpy as np
rope(np.ones((1, 2, 3, 64)), np.ones((1, 2, 3, 64)))
assert LIBRARIES & {*sys.modules} == {"numpy"}, sys.modules
"""


@pytest.mark.thread_unsafe(reason="starts processes")
def test_a_config_is_read_without_an_array_library_and_a_rotation_imports_no_other():
    subprocess.run([sys.executable, "-c", _PROBE], check=True)


# --- exporters: lengths and starts are symbols ----------------------------------------------------------------


def rotations(q, k, cache):
    """Return what rotations give whose lengths and starts are those of arrays."""
    rope, two_axes, start = ROPES[0], ra.Rope((F, F), pairing="interleaved", start=2), cache.shape[-2]
    return [
        *rope(q, k),
        *rope(q, k, start),
        *rope(q[..., :1, :], cache, q.shape[-2]),  # fewer queries than keys
        *two_axes(q, k, start),
        *rope(q, k, ra.positions.from_starts([start], q.shape[-2], like=q)),
        rope.apply(k, start, inverse=True),
        rope.apply(k[..., :1, :], [start]),
        rope.reposition(k, start, 0),
        two_axes.reposition(k, None, q.shape[-2]),
        *rope.table(start, like=q),
        *rope.table([[0, start]], like=q),
    ]


def positions_of(q, cache, ends, n):
    """Return what the functions of `positions` make of lengths: those of arrays, and a number `n`."""
    p, length, past = ra.positions, q.shape[-2], cache.shape[-2]
    spans = [length, (1, length, past), n]
    return [
        p.packed(ends, length),
        p.packed([0, 1, length], like=q),
        p.ragged(p.unrotated(ends, before=1), ends, length),
        p.ragged([0, n], [past], length + n, like=q),
        p.segments(ends // 4),
        p.padded(ends // 4),
        p.from_starts(ends, length),
        p.from_starts([past, 3], n, like=q),
        p.unrotated(ends, before=past, after=n),
        p.unscaled_first(ends, n),
        p.grid(length, n, like=q),
        p.grid(2 * length, 4, order="columns", window=(2, 2), like=q),
        p.shard(4 * length, 2, 1, zigzag=True, like=q),
        p.shard(4 * n, 2, ends[0], zigzag=False, like=ends),
        p.gather_order(2 * n, 2, zigzag=False, like=q),
        p.mrope(spans, start=past, like=q),
        ends + p.mrope_end(spans, start=past),
        p.self_extend(length, group=2, window=past, like=q).queries,
        *p.self_extend(ends, group=n, window=past),
        *p.rerope(ends, window=past),
        *p.leaky_rerope(ends, window=past, factor=n),
        *p.dual_chunk(ends, chunk_size=past, local_size=1),
    ]


def lengths_of(rng, make, tokens, cached, sequences):
    """Return queries, keys and a cache of random numbers, and the ends of packed sequences."""
    cache = rng.uniform(-2, 2, (2, 2, cached, 20)).astype(np.float32)
    return *qk(rng, make, tokens), make(cache), make(np.linspace(0, tokens, sequences).astype(np.int32))


@pytest.mark.long
@pytest.mark.thread_unsafe(reason="torch exports one program at a time")
def test_torch_export_keeps_lengths_dynamic(torch, rng):
    class Module(torch.nn.Module):
        """A module of all calls."""

        def forward(self, q, k, cache, ends, count):
            """Return rotations and positions, with `count` as a number."""
            n = count.item()
            torch._check(n >= 2)  # torch documents it by this name
            torch._check(n <= 4096)
            return rotations(q, k, cache) + positions_of(q, cache, ends, n)

    batch, tokens, cached, sequences = (torch.export.Dim(name) for name in ("batch", "tokens", "cached", "sequences"))
    shapes = {0: batch, 2: tokens}, {0: batch, 2: tokens}, {0: batch, 2: cached}, {0: sequences}, None
    example = *lengths_of(rng, torch.tensor, 6, 9, 4), torch.tensor(5)
    exported = torch.export.export(Module(), example, dynamic_shapes=shapes)
    torch.export.save(exported, file := io.BytesIO())
    file.seek(0)
    for program in (exported, torch.export.load(file)):
        for sizes, n in (((33, 17, 3), 7), ((2, 3, 8), 2)):
            q, k, cache, ends = lengths_of(rng, torch.tensor, *sizes)
            given = q[:1], k[:1], cache[:1], ends, torch.tensor(n)
            assert_close(program.module()(*given), Module()(*given))


@pytest.mark.long
def test_jax_export_keeps_lengths_symbolic(jax, rng):
    from jax import export

    def calls(q, k, cache, ends):
        """Return rotations and positions, with one more than the length of the cache as a number."""
        return rotations(q, k, cache) + positions_of(q, cache, ends, cache.shape[-2] + 1)

    batch, tokens, cached, sequences = export.symbolic_shape("batch, tokens, cached, sequences")
    shapes = (batch, 4, tokens, 20), (batch, 2, tokens, 20), (batch, 2, cached, 20)
    example = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    exported = export.export(jax.jit(calls), platforms=("cpu", "cuda", "tpu"))(
        *example, jax.ShapeDtypeStruct((sequences,), np.int32)
    )
    assert "callback" not in exported.mlir_module()
    for sizes in ((33, 17, 3), (1, 2, 8)):
        given = lengths_of(rng, np.asarray, *sizes)
        assert_close(exported.call(*given), calls(*given))  # with NumPy


def test_symbols_that_cannot_be_used_are_refused(jax):
    from jax import export

    (n,) = export.symbolic_shape("n")
    q, p = jax.ShapeDtypeStruct((1, 2, n, 20), np.float32), ra.positions
    for call, wanted in (
        (lambda q: p.shard(q.shape[-2], 2, 0, zigzag=False, like=q), "length must be a multiple of 2.* got n"),
        (lambda q: p.packed([0, 5, n, 4], like=q), "cumulative_lengths must start at 0 and not fall"),
    ):
        with pytest.raises((TypeError, ValueError), match=wanted):
            jax.eval_shape(call, q)


# --- compiled decoding: two programs for all lengths ----------------------------------------------------------


@pytest.mark.long
@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
def test_torch_compiles_a_step_twice_for_all_lengths(torch, rng):
    counter, rope = pytest.importorskip("torch._dynamo.testing").CompileCounter(), ROPES[0]
    q, k = (x[:1, :, :1] for x in qk(rng, torch.tensor))

    def step(cache, n):
        """Return what all forms of positions give that grow with a cache."""
        return [
            *rotations(q, k, cache),
            *rope(q, k, n),
            *rope(q, k, rope.table(torch.arange(n, n + 1))),
            *rope(q, torch.cat([cache, k], dim=2)),
            *positions_of(q, cache, (cache[0, 0, :, 0] > 0).to(torch.int64), n),
        ]

    torch.compiler.reset()
    compiled = torch.compile(step, fullgraph=True, backend=counter)
    for n in range(16, 80):
        cache = torch.ones(1, 2, n, 20)
        assert_close(compiled(cache, n), step(cache, n))
    assert counter.frame_count == 2


def loop_of(page):
    """Return the code of a function that does what the body of the decoding loop of a page does."""
    text = re.sub(r"(?m)^(>>>|\.\.\.) ?", "", (ROOT / page).read_text(encoding="utf-8"))
    body = re.search(r"(?m)^for first, tokens in .*\n((?: {4}.*\n)+)", text)[1]
    return f"def step(first, tokens, caches):\n{body}    return caches\n"


@pytest.mark.long
@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
@pytest.mark.parametrize("page", ["README.md", "docs/kv-cache.md"])
def test_the_decoding_loop_of_a_page_compiles_at_most_three_times(torch, page):
    counter = pytest.importorskip("torch._dynamo.testing").CompileCounter()
    torch.compiler.reset()
    names = {"torch": torch, "rope": ra.Rope(ra.frequencies(64), pairing="half")}
    exec(loop_of(page), names)  # noqa: S102  # a page of this project
    step, caches = torch.compile(names["step"], fullgraph=True, backend=counter), [torch.zeros(1, 2, 0, 64)] * 2
    for first, tokens in ((0, 16), *((n, 1) for n in range(16, 80))):
        caches = step(first, tokens, caches)
    assert [cache.shape[2] for cache in caches] == [80, 80]
    assert counter.frame_count <= 3
