"""transformers: `MixingTrainer`, a Hugging Face Trainer that mixes training batches.

From soft labels, models of transformers infer multi-label classification and use binary cross
entropy. `MixingTrainer` uses cross entropy.
"""

import functools
import math
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

from zetamix.losses import soft_cross_entropy
from zetamix.transforms import BatchMix, check_transform

SINGLE_LABEL = "single_label_classification"
# saved with the model in every checkpoint, one file per process
STATE = "zetamix_{}.pt"


class MixingTrainer(Trainer):
    """A Trainer that mixes training batches on the device. Evaluation is unchanged.

    All floating point inputs (`pixel_values`, `inputs_embeds`, …) are mixed with one plan; other
    inputs, such as masks, are not changed. Class indices become soft targets, and the loss is cross
    entropy with `label_smoothing_factor`, scaled for gradient accumulation as in Trainer. Floating
    point labels (multi-label, regression) are averaged, and the loss is that of the model, unless
    its configuration sets single-label classification. A `compute_loss_func` is called with the
    mixed labels.

    The trainer sets the epoch of the transform, which ends mixing at its `until`; where training is
    limited by `max_steps`, steps are counted. It saves the state of the transform in every
    checkpoint, one file per process: with a generator, `train(resume_from_checkpoint=...)` resumes
    with the next plans of its sequence.

    transform: ZetaMix, ZetaMixup, Mixup, CutMix or MixupOrCutMix; with `rules=` it is called with
        the whole batch, a dict.
    """

    def __init__(self, *args: Any, transform: BatchMix, **kwargs: Any) -> None:
        check_transform(transform)
        super().__init__(*args, **kwargs)
        self.transform = transform
        self.add_callback(_TransformState(transform))

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Train; when resuming from a checkpoint, load the state of the transform as well."""
        if resume_from_checkpoint is True:
            last = get_last_checkpoint(self.args.output_dir)  # type: ignore[no-untyped-call]
            resume_from_checkpoint = last or True
        if isinstance(resume_from_checkpoint, str):
            path = Path(resume_from_checkpoint, STATE.format(self.args.process_index))
            if path.exists():
                self.transform.load_state_dict(torch.load(path, weights_only=True))
            else:
                warnings.warn(
                    f"{path.parent} has no {path.name}: training will not resume with the same "
                    "random plans.",
                    stacklevel=2,
                )
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """The loss of the mixed batch in training; otherwise that of Trainer."""
        if not model.training or "labels" not in inputs:
            return super().compute_loss(model, inputs, *args, **kwargs)
        mixed = self._mix(inputs)
        hard = not inputs["labels"].is_floating_point()
        config: Any = getattr(self.accelerator.unwrap_model(model), "config", None)
        problem = getattr(config, "problem_type", SINGLE_LABEL if hard else None)
        if hard and problem is None:
            # the model would infer it from class indices, and save it
            config.problem_type = problem = SINGLE_LABEL
        given = self.compute_loss_func
        if given is None and problem == SINGLE_LABEL:
            self.compute_loss_func = functools.partial(
                _soft_loss,
                label_smoothing=self.args.label_smoothing_factor,
                items_per_sample=inputs["labels"][0].numel(),
            )
        try:
            return super().compute_loss(model, mixed, *args, **kwargs)
        finally:
            # evaluation uses the loss of the model
            self.compute_loss_func = given

    def _mix(self, inputs: dict[str, Any]) -> dict[str, Any]:
        if self.transform.rules is not None:
            return self.transform(dict(inputs))  # type: ignore[no-any-return]
        samples = {
            name: value
            for name, value in inputs.items()
            if name != "labels" and isinstance(value, Tensor) and value.is_floating_point()
        }
        if not samples:
            raise TypeError(
                "Expected floating point inputs to mix, such as pixel_values or inputs_embeds, "
                f"got {', '.join(inputs)}. Token ids cannot be mixed: pass their embeddings."
            )
        if len(samples) == 1:
            # a single tensor takes the fastest path
            (name,) = samples
            samples[name], targets = self.transform(samples[name], inputs["labels"])
        else:
            samples, targets = self.transform(samples, inputs["labels"])
        return {**inputs, **samples, "labels": targets}


def _soft_loss(
    outputs: Any,
    targets: Tensor,
    num_items_in_batch: Any = None,
    *,
    label_smoothing: float,
    items_per_sample: int,
) -> Tensor:
    """Cross entropy: the mean, or the sum divided by the samples of all accumulated batches.

    items_per_sample: entries of the labels per sample, which Trainer counts as items.
    """
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    if num_items_in_batch is None:
        return soft_cross_entropy(logits, targets, label_smoothing=label_smoothing)
    total = soft_cross_entropy(logits, targets, label_smoothing=label_smoothing, reduction="sum")
    scaled: Tensor = total * items_per_sample / num_items_in_batch
    return scaled


class _TransformState(TrainerCallback):
    """Tells the transform how far training is, and saves its state."""

    def __init__(self, transform: BatchMix) -> None:
        self.transform = transform

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # the number of epochs is rounded up, as that of a loop would be
        if args.max_steps <= 0:
            self.transform.set_epoch(int(state.epoch or 0), math.ceil(args.num_train_epochs))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.max_steps > 0:
            done = state.global_step / state.max_steps
            self.transform.set_progress(done, int(state.epoch or 0))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_hyper_param_search:
            return
        folder = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        folder.mkdir(parents=True, exist_ok=True)
        state = dict(self.transform.state_dict())
        torch.save(state, folder / STATE.format(args.process_index))
