"""HiddenMix: the output of a layer and the labels are mixed by one plan."""

import pytest
import torch
from conftest import assert_close
from torch import nn
from torch.utils.checkpoint import CheckpointError, checkpoint
from transform_kinds import seeded

from zetamix import Mixup, ZetaMix, ZetaMixup, apply_plan
from zetamix.hidden import HiddenMix
from zetamix.rules import Blend
from zetamix.transforms import CutMix, LabelSmoothing


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def small_batch(count=6):
    return torch.randn(count, 4, generator=seeded(1)), torch.arange(count) % 3


def by_hand(model, layer, images, labels, transform):
    """The model run in two parts, with the transform between them."""
    parts = list(model)
    cut = 0 if layer == "input" else int(layer) + 1
    hidden, targets = transform(nn.Sequential(*parts[:cut])(images), labels)
    return nn.Sequential(*parts[cut:])(hidden), targets


@pytest.mark.parametrize("layer", ["input", "0", "1", "2"])
@pytest.mark.parametrize("kind", [ZetaMixup, Mixup])
def test_a_layer_is_mixed_as_by_hand(layer, kind):
    model, (images, labels) = small_model(), small_batch()
    hidden = HiddenMix(model, layer, kind(num_classes=3, generator=seeded()))
    logits, targets = hidden(images, labels)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    expected = by_hand(model, layer, images, labels, kind(num_classes=3, generator=seeded()))
    assert_close(logits, expected[0])
    assert_close(targets, expected[1])
    assert not torch.equal(logits, model(images))


def test_layers_are_drawn_from_the_generator_of_the_transform():
    model, (images, labels) = small_model(), small_batch()

    def drawn(seed):
        mix = ZetaMixup(num_classes=3, generator=seeded(seed))
        hidden = HiddenMix(model, ["input", "0", "1"], mix)
        names = []
        for _ in range(60):
            with hidden.mixing(labels) as batch:
                model(images)
            names.append(batch.layer)
        return names

    names = drawn(3)
    assert drawn(3) == names != drawn(4)
    assert all(names.count(name) > 8 for name in ("input", "0", "1"))


@pytest.mark.parametrize("off", ["model", "transform"])
def test_eval_mode_of_the_model_or_of_the_transform_mixes_nothing(off):
    model, (images, labels) = small_model(), small_batch()
    transform = ZetaMixup(num_classes=3)
    hidden = HiddenMix(model, ["0", "1"], transform)
    (model if off == "model" else transform).eval()
    logits, targets = hidden(images, labels)
    assert torch.equal(logits, model(images))
    assert torch.equal(targets, nn.functional.one_hot(labels, 3).float())


def test_images_are_blended_by_default():
    """A plan for any layer has no boxes, so that ZetaMix blends what it would paste alone."""
    model = nn.Sequential(nn.Flatten(), nn.Identity())
    mix = ZetaMix(num_classes=5, generator=seeded())
    images, labels = torch.randn(8, 3, 6, 6), torch.arange(8) % 5
    outputs, targets = HiddenMix(model, "input", mix)(images, labels)
    blend = ZetaMix(num_classes=5, paste=0, generator=seeded())
    blended, expected = blend(images, labels)
    assert_close(outputs, blended.flatten(1))
    assert_close(targets, expected)


class TextModel(nn.Module):
    """The mean of the embeddings of the tokens that are attended to."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 2)

    def forward(self, tokens, attended):
        counted = attended[..., None]
        return self.head((self.embedding(tokens) * counted).sum(1) / counted.sum(1))


def test_other_inputs_take_part_by_the_plan_and_as_options():
    model, labels = TextModel(), torch.tensor([0, 1, 0])
    tokens = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0], [7, 8, 9, 0]])
    attended = tokens != 0
    hidden = HiddenMix(model, "embedding", ZetaMixup(num_classes=2, sources=2, generator=seeded()))
    with hidden.mixing(labels) as batch:
        any_source = apply_plan(attended.float(), batch.plan) > 0
        logits = model(tokens, any_source)
    assert torch.equal(any_source, attended[batch.plan.indices].any(1))
    counted = any_source[..., None]
    embedded = apply_plan(model.embedding(tokens), batch.plan)
    assert_close(logits, model.head((embedded * counted).sum(1) / counted.sum(1)))
    logits, _ = hidden(tokens, labels, attended=attended)
    assert logits.shape == (3, 2)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, series):
        return self.head(self.lstm(series)[0][:, -1])


def test_a_tuple_is_mixed_in_its_first_entry_and_float64_by_float64_weights():
    model, labels = Recurrent().double(), torch.arange(5) % 3
    series, mix = torch.randn(5, 7, 4, dtype=torch.float64), Mixup(num_classes=3)
    hidden = HiddenMix(model, "lstm", mix)
    with hidden.mixing(labels) as batch:
        logits = model(series)
    assert batch.plan.weights.dtype == torch.float64
    assert_close(logits, model.head(apply_plan(model.lstm(series)[0], batch.plan)[:, -1]))


class Checkpointed(nn.Module):
    """A model that keeps its first layers from the forward pass, or recomputes them."""

    def __init__(self, **how):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Linear(8, 3)
        self.how = how

    def forward(self, samples):
        if not self.how:
            return self.last(self.first(samples))
        return self.last(checkpoint(self.first, samples, **self.how))


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_layer_that_is_recomputed_is_refused_and_others_have_the_right_gradient(reentrant):
    """The hook is gone in the backward pass, and gradients were wrong without a message."""
    images, labels = small_batch()
    images.requires_grad_()

    def step(model, layer):
        hidden = HiddenMix(model, layer, ZetaMixup(num_classes=3, generator=seeded()))
        nn.functional.cross_entropy(*hidden(images, labels)).backward()
        return [parameter.grad for parameter in model.parameters()]

    model = Checkpointed(use_reentrant=reentrant)
    with pytest.raises((RuntimeError, CheckpointError), match=r"use_reentrant|different number"):
        step(model, "first.0")
    for layer in ("input", "last"):
        model = Checkpointed(use_reentrant=reentrant)
        for ours, plain in zip(step(model, layer), step(Checkpointed(), layer), strict=True):
            assert_close(ours, plain)
    # without gradients nothing is recomputed
    with torch.no_grad():
        HiddenMix(model, "first.0", ZetaMixup(num_classes=3))(images, labels)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)
        self.pair = nn.Identity()

    def forward(self, samples):
        self.pair({"a": samples})
        return self.shared(self.shared(samples))


IMAGES, CLASSES = torch.randn(3, 4), torch.arange(3)
TOKENS = torch.ones(3, 4, dtype=torch.long)
RAN_WRONG = [
    (Twice, "shared", IMAGES, "Layer 'shared' ran twice in one forward pass"),
    (Twice, "unused", IMAGES, "Layer 'unused' did not run, so nothing was mixed"),
    (Twice, "pair", IMAGES, "output of 'pair' must be a floating point tensor .*, got dict"),
    (small_model, "1", IMAGES[:, :3], "shapes cannot be multiplied"),
    (lambda: nn.Sequential(nn.Flatten(0), nn.Identity()), "1", IMAGES,
     r"one row per label, \[3, ...\], .*, got torch.float32 \[12\]"),
    (lambda: nn.Embedding(9, 2), "input", TOKENS, "The model's input must be .*, got torch.int64"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "layer", "inputs", "message"), RAN_WRONG)
def test_layers_that_cannot_be_mixed(model, layer, inputs, message):
    hidden = HiddenMix(model(), layer, ZetaMixup(num_classes=3))
    with pytest.raises((RuntimeError, TypeError, ValueError), match=message):
        hidden(inputs, CLASSES)
    for module in hidden.model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    hidden = HiddenMix(TextModel(), "input", ZetaMixup(num_classes=3))
    with pytest.raises(TypeError, match="got no positional argument"), hidden.mixing(CLASSES):
        hidden.model(tokens=None, attended=None)


def test_a_compiled_model_is_refused_but_not_a_compiled_part():
    model, (images, labels) = small_model(), small_batch()
    compiled = torch.compile(model, backend="eager")
    hidden = HiddenMix(compiled, "_orig_mod.1", ZetaMixup(num_classes=3))
    with pytest.raises(RuntimeError, match="The model is compiled, and a compiled graph would mix"):
        hidden(images, labels)
    model[0].compile(backend="eager")
    with pytest.raises(RuntimeError, match="0 is compiled"):
        HiddenMix(model, "0", ZetaMixup(num_classes=3))(images, labels)
    hidden = HiddenMix(model, "1", ZetaMixup(num_classes=3, generator=seeded()))
    logits, _ = hidden(images, labels)
    expected, _ = by_hand(model, "1", images, labels, ZetaMixup(num_classes=3, generator=seeded()))
    assert_close(logits, expected)


def nested():
    model = nn.Sequential()
    model.add_module("backbone", nn.Sequential())
    model.backbone.add_module("layer3", nn.Linear(2, 2))
    return model


MADE_WRONG = [
    (nested, ["layer3"], ZetaMixup, r"no layer 'layer3'\. Did you mean backbone\.layer3\?"),
    (nested, ["input", "bakbone"], ZetaMixup, r"no layer 'bakbone'\. Did you mean backbone\?"),
    (small_model, [], ZetaMixup, "the name of a layer or a list of names, got"),
    (small_model, ZetaMixup, ZetaMixup, "the name of a layer or a list of names, got"),
    (small_model, ["input", "0"], ZetaMix, "Pass keep_variance=False, or use ZetaMixup"),
    (small_model, "0", CutMix, "without rules, got CutMix"),
    (small_model, "0", LabelSmoothing, "transform must be one of ZetaMix"),
    (small_model, "0", lambda num_classes: Mixup(rules=Blend()), "Pass num_classes to the trans"),
]


@pytest.mark.parametrize(("model", "layers", "kind", "message"), MADE_WRONG)
def test_wrong_arguments(model, layers, kind, message):
    with pytest.raises((TypeError, ValueError), match=message):
        HiddenMix(model(), layers, kind(num_classes=3))
    HiddenMix(small_model(), ["input"], ZetaMix(num_classes=3))
