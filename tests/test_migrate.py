"""
The page on migration: its code is run, and its numbers are measured.

Each section has a call of another library and ours, which must return the same. flash-attn and vLLM need a GPU, so
fakes with their formulas replace them; one replaces timm where it is not installed in the version of the page.
"""

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import rope_any as ra

torch = pytest.importorskip("torch", reason="the libraries of the page run on torch, but for MLX")

PAGE = (Path(__file__).parents[1] / "docs" / "migrate.md").read_text(encoding="utf-8")
TOLERANCE = "1e-4"  # as the page says
_, *TEXTS = re.split(r"^## From (.+)\n", PAGE, flags=re.MULTILINE)
SECTIONS = dict(zip(TEXTS[::2], TEXTS[1::2], strict=True))
"""The text on each library."""


def test_the_page_has_two_blocks_for_each_library_and_states_how_well_they_agree():
    assert 2 * len(SECTIONS) == PAGE.count("```py")  # each block is run
    assert f"agree to {TOLERANCE} " in PAGE


# --- the libraries ----------------------------------------------------------------------------------------


@contextmanager
def replaceable(package: str) -> Iterator[None]:
    """Remove a package from sys.modules, so that it can be replaced; restore it afterwards."""
    is_inside = re.compile(rf"{package}(\.|$)").match
    before = {name: sys.modules.pop(name) for name in [*sys.modules] if is_inside(name)}
    try:
        yield
    finally:
        for name in filter(is_inside, [*sys.modules]):
            del sys.modules[name]
        sys.modules.update(before)


def stub(name: str, root: Path | None = None, **values: Any) -> None:
    """Put an empty package with these values, and its parents, in sys.modules; their files are looked up below root."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        module = ModuleType(".".join(parts[:count]))
        module.__path__ = [] if root is None else [str(root.joinpath(*parts[1:count]))]
        sys.modules[module.__name__] = module
    vars(sys.modules[name]).update(values)


@contextmanager
def one_file(package: str, file: str) -> Iterator[ModuleType]:
    """Import one file of an installed package without the rest of it, and give its names to the package."""
    top = package.partition(".")[0]
    found = importlib.util.find_spec(top) or pytest.skip(f"{top} is not installed")
    with replaceable(top):
        stub(package, Path(str(found.origin)).parent)
        module = importlib.import_module(f"{package}.{file}")
        vars(sys.modules[package]).update({name: value for name, value in vars(module).items() if name[0] != "_"})
        yield module


INSTALLED = {
    "transformers": lambda: nullcontext(pytest.importorskip("transformers", minversion="5")),
    "rotary-embedding-torch": lambda: nullcontext(pytest.importorskip("rotary_embedding_torch")),
    "torchtune": lambda: one_file("torchtune.modules", "position_embeddings"),
    "timm": lambda: one_file("timm.layers", "pos_embed_sincos"),
    "MLX": lambda: nullcontext(pytest.importorskip("mlx.nn")),
}


# --- fakes of libraries that don't run here ---------------------------------------------------------------


def float32_angles(rotary_dim: int, base: float, positions: Any) -> Any:
    """Return the angles as the libraries compute them: positions times frequencies, in float32."""
    return positions.float()[..., None] * (1 / base ** (torch.arange(0, rotary_dim, 2).float() / rotary_dim))


def rotate_in_place(x, cos, sin, *, interleaved):
    """Rotate x (..., heads, dim) by tables (..., pairs) as their kernels do: in float32, rounded once."""
    cos, sin, half = cos.float()[..., None, :], sin.float()[..., None, :], cos.shape[-1]
    first = slice(0, 2 * half, 2) if interleaved else slice(half)
    second = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    a, b = x[..., first].float(), x[..., second].float()
    x[..., first], x[..., second] = (a * cos - b * sin).to(x.dtype), (a * sin + b * cos).to(x.dtype)
    return x


def apply_rotary_emb(x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0):  # noqa: FBT002, PLR0917  # as theirs
    """Replace flash-attn: x is (batch, seq, heads, dim), tables are (rows, pairs) in the dtype of x."""
    assert x.dtype == cos.dtype == sin.dtype
    rows = torch.arange(x.shape[1], device=x.device) + torch.as_tensor(seqlen_offsets).reshape(-1, 1)
    return rotate_in_place(x if inplace else x.clone(), cos[rows], sin[rows], interleaved=interleaved)


def get_rope(head_size, max_position, is_neox_style=True, rope_parameters=None, dtype=None):  # noqa: FBT002  # as theirs
    """Replace vLLM: heads are flat, the cache has the dtype of the model, q and k are overwritten."""
    angles = float32_angles(head_size, rope_parameters["rope_theta"], torch.arange(max_position))
    cache = torch.cat([angles.cos(), angles.sin()], dim=-1).to(dtype)

    def rotate(positions, query, key):
        """Return q and k, rotated in place as vLLM does."""
        cos, sin = cache.to(query.device)[positions].chunk(2, dim=-1)
        for x in (query, key):
            rotate_in_place(x.view(len(positions), -1, head_size), cos, sin, interleaved=not is_neox_style)
        return query, key

    return rotate


class RotaryEmbeddingCat:
    """Replace timm: the sines of rows and columns, then the cosines, each twice."""

    def __init__(self, dim, *, in_pixels, feat_shape):
        """Compute the angles of a grid, as timm does."""
        assert not in_pixels
        grid = torch.cartesian_prod(*(torch.arange(n) for n in feat_shape))  # (patches, 2)
        self.angles = float32_angles(dim // 2, 10_000.0, grid).flatten(1).repeat_interleave(2, -1)

    def get_embed(self):
        """Return the sines and cosines side by side."""
        return torch.cat([self.angles.sin(), self.angles.cos()], dim=-1)


def apply_rot_embed_cat(x, emb):
    """Rotate interleaved pairs, as timm does."""
    sin, cos = emb.chunk(2, dim=-1)
    rotated = torch.stack([-x[..., 1::2], x[..., ::2]], dim=-1).reshape(x.shape)
    return (x * cos + rotated * sin).to(x.dtype)


FAKES = {
    "flash-attn": ("flash_attn.layers.rotary", {"apply_rotary_emb": apply_rotary_emb}),
    "timm": ("timm.layers", {"RotaryEmbeddingCat": RotaryEmbeddingCat, "apply_rot_embed_cat": apply_rot_embed_cat}),
    "vLLM": ("vllm.model_executor.layers.rotary_embedding", {"get_rope": get_rope}),
}


@contextmanager
def fake(library: str) -> Iterator[ModuleType]:
    """Let a library be imported as its fake."""
    module, values = FAKES[library]
    with replaceable(module.partition(".")[0]):
        stub(module, **values)
        yield sys.modules[module]


def _has_timm_of_the_page() -> bool:
    """Whether the timm whose errors the page has is installed: others compute in other dtypes."""
    try:
        return f"timm {version('timm')} " in PAGE
    except PackageNotFoundError:
        return False


def library_of(name: str) -> Any:
    """Return a context in which a library can be imported: the installed one, or its fake."""
    if name in INSTALLED and (name != "timm" or _has_timm_of_the_page()):
        return INSTALLED[name]()
    return fake(name)


# --- the pairs of calls -----------------------------------------------------------------------------------


def run(*blocks: str) -> dict[str, Any]:
    """Run code blocks one after the other, and return their names."""
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/migrate.md", "exec"), names)  # noqa: S102  # the code of the page
    return names


def largest_difference(names: dict[str, Any]) -> float:
    """Return the largest difference between the arrays `theirs` and `ours`, which agree in shape and dtype."""
    theirs, ours = names["theirs"], names["ours"]
    assert [(type(x), x.shape, x.dtype) for x in theirs] == [(type(x), x.shape, x.dtype) for x in ours]
    return max(float(abs(a - b).max()) for a, b in zip(theirs, ours, strict=True))


@pytest.mark.parametrize("library", SECTIONS)
def test_a_pair_of_calls_agrees_unless_our_rotation_is_another(library):
    before, after = re.findall(r"^```py\n(.*?)^```$", SECTIONS[library], re.MULTILINE | re.DOTALL)
    (pairing,) = re.findall(r"half|interleaved", after) or ["from_config(config"]
    wrong = {"half": "interleaved", "interleaved": "half"}.get(pairing, "from_config(config.to_dict() | OTHER")
    other = "OTHER = {'rope_parameters': {'rope_type': 'default', 'rope_theta': 10_000.0}}\n"
    with library_of(library):
        assert largest_difference(run(before, after)) < float(TOLERANCE)
        assert largest_difference(run(before, other + after.replace(pairing, wrong))) > 1


# --- the errors in the tables -----------------------------------------------------------------------------

DIM, TOKENS, FAR = 64, 64, 131_072
RAMP = ra.frequencies(DIM // 2)  # of each axis of timm
INTERLEAVED = {"rotary-embedding-torch", "torchtune", "timm"}


def positions_from(first):
    """Return the positions of the tokens from `first` on."""
    return torch.arange(first, first + TOKENS)


def table_from(first, dtype):
    """Return the cosines and sines of all positions up to the last token."""
    angles = float32_angles(DIM, 10_000.0, torch.arange(first + TOKENS))
    return angles.cos().to(dtype), angles.sin().to(dtype)


def by_transformers(_module, x, first):
    """Rotate by transformers from a position on."""
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama

    embedding, x = modeling_llama.LlamaRotaryEmbedding(LlamaConfig(head_dim=DIM)), x[None, None]
    return modeling_llama.apply_rotary_pos_emb(x, x, *embedding(x, positions_from(first)[None]))[0]


def by_torchtune(module, x, first, *, cast=False):
    """Rotate by torchtune from a position on; `cast`: by its module in the dtype of x."""
    rotary = module.RotaryPositionalEmbeddings(DIM, max_seq_len=first + TOKENS)
    return (rotary.to(x.dtype) if cast else rotary)(x[None, :, None], input_pos=positions_from(first)[None])


def by_timm(module, x, first):
    """Rotate by timm along a grid of one row, from a position on."""
    rotary = module.RotaryEmbeddingCat(DIM, in_pixels=False, feat_shape=[1, first + TOKENS])
    return module.apply_rot_embed_cat(x, rotary.get_embed()[first:])


def by_vllm(_module, x, first):
    """Rotate by vLLM from a position on."""
    rotary = get_rope(DIM, first + TOKENS, rope_parameters={"rope_theta": 10_000.0}, dtype=x.dtype)
    return rotary(positions_from(first), x, x.clone())[0]


def mlx_ones(x):
    """Return MLX's ones in the shape and dtype of a tensor, for one head."""
    import mlx.core as mx

    return mx.ones((1, 1, *x.shape), dtype=getattr(mx, str(x.dtype).removeprefix("torch.")))


def by_rope(library, x, first):
    """Rotate by the `Rope` of the section of a library."""
    pairing = "interleaved" if library in INTERLEAVED else "half"
    if library == "timm":
        columns = positions_from(first)
        rope = ra.Rope(ra.axes.axial(RAMP, RAMP), pairing=pairing)
        return rope.apply(x, torch.stack([torch.zeros_like(columns), columns], dim=-1))
    return ra.Rope(ra.frequencies(DIM), pairing=pairing).apply(mlx_ones(x) if library == "MLX" else x, first)


THEIRS = {
    "transformers": by_transformers,
    "rotary-embedding-torch": lambda module, x, at: module.RotaryEmbedding(DIM).rotate_queries_or_keys(x, offset=at),
    "torchtune": by_torchtune,
    "flash-attn": lambda _, x, at: apply_rotary_emb(x[None, :, None], *table_from(at, x.dtype), seqlen_offsets=at),
    "timm": by_timm,
    "vLLM": by_vllm,
    "MLX": lambda module, x, at: module.RoPE(DIM)(mlx_ones(x), offset=at),
}


def errors(library, rotate, cases=((1000, torch.float32), (FAR, torch.float32), (1000, torch.bfloat16))):
    """Return the largest error of a rotation of ones for each first position and dtype, compared with float64."""
    found = []
    for first, dtype in cases:
        frequencies = (0.0,) * len(RAMP) + RAMP if library == "timm" else ra.frequencies(DIM)
        angles = np.outer(np.arange(first, first + TOKENS), frequencies)
        pair = np.cos(angles) - np.sin(angles), np.cos(angles) + np.sin(angles)
        exact = np.stack(pair, -1) if library in INTERLEAVED else np.concatenate(pair, -1)
        rotated = np.array(rotate(torch.ones(TOKENS, DIM, dtype=dtype), first).tolist())
        found.append(float(np.abs(rotated.reshape(TOKENS, DIM) - exact.reshape(TOKENS, DIM)).max()))
    return found


def documented_errors(library, column):
    """Return the errors in the table of a section: theirs in column 0, ours in column 1."""
    rows = re.findall(r"^\| error at 1000[^|]*\|([^|]*)\|([^|]*)\|$", SECTIONS[library], re.MULTILINE)
    assert len(rows) == 2
    return [float(number) for number in re.findall(r"\d\.\d(?:e-\d+)?", " ".join(row[column] for row in rows))]


@pytest.mark.parametrize("library", SECTIONS)
def test_the_errors_on_the_page_are_those_measured(library):
    with library_of(library) as module:
        theirs = errors(library, partial(THEIRS[library], module))
        if library == "torchtune":
            cast = partial(by_torchtune, module, cast=True)
            theirs += errors(library, cast, cases=[(1000, torch.bfloat16)])
        ours = errors(library, partial(by_rope, library))
    # Errors that are due to rounding alone may differ between processors.
    assert theirs == pytest.approx(documented_errors(library, 0), rel=0.3)
    assert ours == pytest.approx(documented_errors(library, 1), rel=0.5)


# --- other statements of the page -------------------------------------------------------------------------


def test_rotary_embedding_torch_keeps_rounded_positions():
    with INSTALLED["rotary-embedding-torch"]() as module:
        rotary, x = module.RotaryEmbedding(DIM), torch.ones(600, DIM)
        expected = module.RotaryEmbedding(DIM).rotate_queries_or_keys(x)
        rotary.rotate_queries_or_keys(x.bfloat16())
        assert (rotary.rotate_queries_or_keys(x) - expected).abs().max() > 1
        assert [*rotary.state_dict()] == ["freqs"]


@pytest.mark.parametrize(
    ("option", "scheme"), [("interpolate_factor", ra.scaling.linear), ("theta_rescale_factor", ra.scaling.ntk)]
)
def test_the_scaling_of_rotary_embedding_torch_equals_ours(option, scheme):
    with INSTALLED["rotary-embedding-torch"]() as module:
        theirs = module.RotaryEmbedding(DIM, **{option: 4.0}).rotate_queries_or_keys(torch.ones(8, DIM))
    rope = ra.Rope(scheme(ra.frequencies(DIM), 4.0), pairing="interleaved")
    torch.testing.assert_close(rope.apply(torch.ones(8, DIM)), theirs, rtol=0, atol=1e-5)


def axial_pixel(frequencies, x):
    """Rotate x ``(heads, rows, columns, dim)`` by pixel frequencies, as the page on images does."""
    rope = ra.Rope(ra.axes.axial(frequencies.tolist(), frequencies.tolist()), pairing="interleaved")
    sides = (np.linspace(-1, 1, n).tolist() for n in x.shape[1:3])
    return rope.apply(x.flatten(1, 2), ra.positions.grid(*sides, like=x)).unflatten(1, x.shape[1:3])


def by_pixels_of_rotary_embedding_torch(module, x):
    """Rotate x ``(heads, rows, columns, dim)`` by evenly spaced pixel frequencies."""
    rotary = module.RotaryEmbedding(DIM // 2, freqs_for="pixel", max_freq=256)
    return module.apply_rotary_emb(rotary.get_axial_freqs(*x.shape[1:3]), x)


def by_pixels_of_timm(module, x):
    """Rotate x ``(heads, rows, columns, dim)`` by pixel frequencies that are powers of 2."""
    embed = module.RotaryEmbeddingCat(DIM, feat_shape=[*x.shape[1:3]], max_res=224).get_embed()
    return module.apply_rot_embed_cat(x.flatten(1, 2), embed).unflatten(1, x.shape[1:3])


@pytest.mark.parametrize(
    ("library", "rotate", "frequencies"),
    [
        ("rotary-embedding-torch", by_pixels_of_rotary_embedding_torch, np.linspace(1, 128, DIM // 4)),
        ("timm", by_pixels_of_timm, 2 ** np.linspace(0, np.log2(224) - 1, DIM // 4)),
    ],
)
def test_pixel_frequencies_equal_those_of_the_page(library, rotate, frequencies):
    x = torch.randn(2, 4, 6, DIM)
    with INSTALLED[library]() as module:
        theirs = rotate(module, x)
    torch.testing.assert_close(axial_pixel(np.pi * frequencies, x), theirs, rtol=0, atol=5e-4)


def test_torchtune_refuses_positions_beyond_its_table():
    with INSTALLED["torchtune"]() as module:
        rotary = module.RotaryPositionalEmbeddings(DIM, max_seq_len=8)
        with pytest.raises(IndexError):
            rotary(torch.ones(1, 1, 1, DIM), input_pos=torch.tensor([[8]]))


def test_mlx_takes_an_offset_for_each_row():
    with INSTALLED["MLX"]() as module:
        import mlx.core as mx

        x, offsets = mx.ones((2, 3, 4, DIM)), mx.array([5, 100])
        theirs = module.RoPE(DIM)(x, offset=offsets)
        ours = ra.Rope(ra.frequencies(DIM), pairing="half").apply(x, ra.positions.from_starts(offsets, 4))
        assert abs(theirs - ours).max() < float(TOLERANCE)
