"""Networks of timm, `timm:NAME`, and of the user, `FILE.py:FUNCTION`."""

import importlib.util
import math
import re
import sys
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from zetamix_lab.provenance import FileRef
from zetamix_lab.text import did_you_mean

TIMM = "timm:"
# networks for ImageNet reduce images by up to this factor, and their stem by the second
STRIDE, ENLARGEMENT = 32, 4
# small images are enlarged to at most this side: the cost of a step grows with its square
ENLARGED = 128


class UnknownModelError(ValueError):
    """An unknown model, or one that does not accept such samples."""


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
    options = {"num_classes": num_classes, "in_chans": channels}
    reason = ""
    for size in dict.fromkeys([wanted, multiple, tuple(config.input_size[1:])]):
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
            reason = str(error).splitlines()[0].rstrip(".!") if str(error) else repr(error)
            continue
        if size != tuple(sides):
            model = nn.Sequential(nn.Upsample(size=size, mode="bilinear"), model)
        return model.train()
    raise UnknownModelError(
        f"timm:{name} does not accept images of {sides[0]} × {sides[1]}, even if enlarged: "
        f"{reason}."
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


def is_python_file(name: str) -> bool:
    """Whether a model is named as FILE.py:FUNCTION.

    >>> is_python_file("nets/small.py:make"), is_python_file("timm:resnet18")
    (True, False)
    """
    return re.fullmatch(r".+\.py:\w+", name) is not None


def build_from_file(
    name: str, num_classes: int, shape: tuple[int, ...], code: FileRef | None = None
) -> nn.Module:
    """Call the function of a Python file with the number of classes; code: as `load_function`."""
    make = load_function(name, code)
    try:
        model = make(num_classes)
        logits = None
        if isinstance(model, nn.Module):
            with torch.no_grad():
                logits = model.eval()(torch.zeros(1, *shape))
    except Exception as error:
        raise UnknownModelError(
            f"{name} fails for {num_classes} classes and samples of shape {list(shape)}: "
            f"{_describe(error)}"
        ) from error
    if not isinstance(model, nn.Module):
        raise UnknownModelError(
            f"{name} must take the number of classes and return a torch.nn.Module, got "
            f"{type(model).__name__}."
        )
    if not isinstance(logits, torch.Tensor) or logits.shape != (1, num_classes):
        got = list(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise UnknownModelError(
            f"{name} must return logits [n, {num_classes}] for n samples, got {got} for n = 1."
        )
    return model.train()


def load_function(name: str, code: FileRef | None = None) -> Callable[..., Any]:
    """The function FILE.py:FUNCTION.

    code: the file as it was when the run was created; None uses the path in `name`.
    """
    path, _, function = name.rpartition(":")
    code = FileRef.read(path) if code is None else code
    code.check()
    module = _load(code)
    found: Callable[..., Any] | None = getattr(module, function, None)
    if not callable(found):
        names = [key for key, value in vars(module).items() if callable(value)]
        raise UnknownModelError(
            f"{Path(path).name} has no function {function!r}.{did_you_mean(function, names)}"
        )
    return found


@lru_cache
def _load(code: FileRef) -> ModuleType:
    """Run the file as a module, with its folder on sys.path as for a script."""
    name = f"zetamix_model_{code.sha256[:12]}"
    spec = importlib.util.spec_from_file_location(name, code.path)
    if spec is None or spec.loader is None:
        raise UnknownModelError(f"{code.path} cannot be imported as a Python module.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(code.path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UnknownModelError(f"{code.path} cannot be imported: {_describe(error)}") from error
    finally:
        sys.path.remove(str(code.path.parent))
    return module


def _describe(error: Exception) -> str:
    """An error of the user's code, with its line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {str(error).rstrip('.')}"
    return f"{text} ({Path(last.filename).name}, line {last.lineno})."
