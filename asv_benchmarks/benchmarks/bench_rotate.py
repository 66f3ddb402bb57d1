"""Rotation with a ready table, of queries and keys as in a model of 32 heads that share 8 heads of keys."""

from functools import partial

from .common import LIBRARIES, WRITABLE, load, once

BATCH, HEADS, KEY_HEADS, SEQ, HEAD_DIM = 1, 32, 8, 4096, 128
PAIRINGS = ["half", "interleaved"]


def random_arrays(library, dtype, *shapes):
    """Return normally distributed arrays."""
    import numpy as np

    rng = np.random.default_rng(0)
    return [library.array(rng.standard_normal(shape, dtype=np.float32), dtype) for shape in shapes]


def some_table(library, seq):
    """Return a table of `seq` consecutive positions, far from 0."""
    import numpy as np

    import rope_any as ra

    positions = np.arange(100_000, 100_000 + seq)
    table = ra.cos_sin(positions, ra.frequencies(HEAD_DIM))
    return ra.Table(*(library.array(part, "float32") for part in table))


class RotateNew:
    """Queries into a new array."""

    param_names = ("library", "pairing")
    params = (LIBRARIES, PAIRINGS)
    dtype = "float32"

    @once
    def setup(self, name, pairing):
        import rope_any as ra

        library = load(name)
        (x,) = random_arrays(library, self.dtype, (BATCH, HEADS, SEQ, HEAD_DIM))
        self.call = library.prepared(partial(ra.rotate, pairing=pairing), x, *some_table(library, SEQ))

    def time_rotate(self, *_):
        self.call()


class RotateNewBfloat16(RotateNew):
    """The same in half precision."""

    params = (["torch", "torch-cuda", "jax"], PAIRINGS)
    dtype = "bfloat16"


class RotateInPlace:
    """Queries, turned where they are."""

    param_names = ("library", "pairing")
    params = (WRITABLE, PAIRINGS)
    dtype = "float32"

    @once
    def setup(self, name, pairing):
        import rope_any as ra

        library = load(name)
        (x,) = random_arrays(library, self.dtype, (BATCH, HEADS, SEQ, HEAD_DIM))
        rotate = partial(ra.rotate, pairing=pairing, out=x)
        self.call = library.prepared(rotate, x, *some_table(library, SEQ))

    def time_rotate(self, *_):
        self.call()


class RotateInPlaceBfloat16(RotateInPlace):
    """The same in half precision."""

    params = (["torch", "torch-cuda"], PAIRINGS)
    dtype = "bfloat16"


class RopePrefill:
    """Queries and keys of a whole prompt, by a `Rope`."""

    param_names = ("library",)
    params = LIBRARIES
    seq = SEQ

    @once
    def setup(self, name):
        import rope_any as ra

        library = load(name)
        shapes = ((BATCH, heads, self.seq, HEAD_DIM) for heads in (HEADS, KEY_HEADS))
        q, k = random_arrays(library, "float32", *shapes)
        rope = ra.Rope(ra.frequencies(HEAD_DIM), pairing="half")
        self.call = library.prepared(rope, q, k, some_table(library, self.seq))

    def time_rope(self, *_):
        self.call()


class RopeDecode(RopePrefill):
    """Query and key of one token, by a `Rope`: the cost of a call."""

    seq = 1
    repeat = (10, 1000, 0.5)  # at least, at most, seconds: short calls scatter
