"""Networks of timm, for images of any size."""

import importlib.util
import math
from typing import Any

import torch
from torch import nn

from zetamix_lab.models.errors import UnknownModelError
from zetamix_lab.text import did_you_mean

TIMM = "timm:"
# networks for ImageNet reduce images by up to this factor
STRIDE = 32
# a stem for ImageNet reduces images by this factor
ENLARGEMENT = 4
# small images are enlarged to at most this side: the cost of a step grows with its square
ENLARGED = 128


def check_timm(name: str) -> Any:
    """The module timm; raises if it is missing, or has no such model."""
    timm = _import_timm()
    if not timm.is_model(name):
        raise UnknownModelError(f"timm has no model {name!r}.{suggest_timm(name)}")
    return timm


def build_timm(
    name: str, num_classes: int, shape: tuple[int, ...], *, enlarge: bool = False
) -> nn.Module:
    """A network of timm without weights.

    Networks with a fixed input size are built for the size of the images. For one that does not
    support it, images are enlarged to the next multiple of 32, or to the size it was designed for.

    enlarge: whether small images are enlarged, by a factor of four or to about 128 pixels. This
        keeps their resolution in the first layers, at the cost of a stem without stride.
    """
    timm = check_timm(name)
    channels, *sides = shape
    factor = max(1, min(ENLARGEMENT, ENLARGED // max(sides))) if enlarge else 1
    wanted = tuple(factor * side for side in sides)
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    multiple = tuple(STRIDE * math.ceil(side / STRIDE) for side in wanted)
    reasons = []
    for size in dict.fromkeys([wanted, multiple, tuple(config.input_size[1:])]):
        options: dict[str, Any] = {"num_classes": num_classes, "in_chans": channels}
        try:
            try:
                fixed = {"img_size": size} if config.fixed_input_size else {}
                model: nn.Module = timm.create_model(name, **options, **fixed)
            except TypeError:
                # networks whose input size cannot be set
                model = timm.create_model(name, **options)
            _check_patches(model, size)
            with torch.no_grad():
                model.eval()(torch.zeros(1, channels, *size))
        except (AssertionError, RuntimeError, ValueError) as error:
            reasons.append(str(error).splitlines()[0].rstrip(".!") if str(error) else repr(error))
            continue
        if size != tuple(sides):
            model = nn.Sequential(nn.Upsample(size=size, mode="bilinear"), model)
        return model.train()
    raise UnknownModelError(
        f"timm:{name} does not accept images of {sides[0]} × {sides[1]}, even if enlarged: "
        f"{reasons[-1]}."
    )


def _check_patches(model: nn.Module, size: tuple[int, ...]) -> None:
    """Raise if the size is not a multiple of the patch size; timm would ignore the rest."""
    patch = getattr(getattr(model, "patch_embed", None), "patch_size", None)
    sides = (patch, patch) if isinstance(patch, int) else patch
    if sides is not None and any(side % step for side, step in zip(size, sides, strict=True)):
        raise ValueError(f"patches of {sides[0]} × {sides[1]} do not fill {size[0]} × {size[1]}")


def suggest_timm(name: str) -> str:
    """A suggestion of similar timm models; empty if timm is not installed."""
    if importlib.util.find_spec("timm") is None:
        return ""
    names = [f"{TIMM}{known}" for known in _import_timm().list_models()]
    return did_you_mean(f"{TIMM}{name}", names, limit=3)


def _import_timm() -> Any:
    try:
        import timm
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise
        raise UnknownModelError("timm is not installed: pip install 'zetamix[timm]'") from None
    return timm
