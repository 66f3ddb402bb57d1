"""``rope-any rotate``: rotate queries and keys in .npy files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rope_any import _files
from rope_any._arrays import require_array
from rope_any._checks import ArgumentValueError, Text
from rope_any._frequencies import frequencies
from rope_any._rope import Rope
from rope_any.cli._common import AsJson, PairingName, echo_json, load_array, show, status

if TYPE_CHECKING:
    import numpy as np


def rotate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="q.npy and k.npy, or one array, of shape (..., seq, head_dim)."),
    ],
    *,
    pairing: PairingName,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the results to this folder, under the same names.")
    ],
    base: Annotated[
        float, typer.Option(help="Set the base of the frequencies, also called rope_theta.", show_default="10000")
    ] = 10_000.0,
    positions: Annotated[
        str,
        typer.Option(metavar="OFFSET|FILE", help="Set the position of the first token, or a .npy file with all."),
    ] = "0",
    rotary_dim: Annotated[
        int | None, typer.Option(help="Set the number of features that rotate.", show_default="all")
    ] = None,
    seq_axis: Annotated[int, typer.Option(help="Tell which axis holds the tokens.")] = -2,
    inverse: Annotated[bool, typer.Option("--inverse", help="Rotate backwards.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace results that exist.")] = False,
    as_json: AsJson = False,
) -> None:
    """
    Rotate queries and keys in .npy files.

    If two files are given, the first is q, the second is k, and the positions are those of k. If q has fewer tokens
    than k, they are the last tokens of k.
    """
    import numpy as np  # --help does not need it

    targets = _targets(files, output, overwrite=overwrite)
    arrays = [load_array(file) for file in files]
    for file, array in zip(files, arrays, strict=True):
        require_array(str(file), array).require_floating(str(file), array)
    dim = _feature_count(files[-1], arrays[-1]) if rotary_dim is None else rotary_dim
    sign = -1 if inverse else 1
    rope = Rope(tuple(sign * f for f in frequencies(dim, base=base)), pairing=pairing)
    with status(f"rotating {', '.join(map(str, files))}"):
        at = _parse_positions(positions)
        if len(arrays) == 1:
            rotated: tuple[Any, ...] = (rope.apply(arrays[0], at, seq_axis=seq_axis),)
        else:
            q, k = arrays
            rotated = rope(q, k, at, seq_axis=seq_axis)
        with _files.replace_together(targets, overwrite=overwrite) as parts:
            for part, array in zip(parts, rotated, strict=True):
                with part.open("wb") as target:  # to a name, np.save would add .npy
                    np.save(target, array)
    if as_json:
        written = zip(targets, rotated, strict=True)
        echo_json([{"file": str(file), "shape": x.shape, "dtype": str(x.dtype)} for file, x in written])
        return
    for file, array in zip(targets, rotated, strict=True):
        show(f"{file}: {array.shape} {array.dtype}")


def _targets(files: list[Path], output: Path, *, overwrite: bool) -> list[Path]:
    """Return the paths of results in a folder; raise for over two files, equal names, or one that can't be written."""
    if len(files) > 2:
        raise ArgumentValueError("FILE", "be one array, or q and k", Text(f"{len(files)} files"))
    if output.suffix == ".npy" and not output.is_dir():
        raise ArgumentValueError("output", "be a folder", Text(f"{output.name}, the name of a file"))
    targets = [output / file.name for file in files]
    if len(set(targets)) < len(targets):
        msg = f"results would overwrite each other: both are called {targets[0].name}"
        raise ValueError(msg)
    _files.require_replaceable(targets, overwrite=overwrite)
    return targets


def _feature_count(file: Path, array: "np.ndarray[Any, Any]") -> int:
    """Return the length of an array's last axis, the default of --rotary-dim; raise if it is odd or 0, or missing."""
    if not array.ndim or not array.shape[-1] or array.shape[-1] % 2:
        wanted = "have an even number of features, or --rotary-dim be given"
        raise ArgumentValueError(file, wanted, Text(f"shape {array.shape}"))
    return int(array.shape[-1])


def _parse_positions(text: str) -> Any:
    """Return the offset that --positions gives, or the array in the .npy file that it names; raise for other text."""
    try:
        return int(text)
    except ValueError:
        pass
    if not text.endswith(".npy"):
        raise ArgumentValueError("positions", "be an integer or a .npy file", text)
    return load_array(Path(text))
