"""Weights converted from one pairing to the other: the permutation, state dicts, whole models and adapters."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from conftest import one_jax
from hypothesis import given
from hypothesis import strategies as st

import rope_any as ra
from rope_any import weights

BOTH = list(itertools.permutations(["half", "interleaved"]))
HALVES = {"source": "interleaved", "target": "half"}
BACK = {"source": "half", "target": "interleaved"}


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
