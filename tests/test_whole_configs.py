"""
Configs as people published them, with all their keys: each is read as its own code rotates, layer by layer.

``whole_configs.json`` has the files, with their source; names of people, paths and long texts are "x". The rotation of
a model that transformers has is that of its class there. That of any other is computed by a formula of `FORMULAS`,
written from the code that comes with its weights, or from an engine that runs it.
"""

import json
import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import refused_table
from configs import PUBLISHED, rows_of

from rope_any import config

FILES = json.loads(Path(__file__).with_name("whole_configs.json").read_text(encoding="utf-8"))
FILES |= {file["model"]: file for file in PUBLISHED}


REFUSED = {
    "THUDM/chatglm-6b": "each half of its heads has positions of its own",
    "adept/fuyu-8b": "rope_theta must be in text_config: only that part is read",  # transformers takes another base
    "inclusionAI/Ming-UniVision-16B-A3B": "rope_scaling.type must be one of",
    "gemma3 0eeac48b": "layer_types must have 4 entries",  # which are 62
    "ACE-Step/ACE-Step-v1-3.5B transformer": "rope_theta must not be given for Transformer2DModel",  # it is no rotation
    "AngelSlim qwen2.5-vl-3b eagle3": "rope_scaling.mrope_interleaved must be true",  # its engines don't stride
}
"""Files whose text is refused although its model is known, and the reason."""


def leaves(value):
    """Return the number of values in a config, at any depth of its objects and lists."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(leaves, items)) or 1


@pytest.mark.parametrize("name", FILES)
def test_no_key_of_a_source_is_missing(name):
    file = FILES[name]
    assert file["source"]
    assert leaves(file["config"]) == file["values"]


def test_there_are_many():
    kinds = {file["config"].get("model_type", file["config"].get("_class_name")) for file in FILES.values()}
    assert len(FILES) >= 250
    assert len(kinds) >= 100


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_has_its_reason(name):
    with pytest.raises(ValueError, match=REFUSED[name]):
        config.read(FILES[name]["config"]).rope()


def test_the_table_of_refused_models_is_that_of_the_rows():
    assert refused_table.PAGE.read_text(encoding="utf-8") == f"{refused_table.table()}\n"  # else run it with --write


# --- models of transformers -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def architectures():
    """Return the module that runs the classes of transformers, and its cases by the name of their config."""
    pytest.importorskip("torch", reason="the peers run on torch")
    pytest.importorskip("transformers", minversion="5.23", reason="the peers are models of transformers")
    import test_architectures
    from rotary_classes import in_source

    cases = [*reversed([case for case, _ in in_source()]), *test_architectures.OTHERS]
    return test_architectures, {case.config: case for case in cases}


def class_of(keys):
    """Return the config class of a file's model in transformers; None if there is none."""
    transformers = pytest.importorskip("transformers", minversion="5.23", reason="the peers are models of transformers")
    known = transformers.CONFIG_MAPPING
    return known[keys["model_type"]] if keys.get("model_type") in known and not formula_of(keys) else None


@pytest.mark.filterwarnings("ignore:`rope_scaling` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", [name for name, file in FILES.items() if "model_type" in file["config"]])
def test_a_text_rotates_as_its_class_does(name, architectures):
    peers, cases = architectures
    keys = FILES[name]["config"]
    if name in REFUSED or (cls := class_of(keys)) is None:
        pytest.skip("it is refused, or transformers has no class of this model")
    try:
        text = cls.from_dict(deepcopy(keys)).get_text_config()
        text = text if text_of(keys) is not keys else type(text).from_dict(deepcopy(keys))  # a file with one level
    except (KeyError, ValueError) as error:
        pytest.skip(f"transformers can't load it: {str(error)[:80]}")
    case, read = cases.get(type(text).__name__), config.read(keys)
    part = next((part for part in ("text", "audio") if part in read.parts), None)
    assert (case is None) == (part is None)
    for one in (one for one in read.explain(part=part) if one.layers != ()) if part else ():
        kinds = (one.layer_type, None)  # a class may have one table for all layers
        rotation = next(filter(None, (peers.theirs(case._replace(layer_type=kind), text) for kind in kinds)), None)
        assert (rotation is None) == (one.rope is None)
        if rotation is not None:
            peers.assert_same_frequencies(one.rope, rotation)
            factor = (getattr(text, "rope_parameters", None) or {}).get("short_mscale", rotation.factor)  # of PhiMoE
            assert one.rope.attention_factor == pytest.approx(factor, rel=1e-6)
            assert peers.distance(one.rope, rotation) < peers.TOLERANCE  # by the pairing too


# --- models whose code comes with their weights -----------------------------------------------------------


def pairs(width, base=1e4, *, head=None):
    """Return the frequencies of a width; `head` is the width of their powers, if it is another one."""
    return base ** (-2 * np.arange(width // 2) / (head or width))


def head(c, hidden="hidden_size", heads="num_attention_heads"):
    """Return the width of a head."""
    return c.get("head_dim") or c[hidden] // c[heads]


def dynamic_ntk(width, base, factor, trained, length):
    """Return frequencies whose base grows with the length, as transformers computes them."""
    grown = factor * max(length, trained) / trained - (factor - 1)
    return pairs(width, base * grown ** (width / (width - 2)))


def longrope(c, width):
    """Return the frequencies of LongRoPE within the original length, and its factor of cos and sin."""
    given = c["rope_scaling"]
    original = given.get("original_max_position_embeddings") or c["original_max_position_embeddings"]
    ratio = given.get("factor", c["max_position_embeddings"] / original)
    factor = 1.0 if ratio <= 1 else math.sqrt(1 + math.log(ratio) / math.log(original))
    return pairs(width, c.get("rope_theta", 1e4)) / np.array(given["short_factor"]), factor


def llama3(frequencies, given):
    """Return frequencies by the wavelengths of Llama 3.1: short ones as they are, long ones divided by the factor."""
    turns = given["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    low, high = given["low_freq_factor"], given["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return (1 - kept) * frequencies / given["factor"] + kept * frequencies


def of_gte(c):
    """Return gte's frequencies: base and frequencies scaled at every length."""
    width, base, given = head(c), c["rope_theta"], c.get("rope_scaling")
    if given is None:
        return pairs(width, base)
    s, b = given["factor"], given.get("mixed_b")
    if b is None:
        return pairs(width, base * s) / s ** (2 / width)
    return pairs(width, base) / np.exp(math.log(s) / (width / 2) ** b * np.arange(1, width // 2 + 1) ** b)


def of_minicpm_v(c):
    """Return the frequencies of the text of MiniCPM-V, and the factor of cos and sin."""
    return longrope(c, head(c)) if c.get("rope_scaling") else pairs(head(c), c.get("rope_theta", 1e4))


def of_mimo_v2(c):
    """Return the frequencies of MiMo-V2 by the index of a layer, of which those with a window have another base."""
    rotary = int(c["head_dim"] * c["partial_rotary_factor"])
    return lambda i: pairs(rotary, c["swa_rope_theta" if c["hybrid_layer_pattern"][i] else "rope_theta"])


def of_spark(c):
    """Return the frequencies of Spark 2.5 by the index of a layer, of which each kind has its own parameters."""
    given = [c["rope_parameters"][kind] for kind in c["layer_types"]]
    return lambda i: pairs(int(c["head_dim"] * given[i]["partial_rotary_factor"]), given[i]["rope_theta"])


def of_ministral(c):
    """Return the frequencies of Ministral 3 with YaRN, and the factor of cos and sin, which is 1 for equal scales."""
    given, d = c["rope_parameters"], head(c)
    base, s = given["rope_theta"], given["factor"]
    turns = (given["original_max_position_embeddings"] / (2 * math.pi * given[beta]) for beta in BETAS)
    low, high = (d / 2 * math.log(turn) / math.log(base) for turn in turns)
    kept = 1 - np.clip((np.arange(d // 2) - math.floor(low)) / (math.ceil(high) - math.floor(low)), 0, 1)
    return pairs(d, base) * (kept + (1 - kept) / s)


def everywhere(c, i):  # noqa: ARG001  # of a config and the index of a layer
    """Return True: each layer rotates."""
    return True


BETAS = ("beta_fast", "beta_slow")
LLAMA = ("half", lambda c: pairs(head(c), c.get("rope_theta", 1e4)), everywhere)
# Pairing, frequencies (and the factor of cos and sin if it is not 1) and the layers that rotate. Sources: qwen,
# modeling_qwen.py of Qwen-72B; chatglm, modeling_chatglm.py of ChatGLM2 and GLM-4; baichuan, vllm 0.10.2 baichuan.py;
# bailing_moe, inclusionAI/Ling; minicpmv, vllm 0.33.0 minicpmv.py; minimax_m3, vllm 0.33.0 minimax_m3; yuan,
# IEIT-Yuan/Yuan-2.0; new, configuration.py and modeling.py of Alibaba-NLP/new-impl; llava_llama, haotian-liu/LLaVA
# and NVlabs/VILA; deepseek_vl_v2, vllm 0.33.0 deepseek_v2.py; nemotron-nas, modeling_decilm.py; phi3_v,
# modeling_phi3_v.py; aria, modeling_aria.py of EleutherAI; bailing_moe_linear, plamo, plamo2 and phi3small, mlx-lm
# d78bf58, and of the first sglang 0.5.23; bunny-phi, BAAI/Bunny; fish_qwen3_omni, fishaudio/fish-speech; logics,
# alibaba/Logics-Thinking 37c023b; maple, llama.cpp 0c1e570 maple.cpp; mimo_v2, vllm 0.33.0 mimo_v2.py; mobilellm,
# facebookresearch/MobileLLM 8b9769d; naive_n05_flash, modeling_naive_n05_flash.py; nemotron_labs_diffusion,
# modeling_ministral.py; spark2_5, sglang 0.5.23 spark2_5.py; acestep, modeling_acestep_v15_turbo.py; the drafts of
# AngelSlim 67394ce, llama_eagle3.py.
FORMULAS = {
    "qwen": (
        "half",
        lambda c: pairs(int(c["kv_channels"] * c["rotary_pct"]), c["rotary_emb_base"]),
        everywhere,
    ),
    "chatglm": (
        "interleaved",
        lambda c: pairs(c["kv_channels"] // 2, 1e4 * c.get("rope_ratio", 1)),
        everywhere,
    ),
    "baichuan": ("half", lambda c: pairs(head(c)), lambda c, _: c["hidden_size"] == 4096),
    "minicpmv": ("half", of_minicpm_v, everywhere),
    "minimax_m3": ("half", lambda c: pairs(c["rotary_dim"], c["rope_theta"]), everywhere),
    "new": ("half", of_gte, everywhere),
    **dict.fromkeys(("acestep", "kugelaudio", "qwen3_asr", "vibevoice", "vibepod"), LLAMA),
    # Rhymes' Aria has a base of 10000
    "aria": ("half", lambda c: pairs(head(c), c.get("rope_theta", 5e5 if "max_seq_len" in c else 1e4)), everywhere),
    **dict.fromkeys(
        ("bailing_moe_linear", "bunny-phi"),
        ("half", lambda c: pairs(int(head(c) * c["partial_rotary_factor"]), c["rope_theta"]), everywhere),
    ),
    # transformers 4 reads the object, 5.24 does not
    "dbrx": ("half", lambda c: pairs(head(c, "d_model", "n_heads"), c["attn_config"]["rope_theta"]), everywhere),
    "fish_qwen3_omni": ("interleaved", lambda c: pairs(c["head_dim"], c["rope_base"]), everywhere),
    "maple": ("half", lambda c: pairs(64, c["rope_theta"]), lambda c, i: c["layer_types"][i] == "sliding_attention"),
    **dict.fromkeys(("mimo_v2", "naive_n05_flash"), ("half", of_mimo_v2, everywhere)),
    "nemotron_labs_diffusion": ("half", of_ministral, everywhere),
    "phi3small": ("half", lambda c: pairs(head(c), c["rope_embedding_base"]), everywhere),
    "plamo2": ("half", lambda c: pairs(c["hidden_size_per_head"]), lambda c, i: i % c["mamba_step"] == 1),
    "spark2_5": ("half", of_spark, everywhere),
    "nemotron-nas": (
        "half",
        lambda c: llama3(pairs(head(c), c["rope_theta"]), c["rope_scaling"]),
        lambda c, i: (
            not {"no_op", "replace_with_linear"} & {key for key, on in c["block_configs"][i]["attention"].items() if on}
        ),
    ),
    **dict.fromkeys(
        (
            *("bailing_moe", "internlm", "internlm2", "logics", "mimo", "mobilellm", "molmo", "orion", "plamo"),
            *("xverse", "yuan", "Yi", "deepseek"),
        ),
        LLAMA,
    ),
}


def text_of(keys):
    """Return the object of the text in a file."""
    names = ("text_config", "decoder_config", "llm_cfg", "llm_config", "language_config", "thinker_config")
    inner = next((keys[name] for name in names if isinstance(keys.get(name), dict)), None)
    return keys if inner is None else text_of(inner)


def formula_of(keys):
    """Return the formula of a file's text; None if transformers has its class, or it is of another form."""
    classes, scaling = keys.get("architectures") or [], keys.get("rope_scaling") or {}
    if classes in (["LlamaForCausalLMEagle3"], ["Eagle3LlamaForCausalLM"]) and "mrope_section" in scaling:
        return LLAMA
    return next(filter(None, (FORMULAS.get(each.get("model_type")) for each in (keys, text_of(keys)))), None)


@pytest.mark.parametrize(
    "name", [name for name, file in FILES.items() if formula_of(file["config"]) and name not in REFUSED]
)
def test_a_text_rotates_as_its_own_code_does(name):
    keys = FILES[name]["config"]
    pairing, formula, rotates = formula_of(keys)
    text = text_of(keys)
    layers = config.read(keys).layers()
    assert [rope is not None for rope in layers] == [rotates(text, i) for i in range(len(layers))]
    of_text = formula(text)
    for i, rope in ((i, rope) for i, rope in enumerate(layers) if rope is not None):
        found = of_text(i) if callable(of_text) else of_text  # of a layer, if they differ
        expected, factor = found if isinstance(found, tuple) else (found, 1.0)
        assert rope.pairing == pairing
        assert rope.attention_factor == pytest.approx(factor, rel=1e-12)
        assert [sum(column) for column in zip(*rows_of(rope), strict=True)] == pytest.approx(expected, rel=1e-12)


# --- other forms, by the config of the same model in a known one ------------------------------------------

N30 = {"num_layers": 30}
VIT = {"hidden_size": 1152, "num_attention_heads": 16}
GTE = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 2, "rope_theta": 160_000.0}
GTE |= {"rope_scaling": {"type": "ntk", "factor": 2.0}, "position_embedding_type": "rope"}
WAN, WAN_OF_DIFFUSERS = {"dim": 1536, "num_heads": 12}, {"num_attention_heads": 12, "attention_head_dim": 128}
LTX = {"num_attention_heads": 32, "attention_head_dim": 128, "audio_num_attention_heads": 32}
OSS = {"num_hidden_layers": 24, "head_dim": 64, "rope_theta": 150_000}
OSS_YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}
PARAMS = {"dim": 4096, "n_layers": 4, "n_heads": 32, "norm_eps": 1e-5, "hidden_dim": 14_336, "rope_theta": 5e5}
HF = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4, "rope_theta": 5e5}
HALF, STEP3 = {**HF, "partial_rotary_factor": 0.5}, {**HF, "head_dim": 256}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 8192}
TTS = FILES["Qwen/Qwen3-TTS-12Hz-1.7B-Base"]["config"]
TTS_CODES = TTS["talker_config"]["code_predictor_config"]
# name: (a file, the config of a known form, the pairing of the file)
OTHER_FORMS = {
    "Wan": ({"_class_name": "WanModel", "model_type": "t2v", **WAN}, ("WanTransformer3DModel", WAN_OF_DIFFUSERS), None),
    "LTX-2": (
        {"_class_name": "LTXVideoTransformerModel", "positional_embedding_theta": 1e4, **LTX},
        ("LTX2VideoTransformer3DModel", LTX | {"rope_type": "split"}),
        None,
    ),
    "gpt-oss": (
        OSS | {"initial_context_length": 4096, "rope_ntk_alpha": 1.0, "rope_scaling_factor": 32.0},
        ("gpt_oss", OSS | {"rope_scaling": OSS_YARN}),
        "half",
    ),
    "ExecuTorch, halves": (
        PARAMS | {"use_hf_rope": True, "partial_rotary_factor": 0.5},
        ("glm4_moe", HF | {"partial_rotary_factor": 0.5}),
        "half",
    ),
    "ExecuTorch, scaled": (
        PARAMS | {"use_hf_rope": False, "use_scaled_rope": True},
        ("llama", HF | {"rope_scaling": LLAMA3}),
        "interleaved",
    ),
    "ExecuTorch for Qualcomm": (
        PARAMS | {"use_hf_rope": False, "no_rope_layer_interval": 4},
        ("smollm3", HF),
        "half",
    ),
    "DeepSeek without MLA": (
        {"model_type": "deepseek_v2", "use_mla": False, "qk_rope_head_dim": 0, "qk_nope_head_dim": 0, **HF},
        ("llama", HF),
        "half",
    ),
    "DeepSeek-V4": (
        FILES["deepseek-ai/DeepSeek-V4-Flash (inference)"]["config"],
        ("deepseek_v4", FILES["deepseek-ai/DeepSeek-V4-Flash"]["config"]),
        None,
    ),
    "Flux": (
        FILES["black-forest-labs/FLUX.1-dev"]["config"],
        ("FluxTransformer2DModel", {"num_layers": 19, "num_single_layers": 38}),
        None,
    ),
    "Flux of VeOmni": (
        FILES["ByteDance-Seed/VeOmni flux"]["config"],
        ("FluxTransformer2DModel", {"num_layers": 19, "num_single_layers": 38}),
        None,
    ),
    "LTX-Video": (
        FILES["Lightricks/LTX-Video transformer"]["config"],
        ("LTXVideoTransformer3DModel", {"num_layers": 28}),
        None,
    ),
    "Ovi": (FILES["character-ai/Ovi video dit"]["config"], ("WanModel", {"dim": 3072, "num_heads": 24} | N30), None),
    "Moshi": (
        FILES["kyutai/moshiko 7B"]["config"],
        ("llama", {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}),
        "interleaved",
    ),
    "LongCat-Video": (
        FILES["meituan-longcat/LongCat-Video dit"]["config"],
        ("WanTransformer3DModel", {"num_attention_heads": 32, "attention_head_dim": 128, "num_layers": 48}),
        None,
    ),
    "LongCat-Video-Avatar": (
        FILES["meituan-longcat/LongCat-Video-Avatar dit"]["config"],
        ("WanTransformer3DModel", {"num_attention_heads": 32, "attention_head_dim": 128, "num_layers": 48}),
        None,
    ),
    "Qwen3-TTS": (TTS["talker_config"], ("qwen3_omni_moe_talker_text", TTS["talker_config"]), None),
    "Qwen3-TTS's codes": (TTS_CODES, ("qwen3", TTS_CODES), None),
    "Zamba2": (
        {"model_type": "zamba2", "use_mem_rope": True, **HF},
        ("zamba2", {"use_mem_rope": True, **HF, "attention_head_dim": 256}),
        None,
    ),
    "OLMo": (
        {"model_type": "hf_olmo", "rope": True, "d_model": 4096, "n_heads": 32, "n_layers": 4, "rope_theta": 5e5},
        ("olmo", HF),
        None,
    ),
    "Kimi-VL's tower": ({"model_type": "moonvit", **VIT}, ("kimi_k25_vision", VIT), "interleaved"),
    "Ming's tower": ({"model_type": "qwen3_moe_vit", **VIT}, ("qwen3_vl_moe_vision", VIT), None),
    "Ming's first tower": ({"model_type": "qwen2_5_vit", **VIT}, ("qwen2_5_vl_vision", VIT), None),
    "MiMo-V2's tower": ({"model_type": "mimovl", "qk_channels": 72}, ("qwen3_vl_vision", VIT), None),
    "VARGPT": (
        FILES["VARGPT-v1.1"]["config"],
        ("qwen2_vl", FILES["VARGPT-v1.1"]["config"]),
        None,
    ),
    # arctic, solar and aquila, vllm 0.10.2; iquestloopcoder, sdar, nanbeige and llada2_moe, sglang 0.5.23; youtu_llm,
    # mlx-lm d78bf58; grove_moe, Dream and llada, llama.cpp 0c1e570; step3_text and longcat_flash_ngram, vllm 0.33.0
    **{
        name: ({"model_type": name, **HF}, ("llama", HF), "half")
        for name in (
            *("aquila", "arctic", "aria_moe_lm", "bunny-llama", "Dream", "grove_moe", "iquestloopcoder", "llada"),
            *("nanbeige", "sdar", "sdar_moe", "solar"),
        )
    },
    "step3_vl": ({"model_type": "step3_vl", "text_config": STEP3}, ("llama", STEP3), "half"),
    "llada2_moe": ({"model_type": "llada2_moe", **HALF}, ("bailing_moe_v2", HALF), None),
    "youtu_llm": ({"model_type": "youtu_llm", **HF}, ("deepseek_v3", HF), None),
    "longcat_flash_ngram": ({"model_type": "longcat_flash_ngram", **HF}, ("longcat_flash", HF), None),
    "gte": ({"model_type": "gte", **GTE}, ("new", GTE), "half"),
    "dots.ocr": ({"model_type": "dots_ocr", **HF}, ("qwen2", HF), "half"),
}


@pytest.mark.parametrize("name", OTHER_FORMS)
def test_another_form_rotates_as_a_known_one(name):
    file, (kind, keys), pairing = OTHER_FORMS[name]
    key = "_class_name" if kind[0].isupper() else "model_type"
    theirs, ours = config.read(keys | {key: kind}), config.read(file)
    for part in theirs.parts:
        for one, known in zip(ours.explain(part=part), theirs.explain(part=part), strict=True):
            assert one.rope == replace(known.rope, pairing=pairing or known.rope.pairing)
            assert one.layers == known.layers


@pytest.mark.parametrize(("length", "factor"), [(2048, 1), (2049, 3), (4096, 3), (4097, 7), (20_000, 31)])
def test_qwen_1_raises_its_base_by_doublings(length, factor):
    """modeling_qwen.py: ntk_alpha = max(2 ** ceil(log2(length / seq_length) + 1) - 1, 1)."""
    qwen = {"model_type": "qwen", "kv_channels": 128, "seq_length": 2048, "use_dynamic_ntk": True}
    rope = config.read(qwen).rope(sequence_length=length)
    assert rope.frequencies == pytest.approx(pairs(128, 1e4 * factor ** (128 / 126)), rel=1e-12)


@pytest.mark.parametrize("length", [2048, 10_000])
def test_nomic_and_internlm_raise_their_base_with_the_length(length):
    nomic = {"model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "rotary_emb_fraction": 1.0, "n_positions": 8192}
    nomic |= {"rotary_scaling_factor": 2, "rotary_emb_base": 1000}
    internlm = {"model_type": "internlm", "hidden_size": 4096, "num_attention_heads": 32, "rotary": {"type": "dynamic"}}
    for keys, (width, base, factor) in (
        (nomic, (64, 1e3, 2.0)),
        (internlm | {"max_position_embeddings": 2048}, (128, 1e4, 1.0)),
    ):
        found = config.read(keys).rope(sequence_length=length).frequencies
        assert found == pytest.approx(dynamic_ntk(width, base, factor, 2048, length), rel=1e-12)


def test_layers_with_a_window_of_baichuan_m1_have_heads_of_another_width():
    """Read in mlx-lm d78bf58: the width of a head is that of the model over the number of heads of the layer."""
    heads = {"num_attention_heads": 20, "num_swa_attention_heads": 40, "sliding_window_layers": [1]}
    keys = {"model_type": "baichuan_m1", "hidden_size": 5120, "num_hidden_layers": 2, "rope_theta": 1e6} | heads
    full, window = config.read(keys).layers()
    assert full.frequencies == pytest.approx(pairs(256, 1e6), rel=1e-12)
    assert window.frequencies == pytest.approx(pairs(128, 1e6), rel=1e-12)


@pytest.mark.parametrize(("kind", "base"), {"arctic": 1e6, "iquestloopcoder": 5e5, "youtu_llm": 1.6e6}.items())
def test_a_model_of_remote_code_has_the_default_base_of_its_class(kind, base):
    keys = {key: value for key, value in HF.items() if key != "rope_theta"}
    rope = config.read({"model_type": kind, **keys}).rope()
    assert rope.frequencies == pytest.approx(pairs(2 * len(rope.frequencies), base), rel=1e-12)


def test_zaya_of_its_own_code_rotates_in_every_second_layer():
    """Zyphra's files count layers of experts too; those of transformers don't, and have the keys in rope_parameters."""
    zaya = {"model_type": "zaya", "head_dim": 128, "num_attention_heads": 8, "num_hidden_layers": 4}
    outside = {"rope_scaling": False, "rope_theta": 5_000_000, "partial_rotary_factor": 0.5}
    layers = config.read(zaya | outside).layers()
    assert [rope is not None for rope in layers] == [True, False, True, False]
    assert layers[0].frequencies == pytest.approx(pairs(64, 5e6), rel=1e-12)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_type": "step3p5", "rope_scaling": LLAMA3}, "the code of the weights scales all layers"),
        (
            {"model_type": "zamba2", "attention_head_dim": 128, **HF},
            "must agree with 2 \\* hidden_size // num_attention",
        ),
        ({"model_type": "hf_olmo", "d_model": 64, "n_heads": 2}, "config must have rotary embedding"),
        ({"model_type": "deepseek_ref", **HF}, "got 'deepseek_ref'"),
        ({"model_type": "gte", "position_embedding_type": "absolute"}, "position_embedding_type must be rope"),
        ({"model_type": "gte", "logn_attention_scale": True}, "logn_attention_scale must be False"),
        ({"model_type": "mimo_v2", "rope_theta": 1e6} | HF, "swa_rope_theta must be given"),
        ({"model_type": "plamo2", "mamba_enabled": False} | HF, "mamba_enabled must be True"),
        ({"model_type": "baichuan_m1"} | HF, "sliding_window_layers must be given"),
        ({"_class_name": "Transformer3DModel"}, "positional_embedding_theta must be given"),
        ({"_class_name": "Transformer3DModel", "positional_embedding_type": "absolute"}, "must be rope"),
        ({"dim": 64, "n_layers": 2, "n_heads": 2, "compress_ratios": [0, 4]}, "head_dim must be given"),
        ({"depformer_dim": 64, "num_heads": 2, "dim": 64, "positional_embedding": "sin"}, 'be "rope" or "none"'),
    ],
)
def test_what_these_forms_lack_is_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        config.read(keys).rope()
