"""
Translate a params.json of Mistral or Meta, or a config of DeepSeek's own code, into one with the names of transformers.

Read in the code of the formats' owners: mistral-inference 2557e12, llama-models a9c89c4, facebookresearch/llama and
inference/model.py of DeepSeek-V3 and V3.2-Exp. The weights of all have pairing "interleaved"; in the copies that
transformers loads, those of Mistral and Meta are permuted to "half".
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from rope_any._checks import NOTHING, ArgumentValueError, Text, brief, choice, flag, integer, positive
from rope_any.config._load import MOST_LAYERS, typed
from rope_any.config._schemes import ORIGINAL, unknown_name
from rope_any.config.tables import params
from rope_any.config.tables.models import MODELS
from rope_any.config.tables.rows import Model

Keys = Mapping[str, Any]
Translation = tuple[dict[str, Any], dict[str, str], Model]

_OTHER_FORMS = {"hidden_size", "architectures", "transformers_version", "_class_name", "general.architecture"}
_SLICES = ("qk_rope_head_dim", "qk_nope_head_dim")  # the two slices of a head of MLA
_ROTARY = re.compile(
    r"(^|[._])(m|x)?rope|rotary|theta|yarn|scaling|window|(^|[._])nope(_|$)|freq_|_freq$", re.IGNORECASE
)


def form_of(keys: Keys, /) -> str | None:
    """Return `ONNX` or the form in `OWN` by a file's keys, None for any other form. Raise if it has keys of two."""
    model, kind = keys.get("model"), keys.get("model_type")
    decoder = model.get("decoder") if isinstance(model, Mapping) else None
    if isinstance(decoder, Mapping) and {"filename", "session_options", "inputs"} & decoder.keys():
        return params.ONNX
    if _OTHER_FORMS & keys.keys() or not (kind is None or (isinstance(kind, str) and kind in {"transformer", "mamba"})):
        return None
    if len(params.COMMON & keys.keys()) < 2:
        return None
    found = {form: min(own) for form, names in params.OWN.items() if (own := names & keys.keys())}
    if len(found) > 1:
        got = Text(" and ".join(f"{key} of {form}" for form, key in found.items()))
        raise ArgumentValueError("config", "be of one form", got)
    return params.MISTRAL if kind == "mamba" else next(iter(found), None)


def translated(keys: Keys, form: str, /, *, factor: float | None = None) -> Translation:
    """
    Return a file of a form in `OWN` as a config of transformers, the names of its keys in the file, and a `Model`.

    `form` is that of `form_of`. `factor` is the factor of Llama 3's scaling, for Meta only. Configs of towers are not
    changed. Raise for `ONNX`, an unknown name about rotary embedding or windows, and a wrong or missing value.
    """
    if form == params.ONNX:
        hint = "it has no values of rotary embedding: the ONNX graph has the table (cos_cache, sin_cache)"
        raise ArgumentValueError("config", "be the config.json of the model", Text("its genai_config.json"), hint)
    choice("form", form, tuple(params.OWN), f"be one of {', '.join((*params.OWN, params.ONNX))}")
    if factor is not None and form != params.META:
        raise ArgumentValueError("factor", f"not be given for {form}, which has its own", factor)
    flat = {key: value for key, value in keys.items() if value is not None}
    flat |= {f"multimodal.{key}": value for key, value in _object(flat, "multimodal").items()}
    inner = {theirs: flat[theirs] for theirs in params.PARTS if theirs in flat and _object(flat, theirs)}
    flat = {key: value for key, value in flat.items() if key not in params.PARTS and key != "multimodal"}
    _require_known_names(flat, params.COMMON | params.SHARED | params.OWN[form])
    if form == params.META:
        config, names, model = _meta(flat, factor)
    else:
        config, names, model = (_mistral if form == params.MISTRAL else _deepseek)(flat)
    for theirs, part in inner.items():
        ours = params.PARTS[theirs]
        if ours in config:
            raise ArgumentValueError(theirs, f"not be given together with {names[ours]}")
        config[ours] = part
        names |= {ours: theirs, **{f"{ours}.{key}": f"{theirs}.{key}" for key in part}}
    return config, {"model_type": form, **names}, model


def _require_known_names(keys: Keys, known: Collection[str], path: str = "") -> None:
    """Raise if a name about rotary or windows has a value, in inner objects too, unless at the top and `known`."""
    for key, value in keys.items():
        if key in known and not path:
            continue
        if value is not None and _ROTARY.search(str(key)):
            raise unknown_name(f"{path}{key}", key, known)
        if isinstance(value, Mapping) and path.count(".") < 8:
            _require_known_names(value, known, f"{path}{key}.")


def _object(keys: Keys, key: str, known: Collection[str] = ()) -> dict[str, Any]:
    """Return the object under a key, without nulls, or {}. Raise if it is none or has a name not in given `known`."""
    value = typed(key, keys.get(key, {}), Mapping, "be an object")
    for name in value if known else ():
        if name not in known:
            raise unknown_name(f"{key}.{name}", name, known)
    return {name: inner for name, inner in value.items() if inner is not None}


def _needed(keys: Keys, key: str, path: str = "") -> Any:
    """Return the value of a key, unchecked; raise if it is missing (`path` goes before the key in the message)."""
    if key not in keys:
        raise ArgumentValueError(f"{path}{key}", "be given")
    return keys[key]


def _sizes(keys: Keys, table: Mapping[str, str]) -> dict[str, Any]:
    """Return sizes by their names in transformers (keys of `table`). Raise if not positive, or too many layers."""
    found = {ours: integer(theirs, keys[theirs]) for ours, theirs in table.items() if theirs in keys}
    for ours, size in found.items():
        most = MOST_LAYERS if ours == "num_hidden_layers" else size
        if not 0 < size <= most:
            raise ArgumentValueError(table[ours], f"be positive, and n_layers at most {MOST_LAYERS}", size)
    return found


# --- Mistral ----------------------------------------------------------------------------------------------


def _mistral(keys: Keys) -> Translation:
    """Translate the params.json of Mistral, without its towers, as `translated` does."""
    if keys.get("model_type") == "mamba":
        for key in filter(_ROTARY.search, keys):
            raise ArgumentValueError(key, "not be given for model_type mamba, which has no rotary embedding")
        names = {"num_hidden_layers": "n_layers"}
        return {"model_type": "mamba2", **_sizes(keys, names)}, names, Model(rotary=False)
    names = {**params.SIZES_OF_MISTRAL}
    config = _sizes(keys, names)
    has_slice = any(key in keys for key in _SLICES)
    head = sum(_needed(config, key) for key in _SLICES) if has_slice else _needed(keys, "head_dim")
    if config.get("head_dim", head) != head:
        raise ArgumentValueError("head_dim", f"be qk_nope_head_dim + qk_rope_head_dim, {head}", config["head_dim"])
    window = _window(keys, config, names)
    parameters = _yarn(keys, names, has_slice=has_slice) | _temperature(keys, config, names)
    if "rope_theta" not in keys and (window or has_slice or "moe" not in keys):
        # With a window, mistral-inference assumed 10 000 until 0e5b458, and 1 000 000 since; converters drop the window
        # of Mistral-7B-v0.1. No model with experts had one. It does not read MLA.
        beside = f" with {window or _SLICES[0]}" if window or has_slice else ""
        wanted = f"be given{beside}: if it is missing, some readers assume 10000, others 1000000"
        hint = "it is 10000 for Mistral-7B-v0.1, 1000000 for its later versions; or read the config.json of the model"
        raise ArgumentValueError("rope_theta", wanted, NOTHING, hint)
    mixed = "full_attention" in config.get("layer_types", ())
    kinds = {"mistral4": has_slice, "ministral3": bool(parameters), "mixtral": "moe" in keys, "ministral": mixed}
    config["model_type"] = next((kind for kind, applies in kinds.items() if applies), "mistral")
    given = {"rope_theta": keys.get("rope_theta"), "rope_parameters": parameters or None}
    config |= {key: value for key, value in given.items() if value is not None}
    return config, names, Model("interleaved", base=1_000_000.0)


def _window(keys: Keys, config: dict[str, Any], names: dict[str, str]) -> str | None:
    """Add window and layer types to `config`, its key to `names`; return the key, or None. Raise if lengths differ."""
    given = [key for key in ("sliding_window", "_sliding_window") if key in keys]
    if not given:
        return None
    key, *others = given
    several = isinstance(keys[key], list)
    windows = keys[key] if several else [keys[key]]  # a list repeats over the layers, null is no window
    lengths = {integer(key, window) for window in windows if window is not None}
    if others or not windows or len(lengths) > 1 or min(lengths, default=1) < 1:
        wanted = "be one positive length, or a list of this length and null, and be given once"
        raise ArgumentValueError(key, wanted, keys[key])
    layers = _needed(keys, "n_layers") if several else keys.get("n_layers", 0)
    if layers % len(windows):
        raise ArgumentValueError("n_layers", f"be a multiple of the {len(windows)} entries of {key}", layers)
    types = ["full_attention" if window is None else "sliding_attention" for window in windows]
    config |= {"sliding_window": max(lengths, default=None)}
    config |= {"layer_types": types * (layers // len(windows))} if layers else {}
    names |= {"sliding_window": key, "layer_types": key}
    return key


def _yarn(keys: Keys, names: dict[str, str], *, has_slice: bool) -> dict[str, Any]:
    """
    Return ``rope_parameters`` of YaRN, {} if the file has none; add their keys in the file to `names`.

    With `has_slice` (MLA), YaRN scales the scores, not cos and sin. Raise without its factor or original length.
    """
    given = _object(keys, "yarn", (*params.YARN_OF_MISTRAL.values(), "apply_scale"))
    if "yarn" not in keys:
        return {}
    for key in ("factor", ORIGINAL):
        _needed(given, key, "yarn.")
    found = {ours: given[theirs] for ours, theirs in params.YARN_OF_MISTRAL.items() if theirs in given}
    # mistral-inference does not read YaRN: the meaning of apply_scale is from Mistral's changes to vLLM (its default is
    # true) and to llama.cpp (pull request 22612). If true, cos and sin are multiplied by m = 0.1 ln(factor) + 1, in MLA
    # the scores by m²; if false, neither. The converters of transformers don't read it: what they write equals false
    # for Ministral 3, and true for Mistral 4.
    if not flag("yarn.apply_scale", given.get("apply_scale", True)):
        found["attention_factor"] = 1.0
    elif has_slice:
        found |= {"mscale": 1.0, "mscale_all_dim": 1.0}
    theirs = dict.fromkeys(found, "apply_scale") | params.YARN_OF_MISTRAL
    names |= {f"rope_parameters.{ours}": f"yarn.{key}" for ours, key in theirs.items()}
    names |= {"rope_parameters": "yarn", "rope_parameters.rope_type": "yarn"}
    return {"rope_type": "yarn", **found}


def _temperature(keys: Keys, config: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return {"llama_4_scaling_beta": β} for queries, or {}; add its original length to `config`, keys to `names`."""
    given = _object(keys, "llama_4_scaling", (ORIGINAL, "beta"))
    if "llama_4_scaling" not in keys or given.get("beta") == 0:  # 0 in Devstral 2: no temperature
        return {}
    path = "llama_4_scaling."
    beta, original = (positive(f"{path}{key}", _needed(given, key, path)) for key in ("beta", ORIGINAL))
    trained = _object(keys, "yarn").get(ORIGINAL, original)
    if original != trained:  # transformers has one name for both
        raise ArgumentValueError(f"{path}{ORIGINAL}", f"equal that of yarn, {brief(trained)}", original)
    config[ORIGINAL] = given[ORIGINAL]
    names |= {ORIGINAL: f"{path}{ORIGINAL}", "rope_parameters.llama_4_scaling_beta": f"{path}beta"}
    return {"llama_4_scaling_beta": beta}


# --- DeepSeek ---------------------------------------------------------------------------------------------


def _deepseek(keys: Keys) -> Translation:
    """Translate a config of DeepSeek's own code (V2 to V3.2), with its defaults, as `translated` does."""
    values, names = {**params.DEFAULTS_OF_DEEPSEEK, **keys}, {**params.SIZES_OF_DEEPSEEK}
    config = _sizes(values, names) | {"rope_theta": values["rope_theta"]}
    names |= {f"rope_parameters.{ours}": theirs for ours, theirs in params.YARN_OF_DEEPSEEK.items()} | {
        "rope_theta": "rope_theta"
    }
    parameters: dict[str, Any] = {}
    if positive("max_seq_len", values["max_seq_len"]) > positive("original_seq_len", values["original_seq_len"]):
        # cos and sin are not multiplied; the scores are, by (0.1 mscale ln(factor) + 1)²
        parameters = {
            "rope_type": "yarn",
            "attention_factor": 1.0,
            **{ours: values[key] for ours, key in params.YARN_OF_DEEPSEEK.items()},
        }
    names |= dict.fromkeys(("rope_parameters", "rope_parameters.rope_type"), "max_seq_len")
    names |= {
        ours: f"default of DeepSeek's code: {key}"
        for ours, key in names.items()
        if key in params.DEFAULTS_OF_DEEPSEEK.keys() - keys
    }
    names["rope_parameters.attention_factor"] = "constant of DeepSeek's code"
    kind = "deepseek_v32" if "index_n_heads" in keys else "deepseek_v3"
    config |= {"model_type": kind, "rope_parameters": parameters} if parameters else {"model_type": kind}
    return config, names, MODELS[kind]


# --- Meta -------------------------------------------------------------------------------------------------


def _meta(keys: Keys, factor: float | None) -> Translation:
    """Translate Meta's params.json (Llama 1 to 4). Llama 3's scaling needs `factor`, the others refuse it."""
    if factor is not None:
        factor = positive("factor", factor)
    is_llama4 = bool(params.LLAMA4 & keys.keys())
    names = {**(params.SIZES_OF_LLAMA4 if is_llama4 else params.SIZES)}
    config = _sizes(keys, names)  # n_layers does not count layers of cross attention, which do not rotate
    hidden, heads = (_needed(config, ours, f"{names[ours]}, our ") for ours in ("hidden_size", "num_attention_heads"))
    if hidden % heads or config.get("head_dim", hidden // heads) != hidden // heads:  # Meta's code assumes this
        raise ArgumentValueError("head_dim", f"be dim / n_heads, {hidden} / {heads}", config.get("head_dim", NOTHING))
    base = params.BASES_OF_META[128_256] if "rope_theta" in keys else _base(keys, is_llama4=is_llama4)
    model = Model("interleaved", base=base)
    config |= {"rope_theta": keys["rope_theta"]} if "rope_theta" in keys else {}
    if flag("use_scaled_rope", keys.get("use_scaled_rope", False)):
        config["rope_parameters"] = _llama3(keys, names, factor, is_llama4=is_llama4)
    elif factor is not None or not keys.keys().isdisjoint(params.SCALING_OF_LLAMA4.values()):
        raise ArgumentValueError("factor and rope_scaling_factor", "not be given, since use_scaled_rope is not true")
    if not is_llama4:
        return {"model_type": "llama", **config}, names, model
    config["attn_temperature_tuning"] = flag("attn_temperature_tuning", keys.get("attn_temperature_tuning", False))
    config |= {key: positive(key, keys[key]) for key in ("floor_scale", "attn_scale") if key in keys}
    interval, layers = keys.get("nope_layer_interval"), range(1, _needed(keys, "n_layers") + 1)
    chunked = [(not interval or i % interval) and "attention_chunk_size" in keys for i in layers]
    config["layer_types"] = ["chunked_attention" if chunk else "full_attention" for chunk in chunked]
    names["layer_types"] = "attention_chunk_size"
    if interval:
        model = model._replace(has_rotary=MODELS["llama4_text"].has_rotary)
    return {"model_type": "llama4_text", **config}, names, model


def _base(keys: Keys, *, is_llama4: bool) -> float:
    """Return the base of a Meta file without rope_theta, by its vocab_size; raise if this is missing or ambiguous."""
    size = integer("vocab_size", _needed(keys, "vocab_size", "rope_theta or "))
    base = params.BASES_OF_META.get(size)
    if base is None or (base == params.BASES_OF_META[-1] and (is_llama4 or "use_scaled_rope" in keys)):
        wanted = "be given, since vocab_size does not determine the version of Llama"
        raise ArgumentValueError("rope_theta", wanted, Text(f"vocab_size {size}"))
    return base


def _llama3(keys: Keys, names: dict[str, str], factor: float | None, *, is_llama4: bool) -> dict[str, Any]:
    """Return rope type llama3's parameters, sources in `names`. Raise for Llama 3 without `factor`, Llama 4 with it."""
    in_file = {ours: keys[theirs] for ours, theirs in params.SCALING_OF_LLAMA4.items() if theirs in keys}
    found = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 8192, "factor": factor}
    if is_llama4 and factor is not None:
        wanted = f"not be given for Llama 4: the file has it as {params.SCALING_OF_LLAMA4['factor']}, or it is 16"
        raise ArgumentValueError("factor", wanted, factor)
    if is_llama4:
        found |= {"factor": 16.0, "high_freq_factor": 1.0, **in_file}
    elif in_file:
        wanted = "not be given without keys of Llama 4, since only Llama 4 reads it"
        raise ArgumentValueError(params.SCALING_OF_LLAMA4[min(in_file)], wanted, NOTHING, "use `factor`")
    elif factor is None:
        wanted = "be given, since use_scaled_rope is true and the file does not have it"
        raise ArgumentValueError("factor", wanted, NOTHING, "it is 8 for Llama 3.1, 32 for Llama 3.2 1B and 3B")
    names |= {
        f"rope_parameters.{key}": params.SCALING_OF_LLAMA4[key] if key in in_file else "constant of Meta's code"
        for key in found
    }
    names |= dict.fromkeys(("rope_parameters", "rope_parameters.rope_type"), "use_scaled_rope")
    names |= {} if is_llama4 else {"rope_parameters.factor": "argument factor"}
    return found
