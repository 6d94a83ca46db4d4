"""What a study asks: which split judges, and that no other is looked at."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest
import torch
from PIL import Image
from tuning import RECIPE, SPACE, make_dataset, make_question

from zetamix import data
from zetamix.data import DataError, DatasetRef, Split, from_tensors
from zetamix.experiments.tune import SpaceError, StudyError, ask, make_plan, parse_space
from zetamix.experiments.tune import make_question as question_of
from zetamix.experiments.tune.question import (
    check_same,
    dataset_of,
    without_password,
)
from zetamix.experiments.tune.run import tune
from zetamix.measure.statistics import standard_error
from zetamix.metrics import classify, confusion, primary_metric
from zetamix.train import RecipeError


@dataclass(frozen=True, eq=False)
class Sealed(Split):
    """A split that says so when anybody looks at its samples."""

    @cached_property
    def samples(self):
        raise AssertionError("the samples of this split were read")

    def take(self, rows):
        raise AssertionError("the samples of this split were read")


def sealed(split):
    return Sealed(split.pool, split.labels, split.num_classes)


@pytest.mark.parametrize("val", [True, False], ids=["val", "held out"])
def test_a_search_never_reads_the_test_split(val, tmp_path):
    dataset = make_dataset(val=val)
    dataset = replace(dataset, test=sealed(dataset.test))
    question = make_question(dataset=dataset)
    found = tune(
        question, make_plan(question, trials=2), out=tmp_path, test_seeds=0, jobs=1, device="cpu"
    )
    assert [trial.state for trial in found.trials] == ["complete", "complete"]
    assert found.tested == ()
    # and the seal would have noticed
    with pytest.raises(AssertionError, match="were read"):
        tune(
            question,
            make_plan(question, trials=2),
            out=tmp_path,
            test_seeds=1,
            jobs=1,
            device="cpu",
        )


def test_trials_are_judged_by_the_validation_split(tmp_path):
    dataset = make_dataset()
    seen = make_question(dataset=dataset).seen()
    assert seen.test is dataset.val
    assert seen.train is dataset.train
    assert seen.val is None
    assert seen.fingerprint == f"{dataset.fingerprint}-val"
    assert "the test split is not read" in seen.notes[-1]


def test_what_is_chosen_is_tested_after_the_same_training(tmp_path):
    question = make_question(dataset=make_dataset(val=False))
    tested = question.seen("test")
    assert tested.test is question.dataset.test
    assert torch.equal(tested.train.samples, question.seen().train.samples)
    # a tenth of the training split is held out, and is in neither
    assert (len(tested.train), len(question.seen().test)) == (108, 12)
    assert question.held_out
    assert not make_question().held_out


def test_the_papers_analysis_is_judged_by_test_on_all_training_samples():
    dataset = make_dataset(val=False)
    question = make_question(dataset=dataset, judge="test")
    assert question.seen().test is dataset.test
    assert len(question.seen().train) == 120
    assert question.seen().fingerprint == dataset.fingerprint


@pytest.mark.parametrize("val", [True, False], ids=["val", "held out"])
@pytest.mark.parametrize("judge", ["val", "test"])
def test_a_worker_sees_the_same_data(val, judge, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "zetamix.data.dataset_ref.load", lambda what, data_dir, size: make_dataset(val=val)
    )
    source = DatasetRef("blobs", str(tmp_path), 0.5)
    question = ask(source.load(), parse_space(SPACE), RECIPE, source=source)
    expected = question.seen(judge)
    for shared in (source, expected):
        found = dataset_of(shared, judge, question.held_out, expected.fingerprint)
        assert torch.equal(found.train.samples, expected.train.samples)
        assert torch.equal(found.test.samples, expected.test.samples)
    assert len(found.train) == (60 if val else 54)


def test_a_worker_with_other_data_says_so(tmp_path):
    with pytest.raises(DataError, match="expected the fingerprint another-val"):
        dataset_of(DatasetRef("digits", str(tmp_path)), "val", False, "another-val")


def test_images_of_another_side_are_another_question(tmp_path):
    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for k in range(20):
            pixels = generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{k}.png")
    how = {"data_dir": tmp_path, "model": "digitnet"}
    as_it_is = question_of(tmp_path / "pets", "gamma=1..6", **how)
    small = question_of(tmp_path / "pets", "gamma=1..6", size=8, **how)
    assert (as_it_is.dataset.shape, small.dataset.shape) == ((3, 12, 12), (3, 8, 8))
    # workers load the same
    assert small.source.load().fingerprint == small.dataset.fingerprint
    with pytest.raises(StudyError, match=r"asks something else \(fingerprint: "):
        check_same(as_it_is.as_dict(), small.as_dict(), "here")
    with pytest.raises(DataError, match=r"^size is for image files; blobs is read already\.$"):
        question_of(make_dataset(), "gamma=1..6", size=8)


def test_more_sources_than_the_smallest_batch_are_told():
    space = parse_space("gamma=1..6,sources=8|64|all,batch_size=32|128")
    message = r"^zeta:gamma=1\.0,sources=64 blends 64 samples into one, and a batch has 32\. Take"
    with pytest.raises(RecipeError, match=message):
        ask(make_dataset(), space, RECIPE)
    ask(make_dataset(), parse_space("gamma=1..6,sources=8|32|all,batch_size=32|128"), RECIPE)
    ask(make_dataset(), parse_space("gamma=1..6,sources=all"), RECIPE)


def test_a_question_by_name(tmp_path):
    question = question_of(
        "digits",
        "gamma=1..6",
        data_dir=tmp_path,
        train_size=200,
        epochs=3,
        model="mlp",
        changes=["lr=0.01"],
        seed=7,
    )
    assert question.source == DatasetRef("digits", str(tmp_path), 200)
    assert len(question.dataset.train) == 200
    recipe = question.recipe
    assert (recipe.epochs, recipe.model, recipe.lr, question.seed) == (3, "mlp", 0.01, 7)
    assert question.metric == "error"
    assert question.as_dict()["train_size"] == 200
    # a path is found from wherever a worker is
    assert data.load("digits", data_dir=tmp_path).fingerprint == question.dataset.fingerprint


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((40, 40, 40), "error"), ((60, 40, 40), "error"), ((62, 40, 40), "balanced_accuracy")],
)
def test_the_measure_suits_the_classes(counts, expected):
    assert primary_metric(make_dataset(counts=counts).train.counts(), auc=False) == expected


def test_the_measure_and_its_direction():
    assert make_question(metric="auc").metric == "auc"
    assert not make_question(metric="auc").lower_is_better
    assert make_question(metric="nll").lower_is_better
    assert make_question().metric == "error"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"metric": "luck"},
            SpaceError,
            "metric must be one of error, accuracy, balanced_accuracy, f1_micro, f1_macro, auc, "
            "nll, ece, got 'luck'.",
        ),
        ({"judge": "train"}, ValueError, "judge must be val or test, got 'train'."),
        (
            {"dataset": replace(make_dataset(), test=None), "judge": "test"},
            DataError,
            "blobs has no test split to judge by.",
        ),
        (
            {
                "dataset": from_tensors(
                    "one", dict.fromkeys(("train", "test"), (torch.rand(4, 2), torch.zeros(4)))
                )
            },
            DataError,
            "one has one class, '0'. Tuning needs at least two classes to tell apart.",
        ),
        (
            {
                "dataset": from_tensors(
                    "rare",
                    dict.fromkeys(
                        ("train", "test"), (torch.rand(4, 2), torch.tensor([0, 0, 0, 1]))
                    ),
                )
            },
            DataError,
            "Class '1' of rare has 1 training samples. Holding out a validation split needs at "
            "least 2 of every class: add some, or leave it out.",
        ),
    ],
)
def test_what_cannot_be_asked_is_told(change, error, message):
    with pytest.raises(error) as caught:
        make_question(**change)
    assert str(caught.value) == message


def test_every_model_of_a_space_can_be_built():
    make_question("model=mlp|auto")
    with pytest.raises(ValueError, match=r"^resnet18 takes images"):
        make_question("gamma=1..6,model=mlp|resnet18")
    with pytest.raises(ValueError, match=r"^resnet18 takes images"):
        make_question(recipe=RECIPE.change(model="resnet18"))


def test_the_standard_error_covers_what_other_samples_would_have_given():
    """A classifier that is right about 95 % of all: how far 200 samples of each class are off."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(400) % 2
    found = {"error": [], "balanced_accuracy": []}
    errors = {"error": [], "balanced_accuracy": []}
    for _ in range(300):
        wrong = torch.rand(400, generator=generator) < 0.05
        logits = torch.nn.functional.one_hot(labels ^ wrong.long(), 2).float()
        scores, counts = classify(logits, labels), confusion(logits, labels).tolist()
        for metric in found:
            found[metric].append(scores[metric])
            errors[metric].append(standard_error(metric, counts))
    for metric in found:
        spread = float(torch.tensor(found[metric]).std())
        assert math.isclose(sum(errors[metric]) / 300, spread, rel_tol=0.15)


def test_no_mistakes_are_no_certainty_and_one_more_no_difference():
    certain = standard_error("error", [[90, 0], [0, 90]])
    assert certain > 1 / 180
    assert standard_error("auc", [[90, 0], [0, 90]]) is None
    # a class without samples does not count
    assert math.isfinite(standard_error("balanced_accuracy", [[9, 1, 0], [0, 0, 0], [0, 1, 9]]))


def test_another_question_is_told_with_all_that_differs():
    old, new = make_question().as_dict(), make_question("gamma=2..3").as_dict()
    new["recipe"] = {**new["recipe"], "lr": 1.0}
    check_same(old, make_question().as_dict(), "here")
    with pytest.raises(StudyError) as caught:
        check_same(old, new, "s in sqlite:///study.db")
    assert str(caught.value) == (
        "The study s in sqlite:///study.db asks something else (recipe.lr: 0.05 there, 1.0 asked "
        f"for; space: {SPACE} there, gamma=2..3 asked for). Nothing was changed: go on with the "
        "settings it has, or choose another --out, --study or --storage."
    )


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:se:cr@t@host/x", "postgresql://ann:***@host/x"),
        ("postgresql://ann@host/x", "postgresql://ann@host/x"),
        ("sqlite:///a:b.db", "sqlite:///a:b.db"),
    ],
)
def test_a_password_is_not_shown(address, shown):
    assert without_password(address) == shown
