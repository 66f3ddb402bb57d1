"""
Positions: tokens, and rules about them -> where they stand.

A rule takes positions and returns positions, an array for `cos_sin` and `Rope`. No rule looks into an array: each runs
under a tracer, and lazily.
"""

from rope_any import _array
from rope_any._array import Array
from rope_any._table import Positions, placed, tokens

__all__ = ["unscaled_first"]


def unscaled_first(positions: Positions, count: int, /, *, like: Array | None = None) -> Array:
    """
    Let the first tokens stand on an axis of their own: the tokens that LongRoPE leaves unscaled.

    Parameters
    ----------
    positions : array, int, range or sequence of numbers
        Where the tokens stand, of any shape. Numbers that are no array need `like`.
    count : int
        The positions below it are those of the first axis, in tokens.
    like : array, optional
        Names the library and the device where `positions` don't; where they do, it must agree with them.

    Returns
    -------
    array
        ``(*positions.shape, 2)``: ``(p, 0)`` for ``p < count``, else ``(0, p)``. Integers are int64, or int32 where the
        library has no float64; real numbers are float64 if they came so, else float32.

    Raises
    ------
    TypeError
        If an argument is of another kind, or the arrays come from several libraries.
    ValueError
        If `count` is negative or beyond 32 bits, a number is not finite, or the devices differ.

    Notes
    -----
    Ding et al., *LongRoPE*, arXiv:2402.13753, which searches for the count (there n̂). With W of two rows, the plain
    and the scaled frequencies, the angle is ``p · f`` for the first tokens and ``p · f'`` for all others. transformers,
    vLLM, SGLang, llama.cpp and mlx-lm scale all tokens alike.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import Rope, frequencies, positions, scaling
    >>> p = positions.unscaled_first(np.arange(6), 4)
    >>> print(p.T)
    [[0 1 2 3 0 0]
     [0 0 0 0 4 5]]
    >>> f = frequencies(64)
    >>> rope = Rope((f, scaling.linear(f, 4.0)), pairing="half")
    >>> k = rope.apply(np.ones((1, 2, 6, 64)), p)
    """
    n, p = tokens("count", count, least=0), placed(positions, like=like)
    xp = _array.namespace(positions=p)
    first, none = p < n, xp.zeros_like(p)
    return xp.stack([xp.where(first, p, none), xp.where(first, none, p)], axis=-1)
