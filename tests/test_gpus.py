"""GPU behaviour without a GPU: devices, CuPy arrays at addresses that are never read, and a simulated CuPy."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from host_kernels import COMPILER, HostKernel
from simulated import equal, public_calls, simulate_cupy

import rope_any as ra
from rope_any._arrays import _memory, find, library, require_array


@pytest.fixture
def array():
    """Return a function that makes a CuPy array at an address, whose data cannot be read."""
    cupy = pytest.importorskip("cupy", reason="cupy is not installed", exc_type=ImportError)

    def make(*shape, dtype="float32", address=2**40, device=0):
        """Return a CuPy array at an address of a device, without memory of its own."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        memory = cupy.cuda.UnownedMemory(address, size, None, device)
        return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))

    return make


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_cupy_arrays_are_recognised(array, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    x = array(3, 8, dtype=dtype)
    lib = require_array("x", x)
    lib.require_floating("x", x)
    assert (lib.name, lib.dtype_name(x.dtype)) == ("cupy", dtype)
    assert lib.device_kwargs(x)["device"].id == 0
    assert not lib.supports_out(x) and not lib.records_gradients(x)
    assert lib.compiler.refusal(x) is None


def test_cupy_arrays_on_two_devices_are_refused(array):
    with pytest.raises(ValueError, match=r"x and cos must be on one device; got .* 0> and .* 1>"):
        library(x=array(3, 8), cos=array(3, 4, device=1))


def test_the_device_of_cupy_arrays_is_checked(array, monkeypatch):
    lib, seen = find(array(1)), []
    monkeypatch.setitem(vars(lib), "check_placement", lambda arrays: seen.extend(arrays.items()))
    x, cos = array(3, 8, device=1), array(3, 4, device=1)
    assert library(x=x, cos=cos) is lib
    assert [(name, part is given) for (name, part), given in zip(seen, (x, cos), strict=True)] == [
        ("x", True),
        ("cos", True),
    ]


def require_writable(out, onto, **others):
    """Check `out` against x and other arrays."""
    _memory.require_writable(find(out), "out", out, onto=onto, onto_name="x", others=others)


def test_cupy_out_can_be_x_or_disjoint_from_it(array):
    x, table = array(4, 3, 8), array(3, 4, address=2**41)
    for out in (x, x[:], array(4, 3, 8, address=2**40 + x.nbytes)):
        require_writable(out, x, cos=table)
    views = x[::-1, :, ::2], x[::-1, :, 1::2]  # of one buffer, with no address in common
    require_writable(*views, cos=table)


def test_overlapping_cupy_arrays_are_refused(array):
    x = array(4, 3, 8)
    with pytest.raises(ValueError, match="out must be x itself or not overlap it"):
        require_writable(x[1:], x[:-1])
    with pytest.raises(ValueError, match="out must be x itself or not overlap it"):
        require_writable(x[::-1], x)
    with pytest.raises(ValueError, match="out must not overlap cos"):
        require_writable(x, x, cos=x[0, :, :4])
    cupy = pytest.importorskip("cupy")
    with pytest.raises(ValueError, match="out must have an address for each element"):
        require_writable(cupy.broadcast_to(x[:1], (4, 3, 8)), array(4, 3, 8, address=2**41))


class Device:
    """One of two CuPy devices."""

    current = 0

    def __init__(self, number=None):
        """Name a device, by default the current one."""
        self.number = Device.current if number is None else number

    def __eq__(self, other):
        """Whether both have one number."""
        return self.number == other.number

    __hash__ = None

    def __str__(self):
        """Return what CuPy prints for a device."""
        return f"<CUDA Device {self.number}>"

    def use(self):
        """Make this device the current one."""
        Device.current = self.number


@pytest.fixture
def cupy_on_two_devices(monkeypatch):
    """Return the module of CuPy's adapter; CuPy has two devices, and the first is current."""
    cupy = pytest.importorskip("cupy", reason="cupy is not installed", exc_type=ImportError)
    from rope_any._arrays import cupy as adapter

    monkeypatch.setattr(Device, "current", 0)
    monkeypatch.setattr(cupy.cuda, "Device", Device)
    monkeypatch.setattr(cupy, "asarray", lambda data: (data, Device.current))
    return adapter


def test_cupy_arrays_must_be_on_the_current_device(cupy_on_two_devices):
    check = cupy_on_two_devices.LIBRARY.check_placement
    check({"x": SimpleNamespace(device=Device(0))})
    with pytest.raises(ValueError, match=r"x must be on CuPy's current device, <CUDA Device 0>; got <CUDA Device 1>"):
        check({"x": SimpleNamespace(device=Device(1))})


def test_putting_data_on_a_cupy_device_makes_it_current(cupy_on_two_devices):
    lib = cupy_on_two_devices.LIBRARY
    assert lib.put("data", 1) == ("data", 1)
    lib.check_placement({"x": SimpleNamespace(device=Device(1))})


def test_torch_synchronizes_the_device_of_the_result(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    find(torch.ones(1)).wait(SimpleNamespace(is_cuda=True, device="cuda:1"))
    assert waited == ["cuda:1"]


# --- a simulated CuPy -------------------------------------------------------------------------------------------------

CALLS = public_calls(np.asarray)
pytestmark = pytest.mark.thread_unsafe(reason="modules are replaced, for all threads")


@pytest.fixture
def cupy(monkeypatch):
    """Return a simulated CuPy, which refuses to mix with NumPy and to be read, and counts copies of host data."""
    return simulate_cupy(monkeypatch)


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("name", CALLS)
def test_a_warm_call_copies_nothing_from_the_host(name, cupy):
    call = public_calls(cupy.asarray)[name]
    first, cupy.copies = call(), 0
    again = call()
    assert cupy.copies == 0
    want = CALLS[name]()
    assert equal(first, want, cupy.asnumpy) and equal(again, want, cupy.asnumpy)


def test_constants_are_on_the_gpu_before_another_stream_can_read_them(cupy):
    x, at, rope = cupy.asarray(np.ones((6, 8))), cupy.asarray(np.arange(6)), ra.Rope(ra.frequencies(8), pairing="half")
    rope.apply(x, at)
    assert cupy.synchronised == 2  # the two pieces of the frequencies, for float64
    rope.apply(x, at)
    assert cupy.synchronised == 2


def test_no_constants_are_copied_into_a_captured_graph(cupy):
    x, at, rope = cupy.asarray(np.ones((6, 8))), cupy.asarray(np.arange(6)), ra.Rope(ra.frequencies(8), pairing="half")
    cupy.capturing = True
    with pytest.raises(RuntimeError, match="call once before, outside of the capture"):
        rope.apply(x, at)
    cupy.capturing = False
    want, cupy.copies = cupy.asnumpy(rope.apply(x, at)), 0
    cupy.capturing = True
    np.testing.assert_array_equal(cupy.asnumpy(rope.apply(x, at)), want)
    assert cupy.copies == 0
    ra.clear_caches()
    with pytest.raises(RuntimeError, match="call once before"):
        rope.apply(x, at)


# --- the kernel of fused=True, on a CPU -------------------------------------------------------------------------------

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no g++, which compiles the kernel here")
VIEWS = {
    "whole": lambda a: a,
    "every other head": lambda a: a[:, ::2],
    "tokens before heads": lambda a: a.swapaxes(1, 2),
    "reversed tokens": lambda a: a[:, :, ::-1],
    "later features": lambda a: a[..., 6:],
    "every other feature": lambda a: a[..., ::2],
    "one row": lambda a: a[0, 0, :1],
    "no tokens": lambda a: a[:, :, :0],
}


@needs_compiler
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_the_kernel_has_the_bits_of_eager_code(cupy, pairing, dtype, view):
    host = np.random.default_rng(0).standard_normal((2, 4, 6, 48)).astype(dtype)
    x = cupy.asarray(VIEWS[view](host))
    for rotary, start in ((x.shape[-1], 0), (12, 4)):
        rope = ra.Rope(ra.frequencies(rotary), pairing=pairing, start=start)
        table = rope.table(cupy.asarray(np.arange(x.shape[-2]) + 1000), like=x)
        for inverse in (False, True):
            before = HostKernel.launches
            want = cupy.asnumpy(rope.apply(x, table, inverse=inverse))
            out = cupy.asarray(np.full(x.shape, np.nan, dtype))
            assert rope.apply(x, table, inverse=inverse, fused=True, out=out) is out
            in_place = cupy.asarray(VIEWS[view](host.copy()))
            rope.apply(in_place, table, inverse=inverse, fused=True, out=in_place)
            for got in (out, in_place, rope.apply(x, table, inverse=inverse, fused=True)):
                np.testing.assert_array_equal(cupy.asnumpy(got), want)
            assert HostKernel.launches == before + 3 * (x.size > 0)


@needs_compiler
def test_each_sequence_has_its_row_of_the_table(cupy):
    x = np.random.default_rng(0).standard_normal((3, 4, 5, 16)).astype("float32")
    at = np.arange(15).reshape(3, 5) * 100
    rope = ra.Rope(ra.frequencies(16), pairing="half")
    got = rope.apply(cupy.asarray(x), cupy.asarray(at), fused=True)
    np.testing.assert_array_equal(cupy.asnumpy(got), rope.apply(x, at))
