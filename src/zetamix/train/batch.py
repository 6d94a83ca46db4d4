"""The batch that a step trains on: fetched, augmented, scaled, and laid out for its device."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from zetamix.data.augment import EpochDraws, Scale, augment, measure_scale
from zetamix.data.loader import Labelled


def fetch(
    stored: Tensor,
    held: bool,
    labels: Tensor,
    draws: EpochDraws,
    places: Tensor,
    scale: Scale,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """The batch at `places` of the epoch, as a model takes it.

    `stored` is the whole split where it is held on the device, else the batch itself.
    """
    part = draws.each(lambda whole: whole[places])
    raw = stored[part.order] if held else stored
    samples = scale.apply(augment(raw, part.flips, part.corners), dtype)
    return layout(samples), labels[part.order]


@lru_cache(maxsize=1)
def compiled_fetch() -> Callable[..., tuple[Tensor, Tensor]]:
    """`fetch` as one kernel or two instead of fifteen, shared by all trainers."""
    return torch.compile(fetch, dynamic=False)


def choose_scale(normalize: str, split: Labelled) -> Scale | None:
    """What samples are normalised with; None leaves images in [0, 1]."""
    if normalize == "dataset":
        return measure_scale(split.samples)
    if normalize == "half" and not split.samples.is_floating_point():
        half = torch.full((split.samples.shape[1],), 127.5)
        return Scale(half, half.clone())
    return None


def layout(samples: Tensor) -> Tensor:
    """Images on a GPU with their channels last, which convolutions there are fastest on."""
    if samples.device.type == "cuda" and samples.ndim == 4:
        return samples.contiguous(memory_format=torch.channels_last)
    return samples
