"""Benchmarks of rope_any: by library; a library that is not installed is skipped with the reason."""
