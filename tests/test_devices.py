"""Devices that are not a CPU, without one: a simulated device of torch, and fake tensors of CUDA."""

import copy
import gc
import weakref
from contextlib import ExitStack

import pytest
import simulated_device
from bits import empty_caches  # noqa: F401  # a fixture
from public_calls import CALLS, COPYING, ROPE, K, P, Q
from simulated import equal
from test_transformations import EAGER, leaves

import rope_any as ra

on_device = pytest.mark.parametrize("lib", ["torch-sim"], indirect=True)
pytestmark = pytest.mark.thread_unsafe(reason="it clears caches, and counts copies of all threads")


@on_device
@pytest.mark.parametrize("name", CALLS)
def test_a_warm_call_neither_copies_nor_waits(name, lib):
    call, *arrays = CALLS[name]
    given, counted = [*map(lib, arrays)], simulated_device.load()
    first = call(*given)
    counted()
    again = call(*given)
    copies, waits = counted()
    assert (bool(copies), waits) == (name in COPYING, 0)
    assert {x.device for x in leaves((first, again))} == {given[0].device}
    assert equal(first, want := call(*arrays), lib.get) and equal(again, want, lib.get)


@on_device
@pytest.mark.parametrize("other", ["cpu", "sim:0"])
def test_tensors_of_two_devices_are_refused(other, lib):
    q, k, at = map(lib, (Q, K, P))
    table, cos = ROPE.table(at), ROPE.table(at.to(other)).cos
    for call in (
        lambda: ROPE(q, k.to(other)),
        lambda: ROPE(q, k, at.to(other)),
        lambda: ROPE(q, k, table._replace(cos=cos)),
        lambda: ROPE.apply(q, at, out=q.to(other)),
        lambda: ra.rotate(q, cos, table.sin, pairing="half"),
        lambda: ra.cos_sin(at, lib(P, "float32").to(other)),
    ):
        with pytest.raises(ValueError, match=f"must be on one device; got .*{other}"):
            call()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("device", ["meta", "cpu", "cuda"])
def test_tensors_without_data_have_the_shapes_of_real_ones(device, torch):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    copies = []

    class Record(TorchDispatchMode):
        """Records copies between the host and the device: whether each is read back."""

        def __torch_dispatch__(self, function, _, args=(), kwargs=None):
            """Call a function, and record it if it copies."""
            result = function(*args, **(kwargs or {}))
            given, made = ({getattr(x, "device", None) for x in tree_leaves(some)} for some in ((args, kwargs), result))
            here, there = torch.device("cpu"), torch.device("cuda", 0)
            if (here in made and there in given) or (there in made and here in given):
                copies.append(here in made)
            return result

    if device == "cuda":
        simulated_device.load()  # without it, torch for CPUs lacks what fake tensors of CUDA need
    for name in EAGER:
        call, *arrays = CALLS[name]
        with ExitStack() as modes:
            for mode in {"meta": (), "cpu": (FakeTensorMode,), "cuda": (FakeTensorMode, Record)}[device]:
                modes.enter_context(mode())
            given = [torch.empty(x.shape, dtype=getattr(torch, x.dtype.name), device=device) for x in arrays]
            call(*given)
            copies.clear()
            got = leaves(call(*given))
            assert copies == [False] * len(copies) and bool(copies) == (device == "cuda" and name in COPYING), name
        want = leaves(call(*map(torch.tensor, arrays)))
        assert [(x.shape, x.dtype) for x in got] == [(x.shape, x.dtype) for x in want], name
        assert {(type(x), x.device.type) for x in got} == {(type(given[0]), device)}, name


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_constants_of_a_fake_mode_go_with_it(torch):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    modes = [FakeTensorMode(), FakeTensorMode()]
    for i in range(3):
        with modes[i]:
            assert ROPE.table(torch.empty(3, dtype=torch.int64)).cos.fake_mode is modes[i]
            copy.deepcopy(torch.nn.Linear(2, 2))
            modes.append(copy.copy(modes[i]))
    traced = make_fx(lambda at: ROPE.table(at).cos, tracing_mode="fake", pre_dispatch=True)(torch.arange(3))
    assert torch.equal(traced(torch.arange(3)), ROPE.table(torch.arange(3)).cos)
    gone = weakref.ref(modes.pop(0))
    gc.collect()
    assert gone() is None
    assert type(ROPE.table(torch.arange(3)).cos) is torch.Tensor
