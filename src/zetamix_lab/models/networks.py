"""Networks by name: small ones of our own, torchvision's, timm's and the user's."""

import math
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from zetamix_lab.models.timm_and_files import (
    TIMM,
    UnknownModelError,
    build_from_file,
    build_timm,
    check_timm,
    is_python_file,
    load_function,
    suggest_timm,
)
from zetamix_lab.models.weights import load_weights
from zetamix_lab.provenance import FileRef
from zetamix_lab.seeds import seeded
from zetamix_lab.text import did_you_mean

# up to this size, images keep their resolution in the first layers; the ImageNet stem reduces a
# 32 × 32 image to 8 × 8 before the first block
SMALL_SIDE = 64


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
    code: the file of "FILE.py:FUNCTION"; None takes the path in `name`.

    >>> model = build("resnet18", 10, (3, 32, 32))
    >>> model.conv1.stride, build("auto", 10, (1, 8, 8))(torch.rand(2, 1, 8, 8)).shape
    ((1, 1), torch.Size([2, 10]))
    """
    name = default_model(shape) if name == "auto" else name
    if stem not in ("auto", "small", "imagenet"):
        raise ValueError(f"stem must be auto, small or imagenet, got {stem!r}.")
    if code is not None or is_python_file(name):
        return build_from_file(name, num_classes, shape, code)
    if len(shape) != 3 and name != "mlp":
        raise ValueError(
            f"{name} takes images, (channels, height, width), got samples of shape {shape}. "
            "For points, use mlp."
        )
    if name in SMALL_NETWORKS:
        return SMALL_NETWORKS[name](num_classes, shape)
    is_small = stem == "small" or (stem == "auto" and max(shape[1:]) <= SMALL_SIDE)
    if name.startswith(TIMM):
        return build_timm(name.removeprefix(TIMM), num_classes, shape, enlarge=is_small)
    check_model(name)
    if name.startswith("resnet"):
        return resnet(name, num_classes, shape[0], small_stem=is_small)
    return _from_torchvision(name, num_classes, shape)


def check_model(name: str, code: FileRef | None = None) -> None:
    """Raise for a model that does not exist, without samples to build it for.

    code: as of `build`.
    """
    available = torchvision.models.list_models(module=torchvision.models)
    if code is not None or is_python_file(name):
        load_function(name, code)
    elif name.startswith(TIMM):
        check_timm(name.removeprefix(TIMM))
    elif name not in (*available, *OWN_MODELS):
        hint = did_you_mean(name, [*available, *OWN_MODELS], limit=3) or suggest_timm(name)
        if name.endswith(".py"):
            hint = f" Name a function or class of the file too: {name}:FUNCTION."
        raise UnknownModelError(
            f"Expected a model such as {', '.join(OWN_MODELS)}, resnet18 or another classification "
            f"model of torchvision, timm:NAME or FILE.py:FUNCTION, got {name!r}.{hint}"
        )


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
    model: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=num_classes)
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
    if shape[0] not in (1, 3):
        raise ValueError(f"{name} takes images of 1 or 3 channels, got {shape[0]}.")
    options = {"image_size": shape[1]} if name.startswith("vit_") else {}
    if name in ("googlenet", "inception_v3"):
        options = {"init_weights": True, "aux_logits": False}
    try:
        model: nn.Module = torchvision.models.get_model(
            name, weights=None, num_classes=num_classes, **options
        )
        if shape[0] == 1:
            model = nn.Sequential(GreyToRGB(), model)
        # so that an unsupported size raises here and not in the first step
        with torch.no_grad():
            model.eval()(torch.zeros(1, *shape))
    except (AssertionError, RuntimeError) as error:
        why = str(error).splitlines()[0].rstrip(".!")
        raise UnknownModelError(
            f"{name} does not accept images of {shape[1]} × {shape[2]}: {why}. Use resnet18, which "
            "accepts any size."
        ) from None
    return model.train()


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
        if "Drop" in type(part).__name__ or isinstance(part, torchvision.ops.StochasticDepth)
    )
