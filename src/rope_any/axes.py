"""
Divide the pairs among several position axes: one row of frequencies for each axis.

The functions return the rows as a tuple W, in radians per position. The angle of a pair is
``Σ_axis position[axis] · W[axis, pair]``. Except in `mixed` and `golden`, a pair has its frequency in the row of one
axis and 0 in the others, so equal positions on all axes give the rotation of the frequencies themselves. An argument of
a wrong type raises TypeError, and a number out of range ValueError.
"""

import math
from collections.abc import Sequence
from typing import Protocol

from rope_any._checks import MAX_FEATURES, ArgumentTypeError, ArgumentValueError, Text, brief, int32, integer, positive
from rope_any._frequencies import Row, as_row
from rope_any._positions import host_integers

__all__ = ["alternating", "assigned", "axial", "chunked", "golden", "mixed", "strided"]


def axial(*frequencies: Sequence[float]) -> tuple[Row, ...]:
    """
    Give each axis its own frequencies, one axis after the other: Flux, Wan, the vision tower of Qwen2-VL.

    Parameters
    ----------
    *frequencies : tuple of float
        Radians per position, for each axis; their lengths may differ.

    Returns
    -------
    tuple of tuple of float
        The rows W, as long as all frequencies together.

    Notes
    -----
    Heo et al., *Rotary Position Embedding for Vision Transformer*, arXiv:2403.13298, section 3.1. In Gemma's vision
    tower pairs are formed within the features of each axis: set the `blocks` of the `Rope` to the number of axes.

    Examples
    --------
    >>> ra.axes.axial((1.0, 0.1), (1.0, 0.5, 0.25))
    ((1.0, 0.1, 0.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.5, 0.25))
    """
    rows = [as_row(row) for row in frequencies]
    if not rows:
        raise ArgumentValueError("frequencies", "be given for at least one axis", Text("none"))
    return assigned(sum(rows, ()), [axis for axis, row in enumerate(rows) for _ in row])


def chunked(frequencies: Sequence[float], sections: Sequence[int], /) -> tuple[Row, ...]:
    """
    Give each axis a section of consecutive pairs: M-RoPE as in Qwen2-VL.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position.
    sections : sequence of int
        The number of pairs of each axis; together as many as there are frequencies.

    Returns
    -------
    tuple of tuple of float
        The rows W.

    Notes
    -----
    Wang et al., *Qwen2-VL*, arXiv:2409.12191, section 2.1: axes time, height and width, sections [16, 24, 24].

    Examples
    --------
    >>> ra.axes.chunked((1.0, 0.5, 0.25), [1, 2])
    ((1.0, 0.0, 0.0), (0.0, 0.5, 0.25))
    """
    row, sizes = as_row(frequencies), _checked_sections(sections, len(frequencies))
    return assigned(row, [axis for axis, size in enumerate(sizes) for _ in range(size)])


def strided(frequencies: Sequence[float], sections: Sequence[int], /) -> tuple[Row, ...]:
    """
    Assign pairs to the axes alternately, and the remaining pairs to the first axis: M-RoPE as in Qwen3-VL.

    Parameters
    ----------
    frequencies, sections : tuple of float and sequence of int
        As for `chunked`.

    Returns
    -------
    tuple of tuple of float
        The rows W. With n axes, pair i belongs to axis ``a = i mod n`` if ``i < n · sections[a]``, else to axis 0.

    Raises
    ------
    ValueError
        If the sections don't sum to the number of pairs, or an axis doesn't get the size of its section.

    Notes
    -----
    As in transformers, with sections [24, 20, 20]; ggml gives two of the remaining pairs to a fourth axis, whose
    positions are 0.

    Examples
    --------
    >>> ra.axes.strided((1.0, 0.5, 0.25, 0.125), [2, 1, 1])
    ((1.0, 0.0, 0.0, 0.125), (0.0, 0.5, 0.0, 0.0), (0.0, 0.0, 0.25, 0.0))
    """
    row, sizes = as_row(frequencies), _checked_sections(sections, len(frequencies))
    axis_of = strided_axes(len(row), sizes)
    got = [axis_of.count(axis) for axis in range(len(sizes))]
    if got != sizes:
        wanted = f"fit {len(row)} pairs assigned alternately, as {brief(got)} do"
        hint = "those give the axes that Qwen3-VL's code in transformers makes of yours"
        raise ArgumentValueError("sections", wanted, sizes, hint)
    return assigned(row, axis_of)


def alternating(frequencies: Sequence[float], axes: int, /) -> tuple[Row, ...]:
    """
    Assign frequencies to the axes alternately, and put those of each axis together: Pixtral.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position.
    axes : int
        The number of axes, at most the number of pairs.

    Returns
    -------
    tuple of tuple of float
        The rows W.

    Notes
    -----
    In Pixtral (transformers) rows get the frequencies of even index, in the first pairs, and columns those of odd
    index. `strided` with equal sections assigns the same frequencies without moving pairs.

    Examples
    --------
    >>> ra.axes.alternating((1.0, 0.5, 0.25, 0.125), 2)
    ((1.0, 0.25, 0.0, 0.0), (0.0, 0.0, 0.5, 0.125))
    """
    row, n = as_row(frequencies), integer("axes", axes)
    if not 1 <= n <= len(row):
        raise ArgumentValueError("axes", f"be from 1 to the number of pairs, {len(row)}", n)
    return axial(*(row[a::n] for a in range(n)))


def assigned(frequencies: Sequence[float], axis_of: Sequence[int], /) -> tuple[Row, ...]:
    """
    Assign each pair to an axis by its number, in any order: VideoRoPE, Ernie 4.5-VL, Lumos-1.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position.
    axis_of : sequence of int
        The axis of each pair, counted from 0.

    Returns
    -------
    tuple of tuple of float
        The rows W. An axis without pairs has zeros.

    Notes
    -----
    VideoRoPE (Wei et al., arXiv:2502.05173) gives time the 16 slowest of 64 pairs, and height and width the others in
    turns: ``[1, 2] * 24 + [0] * 16``.

    Examples
    --------
    >>> ra.axes.assigned((1.0, 0.5, 0.25), [1, 2, 0])
    ((0.0, 0.0, 0.25), (1.0, 0.0, 0.0), (0.0, 0.5, 0.0))
    """
    row = as_row(frequencies)
    numbers, most = host_integers("axis_of", axis_of, least=0), MAX_FEATURES // len(row)
    if len(numbers) != len(row) or max(numbers) > most:
        raise ArgumentValueError("axis_of", f"have an axis up to {most} for each of {len(row)} pairs", numbers)
    return tuple(
        tuple(f if axis == a else 0.0 for f, axis in zip(row, numbers, strict=True)) for a in range(max(numbers) + 1)
    )


def golden(frequencies: Sequence[float], axes: int, /, *, heads: int) -> tuple[tuple[Row, ...], ...]:
    """
    Spread the directions of the pairs of all heads evenly over any number of axes: golden-gate RoPE.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position along the direction of each pair, in all heads.
    axes, heads : int
        The number m of axes, and that of heads.

    Returns
    -------
    tuple
        Radians per position, ``(heads, axes, pairs)``: frequency times direction.

    Notes
    -----
    Xiong, jerryxio.ng/posts/nd-rope. Direction n, counted from 1 over the pairs of one head after the other, is that of
    ``erfinv(2 frac(n g⁻ʲ) - 1)``, j from 1 to m, with ``gᵐ⁺¹ = g + 1``. The author's code has the axes last.

    Examples
    --------
    >>> [[round(f, 3) for f in row] for row in ra.axes.golden((1.0, 8.0), 2, heads=1)[0]]
    [[0.969, 0.181], [0.247, -7.998]]
    """
    from statistics import NormalDist

    row, m, h = as_row(frequencies), int32("axes", axes, least=1), int32("heads", heads, least=1)
    n = len(row)
    if n * m * h > MAX_FEATURES:
        raise ArgumentValueError("axes and heads", f"make at most {MAX_FEATURES} frequencies", [m, h])
    g = 2.0
    for _ in range(64):  # 31 reach the last bit
        g = (1 + g) ** (1 / (m + 1))
    # Φ⁻¹(z) = √2 erfinv(2z − 1)
    points = [[NormalDist().inv_cdf(i * g**-j % 1) for j in range(1, m + 1)] for i in range(1, n * h + 1)]
    pairs = [[f * x / math.hypot(*point) for x in point] for f, point in zip(row * h, points, strict=True)]
    return tuple(tuple(zip(*pairs[i : i + n], strict=True)) for i in range(0, n * h, n))


class Rng(Protocol):
    """A source of random numbers: ``random.Random`` or ``numpy.random.Generator``."""

    def random(self) -> float:
        """Return a random number from 0 to 1."""


def mixed(rotary_dim: int, /, *, heads: int, rng: Rng, base: float = 10.0) -> tuple[tuple[Row, Row], ...]:
    """
    Draw the initial frequencies of RoPE-Mixed: each pair depends on both axes, along a random direction.

    Parameters
    ----------
    rotary_dim : int
        The number of rotated features of a head; a positive multiple of 4.
    heads : int
        The number of heads.
    rng : random.Random or numpy.random.Generator
        Draws the directions: one ``rng.random()`` for each head.
    base : float, optional
        The base of the frequencies ``base ** (-4i / rotary_dim)`` along the directions, i from 0 to ``rotary_dim // 4 -
        1``.

    Returns
    -------
    tuple
        Radians per position, ``(heads, 2, rotary_dim // 2)``; pass an array of them to `cos_sin`.

    Notes
    -----
    Heo et al., arXiv:2403.13298, section 3.2, initialised as by its authors (naver-ai/rope-vit): the first half of the
    pairs along a random direction, the other perpendicular.

    Examples
    --------
    >>> import random
    >>> learned = np.asarray(ra.axes.mixed(64, heads=6, rng=random.Random(0)))
    >>> learned.shape
    (6, 2, 32)
    """
    dim, n, b = integer("rotary_dim", rotary_dim), integer("heads", heads), positive("base", base)
    if not 4 <= dim <= MAX_FEATURES or dim % 4:
        raise ArgumentValueError("rotary_dim", f"be a multiple of 4 from 4 to {MAX_FEATURES}", dim)
    if not 1 <= n <= MAX_FEATURES // dim:
        raise ArgumentValueError("heads", f"be from 1 to {MAX_FEATURES // dim} for a `rotary_dim` of {dim}", n)
    if not callable(getattr(rng, "random", None)):
        raise ArgumentTypeError("rng", "have a method random(), as random.Random has", rng)
    # fᵢ = base^(−4i/d),  i = 0 … d/4 − 1
    f = [b ** (-4 * i / dim) for i in range(dim // 4)]

    def row(angle: float) -> Row:
        """Return a head's frequencies on one axis: its first half of pairs is at `angle` to it, the second π/2 more."""
        return tuple(g * math.cos(a) for a in (angle, angle + math.pi / 2) for g in f)

    # cos(a − π/2) = sin a
    directions = [2 * math.pi * rng.random() for _ in range(n)]
    return tuple((row(a), row(a - math.pi / 2)) for a in directions)


def strided_axes(pairs: int, sections: Sequence[int], /) -> list[int]:
    """Return the axis of each pair i: a = i mod n if i < n · sections[a], else 0. Sections are not checked."""
    n = len(sections)
    return [i % n if i < n * sections[i % n] else 0 for i in range(pairs)]


def _checked_sections(sections: Sequence[int], pairs: int) -> list[int]:
    """Return `sections` as a list; raise unless they are a sequence of positive integers that sum to `pairs`."""
    sizes = host_integers("sections", sections)
    if min(sizes, default=0) < 1 or sum(sizes) != pairs:
        hint = "halve them: they count pairs, not features" if sum(sizes) == 2 * pairs else ""
        raise ArgumentValueError("sections", f"be positive and sum to the number of pairs, {pairs}", sizes, hint)
    return sizes
