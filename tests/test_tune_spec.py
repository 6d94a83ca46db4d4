"""The settings of a study: which split trials are scored on, and what is refused."""

import pickle
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
import torch
from PIL import Image
from tuning import RECIPE, make_dataset, make_spec, search

from zetamix import data
from zetamix.data import DataError, DatasetRef, Split, from_tensors
from zetamix.experiments.tune import StudyError, make_plan
from zetamix.experiments.tune import make_spec as spec_of
from zetamix.experiments.tune.spec import check_settings
from zetamix.results.search_space import SpaceError
from zetamix.train import RecipeError


@dataclass(frozen=True, eq=False)
class Sealed(Split):
    """A split that raises when its samples are read."""

    @cached_property
    def samples(self):
        raise AssertionError("the samples of this split were read")

    def take(self, rows):
        raise AssertionError("the samples of this split were read")


@pytest.mark.parametrize("val", [True, False], ids=["val", "held out"])
def test_a_search_never_reads_the_test_split(val, tmp_path):
    dataset = make_dataset(val=val)
    test = dataset.test
    spec = make_spec(
        dataset=replace(dataset, test=Sealed(test.pool, test.labels, test.num_classes))
    )
    tuning = search(tmp_path, spec, trials=2)
    assert [trial.state for trial in tuning.trials] == ["complete", "complete"]
    assert tuning.tested == ()
    # the final test does
    with pytest.raises(AssertionError, match="were read"):
        search(tmp_path, spec, trials=2, test_seeds=1)


def test_trials_are_scored_on_the_validation_split():
    dataset = make_dataset()
    scored = make_spec(dataset=dataset).trial_dataset
    assert scored.test is dataset.val
    assert scored.train is dataset.train
    assert scored.val is None
    assert scored.fingerprint == f"{dataset.fingerprint}-val"
    # a tenth of the training split is held out if there is no validation split
    spec = make_spec(dataset=make_dataset(val=False))
    assert (len(spec.dataset.train), len(spec.trial_dataset.test)) == (108, 12)
    assert spec.held_out
    assert not make_spec().held_out


@pytest.mark.parametrize("train_size", [None, 200])
def test_other_processes_load_the_same_data(train_size, tmp_path):
    spec = spec_of("digits", "gamma=1..6", data_dir=tmp_path, train_size=train_size)
    assert spec.ref == DatasetRef("digits", str(tmp_path), train_size)
    pickled = pickle.dumps(spec)
    # by reference: the samples alone have 100 kB
    assert len(pickled) < 10_000
    loaded = pickle.loads(pickled)
    assert loaded.dataset.fingerprint == spec.dataset.fingerprint
    assert torch.equal(loaded.trial_dataset.train.samples, spec.trial_dataset.train.samples)
    # a dataset without a reference is sent as it is
    whole = pickle.loads(pickle.dumps(make_spec()))
    assert torch.equal(whole.dataset.train.samples, make_dataset().train.samples)


def test_changed_data_is_refused_by_other_processes(tmp_path):
    spec = spec_of("digits", "gamma=1..6", data_dir=tmp_path)
    other = replace(spec, dataset=replace(spec.dataset, fingerprint="another"))
    with pytest.raises(DataError, match=r"digits differs between processes"):
        pickle.loads(pickle.dumps(other))


def test_images_of_another_size_are_another_study(tmp_path):
    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for k in range(20):
            pixels = generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{k}.png")
    options = {"data_dir": tmp_path, "model": "digitnet"}
    original = spec_of(tmp_path / "pets", "gamma=1..6", **options)
    small = spec_of(tmp_path / "pets", "gamma=1..6", size=8, **options)
    assert (original.dataset.shape, small.dataset.shape) == ((3, 12, 12), (3, 8, 8))
    with pytest.raises(StudyError, match=r"other settings \(fingerprint: "):
        check_settings(original.as_dict(), small.as_dict(), "pets")
    with pytest.raises(DataError, match=r"blobs is already loaded"):
        spec_of(make_dataset(), "gamma=1..6", size=8)


def test_more_sources_than_the_smallest_batch_are_refused():
    with pytest.raises(RecipeError, match=r"64 samples, but a batch has 32"):
        make_spec("gamma=1..6,sources=8|64|all,batch_size=32|128")
    make_spec("gamma=1..6,sources=8|32|all,batch_size=32|128")
    make_spec("gamma=1..6,sources=all")


def test_a_spec_by_name(tmp_path):
    spec = spec_of(
        "digits", "gamma=1..6", data_dir=tmp_path, train_size=200, epochs=3, model="mlp",
        changes=["lr=0.01"], seed=7,
    )  # fmt: skip
    assert len(spec.dataset.train) == 200
    assert (spec.recipe.epochs, spec.recipe.model, spec.recipe.lr) == (3, "mlp", 0.01)
    assert (spec.metric, spec.seed, spec.as_dict()["train_size"]) == ("error", 7, 200)
    assert data.load("digits", data_dir=tmp_path).fingerprint == spec.dataset.fingerprint


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((40, 40, 40), "error"), ((60, 40, 40), "error"), ((62, 40, 40), "balanced_accuracy")],
)
def test_the_default_metric_depends_on_the_balance_of_classes(counts, expected):
    assert make_spec(dataset=make_dataset(counts=counts)).metric == expected


def labelled(name, labels):
    return from_tensors(name, dict.fromkeys(("train", "test"), (torch.rand(4, 2), labels)))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"metric": "luck"}, SpaceError, "metric must be one of error, accuracy, "),
        ({"dataset": labelled("one", torch.zeros(4))}, DataError, "one has one class, '0'."),
        (
            {"dataset": labelled("rare", torch.tensor([0, 0, 0, 1]))},
            DataError,
            "Class '1' of rare has 1 training samples.",
        ),
        ({"space": "gamma=1..6,model=mlp|resnet18"}, ValueError, "resnet18 takes images"),
        ({"recipe": RECIPE.change(model="resnet18")}, ValueError, "resnet18 takes images"),
    ],
)
def test_settings_that_cannot_be_trained_are_refused(change, error, message):
    with pytest.raises(error) as caught:
        make_spec(**change)
    assert str(caught.value).startswith(message)


def test_other_settings_are_refused_with_all_differences():
    old, new = make_spec().as_dict(), make_spec("gamma=2..3").as_dict()
    new["recipe"] = {**new["recipe"], "lr": 0.1}
    check_settings(old, make_spec().as_dict(), "mine")
    with pytest.raises(StudyError) as caught:
        check_settings(old, new, "mine")
    assert str(caught.value) == (
        "Study mine was created with other settings (lr: 0.05 ≠ 0.1; space: "
        "gamma=1..6,weight_decay=log:5e-5..1e-3 ≠ gamma=2..3). Rerun with those, or start a new "
        "study with --study NAME."
    )
    with pytest.raises(StudyError, match=r"^Study mine was not created by zetamix"):
        check_settings(None, new, "mine")


@pytest.mark.parametrize(
    ("space", "change", "message"),
    [
        ("gamma=1..6", {"sampler": "luck"}, "sampler must be one of tpe, grid, random, got 'luck'"),
        ("gamma=1..6", {"trials": 0}, "trials must be at least 1, got 0"),
        ("gamma=1..6", {"seeds": (0, 1)}, "seeds need a grid"),
        ("gamma=2", {}, "Nothing to search"),
        ("gamma=1:2:1", {"sampler": "grid", "trials": 5}, "A grid trains every setting"),
        ("gamma=1:2:1", {"sampler": "grid", "prune": True}, "A grid trains every setting"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(space, change, message):
    with pytest.raises(SpaceError, match=message):
        make_plan(make_spec(space), **change)


def test_plans():
    plan = make_plan(make_spec())
    assert (plan.sampler, plan.trials, plan.prune) == ("tpe", 50, True)
    grid = make_plan(make_spec("gamma=1.8:5.0:0.2"), "grid")
    assert (grid.trials, grid.seeds, grid.prune) == (51, (0, 1, 2), False)
    assert make_plan(make_spec("gamma=2:3:1"), "grid", seeds=(4, 7)).trials == 4
