"""Mixup: mixup as a module, with one λ for each output or one for all."""

from typing import Any

import torch
from torch import Tensor

from zetamix._checks import check_alpha, check_choice
from zetamix.batch_tree import Rules
from zetamix.mix import mixup
from zetamix.plan import MixPlan, mixup_plan
from zetamix.transforms.batch import BatchMix


class Mixup(BatchMix):
    """mixup of a batch: every output blends its own sample with another, λ ~ Beta(α, α).

    per: "sample" draws one λ for each output, "batch" one for all. The rest as in `ZetaMixup`.

    >>> mix = Mixup(num_classes=10, alpha=0.2)
    >>> samples, targets = mix(torch.rand(32, 3, 28, 28), torch.randint(10, (32,)))
    >>> targets.shape
    torch.Size([32, 10])
    """

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        alpha: float = 1.0,
        per: str = "sample",
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
        check_alpha(alpha)
        check_choice("per", per, ("sample", "batch"))
        self.alpha = alpha
        self.per = per

    def _mix_pair(self, samples: Any, labels: Tensor) -> Any:
        return mixup(
            samples,
            labels,
            self.num_classes,
            alpha=self.alpha,
            per=self.per,
            ignore_index=self.ignore_index,
            generator=self.generator,
            stream=self._stream(),
            implementation=self.implementation,
        )

    def _draw(self, batch: int, *, device: torch.device | str, dtype: torch.dtype) -> MixPlan:
        return mixup_plan(
            batch,
            self.alpha,
            per=self.per,
            generator=self.generator,
            stream=self._stream(),
            device=device,
            dtype=dtype,
        )

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, per={self.per!r}, {self._form()}"
