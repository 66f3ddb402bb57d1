"""
Context extension, compared with the papers' formulas.

The schemes that configs name are compared with the functions of transformers in tests/test_config_forms.py.
"""

import math
from inspect import signature

import numpy as np
import pytest
from oracle import mp

import rope_any as ra
from rope_any import scaling

F = ra.frequencies(16, base=10_000.0)


def draw(rng):
    """Return a head_dim, a base and a factor."""
    return 2 * int(rng.integers(4, 129)), float(10 ** rng.uniform(2.5, 7)), float(rng.uniform(1, 64))


def test_ntk_is_a_larger_base():
    for s in (1.0, 2.5, 40.0):
        assert scaling.ntk(F, s) == pytest.approx(ra.frequencies(16, base=10_000.0 * s ** (16 / 14)), rel=1e-13)
    assert scaling.ntk((0.5,), 8.0) == (0.5,)
    assert all(scaling.dynamic_ntk(F, 4.0, length=n, trained_length=4096) == F for n in (1, 100, 4096))


def test_ntk_by_parts_equals_60_digits():
    s, length, alpha, beta = 8, 2048, 1, 32
    for f, got in zip(F, scaling.ntk_by_parts(F, s, original_length=length), strict=True):
        r = length / (2 * mp.pi / mp.mpf(f))
        gamma = min(max((r - alpha) / (beta - alpha), 0), 1)
        assert got == pytest.approx(float((1 - gamma) * mp.mpf(f) / s + gamma * mp.mpf(f)), rel=1e-14)


def test_proportional_can_rotate_no_pair_or_all():
    assert scaling.proportional(F, 0) == (0.0,) * len(F)
    assert scaling.proportional(F, 1) == F


@pytest.mark.parametrize(
    ("options", "kept"),
    [({"original_length": 5}, 1), ({"original_length": 4096, "beta_fast": 8, "beta_slow": 8, "truncate": False}, 8)],
)
def test_yarn_with_equal_ends_has_no_ramp(options, kept):
    f = ra.frequencies(32)
    assert scaling.yarn(f, 4.0, base=1e4, **options) == (*f[:kept], *(one / 4 for one in f[kept:]))


def dype_in_60_digits(dim, base, factor, length, noise):
    """Return the frequencies of DyPE's YaRN form: position interpolation, NTK, unscaled, from slow pairs to fast."""
    base, factor, kappa = mp.mpf(base), mp.mpf(factor), mp.mpf(noise) ** 2
    plain = [base ** (-mp.mpf(i) / dim) for i in range(0, dim, 2)]
    ntk = [(base * factor ** (mp.mpf(dim) / (dim - 2))) ** (-mp.mpf(i) / dim) for i in range(0, dim, 2)]

    def mask(rotations_0, rotations_1):
        """Return the weight of each pair by the formula of DyPE."""
        ends = [dim * mp.log(length / (2 * mp.pi * r * kappa)) / (2 * mp.log(base)) for r in (rotations_0, rotations_1)]
        low, high = (min(max(end, 0), dim // 2) for end in (mp.floor(ends[0]), mp.ceil(ends[1])))
        return [1 - min(max((i - low) / (high - low if high != low else 0.001), 0), 1) for i in range(dim // 2)]

    mixed = [p / factor * (1 - m) + n * m for p, n, m in zip(plain, ntk, mask(1.25, 0.75), strict=True)]
    return [float(f * (1 - m) + p * m) for f, p, m in zip(mixed, plain, mask(16, 2), strict=True)]


@pytest.mark.parametrize("seed", range(40))
def test_dype_equals_60_digits(seed):
    rng = np.random.default_rng(seed)
    dim, base, factor = draw(rng)
    noise, length = float(rng.uniform(0.001, 1) ** 2), int(rng.integers(16, 256))
    expected = dype_in_60_digits(dim, base, max(factor, 1.01), length, noise)
    options = {"base": base, "original_length": length, "noise": noise}
    found = scaling.dype(ra.frequencies(dim, base=base), max(factor, 1.01), **options)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)


def test_dype_ends_in_the_frequencies_of_training():
    f, flux = ra.frequencies(56), {"base": 10_000.0, "original_length": 64}
    assert scaling.dype(f, 1.0, noise=1.0, **flux) == scaling.dype(f, 0.5, noise=1.0, **flux) == f
    for noise in (0, 1e-200, 1e-154, 0.002):  # the authors' code divides all frequencies by the factor, or by zero
        assert scaling.dype(f, 4.0, noise=noise, **flux) == f
    # ratios of the authors' code
    by_step = {1.0: (0.851, 0.25, 0.25, 0.25), 0.3: (1, 0.408, 0.25, 0.25), 0.1: (1, 0.854, 0.358, 0.25)}
    for noise, ratios in by_step.items():
        got = scaling.dype(f, 4.0, noise=noise, **flux)
        assert tuple(round(got[i] / f[i], 3) for i in (4, 14, 20, 27)) == ratios


def test_riflex_of_the_published_models():
    """HunyuanVideo: base 256, 16 features of time, repeats at latent frame 50. CogVideoX-5B: base 10 000, at 20."""
    f = ra.frequencies(16, base=256.0)
    assert [round(2 * math.pi / one) for one in f] == [6, 13, 25, 50, 101, 201, 402, 804]
    assert f[3] == 0.125
    slow = scaling.riflex(f, 50, length=66)
    assert round(slow[3], 4) == 0.0857
    assert (*slow[:3], *slow[4:]) == (*f[:3], *f[4:])
    f = ra.frequencies(16)
    assert [g == h for g, h in zip(scaling.riflex(f, 20, length=25), f, strict=True)].index(False) == 1


@pytest.mark.parametrize("seed", range(20))
def test_riflex_equals_60_digits(seed):
    rng = np.random.default_rng(seed)
    dim, base, _ = draw(rng)
    n, length = int(rng.integers(4, 3000)), int(rng.integers(8, 500))
    f = ra.frequencies(dim, base=base)
    periods = [int(mp.nint(2 * mp.pi * mp.mpf(base) ** (mp.mpf(i) / dim))) for i in range(0, dim, 2)]
    distances = [abs(period - n) for period in periods]
    k, got = distances.index(min(distances)), scaling.riflex(f, n, length=length)
    assert got[k] == pytest.approx(float(mp.mpf("0.9") * 2 * mp.pi / length), 1e-15)
    assert (*got[:k], *got[k + 1 :]) == (*f[:k], *f[k + 1 :])
    assert scaling.riflex((0.0, 1.0, -0.1), 60, length=9)[:2] == (0.0, 1.0)  # pairs without a period are left out
    for k in range(min(len(f), 8)):  # neighbours at the fast end, and with equal rounded periods, the first of them
        first = [round(2 * math.pi / g) for g in f].index(round(2 * math.pi / f[k]))
        assert scaling.riflex(f, 2 * math.pi / f[k], length=length)[first] == got[distances.index(min(distances))]


def test_attention_factors_of_short_contexts_are_1():
    assert scaling.yarn_attention_factor(1.0) == scaling.yarn_attention_factor(0.5, mscale=2.0, mscale_all_dim=1.0) == 1
    assert scaling.longrope_attention_factor(1.0, original_length=4096) == 1
    assert scaling.longrope_attention_factor(2.0, original_length=2) == pytest.approx(2**0.5)
    assert scaling.yarn_attention_factor(40.0, mscale=0.7) == scaling.yarn_attention_factor(40.0)
    assert scaling.yarn_attention_factor(40.0) == pytest.approx(0.1 * math.log(40) + 1)
    both = scaling.yarn_attention_factor(40.0, mscale=0.7, mscale_all_dim=1.3)
    assert both == pytest.approx((0.07 * math.log(40) + 1) / (0.13 * math.log(40) + 1))


def test_a_scheme_can_multiply_learned_frequencies():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    scaled = scaling.yarn(F, 4.0, base=10_000.0, original_length=4096)
    learned = torch.tensor(F, requires_grad=True)
    cos, _ = ra.cos_sin(torch.arange(5), learned * torch.tensor([g / f for f, g in zip(F, scaled, strict=True)]))
    np.testing.assert_allclose(cos.detach(), ra.cos_sin(np.arange(5), scaled).cos, atol=1e-6)
    cos.sum().backward()
    assert learned.grad is not None and torch.isfinite(learned.grad).all()


# --- refusals -----------------------------------------------------------------------------------------------

ARGUMENTS = {
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
    "frequencies": F,
    "factor": 4.0,
    "base": 1e4,
    "length": 9000,
    "original_length": 2048,
    "trained_length": 2048,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "proportion": 0.5,
    "noise": 0.5,
    "repeats_at": 50,
}


def call(scheme, **changed):
    """Call a function of scaling with defaults or valid arguments, except for those given."""
    function, given = getattr(scaling, scheme), ARGUMENTS | changed
    bound = signature(function).bind_partial()
    bound.arguments.update({name: given[name] for name in signature(function).parameters if name in given})
    return function(*bound.args, **bound.kwargs)


@pytest.mark.parametrize(
    ("scheme", "argument"),
    [(name, argument) for name in scaling.__all__ for argument in signature(getattr(scaling, name)).parameters],
)
def test_errors_name_the_wrong_argument(scheme, argument):
    assert call(scheme)
    with pytest.raises(TypeError, match=f"^{argument} must be"):
        call(scheme, **{argument: "x"})


@pytest.mark.parametrize(
    ("scheme", "changed"),
    [
        ("linear", {"factor": 0.0}),
        ("dynamic_ntk", {"length": 0}),
        ("llama3", {"high_freq_factor": 0.5}),
        ("yarn", {"beta_fast": 0.5}),
        ("yarn", {"base": 1.0}),
        ("dype", {"base": 1}),
        ("dype", {"noise": 1000}),
        ("longrope", {"long_factor": [1.0]}),
        ("longrope", {"short_factor": [0.0] * 8}),
        ("riflex", {"repeats_at": 0}),
        ("proportional", {"proportion": 1.5}),
        ("longrope_attention_factor", {"original_length": 1}),
        ("yarn_attention_factor", {"mscale": -1.0}),
    ],
)
def test_values_without_meaning_are_refused(scheme, changed):
    (argument,) = changed
    with pytest.raises(ra.ArgumentValueError) as error:
        call(scheme, **changed)
    assert error.value.argument == argument
