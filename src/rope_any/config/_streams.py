"""
Number a stream of text, images, videos and audio as a model does, from its token ids, by ``model_type``.

Read in transformers 5.23, and compared there with the `get_rope_index` of each model. Audio is numbered as text, but
for the audio of a video in Omni models, whose tokens are numbered beside those of the frames.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, compress, product
from typing import Any, TypeAlias

from rope_any import positions
from rope_any._arrays import Array, library
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, brief, int32, integer, positive
from rope_any._positions import as_position_array
from rope_any.config._load import typed
from rope_any.config._models import ALL, Numbering

# The keys of token ids, and a letter for each: a row of tokens becomes a string, in which all other text is a dot.
_USUAL = {"image_token_id": "i", "video_token_id": "v"}
_OMNI = {**_USUAL, "audio_token_id": "a", "vision_start_token_id": "s", "audio_start_token_id": "b"}
_IDS: Mapping[str, Mapping[str, str]] = {
    "usual": _USUAL,
    "glm": {"image_token_id": "i", "video_start_token_id": "(", "video_end_token_id": ")"},
    "omni": _OMNI,
}
_GLM_VIDEO = re.compile(r"\([^)]*")
_RUNS = re.compile(r"sb(?P<both>[av]*v[av]*)(?P<end>[^iv]{0,2})|(?P<grid>i+|v+)|(?:(?!sb[av]*v)[^iv])+")
_KINDS = {"i": "image", "v": "video"}

Axes: TypeAlias = Sequence[Sequence[float]]  # the coordinates of a grid, or of text on its only axis

STREAMS: Mapping[str, Numbering] = {name: model.stream for name, model in ALL.items() if model.stream is not None}


def stream(
    whole: Mapping[str, Any], token_ids: Any, grids: Any, *, like: Array, mask: Any = None, time_advances: bool = True
) -> Array:
    """
    Return where the tokens of a batch stand in time, height and width.

    Parameters
    ----------
    whole : mapping
        The config of the whole model.
    token_ids : sequence of sequence of int, or array on the host
        ``(batch, seq)``, with a placeholder for each token of an image, a video or audio.
    grids : sequence of sequence of numbers, or array on the host
        The frames, rows and columns of each image and video in patches, before merging, in the order of the tokens,
        row by row. A video of Qwen2.5-VL or an Omni model has the seconds from frame to frame as a fourth number.
    like : array
        Names the library and the device.
    mask : sequence of sequence of 0 or 1, or array on the host, optional
        ``(batch, seq)``, 0 for padding, which gets position 0.
    time_advances : bool, optional
        As for `rope_any.positions.mrope`. Omni models have no choice.

    Returns
    -------
    array
        ``(batch, seq, 3)``: int64 or int32; for Qwen3-Omni, whose times have fractions, float64 or float32.

    Raises
    ------
    TypeError, ValueError
        If the model is unknown, its config lacks a value, an argument is of another kind, or grids and tokens differ.
    """
    model_type = whole.get("model_type")
    row = STREAMS.get(model_type) if isinstance(model_type, str) else None
    if row is None:
        raise ArgumentValueError("model_type", f"be one whose streams are known ({', '.join(STREAMS)})", model_type)
    omni, names = row.ids == "omni", _IDS[row.ids]
    if omni and not time_advances:
        raise ArgumentValueError("time_advances", "be True for an Omni model, as transformers has it", time_advances)
    keys = whole.get("thinker_config", whole)
    letters = {int32(key, _value(keys, key)): letter for key, letter in names.items()}
    if len(letters) != len(names):
        raise ArgumentValueError(", ".join(names), "differ", list(letters))
    tokens = _lists("token_ids", token_ids)
    masks = [[1] * len(ids) for ids in tokens] if mask is None else [[*map(_kept, row)] for row in _lists("mask", mask)]
    lengths = [*map(len, tokens)]
    if not tokens or len({*lengths}) > 1 or [*map(len, masks)] != lengths:
        raise ArgumentValueError("token_ids and mask", "have shape (batch, seq)", Text(f"rows of {brief(lengths)}"))
    drawn, xp, rows = _Grids(row, keys, grids), library(like=like).xp, []
    for ids, kept in zip(tokens, masks, strict=True):
        own = [letters.get(integer("token_ids", token), ".") for token in compress(ids, kept)]
        kinds = _GLM_VIDEO.sub(lambda video: video[0].replace("i", "v"), "".join(own))
        if omni:
            numbers = as_position_array([(0, 0, 0), *_omni(kinds, drawn, row)], like=like)  # the first is for padding
        else:
            placed = positions.mrope(_spans(kinds, drawn) or [0], like=like, time_advances=time_advances)
            numbers = xp.concat([positions.mrope([1], like=like), placed], axis=0)
        counts = [n * keep for n, keep in zip(accumulate(kept), kept, strict=True)]
        rows.append(xp.take(numbers, as_position_array(counts, like=like), axis=0))
    drawn.require_all_used()
    return xp.stack(rows, axis=0)


def _kept(value: object) -> int:
    """Return 1 for a token and 0 for padding."""
    return int(value if isinstance(value, bool) else integer("mask", value) != 0)


def _spans(kinds: str, drawn: "_Grids") -> list[Any]:
    """Return the spans of a row of tokens, as `mrope` takes them."""
    spans: list[Any] = []
    for run in _RUNS.finditer(kinds):
        spans += drawn.of_run(run["grid"]) if run["grid"] else [len(run[0])]
    return spans


def _omni(kinds: str, drawn: "_Grids", row: Numbering) -> list[tuple[float, ...]]:
    """Return the positions of a row of tokens in an Omni model."""
    rows: list[tuple[float, ...]] = []
    first: float = 0 if row.whole else 0.0
    pair = (0, 0) if row.shared else (0, 1)  # the starts of a video and of its audio, or their ends
    axes: list[Axes]
    for run in _RUNS.finditer(kinds):
        if run["both"] is None:
            axes = drawn.of_run(run["grid"]) if run["grid"] else [[range(len(run[0]))]]
        else:
            rows += [(first + i,) * 3 for i in pair]
            first = 1 + rows[-1][0]
            axes = drawn.of_run("v" * run["both"].count("v"))
            if len(axes) > 1:
                got = Text(f"{len(axes)} that fit its tokens")
                raise ArgumentValueError("grids", "have one for a video with audio", got)
            video, audio = iter(_laid(first, axes[0])), iter(_laid(first, [range(len(kinds))]))
            rows += [next(video if kind == "v" else audio) for kind in run["both"]]
            axes = [[pair[: len(run["end"])]]] if run["end"] else []
            first = 1 + max(rows[-1])  # not behind all tokens: behind the last frame or the audio, whichever comes last
        for one in axes:
            rows += _laid(first, one)
            first = 1 + max(rows[-1])  # the last token has the largest position on each axis
    return rows


def _laid(first: float, axes: Axes) -> list[tuple[float, ...]]:
    """Return the positions of a grid, or of text, which has one axis."""
    return [tuple(first + place for place in token) * (3 // len(axes)) for token in product(*axes)]


class _Grids:
    """The grids of a batch, used up in the order of its tokens."""

    def __init__(self, row: Numbering, keys: Mapping[str, Any], grids: Any) -> None:
        """Read the sizes in the config; the grids are read when their tokens come."""
        self.row = row
        self.merge = int32("spatial_merge_size", _value(keys, "vision_config", "spatial_merge_size"), least=1)
        rate = row.rate.split(".")
        self.rate = positive(rate[-1], _value(keys, *rate)) if row.rate else 1.0
        self.grids = _lists("grids", grids)
        self.used = 0
        self.frames_left = 0

    def of_run(self, run: str) -> list[Axes]:
        """Return the coordinates (times, rows, columns) of the grids whose tokens are a run of one kind."""
        kind, left = _KINDS[run[0]], len(run)
        found: list[Axes] = []
        while left:
            if self.used == len(self.grids):
                got = Text(f"{self.used}, and {left} {kind} tokens more")
                raise ArgumentValueError("grids", "have one for each image and video", got)
            name = f"grids[{self.used}]"
            frames, rows, columns, *seconds = self._sizes(name, kind)
            if self.row.by_frame and kind == "video":
                self.frames_left, frames = (self.frames_left or frames) - 1, 1
            if (n := frames * rows * columns) > left:
                got = Text(f"{n} after merging, for a run of {left}")
                raise ArgumentValueError(name, f"fit its {kind} tokens", got)
            times = [i * self.rate * s for s in seconds for i in range(frames)] or range(frames)
            found.append([[int(time) for time in times] if self.row.whole else times, range(rows), range(columns)])
            left -= n
            self.used += not self.frames_left
        return found

    def _sizes(self, name: str, kind: str) -> list[Any]:
        """Return the frames, rows and columns of the next grid in tokens, and the seconds from frame to frame."""
        sizes = self.grids[self.used]
        timed = kind == "video" and bool(self.row.rate)
        if len(sizes) != 3 + timed:
            wanted = "(frames, rows, columns, seconds from frame to frame)" if timed else "(frames, rows, columns)"
            raise ArgumentValueError(name, f"be {wanted} of {kind} tokens", sizes)
        frames, rows, columns = (int32(name, size, least=1) for size in sizes[:3])
        if kind == "image" and (frames > 1 or self.frames_left):
            raise ArgumentValueError(name, "be that of an image, with one frame, for image tokens", sizes)
        if rows % self.merge or columns % self.merge:
            raise ArgumentValueError(name, f"have multiples of {self.merge} rows and columns, which are merged", sizes)
        return [frames, rows // self.merge, columns // self.merge, *(positive(name, s) for s in sizes[3:])]

    def require_all_used(self) -> None:
        """Raise if there are grids, or frames of one, without tokens."""
        if self.used < len(self.grids):
            frames = f", and {self.frames_left} frames of the next" if self.frames_left else ""
            got = Text(f"{len(self.grids)}, and tokens of {self.used}{frames}")
            raise ArgumentValueError("grids", "be those of the tokens", got)


def _value(keys: Any, *path: str) -> Any:
    """Return what a config has at a path; Qwen2.5-Omni has some token ids under older names."""
    found = keys
    for key in path:
        found = (
            found.get(key, found.get(key.replace("_token_id", "_token_index"))) if isinstance(found, Mapping) else None
        )
    if found is None:
        raise ArgumentValueError(".".join(path), "be given")
    return found


def _lists(name: str, values: Any) -> list[list[Any]]:
    """Return rows of numbers from the host as lists."""
    wanted = "be a sequence of sequences of numbers"
    rows = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(rows, str | bytes):
        raise ArgumentTypeError(name, wanted, values)
    rows = [row.tolist() if hasattr(row, "tolist") else row for row in typed(name, rows, Sequence, wanted)]
    return [list(typed(f"{name}[{i}]", row, (tuple, list), "be a sequence of numbers")) for i, row in enumerate(rows)]
