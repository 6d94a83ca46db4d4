"""Every figure and table of the paper: which cells it needs, what was run, how it is drawn.

What is drawn is in `zetamix.report.paper.artifacts` and needs matplotlib; what is run does not.
"""

from zetamix.experiments.reproduce.cells import ReproduceError as ReproduceError
from zetamix.experiments.reproduce.experiments import EXPERIMENTS as EXPERIMENTS
from zetamix.experiments.reproduce.experiments import Ask as Ask
from zetamix.experiments.reproduce.session import Outcome as Outcome
from zetamix.experiments.reproduce.session import Session as Session
from zetamix.results.record_store import Results as Results
