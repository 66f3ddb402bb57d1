"""
Translate the metadata of a GGUF file into a config with the names of transformers.

`tables.gguf` has the names and the facts about architectures. GGUF files store the factors of LongRoPE and of Llama 3
as tensors, which metadata does not include. A file with LongRoPE is refused, and so are one of Llama 3.1 or later and
one of an architecture whose models have that scaling, unless its factor is given.
"""

import re
from collections.abc import Mapping
from functools import partial
from math import isclose
from numbers import Integral
from typing import Any

from rope_any._checks import NOTHING, ArgumentValueError, integer, positive, real
from rope_any.config._load import typed
from rope_any.config._schemes import ORIGINAL, unknown_name
from rope_any.config.tables.gguf import ARCHITECTURES, KEYS, READ_BY_FEW, SCALING
from rope_any.config.tables.models import MODELS
from rope_any.config.tables.rows import Model
from rope_any.scaling import yarn_attention_factor

Keys = Mapping[str, Any]

_ARCHITECTURE = "general.architecture"
_BASE, _SLIDING_BASE, _COUNT = "rope.freq_base", "rope.freq_base_swa", "rope.dimension_count"
_SECTIONS, _PATTERN, _INDEXER = "rope.dimension_sections", "attention.sliding_window_pattern", "attention.indexer."
_HEADS, _KV_HEADS, _RECURRENT = "attention.head_count", "attention.head_count_kv", "attention.recurrent_layers"
_WINDOW, _LENGTH, _LAYERS, _AHEAD = "attention.sliding_window", "context_length", "block_count", "nextn_predict_layers"
_OTHER = re.compile(r"(^|\.)rope[._]|^rotary|^partial_rotary")  # keys of another form, or of another architecture
_ABOUT_ROTATION = re.compile(
    r"rope|rotary|_swa$|recurrent|full_attention|sliding_window_pattern|^(kda|shortconv|ssm)\."
)  # keys of an architecture about the rotation, or about which layers rotate
_LINEAR = "rope.scale_linear"  # the key of the factor in older files
_ORIGINAL_OF_LLAMA3 = 8192
_LLAMA3_TOKENS = range(128_256, 128_512)  # the vocabulary of Llama 3, with some tokens added
_READ_CONFIG = "read the config.json of the model, whose weights may have another pairing"


def is_gguf(keys: Keys, /) -> bool:
    """Whether a config is the metadata of a GGUF file: it has the key ``general.architecture``."""
    return _ARCHITECTURE in keys


def translated(keys: Keys, /, *, factor: float | None = None) -> tuple[dict[str, Any], dict[str, str], Model]:
    """
    Return GGUF `keys` as a config of transformers, its keys' names in the file, and a `Model`. Raise if unsupported.

    `factor` is that of Llama 3's scaling, 1 for none. It is required if the model may have this scaling.
    """
    arch = _architecture(keys)
    if factor is not None and not ARCHITECTURES[arch].llama3:
        raise ArgumentValueError(
            "factor", f"be left out: no model of architecture {arch} has Llama 3's scaling", factor
        )
    arch_keys = _keys_of(arch, keys)
    model = _with_period(_model(arch, arch_keys), arch_keys)
    _require_values(arch, arch_keys)
    theirs = _names_in_file(arch, arch_keys, model)
    config = {ours: arch_keys[key] for ours, key in theirs.items() if key in arch_keys}
    config |= _heads_and_layers(arch, arch_keys)
    if ARCHITECTURES[arch].windowless and not arch_keys.get(_WINDOW):
        config["sliding_window"] = None
    if indexer := {key: value for key, value in arch_keys.items() if key.startswith(_INDEXER)}:
        config["indexer_config"] = indexer
    swa = config.pop("rope_theta_swa", None)
    if swa is not None and swa != config.get("rope_theta"):
        raise ArgumentValueError(f"{arch}.{_SLIDING_BASE}", f"equal {_BASE}: {arch} has one base", swa)
    theirs |= {f"rope_scaling.{ours}": key for ours, key in SCALING.items()}
    kinds = next((key for key in (_PATTERN, _RECURRENT) if key in arch_keys), _KV_HEADS)
    theirs |= {"layer_types": kinds, "indexer_config": f"{_INDEXER}*"}
    names = {ours: f"{arch}.{key}" for ours, key in theirs.items()}
    if model.optional_rotary:
        config["rope_theta"] = None
    else:
        _require_known_keys(arch, arch_keys)
        config["layer_types"] = _layer_types(arch, arch_keys)
        config["rope_scaling"] = _scaling(arch, arch_keys)
        if llama3 := _llama3(keys, arch, arch_keys, factor, is_scaled="rope_type" in config["rope_scaling"]):
            config["rope_scaling"] |= llama3
            names |= {f"rope_scaling.{key}": "constant of Llama 3's scaling" for key in llama3}
            names["rope_scaling.factor"] = "argument factor"
    model = model._replace(keys={**model.keys, "rotary_dim": "rotary_dim"}, parameters=("alpha",))
    return {"model_type": arch, **config}, {"model_type": _ARCHITECTURE, **names}, model


def _keys_of(arch: str, keys: Keys) -> dict[str, Any]:
    """Return an architecture's keys without its name, and without nulls; raise for rotary keys of another form."""
    given = {key: value for key, value in keys.items() if value is not None and str(key).startswith(f"{arch}.")}
    arch_keys = {key.removeprefix(f"{arch}."): value for key, value in given.items()}
    for key in keys:
        if _OTHER.search(str(key)) and not str(key).startswith(f"{arch}."):
            hint = _unpack_hint(arch, arch_keys) if str(key).endswith(".weight") else ""
            raise ArgumentValueError(str(key), f"not be given in GGUF metadata of architecture {arch}", keys[key], hint)
    return arch_keys


def _names_in_file(arch: str, arch_keys: Keys, model: Model) -> dict[str, str]:
    """Return the names of keys in the file, without the architecture, by their names in transformers."""
    full, sliding = (model.layers[kind].key if model.layers else "" for kind in ("full_attention", "sliding_attention"))
    has_slice = ARCHITECTURES[arch].mla or {"attention.kv_lora_rank", "attention.key_length_mla"} & arch_keys.keys()
    return {
        **KEYS,
        full or "rope_theta": _BASE,
        sliding if sliding != full else "rope_theta_swa": _SLIDING_BASE,
        "qk_rope_head_dim" if has_slice else "rotary_dim": _COUNT,  # MLA: the rotary features are a separate slice
    }


def _heads_and_layers(arch: str, arch_keys: Keys) -> dict[str, Any]:
    """Return the numbers of heads, of layers with attention if layers differ, and of layers, by transformers' names."""
    found: dict[str, Any] = {}
    for ours, key in (("num_attention_heads", _HEADS), ("num_key_value_heads", _KV_HEADS)):
        if isinstance(heads := arch_keys.get(key), list | tuple) and heads:
            found[ours] = next(filter(None, heads), 0)
    if _AHEAD in arch_keys and _LAYERS in arch_keys:  # it counts layers that predict further tokens too
        layers, ahead = (integer(f"{arch}.{key}", arch_keys[key]) for key in (_LAYERS, _AHEAD))
        found |= {"num_hidden_layers": layers - ahead, "num_nextn_predict_layers": ahead}
    return found


def _with_period(model: Model, arch_keys: Keys) -> Model:
    """Return a model with the file's period of layers with full attention, if it gives one and the model has any."""
    given: dict[str, Any] = {"n": _period(arch_keys), "key": ""}
    return model._replace(pattern=partial(model.pattern, **given)) if model.pattern and given["n"] else model


def _period(arch_keys: Keys) -> int:
    """Return the pattern of sliding layers if it is a number n, of which each n-th layer has full attention, else 0."""
    period = arch_keys.get(_PATTERN)
    return int(period) if isinstance(period, Integral) and not isinstance(period, bool) else 0


def _architecture(keys: Keys) -> str:
    """Return ``general.architecture``; raise if it is missing (a KeyError), no string or of unknown pairing."""
    arch: str = typed(_ARCHITECTURE, keys[_ARCHITECTURE], str, "be a name")
    wanted = "be one whose pairing is known"
    if arch in ARCHITECTURES and (bases := ARCHITECTURES[arch].projectors):
        names = (f"{arch}.projector_type", f"{arch}.vision.projector_type")
        kind = next((keys[key] for key in names if key in keys), None)
        fixed = f" ({bases[kind]} for {kind})" if isinstance(kind, str) and kind in bases else ""
        why = f"its file has no key for the axes, nor for the base, which llama.cpp sets by the projector type{fixed}"
        hint = f"{arch} is a vision or audio tower, and {why}: read its config.json"
        raise ArgumentValueError(_ARCHITECTURE, wanted, arch, hint)
    if arch not in ARCHITECTURES:
        raise ArgumentValueError(_ARCHITECTURE, wanted, arch, _READ_CONFIG)
    return arch


def _require_known_keys(arch: str, arch_keys: Keys) -> None:
    """Raise if a key about the rotation or the kinds of layers is unknown, or known only for other architectures."""
    row, known = ARCHITECTURES[arch], {*KEYS.values(), *SCALING.values(), _COUNT, _BASE, _SLIDING_BASE, _LINEAR}
    for key in filter(_ABOUT_ROTATION.search, arch_keys):
        group = key if key in READ_BY_FEW else key.split(".")[0]
        if group not in READ_BY_FEW and key not in known:
            raise unknown_name(f"{arch}.{key}", key, known)
        if group in READ_BY_FEW and group not in row.reads:
            wanted = f"not be given for architecture {arch}, where its meaning is not known"
            raise ArgumentValueError(f"{arch}.{key}", wanted, arch_keys[key], _READ_CONFIG)
    if row.needs_window and arch_keys.get(_WINDOW) == 0:
        raise ArgumentValueError(f"{arch}.{_WINDOW}", "not be 0", 0, _READ_CONFIG)


def _require_values(arch: str, arch_keys: Keys) -> None:
    """Raise if the count is odd, sections or kinds of layers are no list, or a scaling value is no number."""
    numbers = {*SCALING.values(), _LINEAR} - {"rope.scaling.type", _SECTIONS}
    if isinstance(count := arch_keys.get(_COUNT), Integral) and int(count) % 2:
        raise ArgumentValueError(f"{arch}.{_COUNT}", "be even", count)
    for key, value in arch_keys.items():
        is_period = key == _PATTERN and _period(arch_keys) > 0
        if key in (_SECTIONS, _PATTERN, _RECURRENT) and not is_period:
            typed(f"{arch}.{key}", value, (list, tuple), "be a list")
        if key in numbers:
            real(f"{arch}.{key}", value)


def _layer_types(arch: str, arch_keys: Keys) -> list[str] | None:
    """Return each layer's type if lists of the file give it, else None; raise for a wrong or missing list."""
    for key, kind in ((_PATTERN, "sliding_attention"), (_RECURRENT, "linear_attention")):
        if isinstance(flags := arch_keys.get(key), list | tuple):
            return [kind if flag else "full_attention" for flag in flags]
    without = ARCHITECTURES[arch].without_heads
    key, heads = f"{arch}.{_KV_HEADS}", arch_keys.get(_KV_HEADS)
    if not isinstance(heads, list | tuple):
        if without and arch_keys.get("rope.scaling.finetuned") is not False:
            raise ArgumentValueError(key, "be a list, with 0 for each layer without attention", heads)
        return None
    if 0 in heads and not without:
        wanted = f"have no 0 for architecture {arch}, where its meaning is not known"
        raise ArgumentValueError(key, wanted, heads, _READ_CONFIG)
    return ["full_attention" if count else without for count in heads] if without else None


def _model(arch: str, arch_keys: Keys) -> Model:
    """Return an architecture's facts, with layer rules of a model type like it; sections make axes chunked for some."""
    row, sections = ARCHITECTURES[arch], arch_keys.get(_SECTIONS)
    first = sections[:2] if isinstance(sections, list | tuple) else []
    if first and all(first) and row.multimodal:
        return Model("half", axes="chunked")
    kin = MODELS.get((arch_keys.get(_WINDOW) and row.windowed_like) or row.like)
    return row.model._replace(layers=kin.layers, has_rotary=kin.has_rotary, pattern=kin.pattern) if kin else row.model


def _llama3(keys: Keys, arch: str, arch_keys: Keys, factor: float | None, *, is_scaled: bool) -> dict[str, Any]:
    """Return the parameters of Llama 3's scaling by `factor`, {} for 1 or if the model has none; raise if unknown."""
    row = ARCHITECTURES[arch]
    if factor is not None and is_scaled:
        raise ArgumentValueError("factor", "be left out: the file has another scaling", factor)
    if factor is None and (is_scaled or not row.llama3 or not _may_lack_scaling(keys, arch, arch_keys)):
        return {}
    if factor is None:
        wanted = "be given: the tensor rope_freqs.weight may scale this model, which the metadata does not say"
        hint = f"it is {row.llama3}; give 1 if the file has no such tensor; or, for the layers that rotate, "
        raise ArgumentValueError("factor", wanted, NOTHING, hint + _unpack_hint(arch, arch_keys))
    if positive("factor", factor) == 1:
        return {}
    found = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": row.high_freq_factor}
    return {**found, ORIGINAL: _ORIGINAL_OF_LLAMA3}


def _unpack_hint(arch: str, arch_keys: Keys) -> str:
    """Return how to read the rotation from a tensor of the file, or from the config.json, for an error."""
    base, pairing = arch_keys.get(_BASE, 10_000.0), ARCHITECTURES[arch].model.pairing
    call = f'rope = rope_any.layouts.unpack(tensor, "llama.cpp", base={base!r}, pairing="{pairing}")'
    factor = arch_keys.get("rope.scaling.attn_factor", 1)
    more = "" if factor == 1 else f" and dataclasses.replace(rope, attention_factor={factor!r})"
    return f"read the tensor: {call}{more}; or {_READ_CONFIG}"


def _may_lack_scaling(keys: Keys, arch: str, arch_keys: Keys) -> bool:
    """Whether a model is longer than Llama 3's original length, if known, and has its tokens, if that is required."""
    if _LENGTH in arch_keys and real(f"{arch}.{_LENGTH}", arch_keys[_LENGTH]) <= _ORIGINAL_OF_LLAMA3:
        return False
    if not ARCHITECTURES[arch].by_tokens:
        return True
    tokens = keys.get("tokenizer.ggml.tokens")
    size = arch_keys.get("vocab_size", len(tokens) if isinstance(tokens, list | tuple) else None)
    if size is None and "tokenizer.ggml.pre" not in keys:
        return bool(arch_keys.get(_BASE) == 500_000)
    return keys.get("tokenizer.ggml.pre") == "llama-bpe" or size in _LLAMA3_TOKENS


def _scaling(arch: str, arch_keys: Keys) -> dict[str, Any]:
    """Return transformers' ``rope_scaling``, {} if none. Raise if tensors hold it."""
    row, given = ARCHITECTURES[arch], {ours: arch_keys[key] for ours, key in SCALING.items() if key in arch_keys}
    kind = typed(f"{arch}.{SCALING['rope_type']}", given.pop("rope_type", "linear"), str, "be a name")
    attention_factor = positive(f"{arch}.{SCALING['attention_factor']}", given.pop("attention_factor", 1.0))
    length, is_yarn = arch_keys.get(_LENGTH), kind == "yarn"
    original = given.get(ORIGINAL, row.original)
    extended = not is_yarn and isinstance(length, Integral) and 0 < original < int(length)
    if kind == "longrope" or (not is_yarn and attention_factor != 1) or extended or row.factors:
        lengths = f"up to {original} tokens" if original else "up to the trained length"
        why = f"rope_factors_short.weight {lengths}, rope_factors_long.weight beyond"
        wanted = f"have its scaling in the metadata, not in tensors ({why})"
        raise ArgumentValueError(arch, wanted, NOTHING, _unpack_hint(arch, arch_keys))
    given["factor"] = given.get("factor", arch_keys.get(_LINEAR)) or 1.0  # 0 means none, as in llama.cpp
    found: dict[str, Any] = {}
    if kind not in ("none", "linear", "yarn"):
        found = {"rope_type": kind}  # `_recipe` refuses an unknown type
    elif given.get("alpha"):
        found = {"rope_type": "dynamic", "alpha": given["alpha"]}
    elif kind == "linear" and given["factor"] != 1:
        found = {"rope_type": "linear", "factor": given["factor"]}
    elif kind == "yarn":
        given[ORIGINAL] = given.get(ORIGINAL) or arch_keys.get(_LENGTH)
        found = _yarn(arch, given, attention_factor)
    sections = given.get("mrope_section")
    if isinstance(sections, list | tuple) and any(sections):
        while not sections[-1]:
            sections = sections[:-1]
        found["mrope_section"] = list(sections)
    return found


def _yarn(arch: str, given: Keys, attention_factor: float) -> dict[str, Any]:
    """Return transformers' YaRN parameters from the file's values, `given`; `attention_factor` 1 means none."""
    # in llama.cpp, only mistral3 reads the betas; the converter writes those of the model for all architectures
    row, read = ARCHITECTURES[arch], ("beta_fast", "beta_slow", "factor", ORIGINAL)
    found: dict[str, Any] = {"rope_type": "yarn", **{key: given[key] for key in read if key in given}}
    if not row.truncate:
        found["truncate"] = False
    mscale: dict[str, float] = {}
    if given.get("mscale_all_dim"):
        c = positive(f"{arch}.{SCALING['mscale_all_dim']}", given["mscale_all_dim"]) * row.multiplier
        mscale = {"mscale": c if row.mla else 1.0, "mscale_all_dim": c}
    derived = yarn_attention_factor(positive(f"{arch}.{SCALING['factor']}", given["factor"]), **mscale)
    unread = given.get("config_attention_factor", derived)  # of the config.json: llama.cpp derives it
    if not isclose(unread, derived, rel_tol=1e-6):
        wanted = f"equal what llama.cpp derives from the factor, {derived}"
        raise ArgumentValueError(f"{arch}.{SCALING['config_attention_factor']}", wanted, unread, _READ_CONFIG)
    if attention_factor == 1:
        return found | mscale
    return found | {"attention_factor": attention_factor * derived}  # llama.cpp multiplies cos and sin by both
