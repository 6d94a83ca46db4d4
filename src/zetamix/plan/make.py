"""Make a plan: of ζ-mixup, of mixup, by distance, or one that mixes less or nothing."""

import torch
from torch import Tensor

from zetamix._checks import Gamma, check_batch, check_number, check_tensor
from zetamix.gamma import weigh
from zetamix.plan.plan import MixPlan
from zetamix.plan.request import mixup_request, resolve_outputs, resolve_sources, zeta_request
from zetamix.sampling import SPARE, Draw, precise


def zeta_plan(
    batch: int,
    gamma: Gamma = 2.8,
    *,
    sources: int | None = None,
    outputs: int | None = None,
    anchor: str = "self",
    generator: torch.Generator | None = None,
    stream: int | None = None,
    device: torch.device | str | int | None = None,
    dtype: torch.dtype = torch.float32,
) -> MixPlan:
    """Draw a ζ-mixup plan: weights `rank**-gamma / C` under a uniformly random order (Eq. 3).

    gamma: one number, a tensor with one number per output, or a range `(low, high)` from which one
        is drawn per output. A 0-d tensor on the device can be changed between CUDA-graph replays.
    sources: how many samples go into one output; all of the batch by default.
    outputs: how many outputs are made; as many as the batch by default.
    anchor: "self" gives rank 1 in output k to sample k (sample `k % batch` when there are more
        outputs than samples), as the authors' code does; "random" leaves rank 1 to chance too, the
        equation as written.
    generator: the only source of randomness; torch's default generator of the device when None.
    stream: which of many independent streams to take from the generator. None takes the rank of
        this process and, inside a loader worker, the worker's seed, so that no two of them draw
        the same plans; pass 0 to make all ranks of a tensor-parallel group agree.

    >>> plan = zeta_plan(8, generator=torch.Generator().manual_seed(0))
    >>> plan.anchors()
    tensor([0, 1, 2, 3, 4, 5, 6, 7])
    """
    request = zeta_request(batch, gamma, sources, outputs, anchor, generator, stream, device)
    return request.plan(dtype)


def mixup_plan(
    batch: int,
    alpha: float = 1.0,
    *,
    per: str = "sample",
    outputs: int | None = None,
    generator: torch.Generator | None = None,
    stream: int | None = None,
    device: torch.device | str | int | None = None,
    dtype: torch.dtype = torch.float32,
) -> MixPlan:
    """Draw a mixup plan: λ of sample k and 1 − λ of another, λ ~ Beta(α, α) (Eq. 1).

    per: "sample" draws one λ for each output, "batch" one λ for all of them. The partner is drawn
        uniformly among the other samples, so nothing is mixed with itself.

    >>> mixup_plan(4).weights.sum(1)
    tensor([1., 1., 1., 1.])
    """
    return mixup_request(batch, alpha, per, outputs, generator, stream, device).plan(dtype)


def local_plan(
    samples: Tensor,
    gamma: float = 2.8,
    *,
    sources: int | None = None,
    outputs: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> MixPlan:
    """Plan the local synthetic instances of Brown et al. (2015), the ancestor of ζ-mixup.

    The same series as `zeta_plan`, but ranks go by Euclidean distance to the anchor, sample k:
    the anchor first, then its nearest neighbour. Nothing is drawn; the price is all distances.

    >>> local_plan(torch.tensor([[0.0], [1.0], [5.0]])).indices
    tensor([[0, 1, 2],
            [1, 0, 2],
            [2, 1, 0]])
    """
    check_tensor("samples", samples)
    batch = samples.shape[0]
    check_batch(batch)
    outputs = resolve_outputs(batch, outputs)
    sources = resolve_sources(batch, sources)
    check_number("gamma", gamma, low=0)
    rows = samples.detach().reshape(batch, -1).to(torch.promote_types(samples.dtype, torch.float32))
    anchors = torch.arange(outputs, device=samples.device) % batch
    # exact differences, not the matrix-product shortcut, whose error can reorder close neighbours
    distances = torch.cdist(
        rows[anchors], rows, compute_mode="donot_use_mm_for_euclid_dist"
    ).scatter_(1, anchors[:, None], -1.0)
    indices = distances.topk(sources, dim=1, largest=False, sorted=True).indices
    weights = weigh(precise(gamma, samples.device), sources).to(dtype)
    return MixPlan(indices, weights.expand(outputs, sources), batch)


def identity_plan(
    batch: int, *, device: torch.device | str | int = "cpu", dtype: torch.dtype = torch.float32
) -> MixPlan:
    """The plan that mixes nothing: output k is sample k."""
    check_batch(batch)
    rows = torch.arange(batch, device=device)[:, None]
    return MixPlan(rows, torch.ones(batch, 1, device=device, dtype=dtype), batch)


def spare(
    plan: MixPlan,
    p: float,
    *,
    generator: torch.Generator | None = None,
    stream: int | None = None,
) -> MixPlan:
    """Mix output k with probability `p`; otherwise it is sample k alone."""
    mixed = Draw(generator, stream, plan.device).uniform(SPARE, plan.outputs, 1) < p
    alone = torch.zeros_like(plan.weights)
    alone[:, 0] = 1
    own = torch.arange(plan.outputs, device=plan.device)[:, None] % plan.batch
    indices = torch.where(mixed, plan.indices, own)
    return MixPlan(indices, torch.where(mixed, plan.weights, alone), plan.batch)
