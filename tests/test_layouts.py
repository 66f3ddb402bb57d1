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
from rope_any.testing import check_cache

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


# --- caches compared row by row ---------------------------------------------------------------------------


def angles(f=G, rows=2048, start=0):
    """Return angles in float32, as the engines compute them."""
    return np.outer(np.arange(start, start + rows, dtype=np.float32), np.float32(f))


def rounded(x, dtype):
    """Return numbers rounded to a dtype, in float32."""
    return x.astype(dtype).astype(np.float32)


def changed(x, index, value):
    """Return a copy of x with some values changed."""
    x = x.copy()
    x[index] = value
    return x


@pytest.mark.parametrize("layout", sorted(ENGINES))
@pytest.mark.parametrize(("d", "base", "rows"), [(32, 5e5, 2048), (24, 1e6, 700), (64, 1e4, 9000)])
def test_float32_caches_of_an_engine_pass(layout, d, base, rows):
    cache = ENGINES[layout](engine_angles(rows, d, base).astype(np.float32))
    rope = ra.Rope(ra.frequencies(d, base=base), pairing=LAYOUTS[layout].pairing or "half")
    report = check_cache(cache, layout, rope)
    assert report and report.passed and (report.first_wrong, report.wrong, report.causes) == (None, 0, ())
    assert len(report.errors) == len(report.ratios) == rows
    assert 0 < max(report.ratios) <= 1 and max(report.errors) < 0.01
    assert str(report).startswith(f"passed: layout {layout}, {rows} rows of {d // 2} pairs, ")


def test_a_cache_of_each_library_and_dtype_passes(lib):
    for layout in ("vllm", "onnxruntime", "transformers-interleaved", "torchtune"):
        for dtype in (d for d in lib.dtypes if d in LAYOUTS[layout].dtypes):
            wide = "float64" if dtype == "float64" else "float32"
            exact = ra.cos_sin(range(ROWS), F, like=np.zeros(1), attention_factor=1.2)
            cache = pack(ra.Table(*(lib(x, wide) for x in exact)), layout, dtype=lib.dtype(dtype))
            report = check_cache(cache, layout, ra.Rope(F, pairing="half", attention_factor=1.2))
            assert report.passed and report.subject.endswith(f", {ROWS} rows of {D // 2} pairs, {dtype}")


RIGHT = vllm(angles())
OTHER = vllm(angles(ra.frequencies(32)))
OTHER_BASE = "other frequencies: those of base 10000"
BY_PARTS = "frequencies scaled by parts: fast pairs are right, slow ones times 0.125, as by YaRN or Llama 3"
ADJACENT = "several layouts fit, in another shape: tensorrt-llm, torchtune"
TWICE = "the numbers of each row are repeated"
HALF_ROWS = vllm(angles(rows=1024))
# name -> cache, cause, first wrong row
WRONG = {
    "base": (OTHER, OTHER_BASE, 1),
    "linear": (vllm(angles(np.asarray(G) / 4)), "all frequencies times 0.25", 1),
    "by parts": (vllm(angles(SCALED)), BY_PARTS, 1),
    "factor": (RIGHT * np.float32(1.2), "an attention factor of 1.2 rather than 1", 0),
    "bfloat16": (rounded(RIGHT, ml_dtypes.bfloat16), "the table in bfloat16", 1),
    "float16": (rounded(RIGHT, np.float16), "the table in float16", 1),
    "inv_freq": (vllm(angles(rounded(np.asarray(G), ml_dtypes.bfloat16))), "frequencies in bfloat16", 1),
    "shift": (vllm(angles(start=1)), "positions one too large", 0),
    "sign": (vllm(-angles()), "the opposite sign: pairs rotate backwards", 1),
    "some rows": (changed(RIGHT, slice(500, 600), 0), "100 rows are wrong: 500 to 599", 500),
    "zero end": (changed(RIGHT, slice(900, None), 0), "1148 rows are wrong: 900 to 2047", 900),
    "two tables": (np.concatenate([RIGHT[:1500], OTHER[1500:]]), "548 rows are wrong: 1500 to 2047", 1500),
    "one pair": (changed(RIGHT, (slice(1, None), 5), 0.1), "1 pair is wrong: 5", 1),
    "zeros": (np.zeros_like(RIGHT), "all numbers are 0", 0),
    "noise": (np.random.default_rng(0).uniform(-1, 1, (2048, 32)).astype(np.float32), None, 0),
    "cosines scaled": (RIGHT * np.repeat(np.float32([1.1, 1]), 16), None, 0),
    "nans": (np.full_like(RIGHT, np.nan), "infinite or NaN values", 0),
    "reversed": (vllm(angles()[:, ::-1]), "the pairs are in reverse order", 1),
    "each row twice": (HALF_ROWS.repeat(2, axis=0), "the rows are repeated, side by side", 1),
    "all rows twice": (np.tile(HALF_ROWS, (2, 1)), "the rows are repeated, one time after the other", 1024),
    "gptj": (ENGINES["gptj"](angles()), 'the layout is "gptj"', 0),
    "adjacent": (tensorrt(angles()).reshape(2048, 32), ADJACENT, 0),
    "shape": (ENGINES["torchtune"](angles()), 'the layout is "torchtune"', None),
    "flat": (tensorrt(angles(), interleave=False), 'the layout is "tensorrt-llm-halves"', None),
    "wide": (ENGINES["torchtitan"](angles()), 'the layout is "torchtitan"', None),
    "a batch": (RIGHT[None], "the shape is (1, 2048, 32) rather than (2048, 32)", None),
    "ravelled": (RIGHT.ravel(), "the shape is (65536,) rather than (2048, 32)", None),
    "transposed": (RIGHT.T.copy(), "the axes are in reverse order", None),
    "whole row twice": (np.tile(RIGHT, (1, 2)), f"{TWICE}, one time after the other", None),
    "each number twice": (RIGHT.repeat(2, axis=1), f"{TWICE}, side by side", None),
    "a batch and a base": (OTHER[None], f"the shape is (1, 2048, 32) rather than (2048, 32); {OTHER_BASE}", 1),
    "gptj and a base": (ENGINES["gptj"](angles(ra.frequencies(32))), f'the layout is "gptj"; {OTHER_BASE}', 0),
    "float16 and a base": (rounded(OTHER, np.float16), f"{OTHER_BASE}; the table in float16", 1),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_of_a_cache_are_named(name):
    cache, cause, first = WRONG[name]
    report = check_cache(cache, "vllm", MODEL)
    assert not report and report.first_wrong == first
    assert report.causes == (() if cause is None else tuple(cause.split("; ")))
    assert str(report).endswith(f"\n  likely cause: {cause or 'none of the known ones'}")
    assert re.match(r"FAILED: layout vllm, (read as [\w-]+, )?2048 rows of 16 pairs, float32\n", str(report))
    if first is not None:
        assert report.ratios[first] > 1 >= max(report.ratios[:first], default=0)
        assert f"{report.wrong} of 2048 rows are wrong, first row {first}" in str(report)


# one wrong number: its column is that of a pair, in the cosines or in the sines
@pytest.mark.parametrize("row", [0, 1, 2, 7, 8, 9, 10, 100, 107, 1000, 1234, 2040, 2047])
@pytest.mark.parametrize(("column", "value"), [(0, 0.5), (5, 0.1), (31, 1.0), (16, np.nan), (20, -np.inf)])
def test_one_wrong_number_is_named_by_its_row(row, column, value):
    report = check_cache(changed(RIGHT, (row, column), value), "vllm", MODEL)
    assert (report.first_wrong, report.wrong, report.causes[0]) == (row, 1, f"1 row is wrong: {row}")
    assert report.causes[1:] == (() if np.isfinite(value) else ("infinite or NaN values",))


def test_wrong_rows_are_named_in_runs():
    rows = [3, 5, 6, 7, 900, 902, 904, 906]
    report = check_cache(changed(RIGHT, rows, 0), "vllm", MODEL)
    assert report.causes == ("8 rows are wrong: 3, 5 to 7, 900, 902, 904, ...",)
    short = check_cache(changed(vllm(angles(rows=2)), (1, 3), 0), "vllm", MODEL)
    assert short.causes == ("1 pair is wrong: 3",)  # in all rows except that of position 0


@pytest.mark.parametrize("layout", ["vllm", "megatron"])
def test_an_exact_angle_has_no_error_at_large_positions(layout):
    """If the frequency is a power of two, angles are exact in float32, so cosines are rounded once."""
    f = (1.0, 0.25, 0.19)
    rope, cache = ra.Rope(f, pairing="half"), ENGINES[layout](angles(f, rows=100_001))
    assert check_cache(cache, layout, rope).passed
    for column, is_exact in ((0, True), (1, True), (2, False)):
        wrong = cache.copy()
        error = 1e-5 if layout == "vllm" else 0.0625
        angle = np.float64(100_000) * np.float32(f[column])
        wrong[-1, ..., column] = (np.cos(angle) if layout == "vllm" else angle) + (error if is_exact else error / 16)
        assert check_cache(wrong, layout, rope).first_wrong == (100_000 if is_exact else None), column


def test_several_layouts_are_named():
    fit, short = "several layouts fit: vllm, sglang", rounded(RIGHT, np.float16)
    assert check_cache(RIGHT, "gptj", MODEL).causes == (f"{fit}, flashinfer",)
    assert check_cache(OTHER, "gptj", MODEL).causes == (f"{fit}, flashinfer", OTHER_BASE)
    assert check_cache(short, "gptj", MODEL, dtype="float16").causes == (fit,)  # FlashInfer takes float32 only


def test_divisors_and_reciprocals_are_distinguished():
    scaled = ra.Rope(SCALED, pairing="half")
    for rope in (MODEL, scaled):
        divisors, reciprocals = pack(rope, "llama.cpp", like=X, base=BASE), pack(rope, "mlx", like=X)
        assert check_cache(divisors, "mlx", rope).causes == ('the layout is "llama.cpp", of base 500000',)
        assert check_cache(reciprocals, "llama.cpp", rope, base=BASE).causes == ('the layout is "mlx"',)
        assert check_cache(reciprocals[::-1].copy(), "mlx", rope).causes == ("the pairs are in reverse order",)
    assert check_cache(changed(pack(MODEL, "mlx", like=X), 5, 1), "mlx", MODEL).causes == ("1 pair is wrong: 5",)


def test_tensors_of_every_kind_are_read(torch):
    cos, sin = MODEL.table(range(64), like=torch.zeros(1))
    conjugated = torch.complex(cos, -sin).conj()
    assert check_cache(conjugated, "meta", MODEL).passed
    assert (ra.Table(cos, sin).sin == unpack(conjugated, "meta").sin).all()
    empty = torch.zeros(64, 32, device="meta")
    for call in (
        lambda: check_cache(empty, "vllm", MODEL),
        lambda: unpack(empty[0, :16], "mlx", pairing="half"),
        lambda: unpack(empty.reshape(64, 1, 1, 32), "megatron"),
    ):
        with pytest.raises(ra.ArgumentValueError, match=r"cache must have values to read; got one .* the meta device"):
            call()
    assert unpack(empty, "vllm").cos.shape == (64, 16)  # reads no values


def test_other_rotations_of_a_model_are_named():
    others = {"vision": ra.Rope((G, G), pairing="half"), "sliding": ra.Rope(SCALED, pairing="half")}
    report = check_cache(vllm(angles(SCALED)), "vllm", MODEL, others=others)
    assert report.causes == ("the rotation is that of sliding",)


def test_a_cache_of_several_axes_is_that_of_equal_positions():
    sections = ra.axes.chunked(G, (4, 6, 6))
    assert check_cache(vllm(angles()), "vllm", ra.Rope(sections, pairing="half")).passed
    with pytest.raises(ra.ArgumentValueError, match=r"rope must have one axis for each pair, .*; got several"):
        check_cache(vllm(angles()), "vllm", ra.Rope((G, G), pairing="half"))


@pytest.mark.parametrize(
    ("layout", "second_copy"),  # of pair 1: feature 17 of halves, feature 3 of adjacent copies
    [
        ("transformers", lambda cos: cos[:, 1:, 17]),
        ("tensorrt-llm-duplicated", lambda flat: flat.reshape(-1, 2, 16, 2)[1:, 1, 1, 0]),
        ("megatron-interleaved", lambda angles: angles[1:, :, :, 3]),
    ],
)
def test_both_copies_are_compared(layout, second_copy):
    rope, cache = ra.Rope(G, pairing=LAYOUTS[layout].pairing or "half"), ENGINES[layout](angles())
    assert check_cache(cache, layout, rope).passed
    second_copy(arrays_of(cache)[0])[...] += 0.125
    report = check_cache(cache, layout, rope)
    assert (report.first_wrong, report.wrong, report.causes) == (1, 2047, ("the two copies of a number differ",))


def test_divisors_and_reciprocals_are_compared_by_pair():
    cache = pack(MODEL, "mlx", like=X)
    report = check_cache(cache, "mlx", MODEL)
    assert check_cache(cache, "mlx", MODEL, length=4096) == report  # it has no rows
    assert report.passed and len(report.errors) == 16 and "layout mlx, 16 pairs" in report.subject
    assert check_cache(1 / cache, "mlx", MODEL).causes == ("each number is the reciprocal of the right one",)
    other = pack(ra.Rope(ra.frequencies(32), pairing="half"), "mlx", like=X)
    report = check_cache(other, "mlx", MODEL)
    assert (report.first_wrong, report.causes) == (1, ("other frequencies: those of base 10000",))
    assert "\n  pair      largest error" in str(report) and "15 of 16 pairs are wrong, first pair 1" in str(report)
    rope = ra.Rope((*G, 0.0), pairing="half")
    assert check_cache(pack(rope, "mlx", like=X), "mlx", rope).passed
    divisors = pack(ra.Rope(SCALED, pairing="half"), "llama.cpp", like=X, base=BASE)
    assert check_cache(divisors, "llama.cpp", ra.Rope(SCALED, pairing="half"), base=BASE).passed
    assert "times 0.125" in check_cache(divisors, "llama.cpp", MODEL, base=BASE).causes[0]
