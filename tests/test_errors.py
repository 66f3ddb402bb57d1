"""Every wrong argument is refused in one sentence with its name, what it must be and what it got."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import rope_any as ra
from rope_any import positions as at

F = ra.frequencies(8)
X = np.ones((2, 3, 8), dtype=np.float32)
P = np.arange(3)
TABLE = COS, SIN = ra.cos_sin(P, F)
ROPE = ra.Rope(F, pairing="half")
NAN, INF = float("nan"), float("inf")


def rotate(x=X, cos=COS, sin=SIN, pairing="half", **options):
    """Call `rotate` with valid arguments, except for those given."""
    return ra.rotate(x, cos, sin, pairing=pairing, **options)


def fope(c=None, s=None, table=None, pairs=8, sine_padding=0.0):
    """Call `fope` with valid arguments, except for those given."""
    c, s = (np.eye(4) if part is None else part for part in (c, s))
    return ra.bending.fope(TABLE if table is None else table, c, s, pairs=pairs, sine_padding=sine_padding)


def temperature(**options):
    """Call `temperature` with valid arguments, except for those given."""
    return ra.bending.temperature(TABLE, P, **{"beta": 0.1, "original_length": 8192, **options})


def recursive_list():
    """Return a list that contains itself."""
    inside = []
    inside.append(inside)
    return inside


W = np.ones((8, 3))


def convert(w=W, head_dim=4, **options):
    """Call `convert` with valid arguments, except for those given."""
    return ra.weights.convert(w, head_dim, **{"source": "half", "target": "interleaved", **options})


def convert_state(state=None, **options):
    """Call `convert_state_dict` with valid arguments, except for those given."""
    state = {"l.0.wq.weight": W} if state is None else state
    return ra.weights.convert_state_dict(state, 4, source="half", target="interleaved", **options)


def shard(length=12, ranks=3, rank=0, *, zigzag=True, like=X):
    """Call `shard` with valid arguments, except for those given."""
    return at.shard(length, ranks, rank, zigzag=zigzag, like=like)


CASES = {
    # frequencies
    "odd rotary_dim": (lambda: ra.frequencies(7), ValueError, "rotary_dim must be even .* got 7"),
    "rotary_dim 0": (lambda: ra.frequencies(0), ValueError, "rotary_dim .* got 0"),
    "negative rotary_dim": (lambda: ra.frequencies(-4), ValueError, "rotary_dim .* got -4"),
    "float rotary_dim": (
        lambda: ra.frequencies(8.0),
        TypeError,
        "rotary_dim must be an integer; got float 8.0",
    ),
    "bool rotary_dim": (lambda: ra.frequencies(True), TypeError, "rotary_dim must be an integer; got bool"),
    "base 0": (lambda: ra.frequencies(8, base=0), ValueError, "base must be positive and finite; got 0"),
    "negative base": (lambda: ra.frequencies(8, base=-1e4), ValueError, "base .* got -10000"),
    "base NaN": (lambda: ra.frequencies(8, base=NAN), ValueError, "base .* got nan"),
    "base infinite": (lambda: ra.frequencies(8, base=INF), ValueError, "base .* got inf"),
    "base tiny": (
        lambda: ra.frequencies(128, base=5e-324),
        ValueError,
        "base must be from 1e-100 to 1e100; got 5e-324",
    ),
    "huge rotary_dim": (lambda: ra.frequencies(2**40), ValueError, "rotary_dim .* from 2 to 1048576; got"),
    "base and rotary_dim beyond 64 bits": (
        lambda: ra.frequencies(8.0, base=10**5000),
        TypeError,
        "rotary_dim .*; write 8",
    ),
    "frequencies beyond 64 bits": (
        lambda: ra.cos_sin(P, 10**5000),
        TypeError,
        "frequencies must be a tuple .* got int$",
    ),
    "starts beyond 64 bits": (lambda: at.from_starts(10**5000, 2, like=X), TypeError, "starts must be .* got int"),
    "positions of 5000 digits": (lambda: ra.cos_sin("9" * 5000, F, like=X), TypeError, "positions .* got str$"),
    "rotary_dim beyond 64 bits": (lambda: ra.frequencies(10**5000), ValueError, "rotary_dim .* that 64 bits hold"),
    "base beyond floats": (lambda: ra.frequencies(8, base=10**5000), ValueError, "base .* got one beyond 1e308"),
    "base a string": (
        lambda: ra.frequencies(8, base="1e4"),
        TypeError,
        "base must be a real number; got str '1e4'",
    ),
    "base complex": (
        lambda: ra.frequencies(8, base=1j),
        TypeError,
        "base must be a real number; got complex",
    ),
    # host frequencies
    "no frequencies": (lambda: ra.cos_sin(P, ()), ValueError, "frequencies must have at least one pair"),
    "frequency NaN": (lambda: ra.cos_sin(P, (1.0, NAN)), ValueError, "frequencies .* got nan"),
    "frequency infinite": (lambda: ra.Rope((INF,), pairing="half"), ValueError, "frequencies .* got inf"),
    "frequency too high": (lambda: ra.cos_sin(P, (1.0, 65_537.0)), ValueError, "at most 65536 .* got 65537.0"),
    "negative frequency too high": (lambda: ra.cos_sin(P, (-7e4,)), ValueError, "at most 65536 .* got -70000.0"),
    "frequency a string": (
        lambda: ra.cos_sin(P, ("1",)),
        TypeError,
        r"frequencies\[0\] must be a real number; got str",
    ),
    "one number": (lambda: ra.cos_sin(P, 1.0), TypeError, "frequencies must be a tuple .* got float 1.0"),
    "ragged rows": (
        lambda: ra.cos_sin(P, ((1.0, 2.0), (1.0,))),
        ValueError,
        r"frequencies .* lengths \[1, 2\]",
    ),
    "numbers among rows": (
        lambda: ra.cos_sin(P, (1.0, (1.0,))),
        TypeError,
        "frequencies must be all numbers or",
    ),
    "array in a Rope": (
        lambda: ra.Rope(np.ones(4), pairing="half"),
        TypeError,
        "frequencies .* array of numpy",
    ),
    "learned, integer": (
        lambda: ra.cos_sin(P, np.ones(4, int)),
        TypeError,
        "frequencies must be floating-point",
    ),
    "learned, 4-d": (
        lambda: ra.cos_sin(P, np.ones((1, 1, 2, 3))),
        ValueError,
        r"frequencies must have shape .* or \(heads, axes, pairs\); got \(1, 1, 2, 3\)",
    ),
    "learned for heads, one token": (
        lambda: ra.cos_sin(np.zeros(2), np.ones((1, 2, 3))),
        ValueError,
        r"positions must be \(..., seq, axes\) if each head has frequencies; got \(2,\)",
    ),
    "learned for heads, other axes": (
        lambda: ra.cos_sin(np.zeros((5, 3)), np.ones((1, 2, 3))),
        ValueError,
        r"positions must end in an axis of length 2",
    ),
    # Rope
    "no pairing": (lambda: ra.Rope(F), TypeError, "pairing"),
    "unknown pairing": (
        lambda: ra.Rope(F, pairing="neox"),
        ValueError,
        'pairing must be "half" or "interleaved"; got \'neox\'',
    ),
    "pairing a bool": (lambda: ra.Rope(F, pairing=True), TypeError, "pairing must be .* got bool True"),
    "negative start": (
        lambda: ra.Rope(F, pairing="half", start=-1),
        ValueError,
        "start must not be negative; got -1",
    ),
    "start a float": (lambda: ra.Rope(F, pairing="half", start=0.0), TypeError, "start must be an integer"),
    "blocks 0": (lambda: ra.Rope(F, pairing="half", blocks=0), ValueError, "blocks must be positive and .* got 0"),
    "blocks that don't divide": (lambda: ra.Rope(F, pairing="half", blocks=3), ValueError, "blocks must .* 4; got 3"),
    "blocks a float": (lambda: ra.Rope(F, pairing="half", blocks=2.0), TypeError, "blocks must be an integer"),
    "factor 0": (
        lambda: ra.Rope(F, pairing="half", attention_factor=0),
        ValueError,
        "attention_factor .* got 0",
    ),
    "factor tiny": (lambda: ra.Rope(F, pairing="half", attention_factor=1e-200), ValueError, "attention_factor .*"),
    "factor beyond floats": (lambda: ra.cos_sin(P, F, attention_factor=10**400), ValueError, "attention_factor .*"),
    "factor NaN": (lambda: ra.cos_sin(P, F, attention_factor=NAN), ValueError, "attention_factor .* got nan"),
    # positions
    "no library": (
        lambda: ra.cos_sin([1, 2], F),
        TypeError,
        r"positions must be an array, or come with `like`.* got list",
    ),
    "string positions": (lambda: ra.cos_sin("12", F, like=X), TypeError, "positions .* got str"),
    "float position": (lambda: ra.cos_sin(1.5, F, like=X), TypeError, "positions .* got float"),
    "infinite position": (lambda: ra.cos_sin([INF], F, like=X), ValueError, "positions .* finite numbers; got inf"),
    "None positions": (lambda: ra.cos_sin(None, F, like=X), TypeError, "positions .* got NoneType"),
    "bool position": (lambda: ra.cos_sin(True, F, like=X), TypeError, "positions .* got bool"),
    "ragged positions": (
        lambda: ra.cos_sin([[1], [1, 2]], F, like=X),
        ValueError,
        "positions .* different lengths",
    ),
    "positions of strings": (lambda: ra.cos_sin(["a"], F, like=X), TypeError, "positions .* got str"),
    "positions of bools": (
        lambda: ra.cos_sin([True], F, like=X),
        TypeError,
        "positions .* got bool",
    ),
    "NaN in a list": (lambda: ra.cos_sin([NAN], F, like=X), ValueError, "positions .* got nan"),
    "positions a set": (lambda: ra.cos_sin({1}, F, like=X), TypeError, "positions .* got set"),
    "positions a list of arrays": (
        lambda: ra.cos_sin([P, P], F, like=X),
        TypeError,
        "positions must be one array; got a",
    ),
    "huge position": (lambda: ROPE.apply(X, 10**5000), ValueError, "positions must not exceed .* beyond 64 bits"),
    "at -(2**60)": (lambda: ra.cos_sin([0, -(2**60)], F, like=X), ValueError, f"positions .* got -{2**60}"),
    "positions that contain themselves": (
        lambda: ra.cos_sin(recursive_list(), F, like=X),
        ValueError,
        "positions .* sequences nested more than 64 deep",
    ),
    "beyond 2**53": (lambda: ra.cos_sin([2**53 + 1], F, like=X), ValueError, f"positions .* got {2**53 + 1}"),
    "at 2**60": (lambda: ra.cos_sin([2**60], F, like=X), ValueError, f"positions .* got {2**60}"),
    "bool array": (lambda: ra.cos_sin(P > 1, F), TypeError, "positions .* array of bool"),
    "complex array": (lambda: ra.cos_sin(P + 1j, F), TypeError, "positions .* array of complex128"),
    "no axis for rows": (
        lambda: ra.cos_sin(P, (F, F)),
        ValueError,
        r"positions .* length 2, .* got shape \(3,\)",
    ),
    "0-d for rows": (
        lambda: ra.cos_sin(3, (F, F), like=X),
        ValueError,
        r"positions .* length 2, .* shape \(\)",
    ),
    "dtype int": (
        lambda: ra.cos_sin(P, F, dtype=np.int32),
        TypeError,
        "dtype must be one of float16.* got int32",
    ),
    "dtype complex": (lambda: ra.cos_sin(P, F, dtype=np.complex64), TypeError, "dtype .* got complex64"),
    "dtype NumPy lacks": (lambda: ra.cos_sin(P, F, dtype="bfloat16"), TypeError, "dtype .* got bfloat16"),
    "like a list": (lambda: ra.cos_sin(P, F, like=[1.0]), TypeError, "like must be an array .* got list"),
    "dtype a huge integer": (lambda: ra.cos_sin(P, F, dtype=10**5000), TypeError, "dtype must be .* got int"),
    # rotate
    "x a list": (lambda: rotate([1.0] * 8), TypeError, "x must be an array .* got list"),
    "x a number": (lambda: rotate(1.0), TypeError, "x must be an array .* got float"),
    "x None": (lambda: rotate(None), TypeError, "x must be an array .* got NoneType"),
    "x a NumPy scalar": (lambda: rotate(np.float32(1)), TypeError, "x must be an array .* got numpy.float32"),
    "x a matrix": (
        lambda: rotate(np.ones((3, 8)).view(np.matrix)),
        TypeError,
        "x must be an array .* got numpy.matrix",
    ),
    "x masked": (lambda: rotate(np.ma.ones((3, 8))), TypeError, "x must be a plain array; got numpy.MaskedArray"),
    "x 0-d": (
        lambda: rotate(np.asarray(1.0)),
        ValueError,
        "x must have an axis of features; got a 0-d array",
    ),
    "x integer": (lambda: rotate(X.astype(int)), TypeError, "x must be floating-point .* got int64"),
    "x bool": (lambda: rotate(X > 0), TypeError, "x must be floating-point .* got bool"),
    "x complex": (
        lambda: rotate(X.astype(np.complex64)),
        TypeError,
        "x must be floating-point .* got complex64",
    ),
    "x long double": (lambda: rotate(X.astype(np.longdouble)), TypeError, "x must be floating-point .* got"),
    "x of objects": (lambda: rotate(X.astype(object)), TypeError, "x must be floating-point .* got object"),
    "cos a list": (lambda: rotate(cos=[1.0]), TypeError, "cos must be an array"),
    "cos integer": (
        lambda: rotate(cos=COS.astype(int)),
        TypeError,
        "cos must be floating-point; got int64; write rotate",
    ),
    "sin integer": (lambda: rotate(sin=SIN.astype(int)), TypeError, "sin must be floating-point .* got int64"),
    "sin a list": (lambda: rotate(sin=[1.0]), TypeError, "sin must be an array .* got list"),
    "sin of another shape": (
        lambda: rotate(sin=SIN[:2]),
        ValueError,
        r"cos and sin .* got \(3, 4\) and \(2, 4\)",
    ),
    "cos 0-d": (lambda: rotate(cos=np.asarray(0.5), sin=np.asarray(0.5)), ValueError, "cos and sin"),
    "more pairs than features": (lambda: rotate(X[..., :7]), ValueError, "x .* 4 pairs; got 7 features"),
    "no pairs": (lambda: rotate(cos=COS[:, :0], sin=SIN[:, :0]), ValueError, "x .* 0 pairs"),
    "start too far": (lambda: rotate(start=1), ValueError, "x .* from `start`=1; got 8 features"),
    "rotate negative start": (lambda: rotate(start=-1), ValueError, "from `start`=-1; got"),
    "tables of other tokens": (
        lambda: rotate(cos=COS[:2], sin=SIN[:2]),
        ValueError,
        r"broadcast to \(2, 3, 4\).*\(2, 4\)",
    ),
    "tables that would enlarge x": (lambda: rotate(X[:, :1]), ValueError, r"broadcast to \(2, 1, 4\)"),
    "tables with more axes": (lambda: rotate(X[0, 0]), ValueError, r"broadcast to \(4,\), .* got \(3, 4\)"),
    "inverse a string": (lambda: rotate(inverse="no"), TypeError, "inverse must be True or False; got str 'no'"),
    "apply inverse None": (lambda: ROPE.apply(X, inverse=None), TypeError, "inverse must be True or False; got None"),
    "rotate without pairing": (lambda: ra.rotate(X, COS, SIN), TypeError, "pairing"),
    "rotate unknown pairing": (
        lambda: rotate(pairing="halves"),
        ValueError,
        "pairing must be .* got 'halves'",
    ),
    # out
    "out of another shape": (
        lambda: rotate(out=X[:1].copy()),
        ValueError,
        r"out .* \(2, 3, 8\) float32; got \(1, 3",
    ),
    "out of another dtype": (
        lambda: rotate(out=X.astype(float)),
        ValueError,
        "out must have .* got .* float64",
    ),
    "out a list": (lambda: rotate(out=[1.0]), TypeError, "out must be an array .* got list"),
    "out True": (lambda: rotate(out=True), TypeError, "out must be an array .* got bool"),
    "out not a pair": (lambda: ROPE(X, X, out=X), TypeError, "out must be a pair of arrays"),
    "out a pair with None": (lambda: ROPE(X, X, out=(X, None)), TypeError, "out must be a pair of arrays"),
    # calls of a Rope
    "q a list": (lambda: ROPE([1.0], X), TypeError, "q must be an array .* got list"),
    "k integer": (lambda: ROPE(X, X.astype(int)), TypeError, "k must be floating-point"),
    "q longer than k": (
        lambda: ROPE(X, X[:, :2]),
        ValueError,
        "q must not be longer than k; got 3 queries for 2 keys",
    ),
    "no axis of tokens": (
        lambda: ROPE.apply(X[0, 0]),
        ValueError,
        "seq_axis must be an axis of x other than its last",
    ),
    "seq_axis of 5000 digits": (
        lambda: ROPE(X, X, seq_axis=10**5000),
        ValueError,
        r"seq_axis must be an axis of q other than its last; got int for shape",
    ),
    "seq_axis of the features": (lambda: ROPE.apply(X, seq_axis=-1), ValueError, "seq_axis .* got -1"),
    "seq_axis of the features, from 0": (lambda: ROPE.apply(X, seq_axis=2), ValueError, "seq_axis .* got 2"),
    "seq_axis out of range": (
        lambda: ROPE.apply(X, seq_axis=-4),
        ValueError,
        r"seq_axis .* got -4 for shape \(2, 3",
    ),
    "seq_axis a float": (lambda: ROPE.apply(X, seq_axis=-2.0), TypeError, "seq_axis must be an integer"),
    "head_dim too small": (lambda: ROPE.apply(X[..., :6]), ValueError, "x .* 4 pairs; got 6 features"),
    "too many positions": (lambda: ROPE.apply(X, [1, 2, 3, 4]), ValueError, r"positions .* got \(4,\)"),
    "too few positions": (
        lambda: ROPE.apply(X, [1, 2]),
        ValueError,
        r"positions must be \(seq,\) .* got \(2,\)",
    ),
    "another batch size": (lambda: ROPE.apply(X, np.ones((3, 3), int)), ValueError, r"positions .* got \(3, 3\)"),
    "a batch axis that x lacks": (
        lambda: ROPE.apply(X[0], np.ones((1, 3), int)),
        ValueError,
        r"positions .* \(1, 3\)",
    ),
    "positions with three axes": (
        lambda: ROPE.apply(X, np.ones((1, 1, 3), int)),
        ValueError,
        r"positions .* got \(1, 1, 3\)",
    ),
    "a table of one position": (
        lambda: ROPE.apply(X, ROPE.table(5, like=X)),
        ValueError,
        r"positions .* got a table of shape \(4,\)",
    ),
    "a table of other tokens": (
        lambda: ROPE.apply(X, ROPE.table([1, 2], like=X)),
        ValueError,
        r"positions .* got a table of shape \(2, 4\)",
    ),
    "a pair that is no Table": (lambda: ROPE.apply(X, (COS, SIN)), TypeError, "positions must be one array; got a"),
    "a table of other pairs": (
        lambda: ROPE.apply(X, ra.Table(COS[:, :2], SIN[:, :2])),
        ValueError,
        r"positions must be of shape \(\.\.\., 4\) if they are a table; got \(3, 2\)",
    ),
    "a table as wide as the features": (
        lambda: ROPE.apply(np.ones((3, 16), "f4"), ra.Table(*(np.concatenate([t, t], -1) for t in (COS, SIN)))),
        ValueError,
        "positions .* table; got",
    ),
    "a table of lists": (lambda: ROPE.apply(X, ra.Table([[1.0]], [[0.0]])), TypeError, "cos must be an array .* list"),
    "a table without sin": (lambda: ROPE(X, X, ra.Table(COS, None)), TypeError, "sin must be an array .* NoneType"),
    "a real offset": (
        lambda: ROPE.apply(X, np.asarray(1.5)),
        TypeError,
        "positions must be an integer .* float64",
    ),
    "a bool offset": (lambda: ROPE.apply(X, True), TypeError, "positions must be an integer; got bool True"),
    "positions a dict": (lambda: ROPE.apply(X, {}), TypeError, "positions .* got dict"),
    "inverse of a bent table": (
        lambda: ROPE.apply(X, ra.BentTable(COS, SIN), inverse=True),
        ValueError,
        "inverse must be False for a BentTable, which is not a rotation; got True",
    ),
    "a bent table of other pairs": (
        lambda: ROPE.apply(X, ra.BentTable(COS[:, :2], SIN[:, :2])),
        ValueError,
        r"positions must be of shape \(\.\.\., 4\) if they are a table; got",
    ),
    "a pair of tables, one of other pairs": (
        lambda: ROPE(X, X, (ra.Table(COS, SIN), ra.Table(COS[:, :2], SIN[:, :2]))),
        ValueError,
        r"positions must be of shape \(\.\.\., 4\) if they are a table; got",
    ),
    "a pair of tables, one of other tokens": (
        lambda: ROPE(X, X, (ra.Table(COS, SIN), ra.Table(COS[:2], SIN[:2]))),
        ValueError,
        r"positions .* k of shape .* got a table of shape \(2, 4\)",
    ),
    "a table and positions": (
        lambda: ROPE(X, X, (ra.Table(COS, SIN), P)),
        TypeError,
        "positions must be one array; got a",
    ),
    "a pair of tables for one array": (
        lambda: ROPE.apply(X, (ra.Table(COS, SIN), ra.Table(COS, SIN))),
        ValueError,
        "positions must be one table for one array; got a pair of tables",
    ),
    "a table of heads that x lacks": (
        lambda: ROPE.apply(X, ra.Table(*(part[None, None] for part in (COS, SIN)))),
        ValueError,
        r"positions must be \(seq, 4\) .* got a table of shape \(1, 1, 3, 4\)",
    ),
    "a table for a table": (
        lambda: ROPE.table(ROPE.table([1], like=X), like=X),
        TypeError,
        "positions must be one array; got a",
    ),
    # bending
    "xpos without centre": (lambda: ra.bending.xpos(TABLE, P), TypeError, "centre"),
    "centre a float": (
        lambda: ra.bending.xpos(TABLE, P, centre=0.5),
        TypeError,
        "centre must be an integer; got float",
    ),
    "centre beyond 32 bits": (lambda: ra.bending.xpos(TABLE, P, centre=2**31), ValueError, f"centre .* got {2**31}"),
    "centre beyond floats": (lambda: ra.bending.xpos(TABLE, P, centre=10**5000), ValueError, "centre .* beyond them"),
    "scale_base below a token": (
        lambda: ra.bending.xpos(TABLE, P, centre=0, scale_base=0.5),
        ValueError,
        "scale_base must be at least one token; got 0.5",
    ),
    "a table of two shapes": (
        lambda: ra.bending.xpos(ra.Table(COS[:, :2], SIN), P, centre=0),
        ValueError,
        "cos and sin must have one shape",
    ),
    "scale_base 0": (lambda: ra.bending.xpos(TABLE, P, centre=0, scale_base=0), ValueError, "scale_base .* got 0"),
    "gamma negative": (lambda: ra.bending.xpos(TABLE, P, centre=0, gamma=-1.0), ValueError, "gamma .* got -1.0"),
    "a tuple for a table": (lambda: ra.bending.xpos((COS, SIN), P, centre=0), TypeError, "table must be .* got tuple"),
    "positions of another table": (
        lambda: ra.bending.xpos(TABLE, P[:2], centre=0),
        ValueError,
        r"positions must be those of the table, \(3,\) for a table \(3, 4\); got \(2,\)",
    ),
    "positions with several axes": (
        lambda: ra.bending.temperature(TABLE, np.ones((3, 2), int), beta=0.1, original_length=4),
        ValueError,
        r"positions must be those of the table, \(3,\) .* got \(3, 2\)",
    ),
    "bool positions": (lambda: ra.bending.xpos(TABLE, P > 1, centre=0), TypeError, "positions .* array of bool"),
    "beta 0": (lambda: temperature(beta=0.0), ValueError, "beta must be positive and finite; got 0.0"),
    "original_length 0": (lambda: temperature(original_length=0), ValueError, "original_length .* got 0"),
    "original_length a float": (lambda: temperature(original_length=8192.0), TypeError, "original_length .* integer"),
    "offset a float": (lambda: temperature(offset=0.5), TypeError, "offset must be an integer; got float 0.5"),
    "coefficients a list": (lambda: fope([[1.0]]), TypeError, "cos_coefficients must be an array .* got list"),
    "integer coefficients": (lambda: fope(np.eye(4, dtype=int)), TypeError, "cos_coefficients must be floating-point"),
    "coefficients of other frequencies": (
        lambda: fope(np.ones((3, 4)), np.ones((3, 4))),
        ValueError,
        r"cos_coefficients and sin_coefficients must be \(4, out\) .* got \(3, 4\) and \(3, 4\)",
    ),
    "coefficients of two shapes": (
        lambda: fope(np.eye(4), np.ones((2, 4, 4))),
        ValueError,
        r"got \(4, 4\) and \(2, 4,",
    ),
    "coefficients of one axis": (lambda: fope(np.ones(4), np.ones(4)), ValueError, r"coefficients .* got \(4,\)"),
    "coefficients of four axes": (
        lambda: fope(np.ones((1, 2, 4, 4)), np.ones((1, 2, 4, 4))),
        ValueError,
        r"coefficients .* got \(1, 2, 4, 4\)",
    ),
    "fewer pairs than coefficients": (lambda: fope(pairs=3), ValueError, r"coefficients .* `pairs`, 3; got \(4, 4\)"),
    "too many pairs": (lambda: fope(pairs=2**31), ValueError, "pairs must be at most 524288; got 2147483648"),
    "pairs a float": (lambda: fope(pairs=8.0), TypeError, "pairs must be an integer; got float 8.0"),
    "fope of one token": (lambda: fope(table=ra.Table(COS[0], SIN[0])), ValueError, r"table must be .* got \(4,\)"),
    "fope by head twice": (
        lambda: fope(table=ra.Table(COS[None, None], SIN[None, None])),
        ValueError,
        r"table must be \(seq, kept\) .* got \(1, 1, 3, 4\)",
    ),
    "sine_padding 0.5": (lambda: fope(sine_padding=0.5), ValueError, "sine_padding must be 0.0 or 1.0; got 0.5"),
    "sine_padding a string": (lambda: fope(sine_padding="0"), TypeError, "sine_padding must be a real number; got str"),
    "no sine_padding": (lambda: ra.bending.fope(TABLE, COS, SIN, pairs=8), TypeError, "sine_padding"),
    # positions.unscaled_first
    "count negative": (lambda: at.unscaled_first(P, -1), ValueError, "count must be from 0 .* got -1"),
    "count a float": (lambda: at.unscaled_first(P, 2.0), TypeError, "count must be an integer; got float"),
    "unscaled_first: no like": (lambda: at.unscaled_first([1], 2), TypeError, "positions .* `like`.* got list"),
    "unscaled_first: bools": (lambda: at.unscaled_first(P > 1, 2), TypeError, "positions .* array of bool"),
    "unscaled_first: NaN": (lambda: at.unscaled_first([NAN], 2, like=X), ValueError, "positions .* got nan"),
    "unscaled_first: like a list": (lambda: at.unscaled_first(P, 2, like=[1.0]), TypeError, "like must be an array"),
    # weights
    "a list instead of a weight": (lambda: convert([1.0]), TypeError, "w must be an array .* got list"),
    "head_dim that doesn't divide": (
        lambda: convert(head_dim=6),
        ValueError,
        r"head_dim must divide w along axis 0 into groups of 6 features .* got shape \(8, 3\)",
    ),
    "heads that don't divide": (lambda: convert(heads=(2, 3)), ValueError, "head_dim .* groups of 12 features"),
    "head_dim odd": (
        lambda: convert(head_dim=5),
        ValueError,
        "head_dim must leave an even number of features .* got 5",
    ),
    "head_dim 1": (lambda: convert(head_dim=1), ValueError, "head_dim must be at least 2; got 1"),
    "head_dim a bool": (lambda: convert(head_dim=True), TypeError, "head_dim must be an integer; got bool True"),
    "huge head_dim": (
        lambda: convert(head_dim=10**9),
        ValueError,
        "head_dim must be at most 1048576, .* `heads`.*; got 10*$",
    ),
    "source unknown": (lambda: convert(source="neox"), ValueError, "source must be .* got 'neox'"),
    "target None": (lambda: convert(target=None), TypeError, "target must be .* got None"),
    "rotary_dim beyond the head": (lambda: convert(rotary_dim=6), ValueError, "rotary_dim .* from 2 to 4; got 6"),
    "rotary_dim odd in a head": (lambda: convert(rotary_dim=3), ValueError, "rotary_dim must be even .* got 3"),
    "start negative in a head": (lambda: convert(start=-1), ValueError, "start must be from 0 to 2.* got -1"),
    "start at the end of a head": (lambda: convert(start=3), ValueError, "start must be from 0 to 2.* got 3"),
    "start a float in a head": (lambda: convert(start=1.0), TypeError, "start must be an integer; got float"),
    "axis that w lacks": (lambda: convert(axis=2), ValueError, r"axis must be one that w has; got 2 for .*\(8, 3\)"),
    "axis a float": (lambda: convert(axis=0.0), TypeError, "axis must be an integer; got float"),
    "no heads": (lambda: convert(np.ones((0, 3))), ValueError, r"head_dim must divide w .* got shape \(0, 3\)"),
    "heads a number": (lambda: convert(heads=2), TypeError, "heads must be a pair of integers.* got int 2"),
    "heads more than there are": (lambda: convert(heads=(2, 1)), ValueError, r"heads must be \(m, n\).* got \(2, 1\)"),
    "heads of floats": (lambda: convert(heads=(1.0, 2)), TypeError, "heads must be an integer; got float"),
    "a list instead of a state dict": (lambda: convert_state([]), TypeError, "state must be a mapping .* got list"),
    "a path instead of a state dict": (
        lambda: convert_state("m.safetensors"),
        TypeError,
        "state must be a mapping .* got str; load the file, or use rope-any convert$",
    ),
    "a module instead of a state dict": (
        lambda: convert_state(SimpleNamespace(state_dict=dict)),
        TypeError,
        r"state must be a mapping .* got SimpleNamespace; give state.state_dict\(\)$",
    ),
    "a state dict of lists": (lambda: convert_state({"a.wq.weight": [1]}), TypeError, "a.wq.weight must be an array"),
    "a nested state dict": (
        lambda: convert_state({"a": {"wq": {"weight": W}}}),
        TypeError,
        "state must have an array for each name; got a mapping for 'a'; join nested names by dots",
    ),
    "a module for w": (
        lambda: convert(SimpleNamespace(weight=W)),
        TypeError,
        "w must be .* SimpleNamespace; give w.weight$",
    ),
    "names a string": (
        lambda: convert_state(names="*.wq.weight"),
        TypeError,
        r"names must be a mapping .*; write \{'\*.wq.weight': 0\} for axis 0$",
    ),
    "an integer key": (lambda: convert_state({1: W}), TypeError, "state must have names .* got int 1"),
    "a state dict without queries": (
        lambda: convert_state({"a.up.weight": W}),
        ValueError,
        "match none of the .*s$",
    ),
    "a state dict of joint weights": (
        lambda: convert_state({"up.weight": W, "h.0.c_attn.weight": W}),
        ValueError,
        "names must be given; .*; h.0.c_attn.weight may be one, with `heads` if it has values too$",
    ),
    "names a list": (
        lambda: convert_state(names=["*"]),
        TypeError,
        r"names must be a mapping .* got list \['\*'\]; write dict.fromkeys\(names, 0\) for axis 0$",
    ),
    "a part of a name": (
        lambda: convert_state(names={"wq": 0}),
        ValueError,
        r"got 'wq'; it matches none; write \*wq\*, which matches the whole name$",
    ),
    "no names": (lambda: convert_state(names={}), TypeError, "names must be a mapping .* not an empty one"),
    "a name that matches nothing": (
        lambda: convert_state(names={"*": 0, "*.wk.*": 0}),
        ValueError,
        r"names must be patterns that match a tensor; got '\*.wk.\*'; it matches none$",
    ),
    "a name without its axis": (
        lambda: convert_state(names={"*": None}),
        TypeError,
        "the axis of .* in names must be an integer",
    ),
    # packed, padded and sharded sequences, grids
    "packed: no like": (lambda: at.packed([0, 3]), TypeError, "like must be an array .* got NoneType"),
    "packed: a string": (
        lambda: at.packed("03", like=X),
        TypeError,
        "cumulative_lengths .* sequence .* got str '03'",
    ),
    "packed: a set": (lambda: at.packed({0, 3}, like=X), TypeError, "cumulative_lengths .* sequence .* got set"),
    "packed: one number": (lambda: at.packed(3, like=X), TypeError, "cumulative_lengths .* sequence .* got int 3"),
    "packed: bools": (lambda: at.packed([False], like=X), TypeError, "cumulative_lengths .* integer; got bool"),
    "packed: a float": (lambda: at.packed([0, 2.5], like=X), TypeError, "cumulative_lengths .* got float 2.5"),
    "packed: a float array": (
        lambda: at.packed(X[0, 0], 8),
        TypeError,
        "cumulative_lengths .* integers; .* float32",
    ),
    "packed: a bool array": (lambda: at.packed(P > 1, 8), TypeError, "cumulative_lengths .* array of bool"),
    "packed: rows": (lambda: at.packed(np.ones((2, 3), int), 8), ValueError, r"\(sequences \+ 1,\); got \(2, 3\)"),
    "packed: empty": (
        lambda: at.packed([], like=X),
        ValueError,
        r"cumulative_lengths must have shape .* got \(0,\)",
    ),
    "packed: not from 0": (lambda: at.packed([3, 5], like=X), ValueError, r"start at 0 .* got \[3, 5\]"),
    "packed: decreasing": (lambda: at.packed([0, 5, 3], like=X), ValueError, r"not fall; got \[0, 5, 3\]"),
    "packed: negative": (lambda: at.packed([0, -1], like=X), ValueError, "cumulative_lengths must be from 0 .* -1"),
    "packed: too short": (lambda: at.packed([0, 5], 4, like=X), ValueError, "length must be at least .* 5; got 4"),
    "packed: length a float": (lambda: at.packed(P, 4.0), TypeError, "length must be an integer; got float 4.0"),
    "packed: length negative": (lambda: at.packed(P, -4), ValueError, "length must be from 0 .* got -4"),
    "packed: no length": (lambda: at.packed(P), TypeError, "length must be given .* array"),
    "padded: a list": (lambda: at.padded([1, 0]), TypeError, "mask must be an array .* got list"),
    "padded: a float mask": (
        lambda: at.padded(X),
        TypeError,
        "mask must be booleans or integers; got an array of float32",
    ),
    "padded: no axis": (lambda: at.padded(np.asarray(1)), ValueError, r"mask must have shape .* got \(\)"),
    "from_starts: no like": (lambda: at.from_starts([3], 2), TypeError, "like must be an array"),
    "from_starts: one number": (lambda: at.from_starts(3, 2, like=X), TypeError, "starts .* sequence .* got int 3"),
    "from_starts: rows": (lambda: at.from_starts([[3]], 2, like=X), TypeError, r"starts .* integer; got list \[3\]"),
    "from_starts: a float array": (lambda: at.from_starts(X, 2), TypeError, "starts must be integers; .* float32"),
    "from_starts: length negative": (lambda: at.from_starts(P, -2), ValueError, "length must be from 0 .* got -2"),
    "from_starts: length None": (lambda: at.from_starts(P, None), TypeError, "length must be an integer; got NoneType"),
    "grid: no like": (lambda: at.grid(2, 3), TypeError, "like must be an array .* got NoneType"),
    "grid: no axes": (lambda: at.grid(like=X), ValueError, "positions must have at least one axis; got none"),
    "grid: negative": (lambda: at.grid(2, -3, like=X), ValueError, "positions must be from 0 .* got -3"),
    "grid: a bool": (lambda: at.grid(True, like=X), TypeError, "positions .* got bool"),
    "grid: a float": (lambda: at.grid(2.5, like=X), TypeError, "positions .* got float"),
    "grid: NaN": (lambda: at.grid([NAN], like=X), ValueError, "positions .* got nan"),
    "grid: an axis of rows": (lambda: at.grid([[1, 2]], like=X), ValueError, r"positions .* got shape \(1, 2\)"),
    "grid: another order": (lambda: at.grid(2, order="C", like=X), ValueError, "order must be 'rows' .* got 'C'"),
    "grid: order a list": (
        lambda: at.grid(2, order=[], like=X),
        ValueError,
        r"order must be 'rows' .* got \[\]",
    ),
    "grid: a window too many": (
        lambda: at.grid(2, window=(1, 2), like=X),
        ValueError,
        r"window .* \[2\]; got \[1, 2\]",
    ),
    "grid: a window too wide": (
        lambda: at.grid(3, 4, window=(2, 2), like=X),
        ValueError,
        r"window .* \[3, 4\]; got",
    ),
    "grid: a window of 0": (lambda: at.grid(3, window=[0], like=X), ValueError, "window must be from 1 .* got 0"),
    "grid: one window": (lambda: at.grid(3, window=3, like=X), TypeError, "window .* sequence .* got int 3"),
    "coordinates: centred": (lambda: at.centred(-1), ValueError, "count must be from 0 .* got -1"),
    "coordinates: centred, bool": (lambda: at.centred(True), TypeError, "count must be an integer; got bool"),
    "coordinates: centred, step": (lambda: at.centred(2, step=0), ValueError, "step must be positive .* got 0"),
    "coordinates: scaled": (lambda: at.scaled(2.0, 2), TypeError, "count must be an integer; got float 2.0"),
    "coordinates: scaled, reference": (lambda: at.scaled(2, INF), ValueError, "reference must be .* got inf"),
    "coordinates: normalised": (lambda: at.normalised("2"), TypeError, "count must be an integer; got str '2'"),
    "coordinates: normalised, edges": (
        lambda: at.normalised(2, edges=1),
        TypeError,
        "edges must be True or False; got int",
    ),
    "coordinates: frames": (lambda: at.frames(None, fps=1, base_fps=1), TypeError, "count .* got NoneType"),
    "coordinates: frames, fps": (lambda: at.frames(2, fps=NAN, base_fps=1), ValueError, "fps must be .* got nan"),
    "coordinates: frames, base": (lambda: at.frames(2, fps=1, base_fps=-1), ValueError, "base_fps must be .* got -1"),
    "shard: uneven": (lambda: shard(length=10, zigzag=False), ValueError, "multiple of 3, .* 3 ranks; got 10"),
    "shard: uneven zigzag": (
        lambda: shard(length=9),
        ValueError,
        "length must be a multiple of 6, .* 3 ranks; got 9",
    ),
    "shard: length 0": (lambda: shard(length=0), ValueError, "length must be from 1 .* got 0"),
    "shard: no ranks": (lambda: shard(ranks=0), ValueError, "ranks must be from 1 .* got 0"),
    "shard: ranks a float": (lambda: shard(ranks=3.0), TypeError, "ranks must be an integer; got float 3.0"),
    "shard: rank too large": (lambda: shard(rank=3), ValueError, "rank must be from 0 to 2; got 3"),
    "shard: rank negative": (lambda: shard(rank=-1), ValueError, "rank must be from 0 to 2; got -1"),
    "shard: rank a bool": (lambda: shard(rank=True), TypeError, "rank must be an integer; got bool"),
    "shard: ranks of an array": (lambda: shard(rank=P), ValueError, r"rank must be one number; got shape \(3,\)"),
    "shard: a float array": (lambda: shard(rank=X[0, 0, 0, None]), TypeError, "rank must be integers; .* float32"),
    "shard: zigzag a string": (lambda: shard(zigzag="yes"), TypeError, "zigzag must be True or False; got str"),
    "shard: no zigzag": (lambda: at.shard(12, 3, 0, like=X), TypeError, "zigzag"),
    "shard: no like": (lambda: shard(like=None), TypeError, "like must be an array .* got NoneType"),
    "shard: gather_order unevenly": (
        lambda: at.gather_order(9, 3, zigzag=True, like=X),
        ValueError,
        "length must be a multiple of 6, .* got 9",
    ),
    "shard: gather_order like a list": (
        lambda: at.gather_order(12, 3, zigzag=True, like=[1]),
        TypeError,
        "like must be an array .* got list",
    ),
    "unrotated: no like": (lambda: at.unrotated([1], before=1), TypeError, "positions .* `like`.* got list"),
    "unrotated: one number": (lambda: at.unrotated(7, like=X), ValueError, r"positions .* \(..., seq\); got \(\)"),
    "unrotated: no seq": (lambda: at.unrotated(P, axes=3), ValueError, r"positions .* seq, 3\); got \(3,\)"),
    "unrotated: other axes": (lambda: at.unrotated(X, axes=2), ValueError, r"positions .* seq, 2\); got \(2, 3, 8\)"),
    "unrotated: axes 0": (lambda: at.unrotated(P, axes=0), ValueError, "axes must be from 1 .* got 0"),
    "unrotated: before negative": (lambda: at.unrotated(P, before=-1), ValueError, "before must be from 0 .* got -1"),
    "unrotated: after a float": (lambda: at.unrotated(P, after=1.0), TypeError, "after must be an integer; got float"),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_each_wrong_argument_is_refused_in_one_sentence(name):
    call, kind, pattern = CASES[name]
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert re.search(pattern, message, re.DOTALL), message
    assert "\n" not in message
    assert len(message) < 300


def table_like(lib):
    """Return a table of a library."""
    return ra.cos_sin(lib(P, "int32"), F)


def test_integer_and_complex_x_are_refused(lib):
    cos, sin = table_like(lib)
    for x in (lib(np.ones((3, 8)), "int32"), lib(np.ones((3, 8)), "complex64")):
        with pytest.raises(TypeError, match=r"x must be floating-point .* got (int32|complex64)"):
            ra.rotate(x, cos, sin, pairing="half")


@pytest.mark.parametrize("shape", [(1, 13), (13,), (5, 16)])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("axes", [1, 3])
def test_an_error_shows_the_whole_shape_of_positions(heads, axes, shape):
    rows = (ra.frequencies(8),) * axes
    rope = ra.Rope((rows,) * heads if heads > 1 else rows if axes > 1 else rows[0], pairing="half")
    x, shape = np.ones((2, 4, 16, 8), "f4"), (*shape, axes) if heads * axes > 1 else shape
    calls = {
        "positions": lambda at: rope.apply(x, at),
        "positions of q and k": lambda at: rope(x[:, :, 9:], x, at),
        "old": lambda at: rope.reposition(x, at, 0),
    }
    for name, call in calls.items():
        for positions in (np.zeros(shape, int), np.zeros(shape, int).tolist()):
            with pytest.raises(ra.ArgumentValueError) as caught:
                call(positions)
            assert (caught.value.argument, caught.value.got) == (name.partition(" ")[0], str(shape))
            assert ("seq, 3)" in caught.value.wanted) == (axes == 3)
    table = rope.table(np.zeros(shape, int), like=x)
    with pytest.raises(ra.ArgumentValueError) as caught:
        rope.apply(x, table)
    assert caught.value.got == f"a table of shape {table.cos.shape}"
    assert caught.value.wanted.startswith("be (seq, 4) or (batch, ..., seq, 4)")


def test_the_hint_for_too_many_positions_of_several_axes_is_right():
    rope = ra.Rope((ra.frequencies(8),) * 3, pairing="half")
    x, p = np.ones((2, 4, 16, 8), "f4"), np.arange(60).reshape(20, 3)
    with pytest.raises(ValueError, match=re.escape("give only the positions of x: p[..., a:b, :], or")):
        rope.apply(x, p)
    rope.apply(x, p[..., 4:20, :])


@pytest.mark.parametrize(
    ("call", "argument", "hint"),
    [
        (lambda: ra.frequencies(64, theta=1e6), "theta", "write base="),
        (lambda: ra.frequencies(dim=64), "dim", "frequencies(64)"),
        (lambda: ra.frequencies(rotary_dim=64), "rotary_dim", "frequencies(64)"),
        (lambda: ra.Rope(F), "pairing", 'write pairing="half" or pairing="interleaved"'),
        (lambda: ra.Rope(F, "half"), "pairing", 'write pairing="half" or pairing="interleaved"'),
        (lambda: ra.Rope(dim=64), "dim", "write Rope(frequencies(rotary_dim, base=theta), pairing=...)"),
        (lambda: ra.Rope(F, pairing="half", theta=1e6), "theta", "write Rope(frequencies("),
    ],
    ids=["theta", "dim", "rotary_dim", "no pairing", "pairing without its name", "dim of Rope", "theta of Rope"],
)
def test_names_of_other_libraries_get_a_hint(call, argument, hint):
    with pytest.raises(ra.ArgumentTypeError) as caught:
        call()
    assert caught.value.argument == argument
    assert hint in caught.value.hint


def test_other_wrong_keywords_are_errors_of_python():
    for call in (lambda: ra.frequencies(64, bse=3.0), ra.frequencies, lambda: ra.Rope(pairing="half")):
        with pytest.raises(TypeError) as caught:
            call()
        assert not isinstance(caught.value, ra.ArgumentTypeError)


def test_lists_and_wrong_shapes_are_refused(lib):
    cos, sin = table_like(lib)
    with pytest.raises(TypeError, match=r"x must be an array .* got list"):
        ra.rotate([1.0], cos, sin, pairing="half")
    with pytest.raises(ValueError, match=r"broadcast to \(4, 4\), .* got \(3, 4\)"):
        ra.rotate(lib(np.ones((4, 8)), "float32"), cos, sin, pairing="half")
    with pytest.raises(ValueError, match=r"positions must be \(seq,\)"):
        ROPE.apply(lib(np.ones((4, 8)), "float32"), lib(P, "int32"))


def test_mixed_libraries_are_refused(lib):
    if lib.name == "numpy":
        pytest.skip("the other libraries are mixed with NumPy")
    cos, sin = table_like(lib)
    x = lib(X)
    message = "must come from one array library; got .*numpy"
    for call in (
        lambda: ra.rotate(X, cos, sin, pairing="half"),
        lambda: ra.rotate(x, cos, SIN, pairing="half"),
        lambda: ra.rotate(x, cos, sin, pairing="half", out=X),
        lambda: ROPE(x, X),
        lambda: ROPE.apply(x, P),
        lambda: ROPE.apply(x, np.asarray(3)),
        lambda: ra.bending.xpos(ra.Table(cos, sin), P, centre=0),
        lambda: ra.bending.fope(ra.Table(cos, sin), np.eye(4), np.eye(4), pairs=4, sine_padding=0.0),
        lambda: at.unscaled_first(P, 2, like=x),
        lambda: at.packed(P, 3, like=x),
        lambda: at.from_starts(P, 3, like=x),
        lambda: at.grid(P, x[0, 0, :]),
        lambda: at.grid(P, like=x),
        lambda: at.shard(12, 3, P[1, ...], zigzag=True, like=x),
        lambda: at.unrotated(P, before=1, like=x),
        lambda: ROPE(x, x, (ra.Table(cos, sin), ra.Table(COS, SIN))),
        lambda: ra.cos_sin(P, F, like=x),
        lambda: ra.cos_sin(lib(P, "int32"), np.asarray(F)),
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_mixed_devices_are_refused():
    strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    cpu, other = (strict.Device(name) for name in ("CPU_DEVICE", "device1"))
    cos, sin = (strict.asarray(part, device=other) for part in (COS, SIN))
    with pytest.raises(ValueError, match=r"x and cos must be on one device; got .*CPU_DEVICE.* and .*device1"):
        ra.rotate(strict.asarray(X, device=cpu), cos, sin, pairing="half")
    with pytest.raises(ValueError, match=r"x and positions must be on one device"):
        ROPE.apply(strict.asarray(X, device=cpu), strict.asarray(P, device=other))


def test_positions_beyond_32_bits_are_refused_without_int64(lib):
    if lib.has_float64:
        pytest.skip(f"{lib.name} has int64")
    with pytest.raises(
        ValueError, match=r"positions must not exceed 2147483647 in magnitude without float64; got 2147483648"
    ):
        ra.cos_sin([2**31], F, like=lib([1.0], "float32"))
    with pytest.raises(ValueError, match="positions must not exceed"):
        ROPE.apply(lib(X), 2**31 - 1)


def unsafe_outputs(base):
    """Return outputs that cannot be written safely, each with a pattern of the message."""
    read_only = base[0].copy()
    read_only.flags.writeable = False
    return {
        "read-only": (read_only, "can be written; got one that is read-only"),
        "broadcast row": (np.broadcast_to(base[0, :1], base[0].shape), "can be written|address for each"),
        "stride 0": (
            np.lib.stride_tricks.as_strided(base[0], base[0].shape, (0, 4)),
            "address for each element",
        ),
        "overlapping windows": (
            np.lib.stride_tricks.as_strided(base[0], base[0].shape, (4, 4)),
            "address for each element",
        ),
    }


@pytest.mark.parametrize("name", ["read-only", "broadcast row", "stride 0", "overlapping windows"])
def test_out_that_cannot_be_written_safely_is_refused(name):
    base = np.ones((2, 3, 8), dtype=np.float32)
    out, message = unsafe_outputs(base)[name]
    with pytest.raises(ValueError, match=f"out must .*({message})"):
        rotate(np.ones((3, 8), np.float32), out=out)
    assert (base == 1).all()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_out_that_overlaps_x_in_part_is_refused(library):
    xp = pytest.importorskip(library)
    buffer = xp.ones(100, dtype=xp.float32)
    cos, sin = xp.asarray(COS), xp.asarray(SIN)
    x = buffer[:24].reshape(3, 8)
    for out in (buffer[8:32].reshape(3, 8), buffer[1:25].reshape(3, 8), buffer[:24].reshape(8, 3).T):
        with pytest.raises(ValueError, match="out must be x itself or not overlap it"):
            rotate(x, cos, sin, out=out)
    view = buffer[:24].reshape(3, 8)  # another view of the elements of x
    assert view is not x
    assert rotate(x, cos, sin, out=view) is view
    flat = xp.ones(24, dtype=xp.float32)
    flat[:12] = cos.reshape(-1)
    with pytest.raises(ValueError, match="out must not overlap cos"):
        rotate(xp.ones((3, 8), dtype=xp.float32), flat[:12].reshape(3, 4), sin, out=flat.reshape(3, 8))


def test_outputs_that_overlap_each_other_are_refused():
    buffer = np.ones((2, 3, 8), dtype=np.float32)
    q, k = buffer
    for out in ((k, q), (q, q), (buffer[1], np.empty_like(k))):
        with pytest.raises(ValueError, match="must not overlap"):
            ROPE(q, k, out=out)
    assert (buffer == 1).all()


def test_torch_tensors_that_are_not_dense_are_refused():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    dense = torch.ones(3, 8)
    with pytest.raises(TypeError, match=r"x must be a dense array; got a torch.sparse_coo tensor"):
        ROPE.apply(dense.to_sparse())
    with pytest.raises(TypeError, match=r"q must be a dense array; got a nested tensor"):
        ROPE(torch.nested.nested_tensor([dense, dense], layout=torch.jagged), dense)


def test_dask_arrays_of_unknown_length_are_refused():
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    known = da.ones((4, 8), chunks=2)
    unknown = known[da.from_array(np.asarray([True, False, True, True]))]
    with pytest.raises(ValueError, match=r"x must have known lengths; got shape \(nan, 8\)"):
        ROPE.apply(unknown)


def test_torch_out_with_stride_0_is_refused():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    cos, sin = torch.asarray(COS), torch.asarray(SIN)
    with pytest.raises(ValueError, match="address for each element"):
        ra.rotate(torch.ones(3, 8), cos, sin, pairing="half", out=torch.ones(1, 8).expand(3, 8))


def test_inference_tensors_are_refused_as_out_before_they_change():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with torch.inference_mode():
        q, k = (torch.rand(1, heads, 3, 8) for heads in (4, 2))
        rope_table = ROPE.table(torch.arange(3))
    before, plain = q.clone(), k.clone()
    for call in (
        lambda **fused: ROPE.apply(q, out=q, **fused),
        lambda **fused: ROPE(plain, q, out=(plain, q), **fused),
        lambda **fused: ra.rotate(q, *rope_table, pairing="half", out=q, **fused),
        lambda **_: ROPE.reposition(q, 3, 1, out=q),
    ):
        for fused in (False, True):
            with pytest.raises(ValueError, match=r"got an inference tensor; call within torch.inference_mode\(\)"):
                call(fused=fused)
            assert torch.equal(q, before) and torch.equal(plain, k)
            with torch.inference_mode():
                call(fused=fused)
                q.copy_(before), plain.copy_(k)
