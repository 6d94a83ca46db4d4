"""Batches of a split: augmented and normalised on the device, where it is kept or streamed to.

Everything random is drawn on the CPU, from the seed, the number of the epoch and, for torchvision's
distortions, that of the batch. An epoch can therefore be resumed at any batch, and a GPU sees the
same images as a CPU.
"""

import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from zetamix.sampling import mix64
from zetamix_lab.data.dataset import Split
from zetamix_lab.data.image_files import map_parallel
from zetamix_lab.seeds import seeded

PADDING = 4
AUGMENTATIONS = {
    "none": "no augmentation",
    "flip": "random horizontal flip",
    "crop-flip": f"random crop after zero padding by {PADDING}, random horizontal flip",
    "reflect-crop-flip": f"random crop after reflecting {PADDING} pixels, random horizontal flip",
    "random-resized-crop": "random crop of 8 to 100 % of the area, resized, random horizontal flip",
    "randaugment": "torchvision's RandAugment, random horizontal flip",
    "trivial-augment": "torchvision's TrivialAugmentWide, random horizontal flip",
}
# pads by what is inside the image, as OpenMixup does on CIFAR
REFLECTING = "reflect-crop-flip"
# made of single images on the host; the others are made of batches on the device
DISTORTIONS = {"randaugment": "RandAugment", "trivial-augment": "TrivialAugmentWide"}
# as torchvision's RandomResizedCrop: fractions of the area, aspect ratios, tries
AREAS, RATIOS, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
# distance between the seeds of two runs; must exceed the number of epochs
ROUND = 1 << 20
# batches of a stream that are read before they are wanted
BATCHES_AHEAD = 2


class EpochDraws(NamedTuple):
    """The order of one epoch, and for every sample in it a flip and its crop."""

    order: Tensor
    flips: Tensor | None
    crops: Tensor | None
    """[n, 2], the corners (top, left) of crops of padded images; or [n, 4], the corners and the
    sizes (height, width) of crops that are resized."""

    def map(self, change: Callable[[Tensor], Tensor]) -> "EpochDraws":
        """Apply `change` to every tensor, as in `draws.map(lambda part: part[:128])`."""
        flips, crops = (None if part is None else change(part) for part in self[1:])
        return EpochDraws(change(self.order), flips, crops)


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of each channel, in the units of the stored samples."""

    mean: Tensor
    std: Tensor

    def to(self, device: torch.device) -> "Scale":
        return Scale(self.mean.to(device), self.std.to(device))

    def apply(self, samples: Tensor, dtype: torch.dtype) -> Tensor:
        shape = (1, -1, *[1] * (samples.ndim - 2))
        return ((samples.float() - self.mean.view(shape)) / self.std.view(shape)).to(dtype)


def choose_scale(normalize: str, samples: Tensor) -> Scale:
    """The normalisation of a recipe.

    normalize: "dataset" for zero mean and unit variance, "half" for images in [-1, 1], "none" for
        images in [0, 1]. Images of floating point and points change only under "dataset".
    """
    if normalize == "dataset":
        return measure_scale(samples)
    zero = torch.zeros(samples.shape[1])
    if samples.is_floating_point():
        return Scale(zero, zero + 1)
    return Scale(zero + 127.5, zero + 127.5) if normalize == "half" else Scale(zero, zero + 255)


_SCALES: MutableMapping[Tensor, Scale] = WeakTensorKeyDictionary()


def measure_scale(samples: Tensor, *, memory: int = 1 << 28) -> Scale:
    """Mean and standard deviation of a split, exact on any device: pixels are summed as integers.

    The result is cached: 9,469 images of 3 × 224² take 20 s on one core.

    >>> measure_scale(torch.tensor([[[[0, 2]]], [[[2, 4]]]], dtype=torch.uint8)).mean
    tensor([2.])
    """
    if (known := _SCALES.get(samples)) is not None:
        return known
    wide = torch.float64 if samples.is_floating_point() else torch.int64
    axes = (0, *range(2, samples.ndim))
    rows = max(1, memory // (8 * max(1, samples[:1].numel())))
    total = square = torch.zeros(samples.shape[1], dtype=wide, device=samples.device)
    for start in range(0, samples.shape[0], rows):
        part = samples[start : start + rows].to(wide)
        total = total + part.sum(axes)
        square = square + (part * part).sum(axes)
    count = samples.numel() // samples.shape[1]
    mean = total.double() / count
    std = (square.double() / count - mean * mean).clamp_min(0).sqrt()
    # a constant channel is divided by 1 and becomes 0
    std = torch.where(std > 1e-6 * mean.abs().clamp_min(1e-12), std, torch.ones_like(std))
    scale = _SCALES[samples] = Scale(mean.float().cpu(), std.float().cpu())
    return scale


# samples on a device, keyed by those on the host, while these exist
_COPIES: MutableMapping[Tensor, dict[torch.device, Tensor]] = WeakTensorKeyDictionary()


def copy_to_device(samples: Tensor, device: torch.device, memory: int | None) -> Tensor | None:
    """The samples on `device`, copied once for all loaders of a process; None: they do not fit.

    memory: bytes that they may occupy; None means half of the free memory of a GPU, and any size on
        a CPU, where a memory map is read directly.
    """
    copies = _COPIES.setdefault(samples, {})
    if device in copies:
        return copies[device]
    if memory is None and device.type == "cuda":
        memory = torch.cuda.mem_get_info(device)[0] // 2
    if memory is not None and samples.numel() * samples.element_size() > memory:
        return None
    moved = samples.to(device)
    if moved is not samples:
        # a reference to the key itself would keep it alive
        copies[device] = moved
    return moved


class Loader:
    """Yields `(samples, labels)` on `device`, shuffled, augmented and normalised there.

    augmentation: one of `AUGMENTATIONS`.
    scale: mean and standard deviation to normalise with (`measure_scale`); None gives images
        in [0, 1] and leaves points unchanged.
    drop_last: drop the last batch if it is smaller than the others, unless it is the only one.
    memory: bytes of the device that the split may occupy. A larger split stays on disk and is
        streamed batch by batch. None means half of the free memory of a GPU; on a CPU the memory
        map is read directly and the operating system caches it.

    A seed fixes the order and the augmentation of every epoch, on any device. `epoch` is the next
    one; it may be set.

    >>> from zetamix_lab.data import load
    >>> loader = Loader(load("digits").test, batch_size=128, seed=0)
    >>> [tuple(samples.shape) for samples, labels in loader]
    [(128, 1, 8, 8), (128, 1, 8, 8), (104, 1, 8, 8)]
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        augmentation: str = "none",
        scale: Scale | None = None,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        layout: torch.memory_format = torch.contiguous_format,
        memory: int | None = None,
    ) -> None:
        _check_augmentation(augmentation, split.samples)
        self.device = torch.device(device)
        self.augmentation = augmentation
        self.shuffle, self.drop_last = shuffle, drop_last
        self.seed, self.epoch = seed, 0
        self.dtype, self.layout = dtype, layout
        self.count = len(split.labels)
        self.batch_size = min(batch_size, self.count)
        scale = choose_scale("none", split.samples) if scale is None else scale
        self.scale = scale.to(self.device)
        held = copy_to_device(split.samples, self.device, memory)
        self.held = held is not None and augmentation not in DISTORTIONS
        self.samples = held if held is not None and self.held else split.samples
        self.labels = split.labels.to(self.device)

    def __len__(self) -> int:
        whole, rest = divmod(self.count, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        draws, size = self.draw(self.epoch), self.batch_size
        stream = repeat(None) if self.held else self.stream(draws, self.epoch)
        for position, raw in zip(range(len(self)), stream, strict=False):
            yield self.batch(draws, slice(position * size, (position + 1) * size), raw)
        self.epoch += 1

    def batch(
        self, draws: EpochDraws, rows: Tensor | slice, raw: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Gather, augment and scale the samples at `rows` of the order of an epoch.

        It never waits for the device, so a CUDA graph can hold it and `torch.compile` can fuse it.

        raw: the batch as `stream` yields it; None if the split is held on the device.
        """
        part = draws.map(lambda whole: whole[rows])
        raw = self.samples[part.order] if raw is None else raw
        images = augment(raw, part.flips, part.crops, reflect=self.augmentation == REFLECTING)
        samples = self.scale.apply(images, self.dtype).contiguous(memory_format=self.layout)
        return samples, self.labels[part.order]

    def draw(self, epoch: int) -> EpochDraws:
        """Draw the order and augmentation of an epoch; they lie on the device."""
        generator = torch.Generator().manual_seed(mix64(self.seed * ROUND + epoch) >> 1)
        order, flips, crops = torch.arange(self.count), None, None
        if self.shuffle:
            order = torch.randperm(self.count, generator=generator)
        if self.augmentation != "none":
            flips = torch.rand(self.count, generator=generator) < 0.5
        if self.augmentation in ("crop-flip", REFLECTING):
            crops = torch.randint(2 * PADDING + 1, (self.count, 2), generator=generator)
        if self.augmentation == "random-resized-crop":
            crops = _draw_crops(self.count, self.samples.shape[2:], generator)
        draws = EpochDraws(order, flips, crops)
        return draws.map(lambda part: part.to(self.device, non_blocking=True))

    def stream(self, draws: EpochDraws, epoch: int, start: int = 0) -> Iterator[Tensor]:
        """Raw batches of an epoch from `start` on, read ahead from the memory map by threads.

        Distortions are made here, in the thread that asks: they use torch's default generator.
        """
        order = draws.order.cpu()

        def read(position: int) -> Tensor:
            rows = self.samples[order[position * self.batch_size :][: self.batch_size]]
            return rows.pin_memory() if self.device.type == "cuda" else rows

        positions = range(start, len(self))
        read_ahead = map_parallel(read, positions, BATCHES_AHEAD)
        for position, rows in zip(positions, read_ahead, strict=True):
            if self.augmentation in DISTORTIONS:
                seed = mix64(mix64(self.seed * ROUND + epoch) + 1 + position) >> 1
                rows = distort(rows, self.augmentation, seed)
            yield rows.to(self.device, non_blocking=True)


def _check_augmentation(augmentation: str, samples: Tensor) -> None:
    images, expected = samples.ndim == 4, "images"
    if augmentation in DISTORTIONS:
        images = images and samples.dtype == torch.uint8 and samples.shape[1] in (1, 3)
        expected = "grey or RGB images of dtype uint8"
    if augmentation != "none" and not images:
        raise ValueError(
            f"Augmentation {augmentation!r} needs {expected}, got samples of shape "
            f"{list(samples.shape[1:])} and {samples.dtype}. Use augmentation='none'."
        )


def _draw_crops(count: int, size: Sequence[int], generator: torch.Generator) -> Tensor:
    """Corners and sizes of crops as torchvision's RandomResizedCrop draws them, [count, 4]."""
    whole = torch.tensor(size)
    area, ratio = torch.rand(2, count, TRIES, generator=generator)
    area = (AREAS[0] + (AREAS[1] - AREAS[0]) * area) * whole.prod()
    low, high = (math.log(bound) for bound in RATIOS)
    ratio = (low + (high - low) * ratio).exp()
    sides = torch.stack([(area / ratio).sqrt(), (area * ratio).sqrt()], 2).round().long()
    fits = ((sides > 0) & (sides <= whole)).all(2)
    found = fits.any(1)[:, None]
    # the first that fits; if none does, the largest part of the image with an allowed ratio
    height, width = size
    largest = [min(height, round(width / RATIOS[0])), min(width, round(height * RATIOS[1]))]
    first = sides[torch.arange(count), fits.int().argmax(1)]
    sides = torch.where(found, first, torch.tensor(largest))
    room = whole - sides
    drawn = (torch.rand(count, 2, generator=generator) * (room + 1)).long().minimum(room)
    return torch.cat([torch.where(found, drawn, room // 2), sides], 1)


def distort(images: Tensor, augmentation: str, seed: int) -> Tensor:
    """Every image [channels, height, width] changed by one of DISTORTIONS, drawn from a seed."""
    from torchvision.transforms import v2

    transform = getattr(v2, DISTORTIONS[augmentation])()
    with seeded(seed):
        return torch.stack([transform(image) for image in images])


def augment(
    samples: Tensor, flips: Tensor | None, crops: Tensor | None, *, reflect: bool = False
) -> Tensor:
    """Crop image k of [batch, channels, height, width] by `crops[k]`, flip it if `flips[k]`.

    reflect: whether the padding of crops is reflected instead of zero.

    >>> image = torch.arange(4.0).view(1, 1, 1, 4)
    >>> augment(image, torch.tensor([True]), None).flatten()
    tensor([3., 2., 1., 0.])
    """
    if crops is not None and crops.shape[1] == 4:
        samples = _crop_and_resize(samples, crops)
    elif crops is not None:
        samples = _crop(_pad(samples, reflect), crops)
    if flips is not None:
        samples = torch.where(flips[:, None, None, None], samples.flip(3), samples)
    return samples


def _pad(samples: Tensor, reflect: bool) -> Tensor:
    """Padded by zeros, or by the pixels inside the edges; torch does not reflect bytes."""
    if not reflect:
        return F.pad(samples, (PADDING,) * 4)
    for axis in (2, 3):
        last = samples.shape[axis] - 1
        places = torch.arange(-PADDING, last + PADDING + 1, device=samples.device)
        places = places.remainder(max(1, 2 * last))
        samples = samples.index_select(axis, places.minimum(2 * last - places))
    return samples


def _crop(padded: Tensor, corners: Tensor) -> Tensor:
    # all crops as one view, then one copy: 128 × 3 × 32² on two cores takes 0.60 ms, a gather of
    # pixels 0.84, torch's indexing by row and column 1.16, a loop over the batch 1.88
    height, width = (side - 2 * PADDING for side in padded.shape[-2:])
    crops = padded.unfold(2, height, 1).unfold(3, width, 1)
    rows = torch.arange(padded.shape[0], device=padded.device)
    top, left = corners.unbind(1)
    return crops[rows, :, top, left]


def _crop_and_resize(samples: Tensor, crops: Tensor) -> Tensor:
    """Crops resized to the size of the images, bilinearly, as torchvision does."""
    wide = samples.float()
    top, left, height, width = crops.to(wide.dtype).unbind(1)
    places = []
    for side, first, size in zip(samples.shape[2:], (top, left), (height, width), strict=True):
        # the centres of the pixels of the output in those of the image, within those of the crop
        centres = torch.arange(side, device=samples.device) + 0.5
        place = (centres * size[:, None] / side - 0.5).clamp_min(0).minimum(size[:, None] - 1)
        places.append((2 * (place + first[:, None]) + 1) / side - 1)
    down, right = places
    shape = (len(samples), *samples.shape[2:])
    grid = torch.stack([right[:, None].expand(shape), down[:, :, None].expand(shape)], 3)
    return F.grid_sample(wide, grid, align_corners=False)
