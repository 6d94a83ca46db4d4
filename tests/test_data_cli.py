"""`zetamix data`: what a user sees."""

import shutil
from dataclasses import replace

import miniatures
import pytest
from miniatures import installed, picture, save
from typer.testing import CliRunner

from zetamix.cli.app import app
from zetamix.data import CATALOGUE
from zetamix.data import image_files as decode


@pytest.fixture
def zetamix(tmp_path, monkeypatch):
    """Run `zetamix data …` with an own root, at 80 columns."""
    monkeypatch.setenv("ZETAMIX_DATA", str(tmp_path / "root"))
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments, status=0):
        result = CliRunner().invoke(app, ["data", *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result.output

    return run


def words(text):
    return " ".join(text.replace("│", " ").split())


def folder_of(path):
    for label, name in enumerate(("cat", "dog")):
        for k in range(5):
            save(path / name / f"{k}.png", picture(label, 2, k))
    return path


@pytest.mark.parametrize("width", [80, 120])
def test_list_shows_every_dataset_in_full(width, zetamix, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = zetamix("list").split("\n")
    assert [line.split()[0] for line in lines[1:] if line.strip()][: len(CATALOGUE)] == list(
        CATALOGUE
    )
    # the last line is a path, which is not broken
    assert max(len(line) for line in lines[:-2]) <= width
    assert "…" not in "".join(lines)
    by_name = {line.split()[0]: line for line in lines if line.strip()}
    assert words(by_name["pathmnist"]) == "pathmnist 107,180 9 28² RGB CC BY 4.0 auto"
    assert words(by_name["dermofit"]) == "dermofit 1,300 5 256² RGB signed, with a fee ask"
    assert words(by_name["msk"]) == "msk 3,676 4 256² RGB per image tool"
    assert words(by_name["helix12"]) == "helix12 8,192 1 R¹² drawn from a seed built in"
    assert words(by_name["digits"]) == "digits 1,797 10 8² grey CC BY 4.0 built in"


def test_list_tells_what_is_here(zetamix, tmp_path):
    root = tmp_path / "root"
    with installed("mednode", "cifar10", data_dir=root):
        assert "auto files" in words(zetamix("list"))
        zetamix("prepare", "mednode")
        lines = {line.split()[0]: line for line in zetamix("list").split("\n") if line.strip()}
    assert lines["mednode"].split()[-1] == "prepared"
    assert lines["cifar10"].split()[-1] == "files"
    assert lines["cifar100"].split()[-1] == "auto"
    assert words(zetamix("list", "--data-dir", tmp_path / "no")).endswith(
        f"Looked in {tmp_path / 'no'}."
    )


@pytest.mark.parametrize("name", CATALOGUE)
def test_info_answers_for_every_dataset(name, zetamix):
    text = words(zetamix("info", name))
    spec = CATALOGUE[name]
    assert text.startswith(
        f"name {name}, {spec.title} classes {len(spec.classes)}: {spec.classes[0]}"
    )
    assert f"licence {spec.licence}" in text
    for split, count in spec.sizes.items():
        assert f"{split} {count:,}" in text
    if spec.access == "download":
        assert f"here no. Download and prepare it with: zetamix data prepare {name}" in text
    elif spec.access != "built in":
        assert "here no. " in text
        assert spec.where.split()[0] in text.replace(" ", "") or spec.where.split()[0] in text
    else:
        assert "here " in text


def test_info_tells_what_stands_in(zetamix, tmp_path, monkeypatch):
    spec = replace(CATALOGUE["mnist"], sizes={"train": 20, "test": 10}, counts={})
    monkeypatch.setitem(CATALOGUE, "mnist", spec)
    found = {"train": [2] * 10, "test": [1] * 10}
    miniatures.write_npz(tmp_path / "root" / "mnist.npz", found, (1, 28, 28))
    assert "here files, not prepared: zetamix data prepare mnist" in words(zetamix("info", "mnist"))
    zetamix("prepare", "mnist")
    text = words(zetamix("info", "mnist"))
    assert "note read from mnist.npz, not from the official files" in text
    assert "here train 20, test 10" in text


def test_info_of_a_path(zetamix, tmp_path):
    mine = folder_of(tmp_path / "mine")
    text = words(zetamix("info", mine))
    assert text.startswith("name mine path ")
    assert "yes, not prepared: zetamix data prepare" in text
    assert zetamix("info", mine, "--size", 8, "--seed", 3).split()[-4:] == [
        *("--seed", "3"),
        *("--size", "8"),
    ]
    prepared = words(zetamix("prepare", mine))
    text = words(zetamix("info", mine))
    assert text.startswith("name mine classes 2: cat, dog samples 24×30 RGB note val and test are")
    assert "here train 6, val 2, test 2" in text
    assert text == prepared


def test_prepare_says_what_it_made(zetamix, tmp_path):
    text = words(zetamix("prepare", folder_of(tmp_path / "mine"), "--size", 8, "--seed", 2))
    assert text.startswith("name mine classes 2: cat, dog samples 8² RGB")
    assert "note val and test are split off train by us: stratified, 7:1:2, seed 2" in text
    assert "here train 6, val 2, test 2" in text
    assert "prepared " in text
    assert zetamix("prepare", "digits", "--again")


def test_check_of_what_is_right(zetamix, tmp_path):
    with installed("isic2016", data_dir=tmp_path / "root"):
        text = zetamix("check", "isic2016")
    assert words(text).startswith("isic2016: 13 samples, as expected; no duplicates")
    table = [line.split() for line in text.split("\n")]
    assert ["class", "train", "test"] in table
    assert ["benign", "5", "3"] in table
    assert ["malignant", "3", "2"] in table
    assert ["total", "8", "5"] in table


def test_check_of_what_is_wrong(zetamix, tmp_path):
    root = tmp_path / "root"
    with installed("mednode", data_dir=root):
        photos = root / "mednode" / "complete_mednode_dataset" / "naevus"
        (photos / "1001.jpg").unlink()
        (photos / "1002.jpg").write_bytes((photos / "1002.jpg").read_bytes()[:300])
        text = zetamix("check", "mednode", status=1)
    assert words(text).startswith("mednode: 22 samples, 3 wrong; no duplicates")
    assert "12 (13)" in text
    assert "Wrong train has 15 samples; expected 16." in words(text)
    assert f"Cannot be read {photos / '1002.jpg'}: " in words(text)


def test_check_of_a_folder_names_duplicates(zetamix, tmp_path):
    mine = folder_of(tmp_path / "mine")
    for k in range(5):
        save(mine / "dog" / f"copy{k}.png", picture(0, 2, k))
    text = words(zetamix("check", mine, status=1))
    assert "15 samples, " in text
    assert "wrong; 5 groups of duplicates" in text
    assert "5 with different classes" in text
    assert "Wrong " in text
    assert "cat/0.png (cat)" in text
    assert " = " in text


def test_check_of_a_test_split_that_is_a_copy_of_train_ends_with_status_1(zetamix, tmp_path):
    mine = tmp_path / "mine"
    folder_of(mine / "train")
    shutil.copytree(mine / "train", mine / "test")
    text = words(zetamix("check", mine, status=1))
    assert "10 groups of identical samples are in more than one split" in text
    assert text.startswith("mine: 20 samples, 1 wrong; 10 groups of duplicates, 10 in more than")


def test_check_of_a_single_copy_in_one_split_and_class_ends_with_status_0(zetamix, tmp_path):
    mine = tmp_path / "mine"
    for split, first in (("train", 0), ("val", 10), ("test", 20)):
        for label, name in enumerate(("cat", "dog")):
            save(mine / split / name / "0.png", picture(label, 2, first))
    save(mine / "val" / "dog" / "copy.png", picture(1, 2, 10))
    text = words(zetamix("check", mine))
    assert text.startswith(f"mine: 7 samples, all readable; 1 group of duplicates {mine}")
    assert "val val/dog/0.png (dog) = val val/dog/copy.png (dog)" in text


def test_check_says_what_counts_as_wrong(zetamix):
    text = words(zetamix("check", "--help"))
    assert "identical ones in more than one split or with different classes" in text
    assert "Duplicates in one split and class are only named" in text


def test_long_lists_are_cut_and_say_so(zetamix, tmp_path):
    mine = folder_of(tmp_path / "mine")
    for k in range(13):
        (mine / "cat" / f"bad{k}.png").write_text("no image")
    assert "and 3 more" in zetamix("check", mine, status=1)


@pytest.mark.parametrize("command", ["info", "prepare", "check"])
def test_a_wrong_name_gets_a_sentence(command, zetamix):
    text = words(zetamix(command, "cifra10", status=1))
    assert text == (
        "'cifra10' is neither a dataset that zetamix knows nor a file or folder here. Did you mean "
        "cifar10 or cifar100? `zetamix data list` shows all names."
    )


@pytest.mark.parametrize("command", ["prepare", "check"])
def test_what_needs_a_licence_says_how_to_get_it(command, zetamix, tmp_path):
    text = words(zetamix(command, "dermofit", status=1))
    assert "It does not download by itself (signed, with a fee): at https://licensing." in text
    assert text.endswith(f"or their zip files, into {tmp_path / 'root' / 'dermofit'}.")


def test_what_is_not_here_says_which_archive_would_stand_in(zetamix, tmp_path):
    said = (
        f"If you have its images as arrays, {tmp_path / 'root' / 'mnist.npz'} in the MedMNIST "
        "layout (train_images, train_labels, test_images, test_labels; 60,000 train, 10,000 test) "
        "is taken as well."
    )
    assert said.replace(" ", "") in "".join(zetamix("info", "mnist").split())
    assert said in words(zetamix("check", "mnist", status=1))
    for name, spec in CATALOGUE.items():
        taken = spec.group in ("natural", "skin")
        assert ("MedMNIST layout (" in words(zetamix("info", name))) == taken, name


def test_a_bad_number_is_a_usage_error(zetamix):
    text = words(zetamix("prepare", "digits", "--seed", "-3", status=2))
    assert "seed must lie between 0 and 2**31 - 1, got -3" in text


def test_an_interrupted_run_says_so(zetamix, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(decode, "in_parallel", interrupt)
    with installed("mednode", data_dir=tmp_path / "root"):
        text = zetamix("prepare", "mednode", status=130)
    assert text == "Interrupted; nothing half-done is left.\n"


def test_names_in_brackets_are_not_taken_for_markup(zetamix, tmp_path):
    mine = folder_of(tmp_path / "[bold]mine[/red]")
    # long paths are folded
    assert "[bold]mine[/red]" in "".join(zetamix("prepare", mine).split())
    assert "[bold]mine[/red]" in "".join(zetamix("check", mine).split())
