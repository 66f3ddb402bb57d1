"""
What bends a table rather than the frequencies: Table -> BentTable.

Tables that are scaled by the position (`xpos`, `temperature`) or mixed (`fope`) are no rotations: `rotate` and `Rope`
take them as any table, but there is no inverse. Positions are those that the table was made of, with one axis.
Differences and sums of positions are exact: in float64, or where the library has none in int32, which must hold them.
"""

import math

from rope_any._arrays import Array, Library, is_array, library
from rope_any._checks import MAX_FEATURES, ArgumentTypeError, ArgumentValueError, Text, int32, integer, positive, real
from rope_any._positions import Positions, as_numbers
from rope_any._table import BentTable, Table, check_table

__all__ = ["fope", "temperature", "xpos"]


def xpos(
    table: Table,
    positions: Positions,
    /,
    *,
    centre: int,
    scale_base: float = 512.0,
    gamma: float = 0.4,
) -> tuple[BentTable, BentTable]:
    """
    Let scores decay with distance, fast pairs most: xPos.

    Parameters
    ----------
    table : Table
        Of the positions, ``(*positions.shape, pairs)``.
    positions : array, int, range or sequence of numbers
        Where the tokens stand.
    centre : int
        The position whose queries and keys keep their size, in tokens; the same for all that meet in a score.
    scale_base : float, optional
        Tokens over which pair i decays by ζᵢ.
    gamma : float, optional
        How far the decay of the fastest pair is from 0.

    Returns
    -------
    tuple of BentTable
        For queries, cos and sin times ``ζᵢ ** ((p - centre) / scale_base)``; and for keys, divided by it.

    Raises
    ------
    TypeError
        If an argument is of another kind, or the arrays come from several libraries.
    ValueError
        If the positions don't have the shape of the table, or a number is out of range.

    Notes
    -----
    Sun et al., *A Length-Extrapolatable Transformer*, arXiv:2212.10554: ``ζᵢ = (2i/d + γ) / (1 + γ)``, where pairs are
    counted from 0 and d is twice their number. The score of a query at m and a key at n has
    ``ζᵢ ** ((m - n) / scale_base)``, whatever the centre is. torchscale, flash-attn, rotary-embedding-torch and
    x-transformers take half of the current length for it (torchscale rounds up, the others down), so that keys from a
    cache don't fit the queries of a longer sequence.

    A float32 scale of the fastest pair leaves its range at 36 000 tokens from the centre (with the defaults; in general
    at ``87 * scale_base / ln(1 / ζ₀)``): it is zero on one side and infinite on the other, and scores are then not
    numbers. A key in float16 leaves its range after 4 500 tokens. So the centre belongs in the middle of the longest
    context, not at its beginning.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import Rope, bending, frequencies
    >>> rope = Rope(frequencies(64), pairing="interleaved")
    >>> p = np.arange(10)
    >>> tables = bending.xpos(rope.table(p), p, centre=2048)
    >>> q, k = rope(np.ones((1, 8, 10, 64)), np.ones((1, 8, 10, 64)), tables)
    """
    lib, whole, part = _numbers(table, positions)
    c, b, g = int32("centre", centre), positive("scale_base", scale_base), positive("gamma", gamma)
    if b < 1:
        raise ArgumentValueError("scale_base", "be at least one token", b)
    n = table.cos.shape[-1]
    # ζᵢ^((p − c) / B) = exp((p − c)·ln ζᵢ / B),  ζᵢ = (2i/d + γ) / (1 + γ),  d = 2n
    rates = [math.log((i / n + g) / (1 + g)) / b for i in range(n)]
    distance = _real(lib, whole - c)
    distance = distance if part is None else distance + part
    power = distance[..., None] * lib.xp.asarray(rates, dtype=distance.dtype, **lib.device_kwargs(distance))
    return _scaled(lib, table, lib.xp.exp(power)), _scaled(lib, table, lib.xp.exp(-power))


def fope(
    table: Table,
    cos_coefficients: Array,
    sin_coefficients: Array,
    /,
    *,
    pairs: int,
    sine_padding: float,
) -> BentTable:
    """
    Let each pair turn by a sum of frequencies: FoPE, Fourier position embedding.

    Parameters
    ----------
    table : Table
        ``(seq, kept)`` or ``(batch, seq, kept)``, of the frequencies that are kept: those above ``2π / M``, with M
        the trained length in tokens.
    cos_coefficients, sin_coefficients : array
        ``(kept, out)``, or ``(heads, kept, out)`` where each head has its own; gradients reach them.
    pairs : int
        Of the result; those behind the first `out` are padded.
    sine_padding : {0.0, 1.0}
        The sine of the pairs that are padded; their cosine is 1.

    Returns
    -------
    BentTable
        ``(..., seq, pairs)``; with heads, ``(1 or batch, heads, seq, pairs)``. Of the dtype of the table.

    Raises
    ------
    TypeError
        If an argument is of another kind, or the arrays come from several libraries.
    ValueError
        If the shapes don't fit, `pairs` is less than `out`, or `sine_padding` is another number.

    Notes
    -----
    Hua et al., *Fourier Position Embedding*, arXiv:2412.17739: ``cos' = cos @ C`` and ``sin' = sin @ S``. The product
    is the library's own, with the digits that it keeps.

    The authors' code, SGLang 0.5.23 and vLLM 0.33 pad the sine with 1, which adds the other feature of the pair;
    another revision of vLLM pads with 0, and the pair passes through. Take what the checkpoint was trained with. Where
    the coefficients are to be divided by their sum over the kept frequencies (``fourier_norm`` of the authors' code,
    off by default), divide them before.
    vLLM and SGLang have coefficients for each head of the keys: for the queries of grouped heads repeat them, and give
    a `Rope` the tables of queries and of keys as a pair.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import Rope, bending, cos_sin, frequencies
    >>> f = frequencies(64)
    >>> kept = tuple(v for v in f if v > 2 * np.pi / 4096)
    >>> C = S = np.broadcast_to(np.eye(len(kept)), (8, len(kept), len(kept)))
    >>> table = bending.fope(cos_sin(np.arange(10), kept), C, S, pairs=32, sine_padding=0.0)
    >>> table.cos.shape
    (1, 8, 10, 32)
    >>> q = Rope(f, pairing="half").apply(np.ones((2, 8, 10, 64)), table)
    """
    _require_table(table)
    named = {"cos_coefficients": cos_coefficients, "sin_coefficients": sin_coefficients}
    lib = library(cos=table.cos, sin=table.sin, **named)
    check_table(lib, *table)
    for name, array in named.items():
        lib.require_floating(name, array)
    shape, kept, n = tuple(cos_coefficients.shape), table.cos.shape[-1], integer("pairs", pairs)
    if (
        shape != tuple(sin_coefficients.shape)
        or len(shape) not in (2, 3)
        or shape[-2] != kept
        or not 0 < shape[-1] <= n
    ):
        wanted = f"be ({kept}, out) or (heads, {kept}, out), with out from 1 to `pairs`, {n}"
        got = Text(f"{shape} and {tuple(sin_coefficients.shape)}")
        raise ArgumentValueError("cos_coefficients and sin_coefficients", wanted, got)
    if table.cos.ndim not in (2, 3):
        raise ArgumentValueError("table", "be (seq, kept) or (batch, seq, kept)", tuple(table.cos.shape))
    if n > MAX_FEATURES // 2:
        raise ArgumentValueError("pairs", f"be at most {MAX_FEATURES // 2}", n)
    if real("sine_padding", sine_padding) not in (0, 1):
        raise ArgumentValueError("sine_padding", "be 0.0 or 1.0", float(sine_padding))

    xp = lib.xp

    def mixed(part: Array, coefficients: Array, padding: float) -> Array:
        if coefficients.ndim == 3:
            part = xp.expand_dims(part, axis=-3)
            part = part if part.ndim == 4 else xp.expand_dims(part, axis=0)
        product = xp.matmul(part, lib.cast(coefficients, part.dtype))
        shape = (*product.shape[:-1], n - product.shape[-1])
        rest = xp.full(shape, padding, dtype=part.dtype, **lib.device_kwargs(part))
        return xp.concat([product, rest], axis=-1)

    return BentTable(mixed(table.cos, cos_coefficients, 1), mixed(table.sin, sin_coefficients, sine_padding))


def temperature(
    table: Table,
    positions: Positions,
    /,
    *,
    beta: float,
    original_length: int,
    offset: int = 0,
) -> BentTable:
    """
    Sharpen attention step by step beyond the trained length: the temperature of Llama 4 and Ministral 3.

    Parameters
    ----------
    table : Table
        Of the positions, ``(*positions.shape, pairs)``.
    positions : array, int, range or sequence of numbers
        Where the tokens stand; negative ones (padding) keep their size.
    beta : float
        How much (``attn_scale``, ``llama_4_scaling_beta``).
    original_length : int
        Tokens from one step to the next (``floor_scale``, ``original_max_position_embeddings``).
    offset : int, optional
        Added to the positions: 1 in Llama 4.

    Returns
    -------
    BentTable
        For queries: cos and sin times ``1 + beta * log(1 + floor((p + offset) / original_length))``.

    Raises
    ------
    TypeError
        If an argument is of another kind, or the arrays come from several libraries.
    ValueError
        If the positions don't have the shape of the table, or a number is out of range.

    Notes
    -----
    After Nakanishi, *Scalable-Softmax Is Superior for Attention*, arXiv:2501.19399. Keys keep the plain table. Llama 4
    (beta 0.1, original_length 8192, offset 1) scales the queries of its layers without rotary embedding; transformers
    counts there from the beginning of the cache, whatever the position ids are. Ministral 3 and Mistral 4 (offset 0)
    scale the queries of all layers, and all of their features.

    The table scales the features that turn, no others. Where features pass through (partial rotary, Mistral 4), or none
    turns (Llama 4), a `Rope` of zero frequencies over the whole head scales them all.

    Examples
    --------
    >>> import numpy as np
    >>> from rope_any import Rope, bending, frequencies
    >>> p, steps = np.arange(16_380, 16_390), {"beta": 0.1, "original_length": 8192}
    >>> rope = Rope(frequencies(64), pairing="half")
    >>> table = rope.table(p)
    >>> q, k = rope(*np.ones((2, 1, 8, 10, 64)), (bending.temperature(table, p, **steps), table))

    Where nothing turns:

    >>> still = Rope((0.0,) * 32, pairing="half")
    >>> warm = bending.temperature(still.table(p), p, offset=1, **steps)
    >>> q = still.apply(np.ones((1, 8, 10, 64)), warm)
    >>> print(q[0, 0, :, 0].round(4))
    [1.0693 1.0693 1.0693 1.1099 1.1099 1.1099 1.1099 1.1099 1.1099 1.1099]
    """
    lib, whole, part = _numbers(table, positions)
    xp = lib.xp
    b, length = positive("beta", beta), int32("original_length", original_length, least=1)
    p = whole + int32("offset", offset)
    if part is not None:
        p = p + xp.astype(xp.floor(part), p.dtype)
    p = xp.maximum(p, xp.zeros_like(p))  # clip of array-api-compat has the host wait for CuPy
    # 1 + β·ln(1 + ⌊p / L⌋)
    steps = xp.floor(p / length) if p.dtype == xp.float64 else _real(lib, p // length)
    return _scaled(lib, table, (1 + b * xp.log1p(steps))[..., None])


def _require_table(table: object) -> None:
    if not isinstance(table, Table):
        raise ArgumentTypeError("table", "be a Table, as cos_sin and Rope.table make them", Text(type(table).__name__))


def _numbers(table: Table, positions: Positions) -> tuple[Library, Array, Array | None]:
    """Return the library of a table, and its positions as `as_numbers` does."""
    _require_table(table)
    given = {"positions": positions} if is_array(positions) else {}
    lib = library(cos=table.cos, sin=table.sin, **given)
    check_table(lib, *table)
    whole, part = as_numbers(lib, table.cos, positions, wide=lib.has_float64(table.cos))
    if whole.shape != table.cos.shape[:-1]:
        shape = tuple(table.cos.shape)
        wanted = f"be those of the table, {shape[:-1]} for a table {shape}"
        raise ArgumentValueError("positions", wanted, tuple(whole.shape))
    return lib, whole, part


def _real(lib: Library, x: Array) -> Array:
    """Return float64 as it is, and integers in float32."""
    return x if x.dtype == lib.xp.float64 else lib.cast(x, lib.xp.float32)


def _scaled(lib: Library, table: Table, scale: Array) -> BentTable:
    scale = lib.cast(scale, table.cos.dtype)
    return BentTable(table.cos * scale, table.sin * scale)
