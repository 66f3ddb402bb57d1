"""
Wavelengths of scaling schemes
==============================

The wavelength of a pair is the number of tokens in which it makes one turn. A pair whose wavelength is longer than the
trained length takes only some of its angles in training. Beyond that length it takes angles that the model has never
seen.
"""

# %%
# See which lines leave the plain one, and where: linear scaling makes all pairs slower, but YaRN only those that are
# slow already.

import rope_any as ra

plain = ra.frequencies(128)
trained = {"base": 10_000.0, "original_length": 4096}
recipes = {
    "plain": plain,
    "linear, factor 4": ra.scaling.linear(plain, 4.0),
    "ntk, factor 4": ra.scaling.ntk(plain, 4.0),
    "yarn, factor 4": ra.scaling.yarn(plain, 4.0, **trained),
}
lengths = {"trained": 4096, "extended": 16_384}
ra.plot.wavelengths(*recipes.values(), labels=[*recipes], lengths=lengths)
