"""`apply_plan`, `zeta_mixup` and `mixup` where they differ from the transforms of the contract."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from conftest import assert_close
from torch._subclasses.fake_tensor import FakeTensorMode
from torchvision import tv_tensors
from transform_kinds import mixed_by_hand, seeded

from zetamix import MixPlan, ZetaMixup, apply_plan, mixup, zeta_mixup, zeta_plan
from zetamix.rules import Average, Blend, FromAnchor, OneHot

both = pytest.mark.parametrize("function", [zeta_mixup, mixup])
# many sources go through a matrix product, few of many rows are gathered: both must mix alike
every_path = pytest.mark.parametrize(
    "plan_of",
    [lambda **given: zeta_plan(6, **given), lambda **given: zeta_plan(16, sources=2, **given)],
    ids=["product", "gather"],
)


def test_a_nest_keeps_its_types_and_every_entry_comes_back_as_it_came():
    plan = zeta_plan(4, 1.2)
    nest = OrderedDict(b=torch.randn(4, 3), a=(torch.randn(4), [torch.randn(4, 2, 2)]))
    mixed = apply_plan(nest, plan)
    assert (type(mixed), list(mixed)) == (OrderedDict, ["b", "a"])
    assert (type(mixed["a"]), type(mixed["a"][1])) == (tuple, list)
    assert_close(mixed["b"], mixed_by_hand(nest["b"], plan))
    assert_close(mixed["a"][0], mixed_by_hand(nest["a"][0], plan))
    assert_close(mixed["a"][1][0], mixed_by_hand(nest["a"][1][0], plan))
    array = np.random.default_rng(0).random((4, 3))
    mixed = apply_plan([array, torch.from_numpy(array)], plan)
    assert [type(entry) for entry in mixed] == [np.ndarray, torch.Tensor]
    assert (mixed[0] == mixed[1].numpy()).all()


@pytest.mark.parametrize("kind", [tv_tensors.Image, tv_tensors.Video, tv_tensors.Mask])
def test_tv_tensors_keep_their_type(kind):
    value = kind(torch.randint(3, (4, 2, 5, 5), dtype=torch.uint8))
    mixed, targets = ZetaMixup(num_classes=4)(value, torch.arange(4))
    assert (type(mixed), type(targets)) == (kind, torch.Tensor)
    assert type(zeta_mixup(value, torch.arange(4), 4)[0]) is kind
    assert type(apply_plan(value, zeta_plan(4))) is kind
    # soft masks are masks: geometric transforms still move them with their image
    masks = tv_tensors.Mask(torch.randint(3, (4, 5, 5)))
    _, soft = ZetaMixup(num_classes=3)(value, masks)
    assert (type(soft), soft.shape) == (tv_tensors.Mask, (4, 3, 5, 5))


@both
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: np.broadcast_to(x[:1], x.shape), lambda x: x[::-1]],
    ids=["as it comes", "read-only", "backwards"],
)  # fmt: skip
def test_numpy_in_numpy_out(function, view):
    samples, labels = view(np.random.default_rng(0).random((6, 4, 3))), view(np.arange(6))
    mixed, targets = function(samples, labels, 6, generator=seeded())
    assert (type(mixed), type(targets)) == (np.ndarray, np.ndarray)
    expected, soft = function(
        torch.tensor(samples.tolist()).double(), torch.tensor(labels.tolist()), 6,
        generator=seeded(),
    )  # fmt: skip
    assert np.allclose(mixed, expected.numpy())
    assert np.array_equal(targets, soft.numpy())


def test_the_anchor_rule_takes_the_heaviest_source():
    weights = torch.tensor([[0.2, 0.8], [0.7, 0.3], [0.4, 0.6]])
    plan = MixPlan(torch.tensor([[0, 1], [1, 2], [0, 2]]), weights, 3)
    ids = torch.tensor([[100, 1], [200, 2], [300, 3]])
    assert FromAnchor().mix(ids, plan).tolist() == [[200, 2], [200, 2], [300, 3]]
    assert FromAnchor().mix(["a", "b", "c"], plan) == ["b", "b", "c"]


def test_ignored_labels_give_no_mass_and_integers_may_be_averaged():
    plan = MixPlan(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[0.75, 0.25]] * 2), 2)
    targets = OneHot(2, ignore_index=-100).mix(torch.tensor([1, -100]), plan)
    assert targets.tolist() == [[0.0, 0.75], [0.0, 0.25]]
    assert Average().mix(torch.tensor([[1, 20], [5, 40]]), plan).tolist() == [[2, 25], [4, 35]]


# gradients


@every_path
def test_gradients_reach_the_weights_to_second_order(plan_of):
    plan = plan_of(dtype=torch.float64)
    samples = torch.randn(plan.batch_size, 2, 3, dtype=torch.float64, requires_grad=True)
    weights = plan.weights.clone().requires_grad_()

    def mix(x, w):
        return apply_plan(x, MixPlan(plan.indices, w, plan.batch_size))

    assert torch.autograd.gradcheck(mix, (samples, weights))
    assert torch.autograd.gradgradcheck(mix, (samples, weights))
    soft = torch.rand(plan.batch_size, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: Average().mix(y, plan), soft)


# torch scripts its own formulas for forward mode
@pytest.mark.filterwarnings("ignore:`torch.jit.*is deprecated")
@every_path
def test_forward_derivatives_by_the_weights(plan_of):
    plan = plan_of(gamma=1.2)
    samples, weights = torch.randn(plan.batch_size, 3), plan.weights.clone()

    def mix_with(given):
        return apply_plan(samples, MixPlan(plan.indices, given, plan.batch_size))

    # mixing is linear in the weights
    derivative = torch.func.jvp(mix_with, (weights,), (weights,))[1]
    assert_close(derivative, mixed_by_hand(samples, plan))


# compiled, and without waiting for the device


@pytest.mark.slow
@both
def test_compiles_into_one_graph(function):
    compiled = torch.compile(
        lambda x, y: function(x, y, 8), fullgraph=True, backend="aot_eager", dynamic=False
    )
    samples, labels = torch.randn(8, 3, 4, 4), torch.arange(8)
    (mixed, targets), (_, again) = compiled(samples, labels), compiled(samples, labels)
    # unique labels name the sources of every output: redo the mixing from them
    assert_close(mixed, (targets.double() @ samples.double().flatten(1)).view_as(samples))
    assert not torch.equal(targets, again)


ON_DEVICE = {
    "number": lambda x, y: zeta_mixup(x, y, 10, ignore_index=-1),
    "range": lambda x, y: zeta_mixup(x, y, 10, gamma=(2.0, 4.0), sources=2),
    "tensor": lambda x, y: zeta_mixup(x, y, 10, gamma=torch.rand(32, device="cuda")),
    "random anchor": lambda x, y: zeta_mixup(x, y, 10, anchor="random", outputs=32, sources=2),
    "mixup": lambda x, y: mixup(x, y, 10),
    "mixup, alpha, batch": lambda x, y: mixup(x, y, 10, alpha=0.2, per="batch"),
}


@pytest.mark.parametrize("call", ON_DEVICE.values(), ids=ON_DEVICE.keys())
def test_functions_and_rules_never_wait_for_the_device(call):
    """Fake tensors hold no values: whoever reads one raises."""
    with FakeTensorMode():
        samples = torch.empty(32, 3, 8, 8, device="cuda")
        labels = torch.empty(32, dtype=torch.int64, device="cuda")
        mixed, targets = call(samples, labels)
        assert mixed.device.type == targets.device.type == "cuda"
        assert (mixed.shape, targets.shape) == ((32, 3, 8, 8), (32, 10))
        plan = zeta_plan(32, device="cuda")
        for rule in (OneHot(3, ignore_index=255), FromAnchor(), Blend(), Average()):
            value = samples if isinstance(rule, Blend) else labels
            assert rule.mix(value, plan).device.type == "cuda"
