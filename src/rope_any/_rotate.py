"""The rotation: one line of mathematics, and the schedules that run it."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from rope_any import _array
from rope_any._array import Array, X
from rope_any._frequencies import flag, integer
from rope_any._pairing import Pairing, as_pairing, join, split


class How(NamedTuple):
    """Which features turn, and in which sense."""

    pairing: Pairing
    start: int = 0
    inverse: bool = False


def rotate(
    x: X,
    cos: Array,
    sin: Array,
    /,
    *,
    pairing: Pairing,
    inverse: bool = False,
    start: int = 0,
    out: X | None = None,
) -> X:
    """
    Turn pairs of features of x by the angles of a table.

    Parameters
    ----------
    x : array
        Queries or keys, ``(..., features)``, of dtype float16, bfloat16, float32 or float64.
    cos, sin : array
        A table ``(..., pairs)`` of the same library and device, whose leading axes broadcast to
        ``x.shape[:-1]``. ``2 * pairs`` features turn, the others pass through.
    pairing : {"half", "interleaved"}
        Which features turn together: i and i + pairs, or 2i and 2i + 1, counted from `start`. It depends
        on the checkpoint (Llama, GPT-NeoX: "half"; GPT-J, and Llama as Meta published it: "interleaved").
    inverse : bool, optional
        Turn backwards, by (cos, −sin): the transpose, and for a table without attention factor the inverse.
    start : int, optional
        The first feature that turns.
    out : array, optional
        Where to write: x itself (in place), or an array like x that does not overlap it.

    Returns
    -------
    array
        Of the shape, dtype, library and device of x: `out` if given, else new.

    Raises
    ------
    TypeError
        If an argument is no array, no floating-point array or of another library than x.
    ValueError
        If shapes, devices or the pairing don't fit; or if `out` cannot be written, overlaps another argument
        in part, or would be written through while gradients are recorded.

    Notes
    -----
    Each pair (a, b) becomes (a cos − b sin, b cos + a sin): Su et al., arXiv:2104.09864, equation 34. It is
    computed in float64 if x is float64, else in float32.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import rotate
    >>> quarter_turn = np.asarray([0.0]), np.asarray([1.0])
    >>> print(rotate(np.asarray([3.0, 4.0]), *quarter_turn, pairing="half"))
    [-4.  3.]
    """
    how = How(as_pairing(pairing), integer("start", start), flag("inverse", inverse))
    xp = _array.namespace(x=x, cos=cos, sin=sin, **({} if out is None else {"out": out}))
    check(x, cos, sin, how, out=out)
    return turn(xp, x, cos, sin, how, out=out)


def check(
    x: Array,
    cos: Array,
    sin: Array,
    how: How,
    /,
    *,
    out: Array | None,
    name: str = "x",
    apart: dict[str, Array] | None = None,
) -> None:
    """
    Refuse what cannot be turned, of arrays of one namespace, calling x by its name.

    `out` must not overlap the arrays of `apart`.
    """
    _array.require_floating(name, x)
    _array.require_floating("cos", cos)
    _array.require_floating("sin", sin)
    if cos.shape != sin.shape or cos.ndim == 0:
        msg = f"cos and sin must have one shape (..., pairs); got {tuple(cos.shape)} and {tuple(sin.shape)}"
        raise ValueError(msg)
    if x.ndim == 0:
        msg = f"{name} must have an axis of features; got a 0-d array"
        raise ValueError(msg)
    pairs, features = cos.shape[-1], x.shape[-1]
    if pairs == 0 or how.start < 0 or how.start + 2 * pairs > features:
        msg = (
            f"{name} must hold the {2 * pairs} features that {pairs} pairs turn from start={how.start} on; "
            f"got {features} features"
        )
        raise ValueError(msg)
    batch, table = tuple(x.shape[:-1]), tuple(cos.shape[:-1])
    if not _broadcasts(table, batch):
        msg = f"cos and sin must broadcast to {batch}, the shape of {name} without its features; got {table}"
        raise ValueError(msg)
    if out is not None:
        if out.shape != x.shape or out.dtype != x.dtype:
            wanted, got = (f"{tuple(a.shape)} {a.dtype}" for a in (x, out))
            msg = f"out must have the shape and dtype of {name}, {wanted}; got {got}"
            raise ValueError(msg)
        _array.require_not_recording("out", x, cos, sin, out)
        _array.require_writable("out", out, onto=x, onto_name=name, apart={"cos": cos, "sin": sin, **(apart or {})})


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array of `shape` broadcasts to one of shape `to`, without making it grow."""
    last = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(n == m or n == 1 for n, m in last)  # noqa: PLR1714  # sizes may be symbols


def turn(xp: Any, x: X, cos: Array, sin: Array, how: How, /, *, out: X | None = None) -> X:
    """Turn arguments that `check` has found good, by the schedule that the array allows."""
    if _array.is_fillable(x, cos, sin, out):
        result: X = _array.empty_like(x) if out is None else out
        _fill(xp, x, cos, sin, how, out=result)
        return result
    turned: X
    if _array.is_chunked(x):
        turned = _array.map_chunks(partial(_chunk, how=how), x, cos, sin)
    else:
        turned = _whole(xp, x, cos, sin, how)
    if out is None:
        return turned
    out[...] = turned
    return out


# --- in one piece -----------------------------------------------------------------------------------------


def _chunk(x: Array, cos: Array, sin: Array, *, how: How) -> Array:
    """Turn one chunk, which is an array of a library of its own."""
    return _whole(_array.namespace(x=x), x, cos, sin, how)


def _whole(xp: Any, x: Array, cos: Array, sin: Array, how: How) -> Array:
    """Turn a whole array at once."""
    pairs = cos.shape[-1]
    first, second = _turned(xp, x, *_signed(xp, x, cos, sin, how), how)
    turned = join(xp, first, second, how.pairing)
    passing = x[..., : how.start], turned, x[..., how.start + 2 * pairs :]
    kept = [part for part in passing if part.shape[-1]]
    result = turned if len(kept) == 1 else xp.concat(kept, axis=-1)
    return _array.cast(xp, result, x.dtype)  # joining forgets a byte order that is not the machine's


def _signed(xp: Any, x: Array, cos: Array, sin: Array, how: How) -> tuple[Array, Array]:
    """Return a table in the dtype that x is turned in, and in the sense of the turn."""
    dtype = _array.compute_dtype(xp, x)
    s = _array.cast(xp, sin, dtype)
    return _array.cast(xp, cos, dtype), -s if how.inverse else s


def _turned(xp: Any, x: Array, c: Array, s: Array, how: How) -> tuple[Array, Array]:
    """Return the first and the second members of all pairs, turned, in the dtype of x."""
    a, b = (_array.cast(xp, part, c.dtype) for part in split(x, how.pairing, how.start, c.shape[-1]))
    # a' = a·c − b·s  and  b' = b·c − a·(−s)
    first, second = _line(a, b, c, s), _line(b, a, c, -s)
    return _array.cast(xp, first, x.dtype), _array.cast(xp, second, x.dtype)


def _line(a: Array, b: Array, c: Array, s: Array) -> Array:
    return a * c - b * s


# --- in blocks --------------------------------------------------------------------------------------------


def _fill(xp: Any, x: Array, cos: Array, sin: Array, how: How, /, *, out: Array) -> None:
    """Turn x into memory that can be written, block by block: what is made on the way stays in the cache."""
    pairs = cos.shape[-1]
    end = how.start + 2 * pairs
    if out is not x:
        for passing in (slice(how.start), slice(end, None)):
            if x[..., passing].shape[-1]:
                out[..., passing] = x[..., passing]
    out, x, cos, sin = _in_memory_order(xp, out, x, cos, sin)
    target, source = (
        _array.as_complex(part[..., how.start : end]) if how.pairing == "interleaved" else None for part in (out, x)
    )
    rows = max(_array.block_size(x) // x.shape[-1], 1)
    for part, blocks in _blocks(tuple(x.shape[:-1]), tuple(cos.shape[:-1]), rows):
        c, s = _signed(xp, x, cos[part], sin[part], how)
        if target is not None and source is not None:
            _multiply(target, source, _array.as_complex(join(xp, c, s, "interleaved")), blocks)
            continue
        for block in blocks:
            members = split(out[block], how.pairing, how.start, pairs)
            for member, value in zip(members, _turned(xp, x[block], c, s, how), strict=True):
                member[...] = value


def _multiply(out: Array, x: Array, factor: Array, blocks: Iterable[tuple[slice, ...]]) -> None:
    """Turn pairs that are seen as complex numbers."""
    for block in blocks:
        # (a + b·i)·(c + s·i) = (a·c − b·s) + (b·c − a·(−s))·i
        out[block] = x[block] * factor


def _in_memory_order(xp: Any, out: Array, x: Array, cos: Array, sin: Array) -> tuple[Array, ...]:
    """Return the arrays with as many axes each, the axes of x in the order in which it lies in memory."""
    batch = x.ndim - 1
    steps = _array.strides(x)
    order = sorted(range(batch), key=lambda axis: -abs(steps[axis]))
    tables = (xp.reshape(part, (1,) * (x.ndim - part.ndim) + tuple(part.shape)) for part in (cos, sin))
    if order == list(range(batch)):
        return out, x, *tables
    return tuple(xp.permute_dims(part, (*order, batch)) for part in (out, x, *tables))


def _blocks(
    shape: tuple[int, ...], table: tuple[int, ...], rows: int
) -> Iterator[tuple[tuple[slice, ...], Iterator[tuple[slice, ...]]]]:
    """Cut rows of a shape into blocks: yield each part of the table, and the blocks that turn by it."""
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= rows:
        axis -= 1
        inner *= shape[axis]
    # Axes before this one are taken one by one, this one in steps, those behind it whole.
    steps = [1 if i < axis - 1 else max(rows // inner, 1) if i == axis - 1 else max(n, 1) for i, n in enumerate(shape)]
    cuts = [[slice(i, min(i + step, n)) for i in range(0, n, step)] for n, step in zip(shape, steps, strict=True)]
    everything = [slice(None)]
    for part in product(*(cut if n > 1 else everything for cut, n in zip(cuts, table, strict=True))):
        ours = (cut if n <= 1 else [here] for cut, n, here in zip(cuts, table, part, strict=True))
        yield part, product(*ours)
