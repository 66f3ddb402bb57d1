"""Run ``rope-any`` in tests: captured or as on a terminal, in this process, or in another one."""

import contextlib
import io
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rope_any import cli

ROPE_ANY = [sys.executable, "-m", "rope_any"]


@contextlib.contextmanager
def _inside(folder):
    """Enter a folder, and yield an object for changes; it undoes them at the end, as that of ``sys.path``."""
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        yield patch


def run(*args, cwd=".", stdin=None):
    """Run ``rope-any args`` in this process; return the exit code and the output."""
    with _inside(cwd):
        done = CliRunner().invoke(cli.app, [*map(str, args)], input=stdin, catch_exceptions=False, prog_name="rope-any")
    return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)


def output(*args, **options):
    """Run ``rope-any args``, which must succeed without a word on stderr, and return its output."""
    done = run(*args, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def failing(*args, **options):
    """Run ``rope-any args``, which must end with 1, as checks that find a fault do, and return its output."""
    done = run(*args, **options)
    assert done.returncode == 1, done.stderr
    return done.stdout


def words(*args, **options):
    """Run ``rope-any args``, which must succeed, and return its output with single spaces."""
    return " ".join(output(*args, **options).split())


def refused(*args, **options):
    """Run ``rope-any args``, which must be refused in one line, and return the line."""
    done = run(*args, **options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rope-any: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("rope-any: ").removesuffix("\n")


def process(*args, **options):
    """Run ``rope-any args`` in a separate process; return the exit code and the output."""
    return subprocess.run([*ROPE_ANY, *map(str, args)], capture_output=True, text=True, check=False, **options)


def terminal(*args, cwd=".", columns=80, **variables):
    """Run ``rope-any args``, which must succeed, with a terminal in place of both streams; return what it shows."""
    shown = io.StringIO()
    shown.isatty = lambda: True
    with _inside(cwd) as patch:
        for name, value in {"COLUMNS": str(columns), "TERM": "xterm-256color", **variables}.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdout", shown)
        patch.setattr(sys, "stderr", shown)
        with pytest.raises(SystemExit) as stopped:
            cli.app([*map(str, args)], prog_name="rope-any")
    assert not stopped.value.code, shown.getvalue()
    return shown.getvalue()


def write_configs(folder, **models):
    """Write each config to a file of its name in a folder, new or not; return the folder."""
    folder.mkdir(exist_ok=True)
    for name, model in models.items():
        (folder / f"{name}.json").write_text(json.dumps(model))
    return folder


def write_safetensors(file, metadata=None, /, **tensors):
    """Write a file of tensors, each a dtype of the format, a shape, and bytes or an array; return the file."""
    header, end = {} if metadata is None else {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end := end + len(bytes(data))]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(bytes(data) for *_, data in tensors.values()))
    return file
