"""Points on known manifolds: the synthetic data of the paper, drawn from a seed.

The helices and the paraboloid are those of the scikit-dimension package (`M5a_Helix1d` and
`Mp1_Paraboloid` of its `BenchmarkManifolds`), which the paper measures with.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

# the paper's "Gaussian noise N(0, 0.1)", with 0.1 taken as the standard deviation
NOISE = 0.1
FLAT_POINTS = 2**9
CURVED_POINTS = 2**13


class Points(NamedTuple):
    """Points with the manifold that each lies on."""

    samples: Tensor
    """[n, d], float32."""
    labels: Tensor
    """[n], int64."""


def crescents(count: int = FLAT_POINTS, *, seed: int = 0, noise: float = NOISE) -> Points:
    """Two interleaving half circles in the plane.

    >>> crescents().samples.shape
    torch.Size([512, 2])
    """
    upper, lower = (torch.linspace(0, math.pi, size) for size in (count // 2, -(-count // 2)))
    arms = (
        torch.stack([upper.cos(), upper.sin()], 1),
        torch.stack([1 - lower.cos(), 0.5 - lower.sin()], 1),
    )
    return _noisy(arms, noise, seed)


def spirals(count: int = FLAT_POINTS, *, seed: int = 0, noise: float = NOISE) -> Points:
    """Two interleaving Archimedean spirals in the plane, r = θ/π for θ from π/2 to 3π.

    The arms are 1 apart, ten standard deviations of the noise; points are spread evenly along them.
    """
    arms = []
    for start, size in zip((0.0, math.pi), (count // 2, -(-count // 2)), strict=True):
        # length along the arm grows with θ², so θ takes square roots of even steps
        angle = torch.linspace((math.pi / 2) ** 2, (3 * math.pi) ** 2, size).sqrt()
        around = angle + start
        arms.append((angle / math.pi)[:, None] * torch.stack([around.cos(), around.sin()], 1))
    return _noisy(tuple(arms), noise, seed)


def helix(count: int = CURVED_POINTS, *, dimension: int = 3, seed: int = 0) -> Points:
    """A closed curve that winds eight times around a ring, in the first three of `dimension` axes.

    >>> helix(100, dimension=12).samples.shape
    torch.Size([100, 12])
    """
    angle = 2 * math.pi * torch.rand(count, generator=_seeded(seed), dtype=torch.float64)
    ring = 2 + (8 * angle).cos()
    samples = torch.zeros(count, dimension, dtype=torch.float64)
    samples[:, :3] = torch.stack([ring * angle.cos(), ring * angle.sin(), (8 * angle).sin()], 1)
    return Points(samples.float(), torch.zeros(count, dtype=torch.int64))


def paraboloid(count: int = CURVED_POINTS, *, seed: int = 0) -> Points:
    """A 3-D paraboloid with Burr-distributed coordinates, bent into 12 dimensions."""
    drawn = torch.empty(4, count, dtype=torch.float64).exponential_(generator=_seeded(seed))
    base = (1 + drawn[1:] / drawn[0]).reciprocal().T
    raised = torch.cat([base, base.square().sum(1, keepdim=True)], 1)
    samples = torch.cat([raised, raised.sin(), raised.square()], 1)
    return Points(samples.float(), torch.zeros(count, dtype=torch.int64))


MANIFOLDS: Mapping[str, Callable[..., Points]] = {
    "crescents": crescents,
    "spirals": spirals,
    "helix": helix,
    "helix12": lambda **options: helix(dimension=12, **options),
    "paraboloid": paraboloid,
}


def draw_splits(name: str, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """The points of a synthetic dataset; with two classes, a second draw is the test split."""
    train = MANIFOLDS[name](seed=2 * seed)
    test = {"test": MANIFOLDS[name](seed=2 * seed + 1)} if int(train.labels.max()) else {}
    return {"train": train, **test}


def _noisy(arms: tuple[Tensor, ...], noise: float, seed: int) -> Points:
    samples = torch.cat(arms)
    labels = torch.cat([torch.full((len(arm),), k) for k, arm in enumerate(arms)])
    return Points(samples + noise * torch.randn(samples.shape, generator=_seeded(seed)), labels)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
