"""A call like an earlier one does less work, has the same bits, and is refused for the same reasons."""

import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from array_api_compat import array_namespace
from bits import PAIRINGS, ROPE, ROPES, F, bits, cpu_arrays, data, outcome, thread_count, with_cupy, work
from bits import empty_caches as _empty_caches  # noqa: F401  # a fixture
from cupy_stand_in import ndarray
from numpy.lib.stride_tricks import as_strided

import rope_any as ra

pytestmark = pytest.mark.thread_unsafe(reason="it clears caches of all threads, and counts their calls")


arrays, use_threads = cpu_arrays, thread_count


@pytest.fixture
def put(arrays, use_threads):
    """Return a function that wraps a NumPy array as an array of a library with plans, in the same memory."""
    use_threads(1)  # else others take some of the work
    ROPE.apply(arrays(data(1, 32)))  # plans are kept from the second array of a type on
    ra.clear_caches()
    return arrays


def qk(put, *, queries=6):
    """Return q and k with the same numbers in each call."""
    return tuple(put(data(2, heads, tokens, 32, seed=heads)) for heads, tokens in ((4, queries), (2, 6)))


# --- a second call does less work -------------------------------------------------------------------------------------


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
    "another table": lambda put, rope, **o: rope(*qk(put), rope.table(range(9, 15), like=qk(put)[0]), **o),
    "a pair of tables": _pair_of_tables,
    "a pair of bent tables": _bent,
    "fewer queries": lambda put, rope, **o: rope(*qk(put, queries=2), 3, **o),
    "one array": lambda put, rope, **o: rope.apply(qk(put)[0], 3, **o),
    "backwards": lambda put, rope, **o: rope.apply(qk(put)[0], 3, inverse=True, **o),
    "tokens before heads": lambda put, rope, **o: rope.apply(put(data(2, 6, 3, 32)), seq_axis=1, **o),
    "every second feature": lambda put, rope, **o: rope.apply(put(data(2, 6, 64)[..., ::2]), 3, **o),
    "20000 rows": lambda put, rope, **o: rope.apply(put(data(5, 4000, 32)), 3, **o),
    "in place": lambda put, rope, **o: rope(*(both := qk(put)), 5, out=both, **o),
    "into other arrays": lambda put, rope, **o: rope(*qk(put), out=qk(put), **o),
    "into slots": lambda put, rope, **o: rope.apply(
        put(data(6, 3, 32)), 5, seq_axis=-3, out=put(data(4, 2, 3, 32)), slots=put(np.asarray([7, 0, -1, 5, 2, 6])), **o
    ),
    "into another dtype": lambda put, rope, **o: rope.apply(put(data(6, 32)), 5, out=put(data(6, 32, dtype="f2")), **o),
    "repositioned": lambda put, rope, **_: rope.reposition(qk(put)[1], 5, put(np.arange(6))),
    "rotate": _rotated,
    "empty": lambda put, rope, **o: rope.apply(put(data(2, 0, 32)), **o),
    "blocks": lambda put, rope, **o: BLOCKS[rope.pairing].apply(put(data(2, 6, 40)), 3, **o),
    "a table to be made": lambda put, rope, **o: tuple(rope.table(range(7), like=put(data(6, 32)), **o)),
}
BLOCKS = {pairing: ra.Rope(F, pairing=pairing, blocks=2, start=1) for pairing in PAIRINGS}


@with_cupy
@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_does_less_work_with_the_same_bits(name, pairing, fused, put):
    if fused:
        pytest.importorskip("numba", reason="numba is not installed")
    call, results = partial(CALLS[name], put, ROPES[pairing], fused=fused), []
    record = lambda: results.append(bits(call()))  # noqa: E731
    first, _, second, third = (work(record) for _ in range(4))  # the second call keeps what it makes of a table
    ra.clear_caches()
    again = work(record)
    CALLS[name](put, ROPES[pairing], fused=not fused)  # by a plan of its own
    record()
    assert results == [results[0]] * 6
    least = 8 if (name, put) == ("a table to be made", ndarray) else 30  # plans of tables are those for CPU memory
    assert again - second > least and first - second > least and second == third


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_a_table_that_was_written_is_read_anew(pairing, fused, put):
    """A plan keeps what it made of a small table, as layer after layer rotates a token by the same one."""
    x, (cos, sin), results = put(data(4, 1, 32)), np.zeros((2, 1, 16), np.float32), []
    table, rows = (put(cos), put(sin)), data(4, 1, 16)  # in the same memory
    for clear in (True, False):
        sin[...] = 0
        for row in (*rows, -rows[-1], 0 * rows[0], -0.0 * rows[0], np.nan * rows[0]):
            for part in (cos, sin):
                part[...] = row
                results.append(bits(ra.rotate(x, *table, pairing=pairing, fused=fused)))
                if clear:
                    ra.clear_caches()
    assert results[:16] == results[16:]


def test_at_most_1024_plans_are_kept(put):
    table = ROPE.table(range(1), like=put(data(1)))

    def call(rows=1):
        """Rotate an array of some rows."""
        return ra.rotate(put(data(rows, 32)), *table, pairing="half")

    first, _, second = (work(call) for _ in range(3))
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


# What similar calls differ in, and what is refused. As keys True, 1 and 1.0 are equal.
POSITIONS = [None, 0, 1, np.int64(1), 3, 6, np.asarray(3), [5, 4, 3, 2, 1, 0], np.arange(6), np.arange(6.0) / 3]
POSITIONS += [range(6), range(9, 15), range(0, 6, 6), range(60, 0, -10), range(3, 4)]
WRONG_POSITIONS = [True, 1.0, 2**60, [0] * 7, range(7), range(2**60, 2**60 + 6)]
WRONG_POSITIONS += [np.asarray(3.0), np.arange(7), np.ones(6, bool)]
OPTIONS = [{}, {"inverse": True}, {"fused": np.False_}]
OPTIONS += [{"seq_axis": axis} for axis in (-3, 1, 0, np.int8(0))]
WRONG_OPTIONS = [{"inverse": 1}, {"seq_axis": True}, {"seq_axis": False}, {"seq_axis": -2.0}, {"fused": 0}]
OF_ROTATE = [{}, {"start": 0}, {"inverse": True}, {"pairing": "interleaved"}]
WRONG_OF_ROTATE = [{"start": False}, {"start": 0.0}, {"inverse": 0}, {"inverse": 1}, {"fused": 0}, {"pairing": None}]
OTHER_ROPES = [
    ra.Rope(F, pairing="half", attention_factor=1.5),
    ROPES["interleaved"],
    *(ra.Rope(rows, pairing="half") for rows in (F[::-1], F[:8], (F, F), (F,))),
    ra.Rope(F[:8], pairing="half", start=8),
    ra.Rope(F, pairing="half", blocks=2),
]
# Views ``(6, 6, 32)``, and the shapes of their arrays.
VIEWS = {
    "in order": (lambda x: x, (6, 6, 32)),
    "transposed": (lambda x: x.swapaxes(0, 1), (6, 6, 32)),
    "features first in memory": (lambda x: x.swapaxes(0, 2), (32, 6, 6)),
    "every other feature": (lambda x: x[..., ::2], (6, 6, 64)),
    "unaligned start": (lambda x: x[1:].reshape(6, 6, 32), (6 * 6 * 32 + 1,)),
    "one row six times": (lambda x: x[[0] * 6], (1, 6, 32)),
    "broadcast": (lambda x: array_namespace(x).broadcast_to(x, (6, 6, 32)), (6, 32)),
}
VIEWS_OF_NUMPY = {
    "backwards in memory": (lambda x: x[:, ::-1, ::-1], (6, 6, 32)),
    "not aligned": (lambda x: np.frombuffer(b"." + x.tobytes(), "f4", offset=1).reshape(x.shape), (6, 6, 32)),
    **{d: (lambda x, d=d: x.astype(d), (6, 6, 32)) for d in ("f2", "f8", ">f4", ml_dtypes.bfloat16)},
}
WRONG_OF_NUMPY = {
    "int32": (lambda x: x.astype("i4"), (6, 6, 32)),
    "complex64": (lambda x: x.astype("c8"), (6, 6, 32)),
    "np.matrix": (lambda x: x.view(np.matrix), (6, 32)),
    "np.ma": (np.ma.asarray, (6, 6, 32)),
    "a list": (lambda x: x.tolist(), (6, 6, 32)),
}
# Outputs, from q, k, another q and another k; those of NumPy, from an array.
OUTS = {"others": lambda _, __, a, b: (a, b), "q and k": lambda q, k, *_: (q, k)}
WRONG_OUTS = {
    "one for both": lambda _, __, a, ___: (a, a),
    "k and q": lambda q, k, *_: (k, q),
    "missing": lambda _, __, a, ___: (a, None),
}
WRONG_OUTS_OF_NUMPY = {
    "other shape": lambda x: x[:, :16],
    "integers": lambda x: x.astype("i4"),
    "read-only": lambda x: np.broadcast_to(x, x.shape),
    "broadcast": lambda x: as_strided(x, (6, 32), (0, 4)),
}


def table_at(put, *starts):
    """Return the table of six positions from a start on, or a tuple of such tables."""
    tables = tuple(ROPE.table(put(np.arange(6) + start)) for start in starts)
    return tables if len(tables) > 1 else tables[0]


def into(put, start, *, cos_at=None, rotate=ROPE.apply):
    """Rotate x into an out that begins at an offset in the memory of x, as cos may."""
    memory, (cos, sin) = data(1000), ROPE.table(np.arange(6))
    if cos_at is not None:
        view = memory[cos_at : cos_at + 96].reshape(6, 16)
        view[...] = cos
        cos = view
    x, out = (None if at is None else put(memory[at : at + 192].reshape(6, 32)) for at in (0, start))
    return rotate(x, ra.Table(put(cos), put(sin)), out=out)


def one_row(put, rope):
    """Rotate many tokens backwards by one row of a table, which is divided by the factor if there is one."""
    x = put(data(1, 1, 4096, 32))
    row = ROPE.table(range(5, 6), like=x)
    wide = ra.Table(*(array_namespace(x).broadcast_to(part, (4096, 16)) for part in row))
    return tuple(rope.apply(x, wide, inverse=True, fused=fused) for fused in (False, True))


def into_others(put, choose):
    """Rotate q and k into outputs chosen from q, k, another q and another k."""
    arrays = [put(data(6, 32, seed=seed)) for seed in range(4)]
    return ROPE(*arrays[:2], out=choose(*arrays))


def by_table(x, table, out=None, **options):
    """Rotate by a table, with other options."""
    return ra.rotate(x, *table, **{"pairing": "half", **options}, out=out)


def with_arguments(put, positions, options, of_rotate, outs):
    """Return calls with each of the positions, options and outputs, by name."""
    x, table = put(data(6, 6, 32)), table_at(put, 0)
    given = [put(p) if isinstance(p, np.ndarray) else p for p in positions]
    return {
        **{f"positions {i}: {p!r}": partial(ROPE.apply, x, p) for i, p in enumerate(given)},
        **{f"options {given}": partial(ROPE.apply, x, 3, **given) for given in options},
        **{f"rotate {given}": partial(by_table, x, table, **given) for given in of_rotate},
        **{f"out: {name}": partial(into_others, put, choose) for name, choose in outs.items()},
    }


def of_views(put, views):
    """Return calls of views by name, eager and fused."""
    pairs = [(name, view(put(data(*shape)))) for name, (view, shape) in views.items()]
    return {f"{name}, {fused}": partial(ROPE.apply, x, 3, fused=fused) for name, x in pairs for fused in (False, True)}


def similar_calls(put):
    """Return calls that are like another one here, and need a plan of their own."""
    x, tables, factor = put(data(6, 6, 32)), table_at(put, 0, 4), OTHER_ROPES[0]
    bent, wide = ra.bending.xpos(tables[0], range(6), centre=2)[0], ROPE.table(put(np.arange(6)), dtype="float64")
    moves = [(0, 5, None), (5, 0, None), (0, 5, factor), (None, put(np.arange(6)), factor)]
    calls = with_arguments(put, POSITIONS, OPTIONS, OF_ROTATE, OUTS) | of_views(put, VIEWS)
    if put is np.asarray:
        calls |= of_views(put, VIEWS_OF_NUMPY)
        calls["out runs backwards"] = lambda: ROPE.apply(data(6, 32), out=np.zeros((6, 32), "f4")[::-1, ::-1])
    for start in (None, 0, 200):
        calls[f"out at {start}"] = partial(into, put, start)
        calls[f"out of rotate at {start}"] = partial(into, put, start, rotate=by_table)
    return {
        **calls,
        **{f"{rope}": partial(rope.apply, x, 3) for rope in OTHER_ROPES},
        **{f"table {i}": partial(ROPE.apply, x, table) for i, table in enumerate((*tables, wide, bent))},
        **{
            f"tables {pair}": partial(ROPE, *qk(put), tuple(tables[i] for i in pair))
            for pair in ((0, 1), (1, 0), (0, 0))
        },
        **{f"move {i}": partial(ROPE.reposition, x, *move[:2], source=move[2]) for i, move in enumerate(moves)},
        "a table backwards": partial(ROPE.apply, x, tables[0], inverse=True),
        "another factor backwards": partial(factor.apply, x, 3, inverse=True),
        "one row backwards": partial(one_row, put, ROPE),
        "one row backwards with a factor": partial(one_row, put, factor),
    }


def refused_calls(put):
    """Return calls that are like one of `similar_calls`, and are refused."""
    x, (table, other) = put(data(6, 6, 32)), table_at(put, 0, 4)
    bent, few = ra.bending.xpos(table, range(6), centre=2)[0], ra.Table(*(part[:, :8] for part in table))
    tables = [tuple(table), ra.Table(*[put(np.ones((6, 16), int))] * 2), few, (table, other)]
    calls = with_arguments(put, WRONG_POSITIONS, WRONG_OPTIONS, WRONG_OF_ROTATE, WRONG_OUTS)
    if put is np.asarray:
        tables.append(ra.Table(*map(np.ma.asarray, table)))
        calls |= of_views(put, WRONG_OF_NUMPY)
        outs = {name: change(np.zeros((6, 32), "f4")) for name, change in WRONG_OUTS_OF_NUMPY.items()}
        calls |= {f"out of {name}": partial(ROPE.apply, data(6, 32), out=out) for name, out in outs.items()}
    return {
        **calls,
        **{f"wrong table {i}": partial(ROPE.apply, x, table) for i, table in enumerate(tables)},
        "a bent table backwards": partial(ROPE.apply, x, bent, inverse=True),
        "out overlaps x": partial(into, put, 32),
        "out overlaps x by one number": partial(into, put, 191),
        "out overlaps cos": partial(into, put, 200, cos_at=300),
        "out of rotate overlaps x": partial(into, put, 31, rotate=by_table),
        "out of rotate overlaps cos by one number": partial(into, put, 200, cos_at=391, rotate=by_table),
    }


@with_cupy
@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
def test_the_outcome_of_a_call_does_not_depend_on_the_plans_of_similar_calls(put):
    calls, refused, expected = similar_calls(put), refused_calls(put), {}
    for name, call in (calls | refused).items():
        ra.clear_caches()
        expected[name] = outcome(call)
        assert isinstance(expected[name], str) is (name in refused), name
    names = [*expected, *expected]  # after all others, and by its own plan
    for order in (names, names[::-1]):
        ra.clear_caches()
        for name in order:
            assert outcome((calls | refused)[name]) == expected[name], name


def test_arrays_of_two_libraries_are_refused_after_a_plan(torch):
    x, theirs = data(6, 32), torch.ones(6, 32)
    for first in (x, theirs):
        ROPE(first, first)
    for names, call in (
        ("q and k", lambda: ROPE(x, theirs)),
        ("q and k and positions", lambda: ROPE(x, x, torch.arange(6))),
        ("x and positions", lambda: ROPE.apply(x, torch.arange(6))),
        ("x and out", lambda: ROPE.apply(x, out=theirs)),
        ("keys and old", lambda: ROPE.reposition(x, torch.arange(6), 0)),
        ("keys and new", lambda: ROPE.reposition(x, 0, torch.arange(6))),
    ):
        with pytest.raises(TypeError, match=f"^{names} must come from one array library; got"):
            call()


def test_out_of_q_that_overlaps_the_table_of_k_is_refused(put):
    (q, k, to_k), memory, table = (put(data(6, 32)) for _ in range(3)), data(6, 32), table_at(put, 0)
    of_k = ra.Table(put(memory[:3].reshape(6, 16)), table.sin)
    with pytest.raises(ValueError, match="overlap"):
        ROPE(q, k, (table, of_k), out=(put(memory), to_k))


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


# --- threads ----------------------------------------------------------------------------------------------------------


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
