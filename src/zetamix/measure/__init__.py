"""What synthetic data is worth: dimension, realism, label correctness, diversity, richness."""

from zetamix.measure.dimension import local_dimension as local_dimension
