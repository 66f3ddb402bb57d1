"""
Soak test: random calls of each kind on each library, whose results are checked by other code, while memory is measured.

``python tools/soak.py --calls 1000000 --seed 0`` numbers calls from ``--first`` on. If a call fails, its number is
printed: the same seed and ``--first N --calls 1`` repeat it. An interrupt (Ctrl-C) ends the test with the figures so
far. It exits with 1 if a call failed or memory has grown. ``--kinds table consecutive --libraries "numpy, fused"
torch-cpu`` makes only such calls.
"""

import argparse
import gc
import math
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

import rope_any as ra
from rope_any._arrays import is_array

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import oracle
from conftest import LIBRARIES, Library

# Shares of all calls. Libraries that compile or build graphs at each call take a hundred times as long as NumPy.
SHARES = {
    "numpy": 0.8695,
    "torch-cpu": 0.08,
    "array-api-strict": 0.012,
    "array-api-strict-device1": 0.01,
    "array-api-strict-no_float64": 0.01,
    "array-api-strict-no_x64": 0.008,
    "mlx": 0.006,
    "jax": 0.002,
    "jax-x64": 0.001,
    "dask": 0.0005,
    "numpy, fused": 0.002,
    "torch-cpu, fused": 0.001,
    "mlx, fused": 0.0005,
    "jax, fused": 0.0005,
}
# Libraries that compile for each shape use only this many forms of calls, with new numbers each time.
FORMS = {"jax": 12, "jax-x64": 12, "numpy, fused": 8, "torch-cpu, fused": 8, "mlx, fused": 12, "jax, fused": 12}
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
LEAST = {"float16": 2.0**-24, "bfloat16": 1e-37, "float32": 1e-37, "float64": 1e-300}
FAR, TURN = 2**31 - 1, 2 * math.pi
HAS_NUMBA = find_spec("numba") is not None


@dataclass
class Case:
    """One call: its library and device, and the random generators of its form and of its numbers."""

    lib: Library
    form: random.Random
    rng: np.random.Generator
    fused: bool

    def one_of(self, *choices: Any) -> Any:
        """Return one of some choices, drawn for the form of the call."""
        return self.form.choice(choices)

    def rarely(self, share: float) -> bool:
        """Return True in a share of the calls."""
        return self.form.random() < share

    def shape(self, axes: int) -> tuple[int, ...]:
        """Return random lengths of axes."""
        return tuple(self.form.choice((0, 1, 1, 2, 2, 3, 3, 4)) for _ in range(axes))

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return random numbers of one of three magnitudes."""
        return self.rng.standard_normal(shape) * self.rng.choice([1.0, 1e-3, 30.0])


# --- arrays of any memory layout --------------------------------------------------------------------------------------


@dataclass
class View:
    """An array of a library, the base array that it may be a view of, and the data of both on the host."""

    array: Any
    base: Any
    host: np.ndarray
    host_base: np.ndarray
    writes: bool

    def is_untouched(self, lib: Library) -> bool:
        """Whether the base array still has its original data."""
        return same(lib.get(self.base), self.host_base)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are equal; nan equals nan."""
    return a.shape == b.shape and bool(np.all((a == b) | ((a != a) & (b != b))))  # noqa: PLR0124  # nan, of any dtype


def random_view(case: Case, values: np.ndarray, dtype: str, *, writes: bool = False) -> View:
    """Return values in a random memory layout: plain, transposed, cut out of a larger array, reversed or broadcast."""
    lib, axes = case.lib, values.ndim
    ways = ["plain", "plain", "transposed", "cut", "reversed", "broadcast"]
    if lib.name == "torch-cpu":  # torch has no negative strides
        ways.remove("reversed")
    plain = not axes or (writes and lib.name == "mlx")
    way = "plain" if plain else case.form.choice(ways[:-1] if writes else ways)
    order = case.form.sample(range(axes), axes)
    steps = [case.form.choice((1, 1, 2)) for _ in range(axes)]
    margins = [case.form.randrange(2) for _ in range(axes)]
    axis = case.form.randrange(axes) if axes else 0
    cuts: tuple[slice, ...] = ()
    base = values
    if way == "transposed":
        base = values.transpose(order)
    elif way == "cut":
        cuts = tuple(slice(m, m + s * n, s) for m, s, n in zip(margins, steps, values.shape, strict=True))
        base = np.full([2 * m + s * n for m, s, n in zip(margins, steps, values.shape, strict=True)], 7.0)
        base[cuts] = values
    elif way == "reversed":
        cuts = tuple(slice(None, None, -1 if i == axis else 1) for i in range(axes))
        base = values[cuts]
    elif way == "broadcast":
        base = values[tuple(slice(1 if i == axis else None) for i in range(axes))]
    put = lib(np.ascontiguousarray(base) if axes else base, dtype)
    if lib.name == "numpy" and dtype.startswith("float") and case.rarely(0.02):
        put = put.astype(put.dtype.newbyteorder())
    host_base = np.array(lib.get(put))

    def seen(a: Any, xp: Any) -> Any:
        """Return the view of a base array, in the namespace xp."""
        if way == "transposed":
            back = tuple(order.index(i) for i in range(axes))
            return (getattr(xp, "permute_dims", None) or getattr(xp, "permute", None) or xp.transpose)(a, back)
        if way == "broadcast":
            return xp.broadcast_to(a, values.shape)
        return a[cuts] if cuts else a

    is_view = way == "plain" or (way != "broadcast" and lib.name != "mlx")  # MLX's slices are copies
    return View(seen(put, lib.xp), put, seen(host_base, np), host_base, is_view)


# --- recipes and positions --------------------------------------------------------------------------------------------


def random_frequencies(case: Case, *, fastest: float = 65_536.0) -> tuple[Any, list[list[float]]]:
    """Return random frequencies: as a call takes them, and as a list of rows."""
    pairs, axes = case.one_of(1, 2, 3, 4, 5, 8), case.one_of(None, None, None, 1, 2, 3)

    def row() -> tuple[float, ...]:
        """Return the frequencies of one axis."""
        kind = case.one_of("paper", "paper", "any", "fast")
        if kind == "paper":
            return ra.frequencies(2 * pairs, base=10 ** case.form.uniform(1, 7))
        top = math.log(fastest if kind == "fast" else 1.0)
        return tuple(case.one_of(1, -1) * math.exp(case.form.uniform(-16, top)) for _ in range(pairs))

    rows = [row() for _ in range(axes or 1)]
    return (rows[0] if axes is None else tuple(rows)), [list(r) for r in rows]


def random_integers(case: Case, shape: tuple[int, ...]) -> np.ndarray:
    """Return random integers of one magnitude and either sign, or all at its limits."""
    size = case.one_of(10, 300, 2**17, 2**24, FAR)
    low = 0 if case.rarely(0.3) else -size
    if case.rarely(0.1):
        return case.rng.choice([low, size], shape)
    return case.rng.integers(low, size + 1, shape)


def in_a_random_form(case: Case, values: np.ndarray, *, real: bool) -> tuple[Any, np.ndarray]:
    """Return positions in one of the accepted forms, and their exact values."""
    lib = case.lib
    if case.rarely(0.35) and values.size and (values.ndim or not real):
        return values.tolist(), values
    names = [n for n in lib.dtypes if n in {"float32", "float64"}] if real else [*lib.integers, "int32"]
    name = case.form.choice(names)
    if not real:
        limits = np.iinfo(name)
        values = np.clip(values, max(limits.min, -FAR), min(limits.max, FAR))
    view = random_view(case, values, name)
    return view.array, view.host


def random_positions(case: Case, shape: tuple[int, ...], *, real: bool) -> tuple[Any, np.ndarray]:
    """Return random positions in one of the accepted forms, and their exact values."""
    return in_a_random_form(
        case, case.rng.uniform(-(2.0**24), 2**24, shape) if real else random_integers(case, shape), real=real
    )


@dataclass
class Table:
    """An exact table, and the error that a table of the library may have."""

    cos: np.ndarray
    sin: np.ndarray
    error: np.ndarray | float


def exact_table(
    lib: Library, at: np.ndarray, rows: list[list[float]], *, given_axes: bool, wide: bool, real: bool
) -> Table:
    """Return the exact table of positions, with the error bound of the library's."""
    columns = at if given_axes else at[..., None]
    cos, sin, size = oracle.table(columns, rows)
    if wide:
        return Table(cos, sin, 1e-15 * (1 + size))
    return Table(cos, sin, 1.2e-7 if not real else 2.5e-7 if lib.has_float64 else 2e-6)


def token_positions(
    case: Case, shape: tuple[int, ...], seq: int, axes: int | None, *, real: bool
) -> tuple[Any, np.ndarray]:
    """Return random positions as a call takes them, and those of each token, ``(..., seq)`` or ``(..., seq, axes)``."""
    n, kind = shape[seq], case.one_of("none", "int", "0-d", "range", "rows", "rows", "rows")
    tail = () if axes is None else (axes,)
    if real or (kind == "range" and axes is not None) or (kind == "0-d" and case.lib.name.startswith("dask")):
        kind = "rows"
    if kind == "rows":
        others = tuple(m for i, m in enumerate(shape[:-1]) if i != seq)
        more = others[: case.one_of(0, 0, 1, 1, len(others))]
        leading = tuple(case.form.choice((m, 1)) if m else m for m in more)
        return random_positions(case, (*leading, n if n and case.rarely(0.9) else 1 if n else 0, *tail), real=real)
    first = 0 if kind == "none" else int(case.rng.choice([0, 1, -5, 2**20, FAR - 10, -FAR]))
    at = first + np.arange(n)
    given: Any = {"none": None, "int": first, "range": range(first, first + n)}.get(kind)
    if kind == "0-d":
        given = case.lib(np.asarray(first), "int32")
    return given, at if axes is None else np.stack([at] * axes, axis=-1)


def align_table(values: np.ndarray, ndim: int, seq: int) -> np.ndarray:
    """Return a table ``(..., seq, pairs)`` reshaped so that it broadcasts to an x with its tokens along axis `seq`."""
    leading = values.shape[:-2]
    whole = values.reshape(*leading, *(1,) * (ndim - 2 - len(leading)), *values.shape[-2:])
    return np.moveaxis(whole, -2, seq)


# --- calls and their expected results ---------------------------------------------------------------------------------


def error_ratio(lib: Library, got: Any, like: View, want: np.ndarray, error: np.ndarray, dtype: str) -> float:
    """Return the error divided by its bound; check that the result is an array like x."""
    assert type(got) is type(like.array), type(got)
    assert got.dtype == like.array.dtype, got.dtype
    assert tuple(got.shape) == like.host.shape, got.shape
    if lib.name == "torch-cpu":
        assert not got.requires_grad
    difference = np.abs(lib.get(got).astype(np.float64) - want)
    allowed = error + 1.01 * UNIT[dtype] * np.abs(want) + LEAST[dtype]
    worst = float(np.max(difference / allowed, initial=0.0))
    assert worst <= 1, f"{worst:.2f} of what is allowed, in {dtype} of shape {got.shape}"
    return worst


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, pairing: str, start: int, blocks: int) -> np.ndarray:
    """Return x rotated in float64, block by block."""
    if blocks == 1:
        return oracle.rotate_by_table(x, cos, sin, pairing=pairing, start=start)
    out, part, pairs = np.array(x), 2 * cos.shape[-1] // blocks, cos.shape[-1] // blocks
    for block in range(blocks):
        mine, here = slice(block * pairs, (block + 1) * pairs), slice(start + block * part, start + (block + 1) * part)
        out[..., here] = oracle.rotate_by_table(x[..., here], cos[..., mine], sin[..., mine], pairing=pairing)
    return out


def expected(
    x: np.ndarray, table: Table, pairing: str, start: int, blocks: int, unit: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rotated x, and its largest error before it is rounded to the dtype of x."""
    x = x.astype(np.float64)
    want = rotated(x, table.cos, table.sin, pairing, start, blocks)
    # the bound: |a| + |b| of each pair, at both of its features, times the error of the table and three roundings
    size = np.max(np.abs(table.cos) + np.abs(table.sin), initial=0.0)
    ones = np.ones(table.cos.shape)
    lengths = np.abs(rotated(np.abs(x), ones, ones, pairing, start, blocks))
    lengths = np.maximum(lengths, rotated(np.abs(x), ones, -ones, pairing, start, blocks))
    each = np.broadcast_to(table.error + 3 * unit * size, table.cos.shape)
    worst = np.zeros(x.shape)
    features = np.zeros(x.shape)
    features[..., start : start + 2 * table.cos.shape[-1]] = 1
    worst[...] = np.max(each, initial=0.0) if np.ndim(table.error) == 0 else largest_by_row(each)
    return want, features * lengths * worst


def largest_by_row(each: np.ndarray) -> np.ndarray:
    """Return the largest entry of each row."""
    return np.max(each, axis=-1, initial=0.0)[..., None]


def out_like(case: Case, x: View, dtype: str) -> View | None:
    """Return a random `out`: None, x itself, or another array in a random layout."""
    if not case.lib.mutable or case.rarely(0.5):
        return None
    if x.writes and case.rarely(0.5):
        return x
    out = random_view(case, np.full(x.host.shape, -5.0), dtype, writes=True)
    return out if out.array.dtype == x.array.dtype else None


def check_out(case: Case, out: View | None, got: Any) -> None:
    """Check that the result is `out`, and that no memory around it was written."""
    if out is None:
        return
    assert got is out.array
    out.host[...] = case.lib.get(got)  # this writes into host_base, of which it is a view
    assert out.is_untouched(case.lib), "something beside out was written"


def draw_x(case: Case, axes: int, features: int, dtype: str) -> View:
    """Return a random x of some layout."""
    return random_view(case, case.numbers((*case.shape(axes - 1), features)), dtype)


def call_table(case: Case) -> float:
    """Call ``cos_sin`` or ``Rope.table``; return the largest error divided by its bound."""
    lib, real = case.lib, case.rarely(0.3)
    given_frequencies, rows = random_frequencies(case, fastest=TURN if real else 65_536.0)
    axes = len(rows) if isinstance(given_frequencies[0], tuple) else None
    shape = (*case.shape(case.form.randrange(5)), *(() if axes is None else (axes,)))
    given, at = random_positions(case, shape, real=real)
    factor = case.one_of(1.0, 1.0, case.form.uniform(0.1, 10))
    dtype = case.form.choice([None, *lib.dtypes])
    like = lib(np.ones(1), case.form.choice(lib.dtypes))
    options: dict[str, Any] = {} if is_array(given) and case.rarely(0.5) else {"like": like}
    asked, options["fused"] = None if dtype is None else lib.dtype(dtype), case.fused or takes_fused(case)
    if case.rarely(0.5):
        got = ra.cos_sin(given, given_frequencies, attention_factor=factor, dtype=asked, **options)
    else:
        rope = ra.Rope(given_frequencies, pairing="half", attention_factor=factor)
        got = rope.table(given, dtype=asked, **options)
    if dtype is None:
        deciding = options.get("like", given)
        dtype = "float64" if lib.get(deciding).dtype.name == "float64" else "float32"
    want = exact_table(lib, at, rows, given_axes=axes is not None, wide=dtype == "float64", real=real)
    worst = 0.0
    for part, good in zip(got, (want.cos, want.sin), strict=True):
        assert dtype in str(part.dtype)
        assert tuple(part.shape) == good.shape
        allowed = factor * (want.error + UNIT[dtype] * (factor != 1 or dtype not in {"float32", "float64"})) + (
            LEAST[dtype] if dtype == "float16" else 0
        )
        difference = np.abs(lib.get(part).astype(np.float64) - factor * good)
        worst = max(worst, float(np.max(difference / allowed, initial=0.0)))
    assert worst <= 1, f"{worst} of what is allowed at {at} with {rows}"
    return worst


def takes_fused(case: Case) -> bool:
    """Whether to make a table with ``fused=True``: only if it compiles nothing new for the shape."""
    return case.lib.name in {"numpy", "torch-cpu"} and HAS_NUMBA and case.rarely(0.5)


def call_consecutive(case: Case) -> float:
    """Call ``Rope.table`` for consecutive positions and for the last alone; return the largest error over its bound."""
    lib, (given_frequencies, rows) = case.lib, random_frequencies(case)
    axes = len(rows) if isinstance(given_frequencies[0], tuple) else None
    count = case.one_of(0, 1, 2, 63, 64, 65, case.form.randrange(300))
    first = min(int(random_integers(case, ())), FAR - count)
    at = np.arange(first, first + count)
    columns = at[:, None] if axes is None else np.stack([at] * axes, axis=-1)
    as_range, like = axes is None and case.rarely(0.7), lib(np.ones(1), "float32")
    host = range(first, first + count) if as_range else at if axes is None else columns
    given, last = (part if as_range else lib(part, "int32") for part in (host, host[-1:]))
    rope, fused = ra.Rope(given_frequencies, pairing="half"), case.fused or takes_fused(case)
    got = [lib.get(part) for part in rope.table(given, like=like, fused=fused)]
    cos, sin, _ = oracle.table(columns, rows)
    worst = max(float(np.max(np.abs(a - b), initial=0.0)) for a, b in zip(got, (cos, sin), strict=True)) / 1.2e-7
    assert worst <= 1, f"{worst} of what is allowed for {count} positions from {first} on with {rows}"
    if count and not case.lib.name.startswith(
        ("jax", "mlx", "dask")
    ):  # these compile or compute a single row differently
        alone = rope.table(last, like=like, fused=fused)
        assert all(same(lib.get(part)[0], whole[-1]) for part, whole in zip(alone, got, strict=True))
    return worst


def call_rotate(case: Case) -> float:
    """Call ``rotate`` with a random table of any dtype and layout; return the largest error divided by its bound."""
    lib, pairs, start = case.lib, case.one_of(1, 2, 3, 4, 8), case.one_of(0, 0, 0, 1, 2)
    dtype, pairing = case.form.choice(lib.dtypes), case.one_of("half", "interleaved")
    x = draw_x(case, case.form.randrange(1, 7), start + 2 * pairs + case.one_of(0, 0, 1, 3), dtype)
    batch = x.host.shape[:-1][case.form.randrange(x.host.ndim) :]
    shape = (*(case.form.choice((n, 1)) if n else n for n in batch), pairs)
    names = [case.form.choice([dtype, *lib.dtypes])] * 2
    cos, sin = (random_view(case, case.numbers(shape), name) for name in names)
    inverse, out = case.rarely(0.3), out_like(case, x, dtype)
    got = ra.rotate(
        x.array,
        cos.array,
        sin.array,
        pairing=pairing,
        inverse=inverse,
        start=start,
        fused=case.fused,
        **({} if out is None else {"out": out.array}),
    )
    unit = UNIT["float64" if dtype == "float64" else "float32"]
    c, s = (part.host.astype(np.float64) for part in (cos, sin))
    rounding = unit * np.max(np.abs([c, s]), initial=0.0)  # a float64 table is cast to float32
    want, error = expected(x.host, Table(c, -s if inverse else s, float(rounding)), pairing, start, 1, unit)
    worst = error_ratio(lib, got, x, want, error, dtype)
    check_out(case, out, got)
    assert all(part.is_untouched(lib) for part in (x, cos, sin))
    return worst


def call_rope(case: Case) -> float:
    """Call ``Rope.apply`` or ``rope(q, k)``; return the largest error divided by its bound."""
    lib, real = case.lib, case.rarely(0.2)
    given_frequencies, rows = random_frequencies(case, fastest=TURN if real else 65_536.0)
    axes = len(rows) if isinstance(given_frequencies[0], tuple) else None
    pairs, start, pairing = len(rows[0]), case.one_of(0, 0, 0, 1, 2), case.one_of("half", "interleaved")
    blocks = case.form.choice([b for b in (1, 1, 1, 2, 4) if pairs % b == 0])
    factor, dtype = case.one_of(1.0, 1.0, case.form.uniform(0.2, 5)), case.form.choice(lib.dtypes)
    rope = ra.Rope(given_frequencies, pairing=pairing, attention_factor=factor, start=start, blocks=blocks)
    k = draw_x(case, case.form.randrange(2, 7), start + 2 * pairs + case.one_of(0, 0, 1, 3), dtype)
    seq = case.form.randrange(k.host.ndim - 1)
    seq_axis = case.one_of(seq, seq - k.host.ndim)
    given, at = token_positions(case, k.host.shape, seq, axes, real=real)
    wide = dtype == "float64"
    table = exact_table(lib, at, rows, given_axes=axes is not None, wide=wide, real=real)
    table = Table(
        factor * table.cos, factor * table.sin, factor * (table.error + UNIT["float64" if wide else "float32"])
    )
    if np.ndim(given) and case.rarely(0.25):
        given = rope.table(given, like=k.array)
    unit = UNIT["float64" if wide else "float32"]

    def wanted(x: View, part: slice, *, inverse: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return the rotated x and its error bound, for the tokens of a slice."""

        def cut(values: Any) -> Any:
            """Return the rows of a slice of tokens, reshaped for x."""
            if np.ndim(values) == 0:
                return values
            one = values if values.shape[-2] == 1 else values[..., part, :]
            return align_table(one, x.host.ndim, seq)

        scale = factor**-2 if inverse else 1.0
        mine = Table(scale * cut(table.cos), scale * (-1 if inverse else 1) * cut(table.sin), scale * cut(table.error))
        mine.error = mine.error + 2 * unit * scale * factor
        return expected(x.host, mine, pairing, start, blocks, unit)

    if case.rarely(0.6):
        inverse, out = case.rarely(0.3), out_like(case, k, dtype)
        got = rope.apply(
            k.array,
            given,
            seq_axis=seq_axis,
            inverse=inverse,
            fused=case.fused,
            **({} if out is None else {"out": out.array}),
        )
        worst = error_ratio(lib, got, k, *wanted(k, slice(None), inverse=inverse), dtype)
        check_out(case, out, got)
        assert k.is_untouched(lib)
        return worst
    tokens = k.host.shape[seq]
    queries = tokens if case.rarely(0.5) else case.form.randint(0, tokens)
    shape = list(k.host.shape)
    shape[seq] = queries
    q = random_view(case, case.numbers(tuple(shape)), dtype)
    outs = out_like(case, q, dtype), out_like(case, k, dtype)
    out = None if None in outs else tuple(o.array for o in outs)
    outs = outs if out else (None, None)
    results = rope(q.array, k.array, given, seq_axis=seq_axis, fused=case.fused, out=out)
    worst = 0.0
    for x, part, got, into in zip((q, k), (slice(tokens - queries, None), slice(None)), results, outs, strict=True):
        worst = max(worst, error_ratio(lib, got, x, *wanted(x, part), dtype))
        check_out(case, into, got)
        assert x.is_untouched(lib)
    return worst


def call_reposition(case: Case) -> float:
    """Call ``Rope.reposition``; return the largest error over its bound. It is linear, so any array can be the keys."""
    lib = case.lib
    given_frequencies, rows = random_frequencies(case, fastest=TURN)
    axes = len(rows) if isinstance(given_frequencies[0], tuple) else None
    dtype, pairing, start = case.form.choice(lib.dtypes), case.one_of("half", "interleaved"), case.one_of(0, 0, 1)
    rope = ra.Rope(given_frequencies, pairing=pairing, start=start)
    k = draw_x(case, case.form.randrange(2, 6), start + 2 * len(rows[0]) + case.one_of(0, 2), dtype)
    seq = case.form.randrange(k.host.ndim - 1)
    (old, was), (new, will) = (token_positions(case, k.host.shape, seq, axes, real=False) for _ in range(2))
    tail = 1 if axes is None else 2
    most = max(was.ndim, will.ndim)
    was, will = (a.reshape(*a.shape[:-tail], *(1,) * (most - a.ndim), *a.shape[-tail:]) for a in (was, will))
    both = np.concatenate(np.broadcast_arrays(*((a if axes else a[..., None]) for a in (will, was))), axis=-1)
    out = out_like(case, k, dtype)
    got = rope.reposition(k.array, old, new, seq_axis=seq, **({} if out is None else {"out": out.array}))
    move = rows + [[-f for f in row] for row in rows]
    table = exact_table(lib, both, move, given_axes=True, wide=dtype == "float64", real=False)
    unit = UNIT["float64" if dtype == "float64" else "float32"]
    parts = (align_table(part, k.host.ndim, seq) for part in (table.cos, table.sin))
    error = table.error if np.ndim(table.error) == 0 else align_table(np.asarray(table.error), k.host.ndim, seq)
    worst = error_ratio(lib, got, k, *expected(k.host, Table(*parts, error), pairing, start, 1, unit), dtype)
    check_out(case, out, got)
    assert k.is_untouched(lib)
    return worst


CALLS = {call_rope: 0.5, call_rotate: 0.3, call_table: 0.1, call_consecutive: 0.05, call_reposition: 0.05}


# --- the soak ---------------------------------------------------------------------------------------------------------


Kinds = Sequence[str] | None  # of calls; None for all


def installed_shares() -> dict[str, float]:
    """Return the shares of all calls, for the libraries that are installed."""

    def is_there(name: str) -> bool:
        """Whether a library and its device are there."""
        try:
            with ExitStack() as stack:
                stack.enter_context(contextmanager(LIBRARIES[name.partition(",")[0]])())
        except pytest.skip.Exception:
            return False
        return True

    return {name: share for name, share in SHARES.items() if is_there(name)}


def make_call(seed: int, number: int, shares: dict[str, float], kinds: Kinds = None) -> tuple[str, str, float]:
    """Make the call of a number; return its library, its kind, and its error divided by the bound."""
    form = random.Random((seed << 40) + number)
    (name,) = form.choices([*shares], [*shares.values()])
    if name in FORMS:
        form = random.Random(f"{name} {seed} {form.randrange(FORMS[name])}")
    calls = {call: share for call, share in CALLS.items() if not kinds or call.__name__.removeprefix("call_") in kinds}
    (call,) = form.choices([*calls], [*calls.values()])
    library, _, fused = name.partition(", ")
    with contextmanager(LIBRARIES[library])() as lib:
        return name, call.__name__, call(Case(lib, form, np.random.default_rng([seed, number]), bool(fused)))


def memory() -> float:
    """Return the resident memory of this process in MiB."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096 / 2**20


@dataclass
class Report:
    """The figures of a soak."""

    calls: Counter[tuple[str, str]]
    worst: dict[str, float]
    memory: list[float]
    seconds: float

    def grown(self) -> float:
        """Return the growth in MiB from the second tenth of the calls to the last."""
        tenth = max(len(self.memory) // 10, 1)
        return median(self.memory[-tenth:]) - median(self.memory[tenth : 2 * tenth] or self.memory)


def soak(
    calls: int, seed: int, first: int = 0, done: Any = lambda *_: None, *, kinds: Kinds = None, names: Kinds = None
) -> Report:
    """Make random calls of some kinds and libraries, by default of all; raise at the first wrong one."""
    shares = {name: share for name, share in installed_shares().items() if not names or name in names}
    begin = time.perf_counter()
    report = Report(Counter(), dict.fromkeys(shares, 0.0), [], 0.0)
    with warnings.catch_warnings(), suppress(KeyboardInterrupt):
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "fused=True falls back", RuntimeWarning)  # no float16 in Numba
        for number in range(first, first + calls):
            try:
                name, kind, worst = make_call(seed, number, shares, kinds)
            except Exception as error:
                error.add_note(f"call {number}: python tools/soak.py --seed {seed} --first {number} --calls 1")
                raise
            report.calls[name, kind] += 1
            report.worst[name] = max(report.worst[name], worst)
            if number % 1000 == 0:
                gc.collect()
                report.memory.append(memory())
                done("calls", 1000)
    report.seconds = time.perf_counter() - begin
    return report


def main() -> None:
    """Run a soak test with the options of the command line, and print its figures."""
    from rope_any.cli._common import progress

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("calls", 1_000_000), ("seed", 0), ("first", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("kinds", "libraries"):
        parser.add_argument(f"--{name}", nargs="+")
    asked = parser.parse_args()
    with progress("soak", asked.calls) as done:
        report = soak(asked.calls, asked.seed, asked.first, done, kinds=asked.kinds, names=asked.libraries)
    calls = report.calls.total()  # fewer if it was interrupted
    print(f"{calls} calls from {asked.first} on, seed {asked.seed}, in {report.seconds:.0f} s: none wrong")
    for name, worst in report.worst.items():
        kinds = {
            kind.removeprefix("call_"): n for (library, kind), n in sorted(report.calls.items()) if library == name
        }
        shown = ", ".join(f"{kind} {n}" for kind, n in kinds.items())
        print(f"{name}: {sum(kinds.values())} calls ({shown}), largest error {worst:.2f} of its bound")
    if report.memory:
        print(f"memory: {report.memory[0]:.0f} MiB at first, then grown by {report.grown():.1f} MiB")
    sys.exit(calls >= 100_000 and report.grown() > 16)


if __name__ == "__main__":
    main()
