"""The layouts of engines' rotary caches, against the engines' own formulas, typed again here, and installed engines."""

import ml_dtypes
import numpy as np
import pytest

import rope_any as ra
from rope_any.layouts import LAYOUTS, pack, unpack

D, ROWS, BASE = 12, 37, 500_000.0
F = ra.frequencies(D, base=BASE)
COMPLEX = {name for name, row in LAYOUTS.items() if row.is_complex}
TABLES = sorted(name for name, row in LAYOUTS.items() if row.holds == "cos and sin")
OF_FREQUENCIES = sorted({*LAYOUTS} - {*TABLES})
FLAT = {name for name in TABLES if name.startswith("tensorrt-llm")}


def bits(x):
    """Return an array as integers of its bits; complex numbers as two."""
    x = np.ascontiguousarray(x)
    x = x.view(np.float32) if x.dtype == np.complex64 else x
    return x.view(f"i{x.dtype.itemsize}")


def same(a, b):
    """Whether two arrays have one shape, one dtype and the same bits."""
    return a.shape == b.shape and a.dtype == b.dtype and (bits(a) == bits(b)).all()


def read(lib, cache):
    """Return a cache as a tuple of NumPy arrays."""
    return tuple(map(lib.get, cache)) if isinstance(cache, tuple) else (lib.get(cache),)


# --- the engines' own formulas, from the files named --------------------------------------------------------


def engine_angles(rows=ROWS, d=D, base=BASE):
    """Angles in float32, as all of them make them."""
    inv_freq = 1.0 / (np.float32(base) ** (np.arange(0, d, 2, dtype=np.float32) / np.float32(d)))
    return np.outer(np.arange(rows, dtype=np.float32), inv_freq)


def vllm(a):  # vllm/model_executor/layers/rotary_embedding/base.py: _compute_cos_sin_cache
    return np.concatenate([np.cos(a), np.sin(a)], axis=-1)


def flashinfer(a):  # tests/attention/test_rope.py: the reference's _compute_cos_sin_cache, which the wrapper takes
    return np.concatenate((np.cos(a), np.sin(a)), axis=-1).astype(np.float32)


def tensorrt(a, *, interleave=True, duplicate=False):
    # tensorrt_llm/functional.py: create_sinusoidal_positions_for_attention_plugin;
    # tensorrt_llm/_torch/attention_backend/interface.py: create_rope_const_params
    count, pairs = a.shape
    sinusoid = a[..., None]
    if duplicate:
        sinusoid = np.concatenate((sinusoid, sinusoid), axis=-2)
    made = np.concatenate((np.cos(sinusoid), np.sin(sinusoid)), axis=-1).reshape(1, -1)
    if not interleave:
        made = made.reshape(count, -1, 2)[:, :pairs, :].transpose(0, 2, 1).reshape(1, -1)
    return made


def cos_and_sin(a):  # docs/ContribOperators.md of ONNX Runtime; flash_attn/layers/rotary.py: _update_cos_sin_cache
    return np.cos(a), np.sin(a)


def transformers_halves(a):  # models/llama/modeling_llama.py: LlamaRotaryEmbedding.forward
    emb = np.concatenate((a[None], a[None]), axis=-1)
    return np.cos(emb), np.sin(emb)


def transformers_each(a):  # models/cohere/modeling_cohere.py: CohereRotaryEmbedding.forward
    emb = np.repeat(a[None], 2, axis=-1)
    return np.cos(emb), np.sin(emb)


def gptj(a):  # models/gptj/modeling_gptj.py: create_sinusoidal_positions
    return np.concatenate((np.sin(a), np.cos(a)), axis=1)


def diffusers(a):  # models/embeddings.py: get_1d_rotary_pos_embed, use_real and repeat_interleave_real
    return np.cos(a).repeat(2, axis=1), np.sin(a).repeat(2, axis=1)


def meta(a):  # llama/model.py: precompute_freqs_cis, torch.polar
    return (np.cos(a) + 1j * np.sin(a)).astype(np.complex64)


def torchtune(a):  # torchtune/modules/position_embeddings.py: build_rope_cache
    return np.stack([np.cos(a), np.sin(a)], axis=-1)


def torchtitan(a):  # torchtitan/models/common/rope.py: the cache of cosines and sines
    freqs = np.concatenate([a, a], axis=-1)
    return np.concatenate([np.cos(freqs), np.sin(freqs)], axis=-1)


def te_halves(a):  # transformer_engine/pytorch/attention/rope.py: RotaryPositionEmbedding.forward
    emb = np.concatenate((a, a), axis=-1)
    return emb.reshape(emb.shape[0], 1, 1, emb.shape[1])


def te_each(a):  # the same, interleaved; megatron/core/models/common/embeddings/rotary_pos_embedding.py
    emb = np.stack((a.reshape(-1, 1), a.reshape(-1, 1)), axis=-1).reshape(a.shape[0], -1)
    return emb[:, None, None, :]


ENGINES = {
    "vllm": vllm,
    "sglang": vllm,
    "flashinfer": flashinfer,
    "tensorrt-llm": tensorrt,
    "tensorrt-llm-halves": lambda a: tensorrt(a, interleave=False),
    "tensorrt-llm-duplicated": lambda a: tensorrt(a, duplicate=True),
    "onnxruntime": cos_and_sin,
    "onnxruntime-gqa": cos_and_sin,
    "flash-attention": cos_and_sin,
    "transformers": transformers_halves,
    "transformers-interleaved": transformers_each,
    "gptj": gptj,
    "diffusers": diffusers,
    "meta": meta,
    "torchtune": torchtune,
    "torchtitan": torchtitan,
    "transformer-engine": te_halves,
    "transformer-engine-interleaved": te_each,
    "megatron": te_halves,
    "megatron-interleaved": te_each,
}


def supports(lib, layout):
    """Skip a test of complex numbers for a library that has none."""
    if layout in COMPLEX and not hasattr(lib.xp, "complex64"):
        pytest.skip(f"{lib.name} has no complex numbers")


@pytest.mark.parametrize("layout", TABLES)
def test_tables_are_packed_as_the_engine_makes_its_cache(lib, layout):
    supports(lib, layout)
    made = ra.cos_sin(range(ROWS), F, like=lib(np.zeros(1), "float32"))
    cache = pack(made, layout)
    wanted = ENGINES[layout](engine_angles())
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for ours, theirs in zip(read(lib, cache), wanted, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours, theirs, atol=ROWS * 2.0**-22, rtol=0)
    again = unpack(cache, layout, rotary_dim=D if layout in FLAT else None)
    assert type(again) is ra.Table
    assert all(same(lib.get(a), lib.get(b)) for a, b in zip(again, made, strict=True))


@pytest.mark.parametrize("layout", TABLES)
def test_any_numbers_keep_their_bits(lib, layout, rng):
    supports(lib, layout)
    for dtype in (d for d in LAYOUTS[layout].dtypes if d in lib.dtypes or d == "complex64"):
        data = rng.uniform(-1, 1, (2, 5, D // 2))
        made = ra.Table(*(lib(x, dtype.replace("complex64", "float32")) for x in data))
        cache = pack(made, layout)
        assert {x.dtype.name for x in read(lib, cache)} == {dtype}
        again = unpack(cache, layout, rotary_dim=D)
        assert all(same(lib.get(a), lib.get(b)) for a, b in zip(again, made, strict=True))


def test_a_batch_of_rows_keeps_its_axis(lib, rng):
    for layout in ("transformers", "transformers-interleaved"):
        made = ra.Table(*(lib(x, "float32") for x in rng.uniform(-1, 1, (2, 3, 5, D // 2))))
        cache = pack(made, layout)
        assert [x.shape for x in read(lib, cache)] == [(3, 5, D)] * 2
        assert all(same(lib.get(a), lib.get(b)) for a, b in zip(unpack(cache, layout), made, strict=True))


def test_a_wider_table_is_rounded_once(lib):
    if not lib.has_float64:
        pytest.skip(f"{lib.name} has no float64")
    made = ra.cos_sin(range(ROWS), F, like=lib(np.zeros(1), "float64"))
    assert same(lib.get(pack(made, "flashinfer")), lib.get(pack(made, "vllm")))
    want = np.concatenate([lib.get(x) for x in made], axis=-1).astype(np.float32)
    assert same(lib.get(pack(made, "vllm", dtype="float32")), want)
    if "bfloat16" in lib.dtypes:
        short = pack(made, "vllm", dtype=lib.dtype("bfloat16"))
        assert same(lib.get(short), np.concatenate([lib.get(x) for x in made], axis=-1).astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("layout", sorted({*OF_FREQUENCIES} & {*ENGINES}))
def test_angles_are_those_that_the_engine_makes(lib, layout):
    pairing = LAYOUTS[layout].pairing
    rope = ra.Rope(F, pairing=pairing)
    cache = pack(rope, layout, like=lib(np.zeros(1), "float32"), length=ROWS)
    theirs = ENGINES[layout](engine_angles())
    ours = lib.get(cache)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    np.testing.assert_allclose(ours, theirs, rtol=2.0**-21)
    again = unpack(cache, layout)
    assert (again.pairing, again.start, again.attention_factor) == (pairing, 0, 1.0)
    np.testing.assert_allclose(again.frequencies, F, rtol=2.0**-23)
    assert same(lib.get(pack(again, layout, like=cache, length=ROWS))[:2], ours[:2])


def test_divisors_are_those_that_llama_cpp_divides_by(lib):
    # convert_hf_to_gguf.py: generate_extra_tensors of Llama 3; ggml_rope_ext divides base^(-2i/n) by them
    scaled = ra.scaling.llama3(F, 8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192)
    rope = ra.Rope(scaled, pairing="interleaved")
    cache = pack(rope, "llama.cpp", like=lib(np.zeros(1), "float32"), base=BASE)
    factors = []
    for freq in 1.0 / (BASE ** (np.arange(0, D, 2) / D)):
        wavelength = 2 * np.pi / freq
        smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
        middle = 1 / ((1 - smooth) / 8.0 + smooth)
        factors.append(1.0 if wavelength < 8192 / 4 else 8.0 if wavelength > 8192 else middle)
    assert lib.get(cache).dtype == np.float32
    np.testing.assert_allclose(lib.get(cache), factors, rtol=1e-6)
    again = unpack(cache, "llama.cpp", base=BASE, pairing="interleaved")
    np.testing.assert_allclose(again.frequencies, scaled, rtol=2.0**-23)
    assert again.pairing == "interleaved"


def test_reciprocals_are_those_that_mlx_inverts(lib):
    # mlx/backend/cpu and fast.cpp: inv_freqs = reciprocal(freqs)
    rope = ra.Rope((*F, 0.0), pairing="half")
    cache = pack(rope, "mlx", like=lib(np.zeros(1), "float32"))
    np.testing.assert_allclose(1 / lib.get(cache), rope.frequencies, rtol=2.0**-22)
    again = unpack(cache, "mlx", pairing="half")
    np.testing.assert_allclose(again.frequencies, rope.frequencies, rtol=2.0**-23)
    assert again.frequencies[-1] == 0
