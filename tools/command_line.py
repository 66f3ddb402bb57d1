"""
Run the commands of ``command-line.md`` and insert their output in the page.

In an environment with the libraries that the page shows::

    pip install torch                                      # first, in the build that you want
    pip install -e ".[test]"
    python tools/command_line.py                            # prints the page
    python tools/command_line.py --write                    # and writes it
"""

import contextlib
import json
import re
import tempfile
from pathlib import Path

import making
import numpy as np
from typer.testing import CliRunner

import rope_any as ra
from rope_any.cli import app

PAGE = making.DOCS / "command-line.md"
BLOCK = re.compile(r"```console\n\$ (.+)\n(?:.*\n)*?```")  # a command and its output

LLAMA = {"model_type": "llama", "head_dim": 16, "rope_theta": 500_000.0, "max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
MINE = '''\
import numpy as np
import rope_any as ra

def careless(x, positions):
    """Angles as float32 products, as most do."""
    angles = positions.astype(np.float32)[:, None] * np.float32(ra.frequencies(64))
    return ra.rotate(x, np.cos(angles), np.sin(angles), pairing="half")
'''


def write_files(folder: Path) -> None:
    """Write the input files of the commands: two configs, two arrays, a cache, a checkpoint and a module."""
    (folder / "config.json").write_text(json.dumps(LLAMA, indent=2) + "\n")
    longer = LLAMA | {"max_position_embeddings": 32_768, "rope_scaling": YARN}
    (folder / "longer.json").write_text(json.dumps(longer, indent=2) + "\n")
    (folder / "mine.py").write_text(MINE)
    table = ra.cos_sin(range(4096), ra.frequencies(16), like=np.zeros(1, dtype=np.float32))
    np.save(folder / "cache.npy", ra.layouts.pack(table, "vllm"))
    for name, heads in (("q", 4), ("k", 2)):
        np.save(folder / f"{name}.npy", np.ones((1, heads, 6, 16), dtype=np.float32))
    names = [f"model.layers.{i}.self_attn.{x}_proj.weight" for i in range(2) for x in "qkv"]
    tensors = {
        name: {"dtype": "F32", "shape": [16, 4], "data_offsets": [256 * i, 256 * (i + 1)]}
        for i, name in enumerate(names)
    }
    header = json.dumps(tensors).encode()
    data = bytes(256 * len(names))
    (folder / "in.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)


def output_of(command: str) -> str:
    """Return the output of a command, run in the current folder."""
    program, *arguments = command.split()
    if program == "cat":
        return Path(arguments[0]).read_text(encoding="utf-8")
    return CliRunner().invoke(app, arguments, prog_name=program).output


def updated(page: str) -> str:
    """Return a page with the current output of the commands in its blocks."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files(Path(folder))
        return BLOCK.sub(lambda found: f"```console\n$ {found[1]}\n{output_of(found[1])}```", page)


if __name__ == "__main__":
    given = making.parser(__doc__, PAGE).parse_args()
    making.show(updated(PAGE.read_text(encoding="utf-8")).removesuffix("\n"), PAGE, write=given.write)
