"""Batches of a split that is held on the device, or streamed to it where it does not fit."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import torch
from torch import Tensor

from zetamix._checks import check_choice, check_count
from zetamix.data.augment import AUGMENTATIONS, EpochDraws, Scale, augment, draw_epoch

# batches that are read ahead where a split is streamed
AHEAD = 2


class Labelled(Protocol):
    """What a loader reads: a `Split`, or anything with samples and labels."""

    @property
    def samples(self) -> Tensor: ...

    @property
    def labels(self) -> Tensor: ...


class Loader:
    """Yields `(samples, labels)` on `device`, shuffled, augmented and normalised there.

    augmentation: one of "none", "flip", "crop-flip".
    scale: mean and standard deviation to normalise with (`measure_scale`); None gives images
        in [0, 1] and points as they are.
    drop_last: leave out a last, smaller batch; never the only one.
    memory: bytes of the device that the split may take. A larger split stays on disk and is
        streamed batch by batch. None stands for half of what a GPU has free; a CPU reads the
        memory map itself, which the system keeps in memory as long as there is room.
    rank, world: take every `world`-th sample from `rank` on, for one of several processes. Of a
        shuffled epoch all get equally many; what is left over is another one each epoch.

    A seed fixes order and augmentation of every epoch, on any device. `state_dict` says where in
    which epoch the loader is; a loader that loads it goes on with the next batch.

    >>> from zetamix.data.manifolds import crescents
    >>> loader = Loader(crescents(), batch_size=128, seed=0)
    >>> [tuple(samples.shape) for samples, labels in loader]
    [(128, 2), (128, 2), (128, 2), (128, 2)]
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
        memory: int | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if not hasattr(split, "samples"):
            raise TypeError(
                f"Loader takes one split, such as dataset.train, got {type(split).__name__}."
            )
        check_count("batch_size", batch_size, 1)
        check_choice("augmentation", augmentation, tuple(AUGMENTATIONS))
        if split.samples.ndim != 4 and augmentation != "none":
            raise ValueError(
                f"{augmentation} is for images, [n, channels, height, width], got samples of "
                f"shape {list(split.samples.shape)}. Use augmentation='none'."
            )
        if len(split.labels) == 0:
            raise ValueError("The split is empty: a loader needs at least one sample.")
        self.device = torch.device(device)
        self.augmentation = augmentation
        self.shuffle = shuffle
        self.seed = seed
        self.dtype = dtype
        self.rank, self.world = rank, world
        self.count = len(range(rank, len(split.labels), world))
        if world > 1 and (shuffle or drop_last):
            # every rank takes the same number of steps, or the last ones would wait for ever
            self.count = len(split.labels) // world
            if self.count == 0:
                raise ValueError(
                    f"Expected at least one sample for each of {world} processes, got "
                    f"{len(split.labels)} in all. Start fewer processes."
                )
        self.batch_size = max(1, min(batch_size, self.count))
        self.drop_last = drop_last
        self.epoch = 0
        self.position = 0
        self._start = 0
        self.scale = (_unit(split.samples) if scale is None else scale).to(self.device)
        self.held = self._fits(split.samples, memory)
        self.samples = split.samples.to(self.device) if self.held else split.samples
        self.labels = split.labels.to(self.device)

    def __len__(self) -> int:
        whole, rest = divmod(self.count, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.position, self._start = self._start, 0
        draws = self.draw(self.epoch)
        stream = self._stream(draws) if not self.held else None
        while self.position < len(self):
            part = self.cut(draws, self.position)
            raw = self.samples[part.order] if stream is None else next(stream)
            self.position += 1
            yield self.prepare(raw, part), self.labels[part.order]
        self.epoch += 1
        self.position = 0

    def draw(self, epoch: int) -> EpochDraws:
        """The order and augmentation of an epoch, on the device."""
        total = self.labels.shape[0]
        draws = draw_epoch(
            total, self.augmentation, seed=self.seed, epoch=epoch, shuffle=self.shuffle
        )
        mine = draws.each(lambda part: part[self.rank :: self.world][: self.count])
        return mine.each(lambda part: part.to(self.device, non_blocking=True))

    def cut(self, draws: EpochDraws, position: int) -> EpochDraws:
        """What belongs to one batch."""
        first = position * self.batch_size
        return draws.each(lambda part: part[first : first + self.batch_size])

    def prepare(self, raw: Tensor, draws: EpochDraws) -> Tensor:
        """Stored samples, already on the device, as a model takes them."""
        return self.scale.apply(augment(raw, draws.flips, draws.corners), self.dtype)

    def set_epoch(self, epoch: int) -> None:
        check_count("epoch", epoch, 0)
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        return {
            "epoch": self.epoch,
            "position": self.position,
            "seed": self.seed,
            "batch_size": self.batch_size,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, own in (("seed", self.seed), ("batch_size", self.batch_size)):
            if state[name] != own:
                raise ValueError(
                    f"The state is of a loader with {name}={state[name]}, this one has {own}: its "
                    "epochs have other batches. Build the loader as the old one was."
                )
        self.epoch, self._start = state["epoch"], state["position"]
        self.position = self._start

    def _fits(self, samples: Tensor, memory: int | None) -> bool:
        if memory is None and self.device.type != "cuda":
            return True
        if memory is None:
            memory = torch.cuda.mem_get_info(self.device)[0] // 2
        return samples.numel() * samples.element_size() <= memory

    def _stream(self, draws: EpochDraws) -> Iterator[Tensor]:
        """Read batches from the memory map in a thread, a few ahead of the one that is used."""
        order = draws.order.cpu()
        first = self.position

        def read(position: int) -> Tensor:
            places = order[position * self.batch_size :][: self.batch_size]
            rows = self.samples[places]
            return rows.pin_memory() if self.device.type == "cuda" else rows

        with ThreadPoolExecutor(1, thread_name_prefix="zetamix-loader") as pool:
            waiting: list[Future[Tensor]] = []
            for position in range(first, len(self)):
                while len(waiting) <= AHEAD and position + len(waiting) < len(self):
                    waiting.append(pool.submit(read, position + len(waiting)))
                yield waiting.pop(0).result().to(self.device, non_blocking=True)


def _unit(samples: Tensor) -> Scale:
    """Bytes become [0, 1], points stay."""
    top = 1.0 if samples.is_floating_point() else 255.0
    zeros = torch.zeros(samples.shape[1])
    return Scale(zeros, torch.full_like(zeros, top))
