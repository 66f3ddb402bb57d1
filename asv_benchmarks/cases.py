"""
The cases of compare.py: rows and their targets, the peers, and for each library calls that do the same work.

A group is a set of such calls, timed alternately. Its name and one of our schedules form the name of a row.
"""

import importlib.util
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

COPY, TEXTBOOK, PRODUCT = "a copy", "the textbook formula", "float32 product, cosine and sine"
EAGER, COMPILED = "transformers, eager", "transformers, torch.compile"
TARGETS: dict[str, dict[str, dict[str, float | tuple[float, float]]]] = {
    "NumPy": {
        TEXTBOOK: {
            "float32, half, new array": 2.3,
            "float32, half, out=": 3,
            "float32, interleaved, new array": 4,
            "float32, interleaved, out=": 7,
            "decode, half, new array": 1.13,
            "decode, half, new array, fused": 3.5,
            "decode, batch 64, half, new array": (1, 1.3),
            "decode, batch 64, half, new array, fused": (1, 3.5),
            "decode at a new position, float32, eager": 1,
            "decode at a new position, float32, fused": 2.2,
        },
        PRODUCT: {
            "table of 1 position, range": 0.4,
            "table of 4096 positions, range": 1.4,
            "table of 32768 positions, range": 1.3,
        },
        COPY: {
            "float32, half, out=, fused": 0.8,
            "float16, half, out=, fused": 0.7,
            "bfloat16, half, out=, fused": 0.5,
            "1M tokens, 2 heads, half, out=, fused": 0.75,
        },
    },
    "PyTorch": {
        EAGER: {
            "float32, half, new array": 3,
            "float32, half, out=": 6,
            "bfloat16, half, new array": 2,
            "bfloat16, half, out=": 4,
            "float32, half, forward + backward": 2.5,
            "decode, half, recorded": 0.8,
            "decode, half, forward + backward": 0.8,
            "decode, half, new array": 1.4,
            "decode, half, new array, fused": 3.8,
            "decode, bfloat16, half, new array": 1,
            "decode, bfloat16, half, new array, fused": 3.8,
            "decode, batch 64, half, new array": (1, 1.3),
            "decode, batch 64, half, new array, fused": (1, 3.5),
            "decode at a new position, float32, eager": 1.7,
            "decode at a new position, float32, fused": 4,
            "table of 1 position, range": 1.5,
            "table of 4096 positions, range": 2.5,
            "table of 32768 positions, range": 4,
        },
        COMPILED: {
            "float32, half, new array, fused": 2.5,
            "float32, half, out=, fused": (3, 2),
            "float32, half, torch.compile": 1.8,
            "bfloat16, half, new array, fused": 2,
            "bfloat16, half, out=, fused": (2.4, 1.5),
            "bfloat16, half, torch.compile": 1.8,
        },
        COPY: {
            "float32, half, out=, fused": 0.8,
            "float16, half, out=, fused": 0.7,
            "bfloat16, half, out=, fused": 0.5,
            "1M tokens, 2 heads, half, out=, fused": 0.75,
        },
    },
    "JAX": {f"{TEXTBOOK}, jitted": {"float32, half, jitted": 1.8, "float32, interleaved, jitted": 1}},
    "PyTorch, CUDA": {
        COPY: {f"gigabytes, bfloat16, {pairing}, out=, fused": 0.8 for pairing in ("half", "interleaved")},
    },
    "CuPy": {COPY: {f"float32, {pairing}, out=, fused": 0.8 for pairing in ("half", "interleaved")}},
}
"""By library, peer and row: the least ratio of the peer's time to ours; of two, the second is for kept memory."""
LAYERS = 32
FIRST_CALL_TARGET = 1  # second, for the first call with fused=True when the disk has the compiled loop
SOME_ROWS = {row + end for row in ("decode, half, new array", "float32, half, out=") for end in ("", ", fused")}
BUSY_ROWS = {"NumPy": SOME_ROWS, "PyTorch": SOME_ROWS}
"""By library: the rows that are also measured while other processes use all cores."""

_ROTATION = ("new array", "new array, fused", "out=, fused")
_STEP, _TABLE = ("eager", "fused"), ("range", "range, fused")
PAGE = {
    "a prompt of 4096 tokens, float32": ("float32, half", _ROTATION),
    "a prompt, bfloat16": ("bfloat16, half", _ROTATION),
    "a prompt, float32, interleaved pairs": ("float32, interleaved", _ROTATION),
    "a prompt and its gradients, float32": ("float32, half", ("forward + backward",)),
    "a decoding step, float32": ("decode, half", _ROTATION),
    "a decoding step, bfloat16": ("decode, bfloat16, half", _ROTATION),
    "a decoding step, batch of 64, float32": ("decode, batch 64, half", _ROTATION),
    "a table and a decoding step, float32": ("decode at a new position, float32", _STEP),
    f"a table and {LAYERS} layers of a decoding step": (f"decoding step of {LAYERS} layers, float32", _STEP),
    "a table of 1 position": ("table of 1 position", _TABLE),
    "a table of 4096 positions": ("table of 4096 positions", _TABLE),
    "a table of 32 768 positions": ("table of 32768 positions", _TABLE),
    "a prompt, float32, jitted": ("float32, half", ("jitted",)),
    "a prompt, float32, interleaved pairs, jitted": ("float32, interleaved", ("jitted",)),
    "gigabytes, bfloat16": ("gigabytes, bfloat16, half", ("", "", "out=, fused")),
}
"""The rows of the page: (group, our schedules by column: as it is, fused, fused in place)."""

BASE, FAR = 500_000.0, 100_000
NEXT = range(4096, 32_768)  # positions of decoding steps
NEW, OUT = ("new array", "new array, fused"), ("out=", "out=, fused")
SOME = ("new array", *OUT)


class Case(NamedTuple):
    """A rotation: queries ``(batch, heads, seq, head_dim)``, a quarter of the heads for keys, and a ready table."""

    batch: int = 1
    heads: int = 32
    seq: int = 4096
    head_dim: int = 128
    dtype: str = "float32"
    pairing: str = "half"
    rotary: int | None = None
    """How many features are rotated, if not all."""
    restart: int = 2**31
    """The length of a sequence, after which positions start again from 0."""
    schedules: tuple[str, ...] = NEW + OUT
    peers: bool = True
    """Whether to measure the peers, or only a copy."""
    compiled: bool = False
    """Whether to measure torch.compile, for the peer and for rope_any."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of q and of k."""
        return tuple((self.batch, heads, self.seq, self.head_dim) for heads in (self.heads, max(self.heads // 4, 1)))

    def small(self) -> "Case":
        """Return a small case of the same kind."""
        most = {"batch": min(self.batch, 2), "heads": min(self.heads, 4), "seq": min(self.seq, 128), "compiled": False}
        return self._replace(**most)


DECODE, MILLION = Case(seq=1, schedules=NEW), Case(heads=1, seq=2**20, schedules=OUT[1:], peers=False)
CASES = {
    "decode, half": DECODE,
    "decode, bfloat16, half": DECODE._replace(dtype="bfloat16"),
    "decode, batch 64, half": DECODE._replace(batch=64),
    "float32, half": Case(compiled=True),
    "float32, interleaved": Case(pairing="interleaved"),
    "bfloat16, half": Case(dtype="bfloat16", compiled=True),
    "float16, half": Case(dtype="float16"),
    "float64, half": Case(dtype="float64", schedules=SOME),
    "256 tokens, 8 heads, half": Case(seq=256, heads=8, schedules=SOME),
    "1024 tokens, 8 heads, half": Case(seq=1024, heads=8, schedules=SOME),
    "prefill 32k, half": Case(seq=32_768, heads=8, schedules=SOME),
    "1M tokens, 2 heads, half": MILLION,
    "head_dim 64, half": Case(head_dim=64, schedules=SOME),
    "head_dim 80, half": Case(head_dim=80, schedules=SOME),
    "head_dim 256, half": Case(head_dim=256, heads=16, schedules=SOME),
    "partial rotary, 32 of 128": Case(rotary=32, schedules=SOME),
    "packed: positions restart": Case(restart=1000, schedules=SOME),
}
GROWTH = {f"{2**power} tokens, 2 heads": MILLION._replace(seq=2**power, schedules=OUT) for power in range(10, 21, 2)}


class Group(NamedTuple):
    """Calls that do the same work; they are timed alternately."""

    ours: dict[str, Callable[[], Any]]
    peers: dict[str, Callable[[], Any]]
    """Our calls are compared with the first peer; a call with a target also with the peer of that target."""
    copy: Callable[[], Any] | None = None
    """A copy of the same numbers into existing arrays."""


Groups = Iterator[tuple[str, Callable[[], Group]]]

# --- peers ------------------------------------------------------------------------------------------------------------


def textbook(xp: Any, pairing: str) -> Callable[..., Any]:
    """Return the rotation of q and k in its usual form, with cosines and sines for every feature."""

    def half(x, cos, sin):
        """Return x rotated in half pairs."""
        n = x.shape[-1] // 2
        return x * cos + xp.concatenate([-x[..., n:], x[..., :n]], axis=-1) * sin

    def interleaved(x, cos, sin):
        """Return x rotated in interleaved pairs."""
        return x * cos + xp.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape) * sin

    rotate = half if pairing == "half" else interleaved
    return lambda q, k, cos, sin: (rotate(q, cos, sin), rotate(k, cos, sin))


def widen(xp: Any, part: Any, pairing: str) -> Any:
    """Return a table's part with a number for every feature instead of every pair."""
    return xp.concatenate([part, part], axis=-1) if pairing == "half" else xp.repeat(part, 2, axis=-1)


def on_slice(xp: Any, rotate: Callable[..., Any], rotary: int | None) -> Callable[..., Any]:
    """Apply `rotate` to the first features only, as models with partial rotary do."""
    if rotary is None:
        return rotate

    def rotate_slice(q, k, cos, sin):
        """Return q and k with their first features rotated."""
        rotated = rotate(q[..., :rotary], k[..., :rotary], cos, sin)
        return [xp.concatenate([part, x[..., rotary:]], axis=-1) for part, x in zip(rotated, (q, k), strict=True)]

    return rotate_slice


def imported(module: str, name: str) -> Any:
    """Return a function or class of a peer, or None if the peer is not installed."""
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        return None


def torchtune() -> Any:
    """Load torchtune's module from its file: the package imports much that a rotation does not need."""
    spec = importlib.util.find_spec("torchtune")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "modules" / "position_embeddings.py"
    found = importlib.util.spec_from_file_location("torchtune_position_embeddings", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.RotaryPositionalEmbeddings


# --- libraries --------------------------------------------------------------------------------------------------------


class NumPy:
    """The groups of NumPy; base class for libraries with the same functions."""

    peer, table_peer, step_dtypes = TEXTBOOK, PRODUCT, ("float32",)

    def __init__(self, xp: Any) -> None:
        """Take the namespace of the library."""
        self.xp = xp

    def groups(self, cases: dict[str, Case], *, quick: bool) -> Groups:
        """Yield (name, function that returns the group) for some cases."""
        for name, case in cases.items():
            if self.has(case.dtype):
                yield name, partial(self.rotation, case.small() if quick else case)

    def table_groups(self, *, quick: bool) -> Groups:
        """Yield the groups of decoding steps that make their tables, and of tables alone."""
        for dtype in self.step_dtypes:
            yield f"decode at a new position, {dtype}", partial(self.step, dtype, layers=None)
            yield f"decoding step of {LAYERS} layers, {dtype}", partial(self.step, dtype, layers=LAYERS)
        for tokens in (1, 4096, 32_768) if quick else (1, 4096, 32_768, 131_072):
            yield f"table of {tokens} position{'s' if tokens > 1 else ''}", partial(self.table, tokens)

    def rotation(self, case: Case) -> Group:
        """Rotate queries and keys by a ready table."""
        rope, qk, table = self.ready(case)
        out = tuple(self.xp.empty_like(x) for x in qk)
        ours = {
            "new array": lambda: rope(*qk, table),
            "new array, fused": lambda: rope(*qk, table, fused=True),
            "out=": lambda: rope(*qk, table, out=out),
            "out=, fused": lambda: rope(*qk, table, out=out, fused=True),
        }
        chosen = {schedule: ours[schedule] for schedule in case.schedules} | self.compiled(case, rope, qk, table)
        return Group(chosen, self.peers(case, rope, qk, table) if case.peers else {}, self.copy(out, qk))

    def ready(self, case: Case) -> tuple[Any, tuple[Any, ...], Any]:
        """Return the Rope of a case, its queries and keys, and their table."""
        import rope_any as ra

        rope = ra.Rope(ra.frequencies(case.rotary or case.head_dim, base=BASE), pairing=case.pairing)
        qk = tuple(self.random(shape, case.dtype) for shape in case.shapes)
        return rope, qk, rope.table(self.arange(FAR, FAR + case.seq) % case.restart, like=qk[0])

    def step(self, dtype: str, *, layers: int | None) -> Group:
        """Rotate one token at the next position, by a table made in the call; or in many layers, by one table."""
        rope, qk, _ = self.ready(DECODE._replace(dtype=dtype))
        position, next_table, apply = cycle(NEXT), self.next_table(rope, qk[0]), self.apply
        if apply is None:
            return Group({}, {})

        def in_layers(options, *, fused):
            """Return q and k, rotated in each layer by our table of the next position."""
            at = next(position)
            table = rope.table(range(at, at + 1), like=qk[0], **options)
            for _ in range(layers):
                rotated = rope(*qk, table, fused=fused)
            return rotated

        def in_their_layers():
            """Return q and k, rotated in each layer by the peer's table of the next position."""
            cos, sin = next_table()
            for _ in range(layers):
                rotated = apply(*qk, cos, sin)
            return rotated

        if layers:
            fused = partial(in_layers, fused_table(rope), fused=True)
            return Group({"eager": partial(in_layers, {}, fused=False), "fused": fused}, {self.peer: in_their_layers})
        array = self.arange(NEXT.start, NEXT.start + 1)

        def at_array():
            """Return q and k, rotated at the next position, which an array holds."""
            array[0] += 1
            return rope(*qk, array)

        ours = {"eager": lambda: rope(*qk, next(position)), "fused": lambda: rope(*qk, next(position), fused=True)}
        ours["eager, an array"] = at_array
        return Group(ours, {self.peer: lambda: apply(*qk, *next_table())})

    def table(self, tokens: int) -> Group:
        """Make the table of consecutive positions, given as a range or as an array."""
        rope, (like, _), _ = self.ready(DECODE)
        array, theirs = self.arange(0, tokens), self.their_table(rope, tokens)
        ours = {"range": lambda: rope.table(range(tokens), like=like), "array": lambda: rope.table(array)}
        if options := fused_table(rope):
            ours["range, fused"] = lambda: rope.table(range(tokens), like=like, **options)
            ours["array, fused"] = lambda: rope.table(array, **options)
        return Group(ours, {self.table_peer: theirs} if theirs else {})

    # These methods differ between libraries.

    @property
    def apply(self) -> Callable[..., Any] | None:
        """The peer's function that rotates q and k by its own tables, or None."""
        return textbook(self.xp, "half")

    def has(self, dtype: str) -> bool:
        """Whether arrays of a dtype can be made here."""
        return dtype != "bfloat16" or importlib.util.find_spec("ml_dtypes") is not None

    def random(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return normally distributed numbers."""
        if dtype == "bfloat16":
            import ml_dtypes  # noqa: F401  # gives NumPy the name
        return self.xp.random.default_rng(0).standard_normal(shape, dtype=self.xp.float32).astype(dtype)

    def arange(self, start: int, stop: int) -> Any:
        """Return consecutive positions."""
        return self.xp.arange(start, stop)

    def copy(self, out: tuple[Any, ...], xs: tuple[Any, ...]) -> Callable[[], Any]:
        """Return a copy into existing arrays; by torch, in several threads, if it is installed."""
        if not importlib.util.find_spec("torch"):
            return lambda: [self.xp.copyto(to, x) for to, x in zip(out, xs, strict=True)]
        import torch

        def tensor(x):
            """Return a torch tensor that shares the memory of x."""
            return torch.from_numpy(x.view("int16") if x.dtype.name == "bfloat16" else x)

        tensors = [(tensor(to), tensor(x)) for to, x in zip(out, xs, strict=True)]
        return lambda: [to.copy_(x) for to, x in tensors]

    def compiled(self, case: Case, rope: Any, qk: tuple[Any, ...], table: Any) -> dict[str, Callable[[], Any]]:
        """Return our calls in a case under a compiler of whole programs, by name."""
        del case, rope, qk, table
        return {}

    def peers(self, case: Case, rope: Any, qk: tuple[Any, ...], table: Any) -> dict[str, Callable[[], Any]]:
        """Return the calls of the peers in a case, by name."""
        del rope
        wide = [widen(self.xp, part, case.pairing).astype(case.dtype) for part in table]
        rotate = on_slice(self.xp, textbook(self.xp, case.pairing), case.rotary)
        return {TEXTBOOK: lambda: rotate(*qk, *wide)}

    def next_table(self, rope: Any, like: Any) -> Callable[[], Any]:
        """Return a function that makes the peer's table of the next position, for all features."""
        del like
        xp, position = self.xp, cycle(NEXT)
        frequencies = xp.asarray(rope.frequencies, dtype=xp.float32)[None]

        def make():
            """Return the peer's cosines and sines of the next position."""
            angles = frequencies * next(position)
            angles = xp.concatenate([angles, angles], axis=-1)
            return xp.cos(angles), xp.sin(angles)

        return make

    def their_table(self, rope: Any, tokens: int) -> Callable[[], Any] | None:
        """Return a function that makes the peer's table, here of the size of ours, from float32 angles."""
        xp = self.xp
        frequencies, positions = (xp.asarray(x, dtype=xp.float32) for x in (rope.frequencies, range(tokens)))

        def make():
            """Return the peer's cosines and sines of all positions."""
            angles = positions[:, None] * frequencies
            return xp.cos(angles), xp.sin(angles)

        return make


def fused_table(rope: Any) -> dict[str, Any]:
    """Return the option that compiles `Rope.table`; empty for revisions without it."""
    return {"fused": True} if "fused" in inspect.signature(rope.table).parameters else {}


class CuPy(NumPy):
    """The groups of CuPy."""

    def random(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return normally distributed numbers."""
        return self.xp.random.standard_normal(shape, dtype=dtype)

    def copy(self, out: tuple[Any, ...], xs: tuple[Any, ...]) -> Callable[[], Any]:
        """Return a copy on the device."""
        return lambda: [self.xp.copyto(to, x) for to, x in zip(out, xs, strict=True)]


class PyTorch(NumPy):
    """The groups of torch on a device; its peers are transformers, rotary-embedding-torch and torchtune."""

    peer, table_peer, step_dtypes = EAGER, EAGER, ("float32", "bfloat16")

    def __init__(self, xp: Any, device: str = "cpu") -> None:
        """Take torch and a device."""
        super().__init__(xp)
        self.device = device

    def recorded(self, case: Case) -> Group:
        """Rotate queries and keys while gradients are recorded."""
        rope, qk, table = self.ready(case)
        qk = tuple(x.requires_grad_() for x in qk)
        peers = self.peers(case._replace(compiled=False), rope, qk, table)
        return Group({"recorded": lambda: rope(*qk, table)}, peers)

    def gradients(self, case: Case) -> Group:
        """Rotate queries and keys, and take the gradients."""
        rope, qk, table = self.ready(case)
        qk, g = tuple(x.requires_grad_() for x in qk), tuple(self.xp.randn_like(x) for x in qk)

        def differentiated(rotate):
            """Return a call that computes the gradients of q and k."""
            return lambda: self.xp.autograd.grad(rotate(), qk, g)

        peers = self.peers(case._replace(compiled=False), rope, qk, table)
        ours = {"forward + backward": differentiated(lambda: rope(*qk, table))}
        return Group(ours, {name: differentiated(rotate) for name, rotate in peers.items()})

    def compiled(self, case: Case, rope: Any, qk: tuple[Any, ...], table: Any) -> dict[str, Callable[[], Any]]:
        """Return our rotation under torch.compile, in a case that asks for it."""
        compiled = self.xp.compile(rope, fullgraph=True)
        return {"torch.compile": lambda: compiled(*qk, table)} if case.compiled else {}

    @property
    def apply(self) -> Callable[..., Any] | None:
        """The rotation of transformers."""
        return imported("transformers.models.llama.modeling_llama", "apply_rotary_pos_emb")

    def has(self, dtype: str) -> bool:
        """Whether tensors of a dtype can be made here."""
        return hasattr(self.xp, dtype)

    def random(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return normally distributed numbers."""
        self.xp.manual_seed(0)
        return self.xp.randn(shape, device=self.device).to(getattr(self.xp, dtype))

    def arange(self, start: int, stop: int) -> Any:
        """Return consecutive positions."""
        return self.xp.arange(start, stop, device=self.device)

    def copy(self, out: tuple[Any, ...], xs: tuple[Any, ...]) -> Callable[[], Any]:
        """Return a copy into existing tensors."""
        return lambda: [to.copy_(x) for to, x in zip(out, xs, strict=True)]

    def peers(self, case: Case, rope: Any, qk: tuple[Any, ...], table: Any) -> dict[str, Callable[[], Any]]:
        """Return the calls of the peers in a case, by name."""
        if case.pairing == "interleaved":
            return self.interleaved_peers(case, rope, qk)
        if (apply := self.apply) is None:
            return {}
        wide = [widen(self.xp, part, "half")[None].to(qk[0].dtype) for part in table]
        rotate = on_slice(self.xp, apply, case.rotary)
        found = {EAGER: lambda: rotate(*qk, *wide)}
        if case.compiled:
            compiled = self.xp.compile(rotate)
            found[COMPILED] = lambda: compiled(*qk, *wide)
        return found

    def interleaved_peers(self, case: Case, rope: Any, qk: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
        """Return the calls of two libraries with interleaved pairs."""
        found: dict[str, Callable[[], Any]] = {}
        if rotate := imported("rotary_embedding_torch", "apply_rotary_emb"):
            wide = self.xp.tensor(rope.frequencies, device=self.device).repeat_interleave(2)
            angles = self.arange(FAR, FAR + case.seq)[:, None] * wide
            found["rotary-embedding-torch"] = lambda: [rotate(angles, x) for x in qk]
        if tune := torchtune():
            module = tune(case.head_dim, max_seq_len=case.seq, base=BASE).to(self.device)
            tokens_first = [x.transpose(1, 2).contiguous() for x in qk]  # it takes tokens before heads
            found["torchtune"] = lambda: [module(x) for x in tokens_first]
        return found

    def embedding(self) -> Any:
        """Return transformers' module that makes tables, or None."""
        if not importlib.util.find_spec("transformers"):
            return None
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        rope_parameters = {"rope_type": "default", "rope_theta": BASE}
        config = LlamaConfig(hidden_size=4096, num_attention_heads=32, rope_parameters=rope_parameters)
        return LlamaRotaryEmbedding(config).to(self.device)

    def next_table(self, rope: Any, like: Any) -> Callable[[], Any]:
        """Return a function that makes transformers' table of the next position."""
        del rope
        embedding, position_ids = self.embedding(), self.arange(NEXT.start, NEXT.start + 1)[None]
        return lambda: embedding(like, position_ids.add_(1))

    def their_table(self, rope: Any, tokens: int) -> Callable[[], Any] | None:
        """Return a function that makes transformers' table."""
        del rope
        embedding, like = self.embedding(), self.random((1,), "float32")
        position_ids = self.arange(0, tokens)[None]
        return embedding and (lambda: embedding(like, position_ids))


def numpy_groups(*, quick: bool) -> Groups:
    """Yield the groups of NumPy, against the textbook formula."""
    import numpy as np

    yield from NumPy(np).groups(CASES, quick=quick)
    yield from NumPy(np).table_groups(quick=quick)


def growth_groups(*, quick: bool) -> Groups:
    """Yield groups that show how the time of NumPy grows with the tokens, against a copy."""
    import numpy as np

    yield from NumPy(np).groups(GROWTH, quick=quick)


def torch_groups(*, quick: bool, device: str = "cpu") -> Groups:
    """Yield the groups of torch."""
    import torch

    library, more = PyTorch(torch, device), {"bfloat16, interleaved": Case(dtype="bfloat16", pairing="interleaved")}
    yield from library.groups(CASES | more, quick=quick)
    yield from library.table_groups(quick=quick)
    if library.apply:
        for name in ("decode, half", "float32, half", "bfloat16, half"):
            yield name, partial(library.gradients, CASES[name].small() if quick else CASES[name])
        yield "decode, half", partial(library.recorded, DECODE)


def cuda_groups(*, quick: bool) -> Groups:
    """Yield the groups of torch on CUDA: as on a CPU, and gigabytes against a copy and hand-written kernels."""
    yield from torch_groups(quick=quick, device="cuda")
    for pairing in ("half", "interleaved"):
        case = Case(batch=4, seq=32_768, dtype="bfloat16", pairing=pairing, schedules=OUT[1:], peers=False)
        yield f"gigabytes, bfloat16, {pairing}", partial(gigabytes, case.small() if quick else case)


def gigabytes(case: Case) -> Group:
    """Rotate gigabytes of queries and keys on CUDA; the kernels of the peers rotate in place."""
    import torch

    library = PyTorch(torch, "cuda")
    group, peers = library.rotation(case), {}
    _, qk, table = library.ready(case)
    tokens_first = [x.transpose(1, 2).contiguous() for x in qk]  # tokens before heads
    if triton := imported("flash_attn.layers.rotary", "apply_rotary_emb"):
        narrow = [part.to(torch.bfloat16) for part in table]
        flags = {"interleaved": case.pairing == "interleaved", "inplace": True}
        peers["flash-attention's kernel, in place"] = lambda: [triton(x, *narrow, **flags) for x in tokens_first]
    if case.pairing == "half" and (liger := imported("liger_kernel.transformers", "liger_rotary_pos_emb")):
        wide = [widen(torch, part, "half")[None].to(torch.bfloat16) for part in table]
        views = [x.transpose(1, 2) for x in tokens_first]  # it would copy others
        peers["Liger's kernel, in place"] = lambda: liger(*views, *wide)
    return group._replace(peers=peers)


def cupy_groups(*, quick: bool) -> Groups:
    """Yield the groups of CuPy, against the textbook formula and a copy on the device."""
    import cupy as cp

    sizes = Case(batch=2, seq=32_768, schedules=("new array", "out=, fused"))
    cases = {f"float32, {pairing}": sizes._replace(pairing=pairing) for pairing in ("half", "interleaved")}
    yield from CuPy(cp).groups(cases, quick=quick)


def jax_groups(*, quick: bool) -> Groups:
    """Yield the groups of JAX, jitted, against the textbook formula and equinox, jitted."""
    for pairing in ("half", "interleaved"):
        case = Case(pairing=pairing)
        yield f"float32, {pairing}", partial(jitted, case.small() if quick else case)
    if importlib.util.find_spec("equinox"):
        yield "float32, half", partial(jitted_with_table, Case().small() if quick else Case())


def jitted(case: Case) -> Group:
    """Rotate queries and keys under jax.jit by a ready table."""
    import jax
    import jax.numpy as jnp

    rope, qk = jax_arrays(case)
    table = rope.table(jnp.arange(FAR, FAR + case.seq))
    wide = [widen(jnp, part, case.pairing) for part in table]
    mine, theirs = jax.jit(rope), jax.jit(textbook(jnp, case.pairing))
    copy = jax.jit(lambda q, k: (q + 1, k + 1))  # XLA would remove a plain copy
    peers = {f"{TEXTBOOK}, jitted": lambda: theirs(*qk, *wide)}
    return Group({"jitted": lambda: mine(*qk, table)}, peers, lambda: copy(*qk))


def jitted_with_table(case: Case) -> Group:
    """Rotate queries and keys under jax.jit by a table made in the call, as equinox does."""
    import equinox
    import jax

    rope, qk = jax_arrays(case)
    mine, module = jax.jit(rope), equinox.nn.RotaryPositionalEmbedding(case.head_dim, theta=BASE)
    heads = jax.jit(jax.vmap(jax.vmap(module)))
    return Group({"jitted with its table": lambda: mine(*qk)}, {"equinox, jitted": lambda: [heads(x) for x in qk]})


def jax_arrays(case: Case) -> tuple[Any, tuple[Any, ...]]:
    """Return the Rope of a case, and its queries and keys in JAX."""
    import jax.numpy as jnp
    import numpy as np

    import rope_any as ra

    qk = tuple(jnp.asarray(NumPy(np).random(shape, case.dtype)) for shape in case.shapes)
    return ra.Rope(ra.frequencies(case.head_dim, base=BASE), pairing=case.pairing), qk


LIBRARIES = {
    "NumPy": numpy_groups,
    "PyTorch": torch_groups,
    "JAX": jax_groups,
    "PyTorch, CUDA": cuda_groups,
    "CuPy": cupy_groups,
    "NumPy, as tokens grow": growth_groups,
}
