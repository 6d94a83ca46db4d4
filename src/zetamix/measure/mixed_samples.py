"""What a method makes of a set of samples: outputs, their labels, and who went into each."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from zetamix.methods import Method


@dataclass(frozen=True)
class Outputs:
    """One output for each sample, in the order of the samples."""

    samples: Tensor
    """[n, ...], float32."""
    targets: Tensor
    """[n, classes]."""
    weights: Tensor
    """[n, batch]: how much of each sample of its batch went into an output."""


def make_outputs(
    method: Method,
    samples: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    groups: Sequence[Tensor],
    batch: int,
    generator: torch.Generator,
) -> Outputs:
    """Mix samples in random batches of about `batch`, each from within one of `groups`.

    generator: on the CPU, for the batches; the method draws from one that starts where it says.

    Every sample is given a class of its own, so that the targets of any method, CutMix as well,
    tell exactly what went into an output.
    """
    outputs = torch.empty_like(samples, dtype=torch.float32)
    weights = outputs.new_zeros(len(samples), batch)
    targets = outputs.new_zeros(len(samples), num_classes)
    one_hot = F.one_hot(labels, num_classes).to(outputs)
    seed = int(torch.randint(2**62, (), generator=generator))
    own = torch.Generator(samples.device).manual_seed(seed)
    for group in groups:
        order = group[torch.randperm(len(group), generator=generator)].to(samples.device)
        for rows in order.tensor_split(-(-len(order) // batch)):
            mixed, shares = _mix(method, samples[rows].float(), own)
            outputs[rows] = mixed
            weights[rows, : len(rows)] = shares
            targets[rows] = shares @ one_hot[rows]
    return Outputs(outputs, targets, weights)


def _mix(method: Method, samples: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    places = torch.arange(len(samples), device=samples.device)
    with warnings.catch_warnings():
        # a γ that lets no sample dominate is what some are here to look at
        warnings.simplefilter("ignore", UserWarning)
        transform = method.transform(len(samples), generator)
        if transform is None:
            return samples, F.one_hot(places).to(samples)
        return transform(samples, places)
