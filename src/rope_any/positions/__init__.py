"""
Make the positions of tokens: packed, padded and sharded sequences, grids, streams of text and images, attention maps.

The functions return arrays for `cos_sin` and `Rope`: int64, or int32 on a device without float64. Real positions are
float64 if they came so (or as numbers, if the device has float64), else float32. Values of arrays are not read, so the
functions work under tracers and on lazy arrays; lengths and starts may be symbols of torch.export and jax.export.
Numbers that are not an array need `like`, an array that gives the library and the device.

An argument of a wrong type and arrays of several libraries raise TypeError. A shape that doesn't fit, a number that is
not finite or beyond 32 bits, and devices that differ raise ValueError.
"""

from rope_any.positions._attention_maps import (
    DualChunk,
    Far,
    dual_chunk,
    leaky_rerope,
    rerope,
    self_extend,
    unscaled_first,
)
from rope_any.positions._grids import grid, unrotated
from rope_any.positions._sequences import from_starts, packed, padded, ragged, segments
from rope_any.positions._shards import gather_order, shard
from rope_any.positions._streams import mrope, mrope_end

__all__ = ["DualChunk", "Far", "dual_chunk", "leaky_rerope", "rerope", "self_extend", "unscaled_first"]
__all__ += ["grid", "unrotated"]
__all__ += ["from_starts", "packed", "padded", "ragged", "segments"]
__all__ += ["gather_order", "shard"]
__all__ += ["mrope", "mrope_end"]
