"""The two exceptions for wrong arguments, and what they say to write instead after common mistakes."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import rope_any as ra
from rope_any import positions as at
from rope_any._arrays import find

ERRORS = ra.ArgumentTypeError, ra.ArgumentValueError


def refusal(call, error=ERRORS):
    """Return the error that a call raises."""
    with pytest.raises(error) as caught:
        call()
    return caught.value


# --- the exceptions ---------------------------------------------------------------------------------------------------


def test_exceptions_have_argument_wanted_got_and_hint():
    error = refusal(lambda: ra.frequencies(8.0), TypeError)
    assert type(error) is ra.ArgumentTypeError and not isinstance(error, ValueError)
    parts = error.argument, error.wanted, error.got, error.hint, error.where
    assert parts == ("rotary_dim", "be an integer", "float 8.0", "write 8", "")
    error = refusal(lambda: ra.frequencies(8, base=-1), ValueError)
    assert type(error) is ra.ArgumentValueError
    assert (error.argument, error.wanted, error.got) == ("base", "be positive and finite", "-1.0")
    assert str(error) == "base must be positive and finite; got -1.0"


@pytest.mark.parametrize("kind", ERRORS)
def test_exceptions_are_pickled_with_the_text_of_got(kind):
    error = kind("x", "be a number", lambda: None, "use float()", "a.json")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and str(copy) == str(error) and str(copy).startswith("a.json: x must be a number; got ")
    assert (copy.argument, copy.hint, copy.where) == ("x", "use float()", "a.json")
    assert copy.got == error.got


def test_the_text_leaves_out_what_is_not_known():
    assert str(ra.ArgumentValueError("k", "be given")) == "k must be given"
    assert str(ra.ArgumentTypeError("k", "be a number", "x")) == "k must be a number; got str 'x'"
    assert str(ra.ArgumentValueError("k", "be half", "x")) == "k must be half; got 'x'"
    assert str(ra.ArgumentValueError("k", "be short", "x" * 41, "cut it")) == "k must be short; got str; cut it"
    assert str(ra.ArgumentValueError("k", "be flat", [[1]])) == "k must be flat; got list"


def test_the_text_is_composed_on_demand():
    class Value:
        """A value whose text must not be composed."""

        def __repr__(self):
            """Fail if the text is composed."""
            pytest.fail("its text was composed")

    assert ra.ArgumentTypeError("x", "be a number", Value()).argument == "x"


# --- common mistakes: the hint says what to write instead -------------------------------------------------------------

F = ra.frequencies(8)
ROPE = ra.Rope(F, pairing="half")
AXES = ra.Rope((F, F, F), pairing="half")
Q, K = np.ones((2, 8, 10, 8), "f4"), np.ones((2, 2, 10, 8), "f4")  # (batch, heads, seq, head_dim)
BY_TOKEN, KEYS_BY_TOKEN = np.ones((2, 10, 8, 8), "f4"), np.ones((2, 10, 2, 8), "f4")  # (batch, seq, heads, head_dim)
COS = SIN = np.ones((10, 4), "f4")
REPEATED = np.ones((10, 8), "f4")
"""Cosines or sines as transformers has them, each angle twice."""
ALONE = "rotate each alone if they are two sequences"
ROWS = "rows a to b of a table t are Table(t.cos[..., a:b, :], t.sin[..., a:b, :])"
AXIAL = "for 2 axes give the Rope a row of frequencies for each, as axes.axial() does"
SWAP = "give swapaxes(p, 0, 1) if they are (seq, batch)"
STACK = "stack([p] * 3, axis=-1) repeats p on all axes"
TWICE = "if the table has each angle twice, give [..., :4] of both, or [..., ::2] if neighbours are equal"
FITS = "`rotary_dim`={0} would fit: frequencies({0}), or a config with such heads"
OFFSETS = "positions.from_starts(starts, 10) for the starts of {} rows"
STATIC = "write {}(array), or make it a static argument of the compiled function"
LEARNED = (
    "write tuple(frequencies.tolist()) if they are fixed; if they are learned, "
    "rotate(x, *cos_sin(positions, frequencies), pairing=...) without a Rope"
)


def pairing(name):
    """Make a Rope with a pairing."""
    return ra.Rope(F, pairing=name)


def table(positions):
    """Make a table like the queries."""
    return ROPE.table(positions, like=Q)


# hint -> calls that get it
MISTAKES = {
    # the axis of the tokens
    f"give `seq_axis`=-3 if the tokens are along axis 1, or {ALONE}": [lambda: ROPE(BY_TOKEN, KEYS_BY_TOKEN)],
    f"give `seq_axis`=-2 if the tokens are along axis 2, or {ALONE}": [lambda: ROPE(Q, K, seq_axis=-3)],
    ALONE: [lambda: ROPE(Q, K[:, :, :4])],
    "give `seq_axis`=-3 if the tokens are along axis 1": [
        lambda: ROPE(BY_TOKEN, BY_TOKEN, np.arange(10)),
        lambda: ROPE.apply(BY_TOKEN, np.zeros((2, 10), int)),
    ],
    f"give `seq_axis`=-3 if the tokens are along axis 0, or {OFFSETS.format(7)}": [
        lambda: ROPE.apply(Q[0, :7], np.arange(7))
    ],
    f"give {OFFSETS.format(2)}, or `seq_axis`=-4 if the tokens are along axis 0": [
        lambda: ROPE(Q, K, np.array([5, 9])),
        lambda: ROPE(Q[:, :, -1:], Q, np.array([5, 9])),
    ],
    "write -2 for (..., heads, seq, head_dim), -3 for (..., seq, heads, head_dim)": [
        lambda: ROPE(Q, K, seq_axis=-5),
        lambda: ROPE(Q, K, seq_axis=-1),
    ],
    "write x[None, :] if it is one token": [lambda: ROPE.apply(Q[0, 0, 0])],
    "write -2 for (seq, head_dim)": [lambda: ROPE.apply(Q[0, 0], seq_axis=1)],
    "write -3 without quotes": [lambda: ROPE(Q, K, seq_axis="-3")],
    # positions
    "write list(p)": [lambda: ROPE(Q, K, (p for p in range(10)))],
    "write range(a, b) for slice(a, b)": [lambda: ROPE(Q, K, slice(0, 10))],
    "write stack(p)": [lambda: ROPE(Q, K, [np.asarray(1), np.asarray(2)])],
    "write stack(p, axis=-1) for positions on several axes": [lambda: ROPE(Q, K, [*np.arange(10)[:, None]][:3])],
    "write int(p) for a start p, [p] for one token": [lambda: ROPE(Q, K, 3.0)],
    "cast it to an integer, or give a position for each token": [lambda: ROPE(Q, K, np.asarray(3.0))],
    "write 0 without quotes": [lambda: ROPE(Q, K, "0")],
    "float16 rounds integers beyond 2048: keep them as integers, or as float32": [
        lambda: ROPE(Q, K, np.arange(10).astype("f2"))
    ],
    "positions.padded(mask) counts the tokens of a mask": [lambda: ROPE(Q, K, np.ones((2, 10), bool))],
    "make a table of each: table(p.queries), table(p.keys)": [
        lambda: table(at.self_extend(range(10), group=4, window=2, like=Q))
    ],
    "give a position for each token of k; q takes the last ones; positions.unrotated() adds those of class tokens": [
        lambda: ROPE(Q[:, :, :3], K, np.arange(3))
    ],
    "give p[..., 0], or cos[..., 0, :] and sin[..., 0, :] of a table": [lambda: ROPE(Q, K, np.arange(10)[:, None])],
    SWAP: [lambda: ROPE(np.ones((5, 8, 10, 8), "f4"), np.ones((5, 2, 10, 8), "f4"), np.zeros((10, 5), int))],
    f"{SWAP}; {AXIAL}": [lambda: ROPE(Q, K, np.zeros((10, 2), int))],
    AXIAL: [lambda: ROPE.apply(Q[:1], at.grid(2, 5, like=Q))],
    STACK: [lambda: AXES.apply(Q, np.zeros((2, 10), int))],
    f"{STACK}; moveaxis(p, 0, -1) moves its first axis, if that has the 3 axes of positions": [
        lambda: AXES.apply(Q, np.zeros((3, 2, 10), int)),
        lambda: AXES.apply(Q, np.zeros((3, 10), int)),
    ],
    "reshape x to (..., 6, 8): the points of a grid are along one axis": [
        lambda: ROPE.apply(Q[:, :, None, :6].reshape(2, 8, 2, 3, 8), range(6))
    ],
    "write [3]": [lambda: at.from_starts(3, 2, like=Q)],
    "cast whole numbers to integers": [lambda: at.from_starts(np.array([5.0, 9.0]), 3)],
    "the starts come first: from_starts([5, 9], 3)": [lambda: at.from_starts(3, [5, 9])],
    "write [0, *ends], or [0, *accumulate(lengths)]": [lambda: at.packed([4, 6], like=Q)],
    "it is the number of tokens, such as q.shape[-2]": [lambda: at.packed(np.array([0, 3]))],
    "write mask == 0 if it is added to scores, mask != 0 if it is 1 for tokens": [lambda: at.padded(np.zeros((2, 3)))],
    "give like=q, the array to rotate": [
        lambda: ROPE.table(range(4)),
        lambda: ra.cos_sin([1, 2], F),
        lambda: at.unrotated([1], before=1),
    ],
    "give like=q, an array of the library and on the device that are wanted": [
        lambda: at.from_starts([3, 4], 2),
        lambda: at.packed([0, 3]),
        lambda: at.grid(2, 3),
    ],
    # tables
    "give Table(cos, sin) for cosines and sines, a pair of tables for positions of q and of k": [
        lambda: ROPE(Q, K, (COS, SIN)),
        lambda: ROPE.apply(Q, [COS, SIN]),
    ],
    "pass it to rope(q, k, table), or a tuple of two tables, for q and for k": [
        lambda: ROPE(Q, K, [ra.Table(COS, SIN)] * 2),
        lambda: ROPE.table(table(np.arange(10))),
    ],
    "give only the positions of x: p[..., a:b], or cos[..., a:b, :] and sin[..., a:b, :] of a table": [
        lambda: ROPE.apply(Q, table(range(4096)))
    ],
    f"give a position for each token of q; {ROWS}": [lambda: ROPE(Q, K, table(range(20))[5:15])],
    f"give p[0] if that has positions; {ROWS}": [lambda: ROPE(Q, K, table(range(20))[:1])],
    "write table(arange(length)), or table([p]) for one token": [lambda: ROPE(Q, K, table(10))],
    "give from_angles(p) of angles, Table(cos, sin) of cosines and sines": [lambda: ROPE(Q, K, np.ones((10, 4)))],
    "give Table(z.real, z.imag) for complex cos + i sin": [lambda: ROPE(Q, K, np.ones((10, 4), "c8"))],
    "give Table(cos, sin)": [lambda: ra.bending.xpos((COS, SIN), np.arange(10), centre=0)],
    TWICE: [lambda: ra.rotate(Q, REPEATED, REPEATED, pairing="half")],
    f"{TWICE}; else make it by the table() of this Rope": [lambda: ROPE(Q, K, ra.Table(REPEATED, REPEATED))],
    "make it by the table() of this Rope": [
        lambda: ROPE(Q, K, ra.Rope(ra.frequencies(4), pairing="half").table(range(10), like=Q))
    ],
    "reshape both to (1, 10, 1, 4), or let Rope.apply do it": [lambda: ra.rotate(BY_TOKEN, COS, SIN, pairing="half")],
    "reshape both to (2, 1, 10, 4), or let Rope.apply do it": [
        lambda: ra.rotate(Q, *ROPE.table(np.zeros((2, 10), int)), pairing="half")
    ],
    "write rotate(x, *cos_sin(positions, frequencies), pairing=...) if these are positions and frequencies": [
        lambda: ra.rotate(Q, np.arange(10), np.asarray(F), pairing="half")
    ],
    # q and k
    "rope(q, k) rotates two arrays; values are not rotated": [lambda: ROPE(Q, K, K)],
    "write apply(q, positions) if k are positions": [
        lambda: ROPE(Q, table(range(10))),
        lambda: ROPE(Q, 5),
        lambda: ROPE(Q, np.arange(10)),
    ],
    "write apply(q, positions) for q alone": [lambda: ROPE(Q, None)],
    "write rope(q, k, positions)": [lambda: ROPE((Q, K), 5)],
    "make an array of it, as by asarray()": [
        lambda: ROPE(Q.tolist(), K),
        lambda: ra.rotate(Q, np.arange(10), F, pairing="half"),
    ],
    "cast it to one of these": [lambda: ROPE(Q.astype(int), K), lambda: ROPE.apply(Q.astype(np.longdouble))],
    "quantise after the rotation": [lambda: ROPE.apply(Q.astype("i1"))],
    FITS.format(8): [lambda: ra.Rope(ra.frequencies(16), pairing="half")(Q, K)],
    f"swapaxes(x, 2, -1) if the features are along axis 2; {FITS.format(6)}": [
        lambda: ROPE.apply(Q[:, :, :6].swapaxes(2, 3))
    ],
    "q and k have 8 and 4 features: rotate each alone if that is meant": [lambda: ROPE(Q, K[..., :4])],
    "q and k have 4 and 8 features: rotate each alone if that is meant": [lambda: ROPE(Q[:, :6, :3, :4], K)],
    "write True": [lambda: ROPE.apply(Q, inverse=1)],
    "write out=(q, k) to rotate in place": [lambda: ROPE(Q, K, out=Q)],
    "give the part to write, cache[:, :, a:b], of length 1": [lambda: ROPE.apply(Q[:, :, :1], 16, out=Q)],
    # frequencies, pairings and dtypes
    "cos_sin takes the positions before the frequencies": [lambda: ra.cos_sin(F, np.arange(3))],
    "if they are positions: cos_sin takes them first, a Rope in its calls": [
        lambda: ra.cos_sin(F, range(4)),
        lambda: ra.Rope(range(4), pairing="half"),
    ],
    "Rope.from_config reads a config": [
        lambda: ra.Rope({"head_dim": 64}, pairing="half"),
        lambda: ra.Rope("config.json", pairing="half"),
    ],
    LEARNED: [lambda: ra.Rope(np.ones(4), pairing="half"), lambda: ra.scaling.linear(np.ones(4), 2.0)],
    "write frequencies(64) for 64 features": [lambda: ra.Rope(64, pairing="half")],
    "give rope.frequencies": [lambda: ra.cos_sin(np.arange(3), ROPE)],
    "the dimension comes first: frequencies(128, base=10000.0)": [lambda: ra.frequencies(10_000.0, base=128)],
    "write 64": [lambda: ra.frequencies(128 / 2)],
    "6 leaves the last feature unrotated": [lambda: ra.frequencies(7)],
    "write 10000.0 without quotes": [lambda: ra.frequencies(8, base="1e4")],
    "halve them: they count pairs, not features": [lambda: ra.axes.chunked(F, [4, 4])],
    'write "half"': [lambda name=name: pairing(name) for name in ("neox", "GPT-NeoX", "rotate_half")],
    'write "interleaved"': [lambda name=name: pairing(name) for name in ("gptj", "gpt-j", "rotate_every_two", "meta")],
    'Llama is "half" in a checkpoint of transformers, "interleaved" as Meta published it': [lambda: pairing("llama")],
    'is_neox_style=True of vLLM is "half", interleaved=True of flash-attention is "interleaved"': [
        lambda: pairing(True)
    ],
    "write float16": [lambda: ra.cos_sin(np.arange(3), F, dtype="fp16")],
    "write bfloat16": [lambda: ra.cos_sin(np.arange(3), F, dtype="bf16")],
    # nothing is proposed if nothing is likely
    "": [
        lambda: pairing("zigzag"),
        lambda: ra.cos_sin(np.arange(3), F, dtype=np.float32(1)),
        lambda: ra.frequencies(6.5),
        *(lambda base=base: ra.frequencies(8, base=base) for base in (0, "llama", "nan")),
        lambda: ROPE(Q, K, float("inf")),
        lambda: ra.rotate(Q, COS, SIN, pairing="half", start=7),
        lambda: ROPE(Q, K, seq_axis=np.asarray([1])),
        lambda: ROPE(Q, K, out=(Q[:, ::-1], K)),
        lambda: ROPE.apply(Q, [0, np.array(2)]),
    ],
}


@pytest.mark.parametrize("hint", MISTAKES)
def test_a_common_mistake_gets_the_code_to_write(hint):
    for call in MISTAKES[hint]:
        error = refusal(call)
        assert error.hint == hint
        assert str(error).endswith(hint) and len(str(error)) < 300


def test_mixed_libraries_and_devices_get_the_code_to_write():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    q, far = torch.ones(Q.shape), torch.arange(10, device="meta")
    for hint, call in {
        "convert positions to torch": lambda: ROPE(q, q, np.arange(10)),
        "convert cos and sin to torch, or make the table with like=q": lambda: ROPE(q, q, table(range(10))),
        "move positions to the device of x": lambda: ROPE.apply(q, far),
        "move cos to the device of x, or make the table with like=x": lambda: ROPE.apply(q, ROPE.table(far)),
        LEARNED: lambda: ra.Rope(torch.nn.Parameter(torch.ones(4)), pairing="half"),
        STATIC.format("float"): lambda: ra.Rope([torch.tensor(1.0)], pairing="half"),
        "quantise after the rotation": lambda: ROPE.apply(q.to(torch.float8_e4m3fn)),
    }.items():
        assert refusal(call).hint == hint
    error = refusal(lambda: ROPE(q, q, np.arange(10)))
    assert error.argument == "q and k and positions" and error.got == "q of torch, k of torch, positions of numpy"


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


# --- near names -------------------------------------------------------------------------------------------------------

# layouts that begin with one word, schemes, types of layers: wrong name -> the known one that is proposed
LAYOUTS = {"vlm": "vllm", "VLLM": "vllm", "megatron-int": "megatron-interleaved", "mlx-lm": "mlx", "tensor": None}
LAYOUTS |= {"banana": None, "": None, "mt": None, "x" * 10_000: None}
SCHEMES = {"yarm": "yarn", "YARN": "yarn", "yarn2": None, "lin": "linear", "linearly": "linear", "ntk": None}
LAYERS = {"full": "full_attention", "full_atention": "full_attention", "in": None, "chunked": None}
MODELS = {"lama": "llama", "Qwen3": "qwen3", "llama99": None, "resnet": None, "custom_code": None}


def test_near_names_are_proposed_and_no_far_ones():
    llama = {"model_type": "llama", "head_dim": 64}
    gemma = {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6}
    of_scheme = lambda name: ra.Rope.from_config(llama | {"rope_scaling": {"rope_type": name, "factor": 2.0}})  # noqa: E731
    for names, call in (
        (LAYOUTS, lambda name: ra.layouts.pack(ra.Table(COS, SIN), name)),
        (SCHEMES, of_scheme),
        (LAYERS, lambda name: ra.Rope.from_config(gemma, layer_type=name)),
        (MODELS, lambda name: ra.Rope.from_config(llama | {"model_type": name})),
    ):
        for name, near in names.items():
            hint = refusal(lambda call=call, name=name: call(name)).hint
            assert hint.partition("?")[0] == f"did you mean {near}" if near else "did you mean" not in hint, name


# --- under compilers --------------------------------------------------------------------------------------------------


def test_torch_compile_of_from_config_has_a_hint_or_breaks_the_graph():
    torch = pytest.importorskip("torch", "2.12", reason="torch 2.12, which says why a graph breaks, is not installed")
    llama, x = {"model_type": "llama", "head_dim": 8}, torch.ones(3, 8)

    def rotated(x):
        return ra.Rope.from_config(llama).apply(x)

    torch.compiler.reset()
    with pytest.raises(RuntimeError, match=r"call Rope\.from_config outside of the compiled function"):
        torch.compile(rotated, backend="eager", fullgraph=True)(x)
    torch.compiler.reset()
    assert torch.equal(torch.compile(rotated, backend="eager")(x), rotated(x))


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
        plain = refusal(lambda call=call: call(q), ERRORS)
        torch.compiler.reset()
        compiled = torch.compile(call, backend="eager")
        assert str(refusal(lambda compiled=compiled: compiled(q), ERRORS)) == str(plain)


@pytest.mark.long
def test_torch_compile_with_a_symbolic_float_keeps_the_code_to_write():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.compiler.reset()
    compiled = torch.compile(ROPE.apply, backend="eager", dynamic=True)
    error = refusal(lambda: compiled(torch.ones(3, 8), 5.0), ERRORS)
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
    # private, because a graph is captured on a GPU alone
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
