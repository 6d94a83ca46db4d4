"""Outputs of a method for a set of samples: mixed samples and their soft labels."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from zetamix.methods import Method, channel_means


class MixedSamples(NamedTuple):
    """One output for each sample, in the order of the samples."""

    samples: Tensor
    """[n, ...], float32."""
    targets: Tensor
    """[n, classes]."""


def mix_samples(
    method: Method,
    samples: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    batch_size: int,
    generator: torch.Generator,
) -> MixedSamples:
    """Mix samples in random batches of about `batch_size`.

    generator: a CPU generator for the batches; it also seeds the method's own generator.

    Every sample gets its own class for mixing, so that the targets of any method, including CutMix,
    are the weights of the samples in each output.
    """
    outputs = torch.empty_like(samples, dtype=torch.float32)
    targets = outputs.new_zeros(len(samples), num_classes)
    one_hot = F.one_hot(labels, num_classes).to(outputs)
    mean = channel_means(samples.float())
    seed = int(torch.randint(2**62, (), generator=generator))
    own = torch.Generator(samples.device).manual_seed(seed)
    order = torch.randperm(len(samples), generator=generator).to(samples.device)
    for rows in order.tensor_split(-(-len(order) // batch_size)):
        names = torch.arange(len(rows), device=samples.device)
        outputs[rows], weights = method.mix(samples[rows].float(), names, len(rows), own, mean=mean)
        targets[rows] = weights @ one_hot[rows]
    return MixedSamples(outputs, targets)
