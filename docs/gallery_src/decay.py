"""
The score decays with distance
==============================

The score of a query and a key whose features are all equal, by how far they stand apart. It is the mean of the cosines
of all pairs: near by all of them are close to 1, far away they point anywhere and cancel out. Above it is the bound of
the paper's section 3.4.3, far above it: it has an axis of its own, at the right.
"""

import rope_any as ra

ra.plot.decay(ra.frequencies(128), length=100_000)

# %%
# With a base of 500 000, as in Llama 3, the score of distant tokens stays larger.

ra.plot.decay(ra.frequencies(128, base=500_000.0), length=100_000)
