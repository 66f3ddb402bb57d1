"""GPU behaviour without a GPU: a simulated CuPy, its devices, and the kernel of ``fused=True`` on a CPU."""

import numpy as np
import pytest
from bits import work
from host_kernels import COMPILER, HostKernel
from public_calls import CALLS, COPYING
from simulated import Device, equal, simulate_cupy

import rope_any as ra

# --- a simulated CuPy -------------------------------------------------------------------------------------------------

pytestmark = pytest.mark.thread_unsafe(reason="modules are replaced, for all threads")


@pytest.fixture
def cupy(monkeypatch):
    """Return a simulated CuPy, which refuses to mix with NumPy and to be read, and counts copies of host data."""
    return simulate_cupy(monkeypatch)


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("name", CALLS)
def test_a_warm_call_copies_nothing_from_the_host(name, cupy):
    call, *arrays = CALLS[name]
    given, want = [*map(cupy.asarray, arrays)], call(*arrays)
    first, cupy.copies = call(*given), 0
    again = call(*given)
    assert bool(cupy.copies) is (name in COPYING)
    assert equal(first, want, cupy.asnumpy) and equal(again, want, cupy.asnumpy)


def test_a_second_call_does_less_work(cupy):
    x, rope = cupy.asarray(np.ones((6, 8), dtype=np.float32)), ra.Rope(ra.frequencies(8), pairing="half")
    table = rope.table(range(6), like=x)
    for call in (lambda: rope.apply(x, table), lambda: rope.apply(x, table, out=x), lambda: rope.apply(x, 3)):
        first, second = work(call), work(call)
        assert first - second > 30


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


# --- devices and memory -----------------------------------------------------------------------------------------------


def test_arrays_of_two_devices_or_another_than_the_current_one_are_refused(cupy):
    rope, x = ra.Rope(ra.frequencies(8), pairing="half"), cupy.asarray(np.ones((6, 8)))
    table = rope.table(range(6), like=x)
    table.cos.device = Device(1)
    with pytest.raises(ValueError, match=r"x and cos must be on one device; got .* 0> and .* 1>"):
        ra.rotate(x, *table, pairing="half")
    rope.apply(x, 5)
    x.device = Device(1)
    with pytest.raises(ValueError, match=r"x must be on CuPy's current device, <CUDA Device 0>; got <CUDA Device 1>"):
        rope.apply(x, 5)


def test_each_device_has_its_own_constants(cupy):
    rope, arrays = ra.Rope(ra.frequencies(8), pairing="half"), []
    for device in (Device(0), Device(1)):
        device.use()
        arrays.append((cupy.asarray(np.ones((6, 8))), cupy.asarray(np.arange(6))))
        for copies in (2, 0):  # the two pieces of the frequencies
            cupy.copies = 0
            rope.apply(*arrays[-1])
            assert cupy.copies == copies
    Device(0).use()
    rope.apply(*arrays[0])
    assert cupy.copies == 0


def test_out_is_x_or_disjoint_from_all_that_is_read(cupy):
    memory = cupy.asarray(np.random.default_rng(0).standard_normal((8, 3, 32)).astype(np.float32))
    x, (cos, sin) = memory[:4, :, :8], ra.cos_sin(np.arange(3), ra.frequencies(8))
    memory[7, :, :4] = cupy.asarray(cos)
    table = memory[7, :, :4], cupy.asarray(sin)
    want = cupy.asnumpy(ra.rotate(x, *table, pairing="half"))
    for out in (memory[4:, :, 8:16], memory[3::-1, :, 8:16]):  # the rows of the second are between those of x
        np.testing.assert_array_equal(cupy.asnumpy(ra.rotate(x, *table, pairing="half", out=out)), want)
    for out, wrong in (
        (memory[1:5, :, :8], "must be x itself or not overlap it"),
        (x[::-1], "must be x itself or not overlap it"),
        (memory[4:, :, :8], "must not overlap cos"),
        (cupy.broadcast_to(memory[5:6, :, :8], (4, 3, 8)), "must have an address for each element"),
    ):
        with pytest.raises(ValueError, match=f"^out {wrong}"):
            ra.rotate(x, *table, pairing="half", out=out)
    assert ra.rotate(x, *table, pairing="half", out=memory[:4, :, :8]) is not x
    np.testing.assert_array_equal(cupy.asnumpy(x), want)


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
@pytest.mark.parametrize("heads", [1, 3, 8, 11, 12])
@pytest.mark.parametrize("rotary", [8, 16])
def test_heads_that_share_a_row_of_the_table_have_the_bits_of_eager_code(cupy, heads, rotary):
    x = cupy.asarray(np.random.default_rng(0).standard_normal((2, heads, 3, 16)).astype("float32"))
    for tokens in (3, 1):
        part, rope = x[:, :, :tokens], ra.Rope(ra.frequencies(rotary), pairing="half")
        before, want = HostKernel.launches, cupy.asnumpy(rope.apply(part, 1000))
        np.testing.assert_array_equal(cupy.asnumpy(rope.apply(part, 1000, fused=True)), want)
        assert HostKernel.launches == before + 1


@needs_compiler
def test_each_sequence_has_its_row_of_the_table(cupy):
    x = np.random.default_rng(0).standard_normal((3, 4, 5, 16)).astype("float32")
    at = np.arange(15).reshape(3, 5) * 100
    rope = ra.Rope(ra.frequencies(16), pairing="half")
    got = rope.apply(cupy.asarray(x), cupy.asarray(at), fused=True)
    np.testing.assert_array_equal(cupy.asnumpy(got), rope.apply(x, at))
