"""
The page on migration: its code is run, and its numbers are measured.

Each section has a call of another library and ours, which must return the same. flash-attn and vLLM need a GPU: for them
the call is made to a stand-in of their formula, which is written here. So it is for timm, besides timm itself.
"""

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import rope_any as ra

torch = pytest.importorskip("torch", reason="the libraries of the page run on torch, but for MLX")

PAGE = (Path(__file__).parents[1] / "docs" / "migrate.md").read_text(encoding="utf-8")
LIBRARIES = ["transformers", "rotary-embedding-torch", "torchtune", "flash-attn", "timm", "vLLM", "MLX"]
TOLERANCE = "1e-4"  # as the page says


class Section(NamedTuple):
    """What the page says of a library."""

    blocks: list[str]
    rows: dict[str, list[str]]
    """The cells of the table by row: theirs and ours."""


def section(text: str) -> Section:
    """Return the code blocks and the table of a section."""
    table = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    ]
    return Section(
        re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL), {row[0]: row[1:] for row in table[2:]}
    )


HEADING, *TEXTS = re.split(r"^## From (.+)\n", PAGE, flags=re.MULTILINE)
SECTIONS = {name: section(text) for name, text in zip(TEXTS[::2], TEXTS[1::2], strict=True)}


# --- the libraries ----------------------------------------------------------------------------------------


def part_of(package: str, name: str) -> bool:
    return f"{name}.".startswith(f"{package}.")


@contextmanager
def other_modules(package: str) -> Iterator[None]:
    """Let modules be put in the place of a package and its parts; put those that were there back."""
    before = {name: sys.modules.pop(name) for name in [*sys.modules] if part_of(package, name)}
    try:
        yield
    finally:
        for name in [name for name in sys.modules if part_of(package, name)]:
            del sys.modules[name]
        sys.modules.update(before)


def stub(name: str, root: Path | None = None, **values: Any) -> None:
    """Put an empty package and its parents in sys.modules, with a folder if there is one, and values in the last."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:count]))
        module.__path__ = [] if root is None else [str(root.joinpath(*parts[1:count]))]
        sys.modules[module.__name__] = module
    vars(sys.modules[name]).update(values)


@contextmanager
def one_file(package: str, file: str) -> Iterator[ModuleType]:
    """Import one file of an installed package, and give its names to the package, which itself imports much more."""
    top = package.partition(".")[0]
    found = importlib.util.find_spec(top)
    if found is None or found.submodule_search_locations is None:
        pytest.skip(f"{top} is not installed")
    with other_modules(top):
        stub(package, Path(next(iter(found.submodule_search_locations))))
        module = importlib.import_module(f"{package}.{file}")
        vars(sys.modules[package]).update({name: value for name, value in vars(module).items() if name[0] != "_"})
        yield module


@contextmanager
def installed(name: str, *, minversion: str | None = None) -> Iterator[ModuleType]:
    """Import a library, or skip the test."""
    yield pytest.importorskip(name, minversion=minversion, reason=f"{name} {minversion or ''} is not installed")


INSTALLED = {
    "transformers": lambda: installed("transformers", minversion="5"),
    "rotary-embedding-torch": lambda: installed("rotary_embedding_torch"),
    "torchtune": lambda: one_file("torchtune.modules", "position_embeddings"),
    "timm": lambda: one_file("timm.layers", "pos_embed_sincos"),
    "MLX": lambda: installed("mlx.nn"),
}


# --- stand-ins of libraries that don't run here -----------------------------------------------------------


def float32_angles(rotary_dim: int, base: float, positions: Any) -> Any:
    """Return the angles as the libraries make them: positions times frequencies, in float32."""
    return positions.float()[..., None] / base ** (torch.arange(0, rotary_dim, 2).float() / rotary_dim)


def rotate_in_place(x, cos, sin, *, interleaved):
    """Rotate x (..., heads, dim) by tables (..., pairs) as their kernels do: in float32, and rounded once."""
    cos, sin, half = cos.float()[..., None, :], sin.float()[..., None, :], cos.shape[-1]
    first = slice(0, 2 * half, 2) if interleaved else slice(half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    a, b = x[..., first].float(), x[..., second].float()
    x[..., first], x[..., second] = (a * cos - b * sin).to(x.dtype), (a * sin + b * cos).to(x.dtype)
    return x


def apply_rotary_emb(x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0):  # noqa: FBT002  # as theirs
    """Stand in for flash-attn: x is (batch, seq, heads, dim), tables are (rows, pairs) in the dtype of x."""
    assert x.dtype == cos.dtype == sin.dtype
    rows = torch.arange(x.shape[1]) + torch.as_tensor(seqlen_offsets).reshape(-1, 1)
    return rotate_in_place(x if inplace else x.clone(), cos[rows], sin[rows], interleaved=interleaved)


def get_rope(head_size, max_position, is_neox_style=True, rope_parameters=None, dtype=None):  # noqa: FBT002  # as theirs
    """Stand in for vLLM: heads are flat, the cache has the dtype of the model, q and k are written over."""
    angles = float32_angles(head_size, rope_parameters["rope_theta"], torch.arange(max_position))
    cache = torch.cat([angles.cos(), angles.sin()], dim=-1).to(dtype)

    def rotate(positions, query, key):
        cos, sin = cache[positions].chunk(2, dim=-1)
        for x in (query, key):
            rotate_in_place(x.view(len(positions), -1, head_size), cos, sin, interleaved=not is_neox_style)
        return query, key

    return rotate


class RotaryEmbeddingCat:
    """Stand in for timm: the sines of rows and columns, then the cosines, each twice."""

    def __init__(self, dim, *, in_pixels, feat_shape):
        assert not in_pixels
        grid = torch.cartesian_prod(*(torch.arange(n) for n in feat_shape))  # (patches, 2)
        self.angles = float32_angles(dim // 2, 10_000.0, grid).flatten(1).repeat_interleave(2, -1)

    def get_embed(self):
        return torch.cat([self.angles.sin(), self.angles.cos()], dim=-1)


def apply_rot_embed_cat(x, emb):
    sin, cos = emb.chunk(2, dim=-1)
    rotated = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).reshape(x.shape)
    return (x * cos + rotated * sin).to(x.dtype)


STAND_INS = {
    "flash-attn": ("flash_attn.layers.rotary", {"apply_rotary_emb": apply_rotary_emb}),
    "timm": (
        "timm.layers",
        {"RotaryEmbeddingCat": RotaryEmbeddingCat, "apply_rot_embed_cat": apply_rot_embed_cat},
    ),
    "vLLM": ("vllm.model_executor.layers.rotary_embedding", {"get_rope": get_rope}),
}


@contextmanager
def stand_in(library: str) -> Iterator[None]:
    """Let a library be imported as its stand-in."""
    module, values = STAND_INS[library]
    with other_modules(module.partition(".")[0]):
        stub(module, **values)
        yield


# --- the pairs of calls -----------------------------------------------------------------------------------


def run(*blocks: str) -> dict[str, Any]:
    """Run code blocks one after the other, and return their names."""
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/migrate.md", "exec"), names)  # noqa: S102  # the code of our own page
    return names


def largest_difference(names: dict[str, Any]) -> float:
    """Return the largest difference between the arrays `theirs` and `ours`, which agree in shape and dtype."""
    theirs, ours = names["theirs"], names["ours"]
    assert [(type(x), x.shape, x.dtype) for x in theirs] == [(type(x), x.shape, x.dtype) for x in ours]
    return max(float(abs(a - b).max()) for a, b in zip(theirs, ours, strict=True))


def check_pair(library: str) -> None:
    """Run the two blocks of a library, then again with another rotation of ours, which must not agree."""
    before, after = SECTIONS[library].blocks
    assert largest_difference(run(before, after)) < float(TOLERANCE)
    (pairing,) = re.findall(r"half|interleaved", after) or ["from_config(config"]
    wrong = {"half": "interleaved", "interleaved": "half"}.get(pairing, "from_config(config.to_dict() | OTHER")
    other = "OTHER = {'rope_parameters': {'rope_type': 'default', 'rope_theta': 10_000.0}}\n"
    assert largest_difference(run(before, other + after.replace(pairing, wrong))) > 1


@pytest.mark.parametrize("library", INSTALLED)
def test_a_pair_of_calls_agrees(library):
    with INSTALLED[library]():
        check_pair(library)


@pytest.mark.parametrize("library", STAND_INS)
def test_a_pair_of_calls_agrees_with_a_stand_in(library):
    with stand_in(library):
        check_pair(library)
