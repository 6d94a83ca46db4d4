"""Every dataset of the catalogue, read from a miniature in its exact layout, whole and broken."""

import pickle
import re
import shutil
from dataclasses import replace

import miniatures
import pytest
import torch
from miniatures import (
    Attack,
    build,
    check_shades,
    installed,
    not_found,
    prepared,
    refuses,
    split_sizes,
)

from paper import datasets as data
from paper.datasets import CATALOGUE
from zetamix_lab.data import DataError, DatasetNotFoundError


def counts(dataset, made):
    by_split = {name: tuple(split.counts().tolist()) for name, split in dataset.splits.items()}
    return {"all": tuple(map(sum, zip(*by_split.values(), strict=True)))} if made else by_split


@pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "archives"])
@pytest.mark.parametrize("name", miniatures.NAMES)
def test_a_miniature_is_read(name, packed, tmp_path):
    with installed(name, data_dir=tmp_path, packed=packed) as specs:
        spec = specs[name]
        dataset = data.load(name)
        assert dataset.classes == spec.classes
        assert split_sizes(dataset) == spec.sizes
        assert counts(dataset, spec.split == "made") == spec.counts
        for split in dataset.splits.values():
            assert (split.samples.dtype, split.shape) == (torch.uint8, spec.shape)
            assert split.labels.dtype == torch.int64
        check_shades(dataset)


@pytest.mark.parametrize("name", ["cifar10", "stl10", "pathmnist", "imagenette", "isic2017"])
def test_images_are_upright(name, tmp_path):
    with installed(name, data_dir=tmp_path):
        test = data.load(name).test
    blue = test.samples[:, 2].float()
    assert (blue.diff(dim=1).mean() > 0.5).item()
    assert (blue.diff(dim=2).abs().max() < 8).item()


@pytest.mark.parametrize("name", ["mnist", "cifar100", "stl10", "imagewoof", "msk"])
def test_files_are_found_where_torchvision_puts_them(name, tmp_path):
    spec = build(name, tmp_path / "elsewhere")
    shutil.move(tmp_path / "elsewhere" / name, tmp_path / "data")
    if spec.group == "skin":
        # names of skin datasets are ambiguous outside of their own folder
        not_found(spec, tmp_path / "data", f"is not in {tmp_path / 'data'}")
    else:
        assert split_sizes(data.load(spec, tmp_path / "data")) == spec.sizes


def test_created_splits_do_not_depend_on_the_order_of_a_table(tmp_path):
    with installed("uda", data_dir=tmp_path):
        before = data.load("uda").fingerprint
        shutil.rmtree(tmp_path / "prepared")
        table = tmp_path / "uda" / "metadata.csv"
        header, *rows = table.read_text().splitlines()
        table.write_text("\n".join([header, *reversed(rows)]) + "\n")
        assert data.load("uda").fingerprint == before


def test_an_npz_replaces_the_official_files(tmp_path):
    spec = replace(CATALOGUE["cifar10"], sizes={"train": 20, "test": 10})
    path = tmp_path / "cifar10.npz"
    miniatures.write_npz(path, {"train": [2] * 10, "test": [1] * 10}, (3, 32, 32))
    dataset = data.load(spec, tmp_path)
    assert (dataset.classes, list(dataset.splits)) == (spec.classes, ["train", "test"])
    assert dataset.origin.startswith(str(path))
    assert "cifar10.npz" in dataset.notes[-1]
    # one of other sizes does not, and official files come first
    shutil.rmtree(tmp_path / "prepared")
    with pytest.raises(DataError, match="train has 20 samples instead of 50,000; test has 10"):
        data.load("cifar10", tmp_path)
    path.write_bytes(b"not even read")
    official = build("cifar10", tmp_path)
    assert str(tmp_path / "cifar10") in data.load(official, tmp_path).origin


# variants of layouts that are in circulation


def test_older_columns_of_the_isic_archive(tmp_path):
    spec = build("uda", tmp_path)
    table = tmp_path / "uda" / "metadata.csv"
    table.write_text(table.read_text().replace("isic_id", "name").replace(",diag", ",Diag"))
    assert counts(data.load(spec, tmp_path), made=True) == spec.counts


def test_isic2018_without_its_test_split(tmp_path):
    spec = build("isic2018", tmp_path)
    shutil.rmtree(tmp_path / "isic2018" / "ISIC2018_Task3_Test_Input")
    shutil.rmtree(tmp_path / "isic2018" / "ISIC2018_Task3_Test_GroundTruth")
    assert list(data.load(spec, tmp_path).splits) == ["train", "val"]


def test_derm7pt_both_kinds_share_one_archive(tmp_path):
    clinical = build("derm7pt_clinical", tmp_path, packed=True)
    other = CATALOGUE["derm7pt_dermoscopic"]
    dermoscopic = replace(other, sizes=clinical.sizes, counts=clinical.counts)
    first, second = (data.request(spec, tmp_path, fetch=True) for spec in (clinical, dermoscopic))
    assert first.source(None).names[5].startswith("release_v0/images/nel/")
    assert second.source(None).names[5].startswith("release_v0/images/Aal/")


def test_an_archive_that_has_grown_gets_a_note_and_is_no_problem(tmp_path):
    smaller = replace(build("uda", tmp_path), sizes={"train": 13, "val": 3, "test": 4})
    assert "train has 14 samples instead of 13" in data.load(smaller, tmp_path).notes


# datasets that are not on this machine


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar100", "python -m paper data cifar100 --prepare --data-dir {data_dir}"),
        ("msk", "isic image download --collections 289,290,288,287,286 {data_dir}/msk"),
        ("dermofit", "(signed, with a fee). At https://licensing"),
        ("derm7pt_clinical", "put release_v0.zip, or the folder release_v0, into"),
        ("ph2", "put the folder PH2Dataset into {data_dir}/ph2."),
    ],
)
def test_a_missing_dataset_says_how_to_get_it(name, message, tmp_path):
    not_found(CATALOGUE[name], tmp_path, re.escape(message.format(data_dir=tmp_path)))


@pytest.mark.parametrize(
    ("name", "missing"),
    [("isic2016", "ISBI2016_ISIC_Part3_Test_GroundTruth.csv"), ("dermofit", "PYO")],
)
def test_an_incomplete_folder_says_which_files_are_missing(name, missing, tmp_path):
    build(name, tmp_path)
    path = tmp_path / name / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    not_found(CATALOGUE[name], tmp_path, f"incomplete: {missing} not found")


# broken files: the error names the file and the row


def edit(table, row, old, new):
    def change(base):
        lines = (base / table).read_text().split("\n")
        assert old in lines[row - 1]
        lines[row - 1] = lines[row - 1].replace(old, new)
        (base / table).write_text("\n".join(lines))

    return change


def remove(path):
    def change(base):
        shutil.rmtree(base / path) if (base / path).is_dir() else (base / path).unlink()

    return change


def rename(path, name):
    return lambda base: (base / path).rename((base / path).with_name(name))


ISIC2016 = "ISBI2016_ISIC_Part3_Training_GroundTruth.csv"
ISIC2017 = "ISIC-2017_Training_Part3_GroundTruth.csv"
ISIC2018 = "ISIC2018_Task3_Validation_GroundTruth/ISIC2018_Task3_Validation_GroundTruth.csv"
PHOTOS = "ISBI2016_ISIC_Part3_Test_Data"
PARACHUTE = "imagenette2/train/n03888257/n03888257_2.JPEG"
DERM7PT, PH2 = "release_v0/meta/meta.csv", "PH2Dataset/PH2_dataset.txt"
BROKEN = [
    ("isic2016", edit(ISIC2016, 1, "benign", "harmless"), "csv, row 1: label 'harmless'"),
    ("isic2016", edit(ISIC2016, 3, "benign", "harmless"), "csv, row 3: label 'harmless'"),
    ("isic2016", edit(ISIC2016, 4, "ant", "ant,1"), "csv, row 4: expected 2 cells, got 3"),
    ("isic2016", remove(f"{PHOTOS}/ISIC_1500002.jpg"), "csv, row 3: image 'ISIC_1500002' not fo"),
    ("isic2017", edit(ISIC2017, 1, "MELANOMA", "MEL"), "row 1: .*; missing: melanoma"),
    (
        "isic2017",
        edit(ISIC2017, 2, "0.0,0.0", "0.5,0.0"),
        "row 2: expected at most one 1 .* got 0.5",
    ),
    ("isic2017", edit(ISIC2017, 2, "0.0,0.0", "1.0,1.0"), "row 2: .* melanoma, seb.* got 1.0, 1.0"),
    ("isic2018", edit(ISIC2018, 2, "1.0", "0.0"), "row 2: expected exactly one 1 and zeros in nv"),
    ("isic2018", remove(ISIC2018), "Validation_GroundTruth.csv cannot be read: No such file"),
    ("uda", edit("metadata.csv", 1, ",diagnosis", ",said"), "row 1: .*diagnosis.* got isic_id"),
    ("uda", edit("metadata.csv", 1, "isic_id", "number"), "row 1: .*isic_id.* got number"),
    ("derm7pt_clinical", edit(DERM7PT, 4, "basal cell", "freckle"), "csv, row 4: diagnosis 'fr"),
    ("ph2", edit(PH2, 3, " 0 ||", " 7 ||"), "txt, row 3: clinical diagnosis .7.; expected"),
    ("ph2", edit(PH2, 1, "Clinical Diagnosis", "Diagnosis"), "row 1: .*Clinical Diagnosis, got"),
    ("ph2", remove("PH2Dataset/PH2 Dataset images/IMD005"), "row 5: image 'IMD005' not found"),
    ("ph2", rename(PH2, "PH2_dataset.xlsx"), "PH2_dataset.txt is missing.* Extract it from"),
    (
        "mednode",
        remove("complete_mednode_dataset/naevus/1003.jpg"),
        "train has 15 samples instead of 16; all has 12 of nevus instead of 13",
    ),
    ("mednode", remove("complete_mednode_dataset/naevus"), "Class .nevus. of .* has 0 images"),
    (
        "imagenette",
        rename("imagenette2/val/n01440764", "fish"),
        "unexpected folder fish; expected n01",
    ),
    ("imagenette", remove(PARACHUTE), "train has 2 of parachute instead of 3"),
]


@pytest.mark.parametrize(("name", "change", "message"), BROKEN)
def test_broken_files_are_named_with_their_row(name, change, message, tmp_path):
    spec = build(name, tmp_path)
    change(tmp_path / spec.folder)
    refuses(spec, tmp_path, message)


def test_a_pickle_with_another_checksum_is_never_loaded(tmp_path):
    spec = build("cifar10", tmp_path)
    touched = tmp_path / "touched"
    file = tmp_path / "cifar10" / "cifar-10-batches-py" / "data_batch_3"
    file.write_bytes(pickle.dumps(Attack(touched)))
    refuses(spec, tmp_path, r"data_batch_3 has the md5 \w+, expected \w+")
    assert not touched.exists()


# prepared data


def test_later_loads_need_no_source(tmp_path):
    with installed("uda", data_dir=tmp_path):
        first = data.prepare("uda")
        shutil.rmtree(tmp_path / "uda")
        again = data.prepare("uda")
        assert again.fingerprint == first.fingerprint
        assert torch.equal(again.test.samples, first.test.samples)
        assert (again.origin, again.notes) == (first.origin, first.notes)
        (folder,) = prepared(tmp_path)
        (folder / "val.samples").write_bytes(b"")
        with pytest.raises(DatasetNotFoundError, match=r"^UDA \(uda\) is not in"):
            data.load("uda")
