"""One model in training: a step that can be captured, epochs, and a state to go on from."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from zetamix.data.augment import EpochDraws, Scale, measure_scale
from zetamix.data.dataset import Dataset
from zetamix.data.loader import Labelled, Loader
from zetamix.draw import mix64
from zetamix.methods import Method
from zetamix.models import initialise
from zetamix.train.ranks import Ranks
from zetamix.train.recipe import Recipe

# what one training run draws from its seed, apart from the order of the data
MIXING = 1

# bytes of an evaluation batch; 1,024 images of 3 × 32²
EVAL_BYTES = 1024 * 3 * 32 * 32


class NonFiniteLossError(RuntimeError):
    """Training went astray; the message says where and what to try."""


class Trainer:
    """A model, its data and its optimiser, advanced one step at a time.

    The step reads its place in the epoch from the device and writes loss and accuracy there, so
    the host never waits for it and a CUDA graph can hold it whole (`zetamix.train.graph`).
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
        ranks: Ranks | None = None,
    ) -> None:
        self.dataset, self.method, self.recipe, self.seed = dataset, method, recipe, seed
        self.device = torch.device(device)
        self.ranks = Ranks() if ranks is None else ranks
        self.dtype = choose_dtype(recipe.precision, self.device)
        self.epoch = 0
        self.step_in_epoch = 0

        model = initialise(recipe.model, dataset.num_classes, dataset.shape, seed, stem=recipe.stem)
        self.model = _place(model, self.device)
        self.parallel: nn.Module = self.model
        if self.ranks.world > 1:
            self.parallel = DistributedDataParallel(self.model)
        self.forward = torch.compile(self.parallel, dynamic=False) if compile else self.parallel

        scale = choose_scale(recipe.normalize, dataset.train)
        self.loader = self._loader(dataset.train, recipe.batch_size, scale, training=True)
        self.scale = scale
        self.generator = torch.Generator(self.device).manual_seed(mix64(seed * 4 + MIXING) >> 1)
        self.mix = method.transform(dataset.num_classes, self.generator)

        on_gpu = self.device.type == "cuda"
        # a rate on the device can change under a captured graph
        self.lr = torch.tensor(recipe.rate(0), device=self.device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=self.lr if on_gpu else recipe.rate(0),
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.nesterov,
            fused=on_gpu,
            foreach=False if on_gpu else None,
        )
        self.places = torch.arange(self.loader.batch_size, device=self.device)
        self.cursor = torch.zeros((), dtype=torch.int64, device=self.device)
        self.tally = Tally(self.device)
        self.draws: EpochDraws | None = None
        self.raw: Tensor | None = None
        self._stream: Any = None
        self._evaluated: dict[Labelled, Loader] = {}

    @property
    def steps_per_epoch(self) -> int:
        return len(self.loader)

    def start_epoch(self) -> None:
        """Draw the epoch and set everything that changes from one to the next."""
        rate = self.recipe.rate(self.epoch)
        if self.device.type == "cuda":
            self.lr.fill_(rate)
        else:
            self.optimizer.param_groups[0]["lr"] = rate
        self._take_draws(self.loader.draw(self.epoch))
        self.cursor.fill_(self.step_in_epoch * self.loader.batch_size)
        self.loader.position = self.step_in_epoch
        self._stream = None if self.loader.held else self.loader._stream(self._draws())
        if self.step_in_epoch == 0:
            self.tally.clear()
        self.parallel.train()

    def _take_draws(self, draws: EpochDraws) -> None:
        """Into the same memory every epoch, which a captured graph goes on reading."""
        if self.draws is None:
            self.draws = draws
            return
        for kept, new in zip(self.draws, draws, strict=True):
            if kept is not None and new is not None:
                kept.copy_(new, non_blocking=True)

    def _draws(self) -> EpochDraws:
        if self.draws is None:
            raise RuntimeError("No epoch has been started: call start_epoch first.")
        return self.draws

    def step(self) -> None:
        """One training step."""
        self.feed()
        self.compute(self._batch_size())
        self.step_in_epoch += 1

    def feed(self) -> None:
        """Bring the next batch to the device, where the split does not lie there already."""
        if self._stream is None:
            return
        rows = next(self._stream)
        if self.raw is None or self.raw.shape != rows.shape:
            self.raw = rows.clone()
        else:
            self.raw.copy_(rows, non_blocking=True)

    def _batch_size(self) -> int:
        left = self.loader.count - self.step_in_epoch * self.loader.batch_size
        return min(self.loader.batch_size, left)

    def compute(self, batch_size: int) -> None:
        """Everything of a step that happens on the device; the host decides nothing in here."""
        places = self.cursor + self.places[:batch_size]
        draws = self._draws().each(lambda part: part[places])
        labels = self.loader.labels[draws.order]
        raw = self.loader.samples[draws.order] if self.raw is None else self.raw
        samples = _layout(self.loader.prepare(raw, draws))
        targets = labels
        if self.mix is not None:
            samples, targets = self.mix(samples, labels)
            samples = _layout(samples)
        with self.autocast():
            logits = self.forward(samples)
        loss = F.cross_entropy(logits.float(), targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.cursor += self.loader.batch_size
        self.tally.add(loss.detach(), logits.detach(), targets)

    def autocast(self) -> AbstractContextManager[Any]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    def finish_epoch(self) -> dict[str, float]:
        """Training loss and accuracy (against the dominant label) of the epoch just done."""
        totals = self.ranks.add_up(self.tally.read())
        loss, accuracy, bad = totals.summary()
        if bad is not None:
            raise NonFiniteLossError(
                f"The loss became {loss} in epoch {self.epoch + 1}, step {bad + 1} of "
                f"{self.steps_per_epoch}, at a learning rate of {self.recipe.rate(self.epoch):g}. "
                "Try a smaller one (--set lr=...), or --set precision=float32."
            )
        self.epoch += 1
        self.step_in_epoch = 0
        return {"train_loss": loss, "train_accuracy": accuracy}

    @torch.no_grad()
    def predict(self, split: Labelled) -> tuple[Tensor, Tensor]:
        """Logits and labels of a whole split, over all ranks."""
        if split not in self._evaluated:
            size = max(1, min(1024, EVAL_BYTES // max(1, split.samples[:1].numel())))
            self._evaluated[split] = self._loader(split, size, self.scale, training=False)
        loader = self._evaluated[split]
        self.model.eval()
        parts = []
        with self.autocast():
            for samples, _ in loader:
                parts.append(self.model(_layout(samples)).float())
        self.model.train()
        order = loader.draw(0).order
        return self.ranks.gather(torch.cat(parts), loader.labels[order])

    def _loader(
        self, split: Labelled, batch_size: int, scale: Scale | None, *, training: bool
    ) -> Loader:
        share = batch_size
        if training and self.ranks.world > 1:
            # the recipe's batch is that of all processes together
            share = max(1, batch_size // self.ranks.world)
        return Loader(
            split,
            share,
            augmentation=self.recipe.augmentation if training else "none",
            scale=scale,
            shuffle=training,
            drop_last=training and self.recipe.last_batch == "drop",
            seed=self.seed,
            device=self.device,
            dtype=self.dtype,
            rank=self.ranks.rank,
            world=self.ranks.world,
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "tally": self.tally.state,
            "epoch": self.epoch,
            "step_in_epoch": self.step_in_epoch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.load_state_dict(state["optimizer"])
        # the rate stays the tensor that a graph reads, with the value of the epoch
        self.optimizer.param_groups[0]["lr"] = rate
        self.generator.set_state(state["generator"].cpu())
        # the sums of the lead rank stand for the steps before; the others start theirs at zero
        if self.ranks.leads:
            self.tally.state.copy_(state["tally"])
        self.epoch, self.step_in_epoch = state["epoch"], state["step_in_epoch"]


class Tally:
    """Loss and accuracy of an epoch, added up on the device."""

    def __init__(self, device: torch.device) -> None:
        # sum of losses, samples right, samples, steps, the first step whose loss is not finite
        self.state = torch.zeros(5, dtype=torch.float64, device=device)
        self.clear()

    def clear(self) -> None:
        self.state.zero_()
        self.state[4] = -1

    def add(self, loss: Tensor, logits: Tensor, targets: Tensor) -> None:
        dominant = targets.argmax(1) if targets.ndim == 2 else targets
        right = (logits.argmax(1) == dominant).sum()
        count = torch.full_like(right, logits.shape[0])
        first_bad = ~torch.isfinite(loss) & (self.state[4] < 0)
        bad = torch.where(first_bad, self.state[3], self.state[4])
        new = torch.stack([loss * count, right, count, torch.ones_like(loss)])
        self.state[:4] += new
        self.state[4] = bad

    def read(self) -> "Totals":
        return Totals(self.state.cpu())


class Totals:
    """A tally that has reached the host."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def summary(self) -> tuple[float, float, int | None]:
        loss, right, count, _, bad = self.values.tolist()
        return loss / count, right / count, None if bad < 0 else int(bad)


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    if precision == "auto":
        has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(False)
        return torch.bfloat16 if has_bfloat16 else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def choose_scale(normalize: str, split: Labelled) -> Scale | None:
    """What samples are normalised with; None leaves images in [0, 1]."""
    if normalize == "dataset":
        return measure_scale(split.samples)
    if normalize == "half" and not split.samples.is_floating_point():
        half = torch.full((split.samples.shape[1],), 127.5)
        return Scale(half, half.clone())
    return None


def _place(model: nn.Module, device: torch.device) -> nn.Module:
    if device.type == "cuda":
        moved: nn.Module = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return moved
    return model.to(device)


def _layout(samples: Tensor) -> Tensor:
    """Images on a GPU with their channels last, which convolutions there are fastest on."""
    if samples.device.type == "cuda" and samples.ndim == 4:
        return samples.contiguous(memory_format=torch.channels_last)
    return samples
