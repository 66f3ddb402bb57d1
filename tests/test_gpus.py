"""CuPy without a GPU, on the stand-in: its copies, waits and devices, and the kernel of ``fused=True`` on a CPU."""

import json

import cupy_stand_in
import numpy as np
import pytest
from conftest import DTYPES
from cupy_stand_in import LOG, NAMES, Device
from host_kernels import HostKernel
from public_calls import CALLS, COPYING
from simulated import equal

import rope_any as ra
from rope_any._arrays import find
from rope_any.cli._libraries import devices

pytestmark = pytest.mark.thread_unsafe(reason="modules are replaced, for all threads")


@pytest.fixture
def cupy():
    """Return the stand-in for CuPy."""
    with cupy_stand_in.installed() as cupy:
        yield cupy


@pytest.fixture
def given(cupy):
    """Return x, positions and a Rope without constants on the GPU; nothing is counted yet."""
    x, at = cupy.asarray(np.ones((6, 8))), cupy.asarray(np.arange(6))
    LOG.clear()
    return x, at, ra.Rope(ra.frequencies(8), pairing="half")


# --- the stand-in -----------------------------------------------------------------------------------------------------


def test_the_list_of_names_is_that_of_the_real_cupy():
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    if cupy.__version__ != NAMES["version"]:
        pytest.skip(f"the list is of CuPy {NAMES['version']}, and this is {cupy.__version__}")
    import cupy_names

    assert json.loads(json.dumps(cupy_names.names())) == NAMES


def test_the_stand_in_has_names_of_cupy_only(cupy):
    known = {*NAMES["from NumPy"], *NAMES["ufuncs"], *NAMES["functions"], "ndarray", "cuda", "linalg", "fft"}
    for owner, names in ((cupy, known), (cupy.cuda, NAMES["cuda"]), (cupy.cuda.runtime, NAMES["runtime"])):
        assert {name for name in vars(owner) if name[0] != "_"} <= {*names, "RawKernel"}
    for kind in (cupy.ndarray, Device, cupy.cuda.Stream):
        assert {name for name in dir(kind) if name[0] != "_"} <= {*NAMES[kind.__name__]}


def test_the_stand_in_refuses_what_cupy_refuses(cupy):
    x, host = cupy.asarray([1.0, 2.0]), np.ones(2)
    refused = (
        lambda: x + host,
        lambda: host + x,
        lambda: x * [1.0, 2.0],
        lambda: cupy.stack([x, host]),
        lambda: cupy.reshape(host, (2, 1)),
        lambda: cupy.take(x, cupy.asarray([0]), mode="clip"),  # no parameter of CuPy's
        lambda: x.sum(where=x),
        lambda: cupy.multiply(x, [1.0, 2.0]),
        lambda: np.asarray(x),
    )
    for call in refused:
        with pytest.raises(TypeError):
            call()
    assert cupy.asnumpy(x + 1 + np.float64(1)).tolist() == [3.0, 4.0]
    with Device(1), pytest.raises(ValueError, match="array device = 0 while current = 1"):
        cupy.cos(x)
    LOG.clear()
    assert x[0] and int(x[1]) == 2 and x[x > 1].shape == (1,) and x.get()[0] == 1
    assert LOG == {"waited": 3, "to the host": 1}


# --- copies and waits -------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("name", CALLS)
def test_a_warm_call_copies_nothing_and_waits_for_nothing(name, cupy):
    call, *arrays = CALLS[name]
    given, want = [*map(cupy.asarray, arrays)], call(*arrays)
    first = call(*given)
    LOG.clear()
    again = call(*given)
    assert bool(LOG.pop("from the host", 0)) is (name in COPYING)
    assert {*LOG} == ({"waited"} if name == "cos_sin" else set())  # whose frequencies might be those of a Rope
    assert equal(first, want, cupy.asnumpy) and equal(again, want, cupy.asnumpy)


def test_constants_are_on_the_gpu_before_another_stream_can_read_them(given):
    x, at, rope = given
    for waits in (2, 0):  # for the two pieces of the frequencies, as x is float64
        LOG.clear()
        rope.apply(x, at)
        assert LOG["from the host"] == LOG["waited"] == waits


def test_no_constants_are_copied_into_a_captured_graph(cupy, given):
    (x, at, rope), stream = given, cupy.cuda.get_current_stream()

    def captured():
        """Return what a call gives while a graph is captured."""
        stream.begin_capture()
        try:
            return rope.apply(x, at)
        finally:
            stream.end_capture()

    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^frequencies must be on the device before .*: call once"):
            captured()
        want = cupy.asnumpy(rope.apply(x, at))
        np.testing.assert_array_equal(cupy.asnumpy(captured()), want)
        ra.clear_caches()


# --- devices and memory -----------------------------------------------------------------------------------------------


def test_arrays_of_two_devices_or_another_than_the_current_one_are_refused(cupy, given):
    x, at, rope = given
    table = rope.table(range(6), like=x)
    rope.apply(x, 5)
    with Device(1):
        other = cupy.asarray(np.ones((6, 4)))
        with pytest.raises(ValueError, match="x and positions must be on one device"):
            rope.apply(cupy.asarray(np.ones((6, 8))), at)
        with pytest.raises(ValueError, match=r"x must be on CuPy's current device, .* 1>; got .* 0>"):
            rope.apply(x, 5)
    with pytest.raises(ValueError, match=r"x and cos must be on one device; got .* 0> and .* 1>"):
        ra.rotate(x, other, table.sin, pairing="half")


def test_each_device_has_its_own_constants(cupy, given):
    rope, arrays = given[-1], []
    for device in (Device(0), Device(1)):
        device.use()
        arrays.append((cupy.asarray(np.ones((6, 8))), cupy.asarray(np.arange(6))))
        for copies in (2, 0):  # the two pieces of the frequencies
            LOG.clear()
            assert rope.apply(*arrays[-1]).device == device
            assert LOG["from the host"] == copies
    Device(0).use()
    rope.apply(*arrays[0])
    assert not LOG


def test_the_command_line_moves_to_a_device_and_waits_for_results(given):
    places = devices(find(given[0]))  # which its commands use on a GPU
    x = places["cuda:1"].put(np.ones(1))
    assert [*places] == ["cuda:0", "cuda:1"] and x.device == Device(1) == Device()
    LOG.clear()
    places["cuda:1"].wait(places["cuda:1"].copy(x))
    assert LOG == {"waited": 1}


# --- the kernel of fused=True, on a CPU -------------------------------------------------------------------------------

VIEWS = {
    "whole": lambda a: a,
    "every other head": lambda a: a[:, ::2],
    "eleven heads": lambda a: a[:, 1:],
    "one token": lambda a: a[:, :, 3:4],
    "tokens before heads": lambda a: a.swapaxes(1, 2),
    "reversed tokens": lambda a: a[:, :, ::-1],
    "later features": lambda a: a[..., 6:],
    "every other feature": lambda a: a[..., ::2],
    "one row": lambda a: a[0, 0, :1],
    "no tokens": lambda a: a[:, :, :0],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("pairing", "out_pairing"), [("half", None), ("interleaved", None), ("interleaved", "half")])
def test_the_kernel_has_the_bits_of_eager_code(cupy, pairing, out_pairing, dtype, view):
    host = np.random.default_rng(0).standard_normal((2, 12, 6, 48)).astype(dtype)
    x = cupy.asarray(VIEWS[view](host))
    for rotary, start in ((x.shape[-1], 0), (12, 4)):
        rope = ra.Rope(ra.frequencies(rotary), pairing=pairing, out_pairing=out_pairing, start=start)
        rows = x.shape[:1] if start and x.ndim == 4 else ()  # each sequence has its own, or all have the same
        table = rope.table(cupy.asarray(np.arange(np.prod((*rows, x.shape[-2]))).reshape(*rows, -1) * 100), like=x)
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
