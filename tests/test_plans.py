"""A call like an earlier one does less work, has the same bits, and is refused for the same reasons."""

import gc
import itertools
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec

import ml_dtypes
import numpy as np
import pytest
from array_api_compat import array_namespace
from bits import bits, data, outcome, work
from numpy.lib.stride_tricks import as_strided

import rope_any as ra

pytestmark = pytest.mark.thread_unsafe(reason="it clears caches of all threads, and counts their calls")

PAIRINGS = ("half", "interleaved")
F = ra.frequencies(32, base=100.0)
ROPES = {pairing: ra.Rope(F, pairing=pairing) for pairing in PAIRINGS}
ROPE = ROPES["half"]


@pytest.fixture(autouse=True)
def _empty_caches():
    """Clear the caches before and after each test."""
    ra.clear_caches()
    yield
    ra.clear_caches()


@pytest.fixture(params=["numpy", "torch"])
def put(request):
    """Return a function that wraps a NumPy array as an array of a library with plans, in the same memory."""
    if request.param == "torch":  # in one thread: else others take some of the work
        module = pytest.importorskip("torch", reason="torch is not installed")
        threads = module.get_num_threads()
        module.set_num_threads(1)
    make = np.asarray if request.param == "numpy" else module.from_numpy
    ROPE.apply(make(data(1, 32)))  # plans are kept from the second array of a type on
    ra.clear_caches()
    yield make
    if request.param == "torch":
        module.set_num_threads(threads)


def qk(put, *, queries=6):
    """Return q and k with the same numbers in each call."""
    return tuple(put(data(2, heads, tokens, 32, seed=heads)) for heads, tokens in ((4, queries), (2, 6)))


# --- a second call does less work -------------------------------------------------------------------------------------


def _in_place(put, rope, **options):
    """Rotate q and k in place."""
    q, k = qk(put)
    return rope(q, k, 5, out=(q, k), **options)


def _into_others(put, rope, **options):
    """Rotate q and k into other arrays."""
    (q, k), (to_q, to_k) = qk(put), qk(put)
    return rope(q, k, out=(to_q, to_k), **options)


def _pair_of_tables(put, rope, **options):
    """Rotate q and k by a table each."""
    q, k = qk(put)
    return rope(q, k, (rope.table(range(6), like=q), rope.table(range(3, 9), like=k)), **options)


def _bent(put, rope, **options):
    """Rotate q and k by an xPos table."""
    q, k = qk(put)
    return rope(q, k, ra.bending.xpos(rope.table(range(6), like=q), range(6), centre=3), **options)


def _rotated(put, rope, **options):
    """Rotate backwards by `rotate` from the fourth feature on."""
    x, table = put(data(3, 6, 40)), rope.table(range(6), like=put(data(1)))
    return ra.rotate(x, *table, pairing=rope.pairing, start=3, inverse=True, **options)


CALLS = {
    "no positions": lambda put, rope, **o: rope(*qk(put), **o),
    "an int": lambda put, rope, **o: rope(*qk(put), 70_000, **o),
    "an array": lambda put, rope, **o: rope(*qk(put), put(np.arange(5, 11)), **o),
    "an array with a batch": lambda put, rope, **o: rope(*qk(put), put(np.arange(12).reshape(2, 6)), **o),
    "an array of one number": lambda put, rope, **o: rope(*qk(put), put(np.asarray(9)), **o),
    "a range": lambda put, rope, **o: rope(*qk(put), range(3, 9), **o),
    "a table": lambda put, rope, **o: rope(*qk(put), rope.table(range(6), like=qk(put)[0]), **o),
    "a pair of tables": _pair_of_tables,
    "a pair of bent tables": _bent,
    "fewer queries": lambda put, rope, **o: rope(*qk(put, queries=2), 3, **o),
    "one array": lambda put, rope, **o: rope.apply(qk(put)[0], 3, **o),
    "backwards": lambda put, rope, **o: rope.apply(qk(put)[0], 3, inverse=True, **o),
    "tokens before heads": lambda put, rope, **o: rope.apply(put(data(2, 6, 3, 32)), seq_axis=1, **o),
    "20000 rows": lambda put, rope, **o: rope.apply(put(data(5, 4000, 32)), 3, **o),
    "in place": _in_place,
    "into other arrays": _into_others,
    "repositioned": lambda put, rope, **_: rope.reposition(qk(put)[1], 5, put(np.arange(6))),
    "rotate": _rotated,
    "empty": lambda put, rope, **o: rope.apply(put(data(2, 0, 32)), **o),
    "blocks": lambda put, rope, **o: BLOCKS[rope.pairing].apply(put(data(2, 6, 40)), 3, **o),
    "a table to be made": lambda put, rope, **o: tuple(rope.table(range(7), like=put(data(6, 32)), **o)),
}
BLOCKS = {pairing: ra.Rope(F, pairing=pairing, blocks=2, start=1) for pairing in PAIRINGS}


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_does_less_work_with_the_same_bits(name, pairing, fused, put, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    if fused:
        pytest.importorskip("numba", reason="numba is not installed")
    call, results = partial(CALLS[name], put, ROPES[pairing], fused=fused), []
    record = lambda: results.append(bits(call()))  # noqa: E731
    first, second, third = (work(record) for _ in range(3))
    ra.clear_caches()
    again = work(record)
    CALLS[name](put, ROPES[pairing], fused=not fused)  # by a plan of its own
    record()
    assert results == [results[0]] * 5
    assert again - second > 40 and first - second > 40 and second == third


def test_at_most_1024_plans_are_kept(put):
    table = ROPE.table(range(1), like=put(data(1)))

    def call(rows=1):
        """Rotate an array of some rows."""
        return ra.rotate(put(data(rows, 32)), *table, pairing="half")

    first, second = work(call), work(call)
    for rows in range(2, 1000):
        call(rows)
    kept = work(call)
    for rows in range(1000, 1030):
        call(rows)
    assert (first, second) == (work(call), kept)
    assert second < first


@pytest.mark.parametrize("name", CALLS)
def test_arrays_are_freed_while_their_plan_is_kept(name, put):
    given = []

    def putting(x):
        """Return an array of the library, and record it."""
        given.append(put(x))
        return given[-1]

    result = CALLS[name](putting, ROPE)
    alive = [weakref.ref(x) for x in (*given, *(result if isinstance(result, tuple) else (result,)))]
    given.clear()
    del result
    gc.collect()
    assert [ref() for ref in alive] == [None] * len(alive)


@pytest.mark.parametrize("fused", [False, True])
def test_a_second_table_has_the_numbers_of_cos_sin(put, fused):
    pytest.importorskip("numba", reason="numba is not installed")
    like = put(data(6, 32))
    for positions in (range(7), range(7), range(100, 101), range(-3, 5), range(0), range(3, 1), range(0, 8, 2)):
        got = ROPE.table(positions, like=like, fused=fused)
        assert bits(tuple(got)) == bits(tuple(ra.cos_sin(positions, F, like=like, fused=fused)))
    for other in ({"like": put(data(6, 32, dtype="float64"))}, {"like": like, "dtype": like.dtype}):
        expected = ra.cos_sin(range(7), F, **other)
        assert all(bits(tuple(ROPE.table(range(7), **other))) == bits(tuple(expected)) for _ in range(2))
    with pytest.raises(TypeError, match="must be an array, or come with `like`"):
        ROPE.table(range(7))


# --- the outcome of a call does not depend on the plans of similar calls ----------------------------------------------


def _views(put, start, length=192, *, shape=(6, 32), table_at=None):
    """Return x, out that begins at `start` in the memory of x (or None), and a table, in that memory or elsewhere."""
    memory = data(1000)
    x, out = (None if at is None else put(memory[at : at + length].reshape(shape)) for at in (0, start))
    cos, sin = ROPE.table(np.arange(6))
    if table_at is not None:
        view = memory[table_at : table_at + 96].reshape(6, 16)
        view[...] = cos
        cos = view
    return x, out, ra.Table(put(cos), put(sin))


def _out(start, table_at=None, rotate=lambda x, table, out: ROPE.apply(x, table, out=out)):
    """Return a maker of calls with `out` at an offset in one array with x."""

    def call(put):
        """Return the call."""
        x, out, table = _views(put, start, table_at=table_at)
        return lambda: rotate(x, table, out)

    return call


_rotate_out = partial(_out, rotate=lambda x, table, out: ra.rotate(x, *table, pairing="half", out=out))


def _out_of_call(choose):
    """Return a call whose out is chosen from q, k, another q and another k."""

    def call(put):
        """Return a call of a Rope with the `out` that `choose` returns."""
        q, k, to_q, to_k = (put(data(6, 32, seed=seed)) for seed in range(4))
        return lambda: ROPE(q, k, out=choose(q, k, to_q, to_k))

    return call


def _view(view, *shape):
    """Return a maker of calls with a view ``(6, 6, 32)`` of an array of a shape."""

    def call(put):
        """Return a call on the view of an array."""
        x = view(put(data(*(shape or (6, 6, 32)))))
        return lambda: (ROPE.apply(x, 3), ROPE.apply(x, 3, fused=True))

    return call


def _numpy(change):
    """Return a maker of calls with NumPy's x, changed by a function."""
    return lambda _: partial(ROPE.apply, change(data(6, 6, 32)), 3)


def _dtype(dtype):
    """Return a maker of calls with NumPy's x of a dtype."""
    return _numpy(lambda x: x.astype(dtype))


def _at(positions, rope=ROPE, **options):
    """Return a call at positions, which can be a function of `put`."""

    def call(put):
        """Return a call at positions."""
        x, at = put(data(6, 6, 32)), positions(put) if callable(positions) else positions
        return lambda: rope.apply(x, at, **options)

    return call


def _rotate_with(**options):
    """Return a maker of `rotate` calls with options."""

    def call(put):
        """Return the call."""
        x, table = put(data(6, 32)), ROPE.table(put(np.arange(6)))
        return lambda: ra.rotate(x, *table, **{"pairing": "half", **options})

    return call


def _table(first=0, change=lambda table: table, **options):
    """Return a maker of a changed table of six positions from the first on."""
    return lambda put: change(ROPE.table(put(np.arange(6) + first), **options))


def _bent_table(put):
    """Return a table of xPos."""
    return ra.bending.xpos(ROPE.table(put(np.arange(6))), range(6), centre=2)[0]


def _tables_at(*starts):
    """Return a maker of tables, one for each start."""
    return lambda put: tuple(_table(first)(put) for first in starts)


def _with_tables(make):
    """Return a maker of calls of q and k with a pair of tables."""
    return lambda put: partial(ROPE, *qk(put), make(put))


def _read_only(x):
    """Return x, made read-only."""
    x.setflags(write=False)
    return x


def _numpy_out(view):
    """Return a call of NumPy arrays whose out is a view of another array."""

    def call(_):
        """Return a call with a view as `out`."""
        x, out = data(6, 32), view(np.zeros((6, 32), np.float32))
        return lambda: ROPE.apply(x, out=out)

    return call


OTHERS, AT_3, ARRAY = _out_of_call(lambda _, __, a, b: (a, b)), _at(3), _at(lambda put: put(np.arange(6)))
A_TABLE, A_RANGE, F4, NEW = _at(_table()), _at(range(6)), _dtype("f4"), _numpy_out(lambda x: x)
IN_ORDER = _view(lambda x: x)

# A call that makes a plan, and a similar call that needs another one.
SIMILAR = {
    # the output
    "out is x": (_out(200), _out(0)),
    "out of rotate is x": (_rotate_out(200), _rotate_out(0)),
    "out is q and k": (OTHERS, _out_of_call(lambda q, k, *_: (q, k))),
    "out runs backwards": (NEW, _numpy_out(lambda x: x[::-1, ::-1])),
    # memory and dtypes
    "transposed": (IN_ORDER, _view(lambda x: x.swapaxes(0, 1))),
    "features first in memory": (IN_ORDER, _view(lambda x: x.swapaxes(0, 2), 32, 6, 6)),
    "every other feature": (IN_ORDER, _view(lambda x: x[..., ::2], 6, 6, 64)),
    "unaligned start": (IN_ORDER, _view(lambda x: x[1:].reshape(6, 6, 32), 6 * 6 * 32 + 1)),
    "one row six times": (IN_ORDER, _view(lambda x: x[[0] * 6], 1, 6, 32)),
    "broadcast": (IN_ORDER, _view(lambda x: array_namespace(x).broadcast_to(x, (6, 6, 32)), 6, 32)),
    "backwards in memory": (F4, _numpy(lambda x: x[:, ::-1, ::-1])),
    "not aligned": (F4, _numpy(lambda x: np.frombuffer(b"." + x.tobytes(), "f4", offset=1).reshape(x.shape))),
    "float16": (F4, _dtype("f2")),
    "float64": (F4, _dtype("f8")),
    "the other byte order": (F4, _dtype(">f4")),
    "the other byte order first": (_dtype(">f4"), F4),
    "bfloat16": (_dtype("f2"), _dtype(ml_dtypes.bfloat16)),
    "float16 after bfloat16": (_dtype(ml_dtypes.bfloat16), _dtype("f2")),
    # positions
    "positions 0": (_at(None), _at(0)),
    "no positions": (_at(0), _at(None)),
    "an int of NumPy": (_at(1), _at(np.int64(1))),
    "a 0-d array": (AT_3, _at(lambda put: put(np.asarray(3)))),
    "positions of a float dtype": (ARRAY, _at(lambda put: put(np.arange(6.0) / 3))),
    "a range with another start": (A_RANGE, _at(range(9, 15))),
    "a range with steps": (A_RANGE, _at(range(60, 0, -10))),
    "a range of one": (A_RANGE, _at(range(3, 4))),
    "an int for a range of as many": (A_RANGE, _at(6)),
    "a list of ints": (ARRAY, _at([5, 4, 3, 2, 1, 0])),
    # tables
    "a table of other positions": (A_TABLE, _at(_table(5))),
    "a pair of other tables": (_with_tables(_tables_at(0, 4)), _with_tables(_tables_at(4, 0))),
    "one table twice, then two": (_with_tables(lambda put: (_table()(put),) * 2), _with_tables(_tables_at(0, 4))),
    "a table of float64": (A_TABLE, _at(_table(dtype="float64"))),
    "a bent table": (A_TABLE, _at(_bent_table)),
    # options
    "backwards": (AT_3, _at(3, inverse=True)),
    "seq_axis from the front": (_at(3, seq_axis=-3), _at(3, seq_axis=1)),
    "seq_axis of NumPy": (_at(3, seq_axis=0), _at(3, seq_axis=np.int8(0))),
    "fused of NumPy": (AT_3, _at(3, fused=np.False_)),
    "the other pairing": (_rotate_with(), _rotate_with(pairing="interleaved")),
    # Ropes
    "another factor": (AT_3, _at(3, ra.Rope(F, pairing="half", attention_factor=1.5))),
    "another factor backwards": (
        _at(3, inverse=True),
        _at(3, ra.Rope(F, pairing="half", attention_factor=1.5), inverse=True),
    ),
    "other frequencies": (AT_3, _at(3, ra.Rope(F[::-1], pairing="half"))),
    "the other pairing of a Rope": (AT_3, _at(3, ROPES["interleaved"])),
    "fewer pairs": (AT_3, _at(3, ra.Rope(F[:8], pairing="half"))),
    "another start": (_at(3, ra.Rope(F[:8], pairing="half")), _at(3, ra.Rope(F[:8], pairing="half", start=8))),
    "blocks": (AT_3, _at(3, ra.Rope(F, pairing="half", blocks=2))),
    "rows of frequencies": (AT_3, _at(3, ra.Rope((F, F), pairing="half"))),
    "one row of frequencies": (AT_3, _at(3, ra.Rope((F,), pairing="half"))),
}
# A call that makes a plan, and a similar call that is refused.
REFUSED = {
    # the output
    "out overlaps x": (_out(200), _out(32)),
    "out overlaps x by one number": (_out(200), _out(191)),
    "out overlaps cos": (_out(200), _out(200, table_at=300)),
    "out of rotate overlaps x": (_rotate_out(200), _rotate_out(31)),
    "out of rotate overlaps cos": (_rotate_out(200), _rotate_out(200, table_at=391)),
    "out of rotate after none": (_rotate_out(None), _rotate_out(31)),
    "out after none": (_out(None), _out(32)),
    "one out for both": (OTHERS, _out_of_call(lambda _, __, a, ___: (a, a))),
    "out is k and q": (OTHERS, _out_of_call(lambda q, k, *_: (k, q))),
    "out is missing": (OTHERS, _out_of_call(lambda _, __, a, ___: (a, None))),
    "out of other shape": (_out(200), _numpy_out(lambda x: x[:, :16])),
    "out of other dtype": (_out(200), _numpy_out(lambda x: x.astype("f8"))),
    "out is read-only": (NEW, _numpy_out(_read_only)),
    "out is broadcast": (NEW, _numpy_out(lambda x: as_strided(x, (6, 32), (0, 4)))),
    # memory and dtypes
    "int32": (F4, _dtype("i4")),
    "complex64": (F4, _dtype("c8")),
    "np.matrix": (_numpy(lambda x: x[0]), _numpy(lambda x: x[0].view(np.matrix))),
    "np.ma": (F4, _numpy(np.ma.asarray)),
    "np.ma as a table": (A_TABLE, _at(lambda _: ra.Table(*map(np.ma.asarray, ROPE.table(np.arange(6)))))),
    "a list": (F4, _numpy(lambda x: x.tolist())),
    # positions
    "True": (_at(1), _at(True)),
    "a float": (_at(1), _at(1.0)),
    "an int beyond 53 bits": (_at(1), _at(2**60)),
    "a 0-d array of a float": (_at(lambda put: put(np.asarray(3))), _at(lambda put: put(np.asarray(3.0)))),
    "positions of a bool dtype": (ARRAY, _at(lambda put: put(np.ones(6, bool)))),
    "a longer range": (A_RANGE, _at(range(7))),
    "a range beyond 53 bits": (A_RANGE, _at(range(2**60, 2**60 + 6))),
    "a longer list": (A_RANGE, _at([0] * 7)),
    "a longer array": (ARRAY, _at(lambda put: put(np.arange(7)))),
    # tables
    "a plain tuple of a table": (A_TABLE, _at(_table(change=tuple))),
    "a table of integers": (A_TABLE, _at(lambda put: ra.Table(*[put(np.ones((6, 16), int))] * 2))),
    "a table of fewer pairs": (A_TABLE, _at(_table(change=lambda table: ra.Table(*(part[:, :8] for part in table))))),
    "a bent table backwards": (_at(_table(), inverse=True), _at(_bent_table, inverse=True)),
    "a pair of tables for one array": (A_TABLE, _at(_tables_at(0, 1))),
    # options
    "backwards as 1": (_at(3, inverse=True), _at(3, inverse=1)),
    "seq_axis True": (_at(3, seq_axis=1), _at(3, seq_axis=True)),
    "seq_axis False": (_at(3, seq_axis=0), _at(3, seq_axis=False)),
    "seq_axis of a float": (AT_3, _at(3, seq_axis=-2.0)),
    "fused 0": (AT_3, _at(3, fused=0)),
    "start False": (_rotate_with(start=0), _rotate_with(start=False)),
    "start of a float": (_rotate_with(start=0), _rotate_with(start=0.0)),
    "inverse 0": (_rotate_with(), _rotate_with(inverse=0)),
    "inverse 1": (_rotate_with(inverse=True), _rotate_with(inverse=1)),
    "fused of rotate 0": (_rotate_with(), _rotate_with(fused=0)),
    "no pairing": (_rotate_with(), _rotate_with(pairing=None)),
}


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("name", [*SIMILAR, *REFUSED])
def test_a_similar_call_does_not_use_a_wrong_plan(name, put):
    first, similar = (SIMILAR | REFUSED)[name]
    before = outcome(similar(put))
    ra.clear_caches()
    assert isinstance(outcome(first(put)), list)  # it is not refused, so there is a plan
    after = outcome(similar(put))
    again = outcome(similar(put))  # by its own plan, if it has one
    assert after == again == before
    assert isinstance(before, str) is (name in REFUSED)


def test_arrays_of_two_libraries_are_refused_after_a_plan(torch):
    x, theirs = data(6, 32), torch.ones(6, 32)
    ROPE.apply(x)
    ROPE.apply(theirs)
    ROPE(x, x)
    ROPE.apply(x, np.arange(6))
    for call in (
        lambda: ROPE(x, theirs),
        lambda: ROPE.apply(x, torch.arange(6)),
        lambda: ROPE.apply(theirs, np.arange(6)),
        lambda: ROPE.apply(x, out=theirs),
    ):
        with pytest.raises(TypeError, match="must come from one array library"):
            call()


def test_out_of_q_that_overlaps_the_table_of_k_is_refused(put):
    q, k, to_k = (put(data(6, 32, seed=seed)) for seed in range(3))
    memory = np.zeros((6, 32), np.float32)
    cos, sin = ROPE.table(np.arange(6))
    memory[:3].reshape(6, 16)[...] = cos
    of_k = ra.Table(put(memory[:3].reshape(6, 16)), put(sin))
    of_q = ROPE.table(put(np.arange(6)))
    with pytest.raises(ValueError, match="overlap"):
        ROPE(q, k, (of_q, of_k), out=(put(memory), to_k))


# --- values of arrays are read in each call ---------------------------------------------------------------------------


def test_modified_arrays_are_read_again(put):
    x, at, table = put(data(6, 32)), put(np.arange(6)), ROPE.table(put(np.arange(6)))
    calls = [lambda: ROPE.apply(x, at), lambda: ROPE.apply(x, table), lambda: ra.rotate(x, *table, pairing="half")]
    before = [bits(call()) for call in calls]
    at += 5
    x *= 3
    table.cos[...] = 0.5
    after = [bits(call()) for call in calls]
    ra.clear_caches()
    assert after == [bits(call()) for call in calls]
    assert all(a != b for a, b in zip(before, after, strict=True))


def test_reposition_reads_modified_positions_again(put):
    k, source = put(data(2, 6, 32)), ra.Rope(F[::-1], pairing="half", attention_factor=1.5)
    moves = [(0, 5, None), (5, 0, None), (0, 5, source), (None, put(np.arange(6)), source), ([1] * 6, range(6), None)]
    expected = []
    for old, new, before in moves:
        ra.clear_caches()
        expected.append(bits(ROPE.reposition(k, old, new, source=before)))
    assert [bits(ROPE.reposition(k, old, new, source=before)) for old, new, before in moves] == expected
    assert all(a != b for a, b in itertools.combinations(expected, 2))


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
def test_plans_with_and_without_attention_factor_are_separate(put):
    """A table with one row for all tokens is divided by a factor if there is one, and otherwise used unchanged."""
    with_factor, without = (ra.Rope(F, pairing="half", attention_factor=factor) for factor in (2.0, 1.0))
    x = put(data(1, 1, 4096, 32))
    rows = without.table(range(5, 6), like=x)
    wide = ra.Table(*(array_namespace(x).broadcast_to(part, (4096, 16)) for part in rows))
    for fused in (False, True):
        with_factor.apply(x, wide, inverse=True, fused=fused)
        got = without.apply(x, wide, inverse=True, fused=fused)
        expected = without.apply(x, [5] * 4096, inverse=True)
        np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=0, atol=1e-6)


# --- threads and processes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_threads_can_rotate_while_another_clears_the_caches(library):
    put = np.asarray
    if library == "torch":
        put = pytest.importorskip("torch", reason="torch is not installed").from_numpy
    names = [name for name in CALLS if name != "20000 rows"]
    calls = [partial(CALLS[name], put, rope) for name in names for rope in ROPES.values()]
    expected, done, before = [bits(call()) for call in calls], threading.Event(), sys.getswitchinterval()

    def work(seed):
        """Rotate in random order; return the numbers of wrong results."""
        order = np.random.default_rng(seed).integers(0, len(calls), 50)
        return [i for i in order if bits(calls[i]()) != expected[i]]

    def clear():
        """Clear the caches until the other threads end."""
        while not done.is_set():
            ra.clear_caches()

    sys.setswitchinterval(1e-4)
    with ThreadPoolExecutor(9) as pool:
        try:
            cleared = pool.submit(clear)
            assert [*pool.map(work, range(8))] == [[]] * 8
        finally:
            done.set()
            sys.setswitchinterval(before)
    cleared.result()


_FORK = """
import os, sys
import numpy as np
import rope_any as ra

arrays = [np.random.default_rng(0).uniform(-1, 1, (2, 6, 32)).astype("f4")]
if len(sys.argv) > 1:
    import torch
    arrays.append(torch.from_numpy(arrays[0]))
    torch.set_num_threads(1)
rope = ra.Rope(ra.frequencies(32), pairing="half")
at = [x[0, :, 0] * 10 for x in arrays]
rotate_all = lambda: [np.asarray(rope.apply(x, p)).tobytes() for x, p in zip(arrays, at)]
expected = rotate_all()
child = os.fork()
if child == 0:
    try:
        kept = rotate_all() == expected
        ra.clear_caches()
        os._exit(0 if kept and rotate_all() == expected else 1)
    finally:
        os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert rotate_all() == expected
"""


def _python(program, *arguments):
    """Run a program in a new process."""
    run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_inherits_the_caches():
    _python(_FORK, *(["torch"] if find_spec("torch") else []))
