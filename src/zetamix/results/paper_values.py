"""The numbers that the paper prints, read from paper_values.json: as printed, errors included."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from zetamix.data import CATALOGUE
from zetamix.metrics import METRICS as METRIC_INFO

# our name of a method: its key in the file
METHODS = {
    "none": "erm",
    "mixup:1.0": "mixup",
    "zeta:2.4": "zeta_2.4",
    "zeta:2.8": "zeta_2.8",
    "zeta:4.0": "zeta_4.0",
}


class PrintedMetric(NamedTuple):
    """How the paper prints a metric, which is not always as we print it."""

    key: str
    """In the file."""
    scale: float
    """Factor from our fraction to the paper's unit."""
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
# artifact: known issues of the paper that its readers should know
FOOTNOTES = {
    "overview": ("fig1-letters",),
    "dimension": ("manifold-12d",),
    "natural": (
        "cifar100-classes",
        "fmnist-size",
        "stl10-epochs",
        "balanced-claim",
        "augmentation-text",
        "dataset-list",
    ),
    "skin": (
        "skin-swap",
        "isic2016-r18-zeta24",
        "isic2016-r50-zeta40",
        "isic2018-size",
        "mednode-r50-tie",
        "five-classes",
        "augmentation-text",
        "daggers",
    ),
    "skin-detailed": (
        "skin-swap",
        "ph2-r18-erm-f1micro",
        "mednode-r18-zeta24-f1macro",
        "isic2016-r18-zeta24",
        "isic2016-r50-zeta40",
        "isic2018-r18-f1macro-underline",
        "isic2018-size",
        "mednode-r50-tie",
        "five-classes",
        "daggers",
    ),
    "medmnist": ("dermamnist-size", "organ-sizes", "medmnist-erm-provenance", "medmnist-lr"),
    "timing": ("bench-claim", "stl10-epochs", "listing"),
    "sensitivity": ("augmentation-text",),
    "theorems": ("p-series", "theorem2-appendix"),
}


@lru_cache(maxsize=1)
def read() -> dict[str, Any]:
    """The content of paper_values.json."""
    text = files("zetamix.results").joinpath("paper_values.json").read_text(encoding="utf-8")
    values: dict[str, Any] = json.loads(text)
    return values


def printed(artifact: str, dataset: str, model: str, method: str, metric: str) -> float | None:
    """The value that the paper prints in a cell of a table, in its own unit; None for no value.

    >>> printed("natural", "cifar10", "resnet18", "zeta:2.8", "error")
    4.67
    """
    table = read()["tables"][TABLES[artifact]]["values"]
    value = _look_up(table.get(dataset, {}), model, method, metric)
    return value if isinstance(value, float) else None


def emphasis(artifact: str, dataset: str, model: str, method: str, metric: str) -> str:
    """How the paper sets a cell: "bold", "underline" or "".

    >>> emphasis("medmnist", "octmnist", "resnet18", "none", "auc")
    'bold'
    """
    table = read()["tables"][TABLES[artifact]].get("printed_emphasis", {})
    value = _look_up(table.get(dataset, {}), model, method, metric)
    return value if isinstance(value, str) else ""


def _look_up(values: Any, model: str, method: str, metric: str) -> Any:
    """A cell of a table. Tables of one model, or of one metric, have no level for it."""
    for key, is_required in (
        (model, False),
        (METHODS.get(method), True),
        (METRICS[metric].key, False),
    ):
        if isinstance(values, Mapping):
            values = values.get(key, None if is_required else values)
    return values


@dataclass(frozen=True)
class Issue:
    """An error or a contradiction in the paper."""

    name: str
    fields: Mapping[str, Any]

    @property
    def sentence(self) -> str:
        """The issue as a footnote."""
        scope = [
            _display_name(key, self.fields[key])
            for key in ("dataset", "model", "method")
            if key in self.fields
        ]
        parts = (self._numbers(), str(self.fields.get("evidence", "")).rstrip("."))
        text = "; ".join(filter(None, parts))
        return f"{', '.join(scope)}: {text}." if scope else f"{text}."

    def _numbers(self) -> str:
        fields = self.fields
        for noun in ("classes", "images"):
            if f"printed_{noun}" in fields:
                actual = fields[f"actual_{noun}"]
                return (
                    f"the paper prints {fields[f'printed_{noun}']:,} {noun}, there are {actual:,}"
                )
        if "cells" in fields:
            swapped = [
                f"{_display_name('dataset', cell['dataset'])} {cell['skin_narrow']} in the narrow "
                f"table, {cell['skin_detailed']} in the detailed one"
                for cell in fields["cells"]
            ]
            return "; ".join(swapped)
        if "training_details" in fields:
            epochs = fields["training_details"], fields["benchmarks"]
            return f"{epochs[0]} epochs in the training details, {epochs[1]} in the table of times"
        if "medmnist_v1_script" in fields:
            script = fields["medmnist_v1_script"]
            return f"the paper's learning rate is {fields['paper']}, MedMNIST's own script {script}"
        if "implied" in fields:
            title = METRIC_INFO[fields["metric"]].title
            implied = fields["implied"]
            return f"{title} is printed as {fields['printed']}, the other numbers imply {implied}"
        return ""

    def concerns(self, dataset: str, model: str, method: str) -> bool:
        """Whether the issue is about this row of a table."""
        rows = self.fields.get("cells") or [{}]
        if "datasets" in self.fields:
            rows = [{"dataset": name} for name in self.fields["datasets"]]
        other = {"model": model, "method": METHODS.get(method)}
        return any(
            row.get("dataset", self.fields.get("dataset")) == dataset
            and all(self.fields.get(key, value) == value for key, value in other.items())
            for row in rows
        )


def _display_name(key: str, value: str) -> str:
    if key == "dataset":
        return CATALOGUE[value].title
    if key == "model":
        return MODELS[value]
    label: str = read()["methods"][value]["label"]
    return label.replace("zeta", "ζ")


def footnotes(artifact: str) -> list[Issue]:
    """Known issues of the paper that belong below an artifact.

    >>> [issue.name for issue in footnotes("dimension")]
    ['manifold-12d']
    """
    issues = {issue["id"]: issue for issue in read()["known_issues"]}
    return [Issue(name, issues[name]) for name in FOOTNOTES.get(artifact, ())]
