"""Positions of text, images and videos, compared with plain Python; test_config_streams.py: with transformers."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from conftest import one_jax
from hypothesis import given
from hypothesis import strategies as st

from rope_any import positions

STREAM = [3, (1, 2, 3), 2, (5, 2, 1), (1, 1, 1), 0, ([0, 4, 8], 2, (7, 3)), 4]
LIKE = np.empty(0)


def numbered(spans, start=0, *, time_advances=True):
    """Return (time, height, width) of each token and the largest plus one, in plain Python; without audio."""
    rows, first = [], start
    for span in spans:
        if isinstance(span, int):
            rows += [(first + i,) * 3 for i in range(span)]
            first += span
            continue
        axes = [range(axis) if isinstance(axis, int) else axis for axis in span]
        rows += [tuple(first + c for c in token) for token in itertools.product(*axes)]
        first += 1 + max(c for axis in axes[0 if time_advances else 1 :] for c in axis)
    return rows, max((c + 1 for row in rows for c in row), default=start)


# --- against plain Python -----------------------------------------------------------------------------------


REAL = [2, ([0, np.float32(1.5), 3.25], 2, 1), ([0, 2.5], 1, 2, 4), 0, 3]


@one_jax
@pytest.mark.parametrize(
    ("spans", "options"),
    [
        *((STREAM, {"start": start, "time_advances": advances}) for start in (0, -3) for advances in (True, False)),
        *((REAL, options) for options in ({}, {"diagonal": 0.5}, {"chunk": 2}, {"diagonal": 2, "start": -5})),
    ],
)
def test_streams_of_every_library_equal_those_of_numpy(lib, spans, options):
    like, kind, number = lib(LIKE, "float32"), *(("int", int) if spans is STREAM else ("float", float))
    p = positions.mrope(spans, like=like, **options)
    assert type(p) is type(like)
    assert str(p.dtype).rpartition(".")[2] == kind + ("64" if lib.has_float64 else "32")
    np.testing.assert_array_equal(lib.get(p), positions.mrope(spans, like=LIKE, **options))
    assert type(positions.mrope_end(spans, **options)) is number


counts = st.integers(1, 5)
axis = st.one_of(counts, st.lists(st.integers(0, 30), min_size=1, max_size=4))
streams = st.lists(st.one_of(st.integers(0, 6), st.tuples(axis, axis, axis)), min_size=1, max_size=8)
reals = st.one_of(
    counts, st.lists(st.integers(0, 30) | st.integers(0, 99).map(lambda n: n / 4), min_size=1, max_size=4)
)
real_streams = st.lists(st.one_of(st.integers(0, 6), st.tuples(reals, reals, reals)), min_size=1, max_size=8)


@given(streams | real_streams, st.integers(-10, 10), st.booleans())
def test_random_streams_are_numbered(spans, start, time_advances):
    rows, end = numbered(spans, start, time_advances=time_advances)
    p = positions.mrope(spans, like=LIKE, start=start, time_advances=time_advances)
    np.testing.assert_array_equal(p, np.reshape(rows, (-1, 3)))
    assert positions.mrope_end(spans, start=start, time_advances=time_advances) == end


@given(streams, streams)
def test_a_stream_can_continue_at_its_end(one, other):
    end = positions.mrope_end(one)
    parts = [positions.mrope(one, like=LIKE), positions.mrope(other, like=LIKE, start=end)]
    np.testing.assert_array_equal(np.concatenate(parts), positions.mrope([*one, *other], like=LIKE))


def test_long_videos_use_little_host_memory():
    p = positions.mrope([10**6, (100, 100, 100)], like=LIKE)
    assert p.shape == (2 * 10**6, 3)
    np.testing.assert_array_equal(p[-1], [10**6 + 99] * 3)


# --- VideoRoPE, and audio in videos -------------------------------------------------------------------------


def videorope_positions(spans, delta, start=0):
    """Return positions and their end as get_t_scale_rope_index of Wiselnn570/VideoRoPE computes them, in Fractions."""
    rows, last = [], Fraction(start) - 1
    for span in spans:
        first = last + 1
        if isinstance(span, int):
            rows += [(first + i,) * 3 for i in range(span)]
        else:
            frames, height, width = span
            for t, y, x in itertools.product(range(frames), range(height), range(width)):
                time = t * Fraction(delta) + first
                rows.append((time, y - (height - 1) // 2 + time, x - (width - 1) // 2 + time))
        last = rows[-1][0] if span else last
    return rows, last + 1


@given(
    st.lists(st.one_of(st.integers(0, 6), st.tuples(counts, counts, counts)), min_size=1, max_size=8),
    st.integers(-10, 10),
    st.sampled_from([2, 2.0, 0.5, 0.75, 1.5]),
)
def test_diagonal_equals_videorope(spans, start, delta):
    rows, end = videorope_positions(spans, delta, start)
    p = positions.mrope(spans, like=LIKE, start=start, diagonal=delta)
    assert p.dtype == np.float64
    np.testing.assert_array_equal(p, np.reshape(np.array(rows, dtype=float), (-1, 3)))
    assert positions.mrope_end(spans, start=start, diagonal=delta) == end


def tmrope_positions(span, first, chunk):
    """Return positions of a video with audio, token by token; in chunks if `chunk` is not 0."""
    times, rows, columns, audio = span
    video = [(t, y, x) for t in times for y in range(rows) for x in range(columns)]
    sound = [(i,) * 3 for i in range(audio)]
    merged = sorted(video + sound, key=lambda p: p[0])  # at equal times the video comes first
    if chunk:
        bounds = [(c * chunk, (c + 1) * chunk) for c in range(int(max(*times, audio) // chunk) + 1)]
        merged = [p for low, high in bounds for tokens in (video, sound) for p in tokens if low <= p[0] < high]
    return [tuple(first + c for c in p) for p in merged]


@given(
    st.lists(st.integers(0, 12) | st.floats(0, 3), min_size=1, max_size=6),
    st.tuples(counts, counts, st.integers(1, 40)),
    st.integers(0, 5),
    st.sampled_from([0, 5, 7.5]),
)
def test_audio_is_between_the_frames_of_its_video(steps, sizes, text, chunk):
    span = ([0, *itertools.accumulate(steps)], *sizes)
    expected = tmrope_positions(span, text, chunk)
    spans = [text, span, 2]
    p = positions.mrope(spans, like=LIKE, chunk=chunk)
    np.testing.assert_array_equal(p[text:-2], expected)
    np.testing.assert_array_equal(p[-2:], [[1 + max(expected[-1])] * 3, [2 + max(expected[-1])] * 3])
    assert positions.mrope_end(spans, chunk=chunk) == 1 + p.max()


# --- refusals -----------------------------------------------------------------------------------------------


# What would be numbered wrongly, and the words that say where.
WRONG_SPANS = [
    (7, "^spans must be a sequence"),
    ([], "^spans must have at least one"),
    ([1, "ab"], r"^spans\[1\] must be a number of text tokens or \(frames, rows, columns\)"),
    ([True], r"^spans\[0\] must be an integer"),
    ([2, -3], r"^spans\[1\] must be from 0"),
    ([(4, 4)], r"^spans\[0\] must be a number"),
    ([(1, 4, 4, 1, 1)], r"^spans\[0\] must be a number"),
    ([(0, 4, 4)], r"^frames of spans\[0\] must be from 1"),
    ([(1, 4.5, 4)], r"^rows of spans\[0\] must be an integer"),
    ([([0, -1], 4, 4)], r"^frames of spans\[0\] must be from 0"),
    ([([0.0, float("nan")], 4, 4)], r"^frames of spans\[0\] .* got nan"),
    ([(1, 4, 4, 0)], r"^audio of spans\[0\] must be from 1"),
    ([2**31 - 1, ([0.5], 1, 1)], "^the end of spans must be"),
    ([2**31 - 1, 1], "^the end of spans must be"),
]


@pytest.mark.parametrize(("spans", "words"), WRONG_SPANS)
def test_spans_that_cannot_be_numbered_are_refused(spans, words):
    for function in (positions.mrope_end, lambda spans: positions.mrope(spans, like=LIKE)):
        with pytest.raises((TypeError, ValueError), match=words):
            function(spans)


@pytest.mark.parametrize("options", [{"start": 2**31}, {"diagonal": -1}, {"chunk": np.nan}, {"time_advances": 1}])
def test_options_without_meaning_are_refused(options):
    with pytest.raises((TypeError, ValueError), match=f"^{next(iter(options))} must be"):
        positions.mrope(STREAM, like=LIKE, **options)
