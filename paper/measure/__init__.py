"""Measures of mixed samples: local dimension, realism, label correctness, diversity, richness."""

from paper.measure.dimension import local_dimension as local_dimension
from paper.measure.diversity import classes_per_label as classes_per_label
from paper.measure.diversity import coverage as coverage
from paper.measure.diversity import effective_samples as effective_samples
from paper.measure.diversity import label_entropy as label_entropy
from paper.measure.diversity import relative_distance as relative_distance
from paper.measure.estimate import Estimate as Estimate
from paper.measure.estimate import mean_of as mean_of
from paper.measure.realism import Judgement as Judgement
from paper.measure.realism import density as density
from paper.measure.realism import judge as judge
