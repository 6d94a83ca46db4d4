"""Diversity of outputs and richness of their labels."""

import torch
from torch import Tensor

from paper.measure.estimate import Estimate, mean_of
from paper.measure.neighbours import Cloud, distances_to

# Naeem et al. (2020) take five neighbours for coverage
COVERAGE_NEIGHBOURS = 5
# bytes of copies of points at a time
MEMORY = 0.25e9


def relative_distance(outputs: Tensor, originals: Tensor) -> Estimate:
    """Distance of outputs to the nearest original, in nearest-neighbour distances of originals.

    The unit is the mean distance of an original to its nearest other original: 0 means that
    outputs repeat originals, 1 that they are as far from them as originals are from each other.

    >>> line = torch.arange(5.0).unsqueeze(1)
    >>> relative_distance(line[:-1] + 0.25, line)["value"]
    0.25
    """
    cloud, other = _clouds(outputs, originals)
    unit = float(distances_to(cloud, cloud, 1, itself=False).mean())
    # rounding errors put duplicates up to this far apart
    if unit <= 1e-7 * float(cloud.squares.mean().sqrt()):
        raise ValueError(
            "Every original has an exact duplicate, so the unit of distance would be 0. Remove "
            "duplicates."
        )
    return mean_of(distances_to(other, cloud, 1) / unit)


def coverage(outputs: Tensor, originals: Tensor, neighbours: int = COVERAGE_NEIGHBOURS) -> Estimate:
    """The fraction of originals with an output nearby (Naeem et al., 2020).

    Nearby means within the distance of an original to its `neighbours`-th nearest other original.

    >>> line = torch.arange(8.0).unsqueeze(1)
    >>> coverage(line[:2] + 0.1, line, neighbours=1)["value"]
    0.375
    """
    cloud, other = _clouds(outputs, originals)
    radius = distances_to(cloud, cloud, neighbours, itself=False)[:, -1]
    return mean_of(distances_to(cloud, other, 1)[:, 0] <= radius)


def classes_per_label(targets: Tensor, threshold: float = 0.01) -> Estimate:
    """The number of classes with more than `threshold` of a label [n, classes].

    >>> classes_per_label(torch.tensor([[0.9, 0.095, 0.005], [1.0, 0.0, 0.0]]))["value"]
    1.5
    """
    return mean_of((targets > threshold).sum(1))


def label_entropy(targets: Tensor) -> Estimate:
    """Entropy of a label in nats: 0 for a hard label, log(classes) for a uniform one.

    >>> round(label_entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))["value"], 4)
    0.3466
    """
    return mean_of(entropy(targets.double()))


def effective_samples(weights: Tensor) -> Estimate:
    """The effective number of samples in an output, 1 / Σ w².

    weights: [outputs, sources] with rows that sum to 1: a plan's `weights` or `matrix()`.

    >>> effective_samples(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))["value"]
    1.5
    """
    return mean_of(1 / weights.double().square().sum(1))


def entropy(probabilities: Tensor) -> Tensor:
    """−Σ p log p over the last dimension, with 0 log 0 = 0."""
    terms: Tensor = torch.special.entr(probabilities)
    return terms.sum(-1)


def _clouds(outputs: Tensor, originals: Tensor) -> tuple[Cloud, Cloud]:
    cloud = Cloud(originals.detach().flatten(1), MEMORY)
    return cloud, Cloud(outputs.detach().flatten(1), MEMORY, cloud.origin)
