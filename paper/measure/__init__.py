"""Measures of mixed samples: local dimension, realism, label correctness, diversity, richness."""
