"""The two exceptions for wrong arguments: their parts, their text, and where they are raised."""

import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import rope_any as ra
from rope_any import positions as at
from rope_any._arrays import find
from rope_any._checks import NOTHING, ArgumentError, Text, inside


def refusal(call, error):
    """Return the error that a call raises."""
    with pytest.raises(error) as caught:
        call()
    return caught.value


def test_exceptions_have_argument_wanted_and_got():
    error = refusal(lambda: ra.frequencies(8.0), ra.ArgumentTypeError)
    assert (error.argument, error.wanted, error.got, error.hint, error.where) == (
        "rotary_dim",
        "be an integer",
        "float 8.0",
        "write 8",
        "",
    )
    assert isinstance(error, TypeError) and not isinstance(error, ValueError)
    error = refusal(lambda: ra.frequencies(8, base=-1), ra.ArgumentValueError)
    assert (error.argument, error.wanted, error.got) == ("base", "be positive and finite", "-1.0")
    assert isinstance(error, ValueError) and str(error) == "base must be positive and finite; got -1.0"


@pytest.mark.parametrize("kind", [ra.ArgumentTypeError, ra.ArgumentValueError])
def test_exceptions_are_pickled_with_the_text_of_got(kind):
    error = kind("x", "be a number", lambda: None, "use float()", "a.json")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and str(copy) == str(error) and str(copy).startswith("a.json: x must be a number; got ")
    assert (copy.argument, copy.wanted, copy.got, copy.hint, copy.where) == (
        error.argument,
        error.wanted,
        error.got,
        "use float()",
        "a.json",
    )


def test_the_text_has_argument_wanted_got_and_hint():
    assert str(ra.ArgumentValueError("k", "be given")) == "k must be given"
    assert str(ra.ArgumentValueError("k", "be given", Text("none"), "see q")) == "k must be given; got none; see q"
    assert str(ra.ArgumentValueError("k", "be given", NOTHING, "see q")) == "k must be given; see q"
    assert str(ra.ArgumentTypeError("k", "be a number", "x")) == "k must be a number; got str 'x'"
    assert str(ra.ArgumentValueError("k", "be half", "x")) == "k must be half; got 'x'"


def test_inside_prefixes_where():
    error = inside("b.json", inside("rope_scaling", ra.ArgumentValueError("factor", "be positive", -1)))
    assert type(error) is ra.ArgumentValueError and error.argument == "factor"
    assert str(error) == "b.json: rope_scaling: factor must be positive; got -1"
    assert str(inside("b.json", KeyError("a"))) == repr("b.json: 'a'")


def test_the_text_is_composed_on_demand():
    class Value:
        """A value whose text must not be composed."""

        def __repr__(self):
            """Fail if the text is composed."""
            pytest.fail("its text was composed")

    assert isinstance(ra.ArgumentTypeError("x", "be a number", Value()), ArgumentError)


def test_exceptions_are_raised_in_threads():
    found = []

    def work():
        """Record the error of a call in a thread."""
        found.append(refusal(lambda: ra.frequencies(8, base=0), ra.ArgumentValueError))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {str(error) for error in found} == {str(found[0])} and len(found) == 4


def test_torch_compile_of_from_config_has_a_hint_or_breaks_the_graph():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not hasattr(torch._dynamo, "error_on_graph_break"):
        pytest.skip("this torch does not say why a graph breaks")
    llama, x = {"model_type": "llama", "head_dim": 8}, torch.ones(3, 8)

    def rotated(x):
        return ra.Rope.from_config(llama).apply(x)

    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"call Rope\.from_config outside of the compiled function"):
        torch.compile(rotated, backend="eager", fullgraph=True)(x)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(rotated, backend="eager")(x), rotated(x))


# --- common mistakes: the message says what to write instead ----------------------------------------------------------

F = ra.frequencies(8)
ROPE = ra.Rope(F, pairing="half")
AXES = ra.Rope((F, F, F), pairing="half")
Q, K = np.ones((2, 8, 10, 8), "f4"), np.ones((2, 2, 10, 8), "f4")  # (batch, heads, seq, head_dim)
BY_TOKEN, KEYS_BY_TOKEN = np.ones((2, 10, 8, 8), "f4"), np.ones((2, 10, 2, 8), "f4")  # (batch, seq, heads, head_dim)
COS = SIN = np.ones((10, 4), "f4")
REPEATED = np.ones((10, 8), "f4")
"""Cosines or sines as transformers has them, each angle twice."""
SHAPES = "positions must be (seq,) or (batch, ..., seq) for {}, with tokens along axis {}; each length 1 or that of {}"
LONGER = "q must not be longer than k; got {} queries for {} keys; {}"
SEPARATE = "rotate each alone if they are two sequences"
HOST = "positions must be an array, an int, a range or a sequence of finite numbers; got {}; {}"
ARRAYS = "positions must be one array; got a {} arrays; {}"
TABLE = "give Table(cos, sin) for cosines and sines, a pair of tables for positions of q and of k"
LIKE = "positions must be an array, or come with `like`, an array; got {}; give like=q, the array to rotate"
NO_LIKE = (
    "like must be an array (NumPy, CuPy, PyTorch, JAX, ...); got NoneType; "
    "give like=q, an array of the library and on the device that are wanted"
)
TUPLE = "frequencies must be a tuple of floats, or of one such row per axis; got {}; {}"
PAIRING = 'pairing must be "half" or "interleaved"; got {}; {}'
DTYPES = "{} must be floating-point (float16, bfloat16, float32, float64); got {}; {}"
LEARNED = (
    "write tuple(frequencies.tolist()) if they are fixed; if they are learned, "
    "rotate(x, *cos_sin(positions, frequencies), pairing=...) without a Rope"
)
TO_ROTATE = "write rotate(x, *cos_sin(positions, frequencies), pairing=...) if these are positions and frequencies"
ROWS = "rows a to b of a table t are Table(t.cos[..., a:b, :], t.sin[..., a:b, :])"
SWAP = "give swapaxes(p, 0, 1) if they are (seq, batch)"
DTYPE = "dtype must be one of float16, bfloat16, float32, float64, and one that the library has; got {}; write {}"
AXIS = "seq_axis must be an axis of {} other than its last; got {} for shape {}; write {}"
HEADS = "-2 for (..., heads, seq, head_dim), -3 for (..., seq, heads, head_dim)"
STATIC = "write {}(array), or make it a static argument of the compiled function"


def shapes(name, shape, axis, got, hint):
    """Return the message for shapes that don't fit."""
    text = f"{SHAPES.format(f'{name} of shape {shape}', axis, name)}; got {got}; {hint}"
    is_table = isinstance(got, str)
    return text.replace("(seq,)", "(seq, 4)").replace("..., seq)", "..., seq, 4)") if is_table else text


def pairing(name):
    """Make a Rope with a pairing."""
    return ra.Rope(F, pairing=name)


MISTAKES = {
    # tokens on another axis
    "(batch, seq, heads, dim)": (
        lambda: ROPE(BY_TOKEN, KEYS_BY_TOKEN),
        LONGER.format(8, 2, f"give `seq_axis`=-3 if the tokens are along axis 1, or {SEPARATE}"),
    ),
    "(batch, heads, seq, dim) with seq_axis=-3": (
        lambda: ROPE(Q, K, seq_axis=-3),
        LONGER.format(8, 2, f"give `seq_axis`=-2 if the tokens are along axis 2, or {SEPARATE}"),
    ),
    "cross-attention": (
        lambda: ROPE(Q, K[:, :, :4]),
        LONGER.format(10, 4, SEPARATE),
    ),
    "positions along another axis": (
        lambda: ROPE(BY_TOKEN, BY_TOKEN, np.arange(10)),
        shapes("q", (2, 10, 8, 8), 2, (10,), "give `seq_axis`=-3 if the tokens are along axis 1"),
    ),
    "positions (batch, seq) along another axis": (
        lambda: ROPE.apply(BY_TOKEN, np.zeros((2, 10), int)),
        shapes("x", (2, 10, 8, 8), 2, (2, 10), "give `seq_axis`=-3 if the tokens are along axis 1"),
    ),
    "positions along the first axis": (
        lambda: ROPE.apply(Q[0, :7], np.arange(7)),
        shapes(
            "x",
            (7, 10, 8),
            1,
            (7,),
            "give `seq_axis`=-3 if the tokens are along axis 0, "
            "or positions.from_starts(starts, 10) for the starts of 7 rows",
        ),
    ),
    # positions
    "offsets (batch,)": (
        lambda: ROPE(Q, K, np.array([5, 9])),
        shapes(
            "q",
            (2, 8, 10, 8),
            2,
            (2,),
            "give positions.from_starts(starts, 10) for the starts of 2 rows, "
            "or `seq_axis`=-4 if the tokens are along axis 0",
        ),
    ),
    "offsets (batch,) of the keys": (
        lambda: ROPE(Q[:, :, -1:], Q, np.array([5, 9])),
        shapes(
            "k",
            (2, 8, 10, 8),
            2,
            (2,),
            "give positions.from_starts(starts, 10) for the starts of 2 rows, "
            "or `seq_axis`=-4 if the tokens are along axis 0",
        ),
    ),
    "a table of all positions": (
        lambda: ROPE.apply(Q, ROPE.table(range(4096), like=Q)),
        shapes(
            "x",
            (2, 8, 10, 8),
            2,
            "a table of shape (4096, 4)",
            "give only the positions of x: p[..., a:b], or cos[..., a:b, :] and sin[..., a:b, :] of a table",
        ),
    ),
    "a pair (cos, sin)": (lambda: ROPE(Q, K, (COS, SIN)), ARRAYS.format("tuple of 2", TABLE)),
    "a list [cos, sin]": (lambda: ROPE.apply(Q, [COS, SIN]), ARRAYS.format("list of 2", TABLE)),
    "a list of two tables": (
        lambda: ROPE(Q, K, [ra.Table(COS, SIN)] * 2),
        ARRAYS.format("Table of 2", "pass it to rope(q, k, table), or a tuple of two tables, for q and for k"),
    ),
    "far positions": (
        lambda: ROPE.table(at.self_extend(range(10), group=4, window=2, like=Q), like=Q),
        ARRAYS.format("Far of 2", "make a table of each: table(p.queries), table(p.keys)"),
    ),
    "a slice of a table": (
        lambda: ROPE(Q, K, ROPE.table(range(20), like=Q)[5:15]),
        shapes("q", Q.shape, 2, (0,), f"give a position for each token of q; {ROWS}"),
    ),
    "the first row of a table": (
        lambda: ROPE(Q, K, ROPE.table(range(20), like=Q)[:1]),
        f"positions must be one array; got a tuple of 1 array; give p[0] if that has positions; {ROWS}",
    ),
    "a table of a table": (
        lambda: ROPE.table(ROPE.table(np.arange(10))),
        (
            "positions must be one array; got Table; "
            "pass it to rope(q, k, table), or a tuple of two tables, for q and for k"
        ),
    ),
    "positions (seq, batch)": (
        lambda: ROPE(np.ones((5, 8, 10, 8), "f4"), np.ones((5, 2, 10, 8), "f4"), np.zeros((10, 5), int)),
        shapes("q", (5, 8, 10, 8), 2, (10, 5), SWAP),
    ),
    "positions (seq, batch) or (seq, axes)": (
        lambda: ROPE(Q, K, np.zeros((10, 2), int)),
        shapes(
            "q",
            Q.shape,
            2,
            (10, 2),
            f"{SWAP}; for 2 axes give the Rope a row of frequencies for each, as axes.axial() does",
        ),
    ),
    "a generator": (lambda: ROPE(Q, K, (p for p in range(10))), HOST.format("generator", "write list(p)")),
    "a slice": (lambda: ROPE(Q, K, slice(0, 10)), HOST.format("slice", "write range(a, b) for slice(a, b)")),
    "a list of numbers in arrays": (
        lambda: ROPE(Q, K, [*np.arange(10)[:, None]][:3]),
        ARRAYS.format("list of 3", "write stack(p, axis=-1) for positions on several axes"),
    ),
    "angles for positions": (
        lambda: ROPE(Q, K, np.ones((10, 4))),
        shapes("q", (2, 8, 10, 8), 2, (10, 4), "give from_angles(p) of angles, Table(cos, sin) of cosines and sines"),
    ),
    "values too": (
        lambda: ROPE(Q, K, K),
        shapes("q", (2, 8, 10, 8), 2, K.shape, "rope(q, k) rotates two arrays; values are not rotated"),
    ),
    "grid positions for one axis": (
        lambda: ROPE.apply(Q[:1], at.grid(2, 5, like=Q)),
        shapes(
            "x", Q[:1].shape, 2, (10, 2), "for 2 axes give the Rope a row of frequencies for each, as axes.axial() does"
        ),
    ),
    "an image that is not flattened": (
        lambda: ROPE.apply(Q[:, :, None, :6].reshape(2, 8, 2, 3, 8), range(6)),
        shapes("x", (2, 8, 2, 3, 8), 3, (6,), "reshape x to (..., 6, 8): the points of a grid are along one axis"),
    ),
    "positions of the queries": (
        lambda: ROPE(Q[:, :, :3], K, np.arange(3)),
        shapes(
            "k",
            K.shape,
            2,
            (3,),
            "give a position for each token of k; q takes the last ones; "
            "positions.unrotated() adds those of class tokens",
        ),
    ),
    "the table of one position": (
        lambda: ROPE(Q, K, ROPE.table(10, like=Q)),
        shapes("q", Q.shape, 2, "a table of shape (4,)", "write table(arange(length)), or table([p]) for one token"),
    ),
    "positions in float16": (
        lambda: ROPE(Q, K, np.arange(10).astype("f2")),
        (
            "positions must be integers, float32 or float64; got an array of float16; "
            "float16 rounds integers beyond 2048: keep them as integers, or as float32"
        ),
    ),
    "lengths for cumulative lengths": (
        lambda: at.packed([4, 6], like=Q),
        "cumulative_lengths must start at 0 and not fall; got [4, 6]; write [0, *ends], or [0, *accumulate(lengths)]",
    ),
    "a mask added to scores": (
        lambda: at.padded(np.zeros((2, 3))),
        (
            "mask must be booleans or integers; got an array of float64; "
            "write mask == 0 if it is added to scores, mask != 0 if it is 1 for tokens"
        ),
    ),
    "sections of features": (
        lambda: ra.axes.chunked(F, [4, 4]),
        (
            "sections must be positive and sum to the number of pairs, 4; got [4, 4]; "
            "halve them: they count pairs, not features"
        ),
    ),
    "features on another axis": (
        lambda: ROPE.apply(Q[:, :, :6].swapaxes(2, 3)),
        (
            "x must have the 8 features of 4 pairs; got 6 features; "
            "swapaxes(x, 2, -1) if the features are along axis 2; "
            "`rotary_dim`=6 would fit: frequencies(6), or a config with such heads"
        ),
    ),
    "a table for k": (
        lambda: ROPE(Q, ROPE.table(range(10), like=Q)),
        "k must be an array; got Table; write apply(q, positions) if k are positions",
    ),
    "a position for k": (
        lambda: ROPE(Q, 5),
        "k must be an array; got int; write apply(q, positions) if k are positions",
    ),
    "no k": (lambda: ROPE(Q, None), "k must be an array; got NoneType; write apply(q, positions) for q alone"),
    "q and k in a tuple": (
        lambda: ROPE((Q, K), 5),
        "q must be one array; got tuple; write rope(q, k, positions)",
    ),
    "frequencies after positions": (
        lambda: ra.cos_sin(F, np.arange(3)),
        "frequencies must be floating-point; got integers; cos_sin takes the positions before the frequencies",
    ),
    "freqs_cis": (
        lambda: ROPE(Q, K, np.ones((10, 4), "c8")),
        (
            "positions must be integers, float32 or float64; got an array of complex64; "
            "give Table(z.real, z.imag) for complex cos + i sin"
        ),
    ),
    "an attention mask": (
        lambda: ROPE(Q, K, np.ones((2, 10), bool)),
        (
            "positions must be integers, float32 or float64; got an array of bool; "
            "positions.padded(mask) counts the tokens of a mask"
        ),
    ),
    "a pair (cos, sin) for xpos": (
        lambda: ra.bending.xpos((COS, SIN), np.arange(10), centre=0),
        "table must be a Table, as cos_sin and Rope.table return it; got tuple; give Table(cos, sin)",
    ),
    "positions (seq, 1)": (
        lambda: ROPE(Q, K, np.arange(10)[:, None]),
        shapes("q", (2, 8, 10, 8), 2, (10, 1), "give p[..., 0], or cos[..., 0, :] and sin[..., 0, :] of a table"),
    ),
    "positions instead of k": (
        lambda: ROPE(Q, np.arange(10)),
        (
            "seq_axis must be an axis of k other than its last; got -2 for shape (10,); "
            "write apply(q, positions) if k are positions"
        ),
    ),
    "one start for from_starts": (
        lambda: at.from_starts(3, 2, like=Q),
        "starts must be a sequence of integers; got int 3; write [3]",
    ),
    "starts that are floats": (
        lambda: at.from_starts(np.array([5.0, 9.0]), 3),
        "starts must be integers; got an array of float64; cast whole numbers to integers",
    ),
    "length before starts": (
        lambda: at.from_starts(3, [5, 9]),
        "length must be an integer; got list [5, 9]; the starts come first: from_starts([5, 9], 3)",
    ),
    "a start that is a float": (
        lambda: ROPE(Q, K, 3.0),
        HOST.format("float", "write int(p) for a start p, [p] for one token"),
    ),
    "a start that is infinite": (lambda: ROPE(Q, K, float("inf")), HOST.format("float", "")[:-2]),
    "a start that is a real array": (
        lambda: ROPE(Q, K, np.asarray(3.0)),
        ("positions must be an integer if 0-d; got float64; cast it to an integer, or give a position for each token"),
    ),
    "a start in quotes": (lambda: ROPE(Q, K, "0"), HOST.format("str", "write 0 without quotes")),
    "position axes first": (
        lambda: AXES.apply(Q, np.zeros((3, 2, 10), int)),
        (
            "positions must end in an axis of length 3, one for each row of frequencies; got shape (3, 2, 10); "
            "stack([p] * 3, axis=-1) repeats p on all axes; "
            "moveaxis(p, 0, -1) moves its first axis, if that has the 3 axes of positions"
        ),
    ),
    "one axis for three": (
        lambda: AXES.apply(Q, np.zeros((2, 10), int)),
        (
            "positions must end in an axis of length 3, one for each row of frequencies; got shape (2, 10); "
            "stack([p] * 3, axis=-1) repeats p on all axes"
        ),
    ),
    # no `like`
    "table without like": (lambda: ROPE.table(range(4)), LIKE.format("range")),
    "cos_sin without like": (lambda: ra.cos_sin([1, 2], F), LIKE.format("list")),
    "unrotated without like": (lambda: at.unrotated([1], before=1), LIKE.format("list")),
    "from_starts without like": (lambda: at.from_starts([3, 4], 2), NO_LIKE),
    "packed without like": (lambda: at.packed([0, 3]), NO_LIKE),
    "grid without like": (lambda: at.grid(2, 3), NO_LIKE),
    # other libraries' names
    "neox": (lambda: pairing("neox"), PAIRING.format("'neox'", 'write "half"')),
    "GPT-NeoX": (lambda: pairing("GPT-NeoX"), PAIRING.format("'GPT-NeoX'", 'write "half"')),
    "rotate_half": (lambda: pairing("rotate_half"), PAIRING.format("'rotate_half'", 'write "half"')),
    "gptj": (lambda: pairing("gptj"), PAIRING.format("'gptj'", 'write "interleaved"')),
    "gpt-j": (lambda: pairing("gpt-j"), PAIRING.format("'gpt-j'", 'write "interleaved"')),
    "rotate_every_two": (
        lambda: pairing("rotate_every_two"),
        PAIRING.format("'rotate_every_two'", 'write "interleaved"'),
    ),
    "meta": (lambda: pairing("meta"), PAIRING.format("'meta'", 'write "interleaved"')),
    "llama": (
        lambda: pairing("llama"),
        PAIRING.format(
            "'llama'", 'Llama is "half" in a checkpoint of transformers, "interleaved" as Meta published it'
        ),
    ),
    "is_neox_style": (
        lambda: pairing(True),
        PAIRING.format(
            "bool True", 'is_neox_style=True of vLLM is "half", interleaved=True of flash-attention is "interleaved"'
        ),
    ),
    "an unknown pairing": (lambda: pairing("zigzag"), PAIRING.format("'zigzag'", "")[:-2]),
    "fp16": (lambda: ra.cos_sin(np.arange(3), F, dtype="fp16"), DTYPE.format("fp16", "float16")),
    "a number for dtype": (
        lambda: ra.cos_sin(np.arange(3), F, dtype=np.float32(1)),
        DTYPE.format("float32 np.float32(1.0)", "")[: -len("; write ")],
    ),
    "bf16": (lambda: ra.cos_sin(np.arange(3), F, dtype="bf16"), DTYPE.format("bf16", "bfloat16")),
    # frequencies
    "a config for frequencies": (
        lambda: ra.Rope({"head_dim": 64}, pairing="half"),
        TUPLE.format("dict {'head_dim': 64}", "Rope.from_config reads a config"),
    ),
    "a path for frequencies": (
        lambda: ra.Rope("config.json", pairing="half"),
        TUPLE.format("str 'config.json'", "Rope.from_config reads a config"),
    ),
    "an array of frequencies": (
        lambda: ra.Rope(np.ones(4), pairing="half"),
        f"frequencies must be a tuple of floats; got an array of numpy; {LEARNED}",
    ),
    "a scheme of an array": (
        lambda: ra.scaling.linear(np.ones(4), 2.0),
        TUPLE.format("ndarray array([1., 1., 1., 1.])", LEARNED),
    ),
    "head_dim for frequencies": (
        lambda: ra.Rope(64, pairing="half"),
        TUPLE.format("int 64", "write frequencies(64) for 64 features"),
    ),
    "cos_sin of a Rope": (
        lambda: ra.cos_sin(np.arange(3), ROPE),
        TUPLE.format("Rope", "give rope.frequencies"),
    ),
    "cos_sin the wrong way round": (
        lambda: ra.cos_sin(F, range(4)),
        TUPLE.format("range range(0, 4)", "if they are positions: cos_sin takes them first, a Rope in its calls"),
    ),
    "positions for frequencies": (
        lambda: ra.Rope(range(4), pairing="half"),
        TUPLE.format("range range(0, 4)", "if they are positions: cos_sin takes them first, a Rope in its calls"),
    ),
    "base before head_dim": (
        lambda: ra.frequencies(10_000.0, base=128),
        "rotary_dim must be an integer; got float 10000.0; the dimension comes first: frequencies(128, base=10000.0)",
    ),
    "head_dim a float": (lambda: ra.frequencies(128 / 2), "rotary_dim must be an integer; got float 64.0; write 64"),
    "head_dim 6.5": (lambda: ra.frequencies(6.5), "rotary_dim must be an integer; got float 6.5"),
    "head_dim odd": (
        lambda: ra.frequencies(7),
        "rotary_dim must be even and from 2 to 1048576; got 7; 6 leaves the last feature unrotated",
    ),
    "base 0": (lambda: ra.frequencies(8, base=0), "base must be positive and finite; got 0.0"),
    "base in quotes": (
        lambda: ra.frequencies(8, base="1e4"),
        "base must be a real number; got str '1e4'; write 10000.0 without quotes",
    ),
    "base a name": (lambda: ra.frequencies(8, base="llama"), "base must be a real number; got str 'llama'"),
    "base not a number": (lambda: ra.frequencies(8, base="nan"), "base must be a real number; got str 'nan'"),
    # tables of another width
    "rotary_dim beyond head_dim": (
        lambda: ra.Rope(ra.frequencies(16), pairing="half")(Q, K),
        (
            "q must have the 16 features of 8 pairs; got 8 features; "
            "`rotary_dim`=8 would fit: frequencies(8), or a config with such heads"
        ),
    ),
    "k of another width": (
        lambda: ROPE(Q, K[..., :4]),
        (
            "k must have the 8 features of 4 pairs; got 4 features; "
            "q and k have 8 and 4 features: rotate each alone if that is meant"
        ),
    ),
    "q of another width, shorter than k": (
        lambda: ROPE(Q[:, :6, :3, :4], K),
        (
            "q must have the 8 features of 4 pairs; got 4 features; "
            "q and k have 4 and 8 features: rotate each alone if that is meant"
        ),
    ),
    "positions and frequencies for a table": (
        lambda: ra.rotate(Q, np.arange(10), F, pairing="half"),
        "sin must be an array (NumPy, CuPy, PyTorch, JAX, ...); got tuple; make an array of it, as by asarray()",
    ),
    "positions and an array of frequencies": (
        lambda: ra.rotate(Q, np.arange(10), np.asarray(F), pairing="half"),
        f"cos must be floating-point; got int64; {TO_ROTATE}",
    ),
    "tables of transformers": (
        lambda: ra.rotate(Q, REPEATED, REPEATED, pairing="half"),
        (
            "x must have the 16 features of 8 pairs; got 8 features; "
            "if the table has each angle twice, give [..., :4] of both, or [..., ::2] if neighbours are equal"
        ),
    ),
    "a Table of transformers": (
        lambda: ROPE(Q, K, ra.Table(REPEATED, REPEATED)),
        (
            "positions must be of shape (..., 4) if they are a table; got (10, 8); "
            "if the table has each angle twice, give [..., :4] of both, or [..., ::2] if neighbours are equal; "
            "else make it by the table() of this Rope"
        ),
    ),
    "a table of another Rope": (
        lambda: ROPE(Q, K, ra.Rope(ra.frequencies(4), pairing="half").table(range(10), like=Q)),
        "positions must be of shape (..., 4) if they are a table; got (10, 2); make it by the table() of this Rope",
    ),
    "a table for (batch, seq, heads, dim)": (
        lambda: ra.rotate(BY_TOKEN, COS, SIN, pairing="half"),
        (
            "cos and sin must broadcast to (2, 10, 8, 4), the shape of x with pairs for its features; got (10, 4); "
            "reshape both to (1, 10, 1, 4), or let Rope.apply do it"
        ),
    ),
    "a table (batch, seq)": (
        lambda: ra.rotate(Q, *ROPE.table(np.zeros((2, 10), int)), pairing="half"),
        (
            "cos and sin must broadcast to (2, 8, 10, 4), the shape of x with pairs for its features; got (2, 10, 4); "
            "reshape both to (2, 1, 10, 4), or let Rope.apply do it"
        ),
    ),
    # q and k
    "integers": (lambda: ROPE(Q.astype(int), K), DTYPES.format("q", "int64", "cast it to one of these")),
    "long double": (
        lambda: ROPE.apply(Q.astype(np.longdouble)),
        DTYPES.format("x", np.dtype(np.longdouble).name, "cast it to one of these"),
    ),
    "quantised": (lambda: ROPE.apply(Q.astype("i1")), DTYPES.format("x", "int8", "quantise after the rotation")),
    "a list for q": (
        lambda: ROPE(Q.tolist(), K),
        "q must be an array (NumPy, CuPy, PyTorch, JAX, ...); got list; make an array of it, as by asarray()",
    ),
    "seq_axis out of range": (lambda: ROPE(Q, K, seq_axis=-5), AXIS.format("q", -5, Q.shape, HEADS)),
    "seq_axis of the features": (lambda: ROPE(Q, K, seq_axis=-1), AXIS.format("q", -1, Q.shape, HEADS)),
    "one token without its axis": (
        lambda: ROPE.apply(Q[0, 0, 0]),
        AXIS.format("x", -2, (8,), "x[None, :] if it is one token"),
    ),
    "seq_axis of two axes": (
        lambda: ROPE.apply(Q[0, 0], seq_axis=1),
        AXIS.format("x", 1, (10, 8), "-2 for (seq, head_dim)"),
    ),
    "seq_axis in quotes": (
        lambda: ROPE(Q, K, seq_axis="-3"),
        "seq_axis must be an integer; got str '-3'; write -3 without quotes",
    ),
    "seq_axis an array": (
        lambda: ROPE(Q, K, seq_axis=np.asarray([1])),
        "seq_axis must be an integer; got ndarray array([1])",
    ),
    "inverse 1": (lambda: ROPE.apply(Q, inverse=1), "inverse must be True or False; got int 1; write True"),
    "one array for out": (
        lambda: ROPE(Q, K, out=Q),
        "out must be a pair of arrays, for q and for k; got numpy.ndarray; write out=(q, k) to rotate in place",
    ),
    "out that overlaps": (
        lambda: ROPE(Q, K, out=(Q[:, ::-1], K)),
        "out must be q itself or not overlap it; got a view that overlaps it in part",
    ),
    "a whole cache for out": (
        lambda: ROPE.apply(Q[:, :, :1], 16, out=Q),
        (
            "out must have the shape and dtype of x, (2, 8, 1, 8) float32; got (2, 8, 10, 8) float32; "
            "give the part to write, cache[:, :, a:b], of length 1"
        ),
    ),
    "length of an array": (
        lambda: at.packed(np.array([0, 3])),
        (
            "length must be given if `cumulative_lengths` is an array, whose values are not read; "
            "it is the number of tokens, such as q.shape[-2]"
        ),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_common_mistake_gets_the_code_to_write(name):
    call, sentence = MISTAKES[name]
    assert str(refusal(call, ArgumentError)) == sentence
    assert len(sentence) < 300


def test_mixed_libraries_and_devices_in_torch_get_the_code_to_write():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    q = torch.ones(Q.shape)
    for call, sentence in (
        (
            lambda: ROPE(q, q, np.arange(10)),
            (
                "q and k and positions must come from one array library; "
                "got q of torch, k of torch, positions of numpy; convert positions to torch"
            ),
        ),
        (
            lambda: ROPE(q, q, ROPE.table(range(10), like=Q)),
            (
                "q and k and cos and sin must come from one array library; got q of torch, k of torch, cos of numpy, "
                "sin of numpy; convert cos and sin to torch, or make the table with like=q"
            ),
        ),
        (
            lambda: ROPE.table(np.arange(10), like=q),
            (
                "positions and like must come from one array library; got positions of numpy, like of torch; "
                "convert positions to torch"
            ),
        ),
        (
            lambda: ROPE.apply(q, torch.arange(10, device="meta")),
            "x and positions must be on one device; got cpu and meta; move positions to the device of x",
        ),
        (
            lambda: ROPE.apply(q, ROPE.table(torch.arange(10, device="meta"))),
            (
                "x and cos must be on one device; got cpu and meta; move cos to the device of x, "
                "or make the table with like=x"
            ),
        ),
        (
            lambda: ra.Rope(torch.nn.Parameter(torch.ones(4)), pairing="half"),
            f"frequencies must be a tuple of floats; got an array of torch; {LEARNED}",
        ),
        (
            lambda: ra.Rope([torch.tensor(1.0)], pairing="half"),
            f"frequencies[0] must be a real number; got Tensor tensor(1.); {STATIC.format('float')}",
        ),
        (
            lambda: ROPE.apply(q.to(torch.float8_e4m3fn)),
            DTYPES.format("x", "float8_e4m3fn", "quantise after the rotation"),
        ),
    ):
        assert str(refusal(call, ArgumentError)) == sentence


@pytest.mark.parametrize(
    ("shape", "axis", "positions"),
    [
        ((2, 8, 10, 8), -2, (3, 10)),  # another batch
        ((10, 8), -2, (3, 10)),
        ((2, 8, 10, 8), -2, (3, 1)),
        ((2, 4, 10, 3, 8), -3, (3, 10)),  # (batch, groups, seq, heads, head_dim)
        ((2, 10, 4, 3, 8), 1, (3, 1)),
        ((2, 4, 1, 10, 8), -2, (3, 10)),
        ((10, 8), -2, (10, 8)),  # angles of pairs, twice
    ],
)
def test_positions_that_could_mean_several_things_have_no_hint(shape, axis, positions):
    assert refusal(lambda: ROPE.apply(np.ones(shape), np.ones(positions), seq_axis=axis), ValueError).hint == ""


def test_numbers_beside_arrays_have_no_hint():
    error = refusal(lambda: ROPE.apply(Q, [0, np.array(2)]), TypeError)
    assert (error.got, error.hint) == ("a list of numbers and arrays", "")


@pytest.mark.long
def test_torch_compile_keeps_the_code_to_write():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    q = torch.ones(BY_TOKEN.shape)
    for call in (  # each is compiled, and then each function that it calls, for seconds
        lambda x: ROPE.apply(x, torch.arange(10)),
        lambda x: ROPE(x, x[:, :, :2]),
        lambda x: ROPE.apply(x, (x, x)),
        lambda x: ra.Rope(F, pairing="neox").apply(x),
    ):
        plain = refusal(lambda call=call: call(q), ArgumentError)
        torch._dynamo.reset()
        compiled = torch.compile(call, backend="eager")
        assert str(refusal(lambda compiled=compiled: compiled(q), ArgumentError)) == str(plain)


@pytest.mark.long
def test_torch_compile_with_a_symbolic_float_keeps_the_code_to_write():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch._dynamo.reset()
    compiled = torch.compile(ROPE.apply, backend="eager", dynamic=True)
    error = refusal(lambda: compiled(torch.ones(3, 8), 5.0), ArgumentError)
    assert error.hint == "write int(p) for a start p, [p] for one token"


def test_traced_jax_arguments_get_static_argnames_as_hint():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    x = jax.numpy.ones((3, 8))
    for call, argument, kind in (
        (lambda n: ROPE.apply(x, seq_axis=n), "seq_axis", "int"),
        (lambda n: at.from_starts(x[:, 0].astype(int), n), "length", "int"),
        (lambda n: ra.Rope(F, pairing="half", attention_factor=n), "attention_factor", "float"),
        (lambda n: ROPE.apply(x, inverse=n), "inverse", "bool"),
    ):
        error = refusal(lambda call=call: jax.jit(call)(1), ra.ArgumentTypeError)
        assert (error.argument, error.hint) == (argument, STATIC.format(kind))


def test_a_graph_capture_without_constants_has_a_hint(monkeypatch):
    x, rope = np.ones((3, 8), "f4"), ra.Rope(F, pairing="half")
    monkeypatch.setitem(vars(find(x)), "is_capturing", lambda _: True)
    sentence = (
        "frequencies must be on the device before a graph is captured: "
        "call once before, outside of the capture, with the same Rope and arrays like these"
    )
    assert str(refusal(lambda: rope.apply(x, np.arange(3)), RuntimeError)) == sentence


@pytest.mark.parametrize(
    ("call", "user", "package", "extra"),
    [
        ("ra.plot.wavelengths(ra.Rope(ra.frequencies(8), pairing='half'))", "rope_any.plot", "matplotlib", "plot"),
        ("ra.onnx.export(ra.Rope(ra.frequencies(8), pairing='half'))", "export", "ndonnx", "onnx"),
        (
            "ra.testing.check_rotary(print, pairing='half', head_dim=8)",
            "rope_any.testing",
            "mpmath",
            "testing",
        ),
        ("import rope_any.integrations.torch", "rope_any.integrations.torch", "torch", "torch"),
        (
            "import rope_any.integrations.transformers",
            "rope_any.integrations.transformers",
            "torch",
            "transformers",
        ),
    ],
)
def test_a_missing_package_is_reported_with_its_extra(call, user, package, extra):
    program = f"import sys; sys.modules[{package!r}] = None; import numpy as np; import rope_any as ra; {call}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    sentence = f'{user} needs {package}, which is missing; install it by: pip install "rope-any[{extra}]"'
    assert result.stderr.strip().endswith(f"ModuleNotFoundError: {sentence}"), result.stderr
