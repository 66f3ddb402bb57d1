"""
Read the test vectors: rotations computed in 60 digits, in a file that any language can read.

``vectors_2.npz`` is an uncompressed zip archive of arrays in NumPy's ``.npy`` format (version 1.0, C order, little
endian). The ``2`` is the version of the schema below; a reader of version 2 may not support others.

=========================  =====================  ============================================================
name                       shape, dtype           content
=========================  =====================  ============================================================
``schema``                 (), int64              the version, 2
``<case>/parameters``      (bytes,), uint8        the parameters of the frequencies: JSON in UTF-8
``<case>/frequencies``     (axes, pairs), float64  radians per position, 60 digits rounded once
``<case>/factor``          (), float64            the attention factor, which multiplies cosines and sines
``<case>/start``           (), int64              the first rotated feature
``<case>/positions``       (n, axes), int64       from 0 to 2³¹ − 1
``<case>/cos``             (n, pairs), float64    factor · cos(Σ position · frequency), with the frequencies and the
                                                  factor in the file; rounded once
``<case>/sin``             (n, pairs), float64    the same for sin
``<case>/x``               (n, head_dim), float32  the input; each number is exact in bfloat16 and float16 too
``<case>/half``            (n, head_dim), float64  x, rotated in pairs of features i and i + pairs; rounded once
``<case>/interleaved``     (n, head_dim), float64  the same in pairs of features 2i and 2i + 1
``<case>/half_gradient``   (n, head_dim), float64  x, taken for the gradient of ``half``: that of the input
``<case>/interleaved_gradient``  (n, head_dim), float64  the same for ``interleaved``
=========================  =====================  ============================================================

``python tools/make_vectors.py FILE`` in the repository generates the same bytes again.
"""

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from rope_any._frequencies import Frequencies

SCHEMA = 2
FILE = f"vectors_{SCHEMA}.npz"


class Case(NamedTuple):
    """
    One rotation of the test vectors, with positions, inputs and exact results.

    Attributes
    ----------
    name : str
        Its name in the file.
    parameters : dict
        The origin of the frequencies: ``scheme`` or ``axes``, and its parameters.
    frequencies : tuple of float, or tuple of such rows
        Radians per position; with several axes, a row for each.
    attention_factor : float
        Multiplies cosines and sines.
    start : int
        The first rotated feature.
    positions : numpy.ndarray
        ``(n,)``, or ``(n, axes)``; int64, from 0 to 2³¹ − 1.
    cos, sin : numpy.ndarray
        ``(n, pairs)``, float64, times the attention factor.
    x : numpy.ndarray
        ``(n, head_dim)``, float32; each number is exact in half precision too.
    half, interleaved : numpy.ndarray
        ``(n, head_dim)``, float64: x, rotated in each pairing.
    half_gradient, interleaved_gradient : numpy.ndarray
        ``(n, head_dim)``, float64: the gradient of the input, if x is that of the result.
    """

    name: str
    parameters: dict[str, Any]
    frequencies: Frequencies
    attention_factor: float
    start: int
    positions: np.ndarray[Any, Any]
    cos: np.ndarray[Any, Any]
    sin: np.ndarray[Any, Any]
    x: np.ndarray[Any, Any]
    half: np.ndarray[Any, Any]
    interleaved: np.ndarray[Any, Any]
    half_gradient: np.ndarray[Any, Any]
    interleaved_gradient: np.ndarray[Any, Any]


def cases() -> dict[str, Case]:
    """
    Return the test vectors: each scheme, partial rotary, several axes, at positions from 0 to 2³¹ − 1.

    Returns
    -------
    dict of str to Case
        The cases by name. Their arrays are shared between callers and read-only.

    Notes
    -----
    ``tools/make_vectors.py`` computes them in 60-digit arithmetic from the formulas of the papers, without this
    library. Other languages can read the file ``vectors_2.npz``, which ``rope_any.testing.vectors`` describes.

    Examples
    --------
    >>> case = ra.testing.cases()["llama3"]
    >>> case.positions[-2:]
    array([1234567890, 2147483647])
    >>> case.cos.shape, case.half.shape
    ((12, 8), (12, 16))
    """
    return dict(_read_cases())


@cache
def _read_cases() -> dict[str, Case]:
    """Read all cases from the file, and return them by name; later calls return the same dict."""
    with resources.files(__package__).joinpath(FILE).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        given = {name: arrays[name] for name in arrays.files}
    for array in given.values():
        array.flags.writeable = False
    names = dict.fromkeys(name.partition("/")[0] for name in given if "/" in name)
    return {name: _case(name, lambda part, name=name: given[f"{name}/{part}"]) for name in names}


def _case(name: str, part: Any) -> Case:
    """Return the case `name`, made from its arrays in the file; ``part(key)`` returns the array named `key`."""
    rows = tuple(map(tuple, part("frequencies").tolist()))
    one = len(rows) == 1
    return Case(
        name=name,
        parameters=json.loads(part("parameters").tobytes()),
        frequencies=rows[0] if one else rows,
        attention_factor=part("factor").item(),
        start=part("start").item(),
        positions=part("positions")[:, 0] if one else part("positions"),
        **{key: part(key) for key in Case._fields[6:]},
    )
