"""PyTorch: tensors that may be traced, transformed, recorded or sharded; torch.compile; the autograd function."""

import ctypes
import inspect
import platform
import threading
from collections.abc import Callable, Hashable, MutableMapping
from functools import cache, partial
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, ref

import array_api_compat.torch
import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext  # the mode of set_default_device; it does not change existing tensors

from rope_any._arrays import _memory, _numba, _sharding
from rope_any._arrays._library import Array, Compiler, Gradients, HostMemory, Layout, Library, Refusal, State
from rope_any._checks import ArgumentValueError, Text

xp: Any = array_api_compat.torch  # typed in part, as are the functions below
_is_tracing: Any = torch._C._is_tracing  # noqa: SLF001  # what torch.jit.is_tracing asks
_are_transforms_active: Any = torch._C._are_functorch_transforms_active  # noqa: SLF001  # no public function says it
_count_dispatch_modes: Any = torch._C._len_torch_dispatch_stack  # noqa: SLF001  # likewise
_count_function_modes: Any = torch._C._len_torch_function_stack  # noqa: SLF001  # likewise
_function_mode_at: Any = torch._C._get_function_stack_at  # noqa: SLF001  # likewise
_dispatch_mode: Any = torch._C._get_dispatch_mode  # noqa: SLF001  # likewise
_count_modes_before_dispatch: Any = torch._ops._len_torch_dispatch_stack_pre_dispatch  # noqa: SLF001  # likewise
_MODES: Any = torch._C._TorchDispatchModeKey  # noqa: SLF001  # likewise
_is_functional: Any = torch._is_functional_tensor  # noqa: SLF001  # likewise
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def has_static_value(value: int) -> bool:
    """Whether the value of an int is known under torch.compile and torch.export, and is no symbol."""
    from torch.fx.experimental import symbolic_shapes  # slow to import, and loaded if anything is compiled

    return bool(symbolic_shapes.has_static_value(value))


def _refusal(x: Array) -> Refusal | None:
    """Return why a tensor is refused: nested and sparse ones are, and proxies of torch.fx; None for others."""
    if isinstance(x, torch.fx.Proxy):
        wanted = "a tensor, so write the call in a function at the top level of a module, under @torch.fx.wrap"
        return Refusal(wanted, "a Proxy of torch.fx")
    if x.is_nested:
        hint = "rotate each of its unbind()"
        # No public function says which axis is ragged; the last has features.
        if x.layout == torch.jagged and (axis := x._ragged_idx - x.ndim) < -1:  # noqa: SLF001
            at = f"positions.packed(x.offsets(), x.values().shape[{axis}])"
            hint = f"rotate its values: apply(x.values(), {at}" + (")" if axis == -2 else f", seq_axis={axis})")
        return Refusal("a dense array", "a nested tensor", hint)
    if x.layout != torch.strided:
        return Refusal("a dense array", f"a {x.layout} tensor", "give its to_dense()")
    return None


def _are_plain(arrays: tuple[Array, ...]) -> bool:
    """Whether all arrays are dense tensors of exactly the class torch.Tensor, on one device."""
    device, strided = getattr(arrays[0], "device", None), torch.strided
    for x in arrays:  # a generator is slower, and every call checks this
        if type(x) is not torch.Tensor or x.layout != strided or x.is_nested or x.device != device:
            return False
    return True


def _check_placement(arrays: dict[str, Array]) -> None:
    """Raise unless the sharded ones of the named tensors are on one device mesh."""
    meshes = {name: array.device_mesh for name, array in arrays.items() if _sharding.is_sharded(array)}
    for name, mesh in meshes.items():
        if mesh != (wanted := next(iter(meshes.values()))):
            got = Text(f"{wanted} and {mesh}")
            raise ArgumentValueError(f"{next(iter(meshes))} and {name}", "be on one device mesh", got)


def _has_float64(x: Array) -> bool:
    """Whether torch computes in float64 on the device of x."""
    dtypes = xp.__array_namespace_info__().dtypes(device=x.device, kind="real floating")
    return "float64" in dtypes  # not on MPS


def _has_fast_float64_cosine(x: Array) -> bool:
    """Whether torch computes a float64 cosine of x fast: on a CPU, or in code that torch.compile compiles."""
    # Compiled code keeps float64 in registers, and its float32 cosine may err by two ulps. Many GPUs have few float64
    # units.
    return x.is_cpu or torch.compiler.is_compiling()


def _is_transformed(*tensors: Array | None) -> bool:
    """Whether tensors are wrapped or fake, or functorch, forward-mode differentiation or torch.jit.trace is active."""
    try:
        for x in tensors:
            if x is not None:
                x.data_ptr()
    except RuntimeError:  # a wrapper has no memory of its own
        return True
    return _is_transforming()


def _is_transforming() -> bool:
    """Whether functorch, forward-mode differentiation or torch.jit.trace is active."""
    dual = forward_ad._current_level >= 0  # noqa: SLF001  # the only sign of forward mode
    return bool(dual or _are_transforms_active() or _is_tracing())


def _is_any_mode_active() -> bool:
    """Whether one of them, or a torch mode other than ``with torch.device(...)``, is active."""
    return bool(
        _is_transforming()
        or _count_dispatch_modes()
        or (
            (count := _count_function_modes())
            and any(type(_function_mode_at(i)) is not DeviceContext for i in range(count))
        )
    )


_STORE = "_rope_any_constants"


class _FakeStore(WeakKeyDictionary[Any, dict[Hashable, Any]]):
    """The constants of a FakeTensorMode, `owner`; a copy of the mode has none of them."""

    owner: Callable[[], Any] = lambda: None

    def __deepcopy__(self, _: Any) -> "_FakeStore":
        """Return an empty one, of no mode."""
        return _FakeStore()


def _fake_store(x: Array) -> MutableMapping[Any, dict[Hashable, Any]] | None:
    """Return where constants for x, fake by the active mode, are kept; None for others, in a tracer or a transform."""
    if torch.compiler.is_compiling() or _is_transforming() or _count_modes_before_dispatch():
        return None
    mode, *tracers = map(_dispatch_mode, (_MODES.FAKE, _MODES.PROXY, _MODES.FUNCTIONAL))
    if mode is None or any(tracers) or type(x).__name__ != "FakeTensor" or x.fake_mode is not mode:
        return None
    # by the mode itself: its tensors hold it, so that a weak key of ours would keep it alive
    found: _FakeStore | None = vars(mode).get(_STORE)
    if found is None or found.owner() is not mode:
        found = vars(mode)[_STORE] = _FakeStore()
        found.owner = ref(mode)
    return found


_LOWEST_ADDRESS = 2**40  # a lower one may be an offset from a null pointer; Linux processes have no memory so low


def _has_memory(x: Array) -> bool:
    """Whether x is empty or has memory: no zero tensor or freed storage; raise for fake and wrapped (vmap) tensors."""
    address = x.data_ptr()
    return bool(address >= _LOWEST_ADDRESS or address != x.storage_offset() * x.itemsize or x.numel() == 0)


def _add_facts(tensors: tuple[Any, ...], facts: list[Any]) -> bool:
    """Append dtypes, devices, shapes, strides, and what is recorded; return False if one isn't plain, or in a mode."""
    if _is_any_mode_active():
        return False
    recording = torch.is_grad_enabled()
    try:
        for x in tensors:
            if type(x) in _PLAIN:
                lacks_memory = x.data_ptr() < _LOWEST_ADDRESS and not _has_memory(x)
                if x.is_neg() or lacks_memory:
                    return False
                facts += (x.dtype, x.is_cpu or x.device, x.shape, x.is_contiguous() or x.stride())
                if recording and x.requires_grad:
                    facts.append("recorded")
            elif x is None:
                facts.append(None)
            else:
                return False
    except RuntimeError:  # non-dense tensors and wrappers of transforms have no strides or no address
        return False
    return True


def _state(*tensors: Array | None) -> State:
    """Return the state of tensors (or None), or if there are none of this thread; raise if a storage was freed."""
    given = [x for x in tensors if x is not None]
    if given and _sharding.is_sharded(given[0]):
        return State.PARTITIONED
    if torch.compiler.is_compiling():
        return State.TRACED
    is_recorded, is_plain = _are_recorded(*given), all(type(x) in _PLAIN for x in given)
    if is_recorded and is_plain and not _is_transformed(*given):
        return State.RECORDED
    if is_recorded or _is_any_mode_active() or _is_transformed(*given):
        return State.TRANSFORMED
    # copy_ between float16 and float32 ignores the negative bit (torch 2.13), and so do loops over memory.
    if not is_plain or any(not x.is_cpu or x.is_neg() for x in given):
        return State.EAGER
    empty = [x for x in given if not _has_memory(x)]
    if not all(x._is_zerotensor() or _is_functional(x) for x in empty):  # noqa: SLF001  # no public function says it
        msg = "a tensor must have memory; got one whose storage was freed"
        raise RuntimeError(msg)  # torch crashes at a null address
    return State.EAGER if empty else State.HOST


def _are_recorded(*tensors: Array) -> bool:
    """Whether autograd is on and one of the tensors requires gradients."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _get(x: Array) -> Any:
    """Return a tensor of any device as a NumPy array; raise if it has no values: on meta, fake, under a transform."""
    x = x.detach().cpu().resolve_conj().resolve_neg()
    found = x.numpy()
    if not torch.compiler.is_compiling() and not _has_memory(x):  # torch returns an array at a null address
        msg = "a tensor must have memory to be read"
        raise RuntimeError(msg)
    return found


def _mark_written(x: Array) -> None:
    """Tell autograd that a loop wrote into x: add 1 to its version counter, which inference tensors don't have."""
    if not x.is_inference():  # inference tensors have no version counter
        torch.autograd.graph.increment_version(x)


def _why_read_only(out: Array, *sources: Array) -> tuple[str, str] | None:
    """Return (got, hint) of an error for recorded gradients, a lazy negation, an inference tensor; else None."""
    if _are_recorded(out, *sources) and (reason := _why_not_recorded(out, *sources)) is not None:
        return reason
    if torch.compiler.is_compiling():
        return None
    if out.is_neg():  # copy_ to float16 ignores the bit (torch 2.13)
        return "a lazy negation (torch's negative bit)", "leave out `out`, or give a tensor without it"
    if not out.is_inference() or torch.is_inference_mode_enabled():
        return None
    return "an inference tensor", "call within torch.inference_mode(), or leave out `out`"  # torch writes, then raises


_VIEWS = {  # by what made them: those that autograd lets nobody write
    "MULTI_OUTPUT_NODE": ("a view made together with others, as by split, chunk or unbind", "make it by a slice"),
    "NO_GRAD_MODE": ("a view that was made under no_grad()", "make it outside of that"),
    "INFERENCE_MODE": ("a view that was made in inference mode", "make it outside of that"),
    "IN_CUSTOM_FUNCTION": ("a view that an autograd function returned", "give its clone()"),
}


def _why_not_recorded(out: Array, x: Array | None = None, *table: Array) -> tuple[str, str] | None:
    """Return (got, hint) of an error if autograd, which is on, can't record that `out` is written; else None."""
    leave_out = "leave out `out`, or use no_grad()"
    if any(part.requires_grad for part in table):
        return "one in a call that records gradients of its table, which are computed from x as it was", leave_out
    if x is not None and x is not out:
        got = "another array than x in a call whose gradients are recorded (an array has requires_grad)"
        return got, f"give x itself, not another view of it; or {leave_out}"
    if _sharding.is_sharded(out):
        return "a sharded tensor in a call whose gradients are recorded", leave_out
    if torch.compiler.is_compiling():
        return None  # it writes a copy, and refuses leaves itself
    is_view = out._is_view()  # noqa: SLF001  # no public function says it, nor what made the view
    if is_view and not out._base.is_leaf:  # noqa: SLF001
        got, hint = _VIEWS.get(torch._C._autograd._get_creation_meta(out).name, ("", ""))  # noqa: SLF001
        return (f"{got}, in a call whose gradients are recorded", f"{hint}; or {leave_out}") if got else None
    return (f"a {'view of a ' * is_view}leaf that requires gradients", leave_out) if out.is_leaf or is_view else None


def _layout(x: Array) -> Layout | None:
    """Return the layout of x; None for a meta, fake, traced or wrapped (vmap, grad) tensor, which has no address."""
    if torch.compiler.is_compiling() or type(x).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return None  # asked for its address, a fake tensor warns
    try:
        has_address = bool(x.data_ptr()) or x.numel() == 0
    except RuntimeError:
        return None
    return (x.shape, tuple([x.itemsize * step for step in x.stride()]), x.itemsize) if has_address else None


def _complex_product(pairs: int) -> Callable[[Any, Any, Any], object] | None:
    """Return `_multiply_complex` if products of a row of so many pairs are known to round alike anywhere; else None."""
    # The remainder of a loop after its last full vectors is multiplied by other code, which rounds once less. Rows of
    # sixteen leave no remainder: a loop takes two of the largest vectors at a time.
    return _multiply_complex if pairs % 16 == 0 and platform.machine() in {"x86_64", "AMD64"} else None


def _write_members(  # noqa: PLR0917  # as `HostMemory.write_members`
    first: Array, second: Array, a: Array, b: Array, cos: Array, sin: Array
) -> None:
    """Write a·cos − b·sin into `first` and b·cos + a·sin into `second`, in the fewest passes over memory."""
    torch.mul(a, cos, out=first)
    first.sub_(b * sin)
    torch.mul(b, cos, out=second)
    second.add_(a * sin)


def _viewer(x: Array, shape: tuple[int, ...] | None = None) -> Callable[[Array], Any]:
    """Return a function of tensors like x → a NumPy array in their memory; of another shape if x is contiguous."""
    # not by `Tensor.numpy`, after which torch never lets the tensor be resized
    import numpy as np

    size = x.itemsize
    end = size * (1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))) if x.numel() else 1
    memory, array = (ctypes.c_char * end).from_address, np.ndarray
    kind = np.dtype(f"f{size}" if x.is_floating_point() else str(x.dtype).removeprefix("torch."))
    lengths = tuple(x.shape) if shape is None else shape
    # to torch, a tensor is contiguous whatever the strides of its axes of length 1 are
    strides = None if x.is_contiguous() else tuple([size * step for step in x.stride()])
    return lambda x: array(lengths, kind, memory(x.data_ptr()), 0, strides)  # type: ignore[arg-type]  # a buffer


def _multiply_complex(x: Any, factor: Any, out: Any) -> None:
    """Write the product of complex NumPy arrays into `out`. torch fuses no multiply-add, as NumPy does."""
    torch.mul(torch.from_numpy(x), torch.from_numpy(factor), out=torch.from_numpy(out))


# torch.compile can't ask this before torch 2.13, so it is asked here of the devices that people have.
_WITH_AUTOCAST = frozenset(
    device for device in ("cpu", "cuda", "hpu", "mps", "mtia", "xla", "xpu") if torch.amp.is_autocast_available(device)
)


def _without_autocast(function: Callable[..., Array], first: Array, *others: Any, **options: Any) -> Array:
    """Return ``function(first, *others, **options)`` in the dtype of the tensors, or the list of them, `first`."""
    device = (first[0] if isinstance(first, list) else first).device.type
    has_autocast = device in _WITH_AUTOCAST or torch.amp.is_autocast_available(device)
    if not has_autocast or not torch.is_autocast_enabled(device):
        return function(first, *others, **options)
    with torch.autocast(device, enabled=False):  # it rounds products, and refuses to join the other half precision
        return function(first, *others, **options)


def _saveable(x: Array) -> Array:
    """Return x as autograd can save it: a copy of an inference tensor, unless inference mode or a compiler is on."""
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or not x.is_inference():
        return x
    return x.clone()


_HUGE_PAGES_FROM = 2**22  # bytes


def _empty_like(x: Array) -> Array:
    """Return an uninitialised tensor like x; ask for huge pages if it is large and in CPU memory."""
    result = torch.empty_like(x)
    if result.is_cpu and result.nbytes >= _HUGE_PAGES_FROM and type(result) is torch.Tensor:
        _memory.ask_for_huge_pages(result.data_ptr(), result.nbytes)
    return result


def _call_trig() -> None:
    """Call torch's cos and sin on a CPU, once in float32 and once in float64."""
    one = torch.ones(1, device="cpu")
    for function in (torch.cos, torch.sin):
        for dtype in (torch.float32, torch.float64):
            function(one.to(dtype))


# MKL selects a kernel at the first call of each function. If several threads make that call together, one may get the
# wrong kernel, whose float32 cosines err by 1.5e-4 (pytorch issue 188792). So one makes it while this file is imported;
# modes and tracers of the importing thread do not see the calls of another one.
_caller = threading.Thread(target=_call_trig)
_caller.start()
_caller.join()


def _why_not_compiled(x: Array, *others: Array | None) -> str | None:
    """Return why torch.compile cannot compile for these tensors (or None); None if it can."""
    # compiled code reads the elements of a view with the negative bit without negating them (torch 2.13)
    kinds = "a subclass, without memory, with the negative bit, or under a transform or mode"
    return None if _add_facts((x, *others), []) else f"torch.compile is not used for a tensor of {kinds}"


def _compile(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a function of tensors compiled by torch.compile."""
    # One graph for all lengths; axes of length 1 and orders of axes still need graphs of their own.
    compiled: Any = partial(torch.compile, fullgraph=True, dynamic=True)
    if "recompile_limit" in inspect.signature(torch.compile).parameters:
        fast: Callable[..., Array] = compiled(function, recompile_limit=64, isolate_recompiles=True)
        return fast
    # Before torch 2.13, all functions of one code have eight graphs together, and the ninth call runs eagerly.
    of_kind = cache(lambda _: compiled(_copy_with_code(function)))

    def run(x: Array, *others: Array) -> Array:
        """Call the function that is compiled for arrays of such dtypes and axes."""
        kind = x.dtype, len(others), tuple([n == 1 for n in x.shape])
        rotated: Array = of_kind(kind)(x, *others)
        return rotated

    return run


def _copy_with_code(function: Any) -> Callable[..., Array]:
    """Return a copy of a function that has a copy of its code."""
    code, name = function.__code__.replace(), function.__name__
    return FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)


def _vjp(function: Callable[[Array], Array], x: Array, g: Array) -> Array:
    """Return the gradient of ``sum(function(x) * g)`` with respect to x; zeros if none reaches it."""
    leaf: Any = x.detach().requires_grad_()
    y: Any = function(leaf * 1)  # not the leaf itself, so that it may be written to
    found = torch.autograd.grad(y, leaf, g, allow_unused=True)[0] if y.requires_grad else None
    return torch.zeros_like(x) if found is None else found


class _Rotation(torch.autograd.Function):
    """The autograd function of a rotation (`Gradients.with_vjp`): it saves the table, and xs if that needs them."""

    @staticmethod
    def forward(ctx: Any, forward: Callable[..., Any], vjp: Callable[..., Any], *arrays: Array) -> tuple[Array, ...]:
        """Return ``forward(xs, (cos, sin))``; `arrays` are xs, cos and sin; save in `ctx` what `backward` needs."""
        # In the backward of a view that was written, torch takes the first edge for that of the view.
        *xs, cos, sin = arrays
        *of_xs, of_cos, of_sin = ctx.needs_input_grad[2:]
        saved = xs if of_cos or of_sin else []
        ctx.save_for_backward(*map(_saveable, (cos, sin, *saved)))
        ctx.set_materialize_grads(False)
        ctx.vjp = vjp
        rotated: tuple[Array, ...] = forward(tuple(xs), (cos, sin))
        ctx.mark_dirty(*(y for x, y in zip(xs, rotated, strict=True) if y is x))
        if not (of_cos or of_sin):
            ctx.mark_non_differentiable(*(y for y, needed in zip(rotated, of_xs, strict=True) if not needed))
        return rotated

    @staticmethod
    def backward(ctx: Any, *gradients: Array | None) -> tuple[Array | None, ...]:
        """Return None for `forward` and `vjp`, then gradients of xs, cos and sin: None for 0 or if not needed."""
        cos, sin, *xs = ctx.saved_tensors
        return None, None, *ctx.vjp(gradients, tuple(xs), (cos, sin), ctx.needs_input_grad[2:])


LIBRARY = Library(
    name="torch",
    types=("torch.Tensor", "torch.Proxy"),
    xp=xp,
    refusal=_refusal,
    are_plain=_are_plain,
    check_placement=_check_placement,
    dtype_name=lambda dtype: str(dtype).removeprefix("torch."),
    has_float64=_has_float64,
    has_fast_float64_cosine=_has_fast_float64_cosine,
    state=_state,
    add_facts=_add_facts,
    mode_store=_fake_store,
    constant_context=lambda: torch.inference_mode(mode=False),
    is_capturing=lambda x: x.is_cuda and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing(),
    map_partitions=_sharding.map_shards,
    astype=torch.Tensor.type,  # faster than `to`, which reads more kinds of arguments
    concat=lambda parts: _without_autocast(torch.cat, parts, dim=-1),  # the only name with a batching rule
    stack=partial(_without_autocast, torch.stack),
    matmul=lambda a, b: _without_autocast(torch.matmul, _saveable(a), _saveable(b)),
    cumulative_sum=lambda x, axis=-1: x.cumsum(axis, dtype=x.dtype),  # array-api-compat's makes torch.compile warn
    cumulative_max=lambda x: x.cummax(-1).values,
    empty_like=_empty_like,
    reshape_last_axes=lambda x, axes, *lengths: x.reshape((*x.shape[: x.ndim - axes], *lengths)),
    why_read_only=_why_read_only,
    layout=_layout,
    address=torch.Tensor.data_ptr,
    host=HostMemory(
        contains=lambda x: type(x) in _PLAIN and x.is_cpu,
        viewer=_viewer,
        wrap=torch.from_numpy,
        mark_written=_mark_written,
        complex_product=_complex_product,
        threads=torch.get_num_threads,
        write_members=_write_members,
        why_no_loop=lambda x: _numba.refusal(str(x.dtype).removeprefix("torch.")),
        contiguous=lambda x, dtype: x.type(dtype).contiguous(),
        allocator=lambda x: torch.empty_like if x.nbytes < _HUGE_PAGES_FROM else _empty_like,
        pack_addresses=lambda tensors: _memory.pack_addresses(*map(torch.Tensor.data_ptr, tensors)),
        packed_offsets=_memory.PACKED_OFFSETS,
    ),
    compiler=Compiler(_why_not_compiled, compile=_compile, takes_out=True),
    gradients=Gradients(_vjp, _Rotation.apply),
    get=_get,
)
