"""Positions of the points of a grid, as of the patches of an image, and of tokens beside them that don't rotate."""

from collections.abc import Sequence
from typing import Any

from rope_any._arrays import Array, is_array, library, refuse_foreign
from rope_any._checks import ArgumentValueError, Text, choice, int32
from rope_any._positions import Positions, as_position_array, consecutive, host_integers, int32_or_symbol, is_number


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
    sizes = [1] * len(lengths) if window is None else host_integers("window", window, least=1)
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
    counts = int32_or_symbol("before", before, least=0), int32_or_symbol("after", after, least=0)
    p, width = as_position_array(positions, like=like), () if axes is None else (int32("axes", axes, least=1),)
    shape, seq_axis = tuple(p.shape), -1 - len(width)
    if p.ndim < -seq_axis or shape[len(shape) - len(width) :] != width:
        wanted = "(..., seq)" if axes is None else f"(..., seq, {axes})"
        raise ArgumentValueError("positions", f"have shape {wanted}", shape)
    lib = library(positions=p)
    head, tail = (
        lib.xp.zeros((*shape[:seq_axis], count, *width), dtype=p.dtype, **lib.device_kwargs(p)) for count in counts
    )
    return lib.xp.concat([head, p, tail], axis=seq_axis)
