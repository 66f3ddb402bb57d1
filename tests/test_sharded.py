"""Chunked and sharded arrays: each process or device rotates its own part, without communication."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from cases import python

import rope_any as ra

pytestmark = pytest.mark.thread_unsafe(reason="starts processes")

F = ra.frequencies(24)


def failures(script, *arguments, **environment):
    """Run a script; return the failures that it reports, by case."""
    printed = python(Path(__file__).with_name(f"{script}.py"), *arguments, OMP_NUM_THREADS="1", **environment)
    return json.loads(printed.splitlines()[-1])


# --- torch: one process for each rank ---------------------------------------------------------------------------------

TORCH = importlib.util.find_spec("torch") and importlib.util.find_spec("torch.distributed.tensor")


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Return the failures of the torch cases, by number of ranks."""
    return failures("sharded_torch", tmp_path_factory.mktemp("ranks"), 2, 4)


@pytest.mark.long
@pytest.mark.skipif(not TORCH, reason="torch is not installed")
@pytest.mark.parametrize(
    ("ranks", "name"),
    [(n, name) for n in (2, 4) for name in importlib.import_module("sharded_torch").cases_of(n)] if TORCH else [],
)
def test_torch_shards_are_rotated_without_communication(groups, ranks, name):
    assert [failed[name] for failed in groups[str(ranks)] if name in failed] == []


# --- JAX: one process, eight devices ----------------------------------------------------------------------------------

JAX = importlib.util.find_spec("jax") and hasattr(importlib.import_module("jax.sharding"), "AxisType")


@pytest.fixture(scope="module")
def devices():
    """Return the failures of the JAX cases on eight CPU devices."""
    return failures("sharded_jax", XLA_FLAGS="--xla_force_host_platform_device_count=8", JAX_PLATFORMS="cpu")


@pytest.mark.long
@pytest.mark.skipif(not JAX, reason="JAX 0.5.3 or later is not installed")
@pytest.mark.parametrize("name", importlib.import_module("sharded_jax").CASES if JAX else [])
def test_jax_shards_are_rotated_without_communication(devices, name):
    assert devices.get(name) is None


# --- Dask: chunks -----------------------------------------------------------------------------------------------------


CHUNKS = {
    "batch": (1, 4, 12, 32),
    "heads": (2, 1, 12, 32),
    "seq": (2, 4, 5, 32),
    "all": (1, 2, (4, 1, 7), 32),
    "features": (2, 4, 12, (20, 12)),
}


@pytest.fixture
def da():
    """Return dask.array; skip if it is not installed."""
    return pytest.importorskip("dask.array", reason="dask is not installed")


def positions_of(da, x):
    """Return each form of positions for x."""
    as_x, rows = da.arange(12, chunks=(x.chunks[2],)), da.arange(24, chunks=24).reshape(2, 12)
    table = ra.Rope(F, pairing="half").table(as_x)
    return [None, 7, np.arange(12)[::-1].tolist(), as_x, da.arange(12, chunks=12), rows, table]


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_dask_chunks_are_rotated_without_computation(da, chunks, pairing, rng):
    import dask

    full = rng.standard_normal((2, 4, 12, 32))
    x, rope = da.from_array(full, chunks=CHUNKS[chunks]), ra.Rope(F, pairing=pairing, start=3)
    for positions in positions_of(da, x):
        with dask.config.set(scheduler=lambda *_, **__: pytest.fail("something was computed")):
            rotated = rope.apply(x, positions)
        assert rotated.chunks == x.chunks
        (host,) = dask.compute(positions, scheduler="sync")
        np.testing.assert_allclose(rotated.compute(scheduler="sync"), rope.apply(full, host), rtol=0, atol=1e-15)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_dask_tasks_per_chunk_are_constant(da, pairing):
    """Each chunk of x needs a task that makes it and one that rotates it; each chunk of tokens needs a table."""
    rope = ra.Rope(F, pairing=pairing)

    def tasks(tokens, heads):
        """Return the number of tasks of a rotation."""
        x = da.zeros((1, heads, tokens, 24), chunks=(1, 1, 64, 24))
        table = rope.table(da.arange(tokens, chunks=64), like=x)
        return len(dict(rope.apply(x, table).__dask_graph__()))

    chunks = [(tokens, heads) for tokens in (64, 640, 6400) for heads in (1, 8)]
    counts = {(n, heads): tasks(n, heads) for n, heads in chunks}
    per_table = (counts[640, 1] - counts[64, 1]) / 9 - 2  # for each chunk of tokens
    assert per_table <= 40
    for (tokens, heads), count in counts.items():
        assert count <= tokens // 64 * (2 * heads + per_table) + 10, (tokens, heads)
