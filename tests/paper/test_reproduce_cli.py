"""`zetamix reproduce` as a user meets it: --list, --quick for every artifact, bad input, page."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from records_by_hand import run_record
from typer.testing import CliRunner

from paper.reproduce import ARTIFACTS, CellRequest, Session, select_cells
from paper.reproduce.smoke import LABEL, shorten
from paper.results.record_store import RecordStore
from zetamix_lab.cli.app import app
from zetamix_lab.text import sentence_case
from zetamix_lab.train.stop import Stop


def cells_of(id):
    return select_cells(id, CellRequest(), RecordStore(Path("no records")))


@pytest.fixture
def zetamix(tmp_path, monkeypatch):
    """Run `zetamix reproduce …` in a folder of its own, at 80 columns."""
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "root"))
    monkeypatch.setenv("ZETAMIX_COMMIT", "abc1234")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(*arguments, status=0):
        result = CliRunner().invoke(app, ["reproduce", *map(str, arguments)])
        assert result.exit_code == status, result.output
        return words(result.output)

    return run


def words(text):
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("id", ARTIFACTS)
def test_every_artifact_has_a_smoke_test_that_is_labelled(id, zetamix, tmp_path):
    output = zetamix(id, "--quick")
    cells = shorten(cells_of(id), torch.device("cpu"))
    assert f"{id}: {len(cells)} cells run, 0 had a record, 0 left" in output
    folder = tmp_path / "out" / "reproduce-quick" / id
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert len(lines) == len(cells)
    assert all(line["extra"]["quick"] == LABEL for line in lines)
    assert all(line["machine"]["commit"] == "abc1234" for line in lines)
    written = [path for path in folder.iterdir() if path.suffix in (".md", ".html")]
    assert len(written) >= 1
    for path in written:
        assert LABEL[1:] in path.read_text(), path
    assert not (tmp_path / "out" / "reproduce").exists()


def test_a_real_artifact_is_complete_and_not_run_twice(zetamix, tmp_path):
    output = zetamix("theorems")
    assert "theorems: 7 cells run, 0 had a record, 0 left reproduced:" in output
    folder = tmp_path / "out" / "reproduce" / "theorems"
    assert {path.name for path in folder.glob("[a-z]*")} == {
        "records.jsonl",
        "report.html",
        "theorems.svg",
        "theorems.png",
        *(f"thresholds.{form}" for form in ("md", "tex", "csv")),
    }
    assert "| N = 4 | 1.08213 | 100 |" in (folder / "thresholds.md").read_text()
    assert LABEL[1:] not in (folder / "report.html").read_text()
    assert "0 cells run, 7 had a record, 0 left" in zetamix("theorems")


def test_without_data_the_table_has_the_papers_values(zetamix, tmp_path):
    output = zetamix("natural", "--datasets", "cifar10", status=1)
    assert "0 cells run, 0 had a record, 30 left" in output
    assert "python -m paper data prepare cifar10" in output
    table = (tmp_path / "out" / "reproduce" / "natural" / "natural.md").read_text()
    assert "| CIFAR-10 | no mixing | 5.48 | – | – | – | – |  |" in table


def test_no_time_leaves_everything_and_the_exit_status_says_so(zetamix):
    output = zetamix("theorems", "--time-limit", "0s", status=75)
    assert "7 left" in output
    assert "Rerun the same command to resume." in output


def test_a_measurement_that_is_interrupted_is_not_saved(zetamix, monkeypatch):
    def interrupted(cell, context):
        os.kill(os.getpid(), signal.SIGINT)

    def make(*args, **options):
        return Session(*args, **options, measures={"equivalence": interrupted})

    monkeypatch.setattr("paper.reproduce.Session", make)
    output = zetamix("theorems", status=130)
    assert "6 cells run, 0 had a record, 1 left" in output
    assert "Not saved, will start again: equivalence" in output


def test_runs_that_are_stopped_are_named(zetamix, monkeypatch):
    monkeypatch.setattr(Stop, "__call__", lambda self: any(Path("out").glob("*/runs/*/cell.json")))
    options = ("--quick", "--datasets", "cifar10", "--methods", "none")
    output = zetamix("natural", *options, status=75)
    assert re.search(
        r"Saved: cifar10 digitnet crop-flip no mixing seed 0, [\d.]+ of 1 epochs", output
    )


def test_list_shows_records_data_and_time_left(zetamix, tmp_path):
    store = RecordStore(tmp_path / "out" / "reproduce")
    for cell in cells_of("natural")[:4]:
        store.add("natural", run_record(cell, 0.05))
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "cifar10.npz").touch()
    output = zetamix("--list")
    for id, artifact in ARTIFACTS.items():
        assert f"{id} {artifact.title.split()[0]}" in output
    # 26 of CIFAR-10's 30 cells at 100 s each; the other datasets are not here
    assert re.search(r"natural table 1: [a-z ]+ 4 176 about 43 min", output)
    assert re.search(r"sensitivity error [\w ]+ 0 434 about [\d.]+ h", output)
    assert re.search(r"medmnist AUC [\w ]+ 0 24 –", output)
    assert "from records of a GPU. This machine is" in output
    assert "available: cifar10" in output
    assert "missing: cifar100, fashion_mnist, stl10, imagenette, imagewoof" in output
    # without an artifact there is nothing else to do
    assert zetamix().startswith("id artifact and data")


def test_the_list_counts_the_cells_that_are_chosen(zetamix, tmp_path):
    store = RecordStore(tmp_path / "out" / "reproduce")
    for cell in cells_of("natural")[:4]:
        store.add("natural", run_record(cell, 0.05))
    output = zetamix("--list", "--datasets", "cifar10", "--methods", "none,zeta:2.8")
    # two methods, three seeds, two readings of the augmentation
    assert re.search(r"natural table 1: [a-z ]+ 2 10", output)
    assert "missing: cifar10 " in output
    assert "theorems" not in output
    assert "skin" not in output
    # no table of the paper has both of these
    output = zetamix("--list", "--seeds", "2", "--datasets", "cifar10,breastmnist")
    assert re.search(r"natural table 1: [a-z ]+ 4 16 ", output)
    assert re.search(r"medmnist AUC [\w ]+ 0 6 ", output)


def test_all_runs_the_artifacts_that_have_the_cells(zetamix, tmp_path):
    zetamix("all", "--quick", "--datasets", "helix")
    folder = tmp_path / "out" / "reproduce-quick"
    assert {path.name for path in folder.iterdir()} == {"dimension", "distributions"}


def test_the_list_of_a_smoke_test_has_its_own_cells(zetamix):
    zetamix("theorems", "--quick")
    output = zetamix("theorems", "natural", "--quick", "--list")
    assert re.search(r"theorems dominance [\w; ]+ 7 0", output)
    assert re.search(r"natural table 1: [a-z ]+ 0 60", output)
    assert "skin" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["naturel"], "got 'naturel'. Did you mean natural?"),
        (["page", "natural"], "page covers all artifacts"),
        (["page", "--seeds", "3"], "page covers all artifacts"),
        (["--list", "--datasets", "cifar10,cifar11"], "No artifact has cifar11."),
        (["natural", "--augmentation", "rotate"], "got 'rotate'"),
        (["natural", "--datasets", "mnist"], "expected one of cifar10, cifar100, fashion_mnist"),
        (["natural", "--methods", "zetta:2.8"], "got 'zetta:2.8'. Did you mean zeta?"),
        (["natural", "--seeds", "a"], "got 'a'"),
        (["natural", "--time-limit", "soon"], "Expected a duration such as 9m, 1h30m or 45s"),
        (["natural", "--device", "tpu"], "expected cpu or cuda, got 'tpu'"),
        (["natural", "--data-dir", "nowhere"], "nowhere is not a folder"),
        (["natural", "--quick", "--epochs", "3"], "--quick cannot be combined with"),
    ],
)
def test_bad_arguments(zetamix, arguments, message):
    assert message in zetamix(*arguments, status=2)


def test_a_damaged_record_is_named(zetamix, tmp_path):
    path = tmp_path / "out" / "reproduce" / "theorems" / "records.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("no\n")
    assert "line 1: not JSON" in zetamix("theorems", status=1)


def test_cells_can_be_chosen(zetamix, tmp_path):
    zetamix("natural", "--quick", "--datasets", "stl10", "--methods", "none,zeta:2.8")
    records = RecordStore(tmp_path / "out" / "reproduce-quick").records.values()
    assert {(record.cell.dataset, record.cell.method) for record in records} == {
        ("stl10", "none"),
        ("stl10", "zeta:2.8"),
    }


WITHOUT_MATPLOTLIB = """
import sys
from pathlib import Path
import torchmetrics  # looks for matplotlib in a way of its own
sys.modules["matplotlib"] = None
from zetamix_lab.cli import main
sys.argv = ["zetamix", "reproduce", "natural", "--quick", "--datasets", "stl10"]
main()
"""


def test_without_matplotlib_the_records_are_stored(tmp_path):
    environment = {**os.environ, "ZETAMIX_DATA": str(tmp_path), "ZETAMIX_COMMIT": "abc1234"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MATPLOTLIB],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Rendering needs matplotlib, which is not installed." in words(done.stdout)
    assert len(RecordStore(tmp_path / "out" / "reproduce-quick").records) == 10


def test_page_shows_every_artifact_and_what_is_empty(zetamix, tmp_path):
    assert zetamix("page").endswith("Report written to out/reproduce/index.html")
    text = (tmp_path / "out" / "reproduce" / "index.html").read_text()
    assert re.findall(r'<section id="([\w-]+)">', text) == list(ARTIFACTS)
    for artifact in ARTIFACTS.values():
        assert f"<h2>{sentence_case(artifact.title)}</h2>" in text
    assert "Not run, 0 of 7 cells." in text
    assert "python -m paper data prepare pathmnist &amp;&amp; zetamix reproduce medmnist" in text
    assert (tmp_path / "out" / "reproduce" / "skin" / "skin.tex").is_file()
