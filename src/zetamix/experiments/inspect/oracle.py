"""The oracle: a classifier, quickly trained, whose accuracy on unseen samples is known."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zetamix.data.augment import Scale, measure_scale
from zetamix.measure.estimate import Estimate, mean_of
from zetamix.measure.realism import ask
from zetamix.models import initialise

Watch: TypeAlias = Callable[[int, int], None]

# samples to train on in all, the same one counted again in every epoch: twenty epochs of MNIST
BUDGET = 1_200_000
MOST_EPOCHS = 60
BATCH = 128
# SGD with Nesterov momentum, one cycle of the learning rate
PEAK_RATE = 0.05
WEIGHT_DECAY = 5e-4
# every image is turned, scaled and shifted by up to this much, each time it is seen
DEGREES, STRETCH, SHIFT = 10.0, 0.1, 0.07
# of a two-sided interval of 95 %
NORMAL_QUANTILE = 1.96


@dataclass(frozen=True)
class Oracle:
    """A classifier of samples as a dataset stores them, and how far it can be trusted."""

    classify: Callable[[Tensor], Tensor]
    """Logits [n, classes] for samples [n, ...]."""
    accuracy: Estimate
    """Share of unseen samples that it gets right."""
    name: str
    """What it is, in words."""
    unseen: str = "test"
    """Which samples the accuracy was measured on."""
    guess: float = 0.0
    """Share of those in the most frequent class: what guessing gets right."""

    def __call__(self, samples: Tensor) -> Tensor:
        return self.classify(samples)

    @property
    def statement(self) -> str:
        """What it is and its accuracy, which belong beside every result."""
        value, error = 100 * self.accuracy.value, 100 * self.accuracy.error
        return (
            f"{self.name}, right about {value:.2f} ± {error:.2f} % of {self.accuracy.n:,} unseen "
            f"samples ({self.unseen})"
        )

    @property
    def least(self) -> float:
        """Lower end of the accuracy's 95 % interval (Wilson, which holds for few samples too)."""
        share, n, z = self.accuracy.value, self.accuracy.n, NORMAL_QUANTILE
        if not n:
            return 0.0
        around = z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
        return (share + z**2 / (2 * n) - around) / (1 + z**2 / n)

    @property
    def needed(self) -> float:
        """Halfway from guessing to always right."""
        return (1 + self.guess) / 2

    @property
    def trusted(self) -> bool:
        """Whether what it says of outputs means something."""
        return self.least > self.needed

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "accuracy": self.accuracy.as_dict(),
            "measured_on": self.unseen,
            "guess": self.guess,
            "accuracy_at_least": self.least,
            "accuracy_needed": self.needed,
            "trusted": self.trusted,
        }


class Classifier(nn.Module):
    """A network behind the standardisation of its training samples.

    size: larger images are scaled down to this, as those it was trained on were.
    """

    def __init__(self, model: nn.Module, scale: Scale, size: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.scale = scale
        self.size = size

    def forward(self, samples: Tensor) -> Tensor:
        small = shrink(samples, self.size)
        logits: Tensor = self.model(self.scale.apply(small, torch.float32))
        return logits


def suitable(shape: tuple[int, ...]) -> str:
    """A network that trains in minutes on a CPU: LeNet-5, or a smaller one for tiny images."""
    if len(shape) != 3:
        return "mlp"
    return "digitnet" if min(shape[1:]) < 16 else "lenet5"


def train_oracle(
    samples: Tensor,
    labels: Tensor,
    unseen: tuple[Tensor, Tensor],
    num_classes: int,
    *,
    model: str = "auto",
    epochs: int | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    size: int | None = None,
    unseen_name: str = "test",
    watch: Watch | None = None,
) -> Oracle:
    """Train a classifier on `samples` and measure it on `unseen`, a pair of samples and labels.

    LeNet-5, with batch normalisation, ReLU and max pooling, trained on the 60,000 images of MNIST
    gets 99.45 % (seed 0) and 99.60 % (seed 1) of the test images right.

    epochs: None for 1,200,000 samples in all, but at most 60 epochs.
    size: larger images are scaled down to a shorter side of so many pixels, all that it sees; they
        may come so already.
    watch: called with the steps done and the steps to do.
    """
    place = torch.device(device)
    samples = shrink(samples, size)
    shape = tuple(samples.shape[1:])
    name = suitable(shape) if model == "auto" else model
    if epochs is None:
        epochs = max(1, min(MOST_EPOCHS, BUDGET // len(samples)))
    scale = measure_scale(samples).to(place)
    network = Classifier(initialise(name, num_classes, shape, seed), scale, size).to(place)
    _fit(network, samples, labels, epochs, torch.Generator().manual_seed(seed), watch)
    network.eval()
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    scaled = ""
    if unseen[0].shape[1:] != samples.shape[1:]:
        scaled = " on images scaled down to {2} × {1}".format(*shape)
    predicted = ask(network, unseen[0].to(place)).argmax(1).cpu()
    return Oracle(
        network,
        accuracy=mean_of(predicted == unseen[1]),
        name=f"{name}{scaled}, trained for {epochs} {'epoch' if epochs == 1 else 'epochs'} on "
        f"{len(samples):,} other samples",
        unseen=unseen_name,
        guess=float(torch.bincount(unseen[1]).max()) / len(unseen[1]),
    )


def shrink(images: Tensor, size: int | None) -> Tensor:
    """Images whose shorter side has at most `size` pixels, of the same dtype; others as they are.

    >>> shrink(torch.zeros(2, 3, 224, 300), 64).shape
    torch.Size([2, 3, 64, 86])
    """
    if size is None or images.ndim != 4 or min(images.shape[2:]) <= size:
        return images
    ratio = size / min(images.shape[2:])
    small = F.interpolate(
        images.float(), [round(ratio * side) for side in images.shape[2:]], mode="area"
    )
    return small.to(images.dtype) if images.is_floating_point() else small.round().to(images.dtype)


def _fit(
    network: Classifier,
    samples: Tensor,
    labels: Tensor,
    epochs: int,
    generator: torch.Generator,
    watch: Watch | None,
) -> None:
    device = next(network.parameters()).device
    per_epoch = math.ceil(len(samples) / BATCH)
    optimizer = torch.optim.SGD(
        network.parameters(), PEAK_RATE, momentum=0.9, nesterov=True, weight_decay=WEIGHT_DECAY
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_RATE, total_steps=epochs * per_epoch, pct_start=0.2
    )
    network.train()
    for epoch in range(epochs):
        # equal parts: no last batch of one, which batch normalisation cannot take
        order = torch.randperm(len(samples), generator=generator).tensor_split(per_epoch)
        for step, rows in enumerate(order):
            batch = samples[rows].float()
            batch = (jitter(batch, generator) if batch.ndim == 4 else batch).to(device)
            loss = F.cross_entropy(network(batch), labels[rows].to(device))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            if watch is not None:
                watch(epoch * per_epoch + step + 1, epochs * per_epoch)


def jitter(images: Tensor, generator: torch.Generator) -> Tensor:
    """Every image turned, scaled and shifted a little; what comes in repeats the border."""
    draws = torch.rand(4, len(images), generator=generator).mul_(2).sub_(1)
    angle = draws[0] * math.radians(DEGREES)
    size = 1 + draws[1] * STRETCH
    cosine, sine = angle.cos() * size, angle.sin() * size
    # in units of half the image
    right, down = draws[2] * 2 * SHIFT, draws[3] * 2 * SHIFT
    rows = [torch.stack([cosine, -sine, right], 1), torch.stack([sine, cosine, down], 1)]
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
