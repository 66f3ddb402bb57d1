"""Each library has one record, found by the type of an array; users can register more libraries."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from conftest import one_jax
from simulated import Dtype, Simulation, equal, forget_libraries, public_calls

import rope_any as ra
from rope_any import _align, _arrays, _positions, _rope, _rotate, _schedules, _table, layouts, positions, weights
from rope_any.testing import check_rotary

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
    for thing, got in (
        (np.float32(1), r"numpy.float32; make an array of it, as by asarray\(\)"),
        (memoryview(b"x"), r"memoryview; make an array of it, as by asarray\(\)"),
        (np.dtype("float32"), "numpy.Float32DType"),
        (np.random.default_rng(), "numpy.Generator"),
        ([1.0], r"list; make an array of it, as by asarray\(\)"),
        (None, "NoneType"),
        ("x", "str"),
        (object(), "object"),
    ):
        assert not _arrays.is_array(thing)
        with pytest.raises(TypeError, match=f"^x must be an array .* got {got}$"):
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


# --- arrays that are refused ------------------------------------------------------------------------------------------


def tensor_class(package, **attributes):
    """Return a class ``Tensor`` of a package; its tensors have a shape and a dtype, and `attributes`."""
    return type("Tensor", (), {"__module__": f"{package}.core", "shape": (6, 8), "dtype": "f4", **attributes})


_ROPE, _X, _AT = ra.Rope(F, pairing="half"), np.ones((6, 8), np.float32), np.arange(6)
_TABLE = _ROPE.table(_AT)
# Calls with a foreign tensor, by the argument that the error names.
_FOREIGN = {
    "q": lambda t: _ROPE(t, t),
    "k": lambda t: _ROPE(_X, t),
    "x": _ROPE.apply,
    "cos": lambda t: _ROPE(_X, _X, ra.Table(t, t)),
    "positions": lambda t: _ROPE(_X, _X, t),
    "positions of a table": _ROPE.table,
    "positions of a grid": lambda t: positions.grid(t, t),
    "positions of cos_sin": lambda t: ra.cos_sin(t, F),
    "positions of tokens": lambda t: _ROPE.apply(_X, [t] * 6),
    "frequencies": lambda t: ra.cos_sin(_AT, t),
    "like": lambda t: _ROPE.table(range(6), like=t),
    "out": lambda t: _ROPE.apply(_X, out=t),
    "the out of q": lambda t: _ROPE(_X, _X, out=(t, t)),
    "keys": lambda t: _ROPE.reposition(t, 0, 1),
    "old": lambda t: _ROPE.reposition(_X, t, 1),
    "sin": lambda t: ra.rotate(_X, _TABLE.cos, t, pairing="half"),
    "steps": ra.cumulative_angles,
    "angles": ra.from_angles,
    "cumulative_lengths": lambda t: positions.packed(t, 6),
    "starts": lambda t: positions.from_starts(t, 3),
    "mask": positions.padded,
    "w": lambda t: weights.convert(t, 8, source="half", target="interleaved"),
    "cache": lambda t: layouts.unpack(t, "vllm"),
}


@pytest.mark.parametrize("name", _FOREIGN)
def test_a_tensor_of_an_unsupported_library_is_named_with_a_way_to_convert_it(name):
    tensor = tensor_class("paddle", __dlpack__=lambda _: None, __array__=lambda _: np.ones(1))()
    argument = name.partition(" of ")[0] if name.startswith("positions") else name
    copy = "" if "out" in name else r", or by numpy.asarray\(\)"
    said = r"; paddle does not follow the array API; convert it by from_dlpack\(\) of a library that does"
    with pytest.raises(TypeError, match=f"^{argument} must be an array .* got paddle.Tensor{said}{copy}$"):
        _FOREIGN[name](tensor)


def test_the_ways_to_convert_a_tensor_are_those_that_it_has():
    no_way = "; keras does not follow the array API; convert it to an array of one that does$"
    with pytest.raises(TypeError, match=f"got keras.Tensor{no_way}"):
        ra.from_angles(tensor_class("keras")())
    frame = type("Frame", (), {"__module__": "pandas.core", "__array__": lambda *_: np.ones((6, 8))})()
    with pytest.raises(TypeError, match=r"got pandas.Frame; pandas does .*; convert it by numpy.asarray\(\)$"):
        _ROPE.apply(frame)
    np.testing.assert_array_equal(_ROPE.apply(np.asarray(frame)), _ROPE.apply(np.ones((6, 8))))
    with pytest.raises(TypeError, match=r"^k must be an array; got int; write apply"):
        _ROPE(_X, 5)
    with pytest.raises(TypeError, match=r"^positions must .* got numpy.float32; write int\(p\) for a start p"):
        _ROPE.apply(_X, np.float32(1))
    quantity = tensor_class("pint", units="m", magnitude=_X, __array__=lambda x, *_, **__: x.magnitude)()
    with pytest.raises(TypeError, match=r"got pint.Tensor; give its magnitude$"):
        _ROPE.apply(quantity)


def test_a_tensor_whose_namespace_is_empty_is_of_an_unsupported_library():
    tensor = tensor_class("things", ndim=2, __array_namespace__=lambda *_, **__: ModuleType("things"))()
    with pytest.raises(TypeError, match=r"got things.Tensor; things does not follow the array API"):
        _ROPE.apply(tensor)


def test_frequencies_in_a_tensor_without_tolist_are_converted_as_the_error_says():
    frequencies = tensor_class("tensorflow", __iter__=lambda _: iter(np.asarray(F)))()
    with pytest.raises(TypeError, match=r"got Tensor; write tuple\(map\(float, frequencies\)\)$"):
        ra.Rope(frequencies, pairing="half")
    assert ra.Rope(tuple(map(float, frequencies)), pairing="half") == _ROPE


class Quantity(np.ndarray):
    """An array with a unit, as astropy's; `unit` may be None, as that of a column of a table."""

    unit = "m"

    @property
    def value(self):
        """The numbers without their unit."""
        return self.view(np.ndarray)


_WITH_UNIT = {
    "x": lambda u: _ROPE.apply(u(_X)),
    "x interleaved": lambda u: ra.rotate(u(_X), *_TABLE, pairing="interleaved"),
    "x fused": lambda u: _ROPE.apply(u(_X), fused=True),
    "k": lambda u: _ROPE(_X, u(_X)),
    "positions": lambda u: _ROPE.apply(_X, u(_AT)),
    "positions of a table": lambda u: _ROPE.table(u(_AT)),
    "cos": lambda u: _ROPE.apply(_X, ra.Table(u(_TABLE.cos), _TABLE.sin)),
    "like": lambda u: _ROPE.table(range(6), like=u(_X)),
    "out": lambda u: _ROPE.apply(_X, out=u(_X.copy())),
    "angles": lambda u: ra.from_angles(u(_X)),
}


@pytest.mark.parametrize("name", _WITH_UNIT)
def test_arrays_with_a_unit_are_refused(name):
    argument = name.partition(" ")[0]
    hint = "Quantity, whose unit would be lost" + ("$" if name == "out" else "; give its value$")  # it may be a copy
    with pytest.raises(TypeError, match=rf"^{argument} must be a plain array; got test_arrays.{hint}"):
        _WITH_UNIT[name](lambda x: x.view(Quantity))
    _WITH_UNIT[name](lambda x: x.view(Quantity).value)


def test_arrays_with_a_mask_are_refused():
    masked = type("Masked", (np.ndarray,), {"mask": False})  # as astropy's, which is no MaskedArray
    for x in (_X.view(masked), np.ma.array(_X)):
        with pytest.raises(TypeError, match=r"^x must be a plain array; got .* mask would be lost; give its filled"):
            _ROPE.apply(x)
        with pytest.raises(TypeError, match=r"^out must be a plain array; got .* whose mask would be lost$"):
            _ROPE.apply(_X, out=x)


def test_other_subclasses_of_numpy_arrays_are_rotated():
    column = type("Column", (Quantity,), {"unit": None})
    for x in (_X.view(column), np.rec.array(_X)):
        assert type(_ROPE.apply(x)) is np.ndarray


def test_quantities_of_any_library_are_refused(monkeypatch):
    forget_libraries(monkeypatch)
    things = Simulation("things")
    x = things.asarray(_X)
    _ROPE.apply(x)
    x.units = "m"
    with pytest.raises(TypeError, match=r"^x must be a plain array; got things.ndarray, whose unit would be lost$"):
        _ROPE.apply(x)


@pytest.mark.long  # torch imports its compiler for them
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_jagged_tensors_can_be_rotated_as_the_error_says(torch):
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(n, 2, 8, generator=generator) for n in (3, 5)]
    rope, by_token = ra.Rope(F, pairing="half"), torch.nested.nested_tensor(parts, layout=torch.jagged)
    want = torch.cat([rope.apply(part, seq_axis=-3) for part in parts])
    for x, axis in ((by_token, -3), (by_token.transpose(1, 2), -2)):
        with pytest.raises(
            TypeError, match="x must be a dense array; got a nested tensor; rotate its values: "
        ) as info:
            rope.apply(x)
        call = str(info.value).partition("values: ")[2]
        found = eval(f"rope.{call}", {"rope": rope, "x": x, "positions": positions})  # noqa: S307  # our own text
        assert torch.allclose(found if axis == -3 else found.transpose(0, 1), want, atol=1e-6)
    with pytest.raises(TypeError, match=r"got a torch.sparse_coo tensor; give its to_dense"):
        rope.apply(parts[0].to_sparse())
    ragged_features = torch.nested.nested_tensor([part[:, 0] for part in parts], layout=torch.jagged).transpose(1, 2)
    for x in (torch.nested.nested_tensor(parts), ragged_features):
        with pytest.raises(TypeError, match=r"got a nested tensor; rotate each of its unbind"):
            rope.apply(x)


# --- libraries without a record ---------------------------------------------------------------------------------------


def test_a_class_with_the_operators_of_numpy_is_an_array(monkeypatch):
    forget_libraries(monkeypatch)
    things = Simulation("things")
    mixed = type("Mixed", (np.lib.mixins.NDArrayOperatorsMixin, things.ndarray), {"__module__": "mine"})
    assert _arrays.find(mixed(_X)).xp is things
    assert _arrays.find(np.lib.mixins.NDArrayOperatorsMixin()) is None


@pytest.mark.parametrize(
    ("version", "missing", "fault"),
    [
        ("2022.12", (), "is of version 2022.12"),
        ("2024.12", ("moveaxis", "take"), "lacks moveaxis, take"),
        (None, ("cumulative_sum",), "lacks cumulative_sum"),
    ],
)
def test_a_library_that_is_older_than_the_standard_is_refused(version, missing, fault, monkeypatch):
    forget_libraries(monkeypatch)

    class Old(Simulation):
        """A namespace without some functions."""

        def __getattr__(self, name):
            """Raise for the missing functions."""
            if name in missing:
                raise AttributeError(name)
            return super().__getattr__(name)

    old = Old("old")
    if version:
        old.__array_api_version__ = version
    wanted = "of a library that follows the array API 2023.12"
    with pytest.raises(TypeError, match=f"^x must be {wanted}; got old.ndarray, whose namespace {fault}; a newer"):
        _ROPE.apply(old.asarray(_X))


@pytest.mark.parametrize("readable", [True, False])
def test_a_library_without_record_keeps_constants_that_hold_numbers(readable, monkeypatch):
    forget_libraries(monkeypatch)
    things = Simulation("things")
    if readable:  # a tracer can't be read
        monkeypatch.setattr(things.ndarray, "__array__", lambda x, *_, **__: x.host)
    rope, x, at = ra.Rope(F, pairing="half"), things.asarray(_X), things.asarray(_AT)
    want, things.copies = things.asnumpy(rope.apply(x, at)), 0
    np.testing.assert_array_equal(things.asnumpy(rope.apply(x, at)), want)
    np.testing.assert_allclose(want, _ROPE.apply(_X, _AT), atol=1e-6)
    assert things.copies == (0 if readable else 1)


def test_immutable_arrays_of_a_library_without_record_are_refused_as_out(monkeypatch):
    forget_libraries(monkeypatch)
    things = Simulation("things")
    monkeypatch.delattr(things.ndarray.__base__, "__setitem__")
    x = things.asarray(_X)
    with pytest.raises(ValueError, match="out must be an array that can be written; got one whose elements"):
        _ROPE.apply(x, out=x)


def test_arrays_are_read_by_the_first_way_that_works():
    on_device = SimpleNamespace(
        __dlpack_device__=lambda: (14, 0),
        __dlpack__=lambda *, dl_device=None, **_: _X.__dlpack__() if dl_device == (1, 0) else 1 / 0,
    )
    record = _arrays.Library(name="things", xp=np)
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # `device` of `from_dlpack`
        np.testing.assert_array_equal(record.get(on_device), _X)
    np.testing.assert_array_equal(record.get(SimpleNamespace(__array__=lambda *_, **__: _X)), _X)
    with pytest.raises(TypeError, match="must be one whose values can be read; got SimpleNamespace"):
        record.get(SimpleNamespace())


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


# --- a library whose dtypes only its record can name ------------------------------------------------------------------

_CALLS = public_calls(np.asarray)


@pytest.fixture
def opaque(monkeypatch):
    """Return a registered library whose dtypes have no name; its record names them."""
    forget_libraries(monkeypatch)
    things = Simulation("things", opaque=True)
    _arrays.register(
        _arrays.Library(
            name="things",
            types=("things.ndarray",),
            xp=things,
            dtype_name=lambda dtype: dtype.numpy.name,
            get=things.asnumpy,
        )
    )
    return things


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("name", _CALLS)
def test_opaque_dtypes_pass_the_public_calls(name, opaque):
    assert equal(public_calls(opaque.asarray)[name](), _CALLS[name](), opaque.asnumpy)


def test_opaque_dtypes_can_be_given_and_are_named_in_errors(opaque):
    x, at = opaque.asarray(_X), opaque.asarray(_AT)
    for dtype in (opaque.float64, "float64", np.float64, np.dtype("float64")):
        table = _ROPE.table(at, dtype=dtype)
        assert table.cos.dtype == opaque.float64
    assert layouts.pack(table, "vllm", dtype=opaque.float32).dtype == opaque.float32
    with pytest.raises(TypeError, match=r"dtype must be float32 or .* for the layout vllm; got list \[\]$"):
        layouts.pack(table, "vllm", dtype=[])
    with pytest.raises(TypeError, match=r"dtype must be one of .*; got int64"):
        _ROPE.table(at, dtype=opaque.int64)
    with pytest.raises(TypeError, match=r"x must be floating-point .*; got int64; cast it"):
        _ROPE.apply(at[:, None] * at)
    with pytest.raises(ValueError, match=r"out must .* of x, \(6, 8\) float32; got \(6, 8\) float64$"):
        _ROPE.apply(x, out=opaque.asarray(_X, dtype=opaque.float64))
    converted = weights.convert(x, 8, source="half", target="interleaved", axis=-1)
    want = weights.convert(_X, 8, source="half", target="interleaved", axis=-1)
    np.testing.assert_array_equal(opaque.asnumpy(converted), want)


def test_functions_of_an_opaque_library_can_be_checked(opaque):
    rope = ra.Rope(ra.frequencies(16), pairing="half")
    report = check_rotary(rope.apply, pairing="half", head_dim=16, like=opaque.asarray(_X))
    assert report.passed, report
    assert repr(Dtype(np.dtype("float32"))) == "<dtype>"  # so nothing could have read the name there
