"""fastai: `ZetaMixCallback`, an alternative to `fastai.callback.mixup.MixUp`."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fastai.callback.core import Callback  # type: ignore[import-untyped]
from fastai.losses import BaseLoss, LabelSmoothingCrossEntropy  # type: ignore[import-untyped]
from torch import Tensor, nn

from zetamix.batch_mix import BatchMix
from zetamix.integrations import check_arguments
from zetamix.losses import soft_cross_entropy

Loss = Callable[[Any, Any], Any]


class ZetaMixCallback(Callback):  # type: ignore[misc]
    """Mixes training batches and computes the loss with their soft targets.

    Validation batches are not mixed. `learn.yb` keeps the original labels, so training metrics, if
    enabled, use the label of each output's own sample.

    transform: ZetaMix, ZetaMixup, Mixup, CutMix or another of `zetamix.transforms`, with
        num_classes for integer labels. Its epoch is set to the learner's.
    loss_func: the loss of mixed batches, a function of predictions and soft targets. By default
        that of the learner: cross entropy, with its class weights and label smoothing, becomes
        `zetamix.soft_cross_entropy`; losses that take floating point targets are used unchanged.
    until: the fraction of each call of `fit` in which batches are mixed, such as 0.8; later ones
        are unmixed. None does not change `transform.enabled`.

    >>> from zetamix import ZetaMix
    >>> mix = ZetaMixCallback(ZetaMix(num_classes=10))  # Learner(..., cbs=mix)
    """

    # before callbacks that scale the loss, such as GradientAccumulation and MixedPrecision
    order = -5
    run_valid = False

    def __init__(
        self, transform: BatchMix, loss_func: Loss | None = None, until: float | None = None
    ) -> None:
        super().__init__()
        # without `until` any module is accepted, such as LabelSmoothing, which cannot be disabled
        check_arguments(transform, nn.Module if until is None else BatchMix, until)
        self.transform = transform
        self.until = until
        self.mixed_loss = loss_func  # the attribute `loss_func` is the learner's
        self.targets: Any = None

    def before_fit(self) -> None:
        # raises before training if the loss does not support soft targets
        self._loss()

    def before_train(self) -> None:
        if hasattr(self.transform, "set_epoch"):
            self.transform.set_epoch(self.learn.epoch)

    def before_batch(self) -> None:
        if len(self.learn.yb) != 1:
            raise ValueError(
                f"ZetaMixCallback expects batches with one target, got {len(self.learn.yb)}. "
                "Combine them into one tensor."
            )
        if self.until is not None:
            self.transform.enabled = self.learn.pct_train < self.until
        # fastai's tensor types restrict the types they can be combined with
        inputs = tuple(_plain(value) for value in self.learn.xb)
        mixed, self.targets = self.transform(
            inputs[0] if len(inputs) == 1 else inputs, _plain(self.learn.yb[0])
        )
        parts = (mixed,) if len(inputs) == 1 else mixed
        pairs = zip(parts, self.learn.xb, strict=True)
        self.learn.xb = tuple(part.as_subclass(type(given)) for part, given in pairs)

    def after_loss(self) -> None:
        # replaces the loss that the learner has just computed with the unmixed labels. Its loss
        # function is not replaced, so nothing has to be restored after an error
        self.learn.loss_grad = self._loss()(self.learn.pred, self.targets)
        self.learn.loss = self.learn.loss_grad.clone()
        self.targets = None

    def _loss(self) -> Loss:
        return self.mixed_loss or soft_loss(self.learn.loss_func)


def soft_loss(loss_func: Any) -> Loss:
    """The equivalent of a fastai or torch loss that takes soft targets."""
    inner = loss_func.func if isinstance(loss_func, BaseLoss) else loss_func
    options = {"reduction": getattr(inner, "reduction", "mean")}
    if isinstance(inner, nn.CrossEntropyLoss):
        options |= {"weight": inner.weight, "ignore_index": inner.ignore_index}
        options |= {"label_smoothing": inner.label_smoothing}
    elif isinstance(inner, LabelSmoothingCrossEntropy):
        options |= {"weight": inner.weight, "label_smoothing": inner.eps}
    elif getattr(loss_func, "y_int", False) or getattr(inner, "y_int", False):
        raise TypeError(
            f"{type(loss_func).__name__} takes class indices only, but mixed targets are soft. "
            "Pass loss_func= to ZetaMixCallback, a function of predictions and soft targets, or "
            "train with CrossEntropyLossFlat."
        )
    else:
        return loss_func  # type: ignore[no-any-return]
    return partial(_cross_entropy, options)


def _cross_entropy(options: dict[str, Any], predictions: Tensor, targets: Tensor) -> Tensor:
    return soft_cross_entropy(_plain(predictions), targets, **options)


def _plain(value: Any) -> Any:
    return value.as_subclass(Tensor) if isinstance(value, Tensor) else value
