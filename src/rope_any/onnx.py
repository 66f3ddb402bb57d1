"""
Export a `Rope` as an ONNX model that rotates queries and keys.

This library's own code runs once on symbolic ndonnx arrays, and the operations that it calls are the model. The extra
``onnx`` installs ndonnx.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rope_any._checks import ArgumentValueError, Text, choice, int32, missing_package, no_rope
from rope_any._frequencies import as_rows
from rope_any._rope import Rope

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

__all__ = ["export"]

Var: TypeAlias = Any
"""A value of the graph (spox's Var)."""

_DTYPES = ("float32", "float16", "bfloat16")
_MAX_TABLE_BYTES = 2**31 - 2**20  # an ONNX file has at most 2 GiB; the rest is for everything but the tables


def export(
    rope: Rope,
    /,
    *,
    head_dim: int | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] = "float32",
    operator_length: int | None = None,
) -> "ModelProto":
    """
    Export a rotation as an ONNX model.

    Parameters
    ----------
    rope : Rope
        The rotation, of any pairing, start, blocks and number of axes.
    head_dim : int, optional
        The number of features of a head; by default those up to the end of the rotary slice.
    dtype : {"float32", "float16", "bfloat16"}, optional
        The dtype of the queries and keys, input and output.
    operator_length : int, optional
        If given, the model uses the standard operator ``RotaryEmbedding``, for runtimes that have a kernel for it, and
        contains a table of so many positions, from 0 on. By default it computes the table from any positions by
        elementary operators.

    Returns
    -------
    onnx.ModelProto
        Its inputs are ``q``, ``(batch, heads, seq, head_dim)``, ``k``, ``(batch, kv_heads, seq, head_dim)``, and
        ``positions``, int64, ``(batch, seq)``, or with frequencies of n rows ``(batch, seq, n)``; its outputs
        ``q_rotated`` and ``k_rotated``. Only head_dim and n are fixed.

    Raises
    ------
    ModuleNotFoundError
        If ndonnx is missing.
    TypeError
        If an argument is of another kind.
    ValueError
        If `head_dim` is too small for the rotary slice, the dtype is none of the three, or `operator_length` is not
        positive, makes the file too large, or is given for a rotation with several axes, blocks, or a start other than
        0.

    Notes
    -----
    The table errs by less than 1.2e-7 at any integer position below 2³¹ in magnitude, if the float32 cosine of the
    runtime is as exact as that of ONNX Runtime on a CPU. Features are rotated in float32 for any dtype. The opset is
    21, or 23 with the operator, whose table has the dtype of the queries.

    Examples
    --------
    >>> rope = ra.Rope(ra.frequencies(64), pairing="half")
    >>> model = ra.onnx.export(rope, head_dim=128)
    >>> [value.name for value in model.graph.output]
    ['q_rotated', 'k_rotated']
    """
    if not isinstance(rope, Rope):
        raise no_rope("rope", rope)
    rows = as_rows(rope.frequencies)
    least = rope.start + 2 * len(rows[0])
    features = least if head_dim is None else int32("head_dim", head_dim, least=least)
    choice("dtype", dtype, _DTYPES, f"be one of {', '.join(_DTYPES)}")
    length = None if operator_length is None else int32("operator_length", operator_length, least=1)
    spox = _import_spox()
    axes = () if isinstance(rope.frequencies[0], float) else (len(rows),)

    def graph_input(dtype: str, *shape: str | int) -> Var:
        """Return a graph input of this dtype and shape; an axis given by a name instead of a length has any length."""
        return spox.argument(spox.Tensor(np.dtype(dtype), shape))

    q, k = (graph_input(dtype, "batch", heads, "seq", features) for heads in ("heads", "kv_heads"))
    positions = graph_input("int64", "batch", "seq", *axes)
    rotated = _rotate_traced(rope, q, k, positions) if length is None else _rotate_by_op(rope, length, q, k, positions)
    outputs = dict(zip(("q_rotated", "k_rotated"), rotated, strict=True))
    model: ModelProto = spox.build({"q": q, "k": k, "positions": positions}, outputs)
    model.doc_string = repr(rope)
    _move_constants(model.graph)
    return model


def _import_spox() -> Any:
    """Return the module spox, which builds graphs; raise an error that names the extra if it or ndonnx is missing."""
    try:
        import ndonnx  # noqa: F401  # test whether it is installed
        import spox
    except ModuleNotFoundError as error:
        raise missing_package("export", error, "onnx") from None
    return spox


def _rotate_traced(rope: Rope, q: Var, k: Var, positions: Var) -> tuple[Var, ...]:
    """Rotate graph values by this library's own code, in float32; both results have the dtype of q."""
    import ndonnx
    from spox.opset.ai.onnx import v21 as onnx

    def cast(x: Var, dtype: Any) -> Var:
        """Return a graph value cast to this dtype; x itself if it has it."""
        return x if x.unwrap_tensor().dtype == dtype else onnx.cast(x, to=dtype)

    dtype = q.unwrap_tensor().dtype
    q, k = (ndonnx.asarray(cast(x, np.float32)) for x in (q, k))
    return tuple(cast(x.unwrap_spox(), dtype) for x in rope(q, k, ndonnx.asarray(positions)))


def _rotate_by_op(rope: Rope, length: int, q: Var, k: Var, positions: Var) -> tuple[Var, ...]:
    """Rotate q, k by ONNX's RotaryEmbedding, a table of positions below `length`; raise if `rope` or size is unfit."""
    from spox.opset.ai.onnx import v23 as onnx

    dtype, pairs = q.unwrap_tensor().dtype, len(rope.frequencies)
    reorders = rope.out_pairing is not None
    if rope.start or rope.blocks != 1 or reorders or not isinstance(rope.frequencies[0], float):
        wanted = "be None unless `rope` has one axis, one block, one pairing and start=0"
        raise ArgumentValueError("operator_length", wanted, Text(f"{length} for {rope}"))
    if (size := 2 * length * pairs * dtype.itemsize) > _MAX_TABLE_BYTES:
        got = Text(f"{length}, which makes {size / 2**30:.3g} GiB")
        raise ArgumentValueError("operator_length", "make tables of less than 2 GiB", got)
    cos, sin = (onnx.const(part.astype(dtype)) for part in rope.table(np.arange(length)))
    options = {"interleaved": int(rope.pairing == "interleaved"), "rotary_embedding_dim": 2 * pairs}
    return tuple(onnx.rotary_embedding(x, cos, sin, positions, **options) for x in (q, k))


def _move_constants(graph: "GraphProto") -> None:
    """Replace constant nodes of a graph, in place, by initializers: large ones can be stored outside of the file."""
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        if node.op_type == "Constant":
            value = node.attribute[0].t
            value.name = node.output[0]
            graph.initializer.append(value)
        else:
            graph.node.append(node)
