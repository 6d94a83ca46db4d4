"""The numbers printed in the paper, from values.json: as printed, including errors."""

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

# method: its key in the file
METHODS = {
    "none": "erm",
    "mixup:1.0": "mixup",
    "zeta:2.4": "zeta_2.4",
    "zeta:2.8": "zeta_2.8",
    "zeta:4.0": "zeta_4.0",
}


class PrintedMetric(NamedTuple):
    """How the paper prints a metric: its key in the file, factor from a fraction, and digits."""

    key: str
    scale: float
    digits: int


METRICS = {
    "error": PrintedMetric("err", 100.0, 2),
    "balanced_accuracy": PrintedMetric("acc_bal", 100.0, 2),
    "f1_micro": PrintedMetric("f1_micro", 1.0, 4),
    "f1_macro": PrintedMetric("f1_macro", 1.0, 4),
    "auc": PrintedMetric("auc", 1.0, 3),
    "accuracy": PrintedMetric("acc", 100.0, 1),
}
MODELS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50"}
# artifact: the table of the file that it is compared with
TABLES = {
    "natural": "natural",
    "skin": "skin_narrow",
    "skin-detailed": "skin_detailed",
    "medmnist": "medmnist",
}


@cache
def read() -> dict[str, Any]:
    """The content of values.json."""
    values: dict[str, Any] = json.loads(Path(__file__).with_name("values.json").read_text("utf-8"))
    return values


def printed(artifact: str, dataset: str, model: str, method: str, metric: str) -> float:
    """The value printed in a cell of a table of the paper, in its unit; NaN if there is none.

    >>> printed("natural", "cifar10", "resnet18", "zeta:2.8", "error")
    4.67
    """
    value = read()["tables"][TABLES[artifact]]["values"].get(dataset, {})
    # tables of one model, or of one metric, have no level for it
    levels = ((model, False), (METHODS.get(method), True), (METRICS[metric].key, False))
    for key, is_required in levels:
        if isinstance(value, Mapping):
            value = value.get(key, None if is_required else value)
    return value if isinstance(value, float) else math.nan


def footnotes(artifact: str) -> list[str]:
    """Known errors and contradictions of the paper that belong below an artifact.

    >>> footnotes("p-series"), len(footnotes("theorems"))
    ([], 2)
    """
    issues = [issue for issue in read()["known_issues"] if artifact in issue["artifacts"]]
    return [f"About the paper: {issue['sentence']}" for issue in issues]
