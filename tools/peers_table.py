"""
Compare the context extension of other libraries with ours: `peers_table.md`.

In the environment that `comparison.md` describes::

    python tools/peers_table.py                             # prints the tables
    python tools/peers_table.py --write                     # and writes peers_table.md

It takes half a minute. Every number is returned by the library's own code, and the text of each row is checked too: if
a library behaves differently now, the script stops, and the row must be changed. A missing library is named, and its
rows are printed as they are in the file, with a mark; then nothing is written unless ``--partial`` is given.
"""

import ctypes
import importlib
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import distributions, version
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import making
import numpy as np

import rope_any as ra
from rope_any import scaling

PEERS = {
    "diffusers": "0.42.1",
    "equinox": "0.13.8",
    "keras-hub": "0.32.0",
    "libggml-python": "0.20.2.post1",
    "litgpt": "0.5.13",
    "mlx-lm": "0.32.2",
    "rotary-embedding-torch": "0.9.1",
    "sglang": "0.5.23",
    "torchscale": "0.3.0",
    "torchtune": "0.6.1",
    "transformer-engine": "2.20.2",
    "transformers": "5.24.0",
    "vllm": "0.33.0",
    "x-transformers": "2.31.10",
}
NAMES = {
    "libggml-python": "ggml",
    "litgpt": "LitGPT",
    "sglang": "SGLang",
    "transformer-engine": "TransformerEngine",
    "vllm": "vLLM",
}

DIM, BASE, FACTOR, TRAINED = 128, 10_000.0, 4.0, 4096
LONGER = int(FACTOR * TRAINED)
PLAIN = ra.frequencies(DIM, base=BASE)
SHORT, LONG = [1.0 + i / 64 for i in range(64)], [1.0 + i / 8 for i in range(64)]
CLOSE = 1e-5  # the relative difference up to which frequencies count as equal: they may be float32

Json = dict[str, Any]


class Reading(NamedTuple):
    """The frequencies and the attention factor of an engine for a config."""

    frequencies: Any
    attention_factor: float = 1.0


class ChangedError(Exception):
    """A library no longer behaves as its row describes."""


# --- calls of each engine ---------------------------------------------------------------------------------


class Stub:
    """A stub for an object that an engine imports and its frequencies don't need; it is false."""

    def __call__(self, *given: Any, **_: Any) -> Any:
        """Return a single class or function unchanged, as a decorator does; otherwise the stub itself."""
        return given[0] if len(given) == 1 and isinstance(given[0], type | FunctionType) else self

    def __getattr__(self, name: str) -> "Stub":
        """Return the stub itself, except for special names."""
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _: Any) -> "Stub":
        """Return the stub itself."""
        return self

    def __bool__(self) -> bool:
        """Return False."""
        return False

    def __mro_entries__(self, _: Any) -> tuple[type]:
        """Replace a base class by a torch module without kernels."""
        import torch

        class StubModule(torch.nn.Module):
            """The module in place of the base class."""

            enabled = staticmethod(lambda: False)

            def __init__(self, **_: Any) -> None:
                """Accept any options."""
                super().__init__()

        return (StubModule,)


class PartFinder(MetaPathFinder, Loader):
    """An import finder: it finds the real modules of some parts of a package, and makes stubs for the rest."""

    def __init__(self, *parts: str) -> None:
        """Take the names of the parts, which are all in one package."""
        self.parts, self.package = parts, parts[0].partition(".")[0]
        found = find_spec(self.package)
        self.root = Path(next(iter(found.submodule_search_locations))) if found else Path()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return the spec of a real module or of a stub; None for other packages."""
        if not f"{name}.".startswith((f"{self.package}.", f"{self.package}_torch.")):
            return None
        if any(f"{name}.".startswith(f"{part}.") for part in self.parts):
            return PathFinder.find_spec(name, path)
        spec = ModuleSpec(name, self, is_package=True)
        spec.submodule_search_locations = [str(self.root.joinpath(*name.split(".")[1:]))]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Make all attributes of a stub module stubs."""
        module.__getattr__ = Stub().__getattr__  # type: ignore[method-assign]


@cache
def import_part(*parts: str) -> ModuleType:
    """Return a module of a package, imported with stubs for the rest, which needs a GPU or compiled extensions."""
    sys.meta_path.insert(0, PartFinder(*parts))
    return importlib.import_module(parts[0])


def from_table(cos: Any, sin: Any) -> Reading:
    """Return the frequencies and the attention factor from cosines and sines of position 1."""
    c, s = (np.asarray(x, dtype=np.float64).reshape(-1)[: DIM // 2] for x in (cos, sin))
    return Reading(np.arctan2(s, c), float(np.hypot(c, s)[0]))


def from_rotated_unit(rotated: Any) -> Reading:
    """Return the frequencies and the attention factor from `unit`, rotated at position 1 in half pairs."""
    return from_table(*np.split(np.asarray(rotated), 2))


def unit() -> np.ndarray[Any, Any]:
    """Return a vector whose rotation in half pairs has cosines in the first half and sines in the second."""
    return np.repeat(np.float32([1, 0]), DIM // 2)


def llama_config(rope: Json, **config: Any) -> Any:
    """Return transformers' config of a Llama with some rope parameters."""
    from transformers import LlamaConfig

    shape = {"hidden_size": DIM, "num_attention_heads": 1, "max_position_embeddings": TRAINED} | config
    return LlamaConfig(**shape, rope_parameters={"rope_theta": BASE} | rope)


def by_transformers(rope: Json, length: int | None = None, **config: Any) -> Reading:
    """Return the reading of transformers."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    found, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](llama_config(rope, **config), seq_len=length)
    return Reading(found.numpy(), factor)


def vllm_rope(rope: Json, positions: int = TRAINED, served: int = LONGER) -> Any:
    """Return vLLM's rotary module for rope parameters, set up to serve a length."""
    ropes = import_part("vllm.model_executor.layers.rotary_embedding")
    served_config = SimpleNamespace(model_config=SimpleNamespace(max_model_len=served))
    ropes._ROPE_DICT.clear()  # noqa: SLF001  # its cache does not distinguish served lengths
    with patch.object(ropes.phi3_long_rope_scaled_rope, "get_current_vllm_config", lambda: served_config):
        return ropes.get_rope(DIM, positions, rope_parameters={"rope_theta": BASE} | rope)


def sglang() -> ModuleType:
    """Return SGLang's package of rotary modules."""
    ropes = import_part("sglang.srt.layers.rotary_embedding", "sglang.srt.models.grok")
    ropes.base.publish_role = lambda: None  # there is no server
    return ropes


def sglang_rope(rope: Json, positions: int = TRAINED) -> Any:
    """Return SGLang's rotary module for rope parameters."""
    partial = rope.get("partial_rotary_factor", 1.0)
    return sglang().get_rope(DIM, DIM, positions, int(BASE), rope_scaling=rope, partial_rotary_factor=partial)


def from_cache(rope: Any) -> Reading:
    """Return the reading from the table of a rotary module of vLLM or SGLang."""
    return from_table(*rope.cos_sin_cache[1].chunk(2))


def from_call(rope: Any, *positions: int, first: int = 1) -> Reading:
    """Return the reading from a call of a rotary module of vLLM or SGLang; `first` is the position that is read."""
    import torch

    q = torch.from_numpy(unit()).repeat(1 + len(positions), 1)
    return from_rotated_unit(rope(torch.tensor([first, *positions]), q, q.clone())[0][0])


def by_vllm(rope: Json, **options: int) -> Reading:
    """Return the reading of vLLM."""
    return from_cache(vllm_rope(rope, **options))


def by_sglang(rope: Json, **options: int) -> Reading:
    """Return the reading of SGLang."""
    return from_cache(sglang_rope(rope, **options))


def by_mlx(rope: Json, length: int = 2, positions: int = TRAINED) -> Reading:
    """Return the reading of mlx-lm for a number of tokens in one call."""
    import mlx.core as mx
    from mlx_lm.models.rope_utils import initialize_rope

    rotation = initialize_rope(DIM, BASE, traditional=False, scaling_config=rope, max_position_embeddings=positions)
    x = mx.broadcast_to(mx.array(unit()), (1, 1, length, DIM))
    return from_rotated_unit(rotation(x)[0, 0, 1])


def by_keras(**options: Any) -> Reading:
    """Return the reading of keras-hub."""
    from keras_hub.layers import RotaryEmbedding

    out = RotaryEmbedding(max_wavelength=BASE, scaling_factor=FACTOR, **options)(np.tile(unit(), (1, 2, 1)))
    return from_rotated_unit(out.detach()[0, 1])


def by_litgpt(**options: Any) -> Reading:
    """Return the reading of LitGPT."""
    from litgpt.model import build_rope_cache

    extra = {"factor": FACTOR} | options
    return from_table(*(x[1] for x in build_rope_cache(2, DIM, base=int(BASE), extra_config=extra)))


def by_torchtune(**options: Any) -> Reading:
    """Return the reading of torchtune."""
    ropes = import_part("torchtune.models.llama3_1._position_embeddings")
    given = {"max_seq_len": 2, "base": int(BASE), "scale_factor": FACTOR, "old_context_len": TRAINED} | options
    return from_table(*ropes.Llama3ScaledRoPE(DIM, **given).cache[1].T)


def by_transformer_engine(length: int) -> Reading:
    """Return the reading of TransformerEngine."""
    import torch

    ropes = import_part("transformer_engine.pytorch.attention.rope")
    options = {"seq_len_interpolation_factor": FACTOR, "pretrained_max_position_embeddings": TRAINED}
    with patch.object(torch.cuda, "current_device", lambda: "cpu"):
        angles = ropes.RotaryPositionEmbedding(DIM, rotary_base=BASE, **options)(length)
    return Reading(angles[1].flatten()[: DIM // 2].numpy())


def by_diffusers(**options: float) -> Reading:
    """Return the reading of diffusers."""
    from diffusers.models.embeddings import get_1d_rotary_pos_embed

    out = get_1d_rotary_pos_embed(DIM, np.arange(2), theta=BASE, **options)[1]
    return from_table(out.real, out.imag)


def by_rotary_embedding_torch(*, interpolate: float = 1.0, rescale: float = 1.0) -> Reading:
    """Return the reading of rotary-embedding-torch."""
    from rotary_embedding_torch import RotaryEmbedding

    rope = RotaryEmbedding(DIM, theta=BASE, interpolate_factor=interpolate, theta_rescale_factor=rescale)
    return Reading(rope(rope.get_seq_pos(2))[1, ::2].detach().numpy())


def by_x_transformers(*, interpolate: float = 1.0, rescale: float = 1.0) -> Reading:
    """Return the reading of x-transformers."""
    from x_transformers.x_transformers import RotaryEmbedding

    rope = RotaryEmbedding(DIM, base=BASE, interpolation_factor=interpolate, base_rescale_factor=rescale)
    return Reading(rope.forward_from_seq_len(2)[0][0, 1, ::2].detach().numpy())


LUCIDRAINS = {"rotary-embedding-torch": by_rotary_embedding_torch, "x-transformers": by_x_transformers}


def by_lucidrains(**options: float) -> dict[str, Reading]:
    """Return the readings of both libraries of one author."""
    return {package: by(**options) for package, by in LUCIDRAINS.items()}


def by_ggml(attn_factor: float = 1.0) -> Reading:
    """Return the reading of ggml, called through C."""
    c, i, f, p = ctypes, ctypes.c_int, ctypes.c_float, ctypes.c_void_p
    folder = Path(str(find_spec("libggml").origin)).parent / "lib64"  # type: ignore[union-attr]
    base, cpu = (c.CDLL(str(folder / f"libggml-{name}.so"), c.RTLD_GLOBAL) for name in ("base", "cpu"))

    class Memory(c.Structure):
        """The C structure of ggml's memory."""

        _fields_ = (("size", c.c_size_t), ("buffer", p), ("no_alloc", c.c_bool))

    def call(library: Any, name: str, *given: Any) -> Any:
        """Call a function of ggml that returns a pointer."""
        function = library[f"ggml_{name}"]
        function.restype = p
        return function(*given)

    memory = p(call(base, "init", Memory(2**24, None, False)))  # noqa: FBT003  # a structure of C
    x = p(call(base, "new_tensor_4d", memory, i(0), *map(c.c_int64, (DIM, 1, 1, 1))))
    at = p(call(base, "new_tensor_1d", memory, i(26), c.c_int64(1)))
    c.memmove(call(base, "get_data", x), unit().ctypes.data, 4 * DIM)
    c.memmove(call(base, "get_data", at), np.int32([1]).ctypes.data, 4)
    numbers = map(f, (BASE, 1 / FACTOR, 1.0, attn_factor, 32.0, 1.0))
    y = p(call(base, "rope_ext", memory, x, at, p(None), i(DIM), i(2), i(TRAINED), *numbers))
    graph = p(call(base, "new_graph", memory))
    call(base, "build_forward_expand", graph, y)
    call(cpu, "graph_compute_with_ctx", memory, graph, i(1))
    out = np.ctypeslib.as_array(c.cast(call(base, "get_data", y), c.POINTER(f)), (DIM,)).copy()
    call(base, "free", memory)
    return from_rotated_unit(out)


# --- ours, and how a reading differs from it --------------------------------------------------------------


OTHER_BASE = 500_000.0
OTHER_READING = Reading(ra.frequencies(DIM, base=OTHER_BASE))
LISTS = {"short_factor": SHORT, "long_factor": LONG}
EQUAL_FACTORS = {"low_freq_factor": 2.0, "high_freq_factor": 2.0}
LLAMA3_FACTORS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}

LINEAR_CONFIG = {"rope_type": "linear", "factor": FACTOR}
DYNAMIC_CONFIG = {"rope_type": "dynamic", "factor": FACTOR}
YARN_CONFIG = {"rope_type": "yarn", "factor": FACTOR, "original_max_position_embeddings": TRAINED}
LONGROPE_CONFIG = {"rope_type": "longrope", "original_max_position_embeddings": TRAINED} | LISTS
LLAMA3_CONFIG = YARN_CONFIG | {"rope_type": "llama3"} | LLAMA3_FACTORS
PROPORTIONAL_CONFIG = {"rope_type": "proportional", "partial_rotary_factor": 0.5}

LINEAR = Reading(scaling.linear(PLAIN, FACTOR))
NTK = Reading(scaling.ntk(PLAIN, FACTOR))
YARN, UNTRUNCATED = (
    Reading(
        scaling.yarn(PLAIN, FACTOR, base=BASE, original_length=TRAINED, truncate=truncate),
        scaling.yarn_attention_factor(FACTOR),
    )
    for truncate in (True, False)
)
LLAMA3 = Reading(scaling.llama3(PLAIN, FACTOR, original_length=TRAINED, **LLAMA3_FACTORS))
PROPORTIONAL = Reading(scaling.proportional(PLAIN, 0.5))


def our_dynamic_ntk(length: int) -> Reading:
    """Return our reading of dynamic NTK for a length."""
    return Reading(scaling.dynamic_ntk(PLAIN, FACTOR, length=length, trained_length=TRAINED))


def our_longrope(length: int) -> Reading:
    """Return our reading of LongRoPE for a length."""
    factor = scaling.longrope_attention_factor(FACTOR, original_length=TRAINED)
    return Reading(scaling.longrope(PLAIN, **LISTS, original_length=TRAINED, length=length), factor)


def ratios(theirs: Reading, ours: Reading) -> tuple[float, float]:
    """Return the smallest and the largest ratio of frequencies, theirs to ours, over pairs that rotate in either."""
    a, b = np.asarray(theirs.frequencies, dtype=np.float64), np.asarray(ours.frequencies)
    rotating = (a != 0) | (b != 0)
    found = a[rotating] / b[rotating]
    return float(found.min()), float(found.max())


def agrees(theirs: Reading, ours: Reading) -> bool:
    """Whether two readings agree within float32."""
    least, most = ratios(theirs, ours)
    return max(abs(least - 1), abs(most - 1), abs(theirs.attention_factor / ours.attention_factor - 1)) < CLOSE


def difference_of(ours: Reading, *theirs: Reading) -> str:
    """Return the differences of readings from ours as text with numbers; raise unless all differ in the same way."""
    said = set()
    for reading in theirs:
        least, most = ratios(reading, ours)
        parts = []
        if max(abs(least - 1), abs(most - 1)) >= CLOSE:
            parts.append(f"frequencies × {least:.3g}" + f" to {most:.3g}" * (f"{least:.3g}" != f"{most:.3g}"))
        if abs(reading.attention_factor / ours.attention_factor - 1) >= CLOSE:
            parts.append(f"attention factor {reading.attention_factor:.4g}, not {ours.attention_factor:.4g}")
        said.add("; ".join(parts))
    require("" not in said, len(said) == 1)
    return said.pop()


def require(*truths: bool) -> None:
    """Raise ChangedError unless all statements of a row are still true."""
    if not all(truths):
        raise ChangedError


class Parameters(dict[str, Any]):
    """Rope parameters that are the same for every layer type."""

    def __missing__(self, _: str) -> "Parameters":
        """Return the parameters themselves for any layer type."""
        return self


@cache
def modeling_modules() -> list[ModuleType]:
    """Return the modeling modules of transformers that compute frequencies or rotate."""
    import transformers.models

    found = []
    for path in sorted(Path(transformers.models.__path__[0]).glob("*/modeling_*.py")):
        text = path.read_text(encoding="utf-8")
        if "def compute_default_rope_parameters" in text or "def apply_rotary_pos_emb" in text:
            found.append(importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}"))
    return found


# --- the rows ---------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of the table of differences."""

    scheme: str
    engines: tuple[str, ...]
    """Names of distributions; names with versions, if the row was read in a source."""
    does: str
    size: Callable[[], str] | str
    """A function that runs the engines and returns the difference as text; or the text, if it was read in a source."""
    source: str = ""


ROWS: list[Row] = []


def register_read_row(scheme: str, engine: str, does: str, size: str, source: str) -> None:
    """Add a row that was read in the source of an engine, and not run."""
    ROWS.append(Row(scheme, (engine,), does, size, source))


def register_run_row(scheme: str, *engines: str, does: str) -> Callable[[Callable[[], str]], None]:
    """Return a decorator that adds a row, for a function that runs engines and returns the size of the difference."""
    return lambda size: ROWS.append(Row(scheme, engines, does, size))


@register_run_row(
    "linear",
    "transformer-engine",
    does="Divides positions by the factor up to the extended length. For a longer sequence the divisor is its length, "
    "divided by the trained one.",
)
def _() -> str:
    """Return the difference of TransformerEngine beyond the extended length."""
    length = LONGER * 5 // 4
    return f"{difference_of(LINEAR, by_transformer_engine(length))} at length {length}"


@register_run_row(
    "NTK",
    "vllm",
    does="`ntk` multiplies the base by the factor, without an exponent, and divides all frequencies by factor^(2/d): "
    "the slowest pair is the same, the others are slower.",
)
def _() -> str:
    """Return the difference of vLLM's NTK."""
    return difference_of(NTK, by_vllm({"rope_type": "ntk", "factor": FACTOR}))


@register_run_row("NTK", "diffusers", does="`ntk_factor` multiplies the base by the factor, without an exponent.")
def _() -> str:
    """Return the difference of diffusers' NTK."""
    return difference_of(NTK, by_diffusers(ntk_factor=FACTOR))


@register_run_row(
    "dynamic NTK",
    "vllm",
    does="Makes one table for all lengths, of `max_position_embeddings` rows; it is scaled only where the config says "
    "`max_trained_positions` too.",
)
def _() -> str:
    """Return the difference of vLLM's dynamic NTK."""
    rope = vllm_rope(DYNAMIC_CONFIG)
    asked = by_vllm(DYNAMIC_CONFIG | {"max_trained_positions": TRAINED}, positions=LONGER)
    require(
        len(rope.cos_sin_cache) == TRAINED,
        agrees(from_cache(rope), Reading(PLAIN)),
        agrees(asked, our_dynamic_ntk(LONGER)),
    )
    return f"{difference_of(our_dynamic_ntk(LONGER), from_cache(rope))} at length {LONGER}"


@register_run_row("dynamic NTK", "sglang", does="Makes one table for all lengths: that of trained length × factor.")
def _() -> str:
    """Return the difference of SGLang's dynamic NTK."""
    found = by_sglang(DYNAMIC_CONFIG)
    require(agrees(found, our_dynamic_ntk(LONGER)))
    return f"{difference_of(our_dynamic_ntk(TRAINED), found)} up to length {TRAINED}"


@register_run_row("dynamic NTK", "keras-hub", does="Divides every frequency by factor^(d/(d − 2)), at every length.")
def _() -> str:
    """Return the differences of keras-hub's dynamic NTK at two lengths."""
    found = by_keras(rope_type="dynamic")
    require(agrees(found, Reading(scaling.linear(PLAIN, FACTOR ** (DIM / (DIM - 2))))))
    short, long = (
        f"{difference_of(our_dynamic_ntk(length), found)} at length {length}" for length in (TRAINED, LONGER)
    )
    return f"{short}; {long}"


@register_run_row(
    "dynamic NTK",
    "transformers",
    does="Keeps the table of a long sequence for shorter ones, until one is shorter than the trained length.",
)
def _() -> str:
    """Return the difference of transformers' dynamic NTK after a longer sequence."""
    import torch
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = LlamaRotaryEmbedding(llama_config(DYNAMIC_CONFIG))

    def at(length: int) -> Reading:
        """Return the reading after a call of some length."""
        cos, sin = rope(torch.zeros(1), torch.arange(length)[None])
        return from_table(cos[0, 1], sin[0, 1])

    middle = TRAINED * 3 // 2
    require(agrees(at(middle), our_dynamic_ntk(middle)), agrees(at(LONGER), our_dynamic_ntk(LONGER)))
    found = difference_of(our_dynamic_ntk(middle), at(middle))
    require(agrees(at(TRAINED - 1), our_dynamic_ntk(TRAINED)), agrees(at(middle), our_dynamic_ntk(middle)))
    return f"{found} at length {middle} after {LONGER}"


@register_run_row(
    "YaRN",
    "litgpt",
    does="Has the ramp the other way round: fast pairs are interpolated, slow ones kept. The attention factor is 1 "
    "unless the config says `mscale` or `mscale_all_dim`.",
)
def _() -> str:
    """Return the difference of LitGPT's YaRN."""
    return difference_of(YARN, by_litgpt(beta_fast=32, beta_slow=1, original_max_seq_len=TRAINED))


@register_run_row(
    "YaRN",
    "transformers",
    does="In parameters by layer type doesn't see `truncate: false`; it looks one level above.",
)
def _() -> str:
    """Return the difference of transformers' YaRN with parameters by layer type."""
    from transformers import Gemma3TextConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    full = YARN_CONFIG | {"rope_theta": BASE, "truncate": False}
    nested = {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": BASE}}
    config = Gemma3TextConfig(head_dim=DIM, max_position_embeddings=TRAINED, rope_parameters=nested)
    found, factor = ROPE_INIT_FUNCTIONS["yarn"](config, layer_type="full_attention")
    require(agrees(by_transformers(full), UNTRUNCATED))
    return difference_of(UNTRUNCATED, Reading(found.numpy(), factor))


@register_run_row("YaRN", "mlx-lm", does="Doesn't read `truncate`.")
def _() -> str:
    """Return the difference of mlx-lm's YaRN with `truncate: false`."""
    return difference_of(UNTRUNCATED, by_mlx(YARN_CONFIG | {"truncate": False}))


@register_run_row("YaRN", "mlx-lm", "sglang", does="Don't read `attention_factor`.")
def _() -> str:
    """Return the difference of mlx-lm's and SGLang's YaRN with `attention_factor`."""
    rope, ours = YARN_CONFIG | {"attention_factor": 1.0}, YARN._replace(attention_factor=1.0)
    require(agrees(by_transformers(rope), ours), agrees(by_vllm(rope), ours))
    return f"{difference_of(ours, by_mlx(rope), by_sglang(rope))}, with `attention_factor: 1`"


@register_run_row(
    "YaRN",
    "mlx-lm",
    does="Takes `mscale` as 1 and `mscale_all_dim` as 0 where they are absent; we, transformers and vLLM use neither "
    "without the other.",
)
def _() -> str:
    """Return the difference of mlx-lm's YaRN with `mscale_all_dim` alone."""
    rope = YARN_CONFIG | {"mscale_all_dim": 1.0}
    require(agrees(by_transformers(rope), YARN), agrees(by_vllm(rope), YARN))
    return f"{difference_of(YARN, by_mlx(rope))}, with `mscale_all_dim: 1` alone"


@register_run_row(
    "YaRN",
    "sglang",
    does="For Grok: `yarn_log` blends the logarithms of frequencies, and neither it nor `yarn` applies an attention "
    "factor.",
)
def _() -> str:
    """Return the difference of Grok's YaRN in SGLang."""
    sglang()
    from sglang.srt.models.grok import ScalingRotaryEmbedding, get_rope_scaling
    from torch import float32

    def by(kind: str) -> Reading:
        """Return the reading of Grok's class for a rope type."""
        config = SimpleNamespace(rope_type=kind, original_max_position_embeddings=TRAINED, scaling_factor=FACTOR)
        given = get_rope_scaling(config) | {"dtype": float32}
        return from_cache(ScalingRotaryEmbedding(DIM, rotary_dim=DIM, base=int(BASE), is_neox_style=True, **given))

    require(agrees(by("yarn"), YARN._replace(attention_factor=1.0)))
    return difference_of(YARN, by("yarn_log"))


@register_run_row(
    "YaRN",
    "libggml-python",
    does="Where `ext_factor` isn't 0 it multiplies `attn_factor` by 0.1 ln(factor) + 1 itself: a caller who passes the "
    "attention factor gets it squared. llama.cpp divides it out before (read in `src/llama-context.cpp`).",
)
def _() -> str:
    """Return the difference of ggml's YaRN if the attention factor is passed."""
    require(agrees(by_ggml(), YARN))
    return f"{difference_of(YARN, by_ggml(YARN.attention_factor))}, with the attention factor passed"


register_read_row(
    "YaRN",
    "MaxText 0.2.5",
    "Has no attention factor unless `rope_attention_scaling` is set.",
    f"attention factor 1, not {YARN.attention_factor:.4g}",
    "`maxtext/layers/embeddings.py`",
)


@register_run_row("LongRoPE", "mlx-lm", does="Always takes the long list.")
def _() -> str:
    """Return the difference of mlx-lm's LongRoPE for short sequences."""
    found = by_mlx(LONGROPE_CONFIG, positions=LONGER)
    require(agrees(found, our_longrope(LONGER)))
    return f"{difference_of(our_longrope(TRAINED), found)} up to length {TRAINED}"


@register_run_row(
    "LongRoPE",
    "sglang",
    does="Takes the long list once a position is above the trained length; we do once the length is, one token "
    "earlier. At length 4097 it takes the short list, and doesn't rotate the last token.",
)
def _() -> str:
    """Return the difference of SGLang's LongRoPE one token after the trained length."""
    rope, last = sglang_rope(LONGROPE_CONFIG, LONGER), TRAINED  # the last position at length TRAINED + 1
    rotated = from_call(rope, last, first=last).frequencies
    require(agrees(from_call(rope, last + 1), our_longrope(LONGER)), not rotated.any())
    require(
        agrees(by_transformers(LONGROPE_CONFIG, TRAINED + 1, max_position_embeddings=LONGER), our_longrope(TRAINED + 1))
    )
    return f"{difference_of(our_longrope(TRAINED + 1), from_call(rope, last))} at length {TRAINED + 1}"


@register_run_row("LongRoPE", "vllm", does="Chooses the list once, by the longest sequence that it is set up to serve.")
def _() -> str:
    """Return the difference of vLLM's LongRoPE for short sequences."""
    require(agrees(from_call(vllm_rope(LONGROPE_CONFIG, LONGER, served=TRAINED)), our_longrope(TRAINED)))
    found = from_call(vllm_rope(LONGROPE_CONFIG, LONGER))
    return f"{difference_of(our_longrope(TRAINED), found)} up to length {TRAINED}, serving {LONGER}"


@register_run_row("LongRoPE", "transformers", does="The model `phimoe` takes the short list at every length.")
def _() -> str:
    """Return the difference of transformers' phimoe for long sequences."""
    import torch
    from transformers.models.phimoe.modeling_phimoe import PhimoeConfig, PhimoeRotaryEmbedding

    scales = dict.fromkeys(("short_mscale", "long_mscale"), our_longrope(LONGER).attention_factor)
    rope = LONGROPE_CONFIG | {"rope_theta": BASE, "factor": FACTOR} | scales
    shape = {"hidden_size": DIM, "num_attention_heads": 1, "max_position_embeddings": LONGER}
    rotation = PhimoeRotaryEmbedding(PhimoeConfig(**shape, rope_parameters=rope))
    cos, sin = rotation(torch.zeros(1), torch.arange(LONGER)[None])
    require(agrees(from_table(cos[0, 1], sin[0, 1]), our_longrope(TRAINED)))
    return f"{difference_of(our_longrope(LONGER), from_table(cos[0, 1], sin[0, 1]))} at length {LONGER}"


@register_run_row(
    "LongRoPE",
    "mlx-lm",
    "sglang",
    "vllm",
    does="Don't read `attention_factor`; they compute it from `max_position_embeddings` and the trained length.",
)
def _() -> str:
    """Return the difference of three engines' LongRoPE with `attention_factor`."""
    rope, ours = LONGROPE_CONFIG | {"attention_factor": 1.0}, our_longrope(LONGER)._replace(attention_factor=1.0)
    require(agrees(by_transformers(rope, LONGER), ours))
    calls = from_call(sglang_rope(rope, LONGER), LONGER - 1), from_call(vllm_rope(rope, LONGER))
    return f"{difference_of(ours, by_mlx(rope, positions=LONGER), *calls)}, with `attention_factor: 1`"


register_read_row(
    "LongRoPE",
    "llama.cpp",
    "Chooses the list once, by the context that a sequence is given.",
    "as for vLLM",
    "`src/llama-model.cpp`, `get_rope_factors`; issue 8995",
)
register_read_row(
    "llama3",
    "MaxText 0.2.5",
    "Has the numbers 8, 1, 4 and 8192 as constants.",
    "none with these numbers",
    "`maxtext/layers/embeddings.py`",
)


@register_run_row("proportional", "sglang", "vllm", does="Don't read `factor`; transformers and mlx-lm divide by it.")
def _() -> str:
    """Return the difference of SGLang's and vLLM's proportional type with `factor`."""
    rope = PROPORTIONAL_CONFIG | {"factor": FACTOR}
    ours = Reading(scaling.linear(PROPORTIONAL.frequencies, FACTOR))
    require(agrees(by_transformers(rope), ours), agrees(by_mlx(rope), ours))
    return difference_of(ours, by_sglang(rope), by_vllm(rope))


@register_run_row(
    "proportional",
    "transformers",
    does="`partial_rotary_factor` means two things. Under `proportional` the exponents run over the whole head, and "
    "the features of a pair are d/2 apart. Under `default` (here of `glm`) exponents and pairs are those of a head "
    "that has only the features that rotate.",
)
def _() -> str:
    """Return the difference between both meanings in transformers."""
    from transformers.models.glm.modeling_glm import GlmConfig, GlmRotaryEmbedding

    rope = {"rope_type": "default", "rope_theta": BASE, "partial_rotary_factor": 0.5}
    found = GlmRotaryEmbedding.compute_default_rope_parameters(GlmConfig(head_dim=DIM, rope_parameters=rope))[0].numpy()
    require(agrees(by_transformers(PROPORTIONAL_CONFIG), PROPORTIONAL))
    require(agrees(Reading(found), Reading(ra.frequencies(DIM // 2, base=BASE))))
    return (
        f"{difference_of(Reading(PROPORTIONAL.frequencies[: DIM // 4]), Reading(found))}, default against proportional"
    )


@register_run_row(
    "xPos",
    "rotary-embedding-torch",
    "torchscale",
    "x-transformers",
    does="Centre the exponents on half of the current length: a query and keys that were cached at another length have "
    "two centres. One centre, whichever it is, would cancel.",
)
def _() -> str:
    """Return how much scores change if query and keys have different lengths."""
    import torch
    from rotary_embedding_torch import RotaryEmbedding
    from torchscale.component.xpos_relative_position import XPOS
    from x_transformers.x_transformers import RotaryEmbedding as Other

    first, second, third = RotaryEmbedding(DIM, use_xpos=True), XPOS(DIM), Other(DIM, use_xpos=True)

    def scales(length: int) -> list[torch.Tensor]:  # of position 0
        """Return the scales of position 0 of the three libraries."""
        ours = second(torch.ones(1, length, DIM))[0, 0]
        return [first.get_scale(torch.arange(length))[0], ours, third.forward_from_seq_len(length)[1][0, 0]]

    short, long = 1024, 2048
    said = {f"{(b / a).min():.3g} to {(b / a).max():.3g}" for a, b in zip(scales(short), scales(long), strict=True)}
    require(len(said) == 1, said != {"1 to 1"})
    return f"scores × {said.pop()}, keys of length {short} and a query at {long}"


register_read_row(
    "xPos",
    "flash-attention 09d422b",
    "Centres the exponents on half of the longest length so far.",
    "as for the three above",
    "`flash_attn/layers/rotary.py`",
)


@register_run_row(
    "FoPE",
    "sglang",
    "vllm",
    does="Give pairs without a frequency a cosine and a sine of 1, as the authors do. This rotates these pairs by 45° "
    "and stretches them, equally at every position. With `sine_padding=0.0` ours leaves these pairs unchanged.",
)
def _() -> str:
    """Return how much scores of pairs without a frequency grow."""
    import torch

    sglang()
    from sglang.srt.layers.rotary_embedding.rope_variant import FourierRotaryEmbedding

    kept = DIM // 4
    given = {"num_inv_freq": kept, "fope_sep_head": True, "fope_init_factor": 0.1}
    first = vllm_rope({"rope_type": "default", "use_fope": True, "num_key_value_heads": 1} | given, 8)
    second = FourierRotaryEmbedding(DIM, DIM, 8, BASE, True, torch.float32, 1, device="cpu", **given)  # noqa: FBT003
    for rope in first, second:
        rope.cos_coef.data[:] = rope.sin_coef.data[:] = torch.eye(kept)
        tables = rope._compute_cos_sin_cache().chunk(2, dim=-1)  # noqa: SLF001
        require(*(bool((table[:, 0, kept : DIM // 2] == 1).all()) for table in tables))
    return "scores of these pairs × 2"


@register_run_row(
    "`partial_rotary_factor`",
    "transformers",
    does="Under `rope_type: default` each model has code of its own; most of it doesn't read the key.",
)
def _() -> str:
    """Return how many classes read the key."""

    def rotating(kind: Any, partial: float) -> int:
        """Return the number of pairs that rotate; 0 if the class doesn't accept this config."""
        rope = Parameters(rope_type="default", rope_theta=BASE, partial_rotary_factor=partial)
        config = SimpleNamespace(head_dim=DIM, hidden_size=4 * DIM, num_attention_heads=4, rope_parameters=rope)
        config.max_position_embeddings = TRAINED
        try:
            return int((kind.compute_default_rope_parameters(config)[0] != 0).sum())
        except (AttributeError, RuntimeError):
            return 0  # it needs a config of another class

    own = [
        kind for m in modeling_modules() for kind in vars(m).values() if getattr(kind, "__module__", "") == m.__name__
    ]
    kinds = [kind for kind in own if "compute_default_rope_parameters" in vars(kind)]
    counts = Counter(rotating(kind, 0.5) / (rotating(kind, 1.0) or math.inf) for kind in kinds)
    require(set(counts) == {0.0, 0.5, 1.0})
    return f"of {len(kinds)} classes {counts[0.5]} read it, {counts[1.0]} don't, {counts[0.0]} could not be run"


@register_run_row("`rope_theta`", "transformers", does="The model `dbrx` doesn't read it inside `attn_config`.")
def _() -> str:
    """Return the difference of transformers' dbrx."""
    from transformers import DbrxConfig
    from transformers.models.dbrx.modeling_dbrx import DbrxRotaryEmbedding

    config = DbrxConfig(d_model=DIM, n_heads=1, attn_config={"rope_theta": OTHER_BASE})
    return (
        f"{difference_of(OTHER_READING, Reading(DbrxRotaryEmbedding(config).inv_freq.numpy()))}, with {OTHER_BASE:.0f}"
    )


@register_run_row(
    "`head_dim`",
    "transformers",
    does="With null, the default in `mixtral`, the types `dynamic`, `yarn` and `longrope` raise; `linear` and `llama3` "
    "take `hidden_size / num_attention_heads`.",
)
def _() -> str:
    """Return the result of the types that raise."""
    from huggingface_hub.errors import StrictDataclassClassValidationError
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralRotaryEmbedding

    raised = []
    for rope in LINEAR_CONFIG, DYNAMIC_CONFIG, YARN_CONFIG, LONGROPE_CONFIG, LLAMA3_CONFIG:
        try:
            MixtralRotaryEmbedding(MixtralConfig(rope_parameters={"rope_theta": BASE} | rope))
        except (TypeError, StrictDataclassClassValidationError) as error:
            raised.append(rope["rope_type"])
            require("NoneType" in str(error))
    require(raised == ["dynamic", "yarn", "longrope"])
    return "an error where there should be a table"


@register_run_row(
    "`theta`", "equinox", does="Keeps tables by size and dtype: a module with another `theta` gets those of the first."
)
def _() -> str:
    """Return the difference of equinox's second module."""
    import equinox
    import jax.numpy as jnp

    x = jnp.broadcast_to(jnp.asarray(unit()), (2, DIM))
    equinox.nn.RotaryPositionalEmbedding(DIM, theta=BASE)(x)
    found = from_rotated_unit(equinox.nn.RotaryPositionalEmbedding(DIM, theta=OTHER_BASE)(x)[1])
    require(agrees(found, Reading(PLAIN)))
    return f"{difference_of(OTHER_READING, found)}, {OTHER_BASE:.0f} after {BASE:.0f}"


@register_run_row(
    "pairing", "transformers", does="Which features rotate together is in the code of each model, not in its config."
)
def _() -> str:
    """Return how many model files have each pairing."""
    import torch

    x, one = torch.eye(DIM)[:1].reshape(1, 1, 1, DIM), torch.ones(1, 1, DIM)
    counts = Counter[tuple[int, bool]]()
    for rotation in filter(None, (vars(module).get("apply_rotary_pos_emb") for module in modeling_modules())):
        try:
            rotated = rotation(x, x, 0 * one, one)[0].flatten()  # by 90°
        except (IndexError, RuntimeError, TypeError):
            counts[-1, False] += 1  # it takes other arguments
        else:
            at = int(rotated.abs().argmax())
            counts[at, bool(rotated[at] < 0)] += 1
    kinds = ((DIM // 2, False), (DIM // 2, True), (1, False), (-1, False))
    half, backwards, interleaved, other = (counts.pop(kind, 0) for kind in kinds)
    require(not counts, half > 0, interleaved > 0)
    return f"{half} models half, {backwards} half and backwards, {interleaved} interleaved; {other} could not be run"


# --- engines that agree ------------------------------------------------------------------------------------


def engines_that_agree() -> Iterator[tuple[str, Reading, dict[str, Reading]]]:
    """Yield the name of each scheme, our reading, and the readings of the engines that agree with it."""
    everyone = {"mlx-lm": by_mlx, "sglang": by_sglang, "transformers": by_transformers, "vllm": by_vllm}
    single = {"diffusers": by_diffusers(linear_factor=FACTOR), "keras-hub": by_keras(), "litgpt": by_litgpt()}
    single |= {"transformer-engine": by_transformer_engine(TRAINED)} | by_lucidrains(interpolate=FACTOR)
    yield "linear", LINEAR, single | {name: by(LINEAR_CONFIG) for name, by in everyone.items()}
    yield "NTK", NTK, by_lucidrains(rescale=FACTOR)
    found = {
        "mlx-lm": by_mlx(DYNAMIC_CONFIG, LONGER),
        "sglang": by_sglang(DYNAMIC_CONFIG),
        "transformers": by_transformers(DYNAMIC_CONFIG, LONGER),
    }
    yield f"dynamic NTK at length {LONGER}", our_dynamic_ntk(LONGER), found
    single = {"keras-hub": by_keras(rope_type="yarn"), "libggml-python": by_ggml()}
    yield "YaRN", YARN, single | {name: by(YARN_CONFIG) for name, by in everyone.items()}
    found = {
        "mlx-lm": by_mlx(LONGROPE_CONFIG, positions=LONGER),
        "sglang": from_call(sglang_rope(LONGROPE_CONFIG, LONGER), LONGER - 1),
        "transformers": by_transformers(LONGROPE_CONFIG, LONGER, max_position_embeddings=LONGER),
        "vllm": from_call(vllm_rope(LONGROPE_CONFIG, LONGER)),
    }
    yield f"LongRoPE at length {LONGER}", our_longrope(LONGER), found
    single = {
        "litgpt": by_litgpt(original_max_seq_len=TRAINED, **LLAMA3_FACTORS),
        "torchtune": by_torchtune(**LLAMA3_FACTORS),
    }
    yield "llama3", LLAMA3, single | {name: by(LLAMA3_CONFIG) for name, by in everyone.items()}
    step = Reading(scaling.llama3(PLAIN, FACTOR, original_length=TRAINED, **EQUAL_FACTORS))
    single = {
        "litgpt": by_litgpt(original_max_seq_len=TRAINED, **EQUAL_FACTORS),
        "torchtune": by_torchtune(**EQUAL_FACTORS),
    }
    found = single | {name: by(LLAMA3_CONFIG | EQUAL_FACTORS) for name, by in everyone.items()}
    yield "llama3 with both factors 2, a step", step, found
    found = {name: by(PROPORTIONAL_CONFIG) for name, by in everyone.items()}
    yield "proportional, without `factor`", PROPORTIONAL, found


# --- the table --------------------------------------------------------------------------------------------

LEGEND = f"""\
For llama3, `low_freq_factor` is 1 and `high_freq_factor` 4. LongRoPE's short list climbs from 1 to {SHORT[-1]:.2f}, and
its long one from 1 to {LONG[-1]:.2f}. Frequencies are compared over all pairs; scores are those of a query and a key.
What is within 1e-5 counts as the same.

Rows marked *run* are what the engine's own code returned. Of vLLM, SGLang, TransformerEngine and torchtune the files
that make frequencies were run, without the rest of the package; ggml was called through C.
Liger-Kernel has no row: it takes tables as they come."""


def name_and_version(engine: str) -> str:
    """Return the name of an engine with its version, as in the table."""
    return f"{NAMES.get(engine, engine)} {version(engine)}" if engine in PEERS else engine


def difference_rows(missing: set[str], before: str) -> Iterator[str]:
    """Yield the rows of the table of differences; for missing libraries those of the text `before`."""
    for r in ROWS:
        try:
            if missing & set(r.engines):
                raise ImportError(missing & set(r.engines))  # noqa: TRY301
            size = r.size() if callable(r.size) else r.size
        except ImportError as error:
            if not missing:
                raise
            kept = [line for line in before.splitlines() if f" | {r.does} | " in line]
            print(f"{'kept' if kept else 'left out'}: {r.scheme}, {', '.join(r.engines)} ({error})", file=sys.stderr)
            yield from (line.replace(" | run |", " | run before, not again |") for line in kept)
            continue
        except ChangedError:
            sys.exit(f"this no longer holds: {', '.join(map(name_and_version, r.engines))}, {r.scheme}: {r.does}")
        engines, how = ", ".join(map(name_and_version, r.engines)), f"read in {r.source}" if r.source else "run"
        yield f"| {r.scheme} | {engines} | {r.does} | {size} | {how} |"


def agreement_rows() -> Iterator[str]:
    """Yield the rows of the table of agreement."""
    for scheme, ours, theirs in engines_that_agree():
        if away := [name_and_version(engine) for engine, reading in theirs.items() if not agrees(reading, ours)]:
            sys.exit(f"these no longer agree on {scheme}: {', '.join(away)}")
        yield f"| {scheme} | {', '.join(map(name_and_version, sorted(theirs, key=str.lower)))} |"


def main() -> None:
    """Run the engines, and print the tables."""
    path = making.DOCS / "peers_table.md"
    parser = making.parser(__doc__, path)
    parser.add_argument("--pins", action="store_true", help="print the libraries and their versions, for pip")
    parser.add_argument(
        "--partial", action="store_true", help="write even if libraries are missing, and keep their rows"
    )
    given = parser.parse_args()
    if given.pins:
        print(*(f"{name}=={pin}" for name, pin in PEERS.items()))
        return
    missing = {name for name in PEERS if not list(distributions(name=name))}
    making.report_missing(missing, write=given.write and not given.partial)
    os.environ["KERAS_BACKEND"] = "torch"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    rows = [
        "| scheme | engine | what it does | size of the difference | how |",
        "| --- | --- | --- | --- | --- |",
        *difference_rows(missing, before),
    ]
    same_rows = ["| scheme | the same as ours |", "| --- | --- |", *([] if missing else agreement_rows())]
    if missing:
        same_rows[2:] = [line for line in before.splitlines() if line.count("|") == 3][2:]
    head = "<!-- written by tools/peers_table.py; run it again rather than edit this file -->"
    making.show("\n\n".join([head, "\n".join(rows), LEGEND, "\n".join(same_rows)]), path, write=given.write)


if __name__ == "__main__":
    main()
