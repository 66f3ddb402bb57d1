"""The benchmarks: asv discovers them without importing a library, and `regressions.py` compares their results."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.thread_unsafe(reason="starts processes")

FOLDER = Path(__file__).parent.parent / "asv_benchmarks"
BENCHMARKS = {
    "bench_import.timeraw_import",
    "bench_import.timeraw_import_after_numpy",
    "bench_memory.GradientPeak.peakmem_forward_backward",
    "bench_memory.MemmapGrowth.track_growth",
    "bench_memory.RotateInPlacePeak.peakmem_rotate",
    "bench_rotate.RopeDecode.time_rope",
    "bench_rotate.RopeNextPosition.time_rope",
    "bench_rotate.RopePrefill.time_rope",
    "bench_rotate.RotateError.track_largest_error",
    "bench_rotate.RotateFusedInPlace.time_rotate",
    "bench_rotate.RotateFusedNew.time_rotate",
    "bench_rotate.RotateGradient.time_forward_backward",
    "bench_rotate.RotateInPlace.time_rotate",
    "bench_rotate.RotateNew.time_rotate",
    "bench_table.CosSin.time_cos_sin",
    "bench_table.CosSinError.track_largest_error",
    "bench_table.RangeTable.time_table",
}
BASE, HEAD = "a" * 40, "b" * 40
NAN = float("nan")
SAME = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.02, 30.0]
SLOW = [2.0, 2.01, 1.99, 2.02, 1.98, 2.0, 2.01, 1.99, 2.02, 2.0]


def test_the_page_shows_the_committed_results(compare, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    docs = FOLDER.parent / "docs"
    args = [
        "--results",
        docs / "benchmarks.json",
        "--chart",
        tmp_path / "chart.svg",
        "--markdown",
        tmp_path / "table.md",
    ]
    subprocess.run([sys.executable, FOLDER / "compare.py", *args], check=True, capture_output=True)
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == (docs / "benchmarks_table.md").read_text(
        encoding="utf-8"
    )
    results = json.loads((docs / "benchmarks.json").read_text(encoding="utf-8"))
    rows = {name: list(compare.page_rows(results, name).values()) for name in compare.measured(results)}
    largest = [f"{max(compare.ratio(row) for row in ours if row):.1f}" for named in rows.values() for ours in named]
    assert len(largest) > 20 and {"NumPy", "PyTorch", "JAX"} <= {*rows}
    for chart in (tmp_path / "chart.svg", docs / "benchmarks.svg"):
        assert re.findall(r"<!-- (\d+\.\d) -->", chart.read_text(encoding="utf-8")) == largest


def test_figures_in_the_text_are_those_of_the_results(compare):
    docs = FOLDER.parent / "docs"
    rows = json.loads((docs / "benchmarks.json").read_text(encoding="utf-8"))["rows"]
    text = " ".join((docs / "benchmarks.md").read_text(encoding="utf-8").split())

    def ratio(library, end="", regime=compare.DEFAULT):
        """Return how many times as long the first peer takes for a float32 prompt."""
        key = {"library": library, "what": f"float32, half, new array{end}", "regime": regime}
        return f"{compare.ratio(next(row for row in rows if key.items() <= row.items())):.1f}"

    assert f"rotates {ratio('NumPy')} to {ratio('PyTorch')} times as fast" in text
    assert f"and {ratio('PyTorch', ', fused')} to {ratio('NumPy', ', fused')} times as fast with `fused=True`" in text
    assert f"takes {ratio('PyTorch', regime=compare.KEPT)} instead of {ratio('PyTorch')} times as long" in text
    asked = [row for row in rows if row["target"] is not None]
    short = [compare.ratio(row) / row["target"] for row in asked if compare.judged(row).endswith("missed")]
    assert re.search(r"Of these, (\d+) of (\d+) are missed", text).groups() == (str(len(short)), str(len(asked)))


def load_script(name):
    """Import a script of the benchmarks, which are no package."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def regressions():
    """Return regressions.py as a module."""
    return load_script("regressions")


@pytest.fixture
def compare(monkeypatch):
    """Return compare.py as a module."""
    monkeypatch.syspath_prepend(FOLDER)  # `compare` imports a file of this folder
    return load_script("compare")


@pytest.mark.parametrize("library", ["NumPy", "PyTorch", "JAX"])
def test_each_target_names_an_existing_row(compare, monkeypatch, library):
    if compare.absent(library) or (library == "PyTorch" and not importlib.util.find_spec("transformers")):
        pytest.skip(f"{library} or its peer is not installed")
    case = type(compare.DECODE)
    small = case.small
    monkeypatch.setattr(case, "small", lambda self: small(self)._replace(compiled=self.compiled))
    rows = []
    for name, make in compare.LIBRARIES[library](quick=True):
        group = make()
        peers = [*group.peers, *([compare.COPY] if group.copy else [])]
        rows += [{"library": library, "peer": p, "what": f"{name}, {ours}"} for p in peers for ours in group.ours]
    missing = compare.targets_without_row([library], rows)
    if not importlib.util.find_spec("ml_dtypes"):
        missing = [row for row in missing if "bfloat16" not in row]
    assert missing == []
    assert compare.BUSY_ROWS.get(library, set()) <= {row["what"] for row in rows}


def test_a_row_names_missed_targets(compare):
    row = {"what": "decode", "peer": "theirs", "ours": 2e-6, "copy": 1e-6, "busy": False}
    found = [
        {**row, "regime": "default allocator", "theirs": 6e-6, "target": 3},
        {**row, "regime": "memory kept", "theirs": 3e-6, "target": 2},
    ]
    assert compare.table_of(found)[-1] == "| decode | theirs | 3.00 | ≥ 3 | 1.50 ≥ 2, missed | 2 µs | 0.50 |"
    found.append({**row, "regime": "busy", "busy": True, "theirs": 8e-6, "target": None})
    assert compare.table_of(found)[-1] == "| decode | theirs | 3.00 | ≥ 3 | 1.50 ≥ 2, missed | 4.00 | 2 µs | 0.50 |"


def test_the_second_target_is_for_reused_memory(compare):
    what, peer = "float32, half, out=, fused", "transformers, torch.compile"

    def target(regime):
        """Return the targets of the rows of one call under a condition."""
        options = SimpleNamespace(of="PyTorch", regime=regime, quick=False)
        return [row["target"] for row in compare.rows_of({what: 1.0}, {"first": 2.0, peer: 3.0}, options)]

    assert [target(regime) for regime in compare.REGIMES] == [[None, 3], [None, 2], [None]]


def write_results(folder, commit, results, samples=None):
    """Write results as asv does: a benchmark with a case for each result, or one result without parameters."""
    cases = [[f"'{i}'" for i in range(len(results))]] if len(results) > 1 else []
    columns = ["result", "params", "version", "samples", "profile"]
    row = [results, cases, "1"] if samples is None else [results, cases, "1", samples]
    data = {"env_name": "env", "result_columns": columns, "results": {"bench.time": row}}
    path = folder / "results" / "machine" / f"{commit[:8]}-env.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


@pytest.fixture
def exit_code(regressions, monkeypatch):
    """Return a function that compares two results, arguments of `write_results`, and returns the exit code."""

    def run(base, head, *options, again=None):
        """Return the exit code of regressions.py for the figures of two commits; `again`: of HEAD, the second time."""
        measured = []

        def measure(config, commits, bench):
            """Write the results of both commits in place of measuring them."""
            assert commits == (BASE, HEAD)
            measured.append(bench)
            for commit, figures in zip(commits, (base, again if bench and again else head), strict=True):
                if figures is not None:
                    write_results(config.parent, commit, *figures)
            return True

        monkeypatch.setattr(regressions, "commit", lambda name: name)
        monkeypatch.setattr(regressions, "measure_in_environments", measure)
        code = regressions.main([BASE, HEAD, *options])
        assert measured[0] is None and len(measured) <= 2
        return code

    return run


def test_asv_discovers_benchmarks_without_importing_libraries():
    pytest.importorskip("asv_runner", reason="asv is not installed")
    script = """
import json, sys
from asv_runner.discovery import disc_benchmarks
names = [benchmark.name for benchmark in disc_benchmarks("benchmarks")]
print(json.dumps([names, sorted({"torch", "jax", "dask", "mlx", "cupy", "numba"} & sys.modules.keys())]))
"""
    found = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=FOLDER,
        env={"PYTHONPATH": str(FOLDER), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    names, libraries = json.loads(found.stdout.splitlines()[-1])
    assert sorted(names) == sorted(BENCHMARKS)
    assert libraries == []


@pytest.mark.parametrize(
    ("base", "head", "code"),
    [
        (([1.0],), ([1.05],), 0),
        (([1.0],), ([0.2],), 0),
        (([1.0],), ([1.2],), 1),
        (([1.0, 1.0],), ([1.0, 1.2],), 1),
        (([0.0],), ([0.1],), 1),
        (([1.0], [SAME]), ([2.0], [SLOW]), 1),
        (([1.0], [SAME]), ([1.2], [SAME]), 0),  # the samples do not differ
        (([1.0], [SAME[:2]]), ([1.2], [SAME[:2]]), 1),  # two samples are too few
        (([1.0, 1.0],), ([1.0, None],), 1),  # fails in HEAD
        (([1.0, 1.0],), ([1.0, NAN],), 1),  # is skipped in HEAD
        (([1.0, None],), ([1.0, 1.0],), 0),
        (([1.0, NAN],), ([1.0, NAN],), 0),
        (([NAN, NAN],), ([NAN, NAN],), 3),
        (([None],), ([1.0],), 3),
        (([1.0],), ([None],), 3),
        (([1.0],), None, 3),
        (None, None, 3),
    ],
)
def test_the_exit_code_reports_regressions(exit_code, base, head, code):
    assert exit_code(base, head) == code


def test_only_what_is_worse_twice_is_reported(exit_code, capsys):
    assert exit_code(([1.0, 1.0],), ([1.2, 1.2],), again=([1.0, 1.3],)) == 1
    assert "Worse so far: 2" in (said := capsys.readouterr().out)
    assert "WORSE  ×1.30" in said and "REGRESSION: 1 worse" in said
    assert exit_code(([1.0, 1.0],), ([1.2, 1.2],), again=([1.0, 1.0],)) == 0
    assert exit_code(([1.0, 1.0],), ([1.2, None],), again=([1.0, None],)) == 1  # fails in HEAD


def test_the_cases_that_look_worse_are_measured_exactly(regressions):
    pattern = regressions.exactly({"b.f('x', 1) [env]": 0, "b.g [env]": 0})
    names = ["b.f('x', 1)", "b.f('x', 12)", "b.g", "b.g_too"]
    assert [name for name in names if re.search(pattern, name)] == ["b.f('x', 1)", "b.g"]


def test_the_factor_is_the_threshold_of_a_regression(exit_code):
    assert [exit_code(([1.0],), ([1.2],), "--factor", f) for f in ("1.19", "1.21")] == [1, 0]


def test_the_summary_is_printed(exit_code, capsys):
    exit_code(([1.0, 1.0, NAN],), ([1.5, NAN, NAN],))
    output = capsys.readouterr().out
    assert "WORSE  ×1.50  1 → 1.5  bench.time('0') [env]" in output
    assert "LOST   measured in BASE, failed or skipped in HEAD  bench.time('1') [env]" in output
    assert "1 cases compared; 1 others not measured in BASE." in output
    assert "REGRESSION: 1 worse by more than ×1.1, 1 lost." in output


def test_a_failed_asv_run_is_an_error(regressions, monkeypatch, capsys):
    monkeypatch.setattr(regressions, "commit", lambda name: name)
    for mode, options in (("measure_in_environments", []), ("measure_here", ["--here"])):
        monkeypatch.setattr(regressions, mode, lambda *_: False)
        assert regressions.main([BASE, HEAD, *options]) == 3
        assert "NOTHING MEASURED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([BASE], "required"),
        ([BASE, BASE], "are one commit"),
        ([BASE, HEAD, "--factor", "1"], "must be a number above 1"),
        ([BASE, HEAD, "--factor", "nan"], "must be a number above 1"),
        ([BASE, HEAD, "--factor", "much"], "must be a number above 1"),
        ([BASE, HEAD, "--bench", "("], "no regular expression"),
    ],
)
def test_wrong_arguments_are_refused(regressions, monkeypatch, capsys, args, message):
    monkeypatch.setattr(regressions, "commit", lambda name: name)
    with pytest.raises(SystemExit) as stopped:
        regressions.main(args)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_unknown_commits_are_refused(regressions, capsys):
    with pytest.raises(SystemExit) as stopped:
        regressions.main(["no-such-branch", "--help-me"])
    assert stopped.value.code == 2
    assert "no commit of this repository: 'no-such-branch'" in capsys.readouterr().err


def test_results_are_written_to_a_new_folder(regressions, tmp_path):
    config = json.loads(regressions.write_config(tmp_path).read_text())
    assert Path(config["results_dir"]).parent == Path(config["html_dir"]).parent == tmp_path
    assert Path(config["benchmark_dir"]) == FOLDER / "benchmarks"
    assert Path(config["repo"]) == FOLDER.parent
