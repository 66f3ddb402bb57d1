"""
Write the test vectors of `rope_any.testing`: ``python tools/make_vectors.py FILE``.

The formulas are written here from the papers, with 60 digits, without `scaling`, `axes` and `cos_sin`. The bytes do not
depend on a clock, on random numbers or on a compressor, and each number is rounded once. So each run writes the same
file.
"""

import json
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rope_any.testing._exact import features, mpmath, unit_rotations
from rope_any.testing.vectors import SCHEMA

mp = mpmath()

HEAD_DIM, BASE = 16, 10_000.0
POSITIONS = (0, 1, 2, 7, 99, 4095, 8192, 131_071, 1_000_000, 2**24 + 1, 1_234_567_890, 2**31 - 1)
STEPS = (1, 5, 7)
SHORT = tuple(1 + i / 8 for i in range(8))
LONG = tuple(float(2**i) for i in range(8))
LENGTH = {"original_length": 4096}
LONGROPE = {"short_factor": SHORT, "long_factor": LONG} | LENGTH

# By name: the scheme or the axes with their parameters; for a partial rotary also its width and its first feature.
CASES: dict[str, dict[str, Any]] = {
    "plain": {"scheme": "plain"},
    "plain-500000": {"scheme": "plain", "base": 500_000.0},
    "first-half": {"scheme": "plain", "rotary_dim": 8},
    "last-half": {"scheme": "plain", "rotary_dim": 8, "start": 8},
    "linear": {"scheme": "linear", "factor": 4.0},
    "ntk": {"scheme": "ntk", "factor": 4.0},
    "dynamic_ntk": {"scheme": "dynamic_ntk", "factor": 2.0, "length": 16_384, "trained_length": 4096},
    "ntk_by_parts": {"scheme": "ntk_by_parts", "factor": 4.0} | LENGTH,
    "yarn": {"scheme": "yarn", "factor": 4.0, "truncate": True} | LENGTH,
    "yarn-not-truncated": {"scheme": "yarn", "factor": 40.0, "truncate": False} | LENGTH,
    "longrope-short": {"scheme": "longrope", "length": 4096, "factor": 32.0} | LONGROPE,
    "longrope-long": {"scheme": "longrope", "length": 4097, "factor": 32.0} | LONGROPE,
    "llama3": {
        "scheme": "llama3",
        "base": 500_000.0,
        "factor": 8.0,
        "original_length": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
    "proportional": {"scheme": "proportional", "proportion": 0.25},
    "axial": {"axes": "axial", "rotary_dims": [8, 8]},
    "chunked": {"axes": "chunked", "sections": [2, 3, 3]},
    "strided": {"axes": "strided", "sections": [4, 2, 2]},
    "alternating": {"axes": "alternating", "count": 2},
    "mixed": {"axes": "mixed", "base": 10.0, "angle": 0.5},
    "six-of-sixteen": {"scheme": "plain", "rotary_dim": 6},
    "six-from-five": {"scheme": "plain", "rotary_dim": 6, "start": 5},
    "riflex": {"scheme": "riflex", "base": 256.0, "repeats_at": 50, "length": 66},
    "dype": {"scheme": "dype", "factor": 2.0, "original_length": 64, "noise": 0.7},
    "assigned": {"axes": "assigned", "axis_of": [1, 2, 1, 2, 1, 2, 0, 0]},
    "golden": {"axes": "golden", "count": 3},
}


# --- frequencies ------------------------------------------------------------------------------------------


def paper_frequencies(d: int, base: float) -> list[Any]:
    """Return the frequencies of RoFormer, section 3.2.2: θᵢ = base^(−2i/d)."""
    return [mp.power(base, -mp.mpf(2 * i) / d) for i in range(d // 2)]


def linear(f: list[Any], *, factor: float, **_: Any) -> list[Any]:
    """Return the frequencies of position interpolation: m → m / s."""
    return [g / factor for g in f]


def ntk(f: list[Any], *, base: float, factor: Any, **_: Any) -> list[Any]:
    """Return the frequencies of another base, b' = b · s^(d/(d−2))."""
    d = 2 * len(f)
    return paper_frequencies(d, base * mp.power(factor, mp.mpf(d) / (d - 2)))


def dynamic_ntk(f: list[Any], *, base: float, factor: float, length: int, trained_length: int) -> list[Any]:
    """Return the frequencies of another base, b' = b · (s n / M − (s − 1))^(d/(d−2))."""
    return ntk(f, base=base, factor=mp.mpf(factor) * length / trained_length - (factor - 1))


def ntk_by_parts(f: list[Any], *, factor: float, original_length: int, **_: Any) -> list[Any]:
    """Return those of YaRN, section 3.2, α = 1, β = 32: r = L / λ, h = (1 − γ(r)) θ / s + γ(r) θ."""
    gammas = [clip_to_unit((original_length * g / (2 * mp.pi) - 1) / (32 - 1)) for g in f]
    return [(1 - gamma) * g / factor + gamma * g for g, gamma in zip(f, gammas, strict=True)]


def yarn(f: list[Any], *, base: float, factor: Any, original_length: int, truncate: bool = True) -> list[Any]:
    """Return those of the YaRN authors' code, whose ramp is between the pair indices with 32 turns and one turn."""
    d = 2 * len(f)
    low, high = (d * mp.log(original_length / (2 * mp.pi * n)) / (2 * mp.log(base)) for n in (32, 1))
    if truncate:
        low, high = mp.floor(low), mp.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    parts = [clip_to_unit((i - low) / (high - low)) for i in range(len(f))]
    return [g / factor * part + g * (1 - part) for g, part in zip(f, parts, strict=True)]


def longrope(f: list[Any], *, length: int, original_length: int, **options: Any) -> list[Any]:
    """Return the frequencies of LongRoPE: a divisor for each pair, from the long list beyond the trained length."""
    divisors = options["long_factor" if length > original_length else "short_factor"]
    return [g / e for g, e in zip(f, divisors, strict=True)]


def llama3(f: list[Any], *, factor: float, original_length: int, **options: Any) -> list[Any]:
    """Return the frequencies of Llama 3.1's apply_scaling, by wavelength."""
    low, high = options["low_freq_factor"], options["high_freq_factor"]

    def scaled(g: Any) -> Any:
        """Return the frequency of one pair after scaling."""
        wavelength = 2 * mp.pi / g
        if wavelength < original_length / high:
            return g
        if wavelength > original_length / low:
            return g / factor
        smooth = (original_length / wavelength - low) / (high - low)
        return (1 - smooth) * g / factor + smooth * g

    return [scaled(g) for g in f]


def proportional(f: list[Any], *, proportion: float, **_: Any) -> list[Any]:
    """Return the frequencies of p-RoPE, of which the slowest are 0."""
    return [g if i < proportion * len(f) else mp.mpf(0) for i, g in enumerate(f)]


def riflex(f: list[Any], *, repeats_at: int, length: int, **_: Any) -> list[Any]:
    """Return those of RIFLEx: the pair whose rounded period is nearest to N makes 0.9 turns within the length."""
    k = min(range(len(f)), key=lambda i: abs(mp.nint(2 * mp.pi / f[i]) - repeats_at))
    return [mp.mpf("0.9") * 2 * mp.pi / length if i == k else g for i, g in enumerate(f)]


def dype(f: list[Any], *, base: float, factor: float, original_length: int, noise: float) -> list[Any]:
    """Return the frequencies of DyPE: two ramps over the pair index, whose bounds are numbers of turns times t²."""
    d, kappa = 2 * len(f), mp.mpf(noise) ** 2

    def ramp_weights(fast: float, slow: float) -> list[Any]:
        """Return the weight of each pair: 0 for fast pairs, 1 for slow ones."""
        places = (d * mp.log(original_length / (2 * mp.pi * n * kappa)) / (2 * mp.log(base)) for n in (fast, slow))
        low, high = (min(max(place, 0), mp.mpf(d) / 2) for place in places)
        low, high = mp.floor(low), mp.ceil(high)
        high += mp.mpf("0.001") * (low == high)
        return [clip_to_unit((i - low) / (high - low)) for i in range(len(f))]

    slow = zip(f, ntk(f, base=base, factor=factor), ramp_weights(1.25, 0.75), strict=True)
    mixed = [h * (1 - part) + g / factor * part for g, h, part in slow]
    return [m * part + g * (1 - part) for g, m, part in zip(f, mixed, ramp_weights(16, 2), strict=True)]


def clip_to_unit(x: Any) -> Any:
    """Return x clipped to the range from 0 to 1."""
    return min(max(x, mp.mpf(0)), mp.mpf(1))


SCHEMES: dict[str, Callable[..., list[Any]]] = {
    "plain": lambda f, **_: f,
    "linear": linear,
    "ntk": ntk,
    "dynamic_ntk": dynamic_ntk,
    "ntk_by_parts": ntk_by_parts,
    "yarn": yarn,
    "longrope": longrope,
    "llama3": llama3,
    "proportional": proportional,
    "riflex": riflex,
    "dype": dype,
}


def attention_factor_of(scheme: str, parameters: dict[str, Any]) -> Any:
    """Return the attention factor of a scheme: 0.1 ln s + 1 for YaRN, √(1 + ln s / ln L) for LongRoPE, else 1."""
    if scheme == "longrope":
        return mp.sqrt(1 + mp.log(parameters["factor"]) / mp.log(parameters["original_length"]))
    return mp.log(parameters["factor"]) / 10 + 1 if scheme == "yarn" else mp.mpf(1)


def rows_by_axis(axes: str, parameters: dict[str, Any], base: float) -> list[list[Any]]:
    """Return the frequencies of an arrangement of axes: one row for each axis, 0 for pairs of other axes."""
    f = paper_frequencies(HEAD_DIM, base)
    n = len(f)
    if axes == "axial":  # the frequencies of each axis, one after the other
        places = [(axis, g) for axis, d in enumerate(parameters["rotary_dims"]) for g in paper_frequencies(d, base)]
    elif axes == "chunked":  # Qwen2-VL: runs of pairs
        owners = [axis for axis, size in enumerate(parameters["sections"]) for _ in range(size)]
        places = list(zip(owners, f, strict=True))
    elif (
        axes == "strided"
    ):  # Qwen3-VL: every third pair is of the height, another third of the width, up to their sections
        t, h, w = range(n), range(1, 3 * parameters["sections"][1], 3), range(2, 3 * parameters["sections"][2], 3)
        places = [(1 if i in h else 2 if i in w else 0, f[i]) for i in t]
    elif axes == "assigned":  # VideoRoPE: any axis for any pair
        places = list(zip(parameters["axis_of"], f, strict=True))
    elif axes == "golden":  # golden-gate RoPE: direction n is that of erfinv(2 frac(n / gʲ) − 1), with g^(m+1) = g + 1
        m = parameters["count"]
        g = mp.findroot(lambda x: x ** (m + 1) - x - 1, 1.2)
        points = [[mp.erfinv(2 * mp.frac(i / g**j) - 1) for j in range(1, m + 1)] for i in range(1, n + 1)]
        return [[w * point[axis] / mp.norm(point) for w, point in zip(f, points, strict=True)] for axis in range(m)]
    elif axes == "alternating":  # Pixtral: even frequencies for one axis, odd ones for the other
        count = parameters["count"]
        places = [(axis, g) for axis in range(count) for g in f[axis::count]]
    else:  # RoPE-Mixed: magnitudes base^(−4i/d), along a direction and across it
        size = [mp.power(base, -mp.mpf(4 * i) / HEAD_DIM) for i in range(HEAD_DIM // 4)]
        along, across = parameters["angle"], parameters["angle"] + mp.pi / 2
        return [[g * part(a) for a in (along, across) for g in size] for part in (mp.cos, mp.sin)]
    return [[g if owner == axis else mp.mpf(0) for owner, g in places] for axis in range(max(places)[0] + 1)]


# --- cases ------------------------------------------------------------------------------------------------


def arrays_of(parameters: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of one case, by name."""
    start, base = parameters.get("start", 0), parameters.get("base", BASE)
    numbers = {key: value for key, value in parameters.items() if key not in {"scheme", "base", "start", "rotary_dim"}}
    if "axes" in parameters:
        rows, factor = rows_by_axis(parameters["axes"], parameters, base), mp.mpf(1)
    else:
        scheme, f = parameters["scheme"], paper_frequencies(parameters.get("rotary_dim", HEAD_DIM), base)
        options = {"base": base} if scheme in {"ntk", "dynamic_ntk", "yarn", "dype"} else {}
        rows, factor = [SCHEMES[scheme](f, **options, **numbers)], attention_factor_of(scheme, parameters)
    frequencies = floats(rows)
    factor = mp.mpf(float(factor))
    n = len(POSITIONS)
    # position 0 on all axes first; then each axis has another order
    positions = np.asarray([[POSITIONS[i * step % n] for step in STEPS[: len(rows)]] for i in range(n)])
    table = [[factor * z for z in row] for row in unit_rotations(positions, frequencies)]
    x, back = features(n, HEAD_DIM), [[mp.conj(z) for z in row] for row in table]
    return {
        "parameters": np.frombuffer(json.dumps({"base": base} | parameters, sort_keys=True).encode(), np.uint8),
        "frequencies": frequencies,
        "factor": np.asarray(float(factor)),
        "start": np.asarray(start, dtype=np.int64),
        "positions": positions,
        "cos": floats([[z.real for z in row] for row in table]),
        "sin": floats([[z.imag for z in row] for row in table]),
        "x": x.astype(np.float32),
        "half": floats(rotated(x, table, start, 1, len(rows[0]))),
        "interleaved": floats(rotated(x, table, start, 2, 1)),
        "half_gradient": floats(rotated(x, back, start, 1, len(rows[0]))),
        "interleaved_gradient": floats(rotated(x, back, start, 2, 1)),
    }


def rotated(x: np.ndarray[Any, Any], table: list[list[Any]], start: int, step: int, gap: int) -> list[list[Any]]:
    """Return x rotated: pairs of features i and i + `gap`, as complex numbers; pairs begin `step` features apart."""
    rows = [[mp.mpf(number) for number in row] for row in x.tolist()]
    for row, rotation in zip(rows, table, strict=True):
        for pair, z in enumerate(rotation):
            a = start + step * pair
            w = mp.mpc(row[a], row[a + gap]) * z
            row[a], row[a + gap] = w.real, w.imag
    return rows


def floats(rows: Sequence[Sequence[Any]]) -> np.ndarray[Any, Any]:
    """Return the numbers rounded once to float64."""
    return np.asarray([[float(number) for number in row] for row in rows])


# --- the file ---------------------------------------------------------------------------------------------


def members() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each array."""
    yield "schema.npy", npy(np.int64(SCHEMA))
    for name, parameters in CASES.items():
        for part, array in arrays_of(parameters).items():
            yield f"{name}/{part}.npy", npy(array)


def npy(array: Any) -> bytes:
    """Return an array in NumPy's format, version 1.0; its numbers begin at a multiple of 64 bytes."""
    data = np.asarray(array)
    data = data.astype(data.dtype.newbyteorder("<"))
    about = {"descr": data.dtype.str, "fortran_order": False, "shape": data.shape}
    header = repr(about).encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data.tobytes()


def write(path: Path) -> None:
    """Write the archive uncompressed and without timestamps."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # the same on every system
            archive.writestr(entry, data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/make_vectors.py FILE")
    write(Path(sys.argv[1]))
