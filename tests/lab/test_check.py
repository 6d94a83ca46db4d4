"""`zetamix check`: what it prints, and its status. `test_data_quality.py` tests what it finds."""

import json
import re
import shutil

import pytest
from miniatures import class_folders, split_folders
from typer.testing import CliRunner

from zetamix_lab.cli.app import app
from zetamix_lab.data import image_files


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Run `zetamix check …` with a data folder of its own, at 80 columns."""
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments, status=0):
        result = CliRunner().invoke(app, ["check", *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result.output

    return run


def flat(text):
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("copy", "status", "summary"),
    [
        (None, 0, "6 samples, no problems; no duplicates"),
        ("train/a", 0, "7 samples, no problems; 1 group of duplicates"),
        ("train/b", 1, "7 samples, 1 problem; 1 group of duplicates"),
        ("test/a", 1, "7 samples, 1 problem; 1 group of duplicates"),
    ],
)
def test_duplicates_determine_the_status(copy, status, summary, check, tmp_path):
    # a name in brackets is no markup
    mine = split_folders(tmp_path / "[red]mine")
    if copy is not None:
        shutil.copy(mine / "train" / "a" / "0.png", mine / copy / "copy.png")
    text = flat(check(mine, status=status))
    assert text.startswith(f"[red]mine: {summary} {mine}")
    assert f"total {3 if copy and 'train' in copy else 2} 2" in text
    shown = re.search(rf"Duplicates .*train/a/0\.png \(a\) = .* {copy}/copy\.png", text)
    assert bool(shown) == (copy is not None)
    assert ("Conflicting labels: 1 group" in text) == (copy == "train/b")
    assert ("Duplicates across splits: 1 group" in text) == (copy == "test/a")


def test_unreadable_files_are_named_and_long_lists_are_cut(check, tmp_path):
    mine = class_folders(tmp_path / "mine", {"cat": 5, "dog": 5})
    for k in range(13):
        (mine / "cat" / f"bad{k}.png").write_text("no image")
    text = check(mine, status=1)
    assert "Unreadable files" in text
    assert "and 3 more" in text
    assert len(json.loads(check(mine, "--json", status=1))["unreadable"]) == 13


def test_groups_are_a_column_or_a_pattern(check, tmp_path):
    mine = split_folders(tmp_path / "mine")
    text = flat(check(mine, "--group", r"([0-9]+)\.png", status=1))
    assert "Groups in more than one split" in text


def test_an_interrupted_check_exits_with_130(check, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(image_files, "map_parallel", interrupt)
    check(split_folders(tmp_path / "mine"), status=130)
