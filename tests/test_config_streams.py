"""Streams numbered from token ids and a config: against transformers' `get_rope_index`, and hostile ones."""

from itertools import chain
from types import MethodType, SimpleNamespace

import numpy as np
import pytest
from conftest import one_jax

from rope_any.config import positions

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
TIMED = [*OMNI, "qwen2_5_vl"]  # grids of videos have the seconds between frames
VISUAL = [*BY_FRAME, "paddleocr_vl", "qwen2_5_vl", "qwen2_vl"]
CLASSES = {
    "qwen2_5_omni_thinker": "Qwen2_5OmniThinkerForConditionalGeneration",
    "qwen3_omni_moe_thinker": "Qwen3OmniMoeThinkerForConditionalGeneration",
}


def stream(config, token_ids, grids, **options):
    """Return the positions of a stream."""
    return positions(config, token_ids=token_ids, grids=grids, **options)


def config(name):
    """Return a config with small token ids."""
    glm = {"video_start_token_id": 107, "video_end_token_id": 108} if name in GLM else {}
    omni = OMNI_IDS if name in OMNI else {}
    return {"model_type": name, **IDS, **glm, **omni, "vision_config": VISION}


def transformers_model(name):
    """Return an object with transformers' own methods for position ids, and the config values that they read."""
    folder = name.removesuffix("_thinker")
    module = pytest.importorskip(f"transformers.models.{folder}.modeling_{folder}")
    ends = "ForConditionalGeneration" if name in OMNI else "Model"
    kinds = [k for k in vars(module).values() if isinstance(k, type) and hasattr(k, "get_rope_index")]
    (kind,) = [k for k in kinds if k.__name__ == CLASSES.get(name)] or [k for k in kinds if k.__name__.endswith(ends)]
    values = {**config(name), "vision_config": SimpleNamespace(**VISION), "audio_config": SimpleNamespace(n_window=50)}
    self = SimpleNamespace(config=SimpleNamespace(**values, seconds_per_chunk=2), spatial_merge_size=MERGE)
    for method in (
        "get_rope_index",
        "get_vision_position_ids",
        "get_llm_pos_ids_for_vision",
        "get_chunked_index",
    ):
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
    chunk = 50 if name == "qwen2_5_omni_thinker" else 1 / 64
    tokens = [(t // chunk, 0, VIDEO) for t in times for _ in range(per_frame)]
    return [token for *_, token in sorted([*tokens, *((t // chunk, 1, AUDIO) for t in range(sounds))])]


def random_row(rng, name, *, with_audio=False):
    """Return the token ids of a row, the types that transformers takes, grids by type, and lengths of audio."""
    ids, types, grids, sounds = [], [], [], []

    def put(tokens, kind=0):
        """Add tokens of one kind to the row."""
        ids.extend(tokens)
        types.extend([kind] * len(tokens))

    def text():
        """Add random text tokens to the row."""
        put([int(token) for token in rng.integers(1, 90, rng.integers(1, 9))])

    text()
    for _ in range(rng.integers(1, 5)):
        video = bool(rng.integers(2))
        frames = int(rng.integers(1, 9)) if video else 1
        rows, columns = map(int, rng.integers(1, 6, 2))
        seconds = [float(rng.choice([0.5, 0.75, 1.0, 2.0]))] if video and name in TIMED else []
        grids.append((1 + video, (frames, rows * MERGE, columns * MERGE, *seconds)))
        token = VIDEO if video and name not in GLM else IMAGE
        columns += name in NEWLINES  # transformers knows no text between the frames of videos with newlines
        if video and name in BY_FRAME and name not in NEWLINES:
            put([107])  # the start of a video for GLM-4V, text for others
            for _ in range(frames):
                put([token] * (rows * columns), 2)
                text()
            put([108])
        elif video and with_audio:
            sounds.append(int(rng.integers(1, 200)))
            times = [i * seconds[0] * 25 for i in range(frames)]
            put([START, AUDIO_START, *mixed(name, times, rows * columns, sounds[-1]), END, END])
        else:
            put([START, *[token] * (frames * rows * columns), END])
            types[-1 - frames * rows * columns : -1] = [1 + video] * (frames * rows * columns)
        text()
        if name in OMNI and rng.integers(2):
            sounds.append(int(rng.integers(1, 60)))
            put([AUDIO_START, *[AUDIO] * sounds[-1], END])
            text()
    return ids, types, grids, sounds


def padded(rows, side):
    """Return rows padded on one side with zeros."""
    pads = [[0] * (max(map(len, rows)) - len(row)) for row in rows]
    return [[*pad, *row] if side == "left" else [*row, *pad] for pad, row in zip(pads, rows, strict=True)]


def batch(name, seed, side="left", **options):
    """Return ids, types, mask, grids by type, and audio lengths of three random rows."""
    rng = np.random.default_rng([seed, len(name)])
    ids, types, grids, sounds = zip(*[random_row(rng, name, **options) for _ in range(3)], strict=True)
    mask = padded([[1] * len(row) for row in ids], side)
    return padded(ids, side), padded(types, side), mask, [*chain(*grids)], [*chain(*sounds)]


def by_transformers(name, case, **options):
    """Return position ids of transformers, (batch, seq, axes)."""
    import torch

    torch.set_num_threads(1)
    ids, types, mask, grids, sounds = case
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
    got, _ = transformers_model(name).get_rope_index(torch.tensor(ids), **given)
    return np.moveaxis(got.numpy(), 0, -1)


def check(name, case, *, time_advances=True, **options):
    """Compare a batch with transformers, except the positions of padding, which are 0 here."""
    ids, _, mask, grids, _ = case
    want = by_transformers(name, case, **options)
    kept = [grid for _, grid in grids]
    got = stream(config(name), ids, kept, like=LIKE, mask=mask, time_advances=time_advances)
    tokens = np.array(mask, bool)
    np.testing.assert_array_equal(got[tokens], want[tokens])
    assert not got[~tokens].any()


# --- against transformers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VISUAL)
@pytest.mark.parametrize("seed", range(4))
def test_positions_from_token_ids_equal_those_of_transformers(name, seed):
    case = batch(name, seed, ("left", "right")[seed % 2])
    # A fault of transformers from 5.3 on: text follows the rows and columns of a video, before its last frames.
    check(name, case, time_advances=False)
    if name in BY_FRAME:  # frames are separate, and none is before the text that follows
        check(name, case)


@pytest.mark.parametrize("with_audio", [False, True])
@pytest.mark.parametrize("name", OMNI)
@pytest.mark.parametrize("seed", range(8))
def test_positions_of_omni_tokens_equal_those_of_transformers(name, seed, with_audio):
    case = batch(name, seed, ("left", "right")[seed % 2], with_audio=with_audio)
    check(name, case, use_audio_in_video=with_audio)


@pytest.mark.parametrize("name", OMNI)
def test_text_after_a_wide_video_follows_its_short_audio(name):
    ids = [[1, START, AUDIO_START, *[VIDEO] * 5, *[AUDIO] * 2, END, END, 1]]
    check(name, (ids, None, [[1] * len(ids[0])], [(2, (1, 2, 10, 1.0))], [2]), use_audio_in_video=True)


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

ERRORS = {
    "an unknown model": ({"model_type": "llama"}, {}, ValueError, "model_type must be one whose .* got 'llama'"),
    "no id": ({"video_token_id": None}, {}, ValueError, "video_token_id must be given"),
    "one id for two": ({"video_token_id": IMAGE}, {}, ValueError, "image_token_id, video_token_id must differ"),
    "no tower": ({"vision_config": None}, {}, ValueError, "vision_config.spatial_merge_size must be given"),
    "an id that is a float": ({}, {"token_ids": [[1.5]]}, TypeError, "token_ids must be an integer; got float 1.5"),
    "no rows": ({}, {"token_ids": []}, ValueError, r"token_ids and mask must have shape \(batch, seq\)"),
    "another mask": ({}, {"mask": [[1]]}, ValueError, "token_ids and mask must have shape"),
    "no grids": ({}, {"grids": []}, ValueError, "grids must have one for each .* got 0, and 2 more image tokens"),
    "a grid too many": ({}, {"grids": [(1, 2, 4)] * 2}, ValueError, "got 2, and tokens of 1"),
    "a short run": ({}, {"grids": [(1, 4, 4)]}, ValueError, r"grids\[0\] must fit .* got 4 .* for a run of 2"),
    "a long run": ({}, {"grids": [(1, 2, 2)]}, ValueError, "got 1, and 1 more image tokens"),
    "a huge grid": ({}, {"grids": [(1, 2**30, 2**30)]}, ValueError, r"grids\[0\] must fit its image tokens"),
    "two sizes": ({}, {"grids": [(2, 4)]}, ValueError, r"grids\[0\] must be \(frames, rows, columns\) of image"),
    "no frames": ({}, {"grids": [(0, 2, 4)]}, ValueError, r"grids\[0\] must be from 1"),
    "half a row": ({}, {"grids": [(1, 2.5, 4)]}, TypeError, r"grids\[0\] must be an integer; got float 2.5"),
    "an odd row": ({}, {"grids": [(1, 3, 4)]}, ValueError, "multiples of 2 rows and columns for merging"),
    "a video for an image": ({}, {"grids": [(2, 2, 2)]}, ValueError, "must be that of an image, with one frame"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_the_wrong_stream(case):
    changed, given, error, message = ERRORS[case]
    options = {"token_ids": [[1, IMAGE, IMAGE, 2]], "grids": [(1, 2, 4)], **given}
    with pytest.raises(error, match=message) as caught:
        stream({**config("qwen2_vl"), **changed}, like=LIKE, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "ids", "grids", "message"),
    [
        ("qwen2_5_vl", [VIDEO], [(1, 2, 2)], "seconds from frame to frame.* of video tokens"),
        ("qwen2_5_vl", [VIDEO], [(1, 2, 2, 0.0)], r"grids\[0\] must be positive and finite; got 0.0"),
        ("qwen2_5_vl", [IMAGE], [(1, 2, 2, 1.0)], r"\(frames, rows, columns\) of image tokens"),
        ("qwen3_vl", [VIDEO, 1], [(2, 2, 2)], "got 1, and tokens of 0, and 1 frames of the next"),
        ("qwen3_vl", [VIDEO, 1, IMAGE], [(2, 2, 2), (1, 2, 2)], r"grids\[0\] must be that of an image"),
        ("qwen3_omni_moe_thinker", [START, AUDIO_START, VIDEO, AUDIO, VIDEO], [(1, 2, 2, 1.0)] * 2, "grids must have"),
    ],
)
def test_errors_name_the_wrong_video(name, ids, grids, message):
    with pytest.raises(ValueError, match=message):
        stream(config(name), [ids], grids, like=LIKE)


def test_omni_models_refuse_time_advances_false():
    with pytest.raises(ValueError, match="time_advances must be True for an Omni model"):
        stream(config(OMNI[0]), [[1]], [], like=LIKE, time_advances=False)
