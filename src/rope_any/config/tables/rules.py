"""
Functions that the rows of models name: which layers rotate or have an indexer, and the factor of q·k.

A row gives the keyword arguments of a rule by `functools.partial`. Those that are strings may be keys of a config.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, Text, flag, integer, positive
from rope_any.config._load import LARGEST_HEAD as MOST_HEADS
from rope_any.config._load import MOST_LAYERS, Fact, Values, agreed, checked, entry_of, one_of
from rope_any.config.tables.values import Part, between, optional, value

# --- the types of layers, and which layers rotate ---------------------------------------------------------


def always(*_: object) -> bool:
    """Return True, for each layer."""
    return True


def _count(part: Part, key: str, default: int, least: int = 1) -> int:
    """Return the integer under a key, or `default` if missing or null; raise if no integer, or less than `least`."""
    fact = part.get(key)
    if fact is not None and integer(fact.source, fact.value) < least:
        raise ArgumentValueError(fact.source, "not be negative" if least == 0 else "be positive", fact.value)
    return default if fact is None else int(fact.value)


def indices(part: Part, key: str, default: tuple[int, ...] = ()) -> Sequence[int]:
    """Return the list of ints (of any size) under a key, or `default` if missing or null; raise for anything else."""
    fact = part.get(key)
    if fact is not None and not (isinstance(fact.value, list) and all(type(item) is int for item in fact.value)):
        raise ArgumentTypeError(fact.source, "be a list of integers", fact.value)
    return default if fact is None else fact.value


def _dense_layers(part: Part) -> int:
    """Return how many of the first layers have no experts: ``first_k_dense_replace``, default 0."""
    return _count(part, "first_k_dense_replace", 0, 0)


def _dense_period(part: Part) -> int:
    """Return ``prefix_dense_sliding_window_pattern`` n, else 1: every n-th layer without experts has full attention."""
    return _count(part, "prefix_dense_sliding_window_pattern", 1)


def every(
    part: Part,
    index: int,
    layers: int,
    *,
    n: int,
    key: str = "",
    first: int = 1,
    since: int = 0,
    from_last: bool = False,
    also: tuple[int, ...] = (),
    kind: str = "full_attention",
    other: str = "sliding_attention",
) -> str:
    """Return `kind` if (index + first) % n is 0 from `since` on, or in `also`, else `other`; `key` may give n."""
    if index in also or index - layers in also:  # a negative one counts from the end
        return kind
    key = key if part.get(key) else f"_{key}"
    given = part.get(key)
    if given and isinstance(given.value, str) and re.fullmatch("L*G", given.value):  # "LLLG": local, …, global
        n = len(given.value)
    else:
        n = _count(part, key, n)
    number = index + first - (layers if from_last else 0)
    return kind if index >= since and number % n == 0 else other


def in_turn(part: Part, index: int, layers: int, *, types: Sequence[str]) -> str:
    """Return the type of a layer if the list `types` is repeated: ``types[index % len(types)]``."""
    return types[index % len(types)]


def attending(part: Part, index: int, layers: int, *, key: str) -> str:
    """Return "full_attention" if the index is in the list under `key`, or if there is none, else "conv"."""
    return "full_attention" if part.get(key) is None or index in indices(part, key) else "conv"


def dense_first(part: Part, index: int, layers: int) -> str:
    """Return "full_attention" for each n-th layer without experts, each m-th with, else "sliding_attention"."""
    dense = _dense_layers(part)
    if index < dense:
        return "sliding_attention" if (index + 1) % _dense_period(part) else "full_attention"
    return every(part, index - dense, layers, n=4, key="sliding_window_pattern")


def chunked_if_flagged(part: Part, index: int, layers: int, *, key: str, interval: str) -> str:
    """Return "full_attention" if not `flagged` or if ``attention_chunk_size`` is null, else "chunked_attention"."""
    chunked = part.keys.get("attention_chunk_size", "the class's") is not None
    return f"{'chunked' if chunked and flagged(part, '', index, key=key, interval=interval) else 'full'}_attention"


def sliding(part: Part, layer_type: str, index: int) -> bool:
    """Whether a layer rotates: its type is "sliding_attention"."""
    return layer_type == "sliding_attention"


def sliding_if_windowed(part: Part, layer_type: str, index: int) -> bool:
    """Whether a layer rotates: its type is "sliding_attention", or ``sliding_window`` is null, but not missing."""
    return part.keys.get("sliding_window", "the class's") is None or layer_type == "sliding_attention"


def sliding_or_dense(part: Part, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer rotates: "sliding_attention", or dense (by list `key`, else index) and `_dense_period` is 1."""
    kinds = part.get(key)  # a list with "dense" or "sparse" for each layer
    is_dense = one_of(entry_of(kinds, index), ("dense", "sparse")) == "dense" if kinds else index < _dense_layers(part)
    return layer_type == "sliding_attention" or (is_dense and _dense_period(part) == 1)


def flagged(part: Part, layer_type: str, index: int, *, key: str, interval: str) -> bool:
    """Whether a layer rotates: by 0 or 1 in the list at `key`; without it, all but each n-th, n at `interval` or 4."""
    flags, n = part.get(key), _count(part, interval, 4)
    if flags is None or flags.value == []:
        return (index + 1) % n != 0
    return bool(one_of(entry_of(flags, index), (0, 1)))


def with_base(part: Part, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer rotates: its base in the list under `key` is not 0 (raise if negative), or there is no list."""
    bases = part.get(key)
    if bases is None:
        return True
    base, source = entry_of(bases, index)
    return base != 0 and positive(source, base) > 0


def with_base_or_sliding(part: Part, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer rotates: its base in the list under `key` is not 0; without a list, it has no full attention."""
    return with_base(part, "", index, key=key) if part.get(key) else layer_type != "full_attention"


def self_attending(part: Part, layer_type: str, index: int) -> bool:
    """Whether a layer rotates: its index is not in `cross_attention_layers` (3, 8, 13, ..., 38 if not given)."""
    return index not in indices(part, "cross_attention_layers", (3, 8, 13, 18, 23, 28, 33, 38))


def listed(part: Part, layer_type: str, index: int, *, key: str) -> bool:
    """Whether a layer rotates: its index is in the list under `key`; False without a list."""
    return index in indices(part, key)


def labelled(layer_type: str, *, others: str, **labels: str) -> str:
    """Return the key of a layer type's parameters: the label of `layer_type` in `labels`, `others` if it has none."""
    return labels.get(layer_type, others)


def in_blocks(part: Part, layer_type: str, index: int) -> bool:
    """Whether a layer rotates: its attention in ``block_configs`` is neither left out nor replaced."""
    if (blocks := part.get("block_configs")) is None:
        return True
    block = entry_of(blocks, index)
    inner = block.value.get("attention") if isinstance(block.value, Mapping) else None
    if not isinstance(inner, Mapping):
        raise ArgumentTypeError(f"{block.source}.attention", "be an object", inner)
    names = ("no_op", "replace_with_linear")
    return not any(flag(f"{block.source}.attention.{name}", inner.get(name) or False) for name in names)


def by_windows(part: Part, index: int, layers: int) -> str:  # any number of layers
    """Return the kind of a layer, which has a window if ``sliding_window_layers`` has its index; raise without it."""
    value(key := "sliding_window_layers").read(part)
    return "sliding_attention" if index in indices(part, key) else "full_attention"


def all_true(part: Part, layer_type: str, index: int, *, key: str) -> bool:
    """Return True; raise if the list of flags at `key` has a false one, which not all programs read."""
    if (flags := part.get(key)) is not None and flags.value:
        one_of(entry_of(flags, index), (True,))
    return True


def unless_alibi(part: Part, layer_type: str, index: int) -> bool:
    """Whether a layer of Baichuan rotates: that of 7B, of hidden size 4096; that of 13B has ALiBi. Raise for others."""
    hidden = value("hidden_size").read(part, integer)
    return bool(one_of(hidden, (4096, 5120)) == 4096)


# --- today's values, computed from a model's own keys -----------------------------------------------------


def of_qwen(part: Part) -> dict[str, Fact]:
    """Return the rope type of Qwen 1, by ``use_dynamic_ntk``, and its trained length, ``seq_length``."""
    # the first code, whose files have n_embd, has another default
    on = optional("use_dynamic_ntk", default="n_embd" not in part.keys).read(part, flag)
    length = value("seq_length").read(part)
    found = {"original_max_position_embeddings": length}
    if on.value:
        found |= {"rope_parameters.rope_type": Fact("dynamic", on.source), "rope_parameters.seq_length": length}
    return found


def of_chatglm(part: Part) -> dict[str, Fact]:
    """
    Return the base of ChatGLM2 to GLM-4, 10000 times ``rope_ratio``, and the flag of the pairing.

    ChatGLM2-6B-32K divides positions by that ratio instead, and its file has the keys of ChatGLM3's. Raise if the name
    in the file does not tell them apart, and for the first ChatGLM.
    """
    if any(part.get(key) for key in ("position_encoding_2d", "inner_hidden_size", "max_sequence_length")):
        rope = "Rope(ra.axes.axial(f, f), pairing='half', blocks=2), where f is ra.frequencies(head_dim // 2)"
        hint = f"each half of its heads has positions of its own: {rope}"
        raise ArgumentValueError(
            part.name("model_type"), "be that of ChatGLM2 or later", Text("the first ChatGLM"), hint
        )
    found, name = {}, str(part.keys.get("_name_or_path", "")).lower()
    if (given := part.get("original_rope")) is not None:
        found["rope_interleave"] = checked(given, flag)
    if (ratio := part.get("rope_ratio")) is None or checked(ratio, positive).value == 1:
        return {**found, "rope_theta": Fact(10_000.0, part.default)}
    versions = [version for version in ("chatglm2", "chatglm3") if version in name]
    if part.keys.get("padded_vocab_size") != 65_024 or versions == ["chatglm3"]:
        return {**found, "rope_theta": Fact(10_000.0 * ratio.value, f"10000 * {ratio.source}")}
    if versions == ["chatglm2"]:
        kind = Fact("linear", f"{ratio.source} in ChatGLM2")
        return {**found, "rope_parameters.rope_type": kind, "rope_parameters.factor": ratio}
    wanted = "be beside _name_or_path with chatglm2 or chatglm3: the one divides positions by it, the other"
    raise ArgumentValueError(ratio.source, f"{wanted} multiplies the base", ratio.value)


def of_internlm(part: Part) -> dict[str, Fact]:
    """Return the base and the scaling in ``rotary``, {"base", "type", "scaling_factor"}; nothing without it."""
    if part.get("rotary") is None:
        return {}
    base = optional("rotary.base", default=10_000).read(part, positive)
    kind, factor = value("rotary.type").read(part), optional("rotary.scaling_factor", default=1.0).read(part, positive)
    if one_of(kind, ("origin", "dynamic")) == "origin":
        return {"rope_theta": base}
    return {"rope_theta": base, "rope_parameters.rope_type": kind, "rope_parameters.factor": factor}


def of_nomic(part: Part) -> dict[str, Fact]:
    """Return dynamic scaling by ``rotary_scaling_factor`` beyond ``max_trained_positions``, if there is a factor."""
    factor = part.get("rotary_scaling_factor")
    if factor is None or factor.value == 0:
        return {}
    kind, trained = Fact("dynamic", factor.source), optional("max_trained_positions", default=2048).read(part)
    scaling = {"rope_parameters.rope_type": kind, "rope_parameters.factor": factor}
    return {**scaling, "max_position_embeddings": trained}


def of_gte(part: Part, *, others: bool = True) -> dict[str, Fact]:
    """Return the scaling of type "ntk" in ``rope_scaling``, whose base is raised at every length; or allow `others`."""
    kind, known = part.get("rope_scaling.type"), ("type", "factor", "mixed_b")
    if kind is None or (others and kind.value != "ntk"):
        return {}
    one_of(kind, ("ntk",))
    for key in part.keys["rope_scaling"]:
        if key not in known:
            name = part.name("rope_scaling", str(key))
            raise ArgumentValueError(name, f"be one of {', '.join(known)}", Text(str(key)))
    given = {name: part.get(f"rope_scaling.{key}") for name, key in (("ntk_factor", "factor"), ("mixed_b", "mixed_b"))}
    found = {f"rope_parameters.{name}": fact for name, fact in given.items() if fact}
    found["rope_parameters.rope_type"] = Fact("dynamic", f"{kind.source} ntk")
    return {**found, "rope_scaling": Fact(None, kind.source)}


def of_yuan(part: Part) -> dict[str, Fact]:
    """Return the widths of Yuan2-M32: its heads are those of ``attention_projection_size``, of which a part rotates."""
    whole, hidden = part.get("attention_projection_size"), value("hidden_size").read(part, integer)
    if whole is None:
        return {}
    heads = value("num_attention_heads").read(part, between(1, MOST_HEADS))
    head = Fact(integer(*whole[::-1]) // heads.value, f"{whole.source} // {heads.source}")
    return {"head_dim": head, "rotary_dim": Fact(hidden.value // heads.value, f"{hidden.source} // {heads.source}")}


def twice_as_wide(part: Part) -> dict[str, Fact]:
    """Return the width of a head of attention that takes two concatenated vectors, if both sizes are given."""
    hidden, heads = part.get("hidden_size"), part.get("num_attention_heads")
    if hidden is None or heads is None:
        return {}
    n, count = integer(hidden.source, hidden.value), between(1, MOST_HEADS)(heads.source, heads.value)
    return {"head_dim": Fact(2 * n // count, f"2 * {hidden.source} // {heads.source}")}


def of_clvp(part: Part) -> dict[str, Fact]:
    """Return how many features rotate in CLVP: at least 32."""
    whole, heads = (value(key).read(part, between(2, MOST_HEADS)) for key in ("projection_dim", "num_attention_heads"))
    return {"rotary_dim": Fact(max(whole.value // (2 * heads.value), 32), f"derived as {part.model_type} does")}


def without_sections(part: Part) -> dict[str, Fact]:
    """Return the parameters without the sections of M-RoPE, in a model whose positions are equal on all axes."""
    given = {key: part.get(key) for key in ("rope_scaling", "rope_parameters")}
    sections = ("mrope_section", "mrope_interleaved", "interleaved")
    return {
        key: Fact({name: item for name, item in fact.value.items() if name not in sections}, fact.source)
        for key, fact in given.items()
        if fact is not None and isinstance(fact.value, Mapping)
    }


def of_gemma4(part: Part) -> dict[str, Fact]:
    """
    Return the parameters of Gemma 4's class if the config has none; raise if it has another base or share elsewhere.

    The class does not read these values outside of the parameters, but other programs do.
    """
    if part.get("rope_parameters") or part.get("rope_scaling"):
        return {}
    full = {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25}
    for key in ("rope_theta", "partial_rotary_factor"):
        agreed(Fact(full[key], part.default), part.get(key))
    sliding = {"rope_type": "default", "rope_theta": 10_000.0}
    parameters = Fact({"sliding_attention": sliding, "full_attention": full}, part.default)
    return {"rope_parameters": parameters, **{key: Fact(None, key) for key in ("rope_theta", "partial_rotary_factor")}}


def of_mimo_v2(part: Part) -> dict[str, Fact]:
    """Return nothing; raise if one of the two bases is missing, for which programs have different defaults."""
    if part.get("rope_parameters") is None:
        for key in ("rope_theta", "swa_rope_theta"):
            value(key).read(part, positive)
    return {}


def of_step3p5(part: Part) -> dict[str, Fact]:
    """Return nothing; raise for a scaling without ``yarn_only_types``, which two programs read differently."""
    kind = part.get("rope_scaling.rope_type") or part.get("rope_scaling.type")
    if kind and kind.value != "default" and part.get("yarn_only_types") is None:
        wanted = 'be ["full_attention"], or rope_parameters be given by type of layer, beside this scaling'
        hint = "without it the code of the weights scales all layers, and transformers those with full attention"
        raise ArgumentValueError(part.name("yarn_only_types"), wanted, NOTHING, hint)
    return {}


def of_zaya(part: Part) -> dict[str, Fact]:
    """
    Return the parameters and layer types of Zyphra's own files, whose keys are outside; nothing for those of today.

    Each layer has either attention ("a" in ``zaya_layers``, or an even index) or experts.
    """
    if part.get("rope_parameters") is not None or part.get("rope_theta") is None:
        return {}
    base, share = value("rope_theta").read(part, positive), value("partial_rotary_factor").read(part, positive)
    count = optional("num_hidden_layers", default=80).read(part, between(1, MOST_LAYERS))
    kinds = part.get("zaya_layers") or Fact([*"am"] * count.value, "in turn, in Zyphra's code")
    types = ["hybrid" if entry_of(kinds, index).value == "a" else "moe" for index in range(count.value)]
    parameters = {"rope_type": "default", "rope_theta": base.value, "partial_rotary_factor": share.value}
    return {
        "rope_scaling": Fact(None, part.name("rope_scaling")),
        "rope_parameters": Fact(parameters, base.source),
        "layer_types": Fact(types, kinds.source),
    }


def no_slices(part: Part) -> dict[str, Fact]:
    """Return null for the widths of the slices of MLA, which files of models without it may have."""
    return {key: Fact(None, part.name(key)) for key in ("qk_rope_head_dim", "qk_nope_head_dim") if key in part.keys}


# --- another model type whose row holds for some files ---------------------------------------------------


def type_of_eagle(keys: Mapping[str, Any]) -> str:
    """
    Return a type that rotates as an EAGLE-3 draft of Qwen-VL does, which has the architecture of Llama; else "".

    Raise if programs differ: the code that trains the drafts of AngelSlim strides sections, whatever their config says.
    """
    objects = {key: keys.get(key) for key in ("rope_scaling", "rope_parameters")}
    given = [(key, each) for key, each in objects.items() if isinstance(each, Mapping) and "mrope_section" in each]
    classes = keys.get("architectures")
    name = classes[0] if isinstance(classes, list) and classes else ""
    if not given or name not in ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"):
        return ""
    if any(each.get("mrope_interleaved") is True for _, each in given):
        return "qwen3_omni_moe_talker_text"
    if name == "LlamaForCausalLMEagle3":
        return "qwen2_5_vl_text"
    wanted = f"be true for {name}: the code that trains it strides in any case, engines only with this key"
    raise ArgumentValueError(f"{given[0][0]}.mrope_interleaved", wanted)


def type_of_minicpm_v(keys: Mapping[str, Any]) -> str:
    """Return the type of the text of MiniCPM-V and -o, by their version; raise for an unknown one."""
    by_version = {"2.0": "minicpm", "2.5": "llama", "2.6": "qwen2", "4.0": "llama", "4": "llama", "4.5": "qwen3"}
    first = "minicpm" if keys.get("hidden_size") == 2304 else "llama"
    if (version := keys.get("version")) is None:
        return "qwen2" if keys.get("model_type") == "minicpmo" else first
    if str(version) not in by_version:
        raise ArgumentValueError("version", f"be one of {', '.join(by_version)}", version)
    return by_version[str(version)]


def type_of_jina(keys: Mapping[str, Any]) -> str:
    """Return the type of jina-embeddings-v3 for an XLM-RoBERTa with rotary embedding; else ""."""
    is_rotary = keys.get("position_embedding_type") == "rotary" or keys.get("rotary_emb_base") is not None
    return "jina_embeddings_v3" if is_rotary else ""


def type_by_its_class(keys: Mapping[str, Any]) -> str:
    """Return the type of DeepSeek V4 for one of its files that names another type beside its class; else ""."""
    return "deepseek_v4" if keys.get("architectures") == ["DeepseekV4ForCausalLM"] else ""


def type_of_aria(keys: Mapping[str, Any]) -> str:
    """Return the type of EleutherAI's Aria, a model of music whose files have the name of Rhymes' Aria; else ""."""
    return "aria_music" if "max_seq_len" in keys and "max_position_embeddings" not in keys else ""


def type_without_mla(keys: Mapping[str, Any]) -> str:
    """Return "deepseek" for a config of DeepSeek V2 without MLA, whose attention is that of Llama; else ""."""
    return "deepseek" if keys.get("use_mla") is False or keys.get("qk_rope_head_dim") == 0 else ""


# --- which layers have an indexer -------------------------------------------------------------------------

# A "full" layer runs its indexer; a "shared" one reuses the keys that an earlier layer selected.
_MODES: Sequence[str] = ("full", "shared")


def scheduled(part: Part, index: int, layer_type: str | None = None) -> bool:
    """Whether a layer runs its own indexer: by lists of modes, which must agree, else by offset and period."""
    types, pattern, modes = part.get("indexer_types"), part.get("index_topk_pattern"), _MODES
    if pattern is not None and isinstance(pattern.value, str):
        pattern, modes = Fact([*pattern.value], pattern.source), "FS"
    full = agreed(_is_full(types, index, _MODES), _is_full(pattern, index, modes))
    if full is not None:
        return bool(full.value)
    # the layers before `offset` are full, then every n-th after the last of these
    keys = {"index_skip_topk_offset": 2, "index_topk_freq": 1}
    count = between(0, MOST_LAYERS)
    offset, n = (optional(key, default=default).read(part, count).value for key, default in keys.items())
    return bool(max(index - offset + 1, 0) % max(n, 1) == 0)


def _is_full(modes: Fact | None, index: int, known: Sequence[str]) -> Fact | None:
    """Return whether the layer's mode in the list `modes` is ``known[0]``; None without a list. Raise if not known."""
    mode = modes and entry_of(modes, index)
    return mode and Fact(one_of(mode, known) == known[0], mode.source)


def full_layers(part: Part, index: int, layer_type: str | None, *, n: int, first: int, also: tuple[int, ...]) -> bool:
    """Whether a layer runs its own indexer: by ``indexer_types``, else every n-th from `first` on, or in `also`."""
    by_class = Fact(index in also or (index >= first and (index - first) % n == 0), part.default)
    full = _is_full(part.get("indexer_types"), index, _MODES) or by_class
    for key in ("index_topk_pattern", "index_topk_freq", "index_skip_topk_offset"):  # the class does not read these
        given = part.get(key)
        agreed(full, given and Fact(scheduled(part, index), f"{given.source}, for layer {index},"))
    return bool(full.value)


def by_type(
    part: Part, index: int, layer_type: str | None, *, types: tuple[str, ...], is_scheduled: bool = False
) -> bool:
    """Whether a layer's type is in `types`; if `is_scheduled`, it must also run its own indexer (`scheduled`)."""
    return layer_type in types and (not is_scheduled or scheduled(part, index))


def unless_off(part: Part, index: int, layer_type: str | None) -> bool:
    """Whether a layer has an indexer: by `layer_type`, by index if it is None; False if ``use_dsa`` is false."""
    if not optional("use_dsa", default=True).read(part, flag).value:
        return False
    if layer_type is None:
        return not optional("use_sliding_window", default=True).read(part, flag).value or index % 4 == 1 or index == 0
    # whether "full_attention" means the same, as it does by default if the config has neither key
    default = not {"per_layer_config", "use_dsa"} & part.keys.keys()
    renamed = optional("use_dsa", default=default).read(part, flag).value
    return layer_type in ("indexed_attention", *["full_attention"] * renamed)


# --- the factor of q·k ------------------------------------------------------------------------------------

KNOWN_SCALE = "be one whose score scale is known (of most models, 1 / sqrt(head_dim))"


class Heads(NamedTuple):
    """The argument of a score rule: layers of one kind, with the part of the config that they belong to."""

    part: Part
    values: Values

    def size(self, key: str, class_default: int | None = None) -> Fact:
        """Return the size under a key, or else `class_default`; raise if both are missing or it is not positive."""
        default = self.part.default
        fact = self.values.find(key) or (None if class_default is None else Fact(class_default, default))
        if fact is None:
            raise ArgumentValueError(self.part.name(key), f"be given for the score scale of {self.part.model_type}")
        if integer(fact.source, fact.value) < 1:
            raise ArgumentValueError(fact.source, "be positive", fact.value)
        return Fact(fact.value, f"{key} {fact.value}, {default}" if fact.source == default else fact.source)


def by_head(heads: Heads) -> Fact:  # 1/√d
    """Return the scale of most models, 1 / sqrt(head_dim)."""
    head = heads.size("head_dim")
    return Fact(head.value**-0.5, f"1 / sqrt({head.source})")


def by_half_a_head(heads: Heads) -> Fact:  # 1/√(d/2)
    """Return the scale of a model whose heads take two concatenated vectors, 1 / sqrt(head_dim / 2)."""
    head = heads.size("head_dim")
    return Fact((head.value / 2) ** -0.5, f"1 / sqrt({head.source} / 2)")


def by_slices(heads: Heads, *, plain: int | None = None) -> Fact:  # 1/√(plain + rotary)
    """
    Return the scale of MLA, 1 / sqrt(width without rotary + rotary width). Raise if ``qk_head_dim`` differs.

    `plain` is the default of the width without rotary, ``qk_nope_head_dim``.
    """
    unrotated, rotary = heads.size("qk_nope_head_dim", plain), heads.size("qk_rope_head_dim")
    head = Fact(unrotated.value + rotary.value, f"{unrotated.source} + {rotary.source}")
    given = heads.part.get("qk_head_dim")
    agreed(head, given and checked(given, integer))
    return Fact(head.value**-0.5, f"1 / sqrt({head.source})")


def with_mscale(heads: Heads, *, plain: int) -> Fact:  # m²/√d, m = 1 + 0.1 mscale_all_dim ln factor
    """Return MLA's scale times m², m = 1 + 0.1 ``mscale_all_dim`` ln(factor), or m = 1 if unscaled or without it."""
    scale, keys = by_slices(heads, plain=plain), ("rope_type", "mscale_all_dim", "factor")
    kind, c, s = (heads.values.find(key) or Fact(None, heads.part.name(key)) for key in keys)
    if kind.value in (None, "default") or not c.value:
        return scale
    if s.value is None:
        raise ArgumentValueError(s.source, f"be given: {heads.part.model_type} scales scores by it and {c.source}")
    m = 1 + 0.1 * positive(c.source, c.value) * math.log(max(positive(s.source, s.value), 1))
    return Fact(scale.value * m * m, f"{scale.source} * mscale², mscale = 1 + 0.1 * {c.source} * ln({s.source})")


def by_key(heads: Heads, *, key: str, power: float = 1, default: float | None = None) -> Fact:
    """Return the value at `key`, or `default`, to a power, else 1 / sqrt(head_dim). Raise if not positive."""
    part, fact = heads.part, heads.part.get(key)
    if fact is None and default is None:
        return by_head(heads)
    if fact is None and key in part.keys:
        raise ArgumentValueError(part.name(key), f"be a number for {part.model_type}", Text("null"))
    fact = fact or Fact(default, f"{key} {default}, {part.default}")
    value = positive(part.name(key), fact.value)
    return Fact(value**power, fact.source if power == 1 else f"({fact.source}) ** {power}")


def one(heads: Heads) -> Fact:
    """Return the scale 1, of models that do not scale q·k."""
    return Fact(1.0, f"{heads.part.model_type} does not scale q·k")


def unknown(heads: Heads, *, why: str) -> NoReturn:
    """Raise, because the config of this model does not determine its score scale; the error says why."""
    name, kind = heads.part.name("model_type"), heads.part.model_type
    raise ArgumentValueError(name, KNOWN_SCALE, kind, f"that of {kind} is unknown: {why}")
