"""HiddenMix: mix the output of a layer inside a network.

The paper names mixing in hidden layers as future work. With `Mixup` it is manifold mixup (Verma et
al., 2019).
"""

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zetamix.checks import check_tensor
from zetamix.mix import apply_plan
from zetamix.plan import MixPlan, identity_plan
from zetamix.rules import infer_rule, plan_dtype
from zetamix.transforms import BatchMix, check_transform

INPUT = "input"


@dataclass(frozen=True)
class HiddenBatch:
    """The layer, the plan and the targets of one forward pass."""

    layer: str | None
    """The layer whose output is mixed; None if the model is in eval mode."""
    plan: MixPlan
    """The plan, to mix other inputs of the batch, such as a padding mask."""
    targets: Tensor
    """The mixed targets."""


class HiddenMix:
    """Mixes the output of a layer of `model`, and the labels of the batch, with the same plan.

    One of the layers is drawn for each batch. A forward hook mixes its output: a tensor with the
    batch first, or a tuple that begins with one. The hook is removed after the forward pass, so a
    layer that activation checkpointing recomputes in the backward pass raises an error. If the
    model or the transform is in eval mode, nothing is mixed and the targets have the same shape.

    layer_names: names of `model.named_modules()`, or "input" for the input of the model.
    transform: ZetaMixup, Mixup, or ZetaMix(keep_variance=False), with num_classes for integer
        labels. Hidden activations are not centred at 0, so their variance cannot be kept. All
        outputs are blended, including images at "input".

    The generator of the transform draws the layer if it is on the CPU, else torch's default one.

    >>> from zetamix import ZetaMixup
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> hidden = HiddenMix(model, ["input", "1"], ZetaMixup(num_classes=3))
    >>> logits, targets = hidden(torch.randn(16, 4), torch.randint(3, (16,)))
    >>> logits.shape, targets.shape
    (torch.Size([16, 3]), torch.Size([16, 3]))
    """

    def __init__(
        self,
        model: nn.Module,
        layer_names: str | Sequence[str],
        transform: BatchMix,
    ) -> None:
        self.model = model
        self.transform = transform
        self._modules = _find_layers(model, layer_names)
        self.layer_names = tuple(self._modules)
        _check_transform(transform, self.layer_names)

    def __call__(self, inputs: Any, labels: Tensor, /, **options: Any) -> tuple[Any, Tensor]:
        """Return `(model(inputs, **options), targets)`, mixed in one of the layers."""
        with self.mixing(labels) as batch:
            output = self.model(inputs, **options)
        return output, batch.targets

    @contextmanager
    def mixing(self, labels: Tensor) -> Iterator[HiddenBatch]:
        """Mix the forward pass of the model inside the `with` block, which must be exactly one.

        For models that are not called as `model(inputs, **options)`, and for other inputs that must
        be mixed with the same plan: `batch.plan` is available before the model runs.
        """
        check_tensor("labels", labels)
        transform, batch, device = self.transform, labels.shape[0], labels.device
        rule = infer_rule(labels, transform._one_hot)
        dtype = plan_dtype([labels, next(self.model.parameters(), labels)])
        if not self.model.training:
            plan = identity_plan(batch, device=device, dtype=dtype)
            yield HiddenBatch(None, plan, rule.mix(labels, plan))
            return
        layer = self.layer_names[0]
        if len(self.layer_names) > 1:
            own = transform.generator
            own = own if own is not None and own.device.type == "cpu" else None
            layer = self.layer_names[int(torch.randint(len(self.layer_names), (), generator=own))]
        plan = transform.make_plan(batch, device=device, dtype=dtype)
        module, done, with_gradients = self._modules[layer], False, torch.is_grad_enabled()

        def mix(value: Any) -> Any:
            nonlocal done
            if done:
                raise RuntimeError(
                    f"Layer {layer!r} ran twice in one forward pass. Choose a layer that runs "
                    "once, not a module used in several places such as a shared ReLU."
                )
            # use_reentrant=True runs the layer without gradients, and again in the backward pass,
            # where the hook is gone: a gradient was wrong by 35 %
            if with_gradients and not torch.is_grad_enabled():
                raise RuntimeError(
                    f"Layer {layer!r} runs without gradients, as in activation checkpointing with "
                    "use_reentrant=True, whose backward pass would run it again unmixed. Choose a "
                    "layer outside of the checkpointed or frozen part."
                )
            done = True
            return _mix_first(value, layer, plan)

        _refuse_compiled(self.model, module)
        if module is self.model:
            handle = module.register_forward_pre_hook(lambda _, inputs: mix(inputs or None))
        else:
            handle = module.register_forward_hook(lambda _, inputs, output: mix(output))
        try:
            yield HiddenBatch(layer, plan, rule.mix(labels, plan))
        finally:
            handle.remove()
        if not done:
            raise RuntimeError(
                f"Layer {layer!r} did not run, so nothing was mixed. Call the model once inside "
                "`with hidden.mixing(labels)`, and choose a layer that its forward calls."
            )


def _mix_first(value: Any, layer: str, plan: MixPlan) -> Any:
    """Mix the output of a layer, a tensor or a tuple that begins with one."""
    is_tuple = isinstance(value, tuple) and len(value) > 0
    hidden = value[0] if is_tuple else value
    where = "The model's input" if layer == INPUT else f"The output of {layer!r}"
    got = "no positional argument" if value is None else type(hidden).__name__
    if isinstance(hidden, Tensor):
        got = f"{hidden.dtype} {list(hidden.shape)}"
        if hidden.is_floating_point() and hidden.shape[:1] == (plan.batch_size,):
            mixed = apply_plan(hidden, plan.to(hidden.device))
            return (mixed, *value[1:]) if is_tuple else mixed
    raise TypeError(
        f"{where} must be a floating point tensor with one row per label, [{plan.batch_size}, ...],"
        f" or a tuple that begins with one, got {got}. Choose a later layer, such as the embedding,"
        " and set batch_first=True in layers with the batch as second dimension."
    )


def _find_layers(model: nn.Module, names: str | Sequence[str]) -> dict[str, nn.Module]:
    """The named modules; "input" means the model itself, unless it has a layer of that name."""
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, Sequence) or not names:
        raise TypeError(
            f"layer_names must be the name of a layer or a list of names, got {names!r}."
        )
    known = {name: module for name, module in model.named_modules() if name}
    for name in names:
        if name not in known and name != INPUT:
            inner = [other for other in known if other.endswith(f".{name}")]
            near = inner[:3] or difflib.get_close_matches(str(name), known, 1)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ValueError(
                f"{type(model).__name__} has no layer {name!r}.{hint} Expected a name of "
                'model.named_modules(), or "input".'
            )
    return {name: known.get(name, model) for name in names}


def _refuse_compiled(model: nn.Module, layer: nn.Module) -> None:
    """Raise if the layer is compiled: the graph would keep the hook and plan of its first call."""
    for name, module in model.named_modules():
        compiled = hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None)
        if compiled and any(part is layer for part in module.modules()):
            raise RuntimeError(
                f"{name or 'The model'} is compiled, and a compiled graph would mix every batch "
                "with the plan of the first. Pass the model as it was before torch.compile, or "
                "compile only modules that do not contain the layer."
            )


def _check_transform(transform: BatchMix, names: Sequence[str]) -> None:
    check_transform(transform)
    if transform.rules is not None or transform.needs_images:
        raise ValueError(
            "HiddenMix takes ZetaMixup, Mixup or ZetaMix, which blend, without rules, got "
            f"{transform}. Pass num_classes to the transform."
        )
    if getattr(transform, "keep_variance", False) and any(name != INPUT for name in names):
        raise ValueError(
            "keep_variance scales deviations from a mean of 0, which the outputs of hidden layers "
            "do not have. Pass keep_variance=False, or use ZetaMixup."
        )
