"""Transforms inside other training stacks: one module per library, which it imports."""
