"""
Give an existing model of transformers exact tables and the fast rotation.

There a rotary embedding makes the tables, once for all layers of a kind, and each attention hands them to a function of
its module. `replace` gives both a ``forward`` of their own, on the instance: nothing that models share is changed. It
trusts no name. An embedding must have made the tables of its config, as far as float32 angles go; and a function that
does not turn as `rotate` does stays where it is, with exact tables.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import cache, partial, update_wrapper
from inspect import signature, unwrap
from itertools import product
from types import CodeType, FunctionType, MethodType
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
from rope_any._table import Table
from rope_any.config import explain
from rope_any.config._recipe import LONGEST

__all__ = ["Undo", "replace"]

Path: TypeAlias = str
"""Where a module stands in a model: ``model.layers.0.self_attn``."""
Paths: TypeAlias = tuple[Path, ...]

ROTARY = re.compile(r"Rotary(Positional)?Embedding$")
VISION = re.compile(r"Vi(sion|T)")
"""Classes of towers, whose positions are those of patches."""
NAME = "__name__"
HELD = "embed_positions"
"""The buffer in which the attention of GPT-J and of CodeGen holds the sines, then the cosines, of all positions."""
HANDED = frozenset({"position_embeddings", "freqs_cis"})
"""Names by which modules take tables."""
ORIGINAL = "original_max_position_embeddings"
LONG = 2**17
"""In tokens: as far as the tables of an embedding are compared."""
FEW = 2**20
"""As many elements a function of transformers turns sooner than `rotate`, where nothing compiles them."""


@dataclass(frozen=True)
class Undo:
    """What `replace` did to a model; call it, and it is undone."""

    tables: Paths
    """The rotary embeddings whose tables are exact now."""
    rotations: Paths
    """The attentions that turn by `rotate` now, but for few elements. Others turn by their own function."""
    left: Paths
    """The rotary embeddings of vision towers, which are as they were."""
    _changes: list["Change"] = field(repr=False, compare=False)
    """Those that stand."""

    def __call__(self) -> None:
        """Give the model its own code back. What is wrapped by now stays, until this is called without the wrapper."""
        self._changes[:] = [change for change in self._changes if not change.undone()]


class Change(NamedTuple):
    """A name in the namespace of a module, and what it shall mean: a table, or a ``forward`` where there is none."""

    namespace: dict[str, Any]
    name: str
    new: Any
    old: Tensor | None = None

    def make(self) -> None:
        """Change what the name means."""
        self.namespace[self.name] = self.new

    def undone(self) -> bool:
        """Change it back, if it is still ours, and return whether it was."""
        now = self.namespace.get(self.name)
        if self.old is not None and now is not None:
            self.namespace[self.name] = self.old.to(now)  # the model may have been moved
        elif now is self.new:
            del self.namespace[self.name]
        elif isinstance(self.new, partial):  # the attentions behind it have their own functions again
            made = self.new.keywords["made"]
            self.new.keywords["made"] = made._replace(rounds=made.follows)
            return False
        else:
            return False
        return True


def replace(model: nn.Module, /, *, sequence_length: int | None = None) -> Undo:
    """
    Put exact tables and the fast rotation under a model of transformers, in place.

    Parameters
    ----------
    model : torch.nn.Module
        A model of any architecture with rotary embeddings, or a part of one, on any device and of any dtype.
    sequence_length : int, optional
        In tokens: the length that tables are made for, where they depend on it (dynamic, longrope). Without it those
        of longrope go by the largest position of each call, as in transformers, and dynamic is refused.

    Returns
    -------
    Undo
        Says what was replaced and what was left, and undoes it when called.

    Raises
    ------
    TypeError
        If an argument is of another kind.
    ValueError
        If there is no rotary embedding, one is not known, does not make the tables of its config, or is replaced
        already, has a ``forward`` of its own (a hook of accelerate) or is on the meta device; or if tables depend on
        the length and `sequence_length` must be given. Nothing is changed then.

    Notes
    -----
    Parameters, caches and hooks stay as they are, and so do the state dict and all buffers but one: that in which GPT-J
    and CodeGen hold their table. Tables are float32 in a model of half precision too (float64 in one of float64),
    except where a module that they may reach keeps its own function: there they are rounded as its own were. Few
    elements, as in a decoding step, are turned by the model's own function.

    Examples
    --------
    >>> import pytest
    >>> transformers = pytest.importorskip("transformers", minversion="5")
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
    with torch.device("cpu"), torch.no_grad():  # what is compared is made here
        tables, rotations, left, changes = _found(model, length)
    for change in changes:
        change.make()
    return Undo(tables, rotations, left, changes)


def _found(model: Any, length: int | None) -> tuple[Paths, Paths, Paths, list[Change]]:
    """Return where there are tables, rotations, and tables that are left; and what to change."""
    embeddings = {path: m for path, m in model.named_modules() if ROTARY.search(type(m).__name__)}
    left = tuple(path for path, m in embeddings.items() if VISION.search(type(m).__name__))
    made = {path: _made(m, length) for path, m in embeddings.items() if path not in left}
    held = {path: _held(m, model) for path, m in model.named_modules() if HELD in vars(m)["_buffers"]}
    if not made and not held:
        raise _unfit(model, "have rotary embeddings, other than those of vision towers")
    layouts = {path: tables.layout for path, tables in made.items()} | dict.fromkeys(held, "once")
    reach = {path: path if path in held else _nearest(path, embeddings) for path, _ in model.named_modules()}
    turning = cache(_turning)
    rotations = {
        path: MethodType(forward, m)
        for path, m in model.named_modules()
        if (tables := reach[path]) in layouts
        and "forward" not in vars(m)
        and (forward := turning(type(m).forward, layouts[tables])) is not None
    }
    above = {path[:end] for path in rotations for end, letter in enumerate(path) if letter == "."}
    around = {type(model.get_submodule(path)) for path in above}
    may_turn = cache(partial(_may_turn, around=around))
    rounded = {reach[path] for path, m in model.named_modules() if may_turn(m.__class__, replaced=path in rotations)}
    # Rounded tables do everywhere; those of float32 only where all turn by `rotate`.
    exact = set() if None in rounded else {reach[path] for path in rotations} - rounded
    changes = [Change(vars(model.get_submodule(path)), "forward", forward) for path, forward in rotations.items()]
    for path, own in made.items():
        new = partial(_tables, made=own._replace(rounds=own.follows and path not in exact))
        changes.append(Change(vars(embeddings[path]), "forward", new))
    for path, table in held.items():
        buffers = vars(model.get_submodule(path))["_buffers"]
        changes.append(Change(buffers, HELD, table, buffers[HELD]))
    return (*made, *held), tuple(rotations), left, changes


def _refuse(module: nn.Module) -> None:
    """Say that the tables of a module cannot be replaced: if they are from here, or have no numbers."""
    if _is_ours(vars(module).get("forward")):
        raise _unfit(module, "not be replaced twice", " that is replaced already")
    if any(buffer.is_meta for buffer in module.buffers()):
        raise _unfit(module, "have its rotary tables in memory", " on the meta device")


def _unfit(module: nn.Module, wanted: str, but: str = "", hint: str = "") -> ArgumentValueError:
    """Return the error for a model with a module that cannot be replaced."""
    return ArgumentValueError("model", wanted, Text(f"a {type(module).__name__}{but}"), hint)


def _is_ours(forward: Any) -> bool:
    """Whether a ``forward`` is from here."""
    if isinstance(forward, partial):
        return forward.func is _tables
    return isinstance(forward, MethodType) and NAME not in getattr(forward, "__globals__", {NAME})


# --- tables -----------------------------------------------------------------------------------------------------------


class ByLength(NamedTuple):
    """One rotation, or two: LongRoPE has another one for sequences longer than those it was trained on."""

    rope: Rope
    longer: Rope | None = None
    trained: int = 0

    def table(self, position_ids: Tensor, like: Tensor) -> Table:
        """Return the table of positions ``(batch, seq)``, or ``(axes, batch, seq)``."""
        table = self.rope.table(_with_axes(position_ids, self.rope), like=like)
        if self.longer is None:
            return table
        long = self.longer.table(_with_axes(position_ids, self.longer), like=like)
        is_long = position_ids.max() >= self.trained
        return Table(*(torch.where(is_long, b, a) for a, b in zip(table, long, strict=True)))


class Made(NamedTuple):
    """The tables of one rotary embedding."""

    by_kind: Mapping[str | None, ByLength]
    """For each kind of layer, or for None."""
    layout: str
    """How wide they are, a key of `WIDE`."""
    follows: bool
    """Whether the embedding itself rounds them to the dtype of x."""
    rounds: bool
    """Whether that is done still, since there is an attention that turns by its own function."""

    def __deepcopy__(self, memo: object) -> "Made":
        """Return itself: nothing in it changes."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Round where the embedding did: in a pickle each attention has its own function again."""
        return Made, (self.by_kind, self.layout, self.follows, self.follows)


def _tables(x: Tensor, position_ids: Tensor, layer_type: str | None = None, *, made: Made) -> Any:
    """Replace the ``forward`` of a rotary embedding: return its tables in the layout of the model."""
    wide = WIDE[made.layout](*made.by_kind[layer_type].table(position_ids.to(x.device), like=x))
    return tuple(part.to(x.dtype) for part in wide) if made.rounds else wide


def _with_axes(position_ids: Tensor, rope: Rope) -> Tensor:
    """Return positions with their axes behind, where there are several: theirs stand in front, or are left out."""
    if not isinstance(rope.frequencies[0], tuple):
        return position_ids
    rows = len(rope.frequencies)
    p = position_ids[:rows] if position_ids.ndim == 3 else position_ids[None]
    return p.expand(rows, -1, -1).movedim(0, -1)


def _twice(part: Tensor) -> Tensor:
    return torch.cat((part, part), dim=-1)


def _side_by_side(part: Tensor) -> Tensor:
    return part.repeat_interleave(2, dim=-1)


WIDE: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "twice": lambda cos, sin: (_twice(cos), _twice(sin)),
    "side by side": lambda cos, sin: (_side_by_side(cos), _side_by_side(sin)),
    "once": lambda cos, sin: (cos, sin),
    "complex": torch.complex,
}
"""Layouts of tables: what becomes of the cosines and sines of the pairs."""

PAIRS: dict[str, Callable[[Tensor], Tensor]] = {
    "twice": lambda wide: wide[..., : wide.shape[-1] // 2],
    "side by side": lambda wide: wide[..., ::2],
    "once": lambda wide: wide,
}
"""The way back, for cosines or sines. Complex tables are turned by as they are."""


def _made(embedding: nn.Module, length: int | None) -> Made:
    """Return the tables of a rotary embedding, having compared them with those that it makes."""
    _refuse(embedding)
    if "forward" in vars(embedding):
        raise _unfit(embedding, "have rotary embeddings without a wrapped forward", " with one", "remove its hook")
    if "position_ids" not in signature(type(embedding).forward).parameters or not hasattr(embedding, "config"):
        raise _unfit(embedding, "have rotary embeddings with a config, which take position_ids")
    by_kind = {kind: _by_length(embedding.config, kind, length) for kind in _kinds(embedding)}
    layouts = {_layout(embedding, kind, ropes, length or LONG) for kind, ropes in by_kind.items()}
    if len(layouts) != 1 or None in layouts:
        raise _unfit(embedding, "make the rotary tables that its config says", " that makes others")
    theirs = _theirs(embedding, next(iter(by_kind)), torch.zeros(1, 1, dtype=torch.int64), torch.bfloat16)
    follows = isinstance(theirs, tuple) and theirs[0].dtype == torch.bfloat16
    return Made(by_kind, str(layouts.pop()), follows, rounds=follows)


def _kinds(embedding: nn.Module) -> list[str] | list[None]:
    """Return the kinds of layers that an embedding tells apart."""
    names = [name for name, _ in embedding.named_buffers(recurse=False) if name.endswith("_inv_freq")]
    return [name.removesuffix("_inv_freq") for name in names if not name.endswith("original_inv_freq")] or [None]


def _by_length(model_config: Any, kind: str | None, length: int | None) -> ByLength:
    """Return the rotation of a kind of layer."""
    read = partial(Rope.from_config, model_config, layer_type=kind)
    rope, longer = read(sequence_length=length), read(sequence_length=length or LONGEST)
    if rope == longer:
        return ByLength(_forwards(rope))
    (told,) = explain(model_config, layer_type=kind)
    scheme = told.facts["rope_type"].value
    if scheme != "longrope":
        wanted = f"be given for rope type {scheme!r}, whose tables depend on it"
        raise ArgumentValueError("sequence_length", wanted, None)
    return ByLength(_forwards(rope), _forwards(longer), int(told.facts[ORIGINAL].value))


def _forwards(rope: Rope) -> Rope:
    """Return a rotation without the signs of its frequencies: in NanoChat it is the function that turns backwards."""
    rows = [tuple(map(abs, row)) for row in as_rows(rope.frequencies)]
    return changed(rope, frequencies=tuple(rows) if len(rows) > 1 else rows[0])


def _theirs(embedding: nn.Module, kind: str | None, position_ids: Tensor, dtype: torch.dtype = torch.float32) -> Any:
    """Return what an embedding makes of positions: a copy of it, since some change with what they see."""
    own, x = deepcopy(embedding).cpu(), torch.zeros(1, dtype=dtype)
    try:
        return own(x, position_ids, **({} if kind is None else {"layer_type": kind}))
    except (RuntimeError, TypeError) as error:
        raise _unfit(embedding, "have rotary embeddings that work", f" that fails: {error}") from error


def _layout(embedding: nn.Module, kind: str | None, ropes: ByLength, length: int) -> str | None:
    """Return the layout in which an embedding makes the tables of a rotation; None if it makes others."""
    lengths = (ropes.trained, ropes.trained + 1) if ropes.longer else (length,)
    axes = len(getattr(embedding, "mrope_section", None) or as_rows(ropes.rope.frequencies))
    probes = [positions for n in lengths for positions in _probes(n, axes)]
    for layout in WIDE:
        if all(_agrees(embedding, kind, ropes, layout, positions) for positions in probes):
            return layout
    return None


def _probes(length: int, axes: int) -> Iterator[Tensor]:
    """Yield positions below a length, ``(1, seq)`` and ``(axes, 1, seq)``; one axis is three that nobody looks at."""
    line = torch.tensor(sorted({n for n in (0, 1, 3, 17, 300, 4096) if n < length} | {length - 1}))
    yield line[None]
    yield torch.stack([line.roll(shift) for shift in range(axes if axes > 1 else 3)])[:, None]


def _agrees(embedding: nn.Module, kind: str | None, ropes: ByLength, layout: str, positions: Tensor) -> bool:
    """Whether an embedding makes the tables of a rotation, as far as its angles are right."""
    table, theirs = ropes.table(positions, like=torch.zeros(1)), _flat(_theirs(embedding, kind, positions))
    rope = ropes.longer if ropes.longer and positions.max() >= ropes.trained else ropes.rope
    bound = _bound(rope, positions, max(torch.finfo(buffer.dtype).eps for buffer in embedding.buffers()))
    ours, bound = _flat(WIDE[layout](*table)), _flat(WIDE[layout](bound, bound))
    return theirs.shape == ours.shape and bool(((theirs - ours).abs() <= bound).all())


def _bound(rope: Rope, positions: Tensor, digits: float) -> Tensor:
    """Return how far off cosines and sines may be: by the angle times the last digit that frequencies are held to."""
    rows = torch.tensor(as_rows(rope.frequencies), dtype=torch.float32)
    p = _with_axes(positions, rope).float()
    angle = p @ rows if len(rows) > 1 else p[..., None] * rows[0]
    return rope.attention_factor * (1e-5 + max(4e-6, 2 * digits) * angle)


def _flat(tables: Any) -> Tensor:
    return torch.stack(tables) if isinstance(tables, tuple) else torch.view_as_real(tables)


def _held(attention: nn.Module, model: Any) -> Tensor:
    """Return the sines, then the cosines, that an attention holds of all positions, made exactly."""
    _refuse(attention)
    held, rope = attention.get_buffer(HELD), Rope.from_config(getattr(model, "config", None))
    positions = torch.arange(len(held))
    cos, sin = rope.table(positions)
    eps = torch.finfo(held.dtype).eps
    exact, bound = torch.cat((sin, cos), dim=-1), eps + _twice(_bound(rope, positions, eps))
    if exact.shape == held.shape and bool(((held.float().cpu() - exact).abs() <= bound).all()):
        return exact.to(held)
    raise _unfit(attention, "hold the rotary tables that its config says", " that holds others")


# --- the rotation -----------------------------------------------------------------------------------------------------


class Turn(NamedTuple):
    """How a function of transformers turns, in the words of `rotate`."""

    layout: str
    """Of its tables, a key of `PAIRS`."""
    sorts: bool
    """Whether it first puts the even features before the odd ones, as for most of MLA."""
    pairing: Pairing
    inverse: bool


def _turn(x: Tensor, cos: Tensor, sin: Tensor, *, unsqueeze_dim: int = 1, turn: Turn) -> Tensor:
    """Be an apply_rotary_pos_emb of one array."""
    c, s = (PAIRS[turn.layout](wide).unsqueeze(unsqueeze_dim) for wide in (cos, sin))
    x = x.reshape(*x.shape[:-1], -1, 2).mT.flatten(-2) if turn.sorts else x
    return rotate(x, c, s, pairing=turn.pairing, inverse=turn.inverse)


def _turn_both(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, unsqueeze_dim: int = 1, turn: Turn
) -> tuple[Tensor, Tensor]:
    """Be an apply_rotary_pos_emb of queries and keys."""
    one = partial(_turn, unsqueeze_dim=unsqueeze_dim, turn=turn)
    return one(q, cos, sin), one(k, cos, sin)


def _turn_with_heads_behind(x: Tensor, sin: Tensor, cos: Tensor, *, turn: Turn) -> Tensor:
    """Be the apply_rotary_pos_emb of GPT-J, whose tokens stand before the heads."""
    return _turn(x, cos, sin, unsqueeze_dim=2, turn=turn)


FORMS: dict[tuple[str, ...], Callable[..., Any]] = {
    ("x", "cos", "sin"): _turn,
    ("q", "k", "cos", "sin"): _turn_both,
    ("tensor", "sin", "cos"): _turn_with_heads_behind,
}
"""What to be instead of a function, by the names of its arguments."""


def _applied(forward: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return the functions that a ``forward`` applies rotary by."""
    own = unwrap(forward)
    if not isinstance(own, FunctionType):
        return {}
    return {name: own.__globals__[name] for name in _rotary_names(own.__code__) & own.__globals__.keys()}


def _rotary_names(code: CodeType) -> set[str]:
    return {name for name in code.co_names if name.startswith("apply_rotary")}


def _may_turn(kind: type[nn.Module], *, replaced: bool, around: set[type[nn.Module]]) -> bool:
    """Whether modules may turn by their own function: a method names one, or takes tables and nothing in them turns."""
    methods = [unwrap(value) for base in kind.__mro__ for value in vars(base).values() if callable(value)]
    done = kind.forward if replaced else None
    codes = [method.__code__ for method in methods if isinstance(method, FunctionType) and method is not done]
    takes = any(HANDED.intersection(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) for code in codes)
    return (takes and kind not in around) or any(map(_rotary_names, codes))


def _is_in(path: Path, owner: Path) -> bool:
    """Whether a module is in another one, or is that."""
    return f"{path}.".startswith(f"{owner}." if owner else "")


def _nearest(path: Path, embeddings: Iterable[Path]) -> Path | None:
    """Return the embedding whose tables reach a module: that of the nearest module above it."""
    owners = {embedding: embedding.rpartition(".")[0] for embedding in embeddings}
    above = [embedding for embedding, owner in owners.items() if _is_in(path, owner)]
    return max(above, key=lambda embedding: len(owners[embedding]), default=None)


def _turning(forward: FunctionType, layout: str) -> FunctionType | None:
    """Return a ``forward`` that turns by `rotate`, or None where that would not be the same."""
    ours = {name: _as_ours(theirs, layout) for name, theirs in _applied(forward).items()}
    same = ours and None not in ours.values() and unwrap(forward) is forward
    return _with_globals(forward, ours) if same else None


def _with_globals(function: FunctionType, others: Mapping[str, Any]) -> FunctionType:
    """Return a function that is the same but for what some global names mean in it."""
    # Without a name its globals are not taken for those of the module, which torch.compile would look up instead.
    space = {name: value for name, value in function.__globals__.items() if name != NAME} | dict(others)
    same = FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
    same.__kwdefaults__ = function.__kwdefaults__
    update_wrapper(same, function)
    return same


def _as_ours(theirs: Callable[..., Any], layout: str) -> Callable[..., Any] | None:
    """Return `rotate` in the place of a function, if it gives the same whatever that function takes."""
    names = tuple(name for name in signature(theirs).parameters if name not in ("unsqueeze_dim", "position_ids"))
    if layout not in PAIRS or names not in FORMS:
        return None
    turns = product([layout], [False, True], get_args(Pairing), [False, True])
    candidates = [partial(FORMS[names], turn=Turn(*turn)) for turn in turns]
    samples = list(_samples(layout, arrays=len(names) - 2))
    ours = next((ours for ours in candidates if _are_same(ours, theirs, samples)), None)
    return None if ours is None else partial(_by_size, ours=ours, theirs=theirs)


def _by_size(
    x: Tensor, /, *others: Any, ours: Callable[..., Any], theirs: Callable[..., Any], **options: int
) -> Tensor | tuple[Tensor, ...]:
    """Turn many elements by `rotate`, and few as before: in float32 too, as tables are, and rounded at the end."""
    if torch.compiler.is_compiling() or x.numel() > FEW:
        return ours(x, *others, **options)  # type: ignore[no-any-return]
    made = theirs(x, *others, **options)
    return tuple(part.to(x.dtype) for part in made) if isinstance(made, tuple) else made.to(x.dtype)


def _samples(layout: str, *, arrays: int) -> Iterator[tuple[list[Any], dict[str, int]]]:
    """Yield arguments for a function of some arrays and their tables, of all kinds that any such function takes."""
    generator, pairs = torch.Generator().manual_seed(0), 4
    random = partial(torch.randn, generator=generator, dtype=torch.float32)
    angle = random(2, 5, pairs)
    cos, sin = WIDE[layout](angle.cos(), angle.sin())

    def some(*shape: int) -> list[Any]:
        return [random(shape) for _ in range(arrays)]

    yield [*some(2, 3, 5, 2 * pairs), cos, sin], {}
    yield [*some(2, 3, 5, 2 * pairs + 6), cos, sin], {}  # features that pass through
    yield [*some(2, 5, 3, 2 * pairs), cos, sin], {}  # heads behind tokens
    yield [*some(2, 5, 3, 2 * pairs), cos, sin], {"unsqueeze_dim": 2}
    if arrays == 2:
        q, k = some(2, 3, 5, 2 * pairs)
        yield [q[:, :, :2], k, cos, sin], {}
        yield [q, None, cos, sin], {}


def _are_same(ours: Callable[..., Any], theirs: Callable[..., Any], samples: Iterable[Any]) -> bool:
    """Whether two functions give the same wherever the second gives anything."""
    given = [(_tried(ours, *sample), _tried(theirs, *sample)) for sample in samples]
    pairs = [(a, b) for a, b in given if b is not None]
    return bool(pairs) and all(a is not None and torch.allclose(a, b, rtol=0, atol=1e-5) for a, b in pairs)


def _tried(function: Callable[..., Any], arrays: list[Any], options: dict[str, int]) -> Tensor | None:
    """Return what a function makes, laid end to end, or None if it does not take such arguments."""
    try:
        made = function(*arrays, **options)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return None
    made = made if isinstance(made, tuple) else (made,)
    return torch.cat([part.flatten() for part in made if part is not None])
