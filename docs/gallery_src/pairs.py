"""
Which features form a pair
==========================

The number in a cell is that of its pair: two features of one number turn together. Half pairing puts them half of
the turning features apart, interleaved pairing side by side; no shape tells which one a checkpoint was trained with.
"""

import rope_any as ra

f = ra.frequencies(16)
names = ["half", "interleaved"]
ropes = [ra.Rope(f, pairing=name) for name in names]
ra.plot.pairs(*ropes, labels=names, head_dim=24)

# %%
# With several axes of positions each pair turns with one of them: here time, row and column of a video, in the
# sections of Qwen2-VL, and row and column of an image.

f, ramp = ra.frequencies(32), ra.frequencies(16)
ropes = {
    "video": ra.Rope(ra.axes.chunked(f, [4, 6, 6]), pairing="half"),
    "image": ra.Rope(ra.axes.axial(ramp, ramp), pairing="half"),
}
axes = ["time", "row", "column"]
ra.plot.pairs(*ropes.values(), labels=[*ropes], axes=axes)
