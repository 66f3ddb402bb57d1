"""
Read what a safetensors file holds, and copy one with some of its tensors reordered.

A permutation changes no dtype, no shape and no offset: the header is copied as it stands, and the data are bytes, of
whatever dtype. A few MiB at a time are in memory. (The package `safetensors` writes what is in memory as a whole, in
dtypes that some library has.)
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rope_any._checks import NOTHING, ArgumentValueError, Text
from rope_any.weights import reordered

_LONGEST = 100_000_000  # bytes of a header: the limit of the format
_NAMES = ("model.safetensors", "model.safetensors.index.json")  # what transformers calls them
_PIECE = 2**22  # bytes to have in memory, if a run of heads is not longer


class Entry(NamedTuple):
    """One tensor of a file: its shape, its first byte in the file, and the one behind it."""

    shape: tuple[int, ...]
    begin: int
    end: int


def within(source: Path, /) -> Path:
    """Return the file that a checkpoint is read by: of a folder the one tensor file or the one index in it."""
    if not source.exists():
        wanted = "be a .safetensors file, the index of several or a folder"
        raise ArgumentValueError(source, wanted, NOTHING, "there is no such file")
    if not source.is_dir():
        return source
    found = [file for name in _NAMES if (file := source / name).is_file()]
    if len(found) != 1:
        got = Text("both" if found else "neither")
        raise ArgumentValueError(source, f"have either {' or '.join(_NAMES)} in it", got)
    return found[0]


def tensors(source: Path, /) -> dict[Path, dict[str, Entry]]:
    """Return what is in each file of a checkpoint: those that an index lists, or the one file itself."""
    if source.suffix != ".json":
        return {source: entries(source)}
    listed = _weight_map(source)
    found = {source.parent / file: entries(source.parent / file) for file in sorted(set(listed.values()))}
    there = {(name, file.name) for file, inside in found.items() for name in inside}
    for name, file in sorted(there ^ set(listed.items())):
        why = "which it doesn't list" if (name, file) in there else "which isn't there"
        got = Text(f"{name!r} in {file}, {why}")
        raise ArgumentValueError(source, "list all tensors of its files, each in one", got)
    return found


def _weight_map(index: Path) -> dict[str, str]:
    """Return which file each tensor is in, by an index."""
    try:
        found = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"].items())
        plain = all(Path(file).name == file not in {"", ".."} and file.isprintable() for file in found.values())
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        plain = False
    if not plain or not found:
        wanted = "be an index of safetensors files: a weight_map from tensors to files beside it"
        raise ArgumentValueError(index, wanted)
    return found


def entries(file: Path, /) -> dict[str, Entry]:
    """Return the tensors of a file in the order of their bytes, or say why it is no safetensors file."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= min(_LONGEST, size - 8):
            raise _broken(file, "it has no header")
        text = stream.read(length)
    try:
        header = json.loads(text.decode())
        header.pop("__metadata__", None)
        found = {name: _entry(name, value, 8 + length) for name, value in header.items()}
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise _broken(file, "its header doesn't say what tensors there are") from None
    found = dict(sorted(found.items(), key=lambda item: item[1][1:]))
    if [8 + length, *(entry.end for entry in found.values())] != [*(entry.begin for entry in found.values()), size]:
        raise _broken(file, f"its tensors don't fill its {size} bytes (is it cut off?)")
    return found


def copy(
    source: Path,
    target: Path,
    /,
    *,
    axes: Mapping[str, int],
    order: tuple[int, ...],
    step: Callable[[str, int], None],
) -> None:
    """Write a file again with the tensors of `axes` in a new order; tell `step` which bytes are done."""
    found = entries(source)
    with source.open("rb") as old, target.open("wb") as new:
        new.write(old.read(min((entry.begin for entry in found.values()), default=-1)))
        for name, entry in found.items():
            inner = _inner(name, entry, axes[name]) if name in axes else 0
            # (before, runs, features of a run, bytes of each): runs stand one after the other in the file
            run = max(len(order) * inner, 1)
            size = max(_PIECE // run, 1) * run
            for begin in range(entry.begin, entry.end, size):
                data: Any = old.read(min(size, entry.end - begin))
                if len(data) < min(size, entry.end - begin):
                    raise _broken(source, "it has become shorter")
                step(name, len(data))
                if inner:
                    data = np.frombuffer(data, dtype=np.uint8).reshape(-1, len(order), inner)
                    data = reordered(name, data, order, axis=1)
                new.write(data)


def _inner(name: str, entry: Entry, axis: int) -> int:
    """Return how many bytes lie behind one feature."""
    count = math.prod(entry.shape[: axis + 1])
    if (entry.end - entry.begin) % max(count, 1):
        got = Text(f"shape {entry.shape}")
        raise ArgumentValueError(Text(name), f"have whole bytes behind each feature of axis {axis}", got)
    return (entry.end - entry.begin) // max(count, 1)


def _entry(name: str, value: Any, start: int) -> Entry:
    """Return what a header says of a tensor; what makes no sense raises one of several errors."""
    shape, (begin, end) = value["shape"], value["data_offsets"]
    bits = 8 if value["dtype"] == "BOOL" else int(re.findall(r"\d+", value["dtype"])[0])  # of BF16, F8_E4M3, ...
    whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    if not whole or 8 * (end - begin) != bits * math.prod(shape) or not name.isprintable():
        raise ValueError(name)
    return Entry(tuple(shape), start + begin, start + end)


def _broken(file: Path, why: str) -> ValueError:
    return ArgumentValueError(file, "be a whole safetensors file", NOTHING, why)
