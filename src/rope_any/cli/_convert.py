"""``rope-any convert``: permute the weights of a checkpoint for the other pairing."""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from rope_any import _files
from rope_any._checks import ArgumentValueError, Text
from rope_any._pairing import Pairing
from rope_any.cli._common import AsJson, echo_json, progress, require_suffix, show, table
from rope_any.weights import feature_order, select_axes


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN",
            help="A .safetensors file, the .index.json of several, or the folder of either.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The file to write, or the folder if IN is an index or a folder."),
    ],
    *,
    head_dim: Annotated[int, typer.Option(help="Give the number of features of a head.")],
    of: Annotated[Pairing, typer.Option("--from", help="Tell which pairing the weights have.")],
    to: Annotated[Pairing, typer.Option(help="Choose the pairing to write.")],
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Convert tensors of this name, such as *.q_proj.weight; may be repeated.",
            show_default="the usual names",
        ),
    ] = None,
    axis: Annotated[
        int | None,
        typer.Option(help="Tell which axis holds the features in tensors that --name matches.", show_default="0"),
    ] = None,
    rotary_dim: Annotated[
        int | None, typer.Option(help="Give the number of features that rotate.", show_default="all")
    ] = None,
    start: Annotated[int, typer.Option(help="Give the first feature that rotates.")] = 0,
    heads: Annotated[str, typer.Option(metavar="M/N", help="Convert the first M of every N heads.")] = "1/1",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace results that exist.")] = False,
    as_json: AsJson = False,
) -> None:
    """
    Reorder the weights of a checkpoint for the other pairing.

    It reorders the weights and biases of queries and keys, and copies all other tensors as they are.
    """
    from rope_any import _safetensors  # needs NumPy, which --help does not

    if of == to:
        raise ArgumentValueError("to", "be the other pairing, not that of the weights", to)
    order = feature_order(
        head_dim,
        source=of,
        target=to,
        rotary_dim=rotary_dim,
        start=start,
        heads=_share(heads),
    )
    first = _safetensors.checkpoint_file(source)
    found = _safetensors.entries_by_file(first)
    files = list(dict.fromkeys([*found, first]))  # with the index
    targets = [output] if files == [source] else [output / file.name for file in files]
    _files.require_not_source(targets, files)
    _files.require_replaceable(targets, overwrite=overwrite)
    shapes = {name: entry.shape for inside in found.values() for name, entry in inside.items()}
    axes = select_axes(shapes, order, names=_axis_by_pattern(name, axis))
    if targets == [output] and output.suffix:
        require_suffix(output, ".safetensors")
    total = sum(file.stat().st_size for file in found)
    with _files.replace_together(targets, overwrite=overwrite) as parts, progress("convert", total) as step:
        for file, part in zip(files, parts, strict=True):
            if file in found:
                _safetensors.copy(file, part, axes=axes, order=order, report_progress=step)
            else:
                shutil.copyfile(file, part)
    converted, left = ([name for name in shapes if (name in axes) is known] for known in (True, False))
    if as_json:
        echo_json({"files": list(map(str, targets)), "converted": converted, "left": left})
        return
    rows = [
        (pattern, count, what)
        for names, what in ((converted, "converted"), (left, "left as it is"))
        for pattern, count in Counter(re.sub(r"\b\d+\b", "*", name) for name in names).items()
    ]
    width = max(len(str(count)) for _, count, _ in rows)
    show(table("tensors", "", "", rows=((pattern, f"{count:{width}}", what) for pattern, count, what in rows)))
    show(f"{output}: {len(converted)} of {len(shapes)} tensors converted from {of} to {to}")


def _share(text: str) -> tuple[int, int]:
    """Return M and N of ``--heads M/N``, the fraction of heads that is converted; raise unless M is from 1 to N."""
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    some, of = map(int, found.groups()) if found else (0, 0)
    if not 1 <= some <= of:
        raise ArgumentValueError("--heads", "be M/N, like 2/3, with M from 1 to N", text)
    return some, of


def _axis_by_pattern(patterns: list[str] | None, axis: int | None) -> dict[str, int] | None:
    """Return the axis (0 for None) for each pattern of --name; None without patterns; raise for an axis alone."""
    if axis is not None and not patterns:
        raise ArgumentValueError("--axis", "come with --name", Text(f"{axis} alone"))
    return dict.fromkeys(patterns, axis or 0) if patterns else None
