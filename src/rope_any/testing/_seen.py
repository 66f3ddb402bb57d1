"""The results of a function beside what they should be, and what can be measured from them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rope_any._pairing import Pairing
from rope_any.testing._exact import Data, Members, pair_errors, pair_lengths
from rope_any.testing._right import Right
from rope_any.testing._rotary import Rotary, measure_frequencies, members_of, rotate_wrongly

NEIGHBOUR = "the rotation is that of {name}"
POWERS = (0, *(10**n for n in range(10)))  # positions at which frequencies are measured


class Seen(NamedTuple):
    """The results of a function, and what they should be."""

    right: Rotary
    source: Right
    """Where it comes from."""
    x: Data
    """``(n, head_dim)``."""
    positions: Data
    """``(n, axes)``."""
    y: Data
    dtype: str = "float64"
    """That of the results."""

    @property
    def near(self) -> "Seen":
        """The results at some of the smallest positions alone."""
        reach = np.abs(self.positions).max(axis=1)
        return self.at(_some(reach <= reach.min() + 7, most=64))

    @property
    def errors(self) -> Data:
        """The largest relative error of a pair against the right rotation, of each token ``(n,)``."""
        want = rotate_wrongly(self.right, self.x, self.positions)
        return np.asarray(pair_errors(self.y, want, self.right.members).max(axis=1))

    @property
    def sample(self) -> "Seen":
        """The results at some positions, at the most wrong ones, and at those at which frequencies are measured."""
        worst = np.isin(np.arange(len(self.x)), np.argsort(-self.errors, kind="stable")[:64])
        apart = (self.positions != 0).sum(axis=1) < 2
        powers = apart & np.isin(self.positions, POWERS).all(axis=1)
        return self.at(powers | worst | _some(np.ones(len(self.x), dtype=bool), most=512))

    def at(self, which: Data) -> "Seen":
        """Return the results at the tokens of a mask ``(n,)`` alone."""
        return self._replace(x=self.x[which], positions=self.positions[which], y=self.y[which])

    @property
    def moved(self) -> range:
        """The range from the first to the last feature that differs in x and y; maybe empty."""
        where = np.flatnonzero((self.y != self.x).any(axis=0))
        return range(where[0], where[-1] + 1) if len(where) else range(0)

    def members(self, *, pairing: Pairing | None = None, start: int | None = None, pairs: int | None = None) -> Members:
        """Return the members of pairs, as they should be but for the options."""
        begin, count = self.right.features[0] if start is None else start, self.right.pairs if pairs is None else pairs
        blocks = self.source.rope.blocks
        return members_of(pairing or self.source.rope.pairing, begin, count, blocks=1 if count % blocks else blocks)

    def keeps_lengths(self, r: Rotary) -> bool:
        """Whether the results can be a rotation of the pairs of `r`: all are longer or shorter by one factor."""
        with np.errstate(all="ignore"):
            ratios = pair_lengths(self.y, r.written or r.members) / pair_lengths(self.x, r.members)
        return bool(np.ptp(ratios) < 0.05 * np.median(ratios))

    def measured(self, r: Rotary) -> Data | None:
        """
        Return the frequencies ``(axes, pairs)`` of the results, for the members of `r`.

        They are None if its frequencies are a known mistake, or without the rows.
        """
        found: list[Any] = []
        if not self.keeps_lengths(r) or NEIGHBOUR in [fault.name for fault in r.faults]:
            return None
        for axis in range(self.positions.shape[1]):
            alone, places = (np.delete(self.positions, axis, axis=1) == 0).all(axis=1), self.positions[:, axis]
            if not places.any():  # an axis of one position: any frequencies would do
                found.append(r.frequencies[axis] if len(r.frequencies) > axis else np.zeros(r.pairs))
                continue
            wanted = sorted({*POWERS, places[alone].max(initial=0)})
            rows = [row[0] for p in wanted if len(row := np.flatnonzero(alone & (places == p)))]
            if not {0, 1} <= {*places[rows].tolist()}:
                return None
            found.append(measure_frequencies(r, self.x[rows], self.y[rows], places[rows]))
        return np.asarray(found)


def _some(which: Data, *, most: int) -> Data:
    """Return a mask of at most so many of the tokens of a mask ``(n,)``, at equal distances."""
    chosen = np.flatnonzero(which)
    chosen = chosen[np.linspace(0, len(chosen) - 1, min(most, len(chosen))).astype(int)]
    return np.isin(np.arange(len(which)), chosen)


Wrong: TypeAlias = tuple[dict[str, Any], dict[str, Any]]
"""What to write into the name of a mistake, and the changed fields of a `Rotary`."""
Make: TypeAlias = Callable[[Rotary, Seen], Iterator[Wrong]]
"""A function that yields the ways in which a mistake can be made in a `Rotary`."""


def one_way(change: Callable[[Rotary], dict[str, Any]]) -> Make:
    """Return a `Make` of one way, which needs nothing from the results."""
    return lambda r, _: iter([({}, change(r))])


def has_base(f: Data) -> bool:
    """Whether frequencies ``(axes, pairs)`` are powers of a base; False for several axes or a single pair."""
    return f.shape[0] == 1 and f.shape[1] > 1 and np.allclose(f[0], f[0, 1] ** np.arange(f.shape[1]))
