"""
Pack tables and frequencies in the layouts of other engines' rotary caches, and unpack them.

`LAYOUTS` describes the order and the shape in which engines read cosines and sines, angles, divisors or reciprocals.
Caches of cosines and sines come from a `Table`, the others from the frequencies of a `Rope`. Numbers are only
reordered, so they keep their bits if they keep their dtype.
"""

import math
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, overload

from rope_any._arrays import Array, Library, library, require_array, type_name
from rope_any._checks import (
    MAX_FEATURES,
    NOTHING,
    ArgumentTypeError,
    ArgumentValueError,
    Text,
    choice,
    integer_between,
    require_known,
)
from rope_any._frequencies import Row, as_rows, frequencies
from rope_any._names import did_you_mean
from rope_any._pairing import Pairing, as_pairing
from rope_any._positions import consecutive, int32_or_symbol
from rope_any._rope import Rope
from rope_any._rotation import Table, check_table

__all__ = ["Layout", "pack", "unpack"]

Kind: TypeAlias = Literal["cos and sin", "angles", "divisors", "reciprocals"]

DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "complex64": 24, "float64": 53}  # bits of a number's digits
_ANY = ("float32", "bfloat16", "float16")


class Layout(NamedTuple):
    """
    How an engine stores its rotary cache.

    Attributes
    ----------
    axes : str
        The axes of an array. ``*`` joins those that share one axis, the slowest first: in ``"seq part*pair"`` a row has
        the first parts (cosines or sines) of all pairs, then the second. A `copy` is one of two equal numbers.
    rows : str
        How positions choose a row.
    source : str
        The file of the engine that makes or reads the cache.
    dtypes : tuple of str
        The dtypes that the engine takes; the first one is used for numbers of another dtype.
    holds : str
        What the numbers are: "cos and sin", "angles" (radians), "divisors" (by which the frequencies of a base are
        divided), or "reciprocals" (1 / frequency).
    parts : tuple of str
        The order of cosine and sine.
    arrays : int
        The number of arrays in the cache; each of two arrays holds one part.
    pairing : {"half", "interleaved"}, optional
        The pairing of a cache of frequencies; None if each call of the engine states it.
    """

    axes: str
    rows: str
    source: str
    dtypes: tuple[str, ...] = _ANY
    holds: Kind = "cos and sin"
    parts: tuple[str, str] = ("cos", "sin")
    arrays: int = 1
    pairing: Pairing | None = None

    @property
    def is_complex(self) -> bool:
        """Whether a number holds a cosine and a sine as its real and imaginary part."""
        return self.dtypes == _COMPLEX

    @property
    def names(self) -> list[str]:
        """The names of all axes in order, those that share one axis separately; "1" is an axis of length 1."""
        return self.axes.replace("*", " ").split()


_FLOAT32, _COMPLEX = ("float32",), ("complex64",)
_BY_POSITION, _GATHERED = "position", "token, in the order of the call"
_BY_PAIR = "none: one number for each pair, at all positions"
_TRT = "tensorrt_llm/functional.py, tensorrt_llm/_torch/attention_backend/interface.py"
_TE = "transformer_engine/pytorch/attention/rope.py"
_MEGATRON = "megatron/core/models/common/embeddings/rotary_pos_embedding.py"

LAYOUTS: dict[str, Layout] = {
    "vllm": Layout("seq part*pair", _BY_POSITION, "vllm/model_executor/layers/rotary_embedding/base.py"),
    "sglang": Layout("seq part*pair", _BY_POSITION, "sglang/srt/layers/rotary_embedding/base.py"),
    "flashinfer": Layout("seq part*pair", _BY_POSITION, "flashinfer/rope.py", _FLOAT32),
    "tensorrt-llm": Layout("1 seq*pair*part", _BY_POSITION, _TRT, _FLOAT32),
    "tensorrt-llm-halves": Layout("1 seq*part*pair", _BY_POSITION, f"{_TRT}: interleave=False", _FLOAT32),
    "tensorrt-llm-duplicated": Layout("1 seq*copy*pair*part", _BY_POSITION, f"{_TRT}: duplicate_data=True", _FLOAT32),
    "onnxruntime": Layout("seq pair", _BY_POSITION, "docs/ContribOperators.md: RotaryEmbedding", arrays=2),
    "onnxruntime-gqa": Layout("seq pair", _BY_POSITION, "docs/ContribOperators.md: GroupQueryAttention", arrays=2),
    "flash-attention": Layout("seq pair", _BY_POSITION, "flash_attn/ops/triton/rotary.py", arrays=2),
    "transformers": Layout(
        "batch seq copy*pair", _GATHERED, "models/llama/modeling_llama.py", (*_ANY, "float64"), arrays=2
    ),
    "transformers-interleaved": Layout(
        "batch seq pair*copy", _GATHERED, "models/cohere/modeling_cohere.py", (*_ANY, "float64"), arrays=2
    ),
    "gptj": Layout("seq part*pair", _BY_POSITION, "models/gptj/modeling_gptj.py", _ANY, parts=("sin", "cos")),
    "diffusers": Layout("seq pair*copy", _GATHERED, "models/embeddings.py: get_1d_rotary_pos_embed", arrays=2),
    "meta": Layout("seq pair", _BY_POSITION, "llama/model.py: precompute_freqs_cis", _COMPLEX),
    "torchtune": Layout("seq pair part", _BY_POSITION, "torchtune/modules/position_embeddings.py"),
    "torchtitan": Layout("seq part*copy*pair", _BY_POSITION, "torchtitan/models/common/rope.py"),
    "transformer-engine": Layout("seq 1 1 copy*pair", _BY_POSITION, _TE, _FLOAT32, "angles", pairing="half"),
    "transformer-engine-interleaved": Layout(
        "seq 1 1 pair*copy", _BY_POSITION, _TE, _FLOAT32, "angles", pairing="interleaved"
    ),
    "megatron": Layout("seq 1 1 copy*pair", _BY_POSITION, _MEGATRON, _FLOAT32, "angles", pairing="half"),
    "megatron-interleaved": Layout(
        "seq 1 1 pair*copy", _BY_POSITION, _MEGATRON, _FLOAT32, "angles", pairing="interleaved"
    ),
    "llama.cpp": Layout("pair", _BY_PAIR, "ggml.h: freq_factors of ggml_rope_ext", _FLOAT32, "divisors"),
    "mlx": Layout("pair", _BY_PAIR, "mlx/fast.cpp: freqs of fast.rope", _FLOAT32, "reciprocals"),
}
"""The layouts by name."""

# The names of `LAYOUTS` again, by the types that `pack` and `unpack` return: type checkers don't read the rows.
OneArray: TypeAlias = Literal[
    "vllm",
    "sglang",
    "flashinfer",
    "tensorrt-llm",
    "tensorrt-llm-halves",
    "tensorrt-llm-duplicated",
    "gptj",
    "meta",
    "torchtune",
    "torchtitan",
]
"""The layouts of cosines and sines in one array."""
TwoArrays: TypeAlias = Literal[
    "onnxruntime",
    "onnxruntime-gqa",
    "flash-attention",
    "transformers",
    "transformers-interleaved",
    "diffusers",
]
"""The layouts of cosines and sines in two arrays."""
OfFrequencies: TypeAlias = Literal[
    "transformer-engine",
    "transformer-engine-interleaved",
    "megatron",
    "megatron-interleaved",
    "llama.cpp",
    "mlx",
]
"""The layouts of angles, divisors or reciprocals."""

# the options of `pack` and of `unpack`, by what a cache holds
_TO_PACK = {
    "cos and sin": {"dtype"},
    "angles": {"like", "length"},
    "divisors": {"like", "base"},
    "reciprocals": {"like"},
}
_TO_UNPACK = {
    "cos and sin": {"rotary_dim"},
    "angles": {"rotary_dim", "pairing"},
    "divisors": {"rotary_dim", "pairing", "base"},
    "reciprocals": {"rotary_dim", "pairing"},
}


@overload
def pack(source: Table, /, layout: TwoArrays, *, dtype: Any = None) -> tuple[Array, Array]: ...
@overload
def pack(
    source: Table | Rope,
    /,
    layout: str,
    *,
    dtype: Any = None,
    like: Array | None = None,
    length: int | None = None,
    base: float | None = None,
) -> Any: ...
def pack(
    source: Table | Rope,
    /,
    layout: str,
    *,
    dtype: Any = None,
    like: Array | None = None,
    length: int | None = None,
    base: float | None = None,
) -> Any:
    """
    Return the rotary cache of an engine, made from a table or from frequencies.

    Parameters
    ----------
    source : Table or Rope
        For a layout of cosines and sines a `Table`, ``(seq, pairs)``; for ``transformers`` and
        ``transformers-interleaved`` also ``(batch, seq, pairs)``. Its row p must belong to position p if the engine
        chooses rows by position. For a layout of angles, divisors or reciprocals a `Rope` of one axis, without an
        attention factor.
    layout : str
        A name in `LAYOUTS`.
    dtype : dtype, optional
        The dtype of a cache of cosines and sines, one of the layout and no wider than that of the table. The default is
        that of the table, or the first of the layout if that lacks it. NumPy's bfloat16 is ``ml_dtypes.bfloat16``.
    like : array, optional
        For a `Rope`: gives the library and the device.
    length : int, optional
        For angles: the number of rows; row p has the angles of position p.
    base : float, optional
        For divisors: the base of the frequencies that the engine divides.

    Returns
    -------
    array or tuple of array
        The cache; for a layout of two arrays cosines and sines. It may share memory with `source`.

    Raises
    ------
    TypeError
        If `source` or another argument has a wrong type, or an option is missing or of no use for the layout.
    ValueError
        If the layout is unknown or cannot hold `source` (its shape, attention factor, axes, pairing, start or blocks),
        or an option is out of range.

    Notes
    -----
    A table is never widened. Angles are rounded to float32, as in the engines, and so are off by up to 1.2e-7 of
    themselves. The divisor and the reciprocal of a frequency of 0 are infinite. Complex layouts need a library with
    complex numbers. A `BentTable` is packed as it is.

    Examples
    --------
    >>> rope = ra.Rope(ra.frequencies(64), pairing="half")
    >>> table = rope.table(range(4096), like=np.ones(1, dtype=np.float32))
    >>> ra.layouts.pack(table, "vllm").shape
    (4096, 64)
    >>> ra.layouts.pack(rope, "mlx", like=table.cos).shape
    (32,)
    """
    engine_layout = layout_of(layout)
    if engine_layout.holds == "cos and sin" and not isinstance(source, Table):
        hint = "give rope.table(range(length), like=x)" if isinstance(source, Rope) else ""
        raise ArgumentTypeError("source", f"be a Table for the layout {layout}", source, hint)
    if engine_layout.holds != "cos and sin" and not isinstance(source, Rope):
        wanted = f"be a Rope for the layout {layout}, which holds {engine_layout.holds}"
        raise ArgumentTypeError("source", wanted, source)
    options = {"dtype": dtype, "like": like, "length": length, "base": base}
    require_options(layout, options, _TO_PACK[engine_layout.holds], optional={"dtype"})
    if isinstance(source, Table):
        return _pack_table(layout, engine_layout, source, dtype)
    lib, f = require_array("like", like), plain_frequencies(layout, engine_layout, source)
    place = lib.device_kwargs(like)
    if engine_layout.holds == "angles":
        work = lib.float64 if lib.has_float64(like) else lib.xp.float32
        at = lib.cast(consecutive(0, int32_or_symbol("length", length, least=0), like=like), work)
        angles = at[:, None] * lib.xp.asarray(f, dtype=work, **place)[None, :]
        return arranged(lib, [lib.cast(angles, lib.xp.float32)], ["seq", "pair"], engine_layout)
    of = divided(engine_layout, len(f), base)
    numbers = [a / b if b else math.inf for a, b in zip(of, f, strict=True)]
    return lib.xp.asarray(numbers, dtype=lib.xp.float32, **place)


@overload
def unpack(cache: Any, /, layout: OneArray | TwoArrays, *, rotary_dim: int | None = None) -> Table: ...
@overload
def unpack(
    cache: Any,
    /,
    layout: OfFrequencies,
    *,
    rotary_dim: int | None = None,
    pairing: Pairing | None = None,
    base: float | None = None,
) -> Rope: ...
@overload
def unpack(
    cache: Any,
    /,
    layout: str,
    *,
    rotary_dim: int | None = None,
    pairing: Pairing | None = None,
    base: float | None = None,
) -> Table | Rope: ...
def unpack(
    cache: Any,
    /,
    layout: str,
    *,
    rotary_dim: int | None = None,
    pairing: Pairing | None = None,
    base: float | None = None,
) -> Table | Rope:
    """
    Return the table or the frequencies in the rotary cache of an engine.

    Parameters
    ----------
    cache : array or pair of array
        The cache; for a layout of two arrays cosines and sines.
    layout : str
        A name in `LAYOUTS`.
    rotary_dim : int, optional
        The number of rotated features, required by the layouts of TensorRT-LLM; for others it must agree.
    pairing : {"half", "interleaved"}, optional
        Required for divisors and reciprocals; for angles it must agree.
    base : float, optional
        Required for divisors: the frequencies of the result are those of `base` divided by them.

    Returns
    -------
    Table or Rope
        A `Table` ``(seq, pairs)``, or ``(batch, seq, pairs)`` if the cache has a batch axis longer than 1, which may
        share memory with the cache; for angles, divisors and reciprocals a `Rope`.

    Raises
    ------
    TypeError
        If `cache` or an option has a wrong type, or an option is missing or of no use for the layout.
    ValueError
        If the layout is unknown, the shape does not fit it, an option is wrong, angles are not those of the positions
        0, 1, 2, ..., a divisor or reciprocal is 0, or such a cache has no values to read (traced, fake, on the meta
        device).

    Notes
    -----
    Of two copies of a number the first is taken; `rope_any.testing.check_cache` compares both. Values of cosines and
    sines are not read. The frequencies of angles are those of row 1.

    Examples
    --------
    >>> rope = ra.Rope(ra.frequencies(64), pairing="half")
    >>> table = rope.table(range(4096), like=np.ones(1, dtype=np.float32))
    >>> cache = ra.layouts.pack(table, "tensorrt-llm")
    >>> again = ra.layouts.unpack(cache, "tensorrt-llm", rotary_dim=64)
    >>> bool((again.cos == table.cos).all() and (again.sin == table.sin).all())
    True
    """
    engine_layout = layout_of(layout)
    options = {"rotary_dim": rotary_dim, "pairing": pairing, "base": base}
    optional = {"rotary_dim"} | ({"pairing"} if engine_layout.pairing else set())
    require_options(layout, options, _TO_UNPACK[engine_layout.holds], optional)
    parts = parts_of(arrays_of(cache, layout), layout, rotary_dim=rotary_dim)
    first = [part[0, ...] for part in parts]  # of the copies
    if engine_layout.holds == "cos and sin":
        made = [x[0, ...] if x.shape[0] == 1 else x for x in first]
        return Table(*(made[engine_layout.parts.index(part)] for part in Table._fields))
    if pairing is not None and as_pairing(pairing) != (engine_layout.pairing or pairing):
        raise ArgumentValueError("pairing", f'be "{engine_layout.pairing}" for the layout {layout}', pairing)
    numbers = first[0][0, ...]
    if engine_layout.holds == "angles":
        f = _row_of_angles(numbers)
    else:
        given = values_of(numbers[0, ...]).tolist()
        if 0 in given:
            raise ArgumentValueError("cache", f"hold {engine_layout.holds} other than 0", NOTHING)
        f = tuple(a / b for a, b in zip(divided(engine_layout, len(given), base), given, strict=True))
    return Rope(f, pairing=engine_layout.pairing or as_pairing(pairing))


def arrays_of(cache: Any, layout: str) -> list[Array]:
    """Return the one or two arrays of a cache as a list; raise unless they are of the layout's dtypes and one shape."""
    engine_layout = layout_of(layout)
    if engine_layout.arrays == 2 and not (isinstance(cache, tuple | list) and len(cache) == 2):
        got = Text(f"{len(cache)} of them" if isinstance(cache, tuple | list) else type_name(cache))
        raise ArgumentTypeError("cache", f"be a pair of arrays, {' and '.join(engine_layout.parts)}", got)
    names = ("cache",) if engine_layout.arrays == 1 else tuple(f"the {part} of cache" for part in engine_layout.parts)
    arrays = dict(zip(names, (cache,) if engine_layout.arrays == 1 else cache, strict=True))
    lib, given = library(**arrays), [*arrays.values()]
    for name, x in arrays.items():
        require_known(name, x.shape)
        if (dtype := lib.dtype_name(x.dtype)) not in engine_layout.dtypes:
            wanted = f"be of {' or '.join(engine_layout.dtypes)} for the layout {layout}"
            raise ArgumentTypeError(name, wanted, Text(dtype))
    if given[0].shape != given[-1].shape:
        got = Text(f"{tuple(given[0].shape)} and {tuple(given[1].shape)}")
        raise ArgumentValueError("cache", "have two arrays of one shape", got)
    return given


def parts_of(arrays: Sequence[Array], layout: str, *, rotary_dim: int | None = None) -> list[Array]:
    """Return a cache as ``(copies, batch, seq, pairs)``: two of cos and sin, in its order, or one; raise if unfit."""
    engine_layout, lib = layout_of(layout), require_array("cache", arrays[0])
    if engine_layout.is_complex:
        arrays = [lib.xp.real(arrays[0]), lib.xp.imag(arrays[0])]
    parts = [_reshape_to_copies(lib, x, layout, engine_layout, rotary_dim) for x in arrays]
    return [parts[0][i, ...] for i in range(2)] if "part" in engine_layout.names else parts


def values_of(x: Array) -> Any:
    """Return an array of a cache as NumPy, half precision as float32; raise if it has no values to read."""
    lib = require_array("cache", x)
    try:
        return lib.get(x if "complex" in lib.dtype_name(x.dtype) else lib.cast(x, lib.compute_dtype(x)))
    except (NotImplementedError, RuntimeError, TypeError) as error:  # of torch; of JAX, whose errors are TypeErrors
        got = Text("one that is traced, fake or on the meta device")
        raise ArgumentValueError("cache", "have values to read", got) from error


# --- tables -----------------------------------------------------------------------------------------------


def _pack_table(layout: str, engine_layout: Layout, source: Table, dtype: Any) -> Any:
    """
    Return the cache made of a table, a pair for a layout of two arrays; raise if its shape or dtype doesn't fit.

    If `dtype` is None, it is that of the table if the layout has it, else the first of the layout. Raises also if the
    cache would have more digits than the table.
    """
    lib = library(cos=source.cos, sin=source.sin)
    shape = tuple(source.cos.shape)
    require_known("source", shape)
    check_table(lib, *source)
    names = ["batch", "seq", "pair"][-len(shape) :] if "batch" in engine_layout.names else ["seq", "pair"]
    if len(shape) != len(names) or len(shape) < 2:
        shapes = "(seq, pairs) or (batch, seq, pairs)" if "batch" in engine_layout.names else "(seq, pairs)"
        raise ArgumentValueError("source", f"have tables of shape {shapes} for the layout {layout}", shape)
    own = lib.dtype_name(source.cos.dtype)
    name = engine_layout.dtypes[0] if dtype is None else lib.name_of(dtype)
    name = own if dtype is None and own in engine_layout.dtypes else name
    if name not in engine_layout.dtypes:
        wanted = f"be {' or '.join(engine_layout.dtypes)} for the layout {layout}"
        raise ArgumentTypeError("dtype", wanted, Text(name) if name else dtype)
    if DIGITS[name] > DIGITS[own]:
        hint = f"make the table in {name.replace('complex64', 'float32')}"
        raise ArgumentTypeError("source", f"be no narrower than the {name} of the cache", Text(own), hint)
    parts = [getattr(source, part) for part in engine_layout.parts]
    if engine_layout.is_complex:
        if not hasattr(lib.xp, name):
            raise ArgumentValueError("layout", f"be one of real numbers on {lib.name}", layout)
        real, imaginary = (lib.xp.astype(lib.cast(x, lib.xp.float32), lib.xp.complex64) for x in parts)
        return arranged(lib, [real + imaginary * 1j], names, engine_layout)
    parts = [x if name == own else lib.cast(x, lib.floating_dtype(dtype or name)) for x in parts]
    if engine_layout.arrays == 2:
        return tuple(arranged(lib, [x], names, engine_layout) for x in parts)
    return arranged(lib, parts, names, engine_layout)


# --- frequencies ------------------------------------------------------------------------------------------


def plain_frequencies(layout: str, engine_layout: Layout, rope: Rope) -> Row:
    """Return a Rope's row of frequencies; raise if it has axes, heads, a factor, a start, blocks or another pairing."""
    (row_of_all, *others) = as_rows(rope.frequencies)
    if others:
        got = Text(f"{len(others) + 1} axes")
        raise ArgumentValueError("source", f"have one axis for the layout {layout}", got)
    held: dict[str, Any] = {
        "attention_factor": 1.0,
        "start": 0,
        "blocks": 1,
        "pairing": engine_layout.pairing or rope.pairing,
        "out_pairing": None,
    }
    for name, value in held.items():
        if (own := getattr(rope, name)) != value:
            hint = "multiply the queries by its square" if name == "attention_factor" else ""
            wanted = f"have {name} {value!r}: the layout {layout} holds no other"
            raise ArgumentValueError("source", wanted, Text(f"{name} {own!r}"), hint)
    return row_of_all


def divided(engine_layout: Layout, pairs: int, base: float | None) -> Row:
    """Return what the numbers of a cache divide, by pair: ones for reciprocals, frequencies of `base` for divisors."""
    if engine_layout.holds == "reciprocals":
        return (1.0,) * pairs
    return frequencies(2 * pairs, base=base)  # type: ignore[arg-type]  # given for divisors


def _row_of_angles(angles: Array) -> Row:
    """Return row 1 of angles ``(seq, pairs)``: frequencies; raise unless rows 0, 1, -1 fit positions 0 to seq − 1."""
    count = angles.shape[0]
    if count < 2:
        raise ArgumentValueError("cache", "have two rows or more, to tell frequencies", count)
    zero, f, last = (values_of(angles[i, ...]).tolist() for i in (0, 1, count - 1))
    near = all(math.isclose(a, (count - 1) * b, rel_tol=2**-21) for a, b in zip(last, f, strict=True))
    if any(zero) or not near:
        raise ArgumentValueError("cache", "hold the angles of the positions 0, 1, 2, ...", Text("others"))
    return tuple(f)


# --- axes -------------------------------------------------------------------------------------------------

_CANONICAL = ["part", "copy", "batch", "seq", "pair"]


def arranged(lib: Library, parts: Sequence[Array], names: list[str], engine_layout: Layout) -> Array:
    """Return `parts`, each with the axes `names`, as one array with the axes of the layout: two are stacked first."""
    x = parts[0]
    if len(parts) > 1:
        names = [name for name in engine_layout.names if name in {"part", *names}]
        x = lib.stack(parts, axis=names.index("part"))
    sizes = {"copy": 2, "1": 1, "batch": 1} | dict(zip(names, x.shape, strict=True))
    x = lib.xp.reshape(x, tuple(sizes[name] if name in names else 1 for name in engine_layout.names))
    x = lib.xp.broadcast_to(x, tuple(sizes[name] for name in engine_layout.names))
    return lib.xp.reshape(
        x, tuple(math.prod([sizes[name] for name in axis.split("*")]) for axis in engine_layout.axes.split())
    )


def _reshape_to_copies(lib: Library, x: Array, layout: str, engine_layout: Layout, rotary_dim: int | None) -> Array:
    """Return a cache array as ``([part,] copies, batch, seq, pairs)``, absent axes as 1; raise for an unfit shape."""
    axes = [axis.split("*") for axis in engine_layout.axes.split()]
    known = {"part": 2, "copy": 2, "1": 1}
    if rotary_dim is not None:
        known["pair"] = integer_between("rotary_dim", rotary_dim, 2, MAX_FEATURES) // 2
    sizes = dict(known)
    fits = x.ndim == len(axes) and not (rotary_dim or 0) % 2
    for axis, n in zip(axes, x.shape, strict=False):
        unknown = [name for name in axis if name not in sizes]
        if len(unknown) > 1:
            wanted = f"be given for the layout {layout}, whose shape does not say it"
            raise ArgumentTypeError("rotary_dim", wanted, NOTHING)
        if unknown:
            sizes[unknown[0]] = n // math.prod([sizes[name] for name in axis if name in sizes])
        fits = fits and n == math.prod([sizes[name] for name in axis])
    if not fits or not sizes["pair"]:
        width = "" if rotary_dim is None else f" with {rotary_dim} rotated features"
        lengths = ", ".join(_length_text(axis, known) for axis in axes)
        parts = ", then ".join({"cos": "cosines", "sin": "sines"}[part] for part in engine_layout.parts)
        of_a_row = f": {parts}" if "part*" in engine_layout.axes else ""
        wanted = f"have the shape ({lengths}) for the layout {layout}{width}{of_a_row}"
        raise ArgumentValueError("cache", wanted, tuple(x.shape))
    names = [name for name in engine_layout.names if name != "1"]
    x = lib.xp.reshape(x, tuple(sizes[name] for name in names))
    order = [name for name in _CANONICAL if name in names]
    x = lib.xp.permute_dims(x, tuple(names.index(name) for name in order))
    shape = tuple(sizes[name] if name in names else 1 for name in _CANONICAL)
    return lib.xp.reshape(x, shape if "part" in names else shape[1:])


def _length_text(axis: list[str], known: dict[str, int]) -> str:
    """Return the length of an axis for an error: the product of `known` lengths, and the names of others."""
    count = math.prod(known.get(name, 1) for name in axis)
    others = [name.replace("pair", "pairs") for name in axis if name not in known]
    return "*".join([*([str(count)] if count > 1 or not others else []), *others])


# --- arguments --------------------------------------------------------------------------------------------


OTHER_NAMES = dict.fromkeys(("hf", "huggingface"), "transformers")
"""Names by which a layout is known too, for hints."""


def layout_of(name: object) -> Layout:
    """Return the `Layout` with this name; raise if there is none."""
    hint = partial(did_you_mean, known=LAYOUTS, others=OTHER_NAMES)
    return LAYOUTS[choice("layout", name, LAYOUTS, f"be one of {', '.join(LAYOUTS)}", hint)]


def require_options(layout: str, given: dict[str, Any], used: set[str], optional: Collection[str] = ()) -> None:
    """Raise if an option in `used` is missing (None in `given`) and not `optional`, or another option is given."""
    for name, value in given.items():
        if value is None and name in used and name not in optional:
            raise ArgumentTypeError(name, f"be given for the layout {layout}", NOTHING)
        if value is not None and name not in used:
            raise ArgumentTypeError(name, f"not be given for the layout {layout}", NOTHING)
