"""ndonnx: values of an ONNX graph, whose lengths may be unknown; an ONNX runtime computes them later."""

import ndonnx
from spox.opset.ai.onnx import v21 as onnx

from rope_any._arrays._library import Array, Library, State, immutable


def _reshape_last_axes(x: Array, axes: int, /, *lengths: int) -> Array:
    """Return x with its last `axes` axes reshaped to `lengths`; the lengths of the others may be unknown."""
    if None not in x.shape[: x.ndim - axes]:
        return ndonnx.reshape(x, (*x.shape[: x.ndim - axes], *lengths))
    # In ONNX a length of 0 keeps the length of x.
    shape = onnx.const([0] * (x.ndim - axes) + list(lengths))
    return ndonnx.asarray(onnx.reshape(x.unwrap_spox(), shape))


LIBRARY = Library(
    name="ndonnx",
    types=("ndonnx.Array",),
    xp=ndonnx,
    has_float64_cosine=False,  # ONNX Runtime computes it in float32
    state=lambda *_: State.TRACED,
    why_read_only=immutable,
    reshape_last_axes=_reshape_last_axes,
)
