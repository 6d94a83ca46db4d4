"""Is synthetic data any good? Every measure for every method, on anyone's data, as one report."""

from zetamix.inspect.inspection import Inspection as Inspection
from zetamix.inspect.inspection import InspectionError as InspectionError
from zetamix.inspect.inspection import Settings as Settings
from zetamix.inspect.oracle import Oracle as Oracle
from zetamix.inspect.oracle import train_oracle as train_oracle
from zetamix.inspect.run import inspect_dataset as inspect_dataset
from zetamix.inspect.write import write_report as write_report
