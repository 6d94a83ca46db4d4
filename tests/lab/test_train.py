"""Runs in this process: their results, and that they resume exactly."""

import json
import sys
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from factories import (
    FINISHED,
    METHODS,
    RECIPE,
    STEPS,
    assert_same,
    checkpoint,
    dropout_model,
    finish,
    names,
    resume,
    stop_after,
    weights,
)
from sklearn.utils.class_weight import compute_class_weight

from zetamix.methods import parse
from zetamix.sampling import mix64
from zetamix_lab.data.loader import ROUND, Loader, measure_scale
from zetamix_lab.metrics import EVALUATED, METRICS, SCALED
from zetamix_lab.models import initialise
from zetamix_lab.records import RunRecord
from zetamix_lab.train import RecipeError, train
from zetamix_lab.train import run as run_module
from zetamix_lab.train import trainer as trainer_module
from zetamix_lab.train.cuda_graph import can_capture
from zetamix_lab.train.run_folder import log_curves
from zetamix_lab.train.trainer import MIXING, NonFiniteLossError, Trainer, choose_dtype, derive

METHODS = [*METHODS, "zeta:gamma=2.8,sources=4", "mixup:alpha=1.0,until=0.5"]
# a rate at which digits diverge in their second step
DIVERGING = RECIPE.change(lr=1e30)


def test_a_run_leaves_its_folder(new):
    run = new()
    record = finish(run)
    folder = run.folder.path
    assert names(folder) == FINISHED
    cell = json.loads((folder / "cell.json").read_text())
    assert (cell["key"], cell["method"], cell["train_size"]) == (run.cell.key, "zeta:2.8", 100)
    values = json.loads((folder / "record.json").read_text())
    assert (values["key"], RunRecord.from_dict(values)) == (run.cell.key, record)
    lines = run.folder.read_curve()
    assert [line["epoch"] for line in lines] == [1, 2]
    assert [line["lr"] for line in lines] == pytest.approx([0.05, 0.01])
    assert all(0 < line["train_loss"] < 4 and 0 <= line["train_accuracy"] <= 1 for line in lines)
    assert lines[-1]["test"].items() <= record.last.items()
    assert set(record.last) == {*EVALUATED, *SCALED}
    assert record.test_size == sum(map(sum, record.confusion)) == 50
    assert record.parameters == 21_482
    assert record.wall_s > 0
    assert record.machine["torch"] == torch.__version__
    assert record.extra.pop("temperature") > 0
    how = {"concurrent": 1, "compiled": False, "graph": False, "weights": "from scratch"}
    assert record.extra == how


def make_optimizer(model, recipe):
    if recipe.optimizer == "sgd":
        options = {"momentum": recipe.momentum, "nesterov": recipe.nesterov}
        return torch.optim.SGD(model.parameters(), weight_decay=recipe.weight_decay, **options)
    # neither biases nor the parameters of normalisation decay
    matrices, vectors = (
        [part for part in model.parameters() if (part.ndim > 1) is wide] for wide in (True, False)
    )
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, weight_decay=recipe.weight_decay)


def plain_loop(dataset, method, recipe, seed):
    """The same training with PyTorch's own parts: weights, and loss and accuracy of each epoch."""
    layout = torch.channels_last
    model = initialise(recipe.model, dataset.num_classes, dataset.shape, seed).train()
    model = model.to(memory_format=layout)
    optimizer = make_optimizer(model, recipe)
    loader = Loader(
        dataset.train,
        recipe.batch_size,
        scale=measure_scale(dataset.train.samples),
        augmentation=recipe.augmentation,
        drop_last=recipe.last_batch == "drop",
        seed=seed,
    )
    generator = torch.Generator().manual_seed(derive(seed, MIXING))
    mixing = parse(method).transform(dataset.num_classes, generator)
    curve = []
    for epoch in range(recipe.epochs):
        if mixing is not None:
            mixing.set_epoch(epoch, recipe.epochs)
        seen = []
        for step, (samples, labels) in enumerate(loader, 1):
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate(epoch, step / len(loader))
            targets = labels
            if mixing is not None:
                samples, targets = mixing(samples, labels)
            samples = samples.contiguous(memory_format=layout)
            optimizer.zero_grad()
            logits = model(samples)
            loss = F.cross_entropy(logits, targets)
            loss.backward()
            optimizer.step()
            dominant = targets.argmax(1) if targets.ndim == 2 else targets
            seen.append([loss.item(), (logits.argmax(1) == dominant).float().mean().item()])
        curve.append(np.mean(seen, 0))
    return model.state_dict(), curve


KEPT = RECIPE.change(augmentation="crop-flip", last_batch="keep", momentum=0, nesterov=False)
ADAMW = RECIPE.change(optimizer="adamw", lr=0.01, weight_decay=0.2, warmup=1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "recipe", [RECIPE, KEPT, ADAMW], ids=["steps", "kept and augmented", "adamw"]
)
def test_training_equals_a_plain_loop(new, digits, method, recipe):
    run = new(method, recipe, seed=3)
    finish(run)
    expected, curve = plain_loop(digits, method, recipe, 3)
    torch.testing.assert_close(weights(run.folder.path), expected, rtol=0, atol=0)
    for line, (loss, accuracy) in zip(run.folder.read_curve(), curve, strict=True):
        assert line["train_loss"] == pytest.approx(loss, rel=1e-5)
        assert line["train_accuracy"] == pytest.approx(accuracy, rel=1e-5)


@pytest.mark.parametrize("normalize", ["half", "dataset"])
def test_zetamix_keeps_brightness_however_samples_are_normalised(digits, normalize, monkeypatch):
    """Scaled deviations are those from the mean of the data."""
    trainer = Trainer(digits, parse("zetamix:until=1"), RECIPE.change(normalize=normalize))
    seen = []
    monkeypatch.setattr(trainer, "forward", lambda samples: seen.append(samples) or model(samples))
    model = trainer.model
    for _ in range(20):
        trainer.start_epoch()
        for _ in range(STEPS):
            trainer.step()
        trainer.epoch, trainer.step_in_epoch = trainer.epoch + 1, 0
    expected = trainer.scale.apply(digits.train.samples, torch.float32)
    assert torch.cat(seen).mean().item() == pytest.approx(expected.mean().item(), abs=0.02)


@pytest.mark.parametrize("dropout", [False, True])
def test_a_seed_decides_everything(new, monkeypatch, dropout):
    if dropout:
        monkeypatch.setattr(trainer_module, "initialise", dropout_model)
    first, again, other = (new("zeta", seed=seed) for seed in (0, 0, 1))
    finish(first)
    torch.rand(5)
    before = torch.get_rng_state()
    train([again, other], jobs=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(first.folder.path, again.folder.path)
    one, two = weights(first.folder.path), weights(other.folder.path)
    assert any(not torch.equal(one[key], two[key]) for key in one)
    assert_same(first.folder.path, resume(new, "zeta", rounds=2).folder.path)


@pytest.mark.parametrize("method", ["none", "mixup"])
def test_class_weights_are_scikit_learns_in_the_soft_loss(digits, method, monkeypatch):
    """Rare classes weigh more, of mixed targets too."""
    rows = torch.cat([torch.arange(60), torch.nonzero(digits.train.labels == 3).flatten()])
    unbalanced = replace(digits, train=digits.train.keep(rows))
    labels = unbalanced.train.labels.numpy()
    weight = torch.from_numpy(compute_class_weight("balanced", classes=np.arange(10), y=labels))
    trainer = Trainer(unbalanced, parse(method), RECIPE.change(class_weights="balanced"))
    loss_of = mock.Mock(wraps=trainer.loss)
    monkeypatch.setattr(trainer, "loss", loss_of)
    trainer.start_epoch()
    trainer.step()
    logits, targets = loss_of.call_args.args
    loss = trainer.step_metrics[0, 0]
    soft = targets if method == "mixup" else F.one_hot(targets, 10).float()
    terms = (soft * weight * -logits.log_softmax(1)).sum()
    assert loss.item() == pytest.approx((terms / (soft * weight).sum()).item(), rel=1e-5)


def test_dropout_draws_anew_in_every_step(new, monkeypatch):
    monkeypatch.setattr(trainer_module, "initialise", dropout_model)
    run, drawn = new("none"), set()
    steps = run.advance()
    for _ in range(STEPS):
        next(steps)
        with run.trainer.layer_draws():
            drawn.add(torch.rand(1).item())
    assert len(drawn) == STEPS


def test_mixing_has_a_seed_of_its_own():
    """None of those that the data derives for its first hundred epochs."""
    for seed in range(5):
        epochs = {mix64(other * ROUND + epoch) >> 1 for other in range(5) for epoch in range(100)}
        assert derive(seed, MIXING) not in epochs
    assert len({derive(seed, purpose) for seed in range(50) for purpose in range(3)}) == 150


CHANGES = [
    {"last_batch": "keep", "augmentation": "crop-flip"},
    {"momentum": 0.0, "nesterov": False},
    {"schedule": "cosine"},
    {"evaluate_every": 2, "normalize": "half"},
    {"augmentation": "randaugment", "class_weights": "balanced"},
    {"augmentation": "random-resized-crop"},
    {"augmentation": "reflect-crop-flip", "select": "none"},
]
# how far a run is when its stop is asked: after each step, before each batch of an evaluation on
# test and val, and after each epoch; then in the evaluation for the record
MOMENTS = [
    *[(0, 1), (0, 2), (0, 3), (0, 3), (0, 3), (1, 0)],
    *[(1, 1), (1, 2), (1, 3), (1, 3), (1, 3), (2, 0)],
    *[(2, 0), (2, 0)],
]
INTERRUPTED = [
    *[("zeta:2.8", {}, rounds, None) for rounds in range(1, len(MOMENTS) + 1)],
    *[(method, {}, 2, None) for method in METHODS],
    *[("mixup", change, rounds, memory)
      for change in CHANGES for rounds in (2, 6) for memory in (None, 0)],
]  # fmt: skip


@pytest.mark.parametrize(("method", "change", "rounds", "memory"), INTERRUPTED)
def test_a_stopped_run_resumes_exactly(new, method, change, rounds, memory):
    """memory=0: the split is streamed."""
    recipe = RECIPE.change(**change)
    whole = new(method, recipe)
    finish(whole)
    part = new(method, recipe, out="part", data_memory=memory)
    train([part], stop=stop_after(rounds))
    saved = checkpoint(part.folder.path)
    if not change:
        assert (saved["epoch"], saved["step_in_epoch"]) == MOMENTS[rounds - 1]
    last = new(method, recipe, out="part", data_memory=memory)
    finish(last)
    assert_same(whole.folder.path, last.folder.path)
    assert names(last.folder.path) == FINISHED


def test_seconds_and_concurrency_add_up_over_sessions(new):
    runs = [new(seed=seed, out=f"session{seed}") for seed in range(3)]
    train(runs, jobs=3, stop=stop_after(4))
    before = runs[0].folder.load_checkpoint()["seconds"]
    record = finish(new(seed=0, out="session0"))
    assert before > 0
    assert record.wall_s >= round(before, 2)
    assert record.extra["concurrent"] == 3


def test_a_finished_run_is_not_trained_again(new, monkeypatch):
    first = new(out="once")
    record = finish(first)
    # a process killed between the record and the clean-up leaves its checkpoint
    (first.folder.path / "checkpoint.pt").write_bytes(b"x" * 100)
    monkeypatch.setattr(run_module, "Trainer", mock.Mock(side_effect=AssertionError))
    assert finish(new(out="once")) == record
    assert names(first.folder.path) == FINISHED


def test_checkpoints_come_as_often_as_requested(new):
    for seconds, written in [(0, [1, 2, 3]), (3600, [])]:
        run = new("none", RECIPE.change(epochs=4), save_every=seconds)
        seen = []
        for line in run.advance():
            saved = checkpoint(run.folder.path)
            if line and line["epoch"] < 4 and saved is not None:
                seen.append(saved["epoch"])
        assert seen == written


def test_some_epochs_and_all_the_last_ones_are_measured(new):
    changes = {"epochs": 6, "evaluate_every": 2, "last_epochs": 2, "select": "none"}
    recipe = RECIPE.change(**changes, batch_size=10, augmentation="reflect-crop-flip")
    run = resume(new, "none", recipe, rounds=5 * 11 + 1, save_every=0)
    record, lines = run.record, run.folder.read_curve()
    assert ["test" in line for line in lines] == [False, True, False, True, True, True]
    assert (record.best, any("val" in line for line in lines)) == (None, False)
    assert record.extra["last_epochs"] == [line["test"] for line in lines[-2:]]
    plain = finish(new("none"))
    assert "last_epochs" not in {*plain.extra, *plain.cell.recipe}
    assert [recipe.change(epochs=1).last_epochs, recipe.change(epochs=12).last_epochs] == [1, 2]


SELECTED = [
    # metric that selects the best epoch, its validation values, the epoch
    ("accuracy", [0.5, 0.7, 0.7, 0.6], 2),
    ("error", [0.5, 0.3, 0.3, 0.4], 2),
    ("auc", [0.9, 0.8, 0.7, 0.95], 4),
    ("nll", [0.9, 0.8, 0.7, 0.95], 3),
]


@pytest.mark.parametrize(("select", "values", "epoch"), SELECTED)
def test_the_best_epoch_is_selected_on_val_and_measured_on_test(
    new, digits, monkeypatch, select, values, epoch
):
    run = new("none", RECIPE.change(epochs=4, evaluate_every=1, select=select))
    test_errors = iter([0.4, 0.3, 0.2, 0.1, 0.1])
    on_val = iter(values)

    def scores(logits, labels):
        base = dict.fromkeys(METRICS, 0.5)
        if len(labels) == len(digits.val):
            return {**base, select: next(on_val)}
        return {**base, "error": next(test_errors)}

    assert finish(new(dataset=replace(digits, val=None))).best is None
    monkeypatch.setattr(run_module, "classify", scores)
    record = finish(run)
    assert record.best["epoch"] == epoch
    assert record.best["val_score"] == values[epoch - 1]
    assert record.best["error"] == [0.4, 0.3, 0.2, 0.1][epoch - 1]
    assert record.last["error"] == 0.1


def test_what_cannot_be_trained_is_refused_before_anything_is_written(new, digits, tmp_path):
    with pytest.raises(ValueError, match=r"^digits has no test split to report on\.$"):
        new(dataset=replace(digits, test=None))
    for seed in (-1, 2**63, 10**30):
        with pytest.raises(ValueError, match=rf"^seed must be from 0 to {2**63 - 1}, got {seed}\."):
            new(seed=seed)
    with pytest.raises(RecipeError, match="mixes 64 samples, but a batch has 32"):
        new("zeta:sources=64")
    assert names(tmp_path) == []
    assert new(seed=2**63 - 1).start().seed == 2**63 - 1


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            DIVERGING,
            "The loss of mixup:1.0, seed 7, is not finite in epoch 1, step 2 of 3, at a learning "
            "rate of 1e+30. Try a lower one (--set lr=...), or --set precision=float32.",
        ),
        (
            # one step an epoch, the loss of which is that of the initial model
            DIVERGING.change(batch_size=100),
            "The outputs of mixup:1.0, seed 7, are not finite after epoch 1. Try a lower "
            "learning rate (--set lr=...), or --set precision=float32.",
        ),
    ],
    ids=["loss", "outputs"],
)
def test_a_diverged_run_raises_and_is_a_failure_of_train(new, recipe, message):
    with pytest.raises(NonFiniteLossError):
        list(new("mixup", recipe, seed=7).advance())
    run = new("mixup", recipe, seed=7)
    assert train([run]) == {run: message}
    assert run.record is None


def test_a_diverged_run_keeps_its_last_finite_checkpoint(new):
    # the rate of the second epoch makes it diverge
    run = new("none", RECIPE.change(lr=0.01, decay=1e32), save_every=0)
    assert "in epoch 2, step 2 of 3" in train([run])[run]
    assert checkpoint(run.folder.path)["epoch"] == 1


def test_a_step_is_captured_where_batches_have_one_size():
    # 100 digits are four batches of 25
    changes = {}, {"last_batch": "keep"}, {"last_batch": "keep", "batch_size": 25}
    for device, captured in (("cuda", [True, False, True]), ("cpu", [False] * 3)):
        found = [can_capture(torch.device(device), RECIPE.change(**c), 100) for c in changes]
        assert found == captured


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_precision_on_a_cpu(new, precision, dtype):
    assert choose_dtype(precision, torch.device("cpu")) == dtype
    assert 0 <= finish(new("zeta", RECIPE.change(precision=precision))).last["error"] < 1


def test_tensorboard_gets_every_new_epoch_once(new, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    old, fresh = new(), new(seed=1)
    finish(old)
    with log_curves("tensorboard", tmp_path) as log:
        log()
        finish(fresh)
        log()
        log()
    assert not (old.folder.path / "tensorboard").exists()
    events = accumulator.EventAccumulator(str(fresh.folder.path / "tensorboard")).Reload()
    tags = set(events.Tags()["scalars"])
    assert {"lr", "train_loss", "val/nll", "test/error"} < tags
    assert "epoch" not in tags
    found = [(event.step, event.value) for event in events.Scalars("test/error")]
    errors = [line["test"]["error"] for line in fresh.folder.read_curve()]
    assert found == [(1, pytest.approx(errors[0])), (2, pytest.approx(errors[1]))]


def test_loggers_that_cannot_be_used(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for package, message in (
        ("wandb", "Expected tensorboard, got 'wandb'"),
        ("tensorboard", "pip i"),
    ):
        with pytest.raises(ValueError, match=message), log_curves(package, tmp_path):
            pass
    with log_curves(None, tmp_path):
        assert names(tmp_path) == []
