"""Weights converted from one pairing to the other: the permutation, scores of whole models, and checkpoints."""

import itertools
import json
import math
import os
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
BACK = {"source": "half", "target": "interleaved"}
OUTPUT = threading.Lock()  # a CliRunner captures the output of all threads


def expected(head_dim, source, target, *, rotary_dim=None, start=0, heads=(1, 1)):
    """Return the order of some heads by the definition: pair i is (i, i + n) or (2i, 2i + 1)."""
    n = (head_dim - start if rotary_dim is None else rotary_dim) // 2
    members = {"half": [j for i in range(n) for j in (i, i + n)], "interleaved": [*range(2 * n)]}
    order = np.arange(heads[1] * head_dim).reshape(heads[1], head_dim)
    rotated = order[: heads[0], start:]
    rotated[:, members[target]] = rotated[:, members[source]]
    return order.ravel().tolist()


@st.composite
def layouts(draw):
    """Draw a head_dim and the options of a layout."""
    head_dim = draw(st.integers(2, 20))
    start = draw(st.integers(0, head_dim - 2))
    even = (head_dim - start) % 2 == 0
    rotary_dim = draw(st.integers(0 if even else 1, (head_dim - start) // 2)) * 2 or None
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
    order = expected(6, *BACK.values())
    convert = lib.quick(lambda w: weights.convert(w, 6, **BACK, axis=axis))
    for dtype in (*lib.dtypes, *lib.integers):
        w = lib(rng.integers(0, 100, (12, 12)), dtype)
        got = convert(w)
        assert type(got) is type(w) and got.dtype == w.dtype and got.shape == w.shape
        assert getattr(got, "device", None) == getattr(w, "device", None)
        np.testing.assert_array_equal(lib.get(got), lib.get(w).take([*order, *(6 + i for i in order)], axis))
    other_axis_empty = (0, 12) if axis else (12, 0)
    assert convert(lib(np.ones(other_axis_empty), "float32")).shape == other_axis_empty


@pytest.mark.parametrize(("library", "dtypes"), [("numpy", ml_dtypes), ("torch", None)])
def test_a_round_trip_keeps_all_bits_of_any_dtype(rng, library, dtypes):
    """Such as those of a nan with a payload, and of negative zero."""
    xp = pytest.importorskip(library)
    for name in ("bool", "uint8", "float64", "complex64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        raw = xp.asarray(rng.integers(0, 2 if name == "bool" else 256, (24, 40), dtype=np.uint8))
        w = raw.view(getattr(dtypes or xp, name, name))
        converted = weights.convert(w, 8, **BACK)
        assert converted.dtype == w.dtype and (converted.view(xp.uint8) != raw).any()
        assert (weights.convert(converted, 8, **HALVES).view(xp.uint8) == raw).all()


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


BESIDE = "must have only tensors beside it .* got q_proj."
PACKED = "names must match no packed weight, .* got q_proj."
ADAPTER = "names must match no adapter .* got q_proj."
# the message, the tensors beside each other, and the names that are given
REFUSED = [
    (BESIDE, {"bias": (256,), "qweight": (8, 256), "scales": (2, 256), "qzeros": (2, 32)}, None),  # GPTQ
    (BESIDE, {"weight": (4096, 1), "weight.absmax": (128,), "weight.quant_map": (16,)}, None),  # bitsandbytes
    (BESIDE, {"weight": (320, 6), "weight_scale_inv": (3, 1)}, None),  # a partial block
    (BESIDE, {"weight": (256, 6), "weight_scale_inv": (8, 1)}, None),  # blocks across heads
    (BESIDE, {"weight": (384, 6), "weight_scale_inv": (2, 1)}, None),  # blocks of two possible sizes, 256 or 192
    (BESIDE, {"weight": (256, 6), "weight_scale": (4, 2, 2)}, None),  # scales of other axes
    (BESIDE, {"weight": (256, 256), "scale": (256,)}, None),  # of rows or of columns
    (f"^q_proj.weight {BESIDE}bias", {"weight": (128, 3), "bias": (128,)}, {"*.weight": 0}),
    *((PACKED + x, {"scales": (2, 256), x: (64, 128)}, {"*": 1}) for x in ("qweight", "qzeros", "weight_packed")),
    # adapters in which features share numbers
    *(
        row
        for part in ("vera_lambda_b", "lokr_w1", "boft_R", "hra_u.default", "road_theta", "hada_t1")
        for row in (
            (f"{ADAPTER}{part}; merge it", {part: (64, 6)}, {"*.q_proj.*": 0}),
            (rf"{BESIDE}{part} of shape .*; merge an adapter first$", {"weight": (64, 6), part: (64, 6)}, None),
        )
    ),
]


@pytest.mark.parametrize(("message", "shapes", "names"), REFUSED)
def test_tensors_that_cannot_be_permuted_are_refused(message, shapes, names):
    state = tensors(**{f"l.0.q_proj.{kind}": shape for kind, shape in shapes.items()})
    with pytest.raises(ValueError, match=message.replace("q_proj", "l.0.q_proj")):
        weights.convert_state_dict(state, 64, **HALVES, names=names)


@pytest.mark.parametrize("other", ["query_key_value", "qkv_proj", "wqkv", "wq_b", "kv_proj", "k_up", "c_attn"])
def test_names_are_required_if_other_tensors_make_queries_or_keys(other):
    """With a known and an unknown name of norms or projections, only half would be converted."""
    state = {"l.0.attn.q_norm.weight": np.zeros(4), f"l.0.attn.{other}.weight": np.zeros((24, 8))}
    with pytest.raises(ValueError, match=f"names must be given if a layer .* got l.0.attn.{other}"):
        weights.convert_state_dict(state, 4, **HALVES)
    assert changed(state, names={"*.q_norm.weight": 0}) == {"l.0.attn.q_norm.weight"}


@pytest.mark.parametrize(
    ("other", "stack"),
    [("vision.blocks.0.attn.q_proj.weight", "vision.blocks"), ("0.wq.weight", ""), ("pool.attn.query.weight", "pool")],
)
def test_names_are_required_if_there_are_two_stacks(other, stack):
    """A vision tower with head_dim 2 and a text model with head_dim 4 match the same patterns."""
    names = [f"text.model.layers.{i}.attn.q_proj.weight" for i in range(3)]
    state = dict.fromkeys([*names, other], np.zeros((8, 8)))
    with pytest.raises(ValueError, match=f"names must be given if several .* 'text.model.layers' and '{stack}'$"):
        weights.convert_state_dict(state, 4, **HALVES)
    assert changed(state, names={"text.*": 0}) == {*names}


def test_a_layer_alone_is_one_stack():
    state = tensors(attn__q_proj__weight=(8, 3), attn__k_proj__weight=(4, 3), attn__q_norm__weight=(4,))
    assert changed(state) == set(state)


# --- whole models --------------------------------------------------------------------------------------------

SMALL = {"vocab_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
SMALL |= {"hidden_size": 32, "intermediate_size": 48, "num_key_value_heads": 2}
OF_NEOX = {"rotary_dim": 6, "heads": (2, 3), "names": {"*.query_key_value.*": 0}}
MODELS = [
    ("Llama", {}, {}),
    ("Llama", {"attention_bias": True}, {}),
    ("Qwen2", {}, {}),
    ("Qwen3", {"head_dim": 12}, {}),
    ("Olmo2", {}, {}),
    ("StableLm", {"partial_rotary_factor": 0.5, "qk_layernorm": True}, {"rotary_dim": 4}),
    ("Glm", {"head_dim": 8, "pad_token_id": None}, {"rotary_dim": 4}),
    ("GPTNeoX", {"hidden_size": 96}, OF_NEOX),
    ("Phi3", {"pad_token_id": None}, {"heads": (6, 8), "names": {"*.qkv_proj.weight": 0}}),
]


@pytest.mark.parametrize(("kind", "keys", "options"), MODELS)
def test_a_converted_transformers_model_gives_the_same_logits(kind, keys, options, monkeypatch):
    torch = pytest.importorskip("torch", reason="the models run on torch")
    transformers = pytest.importorskip("transformers", minversion="5", reason="the models are those of transformers")
    config = getattr(transformers, f"{kind}Config")(**SMALL | keys)
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
    of_rows = {f"{inner}weight": (16, 6), f"{inner}bias": (16,), "lora_B.x.weight": (16, 8), "lora_B.x.bias": (16,)}
    of_rows |= {"lora_magnitude_vector": (16,), "ia3_l.default": (16, 1), "dora_scale": (16, 1), "hada_w1_a": (16, 8)}
    of_rank = {"lora_A.x.weight": (8, 6), "lora_embedding_A.x": (8, 6), "lora_mid.weight": (8, 8), "hada_w1_b": (8, 6)}
    state = tensors(**{f"a.q_proj.{name}": shape for name, shape in (of_rows | of_rank).items()})
    assert changed(state, 8, names=names) == {f"a.q_proj.{name}" for name in of_rows}
    with pytest.raises(ra.ArgumentValueError, match="only tensors beside it"):
        changed(state | {"a.q_proj.unknown": np.zeros((16, 3))}, 8, names=names and {"*.q_proj.[!u]*": 0})


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
    shapes = {"q_proj.weight": (16, 6), "k_proj.weight": (8, 6), "v_proj.weight": (8, 6), "q_proj.bias": (16,)}
    return {f"model.layers.{i}.self_attn.{name}": random_tensor(rng, dtype, *shape) for name, shape in shapes.items()}


def convert(*arguments):
    """Run the command for heads of four features in this process, unless the arguments say otherwise."""
    command = ["convert", "--head-dim", "4", "--from", "interleaved", "--to", "half", *map(str, arguments)]
    with OUTPUT:
        return CliRunner().invoke(cli.app, command, prog_name="rope-any")


def refusal(*arguments):
    """Run the command, which must be refused in one line; return the line."""
    result = convert(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.output
    return result.stderr.removesuffix("\n")


@pytest.fixture
def file(tmp_path, rng):
    """Return a file of one layer."""
    return write(tmp_path / "in.safetensors", layer(rng))


@pytest.fixture
def sharded(tmp_path, rng):
    """Return the index of a checkpoint of two files, one for each layer."""
    folder, names = tmp_path / "in", {}
    folder.mkdir()
    for i in range(2):
        part = layer(rng, i=i)
        names |= dict.fromkeys(part, write(folder / f"model-{i}.safetensors", part).name)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return index


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
    options = ("--head-dim", 64, "--overwrite")
    assert convert(file, out, *options).exit_code == 0  # imports what the command needs, which is not counted
    tracemalloc.start()
    result = convert(file, out, *options)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.exit_code == 0 and peak < 2**24, result.output
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


def contents(folder):
    """Return the bytes of the files in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_checkpoint_of_several_files_is_converted(tmp_path, sharded):
    before, out = contents(sharded.parent), tmp_path / "new" / "out"
    result = convert(sharded, out, "--name", "*.1.*.[qk]_proj.*")  # only in one file
    assert result.exit_code == 0, result.output
    assert contents(sharded.parent) == before
    assert dict(contents(out).items() - before.items()).keys() == {"model-1.safetensors"}
    assert contents(out).keys() == before.keys()
    assert "must not exist" in refusal(sharded, out)
    assert convert(sharded, out, "--overwrite").exit_code == 0


def test_the_input_is_never_modified(tmp_path, file):
    before, link, hard_link = file.read_bytes(), tmp_path / "link", tmp_path / "hard link"
    link.symlink_to(file)
    os.link(file, hard_link)
    for out in (file, link, hard_link, tmp_path / ".." / tmp_path.name / file.name):
        assert "OUT must not be IN, which is never touched" in refusal(file, out, "--overwrite")
        assert file.read_bytes() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("No space left")])
def test_a_failed_conversion_leaves_no_files(tmp_path, sharded, monkeypatch, error):
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
def test_a_failed_conversion_restores_replaced_files(tmp_path, sharded, monkeypatch, error, at):
    out = tmp_path / "out"
    out.mkdir()
    for file in sharded.parent.iterdir():
        (out / file.name).write_text(f"old {file.name}")
    before, count, replace = contents(out), itertools.count(), Path.replace

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
    assert contents(out) == before


def test_a_file_written_meanwhile_is_not_replaced(tmp_path, sharded, monkeypatch):
    written, copyfile = tmp_path / "out" / "model-1.safetensors", shutil.copyfile
    written.parent.mkdir()
    monkeypatch.setattr(shutil, "copyfile", lambda *files: (copyfile(*files), written.write_text("new")))
    assert "model-1.safetensors must not exist" in refusal(sharded, written.parent)
    assert contents(written.parent) == {written.name: b"new"}


ON_POSIX = pytest.mark.skipif(os.name != "posix", reason="elsewhere a signal ends a process, and no pipe has a name")
SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@ON_POSIX
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.usefixtures("sharded")
def test_a_signal_leaves_no_files(tmp_path, number, ignored):
    """A process gets a signal while it writes. An ignored signal, as SIGHUP under nohup, stays ignored."""
    program = f"""
import os, shutil, signal, sys
from rope_any import cli
def signalled(call):
    return lambda *args, **options: os.kill(os.getpid(), {int(number)}) or call(*args, **options)
shutil.copyfile = signalled(shutil.copyfile)  # of the index, after the files of tensors
shutil.rmtree = signalled(shutil.rmtree)  # again, while it cleans up
signal.signal({int(number)}, signal.SIG_IGN if {ignored} else signal.SIG_DFL)  # whatever the test process does
sys.argv[1:] = "convert in out --head-dim=4 --from=half --to=interleaved".split()
cli.main()
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == (0 if ignored else 128 + number), result.stderr
    assert {path.name for path in tmp_path.iterdir()} == ({"in", "out"} if ignored else {"in"})


def test_signal_handlers_are_restored(tmp_path, file):
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
@pytest.mark.parametrize(
    ("got", "make"),
    [
        ("a directory", Path.mkdir),
        ("a directory", lambda path: path.symlink_to(path.parent.parent)),
        pytest.param("a device or a pipe", getattr(os, "mkfifo", None), marks=ON_POSIX),
    ],
)
def test_only_files_are_replaced(tmp_path, sharded, got, make, overwrite):
    last = tmp_path / "out" / "model-1.safetensors"
    last.parent.mkdir()
    make(last)
    before = last.lstat()
    assert refusal(sharded, last.parent, *overwrite).endswith(f"must be a file that can be replaced; got {got}")
    after = last.lstat()
    assert (after.st_mode, after.st_ino, after.st_mtime_ns) == (before.st_mode, before.st_ino, before.st_mtime_ns)
    assert list(last.parent.iterdir()) == [last]


def test_a_link_to_a_file_is_replaced_and_a_broken_link_counts_as_a_file(tmp_path, file):
    out = tmp_path / "out"
    for target in ("none", "some"):
        (tmp_path / "some").write_text("old")
        out.symlink_to(tmp_path / target)
        assert "must not exist" in refusal(file, out) and out.is_symlink()
        assert convert(file, out, "--overwrite").exit_code == 0 and not out.is_symlink()
        assert (tmp_path / "some").read_text() == "old"
        out.unlink()


def test_a_file_is_refused_as_output_folder(tmp_path, sharded):
    (tmp_path / "file").write_text("old")
    for out in ("file", "file/below"):
        assert "must be a folder" in refusal(sharded, tmp_path / out, "--overwrite")
    assert (tmp_path / "file").read_text() == "old"


def test_a_folder_is_read_by_its_index_or_only_file(tmp_path, rng, sharded):
    alone = tmp_path / "alone"
    alone.mkdir()
    file = write(alone / "model.safetensors", layer(rng))
    for source in (sharded, file):
        assert convert(source.parent, tmp_path / "out", "--overwrite").exit_code == 0
        assert (tmp_path / "out" / source.name).exists()
        assert "OUT must not be IN" in refusal(source.parent, source.parent, "--overwrite")
    assert read(tmp_path / "out" / file.name)[1].keys() == layer(rng).keys()
    file.rename(sharded.parent / file.name)
    for folder, got in ((alone, "neither"), (sharded.parent, "both")):
        assert refusal(folder, tmp_path / "new").endswith(f"model.safetensors.index.json; got {got}")


@pytest.mark.parametrize(
    ("listed", "got"),
    [
        ({"embed": "model-1.safetensors", "x": "model-0.safetensors"}, "'x' in model-0.safetensors, which isn't there"),
        ({"embed": "model-0.safetensors"}, "'embed' in model-0.safetensors, which isn't there"),
        ({}, "'embed' in model-1.safetensors, which it doesn't list"),
    ],
)
def test_an_index_that_does_not_match_its_files_is_refused(tmp_path, rng, sharded, listed, got):
    file = sharded.parent / "model-1.safetensors"
    write(file, read(file)[1] | {"embed": random_tensor(rng, "F32", 2)})
    index = json.loads(sharded.read_text())
    sharded.write_text(json.dumps({"weight_map": index["weight_map"] | listed}))
    assert refusal(sharded, tmp_path / "out").endswith(f"; got {got}")
    sharded.write_text(json.dumps({"weight_map": index["weight_map"] | {"embed": file.name}}))
    assert convert(sharded, tmp_path / "out").exit_code == 0


NO_NAMES = [1, "../b", "..", ".", "", "b\0", "/b", "c/b"]


@pytest.mark.parametrize("names", [{}, [["a", "b"]], *({"a": name} for name in NO_NAMES)])
def test_an_invalid_index_is_refused(tmp_path, names):
    index = tmp_path / "index.json"
    for content in ("{", json.dumps({"weight_map": names})):
        index.write_text(content)
        assert "must be an index of safetensors files" in refusal(index, tmp_path / "out")


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


@pytest.mark.parametrize("name", ["empty", "zeros", "a header beyond the file", "no JSON", *BROKEN])
def test_broken_files_are_refused(tmp_path, name):
    file, head = tmp_path / "in.safetensors", json.dumps(BROKEN.get(name, {"q": Q})).encode()
    whole = len(head).to_bytes(8, "little") + head + bytes(96)
    broken = {"empty": b"", "zeros": bytes(100), "no JSON": whole.replace(b"{", b"!")}
    broken["a header beyond the file"] = (2**63).to_bytes(8, "little") + whole[8:]
    file.write_bytes(broken.get(name, whole))
    assert f"{file} must be a whole safetensors file; " in refusal(file, tmp_path / "out.safetensors", "--name", "q")
    assert list(tmp_path.iterdir()) == [file]


def test_weights_of_torch_are_refused_with_a_hint(tmp_path):
    (tmp_path / "m.bin").write_bytes(bytes(100))
    hint = "; safetensors.torch.save_file(torch.load(file), name) writes one"
    assert hint in refusal(tmp_path / "m.bin", tmp_path / "out.safetensors")


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
def test_wrong_options_are_refused_in_one_sentence(tmp_path, file, options, message):
    assert refusal(file, tmp_path / "o", *options.split()).startswith(f"rope-any: {message}")
    assert list(tmp_path.iterdir()) == [file]


def test_features_that_share_a_byte_are_refused(tmp_path, rng):
    file = write(tmp_path / "in.safetensors", {"l.0.q_proj.bias": random_tensor(rng, "F4", 8)})
    assert "q_proj.bias must have whole bytes for each feature" in refusal(file, tmp_path / "out.safetensors")
    assert list(tmp_path.iterdir()) == [file]
