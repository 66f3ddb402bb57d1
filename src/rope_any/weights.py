"""
Permute projection weights from one pairing to the other, so that attention scores stay the same.

The rows of the query and key projections of a checkpoint were trained for its pairing. Reordered in each head, they
give queries and keys in the feature order of the other pairing, with the same dot products. No number changes, and
the permutation can be undone.
"""

import math
import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, TypeVar

from rope_any._arrays import X, break_graph, library, require_array, type_name
from rope_any._checks import MAX_FEATURES, NOTHING, ArgumentTypeError, ArgumentValueError, Text, integer, require_known
from rope_any._pairing import Pairing, as_pairing, members

__all__ = ["convert", "convert_state_dict"]

_MATRICES = ("weight", "base_layer.weight", "lora_B*weight")
_VECTORS = ("bias", "base_layer.bias", "lora_B*bias", "lora_magnitude_vector*")
_PROJECTIONS = "q_proj k_proj query key wq wk"
_NORMS = "q_norm k_norm q_layernorm k_layernorm query_layernorm key_layernorm"
NAMES: Mapping[str, int] = {
    **{f"*.{name}.{kind}": 0 for name in _PROJECTIONS.split() for kind in _MATRICES},
    **{f"*.{name}.{kind}": -1 for name in _PROJECTIONS.split() for kind in _VECTORS},
    **{f"*.{name}.*{kind}": -1 for name in _NORMS.split() for kind in ("weight", "bias")},
}
"""Name patterns of query and key projections and norms in most checkpoints -> the axis of their features."""

# A tensor of such a name belongs to a module, as do the others in it.
_LEAVES = (".weight", ".bias", ".kernel")
# In GPTQ, AWQ, compressed-tensors, bitsandbytes: of integers that hold several numbers.
_PACKED = (".qweight", ".qzeros", ".weight_packed", ".absmax", ".quant_map")
# Other modules that compute queries or keys, alone or with values (wq_b, qkv_proj, query_key_value, c_attn).
_OF_QUERIES_OR_KEYS = re.compile(r"(\b|_)w?[qk](\b|_)|qk|kv|query|key|c_attn")
# Common names of a module's other tensors: those with output features, and those with input features.
_OF_OUTPUT = re.compile(
    r"(weight[._]+)?(scales|zeros)|weight[._]+(scale(_inv)?|zero_point)|SCB|dora_scale|lora[._]up\.weight"
    r"|(lora_[Bb]|lora_magnitude_vector|ia3_l|hada_w[12]_a)(\..+)?"
)
_OF_INPUT = re.compile(r"(input|pre_quant|smooth|act)[\w.]*(scales?|zero_point)|layer_norm_(weight|bias)")
# Parts of adapters: without output features, such as A of a LoRA, and with numbers that several features share.
_OF_RANK = re.compile(r"(.+[._])?(lora_(embedding_)?[AaE]|lora[._](down|mid)|adapter\.linear_in|hada_w[12]_b)(\..+)?")
_MIXED = re.compile(
    r"(.+\.)?(p?vera|vblora|lokr|b?oft|psoft|fourierft|waveft|randlora|gralora|delora|shira|bone|miss|hra|road|c3a|lily"
    r"|poly|hada(?=_t))_\w+(\..+)?"
)
_NUMBER = re.compile(r"(?:^|\.)\d+\.")


Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

W = TypeVar("W", bound=Any)


def convert(
    w: X,
    head_dim: int,
    /,
    *,
    source: Pairing,
    target: Pairing,
    axis: int = 0,
    rotary_dim: int | None = None,
    start: int = 0,
    heads: tuple[int, int] | None = None,
) -> X:
    """
    Reorder a query or key weight for another pairing.

    Parameters
    ----------
    w : array
        A projection of queries or keys, its bias, the B of its LoRA, or the weight of their norm; of any dtype. One
        axis has the features of all heads, head after head.
    head_dim : int
        The number of features of a head.
    source, target : {"half", "interleaved"}
        The pairing that w was trained for, and the one to convert it to. If they are the same, w is copied.
    axis : int, optional
        The axis of the features: 0 for weights of torch, ``(out, in)``; -1 for kernels of JAX, ``(in, out)`` or ``(in,
        heads, head_dim)``.
    rotary_dim : int, optional
        The number of rotated features of a head; by default all from `start` on.
    start : int, optional
        The first rotated feature of a head.
    heads : tuple of int, optional
        ``(m, n)``: only the first m heads in each group of n are reordered, for weights that also compute values. By
        default all are.

    Returns
    -------
    array
        The weight in the new order, of the same shape, dtype, library and device.

    Raises
    ------
    TypeError
        If `w` is not an array, or an argument is of another kind.
    ValueError
        If the axis doesn't hold whole heads, or a number or a pairing doesn't fit.

    Notes
    -----
    Convert both queries and keys of a layer. Values, the output projection and frequencies stay as they are.

    If one weight computes queries, keys and values, `heads` is for example ``(2, 3)`` if each head has its query, key
    and value (GPT-NeoX), or ``(g + 1, g + 2)`` if a group has g queries, a key and a value (Falcon).

    Elements that pack several numbers along the axis can't be reordered (the ``qweight`` of AWQ).

    Examples
    --------
    >>> ra.weights.convert(np.arange(12), 6, source="interleaved", target="half")
    array([ 0,  2,  4,  1,  3,  5,  6,  8, 10,  7,  9, 11])
    """
    order = feature_order(head_dim, source=source, target=target, rotary_dim=rotary_dim, start=start, heads=heads)
    return reorder("w", w, order, axis=integer("axis", axis))


def convert_state_dict(
    state: Mapping[str, W],
    head_dim: int,
    /,
    *,
    source: Pairing,
    target: Pairing,
    names: Mapping[str, int] | None = None,
    rotary_dim: int | None = None,
    start: int = 0,
    heads: tuple[int, int] | None = None,
) -> dict[str, W]:
    """
    Reorder the query and key weights of a whole checkpoint for another pairing.

    Parameters
    ----------
    state : mapping of str to array
        The checkpoint: arrays by name.
    head_dim, source, target : int and str
        As for `convert`.
    names : mapping of str to int, optional
        Patterns of names (``"*.wq.weight"``), each with the axis of the features. The default is `NAMES`: the query and
        key projections of most models, with their biases, LoRAs and norms.
    rotary_dim, start, heads : optional
        As for `convert`.

    Returns
    -------
    dict of str to array
        All names in the same order: the matching arrays and the scales of their rows reordered, the others unchanged.

    Raises
    ------
    TypeError
        If an argument is of another kind.
    ValueError
        If a pattern of `names`, or all default ones, match nothing; if a tensor doesn't hold whole heads, or another
        tensor of its module can't be reordered with it; or, without `names`, if other modules compute queries or keys
        too, or the matching tensors belong to several stacks of layers.

    Notes
    -----
    With a weight, the scales of its rows are reordered, and so are tensors of adapters with a number for each row.
    Scales of whole heads, of all rows or of the input stay, and so do tensors with a rank instead of rows (A of a
    LoRA). Packed tensors and others are refused.

    Examples
    --------
    >>> names = [f"layers.0.self_attn.{name}_proj.weight" for name in "qkv"]
    >>> state = {name: np.arange(8)[:, None] for name in names}
    >>> new = ra.weights.convert_state_dict(state, 4, source="interleaved", target="half")
    >>> for w in new.values():
    ...     print(w[:, 0])
    [0 2 1 3 4 6 5 7]
    [0 2 1 3 4 6 5 7]
    [0 1 2 3 4 5 6 7]
    """
    break_graph("call convert_state_dict outside of the compiled function")
    if not isinstance(state, Mapping):
        hint = "give state.state_dict()" if hasattr(state, "state_dict") else ""
        hint = "load the file, or use rope-any convert" if isinstance(state, str | os.PathLike) else hint
        raise ArgumentTypeError("state", "be a mapping of names to arrays", Text(type_name(state)), hint)
    for name, w in state.items():
        if not isinstance(name, str):
            raise ArgumentTypeError("state", "have names for its arrays", name)
        if isinstance(w, Mapping):
            got, hint = Text(f"a mapping for {name!r}"), 'join nested names by dots: {"a.b": array}'
            raise ArgumentTypeError("state", "have an array for each name", got, hint)
        require_array(name, w)
    order = feature_order(head_dim, source=source, target=target, rotary_dim=rotary_dim, start=start, heads=heads)
    axes = select_axes({name: tuple(w.shape) for name, w in state.items()}, order, names=names)
    return {name: reorder(name, w, order, axis=axes[name]) if name in axes else w for name, w in state.items()}


def feature_order(
    head_dim: int,
    /,
    *,
    source: Pairing,
    target: Pairing,
    rotary_dim: int | None = None,
    start: int = 0,
    heads: tuple[int, int] | None = None,
) -> tuple[int, ...]:
    """Return each feature's old index in a head's new order; for `heads` (m, n), of n heads, the first m changed."""
    pairings = as_pairing(target, "target"), as_pairing(source, "source")
    dim, first = integer("head_dim", head_dim), integer("start", start)
    if dim < 2:
        raise ArgumentValueError("head_dim", "be at least 2", dim)
    if not 0 <= first <= dim - 2:
        wanted = f"be from 0 to {dim - 2}, so that a head of {dim} has a pair to rotate"
        raise ArgumentValueError("start", wanted, first)
    rotated = dim - first if rotary_dim is None else integer("rotary_dim", rotary_dim)
    if rotary_dim is None and rotated % 2:
        wanted = f"leave an even number of features from `start` {first} on"
        raise ArgumentValueError("head_dim", wanted, dim)
    if not 2 <= rotated <= dim - first or rotated % 2:
        raise ArgumentValueError("rotary_dim", f"be even and from 2 to {dim - first}", rotated)
    count, group = _heads_per_group(heads)
    if group * dim > MAX_FEATURES:
        wanted = f"be at most {MAX_FEATURES}, times the second number of `heads`"
        raise ArgumentValueError("head_dim", wanted, group * dim)
    order = list(range(group * dim))
    for head in range(count):
        target_members, source_members = (members(pairing, head * dim + first, rotated // 2) for pairing in pairings)
        for new, old in zip(target_members, source_members, strict=True):
            order[new] = old
    return tuple(order)


def _heads_per_group(value: object) -> tuple[int, int]:
    """Return `heads`, (m, n): the first m of each n heads are reordered; (1, 1) for None; raise unless 0 < m ≤ n."""
    if value is None:
        return 1, 1
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ArgumentTypeError("heads", "be a pair of integers, (m, n) for m of n heads each", value)
    count, group = (integer("heads", number) for number in value)
    if not 0 < count <= group:
        raise ArgumentValueError("heads", "be (m, n) with m from 1 to n", (count, group))
    return count, group


def reorder(name: str, w: X, order: tuple[int, ...], /, *, axis: int) -> X:
    """Return w with groups of ``len(order)`` along `axis` reordered: new i is old ``order[i]``; raise unless whole."""
    lib = library(**{name: w})
    xp = lib.xp
    shape = tuple(w.shape)
    axis = head_axis(name, shape, order, axis)
    groups = xp.reshape(w, (*shape[:axis], shape[axis] // len(order), len(order), *shape[axis + 1 :]))
    integer_dtype = xp.int64 if lib.has_float64(w) else xp.int32  # ndonnx takes int64 only
    index = xp.asarray(order, dtype=integer_dtype, **lib.device_kwargs(w))
    result: X = xp.reshape(xp.take(groups, index, axis=axis + 1), shape)
    return result


def head_axis(name: str, shape: tuple[int, ...], order: tuple[int, ...], axis: int) -> int:
    """Return `axis` counted from the front; raise unless its length is a positive multiple of ``len(order)``."""
    if not -len(shape) <= axis < len(shape):
        raise ArgumentValueError("axis", f"be one that {name} has", Text(f"{axis} for shape {shape}"))
    require_known(name, shape)
    if not shape[axis] or shape[axis] % len(order):
        features = f"{len(order)} features (`head_dim`, times the second number of `heads`)"
        wanted = f"divide {name} along axis {axis} into groups of {features}"
        raise ArgumentValueError("head_dim", wanted, Text(f"shape {shape}"))
    return axis % len(shape)


def select_axes(shapes: Shapes, order: tuple[int, ...], /, *, names: Mapping[str, int] | None) -> dict[str, int]:
    """
    Return {name: axis of features} of the tensors to reorder: those that match a pattern, and their scales.

    `names` maps patterns to axes; None means the default patterns. Raises if patterns match nothing or a weight packed
    as in GPTQ, AWQ; if an axis does not hold whole groups of ``len(order)`` features, if another tensor of a matching
    module can't be reordered with it, or, with the default patterns, if other tensors compute queries or keys too.
    """
    matched = _match_names(shapes, names)
    for name in matched:
        if name.endswith(_PACKED):
            wanted = "match no packed weight, in which an integer holds several numbers"
            raise ArgumentValueError("names", wanted, Text(name), "convert first, then quantise")
        if _MIXED.fullmatch(name):
            wanted = "match no adapter in which a number belongs to several features"
            raise ArgumentValueError("names", wanted, Text(name), "merge it into its weight, and convert that")
    axes = {name: head_axis(name, shapes[name], order, matched[name]) for name in matched if name.endswith(_LEAVES)}
    # the owner of a module's tensors is the one with the most axes: a weight, not its bias
    owners = {_adapted_module(name): name for name in sorted(axes, key=lambda name: len(shapes[name]))}
    layers = {_enclosing_modules(name)[0].rpartition(".")[0] for name in axes} - {""} if names is None else set()
    for name, shape in shapes.items():
        modules = _enclosing_modules(name)[1 if name in axes else 0 :]
        owner = next((owners[module] for module in modules if owners.get(module, name) != name), None)
        if math.prod(shape) in {0, 1}:
            continue
        if owner is None and name in matched:
            axes[name] = head_axis(name, shape, order, matched[name])
        elif owner is None:
            _refuse_query_or_key(name, layers)
        else:
            axis, rows = matched.get(name, axes[owner]) if len(shape) > 1 else 0, shapes[owner][axes[owner]]
            sizes = {"axis": axis, "rows": rows, "group_size": len(order)}
            if _is_reordered_with(name, owner, shapes, **sizes, is_named=name in matched):
                axes[name] = axis
    return axes


def _match_names(shapes: Shapes, names: Mapping[str, int] | None) -> dict[str, int]:
    """Return {name: axis of its first pattern}; raise if one or all defaults match none, or defaults several stacks."""
    if names is not None and (not isinstance(names, Mapping) or not names):
        hint = "write dict.fromkeys(names, 0) for axis 0" if isinstance(names, list | tuple | set) and names else ""
        hint = f"write {{{names!r}: 0}} for axis 0" if isinstance(names, str) and 0 < len(names) <= 100 else hint
        raise ArgumentTypeError("names", "be a mapping of patterns to axes, not an empty one", names, hint)
    with_features = [name for name, shape in shapes.items() if math.prod(shape) != 1 and not _OF_RANK.fullmatch(name)]
    for pattern in names or ():
        if not isinstance(pattern, str) or not any(fnmatchcase(name, pattern) for name in with_features):
            text = pattern if isinstance(pattern, str) and pattern else "\0"
            hint = "it matches none"
            if any(fnmatchcase(name, text) for name in shapes):
                hint = "it matches only tensors without features of heads, such as A of a LoRA, which stays"
            elif any(text in name for name in shapes):
                hint += f"; write *{pattern}*, which matches the whole name"
            raise ArgumentValueError("names", "be patterns that match a tensor", pattern, hint)
    axes: dict[str, int] = {}
    for pattern, axis in (NAMES if names is None else names).items():
        number = integer(f"the axis of {pattern!r} in names", axis)
        axes |= {name: number for name in with_features if name not in axes and fnmatchcase(name, pattern)}
    if not axes:
        hint = "the default patterns (*.q_proj.weight, *.wk.weight, ...) match none of the tensors"
        near = next(filter(_OF_QUERIES_OR_KEYS.search, with_features), None)
        hint += "" if near is None else f"; {near} may be one, with `heads` if it has values too"
        raise ArgumentValueError("names", "be given", NOTHING, hint)
    stacks = dict.fromkeys(map(_layer_stack, axes))
    if names is None and len(stacks) > 1:
        got = Text(" and ".join(map(repr, stacks)))
        raise ArgumentValueError("names", "be given if several stacks of layers compute queries or keys", got)
    return axes


def _layer_stack(name: str) -> str:
    """Return the name of a tensor's stack of layers: its name up to the first number, else to the first dot."""
    stack, *layer = _NUMBER.split(name, maxsplit=1)
    return stack if layer else name.partition(".")[0]


def _enclosing_modules(name: str) -> list[str]:
    """Return the modules that contain a tensor, innermost first, without the root: [] for a name without a dot."""
    parts = name.split(".")[:-1]
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _adapted_module(name: str) -> str:
    """Return the module of a weight, or that of an adapter of PEFT around it, whose tensors belong to the weight."""
    return _enclosing_modules(name)[0].removesuffix(".base_layer")


def _refuse_query_or_key(name: str, layers: set[str]) -> None:
    """Raise if a tensor, which no default pattern matches, is in one of `layers` and named like queries or keys."""
    for layer in layers.intersection(_enclosing_modules(name)):
        if _OF_QUERIES_OR_KEYS.search(name.removeprefix(layer)):
            wanted = "be given if a layer has query or key weights of other names"
            raise ArgumentValueError("names", wanted, Text(name))


def _is_reordered_with(
    name: str, owner: str, shapes: Shapes, *, axis: int, rows: int, group_size: int, is_named: bool
) -> bool:
    """
    Whether a tensor beside `owner` has a number along `axis` for each of its `rows`; raise if that is not known.

    It has none if it belongs to the input, or to blocks of whole groups. `is_named` if the caller gave its name.
    """
    shape, local_name = shapes[name], name.removeprefix(f"{_adapted_module(owner)}.").removeprefix("base_layer.")
    if _OF_INPUT.fullmatch(local_name) or _OF_RANK.fullmatch(local_name):
        return False
    is_known = bool(_OF_OUTPUT.fullmatch(local_name))
    if (is_known or is_named) and len(shape) in {1, len(shapes[owner])}:
        count = shape[axis]
        if count == rows:
            return True
        # blocks have a power of two of rows, or all rows; for other numbers the last block may have been cut off
        block = rows // count if count and rows % count == 0 else 0
        if is_known and (count == 1 or (block.bit_count() == 1 and block % group_size == 0)):
            return False
    wanted = "have only tensors beside it that can be reordered with it"
    hint = "" if is_named else "give its name in `names` if it has a number for each row; merge an adapter first"
    raise ArgumentValueError(Text(owner), wanted, Text(f"{name} of shape {shape}"), hint)
