"""
Angles of all pairs at one position
===================================

Each pair of features is a hand of a clock that rotates at its own speed: pair 0 makes a turn in 6.28 tokens, the
slowest pair of this head in 54 410. See how the long, fast hands point anywhere at position 1000, while the short, slow
ones have hardly left 0. The angles of all hands together determine the position.
"""

from matplotlib import pyplot as plt

import rope_any as ra

rope = ra.Rope(ra.frequencies(128), pairing="half")
ra.plot.hands(rope, 1000)

# %%
# Each function can also draw on given axes, which keep their own style; ``LOOKS`` is the style of the figure above.
# Here are four of the hands at position 10 and 40 tokens later: the faster a hand, the further it has moved.

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
