"""Keras 3: `ZetaMix`, a layer for batches like `keras.layers.MixUp` and `CutMix`.

It takes and returns a dict of `images` and `labels`. The plan is drawn by zetamix and applied with
`keras.ops`, so that a seed gives the same batch on every backend.
"""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import keras  # type: ignore[import-untyped]
import numpy
import torch
from keras import ops

from zetamix import transforms
from zetamix.plan import MixPlan, PlanArrays, identity_plan
from zetamix.rules import infer_rule


@keras.saving.register_keras_serializable(package="zetamix")
class ZetaMix(keras.layers.Layer):  # type: ignore[misc]
    """`zetamix.ZetaMix` as a Keras layer.

    num_classes: for integer labels [n] or [n, 1], which become soft targets [n, num_classes], and
        integer `segmentation_masks`, which become soft masks. Floating point ones are averaged.
    gamma, sources, keep_variance, paste: as in `zetamix.ZetaMix`: half of the images are pasted by
        default, and half are blended. γ is a number or a range.
    mean: the mean of the images, in their own units: one number or one per channel. Without it,
        images are assumed to be normalised to mean 0; otherwise pass keep_variance=False.
    value_range: (low, high) to clip images to, such as (0, 255); None does not clip.
    p: the probability that an output is mixed.
    seed: seed of the plans; random by default.
    data_format: "channels_last" or "channels_first"; Keras's default if None.
    """

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        gamma: float | Sequence[float] = (0.0, 4.0),
        sources: int | None = 2,
        keep_variance: bool | None = None,
        paste: float | None = None,
        mean: float | Sequence[float] | None = None,
        value_range: Sequence[float] | None = None,
        p: float = 1.0,
        seed: int | None = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.num_classes = num_classes
        gamma = gamma if isinstance(gamma, (int, float)) else (gamma[0], gamma[1])
        self.options: dict[str, Any] = {"gamma": gamma, "sources": sources, "paste": paste}
        self.options |= {"keep_variance": keep_variance, "p": p}
        self.mean = mean
        self.value_range = value_range
        self.seed = seed
        self.data_format = keras.config.image_data_format() if data_format is None else data_format
        if self.data_format not in ("channels_last", "channels_first"):
            raise ValueError(
                f"data_format must be channels_last or channels_first, got {data_format!r}."
            )
        self._looked = False
        generator = torch.Generator()
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)
        # it only plans, and keeps the variance where targets are classes
        transform = transforms.ZetaMix(num_classes=num_classes, generator=generator, **self.options)
        # past Keras, which with torch as its backend would make the transform a part of the model
        self.__dict__["transform"] = transform

    def __call__(self, data: dict[str, Any], **kwargs: Any) -> Any:
        if not isinstance(data, dict) or not {"images", "labels"} <= set(data):
            got = sorted(data) if isinstance(data, dict) else type(data).__name__
            raise TypeError(
                f"{type(self).__name__} expects a dict with the keys images and labels, got {got}."
            )
        if "bounding_boxes" in data:
            raise ValueError(
                "Bounding boxes cannot be mixed. Remove bounding_boxes from the batch."
            )
        _refuse_trace(type(self).__name__, data["images"])
        return super().__call__(data, **kwargs)

    def call(self, data: dict[str, Any], training: bool = True) -> dict[str, Any]:
        images = data["images"]
        if len(images.shape) != 4:
            raise ValueError(
                f"{type(self).__name__} expects a batch of images of rank 4, got "
                f"{list(images.shape)}."
            )
        last = self.data_format == "channels_last"
        size = tuple(images.shape[1:3] if last else images.shape[2:4])
        # signals are blended: without a size, zetamix.ZetaMix does not paste
        is_signal = self.transform.paste is None and min(size) == 1
        plan = identity_plan(images.shape[0])
        if training:
            plan = self.transform.make_plan(images.shape[0], size=None if is_signal else size)
        mixed = {"images": self._mix_images(images, plan.numpy())}
        mixed["labels"] = self._mix_labels(data["labels"], plan)
        if "segmentation_masks" in data:
            mixed["segmentation_masks"] = self._mix_masks(data["segmentation_masks"], plan)
        return {**data, **mixed}

    def _mix_images(self, images: Any, plan: PlanArrays) -> Any:
        if not keras.backend.is_float_dtype(images.dtype):
            images = ops.cast(images, keras.config.floatx())
        dtype = keras.backend.standardize_dtype(images.dtype)
        if plan.scale is not None:
            self._check_mean(images)
        each, last = (-1, 1, 1, 1), self.data_format == "channels_last"
        weights = plan.weights if plan.scale is None else plan.weights * plan.scale[:, None]
        sources = [ops.take(images, rows, axis=0) for rows in plan.indices.T]
        mixed = ops.zeros_like(images)
        for source, weight in zip(sources, weights.T, strict=True):
            mixed = mixed + ops.convert_to_tensor(weight.reshape(each), dtype) * source
        if plan.scale is not None and self.mean is not None:
            mean = numpy.reshape(self.mean, (1, 1, 1, -1) if last else (1, -1, 1, 1))
            rest = (1 - plan.scale).reshape(each) * mean
            mixed = mixed + ops.convert_to_tensor(rest, dtype)
        if self.value_range is not None:
            mixed = ops.clip(mixed, *self.value_range)
        if plan.boxes is None:
            return mixed
        height, width = images.shape[1:3] if last else images.shape[2:4]
        rows, columns = numpy.arange(height)[:, None], numpy.arange(width)
        for source, box in zip(sources, plan.boxes.swapaxes(0, 1), strict=True):
            top, left, bottom, right = box.T[:, :, None, None]
            inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
            covers = inside[..., None] if last else inside[:, None]
            mixed = ops.where(ops.convert_to_tensor(covers), source, mixed)
        return mixed

    def _check_mean(self, images: Any) -> None:
        """Check on the first batch that `mean` is in the units of the images."""
        if self._looked:
            return
        low, high = float(ops.min(images)), float(ops.max(images))
        if self.mean is not None and low >= 0 and high > 2 and numpy.max(self.mean) <= 1:
            raise ValueError(
                f"mean must be in the units of the images, which reach {high:g}, got {self.mean}. "
                "For images in [0, 255], multiply it by 255."
            )
        if self.mean is None and low >= 0:
            warnings.warn(
                "The images have no negative values, so they are not normalised, and keeping their "
                "variance would scale their mean as well. Normalise them first, or pass mean=, or "
                "keep_variance=False.",
                stacklevel=2,
            )
        self._looked = True

    def _mix_labels(self, labels: Any, plan: MixPlan) -> Any:
        """Mix labels on the host with the rules of zetamix, which check their values."""
        tensor = torch.from_numpy(numpy.array(ops.convert_to_numpy(labels)))
        return ops.convert_to_tensor(infer_rule(tensor, self.num_classes).mix(tensor, plan).numpy())

    def _mix_masks(self, masks: Any, plan: MixPlan) -> Any:
        channels = -1 if self.data_format == "channels_last" and len(masks.shape) == 4 else 1
        mixed = self._mix_labels(ops.moveaxis(masks, channels, 1), plan)
        back = -1 if self.data_format == "channels_last" else 1
        return ops.moveaxis(mixed, 1, back) if len(mixed.shape) == 4 else mixed

    def get_config(self) -> dict[str, Any]:
        names = ("num_classes", "mean", "value_range", "seed", "data_format")
        config: dict[str, Any] = {**super().get_config(), **self.options}
        return {**config, **{name: getattr(self, name) for name in names}}


def _refuse_trace(name: str, images: Any) -> None:
    """Raise while a function is traced: its plan would be used for every batch."""
    tf, jax = sys.modules.get("tensorflow"), sys.modules.get("jax")
    if (
        isinstance(images, keras.KerasTensor)
        or (tf is not None and not tf.executing_eagerly())
        or (jax is not None and isinstance(images, jax.core.Tracer))
    ):
        raise RuntimeError(
            f"{name} draws a new plan for each batch, but a traced function (jax.jit, "
            "tf.function, tf.data's map, the graph of a model) would use the first plan for all. "
            "Mix batches before they reach the model: in a keras.utils.PyDataset, a generator or "
            "a loop over the data."
        )
