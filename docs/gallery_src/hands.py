"""
Angles of all pairs at one position
===================================

Each pair of features is a hand that rotates at its own speed: pair 0 makes a turn in 6.28 tokens, the slowest pair
of this head every 54 410. Where all hands stand tells the position. From one token to the next the long hands move
visibly and the short ones hardly; over a thousand tokens the short ones have moved, too.
"""

from matplotlib import pyplot as plt

import rope_any as ra

rope = ra.Rope(ra.frequencies(128), pairing="half")
ra.plot.hands(rope, 1000)

# %%
# Each function also draws on axes that it is given: here four of the hands, at position 10 and 40 tokens later. Such
# axes keep their own looks; ``LOOKS`` are those above.

four = [0, 16, 32, 48]
with plt.rc_context(ra.plot.looks.LOOKS):
    figure, (left, right) = plt.subplots(
        ncols=2,
        figsize=(7.6, 3.0),
        layout="constrained",
        subplot_kw={"projection": "polar"},
    )
    ra.plot.hands(rope, 10, pairs=four, legend=False, ax=left)
    ra.plot.hands(rope, 50, pairs=four, ax=right)
