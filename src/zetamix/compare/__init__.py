"""Does it help on my data? Methods side by side, fairly and repeatedly, with a verdict."""

from zetamix.compare.grid import CompareError as CompareError
from zetamix.compare.grid import Grid as Grid
from zetamix.compare.grid import make_grid as make_grid
from zetamix.compare.progress import Overview as Overview
from zetamix.compare.result import Comparison as Comparison
from zetamix.compare.run import compare as compare
