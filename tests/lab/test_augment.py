"""Crops, flips and scaling of a batch against torchvision's of single images."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from zetamix_lab.data import Split
from zetamix_lab.data.loader import (
    AUGMENTATIONS,
    DISTORTIONS,
    PADDING,
    Loader,
    Scale,
    augment,
    choose_scale,
    distort,
    measure_scale,
)


def draw(count, augmentation, *, seed=0, epoch=0, size=(8, 8)):
    images = torch.zeros(1, 3, 1, 1, dtype=torch.uint8).expand(count, 3, *size)
    split = Split(images, torch.zeros(count), 2)
    return Loader(split, 1, augmentation=augmentation, seed=seed).draw(epoch)


@given(
    size=st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)),
    draws=st.lists(
        st.tuples(st.booleans(), st.integers(0, 2 * PADDING), st.integers(0, 2 * PADDING)),
        min_size=1,
        max_size=5,
    ),
    reflect=st.booleans(),
)
def test_crops_and_flips_are_torchvisions(size, draws, reflect):
    # torchvision reflects no more than an image has
    reflect = reflect and min(size[1:]) > PADDING
    mode = "reflect" if reflect else "constant"
    images = torch.randint(256, (len(draws), *size), dtype=torch.uint8)
    flips, *corners = torch.tensor(draws).T
    found = augment(images, flips.bool(), torch.stack(corners, 1), reflect=reflect)
    for image, (flip, top, left), ours in zip(images, draws, found, strict=True):
        expected = tv.crop(tv.pad(image, [PADDING], padding_mode=mode), top, left, *size[1:])
        assert torch.equal(ours, tv.horizontal_flip(expected) if flip else expected)


def test_resized_crops_are_torchvisions():
    """The crops that are drawn, and what becomes of them."""
    images = torch.rand(50, 3, 24, 31)
    crops = draw(50, "random-resized-crop", size=(24, 31)).crops
    for image, crop, found in zip(images, crops, augment(images, None, crops), strict=True):
        expected = tv.resized_crop(image, *crop.tolist(), [24, 31], antialias=True)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    many = draw(40_000, "random-resized-crop", size=(24, 31)).crops.float()
    theirs = v2.RandomResizedCrop((24, 31))
    drawn = [theirs.make_params([images[0]]) for _ in range(10_000)]
    names = ("top", "left", "height", "width")
    params = torch.tensor([[params[name] for name in names] for params in drawn]).float()
    torch.testing.assert_close(many.mean(0), params.mean(0), rtol=0, atol=0.3)
    torch.testing.assert_close(many.std(0), params.std(0), rtol=0, atol=0.3)


@pytest.mark.parametrize("size", [(4, 40), (40, 4)])
def test_an_image_that_no_crop_fits_is_cropped_in_its_middle(size):
    crops = draw(1000, "random-resized-crop", size=size).crops
    assert (crops >= 0).all()
    assert (crops[:, :2] + crops[:, 2:] <= torch.tensor(size)).all()
    assert {tuple(row) for row in (crops[:, 2:]).tolist()} >= {(min(4, size[0]), min(4, size[1]))}


@pytest.mark.parametrize("augmentation", DISTORTIONS)
def test_distortions_depend_on_the_seed_alone(augmentation):
    images = torch.randint(256, (1, 3, 16, 16), dtype=torch.uint8).expand(20, -1, -1, -1)
    first = distort(images, augmentation, 5)
    torch.rand(7)
    state = torch.get_rng_state()
    assert torch.equal(distort(images, augmentation, 5), first)
    assert not torch.equal(distort(images, augmentation, 6), first)
    # the user's generator is left as it was
    assert torch.equal(torch.get_rng_state(), state)
    # drawn for each image
    assert len({bytes(image.numpy()) for image in first}) > 5


CROPPED = ("crop-flip", "reflect-crop-flip", "random-resized-crop")


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_an_epoch_is_drawn_from_seed_and_number(augmentation):
    first, again, *others = (
        draw(50, augmentation, seed=seed, epoch=epoch)
        for seed, epoch in [(3, 7), (3, 7), (4, 7), (3, 8)]
    )
    assert (first.flips is None) == (augmentation == "none")
    assert (first.crops is None) == (augmentation not in CROPPED)
    assert first.order.sort().values.tolist() == list(range(50))
    for part, same, *drawn in zip(first, again, *others, strict=True):
        if part is not None:
            assert torch.equal(part, same)
            assert len({str(some.tolist()) for some in (part, *drawn)}) == 3


def test_draws_are_even():
    """Each flip half the time, each of the 9 × 9 corners once in 81: within five deviations."""
    draws = draw(81_000, "crop-flip")
    assert draws.flips.float().mean().item() == pytest.approx(0.5, abs=5 * 0.5 / 81_000**0.5)
    places = draws.crops[:, 0] * 9 + draws.crops[:, 1]
    counts = torch.bincount(places, minlength=81)
    assert len(counts) == 81
    assert (counts - 1000).abs().max().item() < 5 * 1000**0.5


IMAGES = torch.randint(256, (40, 3, 5, 4), generator=torch.Generator().manual_seed(0))
POINTS = torch.randn(100, 2) * torch.tensor([1.0, 20.0]) + torch.tensor([0.0, -3.0])


@pytest.mark.parametrize("memory", [1, 2000, 1 << 28], ids=["a row", "some rows", "all at once"])
@pytest.mark.parametrize("samples", [IMAGES.to(torch.uint8), POINTS], ids=["images", "points"])
def test_statistics_are_those_of_all_samples(samples, memory):
    # a copy, because results are cached
    copy = samples.clone()
    scale = measure_scale(copy, memory=memory)
    assert measure_scale(copy) is scale
    wide = samples.double().transpose(0, 1).flatten(1)
    std = wide.std(1, correction=0)
    torch.testing.assert_close(scale.mean, wide.mean(1).float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scale.std, std.float(), rtol=1e-5, atol=1e-6)


def test_scaling_is_torchvisions_normalize_and_a_constant_channel_becomes_zero():
    mean, std = [125.3, 123.0, 113.9], [63.0, 62.1, 66.7]
    expected = v2.Normalize(mean, std)(IMAGES.float())
    scale = Scale(torch.tensor(mean), torch.tensor(std))
    scaled = scale.apply(IMAGES.to(torch.uint8), torch.float32)
    torch.testing.assert_close(scaled, expected)
    assert torch.equal(scale.apply(IMAGES, torch.bfloat16), scaled.bfloat16())
    images = IMAGES.to(torch.uint8)
    images[:, 1] = 255
    scaled = measure_scale(images).apply(images, torch.float32)
    assert (scaled[:, 1] == 0).all()
    assert torch.isfinite(scaled).all()


def test_normalisation_by_name():
    pixels = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    # "half" is MedMNIST's (x / 255 - 0.5) / 0.5
    for name, expected in (("none", [0, 1]), ("half", [-1, 1]), ("dataset", [-1, 1])):
        scaled = choose_scale(name, pixels).apply(pixels, torch.float32)
        assert scaled.flatten().tolist() == expected
    points = torch.randn(9, 2)
    for name in ("none", "half"):
        assert torch.equal(choose_scale(name, points).apply(points, torch.float32), points)
