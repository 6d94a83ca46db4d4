"""Inspection of mixed samples: measures the outputs of every method, without training on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from zetamix.data import Dataset, Split
from zetamix.data.splits import classes_in_turn
from zetamix.experiments.oracle import downscale, train_oracle
from zetamix.measure import (
    Estimate,
    classes_per_label,
    coordinates,
    coverage,
    effective_samples,
    judge,
    label_entropy,
    local_dimension,
    mean_of,
    relative_distance,
)
from zetamix.measure.mixed_samples import MixedSamples, mix_samples
from zetamix.methods import Method, parse
from zetamix.results.inspection import Inspection, MeasuredOutputs, Oracle, Settings

Watch: TypeAlias = Callable[[str, int, int], None]

# fewer samples are not enough to measure a distribution
MIN_SAMPLES = 32
# examples in the report: images are shown one by one, points as a cloud
EXAMPLE_IMAGES, EXAMPLE_POINTS = 10, 500
# methods whose outputs are sums of samples with weights that sum to 1
SUMS = ("none", "smoothing", "mixup", "zeta", "local")
# if samples have more than this many times as many features as there are samples, coordinates are
# measured instead: 169 photos of 224 × 224 and 18 methods take 12 s of CPU time instead of 148
WIDE = 2
# images that are downscaled together for the oracle
CHUNK = 1024


class InspectionError(ValueError):
    """The data or the settings do not allow a measurement; the message says what to change."""


@dataclass(frozen=True)
class Originals:
    """The samples to mix: first those that the oracle is not trained on, then others."""

    samples: Tensor
    labels: Tensor
    unseen: int
    """How many of them are unseen by the oracle."""
    rest: Tensor
    """Rows of the training split for the oracle."""

    @property
    def groups(self) -> list[Tensor]:
        """Indices that may share a batch: unseen samples are mixed only with unseen ones."""
        indices = torch.arange(len(self.labels))
        return [part for part in (indices[: self.unseen], indices[self.unseen :]) if len(part)]


def inspect_dataset(
    dataset: Dataset,
    methods: Sequence[Method],
    settings: Settings | None = None,
    *,
    oracle: Oracle | None = None,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
) -> Inspection:
    """Mix a dataset's training samples with each method and measure the outputs.

    oracle: your own classifier; None trains one on samples that it does not judge.
    watch: called with the name of a stage, the steps done in it, and its number of steps.
    """
    settings = settings or Settings()
    watch = watch or (lambda stage, done, total: None)
    device = torch.device(device)
    # originals are always measured
    methods = [method for method in methods if method.name != "none"]
    if not methods:
        raise InspectionError("Expected a method that mixes, such as mixup or zeta:2.8, got none.")
    originals = choose_originals(dataset, settings, device)
    _check_methods(methods, originals)
    # realism needs at least two classes
    if oracle is None and settings.oracle != "none" and dataset.num_classes > 1:
        oracle = _train_oracle(dataset, originals, settings, device, watch)
    measurer = _Measurer(dataset.num_classes, originals, settings, oracle)
    measurer.find_coordinates(lambda done, total: watch("comparing originals", done, total))
    step = _Steps(watch, "measuring methods", _Measurer.STEPS * (len(methods) + 1))
    *measured, original = [measurer.measure(m, step) for m in [*methods, parse("none")]]
    step, sweep = _Steps(watch, "local dimension over γ", len(settings.gammas)), []
    for gamma in settings.gammas:
        sweep.append((gamma, measurer.sum_dimension(parse(f"zeta:{gamma}"))))
        step()
    return Inspection(
        dataset=dataset.name,
        classes=dataset.classes,
        shape=dataset.shape,
        notes=dataset.notes,
        settings=settings,
        samples=len(originals.labels),
        judged=originals.unseen,
        neighbours=measurer.neighbours,
        oracle=oracle,
        original=original,
        methods=tuple(measured),
        sweep=tuple(sweep),
    )


def choose_originals(dataset: Dataset, settings: Settings, device: torch.device) -> Originals:
    """Choose samples to mix; at most half of the training split is kept from the oracle."""
    train = dataset.train
    if dataset.multi_label:
        raise InspectionError(
            f"{dataset.name} has several labels per sample, but inspect needs one class per "
            "sample. Use compare."
        )
    available, classes = len(train), int((train.counts() > 0).sum())
    count, needed = min(settings.samples, available), max(MIN_SAMPLES, 2 * classes)
    if count < needed:
        raise InspectionError(
            f"Expected at least {needed} samples to measure, two of each class, got {count:,}. "
            "Use more samples."
        )
    chosen = train.subset(min(count, max(classes, available // 2)), settings.seed)
    unseen = _row_indices(chosen.rows, train.rows, available)
    is_left = torch.ones(available, dtype=torch.bool)
    is_left[unseen] = False
    rest = is_left.nonzero().squeeze(1)
    order = torch.randperm(len(rest), generator=torch.Generator().manual_seed(settings.seed))
    rows = torch.cat([unseen, rest[order[: count - len(unseen)]]])
    samples = train.take(rows).to(device, torch.float32)
    return Originals(samples, train.labels[rows].to(device), len(unseen), rest)


def _row_indices(chosen: Tensor | None, pool: Tensor | None, available: int) -> Tensor:
    """Indices into a split of the rows that a subset of it holds."""
    if chosen is None:
        return torch.arange(available)
    return chosen if pool is None else torch.searchsorted(pool, chosen)


def _check_methods(methods: Sequence[Method], originals: Originals) -> None:
    """Report a method that cannot mix this data before an oracle is trained."""
    few = Originals(originals.samples[:4], originals.labels[:4], 4, originals.rest)
    classes = int(originals.labels.max()) + 1
    for method in methods:
        _Measurer(classes, few, Settings(batch_size=4), None).mix(method, few.samples)


def _train_oracle(
    dataset: Dataset, originals: Originals, settings: Settings, device: torch.device, watch: Watch
) -> Oracle:
    train, size = dataset.train, settings.oracle_size
    samples, labels = [_downscaled(train, originals.rest, size)], [train.labels[originals.rest]]
    if dataset.val is not None:
        samples.append(_downscaled(dataset.val, torch.arange(len(dataset.val)), size))
        labels.append(dataset.val.labels)
    if dataset.test is None:
        rows = slice(0, originals.unseen)
        unseen, measured_on = (originals.samples[rows], originals.labels[rows].cpu()), "held-out"
    else:
        unseen, measured_on = (dataset.test.samples, dataset.test.labels), "test"
    try:
        return train_oracle(
            torch.cat(samples),
            torch.cat(labels),
            unseen,
            dataset.num_classes,
            model=settings.oracle,
            epochs=settings.oracle_epochs,
            seed=settings.seed,
            device=device,
            size=size,
            measured_on=measured_on,
            watch=lambda done, total: watch("training the oracle", done, total),
        )
    except ValueError as error:
        raise InspectionError(f"{settings.oracle} cannot be used as the oracle: {error}") from error


def _downscaled(split: Split, rows: Tensor, size: int) -> Tensor:
    """Samples for the oracle, downscaled in chunks: all of them may not fit into memory."""
    return torch.cat([downscale(split.take(part), size) for part in torch.split(rows, CHUNK)])


class _Steps:
    """Reports the progress of a stage; call it after every step."""

    def __init__(self, watch: Watch, stage: str, total: int) -> None:
        self.watch, self.stage, self.total, self.done = watch, stage, total, -1
        self()

    def __call__(self) -> None:
        self.done += 1
        self.watch(self.stage, self.done, self.total)


class _Measurer:
    """Measures one method after the other on the same originals, from the same seed."""

    # mixing, dimension, distances, labels and oracle
    STEPS = 4

    def __init__(
        self, num_classes: int, originals: Originals, settings: Settings, oracle: Oracle | None
    ) -> None:
        self.num_classes = num_classes
        self.originals = originals
        self.settings = settings
        self.oracle = oracle
        self.neighbours = min(settings.neighbours, max(2, len(originals.labels) // 8))
        self.points = originals.samples
        self.examples: Tensor | slice = slice(0, EXAMPLE_POINTS)
        if originals.samples.ndim == 4:
            unseen = originals.labels[: originals.unseen]
            self.examples = classes_in_turn(unseen, EXAMPLE_IMAGES)

    def find_coordinates(self, watch: Callable[[int, int], None]) -> None:
        """Replace wide samples by coordinates with the same distances."""
        samples = self.originals.samples
        if samples[0].numel() > WIDE * len(samples):
            self.points = coordinates(samples, memory_gb=self.settings.memory_gb, watch=watch)

    def sum_dimension(self, method: Method) -> Estimate:
        """Local dimension of a method whose outputs are sums of samples."""
        return self._dimension(self.mix(method, self.points).samples)

    def measure(self, method: Method, step: Callable[[], None]) -> MeasuredOutputs:
        mixed = self.mix(method, self.originals.samples)
        points, originals = self._points(method, mixed)
        step()
        estimates = {"local_dimension": self._dimension(points)}
        step()
        if method.name != "none":
            memory = self.settings.memory_gb
            estimates["distance"] = relative_distance(points, originals, memory_gb=memory)
            estimates["coverage"] = coverage(points, originals, memory_gb=memory)
        step()
        estimates["classes"] = classes_per_label(mixed.targets)
        estimates["label_entropy"] = label_entropy(mixed.targets)
        estimates["effective_samples"] = effective_samples(mixed.weights)
        judgement = None
        if self.oracle is not None:
            judged = slice(0, self.originals.unseen)
            judgement = judge(self.oracle, mixed.samples[judged], mixed.targets[judged])
            estimates |= judgement.summary()
        step()
        label = "original" if method.name == "none" else method.label
        examples = mixed.samples[self.examples].cpu(), mixed.targets[self.examples].cpu()
        return MeasuredOutputs(label, estimates, judgement, *examples)

    def mix(self, method: Method, samples: Tensor) -> MixedSamples:
        try:
            return mix_samples(
                method,
                samples,
                self.originals.labels,
                self.num_classes,
                groups=self.originals.groups,
                batch_size=self.settings.batch_size,
                # the same batches for every method
                generator=torch.Generator().manual_seed(self.settings.seed),
            )
        except (TypeError, ValueError) as error:
            raise InspectionError(f"{method.label} cannot mix this data: {error}") from error

    def _points(self, method: Method, mixed: MixedSamples) -> tuple[Tensor, Tensor]:
        """Outputs and originals to measure distances between, as coordinates where possible."""
        samples = self.originals.samples
        if self.points is samples:
            return mixed.samples, samples
        if method.name in SUMS:
            # the same seed, so the same sums
            return self.mix(method, self.points).samples, self.points
        # outputs outside the span of the originals need common coordinates: for CutMix and 169
        # photos that takes 1 s instead of 50
        both = coordinates(torch.cat([samples, mixed.samples]), memory_gb=self.settings.memory_gb)
        return both[len(samples) :], both[: len(samples)]

    def _dimension(self, points: Tensor) -> Estimate:
        return mean_of(local_dimension(points, self.neighbours, memory_gb=self.settings.memory_gb))
