"""Training functions of one's own, and tables of runs that exist."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from miniatures import class_folders
from test_docs import PAGES, program_of
from torch.nn.functional import one_hot
from typer.testing import CliRunner

from zetamix.methods import parse
from zetamix_lab.cli.app import app
from zetamix_lab.records import SampleResults
from zetamix_lab.runs.compare import compare
from zetamix_lab.runs.own import OwnGrid, OwnTrainingError, read_result, read_table

TRAIN = """
import os, signal, time, torch
def run(mix, seed, out):
    if seed == 1 and not (out / "once").exists():
        (out / "once").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    images, targets = mix(torch.rand(4, 3, 8, 8), torch.eye(4))
    (out / "calls").open("a").write("x")
    print("method", type(mix).__name__)
    return targets + torch.eye(4), torch.arange(4)
def fails(mix, seed, out):
    if mix.p > 0:
        raise RuntimeError("no luck")
def waits(mix, seed, out):
    (out / "begun").touch()
    time.sleep(600)
"""


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    Path("broken.py").write_text("import train\nimport no_such_module\n")

    def run(*arguments):
        result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
        return result.exit_code, " ".join(result.output.replace("│", " ").split())

    return run


# a function


@pytest.mark.slow
def test_a_function_is_called_for_every_cell_once_and_reported(invoke):
    """The second seed in processes that are killed once."""
    options = ("--train", "train.py:run", "--methods", "none,zetamix", "--until", "1")
    status, text = invoke(*options, "--seeds", 1)
    assert status == 0, text
    assert "zetamix seed 0: error rate" in text
    status, text = invoke(*options, "--seeds", 2, "--jobs", 2)
    assert status == 0, text
    assert "2 killed workers started again" in text
    found = json.loads(Path("out/compare-train/results.json").read_text())
    assert (found["complete"], len(found["runs"]), found["metrics"][0]) == (True, 4, "error")
    runs = sorted(Path("out/compare-train/runs").iterdir())
    assert [(run / "files/calls").read_text() for run in runs] == ["x"] * 4
    # of none, a transform that is off
    assert (runs[0] / "log.txt").read_text() == "method Mixup\n"
    assert (SampleResults.load(runs[0] / "test.npz").targets == np.arange(4)).all()


@pytest.mark.slow
def test_a_run_that_fails_is_a_sentence(invoke):
    status, text = invoke("--train", "train.py:fails", "--methods", "none,mixup", "--seeds", 1)
    assert status == 1
    assert "mixup:alpha=1.0,until=0.8 seed 0 failed: RuntimeError: no luck (see runs/mixup-" in text
    assert "train.py:fails must return predictions [samples, classes] and targets" in text
    assert "or a dict of metrics, got NoneType" in text


@pytest.mark.slow
def test_a_stop_ends_runs_that_cannot_save(invoke, tmp_path):
    begun = lambda: len(list(tmp_path.glob("out/runs/*/files/begun"))) == 2  # noqa: E731
    grid = OwnGrid("train.py:waits", [parse("none")], out=tmp_path / "out", seeds=(0, 1))
    stopped = compare(grid, jobs=2, stop=begun)
    assert (stopped.records, stopped.failures) == ({}, {})


LONG, FILES = "method,seed,metric,value", "method,seed,predictions"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--train no.py:run", "no.py is not a file"),
        ("--train train.py", "Expected FILE.py:FUNCTION, such as train.py:run"),
        ("--train train.py:rum", "train.py has no function 'rum'."),
        ("--train broken.py:run", "cannot be imported: ModuleNotFoundError: No module named 'no_"),
        ("--train broken.py:run", "(broken.py, line 2)."),
        ("--train train.py:run --methods smoothing", "Use the label_smoothing of"),
        ("--train train.py:run --epochs 3", "it has no effect with --train"),
        ("--runs no.csv --seeds 3", "it has no effect with --runs"),
        ("--runs no.csv", "Cannot use no.csv: No such file or directory."),
        ("method,seed,dice", "it has no column metric and value, but method, seed and dice. Exp"),
        (LONG, "it has no rows. Expected a CSV table with the columns method, seed, metric, value"),
        (f"{LONG}\nnone,0,dice,x", "could not convert string to float: 'x'. Expected"),
        (f"{LONG}\nnone,0,d,1\nnone,0,d,2", "none seed 0 is given twice"),
        (f"{LONG}\nnone,0,a,1\nmine,0,b,2", "mine seed 0 has no a, which is the first metric"),
        (f"{LONG}\nnone,0,accuracy,87", "accuracy must be a fraction from 0 to 1, got 87"),
        (f"{FILES}\nnone,0,no.npz", "no.npz: No such file or directory."),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(invoke, options, message):
    if options.startswith("method"):
        Path("runs.csv").write_text(options)
        options = "--runs runs.csv"
    status, text = invoke(*options.split())
    assert status > 0
    assert message in text
    assert not Path("out").exists()


def test_probabilities_are_logits_and_metrics_are_numbers():
    logits, targets = torch.randn(50, 3), torch.randint(3, (50,))
    expected, _ = read_result((logits, targets), "")
    for found in ((logits.softmax(1), targets), (logits.numpy(), targets.tolist())):
        assert read_result(found, "")[0] == pytest.approx(expected, abs=1e-5)
    several = one_hot(targets).float()
    expected, (_, labels) = read_result((logits, several), "")
    assert read_result((logits.sigmoid(), several), "")[0] == pytest.approx(expected, abs=1e-5)
    assert labels.dtype == torch.float32
    assert read_result({"dice": np.float64(0.5)}, "") == ({"dice": 0.5}, None)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "F returns this, got NoneType: "),
        (torch.eye(3), "F returns this, got Tensor: too many values to unpack"),
        ((torch.eye(3), torch.arange(4)), "got tuple: shapes [3, 3] and [4]."),
        ((torch.eye(3), torch.tensor([0, 1, 3])), "no whole numbers from 0 to 2."),
        ((torch.eye(3) * torch.nan, torch.arange(3)), "must be finite"),
        ({"dice": [1, 2]}, "F returns this, got dict: float() argument must be"),
        ({}, "F returns this, got dict: "),
    ],
)
def test_other_results_are_a_sentence(found, message):
    with pytest.raises(OwnTrainingError) as caught:
        read_result(found, "F returns this")
    assert message in str(caught.value)


# a table


def test_a_table_of_runs_or_of_files_is_reported(invoke):
    rows = [
        f"{m},{s},dice,{0.5 + s / 99 + (m == 'mine') / 9}"
        for m in ("none", "mine")
        for s in (0, 1, 2)
    ]
    Path("runs.csv").write_text("\n".join(["method,seed,metric,value", *rows]))
    status, text = invoke("--runs", "runs.csv", "--out", "made")
    assert status == 0, text
    assert "Mixing helps: mine raises the dice by 0.1111" in text
    assert "zetamix compare" not in text
    np.savez("a.npz", predictions=np.eye(4), targets=[0, 1, 2, 2])
    Path("files.csv").write_text("method,seed,predictions\nnone,0,a.npz\n")
    comparison = read_table(Path("files.csv"))
    assert comparison.values("none", "error") == {0: 0.25}
    assert comparison.test_size == 4


# the example of the documentation


@pytest.mark.slow
def test_the_example_runs(invoke):
    code = program_of(PAGES["docs/how-to/own-training.md"])
    tiny = code.replace("resnet10t", "test_resnet").replace(
        "EPOCHS, SIZE = 30, 64", "EPOCHS, SIZE = 2, 32"
    )
    assert tiny.count("test_resnet") == tiny.count("= 2, 32") == 1
    Path("train.py").write_text(tiny)
    for split in ("train", "test"):
        class_folders(Path("photos", split), {"cat": 10, "dog": 10})
    options = ("--methods", "none,zetamix", "--seeds", 2, "--jobs", 2, "--device", "cpu")
    status, text = invoke("--train", "train.py:run", *options)
    assert status == 0, text
    assert len(list(Path("out/compare-train/runs").glob("*/files/model.pt"))) == 4
    assert "on 20 test samples" in text or "better than chance" in text
