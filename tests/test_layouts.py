"""The layouts of rotary caches, compared with the formulas of engines, copied here, and with installed engines."""

import re
from importlib import import_module
from pathlib import Path
from typing import get_args

import ml_dtypes
import numpy as np
import pytest
from bits import bits
from conftest import one_jax

import rope_any as ra
from rope_any.layouts import LAYOUTS, OfFrequencies, OneArray, TwoArrays, pack, unpack

D, ROWS, BASE = 12, 37, 500_000.0
X = np.zeros(1, dtype=np.float32)
F = ra.frequencies(D, base=BASE)
G = ra.frequencies(32, base=BASE)
MODEL = ra.Rope(G, pairing="half")
SCALED = ra.scaling.llama3(G, 8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192)
COMPLEX = {name for name, row in LAYOUTS.items() if row.is_complex}
TABLES = sorted(name for name, row in LAYOUTS.items() if row.holds == "cos and sin")
OF_FREQUENCIES = sorted({*LAYOUTS} - {*TABLES})
FLAT = {name for name in TABLES if name.startswith("tensorrt-llm")}


def test_type_checkers_see_each_layout_in_its_class():
    assert sorted(get_args(OfFrequencies)) == OF_FREQUENCIES
    assert sorted(get_args(TwoArrays)) == [name for name in TABLES if LAYOUTS[name].arrays == 2]
    assert sorted(get_args(OneArray)) == [name for name in TABLES if LAYOUTS[name].arrays == 1]


def arrays_of(cache):
    """Return the arrays of a cache of one or two."""
    return cache if isinstance(cache, tuple) else (cache,)


# --- formulas of the engines, from the files in the comments --------------------------------------------------


def engine_angles(rows=ROWS, d=D, base=BASE):
    """Return angles in float32, as the engines compute them."""
    inv_freq = 1.0 / (np.float32(base) ** (np.arange(0, d, 2, dtype=np.float32) / np.float32(d)))
    return np.outer(np.arange(rows, dtype=np.float32), inv_freq)


def cos_and_sin(a):
    """Return the cosines and the sines of angles."""
    return np.cos(a), np.sin(a)


def twice(a):
    """Return the numbers of each row twice, one time after the other."""
    return np.concatenate((a, a), axis=-1)


def vllm(a):
    """Return vLLM's cache of angles."""
    return np.concatenate(cos_and_sin(a), axis=-1)


def tensorrt(a, *, interleave=True, duplicate=False):
    """Return TensorRT-LLM's cache of angles."""
    # tensorrt_llm/functional.py: create_sinusoidal_positions_for_attention_plugin;
    # tensorrt_llm/_torch/attention_backend/interface.py: create_rope_const_params
    count, pairs = a.shape
    sinusoid = a[..., None]
    if duplicate:
        sinusoid = np.concatenate((sinusoid, sinusoid), axis=-2)
    flat = vllm(sinusoid).reshape(1, -1)
    if not interleave:
        flat = flat.reshape(count, -1, 2)[:, :pairs, :].transpose(0, 2, 1).reshape(1, -1)
    return flat


ENGINES = {
    # vllm/model_executor/layers/rotary_embedding/base.py: _compute_cos_sin_cache
    "vllm": vllm,
    "sglang": vllm,
    # FlashInfer, tests/attention/test_rope.py: the reference's _compute_cos_sin_cache, which the wrapper takes
    "flashinfer": lambda a: vllm(a).astype(np.float32),
    "tensorrt-llm": tensorrt,
    "tensorrt-llm-halves": lambda a: tensorrt(a, interleave=False),
    "tensorrt-llm-duplicated": lambda a: tensorrt(a, duplicate=True),
    # docs/ContribOperators.md of ONNX Runtime; flash_attn/layers/rotary.py: _update_cos_sin_cache
    "onnxruntime": cos_and_sin,
    "onnxruntime-gqa": cos_and_sin,
    "flash-attention": cos_and_sin,
    # transformers, models/llama/modeling_llama.py: LlamaRotaryEmbedding.forward
    "transformers": lambda a: cos_and_sin(twice(a[None])),
    # models/cohere/modeling_cohere.py: CohereRotaryEmbedding.forward
    "transformers-interleaved": lambda a: cos_and_sin(np.repeat(a[None], 2, axis=-1)),
    # models/gptj/modeling_gptj.py: create_sinusoidal_positions, with sines first
    "gptj": lambda a: np.concatenate((np.sin(a), np.cos(a)), axis=1),
    # diffusers, models/embeddings.py: get_1d_rotary_pos_embed, use_real and repeat_interleave_real
    "diffusers": lambda a: cos_and_sin(a.repeat(2, axis=1)),
    # llama/model.py: precompute_freqs_cis, torch.polar
    "meta": lambda a: (np.cos(a) + 1j * np.sin(a)).astype(np.complex64),
    # torchtune/modules/position_embeddings.py: build_rope_cache
    "torchtune": lambda a: np.stack(cos_and_sin(a), axis=-1),
    # torchtitan/models/common/rope.py: the cache of cosines and sines
    "torchtitan": lambda a: vllm(twice(a)),
    # transformer_engine/pytorch/attention/rope.py: RotaryPositionEmbedding.forward
    "transformer-engine": lambda a: twice(a)[:, None, None, :],
    "transformer-engine-interleaved": lambda a: a.repeat(2, axis=1)[:, None, None, :],
    # megatron/core/models/common/embeddings/rotary_pos_embedding.py
    "megatron": lambda a: twice(a)[:, None, None, :],
    "megatron-interleaved": lambda a: a.repeat(2, axis=1)[:, None, None, :],
}


def require_complex(lib, layout):
    """Skip a test of complex numbers for a library that has none, after it has refused them."""
    if layout in COMPLEX and not hasattr(lib.xp, "complex64"):
        with pytest.raises(ra.ArgumentValueError, match="layout must be one of real numbers"):
            pack(ra.cos_sin(range(4), F, like=lib(X)), layout)
        pytest.skip(f"{lib.name} has no complex numbers")


@one_jax
@pytest.mark.parametrize("layout", TABLES)
def test_packed_tables_equal_the_cache_of_the_engine(lib, layout):
    require_complex(lib, layout)
    table = ra.cos_sin(range(ROWS), F, like=lib(np.zeros(1), "float32"))
    cache = pack(table, layout)
    expected = arrays_of(ENGINES[layout](engine_angles()))
    for ours, theirs in zip(map(lib.get, arrays_of(cache)), expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, atol=ROWS * 2.0**-22, rtol=0)
    unpacked = unpack(cache, layout, rotary_dim=D if layout in FLAT else None)
    assert type(unpacked) is ra.Table
    assert bits(tuple(map(lib.get, unpacked))) == bits(tuple(map(lib.get, table)))


@one_jax
@pytest.mark.parametrize("layout", TABLES)
def test_any_numbers_keep_their_bits(lib, layout, rng):
    require_complex(lib, layout)

    def pack_and_unpack(table):
        """Return the cache of a table, and the table from the cache."""
        cache = pack(table, layout)
        return cache, unpack(cache, layout, rotary_dim=D)

    shape = (3, 5, D // 2) if layout.startswith("transformers") else (5, D // 2)
    for dtype in (d for d in LAYOUTS[layout].dtypes if d in lib.dtypes or d == "complex64"):
        table = ra.Table(*(lib(x, dtype.replace("complex64", "float32")) for x in rng.uniform(-1, 1, (2, *shape))))
        cache, unpacked = lib.quick(pack_and_unpack)(table)
        assert {lib.get(x).dtype.name for x in arrays_of(cache)} == {dtype}
        assert bits(tuple(map(lib.get, unpacked))) == bits(tuple(map(lib.get, table)))


def test_a_wider_table_is_rounded_once(lib):
    lib.need(dtype="float64")
    table = ra.cos_sin(range(ROWS), F, like=lib(np.zeros(1), "float64"))
    assert bits(lib.get(pack(table, "flashinfer"))) == bits(lib.get(pack(table, "vllm")))
    expected = np.concatenate([lib.get(x) for x in table], axis=-1)
    assert bits(lib.get(pack(table, "vllm", dtype="float32"))) == bits(expected.astype(np.float32))
    if "bfloat16" in lib.dtypes:
        short = pack(table, "vllm", dtype=lib.dtype("bfloat16"))
        assert bits(lib.get(short)) == bits(expected.astype(ml_dtypes.bfloat16))


@one_jax
@pytest.mark.parametrize("layout", sorted({*OF_FREQUENCIES} & {*ENGINES}))
def test_packed_angles_equal_those_of_the_engine(lib, layout):
    pairing = LAYOUTS[layout].pairing
    rope = ra.Rope(F, pairing=pairing)
    cache = pack(rope, layout, like=lib(np.zeros(1), "float32"), length=ROWS)
    theirs = ENGINES[layout](engine_angles())
    ours = lib.get(cache)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(ours, theirs, rtol=2.0**-21)
    unpacked = unpack(cache, layout)
    assert (unpacked.pairing, unpacked.start, unpacked.attention_factor) == (pairing, 0, 1.0)
    np.testing.assert_allclose(unpacked.frequencies, F, rtol=2.0**-23)
    assert bits(lib.get(pack(unpacked, layout, like=cache, length=ROWS))[:2]) == bits(ours[:2])


def test_packed_divisors_equal_those_of_llama_cpp(lib):
    # convert_hf_to_gguf.py: generate_extra_tensors of Llama 3; ggml_rope_ext divides base^(-2i/n) by them
    scaled = ra.scaling.llama3(F, 8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192)
    rope = ra.Rope(scaled, pairing="interleaved")
    cache = pack(rope, "llama.cpp", like=lib(np.zeros(1), "float32"), base=BASE)
    assert lib.get(cache).dtype == np.float32
    np.testing.assert_allclose(lib.get(cache), np.divide(F, scaled), rtol=1e-6)
    unpacked = unpack(cache, "llama.cpp", base=BASE, pairing="interleaved")
    np.testing.assert_allclose(unpacked.frequencies, scaled, rtol=2.0**-23)
    assert unpacked.pairing == "interleaved"


def test_packed_reciprocals_are_inverted_by_mlx(lib):
    # mlx/backend/cpu and fast.cpp: inv_freqs = reciprocal(freqs)
    rope = ra.Rope((*F, 0.0), pairing="half")
    cache = pack(rope, "mlx", like=lib(np.zeros(1), "float32"))
    np.testing.assert_allclose(1 / lib.get(cache), rope.frequencies, rtol=2.0**-22)
    unpacked = unpack(cache, "mlx", pairing="half")
    np.testing.assert_allclose(unpacked.frequencies, rope.frequencies, rtol=2.0**-23)
    assert unpacked.frequencies[-1] == 0


# --- installed engines ------------------------------------------------------------------------------------


def run_operator(op, inputs, outputs, **attributes):
    """Return the results of one operator of ONNX Runtime for named float32 and integer arrays."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    make, kind_of = onnx.helper, onnx.helper.np_dtype_to_tensor_dtype
    given = {name: data for name, data in inputs.items() if data is not None}
    names = [name if name in given else "" for name in inputs]
    node = make.make_node(op, names, outputs, domain="com.microsoft", **attributes)
    values = [make.make_tensor_value_info(name, kind_of(x.dtype), x.shape) for name, x in given.items()]
    results = [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs]
    opsets = [make.make_opsetid("", 18), make.make_opsetid("com.microsoft", 1)]
    graph = make.make_graph([node], "one", values, results)
    model = make.make_model(graph, opset_imports=opsets, ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options).run(None, given)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_onnx_runtime_rotates_by_a_packed_cache(pairing, rng):
    rope = ra.Rope(F, pairing=pairing)
    x = rng.standard_normal((2, 3, 5, D)).astype(np.float32)
    at = rng.integers(0, ROWS, (2, 5))
    cos, sin = pack(rope.table(range(ROWS), like=x), "onnxruntime")
    inputs = {"x": x, "at": at, "cos": cos, "sin": sin}
    (got,) = run_operator("RotaryEmbedding", inputs, ["y"], interleaved=int(pairing == "interleaved"))
    np.testing.assert_allclose(got, rope.apply(x, at), atol=1e-6, rtol=0)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_attention_of_onnx_runtime_rotates_keys_by_a_packed_cache(pairing, rng):
    rope, head_dim = ra.Rope(ra.frequencies(16), pairing=pairing), 16
    q, k, v = (rng.standard_normal((2, 5, heads * head_dim)).astype(np.float32) for heads in (4, 2, 2))
    cos, sin = pack(rope.table(range(ROWS), like=q), "onnxruntime-gqa")
    total = {"seqlens_k": np.full(2, 4, dtype=np.int32), "total": np.asarray([5], dtype=np.int32)}
    inputs = {"q": q, "k": k, "v": v, "past_k": None, "past_v": None, **total, "cos": cos, "sin": sin}
    flags = {"do_rotary": 1, "rotary_interleaved": int(pairing == "interleaved")}
    outputs = ["y", "present_k", "present_v"]
    _, keys, _ = run_operator("GroupQueryAttention", inputs, outputs, num_heads=4, kv_num_heads=2, **flags)
    expected = rope.apply(np.moveaxis(k.reshape(2, 5, 2, head_dim), 1, 2))
    np.testing.assert_allclose(keys, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("model_type", "layout"), [("llama", "transformers"), ("cohere", "transformers-interleaved")])
def test_packed_arrays_equal_those_of_transformers(torch, model_type, layout):
    pytest.importorskip("transformers", reason="transformers is not installed")
    module, name = import_module(f"transformers.models.{model_type}.modeling_{model_type}"), model_type.title()
    config = getattr(module, f"{name}Config")(hidden_size=4 * D, num_attention_heads=4, rope_theta=BASE)
    at = torch.tensor([[0, 1, 2, 30], [7, 8, 9, 10]])
    theirs = getattr(module, f"{name}RotaryEmbedding")(config)(torch.zeros(1), at)
    rope = ra.Rope.from_config(config)
    ours = pack(rope.table(at), layout)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    unpacked = unpack(theirs, layout)
    torch.testing.assert_close(unpacked.cos, rope.table(at).cos, atol=1e-5, rtol=0)


def test_a_packed_table_equals_that_of_gptj(torch):
    gptj = pytest.importorskip("transformers.models.gptj.modeling_gptj", reason="transformers is not installed")
    theirs = gptj.create_sinusoidal_positions(ROWS, D)
    table = ra.cos_sin(range(ROWS), ra.frequencies(D), like=theirs)
    torch.testing.assert_close(pack(table, "gptj"), theirs, atol=1e-5, rtol=0)
    torch.testing.assert_close(unpack(theirs, "gptj").sin, table.sin, atol=1e-5, rtol=0)


def test_packed_arrays_equal_those_of_diffusers(torch):
    embeddings = pytest.importorskip("diffusers.models.embeddings", reason="diffusers is not installed")
    table = ra.cos_sin(range(ROWS), ra.frequencies(D), like=torch.zeros(1))
    theirs = embeddings.get_1d_rotary_pos_embed(D, ROWS, use_real=True, repeat_interleave_real=True)
    for a, b in zip(pack(table, "diffusers"), theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    theirs = embeddings.get_1d_rotary_pos_embed(D, ROWS, use_real=False)
    torch.testing.assert_close(pack(table, "meta"), theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_mlx_rotates_by_packed_reciprocals(pairing, rng):
    mx = pytest.importorskip("mlx.core", reason="mlx is not installed")
    rope = ra.Rope(SCALED, pairing=pairing)
    x = mx.array(rng.standard_normal((2, 3, 5, 40)).astype(np.float32))
    freqs = pack(rope, "mlx", like=x)
    got = mx.fast.rope(x, 32, traditional=pairing == "interleaved", base=None, scale=1.0, offset=7, freqs=freqs)
    np.testing.assert_allclose(np.array(got), np.array(rope.apply(x, 7)), atol=1e-5, rtol=0)


def test_packed_arrays_are_contiguous(torch):
    table = ra.cos_sin(range(ROWS), F, like=torch.zeros(1))
    for layout in TABLES:
        assert all(x.is_contiguous() for x in arrays_of(pack(table, layout))), layout


def test_meta_rotates_by_packed_complex_numbers(torch, rng):
    rope = ra.Rope(F, pairing="interleaved")
    x = torch.tensor(rng.standard_normal((2, 5, 3, D)), dtype=torch.float32)
    freqs_cis = pack(rope.table(range(ROWS), like=x), "meta")[:5]
    # llama/model.py: apply_rotary_emb
    x_ = torch.view_as_complex(x.reshape(2, 5, 3, -1, 2))
    got = torch.view_as_real(x_ * freqs_cis.reshape(1, 5, 1, -1)).flatten(3)
    torch.testing.assert_close(got, rope.apply(x, seq_axis=1), atol=1e-6, rtol=0)


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[0, 1, 6, 7], [2, 3, 4, 5], [1, 2, 3]], ids=["cp 0", "cp 1", "offset"])
def test_angles_of_other_positions_are_refused(rows):
    cache = pack(ra.Rope(F, pairing="half"), "megatron", like=X, length=8)
    with pytest.raises(ra.ArgumentValueError, match="positions 0, 1, 2"):
        unpack(cache[rows], "megatron")
    np.testing.assert_allclose(unpack(cache[:2], "megatron").frequencies, F, rtol=2.0**-23)


def test_an_unknown_layout_gets_the_nearest_name():
    with pytest.raises(ra.ArgumentValueError, match=r"^layout must be one of .*; did you mean vllm\?$"):
        pack(ra.Table(X, X), "vlm")


def test_the_page_has_the_axes_of_each_layout():
    page = (Path(__file__).parent.parent / "docs" / "beside-an-engine.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `")]
    found = {name: row[2].strip() for row in rows if len(row) == 3 for name in re.findall(r"`([\w.-]+)`", row[0])}
    assert found == {name: f"({', '.join(row.axes.split()).replace('*', ' × ')})" for name, row in LAYOUTS.items()}
