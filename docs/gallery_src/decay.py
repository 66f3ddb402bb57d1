"""
The score decays with distance
==============================

The score is that of a query and a key whose features are all equal, so it is the mean of the cosines of all pairs. See
how the line falls: near tokens have all cosines close to 1, and at large distances cosines of both signs cancel out.
The band spans the lowest to the highest score at similar distances; fast pairs cause that spread.
"""

import rope_any as ra

ra.plot.decay(ra.frequencies(128), length=100_000)

# %%
# With a base of 500 000, as in Llama 3, the line falls more slowly, so the score of distant tokens stays larger.

ra.plot.decay(ra.frequencies(128, base=500_000.0), length=100_000)
