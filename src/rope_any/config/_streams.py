"""
Compute the positions of a stream of text, images, videos and audio from its token ids, as each ``model_type`` does.

The rules are those of `get_rope_index` in transformers 5.24; tests compare the positions with it. Audio has the
positions of text, except for the audio of a video in Omni models, whose tokens are between those of the frames.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, compress, product
from typing import Any

from rope_any._arrays import Array, library
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, brief, flag, int32, integer, positive
from rope_any._positions import Coordinates, as_position_array
from rope_any.config._load import typed
from rope_any.config.tables.models import ALL
from rope_any.config.tables.rows import UNKNOWN, Numbering

# The keys of token ids, with a letter for each: a row of tokens becomes a string, with a dot for each other token.
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


def stream(
    config: Mapping[str, Any], token_ids: Any, grids: Any, *, like: Array, mask: Any = None, time_advances: bool = True
) -> Array:
    """
    Return the positions (time, height, width) of the tokens of a batch, ``(batch, seq, 3)``, in the library of `like`.

    `config` is that of the whole model; other arguments are as in `rope_any.config.Config.positions`. Grids don't count
    tokens that end rows. Integers, or floats for Qwen3-Omni, whose times are fractions. Raise if grids and tokens don't
    match.
    """
    model_type = config.get("model_type")
    numbering = ALL.get(model_type, UNKNOWN).stream if isinstance(model_type, str) else None
    if numbering is None:
        known = ", ".join(name for name, model in ALL.items() if model.stream)
        raise ArgumentValueError("model_type", f"be one whose streams are known ({known})", model_type)
    names = _IDS[numbering.ids]
    if not flag("time_advances", time_advances) and numbering.ids == "omni":
        raise ArgumentValueError("time_advances", "be True for an Omni model, as in transformers", time_advances)
    keys = config.get("thinker_config", config)
    letters = {int32(key, _required_value(keys, key)): letter for key, letter in names.items()}
    if len(letters) != len(names):
        raise ArgumentValueError(", ".join(names), "differ", list(letters))
    tokens = _rows_as_lists("token_ids", token_ids)
    masks = [[1] * len(ids) for ids in tokens]
    if mask is not None:
        masks = [[*map(_kept, row)] for row in _rows_as_lists("mask", mask)]
    lengths = [*map(len, tokens)]
    if not tokens or len({*lengths}) > 1 or [*map(len, masks)] != lengths:
        raise ArgumentValueError("token_ids and mask", "have shape (batch, seq)", Text(f"rows of {brief(lengths)}"))
    grid_queue, xp, rows = _Grids(numbering, keys, grids), library(like=like).xp, []
    for ids, kept in zip(tokens, masks, strict=True):
        token_letters = "".join(letters.get(integer("token_ids", token), ".") for token in compress(ids, kept))
        token_letters = _GLM_VIDEO.sub(lambda video: video[0].replace("i", "v"), token_letters)
        # the first is for padding
        coordinates = [(0, 0, 0), *_positions(token_letters, grid_queue, numbering, time_advances=time_advances)]
        numbers = as_position_array(coordinates, like=like)
        counts = [n * keep for n, keep in zip(accumulate(kept), kept, strict=True)]
        rows.append(xp.take(numbers, as_position_array(counts, like=like), axis=0))
    grid_queue.require_all_used()
    return xp.stack(rows, axis=0)


def _kept(value: object) -> int:
    """Return a value of the mask as 1 (a token) if it is True or a nonzero integer, else 0; raise for other types."""
    return int(value if isinstance(value, bool) else integer("mask", value) != 0)


def _positions(
    token_letters: str, grid_queue: "_Grids", numbering: Numbering, *, time_advances: bool
) -> list[tuple[float, ...]]:
    """Return the (time, height, width) of each token of a sequence. Raise if a grid does not fit."""
    rows: list[tuple[float, ...]] = []
    first: float = 0 if numbering.whole else 0.0
    # the offsets of the start tokens of a video and of its audio, and of their end tokens
    pair = (0, 0) if numbering.shared else (0, 1)
    axes: list[Coordinates]
    for run in _RUNS.finditer(token_letters):
        if run["both"] is None:
            axes = grid_queue.take_for_run(run["grid"]) if run["grid"] else [[range(len(run[0]))]]
        else:
            rows += [(first + i,) * 3 for i in pair]
            first = 1 + rows[-1][0]
            axes = grid_queue.take_for_run("v" * run["both"].count("v"))
            if len(axes) > 1:
                got = Text(f"{len(axes)} that fit its tokens")
                raise ArgumentValueError("grids", "have one for a video with audio", got)
            video = iter(_grid_positions(first, axes[0]))
            audio = iter(_grid_positions(first, [range(len(token_letters))]))
            rows += [next(video if kind == "v" else audio) for kind in run["both"]]
            axes = [[pair[: len(run["end"])]]] if run["end"] else []
            # after the last token, of a frame or of the audio, not after the largest position
            first = 1 + max(rows[-1])
        for one in axes:
            rows += _grid_positions(first, one)
            first = 1 + max(rows[-1][0 if time_advances else 1 :])  # the last token has the largest one on each axis
    return rows


def _grid_positions(first: float, axes: Coordinates) -> list[tuple[float, ...]]:
    """Return the position of each token: `first` plus its coordinates; one axis (text) is repeated for all three."""
    return [tuple(first + coordinate for coordinate in token) * (3 // len(axes)) for token in product(*axes)]


class _Grids:
    """The grids of a batch; the tokens of images and videos take them in order."""

    def __init__(self, numbering: Numbering, keys: Mapping[str, Any], grids: Any) -> None:
        """Read the merge size and the time scale in the config `keys`; a grid is checked when its tokens take it."""
        self.numbering = numbering
        self.merge = int32("spatial_merge_size", _required_value(keys, "vision_config", "spatial_merge_size"), least=1)
        rate = numbering.rate.split(".")
        self.rate = positive(rate[-1], _required_value(keys, *rate)) if numbering.rate else 1.0
        self.grids = _rows_as_lists("grids", grids)
        self.used = 0
        self.frames_left = 0

    def take_for_run(self, run: str) -> list[Coordinates]:
        """Take grids for `run`, a letter per token; return each one's coordinates by axis. Raise if they don't fit."""
        medium, left = _KINDS[run[0]], len(run)
        found: list[Coordinates] = []
        while left:
            if self.used == len(self.grids):
                got = Text(f"{self.used}, and {left} more {medium} tokens")
                raise ArgumentValueError("grids", "have one for each image and video", got)
            name = f"grids[{self.used}]"
            frames, rows, columns, *seconds = self._next_sizes(name, medium)
            if self.numbering.by_frame and medium == "video":
                # each frame is an image of its own; the run may end between two
                self.frames_left, frames = (self.frames_left or frames) - 1, 1
            if (n := frames * rows * columns) > left:
                got = Text(f"{n} after merging, for a run of {left}")
                raise ArgumentValueError(name, f"fit its {medium} tokens", got)
            times = [i * self.rate * s for s in seconds for i in range(frames)] or range(frames)
            found.append([[*map(int, times)] if self.numbering.whole else times, range(rows), range(columns)])
            left -= n
            self.used += not self.frames_left
        return found

    def _next_sizes(self, name: str, medium: str) -> list[Any]:
        """Return [frames, rows, columns] in tokens of the next grid, not taken (video: seconds). Raise if wrong."""
        sizes = self.grids[self.used]
        timed = medium == "video" and bool(self.numbering.rate)
        if len(sizes) != 3 + timed:
            wanted = "(frames, rows, columns, seconds from frame to frame)" if timed else "(frames, rows, columns)"
            raise ArgumentValueError(name, f"be {wanted} of {medium} tokens", sizes)
        frames, rows, columns = (int32(name, size, least=1) for size in sizes[:3])
        if medium == "image" and (frames > 1 or self.frames_left):
            raise ArgumentValueError(name, "be that of an image, with one frame, for image tokens", sizes)
        if rows % self.merge or columns % self.merge:
            raise ArgumentValueError(name, f"have multiples of {self.merge} rows and columns for merging", sizes)
        columns = columns // self.merge + self.numbering.newline  # a token may end each row
        return [frames, rows // self.merge, columns, *(positive(name, s) for s in sizes[3:])]

    def require_all_used(self) -> None:
        """Raise if there are grids, or frames of a grid, that no tokens have taken."""
        if self.used < len(self.grids):
            frames = f", and {self.frames_left} frames of the next" if self.frames_left else ""
            got = Text(f"{len(self.grids)}, and tokens of {self.used}{frames}")
            raise ArgumentValueError("grids", "be those of the tokens", got)


def _required_value(keys: Any, *path: str) -> Any:
    """Return the value at a path in the config `keys`, by "_token_index" if "_token_id" is missing; raise if none."""
    found = keys
    for key in path:
        older = key.replace("_token_id", "_token_index")
        found = found.get(key, found.get(older)) if isinstance(found, Mapping) else None
    if found is None:
        raise ArgumentValueError(".".join(path), "be given")
    return found


def _rows_as_lists(name: str, values: Any) -> list[list[Any]]:
    """Return nested sequences or a 2-D host array as a list of rows; raise if there are none; entries are unchecked."""
    wanted = "be a sequence of sequences of numbers"
    rows = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(rows, str | bytes):
        raise ArgumentTypeError(name, wanted, values)
    rows = [row.tolist() if hasattr(row, "tolist") else row for row in typed(name, rows, Sequence, wanted)]
    return [list(typed(f"{name}[{i}]", row, (tuple, list), "be a sequence of numbers")) for i, row in enumerate(rows)]
