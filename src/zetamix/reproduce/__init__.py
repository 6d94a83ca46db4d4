"""Every figure and table of the paper: which cells it needs, what was run, how it is drawn."""

from zetamix.reproduce.artifacts import draw as draw
from zetamix.reproduce.artifacts import look as look
from zetamix.reproduce.cells import ReproduceError as ReproduceError
from zetamix.reproduce.experiments import EXPERIMENTS as EXPERIMENTS
from zetamix.reproduce.experiments import Ask as Ask
from zetamix.reproduce.results import Results as Results
from zetamix.reproduce.session import Outcome as Outcome
from zetamix.reproduce.session import Session as Session
from zetamix.reproduce.writing import write_artifact as write_artifact
from zetamix.reproduce.writing import write_page as write_page
