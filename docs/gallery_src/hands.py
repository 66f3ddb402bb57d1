"""
A clock with many hands
=======================

Each pair of features is a hand that turns at its own speed: pair 0 comes round every 6.28 tokens, the slowest pair
of this head every 54 410. Where all hands stand tells the position. From one token to the next the long hands move
visibly and the short ones hardly; over a thousand tokens the short ones have moved, too.
"""

from matplotlib import pyplot as plt

import rope_any as ra

rope = ra.Rope(ra.frequencies(128), pairing="half")
ra.plot.hands(rope, 1000)

# %%
# Each function also draws on axes that it is given: here four of the hands, at position 10 and 40 tokens later.

figure = plt.figure(figsize=(7.6, 3.6), layout="constrained")
both = figure.subplots(1, 2, subplot_kw={"projection": "polar"})
for position, ax in zip((10, 50), both, strict=True):
    ra.plot.hands(rope, position, pairs=[0, 16, 32, 48], ax=ax)
    ax.get_legend().remove()
figure.legend(handles=ax.lines, title="pair: tokens per turn", loc="outside right")
