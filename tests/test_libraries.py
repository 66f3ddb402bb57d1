"""Any array library: its check by `check_library`, and records that are registered, as the page describes them."""

import re
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import proof_table
import pytest
from simulated import HostArray, Simulation, forget_libraries

from rope_any.arrays import Library, State, register
from rope_any.testing import calls, check_library


@pytest.fixture
def things(monkeypatch):
    """Return a simulated library; the test registers its record for itself alone."""
    forget_libraries(monkeypatch)
    return Simulation("things")


def record(things, **fields):
    """Return the record of a simulated library."""
    return Library(**{"name": "things", "types": ("things.ndarray",), "xp": things, "get": things.asnumpy} | fields)


# --- check_library ----------------------------------------------------------------------------------------------------


def assert_passes(report, *, dtypes, mutable):
    """Raise unless all calls are right but those for which the library has no dtype, or whose arrays are immutable."""
    missing = {name for name, call in calls().items() if not {str(a.dtype) for a in call.arrays} <= {*dtypes, "int32"}}
    assert report and report.wrong == report.fields == {}
    assert report.refused.keys() == missing | ({"apply, out"} if not mutable else set())
    assert len(report.right) + len(report.refused) == len(calls())


def test_every_library_passes(lib):
    if lib.name.startswith("jax"):
        pytest.skip("it compiles each eager operation, for a minute: a longer test")
    assert_passes(check_library(lib.put, lib.get), dtypes=lib.dtypes, mutable=lib.mutable)


@pytest.mark.long
def test_jax_passes(jax):
    assert_passes(check_library(jax.numpy.asarray, np.asarray), dtypes=("float16", "float32"), mutable=False)


# field -> what stands there instead, and is named
FAULTS = {
    "dtype_name": lambda _: "real",
    "get": lambda _: np.zeros((2, 3, 4), np.float32),
    "device_kwargs": lambda _: {"place": 0},
    "has_float64_cosine": True,
    "astype": lambda x, _: x,
    "concat": lambda parts: parts[0],
    "stack": lambda parts, **_: parts[0],
    "matmul": lambda a, _: a,
    "cumulative_sum": lambda x, **_: x,
    "cumulative_max": lambda x: -x,
    "reshape_last_axes": lambda x, *_: x,
    "broadcast_to_rank": lambda x, _: x[:2],
    "empty_like": lambda _: None,
    "why_read_only": lambda *_: None,
    "state": lambda *_: State.HOST,
    "placement": lambda x: len(x.shape),
    "add_facts": lambda _, facts: not facts.append(0),
}


@pytest.mark.parametrize("field", FAULTS)
def test_the_field_of_a_record_that_is_wrong_is_named(field, things, monkeypatch):
    if field == "has_float64_cosine":
        rough = lambda x: things.sin(x + np.pi / 2) * (1 + 1e-9)  # noqa: E731
        monkeypatch.setattr(things, "cos", rough, raising=False)
    if field == "why_read_only":
        monkeypatch.delattr(HostArray, "__setitem__")
    register(record(things, **{field: FAULTS[field]}))
    report = check_library(things.asarray, things.asnumpy)
    assert field in report.fields
    assert f"  {field}: {report.fields[field]}" in str(report)


# --- worked examples --------------------------------------------------------------------------------------------------


def run_block(start):
    """Run the code of the page `your-library` that contains this text."""
    page = Path(__file__).parent.parent / "docs" / "your-library.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(next(block for block in blocks if start in block), {})  # noqa: S102  # the page is ours


def test_a_renamed_library_of_the_standard_has_a_record_of_three_lines(tmp_path, monkeypatch):
    strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    shutil.copytree(Path(strict.__file__).parent, tmp_path / "mine")
    monkeypatch.syspath_prepend(tmp_path)
    mine = import_module("mine")
    forget_libraries(monkeypatch)
    register(Library(name="mine", types=("mine.Array",), xp=mine, state=lambda *_: State.EAGER))
    assert_passes(check_library(mine.asarray, np.from_dlpack), dtypes=("float32", "float64"), mutable=True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "wrong"), [("cubed", {"convert", "grid, array", "shard, documents"}), ("paddle", {"cumulative_angles"})]
)
def test_the_records_of_the_page_are_right(name, wrong, monkeypatch):
    library = pytest.importorskip(name, reason=f"{name} is not installed")
    forget_libraries(monkeypatch)
    run_block(f"import {name}")
    put, get = (library.to_tensor, lambda x: x.numpy()) if name == "paddle" else (cubed_array, lambda x: x.compute())
    report = check_library(put, get)
    assert {call.partition(",")[0] for call in report.wrong} <= {call.partition(",")[0] for call in wrong}
    assert {"apply, out"} == report.refused.keys()


def cubed_array(data):
    """Return an array of cubed."""
    import cubed.array_api

    return cubed.array_api.asarray(data)


@pytest.mark.long
def test_dpnp_needs_no_record():
    dpnp = pytest.importorskip("dpnp", reason="dpnp is not installed")
    try:
        dpnp.ones(1)
    except Exception as error:  # noqa: BLE001  # of its own kinds, if there is no device
        pytest.skip(f"dpnp finds no device: {error}")
    assert_passes(check_library(dpnp.asarray, dpnp.asnumpy), dtypes=("float16", "float32", "float64"), mutable=True)


def test_the_table_of_proofs_has_every_library_of_the_tests():
    assert proof_table.PAGE.read_text(encoding="utf-8") == f"{proof_table.table()}\n"  # else run it with --write
