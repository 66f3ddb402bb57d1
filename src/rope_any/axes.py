"""
Several position axes: frequencies -> rows of W, one row per axis.

The angle of a pair is ``Σ_axis position[axis] · W[axis, pair]``. In each arrangement here a pair turns with one axis
alone, so each column of W holds its frequency once and zeros else; where all axes stand at the same position, the
rotation is that of the frequencies themselves. Host numbers only.
"""

from collections.abc import Sequence

from rope_any._frequencies import Row, as_row, integer, shown

__all__ = ["alternating", "chunked", "strided"]


def chunked(frequencies: Sequence[float], sections: Sequence[int], /) -> tuple[Row, ...]:
    """
    Give each axis a run of consecutive pairs: M-RoPE as in Qwen2-VL.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position.
    sections : sequence of int
        How many pairs each axis has; together as many as there are frequencies.

    Returns
    -------
    tuple of tuple of float
        One row of frequencies for each axis.

    Raises
    ------
    TypeError
        If a section is not an integer.
    ValueError
        If a section is not positive, or the sections don't sum to the number of pairs.

    Notes
    -----
    Wang et al., *Qwen2-VL*, arXiv:2409.12191, section 2.1: axes time, height and width, sections [16, 24, 24].

    Examples
    --------
    >>> from rope_any import axes
    >>> axes.chunked((1.0, 0.5, 0.25), [1, 2])
    ((1.0, 0.0, 0.0), (0.0, 0.5, 0.25))
    """
    row, sizes = as_row(frequencies), _sections(sections, len(frequencies))
    return assigned(row, [axis for axis, size in enumerate(sizes) for _ in range(size)])


def strided(frequencies: Sequence[float], sections: Sequence[int], /) -> tuple[Row, ...]:
    """
    Deal the pairs out to the axes in turn, and what is left over to the first: M-RoPE as in Qwen3-VL.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position.
    sections : sequence of int
        How many pairs each axis has; together as many as there are frequencies.

    Returns
    -------
    tuple of tuple of float
        One row of frequencies for each axis.

    Raises
    ------
    TypeError
        If a section is not an integer.
    ValueError
        If a section is not positive, the sections don't sum to the number of pairs, or dealing in turn can't give an
        axis as many as its section says.

    Notes
    -----
    With n axes, pair i turns with axis ``a = i mod n`` if ``i < n · sections[a]``, else with axis 0. As Qwen3-VL in
    transformers, with sections [24, 20, 20]; ggml gives two of the pairs left over to a fourth axis, which stands
    still.

    Examples
    --------
    >>> from rope_any import axes
    >>> axes.strided((1.0, 0.5, 0.25, 0.125), [2, 1, 1])
    ((1.0, 0.0, 0.0, 0.125), (0.0, 0.5, 0.0, 0.0), (0.0, 0.0, 0.25, 0.0))
    """
    row, sizes = as_row(frequencies), _sections(sections, len(frequencies))
    dealt = in_turn(len(row), sizes)
    got = [dealt.count(axis) for axis in range(len(sizes))]
    if got != sizes:
        msg = f"sections must be what dealing {len(row)} pairs in turn can give, {shown(got)}; got {shown(sizes)}"
        raise ValueError(msg)
    return assigned(row, dealt)


def alternating(frequencies: Sequence[float], axes: int, /) -> tuple[Row, ...]:
    """
    Deal all pairs out to the axes in turn, as in Pixtral.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position.
    axes : int
        How many axes there are, at most as many as pairs.

    Returns
    -------
    tuple of tuple of float
        One row of frequencies for each axis.

    Raises
    ------
    TypeError
        If `axes` is not an integer.
    ValueError
        If `axes` is not positive, or larger than the number of pairs.

    Notes
    -----
    In Pixtral even pairs turn with the row of a patch and odd ones with its column, with the frequencies of the whole
    head. It is `strided` with sections as equal as can be.

    Examples
    --------
    >>> from rope_any import axes
    >>> axes.alternating((1.0, 0.5, 0.25, 0.125), 2)
    ((1.0, 0.0, 0.25, 0.0), (0.0, 0.5, 0.0, 0.125))
    """
    row, n = as_row(frequencies), integer("axes", axes)
    if not 1 <= n <= len(row):
        msg = f"axes must be from 1 to the number of pairs, {len(row)}; got {n}"
        raise ValueError(msg)
    return assigned(row, [i % n for i in range(len(row))])


def in_turn(pairs: int, sections: Sequence[int], /) -> list[int]:
    """Return the axis of each pair, dealt out in turn to those that have not their section yet, then to the first."""
    n = len(sections)
    return [i % n if i < n * sections[i % n] else 0 for i in range(pairs)]


def assigned(row: Row, axis_of: Sequence[int], /) -> tuple[Row, ...]:
    """Return one row per axis, with the frequency of each pair in the row of its axis."""
    return tuple(
        tuple(f if axis == a else 0.0 for f, axis in zip(row, axis_of, strict=True)) for a in range(max(axis_of) + 1)
    )


def _sections(sections: Sequence[int], pairs: int) -> list[int]:
    if not isinstance(sections, tuple | list):
        msg = f"sections must be a sequence of integers; got {type(sections).__name__}"
        raise TypeError(msg)
    sizes = [integer("sections", size) for size in sections]
    if min(sizes, default=0) < 1 or sum(sizes) != pairs:
        msg = f"sections must be positive and sum to the number of pairs, {pairs}; got {shown(sizes)}"
        raise ValueError(msg)
    return sizes
