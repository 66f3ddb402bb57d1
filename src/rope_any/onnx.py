"""
Export a `Rope` as an ONNX model that rotates queries and keys.

The source that turns arrays is run once on values of a graph (ndonnx's), and what it does to them is the model.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, choice, int32
from rope_any._frequencies import as_rows
from rope_any._rope import Rope

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

__all__ = ["export"]

Var: TypeAlias = Any
"""A value of the graph that is being built."""

_DTYPES = ("float32", "float16", "bfloat16")
_LARGEST = 2**31 - 2**20  # bytes: a file of ONNX ends at 2 GiB, and something is left for all but tables


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
        The rotation, of any pairing, start, blocks and number of axes.
    head_dim : int, optional
        How many features a head has; by default those that turn, and those before `start`.
    dtype : {"float32", "float16", "bfloat16"}, optional
        Of the queries and keys that go in and come out.
    operator_length : int, optional
        In tokens. Let the standard operator ``RotaryEmbedding`` turn, for runtimes that have a kernel for it, by a
        table of the positions from 0 to ``operator_length - 1`` that is part of the model. By default the model makes
        its table from the positions, whichever they are, by elementary operators.

    Returns
    -------
    onnx.ModelProto
        Its inputs are ``q``, ``(batch, heads, seq, head_dim)``, ``k``, ``(batch, kv_heads, seq, head_dim)``, and
        ``positions``, int64, ``(batch, seq)``, or with frequencies of n rows ``(batch, seq, n)``; its outputs
        ``q_turned`` and ``k_turned``. Only head_dim and n are fixed.

    Raises
    ------
    ModuleNotFoundError
        If ndonnx is missing, which the extra ``onnx`` brings.
    TypeError
        If an argument is of another kind.
    ValueError
        If `head_dim` is less than what turns, the dtype is none of the three, `operator_length` is not positive, or too
        long for a file; or if it is given for a rotation of several axes or blocks, or whose start is not 0, which the
        operator doesn't know.

    Notes
    -----
    The table errs by less than 1.2e-7 at any integer position below 2³¹ in magnitude, and features are turned in
    float32, whatever the dtype. It takes a few float64 operations on the positions, and a float32 cosine that is as
    good as that of ONNX Runtime on a CPU. The opset is 21. The operator is of opset 23, and is given tables of the
    dtype of the queries: those of half precision err by up to half a unit of that precision.

    Examples
    --------
    >>> from rope_any import Rope, frequencies, onnx
    >>> rope = Rope(frequencies(64), pairing="half")
    >>> model = onnx.export(rope, head_dim=128)
    >>> [value.name for value in model.graph.output]
    ['q_turned', 'k_turned']
    """
    if not isinstance(rope, Rope):
        raise ArgumentTypeError("rope", "be a Rope", rope)
    rows = as_rows(rope.frequencies)
    least = rope.start + 2 * len(rows[0])
    features = least if head_dim is None else int32("head_dim", head_dim, least=least)
    choice("dtype", dtype, _DTYPES, f"be one of {', '.join(_DTYPES)}")
    length = None if operator_length is None else int32("operator_length", operator_length, least=1)
    spox = _spox()
    axes = () if isinstance(rope.frequencies[0], float) else (len(rows),)

    def argument(dtype: str, *shape: str | int) -> Var:
        return spox.argument(spox.Tensor(np.dtype(dtype), shape))

    q, k = (argument(dtype, "batch", heads, "seq", features) for heads in ("heads", "kv_heads"))
    positions = argument("int64", "batch", "seq", *axes)
    turned = _traced(rope, q, k, positions) if length is None else _by_operator(rope, length, q, k, positions)
    outputs = dict(zip(("q_turned", "k_turned"), turned, strict=True))
    model: ModelProto = spox.build({"q": q, "k": k, "positions": positions}, outputs)
    model.doc_string = repr(rope)
    _store_apart(model.graph)
    return model


def _spox() -> Any:
    """Return the module that builds graphs, or say what brings it."""
    try:
        import ndonnx  # noqa: F401  # does it come up?
        import spox
    except ModuleNotFoundError as error:
        msg = f'export needs {error.name}, which is missing; install it by: pip install "rope-any[onnx]"'
        raise ModuleNotFoundError(msg, name=error.name) from None
    return spox


def _traced(rope: Rope, q: Var, k: Var, positions: Var) -> tuple[Var, ...]:
    """Turn by this library's own source, in float32."""
    import ndonnx
    from spox.opset.ai.onnx import v21 as onnx

    def cast(x: Var, dtype: Any) -> Var:
        return x if x.unwrap_tensor().dtype == dtype else onnx.cast(x, to=dtype)

    dtype = q.unwrap_tensor().dtype
    q, k = (ndonnx.asarray(cast(x, np.float32)) for x in (q, k))
    return tuple(cast(x.unwrap_spox(), dtype) for x in rope(q, k, ndonnx.asarray(positions)))


def _by_operator(rope: Rope, length: int, q: Var, k: Var, positions: Var) -> tuple[Var, ...]:
    """Turn by the standard operator and a table of the positions below `length`."""
    from spox.opset.ai.onnx import v23 as onnx

    dtype, pairs = q.unwrap_tensor().dtype, len(rope.frequencies)
    if rope.start or rope.blocks != 1 or not isinstance(rope.frequencies[0], float):
        wanted, got = "be None unless `rope` has one axis, one block and start=0", Text(f"{length} for {rope}")
        raise ArgumentValueError("operator_length", wanted, got)
    if (size := 2 * length * pairs * dtype.itemsize) > _LARGEST:
        got = Text(f"{length}, which makes {size / 2**30:.3g} GiB")
        raise ArgumentValueError("operator_length", "make tables of less than 2 GiB", got)
    cos, sin = (onnx.const(part.astype(dtype)) for part in rope.table(np.arange(length)))
    options = {"interleaved": int(rope.pairing == "interleaved"), "rotary_embedding_dim": 2 * pairs}
    return tuple(onnx.rotary_embedding(x, cos, sin, positions, **options) for x in (q, k))


def _store_apart(graph: "GraphProto") -> None:
    """Make constants of nodes initializers: fewer nodes, and large ones can be kept outside of the file."""
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        if node.op_type == "Constant":
            value = node.attribute[0].t
            value.name = node.output[0]
            graph.initializer.append(value)
        else:
            graph.node.append(node)
