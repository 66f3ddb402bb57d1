"""
Compare the rotary state of a torch model (buffers, fixed parameters, plain tensors) with its config; write lost values.

`audit` says which tensors are right; `refill` writes the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain, pairwise, product
from typing import Any, NamedTuple

from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, missing_package

try:
    import torch
    from torch import Tensor, nn
    from torch.overrides import TorchFunctionMode
except ModuleNotFoundError as error:
    raise missing_package("rope_any.integrations.torch", error, "torch") from None

from rope_any import config as configs
from rope_any._arrays import library
from rope_any._arrays._sharding import is_sharded, local, replicated
from rope_any._frequencies import Row, as_rows, frequencies
from rope_any._pairing import Pairing
from rope_any._rope import Rope
from rope_any._table import cos_sin
from rope_any.config._recipe import LONGEST, longest_length
from rope_any.config.tables.params_json import FACTORS_OF_META
from rope_any.config.tables.towers import TOWERS
from rope_any.integrations._configs import model_around, model_configs
from rope_any.layouts import LAYOUTS, Layout, arranged

__all__ = ["Finding", "Report", "Undo", "audit", "refill"]

RIGHT = 1e-6
"""The largest relative error of a right frequency; that of a table's entry is this, times its angle if that is more."""
HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}
ANY_DTYPE = ("vllm", "sglang", "timm")
"""Packages whose tables have the dtype of the model."""
BOTH_SIGNS = (8192, 1024)
"""How many rows from position 0 on, and then up to -1, the tables for negative positions of diffusers' lists have."""
LEARNED = "learned"
FILLS = ("init_non_persistent_buffers", "rope_init")
"""Methods by which modules of timm and torchtune fill their buffers, as after `to_empty`."""
SIGNS = {
    "vision": r"[Vv]is(ion|ual)|ViT|(\b|_)vit|[Ii]mage|[Tt]ower|[Cc](lip|LIP)\b|[Ss]ig[Ll](ip|IP)",
    "audio": r"[Aa]udio|[Ss]peech",
    "indexer": r"[Ii]ndexer",
}
"""Patterns of the paths and classes of parts that are not the text."""
UNNAMED = ("transformer", "text_config", "thinker_config")
"""Names of parts that are not in paths."""
ROTARY = re.compile(r"[Rr]otary|R[oO]PE|[Rr]ope(?![a-z])")
OTHERS = re.compile(r"(^|[._])(scales?|alpha|position_ids|mask)$|(^|\.)time_embed")
"""Tensors that hold no angles of positions: of xPos, of a temperature, of the times of diffusion."""
KINDS = {
    "both": r"cos_sin_cached?|rope_cache|(?<!_)cache",
    "complex": r"freqs_cis?|(pos|neg)_freqs",
    "sines first": r"embed_positions(\.weight)?",
    "angles": r"cached_freqs|(?<!_)(args|angles)(_\d)?",
    "cos": r"cos(_cached?)?",
    "sin": r"sin(_cached?)?",
    "frequencies": r"inv_freqs?|(rope|rotary)_freqs|freqs_base_\w|(?<!_)(freqs|theta)",
}
"""What a tensor holds, by the end of its path; the first that matches."""
COMMON = re.compile(r"(^|[.])(freqs|theta|(args|angles)(_\d)?|cos|sin|cache)$")
"""Names that say so in rotary classes alone."""


_SINGLE_TABLE_LAYOUTS = ("transformers", "transformers-interleaved", "flash-attention")
TABLES = {
    "cos": _SINGLE_TABLE_LAYOUTS,
    "sin": _SINGLE_TABLE_LAYOUTS,
    "angles": _SINGLE_TABLE_LAYOUTS,
    "both": ("vllm", "torchtune", "torchtitan"),
    "complex": ("meta", "torchtune"),
    "sines first": ("gptj",),
}
"""The layouts of a table, as names of `rope_any.layouts`, by what it holds."""
SAID = {
    "exempt": "not compared",
    "rounded": "wrong, rounded",
    "garbage": "wrong",
    "other": "wrong",
    "meta": "empty",
    "short": "too short",
    "unknown": "not known",
}
"""Verdicts as they are printed, if in other words."""
ADVICE = {
    "right": "",
    "exempt": "",
    "meta": "call `to_empty`, then `refill`",
    "short": "make its module with more rows",
}
"""What to do by verdict, if `refill` does not write the tensor and no Rope would help."""


class Finding(NamedTuple):
    """One tensor of a model that holds rotary state, or a wrong attention factor, and whether it is right."""

    name: str
    """Its path, such as ``model.rotary_emb.inv_freq``."""
    verdict: str
    """``right``, ``exempt``, ``rounded``, ``garbage``, ``other``, ``meta``, ``short`` or ``unknown``."""
    text: str
    """What else is known, such as the dtype it was rounded to, its base, how many values are wrong."""
    error: float
    """The largest relative error of a frequency, or error of a table's entry by its angle; nan if it is not known."""
    advice: str = ""
    """What to do; empty if nothing."""

    def __str__(self) -> str:
        """Return the finding as one line of text: path, verdict, what else is known, error, what to do."""
        error = f", error {self.error:.1e}" if math.isfinite(self.error) else ""
        said = f"{SAID.get(self.verdict, self.verdict)}{self.text and f' ({self.text})'}"
        return f"{self.name}: {said}{error}{self.advice and f'; {self.advice}'}"


class Report(tuple[Finding, ...]):  # noqa: SLOT001  # its cautions are set later
    """The findings of `audit`; true if there are any and all are right or exempt, printed line by line."""

    cautions: tuple[str, ...] = ()
    """Those of the config (`rope_any.config.Config.cautions`) that are about its values; they are printed too."""

    def __bool__(self) -> bool:
        """Whether rotary state was found, and all of it is right or exempt."""
        return len(self) > 0 and all(found.verdict in ("right", "exempt") for found in self)

    def __str__(self) -> str:
        """Return a line for each finding."""
        found = "\n".join(map(str, self)) or "no rotary state was found"
        return "\n".join([found, *(f"caution: {each}" for each in self.cautions)])


@dataclass(frozen=True)
class Undo:
    """What `refill` did to a model; a call undoes it."""

    written: tuple[str, ...]
    """The paths of tensors, and of attention factors, with new values."""
    left: tuple[Finding, ...]
    """The findings that are not right and were left."""
    _changes: list[Callable[[], None]] = field(repr=False, compare=False)

    def __call__(self) -> None:
        """Restore the old values, bit by bit; the model must be on the same device. A second call does nothing."""
        while self._changes:
            self._changes.pop()()


def audit(model: nn.Module, /, config: object = None) -> Report:
    """
    Compare the rotary state of a model, its frequencies and tables, with a config.

    Parameters
    ----------
    model : torch.nn.Module
        Any model or part of one, on any device, or a module around models (DDP, PEFT, your own). Its buffers,
        parameters and plain tensors are checked; of a DTensor, the shard of this process.
    config : Rope, dict, path or object with ``to_dict()``, optional
        The rotation, or a config as for `Rope.from_config`. By default ``model.config``, or those of the models in it.
        Without a readable one, values are right if they are those of any base without scaling.

    Returns
    -------
    Report
        A `Finding` for each tensor, and for each wrong attention factor.

    Raises
    ------
    TypeError
        If `model` is not a module, and as for `Rope.from_config`.
    ValueError
        If a `config` is given and can't be read.

    Notes
    -----
    Frequencies are right to 1e-6 of their value and entries of a table to 1e-6 of their angle, which float32 allows.
    The path of a module tells its part of the config (text, vision) and its type of layers. Frequencies that a forward
    changes (longrope, dynamic) are right in each of their states. Buffers of timm, and those of torchtune without a
    config, are compared with those that a copy of their module fills by itself.

    Examples
    --------
    >>> import torch
    >>> from rope_any import Rope, frequencies
    >>> from rope_any.integrations.torch import audit, refill
    >>> model = torch.nn.Module()
    >>> model.register_buffer("inv_freq", torch.tensor(frequencies(64)), persistent=False)
    >>> rope = Rope(frequencies(64), pairing="half")
    >>> print(audit(model.bfloat16(), rope))
    inv_freq: wrong, rounded (to bfloat16), error 3.7e-03; call `refill`
    >>> undo = refill(model, rope)
    >>> undo.written, bool(audit(model, rope))
    (('inv_freq',), True)
    """
    report = Report(state.finding for state in _states(model, config))
    given = [config] if config is not None else model_configs(model, _all_rotations)[0].values()
    read = [one for one in chain.from_iterable(map(_read, given)) if not isinstance(one, Rope)]
    cautions = (str(each) for one in read for each in one.cautions if not each.elsewhere)
    report.cautions = tuple(dict.fromkeys(cautions))
    return report


def refill(model: nn.Module, /, config: object = None) -> Undo:
    """
    Restore the rotary state that a model has lost: write into its tensors, or put new ones in their place.

    Parameters
    ----------
    model : torch.nn.Module
        As for `audit`.
    config : Rope, dict, path or object with ``to_dict()``, optional
        As for `audit`. Without a config nothing is written.

    Returns
    -------
    Undo
        Names what was written and what was left; a call undoes it.

    Raises
    ------
    TypeError, ValueError
        As for `audit`. The model is then unchanged.

    Notes
    -----
    Tensors that are rounded, garbage or of another rotation, and wrong attention factors, get the values of the config,
    if these and the layout are certain, in the dtype that their class makes: float32 or complex64, while wider ones
    stay so. A tensor of that dtype is written in place. Otherwise a new one takes its place in the module, so refill
    before a compiler, a CUDA graph or FSDP takes the old one. Each process writes its own shard.
    """
    changes: list[Callable[[], None]] = []
    written: dict[int, Tensor] = {}  # the new values by the id of the old tensor
    lost = [state for state in _states(model, config) if state.finding.verdict not in ("right", "exempt")]
    for slot, _, to_write in lost:
        changes += [] if to_write is None else _write(slot, to_write, written)
    left = tuple(state.finding for state in lost if state.to_write is None)
    return Undo(tuple(state.slot.path for state in lost if state.to_write is not None), left, changes)


# --- the tensors of a model -------------------------------------------------------------------------------------------


class Slot(NamedTuple):
    """A tensor of a module, and where the module keeps it."""

    path: str
    model: str | None
    """The path of the model that it belongs to, whose config says what is right; None if no config does."""
    owner: nn.Module
    holder: Any
    """The buffers, the parameters or the namespace of the owner, or a list or dict in it."""
    key: Any
    """Its key or index in the holder."""
    name: str
    """The name of the attribute that is the tensor, or its list or dict."""
    tensor: Tensor
    kind: str | None
    """What it holds by its name, a key of `KINDS`."""

    @property
    def description(self) -> str:
        """Its path in the model and the class of its owner, in which names of rotary and of parts are searched."""
        return f"{self.path.removeprefix(self.model or '').lstrip('.')} {type(self.owner).__name__}"

    @property
    def shape(self) -> list[int]:
        """The lengths of its axes, without those of length 1."""
        return [n for n in self.tensor.shape if n != 1]

    @property
    def is_buffer(self) -> bool:
        """Whether it is a buffer of its owner."""
        return self.holder is vars(self.owner)["_buffers"]

    @property
    def has_its_length(self) -> bool:
        """Whether its class made it for its longest sequence: it can't grow, and is not the axis or note of a call."""
        grows = any("cached" in name and "len" in name for name in vars(self.owner))
        return (self.is_buffer or self.kind is not None) and self.key == self.name and not grows

    @property
    def is_unsaved(self) -> bool:
        """Whether a rotary class has it and no checkpoint, so that it is reported even if no name tells what it is."""
        of_buffers = vars(self.owner)["_non_persistent_buffers_set"]
        unsaved = self.key in of_buffers if self.is_buffer else self.tensor.is_complex()
        return unsaved and bool(ROTARY.search(type(self.owner).__name__))

    @property
    def has_model_dtype(self) -> bool:
        """Whether it is a table that its owner's class keeps in the dtype of the model."""
        packages = {kind.__module__.partition(".")[0] for kind in type(self.owner).__mro__}
        return len(self.shape) > 1 and not packages.isdisjoint(ANY_DTYPE)


class State(NamedTuple):
    """A tensor with rotary state, what is found of it, and the values to write if it is lost and they are known."""

    slot: Slot
    finding: Finding
    to_write: Tensor | float | None
    """A number if it is the attention factor."""


def _states(model: nn.Module, config: object) -> list[State]:
    """Return a `State` per rotary tensor of a model, by `config` (raise if unreadable); None: by ``model.config``."""
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError("model", "be a torch module", Text(type(model).__name__))
    by_model, error = ({"": config}, None) if config is not None else model_configs(model, _all_rotations)
    read: dict[str | None, Any] = {path: cache(partial(_rotations, _read(one))) for path, one in by_model.items()}
    if config is not None:
        read[""](None)  # raises
    why = {path: "; ".join(_reasons(rotations(None))) for path, rotations in read.items()}
    read[None], why[None] = lambda _: [], str(error or "there is no config")
    with torch.no_grad(), torch.device("cpu"):
        slots = ((slot, _rotations_by_length(slot, read[slot.model])) for slot in _candidate_slots(model, by_model))
        found = [
            (_state(slot, by_model.get(slot.model or ""), right, why[slot.model]), _factor_state(slot, right))
            for slot, right in slots
        ]
    return [state for state in chain.from_iterable(found) if state is not None]


def _reasons(config_rotations: Iterable[ConfigRotation]) -> Iterator[str]:
    """Yield why a config may have no values for a tensor: its parts that can't be read are among the reasons."""
    yield "the config has no rotation for its path and shape"
    yield from (f"its {one.part} can't be read: {one.why}" for one in config_rotations if one.rope is None)


def _candidate_slots(model: nn.Module, models: Iterable[str]) -> Iterator[Slot]:
    """
    Yield a `Slot` per tensor not named as in `OTHERS`, with a `kind` if its name tells; parameters only with one.

    `models` are the paths of the models in `model` that have a config.
    """
    for path, module in model.named_modules():
        inside = model_around(path, models)
        for holder, key, name, x in _tensors(module):
            attribute = f"{path}.{name}".lstrip(".")
            full = attribute if name == key else f"{attribute}.{key}"
            slot = Slot(full, inside, module, holder, key, name, x, None)
            if ROTARY.search(slot.description) or not COMMON.search(attribute):
                slot = slot._replace(kind=_kind(attribute, x))
            if not OTHERS.search(attribute) and (slot.kind or holder is not vars(module)["_parameters"]):
                yield slot


def _kind(attribute: str, x: Tensor) -> str | None:
    """Return what a tensor holds by its name, one of `KINDS`; None if the name does not tell, or not of this dtype."""
    kind = next((kind for kind, end in KINDS.items() if re.search(rf"(^|[._])({end})$", attribute)), None)
    if kind == "frequencies" and x.is_complex():
        return None
    return "both" if kind == "complex" and not x.is_complex() and x.shape[-1] == 2 else kind  # real, imaginary


def _tensors(module: nn.Module) -> Iterator[tuple[Any, Any, str, Tensor]]:
    """
    Yield (container, key, name, tensor) of a module's own float and complex tensors, not 0-d, not its children's.

    If its class can fill its buffers, those of integers are among them.
    """
    space, fills = vars(module), _fill_of(module) is not None
    holders: list[tuple[Any, Any]] = [(None, each) for each in (space["_buffers"], space["_parameters"], space)]
    holders += [(name, each) for name, each in space.items() if isinstance(each, list | dict) and name[0] != "_"]
    for name, holder in holders:
        for key, x in holder.items() if isinstance(holder, dict) else enumerate(holder):
            known = fills and holder is space["_buffers"]
            if isinstance(x, Tensor) and x.ndim and (known or x.is_floating_point() or x.is_complex()):
                yield holder, key, str(name or key), x


def _state(slot: Slot, config: object, config_rotations: list[list[ConfigRotation]], why_unknown: str) -> State | None:
    """Return a tensor's finding, and values to write if lost, by `_rotations_by_length`; None if it is not rotary."""
    x, options = slot.tensor, list(_options(slot, config_rotations))
    # a config tells nothing of a grid, and classes without a longest sequence have one
    own = None if options and hasattr(slot.owner, "max_seq_len") else _option_of_class(slot)
    options = options if own is None else [own]
    is_named = slot.kind is not None and (slot.kind != "sines first" or bool(ROTARY.search(slot.description)))
    if not options and not is_named and not slot.is_unsaved:
        return None  # embed_positions are learned in other models
    has_config = own is not None or any(config_rotations)
    verdict, text, error, to_write = _verdict(slot, options, why_unknown, has_config=has_config)
    if own is not None and verdict == "right":
        text = text or "as its class fills it"
    if slot.kind is None and own is None and verdict not in ("right", "rounded", "meta"):
        if not slot.is_unsaved:
            return None
        verdict, error = "unknown", math.nan
        text = "its values are none of the config" if options else why_unknown
    need = max((_needed_rows(one, config) for one in config_rotations[0] if options and own is None), default=0)
    if verdict == "right" and slot.has_its_length and len(slot.shape) > 1 and slot.shape[0] < need:
        verdict, text = "short", f"{slot.shape[0]} rows for {need} tokens"
    text += _right_base(config_rotations[0]) if options and own is None and text.startswith("base") else ""
    writable = [option.values for option in options if option.is_current and verdict in ("garbage", "other")]
    if writable and all(values.equal(writable[0]) for values in writable):
        to_write = writable[0]
    elif writable:
        text += "; the config has several rotations for it"
    advice = ADVICE.get(verdict, _advice(slot, has_options=bool(options)))
    keeps_dtype = is_sharded(x) and isinstance(x, nn.Parameter)
    if to_write is not None and keeps_dtype and _kept_dtype(slot, to_write) != x.dtype:
        to_write, text = None, f"{text}; it is a parameter, and FSDP keeps the dtype of its shards"
        advice = "refill it before FSDP takes it"
    advice = advice if to_write is None else "call `refill`"
    return State(slot, Finding(slot.path, verdict, text, error, advice), to_write)


def _right_base(config_rotations: list[ConfigRotation]) -> str:
    """Return what ends a text that names a wrong base: that of the config, and its scaling; "" for a Rope."""
    facts = [one.facts for one in config_rotations if {"rope_theta", "rope_type"} <= one.facts.keys()]
    right = {f"base {each['rope_theta'].value:.4g} scaled by {each['rope_type'].value}" for each in facts}
    return f"; the config has {' or '.join(sorted(right))}".replace(" scaled by default", "") if right else ""


def _advice(slot: Slot, *, has_options: bool) -> str:
    """Return what to do about a tensor of which no right values are known, or not which of several (`has_options`)."""
    if _why_exempt(slot):
        return "load its checkpoint"
    if not slot.kind:
        return "compare it with that of a new model"
    if has_options:
        return "call `refill` for its module alone, with its Rope"
    its_config = "its config or Rope as the second argument"
    return f"give {its_config}" if slot.model is None else f"audit its module alone, with {its_config}"


def _factor_state(slot: Slot, rotations_by_length: list[list[ConfigRotation]]) -> State | None:
    """Return the state of the attention factor beside frequencies of transformers; None if it is right or unknown."""
    name = slot.name.replace("inv_freq", "attention_scaling")
    held = vars(slot.owner).get(name) if ROTARY.search(type(slot.owner).__name__) else None  # attentions have others
    current, *others = ({one.rope.attention_factor for one in ones if one.rope} for ones in rotations_by_length)
    is_read = not any("short_mscale" in one.facts for one in rotations_by_length[0])  # a forward reads that instead
    is_known = len(current) == 1 and next(_options(slot, rotations_by_length), None) is not None
    if not (isinstance(held, float | int) and is_read and is_known):
        return None
    (right,) = current
    error = min(abs(held / one - 1) for one in current.union(*others))
    place = slot._replace(path=slot.path.removesuffix(slot.name) + name, holder=vars(slot.owner), key=name)
    finding = Finding(place.path, "other", f"{held:.6g} instead of {right:.6g}", error, "call `refill`")
    return State(place, finding, right) if error > RIGHT else None


def _needed_rows(rotation: ConfigRotation, config: object) -> int:
    """Return how many rows a table of this rotation must have: for all tokens that it is for; 0 if that is unknown."""
    made_for = config.get("max_seq_len") if isinstance(config, Mapping) else None
    if isinstance(made_for, int):  # an argument of the code of Meta, Mistral and DeepSeek
        return made_for
    given = {name: fact for name, fact in rotation.facts.items() if not fact.source.startswith("constant")}
    longest, length = longest_length(given) or 0, rotation.facts.get("length")
    return longest if length is None else min(longest, int(length.value))


def _fill_of(module: nn.Module) -> str | None:
    """Return the name of the method by which a rotary module fills its buffers, one of `FILLS`; None if it has none."""
    return next((name for name in FILLS if ROTARY.search(type(module).__name__) and hasattr(module, name)), None)


class _Angles(TorchFunctionMode):
    """Within it, cos and sin return the absolute angle, which is the scale of their errors."""

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return the size of an angle in place of its cosine or sine, and what other functions return."""
        options = kwargs or {}
        return (*args, *options.values())[0].abs() if func.__name__ in ("cos", "sin") else func(*args, **options)


def _option_of_class(slot: Slot) -> Option | None:
    """Return what a copy of a buffer's owner fills into it, with the scale of errors; None if nothing fills it."""
    if not slot.is_buffer or not (fill := _fill_of(slot.owner)) or slot.tensor.is_meta or is_sharded(slot.tensor):
        return None
    copies = [deepcopy(slot.owner).float() for _ in range(2)]
    getattr(copies[0], fill)()
    with _Angles():
        getattr(copies[1], fill)()
    values, angles = (each.get_buffer(slot.key).cpu().double() for each in copies)
    if values.shape != slot.tensor.shape:
        return None
    # what holds no cosine or sine is the same in both copies
    scale = values.abs().where(values != 0, 1.0) if angles.equal(values) else angles.clamp(min=1)
    return Option(values.reshape(slot.shape), scale.reshape(slot.shape), is_current=True)


def _why_exempt(slot: Slot) -> str:
    """Return why a tensor need not have the values of the config; "" if it must."""
    if slot.tensor.requires_grad or getattr(slot.owner, "learned_freq", False):
        return LEARNED
    return "still empty" if getattr(slot.owner, f"{slot.name}_seq_len", None) == 0 else ""


# --- what the config says ---------------------------------------------------------------------------------------------


class ConfigRotation(NamedTuple):
    """One rotation of a config, for one length of sequences."""

    part: str
    """The part of the model; empty for a Rope that the caller gives, "values" for one that the tensor shows itself."""
    rope: Rope | None
    """None if the part can't be read."""
    facts: Mapping[str, configs.Fact]
    config: configs.Config | None = None
    """None for a Rope."""
    layer_type: str | None = None
    layers: tuple[int, ...] | None = None
    why: str = ""
    """Why the part can't be read."""


def _read(config: object) -> list[Rope | configs.Config]:
    """Return a config as a `Config`, or one for each factor that it may mean; a Rope and a Config unchanged."""
    if isinstance(config, Rope | configs.Config):
        return [config]
    try:
        return [configs.read(config)]
    except ArgumentValueError as error:
        if error.argument != "factor" or not isinstance(config, Mapping) or not config.get("use_scaled_rope"):
            raise
    return [configs.read(config, factor=factor) for factor in FACTORS_OF_META]


def _all_rotations(config: object) -> list[ConfigRotation]:
    """Return the `_rotations` of a config."""
    return _rotations(_read(config))


def _rotations(configs_read: list[Rope | configs.Config], length: int | None = None) -> list[ConfigRotation]:
    """Return all parts' rotations at a length (None: trained), `rope` None for an unreadable part; raise if all are."""
    found: list[ConfigRotation] = []
    errors: list[Exception] = []
    if isinstance(configs_read[0], Rope):
        return [ConfigRotation("", configs_read[0], {})]
    for read, part in ((one, part) for one in configs_read if not isinstance(one, Rope) for part in one.parts):
        try:
            explanations = read.explain(part=part, sequence_length=length)
            found += [
                ConfigRotation(part, one.rope, one.facts, read, one.layer_type, one.layers)
                for one in explanations
                if one.rope
            ]
        except (TypeError, ValueError) as error:
            errors.append(error)
            found.append(ConfigRotation(part, None, {}, read, why=str(error)))
    if errors and len(errors) == len(found):
        raise errors[0]
    return found


def _rotations_by_length(slot: Slot, read: Callable[[int | None], list[ConfigRotation]]) -> list[list[ConfigRotation]]:
    """
    Return lists of rotations a tensor may have; the first list is right, if its values are lost.

    There are two lists for LongRoPE and dynamic NTK, where a forward changes the tensor with the sequence length.
    """
    usual = _by_path(slot, read(None))
    facts = usual[0].facts if usual else {}
    scheme = str(facts["rope_type"].value) if "rope_type" in facts else "longrope" * ("factors" in facts)
    own = vars(slot.owner)
    seen: Any = own.get(slot.name.replace("inv_freq", "max_seq_len_cached"), own.get("max_seq_len_cached"))
    if "original" in slot.name or (scheme != "longrope" and (seen is None or not scheme.startswith("dynamic"))):
        return [usual]
    if scheme == "longrope":
        other = _by_path(slot, read(LONGEST))
        first = map(_without_scaling, usual if hasattr(slot.owner, "short_factor") else [])  # until the first call
        return [other] if "long_" in slot.name else [usual, other, [*first]]
    return [_by_path(slot, read(int(seen))), usual]


def _without_scaling(one: ConfigRotation) -> ConfigRotation:
    """Return a rotation with the frequencies of its base alone."""
    rope: Any = one.rope
    ramp = frequencies(2 * len(rope.frequencies), base=one.facts["rope_theta"].value)
    return one._replace(rope=Rope(ramp, pairing=rope.pairing))


def _by_path(slot: Slot, config_rotations: list[ConfigRotation]) -> list[ConfigRotation]:
    """Return rotations of the part and layers that a tensor's path names, all layers if none; [] if it fits no part."""
    signs = {one.part: _path_patterns(one.part) for one in config_rotations}
    fitting = [part for part, needed in signs.items() if all(re.search(sign, slot.description) for sign in needed)]
    if not fitting and len(signs) == 1:
        fitting = [*signs]  # the model is that part
    part = max(fitting, key=lambda part: len(signs[part]), default=None)
    if part == "text" and any(re.search(sign, slot.description) for sign in SIGNS.values()):
        return []  # of a tower without rotary, by the config
    own = [one for one in config_rotations if one.part == part and one.rope]
    index = re.search(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.", slot.description)
    return (
        [one for one in own if slot.name.startswith(f"{one.layer_type}_")]
        or [one for one in own if index and int(index[1]) in (one.layers or ())]
        or own
    )


def _path_patterns(part: str) -> list[str]:
    """Return regexes that a tensor's path or class must all match to be of `part`; [] for "text", "" (a given Rope)."""
    names = [name.removesuffix("_config") for name in part.split(".") if name not in UNNAMED]
    return [SIGNS.get(name, name) for name in names if part not in ("", "text")]


# --- right values -----------------------------------------------------------------------------------------------------


class Option(NamedTuple):
    """Values that are right for a tensor, in the shape of its axes that are longer than one."""

    values: Tensor
    """In float64 or complex128."""
    scale: Tensor
    """What errors are divided by, likewise."""
    is_current: bool
    """Whether to write these if the tensor has lost its own."""


def _options(slot: Slot, rotations_by_length: Iterable[list[ConfigRotation]]) -> Iterator[Option]:
    """Yield a tensor's right values per rotation and layout that fits; only those of the first list may be written."""
    if getattr(slot.owner, "freqs_for", "lang") != "lang":
        return  # rotary-embedding-torch: frequencies of pixels
    for i, one in ((i, one) for i, rotations in enumerate(rotations_by_length) for one in rotations):
        rope: Any = one.rope
        rows = as_rows(rope.frequencies)
        if "divisors" in one.facts:  # of positions, by which the forward divides
            rows = tuple(tuple(f * k for f in row) for row, k in zip(rows, one.facts["divisors"].value, strict=True))
        parts = [tuple(filter(None, row)) for row in rows]
        shared = one.part == "text" or "mrope_section" in one.facts  # the axes share one ramp; towers have them apart
        by_axis = [] if shared else [*parts, tuple(chain(*parts))]
        for freqs in dict.fromkeys([tuple(map(sum, zip(*rows, strict=True))), *by_axis]):
            if slot.shape == [len(freqs)] and slot.kind in (None, "frequencies"):
                values = torch.tensor(freqs, dtype=torch.float64).abs() * _multiple(slot, one)
                yield Option(values, values.where(values > 0, 1.0), i == 0)
            for kind, layout in _layouts(slot, len(freqs)):
                # neighbours may be sorted into halves before; not in diffusers, nor if the caller names the pairing
                pairing = _pairing_of(layout)
                named = not one.part or one.part.startswith("transformer")
                if named and pairing not in (None, rope.pairing):
                    continue
                sure = pairing != "interleaved" or named
                current = i == 0 and sure and pairing in (None, rope.pairing)
                values, scale = map(partial(_in_layout, kind, layout), *_table_rows(slot, one, freqs))
                yield Option(values, scale, current)


def _multiple(slot: Slot, config_rotation: ConfigRotation) -> float:
    """Return a tensor's frequencies / the rotation's: 1, or a factor that the class's forward divides by."""
    fact = config_rotation.facts.get("model_type")
    tower = TOWERS.get(fact.value) if fact else None
    return float(getattr(slot.owner, "interpolate_factor", 1) / (tower.scale if tower else 1))


def _layouts(slot: Slot, pairs: int) -> list[tuple[str, Layout]]:
    """Return (kind in `TABLES`, layout) of each layout in which a table of so many pairs has the shape of a tensor."""
    blank = (torch.zeros(1, pairs),) * 3
    kinds = TABLES if slot.kind is None else {slot.kind} & TABLES.keys()
    rows = [(kind, LAYOUTS[name]) for kind in kinds for name in TABLES[kind] if len(slot.shape) > 1]
    return [row for row in rows if list(_in_layout(*row, *blank).shape[1:]) == slot.shape[1:]]


def _in_layout(kind: str, layout: Layout, cos: Tensor, sin: Tensor, angles: Tensor) -> Tensor:
    """
    Return the table of a `kind` in `TABLES`, in `layout`, from cosines, sines and angles ``(rows, pairs)``.

    Axes of length 1 are dropped, but not that of the rows.
    """
    alone = {"cos": cos, "sin": sin, "angles": angles}.get(kind)
    parts = [cos, sin] if layout.parts == ("cos", "sin") else [sin, cos]
    parts = [torch.complex(cos, sin)] if layout.is_complex else parts if alone is None else [alone]
    table: Tensor = arranged(library(x=cos), parts, ["seq", "pair"], layout)
    return table.reshape(len(cos), *[n for n in table.shape if n != 1][len(cos) > 1 :])


def _pairing_of(layout: Layout) -> Pairing | None:
    """Return the pairing that shows in a table's layout, by where its copies are; None if it has each value once."""
    copies = [name for name in layout.names if name in ("copy", "pair")]
    return None if copies == ["pair"] else "half" if copies[0] == "copy" else "interleaved"


def _table_rows(slot: Slot, config_rotation: ConfigRotation, freqs: Row) -> tuple[tuple[Tensor, Tensor], ...]:
    """
    Return right cos, sin, angles ``(rows, pairs)`` for a table, each as (values, divisor of errors).

    They are computed from `freqs`. Row i is for position i, except in some classes.
    """
    rope: Any = config_rotation.rope
    config = config_rotation.config
    count, rows = slot.shape[0], as_rows(rope.frequencies)
    used: tuple[Row, ...] = (freqs,)
    side = math.isqrt(count)
    filled = getattr(slot.owner, f"{slot.name}_seq_len", count)  # the other rows of a cache are zeros
    # row i is for position i, with exceptions for some classes
    p = torch.arange(-count, 0) if slot.name.startswith("neg_") else torch.arange(count)
    if slot.holder is getattr(slot.owner, "freqs", None) and count == sum(BOTH_SIGNS):
        p = p.where(p < BOTH_SIGNS[0], p - count)
    p = p.where(p < filled, 0)[:, None].double()
    if (
        config
        and slot.name == "freqs_ci"
        and len(rows) == 2
        and len(freqs) == len(rows[0])
        and count - side**2 in (0, 1)
    ):
        grid = config.positions((side, side), part=config_rotation.part, like=p)
        p, used = torch.cat((grid.double(), torch.zeros(count - side**2, 2))), rows  # a class token does not rotate
    angle = p @ torch.tensor(used, dtype=torch.float64)
    table = cos_sin(p, used, attention_factor=rope.attention_factor)
    scale = angle.abs().clamp(min=1)
    return (table.cos, scale), (table.sin, scale), (angle, scale)


# --- the verdict ------------------------------------------------------------------------------------------------------


def _verdict(
    slot: Slot, options: list[Option], why_unknown: str, *, has_config: bool
) -> tuple[str, str, float, Tensor | None]:
    """
    Return verdict, text and error of a `Finding`, and exact values if the tensor holds rounded ones, else None.

    `options` are the right values by the config; if not `has_config`, those of any base without scaling are right.
    """
    x, known = slot.tensor, bool(options)
    exempt = _why_exempt(slot)
    if exempt or x.is_meta:
        is_lost = exempt == LEARNED and not x.is_meta and not _as_float64(x).isfinite().all()
        verdict = "unknown" if is_lost else "exempt" if exempt else "meta"
        return verdict, f"{exempt}, and not finite" if is_lost else exempt, math.nan, None
    # values of any base without scaling are right then
    if not has_config and (rope := _rope_of_values(slot)):
        options = list(_options(slot, [[ConfigRotation("values", rope, {})]]))
    held_values = _as_float64(x)
    fit = [option for option in options if option.values.is_complex() == x.is_complex()]
    right = [(_as_float64(_shard_like(option.values, x)), _as_float64(_shard_like(option.scale, x))) for option in fit]
    errors = [torch.cat((((held_values - values) / scale).abs().flatten(), torch.zeros(1))) for values, scale in right]
    best = min(errors, key=lambda each: float(each.max()), default=torch.tensor([math.nan]))
    lost, error = int((~held_values.isfinite()).sum()), float(best.max())
    rounded = [
        (name, i) for name in HALF for i, each in enumerate(right) if _is_rounded(held_values, *each, HALF[name])
    ]
    if lost:
        return "garbage", f"{lost} of {held_values.numel()} values are not finite", math.nan, None
    if (options and not fit) or (slot.kind == "complex" and not x.is_complex()):
        lack = "it is complex, its values are real" if x.is_complex() else "it is real, its sines are lost"
        return "garbage", lack, error, None
    if error <= RIGHT:
        return "right", "" if known else f"by its own values; {why_unknown}", error, None
    if rounded:
        (dtype, i), *_ = rounded
        by_design = slot.has_model_dtype and x.dtype == HALF[dtype]
        text = f"in {dtype}, as its class keeps it" if by_design else f"to {dtype}"
        return "right" if by_design else "rounded", text, error, fit[i].values if known and not by_design else None
    wrong_count, why_unknown = int((best > RIGHT).sum()), "" if known else why_unknown
    return *_verdict_on_wrong_values(slot, held_values, right, why_unknown, wrong_count), error, None


def _verdict_on_wrong_values(
    slot: Slot, held_values: Tensor, right: list[tuple[Tensor, Tensor]], why_unknown: str, wrong_count: int
) -> tuple[str, str]:
    """
    Return verdict and text for wrong values: "other" and what they are, if that is known, else "garbage".

    If `why_unknown`, it ends the text, and the verdict is "rounded", "unknown" or "garbage".
    """
    x = slot.tensor
    named = (_name_frequencies(f, torch.finfo(x.dtype).eps) for f in _candidate_frequencies(slot))
    name = next(filter(None, chain((_name_multiple(held_values, *each) for each in right), named)), "")
    ordered = held_values.sort(dim=-1).values
    if not name and any(ordered.allclose(values.sort(dim=-1).values, rtol=1e-4, atol=1e-9) for values, _ in right):
        name = "the right values in another order"
    if why_unknown:  # the config gives no values
        if not held_values.any():
            return "garbage", f"all are zero; {why_unknown}"
        verdict = "rounded" if name and x.dtype in HALF.values() else "unknown"
        return verdict, "; ".join(filter(None, (name, why_unknown)))
    return ("other", name) if name else ("garbage", f"{wrong_count} of {held_values.numel()} values")


def _name_multiple(held_values: Tensor, values: Tensor, scale: Tensor) -> str:
    """Return text that says by what right values are multiplied; "" if the held values are no multiple of them."""
    k = (held_values * values).sum() / values.square().sum()
    return f"the right values times {k:.4g}" if ((held_values / k - values) / scale).abs().le(RIGHT).all() else ""


def _is_rounded(held_values: Tensor, values: Tensor, scale: Tensor, dtype: torch.dtype) -> bool:
    """Whether a tensor's values, in float64, are `values` rounded to a dtype, up to errors of `RIGHT` times `scale`."""
    info = torch.finfo(dtype)
    bound = 0.51 * info.eps * values.abs() + RIGHT * scale + info.smallest_normal * info.eps
    return bool((held_values.to(dtype).double() == held_values).all() and ((held_values - values).abs() <= bound).all())


def _candidate_frequencies(slot: Slot) -> Iterator[list[float]]:
    """Yield lists of frequencies: a vector itself, or by layout the angles in row 1 of a table; none if unreadable."""
    shape = slot.shape
    x: Any = slot.tensor
    if slot.kind == "cos":  # small angles are lost in cosines
        x, slot = getattr(slot.owner, slot.name.replace("cos", "sin"), None), slot._replace(kind="sin")
    if not isinstance(x, Tensor) or x.shape != slot.tensor.shape or slot.kind is None or is_sharded(x) or x.is_meta:
        return
    if len(shape) < 2:
        yield _as_float64(x).flatten().tolist()
        return
    row = _as_float64(x).reshape(shape[0], -1)[1].tolist()
    for n in (shape[1], shape[1] // 2, shape[1] // 4):
        marks = torch.arange(3.0 * n, dtype=torch.float64).reshape(3, 1, n)
        for kind, layout in (each for each in _layouts(slot, n) if each[1].is_complex == x.is_complex()):
            at = {mark: i for i, mark in enumerate(_as_float64(_in_layout(kind, layout, *marks)).flatten().tolist())}
            c, s, angle = ([row[at[mark]] for mark in marks[i, 0].tolist() if mark in at] for i in range(3))
            c = c or [math.sqrt(max(1 - b * b, 0)) for b in s]
            yield angle or [math.atan2(b, a) for a, b in zip(c, s, strict=True)]


def _rope_of_values(slot: Slot) -> Rope | None:
    """Return the "half" Rope of the base, without scaling, whose frequencies a tensor has; None if no base fits."""
    for f in _candidate_frequencies(slot):
        n = len(f)
        if n > 1 and abs(f[0] - 1) <= RIGHT and 0 < f[-1] < 0.99:
            base = f[-1] ** (n / (1 - n))
            for ramp in (frequencies(2 * n, base=float(f"{base:.6g}")), frequencies(2 * n, base=base)):
                if all(abs(a / b - 1) <= RIGHT for a, b in zip(f, ramp, strict=True)):
                    return Rope(ramp, pairing="half")
    return None


def _name_frequencies(f: Sequence[float], eps: float) -> str:
    """Return text that names the base of frequencies (times a factor, or slow ones scaled); "" if none, or under 4."""
    n, near = len(f), max(1e-4, eps)
    if n < 4 or not (0 < f[-1] < f[1] < f[0] < 100 and min(f) > 0):
        return ""
    bases = (f[0] / f[-1]) ** (n / (n - 1)), (f[0] / f[1]) ** n
    for digits, (name, dtype) in product((1, 2, 3), HALF.items()):  # a measured base would be off
        base = float(f"{bases[0]:.{digits}g}")
        held, ramp = (torch.tensor(each, dtype=torch.float64) for each in (f, frequencies(2 * n, base=base)))
        if _is_rounded(held, ramp, ramp, dtype):
            return f"base {base:.4g}, rounded to {name}"
    for base in bases:
        shares = [x * base ** (i / n) for i, x in enumerate(f)]
        if all(abs(share / f[0] - 1) <= near for share in shares):
            return f"base {base:.4g}" + (f", times {f[0]:.4g}" if abs(f[0] - 1) > near else "")
    falls = all(b <= a * (1 + near) for a, b in pairwise(shares))
    if falls and abs(f[0] - 1) <= near and abs(shares[-2] / shares[-1] - 1) <= near:
        return f"base {base:.4g}, slow frequencies divided by {1 / shares[-1]:.4g}, as by llama3 and yarn"
    return ""


def _shard_like(values: Tensor, x: Tensor) -> Tensor:
    """Return values in the shape of x; for a DTensor x with its placements, which sends nothing."""
    values = values.reshape(x.shape)
    return replicated(values, like=x).redistribute(placements=x.placements) if is_sharded(x) else values  # type: ignore[attr-defined]  # of a DTensor


def _as_float64(x: Tensor) -> Tensor:
    """Return this process's shard of x in float64 on the CPU; complex numbers become a last axis (real, imaginary)."""
    own = local(x.detach())
    return (torch.view_as_real(own) if own.is_complex() else own).cpu().double()


def _kept_dtype(slot: Slot, right_values: Tensor) -> torch.dtype:
    """Return the dtype to write in: float32 or complex64, but its own if wider, of integers, or that of the model."""
    narrow, wide = (torch.complex64, torch.complex128) if right_values.is_complex() else (torch.float32, torch.float64)
    own = slot.tensor.dtype
    is_whole = not (own.is_floating_point or own.is_complex)
    return own if slot.has_model_dtype or own == wide or is_whole else narrow


def _write(slot: Slot, right_values: Tensor | float, written: dict[int, Tensor]) -> list[Callable[[], None]]:
    """
    Write right values into a tensor, or replace it, or a number, in its module; return undo functions.

    The list is empty if modules share the tensor and an earlier call, noted in `written`, has written into it.
    """
    if not isinstance(right_values, Tensor):
        return [_put(slot, right_values)]
    x, is_first = slot.tensor, id(slot.tensor) not in written
    own_values = _shard_like(right_values.to(_kept_dtype(slot, right_values)), x).to(x.device)
    new = written.setdefault(id(x), own_values)
    tied = bool(local(new).equal(local(own_values)))  # one tensor cannot hold the values of two rotations
    new = new if tied else own_values
    in_place = tied and new.dtype == x.dtype and 0 not in x.stride()
    if not in_place and not isinstance(x, nn.Parameter):
        return [_put(slot, new)]
    if not is_first:  # modules share it
        return []
    if in_place:
        own = local(x.detach())
        old = own.clone()
        own.copy_(local(new))
        return [partial(own.copy_, old)]
    old, x.data = x.data, new
    return [partial(setattr, x, "data", old)]


def _put(slot: Slot, new: Tensor | float) -> Callable[[], None]:
    """Put a value in the place of the one that a module has; return what undoes it."""
    old, slot.holder[slot.key] = slot.holder[slot.key], new
    return partial(slot.holder.__setitem__, slot.key, old)
