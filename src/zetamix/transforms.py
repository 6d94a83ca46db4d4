"""ZetaMix, ZetaMixup, Mixup, CutMix and other transforms of a batch.

They take a batch `(samples, labels)` and return `(samples, targets)`. Use them after a DataLoader,
as its `collate_fn`, or in `torchvision.transforms.v2` containers.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zetamix import _checks, batch_tree
from zetamix import plan as plans
from zetamix._checks import Gamma, GammaSchedule
from zetamix.batch_mix import BatchMix, Controls, GammaMix
from zetamix.batch_tree import Rules
from zetamix.boxes import Size
from zetamix.gamma import dominance_threshold
from zetamix.kernels.dispatch import Implementation
from zetamix.kernels.plan_spec import PlanSpec
from zetamix.mix import apply_plan, check_pair
from zetamix.plan import AnchorChoice, LamChoice, MixPlan
from zetamix.rules import Average, Blend, OneHot
from zetamix.sampling import Draw

# the mean of a smaller batch is too noisy to judge
LEAST_CENTRED = 16


class ZetaMix(GammaMix):
    """ζ-mixup of few samples with a random γ, pasted boxes, and the contrast of unmixed samples.

    By default, every output mixes its own sample with one other; half of the images are blended,
    half are pasted. γ is drawn for each output, so outputs range from an even mix (γ = 0) to nearly
    unmixed samples. Blended samples are scaled to the contrast of unmixed ones, so that training
    and test samples have similar contrast. Set `enabled` to False for the last fifth of training.

    gamma, sources: as in `ZetaMixup`.
    keep_variance: divide the weights of samples by their 2-norm, so that a blend of independent
        samples has the variance of a single one; targets keep their weights. Samples must be
        normalised to mean 0, or pass `mean`. None means True with `num_classes`, or with rules that
        do not include `Average()`, else False: regression targets are not scaled.
    paste: the probability that an output is pasted rather than blended: every source but the first
        then covers a random box whose area is its weight, later sources over earlier ones, and
        targets are the exact fractions of visible pixels. None means 0.5 for images, [batch,
        channels, height, width] of at least 2 × 2 pixels, and 0 for other samples.
    mean: the mean of samples in [0, 1] or of dtype uint8, one number or one per channel, as in
        `torchvision.transforms.Normalize`; see `zetamix.rules.Blend`.
    num_classes, ignore_index, rules, p, generator, implementation: as in `ZetaMixup`.

    >>> mix = ZetaMix(num_classes=10)
    >>> samples, targets = mix(torch.randn(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    _options = ("sources", "keep_variance", "paste")
    _without_images = "Pass paste=0 to blend other data."

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        gamma: Gamma | GammaSchedule = (0.0, 4.0),
        sources: int | None = 2,
        keep_variance: bool | None = None,
        paste: float | None = None,
        mean: float | Sequence[float] | None = None,
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        generator: torch.Generator | None = None,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(num_classes, ignore_index, rules, p, generator, implementation)
        if rules is not None and mean is not None:
            raise ValueError("Pass mean or rules, not both. With rules, use Blend(mean=...).")
        self._blend = Blend(mean)
        self.sources = sources
        self.keep_variance = keep_variance
        self.paste = paste
        self._gamma = gamma
        self._warned = False
        self._check_gamma(self.gamma)

    def _check_blended(self, value: Any, rules: Rules) -> Size | None:
        scales = self.keeps_variance and self.paste != 1
        if scales and not self._warned and not torch.compiler.is_compiling():
            self._warned = True
            blended = batch_tree.blended_leaves(value, rules)
            if any(blend.mean is None and not _is_centred(leaf) for leaf, blend in blended):
                how = "mean=" if self.rules is None else "Blend(mean=...) in the rules"
                _checks.warn(
                    "The samples are not normalised: their mean is far from 0, and keeping their "
                    "variance would scale it as well. Normalise each channel or feature first, or "
                    f"pass {how}, or keep_variance=False."
                )
        return super()._check_blended(value, rules)

    def extra_repr(self) -> str:
        mean = "" if self._blend.mean is None else f", mean={self._blend.mean}"
        return super().extra_repr() + mean


def _is_centred(leaf: Tensor) -> bool:
    """Whether samples look normalised; True on a GPU, where reading values would synchronise."""
    if not leaf.is_floating_point() or leaf.device.type != "cpu" or leaf.numel() == 0:
        return True
    samples = leaf.detach().float()
    if bool((samples.min() >= 0) & (samples.max() > 0)):
        return False
    count = len(samples)
    if count < LEAST_CENTRED:
        return True
    # per channel or feature: within half a standard deviation plus four standard errors of 0
    deviation, mean = torch.std_mean(samples, [0, *range(2, samples.ndim)])
    return not bool((mean.abs() > (0.5 + 4 / math.sqrt(count)) * deviation).any())


class ZetaMixup(GammaMix):
    """ζ-mixup of a batch: every output is a weighted average of many samples; one dominates.

    gamma: how strongly the anchor dominates (see `zetamix.describe_gamma`): one number, a range
        `(low, high)` from which γ is drawn per output, or a function of the epoch, for use with
        `set_epoch`. The attribute can be set to a number or a range.
    sources: number of samples mixed into one output; by default, and in batches smaller than this,
        the whole batch.
    anchor: "self" or "random", as in `zeta_plan`.
    num_classes, ignore_index: for integer labels.
    rules: for batches other than `(samples, labels)`: a tuple or dict like the batch, with a rule
        of `zetamix.rules` for each entry: `Blend()`, `OneHot(...)`, `Average()`, `FromAnchor()`.
    p: the probability that an output is mixed. Can be set as an attribute, as can `enabled`.
    generator: the only source of randomness, on the device of the batch; None uses torch's default
        generator of that device.
    implementation: as in `zetamix.apply_plan`.

    >>> mix = ZetaMixup(num_classes=10, gamma=2.8)
    >>> samples, targets = mix(torch.rand(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    _options = ("sources", "anchor")

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        gamma: Gamma | GammaSchedule = 2.8,
        sources: int | None = None,
        anchor: AnchorChoice = "self",
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        generator: torch.Generator | None = None,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(num_classes, ignore_index, rules, p, generator, implementation)
        self.sources = sources
        self.anchor = anchor
        self._gamma = gamma
        self._warned = False
        self._check_gamma(self.gamma)

    def _check_gamma(self, gamma: Gamma) -> None:
        """Raise if γ is invalid, and warn once if it is below the dominance threshold."""
        super()._check_gamma(gamma)
        if isinstance(gamma, Tensor):
            # reading a tensor on a GPU would make the host wait
            gamma = float(gamma.min()) if gamma.device.type == "cpu" else math.inf
        lowest = gamma[0] if isinstance(gamma, (tuple, list)) else gamma
        threshold = dominance_threshold(self.sources)
        if lowest < threshold and not self._warned:
            self._warned = True
            among = "any number of" if self.sources is None else str(self.sources)
            _checks.warn(
                f"gamma={lowest:g} is below {threshold:.5f}, the threshold for {among} sources: "
                "the anchor may weigh less than the other samples together (Theorem 1)."
            )


class Mixup(BatchMix):
    """mixup of a batch: every output blends its own sample with another, λ ~ Beta(α, α).

    per: "sample" draws one λ for each output, "batch" one for all.
    num_classes, ignore_index, rules, p, generator, implementation: as in `ZetaMixup`.

    >>> mix = Mixup(num_classes=10, alpha=0.2)
    >>> samples, targets = mix(torch.rand(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    _options = ("alpha", "per")

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        alpha: float = 1.0,
        per: LamChoice = "sample",
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        generator: torch.Generator | None = None,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(num_classes, ignore_index, rules, p, generator, implementation)
        self.alpha = alpha
        self.per = per

    def _spec(self, batch_size: int, draw: Draw, controls: Controls) -> PlanSpec:
        return plans.mixup_spec(batch_size, self.alpha, self.per, None, checked=True)


class CutMix(BatchMix):
    """CutMix: a box of another sample is pasted into each one; targets are fractions of pixels.

    per: "batch" is torchvision's CutMix: one box and one λ ~ Beta(α, α) for the whole batch, and
        sample k gets the box of sample k − 1. "sample" draws the other sample, λ and the box for
        each output.
    num_classes, ignore_index, rules, p, generator, implementation: as in `ZetaMixup`.

    All random numbers come from `generator`, on the device of the batch. torchvision's CutMix uses
    torch's global CPU generator, which rules out a seed per run and CUDA graph capture.

    >>> cut = CutMix(num_classes=10, generator=torch.Generator().manual_seed(0))
    >>> samples, targets = cut(torch.rand(8, 3, 32, 32), torch.arange(8))
    >>> targets.sum(1)
    tensor([1., 1., 1., 1., 1., 1., 1., 1.])
    """

    paste = 1.0
    _cuts = True
    _options = ("alpha", "per")

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        alpha: float = 1.0,
        per: LamChoice = "batch",
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        generator: torch.Generator | None = None,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(num_classes, ignore_index, rules, p, generator, implementation)
        self.alpha = alpha
        self.per = per

    def _spec(self, batch_size: int, draw: Draw, controls: Controls) -> PlanSpec:
        return plans.mixup_spec(batch_size, self.alpha, self.per, None, checked=True)

    def _paste_boxes(self, plan: MixPlan, size: Size, draw: Draw) -> MixPlan:
        pairs = plans.rolled(plan) if self.per == "batch" else plan
        return plans.cutmix_plan(pairs, self.alpha, self.per, size, draw)


class MixupOrCutMix(BatchMix):
    """CutMix with probability `switch_prob`, else mixup, as `timm.data.Mixup` with both alphas set.

    mixup_alpha, cutmix_alpha: α of λ ~ Beta(α, α) in mixup and in CutMix.
    per: "batch" switches once for the whole batch, with one λ and one box, as timm does by default;
        "sample" switches for each output. The other sample is drawn uniformly.
    num_classes, ignore_index, rules, p, generator, implementation: as in `ZetaMixup`.

    >>> mix = MixupOrCutMix(num_classes=10)
    >>> samples, targets = mix(torch.rand(8, 3, 32, 32), torch.arange(8))
    >>> targets.shape
    torch.Size([8, 10])
    """

    paste = 1.0
    _cuts = True
    _options = ("switch_prob", "mixup_alpha", "cutmix_alpha", "per")

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        switch_prob: float = 0.5,
        mixup_alpha: float = 0.8,
        cutmix_alpha: float = 1.0,
        per: LamChoice = "batch",
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        generator: torch.Generator | None = None,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(num_classes, ignore_index, rules, p, generator, implementation)
        self.switch_prob = switch_prob
        self.mixup_alpha = mixup_alpha
        self.cutmix_alpha = cutmix_alpha
        self.per = per

    def _spec(self, batch_size: int, draw: Draw, controls: Controls) -> PlanSpec:
        return plans.mixup_spec(batch_size, self.mixup_alpha, self.per, None, checked=True)

    def _paste_boxes(self, plan: MixPlan, size: Size, draw: Draw) -> MixPlan:
        return plans.cutmix_plan(plan, self.cutmix_alpha, self.per, size, draw, self.switch_prob)


class LabelSmoothing(nn.Module):
    """Label smoothing: unmixed samples, targets (1 − amount) · one-hot + amount / num_classes.

    Floating point labels (multi-hot) become (1 − amount) · target + amount / 2. `generator` is
    accepted for the common interface and not used.

    >>> LabelSmoothing(num_classes=4, amount=0.2)(torch.zeros(1, 3), torch.tensor([2]))[1]
    tensor([[0.0500, 0.0500, 0.8500, 0.0500]])
    """

    def __init__(
        self, *, num_classes: int, amount: float = 0.1, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        _checks.check_number("amount", amount, low=0, high=1)
        self.rule = OneHot(num_classes)
        self.amount = amount

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_pair(samples, labels)
        if labels.is_floating_point():
            return samples, (1 - self.amount) * labels + self.amount / 2
        alone = plans.identity_plan(len(labels), device=labels.device)
        hot = self.rule.mix(labels, alone)
        return samples, (1 - self.amount) * hot + self.amount / self.rule.num_classes


class LocalMixup(nn.Module):
    """The local synthetic instances of Brown et al. (2015): ranks by distance to the anchor.

    `generator` is accepted for the common interface and not used.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        gamma: float = 2.8,
        sources: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        _checks.check_number("gamma", gamma, low=0)
        if sources is not None:
            _checks.check_count("sources", sources, 2)
        self.rule = OneHot(num_classes)
        self.gamma = gamma
        self.sources = sources

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_pair(samples, labels)
        sources = None if self.sources is None else min(self.sources, samples.shape[0])
        plan = plans.local_plan(samples, self.gamma, sources=sources)
        rule = Average() if labels.is_floating_point() else self.rule
        return apply_plan(samples, plan), rule.mix(labels, plan)
