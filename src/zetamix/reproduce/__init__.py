"""Every figure and table of the paper: which cells it needs, what was run, how it is drawn.

What is drawn is in `zetamix.reproduce.artifacts` and needs matplotlib; what is run does not.
"""

from zetamix.reproduce.cells import ReproduceError as ReproduceError
from zetamix.reproduce.experiments import EXPERIMENTS as EXPERIMENTS
from zetamix.reproduce.experiments import Ask as Ask
from zetamix.reproduce.results import Results as Results
from zetamix.reproduce.session import Outcome as Outcome
from zetamix.reproduce.session import Session as Session
