"""Use rope_any inside other libraries: one module for each, and the only one that imports it."""
