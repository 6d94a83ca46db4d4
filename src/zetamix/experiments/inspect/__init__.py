"""Is synthetic data any good? Every measure for every method, on anyone's data, as one report."""

from zetamix.experiments.inspect.oracle import Oracle as Oracle
from zetamix.experiments.inspect.oracle import train_oracle as train_oracle
from zetamix.experiments.inspect.run import inspect_dataset as inspect_dataset
from zetamix.report.inspect import write_report as write_report
from zetamix.results.inspection import Inspection as Inspection
from zetamix.results.inspection import InspectionError as InspectionError
from zetamix.results.inspection import Settings as Settings
