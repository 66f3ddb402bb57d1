"""
A table of cosines and sines as an image
========================================

The cosines and sines of 256 positions and 64 pairs, as :func:`rope_any.rotate` takes them.
"""

# %%
# Each column is a wave, the fast pairs at the left of each half. The slowest pairs have hardly left cosine 1 and sine 0
# after 256 tokens.

import rope_any as ra

rope = ra.Rope(ra.frequencies(128), pairing="half")
ra.plot.table(rope, range(256))
