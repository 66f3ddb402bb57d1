"""The rotation: one line of mathematics, and the schedules that run it."""

from functools import partial
from typing import NamedTuple

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
    check(x, cos, sin, how, out=out)
    return turn(x, cos, sin, how, out=out)


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
    """Refuse what cannot be turned, calling x by its name; `out` must not overlap the arrays of `apart`."""
    _array.namespace(**{name: x, "cos": cos, "sin": sin}, **({} if out is None else {"out": out}))
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


def turn(x: X, cos: Array, sin: Array, how: How, /, *, out: X | None = None) -> X:
    """Turn arguments that `check` has found good."""
    whole = partial(_whole, how=how)
    turned: X = _array.map_chunks(whole, x, cos, sin) if _array.is_chunked(x) else whole(x, cos, sin)
    if out is None:
        return turned
    out[...] = turned
    return out


def _whole(x: Array, cos: Array, sin: Array, *, how: How) -> Array:
    """Turn a whole array at once."""
    xp = _array.namespace(x=x)
    dtype, pairs = _array.compute_dtype(xp, x), cos.shape[-1]
    c, s = _array.cast(xp, cos, dtype), _array.cast(xp, sin, dtype)
    s = -s if how.inverse else s
    a, b = (_array.cast(xp, part, dtype) for part in split(x, how.pairing, how.start, pairs))
    # a' = a·c − b·s  and  b' = b·c − a·(−s)
    first, second = _line(a, b, c, s), _line(b, a, c, -s)
    turned = join(xp, _array.cast(xp, first, x.dtype), _array.cast(xp, second, x.dtype), how.pairing)
    passing = x[..., : how.start], turned, x[..., how.start + 2 * pairs :]
    kept = [part for part in passing if part.shape[-1]]
    result = turned if len(kept) == 1 else xp.concat(kept, axis=-1)
    return _array.cast(xp, result, x.dtype)  # joining forgets a byte order that is not the machine's


def _line(a: Array, b: Array, c: Array, s: Array) -> Array:
    return a * c - b * s
