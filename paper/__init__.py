"""The paper again: its datasets, measures, figures and tables, run with `python -m paper`."""
