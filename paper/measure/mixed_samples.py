"""Outputs of a method for a set of samples: mixed samples, soft labels, and weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from zetamix.methods import Method, channel_means


@dataclass(frozen=True)
class MixedSamples:
    """One output for each sample, in the order of the samples."""

    samples: Tensor
    """[n, ...], float32."""
    targets: Tensor
    """[n, classes]."""
    weights: Tensor
    """[n, batch_size]: the weight of each sample of the batch in an output."""


def mix_samples(
    method: Method,
    samples: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    groups: Sequence[Tensor],
    batch_size: int,
    generator: torch.Generator,
) -> MixedSamples:
    """Mix samples in random batches of about `batch_size`, each from within one of `groups`.

    generator: a CPU generator for the batches; it also seeds the method's own generator.

    Every sample gets its own class for mixing, so that the targets of any method, including CutMix,
    are the weights of the samples in each output.
    """
    # label smoothing mixes no samples, and its targets depend on the number of classes
    smooths = method.name == "smoothing"
    mixer = Method("none") if smooths else method
    outputs = torch.empty_like(samples, dtype=torch.float32)
    weights = outputs.new_zeros(len(samples), batch_size)
    targets = outputs.new_zeros(len(samples), num_classes)
    one_hot = F.one_hot(labels, num_classes).to(outputs)
    mean = channel_means(samples.float())
    seed = int(torch.randint(2**62, (), generator=generator))
    own = torch.Generator(samples.device).manual_seed(seed)
    for group in groups:
        order = group[torch.randperm(len(group), generator=generator)].to(samples.device)
        for rows in order.tensor_split(-(-len(order) // batch_size)):
            names = torch.arange(len(rows), device=samples.device)
            outputs[rows], shares = mixer.mix(
                samples[rows].float(), names, len(rows), own, mean=mean
            )
            weights[rows, : len(rows)] = shares
            targets[rows] = shares @ one_hot[rows]
    if smooths:
        _, targets = method.mix(samples, labels, num_classes, generator)
    return MixedSamples(outputs, targets, weights)
