"""The files of the project agree with each other, and what they name exists."""

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

import rope_any as ra

ROOT = Path(__file__).parent.parent


def read(name):
    """Return the text of a file of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def test_versions_agree():
    top = re.search(r"^## (\S+) - (unreleased|\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.MULTILINE)
    assert top[1] == ra.__version__ == version("rope-any")
    assert yaml.safe_load(read("CITATION.cff"))["version"] == ra.__version__


def test_contributing_has_the_commands_of_the_readme():
    install, test = re.search(r"^(pip install -e .*) && (.*)$", read("README.md"), re.MULTILINE).groups()
    assert read("CONTRIBUTING.md").count(install) == read("CONTRIBUTING.md").count(f"\n{test}") == 1


def test_the_wheel_contains_only_the_package_and_its_data(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed").WheelBuilder
    (wheel,) = builder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    package = [name for name in names if name.startswith("rope_any/")]
    files = [file for file in (ROOT / "src/rope_any").rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert "rope_any/py.typed" in package  # so type checkers read the annotations
    assert {*package} == {file.relative_to(ROOT / "src").as_posix() for file in files}
    assert {name.rpartition(".")[2] for name in package} <= {"json", "npz", "py", "typed"}
    about = [name.partition(".dist-info/")[2] for name in names if name not in package]
    assert sorted(about) == ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]
    assert Path(wheel).stat().st_size < 1_000_000


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
