"""
ONNX: a `Rope` -> a model that turns queries and keys.

The source that runs on arrays is run once on what ndonnx traces, and what it does is the model.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rope_any import _array
from rope_any._frequencies import as_rows, integer, shown
from rope_any._rope import Rope
from rope_any._table import tokens

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["export"]

Var: TypeAlias = Any
"""A value of the graph that is being built."""

DTYPES = ("float32", "float16", "bfloat16")
_LARGEST = 2**31 - 2**20  # bytes of a file of ONNX, and what is left for all but tables


def export(
    rope: Rope,
    /,
    *,
    head_dim: int | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] = "float32",
    operator_length: int | None = None,
) -> "ModelProto":
    """
    Return a rotation as an ONNX model.

    Parameters
    ----------
    rope : Rope
        The rotation, with any pairing, start, blocks and number of axes.
    head_dim : int, optional
        How many features a head has; by default as many as turn, with those before `start`.
    dtype : {"float32", "float16", "bfloat16"}, optional
        Of the queries and keys that go in and come out.
    operator_length : int, optional
        In tokens. Let the standard operator ``RotaryEmbedding`` turn, by our tables of the positions from 0 to
        ``operator_length - 1``, which become a part of the model. By default no operator is used that a runtime may
        lack, angles are made from the positions, and there is no limit.

    Returns
    -------
    onnx.ModelProto
        Inputs ``q``, ``(batch, heads, seq, head_dim)``, ``k``, ``(batch, kv_heads, seq, head_dim)``, and ``positions``,
        int64, ``(batch, seq)``, or with frequencies of n rows ``(batch, seq, n)``; outputs ``q_turned`` and
        ``k_turned``. All lengths but those of the last axes of q and k, and n, are open.

    Raises
    ------
    ModuleNotFoundError
        If ndonnx is missing, which the extra ``onnx`` brings.
    TypeError
        If an argument is of another kind.
    ValueError
        If `head_dim` is less than what turns, the dtype is none of the three, `operator_length` is not positive or
        too long for a file, or the operator can't do what the rotation asks: one axis, ``start=0`` and one block.

    Notes
    -----
    What is computed is what `Rope` computes: tables within 1.2e-7 of the exact ones at any integer position below 2³¹ in
    magnitude, with a runtime whose float32 cosine is right to half a unit, and features turned in float32. The model
    needs float64, for six operations on the positions; its opset is 21. That of the operator is 23; it turns in the
    dtype of the queries, by tables rounded to that dtype.

    Examples
    --------
    >>> from rope_any import Rope, frequencies, onnx
    >>> rope = Rope(frequencies(64), pairing="half")
    >>> model = onnx.export(rope, head_dim=128)
    >>> [value.name for value in model.graph.output]
    ['q_turned', 'k_turned']
    """
    if not isinstance(rope, Rope):
        msg = f"rope must be a Rope; got {shown(rope)}"
        raise TypeError(msg)
    rows = as_rows(rope.frequencies)
    least = rope.start + 2 * len(rows[0])
    features = least if head_dim is None else integer("head_dim", head_dim)
    if features < least:
        msg = f"head_dim must be at least {least}, which start and pairs ask for; got {features}"
        raise ValueError(msg)
    if dtype not in DTYPES:
        msg = f"dtype must be one of {', '.join(DTYPES)}; got {shown(dtype)}"
        raise ValueError(msg)
    try:
        import ndonnx  # noqa: F401  # does it come up?
        import spox
    except ModuleNotFoundError as error:
        msg = f'export needs {error.name}, which is missing; install it by: pip install "rope-any[onnx]"'
        raise ModuleNotFoundError(msg, name=error.name) from None
    of_axes = () if rows is not rope.frequencies else (len(rows),)
    inputs = {
        "q": spox.argument(spox.Tensor(np.dtype(dtype), ("batch", "heads", "seq", features))),
        "k": spox.argument(spox.Tensor(np.dtype(dtype), ("batch", "kv_heads", "seq", features))),
        "positions": spox.argument(spox.Tensor(np.int64, ("batch", "seq", *of_axes))),
    }
    if operator_length is None:
        turned = _traced(rope, **inputs)
    else:
        turned = _by_operator(rope, tokens("operator_length", operator_length, least=1), **inputs)
    model = spox.build(inputs, dict(zip(("q_turned", "k_turned"), turned, strict=True)))
    model.doc_string = repr(rope)
    return model


def _traced(rope: Rope, q: Var, k: Var, positions: Var) -> tuple[Var, ...]:
    """Turn by this library's own source, in float32."""
    import ndonnx
    from spox.opset.ai.onnx import v21 as onnx

    dtype = q.unwrap_tensor().dtype
    arrays = (ndonnx.asarray(onnx.cast(x, to=np.float32)) for x in (q, k))
    return tuple(onnx.cast(x.unwrap_spox(), to=dtype) for x in rope(*arrays, ndonnx.asarray(positions)))


def _by_operator(rope: Rope, length: int, /, q: Var, k: Var, positions: Var) -> tuple[Var, ...]:
    """Turn by the standard operator and a table of the positions below `length`."""
    from spox.opset.ai.onnx import v23 as onnx

    rows = as_rows(rope.frequencies)
    if rope.start or rope.blocks != 1 or rows is rope.frequencies:
        msg = f"operator_length must be None unless rope has one axis, start=0 and one block; got {rope}"
        raise ValueError(msg)
    dtype, pairs = q.unwrap_tensor().dtype, len(rows[0])
    if (size := 2 * length * pairs * dtype.itemsize) > _LARGEST:
        msg = f"operator_length must make tables of less than 2 GiB; got {length}, which makes {size / 2**30:.1f} GiB"
        raise ValueError(msg)
    cos, sin = (onnx.const(part.astype(dtype)) for part in rope.table(np.arange(length)))
    options = {"interleaved": int(rope.pairing == "interleaved"), "rotary_embedding_dim": 2 * pairs}
    return tuple(onnx.rotary_embedding(x, cos, sin, positions, **options) for x in (q, k))
