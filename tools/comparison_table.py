"""
Test the features of `rope_any` and of other libraries with rotary embeddings: `comparison_table.md`.

In the environment that `comparison.md` describes::

    python tools/comparison_table.py                        # prints the tables
    python tools/comparison_table.py --write                # and writes comparison_table.md

It takes a few minutes. `rotaries.py` and the section "functions by feature" below have the calls of each library. Each
cell is returned by a function of the section "probes", which makes such calls. If a library is not installed, its name
is printed, and nothing is written. ``--only NAME --write`` writes the rows of one library.
"""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import making
import numpy as np
import peers_table
import rotaries
from peers_table import FACTOR, LONGER, Reading, agrees, import_part
from rotaries import BASE, TABLE, RotaryFunction

import rope_any as ra
from rope_any import _arrays, scaling
from rope_any.testing import cases
from rope_any.testing._exact import Data, Sample, exact, features, pair_errors, rotate_exactly

# Features of a head; rotated features in partial rotary; features of a head in measurements of errors.
DIM, PART, WIDE = 64, 16, 128
SHAPE = (2, 3, 8, DIM)  # of x
TOLERANCE = 1e-3  # more than the error of float32 angles at the positions below, and less than that of a wrong rotation
NEAR, FAR = 100, {"131\u00a0072": 2**17, "1\u00a0048\u00a0576": 2**20}
YES, NO, GPU = "yes", "no", "needs a GPU"
PAGE = making.DOCS / "comparison_table.md"


class Library(NamedTuple):
    """A library with its rotary."""

    package: str
    make: Callable[..., RotaryFunction]
    pairing: str
    """The pairing by default."""
    parts: dict[str, tuple[str, ...]]
    """The classes and functions of its rotary embedding by module; an empty tuple means the whole module."""
    engine: str = "PyTorch"
    """The array library."""


LIBRARIES = {
    "rope_any": Library("rope-any", rotaries.rope_any, "half", {"rope_any": ()}),
    "transformers": Library(
        "transformers",
        rotaries.transformers,
        "half",
        {
            "transformers.modeling_rope_utils": (),
            "transformers.models.llama.modeling_llama": ("LlamaRotaryEmbedding", "rotate_half", "apply_rotary_pos_emb"),
        },
    ),
    "rotary-embedding-torch": Library(
        "rotary-embedding-torch",
        rotaries.lucidrains,
        "interleaved",
        {"rotary_embedding_torch.rotary_embedding_torch": ()},
    ),
    "x-transformers": Library(
        "x-transformers",
        rotaries.x_transformers,
        "interleaved",
        {"x_transformers.x_transformers": ("RotaryEmbedding", "rotate_half", "apply_rotary_pos_emb")},
    ),
    "torchtune": Library(
        "torchtune",
        rotaries.torchtune,
        "interleaved",
        {"torchtune.modules.position_embeddings": (), "torchtune.models.llama3_1._position_embeddings": ()},
    ),
    "flash-attention": Library(
        "flash-attn",
        rotaries.flash_attention,
        "half",
        {"flash_attn.layers.rotary": (), "flash_attn.ops.triton.rotary": ()},
    ),
    "Liger": Library(
        "liger_kernel",
        rotaries.liger,
        "half",
        {"liger_kernel.ops.rope": (), "liger_kernel.ops.qwen2vl_mrope": (), "liger_kernel.ops.llama4_rope": ()},
    ),
    "LitGPT": Library(
        "litgpt",
        rotaries.litgpt,
        "half",
        {"litgpt.model": ("build_rope_cache", "apply_rope", "apply_rope_interleave", "yarn_get_mscale")},
    ),
    "timm": Library("timm", rotaries.timm, "half", {"timm.layers.pos_embed_sincos": ()}),
    "diffusers": Library(
        "diffusers",
        rotaries.diffusers,
        "interleaved",
        {
            "diffusers.models.embeddings": (
                "get_1d_rotary_pos_embed",
                "get_2d_rotary_pos_embed",
                "get_2d_rotary_pos_embed_from_grid",
                "get_3d_rotary_pos_embed",
                "apply_rotary_emb",
            )
        },
    ),
    "keras-hub": Library(
        "keras-hub", rotaries.keras_hub, "half", {"keras_hub.src.layers.modeling.rotary_embedding": ()}
    ),
    "equinox": Library(
        "equinox", rotaries.equinox, "half", {"equinox.nn._embedding": ("RotaryPositionalEmbedding",)}, "JAX"
    ),
    "mlx.nn": Library("mlx", rotaries.mlx, "half", {"mlx.nn.layers.positional_encoding": ("RoPE",)}, "MLX"),
}
IN_TRITON = {"flash-attention", "Liger"}
"""Libraries whose kernels run here in Triton's interpreter, which compilers can't trace."""

FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {}


def register(library: str, feature: str) -> Callable[[Callable[..., Any]], None]:
    """Return a decorator that registers a function of a library for a feature other than rotating x at positions."""
    return lambda way: FUNCTIONS.__setitem__((library, feature), way)


# --- numbers ----------------------------------------------------------------------------------------------


def library_record(engine: str) -> Any:
    """Return the record of an array library, or None if it is not installed."""
    return _arrays.installed(engine)


def put(engine: str, data: Any) -> Any:
    """Return data as an array of an array library, on its first device."""
    lib = library_record(engine)
    return lib.put(np.array(data), next(iter(lib.devices().values())))


def get(x: Any) -> Data:
    """Return an array of any library as a float64 NumPy array."""
    lib = _arrays.require_array("x", x)
    return lib.get(lib.cast(x, lib.compute_dtype(x))).astype(np.float64)


def random_array(*shape: int, bits: int = 23) -> Data:
    """Return a random float32 array, whose numbers have `bits` bits."""
    return features(*shape, bits=bits).astype(np.float32)


@cache
def exact_table(positions: tuple[int, ...], dim: int, base: float) -> Sample:
    """Return the exact cosines and sines of positions."""
    return exact(positions, ra.frequencies(dim, base=base))


def rotated_exactly_at(x: Data, positions: Data, pairing: Any, *, dim: int = DIM, base: float = BASE) -> Data:
    """Return x rotated exactly at positions ``(seq,)`` or ``(batch, seq)``."""
    if positions.ndim == 2:
        rows = (rotated_exactly_at(a[None], p, pairing, dim=dim, base=base) for a, p in zip(x, positions, strict=True))
        return np.concatenate([*rows])
    return rotate_exactly(x, exact_table(tuple(positions.tolist()), dim, base), pairing)


def error(y: Any, x: Data, positions: Data, pairing: Any, *, dim: int = DIM, base: float = BASE) -> float:
    """Return the largest error of a rotated pair, relative to its length; infinite if pass-through features change."""
    found, want = get(y), rotated_exactly_at(x, positions, pairing, dim=dim, base=base)
    if found.shape != want.shape or not np.array_equal(found[..., dim:], want[..., dim:]):
        return float("inf")
    return float(np.max(pair_errors(found, want, pairing, start=0, pairs=dim // 2)))


class Trial(NamedTuple):
    """The inputs of a call, and the array library and the pairing of the call."""

    engine: str
    x: Data
    positions: Data
    pairing: str

    def error(self, call: RotaryFunction, *, dim: int = DIM, base: float = BASE) -> float:
        """Return the error of the call; infinite if it raises."""
        try:
            y = call(put(self.engine, self.x), put(self.engine, self.positions))
            if _arrays.find(y) is not library_record(self.engine):
                return float("inf")
            return error(y, self.x, self.positions, self.pairing, dim=dim, base=base)
        except Exception:  # noqa: BLE001  # any exception means that the call fails
            return float("inf")

    def is_right(self, call: RotaryFunction, *, dim: int = DIM, base: float = BASE) -> bool:
        """Whether the call rotates x correctly."""
        return self.error(call, dim=dim, base=base) < TOLERANCE


def trial(library: Library, **changes: Any) -> Trial:
    """Return the usual inputs of a library, at positions from 100 on, with changes."""
    positions = np.arange(NEAR, NEAR + SHAPE[2])
    return Trial(library.engine, random_array(*SHAPE), positions, library.pairing)._replace(**changes)


def has_option(library: Library, option: str) -> bool:
    """Whether the function of a library in `rotaries` has an option."""
    return option in inspect.signature(library.make).parameters


def yes_or_no(*, truth: bool) -> str:
    """Return the cell "yes" or "no"."""
    return YES if truth else NO


# --- functions by feature: config, packed, offsets, axes and others, for each library that has it ---------


@register("rope_any", "config")
def _(folder: Path) -> Reading:
    """Return the frequencies that `Rope.from_config` reads from config.json."""
    rope = ra.Rope.from_config(folder / "config.json")
    assert rope is not None  # noqa: S101
    return Reading(rope.frequencies)


@register("transformers", "config")
def _(folder: Path) -> Reading:
    """Return the frequencies of transformers' Llama for config.json."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    return Reading(LlamaRotaryEmbedding(LlamaConfig.from_pretrained(folder)).inv_freq.numpy())


@register("keras-hub", "config")
def _(folder: Path) -> Reading:
    """Return the frequencies of keras-hub's Llama 3 for config.json, converted by its own function."""
    from keras_hub.models import Llama3Backbone
    from keras_hub.src.utils.transformers.convert_llama3 import convert_backbone_config

    read = convert_backbone_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    small = {"vocabulary_size": 8, "num_layers": 1, "intermediate_dim": 8}
    layer = Llama3Backbone(**read | small).transformer_layers[0]._self_attention_layer.rotary_embedding_layer  # noqa: SLF001
    return Reading(layer._get_inverse_freq(peers_table.DIM).detach().numpy())  # noqa: SLF001


@register("flash-attention", "config")
def _(folder: Path) -> Reading:
    """Return the frequencies of flash-attention for config.json, converted by its own functions."""
    import_part("flash_attn.models.llama")
    from flash_attn.models.llama import config_from_hf_checkpoint, llama_config_to_gpt2_config

    (folder / "llama-hf").symlink_to(folder)
    read = llama_config_to_gpt2_config(config_from_hf_checkpoint(folder, "llama"))
    return Reading(rotaries.flash_rotary().RotaryEmbedding(peers_table.DIM, base=read.rotary_emb_base).inv_freq.numpy())


@register("rope_any", "packed")
def _(x: Any, starts: Any) -> Any:
    """Return x rotated by positions within each packed sequence."""
    rope = ra.Rope(ra.frequencies(DIM), pairing="half")
    return rope.apply(x, ra.positions.packed(starts, x.shape[2]))


@register("flash-attention", "packed")
def _(x: Any, starts: Any) -> Any:
    """Return x of packed sequences, rotated by the kernel with `cu_seqlens`."""
    ropes, longest = rotaries.flash_rotary(), int((starts[1:] - starts[:-1]).max())
    rope = ropes.RotaryEmbedding(DIM)
    rope._update_cos_sin_cache(longest, device=x.device, dtype=x.dtype)  # noqa: SLF001
    given = {"cu_seqlens": starts.int(), "max_seqlen": longest}
    with rotaries.accept_cpu_tensors():
        y = ropes.apply_rotary_emb(x[0].transpose(0, 1).contiguous(), rope._cos_cached, rope._sin_cached, **given)  # noqa: SLF001
    return y.transpose(0, 1)[None]


@register("flash-attention", "offsets")
def _(x: Any, offsets: Any) -> Any:
    """Return x rotated by the kernel with an offset for each row."""
    ropes = rotaries.flash_rotary()
    rope = ropes.RotaryEmbedding(DIM)
    rope._update_cos_sin_cache(TABLE, device=x.device, dtype=x.dtype)  # noqa: SLF001
    table = rope._cos_cached, rope._sin_cached  # noqa: SLF001
    with rotaries.accept_cpu_tensors():
        return ropes.apply_rotary_emb(x.transpose(1, 2), *table, seqlen_offsets=offsets).transpose(1, 2)


@register("mlx.nn", "offsets")
def _(x: Any, offsets: Any) -> Any:
    """Return x rotated with an offset for each row."""
    from mlx.nn import RoPE

    return RoPE(DIM)(x, offset=offsets)


@register("equinox", "in order")
def _(x: Any, _: Any) -> Any:
    """Return x rotated at positions 0, 1, 2, ...."""
    import jax
    from equinox.nn import RotaryPositionalEmbedding

    return jax.vmap(jax.vmap(RotaryPositionalEmbedding(DIM)))(x)


@register("rope_any", "axes")
def _(x: Any, rows: int, columns: int) -> Any:
    """Return x rotated by rows and columns of a grid."""
    rope = ra.Rope(ra.axes.axial(ra.frequencies(DIM // 2), ra.frequencies(DIM // 2)), pairing="half")
    return rope.apply(x, ra.positions.grid(rows, columns, like=x))


def qwen2_vl_tables(rows: int, columns: int) -> tuple[Any, Any, list[int]]:
    """Return Qwen2-VL's cosines and sines of time, rows and columns for a grid, and the pairs of each axis."""
    import torch

    grid = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")).flatten(1)
    positions = torch.cat([torch.zeros_like(grid[:1]), grid])
    cos, sin = rotaries.llama_rotary(DIM, base=100.0)(torch.zeros(1), positions)
    return cos[:, None], sin[:, None], [8, 12, 12]


@register("transformers", "axes")
def _(x: Any, rows: int, columns: int) -> Any:
    """Return x rotated as Qwen2-VL does, by rows and columns of a grid."""
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding, apply_rotary_pos_emb

    *tables, sections = qwen2_vl_tables(rows, columns)
    own = SimpleNamespace(mrope_section=sections)
    halves = (part[..., : DIM // 2] for part in tables)
    return apply_rotary_pos_emb(
        x, x, *(Qwen2VLRotaryEmbedding.recomposition_frequencies(own, part) for part in halves)
    )[0]


@register("Liger", "axes")
def _(x: Any, rows: int, columns: int) -> Any:
    """Return x rotated by Liger's kernel for Qwen2-VL, by rows and columns of a grid."""
    from liger_kernel.transformers.qwen2vl_mrope import liger_multimodal_rotary_pos_emb

    return liger_multimodal_rotary_pos_emb(x.clone(), x.clone(), *qwen2_vl_tables(rows, columns))[0]


@register("rotary-embedding-torch", "axes")
def _(x: Any, rows: int, columns: int) -> Any:
    """Return x rotated by rows and columns of a grid."""
    from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

    angles = RotaryEmbedding(DIM // 2).get_axial_freqs(rows, columns)
    return apply_rotary_emb(angles, x.unflatten(2, (rows, columns))).flatten(2, 3)


@register("torchtune", "axes")
def _(x: Any, rows: int, _: int) -> Any:
    """Return x rotated by rows and columns of one tile, without the class token that is added for the call."""
    import torch

    ropes = import_part("torchtune.modules.position_embeddings")
    rope = ropes.VisionRotaryPositionalEmbeddings(patch_size=1, tile_size=rows, max_num_tiles=1, dim=DIM // 2)
    with_class = torch.cat([x, x[:, :, :1]], dim=2).transpose(1, 2)
    return rope(with_class)[:, :-1].transpose(1, 2)


@register("timm", "axes")
def _(x: Any, rows: int, columns: int) -> Any:
    """Return x rotated by rows and columns of a grid."""
    ropes = import_part("timm.layers.pos_embed_sincos")
    rope = ropes.RotaryEmbeddingCat(DIM, in_pixels=False, feat_shape=[rows, columns])
    return ropes.apply_rot_embed_cat(x, rope.get_embed())


@register("diffusers", "axes")
def _(x: Any, rows: int, columns: int) -> Any:
    """Return x rotated by rows and columns of a grid."""
    from diffusers.models import embeddings

    grid = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"))
    return embeddings.apply_rotary_emb(x, embeddings.get_2d_rotary_pos_embed_from_grid(DIM, grid, use_real=True))


@register("rope_any", "learned")
def _(x: Any, positions: Any) -> tuple[Any, Callable[[], Any]]:
    """Return the frequencies as a leaf, and a function that rotates x by them."""
    import torch

    leaf = torch.tensor(ra.frequencies(DIM), requires_grad=True)
    return leaf, lambda: ra.rotate(x, *ra.cos_sin(positions, leaf), pairing="half")


@register("rotary-embedding-torch", "learned")
def _(x: Any, positions: Any) -> tuple[Any, Callable[[], Any]]:
    """Return the frequencies as a leaf, and a function that rotates x by them."""
    from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

    rope = RotaryEmbedding(DIM, learned_freq=True)
    return rope.freqs, lambda: apply_rotary_emb(rope(positions), x)


@register("timm", "learned")
def _(x: Any, _: Any) -> tuple[Any, Callable[[], Any]]:
    """Return the frequencies as a leaf, and a function that rotates x by them."""
    ropes = import_part("timm.layers.pos_embed_sincos")
    rope = ropes.RotaryEmbeddingMixed(DIM * SHAPE[1], depth=1, num_heads=SHAPE[1], feat_shape=[2, SHAPE[2] // 2])
    return rope.freqs, lambda: ropes.apply_rot_embed_cat(x, rope.get_embed()[0])


@register("rope_any", "xPos")
def _(q: Any, k: Any, positions: Any) -> tuple[Any, Any]:
    """Return q and k rotated by xPos."""
    rope = ra.Rope(ra.frequencies(DIM), pairing="half")
    return rope(q, k, ra.bending.xpos(rope.table(positions, like=q), positions, centre=NEAR))


@register("rotary-embedding-torch", "xPos")
def _(q: Any, k: Any, _: Any) -> tuple[Any, Any]:
    """Return q and k rotated by xPos."""
    from rotary_embedding_torch import RotaryEmbedding

    return RotaryEmbedding(DIM, use_xpos=True).rotate_queries_and_keys(q, k)


@register("x-transformers", "xPos")
def _(q: Any, k: Any, positions: Any) -> tuple[Any, Any]:
    """Return q and k rotated by xPos."""
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    angles, scale = RotaryEmbedding(DIM, use_xpos=True)(positions)
    return apply_rotary_pos_emb(q, angles, scale), apply_rotary_pos_emb(k, angles, scale**-1)


@register("flash-attention", "xPos")
def _(q: Any, k: Any, _: Any) -> tuple[Any, Any]:
    """Return q and k rotated by xPos."""
    import torch

    rope = rotaries.flash_rotary().RotaryEmbedding(DIM, scale_base=512)
    with rotaries.accept_cpu_tensors():
        rotated = rope(torch.stack([q, k, k]).permute(1, 3, 0, 2, 4).contiguous())
    return tuple(rotated[:, :, i].transpose(1, 2) for i in (0, 1))  # type: ignore[return-value]


@register("rotary-embedding-torch", "keeps")
def _() -> tuple[RotaryFunction, Any]:
    """Return the usual call, from an offset on; it keeps its table in its module."""
    return rotaries.lucidrains_by_offset(DIM), None


@register("flash-attention", "keeps")
def _() -> tuple[RotaryFunction, Any]:
    """Return a call from an offset on, and the module that keeps the table."""
    import torch

    rope = rotaries.flash_rotary().RotaryEmbedding(DIM)

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated from the first position on."""
        with rotaries.accept_cpu_tensors():
            return rope(torch.stack([x] * 3).permute(1, 3, 0, 2, 4).contiguous(), seqlen_offset=int(positions[0]))

    return rotation, rope


@register("equinox", "keeps")
def _() -> tuple[RotaryFunction, Any]:
    """Return the call, and its global cache."""
    from equinox.nn import _embedding

    _embedding.internal_rope_embedding_cache.clear()  # of earlier calls
    return FUNCTIONS["equinox", "in order"], _embedding.internal_rope_embedding_cache


@register("LitGPT", "keeps")
def _() -> tuple[RotaryFunction, Any]:
    """Return a call by a table of the caller, and None: the library keeps nothing."""
    from litgpt.model import apply_rope, build_rope_cache

    tables = build_rope_cache(2 * TABLE, DIM)  # the caller holds it

    def rotation(x: Any, positions: Any, tables: Any = tables) -> Any:
        """Return x rotated by rows of the caller's table."""
        return apply_rope(x, *(table[positions][None] for table in tables))

    return rotation, None


@register("rotary-embedding-torch", "bfloat16")
def _() -> RotaryFunction:
    """Return the usual call, from an offset on."""
    return rotaries.lucidrains_by_offset(DIM)


@register("keras-hub", "bfloat16")
def _() -> RotaryFunction:
    """Return the rotation of a layer with the dtype bfloat16."""
    return rotaries.keras_hub(DIM, dtype="bfloat16")


@register("transformers", "interleaved")
def _() -> RotaryFunction:
    """Return the interleaved rotation, that of GPT-J."""
    return rotaries.gptj(DIM)


@register("LitGPT", "interleaved")
def _() -> RotaryFunction:
    """Return the interleaved rotation."""
    return rotaries.litgpt(DIM, function="apply_rope_interleave")


@register("rope_any", "ONNX")
def _(x: Data, positions: Data) -> Data:
    """Return x rotated by the exported model in ONNX Runtime."""
    model = ra.onnx.export(ra.Rope(ra.frequencies(DIM), pairing="half"))
    rows = np.broadcast_to(positions, (len(x), len(positions)))
    return run_onnx(model, {"q": x, "k": x, "positions": rows})


@register("rope_any", "schemes")
def _() -> Iterator[tuple[str, Reading, Reading]]:
    """Yield (scheme, our reading, reading of the test vectors, which are computed from the papers)."""
    for case in cases().values():
        given = dict(case.parameters)
        scheme, base = given.pop("scheme", "plain"), given.pop("base")
        if scheme == "plain":
            continue
        function = getattr(scaling, scheme)
        known = inspect.signature(function).parameters
        given |= {"base": base}
        _, *alone = (name for name, one in known.items() if one.kind is one.POSITIONAL_ONLY)
        first = [given[name] for name in alone]
        named = {name: value for name, value in given.items() if name in known and name not in alone}
        found = function(ra.frequencies(2 * len(case.frequencies), base=base), *first, **named)
        yield scheme, Reading(found), Reading(case.frequencies)


@register("transformers", "schemes")
def _() -> Iterator[tuple[str, Reading, Reading]]:
    """Yield (scheme, reading of transformers, our reading) for each scheme."""
    by = peers_table.by_transformers
    yield "linear", by(peers_table.LINEAR_CONFIG), peers_table.LINEAR
    yield "dynamic_ntk", by(peers_table.DYNAMIC_CONFIG, LONGER), peers_table.our_dynamic_ntk(LONGER)
    yield "yarn", by(peers_table.YARN_CONFIG), peers_table.YARN
    yield (
        "longrope",
        by(peers_table.LONGROPE_CONFIG, LONGER, max_position_embeddings=LONGER),
        peers_table.our_longrope(LONGER),
    )
    yield "llama3", by(peers_table.LLAMA3_CONFIG), peers_table.LLAMA3
    yield "proportional", by(peers_table.PROPORTIONAL_CONFIG), peers_table.PROPORTIONAL


def lucidrains_schemes(package: str) -> Iterator[tuple[str, Reading, Reading]]:
    """Yield (scheme, reading of rotary-embedding-torch or x-transformers, our reading) for each scheme."""
    by = peers_table.LUCIDRAINS[package]
    yield "linear", by(interpolate=FACTOR), peers_table.LINEAR
    yield "ntk", by(rescale=FACTOR), peers_table.NTK


register("rotary-embedding-torch", "schemes")(partial(lucidrains_schemes, "rotary-embedding-torch"))
register("x-transformers", "schemes")(partial(lucidrains_schemes, "x-transformers"))


@register("torchtune", "schemes")
def _() -> Iterator[tuple[str, Reading, Reading]]:
    """Yield (scheme, reading of torchtune, our reading) for each scheme."""
    yield "llama3", peers_table.by_torchtune(**peers_table.LLAMA3_FACTORS), peers_table.LLAMA3


@register("LitGPT", "schemes")
def _() -> Iterator[tuple[str, Reading, Reading]]:
    """Yield (scheme, reading of LitGPT, our reading) for each scheme."""
    by = peers_table.by_litgpt
    yield "linear", by(), peers_table.LINEAR
    yield "yarn", by(beta_fast=32, beta_slow=1, original_max_seq_len=peers_table.TRAINED), peers_table.YARN
    yield "llama3", by(original_max_seq_len=peers_table.TRAINED, **peers_table.LLAMA3_FACTORS), peers_table.LLAMA3


@register("diffusers", "schemes")
def _() -> Iterator[tuple[str, Reading, Reading]]:
    """Yield (scheme, reading of diffusers, our reading) for each scheme."""
    yield "linear", peers_table.by_diffusers(linear_factor=FACTOR), peers_table.LINEAR
    yield "ntk", peers_table.by_diffusers(ntk_factor=FACTOR), peers_table.NTK


@register("keras-hub", "schemes")
def _() -> Iterator[tuple[str, Reading, Reading]]:
    """Yield (scheme, reading of keras-hub, our reading) for each scheme."""
    yield "linear", peers_table.by_keras(), peers_table.LINEAR
    yield "dynamic_ntk", peers_table.by_keras(rope_type="dynamic"), peers_table.our_dynamic_ntk(LONGER)
    yield "yarn", peers_table.by_keras(rope_type="yarn"), peers_table.YARN
    yield "llama3", Reading(keras_llama(FACTOR, peers_table.TRAINED, **peers_table.LLAMA3_FACTORS)), peers_table.LLAMA3
    yield "longrope", keras_longrope(), peers_table.our_longrope(LONGER)


def keras_llama(factor: float, length: int, **factors: float) -> Any:
    """Return the frequencies of Llama 3 in keras-hub."""
    from keras_hub.src.models.llama.llama_rotary_embedding import LlamaRotaryEmbedding

    layer = LlamaRotaryEmbedding(frequency_adjustment_factor=factor, pretraining_sequence_length=length, **factors)
    return layer._get_inverse_freq(peers_table.DIM).detach().numpy()  # noqa: SLF001


def keras_longrope() -> Reading:
    """Return the frequencies of Phi-3 in keras-hub for a long sequence."""
    import torch
    from keras_hub.src.models.phi3.phi3_rotary_embedding import Phi3SuScaledRotaryEmbedding

    lengths = {"max_sequence_length": LONGER, "pretraining_sequence_length": peers_table.TRAINED}
    layer = Phi3SuScaledRotaryEmbedding(peers_table.SHORT, peers_table.LONG, **lengths)
    x, at = torch.zeros(1, 2, peers_table.DIM), torch.arange(2)
    cos, sin = layer._compute_cos_sin_embedding(x, start_index=LONGER, positions=at)  # noqa: SLF001
    return peers_table.from_table(cos[0, 1].detach(), sin[0, 1].detach())


@register("mlx.nn", "schemes")
def _() -> Iterator[tuple[str, Reading, Reading]]:
    """Yield (scheme, reading of mlx.nn, our reading) for each scheme."""
    from mlx.nn import RoPE

    found = RoPE(peers_table.DIM, scale=1 / FACTOR)(put("MLX", peers_table.unit()[None, None, None]), offset=1)
    yield "linear", peers_table.from_rotated_unit(get(found).reshape(-1)), peers_table.LINEAR


FROM_SOURCE = {
    ("LitGPT", "partial"): "its models do: read in `litgpt/model.py`",
    ("keras-hub", "partial"): "Qwen3.5 does: read in `qwen3_5_attention.py`",
    ("keras-hub", "several axes"): "Qwen3.5 does: read in `qwen3_5_attention.py`",
    ("transformers", "kernels"): "fetches one with `kernels`: read in `modeling_llama.py`",
    ("mlx.nn", "kernels"): "yes: read in `mlx/fast_primitives.h`",
    ("rope_any", "files of models with it"): "none; replaces that of transformers",
    ("Liger", "files of models with it"): "none; replaces that of transformers: read in `monkey_patch.py`",
}
"""Cells that were read in sources instead of measured; those of rope_any are covered by tests."""


# --- probes: each takes the name and the record of a library, and returns a cell --------------------------


def engines(name: str, library: Library) -> str:
    """Return the installed array libraries whose arrays it rotates."""
    found = [engine for engine in _arrays.INSTALLABLE if has_device(engine) and runs_on(name, library, engine)]
    return ", ".join(found)


def has_device(engine: str) -> bool:
    """Whether an array library is installed and has a device."""
    return (lib := library_record(engine)) is not None and bool(lib.devices())


def runs_on(name: str, library: Library, engine: str) -> bool:
    """Whether it rotates arrays of an array library, with a result of the same library."""
    if name == "keras-hub" and engine == "JAX":  # it has one backend in a process
        command = [sys.executable, __file__, "--on-jax", name]
        return subprocess.run(command, env=os.environ | {"KERAS_BACKEND": "jax"}, check=False).returncode == 0  # noqa: S603
    return trial(library, engine=engine).is_right(library.make(DIM))


def pairings(name: str, library: Library) -> str:
    """Return the pairings that it has."""
    found = []
    for pairing in ("half", "interleaved"):
        if (name, pairing) in FUNCTIONS:
            rotation = FUNCTIONS[name, pairing]()
        elif has_option(library, "pairing") or pairing == library.pairing:
            rotation = library.make(DIM, **{"pairing": pairing} if has_option(library, "pairing") else {})
        else:
            continue
        if trial(library, pairing=pairing).is_right(rotation):
            found.append(pairing)
        elif trial(library, pairing=pairing).is_right(lambda x, p, rotation=rotation: as_pairs(rotation(x, p))):
            found.append(f"{pairing} (comes out as halves)")
    return ", ".join(found)


def as_pairs(y: Any) -> Any:
    """Return torch features reordered from half to interleaved pairs."""
    return y.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)


def partial_rotary(name: str, library: Library) -> str:
    """Return whether it can rotate the first features only."""
    del name
    if not has_option(library, "rotary_dim"):
        return NO
    return yes_or_no(truth=trial(library).is_right(library.make(DIM, rotary_dim=PART), dim=PART))


def positions(name: str, library: Library) -> str:
    """Return which positions it accepts: of each row, in any order, or only from an offset on."""
    rotation = FUNCTIONS.get((name, "in order"), library.make(DIM))
    usual = trial(library)
    mixed = np.array([107, 3, 250, 251, 0, 42, 41, 7])
    each = np.stack([mixed, mixed[::-1] + 5])
    if usual._replace(positions=each).is_right(rotation):
        return "any, of each row"
    starts = usual.positions + np.array([[0], [33]])
    by_row = (name, "offsets") in FUNCTIONS and usual._replace(positions=starts).is_right(
        lambda x, p: FUNCTIONS[name, "offsets"](x, p[:, 0])
    )
    more = "; an offset of each row" if by_row else ""
    if usual._replace(positions=mixed).is_right(rotation):
        return f"any, the same in all rows{more}"
    if usual.is_right(rotation):
        return "from an offset of each row" if by_row else "from an offset"
    return "from 0" if usual._replace(positions=np.arange(SHAPE[2])).is_right(rotation) else NO


def several_axes(name: str, library: Library) -> str:
    """Return whether it rotates a grid: scores of equal tokens must depend only on the distances along both axes."""
    if (name, "axes") not in FUNCTIONS:
        return NO
    side = 8
    token = random_array(1, 1, 1, DIM)
    x = np.broadcast_to(token, (1, 1, side * side, DIM))
    y = get(FUNCTIONS[name, "axes"](put(library.engine, x), side, side))[0, 0]
    scores: dict[tuple[int, int], list[float]] = {}
    for (i, a), (j, b) in product(enumerate(y), repeat=2):
        distance = (i // side - j // side, i % side - j % side)
        scores.setdefault(distance, []).append(float(a @ b / (token**2).sum()))
    alike = max(np.ptp(found) for found in scores.values())
    here, down, right = (scores[step][0] for step in ((0, 0), (1, 0), (0, 1)))
    return yes_or_no(truth=bool(100 * alike < min(abs(here - down), abs(here - right))))


def packed(name: str, library: Library) -> str:
    """Return whether it rotates two packed sequences, given by cumulative lengths."""
    if (name, "packed") not in FUNCTIONS:
        return "by positions" if positions(name, library).startswith("any") else NO
    whole = trial(library, x=random_array(1, *SHAPE[1:]), positions=np.array([0, 1, 2, 0, 1, 2, 3, 4]))
    starts = put(library.engine, np.array([0, 3, 8]))
    return yes_or_no(truth=whole.is_right(lambda x, _: FUNCTIONS[name, "packed"](x, starts)))


def error_near(place: int, name: str, library: Library) -> str:
    """Return its error near a large position."""
    del name
    length = {"length": place + SHAPE[2]} if has_option(library, "length") else {}
    far = trial(library, x=random_array(1, 1, SHAPE[2], WIDE), positions=np.arange(place, place + SHAPE[2]))
    return f"{far.error(library.make(WIDE, **length), dim=WIDE):.1e}"


def in_bfloat16(name: str, library: Library) -> str:
    """Return its error in bfloat16 near position 1000."""
    if name in IN_TRITON:
        return GPU
    rotation, kept = FUNCTIONS.get((name, "bfloat16"), partial(library.make, DIM))(), []

    def half(x: Any, at: Any) -> Any:
        """Return x rotated in bfloat16, and record whether the dtype is kept."""
        lib = _arrays.require_array("x", x)
        given = lib.cast(x, lib.xp.bfloat16)
        y = rotation(given, at)
        kept.append(y.dtype == given.dtype)
        return y

    x = random_array(*SHAPE, bits=7)
    found = trial(library, x=x, positions=np.arange(1000, 1000 + SHAPE[2])).error(half)
    return f"{found:.1e}" + ("" if all(kept) else ", returns another dtype")


def refused(name: str, library: Library) -> str:
    """Return which of some wrong calls it refuses."""
    usual, rotation = trial(library), library.make(DIM)

    def call(rotation: RotaryFunction, x: Data, at: Data) -> Callable[[], Any]:
        """Return a call of the rotation with arrays of the library."""
        return lambda: rotation(put(library.engine, x), put(library.engine, at))

    wrong = {
        "an odd head": lambda: call(library.make(DIM - 1), usual.x[..., 1:], usual.positions)(),  # noqa: PLW0108  # to make it may raise too
        "integers": call(rotation, np.ones(SHAPE, np.int32), usual.positions),
    }
    if positions(name, library).startswith("any"):
        wrong["7 positions for 8 tokens"] = call(rotation, usual.x, usual.positions[1:])
        wrong["3 rows of positions for 2"] = call(rotation, usual.x, np.stack([usual.positions] * 3))
    let_pass = [what for what, attempt in wrong.items() if not raises(attempt)]
    return f"all but {', '.join(let_pass)}" if let_pass else "all"


def raises(call: Callable[[], Any]) -> bool:
    """Whether a call raises."""
    try:
        get(call())
    except Exception:  # noqa: BLE001
        return True
    return False


def keeps(name: str, library: Library) -> str:
    """Return what it caches after short and long sequences, and whether another base gets the cached table."""
    rotation, also = FUNCTIONS.get((name, "keeps"), lambda: (library.make(DIM), None))()
    sizes = []
    for length in (8, 6000):
        x = put(library.engine, random_array(1, 1, length, DIM))
        raised = raises(lambda x=x, n=length: rotation(x, put(library.engine, np.arange(n))))
        sizes.append(held_elements((rotation, also)))
    few = 8 * DIM
    kept = "a table that grows" if sizes[1] > sizes[0] + few else "a table" if sizes[0] > few else "nothing"
    kept += ", no further than it reaches" if raised else ""
    other = trial(library, positions=np.arange(SHAPE[2])).is_right(library.make(DIM, base=500_000.0), base=500_000.0)
    return kept if other else f"{kept}; another base gets the same"


def held_elements(thing: Any, seen: set[int] | None = None) -> int:
    """Return the number of elements of all arrays that an object refers to; `seen` are ids of objects to skip."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, ModuleType | type | str | int | float | bool | None):
        return 0
    seen.add(id(thing))
    if _arrays.is_array(thing):
        return int(np.prod(thing.shape))
    if isinstance(thing, dict):
        return sum(held_elements(part, seen) for part in list(thing.values()))
    if isinstance(thing, list | tuple | set | frozenset):
        return sum(held_elements(part, seen) for part in list(thing))
    cells = [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]
    return held_elements([*cells, getattr(thing, "__self__", None), getattr(thing, "__dict__", None)], seen)


def in_place(name: str, library: Library) -> str:
    """Return whether it rotates x in place, with tokens before heads in memory, as in models."""
    del name
    if not has_option(library, "in_place"):
        return NO
    usual, rotation = trial(library), library.make(DIM, in_place=True)

    def write(x: Any, at: Any) -> Any:
        """Return x in that layout, rotated in place."""
        arranged = x.transpose(1, 2).contiguous().transpose(1, 2)
        rotation(arranged, at)
        return arranged

    return yes_or_no(truth=usual.is_right(write))


def rotates_back(name: str, library: Library) -> str:
    """Return how it undoes a rotation: by an option or by negative positions."""
    del name
    usual, rotation = trial(library), library.make(DIM)

    def close(back: Callable[[Any, Any], Any]) -> bool:
        """Whether a function rotates the result back to x."""
        try:
            x, at = put(library.engine, usual.x), put(library.engine, usual.positions)
            return bool(np.max(np.abs(get(back(rotation(x, at), at)) - usual.x)) < TOLERANCE)
        except Exception:  # noqa: BLE001
            return False

    if has_option(library, "inverse") and close(library.make(DIM, inverse=True)):
        return YES
    return "negative positions" if close(lambda y, at: rotation(y, -at)) else NO


def torch_gradient(loss: Callable[[Any], Any], x: Any) -> Any:
    """Return torch's gradient of a loss at x."""
    import torch

    with rotaries.accept_cpu_tensors():
        return torch.autograd.grad(loss(x.requires_grad_()), x)[0]


def gradient(engine: str) -> Callable[[Callable[[Any], Any], Any], Any]:
    """Return a function (loss, x) -> gradient of an array library."""
    return torch_gradient if engine == "PyTorch" else lambda loss, x: library_record(engine).module.grad(loss)(x)


def gradients(name: str, library: Library) -> str:
    """Return whether its gradient is right: for a weighted sum it must be the inverse rotation of the weights."""
    del name
    rotation, v = library.make(DIM), random_array(*SHAPE)[::-1].copy()
    usual = trial(library, x=v)

    def back(v: Any, at: Any) -> Any:
        """Return the gradient of x for the weights v."""
        x = put(library.engine, random_array(*SHAPE))
        return gradient(library.engine)(lambda x: (rotation(x, at) * v).sum(), x)

    usual = usual._replace(positions=-usual.positions)
    return yes_or_no(truth=usual.is_right(lambda v, at: back(v, -at)))


def vmapped(name: str, library: Library) -> str:
    """Return whether it works row by row under the vmap of its array library."""
    del name
    module = library_record(library.engine).module
    vmap = module.func.vmap if library.engine == "PyTorch" else module.vmap
    rotation = library.make(DIM)
    return yes_or_no(truth=trial(library).is_right(lambda x, at: vmap(lambda row: rotation(row[None], at)[0])(x)))


def compiler(engine: str) -> Callable[[RotaryFunction], RotaryFunction]:
    """Return the compiler of an array library, set to compile one graph."""
    module = library_record(engine).module
    whole = {"PyTorch": {"fullgraph": True, "backend": "aot_eager"}}.get(engine, {})
    return partial(module.jit if engine == "JAX" else module.compile, **whole)


def compiled(name: str, library: Library) -> str:
    """Return whether it can be compiled in one graph."""
    if name in IN_TRITON:
        return GPU
    return yes_or_no(truth=trial(library).is_right(compiler(library.engine)(library.make(DIM))))


def learned(name: str, library: Library) -> str:
    """Return whether frequencies can be learned: a step along their gradient must change the result as predicted."""
    if (name, "learned") not in FUNCTIONS:
        return NO
    import torch

    x = put(library.engine, random_array(1, *SHAPE[1:]))
    leaf, forward = FUNCTIONS[name, "learned"](x, put(library.engine, np.arange(SHAPE[2])))
    weights = torch.linspace(-1, 1, x.numel(), dtype=torch.float64).reshape(x.shape)

    def value() -> Any:
        """Return a weighted sum of the rotated x."""
        return (forward().double() * weights).sum()

    (slope,) = torch.autograd.grad(value(), leaf)
    step = 1e-4 * slope / slope.norm()
    with torch.no_grad():
        before = value()
        leaf += step
        change = float(value() - before)
    expected = float((slope * step).sum())
    return yes_or_no(truth=expected > 0 and abs(change / expected - 1) < 0.05)


def run_onnx(model: Any, given: dict[str, Data]) -> Data:
    """Return the first output of a model in ONNX Runtime, for inputs by name."""
    import onnxruntime

    return np.asarray(onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)[0])


def in_onnx(name: str, library: Library) -> str:
    """Return whether it can be exported, and run at another length in ONNX Runtime."""
    if name in IN_TRITON:
        return GPU
    if library.engine != "PyTorch":
        return NO
    x, at = random_array(2, 3, 5, DIM), np.arange(NEAR, NEAR + 5)
    try:
        found = FUNCTIONS.get((name, "ONNX"), partial(run_exported, library))(x, at)
    except Exception:  # noqa: BLE001
        return NO
    return yes_or_no(truth=error(found, x, at, library.pairing) < TOLERANCE)


def run_exported(library: Library, x: Data, at: Data) -> Data:
    """Return x rotated in ONNX Runtime by a model from torch's exporter, which was exported for another length."""
    import torch

    rotation = library.make(DIM)

    class Rotary(torch.nn.Module):
        """The rotation as a module."""

        def forward(self, x: Any, at: Any) -> Any:
            """Return x rotated at positions."""
            return rotation(x, at)

    usual, auto = trial(library), torch.export.Dim.AUTO
    example = tuple(put("PyTorch", data) for data in (usual.x, usual.positions))
    program = torch.onnx.export(Rotary(), example, dynamo=True, dynamic_shapes=({2: auto}, {0: auto}), verbose=False)
    names = [value.name for value in program.model_proto.graph.input]
    return run_onnx(program.model_proto, dict(zip(names, (x, at), strict=True)))


def sharded(name: str, library: Library) -> str:
    """Return how it rotates a DTensor whose tokens are sharded over two processes."""
    if name in IN_TRITON:
        return GPU
    return sharded_cells()[name] if library.engine == "PyTorch" else NO


@cache
def sharded_cells() -> dict[str, str]:
    """Return the cell of `sharded` for each torch library, measured by two processes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--store", f"{folder}/store", "--rank"]
        ranks = [
            subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True)  # noqa: S603
            for rank in range(2)
        ]
        answers = [rank.communicate(timeout=600)[0] for rank in ranks]
    found: dict[str, str] = json.loads(answers[0].splitlines()[-1])
    return found


def one_rank(rank: int, store: str) -> None:
    """Run as one of the two processes of `sharded_cells`; print the cells as JSON."""
    import torch.distributed as dist
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    from torch.distributed.tensor.experimental import implicit_replication

    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    mesh, found = init_device_mesh("cpu", (2,)), {}
    placements = {
        YES: lambda at: at,
        "with positions sharded too": lambda at: distribute_tensor(at, mesh, [Shard(0)]),
        "with positions replicated": lambda at: distribute_tensor(at, mesh, [Replicate()]),
    }
    for name, library in LIBRARIES.items():
        if library.engine != "PyTorch" or name in IN_TRITON or not installed(library):
            continue
        rotation = library.make(DIM)

        def call(x: Any, at: Any, rotation: RotaryFunction = rotation) -> Any:
            """Return x, sharded by its tokens and rotated, as a whole tensor."""
            return rotation(distribute_tensor(x, mesh, [Shard(2)]), at).full_tensor()

        right = (way for way, at in placements.items() if trial(library).is_right(lambda x, p, at=at: call(x, at(p))))
        with nullcontext() if (cell := next(right, None)) else implicit_replication():
            again = trial(library).is_right(call)
        found[name] = cell or ("by replication" if again else NO)
    print(json.dumps(found))
    dist.destroy_process_group()


def schemes(name: str, library: Library) -> str:
    """Return its scaling schemes; a star marks frequencies that differ from the papers' (test vectors, or ours)."""
    del library
    found = {
        f"{scheme}" if agrees(theirs, ours) else f"{scheme}*"
        for scheme, theirs, ours in FUNCTIONS.get((name, "schemes"), lambda: ())()
    }
    return f"{len(found)}: {', '.join(sorted(found))}" if found else "0"


def xpos(name: str, library: Library) -> str:
    """Return whether it has xPos: of equal tokens keys grow, and scores depend only on the distance."""
    if (name, "xPos") not in FUNCTIONS:
        return NO
    x = np.broadcast_to(random_array(1, 1, 1, DIM), (1, 1, *SHAPE[2:]))
    q, k = (
        get(part)[0, 0]
        for part in FUNCTIONS[name, "xPos"](*(put(library.engine, data) for data in (x, x, np.arange(SHAPE[2]))))
    )
    scores, lengths = q @ k.T / (x[0, 0, 0] ** 2).sum(), np.linalg.norm(k, axis=-1)
    alike = max(np.ptp(np.diagonal(scores, i)) for i in range(1 - SHAPE[2], SHAPE[2])) < TOLERANCE
    return yes_or_no(truth=bool(alike and np.ptp(lengths) / lengths[0] > TOLERANCE))


LLAMA = {
    "model_type": "llama",
    "hidden_size": peers_table.DIM,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "intermediate_size": 8,
    "vocab_size": 8,
    "tie_word_embeddings": True,
    "max_position_embeddings": LONGER,
    "rope_theta": peers_table.OTHER_BASE,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": FACTOR,
        "original_max_position_embeddings": peers_table.TRAINED,
        **peers_table.LLAMA3_FACTORS,
    },
}


def reads_config(name: str, library: Library) -> str:
    """Return whether it reads a config of Llama 3.1."""
    del library
    if (name, "config") not in FUNCTIONS:
        return NO
    numbers = {"original_length": peers_table.TRAINED, **peers_table.LLAMA3_FACTORS}
    want = Reading(scaling.llama3(ra.frequencies(peers_table.DIM, base=peers_table.OTHER_BASE), FACTOR, **numbers))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
        found = FUNCTIONS[name, "config"](Path(folder))
    if agrees(found, want):
        return YES
    return "without the base and the scaling" if agrees(found, Reading(ra.frequencies(peers_table.DIM))) else NO


def folder_of(module: str) -> Path:
    """Return the path of a package or module, without suffix; it is not imported."""
    root, *rest = module.split(".")
    found = find_spec(root)
    return Path(next(iter(found.submodule_search_locations))).joinpath(*rest)  # type: ignore[union-attr, arg-type]


def source_files(library: Library) -> Iterator[Path]:
    """Yield all source files of a library's package."""
    return folder_of(next(iter(library.parts)).partition(".")[0]).rglob("*.py")


def kernels(name: str, library: Library) -> str:
    """Return how many Triton kernels are in files whose names mention the rotary."""
    del name
    named = [
        path for path in source_files(library) if re.search(r"rope|rotary", path.name) and "backends" not in path.parts
    ]
    count = sum(path.read_text(encoding="utf-8").count("@triton.jit") for path in named if "rope_any" not in path.parts)
    return f"{count} in Triton" if count else NO


def models(name: str, library: Library) -> str:
    """Return how many model files mention a rotary."""
    if name == "x-transformers":
        return "1"  # the whole library
    root = folder_of(next(iter(library.parts)).partition(".")[0])
    whole = {"litgpt": [root / "model.py"]}.get(
        root.name, [path for path in source_files(library) if "models" in path.parts]
    )
    speaking = [path for path in whole if re.search(r"rotary|\brope\b|_rope", path.read_text(encoding="utf-8"))]
    return str(len(speaking))


def lines(name: str, library: Library) -> str:
    """Return the lines of code of the rotary, without comments and docstrings; ours are rounded to hundreds."""
    count = sum(count_lines(path, names) for module, names in library.parts.items() for path in module_files(module))
    return str(round(count, -2) if name == "rope_any" else count)


def module_files(module: str) -> Iterator[Path]:
    """Yield the file of a module, or those of a package."""
    path = folder_of(module)
    return path.rglob("*.py") if path.is_dir() else iter([path.with_suffix(".py")])


def count_lines(path: Path, names: tuple[str, ...]) -> int:
    """Return how many lines of code a file has, or some of its classes and functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            said = [part for part in body if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)]
            node.body = [part for part in body if part not in said] or [ast.Pass()]  # type: ignore[attr-defined]
    tree.body = [node for node in tree.body if not names or getattr(node, "name", "") in names]
    return len([line for line in ast.unparse(tree).splitlines() if line.strip()])


# --- the tables -------------------------------------------------------------------------------------------

Probe = Callable[[str, Library], str]
TOPICS: dict[str, dict[str, Probe]] = {
    "Arrays, pairings and positions": {
        "arrays of": engines,
        "pairings": pairings,
        "partial": partial_rotary,
        "positions": positions,
        "several axes": several_axes,
        "packed, from `cu_seqlens`": packed,
    },
    "Accuracy and checks of arguments": {
        **{f"error near {name}": partial(error_near, place) for name, place in FAR.items()},
        "bfloat16, near 1000": in_bfloat16,
        "it keeps": keeps,
        "wrong calls it refuses": refused,
    },
    "Gradients, compilers and devices": {
        "in place": in_place,
        "rotates back": rotates_back,
        "gradients": gradients,
        "vmap": vmapped,
        "compiles whole": compiled,
        "ONNX": in_onnx,
        "DTensor": sharded,
        "learned frequencies": learned,
    },
    "Configs and context extension": {
        "a `config.json` of Llama 3.1": reads_config,
        "schemes": schemes,
        "xPos": xpos,
    },
    "Kernels, model files and size": {"kernels": kernels, "files of models with it": models, "lines of code": lines},
}
SLOW = {"ONNX", "DTensor", "arrays of"}
"""The features whose probes take more than a second."""


def installed(library: Library) -> bool:
    """Whether the package of a library is installed."""
    return find_spec(next(iter(library.parts)).partition(".")[0]) is not None


def cell(name: str, feature: str, probe: Probe) -> str:
    """Return a cell of the table: a probe's result for a library, or a fact from its source."""
    return FROM_SOURCE.get((name, feature)) or probe(name, LIBRARIES[name])


def row(name: str, topic: str) -> str:
    """Return the row of a library."""
    found = (cell(name, feature, probe) for feature, probe in TOPICS[topic].items())
    return f"| {name} | {' | '.join(found)} |"


def tables() -> Iterator[str]:
    """Yield the table of each topic, for all installed libraries."""
    here = [name for name, library in LIBRARIES.items() if installed(library)]
    for topic, probes in TOPICS.items():
        head = f"| library | {' | '.join(probes)} |\n|{' --- |' * (len(probes) + 1)}"
        yield "\n".join([f"## {topic}\n\n{head}", *(row(name, topic) for name in here)])


def main() -> None:
    """Run all probes and print the tables, or run a part as a subprocess."""
    parser = making.parser(__doc__, PAGE)
    parser.add_argument(
        "--only", choices=LIBRARIES, metavar="NAME", help="measure and replace only the rows of this library"
    )
    own = parser.add_argument_group("for processes that this script starts")
    own.add_argument("--on-jax", choices=LIBRARIES, metavar="NAME", help="exit with 0 if it rotates arrays of JAX")
    own.add_argument("--store", metavar="FILE", help="the file by which the two processes of a DTensor connect")
    own.add_argument("--rank", type=int, choices=(0, 1), help="the rank of this process")
    given = parser.parse_args()
    if given.on_jax:
        library = LIBRARIES[given.on_jax]
        sys.exit(not trial(library, engine="JAX").is_right(library.make(DIM)))
    if given.store:
        one_rank(given.rank, given.store)
        return
    absent = {name for name in ([given.only] if given.only else LIBRARIES) if not installed(LIBRARIES[name])}
    if given.only and absent:
        sys.exit(f"missing: {given.only}")
    making.report_missing(absent, write=given.write)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    if given.only:
        rows, name = (row(given.only, topic) for topic in TOPICS), re.escape(given.only)
        said = f"{given.only} {version(LIBRARIES[given.only].package)} (on {today})"
        found, heads = re.subn(rf"(?<= ){name} [^,;]+", said, PAGE.read_text(encoding="utf-8"), count=1)
        if not heads:
            sys.exit(f"{PAGE.name} has no rows of {given.only} yet: run this for all")
        found = re.sub(rf"^\| {name} \|.*$", lambda _: next(rows), found, flags=re.MULTILINE)
        making.show(found.removesuffix("\n"), PAGE, write=given.write)
        return
    about = ", ".join(f"{name} {version(one.package)}" for name, one in LIBRARIES.items() if installed(one))
    parts = [
        "<!-- written by tools/comparison_table.py; run it again rather than edit this file -->",
        f"Tried on {today} on a CPU, with {about}; torch {version('torch')}.",
        *tables(),
    ]
    making.show("\n\n".join(parts), PAGE, write=given.write)


if __name__ == "__main__":
    main()
