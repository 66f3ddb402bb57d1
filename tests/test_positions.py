"""Positions of packed, padded and sharded sequences, of grids and of unrotated tokens, against plain Python."""

import itertools
import math
from functools import partial
from itertools import product
from operator import floordiv, mod

import numpy as np
import pytest
from conftest import one_jax
from hypothesis import given
from hypothesis import strategies as st

from rope_any import positions


def check(lib, found, expected, *, real=False):
    """Check the numbers, shape and dtype of positions."""
    dtype = ("float" if real else "int") + ("64" if lib.has_float64 else "32")
    assert found.dtype == lib.dtype(dtype)
    expected = np.asarray(expected).astype(dtype)
    np.testing.assert_allclose(lib.get(found), expected, rtol=1e-6 if real else 0, atol=0, strict=True)


def cumulative(lengths):
    """Return cumulative lengths that start at 0."""
    return [0, *itertools.accumulate(lengths)]


@pytest.fixture
def like(lib):
    """Return an array of the library for `like`."""
    return lib(np.ones(3), "float32")


# --- every library, eager, compiled and lazy, against NumPy -----------------------------------------------------------


def from_arrays(ends, mask, starts, row, rank):
    """Return positions of each kind, from arrays alone."""
    batch, documents, packs = starts[:, None, None] + positions.grid(2, 3, like=row), [0, 8, 24], 8 * ends
    return [
        positions.packed(ends, 9),
        positions.padded(mask),
        positions.padded(mask[0, ...]),
        positions.from_starts(starts, 4),
        positions.from_starts(rank, 3),
        positions.segments(ends),
        positions.segments(ends[None, None, :] // 4),
        positions.ragged(ends, ends[1:], 9),
        positions.grid(row, 4, window=(1, 2)),
        positions.grid(starts, row, order="columns"),
        positions.shard(16, 4, rank, zigzag=True),
        positions.shard(16, 4, rank, zigzag=False),
        positions.gather_order(16, 4, zigzag=True, like=row),
        positions.shard(24, 4, rank, zigzag=True, cumulative_lengths=documents),
        positions.shard(24, 4, 3, zigzag=True, cumulative_lengths=documents, starts=ends[2:], restart=True, like=ends),
        positions.shard(64, 4, rank, zigzag=True, cumulative_lengths=packs, starts=[100, 0, -7]),
        positions.shard(64, 4, 2, zigzag=False, cumulative_lengths=packs, restart=False),
        positions.gather_order(64, 4, zigzag=True, cumulative_lengths=packs),
        positions.unrotated(starts, before=1, after=2),
        positions.unrotated(batch, axes=2, before=2),
        positions.unrotated(batch, after=1),
        positions.unrotated(positions.grid((-0.5, 0.5), row), before=1, axes=2),
    ]


def from_lists(like):
    """Return positions of each kind, from host data."""
    return [
        positions.packed([0, 3, 3, 7], like=like),
        positions.packed([0, 3, 7, 7], 9, like=like),
        positions.packed([0], like=like),
        positions.from_starts([7, -3, 2**31 - 5], 4, like=like),
        positions.from_starts(range(2), 0, like=like),
        positions.from_starts([], 3, like=like),
        positions.ragged([0, 3, 3, 5], [100, 7, -2], like=like),
        positions.ragged([0, 2], [2**31 - 2], like=like),
        positions.grid(range(10, 0, -3), [7, -7], like=like),
        positions.grid(2, 4, (-0.5, 0.25), order="columns", window=(1, 2, 1), like=like),
        positions.shard(16, 4, 3, zigzag=True, like=like),
        positions.unrotated([5, 6], before=1, after=2, like=like),
        positions.unrotated([[0.5], [2.5]], axes=1, after=1, like=like),
    ]


def example_arrays(lib):
    """Return small arrays as arguments of the functions for positions."""
    return lib([0, 3, 3, 7], "int32"), lib([[0, 1], [1, 0]], "bool"), lib([2, 5]), lib([1.5, 2.5]), lib(3, "int32")


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.long)], ids=["eager", "compiled"])
def test_positions_of_every_library_equal_those_of_numpy(lib, like, compiled):
    lib.need(compiler=compiled)
    expected = from_arrays(*example_arrays(np.asarray)) + from_lists(np.ones(1))
    of_arrays, of_lists = map(lib.trace if compiled else lib.quick, (from_arrays, from_lists))
    for one, other in zip(expected, [*of_arrays(*example_arrays(lib)), *of_lists(like)], strict=True):
        check(lib, other, one, real=one.dtype.kind == "f")


@one_jax
def test_masks_lengths_and_ranks_can_have_every_integer_dtype(lib):
    def positions_of(mask, ends, segments, rank):
        """Return positions of each kind."""
        shard = positions.shard(8, 2, rank, zigzag=True)
        return positions.padded(mask), positions.packed(ends, 6), positions.segments(segments), shard

    given = [[0, 7, 2], [1, 0, 1]], [0, 2, 5], [3, 3, 0, 0, 1], 1
    expected = [[0, 0, 1], [0, 0, 1]], [0, 1, 0, 1, 2, 0], [0, 1, 0, 0, 0], [2, 3, 4, 5]
    for dtype in lib.integers:
        for found, wanted in zip(lib.quick(positions_of)(*(lib(x, dtype) for x in given)), expected, strict=True):
            check(lib, found, wanted)
    check(lib, positions.padded(lib([[0, -7, 2]], "int32")), [[0, 0, 1]])
    check(lib, positions.padded(lib(np.ones((2, 300)), "uint8")), [list(range(300))] * 2)
    check(lib, positions.from_starts(lib([[250], [255]], "uint8"), 2), [[[250, 251]], [[255, 256]]])


# --- packed -------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 5))
def test_random_packed_sequences_are_counted(lengths, rest):
    expected = [i for n in (*lengths, rest) for i in range(n)]
    ends = cumulative(lengths)
    assert positions.packed(np.asarray(ends), len(expected)).tolist() == expected


def test_packed_memory_does_not_grow_with_the_number_of_sequences():
    ends = np.arange(0, 2**20 + 1, 16)  # comparing each token with 65 536 ends would take 64 GiB
    found = positions.packed(ends, 2**20)
    assert np.array_equal(found, np.arange(2**20) % 16)


# --- padded, from_starts ------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4))
def test_random_padded_sequences_are_counted(mask):
    expected = [[sum(row[:i]) if token else 0 for i, token in enumerate(row)] for row in mask]
    assert positions.padded(np.asarray(mask)).tolist() == expected


@given(st.lists(st.integers(-(2**31), 2**31 - 10), max_size=4), st.integers(0, 9))
def test_random_starts_are_counted_from(starts, length):
    found = positions.from_starts(starts, length, like=np.ones(1))
    assert found.shape == (len(starts), length) and found.tolist() == [[s + i for i in range(length)] for s in starts]


# --- segment ids and ragged batches of data loaders ---------------------------------------------------------


def count_segments(ids):
    """Return positions of a row of segment ids, by counting."""
    found = []
    for i, number in enumerate(ids):
        same_document = i > 0 and ids[i - 1] == number > 0
        found.append(found[-1] + 1 if same_document else 0)
    return found


@one_jax
@pytest.mark.parametrize(("dtype", "far"), [("uint16", 2**15), ("uint32", 2**31), ("uint64", 2**63), ("int64", 2**32)])
def test_segments_beyond_32_bits_and_of_unsigned_dtypes_are_documents(lib, dtype, far):
    if dtype not in lib.integers and (dtype == "int64" or not lib.name.startswith(("torch", "mlx", "dask"))):
        pytest.skip(f"{lib.name} has no {dtype}")
    ids = [far + 1, far + 1, 1, 1, far, far, far, far + 1, 0, 0]
    x = lib(np.asarray(ids, dtype))
    if lib.get(x).dtype != dtype:
        pytest.skip(f"{lib.name} has no {dtype}: its arrays have 32 bits")
    check(lib, lib.quick(positions.segments)(x), count_segments(ids))


@given(st.lists(st.integers(-1, 3), max_size=40), st.sampled_from([1, 3]))
def test_random_segments_are_counted(numbers, count):
    rows = np.asarray(numbers[len(numbers) % count :], int).reshape(count, -1)
    assert positions.segments(rows).tolist() == [count_segments(row) for row in rows]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9)), max_size=6), st.integers(0, 4))
def test_random_ragged_batches_are_counted(sequences, rest):
    # pos = offset[b] + i − indptr[b], as FlashInfer's apply_rope
    expected = [o + i for n, o in (*sequences, (rest, 0)) for i in range(n)]
    indptr, offsets = cumulative([n for n, _ in sequences]), [o for _, o in sequences]
    assert positions.ragged(np.asarray(indptr), np.asarray(offsets, int), len(expected)).tolist() == expected


# --- grid ---------------------------------------------------------------------------------------------------


def points(axes, order="rows", window=None):
    """Return the points of a grid by sorting them: windows first, then points in a window."""
    window = window or [1] * len(axes)
    slow = range(len(axes))[:: 1 if order == "rows" else -1]
    indices = itertools.product(*(range(len(axis)) for axis in axes))
    indices = sorted(indices, key=lambda index: [part(index[a], window[a]) for part in (floordiv, mod) for a in slow])
    return [[axis[i] for axis, i in zip(axes, index, strict=True)] for index in indices]


numbers = st.integers(-99, 99) | st.integers(-99, 99).map(lambda n: n / 4)


@given(st.data())
def test_random_grids_are_listed_in_order(data):
    sizes = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=4))
    lengths, window = [n * size for n, size in sizes], [size for _, size in sizes]
    order = data.draw(st.sampled_from(["rows", "columns"]))
    axes = [data.draw(st.just(range(n)) | st.lists(numbers, min_size=n, max_size=n)) for n in lengths]
    given = [n if axis == range(n) else axis for n, axis in zip(lengths, axes, strict=True)]
    found = positions.grid(*given, order=order, window=window, like=np.ones(1))
    assert found.shape == (math.prod(lengths), len(lengths))
    assert found.tolist() == points(axes, order, window)


def test_a_grid_has_the_widest_dtype_of_its_real_axes(lib):
    narrow, wide = lib([0.5], "float32"), lib.dtypes[-1]
    assert positions.grid(narrow, 2).dtype == lib.dtype("float32")
    assert positions.grid(narrow, lib([0.1], wide), range(2)).dtype == lib.dtype(wide)


# --- shards -------------------------------------------------------------------------------------------------


def sharded_list(length, ranks, *, zigzag):
    """Return the tokens of each rank, by cutting a list."""
    count = ranks * (2 if zigzag else 1)
    chunks = [list(part) for part in np.split(np.arange(length), count)]
    return [chunks[r] + chunks[count - 1 - r] if zigzag else chunks[r] for r in range(ranks)]


@given(st.integers(1, 9), st.integers(1, 5), st.booleans())
def test_random_shards_have_the_positions_of_their_rank(ranks, size, zigzag):
    length, x = 2 * ranks * size, np.ones(1)
    parts = [positions.shard(length, ranks, rank, zigzag=zigzag, like=x) for rank in range(ranks)]
    assert [part.tolist() for part in parts] == sharded_list(length, ranks, zigzag=zigzag)
    order = positions.gather_order(length, ranks, zigzag=zigzag, like=x)
    assert np.concatenate(parts)[order].tolist() == list(range(length))


def thd(ends, starts, ranks, rank):
    """Return the positions of a rank's tokens by the formula of TransformerEngine's kernel (layout thd)."""
    found = []
    for begin, end, start in zip(ends, ends[1:], starts, strict=False):
        here = end // ranks - begin // ranks
        for i in range(here):
            front, back = rank * here // 2, here * ranks - (rank + 1) * here // 2 - here // 2
            found.append(start + i + (0 if ranks == 1 else front if i < here // 2 else back))
    return found


sizes_of_documents = st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any)


@given(sizes_of_documents, st.integers(1, 4), st.integers(0, 2))
def test_random_documents_are_sharded_as_by_transformer_engine_and_megatron(sizes, ranks, rest):
    count = 2 * ranks if ranks > 1 else 1
    ends, starts = np.asarray(cumulative([count * n for n in sizes]), "int32"), [9 - 4 * i for i, _ in enumerate(sizes)]
    for rank in range(ranks):
        held = partial(positions.shard, zigzag=True, cumulative_lengths=ends)  # the tokens after the last are padding
        first, row, restarted = (
            held(ends[-1] + rest * count, ranks, rank, **options).tolist()[: ends[-1] // ranks]
            for options in ({"starts": np.asarray(starts)}, {"restart": False}, {})
        )
        assert first == thd(ends, starts, ranks, rank)
        assert row == thd(ends, ends, ranks, rank)  # Megatron's for frequencies of the packed row
        assert restarted == thd(ends, 0 * ends, ranks, rank)
        on_host = {"cumulative_lengths": ends.tolist(), "starts": starts, "like": ends}
        assert positions.shard(int(ends[-1]), ranks, rank, zigzag=True, **on_host).tolist() == first


@given(sizes_of_documents, st.integers(1, 4), st.booleans(), st.booleans())
def test_random_documents_are_put_back_in_order(sizes, ranks, zigzag, on_host):
    lengths = [2 * ranks * n for n in sizes]
    ends = cumulative(lengths) if on_host else np.asarray(cumulative(lengths))
    options = {"zigzag": zigzag, "cumulative_lengths": ends, "like": np.ones(1)}
    parts = [positions.shard(sum(lengths), ranks, rank, **options, restart=False) for rank in range(ranks)]
    order = positions.gather_order(sum(lengths), ranks, **options)
    assert np.concatenate(parts)[order].tolist() == list(range(sum(lengths)))


def test_one_rank_has_all_tokens_of_any_length():
    for zigzag, ends in product((True, False), (None, [0, 2, 5], np.asarray([0, 2, 5]))):
        options = {"zigzag": zigzag, "cumulative_lengths": ends, "like": np.ones(1)}
        assert positions.shard(5, 1, 0, **options, restart=False).tolist() == list(range(5))
        assert positions.gather_order(5, 1, **options).tolist() == list(range(5))


# --- unscaled_first; its rotations are in test_bending.py -------------------------------------------------------


def test_unscaled_first_keeps_integer_dtypes(lib):
    integer, real = ("int64", "float64") if lib.has_float64 else ("int32", "float32")
    like, large, first = lib([1.0], "float32"), 2**31 - 1, positions.unscaled_first
    for at in (range(0, 6, 2), lib([0, 2, 4], "int8")):
        by_axis = first(at, 3, like=like)
        assert by_axis.dtype == lib.dtype(integer) and lib.get(by_axis).tolist() == [[0, 0], [2, 0], [0, 4]]
    assert lib.get(first(7, 3, like=like)).tolist() == [0, 7]
    assert lib.get(first(lib([200], "uint8"), 300)).tolist() == [[200, 0]]
    assert lib.get(first([large], large, like=like)).tolist() == [[0, large]]
    assert first([0.5], 3, like=like).dtype == lib.dtype(real)
    assert first(lib([0.5], "float32"), 3).dtype == lib.dtype("float32")


# --- peers --------------------------------------------------------------------------------------------------

REASON = "the peers are transformers (5 or later) and torch's own context parallelism"


def transformers(module):
    """Return a module of transformers; skip if it is missing."""
    pytest.importorskip("transformers", minversion="5", reason=REASON)
    return pytest.importorskip(f"transformers.{module}", reason=REASON)


def test_packed_equals_the_positions_of_transformers_collator(torch, rng):
    flattening = transformers("data.data_collator").DataCollatorWithFlattening(return_flash_attn_kwargs=True)
    attention = transformers("modeling_flash_attention_utils")
    lengths = rng.integers(1, 9, 5).tolist()
    batch = flattening([{"input_ids": [7] * n} for n in lengths], return_tensors="pt")
    ours = positions.packed(batch["cu_seq_lens_q"], sum(lengths))
    assert torch.equal(ours, batch["position_ids"][0])
    (ends, _), _ = attention.prepare_fa_kwargs_from_position_ids(ours)
    assert ends.tolist() == cumulative(lengths)


def test_padded_equals_the_positions_that_generate_gives_a_model(torch):
    llama = transformers("models.llama")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model, seen = llama.LlamaForCausalLM(llama.LlamaConfig(vocab_size=9, pad_token_id=0, **sizes)), []
    model.model.register_forward_pre_hook(lambda _, __, given: seen.append(given["position_ids"]), with_kwargs=True)
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1]])
    model.generate(mask + 1, attention_mask=mask, max_new_tokens=1, do_sample=False)
    assert torch.equal(positions.padded(mask) * mask, seen[0] * mask)  # those of padding depend on the version


def test_zigzag_equals_the_head_tail_order_of_torch(torch):
    # torch has no public name for the order alone; its public context manager needs several processes
    name = "torch.distributed.tensor.experimental._context_parallel._load_balancer"
    balancer, zigzag = pytest.importorskip(name, reason=REASON), {"zigzag": True, "like": torch.ones(1)}
    for length, ranks in ((24, 3), (16, 1), (64, 8)):
        theirs = balancer._HeadTailLoadBalancer(length, ranks, "cpu")._generate_indices(restore=True)
        assert torch.equal(positions.gather_order(length, ranks, **zigzag), theirs[0])
    shards = [positions.shard(28, 2, r, **zigzag, cumulative_lengths=[0, 8, 24, 28], restart=False) for r in (0, 1)]
    each = [shard[start // 2 : end // 2] for start, end in ((0, 8), (8, 24), (24, 28)) for shard in shards]
    theirs = balancer._PerDocumentHeadTailLoadBalancer([[8, 16, 4]], 2, "cpu")._generate_indices()
    assert torch.equal(torch.cat(each), theirs[0])
