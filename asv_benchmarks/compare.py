"""
Compare rope_any with its peers: the same work in turn in one process, medians, ratios, the share of a copy's speed.

    python asv_benchmarks/compare.py                      # all of it, about twenty minutes
    python asv_benchmarks/compare.py --quick              # small sizes, one process: does it run?
    python asv_benchmarks/compare.py --json out.json --chart out.svg --markdown out.md

Each library runs in processes of its own, and in two regimes: with the allocator as it is, and with one that keeps
freed memory (glibc: MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_), because most of the time of an eager peer is
the page faults of new memory. Single processes scatter, so several are run; a figure is the median of their medians.
"""

import argparse
import datetime as dt
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_TOP_PAD_": str(2**28)}
REGIMES = {"default allocator": {}, "memory kept": KEEPING}
PACKAGES = (
    "numpy", "torch", "jax", "cupy-cuda12x", "cupy-cuda13x", "numba", "transformers", "rotary-embedding-torch",
    "torchtune", "equinox", "liger-kernel", "flash-attn", "triton",
)  # fmt: skip
BASE, FAR = 500_000.0, 100_000


class Row(NamedTuple):
    """What is compared: calls that do the same work, timed in turn; the first is ours."""

    what: str
    target: float | None
    """What the time of the peer divided by ours should be, at least; None where nothing was asked."""
    ours: Callable[[], Any]
    peer: str
    theirs: Callable[[], Any]
    copy: Callable[[], Any] | None = None
    """A copy of the same bytes, into memory that is there."""


class Size(NamedTuple):
    """The shapes: queries ``(batch, heads, seq, head_dim)``, and a quarter of the heads for keys."""

    batch: int = 1
    heads: int = 32
    seq: int = 4096
    head_dim: int = 128

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of q and of k."""
        return tuple((self.batch, heads, self.seq, self.head_dim) for heads in (self.heads, max(self.heads // 4, 1)))


PREFILL = Size()
SIZES = {
    "decode": Size(seq=1),
    "decode, batch 64": Size(batch=64, seq=1),
    "prefill 32k": Size(seq=32_768, heads=8),
    "1M tokens, 2 heads": Size(seq=2**20, heads=2),
    "head_dim 64": Size(head_dim=64),
    "head_dim 80": Size(head_dim=80),
    "head_dim 256": Size(head_dim=256, heads=16),
}
QUICK = Size(heads=4, seq=128, head_dim=64)


# --- libraries --------------------------------------------------------------------------------------------------------


def numpy_rows(*, quick: bool) -> Iterator[Row]:
    """NumPy against the textbook formula."""
    import numpy as np

    import rope_any as ra

    def half(x, cos, sin):
        n = x.shape[-1] // 2
        return x * cos + np.concatenate([-x[..., n:], x[..., :n]], axis=-1) * sin

    def interleaved(x, cos, sin):
        return x * cos + np.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape) * sin

    def case(size, dtype="float32"):
        rng = np.random.default_rng(0)
        return tuple(rng.standard_normal(shape, dtype=np.float32).astype(dtype) for shape in size.shapes)

    def rows(size, name, pairing, targets, dtype="float32"):
        rope = ra.Rope(ra.frequencies(size.head_dim, base=BASE), pairing=pairing)
        qk = case(size, dtype)
        out = tuple(np.empty_like(x) for x in qk)
        table = rope.table(np.arange(FAR, FAR + size.seq), like=qk[0])
        repeat = np.concatenate if pairing == "half" else (lambda parts, axis: np.repeat(parts[0], 2, axis=axis))
        wide = [repeat([part, part], axis=-1).astype(dtype) for part in table]
        textbook = half if pairing == "half" else interleaved

        def theirs():
            return [textbook(x, *wide) for x in qk]

        def copy():
            for to, x in zip(out, qk, strict=True):
                np.copyto(to, x)

        peer = "the textbook formula"
        yield Row(f"{name}, {pairing}, new array", targets[0], lambda: rope(*qk, table), peer, theirs, copy)
        if size.seq > 1:
            yield Row(f"{name}, {pairing}, out=", targets[1], lambda: rope(*qk, table, out=out), peer, theirs, copy)
            if importlib.util.find_spec("numba") and dtype in {"float32", "float64"}:
                ours = lambda: rope(*qk, table, out=out, fused=True)
                yield Row(f"{name}, {pairing}, out=, fused (Numba)", None, ours, peer, theirs, copy)

    first = QUICK if quick else PREFILL
    yield from rows(first, "float32", "half", (2.2, 3.0))
    yield from rows(first, "float32", "interleaved", (4, 7))
    yield from rows(SIZES["decode"], "decode", "half", (0.6, None))
    yield from table_rows(
        np.arange,
        lambda p, f: [function(_wide_angles(np, p, f)) for function in (np.cos, np.sin)],
        "the textbook formula",
        quick,
    )
    if quick:
        return
    for dtype in ("float16", "float64"):
        yield from rows(first, dtype, "half", (None, None), dtype)
    for name, size in SIZES.items():
        if name != "decode":
            yield from rows(size, name, "half", (None, None))
    yield from special_rows(case, np.arange, half, "the textbook formula", np)


def _wide_angles(xp, positions, frequencies):
    """Return float32 angles for all features of halves, as most compute them."""
    angles = xp.asarray(positions, dtype=xp.float32)[:, None] * xp.asarray(frequencies, dtype=xp.float32)
    return xp.concatenate([angles, angles], axis=-1)


def table_rows(arange, textbook, peer, quick) -> Iterator[Row]:
    """Tables: ours exact, theirs with float32 angles and twice as wide."""
    import rope_any as ra

    rope = ra.Rope(ra.frequencies(128, base=BASE), pairing="half")
    for tokens in (1, 512) if quick else (1, 4096, 32_768, 131_072):
        positions = arange(tokens)
        ours = lambda p=positions: rope.table(p)
        theirs = lambda p=positions: textbook(p, rope.frequencies)
        yield Row(f"table of {tokens} position{'s' if tokens > 1 else ''}", 1.0, ours, peer, theirs)


def special_rows(case, arange, textbook, peer, xp) -> Iterator[Row]:
    """Partial rotary, packed sequences, and tokens before heads."""
    import rope_any as ra

    q, k = case(PREFILL)
    part = ra.Rope(ra.frequencies(32, base=BASE), pairing="half")
    table = part.table(arange(PREFILL.seq))
    wide = [xp.concatenate([t, t], axis=-1) for t in table]

    def in_part():
        return [xp.concatenate([textbook(x[..., :32], *wide), x[..., 32:]], axis=-1) for x in (q, k)]

    yield Row("partial rotary, 32 of 128", None, lambda: part(q, k, table), peer, in_part)
    rope = ra.Rope(ra.frequencies(128, base=BASE), pairing="half")
    packed = rope.table(arange(PREFILL.seq) % 1000)
    wide_packed = [xp.concatenate([t, t], axis=-1) for t in packed]
    theirs = lambda: [textbook(x, *wide_packed) for x in (q, k)]
    yield Row("packed: positions restart", None, lambda: rope(q, k, packed), peer, theirs)


def torch_rows(*, quick: bool, device: str = "cpu") -> Iterator[Row]:
    """Torch against transformers, rotary-embedding-torch and torchtune, eager and compiled."""
    import torch

    import rope_any as ra

    hf, other, tune = _transformers(), _rotary_embedding_torch(), _torchtune()

    def case(size, dtype=torch.float32):
        torch.manual_seed(0)
        return tuple(torch.randn(shape, device=device).to(dtype) for shape in size.shapes)

    def ready(size, pairing, dtype):
        rope = ra.Rope(ra.frequencies(size.head_dim, base=BASE), pairing=pairing)
        qk = case(size, dtype)
        table = rope.table(torch.arange(FAR, FAR + size.seq, device=device), like=qk[0])
        return rope, qk, tuple(torch.empty_like(x) for x in qk), table

    def copies(out, qk):
        return lambda: [to.copy_(x) for to, x in zip(out, qk, strict=True)]

    def halves(size, name, dtype, targets):
        if hf is None:
            return
        rope, qk, out, table = ready(size, "half", dtype)
        wide = [torch.cat([t, t], dim=-1)[None].to(dtype) for t in table]
        theirs, copy, peer = (lambda: hf(*qk, *wide)), copies(out, qk), "transformers, eager"
        yield Row(f"{name}, half, new array", targets.get("new"), lambda: rope(*qk, table), peer, theirs, copy)
        if size.seq == 1:
            return
        ours = lambda: rope(*qk, table, out=out)
        yield Row(f"{name}, half, out=", targets.get("out"), ours, peer, theirs, copy)
        fused = lambda: rope(*qk, table, out=out, fused=True)
        yield Row(f"{name}, half, out=, fused", None, fused, peer, theirs, copy)
        if "compiled" in targets and not quick:
            compiled = torch.compile(hf)
            peer, faster = "transformers, torch.compile", lambda: compiled(*qk, *wide)
            yield Row(f"{name}, half, out=", targets["out compiled"], ours, peer, faster, copy)
            mine = torch.compile(rope, fullgraph=True)
            yield Row(f"{name}, half, torch.compile", targets["compiled"], lambda: mine(*qk, table), peer, faster, copy)

    def neighbours(size, name, dtype, target):
        rope, qk, out, table = ready(size, "interleaved", dtype)
        ours, copy = (lambda: rope(*qk, table, out=out)), copies(out, qk)
        if other is not None:
            angles = torch.arange(FAR, FAR + size.seq, device=device)[:, None] * torch.tensor(
                rope.frequencies, device=device
            ).repeat_interleave(2)
            theirs = lambda: [other(angles, x) for x in qk]
            yield Row(f"{name}, interleaved, out=", target, ours, "rotary-embedding-torch", theirs, copy)
        if tune is not None:
            module = tune(size.head_dim, max_seq_len=size.seq, base=BASE).to(device)
            turned = [x.transpose(1, 2).contiguous() for x in qk]  # it wants tokens before heads
            yield Row(f"{name}, interleaved, out=", None, ours, "torchtune", lambda: [module(x) for x in turned], copy)

    def gradients(size, name, dtype, target):
        if hf is None:
            return
        rope, qk, _, table = ready(size, "half", dtype)
        qk = tuple(x.requires_grad_() for x in qk)
        wide = [torch.cat([t, t], dim=-1)[None].to(dtype) for t in table]
        g = tuple(torch.randn_like(x) for x in qk)

        def run(turned):
            return torch.autograd.grad(turned(), qk, g)

        ours, theirs = (lambda: run(lambda: rope(*qk, table))), (lambda: run(lambda: hf(*qk, *wide)))
        yield Row(f"{name}, half, forward + backward", target, ours, "transformers, eager", theirs)

    first, bf16 = (QUICK if quick else PREFILL), torch.bfloat16
    yield from halves(first, "float32", torch.float32, {"new": 3, "out": 7.5, "out compiled": 3, "compiled": 1.8})
    yield from halves(first, "bfloat16", bf16, {"new": 1.5, "out": 4.5, "out compiled": 2, "compiled": 1.8})
    yield from neighbours(first, "float32", torch.float32, 30)
    yield from neighbours(first, "bfloat16", bf16, 25)
    yield from gradients(first, "float32", torch.float32, 2.5)
    yield from halves(SIZES["decode"], "decode", torch.float32, {"new": 0.9})
    yield from _torch_tables(device, quick)
    if quick:
        return
    yield from gradients(first, "bfloat16", bf16, None)
    for name, dtype in (("float16", torch.float16), ("float64", torch.float64)):
        yield from halves(first, name, dtype, {})
    for name, size in SIZES.items():
        if name != "decode":
            yield from halves(size, name, torch.float32, {})
    if hf is not None:
        half = lambda x, cos, sin: hf(x, x[:, :0], cos[None], sin[None])[0]
        yield from special_rows(case, lambda n: torch.arange(n, device=device), half, "transformers, eager", torch)


def _torch_tables(device, quick) -> Iterator[Row]:
    if (spec := importlib.util.find_spec("transformers")) is None or spec.origin is None:
        return
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=4096, num_attention_heads=32, rope_parameters={"rope_type": "default", "rope_theta": BASE}
    )
    embedding, like = LlamaRotaryEmbedding(config).to(device), torch.zeros(1, device=device)
    arange = lambda n: torch.arange(n, device=device)
    yield from table_rows(arange, lambda p, _: embedding(like, p[None]), "transformers", quick)


def cuda_rows(*, quick: bool) -> Iterator[Row]:
    """Torch on CUDA: as on a CPU, and a gigabyte of queries against a device copy and kernels written by hand."""
    yield from torch_rows(quick=quick, device="cuda")
    import torch

    import rope_any as ra

    size = QUICK if quick else Size(batch=4, seq=32_768)
    qk = tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in size.shapes)
    out = tuple(torch.empty_like(x) for x in qk)
    copy = lambda: [to.copy_(x) for to, x in zip(out, qk, strict=True)]
    for pairing in ("half", "interleaved"):
        rope = ra.Rope(ra.frequencies(size.head_dim, base=BASE), pairing=pairing)
        table = rope.table(torch.arange(size.seq, device="cuda"), like=qk[0])
        what, ours = f"gigabytes, bfloat16, {pairing}, out=, fused", partial(rope, *qk, table, out=out, fused=True)
        yield Row(what, 0.8, ours, "a device copy", copy, copy)
        if (triton := _flash_attn()) is not None:
            turned = [x.transpose(1, 2).contiguous() for x in qk]  # it wants tokens before heads
            narrow = [part.to(torch.bfloat16) for part in table]
            flags = {"interleaved": pairing == "interleaved", "inplace": True}
            theirs = lambda turned=turned, narrow=narrow, flags=flags, f=triton: [
                f(x, *narrow, **flags) for x in turned
            ]
            yield Row(what, 1.0, ours, "flash-attention's kernel, in place", theirs, copy)
        if pairing == "half" and (liger := _liger()) is not None:
            wide = [torch.cat([t, t], dim=-1)[None].to(torch.bfloat16) for t in table]
            # in place where heads come after tokens in memory; it would copy others
            laid = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in qk]
            theirs = lambda laid=laid, wide=wide, f=liger: f(*laid, *wide)
            yield Row(what, 1.0, ours, "Liger's kernel, in place", theirs, copy)


def cupy_rows(*, quick: bool) -> Iterator[Row]:
    """CuPy against the textbook formula, and a device copy."""
    import cupy as cp

    import rope_any as ra

    size = QUICK if quick else Size(batch=2, seq=32_768)
    for pairing in ("half", "interleaved"):
        rope = ra.Rope(ra.frequencies(size.head_dim, base=BASE), pairing=pairing)
        qk = tuple(cp.random.standard_normal(shape, dtype=cp.float32) for shape in size.shapes)
        out = tuple(cp.empty_like(x) for x in qk)
        table = rope.table(cp.arange(size.seq), like=qk[0])
        wide = [cp.concatenate([t, t], axis=-1) for t in table]

        def textbook(x, wide=wide):
            n = x.shape[-1] // 2
            return x * wide[0] + cp.concatenate([-x[..., n:], x[..., :n]], axis=-1) * wide[1]

        theirs = lambda qk=qk, textbook=textbook: [textbook(x) for x in qk]
        copy = lambda qk=qk, out=out: [cp.copyto(to, x) for to, x in zip(out, qk, strict=True)]
        ours = lambda qk=qk, rope=rope, table=table: rope(*qk, table)
        yield Row(f"float32, {pairing}, new array", 1.0, ours, "the textbook formula of halves", theirs, copy)
        ours = partial(rope, *qk, table, out=out, fused=True)
        yield Row(f"float32, {pairing}, out=, fused", 0.8, ours, "a device copy", copy, copy)


def jax_rows(*, quick: bool) -> Iterator[Row]:
    """JAX, jitted, against the textbook formula and equinox, jitted."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import rope_any as ra

    size = QUICK if quick else PREFILL
    rng = np.random.default_rng(0)
    qk = tuple(jnp.asarray(rng.standard_normal(shape, dtype=np.float32)) for shape in size.shapes)

    def half(x, cos, sin):
        n = x.shape[-1] // 2
        return x * cos + jnp.concatenate([-x[..., n:], x[..., :n]], axis=-1) * sin

    def interleaved(x, cos, sin):
        return x * cos + jnp.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape) * sin

    def copied(q, k):
        return q + 1, k + 1  # a jitted copy would be none

    copy = jax.jit(copied)
    for pairing, textbook in (("half", half), ("interleaved", interleaved)):
        rope = ra.Rope(ra.frequencies(size.head_dim, base=BASE), pairing=pairing)
        table = rope.table(jnp.arange(FAR, FAR + size.seq))
        wide = [jnp.concatenate([t, t], -1) if pairing == "half" else jnp.repeat(t, 2, -1) for t in table]
        mine = jax.jit(rope)
        both = jax.jit(lambda q, k, cos, sin, f=textbook: (f(q, cos, sin), f(k, cos, sin)))
        ours = lambda mine=mine, table=table: mine(*qk, table)
        theirs = lambda both=both, wide=wide: both(*qk, *wide)
        yield Row(f"float32, {pairing}, jitted", 1.8, ours, "the textbook formula, jitted", theirs, lambda: copy(*qk))
    if importlib.util.find_spec("equinox"):
        import equinox

        module = equinox.nn.RotaryPositionalEmbedding(size.head_dim, theta=BASE)
        heads = jax.jit(jax.vmap(jax.vmap(module)))
        half_rope = ra.Rope(ra.frequencies(size.head_dim, base=BASE), pairing="half")
        with_table = jax.jit(half_rope)
        ours = lambda: with_table(*qk)
        yield Row("float32, half, jitted with its table", None, ours, "equinox, jitted", lambda: [heads(x) for x in qk])


def growth_rows(*, quick: bool) -> Iterator[Row]:
    """How the time grows with the tokens: NumPy, one head, against a copy."""
    import numpy as np

    import rope_any as ra

    rope = ra.Rope(ra.frequencies(128, base=BASE), pairing="half")
    for power in (10, 12) if quick else range(10, 21, 2):
        x = np.random.default_rng(0).standard_normal((1, 1, 2**power, 128), dtype=np.float32)
        out, table = np.empty_like(x), rope.table(np.arange(2**power))
        ours = lambda x=x, out=out, table=table: rope.apply(x, table, out=out)
        theirs = lambda x=x, out=out: np.copyto(out, x)
        yield Row(f"{2**power} tokens, one head, out=", None, ours, "a copy", theirs)


LIBRARIES = {
    "NumPy": numpy_rows,
    "PyTorch": torch_rows,
    "JAX": jax_rows,
    "PyTorch, CUDA": cuda_rows,
    "CuPy": cupy_rows,
    "NumPy, as tokens grow": growth_rows,
}


# --- peers ------------------------------------------------------------------------------------------------------------


def _transformers():
    try:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    except ImportError:
        return None
    return apply_rotary_pos_emb


def _rotary_embedding_torch():
    try:
        from rotary_embedding_torch import apply_rotary_emb
    except ImportError:
        return None
    return apply_rotary_emb


def _torchtune():
    """Return its module, from its own file: the package imports much that a rotation does not need."""
    spec = importlib.util.find_spec("torchtune")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "modules" / "position_embeddings.py"
    found = importlib.util.spec_from_file_location("torchtune_position_embeddings", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.RotaryPositionalEmbeddings


def _flash_attn():
    try:
        from flash_attn.layers.rotary import apply_rotary_emb
    except ImportError:
        return None
    return apply_rotary_emb


def _liger():
    try:
        from liger_kernel.transformers import liger_rotary_pos_emb
    except ImportError:
        return None
    return liger_rotary_pos_emb


# --- one process ------------------------------------------------------------------------------------------------------


def waiter(library: str) -> Callable[[Any], Any]:
    """Return what waits for a result of a library to be there."""
    if library == "JAX":
        import jax

        return jax.block_until_ready
    if library == "PyTorch, CUDA":
        import torch

        return lambda _: torch.cuda.synchronize()
    if library == "CuPy":
        import cupy

        return lambda _: cupy.cuda.get_current_stream().synchronize()
    return lambda result: result


def absent(library: str) -> str | None:
    """Return why a library cannot be measured here, or None."""
    module = {"NumPy": "numpy", "NumPy, as tokens grow": "numpy", "JAX": "jax", "CuPy": "cupy"}.get(library, "torch")
    if importlib.util.find_spec(module) is None:
        return f"{module} is not installed"
    if library == "PyTorch, CUDA":
        import torch

        return None if torch.cuda.is_available() else "torch finds no CUDA GPU"
    if library == "CuPy":
        import cupy

        return None if cupy.cuda.is_available() else "cupy finds no CUDA GPU"
    return None


def timed(calls: list[Callable[[], Any]], wait: Callable[[Any], Any], *, seconds: float) -> list[float]:
    """
    Return the median time of each call, in seconds: in turn, each after an untimed one.

    Without that one a call would pay for the garbage of the call before it.
    """
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        wait(call())  # what is compiled is compiled now
    end = perf_counter() + seconds
    while perf_counter() < end or len(times[0]) < 3:
        for call, found in zip(calls, times, strict=True):
            wait(call())
            begin = perf_counter()
            wait(call())
            found.append(perf_counter() - begin)
    return [median(found) for found in times]


def measure(library: str, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Time the rows of a library in this process."""
    warnings.filterwarnings("error", "fused=True falls back", RuntimeWarning)  # else another schedule would be timed
    wait = waiter(library)
    for row in LIBRARIES[library](quick=quick):
        calls = [row.ours, row.theirs] + ([row.copy] if row.copy else [])
        ours, theirs, *copy = timed(calls, wait, seconds=0.02 if quick else 0.6)
        yield {
            "what": row.what, "peer": row.peer, "target": None if quick else row.target,
            "ours": ours, "theirs": theirs, "copy": copy[0] if copy else None,
        }  # fmt: skip
        print(f"{library}: {row.what}", file=sys.stderr, flush=True)


def memory_of_gradients(who: str, *, quick: bool) -> float:
    """Return the MiB by which forward + backward raise the peak of this process, beyond q, k and their gradients."""
    import torch

    import rope_any as ra

    size = QUICK if quick else PREFILL
    q, k = (torch.randn(shape, requires_grad=True) for shape in size.shapes)
    g = tuple(torch.randn_like(x) for x in (q, k))
    q.grad, k.grad = torch.zeros_like(q), torch.zeros_like(k)
    rope = ra.Rope(ra.frequencies(size.head_dim), pairing="half")
    table = rope.table(torch.arange(size.seq), like=q)
    wide = [torch.cat([t, t], dim=-1)[None] for t in table]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    turned = rope(q, k, table) if who == "ours" else _transformers()(q, k, *wide)
    torch.autograd.backward(turned, g)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


# --- all of it --------------------------------------------------------------------------------------------------------


def in_process(arguments: list[str], environment: dict[str, str]) -> list[dict[str, Any]]:
    """Run this script in a process of its own, and return what it printed, a JSON object per line."""
    run = subprocess.run(
        [sys.executable, __file__, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def collected(libraries: list[str], *, processes: int, quick: bool) -> dict[str, Any]:
    """Measure the libraries in both regimes, and say what was measured on what."""
    results: dict[str, Any] = {"about": about(), "rows": [], "absent": {}, "memory": []}
    for library in libraries:
        if why := absent(library):
            results["absent"][library] = why
            continue
        for regime, environment in REGIMES.items():
            flags = ["--process", library, *(["--quick"] if quick else [])]
            runs = [in_process(flags, environment) for _ in range(processes)]
            for same in zip(*runs, strict=True):
                figures = {key: median(row[key] for row in same) for key in ("ours", "theirs")}
                copies = [row["copy"] for row in same]
                figures["copy"] = median(copies) if None not in copies else None
                results["rows"].append({**same[0], **figures, "library": library, "regime": regime})
    if "PyTorch" in libraries and "PyTorch" not in results["absent"] and _transformers():
        for who in ("ours", "transformers"):
            flags = ["--memory", who, *(["--quick"] if quick else [])]
            results["memory"].append({"who": who, "mib": in_process(flags, {})[0]["mib"]})
    return results


def about() -> dict[str, Any]:
    """Say on what, with what and when."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    import rope_any

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return {
        "when": dt.datetime.now(dt.UTC).date().isoformat(), "rope_any": rope_any.__version__,
        "cpu": cpu, "cores": os.cpu_count(), "gpu": gpu(), "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}", "packages": found,
    }  # fmt: skip


def gpu() -> str | None:
    """Return the name of the GPU that torch or CuPy finds, if any."""
    if absent("PyTorch, CUDA") is None:
        import torch

        return torch.cuda.get_device_name()
    if absent("CuPy") is None:
        import cupy

        return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return None


def shown(results: dict[str, Any]) -> str:
    """Return the figures as tables in Markdown."""
    facts = results["about"]
    unused = ("cupy",) if "CuPy" in results["absent"] else ()  # installed, without a GPU
    packages = ", ".join(f"{name} {v}" for name, v in facts["packages"].items() if not name.startswith(unused))
    where = ", ".join(filter(None, (facts["cpu"], f"{facts['cores']} cores", facts["gpu"], facts["system"])))
    with_what = f"rope_any {facts['rope_any']}, Python {facts['python']}, {packages}"
    lines = [f"Measured on {facts['when']} on {where}, with {with_what}."]
    for library in dict.fromkeys(row["library"] for row in results["rows"]):
        heads = ("what", "peer", "peer ÷ ours", "target", "memory kept", "ours, ms", "a copy ÷ ours")
        lines += ["", f"**{library}**", "", f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
        rows = [row for row in results["rows"] if row["library"] == library]
        kept = [row for row in rows if row["regime"] == "memory kept"]
        for row, other in zip([row for row in rows if row not in kept], kept, strict=True):
            ratio = row["theirs"] / row["ours"]
            target = (
                "" if row["target"] is None else f"≥ {row['target']:g}{'' if ratio >= row['target'] else ', missed'}"
            )
            share = f"{row['copy'] / row['ours']:.2f}" if row["copy"] else ""
            lines.append(
                f"| {row['what']} | {row['peer']} | {ratio:.2f} | {target} | {other['theirs'] / other['ours']:.2f} "
                f"| {1e3 * row['ours']:.3g} | {share} |"
            )
    if results["memory"]:
        ours, theirs = (entry["mib"] for entry in results["memory"])
        what = "Peak memory of forward + backward in torch, beyond what is given"
        lines += ["", f"{what}: {ours:.0f} MiB with rope_any, {theirs:.0f} MiB with transformers."]
    lines += ["", *(f"{library}: not measured, {why}." for library, why in results["absent"].items())]
    return "\n".join(lines) + "\n"


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the ratios of the rows that have a target, as bars from 1 on: to the right rope_any is faster."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "rope_any"
    from matplotlib.patheffects import withStroke

    from rope_any.plot.looks import BLACK, BLUE, GREY, drawing_on, named

    rows = [row for row in results["rows"] if row["target"] is not None and row["regime"] == "default allocator"]
    ratios, places = [row["theirs"] / row["ours"] for row in rows], range(len(rows))
    with drawing_on(None, height=0.34 * len(rows) + 1) as axes:
        axes.barh(
            places, [ratio - 1 for ratio in ratios], 0.55, left=1, color=BLUE, label="reached, in figures at the right"
        )
        seen = [withStroke(linewidth=4, foreground="white")]  # on a bar, too
        mark = {"marker": "|", "markersize": 15, "markeredgewidth": 2, "linestyle": "none", "path_effects": seen}
        axes.plot([row["target"] for row in rows], places, color=BLACK, label="target", **mark)
        axes.axvline(1, color=GREY, linewidth=0.8)
        for place, ratio in zip(places, ratios, strict=True):
            named(axes, f"{ratio:.2f}", place)
        names = [f"{row['library']}: {row['what']}\nbeside {row['peer']}" for row in rows]
        axes.set_yticks(places, names, fontsize=8)
        axes.set(xscale="log", ylim=(len(rows) - 0.4, -0.6))
        axes.set_xlabel("time of the peer ÷ ours, with the default allocator: right of 1 ours is faster")
        axes.set_xticks([0.25, 0.5, 1, 2, 4, 8, 16, 32], ["¼", "½", "1", "2", "4", "8", "16", "32"])
        axes.minorticks_off()
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
        axes.figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and one process: a smoke test")
    parser.add_argument("--library", action="append", choices=LIBRARIES, help="only this one (may be repeated)")
    parser.add_argument("--processes", type=int, default=3, help="processes per library and regime")
    parser.add_argument("--results", type=Path, help="take the figures of this JSON, and measure nothing")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--markdown", type=Path, help="write the tables here")
    parser.add_argument("--chart", type=Path, help="write a chart here (.svg, .png)")
    parser.add_argument("--process", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--memory", choices=("ours", "transformers"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        for row in measure(options.process, quick=options.quick):
            print(json.dumps(row), flush=True)
        return
    if options.memory:
        print(json.dumps({"mib": memory_of_gradients(options.memory, quick=options.quick)}))
        return
    processes = 1 if options.quick else options.processes
    if options.results:
        results = json.loads(options.results.read_text(encoding="utf-8"))
    else:
        results = collected(options.library or list(LIBRARIES), processes=processes, quick=options.quick)
    if not results["rows"]:
        sys.exit("compare.py: nothing was measured: " + "; ".join(map(" ".join, results["absent"].items())))
    print(shown(results))
    for path, text in ((options.json, json.dumps(results, indent=1) + "\n"), (options.markdown, shown(results))):
        if path:
            path.write_text(text, encoding="utf-8")
    if options.chart:
        draw(results, options.chart)


if __name__ == "__main__":
    main()
