"""Gradients in torch: backward is the inverse rotation, and x is not kept for it."""

from functools import partial
from itertools import product

import pytest

import rope_any as ra

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = pytest.mark.parametrize("pairing", ["half", "interleaved"])

F = ra.frequencies(8)
TABLES = {"one row": (), "tokens": (3,), "batches": (2, 1, 3), "heads": (2, 2, 3), "ones": (1, 1, 1)}

jit_script = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's, in jvp


def arrays(table=(3,), x=(2, 2, 3, 7)):
    """Return x, cos and sin as float64 leaves that require gradients; cos and sin are random."""
    torch.manual_seed(0)
    shapes = (x, (*table, 2), (*table, 2))
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


# --- values -----------------------------------------------------------------------------------------------------------


def check_gradients(arrays, options, **gradcheck):
    """Compare the first and second derivatives by x, cos and sin with finite differences."""
    (x, cos, sin), gradcheck = arrays, gradcheck | {"check_batched_grad": True}
    rotation = partial(ra.rotate, **options)
    for given in ((x, cos, sin), (x, cos.detach(), sin.detach()), (x.detach(), cos, sin), (x, cos, sin.detach())):
        assert torch.autograd.gradcheck(rotation, given, check_forward_ad=True, **gradcheck)
        assert torch.autograd.gradgradcheck(rotation, given, check_fwd_over_rev=True, **gradcheck)


@jit_script
@pytest.mark.thread_unsafe(reason="torch has one stack of forward-mode levels for all threads")
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("table", TABLES)
def test_first_and_second_derivatives_equal_finite_differences(table, inverse, pairing):
    # along a random direction: all entries of the Jacobians take fifty times as long
    options = {"pairing": pairing, "start": 2, "inverse": inverse}
    if table in {"tokens", "heads"}:  # the gradient of x has the order of x, and that of the result another
        options["out_pairing"] = "half"
    check_gradients(arrays(TABLES[table]), options, fast_mode=True)


@pytest.mark.long
@jit_script
@pytest.mark.thread_unsafe(reason="torch has one stack of forward-mode levels for all threads")
@pytest.mark.parametrize("table", [(2,), (2, 2)])
def test_every_entry_of_the_jacobians_equals_finite_differences(table, pairing):
    # two pairs between pass-through features; a table whose gradient is summed over the batch, and one whose isn't
    check_gradients(arrays(table, x=(2, 2, 6)), {"pairing": pairing, "start": 1, "inverse": len(table) == 1})


@jit_script
@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.thread_unsafe(reason="torch has one stack of forward-mode levels for all threads")
@pytest.mark.parametrize("fused", [False, True])
def test_in_place_the_derivatives_of_views_of_one_buffer_equal_finite_differences(fused, pairing):
    rope = ra.Rope(F[:2], pairing=pairing, start=1, blocks=2, attention_factor=1.5)

    def rotated(leaf, *, out=True):
        """Return q, k and their buffer, which has features and heads that don't rotate too."""
        buffer = leaf * 1
        q, k = buffer[:, :2], buffer[:, 2:3]
        if not out:
            return torch.cat([*rope(q, k), buffer[:, 3:]], 1)
        assert all(a is b for a, b in zip(rope(q, k, out=(q, k), fused=fused), (q, k), strict=True))
        return buffer, q.sin(), k.cos()

    torch.manual_seed(0)
    x = torch.randn(2, 4, 3, 6, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(rotated(x)[0], rotated(x, out=False), rtol=0, atol=1e-15)
    gradcheck = {"check_batched_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(rotated, x, check_forward_ad=True, **gradcheck)
    assert torch.autograd.gradgradcheck(rotated, x, check_fwd_over_rev=True, **gradcheck)


# --- what is saved for backward ---------------------------------------------------------------------------------------


def saved_for_backward(function):
    """Return the result and the tensors that are saved for backward."""
    tensors = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: tensors.append(x) or x, lambda x: x):
        return function(), tensors


def test_only_what_needs_a_gradient_requires_one(pairing):
    rope, q, k = ra.Rope(F, pairing=pairing), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    cos, sin = rope.table(range(5), like=q)
    for of_q, of_k, of_cos in product((False, True), repeat=3):
        rotated = rope(q.requires_grad_(of_q), k.requires_grad_(of_k), ra.Table(cos.requires_grad_(of_cos), sin))
        assert [x.requires_grad for x in rotated] == [of_q or of_cos, of_k or of_cos]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_backward_keeps_only_the_table(pairing, dtype, in_place):
    rope = ra.Rope(F, pairing=pairing)
    leaf, other = (torch.randn(2, heads, 700, 8, dtype=dtype, requires_grad=True) for heads in (4, 2))
    q, k = leaf.mul(1).transpose(0, 1), other * 1
    table = rope.table(torch.arange(700), like=q)
    expected = rope(q.detach(), k.detach(), table)
    (a, b), tensors = saved_for_backward(lambda: rope(q, k, table, out=(q, k) if in_place else None))
    assert {id(x) for x in tensors} == {id(x) for x in table}
    assert {x.data_ptr() for x in tensors} == {x.data_ptr() for x in table}
    assert torch.equal(a, expected[0]) and torch.equal(b, expected[1])
    # the gradient is Rᵀ g
    g = torch.randn(a.shape).to(dtype)
    assert torch.equal(torch.autograd.grad(a, leaf, g)[0], rope.apply(g, table, inverse=True).transpose(0, 1))
    assert b.requires_grad


def test_backward_keeps_x_if_the_table_needs_gradients(pairing):
    x = torch.randn(2, 5, 8, requires_grad=True)
    f = torch.tensor(F, requires_grad=True)
    result, tensors = saved_for_backward(lambda: ra.rotate(x, *ra.cos_sin(torch.arange(5), f), pairing=pairing))
    assert any(t.data_ptr() == x.data_ptr() for t in tensors)
    result.sum().backward()
    assert f.grad.abs().sum() > 0 and x.grad is not None


def test_half_precision_gradients_have_the_dtypes_of_the_inputs(pairing):
    x = torch.randn(3, 5, 8).bfloat16().requires_grad_()
    table = [part.requires_grad_() for part in ra.cos_sin(torch.arange(5), F)]
    ra.rotate(x, *table, pairing=pairing).float().square().sum().backward()
    assert x.grad.dtype == torch.bfloat16
    for part in table:
        assert part.grad.dtype == torch.float32 and part.grad.shape == part.shape and part.grad.abs().sum() > 0


# --- compilers, checkpoints and functional derivatives ----------------------------------------------------------------


@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
@pytest.mark.parametrize("learned", [False, True])
def test_torch_compile_with_gradients_makes_one_graph(learned, pairing):
    x, cos, sin = arrays()
    given = (x, cos, sin) if learned else (x, cos.detach(), sin.detach())
    leaves, rotation = given if learned else (x,), partial(ra.rotate, pairing=pairing, start=2)
    torch.compiler.reset()
    g = torch.randn(x.shape, dtype=x.dtype)
    # inductor once for each pairing and once for each kind of table; the other two cases have the same graphs
    backend = "inductor" if learned == (pairing == "half") else "aot_eager"
    got = torch.autograd.grad(torch.compile(rotation, fullgraph=True, backend=backend)(*given), leaves, g)
    for a, b in zip(got, torch.autograd.grad(rotation(*given), leaves, g), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
def test_in_place_compilers_transforms_and_checkpoints_give_the_same_gradient(pairing):
    rope, leaf, g = ra.Rope(F, pairing=pairing), torch.randn(2, 5, 8, requires_grad=True), torch.randn(5, 2, 8)

    def loss(x):
        """Return the sum of rotated x times g, by another view of the memory that is written."""
        y = x * 1
        view = y.transpose(0, 1)
        rope.apply(view, seq_axis=0, out=view)
        return (y.transpose(0, 1) * g).sum()

    checkpointed = partial(torch.utils.checkpoint.checkpoint, loss, use_reentrant=False)
    torch.compiler.reset()
    expected = rope.apply(g, seq_axis=0, inverse=True).transpose(0, 1)
    torch.testing.assert_close(torch.func.grad(loss)(leaf.detach()), expected)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(leaf.detach()[None])[0], expected)
    for run in (loss, checkpointed, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        torch.testing.assert_close(torch.autograd.grad(run(leaf), leaf)[0], expected)


def test_expanded_gradients_and_checkpoints_give_the_same_gradient(pairing):
    rope = ra.Rope(F, pairing=pairing)
    x = torch.randn(3, 4, 9, 8, requires_grad=True)
    rope.apply(x).sum().backward()  # the gradient is one number, expanded
    expected = rope.apply(torch.ones_like(x), inverse=True).detach()
    torch.testing.assert_close(x.grad, expected, rtol=0, atol=1e-6)
    y = x.detach().requires_grad_()
    torch.utils.checkpoint.checkpoint(rope.apply, y, use_reentrant=False).sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_backward_refuses_a_table_that_was_modified(pairing):
    x, cos, sin = (part.detach() for part in arrays())
    result = ra.rotate(x.requires_grad_(), cos, sin, pairing=pairing)
    cos.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
