"""Speed of mixing, loading and training, run with `make bench`."""
