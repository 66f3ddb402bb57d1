"""Benchmarks of rope_any: by library, and with every library that is not here skipped for a stated reason."""
