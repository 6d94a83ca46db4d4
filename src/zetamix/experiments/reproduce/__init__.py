"""Reproduce the paper: the cells of every figure and table, and a session that runs them."""

from zetamix.experiments.reproduce.artifacts import ARTIFACTS as ARTIFACTS
from zetamix.experiments.reproduce.artifacts import make_view as make_view
from zetamix.experiments.reproduce.artifacts import requests_of_all as requests_of_all
from zetamix.experiments.reproduce.artifacts import select_cells as select_cells
from zetamix.experiments.reproduce.session import Outcome as Outcome
from zetamix.experiments.reproduce.session import Session as Session
from zetamix.experiments.reproduce.time_estimate import TimeEstimates as TimeEstimates
from zetamix.experiments.reproduce.training_cells import CellRequest as CellRequest
