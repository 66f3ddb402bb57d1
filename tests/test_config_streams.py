"""Streams numbered from token ids and a config: against transformers' `get_rope_index`, and hostile ones."""

from itertools import chain
from types import MethodType, SimpleNamespace

import numpy as np
import pytest
from conftest import one_jax

from rope_any import positions
from rope_any.config import read

LIKE = np.empty(0)
MERGE, IMAGE, VIDEO, AUDIO, START, AUDIO_START, END = 2, 101, 102, 103, 104, 105, 106
VISION = {"spatial_merge_size": MERGE, "tokens_per_second": 2}
IDS = {"image_token_id": IMAGE, "video_token_id": VIDEO, "vision_start_token_id": START}
OMNI_IDS = {"audio_token_id": AUDIO, "audio_start_token_id": AUDIO_START, "position_id_per_seconds": 25}
GLM = ["glm46v", "glm4v", "glm4v_moe", "glm_ocr"]
QWEN3 = ["qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe", "qwen4_exp"]
BY_FRAME = [*GLM, *QWEN3, "cohere_compass", "cosmos3_omni", "hy_v4_vl"]  # text says when each frame of a video is
NEWLINES = ["hy_v4_vl"]  # each row of an image ends with a token of its own
OMNI = ["qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"]
RATES = {"qwen2_5_vl": 2} | dict.fromkeys(OMNI, 25)  # positions a second; grids of videos have the seconds of a frame
CHUNKS = {"qwen2_5_omni_thinker": 50}  # in which tokens of a video and its audio alternate; else by their times
VISUAL = [*BY_FRAME, "paddleocr_vl", "qwen2_5_vl", "qwen2_vl"]


def stream(config, token_ids, grids, **options):
    """Return the positions of a stream."""
    return read(config).positions(token_ids=token_ids, grids=grids, **options)


def config(name):
    """Return a config with small token ids."""
    glm = {"video_start_token_id": 107, "video_end_token_id": 108} if name in GLM else {}
    omni = OMNI_IDS if name in OMNI else {}
    return {"model_type": name, **IDS, **glm, **omni, "vision_config": VISION}


def transformers_model(name):
    """Return an object with transformers' own methods for position ids, and the config values that they read."""
    folder, ends = name.removesuffix("_thinker"), "ThinkerForConditionalGeneration" if name in OMNI else "Model"
    module = pytest.importorskip(f"transformers.models.{folder}.modeling_{folder}")
    (kind,) = [k for n, k in vars(module).items() if n.endswith(ends) and hasattr(k, "get_rope_index")]
    values = {**config(name), "vision_config": SimpleNamespace(**VISION), "audio_config": SimpleNamespace(n_window=50)}
    self = SimpleNamespace(config=SimpleNamespace(**values, seconds_per_chunk=2), spatial_merge_size=MERGE)
    for method in ("get_rope_index", "get_vision_position_ids", "get_llm_pos_ids_for_vision", "get_chunked_index"):
        if hasattr(kind, method):
            setattr(self, method, MethodType(getattr(kind, method), self))
    return self


def audio_seqlen(name, count):
    """Return how many frames of sound become `count` audio tokens."""
    if name == "qwen2_5_omni_thinker":
        return 4 * count
    module = pytest.importorskip("transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe")
    return next(n for n in range(1, 10_000) if module._get_feat_extract_output_lengths(n, 50) == count)


def mixed(name, times, per_frame, sounds):
    """Return the tokens of a video and its audio in the order of the processor: by chunks of 50, or by time."""
    chunk = CHUNKS.get(name, 1 / 64)
    tokens = [(t // chunk, 0, VIDEO) for t in times for _ in range(per_frame)]
    return [token for *_, token in sorted([*tokens, *((t // chunk, 1, AUDIO) for t in range(sounds))])]


def starts_of_sound(name):
    """Return the span of two tokens that begin or end a video with audio: both are at one place in Qwen2.5-Omni."""
    return ([0, 0], 1, 1) if name in CHUNKS else ()


def random_row(rng, name, *, with_audio=False):
    """Return the token ids of a row, the types that transformers takes, spans, grids by type, and audio lengths."""
    ids, types, spans, grids, sounds = [], [], [], [], []

    def put(tokens, kind=0, *span):
        """Add tokens of one kind to the row."""
        ids.extend(tokens)
        types.extend([kind] * len(tokens))
        spans.append(span or len(tokens))

    def text():
        """Add random text tokens to the row."""
        put([int(token) for token in rng.integers(1, 90, rng.integers(1, 9))])

    text()
    for _ in range(rng.integers(1, 5)):
        video = bool(rng.integers(2))
        frames = times = int(rng.integers(1, 12)) if video else 1
        rows, columns = map(int, rng.integers(1, 6, 2))
        steps = [0.25, 0.5, 0.75, 2.0, 1.3 if name == "qwen2_5_vl" else 1.0]  # in float32 no product is rounded
        seconds = [float(rng.choice(steps))] if video and name in RATES else []
        if seconds:
            times = [frame * seconds[0] * RATES[name] for frame in range(frames)]
            times = times if name.startswith("qwen3") else [*map(int, times)]
        grids.append((1 + video, (frames, rows * MERGE, columns * MERGE, *seconds)))
        token = VIDEO if video and name not in GLM else IMAGE
        columns += name in NEWLINES
        if video and with_audio:
            sounds.append(int(rng.integers(1, 750)))
            put([START, AUDIO_START], 0, *starts_of_sound(name))
            put(mixed(name, times, rows * columns, sounds[-1]), 0, times, rows, columns, sounds[-1])
            put([END, END], 0, *starts_of_sound(name))
        elif video and name in BY_FRAME:
            put([107])  # the start of a video for GLM-4V, text for others
            for _ in range(frames):
                put([token] * (rows * columns), 2, 1, rows, columns)
                if name not in NEWLINES:  # transformers knows no text between their frames
                    text()
            put([108])
        else:
            put([START])
            put([token] * (frames * rows * columns), 1 + video, times, rows, columns)
            put([END])
        text()
        if name in OMNI and rng.integers(2):
            sounds.append(int(rng.integers(1, 60)))
            put([AUDIO_START, *[AUDIO] * sounds[-1], END])
            text()
    return ids, types, spans, grids, sounds


def padded(rows, side):
    """Return rows padded on one side with zeros."""
    pads = [[0] * (max(map(len, rows)) - len(row)) for row in rows]
    return [[*pad, *row] if side == "left" else [*row, *pad] for pad, row in zip(pads, rows, strict=True)]


def batch(name, seed, **options):
    """Return ids, types, mask, spans, grids by type, and audio lengths of three random rows."""
    rng, side = np.random.default_rng([seed, len(name)]), ("left", "right")[seed % 2]
    ids, types, spans, grids, sounds = zip(*[random_row(rng, name, **options) for _ in range(3)], strict=True)
    mask = padded([[1] * len(row) for row in ids], side)
    return padded(ids, side), padded(types, side), mask, spans, [*chain(*grids)], [*chain(*sounds)]


def by_transformers(name, case, **options):
    """Return position ids of transformers, (batch, seq, axes), and by how much each row goes on after its length."""
    import torch

    torch.set_num_threads(1)
    ids, types, mask, _, grids, sounds = case
    of = {kind: [grid for k, grid in grids if k == kind] for kind in (1, 2)}
    thw = [torch.tensor([grid[:3] for grid in of[kind]]) if of[kind] else None for kind in (1, 2)]
    given = {"image_grid_thw": thw[0], "video_grid_thw": thw[1], "attention_mask": torch.tensor(mask), **options}
    if name in OMNI:
        given["second_per_grids"] = torch.tensor([grid[3] for grid in of[2]])
        given["audio_seqlens"] = torch.tensor([audio_seqlen(name, n) for n in sounds])
    else:
        given["mm_token_type_ids"] = torch.tensor(types)
    if name == "qwen2_5_vl":
        pytest.importorskip("transformers", minversion="5.19", reason="before, times of videos were wrong")
        given["second_per_grid_ts"] = [grid[3] for grid in of[2]]
    got, deltas = transformers_model(name).get_rope_index(torch.tensor(ids), **given)
    return np.moveaxis(got.numpy(), 0, -1), deltas.flatten().tolist()


def check(name, case, *, time_advances=True, **options):
    """Compare a batch and the spans of its rows with transformers, except the positions of padding, 0 here."""
    ids, _, mask, spans, grids, _ = case
    want, deltas = by_transformers(name, case, **options)
    got = stream(config(name), ids, [grid for _, grid in grids], like=LIKE, mask=mask, time_advances=time_advances)
    tokens = np.array(mask, bool)
    np.testing.assert_array_equal(got[tokens], want[tokens])
    assert not got[~tokens].any()
    given = {"time_advances": time_advances, "chunk": CHUNKS.get(name, 0)}
    for row, at, kept, delta in zip(spans, want, tokens, deltas, strict=True):
        np.testing.assert_array_equal(positions.mrope(row, like=LIKE, **given), at[kept])
        assert positions.mrope_end(row, **given) - kept.sum() == delta


# --- against transformers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VISUAL)
@pytest.mark.parametrize("seed", range(8))
def test_positions_from_token_ids_equal_those_of_transformers(name, seed):
    case = batch(name, seed)
    # A fault of transformers from 5.3 on: text follows the rows and columns of a video, before its last frames.
    check(name, case, time_advances=False)
    if name in BY_FRAME:  # frames are separate, and none is before the text that follows
        check(name, case)


@pytest.mark.parametrize("with_audio", [False, True])
@pytest.mark.parametrize("name", OMNI)
@pytest.mark.parametrize("seed", range(8))
def test_positions_of_omni_tokens_equal_those_of_transformers(name, seed, with_audio):
    """TMRoPE: with audio, chunks of 2 s in Qwen2.5-Omni, and none in Qwen3-Omni."""
    check(name, batch(name, seed, with_audio=with_audio), use_audio_in_video=with_audio)


@pytest.mark.parametrize("name", OMNI)
def test_text_after_a_wide_video_follows_its_short_audio(name):
    ids = [[1, START, AUDIO_START, *[VIDEO] * 5, *[AUDIO] * 2, END, END, 1]]
    pair = starts_of_sound(name) or 2
    case = ids, None, [[1] * len(ids[0])], [[1, pair, ([0], 1, 5, 2), pair, 1]], [(2, (1, 2, 10, 1.0))], [2]
    check(name, case, use_audio_in_video=True)


# --- by hand ------------------------------------------------------------------------------------------------


def test_text_follows_all_frames_of_a_video():
    ids = [[1, *[VIDEO] * 4, 2]]
    p = stream(config("qwen2_vl"), ids, [(4, 2, 2)], like=LIKE)
    assert p[0, :, 0].tolist() == [0, 1, 2, 3, 4, 5]
    late = stream(config("qwen2_vl"), ids, [(4, 2, 2)], like=LIKE, time_advances=False)
    assert late[0, :, 0].tolist() == [0, 1, 2, 3, 4, 2]


def test_adjacent_images_are_separated_by_their_grids():
    # transformers takes them for one image, and raises.
    p = stream(config("qwen2_vl"), [[IMAGE] * 3], [(1, 2, 2), (1, 2, 4)], like=LIKE)
    assert p[0].tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 2]]


@pytest.mark.parametrize("name", [*VISUAL, *OMNI])
def test_text_without_images_is_counted(name):
    keys = {**config(name), **OMNI_IDS}
    keys |= {"video_start_token_id": 107, "video_end_token_id": 108}
    p = stream(keys, [[1, 2, 3], [4, 5, 6]], [], like=LIKE, mask=[[0, 1, 1], [1, 0, 1]])
    assert p.shape == (2, 3, 3)
    assert p[..., 0].tolist() == [[0, 0, 1], [0, 0, 1]]
    assert p.dtype == (np.float64 if name.startswith("qwen3_omni") else np.int64)


@pytest.mark.parametrize("name", ["qwen2_5_omni", "qwen3_omni_moe"])
def test_the_thinker_of_an_omni_config_is_read(name):
    older = {key.replace("_id", "_index"): value for key, value in {**IDS, **OMNI_IDS}.items() if "start" not in key}
    starts = {"vision_start_token_id": START, "audio_start_token_id": AUDIO_START, "position_id_per_seconds": 25}
    keys = {"model_type": name, "thinker_config": {**older, **starts, "vision_config": VISION}}
    p = stream(keys, [[START, VIDEO, VIDEO, END]], [(2, 2, 2, 0.1)], like=LIKE)
    assert p[0, :, 0].tolist() == ([0, 1, 3, 4] if name == "qwen2_5_omni" else [0, 1, 3.5, 4.5])


@one_jax
def test_token_ids_of_any_library_are_accepted(lib):
    ids, grids = np.array([[1, *[IMAGE] * 2, 2]]), np.array([(1, 2, 4)])
    like = lib(LIKE, "float32")
    p = stream(config("qwen3_vl"), ids, grids, like=like, mask=np.array([[True, True, True, True]]))
    assert type(p) is type(like)
    assert lib.get(p).tolist() == [[[0, 0, 0], [1, 1, 1], [1, 1, 2], [3, 3, 3]]]


# --- errors -------------------------------------------------------------------------------------------------

QWEN2_5_VL, QWEN3_VL = config("qwen2_5_vl"), config("qwen3_vl")
FRAME_AND_IMAGE, PAIRED = [VIDEO, 1, IMAGE], [START, AUDIO_START, VIDEO, AUDIO, VIDEO]
# What of a config or its arguments is wrong, by changes of those of one image.
ERRORS = [
    ({"model_type": "llama"}, {}, "model_type must be one whose .* got 'llama'"),
    ({"video_token_id": None}, {}, "video_token_id must be given"),
    ({"video_token_id": IMAGE}, {}, "image_token_id, video_token_id must differ"),
    ({"vision_config": None}, {}, "vision_config.spatial_merge_size must be given"),
    ({}, {"token_ids": [[1.5]]}, "token_ids must be an integer; got float 1.5"),
    ({}, {"token_ids": []}, r"token_ids and mask must have shape \(batch, seq\)"),
    ({}, {"mask": [[1]]}, "token_ids and mask must have shape"),
    ({}, {"grids": []}, "grids must have one for each .* got 0, and 2 more image tokens"),
    ({}, {"grids": [(1, 2, 4)] * 2}, "got 2, and tokens of 1"),
    ({}, {"grids": [(1, 4, 4)]}, r"grids\[0\] must fit .* got 4 .* for a run of 2"),
    ({}, {"grids": [(1, 2, 2)]}, "got 1, and 1 more image tokens"),
    ({}, {"grids": [(1, 2**30, 2**30)]}, r"grids\[0\] must fit its image tokens"),
    ({}, {"grids": [(2, 4)]}, r"grids\[0\] must be \(frames, rows, columns\) of image"),
    ({}, {"grids": [(0, 2, 4)]}, r"grids\[0\] must be from 1"),
    ({}, {"grids": [(1, 2.5, 4)]}, r"grids\[0\] must be an integer; got float 2.5"),
    ({}, {"grids": [(1, 3, 4)]}, "multiples of 2 rows and columns for merging"),
    ({}, {"grids": [(2, 2, 2)]}, "must be that of an image, with one frame"),
    ({}, {"token_ids": None}, "either shape or token_ids must be given"),
    ({}, {"part": "vision"}, "part must be text for token_ids; got 'vision'"),
    (QWEN2_5_VL, {"token_ids": [[VIDEO]]}, "seconds from frame to frame.* of video tokens"),
    (QWEN2_5_VL, {"token_ids": [[VIDEO]], "grids": [(1, 2, 2, 0.0)]}, r"grids\[0\] must be positive .* 0.0"),
    (QWEN2_5_VL, {"grids": [(1, 2, 4, 1.0)]}, r"\(frames, rows, columns\) of image tokens"),
    (QWEN3_VL, {"token_ids": [[VIDEO, 1]], "grids": [(2, 2, 2)]}, "tokens of 0, and 1 frames of the next"),
    (QWEN3_VL, {"token_ids": [FRAME_AND_IMAGE], "grids": [(2, 2, 2), (1, 2, 2)]}, r"grids\[0\] must be that of an im"),
    (config(OMNI[1]), {"token_ids": [PAIRED], "grids": [(1, 2, 2, 1.0)] * 2}, "grids must have one for a video with"),
    (config(OMNI[0]), {"time_advances": False}, "time_advances must be True for an Omni model"),
]


@pytest.mark.parametrize(("changes", "given", "message"), ERRORS)
def test_errors_name_the_wrong_key_or_grid(changes, given, message):
    options = {"token_ids": [[1, IMAGE, IMAGE, 2]], "grids": [(1, 2, 4)], **given}
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        read(config("qwen2_vl") | changes).positions(like=LIKE, **options)
    assert "\n" not in str(caught.value)
