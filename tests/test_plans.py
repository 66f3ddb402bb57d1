"""Plans and constants kept between calls: a second call makes no new plan, and is as exact as the first."""

import copy
import gc
import itertools
import os
import pickle
import subprocess
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

import rope_any as ra
from rope_any import _caches, _rope, _rotate, _schedules
from rope_any._arrays import Library, _numba, find
from rope_any._caches import PLANS

pytestmark = pytest.mark.thread_unsafe(reason="it counts and clears caches of all threads")

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
    module = np if request.param == "numpy" else pytest.importorskip("torch", reason="torch is not installed")
    make = np.asarray if module is np else module.from_numpy
    find(make(np.ones(1)))  # plans are kept from the second array of a type on
    return make


def data(*shape, dtype="float32", seed=0):
    """Return random numbers as a NumPy array."""
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(dtype)


def qk(put, *, queries=6):
    """Return q and k with the same numbers in each call."""
    return tuple(put(data(2, heads, tokens, 32, seed=heads)) for heads, tokens in ((4, queries), (2, 6)))


def bits(result):
    """Return one array or several as bytes, with their types, dtypes and shapes."""
    parts = result if isinstance(result, tuple) else (result,)
    return [(type(x).__name__, str(x.dtype), tuple(x.shape), _bytes(x)) for x in parts]


def _bytes(x):
    """Return the bytes of an array."""
    if find(x).name == "torch":
        x = x.detach().resolve_neg().contiguous()
        x = x.view({2: sys.modules["torch"].int16}.get(x.element_size(), x.dtype))  # NumPy has no bfloat16
    return np.asarray(x).tobytes()


def outcome(call):
    """Return the bits of a call's result, or the error that it raises."""
    try:
        return bits(call())
    except Exception as error:  # noqa: BLE001  # any error is compared
        return f"{type(error).__name__}: {error}"


def corrupt_caches(*, constants=True):
    """Make each kept plan raise, and each kept constant zero, so that any use is detected."""
    for key, plan in list(PLANS.items()):
        if key[1] == "table":
            continue
        PLANS[key] = plan._replace(run=_fail_on_use) if isinstance(plan, tuple) else _fail_on_use
    for kept in _caches._CONSTANTS.values() if constants else ():
        for key, rows in kept.items():
            angles = key == "angles"
            zeros = [] if angles else [(device, [row * 0 for row in arrays]) for device, arrays in rows]
            kept[key] = rows._replace(within_block=rows.within_block * 0) if angles else zeros


def _fail_on_use(*_):
    """Fail: this replaces plans that must not be used."""
    pytest.fail("a plan was used")


def cache_contents():
    """Return a comparable copy of the caches."""
    constants = {
        (id(prepared), key): [id(one) for one in rows]
        for prepared, kept in _caches._CONSTANTS.items()
        for key, rows in kept.items()
    }
    return dict(PLANS), constants


def first_constant(rope):
    """Return one of the constants that are kept for a Rope."""
    kept = next(iter(_caches._CONSTANTS[rope._prepared].values()))
    return kept.within_block if hasattr(kept, "within_block") else kept[0][1][0]


# --- a second call ----------------------------------------------------------------------------------------------------


def _in_place(put, rope):
    """Rotate q and k in place."""
    q, k = qk(put)
    return rope(q, k, 5, out=(q, k))


def _into_others(put, rope):
    """Rotate q and k into other arrays."""
    (q, k), (to_q, to_k) = qk(put), qk(put)
    return rope(q, k, out=(to_q, to_k))


def _pair_of_tables(put, rope):
    """Rotate q and k by a table each."""
    q, k = qk(put)
    return rope(q, k, (rope.table(range(6), like=q), rope.table(range(3, 9), like=k)))


def _bent(put, rope):
    """Rotate q and k by an xPos table."""
    q, k = qk(put)
    return rope(q, k, ra.bending.xpos(rope.table(range(6), like=q), range(6), centre=3))


def _rotated(put, rope):
    """Rotate backwards by `rotate` from the fourth feature on."""
    x, table = put(data(3, 6, 40)), rope.table(range(6), like=put(data(1)))
    return ra.rotate(x, *table, pairing=rope.pairing, start=3, inverse=True)


CALLS = {
    "no positions": lambda put, rope: rope(*qk(put)),
    "an int": lambda put, rope: rope(*qk(put), 70_000),
    "an array": lambda put, rope: rope(*qk(put), put(np.arange(5, 11))),
    "an array with a batch": lambda put, rope: rope(*qk(put), put(np.arange(12).reshape(2, 6))),
    "an array of one number": lambda put, rope: rope(*qk(put), put(np.asarray(9))),
    "a range": lambda put, rope: rope(*qk(put), range(3, 9)),
    "a table": lambda put, rope: rope(*qk(put), rope.table(range(6), like=qk(put)[0])),
    "a pair of tables": _pair_of_tables,
    "a pair of bent tables": _bent,
    "fewer queries": lambda put, rope: rope(*qk(put, queries=2), 3),
    "one array": lambda put, rope: rope.apply(qk(put)[0], 3),
    "backwards": lambda put, rope: rope.apply(qk(put)[0], 3, inverse=True),
    "tokens before heads": lambda put, rope: rope.apply(put(data(2, 6, 3, 32)), seq_axis=1),
    "20000 rows": lambda put, rope: rope.apply(put(data(5, 4000, 32)), 3),
    "in place": _in_place,
    "into other arrays": _into_others,
    "repositioned": lambda put, rope: rope.reposition(qk(put)[1], 5, put(np.arange(6))),
    "rotate": _rotated,
    "empty": lambda put, rope: rope.apply(put(data(2, 0, 32))),
}


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("name", CALLS)
def test_a_second_call_uses_the_plan_of_the_first(name, pairing, put, monkeypatch):
    call = partial(CALLS[name], put, ROPES[pairing])
    first, plans = bits(call()), len(PLANS)
    assert len([key for key in PLANS if key[1] != "table"]) == 1  # the others are of tables
    with monkeypatch.context() as patch:
        for module, checks in (
            (_rope, ("require_rotatable", "check_table", "plan_of")),
            (_rotate, ("require_rotatable", "check_table")),
        ):
            for check in checks:
                patch.setattr(module, check, lambda *_, check=check, **__: pytest.fail(f"{check} was called again"))
        second = bits(call())
    assert len(PLANS) == plans
    assert second == first
    ra.clear_caches()
    assert bits(call()) == first
    corrupt_caches()
    with pytest.raises(pytest.fail.Exception, match="a plan was used"):  # corrupt_caches works
        call()


def test_fused_calls_have_their_own_plans(monkeypatch):
    pytest.importorskip("numba", reason="numba is not installed")
    q, k = qk(np.asarray)
    ROPE(q, k)  # finds the library; plans are kept from then on
    plain, fused = bits(ROPE(q, k)), bits(ROPE(q, k, fused=True))
    assert len(PLANS) == 2
    monkeypatch.setattr(_rope, "require_rotatable", lambda *_, **__: pytest.fail("checked again"))
    assert [bits(ROPE(q, k)), bits(ROPE(q, k, fused=True))] == [plain, fused]


def test_at_most_1024_plans_are_kept():
    table = ROPE.table(np.asarray([7]))
    expected = bits(ra.rotate(np.ones((1, 32)), *table, pairing="half"))
    most = 0
    for rows in range(1, 1100):
        ra.rotate(np.ones((rows, 32)), *table, pairing="half")
        most = max(most, len(PLANS))
    assert most == 1024
    assert bits(ra.rotate(np.ones((1, 32)), *table, pairing="half")) == expected


def reachable_arrays(start):
    """Return the arrays that an object refers to, except through modules, classes and libraries."""
    found, seen, todo = [], set(), [start]
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, types.ModuleType | type | Library):
            continue
        seen.add(id(item))
        if isinstance(item, types.FunctionType):  # not the globals of its module
            todo += [item.__closure__, item.__defaults__, item.__kwdefaults__]
        elif find(item) is not None:
            found.append(item)
        else:
            todo += gc.get_referents(item)
    return found


def test_plans_hold_no_array(put):
    x = put(data(3))
    assert [id(array) for array in reachable_arrays([lambda: x])] == [id(x)]  # an array would be found
    for call, rope in itertools.product(CALLS.values(), ROPES.values()):
        call(put, rope)
    assert len(PLANS) > len(CALLS)
    assert not reachable_arrays(dict(PLANS))


def test_arrays_are_freed_while_their_plan_is_kept(put):
    q, k = qk(put)
    table = ROPE.table(range(6), like=q)
    result = ROPE(q, k, table)
    alive = [weakref.ref(x) for x in (q, k, *table, *result)]
    assert PLANS
    del q, k, table, result
    gc.collect()
    assert [ref() for ref in alive] == [None] * 6


def test_numpy_integers_use_the_plan_of_integers(put):
    x = put(data(2, 6, 32))
    ra.clear_caches()
    expected = bits(ROPE.apply(x, 5))
    kept = dict(PLANS)
    for kind in (np.int64, np.int32, np.uint8):
        assert bits(ROPE.apply(x, kind(5))) == expected
    assert kept == PLANS
    with pytest.raises(TypeError, match="positions"):
        ROPE.apply(x, True)  # not a position


@pytest.mark.parametrize("fused", [False, True])
def test_blocks_use_plans(put, fused, monkeypatch):
    rope = ra.Rope(F, pairing="half", blocks=2, start=1)
    x = put(data(2, 6, 40))
    table = rope.table(range(6), like=x)
    expected = bits(rope.apply(x, table))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        rope.apply(x, table, fused=fused)
        planned = []
        monkeypatch.setattr(_schedules, "plan_schedule", lambda *args: planned.append(args))
        assert bits(rope.apply(x, table, fused=fused)) == expected
    assert not planned


@pytest.mark.parametrize("fused", [False, True])
def test_a_second_table_skips_validation(put, fused, monkeypatch):
    pytest.importorskip("numba", reason="numba is not installed")
    like, calls = put(data(6, 32)), []
    monkeypatch.setattr(_rope, "table", lambda *a, make=_rope.table, **kwargs: calls.append(a) or make(*a, **kwargs))
    ra.clear_caches()
    for positions in (range(7), range(7), range(100, 101), range(-3, 5), range(0), range(3, 1)):
        got = ROPE.table(positions, like=like, fused=fused)
        expected = ra.cos_sin(positions, F, like=like, fused=fused)
        assert bits(tuple(got)) == bits(tuple(expected))
    assert len(calls) == 1
    for other in ({"like": put(data(6, 32, dtype="float64"))}, {"like": like, "dtype": like.dtype}):
        for _ in range(2):
            ROPE.table(range(7), **other)
    ROPE.table(range(0, 8, 2), like=like)
    assert len(calls) == 6
    with pytest.raises(TypeError, match="must be an array, or come with `like`"):
        ROPE.table(range(7))
    with pytest.raises(ValueError, match="positions must not exceed"):
        ROPE.table(range(2**53, 2**53 + 2), like=like)


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


def _apply_out(start, table_at=None):
    """Return a maker of `Rope.apply` calls with `out` at an offset in one array with x."""

    def call(put):
        """Return the call."""
        x, out, table = _views(put, start, table_at=table_at)
        return lambda: ROPE.apply(x, table, out=out)

    return call


def _rotate_out(start, table_at=None):
    """Return a maker of `rotate` calls with `out` at an offset in one array with x."""

    def call(put):
        """Return the call."""
        x, out, table = _views(put, start, table_at=table_at)
        return lambda: ra.rotate(x, *table, pairing="half", out=out)

    return call


def _out_of_call(choose):
    """Return a call whose out is chosen from q, k, another q and another k."""

    def call(put):
        """Return a call of a Rope with the `out` that `choose` returns."""
        q, k, to_q, to_k = (put(data(6, 32, seed=seed)) for seed in range(4))
        return lambda: ROPE(q, k, out=choose(q, k, to_q, to_k))

    return call


def _view(view, make=lambda: data(6, 6, 32)):
    """Return a call with another view of an array."""

    def call(put):
        """Return a call on the view of an array."""
        x = view(put(make()))
        return lambda: ROPE.apply(x, 3)

    return call


def _dtype(dtype):
    """Return a maker of calls with x of a NumPy dtype."""

    def call(_):
        """Return the call."""
        x = data(6, 6, 32).astype(dtype)
        return lambda: ROPE.apply(x, 3)

    return call


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


def _tables_at(*starts, make=lambda put, first: ROPE.table(put(np.arange(6) + first))):
    """Return a maker of tables, one for each start."""
    return lambda put: tuple(make(put, first) for first in starts)


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


PLAIN, IN_3D = _apply_out(200), _at(3)
BENT = _at(lambda put: ra.bending.xpos(ROPE.table(put(np.arange(6))), range(6), centre=2)[0])

# A call that makes a plan; a similar call; and a part of the message of its error, or None if it has a result.
SIMILAR: dict[str, tuple[Callable, Callable, str | None]] = {
    "out is x": (PLAIN, _apply_out(0), None),
    "out overlaps x": (PLAIN, _apply_out(32), "overlaps it in part"),
    "out overlaps x by one number": (PLAIN, _apply_out(191), "overlaps it in part"),
    "out overlaps cos": (PLAIN, _apply_out(200, table_at=300), "must not overlap cos"),
    "out of rotate overlaps x": (_rotate_out(200), _rotate_out(31), "overlaps it in part"),
    "out of rotate overlaps cos": (_rotate_out(200), _rotate_out(200, table_at=391), "must not overlap cos"),
    "out of rotate is x": (_rotate_out(200), _rotate_out(0), None),
    "out of rotate after none": (_rotate_with(), _rotate_out(31), "overlaps it in part"),
    "out after none": (_apply_out(None), _apply_out(32), "overlaps it in part"),
    "one out for both": (
        _out_of_call(lambda _, __, a, b: (a, b)),
        _out_of_call(lambda _, __, a, ___: (a, a)),
        "must not overlap the out of q",
    ),
    "out is q and k": (_out_of_call(lambda _, __, a, b: (a, b)), _out_of_call(lambda q, k, *_: (q, k)), None),
    "out is k and q": (
        _out_of_call(lambda _, __, a, b: (a, b)),
        _out_of_call(lambda q, k, *_: (k, q)),
        "must not overlap k",
    ),
    "out is missing": (
        _out_of_call(lambda _, __, a, b: (a, b)),
        _out_of_call(lambda _, __, a, ___: (a, None)),
        "must be a pair of arrays",
    ),
    "out of other shape": (PLAIN, _numpy_out(lambda x: x[:, :16]), "must have the shape and dtype"),
    "out of other dtype": (PLAIN, _numpy_out(lambda x: x.astype("f8")), "must have the shape and dtype"),
    "out is read-only": (_numpy_out(lambda x: x), _numpy_out(_read_only), "must be an array that can be written"),
    "out is broadcast": (
        _numpy_out(lambda x: x),
        _numpy_out(lambda x: np.lib.stride_tricks.as_strided(x, (6, 32), (0, 4))),
        "must have an address for each element",
    ),
    "out runs backwards": (_numpy_out(lambda x: x), _numpy_out(lambda x: x[::-1, ::-1]), None),
    "transposed": (IN_3D, _view(lambda x: x.swapaxes(0, 1)), None),
    "features first in memory": (IN_3D, _view(lambda x: x.swapaxes(0, 2), lambda: data(32, 6, 6)), None),
    "every other feature": (IN_3D, _view(lambda x: x[..., ::2], lambda: data(6, 6, 64)), None),
    "unaligned start": (IN_3D, _view(lambda x: x[1:].reshape(6, 6, 32), lambda: data(6 * 6 * 32 + 1)), None),
    "one row six times": (IN_3D, _view(lambda x: x[[0] * 6], lambda: data(1, 6, 32)), None),
    "broadcast": (IN_3D, _view(lambda x: find(x).module.broadcast_to(x, (6, 6, 32)), lambda: data(6, 32)), None),
    "backwards in memory": (_dtype("f4"), lambda _: lambda: ROPE.apply(data(6, 6, 32)[:, ::-1, ::-1], 3), None),
    "not aligned": (
        _dtype("f4"),
        lambda _: (
            lambda: ROPE.apply(np.frombuffer(b"." + data(6, 6, 32).tobytes(), "f4", offset=1).reshape(6, 6, 32), 3)
        ),
        None,
    ),
    "float16": (_dtype("f4"), _dtype("f2"), None),
    "float64": (_dtype("f4"), _dtype("f8"), None),
    "the other byte order": (_dtype("f4"), _dtype(">f4"), None),
    "the other byte order first": (_dtype(">f4"), _dtype("f4"), None),
    "bfloat16": (_dtype("f2"), _dtype(ml_dtypes.bfloat16), None),
    "float16 after bfloat16": (_dtype(ml_dtypes.bfloat16), _dtype("f2"), None),
    "int32": (_dtype("f4"), _dtype("i4"), "must be floating-point"),
    "complex64": (_dtype("f4"), _dtype("c8"), "must be floating-point"),
    "np.matrix": (
        lambda _: partial(ROPE.apply, data(6, 32)),
        lambda _: partial(ROPE.apply, data(6, 32).view(np.matrix)),
        "whose axes are always two",
    ),
    "np.ma": (
        _dtype("f4"),
        lambda _: partial(ROPE.apply, np.ma.asarray(data(6, 6, 32)), 3),
        "whose mask would be lost",
    ),
    "np.ma as a table": (
        lambda _: lambda: ROPE.apply(data(6, 32), ROPE.table(np.arange(6))),
        lambda _: lambda: ROPE.apply(data(6, 32), ra.Table(*map(np.ma.asarray, ROPE.table(np.arange(6))))),
        "whose mask would be lost",
    ),
    "a list": (_dtype("f4"), lambda _: partial(ROPE.apply, data(6, 6, 32).tolist(), 3), "must be an array"),
    "positions 0": (_at(None), _at(0), None),
    "no positions": (_at(0), _at(None), None),
    "True": (_at(1), _at(True), "must be"),
    "an int of NumPy": (_at(1), _at(np.int64(1)), None),
    "a float": (_at(1), _at(1.0), "must be"),
    "an int beyond 53 bits": (_at(1), _at(2**60), "must not exceed"),
    "a 0-d array": (_at(3), _at(lambda put: put(np.asarray(3))), None),
    "a 0-d array of a float": (
        _at(lambda put: put(np.asarray(3))),
        _at(lambda put: put(np.asarray(3.0))),
        "must be an integer if 0-d",
    ),
    "positions of a float dtype": (_at(lambda put: put(np.arange(6))), _at(lambda put: put(np.arange(6.0) / 3)), None),
    "positions of a bool dtype": (
        _at(lambda put: put(np.arange(6))),
        _at(lambda put: put(np.ones(6, bool))),
        "got an array of bool",
    ),
    "a range with another start": (_at(range(6)), _at(range(9, 15)), None),
    "a range with steps": (_at(range(6)), _at(range(60, 0, -10)), None),
    "a range of one": (_at(range(6)), _at(range(3, 4)), None),
    "a longer range": (_at(range(6)), _at(range(7)), "positions must be"),
    "a range beyond 53 bits": (_at(range(6)), _at(range(2**60, 2**60 + 6)), "must not exceed"),
    "an int for a range of as many": (_at(range(6)), _at(6), None),
    "a list of ints": (_at(lambda put: put(np.arange(6))), _at([5, 4, 3, 2, 1, 0]), None),
    "a longer list": (_at(range(6)), _at([0] * 7), "positions must be"),
    "a longer array": (_at(lambda put: put(np.arange(6))), _at(lambda put: put(np.arange(7))), "positions must be"),
    "a table of other positions": (
        _at(lambda put: ROPE.table(put(np.arange(6)))),
        _at(lambda put: ROPE.table(put(np.arange(6) + 5))),
        None,
    ),
    "a plain tuple of a table": (
        _at(lambda put: ROPE.table(put(np.arange(6)))),
        _at(lambda put: tuple(ROPE.table(put(np.arange(6))))),
        "must be one array; got a tuple of 2 arrays",
    ),
    "a table of float64": (
        _at(lambda put: ROPE.table(put(np.arange(6)))),
        _at(lambda put: ROPE.table(put(np.arange(6)), dtype="float64")),
        None,
    ),
    "a table of integers": (
        _at(lambda put: ROPE.table(put(np.arange(6)))),
        _at(lambda put: ra.Table(put(np.ones((6, 16), int)), put(np.ones((6, 16), int)))),
        "must be floating-point",
    ),
    "a table of fewer pairs": (
        _at(lambda put: ROPE.table(put(np.arange(6)))),
        _at(lambda put: ra.Table(*(part[:, :8] for part in ROPE.table(put(np.arange(6)))))),
        "positions must be of shape (..., 16) if they are a table; got (6, 8)",
    ),
    "a bent table": (_at(lambda put: ROPE.table(put(np.arange(6)))), BENT, None),
    "a bent table backwards": (
        _at(lambda put: ROPE.table(put(np.arange(6))), inverse=True),
        _at(lambda put: ra.bending.xpos(ROPE.table(put(np.arange(6))), range(6), centre=2)[0], inverse=True),
        "inverse must be False for a BentTable",
    ),
    "a pair of tables for one array": (
        _at(lambda put: ROPE.table(put(np.arange(6)))),
        _at(_tables_at(0, 1)),
        "a pair of tables, one for queries and one for keys",
    ),
    "backwards": (_at(3), _at(3, inverse=True), None),
    "backwards as 1": (_at(3, inverse=True), _at(3, inverse=1), "inverse must be True or False"),
    "seq_axis from the front": (_at(3, seq_axis=-3), _at(3, seq_axis=1), None),
    "seq_axis True": (_at(3, seq_axis=1), _at(3, seq_axis=True), "seq_axis must be an integer"),
    "seq_axis False": (_at(3, seq_axis=0), _at(3, seq_axis=False), "seq_axis must be an integer"),
    "seq_axis of a float": (_at(3), _at(3, seq_axis=-2.0), "seq_axis must be an integer"),
    "seq_axis of NumPy": (_at(3, seq_axis=0), _at(3, seq_axis=np.int8(0)), None),
    "fused 0": (_at(3), _at(3, fused=0), "fused must be True or False"),
    "fused 0.0": (_at(3), _at(3, fused=0.0), "fused must be True or False"),
    "fused of NumPy": (_at(3), _at(3, fused=np.False_), None),
    "start False": (_rotate_with(start=0), _rotate_with(start=False), "start must be an integer"),
    "start of a float": (_rotate_with(start=0), _rotate_with(start=0.0), "start must be an integer"),
    "inverse 0": (_rotate_with(), _rotate_with(inverse=0), "inverse must be True or False"),
    "inverse 1": (_rotate_with(inverse=True), _rotate_with(inverse=1), "inverse must be True or False"),
    "fused of rotate 0": (_rotate_with(), _rotate_with(fused=0), "fused must be True or False"),
    "the other pairing": (_rotate_with(), _rotate_with(pairing="interleaved"), None),
    "no pairing": (_rotate_with(), _rotate_with(pairing=None), "pairing must be"),
    "another attention factor": (_at(3), _at(3, ra.Rope(F, pairing="half", attention_factor=1.5)), None),
    "another attention factor backwards": (
        _at(3, inverse=True),
        _at(3, ra.Rope(F, pairing="half", attention_factor=1.5), inverse=True),
        None,
    ),
    "other frequencies": (_at(3), _at(3, ra.Rope(F[::-1], pairing="half")), None),
    "the other pairing of a Rope": (_at(3), _at(3, ROPES["interleaved"]), None),
    "fewer pairs": (_at(3), _at(3, ra.Rope(F[:8], pairing="half")), None),
    "fewer pairs, another start": (
        _at(3, ra.Rope(F[:8], pairing="half")),
        _at(3, ra.Rope(F[:8], pairing="half", start=8)),
        None,
    ),
    "blocks": (_at(3), _at(3, ra.Rope(F, pairing="half", blocks=2)), None),
    "rows of frequencies": (_at(3), _at(3, ra.Rope((F, F), pairing="half")), None),
    "one row of frequencies": (_at(3), _at(3, ra.Rope((F,), pairing="half")), None),
}


@pytest.mark.parametrize("name", SIMILAR)
def test_a_similar_call_does_not_use_a_wrong_plan(name, put):
    first, similar, message = SIMILAR[name]
    before = outcome(similar(put))
    ra.clear_caches()
    outcome(first(put))
    assert PLANS
    after = outcome(similar(put))
    again = outcome(similar(put))  # by its own plan, if it has one
    assert after == again == before
    assert isinstance(before, list) if message is None else message in before


def test_a_memory_map_is_rotated_like_an_array(tmp_path):
    x = data(6, 32)
    expected = bits(ROPE.apply(x))
    np.save(tmp_path / "x.npy", x)
    assert bits(ROPE.apply(np.load(tmp_path / "x.npy", mmap_mode="r"))) == expected


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


def test_a_range_too_large_for_any_machine_is_refused(put):
    with pytest.raises(ValueError, match="positions must not exceed"):
        ROPE.apply(put(data(6, 32)), range(2**70))


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

POSITIONS = {
    "numbers": [3, 4, 2**40, -5],
    "ranges": [range(6), range(5, 11), range(6, 0, -1)],
    "lists": [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [0.5] * 6],
    "arrays": [lambda put: put(np.arange(6)), lambda put: put(np.arange(6) ** 2)],
    "arrays of one number": [lambda put: put(np.asarray(7)), lambda put: put(np.asarray(8))],
    "tables": [lambda put: ROPE.table(put(np.arange(6))), lambda put: ROPE.table(put(np.arange(6) + 9))],
    "pairs of tables": [_tables_at(0, 4), _tables_at(4, 0), _tables_at(4, 4)],
    "one table twice, then two": [lambda put: (ROPE.table(put(np.arange(6))),) * 2, _tables_at(0, 4)],
}


@pytest.mark.parametrize("name", POSITIONS)
def test_other_positions_give_other_results(name, put):
    q, k = qk(put)
    given = [at(put) if callable(at) else at for at in POSITIONS[name]]
    expected = []
    for at in given:
        ra.clear_caches()
        expected.append(bits(ROPE(q, k, at)))
    assert all(a != b for a, b in itertools.combinations(expected, 2))
    ra.clear_caches()
    assert [bits(ROPE(q, k, at)) for at in given] == expected
    assert [bits(ROPE(q, k, at)) for at in given] == expected


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


# --- torch: transforms, modes and gradients ---------------------------------------------------------------------------


def formula(torch, x, cos, sin, pairing):
    """Return x rotated by the formula of the paper."""
    a, b = x.chunk(2, -1) if pairing == "half" else (x[..., ::2], x[..., 1::2])
    members = a * cos - b * sin, b * cos + a * sin
    return torch.cat(members, -1) if pairing == "half" else torch.stack(members, -1).flatten(-2)


def _vmap(torch, rotation, x):
    """Return the result under torch's vmap."""
    return torch.func.vmap(rotation)(x)


def _jvp(torch, rotation, x):
    """Return the result under torch's jvp; check the tangent."""
    value, tangent = torch.func.jvp(rotation, (x,), (x,))  # of a linear map
    torch.testing.assert_close(value, tangent, rtol=0, atol=1e-6)
    return value


def _vjp(torch, rotation, x):
    """Return the result under torch's vjp."""
    return torch.func.vjp(rotation, x)[0]


def _functionalized(torch, rotation, x):
    """Return the result under torch's functionalize."""
    return torch.func.functionalize(rotation)(x)


def _dual(torch, rotation, x):
    """Return the result on dual tensors; check the tangent."""
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        value, tangent = forward_ad.unpack_dual(rotation(forward_ad.make_dual(x, x)))
        torch.testing.assert_close(value, tangent, rtol=0, atol=1e-6)
        return value.clone()


def _graph(_, rotation, x, **options):
    """Return the result of a graph from make_fx."""
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(rotation, **options)(x)
    assert sum(node.op == "call_function" for node in graph.graph.nodes) > 2
    return graph(x)


def _traced(torch, rotation, x):
    """Return the result of a graph from torch.jit.trace."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = torch.jit.trace(rotation, (torch.zeros_like(x),), check_trace=False)
    return graph(x)


def _compiled(torch, rotation, x):
    """Return the result under torch.compile."""
    torch._dynamo.reset()
    return torch.compile(rotation, fullgraph=True, backend="eager")(x)


def _dispatched(_, rotation, x):
    """Return the result under a dispatch mode."""
    return _recorded(rotation, x)[0]


def _recorded(rotation, x):
    """Return the result, and the names of the operations that a dispatch mode sees."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mode(TorchDispatchMode):
        """A mode that records the functions dispatched."""

        def __torch_dispatch__(self, function, _, args=(), kwargs=None):
            """Record a function, and call it."""
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    with Mode():
        return rotation(x), seen


def _overridden(_, rotation, x):
    """Return the result under a torch function mode, which must see calls."""
    from torch.overrides import TorchFunctionMode

    seen = []

    class Mode(TorchFunctionMode):
        """A mode that records the functions called."""

        def __torch_function__(self, function, _, args=(), kwargs=None):
            """Record a function, and call it."""
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with Mode():
        result = rotation(x)
    assert len(seen) > 2
    return result


def _fake(_, rotation, x):
    """Check the shape and dtype of the result on fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        result = rotation(mode.from_tensor(x))
    assert type(result) is FakeTensor and (result.shape, result.dtype) == (x.shape, x.dtype)


TRANSFORMS = {
    "vmap": _vmap,
    "jvp": _jvp,
    "vjp": _vjp,
    "functionalize": _functionalized,
    "dual level": _dual,
    "make_fx": _graph,
    "make_fx, before dispatch": partial(_graph, pre_dispatch=True),
    "make_fx, fake": partial(_graph, tracing_mode="fake", _allow_non_fake_inputs=True),
    "make_fx, symbolic": partial(_graph, tracing_mode="symbolic", _allow_non_fake_inputs=True),
    "jit.trace": _traced,
    "compile": _compiled,
    "dispatch mode": _dispatched,
    "function mode": _overridden,
    "fake tensors": _fake,
}


SLOW = {"compile", "jit.trace", "make_fx, before dispatch", "make_fx, fake", "make_fx, symbolic"}


def _torch_calls(torch, rope):
    """Return calls of one tensor ``(3, 6, 32)``, by name."""
    at, table = torch.arange(6) + 5, rope.table(torch.arange(6))
    return {
        "an int": lambda x: rope.apply(x, 5),
        "an array": lambda x: rope.apply(x, at),
        "q and k": lambda x: rope(x, x, at)[1],
        "a table": lambda x: ra.rotate(x, *table, pairing=rope.pairing),
    }


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # from torch
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_no_plan_is_used_or_made_under_torch_transforms_and_modes(name, pairing, torch):
    x = torch.from_numpy(data(3, 6, 32))
    calls = _torch_calls(torch, ROPES[pairing])
    for called in ["q and k"] if name in SLOW else calls:
        rotation = calls[called]
        ra.clear_caches()
        first = TRANSFORMS[name](torch, rotation, x)
        plans, constants = cache_contents()
        assert not plans and not constants, called
        expected = rotation(x)
        row = rotation(x[0])  # as in vmap
        torch.testing.assert_close(row, expected[0], rtol=0, atol=1e-6)
        assert PLANS and bool(_caches._CONSTANTS) == (called != "a table")
        corrupt_caches()
        before = cache_contents()
        second = TRANSFORMS[name](torch, rotation, x)
        assert cache_contents() == before, called
        for result in (first, second):
            if result is not None:
                torch.testing.assert_close(result, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_a_mode_sees_the_same_operations_with_and_without_a_plan(pairing, torch):
    x = torch.from_numpy(data(3, 6, 32))
    for rotation in _torch_calls(torch, ROPES[pairing]).values():
        ra.clear_caches()
        _, before = _recorded(rotation, x)
        rotation(x)
        _, after = _recorded(rotation, x)
        assert before == after and len(before) > 3


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_gradients_after_a_plan_equal_those_of_the_formula(pairing, torch):
    rope = ROPES[pairing]
    x = torch.from_numpy(data(3, 6, 32, dtype="float64"))
    w, at = torch.from_numpy(data(3, 6, 32, dtype="float64", seed=1)), torch.arange(6) + 5
    cos, sin = rope.table(at, like=x)
    calls = {
        "int": lambda x, *_: rope.apply(x, 5),
        "array": lambda x, *_: rope.apply(x, at),
        "given": lambda x, *table: rope.apply(x, ra.Table(*table)),
        "rotate": lambda x, *table: ra.rotate(x, *table, pairing=pairing),
    }
    for name, rotation in calls.items():
        rotation(x, cos, sin)
        corrupt_caches(constants=False)
        learned = name in {"given", "rotate"}
        leaves = [part.clone().requires_grad_(i == 0 or learned) for i, part in enumerate((x, cos, sin))]
        inputs = leaves if learned else leaves[:1]
        expected = torch.autograd.grad((formula(torch, *leaves, pairing) * w).sum(), inputs)
        got = torch.autograd.grad((rotation(*leaves) * w).sum(), inputs)
        func_gradient = torch.func.grad(lambda x, rotation=rotation: (rotation(x, cos, sin) * w).sum())(x)
        for a, b in zip((*got, func_gradient), (*expected, expected[0]), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-13)
        ra.clear_caches()


def test_under_no_grad_a_plan_applies_to_leaves_that_require_gradients(torch):
    x = torch.from_numpy(data(3, 6, 32))
    expected, parameter = bits(ROPE.apply(x, 5)), torch.nn.Parameter(x.clone())
    with torch.no_grad():
        for leaf in (parameter, parameter.detach().requires_grad_()):
            got = ROPE.apply(leaf, 5)
            assert bits(got) == expected and not got.requires_grad
    with pytest.raises(ValueError, match="gradients are recorded"):
        ROPE.apply(parameter, 5, out=torch.empty_like(x))
    assert ROPE.apply(parameter, 5).requires_grad
    assert len(PLANS) == 1


def test_out_that_requires_gradients_is_refused_after_a_plan(torch):
    x, out = torch.from_numpy(data(6, 32)), torch.zeros(6, 32)
    ROPE.apply(x, out=out)
    assert PLANS
    with pytest.raises(ValueError, match="gradients are recorded"):
        ROPE.apply(x, out=out.requires_grad_())
    with torch.no_grad():
        ROPE.apply(x, out=out)


def _inference_tensor(torch):
    """Return a tensor made in inference mode."""
    with torch.inference_mode():
        return torch.from_numpy(data(3, 6, 32)).clone()


def _tensors(torch):
    """Return special tensors ``(3, 6, 32)`` by name, whose strides do not describe them fully."""
    pairs = torch.view_as_complex(torch.from_numpy(data(3, 6, 32, 2)))
    return {
        "negative bit": torch._neg_view(torch.from_numpy(data(3, 6, 32))),
        "imaginary of a conjugate": pairs.conj().imag,
        "real of a conjugate": pairs.conj().real,
        "zeros without memory": torch._efficientzerotensor((3, 6, 32)),
        "of inference": _inference_tensor(torch),
        "parameter": torch.nn.Parameter(torch.from_numpy(data(3, 6, 32)), requires_grad=False),
        "of another view": torch.from_numpy(data(4, 6, 32)).unbind(0)[0][None].expand(3, 6, 32),
    }


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("use", ["x", "out", "x in inference", "out in inference", "in place"])
@pytest.mark.parametrize(
    "name",
    [
        "negative bit",
        "imaginary of a conjugate",
        "real of a conjugate",
        "zeros without memory",
        "of inference",
        "parameter",
        "of another view",
    ],
)
def test_special_tensors_are_rotated_after_a_plan(name, use, pairing, torch):
    rope = ROPES[pairing]

    def call(special):
        """Rotate a special tensor, or a plain one with the same values and strides."""
        x = _tensors(torch)[name]
        if not special:
            x = torch.empty_strided(x.shape, x.stride()).copy_(x) if 0 not in x.stride() else x.detach().clone()
        other = torch.from_numpy(data(3, 6, 32, seed=3))
        with torch.inference_mode("inference" in use):
            if use == "in place":
                rope.apply(x, 5, out=x)
                return x.clone()
            if "out" in use:
                rope.apply(other, 5, out=x)
                return x.clone()
            return rope.apply(x, 5)

    before = outcome(partial(call, True))
    ra.clear_caches()
    outcome(partial(call, False))
    assert PLANS
    assert outcome(partial(call, True)) == before
    if use == "x":
        x = _tensors(torch)[name].double()
        expected = formula(torch, x, *rope.table(torch.arange(5, 11), like=x), pairing)
        torch.testing.assert_close(rope.apply(_tensors(torch)[name], 5).double(), expected, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("name", ["negative bit", "imaginary of a conjugate"])
def test_a_negative_bit_is_not_compiled_after_a_plan(name, torch, monkeypatch):
    x, seen = _tensors(torch)[name], []

    def compiled(function):
        """Return a function that records if an argument has the negative bit."""

        def run(*tensors):
            """Record the negative bits, and call the function."""
            seen.append(any(tensor is not None and tensor.is_neg() for tensor in tensors))
            return function(*tensors)

        return run

    lib = find(x)
    monkeypatch.setitem(vars(lib), "compiler", lib.compiler._replace(compile=compiled))
    monkeypatch.setattr(_numba, "refusal", lambda *_: "as if Numba were missing")
    table = ROPE.table(range(x.shape[-2]), like=x)
    _schedules._compiled.cache_clear()
    try:
        ROPE.apply(torch.empty_strided(x.shape, x.stride()).copy_(x), table, fused=True)
        assert seen == [False]
        ROPE.apply(x, table, fused=True)
        assert not any(seen)
    finally:
        _schedules._compiled.cache_clear()


_FREED = """
import itertools, os
import torch
import rope_any as ra

torch.set_num_threads(1)
for pairing, tokens in (("half", 6), ("half", 20_000), ("interleaved", 6), ("interleaved", 20_000)):
    for dtype in (torch.float32, torch.float16):
        rope, ones = ra.Rope(ra.frequencies(32), pairing=pairing), torch.ones(tokens, 32, dtype=dtype)
        for planned, first, fused in itertools.product((False, True), (0, 1), (False, True)):
            rope.apply(ones[:1], fused=fused)
            child = os.fork()
            if child == 0:
                os.close(2)
                x = ones.clone()[first:]
                if planned:
                    rope.apply(x.clone(), 5, fused=fused)
                x.untyped_storage().resize_(0)
                try:
                    rope.apply(x, 5, fused=fused)
                except RuntimeError:
                    os._exit(0)
                os._exit(1)
            print(pairing, tokens, dtype, planned, first, fused, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("pairing", "tokens"), [("half", 6), ("half", 20_000), ("interleaved", 6), ("interleaved", 20_000)]
)
def test_a_freed_tensor_raises(pairing, tokens):
    exits = [line.split()[-1] for line in _freed().splitlines() if line.startswith(f"{pairing} {tokens} ")]
    assert exits == ["0"] * 16, _freed()


_LOCKED = """
import os, signal
import torch
import rope_any as ra
from rope_any._arrays import torch as adapter

adapter._INITIALISING.acquire()  # as a thread does that makes its first table
child = os.fork()
if child == 0:
    signal.alarm(60)
    ra.cos_sin(torch.arange(2), (1.0, 0.5))
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.usefixtures("torch")
def test_a_forked_process_does_not_wait_for_locks_of_its_parent():
    assert _python(_LOCKED).stdout == "0\n"


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_tensors_without_memory_are_not_passed_to_compiled_code(pairing, torch):
    rope, zeros, x = ROPES[pairing], torch._efficientzerotensor((3, 6, 32)), torch.from_numpy(data(3, 6, 32))
    table = rope.table(range(6), like=x)
    for _ in range(2):
        assert torch.equal(rope.apply(zeros, table, fused=True), torch.zeros(3, 6, 32))
        identity = ra.Table(table.cos, torch._efficientzerotensor(tuple(table.sin.shape)))
        expected = ra.rotate(x, table.cos, torch.zeros_like(table.sin), pairing=pairing)
        assert torch.equal(ra.rotate(x, *identity, pairing=pairing, fused=True), expected)
        rope.apply(x, table, fused=True)
        leaf = x.clone().requires_grad_()
        rope.apply(leaf, table, fused=True).backward(zeros)
        assert torch.equal(leaf.grad, torch.zeros(3, 6, 32))


@cache
def _freed():
    """Return what the program about freed memory prints."""
    return _python(_FREED).stdout


def _python(program, *arguments):
    """Run a program in a new process; return the completed process."""
    run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run


def test_caches_cause_no_torch_recompilation(torch):
    counter = pytest.importorskip("torch._dynamo.testing").CompileCounter()
    torch._dynamo.reset()
    q, k = qk(torch.from_numpy)
    at = torch.arange(6)
    step = torch.compile(lambda q, k: ROPE(q, k, at), fullgraph=True, backend=counter)
    first = step(q, k)
    for change in (lambda: ROPE(q, k, at), lambda: ROPE.apply(q[:1], 7), ra.clear_caches, lambda: ROPE(k, k)):
        change()
        for got, expected in zip(step(q, k), first, strict=True):
            assert torch.equal(got, expected)
    assert counter.frame_count == 1


# --- JAX and ONNX: no plans are kept, and no constants while they trace -----------------------------------------------


@pytest.mark.parametrize("traced", ["jit", "vmap", "grad", "eval_shape"])
def test_no_plan_is_used_or_made_while_jax_traces(traced, jax):
    x, at = jax.numpy.asarray(data(3, 6, 32)), jax.numpy.arange(6)

    def run():
        """Call while JAX traces."""
        if traced == "grad":
            return jax.grad(lambda x: (ROPE.apply(x, at) * x).sum())(x)
        if traced == "eval_shape":
            return jax.eval_shape(ROPE.apply, x, at)
        return getattr(jax, traced)(lambda x: ROPE.apply(x, at))(x)

    first = run()
    assert cache_contents() == ({}, {})
    expected = ROPE.apply(x, at)
    assert not PLANS and len(_caches._CONSTANTS) == 1
    corrupt_caches()
    before = cache_contents()
    second = run()
    assert cache_contents() == before
    if traced == "eval_shape":
        assert second.shape == expected.shape
    else:
        np.testing.assert_array_equal(np.asarray(first), np.asarray(second))
    if traced in {"jit", "vmap"}:
        np.testing.assert_allclose(np.asarray(second), np.asarray(expected), rtol=0, atol=1e-6)


def test_a_compiled_jax_call_transfers_nothing_to_the_device(jax):
    q, k = qk(jax.numpy.asarray)
    at = jax.numpy.arange(6)
    rotation = jax.jit(ROPE)
    expected = bits(rotation(q, k, at))
    with jax.transfer_guard("disallow"):
        assert bits(rotation(q, k, at)) == expected


def test_no_plan_is_used_or_made_while_ndonnx_traces():
    ndx = pytest.importorskip("ndonnx", reason="ndonnx is not installed")
    x = data(2, 6, 32)
    ROPE.apply(x, np.arange(6))
    corrupt_caches()
    before = cache_contents()
    symbol = ndx.argument(shape=("batch", 6, 32), dtype=ndx.float32)
    rotated = ROPE.apply(symbol, ndx.asarray(np.arange(6)))
    assert ndx.build({"x": symbol}, {"rotated": rotated}).graph.node
    assert cache_contents() == before


# --- threads and processes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_threads_can_rotate_while_another_clears_the_caches(library):
    put = np.asarray
    if library == "torch":
        put = pytest.importorskip("torch", reason="torch is not installed").from_numpy
    names = [name for name in CALLS if name not in {"20000 rows", "repositioned"}]  # see the next test
    calls = [partial(CALLS[name], put, rope) for name in names for rope in ROPES.values()]
    expected = [bits(call()) for call in calls]
    wrong, done, errors = [], threading.Event(), []

    def work(seed):
        """Rotate in random order; record wrong results and errors."""
        for i in np.random.default_rng(seed).integers(0, len(calls), 50):
            try:
                if bits(calls[i]()) != expected[i]:
                    wrong.append(i)
            except Exception as error:  # noqa: BLE001  # reported below
                errors.append(error)

    def clear():
        """Clear the caches until the other threads end."""
        while not done.is_set():
            ra.clear_caches()

    workers, cleaner = (
        [threading.Thread(target=work, args=(seed,)) for seed in range(8)],
        threading.Thread(target=clear),
    )
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        for thread in (cleaner, *workers):
            thread.start()
        for thread in workers:
            thread.join()
    finally:
        done.set()
        cleaner.join()
        sys.setswitchinterval(before)
    assert (wrong, errors) == ([], [])


def test_reposition_works_while_another_thread_clears_the_caches(monkeypatch):
    class ClearedOnLookup(weakref.WeakKeyDictionary):
        """A cache that another thread clears after each lookup."""

        def __contains__(self, key):
            """Look up a key, then clear all caches."""
            known = super().__contains__(key)
            ra.clear_caches()  # as another thread may at this point
            return known

    monkeypatch.setattr(_caches, "_MOVES", ClearedOnLookup())
    k = data(6, 32)
    expected = bits(ROPE.reposition(k, 0, 5))
    _caches.reposition_frequencies(ROPE._prepared, ROPE._prepared)
    assert bits(ROPE.reposition(k, 0, 5)) == expected


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


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_inherits_the_caches():
    _python(_FORK, *(["torch"] if find_spec("torch") else []))


# --- constants --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["numpy", "torch", "jax"])
def conversions(request, monkeypatch):
    """Return a function that makes arrays of a library, and a list of the host data that are converted to arrays."""
    if request.param == "numpy":
        make = np.asarray
    else:
        module = pytest.importorskip(request.param, reason=f"{request.param} is not installed")
        make = module.from_numpy if request.param == "torch" else module.numpy.asarray
    xp, seen = find(make(np.ones(1))).xp, []
    asarray = xp.asarray

    def watched(given, *args, **kwargs):
        """Record tuples and lists that are converted to arrays."""
        if isinstance(given, tuple | list):
            seen.append(given)
        return asarray(given, *args, **kwargs)

    monkeypatch.setattr(xp, "asarray", watched)
    return make, seen


@pytest.mark.parametrize("positions", ["int32", "float32"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_frequencies_are_converted_to_arrays_once(dtype, positions, conversions):
    make, seen = conversions
    x, rope = make(data(6, 32, dtype=dtype)), ra.Rope(F, pairing="half")
    at = [make(np.arange(n, n + 6).astype(positions)) for n in (0, 9)]
    first = [bits(rope.apply(x, p)) for p in at]
    assert seen
    seen.clear()
    assert [bits(rope.apply(x, p)) for p in at] == first
    rope.table(at[0], like=x)
    assert not seen
    ra.clear_caches()
    assert [bits(rope.apply(x, p)) for p in at] == first
    assert seen


def test_reposition_converts_frequencies_to_arrays_once(conversions):
    make, seen = conversions
    k, rope = make(data(6, 32)), ra.Rope(F, pairing="half")
    old, new = make(np.arange(6, dtype="int32")), make(np.arange(5, 11, dtype="int32"))
    first = bits(rope.reposition(k, old, new))
    seen.clear()
    assert bits(rope.reposition(k, old, new)) == first
    assert not seen


def test_constants_live_as_long_as_their_rope(conversions):
    make, _ = conversions
    x, rope = make(data(6, 32)), ra.Rope(F, pairing="half")
    rope.apply(x, 5)
    rope.reposition(x, 5, 6)
    array = first_constant(rope)
    alive = [weakref.ref(rope._prepared), weakref.ref(array)]
    assert len(_caches._CONSTANTS) == 2 and len(_caches._MOVES) == 1
    del rope, array
    gc.collect()
    assert not _caches._CONSTANTS and not _caches._MOVES
    assert [ref() for ref in alive] == [None, None]


def test_clear_caches_drops_constants(conversions):
    make, _ = conversions
    ROPE.apply(make(data(6, 32)), 5)
    kept = weakref.ref(first_constant(ROPE))
    ra.clear_caches()
    gc.collect()
    assert not _caches._CONSTANTS and kept() is None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda rope: pickle.loads(pickle.dumps(rope))])
def test_a_copied_rope_has_no_constants(copied, conversions):
    make, _ = conversions
    x, rope = make(data(6, 32)), ra.Rope(F, pairing="half")
    size = len(pickle.dumps(rope))
    expected = bits(rope.apply(x, 5))
    assert len(pickle.dumps(rope)) == size
    other = copied(rope)
    assert other == rope and hash(other) == hash(rope)
    assert other._prepared not in _caches._CONSTANTS
    assert bits(other.apply(x, 5)) == expected
    assert {*_caches._CONSTANTS} == {rope._prepared, other._prepared}


def test_equal_ropes_give_equal_results(conversions):
    make, _ = conversions
    x = make(data(6, 32))
    one, other = (ra.Rope(ra.frequencies(32), pairing="half") for _ in range(2))
    assert one == other
    assert bits(one.apply(x, 5)) == bits(other.apply(x, 5))
    assert len(_caches._CONSTANTS) == 2
    del one
    gc.collect()
    assert bits(other.apply(x, 5)) == bits(ra.Rope(ra.frequencies(32), pairing="half").apply(x, 5))


def test_jax_tables_are_exact_if_x64_is_switched(jax):
    exact = ra.cos_sin(np.arange(6) + 1000, F, dtype="float64")
    before = jax.config.jax_enable_x64
    try:
        for x64 in (False, True, False, True):
            jax.config.update("jax_enable_x64", x64)
            for dtype in ("float32", *(["float64"] if x64 else [])):
                like = jax.numpy.asarray(data(6, 32, dtype=dtype))
                for at in (jax.numpy.arange(6) + 1000, jax.numpy.arange(6.0) + 1000):
                    for got, expected in zip(ROPE.table(at, like=like), exact, strict=True):
                        assert str(got.dtype) == dtype
                        bound = 1e-12 if dtype == "float64" else 1.3e-7
                        np.testing.assert_allclose(np.asarray(got), expected, rtol=0, atol=bound)
    finally:
        jax.config.update("jax_enable_x64", before)
    dtypes = {str(arrays[0].dtype) for kept in _caches._CONSTANTS[ROPE._prepared].values() for _, arrays in kept}
    assert {"int32", "int64", "float32", "float64"} <= dtypes


def test_each_torch_dtype_has_its_own_constants(torch):
    for name in ("float32", "float64", "float32"):
        x = torch.from_numpy(data(6, 32, dtype=name))
        expected = ra.cos_sin(np.arange(6) + 1000, F, dtype="float64")
        for positions in (torch.arange(6) + 1000, torch.arange(6.0) + 1000):
            for got, exact in zip(ROPE.table(positions, like=x), expected, strict=True):
                np.testing.assert_allclose(got.numpy(), exact, rtol=0, atol=1.3e-7 if name == "float32" else 1e-12)


def test_capturing_a_graph_needs_an_earlier_call(conversions, monkeypatch):
    make, _ = conversions
    x, at, rope = make(data(6, 32)), make(np.arange(6, dtype="int32")), ra.Rope(F, pairing="half")
    monkeypatch.setitem(vars(find(x)), "is_capturing", lambda _: True)
    with pytest.raises(RuntimeError, match="call once before"):
        rope.apply(x, at)
    assert rope._prepared not in _caches._CONSTANTS
    monkeypatch.setitem(vars(find(x)), "is_capturing", lambda _: False)
    expected = bits(rope.apply(x, at))
    monkeypatch.setitem(vars(find(x)), "is_capturing", lambda _: True)
    assert bits(rope.apply(x, at)) == expected


def test_constants_made_in_inference_mode_can_be_used_with_gradients(torch):
    x, at = torch.from_numpy(data(6, 32)), torch.arange(6.0)
    with torch.inference_mode():
        ROPE.apply(x, at)
    learned = at.clone().requires_grad_()
    ROPE.apply(x, learned).sum().backward()
    assert learned.grad.abs().sum() > 0


# --- a token does not depend on other tokens --------------------------------------------------------------------------

DTYPES = {"float16": "f2", "bfloat16": ml_dtypes.bfloat16, "float32": "f4", "float64": "f8"}
VIEWS = {
    "contiguous": lambda x: x,
    "every other feature": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "tokens before heads": lambda x: np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2),
    "unaligned start": lambda x: np.concatenate([x[..., :1], x], axis=-1)[..., 1:],
}
CASES = st.builds(
    types.SimpleNamespace,
    shape=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 40)),
    pairs=st.sampled_from([16, 32, 64]) | st.integers(1, 70),
    start=st.integers(0, 3),
    extra=st.sampled_from([0, 0, 5]),
    dtype=st.sampled_from(list(DTYPES)),
    view=st.sampled_from(list(VIEWS)),
    out=st.booleans(),
    table=st.booleans(),
    fused=st.booleans(),
    tile=st.sampled_from([1, 64, 500, 4096]),
    seed=st.integers(0, 99),
)


def _viewed(put, x, view):
    """Return a view of an array, bfloat16 included, which torch does not take from NumPy."""
    if put is np.asarray or x.dtype != ml_dtypes.bfloat16:
        return put(VIEWS[view](x))
    return put(VIEWS[view](x.view("i2"))).view(sys.modules["torch"].bfloat16)


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_a_token_does_not_depend_on_other_tokens(pairing, put, monkeypatch):
    lib = find(put(np.ones(1)))
    threads = lib.module.get_num_threads() if lib.name == "torch" else None

    @settings(max_examples=60)
    @given(CASES)
    def check(case):
        """Compare each token of a call with the same token alone."""
        rng = np.random.default_rng(case.seed)
        features = case.start + 2 * case.pairs + case.extra
        x = _viewed(put, data(*case.shape, features, seed=case.seed).astype(DTYPES[case.dtype]), case.view)
        rope = ra.Rope(ra.frequencies(2 * case.pairs), pairing=pairing, start=case.start)
        positions = rng.integers(0, 2**20, case.shape[2])

        def rotated(x, positions):
            """Return x rotated, with the options of the case."""
            at = rope.table(put(positions), like=x) if case.table else put(positions)
            out = lib.empty_like(x) if case.out else None
            return rope.apply(x, at, out=out, fused=case.fused and find_spec("numba") is not None)

        full = rotated(x, positions)
        batch, head, i = (slice(n, n + 1) for n in rng.integers(0, case.shape).tolist())
        assert bits(rotated(x[batch, head, i], positions[i])) == bits(full[batch, head, i])
        with monkeypatch.context() as patch:
            patch.setitem(vars(lib), "host", lib.host._replace(tile_size=lambda: case.tile))
            ra.clear_caches()
            assert bits(rotated(x, positions)) == bits(full)
        ra.clear_caches()
        for count in (1, 2, 3) if threads else ():
            lib.module.set_num_threads(count)
            assert bits(rotated(x, positions)) == bits(full)

    try:
        check()
    finally:
        if threads:
            lib.module.set_num_threads(threads)


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_results_do_not_depend_on_the_number_of_threads(dtype, pairing, torch):
    x = torch.from_numpy(data(3, 400, 70)).to(getattr(torch, dtype))
    ropes = [ra.Rope(ra.frequencies(2 * pairs), pairing=pairing) for pairs in (16, 35)]
    before, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            ra.clear_caches()
            results.append([bits(rope.apply(x, 7)) for rope in ropes])
    finally:
        torch.set_num_threads(before)
    assert results[0] == results[1] == results[2]
    for rope, full in zip(ropes, results[0], strict=True):
        pieces = torch.cat([rope.apply(piece, 7 + 77 * i) for i, piece in enumerate(x.split(77, dim=1))], dim=1)
        assert bits(pieces) == full


# --- regressions ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:fused=True falls back:RuntimeWarning")
def test_plans_with_and_without_attention_factor_are_separate(put):
    """A table with one row for all tokens is divided by a factor if there is one, and otherwise used unchanged."""
    with_factor, without = (ra.Rope(F, pairing="half", attention_factor=factor) for factor in (2.0, 1.0))
    x = put(data(1, 1, 4096, 32))
    rows = without.table(range(5, 6), like=x)
    wide = ra.Table(*(find(x).xp.broadcast_to(part, (4096, 16)) for part in rows))
    for fused in (False, True):
        with_factor.apply(x, wide, inverse=True, fused=fused)
        got = without.apply(x, wide, inverse=True, fused=fused)
        expected = without.apply(x, [5] * 4096, inverse=True)
        np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=0, atol=1e-6)


def test_batched_gradients_work_after_a_plan(torch):
    class Rotate(torch.autograd.Function):
        """A function of torch with a backward pass of its own."""

        @staticmethod
        def forward(_, x):
            """Return x rotated."""
            return ROPE.apply(x, 5)

        @staticmethod
        def backward(_, gradient):
            """Return the gradient of x."""
            return ROPE.apply(gradient, 5, inverse=True)

    x = torch.tensor(data(6, 32), requires_grad=True)
    ROPE.apply(x.detach(), 5, inverse=True)
    y = Rotate.apply(x)
    many = torch.eye(y.numel()).reshape(-1, *y.shape)[:4]
    (got,) = torch.autograd.grad(y, x, many, is_grads_batched=True)
    expected = torch.stack([ROPE.apply(row, 5, inverse=True) for row in many])
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


def test_a_default_device_does_not_prevent_plans(torch):
    x = torch.tensor(data(6, 32))
    ROPE.apply(x, 5)
    kept = dict(PLANS)
    torch.set_default_device("cpu")
    try:
        torch.testing.assert_close(ROPE.apply(x, 5), ROPE.apply(x, [5, 6, 7, 8, 9, 10]), rtol=0, atol=1e-6)
    finally:
        torch.set_default_device(None)
    assert kept.keys() <= PLANS.keys()


def test_threads_can_share_one_wide_row(torch):
    threads, c = torch.get_num_threads(), torch.ones(1, 32784)
    torch.set_num_threads(2)
    try:
        got = ra.rotate(torch.ones(1, 65568), c, c, pairing="interleaved")
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(got, torch.tensor([0.0, 2.0]).repeat(1, 32784))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_pair_does_not_depend_on_other_rows(put, dtype):
    x, rope = data(200, 2).astype(dtype), ra.Rope((0.7,), pairing="interleaved")
    table = rope.table(range(200), like=put(x))
    full = np.asarray(ra.rotate(put(x), *table, pairing="interleaved"))
    for i in range(200):
        row = ra.rotate(put(x[i : i + 1]), *(part[i : i + 1] for part in table), pairing="interleaved")
        assert np.array_equal(np.asarray(row)[0], full[i])


def test_positions_of_empty_arrays_are_checked(put):
    with pytest.raises(ValueError, match="positions must not exceed"):
        ROPE.apply(put(data(1, 2, 0, 32)), 2**60)
