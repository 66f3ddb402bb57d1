"""The pages of the example programs, made by the build: what the docstring says, the commands, and the source."""

import ast
import re
from pathlib import Path

COMMANDS = re.compile(r"(?m)^(?: {4}.+\n?)+")


def page(program: Path) -> str:
    """Return the page of a program, as Markdown; its title is what stands before the colon of the first line."""
    source = program.read_text(encoding="utf-8")
    module = ast.parse(source)
    first, _, text = (ast.get_docstring(module) or "").partition("\n")
    title, _, summary = first.partition(": ")
    text = COMMANDS.sub(lambda found: f"```console\n{re.sub('(?m)^ {4}', '$ ', found[0]).rstrip()}\n```\n", text)
    text = re.sub("``(.*?)``", r"`\1`", text)
    parts = [f"# {title}", f"{summary[0].upper()}{summary[1:]}", text.strip()]
    after = module.body[0].end_lineno or 0
    options = f":language: python\n:lines: {after + 2}-"  # without the docstring
    parts += ["## Source", f"```{{literalinclude}} ../../examples/{program.name}\n{options}\n```"]
    return "\n\n".join(parts) + "\n"


def write(programs: Path, folder: Path) -> None:
    """Write a page for each program; unchanged pages are not written, so that they are not read again."""
    for program in programs.glob("*.py"):
        file, text = folder / f"{program.stem}.md", page(program)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def remove(folder: Path) -> None:
    """Remove the pages of the programs."""
    for file in folder.glob("*.md"):
        if file.stem != "index":
            file.unlink()
