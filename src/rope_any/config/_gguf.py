"""
Translate the metadata of a GGUF file into a config with the names of transformers.

The names are in ``gguf.toml``. GGUF files store the factors of LongRoPE and of Llama 3 as tensors, which metadata does
not include. A file with LongRoPE is refused. One with the scaling of Llama 3 cannot be recognised by its metadata.
"""

import re
from collections.abc import Mapping
from numbers import Integral
from typing import Any, get_args

from rope_any._checks import ArgumentValueError, positive, real
from rope_any._names import did_you_mean
from rope_any._pairing import Pairing
from rope_any.config import _data
from rope_any.config._load import typed
from rope_any.config._models import MODELS, Model
from rope_any.config._schemes import ORIGINAL, unknown_name
from rope_any.scaling import yarn_attention_factor

Keys = Mapping[str, Any]
ARCHITECTURES = _data.entries_by_name("gguf.toml", "architecture", Model, dict, lambda: {"pairing": get_args(Pairing)})

_ARCHITECTURE = "general.architecture"
_BASE, _SLIDING_BASE, _COUNT = "rope.freq_base", "rope.freq_base_swa", "rope.dimension_count"
_SECTIONS, _PATTERN, _INDEXER = "rope.dimension_sections", "attention.sliding_window_pattern", "attention.indexer."
_OTHER = re.compile(r"(^|\.)rope[._]|^rotary|^partial_rotary")  # keys of another form, or of another architecture
_LINEAR = "rope.scale_linear"  # the key of the factor in older files


def is_gguf(keys: Keys, /) -> bool:
    """Whether a config is the metadata of a GGUF file: it has the key ``general.architecture``."""
    return _ARCHITECTURE in keys


def translated(keys: Keys, /) -> tuple[dict[str, Any], dict[str, str], Model]:
    """Return GGUF `keys` as a config of transformers, its keys' names in the file, a `Model`. Raise if unsupported."""
    facts, arch = _data.content("gguf.toml"), _architecture(keys)
    arch_keys = {key.removeprefix(f"{arch}."): value for key, value in keys.items() if str(key).startswith(f"{arch}.")}
    _require_values(arch, arch_keys)
    for key in keys:
        if _OTHER.search(str(key)) and not str(key).startswith(f"{arch}."):
            raise ArgumentValueError(str(key), f"not be given in GGUF metadata of architecture {arch}", keys[key])
    model = _model(arch, arch_keys)
    layer = {kind: layer.key for kind, layer in model.layers.items()}
    has_slice = arch == "deepseek2" or {"attention.kv_lora_rank", "attention.key_length_mla"} & arch_keys.keys()
    theirs = facts["keys"] | {
        layer.get("full_attention", "rope_theta"): _BASE,
        layer.get("sliding_attention", "rope_theta_swa"): _SLIDING_BASE,
        "qk_rope_head_dim" if has_slice else "rotary_dim": _COUNT,  # MLA: the rotary features are a separate slice
    }
    config = {ours: arch_keys[key] for ours, key in theirs.items() if arch_keys.get(key) is not None}
    if isinstance(count := arch_keys.get(_COUNT), Integral) and int(count) % 2:
        raise ArgumentValueError(f"{arch}.{_COUNT}", "be even", count)
    heads, pattern = config.get("num_attention_heads"), arch_keys.get(_PATTERN)
    if isinstance(heads, list | tuple) and heads:
        config["num_attention_heads"] = heads[0]  # llama.cpp uses this one
    if isinstance(pattern, list | tuple):
        config["layer_types"] = ["sliding_attention" if has_window else "full_attention" for has_window in pattern]
    if indexer := {key: value for key, value in arch_keys.items() if key.startswith(_INDEXER)}:
        config["indexer_config"] = indexer
    sliding = None if layer else config.pop("rope_theta_swa", None)
    if sliding is not None and sliding != config.get("rope_theta"):
        raise ArgumentValueError(f"{arch}.{_SLIDING_BASE}", f"equal {_BASE}: {arch} has one base", sliding)
    if model.optional_rotary:
        config["rope_theta"] = None
    else:
        config["rope_scaling"] = _scaling(arch, arch_keys, facts["scaling"])
    theirs |= {f"rope_scaling.{ours}": key for ours, key in facts["scaling"].items()}
    theirs |= {"layer_types": _PATTERN, "indexer_config": f"{_INDEXER}*"}
    names = {ours: f"{arch}.{key}" for ours, key in theirs.items()}
    model = model._replace(keys={**model.keys, "rotary_dim": "rotary_dim"})
    return {"model_type": arch, **config}, {"model_type": _ARCHITECTURE, **names}, model


def _architecture(keys: Keys) -> str:
    """Return ``general.architecture``; raise if it is missing (a KeyError), no string, "clip" or of unknown pairing."""
    arch: str = typed(_ARCHITECTURE, keys[_ARCHITECTURE], str, "be a name")
    wanted = "be one whose pairing is known"
    if arch == "clip":
        kind = next((keys[key] for key in ("clip.projector_type", "clip.vision.projector_type") if key in keys), None)
        bases = _data.content("gguf.toml")["projectors"]
        fixed = f" ({bases[kind]} for {kind})" if isinstance(kind, str) and kind in bases else ""
        why = f"its file has no key for the axes, nor for the base, which llama.cpp sets by the projector type{fixed}"
        hint = f"clip is a vision or audio tower, and {why}: read its config.json"
        raise ArgumentValueError(_ARCHITECTURE, wanted, arch, hint)
    if arch not in ARCHITECTURES:
        raise ArgumentValueError(_ARCHITECTURE, wanted, arch, did_you_mean(arch, ARCHITECTURES))
    return arch


def _require_values(arch: str, arch_keys: Keys) -> None:
    """Raise if a key ``rope.…`` is unknown, sections or window pattern are no list, or a scaling value is no number."""
    facts = _data.content("gguf.toml")
    known = {*facts["keys"].values(), *facts["scaling"].values(), _COUNT, _BASE, _SLIDING_BASE, _LINEAR}
    numbers = {*facts["scaling"].values(), _LINEAR} - {"rope.scaling.type", _SECTIONS}
    for key in arch_keys:
        if key.startswith("rope.") and key not in known:
            raise unknown_name(f"{arch}.{key}", key, known)
    for key, value in ((key, value) for key, value in arch_keys.items() if value is not None):
        is_period = key == _PATTERN and isinstance(value, Integral) and not isinstance(value, bool)
        if key in (_SECTIONS, _PATTERN) and not is_period:
            typed(f"{arch}.{key}", value, (list, tuple), "be a list")
        if key in numbers:
            real(f"{arch}.{key}", value)


def _model(arch: str, arch_keys: Keys) -> Model:
    """Return an architecture's facts, with layer rules of a model type like it; sections make axes chunked for some."""
    facts, sections = _data.content("gguf.toml"), arch_keys.get(_SECTIONS)
    first = sections[:2] if isinstance(sections, list | tuple) else []
    if first and all(first) and arch in facts["multimodal"]["names"].split():
        return Model("half", axes="chunked")
    windowed = arch == "olmo2" and arch_keys.get("attention.sliding_window")
    kin = MODELS.get("olmo3" if windowed else facts["kin"].get(arch, ""))
    model = ARCHITECTURES[arch]
    return model._replace(layers=kin.layers, has_rotary=kin.has_rotary, pattern=kin.pattern) if kin else model


def _scaling(arch: str, arch_keys: Keys, names: Mapping[str, str]) -> dict[str, Any]:
    """Return transformers' ``rope_scaling``, {} if none; `names` has the file's key for each. Raise for longrope."""
    given = {ours: arch_keys[key] for ours, key in names.items() if arch_keys.get(key) is not None}
    kind = typed(f"{arch}.{names['rope_type']}", given.pop("rope_type", "linear"), str, "be a name")
    attention_factor = positive(f"{arch}.{names['attention_factor']}", given.pop("attention_factor", 1.0))
    if kind == "longrope" or (kind != "yarn" and attention_factor != 1):
        why = "its metadata does not include the factors of longrope, which are tensors"
        raise ArgumentValueError(arch, f"be read from its config.json: {why}")
    given["factor"] = given.get("factor", arch_keys.get(_LINEAR)) or 1.0  # 0 means none, as in llama.cpp
    found: dict[str, Any] = {}
    if kind not in ("none", "linear", "yarn"):
        found = {"rope_type": kind}  # `_recipe` refuses an unknown type
    elif given.get("alpha"):
        found = {"rope_type": "dynamic", "alpha": given["alpha"]}
    elif kind == "linear" and given["factor"] != 1:
        found = {"rope_type": "linear", "factor": given["factor"]}
    elif kind == "yarn":
        given[ORIGINAL] = given.get(ORIGINAL) or arch_keys.get("context_length")
        found = _yarn(arch, given, attention_factor, names)
    sections = given.get("mrope_section")
    if isinstance(sections, list | tuple) and any(sections):
        while not sections[-1]:
            sections = sections[:-1]
        found["mrope_section"] = list(sections)
    return found


def _yarn(arch: str, given: Keys, attention_factor: float, names: Mapping[str, str]) -> dict[str, Any]:
    """Return transformers' YaRN parameters from the file's values, `given`; `attention_factor` 1 means none."""
    # in llama.cpp, only some architectures read the betas
    read = ("beta_fast", "beta_slow", "factor", ORIGINAL)
    found: dict[str, Any] = {"rope_type": "yarn", **{key: given[key] for key in read if key in given}}
    mscale: dict[str, float] = {}
    if given.get("mscale_all_dim"):
        c = positive(f"{arch}.{names['mscale_all_dim']}", given["mscale_all_dim"])
        if arch != "mistral3":  # for others, the converter writes 0.1 times the config's value, which equals mscale
            c *= 10
        mscale = {"mscale": 1.0 if arch == "mistral3" else c, "mscale_all_dim": c}
    if attention_factor == 1:
        return found | mscale
    derived = yarn_attention_factor(positive(f"{arch}.{names['factor']}", given["factor"]), **mscale)
    return found | {"attention_factor": attention_factor * derived}  # llama.cpp multiplies cos and sin by both
