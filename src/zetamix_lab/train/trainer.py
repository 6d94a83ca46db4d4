"""Training of one model: the step, epochs, evaluation, and checkpoints."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zetamix.losses import soft_cross_entropy
from zetamix.methods import Method
from zetamix.sampling import GOLDEN, mix64
from zetamix.transforms import BatchMix
from zetamix_lab.data.dataset import Dataset, Split
from zetamix_lab.data.loader import Loader, choose_scale, copy_to_device, measure_scale
from zetamix_lab.models import initialise, is_random
from zetamix_lab.seeds import seeded
from zetamix_lab.train.recipe import Recipe
from zetamix_lab.train.stop import Stopped

# purposes of the random numbers of a run, besides the order of the data
MIXING, LAYERS = 1, 2

# bytes of an evaluation batch; 1,024 images of 3 × 32²
EVAL_BYTES = 1024 * 3 * 32 * 32


class NonFiniteLossError(RuntimeError):
    """Training diverged. The message says where and what to try."""


class Trainer:
    """A model, its data and its optimiser, advanced one step at a time.

    The step reads its index from the device and writes loss and accuracy there, so the host never
    waits for it and a CUDA graph can hold it (`zetamix_lab.train.cuda_graph.capture`).
    """

    def __init__(
        self,
        dataset: Dataset,
        method: Method,
        recipe: Recipe,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        compile: bool = False,
        data_memory: int | None = None,
    ) -> None:
        self.dataset, self.method, self.recipe, self.seed = dataset, method, recipe, seed
        self.name = f"{method.label}, seed {seed},"
        self.device = torch.device(device)
        self.dtype = choose_dtype(recipe.precision, self.device)
        self.stop: Callable[[], bool] = lambda: False
        """Called before every batch of an evaluation, which raises `Stopped` once it is True."""
        self.epoch = self.step_in_epoch = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        """The captured step, and the stream of its replays."""
        self.stream: torch.cuda.Stream | None = None

        model = initialise(recipe.model, dataset.num_classes, dataset.shape, seed, **recipe.network)
        self.is_random = is_random(model)
        # convolutions are fastest on channels last: on two CPU cores a step of ResNet-18 takes 0.80
        # to 0.87 times as long, one of digitnet 0.63
        images = len(dataset.shape) == 3
        self.layout = torch.channels_last if images else torch.contiguous_format
        self.model: nn.Module = model.to(self.device, memory_format=self.layout)  # type: ignore[call-overload]
        self.forward = torch.compile(self.model, dynamic=False) if compile else self.model
        self.make_batch = _compiled_batch() if compile else Loader.batch

        held = copy_to_device(dataset.train.samples, self.device, data_memory)
        self.scale = choose_scale(recipe.normalize, dataset.train.samples if held is None else held)
        self.make_loader = partial(
            Loader,
            scale=self.scale,
            seed=seed,
            device=self.device,
            dtype=self.dtype,
            layout=self.layout,
            memory=data_memory,
        )
        self.loader = self.make_loader(
            dataset.train,
            recipe.batch_size,
            augmentation=recipe.augmentation,
            drop_last=recipe.last_batch == "drop",
        )
        self.steps_per_epoch = len(self.loader)
        self.generator = torch.Generator(self.device).manual_seed(derive(seed, MIXING))
        self.mix = method.transform(dataset.num_classes, self.generator)
        self.centre: Tensor | None = None
        if method.name == "zetamix" and recipe.normalize != "dataset":
            # it scales deviations from the mean of the normalised samples, which is not 0
            samples = dataset.train.samples
            mean = measure_scale(samples).mean.view(1, -1, *[1] * (samples.ndim - 2))
            self.centre = self.scale.apply(mean, self.dtype).to(self.device)
        self.loss = make_loss(recipe.class_weights, dataset, self.device)
        self.optimizer = make_optimizer(self.model, recipe, self.device)

        self.batch_rows = torch.arange(self.loader.batch_size, device=self.device)
        # the step within the epoch, on the device, so that a captured graph can read and advance it
        self.index = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.step_metrics = torch.zeros(2, self.steps_per_epoch, device=self.device)
        """Mean loss of each step, and the fraction of samples whose dominant class was predicted;
        for several labels per sample, the fraction of labels."""
        # the order and augmentation of an epoch, in the memory that a captured graph reads
        self.draws = self.loader.draw(0)
        self.raw: Tensor | None = None
        self._batches: Any = None

    def start_epoch(self) -> None:
        """Draw the order and augmentation of the epoch, and set the learning rate."""
        self._set_rate(self.recipe.rate(self.epoch))
        if isinstance(self.mix, BatchMix):
            mixing = self.mix.mixing
            self.mix.set_epoch(self.epoch, self.recipe.epochs)
            if self.mix.mixing != mixing:
                # a captured step continues as it was captured
                self.graph = None
        for kept, new in zip(self.draws, self.loader.draw(self.epoch), strict=True):
            if kept is not None and new is not None:
                kept.copy_(new, non_blocking=True)
        self.index.fill_(self.step_in_epoch)
        self.open_stream()
        self.model.train()

    @property
    def steps_left(self) -> int:
        """Steps of the epoch that are to be taken."""
        return self.steps_per_epoch - self.step_in_epoch

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def open_stream(self) -> None:
        """Start reading at the next step, if the split is streamed to the device."""
        loader, start = self.loader, self.step_in_epoch
        self._batches = None if loader.held else loader.stream(self.draws, self.epoch, start)

    def step(self) -> None:
        """One training step; a replay of the captured one, if there is one."""
        self.feed()
        # a replay takes the state of torch's default generator at its launch
        with self.layer_draws():
            if self.graph is None:
                left = self.loader.count - self.step_in_epoch * self.loader.batch_size
                self.compute(min(self.loader.batch_size, left))
            else:
                self.graph.replay()
        self.step_in_epoch += 1

    def layer_draws(self) -> AbstractContextManager[None]:
        """Seed dropout for one step, so that it does not depend on earlier steps."""
        if not self.is_random:
            return nullcontext()
        step = self.epoch * self.steps_per_epoch + self.step_in_epoch
        return seeded(derive(derive(self.seed, LAYERS), step), self.device)

    def feed(self) -> None:
        """Set the learning rate of the next step, and copy its batch if the split is streamed."""
        if self.epoch < self.recipe.warmup:
            done = (self.step_in_epoch + 1) / self.steps_per_epoch
            self._set_rate(self.recipe.rate(self.epoch, done))
        if self._batches is None:
            return
        rows = next(self._batches)
        if self.raw is None or self.raw.shape != rows.shape:
            self.raw = torch.empty_like(rows)
        self.raw.copy_(rows, non_blocking=True)

    def compute(self, batch_size: int) -> None:
        """The part of a step that runs on the device, without control flow on the host."""
        rows = self.batch_rows[:batch_size]
        positions = torch.add(rows, self.index, alpha=self.loader.batch_size)
        samples, labels = self.make_batch(self.loader, self.draws, positions, self.raw)
        targets = labels
        if self.mix is not None:
            if self.centre is None:
                samples, targets = self.mix(samples, labels)
            else:
                deviations, targets = self.mix(samples - self.centre, labels)
                samples = deviations + self.centre
            samples = samples.contiguous(memory_format=self.layout)
        with self.autocast():
            logits = self.forward(samples)
        loss = self.loss(logits.float(), targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        accuracy = _accuracy(logits.detach(), targets, self.dataset.multi_label)
        self.step_metrics.index_copy_(
            1, self.index, torch.stack([loss.detach(), accuracy])[:, None]
        )
        self.index += 1

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def epoch_metrics(self) -> dict[str, float]:
        """Training loss and accuracy (of the dominant label) of an epoch after its last step."""
        metrics = self.step_metrics.cpu()
        finite = metrics[0].isfinite()
        if not finite.all():
            bad = int(finite.int().argmin()) + 1
            raise NonFiniteLossError(
                f"The loss of {self.name} is not finite in epoch {self.epoch + 1}, step {bad} of "
                f"{self.steps_per_epoch}, at a learning rate of {self.recipe.rate(self.epoch):g}. "
                "Try a lower one (--set lr=...), or --set precision=float32."
            )
        loss, accuracy = metrics.mean(1).tolist()
        return {"train_loss": loss, "train_accuracy": accuracy}

    @torch.no_grad()
    def predict(self, split: Split) -> tuple[Tensor, Tensor]:
        """Logits and labels of a whole split; raises `Stopped` once `stop` returns True."""
        size = max(1, min(1024, EVAL_BYTES // max(1, split.samples[:1].numel())))
        loader, parts = self.make_loader(split, size, shuffle=False), []
        self.model.eval()
        for samples, _ in loader:
            if self.stop():
                raise Stopped
            with self.autocast():
                parts.append(self.model(samples).float())
        self.model.train()
        logits = torch.cat(parts)
        if not bool(torch.isfinite(logits).all()):
            raise NonFiniteLossError(
                f"The outputs of {self.name} are not finite after epoch "
                f"{self.epoch + (self.step_in_epoch > 0)}. Try a lower learning rate (--set "
                "lr=...), or --set precision=float32."
            )
        return logits, loader.labels

    def describe_model(self) -> dict[str, Any]:
        """The values needed to rebuild the network and its normalisation (`load_model`)."""
        return {
            "model": self.recipe.model,
            "stem": self.recipe.stem,
            "shape": list(self.dataset.shape),
            "classes": list(self.dataset.classes),
            "mean": self.loader.scale.mean.tolist(),
            "std": self.loader.scale.std.tolist(),
            "dtype": str(self.dataset.train.pool.dtype).removeprefix("torch."),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "step_metrics": self.step_metrics,
            "epoch": self.epoch,
            "step_in_epoch": self.step_in_epoch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.load_state_dict(state["optimizer"])
        # copy in place: a captured graph reads this tensor
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.generator.set_state(state["generator"].cpu())
        self.step_metrics.copy_(state["step_metrics"])
        self.epoch, self.step_in_epoch = state["epoch"], state["step_in_epoch"]


def _accuracy(logits: Tensor, targets: Tensor, multi_label: bool) -> Tensor:
    if multi_label:
        return ((logits > 0) == (targets > 0.5)).float().mean()
    dominant = targets.argmax(1) if targets.ndim == 2 else targets
    return (logits.argmax(1) == dominant).float().mean()


def make_loss(
    class_weights: str, dataset: Dataset, device: torch.device
) -> Callable[[Tensor, Tensor], Tensor]:
    """The cross entropy of soft targets; for several labels per sample that of each label.

    class_weights: "none", or "balanced" for weights samples / (classes · samples of the class), and
        for labels negative / positive samples, which weigh the positive ones.
    """
    if class_weights == "none":
        return F.binary_cross_entropy_with_logits if dataset.multi_label else F.cross_entropy
    counts, total = dataset.train.counts().to(device).float(), len(dataset.train)
    if dataset.multi_label:
        weight = (total - counts) / counts.clamp_min(1)
        return partial(F.binary_cross_entropy_with_logits, pos_weight=weight)
    weight = torch.where(counts > 0, total / (len(counts) * counts), 0)
    return partial(soft_cross_entropy, weight=weight)


def make_optimizer(model: nn.Module, recipe: Recipe, device: torch.device) -> torch.optim.Optimizer:
    """The optimiser of a recipe; on a GPU one kernel per step, which a CUDA graph can hold."""
    parameters = [part for part in model.parameters() if part.requires_grad]
    on_gpu, lr = device.type == "cuda", recipe.rate(0)
    options: dict[str, Any] = {"weight_decay": recipe.weight_decay, "fused": on_gpu}
    # a rate on the device can change between replays of a captured graph
    options["lr"] = torch.tensor(lr, device=device) if on_gpu else lr
    if recipe.optimizer == "sgd":
        moments: dict[str, Any] = {"momentum": recipe.momentum, "nesterov": recipe.nesterov}
        return torch.optim.SGD(parameters, **moments, **options)
    # biases and the parameters of normalisation have at most one dimension
    groups: list[dict[str, Any]] = [
        {"params": [part for part in parameters if part.ndim > 1]},
        {"params": [part for part in parameters if part.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    # torch captures AdamW only if it counts its steps on the device
    return torch.optim.AdamW(groups, capturable=on_gpu, **options)


@lru_cache(maxsize=1)
def _compiled_batch() -> Callable[..., tuple[Tensor, Tensor]]:
    """`Loader.batch` compiled to one or two kernels instead of fifteen, shared by all trainers."""
    return torch.compile(Loader.batch, dynamic=False)


def derive(seed: int, purpose: int) -> int:
    """A seed for each purpose, different from those that `Loader.draw` derives from the seed."""
    return mix64(mix64(seed + GOLDEN) + purpose) >> 1


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    auto = precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported(False)
    return torch.bfloat16 if auto or precision == "bfloat16" else torch.float32
