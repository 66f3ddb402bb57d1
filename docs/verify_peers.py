"""
Run `rope-any verify` on the rotaries of other libraries, and write `verify_peers.md`.

In the environment that `peers_table.py` describes, with ``timm`` and ``liger_kernel`` besides::

    python docs/verify_peers.py

It takes four minutes. Each row is what the command in it reports, and each function below is what that command runs:
how a library turns x at positions, called as its documentation or its own models call it. A library that is not
installed is named as such.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from peers_table import NAMES, alone

DIM, PARTIAL, TABLE = 128, 32, 4096  # features, how many turn where not all do, and the length of tables


class Peer(NamedTuple):
    """A rotary of another library."""

    package: str
    what: str
    words: str
    """Options of the command."""


PEERS: dict[str, Peer] = {}
Turn = Callable[[Any, Any], Any]


def peer(package: str, what: str, words: str) -> Callable[[Turn], Turn]:
    """Enter a function."""

    def entered(function: Turn) -> Turn:
        PEERS[function.__name__] = Peer(package, what, words)
        return function

    return entered


def llama_table(x: Any, positions: Any, **config: Any) -> Any:
    """Return cosines and sines of transformers."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    shape = {"hidden_size": x.shape[-1], "num_attention_heads": 1, "max_position_embeddings": TABLE} | config
    return LlamaRotaryEmbedding(LlamaConfig(**shape))(x, positions[None])


def turned_by(module: str, x: Any, positions: Any, name: str = "apply_rotary_pos_emb") -> Any:
    """Return x as a model of transformers turns it."""
    from importlib import import_module

    apply = getattr(import_module(f"transformers.models.{module}.modeling_{module}"), name)
    return apply(x, x, *llama_table(x, positions))[0]


@peer("transformers", "Llama", "--pairing half --library torch")
def transformers_llama(x: Any, positions: Any) -> Any:
    """Turn as Llama and most other models of transformers do."""
    return turned_by("llama", x, positions)


@peer("transformers", "Llama, bfloat16", "--pairing half --library torch --dtype bfloat16")
def transformers_llama_bfloat16(x: Any, positions: Any) -> Any:
    """Turn in half precision: the table is made in float32 and rounded."""
    return turned_by("llama", x, positions)


@peer("transformers", "GPT-J", f"--pairing interleaved --library torch --longest {TABLE - 1}")
def transformers_gptj(x: Any, positions: Any) -> Any:
    """Turn neighbours, by a table for all positions that the model has."""
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

    sin, cos = create_sinusoidal_positions(TABLE, x.shape[-1])[positions][None].chunk(2, dim=-1)
    return apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2)


@peer("transformers", "DeepSeek-V3", "--pairing interleaved --library torch")
def transformers_deepseek(x: Any, positions: Any) -> Any:
    """Turn neighbours, which come out as halves."""
    return turned_by("deepseek_v3", x, positions, "apply_rotary_pos_emb_interleave")


@peer("transformers", "NanoChat", "--pairing half --library torch")
def transformers_nanochat(x: Any, positions: Any) -> Any:
    """Turn as its author's code does."""
    from transformers.models.nanochat.modeling_nanochat import apply_rotary_pos_emb, rotate_half

    del rotate_half  # another than Llama's: it is there to be seen
    return apply_rotary_pos_emb(x, x, *llama_table(x, positions))[0]


@peer("rotary-embedding-torch", "RotaryEmbedding", "--pairing interleaved --library torch")
def lucidrains(x: Any, positions: Any) -> Any:
    """Turn from an offset on."""
    from rotary_embedding_torch import RotaryEmbedding

    return RotaryEmbedding(x.shape[-1]).rotate_queries_or_keys(x, offset=int(positions[0]))


@peer("rotary-embedding-torch", "bfloat16", "--pairing interleaved --library torch --dtype bfloat16 --longest 9999")
def lucidrains_bfloat16(x: Any, positions: Any) -> Any:
    """Turn in half precision."""
    return lucidrains(x, positions)


@peer("x-transformers", "RotaryEmbedding", "--pairing interleaved --library torch")
def x_transformers(x: Any, positions: Any) -> Any:
    """Turn at positions."""
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    return apply_rotary_pos_emb(x, RotaryEmbedding(x.shape[-1])(positions)[0])


@peer("torchtune", "RotaryPositionalEmbeddings", f"--pairing interleaved --library torch --longest {TABLE - 1}")
def torchtune(x: Any, positions: Any) -> Any:
    """Turn by its table."""
    ropes = alone("torchtune.modules.position_embeddings")
    turn = ropes.RotaryPositionalEmbeddings(x.shape[-1], max_seq_len=TABLE)
    return turn(x.transpose(1, 2), input_pos=positions[None].expand(len(x), -1)).transpose(1, 2)


@peer("litgpt", "apply_rope", f"--pairing half --library torch --longest {TABLE - 1}")
def litgpt(x: Any, positions: Any) -> Any:
    """Turn by its table."""
    from litgpt.model import apply_rope, build_rope_cache

    return apply_rope(x, *(part[positions][None] for part in build_rope_cache(TABLE, x.shape[-1])))


@peer("equinox", "RotaryPositionalEmbedding", f"--pairing half --library jax --longest {TABLE - 1}")
def equinox(x: Any, positions: Any) -> Any:
    """Turn a sequence from 0 on, which is all it does, and take the tokens that were asked for."""
    import jax
    import jax.numpy as jnp
    from equinox.nn import RotaryPositionalEmbedding

    whole = jnp.zeros((*x.shape[:2], TABLE, x.shape[-1]), x.dtype).at[:, :, positions].set(x)
    return jax.vmap(jax.vmap(RotaryPositionalEmbedding(x.shape[-1])))(whole)[:, :, positions]


@peer("keras-hub", "RotaryEmbedding on torch", "--pairing half --library torch")
def keras_hub(x: Any, positions: Any) -> Any:
    """Turn at positions."""
    os.environ["KERAS_BACKEND"] = "torch"
    from keras_hub.layers import RotaryEmbedding

    return RotaryEmbedding(sequence_axis=2)(x, positions=positions)


@peer("timm", "apply_rot_embed, one axis", "--pairing half --library torch")
def timm(x: Any, positions: Any) -> Any:
    """Turn by its frequencies along one axis."""
    import torch

    ropes = alone("timm.layers.pos_embed_sincos")
    angles = positions[:, None] * ropes.freq_bands(x.shape[-1], step=2)
    return ropes.apply_rot_embed(x, *(torch.cat([part, part], -1) for part in (angles.sin(), angles.cos())), half=True)


@peer("diffusers", "get_1d_rotary_pos_embed", "--pairing interleaved --library torch")
def diffusers(x: Any, positions: Any, **options: Any) -> Any:
    """Turn as CogVideoX does."""
    from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed

    return apply_rotary_emb(x, get_1d_rotary_pos_embed(x.shape[-1], positions, use_real=True, **options))


@peer("diffusers", "with freqs_dtype=float64", "--pairing interleaved --library torch")
def diffusers_float64(x: Any, positions: Any) -> Any:
    """Turn as Flux does."""
    import torch

    return diffusers(x, positions, freqs_dtype=torch.float64)


@peer("mlx", "mlx.nn.RoPE", "--pairing half --library mlx")
def mlx(x: Any, positions: Any) -> Any:
    """Turn from an offset on."""
    from mlx.nn import RoPE

    return RoPE(x.shape[-1], traditional=False)(x, offset=int(positions[0]))


@peer("liger_kernel", "liger_rotary_pos_emb", "--pairing half --library torch")
def liger(x: Any, positions: Any) -> Any:
    """Turn by the table of transformers, in Triton."""
    from liger_kernel.transformers.rope import liger_rotary_pos_emb

    return liger_rotary_pos_emb(x.contiguous(), x.clone(), *llama_table(x, positions))[0]


# --- the table --------------------------------------------------------------------------------------------


def command(name: str, *more: str) -> list[str]:
    """Return the words of the command that verifies a peer."""
    return ["verify", f"verify_peers:{name}", *PEERS[name].words.split(), *more]


def run(words: list[str]) -> str:
    """Return what a command prints."""
    program = [sys.executable, "-m", "rope_any", *words]
    quiet = os.environ | {"TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(  # noqa: S603  # our own words
        program, cwd=Path(__file__).parent, env=quiet, capture_output=True, text=True, check=False
    )
    if done.returncode not in {0, 1}:
        sys.exit(done.stderr)
    return done.stdout


def named(package: str) -> str:
    """Return a library and its version."""
    return f"{NAMES.get(package, package)} {version(package)}"


def rows() -> Iterator[str]:
    """Yield the rows of the table."""
    for name, one in PEERS.items():
        asked = f"| `{' '.join(command(name))}`"
        try:
            title = f"| {named(one.package)}, {one.what}"
        except PackageNotFoundError:
            yield f"| {one.package}, {one.what} | | | not installed here {asked} |"
            continue
        report = json.loads(run(command(name, "--json")))
        errors = {int(position): error for position, error in report["errors"].items()}
        if not errors:
            yield f"{title} | | | didn't run here: {next(iter(report['refusals'].values()))} {asked} |"
            continue
        known = [position for position in (1000, 1_000_000) if position in errors]
        shown = [f"{errors[position]:.1e}" for position in known] + [""] * (2 - len(known))
        broken = [prop for prop, found in report["properties"].items() if not found["holds"]]
        said = "; ".join([*report["causes"], *(f"fails: {prop}" for prop in broken)])
        yield f"{title} | {' | '.join(shown)} | {'passes' if report['passed'] else said or 'cause not known'} {asked} |"


def main() -> None:
    """Run the peers, and write the table."""
    table = [
        "| library, function | error from 1000 on | from 1 000 000 on | what the report says | `rope-any` ... |",
        "| --- | --- | --- | --- | --- |",
        *rows(),
    ]
    words = command("transformers_llama")
    parts = [
        "<!-- written by verify_peers.py; run it again rather than edit this file -->",
        "\n".join(table),
        f"One report in full:\n\n```text\n$ rope-any {' '.join(words)}\n{run(words)}```",
    ]
    Path(__file__).with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
