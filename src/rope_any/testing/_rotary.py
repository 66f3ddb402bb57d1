"""A rotation in NumPy whose every step can be made wrong: what mistakes are made of."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rope_any._frequencies import as_rows
from rope_any._pairing import Pairing, members
from rope_any._rope import Rope
from rope_any.testing._exact import Data, Members


class Fault(NamedTuple):
    """A mistake that was found, and what to do about it."""

    text: str
    remedy: str
    name: str = ""
    """Its name in the table of mistakes."""


class Rotary(NamedTuple):
    """The steps of a rotation, correct by default, with fields for mistakes."""

    frequencies: Data
    """``(axes, pairs)``."""
    members: Members
    factor: float = 1.0
    """The attention factor."""
    sign: int = 1
    shift: Any = 0
    """A number added to the positions, or one for each axis."""
    map_positions: Callable[[Data], Data] = np.asarray
    """A function of the positions ``(n, axes)``, called first."""
    exchanged: bool = False
    """Whether cosines and sines are exchanged."""
    minus: bool = True
    """Whether the minus of a·c − b·s is applied."""
    overwritten: bool = False
    """Whether b·c + a·s is computed with the first feature already rotated."""
    second: Data | None = None
    """The frequencies ``(axes, pairs)`` by which the second members are computed, if not by the same."""
    written: Members | None = None
    """Where the rotated features are written, if not to their own places."""
    rest: float = 1.0
    """A factor of the features that pass through."""
    x_dtype: str = "float64"
    position_dtype: str = "float64"
    frequency_dtype: str = "float64"
    angle_dtype: str = "float64"
    table_dtype: str = "float64"
    rotation_dtype: str = "float64"
    y_dtype: str = "float64"
    ulps: Any = 0
    """The error of its frequencies in float32 ulps, for all or by pair."""
    faults: tuple[Fault, ...] = ()
    """Its mistakes."""

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return int(self.frequencies.shape[-1])

    @property
    def features(self) -> Data:
        """The indices of the features that form pairs, in order."""
        return np.sort(np.concatenate(self.members))


def rotary_of(rope: Rope, /) -> list[Rotary]:
    """Return a `Rotary` for each head that has its own frequencies in a `Rope`; one, if all heads have the same."""
    f = np.asarray(rope.frequencies, dtype=np.float64)
    heads = f if f.ndim == 3 else np.asarray(as_rows(rope.frequencies), dtype=np.float64)[None]
    places = members_of(rope.pairing, rope.start, f.shape[-1], blocks=rope.blocks)
    return [Rotary(rows, places, rope.attention_factor) for rows in heads]


def members_of(pairing: Pairing, start: int, pairs: int, *, blocks: int = 1) -> Members:
    """Return the members of `pairs` pairs from feature `start` on, formed within equal blocks of the features."""
    each = pairs // blocks
    found = [np.asarray(members(pairing, start + 2 * each * block, each)) for block in range(blocks)]
    return np.concatenate([one[:each] for one in found]), np.concatenate([one[each:] for one in found])


def rotate_wrongly(r: Rotary, x: Data, positions: Data) -> Data:
    """Return x ``(n, head_dim)``, rotated at positions ``(n, axes)`` with the mistakes of `r`, in a new array."""
    x = rounded(x, r.x_dtype)
    p = rounded(rounded(r.map_positions(positions) + r.shift, r.position_dtype), r.angle_dtype)

    def table(f: Data) -> tuple[Data, Data]:
        """Return cosines and sines ``(n, pairs)`` of frequencies ``(axes, pairs)``."""
        f = rounded(f, r.frequency_dtype)
        f = f + r.ulps * np.spacing(f.astype(np.float32)).astype(np.float64) if np.any(r.ulps) else f
        angle = rounded(sum(rounded(p[:, [axis]] * f[axis], r.angle_dtype) for axis in range(len(f))), r.angle_dtype)
        c, s = (rounded(part, r.table_dtype) for part in (r.factor * np.cos(angle), r.sign * r.factor * np.sin(angle)))
        return (s, c) if r.exchanged else (c, s)

    def component(a: Data, b: Data, c: Data, s: Data) -> Data:
        """Return a·c − b·s, one member of the rotated pairs; each operation is rounded to `r.rotation_dtype`."""
        return rounded(rounded(a * c, r.rotation_dtype) - rounded(b * s, r.rotation_dtype), r.rotation_dtype)

    c, s = table(r.frequencies)
    a, b = (rounded(x[:, where], r.rotation_dtype) for where in r.members)
    rotated = component(a, b, c, s if r.minus else -s)
    y = x * r.rest
    places = r.written or r.members
    y[:, places[0]] = rotated
    c, s = (c, s) if r.second is None else table(r.second)
    y[:, places[1]] = component(b, rotated if r.overwritten else a, c, -s)
    return rounded(y, r.y_dtype)


_SHORT = {"bfloat16": 16, "TF32": 13}  # the bits of a float32 that are dropped


def rounded(a: Any, dtype: str) -> Data:
    """Return float64 numbers, rounded to the dtype of this name (bfloat16 and TF32 too), as float64."""
    if dtype == "float64":
        return np.asarray(a)
    if dtype in _SHORT:  # float32 without its last bits, to nearest, ties to even
        dropped = _SHORT[dtype]
        bits = np.asarray(a).astype(np.float32).view(np.uint32)
        bits = (bits + (2 ** (dropped - 1) - 1) + (bits >> dropped & 1)) >> dropped << dropped
        return np.asarray(bits.view(np.float32), dtype=np.float64)
    return np.asarray(a).astype(dtype).astype(np.float64)


def measure_frequencies(r: Rotary, x: Data, y: Data, positions: Sequence[float] | Data) -> Data:
    """Return the frequencies ``(pairs,)`` that rotate x to y at `positions` 0, 1, 10 on, by members and sign of `r`."""
    turned = rotations(r, x, y)
    f = np.zeros(r.pairs)
    for place, rotation in zip(positions[1:], (turned / turned[0])[1:], strict=True):
        # each angle is known modulo one full turn; the frequencies so far leave a small part of that open
        f += np.angle(rotation * np.exp(-1j * r.sign * place * f)) * r.sign / place
    return f


def measure_positions(r: Rotary, x: Data, y: Data, *, turns: int = 0) -> Data:
    """Return the positions ``(n,)`` at which `r` (one axis) rotates x to y, the slowest pair by about `turns`."""
    angles = np.angle(rotations(r, x, y)) * r.sign
    slowest = np.abs(r.frequencies[r.frequencies != 0]).min()
    found = np.full(len(x), 2 * np.pi * turns / slowest)
    for pair in np.argsort(np.abs(r.frequencies[0])):  # a faster pair leaves more turns open, but is more precise
        if f := r.frequencies[0, pair]:
            off = angles[:, pair] - found * f
            found = found + (off - 2 * np.pi * np.round(off / (2 * np.pi))) / f
    return found


def rotations(r: Rotary, x: Data, y: Data) -> Data:
    """Return y / x of pairs as complex numbers, ``(n, pairs)``."""
    z, w = (part[:, a] + 1j * part[:, b] for part, (a, b) in ((x, r.members), (y, r.written or r.members)))
    return np.asarray(w / z)
