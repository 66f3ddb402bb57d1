"""
Call the rotaries of other libraries by one interface, for `verify_peers.py` and `comparison_table.py`.

A function is named as its library is. It makes a rotary for heads of `dim` features, with the options that the
library has, and returns ``turn(x, positions)``: x is ``(batch, heads, seq, dim)``, positions are ``(seq,)``, or
``(batch, seq)`` where the library can. What keeps a table is made for `length` tokens. Each is called as its
documentation or its own models call it; where a library leaves the table to the caller, the table is made by the
function that it has for that.
"""

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

from peers_table import alone

import rope_any as ra

BASE, TABLE = 10_000.0, 4096  # of all frequencies; the length of tables
LAYOUTS = {"half": -2, "interleaved": -1}

os.environ.setdefault("KERAS_BACKEND", "torch")
if sys.platform == "linux":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run on a CPU, slowly: set it to 0 where there is a GPU

RotaryFunction = Callable[[Any, Any], Any]


def by_rows(positions: Any) -> Any:
    """Return positions as ``(batch, seq)``."""
    return positions if positions.ndim == 2 else positions[None]


def with_heads(table: Any) -> Any:
    """Return a table ``(seq, dim)``, or ``(batch, 1, seq, dim)`` of one for each row."""
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
    """Rotate by this library."""
    rope = ra.Rope(ra.frequencies(rotary_dim or dim, base=base), pairing=pairing)  # type: ignore[arg-type]
    return lambda x, positions: rope.apply(x, positions, inverse=inverse, out=x if in_place else None)


def llama_rotary(dim: int, base: float = BASE, length: int = TABLE, **rope: Any) -> Any:
    """Return the module that makes tables in transformers."""
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
    """Rotate as a model of transformers does; partial rotary as in GPT-NeoX."""
    model = "gpt_neox" if rotary_dim else model
    apply = getattr(import_module(f"transformers.models.{model}.modeling_{model}"), function)
    table = llama_rotary(rotary_dim or dim, base)
    return lambda x, positions: apply(x, x, *table(x, by_rows(positions)))[0]


def gptj(dim: int, /, *, length: int = TABLE) -> RotaryFunction:
    """Rotate as GPT-J of transformers does, by a table of all positions of the model."""
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

    table = create_sinusoidal_positions(length, dim)

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated by rows of the table."""
        sin, cos = table[by_rows(positions)].chunk(2, dim=-1)
        return apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2)

    return rotation


def lucidrains(dim: int, /, *, base: float = BASE, rotary_dim: int | None = None) -> RotaryFunction:
    """Rotate by rotary-embedding-torch, at positions."""
    from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

    rope = RotaryEmbedding(rotary_dim or dim, theta=base)
    return lambda x, positions: apply_rotary_emb(with_heads(rope(positions)), x)


def lucidrains_from(dim: int, /) -> RotaryFunction:
    """Rotate by rotary-embedding-torch as it is usually called, from an offset on."""
    from rotary_embedding_torch import RotaryEmbedding

    rope = RotaryEmbedding(dim)
    return lambda x, positions: rope.rotate_queries_or_keys(x, offset=int(positions[0]))


def x_transformers(dim: int, /, *, base: float = BASE, rotary_dim: int | None = None) -> RotaryFunction:
    """Rotate by x-transformers."""
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    rope = RotaryEmbedding(rotary_dim or dim, base=base)
    return lambda x, positions: apply_rotary_pos_emb(x, rope(positions)[0])


def torchtune(dim: int, /, *, base: float = BASE, length: int = TABLE) -> RotaryFunction:
    """Rotate by torchtune."""
    ropes = alone("torchtune.modules.position_embeddings")
    rope = ropes.RotaryPositionalEmbeddings(dim, max_seq_len=length, base=int(base))

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated at positions."""
        return rope(x.transpose(1, 2), input_pos=by_rows(positions).expand(len(x), -1)).transpose(1, 2)

    return rotation


def flash_rotary() -> Any:
    """Import the rotary of flash-attention without its CUDA extension."""
    parts = "layers.rotary", "layers", "ops.triton.rotary", "ops.triton"
    return alone(*(f"flash_attn.{part}" for part in parts))


def anywhere() -> Any:
    """Make flash-attention accept the device of a CPU tensor."""
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
    """Rotate by the kernel of flash-attention and the table of its module; its gradient for the inverse."""
    ropes = flash_rotary()
    rope = ropes.RotaryEmbedding(rotary_dim or dim, base=base)

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated by rows of the module's table."""
        rope._update_cos_sin_cache(length, device=x.device, dtype=x.dtype)  # noqa: SLF001  # as its forward does
        table = rope._cos_cached[positions], rope._sin_cached[positions]  # noqa: SLF001
        with anywhere():
            options = {"interleaved": pairing == "interleaved", "inplace": in_place}
            apply = partial(ropes.apply_rotary, conjugate=True) if inverse else ropes.apply_rotary_emb
            return apply(x.transpose(1, 2), *table, **options).transpose(1, 2)

    return rotation


def liger(dim: int, /, *, base: float = BASE, rotary_dim: int | None = None, in_place: bool = False) -> RotaryFunction:
    """Rotate by the kernel of Liger and the table of transformers."""
    from liger_kernel.transformers.rope import liger_rotary_pos_emb

    table = llama_rotary(rotary_dim or dim, base)

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated by the kernel."""
        given = x if in_place else x.clone()  # it writes in place if heads follow tokens in memory
        return liger_rotary_pos_emb(given, x.clone(), *table(x, by_rows(positions)))[0]

    return rotation


def litgpt(dim: int, /, *, base: float = BASE, length: int = TABLE, function: str = "apply_rope") -> RotaryFunction:
    """Rotate by LitGPT."""
    from litgpt import model

    apply, tables = getattr(model, function), model.build_rope_cache(length, dim, base=int(base))
    return lambda x, positions: apply(x, *(table[by_rows(positions)] for table in tables))


def equinox(dim: int, /, *, base: float = BASE, length: int = TABLE) -> RotaryFunction:
    """Rotate a sequence from position 0 on, the only way of equinox, and return the requested tokens."""
    import jax
    import jax.numpy as jnp
    from equinox.nn import RotaryPositionalEmbedding

    rope = jax.vmap(jax.vmap(RotaryPositionalEmbedding(dim, theta=base)))

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated within a sequence that starts at position 0."""
        whole = jnp.zeros((*x.shape[:2], length, dim), x.dtype).at[:, :, positions].set(x)
        return rope(whole)[:, :, positions]

    return rotation


def keras_hub(dim: int, /, *, base: float = BASE, dtype: str | None = None) -> RotaryFunction:  # noqa: ARG001  # x says it
    """Rotate by keras-hub."""
    from keras_hub.layers import RotaryEmbedding

    rope = RotaryEmbedding(sequence_axis=2, max_wavelength=base, dtype=dtype)
    return lambda x, positions: rope(x, positions=positions)


def timm(dim: int, /, *, base: float = BASE, pairing: str = "half") -> RotaryFunction:
    """Rotate by timm along one axis: it has the frequencies, but makes angles for grids only."""
    import torch

    ropes, half = alone("timm.layers.pos_embed_sincos"), pairing == "half"
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
    """Rotate by diffusers; float64 frequencies as in Flux."""
    import torch
    from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed

    layout = LAYOUTS[pairing]
    given = {
        "theta": base,
        "freqs_dtype": getattr(torch, freqs_dtype),
        "use_real": True,
        "repeat_interleave_real": layout == -1,
    }

    def rotation(x: Any, positions: Any) -> Any:
        """Return x rotated by a table of the positions."""
        return apply_rotary_emb(x, get_1d_rotary_pos_embed(dim, positions, **given), use_real_unbind_dim=layout)

    return rotation


def mlx(dim: int, /, *, base: float = BASE, pairing: str = "half", rotary_dim: int | None = None) -> RotaryFunction:
    """Rotate by ``mlx.nn.RoPE``, from an offset on."""
    from mlx.nn import RoPE

    rope = RoPE(rotary_dim or dim, traditional=pairing == "interleaved", base=base)
    return lambda x, positions: rope(x, offset=positions[0])
