"""The rule by which torch differentiates the rotation. Imports torch: to be imported where tensors are."""

from collections.abc import Callable
from typing import Any

import torch

from rope_any._array import Array, X


def recorded(turned: Callable[..., X], pulled_back: Callable[..., Any], x: X, cos: Array, sin: Array) -> X:
    """Return ``turned(x, cos, sin)``; its gradients will be ``pulled_back(gradient, (x, cos, sin), wanted)``."""
    result: X = Turned.apply(turned, pulled_back, x, cos, sin)  # type: ignore[no-untyped-call]  # torch's own
    return result


class Turned(torch.autograd.Function):
    """An array turned by a table, of which only the table is kept; the array too if the table wants gradients."""

    @staticmethod
    def forward(ctx: Any, turned: Callable[..., Array], pulled_back: Callable[..., Any], *arrays: Array) -> Array:
        """Return ``turned(x, cos, sin)``."""
        _, cos, sin = arrays
        learned = any(ctx.needs_input_grad[3:])
        ctx.save_for_backward(*arrays) if learned else ctx.save_for_backward(None, cos, sin)
        ctx.pulled_back = pulled_back
        return turned(*arrays)

    @staticmethod
    def backward(ctx: Any, *gradients: Array) -> tuple[Array | None, ...]:
        """Return the gradients that are wanted of x, cos and sin, by what was kept: x is None if it was not."""
        (gradient,) = gradients
        return None, None, *ctx.pulled_back(gradient, ctx.saved_tensors, ctx.needs_input_grad[2:])
