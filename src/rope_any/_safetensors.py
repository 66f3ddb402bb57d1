"""
Read the header of a safetensors file or one tensor, and copy a file with some of its tensors reordered.

A permutation changes no dtype, shape or offset, so the header is copied unchanged and the data are handled as bytes of
any dtype, a few MiB at a time. (The package `safetensors` writes only whole tensors in memory, of dtypes that an array
library has.)
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rope_any._checks import NOTHING, ArgumentValueError, Text
from rope_any.weights import reorder

_MAX_HEADER = 100_000_000  # bytes of a header: the limit of the format
_NAMES = ("model.safetensors", "model.safetensors.index.json")  # the file names of transformers
_CHUNK_BYTES = 2**22  # bytes in memory at a time, or one group of heads if that is more


class Entry(NamedTuple):
    """The header entry of a tensor: its shape, the offset of its first byte in the file, its end, and its dtype."""

    shape: tuple[int, ...]
    begin: int
    end: int
    dtype: str


def checkpoint_file(source: Path, /) -> Path:
    """Return a file, or the model.safetensors or index of a folder; raise if it has both or neither, or is missing."""
    if not source.exists():
        wanted = "be a .safetensors file, the index of several or a folder"
        raise ArgumentValueError(source, wanted, NOTHING, "there is no such file")
    if not source.is_dir():
        return source
    found = [file for name in _NAMES if (file := source / name).is_file()]
    if len(found) != 1:
        got = Text("both" if found else "neither")
        raise ArgumentValueError(source, f"contain either {' or '.join(_NAMES)}", got)
    return found[0]


def entries_by_file(source: Path, /) -> dict[Path, dict[str, Entry]]:
    """Return {file: {tensor name: entry}} of a .safetensors file, or of all in an index; raise if these disagree."""
    if source.suffix != ".json":
        return {source: read_entries(source)}
    listed = _weight_map(source)
    found = {source.parent / file: read_entries(source.parent / file) for file in sorted(set(listed.values()))}
    in_files = {(name, file.name) for file, inside in found.items() for name in inside}
    for name, file in sorted(in_files ^ set(listed.items())):
        why = "which it doesn't list" if (name, file) in in_files else "which isn't there"
        got = Text(f"{name!r} in {file}, {why}")
        raise ArgumentValueError(source, "list all tensors of its files, each in one", got)
    return found


def _weight_map(index: Path) -> dict[str, str]:
    """Return {tensor name: file name} from an index; raise if it is malformed, empty or names other folders."""
    try:
        found = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"].items())
        plain = all(Path(file).name == file not in {"", ".."} and file.isprintable() for file in found.values())
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        plain = False
    if not plain or not found:
        wanted = "be an index of safetensors files: a weight_map from tensors to files beside it"
        raise ArgumentValueError(index, wanted)
    return found


def read_entries(file: Path, /) -> dict[str, Entry]:
    """Return {tensor name: header entry} of a file by rising offset; raise if it is no whole safetensors file."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= min(_MAX_HEADER, size - 8):
            is_pickled = file.suffix in {".bin", ".pt", ".pth"}
            hint = "; safetensors.torch.save_file(torch.load(file), name) writes one" if is_pickled else ""
            is_cut = 2 <= length <= _MAX_HEADER and stream.read(1) == b"{"
            raise _format_error(file, "it is cut off" if is_cut else f"it has no header{hint}")
        text = stream.read(length)
    try:
        header = json.loads(text.decode())
        header.pop("__metadata__", None)
        found = {name: _entry(name, value, 8 + length) for name, value in header.items()}
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise _format_error(file, "its header doesn't list its tensors") from None
    found = dict(sorted(found.items(), key=lambda item: item[1][1:]))
    if [8 + length, *(entry.end for entry in found.values())] != [*(entry.begin for entry in found.values()), size]:
        raise _format_error(file, f"its tensors don't fill its {size} bytes (is it cut off?)")
    return found


# dtype -> its name, and the data type of its bytes
_READABLE = {
    "F64": ("float64", "<f8"),
    "F32": ("float32", "<f4"),
    "F16": ("float16", "<f2"),
    "BF16": ("bfloat16", "<u2"),
    "C64": ("complex64", "<c8"),
}


def read_tensor(file: Path, name: str | None, /) -> tuple[np.ndarray[Any, Any], str]:
    """Return (array, dtype name) of a float or complex tensor (None: the only one), bfloat16 as float32; else raise."""
    found = read_entries(file)
    if not found:
        raise ArgumentValueError(file, "contain a tensor", NOTHING)
    name = next(iter(found)) if name is None and len(found) == 1 else name
    if name not in found:
        wanted = f"be one of {', '.join([*found][:20])}{', ...' if len(found) > 20 else ''}, for {file}"
        raise ArgumentValueError("tensor", wanted, NOTHING if name is None else name)
    entry = found[name]
    if entry.dtype not in _READABLE:
        raise ArgumentValueError(file, f"have {name} in one of {', '.join(_READABLE)}", Text(entry.dtype))
    dtype, kind = _READABLE[entry.dtype]
    data = np.fromfile(file, dtype=kind, offset=entry.begin, count=math.prod(entry.shape)).reshape(entry.shape)
    return ((data.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else data), dtype


def copy(
    source: Path,
    target: Path,
    /,
    *,
    axes: Mapping[str, int],
    order: tuple[int, ...],
    report_progress: Callable[[str, int], None],
) -> None:
    """
    Copy a file over `target`, with the features of the tensors in `axes` (name to axis) reordered.

    Along the axis, new feature i of each group of ``len(order)`` is the old ``order[i]``; that groups are whole is not
    checked. ``report_progress(name, bytes)`` is called for each chunk. Raises if `source` is no safetensors file.
    """
    found = read_entries(source)
    with source.open("rb") as old, target.open("wb") as new:
        new.write(old.read(min((entry.begin for entry in found.values()), default=-1)))
        for name, entry in found.items():
            inner = _bytes_per_feature(name, entry, axes[name]) if name in axes else 0
            # (before, groups, features of a group, bytes per feature): groups follow each other in the file
            run = max(len(order) * inner, 1)
            size = max(_CHUNK_BYTES // run, 1) * run
            for begin in range(entry.begin, entry.end, size):
                data: Any = old.read(min(size, entry.end - begin))
                if len(data) < min(size, entry.end - begin):
                    raise _format_error(source, "it was truncated during the copy")
                report_progress(name, len(data))
                if inner:
                    data = np.frombuffer(data, dtype=np.uint8).reshape(-1, len(order), inner)
                    data = reorder(name, data, order, axis=1)
                new.write(data)


def _bytes_per_feature(name: str, entry: Entry, axis: int) -> int:
    """Return how many consecutive bytes one index of `axis` takes in a tensor's data; raise unless a whole number."""
    count = math.prod(entry.shape[: axis + 1])
    if (entry.end - entry.begin) % max(count, 1):
        got = Text(f"shape {entry.shape}")
        raise ArgumentValueError(Text(name), f"have whole bytes for each feature of axis {axis}", got)
    return (entry.end - entry.begin) // max(count, 1)


def _entry(name: str, value: Any, start: int) -> Entry:
    """Return a tensor's entry from its JSON header `value`, `start` added to its offsets; raise if it is malformed."""
    shape, (begin, end) = value["shape"], value["data_offsets"]
    bits = 8 if value["dtype"] == "BOOL" else int(re.findall(r"\d+", value["dtype"])[0])  # of BF16, F8_E4M3, ...
    whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    if not whole or 8 * (end - begin) != bits * math.prod(shape) or not name.isprintable():
        raise ValueError(name)
    return Entry(tuple(shape), start + begin, start + end, value["dtype"])


def _format_error(file: Path, reason: str) -> ValueError:
    """Return the error for a file that is not a whole safetensors file; `reason` becomes its hint."""
    return ArgumentValueError(file, "be a whole safetensors file", NOTHING, reason)
