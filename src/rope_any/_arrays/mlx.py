"""MLX: arrays without a device, a float64 with a float32 cosine, and mx.compile."""

import mlx.core as mx
import numpy as np

from rope_any._arrays._library import Compiler, Gradients, Library, State

LIBRARY = Library(
    name="mlx",
    types=("mlx.array",),
    xp=mx,
    has_float64=lambda _: False,  # it has the dtype, but its cosine computes in float32
    state=lambda *_: State.EAGER,  # mx.compile, grad and vmap trace arguments: an array made of numbers holds them
    compiler=Compiler(lambda *_: None, compile=mx.compile),
    gradients=Gradients(lambda function, x, g: mx.vjp(function, [x], [g])[1][0]),
    get=np.array,
)
