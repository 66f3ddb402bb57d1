"""Transforms, modes, tracers and special tensors: eager calls before and after them give the same bits."""

import os
import warnings
from functools import partial

import numpy as np
import oracle
import pytest
from bits import ROPE, ROPES, bits, data, each_pairing, empty_caches, outcome, work  # noqa: F401  # a fixture
from cases import python
from conftest import each_torch

import rope_any as ra

pytestmark = pytest.mark.thread_unsafe(reason="it clears caches of all threads, and counts their calls")
pairing = each_pairing

# --- torch ---


def _jvp(torch, rotation, x):
    """Return the result under torch's jvp; check the tangent."""
    value, tangent = torch.func.jvp(rotation, (x,), (x,))  # of a linear map
    torch.testing.assert_close(value, tangent, rtol=0, atol=1e-6)
    return value


def _dual(torch, rotation, x):
    """Return the result on dual tensors; check the tangent."""
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        value, tangent = forward_ad.unpack_dual(rotation(forward_ad.make_dual(x, x)))
        torch.testing.assert_close(value, tangent, rtol=0, atol=1e-6)
        return value.clone()


def _graph(_, rotation, x, **options):
    """Return the result of a graph from make_fx."""
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(rotation, **options)(x)
    assert sum(node.op == "call_function" for node in graph.graph.nodes) > 2
    return graph(x)


def _traced(torch, rotation, x):
    """Return the result of a graph from torch.jit.trace."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = torch.jit.trace(rotation, (torch.zeros_like(x),), check_trace=False)
    return graph(x)


def _recorded(kind, rotation, x):
    """Return the result, and the names of the functions that a dispatch or function mode of torch sees."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    def record(_, function, __, args=(), kwargs=None):
        """Record a function, and call it."""
        seen.append(str(function))
        return function(*args, **(kwargs or {}))

    base = {"dispatch": TorchDispatchMode, "function": TorchFunctionMode}[kind]
    with type("Mode", (base,), {f"__torch_{kind}__": record})():
        return rotation(x), seen


def _fake(_, rotation, x):
    """Check the shape and dtype of the result on fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        result = rotation(mode.from_tensor(x))
    assert type(result) is FakeTensor and (result.shape, result.dtype) == (x.shape, x.dtype)


# name -> (torch, rotation, x) → the rotated x
TRANSFORMS = {
    "vmap": lambda torch, rotation, x: torch.func.vmap(rotation)(x),
    "jvp": _jvp,
    "vjp": lambda torch, rotation, x: torch.func.vjp(rotation, x)[0],
    "functionalize": lambda torch, rotation, x: torch.func.functionalize(rotation)(x),
    "dual level": _dual,
    "make_fx": _graph,
    "make_fx, before dispatch": partial(_graph, pre_dispatch=True),
    "make_fx, fake": partial(_graph, tracing_mode="fake", _allow_non_fake_inputs=True),
    "make_fx, symbolic": partial(_graph, tracing_mode="symbolic", _allow_non_fake_inputs=True),
    "jit.trace": _traced,
    "compile": lambda torch, rotation, x: torch.compile(rotation, fullgraph=True, backend="aot_eager")(x),
    "dispatch mode": lambda _, rotation, x: _recorded("dispatch", rotation, x)[0],
    "function mode": lambda _, rotation, x: _recorded("function", rotation, x)[0],
    "fake tensors": _fake,
}


SLOW = {"compile", "jit.trace", "make_fx, before dispatch", "make_fx, fake", "make_fx, symbolic"}


def _torch_calls(torch, rope, device="cpu"):
    """Return calls of one tensor ``(3, 6, 32)`` of a device, by name."""
    at = torch.arange(6, device=device)
    at, table = at + 5, rope.table(at)
    return {
        "an int": lambda x: rope.apply(x, 5),
        "an array": lambda x: rope.apply(x, at),
        "q and k": lambda x: rope(x, x, at)[1],
        "a table": lambda x: ra.rotate(x, *table, pairing=rope.pairing),
    }


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # from torch
@pytest.mark.parametrize("name", TRANSFORMS)
@each_torch
def test_transforms_and_modes_neither_use_nor_leave_anything_in_the_caches(name, pairing, lib):
    torch, x = lib.xp, lib(data(3, 6, 32))
    calls = _torch_calls(torch, ROPES[pairing], x.device)
    for called in ["q and k"] if name in SLOW else calls:
        rotation = calls[called]
        ra.clear_caches()
        expected, results = rotation(x), []
        ra.clear_caches()
        first = TRANSFORMS[name](torch, rotation, x)
        effort = work(lambda rotation=rotation, results=results: results.append(rotation(x)))
        ra.clear_caches()
        assert effort == work(lambda rotation=rotation: rotation(x)), called  # the transform left nothing to be used
        assert bits(results[0]) == bits(expected), called
        second = TRANSFORMS[name](torch, rotation, x)
        for result in (first, second):
            if result is not None:
                torch.testing.assert_close(result, expected, rtol=0, atol=1e-6)
        assert bits(rotation(x)) == bits(expected), called


IN_FX = """
import torch, rope_any as ra
rope, x = ra.Rope(ra.frequencies(16), pairing="half"), torch.linspace(-1, 1, 192).reshape(2, 6, 16)

@torch.fx.wrap
def rotated(x):
    return rope.apply(x, 5)

graph = torch.fx.symbolic_trace(lambda x: 2 * rotated(x))
assert torch.equal(graph(x), 2 * rope.apply(x, 5))
"""


@pytest.mark.long
@pytest.mark.usefixtures("torch")
def test_a_function_that_fx_wraps_is_traced_as_one_node():
    assert python("-c", IN_FX) == ""


def test_calls_that_fx_traces_say_what_to_write(torch):
    x, at = torch.from_numpy(data(3, 6, 32)), torch.arange(6)
    table = ROPE.table(at)
    calls = {
        "x": lambda x: ROPE.apply(x, 5),
        "q": lambda x: ROPE(x, x, at),
        "positions": lambda at: ROPE.apply(x, at),
        "like": lambda x: ROPE.table(range(6), like=x),
        "sin": lambda sin: ra.rotate(x, table.cos, sin, pairing="half"),
        "out": lambda out: ROPE.apply(x, out=out),
    }
    for name, call in calls.items():
        words = f"^{name} must be a tensor, so write the call in a function .* @torch.fx.wrap; got a Proxy of torch.fx$"
        with pytest.raises(TypeError, match=words):
            torch.fx.symbolic_trace(call)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_torchscript_traces_calls_for_all_lengths_and_scripts_none(torch):
    x = torch.from_numpy(data(3, 6, 32))

    def by_rope(x):
        return ROPE.apply(x, 5)

    def by_table(x, cos, sin):
        return ra.rotate(x, cos, sin, pairing="half")

    assert torch.equal(torch.jit.trace(by_rope, x[:, :1])(x), by_rope(x))
    for call, words in ((by_rope, "python value of type 'Rope'"), (by_table, "keyword-only arguments with defaults")):
        with pytest.raises((RuntimeError, torch.jit.frontend.NotSupportedError), match=words):
            torch.jit.script(call)


@pytest.mark.parametrize("kind", ["dispatch", "function"])
def test_a_mode_sees_the_same_operations_with_and_without_a_plan(pairing, kind, torch):
    x = torch.from_numpy(data(3, 6, 32))
    for rotation in _torch_calls(torch, ROPES[pairing]).values():
        ra.clear_caches()
        _, before = _recorded(kind, rotation, x)
        rotation(x)
        _, after = _recorded(kind, rotation, x)
        assert before == after and len(before) > 3


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("kind", ["dispatch", "function"])
def test_under_a_mode_an_array_is_rotated_once_in_place(pairing, kind, torch):
    x, rope = torch.from_numpy(data(3, 6, 32)), ROPES[pairing]
    rotated, _ = _recorded(kind, lambda x: rope.apply(x, 5, out=x, fused=True), x.clone())
    assert torch.equal(rotated, rope.apply(x, 5))


def test_under_no_grad_a_plan_applies_to_leaves_that_require_gradients(torch):
    x, out = torch.from_numpy(data(3, 6, 32)), torch.zeros(3, 6, 32)
    expected, parameter = bits(ROPE.apply(x, 5)), torch.nn.Parameter(x.clone())
    ROPE.apply(x, 5, out=out)
    out.requires_grad_()
    with torch.no_grad():
        for leaf in (parameter, parameter.detach().requires_grad_()):
            got = ROPE.apply(leaf, 5)
            assert bits(got) == expected and not got.requires_grad
        ROPE.apply(x, 5, out=out)
    for given, to in ((parameter, torch.empty_like(x)), (x, out)):
        with pytest.raises(ValueError, match="gradients are recorded"):
            ROPE.apply(given, 5, out=to)
    (gradient,) = torch.autograd.grad(ROPE.apply(parameter, 5), parameter, x)
    torch.testing.assert_close(gradient, ROPE.apply(x, 5, inverse=True), rtol=0, atol=1e-6)


def _tensors(lib):
    """Return special tensors ``(3, 6, 32)`` by name, whose strides do not describe them fully."""
    from torch import _efficientzerotensor, _neg_view

    pairs, x = lib.xp.view_as_complex(lib(data(3, 6, 32, 2))), lib(data(3, 6, 32))
    with lib.xp.inference_mode():
        of_inference = x.clone()
    return {
        "negative bit": _neg_view(x.clone()),
        "imaginary of a conjugate": pairs.conj().imag,
        "real of a conjugate": pairs.conj().real,
        "zeros without memory": _efficientzerotensor((3, 6, 32), device=x.device),
        "of inference": of_inference,
        "parameter": lib.xp.nn.Parameter(x, requires_grad=False),
        "of another view": lib(data(4, 6, 32)).unbind(0)[0][None].expand(3, 6, 32),
    }


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("use", ["x", "out", "x in inference", "out in inference", "in place"])
@each_torch
def test_special_tensors_are_rotated_after_a_plan(use, pairing, fused, lib):
    torch, rope = lib.xp, ROPES[pairing]

    def call(name, special):
        """Rotate a special tensor, or a plain one with the same values and strides."""
        x = _tensors(lib)[name]
        if not special:
            strides = x.stride()
            x = torch.empty_strided(x.shape, strides, device=x.device).copy_(x) if all(strides) else x.detach().clone()
        given = lib(data(3, 6, 32, seed=3)) if use.startswith("out") else x
        with torch.inference_mode("inference" in use):
            return rope.apply(given, 5, out=None if use.startswith("x") else x, fused=fused).clone()

    for name, x in _tensors(lib).items():
        ra.clear_caches()
        before = outcome(partial(call, name, True))
        ra.clear_caches()
        outcome(partial(call, name, False))
        assert outcome(partial(call, name, True)) == before, name
        if use == "x":
            wide, *table = map(lib.get, (x.double() + 0, *rope.table(range(5, 11), like=x)))
            expected = oracle.rotate_by_table(wide, *table, pairing=pairing)
            np.testing.assert_allclose(lib.get(call(name, True)), expected, rtol=0, atol=1e-6)


_FREED = """
import itertools, os, sys
import torch
import rope_any as ra

torch.set_num_threads(1)
dtypes, flags = (torch.float32, torch.float16), (False, True)
for case in itertools.product(("half", "interleaved"), (6, 20_000), dtypes, flags, (0, 1), flags):
    pairing, tokens, dtype, planned, first, fused = case
    rope, x = ra.Rope(ra.frequencies(32), pairing=pairing), torch.ones(tokens, 32, dtype=dtype)[first:]
    rope.apply(x[:1].clone(), fused=fused)
    child = os.fork()
    if child == 0:
        os.close(2)
        if planned:
            rope.apply(x.clone(), 5, fused=fused)
        x.untyped_storage().resize_(0)
        try:
            rope.apply(x, 5, fused=fused)
        except RuntimeError:
            os._exit(0)
        os._exit(1)
    print(*case, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.usefixtures("torch")
def test_a_freed_tensor_raises():
    lines = python("-c", _FREED).splitlines()
    assert len(lines) == 64 and not [line for line in lines if not line.endswith(" 0")]


_LOCKED = """
import os, signal
import torch
import rope_any as ra
from rope_any._caches import _LOCK

_LOCK.acquire()  # as a thread may have, at the moment of a fork
child = os.fork()
if child == 0:
    signal.alarm(60)
    ra.cos_sin(torch.arange(2), (1.0, 0.5))
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.usefixtures("torch")
def test_a_forked_process_does_not_wait_for_locks_of_its_parent():
    assert python("-c", _LOCKED) == "0\n"


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
def test_tensors_without_memory_are_not_passed_to_compiled_code(pairing, torch):
    from torch import _efficientzerotensor

    rope, zeros, x = ROPES[pairing], _efficientzerotensor((3, 6, 32)), torch.from_numpy(data(3, 6, 32))
    table = rope.table(range(6), like=x)
    for _ in range(2):
        identity = ra.Table(table.cos, _efficientzerotensor(tuple(table.sin.shape)))
        expected = ra.rotate(x, table.cos, torch.zeros_like(table.sin), pairing=pairing)
        assert torch.equal(ra.rotate(x, *identity, pairing=pairing, fused=True), expected)
        rope.apply(x, table, fused=True)
        leaf = x.clone().requires_grad_()
        rope.apply(leaf, table, fused=True).backward(zeros)
        assert torch.equal(leaf.grad, torch.zeros(3, 6, 32))


def test_caches_cause_no_torch_recompilation(torch):
    counter = pytest.importorskip("torch._dynamo.testing").CompileCounter()
    torch.compiler.reset()
    q, k = (torch.from_numpy(data(2, heads, 6, 32, seed=heads)) for heads in (4, 2))
    at = torch.arange(6)
    step = torch.compile(lambda q, k: ROPE(q, k, at), fullgraph=True, backend=counter)
    first = step(q, k)
    for change in (lambda: ROPE(q, k, at), lambda: ROPE.apply(q[:1], 7), ra.clear_caches, lambda: ROPE(k, k)):
        change()
        for got, expected in zip(step(q, k), first, strict=True):
            assert torch.equal(got, expected)
    assert counter.frame_count == 1


@each_torch
def test_batched_gradients_work_after_a_plan(lib):
    torch = lib.xp

    class Rotate(torch.autograd.Function):
        """A function of torch with a backward pass of its own."""

        @staticmethod
        def forward(_, x):
            """Return x rotated."""
            return ROPE.apply(x, 5)

        @staticmethod
        def backward(_, gradient):
            """Return the gradient of x."""
            return ROPE.apply(gradient, 5, inverse=True)

    x = lib(data(6, 32)).requires_grad_()
    ROPE.apply(x.detach(), 5, inverse=True)
    y = Rotate.apply(x)
    many = torch.eye(y.numel(), device=x.device).reshape(-1, *y.shape)[:4]
    (got,) = torch.autograd.grad(y, x, many, is_grads_batched=True)
    expected = torch.stack([ROPE.apply(row, 5, inverse=True) for row in many])
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


@each_torch
@pytest.mark.parametrize("default", ["cpu", "meta"])
def test_a_default_device_changes_no_result(default, lib):
    torch, x = lib.xp, lib(data(6, 32))
    expected = bits(ROPE.apply(x, 5))
    torch.set_default_device(default)
    try:
        assert bits(ROPE.apply(x, 5)) == bits(ROPE.apply(x, [5, 6, 7, 8, 9, 10])) == expected
    finally:
        torch.set_default_device(None)


# --- JAX and ONNX -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("traced", ["jit", "vmap", "grad", "eval_shape"])
def test_eager_calls_of_jax_are_right_before_and_after_it_traces(traced, jax):
    x, at = jax.numpy.asarray(data(3, 6, 32)), jax.numpy.arange(6)
    expected = ROPE.apply(x, at)
    run = {
        "jit": lambda: jax.jit(lambda x: ROPE.apply(x, at))(x),
        "vmap": lambda: jax.vmap(lambda x: ROPE.apply(x, at))(x),
        "grad": lambda: jax.grad(lambda x: (ROPE.apply(x, at) * x).sum())(x),
        "eval_shape": lambda: jax.numpy.zeros_like(jax.eval_shape(ROPE.apply, x, at)),
    }[traced]
    ra.clear_caches()
    first = run()
    assert bits(ROPE.apply(x, at)) == bits(expected)  # a tracer that was kept would raise
    second = run()
    assert bits(first) == bits(second) and second.shape == expected.shape
    if traced in {"jit", "vmap"}:
        np.testing.assert_allclose(np.asarray(second), np.asarray(expected), rtol=0, atol=1e-6)


def test_a_compiled_jax_call_transfers_nothing_to_the_device(jax):
    q, k = (jax.numpy.asarray(data(2, heads, 6, 32, seed=heads)) for heads in (4, 2))
    at = jax.numpy.arange(6)
    rotation = jax.jit(ROPE)
    expected = bits(rotation(q, k, at))
    with jax.transfer_guard("disallow"):
        assert bits(rotation(q, k, at)) == expected


def test_eager_calls_are_right_before_and_after_ndonnx_traces():
    ndx = pytest.importorskip("ndonnx", reason="ndonnx is not installed")
    x = data(2, 6, 32)
    expected = bits(ROPE.apply(x, np.arange(6)))
    symbol = ndx.argument(shape=("batch", 6, 32), dtype=ndx.float32)
    for _ in range(2):
        rotated = ROPE.apply(symbol, ndx.asarray(np.arange(6)))
        assert ndx.build({"x": symbol}, {"rotated": rotated}).graph.node
        assert bits(ROPE.apply(x, np.arange(6))) == expected
