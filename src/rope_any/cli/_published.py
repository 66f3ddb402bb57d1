"""``rope-any published``: list the published configs that ship with the package."""

from fnmatch import fnmatchcase
from typing import Annotated

import typer

from rope_any._checks import ArgumentValueError
from rope_any._names import did_you_mean
from rope_any.cli._common import AsJson, echo_json, show, table
from rope_any.config import published as configs


def published(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN",
            help="List names with this in them, or names like this if it has a *.",
            show_default=False,
        ),
    ] = "",
    *,
    as_json: AsJson = False,
) -> None:
    """
    List the published configs that ship with the package.

    Each command that reads a config takes published:NAME in place of a file. Upper and lower case are the same, the
    organisation may be left out, and the beginning or end of a name will do if no other name has it. With --json the
    configs are printed; they have the keys that a rotation depends on.
    """
    every = configs()
    wanted = pattern.lower() if "*" in pattern else f"*{pattern.lower()}*"
    spelled = {name: (name.lower(), name.lower().rpartition("/")[2]) for name in every}
    found = {name: every[name] for name, ways in spelled.items() if any(fnmatchcase(way, wanted) for way in ways)}
    if not found:
        short = {name.rpartition("/")[2] for name in every}
        raise ArgumentValueError("PATTERN", "be in the name of a config", pattern, did_you_mean(pattern, short))
    if as_json:
        echo_json(found)
        return
    show(table("name", "model_type", rows=((name, one.get("model_type", "–")) for name, one in found.items())))
