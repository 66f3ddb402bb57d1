"""
Give an existing transformers model exact tables and the fast rotation.

`replace` sets a new ``forward`` on the rotary embeddings and the attentions of one model, and changes nothing that
models share. It compares results instead of names: an embedding must make the tables of its config, up to float32
errors of angles, and a rotation with another result than `rotate` is kept, with exact tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import cache, partial, update_wrapper
from inspect import signature, unwrap
from itertools import product
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, TypeAlias, get_args

from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, int32, missing_package

try:
    import torch
    from torch import Tensor, nn
except ModuleNotFoundError as error:
    raise missing_package("rope_any.integrations.transformers", error, "transformers") from None

from rope_any._frequencies import as_rows
from rope_any._pairing import Pairing
from rope_any._rope import Rope
from rope_any._rotate import rotate
from rope_any._rotation import Table
from rope_any.config import Config, read
from rope_any.config._recipe import LONGEST
from rope_any.integrations._configs import model_around, model_configs
from rope_any.integrations._transformers_caches import reposition

__all__ = ["Undo", "replace", "reposition"]

Path: TypeAlias = str
"""The path of a module in a model: ``model.layers.0.self_attn``."""
Paths: TypeAlias = tuple[Path, ...]

ROTARY = re.compile(r"Rotary(Positional)?Embedding$")
VISION = re.compile(r"Vi(sion|T)")
"""Class names of vision towers, with positions of patches."""
NAME = "__name__"
HELD = "embed_positions"
"""
The buffer of the sines, then the cosines, of all positions, in GPT-J and CodeGen: of the rotary embedding; before
transformers 5.24, of each attention.
"""
INITIALIZED = "_is_hf_initialized"
"""The attribute of a tensor that `_init_weights` of transformers doesn't write."""
APPLY = "_apply"
"""The method of a module by which torch casts and moves its buffers, which are then new tensors."""
TABLE_ARGUMENTS = frozenset({"position_embeddings", "freqs_cis"})
"""Names of the arguments that take tables."""
ORIGINAL = "original_max_position_embeddings"
LONG = 2**17
"""In tokens: the length up to which the tables of an embedding are compared."""
FEW = 2**20
"""Up to this many elements, functions of transformers are faster than `rotate`, unless compiled."""


@dataclass(frozen=True)
class Undo:
    """What `replace` did to a model; a call undoes it."""

    tables: Paths
    """The rotary embeddings with exact tables."""
    rotations: Paths
    """The attentions that call `rotate`, except for few elements. Others keep their own function."""
    left: Paths
    """The rotary embeddings of vision towers, unchanged."""
    _changes: list[Change] = field(repr=False, compare=False)
    """Changes not undone yet."""

    def __call__(self) -> None:
        """Give the model its own code back; a new ``forward`` that is wrapped now stays until a later call."""
        self._changes[:] = [change for change in self._changes if not change.undo()]


class Change(NamedTuple):
    """A name in the namespace of a module and its new value: a table instead of `old`, or a ``forward``."""

    namespace: dict[str, Any]
    name: str
    new: Any
    old: Tensor | None = None

    def apply(self) -> None:
        """Set the new value."""
        self.namespace[self.name] = self.new

    def undo(self) -> bool:
        """Undo the change, unless it is a ``forward`` that is replaced or wrapped now; return whether it is undone."""
        now = self.namespace.get(self.name)
        if self.old is not None and now is not None:
            self.namespace[self.name] = self.old.to(now)  # the model may have been moved
        elif now is self.new:
            del self.namespace[self.name]
        elif isinstance(self.new, partial) and "maker" in self.new.keywords:
            # wrapped: it rounds as its class does, since its attentions have their own functions again
            maker = self.new.keywords["maker"]
            self.new.keywords["maker"] = maker._replace(rounds=maker.class_rounds)
            return False
        else:
            return False
        return True


def replace(model: nn.Module, /, *, sequence_length: int | None = None) -> Undo:
    """
    Give a transformers model exact tables and the fast rotation, in place.

    Parameters
    ----------
    model : torch.nn.Module
        A model with rotary embeddings, or a part of one, on any device and of any dtype.
    sequence_length : int, optional
        The length, in tokens, that tables are made for, if they depend on it (dynamic, longrope). Without it, longrope
        uses the largest position of each call, as in transformers, and dynamic raises an error.

    Returns
    -------
    Undo
        Lists what was replaced and what was left; a call undoes it.

    Raises
    ------
    TypeError
        If an argument has a wrong type.
    ValueError
        If there is no rotary embedding, or one is unknown, makes other tables than its config says, is replaced
        already, has a ``forward`` of its own (a hook of accelerate), is on the meta device or needs a
        `sequence_length`. The model is then unchanged.

    Notes
    -----
    Parameters, caches, hooks, the state dict and buffers stay unchanged, except the buffer with the table of GPT-J and
    CodeGen. Tables are float32 in a half-precision model too (float64 in a float64 one), unless a module that uses them
    keeps its own function. The model's own function rotates few elements, as in a decoding step.

    Examples
    --------
    >>> import transformers
    >>> from rope_any.integrations.transformers import replace
    >>> sizes = {"vocab_size": 10, "hidden_size": 64, "intermediate_size": 64}
    >>> config = transformers.LlamaConfig(**sizes, num_attention_heads=2, num_hidden_layers=1)
    >>> model = transformers.LlamaModel(config)
    >>> undo = replace(model)
    >>> undo.tables, undo.rotations
    (('rotary_emb',), ('layers.0.self_attn',))
    >>> undo()
    """
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError("model", "be a torch module", Text(type(model).__name__))
    length = None if sequence_length is None else int32("sequence_length", sequence_length, least=1)
    with torch.device("cpu"), torch.no_grad():  # for the comparisons
        tables, rotations, left, changes = _plan_changes(model, length)
    for change in changes:
        change.apply()
    return Undo(tables, rotations, left, changes)


def _plan_changes(model: Any, length: int | None) -> tuple[Paths, Paths, Paths, list[Change]]:
    """Return `tables`, `rotations`, `left` of an `Undo`, and changes to make; `length`, errors as in `replace`."""
    embeddings = {path: m for path, m in model.named_modules() if ROTARY.search(type(m).__name__)}
    left = tuple(path for path, m in embeddings.items() if VISION.search(type(m).__name__))
    if twice := next((m for m in model.modules() if _is_ours(vars(m).get("forward"))), None):
        raise _unfit(twice, "not be replaced twice", " that is replaced already")
    holders = {path: m for path, m in model.named_modules() if HELD in vars(m)["_buffers"]}
    by_model, error = model_configs(model, Rope.from_config)
    if holders and error and not by_model:
        raise error
    held = {path: _gptj_table(m, by_model.get(model_around(path, by_model) or "")) for path, m in holders.items()}
    makers = {path: _table_maker(m, length) for path, m in embeddings.items() if path not in {*left, *held}}
    if not makers and not held:
        raise _unfit(model, "have rotary embeddings, other than those of vision towers")
    layouts = {path: maker.layout for path, maker in makers.items()} | dict.fromkeys(held, "once")
    reach = {path: path if path in held else _nearest_embedding(path, embeddings) for path, _ in model.named_modules()}
    new_forward = cache(_new_forward)
    rotations = {
        path: MethodType(forward, m)
        for path, m in model.named_modules()
        if (tables := reach[path]) in layouts
        and "forward" not in vars(m)
        and (forward := new_forward(type(m).forward, layouts[tables])) is not None
    }
    above = {path[:end] for path in rotations for end, letter in enumerate(path) if letter == "."}
    around = {type(model.get_submodule(path)) for path in above}
    may_rotate = cache(partial(_may_rotate, around=around))
    rounded = {reach[path] for path, m in model.named_modules() if may_rotate(m.__class__, replaced=path in rotations)}
    # Rounded tables work everywhere; float32 tables only if all modules use `rotate`.
    exact = set() if None in rounded else {reach[path] for path in rotations} - rounded
    changes = [Change(vars(model.get_submodule(path)), "forward", forward) for path, forward in rotations.items()]
    for path, own in makers.items():
        new = partial(_exact_tables, maker=own._replace(rounds=own.class_rounds and path not in exact))
        changes.append(Change(vars(embeddings[path]), "forward", new))
    for path, table in held.items():
        module = model.get_submodule(path)
        buffers = vars(module)["_buffers"]
        changes.append(Change(buffers, HELD, table, buffers[HELD]))
        changes.append(Change(vars(module), APPLY, partial(_apply_and_mark, module)))
    return (*makers, *held), tuple(rotations), left, changes


def _refuse_meta(module: nn.Module) -> None:
    """Raise if a buffer of a module or of its children, such as its tables, is on the meta device."""
    if any(buffer.is_meta for buffer in module.buffers()):
        raise _unfit(module, "have its rotary tables in memory", " on the meta device")


def _unfit(module: nn.Module, wanted: str, but: str = "", hint: str = "") -> ArgumentValueError:
    """Return the error "model must {wanted}; got a {class of the module}{but}", with a hint."""
    return ArgumentValueError("model", wanted, Text(f"a {type(module).__name__}{but}"), hint)


def _is_ours(forward: Any) -> bool:
    """Whether a ``forward`` was set by `replace`."""
    if isinstance(forward, partial):
        return forward.func is _exact_tables
    return isinstance(forward, MethodType) and NAME not in getattr(forward, "__globals__", {NAME})


# --- tables -----------------------------------------------------------------------------------------------------------


class ByLength(NamedTuple):
    """One rotation, or two for LongRoPE: `longer` is for sequences beyond the trained length."""

    rope: Rope
    longer: Rope | None = None
    trained: int = 0

    def table(self, position_ids: Tensor, like: Tensor) -> Table:
        """Return the table of positions ``([axes,] batch, seq)``: that of `longer` if any is `trained` or more."""
        table = self.rope.table(_with_axes(position_ids, self.rope), like=like)
        if self.longer is None:
            return table
        long = self.longer.table(_with_axes(position_ids, self.longer), like=like)
        is_long = position_ids.max() >= self.trained
        return Table(*(torch.where(is_long, b, a) for a, b in zip(table, long, strict=True)))


class TableMaker(NamedTuple):
    """What makes the exact tables of one rotary embedding."""

    by_kind: Mapping[str | None, ByLength]
    """By type of layer, or for None."""
    layout: str
    """The layout of the tables, a key of `TO_LAYOUT`."""
    class_rounds: bool
    """Whether the class of the embedding rounds tables to the dtype of x."""
    rounds: bool
    """Whether exact tables are rounded too, for an attention that keeps its own function."""

    def __deepcopy__(self, memo: object) -> TableMaker:
        """Return itself, because it is immutable."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with `rounds` as the class has it: once unpickled, each attention has its own function again."""
        return TableMaker, (self.by_kind, self.layout, self.class_rounds, self.class_rounds)


def _exact_tables(x: Tensor, position_ids: Tensor, layer_type: str | None = None, *, maker: TableMaker) -> Any:
    """Return exact cos/sin tables in the model's layout, in x's dtype if the maker `rounds`, else at least float32."""
    wide = TO_LAYOUT[maker.layout](*maker.by_kind[layer_type].table(position_ids.to(x.device), like=x))
    return tuple(part.to(x.dtype) for part in wide) if maker.rounds else wide


def _with_axes(position_ids: Tensor, rope: Rope) -> Tensor:
    """Return ids ``([axes,] batch, seq)`` as ``(batch, seq, axes)``: repeated, or the first; unchanged without axes."""
    if not isinstance(rope.frequencies[0], tuple):
        return position_ids
    rows = len(rope.frequencies)
    p = position_ids[:rows] if position_ids.ndim == 3 else position_ids[None]
    return p.expand(rows, -1, -1).movedim(0, -1)


def _append_copy(part: Tensor) -> Tensor:
    """Double the last axis by a copy of it at its end: (a, b) becomes (a, b, a, b)."""
    return torch.cat((part, part), dim=-1)


def _repeat_each(part: Tensor) -> Tensor:
    """Double the last axis by a copy beside each element: (a, b) becomes (a, a, b, b)."""
    return part.repeat_interleave(2, dim=-1)


TO_LAYOUT: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "twice": lambda cos, sin: (_append_copy(cos), _append_copy(sin)),
    "side by side": lambda cos, sin: (_repeat_each(cos), _repeat_each(sin)),
    "once": lambda cos, sin: (cos, sin),
    "complex": torch.complex,
}
"""Layouts of tables in transformers: functions of the cosines and sines of the pairs."""

FROM_LAYOUT: dict[str, Callable[[Tensor], Tensor]] = {
    "twice": lambda wide: wide[..., : wide.shape[-1] // 2],
    "side by side": lambda wide: wide[..., ::2],
    "once": lambda wide: wide,
}
"""The inverse functions, for cosines or sines. Attentions keep their functions of complex tables."""


def _table_maker(embedding: nn.Module, length: int | None) -> TableMaker:
    """
    Return the maker of an embedding's exact tables; raise if its own tables differ from them.

    Raise, too, if it is on the meta device, has a ``forward`` of its own or no config, or takes no position_ids.
    """
    _refuse_meta(embedding)
    if "forward" in vars(embedding):
        raise _unfit(embedding, "have rotary embeddings without a wrapped forward", " with one", "remove its hook")
    if "position_ids" not in signature(type(embedding).forward).parameters or not hasattr(embedding, "config"):
        raise _unfit(embedding, "have rotary embeddings with a config, which take position_ids")
    config = read(embedding.config)
    by_kind = {kind: _by_length(config, kind, length) for kind in _layer_types(embedding)}
    layouts = {_table_layout(embedding, kind, ropes, length or LONG) for kind, ropes in by_kind.items()}
    if len(layouts) != 1 or None in layouts:
        raise _unfit(embedding, "make the rotary tables that its config says", " that makes others")
    kind, ropes = next(iter(by_kind.items()))
    shape = (axes, 1, 1) if (axes := _count_axes(embedding, ropes.rope)) > 1 else (1, 1)
    theirs = _own_tables(embedding, kind, torch.zeros(shape, dtype=torch.int64), torch.bfloat16)
    class_rounds = isinstance(theirs, tuple) and theirs[0].dtype == torch.bfloat16
    return TableMaker(by_kind, str(layouts.pop()), class_rounds, rounds=class_rounds)


def _layer_types(embedding: nn.Module) -> list[str] | list[None]:
    """Return the types of layers that an embedding has frequencies for; [None] if all layers share them."""
    names = [name for name, _ in embedding.named_buffers(recurse=False) if name.endswith("_inv_freq")]
    return [name.removesuffix("_inv_freq") for name in names if not name.endswith("original_inv_freq")] or [None]


def _by_length(config: Config, layer_type: str | None, length: int | None) -> ByLength:
    """Return a layer type's rotation at `length`; if None, both of LongRoPE; raise if another scheme depends on it."""
    rope, longer = (config.rope(layer_type=layer_type, sequence_length=n) for n in (length, length or LONGEST))
    if rope == longer:
        return ByLength(_without_signs(rope))
    (explanation,) = config.explain(layer_type=layer_type)
    scheme = explanation.facts["rope_type"].value
    if scheme != "longrope":
        wanted = f"be given for rope type {scheme!r}, whose tables depend on it"
        raise ArgumentValueError("sequence_length", wanted, None)
    return ByLength(_without_signs(rope), _without_signs(longer), int(explanation.facts[ORIGINAL].value))


def _without_signs(rope: Rope) -> Rope:
    """Return a Rope with the absolute frequencies: NanoChat rotates backwards by its function, not by its tables."""
    rows = [tuple(map(abs, row)) for row in as_rows(rope.frequencies)]
    return changed(rope, frequencies=tuple(rows) if len(rows) > 1 else rows[0])


def _own_tables(
    embedding: nn.Module, layer_type: str | None, position_ids: Tensor, dtype: torch.dtype = torch.float32
) -> Any:
    """Return the tables that a copy of an embedding makes of position ids, as it returns them; raise if it fails."""
    own, x = deepcopy(embedding).cpu(), torch.zeros(1, dtype=dtype)
    try:
        return own(x, position_ids, **({} if layer_type is None else {"layer_type": layer_type}))
    except (IndexError, RuntimeError, TypeError) as error:
        raise _unfit(embedding, "have rotary embeddings that work", f" that fails: {error}") from error


def _table_layout(embedding: nn.Module, layer_type: str | None, rope_by_length: ByLength, length: int) -> str | None:
    """Return the key of `TO_LAYOUT` of an embedding's tables at positions below `length`; None if not the Rope's."""
    lengths = (rope_by_length.trained, rope_by_length.trained + 1) if rope_by_length.longer else (length,)
    axes = _count_axes(embedding, rope_by_length.rope)
    probes = [positions for n in lengths for positions in _probes(n, axes)]
    probes = [p for p in probes if p.ndim == (3 if axes > 1 else 2) or _takes(embedding, layer_type, p)]
    for layout in TO_LAYOUT:
        if all(_agrees(embedding, layer_type, rope_by_length, layout, positions) for positions in probes):
            return layout
    return None


def _probes(length: int, axes: int) -> Iterator[Tensor]:
    """Yield test positions below a length: ``(1, seq)``, then ``(axes, 1, seq)``, of three axes if `axes` is 1."""
    line = torch.tensor(sorted({n for n in (0, 1, 3, 17, 300, 4096) if n < length} | {length - 1}))
    yield line[None]
    yield torch.stack([line.roll(shift) for shift in range(axes if axes > 1 else 3)])[:, None]


def _count_axes(embedding: nn.Module, rope: Rope) -> int:
    """Return how many axes the positions of an embedding have; its Rope has one row for all if they share theirs."""
    return len(getattr(embedding, "mrope_section", None) or as_rows(rope.frequencies))


def _takes(embedding: nn.Module, layer_type: str | None, positions: Tensor) -> bool:
    """Whether an embedding makes tables of positions with another number of axes than its own; older versions don't."""
    try:
        tables = _own_tables(embedding, layer_type, positions)
    except ArgumentValueError:
        return False
    cosines: Tensor = tables[0] if isinstance(tables, tuple) else tables
    return cosines.shape[:-1] == positions.shape


def _agrees(
    embedding: nn.Module, layer_type: str | None, rope_by_length: ByLength, layout: str, positions: Tensor
) -> bool:
    """Whether an embedding makes the tables of `rope_by_length` in this layout, up to the precision of its buffers."""
    table = rope_by_length.table(positions, like=torch.zeros(1))
    theirs = _flat(_own_tables(embedding, layer_type, positions))
    rope = rope_by_length.rope
    if rope_by_length.longer and positions.max() >= rope_by_length.trained:
        rope = rope_by_length.longer
    bound = _bound(rope, positions, max(torch.finfo(buffer.dtype).eps for buffer in embedding.buffers()))
    ours, bound = _flat(TO_LAYOUT[layout](*table)), _flat(TO_LAYOUT[layout](bound, bound))
    return theirs.shape == ours.shape and bool(((theirs - ours).abs() <= bound).all())


def _bound(rope: Rope, positions: Tensor, digits: float) -> Tensor:
    """Return the allowed error of each cosine and sine; it grows with the angle and `digits`, a dtype's epsilon."""
    rows = torch.tensor(as_rows(rope.frequencies), dtype=torch.float32)
    p = _with_axes(positions, rope).float()
    angle = p @ rows if len(rows) > 1 else p[..., None] * rows[0]
    return rope.attention_factor * (1e-5 + max(4e-6, 2 * digits) * angle)


def _flat(tables: Any) -> Tensor:
    """Return cosines and sines, or a complex table, as one real tensor."""
    return torch.stack(tables) if isinstance(tables, tuple) else torch.view_as_real(tables)


def _gptj_table(module: nn.Module, model_config: Any) -> Tensor:
    """Return exact values for the table of GPT-J (`HELD`) in a module; raise unless it holds those of the config."""
    _refuse_meta(module)
    held, rope = module.get_buffer(HELD), Rope.from_config(model_config)
    positions = torch.arange(len(held))
    cos, sin = rope.table(positions)
    eps = torch.finfo(held.dtype).eps
    exact, bound = torch.cat((sin, cos), dim=-1), eps + _append_copy(_bound(rope, positions, eps))
    if exact.shape == held.shape and bool(((held.float().cpu() - exact).abs() <= bound).all()):
        return _marked(exact.to(held))
    raise _unfit(module, "hold the rotary tables that its config says", " that holds others")


def _marked(table: Tensor) -> Tensor:
    """Return a table with the mark with which `_init_weights` of transformers leaves it."""
    setattr(table, INITIALIZED, True)
    return table


def _apply_and_mark(module: nn.Module, *arguments: Any, **options: Any) -> nn.Module:
    """Cast or move a module as its class does, then mark its new table (`HELD`)."""
    getattr(type(module), APPLY)(module, *arguments, **options)
    _marked(module.get_buffer(HELD))
    return module


# --- the rotation -----------------------------------------------------------------------------------------------------


class ForeignRotation(NamedTuple):
    """What a rotary function of transformers does, as options of `rotate`."""

    layout: str
    """The layout of its tables, a key of `FROM_LAYOUT`."""
    pairing: Pairing
    out_pairing: Pairing
    """That of its results: most of MLA reads neighbours and writes halves."""
    inverse: bool


def _rotate_one(x: Tensor, cos: Tensor, sin: Tensor, *, unsqueeze_dim: int = 1, options: ForeignRotation) -> Tensor:
    """Rotate one array by `rotate`; it replaces a model's rotary function (x, cos, sin), whose tables have a layout."""
    c, s = (FROM_LAYOUT[options.layout](wide).unsqueeze(unsqueeze_dim) for wide in (cos, sin))
    return rotate(x, c, s, pairing=options.pairing, out_pairing=options.out_pairing, inverse=options.inverse)


def _rotate_both(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, unsqueeze_dim: int = 1, options: ForeignRotation
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys by `rotate`; it replaces a model's rotary function (q, k, cos, sin)."""
    one = partial(_rotate_one, unsqueeze_dim=unsqueeze_dim, options=options)
    return one(q, cos, sin), one(k, cos, sin)


def _rotate_gptj(x: Tensor, sin: Tensor, cos: Tensor, *, options: ForeignRotation) -> Tensor:
    """Rotate by `rotate`; it replaces GPT-J's rotary function. x is (batch, tokens, heads, features)."""
    return _rotate_one(x, cos, sin, unsqueeze_dim=2, options=options)


FORMS: dict[tuple[str, ...], Callable[..., Any]] = {
    ("x", "cos", "sin"): _rotate_one,
    ("q", "k", "cos", "sin"): _rotate_both,
    ("tensor", "sin", "cos"): _rotate_gptj,
}
"""The replacement for a rotary function, by the names of its arguments."""


def _rotary_functions(forward: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return by name the global functions named ``apply_rotary*`` that a ``forward`` uses; {} if it isn't Python."""
    own = unwrap(forward)
    if not isinstance(own, FunctionType):
        return {}
    return {name: own.__globals__[name] for name in _rotary_names(own.__code__) & own.__globals__.keys()}


def _rotary_names(code: CodeType) -> set[str]:
    """Return the names (globals and attributes) beginning with ``apply_rotary`` that code uses."""
    return {name for name in code.co_names if name.startswith("apply_rotary")}


def _may_rotate(kind: type[nn.Module], *, replaced: bool, around: set[type[nn.Module]]) -> bool:
    """
    Whether a class may rotate: a method uses ``apply_rotary*`` or has an argument named in `TABLE_ARGUMENTS`.

    If `replaced`, its ``forward`` doesn't count; if the class is in `around`, arguments don't.
    """
    methods = [unwrap(value) for base in kind.__mro__ for value in vars(base).values() if callable(value)]
    done = unwrap(kind.forward) if replaced else None
    codes = [method.__code__ for method in methods if isinstance(method, FunctionType) and method is not done]
    takes = any(
        TABLE_ARGUMENTS.intersection(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) for code in codes
    )
    return (takes and kind not in around) or any(map(_rotary_names, codes))


def _nearest_embedding(path: Path, embeddings: Iterable[Path]) -> Path | None:
    """Return the rotary embedding whose parent is the nearest module around `path`; None if no parent is around it."""
    owners = {embedding: embedding.rpartition(".")[0] for embedding in embeddings}
    above = [embedding for embedding, owner in owners.items() if not owner or f"{path}.".startswith(f"{owner}.")]
    return max(above, key=lambda embedding: len(owners[embedding]), default=None)


def _new_forward(forward: FunctionType, layout: str) -> FunctionType | None:
    """Return a copy of a ``forward`` with rotary functions that use `rotate`; None if it has none, or one can't."""
    ours = {name: _find_replacement(theirs, layout) for name, theirs in _rotary_functions(forward).items()}
    return _with_globals(forward, ours) if ours and None not in ours.values() else None


def _with_globals(function: Any, replacements: Mapping[str, Any]) -> FunctionType | None:
    """Return a copy of a function, and of any it wraps, the innermost with new globals; None if it can't be copied."""
    if not isinstance(function, FunctionType):
        return None
    cells, inner = function.__closure__ or (), vars(function).get("__wrapped__")
    if inner is not None:  # a wrapper made by functools.wraps
        new, replacements = _with_globals(inner, replacements), {}
        if new is None or all(cell.cell_contents is not inner for cell in cells):
            return None
        cells = tuple(CellType(new) if cell.cell_contents is inner else cell for cell in cells)
    # With a name, torch.compile would look up the globals of the module instead of these.
    space = {name: value for name, value in function.__globals__.items() if name != NAME} | dict(replacements)
    same = FunctionType(function.__code__, space, function.__name__, function.__defaults__, cells)
    same.__kwdefaults__ = function.__kwdefaults__
    update_wrapper(same, function)
    return same


def _find_replacement(theirs: Callable[..., Any], layout: str) -> Callable[..., Any] | None:
    """Return a function like `theirs`, with `rotate` for large arrays; None if arguments are unknown or none agrees."""
    names = tuple(name for name in signature(theirs).parameters if name not in ("unsqueeze_dim", "position_ids"))
    if layout not in FROM_LAYOUT or names not in FORMS:
        return None
    options = product([layout], get_args(Pairing), get_args(Pairing), [False, True])
    candidates = [partial(FORMS[names], options=ForeignRotation(*each)) for each in options]
    samples = list(_samples(layout, arrays=len(names) - 2))
    ours = next((ours for ours in candidates if _are_same(ours, theirs, samples)), None)
    return None if ours is None else partial(_by_size, ours=ours, theirs=theirs)


def _by_size(
    x: Tensor, /, *others: Any, ours: Callable[..., Any], theirs: Callable[..., Any], **options: int
) -> Tensor | tuple[Tensor, ...]:
    """Rotate by `ours` if x has over `FEW` elements or torch compiles, else by `theirs`, cast to the dtype of x."""
    if torch.compiler.is_compiling() or x.numel() > FEW:
        return ours(x, *others, **options)  # type: ignore[no-any-return]
    made = theirs(x, *others, **options)
    return tuple(part.to(x.dtype) for part in made) if isinstance(made, tuple) else made.to(x.dtype)


def _samples(layout: str, *, arrays: int) -> Iterator[tuple[list[Any], dict[str, int]]]:
    """Yield samples (arguments, options) for rotary functions of one or two `arrays` and tables in a layout."""
    generator, pairs = torch.Generator().manual_seed(0), 4
    random = partial(torch.randn, generator=generator, dtype=torch.float32)
    angle = random(2, 5, pairs)
    cos, sin = TO_LAYOUT[layout](angle.cos(), angle.sin())

    def some(*shape: int) -> list[Any]:
        """Return random tensors of one shape: [x], or [q, k] if there are two `arrays`."""
        return [random(shape) for _ in range(arrays)]

    yield [*some(2, 3, 5, 2 * pairs), cos, sin], {}
    yield [*some(2, 3, 5, 2 * pairs + 6), cos, sin], {}  # features that pass through
    yield [*some(2, 5, 3, 2 * pairs), cos, sin], {}  # heads after tokens
    yield [*some(2, 5, 3, 2 * pairs), cos, sin], {"unsqueeze_dim": 2}
    if arrays == 2:
        q, k = some(2, 3, 5, 2 * pairs)
        yield [q[:, :, :2], k, cos, sin], {}
        yield [q, None, cos, sin], {}


def _are_same(ours: Callable[..., Any], theirs: Callable[..., Any], samples: Iterable[Any]) -> bool:
    """Whether two functions agree on all samples for which `theirs` does not raise, of which there must be one."""
    given = [(_result_or_none(ours, *sample), _result_or_none(theirs, *sample)) for sample in samples]
    pairs = [(a, b) for a, b in given if b is not None]
    return bool(pairs) and all(a is not None and torch.allclose(a, b, rtol=0, atol=1e-5) for a, b in pairs)


def _result_or_none(function: Callable[..., Any], arrays: list[Any], options: dict[str, int]) -> Tensor | None:
    """Return all results of a function as one flat tensor, or None if it raises for these arguments."""
    try:
        made = function(*arrays, **options)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return None
    made = made if isinstance(made, tuple) else (made,)
    return torch.cat([part.flatten() for part in made if part is not None])
