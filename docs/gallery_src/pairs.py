"""
Which features form a pair
==========================

An arc joins the two features of a pair, and both have the same colour and number. See how the arcs of half pairing span
half of the rotary features, while those of interleaved pairing join neighbours. No shape shows which pairing a
checkpoint was trained with.
"""

import rope_any as ra

f = ra.frequencies(16)
names = ["half", "interleaved"]
ropes = [ra.Rope(f, pairing=name) for name in names]
ra.plot.pairs(*ropes, labels=names, head_dim=24)

# %%
# With several axes of positions, each pair rotates by one of them, and the colour is that of the axis. Here are time,
# row and column of a video, in the sections of Qwen2-VL, and row and column of an image.

f, ramp = ra.frequencies(32), ra.frequencies(16)
ropes = {
    "video": ra.Rope(ra.axes.chunked(f, [4, 6, 6]), pairing="half"),
    "image": ra.Rope(ra.axes.axial(ramp, ramp), pairing="half"),
}
axes = ["time", "row", "column"]
ra.plot.pairs(*ropes.values(), labels=[*ropes], axes=axes)
