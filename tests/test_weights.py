"""Weights converted from one pairing to the other: the permutation, scores of whole models, and checkpoints."""

import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from conftest import one_jax
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import rope_any as ra
from rope_any import cli, weights

BOTH = list(itertools.permutations(["half", "interleaved"]))
HALVES = {"source": "interleaved", "target": "half"}
OUTPUT = threading.Lock()  # a CliRunner captures the output of all threads


def expected(head_dim, source, target, *, rotary_dim=None, start=0, heads=(1, 1)):
    """Return the order of some heads by the definition: pair i is (i, i + n) or (2i, 2i + 1)."""
    n = (head_dim - start if rotary_dim is None else rotary_dim) // 2
    pairs = {"half": [(i, i + n) for i in range(n)], "interleaved": [(2 * i, 2 * i + 1) for i in range(n)]}
    order = []
    for head in range(heads[1]):
        features = {j: j for j in range(head_dim)}
        if head < heads[0]:
            for old, new in zip(pairs[source], pairs[target], strict=True):
                features |= {start + b: start + a for a, b in zip(old, new, strict=True)}
        order += [head * head_dim + features[j] for j in range(head_dim)]
    return order


@st.composite
def layouts(draw):
    """Draw a head_dim and the options of a layout."""
    head_dim = draw(st.integers(2, 20))
    start = draw(st.integers(0, head_dim - 2))
    rotary_dim = 2 * draw(st.integers(1, (head_dim - start) // 2))
    heads = draw(st.integers(1, 4))
    return head_dim, {"rotary_dim": rotary_dim, "start": start, "heads": (draw(st.integers(1, heads)), heads)}


@given(layout=layouts(), pairings=st.sampled_from([*BOTH, ("half", "half")]), runs=st.integers(1, 3), data=st.data())
def test_the_permutation_follows_the_definition_of_the_pairings(layout, pairings, runs, data):
    head_dim, options = layout
    source, target = pairings
    order = expected(head_dim, source, target, **options)
    features = np.concatenate([np.asarray(order) + run * len(order) for run in range(runs)])
    shape = data.draw(st.lists(st.integers(1, 3), max_size=2))
    axis = data.draw(st.integers(0, len(shape)))
    shape.insert(axis, len(features))
    w = np.arange(math.prod(shape)).reshape(shape)
    got = weights.convert(
        w, head_dim, source=source, target=target, axis=axis - data.draw(st.sampled_from([0, w.ndim])), **options
    )
    np.testing.assert_array_equal(got, w.take(features, axis))
    np.testing.assert_array_equal(weights.convert(got, head_dim, source=target, target=source, axis=axis, **options), w)


@one_jax
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_weights_are_permuted_to_the_bit_on_every_library(lib, rng, axis):
    order = expected(6, "half", "interleaved")
    convert = lib.quick(lambda w: weights.convert(w, 6, source="half", target="interleaved", axis=axis))
    for dtype in (*lib.dtypes, *lib.integers):
        w = lib(rng.integers(0, 100, (12, 12)), dtype)
        got = convert(w)
        assert type(got) is type(w) and got.dtype == w.dtype and got.shape == w.shape
        assert getattr(got, "device", None) == getattr(w, "device", None)
        np.testing.assert_array_equal(lib.get(got), lib.get(w).take([*order, *(6 + i for i in order)], axis))
    other_axis_empty = (0, 12) if axis else (12, 0)
    assert convert(lib(np.ones(other_axis_empty), "float32")).shape == other_axis_empty


@pytest.mark.parametrize("axis", [0, 1])
def test_unknown_lengths_of_dask_are_refused(axis):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    unknown = da.arange(12, chunks=6)
    w = unknown[unknown > 3][:, None] * np.ones(6)
    with pytest.raises(ValueError, match=r"w must have known lengths; got shape .*nan.*; call compute_chunk_sizes"):
        weights.convert(w, 6, **HALVES, axis=axis)


@pytest.mark.parametrize(
    "dtype",
    ["float16", "float64", "bool", "complex64", "uint16", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn],
)
def test_a_round_trip_keeps_all_bits_of_any_dtype(rng, dtype):
    """Such as those of a nan with a payload, and of negative zero."""
    raw = rng.integers(0, 2 if dtype == "bool" else 256, (24, 5, np.dtype(dtype).itemsize), dtype=np.uint8)
    w = raw.view(dtype)[..., 0]
    converted = weights.convert(w, 8, source="half", target="interleaved")
    assert converted.dtype == w.dtype and converted.tobytes() != w.tobytes()
    assert weights.convert(converted, 8, **HALVES).tobytes() == w.tobytes()


def test_a_round_trip_keeps_all_bits_of_torch_dtypes(torch, rng):
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint8, torch.bool, torch.complex64):
        size = torch.empty(0, dtype=dtype).element_size()
        raw = torch.tensor(rng.integers(0, 2 if dtype == torch.bool else 256, (24, 4 * size)), dtype=torch.uint8)
        converted = weights.convert(raw.view(dtype), 8, source="half", target="interleaved")
        assert converted.dtype == dtype and not torch.equal(converted.view(torch.uint8), raw)
        assert torch.equal(weights.convert(converted, 8, **HALVES).view(torch.uint8), raw)


def test_convert_can_be_compiled_and_stays_lazy(lib, rng):
    w = lib(rng.standard_normal((12, 5)), "float32")

    def permute(w):
        """Convert weights from interleaved to half pairs."""
        return weights.convert(w, 6, **HALVES, rotary_dim=4, heads=(1, 2))

    if lib.name == "dask":
        w = w.map_blocks(lambda _: pytest.fail("it was computed"), dtype=w.dtype, meta=np.empty((0, 0), w.dtype))
        assert permute(w).shape == (12, 5)
    elif lib.compile is None:
        pytest.skip(f"{lib.name} has no compiler")
    else:
        np.testing.assert_array_equal(lib.get(lib.trace(permute)(w)), lib.get(permute(w)))


@one_jax
def test_converted_weights_give_the_same_scores(lib, rng):
    """With grouped queries, a rotary slice and a bias."""
    head_dim, start, pairs, hidden = 12, 2, 4, 16
    x = rng.standard_normal((5, hidden)).astype("float32")
    before = [rng.standard_normal((heads * head_dim, hidden + 1)).astype("float32") for heads in (4, 2)]

    def scores(pairing, projections):
        """Return the scores of projections, rotated with a pairing."""
        rope = ra.Rope(ra.frequencies(2 * pairs), pairing=pairing, start=start)
        q, k = (lib((x @ w[:, :-1].T + w[:, -1]).reshape(5, -1, head_dim).swapaxes(0, 1)) for w in projections)
        q, k = (lib.get(part) for part in lib.quick(lambda q, k: rope(q, k, 7))(q, k))
        return q @ k.repeat(2, axis=0).swapaxes(1, 2)

    options = {"rotary_dim": 2 * pairs, "start": start}
    for source, target in BOTH:
        after = [lib.get(weights.convert(lib(w), head_dim, source=source, target=target, **options)) for w in before]
        np.testing.assert_allclose(scores(target, after), scores(source, before), rtol=0, atol=1e-4)
        assert np.abs(scores(target, before) - scores(source, before)).max() > 1


# --- state dicts -------------------------------------------------------------------------------------------


def tensors(**shapes):
    """Return arrays of numbers by name, ``__`` for a dot."""
    return {name.replace("__", "."): np.arange(math.prod(s), dtype="float32").reshape(s) for name, s in shapes.items()}


def changed(state, head_dim=4, **options):
    """Return the names of converted tensors of a state dict; check that the others are the same objects."""
    converted = weights.convert_state_dict(state, head_dim, **HALVES, **options)
    assert list(converted) == list(state)
    return {name for name, w in state.items() if converted[name] is not w}


def test_a_state_dict_is_converted_by_default_names():
    moved = {
        "l.0.self_attn.q_proj.weight": (16, 6),
        "l.0.self_attn.q_proj.bias": (16,),
        "l.0.self_attn.k_norm.weight": (3, 4),  # by head, as in Cohere
        "l.0.attention.wk.weight": (8, 6),
        "l.1.attention.self.query.weight": (8, 6),
        "l.1.attention.self.key.bias": (8,),
        "l.2.self_attn.k_proj.lora_B.default.weight": (8, 2),
        "l.2.self_attn.k_proj.base_layer.weight": (8, 6),
        "l.2.self_attn.q_layernorm.norms.1.weight": (4,),
    }
    left = {
        "l.0.self_attn.v_proj.weight": (8, 6),
        "l.0.self_attn.o_proj.weight": (8, 8),
        "l.2.self_attn.q_proj.lora_A.weight": (3, 6),
        "l.0.mlp.up_proj.weight": (16, 8),
        "vision.blocks.0.attn.qkv.weight": (24, 8),  # of a vision tower
    }
    state = tensors(**moved, **left)
    assert changed(state) == set(moved)
    converted = weights.convert_state_dict(state, 4, **HALVES)
    for name, axis in (("l.0.self_attn.k_norm.weight", 1), ("l.2.self_attn.k_proj.lora_B.default.weight", 0)):
        np.testing.assert_array_equal(converted[name], weights.convert(state[name], 4, **HALVES, axis=axis))


def test_names_can_be_given():
    state = tensors(h__0__attn__kernel_q=(6, 8), h__0__attn__kernel_k=(6, 4), h__0__attn__qkv=(24, 3))
    assert changed(state, names={"h.*.kernel_?": -1}) == {"h.0.attn.kernel_q", "h.0.attn.kernel_k"}
    qkv = weights.convert_state_dict(state, 4, **HALVES, names={"*.qkv": 0}, heads=(2, 3))["h.0.attn.qkv"]
    order = expected(4, "interleaved", "half", heads=(2, 3))
    np.testing.assert_array_equal(qkv, state["h.0.attn.qkv"][[*order, *(12 + i for i in order)]])


# kind and shape of a tensor beside a projection of 256 to 256 features, and whether it has a number for each row
SCALES = [
    ("weight_scale", (256, 1), True),
    ("weight_scale", (256,), True),
    ("weight_scale", (256, 4), True),  # of groups of columns
    ("weight_scale", (), False),
    ("weight_scale", (1, 4), False),
    ("weight_scale", (0, 256), False),
    ("weight_scale_inv", (2, 3), False),  # of blocks of whole heads
    ("input_scale", (1,), False),
    ("input_scale", (256,), False),
    ("pre_quant_scale", (256,), False),
    ("smoothquant_scale", (256,), False),
    ("act_scales", (256,), False),
    ("layer_norm_weight", (256,), False),  # Transformer Engine's, of the input
    ("_extra_state", (0,), False),
]


@pytest.mark.parametrize("names", [None, {"*.q_proj.*": 0}])
@pytest.mark.parametrize(("kind", "shape", "of_rows"), SCALES)
def test_quantisation_scales_are_permuted_with_their_rows(kind, shape, of_rows, names):
    scale = f"l.0.a.q_proj.{kind}"
    state = tensors(**{"l.0.a.q_proj.weight": (256, 256), "l.0.a.q_proj.bias": (256,), scale: shape})
    assert changed(state, 64, names=names) == set(state) - (set() if of_rows else {scale})
    if of_rows:
        converted = weights.convert_state_dict(state, 64, **HALVES, names=names)[scale]
        np.testing.assert_array_equal(converted[:64], state[scale][expected(64, "interleaved", "half")])


REFUSED = {
    "GPTQ": {"bias": (256,), "qweight": (8, 256), "scales": (2, 256), "qzeros": (2, 32)},
    "bitsandbytes": {"weight": (4096, 1), "weight.absmax": (128,), "weight.quant_map": (16,)},
    "a partial block": {"weight": (320, 6), "weight_scale_inv": (3, 1)},
    "blocks across heads": {"weight": (256, 6), "weight_scale_inv": (8, 1)},
    "blocks of two possible sizes": {"weight": (384, 6), "weight_scale_inv": (2, 1)},  # 256 or 192
    "scales of other axes": {"weight": (256, 6), "weight_scale": (4, 2, 2)},
    "a scale of rows or of columns": {"weight": (256, 256), "scale": (256,)},
}


@pytest.mark.parametrize("name", REFUSED)
def test_quantised_weights_that_cannot_be_permuted_are_refused(name):
    state = tensors(**{f"l.0.a.q_proj.{kind}": shape for kind, shape in REFUSED[name].items()})
    with pytest.raises(ValueError, match=r"must have only tensors beside it .* got l.0.a.q_proj"):
        weights.convert_state_dict(state, 64, **HALVES)


@pytest.mark.parametrize("kind", ["qweight", "qzeros", "weight_packed"])
def test_packed_weights_are_refused_if_a_name_matches_them(kind):
    state = tensors(**{"l.0.a.q_proj.scales": (2, 256), f"l.0.a.q_proj.{kind}": (64, 128)})
    with pytest.raises(ValueError, match=rf"names must match no packed weight, .* got l.0.a.q_proj.{kind}"):
        weights.convert_state_dict(state, 64, names={"*q_proj.*": 1}, **HALVES)


@pytest.mark.parametrize("other", ["query_key_value", "qkv_proj", "wqkv", "wq_b", "kv_proj", "k_up", "c_attn"])
def test_names_are_required_if_other_tensors_make_queries_or_keys(other):
    """With a known and an unknown name of norms or projections, only half would be converted."""
    state = {"l.0.attn.q_norm.weight": np.zeros(4), f"l.0.attn.{other}.weight": np.zeros((24, 8))}
    with pytest.raises(ValueError, match=f"names must be given if a layer .* got l.0.attn.{other}"):
        weights.convert_state_dict(state, 4, **HALVES)
    assert changed(state, names={"*.q_norm.weight": 0}) == {"l.0.attn.q_norm.weight"}


@pytest.mark.parametrize("other", ["vision.blocks.0.attn.q_proj.weight", "0.wq.weight", "pool.attn.query.weight"])
def test_names_are_required_if_there_are_two_stacks(other):
    """A vision tower with head_dim 2 and a text model with head_dim 4 match the same patterns."""
    state = {f"text.model.layers.{i}.attn.q_proj.weight": np.zeros((8, 8)) for i in range(3)} | {
        other: np.zeros((8, 8))
    }
    stack = re.escape(repr({"v": "vision.blocks", "0": "", "p": "pool"}[other[0]]))
    with pytest.raises(ValueError, match=f"names must be given if several .* 'text.model.layers' and {stack}$"):
        weights.convert_state_dict(state, 4, **HALVES)
    assert changed(state, names={"text.*": 0}) == set(state) - {other}


def test_a_layer_alone_is_one_stack():
    state = tensors(attn__q_proj__weight=(8, 3), attn__k_proj__weight=(4, 3), attn__q_norm__weight=(4,))
    assert changed(state) == set(state)


def test_a_bias_without_its_weight_is_refused():
    state = tensors(l__0__q_proj__weight=(8, 3), l__0__q_proj__bias=(8,))
    with pytest.raises(ValueError, match=r"l.0.q_proj.weight must have only tensors beside it .* got l.0.q_proj.bias"):
        weights.convert_state_dict(state, 4, **HALVES, names={"*.weight": 0})


# --- whole models --------------------------------------------------------------------------------------------

SMALL = {"vocab_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_key_value_heads": 2}
MODELS = {
    "llama": ("Llama", SIZES, {}),
    "llama with bias": ("Llama", SIZES | {"attention_bias": True}, {}),
    "qwen2": ("Qwen2", SIZES, {}),
    "qwen3": ("Qwen3", SIZES | {"head_dim": 12}, {}),
    "olmo2": ("Olmo2", SIZES, {}),
    "stablelm": ("StableLm", SIZES | {"partial_rotary_factor": 0.5, "qk_layernorm": True}, {"rotary_dim": 4}),
    "glm": ("Glm", SIZES | {"head_dim": 8, "pad_token_id": None}, {"rotary_dim": 4}),
    "gpt_neox": (
        "GPTNeoX",
        {"hidden_size": 96, "intermediate_size": 48},
        {"rotary_dim": 6, "heads": (2, 3), "names": {"*.query_key_value.*": 0}},
    ),
    "phi3": ("Phi3", SIZES | {"pad_token_id": None}, {"heads": (6, 8), "names": {"*.qkv_proj.weight": 0}}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_converted_transformers_model_gives_the_same_logits(name, monkeypatch):
    torch = pytest.importorskip("torch", reason="the models run on torch")
    transformers = pytest.importorskip("transformers", minversion="5", reason="the models are those of transformers")
    kind, sizes, options = MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**SMALL, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
        for part in model.parameters():
            if part.ndim == 1:  # norms and biases, which are ones and zeros
                torch.nn.init.normal_(part, 1.0, 0.3)
    rope = ra.Rope.from_config(config)
    tokens = torch.arange(40).reshape(2, 20)

    def logits():
        """Return the logits of the model."""
        with torch.no_grad():
            return model(tokens).logits

    before = logits()
    target = "half" if rope.pairing == "interleaved" else "interleaved"
    other = ra.Rope(rope.frequencies, pairing=target, attention_factor=rope.attention_factor)
    module = __import__(type(model).__module__, fromlist=["*"])
    monkeypatch.setattr(module, "apply_rotary_pos_emb", lambda q, k, *_tables, **_: other(q, k))
    assert (logits() - before).abs().max() > 0.1  # the pairing matters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    converted = weights.convert_state_dict(model.state_dict(), head_dim, source=rope.pairing, target=target, **options)
    model.load_state_dict(converted)
    torch.testing.assert_close(logits(), before, rtol=0, atol=1e-4)


# --- adapters ------------------------------------------------------------------------------------------------

LORAS = {  # up and down: B with rows of features, and A with the rank
    "PEFT": ("q_proj.lora_B.default.weight", "q_proj.lora_A.default.weight"),
    "PEFT, its file": ("q_proj.lora_B.weight", "q_proj.lora_A.weight"),
    "AdaLoRA": ("q_proj.lora_B.default", "q_proj.lora_A.default"),
    "kohya": ("lora_unet_down_blocks_0_q_proj.lora_up.weight", "lora_unet_down_blocks_0_q_proj.lora_down.weight"),
    "kohya, inside": ("down_blocks.0.q_proj.lora_up.weight", "down_blocks.0.q_proj.lora_down.weight"),
    "diffusers": ("down_blocks.0.q_proj.lora.up.weight", "down_blocks.0.q_proj.lora.down.weight"),
    "old diffusers": ("down_blocks.0.processor.q_proj_lora.up.weight", "x.processor.q_proj_lora.down.weight"),
    "torchtune": ("q_proj.lora_b.weight", "q_proj.lora_a.weight"),
    "NeMo": ("q_proj.adapter.linear_out.weight", "q_proj.adapter.linear_in.weight"),
    "llama.cpp": ("q_proj.weight.lora_b", "q_proj.weight.lora_a"),
    "LoHa": ("q_proj.hada_w1_a", "q_proj.hada_w1_b"),
}


@pytest.mark.parametrize("name", LORAS)
@pytest.mark.parametrize("with_weight", [False, True])
def test_a_pattern_that_matches_both_matrices_of_a_lora_reorders_only_b(name, with_weight, rng):
    """The rank is a multiple of the head dimension, so its axis could be taken for that of heads."""
    b, a = (f"layers.0.{part}" for part in LORAS[name])
    shapes = {b: (16, 8), a: (8, 6), "layers.0.q_proj.alpha": ()}
    if with_weight:
        shapes[f"{b.partition('q_proj')[0]}q_proj.weight"] = (16, 6)
    state = {name: rng.integers(-9, 9, shape) for name, shape in shapes.items()}
    names = {"*q_proj*": 0}
    new = weights.convert_state_dict(state, 8, **HALVES, names=names)
    np.testing.assert_array_equal(new[b] @ new[a], weights.convert(state[b] @ state[a], 8, **HALVES))
    assert changed(state, 8, names=names) == set(state) - {a, "layers.0.q_proj.alpha"}


@pytest.mark.parametrize("inner", ["", "base_layer."])  # in a model with an adapter of PEFT
@pytest.mark.parametrize("names", [None, {"*.q_proj.*": 0}])
def test_the_parts_of_adapters_beside_a_weight_are_told_apart(names, inner):
    of_rows = {
        f"{inner}weight": (16, 6),
        f"{inner}bias": (16,),
        "lora_B.x.weight": (16, 8),
        "lora_B.x.bias": (16,),
        "lora_magnitude_vector": (16,),
        "ia3_l.default": (16, 1),
        "dora_scale": (16, 1),
        "hada_w1_a": (16, 8),
    }
    of_rank = {
        "lora_A.x.weight": (8, 6),
        "lora_embedding_A.x": (8, 6),
        "lora_mid.weight": (8, 8),
        "hada_w1_b": (8, 6),
    }
    state = tensors(**{f"a.q_proj.{name}": shape for name, shape in (of_rows | of_rank).items()})
    assert changed(state, 8, names=names) == {f"a.q_proj.{name}" for name in of_rows}
    with pytest.raises(ra.ArgumentValueError, match="only tensors beside it"):
        changed(state | {"a.q_proj.unknown": np.zeros((16, 3))}, 8, names=names and {"*.q_proj.[!u]*": 0})


@pytest.mark.parametrize("part", ["vera_lambda_b", "lokr_w1", "boft_R", "hra_u.default", "road_theta", "hada_t1"])
def test_adapters_in_which_features_share_numbers_are_refused(part):
    state = {f"a.q_proj.{part}": np.zeros((16, 6))}
    with pytest.raises(ValueError, match=rf"names must match no adapter .* got a.q_proj.{part}; merge it"):
        weights.convert_state_dict(state, 8, **HALVES, names={"*.q_proj.*": 0})
    with pytest.raises(ValueError, match=rf"beside it .* got a.q_proj.{part} of shape .*; merge an adapter first$"):
        weights.convert_state_dict(state | {"a.q_proj.weight": np.zeros((16, 6))}, 8, **HALVES)


def test_the_rank_of_a_lora_is_neither_converted_nor_proposed():
    a, b = "a.to_q.lora_A.weight", "a.to_q.lora_B.weight"
    state = {a: np.zeros((8, 6)), b: np.zeros((16, 8)), "a.to_q.alpha": np.zeros(())}
    with pytest.raises(ValueError, match=rf"match none of the tensors; {b} may be one"):
        weights.convert_state_dict(state, 8, **HALVES)
    for pattern in (a, "*.lora_A.*", "*.alpha", "lora_A"):
        with pytest.raises(ValueError, match=r"^names must be patterns that match a tensor; got ") as caught:
            weights.convert_state_dict(state, 8, **HALVES, names={pattern: 0})
        assert ("A of a LoRA, which stays" in str(caught.value)) == (pattern != "lora_A")
    assert changed(state, 8, names={"*.to_q.*": 0}) == {b}


# --- files -----------------------------------------------------------------------------------------------------

BITS = {"F4": 4, "F8_E4M3": 8, "F8_E8M0": 8, "BOOL": 8, "BF16": 16, "F16": 16, "F32": 32, "I64": 64, "C64": 64}


def write(file, tensors, metadata=None):
    """Write a safetensors file by its specification: name -> (dtype, shape, bytes)."""
    header, at = ({} if metadata is None else {"__metadata__": metadata}), 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data for *_, data in tensors.values()))
    return file


def random_tensor(rng, dtype, *shape):
    """Return the dtype, shape and random bytes of a tensor."""
    size = math.prod(shape) * BITS[dtype] // 8
    return dtype, shape, rng.integers(0, 2 if dtype == "BOOL" else 256, size, dtype=np.uint8).tobytes()


def read(file):
    """Return the metadata of a file, and its tensors as `write` takes them."""
    data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    metadata = header.pop("__metadata__", None)
    return metadata, {
        name: (entry["dtype"], tuple(entry["shape"]), data[start:][slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def layer(rng, dtype="BF16", i=0):
    """Return the random tensors of one layer, by name."""
    return {
        f"model.layers.{i}.self_attn.{name}": random_tensor(rng, dtype, *shape)
        for name, shape in {
            "q_proj.weight": (16, 6),
            "k_proj.weight": (8, 6),
            "v_proj.weight": (8, 6),
            "q_proj.bias": (16,),
        }.items()
    }


def convert(*arguments, head_dim=4):
    """Run the command in this process; return its result."""
    return run("convert", *map(str, arguments), "--head-dim", str(head_dim), "--from", "interleaved", "--to", "half")


def run(*arguments):
    """Run the command line."""
    with OUTPUT:
        return CliRunner().invoke(cli.app, arguments)


@pytest.mark.parametrize("dtype", BITS)
def test_a_file_of_any_dtype_is_converted(tmp_path, rng, dtype):
    before = {"embed.weight": random_tensor(rng, dtype, 5, 2), **layer(rng, dtype)}
    if dtype == "F4":  # its bias would have two features in a byte
        del before["model.layers.0.self_attn.q_proj.bias"]
    file = write(tmp_path / "in.safetensors", before, {"format": "pt"})
    raw = file.read_bytes()
    result = convert(file, tmp_path / "out.safetensors")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    metadata, after = read(tmp_path / "out.safetensors")
    assert metadata == {"format": "pt"} and list(after) == list(before)
    for name, (kind, shape, data) in before.items():
        assert after[name][:2] == (kind, shape)
        rotated = name.endswith((".q_proj.weight", ".k_proj.weight", ".bias"))
        rows = np.frombuffer(data, np.uint8).reshape(shape[0], -1)
        order = [4 * (i // 4) + expected(4, "interleaved", "half")[i % 4] for i in range(shape[0])]
        assert after[name][2] == (rows[order].tobytes() if rotated else data)
    assert file.read_bytes() == raw
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.safetensors", "out.safetensors"]


def test_safetensors_reads_the_written_files(tmp_path, rng):
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    state = {name: rng.standard_normal(shape).astype("f4") for name, (_, shape, _) in layer(rng).items()}
    numpy.save_file(state, tmp_path / "in.safetensors", {"format": "np"})
    assert convert(tmp_path / "in.safetensors", tmp_path / "out.safetensors").exit_code == 0
    converted = numpy.load_file(tmp_path / "out.safetensors")
    for name, w in weights.convert_state_dict(state, 4, **HALVES).items():
        np.testing.assert_array_equal(converted[name], w)


def test_a_large_tensor_is_read_some_megabytes_at_a_time(tmp_path, rng):
    columns = 2**13 - 8  # so that no whole number of heads has 4 MiB
    large = {"l.0.q_proj.weight": random_tensor(rng, "BF16", 2**11, columns)}
    file, out = write(tmp_path / "in.safetensors", large), tmp_path / "out.safetensors"
    assert convert(file, out, head_dim=64).exit_code == 0  # imports what the command needs, which is not counted
    tracemalloc.start()
    result = convert(file, out, "--overwrite", head_dim=64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.exit_code == 0, result.output
    assert peak < 2**24
    [(dtype, shape, data)] = large.values()
    w = np.frombuffer(data, np.uint16).reshape(shape)
    converted = weights.convert(w, 64, **HALVES).tobytes()
    assert read(out)[1] == {"l.0.q_proj.weight": (dtype, shape, converted)}


def test_the_command_accepts_an_axis_and_a_fraction_of_heads(tmp_path, rng):
    before = {"h.0.qkv.kernel": random_tensor(rng, "BF16", 3, 24), "h.0.out.kernel": random_tensor(rng, "BF16", 8, 3)}
    file, out = write(tmp_path / "in.safetensors", before), tmp_path / "out.safetensors"
    text = convert(file, out, "--name", "*.qkv.kernel", "--axis", -1, "--heads", "2/3", "--json").stdout
    assert json.loads(text) == {"files": [str(out)], "converted": ["h.0.qkv.kernel"], "left": ["h.0.out.kernel"]}
    w = np.frombuffer(before["h.0.qkv.kernel"][2], np.uint16).reshape(3, 24)
    options = {"axis": -1, "heads": (2, 3), **HALVES}
    assert read(out)[1]["h.0.qkv.kernel"][2] == weights.convert(w, 4, **options).tobytes()


def test_the_report_lists_converted_and_other_tensors(tmp_path, rng):
    file = write(tmp_path / "in.safetensors", layer(rng) | layer(rng, i=1))
    text = " ".join(convert(file, tmp_path / "out.safetensors").stdout.split())
    assert "model.layers.*.self_attn.q_proj.weight 2 converted" in text
    assert "model.layers.*.self_attn.v_proj.weight 2 left as it is" in text
    assert text.endswith("out.safetensors: 6 of 8 tensors converted from interleaved to half")


def shards(tmp_path, rng):
    """Write a checkpoint of two files, and return their index."""
    folder = tmp_path / "in"
    folder.mkdir()
    names = {}
    for i in range(2):
        part = layer(rng, i=i)
        names |= dict.fromkeys(part, write(folder / f"model-{i}.safetensors", part).name)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return index


def test_a_checkpoint_of_several_files_is_converted(tmp_path, rng):
    sharded = shards(tmp_path, rng)
    before = {path.name: path.read_bytes() for path in sharded.parent.iterdir()}
    result = convert(sharded, tmp_path / "new" / "out", "--name", "*.1.*.[qk]_proj.*")  # only in one file
    assert result.exit_code == 0, result.output
    after = {path.name: path.read_bytes() for path in (tmp_path / "new" / "out").iterdir()}
    assert before == {path.name: path.read_bytes() for path in sharded.parent.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"model-1.safetensors"}
    result = convert(sharded, tmp_path / "new" / "out")
    assert result.exit_code == 2 and "must not exist" in result.stderr
    assert convert(sharded, tmp_path / "new" / "out", "--overwrite").exit_code == 0


@pytest.mark.parametrize("kind", ["itself", "a link", "a hard link", "another path"])
def test_the_input_is_never_modified(tmp_path, rng, kind):
    file = write(tmp_path / "in.safetensors", layer(rng))
    before, out = file.read_bytes(), tmp_path / "out.safetensors"
    if kind == "a link":
        out.symlink_to(file)
    elif kind == "a hard link":
        os.link(file, out)
    else:
        out = file if kind == "itself" else tmp_path / ".." / tmp_path.name / "in.safetensors"
    result = convert(file, out, "--overwrite")
    assert result.exit_code == 2 and "OUT must not be IN, which is never touched" in result.stderr
    assert file.read_bytes() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("No space left")])
def test_a_failed_conversion_leaves_no_files(tmp_path, rng, monkeypatch, error):
    sharded = shards(tmp_path, rng)

    def copyfile(_, target):
        """Fail at the index, after the files of tensors."""
        assert len(list(target.parent.iterdir())) == 2
        raise error

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    result = convert(sharded, tmp_path / "new" / "out")
    assert result.exit_code and not isinstance(result.exception, AssertionError)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("Device or resource busy")])
@pytest.mark.parametrize("at", range(6))  # three files are moved away, three are moved in
def test_a_failed_conversion_restores_replaced_files(tmp_path, rng, monkeypatch, error, at):
    sharded = shards(tmp_path, rng)
    out = tmp_path / "out"
    out.mkdir()
    for file in sharded.parent.iterdir():
        (out / file.name).write_text(f"old {file.name}")
    count, replace = itertools.count(), Path.replace

    def failing(self, target):
        """Fail at one of the renames."""
        fails = next(count) == at
        if not (fails and isinstance(error, OSError)):  # Ctrl-C arrives after the file was moved
            replace(self, target)
        if fails:
            raise error

    monkeypatch.setattr(Path, "replace", failing)
    result = convert(sharded, out, "--overwrite")
    assert result.exit_code and next(count) > at
    assert {file.name: file.read_text() for file in out.iterdir()} == {
        file.name: f"old {file.name}" for file in sharded.parent.iterdir()
    }


def test_a_file_written_meanwhile_is_not_replaced(tmp_path, rng, monkeypatch):
    sharded, out = shards(tmp_path, rng), tmp_path / "out"
    out.mkdir()
    copyfile = shutil.copyfile
    written = out / "model-1.safetensors"
    monkeypatch.setattr(shutil, "copyfile", lambda *files: (copyfile(*files), written.write_text("new")))
    result = convert(sharded, out)
    assert result.exit_code == 2 and "model-1.safetensors must not exist" in result.stderr
    assert written.read_text() == "new" and list(out.iterdir()) == [written]


SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@pytest.mark.skipif(os.name != "posix", reason="on other systems a signal ends a process at once")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("ignored", [False, True])
def test_a_signal_leaves_no_files(tmp_path, rng, number, ignored):
    """A process gets a signal while it writes. An ignored signal, as SIGHUP under nohup, stays ignored."""
    shards(tmp_path, rng)
    program = f"""
import os, shutil, signal, sys
from rope_any import cli
def signalled(call):
    def wrapper(*args, **options):
        os.kill(os.getpid(), {int(number)})
        return call(*args, **options)
    return wrapper
shutil.copyfile = signalled(shutil.copyfile)  # of the index, after the files of tensors
shutil.rmtree = signalled(shutil.rmtree)  # again, while it cleans up
signal.signal({int(number)}, signal.SIG_IGN if {ignored} else signal.SIG_DFL)  # whatever the test process does
sys.argv[1:] = "convert in out --head-dim=4 --from=half --to=interleaved".split()
cli.main()
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == (0 if ignored else 128 + number), result.stderr
    assert {path.name for path in tmp_path.iterdir()} == ({"in", "out"} if ignored else {"in"})


def test_signal_handlers_are_restored(tmp_path, rng):
    file = write(tmp_path / "in.safetensors", layer(rng))
    is_main = threading.current_thread() is threading.main_thread()  # only this one can set handlers
    before = [signal.signal(number, signal.SIG_DFL) for number in SIGNALS if is_main]
    assert convert(file, tmp_path / "main").exit_code == 0
    after = [signal.signal(*each) for each in zip(SIGNALS, before, strict=False)]
    assert after == [signal.SIG_DFL] * len(before)
    thread = threading.Thread(target=convert, args=(file, tmp_path / "thread"))
    thread.start()
    thread.join()
    assert (tmp_path / "thread").read_bytes() == (tmp_path / "main").read_bytes()


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
@pytest.mark.parametrize("kind", ["a directory", "a device or a pipe", "a link to a directory"])
def test_only_files_are_replaced(tmp_path, rng, kind, overwrite):
    sharded, out = shards(tmp_path, rng), tmp_path / "out"
    out.mkdir()
    last = out / "model-1.safetensors"
    if kind == "a directory":
        last.mkdir()
    elif kind == "a link to a directory":
        last.symlink_to(tmp_path)
    elif hasattr(os, "mkfifo"):
        os.mkfifo(last)
    else:
        pytest.skip("the system has no named pipes")
    before = last.lstat()
    result = convert(sharded, out, *overwrite)
    after = last.lstat()
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(f"must be a file that can be replaced; got {kind.removeprefix('a link to ')}\n")
    assert (after.st_mode, after.st_ino, after.st_mtime_ns) == (before.st_mode, before.st_ino, before.st_mtime_ns)
    assert list(out.iterdir()) == [last]


def test_a_link_to_a_file_is_replaced_and_a_broken_link_counts_as_a_file(tmp_path, rng):
    file, out = write(tmp_path / "in.safetensors", layer(rng)), tmp_path / "out"
    for target in ("none", "some"):
        (tmp_path / "some").write_text("old")
        out.symlink_to(tmp_path / target)
        assert "must not exist" in convert(file, out).stderr and out.is_symlink()
        assert convert(file, out, "--overwrite").exit_code == 0 and not out.is_symlink()
        assert (tmp_path / "some").read_text() == "old"
        out.unlink()


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_file_is_refused_as_output_folder(tmp_path, rng, out):
    sharded = shards(tmp_path, rng)
    (tmp_path / "file").write_text("old")
    result = convert(sharded, tmp_path / out, "--overwrite")
    assert result.exit_code == 2 and "must be a folder" in result.stderr
    assert (tmp_path / "file").read_text() == "old"


def test_a_folder_is_read_by_its_index_or_only_file(tmp_path, rng):
    sharded = shards(tmp_path, rng)
    alone = tmp_path / "alone"
    alone.mkdir()
    file = write(alone / "model.safetensors", layer(rng))
    for source in (sharded, file):
        assert convert(source.parent, tmp_path / "out", "--overwrite").exit_code == 0
        assert (tmp_path / "out" / source.name).exists()
        assert "OUT must not be IN" in convert(source.parent, source.parent, "--overwrite").stderr
    assert read(tmp_path / "out" / file.name)[1].keys() == layer(rng).keys()
    file.rename(sharded.parent / file.name)
    for folder, got in ((alone, "neither"), (sharded.parent, "both")):
        result = convert(folder, tmp_path / "new")
        assert result.exit_code == 2 and result.stderr.endswith(f"model.safetensors.index.json; got {got}\n")


@pytest.mark.parametrize(
    ("listed", "got"),
    [
        ({"embed": "model-1.safetensors", "x": "model-0.safetensors"}, "'x' in model-0.safetensors, which isn't there"),
        ({"embed": "model-0.safetensors"}, "'embed' in model-0.safetensors, which isn't there"),
        ({}, "'embed' in model-1.safetensors, which it doesn't list"),
    ],
)
def test_an_index_that_does_not_match_its_files_is_refused(tmp_path, rng, listed, got):
    sharded = shards(tmp_path, rng)
    file = sharded.parent / "model-1.safetensors"
    write(file, read(file)[1] | {"embed": random_tensor(rng, "F32", 2)})
    index = json.loads(sharded.read_text())
    sharded.write_text(json.dumps({"weight_map": index["weight_map"] | listed}))
    result = convert(sharded, tmp_path / "out")
    assert result.exit_code == 2 and result.stderr.endswith(f"; got {got}\n")
    sharded.write_text(json.dumps({"weight_map": index["weight_map"] | {"embed": file.name}}))
    assert convert(sharded, tmp_path / "out").exit_code == 0


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"weight_map": {}}',
        '{"weight_map": [["a", "b"]]}',
        '{"weight_map": {"a": 1}}',
        *(json.dumps({"weight_map": {"a": name}}) for name in ("../b", "..", ".", "", "b\0", "/b", "c/b")),
    ],
)
def test_an_invalid_index_is_refused(tmp_path, content):
    (tmp_path / "index.json").write_text(content)
    result = convert(tmp_path / "index.json", tmp_path / "out")
    assert result.exit_code == 2 and "must be an index of safetensors files" in result.stderr


Q = {"dtype": "F16", "shape": [8, 6], "data_offsets": [0, 96]}
BROKEN = {
    "a list": [1],
    "negative": {"q": Q | {"shape": [-8, -6]}},
    "another shape": {"q": Q | {"shape": [8, 7]}},
    "another dtype": {"q": Q | {"dtype": "F32"}},
    "an unknown dtype": {"q": Q | {"dtype": "X"}},
    "a real shape": {"q": Q | {"shape": [8.0, 6]}},
    "no offsets": {"q": Q | {"data_offsets": []}},
    "a gap": {"q": Q | {"data_offsets": [1, 97]}},
    "overlapping": {"q": Q, "k": Q},
    "too short": {"q": Q, "k": Q | {"data_offsets": [96, 192]}},
    "too long": {},
    "an escape": {"q": Q, "\x1b[2J": {"dtype": "F16", "shape": [0], "data_offsets": [96, 96]}},
}
WHOLE = json.dumps({"q": Q}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(100),
        (2**63).to_bytes(8, "little") + WHOLE + bytes(96),  # a header beyond the file
        len(WHOLE).to_bytes(8, "little") + b"!" * len(WHOLE) + bytes(96),
        *(
            pytest.param(len(text).to_bytes(8, "little") + text.encode() + bytes(96), id=name)
            for name, text in ((name, json.dumps(header)) for name, header in BROKEN.items())
        ),
    ],
)
def test_broken_files_are_refused(tmp_path, content):
    (tmp_path / "in.safetensors").write_bytes(content)
    result = convert(tmp_path / "in.safetensors", tmp_path / "out.safetensors", "--name", "q")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "in.safetensors must be a whole safetensors file; " in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


def test_weights_of_torch_are_refused_with_a_hint(tmp_path):
    (tmp_path / "m.bin").write_bytes(bytes(100))
    result = convert(tmp_path / "m.bin", tmp_path / "out.safetensors")
    assert result.exit_code == 2
    assert "; safetensors.torch.save_file(torch.load(file), name) writes one" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--head-dim 6", "--head-dim must divide model.layers.0.self_attn.q_proj.weight along axis 0 into groups"),
        ("--head-dim 5", "--head-dim must leave an even number of features from --start 0 on; got 5"),
        ("--from hf", "--from must be one of 'half', 'interleaved'; got 'hf'; write half; see "),
        ("--name *.wq.weight", "--name must be patterns that match a tensor; got '*.wq.weight'"),
        ("--axis 1", "--axis must come with --name; got 1"),
        ("--heads 2", "--heads must be M/N, like 2/3, with M from 1 to N; got '2'"),
        ("--heads 3/2", "--heads must be M/N, like 2/3, with M from 1 to N; got '3/2'"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(tmp_path, rng, options, message):
    file = write(tmp_path / "in.safetensors", layer(rng))
    base = ["convert", str(file), str(tmp_path / "o"), "--head-dim", "4", "--from", "half", "--to", "interleaved"]
    result = run(*base, *options.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"rope-any: {message}") and result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


def test_features_that_share_a_byte_are_refused(tmp_path, rng):
    file = write(tmp_path / "in.safetensors", {"l.0.q_proj.bias": random_tensor(rng, "F4", 8)})
    result = convert(file, tmp_path / "out.safetensors")
    assert result.exit_code == 2 and "q_proj.bias must have whole bytes for each feature" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]
