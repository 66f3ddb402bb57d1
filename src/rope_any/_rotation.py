"""
The rotation itself: `rotate_pairs`, which runs on every array library. All other ways to rotate give its result faster.

A token at position m has queries and keys whose features form pairs (a, b). Each pair is rotated by the angle mθ, where
the frequency θ is that of the pair (Su et al., arXiv:2104.09864, equation 34):

    a' = a cos mθ − b sin mθ
    b' = b cos mθ + a sin mθ
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from rope_any._arrays import Array, Library, X
from rope_any._checks import ArgumentValueError, Text
from rope_any._formula import rotate_component
from rope_any._pairing import Pairing, Pairings, join, split


def rotate_pairs(
    lib: Library, x: X, cos: Array, sin: Array, /, *, pairing: Pairing, out_pairing: Pairing, dtype: Any = None
) -> X:
    """
    Return x, all of whose features form pairs, rotated by a table ``(..., pairs)`` that broadcasts to ``x.shape[:-1]``.

    The products are computed in the dtype of the table; the result has the dtype of x, or `dtype`, and the pairing
    `out_pairing`.
    """
    a, b = (lib.cast(member, cos.dtype) for member in split(x, pairing))
    # a' = a·c − b·s  and  b' = b·c − a·(−s)
    members = rotate_component(a, b, cos, sin), rotate_component(b, a, cos, -sin)
    # Cast both before they are joined: compilers write the operands of a concatenation to memory.
    first, second = (lib.cast(member, x.dtype if dtype is None else dtype) for member in members)
    rotated: X = join(lib, first, second, out_pairing)
    return rotated


# --- tables, and the options of a rotation ----------------------------------------------------------------------------


class Table(NamedTuple):
    """
    Cosines and sines of the angles, each ``(*positions.shape, pairs)``.

    `cos_sin` and `Rope.table` make it. `rotate` takes its two arrays, and the methods of `Rope` take it in place of
    positions.
    """

    cos: Array
    sin: Array


class BentTable(Table):
    """
    A `Table` that is not a rotation, because its pairs are scaled by position or mixed.

    The functions of `rope_any.bending` make it. It can replace any `Table`, but it has no inverse.
    """

    __slots__ = ()


def is_table_pair(given: object) -> TypeGuard[tuple[Table, Table]]:
    """Whether an argument is a pair of tables, of queries and of keys."""
    return isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, Table) for part in given)


def doubled_table_hint(table: Table, pairs: int) -> str:
    """Return how to halve a table of width ``2 * pairs``, which has each angle twice: an error's hint; else ""."""
    if table.cos.shape[-1] != 2 * pairs:
        return ""
    return f"if the table has each angle twice, give [..., :{pairs}] of both, or [..., ::2] if neighbours are equal"


def check_table(lib: Library, cos: Array, sin: Array) -> None:
    """Raise unless cos and sin are floating-point arrays of the same shape ``(..., pairs)``; values are not read."""
    lib.require_floating("cos", cos)
    lib.require_floating("sin", sin)
    if cos.shape != sin.shape or cos.ndim == 0:
        got = Text(f"{tuple(cos.shape)} and {tuple(sin.shape)}")
        raise ArgumentValueError("cos and sin", "have one shape (..., pairs)", got)


class Rotation(NamedTuple):
    """Options of a rotation of arrays of one library; it holds no array."""

    lib: Library
    pairings: Pairings
    start: int = 0
    inverse: bool = False
    fused: bool = False
    blocks: int = 1
    """Number of equal feature blocks of the rotary slice; pairs are formed within a block."""
    wide: bool = False
    """Whether to compute in float64 for any dtype of x, because keys may be rotated many times."""

    @property
    def orders(self) -> Pairings:
        """The pairing of x, and that of the result."""
        pairing, out_pairing = self.pairings
        return (out_pairing, pairing) if self.inverse else (pairing, out_pairing)

    @property
    def reorders(self) -> bool:
        """Whether the result has its features in another order than x."""
        return self.pairings[0] != self.pairings[1]

    def dtype(self, x: Array) -> Any:
        """Return the dtype to compute in: float64 if x is float64 or `wide` asks for it, else float32."""
        return self.lib.float64 if self.wide else self.lib.compute_dtype(x)

    def unrounded_dtype(self, x: Array, out: Array | None) -> Any:
        """Return the dtype that x is to have so that its rotated copy is rounded only as it is assigned to `out`."""
        return x.dtype if result_dtype(x, out) == x.dtype else self.dtype(x)

    def factors(self, x: Array, table: Table) -> tuple[Array, Array]:
        """Return cos and sin of the table in the dtype to rotate x in; for the inverse rotation, sin is negated."""
        (cos, sin), dtype = table, self.dtype(x)
        s = self.lib.cast(sin, dtype)
        return self.lib.cast(cos, dtype), -s if self.inverse else s

    def rotates_all(self, x: Array, table: Table) -> bool:
        """Whether all features of x form pairs, in one block."""
        return self.blocks == 1 and 2 * table.cos.shape[-1] == x.shape[-1]

    def part(self, x: X, pairs: int) -> X:
        """Return the features of x that rotate, from `start` on; with an axis of blocks before their own if any."""
        part: X = x if 2 * pairs == x.shape[-1] else x[..., self.start : self.start + 2 * pairs]
        return self.by_block(part)

    def by_block(self, part: X) -> X:
        """Reshape the last axis of `part`, of features or of pairs, to ``(blocks, size // blocks)`` if any."""
        if self.blocks == 1:
            return part
        reshaped: X = self.lib.reshape_last_axes(part, 1, self.blocks, part.shape[-1] // self.blocks)
        return reshaped

    def whole(self, x: X, rotated: Array, pairs: int) -> X:
        """Return an array like x with `rotated`, of the shape of its `part`, and its other features."""
        end = self.start + 2 * pairs
        if self.blocks > 1:
            rotated = self.lib.reshape_last_axes(rotated, 2, 2 * pairs)
        before = [x[..., : self.start]] if self.start else []  # JAX has no empty arrays on a mesh
        after = [x[..., end:]] if end < x.shape[-1] else []
        joined = self.lib.concat([*before, rotated, *after]) if before or after else rotated
        return self.lib.cast(joined, x.dtype)  # type: ignore[no-any-return]  # joining forgets the byte order


Plan: TypeAlias = Callable[[tuple[Any, ...], Any, tuple[Any, ...]], tuple[Any, ...]]
"""
``(arrays, table, outs)`` → the rotated arrays, in `outs` or, for Nones, in new arrays. A plan is valid for all arrays
with the same `signature`, and holds none of a caller.
"""


def one_by_one(rotate: Callable[[Any, Table, Any], Any]) -> Plan:
    """Return the plan that rotates array after array by a function of (x, table, out)."""
    return lambda xs, table, outs: tuple([rotate(x, table, out) for x, out in zip(xs, outs, strict=True)])


def rotate_whole(rotation: Rotation, x: X, table: Table, out: X | None = None) -> X:
    """Return x, of any library, with the features of the table's pairs rotated; or write it into `out`."""
    lib, pairs, (pairing, out_pairing) = rotation.lib, table.cos.shape[-1], rotation.orders
    part = rotation.part(x, pairs)
    factors = (lib.broadcast_to_rank(rotation.by_block(each), part.ndim) for each in rotation.factors(x, table))
    dtype = result_dtype(x, out)
    rotated = rotate_pairs(lib, part, *factors, pairing=pairing, out_pairing=out_pairing, dtype=dtype)
    if not rotation.rotates_all(x, table):
        rotated = rotation.whole(lib.cast(x, dtype), rotated, pairs)
    return assign(out, lib.cast(rotated, dtype))  # type: ignore[no-any-return]  # as x


def result_dtype(x: Array, out: Array | None) -> Any:
    """Return the dtype of x rotated: that of `out`, which may be another one, if there is one."""
    return x.dtype if out is None else out.dtype


def results_like(lib: Library, xs: tuple[X, ...], outs: tuple[X | None, ...]) -> tuple[X, ...]:
    """Return `outs`, with a new array like its x for each None."""
    return tuple([lib.empty_like(x) if out is None else out for x, out in zip(xs, outs, strict=True)])


def assign(out: X | None, x: X) -> X:
    """Return x; or write x into `out`, if that is not None, and return `out`."""
    if out is None:
        return x
    out[...] = x
    return out


def plan_parts(
    rotation: Rotation,
    xs: tuple[Array, ...],
    table: Table,
    outs: tuple[Array | None, ...],
    /,
    *,
    make: Callable[[Rotation, tuple[Array, ...], Table, tuple[Array | None, ...]], Plan],
) -> Plan:
    """Return the plan of `make`, for arrays of which all features rotate; around it, one that copies the others."""
    lib, pairs, writes = rotation.lib, table.cos.shape[-1], outs[0] is not None
    if all(rotation.rotates_all(x, table) for x in xs):
        return make(rotation, xs, table, outs)
    start, end, part = rotation.start, rotation.start + 2 * pairs, partial(rotation.part, pairs=pairs)

    def run(xs: tuple[X, ...], table: Table, outs: tuple[X | None, ...]) -> tuple[X, ...]:
        """Rotate the parts of xs, and join them with the other features."""
        rotated = rotate(tuple(map(part, xs)), Table(*map(rotation.by_block, table)), outs)
        return tuple([rotation.whole(x, y, pairs) for x, y in zip(xs, rotated, strict=True)])

    def run_into(xs: tuple[X, ...], table: Table, outs: tuple[Any, ...]) -> tuple[X, ...]:
        """Rotate the parts of xs into the same parts of their results, and copy the other features."""
        results = outs if writes else tuple(map(lib.empty_like, xs))
        sources = tuple(map(part, xs))
        places = [source if y is x else part(y) for x, y, source in zip(xs, results, sources, strict=True)]
        rotate(sources, Table(*map(rotation.by_block, table)), tuple(places))
        for x, result in zip(xs, results, strict=True):
            if result is not x and start:
                result[..., :start] = x[..., :start]
            if result is not x and end != x.shape[-1]:
                result[..., end:] = x[..., end:]
        return results

    joins = not writes and lib.are_plain(xs)  # subclasses would be joined to one
    joins = joins and all(prod(x.shape) <= _JOINED and _is_in_order(lib, lib.empty_like(x)) for x in xs)
    to: tuple[Array | None, ...] = outs
    if not joins:
        to = tuple(map(part, results_like(lib, xs, outs)))
    of_parts = rotation._replace(start=0, blocks=1)
    rotate = make(of_parts, tuple(map(part, xs)), Table(*map(rotation.by_block, table)), to)
    return run if joins else run_into


_JOINED = 2**17  # elements of an array; larger ones are not copied once more to save calls


def _is_in_order(lib: Library, x: Array) -> bool:
    """Whether the axes of x follow each other in memory as in its shape, so that joined parts have its layout."""
    layout = lib.layout(x)
    return layout is not None and list(layout[1]) == sorted(layout[1], reverse=True)
