"""Plans: which batch rows go into each output, and how much of each.

Every method of this library is a plan. Making one is random and happens here; applying one is
deterministic and happens in `zetamix.mix`.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from zetamix._checks import (
    Gamma,
    check_alpha,
    check_batch,
    check_choice,
    check_count,
    check_gamma,
    check_generator_type,
    check_number,
    check_plan,
    check_sources,
    check_tensor,
    needs_gradients,
)
from zetamix.draw import KEY_LIMIT, ORDER, SPARE, Draw, draw_gammas, draw_lam, precise
from zetamix.kernels import dispatch
from zetamix.kernels.reference import dense
from zetamix.series import weigh


@dataclass(frozen=True, eq=False)
class MixPlan:
    """For each output, the batch rows that are mixed into it and their weights.

    >>> plan = zeta_plan(4, gamma=2.0, sources=3)
    >>> plan.indices.shape, plan.weights[0]
    (torch.Size([4, 3]), tensor([0.7347, 0.1837, 0.0816]))
    """

    indices: Tensor
    """[outputs, sources], int64: batch rows, by rank for ζ-mixup (column 0 is the anchor)."""
    weights: Tensor
    """[outputs, sources], floating point: rows of every plan made here sum to 1."""
    batch: int
    """How many rows the batch has that this plan is for."""

    def __post_init__(self) -> None:
        check_plan(self.indices, self.weights, self.batch)

    @property
    def outputs(self) -> int:
        return self.indices.shape[0]

    @property
    def sources(self) -> int:
        return self.indices.shape[1]

    @property
    def device(self) -> torch.device:
        return self.indices.device

    def anchors(self) -> Tensor:
        """[outputs]: the batch row with the largest weight in each output."""
        heaviest = self.weights.argmax(1, keepdim=True)
        return self.indices.gather(1, heaviest).squeeze(1)

    def dominance(self) -> Tensor:
        """[outputs], bool: whether the largest weight exceeds the sum of the rest (Theorem 1)."""
        return self.weights.amax(1) > self.weights.sum(1) / 2

    def matrix(self) -> Tensor:
        """The plan as a dense [outputs, batch] matrix: mixing is `plan.matrix() @ samples`."""
        return dense(self.indices, self.weights, self.batch)

    def to(self, device: torch.device | str | int) -> "MixPlan":
        """The same plan on another device."""
        return MixPlan(self.indices.to(device), self.weights.to(device), self.batch)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file that `MixPlan.load` reads back exactly."""
        # clone: weights may be an expanded view, and the file should hold what it shows
        state = {"indices": self.indices, "weights": self.weights.clone(), "batch": self.batch}
        torch.save(state, path)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> "MixPlan":
        """Read a plan written by `save`; nothing in the file is executed."""
        state = torch.load(path, map_location=device, weights_only=True)
        if not isinstance(state, dict) or set(state) != {"indices", "weights", "batch"}:
            raise ValueError(f"{path} does not hold a plan. Write one with MixPlan.save.")
        return cls(**state)


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


class Request(NamedTuple):
    """A plan that was asked for: everything checked and filled in, the order not drawn yet."""

    law: str
    """"zeta", "mixup", or "mixup/batch" for one λ for all."""
    number: float | Tensor
    """γ (one, or one per output) or α."""
    batch: int
    sources: int
    outputs: int
    anchor: str
    draw: Draw

    def by_kernel(self, dtype: torch.dtype) -> bool:
        """Whether the plan kernel can draw it."""
        if isinstance(self.number, Tensor) and needs_gradients(self.number):
            return False
        return dispatch.draws_plans(self.draw.device, self.batch, self.sources, dtype)

    def plan(self, dtype: torch.dtype) -> MixPlan:
        if self.by_kernel(dtype):
            indices, weights = dispatch.draw_plan(
                *self.draw.origin(),
                self.draw.device,
                self.law,
                self.number,
                batch=self.batch,
                sources=self.sources,
                outputs=self.outputs,
                anchor=self.anchor,
            )
            return MixPlan(indices, weights, self.batch)
        bits = self.draw.integers(
            ORDER, self.outputs, dispatch.order_width(self.batch, self.sources)
        )
        indices = order_rows(bits, self.batch, self.sources, self.anchor)
        # a copy in any case: what is remembered must not be handed out
        weights = self._weights().to(dtype, copy=True).expand(self.outputs, self.sources)
        return MixPlan(indices, weights, self.batch)

    def _constant(self) -> bool:
        """Whether the weights are the same for every batch, and may be remembered."""
        on_cpu = self.draw.device.type == "cpu" and not torch.compiler.is_compiling()
        return on_cpu and not isinstance(self.number, Tensor)

    def _weights(self) -> Tensor:
        """[sources] or [outputs, sources], in the precision of the device."""
        if self.law == "zeta" and self._constant():
            return _known_weights(float(self.number), self.sources)
        if self.law == "zeta":
            return weigh(precise(self.number, self.draw.device), self.sources)
        count = 1 if self.law == "mixup/batch" else self.outputs
        lam = draw_lam(self.draw, float(self.number), count)
        if self.sources == 1:
            return torch.ones_like(lam)[:, None]
        return torch.stack([lam, 1 - lam], dim=1)


@lru_cache(maxsize=64)
def _known_weights(gamma: float, sources: int) -> Tensor:
    return weigh(torch.tensor(gamma, dtype=torch.float64, device="cpu"), sources)


def zeta_request(
    batch: int,
    gamma: Gamma,
    sources: int | None,
    outputs: int | None,
    anchor: str,
    generator: torch.Generator | None,
    stream: int | None,
    device: torch.device | str | int | None,
) -> Request:
    """The arguments of `zeta_plan`, checked."""
    check_batch(batch)
    outputs = _resolve_outputs(batch, outputs)
    sources = _resolve_sources(batch, sources)
    device = _resolve_device(device, generator)
    check_gamma(gamma, outputs, device)
    check_choice("anchor", anchor, ("self", "random"))
    draw = Draw(generator, stream, device)
    if isinstance(gamma, (tuple, list)):
        gamma = draw_gammas(draw, *gamma, outputs)
    return Request("zeta", gamma, batch, sources, outputs, anchor, draw)


def mixup_request(
    batch: int,
    alpha: float,
    per: str,
    outputs: int | None,
    generator: torch.Generator | None,
    stream: int | None,
    device: torch.device | str | int | None,
) -> Request:
    """The arguments of `mixup_plan`, checked."""
    check_batch(batch)
    outputs = _resolve_outputs(batch, outputs)
    check_alpha(alpha)
    check_choice("per", per, ("sample", "batch"))
    draw = Draw(generator, stream, _resolve_device(device, generator))
    law = "mixup" if per == "sample" else "mixup/batch"
    return Request(law, alpha, batch, min(2, batch), outputs, "self", draw)


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
    outputs = _resolve_outputs(batch, outputs)
    sources = _resolve_sources(batch, sources)
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


def order_rows(bits: Tensor, batch: int, sources: int, anchor: str) -> Tensor:
    """Turn random integers into [outputs, sources] distinct batch rows, uniform over all orders."""
    outputs, width = bits.shape
    anchors = torch.arange(outputs, device=bits.device) % batch if anchor == "self" else None
    if width == batch:
        return _order_by_keys(bits, sources, anchors)
    return _order_by_digits(bits, batch, anchors)


def _order_by_keys(bits: Tensor, sources: int, anchors: Tensor | None) -> Tensor:
    """Sort random keys, largest first.

    A name for the column stands in the lowest bits of a key, so that the sorted keys hold the
    order themselves. Keys of 30 bits sort fast; batches beyond 1024 take all 62. Where the bits
    above are equal, the names decide: they are the columns under a random mask for each output,
    from bits that the keys leave over, so that this too is the toss of a fair coin.
    """
    batch = bits.shape[1]
    shift = 32 if batch <= 1024 else 0
    low = (1 << (batch - 1).bit_length()) - 1
    mask = bits[:, :1] & low
    names = torch.arange(batch, device=bits.device) ^ mask
    keys = ((bits >> shift) & ~low) | names
    if anchors is not None:
        first = anchors[:, None]
        keys.scatter_(1, first, (first ^ mask) | (KEY_LIMIT >> shift))
    keys = keys.int() if shift else keys
    if sources == batch:
        ordered = keys.sort(dim=1, descending=True).values
    else:
        ordered = keys.topk(sources, dim=1, sorted=True).values
    return ((ordered & low) ^ mask).long()


def _order_by_digits(bits: Tensor, batch: int, anchors: Tensor | None) -> Tensor:
    """Read random integers as the digits of a Lehmer code and decode it.

    Digit t counts the rows below the t-th choice among those not chosen yet. Codes and ordered
    choices correspond one to one, so uniform digits give uniform orders.
    """
    sources = bits.shape[1]
    digits = bits % torch.arange(batch, batch - sources, -1, device=bits.device)
    if anchors is not None:
        digits = torch.cat([anchors[:, None], digits[:, 1:]], dim=1)
    digits = digits.t().contiguous()
    for rank in range(sources - 2, -1, -1):
        later = digits[rank + 1 :]
        later += later >= digits[rank]
    return digits.t().contiguous()


def _resolve_outputs(batch: int, outputs: int | None) -> int:
    if outputs is None:
        return batch
    check_count("outputs", outputs, 1)
    return outputs


def _resolve_sources(batch: int, sources: int | None) -> int:
    if sources is None:
        return batch
    check_sources(sources, batch)
    return sources


def _resolve_device(
    device: torch.device | str | int | None, generator: torch.Generator | None
) -> torch.device:
    check_generator_type(generator)
    if device is None:
        return torch.device("cpu") if generator is None else generator.device
    place = torch.device(device)
    if place.type == "cpu":
        return torch.device("cpu")
    if place == torch.device("cuda") and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return place
