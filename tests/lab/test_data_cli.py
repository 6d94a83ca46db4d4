"""`zetamix data`: output and exit status."""

import re
import shutil
from dataclasses import replace

import miniatures
import pytest
from miniatures import class_folders, installed, split_folders
from typer.testing import CliRunner

from zetamix_lab.cli.app import app
from zetamix_lab.data import CATALOGUE, image_files

PETS = {"cat": 5, "dog": 5}


@pytest.fixture
def zetamix(tmp_path, monkeypatch):
    """Run `zetamix data …` with a data folder of its own, at 80 columns."""
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments, status=0):
        result = CliRunner().invoke(app, ["data", *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result.output

    return run


def flat(text):
    return " ".join(text.replace("│", " ").split())


def rows(text):
    """The lines of a table by their first word."""
    return {line.split()[0]: flat(line) for line in text.split("\n") if line.strip()}


@pytest.mark.parametrize("width", [80, 120])
def test_list_shows_every_dataset(width, zetamix, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    text = zetamix("list")
    lines = text.split("\n")
    assert list(rows(text))[1 : len(CATALOGUE) + 1] == list(CATALOGUE)
    # the last lines are a legend and a path, which are not broken
    assert max(len(line) for line in lines[: len(CATALOGUE) + 4]) <= width
    assert "…" not in text
    assert {
        "pathmnist 107,180 9 28² RGB CC BY 4.0 auto",
        "dermofit 1,300 5 256² RGB signed, with a fee request",
        "msk 3,676 4 256² RGB per image tool",
        "helix12 8,192 1 R¹² drawn from a seed built in",
        "digits 1,797 10 8² grey CC BY 4.0 built in",
    } <= set(rows(text).values())


def test_list_shows_local_datasets(zetamix, tmp_path):
    with installed("mednode", "cifar10", data_dir=tmp_path / "data"):
        assert rows(zetamix("list"))["mednode"].endswith("auto files")
        zetamix("prepare", "mednode")
        after = rows(zetamix("list"))
    assert after["mednode"].endswith("auto prepared")
    assert after["cifar10"].endswith("auto files")
    assert after["cifar100"].endswith("auto")
    assert str(tmp_path / "no") in zetamix("list", "--data-dir", tmp_path / "no")


@pytest.mark.parametrize("name", CATALOGUE)
def test_info_of_every_dataset(name, zetamix):
    text = flat(zetamix("info", name))
    spec = CATALOGUE[name]
    assert text.startswith(f"name {name}, {spec.title} classes {len(spec.classes)}: ")
    assert f"licence {spec.licence}" in text
    for split, count in spec.sizes.items():
        assert f"{split} {count:,}" in text
    if spec.access == "download":
        assert f"zetamix data prepare {name}" in text
    elif spec.access != "built in":
        assert "local no. " in text
        assert spec.url.split()[0] in text.replace(" ", "") or spec.url.split()[0] in text
    assert ("If you have a copy (" in text) == (spec.access != "built in")


def test_info_of_a_replacement(zetamix, tmp_path, monkeypatch):
    spec = replace(CATALOGUE["mnist"], sizes={"train": 20, "test": 10})
    monkeypatch.setitem(CATALOGUE, "mnist", spec)
    counts = {"train": [2] * 10, "test": [1] * 10}
    miniatures.write_npz(tmp_path / "data" / "mnist.npz", counts, (1, 28, 28))
    assert "local files, not prepared: zetamix data prepare mnist" in flat(zetamix("info", "mnist"))
    zetamix("prepare", "mnist")
    text = flat(zetamix("info", "mnist"))
    assert "note read from mnist.npz" in text
    assert "local train 20, test 10" in text


def test_info_and_prepare_of_a_path(zetamix, tmp_path):
    mine = class_folders(tmp_path / "mine", PETS)
    text = flat(zetamix("info", mine))
    assert text.startswith("name mine path ")
    assert "not prepared: zetamix data prepare" in text
    command = zetamix("info", mine, "--size", 8, "--seed", 3).split()
    assert command[-4:] == ["--seed", "3", "--size", "8"]
    prepared = flat(zetamix("prepare", mine))
    text = flat(zetamix("info", mine))
    assert text.startswith("name mine classes 2: cat, dog samples 24×30 RGB note ")
    assert "local train 6, val 2, test 2" in text
    assert text == prepared
    other = flat(zetamix("prepare", mine, "--size", 8, "--seed", 2))
    assert "samples 8² RGB" in other
    assert "note No val/test split found" in other
    assert "(seed 2)" in other
    assert zetamix("prepare", "digits", "--force")


def test_check_without_problems(zetamix, tmp_path):
    with installed("isic2016", data_dir=tmp_path / "data"):
        text = zetamix("check", "isic2016")
    assert flat(text).startswith("isic2016: 13 samples, no problems; no duplicates")
    table = ["class train test", "benign 5 3", "malignant 3 2", "total 8 5"]
    assert [rows(text)[row.split()[0]] for row in table] == table


def test_check_with_problems(zetamix, tmp_path):
    with installed("mednode", data_dir=tmp_path / "data"):
        photos = tmp_path / "data" / "mednode" / "complete_mednode_dataset" / "naevus"
        (photos / "1001.jpg").unlink()
        (photos / "1002.jpg").write_bytes((photos / "1002.jpg").read_bytes()[:300])
        text = zetamix("check", "mednode", status=1)
    assert flat(text).startswith("mednode: 22 samples, 3 problems; no duplicates")
    assert "12 (13)" in text
    assert "Problems train has 15 samples; expected 16." in flat(text)
    assert f"Unreadable files {photos / '1002.jpg'}: " in flat(text)


@pytest.mark.parametrize(
    ("copy", "status", "summary"),
    [
        ("train/b/copy.png", 1, "1 problem; 1 group of duplicates, 1 with conflicting labels"),
        ("test/a/copy.png", 1, "1 problem; 1 group of duplicates, 1 across splits"),
        ("train/a/copy.png", 0, "no problems; 1 group of duplicates"),
    ],
)
def test_duplicates_determine_the_exit_status(copy, status, summary, zetamix, tmp_path):
    mine = split_folders(tmp_path / "mine")
    shutil.copy(mine / "train" / "a" / "0.png", mine / copy)
    text = flat(zetamix("check", mine, status=status))
    assert text.startswith(f"mine: 7 samples, {summary}; 1 group of near-duplicates ")
    assert re.search(rf"Duplicates .*train/a/0\.png \(a\) = .* {copy}", text)


def test_long_lists_are_cut(zetamix, tmp_path):
    mine = class_folders(tmp_path / "mine", PETS)
    for k in range(13):
        (mine / "cat" / f"bad{k}.png").write_text("no image")
    assert "and 3 more" in zetamix("check", mine, status=1)


@pytest.mark.parametrize("command", ["info", "prepare", "check"])
def test_an_unknown_or_missing_dataset_gets_a_hint(command, zetamix):
    assert "Did you mean cifar10 or cifar100?" in flat(zetamix(command, "cifra10", status=1))
    if command != "info":
        assert "At https://licensing." in flat(zetamix(command, "dermofit", status=1))


def test_an_invalid_number_is_refused(zetamix):
    text = flat(zetamix("prepare", "digits", "--seed", "-3", status=1))
    assert "seed must lie between 0 and 2**31 - 1, got -3" in text


def test_an_interrupted_command_exits_with_130(zetamix, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(image_files, "map_parallel", interrupt)
    with installed("mednode", data_dir=tmp_path / "data"):
        zetamix("prepare", "mednode", status=130)
    assert not [*(tmp_path / "data" / "prepared").glob("*.part")]


def test_names_in_brackets_are_not_markup(zetamix, tmp_path):
    mine = class_folders(tmp_path / "[bold]mine[/red]", PETS)
    # long paths are folded
    assert "[bold]mine[/red]" in "".join(zetamix("prepare", mine).split())
    assert "[bold]mine[/red]" in "".join(zetamix("check", mine).split())


@pytest.mark.parametrize("command", ["info", "prepare", "check"])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(command, tmp_path):
    result = CliRunner().invoke(
        app, ["data", command, "digits", "--data-dir", str(tmp_path), "--json", str(tmp_path)]
    )
    assert result.exit_code == 2
    # the frame of a terminal breaks the sentence, and the path in it, anywhere
    assert "isafolder" in "".join(result.output.replace("│", "").split())
    assert list(tmp_path.iterdir()) == []
