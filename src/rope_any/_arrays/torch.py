"""PyTorch: tensors that may be traced, transformed, recorded or sharded; torch.compile; the rule of differentiation."""

import inspect
import os
import platform
import threading
from collections.abc import Callable
from typing import Any

import array_api_compat.torch
import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext  # of set_default_device, which does nothing to tensors that are there

from rope_any._arrays import _memory, _numba, _sharding
from rope_any._arrays._library import Array, Compiler, HostMemory, Library, X
from rope_any._checks import ArgumentValueError, Text
from rope_any._formula import rotate_component

xp: Any = array_api_compat.torch  # typed in part, as are the functions below
_is_tracing: Any = torch._C._is_tracing  # noqa: SLF001  # what torch.jit.is_tracing asks
_transforms: Any = torch._C._are_functorch_transforms_active  # noqa: SLF001  # nothing public tells
_dispatch_modes: Any = torch._C._len_torch_dispatch_stack  # noqa: SLF001  # likewise
_function_modes: Any = torch._C._len_torch_function_stack  # noqa: SLF001  # likewise
_function_mode_at: Any = torch._C._get_function_stack_at  # noqa: SLF001  # likewise
_is_functional: Any = torch._is_functional_tensor  # noqa: SLF001  # likewise
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _refusal(x: Array) -> tuple[str, str] | None:
    if x.is_nested or x.layout != torch.strided:
        return "a dense array", f"a {'nested' if x.is_nested else x.layout} tensor"
    return None


def _are_plain(arrays: tuple[Array, ...]) -> bool:
    device, strided = getattr(arrays[0], "device", None), torch.strided
    for x in arrays:  # a generator takes longer, and each call asks this
        if type(x) is not torch.Tensor or x.layout != strided or x.is_nested or x.device != device:
            return False
    return True


def _check_placement(arrays: dict[str, Array]) -> None:
    meshes = {name: array.device_mesh for name, array in arrays.items() if _sharding.is_sharded(array)}
    for name, mesh in meshes.items():
        if mesh != (wanted := next(iter(meshes.values()))):
            got = Text(f"{wanted} and {mesh}")
            raise ArgumentValueError(f"{next(iter(meshes))} and {name}", "be on one device mesh", got)


def _has_float64(x: Array) -> bool:
    dtypes = xp.__array_namespace_info__().dtypes(device=x.device, kind="real floating")
    return "float64" in dtypes  # not on MPS


def _has_fast_float64_cosine(x: Array) -> bool:
    # A compiler keeps float64 in registers, and its float32 cosine may be wrong by two units. Many a GPU has few
    # units for float64.
    return torch.compiler.is_compiling() or x.device.type == "cpu"


def _is_sharded(x: Array) -> bool:
    return type(x) not in _PLAIN and _sharding.is_sharded(x)


def _is_transformed(*tensors: Array | None) -> bool:
    """Whether a functorch transform, forward-mode differentiation or a tracer is active, on tensors or globally."""
    try:
        for x in tensors:
            if x is not None:
                x.data_ptr()
    except RuntimeError:  # a wrapper has no memory of its own
        return True
    dual = forward_ad._current_level >= 0  # noqa: SLF001  # the only sign of forward mode
    return bool(dual or _is_tracing() or _transforms())


def _is_watched() -> bool:
    """Whether a tracer, a transformation or a mode sees what is done to tensors of the class itself."""
    return bool(
        _transforms()
        or _is_tracing()
        or forward_ad._current_level >= 0  # noqa: SLF001  # the only sign of forward mode
        or _dispatch_modes()
        or ((count := _function_modes()) and any(type(_function_mode_at(i)) is not DeviceContext for i in range(count)))
    )


_LOWEST = 2**40  # a low address may be an offset from no address at all; on Linux processes have none so low


def _has_memory(x: Array) -> bool:
    """Whether a tensor's numbers are in memory: not those of a zero in name only, nor those of a freed storage."""
    address = x.data_ptr()
    return bool(address >= _LOWEST or address != x.storage_offset() * x.itemsize or x.numel() == 0)


def _signature(tensors: tuple[Any, ...]) -> tuple[Any, ...] | None:
    if _is_watched():
        return None
    recording = torch.is_grad_enabled()
    facts: list[Any] = []
    try:
        for x in tensors:
            if type(x) in _PLAIN:
                lacks_memory = x.data_ptr() < _LOWEST and not _has_memory(x)
                if (recording and x.requires_grad) or x.is_neg() or lacks_memory:
                    return None
                facts += (x.dtype, x.is_cpu or x.device, x.shape, x.is_contiguous() or x.stride())
            elif x is None:
                facts.append(None)
            else:
                return None
    except RuntimeError:  # others than dense tensors have no strides or no address, wrappers of transformations neither
        return None
    return tuple(facts)


def _wants_gradients(*tensors: Array) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _records_gradients(*tensors: Array) -> bool:
    if torch.compiler.is_compiling() or not _wants_gradients(*tensors):
        return False
    return all(type(x) in _PLAIN for x in tensors) and not _is_transformed(*tensors)


def _supports_out(*tensors: Array | None) -> bool:
    """Whether tensors lie in the memory of a CPU, and nothing traces, transforms or records them."""
    if torch.compiler.is_compiling():
        return False
    recording, given = torch.is_grad_enabled(), [x for x in tensors if x is not None]
    if any(type(x) not in _PLAIN or not x.is_cpu or (recording and x.requires_grad) for x in given):
        return False
    if _is_transformed(*given):
        return False
    empty = [x for x in given if not _has_memory(x)]
    if not all(x._is_zerotensor() or _is_functional(x) for x in empty):  # noqa: SLF001  # nothing public tells
        msg = "a tensor must have memory; got one whose storage was freed"
        raise RuntimeError(msg)  # torch crashes at no address
    return not empty


def _address(x: Array) -> int | None:
    """Return the address of the first element, or None for a wrapper of vmap or grad, a fake or a traced tensor."""
    if torch.compiler.is_compiling():
        return None
    try:
        return int(x.data_ptr()) or None
    except RuntimeError:
        return None


def _is_readable(x: Array) -> bool:
    """Whether a tensor's numbers are in memory as they are, which those with a negative bit are not."""
    return not x.is_neg() and _has_memory(x)


def _mark_written(x: Array) -> None:
    if not x.is_inference():  # which counts no versions
        torch.autograd.graph.increment_version(x)


def _span(x: Array) -> tuple[int, int] | None:
    if type(x) not in _PLAIN or (start := _address(x)) is None or not x.is_contiguous():
        return None
    return start, start + x.nbytes


def _addresses(x: Array) -> Any:
    size = x.element_size()
    return _memory.stand_in(_address(x), tuple(x.shape), tuple(size * step for step in x.stride()), size)


def _as_complex(x: Array) -> Array | None:
    if x.dtype not in {torch.float32, torch.float64} or x.shape[-1] == 0:
        return None
    aligned = x.data_ptr() % (2 * x.element_size()) == 0  # torch counts on it, and NumPy does not
    if not aligned or any(step % 2 for step in x.stride()[:-1]) or x.stride()[-1] != 1 or x.storage_offset() % 2:
        return None
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def _complex_product_is_exact(pairs: int) -> bool:
    """Whether the bits of a complex product don't depend on where in an array a row of so many pairs is."""
    # What is left of a loop behind its last whole vectors is multiplied by other code, which rounds once less. Rows of
    # sixteen leave nothing: two of the largest vectors, which a loop takes at a time.
    return pairs % 16 == 0 and platform.machine() in {"x86_64", "AMD64"}


def _multiply_complex(x: Array, factor: Array, out: Array) -> None:
    # Threads that share a loop cut it where they like: here, behind whole vectors or not at all.
    count, shared_from = x.numel(), 2**15
    threads = min(torch.get_num_threads(), -(-count // shared_from))
    if count >= shared_from and count % (16 * threads):
        whole, axis = factor.expand(x.shape), max(range(x.ndim), key=lambda axis: x.shape[axis])
        middle = x.shape[axis] // 2 // 16 * 16 if axis == x.ndim - 1 else x.shape[axis] // 2
        for part in zip(*(array.tensor_split((middle,), axis) for array in (x, whole, out)), strict=True):
            _multiply_complex(*part)
    else:
        torch.mul(x, factor, out=out)


_LARGE = 2**22  # bytes


def _empty_like(x: Array) -> Array:
    result = torch.empty_like(x)
    if result.is_cpu and result.nbytes >= _LARGE and type(result) is torch.Tensor:
        _memory.ask_for_huge_pages(result.data_ptr(), result.nbytes)
    return result


def _few_halves(c: Array, s: Array) -> Callable[[Array], Array]:
    c, s = torch.cat((c, c), -1), torch.cat((s, -s), -1)

    def rotated(x: Array) -> Array:
        # a·c − b·s, where b is the other of the pair; into the memory of products that are there
        return (x * c).sub_(x.roll(x.shape[-1] // 2, -1).mul_(s))

    return rotated


def _few_neighbours(c: Array, s: Array) -> Callable[[Array], Array]:
    if _complex_product_is_exact(c.shape[-1]):
        factor = torch.complex(c, s)

        def rotated(x: Array) -> Array:
            seen: Any = _as_complex(x)
            seen = _as_complex(x.clone(memory_format=torch.contiguous_format)) if seen is None else seen
            _multiply_complex(seen, factor, result := torch.empty_like(seen, memory_format=torch.contiguous_format))
            return result.view(x.dtype)

        return rotated
    c, s = c[..., None], torch.stack((s, -s), -1)

    def rotated_members(x: Array) -> Array:
        members = x.unflatten(-1, (-1, 2))
        return rotate_component(members, members.flip(-1), c, s).flatten(-2)

    return rotated_members


def _initialise_trig(x: Array) -> None:
    """
    Initialise MKL's cos and sin kernels once, from one thread.

    MKL chooses a kernel at the first call of each function. If several threads make that call together, one of them
    may be given the wrong one, whose float32 cosines err by 1.5e-4 (pytorch issue 188792).
    """
    if torch.compiler.is_compiling() or not x.is_cpu or _INITIALISED:
        return
    with _INITIALISING:
        if not _INITIALISED:
            worker = threading.Thread(target=_call_trig)  # which no mode or tracer of this thread sees
            worker.start()
            worker.join()
            _INITIALISED.append(True)


def _call_trig() -> None:
    one = torch.ones(1, device="cpu")
    for function in (torch.cos, torch.sin):
        for dtype in (torch.float32, torch.float64):
            function(one.to(dtype))


_INITIALISING, _INITIALISED = threading.Lock(), list[bool]()


def _renew_lock() -> None:
    """Renew the lock in a forked process: a thread that is not there may hold it."""
    global _INITIALISING  # noqa: PLW0603  # the one of the parent stays locked
    _INITIALISING = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _why_not_compiled(x: Array, *others: Array | None) -> str | None:
    tensors = [tensor for tensor in (x, *others) if tensor is not None]
    plain = all(type(tensor) in _PLAIN and tensor.device.type != "meta" for tensor in tensors)
    if not plain or _is_transformed(*tensors) or not all(map(_has_memory, tensors)):
        return "a tensor of a subclass, without memory or under a transformation is not compiled"
    # It reads the numbers behind such a view with their old sign (torch 2.13).
    return "torch.compile does not see a negative bit" if any(tensor.is_neg() for tensor in tensors) else None


def _compile(function: Callable[..., Array]) -> Callable[..., Array]:
    # One graph for all lengths; what still differs (axes of one, orders of axes) may be compiled many times.
    wanted = {"recompile_limit": 64, "isolate_recompiles": True}
    known = inspect.signature(torch.compile).parameters
    options: Any = {name: value for name, value in wanted.items() if name in known}
    fast: Callable[..., Array] = torch.compile(function, fullgraph=True, dynamic=True, **options)
    return fast


def _devices() -> dict[str, Any]:
    cuda = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return {name: torch.device(name) for name in ["cpu", *cuda, *mps]}


def _wait(x: Array) -> None:
    # CUDA waits for the device that is current, unless it is told which.
    torch.cuda.synchronize(x.device) if x.is_cuda else getattr(torch, x.device.type).synchronize()


def _with_gradient(forward: Callable[..., X], vjp: Callable[..., Any], x: X, cos: Array, sin: Array) -> X:
    """Return ``forward(x, cos, sin)``; its gradients are ``vjp(gradient, (x, cos, sin), wanted)``."""
    result: X = _Rotation.apply(forward, vjp, x, cos, sin)  # type: ignore[no-untyped-call]  # torch's own
    return result


class _Rotation(torch.autograd.Function):
    """A rotation by a table, of which only the table is kept; x too if the table wants gradients."""

    @staticmethod
    def forward(ctx: Any, forward: Callable[..., Array], vjp: Callable[..., Any], *arrays: Array) -> Array:
        """Return ``forward(x, cos, sin)``."""
        _, cos, sin = arrays
        learned = any(ctx.needs_input_grad[3:])
        ctx.save_for_backward(*arrays) if learned else ctx.save_for_backward(None, cos, sin)
        ctx.vjp = vjp
        return forward(*arrays)

    @staticmethod
    def backward(ctx: Any, *gradients: Array) -> tuple[Array | None, ...]:
        """Return the gradients that are wanted of x, cos and sin, by what was kept: x is None if it was not."""
        (gradient,) = gradients
        return None, None, *ctx.vjp(gradient, ctx.saved_tensors, ctx.needs_input_grad[2:])


LIBRARY = Library(
    name="torch",
    types=("torch.Tensor",),
    xp=xp,
    refusal=_refusal,
    are_plain=_are_plain,
    check_placement=_check_placement,
    dtype_name=lambda dtype: str(dtype).removeprefix("torch."),
    has_float64=_has_float64,
    has_fast_float64_cosine=_has_fast_float64_cosine,
    is_traced=lambda _: torch.compiler.is_compiling(),
    wants_gradients=_wants_gradients,
    records_gradients=_records_gradients,
    supports_out=_supports_out,
    signature=_signature,
    keeps_constants=lambda: not (torch.compiler.is_compiling() or _is_watched()),
    anywhere=lambda: torch.inference_mode(mode=False),
    is_capturing=lambda x: x.is_cuda and torch.cuda.is_current_stream_capturing(),
    is_sharded=_is_sharded,
    is_parted=_is_sharded,
    map_parts=_sharding.map_shards,
    concat=lambda parts: torch.cat(parts, dim=-1),  # batched gradients know no other name of it
    cumulative_sum=lambda x: x.cumsum(-1, dtype=x.dtype),  # array-api-compat's makes torch.compile warn
    empty_like=_empty_like,
    reshape_last_axes=lambda x, axes, *lengths: x.reshape((*x.shape[: x.ndim - axes], *lengths)),
    initialise_trig=_initialise_trig,
    read_only=lambda _: False,
    span=_span,
    addresses=_addresses,
    host=HostMemory(
        module=torch,
        holds=lambda x: type(x) in _PLAIN and x.is_cpu,
        strides=lambda x: tuple(x.itemsize * step for step in x.stride()),
        tile_size=lambda: _memory.tile_size() * min(torch.get_num_threads(), 8),
        as_complex=_as_complex,
        complex_product_is_exact=_complex_product_is_exact,
        multiply_complex=_multiply_complex,
        few={"half": _few_halves, "interleaved": _few_neighbours},
        contiguous=lambda x, dtype: x.to(dtype).contiguous(),
        allocator=lambda x: torch.empty_like if x.nbytes < _LARGE else _empty_like,
        adopt=torch.from_numpy,
        why_no_loop=lambda x: _numba.refusal(str(x.dtype).removeprefix("torch.")),
        is_readable=_is_readable,
        address_bundle=lambda tensors: _memory.pack_addresses(*map(torch.Tensor.data_ptr, tensors)),
        bundle_offsets=_memory.PACKED_OFFSETS,
        may_write=lambda x: torch.is_inference_mode_enabled() or not x.is_inference(),
        mark_written=_mark_written,
        threads=torch.get_num_threads,
        shares_tiles=False,  # its functions do that themselves
    ),
    compiler=Compiler(_why_not_compiled, compile=_compile, takes_out=True),
    with_gradient=_with_gradient,
    module=torch,
    devices=_devices,
    get=lambda x: x.detach().cpu().numpy(),
    wait=_wait,
)
