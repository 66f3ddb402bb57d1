"""The mistakes that are looked for: a table of a name, how to make the mistake, and what to do about it."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, combinations, permutations
from typing import Any, TypeAlias

import numpy as np

from rope_any._pairing import Pairing
from rope_any.testing._exact import Data, pair_errors, pair_lengths
from rope_any.testing._rotary import Rotary, measure_positions, members_of, rotate_wrongly
from rope_any.testing._seen import Make, Seen, Wrong, has_base, one_way
from rope_any.testing._wrong_frequencies import MEASURED, STATED

# --- features -----------------------------------------------------------------------------------------------


def _other_pairing(_: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the pairing that is not the right one."""
    (other,) = {*PAIRINGS} - {seen.source.rope.pairing}
    yield {"other": other}, {"members": seen.members(pairing=other)}


def _other_slice(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the same pairs from the first feature on, and those up to the last one."""
    own = int(r.features[0])
    for start in {0, seen.x.shape[1] - 2 * r.pairs} - {own}:
        where = {"first": start, "last": start + 2 * r.pairs - 1}
        yield where, {"members": tuple(each - own + start for each in r.members)}


def _other_width(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the features that change as the rotary dimension, with the base's frequencies or, on axes, measured."""
    width, pairs = len(seen.moved), r.pairs
    if not width or width % 2 or width == 2 * pairs:
        return
    f, members = None, seen.members(start=seen.moved[0], pairs=width // 2)
    if has_base(r.frequencies):
        # fᵢ = base^(−i/n)  ⇒  base^(−i/m) = f₁^(i n/m)
        f = r.frequencies[:, 1:2] ** (np.arange(width // 2) * 2 * pairs / width)
    elif len(r.frequencies) > 1 and width > 2 * pairs:
        f = seen.measured(r._replace(frequencies=np.zeros((1, width // 2)), members=members))
    if f is not None:
        where = {"width": width, "first": seen.moved[0], "last": seen.moved[-1]}
        yield where, {"frequencies": f, "members": members}


def _fewer_pairs(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the pairs that change alone, where they are; and as many of the first as the slice that changes has."""
    same = seen.x == seen.y
    kept = np.flatnonzero(~(same[:, r.members[0]] & same[:, r.members[1]]).all(axis=0))
    should = np.flatnonzero(r.frequencies.any(axis=0))
    if 0 < len(kept) < len(should):
        rest = sorted({*should.tolist()} - {*kept.tolist()})
        fields = {"frequencies": r.frequencies[:, kept], "members": tuple(each[kept] for each in r.members)}
        yield {"which": f"pairs {rest[0]} to {rest[-1]} are left out"}, fields
    count = len(seen.moved) // 2
    if 0 < count < len(should):
        which = f"only {count} of {len(should)} rotate, in features {seen.moved[0]} to {seen.moved[-1]}"
        fields = {"frequencies": r.frequencies[:, :count], "members": seen.members(start=seen.moved[0], pairs=count)}
        yield {"which": which}, fields


def _other_partner(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield pairs whose features are half of the other width apart: of the rotated slice, or of the head."""
    turning = np.flatnonzero(r.frequencies.any(axis=0))
    count, head_dim = len(turning), seen.x.shape[1]
    if seen.source.rope.pairing != "half" or seen.source.rope.blocks != 1 or not count or turning[-1] >= count:
        return
    own = int(r.members[1][0] - r.members[0][0])
    for gap in {count, head_dim // 2} - {own}:
        first = r.features[0] + np.arange(count)
        if count <= gap and first[-1] + gap < head_dim:
            fields = {"frequencies": r.frequencies[:, :count], "members": (first, first + gap)}
            yield {"gap": gap, "own": own}, fields


def _other_order(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield results whose features are in the order of a pairing that is not the right one."""
    orders = {name: seen.members(pairing=name, pairs=r.pairs, start=int(r.features[0])) for name in PAIRINGS}
    rope, moved = seen.source.rope, np.arange(seen.x.shape[1])
    if rope.out_pairing is not None:  # `Subject` has brought results from that order to that of x
        moved[np.concatenate(seen.members(pairing=rope.out_pairing))] = np.concatenate(seen.members())
    for name, (first, second) in orders.items():
        places = moved[first], moved[second]
        if not np.array_equal(places, r.members):
            yield {"other": name}, {"written": places}


def _other_columns(r: Rotary, _: Seen) -> Iterator[Wrong]:
    """Yield tables as wide as the features, in the order of either pairing, where features need the other."""
    at = [each - r.features[0] for each in r.members]
    if (np.diff(r.features) == 1).all():
        for name, columns in {"half": [i % r.pairs for i in at], "interleaved": [i // 2 for i in at]}.items():
            if not all(np.array_equal(one, np.arange(r.pairs)) for one in columns):
                first, second = (r.frequencies[:, each] for each in columns)
                yield {"other": name}, {"frequencies": first, "second": second}


def _other_parts(_: Rotary, __: Seen) -> Iterator[Wrong]:
    """Yield tables of which one part is used in the place of the other, or zeros."""
    yield {"one": "sines", "other": "cosines"}, {"parts": "ss"}
    yield {"one": "cosines", "other": "sines"}, {"parts": "cc"}
    yield {"one": "zeros", "other": "sines"}, {"parts": "c0"}


def _other_blocks(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield pairs that are formed within all features, or within those of each axis."""
    for count in {1, 2, len(r.frequencies)} - {seen.source.rope.blocks}:
        if r.pairs % count == 0 and seen.source.rope.pairing == "half":
            yield {"count": count}, {"members": members_of("half", int(r.features[0]), r.pairs, blocks=count)}


# --- positions ----------------------------------------------------------------------------------------------


_Map: TypeAlias = Callable[[Data], Data]
"""A function of positions ``(n, axes)``."""


def _after(r: Rotary, change: _Map) -> _Map:
    """Return a change of positions after what `r` does to them."""
    return lambda p: change(r.map_positions(p))


def _mapped(change: _Map, **details: Any) -> Make:
    """Return a `Make` of one way: positions changed by a function, if it changes them."""

    def make(r: Rotary, seen: Seen) -> Iterator[Wrong]:
        """Yield the function, after what `r` does to positions."""
        if (change(seen.positions) != seen.positions).any():
            yield details, {"map_positions": _after(r, change)}

    return make


def _in_calls(change: _Map) -> _Map:
    """
    Return a change of positions ``(tokens, axes)`` that is made in each call.

    The first axis is consecutive in a call; of several axes, all tokens from the origin on are one call.
    """

    def change_all(positions: Data) -> Data:
        """Return the changed positions of all calls."""
        begins = np.flatnonzero(np.diff(positions[:, 0], prepend=positions[0, 0] - 2) != 1)
        if positions.shape[1] > 1 and len(origin := np.flatnonzero(~positions.any(axis=1))):
            begins = begins[begins <= origin[0]]
        return np.concatenate([change(run) for run in np.split(positions, begins[1:])])

    return change_all


_first_of_call = _in_calls(lambda p: p[:1] + 0 * p)


def _counted(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield positions that count from 0 in each call: from its least, alike on all axes, or from its first, on some."""
    for of_call in (lambda p: p - p.min(axis=0), lambda p: 0 * p + np.arange(len(p))[:, None]):
        yield from _mapped(_looked_up(seen, _in_calls(of_call)), where="")(r, seen)
    count, from_first = seen.positions.shape[1], _looked_up(seen, _in_calls(lambda p: p - p[0]))
    for axes in chain.from_iterable(combinations(range(count), n) for n in sorted({1, count - 1, count} - {0})):
        where = f" on ax{'is' if len(axes) == 1 else 'es'} {', '.join(map(str, axes))}" if len(axes) < count else ""
        yield from _mapped(partial(_on_axes, axes=axes, change=from_first), where=where)(r, seen)


def _looked_up(seen: Seen, change: _Map) -> _Map:
    """Return a change that takes positions ``(n, axes)`` for what they become among all of `seen`."""
    changed = dict(zip(map(tuple, seen.positions.tolist()), change(seen.positions), strict=True))
    return lambda p: np.asarray([changed.get(tuple(row), row) for row in p.tolist()])


def _as_int32(positions: Data) -> Data:
    """Return positions ``(tokens, axes)`` of a call as if its int64 were read as int32: p0, 0, p1, 0, ..."""
    index = np.arange(len(positions))[:, None]
    return np.where(index % 2, 0, positions[index[:, 0] // 2])


def _axis_order(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the axes of the positions in each other order, and one axis for all."""
    count = seen.positions.shape[1]
    for order in (*permutations(range(count)), *((axis,) * count for axis in range(count))) if 1 < count < 5 else ():
        yield from _mapped(partial(np.take, indices=order, axis=1), order=", ".join(map(str, order)))(r, seen)


def _shifted(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the constant numbers that the positions on each axis are off by, as measured at the first ones."""
    off = np.asarray([further for *_, further, _ in _measured_positions(r, seen.near)])
    shift = np.round(2 * off[:, 0]) / 2 if len(off) == len(r.frequencies) else np.zeros(1)
    if shift.any() and np.abs(off - shift[:, None]).max() < 1e-2:
        by = [f"{each:+g} on axis {axis}" for axis, each in enumerate(shift) if each]
        yield {"by": f"{shift[0]:+g}" if np.ptp(shift) == 0 else ", ".join(by)}, {"shift": r.shift + shift}


def _elsewhere(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield how the positions that are rotated wrongly are taken for others."""
    near, places = seen.near, r.written or r.members
    off = pair_errors(near.y, rotate_wrongly(r, near.x, near.positions), places)
    if r.faults and not off.max() < 1e-2:  # it does not explain the first positions
        return
    for axis, one, further, wrong in _measured_positions(r, seen):
        positions = (r.map_positions(seen.positions) + r.shift)[:, axis]
        for found in (measure_positions(one, seen.x, seen.y), positions + further) if wrong.any() else ():
            taken, where = np.round(found[wrong]), f"on axis {axis} " * (len(r.frequencies) > 1)
            if np.abs(found[wrong] - taken).max() <= 1e-2:
                for how, change in _ways(positions[wrong], taken, every=bool(wrong.all())).items():
                    on_axis = partial(_on_axes, axes=(axis,), change=change)
                    yield {"how": where + how}, {"map_positions": _after(r, on_axis)}
                    if where:
                        yield {"how": f"on all axes {how}"}, {"map_positions": _after(r, change)}


def _on_axes(positions: Data, *, axes: tuple[int, ...], change: _Map) -> Data:
    """Return positions ``(n, axes)``, changed on some axes alone."""
    return np.where(np.isin(np.arange(positions.shape[1]), axes), change(positions), positions)


def _ways(positions: Data, taken: Data, *, every: bool) -> dict[str, _Map]:
    """Return how `positions` may be taken for others: one, off by one number, of a shorter table, or modulo it."""
    begin, last, off = positions.min(), taken[0], taken[0] - positions[0]
    length = max(math.gcd(*(positions - taken).astype(np.int64).tolist()), 1)
    which = "of all tokens" if every else f"from {begin:.0f} on"
    return {
        f"beyond {last:.0f} are taken for {last:.0f}": lambda p: np.minimum(p, last),
        f"{which} are taken for {last:.0f}": lambda p: np.where(p < begin, p, last),
        f"{which} are off by {off:+.0f}": lambda p: np.where(p < begin, p, p + off),
        f"of calls that begin after {last:.0f} begin there": lambda p: p - np.maximum(_first_of_call(p) - last, 0),
        f"are taken modulo {length}": lambda p: p % length,
    }


def _measured_positions(r: Rotary, seen: Seen) -> Iterator[tuple[int, Rotary, Data, Data]]:
    """
    Yield by axis its part of `r`, the differences of positions in the results from its own, and which tokens are wrong.

    The last are ``(n,)``. A difference is nan beyond some turns of the slowest pair of the axis. There is no part of an
    axis without pairs of its own, and none if the results are no rotation.
    """
    want, places = rotate_wrongly(r, seen.x, seen.positions), r.written or r.members
    for axis, f in enumerate(r.frequencies) if seen.keeps_lengths(r) else ():
        alone = (r.frequencies != 0).sum(axis=0) * (f != 0) == 1
        if alone.any():
            source, target = (tuple(each[alone] for each in pairs) for pairs in (r.members, places))
            one = r._replace(frequencies=f[None, alone], members=source, written=target)
            further = measure_positions(one._replace(members=target), want, seen.y)
            wrong = pair_errors(seen.y, want, target).max(axis=1) > 1e-2
            yield axis, one, further, wrong


def _truncated(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield real positions rounded to whole numbers, and whole ones to multiples of a power of two."""
    yield from _mapped(np.round, how="rounded to whole numbers")(r, seen)
    yield from _mapped(np.floor, how="rounded down to whole numbers")(r, seen)
    yield from _mapped(np.trunc, how="rounded towards 0 to whole numbers")(r, seen)
    for n in (2, 4, 8, 16, 32):
        yield from _mapped(partial(_multiples, of=n), how=f"rounded down to multiples of {n}")(r, seen)


def _multiples(positions: Data, *, of: int) -> Data:
    """Return positions rounded down to multiples of a number."""
    return np.asarray(positions // of * of)


# --- the attention factor -----------------------------------------------------------------------------------


def _factor_twice(r: Rotary, _: Seen) -> Iterator[Wrong]:
    """Yield the square of the attention factor, and 1; and one of cosines or of sines alone."""
    if r.factor != 1:
        yield {"how": "on cosines alone"}, {"parts": "cS"}
        yield {"how": "on sines alone"}, {"parts": "Cs"}
        yield {"how": "left out"}, {"factor": 1.0}
        yield {"how": "counted twice"}, {"factor": r.factor**2}


def _other_factor(r: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the attention factor of the results: the median of |y| / |x| of pairs."""
    ratios = pair_lengths(seen.y, r.written or r.members) / pair_lengths(seen.x, r.members)
    factor = float(np.median(ratios))
    if not 1e-3 < factor < 1e3 or abs(factor / r.factor - 1) < 1e-6:
        return
    # YaRN's m = 0.1 ln s + 1, and its square
    known = {f"YaRN with factor {s:g}": 0.1 * math.log(s) + 1 for s in (2, 4, 8, 16, 32, 40, 64)}
    known |= {f"{name}, squared": value**2 for name, value in known.items()}
    name = next((f" ({name})" for name, value in known.items() if abs(value / factor - 1) < 1e-6), "")
    yield {"factor": f"{factor:.6g}{name}", "own": f"{r.factor:.6g}"}, {"factor": factor}


def _rest_factor(_: Rotary, seen: Seen) -> Iterator[Wrong]:
    """Yield the factor of the features that should pass through, if it is one for all."""
    ratio = np.delete(seen.y / seen.x, seen.right.features, axis=1)
    if ratio.size and np.ptp(ratio) < 1e-5 < abs(ratio[0, 0] - 1):
        yield {"factor": f"{np.median(ratio):.6g}"}, {"rest": float(np.median(ratio))}


# --- the table ----------------------------------------------------------------------------------------------

COUNT = "count from 0; with a cache, the next token has the position that is the length of the cache"
PAIRINGS: tuple[Pairing, ...] = ("half", "interleaved")

# By name, with {places} for what is found: how it is made, and what to do about it. In this order: a mistake is made in
# what those before it leave, and numbers are measured last.
MISTAKES: dict[str, tuple[Make, str]] = {
    "the other pairing: {other}": (
        _other_pairing,
        "rotate the pairs of the checkpoint, or reorder its weights by rope_any.weights.convert",
    ),
    "another slice: features {first} to {last} are rotated": (_other_slice, "rotate the slice that the model rotates"),
    "another rotary_dim, {width}: features {first} to {last} are rotated": (
        _other_width,
        "take rotary_dim from the config: partial_rotary_factor, rotary_pct or rotary_dim",
    ),
    "the rotary part is too small: {which}": (_fewer_pairs, "rotate all pairs: frequencies has one number for each"),
    "features i and i + {gap} form a pair, rather than i and i + {own}": (
        _other_partner,
        "take features half of rotary_dim apart; half of head_dim if the model pads its frequencies with zeros",
    ),
    "pairs are formed within {count} blocks of features": (_other_blocks, "form pairs as `blocks` of the Rope says"),
    "features are returned in the order {other}": (
        _other_order,
        "write each feature to its own place; if this order is wanted, give a Rope with that `out_pairing`",
    ),
    "tables in the feature order of {other}": (
        _other_columns,
        "repeat each number of a table twice in succession for interleaved pairs, the whole table for half",
    ),
    "the opposite sign: pairs rotate backwards": (
        one_way(lambda r: {"sign": -r.sign}),
        "rotate by +angle: a·c − b·s and b·c + a·s",
    ),
    "cosines and sines exchanged": (one_way(lambda _: {"parts": "sc"}), "exchange them back"),
    "{one} in the place of {other}": (_other_parts, "compute a·c − b·s and b·c + a·s"),
    "the halves of the partner not exchanged: a·c − a·s and b·c + b·s": (
        one_way(lambda _: {"partner": "ab"}),
        "compute a·c − b·s and b·c + a·s",
    ),
    "the second feature of each pair left as it is": (one_way(lambda _: {"kept": True}), "write both features"),
    "the minus left out: a·c + b·s": (one_way(lambda _: {"minus": False}), "compute a·c − b·s and b·c + a·s"),
    "a minus too many: b·c − a·s": (
        one_way(lambda r: {"sign": -r.sign, "minus": False}),
        "compute a·c − b·s and b·c + a·s",
    ),
    "the second feature is computed from the rotated first": (
        one_way(lambda _: {"overwritten": True}),
        "keep the first feature until the second is computed",
    ),
    "nothing is rotated, as if all positions were 0": (
        _mapped(np.zeros_like),
        "pass the positions on, and use the result; leave out in_place (--in-place) if the function returns it",
    ),
    "positions ignored: all tokens are rotated as at 1": (_mapped(np.ones_like), "use the positions"),
    "positions ignored{where}: each call counts from 0": (
        _counted,
        "use the positions: with a cache a call begins at the length of the cache",
    ),
    "all tokens of a call are rotated as its first": (_mapped(_first_of_call), "give each token its own position"),
    "all tokens of a call that begins after 0 are rotated as its first": (
        _mapped(lambda p: np.where(_first_of_call(p) == 0, p, _first_of_call(p))),
        "give each token its own position, beside a cache too",
    ),
    "int64 positions are read as int32: every second one is 0": (
        _mapped(_in_calls(_as_int32)),
        "convert the positions to the dtype that the kernel reads",
    ),
    "positions run backwards within each call": (
        _mapped(_in_calls(lambda p: p[::-1])),
        "take positions in their order",
    ),
    "positions are {how}": (_truncated, "keep real positions, and multiply before you divide"),
    "positions are read as int16: from 32768 on they are negative": (
        _mapped(lambda p: (p + 32_768) % 65_536 - 32_768),
        "read the positions in the dtype that they have",
    ),
    "the axes of the positions are taken as {order}": (_axis_order, "take the axes in their order"),
    "positions one too large": (one_way(lambda r: {"shift": r.shift + 1}), COUNT),
    "positions one too small": (one_way(lambda r: {"shift": r.shift - 1}), COUNT),
    **STATED,
    "the features that pass through times {factor}": (_rest_factor, "leave them as they are"),
    "the attention factor {how}": (_factor_twice, "multiply cosine and sine by it once, for q and for k"),
    "an attention factor of {factor} rather than {own}": (_other_factor, "take it from the config"),
    **MEASURED,
    # measured against the frequencies that explain the first positions
    "all positions are off by {by}": (_shifted, "count from the first token: no offset of padding or of an embedding"),
    "positions {how}": (
        _elsewhere,
        "make tables as long as the longest sequence, and give each token its own position",
    ),
}
"""All mistakes that are looked for but roundings."""
