"""
Read the beginning of a GGUF file: its metadata, and the tensors that scale the rotation.

Only the beginning and the few kilobytes of these tensors are read, so that the size of the weights doesn't matter. The
format is that of docs/gguf.md in ggml, versions 2 and 3. The package ``gguf`` reads it too, but first makes an array of
each of the hundred thousand tokens.
"""

import re
import struct
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from rope_any._checks import NOTHING, ArgumentValueError, Text, brief

MAGIC = b"GGUF"
TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""The tensors that belong to the rotation: divisors of the frequencies, one for each pair."""

_NUMBERS = {**dict(enumerate("BbHhIif?")), 10: "Q", 11: "q", 12: "d"}  # the format in `struct` of each type of value
_STRING, _ARRAY = 8, 9  # the other types
_TENSOR_TYPES = {0: "f", 1: "e"}  # float32, float16
_BLOCK, _LONGEST_HEADER, _LONGEST_FILE = 2**20, 2**26, 2**60  # bytes
_MOST_KEYS, _MOST_ITEMS, _MOST_TENSORS, _MOST_AXES, _MOST_SHARDS = 2**12, 2**12, 2**16, 4, 2**12
_SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf", re.DOTALL)


def read_gguf(path: Path, /) -> dict[str, Any]:
    """
    Return the metadata of a GGUF file, and by name each of `TENSORS` as a list of numbers, None if there is none.

    Of long arrays and those of strings, such as the tokens, only the length is kept, as a range. Of a file that is
    split, all shards are read; if one is missing, so are the names of tensors that no other has. Raise a ValueError if
    it is no valid GGUF file.
    """
    shards = [path]
    if (match := _SHARD.fullmatch(path.name)) and 0 < int(match[2]) <= _MOST_SHARDS:
        shards = [path.with_name(f"{match[1]}-{i:05}-of-{match[2]}.gguf") for i in range(1, int(match[2]) + 1)]
    metadata, tensors = _read_shard(shards[0])
    found = [shard for shard in shards[1:] if shard.is_file()]
    for shard in found:
        tensors |= _read_shard(shard)[1]
    is_whole = 1 + len(found) == len(shards) and metadata.get("split.count", 1) in range(len(shards) + 1)
    return {"general.architecture": None} | metadata | (dict.fromkeys(TENSORS) if is_whole else {}) | tensors


def _read_shard(path: Path) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Return the metadata of one file, and those of `TENSORS` that it has. Raise if it can't be read."""
    name = Text(path.name if path.name.isprintable() else repr(path.name))
    try:
        with path.open("rb") as file:
            return _Reader(file, name).read()
    except OSError as error:
        raise ArgumentValueError(name, "be a file that can be read", Text(error.strerror)) from None
    except (EOFError, KeyError, UnicodeDecodeError):
        raise ArgumentValueError(name, "be a GGUF file", NOTHING, "it is damaged, or ends too early") from None


class _Reader:
    """The beginning of a file, which is read in blocks as far as it is needed."""

    def __init__(self, file: BinaryIO, name: Text) -> None:
        """Take an open file, and its name for errors."""
        self.file, self.name, self.data, self.at, self.order = file, name, b"", 0, "<"

    def require(self, condition: bool, why: str) -> None:  # noqa: FBT001  # as `assert` has it
        """Raise, with a reason, unless a condition is true."""
        if not condition:
            raise ArgumentValueError(self.name, "be a GGUF file", NOTHING, why)

    def read(self) -> tuple[dict[str, Any], dict[str, list[float]]]:
        """Return the metadata, and the tensors in `TENSORS`."""
        self.require(self.bytes(4) == MAGIC, "its first bytes are not GGUF")
        version = self.number("I")
        if version >= 2**16:  # a file for processors with the other order of bytes
            self.order, version = ">", int.from_bytes(version.to_bytes(4, "little"))
        self.require(version in (2, 3), f"its version is {version}; 2 and 3 are read")
        tensors, keys = self.number("Q"), self.number("Q")
        metadata = self.entries(keys, _MOST_KEYS, lambda: self.value(self.number("I")))
        places = self.entries(tensors, _MOST_TENSORS, self.place)
        step = metadata.get("general.alignment", 32)
        self.require(type(step) is int and 0 < step <= _BLOCK, "its general.alignment is no number of bytes")
        start = -(-self.at // step) * step
        return metadata, {name: self.tensor(name, start, *places[name]) for name in TENSORS if name in places}

    def entries(self, count: int, most: int, read: Callable[[], Any]) -> dict[str, Any]:
        """Return entries, each a name and what `read` returns, by name."""
        found: dict[str, Any] = {}
        self.require(count <= most, f"it has {count} keys or tensors, where {most} are read")
        for _ in range(count):
            self.require((name := self.string()) not in found, f"it has {brief(name)} twice")
            found[name] = read()
        return found

    def skip(self, count: int) -> int:
        """Go on after the next bytes, which are then in `data`; return where they begin."""
        first, self.at = self.at, self.at + count
        while len(self.data) < self.at:
            self.require(self.at <= _LONGEST_HEADER, f"it begins with more than {_LONGEST_HEADER} bytes of metadata")
            if not (block := self.file.read(max(_BLOCK, len(self.data)))):
                raise EOFError
            self.data += block
        return first

    def bytes(self, count: int) -> bytes:
        """Return the next bytes."""
        first = self.skip(count)
        return self.data[first : self.at]

    def numbers(self, code: str, count: int) -> list[Any]:
        """Return the next numbers of one format."""
        first = self.skip(count * struct.calcsize(f"<{code}"))
        return list(struct.unpack_from(f"{self.order}{count}{code}", self.data, first))

    def number(self, code: str) -> Any:
        """Return the next number."""
        return self.numbers(code, 1)[0]

    def string(self) -> str:
        """Return the next string."""
        return self.bytes(self.number("Q")).decode()

    def value(self, kind: int) -> Any:
        """Return the next value of a type; a range of as many items for a long array, or one of strings."""
        if kind != _ARRAY:
            return self.string() if kind == _STRING else self.number(_NUMBERS[kind])
        kind, count = self.number("I"), self.number("Q")
        if kind != _STRING and count <= _MOST_ITEMS:
            return self.numbers(_NUMBERS[kind], count)
        for _ in range(count if kind == _STRING else 0):
            first = self.skip(8)  # which may replace `data`
            self.skip(struct.unpack_from(f"{self.order}Q", self.data, first)[0])
        if kind != _STRING:
            self.skip(count * struct.calcsize(f"<{_NUMBERS[kind]}"))
        return range(count)

    def place(self) -> tuple[int, int, int]:
        """Return the number of items, the type and the offset of the next tensor."""
        self.require((axes := self.number("I")) <= _MOST_AXES, f"it has a tensor with {axes} axes")
        return prod(self.numbers("Q", axes)), self.number("I"), self.number("Q")

    def tensor(self, name: str, start: int, count: int, kind: int, offset: int) -> list[float]:
        """Return the numbers of a tensor at an offset from `start`."""
        known = kind in _TENSOR_TYPES and 0 < count <= _MOST_ITEMS and offset < _LONGEST_FILE
        self.require(known, f"{name} has {count} items of type {kind}: up to {_MOST_ITEMS} of type 0 or 1 are read")
        self.file.seek(start + offset)
        self.data, self.at = b"", 0
        return self.numbers(_TENSOR_TYPES[kind], count)
