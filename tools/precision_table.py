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
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from decimal import ROUND_CEILING, Context
from functools import cache, partial
from typing import Any, NamedTuple

import making
import mpmath
import numpy as np

import rope_any as ra
from rope_any._arrays import Library
from rope_any.cli._libraries import INSTALLABLE, devices, installed, version

PAGE = making.DOCS / "precision_table.md"
BASE, OTHER_BASE = 10_000.0, 500_000.0
ROTARY_DIM = 128
SAMPLES = 1024
MAGNITUDES = {"4 096": 2**12, "131 072": 2**17, "1 048 576": 2**20, "2²⁴": 2**24, "2³¹ − 1": 2**31 - 1}

OTHER_HEADS = ["integers, base 500 000", "real positions", "float64 tables"]
OURS = "ours: "
"""What begins the rows of our ways."""
LEGEND = f"""\
Each number is the largest error of cosine and sine over {SAMPLES} positions and {ROTARY_DIM // 2} pairs, rounded up.
Positions have either sign and are above 15/16 of the number named. Libraries with the same errors share a row."""
OTHERS = """\
Each number is the largest error at all these magnitudes, or at those up to 2²⁴ for real positions and float64 tables.
Real positions are float64 where the library has it."""

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
        return {"": Mode(), ", torch.compile": Mode(compiled=partial(lib.xp.compile, fullgraph=True))}
    if name == "JAX":
        import jax

        x64, jit = partial(jax.enable_x64, True), jax.jit  # noqa: FBT003  # its own signature
        return {"": Mode(), ", jit": Mode(compiled=jit), ", x64": Mode(x64), ", x64, jit": Mode(x64, jit)}
    if name == "MLX":
        return {"": Mode(), ", mx.compile": Mode(compiled=lib.xp.compile)}
    return {"": Mode()}


def places(name: str, lib: Library) -> dict[str, Callable[[Numbers], Any]]:
    """Return the devices of a library by name, each as a function of NumPy data → an array on it."""
    found = {place: device.put for place, device in devices(lib).items()}
    if name == "array-api-strict":  # for devices without float64, and without any 64-bit type
        found |= {place: partial(lib.xp.asarray, device=lib.xp.Device(place)) for place in ("no_float64", "no_x64")}
    return found


def our_table(
    positions: Numbers,
    frequencies: Row,
    dtype: str,
    *,
    lib: Library,
    put: Callable[[Numbers], Any],
    mode: Mode,
) -> tuple[Numbers, Numbers]:
    """Return our table, made by a library on a device in a mode, as NumPy arrays."""
    with mode.setting():
        p, of = put(positions), getattr(lib.xp, dtype)
        cos, sin = mode.compiled(lambda p: ra.cos_sin(p, frequencies, dtype=of))(p)
        return lib.get(cos), lib.get(sin)


def our_ways(name: str, lib: Library) -> Iterator[Way]:
    """Yield our ways: on each device of a library, in each mode."""
    for place, put in places(name, lib).items():
        for mark, mode in modes(name, lib).items():
            with mode.setting():
                wide = lib.has_float64(put(np.zeros(1, dtype=np.int32)))
            table = partial(our_table, lib=lib, put=put, mode=mode)
            yield Way(f"{name}{'' if place.startswith('cpu') else f', {place}'}{mark}", table, ours=True, float64=wide)


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


def error_of(way: Way, kind: str, base: float, magnitude: int, dtype: str = "float32") -> float:
    """Return the largest error of a way near a position; real positions are float32 if it has no float64."""
    frequencies = ra.frequencies(ROTARY_DIM, base=base)
    given = "float32" if kind == "float64" and not way.float64 else kind
    found = way.table(sample_positions(given, magnitude), frequencies, dtype)
    return largest_error(found, exact_table(given, magnitude, frequencies))


def cells_by_magnitude(way: Way) -> list[str]:
    """Return the errors of a float32 table at integer positions near each magnitude."""
    return [format_error(error_of(way, "int32", BASE, magnitude)) for magnitude in MAGNITUDES.values()]


def cells_of_others(way: Way) -> list[str]:
    """Return the largest errors of another base, of real positions, and of float64 tables, blank without float64."""
    near = [magnitude for magnitude in MAGNITUDES.values() if magnitude <= 2**24]
    found = [max(error_of(way, "int32", OTHER_BASE, magnitude) for magnitude in MAGNITUDES.values())]
    found.append(max(error_of(way, "float64", BASE, magnitude) for magnitude in near))
    if way.float64:
        found.append(max(error_of(way, "int32", BASE, magnitude, "float64") for magnitude in near))
    return [*map(format_error, found), *([] if way.float64 else [""])]


def table(heads: list[str], ways: list[Way], cells_of: Callable[[Way], list[str]]) -> str:
    """Return a table in Markdown: a row for all ways that have the same cells."""
    rows: dict[tuple[bool, tuple[str, ...]], list[str]] = {}
    for way in ways:
        rows.setdefault((way.ours, tuple(cells_of(way))), []).append(way.name)
    lines = [("largest error", *heads), ("---", *["---:"] * len(heads))]
    lines += [(f"{OURS if ours else ''}{'; '.join(names)}", *cells) for (ours, cells), names in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rows_in(text: str) -> dict[str, list[str]]:
    """Return the cells of a table in Markdown, by the names of ways."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {name: cells for first, *cells in rows for name in first.removeprefix(OURS).split("; ")}


def missing() -> set[str]:
    """Return the libraries with rows in the file that are not installed here, or have no device."""
    names = {name.partition(",")[0] for name in rows_in(PAGE.read_text(encoding="utf-8"))}
    return {name for name in names & {*INSTALLABLE} if (lib := installed(name)) is None or not devices(lib)}


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
    parts = [
        "<!-- written by tools/precision_table.py; run it again rather than edit this file -->",
        "**Integer positions near these numbers, float32 tables, base 10 000.**",
        table([*MAGNITUDES], ways, cells_by_magnitude),
        LEGEND,
        "**Other tables.**",
        table(OTHER_HEADS, [way for way in ways if way.ours], cells_of_others),
        f"{OTHERS}\nMeasured with {', '.join(versions)}.",
    ]
    if absent:
        parts.append(f"Not measured: {', '.join(absent)}.")
    making.show("\n\n".join(parts), PAGE, write=given.write)


if __name__ == "__main__":
    main()
