"""Datasets: every one of the paper by name, or a user's own by path."""

from zetamix.data.catalogue import CATALOGUE as CATALOGUE
from zetamix.data.catalogue.spec import Spec as Spec
from zetamix.data.dataset import Dataset as Dataset
from zetamix.data.dataset import Split as Split
from zetamix.data.dataset import from_tensors as from_tensors
from zetamix.data.errors import DataError as DataError
from zetamix.data.errors import NotHereError as NotHereError
from zetamix.data.loader import Loader as Loader
from zetamix.data.loading import as_reported as as_reported
from zetamix.data.loading import load as load
from zetamix.data.loading import prepare as prepare
from zetamix.data.quality import Report as Report
from zetamix.data.quality import check as check
