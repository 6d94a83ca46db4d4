"""A plan that is asked for: its arguments checked and filled in, then drawn."""

from functools import lru_cache
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
    check_sources,
    needs_gradients,
)
from zetamix.gamma import weigh
from zetamix.kernels import dispatch
from zetamix.permutations import order_rows
from zetamix.plan.plan import MixPlan
from zetamix.sampling import ORDER, Draw, draw_gammas, draw_lam, precise


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
    outputs = resolve_outputs(batch, outputs)
    sources = resolve_sources(batch, sources)
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
    outputs = resolve_outputs(batch, outputs)
    check_alpha(alpha)
    check_choice("per", per, ("sample", "batch"))
    draw = Draw(generator, stream, _resolve_device(device, generator))
    law = "mixup" if per == "sample" else "mixup/batch"
    return Request(law, alpha, batch, min(2, batch), outputs, "self", draw)


def resolve_outputs(batch: int, outputs: int | None) -> int:
    if outputs is None:
        return batch
    check_count("outputs", outputs, 1)
    return outputs


def resolve_sources(batch: int, sources: int | None) -> int:
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
