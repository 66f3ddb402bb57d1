"""The files of the project agree with each other, and what they name exists."""

import dataclasses
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

import rope_any as ra
from rope_any import _arrays, cli

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name):
    """Return the text of a file of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def jobs():
    """Yield the name of each workflow and job, and the job."""
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items():
            yield f"{path.stem}, {name}", job


def steps():
    """Return the steps of all jobs of CI."""
    return [step for _, job in jobs() for step in job.get("steps", [])]


def matrix():
    """Return the matrix of the tests."""
    return yaml.safe_load(read(".github/workflows/tests.yml"))["jobs"]["libraries"]["strategy"]["matrix"]


def files_named(text):
    """Return the names of files and folders in backticks."""
    return {name for name in re.findall(r"`([\w./-]+)`", text) if re.search(r"/|\.(py|md|toml|cff)$", name)}


def missing(names):
    """Return the names that are neither files of the repository nor of the package."""
    return {name for name in names if not any((folder / name).exists() for folder in (ROOT, ROOT / "src" / "rope_any"))}


def test_versions_agree():
    top = re.search(r"^## (\S+) - (unreleased|\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.MULTILINE)
    assert top[1] == ra.__version__
    assert yaml.safe_load(read("CITATION.cff"))["version"] == ra.__version__


def test_the_changelog_names_every_command():
    assert {command.__name__ for commands in cli.COMMANDS.values() for command in commands} <= set(
        re.findall(r"`(?:rope-any )?(\w+)`", read("CHANGELOG.md"))
    )


def test_contributing_names_existing_files():
    named = files_named(read("CONTRIBUTING.md"))
    assert len(named) > 20
    assert missing(named) == set()
    assert missing(files_named("`src/rope_any/absent.py`, `docs/absent/`, `_absent.py` and `Rope`")) == {
        "src/rope_any/absent.py",
        "docs/absent/",
        "_absent.py",
    }


def test_contributing_names_existing_fields():
    text = read("CONTRIBUTING.md")
    named = set(re.findall(r"`(\w+)`", "".join(line for line in text.splitlines() if line.strip()[:1] == "|")))
    fields = {field.name for field in dataclasses.fields(_arrays.Library)}
    assert len(named) > 10
    assert named <= fields
    assert callable(_arrays.register)


def test_commands_equal_those_of_the_readme():
    install, test = re.search(r"^(pip install -e .*) && (.*)$", read("README.md"), re.MULTILINE).groups()
    runs = [step["run"] for step in steps() if "run" in step]
    assert ".ci/run" in runs  # it takes both commands from the README
    tests = [run for run in runs if "pytest" in run]
    longer = 'pytest -m "long and not slow" -n auto --dist loadfile'
    assert tests and all(run.startswith((test, longer)) for run in tests)
    assert all(longer in read(file) for file in (".ci/run", ".github/workflows/tests.yml"))
    assert longer.partition(" -n")[0] in read("CONTRIBUTING.md")
    contributing = re.search(r"```console\n(.*?)```", read("CONTRIBUTING.md"), re.DOTALL)[1]
    assert [line.partition("  ")[0] for line in contributing.splitlines()] == [install, test, ".ci/run"]


def test_ci_tests_the_python_versions_of_the_package():
    rows = matrix()
    extras = {extra for row in rows["include"] for extra in row.get("extras", "").split(",")}
    assert extras <= set(PROJECT["optional-dependencies"])
    assert set(rows["libraries"]) <= {row["libraries"] for row in rows["include"]}
    supported = {name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)}
    assert supported <= set(rows["python"])
    assert f">={min(rows['python'], key=lambda v: int(v[2:]))}" == PROJECT["requires-python"]


def test_ci_tests_the_oldest_versions_of_the_package():
    (oldest,) = (row["oldest"] for row in matrix()["include"] if row["libraries"] == "oldest")
    pinned = dict(pin.split("==") for pin in oldest.split())
    required = dict(dependency.split(">=") for dependency in PROJECT["dependencies"])
    assert {name: version.removesuffix(".0") for name, version in pinned.items()} == required


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_pin_actions_and_start_without_permissions(path):
    text = path.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    assert {"name", "concurrency"} <= set(workflow)
    used = re.findall(r"uses: (\S+)(.*)", text)
    unpinned = [(what, rest) for what, rest in used if not re.search(r"@[0-9a-f]{40}$", what) or "  # v" not in rest]
    assert {what for what, _ in unpinned} <= {"./.github/workflows/tests.yml"}


@pytest.mark.thread_unsafe(reason="it starts processes")
@pytest.mark.parametrize(("days", "compared"), [((9, 8, 1, 0), (1, 3)), ((9, 8), None), ((1, 0), None)])
def test_the_weekly_run_compares_the_commits_of_two_weeks(tmp_path, days, compared):
    (job,) = (job for name, job in jobs() if name == "weekly, speed")
    script = job["steps"][-1]["run"]
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for ago in days:
        date = (datetime.now(UTC) - timedelta(ago)).isoformat(timespec="seconds")
        env = os.environ | {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", str(ago)], env=env, check=True)
    log = subprocess.run([*git, "log", "--format=%H", "--reverse"], capture_output=True, text=True, check=True)
    commits = log.stdout.split()
    command = ["bash", "-e", "-c", f'python() {{ echo "$@"; }}\n{script}']
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    if compared is None:
        assert run.stdout.startswith("::notice::")
    else:
        base, head = (commits[number] for number in compared)
        assert run.stdout.split()[:4] == ["asv_benchmarks/regressions.py", base, head, "--here"]


def test_publishing_uses_no_password():
    (publish,) = (job for name, job in jobs() if name == "release, publish")
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert "password" not in read(".github/workflows/release.yml")


def test_the_bug_report_form_asks_for_the_output_of_check():
    form = yaml.safe_load(read(".github/ISSUE_TEMPLATE/bug.yml"))
    required = {field["id"] for field in form["body"] if field["validations"]["required"]}
    assert {"check", "versions"} <= required


def test_the_wheel_contains_only_the_package_and_its_data(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed").WheelBuilder
    (wheel,) = builder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    package = [name for name in names if name.startswith("rope_any/")]
    modules = {f"rope_any/{file.relative_to(ROOT / 'src/rope_any').as_posix()}" for file in ROOT.glob("src/**/*.py")}
    assert modules <= {*package}
    assert sorted({*package} - modules) == DATA
    about = [name.partition(".dist-info/")[2] for name in names if name not in package]
    assert sorted(about) == ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]
    assert Path(wheel).stat().st_size < 1_000_000


DATA = [
    "rope_any/config/diffusers.toml",
    "rope_any/config/gguf.toml",
    "rope_any/config/models.toml",
    "rope_any/config/params.toml",
    "rope_any/config/published.json",
    "rope_any/config/towers.toml",
    "rope_any/py.typed",
    "rope_any/testing/vectors_2.npz",
]


@pytest.mark.thread_unsafe(reason="it starts a process")
def test_each_python_block_of_the_docs_is_run():
    options = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "README.md", "docs"]
    env = os.environ | {"PYTEST_ADDOPTS": ""}  # not those of this run
    result = subprocess.run([sys.executable, *options], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    run = {(ROOT / page, int(line)) for page, line in re.findall(r"^(.*)::line:(\d+),", result.stdout, re.MULTILINE)}
    blocks, missed = 0, []
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        if page.name == "migrate.md":  # its blocks need seven other libraries: tests/test_migrate.py runs them
            continue
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^ *```(py\w*)\n.*?^ *```$", text, re.MULTILINE | re.DOTALL):
            first, last = (text.count("\n", 0, offset) + 1 for offset in block.span())
            blocks += 1
            if block[1] != "python" or not any((page, line) in run for line in range(first, last)):
                missed.append((page.name, first))
    assert blocks > 100 and missed == []
