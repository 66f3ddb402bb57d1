"""JAX: immutable arrays, which JAX places on a device unless they are committed to one; jax.jit."""

from typing import Any

import jax
import jax.numpy as xp
import numpy as np

try:  # JAX has no public way to ask whether it traces
    from jax._src.core import trace_state_clean
except ImportError:

    def trace_state_clean() -> bool:
        """Replace the function of JAX that this version lacks: return False, so that nothing is cached."""
        return False


from rope_any._arrays._library import Array, Compiler, Gradients, Library, State


def _placement(x: Array) -> frozenset[Any] | None:
    """Return the devices that an array is committed to; None for an uncommitted array and for a tracer."""
    committed = not isinstance(x, jax.core.Tracer) and x.committed
    return frozenset(x.devices()) if committed else None


def _device_kwargs(x: Array) -> dict[str, Any]:
    """Return keywords that put a new array on the committed device of x; {} if it has none, or several."""
    place = _placement(x) or ()
    return {"device": next(iter(place))} if len(place) == 1 else {}


def _has_mesh() -> bool:
    """Whether a JAX mesh is set now: new arrays belong to it and cannot be used outside of it."""
    mesh = getattr(jax.sharding, "get_abstract_mesh", None)
    return mesh is not None and not mesh().empty


LIBRARY = Library(
    name="jax",
    types=("jax.Array", "jax.ArrayImpl", "jax.Tracer"),
    xp=xp,
    placement=_placement,
    device_kwargs=_device_kwargs,
    has_float64=lambda _: "float64" in xp.__array_namespace_info__().dtypes(kind="real floating"),
    state=lambda *_: State.EAGER if trace_state_clean() and not _has_mesh() else State.TRANSFORMED,
    cumulative_max=lambda x: jax.lax.cummax(x, axis=x.ndim - 1),
    broadcast_to_rank=jax.lax.broadcast_to_rank,  # under jax_numpy_rank_promotion="raise", operators add no axes
    compiler=Compiler(lambda *_: None, compile=jax.jit),
    gradients=Gradients(lambda function, x, g: jax.vjp(function, x)[1](g)[0]),
    get=np.asarray,
)
