"""Wrong arguments are refused in one sentence with the name, what it must be and what it got; none is half done."""

import pickle
import re
from functools import partial
from random import Random

import numpy as np
import pytest
from public_calls import CALLS as PUBLIC_CALLS

import rope_any as ra
from rope_any import axes
from rope_any import positions as at
from rope_any.testing import check_rotary

F = ra.frequencies(8)
X = np.ones((2, 3, 8), dtype=np.float32)
P = np.arange(3)
TABLE = COS, SIN = ra.cos_sin(P, F)
ROPE = ra.Rope(F, pairing="half")
W = np.ones((8, 3))
BY_HEAD = ra.Rope(((F,), (F,)), pairing="half")
CACHE = np.ones((8, 8), dtype=np.float32)
NAN, INF, HUGE = float("nan"), float("inf"), 10**5000


def rope(frequencies=F, **options):
    """Make a Rope with valid arguments, except for those given."""
    return ra.Rope(frequencies, **{"pairing": "half", **options})


def rotate(x=X, cos=COS, sin=SIN, pairing="half", **options):
    """Call `rotate` with valid arguments, except for those given."""
    return ra.rotate(x, cos, sin, pairing=pairing, **options)


def xpos(table=TABLE, positions=P, centre=0, **options):
    """Call `xpos` with valid arguments, except for those given."""
    return ra.bending.xpos(table, positions, centre=centre, **options)


def fope(c=None, s=None, table=TABLE, pairs=8, sine_padding=0.0):
    """Call `fope` with valid arguments, except for those given."""
    c, s = (np.eye(4) if part is None else part for part in (c, s))
    return ra.bending.fope(table, c, s, pairs=pairs, sine_padding=sine_padding)


TO_ADJACENT = {"source": "half", "target": "interleaved"}


def convert(w=W, head_dim=4, **options):
    """Call `convert` with valid arguments, except for those given."""
    return ra.weights.convert(w, head_dim, **(TO_ADJACENT | options))


def pack(source, layout, **options):
    """Call `pack`."""
    return ra.layouts.pack(source, layout, **options)


def pack_angles(source, layout="megatron"):
    """Pack the angles of 8 positions."""
    return pack(source, layout, like=X, length=8)


def unpack(shape, layout="vllm", *, dtype="f4", **options):
    """Call `unpack` with a cache of ones of a shape."""
    return ra.layouts.unpack(np.ones(shape, dtype), layout, **options)


def check(cache=CACHE, layout="vllm", **options):
    """Call `check_cache` with valid arguments, except for those given."""
    return ra.testing.check_cache(cache, layout, ROPE, **options)


def recursive_list():
    """Return a list that contains itself."""
    inside = []
    inside.append(inside)
    return inside


# --- the exceptions ---------------------------------------------------------------------------------------------------


def refusal(call, error=(ra.ArgumentTypeError, ra.ArgumentValueError)):
    """Return the error that a call raises."""
    with pytest.raises(error) as caught:
        call()
    return caught.value


def test_an_error_has_its_parts_as_attributes_and_its_text_joins_them():
    error = refusal(lambda: ra.frequencies(8.0), TypeError)
    assert type(error) is ra.ArgumentTypeError and not isinstance(error, ValueError)
    assert (error.argument, error.wanted, error.got) == ("rotary_dim", "be an integer", "float 8.0")
    assert (error.hint, error.where) == ("write 8", "")
    assert str(error) == "rotary_dim must be an integer; got float 8.0; write 8"
    error = refusal(lambda: ra.frequencies(8, base=-1), ValueError)
    assert type(error) is ra.ArgumentValueError
    assert str(error) == "base must be positive and finite; got -1.0"
    without_value = refusal(lambda: at.packed(P), TypeError)
    assert re.fullmatch("length must be given if .* not read; it is the number of tokens, .*", str(without_value))


def test_an_error_inside_a_config_begins_with_its_key():
    model = {"model_type": "qwen2_vl", "head_dim": 8, "rope_scaling": {"mrope_section": [1, 1]}}
    error = refusal(lambda: ra.Rope.from_config(model))
    assert (error.where, error.argument, error.got) == ("rope_scaling.mrope_section", "sections", "[1, 1]")
    assert str(error).startswith(f"{error.where}: {error.argument} must {error.wanted}; got {error.got}")


def test_an_error_is_pickled_with_the_text_of_a_value_that_cannot_be():
    error = ra.ArgumentTypeError("x", "be a number", lambda: None, "use float()", "a.json")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is ra.ArgumentTypeError and str(copy) == str(error)
    for part in ("argument", "wanted", "got", "hint", "where"):
        assert getattr(copy, part) == getattr(error, part)


def test_the_text_of_a_value_is_composed_on_demand():
    class Value:
        """A value whose text must not be composed."""

        def __repr__(self):
            """Fail if the text is composed."""
            pytest.fail("its text was composed")

    assert refusal(lambda: ra.frequencies(Value())).argument == "rotary_dim"


LONG_VALUES = [
    ([1] * 20, "list"),
    (np.zeros((2, 2)), "ndarray"),
    ({1: {2: 3}}, "dict"),
    (recursive_list(), "list"),
    ("x" * 38, f"str {'x' * 38!r}"),
    ("x" * 39, "str"),
]


@pytest.mark.parametrize(("value", "got"), LONG_VALUES)
def test_a_long_or_nested_value_is_shown_by_its_type_alone(value, got):
    assert refusal(lambda: ra.frequencies(8, base=value)).got == got


# --- wrong arguments: the exception, the beginning of its message, the call -------------------------------------------

CHECKS = [
    (ValueError, "rotary_dim must be an integer that 64 bits hold; got one beyond", lambda: ra.frequencies(2**63)),
    (ValueError, "base must be a number that a float can hold; got one", lambda: ra.frequencies(8, base=HUGE)),
    (ValueError, "base must be positive and finite; got 0.0", lambda: ra.frequencies(8, base=0)),
    (ValueError, "base must be from 1e-100 to 1e100; got 5e-324", lambda: ra.frequencies(8, base=5e-324)),
    (ValueError, "base must be from 1e-100 to 1e100; got 1e\\+101", lambda: ra.frequencies(8, base=1e101)),
    (ValueError, "attention_factor must be from 1e-4 to 1e4; got", lambda: ra.cos_sin(P, F, attention_factor=9e-5)),
    (ValueError, "attention_factor must .*; got 10001.0", lambda: ra.cos_sin(P, F, attention_factor=10001)),
    (ValueError, 'pairing must be "half" or "interleaved"; got \'both\'', lambda: rope(pairing="both")),
    (ValueError, 'out_pairing must be "half" or "inter.*; write "half"', lambda: rope(out_pairing="neox")),
    (ValueError, "order must be 'rows' or 'columns'; got 'C'", lambda: at.grid(2, order="C", like=X)),
]
FREQUENCIES = [
    (ValueError, "rotary_dim .* got 1048578", lambda: ra.frequencies(2**20 + 2)),
    (TypeError, r"frequencies\[0\] must be a real number; got str", lambda: ra.cos_sin(P, ("1",))),
    (ValueError, "frequencies must have at least one pair; got none", lambda: ra.cos_sin(P, ())),
    (ValueError, "frequencies must be at most 65536 .*, and finite; got nan", lambda: ra.cos_sin(P, (1.0, NAN))),
    (ValueError, "frequencies .* 65536 .* got 65537.0", lambda: ra.cos_sin(P, (1.0, 65_537.0))),
    (TypeError, r"frequencies must be all numbers or all rows .* got float 1.0", lambda: ra.cos_sin(P, (1.0, (1.0,)))),
    (ValueError, r"frequencies .* lengths \[1, 2\]", lambda: ra.cos_sin(P, ((1.0, 2.0), (1.0,)))),
    (ValueError, r"frequencies .* shapes \[\(1, 4\), \(2, 4\)\]", lambda: ra.cos_sin(P, ((F, F), (F,)))),
    (ValueError, r"frequencies must have shape .*; got \(1, 1, 2, 3\)", lambda: ra.cos_sin(P, np.ones((1, 1, 2, 3)))),
    (ValueError, "frequencies must have shape .*; got deeper rows", lambda: rope((((F,),),))),
    (TypeError, "frequencies must be floating-point", lambda: ra.cos_sin(P, np.ones(4, np.complex64))),
    (ValueError, r"frequencies must have shape .*; got \(0,\)", lambda: ra.cos_sin(P, np.ones(0))),
    (ValueError, r"positions must be \(..., seq, axes\)", lambda: ra.cos_sin(np.zeros(2), np.ones((1, 2, 3)))),
    (ValueError, r"positions .*; got \[0, 0\]", lambda: ra.cos_sin([0, 0], ((F, F),), like=X)),
    (ValueError, "positions must end .* length 2.*; got shape \\(\\)", lambda: ra.cos_sin(3, (F, F), like=X)),
    (ValueError, "start must not be negative; got -1", lambda: rope(start=-1)),
    (ValueError, "blocks must be positive and divide .*, 4; got 0", lambda: rope(blocks=0)),
    (TypeError, "dtype must be one of float16.*; got int32", lambda: ra.cos_sin(P, F, dtype=np.int32)),
    (TypeError, "factor .* got tuple.*; the frequencies come before it", lambda: ra.scaling.ntk(2.0, F)),
    (TypeError, r"frequencies\[0\] must be a real number; got tuple", lambda: ra.scaling.linear((F, F), 2.0)),
    (ValueError, "frequencies must be the same for all heads", lambda: ra.layouts.pack(BY_HEAD, "mlx", like=X)),
    (ValueError, "frequencies must be the same .*; got 2 heads", lambda: ra.onnx.export(BY_HEAD)),
]
POSITIONS = [
    (TypeError, "positions must be an array, an int, a range .*; got NoneType", lambda: ra.cos_sin(None, F, like=X)),
    (ValueError, "positions .* finite numbers; got inf", lambda: ra.cos_sin([INF], F, like=X)),
    (ValueError, "positions .* finite numbers; got -inf", lambda: ra.cos_sin([-INF], F, like=X)),
    (ValueError, "positions .*; got rows of different lengths", lambda: ra.cos_sin([[1], [1, 2]], F, like=X)),
    (ValueError, "positions .*; got sequences nested more than 64", lambda: ra.cos_sin(recursive_list(), F, like=X)),
    (ValueError, f"positions must not exceed {2**53} .*; got {2**53 + 1}$", lambda: ra.cos_sin([2**53 + 1], F, like=X)),
    (ValueError, "positions .* got one beyond 64 bits", lambda: ROPE.apply(X, [HUGE, 0, 0])),
    (ValueError, "positions must not exceed", lambda: ROPE.table(range(2**53, 2**53 + 2), like=X)),
    (TypeError, "positions must be an integer; got bool True", lambda: ROPE.apply(X, True)),
    (TypeError, "positions must be integers, .* array of bool", lambda: xpos(positions=P > 1)),
]
CALLS = [
    (ValueError, "x must have an axis of features; got a 0-d array", lambda: rotate(np.asarray(1.0))),
    (ValueError, r"cos and sin must have one shape .*; got \(3, 4\) and \(2, 4\)", lambda: rotate(sin=SIN[:2])),
    (ValueError, r"cos and sin .*; got \(\) and", lambda: rotate(cos=np.ones(()), sin=np.ones(()))),
    (ValueError, r".* 3 features; swapaxes\(x, 1, -1\)", lambda: rotate(np.ones((2, 8, 3)))),
    (ValueError, r".* give \[..., :4\] of both", lambda: rotate(np.ones((3, 10)), X[0], X[0], start=2)),
    (ValueError, "out must not overlap sin", lambda: rotate(X[:1], COS, X[0, :, :4], out=X[:1])),
    (TypeError, "cos must be floating-point", lambda: rotate(cos=COS.astype(complex))),
    (ValueError, "x .* 0 pairs", lambda: rotate(cos=COS[:, :0], sin=SIN[:, :0])),
    (ValueError, "x .* 4 pairs from `start`=1; got 8 features", lambda: rotate(start=1)),
    (ValueError, r"cos and sin must broadcast to \(2, 1, 4\)", lambda: rotate(X[:, :1])),
    (ValueError, "out must have 32 or 64 bits .* float16", lambda: rotate(X.astype(float), out=X.astype("f2"))),
    (TypeError, "out must be a pair of arrays, .*; got tuple", lambda: ROPE(X, X, out=(X, None))),
    (TypeError, "sin must be an array .*; got NoneType", lambda: ROPE(X, X, ra.Table(COS, None))),
    (ValueError, "inverse must be False .*; got True", lambda: ROPE.apply(X, ra.BentTable(COS, SIN), inverse=True)),
    (ValueError, r"positions .* for k of .* \(2, 4\)", lambda: ROPE(X, X, (TABLE, ra.Table(COS[:2], SIN[:2])))),
    (ValueError, "positions must be one table .*; got a pair", lambda: ROPE.apply(X, (TABLE, TABLE))),
    (TypeError, "old must be positions; got a table", lambda: ROPE.reposition(X, TABLE, 0)),
    (ValueError, "x must have 2 heads, as the frequencies", lambda: BY_HEAD.apply(X[0])),
    (ValueError, "k must have 2 heads, .*`seq_axis`=-3", lambda: BY_HEAD(np.ones((1, 4, 3, 8)), np.ones((1, 3, 3, 8)))),
    (ValueError, "gradient must be False for numpy", lambda: check_rotary(print, ROPE, gradient=True)),
]
BENDING = [
    (ValueError, "scale_base must be at least one token; got 0.5", lambda: xpos(scale_base=0.5)),
    (ValueError, "gamma must be at least 1e-6", lambda: xpos(gamma=1e-7)),
    (ValueError, r"positions must be those of the table, \(3,\) .* got \(2,\)", lambda: xpos(positions=P[:2])),
    (ValueError, r"cos_coefficients .* got \(4, 4\) and \(2, 4, 4\)", lambda: fope(np.eye(4), np.ones((2, 4, 4)))),
    (ValueError, r"cos_coefficients .* \(4, out\) .* got \(3, 4\)", lambda: fope(np.ones((3, 4)), np.ones((3, 4)))),
    (ValueError, r"cos_coefficients .* got \(4,\)", lambda: fope(np.ones(4), np.ones(4))),
    (ValueError, "cos_coefficients .* to `pairs`, 3; got", lambda: fope(pairs=3)),
    (ValueError, "pairs must be at most 524288; got 524289", lambda: fope(pairs=524_289)),
    (ValueError, r"table must be \(seq, kept\) .* got \(4,\)", lambda: fope(table=ra.Table(COS[0], SIN[0]))),
    (ValueError, "sine_padding must be 0.0 or 1.0; got 0.5", lambda: fope(sine_padding=0.5)),
]
WEIGHTS = [
    (ValueError, r"head_dim must divide w along axis 0 into .* 6 .*; got shape \(8, 3\)", lambda: convert(head_dim=6)),
    (ValueError, "head_dim .* groups of 12 features", lambda: convert(heads=(2, 3))),
    (ValueError, r"head_dim must divide .*; got shape \(0, 3\)", lambda: convert(np.ones((0, 3)))),
    (ValueError, "head_dim must leave an even number .*; got 5", lambda: convert(head_dim=5)),
    (ValueError, "head_dim must be at least 2; got 1", lambda: convert(head_dim=1)),
    (ValueError, "head_dim must be at most 1048576, .*`heads`; got 1048578", lambda: convert(head_dim=2**20 + 2)),
    (ValueError, "head_dim must divide", lambda: convert(head_dim=2**20)),
    (TypeError, "rotary_dim must be an integer", lambda: convert(rotary_dim=2.5)),
    (ValueError, "rotary_dim .* from 2 to 4; got 6", lambda: convert(rotary_dim=6)),
    (ValueError, "rotary_dim must be even .*; got 3", lambda: convert(rotary_dim=3)),
    (ValueError, "start must be from 0 to 2.*; got -1", lambda: convert(start=-1)),
    (ValueError, "start must be from 0 to 2.*; got 3", lambda: convert(start=3)),
    (ValueError, r"axis must be one that w has; got 2 for shape \(8, 3\)", lambda: convert(axis=2)),
    (
        TypeError,
        "names must .* dict.fromkeys",
        lambda: ra.weights.convert_state_dict({}, 4, **TO_ADJACENT, names=["a"]),
    ),
    (TypeError, "heads must be a pair of integers.*; got int 2", lambda: convert(heads=2)),
    (ValueError, r"heads must be \(m, n\).*; got \(0, 2\)", lambda: convert(heads=(0, 2))),
    (ValueError, r"heads must be \(m, n\).*; got \(2, 1\)", lambda: convert(heads=(2, 1))),
]
LAYOUTS = [
    (TypeError, r"source must be a Table .*; give rope.table\(range\(length\), like=x\)$", lambda: pack(ROPE, "vllm")),
    (TypeError, "source must be a Rope", lambda: pack(TABLE, "mlx", like=X)),
    (TypeError, "length must be given", lambda: pack(ROPE, "megatron", like=X)),
    (TypeError, "length must not be given", lambda: pack(ROPE, "mlx", like=X, length=3)),
    (ValueError, r"source .* shape \(seq, pairs\) for", lambda: pack(ra.Table(*np.ones((2, 2, 8, 6), "f4")), "vllm")),
    (ValueError, r"source .* or .* got \(6,\)", lambda: pack(ra.Table(*np.ones((2, 6), "f4")), "transformers")),
    (ValueError, r"source .* \(seq, pairs\) or ", lambda: pack(ra.Table(*np.ones((2, 2, 2, 8, 6))), "transformers")),
    (TypeError, "dtype must be float32 .*; got float16", lambda: pack(TABLE, "flashinfer", dtype="float16")),
    (TypeError, "dtype .*NumPy takes ml_dtypes.bfloat16", lambda: pack(TABLE, "vllm", dtype="bfloat16")),
    (TypeError, "source .* make the table in float32", lambda: pack(ra.Table(*np.ones((2, 8, 6), "f2")), "meta")),
    (ValueError, "source .* multiply the queries by its square", lambda: pack_angles(rope(attention_factor=1.5))),
    (ValueError, "source .* got start 2", lambda: pack_angles(rope(start=2))),
    (ValueError, "source .* got blocks 2", lambda: pack_angles(rope(blocks=2))),
    (ValueError, "source .* got out_pairing", lambda: pack_angles(rope(out_pairing="interleaved"))),
    (ValueError, "source must have pairing 'interleaved'", lambda: pack_angles(ROPE, "megatron-interleaved")),
    (ValueError, "source .* got 2 axes", lambda: pack(rope((F, F)), "mlx", like=X)),
    (ValueError, r"cache .* \(seq, 2\*pairs\) .* vllm: cosines, then sines; got \(8, 5\)", lambda: unpack((8, 5))),
    (ValueError, r"cache must have the shape .* got \(8, 6, 1\)", lambda: unpack((8, 6, 1))),
    (ValueError, r"cache must have the shape .* got \(8, 0\)", lambda: unpack((8, 0))),
    (TypeError, "cache must be of float32 or .*; got float64", lambda: unpack((8, 12), dtype="f8")),
    (ValueError, "cache .* with 10 rotated features", lambda: unpack((8, 12), rotary_dim=10)),
    (TypeError, "rotary_dim must be given", lambda: unpack((1, 96), "tensorrt-llm")),
    (ValueError, "cache .* with 10 rotated", lambda: unpack((1, 96), "tensorrt-llm", rotary_dim=10)),
    (ValueError, "cache .* with 7 rotated", lambda: unpack((1, 96), "tensorrt-llm", rotary_dim=7)),
    (ValueError, "rotary_dim must be from 2 to", lambda: unpack((1, 96), "tensorrt-llm", rotary_dim=1)),
    (ValueError, r"cache .* got \(2, 96\)", lambda: unpack((2, 96), "tensorrt-llm", rotary_dim=12)),
    (TypeError, "cache must be an array", lambda: ra.layouts.unpack(3, "vllm")),
    (TypeError, "cache must be a pair of arrays, cos and sin", lambda: unpack((8, 6), "onnxruntime")),
    (ValueError, "cache must have two arrays of one shape", lambda: ra.layouts.unpack((COS, SIN[1:]), "onnxruntime")),
    (ValueError, "cache .* reciprocals other than 0", lambda: ra.layouts.unpack(COS[0] * 0, "mlx", pairing="half")),
    (ValueError, "cache must have two rows or more", lambda: unpack((1, 1, 1, 12), "megatron")),
    (ValueError, 'pairing must be "half"', lambda: unpack((8, 1, 1, 12), "megatron", pairing="interleaved")),
]
CACHES = [
    (TypeError, "cache must be of float32 .*; got float64", lambda: check(np.ones(3))),
    (ValueError, "cache must have the shape", lambda: check(CACHE[:, :7])),
    (ValueError, r"cache must have a row or more; got shape \(0, ", lambda: check(CACHE[:0])),
    (TypeError, "cache must be a pair .*; got 3 of them", lambda: check((COS, SIN, COS), "onnxruntime")),
    (TypeError, "part must not be given beside a Rope", lambda: check(part="text")),
    (TypeError, "length must not be given beside positions", lambda: check(length=3, positions=[0, 1])),
    (TypeError, "positions must not be given for .* mlx, which has", lambda: check(CACHE[0], "mlx", positions=[0])),
    (ValueError, r"positions must have the shape \(rows,\) or \(rows, 1\)", lambda: check(positions=[[0, 1]])),
    (ValueError, "positions must have the shape", lambda: check(positions=3)),
    (ValueError, "positions must be those of the . rows of the cache; got 1 of them", lambda: check(positions=[0])),
    (TypeError, "base must not be given", lambda: check(base=3.0)),
    (TypeError, "cache must be of float32 for .* flashinfer", lambda: check(layout="flashinfer", dtype="bfloat16")),
]
AXES_AND_MOVES = [
    (ValueError, "frequencies must be given for at least one axis", axes.axial),
    (ValueError, r"sections must be positive and sum to .* 4; got \[3, 4\]", lambda: axes.chunked(F, [3, 4])),
    (ValueError, r"sections must fit 4 pairs .* as \[2, 2\] do", lambda: axes.strided(F, [1, 3])),
    (ValueError, "axis_of must have an axis .* for each of 4 pairs", lambda: axes.assigned(F, [0, 1])),
    (ValueError, "axis_of must have an axis up to 262144", lambda: axes.assigned(F, [2**30] * 4)),
    (ValueError, "axes must be from 1 to the number of pairs, 4; got 9", lambda: axes.alternating(F, 9)),
    (ValueError, "axes and heads must make at most", lambda: axes.golden(F, 2, heads=2**20)),
    (ValueError, "rotary_dim must be a multiple of 4", lambda: axes.mixed(6, heads=1, rng=Random(0))),
    (ValueError, "heads must be from 1 to 131072", lambda: axes.mixed(8, heads=0, rng=Random(0))),
    (ValueError, "source must rotate the same pairs", lambda: ROPE.reposition(X, 0, 0, source=rope(start=1))),
    (ValueError, r"old must .* for keys of shape .* got \(2,\)", lambda: ROPE.reposition(X, [1, 2], 0)),
    (ValueError, "old must end in an axis of length 1", lambda: ROPE.reposition(X, P, 0, source=rope((F,)))),
    (ValueError, "new must not exceed", lambda: ROPE.reposition(X, 0, 2**60)),
    (ValueError, "out must be keys itself", lambda: ROPE.reposition(X[:1, 1:], 0, 0, out=X[:1, :-1])),
    (TypeError, "steps must be floating-point", lambda: ra.cumulative_angles(np.ones((2, 3), int))),
    (ValueError, "steps must have shape", lambda: ra.cumulative_angles(np.ones(3))),
    (ValueError, "carry must be a pair", lambda: ra.cumulative_angles(X[0], carry=(np.ones(8), np.ones(8)))),
    (TypeError, "angles must be floating-point", lambda: ra.from_angles(P)),
    (ValueError, "angles must have shape", lambda: ra.from_angles(np.asarray(1.0))),
]
ZIGZAG, ONE_PACK = {"zigzag": True, "like": X}, {"cumulative_lengths": [0, 4]}
SEQUENCES_AND_GRIDS = [
    (ValueError, r"cumulative_lengths must have shape .*; got \(2, 3\)", lambda: at.packed(np.ones((2, 3), int), 8)),
    (ValueError, r"cumulative_lengths must have shape .*; got \(0,\)", lambda: at.packed([], like=X)),
    (ValueError, r"cumulative_lengths .* not fall; got \[0, 5, 3\]$", lambda: at.packed([0, 5, 3], like=X)),
    (ValueError, "length must be from 0 to 2147483647; got -1", lambda: at.packed(P, -1)),
    (TypeError, "like must be an array", lambda: at.mrope([2], like=None)),
    (ValueError, "length must be at least .* 5; got 4", lambda: at.packed([0, 5], 4, like=X)),
    (TypeError, "length must be an integer; got float 5.0", lambda: at.packed([0, 5], 5.0, like=X)),
    (TypeError, "starts must be a sequence of integers; got str '5'$", lambda: at.from_starts("5", 2, like=X)),
    (TypeError, r"like must be an array \(NumPy", lambda: at.from_starts([1], 2)),
    (TypeError, "positions must be integers; .* of float64", lambda: at.rerope([0.0, 1.0], window=2, like=P)),
    (ValueError, "local_size must be less .* 5; got 5", lambda: at.dual_chunk(P, chunk_size=5, local_size=5)),
    (ValueError, r"window .* 1\) .* got 46116860", lambda: at.leaky_rerope(P, window=2**31 - 1, factor=2**31 - 1)),
    (ValueError, "rows of .* must be from 0 to 2147483647; got 2147", lambda: at.mrope([(1, [2.0**31], 1)], like=X)),
    (ValueError, r"mask must have shape .* got \(\)", lambda: at.padded(np.asarray(1))),
    (ValueError, "positions must have at least one axis; got none", lambda: at.grid(like=X)),
    (ValueError, r"positions must have one axis .*; got shape \(1, 2\)", lambda: at.grid([[1, 2]], like=X)),
    (TypeError, "window must be an integer", lambda: at.grid(2, window=[1.5], like=X)),
    (ValueError, r"window must divide .* \[2\]; got \[1, 2\]", lambda: at.grid(2, window=(1, 2), like=X)),
    (ValueError, r"window must divide .* \[3, 4\]; got \[2, 2\]", lambda: at.grid(3, 4, window=(2, 2), like=X)),
    (ValueError, "length must be a multiple of 3, .*10$", lambda: at.shard(10, 3, 0, zigzag=False, like=X)),
    (ValueError, "length must be a multiple of 6, .* 3 ranks; got 9", lambda: at.shard(9, 3, 0, zigzag=True, like=X)),
    (ValueError, "rank must be from 0 to 2; got 3", lambda: at.shard(12, 3, 3, zigzag=True, like=X)),
    (ValueError, r"rank must be one number; got shape \(3,\)", lambda: at.shard(12, 3, P, zigzag=True)),
    (TypeError, "rank must be integers; .* float32", lambda: at.shard(12, 3, X, zigzag=True)),
    (ValueError, r"positions .* \(..., seq\); got \(\)", lambda: at.unrotated(7, like=X)),
    (ValueError, r"positions .* seq, 3\); got \(3,\)", lambda: at.unrotated(P, axes=3)),
    (ValueError, "offsets must have shape", lambda: at.ragged([0, 2, 5], [1], like=X)),
    (ValueError, "indptr must start at", lambda: at.ragged([0, 3, 2], [1, 1], like=X)),
    (ValueError, r"offsets \+ lengths - 1 must be from", lambda: at.ragged([0, 9], [2**31 - 2], like=X)),
    (ValueError, r"starts \+ length - 1 must be from", lambda: at.from_starts([0, 2**31 - 1], 2, like=X)),
    (ValueError, "cumulative_lengths must be from", lambda: at.packed([0, 2**31], like=X)),
    (ValueError, ".*pad the document", lambda: at.shard(20, 2, 0, cumulative_lengths=[0, 6, 20], **ZIGZAG)),
    (ValueError, ".*must end at `length`, 16", lambda: at.gather_order(16, 2, cumulative_lengths=[0, 8], **ZIGZAG)),
    (ValueError, ".*at least the last of `cum", lambda: at.shard(4, 2, 0, cumulative_lengths=[0, 8], **ZIGZAG)),
    (ValueError, "starts must come with `cumulative_lengths`", lambda: at.shard(4, 2, 0, starts=P, **ZIGZAG)),
    (ValueError, "starts must .* restart=F", lambda: at.shard(4, 2, 0, starts=P, restart=False, **ZIGZAG, **ONE_PACK)),
    (ValueError, r"starts must have shape \(1,\)", lambda: at.shard(4, 2, 0, starts=P, **ZIGZAG, **ONE_PACK)),
    (TypeError, "length must be given if `indptr` is an array", lambda: at.ragged(P, P[1:])),
    (TypeError, "ids must be an array", lambda: at.segments([1])),
    (TypeError, "ids must .*integer", lambda: at.segments(np.ones(1))),
]


@pytest.mark.parametrize(
    ("kind", "message", "call"),
    [
        *(*CHECKS, *FREQUENCIES, *POSITIONS, *CALLS, *BENDING, *WEIGHTS, *LAYOUTS, *CACHES),
        *(*AXES_AND_MOVES, *SEQUENCES_AND_GRIDS),
    ],
)
def test_a_wrong_argument_is_refused_in_one_sentence(kind, message, call):
    error = refusal(call, kind)
    assert isinstance(error, ra.ArgumentTypeError | ra.ArgumentValueError)
    assert re.match(message, str(error)), error
    assert "\n" not in str(error) and len(str(error)) < 300


@pytest.mark.parametrize("shape", [(1, 13), (13,), (5, 16)])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("axes", [1, 3])
def test_an_error_shows_the_whole_shape_of_positions(heads, axes, shape):
    rows = (ra.frequencies(8),) * axes
    rope = ra.Rope((rows,) * heads if heads > 1 else rows if axes > 1 else rows[0], pairing="half")
    x, shape = np.ones((2, 4, 16, 8), "f4"), (*shape, axes) if heads * axes > 1 else shape
    for positions in (np.zeros(shape, int), np.zeros(shape, int).tolist()):
        for argument, call in (
            ("positions", lambda at: rope.apply(x, at)),
            ("positions", lambda at: rope(x[:, :, 9:], x, at)),
            ("old", lambda at: rope.reposition(x, at, 0)),
        ):
            error = refusal(lambda call=call, positions=positions: call(positions), ra.ArgumentValueError)
            assert (error.argument, error.got) == (argument, str(shape))
            assert ("seq, 3)" in error.wanted) == (axes == 3)
    table = rope.table(np.zeros(shape, int), like=x)
    error = refusal(lambda: rope.apply(x, table), ra.ArgumentValueError)
    assert error.got == f"a table of shape {table.cos.shape}"
    assert error.wanted.startswith("be (seq, 4) or (batch, ..., seq, 4)")


# --- libraries and devices --------------------------------------------------------------------------------------------


def test_arrays_of_two_libraries_are_refused(lib):
    if lib.name == "numpy":
        pytest.skip("the other libraries are mixed with NumPy")
    several = {name: call for name, call in PUBLIC_CALLS.items() if len(call) > 2}
    calls = {name: partial(function, a, lib(b), *more) for name, (function, a, b, *more) in several.items()}
    x = lib(X)
    calls |= {
        "out": lambda: ROPE.apply(x, out=X),
        "a pair of tables": lambda: ROPE(x, x, (ROPE.table(P, like=X), ROPE.table(range(3), like=x))),
        "cos_sin, like": lambda: ra.cos_sin(P, F, like=x),
        "unscaled_first, like": lambda: at.unscaled_first(P, 2, like=x),
        "packed, like": lambda: at.packed(P, 3, like=x),
        "from_starts, like": lambda: at.from_starts(P, 3, like=x),
        "grid, like": lambda: at.grid(P, like=x),
        "shard, like": lambda: at.shard(12, 3, P[1, ...], zigzag=True, like=x),
        "unrotated, like": lambda: at.unrotated(P, before=1, like=x),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=r"must come from one array library; got .*numpy"):
            pytest.fail(f"{name}: {call()}")


def test_positions_beyond_32_bits_are_refused_without_int64(lib):
    if lib.has_float64:
        pytest.skip(f"{lib.name} has int64")
    with pytest.raises(ValueError, match=r"positions must not exceed 2147483647 .* without float64; got 2147483648"):
        ra.cos_sin([2**31], F, like=lib([1.0], "float32"))
    with pytest.raises(ValueError, match="positions must not exceed"):
        ROPE.apply(lib(X), 2**31 - 1)


def test_dask_arrays_of_unknown_length_are_refused():
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    some = da.from_array(np.asarray([True, False, True]))
    x, p, cos, sin = (da.from_array(part)[some] for part in (X[0], P, *TABLE))
    for name, call in (
        ("x", lambda: ROPE.apply(x)),
        ("positions", lambda: at.grid(p, 3)),
        ("positions", lambda: ROPE.apply(da.ones((6, 8)), p)),
        ("cumulative_lengths", lambda: at.packed(p, 10)),
        ("starts", lambda: at.from_starts(p, 3)),
        ("w", lambda: convert(x)),
        ("w", lambda: convert(x, axis=1)),
        ("source", lambda: pack(ra.Table(cos, sin), "vllm")),
        ("the cos of cache", lambda: ra.layouts.unpack((cos, sin), "onnxruntime")),
    ):
        with pytest.raises(ValueError, match=rf"^{name} must have known lengths; got shape \(nan,"):
            call()


# --- outputs that cannot be written safely ----------------------------------------------------------------------------


def test_an_output_that_cannot_be_written_safely_is_refused():
    x = np.ones((3, 8), np.float32)
    locked, strided = x.copy(), np.lib.stride_tricks.as_strided
    locked.flags.writeable = False
    for out, message in (
        (locked, "can be written; got one that is read-only"),
        (np.broadcast_to(x[:1], x.shape), "can be written|address for each element"),
        (strided(x, x.shape, (0, 4)), "address for each element"),
        (strided(x, x.shape, (4, 4)), "address for each element"),
    ):
        with pytest.raises(ValueError, match=f"out must .*({message})"):
            rotate(X[0], out=out)
    assert (x == 1).all()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_an_output_that_overlaps_another_array_in_part_is_refused(library):
    xp = pytest.importorskip(library)
    buffer = xp.ones(100, dtype=xp.float32)
    cos, sin = xp.asarray(COS), xp.asarray(SIN)
    x = buffer[:24].reshape(3, 8)
    for out in (buffer[8:32].reshape(3, 8), buffer[1:25].reshape(3, 8), buffer[:24].reshape(8, 3).T):
        with pytest.raises(ValueError, match="out must be x itself or not overlap it"):
            rotate(x, cos, sin, out=out)
    flat = xp.ones(24, dtype=xp.float32)
    flat[:12] = cos.reshape(-1)
    with pytest.raises(ValueError, match="out must not overlap cos"):
        rotate(xp.ones((3, 8), dtype=xp.float32), flat[:12].reshape(3, 4), sin, out=flat.reshape(3, 8))
    with pytest.raises(ValueError, match=r"can be written|address for each element"):
        rotate(x, cos, sin, out=xp.broadcast_to(xp.ones((1, 8), dtype=xp.float32), (3, 8)))


def test_outputs_that_overlap_each_other_are_refused():
    buffer = np.ones((2, 3, 8), dtype=np.float32)
    q, k = buffer
    for out in ((k, q), (q, q), (buffer[1], np.empty_like(k))):
        with pytest.raises(ValueError, match="must not overlap"):
            ROPE(q, k, out=out)
    assert (buffer == 1).all()


def test_an_inference_tensor_is_refused_as_output_before_it_changes(torch):
    with torch.inference_mode():
        q, k = (torch.rand(1, heads, 3, 8) for heads in (4, 2))
        table = ROPE.table(torch.arange(3))
    before, plain = q.clone(), k.clone()
    for call in (
        lambda **fused: ROPE.apply(q, out=q, **fused),
        lambda **fused: ROPE(plain, q, out=(plain, q), **fused),
        lambda **fused: ra.rotate(q, *table, pairing="half", out=q, **fused),
        lambda **_: ROPE.reposition(q, 3, 1, out=q),
    ):
        for fused in (False, True):
            with pytest.raises(ValueError, match=r"got an inference tensor; call within torch.inference_mode\(\)"):
                call(fused=fused)
            assert torch.equal(q, before) and torch.equal(plain, k)
            with torch.inference_mode():
                call(fused=fused)
                q.copy_(before), plain.copy_(k)
