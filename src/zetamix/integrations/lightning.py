"""Lightning: `MixCallback`, which applies a transform of this library to training batches."""

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import distributed

from zetamix.transforms import BatchMix, check_transform

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback

HOOK = "on_after_batch_transfer"


class MixCallback(Callback):
    """Mixes every training batch on the device, after Lightning has moved it there.

    Validation, test and prediction batches are not mixed. `training_step` receives what the
    transform returns: soft targets instead of class indices, which `F.cross_entropy` accepts. An
    `on_after_batch_transfer` of the module or the data module is called first.

    The callback sets the epoch of the transform, which ends mixing at its `until`; where training
    is limited by `max_steps`, steps are counted. Checkpoints contain the state of the transform of
    every process, so that training with a generator resumes with the next plans of its sequence.

    transform: for batches `(samples, labels)`, or with `rules=` for any other batch.

    >>> from zetamix import ZetaMix
    >>> callback = MixCallback(ZetaMix(num_classes=10))
    """

    def __init__(self, transform: BatchMix) -> None:
        check_transform(transform)
        self.transform = transform
        self._owners: list[Any] = []

    def setup(self, trainer: "Trainer", pl_module: "LightningModule", stage: str) -> None:
        self._unwrap()
        if stage != "fit":
            return
        # Lightning calls only one of the two hooks for each batch
        for owner in (pl_module, getattr(trainer, "datamodule", None)):
            if owner is not None:
                setattr(owner, HOOK, self._wrap(getattr(owner, HOOK), trainer))
                self._owners.append(owner)

    def _wrap(self, hook: Callable[..., Any], trainer: "Trainer") -> Callable[..., Any]:
        # wraps() lets Lightning detect whether the wrapped hook is overridden by the user
        @functools.wraps(hook)
        def mixed(batch: Any, dataloader_idx: int) -> Any:
            batch = hook(batch, dataloader_idx)
            if not trainer.training:
                return batch
            if self._counts_steps(trainer):
                done = trainer.global_step / trainer.estimated_stepping_batches
                self.transform.set_progress(done, trainer.current_epoch)
            return self.transform(batch)

        return mixed

    def _counts_steps(self, trainer: "Trainer") -> bool:
        return self.transform.until < 1 and trainer.max_steps != -1

    def _unwrap(self) -> None:
        while self._owners:
            # removes the attribute of the instance; the method of its class is unchanged
            delattr(self._owners.pop(), HOOK)

    def teardown(self, trainer: "Trainer", pl_module: "LightningModule", stage: str) -> None:
        self._unwrap()

    def on_exception(
        self, trainer: "Trainer", pl_module: "LightningModule", exception: BaseException
    ) -> None:
        # Lightning does not call teardown after an exception
        self._unwrap()

    def on_train_epoch_start(self, trainer: "Trainer", pl_module: "LightningModule") -> None:
        if not self._counts_steps(trainer):
            epochs = trainer.max_epochs or -1
            self.transform.set_epoch(trainer.current_epoch, epochs if epochs > 0 else None)

    def state_dict(self) -> dict[str, Any]:
        """The states of all processes, by rank; a collective that every process must call."""
        state = dict(self.transform.state_dict())
        states: list[Any] = [state] * _world_size()
        if _world_size() > 1:
            distributed.all_gather_object(states, state)
        return {"transforms": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        states = state_dict["transforms"]
        rank = distributed.get_rank() if _world_size() > 1 else 0
        if len(states) != _world_size():
            warnings.warn(
                f"The checkpoint has the state of {len(states)} process(es), but there are now "
                f"{_world_size()}: training will not resume with the same random plans.",
                stacklevel=2,
            )
            # from the same state, every rank still draws its own plans
            rank = 0
        self.transform.load_state_dict(states[rank])


def _world_size() -> int:
    joined = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if joined else 1
