"""Define the command line ``rope-any``: its commands in groups, each with an example."""

import sys
from collections.abc import Callable
from typing import Annotated

try:
    import typer
except ModuleNotFoundError as error:
    sys.stderr.write(f'rope-any: {error.name} is missing; install the command line by: pip install "rope-any[cli]"\n')
    sys.exit(2)

from rope_any import __version__
from rope_any.cli._advise import advise
from rope_any.cli._check import check
from rope_any.cli._common import Command, Commands, echo_json
from rope_any.cli._convert import convert
from rope_any.cli._export import export
from rope_any.cli._inspect import diff, inspect
from rope_any.cli._plot import plot
from rope_any.cli._rotate import rotate
from rope_any.cli._verify import verify

COMMANDS: dict[str, dict[Callable[..., None], str]] = {
    "Read a model": {
        inspect: "rope-any inspect config.json",
        diff: "rope-any diff a.json b.json",
        advise: "rope-any advise config.json --length 1M",
        export: "rope-any export config.json rope.onnx",
        plot: "rope-any plot config.json wavelengths -o wavelengths.png",
    },
    "Rotate": {
        rotate: "rope-any rotate q.npy k.npy --pairing half --base 500000 -o out",
        convert: "rope-any convert in out --head-dim 128 --from interleaved --to half",
    },
    "Check": {
        check: "rope-any check",
        verify: "rope-any verify package.module:function --pairing half",
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
    for command, example in commands.items():
        app.command(cls=Command, rich_help_panel=group, epilog=f"\b\nExample: {example}")(command)


@app.callback(invoke_without_command=True, help="Rotary position embeddings (RoPE), exactly, on every array library.")
def _no_command(
    ctx: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --version: print JSON.")] = False,
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
