"""The checks of other rotaries: their vectors, and the faults that they find."""

import dataclasses
import itertools
import json
import math
import struct
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from inspect import signature
from pathlib import Path
from types import SimpleNamespace

import make_vectors
import ml_dtypes
import mpmath
import numpy as np
import oracle
import published_mistakes
import pytest
from conftest import one_jax
from hypothesis import given, settings
from hypothesis import strategies as st

import rope_any as ra
from rope_any import axes, scaling
from rope_any.testing import _exact, cases, check_rotary, vectors

FILE = Path(vectors.__file__).parent / vectors.FILE

# --- the vectors -----------------------------------------------------------------------------------------


def test_the_file_is_reproducible_to_the_byte(tmp_path):
    make_vectors.write(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == FILE.read_bytes()
    assert FILE.stat().st_size < 400_000


def test_the_file_matches_its_schema():
    with zipfile.ZipFile(FILE) as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        first = archive.read("schema.npy")
        assert (first[:8], struct.unpack("<q", first[-8:])) == (b"\x93NUMPY\x01\x00", (2,))
    with np.load(FILE) as arrays:
        assert {name.partition("/")[0] for name in arrays.files} == {*cases(), "schema"}
        for name in cases():
            case = {key: arrays[f"{name}/{key}"] for key in DTYPES}
            assert {key: case[key].dtype.str for key in DTYPES} == DTYPES
            rows, pairs = case["frequencies"].shape
            n = len(case["positions"])
            assert case["positions"].shape == (n, rows) and case["cos"].shape == case["sin"].shape == (n, pairs)
            assert {case[key].shape for key in ROTATED} == {(n, 16)}
            assert (case["positions"][0] == 0).all() and case["positions"].max() == 2**31 - 1


ROTATED = ["x", "half", "interleaved", "half_gradient", "interleaved_gradient"]
DTYPES = {"parameters": "|u1", "start": "<i8", "positions": "<i8", "x": "<f4"}
DTYPES |= dict.fromkeys(["frequencies", "factor", "cos", "sin", *ROTATED[1:]], "<f8")


@pytest.mark.parametrize("name", cases())
def test_tables_equal_those_of_rational_arithmetic(name):
    case = cases()[name]
    frequencies = np.asarray(case.frequencies).reshape(-1, case.cos.shape[1])
    *exact, _ = oracle.table(case.positions.reshape(len(case.cos), -1), frequencies.tolist())
    cos, sin = (case.attention_factor * part for part in exact)
    np.testing.assert_allclose(case.cos, cos, rtol=0, atol=2e-15)
    np.testing.assert_allclose(case.sin, sin, rtol=0, atol=2e-15)
    for pairing in ("half", "interleaved"):
        for part, sign in ((pairing, 1), (f"{pairing}_gradient", -1)):
            expected = oracle.rotate_by_table(case.x, cos, sign * sin, pairing=pairing, start=case.start)
            np.testing.assert_allclose(getattr(case, part), expected, rtol=0, atol=1e-14)


def ours(parameters):
    """Return the frequencies and the attention factor of rope_any for the parameters of a case."""
    f = ra.frequencies(parameters.get("rotary_dim", 16), base=parameters["base"])
    kind = parameters.get("axes") or parameters["scheme"]
    rng = SimpleNamespace(random=lambda: parameters["angle"] / (2 * math.pi))
    arrangements = {
        "plain": lambda: f,
        "axial": lambda: axes.axial(*map(ra.frequencies, parameters["rotary_dims"])),
        "alternating": lambda: axes.alternating(f, parameters["count"]),
        "mixed": lambda: axes.mixed(16, heads=1, rng=rng)[0],
        "golden": lambda: axes.golden(f, parameters["count"], heads=1)[0],
    }
    if kind in arrangements:
        return arrangements[kind](), 1.0
    function = getattr(axes if "axes" in parameters else scaling, kind)
    accepted = [p for p in signature(function).parameters.values() if p.name in parameters]
    given = [parameters[p.name] for p in accepted if p.kind is p.POSITIONAL_ONLY]
    options = {p.name: parameters[p.name] for p in accepted if p.kind is p.KEYWORD_ONLY}
    found = function(f, *given, **options)
    factor, original_length = parameters.get("factor"), parameters.get("original_length")
    if kind.endswith("yarn"):
        return found, scaling.yarn_attention_factor(factor or parameters["length"] / original_length)
    if kind == "longrope":
        return found, scaling.longrope_attention_factor(factor, original_length=original_length)
    return found, 1.0


@pytest.mark.parametrize("name", cases())
def test_our_schemes_give_the_frequencies_of_the_vectors(name):
    case = cases()[name]
    found, factor = ours(case.parameters)
    np.testing.assert_allclose(found, case.frequencies, rtol=2e-15, atol=1e-16)
    assert factor == pytest.approx(case.attention_factor, rel=4e-16)


def test_the_vectors_have_every_scheme_and_arrangement():
    names = {case.parameters.get("scheme", case.parameters.get("axes")) for case in cases().values()}
    schemes = {name for name in scaling.__all__ if not name.endswith("attention_factor")}
    assert names == schemes | set(axes.__all__) | {"plain"}


def test_the_vectors_are_read_only():
    assert cases()["plain"].x is cases()["plain"].x
    with pytest.raises(ValueError, match="read-only"):
        cases()["plain"].cos[0] = 1


# --- correct rotaries ------------------------------------------------------------------------------------

F = ra.frequencies(32)
RIGHT, ADJACENT = (ra.Rope(F, pairing=pairing) for pairing in ("half", "interleaved"))
PART = ra.Rope(ra.frequencies(16), pairing="half")  # of 32 features


def package(lib):
    """Return the name of a library's package."""
    return "array_api_strict" if "strict" in lib.name else lib.name.partition(" ")[0].partition("-")[0]


@one_jax
def test_our_rotary_passes_on_every_library(lib):
    for dtype in sorted({"float32", lib.dtypes[0] if lib.mutable else "float32"}):  # the others are slow
        rope = ra.Rope(F[:8], pairing="interleaved", attention_factor=1.2, start=4)
        report = check_rotary(lib.quick(rope.apply), rope, head_dim=32, like=lib([0], dtype))
        assert report, str(report)
        assert len(report.errors) == 11
        assert report.subject == f"interleaved, head_dim 32, features 4 to 19 are rotated, {dtype} of {package(lib)}"


@pytest.mark.parametrize("name", cases())
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_our_rotary_passes_every_vector(name, pairing):
    case = cases()[name]
    rope = ra.Rope(case.frequencies, pairing=pairing, attention_factor=case.attention_factor, start=case.start)
    report = check_rotary(rope.apply, rope, head_dim=16, positions=case.positions)
    assert report, str(report)
    other = dataclasses.replace(rope, pairing={"half": "interleaved", "interleaved": "half"}[pairing])
    assert not check_rotary(rope.apply, other, head_dim=16)


@pytest.mark.long
def test_compiled_functions_pass(lib):
    if lib.compile is None:
        pytest.skip("no compiler")
    assert check_rotary(lib.trace(RIGHT.apply), RIGHT, like=lib([0], "float32"))


def test_an_exact_numpy_rotary_passes():
    assert check_rotary(rotary(), RIGHT)
    assert check_rotary(rotary(rotary_dim=8, start=24), ra.Rope(ra.frequencies(8), pairing="half", start=24))
    assert check_rotary(rotary(), RIGHT, like=np.zeros(1)).bound == 4e-7


@settings(max_examples=5)
@given(st.data())
def test_any_shape_is_checked(data):
    head_dim = data.draw(st.integers(2, 24))
    rotary_dim = 2 * data.draw(st.integers(1, head_dim // 2))
    start = data.draw(st.integers(0, head_dim - rotary_dim))
    base, factor = data.draw(st.floats(1.5, 1e8)), data.draw(st.floats(0.5, 2))
    options = {"pairing": "half", "start": start}
    right, wrong = (
        ra.Rope(ra.frequencies(rotary_dim, base=base), attention_factor=each, **options)
        for each in (factor, 1.01 * factor)
    )
    correct = rotary(rotary_dim=rotary_dim, start=start, base=base, factor=factor)
    assert check_rotary(correct, right, head_dim=head_dim, longest=127)
    assert not check_rotary(correct, wrong, head_dim=head_dim, longest=127)


# --- wrong rotaries --------------------------------------------------------------------------------------


def rotary(*, pairing="half", base=1e4, rotary_dim=None, start=0, factor=1.0, exponent=None, scale=1.0, **dtypes):
    """Return the textbook rotary in plain NumPy, with the given faults and the dtypes of its steps."""
    dtypes = dict.fromkeys(["freqs", "angles", "table", "rotation"], "float64") | dtypes

    def function(x, positions):
        """Rotate x with the faults of the options."""
        d = rotary_dim or x.shape[-1] - start
        f = (base ** -(2 * np.arange(d // 2) / (exponent or d)) * scale).astype(dtypes["freqs"])
        angle = (positions.astype(dtypes["angles"])[:, None] * f.astype(dtypes["angles"])).astype(np.float64)
        table = ((factor * part).astype(dtypes["table"]) for part in (np.cos(angle), np.sin(angle)))
        c, s = (part.astype(dtypes["rotation"]) for part in table)
        one, two = {
            "half": (slice(start, start + d // 2), slice(start + d // 2, start + d)),
            "interleaved": (slice(start, start + d, 2), slice(start + 1, start + d, 2)),
        }[pairing]
        a, b, y = *(x.astype(dtypes["rotation"])[..., at] for at in (one, two)), x.copy()
        y[..., one], y[..., two] = a * c - b * s, b * c + a * s
        return y

    return function


def changed(change, **options):
    """Return a rotary whose result is changed by a function of y, x and positions."""
    return lambda x, positions: change(rotary(**options)(x, positions), x, positions)


BFLOAT = ml_dtypes.bfloat16
YARN = scaling.yarn(F, 16.0, base=10_000.0, original_length=4096)


def textbook(x, angle, *, swap=lambda x: np.roll(x, 16, -1), sign=None, wide=lambda t: np.tile(t, 2)):
    """Return x · cos + swapped x · sin, with tables as wide as x, as most programs do."""
    sign = np.repeat([-1, 1], 16) if sign is None else sign
    return (x * wide(np.cos(angle)) + sign * swap(x) * wide(np.sin(angle))).astype(x.dtype)


def by_parts(x, angle, cos=np.cos, sin=np.sin):
    """Return x in halves, rotated by other functions of the angles than cosine and sine."""
    (a, b), c, s = np.split(x, 2, axis=-1), cos(angle), sin(angle)
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1).astype(x.dtype)


def swap_adjacent(x):
    """Return x with the two features of each interleaved pair exchanged."""
    return x.reshape(*x.shape[:-1], -1, 2)[..., ::-1].reshape(x.shape)


SWAPPED = {"swap": swap_adjacent, "sign": np.tile([-1, 1], 16)}
REPEATED = {"wide": partial(np.repeat, repeats=2, axis=-1)}
FROM_0 = "positions ignored: each call counts from 0"
SECTIONS = ra.Rope(axes.chunked(F, [4, 6, 6]), pairing="half")
STILL = ra.positions.grid(range(1), range(8), range(8), like=np.empty(0))
"""The positions of an image."""
NOISE = itertools.cycle(np.float32([0.1, 0.2, 0.3]))


def axial(*sizes, base=1e4):
    """Return a Rope of three axes, each with frequencies of its own."""
    return ra.Rope(axes.axial(*(ra.frequencies(n, base=base) for n in sizes or (8, 12, 12))), pairing="half")


def cut_off(x):
    """Return x without the last bits that bfloat16 lacks."""
    return (x.astype(np.float32).view(np.uint32) >> 16 << 16).view(np.float32)


def cut_off_twice(table):
    """Return a table of halves, cut off."""
    return np.tile(cut_off(table), 2)


def halves_apart(y, *_):
    """Return the first features of all pairs, then the second ones."""
    return np.concatenate([y[..., ::2], y[..., 1::2]], -1)


# What the causes of wrong results are, functions that give them, and what is right (RIGHT if nothing is given).
WRONG = {
    ("the other pairing: interleaved",): (rotary(pairing="interleaved"),),
    ("other frequencies: those of base 500000",): (rotary(base=500_000.0),),
    ("an attention factor of 1.20794 (YaRN with factor 8) rather than 1",): (rotary(factor=0.1 * math.log(8) + 1),),
    ("other frequencies: those of base 10000, without scaling",): (rotary(), ra.Rope(YARN, pairing="half")),
    ("other frequencies: those of base 10000 times 0.25",): (rotary(scale=0.25),),
    ("the attention factor on cosines alone",): (
        lambda x, p: by_parts(x, np.outer(p, F), cos=lambda a: 1.3 * np.cos(a)),
        ra.Rope(F, pairing="half", attention_factor=1.3),
    ),
    ("the attention factor left out",): (rotary(), ra.Rope(F, pairing="half", attention_factor=1.3)),
    ("exponents over head_dim rather than rotary_dim",): (rotary(exponent=32, rotary_dim=16), PART),
    ("another slice: features 16 to 31 are rotated",): (rotary(start=16), PART),
    ("features are returned in the order half",): (changed(halves_apart, pairing="interleaved"), ADJACENT),
    ("frequencies in float32",): (rotary(freqs=np.float32),),
    ("angles in float32",): (rotary(freqs=np.float32, angles=np.float32),),
    ("positions in bfloat16",): (lambda x, p: rotary()(x, p.astype(BFLOAT)),),
    ("the table in bfloat16",): (rotary(table=BFLOAT),),
    ("the rotation itself in bfloat16",): (rotary(rotation=BFLOAT),),
    ("the result in bfloat16",): (changed(lambda y, *_: y.astype(BFLOAT).astype(y.dtype)),),
    ("x in float16",): (lambda x, p: rotary()(x.astype(np.float16).astype(x.dtype), p),),
    ("exponents over rotary_dim / 2 rather than rotary_dim",): (rotary(exponent=16),),
    ("the other pairing: interleaved", "positions one too large", "angles in float32"): (
        lambda x, p: rotary(pairing="interleaved", freqs=np.float32, angles=np.float32)(x, p + 1),
    ),
    ("nothing is rotated, as if all positions were 0",): (lambda x, _: x.copy(),),
    (FROM_0,): (lambda x, p: rotary()(x, p - p[0]),),
    (FROM_0, "positions one too large"): (lambda x, p: rotary()(x, p - p[0] + 1),),
    ("all tokens of a call are rotated as its first",): (lambda x, p: rotary()(x, 0 * p + p[0]),),
    ("cosines and sines exchanged",): (lambda x, p: textbook(x, np.pi / 2 - np.outer(p, F)),),
    ("all frequencies times π/180: angles treated as degrees",): (rotary(scale=np.pi / 180),),
    ("frequencies inverted: positive powers of the base",): (lambda x, p: textbook(x, np.outer(p, 1 / np.array(F))),),
    ("the minus left out: a·c + b·s",): (lambda x, p: textbook(x, np.outer(p, F), sign=1),),
    ("a minus too many: b·c − a·s",): (lambda x, p: textbook(x, np.outer(p, F), sign=-1),),
    ("the result in bfloat16, cut off rather than rounded",): (changed(lambda y, *_: cut_off(y)),),
    ("the table in bfloat16, cut off rather than rounded",): (
        lambda x, p: textbook(x, np.outer(p, F), wide=cut_off_twice),
    ),
    ("other frequencies: those of base 500000", "positions beyond 4095 are taken for 4095"): (
        lambda x, p: rotary(base=5e5)(x, np.minimum(p, 4095)),
    ),
    ("all positions are off by +700 on axis 1, -3 on axis 2",): (
        lambda x, p: SECTIONS.apply(x, p + np.asarray([0, 700, -3])),
        SECTIONS,
    ),
    ("positions on axis 2 beyond 63 are taken for 63",): (
        lambda x, p: SECTIONS.apply(x, np.minimum(p, [2**31, 2**31, 63])),
        SECTIONS,
    ),
    ("the scaling of the frequencies: inverted, as they are multiplied rather than divided",): (
        lambda x, p: textbook(x, np.outer(p, np.square(F) / YARN)),
        ra.Rope(YARN, pairing="half"),
    ),
    ("the scaling of the frequencies: its ramp reversed",): (
        lambda x, p: textbook(x, np.outer(p, np.multiply(F, 1 + YARN[-1] / F[-1]) - YARN)),
        ra.Rope(YARN, pairing="half"),
    ),
    ("sections of the axes are taken for features: the first copy of each pair alone is divided",): (
        lambda x, p: textbook(x, (p @ np.hstack([SECTIONS.frequencies, np.outer([1, 0, 0], F)])), wide=np.asarray),
        SECTIONS,
    ),
    ("two equal calls return different results",): (changed(lambda y, *_: y + next(NOISE)),),
    ("tables in the feature order of interleaved",): (lambda x, p: textbook(x, np.outer(p, F), **REPEATED),),
    ("the other pairing: interleaved", "tables in the feature order of half"): (
        lambda x, p: textbook(x, np.outer(p, F), **SWAPPED),
    ),
    ("sines in the place of cosines",): (lambda x, p: by_parts(x, np.outer(p, F), cos=np.sin),),
    ("zeros in the place of sines",): (lambda x, p: by_parts(x, np.outer(p, F), sin=np.zeros_like),),
    ("angles in bfloat16",): (lambda x, p: by_parts(x, np.outer(p, F).astype(BFLOAT).astype(float)),),
    ("exponents over 4096 rather than rotary_dim",): (rotary(exponent=4096),),
    ("the second feature of each pair left as it is",): (
        changed(lambda y, x, _: np.r_["-1", y[..., :16], x[..., 16:]]),
    ),
    ("the halves of the partner not exchanged: a·c − a·s and b·c + b·s",): (
        lambda x, p: textbook(x, np.outer(p, F), swap=np.asarray),
    ),
    ("x is reshaped, not transposed, to exchange heads and tokens",): (
        lambda x, p: RIGHT.apply(x.reshape(len(x), len(p), -1, 32), p, seq_axis=1).reshape(x.shape),
    ),
    ("the result is reshaped, not transposed, to exchange heads and tokens",): (
        changed(lambda y, *_: y.swapaxes(1, 2).reshape(y.shape)),
    ),
    ("positions on all axes beyond 4095 are taken for 4095",): (
        lambda x, p: SECTIONS.apply(x, np.minimum(p, 4095)),
        SECTIONS,
    ),
    ("zeros from position 10000 on",): (lambda x, p: rotary()(x, p) * (p < 4096)[:, None],),
    ("infinite or NaN values from position 100000 on",): (lambda x, p: rotary()(x, p) / (p < 65_504)[:, None],),
}


@pytest.mark.parametrize("causes", WRONG, ids="; ".join)
def test_the_causes_of_wrong_results_are_named(causes):
    function, *right = WRONG[causes]
    report = check_rotary(function, *(right or [RIGHT]), head_dim=32)
    assert not report.passed
    assert report.causes == causes, str(report)


@pytest.mark.parametrize("name", published_mistakes.MISTAKES)
def test_published_mistakes_are_named(name):
    mistake = published_mistakes.MISTAKES[name]
    report = check_rotary(mistake.function, mistake.right, head_dim=mistake.head_dim, **mistake.options)
    assert report.causes == mistake.causes, str(report)
    assert report.unexplained is None or report.unexplained <= 2e-6
    assert all(report.remedies)


ONE_PAIR = ra.Rope([[1.0], [0.0]], pairing="half")
# on several axes: what the causes are, functions that give them, what is right, and positions (None: any)
WRONG_ON_AXES = [
    (FROM_0, lambda x, p: SECTIONS.apply(x, p - p.min(axis=0)), SECTIONS, None),
    ("other frequencies: those of base 500000", axial(base=5e5).apply, axial(), None),
    ("other frequencies: those of base 500000", axial(base=5e5).apply, axial(), STILL),
    ("sections of the axes: [6, 5, 5] in chunks, each with its own powers", axial(12, 10, 10).apply, axial(), None),
    ("sections of the axes: [4, 6, 6] in chunks, of the powers of all pairs", SECTIONS.apply, axial(), None),
    ("positions in bfloat16", lambda x, p: axial().apply(x, p.astype(BFLOAT).astype(float)), axial(), 250 + STILL),
    ("positions of axis 0 times 2.5", lambda x, p: ONE_PAIR.apply(x, p * 2.5), ONE_PAIR, None),
    ("positions of axis 1 times 2", lambda x, p: axial().apply(x, p * [1, 2, 1]), axial(), STILL),
    ("positions of axes 1, 2 times 16", lambda x, p: axial().apply(x, p * [1, 16, 16]), axial(), None),
]


@pytest.mark.parametrize(("cause", "function", "right", "positions"), WRONG_ON_AXES)
def test_the_causes_of_wrong_results_on_several_axes_are_named(cause, function, right, positions):
    report = check_rotary(function, right, positions=positions)
    assert report.causes == (cause,), str(report)
    assert report.unexplained <= 2e-6


def test_a_few_wrong_tokens_are_named_and_positions_may_repeat():
    report = check_rotary(lambda x, p: RIGHT.apply(x, np.minimum(p, 98)), RIGHT, positions=range(100))
    assert report.causes == ("a few tokens are wrong, such as those at 99",) and report.unexplained is None
    twice = lambda x, p: RIGHT.apply(x, np.where(np.arange(len(p)) < len(p) // 2, 2 * p, p))  # noqa: E731
    assert not check_rotary(twice, RIGHT, positions=[0, 1, 2, 0, 1, 2]).passed


@pytest.mark.parametrize("dtype", [BFLOAT, ml_dtypes.float8_e4m3fn])
def test_keys_that_are_rounded_are_told_apart_from_queries(dtype):
    turn = rotary()
    report = check_rotary(lambda q, k, p: (turn(q, p), turn(k, p).astype(dtype).astype(k.dtype)), RIGHT, keys=True)
    assert report.causes == (("the result in bfloat16, in keys",) if dtype == BFLOAT else ())


def test_keys_of_which_one_head_rotates_are_named():
    turn = rotary()
    first = lambda q, k, p: (turn(q, p), np.concatenate([turn(k[:, :1], p), k[:, 1:]], axis=1))  # noqa: E731
    causes = check_rotary(first, RIGHT, keys=True).causes
    assert causes == ("with 3 rows, 6 heads and 131 tokens: another result, in heads 5 (of 0 to 5)",)


def test_a_function_may_refuse_features_with_gaps(torch):
    def complex_view(x, table):
        """As Meta's code does."""
        return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * table).flatten(-2)

    assert check_rotary(complex_view, ADJACENT, table="meta", like=torch.zeros(1))


def test_the_textbook_rotary_passes():
    assert check_rotary(lambda x, p: textbook(x, np.outer(p, F)), RIGHT)
    assert check_rotary(lambda x, p: textbook(x, np.outer(p, F), **REPEATED, **SWAPPED), ADJACENT)


# --- properties, and what is returned ---------------------------------------------------------------------------------


def change_written(y, _, __, *, at=..., to=np.zeros_like):
    """Change a part of the result."""
    y[at] = to(y[at])
    return y


def beyond(y, _, positions):
    """Raise for positions beyond a table."""
    if positions.max() >= 4096:
        raise IndexError("index out of range: 4096")
    return y


def failing_of(report):
    """Return the names of the properties that fail; the report must say that it failed."""
    assert not report.passed
    return [name for name, found in report.properties.items() if not found.holds]


def far(change):
    """Return a correct partial rotary; a function of y, x and positions changes its result from position 1000 on."""
    return changed(lambda y, x, p: change(y, x, p) if p[0] >= 1000 else y, rotary_dim=16)


def write_x(y, x, _):
    """Change a value of x."""
    x[0, 0, 0] = 5
    return y


def write_positions(y, _, positions):
    """Change the positions."""
    positions += 1
    return y


def through(dtype):
    """Return a function that rounds the features that pass through to a dtype."""
    return partial(change_written, at=np.s_[..., 16:], to=lambda x: x.astype(dtype))


def zeroed(at):
    """Return a correct partial rotary, but for a part of its result that is 0."""
    return changed(partial(change_written, at=at), rotary_dim=16)


# Rotaries whose angles are correct, the dtype of x, and what fails.
FAILURES = {
    "zeros pass": (far(partial(change_written, at=np.s_[..., 16:])), "float32", "passes the other features through"),
    "bfloat16 passes": (far(through(BFLOAT)), "float32", "passes the other features through"),
    "float32 passes": (far(through("float32")), "float64", "passes the other features through"),
    "bfloat16 passes for float16": (far(through(BFLOAT)), "float16", "passes the other features through"),
    "another dtype": (far(lambda y, *_: y.astype(np.float64)), "float32", "keeps the dtype"),
    "x is written": (far(write_x), "float32", "leaves x as it is"),
    "positions are written": (far(write_positions), "float32", "leaves positions as they are"),
    "8 tokens": (zeroed(np.s_[..., 8:, :16]), "float32", "one large call equals its parts"),
    "3 heads": (zeroed(np.s_[:, 3:, :, :16]), "float32", "one large call equals its parts"),
    "2 rows": (zeroed(np.s_[2:, ..., :16]), "float32", "one large call equals its parts"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_pass_through_features_inputs_and_many_tokens_are_checked(name):
    function, dtype, failing = FAILURES[name]
    report = check_rotary(function, PART, head_dim=32, longest=2000, like=np.zeros(1, dtype))
    assert failing_of(report) == [failing]
    assert max(report.errors.values()) <= report.bound
    assert report.causes or "\n  cause   none in the rotation: all numbers that were returned are right;" in str(report)


WRONG_PROPERTIES = {
    "is the identity at position 0": changed(lambda y, *_: y + 1e-2),
    "preserves lengths": changed(lambda y, _, p: y * (1 + p[:, None] / 1000)),
    "scores depend only on the distance": lambda x, p: rotary()(x, p * p),
    "rotations by m and n add up to m + n": lambda x, p: rotary()(x, 3 * p + 5),
    "tokens, heads, rows are independent": changed(lambda y, *_: y + 1e-2 * np.roll(y, 1, -2)),
}


@pytest.mark.parametrize("failing", WRONG_PROPERTIES)
def test_the_failing_property_is_named(failing):
    report = check_rotary(WRONG_PROPERTIES[failing], RIGHT, longest=1000)
    assert failing in failing_of(report)
    assert f"{failing:<36} {report.properties[failing].error:.1e}  FAILS" in str(report)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT])
def test_a_result_in_a_wider_dtype_fails_for_its_dtype_alone(dtype):
    wide = rotary(rotary_dim=16, factor=1.3)
    right = dataclasses.replace(PART, attention_factor=1.3)
    like = np.zeros(1, dtype)
    report = check_rotary(lambda x, p: wide(x.astype(np.float64), p), right, head_dim=32, longest=2000, like=like)
    assert failing_of(report) == ["keeps the dtype"] and report.causes == ()
    assert "  change  cast the result to the dtype of x:" in str(report)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_tables_in_half_precision_fail(dtype, pairing):
    right, like = ra.Rope(ra.frequencies(128), pairing=pairing), np.zeros(1, dtype)
    correct = check_rotary(rotary(pairing=pairing), right, like=like)
    assert correct, str(correct)
    report = check_rotary(rotary(pairing=pairing, table=dtype), right, like=like)
    assert report.causes == (f"the table in {np.dtype(dtype).name}",), str(report)


# --- reports and refusals ---------------------------------------------------------------------------------------------


def test_exceptions_are_reported():
    report = check_rotary(changed(beyond), RIGHT)
    assert not report.passed and list(report.errors) == [0, 10, 100, 1000]
    assert report.refusals[10_000] == "raised IndexError: index out of range: 4096"
    assert report.causes == () and f"{report.refusals[10_000]} (7 times)" in str(report)
    assert check_rotary(changed(beyond), RIGHT, longest=4095)
    assert check_rotary(lambda *_: sys.exit(4), RIGHT).refusals[0] == "raised SystemExit: 4"


REFUSALS = {
    "returned shape (3, 8, 32) for x of shape (2, 3, 8, 32)": lambda x, _: x[0],
    "returned list, where x is numpy.ndarray": lambda x, _: x.tolist(),
    "returned complex64 for x of float32": lambda x, _: x * 1j,
    "raised TypeError: dumps() takes 1 positional argument": json.dumps,
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_fault_of_every_call_is_reported_once(refusal):
    report = check_rotary(REFUSALS[refusal], RIGHT)
    assert (report.passed, report.errors) == (False, {})
    (cause,) = report.causes
    assert report.refusals[0].startswith(refusal)
    call = "function(x float32 (2, 3, 8, 32), positions int64 (8,))"
    assert cause == f"{call} must return the rotated x; it {report.refusals[0]}" and all(report.remedies)
    if refusal.startswith("raised"):  # in the same words for each call
        shown, change, _ = " ".join(str(report).split()).partition(" change wrap it, as lambda x, p: f(p, x)")
        assert change and shown == f"FAILED: half, head_dim 32, float32 of numpy cause {cause}"


# The hint for a function of other arguments is the feature.
HINTS = {
    "a function that writes into x needs in_place=True, on the command line --in-place": lambda x, _: x.fill(0),
    "function(q, k, positions) needs keys=True (--keys), function(x, cos, sin) table= (--table)": lambda q, k, _: q + k,
    "function(q, k, cos, sin) needs keys=True and table= (--keys, --table)": lambda q, k, c, s: (q * c, k * s),
    "a function of torch needs like=torch.empty(0), on the command line --library torch": lambda x, _: x.to(0),
}


@pytest.mark.parametrize("hint", HINTS)
def test_a_function_of_other_arguments_has_a_hint(hint):
    assert check_rotary(HINTS[hint], RIGHT).remedies == (hint,)
    called = check_rotary(lambda *_: None, RIGHT, keys=True, table="vllm").causes[0]
    cache = "q float32 (2, 2, 8, 32), k float32 (2, 1, 8, 32), cache float32 (8, 32)"
    assert called == f"function({cache}) must return the rotated q and k; it returned NoneType, where q and k are two"


def rows_only(x, positions):
    """Rotate by positions (batch, seq)."""
    assert positions.ndim == 2
    return rotary()(x, positions[0])


def of_streams(x, positions):
    """Rotate by positions (axes, batch, seq)."""
    _, rows, _ = positions.shape
    return SECTIONS.apply(x, positions.T[:, 0] if rows == 1 else None)


def at_offset(x, offset):
    """Rotate by positions from an offset on."""
    return RIGHT.apply(x, range(offset, offset + x.shape[-2]))


# A function, what is right, options, what the advice says, and the function or the options that follow it.
FOLLOWED = {
    "batch, seq": (rows_only, RIGHT, {}, "f(x, p[None])", lambda x, p: rows_only(x, p[None]), {}),
    "axes, batch, seq": (of_streams, SECTIONS, {}, "f(x, p.T[:, None])", lambda x, p: of_streams(x, p.T[:, None]), {}),
    "offset": (at_offset, RIGHT, {}, "f(x, int(p[0]))", lambda x, p: at_offset(x, int(p[0])), {}),
    "positions, q, k": (
        lambda p, q, k: RIGHT(q, k, p),
        RIGHT,
        {"keys": True},
        "lambda q, k, p: f(p, q, k)",
        RIGHT,
        {"keys": True},
    ),
    "slice": (
        lambda x, c, s: x * c + np.repeat(np.float32([-1, 1]), 8) * np.roll(x, 8, -1) * s,
        PART,
        {"head_dim": 32, "table": "transformers"},
        "give head_dim=16 if it takes the features that rotate alone",
        None,
        {"table": "transformers", "head_dim": 16},
    ),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_advice_ends_in_a_call_that_works(name):
    function, right, options, advice, other, then = FOLLOWED[name]
    (remedy,) = check_rotary(function, right, **options).remedies
    assert advice in remedy
    assert check_rotary(other or function, right, **then)


def test_results_without_numbers_fail():
    assert check_rotary(lambda x, _: x * np.nan, RIGHT).causes == ("infinite or NaN values",)
    for factor in (0, np.inf):
        assert not check_rotary(lambda x, _, factor=factor: x * factor, RIGHT).passed
    other = check_rotary(lambda x, _: x[..., ::-1].copy(), RIGHT)
    assert other.causes == () and "cause   none of the known ones" in str(other)


def test_errors_are_reported_as_angles():
    report = check_rotary(rotary(scale=1 + 1e-6), RIGHT, longest=9999)
    # the fastest pair of the last token has rotated by 1e-6 · p too far
    assert report.errors[1000] == pytest.approx(1007e-6, rel=1e-3)
    assert report.errors[9992] == pytest.approx(9999e-6, rel=1e-3)


def test_the_report_is_printed():
    report = check_rotary(rotary(freqs=np.float32, angles=np.float32), RIGHT)
    first, *lines = str(report).split("\n")
    assert first == "FAILED: half, head_dim 32, float32 of numpy"
    assert lines[1] == "  cause   angles in float32" and lines[2].startswith(
        "  change  multiply position and frequency"
    )
    assert any(line.startswith("  2147483640 ") and line.endswith("FAILS") for line in lines)
    read = json.loads(report.json())
    assert read["causes"] == ["angles in float32"] and read["errors"]["0"] < 4e-7 and not read["passed"]
    assert str(check_rotary(rotary(), RIGHT)).startswith("passed: ")


QWEN = {"model_type": "qwen3", "head_dim": 32, "num_hidden_layers": 2}
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 2}


def test_a_function_is_checked_against_a_config():
    assert check_rotary(rotary(), LLAMA) and check_rotary(rotary(), ra.config.read(LLAMA))
    gemma = {"model_type": "gemma3_text", "head_dim": 32, "num_hidden_layers": 6, "max_position_embeddings": 4096}
    report = check_rotary(rotary(), gemma, layer_type="full_attention")
    assert report.causes == ("the rotation is that of text, sliding_attention",)
    refused(lambda: check_rotary(rotary(), gemma), "one rotation; got those of sliding_attention, full_attention")
    refused(lambda: check_rotary(rotary(), RIGHT, part="text"), "part must not be given beside a Rope")
    refused(lambda: check_rotary(rotary(), ra.config.read(LLAMA), factor=2.0), "factor must be given to")
    yarn = QWEN | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}}
    assert check_rotary(rotary(scale=0.25), yarn).causes == (
        "the attention factor left out",
        "other frequencies: those of base 10000 times 0.25",
    )
    dynamic = LLAMA | {"max_position_embeddings": 2048, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}
    longer = ra.Rope.from_config(dynamic, sequence_length=5003)
    assert check_rotary(longer.apply, dynamic).causes == ("the rotation is that of a sequence of 5003 tokens",)


def test_what_is_no_rope_is_refused_with_one():
    case = cases()["yarn"]
    refused(
        lambda: check_rotary(rotary(), pairing="half"),
        'be a Rope or a config; give Rope(frequencies(64), pairing="half"),',
    )
    refused(
        lambda: check_rotary(rotary(), F, pairing="interleaved"), 'give Rope(frequencies(64), pairing="interleaved")'
    )
    refused(
        lambda: check_rotary(rotary(), case),
        "got Case; give Rope(case.frequencies, attention_factor=case.attention_factor, start=case.start, pairing=",
    )
    heads = ra.Rope(axes.golden(F, 2, heads=2), pairing="half")
    refused(lambda: check_rotary(rotary(), heads, table="vllm"), "table must not be given for frequencies of each head")


def refused(call, message):
    """Assert that a call raises an error of one line that has `message` in it."""
    with pytest.raises((ra.ArgumentTypeError, ra.ArgumentValueError)) as raised:
        call()
    assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("shape", ["bshd", "sbhd", "thd"])
def test_features_may_lie_in_other_orders(shape):
    axis = {"bshd": 1, "sbhd": 0, "thd": 0}[shape]

    def function(x, positions):
        """Rotate the tokens along their axis."""
        return (
            rotary()(np.moveaxis(x, axis, -2), positions).swapaxes(axis, -2) if shape != "sbhd" else along(x, positions)
        )

    def along(x, positions):
        """Rotate along the first axis."""
        return np.moveaxis(rotary()(np.moveaxis(x, 0, -2), positions), -2, 0)

    assert check_rotary(function, RIGHT, shape=shape), str(check_rotary(function, RIGHT, shape=shape))


TABLES = {
    "vllm": lambda x, t: RIGHT.apply(x, ra.Table(t[:, :16], t[:, 16:])),
    "meta": lambda x, z: ADJACENT.apply(x, ra.Table(z.real, z.imag)),
    "transformers": lambda x, c, s: x * c + np.repeat(np.float32([-1, 1]), 16) * np.roll(x, 16, -1) * s,
}


@pytest.mark.parametrize("layout", TABLES)
def test_a_function_may_take_a_table(layout):
    rope = ADJACENT if layout == "meta" else RIGHT
    assert check_rotary(TABLES[layout], rope, table=layout)
    reverse = lambda x, *t: TABLES[layout](x, *(each[..., ::-1, :] for each in t))  # noqa: E731
    assert not check_rotary(reverse, rope, table=layout)

    def packed(x, *t):
        """Rotate tokens ``(tokens, heads, features)`` by tables that have no other axis than the tokens."""
        assert all(each.ndim == 2 for each in t)
        return TABLES[layout](x.swapaxes(0, 1), *t).swapaxes(0, 1)

    assert check_rotary(packed, rope, table=layout, shape="thd")

    def as_the_first(x, *t):
        """Rotate the tokens of both sequences by the positions of the first."""
        half = len(x) // 2
        return packed(x, *(np.concatenate([each[:half]] * 2) if half > 1 else each for each in t))

    causes = check_rotary(as_the_first, rope, table=layout, shape="thd").causes
    assert "all rows of the batch are rotated by the positions of the first" in causes


def test_positions_may_be_given():
    positions = [0.5, 3.25, 700.0, 12_345.0]
    report = check_rotary(rotary(), RIGHT, positions=positions)
    assert report and list(report.errors) == positions
    truncated = check_rotary(lambda x, p: rotary()(x, np.round(p)), RIGHT, positions=positions)
    assert truncated.causes == ("positions are rounded to whole numbers",)
    for numbers in (positions, [-3, 0, 63, 64, 2**31 - 1]):  # products of rotations are as exact as one
        *table, _ = oracle.table(np.asarray(numbers).reshape(-1, 1), [F])
        np.testing.assert_allclose(_exact.exact(numbers, F)[1:], table, rtol=0, atol=1e-15)
    places = np.asarray([[0, 0, 0], [5, 2, 9], [7, 1, 1], [900, 3, 40]])
    assert check_rotary(SECTIONS.apply, SECTIONS, positions=places, longest=900)
    refused(lambda: check_rotary(SECTIONS.apply, SECTIONS, positions=places.T), "transpose them")
    exchanged = check_rotary(lambda x, p: SECTIONS.apply(x, p[:, [0, 2, 1]]), SECTIONS, positions=places)
    assert exchanged.causes == ("the axes of the positions are taken as 0, 2, 1",)


REFUSED = {
    "head_dim": {"head_dim": 31},
    "longest": {"longest": 10},
    "like": {"like": np.zeros(1, int)},
    "shape did you mean bshd?": {"shape": "BSHD"},
    "table did you mean transformers?": {"table": "huggingface"},
    "positions": {"positions": [[1, 2]]},
    "positions got 101": {"positions": [5, 101], "longest": 100},
}


@pytest.mark.parametrize("argument", REFUSED)
def test_wrong_arguments_are_refused_by_name(argument):
    with pytest.raises((ra.ArgumentTypeError, ra.ArgumentValueError)) as raised:
        check_rotary(rotary(), RIGHT, **REFUSED[argument])
    name, _, hint = argument.partition(" ")
    assert raised.value.argument == name and "\n" not in str(raised.value)
    assert str(raised.value).endswith(hint)


@pytest.mark.thread_unsafe(reason="it sets the digits of mpmath for all threads")
def test_the_reference_precision_is_thread_safe():
    expected, done = check_rotary(rotary(), RIGHT), threading.Event()

    def few_digits():
        """Lower mpmath's global precision until the test ends."""
        while not done.is_set():
            mpmath.mp.dps = 3

    with mpmath.workdps(15), ThreadPoolExecutor() as pool:
        pool.submit(few_digits)
        try:
            found = check_rotary(rotary(), RIGHT)
        finally:
            done.set()
    assert found.errors == expected.errors
