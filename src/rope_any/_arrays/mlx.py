"""MLX: arrays without a device, and a float64 whose cosine is float32's."""

import mlx.core as mx
import numpy as np

from rope_any._arrays._library import Compiler, Library

LIBRARY = Library(
    name="mlx",
    types=("mlx.array",),
    xp=mx,
    has_float64=lambda _: False,  # it has the dtype, and casts to float32 inside its cosine
    compiler=Compiler(lambda *_: None, compile=mx.compile),
    module=mx,
    devices=lambda: {mx.default_device().type.name: mx.default_device()},
    put=lambda data, _: mx.array(data),
    get=np.array,
    copy=lambda x: x * 1,
    wait=mx.eval,
)
