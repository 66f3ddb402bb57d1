"""The rule by which torch differentiates the rotation. It imports torch, and is imported by `torch.py` alone."""

from collections.abc import Callable
from typing import Any

import torch

from rope_any._arrays._library import Array, X


def with_gradient(forward: Callable[..., X], vjp: Callable[..., Any], x: X, cos: Array, sin: Array) -> X:
    """Return ``forward(x, cos, sin)``; its gradients are ``vjp(gradient, (x, cos, sin), wanted)``."""
    result: X = _Rotation.apply(forward, vjp, x, cos, sin)  # type: ignore[no-untyped-call]  # torch's own
    return result


class _Rotation(torch.autograd.Function):
    """A rotation by a table, of which only the table is kept; x too if the table wants gradients."""

    @staticmethod
    def forward(ctx: Any, forward: Callable[..., Array], vjp: Callable[..., Any], *arrays: Array) -> Array:
        """Return ``forward(x, cos, sin)``."""
        _, cos, sin = arrays
        learned = any(ctx.needs_input_grad[3:])
        ctx.save_for_backward(*arrays) if learned else ctx.save_for_backward(None, cos, sin)
        ctx.vjp = vjp
        return forward(*arrays)

    @staticmethod
    def backward(ctx: Any, *gradients: Array) -> tuple[Array | None, ...]:
        """Return the gradients that are wanted of x, cos and sin, by what was kept: x is None if it was not."""
        (gradient,) = gradients
        return None, None, *ctx.vjp(gradient, ctx.saved_tensors, ctx.needs_input_grad[2:])
