"""Which objects are arrays, and of which library; what is refused with a way to convert it; more libraries."""

import re
from types import ModuleType

import numpy as np
import pytest
from cases import python
from public_calls import READING
from simulated import Dtype, HostArray, Simulation, forget_libraries, register_opaque

import rope_any as ra
from rope_any import layouts, positions, weights
from rope_any.arrays import Library, register
from rope_any.testing import check_library, check_rotary

F = ra.frequencies(8)


@pytest.fixture
def things(monkeypatch):
    """Return a simulated library without a record."""
    forget_libraries(monkeypatch)
    return Simulation("things")


# --- the library of an array ------------------------------------------------------------------------------------------


def library_of(x):
    """Return the name of the library of an array, as the error of a call with an array of NumPy too tells it."""
    with pytest.raises(TypeError, match="q and k must come from one array library; got q of numpy") as info:
        _ROPE(_X, x)
    return re.search(r"k of (\w+)", str(info.value))[1]


@pytest.mark.usefixtures("jax")
def test_arrays_of_older_versions_of_jax_are_found():
    array = type("ArrayImpl", (), {"__module__": "jaxlib.xla_extension"})  # without a base class of jax
    assert library_of(array()) == "jax"


def test_subclasses_of_tensors_are_tensors(torch):
    subclass = type("Subclass", (torch.Tensor,), {"__module__": "somewhere.else"})
    for x in (torch.nn.Parameter(torch.ones(6, 8)), torch.ones(6, 8).as_subclass(subclass)):
        assert library_of(x) == "torch"
        assert (_ROPE.apply(x) == _ROPE.apply(torch.ones(6, 8))).all()


def test_results_of_numpys_subclasses_are_of_its_own_class():
    x = np.ones((6, 10), np.float32).view(type("Subclass", (np.ndarray,), {"__array_priority__": 10}))
    assert [type(_ROPE.apply(part)) for part in (x, x[:, :8])] == [np.ndarray] * 2


def test_a_class_with_the_operators_of_numpy_is_of_the_library_of_its_namespace(things):
    mixed = type("Mixed", (np.lib.mixins.NDArrayOperatorsMixin, things.ndarray), {"__module__": "mine"})
    assert library_of(mixed(_X)) == "mine"


NO_ARRAYS = [
    *(np.float32(1), memoryview(b"x"), [1.0], np.dtype("float32"), np.lib.mixins.NDArrayOperatorsMixin(), None),
    type("Imitation", (), {"__torch_function__": lambda *_: 1 / 0})(),  # with torch's hook
]


@pytest.mark.parametrize("thing", NO_ARRAYS, ids=lambda thing: type(thing).__name__)
def test_objects_that_are_no_arrays_are_refused(thing):
    hint = "; make an array of it" if isinstance(thing, np.float32 | memoryview | list) else "$"
    with pytest.raises(TypeError, match=f"^x must be an array .* got ([a-z_]+.)?{type(thing).__name__}{hint}"):
        _ROPE.apply(thing)


_TRACED_FIRST = """
import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", category=DeprecationWarning)  # torch's own
import torch
import rope_any as ra
rope, x, runs = ra.Rope(ra.frequencies(8), pairing="half"), torch.randn(1, 2, 3, 8), []
def backend(graph, _):
    runs.append(1)
    return graph.forward
compiled = torch.compile(lambda x: rope.apply(x, 5), fullgraph=True, backend=backend)
first = compiled(x)  # the first array of the process
rope.apply(x.numpy(), 5)  # another library
assert torch.equal(compiled(x), first)
assert torch.allclose(first, rope.apply(x, 5))
print("compiled", len(runs))
"""


@pytest.mark.long
@pytest.mark.usefixtures("torch")
@pytest.mark.thread_unsafe(reason="starts a process")
def test_the_first_array_of_a_process_can_be_traced_without_warning_or_recompilation():
    assert python("-c", _TRACED_FIRST) == "compiled 1\n"


# --- arrays that are refused ------------------------------------------------------------------------------------------


def tensor_class(package, **attributes):
    """Return a class ``Tensor`` of a package; its tensors have a shape and a dtype, and `attributes`."""
    return type("Tensor", (), {"__module__": f"{package}.core", "shape": (6, 8), "dtype": "f4", **attributes})


_ROPE, _X, _AT = ra.Rope(F, pairing="half"), np.ones((6, 8), np.float32), np.arange(6)
_TABLE = _ROPE.table(_AT)
# Calls with a foreign tensor, by the argument that the error names.
_FOREIGN = {
    "k": lambda t: _ROPE(_X, t),
    "cos": lambda t: _ROPE(_X, _X, ra.Table(t, t)),
    "positions": lambda t: _ROPE(_X, _X, t),
    "positions of tokens": lambda t: _ROPE.apply(_X, [t] * 6),
    "positions of a grid": lambda t: positions.grid(t, t),
    "frequencies": lambda t: ra.cos_sin(_AT, t),
    "like": lambda t: _ROPE.table(range(6), like=t),
    "the out of q": lambda t: _ROPE(_X, _X, out=(t, t)),
    "old": lambda t: _ROPE.reposition(_X, t, 1),
    "cumulative_lengths": lambda t: positions.packed(t, 6),
    "w": lambda t: weights.convert(t, 8, source="half", target="interleaved"),
    "cache": lambda t: layouts.unpack(t, "vllm"),
}


@pytest.mark.parametrize("name", _FOREIGN)
def test_a_tensor_of_an_unsupported_library_is_named_with_a_way_to_convert_it(name):
    tensor = tensor_class("paddle", __dlpack__=lambda _: None, __array__=lambda _: np.ones(1))()
    argument = name.partition(" of ")[0] if name.startswith("positions") else name
    copy = "" if "out" in name else r", or by numpy.asarray\(\)"
    said = r"; paddle does not follow the array API; convert it by from_dlpack\(\) of a library that does"
    with pytest.raises(
        TypeError, match=f"^{argument} must be an array .* got paddle.Tensor{said}{copy}; or see rope_any.arrays$"
    ):
        _FOREIGN[name](tensor)


def test_the_ways_to_convert_a_tensor_are_those_that_it_has():
    frame = type("Frame", (), {"__module__": "pandas.core", "__array__": lambda *_: np.ones((6, 8))})()
    empty = tensor_class("things", ndim=2, __array_namespace__=lambda *_, **__: ModuleType("things"))()
    for thing, way in ((tensor_class("keras")(), "to an array of one that does"), (frame, r"by numpy.asarray\(\)")):
        with pytest.raises(
            TypeError, match=rf"does not follow the array API; convert it {way}; or see rope_any.arrays$"
        ):
            _ROPE.apply(thing)
    np.testing.assert_array_equal(_ROPE.apply(np.asarray(frame)), _ROPE.apply(np.ones((6, 8))))
    with pytest.raises(TypeError, match=r"got things.Tensor; things does not follow the array API"):
        _ROPE.apply(empty)
    with pytest.raises(TypeError, match=r"^positions must .* got numpy.float32; write int\(p\) for a start p"):
        _ROPE.apply(_X, np.float32(1))


class Quantity(np.ndarray):
    """An array with a unit, as astropy's; `unit` may be None, as that of a column of a table."""

    unit = "m"

    @property
    def value(self):
        """The numbers without their unit."""
        return self.view(np.ndarray)


_WITH_UNIT = {
    "x": lambda u: _ROPE.apply(u(_X)),
    "x fused": lambda u: _ROPE.apply(u(_X), fused=True),
    "positions": lambda u: _ROPE.apply(_X, u(_AT)),
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


def test_arrays_with_a_mask_are_refused_and_other_subclasses_are_rotated():
    masked = type("Masked", (np.ndarray,), {"mask": False})  # as astropy's, which is no MaskedArray
    for x in (_X.view(masked), np.ma.array(_X)):
        for given, options, hint in ((x, {}, "; give its filled"), (_X, {"out": x}, "$")):
            with pytest.raises(TypeError, match=rf"must be a plain array; got .* whose mask would be lost{hint}"):
                _ROPE.apply(given, **options)
    column = type("Column", (Quantity,), {"unit": None})
    for x in (_X.view(column), np.rec.array(_X)):
        assert type(_ROPE.apply(x)) is np.ndarray


def test_quantities_of_any_library_are_refused(things):
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
        with pytest.raises(TypeError, match=r"^x must be a dense array; got a nested .* its values: ") as info:
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


@pytest.mark.parametrize(
    ("version", "missing", "fault"),
    [("2022.12", (), "is of version 2022.12"), (None, ("moveaxis", "take"), "lacks moveaxis, take")],
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
def test_a_library_without_record_keeps_constants_that_hold_numbers(readable, things, monkeypatch):
    if readable:  # a tracer can't be read
        monkeypatch.setattr(things.ndarray, "__array__", lambda x, *_, **__: x._host)
    rope, x, at = ra.Rope(F, pairing="half"), things.asarray(_X), things.asarray(_AT)
    want, things.copies = things.asnumpy(rope.apply(x, at)), 0
    np.testing.assert_array_equal(things.asnumpy(rope.apply(x, at)), want)
    np.testing.assert_allclose(want, _ROPE.apply(_X, _AT), atol=1e-6)
    assert things.copies == (0 if readable else 1)


def test_immutable_arrays_of_a_library_without_record_are_refused_as_out(things, monkeypatch):
    monkeypatch.delattr(HostArray, "__setitem__")
    x = things.asarray(_X)
    with pytest.raises(ValueError, match="out must be an array that can be written; got one whose elements"):
        _ROPE.apply(x, out=x)


@pytest.mark.parametrize("way", ["dlpack", "dlpack to the host", "asarray", None])
def test_arrays_are_read_by_the_first_way_that_works(way, things, monkeypatch):
    if way == "dlpack to the host" and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        pytest.skip("from_dlpack of NumPy has no device")
    unpack, given = READING["unpack, angles"]

    def dlpack(x, *, dl_device=None, **_):
        """Export to the host, by default or if it is asked for."""
        return x._host.__dlpack__() if way == "dlpack" or dl_device == (1, 0) else 1 / 0

    if way == "asarray":
        monkeypatch.setattr(things.ndarray, "__array__", lambda x, *_, **__: x._host)
    elif way:
        things.ndarray.__dlpack__ = dlpack
        things.ndarray.__dlpack_device__ = lambda _: (1 if way == "dlpack" else 14, 0)
    if way:
        assert unpack(things.asarray(given)) == unpack(given)
    else:
        with pytest.raises(ValueError, match="cache must have values to read"):
            unpack(things.asarray(given))


# --- a registered library, as CONTRIBUTING.md describes it ----------------------------------------------------------


@pytest.mark.parametrize("types", [(), "a.B", ("a.b.C",), ("numpy.ndarray",)])
def test_invalid_records_are_refused(types):
    with pytest.raises(TypeError, match="record must be a Library; got str"):
        register("numpy")
    with pytest.raises(ValueError, match=r"types must be classes .*, of a package whose record does not come with"):
        register(Library(name="other", xp=np, types=types))


# --- a library whose dtypes only its record can name ------------------------------------------------------------------


@pytest.fixture
def opaque(monkeypatch):
    """Return a registered library whose dtypes have no name; its record names them."""
    forget_libraries(monkeypatch)
    things = Simulation("things", opaque=True)
    register_opaque(things)
    return things


def test_opaque_dtypes_without_devices_pass_the_public_calls(opaque):
    report = check_library(opaque.asarray, opaque.asnumpy)
    assert report and not report.refused and not report.fields, report


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
    with pytest.raises(TypeError, match=r"out must be floating-point .*; got int64; cast it"):
        _ROPE.apply(x, out=opaque.asarray(_X.astype(np.int64)))
    converted = weights.convert(x, 8, source="half", target="interleaved", axis=-1)
    want = weights.convert(_X, 8, source="half", target="interleaved", axis=-1)
    np.testing.assert_array_equal(opaque.asnumpy(converted), want)


def test_functions_of_an_opaque_library_can_be_checked(opaque):
    rope = ra.Rope(ra.frequencies(16), pairing="half")
    report = check_rotary(rope.apply, rope, like=opaque.asarray(_X))
    assert report.passed, report
    assert repr(Dtype(np.dtype("float32"))) == "<dtype>"  # so nothing could have read the name there
