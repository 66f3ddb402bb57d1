"""Metadata of GGUF files: read as llama.cpp rotates, and as the config.json of the same model."""

import dataclasses
import re

import numpy as np
import pytest
from configs import FOUR_HEADS, LLAMA, YARN_KEYS, gguf, no_rotary

import rope_any as ra
from rope_any import Rope, config, scaling
from rope_any.config._config import readers_of
from rope_any.config.tables.gguf import ARCHITECTURES

F = ra.frequencies(128)


def half(frequencies=F, attention_factor=1.0):
    """Return a Rope that pairs halves."""
    return Rope(frequencies, pairing="half", attention_factor=attention_factor)


def interleaved(frequencies=F, attention_factor=1.0):
    """Return a Rope that pairs neighbours."""
    return Rope(frequencies, pairing="interleaved", attention_factor=attention_factor)


def yarn(factor, frequencies=F, base=1e4, original_length=32_768, **options):
    """Return frequencies of YaRN, by default from 32 768 tokens."""
    return scaling.yarn(frequencies, factor, base=base, original_length=original_length, **options)


M4, M32 = map(scaling.yarn_attention_factor, (4.0, 32.0))
M16 = scaling.yarn_attention_factor(16.0, mscale=1.0, mscale_all_dim=2.0)
F64, F_LLAMA3, F_OSS = ra.frequencies(64), ra.frequencies(128, base=5e5), ra.frequencies(128, base=1.5e5)
F_ALPHA = ra.frequencies(128, base=1e4 * 1000 ** (128 / 126))
SLICE = {"rope__dimension_count": 64, "attention__key_length": 576, "rope__scaling__yarn_log_multiplier": 0.1}
BETAS = {"rope__scaling__yarn_beta_fast": 16.0, "rope__scaling__yarn_beta_slow": 2.0}
FOUR, SIXTEEN = ({"rope__scaling__factor": factor, **YARN_KEYS} for factor in (4.0, 16.0))
LINEAR = {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}
OSS = {"rope__scaling__factor": 32.0, "rope__freq_base": 1.5e5, **YARN_KEYS}
MULTIPLIED = {"rope__scaling__yarn_log_multiplier": 2.0, "rope__scaling__attn_factor": 1.5, **SIXTEEN}
GGUF = {
    "llama, whose projections were permuted": (gguf("llama", rope__freq_base=5e5), interleaved(F_LLAMA3)),
    "no base": (gguf("qwen2"), half()),
    "half the head": (gguf("phi2", rope__dimension_count=64), half(F64)),
    "head counts by layer": (gguf("llama", attention__head_count=[32, 64]), interleaved()),
    "linear": (gguf("llama", **LINEAR), interleaved(scaling.linear(F, 4.0))),
    "linear, older": (gguf("llama", rope__scale_linear=4.0), interleaved(scaling.linear(F, 4.0))),
    "none": (gguf("llama", rope__scaling__type="none", rope__scaling__factor=4.0), interleaved()),
    "yarn": (gguf("qwen3", **FOUR), half(yarn(4.0), M4)),
    "yarn with an attention factor": (gguf("qwen2", rope__scaling__attn_factor=1.5, **FOUR), half(yarn(4.0), 1.5 * M4)),
    "a separate rotary slice": (gguf("deepseek2", **SLICE, **FOUR), interleaved(yarn(4.0, F64))),
    "a multiplier": (gguf("mistral3", rope__scaling__yarn_log_multiplier=1.0, **SIXTEEN), interleaved(yarn(16.0))),
    "a multiplier and an attention factor": (gguf("mistral3", **MULTIPLIED), interleaved(yarn(16.0), 1.5 * M16)),
    "alpha": (gguf("hunyuan-dense", rope__scaling__alpha=1000.0), half(F_ALPHA)),
    "betas": (gguf("mistral3", **BETAS, **FOUR), interleaved(yarn(4.0, beta_fast=16.0, beta_slow=2.0), M4)),
    "yarn within the length of the model": (
        gguf("qwen3", **LINEAR | {"rope__scaling__type": "yarn"}),
        half(yarn(4.0, original_length=131_072), M4),
    ),
    "gpt-oss, whose ramp is not rounded": (gguf("gpt-oss", **OSS), half(yarn(32.0, F_OSS, 1.5e5, truncate=False), M32)),
    "optional sections": (
        gguf("glm4", rope__dimension_sections=[8, 12, 12, 0], rope__dimension_count=64),
        half(ra.axes.chunked(F64, [8, 12, 12])),
    ),
    "two": (
        gguf("glm4", rope__dimension_sections=[16, 16, 0, 0], rope__dimension_count=64),
        half(ra.axes.chunked(F64, [16, 16])),
    ),
    "empty optional sections": (gguf("glm4", rope__dimension_count=64, rope__dimension_sections=[]), interleaved(F64)),
    "an equal base of sliding layers": (gguf("gpt-oss", rope__freq_base=1.5e5, rope__freq_base_swa=1.5e5), half(F_OSS)),
    "sections": (gguf("qwen2vl", rope__dimension_sections=[16, 24, 24, 0]), half(ra.axes.chunked(F, [16, 24, 24]))),
    "strided": (gguf("qwen3vl", rope__dimension_sections=[24, 20, 20, 0]), half(ra.axes.strided(F, [24, 20, 20]))),
}


@pytest.mark.parametrize("name", GGUF)
def test_gguf_metadata_is_read(name):
    metadata, expected = GGUF[name]
    rope = Rope.from_config(metadata)
    assert rope.pairing == expected.pairing
    np.testing.assert_allclose(rope.frequencies, expected.frequencies, rtol=1e-14)
    assert rope.attention_factor == pytest.approx(expected.attention_factor, rel=1e-12)


def test_values_of_gguf_have_its_keys_as_sources():
    (explanation,) = config.read(gguf("qwen3", rope__freq_base=1e6, rope__scaling__factor=4.0, **YARN_KEYS)).explain()
    assert explanation.facts["rope_theta"] == (1e6, "qwen3.rope.freq_base")
    assert explanation.facts["factor"] == (4.0, "qwen3.rope.scaling.factor")
    with pytest.raises(ValueError, match="config must be that of transformers; got the metadata of a GGUF file"):
        config.read(gguf("llama")).as_transformers()


# --- layers ---------------------------------------------------------------------------------------------------


def test_layers_of_gguf_are_read():
    gemma = gguf("gemma3", rope__freq_base=1e6, rope__scaling__type="linear", rope__scaling__factor=8.0)
    sliding, full = half(), half(scaling.linear(ra.frequencies(128, base=1e6), 8.0))
    assert Rope.from_config(gemma, layer_type="full_attention") == full
    assert config.read(gemma | {"gemma3.block_count": 6}).layers() == [*[sliding] * 5, full]
    pattern = gemma | {"gemma3.attention.sliding_window_pattern": [True, False, True, False]}
    assert config.read(pattern).layers() == [sliding, full] * 2
    assert config.read(gemma | {"gemma3.attention.sliding_window_pattern": 2}).layers() == [sliding, full] * 2
    assert [rope is not None for rope in config.read(gguf("smollm3")).layers()] == [True, True, True, False]
    assert no_rotary(gguf("mamba"))
    assert config.read(gguf("granitehybrid", rope__scaling__finetuned=False)).layers() == [None] * 4


# As conversion/*.py of llama.cpp writes them: metadata of hybrids, the config.json of the same models (without
# the sizes that are those of FOUR_HEADS), and how many layers rotate.
QWEN35 = {"attention.key_length": 256, "rope.dimension_count": 64, "rope.freq_base": 1e7}
QWEN35_VL = QWEN35 | {"rope.dimension_sections": [11, 11, 10, 0]}
WIDE = {"head_dim": 256, "rope_theta": 1e7}
FOUR_LAYERS = {"block_count": 4, "attention.key_length": 64}
YARN_OF_8 = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}
ROPE = {"position_embedding_type": "rope"}
HYBRIDS = {
    "qwen35": (
        QWEN35_VL | {"block_count": 64, "full_attention_interval": 4, "ssm.conv_kernel": 4},
        {"model_type": "qwen3_5_text", "num_hidden_layers": 64, **WIDE},
        16,
    ),
    "qwen35moe": (  # the last layer predicts a further token
        QWEN35_VL
        | {"block_count": 41, "nextn_predict_layers": 1}
        | {"attention.recurrent_layers": [*[True, True, True, False] * 10, False]},
        {"model_type": "qwen3_5_moe_text", "num_hidden_layers": 40, **WIDE},
        10,
    ),
    "qwen3next": (QWEN35 | {"block_count": 48}, {"model_type": "qwen3_next", "num_hidden_layers": 48, **WIDE}, 12),
    "lfm2": (
        {"block_count": 16, "attention.head_count": 16, "embedding_length": 1024, "rope.freq_base": 1e6}
        | {"attention.head_count_kv": [0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0], "shortconv.l_cache": 3},
        {"model_type": "lfm2", "num_hidden_layers": 16, "num_attention_heads": 16, "hidden_size": 1024}
        | {"full_attn_idxs": [2, 5, 8, 10, 12, 14]},
        6,
    ),
    "granitehybrid": (
        FOUR_LAYERS | {"attention.head_count_kv": [0, 8, 0, 0], "ssm.state_size": 128, "rope.scaling.finetuned": True},
        {"model_type": "granitemoehybrid", "layer_types": ["mamba", "attention", "mamba", "mamba"], **ROPE},
        1,
    ),
    "granite": (  # Granite 4.0 Micro, a hybrid's class without hybrid layers
        {"block_count": 4, "embedding_length": 256, "attention.head_count": 4, "attention.head_count_kv": [8] * 4}
        | {"rope.dimension_count": 64, "rope.freq_base": 1e7, "rope.scaling.finetuned": True, "ssm.conv_kernel": 4},
        {"model_type": "granitemoehybrid", "layer_types": ["attention"] * 4, "rope_theta": 1e7, **ROPE},
        4,
    ),
    # without a window, all layers rotate
    "exaone4": (FOUR_LAYERS | {"context_length": 4096}, {"model_type": "exaone4", "sliding_window": None}, 4),
    "olmo2": (  # OLMo 3, whose converter writes the attention factor of the config.json, in float32
        FOUR_LAYERS
        | {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 8192}
        | {"rope.scaling.yarn_attn_factor": 1.2079441547393799}
        | {"attention.sliding_window": 4096, "rope.freq_base": 5e5},
        {"model_type": "olmo3", "rope_theta": 5e5, "rope_scaling": YARN_OF_8},
        4,
    ),
}


@pytest.mark.parametrize("arch", HYBRIDS)
def test_layers_of_gguf_are_those_of_the_config_json(arch):
    keys, model, count = HYBRIDS[arch]
    layers = config.read(
        {"general.architecture": arch} | {f"{arch}.{key}": value for key, value in keys.items()}
    ).layers()
    assert sum(rope is not None for rope in layers) == count
    both = (layers, config.read(FOUR_HEADS | model).layers())
    ours, theirs = ([rope and (rope.frequencies, rope.attention_factor) for rope in found] for found in both)
    assert ours == theirs


def test_numbers_of_heads_that_differ_are_kept():
    heads = {"attention__head_count": [48, 64, 0, 64], "attention__head_count_kv": [8, 8, 0, 8]}
    (part,) = readers_of(config.read(gguf("deci", rope__freq_base=1e4, **heads), factor=1)).values()
    assert part.part.keys["num_attention_heads"] == [48, 64, 64]
    assert (part.part.keys["num_key_value_heads"], part.part.keys["head_dim"]) == (8, 4096 // 48)


# --- which architectures are read -----------------------------------------------------------------------------

GIVEN = {"rope__freq_base": 1e4, "rope__dimension_count": 128}
WINDOW = {"attention__sliding_window": 512}
OF_KINDS = WINDOW | {"attention__sliding_window_pattern": [1, 0, 1, 0], "attention__key_length": 128}
NEEDED = {
    "attention.sliding_window": 512,
    "attention.sliding_window_pattern": [1, 0, 1, 0],
    "attention.compress_ratios": [0, 4, 128, 0],
    "attention.compress_rope_freq_base": 1.6e5,
    "attention.key_length": 128,
    "full_attention_interval": 2,
    "rope.freq_base_swa": 1e4,
}


@pytest.mark.parametrize("arch", [arch for arch, row in ARCHITECTURES.items() if not row.no_way])
def test_each_architecture_is_read_with_the_keys_that_it_needs(arch):
    row = ARCHITECTURES[arch]
    keys = {key: NEEDED[key] for key in NEEDED if key in (*row.needs, *row.reads, "attention.key_length")}
    keys |= {"attention.head_count_kv": [8, 0, 8, 0]} if row.without_heads else {}
    metadata = gguf(arch, **GIVEN, **keys) | {"rope_factors_short.weight": None, "rope_factors_long.weight": None}
    metadata |= {"rope_freqs.weight": [1.0] * 64} if row.needs_divisors else {"rope_freqs.weight": None}
    layers = config.read(metadata, pairing="half" if row.ambiguous else None).layers()
    assert len(layers) == 4 and any(layers) is not row.model.optional_rotary


UNREAD = [
    (gguf("new"), None, "rotation is known, or `pairing`, new.rope.freq_base, new.rope.dimension_count be given"),
    (gguf("new", **GIVEN), None, "or `pairing` be given; got 'new'; it is not known here: read the config.json"),
    (gguf("new", **GIVEN, **WINDOW), "half", "new.attention.sliding_window must not be given .* its layers or axes"),
    (gguf("new", **GIVEN, ssm__state_size=1), "half", "new.ssm.state_size must not be given .* meaning is not known"),
    (gguf("command-r"), "half", "pairing must be 'interleaved', according to command-r"),
    (gguf("hy_v4", **GIVEN), None, "or `pairing` be given; got 'hy_v4'; llama.cpp pairs neighbours and transformers"),
    (gguf("cogvlm"), "half", "be one whose rotation is known; got 'cogvlm'; llama.cpp takes base 10000 for CogVLM and"),
    (gguf("gptj"), "half", "be one whose rotation is known; got 'gptj'; llama.cpp has no code for it"),
    (gguf("grok", rope__scaling__factor=16.0, **YARN_KEYS), None, "grok.rope.scaling.factor must not be given"),
    (gguf("dflash", hyper_connection__count=4), None, "dflash.hyper_connection.count must not be given"),
    (gguf("maple", **WINDOW), None, "maple.attention.sliding_window_pattern must be given as a list"),
    (gguf("maple", attention__sliding_window_pattern=[0, 2]), None, r"pattern\[1\] must be False or True"),
    (gguf("step35", **GIVEN), None, "step35.attention.sliding_window must be given, and not be 0"),
    (gguf("llama", attention__head_count=[32, -1]), None, r"llama.attention.head_count\[1\] must be from 0"),
    (gguf("mimo2", **GIVEN, **OF_KINDS, attention__key_length_swa=0), None, "key_length_swa must be from 1 to"),
    (gguf("llama", nextn_predict_layers=5), None, "llama.nextn_predict_layers must be from 0 to 4"),
]


@pytest.mark.parametrize(("metadata", "pairing", "message"), UNREAD)
def test_what_gguf_metadata_lacks_is_said(metadata, pairing, message):
    with pytest.raises(ValueError, match=message):
        config.read(metadata, pairing=pairing)


@pytest.mark.parametrize("arch", ["new", "hy_v4"])
def test_the_caller_may_give_the_pairing(arch):
    found = config.read(gguf(arch, context_length=4096, **GIVEN), pairing="half", factor=None)
    assert found.rope() == half()
    if arch == "new":
        with pytest.raises(ValueError, match="the layers of new that rotate, which no file says, must be given"):
            found.layers()


# --- scaling in a tensor --------------------------------------------------------------------------------------

LLAMA_31 = {"context_length": 131_072, "vocab_size": 128_256, "rope__freq_base": 5e5}
LLAMA3_TENSORS = {
    "Llama 3.1": ("llama", LLAMA_31, 8.0),
    "Llama 3.2 3B, by its tokens": ("llama", LLAMA_31 | {"vocab_size": None, "attention__key_length": 64}, 32.0),
    "a finetune with more tokens": ("llama", LLAMA_31 | {"vocab_size": 128_264}, 8.0),
    "a shorter finetune": ("llama", LLAMA_31 | {"context_length": 16_384}, 8.0),
    "Nemotron": ("deci", {"attention__head_count_kv": [8, 8, 0, 8], "rope__freq_base": 5e5}, 8.0),
    "EXAONE 3.5": ("exaone", {"context_length": 32_768, "rope__freq_base": 1e6}, 8.0),
    "Apertus": ("apertus", {"context_length": 65_536, "rope__freq_base": 12e6}, 8.0),
    "Llama 4 Scout": ("llama4", {"context_length": 10_485_760, "rope__freq_base": 5e5}, 16.0),
}


@pytest.mark.parametrize("name", LLAMA3_TENSORS)
def test_gguf_whose_scaling_is_a_tensor_is_refused_with_ways_out(name):
    arch, keys, factor = LLAMA3_TENSORS[name]
    metadata = gguf(arch, **keys) | {"tokenizer.ggml.tokens": ["x"] * 128_256}
    with pytest.raises(ValueError, match=r"factor must be given: the tensor rope_freqs\.weight may scale") as caught:
        Rope.from_config(metadata)
    hint = str(caught.value)
    assert f"it is {factor:g}" in hint or f", {factor:g} for" in hint
    assert "or, for the layers that rotate, read the tensor" in hint
    assert "read the config.json of the model" in hint
    plain = ra.frequencies(keys.get("attention__key_length", 128), base=keys["rope__freq_base"])
    high = 1.0 if arch == "llama4" else 4.0
    scaled = scaling.llama3(plain, factor, low_freq_factor=1.0, high_freq_factor=high, original_length=8192)
    rotations = {each for each in config.read(metadata, factor=factor).layers() if each}
    rope = rotations.pop()
    assert not rotations
    np.testing.assert_allclose(rope.frequencies, scaled, rtol=1e-14)
    assert {each for each in config.read(metadata, factor=1).layers() if each} == {Rope(plain, pairing=rope.pairing)}
    divisors = np.array([a / b for a, b in zip(plain, scaled, strict=True)], dtype=np.float32)  # the file's tensor
    call = re.search(r'read the tensor: rope = (rope_any\.layouts\.unpack\(tensor, "llama\.cpp", .*?\));', hint)
    arguments = re.search(r"base=(.*), pairing=\"(.*)\"", call[1])
    unpacked = ra.layouts.unpack(divisors, "llama.cpp", base=float(arguments[1]), pairing=arguments[2])
    assert unpacked.pairing == rope.pairing
    np.testing.assert_allclose(unpacked.frequencies, scaled, rtol=1e-6)


def test_gguf_without_tokens_is_refused_by_its_base():
    (tokens, *_), base = (key for key in gguf("llama") if "tokens" in key), {"rope__freq_base": 5e5}
    without = {key: value for key, value in gguf("llama", **base).items() if key != tokens}
    with pytest.raises(ValueError, match="factor must be given"):
        Rope.from_config(without)
    assert Rope.from_config(without | {"llama.rope.freq_base": 1e4}) == interleaved()
    assert Rope.from_config(without | {"tokenizer.ggml.pre": "mine"}) == interleaved(F_LLAMA3)


def test_llama3_scaling_of_gguf_equals_that_of_transformers():
    utils = pytest.importorskip("transformers.modeling_rope_utils")
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    model = LLAMA | {"rope_theta": 5e5, "rope_scaling": llama3 | {"original_max_position_embeddings": 8192}}
    theirs = pytest.importorskip("transformers").LlamaConfig(**{**model, "max_position_embeddings": 131_072})
    frequencies, _ = utils.ROPE_INIT_FUNCTIONS["llama3"](theirs, "cpu")
    rope = Rope.from_config(gguf("llama", **LLAMA_31), factor=8.0)
    np.testing.assert_allclose(rope.frequencies, frequencies.double().numpy(), rtol=1e-5)
    assert rope == dataclasses.replace(Rope.from_config(model), pairing="interleaved")


UNSCALED = {
    "Llama 3": ("llama", LLAMA_31 | {"context_length": 8192}),
    "Mistral Nemo": ("llama", {"context_length": 131_072, "vocab_size": 131_072, "rope__freq_base": 1e6}),
    "Code Llama": ("llama", {"context_length": 16_384, "vocab_size": 32_016, "rope__freq_base": 1e6}),
    "EXAONE 3": ("exaone", {"context_length": 4096, "rope__freq_base": 5e5}),
    "SmolLM3, with Llama's tokens": ("smollm3", {"vocab_size": 128_256, "rope__freq_base": 5e6}),
}


@pytest.mark.parametrize("name", UNSCALED)
def test_gguf_of_models_without_that_scaling_is_read(name):
    arch, keys = UNSCALED[name]
    assert Rope.from_config(gguf(arch, **keys)).frequencies == ra.frequencies(128, base=keys["rope__freq_base"])


@pytest.mark.parametrize(("name", "length"), [("short", 4096), ("long", 131_072)])
def test_gguf_with_longrope_is_read_from_its_tensor(name, length):
    """The error's code gives the rotation of the config.json: Phi-4 mini's shape, with other factors."""
    factors = {f"{kind}_factor": [step * (1 + i) for i in range(48)] for kind, step in (("short", 1.0), ("long", 3.0))}
    model = {"model_type": "phi3", "head_dim": 128, "partial_rotary_factor": 0.75, "max_position_embeddings": 131_072}
    model |= {"rope_scaling": {"rope_type": "longrope", **factors}, "original_max_position_embeddings": 4096}
    expected = Rope.from_config(model, sequence_length=length)
    keys = {"rope__scaling__attn_factor": expected.attention_factor, "rope__scaling__original_context_length": 4096}
    with pytest.raises(ValueError, match="phi3 must have its scaling in the metadata") as caught:
        Rope.from_config(gguf("phi3", rope__dimension_count=96, **keys))
    call = r'unpack\(tensor, "llama.cpp", base=(.*), pairing="(.*)"\) and .*replace\(rope, attention_factor=(.*)\);'
    base, pairing, factor = re.search(call, str(caught.value)).groups()
    tensor = np.float32(factors[f"{name}_factor"])
    rope = ra.layouts.unpack(tensor, "llama.cpp", base=float(base), pairing=pairing)
    rope = dataclasses.replace(rope, attention_factor=float(factor))
    np.testing.assert_allclose(rope.frequencies, expected.frequencies, rtol=1e-14)
    assert (rope.pairing, rope.attention_factor) == (expected.pairing, expected.attention_factor)
