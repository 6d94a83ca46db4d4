"""A comparison: the grid, that it is fair, what cannot be compared, and its result."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from factories import CRESCENTS, make_dataset, two_crescents
from filelock import FileLock

from zetamix.methods import display_name, parse
from zetamix_lab.runs.compare import (
    CompareError,
    compare,
    make_examples,
    make_grid,
)
from zetamix_lab.train import Run, make_cell
from zetamix_lab.train.run_folder import FolderError
from zetamix_lab.train.trainer import Trainer

SIX = "none,mixup,cutmix,switch,zeta:2.8,zetamix"
# of zeta:2.8 where all methods mix in 80 % of the epochs
ZETA = "zeta:gamma=2.8,until=0.8"


def grid_of(data=CRESCENTS, methods="none,zeta:2.8", **how):
    return make_grid(data, methods, out=Path("out"), **how)


def test_every_method_with_every_seed_the_first_seed_first():
    grid = grid_of(methods="none,mixup,zeta:2.8", seeds=2)
    assert [(cell.method, cell.seed) for cell in grid.cells] == [
        ("none", 0), ("mixup:alpha=1.0,until=0.8", 0), (ZETA, 0),
        ("none", 1), ("mixup:alpha=1.0,until=0.8", 1), (ZETA, 1),
    ]  # fmt: skip
    assert grid.out.is_absolute()
    assert grid.cells[0].folder == f"none-s0-{grid.cells[0].key}"
    assert grid_of(seeds=[4, 7]).seeds == (4, 7)


def test_cells_are_those_that_runs_make_of_themselves(tmp_path):
    grid = grid_of(train_size=100, epochs=2, changes=["lr=0.01"])
    for cell in grid.cells:
        out = tmp_path / cell.key
        run = Run(grid.dataset, parse(cell.method), grid.recipe, seed=cell.seed, out=out)
        assert run.cell == cell


def test_more_seeds_keep_the_first_ones_and_other_settings_keep_nothing():
    folders = [cell.folder for cell in grid_of(seeds=3).cells]
    more = [cell.folder for cell in grid_of(seeds=5).cells]
    assert more[: len(folders)] == folders
    assert len(set(more)) == 10
    for other in (
        grid_of(epochs=2),
        grid_of(train_size=0.5),
        grid_of(changes=["lr=0.01"]),
        grid_of("digits"),
    ):
        assert not {cell.folder for cell in other.cells} & set(folders)


def test_without_methods_those_that_suit_the_data_are_compared_with_five_seeds():
    of_images = make_grid(make_dataset())
    assert [method.label for method in of_images.methods] == [
        "none", "mixup:alpha=1.0,until=0.8", "switch:until=0.8", "zetamix",
    ]  # fmt: skip
    assert of_images.seeds == (0, 1, 2, 3, 4)
    of_points = make_grid(two_crescents()).methods
    assert [method.name for method in of_points] == ["none", "mixup", "zetamix"]
    assert make_grid(CRESCENTS).out == Path("out/compare-crescents").absolute()


@pytest.mark.parametrize(
    ("given", "until", "labels", "names"),
    [
        (
            "none,mixup,zetamix,smoothing", 0.8,
            ["none", "mixup:alpha=1.0,until=0.8", "zetamix", "smoothing:0.1"],
            ["no mixing", "mixup:1.0", "zetamix", "smoothing:0.1"],
        ),
        (
            "mixup,zetamix", 1.0,
            ["mixup:1.0", "zetamix:until=1.0"], ["mixup:1.0", "zetamix"],
        ),
        # a method that overrides it shows it, also where it is the default of the method
        (
            "mixup:0.2,until=1,mixup:0.2,switch:until=0.5,zetamix:until=0.8", 0.6,
            ["mixup:0.2", "mixup:alpha=0.2,until=0.6", "switch:until=0.5", "zetamix"],
            ["mixup:alpha=0.2,until=1.0", "mixup:0.2", "switch:until=0.5", "zetamix:until=0.8"],
        ),
    ],
)  # fmt: skip
def test_all_methods_mix_in_the_same_part_of_training(given, until, labels, names):
    methods = grid_of(make_dataset(), given, until=until).methods
    assert [method.label for method in methods] == labels
    assert [display_name(label, until) for label in labels] == names
    assert {m.until for m in methods if m.name not in ("none", "smoothing")} >= {until}


def test_runs_of_zetamix_made_before_are_found_again():
    """Its default was 0.8 before all methods shared it: the cell is the same."""
    grid = grid_of(methods="zetamix,mixup")
    before = make_cell(grid.dataset, parse("zetamix"), grid.recipe, 0)
    assert grid.cells[0] == before
    assert make_cell(grid.dataset, parse("mixup"), grid.recipe, 0).key != grid.cells[1].key


# fair


def test_initial_weights_and_order_are_the_same_for_all_methods():
    dataset = make_dataset((40, 40, 40), shape=(3, 16, 16))
    grid = grid_of(dataset, SIX, seeds=2, changes=["augmentation=crop-flip", "model=lenet5"])
    by_seed = {}
    for seed in grid.seeds:
        trainers = [Trainer(dataset, method, grid.recipe, seed=seed) for method in grid.methods]
        weights = [torch.cat([p.flatten() for p in t.model.parameters()]) for t in trainers]
        for other in weights[1:]:
            assert torch.equal(other, weights[0])
        for epoch in (0, 1, 7):
            drawn = [trainer.loader.draw(epoch) for trainer in trainers]
            for other in drawn[1:]:
                for one, two in zip(other, drawn[0], strict=True):
                    assert torch.equal(one, two)
        rates = {tuple(t.recipe.rate(e) for e in range(grid.recipe.epochs)) for t in trainers}
        assert len(rates) == 1
        by_seed[seed] = weights[0], drawn[0].order
    # and not the same for all seeds
    assert not torch.equal(by_seed[0][0], by_seed[1][0])
    assert not torch.equal(by_seed[0][1], by_seed[1][1])


def test_all_runs_have_the_same_part_of_the_data():
    one, two = grid_of(train_size=60).dataset.train, grid_of(train_size=60).dataset.train
    assert len(one) == 60
    assert torch.equal(one.samples, two.samples)
    assert one.counts().tolist() == [30, 30]
    assert len(grid_of(train_size=0.25).dataset.train) == 128


# examples


def test_examples_are_of_all_classes_in_the_rows_of_their_originals():
    grid = grid_of(make_dataset((30, 40, 50)), "none,cutmix,zeta:60")
    examples = make_examples(grid)
    assert [*examples] == ["original", "cutmix:alpha=1.0,until=0.8", "zeta:gamma=60.0,until=0.8"]
    (samples, targets), (cut, _), (zeta, of_zeta) = examples.values()
    assert torch.equal(targets, torch.eye(3)[torch.arange(10) % 3])
    assert samples.shape == (10, 1, 8, 8)
    assert len(torch.unique(samples, dim=0)) == 10
    # so large a γ leaves every sample as it is
    assert torch.allclose(zeta, samples, atol=1e-3)
    assert torch.allclose(of_zeta, targets, atol=1e-3)
    assert not torch.equal(cut, samples)
    train = {bytes(sample.numpy()) for sample in grid.dataset.train.samples}
    assert {bytes(s.to(torch.uint8).numpy()) for s in samples} <= train


@pytest.mark.parametrize("count", [2, 12])
def test_examples_of_many_or_few_classes(count):
    examples = make_examples(grid_of(make_dataset((3,) * count), "none,mixup"))
    # the classes in turn, as far as there are samples: three of each
    expected = [*range(count)] * 3
    assert examples["original"][1].argmax(1).tolist() == expected[:10]


def test_examples_are_shuffled():
    # CutMix takes the sample before, which would always be of the class before
    _, (_, cut) = make_examples(grid_of(make_dataset((10,) * 10), "none,cutmix")).values()
    own = torch.eye(10, dtype=torch.bool)
    others = cut.masked_fill(own, 0).argmax(1)[cut.masked_fill(own, 0).amax(1) > 0]
    assert len(others) > 5
    assert len({int(k - other) % 10 for k, other in enumerate(others)}) > 2


# what cannot be compared


def without(dataset, label):
    train = dataset.train
    return replace(dataset, train=train.keep((train.labels != label).nonzero().squeeze(1)))


def only(dataset, label):
    test = dataset.test
    return replace(dataset, test=test.keep((test.labels == label).nonzero().squeeze(1)))


CASES = {
    "no seeds": (lambda: grid_of(seeds=0), "seeds must be at least 1, got 0."),
    "no test split": (
        lambda: grid_of(replace(make_dataset(), test=None)),
        "made has no test split to compare on.",
    ),
    "one class": (
        lambda: grid_of(make_dataset((20,), classes=["cat"])),
        "made has one class, 'cat'. A comparison needs at least two.",
    ),
    "empty class": (
        lambda: grid_of(without(make_dataset(classes=["a", "b", "c"]), 1)),
        "Class 'b' of made has no training samples. Add some, or remove the class.",
    ),
    "test of one class": (
        lambda: grid_of(only(make_dataset(), 1)),
        "The test split of made has samples of one class only. Split the data so that every split "
        "has every class.",
    ),
}


@pytest.mark.parametrize(("call", "message"), CASES.values(), ids=CASES.keys())
def test_what_cannot_be_compared_is_reported(call, message):
    with pytest.raises(CompareError) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


# the result


def small(out, what=CRESCENTS, methods="none,zeta:2.8", **options):
    options = {"seeds": 2, "epochs": 2, "train_size": 64, **options}
    return make_grid(what, methods, out=Path(out), **options)


def run(grid, **options):
    return compare(grid, **{"jobs": 1, "device": "cpu", "poll_seconds": 0.01, **options})


def test_a_comparison_has_every_record_and_curve(tmp_path):
    result = run(small(tmp_path))
    assert result.complete
    assert (result.total, result.requested) == (4, ("none", ZETA))
    assert set(result.records) == {(m, s) for m in ("none", ZETA) for s in (0, 1)}
    assert (result.failures, result.unfinished, result.description) == ({}, {}, "1 process")
    for key, record in result.records.items():
        assert (record.cell.method, record.cell.seed) == key
        assert [line["epoch"] for line in result.curves[key]] == [1, 2]
        assert result.curves[key][-1]["test"].items() <= record.last.items()
        counts = torch.tensor(record.confusion)
        assert counts.sum() == 512
        assert float(1 - counts.diagonal().sum() / 512) == pytest.approx(record.last["error"])
    assert result.primary == "auc"
    assert result.values("none", "auc") == {
        seed: result.records["none", seed].last["auc"] for seed in (0, 1)
    }
    assert result.recalls("none").shape == (2, 2)


def test_more_methods_and_seeds_train_only_what_is_missing(tmp_path):
    run(small(tmp_path, seeds=1))
    more = run(small(tmp_path, seeds=2, methods="none,zeta:2.8,mixup"))
    assert more.complete
    assert len(list(tmp_path.glob("runs/*/record.json"))) == 6
    again = run(small(tmp_path, seeds=2, methods="none,zeta:2.8,mixup"))
    assert again.description == ""
    # of fewer seeds only those are reported
    assert set(run(small(tmp_path, seeds=1)).records) == {("none", 0), (ZETA, 0)}


def test_runs_that_fail_or_are_stopped_are_reported_by_method_and_seed(tmp_path):
    grid = small(tmp_path, seeds=1, changes=["lr=1e30"])
    with FileLock(tmp_path / ".lock"), pytest.raises(FolderError, match="in use by another"):
        run(grid)
    for result in (run(grid), run(grid)):
        assert set(result.failures) == {("none", 0), (ZETA, 0)}
        assert (result.records, result.complete, result.methods) == ({}, False, [])
    stopped = small(tmp_path / "new", seeds=1, epochs=3000, methods="none")
    result = run(stopped, stop=lambda: bool(list(tmp_path.glob("new/runs/*/metrics.jsonl"))))
    assert not result.complete
    assert 0 < result.unfinished["none", 0] < 3000
