"""
Translate the metadata of a GGUF file into names of transformers.

`tables.gguf` has the names and the facts about architectures. GGUF files store the factors of LongRoPE and of Llama 3
as tensors, which `_gguf_file` reads from the file itself. Metadata alone does not include them: then a model with
LongRoPE is refused, and so are one of Llama 3.1 or later and one of an architecture whose models have that scaling,
unless its factor is given.
"""

from functools import partial
from math import isclose, nextafter
from numbers import Integral
from typing import Any

from rope_any._checks import NOTHING, ArgumentValueError, integer, positive, real
from rope_any._frequencies import frequencies
from rope_any.config._forms import File, Form, Keys, scaling_of_llama3, text_part, unknown_rotation, unread_names
from rope_any.config._gguf_file import TENSORS
from rope_any.config._load import Fact, Values, typed
from rope_any.config._part import Part
from rope_any.config._schemes import ORIGINAL, unknown_name
from rope_any.config.tables.gguf import ABOUT_ROTATION, ARCHITECTURES, KEYS, OF_OTHERS, READ_BY_FEW, SCALING
from rope_any.config.tables.models import MODELS
from rope_any.config.tables.rows import Architecture, Model, Score
from rope_any.config.tables.rules import KNOWN_SCALE, Heads
from rope_any.scaling import llama3, yarn_attention_factor

_ARCHITECTURE = "general.architecture"
_BASE, _SLIDING_BASE, _COUNT = "rope.freq_base", "rope.freq_base_swa", "rope.dimension_count"
_SLIDING_COUNT, _SLIDING_HEAD = "rope.dimension_count_swa", "attention.key_length_swa"
_SECTIONS, _PATTERN, _INDEXER = "rope.dimension_sections", "attention.sliding_window_pattern", "attention.indexer."
_HEADS, _KV_HEADS, _RECURRENT = "attention.head_count", "attention.head_count_kv", "attention.recurrent_layers"
_WINDOW, _LENGTH, _LAYERS, _AHEAD = "attention.sliding_window", "context_length", "block_count", "nextn_predict_layers"
_LINEAR = "rope.scale_linear"  # the key of the factor in older files
_LISTS, _NUMBERS = (_SECTIONS, _PATTERN, _RECURRENT), {*SCALING.values(), _LINEAR} - {SCALING["rope_type"], _SECTIONS}
_STILL = 1e29  # divisors of pairs that don't rotate are 1e30
_LLAMA3_TOKENS = range(128_256, 128_512)  # the vocabulary of Llama 3, with some tokens added
_READ_CONFIG = "read the config.json of the model, whose weights may have another pairing"


class _Metadata(File):
    """The values of the keys of an architecture, by these keys without its name."""

    def __init__(self, keys: Keys) -> None:
        """Take the metadata of a file; raise if its architecture is not known, or it has keys of another form."""
        self.whole, self.architecture = keys, _architecture(keys)
        self.row: Architecture = ARCHITECTURES[self.architecture]
        self.tensors = {name: keys[name] for name in TENSORS if name in keys and isinstance(keys[name], list | None)}
        """The tensors of the rotation by name, None if the file has none of a name; empty if that is not known."""
        path = f"{self.architecture}."
        super().__init__({key.removeprefix(path): keys[key] for key in keys if key.startswith(path)}, path)
        for key in keys:
            if OF_OTHERS.search(key) and not key.startswith(path) and key not in self.tensors:
                wanted = f"not be given in GGUF metadata of architecture {self.architecture}"
                raise ArgumentValueError(key, wanted, keys[key], _unpack_hint(self) if key.endswith(".weight") else "")


def _translate(keys: Keys, factor: float | None) -> Part:
    """Return the text of a file; `factor` is required if its model may have Llama 3's scaling, 1 for none."""
    file = _Metadata(keys)
    if factor is not None and not file.row.llama3:
        wanted = f"be left out: no model of architecture {file.architecture} has Llama 3's scaling"
        raise ArgumentValueError("factor", wanted, factor)
    _require_values(file)
    model = _model(file)
    found = file.renamed(_names(file, model))
    found.put("model_type", file.architecture, _ARCHITECTURE)
    _put_heads_and_layers(found, file)
    if model.optional_rotary:
        found["rope_theta"] = None
    else:
        _require_known_keys(file)
        if kinds := _layer_types(file):
            found.put("layer_types", *kinds)
        scaling = _scaling(file)
        scaling.take(_by_divisors(file, factor, is_scaled="rope_type" in scaling))
        if file.row.kinds:
            _put_kinds(found, file, scaling)
        else:
            found.put_object("rope_scaling", scaling, "rope_scaling")
    inner = {"indexer": unknown_rotation(file.name(f"{_INDEXER}*"))}
    return text_part(found, model)._replace(inner=inner if any(key.startswith(_INDEXER) for key in file) else {})


def _architecture(keys: Keys) -> str:
    """Return the architecture of a file; raise if it is no string or of unknown pairing."""
    arch: str = typed(_ARCHITECTURE, keys[_ARCHITECTURE], str, "be a name")
    row, hint = ARCHITECTURES.get(arch), _READ_CONFIG
    if row is not None and not row.projectors:
        return arch
    if row is not None:
        bases = row.projectors
        names = (f"{arch}.projector_type", f"{arch}.vision.projector_type")
        kind = next((keys[key] for key in names if key in keys), None)
        fixed = f" ({bases[kind]} for {kind})" if isinstance(kind, str) and kind in bases else ""
        why = f"its file has no key for the axes, nor for the base, which llama.cpp sets by the projector type{fixed}"
        hint = f"{arch} is a vision or audio tower, and {why}: read its config.json"
    raise ArgumentValueError(_ARCHITECTURE, "be one whose pairing is known", arch, hint)


def _require_values(file: File) -> None:
    """Raise if the count is odd, sections or kinds of layers are no list, or a scaling value is no number."""
    if isinstance(count := file.get(_COUNT), Integral) and int(count) % 2:
        raise ArgumentValueError(file.name(_COUNT), "be even", count)
    for key, value in file.items():
        if key in _LISTS and not (key == _PATTERN and _period(file) > 0):
            typed(file.name(key), value, list, "be a list")
        if key in _NUMBERS:
            real(file.name(key), value)


def _require_known_keys(file: _Metadata) -> None:
    """Raise if a key about the rotation or the kinds of layers is unknown, or known only for other architectures."""
    known = {*KEYS.values(), *SCALING.values(), _COUNT, _BASE, _SLIDING_BASE, _LINEAR} - READ_BY_FEW
    reads = {key for key in file if {key, key.split(".")[0]} & {*file.row.reads}}
    for name in unread_names(file, ABOUT_ROTATION, known | reads, levels=0):
        if {name, name.split(".")[0]} & READ_BY_FEW:
            wanted = f"not be given for architecture {file.architecture}, where its meaning is not known"
            raise ArgumentValueError(file.name(name), wanted, file[name], _READ_CONFIG)
        raise unknown_name(file.name(name), name, known)
    if file.row.needs_window and file.get(_WINDOW) == 0:
        raise ArgumentValueError(file.name(_WINDOW), "not be 0", 0, _READ_CONFIG)


# --- the model and its layers -----------------------------------------------------------------------------


def _period(file: File) -> int:
    """Return the pattern of sliding layers if it is a number n, of which each n-th layer has full attention, else 0."""
    period = file.get(_PATTERN)
    return int(period) if isinstance(period, Integral) and not isinstance(period, bool) else 0


def _model(file: _Metadata) -> Model:
    """Return an architecture's facts, with layer rules of a model type like it; sections make axes chunked for some."""
    row, model = file.row, file.row.model
    first, kin = file.get(_SECTIONS, [])[:2], MODELS.get((file.get(_WINDOW) and row.windowed_like) or row.like)
    if row.multimodal and first and all(first):
        model = Model("half", axes="chunked")
    elif kin:
        model = model._replace(layers=kin.layers, has_rotary=kin.has_rotary, pattern=kin.pattern)
    if model.pattern and _period(file):
        given: dict[str, Any] = {"n": _period(file), "key": ""}
        model = model._replace(pattern=partial(model.pattern, **given))
    keys = {"sliding_attention.head_dim": "sliding_head_dim"} if row.kinds else {"rotary_dim": "rotary_dim"}
    if row.kinds:
        model = model._replace(partial=1.0)  # so that the share is read
    return model._replace(keys=keys, parameters=("alpha",), score=Score(_score_scale))


def _score_scale(heads: Heads) -> Fact:
    """Return the factor of q·k that a file gives; raise if it gives none."""
    if scale := heads.part.get("attention_multiplier"):
        return Fact(positive(scale.source, scale.value), scale.source)
    hint = "GGUF metadata does not give the score scale: read the config.json of the model"
    raise ArgumentValueError(_ARCHITECTURE, KNOWN_SCALE, NOTHING, hint)


def _names(file: _Metadata, model: Model) -> dict[str, str]:
    """Return the keys of a file by names of transformers; raise if it has two bases, but its model only one."""
    bases = {kind: layer.key for kind, layer in model.layers.items()}
    full, sliding = (bases.get(kind, "rope_theta") for kind in ("full_attention", "sliding_attention"))
    differs = _SLIDING_BASE in file and file[_SLIDING_BASE] != file.get(_BASE)
    if differs and full == sliding and not file.row.kinds:
        wanted = f"equal {_BASE}: {file.architecture} has one base"
        raise ArgumentValueError(file.name(_SLIDING_BASE), wanted, file[_SLIDING_BASE])
    has_slice = file.row.mla or {"attention.kv_lora_rank", "attention.key_length_mla"} & file.keys()
    count = "qk_rope_head_dim" if has_slice else "rotary_dim"  # MLA: the rotary features are a separate slice
    return {**KEYS, sliding: _SLIDING_BASE, full: _BASE, count: _COUNT}


def _put_heads_and_layers(found: Values, file: File) -> None:
    """Set the numbers of heads, of layers with attention if layers differ, and the number of layers."""
    for ours, key in (("num_attention_heads", _HEADS), ("num_key_value_heads", _KV_HEADS)):
        if isinstance(heads := file.get(key), list) and heads:
            found[ours] = next(filter(None, heads), 0)
    if _AHEAD in file and _LAYERS in file:  # it counts layers that predict further tokens too
        layers, ahead = (file.needed(key, integer) for key in (_LAYERS, _AHEAD))
        found["num_hidden_layers"], found["num_nextn_predict_layers"] = layers - ahead, ahead


def _layer_types(file: _Metadata) -> Fact | None:
    """Return each layer's type if lists of the file give it, else None; raise for a wrong or missing list."""
    for key, kind in ((_PATTERN, "sliding_attention"), (_RECURRENT, "linear_attention")):
        if isinstance(flags := file.get(key), list):
            return Fact([kind if flag else "full_attention" for flag in flags], file.name(key))
    heads, name, without = file.get(_KV_HEADS), file.name(_KV_HEADS), file.row.without_heads
    if without and isinstance(heads, list):
        return Fact(["full_attention" if count else without for count in heads], name)
    if without and file.get(KEYS["rope_finetuned"]) is not False:
        raise ArgumentValueError(name, "be a list, with 0 for each layer without attention", heads)
    if isinstance(heads, list) and 0 in heads:
        wanted = f"have no 0 for architecture {file.architecture}, where its meaning is not known"
        raise ArgumentValueError(name, wanted, heads, _READ_CONFIG)
    return None


def _put_kinds(found: Values, file: _Metadata, scaling: Values) -> None:
    """
    Set the parameters of full and of sliding layers by kind of layer; `scaling` is that of full layers alone.

    Raise if a file does not say which layers slide.
    """
    if "layer_types" not in found and file.row.model.pattern is None:
        raise ArgumentValueError(file.name(_PATTERN), "be given as a list", file.get(_PATTERN, NOTHING))
    row, count, head = file.row, file.needed(_COUNT, integer), file.needed(KEYS["head_dim"], integer)
    for name in ("rotary_dim", "rope_theta"):  # those of each kind of layers take their place
        found.pop(name, None)
    found.put("sliding_head_dim", file.get(_SLIDING_HEAD, head), file.name(_SLIDING_HEAD))
    sliding = Values({"rope_type": Fact("default", "sliding layers have no scaling")})
    base = file.get(_SLIDING_BASE, row.sliding_base or file.get(_BASE, 10_000.0))
    sliding.put("rope_theta", base, file.name(_SLIDING_BASE))
    name = _SLIDING_COUNT if _SLIDING_COUNT in file else _COUNT
    sliding.put("partial_rotary_factor", _share(file.needed(name, integer), found["sliding_head_dim"]), file.name(name))
    full = Values({"rope_type": Fact("default", "no scaling is given")})
    full.take(scaling)
    full.put("rope_theta", file.get(_BASE, 10_000.0), file.name(_BASE))
    if full["rope_type"] != "proportional":
        full.put("partial_rotary_factor", _share(int(count * row.full_share), head), file.name(_COUNT))
    parameters = {"full_attention": full, "sliding_attention": sliding}
    found.put("rope_parameters", parameters, file.name(_BASE))
    for kind, values in parameters.items():
        found.sources |= {f"rope_parameters.{kind}.{key}": source for key, source in values.sources.items()}


def _share(count: int, head: int) -> float:
    """Return the share of a head of which ``int(head * share)`` is a number of features."""
    return count / head if int(head * (count / head)) == count else nextafter(count / head, 1)


# --- scaling ----------------------------------------------------------------------------------------------


def _scaling(file: _Metadata) -> Values:
    """Return the parameters of ``rope_scaling``, none if there is no scaling. Raise if tensors hold it."""
    found, given = Values(), file.renamed(SCALING)
    found.sources = given.sources
    kind = typed(file.name(SCALING["rope_type"]), given.get("rope_type", "linear"), str, "be a name")
    attention_factor = positive(file.name(SCALING["attention_factor"]), given.get("attention_factor", 1.0))
    length, original, is_yarn = file.get(_LENGTH), given.get(ORIGINAL, file.row.original), kind == "yarn"
    extended = not is_yarn and isinstance(length, Integral) and 0 < original < int(length)
    lists = [name for name in TENSORS[1:] if file.tensors.get(name)]
    is_scaled = is_yarn or given.get("factor", 1) not in (0, 1)
    if lists and (len(lists) == 1 or is_scaled or not (original or length)):
        wanted = f"be beside {TENSORS[1]}, {TENSORS[2]} and a context length, and no other scaling"
        raise ArgumentValueError(lists[0], wanted, NOTHING, _READ_CONFIG)
    if lists:
        return _longrope(file, attention_factor, original or length)
    unknown = (kind == "longrope" or extended or file.row.factors) and TENSORS[1] not in file.tensors
    if unknown or (not is_yarn and attention_factor != 1):
        lengths = f"up to {original} tokens" if original else "up to the trained length"
        why = f"rope_factors_short.weight {lengths}, rope_factors_long.weight beyond"
        wanted = f"have its scaling in the metadata, not in tensors ({why})"
        raise ArgumentValueError(file.architecture, wanted, NOTHING, _unpack_hint(file))
    given["factor"] = given.get("factor", file.get(_LINEAR)) or 1.0  # 0 means none, as in llama.cpp
    if kind not in ("none", "linear", "yarn"):
        found["rope_type"] = kind  # `_recipe` refuses an unknown type
    elif given.get("alpha"):
        found |= {"rope_type": "dynamic", "alpha": given["alpha"]}
    elif kind == "linear" and given["factor"] != 1:
        found |= {"rope_type": "linear", "factor": given["factor"]}
    elif is_yarn:
        given[ORIGINAL] = given.get(ORIGINAL) or length
        found |= _yarn(file.row, given, attention_factor)
    if any(sections := given.get("mrope_section", [])):
        last = max(i for i, count in enumerate(sections) if count)
        found["mrope_section"] = sections[: last + 1]
    return found


def _longrope(file: _Metadata, attention_factor: float, original: float | None) -> Values:
    """Return LongRoPE's parameters by the tensors of a file."""
    found = Values()
    for kind in ("short", "long"):
        found.put(f"{kind}_factor", file.tensors[name := f"rope_factors_{kind}.weight"], name)
    found.put("rope_type", "longrope", name)
    found.put("attention_factor", attention_factor, file.name(SCALING["attention_factor"]))
    found.put(ORIGINAL, original, file.name(SCALING[ORIGINAL]))
    return found


def _yarn(row: Architecture, given: Values, attention_factor: float) -> dict[str, Any]:
    """Return transformers' YaRN parameters from the file's values, `given`; `attention_factor` 1 means none."""
    # in llama.cpp, only mistral3 reads the betas; the converter writes those of the model for all architectures
    read = ("beta_fast", "beta_slow", "factor", ORIGINAL)
    found: dict[str, Any] = {"rope_type": "yarn", **{key: given[key] for key in read if key in given}}
    if not row.truncate:
        found["truncate"] = False
    mscale: dict[str, float] = {}
    if given.get("mscale_all_dim"):
        c = given.check("mscale_all_dim", positive) * row.multiplier
        mscale = {"mscale": c if row.mla else 1.0, "mscale_all_dim": c}
    derived = yarn_attention_factor(given.check("factor", positive), **mscale)
    unread_factor = given.get("config_attention_factor", derived)  # of the config.json: llama.cpp derives it
    if not isclose(unread_factor, derived, rel_tol=1e-6):
        wanted = f"equal what llama.cpp derives from the factor, {derived}"
        raise ArgumentValueError(given.sources["config_attention_factor"], wanted, unread_factor, _READ_CONFIG)
    # llama.cpp multiplies cos and sin by both
    return found | (mscale if attention_factor == 1 else {"attention_factor": attention_factor * derived})


def _by_divisors(file: _Metadata, factor: float | None, *, is_scaled: bool) -> Values:
    """Return the scaling of the tensor with one divisor for each pair, if known, or as `_llama3` does."""
    name = TENSORS[0]
    if file.row.needs_divisors and not file.tensors.get(name):
        wanted = f"be that of a file with the tensor {name}, by which its full layers rotate"
        hint = f"give the path of the file, or {_READ_CONFIG}"
        raise ArgumentValueError(_ARCHITECTURE, wanted, file.architecture, hint)
    if name not in file.tensors:
        return _llama3(file, factor, is_scaled=is_scaled)
    if factor is not None:
        wanted = f"be left out: the file says it, by its tensor {name} or by having none"
        raise ArgumentValueError("factor", wanted, factor)
    if (divisors := file.tensors[name]) is None:
        return Values()
    divisors = _checked_divisors(file, divisors)
    still = sum(d >= _STILL for d in divisors)
    if still and all(d == 1 for d in divisors[:-still]) and all(d >= _STILL for d in divisors[-still:]):
        share = 1 - still / len(divisors)
        return Values({"rope_type": Fact("proportional", name), "partial_rotary_factor": Fact(share, name)})
    if is_scaled:
        raise ArgumentValueError(name, f"not be given beside {file.name(SCALING['rope_type'])}", NOTHING, _READ_CONFIG)
    found = scaling_of_llama3(name, high_freq_factor=file.row.high_freq_factor)
    found.put("factor", max(divisors), name)
    unscaled = frequencies(2 * len(divisors), base=file.get(_BASE, 10_000.0))
    options = {"low_freq_factor": found["low_freq_factor"], "high_freq_factor": found["high_freq_factor"]}
    scaled = llama3(unscaled, found["factor"], original_length=found[ORIGINAL], **options)
    if all(isclose(f / g, d, rel_tol=1e-5) for f, g, d in zip(unscaled, scaled, divisors, strict=True)):
        return found
    lists = {key: Fact(divisors, name) for key in ("short_factor", "long_factor")}
    more = {"rope_type": "longrope", ORIGINAL: file.get(_LENGTH, 1), "attention_factor": 1.0}
    return Values(lists | {key: Fact(value, name) for key, value in more.items()})


def _checked_divisors(file: _Metadata, divisors: list[float]) -> list[float]:
    """Return the divisors of the pairs that rotate in full layers; raise if they are too few, or not positive."""
    head = file.get(KEYS["head_dim"], 0) or file.get(KEYS["hidden_size"], 0) // (file.get(_HEADS, 0) or 1)
    pairs = int(file.get(_COUNT, head) * file.row.full_share) // 2
    if len(divisors) != pairs and not (len(divisors) > pairs and file.row.full_share < 1):
        raise ArgumentValueError(TENSORS[0], f"have {pairs} items, one for each pair", len(divisors))
    return [positive(TENSORS[0], divisor) for divisor in divisors[:pairs]]


def _llama3(file: _Metadata, factor: float | None, *, is_scaled: bool) -> Values:
    """Return the parameters of Llama 3's scaling by `factor`, none for 1 or if the model has none; raise if unknown."""
    if factor is not None and is_scaled:
        raise ArgumentValueError("factor", "be left out: the file has another scaling", factor)
    found = scaling_of_llama3("constant of Llama 3's scaling", high_freq_factor=file.row.high_freq_factor)
    if factor is None and not is_scaled and _may_lack_scaling(file, found[ORIGINAL]):
        wanted = "be given: the tensor rope_freqs.weight may scale this model, which the metadata does not say"
        hint = f"it is {file.row.llama3}; give 1 if the file has no such tensor; or, for the layers that rotate, "
        raise ArgumentValueError("factor", wanted, NOTHING, hint + _unpack_hint(file))
    if factor is None or positive("factor", factor) == 1:
        return Values()
    found.put("factor", factor, "argument factor")
    return found


def _may_lack_scaling(file: _Metadata, original: float) -> bool:
    """Whether a model may have Llama 3's scaling: by its length, if known, and by its tokens, if they matter."""
    if not file.row.llama3 or (_LENGTH in file and file.needed(_LENGTH, real) <= original):
        return False
    if not file.row.by_tokens:
        return True
    tokens, split = (file.whole.get(f"tokenizer.ggml.{key}") for key in ("tokens", "pre"))
    size = file.get("vocab_size", len(tokens) if isinstance(tokens, list | range) else None)
    if size is None and "tokenizer.ggml.pre" not in file.whole:
        return bool(file.get(_BASE) == 500_000)
    return split == "llama-bpe" or size in _LLAMA3_TOKENS


def _unpack_hint(file: _Metadata) -> str:
    """Return how to read the rotation from a tensor of the file, or from the config.json, for an error."""
    base, factor = file.get(_BASE, 10_000.0), file.get(SCALING["attention_factor"], 1)
    call = f'unpack(tensor, "llama.cpp", base={base!r}, pairing="{file.row.model.pairing}")'
    more = "" if factor == 1 else f" and dataclasses.replace(rope, attention_factor={factor!r})"
    return f"read the tensor: rope = rope_any.layouts.{call}{more}; or {_READ_CONFIG}"


FORM = Form("the metadata of a GGUF file", lambda keys: _ARCHITECTURE if _ARCHITECTURE in keys else None, _translate)
"""The form of this module."""
