"""Running experiments: cells, the processes that train them, and comparisons."""
