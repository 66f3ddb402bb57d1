"""
Positions: tokens, and rules about them -> where they stand.

A rule takes positions and returns positions, an array for `cos_sin` and `Rope`. No rule looks into an array: each runs
under a tracer, and lazily. `centred`, `scaled`, `normalised` and `frames` return numbers on the host, for `grid`.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from rope_any import _array
from rope_any._array import Array
from rope_any._frequencies import flag, positive, shown
from rope_any._table import Positions, consecutive, placed, tokens

__all__ = [
    "centred",
    "frames",
    "from_starts",
    "gathered",
    "grid",
    "normalised",
    "packed",
    "padded",
    "scaled",
    "shard",
    "unrotated",
    "unscaled_first",
]


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


def packed(
    cumulative_lengths: Array | Sequence[int], length: int | None = None, /, *, like: Array | None = None
) -> Array:
    """
    Start anew at 0 in each of the sequences that are packed into one.

    Parameters
    ----------
    cumulative_lengths : array or sequence of int
        ``(sequences + 1,)``, where each sequence ends and the next one begins: ``0, n1, n1 + n2, ...``, as the
        ``cu_seqlens`` of flash-attention. Sequences may be empty. Numbers that are no array need `like`; those of an
        array are not looked at.
    length : int, optional
        Tokens in all. Without it, the last of the cumulative lengths, which must then not be those of an array.
    like : array, optional
        Names the library and the device where `cumulative_lengths` don't; where they do, it must agree with them.

    Returns
    -------
    array
        ``(length,)``, int64, or int32 where the library has no float64. Tokens behind the last sequence are counted
        from 0 likewise.

    Raises
    ------
    TypeError
        If an argument is of another kind, `length` is missing, or the arrays come from several libraries.
    ValueError
        If `cumulative_lengths` have another shape, don't start at 0, fall, or exceed `length`; if a number is negative
        or beyond 32 bits, or the devices differ.

    Notes
    -----
    As the ``position_ids`` of ``DataCollatorWithFlattening`` in transformers.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import positions
    >>> x = np.ones((1, 8, 9, 64))  # sequences of 3, 2 and 4 tokens
    >>> print(positions.packed([0, 3, 5, 9], like=x))
    [0 1 2 0 1 0 1 2 3]
    """
    starts = _integers("cumulative_lengths", cumulative_lengths, like=like, least=0)
    if starts.ndim != 1 or starts.shape[0] == 0:
        msg = f"cumulative_lengths must have shape (sequences + 1,); got {tuple(starts.shape)}"
        raise ValueError(msg)
    if not _array.is_array(cumulative_lengths):
        length = _total(cumulative_lengths, length)
    elif length is None:
        msg = "length must be given where cumulative_lengths are an array, which is not looked into"
        raise TypeError(msg)
    xp, i = _array.namespace(starts=starts), consecutive(0, tokens("length", length, least=0), like=starts)
    # position = i − the start of its sequence, the last one at or below i
    return i - xp.take(starts, _array.count_at_or_below(xp, starts, i) - 1)


def _total(cumulative_lengths: Sequence[int], length: int | None) -> int:
    """Return how many tokens there are, or say what is wrong with their cumulative lengths."""
    ends = list(cumulative_lengths)
    if ends[0] != 0 or ends != sorted(ends):
        msg = f"cumulative_lengths must start at 0 and not fall; got {shown(ends)}"
        raise ValueError(msg)
    if length is None:
        return ends[-1]
    if tokens("length", length) < ends[-1]:
        msg = f"length must be at least the last of cumulative_lengths, {ends[-1]}; got {length}"
        raise ValueError(msg)
    return length


def padded(mask: Array, /) -> Array:
    """
    Count the tokens alone, and not the padding before, behind or between them.

    Parameters
    ----------
    mask : array
        ``(..., seq)``, True for tokens and False for padding; of integers, all but 0 are tokens.

    Returns
    -------
    array
        Of the shape of the mask: 0, 1, 2, ... for the tokens of each row, and 0 for padding. int64, or int32 where
        the library has no float64.

    Raises
    ------
    TypeError
        If `mask` is no array of booleans or integers.
    ValueError
        If `mask` has no axes.

    Notes
    -----
    As the ``position_ids`` that transformers makes of an ``attention_mask`` when it generates; older versions have 1 at
    padding. What padding is turned by makes no difference, since nobody attends to it.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import positions
    >>> print(positions.padded(np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]])))
    [[0 0 0 1 2]
     [0 1 2 3 0]]
    """
    xp = _array.namespace(mask=mask)
    if _array.dtype_name(mask.dtype) != "bool":
        _array.require_integer("mask", mask)
        mask = mask != 0
    if mask.ndim == 0:
        msg = "mask must have shape (..., seq); got ()"
        raise ValueError(msg)
    n = placed(xp.astype(mask, xp.int32), like=None)
    # position = tokens so far, without this one
    return n * (_array.running_sum(xp, n) - 1)


def from_starts(starts: Array | Sequence[int], length: int, /, *, like: Array | None = None) -> Array:
    """
    Let each row begin at a position of its own: the rows of a batch whose caches have different lengths.

    Parameters
    ----------
    starts : array or sequence of int
        ``(...)``, where the first token of each row stands. Numbers that are no array need `like`.
    length : int
        Tokens in each row.
    like : array, optional
        Names the library and the device where `starts` don't; where they do, it must agree with them.

    Returns
    -------
    array
        ``(*starts.shape, length)``: start, start + 1, .... int64, or int32 where the library has no float64.

    Raises
    ------
    TypeError
        If an argument is of another kind, or the arrays come from several libraries.
    ValueError
        If `length` is negative, a number or the position of a last token is beyond 32 bits, or the devices differ.

    Notes
    -----
    As ``seqlen_offsets`` of flash-attention and ``start_positions`` of TransformerEngine. For all rows alike, give the
    start itself to `Rope` in the place of positions.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import positions
    >>> print(positions.from_starts(np.array([7, 100]), 3))
    [[  7   8   9]
     [100 101 102]]
    """
    n, first = tokens("length", length, least=0), _integers("starts", starts, like=like)
    if not _array.is_array(starts):
        tokens("starts + length - 1", max(starts, default=0) + max(n - 1, 0))
    return first[..., None] + consecutive(0, n, like=first)


def grid(
    *positions: Positions, order: str = "rows", window: Sequence[int] | None = None, like: Array | None = None
) -> Array:
    """
    Put a token on each point of a grid: the patches of an image or of a video.

    Parameters
    ----------
    *positions : int, range, sequence of numbers or array
        Where the tokens stand along each axis: rows and columns, or time, rows and columns. An int n is 0, 1, ...,
        n − 1; an array has shape ``(n,)``. `centred`, `scaled`, `normalised` and `frames` make others.
    order : {"rows", "columns"}, optional
        ``"rows"``: the last axis runs fastest, row after row. ``"columns"``: the first one does.
    window : sequence of int, optional
        How many points a window has along each axis. Tokens then come window by window, and in `order` in each.
    like : array, optional
        Names the library and the device; needed where no axis is an array.

    Returns
    -------
    array
        ``(tokens, axes)``, for as many rows of frequencies. Integers are int64, or int32 where the library has no
        float64; with real numbers among them all are real, float32 if no axis is float64. Those of the host are
        float64 where the library has it.

    Raises
    ------
    TypeError
        If an argument is of another kind, or the arrays come from several libraries.
    ValueError
        If there are no axes, one has no shape ``(n,)``, `order` is another, `window` doesn't divide the grid, a number
        is not finite or too large, or the devices differ.

    Notes
    -----
    The vision tower of Qwen2-VL, which merges 2 × 2 patches, has ``window=(2, 2)`` for an image; with an axis for
    time, ``(1, 2, 2)``.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import positions
    >>> x = np.ones((1, 8, 6, 64))
    >>> print(positions.grid(2, 3, like=x).T)  # rows, columns
    [[0 0 0 1 1 1]
     [0 1 2 0 1 2]]
    >>> print(positions.grid(positions.frames(2, fps=30.0, base_fps=24.0), 3, like=x).T)
    [[0.  0.  0.  0.8 0.8 0.8]
     [0.  1.  2.  0.  1.  2. ]]
    """
    home = like if like is not None else next(filter(_array.is_array, positions), None)
    _array.require_array("like", home)
    xp, axes = _array.namespace(like=home), [_along(points, like=home) for points in positions]
    if not axes:
        msg = "positions must have at least one axis; got none"
        raise ValueError(msg)
    sizes = _window(window, [axis.shape[0] for axis in axes])
    if order not in ("rows", "columns"):
        msg = f"order must be 'rows' or 'columns'; got {shown(order)}"
        raise ValueError(msg)
    reals = [axis.dtype for axis in axes if not _array.is_integer(axis)]
    dtype = max(reals, key=_array.dtype_name, default=axes[0].dtype)  # float64 before float32
    axes = [_array.cast(xp, axis, dtype) for axis in axes]
    step = 1 if order == "rows" else -1
    return xp.stack(_product(xp, axes[::step], sizes[::step])[::step], axis=-1)


def _along(points: Positions, /, *, like: Array) -> Array:
    """Return the positions along one axis of a grid."""
    if isinstance(points, Integral) and not isinstance(points, bool):
        points = range(tokens("positions", points, least=0))
    axis = placed(points, like=like)
    if axis.ndim != 1:
        msg = f"positions must have one axis for each axis of the grid; got shape {tuple(axis.shape)}"
        raise ValueError(msg)
    return axis


def _window(window: Sequence[int] | None, lengths: list[int]) -> list[int]:
    """Return how many points a window has along each axis, or say that it must divide them."""
    sizes = [1] * len(lengths) if window is None else _numbers("window", window, least=1)
    if len(sizes) != len(lengths) or any(n % size for n, size in zip(lengths, sizes, strict=True)):
        msg = f"window must divide the lengths of the axes, {lengths}; got {sizes}"
        raise ValueError(msg)
    return sizes


def _product(xp: Any, axes: list[Array], sizes: list[int]) -> list[Array]:
    """Return along each axis where the points of all axes stand, window by window, the last axis fastest."""
    # each axis is cut in two, (windows, points in one): first come the windows of all axes, then the points in them
    shape = (*(axis.shape[0] // size for axis, size in zip(axes, sizes, strict=True)), *sizes)
    own = [tuple(n if i % len(axes) == a else 1 for i, n in enumerate(shape)) for a in range(len(axes))]
    parts = [xp.reshape(axis, only) for axis, only in zip(axes, own, strict=True)]
    return [xp.reshape(xp.broadcast_to(part, shape), (-1,)) for part in parts]


def centred(count: int, /, *, step: float = 1.0) -> tuple[float, ...]:
    """
    Count from the middle of an axis.

    Parameters
    ----------
    count : int
        How many points the axis has.
    step : float, optional
        How far it is from one to the next; positive and finite.

    Returns
    -------
    tuple of float
        ``step · (i − (count − 1) / 2)`` for each of them.

    Raises
    ------
    TypeError
        If `count` is no integer, or `step` no real number.
    ValueError
        If `count` is negative or beyond 32 bits, or `step` is not positive and finite.

    Notes
    -----
    Mochi has it along rows and columns, with a step that keeps the area, ``sqrt(area / (height · width))``.

    Examples
    --------
    >>> from rope_any import positions
    >>> positions.centred(4)
    (-1.5, -0.5, 0.5, 1.5)
    """
    n, width = tokens("count", count, least=0), positive("step", step)
    return tuple(width * (i - (n - 1) / 2) for i in range(n))


def scaled(count: int, reference: float, /) -> tuple[float, ...]:
    """
    Spread an axis over the size that a model was trained on.

    Parameters
    ----------
    count : int
        How many points the axis has.
    reference : float
        How many it had in training; positive and finite.

    Returns
    -------
    tuple of float
        ``i · reference / count`` for each of them.

    Raises
    ------
    TypeError
        If `count` is no integer, or `reference` no real number.
    ValueError
        If `count` is negative or beyond 32 bits, or `reference` is not positive and finite.

    Notes
    -----
    ``ref_feat_shape`` of EVA in timm (Fang et al., *EVA-02*, arXiv:2303.11331), and CogVideoX, each axis by itself.

    Examples
    --------
    >>> from rope_any import positions
    >>> positions.scaled(4, 2)
    (0.0, 0.5, 1.0, 1.5)
    """
    n, size = tokens("count", count, least=0), positive("reference", reference)
    return tuple(i * size / n for i in range(n))


def normalised(count: int, /, *, edges: bool = False) -> tuple[float, ...]:
    """
    Spread an axis from -1 to 1, whatever its length.

    Parameters
    ----------
    count : int
        How many points the axis has.
    edges : bool, optional
        Whether the first and the last point stand on −1 and 1. Otherwise the axis is cut into cells, and points stand
        in their middles.

    Returns
    -------
    tuple of float
        ``(2i + 1) / count − 1`` for each of them; with `edges`, ``2i / (count − 1) − 1``, which for one point is −1.

    Raises
    ------
    TypeError
        If `count` is no integer, or `edges` no bool.
    ValueError
        If `count` is negative or beyond 32 bits.

    Notes
    -----
    Cells are those of DINOv3 (Siméoni et al., arXiv:2508.10104), edges those of the frequencies for pixels in timm
    and rotary-embedding-torch.

    Examples
    --------
    >>> from rope_any import positions
    >>> positions.normalised(4)
    (-0.75, -0.25, 0.25, 0.75)
    >>> positions.normalised(3, edges=True)
    (-1.0, 0.0, 1.0)
    """
    n = tokens("count", count, least=0)
    if flag("edges", edges):
        return tuple(2 * i / max(n - 1, 1) - 1 for i in range(n))
    return tuple((2 * i + 1) / n - 1 for i in range(n))


def frames(count: int, /, *, fps: float, base_fps: float) -> tuple[float, ...]:
    """
    Let the frames of a video stand by time, as if they had been taken at another rate.

    Parameters
    ----------
    count : int
        How many frames there are.
    fps : float
        Frames per second of this video; positive and finite.
    base_fps : float
        The rate at which frames are one position apart; positive and finite. 1 gives seconds.

    Returns
    -------
    tuple of float
        ``i · base_fps / fps`` for each frame.

    Raises
    ------
    TypeError
        If `count` is no integer, or a rate no real number.
    ValueError
        If `count` is negative or beyond 32 bits, or a rate is not positive and finite.

    Notes
    -----
    As Cosmos (NVIDIA, arXiv:2501.03575), whose ``base_fps`` is 24.

    Examples
    --------
    >>> from rope_any import positions
    >>> positions.frames(4, fps=12.0, base_fps=24.0)
    (0.0, 2.0, 4.0, 6.0)
    """
    n, base, rate = tokens("count", count, least=0), positive("base_fps", base_fps), positive("fps", fps)
    return tuple(i * base / rate for i in range(n))


def shard(length: int, ranks: int, rank: int | Array, /, *, zigzag: bool, like: Array | None = None) -> Array:
    """
    Return which tokens of a long sequence one of several ranks holds: context parallelism.

    Parameters
    ----------
    length : int
        Tokens in all; a multiple of `ranks`, with `zigzag` of twice as many.
    ranks : int
        How many hold the sequence together.
    rank : int or array
        Which of them, from 0 on; or a 0-d integer array, traced ones too, whose number is not looked at.
    zigzag : bool
        Whether a rank holds chunks ``rank`` and ``2 · ranks − 1 − rank`` of ``2 · ranks``, so that with a causal mask
        all have as much to do. Otherwise it holds chunk ``rank`` of `ranks`. There is no default: it is for whoever
        distributes the data to say.
    like : array, optional
        Names the library and the device where `rank` doesn't; where it does, it must agree with it.

    Returns
    -------
    array
        ``(length / ranks,)``, int64, or int32 where the library has no float64.

    Raises
    ------
    TypeError
        If an argument is of another kind, or the arrays come from several libraries.
    ValueError
        If `length` can't be dealt out evenly, a number is out of range, or the devices differ.

    Notes
    -----
    Zig-zag is the order of Megatron, TransformerEngine and PyTorch (there head-tail). `gathered` is the way back.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import positions
    >>> x = np.ones((1, 8, 4, 64))  # this rank's part
    >>> print(positions.shard(12, 3, 0, zigzag=True, like=x), positions.shard(12, 3, 1, zigzag=True, like=x))
    [ 0  1 10 11] [2 3 8 9]
    >>> print(positions.shard(12, 3, 1, zigzag=False, like=x))
    [4 5 6 7]
    """
    count, size = _chunks(length, ranks, zigzag=zigzag)
    if _array.is_array(rank):
        xp, which = _array.namespace(rank=rank), _integers("rank", rank, like=like)
        if which.ndim:
            msg = f"rank must be one number; got shape {tuple(which.shape)}"
            raise ValueError(msg)
        starts = xp.stack([size * chunk for chunk in _held(which, count, zigzag=zigzag)])
    elif 0 <= (which := tokens("rank", rank)) < ranks:
        starts = [size * chunk for chunk in _held(which, count, zigzag=zigzag)]
    else:
        msg = f"rank must be from 0 to {ranks - 1}; got {which}"
        raise ValueError(msg)
    return _laid(starts, size, like=like)


def gathered(length: int, ranks: int, /, *, zigzag: bool, like: Array) -> Array:
    """
    Return where each token is when the shards of all ranks are laid end to end.

    Parameters
    ----------
    length : int
        Tokens in all; a multiple of `ranks`, with `zigzag` of twice as many.
    ranks : int
        How many hold the sequence together.
    zigzag : bool
        As for `shard`.
    like : array
        Names the library and the device.

    Returns
    -------
    array
        ``(length,)``, int64, or int32 where the library has no float64. Taken along the axis of the tokens, it puts
        them in order again.

    Raises
    ------
    TypeError
        If an argument is of another kind.
    ValueError
        If `length` can't be dealt out evenly, or a number is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import positions
    >>> x = np.ones((1, 8, 4, 64))
    >>> shards = [positions.shard(12, 3, rank, zigzag=True, like=x) for rank in range(3)]
    >>> together = np.concatenate(shards)
    >>> print(together)
    [ 0  1 10 11  2  3  8  9  4  5  6  7]
    >>> print(together[positions.gathered(12, 3, zigzag=True, like=x)])
    [ 0  1  2  3  4  5  6  7  8  9 10 11]
    """
    count, size = _chunks(length, ranks, zigzag=zigzag)
    dealt = [chunk for rank in range(ranks) for chunk in _held(rank, count, zigzag=zigzag)]
    return _laid([size * place for place in sorted(range(count), key=dealt.__getitem__)], size, like=like)


def _chunks(length: int, ranks: int, *, zigzag: bool) -> tuple[int, int]:
    """Return how many chunks a sequence is cut into, and how many tokens each has."""
    count = (2 if flag("zigzag", zigzag) else 1) * tokens("ranks", ranks, least=1)
    if tokens("length", length, least=1) % count:
        msg = f"length must be a multiple of {count}, the number of chunks for {ranks} ranks; got {length}"
        raise ValueError(msg)
    return count, length // count


def _held(rank: Any, count: int, *, zigzag: bool) -> tuple[Any, ...]:
    """Return the chunks that a rank holds, of `count`."""
    return (rank, count - 1 - rank) if zigzag else (rank,)


def _laid(starts: Array | list[int], size: int, *, like: Array | None) -> Array:
    """Return the tokens of chunks, one chunk after the other."""
    rows = from_starts(starts, size, like=like)
    return _array.namespace(rows=rows).reshape(rows, (-1,))


def unrotated(
    positions: Positions, /, *, before: int = 0, after: int = 0, axes: int | None = None, like: Array | None = None
) -> Array:
    """
    Put tokens that don't turn before or behind the others: the class and register tokens of a vision transformer.

    Parameters
    ----------
    positions : array, int, range or sequence of numbers
        Where the tokens stand, ``(..., seq)``, or ``(..., seq, axes)``. Numbers that are no array need `like`.
    before, after : int, optional
        How many tokens to put there.
    axes : int, optional
        How many axes of positions there are, if `positions` end in an axis for them, as those of `grid` do.
    like : array, optional
        Names the library and the device where `positions` don't; where they do, it must agree with them.

    Returns
    -------
    array
        ``(..., before + seq + after)``, or with `axes` ``(..., before + seq + after, axes)``. Integers are int64, or
        int32 where the library has no float64; real numbers are float64 if they came so, else float32.

    Raises
    ------
    TypeError
        If an argument is of another kind, or the arrays come from several libraries.
    ValueError
        If `positions` have another shape, a number is out of range or not finite, or the devices differ.

    Notes
    -----
    They stand at 0 on every axis, where cosine is 1 and sine 0: what is turned there comes out as it went in. With an
    attention factor, it comes out multiplied by it.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import positions
    >>> p = positions.grid(2, 2, like=np.ones(1))
    >>> print(positions.unrotated(p, before=1, axes=2).T)  # a class token and four patches
    [[0 0 0 1 1]
     [0 0 1 0 1]]
    """
    head, tail = tokens("before", before, least=0), tokens("after", after, least=0)
    p, width = placed(positions, like=like), () if axes is None else (tokens("axes", axes, least=1),)
    shape, seq_axis = tuple(p.shape), -1 - len(width)
    if p.ndim < -seq_axis or shape[len(shape) - len(width) :] != width:
        wanted = "(..., seq)" if axes is None else f"(..., seq, {axes})"
        msg = f"positions must have shape {wanted}; got {shape}"
        raise ValueError(msg)
    xp = _array.namespace(positions=p)

    def still(count: int) -> Array:
        return xp.zeros((*shape[:seq_axis], count, *width), dtype=p.dtype, **_array.creation(p))

    return xp.concat([still(head), p, still(tail)], axis=seq_axis)


def _integers(name: str, values: Any, /, *, like: Array | None, least: int = 1 - 2**31) -> Array:
    """Return integers as an array, those of a host sequence each within 32 bits."""
    if _array.is_array(values):
        _array.require_integer(name, values)
        return placed(values, like=like)
    _array.require_array("like", like)
    return placed(_numbers(name, values, least=least), like=like)


def _numbers(name: str, values: Any, /, *, least: int) -> list[int]:
    """Return the integers of a host sequence, or say that `name` must be one."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        msg = f"{name} must be a sequence of integers; got {shown(values)}"
        raise TypeError(msg)
    return [tokens(name, value, least=least) for value in values]
