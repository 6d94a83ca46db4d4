"""The types that a caller's type checker sees: mypy checks this file, test_architecture runs it."""

from typing import assert_type

import torch
from torch import Tensor

from zetamix import Mixup, ZetaMixup, apply_plan, mixup, rules, zeta_mixup, zeta_plan


def tensors_stay_tensors() -> None:
    samples, labels, plan = torch.rand(4, 3), torch.arange(4), zeta_plan(4)
    assert_type(apply_plan(samples, plan), Tensor)
    assert_type(apply_plan({"x": samples}, plan), dict[str, Tensor])
    assert_type(apply_plan((samples, [samples]), plan), tuple[Tensor, list[Tensor]])
    assert_type(zeta_mixup(samples, labels, 4), tuple[Tensor, Tensor])
    assert_type(mixup([samples], labels, 4), tuple[list[Tensor], Tensor])
    for transform in (ZetaMixup(num_classes=4), Mixup(num_classes=4)):
        assert_type(transform(samples, labels), tuple[Tensor, Tensor])
        assert_type(transform((samples, labels)), tuple[Tensor, Tensor])
    mix = ZetaMixup(rules=(rules.Blend(), rules.OneHot(4)))
    mix.gamma = 3.0
    mix.gamma = (2.0, 4.0)


def misspelled_choices_are_found() -> None:
    """mypy's warn_unused_ignores fails should one of these become legal."""
    zeta_plan(4, anchor="slef")  # type: ignore[arg-type]
    Mixup(per="pair")  # type: ignore[arg-type]
    mixup(torch.rand(4, 3), torch.arange(4), 4, per="pair")  # type: ignore[arg-type]
