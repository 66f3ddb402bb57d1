"""GGUF files, written by the package ``gguf``: the rotation of each is that of its model's config.json."""

import contextlib
import os
import random
import struct

import numpy as np
import pytest
from configs import rows_of

import rope_any as ra
from rope_any import Rope, config, scaling
from rope_any.config import _gguf_file
from rope_any.config.tables.gguf import ARCHITECTURES

gguf = pytest.importorskip("gguf", reason="its package writes the files")

BASE = {"context_length": 131_072, "embedding_length": 4096, "attention.head_count": 32, "block_count": 12}
LLAMA = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 12, "max_position_embeddings": 131_072}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 8192}
SHORT, LONG = np.linspace(1, 2, 48, dtype="f"), np.linspace(1, 60, 48, dtype="f")
LONGROPE = {"rope_type": "longrope", "short_factor": SHORT.tolist(), "long_factor": LONG.tolist()}
LONGROPE |= {"original_max_position_embeddings": 4096, "attention_factor": 1.25}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32_768}
HF_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
FULL_SIXTH = {"attention.sliding_window": 512, "attention.sliding_window_pattern": ([True] * 5 + [False]) * 2}
TYPES = {"layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2}
KINDS = {
    "attention.value_length_swa": 256,
    "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4,
    "attention.key_length": 512,
    **FULL_SIXTH,
}


def by_kind(full, sliding):
    """Return parameters of full and of sliding layers."""
    return {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}, **TYPES}


def divisors():
    """Return the tensor of Llama 3.1: how much slower each pair is."""
    plain = ra.frequencies(128, base=5e5)
    slow = scaling.llama3(plain, 8.0, original_length=8192, low_freq_factor=1.0, high_freq_factor=4.0)
    return np.array([a / b for a, b in zip(plain, slow, strict=True)], dtype="f")


# By architecture: its keys, its tensors, and a config.json of the same model.
FILES = {
    "llama": ({"rope.freq_base": 5e5, "rope.dimension_count": 128}, {}, {"model_type": "llama", "rope_theta": 5e5}),
    "llama 3.1": (
        {"rope.freq_base": 5e5, "rope.dimension_count": 128},
        {"rope_freqs.weight": divisors()},
        {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": LLAMA3},
    ),
    "phi3": (
        {"embedding_length": 3072, "rope.scaling.original_context_length": 4096, "rope.scaling.attn_factor": 1.25},
        {"rope_factors_short.weight": SHORT, "rope_factors_long.weight": LONG},
        {"model_type": "phi3", "hidden_size": 3072, "rope_scaling": LONGROPE},
    ),
    "gemma": ({"attention.key_length": 256}, {}, {"model_type": "gemma", "head_dim": 256}),
    "gemma3": (
        {"attention.key_length": 256, "rope.freq_base": 1e6},
        {},
        {"model_type": "gemma3_text", "head_dim": 256, "rope_theta": 1e6},
    ),
    "gemma4": (
        KINDS | {"attention.key_length_swa": 256, "rope.dimension_count": 512, "rope.dimension_count_swa": 256},
        {"rope_freqs.weight": [1.0] * 64 + [1e30] * 192},
        {"model_type": "gemma4_text"}
        | by_kind(
            {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
            {"rope_type": "default", "rope_theta": 1e4},
        ),
    ),
    "mimo2": (
        KINDS | {"attention.key_length": 192, "rope.dimension_count": 64, "rope.freq_base": 5e6},
        {},
        {"model_type": "mimo_v2_flash", **TYPES},
    ),
    "laguna": (
        KINDS | {"attention.key_length": 128, "rope.dimension_count": 64, "rope.dimension_count_swa": 128, **YARN},
        {},
        {"model_type": "laguna"}
        | by_kind(
            HF_YARN | {"rope_theta": 1e6, "partial_rotary_factor": 0.5},
            {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
        ),
    ),
    "step35": (
        KINDS | {"attention.key_length": 128, "rope.dimension_count": 128},
        {},
        {"model_type": "step3p5"}
        | by_kind(
            {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
            {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
        ),
    ),
    "qwen2": (YARN | {"rope.freq_base": 1e6}, {}, {"model_type": "qwen2", "rope_theta": 1e6, "rope_scaling": HF_YARN}),
    "qwen3": ({"attention.key_length": 64}, {}, {"model_type": "qwen3", "head_dim": 64}),
    "qwen3moe": ({"attention.key_length": 64}, {}, {"model_type": "qwen3_moe", "head_dim": 64}),
    "stablelm": ({"rope.dimension_count": 32}, {}, {"model_type": "stablelm"}),
    "gptneox": ({"rope.dimension_count": 32}, {}, {"model_type": "gpt_neox"}),
    "phi2": ({"rope.dimension_count": 64}, {}, {"model_type": "phi", "partial_rotary_factor": 0.5}),
    "command-r": ({"rope.freq_base": 8e6}, {}, {"model_type": "cohere", "rope_theta": 8e6}),
    "starcoder2": ({}, {}, {"model_type": "starcoder2"}),
    "baichuan": ({}, {}, {"model_type": "baichuan"}),
    "olmoe": ({}, {}, {"model_type": "olmoe"}),
    "cohere2moe": (
        FULL_SIXTH | {"attention.key_length": 128, "leading_dense_block_count": 6, "rope.scaling.type": "none"},
        {},
        {"model_type": "cohere2_moe", "first_k_dense_replace": 6, **TYPES},
    ),
    "deepseek2-ocr": ({"rope.dimension_count": 0}, {}, {"model_type": "deepseek", "qk_rope_head_dim": 0}),
    "deepseek4": (
        {"attention.key_length": 512, "rope.dimension_count": 64, "attention.compress_rope_freq_base": 1.6e5}
        | {"attention.compress_ratios": [0, 4, 128] * 4, "hyper_connection.count": 4, **YARN},
        {},
        {"model_type": "deepseek_v4", "head_dim": 512, "qk_rope_head_dim": 64, "rope_theta": 1e4}
        | {"compress_rope_theta": 1.6e5, "compress_ratios": [0, 4, 128] * 4, "rope_scaling": HF_YARN},
    ),
    "dflash": (
        {"rope.dimension_sections": [64, 0, 0, 0], **FULL_SIXTH},
        {},
        {"model_type": "qwen3", "head_dim": 128},
    ),
    "dots3note": (
        {"rope.dimension_count": 64, "attention.key_length_mla": 192, "attention.key_length_mla_swa": 256}
        | {"rope.freq_base": 8e7, "rope.freq_base_swa": 5e4, **FULL_SIXTH},
        {},
        {"model_type": "dots3_note_text", "qk_rope_head_dim": 64, "rope_theta": 8e7, "swa_rope_theta": 5e4}
        | {"layer_types": [{"full_attention": "indexed_attention"}.get(kind, kind) for kind in TYPES["layer_types"]]},
    ),
    "eagle3 of Llama 3.1": (
        {"rope.freq_base": 5e5},
        {"rope_freqs.weight": divisors()},
        {"model_type": "llama", "rope_theta": 5e5, "rope_scaling": LLAMA3},
    ),
    "exaone-moe": (
        FULL_SIXTH | {"rope.freq_base": 1e6, "nextn_predict_layers": 1, "block_count": 13},
        {},
        {"model_type": "exaone_moe", "head_dim": 128, "rope_theta": 1e6, "sliding_window": 128, **TYPES},
    ),
    "gemma4-assistant": (
        KINDS
        | {"attention.key_length_swa": 256, "rope.dimension_count": 512, "rope.dimension_count_swa": 256}
        | {"nextn_predict_layers": 12},
        {"rope_freqs.weight": [1.0] * 64 + [1e30] * 192},
        {"model_type": "gemma4_text"}
        | by_kind(
            {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
            {"rope_type": "default", "rope_theta": 1e4},
        ),
    ),
    "granite_swa": (
        FULL_SIXTH | {"attention.rope_pattern": [True, False] * 6, "attention.scale": 0.0625},
        {},
        {"model_type": "granite_swa", "layer_rope_theta": [1e4, 0] * 6, **TYPES},
    ),
    "grok": ({}, {}, {"model_type": "llama"}),
    "laguna without a window": (
        {"attention.key_length": 128, "rope.dimension_count": 64, **YARN},
        {},
        {"model_type": "gpt_neox", "rotary_pct": 0.5, "rope_scaling": HF_YARN},
    ),
    "maple": (
        FULL_SIXTH | {"attention.key_length": 128},
        {},
        {"model_type": "muse_glimmer_text", "head_dim": 128, **TYPES},
    ),
    "mellum": (
        FULL_SIXTH | {"rope.freq_base": 5e5, **YARN},
        {},
        {"model_type": "mellum", "head_dim": 128}
        | by_kind(HF_YARN | {"rope_theta": 5e5}, {"rope_type": "default", "rope_theta": 5e5}),
    ),
    "minimax-01": (
        {"attention.key_length": 128, "rope.dimension_count": 64, "rope.freq_base": 1e7},
        {},
        {"model_type": "minimax_text_01", "head_dim": 128, "rotary_dim": 64, "rope_theta": 1e7}
        | {"attn_type_list": [*[0] * 7, 1, *[0] * 4]},
    ),
    "minimax-m2": (
        {"attention.key_length": 128, "rope.dimension_count": 64, "rope.freq_base": 5e6},
        {},
        {"model_type": "minimax_m2", "head_dim": 128, "rotary_dim": 64},
    ),
    "minimax-m3": (
        {"attention.key_length": 128, "rope.dimension_count": 64, "rope.freq_base": 5e6}
        | {"attention.indexer.key_length": 128},
        {},
        {"model_type": "minimax_m3", "head_dim": 128, "partial_rotary_factor": 0.5},
    ),
    "muse-glimmer": (
        FULL_SIXTH | {"rope.freq_base": 5e5, "attention.key_length": 128},
        {},
        {"model_type": "muse_glimmer_text", "head_dim": 128, "rope_theta": 5e5, **TYPES},
    ),
    "plamo3": (
        {"attention.key_length": 128, "rope.freq_base": 1e6, "attention.sliding_window": 2048}
        | {"attention.sliding_window_pattern": 6},
        {},
        {"model_type": "gemma3_text", "head_dim": 128, "rope_theta": 1e6, **TYPES},
    ),
    "plamo3 without a window": ({"rope.freq_base": 1e6}, {}, {"model_type": "llama", "rope_theta": 1e6}),
    "pockettts": ({}, {}, {"model_type": "llama"}),
    "qwen3tts": (
        {"attention.key_length": 128, "rope.freq_base": 1e6, "rope.dimension_sections": [24, 20, 20, 0]},
        {},
        {"model_type": "qwen3_vl_text", "head_dim": 128, "rope_theta": 1e6},
    ),
    "qwen4exp": (
        {"attention.key_length": 256, "rope.dimension_count": 64, "rope.dimension_sections": [11, 11, 10, 0]}
        | {"attention.compress_ratios": [0, 0, 0, 16] * 3, "hyper_connection.count": 4},
        {},
        {"model_type": "qwen4_exp_text", "partial_rotary_factor": 0.25, "rope_theta": 1e4},
    ),
    "smallthinker": (
        {"attention.sliding_window": 4096},
        {},
        {"model_type": "smollm3", "rope_theta": 1e4, "no_rope_layers": [0, 1, 1, 1] * 3},
    ),
    "smallthinker without a window": ({}, {}, {"model_type": "llama"}),
    "spark2_5": (
        KINDS | {"attention.key_length": 128, "rope.dimension_count": 64, "rope.dimension_count_swa": 128},
        {},
        {"model_type": "laguna"}
        | by_kind(
            {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
            {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
        ),
    ),
    "talkie": ({"attention.key_length": 128}, {}, {"model_type": "llama", "head_dim": 128}),
}
# By the converter, which permutes the weights of some.
INTERLEAVED = {
    *("baichuan", "llama", "llama 3.1", "command-r", "eagle3 of Llama 3.1", "granite_swa", "muse-glimmer", "pockettts"),
}


def write(path, name, tensors=None, **options):
    """Write a GGUF file of an architecture with keys and tensors."""
    arch, keys = name.split()[0], BASE | FILES[name][0]
    writer = gguf.GGUFWriter(path, arch, **options)
    add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
    for key, value in keys.items():
        add[type(value)](f"{arch}.{key}", value)
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([f"token {i}" for i in range(5000)])
    writer.add_tensor("token_embd.weight", np.zeros((100, 64), "f"))
    for tensor, values in (FILES[name][1] if tensors is None else tensors).items():
        writer.add_tensor(tensor, np.asarray(values, "f"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("name", FILES)
def test_a_file_rotates_as_the_config_of_its_model(name, tmp_path):
    ours = config.read(write(tmp_path / "model.gguf", name)).layers()
    theirs = config.read(LLAMA | FILES[name][2]).layers()
    assert [rope is None for rope in ours] == [rope is None for rope in theirs]
    for rope, expected in zip(ours, theirs, strict=True):
        if rope is not None:
            assert rope.pairing == ("interleaved" if name in INTERLEAVED else expected.pairing)
            assert rope.start == expected.start
            assert rope.attention_factor == pytest.approx(expected.attention_factor, rel=1e-6)
            for row, row_of_config in zip(rows_of(rope), rows_of(expected), strict=True):
                assert row == pytest.approx(row_of_config, rel=1e-6, abs=0)


def test_the_package_writes_no_architecture_that_is_not_known():
    assert {*gguf.MODEL_ARCH_NAMES.values()} <= ARCHITECTURES.keys()


def test_a_tensor_of_any_divisors_is_read(tmp_path):
    divided = np.linspace(1, 9, 64, dtype="f")
    path = write(tmp_path / "model.gguf", "llama", {"rope_freqs.weight": divided})
    assert Rope.from_config(path).frequencies == pytest.approx(ra.frequencies(128, base=5e5) / divided, rel=1e-12)
    with pytest.raises(ValueError, match="factor must be left out: the file says it"):
        Rope.from_config(path, factor=8)


@pytest.mark.parametrize("size", range(40, 60))
def test_any_value_may_cross_the_end_of_a_block(size, tmp_path, monkeypatch):
    path = write(tmp_path / "model.gguf", "llama 3.1")
    rope = Rope.from_config(path)
    monkeypatch.setattr(_gguf_file, "_BLOCK", size)
    assert Rope.from_config(path) == rope


def test_only_the_beginning_is_read(tmp_path):
    """The file of 4 TB has no bytes on the disk after its first kilobytes."""
    path = write(tmp_path / "blob-without-a-suffix", "llama 3.1")
    rope = Rope.from_config(path)
    os.truncate(path, 2**42)
    assert Rope.from_config(path) == rope
    assert Rope.from_config(write(tmp_path / "big.gguf", "llama 3.1", endianess=gguf.GGUFEndian.BIG)) == rope


def test_a_split_file_is_read_by_any_of_its_shards(tmp_path):
    first, second = (tmp_path / f"model-0000{i}-of-00002.gguf" for i in (1, 2))
    write(first, "llama", {})
    with pytest.raises(ValueError, match="factor must be given"):  # the tensor may be in the other one
        Rope.from_config(first, factor=None)
    write(second, "llama 3.1")
    assert Rope.from_config(first) == Rope.from_config(second)
    assert config.read(first).explain()[0].facts["rope_type"] == ("llama3", "rope_freqs.weight")


@pytest.mark.parametrize(
    ("tensors", "keys", "message"),
    [
        (0, 0, "general.architecture must be a name; got NoneType None"),
        (0, 2**40, "must be a GGUF file; it has 1099511627776 keys or tensors, where 4096 are read"),
        (2**40, 0, "must be a GGUF file; it has 1099511627776 keys or tensors, where 65536 are read"),
    ],
)
def test_what_a_header_may_not_say_is_refused(tensors, keys, message, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, keys))
    with pytest.raises((ValueError, TypeError), match=message):
        Rope.from_config(path)


def test_damaged_files_are_refused_in_one_line(tmp_path):
    path = write(tmp_path / "model.gguf", "phi3")
    whole, choose = path.read_bytes(), random.Random(13)
    rope, refused = Rope.from_config(path), 0
    changes = [whole[:n] for n in (0, 3, 4, 7, 20, 100, 1000, len(whole) - 1)]
    for _ in range(200):
        at = choose.randrange(500)
        changes.append(whole[:at] + choose.randbytes(choose.choice((1, 8))) + whole[at + 8 :])
    for changed in changes:
        path.write_bytes(changed)
        with contextlib.suppress(ValueError, TypeError):
            assert isinstance(Rope.from_config(path), Rope)
            continue
        refused += 1
        with pytest.raises((ValueError, TypeError)) as caught:
            Rope.from_config(path)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 420
    path.write_bytes(whole)
    assert refused > 100 and Rope.from_config(path) == rope
