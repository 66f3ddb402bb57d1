"""
Translate the files of programs other than transformers into its names: params.json and the like.

Read in the code of the formats' owners, which `tables.params_json` names. The weights of Mistral, Meta and DeepSeek
have pairing "interleaved"; in the copies that transformers loads, those of Mistral and Meta are permuted to "half".
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NoReturn, TypeAlias

from rope_any._checks import NOTHING, ArgumentValueError, Text, brief, flag, integer, integer_between, positive
from rope_any._pairing import Pairing
from rope_any.config._forms import File, Form, Keys, scaling_of_llama3, text_part, unknown_rotation, unread_names
from rope_any.config._load import MOST_LAYERS, Fact, Values, same, typed
from rope_any.config._part import Part
from rope_any.config._schemes import ORIGINAL, unknown_name
from rope_any.config.tables import params_json as params
from rope_any.config.tables.models import MODELS
from rope_any.config.tables.rows import UNKNOWN, Model

_OTHER_FORMS = {"hidden_size", "architectures", "transformers_version", "_class_name", "general.architecture"}
_WINDOWS = ("sliding_window", "_sliding_window")

_Text: TypeAlias = Callable[[File, float | None], Part]
"""Return the text of a file, by the factor of Llama 3's scaling if one is given; raise if a value is wrong."""


def _own_key(form: str, keys: Keys) -> str | None:
    """Return a key of a file that only `form` has; None if it has none, or is of none of these forms."""
    kind = keys.get("model_type")
    is_mamba = same(kind, "mamba") and form == params.MISTRAL
    is_other = not (kind is None or is_mamba or same(kind, "transformer"))
    if is_other or _OTHER_FORMS & keys.keys() or len(params.COMMON & keys.keys()) < 2:
        return None
    own = params.OWN[form] & keys.keys()
    if params.OWN[params.EXECUTORCH] & keys.keys() and form != params.EXECUTORCH:
        own -= params.BOTH
    return min(own, default="model_type" if is_mamba else None)


def _translate(form: str, text_of: _Text, keys: Keys, factor: float | None, _: Pairing | None) -> Part:
    """Return the text of a file; raise for an unknown name about rotary or windows, a wrong or missing value."""
    if factor is not None and form != params.META:
        raise ArgumentValueError("factor", f"not be given for {form}, which has its own", factor)
    file = File(keys)
    inner, known = _inner_parts(form, keys), params.COMMON | params.SHARED | params.OWN[form]
    known |= params.MORE.get(form, set())
    for name in unread_names(file, params.ABOUT_ROTATION, (known | params.PARTS.keys()) - {"multimodal"}, levels=8):
        raise unknown_name(name, name.rpartition(".")[2], known)
    text = text_of(file, factor)
    return text._replace(names={**text.names, "model_type": form}, inner=inner)


def _inner_parts(form: str, keys: Keys) -> dict[str, Part | ArgumentValueError]:
    """Return the parts of a file beside its text by name; raise if one is no object, or is there twice."""
    whole, paths, found = Part(keys, (), None, UNKNOWN, None), dict[str, str](), dict[str, Part | ArgumentValueError]()
    for path, name in params.PARTS.items():
        value = fact.value if (fact := whole.get(path)) else {}
        inner = File(typed(path, value, Mapping, "be an object"))
        if not inner:
            continue
        if (first := paths.setdefault(name, path)) != path:
            raise ArgumentValueError(path, f"not be given together with {first}")
        kind, needs = params.TOWERS.get((form, name), (None, ()))
        is_tower = kind is not None and all(key in inner for key in needs)
        tower = Part(value, tuple(path.split(".")), kind, UNKNOWN, None)
        found[name] = tower if is_tower else unknown_rotation(path, needs)
    return found


def _put_defaults(form: str, file: File) -> None:
    """Put the defaults of the code of a form into a file that lacks them."""
    for key, value in params.DEFAULTS[form].items():
        if key not in file:
            file.put(key, value, f"default of {form}: {key}")


def _values(form: str, file: File) -> Values:
    """Return the sizes and the base of a file; raise if a size is wrong."""
    found = file.renamed(params.SIZES[form], _size)
    found.take(file.renamed({"rope_theta": "rope_theta"}))
    return found


def _size(name: str, value: object) -> int:
    """Return a size as an int; raise if it is none, not positive, or too many layers."""
    size = integer(name, value)
    if not 0 < size <= (MOST_LAYERS if name == "n_layers" else size):
        raise ArgumentValueError(name, f"be positive, and n_layers at most {MOST_LAYERS}", size)
    return size


# --- Mistral ----------------------------------------------------------------------------------------------


def _mistral(file: File, _: float | None) -> Part:
    """Return the text of Mistral's params.json, without its towers."""
    if file.get("model_type") == "mamba":
        for key in filter(params.ABOUT_ROTATION.search, file):
            raise ArgumentValueError(key, "not be given for model_type mamba, which has no rotary embedding")
        found = file.renamed({"num_hidden_layers": "n_layers"}, _size)
        found["model_type"] = "mamba2"
        return text_part(found, Model(rotary=False))
    found = _values(params.MISTRAL, file)
    has_slice = bool(params.SLICES.keys() & file.keys())
    head = sum(map(file.needed, params.SLICES)) if has_slice else file.needed("head_dim")
    if found.get("head_dim", head) != head:
        raise ArgumentValueError("head_dim", f"be qk_nope_head_dim + qk_rope_head_dim, {head}", found["head_dim"])
    _put_windows(found, file)
    scaling = _yarn_of_mistral(file, has_slice=has_slice)
    _put_temperature(found, scaling, file)
    beside = next((f" with {key}" for key in (*_WINDOWS, *params.SLICES) if key in file), "")
    if "rope_theta" not in file and (beside or "moe" not in file):
        # With a window, mistral-inference assumed 10 000 until 0e5b458, and 1 000 000 since; converters drop the window
        # of Mistral-7B-v0.1. No model with experts had one. It does not read MLA.
        wanted = f"be given{beside}: if it is missing, some readers assume 10000, others 1000000"
        hint = "it is 10000 for Mistral-7B-v0.1, 1000000 for its later versions; or read the config.json of the model"
        raise ArgumentValueError("rope_theta", wanted, NOTHING, hint)
    mixed = "full_attention" in found.get("layer_types", ())
    kinds = {"mistral4": has_slice, "ministral3": bool(scaling), "mixtral": "moe" in file, "ministral": mixed}
    found["model_type"] = kind = next((kind for kind, applies in kinds.items() if applies), "mistral")
    if scaling:
        found.put_object("rope_parameters", scaling, "yarn")
    return text_part(found, Model("interleaved", base=1_000_000.0, score=MODELS[kind].score))


def _put_windows(found: Values, file: File) -> None:
    """Set the window and the types of layers, if a file has a window; raise if it has several lengths."""
    given = [key for key in _WINDOWS if key in file]
    if not given:
        return
    key, *others = given
    several = isinstance(file[key], list)
    windows = file[key] if several else [file[key]]  # a list repeats over the layers, null is no window
    lengths = {integer(key, window) for window in windows if window is not None}
    if others or not windows or len(lengths) > 1 or min(lengths, default=1) < 1:
        wanted = "be one positive length, or a list of this length and null, and be given once"
        raise ArgumentValueError(key, wanted, file[key])
    layers = file.needed("n_layers") if several else file.get("n_layers", 0)
    if layers % len(windows):
        raise ArgumentValueError("n_layers", f"be a multiple of the {len(windows)} entries of {key}", layers)
    types = ["full_attention" if window is None else "sliding_attention" for window in windows]
    found.put("sliding_window", max(lengths, default=None), key)
    found.sources["layer_types"] = key
    if layers:
        found["layer_types"] = types * (layers // len(windows))


def _yarn_of_mistral(file: File, *, has_slice: bool) -> Values:
    """
    Return the parameters of YaRN, none if the file has none; raise without its factor or original length.

    With `has_slice` (MLA), YaRN scales the scores, not cos and sin.
    """
    given = file.inner("yarn", (*params.YARN_OF_MISTRAL.values(), "apply_scale"))
    if "yarn" not in file:
        return Values()
    for key in ("factor", ORIGINAL):
        given.needed(key)
    found = given.renamed(params.YARN_OF_MISTRAL)
    found.put("rope_type", "yarn", "yarn")
    # mistral-inference does not read YaRN: the meaning of apply_scale is from Mistral's changes to vLLM (its default is
    # true) and to llama.cpp (pull request 22612). If true, cos and sin are multiplied by m = 0.1 ln(factor) + 1, in MLA
    # the scores by m²; if false, neither. The converters of transformers don't read it: what they write equals false
    # for Ministral 3, and true for Mistral 4.
    name = given.name("apply_scale")
    if not flag(name, given.get("apply_scale", True)):
        found.put("attention_factor", 1.0, name)
    elif has_slice:
        found.put("mscale", 1.0, name)
        found.put("mscale_all_dim", 1.0, name)
    return found


def _put_temperature(found: Values, scaling: Values, file: File) -> None:
    """Add the temperature of queries to `scaling`, and its original length to `found`; raise if YaRN has another."""
    given = file.inner("llama_4_scaling", (ORIGINAL, "beta"))
    if "llama_4_scaling" not in file or given.get("beta") == 0:  # 0 in Devstral 2: no temperature
        return
    beta, original = (given.needed(key, positive) for key in ("beta", ORIGINAL))
    trained = file.inner("yarn").get(ORIGINAL, original)
    if original != trained:  # transformers has one name for both
        raise ArgumentValueError(given.name(ORIGINAL), f"equal that of yarn, {brief(trained)}", original)
    found.put(ORIGINAL, *given.fact(ORIGINAL))
    scaling.put("llama_4_scaling_beta", beta, given.name("beta"))


# --- DeepSeek ---------------------------------------------------------------------------------------------


def _deepseek(file: File, _: float | None) -> Part:
    """Return the text of a config of DeepSeek's own code (V2 to V4), with its defaults."""
    if "compress_ratios" in file:
        return _deepseek_v4(file)
    _put_defaults(params.DEEPSEEK, file)
    found = _values(params.DEEPSEEK, file)
    if positive("max_seq_len", file["max_seq_len"]) > positive("original_seq_len", file["original_seq_len"]):
        scaling = file.renamed(params.YARN_OF_DEEPSEEK)
        scaling.put("rope_type", "yarn", file.sources["max_seq_len"])
        # cos and sin are not multiplied; the scores are, by (0.1 mscale ln(factor) + 1)²
        scaling.put("attention_factor", 1.0, "constant of DeepSeek's code")
        found.put_object("rope_parameters", scaling, file.sources["max_seq_len"])
    found["model_type"] = kind = "deepseek_v32" if "index_n_heads" in file else "deepseek_v3"
    return text_part(found, MODELS[kind])


def _deepseek_v4(file: File) -> Part:
    """Return the text of a config of V4's code; raise if it lacks a key that decides the rotation."""
    for key in ("head_dim", "original_seq_len", *params.OF_DEEPSEEK_V4.values()):
        file.needed(key)
    found = _values(params.DEEPSEEK, file)
    found.take(file.renamed(params.OF_DEEPSEEK_V4))
    if file.needed("original_seq_len", integer):
        scaling = file.renamed(params.YARN_OF_DEEPSEEK, positive)
        scaling.put("rope_type", "yarn", "original_seq_len")
        found.put_object("rope_scaling", scaling, "original_seq_len")
    found["model_type"] = "deepseek_v4"
    return text_part(found, MODELS["deepseek_v4"])


# --- Meta -------------------------------------------------------------------------------------------------


def _meta(file: File, factor: float | None) -> Part:
    """Return the text of Meta's params.json (Llama 1 to 4); `factor` is that of Llama 3's scaling."""
    factor = None if factor is None else positive("factor", factor)
    is_llama4 = bool(params.LLAMA4 & file.keys())
    found = _values(params.META, file)
    hidden, heads = (file.needed(key, integer) for key in ("dim", "n_heads"))
    if hidden % heads or found.get("head_dim", hidden // heads) != hidden // heads:  # Meta's code assumes this
        raise ArgumentValueError("head_dim", f"be dim / n_heads, {hidden} / {heads}", found.get("head_dim", NOTHING))
    found["model_type"] = kind = "llama4_text" if is_llama4 else "llama"
    model = Model("interleaved", score=MODELS[kind].score)
    if "rope_theta" not in file:
        model = model._replace(base=_base(file, is_llama4=is_llama4))
    if flag("use_scaled_rope", file.get("use_scaled_rope", False)):
        found.put_object("rope_parameters", _llama3(file, factor, is_llama4=is_llama4), "use_scaled_rope")
    elif factor is not None or not file.keys().isdisjoint(params.SCALING_OF_LLAMA4.values()):
        raise ArgumentValueError("factor and rope_scaling_factor", "not be given, since use_scaled_rope is not true")
    if not is_llama4:
        return text_part(found, model)
    found["attn_temperature_tuning"] = flag("attn_temperature_tuning", file.get("attn_temperature_tuning", False))
    found.take(file.renamed(params.TEMPERATURE_OF_LLAMA4, positive))
    interval, layers = file.get("nope_layer_interval"), range(1, file.needed("n_layers") + 1)
    chunked = [(not interval or i % interval) and "attention_chunk_size" in file for i in layers]
    types = ["chunked_attention" if chunk else "full_attention" for chunk in chunked]
    found.put("layer_types", types, "attention_chunk_size")
    return text_part(found, model._replace(has_rotary=MODELS[kind].has_rotary) if interval else model)


def _base(file: File, *, is_llama4: bool) -> float:
    """Return the base of a Meta file without rope_theta, by its vocab_size; raise if this is missing or ambiguous."""
    if "vocab_size" not in file:
        raise ArgumentValueError("rope_theta or vocab_size", "be given")
    size = integer("vocab_size", file["vocab_size"])
    base = params.BASES_OF_META.get(size)
    if base is None or (base == params.BASES_OF_META[-1] and (is_llama4 or "use_scaled_rope" in file)):
        wanted = "be given, since vocab_size does not determine the version of Llama"
        raise ArgumentValueError("rope_theta", wanted, Text(f"vocab_size {size}"))
    return base


def _llama3(file: File, factor: float | None, *, is_llama4: bool) -> Values:
    """Return the parameters of Llama 3's scaling. Raise for Llama 3 without `factor`, and for Llama 4 with it."""
    given = file.renamed(params.SCALING_OF_LLAMA4).facts()
    if is_llama4 and factor is not None:
        wanted = f"not be given for Llama 4: the file has it as {params.SCALING_OF_LLAMA4['factor']}, or it is 16"
        raise ArgumentValueError("factor", wanted, factor)
    if given and not is_llama4:
        wanted = "not be given without keys of Llama 4, since only Llama 4 reads it"
        raise ArgumentValueError(next(iter(given.values())).source, wanted, NOTHING, "use `factor`")
    if factor is None and not is_llama4:
        wanted = "be given, since use_scaled_rope is true and the file does not have it"
        raise ArgumentValueError("factor", wanted, NOTHING, "it is 8 for Llama 3.1, 32 for Llama 3.2 1B and 3B")
    found = scaling_of_llama3("constant of Meta's code", **(params.CONSTANTS_OF_LLAMA4 if is_llama4 else {}))
    found.put("rope_type", "llama3", "use_scaled_rope")
    found.take(Values(given if is_llama4 else {"factor": Fact(factor, "argument factor")}))
    return found


# --- ExecuTorch -------------------------------------------------------------------------------------------


def _executorch(file: File, _: float | None) -> Part:
    """Return the text of ExecuTorch's params.json; raise for a scaling that its code does not read."""
    found = _values(params.EXECUTORCH, file)
    found["model_type"] = "llama"
    is_hf, is_scaled = (flag(key, file.get(key, False)) for key in ("use_hf_rope", "use_scaled_rope"))
    if is_hf and is_scaled:
        raise ArgumentValueError("use_scaled_rope", "not be true with use_hf_rope, where nothing reads it", is_scaled)
    model = Model("half" if is_hf or params.QUALCOMM & file.keys() else "interleaved", partial=1.0)
    scaling = Values()
    if is_hf:
        found.take(file.renamed({"partial_rotary_factor": "partial_rotary_factor"}))
        scaling = file.renamed(params.LONGROPE_OF_EXECUTORCH)
    if scaling:
        scaling.put("rope_type", "longrope", scaling.sources["long_factor"])
    elif is_scaled:
        scaling = scaling_of_llama3("constant of ExecuTorch's code", factor=8.0)
        scaling.take(file.renamed({"factor": "rope_scale_factor", "high_freq_factor": "high_freq_factor"}))
    if scaling:
        found.put_object("rope_parameters", scaling, "use_scaled_rope")
    if (types := file.get("layer_types")) is not None:
        types = typed("layer_types", types, list, "be a list")[: file.get("n_layers")]
        found.put("layer_types", ["mlp" if kind == "skip_attention" else kind for kind in types], "layer_types")
    if "no_rope_layer_interval" in file:
        model = model._replace(has_rotary=MODELS["smollm3"].has_rotary)
    if "attention_multiplier" in file:
        found.put("attention_multiplier", *file.fact("attention_multiplier"))
        model = model._replace(score=MODELS["granite"].score)
    if file.get("local_rope_theta", file.get("rope_theta")) != file.get("rope_theta"):
        found.put("rope_local_base_freq", *file.fact("local_rope_theta"))
        model = model._replace(layers=MODELS["gemma3_text"].layers)
    return text_part(found, model)


# --- gpt-oss ----------------------------------------------------------------------------------------------


def _key_of_gpt_oss(keys: Keys) -> str | None:
    """Return a key that only the original config.json of gpt-oss has; None for another file."""
    return None if "model_type" in keys else min(params.OWN[params.GPT_OSS] & keys.keys(), default=None)


def _gpt_oss(file: File, _: float | None) -> Part:
    """Return the text of the original config.json of gpt-oss, with the defaults of its code."""
    _put_defaults(params.GPT_OSS, file)
    found = _values(params.GPT_OSS, file)
    found["model_type"] = "gpt_oss"
    scaling = Values({"rope_type": Fact("default", "rope_scaling_factor")})
    if file.needed("rope_scaling_factor", positive) > 1:
        scaling = file.renamed(params.YARN_OF_GPT_OSS, positive)
        scaling.put("rope_type", "yarn", "rope_scaling_factor")
        scaling.take(Values({"truncate": Fact(value=False, source="constant of gpt-oss' code")}))
    found.put_object("rope_parameters", scaling, "rope_scaling_factor")
    count = integer_between("num_hidden_layers", file["num_hidden_layers"], 1, MOST_LAYERS)
    kinds = ("sliding_attention", "full_attention") * count
    found.put("layer_types", list(kinds[:count]), "in turn, in gpt-oss' code")
    return text_part(found, MODELS["gpt_oss"])


# --- Moshi ------------------------------------------------------------------------------------------------


def _key_of_moshi(keys: Keys) -> str | None:
    """Return a key that only a config of Moshi's own code has; None for another file."""
    return "depformer_dim" if {"depformer_dim", "positional_embedding", "num_heads"} <= keys.keys() else None


def _moshi(keys: Keys, factor: float | None, _: Pairing | None) -> Part:
    """Return the text of a config of Moshi's own code, whose depth transformer has no rotary; raise for other kinds."""
    if factor is not None:
        raise ArgumentValueError("factor", f"not be given for {params.MOSHI}, which has no scaling", factor)
    file = File({key: value for key, value in keys.items() if key != "model_type"})
    if (kind := file.needed("positional_embedding")) not in ("rope", "none"):
        raise ArgumentValueError("positional_embedding", 'be "rope" or "none"', kind)
    found = file.renamed(params.OF_MOSHI, _size)
    found.put("rope_theta", file.get("max_period", 10_000.0), file.sources.get("max_period", "default of Moshi's code"))
    found["model_type"] = "moshi"
    return text_part(found, Model("interleaved", rotary=kind == "rope"))


# --- ONNX -------------------------------------------------------------------------------------------------


def _key_of_onnx(keys: Keys) -> str | None:
    """Return the key that shows that a file is a genai_config.json of ONNX Runtime, None if it is none."""
    model = keys.get("model")
    decoder = model.get("decoder") if isinstance(model, Mapping) else None
    is_onnx = isinstance(decoder, Mapping) and {"filename", "session_options", "inputs"} & decoder.keys()
    return "model" if is_onnx else None


def _refuse_onnx(*_: object) -> NoReturn:
    """Raise, since a genai_config.json does not say how its model rotates."""
    hint = "it has no values of rotary embedding: the ONNX graph has the table (cos_cache, sin_cache)"
    raise ArgumentValueError("config", "be the config.json of the model", Text("its genai_config.json"), hint)


def _form(name: str, text_of: _Text) -> Form:
    """Return the form of the files with keys of this name, and with this function to translate them."""
    return Form(name, partial(_own_key, name), partial(_translate, name, text_of))


FORMS = (
    Form(params.ONNX, _key_of_onnx, _refuse_onnx),
    _form(params.MISTRAL, _mistral),
    _form(params.META, _meta),
    _form(params.DEEPSEEK, _deepseek),
    _form(params.EXECUTORCH, _executorch),
    Form(params.GPT_OSS, _key_of_gpt_oss, partial(_translate, params.GPT_OSS, _gpt_oss)),
    Form(params.MOSHI, _key_of_moshi, _moshi),
)
"""The forms of this module."""
