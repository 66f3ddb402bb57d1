"""Rotation with a ready table, of queries and keys as in a model of 32 heads that share 8 heads of keys."""

from functools import partial
from itertools import count

from .common import (
    DIFFERENTIABLE,
    FAST,
    FUSED,
    IMMEDIATE,
    LIBRARIES,
    SCHEDULES,
    WRITABLE,
    load,
    once,
    require_option,
    scheduled,
)

BATCH, HEADS, KEY_HEADS, SEQ, HEAD_DIM = 1, 32, 8, 4096, 128
SHORT = 16  # tokens that fit in the caches, so that the cost of a call dominates
PAIRINGS = ["half", "interleaved"]
DTYPES = ["float32", "bfloat16"]


def random_arrays(library, dtype, *shapes):
    """Return normally distributed arrays of a library, one for each shape."""
    import numpy as np

    rng = np.random.default_rng(0)
    return [library.array(rng.standard_normal(shape, dtype=np.float32), dtype) for shape in shapes]


def some_table(library, seq, batch=1):
    """Return a table of `seq` consecutive positions, far from 0, different for each row of a batch."""
    import numpy as np

    import rope_any as ra

    starts = 100_000 + 1000 * np.arange(batch)
    positions = starts[:, None] + np.arange(seq)
    table = ra.cos_sin(positions if batch > 1 else positions[0], ra.frequencies(HEAD_DIM))
    return ra.Table(*(library.array(part, "float32") for part in table))


class RotateNew:
    """Queries into a new array."""

    param_names = ("library", "dtype", "pairing", "tokens")
    params = (FAST, DTYPES, PAIRINGS, [SHORT, SEQ])

    @once
    def setup(self, name, dtype, pairing, tokens):
        import rope_any as ra

        library = load(name)
        (x,) = random_arrays(library, dtype, (BATCH, HEADS, tokens, HEAD_DIM))
        self.call = library.prepared(partial(ra.rotate, pairing=pairing), x, *some_table(library, tokens))

    def time_rotate(self, *_):
        self.call()


class RotateInPlace:
    """Queries, rotated in place."""

    param_names = ("library", "dtype", "pairing")
    params = (WRITABLE, ["float16", *DTYPES], PAIRINGS)

    @once
    def setup(self, name, dtype, pairing):
        import rope_any as ra

        library = load(name)
        (x,) = random_arrays(library, dtype, (BATCH, HEADS, SEQ, HEAD_DIM))
        rotate = partial(ra.rotate, pairing=pairing, out=x)
        self.call = library.prepared(rotate, x, *some_table(library, SEQ))

    def time_rotate(self, *_):
        self.call()


class RotateFusedNew:
    """Queries into a new array, by the library's own compiler."""

    param_names = ("library", "dtype", "pairing")
    params = (FUSED, DTYPES, PAIRINGS)

    @once
    def setup(self, name, dtype, pairing):
        import rope_any as ra

        require_option(ra.rotate, "fused")
        library = load(name)
        (x,) = random_arrays(library, dtype, (BATCH, HEADS, SEQ, HEAD_DIM))
        rotate = partial(ra.rotate, pairing=pairing, fused=True)
        self.call = library.prepared_fused(rotate, x, *some_table(library, SEQ))

    def time_rotate(self, *_):
        self.call()


class RotateFusedInPlace:
    """Queries, rotated in place by the library's own compiler."""

    param_names = ("library", "dtype", "pairing")
    params = (WRITABLE, ["float16", *DTYPES], PAIRINGS)

    @once
    def setup(self, name, dtype, pairing):
        import rope_any as ra

        require_option(ra.rotate, "fused")
        library = load(name)
        (x,) = random_arrays(library, dtype, (BATCH, HEADS, SEQ, HEAD_DIM))
        rotate = partial(ra.rotate, pairing=pairing, fused=True, out=x)
        self.call = library.prepared_fused(rotate, x, *some_table(library, SEQ))

    def time_rotate(self, *_):
        self.call()


class RotateGradient:
    """Queries into a new array, and their vjp."""

    param_names = ("library", "dtype", "pairing")
    params = (DIFFERENTIABLE, DTYPES, PAIRINGS)

    @once
    def setup(self, name, dtype, pairing):
        self.call = forward_and_backward(load(name), dtype, pairing)

    def time_forward_backward(self, *_):
        self.call()


def forward_and_backward(library, dtype, pairing):
    """Return a call that rotates queries and computes their vjp."""
    import rope_any as ra

    shape = (BATCH, HEADS, SEQ, HEAD_DIM)
    x, g = random_arrays(library, dtype, shape, shape)

    def both(x, g, cos, sin):
        """Return the rotated x, and its vjp with g."""
        return library.vjp(lambda x: ra.rotate(x, cos, sin, pairing=pairing), x, g)

    return library.prepared(both, x, g, *some_table(library, SEQ))


class RopePrefill:
    """Queries and keys of whole prompts, 4096 tokens in all, by a `Rope`."""

    param_names = ("library", "batch")
    params = (FAST, [1, 64])

    @once
    def setup(self, name, batch):
        library, seq = load(name), SEQ // batch
        self.call = library.prepared(a_rope(), *queries_and_keys(library, batch, seq), some_table(library, seq, batch))

    def time_rope(self, *_):
        self.call()


class RopeDecode:
    """Query and key of one token for each row of a batch, by a `Rope` and a ready table: the cost of a call."""

    param_names = ("library", "batch", "schedule")
    params = (FAST, [1, 64], SCHEDULES)
    repeat = (10, 1000, 0.5)  # at least, at most, seconds: times of short calls vary

    @once
    def setup(self, name, batch, schedule):
        library, rope = load(name), a_rope()
        prepared, options = scheduled(library, schedule, type(rope).__call__)
        arrays = *queries_and_keys(library, batch, 1), some_table(library, 1, batch)
        self.call = prepared(partial(rope, **options), *arrays)

    def time_rope(self, *_):
        self.call()


class RopeNextPosition:
    """Query and key of one token, at the next position in each call, by a `Rope` that makes the table."""

    param_names = ("library", "schedule")
    params = (IMMEDIATE, SCHEDULES)
    repeat = RopeDecode.repeat

    @once
    def setup(self, name, schedule):
        library, rope, positions = load(name), a_rope(), count(SEQ)
        prepared, options = scheduled(library, schedule, type(rope).__call__)
        self.call = prepared(lambda q, k: rope(q, k, next(positions), **options), *queries_and_keys(library, 1, 1))

    def time_rope(self, *_):
        self.call()


def a_rope():
    """Return the `Rope` of a head."""
    import rope_any as ra

    return ra.Rope(ra.frequencies(HEAD_DIM), pairing="half")


def queries_and_keys(library, batch, seq):
    """Return q and k in float32."""
    return random_arrays(library, "float32", *((batch, heads, seq, HEAD_DIM) for heads in (HEADS, KEY_HEADS)))


class RotateError:
    """The error of queries against the same rotation in float64 by the same table."""

    param_names = ("library", "dtype")
    params = (LIBRARIES, ["float16", *DTYPES])
    unit = "absolute error"

    def setup(self, name, dtype):
        self.library = load(name)
        if (name, dtype) == ("array-api-strict", "float16"):
            msg = "array-api-strict has no float16"
            raise NotImplementedError(msg)
        (self.x,) = random_arrays(self.library, dtype, (BATCH, KEY_HEADS, 256, HEAD_DIM))
        self.table = some_table(self.library, 256)

    def track_largest_error(self, *_):
        return max(largest_error(self.library, self.x, self.table, pairing) for pairing in PAIRINGS)


def largest_error(library, x, table, pairing):
    """Return the largest error of a rotation against float64."""
    import numpy as np

    import rope_any as ra

    rotate = partial(ra.rotate, pairing=pairing)
    as_float64 = (library.to_numpy(part).astype(np.float64) for part in (x, *table))
    got = library.to_numpy(library.compiled(rotate)(x, *table)).astype(np.float64)
    return float(abs(got - rotate(*as_float64)).max())
