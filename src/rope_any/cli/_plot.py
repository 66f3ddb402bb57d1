"""``rope-any plot``: draw the rotation of a model."""

import math
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

import rope_any as ra  # ra.plot is imported on first use: it needs NumPy, which --help does not
from rope_any import _files
from rope_any._checks import ArgumentValueError, Text, int32
from rope_any._names import did_you_mean
from rope_any._rope import Rope
from rope_any.cli._common import AsJson, echo_json, name_of, status, tokens_option
from rope_any.cli._configs import (
    Factor,
    Length,
    OneLayerType,
    PairingOf,
    PartOf,
    explained,
    lengths,
    only,
    reach,
    title,
)
from rope_any.config import Explanation
from rope_any.config._recipe import LENGTH_KINDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("hands", "wavelengths", "decay", "table", "errors", "pairs")
OPTIONS = {"hands": "position", "decay": "length", "table": "length", "errors": "length"}
AXES = {3: ("time", "height", "width")}  # of M-RoPE
# Each format, and what it would say of the moment: left out, so that the same picture is the same file.
SUFFIXES: dict[str, dict[str, None]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
DPI = 150


def _completed(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the kinds of plot that begin with `incomplete`; for a first word [], so shells complete file names."""
    return [kind for kind in KINDS if ctx.params.get("kind") and kind.startswith(incomplete)]


def plot(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="CONFIG",
            help="A config.json, its folder, published:NAME, or -; several for wavelengths.",
            autocompletion=_completed,
            default_factory=list,  # a single word is taken for KIND, and `_require_options` names the missing CONFIG
        ),
    ],
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"What to draw: {', '.join(KINDS)}.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the picture to this .png, .svg or .pdf file.")],
    position: Annotated[
        str | None,
        typer.Option(help="Draw hands at this position, such as 500, or 3,20,500 for axes.", show_default=False),
    ] = None,
    length: Annotated[
        int | None,
        tokens_option(
            help="Draw decay, table or errors up to this many tokens.",
            show_default="the config's, 256 or 2147483647",
        ),
    ] = None,
    part: PartOf = None,
    layer_type: OneLayerType = None,
    sequence_length: Length = None,
    pairing: PairingOf = None,
    factor: Factor = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """
    Draw the rotation of a model.

    KIND is hands for the angles at a position, wavelengths for those of the pairs, decay for how scores decay with
    the distance, table for cosines and sines as an image, errors for rounding errors by position, or pairs for the
    features that form pairs. The command needs the extra plot.
    """
    options = {name: value for name, value in {"position": position, "length": length}.items() if value is not None}
    _require_options(kind, files, options, output)
    _files.require_replaceable([output], overwrite=overwrite)
    which: dict[str, Any] = {"part": part, "layer_type": layer_type, "factor": factor}
    by_file = {file: explained(file, sequence_length=sequence_length, pairing=pairing, **which) for file in files}
    os.environ["MPLBACKEND"] = "agg"  # needs no screen, opens no window
    with status(f"drawing {kind}"):
        if kind == "wavelengths":
            ax = _draw_wavelengths(by_file)
        else:
            ax = _draw_one(kind, files[0], by_file[files[0]], options)
        with _files.replace_together([output], overwrite=overwrite) as (unfinished,):
            _save(unfinished)
    if as_json:
        echo_json({"file": str(output), "kind": kind, **_drawn(ax)})
    else:
        typer.echo(f"{output}: {kind} of {', '.join(map(name_of, files))}")


def _require_options(kind: str, files: list[Path], options: dict[str, Any], output: Path) -> None:
    """Raise if the kind, or the suffix of the output, is unknown, or configs or options don't fit the kind."""
    if kind not in KINDS:
        got = Text("none") if Path(kind).exists() or not files else kind
        raise ArgumentValueError("KIND", f"be one of {', '.join(KINDS)}, after CONFIG", got, did_you_mean(kind, KINDS))
    if not files:
        raise ArgumentValueError("CONFIG", f"be given before {kind}", Text("none"))
    for name in options:
        if OPTIONS.get(kind) != name:
            users = " or ".join(user for user, option in OPTIONS.items() if option == name)
            raise ArgumentValueError(f"--{name}", f"come with {users}", Text(f"it with {kind}"))
    if len(files) > 1 and kind != "wavelengths":
        raise ArgumentValueError(kind, "be of one CONFIG", len(files))
    if output.suffix.lower() not in SUFFIXES:
        raise ArgumentValueError("--output", f"end in {', '.join(SUFFIXES)}", str(output))


def _draw_wavelengths(by_file: dict[Path, tuple[Explanation, ...]]) -> "Axes":
    """Draw the wavelengths of all rotations in configs, and the context lengths there; raise if nothing rotates."""
    found: dict[str, Explanation] = {}
    for name, several in zip(_short_names([*by_file]), by_file.values(), strict=True):
        rotating = [one for one in several if one.rope is not None]
        kinds = _distinct([one.layer_type or title(one) for one in rotating], map(title, rotating))
        for kind, one in zip(kinds, rotating, strict=True):
            found[", ".join(filter(None, [name, kind if len(kinds) > 1 else None, _for_length(one)]))] = one
    if not found:
        only(*next(iter(by_file.items())))  # raises
    each = {name: lengths(one) for name, one in found.items()}
    same_lengths = all(of == next(iter(each.values())) for of in each.values())
    labels = [name if same_lengths else _with_lengths(name, of) for name, of in each.items()]
    marks = {kind: [of[kind] for of in each.values() if kind in of] for kind in LENGTH_KINDS}
    return ra.plot.wavelengths(*(one.rope for one in found.values() if one.rope), labels=labels, lengths=marks)


def _for_length(explanation: Explanation) -> str | None:
    """Return the length that a rotation was made for, as "for 8192 tokens"; None if it is for no special length."""
    length = explanation.facts.get("length")
    return length and f"for {ra.plot.looks.format_number(length.value)} tokens"


def _with_lengths(name: str, lengths_by_kind: dict[str, float]) -> str:
    """Return the label of a rotation: its name, then its lengths as "trained 8192", or "no length given"."""
    texts = ", ".join(f"{kind} {ra.plot.looks.format_number(length)}" for kind, length in lengths_by_kind.items())
    return f"{name}: {texts or 'no length given'}"


def _short_names(files: list[Path]) -> list[str]:
    """Return a name per file: its folder's for config.json, else its own without suffix; all paths if two are equal."""
    whole = [Path(os.path.abspath(name_of(file))) for file in files]  # noqa: PTH100  # a link goes by its own name
    short = [
        file.parent.name if file.name == "config.json" else file.stem if file.is_file() else file.name for file in whole
    ]
    return _distinct(short, map(name_of, files))


def _distinct(short: list[str], long: Iterable[str]) -> list[str]:
    """Return the short names if they are distinct, else the long ones."""
    return short if len(set(short)) == len(short) else [*long]


def _draw_one(kind: str, file: Path, explanations: tuple[Explanation, ...], options: dict[str, Any]) -> "Axes":
    """Draw the one rotation of a config by the function of `ONE`; raise if it has none, or several that differ."""
    rope, _ = only(file, explanations)
    one = next(one for one in explanations if one.rope == rope)
    model = one.facts.get("model_type")
    of = ", ".join(
        filter(None, [model and model.value, one.layer_type if len(explanations) == 1 else None, _for_length(one)])
    )
    ax = ONE[kind](rope, one, **options)
    (name,) = _short_names([file])
    ax.figure.suptitle(fill(f"{name} ({of})" if of else name, 80), x=0.02, ha="left", fontsize=10, parse_math=False)
    return ax


def _draw_hands(rope: Rope, _: Explanation, position: str | None = None) -> "Axes":
    """Draw the angles of a rotation at --position, which must be given, as clock hands."""
    if position is None:
        raise ArgumentValueError("--position", "be given with hands", Text("none"))
    places = [_position_number(text) for text in position.split(",")]
    return ra.plot.hands(rope, places[0] if len(places) == 1 else places, axes=_axis_names(rope))


def _axis_names(rope: Rope) -> tuple[str, ...] | None:
    """Return the names of the position axes, (time, height, width); None unless the Rope has three."""
    return AXES.get(len(rope.frequencies)) if isinstance(rope.frequencies[0], tuple) else None


def _position_number(text: str) -> float:
    """Return one number of ``--position``, an int or a finite float; raise an error about that option otherwise."""
    for kind in (int, float):
        with suppress(ValueError):
            if isinstance(number := kind(text), int) or math.isfinite(number):
                return number
    raise ArgumentValueError("--position", "be a number, or one for each axis, like 3,20,500", text)


def _draw_decay(rope: Rope, explanation: Explanation, length: int | None = None) -> "Axes":
    """Draw the decay of scores up to `length`; None: the longest in `reach`, or if it is empty the plot's default."""
    if length is None and (said := reach(explanation).values()):
        length = min(int(max(said)), 2**31 - 1)
    return ra.plot.decay(rope) if length is None else ra.plot.decay(rope, length=length)


def _draw_pairs(rope: Rope, explanation: Explanation) -> "Axes":
    """Draw which features form pairs, in a head with the ``head_dim`` of the explanation."""
    return ra.plot.pairs(rope, head_dim=explanation.facts["head_dim"].value, axes=_axis_names(rope))


# How each kind is drawn from one rotation and its explanation.
ONE: dict[str, Callable[..., "Axes"]] = {
    "hands": _draw_hands,
    "decay": _draw_decay,
    "table": lambda rope, _, length=None: ra.plot.table(
        rope, None if length is None else range(int32("length", length, least=1))
    ),
    "errors": lambda rope, _, length=None: (
        ra.plot.errors(rope) if length is None else ra.plot.errors(rope, longest=length)
    ),
    "pairs": _draw_pairs,
}


def _drawn(ax: "Axes") -> dict[str, Any]:
    """Return the data of a plot as a dict for JSON: labels of axes, lines, outlines of bands, images and texts."""
    import numpy as np

    return {
        "axes": {"x": ax.get_xlabel(), "y": ax.get_ylabel()},
        "lines": [
            {
                "label": line.get_gid() or str(line.get_label()),
                "x": np.asarray(line.get_xdata()).tolist(),
                "y": np.asarray(line.get_ydata()).tolist(),
            }
            for line in ax.lines
        ],
        "bands": [
            {"label": str(band.get_label()), "x": outline[:, 0].tolist(), "y": outline[:, 1].tolist()}
            for band in ax.collections
            for outline in (np.asarray(band.get_paths()[0].vertices),)
        ],
        "images": [np.asarray(image.get_array()).tolist() for image in ax.images],
        "texts": [{"text": text.get_text(), "at": getattr(text, "xy", text.get_position())} for text in ax.texts],
    }


def _save(file: Path) -> None:
    """Write the current figure of pyplot to a file, in the format of its suffix, one of `SUFFIXES`."""
    import matplotlib as mpl  # installed if a figure was drawn
    from matplotlib import pyplot as plt

    with mpl.rc_context({"svg.hashsalt": "rope_any"}):
        plt.savefig(file, dpi=DPI, metadata=SUFFIXES[file.suffix.lower()])
