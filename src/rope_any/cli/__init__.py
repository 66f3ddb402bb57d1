"""The command line: ``rope-any check``, ``verify``, ``rotate``, ``convert``, ``inspect``, ``diff`` and ``export``."""

import sys
from typing import Annotated

try:
    import typer
except ModuleNotFoundError as error:
    sys.exit(f'rope-any: {error.name} is missing; install the command line by: pip install "rope-any[cli]"')

from rope_any import __version__
from rope_any.cli._check import check
from rope_any.cli._common import Verbs
from rope_any.cli._convert import convert
from rope_any.cli._export import export
from rope_any.cli._inspect import diff, inspect
from rope_any.cli._rotate import rotate
from rope_any.cli._verify import verify

app = typer.Typer(cls=Verbs, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def _version(*, show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Rotary position embeddings (RoPE), exactly, on every array library."""
    if show:
        typer.echo(__version__)
        raise typer.Exit


for verb in (check, verify, rotate, convert, inspect, diff, export):
    app.command()(verb)


def main() -> None:
    """Run the command line."""
    app(prog_name="rope-any")
