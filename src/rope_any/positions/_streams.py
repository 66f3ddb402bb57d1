"""M-RoPE: the positions of streams of text, images, videos and their audio."""

import math
from collections.abc import Sequence
from itertools import groupby
from numbers import Integral
from typing import TypeAlias

from rope_any._arrays import Array, is_symbol, largest, library
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, flag, int32, positive, real
from rope_any._positions import as_position_array, consecutive, int32_or_symbol, is_number

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
    lib = library(like=like)
    placed, end = _place_spans(spans, start=start, time_advances=time_advances, diagonal=diagonal, chunk=chunk)
    dtype = as_position_array([0.0 if isinstance(end, float) else 0], like=like).dtype
    parts = []
    for first, axes in placed:
        # with `diagonal`, rows and columns are offsets from the time
        own = [_coordinate_array(0 if diagonal and i else first, axis, like=like) for i, axis in enumerate(axes)]
        columns = lib.xp.meshgrid(*(lib.cast(axis, dtype) for axis in own), indexing="ij")
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
) -> tuple[list[tuple[float, Sequence[_Axis]]], float]:
    """
    Return (origin, coordinates by axis) of each run of `_runs`, and the end: one more than the largest position.

    The runs of a span have one origin: `start`, or one more than the largest position in the last run of the span
    before; unless `time_advances`, times don't count there. With `diagonal`, only times count, for the end too. Origins
    and the end are floats if a coordinate is, or with `diagonal`.
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
    return placed, end


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
