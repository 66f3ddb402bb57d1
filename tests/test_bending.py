"""Bent tables: compared with matrices from the papers and with other libraries, and their documented properties."""

import numpy as np
import oracle
import pytest
from conftest import one_jax

import rope_any as ra
from rope_any import bending, positions

F = ra.frequencies(16, base=100.0)
N = len(F)
HALF, INTERLEAVED = (ra.Rope(F, pairing=pairing) for pairing in ("half", "interleaved"))
HEADS = ra.Rope(((F,),) * 3, pairing="half")
P = np.asarray([0, 3, 4, 7, 8, 500])
SHAPE = (2, 3, 6, 16)  # (batch, heads, seq, head_dim)
KEPT = 5


@pytest.fixture
def qk(rng):
    """Return random queries and keys."""
    return tuple(rng.uniform(-2, 2, SHAPE).astype(np.float32) for _ in "qk")


@pytest.fixture
def coefficients(rng):
    """Coefficients of cosines and of sines, each (heads, kept, out)."""
    return tuple(rng.uniform(-1, 1, (3, KEPT, 4)).astype(np.float32) for _ in "cs")


def assert_close(got, expected, atol=1.5e-6):
    """Compare arrays in float64."""
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(expected, np.float64), rtol=0, atol=atol)


# --- the papers' tables in float64; each pair is multiplied by the matrix ((c, −s), (s, c)) -----------------


def plain(p, frequencies=F):
    """Return float64 cosines and sines of positions."""
    angle = np.asarray(p, np.float64)[..., None] * np.asarray(frequencies)
    return np.cos(angle), np.sin(angle)


def paper_xpos(p, centre=4, base=512.0, gamma=0.4):
    """Return the tables of xPos for queries and for keys, by the paper's formula."""
    cos, sin = plain(p)
    zeta = (2 * np.arange(N) / (2 * N) + gamma) / (1 + gamma)
    scale = zeta ** ((np.asarray(p, np.float64)[..., None] - centre) / base)
    return (cos * scale, sin * scale), (cos / scale, sin / scale)


def paper_fope(p, coefficients, padding):
    """Return cosines and sines of FoPE for each head, by the paper's sums over the kept frequencies."""
    parts = zip(plain(p, F[:KEPT]), coefficients, (1.0, padding), strict=True)
    return [np.pad(one @ mix, ((0, 0), (0, 0), (0, 4)), constant_values=rest) for one, mix, rest in parts]


def paper_temperature(p, beta=0.3, length=4, offset=1):
    """Return the scaled table for queries, and the plain one for keys."""
    scale = 1 + beta * np.log(1 + np.floor((np.asarray(p) + offset) / length))
    cos, sin = plain(p)
    return (scale[:, None] * cos, scale[:, None] * sin), (cos, sin)


def scores(q, k):
    """Return q kᵀ in float64."""
    return np.asarray(q, np.float64) @ np.swapaxes(np.asarray(k, np.float64), -1, -2)


def check_against(lib, rope, arrays, tables, of_paper):
    """Compare rotated q and k with the tables of queries and of keys."""
    for x, got, (cos, sin) in zip(arrays, rope(*arrays, tables), of_paper, strict=True):
        expected = oracle.rotate_by_table(lib.get(x), cos, sin, pairing=rope.pairing)
        assert_close(lib.get(got), expected, atol=1e-13 if "float64" in str(x.dtype) else 4e-6)


@pytest.fixture(params=["half", "interleaved"])
def rope(request):
    """Return the Rope of each pairing."""
    return {"half": HALF, "interleaved": INTERLEAVED}[request.param]


@pytest.fixture(params=["float32", "float64"])
def arrays(request, lib, qk):
    """Return queries and keys of a library, in each dtype of tables; skip if the library lacks it."""
    lib.need(dtype=request.param)
    return tuple(lib(x, request.param) for x in qk)


@one_jax
def test_xpos_equals_the_papers_matrix(lib, rope, arrays):
    for given in (lib(P, "int32"), P.tolist(), lib(P, "float32")):
        tables = bending.xpos(rope.table(given, like=arrays[0]), given, centre=4)
        check_against(lib, rope, arrays, tables, paper_xpos(P))
    other = bending.xpos(rope.table(range(6), like=arrays[0]), range(6), centre=-2, scale_base=32.0, gamma=1.5)
    check_against(lib, rope, arrays, other, paper_xpos(range(6), -2, 32.0, 1.5))


@one_jax
@pytest.mark.parametrize("padding", [0.0, 1.0])
def test_fope_equals_the_papers_sum(lib, arrays, coefficients, padding):
    (cos, sin), like = paper_fope(P, coefficients, padding), arrays[0]
    c, s = map(lib, coefficients)
    table = ra.cos_sin(lib(P, "int32"), F[:KEPT], like=like)
    bent = bending.fope(table, c, s, pairs=N, sine_padding=padding)
    assert tuple(bent.cos.shape) == tuple(bent.sin.shape) == (3, 6, N)
    assert bent.cos.dtype == bent.sin.dtype == like.dtype
    check_against(lib, HEADS, arrays, bent, [(cos, sin)] * 2)
    packed = HALF.apply(arrays[0][0, ...], bent)  # (heads, tokens, features), as cos_sin's by head
    assert_close(lib.get(packed), lib.get(HEADS.apply(arrays[0], bent))[0])
    shared = bending.fope(table, c[1, ...], s[1, ...], pairs=N, sine_padding=padding)
    assert tuple(shared.cos.shape) == (6, N)
    check_against(lib, HALF, arrays, shared, [(cos[1], sin[1])] * 2)
    table = ra.cos_sin(lib(np.stack([P, P[::-1]]), "int32"), F[:KEPT], like=like)
    bent = bending.fope(table, c, s, pairs=N, sine_padding=padding)
    assert tuple(bent.cos.shape) == (2, 3, 6, N)
    batched = [np.stack([part, part[:, ::-1]]) for part in (cos, sin)]
    check_against(lib, HEADS, arrays, bent, [batched] * 2)


@one_jax
def test_temperature_equals_its_formula(lib, rope, arrays):
    for given in (lib(P, "int32"), P.tolist(), lib(P, "float32")):
        table = rope.table(given, like=arrays[0])
        bent = bending.temperature(table, given, beta=0.3, original_length=4, offset=1)
        check_against(lib, rope, arrays, (bent, table), paper_temperature(P))


# --- other libraries ----------------------------------------------------------------------------------------


def test_xpos_scores_equal_those_of_rotary_embedding_torch(torch, qk):
    peer = pytest.importorskip("rotary_embedding_torch", reason="rotary-embedding-torch is not installed")
    rotary = peer.RotaryEmbedding(16, theta=100.0, use_xpos=True)
    q, k = map(torch.tensor, qk)
    expected = [x.detach() for x in rotary.rotate_queries_and_keys(q, k)]
    p = torch.arange(6)
    got = INTERLEAVED(q, k, bending.xpos(INTERLEAVED.table(p), p, centre=3))
    for x, y in zip(got, expected, strict=True):
        assert_close(x, y)
    # rotary-embedding-torch takes another centre for each length, which does not change scores
    got = INTERLEAVED(q, k, bending.xpos(INTERLEAVED.table(p), p, centre=1000))
    assert_close(scores(*got), scores(*expected), atol=2e-5)


def peer(name):
    """Return a modeling module of transformers."""
    pytest.importorskip("transformers", minversion="5", reason="the peers are models of transformers 5")
    return pytest.importorskip(f"transformers.models.{name}.modeling_{name}")


def test_temperature_equals_that_of_llama_4(torch, monkeypatch, rng):
    llama4, seen = peer("llama4"), []
    record = lambda _, q, k, v, *__, **___: (seen.extend((q, k)), (v.transpose(1, 2), None))[1]  # noqa: E731
    monkeypatch.setattr(llama4, "eager_attention_forward", record)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    tuning = {"attn_temperature_tuning": True, "floor_scale": 4, "attn_scale": 0.1}
    layers = {"no_rope_layers": [0], "num_hidden_layers": 1, "use_qk_norm": False}
    config = llama4.Llama4TextConfig(**sizes, **layers, **tuning, attn_implementation="eager")
    layer, x = llama4.Llama4TextAttention(config, 0), torch.tensor(rng.standard_normal((2, 40, 32)).astype(np.float32))
    with torch.no_grad():
        layer(x, None, None)
        q, k = (project(x).view(2, 40, 2, 16).transpose(1, 2) for project in (layer.q_proj, layer.k_proj))
    p = torch.arange(40)
    identity = ra.Rope((0.0,) * 8, pairing="half")
    table = identity.table(p)
    bent = bending.temperature(table, p, beta=0.1, original_length=4, offset=1)
    for got, expected in zip(identity(q, k, (bent, table)), seen, strict=True):
        assert_close(got, expected, atol=1e-6)
    assert float((seen[0] - q).abs().max()) > 0.01


def test_temperature_equals_that_of_ministral_3(torch):
    p = torch.tensor([[0, 5, 8191, 8192, 16_383, 16_384, 2**24 - 1, 2**24]])  # at steps next to large positions
    expected = peer("ministral3").get_llama_4_attn_scale(p, 0.1, 8192)[0, 0, :, 0]
    table = ra.Table(torch.ones(1, 8, 1), torch.zeros(1, 8, 1))
    got = bending.temperature(table, p, beta=0.1, original_length=8192)
    assert_close(got.cos[0, :, 0], expected, atol=3e-7)


# --- xPos ---------------------------------------------------------------------------------------------------


@one_jax
def test_a_pair_of_tables_accepts_a_query_tail(lib, qk):
    (q, k), p = map(lib, qk), lib(P, "int32")
    for_q, for_k = bending.xpos(HALF.table(p), p, centre=100)
    both, tail = (for_q, for_k), (ra.BentTable(*(part[4:, :] for part in for_q)), for_k)
    # tables for all tokens, for the tail alone, and plain ones; what they are compared with has all queries
    for tables, all_tables in ((both, both), (tail, both), ((HALF.table(p[4:]), HALF.table(p)), p)):
        got, expected = HALF(q[:, :, 4:, :], k, tables), HALF(q, k, all_tables)
        assert_close(lib.get(got[0]), lib.get(expected[0])[:, :, 4:])
        assert_close(lib.get(got[1]), lib.get(expected[1]))


def scale_of(lib, table):
    """Return the factors by which a table was scaled, one for each token and pair."""
    return np.hypot(lib.get(table.cos).astype(np.float64), lib.get(table.sin).astype(np.float64))


@one_jax
def test_xpos_distances_to_the_centre_are_exact(lib):
    near, base = np.arange(6), 2**31 - 100
    like = lib([1.0], "float32")
    expected = bending.xpos(HALF.table(near.tolist(), like=like), near.tolist(), centre=2, scale_base=1.0)
    for far in (lib(near + base, "int32"), (near + base).tolist(), range(base, base + 6)):
        got = bending.xpos(HALF.table(far, like=like), far, centre=base + 2, scale_base=1.0)
        for x, y in zip(got, expected, strict=True):
            np.testing.assert_allclose(scale_of(lib, x), scale_of(lib, y), rtol=2e-6)
    half = bending.xpos(HALF.table([1000.25], like=like), [1000.25], centre=1000, scale_base=1.0)
    zeta = (np.arange(N) / N + 0.4) / 1.4
    np.testing.assert_allclose(scale_of(lib, half[0])[0], zeta**0.25, rtol=1e-6)


# --- temperature --------------------------------------------------------------------------------------------


@one_jax
def test_temperature_steps_are_exact_and_padding_is_not_scaled(lib):
    p = np.asarray([-(2**30), -9, -2, -1, 0, 8190, 8191, 8192, 2**30 - 2, 2**30 - 1, 2**30])
    like = lib([1.0], "float32")
    steps = np.maximum((p + 1) // 8192, 0)
    for given in (lib(p, "int32"), p.tolist()):
        bent = bending.temperature(HALF.table(given, like=like), given, beta=0.1, original_length=8192, offset=1)
        np.testing.assert_allclose(scale_of(lib, bent)[:, 0], 1 + 0.1 * np.log1p(steps), rtol=3e-7)
    reals = [3.5, 3.99, 4.01, 7.75, 8.25, -0.5]
    for given in (lib(reals, "float32"), reals):
        bent = bending.temperature(HALF.table(given, like=like), given, beta=2.0, original_length=4)
        np.testing.assert_allclose(scale_of(lib, bent)[:, 0], 1 + 2 * np.log1p([0, 0, 1, 1, 2, 0]), rtol=3e-7)


# --- LongRoPE's first tokens ----------------------------------------------------------------------------------


@one_jax
def test_the_first_tokens_are_unscaled_and_the_others_scaled(lib, qk):
    x = lib(qk[0])
    slow = [f / (1.0 + i) for i, f in enumerate(F)]
    both = ra.Rope((F, slow), pairing="half")
    first, others = (ra.Rope(f, pairing="half").apply(qk[0], P) for f in (F, slow))
    apply = lib.quick(both.apply)
    for count in (0, 4, 5, 501):
        expected = np.where(P[:, None] < count, first, others)
        for given in (lib(P, "int32"), lib(P, "float32"), P.tolist(), [float(n) for n in P]):
            by_axis = positions.unscaled_first(given, count, like=x)
            assert tuple(by_axis.shape) == (6, 2)
            assert_close(lib.get(apply(x, by_axis)), expected)
    assert np.abs(first - others)[..., 2:, :].max() > 0.1
    batch = positions.unscaled_first(lib(np.stack([P, P[::-1]]), "int32"), 4)
    rotated = lib.get(apply(x[:1, ...], batch[:1, ...])), lib.get(apply(x[1:, ...], batch[1, ...]))
    assert_close(lib.get(apply(x, batch)), np.concatenate(rotated))


# --- axes of a batch and of heads ---------------------------------------------------------------------------


@one_jax
@pytest.mark.parametrize(("batch", "heads", "seq"), [(2, 3, 6), (1, 3, 1), (2, 1, 6)])
def test_tables_by_batch_head_and_token_are_applied(lib, rng, batch, heads, seq):
    x = rng.uniform(-2, 2, (2, 3, 2, 6, 16)).astype(np.float32)  # (batch, heads, group, seq, head_dim)
    p = rng.integers(-99, 99, (batch, heads, seq))
    expected = oracle.rotate_by_table(x, *(part[:, :, None] for part in plain(p)), pairing="half")
    table = HALF.table(lib(p, "int32"))
    for given in (table, ra.BentTable(*table)):
        assert_close(lib.get(HALF.apply(lib(x), given)), expected)
        assert_close(lib.get(HALF.apply(lib(x[:, :, 0]), given)), expected[:, :, 0])


# --- compilers, gradients and types -------------------------------------------------------------------------


@pytest.mark.thread_unsafe(reason="torch's compiler is reset, for all threads")
def test_bent_tables_keep_their_type_in_torch(torch):
    pytree = pytest.importorskip("torch.utils._pytree")
    bent, x = ra.BentTable(torch.ones(3, 8), torch.zeros(3, 8)), torch.ones(3, 16)
    assert type(pytree.tree_map(lambda x: x + 1, bent)) is ra.BentTable
    torch.compiler.reset()
    twice = torch.compile(lambda t: (type(t)(t.cos * 2, t.sin), isinstance(t, ra.BentTable)), fullgraph=True)
    for table in (bent, ra.Table(*bent)):  # another type compiles another graph
        got, is_bent = twice(table)
        assert type(got) is type(table) and is_bent is (table is bent)

    class Module(torch.nn.Module):
        """A module that takes a table as an input."""

        def forward(self, x, table):
            """Return x rotated by the table."""
            return HALF.apply(x, table)

    assert_close(torch.export.export(Module(), (x, bent)).module()(x, bent), HALF.apply(x, bent))
    with pytest.raises(RuntimeError, match="not a rotation"):
        torch.compile(lambda x, t: HALF.apply(x, t, inverse=True), fullgraph=True)(x, bent)


def test_bent_tables_keep_their_type_in_jax(jax):
    bent = ra.BentTable(jax.numpy.ones((3, 8)), jax.numpy.zeros((3, 8)))
    for got in (jax.jit(lambda t: t)(bent), jax.tree.map(lambda x: x + 1, bent), jax.vmap(lambda t: t)(bent)):
        assert type(got) is ra.BentTable
    assert type(jax.jit(lambda t: t)(ra.Table(*bent))) is ra.Table


def test_torch_gradients_reach_the_coefficients(torch, rng):
    x = torch.tensor(rng.uniform(-1, 1, (2, 3, 2, 16)), requires_grad=True)
    c, s = (torch.tensor(rng.uniform(-1, 1, (3, KEPT, 4)), requires_grad=True) for _ in "cs")
    p = torch.tensor([1.5, 70.25], dtype=torch.float64, requires_grad=True)

    def rotary(x, c, s, p):
        """Return x rotated by a FoPE table with coefficients."""
        return HEADS.apply(x, bending.fope(ra.cos_sin(p, F[:KEPT]), c, s, pairs=N, sine_padding=1.0))

    assert torch.autograd.gradcheck(rotary, (x, c, s, p))
    assert torch.autograd.gradcheck(lambda x, p: HALF(x, x, bending.xpos(HALF.table(p), p, centre=9)), (x, p))
    identity = ra.Rope((0.0,) * N, pairing="half")
    warmed = lambda p: bending.temperature(identity.table(p), p, beta=0.1, original_length=4)  # noqa: E731
    assert torch.autograd.gradcheck(lambda x, p: identity.apply(x, warmed(p)), (x, p))


@pytest.mark.parametrize("jitted", [False, True])
def test_jax_gradients_reach_the_coefficients(jax, rng, coefficients, jitted):
    x = jax.numpy.asarray(rng.uniform(-1, 1, SHAPE).astype(np.float32))
    table = ra.cos_sin(jax.numpy.asarray(P), F[:KEPT])

    def total(c, s):
        """Return the sum of x rotated by a FoPE table with coefficients."""
        return HEADS.apply(x, bending.fope(table, c, s, pairs=N, sine_padding=0.0)).sum()

    grad = jax.grad(total, argnums=(0, 1))
    grad_c, grad_s = (jax.jit(grad) if jitted else grad)(*map(jax.numpy.asarray, coefficients))
    # Σ (a c − b s) + (b c + a s):  ∂/∂c = Σ cos·(a + b),  ∂/∂s = Σ sin·(a − b)
    a, b = x[..., :4], x[..., N : N + 4]
    cos, sin = plain(P, F[:KEPT])
    assert_close(grad_c, np.einsum("sk,bhsj->hkj", cos, a + b), atol=2e-5)
    assert_close(grad_s, np.einsum("sk,bhsj->hkj", sin, a - b), atol=2e-5)
