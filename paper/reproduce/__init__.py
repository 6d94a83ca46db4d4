"""Reproduce the paper: the cells of every figure and table, and a session that runs them."""

from paper.reproduce.artifacts import ARTIFACTS as ARTIFACTS
from paper.reproduce.artifacts import make_view as make_view
from paper.reproduce.artifacts import requests_of_all as requests_of_all
from paper.reproduce.artifacts import select_cells as select_cells
from paper.reproduce.session import Outcome as Outcome
from paper.reproduce.session import Session as Session
from paper.reproduce.time_estimate import TimeEstimates as TimeEstimates
from paper.reproduce.training_cells import CellRequest as CellRequest
