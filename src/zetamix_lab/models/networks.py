"""Networks by name: own ones, torchvision's, timm's; initial weights; trained networks."""

import importlib.util
import math
import sys
import warnings
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from zetamix_lab.provenance import FileRef
from zetamix_lab.seeds import seeded
from zetamix_lab.text import did_you_mean, join, reason

TIMM = "timm:"
# up to this size, images keep their resolution in the first layers; the ImageNet stem reduces a
# 32 × 32 image to 8 × 8 before the first block
SMALL_SIDE = 64


class UnknownModelError(ValueError):
    """An unknown model, or one that does not accept such samples."""


class WeightsError(ValueError):
    """A file that does not hold the weights of a model."""


def initialise(
    name: str,
    num_classes: int,
    shape: tuple[int, ...],
    seed: int = 0,
    *,
    stem: str = "auto",
    weights: FileRef | None = None,
) -> nn.Module:
    """A new network for samples of `shape`, (channels, height, width) or (features,).

    name: "resnet18", "resnet50" or another classification model of torchvision, "timm:NAME" for
        one of timm, "smallnet", "lenet5", "digitnet" for images of 8 × 8, "mlp" for points.
    seed: initial weights are drawn from it on the CPU, so that they are the same on any device.
    stem: first layers of a ResNet. "small" is a 3 × 3 convolution without pooling, "imagenet" the
        original; "auto" is "small" up to 64 pixels.
    weights: a file of weights to start from (`load_weights`); None starts from scratch.

    >>> model = initialise("resnet18", 10, (3, 32, 32))
    >>> model.conv1.stride, initialise("mlp", 10, (1, 8, 8))(torch.rand(2, 1, 8, 8)).shape
    ((1, 1), torch.Size([2, 10]))
    """
    check_model(name)
    if len(shape) != 3 and name != "mlp":
        raise ValueError(
            f"{name} takes images, (channels, height, width), got samples of shape {shape}. "
            "For points, use mlp."
        )
    with seeded(seed):
        if name in SMALL_NETWORKS:
            model = SMALL_NETWORKS[name](num_classes, shape)
        elif name.startswith("resnet"):
            is_small = stem == "small" or (stem == "auto" and max(shape[1:]) <= SMALL_SIDE)
            model = resnet(name, num_classes, shape[0], small_stem=is_small)
        else:
            model = _from_library(name, num_classes, shape)
    if weights is not None:
        load_weights(model, weights, num_classes)
    return model


def check_model(name: str) -> None:
    """Raise for a model that does not exist, without samples to build it for."""
    if name in SMALL_NETWORKS:
        return
    # takes as long to import as torch, and small networks do not need it
    from torchvision import models

    known = [*SMALL_NETWORKS, *models.list_models(module=models)]
    if name in known:
        return
    if importlib.util.find_spec("timm") is not None:
        import timm

        if name.startswith(TIMM) and timm.is_model(name.removeprefix(TIMM)):
            return
        known += [f"{TIMM}{each}" for each in timm.list_models()]
    elif name.startswith(TIMM):
        raise UnknownModelError("timm is not installed: pip install 'zetamix[timm]'")
    hint = did_you_mean(name, known, limit=3)
    if ".py" in name:
        hint = " A network of your own is compared by training of your own: --train train.py:run."
    raise UnknownModelError(
        f"Expected a model such as {', '.join(SMALL_NETWORKS)}, resnet18 or another classification "
        f"model of torchvision, or timm:NAME, got {name!r}.{hint}"
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


def _from_library(name: str, num_classes: int, shape: tuple[int, ...]) -> nn.Module:
    """A network of torchvision or timm without weights, if it accepts such images."""
    make = _from_timm if name.startswith(TIMM) else _from_torchvision
    try:
        model = make(name.removeprefix(TIMM), num_classes, shape)
        # so that an unsupported size raises here and not in the first step
        with torch.no_grad():
            model.eval()(torch.zeros(1, *shape))
    except (ArithmeticError, AssertionError, RuntimeError, ValueError) as error:
        raise UnknownModelError(
            f"{name} does not accept images of {' × '.join(map(str, shape))}: "
            f"{reason(error).rstrip('!.')}. Add --size 224 for image files of your own, or use "
            "resnet18, which accepts all."
        ) from None
    return model.train()


def _from_torchvision(name: str, num_classes: int, shape: tuple[int, ...]) -> nn.Module:
    from torchvision.models import get_model

    options = {"image_size": shape[1]} if name.startswith("vit_") else {}
    if name in ("googlenet", "inception_v3"):
        options = {"init_weights": True, "aux_logits": False}
    model: nn.Module = get_model(name, weights=None, num_classes=num_classes, **options)
    if shape[0] == 1:
        model.register_forward_pre_hook(_grey_to_rgb)
    return model


def _grey_to_rgb(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
    """Repeats the channel of grey images for a network that expects three."""
    return inputs[0].expand(-1, 3, -1, -1)


def _from_timm(name: str, num_classes: int, shape: tuple[int, ...]) -> nn.Module:
    """A network of timm; one with a fixed input size is built for that of the images."""
    import timm

    options: dict[str, Any] = {"num_classes": num_classes, "in_chans": shape[0]}
    config: Any = timm.get_pretrained_cfg(name, allow_unregistered=True)
    try:
        fixed: dict[str, Any] = {"img_size": shape[1:]} if config.fixed_input_size else {}
        model: nn.Module = timm.create_model(name, **options, **fixed)
    except TypeError:
        # a network whose input size cannot be set
        model = timm.create_model(name, **options)
    patch = getattr(getattr(model, "patch_embed", None), "patch_size", None)
    steps = patch if isinstance(patch, tuple) else (patch or 1,) * 2
    # timm would ignore the pixels beyond the last whole patch
    if any(side % step for side, step in zip(shape[1:], steps, strict=True)):
        raise ValueError(f"patches of {steps[0]} × {steps[1]} do not fill them")
    return model


def is_random(model: nn.Module) -> bool:
    """Whether layers of the model draw random numbers: dropout, stochastic depth."""
    return any(
        # `drop_prob` and `prob` in timm's DropPath and PatchDropout
        any((getattr(part, name, 0.0) or 0.0) > 0 for name in ("p", "drop_prob", "prob"))
        for part in model.modules()
        if "Drop" in type(part).__name__ or type(part).__name__ == "StochasticDepth"
    )


def load_weights(model: nn.Module, file: FileRef, num_classes: int) -> None:
    """Load a state dict, such as torchvision's for ImageNet, into a model.

    If the number of classes differs, the classifier keeps its random weights, with a warning. If
    the model takes grey images, a first layer for RGB images is summed over its channels. Any other
    difference raises.

    file: written by `torch.save` or safetensors; the state dict itself, or a checkpoint that holds
        it as "state_dict" or "model".
    """
    own, saved = model.state_dict(), _read_weights(file.check())
    module = type(model).__module__
    convert = getattr(sys.modules[module], "checkpoint_filter_fn", None)
    if module.startswith("timm.") and convert is not None:
        # timm's own conversion: old names, position embeddings of another size
        saved = convert(saved, model)
    heads: dict[str, int] = {}
    for name in [name for name in own if name in saved]:
        tensor, shape = saved[name], own[name].shape
        if tensor.ndim == 4 and tensor.shape[1] == 3 and shape[1] == 1:
            saved[name] = tensor.sum(1, keepdim=True)
        elif tensor.shape != shape == (num_classes, *tensor.shape[1:]):
            heads[name], saved[name] = len(tensor), own[name]
    # the auxiliary classifiers of GoogLeNet and Inception are not built
    kept = {k: v for k, v in saved.items() if k in own or not k.lower().startswith("aux")}
    try:
        model.load_state_dict(kept)
    except RuntimeError as error:
        stem = "size mismatch for conv1.weight" in str(error)
        hint = " For the ImageNet stem add --set stem=imagenet." if stem else ""
        raise WeightsError(
            f"{file.path.name} does not match this model: "
            f"{shorten(str(error).partition(':')[2], 300)}{hint}"
        ) from error
    if heads:
        warnings.warn(
            f"{file.path.name} has {max(heads.values()):,} classes, but this data has "
            f"{num_classes}: {join(list(heads))} start from random weights.",
            stacklevel=2,
        )


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            saved: Any = load_file(path)
        else:
            saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise WeightsError(f"{path} cannot be read as weights: {reason(error)}.") from error
    for name in ("state_dict", "model"):
        if isinstance(saved, dict) and isinstance(saved.get(name), dict):
            saved = saved[name]
    if not isinstance(saved, dict) or not all(isinstance(v, Tensor) for v in saved.values()):
        raise WeightsError(
            f"{path} has no state dict: expected tensors by name, as written by torch.save("
            "model.state_dict(), ...)."
        )
    state: dict[str, Tensor] = saved
    # the prefix of DistributedDataParallel
    if all(name.startswith("module.") for name in state):
        state = {name.removeprefix("module."): tensor for name, tensor in state.items()}
    return state


class TrainedModel(nn.Module):
    """A trained network with the normalisation it was trained with.

    shape: of one sample.
    mean, std: of each channel, in the units of the stored samples.
    is_bytes: whether it was trained on uint8 images; otherwise inputs must be in the units of the
        training data.
    temperature: divides the logits.
    """

    def __init__(
        self,
        network: nn.Module,
        classes: tuple[str, ...],
        shape: tuple[int, ...],
        mean: Tensor,
        std: Tensor,
        *,
        is_bytes: bool = True,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.network, self.shape, self.is_bytes = network, shape, is_bytes
        self.temperature = temperature
        self.classes = classes
        """Class names, in the order of the logits."""
        channels = (1, -1, *[1] * (len(shape) - 1))
        self.register_buffer("mean", mean.view(channels))
        self.register_buffer("std", std.view(channels))

    def forward(self, samples: Tensor) -> Tensor:
        """Logits [n, classes].

        samples: images [n, channels, height, width], either bytes or floating point in [0, 1]; or
            points [n, coordinates]. `zetamix_lab.data.read_image` reads a file as it was read for
            training.
        """
        if samples.shape[1:] != self.shape:
            raise ValueError(
                f"Expected a batch of samples of shape {list(self.shape)}, as in training, got "
                f"{list(samples.shape)}. Read files with zetamix_lab.data.read_image(path, "
                "model.shape), and add a dimension for the batch."
            )
        if self.is_bytes and len(self.shape) == 3 and samples.is_floating_point():
            # not on a GPU, to avoid a sync; interpolation may overshoot [0, 1] by a few tenths
            seen = samples.device.type == "cpu" and samples.numel() > 0
            low, high = map(float, samples.aminmax()) if seen else (0.0, 1.0)
            if low < -0.5 or high > 1.5:
                raise ValueError(
                    f"Expected images of dtype uint8 or in [0, 1], got values from {low:g} to "
                    f"{high:g}. Do not normalise them: the model does. Divide images in [0, 255] "
                    "by 255."
                )
            samples = 255 * samples
        scaled = (samples.float() - self.get_buffer("mean")) / self.get_buffer("std")
        logits: Tensor = self.network(scaled) / self.temperature
        return logits
