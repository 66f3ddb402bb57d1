"""Measure the error and the time of a rotation on each installed library and device, for ``rope-any check``."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from rope_any._arrays import Library
from rope_any._frequencies import frequencies
from rope_any._rope import Rope
from rope_any.cli._common import progress, status
from rope_any.cli._libraries import INSTALLABLE, Device, devices, installed, version
from rope_any.testing._exact import Sample, exact, pair_errors, rotate_exactly
from rope_any.testing._rotary import members_of
from rope_any.testing._task import ROTATION_BOUNDS, TABLE_BOUND

# The job: the shapes and base of Llama-3.1-8B.
QUERY_HEADS, KEY_HEADS, HEAD_DIM, BASE, TOKENS, OFFSET = 32, 8, 128, 500_000.0, 4096, 131_072
DTYPES = ("float32", "bfloat16")
REPEATS = 5


def report() -> dict[str, Any]:
    """Measure the job on each installed library and device; return errors, times, bounds and the job as a dict."""
    rope = Rope(frequencies(HEAD_DIM, base=BASE), pairing="half")
    with status("importing libraries"):
        found = {name: lib for name in INSTALLABLE if (lib := installed(name)) is not None}
        places = [(name, *place) for name, lib in found.items() for place in devices(lib).items()]
    measured: list[dict[str, Any]] = []
    with progress("check", 2 * len(places) + 2) as step:
        rng = np.random.default_rng(0)
        job = exact(np.sort(rng.choice(TOKENS, 80, replace=False)) + OFFSET, rope.frequencies)
        step("60-digit arithmetic")
        ends = np.asarray([0, 1, 2**31 - 1, -(2**31) + 1])
        far = exact(np.concatenate([ends, rng.integers(-(2**31) + 1, 2**31, 76)]), rope.frequencies)
        step("60-digit arithmetic")
        shapes = {x: (1, heads, TOKENS, HEAD_DIM) for x, heads in (("q", QUERY_HEADS), ("k", KEY_HEADS))}
        q, k = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes.values())
        for name, label, device in places:
            for dtype in DTYPES:
                figures = _measure(found[name], device, dtype, rope, (q, k), job, far)
                if figures is not None:
                    place = {"library": name, "version": version(found[name]), "device": label, "dtype": dtype}
                    measured.append(place | figures)
                step(f"{name} on {label}")
    return {
        "job": {**shapes, "base": BASE, "first_position": OFFSET},
        "table_entries": 2 * (far.cos.size + job.cos.size),
        "bounds": {"table_error": TABLE_BOUND, "rotation_error": {dtype: ROTATION_BOUNDS[dtype] for dtype in DTYPES}},
        "measured": measured,
        "not_measured": {
            name: "installed, but finds no GPU" if name in found else "not found"
            for name in INSTALLABLE
            if name not in {place for place, *_ in places}
        },
        "passed": all(row["passed"] for row in measured),
    }


def _measure(  # noqa: PLR0917  # called once
    lib: Library,
    device: Device,
    dtype: str,
    rope: Rope,
    job_qk: tuple[np.ndarray[Any, Any], ...],
    job: Sample,
    far: Sample,
) -> dict[str, Any] | None:
    """Return table error at both samples, rotation error at `job`, and times, as a dict; None if no such `dtype`."""
    arrays = [device.put(x) for x in job_qk]
    xp = lib.xp
    if not hasattr(xp, dtype):
        return None
    q, k = (xp.astype(x, getattr(xp, dtype)) for x in arrays)
    given = [lib.get(xp.astype(x, xp.float32)) for x in (q, k)]
    table_error = float(np.max([_table_error(lib, device, rope, sample) for sample in (job, far)]))
    rotated = [lib.get(xp.astype(x, xp.float32)) for x in rope(q, k, OFFSET)]
    rotation_error = float(np.max([_rotation_error(x, y, job) for x, y in zip(given, rotated, strict=True)]))
    ready = rope.table(range(OFFSET, OFFSET + TOKENS), like=q)
    ours, copy = _times(
        lambda: [device.wait(x) for x in rope(q, k, ready)],
        lambda: [device.wait(device.copy(x)) for x in (q, k)],
    )
    return {
        "table_error": table_error,
        "rotation_error": rotation_error,
        "seconds": ours,
        "copy_seconds": copy,
        "passed": table_error <= TABLE_BOUND and rotation_error <= ROTATION_BOUNDS[dtype],
    }


def _table_error(lib: Library, device: Device, rope: Rope, sample: Sample) -> float:
    """Return the largest absolute error of cosines and sines at the positions of a sample; nan if one is nan."""
    positions = device.put(sample.positions.astype(np.int32))
    cos, sin = (lib.get(part).astype(np.float64) for part in rope.table(positions))
    return float(np.max(np.abs([cos - sample.cos, sin - sample.sin])))


def _rotation_error(x: np.ndarray[Any, Any], rotated: np.ndarray[Any, Any], sample: Sample) -> float:
    """Return the largest error of a pair of `rotated` against x rotated exactly by `sample`, relative to its length."""
    places = members_of("half", 0, HEAD_DIM // 2)
    before, after = (part[0][:, sample.positions - OFFSET] for part in (x, rotated))
    return float(pair_errors(after, rotate_exactly(before, sample, places), places).max())


def _times(*jobs: Callable[[], object]) -> list[float]:
    """Return the median time of each job in seconds, over `REPEATS` runs in alternation after an untimed one."""
    seconds: list[list[float]] = [[] for _ in jobs]
    for _ in range(REPEATS + 1):
        for job, times in zip(jobs, seconds, strict=True):
            begin = perf_counter()
            job()
            times.append(perf_counter() - begin)
    return [median(times[1:]) for times in seconds]
