"""
Call the rotaries of other libraries by one interface, for `verify_peers.py` and `comparison_table.py`.

Each function is named after its library. It takes the number of features of a head, `dim`, and the options of the
library, and returns ``rotation(x, positions)``: x is ``(batch, heads, seq, dim)``, positions are ``(seq,)``, or
``(batch, seq)`` if the library accepts them. Tables that a library keeps are made for `length` tokens. Libraries are
called as in their documentation or in their own models. If the caller must pass a table, the library's own function
makes it.
"""

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

from peers_table import import_part

import rope_any as ra

BASE, TABLE = 10_000.0, 4096  # the base of frequencies, and the number of tokens of tables
UNBIND_DIMS = {"half": -2, "interleaved": -1}

os.environ.setdefault("KERAS_BACKEND", "torch")
if sys.platform == "linux":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run on a CPU, slowly: with a GPU, set it to 0

RotaryFunction = Callable[[Any, Any], Any]


def by_rows(positions: Any) -> Any:
    """Return positions as ``(batch, seq)``."""
    return positions if positions.ndim == 2 else positions[None]


def with_heads(table: Any) -> Any:
    """Return a table ``(seq, dim)`` unchanged, and one ``(batch, seq, dim)`` as ``(batch, 1, seq, dim)``."""
    return table if table.ndim == 2 else table[:, None]


def rope_any(
    dim: int,
    /,
    *,
    base: float = BASE,
    pairing: str = "half",
    rotary_dim: int | None = None,
    inverse: bool = False,
    in_place: bool = False,
) -> RotaryFunction:
    """Return the rotation of this library."""
    rope = ra.Rope(ra.frequencies(rotary_dim or dim, base=base), pairing=pairing)  # type: ignore[arg-type]
    return lambda x, positions: rope.apply(x, positions, inverse=inverse, out=x if in_place else None)


def llama_rotary(dim: int, base: float = BASE, length: int = TABLE, **rope: Any) -> Any:
    """Return transformers' module that makes the tables of Llama."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    shape = {"hidden_size": dim, "num_attention_heads": 1, "max_position_embeddings": length}
    return LlamaRotaryEmbedding(
        LlamaConfig(**shape, rope_parameters={"rope_type": "default", "rope_theta": base} | rope)
    )


def transformers(
    dim: int,
    /,
    *,
    base: float = BASE,
    rotary_dim: int | None = None,
    model: str = "llama",
    function: str = "apply_rotary_pos_emb",
) -> RotaryFunction:
    """Return the rotation of a model of transformers; partial rotary is that of GPT-NeoX."""
    model = "gpt_neox" if rotary_dim else model
    apply = getattr(import_module(f"transformers.models.{model}.modeling_{model}"), function)
    table = llama_rotary(rotary_dim or dim, base)
    return lambda x, positions: apply(x, x, *table(x, by_rows(positions)))[0]


def gptj(dim: int, /, *, length: int = TABLE) -> RotaryFunction:
    """Return the rotation of transformers' GPT-J, by a table of all positions of the model."""
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

    table = create_sinusoidal_positions(length, dim)

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated by rows of the table."""
        sin, cos = table[by_rows(positions)].chunk(2, dim=-1)
        return apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2)

    return rotation


def lucidrains(dim: int, /, *, base: float = BASE, rotary_dim: int | None = None) -> RotaryFunction:
    """Return the rotation of rotary-embedding-torch at any positions."""
    from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

    rope = RotaryEmbedding(rotary_dim or dim, theta=base)
    return lambda x, positions: apply_rotary_emb(with_heads(rope(positions)), x)


def lucidrains_by_offset(dim: int, /) -> RotaryFunction:
    """Return the rotation of rotary-embedding-torch as it is usually called: from an offset on."""
    from rotary_embedding_torch import RotaryEmbedding

    rope = RotaryEmbedding(dim)
    return lambda x, positions: rope.rotate_queries_or_keys(x, offset=int(positions[0]))


def x_transformers(dim: int, /, *, base: float = BASE, rotary_dim: int | None = None) -> RotaryFunction:
    """Return the rotation of x-transformers."""
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    rope = RotaryEmbedding(rotary_dim or dim, base=base)
    return lambda x, positions: apply_rotary_pos_emb(x, rope(positions)[0])


def torchtune(dim: int, /, *, base: float = BASE, length: int = TABLE) -> RotaryFunction:
    """Return the rotation of torchtune."""
    ropes = import_part("torchtune.modules.position_embeddings")
    rope = ropes.RotaryPositionalEmbeddings(dim, max_seq_len=length, base=int(base))

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated at positions."""
        return rope(x.transpose(1, 2), input_pos=by_rows(positions).expand(len(x), -1)).transpose(1, 2)

    return rotation


def flash_rotary() -> Any:
    """Return the rotary module of flash-attention, imported without its CUDA extension."""
    parts = "layers.rotary", "layers", "ops.triton.rotary", "ops.triton"
    return import_part(*(f"flash_attn.{part}" for part in parts))


def accept_cpu_tensors() -> Any:
    """Return a context in which flash-attention accepts CPU tensors."""
    import torch

    return nullcontext() if torch.cuda.is_available() else patch.object(torch.cuda, "device", lambda _: nullcontext())


def flash_attention(
    dim: int,
    /,
    *,
    base: float = BASE,
    pairing: str = "half",
    rotary_dim: int | None = None,
    inverse: bool = False,
    in_place: bool = False,
    length: int = TABLE,
) -> RotaryFunction:
    """Return the rotation of flash-attention's kernel by its module's table; the inverse is its backward pass."""
    ropes = flash_rotary()
    rope = ropes.RotaryEmbedding(rotary_dim or dim, base=base)

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated by rows of the module's table."""
        rope._update_cos_sin_cache(length, device=x.device, dtype=x.dtype)  # noqa: SLF001  # as its forward does
        table = rope._cos_cached[positions], rope._sin_cached[positions]  # noqa: SLF001
        with accept_cpu_tensors():
            options = {"interleaved": pairing == "interleaved", "inplace": in_place}
            apply = partial(ropes.apply_rotary, conjugate=True) if inverse else ropes.apply_rotary_emb
            return apply(x.transpose(1, 2), *table, **options).transpose(1, 2)

    return rotation


def liger(dim: int, /, *, base: float = BASE, rotary_dim: int | None = None, in_place: bool = False) -> RotaryFunction:
    """Return the rotation of Liger's kernel by the table of transformers."""
    from liger_kernel.transformers.rope import liger_rotary_pos_emb

    table = llama_rotary(rotary_dim or dim, base)

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated by the kernel."""
        given = x if in_place else x.clone()  # it writes in place if heads follow tokens in memory
        return liger_rotary_pos_emb(given, x.clone(), *table(x, by_rows(positions)))[0]

    return rotation


def litgpt(dim: int, /, *, base: float = BASE, length: int = TABLE, function: str = "apply_rope") -> RotaryFunction:
    """Return the rotation of LitGPT."""
    from litgpt import model

    apply, tables = getattr(model, function), model.build_rope_cache(length, dim, base=int(base))
    return lambda x, positions: apply(x, *(table[by_rows(positions)] for table in tables))


def equinox(dim: int, /, *, base: float = BASE, length: int = TABLE) -> RotaryFunction:
    """Return the rotation of equinox: tokens are put into a sequence from position 0 on, as it takes no positions."""
    import jax
    import jax.numpy as jnp
    from equinox.nn import RotaryPositionalEmbedding

    rope = jax.vmap(jax.vmap(RotaryPositionalEmbedding(dim, theta=base)))

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated within a sequence that starts at position 0."""
        whole = jnp.zeros((*x.shape[:2], length, dim), x.dtype).at[:, :, positions].set(x)
        return rope(whole)[:, :, positions]

    return rotation


def keras_hub(dim: int, /, *, base: float = BASE, dtype: str | None = None) -> RotaryFunction:  # noqa: ARG001  # x gives it
    """Return the rotation of keras-hub."""
    from keras_hub.layers import RotaryEmbedding

    rope = RotaryEmbedding(sequence_axis=2, max_wavelength=base, dtype=dtype)
    return lambda x, positions: rope(x, positions=positions)


def timm(dim: int, /, *, base: float = BASE, pairing: str = "half") -> RotaryFunction:
    """Return the rotation of timm along one axis; angles are made here, since timm makes those of grids only."""
    import torch

    ropes, half = import_part("timm.layers.pos_embed_sincos"), pairing == "half"
    bands = ropes.freq_bands(dim, temperature=base, step=2)

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated by angles of positions times the frequencies."""
        angles = positions[..., None] * bands
        angles = torch.cat([angles, angles], -1) if half else angles.repeat_interleave(2, -1)
        return ropes.apply_rot_embed(x, with_heads(angles.sin()), with_heads(angles.cos()), half=half)

    return rotation


def diffusers(
    dim: int, /, *, base: float = BASE, pairing: str = "interleaved", freqs_dtype: str = "float32"
) -> RotaryFunction:
    """Return the rotation of diffusers; Flux has float64 frequencies."""
    import torch
    from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed

    unbind_dim = UNBIND_DIMS[pairing]
    given = {
        "theta": base,
        "freqs_dtype": getattr(torch, freqs_dtype),
        "use_real": True,
        "repeat_interleave_real": unbind_dim == -1,
    }

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated by a table of the positions."""
        return apply_rotary_emb(x, get_1d_rotary_pos_embed(dim, positions, **given), use_real_unbind_dim=unbind_dim)

    return rotation


def mlx(dim: int, /, *, base: float = BASE, pairing: str = "half", rotary_dim: int | None = None) -> RotaryFunction:
    """Return the rotation of ``mlx.nn.RoPE``, from an offset on."""
    from mlx.nn import RoPE

    rope = RoPE(rotary_dim or dim, traditional=pairing == "interleaved", base=base)
    return lambda x, positions: rope(x, offset=positions[0])
