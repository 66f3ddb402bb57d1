"""Positions of tokens."""

import math
from collections.abc import Sequence
from itertools import groupby, pairwise
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

from rope_any._arrays import (
    Array,
    is_array,
    is_symbol,
    known,
    known_difference,
    largest,
    library,
    refuse_foreign,
    require_array,
)
from rope_any._checks import (
    NOTHING,
    ArgumentTypeError,
    ArgumentValueError,
    Text,
    brief,
    choice,
    flag,
    int32,
    positive,
    real,
)
from rope_any._positions import Positions, as_position_array, consecutive, int32_or_symbol, is_number

# --- sequences: packed, padded, with starts, with unrotated tokens ----------------------------------------------------


def packed(
    cumulative_lengths: Array | Sequence[int], length: int | None = None, /, *, like: Array | None = None
) -> Array:
    """
    Return the positions of tokens of packed sequences, counted from 0 in each.

    Parameters
    ----------
    cumulative_lengths : array or sequence of int
        ``(sequences + 1,)``, the ends of the sequences after a 0: ``0, n1, n1 + n2, ...``, as the ``cu_seqlens`` of
        flash-attention. Sequences may be empty.
    length : int, optional
        The total number of tokens, by default the last of the cumulative lengths. An array of them requires it.
    like : array, optional
        As for `from_starts`.

    Returns
    -------
    array of int
        ``(length,)``. Tokens after the last sequence count from 0 too.

    Raises
    ------
    TypeError
        If `length` is required and missing.
    ValueError
        If cumulative lengths that are not an array don't start at 0, decrease, or exceed `length`.

    Examples
    --------
    >>> x = np.ones((1, 8, 9, 64))  # sequences of 3, 2 and 4 tokens
    >>> print(ra.positions.packed([0, 3, 5, 9], like=x))
    [0 1 2 0 1 0 1 2 3]
    """
    starts, n = _sequence_starts("cumulative_lengths", cumulative_lengths, length, like=like)
    return _count_in_sequences(starts, -starts, n)


def ragged(
    indptr: Array | Sequence[int],
    offsets: Array | Sequence[int],
    length: int | None = None,
    /,
    *,
    like: Array | None = None,
) -> Array:
    """
    Return the positions of tokens of packed sequences, counted in each from its own offset, as with a KV cache.

    Parameters
    ----------
    indptr : array or sequence of int
        ``(sequences + 1,)``, the cumulative lengths, as for `packed`; the name is FlashInfer's.
    offsets : array or sequence of int
        ``(sequences,)``, the position of the first token of each sequence.
    length, like : optional
        As for `packed`.

    Returns
    -------
    array of int
        ``(length,)``: ``offsets[b] + i - indptr[b]`` for the token with index i, in sequence b.

    Examples
    --------
    >>> print(ra.positions.ragged(np.array([0, 3, 5]), np.array([100, 7]), 6))
    [100 101 102   7   8   0]
    """
    starts, n = _sequence_starts("indptr", indptr, length, like=like)
    first = _first_positions("offsets", offsets, "indptr", indptr, like=starts)
    xp = library(starts=starts).xp
    return _count_in_sequences(starts, xp.concat([first, 0 * starts[:1]]) - starts, n)


def _first_positions(
    name: str, first: Array | Sequence[int], ends_name: str, ends: Array | Sequence[int], /, *, like: Array
) -> Array:
    """Return the positions `first` as an array, one for each sequence of `like`, the ends; raise if wrong."""
    p, count = _integers(name, first, like=like), like.shape[0] - 1
    if tuple(p.shape) != (count,):
        raise ArgumentValueError(name, f"have shape ({count},), as `{ends_name}` says", tuple(p.shape))
    if not is_array(first) and not is_array(ends):
        last = [start + end - begin - 1 for start, (begin, end) in zip(first, pairwise(ends), strict=True)]
        int32(f"{name} + lengths - 1", max([0, *known(last)]))
    return p


def _sequence_starts(
    name: str, ends: Array | Sequence[int], length: int | None, /, *, like: Array | None
) -> tuple[Array, int]:
    """
    Return the cumulative lengths `ends` as an array ``(sequences + 1,)``, and the number of tokens; raise if wrong.

    The number is `length`, or for None the last of `ends`. The values of an array are not read; it needs `length`.
    """
    starts = _integers(name, ends, like=like, least=0)
    if starts.ndim != 1 or starts.shape[0] == 0:
        raise ArgumentValueError(name, "have shape (sequences + 1,)", tuple(starts.shape))
    if not is_array(ends):
        length = _total(name, list(ends), length)
    elif length is None:
        wanted = f"be given if `{name}` is an array, whose values are not read"
        raise ArgumentTypeError("length", wanted, NOTHING, "it is the number of tokens, such as q.shape[-2]")
    return starts, int32_or_symbol("length", length, least=0)


def _count_in_sequences(starts: Array, offsets: Array, length: int) -> Array:
    """Return i + ``offsets[b]`` for i from 0 to ``length - 1``; b is the last index with ``starts[b] <= i``."""
    lib, i = library(starts=starts), consecutive(0, length, like=starts)
    return i + lib.xp.take(offsets, lib.count_at_or_below(starts, i) - 1)


def _total(name: str, ends: list[int], length: int | None) -> int:
    """Return length, or if None the last of ends; raise if ends, where known, start above 0, fall or exceed it."""
    if ends[0] != 0 or any(end < before for before, end in pairwise(known(ends))):
        hint = "write [0, *ends], or [0, *accumulate(lengths)]" if min(known(ends), default=1) > 0 else ""
        raise ArgumentValueError(name, "start at 0 and not fall", ends, hint)
    if length is None:
        return ends[-1]
    n: int = int32_or_symbol("length", length)
    if _is_less(n, ends[-1]):
        raise ArgumentValueError("length", f"be at least the last of `{name}`, {ends[-1]}", n)
    return n


def _is_less(n: int, m: int) -> bool:
    """Whether n < m is known; False if a tracer does not know it."""
    return (known_difference(n, m) or 0) < 0


def segments(ids: Array, /) -> Array:
    """
    Return the positions of tokens of packed documents, counted from 0 in each, given each token's document number.

    Parameters
    ----------
    ids : array
        ``(..., seq)``, integers of any dtype: the same positive number for neighbouring tokens of one document, 0 or a
        negative number for padding. A number that comes again after another one begins a new document.

    Returns
    -------
    array of int
        Of the shape of `ids`: 0, 1, 2, ... in each document, and 0 for padding.

    Examples
    --------
    >>> print(ra.positions.segments(np.array([1, 1, 1, 2, 2, 2, 2, 0, 0])))
    [0 1 2 0 1 2 3 0 0]
    """
    lib = require_array("ids", ids)
    if ids.ndim == 0:
        raise ArgumentValueError("ids", "have shape (..., seq)", ())
    zeros, length = 0 * _integers("ids", ids, like=None), ids.shape[-1]
    if not length:
        return zeros
    xp, i = lib.xp, lib.broadcast_to_rank(consecutive(0, length, like=ids), ids.ndim)
    # start of a document = the last i at or before this one at which the number changes.
    # Numbers are compared in their own dtype, because a signed one need not hold them
    before = xp.concat([ids[..., :1], ids], axis=-1)[..., :-1]  # torch.export would guard the length of ids[..., :-1]
    start = lib.cumulative_max(xp.where(ids != before, i, zeros))
    in_document = ids != 0 if lib.dtype_name(ids.dtype).startswith("uint") else ids > 0  # torch lacks uint64 > 0
    return xp.where(in_document, i - start, zeros)


def padded(mask: Array, /) -> Array:
    """
    Return the positions of the tokens of each row; padding before, after or between them does not count.

    Parameters
    ----------
    mask : array
        ``(..., seq)``, True (or a nonzero integer) for tokens, False (or 0) for padding.

    Returns
    -------
    array of int
        Of the shape of the mask: 0, 1, 2, ... for the tokens of each row, and 0 for padding.

    Notes
    -----
    Older versions of transformers give padding 1.

    Examples
    --------
    >>> print(ra.positions.padded(np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]])))
    [[0 0 0 1 2]
     [0 1 2 3 0]]
    """
    lib = library(mask=mask)
    if lib.dtype_name(mask.dtype) != "bool":
        if not lib.is_integer(mask):
            got = Text(f"an array of {lib.dtype_name(mask.dtype)}")
            hint = "write mask == 0 if it is added to scores, mask != 0 if it is 1 for tokens"
            raise ArgumentTypeError("mask", "be booleans or integers", got, hint)
        mask = mask != 0
    if mask.ndim == 0:
        raise ArgumentValueError("mask", "have shape (..., seq)", ())
    n = as_position_array(lib.xp.astype(mask, lib.xp.int32), like=None)
    # position = number of tokens before this one
    return n * (lib.cumulative_sum(n) - 1)


def from_starts(starts: Array | Sequence[int], length: int, /, *, like: Array | None = None) -> Array:
    """
    Return the positions of tokens, counted in each row from its own start, as with KV caches of different lengths.

    Parameters
    ----------
    starts : array or sequence of int
        ``(...)``, the position of the first token of each row.
    length : int
        The number of tokens in each row.
    like : array, optional
        Gives the library and the device, if the starts are not an array.

    Returns
    -------
    array of int
        ``(*starts.shape, length)``: start, start + 1, ... in each row.

    Notes
    -----
    If all rows have the same start, give `Rope` that number as the positions.

    Examples
    --------
    >>> print(ra.positions.from_starts(np.array([7, 100]), 3))
    [[  7   8   9]
     [100 101 102]]
    """
    if isinstance(length, tuple | list) and isinstance(starts, int):
        hint = f"the starts come first: from_starts({brief(length)}, {brief(starts)})"
        raise ArgumentTypeError("length", "be an integer", length, hint)
    n, first = int32_or_symbol("length", length, least=0), _integers("starts", starts, like=like)
    if not is_array(starts) and not is_symbol(n):
        int32("starts + length - 1", max([0, *known(starts)]) + max(n - 1, 0))
    lib, i = library(starts=first), consecutive(0, n, like=first)
    return first[..., None] + lib.broadcast_to_rank(i, first.ndim + 1)


def unrotated(
    positions: Positions, /, *, before: int = 0, after: int = 0, axes: int | None = None, like: Array | None = None
) -> Array:
    """
    Add zero positions for tokens that don't rotate: the class and register tokens of a vision transformer.

    Parameters
    ----------
    positions : array, int, range or sequence of numbers
        The positions of the other tokens, ``(..., seq)`` or ``(..., seq, axes)``.
    before, after : int, optional
        The number of unrotated tokens before and after them.
    axes : int, optional
        The number of position axes, if `positions` have a last axis for them, as those of `grid`.
    like : array, optional
        As for `from_starts`.

    Returns
    -------
    array
        ``(..., before + seq + after)``, or with `axes` ``(..., before + seq + after, axes)``.

    Notes
    -----
    Position 0 leaves a token unchanged, except that an attention factor multiplies it.

    Examples
    --------
    >>> p = ra.positions.grid(2, 2, like=np.ones(1))
    >>> print(ra.positions.unrotated(p, before=1, axes=2).T)  # a class token and four patches
    [[0 0 0 1 1]
     [0 0 1 0 1]]
    """
    head, tail = int32_or_symbol("before", before, least=0), int32_or_symbol("after", after, least=0)
    p, width = as_position_array(positions, like=like), () if axes is None else (int32("axes", axes, least=1),)
    shape, seq_axis = tuple(p.shape), -1 - len(width)
    if p.ndim < -seq_axis or shape[len(shape) - len(width) :] != width:
        wanted = "(..., seq)" if axes is None else f"(..., seq, {axes})"
        raise ArgumentValueError("positions", f"have shape {wanted}", shape)
    lib = library(positions=p)

    def zeros(count: int) -> Array:
        """Return zeros as the positions of `count` tokens in each row, on each axis."""
        return lib.xp.zeros((*shape[:seq_axis], count, *width), dtype=p.dtype, **lib.device_kwargs(p))

    return lib.xp.concat([zeros(head), p, zeros(tail)], axis=seq_axis)


def unscaled_first(positions: Positions, count: int, /, *, like: Array | None = None) -> Array:
    """
    Put the first positions on an axis of their own, for frequencies that LongRoPE leaves unscaled there.

    Parameters
    ----------
    positions : array, int, range or sequence of numbers
        The positions of the tokens, of any shape.
    count : int
        Positions below `count` go on the first axis, others on the second.
    like : array, optional
        As for `from_starts`.

    Returns
    -------
    array
        ``(*positions.shape, 2)``: ``(p, 0)`` for ``p < count``, else ``(0, p)``, for a `Rope` with two rows of
        frequencies, the plain and the scaled ones.

    Notes
    -----
    Ding et al., *LongRoPE*, arXiv:2402.13753, where the search finds the count, n̂. transformers, vLLM, SGLang,
    llama.cpp and mlx-lm scale all tokens alike.

    Examples
    --------
    >>> p = ra.positions.unscaled_first(np.arange(6), 4)
    >>> print(p.T)
    [[0 1 2 3 0 0]
     [0 0 0 0 4 5]]
    >>> f = ra.frequencies(64)
    >>> rope = ra.Rope((f, ra.scaling.linear(f, 4.0)), pairing="half")
    """
    n, p = int32_or_symbol("count", count, least=0), as_position_array(positions, like=like)
    xp = library(positions=p).xp
    first, zero_positions = p < n, xp.zeros_like(p)
    return xp.stack([xp.where(first, p, zero_positions), xp.where(first, zero_positions, p)], axis=-1)


# --- grids ------------------------------------------------------------------------------------------------------------


def grid(
    *positions: Positions, order: str = "rows", window: Sequence[int] | None = None, like: Array | None = None
) -> Array:
    """
    Return the positions of the points of a grid: the patches of an image or a video.

    Parameters
    ----------
    *positions : int, range, sequence of numbers or array
        The positions along each axis: rows and columns, or time, rows and columns. An int n is 0, 1, ..., n − 1; an
        array has shape ``(n,)``.
    order : {"rows", "columns"}, optional
        With ``"rows"`` the last axis varies fastest, row after row; with ``"columns"`` the first one does.
    window : sequence of int, optional
        The points of a window along each axis, which must divide the grid. Tokens then come window by window, and
        `order` is that of the windows and of the points in each.
    like : array, optional
        As for `from_starts`.

    Returns
    -------
    array
        ``(tokens, axes)``, for frequencies with a row per axis. If one axis is real, all are.

    Notes
    -----
    Qwen2-VL merges 2 × 2 patches: ``window=(2, 2)``, or ``(1, 2, 2)`` with a time axis.

    Examples
    --------
    >>> x = np.ones((1, 8, 6, 64))
    >>> print(ra.positions.grid(2, 3, like=x).T)  # rows, columns
    [[0 0 0 1 1 1]
     [0 1 2 0 1 2]]
    """
    home = like if like is not None else next(filter(is_array, positions), None)
    for points in positions:
        refuse_foreign("positions", points)
    require_array("like", home)
    lib, axes = library(like=home), [_axis_positions(points, like=home) for points in positions]
    if not axes:
        raise ArgumentValueError("positions", "have at least one axis", Text("none"))
    sizes = _window_shape(window, [axis.shape[0] for axis in axes])
    choice("order", order, ("rows", "columns"), "be 'rows' or 'columns'")
    reals = [axis.dtype for axis in axes if not lib.is_integer(axis)]
    dtype = max(reals, key=lib.dtype_name, default=axes[0].dtype)  # float64 before float32
    axes = [lib.cast(axis, dtype) for axis in axes]
    step = 1 if order == "rows" else -1
    return lib.xp.stack(_grid_coordinates(lib.xp, axes[::step], sizes[::step])[::step], axis=-1)


def _axis_positions(points: Positions, /, *, like: Array) -> Array:
    """Return positions on one axis of a grid as an array ``(n,)``; an int n gives 0 to n − 1; raise for others."""
    if is_number(points) and not isinstance(points, bool):
        points = consecutive(0, int32_or_symbol("positions", points, least=0), like=like)
    axis = as_position_array(points, like=like)
    if axis.ndim != 1:
        got = Text(f"shape {tuple(axis.shape)}")
        raise ArgumentValueError("positions", "have one axis for each axis of the grid", got)
    return axis


def _window_shape(window: Sequence[int] | None, lengths: list[int]) -> list[int]:
    """Return the points of a window along each axis, 1 for None; raise unless they divide the `lengths` of the axes."""
    sizes = [1] * len(lengths) if window is None else _host_integers("window", window, least=1)
    if len(sizes) != len(lengths) or any(n % size for n, size in zip(lengths, sizes, strict=True)):
        raise ArgumentValueError("window", f"divide the lengths of the axes, {lengths}", sizes)
    return sizes


def _grid_coordinates(xp: Any, axes: list[Array], sizes: list[int]) -> list[Array]:
    """Return per axis the coordinates of all points ``(points,)``, by windows of `sizes`, the last axis fastest."""
    # each axis is split in two, (windows, points in one): first the windows of all axes, then the points in them
    shape = (*(axis.shape[0] // size for axis, size in zip(axes, sizes, strict=True)), *sizes)
    own = [tuple(n if i % len(axes) == a else 1 for i, n in enumerate(shape)) for a in range(len(axes))]
    parts = [xp.reshape(axis, only) for axis, only in zip(axes, own, strict=True)]
    return [xp.reshape(xp.broadcast_to(part, shape), (-1,)) for part in parts]


# --- shards of a sequence ---------------------------------------------------------------------------------------------


def shard(
    length: int,
    ranks: int,
    rank: int | Array,
    /,
    *,
    zigzag: bool,
    cumulative_lengths: Array | Sequence[int] | None = None,
    starts: Array | Sequence[int] | None = None,
    restart: bool = True,
    like: Array | None = None,
) -> Array:
    """
    Return the positions of one rank's tokens in context parallelism.

    Parameters
    ----------
    length : int
        The total number of tokens; a multiple of `ranks`, or of ``2 * ranks`` with `zigzag`. One rank takes any.
    ranks : int
        The number of ranks that share the sequence.
    rank : int or array
        The rank, from 0 on, as a number or a 0-d integer array, which may be traced.
    zigzag : bool
        True if a rank has chunks ``rank`` and ``2 · ranks − 1 − rank`` of ``2 · ranks``, which balances the work under
        a causal mask; False if it has chunk ``rank`` of `ranks`. It must match how the data is distributed.
    cumulative_lengths : array or sequence of int, optional
        Those of packed documents, as for `packed`. Each document is divided into chunks by itself, so its length must
        be a multiple of the number of chunks. An array is not read: wrong lengths are not noticed, and the tokens
        after the last document are divided as one more.
    starts : array or sequence of int, optional
        ``(documents,)``, the position of the first token of each document, by default 0.
    restart : bool, optional
        True if positions restart in each document; False for the indices of the rank's tokens in the packed row.
    like : array, optional
        As for `from_starts`.

    Returns
    -------
    array of int
        ``(length / ranks,)``, one document after the other.

    Notes
    -----
    `cumulative_lengths` and `starts` are ``cu_seqlens`` and ``start_positions`` of TransformerEngine's
    ``fused_apply_rotary_pos_emb``, and ``restart=False`` is its ``thd_get_partitioned_indices``. `gather_order` is
    for the way back.

    Examples
    --------
    >>> x = np.ones((1, 8, 4, 64))  # this rank's part
    >>> print(*(ra.positions.shard(12, 3, rank, zigzag=True, like=x) for rank in (0, 1)))
    [ 0  1 10 11] [2 3 8 9]
    >>> print(ra.positions.shard(12, 2, 0, zigzag=True, cumulative_lengths=np.array([0, 8, 12])))
    [0 1 6 7 0 3]
    """
    count, n = _count_chunks(length, ranks, zigzag=zigzag)
    which: Any
    if is_array(rank):
        which = like = _integers("rank", rank, like=like)
        if which.ndim:
            raise ArgumentValueError("rank", "be one number", Text(f"shape {tuple(which.shape)}"))
        which = which[None]  # NumPy makes no scalars of it
    elif not 0 <= (which := int32("rank", rank)) < ranks:
        raise ArgumentValueError("rank", f"be from 0 to {ranks - 1}", which)
    keep_start = not flag("restart", restart)
    if starts is not None and (keep_start or cumulative_lengths is None):
        wanted = "come with `cumulative_lengths`, and not with restart=False"
        raise ArgumentValueError("starts", wanted, NOTHING, "add a start to the positions of one sequence")
    chunks = (which,) if count == ranks else (which, count - 1 - which)
    if cumulative_lengths is None:
        return _in_chunks([n // count * chunk for chunk in chunks], n // count, like=like)
    begins, sizes = _documents(cumulative_lengths, n, count, ranks, like=like)
    first = begins if keep_start else 0 * begins
    if starts is not None:
        given = _first_positions("starts", starts, "cumulative_lengths", cumulative_lengths, like=begins)
        first = library(starts=given).xp.concat([given, first[-1:]])
    return _in_chunks_of(begins // ranks, sizes, [first + sizes * chunk for chunk in chunks], n // ranks)


def gather_order(
    length: int,
    ranks: int,
    /,
    *,
    zigzag: bool,
    cumulative_lengths: Array | Sequence[int] | None = None,
    like: Array | None = None,
) -> Array:
    """
    Return the indices that put the concatenated shards of all ranks back into the order of the tokens.

    Parameters
    ----------
    length, ranks, zigzag, cumulative_lengths : int, int, bool and array or sequence of int
        As for `shard`.
    like : array, optional
        As for `from_starts`.

    Returns
    -------
    array of int
        ``(length,)``, for ``take`` along the axis of the tokens.

    Notes
    -----
    TransformerEngine has ``thd_cp_rank_order_to_sequence_order`` for it.

    Examples
    --------
    >>> x = np.ones((1, 8, 4, 64))
    >>> shards = [ra.positions.shard(12, 3, rank, zigzag=True, like=x) for rank in range(3)]
    >>> print(np.concatenate(shards)[ra.positions.gather_order(12, 3, zigzag=True, like=x)])
    [ 0  1  2  3  4  5  6  7  8  9 10 11]
    """
    count, n = _count_chunks(length, ranks, zigzag=zigzag)
    per_rank = count // ranks
    # places[c] is where chunk c of a sequence lies among the chunks of the concatenated shards
    places = [min(2 * c, 2 * (count - 1 - c) + 1) if per_rank == 2 else c for c in range(count)]
    if cumulative_lengths is None:
        return _in_chunks([n // count * place for place in places], n // count, like=like)
    begins, sizes = _documents(cumulative_lengths, n, count, ranks, like=like)
    # a rank has its chunks of the first document, then those of the second, ...
    firsts = [p // per_rank * (n // ranks) + begins // ranks + p % per_rank * sizes for p in places]
    return _in_chunks_of(begins, sizes, firsts, n)


def _count_chunks(length: int, ranks: int, *, zigzag: bool) -> tuple[int, int]:
    """Return (chunks of a document, length); raise if indivisible. One rank needs no zig-zag."""
    count = int32("ranks", ranks, least=1)
    count *= 2 if flag("zigzag", zigzag) and count > 1 else 1
    n = int32_or_symbol("length", length, least=1)
    if n % count:
        raise ArgumentValueError("length", f"be {_multiple(count, ranks)}", n)
    return count, n


def _multiple(count: int, ranks: int) -> str:
    """Return what the length of a document must be, for errors."""
    return f"a multiple of {count}, the number of chunks for {ranks} ranks"


def _documents(
    cumulative_lengths: Array | Sequence[int], n: int, count: int, ranks: int, *, like: Array | None
) -> tuple[Array, Array]:
    """
    Return (first token, tokens per chunk) of each document, with the tokens from the last end to `n` as one more.

    Raises for host lengths that are indivisible by `count` or end elsewhere; the values of an array are not read.
    """
    name = "cumulative_lengths"
    ends, _ = _sequence_starts(name, cumulative_lengths, n, like=like)
    if not is_array(cumulative_lengths):
        if known_difference(n, cumulative_lengths[-1]) not in (0, None):
            raise ArgumentValueError(name, f"end at `length`, {n}", cumulative_lengths[-1])
        for document, (begin, end) in enumerate(pairwise(cumulative_lengths)):
            if (end - begin) % count:
                got = Text(f"{end - begin} tokens in document {document}")
                raise ArgumentValueError(name, f"give each document {_multiple(count, ranks)}", got, "pad the document")
    return ends, (library(ends=ends).xp.concat([ends[1:], 0 * ends[:1] + n]) - ends) // count


def _in_chunks(firsts: list[Any], size: int, *, like: Array | None) -> Array:
    """Return positions ``(tokens,)`` of chunks of `size` tokens, given the first position of each."""
    first = library(first=firsts[0]).xp.concat(firsts) if is_array(firsts[0]) else firsts
    tokens = from_starts(first, size, like=like)
    return library(tokens=tokens).xp.reshape(tokens, (-1,))


def _in_chunks_of(begins: Array, sizes: Array, firsts: list[Array], length: int) -> Array:
    """Return the same for documents from `begins` on, of ``len(firsts)`` chunks of `sizes` tokens each."""
    xp = library(begins=begins).xp
    bounds = xp.reshape(xp.stack([begins + j * sizes for j in range(len(firsts))], axis=-1), (-1,))
    return _count_in_sequences(bounds, xp.reshape(xp.stack(firsts, axis=-1), (-1,)) - bounds, length)


# --- streams of text, images and videos -------------------------------------------------------------------------------

Spans: TypeAlias = Sequence[int | Sequence[int | Sequence[float]]]
"""Numbers of text tokens; or the frames, rows and columns of an image or a video, and any tokens of its audio."""


_Axis: TypeAlias = int | Sequence[float]
"""The coordinates of a span on one axis; a count n stands for 0, 1, ..., n - 1."""


def mrope(
    spans: Spans, /, *, like: Array, start: int = 0, time_advances: bool = True, diagonal: float = 0, chunk: float = 0
) -> Array:
    """
    Return M-RoPE positions, in time, height and width, of a stream of text, images, videos and their audio.

    Parameters
    ----------
    spans : sequence of int or (frames, rows, columns) or (frames, rows, columns, audio)
        The spans in the order of the stream: a number of text or audio tokens, or the sizes of an image (one frame) or
        a video in tokens after merging, perhaps with the number of its audio tokens. Coordinates, from 0 on, can stand
        for each size.
    like : array
        Gives the library and the device.
    start : int, optional
        The position of the first token.
    time_advances : bool, optional
        Whether what follows a video begins after its last time, row and column, as in vLLM and transformers up to 5.2,
        or after its last row and column only, as in later versions.
    diagonal : float, optional
        If not 0, the layout of VideoRoPE, with this distance δ from frame to frame. What follows an image or a video
        then begins after its last time, whatever its rows and columns.
    chunk : float, optional
        The length, in positions, of the chunks of a video with audio, in which frames come before audio: 50 in
        Qwen2.5-Omni. If 0, tokens are in the order of time, as in Qwen3-Omni.

    Returns
    -------
    array
        ``(tokens, 3)``: time, height and width of each token; real with `diagonal` or if a coordinate is a float.

    Raises
    ------
    ValueError
        If there is no span, or an image has no token or not three or four axes.

    Notes
    -----
    Wang et al., *Qwen2-VL*, arXiv:2409.12191, section 2.1. Text has the same position on all axes. The tokens of a
    video are at ``first + (time, row, column)``, columns fastest, where ``first`` is one more than the largest position
    before.

    - In TMRoPE (Xu et al., *Qwen2.5-Omni*, arXiv:2503.20215) audio token i of a video is at ``first + i``. The two
      tokens before such a video, and the two after it, are text; in Qwen2.5-Omni they share a position, ``([0, 0], 1,
      1)``.
    - In VideoRoPE (Wei et al., arXiv:2502.05173) time is ``t = first + δ · frame``, and height ``t + row - (rows - 1)
      // 2``, width likewise, with δ = 2. `rope_any.axes.assigned` has its axes.

    The page *RoPE for images and video* has the spans of other models.

    Examples
    --------
    >>> p = ra.positions.mrope([2, (1, 2, 3), 2], like=np.empty(0))  # text, an image, text
    >>> print(p.T)
    [[0 1 2 2 2 2 2 2 5 6]
     [0 1 2 2 2 3 3 3 5 6]
     [0 1 2 3 4 2 3 4 5 6]]
    >>> print(ra.positions.mrope([1, ([0, 3], 1, 1, 5), 1], like=np.empty(0))[:, 0])  # with audio
    [0 1 1 2 3 4 4 5 6]
    """
    require_array("like", like)
    lib = library(like=like)
    placed, end = _place_spans(spans, start=start, time_advances=time_advances, diagonal=diagonal, chunk=chunk)
    dtype = as_position_array([0.0 if isinstance(end, float) else 0], like=like).dtype
    parts = []
    for axes in placed:
        own = (lib.cast(_coordinate_array(*axis, like=like), dtype) for axis in axes)
        columns = lib.xp.meshgrid(*own, indexing="ij")
        if diagonal:
            columns = [columns[0], *(columns[0] + column for column in columns[1:])]
        parts.append(lib.xp.reshape(lib.xp.stack([*columns] * (3 // len(columns)), axis=-1), (-1, 3)))
    return lib.xp.concat(parts, axis=0)


def mrope_end(
    spans: Spans, /, *, start: int = 0, time_advances: bool = True, diagonal: float = 0, chunk: float = 0
) -> float:
    """
    Return the position of the first token generated after a stream, one more than its largest position.

    Parameters
    ----------
    spans : sequence of spans
        As for `mrope`.
    start, time_advances, diagonal, chunk : optional
        As for `mrope`. With `diagonal`, only time counts.

    Returns
    -------
    int or float
        The position on all three axes: a float if `mrope` returns floats. As positions, a `Rope` takes such a number
        only in an array.

    Notes
    -----
    ``rope_deltas`` of transformers are this number minus the number of tokens.

    Examples
    --------
    >>> ra.positions.mrope_end([2, (1, 2, 3), 2])
    7
    """
    return _place_spans(spans, start=start, time_advances=time_advances, diagonal=diagonal, chunk=chunk)[1]


def _place_spans(
    spans: Spans, /, *, start: int, time_advances: bool, diagonal: float, chunk: float
) -> tuple[list[list[tuple[float, _Axis]]], float]:
    """
    Return (origin, coordinates) by axis of each run of `_runs`, and the end: one more than the largest coordinate.

    The runs of a span have one origin: `start`, or one more than the largest coordinate in the last run of the span
    before; unless `time_advances`, times don't count there. With `diagonal`, only times count, for the end too, and
    rows and columns are offsets from the time. Times and the end are floats if a coordinate is, or with `diagonal`.
    """
    if not isinstance(spans, tuple | list):
        hint = "config.read(model).positions(token_ids=ids, grids=grids, like=q) reads the ids of the tokens"
        raise ArgumentTypeError("spans", "be a sequence of text lengths and of (frames, rows, columns)", spans, hint)
    if not spans:
        raise ArgumentValueError("spans", "have at least one", Text("none"))
    step, width = (real(name, n) and positive(name, n) for name, n in (("diagonal", diagonal), ("chunk", chunk)))
    counted = slice(None) if flag("time_advances", time_advances) else slice(-2, None)
    whole = [_span_axes(f"spans[{i}]", span) for i, span in enumerate(spans)]
    is_real = step or any(isinstance(axis[0], float) for axes in whole for axis in axes if isinstance(axis, list))
    first = end = float(int32("start", start)) if is_real else int32_or_symbol("start", start)
    placed = []
    for axes in whole:
        for run in _runs(axes, step, width):
            placed.append((first, run))
            end = largest(end, first + _span_length(run[:1] if step else run))
        first += _span_length(run[:1] if step else run[counted])
    if not is_symbol(end):
        int32("the end of spans", math.ceil(end))
    # rows and columns of VideoRoPE are added to the time
    return [[(0 if step and i else at, axis) for i, axis in enumerate(run)] for at, run in placed], end


def _runs(axes: Sequence[_Axis], step: float, chunk: float) -> list[Sequence[_Axis]]:
    """
    Return a span's coordinates by axis in runs: one, or for video with audio runs of frames and of audio.

    A `step` other than 0 multiplies the times of an image or video and centres its rows and columns on 0. In each
    `chunk` of time frames come before audio; if it is 0, tokens are in the order of time.
    """
    if len(axes) == 1 or (len(axes) == 3 and not step):
        return [axes]
    points = [*map(_points, axes)]
    if step:  # VideoRoPE: rows and columns are counted from their middle
        sides = [[c - int(max(side)) // 2 for c in side] for side in points[1:3]]
        points = [[step * time for time in points[0]], *sides, *points[3:]]
    if len(points) < 4:
        return [points]
    times, rows, columns, audio = points  # in the order of time; in each chunk frames come before audio
    tokens = sorted((t // chunk if chunk else t, kind, t) for kind, axis in enumerate((times, audio)) for t in axis)
    runs = [(kind, [t for *_, t in run]) for kind, run in groupby(tokens, key=lambda token: token[1])]
    return [(run,) if is_audio else (run, rows, columns) for is_audio, run in runs]


def _coordinate_array(first: float, axis: _Axis, /, *, like: Array) -> Array:
    """Return an array of coordinates with `first` added; of a count n, those from 0 to n - 1."""
    if not isinstance(first, float) and not isinstance(axis, Sequence):
        return consecutive(first, axis, like=like)
    return as_position_array([first + point for point in _points(axis)], like=like)


def _points(axis: _Axis) -> Sequence[float]:
    """Return the coordinates of an axis: of a count n, those from 0 to n - 1."""
    return axis if isinstance(axis, Sequence) else range(axis)


def _span_length(axes: Sequence[_Axis]) -> float:
    """Return one more than the largest coordinate on any axis; of a count n that is n."""
    return largest(*(1 + max(axis) if isinstance(axis, Sequence) else axis for axis in axes))  # type: ignore[no-any-return]


def _span_axes(name: str, span: int | Sequence[int | Sequence[float]]) -> Sequence[_Axis]:
    """Return coordinates by axis: one for text (a count), else frames, rows, columns[, audio]; raise for others."""
    if is_number(span):
        return (int32_or_symbol(name, span, least=0),)
    wanted = "be a number of text tokens or (frames, rows, columns)"
    if not isinstance(span, tuple | list):
        raise ArgumentTypeError(name, wanted, span)
    if len(span) not in (3, 4):
        raise ArgumentValueError(name, wanted, span)
    names = ("frames", "rows", "columns", "audio")
    return tuple(_coordinates(f"{axis} of {name}", points) for axis, points in zip(names, span, strict=False))


def _coordinates(name: str, axis: int | Sequence[float]) -> _Axis:
    """Return a count as it is, coordinates as a list, all floats if one is; raise unless from 0 to < 2³¹."""
    if not isinstance(axis, range | tuple | list):
        return int32_or_symbol(name, axis, least=1)  # type: ignore[no-any-return]  # a symbol counts as an int
    if not axis:
        raise ArgumentValueError(name, "have at least one coordinate", Text("none"))
    points = [int32(name, point, least=0) if isinstance(point, Integral) else real(name, point) for point in axis]
    if bad := [point for point in points if not 0 <= point < 2**31]:
        raise ArgumentValueError(name, "be from 0 to 2147483647", bad[0])
    return [*map(float, points)] if any(isinstance(point, float) for point in points) else points


# --- maps that change attention itself --------------------------------------------------------------------------------


class Far(NamedTuple):
    """Positions for the scores of a query and a distant key; each array has the shape of the given positions."""

    queries: Array
    """The positions of queries."""
    keys: Array
    """The positions of keys."""


class DualChunk(NamedTuple):
    """Positions of keys, and of queries by the chunk of the key; each array has the shape of the given positions."""

    keys: Array
    """The positions of keys."""
    intra: Array
    """The positions of queries for keys in the same chunk."""
    successive: Array
    """The positions of queries for keys in the previous chunk."""
    inter: Array
    """The positions of queries for keys in all earlier chunks."""


def self_extend(positions: Positions, /, *, group: int, window: int, like: Array | None = None) -> Far:
    """
    Return the positions of Self-Extend for distant queries and keys: groups of tokens have one position.

    Parameters
    ----------
    positions : array or sequence of int
        The positions of the tokens, of any shape. Without an array they are at most 2⁵³, or 2³¹ − 1 without float64.
    group : int
        The number of consecutive tokens with one position, G.
    window : int
        The distance in tokens, W, from which on a pair of query and key is far. With 0 all pairs are.
    like : array, optional
        As for `from_starts`.

    Returns
    -------
    Far
        Queries at ``p // G + W - W // G``, keys at ``p // G``.

    Notes
    -----
    Jin et al., *Self-Extend*, arXiv:2401.01325. A far pair of distance d gets distance ``d // G + W - W // G``, or one
    more if a group ends in between.

    Examples
    --------
    >>> far = ra.positions.self_extend(np.arange(8), group=2, window=4)
    >>> print(far.queries, far.keys)
    [2 2 3 3 4 4 5 5] [0 0 1 1 2 2 3 3]
    """
    g, w = int32_or_symbol("group", group, least=1), int32_or_symbol("window", window, least=0)
    grouped = _integer_positions(positions, like) // g
    # far m, n meet at m//G − n//G + W − W//G
    return Far(grouped + (w - w // g), grouped)


def rerope(positions: Positions, /, *, window: int, like: Array | None = None) -> Far:
    """
    Return the positions of ReRoPE for distant queries and keys: all of them are at one distance.

    Parameters
    ----------
    positions : array or sequence of int
        As for `self_extend`.
    window : int
        The distance in tokens, w, from which on a pair of query and key is far.
    like : array, optional
        As for `from_starts`.

    Returns
    -------
    Far
        All queries at w, all keys at 0.

    Notes
    -----
    Su, *ReRoPE*, kexue.fm/archives/9708. The author's code also multiplies the query at p by ``max(1, ln(p + 1) /
    ln(trained_length))``, which is not a rotation.

    Examples
    --------
    >>> far = ra.positions.rerope(np.arange(4), window=2)
    >>> print(far.queries, far.keys)
    [2 2 2 2] [0 0 0 0]
    """
    w, p = int32_or_symbol("window", window, least=0), _integer_positions(positions, like)
    zero_positions = p * 0
    return Far(zero_positions + w, zero_positions)


def leaky_rerope(positions: Positions, /, *, window: int, factor: int, like: Array | None = None) -> Far:
    """
    Return the positions of leaky ReRoPE for distant queries and keys: the distance beyond a window is divided.

    Parameters
    ----------
    positions, window : positions and int
        As for `rerope`; the window is w.
    factor : int
        The number of tokens beyond the window that count as one, k.
    like : array, optional
        As for `from_starts`.

    Returns
    -------
    Far
        Queries at ``p + w · (k - 1)``, keys at ``p``, in units of 1 / k of a position: rotate both with frequencies
        divided by k (`rope_any.scaling.linear`).

    Notes
    -----
    Su, kexue.fm/archives/9708. A far pair of distance d gets distance ``w + (d - w) / k``; in units of 1 / k that is an
    integer, which must fit the integers of the library.

    Examples
    --------
    >>> far = ra.positions.leaky_rerope(np.arange(4), window=2, factor=8)
    >>> print(far.queries, far.keys)
    [14 15 16 17] [0 1 2 3]
    """
    w, k = int32_or_symbol("window", window, least=0), int32_or_symbol("factor", factor, least=1)
    # (m + w·(k − 1) − n) / k = w + (m − n − w) / k
    offset = int32_or_symbol("window * (factor - 1)", w * (k - 1))
    p = _integer_positions(positions, like)
    return Far(p + offset, p)


def dual_chunk(positions: Positions, /, *, chunk_size: int, local_size: int, like: Array | None = None) -> DualChunk:
    """
    Return the positions of Dual Chunk Attention, counted from the beginning of each chunk.

    Parameters
    ----------
    positions : array or sequence of int
        As for `self_extend`.
    chunk_size : int
        The largest distance in a score, in tokens, at most the trained length.
    local_size : int
        How much shorter than `chunk_size` a chunk is: chunks have ``c = chunk_size - local_size`` tokens, at least one.
    like : array, optional
        As for `from_starts`.

    Returns
    -------
    DualChunk
        Keys at ``p mod c``. Queries at ``p mod c`` for keys in the same chunk, at ``min(p mod c + c, chunk_size)`` for
        keys in the previous one, and at ``min(2c - 1, chunk_size)`` for keys in earlier ones.

    Notes
    -----
    An et al., *Training-Free Long-Context Scaling of Large Language Models*, arXiv:2402.17463, as in the authors' code
    (ChunkLlama) and in vLLM. For the figures of the paper give ``chunk_size = window - 1`` and ``local_size = window -
    1 - c``.

    Examples
    --------
    >>> at = ra.positions.dual_chunk(np.arange(8), chunk_size=5, local_size=2)  # chunks of 3
    >>> print(at.keys, at.intra)
    [0 1 2 0 1 2 0 1] [0 1 2 0 1 2 0 1]
    >>> print(at.successive, at.inter)
    [3 4 5 3 4 5 3 4] [5 5 5 5 5 5 5 5]
    """
    size, local = int32_or_symbol("chunk_size", chunk_size, least=1), int32_or_symbol("local_size", local_size, least=0)
    if _is_less(size, local + 1):
        raise ArgumentValueError("local_size", f"be less than `chunk_size`, {size}", local)
    c = size - local
    p = _integer_positions(positions, like)
    xp = library(positions=p).xp
    keys, longest = p % c, p * 0 + size
    return DualChunk(keys, keys, xp.minimum(keys + c, longest), xp.minimum(p * 0 + (2 * c - 1), longest))


# --- checks -----------------------------------------------------------------------------------------------------------


def _integer_positions(positions: Positions, like: Array | None) -> Array:
    """Return positions as an int64 array, or int32 on a device without float64; raise unless they are integers."""
    p = as_position_array(positions, like=like)
    library(positions=p).require_integer("positions", p)
    return p


def _integers(name: str, values: Any, /, *, like: Array | None, least: int = 1 - 2**31) -> Array:
    """Return integers as int64 (int32 without float64); raise for other types, or a sequence's number below `least`."""
    if is_array(values):
        require_array(name, values).require_integer(name, values)
        return as_position_array(values, like=like, name=name)
    numbers = _host_integers(name, values, least=least)
    require_array("like", like)
    return as_position_array(numbers, like=like)


def _host_integers(name: str, values: Any, /, *, least: int) -> list[int]:
    """Return a sequence (no array) as a list of ints; raise unless all are integers from `least` to 2³¹ − 1."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        refuse_foreign(name, values)
        hint = f"write [{brief(values)}]" if isinstance(values, int) and not isinstance(values, bool) else ""
        hint = f"write {name}.tolist()" if is_array(values) else hint
        raise ArgumentTypeError(name, "be a sequence of integers", values, hint)
    check = int32 if len(known(values)) == len(values) else int32_or_symbol
    return [check(name, value, least=least) for value in values]
