"""The transforms, for tests that must take any of them, and mixing by hand by a plan."""

from contextlib import contextmanager

import by_hand
import torch

from zetamix import CutMix, Mixup, MixupOrCutMix, ZetaMix, ZetaMixup
from zetamix.kernels import dispatch

CLASSES = 4


def _kind(transform, **fixed):
    def make(**given):
        classes = None if "rules" in given else CLASSES
        return transform(**{"num_classes": classes, **fixed, **given})

    return make


# one of each class, with its defaults
KINDS = {
    "zetamix": _kind(ZetaMix),
    "zeta": _kind(ZetaMixup),
    "mixup": _kind(Mixup),
    "cutmix": _kind(CutMix),
    "switch": _kind(MixupOrCutMix),
}
# and with the options that take other ways
VARIANTS = KINDS | {
    "zetamix, pasted": _kind(ZetaMix, sources=3, paste=1.0),
    "zetamix, blended": _kind(ZetaMix, sources=None, paste=0.0, p=0.7),
    "zeta, few": _kind(ZetaMixup, gamma=(2.0, 4.0), sources=4, anchor="random"),
    "mixup, batch": _kind(Mixup, alpha=0.3, per="batch"),
    "cutmix, sample": _kind(CutMix, per="sample", p=0.7),
    "switch, sample": _kind(MixupOrCutMix, per="sample"),
}

# the same numbers, [batch, ...], elsewhere in memory
STRIDES = {
    "every second row": lambda x: torch.stack([x, x], 1).flatten(0, 1)[::2],
    "every second column": lambda x: torch.stack([x, x], -1)[..., 0],
    "batch last in memory": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),
    "behind an offset": lambda x: torch.cat([x[:1], x])[1:],
    "one row for all": lambda x: x[:1].expand(x.shape),
}


def sharper(epoch):
    """A γ schedule at module level, where a spawned worker can find it."""
    return 2.0 + 2.0 * epoch


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normalised_only(name):
    """The options with which a kind mixes samples of any mean, and whole numbers."""
    return {"keep_variance": False} if name.startswith("zetamix") else {}


def size_of(samples, transform):
    """The size of the images that a transform may paste into, or None."""
    image = samples.ndim >= 4 and (transform.needs_images or min(samples.shape[-2:]) > 1)
    return tuple(samples.shape[-2:]) if image else None


@contextmanager
def plain_torch():
    """Mix by `kernels.reference`, as ZETAMIX_KERNELS=reference does."""
    before, dispatch.REFERENCE_ONLY = dispatch.REFERENCE_ONLY, True
    try:
        yield
    finally:
        dispatch.REFERENCE_ONLY = before


def mixed_by_hand(values, plan, mean=None):
    """What a plan makes of samples or soft targets [batch, ...], in float64, by loops over lists.

    mean: of each feature or of all; with one, images are clipped as well.
    """
    shape = values.shape[1:]
    rows = values.detach().double().reshape(plan.batch_size, shape.numel()).tolist()
    boxes = None
    if plan.boxes is not None and len(shape) > 1 and shape[-2:] == plan.size:
        boxes = plan.boxes.tolist()
    is_image = len(shape) > 2 and min(shape[-2:]) > 1
    largest = 1 if values.is_floating_point() else 255
    outputs = []
    for k, (order, weights) in enumerate(
        zip(plan.indices.tolist(), plan.weights.double().tolist(), strict=True)
    ):
        if boxes is not None and boxes[k][0][2] > 0:
            outputs.append(by_hand.paste(rows, order, boxes[k], *plan.size))
            continue
        by_row = by_hand.weights_by_row(order, weights, plan.batch_size)
        mixed = by_hand.mix_samples(rows, by_row)
        if plan.keep_variance and is_image:
            means = [0.0] * shape.numel() if mean is None else mean
            mixed = by_hand.keep_variance(mixed, weights, means)
            if mean is not None:
                mixed = [min(max(value, 0), largest) for value in mixed]
        outputs.append(mixed)
    return torch.tensor(outputs, dtype=torch.float64).view(plan.outputs, *shape)
