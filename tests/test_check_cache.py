"""Caches of engines, compared row by row: right ones pass, and the mistakes of wrong ones are named."""

import json
import re

import ml_dtypes
import numpy as np
import pytest
from test_layouts import BASE, ENGINES, MODEL, ROWS, SCALED, D, F, G, X, arrays_of, engine_angles, tensorrt, vllm

import rope_any as ra
from rope_any import scaling
from rope_any.layouts import LAYOUTS, pack, unpack
from rope_any.testing import check_cache


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
            at = {"positions": lib(range(ROWS), "int32")} if layout == "torchtune" else {}
            report = check_cache(cache, layout, ra.Rope(F, pairing="half", attention_factor=1.2), **at)
            assert report.passed and report.subject.endswith(f", {ROWS} rows of {D // 2} pairs, {dtype}")


RIGHT = vllm(angles())
OTHER = vllm(angles(ra.frequencies(32)))
OTHER_BASE = "other frequencies: those of base 10000"
BY_PARTS = "other frequencies: those of Llama 3, factor 8, base 500000, original length 8192"
ADJACENT = "several layouts fit, in another shape: tensorrt-llm, torchtune"
TWICE = "the numbers of each row are repeated"
HALF_ROWS = vllm(angles(rows=1024))
# name -> cache, cause, first wrong row
WRONG = {
    "base": (OTHER, OTHER_BASE, 1),
    "linear": (vllm(angles(np.asarray(G) / 4)), "other frequencies: those of base 500000 times 0.25", 1),
    "by parts": (vllm(angles(SCALED)), BY_PARTS, 1),
    "factor": (RIGHT * np.float32(1.2), "an attention factor of 1.2 rather than 1", 0),
    "bfloat16": (rounded(RIGHT, ml_dtypes.bfloat16), "the table in bfloat16", 1),
    "float16": (rounded(RIGHT, np.float16), "the table in float16", 1),
    "inv_freq": (vllm(angles(rounded(np.asarray(G), ml_dtypes.bfloat16))), "frequencies in bfloat16", 1),
    "shift": (vllm(angles(start=1)), "positions one too large", 0),
    "sign": (vllm(-angles()), "the opposite sign: pairs rotate backwards", 1),
    "some rows": (changed(RIGHT, slice(500, 600), 0), "100 rows are wrong: 500 to 599", 500),
    "zero end": (changed(RIGHT, slice(900, None), 0), "rows from 900 on are 0", 900),
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
    assert len(report.remedies) == len(report.causes) and all(report.remedies)
    shown = str(report)
    assert re.match(r"FAILED: layout vllm, (read as [\w-]+, )?2048 rows of 16 pairs, float32\n\n  cause   \S", shown)
    assert all(text in shown for text in report.causes or ("none of the known ones",))
    assert ("the results are those of a rotation with" in shown) == (report.unexplained is not None)
    if first is not None:
        assert report.ratios[first] > 1 >= max(report.ratios[:first], default=0)
        assert f"{report.wrong} of 2048 rows are wrong, first row {first}" in shown


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


# --- the other rotations of a config ------------------------------------------------------------------------

LLAMA = {"model_type": "llama", "head_dim": 32, "hidden_size": 128, "num_attention_heads": 4, "rope_theta": BASE}
LINEAR, DYNAMIC = ({"rope_type": name, "factor": 4.0} for name in ("linear", "dynamic"))
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 512}
LISTS = {"short_factor": [1 + i / 64 for i in range(16)], "long_factor": [1.0 + i for i in range(16)]}
LONGROPE = {"type": "longrope"} | LISTS
PHI3 = LLAMA | {"model_type": "phi3", "rope_scaling": LONGROPE, "max_position_embeddings": 8192}
PHI3 |= {"original_max_position_embeddings": 1024}
LAYERS = {"rope_local_base_freq": 1e4, "num_hidden_layers": 2, "sliding_window_pattern": 2, "rope_scaling": LINEAR}
GEMMA3 = LLAMA | LAYERS | {"model_type": "gemma3_text"}
SECTIONS = {"rope_type": "default", "mrope_section": [6, 5, 5]}
QWEN = {"model_type": "qwen2_vl", "text_config": LLAMA | {"model_type": "qwen2_vl_text", "rope_scaling": SECTIONS}}
TOKENS = np.stack([np.arange(600) * k % n for k, n in ((1, 600), (3, 40), (7, 50))], axis=1)  # of three axes
TOKENS[:12] = [[p * (axis == at) for axis in range(3)] for at in range(3) for p in (0, 1, 10, 100)]


def scaled(scheme, **keys):
    """Return the config of a Llama with a scheme of scaling."""
    return LLAMA | {"max_position_embeddings": 2048, "rope_scaling": scheme} | keys


def made(rope, *, layout="vllm", rows=2048, positions=None, dtype="float32"):
    """Return the cache of a rotation as an engine makes it: float32 angles, and the attention factor at the end."""
    f = np.atleast_2d(np.asarray(rope.frequencies, dtype=np.float32))
    places = np.arange(rows)[:, None] if positions is None else positions
    places = np.broadcast_to(places, (len(places), len(f))).astype(np.float32)
    parts = arrays_of(ENGINES[layout](sum(np.outer(p, row) for p, row in zip(places.T, f, strict=True))))
    parts = [x * np.float32(rope.attention_factor) for x in parts]
    return (
        parts[0] if layout == "meta" else [rounded(x, dtype) for x in parts] if parts[1:] else rounded(parts[0], dtype)
    )


@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16])
@pytest.mark.parametrize("layout", ["vllm", "transformers", "meta", "diffusers"])
@pytest.mark.parametrize(
    ("config", "which"),
    [
        (scaled(LINEAR), {}),
        (scaled(YARN), {}),
        (scaled(LLAMA3), {}),
        (scaled(DYNAMIC), {}),
        (scaled(DYNAMIC), {"sequence_length": 4096}),
        (PHI3, {"sequence_length": 1024}),
        (PHI3, {"sequence_length": 8192}),
        (GEMMA3, {"layer_type": "full_attention"}),
        (GEMMA3, {"layer_type": "sliding_attention"}),
        (QWEN, {}),
    ],
)
def test_right_caches_of_a_config_pass(config, which, layout, dtype):
    short = {} if dtype == "float32" or layout == "meta" else {"dtype": "bfloat16"}
    rope = ra.Rope.from_config(config, **which)
    report = check_cache(made(rope, layout=layout, rows=9000, dtype=dtype), layout, config, **which, **short)
    assert report.passed, str(report)
    if config is QWEN:
        cache = made(rope, layout=layout, positions=TOKENS, dtype=dtype)
        report = check_cache(cache, layout, config, positions=TOKENS, **short)
        assert report.passed and report.length is None, str(report)


SLIDING, FULL = {"layer_type": "sliding_attention"}, {"layer_type": "full_attention"}
SHORT, LONG = "the short list, for up to 1024 tokens", "the long list, for more than 1024 tokens"
ONCE = ra.Rope.from_config(scaled(LLAMA3)).frequencies
TWICE_SCALED = scaling.llama3(ONCE, 8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=512)


# config, the choice of its right rotation, the config and the choice (or the Rope) of the cache, what it is named
@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("config", "which", "other", "name"),
    [
        (GEMMA3, FULL, (GEMMA3, SLIDING), "text, sliding_attention"),
        (GEMMA3, SLIDING, (GEMMA3, FULL), "text, full_attention"),
        (scaled(LINEAR), {}, (scaled(LINEAR | {"factor": 8.0}), {}), "factor 8"),
        (scaled(LINEAR), {}, (scaled(LINEAR | {"factor": 16.0}), {}), "its own scaling, applied twice"),
        (scaled(YARN), {}, (scaled(YARN | {"factor": 8.0}), {}), "factor 8"),
        (scaled(YARN), {}, (LLAMA, {}), "base 500000, without scaling"),
        (scaled(LLAMA3), {}, (scaled(LLAMA3 | {"factor": 32.0}), {}), "factor 32"),
        (scaled(LLAMA3), {}, ra.Rope(TWICE_SCALED, pairing="half"), "its own scaling, applied twice"),
        (PHI3, {"sequence_length": 1024}, (PHI3, {"sequence_length": 8192}), LONG),
        (PHI3, {"sequence_length": 8192}, (PHI3, {"sequence_length": 1024}), SHORT),
        (scaled(DYNAMIC), {}, (scaled(DYNAMIC), {"sequence_length": 4096}), "a sequence of 4096 tokens"),
        (scaled(DYNAMIC), {}, (scaled(DYNAMIC), {"sequence_length": 9000}), "a sequence of 9000 tokens"),
        (scaled(DYNAMIC), {"sequence_length": 8192}, (LLAMA, {}), "a sequence of 2048 tokens"),
    ],
)
def test_another_rotation_of_a_config_is_named(config, which, other, name, dtype):
    rope = other if isinstance(other, ra.Rope) else ra.Rope.from_config(other[0], **other[1])
    short = {} if dtype == "float32" else {"dtype": "bfloat16"}
    report = check_cache(made(rope, rows=9000, dtype=dtype), "vllm", config, **which, **short)
    assert report.causes == (f"the rotation is that of {name}",)
    assert report.unexplained < 1e-2


def test_the_rotation_changes_along_the_rows():
    short, long = (ra.Rope.from_config(PHI3, sequence_length=n) for n in (1024, 8192))
    first, again = made(short, rows=1024), made(short, rows=500)
    causes = {
        f"rows from 1024 on are a second table of {LONG}": np.concatenate([first, made(long)]),
        f"rows from 1024 on are those of {LONG}": np.concatenate([first, made(long)[1024:]]),
        "rows from 1024 on are a second table": np.concatenate([first, again]),
        "rows from 1024 on are 0": np.concatenate([first, 0 * again]),
    }
    for cause, cache in causes.items():
        assert check_cache(cache, "vllm", PHI3, sequence_length=1024).causes == (cause,)


SHORTER = LLAMA | {"max_position_embeddings": 2048}


# config, rows, options, and what is told: the length, the cause, and a note
@pytest.mark.parametrize(
    "row",
    [
        (SHORTER, 2047, {}, 2048, "2047 rows for 2048 tokens are too few", None),
        (SHORTER, 2049, {}, 2048, None, "2049 rows are more than .* tokens, 2048"),
        (SHORTER, 100, {"sequence_length": 99}, 99, None, "100 rows are more"),
        (SHORTER, 100, {"length": 101}, 101, "100 rows for 101 tokens are too few", None),
        (LLAMA, 100, {}, None, None, "the number of rows is not checked"),
        (PHI3, 1024, {"sequence_length": 1024}, 1024, None, "compared with the rotation of sequences of 1024 tokens"),
        (PHI3, 1025, {"sequence_length": 1024}, 1024, None, "tokens; .*; its rows from 1024 on are beyond them"),
        (MODEL, 100, {}, None, None, None),
    ],
)
def test_the_number_of_rows_is_told(row):
    config, rows, options, length, cause, note = row
    which = {name: value for name, value in options.items() if name != "length"}
    rope = config if config is MODEL else ra.Rope.from_config(config, **which)
    report = check_cache(made(rope, rows=rows), "vllm", config, **options)
    assert (report.length, report.passed, report.first_wrong) == (length, cause is None, None)
    assert report.causes == (() if cause is None else (cause,))
    assert re.search(note, report.notes[0]) if note else not report.notes
    read = json.loads(report.json())
    assert (read["length"], read["causes"], read["notes"]) == (length, [*report.causes], [*report.notes])


def test_rows_of_several_axes_are_compared_at_their_positions():
    rope = ra.Rope.from_config(QWEN)
    turns = ra.Rope(ra.axes.strided(G, (6, 5, 5)), pairing="half")
    wrong = {
        "sections of the axes: [6, 5, 5] in turns": made(turns, positions=TOKENS),
        "the axes of the positions are taken as 0, 2, 1": made(rope, positions=TOKENS[:, [0, 2, 1]]),
        "the axes of the positions are taken as 0, 0, 0": made(rope, positions=TOKENS[:, [0, 0, 0]]),
        "positions one too large": made(rope, positions=TOKENS + 1),
    }
    for cause, cache in wrong.items():
        assert check_cache(cache, "vllm", QWEN, positions=TOKENS).causes == (cause,)
    far = np.asarray([0.0, 1.0, 10.5, 5000.25])
    assert check_cache(made(MODEL, positions=far[:, None]), "vllm", MODEL, positions=far).passed
    assert check_cache(made(MODEL, positions=far[:, None]), "vllm", rope, positions=far).passed
    equal = check_cache(made(MODEL), "vllm", rope)
    assert equal.passed and equal.notes[0].startswith("compared at positions that are equal on all axes; for others")
    with pytest.raises(ra.ArgumentValueError, match=r"rope must have one axis .*; got several; give .*`positions`"):
        check_cache(made(MODEL), "vllm", ra.Rope((G, G), pairing="half"))


# --- copies, and layouts of frequencies ---------------------------------------------------------------------


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
    assert check_cache(pack(rope, "mlx", like=X), "mlx", rope).notes == ()
    stretched = check_cache(pack(rope, "mlx", like=X), "mlx", ra.Rope((*G, 0.0), pairing="half", attention_factor=1.2))
    assert stretched.passed and stretched.notes == (
        "the attention factor is not compared, as this layout has no place for it",
    )
    divisors = pack(ra.Rope(SCALED, pairing="half"), "llama.cpp", like=X, base=BASE)
    assert check_cache(divisors, "llama.cpp", ra.Rope(SCALED, pairing="half"), base=BASE).passed
    assert check_cache(divisors, "llama.cpp", MODEL, base=BASE).causes == (BY_PARTS,)
