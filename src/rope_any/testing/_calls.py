"""The public functions that take arrays, in typical calls: functions of arrays of any library, and arrays of NumPy."""

from typing import Any, TypeAlias

import numpy as np

from rope_any import axes, bending, layouts, positions, weights
from rope_any._cumulative import cumulative_angles
from rope_any._frequencies import frequencies
from rope_any._rope import Rope
from rope_any._rotate import rotate
from rope_any._table import cos_sin, from_angles

_Row: TypeAlias = tuple[Any, ...]
"""A function of arrays, then arrays for it."""

F = frequencies(8)
ROPE = Rope(F, pairing="half")
INTERLEAVED = Rope(F, pairing="interleaved", start=2, attention_factor=1.2)
GRID = Rope(axes.axial(F[:2], F[:2]), pairing="half", blocks=2)
HEADS = Rope(axes.golden(F, 2, heads=2), pairing="half")

_RNG = np.random.default_rng(5)
Q, K = (_RNG.uniform(-1, 1, (2, heads, 3, 10)).astype(np.float32) for heads in (4, 2))
P = np.asarray([0, 7, 70_000], np.int32)
ROWS = np.asarray([[0, 7, 70_000], [1, 2, 3]], np.int32)
FOUR_KEYS, FOUR_ROWS, ROWS_BY_HEAD = K[:, [0, 1, 1, 0]], ROWS[:, [0, 1, 2, 0]], ROWS[:, None, [0, 1, 2, 0]]
PLACES = np.asarray([[0, 1], [1, 0], [5, 9]], np.int32)
REALS = np.asarray([0.5, 7.25, 100.0], np.float32)
LEARNED = np.asarray(F, np.float32)
MIX = _RNG.uniform(0, 1, (4, 4)).astype(np.float32)
ANGLES = (np.arange(5)[:, None] * np.asarray([*F, *F])).astype(np.float32)[:, None, None]
STEPS = np.linspace(0, 9, 24, dtype=np.float32).reshape(2, 3, 4)
ENDS, OFFSETS, RANK = np.asarray([0, 3, 5], np.int32), np.asarray([9, 7], np.int32), np.asarray(1, np.int32)
DOCUMENTS = np.asarray([0, 8, 12], np.int32)


def _in_state_dict(w: Any) -> Any:
    """Return a weight that is converted in a state dict."""
    return weights.convert_state_dict({"l.0.wq.weight": w}, 8, source="half", target="interleaved")["l.0.wq.weight"]


CALLS: dict[str, _Row] = {
    "rope(q, k)": (ROPE, Q, K),
    "rope(q, k, int)": (lambda q, k: ROPE(q, k, 70_000), Q, K),
    "rope(q, k, range)": (lambda q, k: ROPE(q, k, range(3)), Q, K),
    "rope(q, k, list)": (lambda q, k: ROPE(q, k, [4, 5, 9]), Q, K),
    "rope(q, k, array)": (ROPE, Q, K, P),
    "rope(q, k, rows)": (ROPE, Q, K, ROWS),
    "rope(q, k, scalar)": (ROPE, Q, K, P[1:2].reshape(())),
    "rope(q, k, reals)": (ROPE, Q, K, REALS),
    "rope(q, k, table)": (lambda q, k, p: ROPE(q, k, ROPE.table(p)), Q, K, P),
    "rope(q, k, table of rows)": (lambda q, k, p: ROPE(q, k, ROPE.table(p)), Q, K, ROWS),
    "rope(q, k, pair)": (lambda q, k, p: ROPE(q, k, (ROPE.table(p[1:]), ROPE.table(p))), Q[:, :, 1:], K, P),
    "rope, fewer queries": (ROPE, Q[:, :, 2:], K, ROWS),
    "rope, interleaved": (INTERLEAVED, Q, K, P),
    "rope, tokens before heads": (lambda q, k, p: ROPE(q, k, p, seq_axis=1), Q, FOUR_KEYS, FOUR_ROWS),
    "rope, tokens before heads, rows by head": (lambda q, k, p: ROPE(q, k, p, seq_axis=1), Q, FOUR_KEYS, ROWS_BY_HEAD),
    "rope, axes": (GRID, Q, K, PLACES),
    "rope, axes from int": (lambda q, k: GRID(q, k, 5), Q, K),
    "rope, heads": (HEADS, Q, K, PLACES),
    "apply": (ROPE.apply, Q, P),
    "apply, inverse": (lambda x, p: INTERLEAVED.apply(x, p, inverse=True), Q, ROWS),
    "apply, one axis less": (ROPE.apply, Q[0, 0], P),
    "apply, float16": (ROPE.apply, Q.astype(np.float16), P),
    "apply, out": (lambda x, p: ROPE.apply(x, p, out=x + 0), Q, P),
    "apply, fused": (lambda x, p: ROPE.apply(x, p, fused=True), Q, P),
    "reposition": (lambda x, p: ROPE.reposition(x, p, 5), K, ROWS),
    "reposition, axes": (lambda x, p: GRID.reposition(x, p, 5), K, PLACES),
    "reposition, reals": (lambda x, p: ROPE.reposition(x, p, [1.5, 2, 3]), K, REALS),
    "reposition, heads": (lambda x, p: HEADS.reposition(x, p, 5), K, PLACES),
    "table": (ROPE.table, ROWS),
    "table, fused": (lambda p: ROPE.table(p, fused=True), ROWS),
    "table, reals": (ROPE.table, REALS),
    "table, range": (lambda x: ROPE.table(range(4, 9), like=x), Q),
    "table, list of reals": (lambda x: ROPE.table([0.5, 2], like=x), Q),
    "table, axes": (GRID.table, PLACES),
    "table, heads": (HEADS.table, PLACES),
    "cos_sin": (lambda p: cos_sin(p, F, attention_factor=1.5), P),
    "cos_sin, learned": (cos_sin, ROWS, LEARNED),
    "cos_sin, learned reals": (cos_sin, REALS, LEARNED),
    "cos_sin, learned axes": (cos_sin, PLACES, np.stack([LEARNED, LEARNED])),
    "cos_sin, learned heads": (cos_sin, PLACES, np.full((3, 2, 4), 0.25, np.float32)),
    "rotate": (lambda x, p: rotate(x, *ROPE.table(p), pairing="half"), Q, P),
    "rotate, inverse": (lambda x, p: rotate(x, *ROPE.table(p), pairing="interleaved", start=1, inverse=True), Q, P),
    "rotate, into halves": (
        lambda x, p: rotate(x, *ROPE.table(p), pairing="interleaved", out_pairing="half", start=1),
        Q,
        P,
    ),
    "from_angles": (from_angles, np.linspace(-9, 9, 12, dtype=np.float32).reshape(3, 4)),
    "cumulative_angles": (cumulative_angles, STEPS),
    "cumulative_angles, carry": (lambda s: cumulative_angles(s, carry=cumulative_angles(s)[1]), STEPS),
    "xpos": (lambda p: bending.xpos(ROPE.table(p), p, centre=5), ROWS % 100),
    "xpos, reals": (lambda p: bending.xpos(ROPE.table(p), p, centre=5), REALS),
    "temperature": (lambda p: bending.temperature(ROPE.table(p), p, beta=0.1, original_length=8), ROWS),
    "temperature, reals": (lambda p: bending.temperature(ROPE.table(p), p, beta=0.1, original_length=8), REALS),
    "fope": (lambda p, c: bending.fope(ROPE.table(p), c, c, pairs=6, sine_padding=1.0), ROWS, MIX),
    "fope, heads": (lambda p, c: bending.fope(ROPE.table(p), c, c, pairs=4, sine_padding=1.0), P, np.stack([MIX] * 3)),
    "fope, applied": (
        lambda q, p, c: rotate(q, *bending.fope(ROPE.table(p), c, c, pairs=4, sine_padding=0.0), pairing="half"),
        Q,
        ROWS,
        np.stack([MIX] * 4),
    ),
    "packed": (lambda x: positions.packed([0, 3, 5], 6, like=x), Q),
    "packed, array": (lambda ends: positions.packed(ends, 6), ENDS),
    "ragged": (lambda ends, o: positions.ragged(ends, o, 6), ENDS, OFFSETS),
    "segments": (positions.segments, np.asarray([[1, 1, 2, 2, 0], [1, 2, 2, 2, 2]], np.int32)),
    "padded": (positions.padded, np.asarray([[0, 1, 1], [1, 1, 0]], np.int32)),
    "from_starts": (lambda p: positions.from_starts(p, 4), ROWS),
    "from_starts, list": (lambda x: positions.from_starts([0, 3], 6, like=x), Q),
    "unrotated": (lambda p: positions.unrotated(p, before=1, after=2), ROWS),
    "unscaled_first": (lambda p: positions.unscaled_first(p, 2), ROWS),
    "grid": (lambda x: positions.grid(2, [0.5, 1.5], window=[1, 1], like=x), Q),
    "grid, array": (lambda p: positions.grid(p, 4, order="columns"), P),
    "shard": (lambda r: positions.shard(12, 3, r, zigzag=True), RANK),
    "shard, documents": (lambda r, e: positions.shard(12, 2, r, zigzag=True, cumulative_lengths=e), RANK, DOCUMENTS),
    "gather_order": (lambda x: positions.gather_order(12, 3, zigzag=True, like=x), Q),
    "mrope": (lambda x: positions.mrope([3, (1, 2, 2), 4], like=x, diagonal=0.5), Q),
    "mrope, audio": (lambda x: positions.mrope([3, (2, 2, 2, 3), 4], like=x, chunk=2), Q),
    "self_extend": (lambda p: positions.self_extend(p, group=2, window=2), ROWS),
    "rerope": (lambda p: positions.rerope(p, window=2), ROWS),
    "leaky_rerope": (lambda p: positions.leaky_rerope(p, window=2, factor=2), ROWS),
    "dual_chunk": (lambda p: positions.dual_chunk(p, chunk_size=4, local_size=2), ROWS),
    "convert": (lambda w: weights.convert(w, 4, source="half", target="interleaved"), MIX),
    "convert_state_dict": (_in_state_dict, np.ones((16, 4), np.float32)),
    "pack": (lambda p: layouts.pack(ROPE.table(p), "vllm"), P),
    "pack, transformers": (lambda p: layouts.pack(ROPE.table(p), "transformers"), ROWS),
    "pack, meta": (lambda p: layouts.pack(ROPE.table(p), "meta"), P),
    "pack, angles": (lambda x: layouts.pack(ROPE, "megatron", like=x, length=5), Q),
    "pack, mlx": (lambda x: layouts.pack(ROPE, "mlx", like=x), Q),
    "unpack": (lambda p: layouts.unpack(layouts.pack(ROPE.table(p), "vllm"), "vllm"), P),
}
# these read values of their arrays, which no tracer has
READING: dict[str, _Row] = {
    "unpack, angles": (lambda a: layouts.unpack(a, "megatron").frequencies, ANGLES),
    "unpack, mlx": (lambda a: layouts.unpack(a, "mlx", pairing="half").frequencies, 1 / LEARNED),
}
