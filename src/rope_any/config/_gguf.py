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

from rope_any._checks import NOTHING, ArgumentValueError, integer, integer_between, positive, real
from rope_any._frequencies import frequencies
from rope_any._pairing import Pairing
from rope_any.config._forms import File, Form, Keys, scaling_of_llama3, text_part, unknown_rotation, unread_names
from rope_any.config._gguf_file import TENSORS
from rope_any.config._load import LARGEST_HEAD, Fact, Values, entry_of, is_name, one_of, same, typed
from rope_any.config._part import Part
from rope_any.config._schemes import ORIGINAL, unknown_name
from rope_any.config.tables.gguf import ABOUT_ROTATION, ARCHITECTURES, KEYS, OF_OTHERS, READ_BY_FEW, SCALING, UNKNOWN
from rope_any.config.tables.rows import Architecture, Model, Score
from rope_any.config.tables.rules import KNOWN_SCALE, Heads, sliding
from rope_any.scaling import llama3, yarn_attention_factor

_ARCHITECTURE = "general.architecture"
_BASE, _SLIDING_BASE, _COUNT = "rope.freq_base", "rope.freq_base_swa", "rope.dimension_count"
_SLIDING_COUNT, _SLIDING_HEAD = "rope.dimension_count_swa", "attention.key_length_swa"
_SECTIONS, _PATTERN, _INDEXER = "rope.dimension_sections", "attention.sliding_window_pattern", "attention.indexer."
_HEADS, _KV_HEADS, _RECURRENT = "attention.head_count", "attention.head_count_kv", "attention.recurrent_layers"
_WINDOW, _LENGTH, _LAYERS, _AHEAD = "attention.sliding_window", "context_length", "block_count", "nextn_predict_layers"
_LINEAR = "rope.scale_linear"  # the key of the factor in older files
_LISTS = (_SECTIONS, _PATTERN, _RECURRENT)
_NUMBERS = {*SCALING.values(), _LINEAR, _BASE, _SLIDING_BASE, _WINDOW} - {SCALING["rope_type"], _SECTIONS}
_STILL = 1e29  # divisors of pairs that don't rotate are 1e30
_LLAMA3_TOKENS = range(128_256, 128_512)  # the vocabulary of Llama 3, with some tokens added
_READ_CONFIG = "read the config.json of the model, whose weights may have another pairing"


class _Metadata(File):
    """The values of the keys of an architecture, by these keys without its name."""

    def __init__(self, keys: Keys, pairing: Pairing | None) -> None:
        """Take the metadata of a file; raise if its architecture is not known, or it has keys of another form."""
        self.whole, self.architecture = keys, typed(_ARCHITECTURE, keys[_ARCHITECTURE], str, "be a name")
        if not is_name(self.architecture):
            raise ArgumentValueError(_ARCHITECTURE, "be a name of at most 100 characters", self.architecture)
        self.row: Architecture = _row(keys, self.architecture, pairing)
        self.tensors = {name: keys[name] for name in TENSORS if name in keys and isinstance(keys[name], list | None)}
        """The tensors of the rotation by name, None if the file has none of a name; empty if that is not known."""
        path = f"{self.architecture}."
        own = {key.removeprefix(path): keys[key] for key in keys if key.startswith(path)}
        super().__init__({key: value for key, value in own.items() if key not in self.row.unread}, path)
        self.has_kinds = self.row.kinds and bool(self.get(_WINDOW))
        """Whether full and sliding layers have their own base, features and heads."""
        for key in keys:
            if OF_OTHERS.search(key) and not key.startswith(path) and key not in self.tensors:
                wanted = f"not be given in GGUF metadata of architecture {self.architecture}"
                raise ArgumentValueError(key, wanted, keys[key], _unpack_hint(self) if key.endswith(".weight") else "")


def _translate(keys: Keys, factor: float | None, pairing: Pairing | None) -> Part:
    """Return the text of a file; `factor` is required if its model may have Llama 3's scaling, 1 for none."""
    file = _Metadata(keys, pairing)
    if factor is not None and not file.row.llama3:
        wanted = f"be left out: no model of architecture {file.architecture} has Llama 3's scaling"
        raise ArgumentValueError("factor", wanted, factor)
    _require_values(file)
    model = _model(file)
    if pairing not in (None, model.pairing) and not model.optional_rotary:
        raise ArgumentValueError("pairing", f"be {model.pairing!r}, according to {file.architecture}", pairing)
    found = file.renamed(_names(file, model))
    found.put("model_type", file.architecture, _ARCHITECTURE)
    _put_heads_and_layers(found, file)
    if model.optional_rotary:
        found["rope_theta"] = None
    else:
        _require_known_keys(file)
        if kinds := _layer_types(file, model):
            found.put("layer_types", *kinds)
        scaling = _scaling(file)
        scaling.take(_by_divisors(file, factor, is_scaled="rope_type" in scaling))
        if file.has_kinds:
            _put_kinds(found, file, scaling)
        else:
            found.put_object("rope_scaling", scaling, "rope_scaling")
    inner = {"indexer": unknown_rotation(file.name(f"{_INDEXER}*"))}
    return text_part(found, model)._replace(inner=inner if any(key.startswith(_INDEXER) for key in file) else {})


def _row(keys: Keys, arch: str, pairing: Pairing | None) -> Architecture:
    """Return the row of an architecture, with the pairing; raise if that is unknown and the caller doesn't give it."""
    row = ARCHITECTURES.get(arch, UNKNOWN)
    names = [f"{arch}.projector_type", f"{arch}.vision.projector_type"]
    kind = next((kind for name in names if isinstance(kind := keys.get(name), str) and kind in row.projectors), None)
    fixed = f" ({row.projectors[kind]} for {kind})" if kind else ""
    needed = (f"{arch}.{_BASE}", f"{arch}.{_COUNT}")
    missing = [*(["`pairing`"] if pairing is None else []), *(name for name in needed if keys.get(name) is None)]
    if row.no_way or (row.ambiguous and missing):
        way = "" if row.no_way else f", or {', '.join(missing)} be given"
        hint = f"{row.no_way}{fixed}: {_READ_CONFIG}" if row.no_way else row.ambiguous
        raise ArgumentValueError(_ARCHITECTURE, f"be one whose rotation is known{way}", arch, hint)
    return row._replace(model=row.model._replace(pairing=pairing)) if row.ambiguous and pairing else row


def _require_values(file: _Metadata) -> None:
    """Raise if the count is odd, sections or kinds of layers are no list, or a scaling value is no number."""
    if _COUNT in file and (count := file.needed(_COUNT, integer)) % 2:
        raise ArgumentValueError(file.name(_COUNT), "be even", count)
    for key, value in file.items():
        if key in _LISTS and not (key == _PATTERN and _period(file) > 0):
            typed(file.name(key), value, list, "be a list")
        if key in _NUMBERS:
            real(file.name(key), value)
        if key in (_HEADS, _KV_HEADS) and isinstance(value, list):
            for i, count in enumerate(value):
                integer_between(f"{file.name(key)}[{i}]", count, 0, LARGEST_HEAD)
    for key, why in file.row.refuses.items():
        value, neutral = file.get(key), (0, 1) if key == SCALING["factor"] else (0,)
        sections = isinstance(value, list) and not any(value[1:])
        if not (value is None or any(same(value, each) for each in neutral) or sections):
            wanted = f"not be given for architecture {file.architecture}: {why}"
            raise ArgumentValueError(file.name(key), wanted, value, _READ_CONFIG)


def _require_known_keys(file: _Metadata) -> None:
    """Raise if a key about the rotation or the kinds of layers is unknown, or known only for other architectures."""
    known = {*KEYS.values(), *SCALING.values(), _COUNT, _BASE, _SLIDING_BASE, _LINEAR} - READ_BY_FEW
    reads = {key for key in file if {key, key.split(".")[0]} & {*file.row.reads}}
    for name in unread_names(file, ABOUT_ROTATION, known | reads, levels=0):
        if {name, name.split(".")[0]} & READ_BY_FEW:
            wanted = f"not be given for architecture {file.architecture}, where its meaning is not known"
            raise ArgumentValueError(file.name(name), wanted, file[name], _READ_CONFIG)
        raise unknown_name(file.name(name), name, known)
    for key in (*file.row.needs, *(key for key in file.row.nonzero if key in file)):
        if not file.get(key):
            raise ArgumentValueError(file.name(key), "be given, and not be 0", file.get(key, NOTHING), _READ_CONFIG)


# --- the model and its layers -----------------------------------------------------------------------------


def _period(file: File) -> int:
    """Return the pattern of sliding layers if it is a number n, of which each n-th layer has full attention, else 0."""
    period = file.get(_PATTERN)
    return int(period) if isinstance(period, Integral) and not isinstance(period, bool) else 0


def _model(file: _Metadata) -> Model:
    """Return an architecture's facts, with layer rules of a model type like it; sections make axes chunked for some."""
    row, model = file.row, file.row.model
    first, kin = file.get(_SECTIONS, [])[:2], (file.get(_WINDOW) and row.windowed) or row.like
    if row.multimodal and first and all(first):
        model = Model("half", axes="chunked")
    elif kin:
        bases = {"sliding_attention": row.sliding_base or file.get(_BASE, 10_000.0)}
        layers = {kind: layer._replace(base=bases.get(kind, 10_000.0)) for kind, layer in kin.layers.items()}
        model = model._replace(layers=layers, has_rotary=kin.has_rotary, pattern=kin.pattern)
    if model.pattern and _period(file):
        given: dict[str, Any] = {"n": _period(file), "key": ""}
        model = model._replace(pattern=partial(model.pattern, **given))
    keys = {"sliding_attention.head_dim": "sliding_head_dim"} if file.has_kinds else {"rotary_dim": "rotary_dim"}
    if file.has_kinds:
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
    full, of_sliding = (bases.get(kind, "rope_theta") for kind in ("full_attention", "sliding_attention"))
    differs = _SLIDING_BASE in file and file[_SLIDING_BASE] != file.get(_BASE)
    if differs and full == of_sliding and not file.has_kinds:
        wanted = f"equal {_BASE}: {file.architecture} is known with one base only"
        raise ArgumentValueError(file.name(_SLIDING_BASE), wanted, file[_SLIDING_BASE])
    has_slice = file.row.mla or {"attention.kv_lora_rank", "attention.key_length_mla"} & file.keys()
    count = "qk_rope_head_dim" if has_slice else "rotary_dim"  # MLA: the rotary features are a separate slice
    return {**KEYS, of_sliding: _SLIDING_BASE, full: _BASE, count: _COUNT}


def _put_heads_and_layers(found: Values, file: _Metadata) -> None:
    """Set the number of layers, and the numbers of heads: those of layers with attention, as a list if they differ."""
    for ours, key in (("num_attention_heads", _HEADS), ("num_key_value_heads", _KV_HEADS)):
        if isinstance(heads := file.get(key), list):
            attending = [count for count in heads if count]
            found[ours] = attending[0] if len({*attending}) == 1 else attending
    if isinstance(found.get("num_attention_heads"), list) and "head_dim" not in found:
        found.put("head_dim", _head_dim(file), f"{file.name(KEYS['hidden_size'])} // {file.name(_HEADS)}[0]")
    if _AHEAD in file and _LAYERS in file:  # it counts layers that predict further tokens too
        layers = file.needed(_LAYERS, integer)
        ahead = integer_between(file.name(_AHEAD), file[_AHEAD], 0, layers)
        found["num_hidden_layers"] = layers - ahead or layers  # a draft model has no others
        found["num_nextn_predict_layers"] = ahead
    if file.architecture not in ARCHITECTURES:
        found.pop("num_hidden_layers", None)
        found.sources["num_hidden_layers"] = f"the layers of {file.architecture} that rotate, which no file says,"


def _head_dim(file: File) -> int:
    """Return the width of a head, by its key or by the first number of heads; 0 if the file has neither."""
    heads = file.get(_HEADS, 0)
    if isinstance(heads, list):
        heads = next(filter(None, heads), 0)
    head, hidden = (integer(file.name(KEYS[key]), file.get(KEYS[key], 0)) for key in ("head_dim", "hidden_size"))
    return head or (hidden // heads if integer(file.name(_HEADS), heads) > 0 else 0)


def _layer_types(file: _Metadata, model: Model) -> Fact | None:
    """Return each layer's type if lists of the file give it, else None; raise for a wrong or missing list."""
    for key, kind in ((_PATTERN, "sliding_attention"), (_RECURRENT, "linear_attention")):
        if isinstance(flags := file.get(key), list):
            by_layer = Fact(flags, file.name(key))
            are_of_kind = [one_of(entry_of(by_layer, i), (False, True)) for i in range(len(flags))]
            return by_layer._replace(value=[kind if flag else "full_attention" for flag in are_of_kind])
    heads, name, without = file.get(_KV_HEADS), file.name(_KV_HEADS), file.row.without_heads
    if without and isinstance(heads, list):
        return Fact(["full_attention" if count else without for count in heads], name)
    if without and file.get(KEYS["rope_finetuned"]) is not False:
        raise ArgumentValueError(name, "be a list, with 0 for each layer without attention", heads)
    if isinstance(heads, list) and 0 in heads:
        wanted = f"have no 0 for architecture {file.architecture}, where its meaning is not known"
        raise ArgumentValueError(name, wanted, heads, _READ_CONFIG)
    if (file.has_kinds or model.layers or model.has_rotary is sliding) and not (model.pattern or model.codes):
        raise ArgumentValueError(file.name(_PATTERN), "be given as a list", file.get(_PATTERN, NOTHING))
    return None


def _put_kinds(found: Values, file: _Metadata, scaling: Values) -> None:
    """Set the parameters of full and of sliding layers by kind of layer; `scaling` is that of full layers alone."""
    row, count = file.row, file.needed(_COUNT, integer)
    head = integer_between(file.name(KEYS["head_dim"]), file.needed(KEYS["head_dim"], integer), 1, LARGEST_HEAD)
    sliding_head = integer_between(file.name(_SLIDING_HEAD), file.get(_SLIDING_HEAD, head), 1, LARGEST_HEAD)
    for name in ("rotary_dim", "rope_theta"):  # those of each kind of layers take their place
        found.pop(name, None)
    found.put("sliding_head_dim", sliding_head, file.name(_SLIDING_HEAD))
    sliding = Values({"rope_type": Fact("default", "sliding layers have no scaling")})
    base = file.get(_SLIDING_BASE, row.sliding_base or file.get(_BASE, 10_000.0))
    sliding.put("rope_theta", base, file.name(_SLIDING_BASE))
    name = _SLIDING_COUNT if _SLIDING_COUNT in file else _COUNT
    sliding.put("partial_rotary_factor", _share(file.needed(name, integer), sliding_head), file.name(name))
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
    if any((sections := given.get("mrope_section", []))[1:]):
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
    pairs = int(file.get(_COUNT, _head_dim(file)) * file.row.full_share) // 2
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
