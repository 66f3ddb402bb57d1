"""ONNX models of a Rope, run by ONNX Runtime and by the reference evaluator of onnx."""

import json
import re
from functools import cache, partial

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import oracle
import pytest
from commands import output, process, refused, write_configs
from hypothesis import given, settings

import rope_any as ra

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
ndx = pytest.importorskip("ndonnx", reason="ndonnx is not installed")
reference = pytest.importorskip("onnx.reference", reason="onnx is not installed")

F = ra.frequencies(16, base=500_000.0)
WIDE = ra.frequencies(128, base=500_000.0)
PAIRINGS = ("half", "interleaved")
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FAR = 2**31 - 1

# Frequencies, options of Rope besides the pairing, head_dim.
KINDS = {
    "all features": (F, {}, None),
    "partial": (F, {}, 24),
    "start 4": (F, {"start": 4}, None),
    "in the middle": (F, {"start": 3}, 22),
    "scaled": (F, {"attention_factor": 1.3}, None),
    "into neighbours": (F, {"out_pairing": "interleaved"}, None),
    "one pair": ((1.0,), {}, None),
    "one axis with a row": ((F,), {}, None),
    "three axes": (ra.axes.chunked(F, (2, 3, 3)), {}, None),
    "two axes in blocks": (ra.axes.chunked(F, (4, 4)), {"blocks": 2}, None),
    "blocks in the middle": (ra.axes.chunked(F, (4, 4)), {"blocks": 2, "start": 2, "attention_factor": 0.7}, 20),
}
# Those that the standard operator supports
OPERATOR_KINDS = ("all features", "partial", "scaled", "one pair")


def make_rope(kind, pairing):
    """Return the Rope of a kind and pairing, and its head_dim."""
    frequencies, options, head_dim = KINDS[kind]
    return ra.Rope(frequencies, pairing=pairing, **options), head_dim


@cache
def exported(kind, pairing, dtype="float32", operator_length=None):
    """Return a rope, its checked model, and a session that runs it."""
    rope, head_dim = make_rope(kind, pairing)
    model = ra.onnx.export(rope, head_dim=head_dim, dtype=dtype, operator_length=operator_length)
    onnx.checker.check_model(model, full_check=True)
    return rope, model, session(model)


def session(model, *, optimized=True):
    """Return a session of ONNX Runtime in one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options)


def run(session, q, k, positions):
    """Return q and k rotated by a model, in any of the three dtypes."""
    if q.dtype != ml_dtypes.bfloat16:
        return session.run(None, {"q": q, "k": k, "positions": positions})
    value, number = ort.OrtValue.ortvalue_from_numpy_with_onnx_type, onnx.TensorProto.BFLOAT16
    feed = {name: value(x.view(np.uint16), number) for name, x in (("q", q), ("k", k))}
    binding = session.io_binding()
    for name, x in feed.items():
        binding.bind_ortvalue_input(name, x)
    binding.bind_cpu_input("positions", positions)
    outputs = [np.empty(x.shape, x.dtype) for x in (q, k)]
    for result, x in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_output(result.name, "cpu", 0, number, x.shape, x.ctypes.data)
    session.run_with_iobinding(binding)
    return outputs


def data(session, rng, lengths, dtype="float32", *, low=-(2**20), high=2**20):
    """Return q, k and positions for a model, of lengths (batch, heads, kv_heads, seq)."""
    batch, heads, kv_heads, seq = lengths
    head_dim, axes = session.get_inputs()[0].shape[-1], session.get_inputs()[2].shape[2:]
    q, k = (rng.standard_normal((batch, n, seq, head_dim)).astype(DTYPES[dtype]) for n in (heads, kv_heads))
    return q, k, rng.integers(low, high, (batch, seq, *axes))


def assert_agree(got, expected, atol):
    """Compare shapes, dtypes and values of two lists of arrays."""
    for ours, theirs in zip(got, expected, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), atol=atol, rtol=0)


LENGTHS = st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(1, 3), st.integers(0, 9))


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12)
@given(lengths=LENGTHS, seed=st.integers(0, 2**32 - 1))
def test_one_model_rotates_all_shapes_like_the_rope(kind, pairing, lengths, seed):
    rope, _, rotation = exported(kind, pairing)
    q, k, positions = data(rotation, np.random.default_rng(seed), lengths)
    assert_agree(run(rotation, q, k, positions), rope(q, k, positions), 1e-6)


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["in the middle", "two axes in blocks"])
def test_half_precision_is_rotated_in_float32(kind, dtype, pairing, rng):
    rope, _, rotation = exported(kind, pairing, dtype)
    q, k, positions = data(rotation, rng, (2, 4, 2, 5), dtype)
    # both round numbers that differ in float32: now and then to neighbours, which are far apart for numbers up to 4
    assert_agree(run(rotation, q, k, positions), rope(q, k, positions), 4 * float(ml_dtypes.finfo(DTYPES[dtype]).eps))


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize(("start", "features"), [(0, 16), (0, 20), (4, 20)])
def test_a_model_computes_the_papers_rotation(start, features, pairing, rng):
    options = {"pairing": pairing, "start": start, "attention_factor": 1.25}
    rotation = session(ra.onnx.export(ra.Rope(F, **options), head_dim=features))
    q, k, _ = data(rotation, rng, (2, 2, 1, 3))
    positions = np.asarray([[0, 131_072, 1_048_576], [-5, FAR, -FAR]])
    for got, x in zip(run(rotation, q, k, positions), (q, k), strict=True):
        np.testing.assert_allclose(got, oracle.rotate(x, positions[:, None], F, **options), atol=1.5e-6, rtol=0)


def table_of(rotation, rope, positions, dtype="float32"):
    """Return the table of a model: it rotates pairs (1, 0), which become (cos, sin)."""
    x = np.zeros((1, 1, len(positions), 2 * len(rope.frequencies)), dtype=DTYPES[dtype])
    pairs = np.arange(len(rope.frequencies))
    first, second = (pairs, pairs + len(pairs)) if rope.pairing == "half" else (2 * pairs, 2 * pairs + 1)
    x[..., first] = 1
    got = run(rotation, x, x, np.asarray(positions)[None])[0][0, 0]
    return got[:, first], got[:, second]


def error(got, expected):
    """Return the largest error of two lists of arrays."""
    return max(np.max(np.abs(a.astype(np.float64) - b)) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("optimized", [True, False])
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_tables_are_exact_at_any_position(pairing, optimized):
    rope = ra.Rope(WIDE, pairing=pairing)
    positions, *exact = exact_table()
    assert error(table_of(session(ra.onnx.export(rope), optimized=optimized), rope, positions), exact) <= 1.2e-7


@cache
def exact_table():
    """Return positions of all magnitudes, and their exact cosines and sines."""
    rng = np.random.default_rng(0)
    ends = [0, 1, -1, 1_048_576, 2**24 + 1, FAR, -FAR]
    positions = np.asarray([*ends, *rng.integers(0, 2**20, 20), *rng.integers(-FAR, FAR, 20)])
    return positions, *oracle.cos_sin(positions, WIDE)


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1.2e-7), ("float16", 2.5e-4)])
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_the_table_of_the_operator_is_exact_in_its_dtype(pairing, dtype, bound):
    rope, positions = ra.Rope(F, pairing=pairing), [0, 1, 2, 131_071, 262_143]
    rotation = session(ra.onnx.export(rope, operator_length=262_144, dtype=dtype))
    assert error(table_of(rotation, rope, positions, dtype), oracle.cos_sin(positions, F)) <= bound


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-6), ("float16", 1e-2)])
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("kind", OPERATOR_KINDS)
def test_the_operator_rotates_like_the_rope(kind, pairing, dtype, atol, rng):
    rope, model, rotation = exported(kind, pairing, dtype, 100)
    assert [node.op_type for node in model.graph.node if node.op_type != "Identity"] == ["RotaryEmbedding"] * 2
    for lengths in ((1, 4, 2, 7), (3, 2, 1, 1), (2, 3, 3, 5)):
        q, k, positions = data(rotation, rng, lengths, dtype, low=0, high=100)
        assert_agree(run(rotation, q, k, positions), rope(q, k, positions), atol)


@pytest.mark.parametrize("position", [-1, 100])
def test_the_operator_refuses_positions_beyond_its_table(position, rng):
    _, _, rotation = exported("all features", "half", "float32", 100)
    q, k, _ = data(rotation, rng, (1, 1, 1, 1))
    with pytest.raises(Exception, match="out of range"):
        run(rotation, q, k, np.asarray([[position]]))


@pytest.mark.parametrize("operator_length", [None, 50])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_reference_evaluator_agrees(dtype, operator_length, rng):
    rope, head_dim = make_rope("partial", "interleaved")
    model = ra.onnx.export(rope, head_dim=head_dim, dtype=dtype, operator_length=operator_length)
    onnx.checker.check_model(model, full_check=True)
    q, k, positions = data(exported("partial", "interleaved")[2], rng, (2, 3, 1, 4), dtype, low=0, high=50)
    got = reference.ReferenceEvaluator(model).run(None, {"q": q, "k": k, "positions": positions})
    atol = 1e-6 if dtype == "float32" else 8 * float(ml_dtypes.finfo(DTYPES[dtype]).eps)
    assert_agree(got, rope(q, k, positions), atol)


@pytest.mark.parametrize("operator_length", [None, 100])
def test_model_lengths_are_dynamic_and_named(operator_length):
    _, model, _ = exported("partial", "half", "float32", operator_length)
    shapes = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    q, k = ["batch", "heads", "seq", 24], ["batch", "kv_heads", "seq", 24]
    assert shapes == {"q": q, "k": k, "positions": ["batch", "seq"], "q_rotated": q, "k_rotated": k}
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 23 if operator_length else 21)]
    assert model.doc_string == repr(make_rope("partial", "half")[0])
    assert "Constant" not in {node.op_type for node in model.graph.node}


# --- arrays of ndonnx, for users who trace a model themselves ---------------------------------------------------------


def traced(function, **inputs):
    """Trace a function for unknown lengths and 16 features; return its result for NumPy data in ONNX Runtime."""
    given = {
        name: ndx.argument(shape=tuple(16 if n == 16 else None for n in x.shape), dtype=getattr(ndx, x.dtype.name))
        for name, x in inputs.items()
    }
    model = ndx.build(given, {"out": function(*given.values())})
    return session(model).run(None, inputs)[0]


def test_tables_keys_and_weights_can_be_traced(rng):
    rope = ra.Rope(F, pairing="half")
    k, w = rng.standard_normal((2, 3, 5, 16)).astype(np.float32), rng.standard_normal((16, 16)).astype(np.float16)
    old, new = np.arange(5), np.arange(5) * 7
    got = traced(rope.reposition, k=k, old=old, new=new)
    assert_agree([got], [rope.reposition(k, old, new)], 1e-6)
    got = traced(lambda x, p: rope.apply(x, rope.table(p), inverse=True), x=k[0], p=old)
    assert_agree([got], [rope.apply(k[0], range(5), inverse=True)], 1e-6)
    convert = partial(ra.weights.convert, source="interleaved", target="half", axis=-1)
    assert_agree([traced(lambda w: convert(w, 16), w=w)], [convert(w, 16)], 0)


def test_eager_ndonnx_arrays_are_rotated(rng):
    rope = ra.Rope(ra.axes.chunked(F, (4, 4)), pairing="half", blocks=2)
    x = rng.standard_normal((2, 5, 16)).astype(np.float32)
    assert_agree([rope.apply(ndx.asarray(x), 3).unwrap_numpy()], [rope.apply(x, 3)], 1e-6)


GRAPH = {name: ndx.argument(shape=("batch", "seq", 16), dtype=getattr(ndx, name)) for name in ("float32", "float64")}
ROPE = ra.Rope(F, pairing="half")


def export(kind, **options):
    """Export the Rope of a kind."""
    return ra.onnx.export(make_rope(kind, "half")[0], **options)


FIVE = ndx.asarray(np.ones((1, 5, 16), np.float32)), ndx.asarray(np.arange(5))
REFUSED = [
    ("positions must be given for each token", lambda: ROPE.apply(GRAPH["float32"])),
    ("q must not be longer than k; got None queries for 5 keys", lambda: ROPE(GRAPH["float32"], *FIVE)),
    (r"positions must be \(seq,\) .* got \(5,\)", lambda: ROPE.apply(GRAPH["float32"], FIVE[1])),
    ("dtype must not be float64 on ndonnx here", lambda: ROPE.apply(GRAPH["float64"], [1])),
    ("leave out `out`", lambda: ROPE.apply(GRAPH["float32"], [1], out=GRAPH["float32"])),
    ("give Rope.from_config", lambda: ra.onnx.export({})),
    ("head_dim must be from 20 to", lambda: export("start 4", head_dim=19)),
    ("dtype must be one of", lambda: export("one pair", dtype="float64")),
    ("which makes 2 GiB", lambda: export("all features", operator_length=2**25)),
    *(
        ("one axis, one block, one pairing and start=0", partial(export, kind, operator_length=9))
        for kind in sorted(KINDS.keys() - OPERATOR_KINDS)
    ),
]


@pytest.mark.parametrize(("message", "call"), REFUSED, ids=[f"{i} {message}" for i, (message, _) in enumerate(REFUSED)])
def test_what_a_graph_cannot_have_is_refused(message, call):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


# --- the command line -------------------------------------------------------------------------------------------------

LLAMA = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "rope_theta": 500_000.0}
GEMMA = {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6, "sliding_window": 8}


@pytest.mark.long
def test_a_config_is_exported(tmp_path):
    write_configs(tmp_path, config=LLAMA | {"model_type": "phi", "partial_rotary_factor": 0.5})
    run = process("export", "config.json", "deep/rope.onnx", "--dtype", "float16", cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    rope = ra.Rope.from_config(tmp_path)
    lines = run.stdout.splitlines()
    assert lines[0] == "q: (batch, heads, seq, 64)" and lines[2] == "positions: (batch, seq)"
    assert lines[-1] == f"deep/rope.onnx: {rope}, float16, opset 21"
    assert onnx.load(tmp_path / "deep/rope.onnx") == ra.onnx.export(rope, head_dim=64, dtype="float16")


@pytest.mark.long
def test_a_config_is_exported_with_the_operator_and_json(tmp_path):
    write_configs(tmp_path, config=GEMMA)
    options = ["--layer-type", "full_attention", "--operator-length", 30, "--json"]
    report = json.loads(process("export", "config.json", "rope.onnx", *options, cwd=tmp_path).stdout)
    assert (report["file"], report["dtype"], report["opset"]) == ("rope.onnx", "float32", 23)
    assert report["shapes"]["k_rotated"] == ["batch", "kv_heads", "seq", 64]
    rope = ra.Rope.from_config(tmp_path, layer_type="full_attention")
    assert onnx.load(tmp_path / "rope.onnx") == ra.onnx.export(rope, operator_length=30)


@pytest.mark.thread_unsafe(reason="changes the working directory")
def test_a_refused_export_writes_no_file(tmp_path):
    write_configs(tmp_path, llama=LLAMA, gemma=GEMMA)
    message = refused("export", "gemma.json", "rope.onnx", cwd=tmp_path)
    assert re.match("the config must have one rotation; got several, of .*: choose by --layer-type", message)
    message = refused("export", "llama.json", "rope.onnx", "--operator-length", -1, cwd=tmp_path)
    assert re.match("--operator-length must be from 1 to .*; got -1", message)
    assert {path.name for path in tmp_path.iterdir()} == {"llama.json", "gemma.json"}


@pytest.mark.thread_unsafe(reason="changes the working directory")
def test_a_file_is_replaced_only_on_request(tmp_path):
    write_configs(tmp_path, config=LLAMA)
    file = tmp_path / "rope.onnx"
    file.write_text("old", encoding="utf-8")
    assert "rope.onnx must not exist" in refused("export", "config.json", "rope.onnx", cwd=tmp_path)
    assert file.read_text(encoding="utf-8") == "old"
    output("export", "config.json", "rope.onnx", "--overwrite", cwd=tmp_path)
    onnx.checker.check_model(onnx.load(file))
