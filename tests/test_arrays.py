"""Each library has one record, found by the type of an array; users can register more libraries."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from conftest import one_jax

import rope_any as ra
from rope_any import _align, _arrays, _positions, _rope, _rotate, _schedules, _table

TESTS = Path(__file__).parent
F = ra.frequencies(8)


# --- the record of an array -------------------------------------------------------------------------------------------


def test_each_library_of_the_matrix_has_a_record(lib):
    record = _arrays.find(lib(np.ones(3, dtype=np.float32)))
    package = {"torch-cpu": "torch", "torch-cuda": "torch", "jax-x64": "jax"}.get(lib.name, lib.name)
    assert record.name == ("array_api_strict" if package.startswith("array-api-strict") else package)
    assert _arrays.find(lib(np.zeros((2, 0), dtype=np.int32))) is record


def test_subclasses_are_arrays_of_their_library(tmp_path):
    numpy = _arrays.find(np.ones(1))
    assert _arrays.find(np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(3,))) is numpy
    torch = pytest.importorskip("torch", reason="torch is not installed")
    plain = _arrays.find(torch.ones(1))
    subclass = type("Subclass", (torch.Tensor,), {"__module__": "somewhere.else"})
    for x in (torch.nn.Parameter(torch.ones(1)), torch.ones(1).as_subclass(subclass)):
        assert _arrays.find(x) is plain
    with torch._subclasses.fake_tensor.FakeTensorMode():
        assert _arrays.find(torch.ones(1)) is plain


def test_objects_that_imitate_arrays_have_no_record():
    class Imitation:
        """A class with torch's hook that is not a tensor."""

        def __torch_function__(self, *_):
            """Fail if torch calls the hook."""
            raise NotImplementedError

    if find_spec("torch"):
        assert _arrays.find(Imitation()) is None
    for thing in (np.float32(1), np.dtype("float32"), np.random.default_rng(), [1.0], None, "x", object()):
        assert not _arrays.is_array(thing)
        hint = r"; make an array of it, as by asarray\(\)" if isinstance(thing, list) else ""
        with pytest.raises(TypeError, match=f"^x must be an array .* got {type(thing).__name__}{hint}$"):
            _arrays.require_array("x", thing)


@pytest.mark.usefixtures("jax")
def test_arrays_of_older_versions_of_jax_are_found():
    array = type("ArrayImpl", (), {"__module__": "jaxlib.xla_extension"})  # without a base class of jax
    assert _arrays.find(array()).name == "jax"


def test_classes_of_one_namespace_share_a_record():
    def array_class(name, **more):
        """Return a new class of arrays with NumPy as its namespace."""
        return type(name, (), {"__module__": "ducks", "__array_namespace__": lambda *_, **__: np, **more})

    first, second = array_class("First"), array_class("Second", __torch_function__=None)
    assert _arrays.find(first()) is _arrays.find(second()) is not None
    assert _arrays.library(x=first(), y=second()).name == "ducks"


def test_tracers_are_arrays_of_their_library(jax):
    record, seen = _arrays.find(jax.numpy.ones(1)), []

    def find_record(x):
        """Record what `find` returns for a tracer; return a sum to trace."""
        seen.append(_arrays.find(x))
        return (x * x).sum()

    jax.jit(find_record)(jax.numpy.ones(3))
    jax.vmap(find_record)(jax.numpy.ones((2, 3)))
    jax.grad(find_record)(jax.numpy.ones(3))
    jax.jit(jax.vmap(jax.grad(find_record)))(jax.numpy.ones((2, 3)))
    assert seen == [record] * 4


@one_jax
def test_the_record_is_looked_up_once_in_a_call(lib, monkeypatch):
    if lib.name == "dask":
        pytest.skip("the library of each chunk is looked up too")
    seen = []
    for module in (_align, _positions, _rope, _rotate, _schedules, _table):
        if hasattr(module, "library"):
            monkeypatch.setattr(module, "library", lambda **named: seen.append([*named]) or _arrays.library(**named))
    rope, x = ra.Rope(F, pairing="half"), lib(np.ones((1, 2, 3, 8), dtype=np.float32))
    table, positions = rope.table(range(3), like=x), lib(np.arange(3), "int32")
    names = {"q", "k", "x", "keys", "cos", "sin", "positions", "old", "new"}
    for call in (
        lambda: rope(x, x, table),
        lambda: rope(x, x, 1000),
        lambda: rope(x, x, positions),
        lambda: rope.apply(x, range(3)),
        lambda: rope.reposition(x, positions, 5),
        lambda: ra.rotate(x, *table, pairing="half"),
    ):
        seen.clear()
        ra.clear_caches()
        call()
        assert len(seen) == 1 and {*seen[0]} <= names


_TRACED_FIRST = """
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", category=DeprecationWarning)  # torch's own
import numpy as np, torch
import rope_any as ra
from rope_any import _align, _arrays, _positions, _rope, _rotate, _schedules, _table
rope, x, runs = ra.Rope(ra.frequencies(8), pairing="half"), torch.randn(1, 2, 3, 8), []
def backend(graph, _):
    runs.append(1)
    return graph.forward
compiled = torch.compile(lambda x: rope.apply(x, 5), fullgraph=True, backend=backend)
known = dict(_arrays._BY_TYPE), dict(_arrays._BY_CLASS)
first = compiled(x)  # the first array of the process
assert known == (_arrays._BY_TYPE, _arrays._BY_CLASS), "a record was kept while torch.compile traced"
rope.apply(x.numpy(), 5)  # another library, then a registered one
_arrays.register(_arrays.Library(name="other", types=("other.Array",), xp=np))
assert torch.equal(compiled(x), first)
assert torch.allclose(first, rope.apply(x, 5))
print("compiled", len(runs))
"""


@pytest.mark.long
@pytest.mark.usefixtures("torch")
@pytest.mark.thread_unsafe(reason="starts a process")
def test_the_record_is_found_under_torch_compile_without_cache_or_warning():
    run = subprocess.run([sys.executable, "-c", _TRACED_FIRST], capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("compiled 1\n", 0), run.stderr


# --- a registered library, as CONTRIBUTING.md describes it ----------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        ("numpy", TypeError, "record must be a Library; got str"),
        (_arrays.Library(name="other", xp=np), ValueError, r"types must be classes .*; got \(\)"),
        (_arrays.Library(name="other", xp=np, types="a.B"), ValueError, r"types must be classes .*; got 'a.B'"),
        (_arrays.Library(name="other", xp=np, types=("a.b.C",)), ValueError, r"types must be classes"),
        (_arrays.Library(name="other", xp=np, types=("numpy.ndarray",)), ValueError, "without a file here; got"),
    ],
)
def test_invalid_records_are_refused(record, error, message):
    with pytest.raises(error, match=message):
        _arrays.register(record)


# Arrays of this library have no `device`, so the record has `device_kwargs`.
_ENTRY = """
def _other_strict() -> Iterator[Library]:
    import other_strict as strict
    from rope_any._arrays import Library as Record, register

    register(
        Record(
            name="other_strict",
            types=("other_strict.Array",),
            xp=strict,
            device_kwargs=lambda _: {},
            has_float64=lambda _: True,
        )
    )

    def put(a: np.ndarray) -> Any:
        return strict.asarray(a, copy=True)

    yield Library("other_strict", strict, put, lambda x: np.from_dlpack(x), DTYPES[2:])


LIBRARIES: dict[str, Callable[[], Iterator[Library]]] = {
    "other_strict": _other_strict,
"""


@pytest.mark.thread_unsafe(reason="starts a process")
def test_a_registered_library_passes_the_tests_of_tables_and_rotations(tmp_path):
    strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    package = tmp_path / "other_strict"
    shutil.copytree(Path(strict.__file__).parent, package, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    for file in package.rglob("*.py"):
        text = file.read_text(encoding="utf-8").replace("array_api_strict", "other_strict")
        text = re.sub(r"\.device\b", "._device", text).replace("def device(self)", "def _place(self)")
        file.write_text(text, encoding="utf-8")
    for name in ("conftest.py", "oracle.py", "test_table.py", "test_rotate.py"):
        shutil.copy(TESTS / name, tmp_path / name)
    matrix = (tmp_path / "conftest.py").read_text(encoding="utf-8")
    head = "LIBRARIES: dict[str, Callable[[], Iterator[Library]]] = {\n"
    assert matrix.count(head) == 1
    (tmp_path / "conftest.py").write_text(matrix.replace(head, _ENTRY.lstrip("\n")), encoding="utf-8")
    options = ["-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", "other_strict", "-m", "not slow"]
    run = subprocess.run(
        [sys.executable, *options, "-c", os.devnull, "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(ra.__file__).parent.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert int(run.stdout.split(" passed")[0].split()[-1]) > 60
