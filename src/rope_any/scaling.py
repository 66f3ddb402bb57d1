"""
Extend the context of a model: rescale its frequencies, and compute the attention factor that goes with them.

Each scheme takes a tuple of frequencies in radians per position, from fast to slow, and returns a tuple of the same
length, so schemes can be combined. If frequencies are learned (an array), multiply them by the ratio of the scaled and
the unscaled ones. Lengths are in tokens, and a trained length is that before any scaling. With a scheme that depends on
the length of the sequence, keys that were rotated for one length don't match queries of another (see
`Rope.reposition`). An argument of a wrong type raises TypeError, and a number that is not finite or out of range
ValueError.
"""

import math
from collections.abc import Sequence

from rope_any._checks import ArgumentTypeError, ArgumentValueError, flag, positive, real
from rope_any._frequencies import Row, as_row

__all__ = [
    "dynamic_ntk",
    "dype",
    "linear",
    "llama3",
    "longrope",
    "longrope_attention_factor",
    "ntk",
    "ntk_by_parts",
    "proportional",
    "riflex",
    "yarn",
    "yarn_attention_factor",
]


def linear(frequencies: Sequence[float], factor: float, /) -> Row:
    """
    Divide all frequencies by one factor: position interpolation.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position.
    factor : float
        How many times longer the context becomes.

    Returns
    -------
    tuple of float
        ``f / factor``.

    Notes
    -----
    Chen et al., *Extending Context Window of Large Language Models via Positional Interpolation*, arXiv:2306.15595.
    Some engines divide the positions instead, with the same result.

    Examples
    --------
    >>> ra.scaling.linear((1.0, 0.5), 4.0)
    (0.25, 0.125)
    """
    s = _factor(factor)
    return tuple(f / s for f in as_row(frequencies))


def ntk(frequencies: Sequence[float], factor: float, /) -> Row:
    """
    Raise the base so that the slowest pair is interpolated and the fastest is kept: NTK-aware scaling.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position, a geometric ramp.
    factor : float
        How many times slower the slowest pair becomes.

    Returns
    -------
    tuple of float
        The frequencies of ``base * factor ** (d / (d - 2))``, which are ``fᵢ * factor ** (-i / (pairs - 1))``.

    Notes
    -----
    By bloc97 (2023). vLLM's ``ntk`` is another form, from kexue.fm/archives/9706. diffusers multiplies the base by the
    factor itself: use `frequencies` with ``base * factor``.

    Examples
    --------
    >>> ra.scaling.ntk((1.0, 0.1, 0.01), 4.0)
    (1.0, 0.05, 0.0025)
    """
    s, row = _factor(factor), as_row(frequencies)
    last = max(len(row) - 1, 1)
    # b' = b·s^(d/(d−2))  ⇒  f'ᵢ = fᵢ·s^(−2i/(d−2)) = fᵢ·s^(−i/(n−1)),  d = 2n
    return tuple(f * s ** (-i / last) for i, f in enumerate(row))


def dynamic_ntk(frequencies: Sequence[float], factor: float, /, *, length: float, trained_length: float) -> Row:
    """
    Scale as `ntk`, by a factor that grows with the sequence length: dynamic NTK.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position, a geometric ramp.
    factor : float
        The factor of the config.
    length : float
        The sequence length; up to `trained_length` nothing changes.
    trained_length : float
        The trained length (``max_position_embeddings``).

    Returns
    -------
    tuple of float
        The frequencies of `ntk` with the factor ``factor * n / M - (factor - 1)``, where n is the larger length and M
        the trained one.

    Notes
    -----
    By emozilla (2023), as in transformers.

    Examples
    --------
    >>> ra.scaling.dynamic_ntk((1.0, 0.1), 2.0, length=8192, trained_length=4096)
    (1.0, 0.03333333333333333)
    """
    s, m = _factor(factor), positive("trained_length", trained_length)
    n = max(positive("length", length), m)
    return ntk(frequencies, max(s * n / m - (s - 1), 1))  # at n = m it rounds to a little less


def ntk_by_parts(
    frequencies: Sequence[float], factor: float, /, *, original_length: float, alpha: float = 1.0, beta: float = 32.0
) -> Row:
    """
    Interpolate the pairs that never complete a full turn within the trained length, keep those that complete many.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position.
    factor : float
        How many times longer the context becomes.
    original_length : float
        The trained length.
    alpha, beta : float, optional
        Numbers of turns within the trained length: up to `alpha` a pair is interpolated, from `beta` on it is kept. If
        they are equal, the ramp is a step.

    Returns
    -------
    tuple of float
        ``(1 - γ) f / factor + γ f``, where γ rises from 0 to 1 between `alpha` and `beta` turns.

    Notes
    -----
    Peng et al., *YaRN*, arXiv:2309.00071, section 3.2: the ramp is linear in the number of turns, while that of `yarn`
    is linear in the pair index.

    Examples
    --------
    >>> ra.scaling.ntk_by_parts((1.0, 1e-4), 4.0, original_length=4096)
    (1.0, 2.5e-05)
    """
    s, row, length = _factor(factor), as_row(frequencies), positive("original_length", original_length)
    a, b = _ordered("alpha", alpha, "beta", beta)
    # r = L f / 2π,  γ = (r − α) / (β − α), and a step if α = β
    turns = (abs(f) * length / (2 * math.pi) for f in row)
    ramps = (_clip((r - a) / (b - a)) if a < b else float(r > a) for r in turns)
    return tuple(_blend(f / s, f, ramp) for f, ramp in zip(row, ramps, strict=True))


def yarn(
    frequencies: Sequence[float],
    factor: float,
    /,
    *,
    base: float,
    original_length: float,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> Row:
    """
    Interpolate slow pairs and keep fast ones, with a ramp over the pair index: YaRN.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position.
    factor : float
        How many times longer the context becomes.
    base : float
        The base of the frequencies, from which the ends of the ramp follow.
    original_length : float
        The trained length.
    beta_fast, beta_slow : float, optional
        Numbers of turns within the trained length at the ends of the ramp.
    truncate : bool, optional
        Whether to round the ends of the ramp outwards to whole indices.

    Returns
    -------
    tuple of float
        ``f (1 - ramp) + f / factor * ramp``. The attention factor is `yarn_attention_factor`.

    Notes
    -----
    Peng et al., arXiv:2309.00071; the ramp is that of its authors' code and of transformers, its ends clipped to ``[0,
    d - 1]``.

    Examples
    --------
    >>> f = ra.frequencies(8)
    >>> ra.scaling.yarn(f, 4.0, base=10_000.0, original_length=4096)
    (1.0, 0.1, 0.00625, 0.00025)
    """
    s, row = _factor(factor), as_row(frequencies)
    b, length = positive("base", base), positive("original_length", original_length)
    slow, fast = _ordered("beta_slow", beta_slow, "beta_fast", beta_fast)
    low, high = (_pair_index(len(row), turns, b, length) for turns in (fast, slow))
    if flag("truncate", truncate):
        low, high = math.floor(low), math.ceil(high)
    return _blend_by_pair(row, [f / s for f in row], max(low, 0), min(high, 2 * len(row) - 1))


def dype(frequencies: Sequence[float], factor: float, /, *, base: float, original_length: float, noise: float) -> Row:
    """
    Scale one axis of an image by an amount that depends on the denoising step: DyPE, in its form with YaRN.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position of the rows or of the columns of an image, not of time.
    factor : float
        How many times more patches than in training the axis has; up to 1 nothing changes.
    base, original_length : float
        As for `yarn`, but L counts the patches of the axis: 64 in Flux, 83 in Qwen-Image.
    noise : float
        The noise level t of the step, from 1 (only noise) to 0; at 0 nothing changes.

    Returns
    -------
    tuple of float
        From slow to fast pairs, with κ = t²: ``f / factor``, which becomes `ntk` between 0.75κ and 1.25κ turns within
        L, and ``f`` between 2κ and 16κ turns.

    Notes
    -----
    Issachar et al., *DyPE*, arXiv:2510.20766. Both ramps are those of `yarn`, with ends up to the number of pairs. The
    authors' code lacks that limit, and multiplies cosine and sine of this axis by `yarn_attention_factor`. The form
    with NTK is ``ntk(frequencies, max(factor, 1) ** (2 * noise**2))``.

    Examples
    --------
    >>> f, flux = ra.frequencies(56), {"base": 10_000.0, "original_length": 64}
    >>> [round(ra.scaling.dype(f, 4.0, noise=t, **flux)[14] / f[14], 3) for t in (1.0, 0.1, 0.05)]
    [0.25, 0.854, 1.0]
    """
    row, s, b = as_row(frequencies), positive("factor", factor), positive("base", base)
    length, t = positive("original_length", original_length), real("noise", noise)
    if not 0 <= t <= 1:
        raise ArgumentValueError("noise", "be between 0 and 1", t)
    if s <= 1 or not (kappa := t * t):
        return row

    def ramp(kept: Sequence[float], scaled: Sequence[float], fast: float, slow: float) -> Row:
        """Return `kept` from `fast` · κ turns within L on, `scaled` up to `slow` · κ, with a linear ramp between."""
        n = len(row)
        low, high = (min(max(_pair_index(n, turns * kappa, b, length), 0), n) for turns in (fast, slow))
        return _blend_by_pair(kept, scaled, math.floor(low), math.ceil(high))

    return ramp(row, ramp(ntk(row, s), [f / s for f in row], 1.25, 0.75), 16, 2)


def longrope(
    frequencies: Sequence[float],
    /,
    *,
    short_factor: Sequence[float],
    long_factor: Sequence[float],
    original_length: float,
    length: float,
) -> Row:
    """
    Divide each frequency by a factor of its own, from one of two lists: LongRoPE.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position.
    short_factor, long_factor : sequence of float
        One divisor for each pair.
    original_length : float
        The trained length.
    length : float
        The sequence length; above `original_length` the long list is used.

    Returns
    -------
    tuple of float
        ``f / factor``, pair by pair. The attention factor is `longrope_attention_factor`.

    Notes
    -----
    Ding et al., *LongRoPE*, arXiv:2402.13753.

    Examples
    --------
    >>> lists = {"short_factor": (1.0, 2.0), "long_factor": (2.0, 8.0)}
    >>> ra.scaling.longrope((1.0, 0.5), **lists, original_length=4096, length=4097)
    (0.5, 0.0625)
    """
    row = as_row(frequencies)
    lists = {"short_factor": short_factor, "long_factor": long_factor}
    for name, factors in lists.items():
        if not isinstance(factors, tuple | list):
            raise ArgumentTypeError(name, "be a tuple or a list of numbers", factors)
    divisors = {name: tuple(positive(name, factor) for factor in factors) for name, factors in lists.items()}
    for name, factors in divisors.items():
        if len(factors) != len(row):
            raise ArgumentValueError(name, f"have one number for each of {len(row)} pairs", len(factors))
    long = positive("length", length) > positive("original_length", original_length)
    return tuple(f / e for f, e in zip(row, divisors["long_factor" if long else "short_factor"], strict=True))


def llama3(
    frequencies: Sequence[float],
    factor: float,
    /,
    *,
    original_length: float,
    low_freq_factor: float,
    high_freq_factor: float,
) -> Row:
    """
    Interpolate slow pairs and keep fast ones, with a ramp over the number of turns: Llama 3.1.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position.
    factor : float
        How many times longer the context becomes.
    original_length : float
        The trained length.
    low_freq_factor, high_freq_factor : float
        Numbers of turns within the trained length, as ``alpha`` and ``beta`` of `ntk_by_parts`. They are equal in
        Llama 4 Scout.

    Returns
    -------
    tuple of float
        ``(1 - t) f / factor + t f``, where t rises from 0 to 1 between the two numbers of turns.

    Notes
    -----
    Published with Llama 3.1 (factor 8, length 8192, 1 and 4 turns); `ntk_by_parts` with other names and no defaults.

    Examples
    --------
    >>> band = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    >>> ra.scaling.llama3((1.0, 1e-4), 8.0, original_length=8192, **band)
    (1.0, 1.25e-05)
    """
    low, high = _ordered("low_freq_factor", low_freq_factor, "high_freq_factor", high_freq_factor)
    return ntk_by_parts(frequencies, factor, original_length=original_length, alpha=low, beta=high)


def proportional(frequencies: Sequence[float], proportion: float, /) -> Row:
    """
    Keep the frequencies of the fastest pairs and set the others to 0: p-RoPE.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per position, of the whole head.
    proportion : float
        The share of the features that are rotated, from 0 to 1.

    Returns
    -------
    tuple of float
        The first ``int(proportion * pairs)`` frequencies, and zeros.

    Notes
    -----
    Barbero et al., *Round and Round We Go!*, arXiv:2410.06205, as in Gemma 4. Partial rotary differs: its exponents run
    over the rotary slice, and pairs are formed within it. For the ``factor`` of transformers use `linear`.

    Examples
    --------
    >>> ra.scaling.proportional(ra.frequencies(8), 0.5)
    (1.0, 0.1, 0.0, 0.0)
    """
    row, p = as_row(frequencies), real("proportion", proportion)
    if not 0 <= p <= 1:
        raise ArgumentValueError("proportion", "be between 0 and 1", p)
    rotated = int(p * 2 * len(row) // 2)
    return tuple(f if i < rotated else 0.0 for i, f in enumerate(row))


def riflex(frequencies: Sequence[float], repeats_at: float, /, *, length: float) -> Row:
    """
    Slow one pair of the time axis down, so that a longer video does not repeat: RIFLEx.

    Parameters
    ----------
    frequencies : tuple of float
        Radians per latent frame, of the time axis only; give the result to `rope_any.axes.axial`.
    repeats_at : float
        The latent frame N at which videos begin to repeat, 50 in HunyuanVideo and 20 in CogVideoX; it selects the pair.
        For a known pair k, counted from 1, give ``2π / f[k - 1]``.
    length : float
        The length L of the video in latent frames, ``(frames - 1) // 4 + 1`` in these models.

    Returns
    -------
    tuple of float
        ``0.9 · 2π / L`` for the first pair with the smallest ``|round(2π / f) - N|``; the others are kept.

    Notes
    -----
    Zhao et al., *RIFLEx*, arXiv:2502.15894, with the 0.9 of the authors' code. It is for L above N and needs no
    training.

    Examples
    --------
    >>> time = ra.frequencies(16, base=256.0)  # HunyuanVideo: k = 4
    >>> [round(f, 4) for f in ra.scaling.riflex(time, 50, length=66)[2:5]]
    [0.25, 0.0857, 0.0625]
    """
    row, n, longest = as_row(frequencies), positive("repeats_at", repeats_at), positive("length", length)
    off = [abs(round(2 * math.pi / max(abs(f), 1e-300)) - n) for f in row]
    changed = off.index(min(off))
    return tuple(0.9 * 2 * math.pi / longest if i == changed else f for i, f in enumerate(row))


def yarn_attention_factor(
    factor: float, /, *, mscale: float | None = None, mscale_all_dim: float | None = None
) -> float:
    """
    Return YaRN's attention factor, which multiplies cosine and sine.

    Parameters
    ----------
    factor : float
        How many times longer the context becomes.
    mscale, mscale_all_dim : float, optional
        Keys of DeepSeek's configs. They are used only if both are given and neither is 0.

    Returns
    -------
    float
        ``m(1)``, or ``m(mscale) / m(mscale_all_dim)``, with ``m(c) = 0.1 c ln(factor) + 1``; 1 for factors up to 1.

    Notes
    -----
    From arXiv:2309.00071, equation 22: multiplying q and k by m multiplies scores by m². With DeepSeek's keys the model
    also scales scores by ``m(mscale_all_dim)²``.

    Examples
    --------
    >>> round(ra.scaling.yarn_attention_factor(40.0), 6)
    1.368888
    """
    s = positive("factor", factor)

    def m(c: float) -> float:
        """Return ``0.1 c ln(factor) + 1``; 1 for factors up to 1."""
        return 0.1 * c * math.log(s) + 1 if s > 1 else 1.0

    given = {"mscale": mscale, "mscale_all_dim": mscale_all_dim}
    scales = [real(name, scale) and positive(name, scale) for name, scale in given.items() if scale is not None]
    return m(scales[0]) / m(scales[1]) if len(scales) == 2 and all(scales) else m(1)


def longrope_attention_factor(factor: float, /, *, original_length: float) -> float:
    """
    Return LongRoPE's attention factor, which multiplies cosine and sine.

    Parameters
    ----------
    factor : float
        How many times longer the context becomes.
    original_length : float
        The trained length, above 1.

    Returns
    -------
    float
        ``sqrt(1 + ln(factor) / ln(original_length))``; 1 for factors up to 1.

    Notes
    -----
    From Phi-3, not from the paper (arXiv:2402.13753). An attention factor in the config replaces it. PhiMoE has two,
    for short and for long sequences.

    Examples
    --------
    >>> round(ra.scaling.longrope_attention_factor(32.0, original_length=4096), 6)
    1.190238
    """
    s, length = positive("factor", factor), positive("original_length", original_length)
    if length <= 1:
        raise ArgumentValueError("original_length", "be more than one token", length)
    return math.sqrt(1 + math.log(s) / math.log(length)) if s > 1 else 1.0


def _factor(value: object) -> float:
    """Return the factor of a scheme as a float; raise unless it is positive and finite."""
    if isinstance(value, tuple | list):
        raise ArgumentTypeError("factor", "be a real number", value, "the frequencies come before it")
    return positive("factor", value)


def _ordered(low_name: str, low: float, high_name: str, high: float) -> tuple[float, float]:
    """Return (low, high) as floats; raise unless they are positive and `high` is not below `low`."""
    low, high = positive(low_name, low), positive(high_name, high)
    if low > high:
        raise ArgumentValueError(high_name, f"be at least `{low_name}`, {low}", high)
    return low, high


def _pair_index(pairs: int, turns: float, base: float, length: float) -> float:
    """Return the index, maybe a fraction, of the pair that makes `turns` turns in `length`; raise if the base is 1."""
    if base == 1:
        raise ArgumentValueError("base", "not be 1, which has no ramp")
    return pairs * math.log(length / (turns * 2 * math.pi)) / math.log(base)


def _blend_by_pair(at_0: Sequence[float], at_1: Sequence[float], low: float, high: float) -> Row:
    """Return `at_0` up to index `low`, `at_1` from index `high` on, a linear ramp between; both may be fractions."""
    high += 0.001 * (low == high)
    pairs = enumerate(zip(at_0, at_1, strict=True))
    return tuple(_blend(a, b, _clip((i - low) / (high - low))) for i, (a, b) in pairs)


def _clip(x: float) -> float:
    """Clip a number to the range from 0 to 1."""
    return min(max(x, 0.0), 1.0)


def _blend(at_0: float, at_1: float, ramp: float) -> float:
    """Return at_0 · (1 − ramp) + at_1 · ramp, which is exact for a ramp of 0 or 1."""
    return at_0 * (1 - ramp) + at_1 * ramp
