"""Losses for soft targets, held against torch's own losses for hard ones."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from conftest import assert_close

from zetamix import SoftCrossEntropy, soft_cross_entropy, zeta_plan
from zetamix.rules import OneHot

CLASSES = 4
WEIGHT = torch.tensor([0.5, 3.0, 0.0, 1.25], dtype=torch.float64)
every_shape = pytest.mark.parametrize("dense", [(), (3, 2)], ids=["[n, k]", "[n, k, h, w]"])
every_reduction = pytest.mark.parametrize("reduction", ["mean", "sum", "none"])


def logits_and_labels(dense=(), *, n=9, ignored=None):
    logits = torch.randn(n, CLASSES, *dense, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(CLASSES, (n, *dense))
    labels.view(-1)[:CLASSES] = torch.arange(CLASSES)
    if ignored is not None:
        labels.view(-1)[CLASSES::3] = ignored
    return logits, labels


def one_hot(labels, ignored=-100):
    """Hard labels as targets of the dtype of the logits, by comparison and nothing else."""
    hot = torch.stack([labels == k for k in range(CLASSES)], dim=1)
    return (hot & (labels != ignored)[:, None]).double()


def gradient(loss, logits):
    """The gradient of a loss of any shape, each entry counted by a weight of its own."""
    counts = torch.arange(1, loss.numel() + 1, dtype=loss.dtype).view(loss.shape)
    return torch.autograd.grad((loss * counts).sum(), logits)[0]


# against F.cross_entropy


@every_shape
@every_reduction
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "class weights"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0], ids=lambda s: f"smoothing {s}")
@pytest.mark.parametrize("ignored", [-100, 255, 1], ids=lambda i: f"ignore {i}")
def test_one_hot_targets_give_what_hard_labels_give(dense, reduction, weight, smoothing, ignored):
    logits, labels = logits_and_labels(dense, ignored=ignored)
    options = {"weight": weight, "label_smoothing": smoothing, "ignore_index": ignored}
    options["reduction"] = reduction
    hard = F.cross_entropy(logits, labels, **options)
    soft = soft_cross_entropy(logits, one_hot(labels, ignored), **options)
    assert soft.shape == hard.shape
    assert_close(soft, hard)
    assert_close(gradient(soft, logits), gradient(hard, logits))
    assert_close(SoftCrossEntropy(**options)(logits, one_hot(labels, ignored)), hard)
    # hard labels are accepted, too, also with a channel of one
    assert_close(soft_cross_entropy(logits, labels, **options), hard)
    assert_close(soft_cross_entropy(logits, labels.unsqueeze(1), **options), hard)
    if ignored == 1 and not smoothing:
        # an ignored class is dropped from full one-hot targets
        assert_close(soft_cross_entropy(logits, one_hot(labels), **options), hard)


def test_class_weights_differ_from_the_built_in_soft_form_by_its_divisor():
    # pytorch#107680: the built-in divides soft targets by n, not by Σ weight·target
    logits, labels = logits_and_labels()
    ours = soft_cross_entropy(logits, one_hot(labels), weight=WEIGHT)
    built_in = F.cross_entropy(logits, one_hot(labels), weight=WEIGHT)
    assert_close(ours * WEIGHT[labels].mean(), built_in)
    assert isinstance(SoftCrossEntropy(WEIGHT), torch.nn.CrossEntropyLoss)
    loss = SoftCrossEntropy(weight=torch.ones(3))
    assert loss.to("meta").weight.device.type == "meta"
    assert list(loss.state_dict()) == ["weight"]


@every_shape
@every_reduction
@pytest.mark.parametrize("smoothing", [0.0, 0.2], ids=lambda s: f"smoothing {s}")
def test_unweighted_soft_targets_give_what_torch_gives(dense, reduction, smoothing):
    logits, _ = logits_and_labels(dense)
    targets = torch.rand(9, CLASSES, *dense, dtype=torch.float64).softmax(1)
    ours = soft_cross_entropy(logits, targets, label_smoothing=smoothing, reduction=reduction)
    losses = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="none")
    # the built-in "mean" divides by n, which with dense targets is not the number of pixels
    theirs = {"none": losses, "sum": losses.sum(), "mean": losses.mean()}[reduction]
    assert_close(ours, theirs)
    assert_close(gradient(ours, logits), gradient(theirs, logits))


def test_a_masked_class_does_not_spoil_the_loss_of_the_others():
    # an infinite negative logit switches a class off; hard labels of other classes do not mind
    logits = torch.tensor([[1.0, -torch.inf, 0.0]], dtype=torch.float64)
    hard = F.cross_entropy(logits, torch.tensor([0]))
    soft = soft_cross_entropy(logits, torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64))
    assert_close(soft, hard)


def test_mixed_masks_count_every_place_by_the_weight_that_is_left():
    masks = torch.randint(CLASSES, (5, 3, 3))
    masks[torch.rand(5, 3, 3) < 0.4] = 255
    plan = zeta_plan(5, 1.3, dtype=torch.float64)
    logits = torch.randn(5, CLASSES, 3, 3, dtype=torch.float64)
    soft = soft_cross_entropy(logits, OneHot(CLASSES, ignore_index=255).mix(masks, plan).double())
    total = weight = 0.0
    for output, source in itertools.product(range(5), range(5)):
        share, labels = plan.weights[output, source], masks[plan.indices[output, source]].flatten()
        pixels = logits[output].flatten(1).T
        total += share * F.cross_entropy(pixels, labels, ignore_index=255, reduction="sum")
        weight += share * (labels != 255).sum()
    # the targets are float32
    assert soft.item() == pytest.approx((total / weight).item(), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_logits_are_worked_on_in_float32(dtype):
    logits = torch.randn(64, CLASSES).to(dtype)
    targets = torch.rand(64, CLASSES).softmax(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        soft = soft_cross_entropy(logits, targets, label_smoothing=0.1)
        weight = torch.ones(CLASSES, dtype=torch.int64)
        hard = soft_cross_entropy(logits, targets.argmax(1).byte(), weight=weight)
    assert soft.dtype == hard.dtype == torch.float32
    exact = logits.double()
    assert_close(soft, F.cross_entropy(exact, targets.double(), label_smoothing=0.1))
    assert_close(hard, F.cross_entropy(exact, targets.argmax(1)))
