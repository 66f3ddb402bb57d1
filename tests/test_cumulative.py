"""Tables of angles that a model computes, and cumulative sums of steps over a million tokens."""

import numpy as np
import oracle
import pytest
from conftest import one_jax

import rope_any as ra

TWO_PI = oracle.mp.pi * 2
GRID = 2.0**20  # steps are multiples of 1 / GRID, so that their sum is an integer


def largest_error(angles, steps, rows):
    """Return the largest distance, modulo one turn, of some rows of angles from the exact sums of steps."""
    sums = np.cumsum((steps * GRID).astype(np.int64), axis=0)
    distances = [
        oracle.mp.mpf(float(angles[row, i])) - oracle.mp.mpf(int(sums[row, i])) / GRID
        for row in rows
        for i in range(steps.shape[1])
    ]
    return max(float(abs(d - oracle.mp.nint(d / TWO_PI) * TWO_PI)) for d in distances)


def example_steps(rng, n):
    """Return steps (n, 3): constant ones, whose rounding errors add up, random ones, and small ones."""
    columns = np.full(n, 0.7), rng.uniform(-np.pi, np.pi, n), rng.uniform(0, 1e-3, n)
    return np.round(np.stack(columns, -1) * GRID) / GRID


def bound(lib, dtype, n):
    """Return the error bound of the docstring."""
    return 1e-15 + 5e-26 * n**2 if dtype == "float64" else 1.3e-7 + (not lib.has_float64) * 5e-17 * n**2


def test_many_steps_keep_the_documented_bound(lib, rng):
    n = 1_000_000 if lib.name in {"numpy", "torch-cpu", "torch-cuda"} else 100_000  # the others are slow
    steps, rows = example_steps(rng, n), [0, *rng.integers(0, n, 20), n - 1]
    for dtype in {"float32", "float64"} & {*lib.dtypes}:
        got = lib.get(ra.cumulative_angles(lib(steps, dtype))[0])
        assert got.dtype == dtype
        assert largest_error(got, steps, rows) <= bound(lib, dtype, n)
        assert np.abs(got).max() <= np.pi + 1e-6


@one_jax
def test_the_carry_continues_the_sum(lib, rng):
    steps = example_steps(rng, 60)
    results, carry = [], None
    for part in (steps[:50], *np.split(steps[50:], 10)):  # a prompt, then token by token
        angles, carry = ra.cumulative_angles(lib(part, "float32"), carry=carry)
        results.append(lib.get(angles))
    assert largest_error(np.concatenate(results), steps, range(60)) <= bound(lib, "float32", 60)


@one_jax
def test_large_steps_and_leading_axes(lib, rng):
    steps = np.round(rng.uniform(-1e4, 1e4, (2, 3, 40, 2)).astype(np.float32) * 2**10) / 2**10
    got = lib.get(ra.cumulative_angles(lib(steps, "float32"))[0])
    for b, h in np.ndindex(2, 3):
        assert largest_error(got[b, h], steps[b, h].astype(np.float64), range(40)) < 1e-6


@one_jax
def test_an_empty_sequence_keeps_the_carry(lib, rng):
    _, carry = ra.cumulative_angles(lib(example_steps(rng, 5), "float32"))
    none = lib(np.zeros((0, 3)), "float32")
    angles, last = ra.cumulative_angles(none, carry=carry)
    assert lib.get(angles).shape == (0, 3)
    assert [lib.get(x).tolist() for x in last] == [lib.get(x).tolist() for x in carry]
    for nothing in (np.zeros((2, 0, 3)), np.zeros((2, 4, 3))):  # no tokens, and some without a rotation
        _, zeros = ra.cumulative_angles(lib(nothing, "float32"))
        assert [lib.get(x).tolist() for x in zeros] == [[[0, 0, 0]] * 2] * 2


def reversed_sum(g):
    """Return the sum of each row and all rows after it."""
    return np.flip(np.cumsum(np.flip(g, -2), -2), -2)


def test_the_gradient_of_torch_is_the_reversed_sum_also_through_the_carry(torch, rng):
    g = rng.standard_normal((2, 9, 3))
    steps = torch.tensor(rng.uniform(-3, 3, g.shape), requires_grad=True)
    first, carry = ra.cumulative_angles(steps[:, :4])
    second, _ = ra.cumulative_angles(steps[:, 4:], carry=carry)
    torch.cat([first, second], 1).backward(torch.tensor(g))
    np.testing.assert_allclose(steps.grad.numpy(), reversed_sum(g), atol=1e-12)


@pytest.mark.parametrize("lib", ["jax", "mlx"], indirect=True)
def test_the_gradient_of_jax_and_of_mlx_is_the_reversed_sum(lib, rng):
    g = lib(rng.standard_normal((2, 9, 3)))
    module = lib.xp if lib.name == "mlx" else pytest.importorskip("jax")
    gradient = lib.quick(module.grad(lambda steps: (ra.cumulative_angles(steps)[0] * g).sum()))
    got = gradient(lib(rng.uniform(-3, 3, (2, 9, 3))))
    np.testing.assert_allclose(lib.get(got), reversed_sum(lib.get(g)), atol=3e-6)


# --- from_angles ------------------------------------------------------------------------------------------------------


def test_tables_of_angles_are_their_cosines_and_sines(lib, rng):
    for dtype in lib.dtypes:
        angles, wide = lib(rng.uniform(-50, 50, (2, 3, 5)), dtype), dtype == "float64"
        assert ra.from_angles(angles, dtype=lib.dtype(dtype)).sin.dtype == lib.dtype(dtype)
        exact = lib.get(angles).astype(np.float64)
        for part, function in zip(ra.from_angles(angles, attention_factor=1.25), (np.cos, np.sin), strict=True):
            assert lib.get(part).dtype == ("float64" if wide else "float32")
            np.testing.assert_allclose(lib.get(part), 1.25 * function(exact), atol=2e-14 if wide else 2e-7)


def test_angles_by_head_rotate_each_head(torch):
    angles = torch.randn(2, 4, 5, 3, dtype=torch.float64, requires_grad=True)  # (batch, heads, seq, pairs)
    x = torch.randn(2, 4, 5, 6, dtype=torch.float64)
    got = ra.rotate(x, *ra.from_angles(angles), pairing="interleaved")
    expected = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (3, 2))) * torch.exp(1j * angles)).flatten(-2)
    torch.testing.assert_close(got, expected, atol=1e-14, rtol=0)
    rope = ra.Rope(ra.frequencies(6), pairing="interleaved")
    torch.testing.assert_close(rope.apply(x, ra.from_angles(angles)), expected, atol=1e-14, rtol=0)
    assert torch.autograd.gradcheck(lambda a: ra.rotate(x, *ra.from_angles(a), pairing="half"), (angles,))
