"""The recipes that apply a plan to NumPy arrays, and with another argument to JAX's, are true."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transform_kinds import VARIANTS, seeded

from zetamix import ZetaMix, apply_plan, rules, zeta_plan

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "numpy-and-jax.md"


def recipe(name):
    """The function of this name, as it stands on the page."""
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        if f"def {name}(" in block:
            namespace = {}
            exec(compile(block, str(PAGE), "exec"), namespace)
            return namespace[name]
    raise AssertionError(f"{PAGE.name} has no function {name}")


def assert_mixed(name, samples, plan, expected):
    result = recipe(name)(samples.numpy(), plan)
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float32
    torch.testing.assert_close(torch.from_numpy(result), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", VARIANTS)
def test_plans_of_all_transforms(name):
    mix = VARIANTS[name](generator=seeded())
    images = torch.randn(6, 3, 8, 5, generator=seeded(1))
    plan = mix.make_plan(6, size=(8, 5))
    assert_mixed("blend" if plan.boxes is None else "paste", images, plan, apply_plan(images, plan))


def test_outputs_and_targets():
    samples = torch.randn((6, 5), generator=seeded(1))
    plan = zeta_plan(6, sources=3, outputs=9)
    assert_mixed("blend", samples, plan, apply_plan(samples, plan))
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    plan = ZetaMix().make_plan(6)
    assert_mixed("average", torch.eye(3)[labels], plan, rules.OneHot(3).mix(labels, plan))
