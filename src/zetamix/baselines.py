"""What ζ-mixup is compared with besides mixup: CutMix, and its ancestor, local synthetic instances.

Both draw and mix as our own transforms do: on the batch's device, from the caller's generator.
"""

import torch
from torch import Tensor, nn

from zetamix._checks import check_alpha, check_count, check_number, check_pair
from zetamix.mix import Classes, mix
from zetamix.plan import identity_plan, local_plan
from zetamix.sampling import BOX, Draw, draw_lam, process_stream


class CutMix(nn.Module):
    """torchvision's CutMix, drawn on the batch's device from the caller's generator.

    As in torchvision's, one box and one λ ~ Beta(α, α) for the whole batch; sample k gets the
    box of sample k − 1, and targets the exact share of pixels. torchvision's own draws on the
    host from global randomness, which neither a seed per run nor a captured CUDA graph can use.

    >>> cut = CutMix(num_classes=10, generator=torch.Generator().manual_seed(0))
    >>> samples, targets = cut(torch.rand(8, 3, 32, 32), torch.arange(8))
    >>> targets.sum(1)
    tensor([1., 1., 1., 1., 1., 1., 1., 1.])
    """

    def __init__(
        self,
        *,
        num_classes: int,
        alpha: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_alpha(alpha)
        self.rule = Classes(num_classes)
        self.alpha = alpha
        self.generator = generator

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_pair(samples, labels)
        if samples.ndim != 4:
            raise ValueError(
                f"CutMix cuts boxes out of images, [batch, channels, height, width], got "
                f"{list(samples.shape)}. Use mixup or zeta for other data."
            )
        draw = Draw(self.generator, process_stream(self.generator), samples.device)
        lam = draw_lam(draw, self.alpha, 1)
        centre = draw.uniform(BOX, 2)
        inside, kept = box_mask(lam, centre, *samples.shape[-2:])
        # roll by one, as torchvision does; a batch of one is its own partner
        mixed = torch.where(inside, samples.roll(1, 0), samples)
        own = self.rule.mix(labels, identity_plan(labels.shape[0], device=labels.device))
        share = kept.to(own.dtype)
        return mixed, own * share + own.roll(1, 0) * (1 - share)


def box_mask(lam: Tensor, centre: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """The box of torchvision's CutMix for λ and a centre in (0, 1)²: (inside [h, w], share kept).

    The box has sides √(1 − λ) of the image's, halved and rounded down on both sides of its
    centre, and ends at the border of the image.
    """
    half = 0.5 * (1 - lam).sqrt()
    top, bottom = _ends(centre[0], half, height)
    left, right = _ends(centre[1], half, width)
    rows = torch.arange(height, device=lam.device)
    columns = torch.arange(width, device=lam.device)
    down = (rows >= top) & (rows < bottom)
    across = (columns >= left) & (columns < right)
    area = (bottom - top) * (right - left)
    return down[:, None] & across, 1 - area / (height * width)


def _ends(centre: Tensor, half: Tensor, length: int) -> tuple[Tensor, Tensor]:
    middle, reach = (centre * length).floor(), (half * length).floor()
    return (middle - reach).clamp_min(0), (middle + reach).clamp_max(length)


class Local(nn.Module):
    """The local synthetic instances of Brown et al. (2015): ranks by distance to the anchor.

    Nothing about them is random: `generator` is taken, as by all methods, and not used.
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
        check_number("gamma", gamma, low=0)
        if sources is not None:
            check_count("sources", sources, 2)
        self.rule = Classes(num_classes)
        self.gamma = gamma
        self.sources = sources

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_pair(samples, labels)
        sources = None if self.sources is None else min(self.sources, samples.shape[0])
        plan = local_plan(samples, self.gamma, sources=sources)
        return mix(samples, plan), self.rule.mix(labels, plan)
