"""Measure the outputs of every method, and local dimension over a range of γ."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from zetamix.data import Dataset
from zetamix.inspect.oracle import Oracle, train_oracle
from zetamix.inspect.outputs import Outputs, make_outputs
from zetamix.measure import (
    Estimate,
    Judgement,
    classes_per_label,
    coverage,
    effective_samples,
    judge,
    label_entropy,
    local_dimension,
    mean_of,
    relative_distance,
)
from zetamix.methods import Method, parse

Progress: TypeAlias = Callable[[str, int, int], None]

# the paper draws γ from 0 to 15; at 0 every output of a batch is its mean
GAMMAS = (0.5, 1.0, 1.5, 2.0, 2.4, 2.8, 3.2, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0)
# images are looked at one by one, points as a cloud
SHOWN_IMAGES, SHOWN_POINTS = 10, 500
# without more than this there is nothing to say about a distribution
LEAST_SAMPLES = 32


class InspectionError(ValueError):
    """Data or settings that nothing can be measured with; the message says what would do."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides the numbers of an inspection."""

    samples: int = 2000
    """How many originals to measure, at most."""
    batch: int = 128
    neighbours: int = 128
    """Of local dimension; an eighth of the originals where there are fewer than 1024."""
    gammas: tuple[float, ...] = GAMMAS
    tolerance: float = 0.1
    """How far a mean dimension may lie from that of the originals to count as kept."""
    seed: int = 0
    oracle: str = "auto"
    """Model of the oracle; "none" measures no realism, and neither does data of one class."""
    oracle_epochs: int | None = None
    memory_gb: float = 1.0


@dataclass(frozen=True)
class Subject:
    """What was measured of one method's outputs, or of the originals."""

    label: str
    estimates: dict[str, Estimate]
    judgement: Judgement | None
    shown: Tensor
    """[shown, ...]: some outputs to look at, each in the place of the original beside it."""
    shown_targets: Tensor


@dataclass(frozen=True)
class Inspection:
    """All that a report is made of."""

    dataset: str
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    notes: tuple[str, ...]
    settings: Settings
    samples: int
    judged: int
    neighbours: int
    oracle: Oracle | None
    original: Subject
    subjects: tuple[Subject, ...]
    sweep: tuple[tuple[float, Estimate], ...]
    """(γ, local dimension of ζ-mixup's outputs)."""

    @property
    def kept(self) -> tuple[float, ...]:
        """The γ at which the mean local dimension is that of the originals, within tolerance."""
        return tuple(gamma for gamma, found in self.sweep if self._near(found))

    def keeps(self, subject: Subject) -> bool:
        """Whether a method keeps the mean local dimension of the originals, within tolerance."""
        return self._near(subject.estimates["local_dimension"])

    def _near(self, found: Estimate) -> bool:
        wanted = self.original.estimates["local_dimension"].value
        return abs(found.value - wanted) <= self.settings.tolerance * wanted

    def as_dict(self) -> dict[str, Any]:
        subjects = {subject.label: subject for subject in (self.original, *self.subjects)}
        return {
            "dataset": self.dataset,
            "shape": list(self.shape),
            "classes": list(self.classes),
            "notes": list(self.notes),
            "settings": asdict(self.settings),
            "samples": self.samples,
            "judged_samples": self.judged,
            "neighbours": self.neighbours,
            "oracle": None
            if self.oracle is None
            else {
                "name": self.oracle.name,
                "accuracy": self.oracle.accuracy.as_dict(),
                "measured_on": self.oracle.unseen,
            },
            "measures": {
                label: {key: value.as_dict() for key, value in subject.estimates.items()}
                for label, subject in subjects.items()
            },
            "gamma_sweep": [
                {"gamma": gamma, "local_dimension": found.as_dict()} for gamma, found in self.sweep
            ],
            "gammas_that_keep_the_dimension": list(self.kept),
        }


@dataclass(frozen=True)
class Originals:
    """The samples that are mixed: first those that the oracle has not seen, then others."""

    samples: Tensor
    labels: Tensor
    unseen: int
    rest: Tensor
    """Rows of the training split for the oracle."""

    @property
    def groups(self) -> list[Tensor]:
        """Batches never mix the two kinds, so that what is judged is unseen altogether."""
        places = torch.arange(len(self.labels))
        return [part for part in (places[: self.unseen], places[self.unseen :]) if len(part)]


def inspect_dataset(
    dataset: Dataset,
    methods: Sequence[Method],
    settings: Settings | None = None,
    *,
    oracle: Oracle | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Inspection:
    """Mix a dataset's training samples with each method and measure what comes out.

    oracle: a classifier of your own; None trains one on samples that are not judged.
    progress: called with a stage in words, the steps done in it, and the steps to do.
    """
    settings = settings or Settings()
    tell = progress or (lambda stage, done, total: None)
    place = torch.device(device)
    # originals are measured in any case
    methods = [method for method in methods if method.name != "none"]
    if not methods:
        raise InspectionError("Expected a method that mixes, such as mixup or zeta:2.8, got none.")
    originals = choose_originals(dataset, settings, place)
    _try_out(methods, originals)
    # one class alone is never mistaken for another
    if oracle is None and settings.oracle != "none" and dataset.num_classes > 1:
        oracle = _train(dataset, originals, settings, place, tell)
    bench = _Bench(dataset.num_classes, originals, settings, oracle)
    subjects = []
    for done, method in enumerate(methods):
        tell("measuring methods", done, len(methods) + 1)
        subjects.append(bench.measure(method))
    tell("measuring methods", len(methods), len(methods) + 1)
    original = bench.measure(parse("none"))
    tell("measuring methods", len(methods) + 1, len(methods) + 1)
    sweep = []
    for done, gamma in enumerate(settings.gammas):
        tell("local dimension over γ", done, len(settings.gammas))
        outputs = bench.outputs(parse(f"zeta:{gamma}"))
        sweep.append((gamma, bench.dimension(outputs)))
    tell("local dimension over γ", len(settings.gammas), len(settings.gammas))
    return Inspection(
        dataset=dataset.name,
        classes=dataset.classes,
        shape=dataset.shape,
        notes=dataset.notes,
        settings=settings,
        samples=len(originals.labels),
        judged=originals.unseen,
        neighbours=bench.neighbours,
        oracle=oracle,
        original=original,
        subjects=tuple(subjects),
        sweep=tuple(sweep),
    )


def choose_originals(dataset: Dataset, settings: Settings, device: torch.device) -> Originals:
    """Half of the training split at most is kept from the oracle; the rest may be mixed as well."""
    train = dataset.train
    available, classes = len(train), int((train.counts() > 0).sum())
    if min(available, settings.samples) < max(LEAST_SAMPLES, 2 * classes):
        raise InspectionError(
            f"Expected at least {max(LEAST_SAMPLES, 2 * classes)} samples to measure, two of each "
            f"class, got {min(available, settings.samples):,}. Measures of so few say nothing."
        )
    count = min(settings.samples, available)
    chosen = train.subset(min(count, max(classes, available // 2)), settings.seed)
    unseen = _rows(chosen.rows, train.rows, available)
    left = torch.ones(available, dtype=torch.bool)
    left[unseen] = False
    rest = left.nonzero().squeeze(1)
    order = torch.randperm(len(rest), generator=torch.Generator().manual_seed(settings.seed))
    rows = torch.cat([unseen, rest[order[: count - len(unseen)]]])
    samples = train.take(rows).to(device, torch.float32)
    return Originals(samples, train.labels[rows].to(device), len(unseen), rest)


def _rows(chosen: Tensor | None, pool: Tensor | None, available: int) -> Tensor:
    """Rows of a split that a subset of it holds, from the rows that both hold of their pool."""
    if chosen is None:
        return torch.arange(available)
    return chosen if pool is None else torch.searchsorted(pool, chosen)


def _try_out(methods: Sequence[Method], originals: Originals) -> None:
    """A method that cannot mix this data is told before an oracle is trained."""
    few = Originals(originals.samples[:4], originals.labels[:4], 4, originals.rest)
    classes = int(originals.labels.max()) + 1
    for method in methods:
        _Bench(classes, few, Settings(batch=4), None).outputs(method)


def _train(
    dataset: Dataset, originals: Originals, settings: Settings, device: torch.device, tell: Progress
) -> Oracle:
    train, other = dataset.train, [dataset.train.take(originals.rest)]
    labels = [train.labels[originals.rest]]
    if dataset.val is not None:
        other.append(dataset.val.samples)
        labels.append(dataset.val.labels)
    unseen, name = dataset.test, "test split"
    if unseen is None:
        rows = slice(0, originals.unseen)
        held_out = originals.samples[rows], originals.labels[rows].cpu()
        name = "the originals that are judged"
    else:
        held_out = unseen.samples, unseen.labels
    try:
        return train_oracle(
            torch.cat(other),
            torch.cat(labels),
            held_out,
            dataset.num_classes,
            model=settings.oracle,
            epochs=settings.oracle_epochs,
            seed=settings.seed,
            device=device,
            unseen_name=name,
            watch=lambda done, total: tell("training the oracle", done, total),
        )
    except ValueError as error:
        raise InspectionError(f"{settings.oracle} cannot be the oracle: {error}") from error


class _Bench:
    """Measures one method after the other on the same originals, from the same seed."""

    def __init__(
        self, num_classes: int, originals: Originals, settings: Settings, oracle: Oracle | None
    ) -> None:
        self.num_classes = num_classes
        self.originals = originals
        self.settings = settings
        self.oracle = oracle
        self.neighbours = min(settings.neighbours, max(2, len(originals.labels) // 8))
        images = originals.samples.ndim == 4
        labels = originals.labels[: originals.unseen]
        self.shown = _first_of_each_class(labels) if images else slice(0, SHOWN_POINTS)

    def outputs(self, method: Method) -> Outputs:
        try:
            return make_outputs(
                method,
                self.originals.samples,
                self.originals.labels,
                self.num_classes,
                groups=self.originals.groups,
                batch=self.settings.batch,
                # the same batches for every method
                generator=torch.Generator().manual_seed(self.settings.seed),
            )
        except (TypeError, ValueError) as error:
            raise InspectionError(f"{method.label} cannot mix this data: {error}") from error

    def dimension(self, outputs: Outputs) -> Estimate:
        return mean_of(
            local_dimension(outputs.samples, self.neighbours, memory_gb=self.settings.memory_gb)
        )

    def measure(self, method: Method) -> Subject:
        outputs = self.outputs(method)
        estimates = {"local_dimension": self.dimension(outputs)}
        if method.name != "none":
            samples, memory = self.originals.samples, self.settings.memory_gb
            estimates["distance"] = relative_distance(outputs.samples, samples, memory_gb=memory)
            estimates["coverage"] = coverage(outputs.samples, samples, memory_gb=memory)
        estimates["classes"] = classes_per_label(outputs.targets)
        estimates["label_entropy"] = label_entropy(outputs.targets)
        estimates["effective_samples"] = effective_samples(outputs.weights)
        judgement = None
        if self.oracle is not None:
            judged = slice(0, self.originals.unseen)
            judgement = judge(self.oracle, outputs.samples[judged], outputs.targets[judged])
            estimates |= judgement.summary()
        label = "original" if method.name == "none" else method.label
        shown = outputs.samples[self.shown].cpu(), outputs.targets[self.shown].cpu()
        return Subject(label, estimates, judgement, *shown)


def _first_of_each_class(labels: Tensor) -> Tensor:
    """Places of one sample of each class, of ten classes at most, in the order of classes."""
    first = [int((labels == label).nonzero()[0]) for label in torch.unique(labels)[:SHOWN_IMAGES]]
    return torch.tensor(first)
