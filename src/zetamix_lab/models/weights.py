"""Initial weights from a file."""

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from zetamix_lab.provenance import FileRef
from zetamix_lab.text import join, reason


class WeightsError(ValueError):
    """A file that does not hold the weights of a model."""


def load_weights(model: nn.Module, file: FileRef, num_classes: int) -> None:
    """Load a state dict, such as torchvision's for ImageNet, into a model.

    If the number of classes differs, the classifier keeps its random weights, with a warning. If
    the model takes grey images, a first layer for RGB images is summed over its channels. Any other
    difference raises.

    file: written by `torch.save` or safetensors; the state dict itself, or a checkpoint that holds
        it as "state_dict" or "model".
    """
    if isinstance(model, nn.Sequential) and len(model) == 2 and not [*model[0].parameters()]:
        # inside a wrapper that resizes images or converts them to RGB
        load_weights(model[1], file, num_classes)
        return
    own, saved = model.state_dict(), _read_weights(file.check())
    module = type(model).__module__
    convert = getattr(sys.modules[module], "checkpoint_filter_fn", None)
    if module.startswith("timm.") and convert is not None:
        # timm's own conversion: old names, position embeddings of another size
        saved = convert(saved, model)
    loaded: dict[str, Tensor] = {}
    heads: dict[str, int] = {}
    # the auxiliary classifiers of GoogLeNet and Inception are not built
    extra = [name for name in saved if name not in own and not name.lower().startswith("aux")]
    wrong = [f"{name} is not part of this model" for name in extra]
    for name in [name for name in saved if name in own]:
        tensor, shape = saved[name], own[name].shape
        if tensor.ndim == 4 and tensor.shape[1] == 3 and shape[1] == 1:
            tensor = tensor.sum(1, keepdim=True)
        if tensor.shape == shape:
            loaded[name] = tensor
        elif tensor.shape[1:] == shape[1:] and shape[0] == num_classes:
            heads[name] = len(tensor)
        else:
            wrong.append(f"{name} is {list(tensor.shape)} there and {list(shape)} here")
    missing = [name for name in own if name not in saved]
    wrong += [
        f"{name} is missing there" for name in missing if not name.endswith("num_batches_tracked")
    ]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        stem = any(text.startswith("conv1.weight is [") for text in wrong)
        hint = " For the ImageNet stem add --set stem=imagenet." if stem else ""
        raise WeightsError(
            f"{file.path.name} does not match this model: {'; '.join(wrong[:3])}{more}.{hint}"
        )
    model.load_state_dict(loaded, strict=False)
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
    # prefixes of DistributedDataParallel, and of our wrappers that resize or convert to RGB
    for prefix in ("module.", "1."):
        if state and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state
