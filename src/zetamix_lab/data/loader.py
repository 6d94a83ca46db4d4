"""Batches of a split that is kept on the device, or streamed to it if it does not fit."""

from collections.abc import Iterator, MutableMapping
from threading import Lock
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from zetamix.checks import check_choice, check_count
from zetamix.sampling import mix64
from zetamix_lab.data.augment import (
    AUGMENTATIONS,
    DISTORTIONS,
    REFLECTING,
    ROUND,
    EpochDraws,
    Scale,
    augment,
    choose_scale,
    distort,
    draw_epoch,
)
from zetamix_lab.data.image_files import map_parallel


class Labelled(Protocol):
    """The input of a loader: a `Split`, or any object with samples and labels."""

    @property
    def samples(self) -> Tensor: ...

    @property
    def labels(self) -> Tensor: ...


def make_batch(
    stored: Tensor,
    held: bool,
    labels: Tensor,
    draws: EpochDraws,
    positions: Tensor | slice,
    scale: Scale,
    dtype: torch.dtype,
    layout: torch.memory_format,
    reflect: bool = False,
) -> tuple[Tensor, Tensor]:
    """Gather, augment and scale the samples at `positions` of an epoch.

    The loader and the trainer share this function; it never waits for the device, so a CUDA graph
    can hold it and `torch.compile` can fuse it.

    stored: the whole split if it is `held` on the device, otherwise the raw batch.
    reflect: as of `augment`.
    """
    part = draws.map(lambda whole: whole[positions])
    raw = stored[part.order] if held else stored
    samples = scale.apply(augment(raw, part.flips, part.crops, reflect=reflect), dtype)
    return samples.contiguous(memory_format=layout), labels[part.order]


# samples on a device, keyed by those on the host, while these exist
_COPIES: MutableMapping[Tensor, dict[torch.device, Tensor]] = WeakTensorKeyDictionary()
_COPIES_LOCK = Lock()


def copy_to_device(samples: Tensor, device: torch.device, memory: int | None) -> Tensor | None:
    """The samples on `device`, copied once for all loaders of a process; None: they do not fit.

    memory: bytes that they may occupy; None means half of the free memory of a GPU, and any size on
        a CPU, where a memory map is read directly.
    """
    with _COPIES_LOCK:
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

    A seed fixes the order and the augmentation of every epoch, on any device. `state_dict` holds
    the epoch and the position in it; a loader that loads it continues with the next batch.

    >>> from zetamix_lab.data import load
    >>> loader = Loader(load("digits").test, batch_size=128, seed=0)
    >>> [tuple(samples.shape) for samples, labels in loader]
    [(128, 1, 8, 8), (128, 1, 8, 8), (104, 1, 8, 8)]
    """

    def __init__(
        self,
        split: Labelled,
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
        _check_split(split, augmentation)
        check_count("batch_size", batch_size, 1)
        self.device = torch.device(device)
        self.augmentation = augmentation
        self.shuffle = shuffle
        self.seed = seed
        self.dtype, self.layout = dtype, layout
        self.count = len(split.labels)
        self.batch_size = max(1, min(batch_size, self.count))
        self.drop_last = drop_last
        self.epoch = 0
        self.position = 0
        self._start = 0
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
        self.position, self._start = self._start, 0
        draws = self.draw(self.epoch)
        stream = None if self.held else self.stream(draws, self.epoch)
        while self.position < len(self):
            first = self.position * self.batch_size
            rows = slice(first, first + self.batch_size)
            stored = self.samples if stream is None else next(stream)
            self.position += 1
            yield make_batch(
                stored,
                self.held,
                self.labels,
                draws,
                rows,
                self.scale,
                self.dtype,
                self.layout,
                self.augmentation == REFLECTING,
            )
        self.epoch += 1
        self.position = 0

    def draw(self, epoch: int) -> EpochDraws:
        """The order and augmentation of an epoch, on the device."""
        draws = draw_epoch(
            self.count,
            self.augmentation,
            seed=self.seed,
            epoch=epoch,
            shuffle=self.shuffle,
            size=self.samples.shape[2:],
        )
        return draws.map(lambda part: part.to(self.device, non_blocking=True))

    def stream(self, draws: EpochDraws, epoch: int) -> Iterator[Tensor]:
        """Raw batches from the current position on, read ahead from the memory map by threads.

        Distortions are made here, in the thread that asks: they use torch's default generator.
        """
        order = draws.order.cpu()

        def read(position: int) -> Tensor:
            rows = self.samples[order[position * self.batch_size :][: self.batch_size]]
            return rows.pin_memory() if self.device.type == "cuda" else rows

        positions = range(self.position, len(self))
        for index, [rows] in map_parallel(read, positions, 1):
            if self.augmentation in DISTORTIONS:
                position = positions[index]
                seed = mix64(mix64(self.seed * ROUND + epoch) + 1 + position) >> 1
                rows = distort(rows, self.augmentation, seed)
            yield rows.to(self.device, non_blocking=True)

    def set_epoch(self, epoch: int) -> None:
        check_count("epoch", epoch, 0)
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("epoch", "position", "seed", "batch_size")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("seed", "batch_size"):
            own = getattr(self, name)
            if state[name] != own:
                raise ValueError(f"The state has {name}={state[name]}, but this one has {own}.")
        self.epoch, self._start = state["epoch"], state["position"]
        self.position = self._start


def _check_split(split: Labelled, augmentation: str) -> None:
    if not hasattr(split, "samples"):
        raise TypeError(f"Expected a split such as dataset.train, got {type(split).__name__}.")
    check_choice("augmentation", augmentation, tuple(AUGMENTATIONS))
    if split.samples.ndim != 4 and augmentation != "none":
        raise ValueError(
            f"Augmentation {augmentation!r} needs images, [n, channels, height, width], got "
            f"samples of shape {list(split.samples.shape)}. Use augmentation='none'."
        )
    if augmentation in DISTORTIONS and (
        split.samples.dtype != torch.uint8 or split.samples.shape[1] not in (1, 3)
    ):
        raise ValueError(
            f"Augmentation {augmentation!r} needs grey or RGB images of dtype uint8, got "
            f"{split.samples.dtype} with {split.samples.shape[1]} channels."
        )
    if len(split.labels) == 0:
        raise ValueError("The split must have at least one sample, got none.")
