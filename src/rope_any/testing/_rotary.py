"""A rotation in NumPy whose every step can be made wrong: what mistakes are made of."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
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
    parts: str = "cs"
    """What is multiplied as cosine and as sine: c or s, C or S without the attention factor, or 0."""
    minus: bool = True
    """Whether the minus of a·c − b·s is applied."""
    overwritten: bool = False
    """Whether b·c + a·s is computed with the first feature already rotated."""
    partner: str = "ba"
    """What is multiplied by the sine for the first feature and for the second: ``a`` is the first, ``b`` the second."""
    kept: bool = False
    """Whether the second features are left as they are."""
    second: Data | None = None
    """The frequencies ``(axes, pairs)`` by which the second members are computed, if not by the same."""
    written: Members | None = None
    """Where the rotated features are written, if not to their own places."""
    rest: float = 1.0
    """A factor of the features that pass through."""
    dtypes: Mapping[str, str] = MappingProxyType({})
    """Those to which it rounds, by step: `rotate_wrongly` has their names."""
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


_ROTATION = "the rotation itself"


def rotate_wrongly(r: Rotary, x: Data, positions: Data) -> Data:
    """Return x ``(n, head_dim)``, rotated at positions ``(n, axes)`` with the mistakes of `r`, in a new array."""

    def at(a: Any, step: str) -> Data:
        """Return numbers, rounded as those of a step."""
        return rounded(a, r.dtypes.get(step, "float64"))

    x, p = at(x, "x"), at(at(r.map_positions(positions) + r.shift, "positions"), "angles")

    def table(f: Data) -> tuple[Data, Data]:
        """Return cosines and sines ``(n, pairs)`` of frequencies ``(axes, pairs)``."""
        f = _by_powers(f, r.dtypes["powers of the base"]) if "powers of the base" in r.dtypes else f
        f = at(at(f, "frequencies"), "angles")
        f = f + r.ulps * np.spacing(f.astype(np.float32)).astype(np.float64) if np.any(r.ulps) else f
        angle = at(sum(at(p[:, [axis]] * f[axis], "angles") for axis in range(len(f))), "angles")
        angle = at(angle, "the angles alone")
        parts = r.factor * np.cos(angle), r.sign * r.factor * np.sin(angle)
        c, s = (at(at(part, "the table"), _ROTATION) for part in parts)
        values = {"c": c, "s": s, "C": c / r.factor, "S": s / r.factor, "0": 0 * c}
        return values[r.parts[0]], values[r.parts[1]]

    def component(a: Data, b: Data, c: Data, s: Data) -> Data:
        """Return a·c − b·s, one member of the rotated pairs; each operation is rounded."""
        return at(at(a * c, _ROTATION) - at(b * s, _ROTATION), _ROTATION)

    c, s = table(r.frequencies)
    a, b = (at(x[:, where], _ROTATION) for where in r.members)
    beside = {"a": a, "b": b}
    rotated = component(a, beside[r.partner[0]], c, s if r.minus else -s)
    y = x * r.rest
    places = r.written or r.members
    y[:, places[0]] = rotated
    c, s = (c, s) if r.second is None else table(r.second)
    beside["a"] = rotated if r.overwritten else a
    y[:, places[1]] = b if r.kept else component(b, beside[r.partner[1]], c, -s)
    return at(y, "the result")


def _by_powers(f: Data, dtype: str) -> Data:
    """Return frequencies ``(axes, pairs)`` by the base of the second, if base and powers are rounded."""
    n = f.shape[1]
    # fᵢ = 1 / base^(i/n), so the base is f₁^(−n)
    base = rounded(f[:, min(1, n - 1)].sum() ** -float(n), dtype)
    return np.where(f, 1 / rounded(base ** (np.arange(n) / n), dtype), 0)


CUT = "bfloat16, cut off rather than rounded"
_SHORT = {"bfloat16": 16, "TF32": 13, CUT: 16}  # the bits of a float32 that are dropped


def rounded(a: Any, dtype: str) -> Data:
    """Return float64 numbers, rounded to the dtype of this name (also one of `_SHORT`), as float64."""
    if dtype == "float64":
        return np.asarray(a)
    if dtype in _SHORT:  # float32 without its last bits
        dropped = _SHORT[dtype]
        bits = np.asarray(a).astype(np.float32).view(np.uint32)
        if dtype != CUT:  # to nearest, ties to even
            bits = bits + (2 ** (dropped - 1) - 1) + (bits >> dropped & 1)
        return np.asarray((bits >> dropped << dropped).view(np.float32), dtype=np.float64)
    return np.asarray(a).astype(dtype).astype(np.float64)


def measure_frequencies(r: Rotary, x: Data, y: Data, positions: Sequence[float] | Data) -> Data:
    """Return the frequencies ``(pairs,)`` that rotate x to y at `positions` 0, 1, 10 on, by members and sign of `r`."""
    turned = rotations(r, x, y)
    f = np.zeros(r.pairs)
    for place, rotation in zip(positions[1:], (turned / turned[0])[1:], strict=True):
        # each angle is known modulo one full turn; the frequencies so far leave a small part of that open
        off = np.angle(rotation * np.exp(-1j * r.sign * place * f)) * r.sign
        if place > 1 and np.abs(off).max() > 1:  # from here on it isn't small: these are taken for other positions
            break
        f += off / place
    return f


def measure_positions(r: Rotary, x: Data, y: Data) -> Data:
    """Return the positions ``(n,)`` at which `r` (one axis) rotates x to y, the slowest pair by few turns; or nan."""
    angles, f = np.angle(rotations(r, x, y)) * r.sign, r.frequencies[0]
    found = np.repeat(2 * np.pi * _TURNS[:, None] / np.abs(f).min(), len(x), axis=1)
    off, slower = 0 * found, 0.0
    for pair in np.argsort(np.abs(f)):  # a faster pair leaves more turns open, but is more precise
        angle = angles[:, pair] - found * f[pair]
        step = (angle - 2 * np.pi * np.round(angle / (2 * np.pi))) / f[pair]
        found, off, slower = found + step, np.maximum(off, np.abs(step * slower)), f[pair]
    fits = off < _ANGLE_ERROR
    return np.where(fits.any(axis=0), found[fits.argmax(axis=0), np.arange(len(x))], np.nan)


_TURNS = np.asarray(sorted(range(-32, 33), key=abs))
_ANGLE_ERROR = 0.05  # of results in bfloat16


def rotations(r: Rotary, x: Data, y: Data) -> Data:
    """Return y / x of pairs as complex numbers, ``(n, pairs)``."""
    z, w = (part[:, a] + 1j * part[:, b] for part, (a, b) in ((x, r.members), (y, r.written or r.members)))
    return np.asarray(w / z)
