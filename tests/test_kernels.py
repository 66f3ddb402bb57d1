"""Published faults of kernels, reproduced on a CPU: `check_rotary` finds each of them, and names most."""

import dataclasses
import inspect

import numpy as np
import pytest
from conftest import one_jax

import rope_any as ra
from rope_any.testing import cases, check_rotary

D = 16
ROPE = ra.Rope(ra.frequencies(D), pairing="half")


def correct(x, positions):
    """Rotate x as it should be."""
    return ROPE.apply(x, positions)


def one_token_path(x, positions):
    """As in mlx 3494: the path for one token rotates only the first row of the batch."""
    y = ROPE.apply(x, positions)
    if x.shape[2] == 1:
        y[1:] = x[1:]
    return y


def contiguous_read(x, positions):
    """As in mlx 1340, vLLM 17091, apex 334: x is read by its address, without its strides."""
    source = x if x.base is None else x.base
    first = (x.__array_interface__["data"][0] - source.__array_interface__["data"][0]) // x.itemsize
    flat = source.reshape(-1)[first : first + x.size] if not x.flags.c_contiguous else x.reshape(-1)
    return ROPE.apply(flat.reshape(x.shape).copy(), positions)


def tokens_on_another_axis(x, positions):
    """As in emlx 121: heads are taken for tokens."""
    return ROPE.apply(x, int(positions[0]), seq_axis=-3)


def keys_left_out(q, k, positions):
    """Liger 342: with one key head, keys are not rotated."""
    return ROPE.apply(q, positions), k if k.shape[1] == 1 else ROPE.apply(k, positions)


def halves_crossed(q, k, positions):
    """ColossalAI 6428: the second half of the keys is that of the queries."""
    q, k = ROPE(q, k, positions)
    return q, np.concatenate([k[..., : D // 2], q[:, : k.shape[1], :, D // 2 :]], -1)


def both_backwards(q, k, positions):
    """As in NanoChat: queries and keys are both rotated backwards."""
    return tuple(ROPE.apply(x, positions, inverse=True) for x in (q, k))


def first_row_for_all(x, positions):
    """Liger 477, unsloth 3699: all rows take the positions of the first."""
    return ROPE.apply(x, positions if positions.ndim == 1 else positions[:1])


def first_row_in_float32(x, positions):
    """Do the same with angles in float32, as most programs have them."""
    angles = positions.reshape(-1, x.shape[-2])[0, :, None].astype(np.float32) * np.float32(ROPE.frequencies)
    return ra.rotate(x, np.cos(angles), np.sin(angles), pairing="half")


def as_int32(x, positions):
    """As in flashinfer 1129: int64 positions are read as int32."""
    return ROPE.apply(x, positions.astype(np.int64).view(np.int32)[: len(positions)])


def width_of_the_head(x, positions):
    """As in vLLM 43676: the whole head is rotated, not a part."""
    return ROPE.apply(x, positions)


def end_of_table(x, positions):
    """As in flash-attention: beyond the table nothing is rotated."""
    return np.where((positions < 2048)[:, None], ROPE.apply(x, positions), x)


def factor_twice(x, positions):
    """As in llama.cpp: the attention factor is applied again."""
    return ra.Rope(ROPE.frequencies, pairing="half", attention_factor=1.21).apply(x, positions)


def writes_between(x, positions):
    """Rotate in place, and write over the number after each number of x if there is one."""
    ROPE.apply(x, positions, out=x)
    if x.base is not None and x.strides[-1] > x.itemsize:
        x.base[..., 1] = 0


FIRST_ROW = "with one token, in rows 1 (of 0 to 1): nothing is rotated, as if all positions were 0"
INDEPENDENT = "tokens, heads, rows are independent"
LESS = ra.Rope(ra.frequencies(6), pairing="half")
LONGER = dataclasses.replace(ROPE, attention_factor=1.1)
# function, options of check_rotary (with the right rotation if it is not ROPE), cause (or ""), failing property (or "")
FAULTS = [
    (one_token_path, {}, FIRST_ROW, INDEPENDENT),
    (contiguous_read, {}, "the strides of x are ignored", "strides of x don't matter"),
    (tokens_on_another_axis, {}, "the heads are taken for the tokens", ""),
    (keys_left_out, {"keys": True}, "nothing is rotated, as if all positions were 0, in keys", ""),
    (both_backwards, {"keys": True}, "the opposite sign: pairs rotate backwards, in queries and keys", ""),
    (halves_crossed, {"keys": True}, "", "scores depend only on the distance"),
    (first_row_for_all, {"rows": True}, "all rows of the batch are rotated by the positions of the first", ""),
    (
        first_row_in_float32,
        {"rows": True},
        "float32; all rows of the batch are rotated by the positions of the first",
        "",
    ),
    (as_int32, {}, "int64 positions are read as int32: every second one is 0", ""),
    (width_of_the_head, {"rope": LESS}, "another rotary_dim, 16: features 0 to 15 are rotated", ""),
    (end_of_table, {}, "positions from 10000 on are taken for 0", ""),
    (factor_twice, {"rope": LONGER}, "the attention factor counted twice", ""),
    (correct, {"in_place": True}, "nothing is rotated, as if all positions were 0", ""),
    (writes_between, {"in_place": True}, "", "writes nothing beside x"),
]


@pytest.mark.parametrize(("function", "options", "cause", "fails"), FAULTS, ids=lambda x: getattr(x, "__name__", None))
def test_a_published_fault_is_found_and_named(function, options, cause, fails):
    report = check_rotary(
        function, options.get("rope", ROPE), head_dim=D, **{k: v for k, v in options.items() if k != "rope"}
    )
    assert not report.passed
    assert cause in "; ".join(report.causes)
    assert not fails or not report.properties[fails].holds
    assert inspect.getdoc(function)


@pytest.mark.parametrize("name", ["chunked", "strided"])
def test_ignored_axes_are_named(name):
    case = cases()[name]
    rope = ra.Rope(case.frequencies, pairing="half")

    def one_axis(x, positions):
        """As in sglang 34446: positions of several axes are read as those of one."""
        return rope.apply(x, positions[:, :1] + 0 * positions)

    report = check_rotary(one_axis, rope)
    assert report.causes == ("the axes of the positions are taken as 0, 0, 0",)


# --- gradients --------------------------------------------------------------------------------------------------------


def ignoring_strides(g, positions):
    """Return a gradient that reads memory as if it were contiguous."""
    dense = g.as_strided(g.shape, g.new_empty(g.shape).stride())
    return ROPE.apply(dense, positions, inverse=True)


ADJACENT = ra.Rope(ROPE.frequencies, pairing="interleaved")
GRADIENTS = {
    "in the gradient: the opposite sign": ROPE.apply,
    "in the gradient: positions ignored: each call counts from 0": lambda g, _: ROPE.apply(g, inverse=True),
    "in the gradient: the other pairing: interleaved": lambda g, p: ADJACENT.apply(g, p, inverse=True),
    "no gradient reaches x": lambda g, _: 0 * g,
    "": ignoring_strides,
}


@pytest.mark.parametrize("cause", GRADIENTS)
def test_wrong_gradients_are_named(torch, cause):
    class Rotation(torch.autograd.Function):
        """A rotation with a gradient of its own."""

        @staticmethod
        def forward(ctx, x, positions):
            """Return x rotated at positions."""
            ctx.positions = positions
            return ROPE.apply(x, positions)

        @staticmethod
        def backward(ctx, g):
            """Return the gradient of x."""
            return GRADIENTS[cause](g, ctx.positions), None

    like = torch.ones(1)
    assert check_rotary(Rotation.apply, ROPE, like=like).passed
    report = check_rotary(Rotation.apply, ROPE, gradient=True, like=like)
    assert not report.passed
    assert cause in "; ".join(report.causes)
    assert not report.properties["the gradient is the inverse rotation"].holds


def test_a_rotation_without_gradients_is_named(torch):
    like = torch.ones(1)
    report = check_rotary(lambda x, p: ROPE.apply(x.detach(), p), ROPE, like=like, gradient=True)
    assert report.causes == ("no gradient reaches x",)


# --- correct functions ------------------------------------------------------------------------------------------------


@one_jax
def test_a_correct_function_passes_all_checks(lib):
    like = lib([1.0], "float32")
    gradient = lib.name in {"torch-cpu", "torch-sim", "jax", "jax-x64", "mlx"}
    apply, call = lib.quick(correct), lib.quick(ROPE)
    report = check_rotary(apply, ROPE, longest=2000, like=like, rows=True, gradient=gradient)
    assert report.passed, report
    both = check_rotary(call, ROPE, longest=2000, like=like, rows=True, keys=True)
    assert both.passed, both


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_a_correct_function_may_write_into_x(name):
    like = np.ones(1, np.float32) if name == "numpy" else pytest.importorskip("torch").ones(1)

    def rotate_x(x, positions):
        """Rotate in place and return nothing."""
        ROPE.apply(x, positions, out=x)

    assert check_rotary(rotate_x, ROPE, like=like, in_place=True, rows=True).passed
    both = lambda q, k, positions: ROPE(q, k, positions, out=(q, k))  # noqa: E731
    assert check_rotary(both, ROPE, like=like, in_place=True, keys=True).passed


def test_a_function_that_writes_into_a_copy_of_strided_x_is_found(torch):
    def copies(x, positions):
        """Write into a copy if x has gaps."""
        y = x.contiguous()
        y.copy_(ROPE.apply(y, positions))

    report = check_rotary(copies, ROPE, in_place=True, like=torch.ones(1))
    assert not report.properties["strides of x don't matter"].holds
