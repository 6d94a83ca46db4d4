"""Measures of mixed samples: local dimension, realism, label correctness, diversity, richness."""

from zetamix.measure.coordinate_system import coordinates as coordinates
from zetamix.measure.dimension import local_dimension as local_dimension
from zetamix.measure.diversity import classes_per_label as classes_per_label
from zetamix.measure.diversity import coverage as coverage
from zetamix.measure.diversity import effective_samples as effective_samples
from zetamix.measure.diversity import label_entropy as label_entropy
from zetamix.measure.diversity import relative_distance as relative_distance
from zetamix.measure.estimate import Estimate as Estimate
from zetamix.measure.estimate import mean_of as mean_of
from zetamix.measure.realism import Judgement as Judgement
from zetamix.measure.realism import density as density
from zetamix.measure.realism import judge as judge
