"""Positions that change attention, so that a model reads beyond its trained length."""

from typing import NamedTuple

from rope_any._arrays import Array, is_symbol, library
from rope_any._checks import ArgumentValueError
from rope_any._positions import Positions, as_position_array, int32_or_symbol


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
    c = size - local
    if not is_symbol(c) and c < 1:
        raise ArgumentValueError("local_size", f"be less than `chunk_size`, {size}", local)
    p = _integer_positions(positions, like)
    xp = library(positions=p).xp
    keys, longest = p % c, p * 0 + size
    return DualChunk(keys, keys, xp.minimum(keys + c, longest), xp.minimum(p * 0 + (2 * c - 1), longest))


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


def _integer_positions(positions: Positions, like: Array | None) -> Array:
    """Return positions as an int64 array, or int32 on a device without float64; raise unless they are integers."""
    p = as_position_array(positions, like=like)
    library(positions=p).require_integer("positions", p)
    return p
