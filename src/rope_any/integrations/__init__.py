"""Use rope_any inside of other libraries: one module for each, the only one that imports it."""
