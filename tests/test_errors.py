"""Every wrong argument is refused in one sentence with its name, what it must be and what it got."""

import re
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

import rope_any as ra
from rope_any import axes, bending
from rope_any import positions as at

F = ra.frequencies(8)
X = np.ones((2, 3, 8), dtype=np.float32)
P = np.arange(3)
TABLE = COS, SIN = ra.cos_sin(P, F)
ROPE = ra.Rope(F, pairing="half")
GRID = ra.Rope(axes.chunked(F, [1, 3]), pairing="half")
W = np.ones((8, 3))
NAN, INF = float("nan"), float("inf")
HUGE = 10**5000


def rotate(x=X, cos=COS, sin=SIN, pairing="half", **options):
    """Call `rotate` with valid arguments, except for those given."""
    return ra.rotate(x, cos, sin, pairing=pairing, **options)


def rope(frequencies=F, **options):
    """Make a Rope with valid arguments, except for those given."""
    return ra.Rope(frequencies, **{"pairing": "half", **options})


def fope(c=None, s=None, table=TABLE, pairs=8, sine_padding=0.0):
    """Call `fope` with valid arguments, except for those given."""
    c, s = (np.eye(4) if part is None else part for part in (c, s))
    return bending.fope(table, c, s, pairs=pairs, sine_padding=sine_padding)


def xpos(table=TABLE, positions=P, centre=0, **options):
    """Call `xpos` with valid arguments, except for those given."""
    return bending.xpos(table, positions, centre=centre, **options)


def temperature(positions=P, **options):
    """Call `temperature` with valid arguments, except for those given."""
    return bending.temperature(TABLE, positions, **{"beta": 0.1, "original_length": 8192, **options})


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


def recursive_list():
    """Return a list that contains itself."""
    inside = []
    inside.append(inside)
    return inside


def refusal(call, error=ra.ArgumentValueError):
    """Return the error that a call raises."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 300
    return caught.value


# --- values that no rotation has, by the argument that the error names ------------------------------------------------

# tests/test_fuzz.py gives each argument of each function a value of no type that it takes
VALUES = {
    "rotary_dim": [
        *(lambda n=n: ra.frequencies(n) for n in (7, 0, -4, 2**40, HUGE)),
        lambda: axes.mixed(6, heads=1, rng=Random(0)),
    ],
    "base": [
        *(lambda b=b: ra.frequencies(8, base=b) for b in (0, -1e4, NAN, INF, 5e-324, HUGE)),
        lambda: axes.mixed(8, heads=1, rng=Random(0), base=0),
    ],
    "frequencies": [
        lambda: ra.cos_sin(P, ()),
        lambda: ra.cos_sin(P, (1.0, NAN)),
        lambda: rope((INF,)),
        lambda: ra.cos_sin(P, (1.0, 65_537.0)),
        lambda: ra.cos_sin(P, (-7e4,)),
        lambda: ra.cos_sin(P, ((1.0, 2.0), (1.0,))),
        lambda: ra.cos_sin(P, np.ones((1, 1, 2, 3))),
    ],
    "frequencies of axes and heads": [
        axes.axial,
        lambda: axes.axial(F, ()),
        lambda: rope((((1.0,), (1.0,)), ((1.0,),))),
    ],
    "sections": [
        lambda: axes.chunked(F, [3, 4]),
        lambda: axes.chunked(F, [4, 0]),
        lambda: axes.strided(F, [1, 3]),
    ],
    "axis_of": [*(lambda n=n: axes.assigned(F, n) for n in ([0, 1], [-1] * 4, [2**30] * 4))],
    "pairing": [lambda: rope(pairing="halves"), lambda: rotate(pairing="halves")],
    "start": [
        lambda: rope(start=-1),
        lambda: convert(start=-1),
        lambda: convert(start=3),
    ],
    "blocks": [lambda: rope(blocks=0), lambda: rope(blocks=3)],
    "attention_factor": [
        *(lambda f=f: rope(attention_factor=f) for f in (0, 1e-200, 10**400)),
        lambda: ra.cos_sin(P, F, attention_factor=NAN),
    ],
    "positions": [
        *(lambda p=p: ra.cos_sin(p, F, like=X) for p in ([INF], [NAN], [0, -(2**60)], [2**53 + 1], [2**60])),
        lambda: ra.cos_sin([[1], [1, 2]], F, like=X),
        lambda: ra.cos_sin(recursive_list(), F, like=X),
        lambda: ROPE.apply(X, HUGE),
        lambda: ra.cos_sin(P, (F, F)),
        lambda: ra.cos_sin(3, (F, F), like=X),
        lambda: ra.cos_sin(np.zeros(2), np.ones((1, 2, 3))),
        lambda: ra.cos_sin(np.zeros((5, 3)), np.ones((1, 2, 3))),
        *(lambda p=p: ROPE.apply(X, p) for p in ([1, 2, 3, 4], [1, 2], np.ones((3, 3), int), np.ones((1, 1, 3), int))),
        lambda: ROPE.apply(X[0], np.ones((1, 3), int)),
        *(lambda p=p: ROPE.apply(X, ROPE.table(p, like=X)) for p in (5, [1, 2])),
        *(lambda t=t: ROPE.apply(X, t(COS[:, :2], SIN[:, :2])) for t in (ra.Table, ra.BentTable)),
        lambda: ROPE.apply(np.ones((3, 16), "f4"), ra.Table(*(np.concatenate([t, t], -1) for t in TABLE))),
        lambda: ROPE.apply(X, ra.Table(*(part[None, None] for part in TABLE))),
        lambda: ROPE(X, X, (ra.Table(COS, SIN), ra.Table(COS[:, :2], SIN[:, :2]))),
        lambda: ROPE(X, X, (ra.Table(COS, SIN), ra.Table(COS[:2], SIN[:2]))),
        lambda: ROPE.apply(X, (ra.Table(COS, SIN), ra.Table(COS, SIN))),
        lambda: xpos(positions=P[:2]),
        lambda: temperature(np.ones((3, 2), int)),
        lambda: at.unscaled_first([NAN], 2, like=X),
        lambda: at.grid(like=X),
        lambda: at.grid(2, -3, like=X),
        lambda: at.grid([NAN], like=X),
        lambda: at.grid([[1, 2]], like=X),
        lambda: at.unrotated(7, like=X),
        lambda: at.unrotated(P, axes=3),
        lambda: at.unrotated(X, axes=2),
    ],
    "x": [
        lambda: rotate(np.asarray(1.0)),
        lambda: rotate(X[..., :7]),
        lambda: rotate(cos=COS[:, :0], sin=SIN[:, :0]),
        lambda: rotate(start=1),
        lambda: rotate(start=-1),
        lambda: ROPE.apply(X[..., :6]),
    ],
    "cos and sin": [
        lambda: rotate(sin=SIN[:2]),
        lambda: rotate(cos=COS[:2], sin=SIN[:2]),
        lambda: rotate(X[:, :1]),
        lambda: rotate(X[0, 0]),
        lambda: rotate(cos=np.asarray(0.5), sin=np.asarray(0.5)),
        lambda: xpos(ra.Table(COS[:, :2], SIN)),
    ],
    "out": [lambda: rotate(out=X[:1].copy()), lambda: rotate(out=X.astype(float))],
    "q": [lambda: ROPE(X, X[:, :2])],
    "seq_axis": [
        lambda: ROPE.apply(X[0, 0]),
        *(lambda n=n: ROPE.apply(X, seq_axis=n) for n in (-1, 2, -4, HUGE)),
    ],
    "inverse": [lambda: ROPE.apply(X, ra.BentTable(COS, SIN), inverse=True)],
    "centre": [lambda: xpos(centre=2**31), lambda: xpos(centre=HUGE)],
    "scale_base": [lambda: xpos(scale_base=0.5), lambda: xpos(scale_base=0)],
    "gamma": [lambda: xpos(gamma=-1.0)],
    "beta": [lambda: temperature(beta=0.0)],
    "original_length": [lambda: temperature(original_length=0)],
    "cos_coefficients and sin_coefficients": [
        lambda: fope(np.ones((3, 4)), np.ones((3, 4))),
        lambda: fope(np.eye(4), np.ones((2, 4, 4))),
        lambda: fope(np.ones(4), np.ones(4)),
        lambda: fope(np.ones((1, 2, 4, 4)), np.ones((1, 2, 4, 4))),
        lambda: fope(pairs=3),
    ],
    "pairs": [lambda: fope(pairs=2**31)],
    "table": [
        lambda: fope(table=ra.Table(COS[0], SIN[0])),
        lambda: fope(table=ra.Table(COS[None, None], SIN[None, None])),
    ],
    "sine_padding": [lambda: fope(sine_padding=0.5)],
    "count": [lambda: at.unscaled_first(P, -1), lambda: at.centred(-1)],
    "head_dim": [
        *(lambda n=n: convert(head_dim=n) for n in (6, 5, 1, 10**9)),
        lambda: convert(heads=(2, 3)),
        lambda: convert(np.ones((0, 3))),
    ],
    "rotary_dim of a head": [lambda: convert(rotary_dim=6), lambda: convert(rotary_dim=3)],
    "axis": [lambda: convert(axis=2)],
    "heads": [lambda: convert(heads=(2, 1)), lambda: axes.mixed(8, heads=0, rng=Random(0))],
    "source": [lambda: convert(source="neox")],
    "names": [
        lambda: convert_state({"a.up.weight": W}),
        lambda: convert_state(names={"wq": 0}),
        lambda: convert_state(names={"*": 0, "*.wk.*": 0}),
    ],
    "cumulative_lengths": [
        lambda: at.packed(np.ones((2, 3), int), 8),
        *(lambda ends=ends: at.packed(ends, like=X) for ends in ([], [3, 5], [0, 5, 3], [0, -1])),
    ],
    "length": [
        lambda: at.packed([0, 5], 4, like=X),
        lambda: at.packed(P, -4),
        lambda: at.from_starts(P, -2),
        *(lambda n=n: shard(n) for n in (9, 0)),
        lambda: shard(10, zigzag=False),
        lambda: at.gather_order(9, 3, zigzag=True, like=X),
    ],
    "old": [
        lambda: ROPE.reposition(X, [1, 2], 0),
        lambda: GRID.reposition(X, P, 0),
        lambda: ROPE.reposition(X, P, 0, source=GRID),
    ],
    "new": [lambda: ROPE.reposition(X, 0, 2**60)],
    "source of another pairing": [lambda: ROPE.reposition(X, 0, 0, source=rope(pairing="interleaved"))],
    "out of keys": [lambda: ROPE.reposition(X[:1, 1:], 0, 0, out=X[:1, :-1])],
    "steps": [lambda: ra.cumulative_angles(np.ones(3))],
    "carry": [
        lambda: ra.cumulative_angles(X[0], carry=(np.ones(8), np.ones(8))),
        lambda: ra.cumulative_angles(X[0], carry=(np.ones(2, int), np.ones(2))),
    ],
    "angles": [lambda: ra.from_angles(np.asarray(1.0))],
    "mask": [lambda: at.padded(np.asarray(1))],
    "order": [lambda: at.grid(2, order="C", like=X)],
    "window": [
        lambda: at.grid(2, window=(1, 2), like=X),
        lambda: at.grid(3, 4, window=(2, 2), like=X),
        lambda: at.grid(3, window=[0], like=X),
    ],
    "step": [lambda: at.centred(2, step=0)],
    "reference": [lambda: at.scaled(2, INF)],
    "fps": [lambda: at.frames(2, fps=NAN, base_fps=1)],
    "base_fps": [lambda: at.frames(2, fps=1, base_fps=-1)],
    "ranks": [lambda: shard(ranks=0)],
    "rank": [lambda: shard(rank=3), lambda: shard(rank=-1), lambda: shard(rank=P)],
    "axes": [
        lambda: at.unrotated(P, axes=0),
        lambda: axes.alternating(F, 9),
        lambda: axes.golden(F, 0, heads=1),
    ],
    "axes and heads": [lambda: axes.golden(F, 2, heads=2**20)],
    "before": [lambda: at.unrotated(P, before=-1)],
}


@pytest.mark.parametrize("argument", VALUES)
def test_values_without_meaning_are_refused_by_the_name_of_their_argument(argument):
    for call in VALUES[argument]:
        assert refusal(call).argument == re.sub(" of .*", "", argument)


# --- arrays and numbers of a wrong type -------------------------------------------------------------------------------

TYPES = {
    "x": [
        np.float32(1),
        np.ones((3, 8)).view(np.matrix),
        np.ma.ones((3, 8)),
        X.astype(np.longdouble),
        X.astype(object),
    ],
    "cos": [COS.astype(int), COS > 0],
    "sin": [SIN.astype(int), [1.0]],
    "out": [[1.0], True],
    "inverse": ["no", None, 1],
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("argument", TYPES)
def test_arrays_of_a_wrong_type_are_refused_by_rotate(argument):
    for value in TYPES[argument]:
        assert refusal(lambda value=value: rotate(**{argument: value}), ra.ArgumentTypeError).argument == argument


@pytest.mark.parametrize("positions", ["12", 1.5, None, True, [True], ["a"], {1}, [P, P], P > 1, P + 1j])
def test_positions_of_a_wrong_type_are_refused(positions):
    assert refusal(lambda: ra.cos_sin(positions, F, like=X), ra.ArgumentTypeError).argument == "positions"
    if positions is not None:
        assert refusal(lambda: ROPE.apply(X, positions), ra.ArgumentTypeError).argument == "positions"


@pytest.mark.parametrize("dtype", [np.int32, np.complex64, "bfloat16"])  # NumPy has no bfloat16
def test_dtypes_that_tables_do_not_have_are_refused(dtype):
    assert refusal(lambda: ra.cos_sin(P, F, dtype=dtype), ra.ArgumentTypeError).argument == "dtype"


HINTS = {
    "a string that is no number": (lambda: ra.frequencies(8.0, base=HUGE), "write 8"),
    "a path for a state dict": (lambda: convert_state("m.safetensors"), "load the file, or use rope-any convert"),
    "a module for a state dict": (
        lambda: convert_state(SimpleNamespace(state_dict=dict)),
        "give state.state_dict()",
    ),
    "a nested state dict": (
        lambda: convert_state({"a": {"wq": {"weight": W}}}),
        'join nested names by dots: {"a.b": array}',
    ),
    "a module for a weight": (lambda: convert(SimpleNamespace(weight=W)), "give w.weight"),
    "names a string": (lambda: convert_state(names="*.wq.weight"), "write {'*.wq.weight': 0} for axis 0"),
    "names a list": (lambda: convert_state(names=["*"]), "write dict.fromkeys(names, 0) for axis 0"),
    "a part of a name": (
        lambda: convert_state(names={"wq": 0}),
        "it matches none; write *wq*, which matches the whole name",
    ),
    "a joint weight": (
        lambda: convert_state({"up.weight": W, "h.0.c_attn.weight": W}),
        (
            "the default patterns (*.q_proj.weight, *.wk.weight, ...) match none of the tensors; "
            "h.0.c_attn.weight may be one, with `heads` if it has values too"
        ),
    ),
    "a list for a state dict": (lambda: convert_state([]), ""),
    "no names": (lambda: convert_state(names={}), ""),
    "a name without its axis": (lambda: convert_state(names={"*": None}), ""),
    "a state dict of integers": (lambda: convert_state({1: W}), ""),
}


@pytest.mark.parametrize("mistake", HINTS)
def test_arguments_of_a_wrong_kind_get_the_code_to_write(mistake):
    call, hint = HINTS[mistake]
    assert refusal(call, (ra.ArgumentTypeError, ra.ArgumentValueError)).hint == hint


def test_options_without_a_default_must_be_given():
    for option, call in {
        "pairing": lambda: ra.rotate(X, COS, SIN),
        "centre": lambda: bending.xpos(TABLE, P),
        "sine_padding": lambda: bending.fope(TABLE, COS, SIN, pairs=8),
        "zigzag": lambda: at.shard(12, 3, 0, like=X),
    }.items():
        with pytest.raises(TypeError, match=option):
            call()
    assert refusal(lambda: at.packed(P), ra.ArgumentTypeError).argument == "length"  # its values are not read


# --- arrays of every library ------------------------------------------------------------------------------------------


def table_like(lib):
    """Return a table of a library."""
    return ra.cos_sin(lib(P, "int32"), F)


# --- the whole shape, and names of other libraries --------------------------------------------------------------------


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


def test_lists_wrong_dtypes_and_wrong_shapes_are_refused(lib):
    cos, sin = table_like(lib)
    for x in (lib(np.ones((3, 8)), "int32"), lib(np.ones((3, 8)), "complex64")):
        with pytest.raises(TypeError, match=r"x must be floating-point .* got (int32|complex64)"):
            ra.rotate(x, cos, sin, pairing="half")
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


# --- outputs ----------------------------------------------------------------------------------------------------------


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
