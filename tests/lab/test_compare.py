"""A comparison: the grid, that it is fair, what cannot be compared, and its result."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from factories import CRESCENTS, make_dataset, two_crescents
from filelock import FileLock

from zetamix.methods import display_name, parse, parse_list
from zetamix_lab.data import DataError
from zetamix_lab.runs.compare import compare, make_examples, make_grid
from zetamix_lab.train import Run, make_cell
from zetamix_lab.train.run_folder import FolderError
from zetamix_lab.train.trainer import Trainer

SIX = "none,mixup,cutmix,switch,zeta:2.8,zetamix"
# of zeta:2.8 where all methods mix in 80 % of the epochs
ZETA = "zeta:gamma=2.8,until=0.8"


def grid_of(data=CRESCENTS, methods="none,zeta:2.8", *, seeds=5, until=0.8, **how):
    given = {"methods": parse_list(methods, until), "seeds": range(seeds), "until": until}
    return make_grid(data, **given, **{"out": Path("out"), **how})


def test_every_method_with_every_seed_the_first_seed_first():
    grid = grid_of(methods="none,mixup,zeta:2.8", seeds=2)
    assert [(cell.method, cell.seed) for cell in grid.cells] == [
        (method, seed) for seed in (0, 1) for method in ("none", "mixup:alpha=1.0,until=0.8", ZETA)
    ]
    assert grid.out.is_absolute()
    assert grid.cells[0].folder == f"none-s0-{grid.cells[0].key}"


def test_cells_are_those_that_runs_make_of_themselves(tmp_path):
    grid = grid_of(train_size=100, changes={"epochs": 2, "lr": 0.01})
    for cell in grid.cells:
        out = tmp_path / cell.key
        run = Run(grid.dataset, parse(cell.method), grid.recipe, seed=cell.seed, out=out)
        assert run.cell == cell


def test_more_seeds_keep_the_first_ones_and_other_settings_keep_nothing():
    folders = [cell.folder for cell in grid_of(seeds=3).cells]
    assert [cell.folder for cell in grid_of(seeds=5).cells][: len(folders)] == folders
    for change in ({"changes": {"lr": 0.01}}, {"train_size": 0.5}, {"data": "digits"}):
        assert not {cell.folder for cell in grid_of(**change).cells} & {*folders}


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
    ("gpu", "device", "side", "model"),
    [
        (True, None, 64, "resnet18"),
        (True, "cpu", 64, "smallnet"),
        (False, None, 64, "smallnet"),
        (False, None, 65, "resnet18"),
    ],
)
def test_without_a_gpu_small_images_get_a_small_network(gpu, device, side, model, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    dataset = make_dataset(shape=(3, side, side))
    assert grid_of(dataset, "none", device=device).recipe.model == model
    named = grid_of(dataset, "none", device=device, changes={"model": "lenet5"})
    assert named.recipe.model == "lenet5"


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
    grid = grid_of(dataset, SIX, seeds=2, changes={"augmentation": "crop-flip", "model": "lenet5"})
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
    assert make_examples(grid_of(two_crescents())) == {}


@pytest.mark.parametrize("count", [2, 12])
def test_examples_are_the_classes_in_turn_but_shuffled_before_they_are_mixed(count):
    examples = make_examples(grid_of(make_dataset((5,) * count), "none,cutmix"))
    # as far as there are samples: five of each
    assert examples["original"][1].argmax(1).tolist() == ([*range(count)] * 5)[:10]
    # CutMix takes the sample before, which would always be of the class before
    cut = examples["cutmix:alpha=1.0,until=0.8"][1]
    pairs = [row.nonzero().flatten().tolist() for row in cut]
    assert len({pair[-1] - pair[0] for pair in pairs}) > 1


# what cannot be compared


def keep(split, labels):
    return split.keep(torch.isin(split.labels, torch.tensor(labels)).nonzero().squeeze(1))


def of_three(train=(0, 1, 2), test=(0, 1, 2)):
    made = make_dataset(classes=["a", "b", "c"])
    return replace(made, train=keep(made.train, train), test=test and keep(made.test, test))


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (of_three(train=(0, 2)), "Class 'b' of made has no training samples. Add some, or remove"),
        (make_dataset((20,)), "The train split of made has samples of 1 class. A comparison needs"),
        (of_three(test=(1,)), "The test split of made has samples of 1 class."),
        (of_three(test=None), "The test split of made has samples of 0 classes."),
    ],
)
def test_data_that_cannot_be_compared_are_reported(what, message):
    with pytest.raises(DataError) as caught:
        grid_of(what)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"data": two_crescents(), "methods": "none,cutmix"}, "CutMix pastes boxes into images"),
        ({"changes": {"batch_size": 4}, "methods": "zeta:gamma=2.8,sources=8"}, "a batch has 4"),
        ({"data": two_crescents(), "changes": {"model": "digitnet"}}, "digitnet takes images"),
    ],
)
def test_what_methods_and_models_cannot_do_is_reported_before_training(how, message):
    with pytest.raises(ValueError, match=message):
        grid_of(**how)


# the result


def small(out, *, seeds=2, methods="none,zeta:2.8", **changes):
    changes = {"epochs": 2, **changes}
    return grid_of(methods=methods, out=out, seeds=seeds, train_size=64, changes=changes)


def run(grid, **options):
    return compare(grid, jobs=1, device="cpu", **options)


def test_a_comparison_has_every_record_and_curve(tmp_path):
    result = run(small(tmp_path))
    assert not result.missing
    assert result.requested == ("none", ZETA)
    assert set(result.records) == {(m, s) for m in ("none", ZETA) for s in (0, 1)}
    assert (result.failures, result.unfinished, result.description) == ({}, {}, "1 process")
    for key, record in result.records.items():
        assert (record.cell.method, record.cell.seed) == key
        assert [line["epoch"] for line in result.curves[key]] == [1, 2]
        assert result.curves[key][-1]["test"].items() <= record.last.items()
        counts = torch.tensor(record.confusion)
        assert counts.sum() == 512
        assert float(1 - counts.diagonal().sum() / 512) == pytest.approx(record.last["error"])
    assert result.metrics[0] == "auc"
    assert result.values("none", "auc") == {
        seed: result.records["none", seed].last["auc"] for seed in (0, 1)
    }
    assert result.recalls["none"].shape == (2, 2)


def test_runs_that_fail_or_are_stopped_are_reported_by_method_and_seed(tmp_path):
    grid = small(tmp_path, seeds=1, lr=1e30)
    with FileLock(tmp_path / ".lock"), pytest.raises(FolderError, match="in use by another"):
        run(grid)
    for result in (run(grid), run(grid)):
        assert set(result.failures) == {("none", 0), (ZETA, 0)}
        assert (result.records, result.missing > 0, result.methods) == ({}, True, [])
    stopped = small(tmp_path / "new", seeds=1, epochs=3000, methods="none")
    result = run(stopped, stop=lambda: bool(list(tmp_path.glob("new/runs/*/metrics.jsonl"))))
    assert result.missing
    assert 0 < result.unfinished["none", 0] < 3000
