"""Benchmark of mixing against a plain copy and against other libraries."""
