"""``rope-any verify --cache``: compare an engine's rotary cache in a file with the rotation of a config."""

from itertools import zip_longest
from pathlib import Path
from typing import Any

import typer

from rope_any._checks import ArgumentValueError
from rope_any._json import plain
from rope_any._safetensors import read_tensor
from rope_any.cli._common import echo_json, load_array, status
from rope_any.cli._configs import naming, only, read_file
from rope_any.layouts import layout_of
from rope_any.testing import check_cache


def verify_cache(
    files: list[Path],
    layout: str,
    config: Path,
    *,
    tensors: list[str],
    base: float | None,
    part: str | None,
    layer_type: str | None,
    sequence_length: int | None,
    as_json: bool,
    **options: Any,
) -> bool:
    """
    Print the report on an engine's cache of rotary tables, read from files, against a config; return whether it passed.

    Raise if the layout needs another number of files or tensors, or if the config doesn't give exactly one rotation.
    """
    arrays = layout_of(layout).arrays
    wanted = f"be given {'twice, for cosines and for sines,' if arrays == 2 else 'once'} for the layout {layout}"
    if tensors and len(tensors) != arrays:
        raise ArgumentValueError("tensor", wanted, tensors)
    if len(files) not in {arrays, 1 if tensors else arrays}:
        hint = "or `tensor` twice, for one .safetensors file" if len(files) == 1 else ""
        raise ArgumentValueError("cache", wanted, [*map(str, files)], hint)
    files = files * (arrays // len(files))
    which: dict[str, Any] = {"part": part, "layer_type": layer_type, "sequence_length": sequence_length}
    read = read_file(config, **options)
    with naming(config):
        only(config, read.explain(**which))
    with status(f"verifying {', '.join(map(str, files))}"):
        held = [_read_tensor(file, name) for file, name in zip_longest(files, tensors)]
        cache = held[0][0] if arrays == 1 else tuple(data for data, _ in held)
        report = check_cache(cache, layout, read, base=base, dtype=held[0][1], **which)
    if as_json:
        echo_json({"files": [*map(str, files)], "layout": layout, **plain(report)})
    else:
        typer.echo(f"{', '.join(dict.fromkeys(map(str, files)))}: {report}")
    return report.passed


def _read_tensor(file: Path, tensor: str | None) -> tuple[Any, str]:
    """
    Return the array of a .npy file, or a tensor of a .safetensors file, and the name of its dtype.

    `tensor` may be None for the only one in a .safetensors file, and must be None for a .npy file.
    """
    if file.suffix == ".safetensors" and file.is_file():
        return read_tensor(file, tensor)
    if tensor is not None:
        raise ArgumentValueError("tensor", "be given for .safetensors files only", tensor)
    array = load_array(file, otherwise=" or a .safetensors file")
    return array, array.dtype.name
