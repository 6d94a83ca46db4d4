"""The loader: crops, flips and scaling against torchvision's; batches held, streamed, resumed."""

import gc
import threading
import time
import weakref

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
    measure_scale,
)


def images(count=23, shape=(3, 6, 5), seed=0):
    generator = torch.Generator().manual_seed(seed)
    samples = torch.randint(256, (count, *shape), dtype=torch.uint8, generator=generator)
    # the label is the row, so that a batch reveals which samples it holds
    return Split(samples, torch.arange(count), max(1, count))


def equal(first, second):
    assert len(first) == len(second) > 0
    pairs = zip(first, second, strict=True)
    return all(torch.equal(a, b) for batches in pairs for a, b in zip(*batches, strict=True))


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
    points = Split(torch.randn(9, 2), torch.arange(9), 9)
    ((found, labels),) = Loader(points, 9, shuffle=False, dtype=torch.bfloat16)
    assert torch.equal(found, points.samples.bfloat16())
    assert torch.equal(labels, points.labels)


@given(
    count=st.integers(1, 40),
    batch_size=st.integers(1, 50),
    drop=st.booleans(),
    shuffle=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_every_sample_comes_once(count, batch_size, drop, shuffle, epoch):
    loader = Loader(images(count), batch_size, drop_last=drop, shuffle=shuffle, seed=5)
    loader.epoch = epoch
    batches = [labels for _, labels in loader]
    assert len(batches) == len(loader)
    # a batch that is smaller is the last, and is never dropped if it is the only one
    assert {len(labels) for labels in batches[:-1]} <= {min(batch_size, count)}
    assert not drop or {len(labels) for labels in batches} == {min(batch_size, count)}
    seen = [int(label) for labels in batches for label in labels]
    assert len(set(seen)) == len(seen) == (len(batches) * loader.batch_size if drop else count)


@pytest.mark.parametrize("augmentation", sorted({*AUGMENTATIONS} - {*DISTORTIONS}))
def test_batches_are_augmented_and_scaled_as_drawn(augmentation):
    split = images()
    scale = measure_scale(split.samples)
    loader = Loader(split, 5, augmentation=augmentation, scale=scale, seed=2)
    loader.epoch = 3
    draws = loader.draw(3)
    reflect = augmentation == "reflect-crop-flip"
    raw = augment(split.samples[draws.order], draws.flips, draws.crops, reflect=reflect)
    expected = (raw.float() - scale.mean.view(3, 1, 1)) / scale.std.view(3, 1, 1)
    samples, labels = (torch.cat(part) for part in zip(*loader, strict=True))
    torch.testing.assert_close(samples, expected)
    assert torch.equal(labels, draws.order)


@pytest.mark.parametrize("augmentation", ["crop-flip", "trivial-augment"])
@pytest.mark.parametrize("drop", [False, True])
def test_a_seed_fixes_every_epoch_held_or_streamed(augmentation, drop):
    before = torch.get_rng_state()
    held, streamed, other = (
        Loader(images(), 4, augmentation=augmentation, drop_last=drop, seed=seed, memory=memory)
        for seed, memory in [(3, None), (3, 0), (4, None)]
    )
    assert held.held == (augmentation == "crop-flip")
    assert not streamed.held
    epochs = [list(held), list(held)]
    assert equal(epochs[0], list(streamed))
    assert equal(epochs[1], list(streamed))
    assert not equal(*epochs)
    assert not equal(epochs[0], list(other))
    assert torch.equal(torch.get_rng_state(), before)
    size = images().samples.numel()
    assert [Loader(images(), 4, memory=size - k).held for k in range(2)] == [True, False]


@pytest.mark.parametrize("augmentation", DISTORTIONS)
def test_every_image_of_every_epoch_is_distorted_in_its_own_way(augmentation):
    # the same image forty times, which no flip changes
    same = (30 * torch.arange(8)).to(torch.uint8).view(1, 1, 8, 1).expand(40, 3, 8, 8)
    loader = Loader(Split(same, torch.arange(40), 40), 20, augmentation=augmentation)
    batches = [samples for _ in range(2) for samples, _ in loader]
    assert len({str(samples.tolist()) for samples in batches}) == 4
    assert len({str(image.tolist()) for image in batches[0]}) > 5


class Counting:
    """Samples that count how many rows are read from them."""

    def __init__(self, samples):
        self.samples, self.read = samples, 0

    def __getitem__(self, rows):
        self.read += len(rows)
        return self.samples[rows]


def test_streaming_reads_a_few_batches_ahead_and_its_threads_end_with_it():
    loader, before = Loader(images(40), 4, memory=0), set(threading.enumerate())
    loader.samples = samples = Counting(loader.samples)
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    end = time.monotonic() + 20
    while samples.read <= 8 and time.monotonic() < end:
        time.sleep(0.01)
    # more than the two that were given out, and at most three more: they take memory
    assert 8 < samples.read <= 20
    readers = set(threading.enumerate()) - before
    assert {reader.name.rpartition("_")[0] for reader in readers} == {"zetamix-reader"}
    del batches
    assert not any(reader.is_alive() for reader in readers)


@pytest.mark.parametrize("augmentation", ["crop-flip", "randaugment"])
def test_a_stream_goes_on_in_the_middle_of_an_epoch(augmentation):
    """Six batches in an epoch of 23, the last one of three; an epoch that was left is repeated."""
    loader = Loader(images(), 4, augmentation=augmentation, seed=3, memory=0)
    next(iter(loader))
    expected, draws = list(loader), loader.draw(0)
    assert loader.epoch == 1
    for start in (0, 2, 5, 6):
        found = [
            loader.batch(draws, torch.arange(4 * k, min(23, 4 * k + 4)), raw)
            for k, raw in enumerate(loader.stream(draws, 0, start), start)
        ]
        assert len(found) == 6 - start
        assert start == 6 or equal(found, expected[start:])


def test_samples_that_cannot_be_augmented_are_refused():
    with pytest.raises(ValueError, match=r"'flip' needs images, got samples of shape \[2\]"):
        Loader(Split(torch.rand(4, 2), torch.arange(4), 4), 2, augmentation="flip")
    with pytest.raises(ValueError, match="needs grey or RGB images of dtype uint8, got"):
        Loader(Split(torch.rand(4, 3, 8, 8), torch.arange(4), 4), 2, augmentation="randaugment")


@pytest.mark.gpu
@pytest.mark.parametrize("memory", [None, 0], ids=["held", "streamed"])
def test_a_gpu_sees_what_a_cpu_sees(memory):
    split = images(50)
    scale = measure_scale(split.samples)
    how = {"augmentation": "crop-flip", "scale": scale, "seed": 3}
    cpu = list(Loader(split, 8, **how))
    gpu = list(Loader(split, 8, device="cuda", memory=memory, **how))
    assert len(cpu) == len(gpu) == 7
    for (samples, labels), (on_gpu, labels_on_gpu) in zip(cpu, gpu, strict=True):
        assert on_gpu.device.type == "cuda"
        torch.testing.assert_close(on_gpu.cpu(), samples)
        assert torch.equal(labels_on_gpu.cpu(), labels)


def test_loaders_share_the_copy_of_a_split_on_a_device():
    """Several runs side by side upload it once; it goes with the split."""
    split = images()
    one, other = (Loader(split, 4, seed=seed, device="meta") for seed in range(2))
    assert one.samples is other.samples
    assert one.samples.device.type == "meta"
    gone = weakref.ref(one.samples)
    del split, one, other
    gc.collect()
    assert gone() is None
