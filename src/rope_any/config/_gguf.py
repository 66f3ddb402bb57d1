"""
Translate the metadata of a GGUF file into a config with the names of transformers.

As llama.cpp reads it (commit 3f545be, August 2026). What its files keep as tensors, metadata alone can't say: the
factors of LongRoPE, and those of Llama 3, of which there is no trace; the former are refused.
"""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from rope_any._checks import positive, real, shown
from rope_any.config._models import MODELS, Model
from rope_any.config._schemes import near
from rope_any.scaling import yarn_attention_factor

_ARCHITECTURE = "general.architecture"
# How llama.cpp pairs the features of its files, whose projections a converter may have permuted.
_INTERLEAVED = """
    arcee arctic bailingmoe bailingmoe3 chameleon chatglm cohere2 command-r deci deepseek deepseek2 deepseek32 ernie4_5
    ernie4_5-moe glm-dsa glm4 internlm2 llada llama llama-embed llama4 maincoder minicpm mistral3 mistral4 nanbeige
    neo-bert olmo plm smollm3 xverse
"""
_HALF = """
    afmoe apertus bailingmoe2 bitnet codeshell dbrx dots1 dream eurobert exaone exaone4 falcon falcon-h1 gemma
    gemma-embedding gemma2 gemma3 gemma3n glm4moe gpt-oss gptneox grovemoe hunyuan-dense hunyuan-moe hunyuan_vl hy_v3
    jais2 jina-bert-v3 lfm2 lfm2moe llada-moe minicpm3 minimax-m2 modern-bert nemotron nomic-bert nomic-bert-moe olmo2
    olmoe openelm orion pangu-embedded phi2 phi3 phimoe plamo plamo2 qwen qwen2 qwen2moe qwen3 qwen3moe qwen3next rnd1
    seed_oss stablelm starcoder2
"""
_CHUNKED, _STRIDED = "qwen2vl paddleocr", "qwen3vl qwen3vlmoe qwen35 qwen35moe"
_CHUNKED_IF_GIVEN = "glm4", "glm4moe", "hunyuan_vl"
_STILL = """
    bloom gpt2 jais jamba jina-bert-v2 kimi-linear mamba mamba2 mpt nemotron_h nemotron_h_moe refact rwkv6 rwkv6qwen2
    rwkv7 arwkv7 t5 t5encoder bert starcoder
"""
ARCHITECTURES: dict[str, Model] = {
    **{name: Model("interleaved") for name in _INTERLEAVED.split()},
    **{name: Model("half") for name in _HALF.split()},
    **{name: Model("half", axes="chunked") for name in _CHUNKED.split()},
    **{name: Model("half", axes="strided") for name in _STRIDED.split()},
    **{name: Model(optional=True) for name in _STILL.split()},
    **{
        name: Model("interleaved", switch=("rope_finetuned", True, True))
        for name in ("granite", "granitemoe", "granitehybrid")
    },
}
# Which layers turn, and with which base, is known by the names of transformers.
_KIN = {
    "afmoe": "afmoe",
    "cohere2": "cohere2",
    "exaone4": "exaone4",
    "gemma-embedding": "gemma3_text",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "llama4": "llama4_text",
    "modern-bert": "modernbert",
    "smollm3": "smollm3",
}
# Our names for keys, and those that stand in the file after that of the architecture.
_KEYS = {
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "rope_finetuned": "rope.scaling.finetuned",
}
_SCALING = {
    "rope_type": "rope.scaling.type",
    "factor": "rope.scaling.factor",
    "alpha": "rope.scaling.alpha",
    "attention_factor": "rope.scaling.attn_factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
    "mscale_all_dim": "rope.scaling.yarn_log_multiplier",
    "mrope_section": "rope.dimension_sections",
}
_READ = {*_KEYS.values(), *_SCALING.values()} | {
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
}
_SLICE = "qk_rope_head_dim"
_PATTERN = "attention.sliding_window_pattern"


def is_gguf(keys: Mapping[str, Any], /) -> bool:
    """Whether a dict is the metadata of a GGUF file."""
    return _ARCHITECTURE in keys


def translated(keys: Mapping[str, Any], /) -> tuple[dict[str, Any], dict[str, str], Model]:
    """Return GGUF metadata as a config, what its keys are called in the file, and what is known of its model."""
    arch = keys[_ARCHITECTURE]
    if not isinstance(arch, str):
        msg = f"{_ARCHITECTURE} must be a name; got {shown(arch)}"
        raise TypeError(msg)
    if arch not in ARCHITECTURES:
        msg = f"{_ARCHITECTURE} must be one whose pairing is known; got {shown(arch)}{near(arch, ARCHITECTURES)}"
        raise ValueError(msg)
    own = {key.removeprefix(f"{arch}."): value for key, value in keys.items() if str(key).startswith(f"{arch}.")}
    for key in own:
        if key.startswith("rope.") and key not in _READ:
            msg = f"{arch}.{key} must be a known name; got {shown(key)}{near(key, _READ)}"
            raise ValueError(msg)
    model = _model(arch, own)
    layer = {kind: layer.key for kind, layer in model.layers.items()}
    theirs = _KEYS | {
        layer.get("full_attention", "rope_theta"): "rope.freq_base",
        layer.get("sliding_attention", "rope_theta_swa"): "rope.freq_base_swa",
        _SLICE if _has_slice(arch, own) else "rotary_dim": "rope.dimension_count",
    }
    names = {
        **theirs,
        **{f"rope_scaling.{ours}": key for ours, key in _SCALING.items()},
        "layer_types": _PATTERN,
    }
    config = {ours: own[key] for ours, key in theirs.items() if own.get(key) is not None}
    _require_kinds(arch, own)
    heads, pattern = config.get("num_attention_heads"), own.get(_PATTERN)
    if isinstance(heads, list | tuple) and heads:
        config["num_attention_heads"] = heads[0]  # the one that llama.cpp takes
    if isinstance(pattern, list | tuple):
        config["layer_types"] = ["sliding_attention" if slides else "full_attention" for slides in pattern]
    sliding = None if layer else config.pop("rope_theta_swa", None)
    if sliding is not None and sliding != config.get("rope_theta"):
        msg = f"{arch}.rope.freq_base_swa must be that of all layers in {arch}; got {shown(sliding)}"
        raise ValueError(msg)
    config |= {"rope_theta": None} if model.optional else {"rope_scaling": _scaling(arch, own)}
    return (
        {"model_type": arch, **config},
        {"model_type": _ARCHITECTURE, **{ours: f"{arch}.{key}" for ours, key in names.items()}},
        model,
    )


def _is_period(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _require_kinds(arch: str, own: Mapping[str, Any]) -> None:
    """Refuse values of a kind that a file of this format can't hold."""
    sections, pattern = own.get("rope.dimension_sections"), own.get(_PATTERN)
    for name, value in {"rope.dimension_sections": sections, _PATTERN: pattern}.items():
        if value is not None and not isinstance(value, list | tuple) and not (value is pattern and _is_period(value)):
            msg = f"{arch}.{name} must be a list; got {shown(value)}"
            raise TypeError(msg)
    for key in (*_SCALING.values(), "rope.scale_linear"):
        if key not in ("rope.scaling.type", "rope.dimension_sections") and own.get(key) is not None:
            real(f"{arch}.{key}", own[key])


def _model(arch: str, own: Mapping[str, Any]) -> Model:
    model = ARCHITECTURES[arch]
    sections = own.get("rope.dimension_sections")
    # Vision models of these architectures say so by their sections, and then pair halves.
    if arch in _CHUNKED_IF_GIVEN and isinstance(sections, list | tuple) and all(sections[:2]):
        return Model("half", axes="chunked")
    kin_of = _KIN | ({"olmo2": "olmo3"} if own.get("attention.sliding_window") else {})
    if arch not in kin_of:
        return model
    kin = MODELS[kin_of[arch]]
    return model._replace(layers=kin.layers, turns=kin.turns, pattern=kin.pattern)


def _has_slice(arch: str, own: Mapping[str, Any]) -> bool:
    """Whether the rotary features of the head are a slice by itself (MLA)."""
    return arch == "deepseek2" or any(f"attention.{key}" in own for key in ("kv_lora_rank", "key_length_mla"))


def _scaling(arch: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``rope_scaling`` that the metadata amounts to."""
    given = {ours: own[key] for ours, key in _SCALING.items() if own.get(key) is not None}
    kind = given.pop("rope_type", "linear")
    if not isinstance(kind, str):
        msg = f"{arch}.{_SCALING['rope_type']} must be a name; got {shown(kind)}"
        raise TypeError(msg)
    times = positive(f"{arch}.{_SCALING['attention_factor']}", given.pop("attention_factor", 1.0))
    if kind == "longrope" or (kind != "yarn" and times != 1):
        msg = f"{arch} must be read from its config.json: its metadata lacks the factors of longrope, which are tensors"
        raise ValueError(msg)
    factor = given.pop("factor", own.get("rope.scale_linear")) or 1.0  # 0 means none, as in llama.cpp
    sections = given.pop("mrope_section", None)
    found: dict[str, Any] = {}
    if kind not in ("none", "linear", "yarn"):
        found = {"rope_type": kind}  # which the reader refuses
    elif given.get("alpha"):
        found = {"rope_type": "dynamic", "alpha": given["alpha"]}
    elif kind == "linear" and factor != 1:
        found = {"rope_type": "linear", "factor": factor}
    elif kind == "yarn":
        found = _yarn(arch, own, given, factor, times)
    if isinstance(sections, list | tuple) and any(sections):
        while not sections[-1]:
            sections = sections[:-1]
        found["mrope_section"] = list(sections)
    return found


def _yarn(arch: str, own: Mapping[str, Any], given: dict[str, Any], factor: Any, times: float) -> dict[str, Any]:
    """Return the parameters of YaRN, of which llama.cpp reads the betas in some architectures only."""
    found: dict[str, Any] = {key: given[key] for key in ("beta_fast", "beta_slow") if key in given}
    original = given.get("original_max_position_embeddings") or own.get("context_length")
    found |= {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    mscale: dict[str, float] = {}
    if given.get("mscale_all_dim"):
        c = positive(f"{arch}.{_SCALING['mscale_all_dim']}", given["mscale_all_dim"])
        if arch != "mistral3":  # elsewhere its converter wrote 0.1 times that of the config, to which mscale is equal
            c *= 10
        mscale = {"mscale": 1.0 if arch == "mistral3" else c, "mscale_all_dim": c}
    if times == 1:
        return found | mscale
    derived = yarn_attention_factor(positive(f"{arch}.{_SCALING['factor']}", factor), **mscale)
    return found | {"attention_factor": times * derived}  # besides, not instead
