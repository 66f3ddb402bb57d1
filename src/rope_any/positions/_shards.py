"""Positions of one rank's tokens in context parallelism, and the way back to the order of the tokens."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rope_any._arrays import Array, is_array, known_difference, library
from rope_any._checks import NOTHING, ArgumentValueError, Text, flag, int32, integer_between
from rope_any._positions import int32_or_symbol
from rope_any.positions._sequences import count_in_sequences, first_positions, from_starts, integers, sequence_starts


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
    if is_array(rank):
        which = like = integers("rank", rank, like=like)
        if which.ndim:
            raise ArgumentValueError("rank", "be one number", Text(f"shape {tuple(which.shape)}"))
        which = which[None]  # NumPy makes no scalars of it
    else:
        which = integer_between("rank", rank, 0, ranks - 1)
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
        first = first_positions("starts", starts, "cumulative_lengths", cumulative_lengths, like=begins)
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
    ends, _ = sequence_starts(name, cumulative_lengths, n, like=like)
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
    return count_in_sequences(bounds, xp.reshape(xp.stack(firsts, axis=-1), (-1,)), length)
