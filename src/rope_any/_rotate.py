"""The rotation: one line of mathematics, and the schedules that run it."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

from rope_any._arrays import Array, Library, X, library
from rope_any._arrays._compilers import PairLayout, compiled, warn_fallback, write_pairs
from rope_any._arrays._memory import require_writable
from rope_any._checks import flag, integer
from rope_any._pairing import Pairing, as_pairing, join, split, step_and_gap
from rope_any._table import check_table


class RotationOptions(NamedTuple):
    """Options of a rotation: pairing, first feature, direction, compiler."""

    pairing: Pairing
    start: int = 0
    inverse: bool = False
    fused: bool = False
    blocks: int = 1
    """How many equal parts of the rotary slice are paired each on its own."""
    wide: bool = False
    """Whether float64 is computed in whatever x is, for what is rotated again and again."""


class Rotation(NamedTuple):
    """A rotation of arrays of one library: by which table, and how."""

    lib: Library
    cos: Array
    sin: Array
    options: RotationOptions

    @property
    def pairs(self) -> int:
        """How many pairs are rotated."""
        return self.cos.shape[-1]  # type: ignore[no-any-return]  # of any library

    def dtype(self, x: Array) -> Any:
        """Return the dtype that x is rotated in."""
        return self.lib.xp.float64 if self.options.wide else self.lib.compute_dtype(x)

    def table(self, x: Array) -> tuple[Array, Array]:
        """Return cos and sin in the dtype that x is rotated in; sin negated to rotate backwards."""
        dtype = self.dtype(x)
        s = self.lib.cast(self.sin, dtype)
        return self.lib.cast(self.cos, dtype), -s if self.options.inverse else s

    def rotary_slice(self, x: X) -> X:
        """Return the features of x that are rotated."""
        start, features = self.options.start, 2 * self.pairs
        rotary: X = x if features == x.shape[-1] else x[..., start : start + features]
        return rotary

    def copy_passthrough(self, x: Array, out: Array) -> None:
        """Write the features of x that are not rotated into `out`."""
        if out is not x:
            for passing in (slice(self.options.start), slice(self.options.start + 2 * self.pairs, None)):
                if x[..., passing].shape[-1]:
                    out[..., passing] = x[..., passing]

    def with_passthrough(self, x: X, rotated: Array) -> X:
        """Return x with its rotary slice replaced."""
        start, lib = self.options.start, self.lib
        passing = x[..., :start], rotated, x[..., start + rotated.shape[-1] :]
        kept = [part for part in passing if part.shape[-1]]
        whole = rotated if len(kept) == 1 else lib.concat(kept)
        return lib.cast(whole, x.dtype)  # type: ignore[no-any-return]  # joining forgets the byte order


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
    options = RotationOptions(
        as_pairing(pairing), integer("start", start), flag("inverse", inverse), flag("fused", fused)
    )
    lib = library(x=x, cos=cos, sin=sin, **({} if out is None else {"out": out}))
    check_table(lib, cos, sin)
    rotation = Rotation(lib, cos, sin, options)
    check(rotation, x, out=out)
    batch, table = tuple(x.shape[:-1]), tuple(cos.shape[:-1])
    if not _broadcasts(table, batch):
        msg = f"cos and sin must broadcast to {batch}, the shape of x without its features; got {table}"
        raise ValueError(msg)
    return dispatch(rotation, (x,), (out,))[0]


def check(
    rotation: Rotation, x: Array, /, *, out: Array | None, name: str = "x", apart: dict[str, Array] | None = None
) -> None:
    """
    Raise unless a rotation can be applied to x, called `name`, and written into `out`.

    `out` must not overlap the table, nor the arrays of `apart`.
    """
    lib, cos, sin, options = rotation
    lib.require_floating(name, x)
    if x.ndim == 0:
        msg = f"{name} must have an axis of features; got a 0-d array"
        raise ValueError(msg)
    pairs, features = rotation.pairs, x.shape[-1]
    if pairs == 0 or options.start < 0 or options.start + 2 * pairs > features:
        msg = (
            f"{name} must hold the {2 * pairs} features that {pairs} pairs turn from start={options.start} on; "
            f"got {features} features"
        )
        raise ValueError(msg)
    if not lib.is_sharded(x) and (lib.is_sharded(cos) or lib.is_sharded(sin)):
        msg = f"{name} must be sharded where its positions or its table are; got a plain array (see DTensor.from_local)"
        raise TypeError(msg)
    if out is not None:
        if out.shape != x.shape or out.dtype != x.dtype:
            wanted, got = (f"{tuple(a.shape)} {a.dtype}" for a in (x, out))
            msg = f"out must have the shape and dtype of {name}, {wanted}; got {got}"
            raise ValueError(msg)
        if lib.wants_gradients(x, cos, sin, out):
            msg = "out must be left out while gradients are recorded (an array has requires_grad); use no_grad()"
            raise ValueError(msg)
        require_writable(lib, "out", out, onto=x, onto_name=name, apart={"cos": cos, "sin": sin, **(apart or {})})


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array of `shape` broadcasts to `to`, which does not grow."""
    last = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(n == m or n == 1 for n, m in last)  # noqa: PLR1714  # sizes may be symbols


# --- the formula ------------------------------------------------------------------------------------------------------


def _rotate_component(a: Array, b: Array, c: Array, s: Array) -> Array:
    """Return the rotated component a of each pair (a, b)."""
    return a * c - b * s


def _rotate_component_into(lib: Any, out: Array, ab: tuple[Array, Array], cs: tuple[Array, Array], ac: Array) -> None:
    """Write `_rotate_component` into `out`, with memory given for the product a·c; b is overwritten."""
    (a, b), (c, s) = ab, cs
    lib.multiply(a, c, out=ac)
    lib.multiply(b, s, out=b)
    lib.subtract(ac, b, out=out)


# --- any array: members by members ------------------------------------------------------------------------------------


def _rotate_whole(rotation: Rotation, x: X, out: X | None) -> X:
    """Rotate both members of all pairs at once."""
    lib, options = rotation.lib, rotation.options
    c, s = rotation.table(x)
    a, b = (lib.cast(part, c.dtype) for part in split(x, options.pairing, options.start, rotation.pairs))
    # a' = a·c − b·s  and  b' = b·c − a·(−s)
    members = _rotate_component(a, b, c, s), _rotate_component(b, a, c, -s)
    # Each goes back to its dtype before they are joined: compilers write down what is joined.
    first, second = (lib.cast(member, x.dtype) for member in members)
    return _assigned(out, rotation.with_passthrough(x, join(lib, first, second, options.pairing)))


def _assigned(out: X | None, x: X) -> X:
    """Return x, written into `out` if there is one."""
    if out is None:
        return x
    out[...] = x
    return out


# --- arrays made of parts, features paired in blocks ------------------------------------------------------------------


def _rotate_parts(rotation: Rotation, x: X, out: X | None) -> X:
    """Rotate part by part, each by a schedule of its own library."""
    map_parts: Any = rotation.lib.map_parts
    rotated: X = map_parts(partial(_rotate_part, options=rotation.options), x, rotation.cos, rotation.sin, out=out)
    return rotated


def _rotate_part(x: Array, cos: Array, sin: Array, *, options: RotationOptions, out: Array | None = None) -> Array:
    """Rotate one chunk or one shard, by the record of its own library."""
    return dispatch(Rotation(library(x=x), cos, sin, options), (x,), (out,))[0]


def _rotate_feature_blocks(rotation: Rotation, x: X, out: X | None) -> X:
    """Rotate with the blocks as an axis of their own, by a schedule below."""
    (lib, cos, sin, options), features = rotation, 2 * rotation.pairs

    def cut(some: Array) -> Array:
        return lib.reshape_last_axes(some, 1, options.blocks, some.shape[-1] // options.blocks)

    of_block = Rotation(lib, cut(cos), cut(sin), options._replace(start=0, blocks=1))

    def rotated(target: Array | None) -> Array:
        return dispatch(of_block, (cut(rotation.rotary_slice(x)),), (target,))[0]

    if out is not None and lib.supports_out(x, cos, sin, out):
        rotation.copy_passthrough(x, out)
        rotated(cut(rotation.rotary_slice(out)))  # which is a view
        return out
    return _assigned(out, rotation.with_passthrough(x, lib.reshape_last_axes(rotated(None), 2, features)))


# --- gradients --------------------------------------------------------------------------------------------------------


def _rotate_recorded(rotation: Rotation, x: X, out: X | None) -> X:
    """Rotate by another schedule, so that autograd keeps only the table (x too if the table is learned)."""
    del out  # `check` has refused one
    with_gradient: Any = rotation.lib.with_gradient
    lib, cos, sin, options = rotation
    rotated: X = with_gradient(partial(_forward, lib, options), partial(_vjp, lib, options), x, cos, sin)
    return rotated


def _forward(lib: Library, options: RotationOptions, x: X, cos: Array, sin: Array) -> X:
    """Return x rotated by a table, by the schedule for arrays that are not recorded."""
    return dispatch(Rotation(lib, cos, sin, options), (x,), (None,))[0]


def _vjp(
    lib: Library, options: RotationOptions, g: Array, kept: tuple[Array | None, Array, Array], wanted: tuple[bool, ...]
) -> tuple[Array | None, ...]:
    """Return the gradients of x, cos and sin that are wanted, for the gradient g of the rotated x."""
    x, cos, sin = kept
    # of x: Rᵀ g, the rotation backwards
    of_x = _forward(lib, options._replace(inverse=not options.inverse), g, cos, sin) if wanted[0] else None
    if x is None:
        return of_x, None, None
    # of c + s·i: g·conj(x), each pair (p, q) of g rotated backwards by the pair (a, b) of x
    rotation = Rotation(lib, cos, sin, options)
    dtype = rotation.dtype(x)
    both = (member for part in (g, x) for member in split(part, options.pairing, options.start, rotation.pairs))
    p, q, a, b = (lib.cast(member, dtype) for member in both)
    of_cos = lib.summed_to(_rotate_component(p, q, a, -b), cos) if wanted[1] else None
    of_sin = lib.summed_to(_rotate_component(q, p, a, b), sin) if wanted[2] else None
    return of_x, of_cos, -of_sin if options.inverse and of_sin is not None else of_sin


# --- by the library's own compiler ------------------------------------------------------------------------------------


def _rotate_by_kernel(rotation: Rotation, x: X, out: X | None) -> X:
    """Rotate in one compiled loop, which reads and writes each number once."""
    lib, options = rotation.lib, rotation.options
    result: X = lib.empty_like(x) if out is None else out
    table = (lib.cast(part, rotation.dtype(x)) for part in (rotation.cos, rotation.sin))
    to, source, c, s = _batch_axes_by_stride(lib, *map(rotation.rotary_slice, (result, x)), *table)
    layout = PairLayout(*step_and_gap(options.pairing, rotation.pairs), -1 if options.inverse else 1)
    if write_pairs(lib, _rotate_component, to, source, table=(c, s), layout=layout):
        rotation.copy_passthrough(x, result)
        return result
    eager = rotation._replace(options=options._replace(fused=False))
    return dispatch(eager, (x,), (out,))[0]


def _rotate_compiled(rotation: Rotation, x: X, out: X | None) -> X:
    """Rotate both members of all pairs at once, compiled."""
    (lib, cos, sin, options), compiler = rotation, rotation.lib.compiler
    function = _compiled(lib, options)
    if out is not None and compiler is not None and compiler.takes_out:
        function(x, cos, sin, out)
        return out
    rotated: X = function(x, cos, sin)
    return _assigned(out, rotated)


@cache
def _compiled(lib: Library, options: RotationOptions) -> Callable[..., Array]:
    """Return the rotation of a whole array, compiled."""

    def whole(x: Array, cos: Array, sin: Array, out: Array | None = None) -> Array:
        return _rotate_whole(Rotation(lib, cos, sin, options), x, out)

    return compiled(lib, whole)


# --- few elements: halves at full width, each feature beside the other of its pair ------------------------------------


def _full_width(lib: Library, c: Array, s: Array) -> tuple[Array, Array]:
    """Return a table for all features of a row."""
    return lib.concat([c, c]), lib.concat([s, -s])


def _rotate_full_width(rotation: Rotation, arrays: tuple[X, ...], outs: tuple[X | None, ...]) -> tuple[X, ...]:
    """Rotate full rows: x, and x with its halves swapped."""
    lib = rotation.lib
    swap_halves: Any = lib.host and lib.host.swap_halves
    c, s = _full_width(lib, *rotation.table(arrays[0]))  # once for queries and keys
    features = c.shape[-1]

    def rotate_one(x: X, out: X | None) -> X:
        whole = features == x.shape[-1]
        part = lib.cast(x if whole else rotation.rotary_slice(x), c.dtype)
        rotated: X = _rotate_component(part, swap_halves(part), c, s)
        if out is None and whole:
            return lib.cast(rotated, x.dtype)  # type: ignore[no-any-return]  # of any library
        result: X = lib.empty_like(x) if out is None else out
        rotation.copy_passthrough(x, result)
        rotation.rotary_slice(result)[...] = rotated
        return result

    return tuple([rotate_one(x, out) for x, out in zip(arrays, outs, strict=True)])


# --- many elements: in tiles, so that what is made on the way stays in the cache --------------------------------------


def _write_halves(host: Any, out: Array, x: Array, table: tuple[Array, ...], scratch: tuple[Array, ...]) -> None:
    """Write a rotated tile of halves: swap them into scratch, then three operations in place."""
    own, other = scratch
    if x.dtype != own.dtype:
        own[...] = x
        x = own
    pairs = x.shape[-1] // 2
    for place, member in zip(split(other, "half", 0, pairs), reversed(split(x, "half", 0, pairs)), strict=True):
        place[...] = member
    _rotate_component_into(host.module, out, (x, other), table, own)


def _as_factor(lib: Library, c: Array, s: Array) -> tuple[Array, ...]:
    """Return a table as c + s·i."""
    host: Any = lib.host
    return (host.as_complex(join(lib, c, s, "interleaved")),)


def _write_complex(host: Any, out: Array, x: Array, table: tuple[Array, ...], scratch: tuple[Array, ...]) -> None:
    """Write a rotated tile by a product of complex numbers, through scratch if it has no complex view."""
    (factor,), (own,) = table, scratch
    source, target = (host.as_complex(part) if part.dtype == own.dtype else None for part in (x, out))
    if source is None:
        own[...] = x
        source = host.as_complex(own)
    # (a + b·i)·(c + s·i) = (a·c − b·s) + (b·c − a·(−s))·i
    host.module.multiply(source, factor, out=host.as_complex(own) if target is None else target)
    if target is None:
        out[...] = own


def _rotate_halves(rotation: Rotation, x: X, out: X | None) -> X:
    """Rotate full rows tile by tile, all products in two scratch tiles."""
    return _in_tiles(rotation, x, out, prepare_table=_full_width, write=_write_halves, scratch=2, share=1)


def _rotate_neighbours(rotation: Rotation, x: X, out: X | None) -> X:
    """Rotate tile by tile as complex numbers, through scratch if x has no complex view."""
    return _in_tiles(rotation, x, out, prepare_table=_as_factor, write=_write_complex, scratch=1, share=4)


def _rotate_compiled_tiles(rotation: Rotation, x: X, out: X | None) -> X:
    """Rotate tile by tile, compiled."""
    options = rotation.options
    rotated = _compiled(rotation.lib, RotationOptions(options.pairing, wide=options.wide))

    def write(_: Any, out: Array, x: Array, table: tuple[Array, ...], __: tuple[Array, ...]) -> None:
        out[...] = rotated(x, *table)

    return _in_tiles(rotation, x, out, prepare_table=lambda _, c, s: (c, s), write=write, scratch=0, share=8)


def _in_tiles(
    rotation: Rotation, x: X, out: X | None, /, *, prepare_table: Any, write: Any, scratch: int, share: int
) -> X:
    """
    Rotate x in the memory of a CPU tile by tile, into `out` or a new array.

    ``prepare_table(lib, c, s)`` makes of a part of the table what ``write(host, out, x, table, scratch)`` rotates a
    tile by; `scratch` is how many arrays like a tile that needs, `share` how much larger than others its tiles may be.
    """
    lib, options = rotation.lib, rotation.options
    host: Any = lib.host
    result: X = lib.empty_like(x) if out is None else out
    rotation.copy_passthrough(x, result)
    to, source, cos, sin = _batch_axes_by_stride(
        lib, *map(rotation.rotary_slice, (result, x)), rotation.cos, rotation.sin
    )
    batch, features = tuple(source.shape[:-1]), source.shape[-1]
    most = min(share * host.tile_size(), 2**20)
    steps = _tile_shape(batch, max(most // features, 1))
    place = {"dtype": rotation.dtype(x), "device": source.device}
    memory = tuple(host.module.empty((*steps, features), **place) for _ in range(scratch))
    for part, tiles in _tiles(batch, tuple(cos.shape[:-1]), steps):
        table = prepare_table(lib, *Rotation(lib, cos[part], sin[part], options).table(source))
        for tile in tiles:
            piece, own = source[tile], memory
            if piece.shape != (*steps, features):  # a last tile may be smaller
                own = tuple(part[tuple(slice(n) for n in piece.shape)] for part in memory)
            write(host, to[tile], piece, table, own)
    return result


def _batch_axes_by_stride(lib: Library, out: Array, x: Array, *table: Array) -> tuple[Array, ...]:
    """Return arrays and tables with as many axes each; batch axes in the order of x in memory, largest stride first."""
    batch = x.ndim - 1
    steps = lib.host.strides(x) if lib.host is not None else x.strides
    order = sorted(range(batch), key=lambda axis: -abs(steps[axis]))
    tables = (lib.xp.reshape(part, (1,) * (x.ndim - part.ndim) + tuple(part.shape)) for part in table)
    if order == list(range(batch)):
        return out, x, *tables
    return tuple(lib.xp.permute_dims(part, (*order, batch)) for part in (out, x, *tables))


def _tile_shape(shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """Return the shape of a tile of about as many rows: 1 along the first axes, all of the last ones."""
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= rows:
        axis -= 1
        inner *= shape[axis]
    return tuple(
        1 if i < axis - 1 else max(rows // inner, 1) if i == axis - 1 else max(n, 1) for i, n in enumerate(shape)
    )


def _tiles(
    shape: tuple[int, ...], table: tuple[int, ...], steps: tuple[int, ...]
) -> Iterator[tuple[tuple[slice, ...], Iterator[tuple[slice, ...]]]]:
    """Yield the indices of each part of the table, with those of the tiles of x that it rotates."""
    everything = [slice(None)]  # which takes less time than its own ends
    cuts = [
        everything if 0 < n <= step else [slice(i, min(i + step, n)) for i in range(0, n, step)]
        for n, step in zip(shape, steps, strict=True)
    ]
    for part in product(*(cut if n > 1 else everything for cut, n in zip(cuts, table, strict=True))):
        ours = (cut if n <= 1 else [here] for cut, n, here in zip(cuts, table, part, strict=True))
        yield part, product(*ours)


# --- which schedule runs ----------------------------------------------------------------------------------------------


class Schedule(NamedTuple):
    """A way to run the rotation."""

    arrays: str
    """For the documentation: the arrays that it is for."""
    applies: Callable[..., bool]
    """``(rotation, arrays, outs)`` → whether it can run."""
    run: Callable[[Rotation, Any, Any], Any]
    """``(rotation, x, out)`` → the rotated x; or of all arrays of the call, if `together`. Its docstring says how."""
    together: bool = False


def _fuses(rotation: Rotation, arrays: tuple[Array, ...], outs: tuple[Array | None, ...]) -> bool:
    """Whether ``fused=True`` is asked for and can be had; warn if it cannot."""
    lib, cos, sin, options = rotation
    if not options.fused or lib.is_traced(arrays[0]):
        return False
    reason = f"{lib.name} has no compiler" if lib.compiler is None else lib.compiler.refusal(*arrays, cos, sin, *outs)
    if reason is not None:
        warn_fallback(reason)
    return reason is None


def _in_memory(rotation: Rotation, arrays: tuple[Array, ...], outs: tuple[Array | None, ...]) -> bool:
    """Whether functions with ``out=`` may write: nothing traces, transforms or records arrays in a CPU's memory."""
    return bool(rotation.lib.supports_out(*arrays, rotation.cos, rotation.sin, *outs))


def _is_few_halves(rotation: Rotation, arrays: tuple[Array, ...], outs: tuple[Array | None, ...]) -> bool:
    """Whether arrays of the half pairing are in the memory of a CPU, and none is larger than a tile."""
    if rotation.options.pairing != "half" or not _in_memory(rotation, arrays, outs):
        return False
    host: Any = rotation.lib.host
    return max([prod(x.shape) for x in arrays]) <= host.tile_size()  # type: ignore[no-any-return]  # two integers


_MEMORY = "in CPU memory, with nothing that traces, transforms or records them"
SCHEDULES = (
    Schedule("made of parts: Dask's chunks, torch's shards", lambda r, xs, _: r.lib.is_parted(xs[0]), _rotate_parts),
    Schedule("paired in blocks of features", lambda r, *_: r.options.blocks > 1, _rotate_feature_blocks),
    Schedule("`fused`: NumPy, CuPy", lambda r, *of: _fuses(r, *of) and r.lib.compiler.write_pairs, _rotate_by_kernel),
    Schedule(f"`fused`: torch, {_MEMORY}", lambda *of: _fuses(*of) and _in_memory(*of), _rotate_compiled_tiles),
    Schedule("`fused`: others with a compiler", _fuses, _rotate_compiled),
    Schedule(f'`"half"`, few elements: NumPy and torch, {_MEMORY}', _is_few_halves, _rotate_full_width, together=True),
    Schedule('`"half"`, likewise', lambda r, *of: r.options.pairing == "half" and _in_memory(r, *of), _rotate_halves),
    Schedule('`"interleaved"`, likewise', _in_memory, _rotate_neighbours),
    Schedule("gradients recorded: torch", lambda r, xs, _: r.lib.records_gradients(*xs, *r[1:3]), _rotate_recorded),
    Schedule("all others", lambda *_: True, _rotate_whole),
)
"""The schedules in order: the first that applies runs."""


def dispatch(rotation: Rotation, arrays: tuple[X, ...], outs: tuple[X | None, ...], /) -> tuple[X, ...]:
    """Rotate validated arrays of one dtype by one table, with the first schedule that applies to them."""
    for schedule in SCHEDULES:
        if schedule.applies(rotation, arrays, outs):
            break
    if schedule.together:
        return schedule.run(rotation, arrays, outs)  # type: ignore[no-any-return]  # as many as arrays
    return tuple([schedule.run(rotation, x, out) for x, out in zip(arrays, outs, strict=True)])
