"""A short soak test, and tests that it detects wrong results."""

import dataclasses

import numpy as np
import pytest
import soak

import rope_any as ra

NUMPY = {"numpy": 1.0}


@pytest.mark.long
def test_random_calls_are_correct():
    report = soak.soak(1000, seed=20_260_401)
    assert report.calls.total() == 1000
    assert {kind for _, kind in report.calls} == {call.__name__ for call in soak.CALLS}
    assert len({name for name, _ in report.calls}) > 1 or soak.installed_shares() == NUMPY


def run_numpy(seed, count=100):
    """Make a number of calls with NumPy."""
    for number in range(count):
        soak.make_call(seed, number, NUMPY)


def scaling_slightly(self, x, *args, **options):
    """Rotate with a scale that is slightly wrong."""
    return APPLY(dataclasses.replace(self, attention_factor=self.attention_factor * (1 + 1e-5)), x, *args, **options)


def writing_into_x(self, x, *args, **options):
    """Rotate, and overwrite x."""
    got = APPLY(self, x, *args, **options)
    if x.size and x.flags.writeable:
        x[...] = 0
    return got


def ignoring_out(self, x, *args, **options):
    """Rotate without `out`."""
    return APPLY(self, x, *args, **{**options, "out": None})


def returning_a_copy(*args, **options):
    """Rotate, and return a NumPy copy in float32."""
    return np.array(APPLY(*args, **options), dtype=np.float32)


APPLY = ra.Rope.apply


@pytest.mark.parametrize("wrong", [scaling_slightly, writing_into_x, ignoring_out, returning_a_copy])
def test_wrong_results_are_detected(monkeypatch, wrong):
    monkeypatch.setattr(ra.Rope, "apply", wrong)
    with pytest.raises(AssertionError):
        run_numpy(seed=0)


def test_growth_is_measured_from_the_second_tenth_to_the_last():
    assert soak.Report({}, {}, [100.0, 500.0, *[510.0] * 17, 515.0, 517.0], 0.0).grown() == 516 - 510


def test_the_same_number_gives_the_same_call():
    assert soak.make_call(3, 14, NUMPY) == soak.make_call(3, 14, NUMPY)
