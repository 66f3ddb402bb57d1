"""
Configs as people published them, with all their keys: each part is read as its own code rotates, layer by layer.

``whole_configs.json`` has the files, with their source; names of people, paths and long texts are "x". The rotation of
a part of which transformers or diffusers has the class is that of the class. That of any other is computed by a formula
of `FORMULAS`, written from the code that comes with its weights, or from an engine that runs it. There is no third.
"""

import json
import math
import random
import re
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import cache, reduce
from pathlib import Path

import numpy as np
import pytest
import refused_table
from configs import PUBLISHED, rows_of

from rope_any import config

FILES = json.loads(Path(__file__).with_name("whole_configs.json").read_text(encoding="utf-8"))
FILES |= {file["model"]: file for file in PUBLISHED}
OLMO = {"model_type": "hf_olmo", "rope": True, "d_model": 4096, "n_heads": 32, "n_layers": 4, "rope_theta": 5e5}
MADE = {"OLMo": {"config": OLMO}}  # a form that has no whole file with rotary


# Files of which a part is refused, and the reason.
REFUSED = {
    "THUDM/chatglm-6b": "each half of its heads has positions of its own",
    "adept/fuyu-8b": "rope_theta must be in text_config: only that part is read",  # transformers takes another base
    "gemma3 0eeac48b": "layer_types must have 4 entries",  # which are 62
    "AngelSlim qwen2.5-vl-3b eagle3": "rope_scaling.mrope_interleaved must be true",  # its engines don't stride
    "llava fbe9d95d": "head_dim must agree with vision_config.hidden_size // vision_config.num_attention_heads, 16",
    "params 12cae83e": "factor must be given, since use_scaled_rope is true and the file does not have it",
    "params 4bd949c4": "rope_theta must be given, since vocab_size does not determine the version of Llama",
    "phi3 3fb8ecd5": "rope_factors_long.weight must not be given",  # "x" in place of a tensor
    # scalings and switches of their own code
    "inclusionAI/Ming-UniVision-16B-A3B": "rope_scaling.type must be one of .* got '3D'",
    "inclusionAI/Ming-flash/lite-omni 2": "rope_scaling.type must be one of .* got 'video_rope'",
    "Owen777/UltraFlux-v1 transformer": "ntk_factor must not be given",
    "character-ai/Ovi audio dit": "temporal_rope_scaling_factor must not be given",
    "OPPOer/AndesVL": "disable_rope must not be given for aimv2",
    "OpenMOSS/MOSS-TTS-Nano": "rope_base must not be given for gpt2",
    "ACE-Step/ACE-Step-v1-3.5B transformer": "rope_theta must not be given for Transformer2DModel",  # it is no rotation
    # rotations that no Rope can express, or that are not read
    "falcon_perception 4432a65f": "half of each head rotates by frequencies of its own",
    **dict.fromkeys(("Qwen/Qwen2.5-Omni", "Qwen/Qwen2.5-Omni-7B-AWQ"), "it rotates only the first head"),
    "MiniMaxAI/MiniMax-H3 transformer": "got 'MiniMaxH3DiTModel'; make the Rope of another class by hand",
    "MiniMaxAI/MiniMax-H3 vae": "its decoder has rotary in an autoencoder",
    "rain1011/pyramid-flow-sd3": "got 'PyramidDiffusionMMDiT'; make the Rope of another class by hand",
}
# How many others are refused: autoencoders and UNets, models that are not known, and texts in place of numbers.
KINDS_REFUSED = {
    "it is no transformer of diffusers": 32,
    "^model_type must be (given|one whose rotation is known)": 15,
    "without quotes": 4,
}


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
    assert sum(len(read_parts(name)[0]) for name in FILES) >= 564  # each is held below
    assert len(kinds) >= 100


@cache
def read_parts(name):
    """Return what is read of each part of a file, and why others are refused."""
    found, reasons = {}, []
    try:
        read = config.read((FILES | MADE)[name]["config"])
    except (TypeError, ValueError) as error:
        return found, [str(error)]
    for part in read.parts:
        try:
            found[part] = read.explain(part=part)
        except (TypeError, ValueError) as error:
            reasons.append(str(error))
    return found, reasons


def test_what_is_refused_has_its_reason():
    refused = {name: reasons for name in FILES if (reasons := read_parts(name)[1])}
    for name, reason in REFUSED.items():
        assert any(re.search(reason, each) for each in refused.pop(name)), name
    kinds = [kind for kind in KINDS_REFUSED for reasons in refused.values() if re.search(kind, reasons[0])]
    assert Counter(kinds) == KINDS_REFUSED
    assert len(kinds) == len(refused)


def test_the_table_of_refused_models_is_that_of_the_rows():
    assert refused_table.PAGE.read_text(encoding="utf-8") == f"{refused_table.table()}\n"  # else run it with --write


# --- models of transformers and diffusers ------------------------------------------------------------------


@pytest.fixture(scope="module")
def peers():
    """Return the modules that run classes of transformers, texts and towers, and the cases by the name of a config."""
    pytest.importorskip("torch", reason="the peers run on torch")
    pytest.importorskip("transformers", minversion="5.23", reason="the peers are models of transformers")
    import test_architectures
    import test_towers
    from rotary_classes import in_source

    cases = [*reversed([case for case, _ in in_source()]), *test_architectures.OTHERS]
    return test_architectures, test_towers, {case.config: case for case in cases}


def config_of(keys):
    """Return the config of a file, or of its text, as its class in transformers loads it; None if there is no class."""
    known = pytest.importorskip("transformers").CONFIG_MAPPING
    for given in (keys, text_of(keys)):
        name = {"vargpt_qwen2_vl": "qwen2_vl"}.get(given.get("model_type"), given.get("model_type"))  # it has its code
        if name in known:
            return known[name].from_dict(deepcopy(given))
    return None


def inner_configs(whole):
    """Yield the path to each config within that of a class, and the config."""
    for name in type(whole).sub_configs:
        if (inner := getattr(whole, name, None)) is not None and hasattr(inner, "model_type"):
            yield name, inner
            yield from ((f"{name}.{path}", each) for path, each in inner_configs(inner))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore:`rope_scaling` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", [name for name, file in FILES.items() if "_class_name" not in file["config"]])
def test_a_part_rotates_as_its_class_does(name, peers):
    architectures, towers, cases = peers
    keys, (parts, _) = FILES[name]["config"], read_parts(name)
    left = [part for part in parts if part != "indexer" and not formula_of(keys, part)]
    whole = config_of(keys) if left else None
    inner = dict(inner_configs(whole)) if left else {}
    axial = [path for path, each in inner.items() if type(each) in towers.TYPES and keys.get(path.split(".")[0])]
    for part in left:
        path = axial[0] if part == "vision" else part
        if path in axial:
            axial.remove(path)
            towers.compare_published(inner[path], keys, part)
        else:
            text = inner[path] if path in inner else text_config(whole, inner, keys)
            compare_layers(architectures, cases[type(text).__name__], text, parts[part])
    assert not axial or name in REFUSED  # no part is passed over


def text_config(whole, inner, keys):
    """Return the config of the text, which older files have on their first level."""
    text = whole.get_text_config()
    path = next((path for path, each in inner.items() if each is text), None)
    return type(text).from_dict(deepcopy(keys)) if path and path.split(".")[0] not in keys else text


@pytest.mark.parametrize("name", [name for name in FILES if not any(read_parts(name))])
def test_a_class_without_rotary_is_one(name, peers):
    try:
        whole = config_of(FILES[name]["config"])
    except ValueError as error:
        pytest.skip(f"transformers can't load it: {str(error)[:80]}")
    assert whole is None or type(whole.get_text_config()).__name__ not in peers[2]


def compare_layers(peers, case, text, explained):
    """Compare the layers of a part with the rotary class of its config."""
    types = getattr(text, "layer_types", None) or []
    for one in (one for one in explained if one.layers != ()):
        if one.layer_type in types:
            assert [*one.layers] == [i for i, each in enumerate(types) if each == one.layer_type]
        kinds = (one.layer_type, None)  # a class may have one table for all layers
        rotation = next(filter(None, (peers.theirs(case._replace(layer_type=kind), text) for kind in kinds)), None)
        assert (rotation is None) == (one.rope is None)
        if rotation is not None:
            peers.assert_same_frequencies(one.rope, rotation)
            factor = (getattr(text, "rope_parameters", None) or {}).get("short_mscale", rotation.factor)  # of PhiMoE
            assert one.rope.attention_factor == pytest.approx(factor, rel=1e-6)
            assert peers.distance(one.rope, rotation) < peers.TOLERANCE  # by the pairing too


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore:`FluxPosEmbed` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", [name for name, file in FILES.items() if "_class_name" in file["config"]])
def test_a_transformer_rotates_as_its_class_does(name, monkeypatch):
    keys, (parts, _) = FILES[name]["config"], read_parts(name)
    for part in [part for part in parts if not formula_of(keys, part)]:
        pytest.importorskip("torch", reason="the peers run on torch")
        pytest.importorskip("diffusers", minversion="0.42", reason="the peers are models of diffusers 0.42")
        import test_diffusers

        assert part == "transformer"
        own = {key: value for key, value in keys.items() if not key.startswith("_")}
        test_diffusers.compare(monkeypatch, keys["_class_name"], own, (1, 3, 4), random.Random(name))


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


def of_minicpm(c):
    """Return the frequencies of MiniCPM and Phi, and the factor of cos and sin."""
    width = c.get("qk_rope_head_dim") or int(head(c) * c.get("partial_rotary_factor", 1))
    scaled = "short_factor" in (c.get("rope_scaling") or {})  # the dynamic scaling of MiniCPM is for longer sequences
    return longrope(c, width) if scaled else pairs(width, c.get("rope_theta", 1e4))


def of_mimo_v2(c):
    """Return the frequencies of MiMo-V2 by the index of a layer, of which those with a window have another base."""
    rotary = int(c["head_dim"] * c["partial_rotary_factor"])
    return lambda i: pairs(rotary, c["swa_rope_theta" if c["hybrid_layer_pattern"][i] else "rope_theta"])


def of_spark(c):
    """Return the frequencies of Spark 2.5 by the index of a layer, of which each kind has its own parameters."""
    given = [c["rope_parameters"][kind] for kind in c["layer_types"]]
    return lambda i: pairs(int(c["head_dim"] * given[i]["partial_rotary_factor"]), given[i]["rope_theta"])


def yarn(width, base, s, original, betas=(32, 1), *, whole=True):
    """Return frequencies with YaRN's ramp, between the numbers of turns `betas` within the original length."""
    low, high = (width / 2 * math.log(original / (2 * math.pi * beta)) / math.log(base) for beta in betas)
    if whole:
        low, high = math.floor(low), math.ceil(high)
    kept = 1 - np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)
    return pairs(width, base) * (kept + (1 - kept) / s)


def scaled_by_yarn(given, width, base):
    """Return the frequencies of YaRN with equal scales, so that cos and sin have no factor."""
    original, betas = given["original_max_position_embeddings"], (given["beta_fast"], given["beta_slow"])
    return yarn(width, base, given["factor"], original, betas)


def of_deepseek_v4(c):
    """Return the frequencies of DeepSeek-V4 by the index of a layer: those that compress have another base and YaRN."""
    inference = {"factor": "rope_factor", "original_max_position_embeddings": "original_seq_len"}
    given = c.get("rope_scaling") or c | {ours: c[theirs] for ours, theirs in inference.items()}
    width = c.get("qk_rope_head_dim") or c["rope_head_dim"]
    plain, compressed = pairs(width, c.get("rope_theta", 1e4)), scaled_by_yarn(given, width, c["compress_rope_theta"])
    last = {"start": c["head_dim"] - width}
    return lambda i: (compressed if c["compress_ratios"][i] else plain, 1.0, last)


def of_executorch(c):
    """Return pairing, frequencies by the index of a layer, and the layers that rotate, of a params file."""
    base, kinds, every = c.get("rope_theta", 1e4), c.get("layer_types"), c.get("no_rope_layer_interval")
    of_qualcomm = {"attention_multiplier", "no_rope_layer_interval", "model_architecture"} & c.keys()
    width = int(c.get("head_dim", c["dim"] // c["n_heads"]) * c.get("partial_rotary_factor", 1))
    usual, local = pairs(width, base), pairs(width, c.get("local_rope_theta", base))
    if short := c.get("rope_scaling_short_factor"):
        usual = longrope(c | {"rope_scaling": {"short_factor": short}}, width)
    return (
        "half" if c["use_hf_rope"] or of_qualcomm else "interleaved",
        lambda _: lambda i: local if kinds and kinds[i] == "sliding_attention" else usual,
        lambda _, i: kinds[i] in ROTATING if kinds else not every or (i + 1) % every > 0,
    )


def axial(*runs):
    """Return the frequencies of axes that have one run of pairs after the other."""
    sizes = np.cumsum([0, *map(len, runs)])
    rows = np.zeros((len(runs), sizes[-1]))
    for row, run, start in zip(rows, runs, sizes, strict=False):
        row[start : start + len(run)] = run
    return rows


def in_turn(axes, *, of_pair):
    """Return the frequencies of axes that take those of all pairs in turn; `of_pair` are the frequencies."""
    return np.where(np.arange(len(of_pair)) % axes == np.arange(axes)[:, None], of_pair, 0)


def of_wan(hidden):
    """Return the formula of Wan, whose first axis has what is left of thirds."""

    def formula(c):
        d = c[hidden] // c["num_heads"]
        side = 2 * (d // 6)
        return axial(pairs(d - 2 * side), pairs(side), pairs(side))

    return formula


def over_all_heads(c, width, axes):
    """Return the frequencies of LTX over all heads, from π/2 to the base times it; axes take them in turn."""
    n = width // (2 * axes)
    run = c["positional_embedding_theta"] ** (np.arange(n) / (n - 1)) * math.pi / 2
    return in_turn(axes, of_pair=run.repeat(axes))


def of_ltx2(axes, heads, head_dim):
    """Return the formula of LTX-2 in halves, whose first pairs are still if the width leaves some."""

    def formula(c):
        width = c[heads] * c[head_dim]
        rows = over_all_heads(c, width, axes)
        return np.pad(rows, ((0, 0), (width // 2 - rows.shape[1], 0))), 1.0, {"blocks": c[heads]}

    return formula


def of_moonvit(width, heads):
    """Return the formula of MoonViT, whose columns and rows take the same frequencies in turn."""
    return lambda c: in_turn(2, of_pair=pairs(c[width] // c[heads] // 2).repeat(2))[::-1]


def of_talker(c):
    """Return the frequencies of Qwen3-TTS: rows and columns have every third pair, within their sections."""
    whole, sections = pairs(c["head_dim"], c["rope_theta"]), c["rope_scaling"]["mrope_section"]
    of_axis = np.zeros(len(whole), int)
    for axis in (1, 2):
        of_axis[axis : 3 * sections[axis] : 3] = axis
    return np.where(of_axis == np.arange(3)[:, None], whole, 0)


def everywhere(c, i):  # noqa: ARG001  # of a config and the index of a layer
    """Return True: each layer rotates."""
    return True


def half(formula, rotates=everywhere):
    """Return an entry of `FORMULAS` with this pairing."""
    return "half", formula, rotates


def interleaved(formula, rotates=everywhere):
    """Return an entry of `FORMULAS` with this pairing."""
    return "interleaved", formula, rotates


def by_key(width, base="rope_theta"):
    """Return the formula of a key that gives the number of features, and one that gives the base."""
    return lambda c: pairs(c[width], c.get(base, 1e4))


def by_head(hidden="hidden_size", heads="num_attention_heads", base="rope_theta"):
    """Return the formula of a whole head."""
    return lambda c: pairs(head(c, hidden, heads), c.get(base, 1e4))


def by_share(share, base="rope_theta"):
    """Return the formula of a share of the head."""
    return lambda c: pairs(int(head(c) * c[share]), c.get(base, 1e4))


ROTATING = ("full_attention", "sliding_attention")
LLAMA = half(by_head())
# By the name of a model or class, of the form of a file (FORMS), and of the part after ":": the pairing, the
# frequencies (and the factor of cos and sin if it is not 1, and other fields of Rope), the layers that rotate. Sources:
# acestep, modeling_acestep_v15_turbo.py; MapleForCausalLM, llama.cpp 0c1e570 maple.cpp; aria, modeling_aria.py of
# EleutherAI; axes_dim, black-forest-labs/flux; baichuan, vllm 0.10.2 baichuan.py; bailing_moe, inclusionAI/Ling; its
# tower, qwen2_5_vit.py; bailing_moe_linear, openelm, plamo, plamo2 and phi3small, mlx-lm d78bf58, and of the first
# sglang 0.5.23; bunny-phi, BAAI/Bunny; chatglm, modeling_chatglm.py of ChatGLM2 and GLM-4; deepseek_ref, rope_head_dim
# and inter_dim, inference/model.py of DeepSeek-V4 and V3; deepseek_vl_v2, vllm 0.33.0 deepseek_v2.py; depformer_dim,
# kyutai-labs/moshi; fish_qwen3_omni, fishaudio/fish-speech; FluxModel, ByteDance-Seed/VeOmni d977449; hf_olmo,
# allenai/OLMo olmo/model.py; hidden_dim, mistralai/mistral-inference; hunyuan, Tencent-Hunyuan/Hunyuan-A13B; kimi_k2,
# modeling_deepseek.py; kimi_k3 and locateanything, mlx-vlm 9b13f522; llava_llama, haotian-liu/LLaVA and NVlabs/VILA;
# logics, alibaba/Logics-Thinking 37c023b; LongCat, meituan-longcat/LongCat-Video 6b3f4b8; LTX, Lightricks/LTX-Video
# 5260738 and LTX-2 400fd31; mimo_v2, vllm 0.33.0 mimo_v2.py and mimo_v2_omni.py; minicpmv, vllm 0.33.0 minicpmv.py;
# minimax_m1, modeling_minimax_m1.py; minimax_m3, vllm 0.33.0 minimax_m3; mixformer-sequential and phi-msft,
# modeling_mixformer_sequential.py; mobilellm, facebookresearch/MobileLLM 8b9769d; moss, modeling_moss.py;
# naive_n05_flash, modeling_naive_n05_flash.py; nemotron-nas, modeling_decilm.py; nemotron_labs_diffusion,
# modeling_ministral.py; new, configuration.py and modeling.py of Alibaba-NLP/new-impl; PanguEmbedded,
# modeling_openpangu_dense.py; phi3_v, modeling_phi3_v.py; PyramidFlux, jy0205/Pyramid-Flow; qwen, modeling_qwen.py of
# Qwen-72B; qwen3_tts, modeling_qwen3_tts.py; RefinedWeb, modelling_RW.py; rope_ntk_alpha, openai/gpt-oss 7b58334;
# spark2_5, sglang 0.5.23 spark2_5.py; stablelm_epoch, modeling_stablelm_epoch.py; use_hf_rope, pytorch/executorch
# cff6f4d; Wan, Wan-Video/Wan2.1 9737cba; yuan, IEIT-Yuan/Yuan-2.0; the drafts of AngelSlim 67394ce, llama_eagle3.py.
_FORMULAS = {
    """
    acestep bailing_moe bidir_mistral deepseek deepseek_vl_v2 infimm-zephyr:language internlm internlm2 kugelaudio
    llama3v logics mimo mineru2_qwen mobilellm molmo orion PanguEmbedded plamo qwen3_asr
    qwen3_tts:talker_config.code_predictor_config unlimited-ocr vibepod vibevoice xverse Yi yuan
    """: LLAMA,
    "qwen": half(lambda c: pairs(int(c["kv_channels"] * c["rotary_pct"]), c["rotary_emb_base"])),
    "chatglm": interleaved(lambda c: pairs(c["kv_channels"] // 2, 1e4 * c.get("rope_ratio", 1))),
    "baichuan": half(by_head(), lambda c, _: c["hidden_size"] == 4096),
    "minicpm minicpmv MiniCPM3ForCausalLM phi3:su phi3_v phi4": half(of_minicpm),
    "minimax_m3 mixformer-sequential phi-msft": half(by_key("rotary_dim")),
    "minimax_m1": half(by_key("rotary_dim"), lambda c, i: c["attn_type_list"][i] == 1),
    "moss": interleaved(by_key("rotary_dim")),
    "new": half(of_gte),
    # Rhymes' Aria has a base of 10000
    "aria": half(lambda c: pairs(head(c), c.get("rope_theta", 5e5 if "max_seq_len" in c else 1e4))),
    "bailing_moe_linear bunny-phi": half(by_share("partial_rotary_factor")),
    "gpt_neox_reward_model": half(by_share("rotary_pct", "rotary_emb_base")),
    "stablelm_epoch": half(by_share("rope_pct")),
    # transformers 4 reads the object, 5.24 does not
    "dbrx": half(lambda c: pairs(head(c, "d_model", "n_heads"), c["attn_config"]["rope_theta"])),
    "fish_qwen3_omni fish_qwen3_omni:audio_decoder_config": interleaved(by_key("head_dim", "rope_base")),
    "MapleForCausalLM": half(lambda c: pairs(64, c["rope_theta"]), lambda c, i: c["layer_types"][i] == ROTATING[1]),
    "mimo_v2 naive_n05_flash": half(of_mimo_v2),
    "nemotron_labs_diffusion": half(
        lambda c: scaled_by_yarn(c["rope_parameters"], head(c), c["rope_parameters"]["rope_theta"])
    ),
    "kimi_k2": interleaved(lambda c: scaled_by_yarn(c["rope_scaling"], 64, c["rope_theta"])),
    "RefinedWeb RefinedWebModel": half(by_head(heads="n_head")),
    "openelm": half(by_key("head_dim", "rope_freq_constant")),
    # its base is that of dynamic scaling with alpha in place of a factor
    "hunyuan": half(lambda c: pairs(128, c["rope_theta"] * c["rope_scaling"]["alpha"] ** (128 / 126))),
    "hf_olmo": half(by_head("d_model", "n_heads")),
    "phi3small": half(by_head(base="rope_embedding_base")),
    "plamo2": half(by_key("hidden_size_per_head", ""), lambda c, i: i % c["mamba_step"] == 1),
    "spark2_5": half(of_spark),
    "nemotron-nas": half(
        lambda c: llama3(pairs(head(c), c["rope_theta"]), c["rope_scaling"]),
        lambda c, i: (
            not {"no_op", "replace_with_linear"} & {key for key, on in c["block_configs"][i]["attention"].items() if on}
        ),
    ),
    # --- files of other programs ---
    "use_hf_rope": of_executorch,
    "deepseek_ref rope_head_dim": interleaved(of_deepseek_v4),
    "inter_dim": interleaved(lambda c: yarn(c["qk_rope_head_dim"], 1e4, 40, 4096)),
    "rope_ntk_alpha": half(lambda c: (yarn(64, c["rope_theta"], 32, 4096, whole=False), 0.1 * math.log(32) + 1)),
    "depformer_dim": interleaved(by_head("dim", "num_heads", "max_period")),
    "hidden_dim": interleaved(by_key("head_dim")),
    "axes_dim": interleaved(lambda c: axial(*(pairs(n, c["theta"]) for n in c["axes_dim"]))),
    "FluxModel": interleaved(lambda _: axial(*map(pairs, (16, 56, 56)))),
    "PyramidFluxTransformer": interleaved(lambda c: axial(*map(pairs, c["axes_dims_rope"]))),
    "WanModel VaceWanModel ti2v": interleaved(of_wan("dim")),
    "LongCatVideoTransformer3DModel LongCatVideoAvatarTransformer3DModel": interleaved(of_wan("hidden_size")),
    "Transformer3DModel": interleaved(lambda c: (over_all_heads(c, 2048, 3), 1.0, {"start": 2048 % 6})),
    "LTXVideoTransformerModel": half(of_ltx2(3, "num_attention_heads", "attention_head_dim")),
    "LTXVideoTransformerModel:transformer.audio LTXVideoTransformerModel:transformer.cross": half(
        of_ltx2(1, "audio_num_attention_heads", "audio_attention_head_dim")
    ),
    # --- towers and other parts ---
    "bailingmm:vision bailingmm_moe_v2_lite:vision": half(
        lambda c: axial(*[pairs(head(c, heads="num_heads") // 2)] * 2)
    ),
    "mimo_v2:vision": half(lambda _: axial(pairs(32), pairs(32))),
    "mimo_v2:audio": half(by_key("input_local_head_dim")),
    "locateanything:vision": interleaved(of_moonvit("hidden_size", "num_attention_heads")),
    "kimi_k3:vision": interleaved(of_moonvit("qkv_hidden_size", "vt_num_attention_heads")),
    "qwen3_tts:talker_config": half(of_talker),
}
FORMULAS = {name: formula for names, formula in _FORMULAS.items() for name in names.split()}
# Keys that only the files of one program have, the last ones if those before are not there.
FORMS = ("use_hf_rope", "rope_head_dim", "inter_dim", "rope_ntk_alpha", "depformer_dim", "axes_dim", "hidden_dim")


def text_of(keys):
    """Return the object of the text in a file."""
    names = ("text_config", "decoder_config", "llm_cfg", "llm_config", "language_config", "thinker_config")
    inner = next((keys[name] for name in names if isinstance(keys.get(name), dict)), None)
    return keys if inner is None else text_of(inner)


def object_of(keys, part):
    """Return the object of a part of a file."""
    if part == "text":
        return text_of(keys)
    path = f"{part}_config" if part in ("vision", "audio") else part
    return reduce(lambda inner, key: inner.get(key) or {}, path.split("."), keys) or keys


def formula_of(keys, part):
    """Return the formula of a part of a file; None if transformers or diffusers has its class."""
    scaling, architectures = text_of(keys).get("rope_scaling") or {}, keys.get("architectures") or [""]
    if "mrope_section" in scaling and architectures[0] in ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"):
        return LLAMA
    outer = keys.get("_class_name") or keys.get("model_type") or architectures[0]
    names = [f"{outer}:{part}", "phi3:su" if scaling.get("type") == "su" else None]
    if part in ("text", "transformer") or (object_of(keys, part) is keys and part != "indexer"):
        names += [outer or next(form for form in FORMS if form in keys), object_of(keys, part).get("model_type")]
    found = next(filter(None, map(FORMULAS.get, names)), None)
    return found(keys) if callable(found) else found


LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "depth", "vt_num_hidden_layers")
LAYERS += ("input_local_layers", "num_transformer_layers")


@pytest.mark.parametrize("name", [*FILES, *MADE])
def test_a_part_rotates_as_its_own_code_does(name):
    keys = (FILES | MADE)[name]["config"]
    for part in [part for part in read_parts(name)[0] if formula_of(keys, part)]:
        pairing, formula, rotates = formula_of(keys, part)
        of_part, layers = object_of(keys, part), config.read(keys).layers(part=part)
        singles = of_part.get("num_single_layers", 0) + of_part.get("depth_single_blocks", 0)
        assert len(layers) == next(of_part[key] for key in LAYERS if key in of_part) + singles
        assert [rope is not None for rope in layers] == [bool(rotates(of_part, i)) for i in range(len(layers))]
        found = formula(of_part)
        for i, rope in ((i, rope) for i, rope in enumerate(layers) if rope is not None):
            of_layer = found(i) if callable(found) else found  # if they differ
            expected, factor, others = (*of_layer, {})[:3] if isinstance(of_layer, tuple) else (of_layer, 1.0, {})
            others = {"pairing": pairing, "start": 0, "blocks": 1} | others
            assert {key: getattr(rope, key) for key in others} == others
            assert rope.attention_factor == pytest.approx(factor, rel=1e-12)
            rows = np.array(rows_of(rope))
            np.testing.assert_allclose(rows if expected.ndim == 2 else rows.sum(0), expected, rtol=1e-12)


# How indexers rotate by the frequencies of the text, and from which feature: as the classes in test_indexers.py,
# vllm 0.33.0 minimax_m3, modeling_naive_n05_flash.py, and inference/model.py of DeepSeek-V3.2 and V4.
INDEXERS = {
    "glm_moe_dsa": ("interleaved", 0),
    **dict.fromkeys(("deepseek_v4", "deepseek_ref", "rope_head_dim"), ("interleaved", 64)),
    **dict.fromkeys(("deepseek_v32", "minimax_m3", "naive_n05_flash", "inter_dim"), ("half", 0)),
}


def test_indexers_rotate_as_the_layers_that_they_serve():
    names = [name for name in FILES if "indexer" in read_parts(name)[0]]
    assert len(names) > 20
    for name in names:
        keys, parts = FILES[name]["config"], read_parts(name)[0]
        pairing, start = INDEXERS[keys.get("model_type") or next(form for form in FORMS if form in keys)]
        (one,) = parts["indexer"]
        text = next(each for each in parts["text"] if each.layer_type in (one.layer_type, None))
        assert {*one.layers} <= {*text.layers}
        assert one.rope == replace(text.rope, pairing=pairing, start=start)


# --- other forms, by the config of the same model in a known one ------------------------------------------

GTE = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 2, "rope_theta": 160_000.0}
GTE |= {"rope_scaling": {"type": "ntk", "factor": 2.0}, "position_embedding_type": "rope"}
PARAMS = {"dim": 4096, "n_layers": 4, "n_heads": 32, "norm_eps": 1e-5, "hidden_dim": 14_336, "rope_theta": 5e5}
HF = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 4, "rope_theta": 5e5}
HALF, STEP3 = {**HF, "partial_rotary_factor": 0.5}, {**HF, "head_dim": 256}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 8192}
# name: (a file, the config of a known form, the pairing of the file)
OTHER_FORMS = {
    "ExecuTorch, scaled": (
        PARAMS | {"use_hf_rope": False, "use_scaled_rope": True},
        ("llama", HF | {"rope_scaling": LLAMA3}),
        "interleaved",
    ),
    "Zamba2": (
        {"model_type": "zamba2", "use_mem_rope": True, **HF},
        ("zamba2", {"use_mem_rope": True, **HF, "attention_head_dim": 256}),
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
