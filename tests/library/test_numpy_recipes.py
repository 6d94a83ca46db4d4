"""The recipes that apply a plan to NumPy and JAX arrays give what `apply_plan` gives.

JAX has threads, beside which tests of loaders must not fork: its tests run in a process of their
own, which is this file again.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from zetamix import ZetaMix, apply_plan, mixup_plan, rules, zeta_plan
from zetamix.transforms import CutMix

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "numpy-and-jax.md"
ALONE = "ZETAMIX_TEST_JAX"
KINDS = ["jax" if ALONE in os.environ else "numpy"]


def recipe(name):
    """The function of this name, as it stands on the page."""
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        if f"def {name}(" in block:
            namespace = {}
            exec(compile(block, str(PAGE), "exec"), namespace)
            return namespace[name]
    raise AssertionError(f"{PAGE.name} has no function {name}")


def mixed(name, kind, samples, plan):
    """What the recipe makes of samples, as a tensor."""
    if kind == "jax":
        import jax

        array = jax.numpy.asarray(samples.numpy())
        result = recipe(name)(array, plan, jax.numpy)
        assert isinstance(result, jax.Array)
    else:
        result = recipe(name)(samples.numpy(), plan)
        assert isinstance(result, np.ndarray)
    assert result.dtype == np.float32
    return torch.from_numpy(np.array(result))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "plan",
    [
        zeta_plan(6, gamma=2.0, generator=seeded()),
        zeta_plan(6, sources=3, outputs=9, generator=seeded()),
        mixup_plan(6, generator=seeded()),
        ZetaMix(generator=seeded()).make_plan(6),
    ],
    ids=["zeta", "outputs", "mixup", "variance"],
)
def test_blend(kind, plan):
    for shape in ((6, 5), (6, 3, 4, 4)):
        samples = torch.randn(shape, generator=seeded(1))
        close(mixed("blend", kind, samples, plan), apply_plan(samples, plan))


@pytest.mark.parametrize("kind", KINDS)
def test_targets_keep_the_weights(kind):
    plan = ZetaMix(generator=seeded()).make_plan(6)
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    one_hot = torch.eye(3)[labels]
    close(mixed("average", kind, one_hot, plan), rules.OneHot(3).mix(labels, plan))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "transform",
    [
        ZetaMix(paste=1.0, sources=3, generator=seeded()),
        ZetaMix(paste=0.5, generator=seeded()),
        CutMix(generator=seeded()),
    ],
    ids=["pasted", "pasted or blended", "cutmix"],
)
def test_paste(kind, transform):
    plan = transform.make_plan(6, size=(8, 5))
    images = torch.randn(6, 3, 8, 5, generator=seeded(1))
    close(mixed("paste", kind, images, plan), apply_plan(images, plan))


@pytest.mark.slow
@pytest.mark.skipif(ALONE in os.environ, reason="this is the process of its own")
def test_jax():
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs the package jax")
    command = [sys.executable, "-m", "pytest", __file__, "-n", "0", "-p", "no:randomly"]
    environment = {**os.environ, ALONE: "1", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout
    assert "8 passed, 1 skipped" in done.stdout
