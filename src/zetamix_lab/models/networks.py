"""Networks by name: small ones of our own, torchvision's, timm's and the user's."""

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
from torch import Tensor, nn

from zetamix_lab.models.weights import load_weights
from zetamix_lab.provenance import FileRef
from zetamix_lab.seeds import seeded
from zetamix_lab.text import did_you_mean, reason

TIMM = "timm:"
# up to this size, images keep their resolution in the first layers; the ImageNet stem reduces a
# 32 × 32 image to 8 × 8 before the first block
SMALL_SIDE = 64
# networks for ImageNet reduce images by up to this factor, and their stem by the second
STRIDE, ENLARGEMENT = 32, 4
# small images are enlarged to at most this side: the cost of a step grows with its square
ENLARGED = 128


class UnknownModelError(ValueError):
    """An unknown model, or one that does not accept such samples."""


def build(
    name: str,
    num_classes: int,
    shape: tuple[int, ...],
    *,
    stem: str = "auto",
    code: FileRef | None = None,
) -> nn.Module:
    """A new network for samples of `shape`, (channels, height, width) or (features,).

    name: "resnet18", "resnet50" or another classification model of torchvision, "timm:NAME" for
        one of timm, "FILE.py:FUNCTION" for a function that takes the number of classes and returns
        a module, "smallnet", "lenet5", "digitnet" for images of 8 × 8, "mlp" for points; "auto"
        chooses by `shape`.
    stem: first layers of a ResNet. "small" is a 3 × 3 convolution without pooling, "imagenet" the
        original; "auto" is "small" up to 64 pixels. Models of timm see images enlarged
        instead of a small stem.
    code: the file of "FILE.py:FUNCTION" as it was when the run was set up; None takes the path in
        `name`.

    >>> model = build("resnet18", 10, (3, 32, 32))
    >>> model.conv1.stride, build("auto", 10, (1, 8, 8))(torch.rand(2, 1, 8, 8)).shape
    ((1, 1), torch.Size([2, 10]))
    """
    name = default_model(shape) if name == "auto" else name
    if code is not None or is_python_file(name):
        return _from_file(name, num_classes, shape, code)
    check_model(name)
    if len(shape) != 3 and name != "mlp":
        raise ValueError(
            f"{name} takes images, (channels, height, width), got samples of shape {shape}. "
            "For points, use mlp."
        )
    if name in SMALL_NETWORKS:
        return SMALL_NETWORKS[name](num_classes, shape)
    is_small = stem == "small" or (stem == "auto" and max(shape[1:]) <= SMALL_SIDE)
    if name.startswith(TIMM):
        return _from_timm(name.removeprefix(TIMM), num_classes, shape, enlarge=is_small)
    if name.startswith("resnet"):
        return resnet(name, num_classes, shape[0], small_stem=is_small)
    return _from_torchvision(name, num_classes, shape)


def check_model(name: str, code: FileRef | None = None) -> None:
    """Raise for a model that does not exist, without samples to build it for.

    code: as of `build`.
    """
    if name in OWN_MODELS:
        return
    if code is not None or is_python_file(name):
        load_function(name, code)
        return
    if name.startswith(TIMM):
        if importlib.util.find_spec("timm") is None:
            raise UnknownModelError("timm is not installed: pip install 'zetamix[timm]'")
        import timm

        if not timm.is_model(name.removeprefix(TIMM)):
            raise UnknownModelError(
                f"timm has no model {name.removeprefix(TIMM)!r}.{_suggest_timm(name)}"
            )
        return
    # takes as long to import as torch, and small networks do not need it
    from torchvision import models

    available = models.list_models(module=models)
    if name not in available:
        hint = did_you_mean(name, [*available, *OWN_MODELS], limit=3) or _suggest_timm(TIMM + name)
        if name.endswith(".py"):
            hint = f" Name a function or class of the file too: {name}:FUNCTION."
        raise UnknownModelError(
            f"Expected a model such as {', '.join(OWN_MODELS)}, resnet18 or another classification "
            f"model of torchvision, timm:NAME or FILE.py:FUNCTION, got {name!r}.{hint}"
        )


def _suggest_timm(name: str) -> str:
    """A suggestion of similar models of timm; empty if timm is not installed."""
    if importlib.util.find_spec("timm") is None:
        return ""
    import timm

    return did_you_mean(name, [f"{TIMM}{known}" for known in timm.list_models()], limit=3)


def default_model(shape: tuple[int, ...], *, gpu: bool = True) -> str:
    """The model for samples of a shape, unless the user names one.

    gpu: whether there is one. On two CPU cores a step with 32 images of 3 × 32² takes 1.3 s with
        ResNet-18 and 0.13 s with smallnet.
    """
    if len(shape) != 3:
        return "mlp"
    if max(shape[1:]) < 16:
        return "digitnet"
    return "resnet18" if gpu or max(shape[1:]) > SMALL_SIDE else "smallnet"


def resnet(name: str, num_classes: int, channels: int, *, small_stem: bool) -> nn.Module:
    """A ResNet of torchvision without weights, with a stem for the size of the images."""
    from torchvision.models import get_model

    model: nn.Module = get_model(name, weights=None, num_classes=num_classes)
    size, stride = (3, 1) if small_stem else (7, 2)
    first = nn.Conv2d(channels, 64, size, stride=stride, padding=size // 2, bias=False)
    if small_stem:
        model.maxpool = nn.Identity()
    nn.init.kaiming_normal_(first.weight, mode="fan_out", nonlinearity="relu")
    model.conv1 = first
    return model


def lenet5(num_classes: int, shape: tuple[int, ...]) -> nn.Module:
    """LeNet-5 (LeCun et al., 1998) with ReLU, max pooling and batch normalisation."""
    channels, height, width = shape
    if min(height, width) < 16:
        raise ValueError(f"lenet5 needs images of at least 16 × 16, got {height} × {width}.")
    flat = 16 * ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
    return nn.Sequential(
        *_block(channels, 6, 5, padding=2, bias=True),
        nn.MaxPool2d(2),
        *_block(6, 16, 5, padding=0, bias=True),
        nn.MaxPool2d(2),
        *_perceptron(flat, 120, 84, num_classes),
    )


def _block(channels: int, width: int, size: int, *, padding: int, bias: bool) -> list[nn.Module]:
    convolution = nn.Conv2d(channels, width, size, padding=padding, bias=bias)
    return [convolution, nn.BatchNorm2d(width), nn.ReLU()]


def digitnet(num_classes: int, shape: tuple[int, ...]) -> nn.Module:
    """A small convolutional net for images of about 8 × 8, 21,482 parameters for the digits."""
    return nn.Sequential(
        *_block(shape[0], 32, 3, padding=1, bias=False),
        *_block(32, 64, 3, padding=1, bias=False),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(256, num_classes),
    )


def smallnet(num_classes: int, shape: tuple[int, ...]) -> nn.Module:
    """Three stages of two convolutions: a fourteenth of the operations of ResNet-18 at 32 × 32."""
    layers: list[nn.Module] = []
    for before, width in zip((shape[0], 32, 64), (32, 64, 128), strict=True):
        layers += _block(before, width, 3, padding=1, bias=False)
        layers += [*_block(width, width, 3, padding=1, bias=False), nn.MaxPool2d(2)]
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(512, num_classes)]
    return nn.Sequential(*layers)


def mlp(num_classes: int, shape: tuple[int, ...]) -> nn.Module:
    """A perceptron with two hidden layers of 128 units, on flattened samples."""
    return nn.Sequential(*_perceptron(math.prod(shape), 128, 128, num_classes))


def _perceptron(inputs: int, first: int, second: int, classes: int) -> list[nn.Module]:
    layers = [nn.Linear(inputs, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU()]
    return [nn.Flatten(), *layers, nn.Linear(second, classes)]


SMALL_NETWORKS = {"smallnet": smallnet, "lenet5": lenet5, "digitnet": digitnet, "mlp": mlp}
# besides those of torchvision and timm
OWN_MODELS = ("auto", *SMALL_NETWORKS)


class GreyToRGB(nn.Module):
    """Repeats the channel of grey images for a model that expects three."""

    def forward(self, samples: Tensor) -> Tensor:
        return samples.expand(-1, 3, -1, -1)


def _from_torchvision(name: str, num_classes: int, shape: tuple[int, ...]) -> nn.Module:
    from torchvision.models import get_model

    if shape[0] not in (1, 3):
        raise ValueError(f"{name} takes images of 1 or 3 channels, got {shape[0]}.")
    options = {"image_size": shape[1]} if name.startswith("vit_") else {}
    if name in ("googlenet", "inception_v3"):
        options = {"init_weights": True, "aux_logits": False}
    try:
        model: nn.Module = get_model(name, weights=None, num_classes=num_classes, **options)
        if shape[0] == 1:
            model = nn.Sequential(GreyToRGB(), model)
        # so that an unsupported size raises here and not in the first step
        _outputs(model, shape)
    except (AssertionError, RuntimeError) as error:
        raise UnknownModelError(
            f"{name} does not accept images of {shape[1]} × {shape[2]}: "
            f"{reason(error).rstrip('!')}. Use resnet18, which accepts any size."
        ) from None
    return model


def _outputs(model: nn.Module, shape: tuple[int, ...]) -> Any:
    """The outputs for one sample of zeros, in evaluation mode."""
    with torch.no_grad():
        outputs = model.eval()(torch.zeros(1, *shape))
    model.train()
    return outputs


def _from_timm(name: str, num_classes: int, shape: tuple[int, ...], *, enlarge: bool) -> nn.Module:
    """A network of timm without weights.

    Networks with a fixed input size are built for the size of the images. For one that does not
    support it, images are enlarged to the next multiple of 32, or to the size it was designed for.

    enlarge: whether small images are enlarged, by a factor of four or to about 128 pixels. This
        keeps their resolution in the first layers, at the cost of a stem without stride.
    """
    import timm

    channels, *sides = shape
    factor = max(1, min(ENLARGEMENT, ENLARGED // max(sides))) if enlarge else 1
    wanted = tuple(factor * side for side in sides)
    config: Any = timm.get_pretrained_cfg(name, allow_unregistered=True)
    multiple = tuple(STRIDE * math.ceil(side / STRIDE) for side in wanted)
    options: dict[str, Any] = {"num_classes": num_classes, "in_chans": channels}
    why = ""
    for size in dict.fromkeys([wanted, multiple, tuple(config.input_size[1:])]):
        try:
            try:
                fixed: dict[str, Any] = {"img_size": size} if config.fixed_input_size else {}
                model: nn.Module = timm.create_model(name, **options, **fixed)
            except TypeError:
                # networks whose input size cannot be set
                model = timm.create_model(name, **options)
            _check_patches(model, size)
            _outputs(model, (channels, *size))
        except (AssertionError, RuntimeError, ValueError) as error:
            why = reason(error).rstrip("!")
            continue
        if size != tuple(sides):
            model = nn.Sequential(nn.Upsample(size=size, mode="bilinear"), model)
        return model
    raise UnknownModelError(
        f"timm:{name} does not accept images of {sides[0]} × {sides[1]}, even if enlarged: {why}."
    )


def _check_patches(model: nn.Module, size: tuple[int, ...]) -> None:
    """Raise if the size is not a multiple of the patch size; timm would ignore the rest."""
    patch = getattr(getattr(model, "patch_embed", None), "patch_size", None)
    sides = (patch, patch) if isinstance(patch, int) else patch
    if sides is not None and any(side % step for side, step in zip(size, sides, strict=True)):
        raise ValueError(f"patches of {sides[0]} × {sides[1]} do not fill {size[0]} × {size[1]}")


def is_python_file(name: str) -> bool:
    """Whether a model is named as FILE.py:FUNCTION.

    >>> is_python_file("nets/small.py:make"), is_python_file("timm:resnet18")
    (True, False)
    """
    return re.fullmatch(r".+\.py:\w+", name) is not None


def _from_file(
    name: str, num_classes: int, shape: tuple[int, ...], code: FileRef | None
) -> nn.Module:
    """The module that a function of a Python file returns; code: as of `build`."""
    make = load_function(name, code)
    try:
        model = make(num_classes)
        logits = _outputs(model, shape) if isinstance(model, nn.Module) else None
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
    return model


def load_function(name: str, code: FileRef | None) -> Callable[..., Any]:
    """The function FILE.py:FUNCTION; code: as of `build`."""
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


def initialise(
    name: str,
    num_classes: int,
    shape: tuple[int, ...],
    seed: int,
    *,
    weights: FileRef | None = None,
    **options: Any,
) -> nn.Module:
    """`build` with weights drawn from a seed on the CPU, so that they are the same on any device.

    weights: a file of weights to start from (`load_weights`); None starts from scratch.
    """
    with seeded(seed):
        model = build(name, num_classes, shape, **options)
    if weights is not None:
        load_weights(model, weights, num_classes)
    return model


def is_random(model: nn.Module) -> bool:
    """Whether layers of the model draw random numbers: dropout, stochastic depth."""
    return any(
        # `drop_prob` and `prob` in timm's DropPath and PatchDropout
        any((getattr(part, name, 0.0) or 0.0) > 0 for name in ("p", "drop_prob", "prob"))
        for part in model.modules()
        if "Drop" in type(part).__name__ or type(part).__name__ == "StochasticDepth"
    )
