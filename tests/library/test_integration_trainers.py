"""MixCallback of Lightning and MixingTrainer of transformers: training as in a plain loop.

What both promise is tested of both; then what one of them has alone.
"""

import doctest
import math
import os
import subprocess
import sys
import warnings

import lightning.pytorch as pl
import pytest
import pytorch_lightning as older
import torch
import torch.nn.functional as F
from conftest import assert_same
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transform_kinds import CLASSES, KINDS, seeded, sharper

import zetamix.integrations
from zetamix import ZetaMix, ZetaMixup
from zetamix.integrations.lightning import MixCallback
from zetamix.rules import Blend, OneHot

# before transformers is imported: nothing here is on the hub
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import transformers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
)

from zetamix.integrations.transformers import MixingTrainer

pytestmark = [
    # Lightning recommends loader workers, logging steps and validation, and names what it resumes
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    # torch has newer names for what it calls
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pytorch_lightning.*"),
    pytest.mark.filterwarnings("ignore:You defined a .validation_step"),
    # accelerate pins memory, where there is a device for it
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true"),
]

IMAGES = torch.randn(12, 3, 8, 8, generator=seeded(1))
LABELS = torch.arange(12) % CLASSES


def batches():
    """Of an epoch; the last one is smaller."""
    return list(zip(IMAGES.split(5), LABELS.split(5), strict=True))


def plain_loop(transform, epochs):
    for epoch in range(epochs):
        transform.set_epoch(epoch, epochs)
        yield from (transform(*batch) for batch in batches())


# Lightning


class Model:
    """What a module of either Lightning package does; `seen` holds the batches of each loop."""

    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))
        self.seen = {"train": [], "validation": []}

    def training_step(self, batch, batch_idx):
        images, targets = batch
        self.seen["train"].append((images, targets))
        return F.cross_entropy(self.model(images), targets)

    def validation_step(self, batch, batch_idx):
        self.seen["validation"].append(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Net(Model, pl.LightningModule):
    pass


class OlderNet(Model, older.LightningModule):
    pass


def loader():
    return DataLoader(TensorDataset(IMAGES, LABELS), batch_size=5)


def trainer(folder, *callbacks, kind=pl.Trainer, **options):
    quiet = dict.fromkeys(
        ("enable_checkpointing", "logger", "enable_progress_bar", "enable_model_summary"), False
    )
    options = {**quiet, "accelerator": "cpu", "max_epochs": 2, **options}
    return kind(callbacks=list(callbacks), default_root_dir=folder, **options)


def keep(folder):
    return pl.callbacks.ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)


def by_lightning(folder, mix, *, epochs, steps=-1, resumed=False):
    """Train, or go on after two epochs; what the module is trained on."""
    net, options = Net(), {"max_epochs": epochs, "max_steps": steps, "enable_checkpointing": True}
    path = folder / "epoch=1.ckpt" if resumed else None
    trainer(folder, MixCallback(mix), keep(folder), **options).fit(net, loader(), ckpt_path=path)
    return net.seen["train"]


# transformers


class Rows(torch.utils.data.Dataset):
    """The rows of some tensors, as dicts."""

    def __init__(self, **tensors):
        self.tensors = tensors

    def __len__(self):
        return len(self.tensors["labels"])

    def __getitem__(self, index):
        return {name: tensor[index] for name, tensor in self.tensors.items()}


DATA = Rows(pixel_values=IMAGES, labels=LABELS)
TINY = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def vit(zeroed=False, **options):
    torch.manual_seed(0)
    config = ViTConfig(image_size=8, patch_size=4, num_labels=CLASSES, **TINY, **options)
    model = ViTForImageClassification(config)
    if zeroed:
        nn.init.zeros_(model.classifier.weight)
    return model


def bert():
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(vocab_size=20, num_labels=CLASSES, **TINY))


class Recorder(MixingTrainer):
    """Keeps what the model and the loss are called with, and the loss of every step."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen, self.losses, self.targets = [], [], []
        self.model.register_forward_pre_hook(self._record, with_kwargs=True)

    def _record(self, model, args, kwargs):
        self.seen.append((model.training, kwargs))

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.losses.append(float(loss))
        return loss

    def loss(self, outputs, labels, num_items_in_batch):
        self.targets.append(labels)
        return F.cross_entropy(outputs["logits"], labels)


def arguments(folder, **options):
    options = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 5,
        "per_device_eval_batch_size": 5,
        "learning_rate": 0.1,
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "train_sampling_strategy": "sequential",
        "dataloader_pin_memory": False,
        **options,
    }
    return transformers.TrainingArguments(output_dir=str(folder), **options)


def recorder(folder, model, transform, data=DATA, **options):
    given = {"train_dataset": data, "eval_dataset": data, "transform": transform}
    return Recorder(model=model, args=arguments(folder, **options), **given)


def by_transformers(folder, mix, *, epochs, steps=-1, resumed=False):
    """Train, or go on after two epochs; what the model and the loss get."""
    options = {"num_train_epochs": epochs, "max_steps": steps, "save_strategy": "epoch"}
    ours = recorder(folder, vit(), mix, **options)
    ours.compute_loss_func = ours.loss
    ours.train(resume_from_checkpoint=str(folder / "checkpoint-6") if resumed else None)
    images = [kwargs["pixel_values"] for _, kwargs in ours.seen]
    return list(zip(images, ours.targets, strict=True))


# both


# in the order of each trainer's batches
BY_RULE = {
    by_lightning: (Blend(), OneHot(CLASSES)),
    by_transformers: {"pixel_values": Blend(), "labels": OneHot(CLASSES)},
}
both = pytest.mark.parametrize("train", [by_lightning, by_transformers])
# and one whose γ depends on the epoch; mixing with `zetamix` ends after four epochs of five
SCHEDULED = KINDS | {"schedule": lambda **given: ZetaMixup(num_classes=4, gamma=sharper, **given)}


@both
@pytest.mark.parametrize("kind", SCHEDULED)
def test_training_sees_the_batches_of_a_plain_loop(train, kind, tmp_path):
    mix = SCHEDULED[kind](generator=seeded())
    seen = train(tmp_path, mix, epochs=5)
    assert_same(seen, plain_loop(SCHEDULED[kind](generator=seeded()), epochs=5))
    assert mix.epoch == 4
    assert mix.mixing == (kind != "zetamix")


@both
def test_batches_of_any_form_are_mixed_by_rules(train, tmp_path):
    mix = ZetaMix(rules=BY_RULE[train], generator=seeded())
    expected = plain_loop(KINDS["zetamix"](generator=seeded()), epochs=2)
    assert_same(train(tmp_path, mix, epochs=2), expected)


@both
@pytest.mark.parametrize("epochs", [-1, 9])
def test_where_steps_end_training_steps_are_counted(train, epochs, tmp_path):
    seen = train(tmp_path, KINDS["zetamix"](until=0.6), epochs=epochs, steps=6)
    mixed = [bool((targets.amax(1) < 1).any()) for _, targets in seen]
    assert mixed == [True] * 4 + [False] * 2


@both
def test_training_resumes_with_the_plans_that_would_have_come_next(train, tmp_path):
    whole = train(tmp_path, KINDS["zetamix"](generator=seeded(3)), epochs=4)
    # another seed, which the checkpoint makes irrelevant
    mix = KINDS["zetamix"](generator=seeded(4))
    assert_same(train(tmp_path, mix, epochs=4, resumed=True), whole[6:])


@both
def test_anything_but_a_transform_is_refused(train, tmp_path):
    with pytest.raises(TypeError, match=r"transform must be one of .*, got Linear"):
        train(tmp_path, nn.Linear(1, 1), epochs=1)


# Lightning alone


def test_validation_with_lightning_sees_its_own_batches(tmp_path):
    net, lightning = Net(), trainer(tmp_path, MixCallback(KINDS["switch"]()))
    lightning.fit(net, loader(), loader())
    # the sanity check, then two epochs
    assert_same(net.seen["validation"], [*batches()[:2], *batches(), *batches()])


def test_until_needs_the_length_of_training(tmp_path):
    with pytest.raises(ValueError, match=r"to Lightning's Trainer max_epochs"):
        by_lightning(tmp_path, ZetaMix(num_classes=CLASSES), epochs=-1)


class Shifted:
    def on_after_batch_transfer(self, batch, dataloader_idx):
        images, labels = batch
        return images + 1, labels


class ShiftedNet(Shifted, Net):
    pass


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return loader()


class ShiftedData(Shifted, Data):
    pass


@pytest.mark.parametrize(("net", "data"), [(ShiftedNet, None), (Net, ShiftedData), (Net, Data)])
def test_hooks_of_the_module_or_the_data_module_are_called_first(net, data, tmp_path):
    net, data = net(), data and data()
    lightning = trainer(tmp_path, MixCallback(KINDS["switch"](generator=seeded())))
    lightning.fit(net, datamodule=data) if data else lightning.fit(net, loader())
    mix = KINDS["switch"](generator=seeded())
    shift = isinstance(net, Shifted) or isinstance(data, Shifted)
    assert_same(net.seen["train"], [mix(x + shift, y) for _ in range(2) for x, y in batches()])
    for module in filter(None, (net, data)):
        assert "on_after_batch_transfer" not in vars(module)


class Broken(Net):
    def training_step(self, batch, batch_idx):
        raise RuntimeError("out of memory")


def test_after_an_error_the_module_is_as_it_was_and_mixes_once(tmp_path):
    broken, net, callback = Broken(), Net(), MixCallback(KINDS["switch"](generator=seeded()))
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer(tmp_path, callback).fit(broken, loader())
    assert "on_after_batch_transfer" not in vars(broken)
    callback.transform.generator.manual_seed(0)
    trainer(tmp_path, callback).fit(net, loader())
    assert_same(net.seen["train"], plain_loop(KINDS["switch"](generator=seeded()), epochs=2))


def test_a_checkpoint_of_other_processes_warns():
    (state,) = MixCallback(KINDS["switch"](generator=seeded())).state_dict()["transforms"]
    other = MixCallback(KINDS["switch"](generator=seeded(1)))
    with pytest.warns(UserWarning, match=r"of 2 process\(es\), but there are now 1"):
        other.load_state_dict({"transforms": [state, state]})
    assert torch.equal(other.transform.generator.get_state(), seeded().get_state())


def test_the_older_package_takes_the_callback(tmp_path):
    net, callback = OlderNet(), MixCallback(KINDS["switch"](generator=seeded()))
    trainer(tmp_path, callback, kind=older.Trainer).fit(net, loader())
    assert_same(net.seen["train"], plain_loop(KINDS["switch"](generator=seeded()), epochs=2))


class Job(Net):
    def __init__(self, name, folder):
        super().__init__()
        self.name, self.folder = name, folder

    def setup(self, stage):
        # a generator with a state of its own on each rank
        mix = next(c for c in self.trainer.callbacks if isinstance(c, MixCallback)).transform
        mix.generator.manual_seed((0 if self.name == "whole" else 90) + self.global_rank)

    def on_train_end(self):
        batches = [tuple(part.detach().clone() for part in batch) for batch in self.seen["train"]]
        torch.save(batches, f"{self.folder}/{self.name}-{self.global_rank}.pt")


def train_in_two_processes(folder):
    """Whole, and resumed after an epoch; a process of its own forks before it has computed."""
    warnings.simplefilter("ignore")
    data = TensorDataset(IMAGES.repeat(2, 1, 1, 1), LABELS.repeat(2))
    options = {"enable_checkpointing": True, "devices": 2, "strategy": "ddp_fork", "max_epochs": 3}
    for name, path in (("whole", None), ("resumed", f"{folder}/epoch=0.ckpt")):
        mix = MixCallback(KINDS["zetamix"](generator=seeded()))
        lightning = trainer(folder, mix, keep(folder), **options)
        lightning.fit(Job(name, folder), DataLoader(data, batch_size=6), ckpt_path=path)


@pytest.mark.slow
def test_two_processes_draw_different_plans_and_both_resume(tmp_path):
    program = f"import {__name__} as job, sys; job.train_in_two_processes(sys.argv[1])"
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    seen = {path.stem: torch.load(path) for path in tmp_path.glob("*.pt")}
    for rank in range(2):
        assert len(seen[f"whole-{rank}"]) == 6
        assert_same(seen[f"resumed-{rank}"], seen[f"whole-{rank}"][2:])
    for (_, targets), (_, others) in zip(seen["whole-0"], seen["whole-1"], strict=True):
        assert not torch.equal(targets, others)


def test_the_example_runs():
    assert doctest.testmod(zetamix.integrations.lightning) == (0, 2)


# transformers alone


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_losses_are_those_of_a_plain_loop(smoothing, tmp_path):
    options = {"optim": "sgd", "lr_scheduler_type": "constant", "label_smoothing_factor": smoothing}
    trainer = recorder(tmp_path, vit(), KINDS["switch"](generator=seeded()), **options)
    trainer.train()
    plain, losses = vit().train(), []
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for images, targets in plain_loop(KINDS["switch"](generator=seeded()), epochs=2):
        logits = plain(pixel_values=images).logits
        loss = F.cross_entropy(logits, targets, label_smoothing=smoothing)
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert trainer.losses == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_evaluation_and_prediction_are_those_of_trainer(smoothing, tmp_path):
    options = {"label_smoothing_factor": smoothing}
    trainer = recorder(tmp_path, vit(), KINDS["zetamix"](), **options)
    trainer.train()
    trainer.seen.clear()
    loss = trainer.evaluate()["eval_loss"]
    seen = [kwargs["pixel_values"] for _, kwargs in trainer.seen]
    assert_same(seen, (images for images, _ in batches()))
    assert not any(training for training, _ in trainer.seen)
    plain = transformers.Trainer(
        model=trainer.model, args=arguments(tmp_path, **options), eval_dataset=DATA
    )
    assert loss == plain.evaluate()["eval_loss"]
    predicted, expected = trainer.predict(DATA), plain.predict(DATA)
    assert (predicted.predictions == expected.predictions).all()
    assert (predicted.label_ids == LABELS.numpy()).all()


@pytest.mark.parametrize("counted", [True, False])
def test_accumulated_batches_count_by_their_samples(counted, tmp_path):
    """Or alike, where Trainer does not count samples because the model takes no loss arguments."""
    options = {"gradient_accumulation_steps": 3, "label_smoothing_factor": 0.2}
    trainer = recorder(tmp_path, vit(), KINDS["zetamix"](p=0.0), **options)
    assert trainer.model_accepts_loss_kwargs
    trainer.model_accepts_loss_kwargs = counted
    trainer.train()
    net = vit().train()
    for (images, labels), loss in zip(batches(), trainer.losses, strict=False):
        mean = F.cross_entropy(net(pixel_values=images).logits, labels, label_smoothing=0.2)
        share = len(labels) / 12 if counted else 1 / 3
        assert loss == pytest.approx(float(mean.detach()) * share, rel=1e-5)


def test_the_last_checkpoint_is_found_and_one_without_a_state_warns(tmp_path):
    options = {"save_strategy": "epoch", "num_train_epochs": 1}
    recorder(tmp_path, vit(), KINDS["switch"](generator=seeded(3)), **options).train()
    again = recorder(tmp_path, vit(), KINDS["switch"](generator=seeded(4)), **options)
    again.train(resume_from_checkpoint=True)
    state = torch.load(tmp_path / "checkpoint-3" / "zetamix_0.pt", weights_only=True)
    assert torch.equal(again.transform.generator.get_state(), state["generator"])
    (tmp_path / "checkpoint-3" / "zetamix_0.pt").unlink()
    other = recorder(tmp_path, vit(), KINDS["switch"](), **options)
    with pytest.warns(UserWarning, match=r"has no zetamix_0\.pt: training will not resume"):
        other.train(resume_from_checkpoint=True)


def test_embeddings_are_blended_and_masks_stay(tmp_path):
    mask = torch.ones(12, 6, dtype=torch.long)
    mask[::2, 4:] = 0
    embeddings = torch.randn(12, 6, 8, generator=seeded(2))
    data = Rows(inputs_embeds=embeddings, attention_mask=mask, labels=LABELS)
    ours, plain = (KINDS["zetamix"](until=1, generator=seeded()) for _ in range(2))
    trainer = recorder(tmp_path, bert(), ours, data, num_train_epochs=1)
    trainer.train()
    mixed = [plain(x, y)[0] for x, y in zip(embeddings.split(5), LABELS.split(5), strict=True)]
    assert_same(
        ((kwargs["inputs_embeds"], kwargs["attention_mask"]) for _, kwargs in trainer.seen),
        zip(mixed, mask.split(5), strict=True),
    )
    tokens = Rows(input_ids=torch.randint(20, (12, 6)), labels=LABELS)
    with pytest.raises(TypeError, match=r"got input_ids, labels\. Token ids cannot be mixed"):
        recorder(tmp_path, bert(), ours, tokens).train()


SINGLE, MULTI = "single_label_classification", "multi_label_classification"
# labels, the problem that the model is configured for, the loss of a model that says nothing, and
# the problem in the saved configuration
PROBLEMS = [
    (LABELS, None, math.log(CLASSES), SINGLE),
    (F.one_hot(LABELS, CLASSES).float(), SINGLE, math.log(CLASSES), SINGLE),
    (F.one_hot(LABELS, CLASSES).float(), MULTI, math.log(2), MULTI),
]


@pytest.mark.parametrize(("labels", "problem", "loss", "saved"), PROBLEMS)
def test_the_loss_is_that_of_the_problem_which_is_saved(labels, problem, loss, saved, tmp_path):
    """Given soft labels, the model itself would begin at ln 2, with binary cross entropy."""
    data, model = Rows(pixel_values=IMAGES, labels=labels), vit(zeroed=True, problem_type=problem)
    trainer = recorder(tmp_path, model, KINDS["zetamix"](), data)
    trainer.train()
    assert trainer.losses[0] == pytest.approx(loss, rel=1e-5)
    trainer.save_model()
    again = ViTForImageClassification.from_pretrained(tmp_path)
    assert again.config.problem_type == saved
    logits, expected = (net.eval()(pixel_values=IMAGES).logits for net in (again, trainer.model))
    assert torch.equal(logits, expected)
