"""Training in this process: what a run leaves, that it is right, and that it goes on."""

import json
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from folders import names
from torch import nn

from zetamix import data
from zetamix.data.augment import measure_scale
from zetamix.data.loader import Loader
from zetamix.methods import parse
from zetamix.metrics import METRICS, classify, confusion
from zetamix.models import initialise
from zetamix.records import RunRecord, read_lines
from zetamix.train import RECIPES, RecipeError, Run, load_model, train
from zetamix.train import run as runs_module
from zetamix.train import trainer as trainer_module
from zetamix.train.run_folder import FolderError
from zetamix.train.step_timer import StepTimer
from zetamix.train.trainer import MIXING, NonFiniteLossError, Trainer, choose_dtype, derive
from zetamix.train.trainer import StepMetrics as Tally

# 100 digits in batches of 32: three steps an epoch, and four left over
RECIPE = RECIPES["cifar10"].change(
    model="digitnet", epochs=2, batch_size=32, lr=0.05, milestones=(1,), augmentation="none"
)
STEPS = 3
METHODS = ["none", "mixup", "cutmix", "zeta:2.8", "zeta:gamma=2.8,sources=4", "local"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    whole = data.load("digits", data_dir=tmp_path_factory.mktemp("data"))
    return replace(
        whole,
        train=whole.train.subset(100),
        val=whole.val.subset(40),
        test=whole.test.subset(50),
    )


@pytest.fixture
def new(digits, tmp_path):
    """Makes runs; each in a folder of its own, unless one is named."""
    made = []

    def make(method="zeta:2.8", recipe=RECIPE, *, out=None, dataset=digits, seed=0, **how):
        made.append(out)
        out = tmp_path / (f"run{len(made)}" if out is None else out)
        return Run(dataset, parse(method), recipe, seed=seed, out=out, **how)

    return make


def result(run):
    """Everything of a finished run that must not depend on how it got there."""
    record = json.loads((run.folder.path / "record.json").read_text())
    curve = list(read_lines(run.folder.path / "metrics.jsonl"))
    for line in curve:
        del line["seconds"]
    model = torch.load(run.folder.path / "final.pt", weights_only=True)
    return [record["last"], record["best"], record["confusion"], curve], model


def assert_same(first, second):
    (values, model), (other_values, other_model) = result(first), result(second)
    assert values == other_values
    assert model.keys() == other_model.keys()
    for key in model:
        assert torch.equal(model[key], other_model[key]), key


def differ(first, second):
    first, second = result(first)[1], result(second)[1]
    return any(not torch.equal(first[key], second[key]) for key in first)


def stop_after(rounds):
    """Says stop once it has been asked so often."""
    asked = []

    def stop():
        asked.append(None)
        return len(asked) >= rounds

    return stop


def test_a_run_leaves_its_folder(new, digits):
    run = new()
    (record,) = train([run]).records
    folder = run.folder.path
    assert names(folder) == ["cell.json", "final.pt", "metrics.jsonl", "model.json", "record.json"]
    cell = json.loads((folder / "cell.json").read_text())
    assert (cell["key"], cell["method"], cell["train_size"]) == (run.cell.key, "zeta:2.8", 100)
    assert RunRecord.from_dict(json.loads((folder / "record.json").read_text())) == record
    lines = list(read_lines(folder / "metrics.jsonl"))
    assert [line["epoch"] for line in lines] == [1, 2]
    assert [line["lr"] for line in lines] == pytest.approx([0.05, 0.01])
    assert all(0 < line["train_loss"] < 4 and 0 <= line["train_accuracy"] <= 1 for line in lines)
    assert lines[-1]["test"] == record.last
    assert set(record.last) == set(METRICS)
    assert record.test_size == 50
    assert sum(map(sum, record.confusion)) == 50
    assert record.parameters == 21_482
    assert record.wall_s > 0
    assert record.step_ms > 0
    assert record.machine["torch"] == torch.__version__
    assert record.extra == {"concurrent": 1, "compiled": False, "graph": False, "processes": 1}


def test_the_record_is_that_of_the_saved_model(new, digits):
    run = new("mixup")
    (record,) = train([run]).records
    model = initialise("digitnet", 10, (1, 8, 8), 99).eval()
    model.load_state_dict(torch.load(run.folder.path / "final.pt", weights_only=True))
    scale = measure_scale(digits.train.samples)
    with torch.no_grad():
        logits = model(scale.apply(digits.test.samples, torch.float32))
    assert classify(logits, digits.test.labels) == pytest.approx(record.last, abs=1e-6)
    assert confusion(logits, digits.test.labels).tolist() == record.confusion
    # and without knowing how it was made
    loaded = load_model(run.folder.path)
    assert loaded.classes == digits.classes
    assert not loaded.training
    with torch.no_grad():
        assert torch.equal(loaded(digits.test.samples), logits)
        # as a loader gives them
        images, _ = next(iter(Loader(digits.test, batch_size=360, shuffle=False)))
        torch.testing.assert_close(loaded(images), logits, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"like \[1, 8, 8\], as in training, got \[5, 3, 8, 8\]"):
        loaded(torch.zeros(5, 3, 8, 8))
    with pytest.raises(ValueError, match=r"like \[1, 8, 8\], as in training, got \[1, 8, 8\]"):
        loaded(torch.zeros(1, 8, 8))


@pytest.mark.parametrize("normalize", ["half", "none"])
def test_a_model_is_loaded_with_its_normalisation(new, digits, normalize):
    run = new("none", RECIPE.change(normalize=normalize))
    (record,) = train([run]).records
    with torch.no_grad():
        logits = load_model(run.folder.path)(digits.test.samples)
    assert confusion(logits, digits.test.labels).tolist() == record.confusion


def test_a_model_of_points_or_of_no_finished_run(tmp_path):
    points = data.load("crescents")
    recipe = RECIPE.change(model="mlp", epochs=1)
    run = Run(points, parse("none"), recipe, seed=0, out=tmp_path / "points")
    with pytest.raises(
        FolderError, match=r"points holds no finished run: there is no record\.json"
    ):
        load_model(tmp_path / "points")
    (record,) = train([run]).records
    with torch.no_grad():
        logits = load_model(tmp_path / "points")(points.test.samples)
    assert confusion(logits, points.test.labels).tolist() == record.confusion
    (tmp_path / "points" / "final.pt").write_bytes(b"half")
    with pytest.raises(
        FolderError, match=r"The model of .*points cannot be read .* Train it again"
    ):
        load_model(tmp_path / "points")
    (tmp_path / "points" / "model.json").unlink()
    with pytest.raises(FolderError, match=r"runs from before model\.json was written have none"):
        load_model(tmp_path / "points")


def plain_loop(dataset, method, recipe, seed):
    """What training means, written down once more with torch's own parts."""
    model = initialise(recipe.model, dataset.num_classes, dataset.shape, seed).train()
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=recipe.lr,
        momentum=recipe.momentum,
        nesterov=recipe.nesterov,
        weight_decay=recipe.weight_decay,
    )
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, recipe.milestones, recipe.decay)
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
    for _ in range(recipe.epochs):
        for samples, labels in loader:
            targets = labels
            if mixing is not None:
                samples, targets = mixing(samples, labels)
            optimizer.zero_grad()
            F.cross_entropy(model(samples), targets).backward()
            optimizer.step()
        scheduler.step()
    return model.state_dict()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "recipe",
    [
        RECIPE,
        RECIPE.change(augmentation="crop-flip", last_batch="keep", momentum=0, nesterov=False),
    ],
    ids=["steps", "kept and augmented"],
)
def test_training_is_what_a_plain_loop_does(new, digits, method, recipe):
    run = new(method, recipe, seed=3)
    train([run])
    expected = plain_loop(digits, method, recipe, 3)
    _, model = result(run)
    for key, value in expected.items():
        assert torch.equal(model[key], value), key


def test_a_seed_decides_everything(new):
    first, again, other = (new("zeta", seed=seed) for seed in (0, 0, 1))
    before = torch.get_rng_state()
    for run in (first, again, other):
        train([run])
    assert torch.equal(torch.get_rng_state(), before)
    assert_same(first, again)
    assert differ(first, other)


def test_mixing_has_a_seed_of_its_own():
    """Not that of any epoch of the data, whose first hundred are tried."""
    from zetamix.data.augment import ROUND
    from zetamix.sampling import mix64

    for seed in range(5):
        epochs = {mix64(other * ROUND + epoch) >> 1 for other in range(5) for epoch in range(100)}
        assert derive(seed, MIXING) not in epochs
    assert len({derive(seed, purpose) for seed in range(50) for purpose in range(3)}) == 150


@pytest.fixture
def dropping(monkeypatch):
    """Models with dropout instead of those that a recipe names."""

    def build(name, num_classes, shape, seed, **how):
        generator = torch.Generator().manual_seed(seed)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Dropout(0.5), nn.Linear(32, 10))
        for part in model.parameters():
            part.data = torch.randn(part.shape, generator=generator) * 0.1
        return model

    monkeypatch.setattr(trainer_module, "initialise", build)


def test_dropout_follows_the_seed_and_changes_with_every_step(new, dropping):
    first, again, other = (new("none", seed=seed) for seed in (0, 0, 1))
    train([first])
    torch.rand(5)
    train([again, other], jobs=2)
    assert_same(first, again)
    assert differ(first, other)
    run = new("none")
    drawn = []
    for _ in run.advance():
        with run.trainer.layer_draws() if run.trainer else torch.no_grad():
            drawn.append(torch.rand(1).item())
    assert len(set(drawn[:STEPS])) == STEPS


@pytest.mark.parametrize("rounds", range(1, 2 * (STEPS + 1)))
def test_goes_on_wherever_it_was_stopped(new, rounds):
    """Two epochs are eight rounds: three steps and the end of an epoch, twice."""
    whole = new()
    train([whole])
    assert train([new(out="stopped")], stop=stop_after(rounds)).records == []
    path = whole.folder.path.parent / "stopped"
    saved = torch.load(path / "checkpoint.pt", weights_only=True)["trainer"]
    assert (saved["epoch"], saved["step_in_epoch"]) == divmod(rounds, STEPS + 1)
    second = new(out="stopped")
    train([second])
    assert_same(whole, second)
    assert names(path) == ["cell.json", "final.pt", "metrics.jsonl", "model.json", "record.json"]


@pytest.mark.parametrize(
    "change",
    [
        {"last_batch": "keep", "augmentation": "crop-flip"},
        {"momentum": 0.0, "nesterov": False},
        {"schedule": "cosine"},
        {"evaluate_every": 2, "normalize": "half"},
    ],
    ids=lambda change: next(iter(change)),
)
@pytest.mark.parametrize("streamed", [False, True], ids=["held", "streamed"])
def test_goes_on_under_any_recipe(new, monkeypatch, change, streamed):
    recipe = RECIPE.change(**change)
    whole = new("mixup", recipe)
    train([whole])
    if streamed:
        monkeypatch.setattr(Loader, "_fits", lambda *_: False)
    for rounds in (2, 4):
        assert train([new("mixup", recipe, out="part")], stop=stop_after(rounds)).records == []
    last = new("mixup", recipe, out="part")
    train([last])
    assert_same(whole, last)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_on_in_the_middle_of_an_epoch(new, method):
    whole = new(method)
    train([whole])
    train([new(method, out="part")], stop=stop_after(2))
    last = new(method, out="part")
    train([last])
    assert_same(whole, last)


def test_dropout_goes_on_too(new, dropping):
    whole = new()
    train([whole])
    train([new(out="part")], stop=stop_after(2))
    torch.rand(3)
    last = new(out="part")
    train([last])
    assert_same(whole, last)


def test_side_by_side_is_as_alone(new):
    methods = ["none", "mixup", "cutmix", "zeta:2.8", "local"]
    alone = [new(method) for method in methods]
    for run in alone:
        train([run])
    together = [new(method) for method in methods]
    records = train(together, jobs=3).records
    assert [record.cell.method for record in records] == [run.cell.method for run in together]
    assert {record.extra["concurrent"] for record in records} == {3}
    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)


def test_three_are_under_way_at_once_and_the_next_follows(new):
    seen = []
    runs = [new(seed=seed) for seed in range(4)]
    train(runs, jobs=3, watch=lambda progress: seen.append(progress.run.seed))
    # one joins in each round, so that they do not end their epochs together
    assert seen[:6] == [0, 0, 1, 0, 1, 2]
    assert seen.index(3) > max(place for place, seed in enumerate(seen) if seed == 0)
    assert [seen.count(seed) for seed in range(4)] == 4 * [2 * (STEPS + 1)]


def test_the_others_go_on_while_the_last_steps_of_an_epoch_are_under_way(new, monkeypatch):
    slow, other = new(seed=0), new(seed=1)
    seen = []
    asked = []

    def is_done(clock):
        asked.append(clock is slow.timer)
        # the slow one's device takes five rounds more
        return asked.count(True) > 5 or clock is not slow.timer

    monkeypatch.setattr(StepTimer, "is_done", is_done)
    train([slow, other], jobs=2, watch=lambda progress: seen.append(progress.run.seed))
    waits = seen.count(0) - 2 * (STEPS + 1)
    assert waits == 5
    first_wait = [place for place, seed in enumerate(seen) if seed == 0][STEPS]
    assert seen[first_wait : first_wait + 10].count(1) == 5


def test_more_sources_than_a_batch_has_are_refused_before_anything_is_written(new, tmp_path):
    with pytest.raises(RecipeError, match="blends 64 samples into one, and a batch has 32"):
        new("zeta:sources=64", out="none")
    assert not (tmp_path / "none").exists()


def test_nothing_side_by_side_is_no_number(new):
    with pytest.raises(ValueError, match=r"^jobs must be at least 1, got 0\.$"):
        train([new()], jobs=0)


def test_a_run_remembers_beside_how_many_it_was_trained(new):
    runs = [new(seed=seed, out=f"beside{seed}") for seed in range(3)]
    train(runs, jobs=3, stop=stop_after(4))
    alone = new(seed=0, out="beside0")
    (record,) = train([alone]).records
    assert record.extra["concurrent"] == 3


def test_a_run_alone_waits_for_its_device(new, monkeypatch):
    monkeypatch.setattr(StepTimer, "is_done", lambda clock: False)
    (record,) = train([new()], jobs=2).records
    assert record.extra["concurrent"] == 1


def test_what_is_side_by_side_goes_on(new):
    whole = [new(seed=seed) for seed in range(3)]
    train(whole)
    parts = ["a", "b", "c"]
    first = [new(seed=seed, out=out) for seed, out in enumerate(parts)]
    assert train(first, jobs=2, stop=stop_after(5)).records == []
    assert not first[2].folder.path.exists()
    second = [new(seed=seed, out=out) for seed, out in enumerate(parts)]
    assert len(train(second, jobs=3).records) == 3
    for one, other in zip(whole, second, strict=True):
        assert_same(one, other)


def test_a_finished_run_is_not_trained_again(new, monkeypatch):
    first = new(out="once")
    (record,) = train([first]).records

    def refuse(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(runs_module, "Trainer", refuse)
    # what a kill between the record and the tidying left is tidied
    (first.folder.path / "checkpoint.pt").write_bytes(b"x" * 100)
    for resume in (True, False):
        assert train([new(out="once", resume=resume)]).records == [record]
    assert names(first.folder.path) == [
        "cell.json",
        "final.pt",
        "metrics.jsonl",
        "model.json",
        "record.json",
    ]


def test_nothing_to_train():
    assert train([]).records == []


@pytest.mark.parametrize("name", ["cifar10", "isic2016", "imagenette"])
def test_the_rate_inside_the_optimiser(new, name):
    """Step by step, against the recipe's own words: epochs of one step each are enough."""
    paper = RECIPES[name]
    recipe = RECIPE.change(
        epochs=paper.epochs, lr=0.01 * paper.lr, milestones=paper.milestones, decay=paper.decay,
        batch_size=100, evaluate_every=paper.epochs, model="mlp",
    )  # fmt: skip
    run = new("none", recipe)
    rates = []
    take = Trainer.compute
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Trainer,
            "compute",
            lambda self, size: (
                rates.append(self.optimizer.param_groups[0]["lr"]),
                take(self, size),
            ),
        )
        train([run])
    factors = [sum(epoch >= m for m in paper.milestones) for epoch in range(paper.epochs)]
    expected = [0.01 * paper.lr * paper.decay**k for k in factors]
    assert rates == pytest.approx(expected)
    lines = read_lines(run.folder.path / "metrics.jsonl")
    assert [line["lr"] for line in lines] == pytest.approx(expected)


def test_evaluation_now_and_then_and_at_the_end(new):
    run = new("none", RECIPE.change(epochs=5, evaluate_every=2))
    train([run])
    lines = list(read_lines(run.folder.path / "metrics.jsonl"))
    assert ["test" in line for line in lines] == [False, True, False, True, True]
    assert [("test" in line) == ("val" in line) for line in lines] == [True] * 5


SELECTED = [
    # what marks the best epoch, its values on val, the epoch
    ("accuracy", [0.5, 0.7, 0.7, 0.6], 2),
    ("error", [0.5, 0.3, 0.3, 0.4], 2),
    ("auc", [0.9, 0.8, 0.7, 0.95], 4),
    ("nll", [0.9, 0.8, 0.7, 0.95], 3),
    ("ece", [0.1, 0.2, 0.3, 0.4], 1),
]


@pytest.mark.parametrize(("select", "values", "epoch"), SELECTED)
def test_the_best_epoch_is_chosen_on_val_and_measured_on_test(
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

    monkeypatch.setattr(runs_module, "classify", scores)
    (record,) = train([run]).records
    assert record.best["epoch"] == epoch
    assert record.best["val_score"] == values[epoch - 1]
    assert record.best["error"] == [0.4, 0.3, 0.2, 0.1][epoch - 1]
    assert record.last["error"] == 0.1


def test_without_a_validation_split_there_is_no_best_epoch(new, digits):
    (record,) = train([new(dataset=replace(digits, val=None))]).records
    assert record.best is None


def test_without_a_test_split_there_is_nothing_to_report(new, digits):
    with pytest.raises(ValueError, match=r"^digits has no test split to report on\.$"):
        new(dataset=replace(digits, test=None))


def test_points_are_trained(new):
    run = new("zeta", RECIPE.change(model="mlp", epochs=8), dataset=data.load("crescents"))
    (record,) = train([run]).records
    assert record.last["error"] < 0.25


def test_checkpoints_come_as_often_as_asked(new, monkeypatch):
    saves = []
    monkeypatch.setattr(Run, "_write_checkpoint", lambda self: saves.append(self.trainer.epoch))
    recipe = RECIPE.change(epochs=4)
    train([new("none", recipe, save_every=0)])
    assert saves == [1, 2, 3, 4]
    saves.clear()
    train([new("none", recipe, save_every=3600)])
    assert saves == []


def test_time_adds_up_over_sittings(new):
    path = new(out="sittings").folder.path
    train([new(out="sittings")], stop=stop_after(3))
    before = torch.load(path / "checkpoint.pt", weights_only=True)["seconds"]
    (record,) = train([new(out="sittings")]).records
    assert before > 0
    assert record.wall_s >= round(before, 2)


# a rate at which digits go astray in their second step
ASTRAY = RECIPE.change(lr=1e30)


def test_a_loss_that_is_not_finite_stops_the_run(new):
    with pytest.raises(NonFiniteLossError) as caught:
        train([new("mixup", ASTRAY, seed=7)])
    assert str(caught.value) == (
        "The loss of mixup:1.0, seed 7, is not finite in epoch 1, step 2 of 3, at a learning rate "
        "of 1e+30. Try a smaller one (--set lr=...), or --set precision=float32."
    )
    assert caught.value.__notes__ == ["mixup:1.0 seed 7"]


def test_outputs_that_are_not_finite_stop_the_run(new):
    """One step an epoch: its loss is that of the untouched model, and finite."""
    with pytest.raises(NonFiniteLossError) as caught:
        train([new("none", ASTRAY.change(batch_size=100))])
    assert str(caught.value) == (
        "The outputs of none, seed 0, are not finite after epoch 1. Try a smaller learning rate "
        "(--set lr=...), or --set precision=float32."
    )


def test_a_run_that_went_astray_keeps_its_last_good_checkpoint(new):
    # the rate of the second epoch is what throws it off
    recipe = RECIPE.change(lr=0.01, decay=1e32)
    run = new("none", recipe, save_every=0)
    with pytest.raises(NonFiniteLossError, match="in epoch 2, step 2 of 3"):
        train([run])
    saved = torch.load(run.folder.path / "checkpoint.pt", weights_only=True)["trainer"]
    assert (saved["epoch"], saved["step_in_epoch"]) == (1, 0)
    assert all(torch.isfinite(part).all() for part in saved["model"].values())


def test_when_one_goes_astray_the_others_are_saved(new):
    whole = new(seed=1)
    train([whole])
    bad, good = new("none", ASTRAY), new(seed=1, out="good")
    with pytest.raises(NonFiniteLossError):
        train([bad, good], jobs=2)
    assert not (bad.folder.path / "checkpoint.pt").exists()
    assert (good.folder.path / "checkpoint.pt").exists()
    last = new(seed=1, out="good")
    train([last])
    assert_same(whole, last)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("place", ["zero_grad", "step"])
def test_a_run_broken_off_within_a_step_is_not_saved_there(new, monkeypatch, error, place):
    """Between the gradients and the weights nothing may be saved; the last checkpoint stays."""
    whole = new()
    train([whole])
    steps = []
    real = getattr(torch.optim.SGD, place)

    def interrupted(self, *arguments, **options):
        done = real(self, *arguments, **options)
        steps.append(None)
        if len(steps) == STEPS + 2:
            raise error
        return done

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.SGD, place, interrupted)
        with pytest.raises(error):
            train([new(out="broken", save_every=0)])
    path = whole.folder.path.parent / "broken"
    saved = torch.load(path / "checkpoint.pt", weights_only=True)["trainer"]
    assert (saved["epoch"], saved["step_in_epoch"]) == (1, 0)
    last = new(out="broken")
    train([last])
    assert_same(whole, last)


def test_an_error_of_the_watcher_loses_nothing(new):
    def watch(progress):
        if progress.step == 2:
            raise OSError("no more room for logs")

    run = new()
    with pytest.raises(OSError, match="no more room"):
        train([run], watch=watch)
    saved = torch.load(run.folder.path / "checkpoint.pt", weights_only=True)["trainer"]
    assert saved["step_in_epoch"] == 2


def test_the_watcher_hears_of_every_step_and_epoch(new):
    heard = []
    train([new("none")], watch=heard.append)
    assert [(word.epoch, word.step) for word in heard] == [
        (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0),
    ]  # fmt: skip
    assert [word.line is not None for word in heard] == [False, False, False, True] * 2
    assert {word.steps for word in heard} == {3}


def test_a_captured_step_is_refused_where_it_cannot_be(new):
    with pytest.raises(ValueError) as caught:
        new(graph=True)
    assert str(caught.value) == (
        "A captured step needs a GPU, one process and batches of one size (last_batch=drop). "
        "Leave graph=None to have it wherever it can be."
    )


@pytest.mark.parametrize(
    ("device", "change", "captured"),
    [
        ("cpu", {}, False),
        ("cuda", {}, True),
        ("cuda", {"last_batch": "keep"}, False),
        # 100 digits are four batches of 25: all of one size
        ("cuda", {"last_batch": "keep", "batch_size": 25}, True),
    ],
)
def test_a_step_is_captured_where_batches_have_one_size(new, device, change, captured):
    assert new("none", RECIPE.change(**change), device=device).graph is captured


def test_tally_reads_means_and_the_first_bad_step():
    tally = Tally(4, torch.device("cpu"))
    logits = torch.eye(3)
    targets = [torch.tensor([0, 1, 0]), torch.eye(3)[[0, 0, 1]]]
    for step, loss in enumerate([1.0, 2.0, 3.0, 6.0]):
        tally.add(torch.tensor([step]), torch.tensor(loss), logits, targets[step % 2])
    loss, accuracy, bad = tally.read()
    assert (loss, bad) == (3.0, None)
    assert accuracy == pytest.approx((2 / 3 + 1 / 3) / 2)
    for step, value in [(3, math.inf), (1, math.nan)]:
        tally.add(torch.tensor([step]), torch.tensor(value), logits, targets[0])
    assert tally.read()[2] == 1


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_precision_on_a_cpu(precision, dtype):
    assert choose_dtype(precision, torch.device("cpu")) == dtype


def test_bfloat16_trains_on_a_cpu(new):
    (record,) = train([new("zeta", RECIPE.change(precision="bfloat16"))]).records
    assert 0 <= record.last["error"] < 1


def test_a_step_without_an_epoch_is_told(digits):
    trainer = Trainer(digits, parse("none"), RECIPE)
    with pytest.raises(
        RuntimeError, match=r"^No epoch has been started: call start_epoch first\.$"
    ):
        trainer.step()


def test_a_run_that_was_stopped_before_its_record_is_in_its_last_epoch(new):
    run = new()
    assert run.status == "in epoch 1 of 2"
    run.start().epoch = 2
    assert run.status == "in epoch 2 of 2"
