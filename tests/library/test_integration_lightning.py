"""MixCallback in Lightning's Trainer: what each loop sees, checkpoints, and two processes."""

import doctest
import os
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transform_kinds import CLASSES, KINDS, seeded

import zetamix.integrations
from zetamix import ZetaMix, ZetaMixup, rules

pl = pytest.importorskip("lightning.pytorch")
from zetamix.integrations.lightning import MixCallback  # noqa: E402

pytestmark = [
    # Lightning recommends loader workers, logging steps and validation, and names what it resumes
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    # torch has newer names for what it calls
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*is deprecated:FutureWarning"),
]

SAMPLES = torch.randn(12, 3, 4, 4, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(12) % CLASSES


def loader():
    # the last batch is smaller
    return DataLoader(TensorDataset(SAMPLES, LABELS), batch_size=5)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(48, CLASSES))
        self.seen = {"train": [], "validation": [], "test": [], "predict": []}

    def training_step(self, batch, batch_idx):
        images, targets = batch
        self.seen["train"].append((images, targets))
        return F.cross_entropy(self.model(images), targets)

    def validation_step(self, batch, batch_idx):
        self.seen["validation"].append(tuple(batch))

    def test_step(self, batch, batch_idx):
        self.seen["test"].append(tuple(batch))

    def predict_step(self, batch, batch_idx):
        self.seen["predict"].append(tuple(batch))
        return self.model(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(folder, *callbacks, epochs=2, kind=pl.Trainer, **options):
    quiet = dict.fromkeys(
        ("enable_checkpointing", "logger", "enable_progress_bar", "enable_model_summary"), False
    )
    options = {**quiet, "accelerator": "cpu", "max_epochs": epochs, **options}
    return kind(callbacks=list(callbacks), default_root_dir=folder, **options)


def fit(folder, mix, *callbacks, net=None, data=None, **options):
    """The batches that a module is trained on."""
    net = Net() if net is None else net
    trainer(folder, MixCallback(mix), *callbacks, **options).fit(net, data or loader())
    return net.seen["train"]


def switch(seed=0):
    """What mixes in every epoch."""
    return KINDS["switch"](generator=seeded(seed))


def plain_loop(transform, epochs=2):
    for epoch in range(epochs):
        transform.set_epoch(epoch, epochs)
        yield from (transform(images, labels) for images, labels in loader())


def assert_same(batches, expected):
    batches, expected = list(batches), list(expected)
    assert len(batches) == len(expected) > 0
    for batch, other in zip(batches, expected, strict=True):
        torch.testing.assert_close(tuple(batch), tuple(other), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_training_sees_the_batches_of_a_plain_loop_and_evaluation_sees_its_own(kind, tmp_path):
    net = Net()
    lightning = trainer(tmp_path, MixCallback(KINDS[kind](generator=seeded())))
    lightning.fit(net, loader(), loader())
    assert_same(net.seen["train"], plain_loop(KINDS[kind](generator=seeded())))
    # the sanity check, then two epochs
    assert_same(net.seen["validation"], [*list(loader())[:2], *loader(), *loader()])
    lightning.test(net, loader(), verbose=False)
    lightning.predict(net, loader(), return_predictions=False)
    assert_same(net.seen["test"], loader())
    assert_same(net.seen["predict"], loader())
    assert "on_after_batch_transfer" not in vars(net)


def gamma_of(epoch):
    return 2.0 + epoch


def test_the_epoch_is_set(tmp_path):
    ours, plain = (
        ZetaMixup(num_classes=CLASSES, gamma=gamma_of, generator=seeded()) for _ in range(2)
    )
    assert_same(fit(tmp_path, ours), plain_loop(plain))
    assert (ours.epoch, ours.gamma) == (1, 3.0)


@pytest.mark.parametrize("until", [0.8, 1])
def test_mixing_ends_as_in_a_plain_loop_or_where_a_callback_switches_it_off(until, tmp_path):
    mix = ZetaMix(num_classes=CLASSES, until=until, generator=seeded())

    class EndMixing(pl.Callback):
        def on_train_epoch_start(self, trainer, pl_module):
            mix.enabled = trainer.current_epoch < 0.8 * trainer.max_epochs

    seen = fit(tmp_path, mix, *([EndMixing()] if until == 1 else []), epochs=5)
    mixed = plain_loop(ZetaMix(num_classes=CLASSES, until=1, generator=seeded()), epochs=4)
    hard = [(images, F.one_hot(labels, CLASSES).float()) for images, labels in loader()]
    assert_same(seen, [*mixed, *hard])


@pytest.mark.parametrize("epochs", [-1, 9])
def test_where_steps_end_training_steps_are_counted(epochs, tmp_path):
    mix = ZetaMix(num_classes=CLASSES, until=0.6)
    seen = fit(tmp_path, mix, epochs=epochs, max_steps=6)
    mixed = [bool((targets.amax(1) < 1).any()) for _, targets in seen]
    assert mixed == [True] * 4 + [False] * 2


def test_until_needs_the_length_of_training(tmp_path):
    with pytest.raises(ValueError, match="its length is unknown"):
        fit(tmp_path, ZetaMix(num_classes=CLASSES), epochs=-1)


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


@pytest.mark.parametrize(
    ("net", "data"), [(ShiftedNet, None), (Net, ShiftedData), (Net, Data)], ids=["net", "data", "0"]
)
def test_hooks_of_the_module_or_the_data_module_are_called_first(net, data, tmp_path):
    net, data = net(), data and data()
    lightning = trainer(tmp_path, MixCallback(switch()))
    lightning.fit(net, datamodule=data) if data else lightning.fit(net, loader())
    mix = switch()
    shift = isinstance(net, Shifted) + isinstance(data, Shifted)
    expected = [mix(images + shift, labels) for _ in range(2) for images, labels in loader()]
    assert_same(net.seen["train"], expected)
    hook = "on_after_batch_transfer"
    assert hook not in vars(net)
    assert data is None or hook not in vars(data)


class Broken(Net):
    def training_step(self, batch, batch_idx):
        raise RuntimeError("out of memory")


def test_after_an_error_the_module_is_as_it_was_and_mixes_once(tmp_path):
    net, callback = Broken(), MixCallback(switch())
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer(tmp_path, callback).fit(net, loader())
    assert "on_after_batch_transfer" not in vars(net)
    callback.transform.generator.manual_seed(0)
    net = Net()
    trainer(tmp_path, callback).fit(net, loader())
    assert_same(net.seen["train"], plain_loop(switch()))


def test_training_resumes_with_the_plans_that_would_have_come_next(tmp_path):
    def run(seed, path=None):
        keep = pl.callbacks.ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
        net, mix = Net(), MixCallback(KINDS["zetamix"](generator=seeded(seed)))
        lightning = trainer(tmp_path, mix, keep, epochs=4, enable_checkpointing=True)
        lightning.fit(net, loader(), ckpt_path=path)
        return net.seen["train"]

    whole = run(3)
    # another seed, which the checkpoint makes irrelevant
    assert_same(run(4, tmp_path / "epoch=1.ckpt"), whole[6:])


def test_batches_of_any_form_are_mixed_by_rules(tmp_path):
    class DictNet(Net):
        def training_step(self, batch, batch_idx):
            return super().training_step((batch["image"], batch["label"]), batch_idx)

    pairs = [{"image": image, "label": label} for image, label in zip(SAMPLES, LABELS, strict=True)]
    data = DataLoader(pairs, batch_size=5)
    by_rule = {"image": rules.Blend(), "label": rules.OneHot(CLASSES)}
    ours, plain = (ZetaMix(rules=by_rule, until=1, generator=seeded()) for _ in range(2))
    seen = fit(tmp_path, ours, net=DictNet(), data=data)
    assert_same(seen, [plain(batch).values() for _ in range(2) for batch in data])


def test_a_checkpoint_of_other_processes_warns():
    callback = MixCallback(switch())
    (state,) = callback.state_dict()["transforms"]
    other = MixCallback(switch(1))
    with pytest.warns(UserWarning, match=r"of 2 process\(es\), but there are now 1"):
        other.load_state_dict({"transforms": [state, state]})
    assert torch.equal(other.transform.generator.get_state(), seeded().get_state())


def test_anything_but_a_transform_is_refused():
    with pytest.raises(TypeError, match=r"transform must be one of .*, got Linear"):
        MixCallback(nn.Linear(1, 1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pytorch_lightning.*")
def test_the_older_package_takes_the_callback(tmp_path):
    older = pytest.importorskip("pytorch_lightning")

    class OlderNet(older.LightningModule):
        training_step = Net.training_step
        configure_optimizers = Net.configure_optimizers

        def __init__(self):
            super().__init__()
            self.model = nn.Sequential(nn.Flatten(), nn.Linear(48, CLASSES))
            self.seen = {"train": []}

    seen = fit(tmp_path, switch(), net=OlderNet(), kind=older.Trainer)
    assert_same(seen, plain_loop(switch()))


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
    data = TensorDataset(SAMPLES.repeat(2, 1, 1, 1), LABELS.repeat(2))
    for name, path in (("whole", None), ("resumed", f"{folder}/epoch=0.ckpt")):
        keep = pl.callbacks.ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)
        options = {"enable_checkpointing": True, "devices": 2, "strategy": "ddp_fork"}
        mix = MixCallback(KINDS["zetamix"](generator=seeded()))
        lightning = trainer(folder, mix, keep, epochs=3, **options)
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
    assert sorted(seen) == ["resumed-0", "resumed-1", "whole-0", "whole-1"]
    for rank in range(2):
        assert len(seen[f"whole-{rank}"]) == 6
        assert_same(seen[f"resumed-{rank}"], seen[f"whole-{rank}"][2:])
    weights = [[targets for _, targets in seen[f"whole-{rank}"]] for rank in range(2)]
    assert not any(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_the_example_runs():
    assert doctest.testmod(zetamix.integrations.lightning) == (0, 2)
