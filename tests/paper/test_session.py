"""Sessions: cells without a record are run once, stopped, resumed; the command line around them."""

import dataclasses
import json
import os
import re
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from browser import needs_browser, open_page
from factories import run_record
from test_values import cells_of
from typer.testing import CliRunner

from paper.__main__ import app
from paper.artifacts import ARTIFACTS, MEASURES
from paper.datasets import CATALOGUE
from paper.recipes import RECIPES
from paper.records import RecordStore, Subset, TrainingCell
from paper.run import Session
from zetamix_lab.data import DatasetNotFoundError, from_tensors
from zetamix_lab.train.stop import Stop


def small(name="cifar10", seed=0, count=16):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (count, 3, 16, 16), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 10
    splits = {"train": (images, labels), "test": (images, labels)}
    return from_tensors(name, splits, CATALOGUE[name].classes)


def small_cells(epochs=1, methods=("none", "zeta:2.8"), **changes):
    recipe = RECIPES["cifar10"].change(
        **{"model": "digitnet", "batch_size": 8, "epochs": epochs, "precision": "float32"} | changes
    )
    return [TrainingCell("cifar10", method, 0, recipe) for method in methods]


def open_session(folder, seed=0, **options):
    """A session that has CIFAR-10, drawn from a seed, and no other dataset."""

    def load(name, data_dir):
        if name != "cifar10":
            raise DatasetNotFoundError(f"{name} is not here.")
        return small(seed=seed)

    return Session(RecordStore(folder), jobs=1, load_dataset=load, **options)


def lines_of(folder):
    return (folder / "natural" / "records.jsonl").read_text().splitlines()


def test_a_session_runs_empty_cells_once(tmp_path):
    cells = small_cells()
    assert open_session(tmp_path).run("natural", cells[:1]) == []
    again = open_session(tmp_path)
    assert again.run("natural", cells) == []
    records = list(again.store.records.values())
    assert [record.cell.method for record in records] == ["none", "zeta:2.8"]
    assert records[0].machine["torch"] == torch.__version__
    # records of another artifact count
    open_session(tmp_path).run("sensitivity", cells)
    assert not (tmp_path / "sensitivity").exists()
    assert len(lines_of(tmp_path)) == 2


class StopOnceTraining(Stop):
    """Stops after the first step of the first run."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def __call__(self):
        return any(self.folder.glob("runs/*/cell.json"))


def test_a_stopped_session_resumes_to_the_same_result(tmp_path):
    cells = small_cells(epochs=4)
    stopped = open_session(tmp_path / "a", stop=StopOnceTraining(tmp_path / "a"))
    assert stopped.run("natural", cells) == []
    assert not stopped.store.records
    rest = open_session(tmp_path / "a")
    rest.run("natural", cells)
    whole = open_session(tmp_path / "b")
    whole.run("natural", cells)
    for key, record in whole.store.records.items():
        assert rest.store.records[key].last == record.last


def test_a_record_is_stored_as_soon_as_its_run_is_finished(tmp_path):
    """Not when all runs of a dataset are: a session may be killed before."""

    def watch(name, done, total, text=""):
        if name != "runs" and done == total:
            raise KeyboardInterrupt

    session = open_session(tmp_path, display=lambda: nullcontext(watch))
    with pytest.raises(KeyboardInterrupt):
        session.run("natural", small_cells())
    assert RecordStore(tmp_path).records
    open_session(tmp_path).run("natural", small_cells())
    # and once only
    assert len(lines_of(tmp_path)) == 2
    # a run whose folder has the record is collected, not trained again
    (tmp_path / "natural" / "records.jsonl").unlink()
    curves = sorted((tmp_path / "runs").glob("*/metrics.jsonl"))
    before = [path.stat().st_mtime_ns for path in curves]
    assert open_session(tmp_path).run("natural", small_cells()) == []
    assert len(lines_of(tmp_path)) == 2
    assert [path.stat().st_mtime_ns for path in curves] == before


@pytest.mark.parametrize(("validation", "evaluated_on"), [(None, "test"), (30, "train")])
def test_a_subset_says_what_it_was_evaluated_on(tmp_path, validation, evaluated_on):
    whole = small_cells()[0]
    cut = dataclasses.replace(whole, subset=Subset(40, validation))
    data = small(count=100)
    made = cut.subset.apply(data)
    assert (len(made.train), made.val) == (40, None)
    held = {sample.numpy().tobytes() for sample in made.test.samples}
    assert len(held) == (validation or 100)
    assert held <= {s.numpy().tobytes() for s in getattr(data, evaluated_on).samples}
    session = Session(RecordStore(tmp_path), jobs=1, load_dataset=lambda *_: data)
    assert session.run("natural", [whole, cut]) == []
    store = RecordStore(tmp_path)
    assert store.find(cut).cell.train_size == 40
    assert store.find(cut).test_size == (validation or 100)
    assert store.find(whole).cell.train_size == 100


def test_why_cells_are_left(tmp_path):
    session = open_session(tmp_path)
    absent = TrainingCell("cifar100", "none", 0, RECIPES["cifar100"])
    diverging = small_cells(lr=1e30, epochs=3)[0]
    failed, missing = session.run("natural", [diverging, *small_cells(), absent])
    assert failed.startswith("cifar10, no mixing seed 0 failed: ")
    assert missing == "cifar100 is not here."
    batch = [cell for cell in cells_of("timing") if cell.kind == "batch-time"]
    assert [cell.recipe["device"] for cell in batch] == ["cuda", "cpu"]
    assert session.run("timing", batch[:1]) == ["1 of the cells need --device cuda."]
    # the others were run
    assert len(session.store.records) == len(lines_of(tmp_path)) == 2
    with pytest.raises(ValueError, match="Choose another --out"):
        open_session(tmp_path, seed=1).run("natural", [*small_cells(), diverging])


# the command line


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Run `python -m paper …` in a folder of its own, at 80 columns."""
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "root"))
    monkeypatch.setenv("ZETAMIX_COMMIT", "abc1234")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(*arguments, status=0):
        result = CliRunner().invoke(app, [*map(str, arguments)])
        assert result.exit_code == status, result.output
        return " ".join(result.output.replace("│", " ").split())

    return run


def test_without_data_the_table_has_the_papers_values(command, tmp_path):
    output = command("natural", "--datasets", "cifar10", status=1)
    assert "0 cells run, 0 had a record, 30 left" in output
    assert "python -m paper data cifar10 --prepare" in output
    table = (tmp_path / "out" / "paper" / "natural" / "natural.md").read_text()
    assert "| CIFAR-10 | no mixing | 5.48 | – | – | – | – |" in table


def test_no_time_leaves_everything_and_the_exit_status_says_so(command):
    output = command("theorems", "--time-limit", "0s", status=75)
    assert "7 left" in output
    assert "Rerun the same command to resume." in output


@pytest.mark.slow
def test_a_measurement_that_is_interrupted_is_the_last_one(command, monkeypatch, tmp_path):
    def interrupted(cell, context):
        os.kill(os.getpid(), signal.SIGINT)
        return MEASURES["dominance"](cell, context)

    with monkeypatch.context() as patch:
        patch.setattr("paper.run.MEASURES", {**MEASURES, "dominance": interrupted})
        output = command("theorems", status=130)
    assert "1 cells run, 0 had a record, 6 left" in output
    assert "6 cells run, 1 had a record, 0 left" in command("theorems")
    folder = tmp_path / "out" / "paper" / "theorems"
    files = {"records.jsonl", "report.html", "theorems.svg", "theorems.png"}
    files |= {f"thresholds.{form}" for form in ("md", "tex", "csv")}
    assert {path.name for path in folder.glob("[a-z]*")} == files
    assert "| N = 4 | 1.08213 | 100 |" in (folder / "thresholds.md").read_text()
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert {line["machine"]["commit"] for line in lines} == {"abc1234"}


def test_the_list_has_records_and_data(command, tmp_path):
    store = RecordStore(tmp_path / "out" / "paper")
    for cell in cells_of("natural")[:4]:
        store.add("natural", run_record(cell, 0.05))
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cifar10.npz").touch()
    output = command("--list")
    for id, artifact in ARTIFACTS.items():
        assert f"{id} {artifact.title.split()[0]}" in output
    assert re.search(r"natural table 1: [a-z ]+ 4 176", output)
    assert "missing data: cifar100, fashion_mnist, stl10, imagenette, imagewoof" in output
    # two methods, three seeds, two readings of the augmentation
    chosen = command("natural", "--list", "--datasets", "cifar10", "--methods", "none,zeta:2.8")
    assert re.search(r"natural table 1: [a-z ]+ 2 10", chosen)
    assert "theorems" not in chosen


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["naturel"], "got 'naturel'. Did you mean natural?"),
        (["page", "natural"], "page and the list of all artifacts cannot be combined"),
        (["natural", "--datasets", "mnist"], "expected one of cifar10, cifar100, fashion_mnist"),
        (["natural", "--methods", "zetta:2.8"], "got 'zetta:2.8'. Did you mean zeta?"),
        (["natural", "--seeds", "a"], "got 'a'"),
        (["natural", "--time-limit", "soon"], "Expected a duration such as 9m, 1h30m or 45s"),
        (["natural", "--device", "tpu"], "got 'tpu'"),
        (["natural", "--data-dir", "nowhere"], "nowhere is not a folder"),
    ],
)
def test_bad_arguments(command, arguments, message):
    assert message in command(*arguments, status=2)


@pytest.mark.slow
@needs_browser
def test_the_page_has_every_artifact_and_what_is_empty(command, tmp_path):
    assert command("page").endswith("Report written to out/paper/index.html")
    path = tmp_path / "out" / "paper" / "index.html"
    text = path.read_text()
    assert re.findall(r'<section id="([\w-]+)">', text) == list(ARTIFACTS)
    assert "python -m paper medmnist --out out/paper" in text
    assert (tmp_path / "out" / "paper" / "skin" / "skin.tex").is_file()
    assert not Path("out/paper/runs").exists()
    opened = open_page(path).check()
    assert opened.headings[:2] == ["Reproduction of ζ-mixup", "What was measured"]
    assert [row[1] for row in opened.tables[0][1:3]] == ["0 of 4", "0 of 36"]
    assert open_page(path, width=500).overflow <= 0
