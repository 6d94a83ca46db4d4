"""Select the implementation: "auto" falls back silently, "fused" raises if it cannot be used."""

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad

from zetamix._checks import check_choice
from zetamix.kernels import copy_boxes, embedding_bag, numpy_few, reference
from zetamix.kernels.numpy_few import FewPlan
from zetamix.kernels.plan_spec import MOST_CHANNELS, MOST_FEW, PLAIN, Finish, Origin, PlanSpec

Implementation: TypeAlias = Literal["auto", "fused", "reference"]
IMPLEMENTATIONS = ("auto", "fused", "reference")
FUSED_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)
# floating point of 16 bits or more, and the integers that float32 holds exactly
MIXABLE = {*FUSED_DTYPES, torch.float64, torch.int8, torch.int16}
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def mix_samples(
    samples: Tensor, indices: Tensor, weights: Tensor, implementation: Implementation = "auto"
) -> Tensor:
    """Apply a plan to samples [batch, ...]; dtype and memory format are kept."""
    if samples.dtype not in MIXABLE:
        refuse_dtype(samples.dtype)
    return _by_rows(samples, mix_rows, indices, weights, implementation)


def _by_rows(samples: Tensor, mix: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """Mix samples flattened to [batch, features], and keep their shape and memory format."""
    # features in memory order: channels_last is not copied
    channels_last = not samples.is_contiguous() and is_channels_last(samples)
    ordered = samples.movedim(1, -1) if channels_last else samples
    shape = ordered.shape[1:]
    mixed = mix(ordered.reshape(samples.shape[0], shape.numel()), *arguments)
    mixed = mixed.view(mixed.shape[0], *shape)
    return mixed.movedim(-1, 1) if channels_last else mixed


def refuse_dtype(dtype: torch.dtype) -> None:
    raise TypeError(
        f"samples must be floating point of 16 bits or more, uint8, int8 or int16, got {dtype}. "
        "Convert them with .float(). Token ids cannot be mixed: mix their embeddings."
    )


def paste(mixed: Tensor, samples: Tensor, indices: Tensor, boxes: Tensor) -> Tensor:
    """Paste boxes into a new result of `mix_samples`, possibly in place; see `reference.paste`."""
    on_cpu = mixed.device.type == "cpu" and not torch.compiler.is_compiling()
    if on_cpu and not needs_gradients(mixed) and not needs_gradients(samples):
        return copy_boxes.paste(mixed, samples, indices, boxes)
    return reference.paste(mixed, samples, indices, boxes)


def mixes_few(samples: Tensor, sources: int, implementation: Implementation) -> bool:
    """Whether `mix_few` supports this number of sources: on a CPU, without gradients."""
    by_bags = numpy_few.np is not None and uses_bags(samples, sources, implementation)
    return by_bags and sources <= MOST_FEW


def mix_few(
    samples: Tensor,
    plan: FewPlan,
    keep_variance: bool,
    pastes: bool,
    blend: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    """Blend samples, and paste the boxes of the plan if they are for samples of this size.

    pastes: whether they are. blend: blends the samples by indices and weights, [outputs, sources];
    None for samples that have the dtype of the weights.
    """
    parts = numpy_few.blended_parts(plan, keep_variance, pastes)
    if blend is None:
        mixed = _by_rows(samples, embedding_bag.sum_rows, *parts)
    else:
        mixed = blend(*parts)
    if pastes:
        copy_boxes.copy(mixed, samples, numpy_few.boxes_to_copy(plan))
    return mixed


def is_channels_last(samples: Tensor) -> bool:
    return (
        not samples.is_contiguous()
        and samples.ndim in CHANNELS_LAST
        and samples.is_contiguous(memory_format=CHANNELS_LAST[samples.ndim])
    )


def mix_rows(
    rows: Tensor, indices: Tensor, weights: Tensor, implementation: Implementation = "auto"
) -> Tensor:
    """Apply a plan to samples flattened to [batch, features]; see `reference.mix_rows`."""
    if uses_fused(implementation, rows, weights):
        with _current_device(rows.device):
            mixed: Tensor = _triton().mix_rows(rows, indices, weights.float(), tf32=allows_tf32())
        return mixed
    if uses_bags(rows, indices.shape[1], implementation) and not needs_gradients(weights):
        return embedding_bag.mix_rows(rows, indices, weights)
    return reference.mix_rows(rows, indices, weights)


def uses_bags(samples: Tensor, sources: int, implementation: Implementation) -> bool:
    """Whether to mix with torch's embedding bags: few sources on a CPU, without gradients."""
    return (
        implementation == "auto"
        and samples.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and samples.numel() > 0
        and (sources <= MOST_FEW or sources * 4 <= samples.shape[0])
        and not needs_gradients(samples)
    )


def uses_fused(implementation: Implementation, rows: Tensor, weights: Tensor | None = None) -> bool:
    """Whether to use the Triton kernels; raises if they are requested and cannot be used."""
    if implementation == "reference":
        return False
    if implementation not in IMPLEMENTATIONS:
        check_choice("implementation", implementation, IMPLEMENTATIONS)
    obstacle = why_not_fused(rows, weights)
    if obstacle is not None and implementation == "fused":
        raise ValueError(
            f"implementation='fused' cannot be used here: {obstacle}. Use 'auto' or 'reference'."
        )
    return obstacle is None


def why_not_fused(rows: Tensor, weights: Tensor | None = None) -> str | None:
    """The reason why the Triton kernels cannot mix these rows, or None if they can."""
    if torch.compiler.is_compiling():
        return "torch.compile traces plain torch"
    obstacle = missing_for_kernels(rows.device)
    if obstacle is not None:
        return obstacle
    if rows.dtype not in FUSED_DTYPES:
        return f"it supports float32, float16, bfloat16 and uint8, not {rows.dtype}"
    if needs_gradients(rows):
        return "the samples require gradients"
    if weights is not None and needs_gradients(weights):
        return "the weights of the plan require gradients"
    return None


def needs_gradients(tensor: Tensor) -> bool:
    """Whether autograd, in reverse or forward mode, or torch.func tracks the tensor."""
    if tensor.requires_grad and torch.is_grad_enabled():
        return True
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return True
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]


def plan_drawer(
    spec: PlanSpec, device: torch.device, dtype: torch.dtype
) -> Literal["triton", "numpy"] | None:
    """What draws this plan: the Triton kernels, `numpy_few`, or plain torch (None)."""
    # checked first: a traced function must not compare the number of sources
    if torch.compiler.is_compiling():
        return None
    if missing_for_kernels(device) is not None:
        few = device.type == "cpu" and spec.shape.sources <= MOST_FEW and numpy_few.np is not None
        plain = dtype in numpy_few.DTYPES and not isinstance(spec.parameter, Tensor)
        return "numpy" if few and plain else None
    if isinstance(spec.parameter, Tensor) and needs_gradients(spec.parameter):
        return None
    draws = dtype == torch.float32 and spec.shape.order_width <= _triton().MAX_SORTED
    return "triton" if draws else None


def draw_plan(spec: PlanSpec, origin: Origin, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices and weights of a plan, [outputs, sources], from the plan kernel."""
    if is_few(spec):
        return draw_few(spec, PLAIN, None, origin, device)[:2]
    with _current_device(device):
        indices, weights = _triton().draw_plan(spec, origin, device)
    return indices, weights


def is_few(spec: PlanSpec) -> bool:
    """Whether the kernel for few sources draws and mixes this plan on a GPU."""
    return spec.shape.sources <= MOST_FEW and spec.shape.order_width == spec.shape.sources


def draw_few(
    spec: PlanSpec,
    finish: Finish,
    size: tuple[int, int] | None,
    origin: Origin,
    device: torch.device,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Indices, weights and boxes of a finished plan of few sources, from their kernel."""
    with _current_device(device):
        indices, weights, boxes = _triton_few().draw_plan(spec, finish, size, origin, device)
    return indices, weights, boxes


def mixes_labelled(spec: PlanSpec, finish: Finish, samples: Tensor) -> bool:
    """Whether `prepare_labelled` has kernels for these samples and this plan."""
    if not is_few(spec):
        return finish == PLAIN
    if finish.mean is None:
        # `rules.Blend` raises for integers if the variance is to be kept
        return samples.is_floating_point() or not finish.keep_variance
    means = len(finish.mean) if isinstance(finish.mean, Sequence) else 1
    return means == 1 or (means <= MOST_CHANNELS and samples.shape[1:2] == (means,))


def prepare_labelled(
    samples: Tensor,
    labels: Tensor,
    num_classes: int,
    ignore_index: int | None,
    spec: PlanSpec,
    finish: Finish,
) -> Callable[[Tensor, Tensor, Origin], tuple[Tensor, Tensor]]:
    """A function of (samples, labels, origin), for batches of the same shapes and dtypes.

    It draws the plan and mixes samples and labels, in one launch for few sources and else in two.
    No `MixPlan` is created.
    """
    # dense, with the batch as outermost dimension; the order of the others does not matter
    dense = is_channels_last(samples) or samples.is_contiguous()
    triton, device = _triton(), samples.device
    batch = triton.Batch.of(samples if dense else samples.contiguous(), labels)
    arguments = batch, spec.shape, num_classes, ignore_index
    # the kernels for many sources depend on whether TF32 is allowed, which may change
    runs: dict[bool, Any] = {}
    few = _triton_few().prepare(*arguments, finish) if is_few(spec) else None
    plain_labels = labels.ndim == 1 and labels.is_contiguous()

    def call(samples: Tensor, labels: Tensor, origin: Origin) -> tuple[Tensor, Tensor]:
        if not dense:
            samples = samples.contiguous()
        if not plain_labels:
            labels = labels.flatten().contiguous()
        run = few
        if run is None:
            tf32 = allows_tf32()
            run = runs.get(tf32) or runs.setdefault(tf32, triton.prepare(*arguments, tf32=tf32))
        if device.type == "cuda" and device.index != torch._C._cuda_getDevice():
            # Triton launches on the current device
            with torch.cuda.device(device):
                return run(samples, labels, spec, origin)  # type: ignore[no-any-return]
        return run(samples, labels, spec, origin)  # type: ignore[no-any-return]

    return call


def _current_device(device: torch.device) -> AbstractContextManager[object]:
    """Make the device of the samples the current one, on which Triton launches."""
    if device.type != "cuda" or device.index == torch._C._cuda_getDevice():
        return nullcontext()
    return torch.cuda.device(device)


def allows_tf32() -> bool:
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


@lru_cache(maxsize=16)
def missing_for_kernels(device: torch.device) -> str | None:
    """Why the Triton kernels cannot run on a device, or None if they can."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if device.type != "cuda":
        return f"it needs a CUDA device, not {device.type}"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    if torch.version.hip is None and torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or newer"
    return None


@lru_cache(maxsize=1)
def _triton() -> Any:
    # imported on first use: importing triton is slow, and most machines do not need it
    from zetamix.kernels import triton_launch

    return triton_launch


@lru_cache(maxsize=1)
def _triton_few() -> Any:
    from zetamix.kernels import triton_few_launch

    return triton_few_launch
