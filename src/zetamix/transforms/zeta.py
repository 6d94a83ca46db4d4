"""ZetaMixup: ζ-mixup as a module, its γ fixed, drawn from a range, or scheduled by the epoch."""

import warnings
from typing import Any

import torch
from torch import Tensor

from zetamix._checks import Gamma, GammaSchedule, check_choice, check_count, check_gamma
from zetamix.batch_tree import Rules
from zetamix.gamma import dominance_threshold
from zetamix.mix import zeta_mixup
from zetamix.plan import MixPlan, zeta_plan
from zetamix.transforms.batch import BatchMix


class ZetaMixup(BatchMix):
    """ζ-mixup of a batch: every output blends many samples, one of which dominates.

    gamma: how strongly the anchor dominates (see `zetamix.describe`): one number, a range
        `(low, high)` drawn per output, or a function of the epoch that returns either; call
        `set_epoch` for the last.
    sources: how many samples go into one output; all of the batch by default. A last, smaller
        batch uses what it has.
    anchor: "self" or "random", as in `zeta_plan`.
    num_classes, ignore_index: for integer labels.
    rules: for batches other than `(samples, labels)`: a tuple or dict like the batch, with
        `Samples()`, `Classes(...)`, `Soft()` or `Anchor()` for each entry.
    p: the probability that an output is mixed. Also an attribute, as is `enabled`.
    implementation: as in `zetamix.mix`.

    >>> mix = ZetaMixup(num_classes=10, gamma=2.8)
    >>> samples, targets = mix(torch.rand(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        gamma: Gamma | GammaSchedule = 2.8,
        sources: int | None = None,
        anchor: str = "self",
        ignore_index: int | None = None,
        rules: Rules | None = None,
        p: float = 1.0,
        generator: torch.Generator | None = None,
        implementation: str = "auto",
    ) -> None:
        super().__init__(
            num_classes=num_classes,
            ignore_index=ignore_index,
            rules=rules,
            p=p,
            generator=generator,
            implementation=implementation,
        )
        if sources is not None:
            check_count("sources", sources, 2)
        check_choice("anchor", anchor, ("self", "random"))
        self.sources = sources
        self.anchor = anchor
        self._schedule = gamma
        self._warned = False
        self._check_gamma(self.gamma)

    @property
    def gamma(self) -> Gamma:
        """γ of the current epoch. To change it during training give the constructor a schedule."""
        return self._gamma_at(self.epoch) if callable(self._schedule) else self._schedule

    @gamma.setter
    def gamma(self, value: object) -> None:
        raise AttributeError(
            "gamma cannot be set: loader workers that are running would not see it. Give the "
            "constructor a function of the epoch and call set_epoch."
        )

    def _gamma_at(self, epoch: int) -> Gamma:
        return self._schedule(epoch) if callable(self._schedule) else self._schedule

    def set_epoch(self, epoch: int) -> None:
        check_count("epoch", epoch, 0)
        self._check_gamma(self._gamma_at(epoch))
        super().set_epoch(epoch)

    def _check_gamma(self, gamma: Gamma) -> None:
        """Refuse an impossible γ, and warn once about one that lets no sample dominate."""
        check_gamma(gamma)
        if isinstance(gamma, Tensor):
            # a look at a tensor on a GPU would make the host wait
            if gamma.device.type != "cpu":
                return
            lowest = float(gamma.min())
        else:
            lowest = gamma[0] if isinstance(gamma, (tuple, list)) else gamma
        threshold = dominance_threshold(self.sources)
        if lowest < threshold and not self._warned:
            self._warned = True
            among = "any number of" if self.sources is None else str(self.sources)
            warnings.warn(
                f"gamma={lowest:g} is below {threshold:.5f}, the threshold for {among} sources: "
                "the anchor need not outweigh the other samples together (Theorem 1).",
                stacklevel=3,
            )

    def _mix_pair(self, samples: Any, labels: Tensor) -> Any:
        return zeta_mixup(
            samples,
            labels,
            self.num_classes,
            gamma=self.gamma,
            sources=self._clip(len(labels)),
            anchor=self.anchor,
            ignore_index=self.ignore_index,
            generator=self.generator,
            stream=self._stream(),
            implementation=self.implementation,
        )

    def _draw(self, batch: int, *, device: torch.device | str, dtype: torch.dtype) -> MixPlan:
        return zeta_plan(
            batch,
            self.gamma,
            sources=self._clip(batch),
            anchor=self.anchor,
            generator=self.generator,
            stream=self._stream(),
            device=device,
            dtype=dtype,
        )

    def _clip(self, batch: int) -> int | None:
        """`sources` for a batch that may be a smaller, last one."""
        return None if self.sources is None or self.sources >= batch else self.sources

    def extra_repr(self) -> str:
        name = getattr(self._schedule, "__name__", str(self._schedule))
        return f"gamma={name}, sources={self.sources}, anchor={self.anchor!r}, {self._form()}"
