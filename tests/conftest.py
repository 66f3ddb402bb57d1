"""The test matrix: every test that takes `lib` runs on each library and device, or is skipped."""

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

# Set before the libraries are imported: workers share the cores, so a second thread of NumPy or torch would only wait.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Skip the test of the processor's vector instructions by torch's compiler, which takes eight seconds.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

import cupy_stand_in
import hypothesis
import hypothesis.configuration
import ml_dtypes
import numpy as np
import pytest
import simulated_device

# No files in the tree, no deadline, and the same examples in each run, so that only a change of the code can break a
# test. --hypothesis-profile=random draws other examples.
hypothesis.configuration.set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "rope-any-hypothesis")
hypothesis.settings.register_profile("random", database=None, deadline=None)
hypothesis.settings.register_profile("rope_any", database=None, deadline=None, derandomize=True)
hypothesis.settings.load_profile("rope_any")

# The garbage collector scans the million objects of the libraries again and again, for up to a fifth of the time of a
# file. Here it runs less often, and `_frozen` excludes the objects that are older than the file.
gc.set_threshold(50_000, 10, 50)

DTYPES = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
_ALL_INTEGERS = (*_INTEGERS, "uint16", "uint32", "uint64")


@dataclass
class Library:
    """An array library on a device, with conversions from and to NumPy."""

    name: str
    xp: Any
    put: Callable[[np.ndarray], Any]
    get: Callable[[Any], np.ndarray]
    dtypes: tuple[str, ...] = DTYPES
    mutable: bool = True
    compile: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    integers: tuple[str, ...] = _INTEGERS

    def __call__(self, data: Any, dtype: str | None = None) -> Any:
        """Return data as an array of this library, in a dtype given by name."""
        host = np.asarray(data)
        if dtype == "bfloat16":
            return self.put(host.astype(ml_dtypes.bfloat16))
        return self.put(host if dtype is None else host.astype(dtype))

    def dtype(self, name: str) -> Any:
        """Return the library's dtype of that name."""
        numpy = ml_dtypes.bfloat16 if name == "bfloat16" else getattr(np, name)
        return getattr(self.xp, name, numpy)

    def need(self, *, dtype: str | None = None, compiler: bool = False) -> None:
        """Skip the test unless the library has a dtype, or a compiler."""
        if dtype is not None and dtype not in self.dtypes:
            pytest.skip(f"{self.name} has no {dtype}")
        if compiler and self.compile is None:
            pytest.skip(f"{self.name} has no compiler")

    def trace(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function compiled; torch and MLX only trace a graph and run it, without code generation."""
        if self.name == "mlx":
            return partial(_run_graph, function)
        return self.compile(function, **({"backend": "aot_eager"} if self.name.startswith("torch") else {}))

    def quick(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function, compiled if it is for JAX, which would otherwise compile each operation by itself."""
        return self.compile(function) if self.compile and self.name.startswith("jax") else function

    @property
    def has_float64(self) -> bool:
        """Whether tables are computed in float64."""
        return "float64" in self.dtypes


def _numpy() -> Iterator[Library]:
    """Yield NumPy."""
    yield Library("numpy", np, put=np.array, get=np.asarray, integers=_ALL_INTEGERS)


def _torch(device: str) -> Iterator[Library]:
    """Yield PyTorch on a device; skip if it or the device is missing."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA GPU")
    if device.startswith("sim"):
        simulated_device.load()

    def put(a: np.ndarray) -> Any:
        """Return a tensor on the device with the values of a NumPy array."""
        if a.dtype == ml_dtypes.bfloat16:
            return torch.tensor(a.astype(np.float32), device=device).to(torch.bfloat16)
        return torch.tensor(a, device=device)

    def get(x: Any) -> np.ndarray:
        """Return a tensor as a NumPy array of the same dtype."""
        x = x.detach().cpu()
        return x.float().numpy().astype(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()

    # Each thread that runs a test compiles again. Older versions of torch do not have this option.
    limit = {"recompile_limit": 64} if "recompile_limit" in signature(torch.compile).parameters else {}
    with pytest.MonkeyPatch.context() as patch:
        if device.startswith("sim"):  # no code is generated for it
            patch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
        compiled = partial(torch.compile, fullgraph=True, **limit)
        yield Library(f"torch-{device.partition(':')[0]}", torch, put, get, compile=compiled)


def _jax(*, x64: bool) -> Iterator[Library]:
    """Yield JAX with or without 64-bit types; skip if it is not installed."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    dtypes = DTYPES if x64 else DTYPES[:3]
    integers = (*_INTEGERS, "uint16", "uint32", *(["uint64"] if x64 else []))
    name = "jax-x64" if x64 else "jax"
    integers = integers if x64 else tuple(i for i in integers if i != "int64")
    put = jax.numpy.asarray if x64 else lambda a: jax.numpy.asarray(_narrow(a))
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", x64)  # for all threads, as the context manager is not
    yield Library(name, jax.numpy, put, np.asarray, dtypes, mutable=False, compile=jax.jit, integers=integers)
    jax.config.update("jax_enable_x64", before)


def _narrow(a: np.ndarray) -> np.ndarray:
    """Cast float64 and int64 data to 32 bits, for a library without 64-bit types."""
    return a.astype({"float64": "float32", "int64": "int32"}.get(a.dtype.name, a.dtype))


def _dask() -> Iterator[Library]:
    """Yield Dask; skip if it is not installed."""
    da = pytest.importorskip("dask.array", reason="dask is not installed")

    def put(a: np.ndarray) -> Any:  # two chunks along each axis
        """Return a Dask array of up to two chunks along each axis."""
        return da.from_array(a, chunks=tuple(max(1, -(-n // 2)) for n in a.shape))

    yield Library("dask", da, put, lambda x: x.compute(scheduler="sync"), mutable=False)


def _strict(device: str) -> Iterator[Library]:
    """Yield array-api-strict on a device; its devices no_float64 and no_x64 lack 64-bit dtypes."""
    strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
    place, cpu = strict.Device(device), strict.Device("CPU_DEVICE")
    flags = {"boolean_indexing": False, "data_dependent_shapes": False, "enabled_extensions": ()}
    without = {"no_float64": ("float64",), "no_x64": ("float64", "int64")}.get(device, ())

    def put(a: np.ndarray) -> Any:
        """Return an array-api-strict array on the device."""
        return strict.asarray(_narrow(a) if without else a, device=place, copy=True)

    with strict.ArrayAPIStrictFlags(**flags):
        yield Library(
            f"array-api-strict-{device}",
            strict,
            put,
            lambda x: np.from_dlpack(x.to_device(cpu)),
            tuple(d for d in DTYPES[2:] if d not in without),
            integers=tuple(i for i in (*_INTEGERS, "uint32", "uint64") if i not in without and i != "uint64"),
        )


def _mlx() -> Iterator[Library]:
    """Yield MLX; skip if it is not installed."""
    mx = pytest.importorskip("mlx.core", reason="mlx is not installed")

    def put(a: np.ndarray) -> Any:
        """Return an MLX array with the values of a NumPy array."""
        if a.dtype == ml_dtypes.bfloat16:
            return mx.array(a.astype(np.float32)).astype(mx.bfloat16)
        return mx.array(_narrow(a))

    def get(x: Any) -> np.ndarray:
        """Return an MLX array as a NumPy array of the same dtype."""
        return np.array(x.astype(mx.float32)).astype(ml_dtypes.bfloat16) if x.dtype == mx.bfloat16 else np.array(x)

    yield Library("mlx", mx, put, get, DTYPES[:3], compile=mx.compile)


def _run_graph(function: Callable[..., Any], *arrays: Any) -> Any:
    """Run a function of MLX from an exported graph, traced as its compiler does; tuples become lists."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_unflatten

    names = []

    def flat(*arrays: Any) -> list[Any]:
        """Return the outputs of the function as a flat list, and record their names."""
        leaves = tree_flatten(function(*arrays))
        names[:] = [name for name, _ in leaves]
        return [leaf for _, leaf in leaves]

    with tempfile.TemporaryDirectory() as folder:
        mx.export_function(f"{folder}/graph.mlxfn", flat, *arrays)
        leaves = mx.import_function(f"{folder}/graph.mlxfn")(*arrays)
    return tree_unflatten([*zip(names, leaves, strict=True)])


def _has_cuda() -> bool:
    """Whether CuPy and a GPU are there."""
    try:
        import cupy
    except ImportError:
        return False
    return cupy.cuda.is_available()


def _cupy() -> Iterator[Library]:
    """Yield CuPy on its GPU."""
    import cupy

    dtypes = DTYPES if int(cupy.__version__.partition(".")[0]) >= 14 else ("float16", "float32", "float64")
    yield Library("cupy", cupy, cupy.asarray, cupy.asnumpy, dtypes, integers=_ALL_INTEGERS)


def _stand_in() -> Iterator[Library]:
    """Yield the stand-in for CuPy, whose kernels a compiler of C++ compiles."""
    with cupy_stand_in.installed() as cupy:
        yield Library("cupy (stand-in)", cupy, cupy.asarray, cupy.asnumpy, integers=_ALL_INTEGERS)


LIBRARIES: dict[str, Callable[[], Iterator[Library]]] = {
    "numpy": _numpy,
    "torch-cpu": lambda: _torch("cpu"),
    "torch-cuda": lambda: _torch("cuda"),
    "torch-sim": lambda: _torch("sim:1"),  # not the current device, which is the first
    "jax": lambda: _jax(x64=False),
    "jax-x64": lambda: _jax(x64=True),
    "dask": _dask,
    "array-api-strict": lambda: _strict("CPU_DEVICE"),
    "array-api-strict-device1": lambda: _strict("device1"),
    "array-api-strict-no_float64": lambda: _strict("no_float64"),
    "array-api-strict-no_x64": lambda: _strict("no_x64"),
    "mlx": _mlx,
    **({"cupy": _cupy} if _has_cuda() else {"cupy (stand-in)": _stand_in}),
}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Load the simulated device before the first test, if one needs it."""
    if any("torch-sim" in item.nodeid for item in session.items):
        with suppress(Exception, pytest.skip.Exception):  # which each of its tests raises again
            simulated_device.load()  # autograd's first call starts a thread for each device, and knows no later one


@pytest.fixture(params=LIBRARIES)
def lib(request: pytest.FixtureRequest) -> Iterator[Library]:
    """Return each library and device; the test is skipped if it is missing."""
    yield from LIBRARIES[request.param]()


# For tests that are the same in both modes of JAX, such as those of layouts. They run only in the 32-bit mode, since
# JAX compiles each operation for each shape. Tests of dtypes, tables and positions run in both modes.
one_jax = pytest.mark.parametrize("lib", [name for name in LIBRARIES if name != "jax-x64"], indirect=True)

# For tests of what torch alone has, such as its modes.
each_torch = pytest.mark.parametrize("lib", ["torch-cpu", "torch-sim"], indirect=True)


@pytest.fixture
def torch() -> Any:
    """Return torch; skip the test if it is not installed."""
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def jax() -> Any:
    """Return JAX; skip the test if it is not installed."""
    return pytest.importorskip("jax", reason="jax is not installed")


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a random generator with the same numbers in each run."""
    return np.random.default_rng(20260401)


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """Free what the previous test file left, then exclude all remaining objects from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close all figures of a test; pyplot keeps them and warns if there are many."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Run torch with one thread; small models are up to fifty times slower with two."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
