"""
The rotation itself: `rotate_pairs`, which runs on every array library. All other ways to rotate give its result faster.

A token at position m has queries and keys whose features form pairs (a, b). Each pair is rotated by the angle mθ, where
the frequency θ is that of the pair (Su et al., arXiv:2104.09864, equation 34):

    a' = a cos mθ − b sin mθ
    b' = b cos mθ + a sin mθ
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from rope_any._arrays import Array, Library, X
from rope_any._checks import ArgumentValueError, Text
from rope_any._formula import rotate_component
from rope_any._pairing import Pairing, join, split


def rotate_pairs(lib: Library, x: X, cos: Array, sin: Array, /, *, pairing: Pairing, start: int = 0) -> X:
    """
    Return the features of x that form pairs, from `start` on, rotated by a table ``(..., pairs)`` that broadcasts to x.

    The products are computed in the dtype of the table, and the results have that of x.
    """
    a, b = (lib.cast(member, cos.dtype) for member in split(x, pairing, start, cos.shape[-1]))
    # a' = a·c − b·s  and  b' = b·c − a·(−s)
    members = rotate_component(a, b, cos, sin), rotate_component(b, a, cos, -sin)
    # Cast both before they are joined: compilers write the operands of a concatenation to memory.
    first, second = (lib.cast(member, x.dtype) for member in members)
    rotated: X = join(lib, first, second, pairing)
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
    pairing: Pairing
    start: int = 0
    inverse: bool = False
    fused: bool = False
    blocks: int = 1
    """Number of equal feature blocks of the rotary slice; pairs are formed within a block."""
    wide: bool = False
    """Whether to compute in float64 for any dtype of x, because keys may be rotated many times."""

    def dtype(self, x: Array) -> Any:
        """Return the dtype to compute in: float64 if x is float64 or `wide` asks for it, else float32."""
        return self.lib.xp.float64 if self.wide else self.lib.compute_dtype(x)

    def factors(self, x: Array, table: Table) -> tuple[Array, Array]:
        """Return cos and sin of the table in the dtype to rotate x in; for the inverse rotation, sin is negated."""
        (cos, sin), dtype = table, self.dtype(x)
        s = self.lib.cast(sin, dtype)
        return self.lib.cast(cos, dtype), -s if self.inverse else s

    def rotary_slice(self, x: X, table: Table) -> X:
        """Return the features of x that rotate, two from `start` on for each pair of the table; x itself if all do."""
        features = 2 * table.cos.shape[-1]
        rotary: X = x if features == x.shape[-1] else x[..., self.start : self.start + features]
        return rotary

    def copy_passthrough(self, x: Array, table: Table, out: Array) -> None:
        """Copy the features of x before and after the rotary slice into `out`; do nothing if `out` is the object x."""
        end = self.start + 2 * table.cos.shape[-1]
        if out is not x and self.start:
            out[..., : self.start] = x[..., : self.start]
        if out is not x and end != x.shape[-1]:
            out[..., end:] = x[..., end:]

    def with_passthrough(self, x: X, rotated: Array) -> X:
        """Return an array like x with `rotated` as its rotary slice, cast to x's dtype; may be `rotated` itself."""
        end = self.start + rotated.shape[-1]
        before = [x[..., : self.start]] if self.start else []  # JAX has no empty arrays on a mesh
        after = [x[..., end:]] if end < x.shape[-1] else []
        whole = self.lib.concat([*before, rotated, *after]) if before or after else rotated
        return self.lib.cast(whole, x.dtype)  # type: ignore[no-any-return]  # joining forgets the byte order


Plan: TypeAlias = Callable[[tuple[Any, ...], Any, tuple[Any, ...]], tuple[Any, ...]]
"""
``(arrays, table, outs)`` → the rotated arrays, by one table or one for each array. A plan is valid for all arrays with
the same `signature`, and holds no array.
"""


# --- any array --------------------------------------------------------------------------------------------------------


def rotate_at_once(rotation: Rotation, x: X, table: Table, out: X | None) -> X:
    """Rotate one array of any library in whole-array operations, into `out` or a new array."""
    lib = rotation.lib
    cos, sin = (lib.broadcast_to_rank(part, x.ndim) for part in rotation.factors(x, table))
    rotated = rotate_pairs(lib, x, cos, sin, pairing=rotation.pairing, start=rotation.start)
    return assign(out, rotation.with_passthrough(x, rotated))


def assign(out: X | None, x: X) -> X:
    """Return x; or write x into `out`, if that is not None, and return `out`."""
    if out is None:
        return x
    out[...] = x
    return out
