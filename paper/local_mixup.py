"""The local synthetic instances of Brown et al. (2015), the predecessor of ζ-mixup."""

import torch
from torch import Tensor, nn

from zetamix import MixPlan, apply_plan
from zetamix.checks import check_count, check_number, check_tensor
from zetamix.plan import check_sizes
from zetamix.rules import Average, OneHot, check_pair
from zetamix.sampling import precise, weigh


def local_plan(
    samples: Tensor,
    gamma: float = 2.8,
    *,
    sources: int | None = None,
    outputs: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> MixPlan:
    """Plan of the local synthetic instances of Brown et al. (2015), the predecessor of ζ-mixup.

    The weights are those of `zeta_plan`, but sources are ranked by Euclidean distance to the
    anchor, sample k. Nothing is random; all pairwise distances are computed.

    >>> local_plan(torch.tensor([[0.0], [1.0], [5.0]])).indices
    tensor([[0, 1, 2],
            [1, 0, 2],
            [2, 1, 0]])
    """
    check_tensor("samples", samples)
    batch_size = samples.shape[0]
    check_sizes(batch_size, sources, outputs)
    sources, outputs = sources or batch_size, outputs or batch_size
    check_number("gamma", gamma, low=0)
    wide = torch.promote_types(samples.dtype, torch.float32)
    rows = samples.detach().reshape(batch_size, -1).to(wide)
    anchors = torch.arange(outputs, device=samples.device) % batch_size
    # exact differences: the matrix-product formula has errors that can reorder close neighbours
    distances = torch.cdist(
        rows[anchors], rows, compute_mode="donot_use_mm_for_euclid_dist"
    ).scatter_(1, anchors[:, None], -1.0)
    indices = distances.topk(sources, dim=1, largest=False, sorted=True).indices
    weights = weigh(precise(gamma, samples.device), sources).to(dtype)
    return MixPlan(indices, weights.expand(outputs, sources), batch_size)


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
        check_number("gamma", gamma, low=0)
        if sources is not None:
            check_count("sources", sources, 2)
        self.rule = OneHot(num_classes)
        self.gamma = gamma
        self.sources = sources

    def forward(self, samples: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_pair(samples, labels)
        sources = None if self.sources is None else min(self.sources, samples.shape[0])
        plan = local_plan(samples, self.gamma, sources=sources)
        rule = Average() if labels.is_floating_point() else self.rule
        return apply_plan(samples, plan), rule.mix(labels, plan)
