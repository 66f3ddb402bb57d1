"""Time and error of tables."""

from functools import partial

from .common import IMMEDIATE, LIBRARIES, SCHEDULES, load, once, scheduled, skipping_without

ROTARY_DIM = 128


class CosSin:
    """Tables of random positions below a million."""

    param_names = ("library", "positions")
    params = (LIBRARIES, [4096, 32768])

    @once
    def setup(self, name, length):
        import numpy as np

        import rope_any as ra

        library = load(name)
        frequencies = ra.frequencies(ROTARY_DIM)
        positions = library.array(np.random.default_rng(0).integers(0, 10**6, length), "int32")
        self.call = library.prepared(lambda p: ra.cos_sin(p, frequencies), positions)

    def time_cos_sin(self, *_):
        self.call()


class RangeTable:
    """Tables of consecutive positions, given as a range."""

    param_names = ("library", "positions", "schedule")
    params = (IMMEDIATE, [1, 4096, 32768], SCHEDULES)

    @once
    def setup(self, name, length, schedule):
        import numpy as np

        import rope_any as ra

        library, like = load(name), np.zeros(1, dtype=np.float32)
        rope = ra.Rope(ra.frequencies(ROTARY_DIM), pairing="half")
        prepared, options = scheduled(library, schedule, rope.table)
        call = partial(rope.table, range(length), **options)
        self.call = prepared(lambda like: call(like=like), library.array(like, "float32"))

    def time_table(self, *_):
        self.call()


class CosSinError:
    """The error of tables of positions up to 2**31 against 60 digits."""

    param_names = ("library",)
    params = LIBRARIES
    unit = "absolute error"

    def setup(self, name):
        import rope_any as ra

        library = load(name)
        frequencies = ra.frequencies(ROTARY_DIM)
        positions = telling_positions()
        cos_sin = library.compiled(lambda p: ra.cos_sin(p, frequencies))
        self.table = [library.to_numpy(part) for part in cos_sin(library.array(positions, "int32"))]
        self.exact = exact_table(positions, frequencies)

    def track_largest_error(self, _):
        return max(float(abs(part - exact).max()) for part, exact in zip(self.table, self.exact, strict=True))


def telling_positions():
    """Return positions of both signs: small, near each power of two, the last below 2**31, and random."""
    import numpy as np

    powers = 2 ** np.arange(31)
    edges = [powers - 1, powers, powers + 1, 2**31 - 1 - np.arange(64)]
    random = np.random.default_rng(0).integers(-(2**31) + 1, 2**31, 256)
    return np.unique(np.concatenate([np.arange(64), *edges, *(-edge for edge in edges), random]))


def exact_table(positions, frequencies):
    """Return cosine and sine in float64, computed with 60 digits from the frequencies as given."""
    import numpy as np

    with skipping_without("mpmath"):
        import mpmath

    with mpmath.workdps(60):
        exact = [[mpmath.cos_sin(p * mpmath.mpf(f)) for f in frequencies] for p in positions.tolist()]
    return np.moveaxis(np.asarray(exact, dtype=np.float64), -1, 0)
