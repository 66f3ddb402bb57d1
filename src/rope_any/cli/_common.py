"""What the verbs share: consoles, progress, JSON, and how an error is told."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rope_any._frequencies import shown

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
ENDLESS = 1_000_000  # columns


class Verbs(TyperGroup):
    """The verbs: what one of them refuses is told in one line."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a verb; what it refuses is one line, and the exit code 2."""
        try:
            return super().main(*args, **options)
        except (ImportError, OSError, TypeError, ValueError) as error:
            typer.echo(f"rope-any: {error}", err=True)
            sys.exit(2)


def show(what: Any, *, bold: bool = False) -> None:
    """Print a line or a table: folded to the width of a terminal, elsewhere plain and as long as it is."""
    from rich.console import Console

    out = Console(markup=False, emoji=False, highlight=False)
    out.width = out.width if out.is_terminal else ENDLESS
    with out.capture() as text:
        out.print(what, style="bold" if bold and not out.no_color else None)
    typer.echo("\n".join(line.rstrip() for line in text.get().splitlines()))


def table(*heads: str, rows: Iterable[Iterable[str]], gap: int = 2) -> Any:
    """Return rows under their heads, for `show`."""
    from rich.table import Column, Table

    made = Table(*(Column(head, overflow="fold") for head in heads), box=None, padding=(0, gap, 0, 0))
    for row in rows:
        made.add_row(*row)
    return made


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a bar on the terminal; call what it gives when a step is done, or several."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    terminal = Console(stderr=True)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, steps=1: bar.update(task, advance=steps, description=escape(done))


def status(what: str) -> Any:
    """Return a context that shows on the terminal what is being done."""
    from rich.console import Console
    from rich.markup import escape

    return Console(stderr=True).status(escape(what))


def echo_json(records: Any) -> None:
    """Print JSON."""
    typer.echo(json.dumps(plain(records), indent=2, allow_nan=False))


def plain(value: Any, depth: int = 12) -> Any:
    """Return a value that JSON can hold: what is infinite or no number is null, and what is too deep a word."""
    if isinstance(value, dict | list | tuple) and not depth:
        return shown(value)
    if isinstance(value, dict):
        return {key: plain(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, depth - 1) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
