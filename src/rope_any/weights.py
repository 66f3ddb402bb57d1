"""
Permute projection weights from one pairing to the other, so that attention scores stay the same.

Which features turn together is a property of a checkpoint: the rows of its query and key projections were trained for
it. With these rows in another order, head by head, queries and keys come out in the order of the other pairing, and
their dot products are the same. It is a permutation and nothing else: no number changes, and it can be undone.
"""

import math
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, TypeVar

from rope_any._arrays import X, library, require_array
from rope_any._checks import MAX_FEATURES, NOTHING, ArgumentTypeError, ArgumentValueError, Text, integer, require_known
from rope_any._pairing import Pairing, as_pairing, members

__all__ = ["convert", "convert_state_dict"]

_MATRICES = ("weight", "base_layer.weight", "lora_B*weight")
_VECTORS = ("bias", "base_layer.bias", "lora_magnitude_vector*")
_PROJECTIONS = "q_proj k_proj query key wq wk"
_NORMS = "q_norm k_norm q_layernorm k_layernorm query_layernorm key_layernorm"
NAMES: Mapping[str, int] = {
    **{f"*.{name}.{kind}": 0 for name in _PROJECTIONS.split() for kind in _MATRICES},
    **{f"*.{name}.{kind}": -1 for name in _PROJECTIONS.split() for kind in _VECTORS},
    **{f"*.{name}.*{kind}": -1 for name in _NORMS.split() for kind in ("weight", "bias")},
}
"""What queries and keys are projected and normalised by in most checkpoints, and the axis of their features."""

_LEAVES = (".weight", ".bias", ".kernel")  # what is called so is part of a module, with all that lies beside it
# What else makes queries or keys: alone or with values (wq_b, qkv_proj, query_key_value, c_attn).
_OF_QUERIES_OR_KEYS = re.compile(r"(\b|_)w?[qk](\b|_)|qk|kv|query|key|c_attn")
# What a module has beside its weight, by names in use: of the features that it makes, or of those that it is given.
_OF_OUTPUT = re.compile(r"(weight[._]+)?(scales|zeros)|weight[._]+(scale(_inv)?|zero_point)|SCB")
_OF_INPUT = re.compile(r"lora_A\b.*|(input|pre_quant|smooth|act)[\w.]*(scales?|zero_point)")
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
    Reorder a weight of queries or keys, so that under another pairing they have the same scores.

    Parameters
    ----------
    w : array
        What makes queries or keys: a projection, its bias, the B of its LoRA, the weight of a norm of queries or keys;
        of any dtype. One axis has the features of heads, head after head.
    head_dim : int
        How many features a head has.
    source, target : {"half", "interleaved"}
        The pairing that w was trained for, and the one that it will be used with.
    axis : int, optional
        The axis of the features: 0 for weights of torch, ``(out, in)``; -1 for kernels of JAX, ``(in, out)`` or
        ``(in, heads, head_dim)``.
    rotary_dim : int, optional
        How many features of a head turn; all from `start` on by default.
    start : int, optional
        The first feature of a head that turns.
    heads : tuple of int, optional
        ``(m, n)``: of n heads each, the first m are reordered, and the others are left alone. For weights that make
        values as well; all heads by default.

    Returns
    -------
    array
        The weight in its new order, of the same shape, dtype, library and device. Back from `target` to `source` it is
        w again, to the bit.

    Raises
    ------
    TypeError
        If `w` is not an array, or an argument is of another kind.
    ValueError
        If the axis doesn't hold whole heads, or a number or a pairing doesn't fit.

    Notes
    -----
    Both of a layer are to be converted, queries and keys; values and the output projection have no part in the scores
    and stay as they are. So do frequencies: pair i is pair i in both orders.

    Where query, key and value are one weight, `heads` says which is which: ``(2, 3)`` where each head has the three in
    turn (GPT-NeoX); ``(g + 1, g + 2)`` where g queries, a key and a value follow each other (Falcon, InternLM2);
    ``(h + k, h + 2 * k)`` where all h queries come first, then k keys and k values (Phi-3); ``(1, 2)`` where a gate
    follows each query (Qwen3-Next).

    Numbers packed several to an element along the axis can't be reordered so (the ``qweight`` of AWQ).

    It is what `permute` does in the script by which Llama's weights came into transformers, and in llama.cpp's on the
    way back.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import weights
    >>> weights.convert(np.arange(12), 6, source="interleaved", target="half")
    array([ 0,  2,  4,  1,  3,  5,  6,  8, 10,  7,  9, 11])
    """
    order = order_of(head_dim, source=source, target=target, rotary_dim=rotary_dim, start=start, heads=heads)
    return reordered("w", w, order, axis=integer("axis", axis))


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
    Reorder what makes queries and keys in a whole checkpoint.

    Parameters
    ----------
    state : mapping of str to array
        The checkpoint: arrays by name.
    head_dim : int
        How many features a head has.
    source, target : {"half", "interleaved"}
        The pairing that it was trained for, and the one that it will be used with.
    names : mapping of str to int, optional
        Patterns of names (``"*.wq.weight"``), each with the axis of the features. By default those of `NAMES`: the
        query and key projections of most models, with their biases, LoRAs and norms.
    rotary_dim : int, optional
        How many features of a head turn; all from `start` on by default.
    start : int, optional
        The first feature of a head that turns.
    heads : tuple of int, optional
        ``(m, n)``: of n heads each, the first m are reordered; see `convert`.

    Returns
    -------
    dict of str to array
        All names in their order: those that match reordered, the others with the arrays that were given.

    Raises
    ------
    TypeError
        If an argument is of another kind.
    ValueError
        If a pattern of `names` matches nothing, or none of the default ones does; if a tensor doesn't hold whole heads;
        if something beside it can't go along; or, by default, if another module makes queries or keys too, or if those
        that match are of several stacks of layers.

    Notes
    -----
    Scales of a quantised weight that lie beside it go along where there is one for each row, and stay where all of a
    head has the same. Scales of the input stay. What is packed or scaled otherwise is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import weights
    >>> names = [f"layers.0.self_attn.{name}_proj.weight" for name in "qkv"]
    >>> state = {name: np.arange(8)[:, None] for name in names}
    >>> new = weights.convert_state_dict(state, 4, source="interleaved", target="half")
    >>> for w in new.values():
    ...     print(w[:, 0])
    [0 2 1 3 4 6 5 7]
    [0 2 1 3 4 6 5 7]
    [0 1 2 3 4 5 6 7]
    """
    if not isinstance(state, Mapping):
        raise ArgumentTypeError("state", "be a mapping of names to arrays", Text(type(state).__name__))
    for name, w in state.items():
        if not isinstance(name, str):
            raise ArgumentTypeError("state", "have names for its arrays", name)
        require_array(name, w)
    order = order_of(head_dim, source=source, target=target, rotary_dim=rotary_dim, start=start, heads=heads)
    axes = chosen({name: tuple(w.shape) for name, w in state.items()}, order, names=names)
    return {name: reordered(name, w, order, axis=axes[name]) if name in axes else w for name, w in state.items()}


def order_of(
    head_dim: int,
    /,
    *,
    source: Pairing,
    target: Pairing,
    rotary_dim: int | None = None,
    start: int = 0,
    heads: tuple[int, int] | None = None,
) -> tuple[int, ...]:
    """Return, for each feature of a run of heads in its new order, where it stood in the old one."""
    pairings = as_pairing(target, "target"), as_pairing(source, "source")
    dim, first = integer("head_dim", head_dim), integer("start", start)
    if dim < 2:
        raise ArgumentValueError("head_dim", "be at least 2", dim)
    if not 0 <= first <= dim - 2:
        wanted = f"be from 0 to {dim - 2}, so that a pair of a head of {dim} can turn"
        raise ArgumentValueError("start", wanted, first)
    turned = dim - first if rotary_dim is None else integer("rotary_dim", rotary_dim)
    if rotary_dim is None and turned % 2:
        wanted = f"leave an even number of features from `start` {first} on"
        raise ArgumentValueError("head_dim", wanted, dim)
    if not 2 <= turned <= dim - first or turned % 2:
        raise ArgumentValueError("rotary_dim", f"be even and from 2 to {dim - first}", turned)
    some, of = _heads(heads)
    if of * dim > MAX_FEATURES:
        wanted = f"be at most {MAX_FEATURES}, times n for `heads` of m of n"
        raise ArgumentValueError("head_dim", wanted, of * dim)
    order = list(range(of * dim))
    for head in range(some):
        there, here = (members(pairing, head * dim + first, turned // 2) for pairing in pairings)
        for new, old in zip(there, here, strict=True):
            order[new] = old
    return tuple(order)


def _heads(value: object) -> tuple[int, int]:
    """Return how many heads are reordered, of how many each."""
    if value is None:
        return 1, 1
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ArgumentTypeError("heads", "be a pair of integers, (m, n) for m of n heads each", value)
    some, of = (integer("heads", number) for number in value)
    if not 0 < some <= of:
        raise ArgumentValueError("heads", "be (m, n) with m from 1 to n", (some, of))
    return some, of


def reordered(name: str, w: X, order: tuple[int, ...], /, *, axis: int) -> X:
    """Return an array with the features along an axis in a new order, run after run."""
    lib = library(**{name: w})
    xp = lib.xp
    shape = tuple(w.shape)
    axis = run_axis(name, shape, order, axis)
    runs = xp.reshape(w, (*shape[:axis], shape[axis] // len(order), len(order), *shape[axis + 1 :]))
    index = xp.asarray(order, dtype=xp.int32, **lib.device_kwargs(w))
    turned: X = xp.reshape(xp.take(runs, index, axis=axis + 1), shape)
    return turned


def run_axis(name: str, shape: tuple[int, ...], order: tuple[int, ...], axis: int) -> int:
    """Return the axis of the features counted from the front, or say that it doesn't hold whole runs of heads."""
    if not -len(shape) <= axis < len(shape):
        raise ArgumentValueError("axis", f"be one that {name} has", Text(f"{axis} for shape {shape}"))
    require_known(name, shape)
    if not shape[axis] or shape[axis] % len(order):
        runs = f"{len(order)} features (`head_dim`, times n for `heads` of m of n)"
        wanted = f"divide {name} along axis {axis} into runs of {runs}"
        raise ArgumentValueError("head_dim", wanted, Text(f"shape {shape}"))
    return axis % len(shape)


def chosen(shapes: Shapes, order: tuple[int, ...], /, *, names: Mapping[str, int] | None) -> dict[str, int]:
    """Return which tensors of a checkpoint are to be reordered, and along which axis, or say why it can't be done."""
    axes = {name: run_axis(name, shapes[name], order, axis) for name, axis in _matched(shapes, names).items()}
    # of the tensors of a module the one with most axes: a weight rather than its bias
    ranked = sorted((name for name in axes if name.endswith(_LEAVES)), key=lambda name: len(shapes[name]))
    owners = {_above(name)[0]: name for name in ranked}
    layers = {module.rpartition(".")[0] for module in owners} - {""} if names is None else set()
    for name in [name for name in shapes if name not in axes and math.prod(shapes[name]) not in {0, 1}]:
        owner = next((owners[module] for module in _above(name) if module in owners), None)
        if owner is None:
            _require_other(name, layers)
        elif _goes_along(name, shapes[name], owner, shapes[owner], axes[owner], len(order)):
            axes[name] = axes[owner] if len(shapes[name]) > 1 else 0
    return axes


def _matched(shapes: Shapes, names: Mapping[str, int] | None) -> dict[str, int]:
    """Return the tensors that patterns match, with the axis of the first that does."""
    if names is not None and (not isinstance(names, Mapping) or not names):
        raise ArgumentTypeError("names", "be a mapping of patterns to axes, not an empty one", names)
    for pattern in names or ():
        if not isinstance(pattern, str) or not any(fnmatchcase(name, pattern) for name in shapes):
            raise ArgumentValueError("names", "be patterns that match a tensor", pattern, "it matches none")
    axes: dict[str, int] = {}
    for pattern, axis in (NAMES if names is None else names).items():
        number = integer(f"the axis of {pattern!r} in names", axis)
        axes |= {name: number for name in shapes if name not in axes and fnmatchcase(name, pattern)}
    if not axes:
        hint = "the default patterns (*.q_proj.weight, *.wk.weight, ...) match none of the tensors"
        raise ArgumentValueError("names", "be given", NOTHING, hint)
    stacks = dict.fromkeys(map(_stack, axes))
    if names is None and len(stacks) > 1:
        got = Text(" and ".join(map(repr, stacks)))
        raise ArgumentValueError("names", "be given if more than one stack of layers makes queries or keys", got)
    return axes


def _stack(name: str) -> str:
    """Return what the layers of a tensor are called: all before their number, or its first module."""
    stack, *layer = _NUMBER.split(name, maxsplit=1)
    return stack if layer else name.partition(".")[0]


def _above(name: str) -> list[str]:
    """Return the modules that a tensor is in, from the inmost out."""
    parts = name.split(".")[:-1]
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _require_other(name: str, layers: set[str]) -> None:
    """Say that names must be given if a tensor beside those of default names makes queries or keys too."""
    for layer in layers.intersection(_above(name)):
        if _OF_QUERIES_OR_KEYS.search(name.removeprefix(layer)):
            wanted = "be given if others than the default ones make queries or keys"
            raise ArgumentValueError("names", wanted, Text(name))


def _goes_along(  # noqa: PLR0917  # two tensors, and how one of them is reordered
    name: str, shape: tuple[int, ...], owner: str, whole: tuple[int, ...], axis: int, run: int
) -> bool:
    """Whether a tensor beside another, its `owner`, has a number for each feature, or one for whole heads and stays."""
    beside = name.removeprefix(f"{_above(owner)[0]}.")
    if _OF_INPUT.fullmatch(beside):
        return False
    if _OF_OUTPUT.fullmatch(beside) and len(shape) in {1, len(whole)}:
        count, rows = shape[axis if len(shape) > 1 else 0], whole[axis]
        if count == rows:
            return True
        # blocks of a power of two, which is what they are, or of all: else the last may have been cut
        block = rows // count if count and rows % count == 0 else 0
        if count == 1 or (block.bit_count() == 1 and block % run == 0):
            return False
    got = Text(f"{name} of shape {shape}")
    raise ArgumentValueError(Text(owner), "stand without what can't be reordered with it", got)
