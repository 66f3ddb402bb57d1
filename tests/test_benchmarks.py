"""The benchmarks: the page shows the committed results, and `regressions.py` compares those of two commits."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thread_unsafe(reason="starts processes")

FOLDER = Path(__file__).parent.parent / "asv_benchmarks"
BASE, HEAD = "a" * 40, "b" * 40
NAN = float("nan")
SAME = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.02, 30.0]
SLOW = [2.0, 2.01, 1.99, 2.02, 1.98, 2.0, 2.01, 1.99, 2.02, 2.0]


def test_the_page_shows_the_committed_results(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    docs, table, chart = FOLDER.parent / "docs", tmp_path / "table.md", tmp_path / "chart.svg"
    options = ["--results", docs / "benchmarks.json", "--chart", chart, "--markdown", table]
    subprocess.run([sys.executable, FOLDER / "compare.py", *options], check=True, capture_output=True)
    assert table.read_text(encoding="utf-8") == (docs / "benchmarks_table.md").read_text(encoding="utf-8")
    files = (chart, docs / "benchmarks.svg")
    new, old = (re.findall(r"<!-- (\d+\.\d) -->", file.read_text(encoding="utf-8")) for file in files)
    assert new == old and len(new) > 20


# --- regressions.py ---------------------------------------------------------------------------------------------------


@pytest.fixture
def regressions(monkeypatch):
    """Return regressions.py, which is in no package, as a module; any name is that of a commit."""
    monkeypatch.syspath_prepend(FOLDER)
    module = importlib.import_module("regressions")
    monkeypatch.setattr(module, "commit", lambda name: name)
    return module


def write_results(folder, commit, results, samples=None):
    """Write results as asv does: a benchmark with a case for each result, or one result without parameters."""
    cases = [[f"'{i}'" for i in range(len(results))]] if len(results) > 1 else []
    columns = ["result", "params", "version", "samples", "profile"]
    data = {"env_name": "env", "result_columns": columns, "results": {"bench.time": [results, cases, "1", samples]}}
    path = folder / "results" / "machine" / f"{commit[:8]}-env.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


@pytest.fixture
def exit_code(regressions, monkeypatch):
    """Return a function that compares two results; it returns the exit code, and which cases were measured again."""

    def run(base, head, *options, again=None):
        """Compare figures of two commits, which are arguments of `write_results`; `again`: of HEAD, the second time."""
        measured = []

        def measure(config, commits, bench):
            """Write the results of both commits in place of measuring them."""
            assert commits == (BASE, HEAD)
            measured.append(bench)
            for commit, figures in zip(commits, (base, again if bench and again else head), strict=True):
                if figures is not None:
                    write_results(config.parent, commit, *figures)
            return True

        monkeypatch.setattr(regressions, "measure_in_environments", measure)
        code = regressions.main([BASE, HEAD, *options])
        assert measured[0] is None
        return (code, *measured[1:])

    return run


@pytest.mark.parametrize(
    ("base", "head", "code"),
    [
        (([1.0],), ([1.05],), 0),
        (([1.0, 1.0],), ([1.0, 1.2],), 1),
        (([0.0],), ([0.1],), 1),
        (([1.0], [SAME]), ([2.0], [SLOW]), 1),
        (([1.0], [SAME]), ([1.2], [SAME]), 0),  # the samples do not differ
        (([1.0], [SAME[:2]]), ([1.2], [SAME[:2]]), 1),  # two samples are too few
        (([1.0, 1.0],), ([1.0, None],), 1),  # fails in HEAD
        (([1.0, None],), ([1.0, 1.0],), 0),
        (([None],), ([1.0],), 3),
        (([1.0],), ([None],), 3),
        (None, None, 3),
    ],
)
def test_the_exit_code_reports_regressions(exit_code, base, head, code):
    assert exit_code(base, head)[0] == code


def test_only_what_is_worse_twice_is_reported(exit_code, capsys):
    code, again = exit_code(([1.0] * 12,), ([1.2] * 2 + [1.0] * 10,), again=([1.0, 1.3] + [1.0] * 10,))
    assert code == 1
    names = [f"bench.time('{i}')" for i in range(12)]
    assert [name for name in names if re.search(again, name)] == names[:2]  # and not '10' or '11'
    assert "Worse so far: 2" in (said := capsys.readouterr().out)
    assert "WORSE  ×1.30" in said and "REGRESSION: 1 worse" in said
    assert exit_code(([1.0],), ([1.2],), again=([1.0],)) == (0, r"^bench\.time$")
    assert exit_code(([1.0, 1.0],), ([1.2, None],), again=([1.0, None],))[0] == 1  # fails in HEAD


def test_the_summary_is_printed(exit_code, capsys):
    assert exit_code(([1.0],), ([1.2],), "--factor", "1.21") == (0,)
    exit_code(([1.0, 1.0, NAN],), ([1.5, NAN, NAN],))
    output = capsys.readouterr().out
    assert "WORSE  ×1.50  1 → 1.5  bench.time('0') [env]" in output
    assert "LOST   measured in BASE, failed or skipped in HEAD  bench.time('1') [env]" in output
    assert "1 cases compared; 1 others not measured in BASE." in output
    assert "REGRESSION: 1 worse by more than ×1.1, 1 lost." in output


def test_a_failed_asv_run_is_an_error(regressions, monkeypatch, capsys):
    monkeypatch.setattr(regressions, "measure_in_environments", lambda *_: False)
    assert regressions.main([BASE, HEAD]) == 3
    assert "NOTHING MEASURED" in capsys.readouterr().out
