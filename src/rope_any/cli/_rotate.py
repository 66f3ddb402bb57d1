"""``rope-any rotate``: rotate queries and keys that are in files of NumPy."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from rope_any import _files
from rope_any._arrays import require_array
from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, Text
from rope_any._frequencies import frequencies
from rope_any._rope import Rope
from rope_any.cli._common import AsJson, PairingName, echo_json, show, status


def rotate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="q.npy and k.npy, or one array: (..., seq, head_dim)."),
    ],
    *,
    pairing: PairingName,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results, under the same names.")],
    base: Annotated[float, typer.Option(help="Also called rope_theta.", show_default="10000")] = 10_000.0,
    positions: Annotated[
        str, typer.Option(metavar="OFFSET|FILE", help="An offset, or a .npy file of positions of the (last) array.")
    ] = "0",
    rotary_dim: Annotated[int | None, typer.Option(help="How many features turn.", show_default="all")] = None,
    seq_axis: Annotated[int, typer.Option(help="The axis along which tokens stand.")] = -2,
    inverse: Annotated[bool, typer.Option("--inverse", help="Turn backwards.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace results that exist.")] = False,
    as_json: AsJson = False,
) -> None:
    """Rotate queries and keys from .npy files."""
    targets = _targets(files, output, overwrite=overwrite)
    arrays = [_load(file) for file in files]
    for file, array in zip(files, arrays, strict=True):
        require_array(str(file), array).require_floating(str(file), array)
    dim = _features(files[-1], arrays[-1]) if rotary_dim is None else rotary_dim
    sign = -1 if inverse else 1
    turning = tuple(sign * f for f in frequencies(dim, base=base))
    rope = Rope(turning, pairing=pairing)
    with status(f"rotating {', '.join(map(str, files))}"):
        where = _positions(positions)
        if len(arrays) == 1:
            turned: tuple[Any, ...] = (rope.apply(arrays[0], where, seq_axis=seq_axis),)
        else:
            q, k = arrays
            turned = rope(q, k, where, seq_axis=seq_axis)
        with _files.replace_together(targets, overwrite=overwrite) as parts:
            for part, array in zip(parts, turned, strict=True):
                with part.open("wb") as target:  # to a name, np.save would add .npy
                    np.save(target, array)
    if as_json:
        written = zip(targets, turned, strict=True)
        echo_json([{"file": str(file), "shape": x.shape, "dtype": str(x.dtype)} for file, x in written])
        return
    for file, array in zip(targets, turned, strict=True):
        show(f"{file}: {array.shape} {array.dtype}")


def _targets(files: list[Path], output: Path, *, overwrite: bool) -> list[Path]:
    """Return where the results go, having made sure that nothing is lost there."""
    if len(files) > 2:
        raise ArgumentValueError("FILE", "be one array, or q and k", Text(f"{len(files)} files"))
    targets = [output / file.name for file in files]
    if len(set(targets)) < len(targets):
        msg = f"results would overwrite each other: both are called {targets[0].name}"
        raise ValueError(msg)
    _files.require_replaceable(targets, overwrite=overwrite)
    return targets


def _load(file: Path) -> np.ndarray[Any, Any]:
    wanted = "be a .npy file of one array of numbers"
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise ArgumentValueError(file, wanted, NOTHING, why) from None
    except (EOFError, ValueError) as error:
        raise ArgumentValueError(file, wanted) from error
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(file, wanted, Text("an archive"))
    return array


def _features(file: Path, array: np.ndarray[Any, Any]) -> int:
    """Return how many features an array has, which all turn."""
    if not array.ndim or not array.shape[-1] or array.shape[-1] % 2:
        wanted = "have an even number of features, or --rotary-dim be given"
        raise ArgumentValueError(file, wanted, Text(f"shape {array.shape}"))
    return int(array.shape[-1])


def _positions(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        pass
    if not text.endswith(".npy"):
        raise ArgumentValueError("positions", "be an integer or a .npy file", text)
    return np.asarray(_load(Path(text)))
