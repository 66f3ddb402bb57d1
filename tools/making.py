"""Functions of all programs that make a part of a page: they print it, and write it if ``--write`` is given."""

import argparse
import sys
from collections.abc import Collection
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def parser(doc: str | None, file: Path) -> argparse.ArgumentParser:
    """Return an argument parser with the option `--write`, for a program that makes a file."""
    found = argparse.ArgumentParser(description=(doc or "").strip().partition("\n")[0])
    found.add_argument("--write", action="store_true", help=f"also write {file.name}, if no library is missing")
    return found


def report_missing(missing: Collection[str], *, write: bool) -> None:
    """Report missing libraries; exit if `write` is set, because their rows would be lost."""
    if missing:
        said = f"missing: {', '.join(sorted(missing, key=str.lower))}"
        if write:
            sys.exit(f"{said}; nothing is written without their rows")
        print(said, file=sys.stderr)


def show(text: str, file: Path, *, write: bool) -> None:
    """Print the text; write it to the file if `--write` is given."""
    print(text)
    if write:
        file.write_text(f"{text}\n", encoding="utf-8")
