"""Cells to run, and the records of results with their provenance, as JSON lines."""

import dataclasses
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from zetamix_lab.atomic_io import hash_json, write_file

RUN_SCHEMA = "zetamix/run/1"
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run to train: everything that determines its result."""

    dataset: str
    fingerprint: str
    method: str
    seed: int
    recipe: dict[str, Any]
    train_size: int
    """Number of training samples used, after `--train-size`."""

    @property
    def key(self) -> str:
        """A hash that identifies this cell, the same on any machine.

        >>> cell = Cell(dataset="d", fingerprint="", method="none", seed=0, recipe={}, train_size=1)
        >>> len(cell.key), cell.key == dataclasses.replace(cell, seed=1).key
        (12, False)
        """
        values = dataclasses.asdict(self)
        for value in values["recipe"].values():
            if isinstance(value, dict):
                # a file is identified by its content, not by its path
                value.pop("path", None)
        return hash_json(values)[:12]

    @property
    def folder(self) -> str:
        """The name of the folder of its run: zeta-gamma-2..4-sources-8-s0-1f2e3d4c5b6a."""
        method = re.sub(r"[^\w.-]+", "-", self.method)
        return f"{method}-s{self.seed}-{self.key}"


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The result of one finished run."""

    cell: Cell
    last: dict[str, float]
    """Test metrics after the last epoch (`zetamix_lab.metrics.METRICS`), as fractions; those after
    temperature scaling only where the dataset has a validation split."""
    best: dict[str, float] | None
    """Test metrics of the epoch with the best validation score, and that epoch; None where the
    dataset has no validation split."""
    confusion: list[list[int]]
    """[true class][predicted class] on the test split after the last epoch; empty where there are
    more than `zetamix_lab.metrics.DENSE_CLASSES`."""
    test_size: int
    wall_s: float
    """Seconds of training, evaluation and saving, summed over all resumed sessions."""
    machine: dict[str, str]
    parameters: int = 0
    schema: str = RUN_SCHEMA
    extra: dict[str, Any] = field(default_factory=dict)
    """How it was run, and optional results: "temperature" was fitted on the validation split
    (`zetamix_lab.metrics.fit_temperature`); "last_epochs" has the test metrics of each of the last
    epochs, for recipes that ask for several; "new_bn", of an earlier version, has the metrics of
    `last` after batch-norm statistics were recomputed on unmixed training data."""
    step_ms: float = 0.0
    """Milliseconds per training step, in records of an earlier version."""

    @property
    def key(self) -> str:
        return self.cell.key

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.key, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "RunRecord":
        if values.get("schema") != RUN_SCHEMA:
            raise ValueError(
                f"Expected a record of schema {RUN_SCHEMA}, got {values.get('schema')!r}. Read it "
                "with the version of zetamix that wrote it."
            )
        # the key follows from the cell; earlier versions wrote a checksum
        own = {name: value for name, value in values.items() if name not in ("key", "sha256")}
        return cls(**{**own, "cell": Cell(**values["cell"])})


@dataclass(frozen=True)
class SampleResults:
    """The result of a run for each test sample, in the order of the split."""

    targets: Array
    """[n] classes, or a 0/1 matrix [n, labels]."""
    correct: Array
    """[n]: whether the prediction is right, of several labels all of them."""
    loss: Array
    """[n]: the cross entropy, of several labels their mean."""
    loss_scaled: Array | None = None
    """The loss after temperature scaling, if there is a temperature."""

    @classmethod
    def of(
        cls, logits: Tensor, labels: Tensor, temperature: float | None = None
    ) -> "SampleResults":
        """From the logits of a split, [n, classes], and labels as in `metrics.classify`."""
        logits, labels = logits.detach().float().cpu(), labels.detach().cpu()
        several = labels.ndim == 2
        cross_entropy = F.binary_cross_entropy_with_logits if several else F.cross_entropy

        def loss(logits: Tensor) -> Array:
            losses = cross_entropy(logits, labels, reduction="none")
            return (losses.mean(1) if several else losses).numpy()

        right = ((logits > 0) == (labels > 0.5)).all(1) if several else logits.argmax(1) == labels
        targets = labels.to(torch.uint8 if several else torch.int32)
        scaled = None if temperature is None else loss(logits / temperature)
        return cls(targets.numpy(), right.numpy(), loss(logits), scaled)

    def save(self, path: Path) -> None:
        arrays = {name: value for name, value in self.__dict__.items() if value is not None}
        write_file(path, lambda file: np.savez_compressed(file, **arrays))

    @classmethod
    def load(cls, path: Path) -> "SampleResults":
        # of a damaged file, np.load leaves the handle open
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            return cls(**file)

    def contributions(self, metric: str) -> Array | None:
        """[n]: numbers of which a metric of this run is the mean; None if it has none.

        Those of balanced accuracy and of the AUC of two classes are linear approximations: their
        variance is that of the metric (DeLong et al., 1988).
        """
        right, target = self.correct.astype(float), self.targets
        found: dict[str, Array | None] = {"error": 1 - right, "accuracy": right}
        found |= {"nll": self.loss, "nll_scaled": self.loss_scaled}
        if target.ndim == 2:
            return found.get(metric)
        if metric == "balanced_accuracy":
            return _mean_of_groups(right, target)
        if metric == "auc" and [*np.unique(target)] == [0, 1]:
            area = _mean_of_groups(self._wins(), target)
            # a pair of samples depends on both of them
            return np.asarray(2 * area - area.mean())
        return right if metric == "f1_micro" else found.get(metric)

    def _wins(self) -> Array:
        """[n]: the fraction of samples of the other class that are ranked on the right side."""
        loss, positive = self.loss.astype(float), self.targets == 1
        with np.errstate(divide="ignore", over="ignore"):
            # the logit of the target: its probability is exp(-loss)
            margin = -np.log(np.expm1(loss))
        score, wins = np.where(positive, margin, -margin), np.empty(len(loss))
        for mine, sign in ((positive, 1), (~positive, -1)):
            own, others = sign * score[mine], np.sort(sign * score[~mine])
            # half of a tie
            below = np.searchsorted(others, own) + np.searchsorted(others, own, side="right")
            wins[mine] = below / 2 / len(others)
        return wins


def _mean_of_groups(values: Array, groups: Array) -> Array:
    """[n]: numbers whose mean is the mean over groups of the means of their values.

    Deviations are scaled so that their variance is that of the mean of means, each group a sample.
    """
    present, index, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    means = np.bincount(index, values) / sizes
    scale = len(values) / (len(present) * sizes) * np.sqrt(sizes / np.maximum(sizes - 1, 1))
    return np.asarray(means.mean() + scale[index] * (values - means[index]))


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON lines of a file, without a last line that was cut off by a crash.

    Raises ValueError for a line that is damaged.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                values = json.loads(line)
            except (ValueError, RecursionError):
                if not line.endswith(b"\n"):
                    return
                raise ValueError(f"{path}, line {number}: not JSON.") from None
            if not isinstance(values, dict):
                raise ValueError(f"{path}, line {number}: expected a JSON object.")
            yield values
