"""The schedules of the rotation: at once, in tiles, as complex numbers. All agree with the oracle."""

import numpy as np
import oracle
import pytest

import rope_any as ra
from rope_any import _schedules
from rope_any._arrays import _threads, find

PAIRS = 6
F = ra.frequencies(2 * PAIRS)


@pytest.fixture(params=["numpy", "torch"])
def put(request):
    """Return two functions for a library with ``out=``: one makes an array, one converts it back."""
    if request.param == "numpy":
        return np.asarray, np.asarray
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.from_numpy, lambda x: x.numpy()


@pytest.fixture
def small_tiles(put, monkeypatch):
    """Rotate arrays of any size in tiles of 8 rows of 16 features."""
    lib = find(put[0](np.ones(1)))
    monkeypatch.setitem(vars(lib), "host", lib.host._replace(tile_size=lambda: 8 * 16))
    ra.clear_caches()  # plans for tiles of other sizes
    yield
    ra.clear_caches()


def table(shape, rng):
    """Return an exact table of random positions, in float64."""
    positions = rng.integers(-5000, 5000, shape)
    return ra.cos_sin(positions, F, dtype=np.float64)


# The leading axes of x and of the table.
SHAPES = {
    "one row": ((), ()),
    "less than a tile": ((7,), (7,)),
    "a tile": ((8,), (8,)),
    "more than a tile": ((9,), (9,)),
    "two tiles and one row": ((17,), (17,)),
    "heads and tokens": ((2, 3, 17), (17,)),
    "heads smaller than a tile": ((2, 3, 2), (2,)),
    "tokens before heads": ((2, 17, 3), (17, 1)),
    "a table for each batch": ((3, 2, 9), (3, 1, 9)),
    "a table for each row": ((2, 3, 9), (2, 3, 9)),
    "one table": ((2, 3, 9), (1, 1, 1)),
    "an axis of one": ((2, 1, 9), (1, 9)),
    "no rows": ((2, 0, 9), (9,)),
}
VIEWS = {
    "contiguous": lambda x: x,
    "tokens first": lambda x: np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -2)), -2, 0) if x.ndim > 1 else x,
    "every other feature": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "part of a wider row": lambda x: np.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
    "unaligned start": lambda x: np.concatenate([x[..., :1], x], axis=-1)[..., 1:],
}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", [(pairing, start) for pairing in ("half", "interleaved") for start in (0, 1, 2)])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("shape", SHAPES)
def test_tiles_equal_the_rotation_at_once_and_the_oracle(shape, view, layout, dtype, put):
    (batch, positions), (pairing, start), (to, back) = SHAPES[shape], layout, put
    rng = np.random.default_rng(0)
    x = VIEWS[view](rng.standard_normal((*batch, 16)).astype(dtype))
    cos, sin = (part.astype(dtype) for part in table(positions, rng))
    arrays = [to(part) for part in (x, cos, sin)]
    new = back(ra.rotate(*arrays, pairing=pairing, start=start))
    rotation = _schedules.Rotation(find(arrays[0]), pairing, start)
    at_once = back(_schedules._rotate_at_once(rotation, arrays[0], ra.Table(*arrays[1:]), None))
    if pairing == "half":  # the same products and differences
        np.testing.assert_array_equal(new, at_once)
    np.testing.assert_allclose(new, at_once, rtol=0, atol=1e-6 if dtype == "float32" else 1e-15)
    exact = oracle.rotate_by_table(x, cos, sin, pairing=pairing, start=start)
    np.testing.assert_allclose(new, exact, rtol=0, atol=2e-6 if dtype == "float32" else 1e-14)
    undone = back(ra.rotate(to(new), *arrays[1:], pairing=pairing, start=start, inverse=True))
    np.testing.assert_allclose(undone, x, rtol=0, atol=3e-6 if dtype == "float32" else 1e-14)
    in_place = to(np.array(x))
    assert ra.rotate(in_place, *arrays[1:], pairing=pairing, start=start, out=in_place) is in_place
    np.testing.assert_allclose(back(in_place), new, rtol=0, atol=1e-6 if dtype == "float32" else 1e-15)


TILE_SHAPES = {
    "no axes": ((), 8, ()),
    "all rows": ((2, 4), 8, (2, 4)),
    "all but one row": ((3, 3), 8, (2, 3)),
    "part of the last axis": ((3, 9), 8, (1, 8)),
    "part of an axis, one of those before": ((5, 2, 3), 6, (1, 2, 3)),
    "two of an axis, one of those before": ((5, 9, 3), 8, (1, 2, 3)),
    "an empty axis": ((5, 0), 8, (5, 1)),
    "a row that is larger than a tile": ((5, 9), 1, (1, 1)),
}


@pytest.mark.parametrize("name", TILE_SHAPES)
def test_tiles_are_as_large_as_allowed_and_full_along_the_last_axes(name):
    shape, rows, tile = TILE_SHAPES[name]
    assert _schedules._tile_shape(shape, rows) == tile


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("seq_axis", [-2, -3])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_tiles_of_the_default_size_equal_the_rotation_of_parts(pairing, seq_axis, dtype):
    """Test tiles of the default size, with a last one that is not full."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rope = ra.Rope(ra.frequencies(64), pairing=pairing, start=8)
    torch.manual_seed(0)
    for shape in ((1, 3, 1025, 80), (2, 700, 5, 80)):
        x = torch.randn(shape).to(getattr(torch, dtype))
        got = rope.apply(x, 1000, seq_axis=seq_axis)
        rows = [rope.apply(row[None], 1000, seq_axis=seq_axis)[0] for row in x.unbind(0)]
        pieces = [rope.apply(piece, 1000, seq_axis=seq_axis) for piece in x.split(1, dim=1 if seq_axis == -2 else 2)]
        for other in (torch.stack(rows), torch.cat(pieces, dim=1 if seq_axis == -2 else 2)):
            assert torch.equal(got, other) or pairing == "interleaved"
            torch.testing.assert_close(got, other, rtol=0, atol=1e-6 if dtype in {"float32", "float64"} else 0.02)
        assert got.stride() == x.stride()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # from torch, in jvp
def test_only_plain_arrays_are_written_in_tiles(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    filled = []
    for lib in (find(np.ones(1)), find(torch.ones(1))):

        def watched(*arrays, supports_out=lib.supports_out):
            """Record whether arrays support `out`."""
            filled.append(supports_out(*arrays))
            return filled[-1]

        monkeypatch.setitem(vars(lib), "supports_out", watched)
    x, cos, sin = torch.randn(4, 16), torch.ones(4, PAIRS), torch.zeros(4, PAIRS)

    def tiled(function):
        """Return how many arrays a call writes in tiles."""
        filled.clear()
        ra.clear_caches()
        function()
        return sum(filled)

    def rotate(*arrays):
        """Rotate by half pairs."""
        return ra.rotate(*arrays, pairing="half")

    assert tiled(lambda: rotate(x, cos, sin)) == 1
    assert tiled(lambda: rotate(*(part.numpy() for part in (x, cos, sin)))) == 1
    learned = cos.clone().requires_grad_()
    assert tiled(lambda: rotate(x, learned, sin)) == 1  # inside of autograd.Function no gradients are recorded
    with torch.no_grad():
        assert tiled(lambda: rotate(x, learned, sin)) == 1
    assert tiled(lambda: torch.vmap(rotate, in_dims=(0, 0, 0))(x, cos, sin)) == 0
    assert tiled(lambda: torch.func.jvp(lambda x: rotate(x, cos, sin), (x,), (x,))) == 0
    with torch.autograd.forward_ad.dual_level():
        assert tiled(lambda: rotate(torch.autograd.forward_ad.make_dual(x, x), cos, sin)) == 0
    assert tiled(lambda: torch.compile(rotate, fullgraph=True, backend="eager")(x, cos, sin)) == 0


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_threads_share_numpy_tiles(pairing, monkeypatch, rng):
    rope, counts, seen = ra.Rope(ra.frequencies(64), pairing=pairing), [], set()
    x = rng.standard_normal((2, 40, 3, 100, 70))  # with pass-through features, in float64
    lib, run = find(x), _threads.run_in_threads

    def watched(work, calls, count):
        """Record the number of tiles and the error state of NumPy in each thread."""

        def work_of_one(*call):
            """Record the error state of NumPy, and do the work."""
            seen.add(np.geterr()["over"])
            return work(*call)

        counts.append(len(calls))
        return run(work_of_one, calls, count)

    monkeypatch.setattr(_schedules, "run_in_threads", watched)
    got = []
    for threads in (1, 2, 5):
        host = lib.host._replace(threads=lambda n=threads: n, tile_size=lambda: 2**14)  # on any processor
        monkeypatch.setitem(vars(lib), "host", host)
        with np.errstate(over="raise"):  # applies to all threads
            got.append(rope.apply(x, 7))
    assert counts[0] == 1 and min(counts[1:]) > 5 and seen == {"raise"}
    for other in got:
        np.testing.assert_array_equal(other, got[0])
        np.testing.assert_array_equal(other[1, 3], rope.apply(x[1, 3], 7))  # by itself


def test_few_elements_are_rotated_in_one_tile(monkeypatch):
    monkeypatch.setattr(_schedules, "_rotate_by_tiles", lambda *_, **__: pytest.fail("in tiles"))
    x = np.ones((1, 32, 1, 128), dtype=np.float32)
    rope = ra.Rope(ra.frequencies(128), pairing="half")
    rope(x, x)
    rope(x, x.copy(), out=(x, x + 1))
