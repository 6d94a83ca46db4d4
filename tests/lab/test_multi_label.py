"""Multi-label sets, 0/1 matrices, from files to training, metrics, compare and tune."""

import json

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from zetamix.methods import parse
from zetamix_lab import data
from zetamix_lab.cli.app import app
from zetamix_lab.data import from_tensors
from zetamix_lab.data.splits import strata
from zetamix_lab.metrics import EVALUATED, MULTI_LABEL_ONLY, classify, confusion
from zetamix_lab.runs.compare import make_grid
from zetamix_lab.train import load_model, make_recipe
from zetamix_lab.train.recipe import RecipeError
from zetamix_lab.train.trainer import Trainer

LABELS = ("even", "large", "prime", "zero")


def digit_labels(digits):
    even, large, prime = digits % 2 == 0, digits >= 5, np.isin(digits, (2, 3, 5, 7))
    return np.stack([even, large, prime, digits == 0], axis=1).astype(np.uint8)


@pytest.fixture
def path(tmp_path):
    bunch = load_digits()
    images = (bunch.images[:600] * 15).astype(np.uint8)
    file = tmp_path / "digits-of-kinds.npz"
    labels = digit_labels(bunch.target[:600])
    np.savez(file, train_images=images, train_labels=labels, classes=np.array(LABELS))
    return file


def test_splits_of_a_matrix_have_every_label_in_its_share(path, tmp_path):
    dataset = data.load(path, tmp_path)
    assert dataset.multi_label
    assert dataset.classes == LABELS
    assert dataset.train.labels.dtype == torch.float32
    sizes = {name: len(split) for name, split in dataset.splits.items()}
    assert sizes == {"train": 420, "val": 60, "test": 120}
    shares = torch.stack([split.counts() / len(split) for split in dataset.splits.values()])
    assert (shares.max(0).values - shares.min(0).values).max() < 0.06
    counts = data.check(path, tmp_path).counts["train"]
    assert counts == dict(zip(LABELS, dataset.train.counts().tolist(), strict=True))


def test_a_subset_and_a_holdout_are_stratified_by_the_rarest_label():
    labels = torch.zeros(200, 3)
    labels[:, 0] = 1
    labels[:20, 1] = 1
    labels[:4, 2] = 1
    assert torch.bincount(strata(labels)).tolist() == [180, 16, 4]
    dataset = from_tensors("noise", {"train": (torch.rand(200, 5), labels)})
    assert dataset.train.subset(0.5).counts().tolist() == [100, 10, 2]
    assert dataset.holdout(0.25).val.counts().tolist() == [50, 5, 1]


def test_metrics_are_scikit_learns():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 5, generator=generator)
    labels = (torch.randn(200, 5, generator=generator) + 0.5 * logits > 0.6).float()
    scores = classify(logits, labels)
    truth, guess, ranks = labels.numpy(), (logits > 0).numpy(), logits.sigmoid().numpy()
    expected = {
        "map": sklearn_metrics.average_precision_score(truth, ranks),
        "auc": sklearn_metrics.roc_auc_score(truth, ranks),
        "hamming": sklearn_metrics.hamming_loss(truth, guess),
        "accuracy": sklearn_metrics.accuracy_score(truth, guess),
        "f1_macro": sklearn_metrics.f1_score(truth, guess, average="macro"),
        "f1_micro": sklearn_metrics.f1_score(truth, guess, average="micro"),
        "nll": sklearn_metrics.log_loss(truth.ravel(), ranks.ravel()),
        "balanced_accuracy": np.mean(
            [sklearn_metrics.balanced_accuracy_score(truth[:, k], guess[:, k]) for k in range(5)]
        ),
    }
    assert {name: scores[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert set(scores) == {*EVALUATED, *MULTI_LABEL_ONLY}
    table = sklearn_metrics.multilabel_confusion_matrix(truth, guess)
    assert confusion(logits, labels).tolist() == table.reshape(5, 4).tolist()


def test_a_label_without_positive_samples_does_not_count():
    labels = torch.tensor([[1.0, 0], [0, 0], [1, 0]])
    scores = classify(torch.tensor([[2.0, -1], [-2, -1], [1, 1]]), labels)
    assert (scores["map"], scores["auc"], scores["f1_macro"]) == (1, 1, 1)
    # a label that no sample has cannot be learned
    nothing = classify(torch.ones(3, 2), torch.zeros(3, 2))
    assert np.isnan(nothing["map"])


@pytest.mark.parametrize("method", ["none", "mixup", "cutmix", "zeta:2.8", "smoothing"])
def test_training_takes_the_binary_cross_entropy_of_mixed_labels(method, path, tmp_path):
    dataset = data.load(path, tmp_path)
    recipe = make_recipe(dataset, model="digitnet", epochs=1, lr=0.05)
    assert recipe.select == "map"
    samples, labels = dataset.train.samples[:8].float(), dataset.train.labels[:8]
    _, targets = parse(method).mix(samples, labels, 4, torch.Generator().manual_seed(0))
    # a sample with two labels keeps both: rows do not sum to 1
    assert targets.shape == (8, 4)
    assert float(targets.sum(1).max()) > 1
    trainer = Trainer(dataset, parse(method), recipe)
    trainer.start_epoch()
    for _ in range(trainer.steps_per_epoch):
        trainer.step()
    # log 2 is the loss of a guess; the cross entropy of classes would be near log 4 per label
    assert 0.2 < trainer.epoch_metrics()["train_loss"] < 0.75


def test_a_multi_label_metric_needs_a_multi_label_set(tmp_path):
    digits = data.load("digits", tmp_path)
    with pytest.raises(RecipeError, match=r"select must be one of none, error, .*got 'map'"):
        make_recipe(digits, select="map")


def test_compare_reports_a_multi_label_set(path, tmp_path):
    options = "--methods none,zeta:2.8 --seeds 2 --epochs 3 --model digitnet --jobs 1 --set lr=0.1"
    folders, prepared = ["--data", path, "--out", tmp_path / "out"], str(tmp_path / "data")
    command = ["compare", *options.split(), *map(str, folders)]
    result = CliRunner().invoke(app, command, env={"ZETAMIX_DATA": prepared})
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["metrics"][:2] == ["map", "auc"]
    prevalence = data.load(path, tmp_path / "data").test.labels.mean()
    assert results["methods"]["none"]["map"]["mean"] > prevalence + 0.2
    assert set(results["recalls"]["none"]) == set(LABELS)
    assert ",map," in (tmp_path / "out" / "results.csv").read_text()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "mean average precision" in page
    run = next((tmp_path / "out" / "runs").glob("none-s0-*"))
    model = load_model(run)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 4)


def test_every_method_is_checked_before_training(path, tmp_path, monkeypatch):
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path))
    grid = make_grid(path, out=tmp_path / "out", seeds=[0])
    assert len(grid.methods) == 4
