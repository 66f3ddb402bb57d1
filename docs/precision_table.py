"""
Measure the largest error of cos and sin, ours and that of the float32 way, and write `precision_table.md`.

Run it again with ``python docs/precision_table.py``; it takes a few minutes. The judge is mpmath with 60 digits, on
the float64 frequencies as given. Every library that is installed is measured; those that are not are named.
"""

import importlib.metadata
import platform
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, Context
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np

import rope_any as ra

BASES = {"10 000": 10_000.0, "500 000": 500_000.0}
ROTARY_DIM = 128
SAMPLES = 1024
MAGNITUDES = {"4 096": 2**12, "131 072": 2**17, "1 048 576": 2**20, "2²⁴": 2**24, "2³¹ − 1": 2**31 - 1}
PACKAGES = """
rope-any numpy array-api-compat torch jax jaxlib dask mlx array-api-strict cupy-cuda12x cupy-cuda13x mpmath
""".split()

REALS = """\
The positions are float64 where the library has it, else float32. Float32 has no fractions from 2²³ on: in the
last column those positions are integers."""
LEGEND = f"""\
Each number is the largest error of cosine and sine over {SAMPLES} positions and {ROTARY_DIM // 2} pairs, rounded up
to two digits. The positions, of either sign, are drawn from the sixteenth below the magnitude named."""

Numbers = np.ndarray[Any, Any]
Function = Callable[..., Any]


class Way(NamedTuple):
    """One way to make a table, on one library."""

    name: str
    table: Function
    """(positions: a NumPy array, frequencies, dtype: its name) -> (cos, sin) as NumPy arrays"""
    float64: bool = True
    """Whether float64 is there."""
    ours: bool = True


# --- the ways ---------------------------------------------------------------------------------------------


def careless(positions: Numbers, frequencies: tuple[float, ...], _: str) -> tuple[Numbers, Numbers]:
    """Multiply in float32, as most models do."""
    angle = positions.astype(np.float32)[:, None] * np.asarray(frequencies, dtype=np.float32)
    return np.cos(angle), np.sin(angle)


def wide(positions: Numbers, frequencies: tuple[float, ...], _: str) -> tuple[Numbers, Numbers]:
    """Multiply and take cosines in float64, then round."""
    angle = positions.astype(np.float64)[:, None] * np.asarray(frequencies)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def ours(
    into: Function, back: Function = np.asarray, compiled: Function = lambda f: f, dtypes: Any = np
) -> Function:
    """Return our way on a library, given how an array gets into it and back out of it."""

    def table(positions: Numbers, frequencies: tuple[float, ...], dtype: str) -> tuple[Numbers, Numbers]:
        make = compiled(lambda p: ra.cos_sin(p, frequencies, dtype=getattr(dtypes, dtype)))
        cos, sin = make(into(positions))
        return back(cos), back(sin)

    return table


def numpy_ways() -> Iterator[Way]:
    yield Way("float32 product, NumPy", careless, ours=False)
    yield Way("float64 product and cosine, rounded, NumPy", wide, ours=False)
    yield Way("NumPy", ours(np.asarray))


def torch_ways() -> Iterator[Way]:
    import torch

    def peers(positions: Numbers, frequencies: tuple[float, ...], _: str) -> tuple[Numbers, Numbers]:
        row = torch.tensor(frequencies, dtype=torch.float64).float()
        angle = torch.from_numpy(positions).float()[:, None] * row
        return angle.cos().numpy(), angle.sin().numpy()

    def compiled(function: Function) -> Function:
        return torch.compile(function, fullgraph=True)

    yield Way("float32 product, PyTorch", peers, ours=False)
    yield Way("PyTorch", ours(torch.from_numpy, dtypes=torch))
    yield Way("PyTorch, torch.compile", ours(torch.from_numpy, compiled=compiled, dtypes=torch))
    if not torch.cuda.is_available():
        return

    def onto(positions: Numbers) -> Any:
        return torch.from_numpy(positions).cuda()

    def back(x: Any) -> Numbers:
        return x.cpu().numpy()

    yield Way("PyTorch, CUDA", ours(onto, back, dtypes=torch))
    yield Way("PyTorch, CUDA, torch.compile", ours(onto, back, compiled, torch))


def jax_ways() -> Iterator[Way]:
    import jax
    import jax.numpy as jnp

    def with_x64(table: Function) -> Function:
        def run(*arguments: Any) -> Any:
            with jax.enable_x64(True):
                return table(*arguments)

        return run

    yield Way("JAX", ours(jnp.asarray), float64=False)
    yield Way("JAX, jit", ours(jnp.asarray, compiled=jax.jit), float64=False)
    yield Way("JAX, x64", with_x64(ours(jnp.asarray)))
    yield Way("JAX, x64, jit", with_x64(ours(jnp.asarray, compiled=jax.jit)))


def dask_ways() -> Iterator[Way]:
    import dask.array as da

    yield Way("Dask", ours(lambda p: da.from_array(p, chunks=100)))


def mlx_ways() -> Iterator[Way]:
    import mlx.core as mx

    yield Way("MLX", ours(mx.array, np.array, dtypes=mx), float64=False)
    yield Way("MLX, mx.compile", ours(mx.array, np.array, mx.compile, mx), float64=False)


def strict_ways() -> Iterator[Way]:
    import array_api_strict as strict

    def on(device: str) -> Function:
        place = strict.Device(device)
        cpu = strict.Device("CPU_DEVICE")
        return ours(
            lambda p: strict.asarray(p, device=place), lambda x: np.asarray(x.to_device(cpu)), dtypes=strict
        )

    yield Way("array-api-strict", on("CPU_DEVICE"))
    yield Way("array-api-strict, no_float64", on("no_float64"), float64=False)
    yield Way("array-api-strict, no_x64", on("no_x64"), float64=False)


def cupy_ways() -> Iterator[Way]:
    import cupy

    if not cupy.cuda.is_available():
        message = "no CUDA device"
        raise ImportError(message)
    yield Way("CuPy", ours(cupy.asarray, cupy.asnumpy))


LIBRARIES = {
    "NumPy": numpy_ways,
    "PyTorch": torch_ways,
    "JAX": jax_ways,
    "Dask": dask_ways,
    "MLX": mlx_ways,
    "array-api-strict": strict_ways,
    "CuPy": cupy_ways,
}


# --- the judge --------------------------------------------------------------------------------------------


class Exact(NamedTuple):
    """Cosine and sine, each as a float64 and what it leaves; ``(positions, pairs)``."""

    cos: tuple[Numbers, Numbers]
    sin: tuple[Numbers, Numbers]


@cache
def sample(kind: str, magnitude: int) -> Numbers:
    """Return int32, float32 or float64 positions of either sign from the sixteenth below `magnitude`."""
    rng = np.random.default_rng(magnitude)
    signs = rng.choice([-1, 1], size=SAMPLES)
    if kind == "int32":
        found = rng.integers(magnitude - magnitude // 16, magnitude, size=SAMPLES, endpoint=True)
        found[0] = magnitude
    else:
        found = rng.uniform(magnitude - magnitude / 16, magnitude, size=SAMPLES)
    return (found * signs).astype(kind)


@cache
def exact(kind: str, magnitude: int, frequencies: tuple[float, ...]) -> Exact:
    """Return what 60 digits say of a sample."""
    positions = sample(kind, magnitude)
    cells = np.empty((4, len(positions), len(frequencies)))
    with mpmath.workdps(60):
        for row, p in enumerate(map(mpmath.mpf, positions.tolist())):
            for column, f in enumerate(map(mpmath.mpf, frequencies)):
                c, s = mpmath.cos_sin(p * f)
                cells[:, row, column] = float(c), float(c - float(c)), float(s), float(s - float(s))
    return Exact((cells[0], cells[1]), (cells[2], cells[3]))


def largest_error(found: tuple[Numbers, Numbers], truth: Exact) -> float:
    """Return the largest error of cosines and sines."""
    return max(
        float(np.max(np.abs(np.asarray(got, dtype=np.float64) - high - low)))
        for got, (high, low) in zip(found, truth, strict=True)
    )


# --- the tables -------------------------------------------------------------------------------------------


def shown(x: float) -> str:
    """Return two digits, rounded up: a table of errors must not flatter."""
    digits = Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(x)
    return f"{digits:.1f}" if x >= 1 else f"{digits:.1e}"


def measured(ways: list[Way], kind: str, base: float, *, dtype: str = "float32", until: int = 2**31) -> str:
    """Return the table of largest errors: a row for each way, a column for each magnitude."""
    frequencies = ra.frequencies(ROTARY_DIM, base=base)
    columns = {name: magnitude for name, magnitude in MAGNITUDES.items() if magnitude <= until}
    rows = [("largest error near position", *columns), ("---", *["---:"] * len(columns))]
    for way in ways:
        given = "float32" if kind == "float64" and not way.float64 else kind
        cells = []
        for magnitude in columns.values():
            found = way.table(sample(given, magnitude), frequencies, dtype)
            cells.append(shown(largest_error(found, exact(given, magnitude, frequencies))))
        rows.append((f"rope_any, {way.name}" if way.ours else way.name, *cells))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def versions() -> str:
    """Return what the numbers were measured with."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    where = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return f"{where}; {', '.join(found)}"


def main() -> None:
    """Measure, and write the tables."""
    ways: list[Way] = []
    absent = []
    for name, library in LIBRARIES.items():
        try:
            ways += library()
        except ImportError as reason:
            absent.append(f"{name} ({reason})")
    ways.sort(key=lambda way: way.ours)  # the others first
    of_ours = [way for way in ways if way.ours]
    parts = ["<!-- written by precision_table.py; run it again rather than edit this file -->"]
    for shown_base, base in BASES.items():
        parts += [f"**Integer positions, float32 tables, base {shown_base}.**", measured(ways, "int32", base)]
    shown_base, base = next(iter(BASES.items()))
    parts += [
        f"**Real positions, float32 tables, base {shown_base}.** {REALS}",
        measured(of_ours, "float64", base, until=2**24),
        f"**Integer positions, float64 tables, base {shown_base}.**",
        measured([way for way in of_ours if way.float64], "int32", base, dtype="float64"),
        f"{LEGEND}\nMeasured with {versions()}.",
    ]
    if absent:
        parts.append(f"Not measured: {', '.join(absent)}.")
    text = "\n\n".join(parts)
    Path(__file__).with_name("precision_table.md").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
