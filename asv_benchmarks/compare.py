"""
Compare rope_any with its peers: the same work, timed alternately in one process, as ratios of medians.

    python asv_benchmarks/compare.py --busy               # everything, less than half an hour on two cores
    python asv_benchmarks/compare.py --quick              # small sizes, one process: a quick test
    python asv_benchmarks/compare.py --library NumPy --case decode     # one library, cases that match a name
    python asv_benchmarks/compare.py --json out.json --chart out.svg --markdown out.md

Each library runs in processes of its own, under two conditions: with the default allocator, and with an allocator that
keeps freed memory (glibc: MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_), because an eager peer spends most of its
time on the page faults of new memory. `--busy` adds a third: some of the rows while other processes use all cores.
Single processes scatter, so several are run; a figure is the median of their medians. `cases.py` says what is compared.
"""

import argparse
import datetime as dt
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from cases import (
    BUSY_ROWS,
    CASES,
    COPY,
    DECODE,
    FIRST_CALL_TARGET,
    LIBRARIES,
    PAGE,
    TARGETS,
    Group,
    NumPy,
    PyTorch,
    widen,
)

DEFAULT, KEPT, BUSY = "default allocator", "memory kept", "busy"
REGIMES: dict[str, dict[str, str]] = {
    DEFAULT: {},
    KEPT: {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_TOP_PAD_": str(2**28)},
    BUSY: {},
}
"""The conditions of a measurement, with the environment variables that make them."""
PACKAGES = (
    "numpy", "torch", "jax", "cupy-cuda12x", "cupy-cuda13x", "numba", "ml_dtypes", "transformers",
    "rotary-embedding-torch", "torchtune", "equinox", "liger-kernel", "flash-attn", "triton",
)  # fmt: skip

# --- one process ------------------------------------------------------------------------------------------------------


def waiter(library: str) -> Callable[[Any], Any]:
    """Return a function that waits until a library has computed a result."""
    if library == "JAX":
        import jax

        return jax.block_until_ready
    if library == "PyTorch, CUDA":
        import torch

        return lambda _: torch.cuda.synchronize()
    if library == "CuPy":
        import cupy

        return lambda _: cupy.cuda.get_current_stream().synchronize()
    return lambda result: result


def absent(library: str) -> str | None:
    """Return the reason why a library cannot be measured here, or None."""
    module = {"NumPy": "numpy", "NumPy, as tokens grow": "numpy", "JAX": "jax", "CuPy": "cupy"}.get(library, "torch")
    if importlib.util.find_spec(module) is None:
        return f"{module} is not installed"
    if library == "PyTorch, CUDA":
        import torch

        return None if torch.cuda.is_available() else "torch finds no CUDA GPU"
    if library == "CuPy":
        import cupy

        return None if cupy.cuda.is_available() else "cupy finds no CUDA GPU"
    return None


def timed(calls: list[Callable[[], Any]], wait: Callable[[Any], Any], *, seconds: float) -> list[float]:
    """
    Return the median time of each call in seconds: calls alternate, each after an untimed one.

    Without that one a call would pay for the garbage of the call before it.
    """
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        wait(call())  # compiles, if the library does
    end = perf_counter() + seconds
    while perf_counter() < end or len(times[0]) < 3:
        for call, found in zip(calls, times, strict=True):
            wait(call())
            begin = perf_counter()
            wait(call())
            found.append(perf_counter() - begin)
    return [median(found) for found in times]


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Time the groups of a library in this process, and yield their rows."""
    warnings.filterwarnings(
        "error", "fused=True falls back", RuntimeWarning
    )  # raise instead of timing another schedule
    for name, make in LIBRARIES[options.of](quick=options.quick):
        if is_wanted(name, options):
            yield from rows_of(*times_of(name, make(), options), options)
            print(f"{options.of}, {options.regime}: {name}", file=sys.stderr, flush=True)


def times_of(name: str, group: Group, options: argparse.Namespace) -> tuple[dict[str, float], dict[str, float]]:
    """Return the times of our calls in a group, by the names of their rows, and those of the peers."""
    ours = {f"{name}, {schedule}": call for schedule, call in group.ours.items()}
    peers = group.peers | ({COPY: group.copy} if group.copy else {})
    if options.regime == BUSY:
        ours = {what: call for what, call in ours.items() if what in BUSY_ROWS[options.of]}
        peers = {peer: call for peer, call in peers.items() if peer in {next(iter(peers)), COPY}}
    ours = {what: call for what, call in ours.items() if runs(what, call)}
    if not (ours and peers):
        return {}, {}
    times = iter(timed([*ours.values(), *peers.values()], waiter(options.of), seconds=options.seconds))
    return {what: next(times) for what in ours}, {peer: next(times) for peer in peers}


def rows_of(ours: dict[str, float], peers: dict[str, float], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rows of a group: each of our calls with the first peer, and with other peers of a target."""
    targets = TARGETS.get(options.of, {})
    for (what, time), (peer, theirs) in product(ours.items(), peers.items()):
        target = targets.get(peer, {}).get(what)
        for_information = peer == next(iter(peers)) or (peer not in targets and peer != COPY)
        if for_information or (target is not None and options.regime != BUSY):
            at_default, with_kept = target if isinstance(target, tuple) else (target, None)
            asked = {DEFAULT: at_default, KEPT: with_kept}.get(options.regime)
            yield {
                "what": what, "peer": peer, "target": None if options.quick else asked,
                "ours": time, "theirs": theirs, "copy": peers.get(COPY),
                "library": options.of, "regime": options.regime, "busy": options.regime == BUSY,
            }  # fmt: skip


def is_wanted(name: str, options: argparse.Namespace) -> bool:
    """Whether to measure a group, by the names in the options and whether cores are busy."""
    if options.regime == BUSY and not any(row.startswith(f"{name}, ") for row in BUSY_ROWS[options.of]):
        return False
    return not options.case or any(case in name for case in options.case)


def runs(what: str, call: Callable[[], Any]) -> bool:
    """Whether a call runs without falling back to another schedule."""
    try:
        call()
    except RuntimeWarning as warning:
        print(f"{what}: left out: {warning}", file=sys.stderr, flush=True)
        return False
    return True


def memory_of_gradients(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the MiB by which forward + backward raise the peak of this process, beyond q, k and their gradients."""
    import torch

    library, case = PyTorch(torch), CASES["float32, half"]
    rope, (q, k), table = library.ready(case.small() if options.quick else case)
    wide = [widen(torch, part, "half")[None] for part in table]
    g = tuple(torch.randn_like(x) for x in (q, k))
    for x in (q, k):
        x.requires_grad_().grad = torch.zeros_like(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rotated = rope(q, k, table) if options.of == "ours" else library.apply(q, k, *wide)
    torch.autograd.backward(rotated, g)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield {"who": options.of, "mib": (peak - before) / 1024}


def first_call(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the seconds of the first call with ``fused=True`` in this process, which has imported Numba."""
    import numba  # noqa: F401
    import numpy as np

    if options.of == "PyTorch":
        import torch

        library = PyTorch(torch)
    else:
        library = NumPy(np)
    rope, qk, table = library.ready(DECODE)
    begin = perf_counter()
    rope(*qk, table, fused=True)
    yield {"library": options.of, "seconds": perf_counter() - begin}


TASKS = {"rows": measure, "memory": memory_of_gradients, "first call": first_call}

# --- all processes ----------------------------------------------------------------------------------------------------


def in_process(*words: str, environment: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Run a task of this script in a new process with the same options, and return the objects that it prints."""
    run = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], *words],
        env={**os.environ, "OMP_NUM_THREADS": str(threads()), **(environment or {})},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


@contextmanager
def other_work() -> Iterator[None]:
    """Keep all cores busy with other processes during the context."""
    loop = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
    workers = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(cores())]
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def collected(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the libraries under each condition; return the rows and the facts on the machine."""
    processes = range(1 if options.quick else options.processes)
    results = {"about": about(), "rows": [], "absent": {}, "without_row": [], "memory": [], "first_call": []}
    libraries = options.library or list(LIBRARIES)
    for library in libraries:
        if why := absent(library):
            results["absent"][library] = why
            continue
        for regime, environment in REGIMES.items():
            if regime == BUSY and not (options.busy and library in BUSY_ROWS):
                continue
            words = ("--task", "rows", "--of", library, "--regime", regime)
            with other_work() if regime == BUSY else nullcontext():
                runs_of_it = [in_process(*words, environment=environment) for _ in processes]
            for same in zip(*runs_of_it, strict=True):
                figures = {key: median(row[key] for row in same) for key in ("ours", "theirs", "copy") if same[0][key]}
                results["rows"].append({**same[0], **figures})
    if options.case:
        return results
    here = [library for library in libraries if library not in results["absent"]]
    if not options.quick:
        results["without_row"] = targets_without_row(here, results["rows"])
    if "PyTorch" in here and importlib.util.find_spec("transformers"):
        results["memory"] = [in_process("--task", "memory", "--of", who)[0] for who in ("ours", "transformers")]
    if importlib.util.find_spec("numba"):
        results["first_call"] = [first_calls(library, processes) for library in here if library in {"NumPy", "PyTorch"}]
    return results


def targets_without_row(libraries: list[str], rows: list[dict[str, Any]]) -> list[str]:
    """Return the targets that no row measured, because a peer is not installed."""
    measured = {(row["library"], row["peer"], row["what"]) for row in rows}
    asked = [
        (name, peer, what) for name in libraries for peer, whats in TARGETS.get(name, {}).items() for what in whats
    ]
    return [f"{row[0]}: {row[2]}, beside {row[1]}" for row in asked if row not in measured]


def first_calls(library: str, processes: range) -> dict[str, Any]:
    """Measure a first call that compiles, and first calls that load the compiled loop from disk."""
    with tempfile.TemporaryDirectory(prefix="rope-any-numba-") as folder:
        call = partial(in_process, "--task", "first call", "--of", library, environment={"NUMBA_CACHE_DIR": folder})
        (compiling,), *others = call(), *(call() for _ in processes)
    from_disk = median(entry["seconds"] for (entry,) in others)
    return {**compiling, "compiling": compiling["seconds"], "seconds": from_disk, "target": FIRST_CALL_TARGET}


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """Return the number of threads of a library: torch's, if it is installed."""
    if importlib.util.find_spec("torch"):
        import torch

        return torch.get_num_threads()
    return int(os.environ.get("OMP_NUM_THREADS") or cores())


def about() -> dict[str, Any]:
    """Return facts on the machine, the versions and the date."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    import rope_any

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return {
        "when": dt.datetime.now(dt.UTC).date().isoformat(), "rope_any": rope_any.__version__,
        "cpu": cpu, "caches": caches(), "cores": cores(), "threads": threads(), "gpu": gpu(),
        "copy": "torch's copy_" if importlib.util.find_spec("torch") else "NumPy's copyto, on one thread",
        "python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}", "packages": found,
    }  # fmt: skip


def caches() -> dict[str, str]:
    """Return the cache sizes of the first core, on Linux."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level}"] = size
    return found


def gpu() -> str | None:
    """Return the name of the GPU that torch or CuPy finds, if any."""
    if absent("PyTorch, CUDA") is None:
        import torch

        return torch.cuda.get_device_name()
    if absent("CuPy") is None:
        import cupy

        return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return None


def shown(results: dict[str, Any]) -> str:
    """Return all figures as tables in Markdown."""
    lines = [conditions(results["about"], results["absent"])]
    for library in measured(results):
        lines += ["", f"**{library}**", "", *table_of([row for row in results["rows"] if row["library"] == library])]
    lines += ["", *memory(results)]
    for call in results["first_call"]:
        missed = "" if call["seconds"] <= call["target"] else ", missed"
        from_disk = f"{call['seconds']:.2f} s if the disk has the compiled loop (target ≤ {call['target']:g} s{missed})"
        what = f"First call with `fused=True` in {call['library']}, Numba imported"
        lines.append(f"{what}: {from_disk}, {call['compiling']:.2f} s if not.")
    lines += [*(f"Target without a row: {target}." for target in results["without_row"]), *unmeasured(results)]
    return "\n".join(lines) + "\n"


def page(results: dict[str, Any]) -> str:
    """Return the figures of the rows in `PAGE` as tables in Markdown."""
    lines = []
    for library in measured(results):
        if rows := page_rows(results, library):
            lines += [f"**{library}**", "", *page_table(rows), ""]
    lines += [conditions(results["about"], results["absent"]), "", *memory(results), *unmeasured(results)]
    return "\n".join(lines) + "\n"


def conditions(facts: dict[str, Any], absent: dict[str, str]) -> str:
    """Return a sentence on the machine and the versions."""
    unused = ("cupy",) if "CuPy" in absent else ()  # installed, without a GPU
    packages = ", ".join(f"{name} {v}" for name, v in facts["packages"].items() if not name.startswith(unused))
    cores = f"{facts['cores']} cores, {facts['threads']} threads"
    where = ", ".join(filter(None, (facts["cpu"], cores, facts["gpu"], facts["system"])))
    with_what = f"rope_any {facts['rope_any']}, Python {facts['python']}, {packages}"
    return f"Measured on {facts['when']} on {where}, with {with_what}."


def measured(results: dict[str, Any]) -> list[str]:
    """Return the libraries that have rows."""
    return list(dict.fromkeys(row["library"] for row in results["rows"]))


def memory(results: dict[str, Any]) -> Iterator[str]:
    """Yield the lines on the memory of gradients, if it was measured."""
    if results["memory"]:
        ours, theirs = (entry["mib"] for entry in results["memory"])
        what = "Peak memory of forward + backward in torch, beyond what is given"
        yield f"{what}: {ours:.0f} MiB with rope_any, {theirs:.0f} MiB with transformers.\n"


def unmeasured(results: dict[str, Any]) -> Iterator[str]:
    """Yield the reasons why libraries were not measured."""
    yield from (f"{library}: not measured, {why}." for library, why in results["absent"].items())


def page_rows(results: dict[str, Any], library: str) -> dict[str, list[dict[str, Any] | None]]:
    """Return the rows of a library in `PAGE`, by label: ours as it is, fused, and fused in place, beside one peer."""
    rows = [row for row in results["rows"] if (row["library"], row["regime"]) == (library, DEFAULT)]
    found = {}
    for label, (group, schedules) in PAGE.items():
        ours = [next((row for row in rows if row["what"] == f"{group}, {one}"), None) for one in schedules]
        if any(ours) and not any(row and row["peer"] == COPY for row in ours):
            found[label] = ours + [None] * (3 - len(ours))
    return found


def page_table(rows: dict[str, list[dict[str, Any] | None]]) -> list[str]:
    """Return the lines of a table of the page: times by column; a column without times is left out."""
    columns = {"what": [*rows], "theirs": [], "ours": [], "fused": [], "fused, in place": [], "a copy": []}
    for ours in rows.values():
        one = next(row for row in ours if row)
        times = [one["theirs"], *(row and row["ours"] for row in ours), one["copy"]]
        for column, time in zip([*columns][1:], times, strict=True):
            columns[column].append(readable(time) if time else "")
    used = {head: cells for head, cells in columns.items() if any(cells)}
    lines = [f"| {' | '.join(used)} |", f"| --- |{' ---: |' * (len(used) - 1)}"]
    return lines + [f"| {' | '.join(cells)} |" for cells in zip(*used.values(), strict=True)]


def readable(seconds: float) -> str:
    """Return seconds with three digits, in milliseconds or microseconds."""
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def table_of(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table of a library."""
    heads = ["what", "peer", "peer ÷ ours", "target", "memory kept", "ours", "a copy ÷ ours"]
    if busy := any(row["busy"] for row in rows):
        heads.insert(5, "busy")
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    by_regime: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_regime.setdefault((row["what"], row["peer"]), {})[row["regime"]] = row
    for (what, peer), found in by_regime.items():
        row, others = found[DEFAULT], [found.get(regime) for regime in (KEPT, BUSY)[: 1 + busy]]
        beside = [f"{ratio(other):.2f} {judged(other)}".strip() if other else "" for other in others]
        share = f"{row['copy'] / row['ours']:.2f}" if row["copy"] else ""
        cells = [what, peer, f"{ratio(row):.2f}", judged(row), *beside, readable(row["ours"]), share]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def ratio(row: dict[str, Any]) -> float:
    """Return the time of the peer divided by ours."""
    return row["theirs"] / row["ours"]


def judged(row: dict[str, Any]) -> str:
    """Return the target of a row, and whether it was missed."""
    if row["target"] is None:
        return ""
    return f"≥ {row['target']:g}{'' if ratio(row) >= row['target'] else ', missed'}"


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw for each row of the page how many times as long its peer takes: dots right of 1 say that ours is faster."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "rope_any"
    from rope_any.plot.looks import BLUE, GREEN, GREY, RED, axes_or_new, label_right

    rows = {
        f"{library}: {label}": ours
        for library in measured(results)
        for label, ours in page_rows(results, library).items()
    }
    with axes_or_new(None, height=0.25 * len(rows) + 1) as axes:
        axes.axvline(1, color=GREY, linewidth=1)
        columns = zip(*rows.values(), strict=True)
        for column, name, color in zip(columns, ("ours", "fused", "fused, in place"), (BLUE, RED, GREEN), strict=True):
            dots = [(ratio(row), place) for place, row in enumerate(column) if row]
            axes.plot(*zip(*dots, strict=True), "o", markersize=6, color=color, label=name)
        for place, ours in enumerate(rows.values()):
            label_right(axes, f"{max(ratio(row) for row in ours if row):.1f}", place)
        axes.set_yticks(range(len(rows)), [*rows], fontsize=8.5)
        axes.set(xscale="log", ylim=(len(rows) - 0.4, -0.6))
        axes.set_xlabel("time of the peer ÷ time of rope_any; the largest is at the right")
        axes.set_xticks([0.25, 0.5, 1, 2, 4, 8, 16, 32], ["¼", "½", "1", "2", "4", "8", "16", "32"])
        axes.minorticks_off()
        axes.tick_params(axis="y", length=0)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False)
        axes.figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Measure, print the tables, and write the files that the options name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and one process: a smoke test")
    parser.add_argument("--busy", action="store_true", help="some rows also while other processes use all cores")
    parser.add_argument("--library", action="append", choices=LIBRARIES, help="only this one (may be repeated)")
    parser.add_argument("--case", action="append", help="only cases whose name contains this (may be repeated)")
    parser.add_argument("--processes", type=int, default=3, help="processes per library and condition")
    parser.add_argument("--seconds", type=float, help="least time to measure the calls of a case in a process")
    parser.add_argument("--results", type=Path, help="use the figures of this JSON instead of measuring")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--markdown", type=Path, help="write tables of the main rows here")
    parser.add_argument("--chart", type=Path, help="write a chart of the main rows here (.svg, .png)")
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)  # for subprocesses, like the next two
    parser.add_argument("--of", help=argparse.SUPPRESS)
    parser.add_argument("--regime", choices=REGIMES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = 0.02 if options.quick else 1.5
    if options.task:
        for entry in TASKS[options.task](options):
            print(json.dumps(entry), flush=True)
        return
    results = json.loads(options.results.read_text(encoding="utf-8")) if options.results else collected(options)
    if not results["rows"]:
        sys.exit("compare.py: nothing was measured: " + "; ".join(map(" ".join, results["absent"].items())))
    print(shown(results))
    for path, text in ((options.json, json.dumps(results, indent=1) + "\n"), (options.markdown, page(results))):
        if path:
            path.write_text(text, encoding="utf-8")
    if options.chart:
        draw(results, options.chart)


if __name__ == "__main__":
    main()
