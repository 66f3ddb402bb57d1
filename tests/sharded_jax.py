"""
Run the JAX cases of `test_sharded` on eight devices: compiled programs don't communicate, and keep shardings.

``python tests/sharded_jax.py`` prints the tracebacks of the cases that failed, by name, as JSON.
"""

import json
import re
from itertools import islice, product

import jax
import numpy as np
from cases import failures, registry
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import rope_any as ra
from rope_any import positions as at

CASES, case = registry()
COLLECTIVES = re.compile(r"all-reduce|all-gather|all-to-all|collective|reduce-scatter|(?<![\w-])send|recv")
F = ra.frequencies(24)
ROPES = {
    "half": ra.Rope(F, pairing="half"),
    "interleaved": ra.Rope(F, pairing="interleaved"),
    "partial": ra.Rope(ra.frequencies(16), pairing="half", start=4, attention_factor=1.5),
    "blocks": ra.Rope(F, pairing="half", blocks=3),
    "axes": ra.Rope((F, F[::-1]), pairing="interleaved"),
}
SHAPE = (8, 8, 16, 24)
LAYOUTS = {
    "batch": P("one", None, None, None),
    "heads": P(None, "one", None, None),
    "seq": P(None, None, "one", None),
    "batch and seq": P("one", None, "two", None),
    "heads and seq": P(None, "one", "two", None),
    "seq twice": P(None, None, ("one", "two"), None),
}
ROWS = (5, 6)  # of all forms of positions, those that are sharded by the batch and the tokens
KINDS = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}


def mesh_of(kind, layout):
    """Return a mesh of eight devices, of one axis type, with the axes of the layout."""
    shape = (4, 2) if "two" in str(LAYOUTS[layout]) else (8, 1)
    return jax.make_mesh(shape, ("one", "two"), axis_types=(KINDS[kind],) * 2)


def put(mesh, x, *spec):
    """Return an array sharded over the mesh."""
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def random(*shape):
    """Return random numbers as a NumPy array."""
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def all_positions(mesh, layout, rope):
    """Yield each form of positions that a call accepts, and the same positions for NumPy."""
    batch, _, seq, _ = LAYOUTS[layout]
    count = 1 if isinstance(rope.frequencies[0], float) else len(rope.frequencies)
    ends = () if count == 1 else (count,)
    each = np.arange(16 * count, dtype=np.int32).reshape(16, *ends) * 101
    rows = each + 7 * np.arange(8, dtype=np.int32).reshape(8, *([1] * each.ndim))
    yield None, None
    yield 1000, 1000
    yield each.tolist(), each
    yield put(mesh, each), each
    yield put(mesh, each, seq), each
    yield put(mesh, rows, batch, seq), rows
    yield rope.table(put(mesh, each, seq)), each
    yield rope.table(each.tolist(), like=put(mesh, each)), each


def require_no_communication(function, *arrays):
    """Run a compiled function; raise if its program communicates."""
    compiled = jax.jit(function).lower(*arrays).compile()
    assert not COLLECTIVES.search(compiled.as_text())
    return compiled(*arrays)


def agree(got, wanted, x):
    """Compare the sharding of a result with that of x, and its values with expected ones."""
    assert got.sharding.is_equivalent_to(x.sharding, x.ndim), got.sharding
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=0, atol=2e-6)


def compare(kind, rope, layout, forms, *, by_table=False):
    """Compare x rotated at positions of some forms with NumPy's result: compiled, and eager (by a table if asked)."""
    # In an explicit mesh shardings are part of the types, in eager and compiled code: there one eager layout is enough.
    eager = kind == "auto" or (by_table and layout == "batch and seq")
    mesh, whole = mesh_of(kind, layout), random(*SHAPE)
    with jax.set_mesh(mesh):
        x = put(mesh, whole, *LAYOUTS[layout])
        for given, plain in islice(all_positions(mesh, layout, rope), *forms):
            wanted = rope.apply(whole, plain)  # NumPy compiles nothing
            if eager:
                agree(rope.apply(x, jax.jit(rope.table)(given) if by_table else given), wanted, x)
            if isinstance(given, jax.Array | ra.Table):
                agree(require_no_communication(rope.apply, x, given), wanted, x)
            else:
                agree(require_no_communication(lambda x, given=given: rope.apply(x, given), x), wanted, x)


@case(*product(KINDS, ["batch and seq"]))
def positions(kind, layout):
    """Compare all forms of positions."""
    compare(kind, ROPES["half"], layout, (None,))


@case(*product(KINDS, ["interleaved"], LAYOUTS), *product(KINDS, ["partial", "blocks", "axes"], ["heads and seq"]))
def layouts(kind, name, layout):
    """Compare all layouts, and other kinds of Rope."""
    # eager tables take forty compilations for each layout: those of the other cases are enough
    compare(kind, ROPES[name], layout, ROWS, by_table=True)


@case(*product(KINDS, ["partial"]))
def outside_of_the_context_of_the_mesh(kind, name):
    """Compare a call outside of the context of the mesh."""
    mesh, whole = mesh_of(kind, "seq"), random(*SHAPE)
    x = put(mesh, whole, *LAYOUTS["seq"])
    agree(ROPES[name].apply(x), ROPES[name].apply(whole), x)


@case("auto")
def communication_is_detected(kind):
    """Check that communication is detected: x is sharded along its features."""
    x = put(mesh_of(kind, "seq"), random(*SHAPE), None, None, None, "one")
    try:
        require_no_communication(ROPES["half"].apply, x)
    except AssertionError:
        return
    raise AssertionError


@case(*product(KINDS, ["batch and seq", "heads and seq"]))
def gradients(kind, layout):
    """Compare the gradient of x with the inverse rotation."""
    mesh, rope, whole = mesh_of(kind, layout), ROPES["half"], random(*SHAPE)
    with jax.set_mesh(mesh):
        x = put(mesh, whole, *LAYOUTS[layout])
        got = require_no_communication(lambda x, g: jax.vjp(rope.apply, x)[1](g)[0], x, x)
    agree(got, rope.apply(whole, inverse=True), x)


@case(*product(KINDS, ("zigzag", "chunks")))
def shard_map(kind, order):
    """Compare a rotation inside of `shard_map`, in which each device computes the positions of its tokens."""
    mesh, rope, whole, zigzag = mesh_of(kind, "seq"), ROPES["half"], random(*SHAPE), order == "zigzag"
    order_of_tokens = np.concatenate([at.shard(16, 8, rank, zigzag=zigzag, like=whole) for rank in range(8)])

    def rotated(part):
        """Return the shard of a device, rotated at the positions of its tokens."""
        return rope.apply(part, at.shard(16, 8, jax.lax.axis_index("one"), zigzag=zigzag))

    with jax.set_mesh(mesh):
        x = put(mesh, whole[:, :, order_of_tokens], *LAYOUTS["seq"])
        mapped = jax.shard_map(rotated, mesh=mesh, in_specs=P(None, None, "one"), out_specs=x.sharding.spec)
        got = require_no_communication(mapped, x)
    agree(got, rope.apply(whole[:, :, order_of_tokens], order_of_tokens), x)


if __name__ == "__main__":
    assert jax.device_count() == 8
    print(json.dumps(failures(CASES)))
