"""The p-series behind ζ-mixup: its weights, its two theorems, and a description of γ."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch

from zetamix.checks import check_count, check_number
from zetamix.sampling import weigh

# Theorem 1: the root of ζ(γ) = 2. From here on one sample outweighs all others together,
# however many there are. The paper prints 1.72865.
GAMMA_MIN = 1.7286472389981836


def _excess(gamma: float, sources: int) -> float:
    """Σ_{j=2..sources} j^-γ − 1: positive below the threshold, negative above."""
    # not by tensors, which hold no values in FakeTensorMode
    return math.fsum(rank**-gamma for rank in range(2, sources + 1)) - 1.0


@lru_cache(maxsize=256)
def dominance_threshold(sources: int | None = None) -> float:
    """The γ above which one sample outweighs the other `sources - 1` together (Theorem 1, exactly).

    `None` gives `GAMMA_MIN`, the limit for infinitely many. Two sources need only γ > 0.

    >>> round(dominance_threshold(4), 4)
    1.0821
    >>> dominance_threshold() == GAMMA_MIN
    True
    """
    if sources is None:
        return GAMMA_MIN
    check_count("sources", sources, 2)
    low, high = 0.0, GAMMA_MIN
    while (middle := (low + high) / 2) not in (low, high):
        if _excess(middle, sources) > 0:
            low = middle
        else:
            high = middle
    return high


def gamma_from_lam(lam: float) -> float:
    """The γ at which two-source ζ-mixup is mixup with this λ (Theorem 2): log₂(λ / (1 − λ)).

    Below λ = 1/2 the result is negative: there the partner dominates, so swap the two samples and
    use `gamma_from_lam(1 - lam)`.

    >>> round(gamma_from_lam(0.8), 12)
    2.0
    """
    check_number("lam", lam, low=0, high=1)
    if lam in (0, 1):
        raise ValueError(f"lam must lie strictly between 0 and 1, got {lam}.")
    return math.log2(lam) - math.log2(1 - lam)


def lam_from_gamma(gamma: float) -> float:
    """The λ of mixup that two-source ζ-mixup gives with this γ (Theorem 2): 1 / (1 + 2^−γ).

    >>> lam_from_gamma(2.0)
    0.8
    """
    check_number("gamma", gamma, low=-1000)
    return 1 / (1 + 2**-gamma)


@dataclass(frozen=True)
class Description:
    """The effect of one γ on `sources` samples; `print` shows it as a sentence."""

    gamma: float
    sources: int
    dominant_weight: float
    """The largest weight: how much of an output is its anchor."""
    effective_samples: float
    """1 / Σ w²: the number of equally weighted samples with the same Σ w²."""
    dominates: bool
    """Whether the largest weight exceeds the sum of all others (Theorem 1)."""
    threshold: float
    """The γ above which one sample dominates, for this number of sources."""

    def __str__(self) -> str:
        who = "one sample dominates"
        if not self.dominates:
            who = "no sample dominates the others together"
        return (
            f"gamma={self.gamma:g} over {self.sources} sources: the anchor weighs "
            f"{self.dominant_weight:.3f}, an output blends {self.effective_samples:.2f} effective "
            f"samples, {who} (threshold {self.threshold:.4f})."
        )


def describe_gamma(gamma: float, sources: int) -> Description:
    """Describe γ: dominant weight, effective number of samples, and whether one dominates.

    >>> print(describe_gamma(2.8, sources=128))
    gamma=2.8 over 128 sources: the anchor weighs 0.802, an output blends 1.52 effective
    samples, one sample dominates (threshold 1.7039).
    """
    check_number("gamma", gamma, low=0)
    check_count("sources", sources, 2)
    weights = weigh(torch.tensor(gamma, dtype=torch.float64, device="cpu"), sources)
    effective, dominates = 1 / weights.square().sum().item(), _excess(gamma, sources) < 0
    threshold = dominance_threshold(sources)
    return Description(gamma, sources, weights[0].item(), effective, dominates, threshold)
