"""Provide what all commands share: help, the text of errors, tables, progress bars, JSON."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from rope_any._arrays._library import SHORT_NAMES
from rope_any._checks import NOTHING, ArgumentError, ArgumentTypeError, ArgumentValueError, Text, missing_package
from rope_any._json import plain
from rope_any._names import did_you_mean, nearest
from rope_any._pairing import Pairing, as_pairing
from rope_any.config import _published

if TYPE_CHECKING:
    import numpy as np

PairingName = Annotated[Pairing, typer.Option(help="Choose which features form a pair, as in the model.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
UNITS = {"K": 2**10, "M": 2**20}  # of tokens
COMPLETION = ("--install-completion", "--show-completion")
ENDLESS = 1_000_000  # columns


class Commands(TyperGroup):
    """The commands, listed in groups with an example each; their errors are printed on one line."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command and exit; on a usage, import, file, type or value error with code 2 and one line on stderr."""
        try:
            sys.exit(super().main(*args, **options | {"standalone_mode": False}))
        except typer.TyperException as error:
            ctx = getattr(error, "ctx", None)
            message = f"{_sentence(error)}{_hint(error)}; see {ctx.command_path if ctx else 'rope-any'} --help"
        except ModuleNotFoundError as error:
            message = str(missing_package("the command line", error, "cli") if error.name == "rich" else error)
        except (ImportError, OSError, TypeError, ValueError) as error:
            message = str(error)
        line = re.sub(r"\s*\n\s*", " ", message)
        typer.echo(f"rope-any: {line}", err=True)
        sys.exit(2)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; raise if an option of `COMPLETION` comes with other words, which typer would ignore."""
        asked = [word for word in args if word in COMPLETION]
        if asked and args[1:] and not ctx.resilient_parsing:
            other = next((word for word in args if word != asked[0]), asked[0])
            msg = f"{asked[0]} must be the only word, and applies to the current shell; got {other!r}"
            raise ValueError(msg)
        return super().parse_args(ctx, args)

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Write each command with its one-line help and its example, group by group."""
        gap = 2 + max(map(len, self.commands))
        commands: Any = self.commands  # typer's type, with panels
        for group, members in groupby(commands.values(), lambda command: command.rich_help_panel):
            with formatter.section(group):
                for one in members:
                    formatter.write_dl([(one.name, one.get_short_help_str(200))], col_spacing=gap - len(one.name))
                    formatter.write(f"{'':{gap + 2}}{one.epilog.splitlines()[1]}\n")


class Command(TyperCommand):
    """A command: its help shows placeholders in upper case, and its errors name options as typed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """
        Parse the words; raise if several input files are ``-``.

        An input file ``-`` becomes a temporary file of standard input, and the NAME of ``published:NAME`` a full name.
        """
        try:
            left = super().parse_args(ctx, args)
        except typer.TyperException as error:
            error.ctx = getattr(error, "ctx", None) or ctx  # type: ignore[attr-defined]  # some errors have no context
            raise
        files = {param.name for param in self.params if "FILE" in str(param.metavar) or param.name in INPUTS}
        found = [name for name in files & ctx.params.keys() for item in _as_list(ctx.params[name]) if str(item) == "-"]
        if len(found) > 1:
            raise ArgumentValueError("-", "be one file: standard input is read once", len(found))
        for name in found:
            file, given = _standard_input(ctx, name), ctx.params[name]
            new = [file if str(item) == "-" else item for item in _as_list(given)]
            ctx.params[name] = new if isinstance(given, list) else type(given)(new[0])
        for name in {param.name for param in self.params if param.metavar in CONFIGS} & ctx.params.keys():
            given = ctx.params[name]
            ctx.params[name] = [*map(_in_full, given)] if isinstance(given, list) else _in_full(given)
        return left

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an ArgumentError becomes a ValueError that names options instead of Python arguments."""
        try:
            return super().invoke(ctx)
        except ArgumentError as error:
            raise ValueError(_rendered(error, ctx).replace(ctx.meta.get(STDIN, "\0"), "standard input")) from error

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: [OPTIONS] and the arguments, in brackets if they are optional."""
        arguments = [param for param in self.get_params(ctx) if _is_argument(param)]
        words = [_word_with_dots(param) for param in arguments]
        return ["[OPTIONS]", *(w if p.required else f"[{w}]" for w, p in zip(words, arguments, strict=True))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the help of all arguments, then of all options, each kind under its heading."""
        records: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        params: list[Any] = self.get_params(ctx)
        for param in params:
            if _is_argument(param):
                records["Arguments"].append((_word_with_dots(param), param.help))
            else:
                name, text = param.get_help_record(ctx)
                name = re.sub(r"<(.*)>", lambda found: METAVARS.get(found[1], found[1]), name)
                heading = getattr(param, "rich_help_panel", None) or "Options"
                text = re.sub(r"\[default: \((.*)\)", r"[default: \1", text)
                records.setdefault(heading, []).append((name, text))
        for heading, rows in records.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def format_epilog(self, _: Any, formatter: Any) -> None:
        """Write the examples of the command."""
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}\n" for line in str(self.epilog).splitlines()[1:]))


INPUTS = ("file", "files", "a", "b", "source", "config", "cache")
"""The parameters of commands that are files to read."""
CONFIGS = ("CONFIG", "A", "B")
"""The placeholders of parameters that are configs."""
STDIN = "rope_any.stdin"
"""How the temporary folder of standard input is called; a command's context has the file in ``meta[STDIN]``."""


def _as_list(value: Any) -> list[Any]:
    """Return a list unchanged, and any other value in a list."""
    return value if isinstance(value, list) else [value]


def _in_full(config: Path | None) -> Path | None:
    """Return the path of a config, ``published:NAME`` with the full name; raise if it names none, or several."""
    name = None if config is None else _published.name_in(config)
    return config if name is None else Path(_published.PREFIX + _published.full_name(name, _published.configs()))


def _standard_input(ctx: Any, name: str) -> Path:
    """Return stdin, for the parameter `name`, as a temporary .npy, .json or .safetensors file, ``ctx.meta[STDIN]``."""
    data = sys.stdin.buffer.read()
    is_tensors = name in {"source", "cache"} and not data.lstrip().startswith(b"{")
    suffix = "npy" if data.startswith(b"\x93NUMPY") else "safetensors" if is_tensors else "json"
    file = Path(ctx.with_resource(TemporaryDirectory(prefix=STDIN)), f"stdin.{suffix}")
    ctx.meta[STDIN] = str(file)
    file.write_bytes(data)
    return file


def name_of(file: Path) -> str:
    """Return the name of a file as it was given: "standard input" for the temporary file that holds it."""
    return "standard input" if file.parent.name.startswith(STDIN) else str(file)


def _parse_tokens(text: str) -> int:
    """Return a number of tokens, given as ``131072``, ``128K`` (of 1024) or ``1m`` (1024 K); raise for other text."""
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in UNITS else (text, "")
    if not number.removeprefix("-").isdecimal():  # a negative number has its error from the range
        msg = "must be a number of tokens, such as 131072, 128K or 1M"
        raise ValueError(msg)
    return int(number) * UNITS.get(unit, 1)


def tokens_option(**options: Any) -> Any:
    """Return ``typer.Option(**options)`` of a number of tokens, such as 131072, 128K or 1M."""
    return typer.Option(metavar="TOKENS", parser=_parse_tokens, **options)


def require_suffix(file: Path, suffix: str) -> None:
    """Raise unless the name of a file to write ends in `suffix`."""
    if file.suffix != suffix:
        raise ArgumentValueError("output", f"end in {suffix}", Text(repr(file.name)))


# typer's name of a type, and the name that the help shows; other types are lists of choices.
METAVARS = {"int": "INTEGER", "float": "NUMBER", "str": "TEXT", "path": "PATH"}
# Names of arguments in the package, and of the parameters of commands that set them, if they differ.
ELSEWHERE = {
    "function": "target",
    "rope": "config",
    "source": "config",
    "longest": "length",
    "names": "name",
    "ropes": "files",
    "x": "files",
}


def _word(param: Any) -> str:
    """Return the name of a parameter on the command line: ``--head-dim``, ``CONFIG``."""
    return str(param.metavar if _is_argument(param) else param.opts[0])


def _word_with_dots(param: Any) -> str:
    """Return the name of a parameter on the command line, followed by dots if it takes several values: ``FILE...``."""
    return f"{_word(param)}{'...' if param.nargs != 1 else ''}"


def _is_argument(param: Any) -> bool:
    """Whether a parameter is given by its place on the command line, not as an option."""
    return bool(param.param_type_name == "argument")


def _rendered(error: ArgumentError, ctx: Any) -> str:
    """Return the text of an error with options in place of Python arguments: ``--head-dim must be ...``."""
    params = {param.name: param for param in ctx.command.params}
    params = {name: params[own] for name, own in ELSEWHERE.items() if own in params} | params
    words = {name: _word(param) for name, param in params.items()}
    argument, wanted, got, hint, where = (*error.args, NOTHING, NOTHING, NOTHING)[:5]
    if type(argument) is str and argument in params:  # a `Text` is the name of a file
        typed = ctx.params.get(params[argument].name)
        argument, got = words[argument], Text(repr(got)) if type(typed) is type(got) and typed == got else got
    wanted, hint = (re.sub(r"`(\w+)`", lambda name: words.get(name[1], name[0]), text) for text in (wanted, hint))
    return str(type(error)(argument, wanted, got, hint, where))


def _sentence(error: Any) -> str:
    """Return the message of a typer error, worded as in this package: ``--base must be a valid number; got ...``."""
    # format_message() of a wrong option adds options that are not near
    said = error.message if hasattr(error, "possibilities") else error.format_message()
    text = f"{said.rstrip('.?')};"
    cause: Any = error.__cause__  # of pydantic, which parses values for typer
    got = "" if cause is None else f"; got {cause.errors()[0]['input']!r}"
    for pattern, words in SENTENCES.items():
        text = re.sub(pattern, words, text)
    return text[0].lower() + text[1:].removesuffix(";") + got


def _hint(error: Any) -> str:
    """Return a typer error's hint, "; did you mean --base" or "; give CONFIG without --config"; "" if none is near."""
    command = getattr(getattr(error, "ctx", None), "command", None)
    typed_command = re.fullmatch(r"No such command '(.*)'\.", error.message)
    if typed_command and isinstance(command, Commands):
        word = typed_command[1]
        near = f"--{word}" if word in {"help", "version"} else nearest(word, command.commands)
        return "" if near is None else f"; did you mean {near!r}"
    if hasattr(error, "possibilities") and command is not None:
        typed, params = error.option_name, command.get_params(error.ctx)
        word, arguments = typed.lstrip("-").replace("_", "-").lower(), list(filter(_is_argument, params))
        options = {name.lstrip("-"): f"did you mean {name}" for x in params if x not in arguments for name in x.opts}
        hints = {name.lower(): f"give {_word(x)} without {typed}" for x in arguments for name in (x.name, x.metavar)}
        hints |= options
        hints |= {other: hints[own] for other, own in OTHER_NAMES.items() if own in hints}
        near = word if word in hints else nearest(word, options)
        return "" if near is None else f"; {hints[near]}"
    typed, _, known = error.message.partition(" is not one of ")
    word, words = typed.partition("'")[2].removesuffix("'"), re.findall(r"'(\w[\w-]*)'", known)
    hint = did_you_mean(word, words, SHORT_NAMES)
    if not hint and "half" in words:
        try:
            as_pairing(word)
        except ArgumentError as refusal:
            hint = refusal.hint
    return hint and "; " + hint.rstrip("?").replace('"', "")


# Words for options that a command lacks, and the options or arguments that are meant.
OTHER_NAMES = {
    "source": "from",
    "target": "to",
    "theta": "base",
    "rope-theta": "base",
    "offset": "positions",
    "o": "output",
}

SENTENCES = {
    r"'(-[-\w]+)'": r"\1",  # options have no quotes
    r"^Missing argument '(.*?)'": r"Missing argument \1",
    r"Invalid value for (.*?): Value error, .* is not one of ": r"\1 must be one of ",
    r"Invalid value for (.*?): Value error, must ": r"\1 must ",
    r"Invalid value for (.*?): Input should be (.*?), unable .*?;": r"\1 must be \2;",
    r"\. Choose": "; choose",
}


def show(line_or_table: Any, *, bold: bool = False) -> None:
    """Print a line or a table, folded to the width of the terminal; not folded if stdout is no terminal."""
    out = _console(sys.stdout)
    out.width = terminal_width()
    with out.capture() as text:
        out.print(line_or_table, style="bold" if bold else None)
    typer.echo("\n".join(line.rstrip() for line in text.get().splitlines()))


def terminal_width() -> int:
    """Return the width that `show` folds to: that of the terminal, or `ENDLESS` if stdout is not a terminal."""
    out = _console(sys.stdout)
    return out.width if out.is_terminal else ENDLESS


def table(*heads: str, rows: Iterable[Iterable[str]], gap: int = 2) -> Any:
    """Return a rich table of `heads` and `rows` with `gap` spaces between columns; folded, with gap 1, if too wide."""
    from rich.table import Column, Table

    cells = [tuple(row) for row in rows]
    widths = [max(map(len, texts)) for texts in zip(heads, *cells, strict=True)]
    if sum(widths) + gap * (len(widths) - 1) > terminal_width():
        gap = 1
        room = terminal_width() - sum(widths[:-1]) - gap * (len(widths) - 1)  # for the last column
        limits = [terminal_width() // 4, *[ENDLESS] * (len(widths) - 2), room][: len(widths)]
        cells = [tuple(map(_break_after_dots, row, limits)) for row in cells]
    made = Table(*(Column(head, overflow="fold") for head in heads), box=None, padding=(0, gap, 0, 0), pad_edge=False)
    made.columns[0].width = _first_width([heads[0], *(row[0] for row in cells)], terminal_width())
    for row in cells:
        made.add_row(*row)
    return made


def _break_after_dots(text: str, limit: int) -> str:
    """Return a text with line breaks after the dots inside of words that are longer than `limit`."""
    return " ".join(re.sub(r"\.(?=\w)", ".\n", word) if len(word) > limit else word for word in text.split(" "))


def _first_width(texts: Iterable[str], width: int) -> int | None:
    """Return a column's width: of the longest line if <= width / 2, else of the longest word if <= 3/4, else None."""
    lines = [line for text in texts for line in text.split("\n")]
    whole = max(map(len, lines))
    word = max((len(word) for line in lines for word in line.split()), default=0)
    return whole if 2 * whole <= width else word if 4 * word <= 3 * width else None


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a bar if stderr is a terminal; yield ``step(message, steps=1)``: show this text, advance by `steps`."""
    from rich.markup import escape
    from rich.progress import Progress

    terminal = _console(sys.stderr)
    with Progress(console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done, steps=1: bar.update(task, advance=steps, description=escape(done))


def status(description: str) -> Any:
    """Return a context that shows a message while it runs; it does nothing if stderr is not a terminal."""
    return _console(sys.stderr).status(description) if sys.stderr.isatty() else nullcontext()


def _console(stream: TextIO) -> Any:
    """Return a rich console on a stream, without markup; it has colours on a terminal unless NO_COLOR is set."""
    from rich.console import Console

    return Console(
        file=stream,
        force_terminal=stream.isatty(),
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        markup=False,
        emoji=False,
        highlight=False,
    )


def load_array(file: Path, *, otherwise: str = "") -> "np.ndarray[Any, Any]":
    """Return the numbers in a .npy file, memory-mapped; else raise that it must be one, or what `otherwise` says."""
    from zipfile import is_zipfile

    import numpy as np  # --help does not need it

    wanted, hint = f"be a .npy file of one array of numbers{otherwise}", "np.save(name, array) writes one"
    try:
        if file.is_file():  # not a pipe, which can be opened once
            with file.open("rb") as stream:
                if stream.read(4) in {b"PK\x03\x04", b"PK\x05\x06"}:
                    got = Text("an archive" if is_zipfile(stream) else "a broken archive")
                    raise ArgumentTypeError(file, wanted, got, hint)
        array: np.ndarray[Any, Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise unreadable(file, wanted, error) from None
    except (EOFError, ValueError) as error:
        cut = "one that is cut off" if re.search("^EOF|file size", str(error)) else ""
        got = Text("an empty file" if isinstance(error, EOFError) else cut)
        raise ArgumentValueError(file, wanted, got, hint) from error
    if array.dtype.kind in "USMm":
        raise ArgumentTypeError(file, wanted, Text(f"an array of {array.dtype.name}"), hint)
    return array


def unreadable(file: Path, wanted: str, error: OSError) -> ArgumentValueError:
    """Return the error for a file that can't be opened, which should be what is `wanted`."""
    why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
    return ArgumentValueError(file, wanted, NOTHING, why)


def echo_json(records: Any) -> None:
    """Print records as JSON, changed by `plain`: infinity and nan become null."""
    typer.echo(json.dumps(plain(records), indent=2, allow_nan=False))
