"""Compilers, exporters, automatic differentiation, vectorisation, autocast and lazy arrays."""

import os
import subprocess
import sys

import numpy as np
import oracle
import pytest

import rope_any as ra
from rope_any._arrays import find

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
    for x, y in zip(got, expected, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=0, atol=atol)


# --- torch ------------------------------------------------------------------------------------------------


@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
@pytest.mark.parametrize(
    ("rope", "positions"),
    [(ROPES[0], form) for form in ("array", "int", "none", "table", "rows", "list")]
    + [(ROPES[1], form) for form in ("array", "table", "range")],
    ids=lambda given: getattr(given, "pairing", given),
)
def test_torch_compile_makes_one_graph(torch, rng, rope, positions):
    q, k = qk(rng, torch.tensor)
    given = {
        "array": torch.tensor(70_000),
        "int": 70_000,
        "none": None,
        "table": rope.table(torch.arange(70_000, 70_006)),
        "list": list(range(70_000, 70_006)),
        "range": range(70_000, 70_006),
        "rows": torch.arange(70_000, 70_006)[None, :] + torch.tensor([[0], [5]]),
    }[positions]
    graphs = []
    # inductor for one case of each pairing; the graphs of the others differ only in the form of the positions
    backend = "inductor" if (positions, rope.pairing) in {("array", "half"), ("table", "interleaved")} else "aot_eager"

    def counting(graph, *given):
        """Record a graph, and compile it by another backend."""
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, *given)

    torch._dynamo.reset()
    assert_close(torch.compile(rope, fullgraph=True, backend=counting)(q, k, given), rope(q, k, given))
    assert len(graphs) == 1


@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
@pytest.mark.parametrize(("offset", "frames"), [("array", 1), ("int", 2)])
def test_torch_compile_does_not_recompile_for_offsets(torch, rng, offset, frames):
    counter, rope = pytest.importorskip("torch._dynamo.testing").CompileCounter(), ROPES[1]
    torch._dynamo.reset()
    step = torch.compile(rope, fullgraph=True, backend=counter)
    q, k = qk(rng, torch.tensor)
    for n in (5, 6, 7, 900, 131_072):
        given = torch.tensor(n) if offset == "array" else n
        assert_close(step(q, k, given), rope(q, k, n))
    assert counter.frame_count == frames


@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
def test_torch_compiles_rotate_and_cos_sin(torch, rng):
    x, p = torch.tensor(rng.uniform(-2, 2, (3, 6, 16)).astype(np.float32)), torch.arange(6) * 10_000_019

    def rotation(x, p):
        """Return x rotated by a table made from positions."""
        return ra.rotate(x, *ra.cos_sin(p, F), pairing="half")

    torch._dynamo.reset()
    expected = oracle.rotate(x.numpy(), p.numpy(), F, pairing="half")
    assert_close([torch.compile(rotation, fullgraph=True)(x, p)], [expected])


@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
def test_torch_compiled_code_writes_in_place(torch, rng, rope):
    q, k = qk(rng, torch.tensor)
    expected = rope(q, k, 70_000)
    torch._dynamo.reset()
    backend = "inductor" if rope.pairing == "half" else "aot_eager"  # it copies results into modified inputs
    got = torch.compile(lambda q, k: rope(q, k, 70_000, out=(q, k)), fullgraph=True, backend=backend)(q, k)
    assert_close((q, k), expected)
    assert_close(got, expected)


@pytest.mark.thread_unsafe(reason="torch exports one program at a time")
def test_torch_export_accepts_a_dynamic_sequence(torch, rng, rope):
    class Module(torch.nn.Module):
        """A module with q, k and an offset as inputs."""

        def forward(self, q, k, offset):
            """Return q and k rotated from an offset on."""
            return rope(q, k, offset)

    tokens = torch.export.Dim("tokens", min=2, max=4096)
    q, k = qk(rng, torch.tensor)
    program = torch.export.export(
        Module(), (q, k, torch.tensor(3)), dynamic_shapes=({2: tokens}, {2: tokens}, None), strict=True
    )
    q, k = qk(rng, torch.tensor, tokens=33)
    assert_close(program.module()(q, k, torch.tensor(70_000)), rope(q, k, 70_000))


def test_torch_vmap_and_grad_work(torch, rng, rope):
    x = torch.tensor(rng.uniform(-2, 2, (3, 4, 6, 20)).astype(np.float32))
    p = torch.tensor([1, 20, 300])
    assert_close(torch.func.vmap(rope.apply)(x, p), [rope.apply(x[i], int(p[i])) for i in range(3)])
    # the gradient of ½‖R x − y‖² is Rᵀ(R x − y)
    y = torch.ones_like(x)
    grad = torch.func.grad(lambda x: 0.5 * ((rope.apply(x, 9) - y) ** 2).sum())(x)
    assert_close([grad], [rope.apply(rope.apply(x, 9) - y, 9, inverse=True)], atol=5e-6)
    # the gradient of each example
    grads = torch.func.vmap(torch.func.grad(lambda x, y: 0.5 * ((rope.apply(x, 9) - y) ** 2).sum()))(x, y)
    assert_close([grads], [grad])


def test_torch_vmap_writes_in_place(torch, rng, rope):
    x = torch.tensor(rng.uniform(-2, 2, (3, 6, 20)).astype(np.float32))
    expected = rope.apply(x, 9)
    torch.func.vmap(lambda row: rope.apply(row, 9, out=row))(x)
    assert_close([x], [expected])


@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
def test_torch_compiled_tables_are_rounded_once(torch, rng):
    # the float32 cosine of compiled code has an error of 1.2e-7, so it must not be used
    p = rng.integers(-(2**31) + 1, 2**31, 4000)
    f = (1.0, 0.3, 0.01)
    torch._dynamo.reset()
    table = torch.compile(lambda p: ra.cos_sin(p, f), fullgraph=True)(torch.tensor(p))
    assert_close(table, ra.cos_sin(p, f, dtype=np.float64), atol=3.1e-8)


def test_torch_gradients_reach_x_frequencies_and_positions(torch, rng, rope):
    x = torch.tensor(rng.uniform(-1, 1, (2, 3, 20)), requires_grad=True)
    p = torch.tensor(rng.uniform(0, 50, 3), requires_grad=True)
    f = torch.tensor(F, dtype=torch.float64, requires_grad=True)
    w = torch.tensor([F, F[::-1]], dtype=torch.float64, requires_grad=True)
    p2 = torch.tensor(rng.uniform(0, 50, (3, 2)), requires_grad=True)
    check = torch.autograd.gradcheck

    def rotation(x, p, f):
        """Return x rotated by positions and frequencies that need gradients."""
        return ra.rotate(x, *ra.cos_sin(p, f), pairing=rope.pairing)

    assert check(rotation, (x, p, f))
    assert check(rotation, (x, p2, w))
    assert check(rope.apply, (x, p))
    assert check(lambda x: rope.apply(x, 1_000_000), (x,))
    assert torch.autograd.gradgradcheck(rotation, (x, p, f))


def test_torch_float32_gradients_reach_positions(torch, rng):
    # float32 tables combine a rounded angle and a remainder: the gradient must be that of the full angle
    p = torch.tensor(rng.uniform(0, 1000, 7).astype(np.float32), requires_grad=True)
    cos, sin = ra.cos_sin(p, F)
    (grad,) = torch.autograd.grad(cos.sum(), p)
    assert_close([grad], [-(sin.detach() * torch.tensor(F)).sum(-1)], atol=2e-6)


def test_torch_out_is_refused_while_gradients_are_recorded(torch, rng, rope):
    x = torch.tensor(rng.uniform(-1, 1, (5, 20)), requires_grad=True)
    with pytest.raises(ValueError, match="gradients"):
        rope.apply(x, out=x)
    with pytest.raises(ValueError, match="gradients"):
        rope.apply(x, out=torch.empty_like(x))
    fixed, (cos, sin) = torch.zeros(5, 20), rope.table(torch.arange(5))
    for learned in ((cos.clone().requires_grad_(), sin), (cos, sin.clone().requires_grad_())):
        with pytest.raises(ValueError, match="gradients"):
            ra.rotate(fixed, *learned, pairing=rope.pairing, out=fixed)
    with torch.no_grad():
        expected = rope.apply(x)
        assert_close([rope.apply(x, out=x)], [expected])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_torch_autocast_leaves_tables_exact(torch, rope, dtype):
    p = torch.tensor([0, 1, 4095, 131_072, 2**31 - 1])
    with torch.autocast("cpu", dtype=getattr(torch, dtype)):
        table = rope.table(p)
        assert table.cos.dtype == torch.float32
        y = rope.apply(torch.ones(5, 20), p)
        assert y.dtype == torch.float32
    assert_close(table, oracle.cos_sin(p.numpy(), F), atol=1.2e-7)


# --- jax --------------------------------------------------------------------------------------------------


def test_jax_jit_accepts_a_static_rope_and_a_traced_offset(jax, rng, rope):
    q, k = qk(rng, jax.numpy.asarray)
    step = jax.jit(lambda rope, q, k, p: rope(q, k, p), static_argnums=0)
    for n in (3, 70_000, 2**31 - 10):
        assert_close(step(rope, q, k, jax.numpy.asarray(n, dtype="int32")), rope(*as_numpy(q, k), n))
    assert step._cache_size() == 1


def as_numpy(*arrays):
    """Return arrays as NumPy arrays."""
    return tuple(np.asarray(x) for x in arrays)


def test_jax_vmap_and_grad_work(jax, rng, rope):
    x, p = rng.uniform(-2, 2, (3, 4, 6, 20)).astype(np.float32), np.asarray([1, 20, 300])
    rows = jax.jit(jax.vmap(rope.apply))(*map(jax.numpy.asarray, (x, p)))
    assert_close(rows, [rope.apply(x[i], int(p[i])) for i in range(3)])
    y = np.ones_like(x)
    grad = jax.jit(jax.grad(lambda x: 0.5 * ((rope.apply(x, 9) - y) ** 2).sum()))(jax.numpy.asarray(x))
    assert_close([grad], [rope.apply(rope.apply(x, 9) - y, 9, inverse=True)], atol=5e-6)


@pytest.mark.parametrize("x64", [False, True])
def test_jax_gradients_reach_frequencies_and_positions(jax, rng, x64):
    with jax.enable_x64(x64):
        given = rng.uniform(0, 40, 5).astype(np.float32), np.asarray(F, dtype=np.float32)
        cos, sin = ra.cos_sin(given[0], F)
        p, f = map(jax.numpy.asarray, given)
        as_called = jax.jit if x64 else lambda function: function  # without x64, operation by operation
        grad_p = as_called(jax.grad(lambda p: ra.cos_sin(p, F).cos.sum()))(p)
        assert_close([grad_p], [-(sin * given[1]).sum(-1)], atol=2e-6)
        grad_f = as_called(jax.grad(lambda f: ra.cos_sin(p, f).sin.sum()))(f)
        assert_close([grad_f], [(cos * given[0][:, None]).sum(0)], atol=1e-3)
        jitted = jax.jit(jax.grad(lambda p, f: ra.cos_sin(p, f).cos.sum(), argnums=(0, 1)))(p, f)
        assert_close(jitted, [-(sin * given[1]).sum(-1), -(sin * given[0][:, None]).sum(0)], atol=1e-3)


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


def test_jax_table_is_a_pytree(jax, rope):
    table = jax.jit(lambda t: t)(rope.table([0, 1, 2], like=jax.numpy.zeros(1)))
    assert isinstance(table, ra.Table)


# --- dask -------------------------------------------------------------------------------------------------


def test_dask_accepts_empty_chunks_in_an_axis_of_one(rng, rope):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    x = rng.uniform(-1, 1, (4, 6, 20)).astype("f4")
    p = np.arange(24).reshape(4, 6)
    lazy = da.from_array(p, chunks=2)[1:3:2]
    assert lazy.chunks[0] == (1, 0)
    got = rope.apply(da.from_array(x, chunks=2), lazy)
    np.testing.assert_array_equal(got.compute(), rope.apply(x, p[1:3:2]))


def test_a_warm_call_converts_no_frequencies(lib, rope, rng, monkeypatch):
    record, seen = find(lib(np.ones(1, "float32"))), []
    asarray = record.xp.asarray

    def watched(data, *args, **kwargs):
        """Record host data that are converted to arrays."""
        if isinstance(data, tuple | list):
            seen.append(data)
        return asarray(data, *args, **kwargs)

    monkeypatch.setattr(record.xp, "asarray", watched)
    x, at = lib(qk(rng)[0]), lib(np.arange(6), "int32")
    ra.clear_caches()
    first = lib.get(rope.apply(x, at))
    assert seen
    seen.clear()
    np.testing.assert_array_equal(lib.get(rope.apply(x, at)), first)
    rope.table(at, like=x)
    assert not seen


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


def test_dask_is_lazy_and_keeps_its_chunks(rng, rope):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    dask = pytest.importorskip("dask")
    q, k = qk(rng)
    chunks = (1, 1, 3, 10)
    lazy = [da.from_array(x, chunks=chunks) for x in (q, k)]

    def refuse(*_args, **_kwargs):
        """Fail if Dask computes anything."""
        pytest.fail("computed inside the call")

    with dask.config.set(scheduler=refuse):
        got = rope(*lazy, 70_000)
        positions = da.arange(70_000, 70_006, chunks=4)
        by_array = rope(*lazy, positions)
        by_table = rope(*lazy, rope.table(positions))
    for x, y in zip(lazy, got, strict=True):
        assert x.chunks == y.chunks
    for result in (got, by_array, by_table):
        assert_close([y.compute(scheduler="sync") for y in result], rope(q, k, 70_000))


# --- imports of libraries ---------------------------------------------------------------------------------

_PROBE = """
import sys
import rope_any as ra
import numpy as np
q = np.ones((1, 2, 3, 8), dtype=np.float32)
ra.Rope(ra.frequencies(8), pairing="half")(q, q)
{extra}
print(sorted({{"torch", "jax", "dask", "mlx", "cupy", "array_api_strict", "typer"}} & set(sys.modules)))
"""


@pytest.mark.thread_unsafe(reason="starts processes")
@pytest.mark.parametrize(("extra", "found"), [("", "[]"), ("import array_api_strict", "['array_api_strict']")])
def test_no_other_library_is_imported(extra, found):
    # the second case shows that an import is detected
    if extra:
        pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    run = subprocess.run([sys.executable, "-c", _PROBE.format(extra=extra)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == found
