"""One method after the other, measured on the same originals."""

from collections.abc import Callable

import torch
from torch import Tensor

from zetamix.experiments.inspect.oracle import Oracle
from zetamix.experiments.inspect.originals import Originals
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
from zetamix.measure.mixed_samples import Outputs, make_outputs
from zetamix.methods import Method
from zetamix.results.inspection import InspectionError, Settings, Subject

# images are looked at one by one, points as a cloud
SHOWN_IMAGES, SHOWN_POINTS = 10, 500
# outputs of these are sums of samples with weights that sum to 1
SUMS = ("none", "mixup", "zeta", "local")
# samples with more numbers than this many times the samples are measured by their coordinates:
# 169 photos of 224 × 224 and 18 methods take 12 s of CPU time in all instead of 148
MANY = 2


class Bench:
    """Measures one method after the other on the same originals, from the same seed."""

    # mixed, dimension, distances, labels and oracle
    STEPS = 4

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
        self.points = originals.samples

    def locate(self, watch: Callable[[int, int], None]) -> None:
        """Where samples have many numbers, find coordinates with the same distances first."""
        samples = self.originals.samples
        if samples[0].numel() > MANY * len(samples):
            self.points = coordinates(samples, memory_gb=self.settings.memory_gb, watch=watch)

    def outputs(self, method: Method) -> Outputs:
        return self._mix(method, self.originals.samples)

    def dimension(self, method: Method) -> Estimate:
        """Local dimension of a method whose outputs are sums."""
        return self._dimension(self._mix(method, self.points).samples)

    def measure(self, method: Method, step: Callable[[], None]) -> Subject:
        outputs = self.outputs(method)
        points, originals = self._places(method, outputs)
        step()
        estimates = {"local_dimension": self._dimension(points)}
        step()
        if method.name != "none":
            memory = self.settings.memory_gb
            estimates["distance"] = relative_distance(points, originals, memory_gb=memory)
            estimates["coverage"] = coverage(points, originals, memory_gb=memory)
        step()
        estimates["classes"] = classes_per_label(outputs.targets)
        estimates["label_entropy"] = label_entropy(outputs.targets)
        estimates["effective_samples"] = effective_samples(outputs.weights)
        judgement = None
        if self.oracle is not None:
            judged = slice(0, self.originals.unseen)
            judgement = judge(self.oracle, outputs.samples[judged], outputs.targets[judged])
            estimates |= judgement.summary()
        step()
        label = "original" if method.name == "none" else method.label
        shown = outputs.samples[self.shown].cpu(), outputs.targets[self.shown].cpu()
        return Subject(label, estimates, judgement, *shown)

    def _places(self, method: Method, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """Outputs and originals to measure distances between: coordinates, where they will do."""
        samples = self.originals.samples
        if self.points is samples:
            return outputs.samples, samples
        if method.name in SUMS:
            # the same seed, so the same sums
            return self._mix(method, self.points).samples, self.points
        # outputs that leave the space of the originals span one with them: for CutMix and 169
        # photos that is 1 s instead of 50
        both = coordinates(torch.cat([samples, outputs.samples]), memory_gb=self.settings.memory_gb)
        return both[len(samples) :], both[: len(samples)]

    def _mix(self, method: Method, samples: Tensor) -> Outputs:
        try:
            return make_outputs(
                method,
                samples,
                self.originals.labels,
                self.num_classes,
                groups=self.originals.groups,
                batch=self.settings.batch,
                # the same batches for every method
                generator=torch.Generator().manual_seed(self.settings.seed),
            )
        except (TypeError, ValueError) as error:
            raise InspectionError(f"{method.label} cannot mix this data: {error}") from error

    def _dimension(self, points: Tensor) -> Estimate:
        return mean_of(local_dimension(points, self.neighbours, memory_gb=self.settings.memory_gb))


def _first_of_each_class(labels: Tensor) -> Tensor:
    """Places of one sample of each class, of ten classes at most, in the order of classes."""
    first = [int((labels == label).nonzero()[0]) for label in torch.unique(labels)[:SHOWN_IMAGES]]
    return torch.tensor(first)
