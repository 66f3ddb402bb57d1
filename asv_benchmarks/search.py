"""
Search for rotations that take more than twice the time of a naive function for the same library.

    python asv_benchmarks/search.py --count 300 --seed 0

Shapes, dtypes, memory layouts, pairings, widths of the rotary slice and outputs are drawn at random. Both sides have a
ready table, and each call is timed after an untimed one, in turn. A case is listed if it is slower in three trials.
"""

import argparse
import random
from typing import Any, NamedTuple

import numpy as np
from cases import NumPy, PyTorch, textbook, widen
from compare import timed

import rope_any as ra

SHAPES = (
    (1, 1, 1), (1, 32, 1), (4, 8, 1), (64, 32, 1), (300, 4, 1), (1, 8, 17), (3, 5, 64), (1, 8, 256), (2, 8, 1024),
    (1, 32, 4096), (1, 1, 30_000),
)  # fmt: skip


class Case(NamedTuple):
    """A rotation of queries and keys."""

    library: str
    dtype: str
    shape: tuple[int, int, int]
    """The lengths of batch, heads of queries (a quarter of them are of keys) and tokens."""
    head_dim: int
    rotary: int
    pairing: str
    layout: str
    out: str


def drawn(rng: random.Random) -> Case:
    """Draw a case."""
    head_dim = rng.choice([2, 16, 64, 80, 128, 256])
    return Case(
        rng.choice(["NumPy", "PyTorch"]),
        rng.choice(["float16", "bfloat16", "float32", "float32", "float64"]),
        rng.choice(SHAPES),
        head_dim,
        rng.choice([head_dim, head_dim, max(head_dim // 4 // 2 * 2, 2)]),
        rng.choice(["half", "interleaved"]),
        rng.choice(["contiguous", "tokens first", "part of a row"]),
        rng.choice(["new", "new", "in place"]),
    )


def arrays(case: Case, library: NumPy) -> list[Any]:
    """Return queries and keys of a case, ``(batch, heads, tokens, head_dim)``."""
    batch, heads, tokens = case.shape
    made = []
    for count in (heads, max(heads // 4, 1)):
        if case.layout == "contiguous":
            made.append(library.random((batch, count, tokens, case.head_dim), case.dtype))
        elif case.layout == "tokens first":
            made.append(library.random((batch, tokens, count, case.head_dim), case.dtype).swapaxes(1, 2))
        else:
            made.append(library.random((batch, count, tokens, 3 * case.head_dim), case.dtype)[..., : case.head_dim])
    return made


def ratio(case: Case, library: NumPy, seconds: float) -> float:
    """Return the time of ours divided by that of the naive function."""
    xp = library.xp
    rope = ra.Rope(ra.frequencies(case.rotary), pairing=case.pairing)
    q, k = arrays(case, library)
    table = rope.table(range(case.shape[2]), like=q)
    wide = [widen(np, np.asarray(part), case.pairing) for part in table]
    wide = [part.astype(case.dtype) if xp is np else xp.from_numpy(part).to(q.dtype) for part in wide]
    rotate, n = textbook(xp, case.pairing), case.rotary

    def naive() -> Any:
        """Rotate as people write it."""
        parts = rotate(q[..., :n], k[..., :n], *wide)
        if n < case.head_dim:
            parts = [xp.concatenate([part, x[..., n:]], axis=-1) for part, x in zip(parts, (q, k), strict=True)]
        if case.out == "in place":
            q[...], k[...] = parts
        return parts

    options = {"out": (q, k)} if case.out == "in place" else {}
    ours, theirs = timed([lambda: rope(q, k, table, **options), naive], lambda result: result, seconds=seconds)
    return ours / theirs


def main() -> None:
    """Draw cases, and print those that are slower, then their number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="how many cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--factor", type=float, default=2.0, help="how many times as long is slow")
    options = parser.parse_args()
    import ml_dtypes  # noqa: F401  # gives NumPy bfloat16
    import torch

    libraries, rng, slow = {"NumPy": NumPy(np), "PyTorch": PyTorch(torch)}, random.Random(options.seed), 0
    for _ in range(options.count):
        case = drawn(rng)
        trials = iter(lambda case=case: ratio(case, libraries[case.library], 0.05), 0.0)
        found = [next(trials)]
        while found[-1] > options.factor and len(found) < 3:
            found.append(next(trials))
        if min(found) > options.factor:
            slow += 1
            print(f"{min(found):.1f} times as long: {case}", flush=True)
    print(f"{slow} of {options.count} take more than {options.factor:g} times as long")


if __name__ == "__main__":
    main()
