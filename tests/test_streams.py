"""Streams of text, images and videos: against plain Python, and against transformers' own numbering."""

import itertools
from types import MethodType, SimpleNamespace

import numpy as np
import pytest
from conftest import one_jax
from hypothesis import given
from hypothesis import strategies as st

import rope_any as ra
from rope_any import positions

STREAM = [3, (1, 2, 3), 2, (5, 2, 1), (1, 1, 1), 0, ([0, 4, 8], 2, (7, 3)), 4]
LIKE = np.empty(0)


def numbered(spans, start=0, *, time_advances=True):
    """Return (time, height, width) of each token, and the largest plus one, in plain Python."""
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


@one_jax
@pytest.mark.parametrize("time_advances", [True, False])
@pytest.mark.parametrize("start", [0, 7, -3])
def test_streams_are_numbered(lib, start, time_advances):
    options = {"start": start, "time_advances": time_advances}
    rows, end = numbered(STREAM, **options)
    like = lib(LIKE, "float32")
    p = positions.mrope(STREAM, like=like, **options)
    assert type(p) is type(like)
    assert str(p.dtype).rpartition(".")[2] == ("int64" if lib.has_float64 else "int32")
    np.testing.assert_array_equal(lib.get(p), rows)
    assert positions.mrope_end(STREAM, **options) == end


counts = st.integers(1, 5)
axis = st.one_of(counts, st.lists(st.integers(0, 30), min_size=1, max_size=4))
streams = st.lists(st.one_of(st.integers(0, 6), st.tuples(axis, axis, axis)), min_size=1, max_size=8)


@given(streams, st.integers(-10, 10), st.booleans())
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


def test_text_positions_equal_plain_rope_and_continue_at_the_end(lib, rng):
    f = ra.frequencies(16)
    x = lib(rng.standard_normal((1, 2, 5, 16)), "float32")
    rope = ra.Rope(ra.axes.chunked(f, [2, 3, 3]), pairing="half")
    text = rope.apply(x, positions.mrope([5], like=x, start=9))
    np.testing.assert_allclose(lib.get(text), lib.get(ra.Rope(f, pairing="half").apply(x, 9)), atol=1e-6)
    end = positions.mrope_end(STREAM)
    np.testing.assert_array_equal(
        lib.get(rope.apply(x, end)), lib.get(rope.apply(x, positions.mrope([5], like=x, start=end)))
    )


def test_streams_are_constants_in_compiled_functions(lib):
    if lib.compile is None:
        pytest.skip(f"{lib.name} has no compiler")
    x = lib(np.arange(3), "int32")
    got = lib.trace(lambda x: positions.mrope(STREAM, like=x)[:3, ...] + x[:, None])(x)
    np.testing.assert_array_equal(lib.get(got), np.asarray(numbered(STREAM)[0][:3]) + np.arange(3)[:, None])


def test_streams_are_lazy_on_dask(monkeypatch):
    da = pytest.importorskip("dask.array")
    monkeypatch.setattr(da.Array, "compute", lambda *_: pytest.fail("computed"))
    assert positions.mrope(STREAM, like=da.zeros(1)).shape == (len(numbered(STREAM)[0]), 3)


def test_long_videos_use_little_host_memory():
    p = positions.mrope([10**6, (100, 100, 100)], like=LIKE)
    assert p.shape == (2 * 10**6, 3)
    np.testing.assert_array_equal(p[-1], [10**6 + 99] * 3)


# --- against transformers -----------------------------------------------------------------------------------

MERGE, TEXT, IMAGE, VIDEO = 2, 0, 1, 2
MODELS = {
    "qwen2_vl": "Qwen2VLModel",
    "qwen2_5_vl": "Qwen2_5_VLModel",
    "qwen3_vl": "Qwen3VLModel",
    "glm4v": "Glm4vModel",
}


def transformers_model(name, kind, **config):
    """Return an object with transformers' own methods for position ids, and a config with the values that they read."""
    module = pytest.importorskip(f"transformers.models.{name}.modeling_{name}")
    self = SimpleNamespace(config=SimpleNamespace(**config), spatial_merge_size=MERGE)
    for method in ("get_rope_index", "get_vision_position_ids", "get_llm_pos_ids_for_vision"):
        if hasattr(getattr(module, kind), method):
            setattr(self, method, MethodType(getattr(getattr(module, kind), method), self))
    return self


def random_stream(rng):
    """Return (kind, size) pairs, text between all images and videos, as prompts have it."""
    stream = [(TEXT, int(rng.integers(1, 9)))]
    for _ in range(rng.integers(1, 5)):
        kind = int(rng.integers(IMAGE, VIDEO + 1))
        frames = 1 if kind == IMAGE else int(rng.integers(1, 12))
        stream.append((kind, (frames, *map(int, rng.integers(1, 6, 2)))))
        stream.append((TEXT, int(rng.integers(1, 9))))
    return stream[: len(stream) - int(rng.integers(2))]  # some end in an image or a video


def padded_batch(rows, lengths, side):
    """Return rows of tokens, padded on one side, and their mask."""
    import torch

    batch, mask = (torch.zeros((len(rows), max(lengths)), dtype=torch.int64) for _ in range(2))
    for i, (row, n) in enumerate(zip(rows, lengths, strict=True)):
        at = slice(max(lengths) - n, None) if side == "left" else slice(n)
        batch[i, at], mask[i, at] = torch.tensor(row), 1
    return batch, mask


def grids(rows, kind):
    """Return the grids of all images or of all videos in the form of transformers, before merging."""
    import torch

    sizes = [size for row in rows for k, size in row if k == kind]
    return torch.tensor([(t, h * MERGE, w * MERGE) for t, h, w in sizes]) if sizes else None


def check(spans, ids, mask, deltas, **options):
    for i, row in enumerate(spans):
        want = ids[:, i, mask[i].bool()].numpy()
        np.testing.assert_array_equal(np.moveaxis(want, 0, -1), positions.mrope(row, like=LIKE, **options))
        assert int(deltas[i]) == positions.mrope_end(row, **options) - want.shape[1]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(10))
def test_streams_equal_those_of_transformers(name, side, seed):
    rng = np.random.default_rng([seed, len(name)])
    rows = [random_stream(rng) for _ in range(3)]
    model = transformers_model(
        name, MODELS[name], vision_config=SimpleNamespace(spatial_merge_size=MERGE, tokens_per_second=2)
    )
    given, seconds = {}, []
    if name in ("qwen3_vl", "glm4v"):  # each frame an image, with its time before it as text
        split = [[((k, (1, *n[1:])), n[0]) if k == VIDEO else ((k, n), 1) for k, n in row] for row in rows]
        tokens = [[x for part, times in row for x in [part, (TEXT, 2)] * (times - 1) + [part]] for row in split]
        spans = [[size for _, size in row] for row in tokens]
    else:
        tokens, spans = rows, [[size for _, size in row] for row in rows]
    if name == "qwen2_5_vl":
        spans = []
        for row in rows:
            spans.append([])
            for kind, size in row:
                if kind == VIDEO:
                    seconds.append(float(rng.choice([0.5, 0.75, 1.0, 1.3, 2.0])))
                    spans[-1].append(([int(frame * 2 * seconds[-1]) for frame in range(size[0])], *size[1:]))
                else:
                    spans[-1].append(size)
        given["second_per_grid_ts"] = seconds or None
    kinds = [[k for k, n in row for _ in range(n if k == TEXT else int(np.prod(n)))] for row in tokens]
    types, mask = padded_batch(kinds, [len(row) for row in kinds], side)
    ids, deltas = model.get_rope_index(
        types,
        mm_token_type_ids=types,
        image_grid_thw=grids(rows, IMAGE),
        video_grid_thw=grids(rows, VIDEO),
        attention_mask=mask,
        **given,
    )
    check(spans, ids, mask, deltas, time_advances=False)
    if name in ("qwen3_vl", "glm4v"):  # no span has more frames than one, so there is nothing to choose
        check(spans, ids, mask, deltas)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("seed", range(20))
def test_time_advances_like_qwen_omni_of_transformers(side, seed):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(seed)
    rows = [random_stream(rng) for _ in range(3)]
    ids = {"image_token_id": 101, "video_token_id": 102, "audio_token_id": 103}
    starts = {"vision_start_token_id": 104, "audio_start_token_id": 105}
    model = transformers_model(
        "qwen2_5_omni",
        "Qwen2_5OmniThinkerForConditionalGeneration",
        **ids,
        **starts,
        position_id_per_seconds=25,
        seconds_per_chunk=2,
    )
    seconds, tokens, spans = [], [], []
    for row in rows:
        tokens.append([])
        spans.append([])
        for kind, size in row:
            if kind == TEXT:
                tokens[-1] += [7] * size
                spans[-1].append(size)
                continue
            times = size[0]
            if kind == VIDEO:
                seconds.append(float(rng.choice([0.08, 0.1, 0.5])))
                times = (torch.arange(size[0]) * torch.tensor(seconds[-1]) * 25).long().tolist()
            tokens[-1] += [104, *[100 + kind] * int(np.prod(size)), 106]
            spans[-1] += [1, (times, *size[1:]), 1]
    batch, mask = padded_batch(tokens, [len(row) for row in tokens], side)
    got, deltas = model.get_rope_index(
        batch, grids(rows, IMAGE), grids(rows, VIDEO), mask, second_per_grids=torch.tensor(seconds)
    )
    check(spans, got, mask, deltas)


# --- errors -------------------------------------------------------------------------------------------------

ERRORS = {
    "no sequence": (7, TypeError, "spans must be a sequence of text lengths .* got int 7"),
    "a string": ("abc", TypeError, "spans must be a sequence .* got str 'abc'"),
    "an array": (np.ones(3, int), TypeError, "spans must be a sequence .* got ndarray"),
    "none": ([], ValueError, "spans must have at least one; got none"),
    "a string among them": (
        [1, "ab"],
        TypeError,
        r"spans\[1\] must be a number of text tokens or \(frames, rows, columns\); got str 'ab'",
    ),
    "a float": ([1.5], TypeError, r"spans\[0\] must be a number .* got float 1.5"),
    "a bool": ([True], TypeError, r"spans\[0\] must be an integer; got bool True"),
    "negative text": ([2, -3], ValueError, r"spans\[1\] must be from 0 to 2147483647; got -3"),
    "two axes": ([(4, 4)], ValueError, r"spans\[0\] must be a number .* got \(4, 4\)"),
    "no frame": ([(0, 4, 4)], ValueError, r"frames of spans\[0\] must be from 1 to 2147483647; got 0"),
    "half a row": ([(1, 4.5, 4)], TypeError, r"rows of spans\[0\] must be an integer; got float 4.5"),
    "columns a string": ([(1, 4, "4")], TypeError, r"columns of spans\[0\] must be an integer; got str '4'"),
    "no coordinate": ([((), 4, 4)], ValueError, r"frames of spans\[0\] must have at least one coordinate; got none"),
    "negative time": ([([0, -1], 4, 4)], ValueError, r"frames of spans\[0\] must be from 0 to 2147483647; got -1"),
    "time a float": ([([0.0, 1.0], 4, 4)], TypeError, r"frames of spans\[0\] must be an integer; got float 0.0"),
    "too long": ([2**31 - 1, 1], ValueError, "the end of spans must be .* to 2147483647; got 2147483648"),
}


@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.parametrize("function", [positions.mrope_end, lambda spans: positions.mrope(spans, like=LIKE)])
def test_errors_name_the_wrong_span(function, case):
    spans, error, message = ERRORS[case]
    with pytest.raises(error, match=message) as caught:
        function(spans)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"start": 0.5}, TypeError, "start must be an integer; got float 0.5"),
        ({"start": 2**31}, ValueError, "start must be from .* got 2147483648"),
        ({"time_advances": 1}, TypeError, "time_advances must be True or False; got int 1"),
        ({"like": None}, TypeError, "like must be an array .* got NoneType"),
    ],
)
def test_errors_name_the_wrong_option(options, error, message):
    with pytest.raises(error, match=message):
        positions.mrope(STREAM, **{"like": LIKE, **options})
