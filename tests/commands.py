"""Run ``rope-any`` as its users do: in this process, in a process of its own, and on a terminal; and files for it."""

import contextlib
import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rope_any import cli

ROPE_ANY = [sys.executable, "-m", "rope_any"]
LLAMA3 = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 131_072,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


def run(*args, cwd=".", stdin=None):
    """Run ``rope-any args`` in this process; return the exit code and the output."""
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(cli.app, [*map(str, args)], input=stdin, catch_exceptions=False, prog_name="rope-any")
    return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)


def refused(*args, **options):
    """Run ``rope-any args``, which must be refused in one line and print nothing else; return the line."""
    done = run(*args, **options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert done.stderr.startswith("rope-any: ")
    return done.stderr.removeprefix("rope-any: ")


def process(*args, **options):
    """Run ``rope-any args`` in a separate process; return the exit code and the output."""
    return subprocess.run([*ROPE_ANY, *map(str, args)], capture_output=True, text=True, check=False, **options)


def terminal(*args, columns=80, **options):
    """Run ``rope-any args`` on a terminal and return its output."""
    pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
    parent, child = pty.openpty()
    size = {"COLUMNS": str(columns), "TERM": "xterm-256color"}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), child)
    with subprocess.Popen([*ROPE_ANY, *map(str, args)], **streams, **{"env": os.environ | size, **options}):
        os.close(child)
        shown = b""
        with contextlib.suppress(OSError):  # a closed terminal raises this
            while part := os.read(parent, 65536):
                shown += part
    os.close(parent)
    return shown.decode().replace("\r\n", "\n")


def write_config(folder, config, name="config.json"):
    """Write a config into a folder."""
    (folder / name).write_text(json.dumps(config))


def write_safetensors(file, **tensors):
    """Write a file of tensors, each a dtype of the format and an array."""
    header, end = {}, 0
    for name, (dtype, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": data.shape, "data_offsets": [end, end + data.nbytes]}
        end += data.nbytes
    head = json.dumps(header).encode()
    file.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(x.tobytes() for _, x in tensors.values()))
