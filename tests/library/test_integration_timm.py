"""Mixing and FastCollateMixing in place of timm's, with timm's loaders, losses and models."""

import doctest
import inspect

import numpy as np
import pytest
import torch
from conftest import assert_same
from timm import loss as timm_loss
from timm.data import FastCollateMixup as TimmFastCollateMixup
from timm.data import Mixup as TimmMixup
from timm.data import create_loader
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import nn
from torch.utils.data import DataLoader, Dataset
from transform_kinds import CLASSES, KINDS, seeded

import zetamix.integrations
from zetamix import ZetaMix
from zetamix.integrations.timm import FastCollateMixing, Mixing

CPU = torch.device("cpu")
MEAN = torch.tensor(IMAGENET_DEFAULT_MEAN).view(3, 1, 1)
STD = torch.tensor(IMAGENET_DEFAULT_STD).view(3, 1, 1)


class Bytes(Dataset):
    """uint8 images as timm's loader gets them; it sets the attribute `transform`."""

    transform = None

    def __init__(self, length=12, size=8):
        self.images = torch.randint(256, (length, 3, size, size), generator=seeded(1)).byte()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index].numpy(), index % CLASSES


def batch(length=6):
    return torch.randn(length, 3, 8, 8, generator=seeded(2)), torch.arange(length) % CLASSES


def tiny_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, CLASSES))


def test_the_arguments_are_timms_in_their_order_with_their_defaults():
    ours, theirs = (inspect.signature(kind.__init__).parameters for kind in (Mixing, TimmMixup))
    for position, (name, parameter) in enumerate(theirs.items()):
        assert list(ours)[position] == name
        assert ours[name].default == parameter.default
    assert isinstance(FastCollateMixing(), TimmFastCollateMixup)


# arguments, and the options of the ZetaMix that they make
MEANINGS = [
    ({}, {"paste": 0.0, "p": 1.0, "mean": None}),
    ({"cutmix_alpha": 1.0, "switch_prob": 0.3}, {"paste": 0.3, "p": 1.0}),
    ({"mixup_alpha": 0, "cutmix_alpha": 1.0, "prob": 0.7}, {"paste": 1.0, "p": 0.7}),
    ({"mixup_alpha": 0, "mode": "elem", "mean": 0.5}, {"p": 0.0, "mean": 0.5}),
]


@pytest.mark.parametrize(("given", "expected"), MEANINGS)
def test_arguments_make_the_transform(given, expected):
    mixing = Mixing(num_classes=CLASSES, **given)
    assert type(mixing.transform) is ZetaMix
    assert {name: getattr(mixing.transform, name) for name in expected} == expected
    assert repr(mixing.transform) in repr(mixing)


WRONG = [
    ({"cutmix_minmax": (0.2, 0.8)}, r"not supported, got cutmix_minmax=\(0.2, 0.8\)"),
    ({"correct_lam": False}, "exact fractions of pixels"),
    ({"label_smoothing": 2.0}, "label_smoothing"),
    ({"transform": ZetaMix(), "generator": seeded()}, "Pass the generator to the transform"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_errors_say_what_to_do(given, message):
    with pytest.raises(ValueError, match=message):
        Mixing(num_classes=CLASSES, **given)


@pytest.mark.parametrize("kind", KINDS)
def test_any_transform_mixes_as_it_does_alone(kind):
    images, labels = batch()
    before = images.clone()
    mixup = Mixing(transform=KINDS[kind](generator=seeded()), label_smoothing=0)
    assert_same(mixup(images, labels), KINDS[kind](generator=seeded())(images, labels))
    assert torch.equal(images, before)
    assert mixup(*batch(5))[1].shape == (5, CLASSES)


def test_smoothing_is_timms():
    images, labels = batch()
    smoothed = Mixing(label_smoothing=0.1, num_classes=CLASSES)
    smoothed.mixup_enabled = False
    theirs = TimmMixup(label_smoothing=0.1, num_classes=CLASSES)
    theirs.mixup_enabled = False
    torch.testing.assert_close(smoothed(images, labels)[1], theirs(images.clone(), labels)[1])


@pytest.mark.parametrize("alphas", [{}, {"mixup_alpha": 0, "cutmix_alpha": 0}])
def test_switched_off_or_with_both_alphas_0_bytes_come_back_as_they_are(alphas):
    collate = FastCollateMixing(num_classes=CLASSES, label_smoothing=0, **alphas)
    if not alphas:
        collate.mixup_enabled = False
    data = Bytes()
    images, targets = collate([data[index] for index in range(5)])
    assert torch.equal(images, data.images[:5])
    assert torch.equal(targets.argmax(1), torch.arange(5) % CLASSES)
    assert targets.max(1).values.min() == 1


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy])
def test_the_mean_can_be_another(convert):
    samples = [(convert(np.full((1, 4, 4), 50 * label, np.uint8)), label) for label in range(4)]
    with pytest.raises(ValueError, match="one number or 1, for each channel"):
        FastCollateMixing(num_classes=CLASSES)(samples)
    images, _ = FastCollateMixing(num_classes=CLASSES, mean=0.4)(samples)
    assert images.shape == (4, 1, 4, 4)


def loader_of(collate_fn, prefetcher):
    """A training loader as timm's script makes it, without its image augmentations."""
    data = Bytes()
    loader = create_loader(
        data,
        input_size=(3, 8, 8),
        batch_size=5,
        is_training=True,
        no_aug=True,
        num_workers=0,
        collate_fn=collate_fn,
        use_prefetcher=prefetcher,
        device=CPU,
    )
    data.transform = None
    return loader


@pytest.mark.parametrize("loss", ["SoftTargetCrossEntropy", "BinaryCrossEntropy"])
@pytest.mark.parametrize("prefetcher", [True, False])
def test_two_epochs_as_in_timms_script_see_the_batches_of_a_plain_loop(prefetcher, loss):
    # what the script passes
    mixup_args = {
        "mixup_alpha": 0.8, "cutmix_alpha": 1.0, "cutmix_minmax": None, "prob": 1.0,
        "switch_prob": 0.5, "mode": "batch", "label_smoothing": 0.1, "num_classes": CLASSES,
    }  # fmt: skip
    kind = FastCollateMixing if prefetcher else Mixing
    mixup = kind(**mixup_args, generator=seeded(5))
    criterion, model = getattr(timm_loss, loss)(), tiny_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    loader = loader_of(mixup if prefetcher else None, prefetcher)
    torch.manual_seed(3)
    for epoch in range(2):
        if epoch == 1:
            (loader if prefetcher else mixup).mixup_enabled = False
        for images, target in loader:
            if not prefetcher:
                images, target = mixup((images / 255 - MEAN) / STD, target)
            value = criterion(model(images), target)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.append((images, target))
            assert value.isfinite()
    assert len(seen) == 4  # drop_last
    assert_same(sum(seen, ()), sum(plain_batches(prefetcher), ()))


def plain_batches(as_bytes):
    """The same two epochs in a loop of our own, with ZetaMix and nothing of timm's."""
    mean = IMAGENET_DEFAULT_MEAN if as_bytes else None
    mix = ZetaMix(num_classes=CLASSES, paste=0.5, mean=mean, generator=seeded(5))
    torch.manual_seed(3)
    loader = DataLoader(Bytes(), batch_size=5, shuffle=True, drop_last=True)
    # as timm's loader rounds them
    scaled = [
        [255 * number for number in part] for part in (IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD)
    ]
    mean, std = torch.tensor(scaled).view(2, 3, 1, 1)
    for epoch in range(2):
        mix.enabled = epoch == 0
        for images, labels in loader:
            if as_bytes:
                images, targets = mix(images, labels)
                images = images.float().sub_(mean).div_(std)
            else:
                images, targets = mix((images / 255 - MEAN) / STD, labels)
            yield images, 0.9 * targets + 0.1 / CLASSES


def test_the_examples_run():
    assert doctest.testmod(zetamix.integrations.timm) == (0, 7)


def test_images_that_are_not_bytes_are_not_collated_as_bytes():
    samples = [(torch.randn(3, 4, 4), label) for label in range(2)]
    with pytest.raises(TypeError, match=r"collates uint8 images, .* got torch\.float32"):
        FastCollateMixing(num_classes=4)(samples)
