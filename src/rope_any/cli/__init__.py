"""Define the command line ``rope-any``: its commands in groups, in the order of use, each with examples."""

import sys
from collections.abc import Callable
from typing import Annotated

try:
    import typer
except ModuleNotFoundError as error:
    sys.stderr.write(f'rope-any: {error.name} is missing; install the command line by: pip install "rope-any[cli]"\n')
    sys.exit(2)

from rope_any import __version__
from rope_any.cli._check import check
from rope_any.cli._common import Command, Commands, echo_json
from rope_any.cli._convert import convert
from rope_any.cli._export import export
from rope_any.cli._inspect import diff, inspect
from rope_any.cli._plot import plot
from rope_any.cli._published import published
from rope_any.cli._rotate import rotate
from rope_any.cli._verify import verify

COMMANDS: dict[str, dict[Callable[..., None], tuple[str, ...]]] = {
    "Read a model": {
        inspect: ("rope-any inspect published:llama-3.1-8b", "rope-any inspect config.json --part text"),
        diff: (
            "rope-any diff published:llama-3.1-8b published:llama-3.2-1b",
            "rope-any diff config.json published:llama-3.1-8b",
        ),
        published: ("rope-any published qwen", "rope-any published qwen3-8b --json"),
        plot: (
            "rope-any plot published:qwen3-8b wavelengths -o wavelengths.png",
            "rope-any plot published:qwen3-8b hands --position 1000 -o hands.png",
        ),
    },
    "Check": {
        verify: (
            "rope-any verify mine.py:rotary --config config.json",
            "rope-any verify mine.py:rotary --pairing half --head-dim 128",
            "rope-any verify --cache cache.npy --layout vllm --config config.json",
        ),
        check: ("rope-any check",),
    },
    "Write files": {
        convert: ("rope-any convert in out --head-dim 128 --from interleaved --to half",),
        rotate: ("rope-any rotate q.npy k.npy --pairing half --base 500000 -o out",),
        export: ("rope-any export published:llama-3.1-8b rope.onnx",),
    },
}

app = typer.Typer(
    cls=Commands,
    suggest_commands=False,  # `Commands` names a near one
    rich_markup_mode=None,  # the same help in a pipe and on a terminal
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
for group, commands in COMMANDS.items():
    for command, examples in commands.items():
        app.command(cls=Command, rich_help_panel=group, epilog="\n".join(("\b", *examples)))(command)


@app.callback(invoke_without_command=True, help="Rotary position embeddings (RoPE), exactly, on every array library.")
def _no_command(
    ctx: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the version as JSON, with --version.")] = False,
) -> None:
    """Print the version if asked, or the help if there is no command, and exit; raise for --json without --version."""
    if as_json and not version:
        msg = "--json must come after a command, or with --version"
        raise ValueError(msg)
    if version and as_json:
        echo_json({"version": __version__})
    elif version:
        typer.echo(__version__)
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
    else:
        return
    raise typer.Exit


def main() -> None:
    """Run the command line in ``sys.argv`` and exit; it never returns."""
    app(prog_name="rope-any")
