"""Positions in sequences: packed, padded, and with a start for each row."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rope_any._arrays import Array, is_array, is_symbol, known, known_difference, library, require_array
from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, Text, brief, int32
from rope_any._positions import as_position_array, consecutive, host_integers, int32_or_symbol


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
    n, first = int32_or_symbol("length", length, least=0), integers("starts", starts, like=like)
    if not is_array(starts) and not is_symbol(n):
        int32("starts + length - 1", max([0, *known(starts)]) + max(n - 1, 0))
    lib, i = library(starts=first), consecutive(0, n, like=first)
    return first[..., None] + lib.broadcast_to_rank(i, first.ndim + 1)


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
    starts, n = sequence_starts("cumulative_lengths", cumulative_lengths, length, like=like)
    return count_in_sequences(starts, 0 * starts, n)


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
    starts, n = sequence_starts("indptr", indptr, length, like=like)
    return count_in_sequences(starts, first_positions("offsets", offsets, "indptr", indptr, like=starts), n)


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
    zeros, length = 0 * integers("ids", ids, like=None), ids.shape[-1]
    if not length:  # the standard leaves slices beyond the end undefined
        return zeros
    xp, i = lib.xp, lib.broadcast_to_rank(consecutive(0, length, like=ids), ids.ndim)
    # start of a document = the last i at or before this one at which the number changes.
    # Numbers are compared in their own dtype, because a signed one need not hold them
    before = xp.concat([ids[..., :1], ids], axis=-1)[..., :-1]  # torch.export would guard the length of ids[..., :-1]
    start = lib.cumulative_max(xp.where(ids != before, i, zeros))
    in_document = ids != 0 if lib.dtype_name(ids.dtype).startswith("uint") else ids > 0  # torch lacks uint64 > 0
    return xp.where(in_document, i - start, zeros)


def sequence_starts(
    name: str, ends: Array | Sequence[int], length: int | None, /, *, like: Array | None
) -> tuple[Array, int]:
    """
    Return the cumulative lengths `ends` as an array ``(sequences + 1,)``, and the number of tokens; raise if wrong.

    The number is `length`, or for None the last of `ends`. The values of an array are not read; it needs `length`.
    """
    starts = integers(name, ends, like=like, least=0)
    if starts.ndim != 1 or starts.shape[0] == 0:
        raise ArgumentValueError(name, "have shape (sequences + 1,)", tuple(starts.shape))
    if not is_array(ends):
        return starts, _total(name, list(ends), length)
    if length is None:
        wanted = f"be given if `{name}` is an array, whose values are not read"
        raise ArgumentTypeError("length", wanted, NOTHING, "it is the number of tokens, such as q.shape[-2]")
    return starts, int32_or_symbol("length", length, least=0)


def _total(name: str, ends: list[int], length: int | None) -> int:
    """Return length, or if None the last of ends; raise if ends, where known, start above 0, fall or exceed it."""
    if ends[0] != 0 or any(end < before for before, end in pairwise(known(ends))):
        hint = "write [0, *ends], or [0, *accumulate(lengths)]" if min(known(ends), default=1) > 0 else ""
        raise ArgumentValueError(name, "start at 0 and not fall", ends, hint)
    n: int = int32_or_symbol("length", ends[-1] if length is None else length)
    if (known_difference(n, ends[-1]) or 0) < 0:
        raise ArgumentValueError("length", f"be at least the last of `{name}`, {ends[-1]}", n)
    return n


def first_positions(
    name: str, first: Array | Sequence[int], ends_name: str, ends: Array | Sequence[int], /, *, like: Array
) -> Array:
    """
    Return the positions `first` of the first tokens of sequences as an array, with a 0 for the tokens after the last.

    Raises unless there is one for each sequence between `ends`, of which `like` is the array.
    """
    p, count = integers(name, first, like=like), like.shape[0] - 1
    if tuple(p.shape) != (count,):
        raise ArgumentValueError(name, f"have shape ({count},), as `{ends_name}` says", tuple(p.shape))
    if not is_array(first) and not is_array(ends):
        last = [start + end - begin - 1 for start, (begin, end) in zip(first, pairwise(ends), strict=True)]
        int32(f"{name} + lengths - 1", max([0, *known(last)]))
    return library(like=like).xp.concat([p, 0 * like[:1]])


def count_in_sequences(starts: Array, firsts: Array, length: int) -> Array:
    """Return ``firsts[b] + i - starts[b]`` for each i below `length`; b is the last index with ``starts[b] <= i``."""
    lib, i = library(starts=starts), consecutive(0, length, like=starts)
    return i + lib.xp.take(firsts - starts, lib.count_at_or_below(starts, i) - 1)


def integers(name: str, values: Any, /, *, like: Array | None, least: int = 1 - 2**31) -> Array:
    """Return integers as int64 (int32 without float64); raise for other types, or a sequence's number below `least`."""
    if is_array(values):
        require_array(name, values).require_integer(name, values)
        return as_position_array(values, like=like, name=name)
    numbers = host_integers(name, values, least=least)
    require_array("like", like)
    return as_position_array(numbers, like=like)
