"""
A table of cosines and sines as an image
========================================

The picture shows the cosines and sines of 256 positions and 64 pairs, as :func:`rope_any.rotate` takes them.
"""

# %%
# Each column is a wave. See how fast pairs, at the left of each half, alternate from token to token, while after 256
# tokens the slowest pairs are still close to cosine 1 and sine 0.

import rope_any as ra

rope = ra.Rope(ra.frequencies(128), pairing="half")
ra.plot.table(rope, range(256))
