"""The loader: every sample once, the same for a seed, from any batch on, held or streamed."""

import gc
import threading
import time
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zetamix_lab.data import Split
from zetamix_lab.data.loader import AUGMENTATIONS, DISTORTIONS, Loader, augment, measure_scale


def images(count=23, shape=(3, 6, 5), seed=0):
    generator = torch.Generator().manual_seed(seed)
    samples = torch.randint(256, (count, *shape), dtype=torch.uint8, generator=generator)
    # the label is the row, so that a batch reveals which samples it holds
    return Split(samples, torch.arange(count), max(1, count))


def equal(first, second):
    assert len(first) == len(second) > 0
    pairs = zip(first, second, strict=True)
    return all(torch.equal(a, b) for batches in pairs for a, b in zip(*batches, strict=True))


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


def test_without_a_scale_images_lie_in_0_to_1_and_points_stay():
    samples = torch.cat([batch for batch, _ in Loader(images(), 5, shuffle=False)])
    torch.testing.assert_close(samples, images().samples.float() / 255)
    points = Split(torch.randn(9, 2), torch.arange(9), 9)
    found = torch.cat([batch for batch, _ in Loader(points, 4, shuffle=False)])
    assert torch.equal(found, points.samples)
    half, labels = next(iter(Loader(images(), 4, dtype=torch.bfloat16)))
    assert (half.dtype, labels.dtype) == (torch.bfloat16, torch.int64)


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


def test_every_batch_of_every_epoch_is_distorted_in_its_own_way():
    # the same image eight times, which no flip changes
    same = (30 * torch.arange(8)).to(torch.uint8).view(1, 1, 8, 1).expand(8, 3, 8, 8)
    loader = Loader(Split(same, torch.arange(8), 8), 4, augmentation="trivial-augment")
    batches = [samples for _ in range(2) for samples, _ in loader]
    assert len({str(samples.tolist()) for samples in batches}) == 4


class Counting:
    """Samples that count how many rows are read from them."""

    def __init__(self, split):
        self.labels, self.inner, self.samples = split.labels, split.samples, self
        self.read = 0

    def __getitem__(self, rows):
        self.read += len(rows)
        return self.inner[rows]

    def __getattr__(self, name):
        return getattr(self.inner, name)


def test_streaming_reads_a_few_batches_ahead_and_no_more():
    split = Counting(images(40))
    batches = iter(Loader(split, 4, memory=0))
    for _ in range(2):
        next(batches)
    end = time.monotonic() + 20
    while split.read <= 8 and time.monotonic() < end:
        time.sleep(0.01)
    # more than the two that were given out, and at most three more: they take memory
    assert 8 < split.read <= 20
    assert len(list(batches)) == 8
    assert split.read == 40


def test_a_stream_that_is_left_early_ends_its_thread():
    before = set(threading.enumerate())
    batches = iter(Loader(images(40), 4, memory=0))
    next(batches)
    readers = set(threading.enumerate()) - before
    assert {reader.name.rpartition("_")[0] for reader in readers} == {"zetamix-reader"}
    del batches
    assert not any(reader.is_alive() for reader in readers)


@pytest.mark.parametrize("augmentation", ["crop-flip", "randaugment"])
@pytest.mark.parametrize("start", [0, 2, 5, 6])
def test_a_stream_goes_on_in_the_middle_of_an_epoch(augmentation, start):
    """Six batches in an epoch of 23, the last one of three."""
    loader = Loader(images(), 4, augmentation=augmentation, seed=3, memory=0)
    loader.epoch = 2
    expected = list(loader)
    draws = loader.draw(2)
    for position, raw in enumerate(loader.stream(draws, 2, start), start):
        found = loader.batch(draws, torch.arange(4 * position, min(23, 4 * position + 4)), raw)
        assert all(map(torch.equal, found, expected.pop(start)))
    assert len(expected) == start


def test_an_epoch_that_was_left_is_given_again_in_full():
    loader = Loader(images(), 4, seed=3)
    next(iter(loader))
    assert equal(list(loader), list(Loader(images(), 4, seed=3)))
    assert loader.epoch == 1


@pytest.mark.parametrize(
    ("samples", "augmentation", "match"),
    [
        (torch.rand(4, 2), "flip", r"'flip' needs images, got samples of shape \[2\]"),
        (torch.rand(4, 3, 8, 8), "randaugment", "needs grey or RGB images of dtype uint8, got"),
    ],
)
def test_samples_that_cannot_be_augmented_are_refused(samples, augmentation, match):
    with pytest.raises(ValueError, match=match):
        Loader(Split(samples, torch.arange(4), 4), 2, augmentation=augmentation)


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
