"""
Run `rope-any verify` on the rotaries of other libraries: `verify_peers.md`.

In the environment that `comparison.md` describes::

    python tools/verify_peers.py                            # prints the table
    python tools/verify_peers.py --write                    # and writes verify_peers.md

It takes four minutes. Each row is the report of a command; `rotaries.py` has the call of each library. If a library is
not installed, it is named, and nothing is written.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import NamedTuple

import making
import rotaries
from peers_table import NAMES
from rotaries import TABLE, RotaryFunction

DIM = 128  # features
WIDEST = 98  # characters, of a line of code on a page


class Peer(NamedTuple):
    """A rotary of another library, and the options to verify it."""

    package: str
    what: str
    make: Callable[[int], RotaryFunction]
    pairing: str
    more: str = ""
    """Other options of the command."""


BFLOAT16, SHORT = " --dtype bfloat16", f" --longest {TABLE - 1}"
PEERS = {
    "transformers_llama": Peer("transformers", "Llama", rotaries.transformers, "half"),
    "transformers_llama_bfloat16": Peer("transformers", "Llama, bfloat16", rotaries.transformers, "half", BFLOAT16),
    "transformers_gptj": Peer("transformers", "GPT-J", rotaries.gptj, "interleaved", SHORT),
    "transformers_deepseek": Peer(
        "transformers",
        "DeepSeek-V3",
        partial(rotaries.transformers, model="deepseek_v3", function="apply_rotary_pos_emb_interleave"),
        "interleaved",
    ),
    "transformers_nanochat": Peer("transformers", "NanoChat", partial(rotaries.transformers, model="nanochat"), "half"),
    "lucidrains": Peer("rotary-embedding-torch", "RotaryEmbedding", rotaries.lucidrains_by_offset, "interleaved"),
    "lucidrains_bfloat16": Peer(
        "rotary-embedding-torch", "bfloat16", rotaries.lucidrains_by_offset, "interleaved", f"{BFLOAT16} --longest 9999"
    ),
    "x_transformers": Peer("x-transformers", "RotaryEmbedding", rotaries.x_transformers, "interleaved"),
    "torchtune": Peer("torchtune", "RotaryPositionalEmbeddings", rotaries.torchtune, "interleaved", SHORT),
    "litgpt": Peer("litgpt", "apply_rope", rotaries.litgpt, "half", SHORT),
    "equinox": Peer("equinox", "RotaryPositionalEmbedding", rotaries.equinox, "half", SHORT),
    "keras_hub": Peer("keras-hub", "RotaryEmbedding on torch", rotaries.keras_hub, "half"),
    "timm": Peer("timm", "apply_rot_embed, one axis", rotaries.timm, "half"),
    "diffusers": Peer("diffusers", "get_1d_rotary_pos_embed", rotaries.diffusers, "interleaved"),
    "diffusers_float64": Peer(
        "diffusers", "with freqs_dtype=float64", partial(rotaries.diffusers, freqs_dtype="float64"), "interleaved"
    ),
    "mlx": Peer("mlx", "mlx.nn.RoPE", rotaries.mlx, "half"),
    "flash_attention": Peer("flash-attn", "apply_rotary_emb", rotaries.flash_attention, "half", SHORT),
    "liger": Peer("liger_kernel", "liger_rotary_pos_emb", partial(rotaries.liger, in_place=True), "half"),
}
ENGINES = {"equinox": "jax", "mlx": "mlx"}
"""The array library of a package, if it isn't torch."""


def __getattr__(name: str) -> RotaryFunction:
    """Return the rotation of a peer: the command looks it up as an attribute of this module."""
    if name not in PEERS:
        raise AttributeError(name)
    return PEERS[name].make(DIM)


# --- the table --------------------------------------------------------------------------------------------


def command(name: str, *more: str) -> list[str]:
    """Return the arguments of `rope-any` that verify a peer."""
    one = PEERS[name]
    asked = f"--pairing {one.pairing} --library {ENGINES.get(one.package, 'torch')}{one.more}"
    return ["verify", f"verify_peers:{name}", *asked.split(), *more]


def run(arguments: list[str]) -> str:
    """Return the output of `rope-any` with some arguments; exit if it fails for another reason than a wrong rotary."""
    program = [sys.executable, "-m", "rope_any", *arguments]
    quiet = os.environ | {"TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(  # noqa: S603  # arguments from this file
        program, cwd=Path(__file__).parent, env=quiet, capture_output=True, text=True, check=False
    )
    if done.returncode not in {0, 1}:
        sys.exit(done.stderr)
    return done.stdout


def name_and_version(package: str) -> str:
    """Return the name of a library with its version."""
    return f"{NAMES.get(package, package)} {version(package)}"


def line(arguments: list[str]) -> str:
    """Return a command as text, in two lines if it is wider than the page."""
    whole = f"rope-any {' '.join(arguments)}"
    return whole if len(whole) <= WIDEST else re.sub(r" (?=--(dtype|longest))", " \\\n    ", whole, count=1)


def rows() -> Iterator[str]:
    """Yield the rows of the table."""
    for name, one in PEERS.items():
        try:
            title = f"| {name_and_version(one.package)}, {one.what}"
        except PackageNotFoundError:
            yield f"| {one.package}, {one.what} | | | not installed here |"
            continue
        report = json.loads(run(command(name, "--json")))
        errors = {int(position): error for position, error in report["errors"].items()}
        if not errors:
            yield f"{title} | | | didn't run here: {next(iter(report['refusals'].values()))} |"
            continue
        known = [position for position in (1000, 1_000_000) if position in errors]
        shown = [f"{errors[position]:.1e}" for position in known] + [""] * (2 - len(known))
        broken = [prop for prop, found in report["properties"].items() if not found["holds"]]
        said = "; ".join([*report["causes"], *(f"fails: {prop}" for prop in broken)])
        yield f"{title} | {' | '.join(shown)} | {'passes' if report['passed'] else said or 'cause not known'} |"


def main() -> None:
    """Run the peers, and print the table."""
    path = making.DOCS / "verify_peers.md"
    given = making.parser(__doc__, path).parse_args()
    making.report_missing(
        {one.package for one in PEERS.values() if not list(distributions(name=one.package))}, write=given.write
    )
    table = [
        "| library, function | error at 1000 to 1007 | at 1 000 000 to 1 000 007 (empty: not tested) | its report |",
        "| --- | --- | --- | --- |",
        *rows(),
    ]
    arguments = command("transformers_llama")
    parts = [
        "<!-- written by tools/verify_peers.py; run it again rather than edit this file -->",
        "\n".join(table),
        "The commands, row by row:",
        "\n".join(["```text", *(line(command(name)) for name in PEERS), "```"]),
        f"One report in full:\n\n```text\n$ {line(arguments)}\n{run(arguments)}```",
    ]
    making.show("\n\n".join(parts), path, write=given.write)


if __name__ == "__main__":
    main()
