"""The rotation: one line of mathematics, and the schedules that run it."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

from rope_any import _array, _compilers, _memory, _parts
from rope_any._array import Array, X
from rope_any._checks import flag, integer
from rope_any._pairing import Pairing, are_adjacent, as_pairing, join, split, step_and_gap
from rope_any._table import check_table


class How(NamedTuple):
    """Which features turn, in which sense, and by whose hand."""

    pairing: Pairing
    start: int = 0
    inverse: bool = False
    fused: bool = False
    blocks: int = 1
    """How many equal parts of the turning features are paired each on its own."""
    wide: bool = False
    """Whether float64 is computed in whatever x is, for what is turned again and again."""

    def dtype(self, xp: Any, x: Array) -> Any:
        """Return the dtype that x is turned in."""
        return xp.float64 if self.wide else _array.compute_dtype(xp, x)


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
    fused: bool = False,
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
    fused : bool, optional
        Let the library's own compiler make one loop of it: torch.compile, jax.jit, mlx.compile, cupy.fuse, and Numba
        for NumPy (extra ``numba``). The first call with a dtype takes the time to compile, seconds on torch. What
        cannot be compiled runs as without, with a RuntimeWarning once.

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
    how = How(as_pairing(pairing), integer("start", start), flag("inverse", inverse), flag("fused", fused))
    xp = _array.namespace(x=x, cos=cos, sin=sin, **({} if out is None else {"out": out}))
    check_table(cos, sin)
    check(x, cos, sin, how, out=out)
    batch, table = tuple(x.shape[:-1]), tuple(cos.shape[:-1])
    if not _broadcasts(table, batch):
        msg = f"cos and sin must broadcast to {batch}, the shape of x without its features; got {table}"
        raise ValueError(msg)
    return turn(xp, (x,), cos, sin, how, outs=(out,))[0]


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
    Refuse what a table cannot turn, of arrays of one namespace, calling x by its name.

    `out` must not overlap the arrays of `apart`.
    """
    _array.require_floating(name, x)
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
    if not _array.is_sharded(x) and (_array.is_sharded(cos) or _array.is_sharded(sin)):
        msg = f"{name} must be sharded where its positions or its table are; got a plain array (see DTensor.from_local)"
        raise TypeError(msg)
    if out is not None:
        if out.shape != x.shape or out.dtype != x.dtype:
            wanted, got = (f"{tuple(a.shape)} {a.dtype}" for a in (x, out))
            msg = f"out must have the shape and dtype of {name}, {wanted}; got {got}"
            raise ValueError(msg)
        _array.require_not_recording("out", x, cos, sin, out)
        _memory.require_writable("out", out, onto=x, onto_name=name, apart={"cos": cos, "sin": sin, **(apart or {})})


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array of `shape` broadcasts to one of shape `to`, without making it grow."""
    last = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(n == m or n == 1 for n, m in last)  # noqa: PLR1714  # sizes may be symbols


def turn(
    xp: Any, arrays: tuple[X, ...], cos: Array, sin: Array, how: How, /, *, outs: tuple[X | None, ...]
) -> tuple[X, ...]:
    """Turn arrays of one dtype, which `check` has found good, by one table and by the schedule that they allow."""
    like = arrays[0]
    if how.blocks > 1 and not _parts.is_parted(like):
        return tuple(_in_blocks(xp, x, cos, sin, how, out=out) for x, out in zip(arrays, outs, strict=True))
    if how.fused and not _array.is_compiling(like) and not _parts.is_parted(like):
        reason = _compilers.obstacle(like, *arrays[1:], cos, sin, *outs)
        if reason is None:
            return tuple(_fused(xp, x, cos, sin, how, out=out) for x, out in zip(arrays, outs, strict=True))
        _compilers.fallen_back(reason)
        how = how._replace(fused=False)
    if _array.is_fillable(*arrays, cos, sin, *outs):
        if not are_adjacent(how.pairing) and _array.are_few(*arrays):
            table = _as_wide(xp, *_signed(xp, like, cos, sin, how))
            return tuple([_few(xp, x, table, how, out) for x, out in zip(arrays, outs, strict=True)])
        results = tuple(_array.empty_like(x) if out is None else out for x, out in zip(arrays, outs, strict=True))
        for x, result in zip(arrays, results, strict=True):
            _fill(xp, x, cos, sin, how, out=result)
        return results
    if _array.is_recorded(*arrays, cos, sin):  # and there is no out: `check` has seen to it
        from rope_any import _gradients

        rule = partial(_alone, xp, how), partial(_pulled_back, xp, how)
        return tuple(_gradients.recorded(*rule, x, cos, sin) for x in arrays)
    alone = _in_parts if _parts.is_parted(like) else _at_once
    return tuple(alone(xp, x, cos, sin, how, out=out) for x, out in zip(arrays, outs, strict=True))


def _alone(xp: Any, how: How, x: X, cos: Array, sin: Array) -> X:
    return turn(xp, (x,), cos, sin, how, outs=(None,))[0]


def _pulled_back(
    xp: Any, how: How, g: Array, arrays: tuple[Array | None, Array, Array], wanted: tuple[bool, ...]
) -> tuple[Array | None, ...]:
    """Return the gradients of x, cos and sin that are wanted, for the gradient g of x turned."""
    x, cos, sin = arrays
    # of x: Rᵀ g, the turn backwards
    of_x = _alone(xp, how._replace(inverse=not how.inverse), g, cos, sin) if wanted[0] else None
    if x is None:
        return of_x, None, None
    # of c + s·i: g·conj(x), each pair (p, q) of g turned backwards by the pair (a, b) of x
    dtype, pairs = how.dtype(xp, x), cos.shape[-1]
    members = (member for part in (g, x) for member in split(part, how.pairing, how.start, pairs))
    p, q, a, b = (_array.cast(xp, member, dtype) for member in members)
    of_cos = _array.summed_to(xp, _line(p, q, a, -b), cos) if wanted[1] else None
    of_sin = _array.summed_to(xp, _line(q, p, a, b), sin) if wanted[2] else None
    return of_x, of_cos, -of_sin if how.inverse and of_sin is not None else of_sin


def _assigned(out: X | None, x: X) -> X:
    """Return x, in `out` if there is one."""
    if out is None:
        return x
    out[...] = x
    return out


def _in_blocks(xp: Any, x: X, cos: Array, sin: Array, how: How, *, out: X | None) -> X:
    """Turn an array whose features are paired in blocks: the blocks are an axis of their own."""
    features, part = 2 * cos.shape[-1], how._replace(start=0, blocks=1)

    def cut(some: Array) -> Array:
        return _array.folded(xp, some, 1, how.blocks, some.shape[-1] // how.blocks)

    def turned(target: Array | None) -> Array:
        return turn(xp, (cut(_turning(x, how, features)),), cut(cos), cut(sin), part, outs=(target,))[0]

    if out is not None and _array.is_fillable(x, cos, sin, out):
        _pass(x, out, how, features)
        turned(cut(_turning(out, how, features)))  # which is a view
        return out
    alone = turned(None)
    result: X = _put_back(xp, x, _array.folded(xp, alone, 2, features), how)
    return _assigned(out, result)


def _put_back(xp: Any, x: Array, turned: Array, how: How) -> Array:
    """Return x with the features that turn replaced."""
    passing = x[..., : how.start], turned, x[..., how.start + turned.shape[-1] :]
    kept = [part for part in passing if part.shape[-1]]
    whole = turned if len(kept) == 1 else _array.concatenated(xp, kept)
    return _array.cast(xp, whole, x.dtype)  # joining forgets a byte order that is not the machine's


def _signed(xp: Any, x: Array, cos: Array, sin: Array, how: How) -> tuple[Array, Array]:
    """Return a table in the dtype that x is turned in, and in the sense of the turn."""
    dtype = how.dtype(xp, x)
    s = _array.cast(xp, sin, dtype)
    return _array.cast(xp, cos, dtype), -s if how.inverse else s


def _line(a: Array, b: Array, c: Array, s: Array) -> Array:
    """Turn members a of pairs whose other members are b."""
    return a * c - b * s


def _line_into(lib: Any, out: Array, ab: tuple[Array, Array], cs: tuple[Array, Array], ac: Array) -> None:
    """Turn likewise, with memory given for all that is made; b is written over."""
    (a, b), (c, s) = ab, cs
    lib.multiply(a, c, out=ac)
    lib.multiply(b, s, out=b)
    lib.subtract(ac, b, out=out)


# --- members by members: what is traced, lazy, or cannot be written ---------------------------------------------------


def _in_parts(xp: Any, x: X, cos: Array, sin: Array, how: How, *, out: X | None) -> X:  # noqa: ARG001  # as `_at_once`
    """Turn an array part by part."""
    turned: X = _parts.map_parts(partial(_part, how=how), x, cos, sin, out=out)
    return turned


def _part(x: Array, cos: Array, sin: Array, *, how: How, out: Array | None = None) -> Array:
    """Turn one part, which is an array of a library of its own."""
    return turn(_array.namespace(x=x), (x,), cos, sin, how, outs=(out,))[0]


def _at_once(xp: Any, x: X, cos: Array, sin: Array, how: How, *, out: X | None) -> X:
    """Turn a whole array at once, and write it to where it shall be."""
    turned: X = _whole(xp, x, cos, sin, how)
    return _assigned(out, turned)


def _whole(xp: Any, x: Array, cos: Array, sin: Array, how: How) -> Array:
    """Turn a whole array at once."""
    pairs = cos.shape[-1]
    c, s = _signed(xp, x, cos, sin, how)
    a, b = (_array.cast(xp, part, c.dtype) for part in split(x, how.pairing, how.start, pairs))
    # a' = a·c − b·s  and  b' = b·c − a·(−s)
    members = _line(a, b, c, s), _line(b, a, c, -s)
    # Each goes back to its dtype before they are joined: compilers write down what is joined.
    first, second = (_array.cast(xp, member, x.dtype) for member in members)
    return _put_back(xp, x, join(xp, first, second, how.pairing), how)


# --- by the library's own compiler ------------------------------------------------------------------------------------


def _fused(xp: Any, x: X, cos: Array, sin: Array, how: How, /, *, out: X | None) -> X:
    """Turn an array by the library's own compiler."""
    if _compilers.compiles_lines(x):
        return _written(xp, x, cos, sin, how, out=out)
    if _array.is_fillable(x, cos, sin, out):
        result: X = _array.empty_like(x) if out is None else out
        _fill(xp, x, cos, sin, how, out=result)
        return result
    whole = _compiled(xp, how, _array.library(x))
    if out is not None and _compilers.writes(x):
        whole(x, cos, sin, out)
        return out
    turned: X = whole(x, cos, sin)
    return _assigned(out, turned)


def _written(xp: Any, x: X, cos: Array, sin: Array, how: How, /, *, out: X | None) -> X:
    """Turn an array by one loop of its compiler: each number is read once and written once."""
    features, dtype = 2 * cos.shape[-1], how.dtype(xp, x)
    result: X = _array.empty_like(x) if out is None else out
    table = (_array.cast(xp, part, dtype) for part in (cos, sin))
    turning = (_turning(part, how, features) for part in (result, x))
    to, source, c, s = _in_memory_order(xp, *turning, *table)
    places = _compilers.Places(*step_and_gap(how.pairing, features // 2), -1 if how.inverse else 1)
    if _compilers.write_line(_line, to, source, (c, s), places):
        _pass(x, result, how, features)
        return result
    return turn(xp, (x,), cos, sin, how._replace(fused=False), outs=(out,))[0]


@cache
def _compiled(xp: Any, how: How, library: str) -> Callable[..., Array]:
    """Return the rotation of a whole array, compiled."""

    def whole(x: Array, cos: Array, sin: Array, out: Array | None = None) -> Array:
        turned = _whole(xp, x, cos, sin, how)
        return _assigned(out, turned)

    return _compilers.compiled(whole, library)


# --- at full width: halves, each feature beside the other of its pair -------------------------------------------------


def _as_wide(xp: Any, c: Array, s: Array) -> tuple[Array, Array]:
    """Return a table for all features of a row."""
    return xp.concat([c, c], axis=-1), xp.concat([s, -s], axis=-1)


def _few(xp: Any, x: X, table: tuple[Array, Array], how: How, out: X | None) -> X:
    """Turn few elements: what counts is the number of operations."""
    c, s = table
    features = c.shape[-1]
    part = _array.cast(xp, _turning(x, how, features), c.dtype)
    turned: X = _line(part, _array.halves_swapped(part), c, s)
    if out is None and features == x.shape[-1]:
        return _array.cast(xp, turned, x.dtype)  # type: ignore[no-any-return]  # of any library
    result: X = _array.empty_like(x) if out is None else out
    _pass(x, result, how, features)
    _turning(result, how, features)[...] = turned
    return result


def _fill_wide(lib: Any, out: Array, x: Array, table: tuple[Array, ...], scratch: tuple[Array, ...]) -> None:
    """Turn a block into memory."""
    own, other = scratch
    if x.dtype != own.dtype:
        own[...] = x
        x = own
    pairs = x.shape[-1] // 2
    for place, member in zip(split(other, "half", 0, pairs), reversed(split(x, "half", 0, pairs)), strict=True):
        place[...] = member
    _line_into(lib, out, (x, other), table, own)


# --- as complex numbers: pairs of neighbours --------------------------------------------------------------------------


def _as_factor(xp: Any, c: Array, s: Array) -> tuple[Array, ...]:
    """Return a table as c + s·i."""
    return (_array.as_complex(join(xp, c, s, "interleaved")),)


def _fill_complex(lib: Any, out: Array, x: Array, table: tuple[Array, ...], scratch: tuple[Array, ...]) -> None:
    """Turn a block into memory, by way of scratch where it has no complex view."""
    (factor,), (own,) = table, scratch
    source, target = (_array.as_complex(part) if part.dtype == own.dtype else None for part in (x, out))
    if source is None:
        own[...] = x
        source = _array.as_complex(own)
    # (a + b·i)·(c + s·i) = (a·c − b·s) + (b·c − a·(−s))·i
    lib.multiply(source, factor, out=_array.as_complex(own) if target is None else target)
    if target is None:
        out[...] = own


# --- in blocks: what is made on the way stays in the cache ------------------------------------------------------------


def _turning(x: X, how: How, features: int) -> X:
    """Return the part of x that turns."""
    turning: X = x if features == x.shape[-1] else x[..., how.start : how.start + features]
    return turning


def _pass(x: Array, out: Array, how: How, features: int) -> None:
    """Write the part that does not turn."""
    if out is not x:
        for passing in (slice(how.start), slice(how.start + features, None)):
            if x[..., passing].shape[-1]:
                out[..., passing] = x[..., passing]


class Kernel(NamedTuple):
    """What turns a block of x into memory."""

    ready: Callable[..., tuple[Array, ...]]
    """``(xp, c, s)``, a part of a table → what `fill` wants of it."""
    fill: Callable[..., None]
    """``(lib, out, x, table, scratch)``, writes into `out`, which may be x."""
    scratch: int
    """How many arrays like a block, of the dtype that x is turned in, it needs besides."""
    share: int
    """How much larger than others its blocks may be."""


_WIDE = Kernel(_as_wide, _fill_wide, scratch=2, share=1)
_COMPLEX = Kernel(_as_factor, _fill_complex, scratch=1, share=4)


def _compiled_kernel(xp: Any, how: How, library: str) -> Kernel:
    turned = _compiled(xp, How(how.pairing, wide=how.wide), library)

    def fill(_: Any, out: Array, x: Array, table: tuple[Array, ...], __: tuple[Array, ...]) -> None:
        out[...] = turned(x, *table)

    return Kernel(lambda _, c, s: (c, s), fill, scratch=0, share=8)


def _fill(xp: Any, x: Array, cos: Array, sin: Array, how: How, /, *, out: Array) -> None:
    """Turn x into memory."""
    features = 2 * cos.shape[-1]
    _pass(x, out, how, features)
    out, x, cos, sin = _in_memory_order(xp, _turning(out, how, features), _turning(x, how, features), cos, sin)
    kernel = _COMPLEX if are_adjacent(how.pairing) else _WIDE
    if how.fused:
        kernel = _compiled_kernel(xp, how, _array.library(x))
    batch, lib, dtype = tuple(x.shape[:-1]), _array.module(x), how.dtype(xp, x)
    few = min(kernel.share * _array.block_size(x), 2**20)
    steps = _steps(batch, max(few // features, 1))
    scratch = tuple(lib.empty((*steps, features), dtype=dtype, device=x.device) for _ in range(kernel.scratch))
    for part, blocks in _blocks(batch, tuple(cos.shape[:-1]), steps):
        table = kernel.ready(xp, *_signed(xp, x, cos[part], sin[part], how))
        for block in blocks:
            source, own = x[block], scratch
            if source.shape != (*steps, features):  # a last block may be smaller
                own = tuple(memory[tuple(slice(n) for n in source.shape)] for memory in scratch)
            kernel.fill(lib, out[block], source, table, own)


def _in_memory_order(xp: Any, out: Array, x: Array, *table: Array) -> tuple[Array, ...]:
    """Return the arrays with as many axes each, the axes of x in the order in which it lies in memory."""
    batch = x.ndim - 1
    steps = _array.strides(x)
    order = sorted(range(batch), key=lambda axis: -abs(steps[axis]))
    tables = (xp.reshape(part, (1,) * (x.ndim - part.ndim) + tuple(part.shape)) for part in table)
    if order == list(range(batch)):
        return out, x, *tables
    return tuple(xp.permute_dims(part, (*order, batch)) for part in (out, x, *tables))


def _steps(shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """Return the shape of a block of about as many rows: 1 along the first axes, all of the last ones."""
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= rows:
        axis -= 1
        inner *= shape[axis]
    return tuple(
        1 if i < axis - 1 else max(rows // inner, 1) if i == axis - 1 else max(n, 1) for i, n in enumerate(shape)
    )


def _blocks(
    shape: tuple[int, ...], table: tuple[int, ...], steps: tuple[int, ...]
) -> Iterator[tuple[tuple[slice, ...], Iterator[tuple[slice, ...]]]]:
    """Cut a shape into blocks: yield each part of the table, and the blocks that turn by it."""
    everything = [slice(None)]  # which takes less time than its own ends
    cuts = [
        everything if 0 < n <= step else [slice(i, min(i + step, n)) for i in range(0, n, step)]
        for n, step in zip(shape, steps, strict=True)
    ]
    for part in product(*(cut if n > 1 else everything for cut, n in zip(cuts, table, strict=True))):
        ours = (cut if n <= 1 else [here] for cut, n, here in zip(cuts, table, part, strict=True))
        yield part, product(*ours)
