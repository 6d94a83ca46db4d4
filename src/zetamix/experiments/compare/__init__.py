"""Does it help on my data? Methods side by side, fairly and repeatedly, with a verdict."""

from zetamix.experiments.compare.grid import CompareError as CompareError
from zetamix.experiments.compare.grid import Grid as Grid
from zetamix.experiments.compare.grid import make_grid as make_grid
from zetamix.experiments.compare.progress import Overview as Overview
from zetamix.experiments.compare.run import compare as compare
from zetamix.results.comparison import Comparison as Comparison
