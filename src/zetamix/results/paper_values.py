"""The numbers that the paper prints, from a file of their own: as printed, errors included."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from zetamix.data import CATALOGUE

# our name of a method: the paper's
METHODS = {
    "none": "erm",
    "mixup:1.0": "mixup",
    "zeta:2.4": "zeta_2.4",
    "zeta:2.8": "zeta_2.8",
    "zeta:4.0": "zeta_4.0",
}
# our name of a metric: (the paper's, what our fraction is multiplied by, decimals it prints)
METRICS = {
    "error": ("err", 100.0, 2),
    "balanced_accuracy": ("acc_bal", 100.0, 2),
    "f1_micro": ("f1_micro", 1.0, 4),
    "f1_macro": ("f1_macro", 1.0, 4),
    "auc": ("auc", 1.0, 3),
    "accuracy": ("acc", 100.0, 1),
}
METRIC_NAMES = {"f1_micro": "F1-micro", "f1_macro": "F1-macro"}
MODELS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50"}
# artifact: the table of the file that it is held against
TABLES = {
    "natural": "natural",
    "skin": "skin_narrow",
    "skin-detailed": "skin_detailed",
    "medmnist": "medmnist",
}
# artifact: the known issues that its readers have to know
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
    """The whole file."""
    text = files("zetamix.results").joinpath("paper_values.json").read_text(encoding="utf-8")
    values: dict[str, Any] = json.loads(text)
    return values


def printed(artifact: str, dataset: str, model: str, method: str, metric: str) -> float | None:
    """What the paper prints in a cell of a table, in its own unit; None where it prints nothing.

    >>> printed("natural", "cifar10", "resnet18", "zeta:2.8", "error")
    4.67
    """
    values = read()["tables"][TABLES[artifact]]["values"].get(dataset, {})
    found = _follow(values, model, method, metric)
    return found if isinstance(found, float) else None


def emphasis(artifact: str, dataset: str, model: str, method: str, metric: str) -> str:
    """How the paper sets a cell: "bold", "underline" or "".

    >>> emphasis("medmnist", "octmnist", "resnet18", "none", "auc")
    'bold'
    """
    table = read()["tables"][TABLES[artifact]].get("printed_emphasis", {})
    found = _follow(table.get(dataset, {}), model, method, metric)
    return found if isinstance(found, str) else ""


def _follow(values: Any, model: str, method: str, metric: str) -> Any:
    """What a table has for a cell; one of a single model, or of one metric, does not name it."""
    for step, is_named in (
        (model, False),
        (METHODS.get(method), True),
        (METRICS[metric][0], False),
    ):
        if isinstance(values, Mapping):
            values = values.get(step, None if is_named else values)
    return values


@dataclass(frozen=True)
class Issue:
    """Something in the paper that cannot be right, or contradicts itself."""

    name: str
    facts: Mapping[str, Any]

    @property
    def sentence(self) -> str:
        """What is wrong, for a footnote."""
        where = [
            _name(key, self.facts[key])
            for key in ("dataset", "model", "method")
            if key in self.facts
        ]
        parts = (self._numbers(), str(self.facts.get("evidence", "")).rstrip("."))
        text = "; ".join(filter(None, parts))
        return f"{', '.join(where)}: {text}." if where else f"{text}."

    def _numbers(self) -> str:
        facts = self.facts
        for what in ("classes", "images"):
            if f"printed_{what}" in facts:
                actual = facts[f"actual_{what}"]
                return f"the paper prints {facts[f'printed_{what}']:,} {what}, there are {actual:,}"
        if "cells" in facts:
            swapped = [
                f"{_name('dataset', cell['dataset'])} {cell['skin_narrow']} in the narrow table, "
                f"{cell['skin_detailed']} in the detailed one"
                for cell in facts["cells"]
            ]
            return "; ".join(swapped)
        if "training_details" in facts:
            epochs = facts["training_details"], facts["benchmarks"]
            return f"{epochs[0]} epochs in the training details, {epochs[1]} in the table of times"
        if "medmnist_v1_script" in facts:
            script = facts["medmnist_v1_script"]
            return f"the paper's rate is {facts['paper']}, that of MedMNIST's own script {script}"
        if "implied" in facts:
            metric, implied = METRIC_NAMES[facts["metric"]], facts["implied"]
            return f"{metric} is printed as {facts['printed']}, the other numbers imply {implied}"
        return ""

    def concerns(self, dataset: str, model: str, method: str) -> bool:
        """Whether it is about this row of a table."""
        places = self.facts.get("cells") or [{}]
        if "datasets" in self.facts:
            places = [{"dataset": name} for name in self.facts["datasets"]]
        return any(self._is_at({**self.facts, **place}, dataset, model, method) for place in places)

    def _is_at(self, place: Mapping[str, Any], dataset: str, model: str, method: str) -> bool:
        row = {"model": model, "method": METHODS.get(method)}
        return place.get("dataset") == dataset and all(
            place.get(key, value) == value for key, value in row.items()
        )


def _name(key: str, value: str) -> str:
    """What readers call a dataset, a model or a method of the file."""
    if key == "dataset":
        return CATALOGUE[value].title
    if key == "model":
        return MODELS[value]
    label: str = read()["methods"][value]["label"]
    return label.replace("zeta", "ζ")


def footnotes(artifact: str) -> list[Issue]:
    """The known issues of the paper that belong below an artifact.

    >>> [issue.name for issue in footnotes("dimension")]
    ['manifold-12d']
    """
    known = {issue["id"]: issue for issue in read()["known_issues"]}
    return [Issue(name, known[name]) for name in FOOTNOTES.get(artifact, ())]
