"""
Measure the largest errors of cosines and sines in our tables and in others: `precision_table.md`.

In an environment with the libraries to measure::

    pip install torch                                      # first, in the build that you want
    pip install -e ".[dask,jax,mlx,testing]" array-api-strict
    python tools/precision_table.py                         # prints the tables
    python tools/precision_table.py --write                 # and writes precision_table.md

It takes a minute or two. The reference is mpmath with 60 digits, from the float64 frequencies as given. All installed
libraries are measured, and others are named. If a library with rows in the file is missing, nothing is written.
"""

import platform
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from decimal import ROUND_CEILING, Context
from functools import cache, partial
from typing import Any, NamedTuple

import making
import mpmath
import numpy as np

import rope_any as ra
from rope_any._arrays import INSTALLABLE, Library, installed, version

PAGE = making.DOCS / "precision_table.md"
BASES = {"10 000": 10_000.0, "500 000": 500_000.0}
ROTARY_DIM = 128
SAMPLES = 1024
MAGNITUDES = {"4 096": 2**12, "131 072": 2**17, "1 048 576": 2**20, "2²⁴": 2**24, "2³¹ − 1": 2**31 - 1}

REALS = """\
The positions are float64 where the library has it, else float32. Float32 has no fractions from 2²³ on: in
the last column those positions are integers."""
LEGEND = f"""\
Each number is the largest error of cosine and sine over {SAMPLES} positions and {ROTARY_DIM // 2} pairs,
rounded up to two digits. The positions are between 15/16 of the number named and that number, with either sign."""

Numbers = np.ndarray[Any, Any]
Row = tuple[float, ...]


class Way(NamedTuple):
    """One way to make a table of cosines and sines."""

    name: str
    table: Callable[[Numbers, Row, str], tuple[Numbers, Numbers]]
    """(positions, frequencies, dtype) -> (cos, sin)"""
    ours: bool
    """Whether rope_any makes the table."""
    float64: bool
    """Whether the device has float64."""


# --- other ways -------------------------------------------------------------------------------------------


def narrow_numpy(positions: Numbers, frequencies: Row, _: str) -> tuple[Numbers, Numbers]:
    """Return NumPy's cosines and sines of a float32 product, as in the model code of transformers."""
    angle = positions.astype(np.float32)[:, None] * np.asarray(frequencies, dtype=np.float32)
    return np.cos(angle), np.sin(angle)


def narrow_torch(positions: Numbers, frequencies: Row, _: str) -> tuple[Numbers, Numbers]:
    """Return PyTorch's cosines and sines of a float32 product."""
    import torch

    angle = torch.from_numpy(positions).float()[:, None] * torch.tensor(frequencies, dtype=torch.float32)
    return angle.cos().numpy(), angle.sin().numpy()


def wide_numpy(positions: Numbers, frequencies: Row, _: str) -> tuple[Numbers, Numbers]:
    """Return NumPy's cosines and sines of a float64 product, rounded to float32."""
    angle = positions.astype(np.float64)[:, None] * np.asarray(frequencies)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def other_ways() -> Iterator[Way]:
    """Yield the other ways to compute a table."""
    yield Way("float32 product, NumPy", narrow_numpy, ours=False, float64=True)
    if installed("PyTorch"):
        yield Way("float32 product, PyTorch", narrow_torch, ours=False, float64=True)
    yield Way("float64 product and cosine, rounded, NumPy", wide_numpy, ours=False, float64=True)


# --- our ways ---------------------------------------------------------------------------------------------


class Mode(NamedTuple):
    """How to run a library: a setting and its compiler."""

    setting: Callable[[], AbstractContextManager[Any]] = nullcontext
    compiled: Callable[[Any], Any] = lambda function: function


def modes(name: str, lib: Library) -> dict[str, Mode]:
    """Return the modes of a library, by the suffix for the name of the row."""
    if name == "PyTorch":
        return {"": Mode(), ", torch.compile": Mode(compiled=partial(lib.module.compile, fullgraph=True))}
    if name == "JAX":
        x64 = partial(lib.module.enable_x64, True)  # noqa: FBT003  # its own signature
        jit = lib.module.jit
        return {"": Mode(), ", jit": Mode(compiled=jit), ", x64": Mode(x64), ", x64, jit": Mode(x64, jit)}
    if name == "MLX":
        return {"": Mode(), ", mx.compile": Mode(compiled=lib.module.compile)}
    return {"": Mode()}


def devices(name: str, lib: Library) -> dict[str, Any]:
    """Return the devices of a library by name, with array-api-strict's devices without 64-bit types."""
    found = lib.devices()
    if name == "array-api-strict":  # for devices without float64, and without any 64-bit type
        found |= {place: lib.module.Device(place) for place in ("no_float64", "no_x64")}
    return found


def our_table(
    positions: Numbers,
    frequencies: Row,
    dtype: str,
    *,
    lib: Library,
    device: Any,
    mode: Mode,
) -> tuple[Numbers, Numbers]:
    """Return our table, made by a library on a device in a mode, as NumPy arrays."""
    with mode.setting():
        p, of = lib.put(positions, device), getattr(lib.xp, dtype)
        cos, sin = mode.compiled(lambda p: ra.cos_sin(p, frequencies, dtype=of))(p)
        return lib.get(cos), lib.get(sin)


def our_ways(name: str, lib: Library) -> Iterator[Way]:
    """Yield our ways: on each device of a library, in each mode."""
    for place, device in devices(name, lib).items():
        for mark, mode in modes(name, lib).items():
            with mode.setting():
                wide = lib.has_float64(lib.put(np.zeros(1, dtype=np.int32), device))
            table = partial(our_table, lib=lib, device=device, mode=mode)
            yield Way(f"rope_any, {name}, {place}{mark}", table, ours=True, float64=wide)


# --- the reference ----------------------------------------------------------------------------------------


class Exact(NamedTuple):
    """Cosine and sine, each as a float64 and its remainder; ``(positions, pairs)``."""

    cos: tuple[Numbers, Numbers]
    sin: tuple[Numbers, Numbers]


@cache
def sample_positions(kind: str, magnitude: int) -> Numbers:
    """Return random int32, float32 or float64 positions, whose absolute values are 15/16 of `magnitude` or more."""
    rng = np.random.default_rng(magnitude)
    found: Numbers
    signs = rng.choice([-1, 1], size=SAMPLES)
    if kind == "int32":
        found = rng.integers(magnitude - magnitude // 16, magnitude, size=SAMPLES, endpoint=True)
        found[0] = magnitude
    else:
        found = rng.uniform(magnitude - magnitude / 16, magnitude, size=SAMPLES)
    found = (found * signs).astype(kind)
    return found


@cache
def exact_table(kind: str, magnitude: int, frequencies: Row) -> Exact:
    """Return the cosines and sines of `sample_positions`, computed with 60 digits."""
    positions = sample_positions(kind, magnitude)
    cells = np.empty((4, len(positions), len(frequencies)))
    mp = mpmath.MPContext()
    mp.dps = 60
    for row, p in enumerate(map(mp.mpf, positions.tolist())):
        for column, f in enumerate(map(mp.mpf, frequencies)):
            c, s = mp.cos_sin(p * f)
            cells[:, row, column] = float(c), float(c - float(c)), float(s), float(s - float(s))
    return Exact((cells[0], cells[1]), (cells[2], cells[3]))


def largest_error(found: tuple[Numbers, Numbers], truth: Exact) -> float:
    """Return the largest error of cosines and sines."""
    return max(
        float(np.max(np.abs(np.asarray(got, dtype=np.float64) - high - low)))
        for got, (high, low) in zip(found, truth, strict=True)
    )


# --- the tables -------------------------------------------------------------------------------------------


def format_error(x: float) -> str:
    """Return an error as text with two digits, rounded up, so that the table does not understate it."""
    digits = Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(x)
    return f"{digits:.1f}" if x >= 1 else f"{digits:.1e}"


def error_table(ways: list[Way], kind: str, base: float, *, dtype: str = "float32", until: int = 2**31) -> str:
    """Return the table of largest errors in Markdown: a row for each way, a column for each magnitude."""
    frequencies = ra.frequencies(ROTARY_DIM, base=base)
    columns = {name: magnitude for name, magnitude in MAGNITUDES.items() if magnitude <= until}
    rows = [("largest error near position", *columns), ("---", *["---:"] * len(columns))]
    for way in ways:
        given = "float32" if kind == "float64" and not way.float64 else kind
        cells = []
        for magnitude in columns.values():
            found = way.table(sample_positions(given, magnitude), frequencies, dtype)
            cells.append(format_error(largest_error(found, exact_table(given, magnitude, frequencies))))
        rows.append((way.name, *cells))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def missing() -> set[str]:
    """Return the libraries with rows in the file that are not installed here, or have no device."""
    rows = re.findall(r"\| rope_any, ([^,]+),", PAGE.read_text(encoding="utf-8"))
    return {name for name in rows if (lib := installed(name)) is None or not devices(name, lib)}


def main() -> None:
    """Measure, and print the tables."""
    given = making.parser(__doc__, PAGE).parse_args()
    making.report_missing(missing(), write=given.write)
    ways = list(other_ways())
    where = f"{platform.system()} {platform.machine()}"
    versions = [f"rope_any {ra.__version__}", f"Python {platform.python_version()} on {where}"]
    versions.append(f"mpmath {mpmath.__version__}")
    absent = []
    for name in INSTALLABLE:
        lib = installed(name)
        if lib is None:
            absent.append(f"{name} (not installed)")
        elif found := list(our_ways(name, lib)):
            ways += found
            versions.append(f"{name} {version(lib)}")
        else:
            absent.append(f"{name} (no device)")
    ours = [way for way in ways if way.ours]
    parts = ["<!-- written by tools/precision_table.py; run it again rather than edit this file -->"]
    for shown_base, base in BASES.items():
        parts += [f"**Integer positions, float32 tables, base {shown_base}.**", error_table(ways, "int32", base)]
    shown_base, base = next(iter(BASES.items()))
    parts += [
        f"**Real positions, float32 tables, base {shown_base}.** {REALS}",
        error_table(ours, "float64", base, until=2**24),
        f"**Integer positions, float64 tables, base {shown_base}.**",
        error_table([way for way in ours if way.float64], "int32", base, dtype="float64"),
        f"{LEGEND}\nMeasured with {', '.join(versions)}.",
    ]
    if absent:
        parts.append(f"Not measured: {', '.join(absent)}.")
    making.show("\n\n".join(parts), PAGE, write=given.write)


if __name__ == "__main__":
    main()
