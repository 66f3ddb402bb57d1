"""
Scale or mix a cos/sin table after it is made: Table -> BentTable.

The results are not rotations, so `rotate` and `Rope` accept them, but not for the inverse. Positions must be those of
the table, on one axis, and fit int32 without float64. An argument of a wrong type raises TypeError, and a shape that
doesn't fit or a number out of range ValueError.
"""

from rope_any._arrays import Array, Library, is_array, library, type_name
from rope_any._checks import MAX_FEATURES, ArgumentTypeError, ArgumentValueError, Text, int32, integer, positive, real
from rope_any._positions import Positions, int32_or_symbol, split_positions
from rope_any._rotation import BentTable, Table, check_table

__all__ = ["fope", "temperature", "xpos"]


def xpos(
    table: Table, positions: Positions, /, *, centre: int, scale_base: float = 512.0, gamma: float = 0.4
) -> tuple[BentTable, BentTable]:
    """
    Make scores decay with distance, fastest for fast pairs: xPos.

    Parameters
    ----------
    table, positions : Table and positions
        As for `temperature`.
    centre : int
        The position at which the scale is 1: the middle of the longest context, and the same for all queries and keys
        that form scores.
    scale_base : float, optional
        The distance in tokens over which pair i decays by ζᵢ.
    gamma : float, optional
        The offset γ in ζᵢ, which keeps the decay of the fastest pair above 0.

    Returns
    -------
    tuple of BentTable
        For queries, cos and sin times ``ζᵢ ** ((p - centre) / scale_base)``; for keys, divided by it.

    Notes
    -----
    Sun et al., *A Length-Extrapolatable Transformer*, arXiv:2212.10554: ``ζᵢ = (2i/d + γ) / (1 + γ)``, with pairs
    counted from 0 and d twice their number. The score of a query at m and a key at n is scaled by ``ζᵢ ** ((m - n) /
    scale_base)`` for any centre. Other libraries use half of the current length as the centre, so their cached keys
    don't match the queries of a longer sequence.

    With the defaults, the float32 scale of the fastest pair overflows at 36 300 tokens from the centre (in general at
    ``87 * scale_base / ln(1 / ζ₀)``), and scores become NaN. A float16 key overflows after 4 500 tokens.

    Examples
    --------
    >>> rope = ra.Rope(ra.frequencies(64), pairing="interleaved")
    >>> p = np.arange(10)
    >>> tables = ra.bending.xpos(rope.table(p), p, centre=2048)
    >>> q, k = rope(np.ones((1, 8, 10, 64)), np.ones((1, 8, 10, 64)), tables)
    """
    lib, numbers, rest = _table_numbers(table, positions)
    c, b, g = int32("centre", centre), positive("scale_base", scale_base), positive("gamma", gamma)
    if b < 1:
        raise ArgumentValueError("scale_base", "be at least one token", b)
    if g < 1e-6:
        raise ArgumentValueError("gamma", "be at least 1e-6", g)
    n = table.cos.shape[-1]
    distance = _as_floats(lib, numbers - c)
    distance = distance if rest is None else distance + rest
    # ζᵢ^((p − c) / B) = exp((p − c)·ln ζᵢ / B),  ζᵢ = (2i/d + γ) / (1 + γ),  d = 2n. Near 1, ζᵢ has too few digits for
    # its logarithm, so there it is ln(1 − (1 − ζᵢ)).
    xp, step = lib.xp, 1 / (n + n * g)
    i = xp.arange(n, dtype=distance.dtype, **lib.device_kwargs(distance))
    near, far = xp.log1p((i - n) * step), xp.log(i * step + g / (1 + g))
    rates = lib.broadcast_to_rank(xp.where(i + i > n, near, far) / b, distance.ndim + 1)
    power = distance[..., None] * rates
    return _scale_table(lib, table, lib.xp.exp(power)), _scale_table(lib, table, lib.xp.exp(-power))


def fope(
    table: Table, cos_coefficients: Array, sin_coefficients: Array, /, *, pairs: int, sine_padding: float
) -> BentTable:
    """
    Give each pair a mixture of the cosines and sines of several frequencies: FoPE, Fourier position embedding.

    Parameters
    ----------
    table : Table
        ``(seq, kept)`` or ``(batch, seq, kept)``, of the kept frequencies: those above ``2π / M``, with M the trained
        length in tokens.
    cos_coefficients, sin_coefficients : array
        ``(kept, out)``, or ``(heads, kept, out)`` if each head has its own. They receive gradients.
    pairs : int
        The number of pairs of the result, at least `out`; those after the first `out` are padded.
    sine_padding : {0.0, 1.0}
        The sine of the padded pairs; their cosine is 1.

    Returns
    -------
    BentTable
        ``(..., seq, pairs)``; with heads, ``(..., heads, seq, pairs)`` as of `cos_sin`. Its dtype is that of the table.

    Notes
    -----
    Hua et al., *Fourier Position Embedding*, arXiv:2412.17739: ``cos' = cos @ C`` and ``sin' = sin @ S``, by the
    library's own matmul and at its precision, which autocast does not change.

    Use the padding of training: the authors' code, SGLang and vLLM 0.33 pad the sine with 1, which adds the other
    feature of the pair; with 0 the pair passes through. For the authors' ``fourier_norm``, divide the coefficients by
    their sum over the kept frequencies. Rotate batches by a `Rope` with a row of frequencies for each head of the
    coefficients: it repeats key heads, as vLLM's and SGLang's are, for the queries of grouped heads. A `Rope` with one
    row takes the first axis of a table for the batch.

    Examples
    --------
    >>> f = ra.frequencies(64)
    >>> kept = tuple(v for v in f if v > 2 * np.pi / 4096)
    >>> C = S = np.broadcast_to(np.eye(len(kept)), (8, len(kept), len(kept)))
    >>> table = ra.bending.fope(ra.cos_sin(np.arange(10), kept), C, S, pairs=32, sine_padding=0.0)
    >>> table.cos.shape
    (8, 10, 32)
    >>> q = ra.Rope(((f,),) * 8, pairing="half").apply(np.ones((2, 16, 10, 64)), table)
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

    def mix(part: Array, coefficients: Array, padding: float) -> Array:
        """Return ``part @ coefficients`` of cos or sin, padded by `padding` to n pairs; heads, if any, are axis -3."""
        if coefficients.ndim == 3:
            part = xp.expand_dims(part, axis=-3)
        product = lib.matmul(part, lib.cast(coefficients, part.dtype))
        shape = (*product.shape[:-1], n - product.shape[-1])
        rest = xp.full(shape, padding, dtype=part.dtype, **lib.device_kwargs(part))
        return lib.concat([product, rest])

    return BentTable(mix(table.cos, cos_coefficients, 1), mix(table.sin, sin_coefficients, sine_padding))


def temperature(
    table: Table, positions: Positions, /, *, beta: float, original_length: int, offset: int = 0
) -> BentTable:
    """
    Scale queries by a factor that grows with the position, in steps: the temperature of Llama 4 and Ministral 3.

    Parameters
    ----------
    table : Table
        The table of the positions, ``(*positions.shape, pairs)``.
    positions : array, int, range or sequence of numbers
        The positions of the tokens; the scale of negative ones (padding) is 1.
    beta : float
        The factor β of the scale below (``attn_scale``, ``llama_4_scaling_beta``).
    original_length : int
        The length of a step in tokens (``floor_scale``, ``original_max_position_embeddings``).
    offset : int, optional
        A number added to the positions: 1 in Llama 4.

    Returns
    -------
    BentTable
        The table for queries: cos and sin times ``1 + beta * log(1 + floor((p + offset) / original_length))``.

    Notes
    -----
    After Nakanishi, *Scalable-Softmax Is Superior for Attention*, arXiv:2501.19399. Keys keep the plain table. Llama 4
    (beta 0.1, original_length 8192, offset 1) scales the queries of layers without rotary embedding, which transformers
    counts from the beginning of the cache; Ministral 3 and Mistral 4 (offset 0) those of all layers.

    Only the rotary slice is scaled. If features that pass through must be scaled too (Mistral 4), or none is rotated
    (Llama 4), use a `Rope` of zero frequencies over the whole head.

    Examples
    --------
    >>> p = np.arange(16_380, 16_390)
    >>> steps = {"beta": 0.1, "original_length": 8192}
    >>> rope = ra.Rope(ra.frequencies(64), pairing="half")
    >>> table = rope.table(p)
    >>> bent = ra.bending.temperature(table, p, **steps)
    >>> q, k = rope(*np.ones((2, 1, 8, 10, 64)), (bent, table))

    For a layer without rotary embedding:

    >>> still = ra.Rope((0.0,) * 32, pairing="half")
    >>> warm = ra.bending.temperature(still.table(p), p, offset=1, **steps)
    >>> q = still.apply(np.ones((1, 8, 10, 64)), warm)
    >>> print(q[0, 0, :, 0].round(4))
    [1.0693 1.0693 1.0693 1.1099 1.1099 1.1099 1.1099 1.1099 1.1099 1.1099]
    """
    lib, numbers, rest = _table_numbers(table, positions)
    xp = lib.xp
    b, length = positive("beta", beta), int32("original_length", original_length, least=1)
    p = numbers + int32_or_symbol("offset", offset)
    if rest is not None:
        p = p + xp.astype(xp.floor(rest), p.dtype)
    p = xp.maximum(p, xp.zeros_like(p))  # array-api-compat's clip synchronises with CuPy's GPU
    # 1 + β·ln(1 + ⌊p / L⌋)
    steps = xp.floor(p / length) if p.dtype == lib.float64 else _as_floats(lib, p // length)
    return _scale_table(lib, table, (1 + b * xp.log1p(steps))[..., None])


def _require_table(table: object) -> None:
    """Raise unless the argument `table` is a `Table`."""
    if not isinstance(table, Table):
        wanted, hint = "be a Table, as cos_sin and Rope.table return it", "give Table(cos, sin)"
        raise ArgumentTypeError("table", wanted, Text(type_name(table)), hint)


def _table_numbers(table: Table, positions: Positions) -> tuple[Library, Array, Array | None]:
    """Return (library, float64 positions, None) or (library, int32, float32 rest or None); raise unless one per row."""
    _require_table(table)
    given = {"positions": positions} if is_array(positions) else {}
    lib = library(cos=table.cos, sin=table.sin, **given)
    check_table(lib, *table)
    numbers, rest = split_positions(lib, positions, like=table.cos)
    if lib.has_float64(table.cos):
        numbers = lib.cast(numbers, lib.float64)
    if numbers.shape != table.cos.shape[:-1]:
        shape = tuple(table.cos.shape)
        wanted = f"be those of the table, {shape[:-1]} for a table {shape}"
        raise ArgumentValueError("positions", wanted, tuple(numbers.shape))
    return lib, numbers, rest


def _as_floats(lib: Library, x: Array) -> Array:
    """Return a float64 array unchanged, and an array of any other dtype in float32."""
    return x if x.dtype == lib.float64 else lib.cast(x, lib.xp.float32)


def _scale_table(lib: Library, table: Table, scale: Array) -> BentTable:
    """Return a table with cos and sin times `scale`, of shape ``(..., 1)`` or ``(..., pairs)``."""
    scale = lib.cast(scale, table.cos.dtype)
    return BentTable(table.cos * scale, table.sin * scale)
