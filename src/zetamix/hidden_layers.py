"""HiddenMix: mix the output of a layer inside a network, as manifold mixup does.

The paper names mixing in hidden layers as future work. With `Mixup` it is manifold mixup (Verma et
al., 2019).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from zetamix._checks import check_tensor
from zetamix.batch_mix import BatchMix
from zetamix.mix import apply_plan, plan_dtype
from zetamix.plan import MixPlan, identity_plan
from zetamix.rules import infer_rule
from zetamix.text import did_you_mean, join

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
    batch first, or a tuple that begins with one. The hook is removed after the forward pass. If the
    model or the transform is in eval mode, nothing is mixed and the targets have the same shape.

    layer_names: names of `model.named_modules()`, or "input" for the input of the model.
    transform: ZetaMixup, Mixup, or ZetaMix(keep_variance=False), with num_classes for integer
        labels. Hidden activations are not centred at 0, so their variance cannot be kept. All
        outputs are blended, including images at "input".
    generator: a CPU generator that draws the layer; by default that of the transform if it is on
        the CPU, else torch's default generator. Not used with a single layer.

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
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        self.model = model
        names = [layer_names] if isinstance(layer_names, str) else layer_names
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
            raise TypeError(
                "layer_names must be the name of a layer or a list of names, got "
                f"{type(layer_names).__name__}."
            )
        self.layer_names = tuple(names)
        self.transform = transform
        self._modules = _find_layers(model, self.layer_names)
        _check_transform(transform, self.layer_names)
        if generator is None and transform.generator is not None:
            generator = transform.generator if transform.generator.device.type == "cpu" else None
        if generator is not None and generator.device.type != "cpu":
            raise ValueError(
                f"generator must be on the CPU, where the layer is drawn, got {generator.device}. "
                "Pass that generator to the transform, and a CPU generator to HiddenMix."
            )
        self.generator = generator

    def __repr__(self) -> str:
        return f"HiddenMix({type(self.model).__name__}, {self.layer_names}, {self.transform!r})"

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
        batch = self._draw(labels)
        if batch.layer is None:
            yield batch
            return
        passes: list[str] = []
        handle = self._hook(batch, passes)
        try:
            yield batch
        finally:
            handle.remove()
        if not passes:
            raise RuntimeError(
                f"Layer {batch.layer!r} did not run, so nothing was mixed. Call the model once "
                "inside `with hidden.mixing(labels)`, and choose a layer that its forward calls."
            )

    def _draw(self, labels: Tensor) -> HiddenBatch:
        check_tensor("labels", labels)
        transform, count = self.transform, labels.shape[0]
        rule = infer_rule(labels, transform.num_classes, transform.ignore_index)
        dtype = plan_dtype([labels, next(self.model.parameters(), labels)])
        if not self.model.training:
            plan = identity_plan(count, device=labels.device, dtype=dtype)
            return HiddenBatch(None, plan, rule.mix(labels, plan))
        layer = self.layer_names[0]
        if len(self.layer_names) > 1:
            drawn = torch.randint(len(self.layer_names), (), generator=self.generator)
            layer = self.layer_names[int(drawn)]
        plan = transform.make_plan(count, device=labels.device, dtype=dtype)
        return HiddenBatch(layer, plan, rule.mix(labels, plan))

    def _hook(self, batch: HiddenBatch, passes: list[str]) -> Any:
        """Hook the layer, so that its next output is mixed; `passes` counts its calls."""

        def mix(value: Any) -> Any:
            passes.append(str(batch.layer))
            if len(passes) > 1:
                raise RuntimeError(
                    f"Layer {batch.layer!r} ran twice in one forward pass, and only one output can "
                    "be mixed. Choose a layer that runs once, not a module used in several "
                    "places such as a shared ReLU."
                )
            if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
                return (self._mix(value[0], batch), *value[1:])
            return self._mix(value, batch)

        module = self._modules[str(batch.layer)]
        _refuse_compiled(self.model, module)
        if module is self.model:
            return module.register_forward_pre_hook(lambda _, inputs: mix(inputs or None))
        return module.register_forward_hook(lambda _, inputs, output: mix(output))

    def _mix(self, hidden: Any, batch: HiddenBatch) -> Tensor:
        where = "The model's input" if batch.layer == INPUT else f"The output of {batch.layer!r}"
        if not isinstance(hidden, Tensor):
            raise TypeError(
                f"{where} must be a tensor, or a tuple that begins with one, got "
                f"{'no positional argument' if hidden is None else type(hidden).__name__}. Choose "
                "a layer inside it."
            )
        if not hidden.is_floating_point():
            raise TypeError(
                f"{where} must be floating point, got {hidden.dtype}. Choose a later layer, such "
                "as the embedding."
            )
        plan = batch.plan
        if hidden.ndim == 0 or hidden.shape[0] != plan.batch_size:
            raise ValueError(
                f"{where} must have one row per label, {plan.batch_size}, got "
                f"{list(hidden.shape)}. Check that the labels belong to this batch, and set "
                "batch_first=True in layers with the batch as second dimension."
            )
        plan = plan if plan.device == hidden.device else plan.to(hidden.device)
        return apply_plan(hidden, plan, implementation=self.transform.implementation)


def _find_layers(model: nn.Module, names: Sequence[str]) -> dict[str, nn.Module]:
    """The named modules; "input" means the model itself, unless it has a layer of that name."""
    known = dict(model.named_modules())
    known.pop("", None)
    if not names:
        raise ValueError("Expected at least one layer name, got none.")
    found = {}
    for name in names:
        if name not in known and name != INPUT:
            inner = [other for other in known if other.endswith(f".{name}")]
            hint = f" Did you mean {join(inner[:3], 'or')}?" if inner else did_you_mean(name, known)
            raise ValueError(
                f"{type(model).__name__} has no layer {name!r}.{hint} Expected a name of "
                'model.named_modules(), or "input".'
            )
        found[name] = known.get(name, model)
    return found


def _refuse_compiled(model: nn.Module, layer: nn.Module) -> None:
    """Raise if the layer is compiled: the graph would keep the hook and plan of its first call."""
    for name, module in model.named_modules():
        compiled = hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
        if compiled and any(part is layer for part in module.modules()):
            raise RuntimeError(
                f"{name or 'The model'} is compiled, and a compiled graph would mix every batch "
                "with the plan of the first. Pass the model as it was before torch.compile, or "
                "compile only modules that do not contain the layer."
            )


def _check_transform(transform: object, names: Sequence[str]) -> None:
    if not isinstance(transform, BatchMix):
        raise TypeError(
            f"transform must be a ZetaMixup, Mixup or ZetaMix, got {type(transform).__name__}."
        )
    if transform.rules is not None:
        raise ValueError("HiddenMix does not support rules. Pass num_classes to the transform.")
    if transform.paste:
        raise ValueError(
            f"{type(transform).__name__} pastes boxes into images, which HiddenMix does not "
            "support. Use ZetaMixup, Mixup, or ZetaMix without paste=."
        )
    if transform.keeps_variance and any(name != INPUT for name in names):
        raise ValueError(
            "keep_variance scales deviations from a mean of 0, which the outputs of hidden layers "
            "do not have. Pass keep_variance=False, or use ZetaMixup."
        )
