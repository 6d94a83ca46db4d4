"""`zetamix reproduce` as a user meets it: --list, --quick for every artifact, bad input, page."""

import json
import os
import re
import signal
import subprocess
import sys

import miniatures
import pytest
from records_by_hand import run_record
from typer.testing import CliRunner

from zetamix.cli.app import app
from zetamix.experiments.reproduce import EXPERIMENTS, Ask, Results, session
from zetamix.experiments.reproduce import smoke as quick
from zetamix.experiments.reproduce.experiments import natural
from zetamix.train.stop import Stop

# artifacts whose datasets are read from miniatures of their files; the others draw stand-ins
ON_DISK = ("natural", "skin", "medmnist")
LABEL = "stand-ins and shortened recipes, these numbers mean nothing"


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


@pytest.mark.parametrize("id", EXPERIMENTS)
def test_every_artifact_runs_quickly_and_says_that_it_is_quick(id, zetamix, tmp_path):
    if id in ON_DISK:
        names = {cell.dataset for cell in EXPERIMENTS[id].cells(Ask())}
        with miniatures.installed(*names, data_dir=tmp_path / "root"):
            output = zetamix(id, "--quick")
        prepared = {path.name.split("-")[0] for path in (tmp_path / "root/prepared").iterdir()}
        assert names <= prepared
    else:
        output = zetamix(id, "--quick")
    cells = quick.shorten(EXPERIMENTS[id].cells(Ask()), quick.torch.device("cpu"))
    assert f"{id}: {len(cells)} cells run, 0 were there, 0 still empty" in output
    folder = tmp_path / "out" / "reproduce-quick" / id
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert len(lines) == len(cells)
    assert all(line["extra"]["quick"] == quick.LABEL for line in lines)
    assert all(line["machine"]["commit"] == "abc1234" for line in lines)
    assert LABEL in (folder / "README.md").read_text()
    shown = [path for path in folder.iterdir() if path.suffix in (".md", ".svg")]
    assert len(shown) > 1
    for path in folder.glob("*.md"):
        assert LABEL in path.read_text(), path
    for path in folder.glob("*.html"):
        assert LABEL in path.read_text(), path
    assert not (tmp_path / "results").exists()


def test_a_second_call_does_nothing_again(zetamix):
    assert "7 cells run, 0 were there" in zetamix("theorems", "--quick")
    assert "0 cells run, 7 were there, 0 still empty" in zetamix("theorems", "--quick")


def test_a_real_artifact_without_data_is_complete(zetamix, tmp_path):
    output = zetamix("theorems")
    assert "Theorem 1 holds of every plan that was drawn." in output
    folder = tmp_path / "results" / "theorems"
    assert {path.name for path in folder.glob("[a-z]*")} == {
        "records.jsonl",
        "theorems.svg",
        "theorems.png",
        *(f"thresholds.{form}" for form in ("md", "tex", "csv", "html")),
    }
    assert "| N = 4 | 1.08213 | 100 |" in (folder / "README.md").read_text()
    assert LABEL not in (folder / "README.md").read_text()


def test_data_that_is_not_here_is_told_and_the_table_drawn_empty(zetamix, tmp_path):
    output = zetamix("natural", "--datasets", "cifar10", status=1)
    assert "0 cells run, 0 were there, 30 still empty" in output
    assert "zetamix data prepare cifar10" in output
    table = (tmp_path / "results" / "natural" / "natural.md").read_text()
    assert "| CIFAR-10 | ERM | 5.48 | – | – | – | – |  |" in table


def test_no_time_leaves_everything_and_is_no_failure(zetamix):
    output = zetamix("theorems", "--time-limit", "0s")
    assert "7 still empty" in output
    assert "The time is up. Everything is saved; the same command goes on." in output


def test_a_measurement_that_is_stopped_is_not_called_saved(zetamix, monkeypatch):
    def ctrl_c(cell, bench):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setitem(session.MEASURES, "equivalence", ctrl_c)
    output = zetamix("theorems", status=130)
    assert "6 cells run, 0 were there, 1 still empty" in output
    assert "Begins anew next time: equivalence" in output
    assert "Stopped. Everything else is saved; the same command goes on." in output


def test_runs_that_are_stopped_are_named(zetamix, monkeypatch):
    asked = []

    def soon(self):
        asked.append(1)
        return len(asked) > 3

    monkeypatch.setattr(Stop, "__call__", soon)
    output = zetamix("natural", "--quick", "--datasets", "cifar10", "--methods", "none")
    assert "Under way: cifar10 digitnet crop-flip none seed 0 in epoch 1 of 1." in output


def test_list_tells_what_is_done_missing_and_here(zetamix, tmp_path):
    results = Results(tmp_path / "results")
    for cell in natural.cells(Ask())[:4]:
        results.add("natural", run_record(cell, 0.05))
    with miniatures.installed("cifar10", data_dir=tmp_path / "root"):
        output = zetamix("--list")
    for id, each in EXPERIMENTS.items():
        assert f"{id} {each.what.split()[0]}" in output
    assert re.search(r"natural table 1: error on natural images 4 176 ≈ [\d.,]+ d", output)
    assert re.search(r"medmnist AUC and accuracy on MedMNIST 0 24 ≈ [\d.,]+ [hd]", output)
    assert re.search(r"theorems dominance over γ and N; mixup as a case 0 7 ≈ \d s", output)
    assert "here: cifar10" in output
    assert "not here: cifar100, fashion_mnist, stl10, imagenette, imagewoof" in output
    # without an artifact there is nothing else to do
    assert zetamix().startswith("id what it shows")


def test_the_list_of_quick_is_of_its_own_cells(zetamix):
    zetamix("theorems", "overview", "--quick")
    output = zetamix("theorems", "overview", "natural", "--quick", "--list")
    assert re.search(r"theorems dominance over γ and N; mixup as a case of ζ-mixup 7 0", output)
    assert re.search(r"natural table 1: error on natural images 0 60", output)
    assert "skin" not in output


def test_tables_of_the_same_runs_are_listed_as_such(zetamix):
    assert re.search(r"the same, with micro and macro F1 0 100 as skin", zetamix("--list"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["naturel"], "got 'naturel'. Did you mean natural?"),
        (["page", "natural"], "page is of all artifacts; give it alone"),
        (
            ["natural", "--variants", "rotate"],
            "expected some of none, flip, crop-flip, got 'rotate'",
        ),
        (["natural", "--datasets", "mnist"], "natural has cifar10, cifar100, fashion_mnist"),
        (["natural", "--methods", "cutmix"], "natural has none, mixup:1.0, zeta:2.4"),
        (["natural", "--seeds", "a"], "expected whole numbers separated by commas, got 'a'"),
        (["natural", "--time-limit", "soon"], "Expected a duration such as 9m, 1h30m or 45s"),
        (["natural", "--device", "tpu"], "expected cpu or cuda, got 'tpu'"),
        (["natural", "--methods", "zetta:2.8"], "got 'zetta:2.8'. Did you mean zeta?"),
        (["natural", "--datasets", "cifr10"], "got 'cifr10'. Did you mean cifar10?"),
        (["theorems", "--datasets", "cifar10"], "theorems has no datasets to choose from"),
        (["natural", "--data-dir", "nowhere"], "expected a folder with datasets, and nowhere is"),
        (["natural", "--quick", "--epochs", "3"], "--quick takes one seed and one epoch by itself"),
        (
            ["overview", "--seeds", "1"],
            "are for artifacts that train models, which overview does not",
        ),
    ],
)
def test_bad_arguments_get_a_sentence(zetamix, arguments, message):
    assert message in zetamix(*arguments, status=2)


def test_a_broken_record_gets_a_sentence(zetamix, tmp_path):
    (tmp_path / "results" / "theorems").mkdir(parents=True)
    (tmp_path / "results" / "theorems" / "records.jsonl").write_text("no\n")
    assert "is not JSON. Repair or remove that line." in zetamix("theorems", status=1)


def test_cells_can_be_chosen(zetamix, tmp_path):
    zetamix("natural", "--quick", "--datasets", "stl10", "--methods", "none,zeta:2.8")
    found = Results(tmp_path / "out" / "reproduce-quick").records.values()
    assert {(record.cell.dataset, record.cell.method) for record in found} == {
        ("stl10", "none"),
        ("stl10", "zeta:2.8"),
    }


WITHOUT_DRAWING = """
import sys
import torchmetrics  # looks for matplotlib in a way of its own
sys.modules["matplotlib"] = None
from zetamix.cli import main
sys.argv = ["zetamix", "reproduce", "natural", "--quick", "--datasets", "stl10"]
main()
"""


def test_a_machine_that_cannot_draw_keeps_its_records(tmp_path):
    environment = {**os.environ, "ZETAMIX_DATA": str(tmp_path), "ZETAMIX_COMMIT": "abc1234"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRAWING],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Drawing needs matplotlib, which is not here. The records are kept" in words(done.stdout)
    assert len(Results(tmp_path / "out" / "reproduce-quick").records) == 10


def test_page_shows_every_artifact_and_what_is_empty(zetamix, tmp_path):
    output = zetamix("page")
    page = tmp_path / "results" / "index.html"
    assert output.endswith("in results/index.html")
    text = page.read_text()
    assert re.findall(r"<h2>([\w-]+):", text) == list(EXPERIMENTS)
    assert "Not run. (0 of 7 cells)" in text
    assert "zetamix data prepare pathmnist &amp;&amp; zetamix reproduce medmnist" in text
    assert (tmp_path / "results" / "skin" / "skin.tex").is_file()
