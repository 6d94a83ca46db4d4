"""Checks of arguments and tensors, and their messages: expected, got, do this.

A check that can be made from shapes, dtypes and Python numbers raises at once. A check that would
have to read values from a GPU tensor becomes a device-side assertion, so that no check ever makes
the host wait for the device.
"""

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Gamma: TypeAlias = float | tuple[float, float] | Tensor
GammaSchedule: TypeAlias = Callable[[int], Gamma]


def reads_need_sync(tensor: Tensor) -> bool:
    """True where looking at a value would stall the device or break a trace."""
    return tensor.device.type != "cpu" or torch.compiler.is_compiling()


def needs_gradients(tensor: Tensor) -> bool:
    return tensor.requires_grad and torch.is_grad_enabled()


def check_values(ok: Tensor, message: str) -> None:
    """Raise `message` if any element of `ok` is false: now on CPU, on the device elsewhere."""
    if reads_need_sync(ok):
        torch._assert_async(ok.all(), message)
    elif not bool(ok.all()):
        raise ValueError(message)


def check_count(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, Integral)):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")


def check_batch(batch: int) -> None:
    check_count("batch", batch, 0)
    if batch == 0:
        raise ValueError("The batch is empty: mixing needs at least one sample.")


def check_number(name: str, value: float, *, low: float, high: float = math.inf) -> None:
    """A finite real number in [low, high]; booleans are not numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Real)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}.")
    # comparisons only, which a trace with symbolic numbers can follow; they are false for NaN
    if not (low <= value <= high and value < math.inf):
        bounds = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise ValueError(f"{name} must be finite and {bounds}, got {value}.")


def check_alpha(alpha: float) -> None:
    if isinstance(alpha, (int, float)) and alpha <= 0:
        raise ValueError(f"alpha must be positive, got {alpha}. For no mixing leave mixup out.")
    check_number("alpha", alpha, low=0)


def check_gamma(
    gamma: Gamma, outputs: int | None = None, device: torch.device | None = None
) -> None:
    """One number, a range (low, high), or a tensor holding one number or one per output."""
    if isinstance(gamma, Tensor):
        if device is not None and gamma.device != device:
            raise ValueError(f"gamma is on {gamma.device}, but the plan is drawn on {device}.")
        check_gamma_tensor(gamma, outputs)
    elif isinstance(gamma, (tuple, list)):
        if len(gamma) != 2:
            raise ValueError(
                f"gamma as a range must be (low, high), got {len(gamma)} values. "
                "For one gamma per output pass a tensor."
            )
        low, high = gamma
        check_number("gamma", low, low=0)
        check_number("gamma", high, low=0)
        if low > high:
            raise ValueError(f"gamma as a range must be (low, high) with low <= high, got {gamma}.")
    else:
        check_number("gamma", gamma, low=0)


def check_gamma_tensor(gamma: Tensor, outputs: int | None) -> None:
    if not gamma.is_floating_point():
        raise TypeError(f"gamma must be a floating point tensor, got {gamma.dtype}.")
    if gamma.ndim > 1 or (gamma.ndim == 1 and outputs is not None and gamma.shape[0] != outputs):
        wanted = "one per output" if outputs is None else f"[{outputs}] (one per output)"
        raise ValueError(f"gamma must have shape [] or {wanted}, got {list(gamma.shape)}.")
    check_values(
        torch.isfinite(gamma) & (gamma >= 0), "gamma must be finite and at least 0 in every output."
    )


def check_sources(sources: int, batch: int) -> None:
    check_count("sources", sources, 2)
    if sources > batch:
        raise ValueError(
            f"sources={sources} is more than the batch holds ({batch}). "
            "Ask for fewer, or leave sources=None to use the whole batch."
        )


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}.")


def check_generator_type(generator: torch.Generator | None) -> None:
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}.")


def check_generator(generator: torch.Generator | None, device: torch.device) -> None:
    """A generator that can draw on this device."""
    check_generator_type(generator)
    if generator is None:
        return
    there = generator.device
    apart = None not in (there.index, device.index) and there.index != device.index
    if there.type != device.type or apart:
        raise ValueError(
            f"The generator lives on {generator.device}, but the plan is drawn on {device}. "
            f"Make it with torch.Generator(device={str(device)!r})."
        )


def check_tensor(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        hint = " Turn a NumPy array into one with torch.from_numpy." if _is_numpy(value) else ""
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}.{hint}")
    if value.is_nested or value.layout is not torch.strided:
        got = "a nested one" if value.is_nested else str(value.layout)
        raise TypeError(f"{name} must be a dense tensor, got {got}. Pad it, or use .to_dense().")
    if value.ndim == 0:
        raise ValueError(f"{name} must have a batch dimension first, got a scalar tensor.")
    return value


def _is_numpy(value: object) -> bool:
    # by its name: the core imports torch only
    return type(value).__name__ == "ndarray"


def check_length(name: str, length: int, batch: int) -> None:
    if length != batch:
        raise ValueError(f"The plan was made for a batch of {batch}, but {name} has {length} rows.")


def check_ignore_index(ignore_index: int | None) -> None:
    if ignore_index is not None and not isinstance(ignore_index, (int, Integral)):
        raise TypeError(f"ignore_index must be an int, got {type(ignore_index).__name__}.")


def check_fits(name: str, value: Tensor, batch: int, device: torch.device) -> None:
    """A tensor that a plan for `batch` rows on `device` can be applied to."""
    check_tensor(name, value)
    check_length(name, value.shape[0], batch)
    if value.device != device:
        raise ValueError(
            f"The plan is on {device}, but {name} is on {value.device}. Move one with .to()."
        )


def check_pair(samples: object, labels: object) -> Tensor:
    """Samples (a tensor or a nest of them) and labels that belong together; the first tensor."""
    leaves = [samples] if isinstance(samples, Tensor) else pytree.tree_leaves(samples)
    if not leaves:
        raise TypeError("samples must hold at least one tensor, got none.")
    tensors = [check_tensor("samples", leaf) for leaf in leaves]
    first = tensors[0]
    labels = check_tensor("labels", labels)
    if first.shape[0] == 0:
        raise ValueError("The batch is empty: mixing needs at least one sample.")
    if first.shape[0] != labels.shape[0]:
        hint = ""
        if isinstance(samples, (list, tuple)):
            hint = " A list is taken as several inputs; torch.stack a list of single samples."
        raise ValueError(
            f"samples and labels must have the same length, got {first.shape[0]} samples "
            f"and {labels.shape[0]} labels.{hint}"
        )
    if first.device != labels.device:
        raise ValueError(
            f"samples and labels must be on one device, got {first.device} and {labels.device}."
        )
    return first


def check_tensor_labels(labels: object) -> None:
    """One tensor with an entry for each sample."""
    if isinstance(labels, Tensor) and labels.ndim > 0:
        return
    got = "a scalar tensor" if isinstance(labels, Tensor) else type(labels).__name__
    if _is_numpy(labels):
        hint = "Turn NumPy arrays into tensors with torch.from_numpy, samples and labels."
    elif isinstance(labels, (Mapping, tuple, list)):
        hint = "For a dict or tuple of targets pass rules= to ZetaMixup, one per entry."
    else:
        hint = "Mixing takes batches: do it behind the loader, not on single samples."
    raise TypeError(f"labels must be a tensor with one entry for each sample, got {got}. {hint}")


def check_mixable(samples: Tensor) -> None:
    """Floating point of 16 bits or more, or an integer dtype that float32 holds exactly."""
    if samples.is_floating_point() and samples.element_size() >= 2:
        return
    if samples.dtype in (torch.uint8, torch.int8, torch.int16):
        return
    raise TypeError(
        "samples must be floating point of 16 bits or more, uint8, int8 or int16, "
        f"got {samples.dtype}. "
        "Convert them with .float(); token ids cannot be mixed, but their embeddings can."
    )


def check_label_range(labels: Tensor, num_classes: int, ignore_index: int | None) -> None:
    """Labels in [0, num_classes), or `ignore_index`: read on CPU, asserted on the device."""
    message = f"labels must lie in [0, {num_classes})"
    if ignore_index is not None:
        message += f" or equal ignore_index={ignore_index}"
    waits = reads_need_sync(labels)
    # nearly every batch is right, and one pass can tell
    if not waits and labels.numel() and ignore_index is None:
        low, high = (int(bound) for bound in labels.aminmax())
        if low >= 0 and high < num_classes:
            return
    valid = (labels >= 0) & (labels < num_classes)
    if ignore_index is not None:
        valid = valid | (labels == ignore_index)
    if waits:
        torch._assert_async(valid.all(), f"{message}. Is num_classes right?")
    elif labels.numel() and not bool(valid.all()):
        wrong = labels[~valid].flatten()[0].item()
        raise ValueError(f"{message}, got {wrong}. Is num_classes right?")


def check_is_plan(plan: object) -> None:
    # by its parts: this file knows no plans
    if not hasattr(plan, "indices") or not hasattr(plan, "weights"):
        raise TypeError(f"plan must be a MixPlan, got {type(plan).__name__}.")


def check_plan(indices: Tensor, weights: Tensor, batch: int) -> None:
    """Indices and weights that make a plan for a batch of this size."""
    check_tensor("indices", indices)
    check_tensor("weights", weights)
    check_batch(batch)
    if indices.ndim != 2 or indices.shape != weights.shape or indices.shape[1] == 0:
        raise ValueError(
            "indices and weights must both be [outputs, sources], got "
            f"{list(indices.shape)} and {list(weights.shape)}."
        )
    if indices.dtype != torch.int64:
        raise TypeError(f"indices must be int64, got {indices.dtype}.")
    if not weights.is_floating_point():
        raise TypeError(f"weights must be floating point, got {weights.dtype}.")
    if indices.device != weights.device:
        raise ValueError(
            f"indices and weights must be on one device, got {indices.device} and {weights.device}."
        )
    # on a GPU an index out of range trips the assertion of the gather that uses it
    if not reads_need_sync(indices) and indices.numel():
        low, high = (int(bound) for bound in indices.aminmax())
        if low < 0 or high >= batch:
            wrong = low if low < 0 else high
            raise ValueError(f"indices must lie in [0, {batch}) for this batch, got {wrong}.")


def check_same_shape(first_name: str, first: Tensor, second_name: str, second: Tensor) -> None:
    if first.shape != second.shape:
        raise ValueError(
            f"{first_name} and {second_name} must have the same shape, got "
            f"{list(first.shape)} and {list(second.shape)}."
        )


def check_losses(name: str, value: Tensor, rows: int) -> None:
    check_tensor(name, value)
    if value.shape[0] != rows:
        raise ValueError(f"{name} must have {rows} rows for this plan, got {value.shape[0]}.")


def check_class_axis(logits: Tensor, weight: Tensor | None) -> None:
    """Logits with classes in dimension 1, and one class weight for each."""
    if logits.ndim < 2:
        raise ValueError(f"logits must be [n, classes, ...], got {list(logits.shape)}.")
    if weight is not None and weight.shape != (logits.shape[1],):
        raise ValueError(
            f"weight must hold one number per class, [{logits.shape[1]}], got {list(weight.shape)}."
        )
