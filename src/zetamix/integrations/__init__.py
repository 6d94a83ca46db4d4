"""Transforms in other training libraries: one module per library, which must be installed."""
