"""
Which features form a pair
==========================

The number in a cell is that of its pair: two features with the same number rotate together. With half pairing their
distance is half of the rotary features, with interleaved pairing they are adjacent. No shape shows which pairing a
checkpoint was trained with.
"""

import rope_any as ra

f = ra.frequencies(16)
names = ["half", "interleaved"]
ropes = [ra.Rope(f, pairing=name) for name in names]
ra.plot.pairs(*ropes, labels=names, head_dim=24)

# %%
# With several axes of positions, each pair rotates by one of them: here time, row and column of a video, in the
# sections of Qwen2-VL, and row and column of an image.

f, ramp = ra.frequencies(32), ra.frequencies(16)
ropes = {
    "video": ra.Rope(ra.axes.chunked(f, [4, 6, 6]), pairing="half"),
    "image": ra.Rope(ra.axes.axial(ramp, ramp), pairing="half"),
}
axes = ["time", "row", "column"]
ra.plot.pairs(*ropes.values(), labels=[*ropes], axes=axes)
