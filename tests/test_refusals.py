"""Refusals say what to write instead: answers to common mistakes, and none where several things could be meant."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import rope_any as ra
from rope_any import positions as at

F = ra.frequencies(8)
ROPE = ra.Rope(F, pairing="half")
AXES = ra.Rope((F, F, F), pairing="half")
Q, K = np.ones((2, 8, 10, 8), "f4"), np.ones((2, 2, 10, 8), "f4")  # (batch, heads, seq, head_dim)
BY_TOKEN, KEYS_BY_TOKEN = np.ones((2, 10, 8, 8), "f4"), np.ones((2, 10, 2, 8), "f4")  # (batch, seq, heads, head_dim)
IMAGE = np.ones((2, 8, 2, 3, 8), "f4")  # (batch, heads, rows, columns, head_dim)
P = np.arange(10)
COS = SIN = np.ones((10, 4), "f4")
REPEATED = ra.Table(np.ones((10, 8), "f4"), np.ones((10, 8), "f4"))  # as transformers has it, each angle twice
W = np.ones((8, 3))
STATE = {"a.wq.weight": W}


def hint(call):
    """Return the hint of the error that a call raises."""
    with pytest.raises((ra.ArgumentTypeError, ra.ArgumentValueError)) as caught:
        call()
    assert len(str(caught.value)) < 300
    return caught.value.hint


def pairing(name):
    """Make a Rope with a pairing."""
    return ra.Rope(F, pairing=name)


def convert_state(state, **options):
    """Convert a state dict."""
    return ra.weights.convert_state_dict(state, 4, source="half", target="interleaved", **options)


# --- a part of the hint, and the mistake that gets it -----------------------------------------------------------------

TOKENS = [
    ("give `seq_axis`=-3 if the tokens are along axis 1, or rotate each alone", lambda: ROPE(BY_TOKEN, KEYS_BY_TOKEN)),
    ("give `seq_axis`=-2 if the tokens are along axis 2, or rotate", lambda: ROPE(Q, K, seq_axis=-3)),
    ("rotate each alone if they are two sequences", lambda: ROPE(Q[0, 0], K[0, 0, :4])),
    ("give `seq_axis`=-3 if the tokens are along axis 0", lambda: ROPE(BY_TOKEN[0], KEYS_BY_TOKEN[0])),
    ("give `seq_axis`=-2 if the tokens are along axis 2", lambda: ROPE.apply(Q, P, seq_axis=1)),
    ("give `seq_axis`=-3 if the tokens are along axis 0, or positions.from", lambda: ROPE.apply(Q[0, :7], P[:7])),
    ("give positions.from_starts(starts, 10) for the starts of 2 rows, or `seq_axis`=-4", lambda: ROPE(Q, K, P[:2])),
    ("swapaxes(x, 2, -1) if the features are along axis 2; `rotary_dim`=6 would", lambda: ROPE.apply(Q[:, :, :6].mT)),
    ("write -2 for (..., heads, seq, head_dim), -3 for", lambda: ROPE(Q, K, seq_axis=4)),
    ("", lambda: ROPE.apply(np.asarray(1.0))),
    ("write x[None, :] if it is one token", lambda: ROPE.apply(Q[0, 0, 0])),
    ("write -2 for (seq, head_dim)", lambda: ROPE.apply(Q[0, 0], seq_axis=1)),
    ("", lambda: ROPE(Q, K, seq_axis=np.asarray([1]))),
    # positions that could mean several things
    ("", lambda: ROPE.apply(Q, np.ones((3, 1)))),
    ("", lambda: ROPE.apply(np.ones((2, 4, 10, 3, 8)), np.ones((3, 10)), seq_axis=-3)),
    ("", lambda: ROPE.apply(Q[0, 0], np.ones((10, 8)))),
]
POSITIONS = [
    ("give only the positions of x: p[..., a:b, :], or cos[", lambda: AXES.apply(Q, np.zeros((60, 3), int))),
    ("give Table(cos, sin) for cosines and sines, a pair of tables", lambda: ROPE(Q, K, (COS, SIN))),
    ("pass it to rope(q, k, table), or a tuple of two", lambda: ROPE.table(ROPE.table(P))),
    ("make a table of each: table(p.queries), table(p.keys)", lambda: ROPE.table(at.rerope(P, window=2))),
    ("give a position for each token of q; rows a to b of", lambda: ROPE(Q, K, ROPE.table(range(20), like=Q)[5:15])),
    ("give p[0] if that has positions; rows a to b", lambda: ROPE(Q, K, ROPE.table(range(20), like=Q)[:1])),
    ("write stack(p, axis=-1) for positions on several axes", lambda: ROPE(Q, K, [P, P, P])),
    ("write stack(p)", lambda: ROPE(Q, K, [np.asarray(1), np.asarray(2)])),
    ("", lambda: ROPE.apply(Q, [0, np.asarray(2)])),
    ("give swapaxes(p, 0, 1) if they are (seq, batch); for 2 axes", lambda: ROPE(Q, K, np.zeros((10, 2), int))),
    ("give p[..., 0], or cos[..., 0, :] and sin", lambda: ROPE(Q, K, P[:, None])),
    ("give from_angles(p) of angles, Table(cos, sin)", lambda: ROPE.apply(K, np.ones((10, 4)))),
    ("give only the positions of x: p[..., a:b], or", lambda: ROPE.apply(Q[:, :, :1], np.zeros((1, 3)))),
    ("give a position for each token of k; q takes the last ones; positions.un", lambda: ROPE(Q[:, :, :3], K, P[:3])),
    ("give a position for each token of x; positions.un", lambda: ROPE.apply(Q[:1], P[:2])),
    ("stack([p] * 3, axis=-1) repeats p on all axes; moveaxis(p, 0, -1)", lambda: AXES.apply(Q, np.zeros((3, 10)))),
    ("for 3 axes give the Rope a row of frequencies for each", lambda: ROPE.apply(Q, np.zeros((10, 3), int))),
    ("rope(q, k) rotates two arrays; values are not rotated", lambda: ROPE(Q, K, K)),
    ("reshape x to (..., 6, 8): the points of a grid", lambda: ROPE.apply(IMAGE, range(6))),
    ("write table(arange(length)), or table([p]) for one", lambda: ROPE(Q, K, ROPE.table(10, like=Q))),
    ("float16 rounds integers beyond 2048: keep them as", lambda: ROPE(Q, K, P.astype("f2"))),
    ("positions.padded(mask) counts the tokens of a mask", lambda: ROPE(Q, K, np.ones((2, 10), bool))),
    ("give Table(z.real, z.imag) for complex cos + i sin", lambda: ROPE(Q, K, np.ones((10, 4), "c8"))),
    ("write list(p)", lambda: ROPE(Q, K, (p for p in range(10)))),
    ("write range(a, b) for slice(a, b)", lambda: ROPE(Q, K, slice(0, 10))),
    ("write int(p) for a start p, [p] for one token", lambda: ROPE(Q, K, 3.0)),
    ("", lambda: ROPE(Q, K, float("inf"))),
    ("cast it to an integer, or give a position for each token", lambda: ROPE(Q, K, np.asarray(3.0))),
    ("write 0 without quotes", lambda: ROPE(Q, K, "0")),
    ("give like=q, the array to rotate", lambda: ROPE.table([1, 2])),
    ("give like=q, an array of the library and on the device", lambda: at.grid(2, 3)),
    ("write [0, *ends], or [0, *accumulate(lengths)]", lambda: at.packed([4, 6], like=Q)),
    ("it is the number of tokens, such as q.shape[-2]", lambda: at.packed(P)),
    ("write mask == 0 if it is added to scores, mask != 0", lambda: at.padded(np.zeros((2, 3)))),
    ("write [3]", lambda: at.from_starts(3, 2, like=Q)),
    ("cast whole numbers to integers", lambda: at.from_starts(np.array([5.0, 9.0]), 3)),
    ("the starts come first: from_starts([5, 9], 3)", lambda: at.from_starts(3, [5, 9])),
]
CALLS = [
    ("write apply(q, positions) if k are positions", lambda: ROPE(Q, ROPE.table(range(10), like=Q))),
    ("write apply(q, positions) if k are positions", lambda: ROPE(Q, P)),
    ("write apply(q, positions) for q alone", lambda: ROPE(Q, None)),
    ("write rope(q, k, positions)", lambda: ROPE((Q, K), 5)),
    ("quantise after the rotation", lambda: ROPE.apply(Q.astype("i1"))),
    ("make an array of it, as by asarray()", lambda: ROPE(Q.tolist(), K)),
    ("write True", lambda: ROPE.apply(Q, inverse=1)),
    ("", lambda: ROPE.apply(Q, inverse=2)),
    ("write out=(q, k) to rotate in place", lambda: ROPE(Q, K, out=Q)),
    ("give the part to write, cache[:, :, a:b], of length 1", lambda: ROPE.apply(Q[:, :, :1], 16, out=Q)),
    ("", lambda: ROPE.apply(Q, out=Q[0])),
    ("`rotary_dim`=6 would fit: frequencies(6), or a config", lambda: ra.rotate(Q, COS, SIN, pairing="half", start=1)),
    ("", lambda: ra.rotate(Q, COS, SIN, pairing="half", start=7)),
    ("", lambda: ROPE.apply(Q, out=np.ones((2, 8, 10, 9), "f4"))),
    ("q and k have 4 and 8 features: rotate each alone if", lambda: ROPE(Q[:, :6, :3, :4], K)),
    ("write rotate(x, *cos_sin(positions, frequencies), pai", lambda: ra.rotate(Q, P, np.asarray(F), pairing="half")),
    ("if the table has each angle twice, give [..., :4] of", lambda: ra.rotate(Q, *REPEATED, pairing="half")),
    ("if the table has each angle twice, give [..., :4] of both, or [..., ::2]", lambda: ROPE(Q, K, REPEATED)),
    ("make it by the table() of this Rope", lambda: ROPE(Q, K, ra.Table(COS[:, :2], SIN[:, :2]))),
    ("reshape both to (1, 10, 1, 4), or let Rope.apply do it", lambda: ra.rotate(BY_TOKEN, COS, SIN, pairing="half")),
    ("reshape both to (2, 1, 10, 4)", lambda: ra.rotate(Q, *ROPE.table(np.zeros((2, 10), int)), pairing="half")),
    ("", lambda: ra.rotate(Q, COS[:3], SIN[:3], pairing="half")),
    ("give Table(cos, sin)", lambda: ra.bending.xpos((COS, SIN), P, centre=0)),
]
NAMES = [
    *[('write "half"', lambda name=name: pairing(name)) for name in ("GPT-NeoX", "rotate_half", "is_neox_style")],
    *[('write "interleaved"', lambda name=name: pairing(name)) for name in ("gptj", "rotate_every_two", "meta")],
    ('Llama is "half" in a checkpoint of transformers, "interleaved" as Meta', lambda: pairing("llama")),
    ('is_neox_style=True of vLLM is "half", interleaved=True of', lambda: pairing(True)),
    ("", lambda: pairing("zigzag")),
    ("write float16", lambda: ra.cos_sin(P, F, dtype="fp16")),
    ("write base=", lambda: ra.frequencies(64, theta=1e6)),
    ("give it first, without a name: frequencies(64)", lambda: ra.frequencies(dim=64)),
    ('write pairing="half" or pairing="interleaved"', lambda: ra.Rope(F)),
    ("write Rope(frequencies(rotary_dim, base=theta), pairing=...)", lambda: ra.Rope(F, pairing="half", theta=1e6)),
]
FREQUENCIES = [
    ("Rope.from_config reads a config", lambda: ra.Rope({"head_dim": 64}, pairing="half")),
    ("write tuple(frequencies.tolist()) if they are fixed; if", lambda: ra.Rope(np.ones(4), pairing="half")),
    ("write tuple(frequencies.tolist()) if they are fixed; if", lambda: ra.scaling.linear(np.ones(4), 2.0)),
    ("write frequencies(64) for 64 features", lambda: ra.Rope(64, pairing="half")),
    ("", lambda: ra.Rope(1, pairing="half")),
    ("give rope.frequencies", lambda: ra.cos_sin(P, ROPE)),
    ("if they are positions: cos_sin takes them first, a Rope", lambda: ra.cos_sin(F, range(4))),
    ("cos_sin takes the positions before the frequencies", lambda: ra.cos_sin(F, P)),
    ("the dimension comes first: frequencies(128, base=10000.0)", lambda: ra.frequencies(10_000.0, base=128)),
    ("write 8", lambda: ra.frequencies(8.0, base=10**5000)),
    ("", lambda: ra.frequencies(6.5)),
    ("6 leaves the last feature unrotated", lambda: ra.frequencies(7)),
    ("write 4096 without quotes", lambda: ra.frequencies("4k")),
    ("write 16777216 without quotes", lambda: ra.frequencies("16M")),
    ("write 10000.0 without quotes", lambda: ra.frequencies(8, base="1e4")),
    ("", lambda: ra.frequencies(8, base=1j)),
    ("", lambda: ra.frequencies(8, base="nan")),
    ("halve them: they count pairs, not features", lambda: ra.axes.chunked(F, [4, 4])),
]
NONE_MATCHES = "the default patterns (*.q_proj.weight, *.wk.weight, ...) match none of the tensors"
WEIGHTS = [
    ("", lambda: convert_state({1: W})),
    ("load the file, or use rope-any convert", lambda: convert_state("m.safetensors")),
    ("give state.state_dict()", lambda: convert_state(SimpleNamespace(state_dict=dict))),
    ("join nested names by dots", lambda: convert_state({"a": {"wq": {"weight": W}}})),
    ("", lambda: convert_state(STATE, names={})),
    ("", lambda: convert_state(STATE, names={"*": None})),
    ("write {'*.wq.weight': 0} for axis 0", lambda: convert_state(STATE, names="*.wq.weight")),
    ("write dict.fromkeys(names, 0) for axis 0", lambda: convert_state(STATE, names=["*"])),
    ("it matches none; write *wq*, which matches the whole name", lambda: convert_state(STATE, names={"wq": 0})),
    (NONE_MATCHES, lambda: convert_state({"up.w": W})),
    (f"{NONE_MATCHES}; h.0.c_attn.weight may be", lambda: convert_state({"up.w": W, "h.0.c_attn.weight": W})),
    ("give w.weight", lambda: ra.weights.convert(SimpleNamespace(weight=W), 4, source="half", target="interleaved")),
]
MISTAKES = [*TOKENS, *POSITIONS, *CALLS, *NAMES, *FREQUENCIES, *WEIGHTS]


@pytest.mark.parametrize(("part", "call"), MISTAKES, ids=[f"{i} {part}" for i, (part, _) in enumerate(MISTAKES)])
def test_a_common_mistake_gets_the_code_to_write_or_nothing_wrong(part, call):
    found = hint(call)
    assert found.startswith(part) if part else found == ""


def test_other_wrong_keywords_are_errors_of_python():
    for call in (lambda: ra.frequencies(64, bse=3.0), ra.frequencies, lambda: ra.Rope(pairing="half")):
        with pytest.raises(TypeError) as caught:
            call()
        assert not isinstance(caught.value, ra.ArgumentTypeError)


# --- names that resemble a known one ----------------------------------------------------------------------------------

NEAR = {
    "yarm": "yarn",
    "yarn2": "",  # another version
    "pro": "proportional",  # the beginning of one
    "longrope_of_our_own_making_today": "longrope",
    "dyn": "dynamic",
    "li": "",  # too short for a beginning
}


@pytest.mark.parametrize("name", NEAR)
def test_a_near_name_is_proposed_and_no_far_one(name):
    model = {"model_type": "llama", "head_dim": 8, "rope_scaling": {"rope_type": name, "factor": 2.0}}
    assert hint(lambda: ra.Rope.from_config(model)) == (f"did you mean {NEAR[name]}?" if NEAR[name] else "")
    model["rope_scaling"] = {"rope_type": "yarn", "beta": 2.0}  # the beginning of beta_fast and of beta_slow
    assert hint(lambda: ra.Rope.from_config(model)) == ""


# --- other libraries and compilers ------------------------------------------------------------------------------------


def test_arrays_of_two_libraries_or_devices_get_the_conversion(torch):
    q, meta = torch.ones(Q.shape), torch.arange(10, device="meta")
    for part, call in (
        ("convert positions to torch", lambda: ROPE(q, q, P)),
        ("convert positions to torch", lambda: ROPE.table(P, like=q)),
        ("convert cos and sin to torch, or make the table with like=q", lambda: ROPE(q, q, ROPE.table(P, like=Q))),
        ("move positions to the device of x", lambda: ROPE.apply(q, meta)),
        ("move cos to the device of x, or make the table with like=x", lambda: ROPE.apply(q, ROPE.table(meta))),
        ("write tuple(frequencies.tolist())", lambda: ra.Rope(torch.nn.Parameter(torch.ones(4)), pairing="half")),
        ("write float(array), or make it a static", lambda: ra.Rope([torch.tensor(1.0)], pairing="half")),
        ("quantise after the rotation", lambda: ROPE.apply(q.to(torch.float8_e4m3fn))),
    ):
        assert part in hint(call)


@pytest.mark.long
def test_torch_compile_keeps_the_code_to_write(torch):
    q = torch.ones(BY_TOKEN.shape)
    for call in (  # each is compiled, and then each function that it calls, for seconds
        lambda x: ROPE.apply(x, torch.arange(10)),
        lambda x: ROPE(x, x[:, :, :2]),
        lambda x: ROPE.apply(x, (x, x)),
        lambda x: ra.Rope(F, pairing="neox").apply(x),
    ):
        plain = hint(lambda call=call: call(q))
        torch.compiler.reset()
        compiled = torch.compile(call, backend="eager")
        assert hint(lambda compiled=compiled: compiled(q)) == plain
    torch.compiler.reset()
    compiled = torch.compile(ROPE.apply, backend="eager", dynamic=True)
    assert hint(lambda: compiled(torch.ones(3, 8), 5.0)) == "write int(p) for a start p, [p] for one token"


def test_torch_compile_of_from_config_has_a_hint_or_breaks_the_graph(torch):
    if torch.__version__ < (2, 9):
        pytest.skip("this torch does not say why a graph breaks")
    llama, x = {"model_type": "llama", "head_dim": 8}, torch.ones(3, 8)

    def rotated(x):
        return ra.Rope.from_config(llama).apply(x)

    torch.compiler.reset()
    with pytest.raises(RuntimeError, match=r"read configs outside of the compiled function"):
        torch.compile(rotated, backend="eager", fullgraph=True)(x)
    torch.compiler.reset()
    assert torch.equal(torch.compile(rotated, backend="eager")(x), rotated(x))


def test_traced_jax_arguments_get_the_static_argument_as_hint(jax):
    x = jax.numpy.ones((3, 8))
    for kind, call in (
        ("int", lambda n: ROPE.apply(x, seq_axis=n)),
        ("int", lambda n: at.from_starts(x[:, 0].astype(int), n)),
        ("float", lambda n: ra.Rope(F, pairing="half", attention_factor=n)),
        ("bool", lambda n: ROPE.apply(x, inverse=n)),
    ):
        static = f"write {kind}(array), or make it a static argument of the compiled function"
        assert hint(lambda call=call: jax.jit(call)(1)) == static


INTEGRATIONS = "rope_any.integrations"


@pytest.mark.parametrize(
    ("call", "user", "package", "extra"),
    [
        ("ra.onnx.export(ra.Rope(ra.frequencies(8), pairing='half'))", "export", "ndonnx", "onnx"),
        ("ra.onnx.export(ra.Rope(ra.frequencies(8), pairing='half'))", "export", "spox", "onnx"),
        (
            "ra.testing.check_rotary(print, ra.Rope(ra.frequencies(8), pairing='half'))",
            "rope_any.testing",
            "mpmath",
            "testing",
        ),
        (f"import {INTEGRATIONS}.torch", f"{INTEGRATIONS}.torch", "torch", "torch"),
        (f"import {INTEGRATIONS}.transformers", f"{INTEGRATIONS}.transformers", "torch", "transformers"),
    ],
)
def test_a_missing_package_is_reported_with_its_extra(call, user, package, extra):
    program = f"import sys; sys.modules[{package!r}] = None; import numpy as np; import rope_any as ra; {call}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    sentence = f'{user} needs {package}, which is missing; install it by: pip install "rope-any[{extra}]"'
    assert result.stderr.strip().endswith(f"ModuleNotFoundError: {sentence}"), result.stderr
