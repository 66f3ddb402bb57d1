"""``rope-any plot``: pictures of the rotation of a model."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
import typer

from rope_any import _files
from rope_any import plot as pictures
from rope_any._frequencies import shown
from rope_any._rope import Rope
from rope_any.cli._common import AsJson, echo_json
from rope_any.cli._configs import Length, PairingOf, explained, only, title
from rope_any.config import Explanation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind: TypeAlias = Literal["hands", "wavelengths", "decay", "table", "errors", "pairs"]
OPTIONS = {"hands": "position", "decay": "length", "table": "length", "errors": "length"}
# Each format, and what it would say of the moment: left out, so that the same picture is the same file.
SUFFIXES: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
DPI = 150


def plot(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="CONFIG", help="config.json, or the folder that it is in; for wavelengths also several."
        ),
    ],
    kind: Annotated[Kind, typer.Argument(help="What to draw of it.", show_default=False)],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help=f"The file to write: {', '.join(SUFFIXES)}.")],
    position: Annotated[
        str | None, typer.Option(help="Of hands: tokens, or as 3,20,500 for each axis.", show_default=False)
    ] = None,
    length: Annotated[
        int | None, typer.Option(help="How far decay, table and errors go, in tokens.", show_default=False)
    ] = None,
    layer_type: Annotated[str | None, typer.Option(help="Which kind of layer.", show_default=False)] = None,
    sequence_length: Length = None,
    pairing: PairingOf = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """
    Draw the rotation of a model.

    Clock hands at a position, wavelengths by pair, the decay of scores, the table as an image, errors by position, or
    which features form pairs.
    """
    options = {name: value for name, value in {"position": position, "length": length}.items() if value is not None}
    _require(kind, files, options, output)
    _files.require_free([output], overwrite=overwrite)
    told = {file: explained(file, layer_type, sequence_length, pairing) for file in files}
    os.environ["MPLBACKEND"] = "agg"  # which needs no screen, and opens no window where there is one
    ax = _wavelengths(told) if kind == "wavelengths" else ONE[kind](*only(told[files[0]]), **options)
    with _files.whole([output], overwrite=overwrite) as (part,):
        _save(part)
    if as_json:
        echo_json({"file": str(output), "kind": kind, **_drawn(ax)})
    else:
        typer.echo(f"{output}: {kind} of {', '.join(map(str, files))}")


def _require(kind: str, files: list[Path], options: dict[str, Any], output: Path) -> None:
    """Say what is wrong with the words of a command."""
    for name in options:
        if OPTIONS.get(kind) != name:
            users = " or ".join(user for user, option in OPTIONS.items() if option == name)
            msg = f"--{name} must come with {users}; got it with {kind}"
            raise ValueError(msg)
    if len(files) > 1 and kind != "wavelengths":
        msg = f"{kind} must be of one CONFIG; got {len(files)}"
        raise ValueError(msg)
    if output.suffix not in SUFFIXES:
        msg = f"--output must end in {', '.join(SUFFIXES)}; got {output}"
        raise ValueError(msg)


def _wavelengths(told: dict[Path, tuple[Explanation, ...]]) -> "Axes":
    """Draw all rotations of some configs, and the lengths that they name."""
    found: dict[str, Explanation] = {}
    for file, several in told.items():
        turning = [one for one in several if one.rope is not None]
        found |= {f"{file}, {title(one)}" if len(turning) > 1 else str(file): one for one in turning}
    if not found:
        msg = "CONFIG must have a rotation; got none"
        raise ValueError(msg)
    lengths: dict[str, float] = {}
    for name in ("trained", "extended"):
        of = {label: one.facts[f"{name}_length"].value for label, one in found.items() if f"{name}_length" in one.facts}
        alike = len(set(of.values())) == 1
        lengths |= {name if alike else f"{name}, {label}": value for label, value in of.items()}
    return pictures.wavelengths(*(one.rope for one in found.values() if one.rope), labels=[*found], lengths=lengths)


def _hands(rope: Rope, _: int, position: str | None = None) -> "Axes":
    if position is None:
        msg = "--position must be given with hands; got none"
        raise ValueError(msg)
    places = [_number(text) for text in position.split(",")]
    return pictures.hands(rope, places[0] if len(places) == 1 else places)


def _number(text: str) -> float:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    msg = f"--position must be a number, or one for each axis, like 3,20,500; got {shown(text)}"
    raise ValueError(msg)


# What is drawn of one rotation and the width of its head.
ONE: dict[str, Callable[..., "Axes"]] = {
    "hands": _hands,
    "decay": lambda rope, _, **options: pictures.decay(rope, **options),
    "table": lambda rope, _, length=256: pictures.table(rope, range(length)),
    "errors": lambda rope, _, length=2**31 - 1: pictures.errors(rope, longest=length),
    "pairs": lambda rope, head_dim: pictures.pairs(rope, head_dim=head_dim),
}


def _drawn(ax: "Axes") -> dict[str, Any]:
    """Return what is in a picture, as JSON has it."""
    return {
        "axes": {"x": ax.get_xlabel(), "y": ax.get_ylabel()},
        "lines": [{"label": str(line.get_label()).lstrip("_"), **_points(*line.get_data())} for line in ax.lines],
        "images": [np.asarray(image.get_array()).tolist() for image in ax.images],
        "texts": [{"text": text.get_text(), "at": getattr(text, "xy", text.get_position())} for text in ax.texts],
    }


def _points(x: Any, y: Any) -> dict[str, list[float]]:
    return {"x": np.asarray(x).tolist(), "y": np.asarray(y).tolist()}


def _save(file: Path) -> None:
    """Write the figure that has been drawn."""
    import matplotlib as mpl  # which is there, then
    from matplotlib import pyplot as plt

    with mpl.rc_context({"svg.hashsalt": "rope_any"}):
        plt.savefig(file, dpi=DPI, metadata=SUFFIXES[file.suffix])
