"""
The score decays with distance
==============================

The score of a query and a key whose features are all equal, by their distance. It is the mean of the cosines of all
pairs: at small distances all cosines are close to 1, at large distances they have both signs and cancel out. The upper
line is the bound of the paper's section 3.4.3. It is much larger than the score, so it has its own axis, at the right.
"""

import rope_any as ra

ra.plot.decay(ra.frequencies(128), length=100_000)

# %%
# With a base of 500 000, as in Llama 3, the score of distant tokens stays larger.

ra.plot.decay(ra.frequencies(128, base=500_000.0), length=100_000)
