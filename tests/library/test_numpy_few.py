"""Few sources on a CPU by NumPy: the plans that plain torch makes of the same random numbers."""

import pytest
import torch
from conftest import assert_close
from torch import Tensor

from zetamix import Mixup, ZetaMix, apply_plan
from zetamix import boxes as box
from zetamix import plan as plans
from zetamix.gamma import weigh
from zetamix.kernels import copy_boxes, numpy_few, reference
from zetamix.kernels.plan_spec import PLAIN, Finish, PlanSpec
from zetamix.sampling import Draw, order_rows

SIZE = (7, 9)
LAST_BELOW_1 = 1 - 2**-53


def make_spec(batch: int, sources: int, gamma, anchor: str, outputs: int | None = None) -> PlanSpec:
    draw = Draw(None, None, "cpu")
    return plans.zeta_spec(batch, gamma, sources, outputs, anchor, draw)


def by_torch(spec: PlanSpec, finish: Finish, uniform: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The finished plan in plain torch; a blended output has empty boxes."""
    (batch, sources, outputs, _, _, own, *_), gamma = spec
    numbers = uniform.clone()
    if isinstance(gamma, tuple):
        gamma, numbers = gamma[0] + (gamma[1] - gamma[0]) * numbers[0], numbers[1:]
    drawn = sources - own
    digits = torch.zeros(outputs, sources, dtype=torch.int64)
    for column, number in enumerate(numbers[:drawn], sources - drawn):
        digits[:, column] = (number * (batch - column)).long()
    indices, numbers = order_rows(digits, batch, sources, own), numbers[drawn:]
    weights = weigh(torch.as_tensor(gamma).double(), sources).expand(outputs, sources).float()
    plan = plans.MixPlan(indices, weights, batch)
    if finish.paste:
        corners, toss = numbers[: 2 * sources - 2], numbers[2 * sources - 2]
        boxes = box.place_inside(weights[:, 1:], corners.reshape(outputs, sources - 1, 2), SIZE)
        plan = plans.with_boxes(plan, boxes, SIZE, toss < finish.paste)
    if finish.p != 1:
        mixed = numbers[-1] < finish.p
        alone = torch.zeros(outputs, sources)
        alone[:, 0] = 1
        own_rows = torch.arange(outputs)[:, None] % batch
        return (
            torch.where(mixed[:, None], plan.indices, own_rows),
            torch.where(mixed[:, None], plan.weights, alone),
            None if plan.boxes is None else torch.where(mixed[:, None, None], plan.boxes, 0),
        )
    return plan.indices, plan.weights, plan.boxes


@pytest.mark.parametrize("finish", [PLAIN, Finish(p=0.6), Finish(paste=0.5), Finish(0.7, 0.6)])
@pytest.mark.parametrize("anchor", ["self", "random"])
@pytest.mark.parametrize("gamma", [1.3, (0.0, 4.0), (1.0, 3.0)])
@pytest.mark.parametrize(("batch", "sources", "outputs"), [(9, 2, 9), (5, 3, 12), (4, 4, 3)])
def test_plans_are_those_of_plain_torch(batch, sources, outputs, gamma, anchor, finish):
    spec = make_spec(batch, sources, gamma, anchor, outputs)
    count = numpy_few.count_numbers(spec.shape, finish)
    generator = torch.Generator().manual_seed(batch)
    uniform = torch.rand(count, outputs, dtype=torch.float64, generator=generator)
    plan = numpy_few.make_plan(spec, finish, SIZE, uniform, None, torch.float32)
    indices, weights, boxes = plan.tensors()
    expected = by_torch(spec, finish, uniform)
    assert torch.equal(indices, expected[0])
    assert_close(weights, expected[1])
    assert (boxes is None) == (not finish.paste)
    if boxes is not None:
        assert torch.equal(boxes, expected[2])


@pytest.mark.parametrize("number", [0.0, LAST_BELOW_1])
def test_the_ends_of_the_unit_interval_stay_inside(number):
    for sources in (2, 3, 4):
        spec, finish = make_spec(1000, sources, (0.0, 4.0), "random"), Finish(paste=1.0)
        count = numpy_few.count_numbers(spec.shape, finish)
        uniform = torch.full((count, 1000), number, dtype=torch.float64)
        uniform[-1] = 0  # below the share: all outputs are pasted
        plan = numpy_few.make_plan(spec, finish, SIZE, uniform, None, torch.float32)
        # the constructor refuses rows outside of the batch and boxes outside of the image
        parts = plan.tensors()
        whole = plans.MixPlan(parts[0], parts[1], 1000, boxes=parts[2], size=SIZE)
        assert len(set(whole.indices[0].tolist())) == sources
        assert_close(whole.weights.sum(1), torch.ones(1000))


@pytest.mark.parametrize("stream", [0, 3])
def test_uniform_numbers_of_every_stream_lie_below_1(stream):
    draw = Draw(torch.Generator().manual_seed(0), stream, "cpu")
    numbers = draw.uniform(0, 4, 50_000)
    assert 0 <= numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    assert (numbers.mean(1) - 0.5).abs().max() < 0.01


@pytest.mark.parametrize("make", [ZetaMix, Mixup])
def test_the_second_batch_is_mixed_as_the_first(make):
    mix = make(num_classes=5, generator=torch.Generator().manual_seed(1))
    plan_of = make(num_classes=5, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        samples, labels = torch.randn(6, 3, 8, 8), torch.randint(5, (6,))
        mixed, targets = mix(samples, labels)
        plan = plan_of.make_plan(6, size=(8, 8))
        assert_close(mixed, apply_plan(samples, plan, implementation="reference"))
        expected = plan.matrix() @ torch.nn.functional.one_hot(labels, 5).float()
        assert_close(targets, expected)


def test_a_batch_like_the_one_before_is_checked():
    mix = ZetaMix(num_classes=5)
    samples = torch.randn(4, 3, 8, 8)
    mix(samples, torch.arange(4))
    with pytest.raises(ValueError, match=r"got -2"):
        mix(samples, torch.tensor([0, 1, -2, 3]))
    followed = samples.clone().requires_grad_()
    mix(followed, torch.arange(4))[0].sum().backward()
    assert followed.grad is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.uint8, torch.bool])
@pytest.mark.parametrize("side", [8, 200])
def test_boxes_are_copied_in_images_of_every_size(side, dtype):
    generator = torch.Generator().manual_seed(side)
    samples = torch.randint(2, (4, 2, side, side), generator=generator).to(dtype)
    indices = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0]])
    boxes = torch.tensor([[[0, 0, side, side], [k, 1, side - 1, side - k]] for k in range(4)])
    boxes[2] = 0
    expected = reference.paste(samples.clone(), samples, indices, boxes)
    assert (samples[0].numel() > copy_boxes.MOST_BY_NUMPY) == (side == 200)
    assert torch.equal(copy_boxes.paste(samples.clone(), samples, indices, boxes), expected)
